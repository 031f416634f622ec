//! How two logical tensors differ, in numbers. [`crate::measure`] finds them, [`crate::verdict`] judges them.

use crate::float::Float;
use serde::{Deserialize, Serialize};

/// How two tensors of one shape differ.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Places that are finite on both sides.
    pub finite: u64,
    /// Places that are NaN on one side only.
    pub nan: u64,
    /// Places that are NaN on both sides.
    pub both_nan: u64,
    /// First place where the classes (NaN, +inf, −inf, finite) differ.
    pub class_change: Option<u64>,
    /// The format whose roundoff is the unit.
    pub float: Option<Float>,
    /// Whether any finite number differs.
    pub differs: bool,
    /// Largest |q| and where.
    pub max_units: (f64, u64),
    /// The upper end of |q|.
    pub tail: Tail,
    /// That of |v|, where v counts less of a number's own size as rounding: `largest` is among places with |q| above 6.
    pub near_tail: Tail,
    /// The median rms of v over rows, or over columns where that is smaller.
    pub near_noise: f64,
    /// The upper end of the means of |q| over 16 bytes as stored; `None` where a row holds less than two of them.
    pub chunk_tail: Option<Tail>,
    /// Rms of q over each row that counts: it is not zero on both sides and repeats no row before it.
    pub rows: Vec<Line>,
    /// The same over columns with finite places.
    pub columns: Vec<Line>,
    /// The same over rows × 128 columns, where a row has two of them.
    pub blocks: Vec<Line>,
    /// The same over columns j of equal j mod p, and over runs of p columns, for each p that divides the width.
    pub groups: Vec<Vec<Line>>,
    /// The largest rms of a row.
    pub row_units: f64,
    /// Slope of q on (r + c)/2w by row: by how many times the row is too long.
    pub slopes: Vec<f64>,
    /// The rows in pieces, where there are fewer than 8.
    pub pieces: Option<Pieces>,
    /// The share of the energy of q that is the same in every row, unbiased, and that of r·u/w.
    pub common: Option<(f64, f64)>,
    /// ‖c − r‖ / ‖r‖ over the rows that count.
    pub relative: f64,
    /// ‖c − r‖ / ‖r‖.
    pub rel_l2: Option<f64>,
    /// Largest |c − r| and where.
    pub max_abs: (f64, u64),
    /// Largest distance on the number line of the narrower dtype.
    pub max_ulp: u64,
    /// r·c / ‖r‖‖c‖.
    pub cosine: Option<f64>,
    /// r·c / r·r: the factor that takes the reference closest to the candidate.
    pub slope: Option<f64>,
    /// By part of the candidate.
    pub parts: Vec<PartError>,
}

impl Statistics {
    /// What a report shows of it: without what there is for each row, column, block and piece, which would be held for
    /// every pair of a comparison.
    pub(crate) fn summary(self) -> Self {
        let (rows, columns, blocks) = (Vec::new(), Vec::new(), Vec::new());
        Self { rows, columns, blocks, groups: Vec::new(), slopes: Vec::new(), pieces: None, ..self }
    }
}

/// The upper end of many magnitudes by two order statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// k.
    pub k: usize,
    /// The k-th largest.
    pub kth: f64,
    /// The last of those looked at.
    pub last: f64,
    /// How many were looked at: 4k, or all there are.
    pub len: usize,
    /// The largest that is judged.
    pub largest: f64,
}

/// Rows cut into pieces of m/16 numbers, at least 8.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pieces {
    /// Rms of q over each.
    pub rms: Vec<f64>,
    /// Slope of each that is not zero on both sides.
    pub slopes: Vec<f64>,
}

/// A row, column, block or group of q.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Root mean square.
    pub rms: f64,
    /// (Σq²)²/Σq⁴: how many equal errors would carry as much.
    pub n_effective: f64,
}

/// What a part of the candidate contributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PartError {
    /// Largest |q|.
    pub max_units: f64,
    /// Largest rms of q over the part's piece of a row, where that has at least 16 numbers.
    pub row_units: f64,
    /// Places whose class differs.
    pub class_changes: u64,
}

/// λ, the tensor's own noise: the median rms of rows, or of columns where that is smaller, or of pieces where rows are few.
pub(crate) fn lambda(rows: &[Line], columns: &[Line], pieces: Option<&Pieces>) -> f64 {
    let rms = |lines: &[Line]| median(lines.iter().map(|l| l.rms)).unwrap_or(0.0);
    let by_rows = rms(rows);
    match pieces {
        Some(pieces) => by_rows.min(median(pieces.rms.iter().copied()).unwrap_or(by_rows)),
        None if rows.len() < 4 => by_rows,
        None => by_rows.min(rms(columns)),
    }
}

/// The median, the mean of the middle two where there are two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(values.collect(), 0.5)
}

/// The quantile with linear interpolation between neighbours, as numpy's default.
pub(crate) fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    let at = share * values.len().checked_sub(1)? as f64;
    let below = at.floor() as usize;
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    Some(if at > below as f64 { low + (high - low) * (at - below as f64) } else { low })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_as_numpy_does() {
        // numpy.quantile([1, 2, 3, 10], 0.75) is 4.75
        assert_eq!(quantile(vec![10.0, 1.0, 3.0, 2.0], 0.75), Some(4.75));
        assert_eq!(median([3.0, 1.0].into_iter()), Some(2.0));
        assert_eq!(median([].into_iter()), None);
    }
}
