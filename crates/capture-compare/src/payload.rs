//! Codes of quantised tensors beside their values: whether they are equal too, and whether scales changed under them.
//!
//! A step of a 4-bit code is as large as a scale that is half as large again, so errors of values alone do not tell a wrong
//! scale from codes that rounding flipped. Codes do: where rounding moves a scale by more than its own last place, it
//! moves the codes as well, but for the smallest. Over 16 neighbours along the last dim or the one before, of which at
//! least a third of those that are not small kept their code, the change of the values is
//!
//! d = Σ |c − r| / Σ |r| over those that kept it.
//!
//! A scale that rounding moved by one place gives at most 2u of its format, 1/8 for e4m3. A power of two cannot move
//! without the codes: d = 1 or ½ there is a fault. A scale follows the largest number of its block, and so the noise that
//! came before, of which the codes are a measure: a relative noise σ moves about σ/1.6u of them (nvfp4, mxfp8, fp8 and
//! int4, measured). Up to 16σ are allowed for, and at most a fifth.

use crate::{exact::same_bits, whole::Whole};
use serde::{Deserialize, Serialize};

/// Rows and columns looked at together.
const PANEL: (u64, u64) = (16, 4096);
/// Neighbours along an axis.
const RUN: usize = 16;
/// Most that noise may have moved a scale by.
const MOST_MOVED: f64 = 0.2;

/// What codes say of two quantised tensors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Codes {
    /// How many codes differ.
    pub differing: u64,
    /// Largest relative change of a run of values whose codes were kept.
    pub rescaled: f64,
    /// Change that rounding, and the noise that codes which differ are a sign of, may make of it.
    pub allowed: f64,
}

/// Looks at the codes of two tensors of one shape; `None` where not both are quantised in one format.
#[must_use]
pub fn measure(reference: &Whole<'_>, candidate: &Whole<'_>) -> Option<Codes> {
    let codes = [reference.codes()?, candidate.codes()?];
    let (a, b) = (codes[0].parts.first()?, codes[1].parts.first()?);
    if a.dtype != b.dtype {
        return None;
    }
    let (codes_roundoff, scale_roundoff) = {
        let part = reference.parts.first()?;
        (part.float()?.roundoff(), part.scale_float()?.roundoff())
    };
    let mut found = Codes { differing: 0, rescaled: 0.0, allowed: 0.0 };
    let width = reference.shape.last().copied().unwrap_or(1).max(1);
    let rows = reference.len() / width;
    let mut panel = Panel::default();
    for row in (0..rows).step_by(PANEL.0 as usize) {
        for column in (0..width).step_by(PANEL.1 as usize) {
            let size = (PANEL.0.min(rows - row), PANEL.1.min(width - column));
            panel.read([reference, candidate, &codes[0], &codes[1]], row * width + column, width, size);
            panel.measure(&mut found);
        }
    }
    let rounding = (3.0 * scale_roundoff.min(1.0 / 16.0)).max(1.0 / 32.0);
    let noise = 1.6 * codes_roundoff * found.differing as f64 / reference.len().max(1) as f64;
    found.allowed = rounding + (16.0 * noise).min(MOST_MOVED);
    Some(found)
}

/// Whether the codes are equal as well as the values, which are.
#[must_use]
pub fn same_codes(reference: &Whole<'_>, candidate: &Whole<'_>) -> bool {
    match (reference.codes(), candidate.codes()) {
        (Some(a), Some(b)) => same_bits(&a, &b),
        _ => true,
    }
}

/// Reference, candidate, the codes of both, and the smallest steps of the reference.
#[derive(Default)]
struct Panel {
    numbers: [Vec<f64>; 4],
    steps: Vec<f64>,
    columns: usize,
}

impl Panel {
    fn read(&mut self, from: [&Whole<'_>; 4], start: u64, width: u64, (rows, columns): (u64, u64)) {
        self.columns = columns as usize;
        for (numbers, whole) in self.numbers.iter_mut().zip(from) {
            numbers.resize((rows * columns) as usize, 0.0);
            for (row, out) in numbers.chunks_mut(columns as usize).enumerate() {
                whole.read(start + row as u64 * width, out);
            }
        }
        self.steps.resize((rows * columns) as usize, 0.0);
        for (row, out) in self.steps.chunks_mut(columns as usize).enumerate() {
            from[0].read_magnitudes(start + row as u64 * width, out);
        }
    }

    fn measure(&self, found: &mut Codes) {
        let mut down = vec![Run::default(); self.columns];
        let [r, c, k, l] = &self.numbers;
        for row in (0..r.len()).step_by(self.columns) {
            let mut across = Run::default();
            for (j, down) in down.iter_mut().enumerate() {
                let at = row + j;
                let kept = k[at] == l[at];
                found.differing += u64::from(!kept);
                if r[at].abs() >= self.steps[at] && r[at].is_finite() && c[at].is_finite() {
                    across.add(r[at], c[at], kept);
                    down.add(r[at], c[at], kept);
                }
                if j % RUN == RUN - 1 || j == self.columns - 1 {
                    found.rescaled = found.rescaled.max(std::mem::take(&mut across).change());
                }
            }
        }
        found.rescaled = down.iter().map(Run::change).fold(found.rescaled, f64::max);
    }
}

/// Sums over neighbours.
#[derive(Clone, Copy, Default)]
struct Run {
    /// All, and those that kept their code.
    count: (u32, u32),
    /// Σ |c − r| and Σ |r| of these.
    sums: (f64, f64),
}

impl Run {
    fn add(&mut self, r: f64, c: f64, kept: bool) {
        self.count.0 += 1;
        if kept {
            self.count.1 += 1;
            self.sums = (self.sums.0 + (c - r).abs(), self.sums.1 + r.abs());
        }
    }

    fn change(&self) -> f64 {
        let (all, kept) = self.count;
        if 3 * kept < all || self.sums.0 == 0.0 { 0.0 } else { self.sums.0 / self.sums.1 }
    }
}

impl Codes {
    /// The change over what is allowed.
    #[must_use]
    pub fn severity(&self) -> f64 {
        self.rescaled / self.allowed
    }

    /// What is to be said beside values that differ.
    #[must_use]
    pub fn text(&self, n: u64) -> String {
        match self.differing {
            0 => "the codes are equal: only scales or zeros differ".to_owned(),
            differing => format!("{differing} of {n} codes differ"),
        }
    }
}
