//! How two logical tensors differ, in numbers: one pass over both for classes and scales, one for errors in rounding
//! units. Judging them is left to [`crate::verdict`].
//!
//! A *row* is the smallest block of trailing dims that holds at least 16 numbers; one longer than
//! [`MAX_ROW`](crate::rows::MAX_ROW) is cut. With r the reference, c the candidate and u the unit roundoff of the coarsest arithmetic:
//!
//! - a_i is row i's mean of |r|, at least a quarter of the median over rows, as less may be left where more
//!   cancelled; ĉ_j is column j's mean of |r|/a_i over its median, pulled towards 1 by four rows and at least 1/4. Means of magnitudes, as one massive channel moves an rms
//!   20-fold and a mean hardly.
//! - w = u·(|r| + a_i·ĉ_j + Σ|p|) + η, with p the terms where the tensor is a sum over ranks; q = (c − r)/w is the error
//!   in rounding units.
//!
//! Memory is a few rows, and a few numbers per row and column, whatever the size of the tensors. Places that are not
//! finite on both sides are counted and left out. So are those that are zero on both, as a ReLU makes them: they have no
//! error, and a mean with them would be the size of no number.

use crate::{
    decode::numbers_per_element,
    float::{BF16, F16, F32, F64, Float},
    magnitudes::unit,
    real::Line,
    rows::{Grid, Pair, Row},
    scales::{Scales, class},
    statistics::{PartError, Statistics},
    units::Units,
    whole::Whole,
};
use capture_core::Dtype;

/// Compares two tensors of one shape. `precision` is the coarsest arithmetic upstream, where it is known.
#[must_use]
pub fn measure(reference: &Whole<'_>, candidate: &Whole<'_>, precision: Option<Float>) -> Statistics {
    let parts = vec![PartError::default(); candidate.parts.len()];
    let mut s = Statistics { parts, ..Statistics::default() };
    let (Some(stored), Some(part)) = (coarser_of(reference, candidate), candidate.parts.first()) else {
        return s;
    };
    let grid = Grid::of(&reference.shape);
    let pair = Pair::new(reference, candidate);
    let scales = Scales::measure(&pair, &grid, &Line::of(stored), &mut s);
    let mut float = in_use(stored, scales.bits);
    if let Some(precision) = precision {
        float = float.coarser(precision);
    }
    s.float = Some(float);
    if !s.differs && s.finite > 0 {
        s.rel_l2 = Some(0.0);
    }
    if s.differs {
        let (clip, least) = (f64::INFINITY, [0.0; 3]);
        let units = Units { scales: &scales, float, clip, least, chunk: chunk(part.dtype) };
        units.write(&pair, &grid, &mut s);
    }
    s
}

/// Numbers in 16 bytes as stored; a power of two, which those of 6 bits are not.
fn chunk(dtype: Dtype) -> usize {
    (128 / dtype.bitsize() * numbers_per_element(dtype)).next_power_of_two()
}

/// Hands over the size of the error of every number, a row at a time: first number, errors. They are in the units
/// of [`measure`], or differences where the numbers are integers; infinite where classes differ.
pub(crate) fn errors(
    reference: &Whole<'_>,
    candidate: &Whole<'_>,
    precision: Option<Float>,
    take: &mut dyn FnMut(u64, &[f64]),
) {
    let grid = Grid::of(&reference.shape);
    let pair = Pair::new(reference, candidate);
    let stored = coarser_of(reference, candidate);
    let mut s =
        Statistics { parts: vec![PartError::default(); candidate.parts.len()], ..Statistics::default() };
    let scales = Scales::measure(&pair, &grid, &Line::of(stored.unwrap_or(F64)), &mut s);
    let unit = stored.map(|stored| {
        unit(precision.map_or(in_use(stored, scales.bits), |p| in_use(stored, scales.bits).coarser(p)))
    });
    let mut numbers = Row::<f64>::new(&grid);
    let mut errors = vec![0.0; grid.width];
    for row in 0..grid.rows {
        let (from, len) = grid.row(row);
        pair.read(from, len, &mut numbers);
        pair.read_terms(from, len, &mut numbers);
        for (j, error) in errors[..len].iter_mut().enumerate() {
            let (r, c) = (numbers.r[j], numbers.c[j]);
            *error = if class(r) != class(c) {
                f64::INFINITY
            } else if r == c || !r.is_finite() {
                0.0
            } else {
                unit.as_ref().map_or((c - r).abs(), |unit| {
                    let scale = scales.rows[row as usize].scale * scales.columns[j];
                    (c - r).abs() / unit(r, scale, numbers.term(j))
                })
            };
        }
        take(from, &errors[..len]);
    }
}

/// The coarser of the stored formats; `None` for integers.
fn coarser_of(reference: &Whole<'_>, candidate: &Whole<'_>) -> Option<Float> {
    let of = |whole: &Whole<'_>| whole.parts.first()?.float();
    Some(of(reference)?.coarser(of(candidate)?))
}

