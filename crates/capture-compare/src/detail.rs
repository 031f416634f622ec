//! What a page shows of a row beside its numbers: what is in both tensors, where the error lies, and the elements with
//! the largest ones. Computed only where it is asked for, as it reads both tensors again.

use crate::{
    element::Worst,
    float::Float,
    measure::errors,
    summary::{Summary, classes, spread},
    whole::{Whole, product},
};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;

/// Rows and columns that an error map has at most.
pub const CELLS: usize = 64;

/// Elements that are listed at most.
pub const LISTED: usize = 10;

/// Parts of a histogram.
pub const BINS: usize = 48;

/// Numbers of a chunk: whole blocks of a sum.
const CHUNK: u64 = 1 << 16;

/// What is to be seen of two tensors, or of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// Logical shape, in numbers.
    pub shape: Vec<u64>,
    /// The reference and the candidate; one where there is one, or both hold the same bits.
    pub sides: Vec<Side>,
    /// Where the errors lie; `None` where nothing differs.
    pub map: Option<Map>,
    /// The elements with the largest errors, the largest first; those whose class differs before all.
    pub worst: Vec<Element>,
}

/// What one side holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Dtype as recorded.
    pub dtype: String,
    /// Statistics; histograms of both sides are over the same range.
    pub summary: Summary,
}

/// The largest error in each part of a tensor, as rows × columns of the numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Rows of the tensor: its leading dims.
    pub rows: u64,
    /// Columns of the tensor: its trailing dims.
    pub columns: u64,
    /// Cells in a column and in a row of the map.
    pub shape: [usize; 2],
    /// Largest errors, row by row: rounding units, or differences where there are none, as of integers. Infinite where
    /// a class (NaN, +inf, −inf, finite) differs.
    pub cells: Vec<f32>,
}

/// An element with a large error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Element {
    /// Where it is, and what both sides hold.
    pub at: Worst,
    /// Its error: rounding units, or the difference where there are none. Infinite where its class differs.
    pub error: f64,
}

impl Detail {
    /// What is to be seen of one tensor.
    #[must_use]
    pub fn of_one(whole: &Whole<'_>) -> Self {
        Self { shape: whole.shape.clone(), sides: sides(&[whole]), map: None, worst: Vec::new() }
    }

    /// What is to be seen of two tensors of one shape. `precision` is the coarsest arithmetic upstream, where it is
    /// known.
    #[must_use]
    pub fn of_two(reference: &Whole<'_>, candidate: &Whole<'_>, precision: Option<Float>) -> Self {
        let mut map = Map::new(&reference.shape);
        let mut largest = Largest::default();
        errors(reference, candidate, precision, &mut |from, errors| {
            for (error, at) in errors.iter().zip(from..) {
                if *error != 0.0 {
                    map.add(at, *error);
                    largest.add(*error, at);
                }
            }
        });
        let element = |(error, at)| Element { at: Worst::at(reference, candidate, at), error };
        Self {
            shape: reference.shape.clone(),
            sides: sides(&[reference, candidate]),
            map: Some(map),
            worst: largest.in_order().into_iter().map(element).collect(),
        }
    }
}

/// What each side holds, with histograms over a range that holds the numbers of all.
fn sides(wholes: &[&Whole<'_>]) -> Vec<Side> {
    let classes = |whole: &&Whole<'_>| {
        let Ok(summary) = classes(&|take| in_chunks(whole, take));
        summary
    };
    let mut summaries: Vec<Summary> = wholes.iter().map(classes).collect();
    let finite = || summaries.iter().filter_map(|s| s.finite.as_ref());
    let low = finite().map(|f| f.min).fold(f64::INFINITY, f64::min);
    let high = finite().map(|f| f.max).fold(f64::NEG_INFINITY, f64::max);
    for (whole, summary) in wholes.iter().zip(&mut summaries) {
        let n = summary.n_finite();
        if let Some(found) = &mut summary.finite {
            let Ok(()) = spread(&|take| in_chunks(whole, take), found, (low, high), n, BINS);
        }
    }
    let side = |(whole, summary): (&&Whole<'_>, _)| {
        let dtype = whole.parts.first().map_or_else(String::new, |part| part.dtype.to_string());
        Side { dtype, summary }
    };
    wholes.iter().zip(summaries).map(side).collect()
}

fn in_chunks(whole: &Whole<'_>, take: &mut dyn FnMut(&[f64])) -> Result<(), Infallible> {
    let mut numbers = vec![0.0; whole.len().min(CHUNK) as usize];
    let mut from = 0;
    while from < whole.len() {
        let n = (whole.len() - from).min(CHUNK) as usize;
        whole.read(from, &mut numbers[..n]);
        take(&numbers[..n]);
        from += n as u64;
    }
    Ok(())
}

impl Map {
    /// A map without errors. Its columns are the last dim, with those before it as long as they are less than four.
    fn new(tensor: &[u64]) -> Self {
        let mut columns = 1u64;
        for dim in tensor.iter().rev() {
            if columns >= 4 {
                break;
            }
            columns = columns.saturating_mul(*dim);
        }
        let rows = product(tensor) / columns.max(1);
        let shape = [rows, columns].map(|n| n.min(CELLS as u64) as usize);
        Self { rows, columns, shape, cells: vec![0.0; shape[0] * shape[1]] }
    }

    fn add(&mut self, at: u64, error: f64) {
        let cell = |i: u64, of: u64, cells: usize| (u128::from(i) * cells as u128 / u128::from(of)) as usize;
        let row = cell(at / self.columns, self.rows, self.shape[0]);
        let cell = row * self.shape[1] + cell(at % self.columns, self.columns, self.shape[1]);
        self.cells[cell] = self.cells[cell].max(error as f32);
    }

