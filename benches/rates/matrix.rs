//! Matrices of f32 and their product, which adds up in f32 as tensor cores do.

use crate::{number::Format, random::Random};

/// Numbers in C order.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) numbers: Vec<f32>,
}

/// Rows of the right factor that stay in cache while all rows of the left one pass over them.
const BLOCK: usize = 64;

impl Matrix {
    pub(crate) fn of(rows: usize, width: usize, mut number: impl FnMut(usize, usize) -> f32) -> Self {
        let numbers = (0..rows * width).map(|at| number(at / width, at % width)).collect();
        Self { rows, width, numbers }
    }

    /// Weights of that size, rounded.
    pub(crate) fn weights(
        random: &mut Random,
        [rows, width]: [usize; 2],
        scale: f32,
        format: Format,
    ) -> Self {
        Self::of(rows, width, |_, _| format.round(random.nearly_normal() * scale))
    }

    /// Normal numbers of that size, rounded.
    pub(crate) fn normal(random: &mut Random, [rows, width]: [usize; 2], scale: f32, format: Format) -> Self {
        Self::of(rows, width, |_, _| format.round(random.normal() * scale))
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.width..][..self.width]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.numbers[row * self.width..][..self.width]
    }

    pub(crate) fn at(&self, row: usize, column: usize) -> f32 {
        self.numbers[row * self.width + column]
    }

    /// Each number made anew from its place and itself, then rounded.
    pub(crate) fn map(&self, format: Format, of: impl Fn(usize, usize, f32) -> f32) -> Self {
        Self::of(self.rows, self.width, |i, j| format.round(of(i, j, self.at(i, j))))
    }

    /// `self · w`, rounded.
    pub(crate) fn times(&self, w: &Self, format: Format) -> Self {
        self.slice_times(0, w, 0, w.rows, format)
    }

    /// The product of `depth` columns of this from `column` on and as many rows of `w` from `row` on, rounded.
    pub(crate) fn slice_times(
        &self,
        column: usize,
        w: &Self,
        row: usize,
        depth: usize,
        format: Format,
    ) -> Self {
        let mut y = Self { rows: self.rows, width: w.width, numbers: vec![0.0; self.rows * w.width] };
        for from in (0..depth).step_by(BLOCK) {
            let length = BLOCK.min(depth - from);
            for i in 0..self.rows {
                let x = &self.row(i)[column + from..][..length];
                let y = y.row_mut(i);
                for (k, x) in (row + from..).zip(x) {
                    y.iter_mut().zip(w.row(k)).for_each(|(y, w)| *y += x * w);
                }
            }
        }
        y.numbers.iter_mut().for_each(|y| *y = format.round(*y));
        y
    }

    /// Both of one shape, added and rounded.
    pub(crate) fn plus(&self, other: &Self, format: Format) -> Self {
        self.map(format, |i, j, x| x + other.at(i, j))
    }

    /// The same row added to every row, rounded.
    pub(crate) fn plus_row(&self, row: &[f32], format: Format) -> Self {
        self.map(format, |_, j, x| x + row[j])
    }

    /// Mean of |x| over all numbers.
    pub(crate) fn mean_magnitude(&self) -> f32 {
        self.numbers.iter().map(|x| x.abs()).sum::<f32>() / self.numbers.len() as f32
    }

    /// Each row divided by its root mean square, then times `gain`; rounded after each.
    pub(crate) fn rms_norm(&self, gain: &[f32], format: Format) -> Self {
        let scale: Vec<f32> = (0..self.rows)
            .map(|i| {
                let square = self.row(i).iter().map(|x| x * x).sum::<f32>() / self.width as f32;
                1.0 / (square + 1e-6).sqrt()
            })
            .collect();
        self.map(format, |i, j, x| format.round(x * scale[i]) * gain[j])
    }

    /// Softmax of each row over the columns that `seen` lets it see, in f32.
    pub(crate) fn softmax(&self, seen: impl Fn(usize, usize) -> bool) -> Self {
        let mut y = self.clone();
        for i in 0..self.rows {
            let row = y.row_mut(i);
            let most = (0..row.len()).filter(|j| seen(i, *j)).map(|j| row[j]).fold(f32::MIN, f32::max);
            for (j, x) in row.iter_mut().enumerate() {
                *x = if seen(i, j) { (*x - most).exp() } else { 0.0 };
            }
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum);
        }
        y
    }
}

/// x · sigmoid(x).
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// GELU, by the usual approximation.
pub(crate) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_56 * (x + 0.044_715 * x * x * x)).tanh())
}