/// What the arithmetic was, where its results were stored wider: the low bits of every significand are zero then. Only
/// the usual formats are taken for one, and the exponents stay those of the stored format.
fn in_use(stored: Float, significands: u64) -> Float {
    let bits = 53 - (significands | 1 << 52).trailing_zeros();
    let precision = [BF16, F16, F32].map(|f| f.precision).into_iter().find(|p| bits <= *p);
    Float { precision: precision.map_or(stored.precision, |p| p.min(stored.precision)), ..stored }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{part::Part, whole::Node};
    use capture_core::Dtype;

    fn whole(shape: &[u64], numbers: &[f32]) -> Whole<'static> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = Part::new(Some(0), Dtype::F32, shape, None, bytes.into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape: shape.to_vec(), padded: 0 }
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-6 * expected.abs(), "expected {expected}, found {found}");
    }

    /// Eight rows of 32, one of them zero, one with a spike. The expected values come from a numpy implementation.
    #[test]
    fn statistics_are_those_of_the_numpy_implementation() {
        let (mut r, mut c) = (vec![0f32; 256], vec![0f32; 256]);
        for i in 0..7i32 {
            for j in 0..32i32 {
                let at = (i * 32 + j) as usize;
                let scale = if i == 2 { 8.0 } else { 1.0 };
                r[at] = ((i * 7 + j * 13) % 17 - 8) as f32 / 4.0 * scale;
                c[at] = r[at] + ((i * 5 + j * 11) % 7 - 3) as f32 / 256.0;
            }
        }
        c[5 * 32 + 3] += 2.0;
        let s = measure(&whole(&[8, 32], &r), &whole(&[2, 4, 32], &c), Some(BF16));
        assert_eq!((s.rows.len(), s.columns.len(), s.finite), (7, 32, 256));
        let rows = [1.04309721, 1.16018879, 0.141513272, 1.05079344, 1.11006859, 56.9237298, 1.11559081];
        let effective = [13.6231002, 10.7900413, 11.3215387, 13.525996, 14.4394116, 1.0006544, 11.5419743];
        for ((line, rms), n) in s.rows.iter().zip(rows).zip(effective) {
            close(line.rms, rms);
            close(line.n_effective, n);
        }
        for (line, rms) in s.columns.iter().zip([
            1.0861875746842282,
            0.710558971566858,
            0.9520260211462442,
            121.69288976730475,
        ]) {
            close(line.rms, rms);
        }
        let slopes = [
            8.82552748e-04,
            -8.15137341e-05,
            -6.20416938e-06,
            8.87632614e-04,
            -4.46596594e-04,
            5.20504531e-02,
            4.32994942e-04,
        ];
        // Of errors that nearly cancel; a slope matters from u/50 on.
        s.slopes
            .iter()
            .zip(slopes)
            .for_each(|(b, expected)| assert!((b - expected).abs() < 1e-6 * expected.abs() + 1e-9));
        let (error, reference) = s.common.unwrap();
        close(error, -0.10963168606065153);
        close(reference, -0.14427376833539612);
        let tail = s.tail;
        assert_eq!((tail.k, tail.len), (13, 52));
        close(tail.kth, 1.9088955657649378);
        close(tail.last, 1.2233725611553725);
        close(s.max_units.0, 321.95658296214896);
        close(s.rel_l2.unwrap(), 0.03469452120804337);
        close(s.cosine.unwrap(), 0.9993984410905559);
        close(s.slope.unwrap(), 0.9997733121013116);
        check_severities(&s);
        assert_eq!((s.max_units.1, s.max_abs.1), (163, 163));
        close(s.parts[0].max_units, s.max_units.0);
        assert_eq!((s.parts[0].row_units, s.parts[0].class_changes), (s.rows[5].rms, 0));
    }

    /// The numpy implementation's, with the chunks of f32.
    #[track_caller]
    fn check_severities(s: &Statistics) {
        let found = crate::noise::severities(s, BF16, None);
        for (test, expected) in [
            ("element", 20.299071885684985),
            ("element-2", 10.794979900564737),
            ("chunk", 12.461133397164486),
            ("row", 3.7993076633349463),
            ("column", 8.97656142735152),
            ("block", 0.0),
            ("groups", 9.896911433907265),
            ("row slope", 0.9572320085671465),
            ("slope", 0.2981624981161193),
            ("common", -0.18948686479618784),
            ("level", 0.37952620238825546),
            ("direct row", 0.0),
        ] {
            let severity = found.iter().find(|(name, _)| *name == test).unwrap().1;
            assert!(
                (severity - expected).abs() <= 1e-6 * expected.abs(),
                "{test}: expected {expected}, found {severity}"
            );
        }
    }

    #[test]
    fn low_bits_that_are_zero_tell_the_arithmetic() {
        let float = |r: f32, c: f32| measure(&whole(&[1], &[r]), &whole(&[1], &[c]), None).float.unwrap();
        assert_eq!(float(1.0, 1.0078125).precision, 8);
        assert_eq!(float(1.0, 1.0 + 2f32.powi(-9)).precision, 11);
        assert_eq!(float(1.0, 1.1).precision, 24);
        // The exponents stay: a tiny f32 is not below fp16's smallest number.
        assert_eq!(float(1.0, 1.0 + 2f32.powi(-9)).min_exponent, -126);
    }

    #[test]
    fn classes_are_counted_and_left_out() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let r = whole(&[6], &[1.0, nan, nan, inf, -inf, 2.0]);
        let c = whole(&[6], &[1.0, nan, 3.0, nan, inf, 2.5]);
        let s = measure(&r, &c, None);
        assert_eq!((s.finite, s.nan, s.both_nan, s.class_change), (2, 2, 1, Some(2)));
        assert_eq!((s.parts[0].class_changes, s.max_abs), (3, (0.5, 5)));
        close(s.slope.unwrap(), 1.2);
    }
}