    /// The same in no more than so many rows and columns of cells.
    #[must_use]
    pub fn shrunk(&self, cells: usize) -> Self {
        let shape = self.shape.map(|n| n.min(cells));
        let mut map = Self { shape, cells: vec![0.0; shape[0] * shape[1]], ..*self };
        for (i, error) in self.cells.iter().enumerate() {
            let (row, column) = (i / self.shape[1], i % self.shape[1]);
            let at = row * shape[0] / self.shape[0] * shape[1] + column * shape[1] / self.shape[1];
            map.cells[at] = map.cells[at].max(*error);
        }
        map
    }
}

/// The largest errors of a stream and where they are, the first of equals.
#[derive(Default)]
struct Largest {
    kept: Vec<(f64, u64)>,
    /// What is not above it is not among them.
    floor: f64,
}

impl Largest {
    fn add(&mut self, error: f64, at: u64) {
        if error > self.floor {
            self.kept.push((error, at));
            if self.kept.len() == 8 * LISTED {
                self.cut();
                self.floor = self.kept[LISTED - 1].0;
            }
        }
    }

    fn cut(&mut self) {
        self.kept.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        self.kept.truncate(LISTED);
    }

    fn in_order(mut self) -> Vec<(f64, u64)> {
        self.cut();
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{part::Part, whole::Node};
    use capture_core::Dtype;

    fn whole(shape: &[u64], dtype: Dtype, bytes: Vec<u8>) -> Whole<'static> {
        let part = Part::new(Some(3), dtype, shape, None, bytes.into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape: shape.to_vec(), padded: 0 }
    }

    fn floats(shape: &[u64], numbers: &[f32]) -> Whole<'static> {
        whole(shape, Dtype::F32, numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// 130 × 16 ones with two errors and a NaN. All numbers are bf16's, u = 2^-8, and the scale of every row is 1: an
    /// error of 1 is 1/2u = 128 units.
    #[test]
    fn a_map_holds_the_largest_error_of_each_part() {
        let shape = [65, 2, 16];
        let ones = vec![1f32; 130 * 16];
        let mut found = ones.clone();
        (found[0], found[129 * 16 + 15], found[64 * 16 + 3]) = (2.0, f32::NAN, 1.5);
        let detail = Detail::of_two(&floats(&shape, &ones), &floats(&shape, &found), None);
        let map = detail.map.unwrap();
        assert_eq!((map.rows, map.columns, map.shape), (130, 16, [64, 16]));
        let marked = |map: &Map| -> Vec<(usize, f32)> {
            map.cells.iter().copied().enumerate().filter(|c| c.1 != 0.0).collect()
        };
        // Row 64 of 130 is cell 31 of 64.
        let half = 128f32;
        assert_eq!(marked(&map), [(0, half), (31 * 16 + 3, half / 2.0), (63 * 16 + 15, f32::INFINITY)]);
        let small = map.shrunk(4);
        assert_eq!((small.shape, small.rows), ([4, 4], 130));
        assert_eq!(marked(&small), [(0, half), (4, half / 2.0), (15, f32::INFINITY)]);

        let listed: Vec<(&[u64], f64)> =
            detail.worst.iter().map(|e| (e.at.index.as_slice(), e.error)).collect();
        let half = f64::from(half);
        let expected: [(&[u64], f64); 3] =
            [(&[64, 1, 15], f64::INFINITY), (&[0, 0, 0], half), (&[32, 0, 3], half / 2.0)];
        assert_eq!(listed, expected);
        assert_eq!((detail.worst[1].at.candidate, detail.worst[1].at.rank), (2.0, Some(3)));
    }

    #[test]
    fn histograms_of_both_sides_are_over_one_range() {
        let detail = Detail::of_two(&floats(&[3], &[0.0, 1.0, 2.0]), &floats(&[3], &[0.0, 1.0, 48.0]), None);
        let [a, b] = [0, 1].map(|side| detail.sides[side].summary.finite.clone().unwrap());
        // Each of the 48 parts is 1 wide.
        assert_eq!((&a.histogram[..3], a.histogram.len()), (&[1, 1, 1][..], BINS));
        assert_eq!((b.histogram[0], b.histogram[1], b.histogram[47]), (1, 1, 1));
        assert_eq!((a.max, b.max, b.mean), (2.0, 48.0, 49.0 / 3.0));
        assert_eq!(detail.sides[0].dtype, "F32");
    }

    #[test]
    fn errors_of_integers_are_differences_and_the_largest_are_listed_in_order() {
        let numbers: Vec<u8> = (0..100).collect();
        let zeros = whole(&[100], Dtype::U8, vec![0; 100]);
        let detail = Detail::of_two(&zeros, &whole(&[100], Dtype::U8, numbers), None);
        let errors: Vec<f64> = detail.worst.iter().map(|e| e.error).collect();
        assert_eq!(errors, [99.0, 98.0, 97.0, 96.0, 95.0, 94.0, 93.0, 92.0, 91.0, 90.0]);
        assert_eq!(detail.map.unwrap().shape, [1, 64]);
        // Complex numbers, or the two experts of a token, make no map of two columns.
        assert_eq!(
            [Map::new(&[6, 8, 2]), Map::new(&[24, 8])].map(|map| (map.rows, map.columns)),
            [(6, 16), (24, 8)]
        );
    }

    #[test]
    fn an_empty_tensor_has_nothing_to_show() {
        let detail = Detail::of_two(&floats(&[0, 4], &[]), &floats(&[0, 4], &[]), None);
        assert_eq!((detail.map.unwrap().cells.len(), detail.worst.len()), (0, 0));
        assert_eq!(detail.sides[0].summary.finite, None);
    }
}
