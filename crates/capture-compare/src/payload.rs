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
//! int4, measured). Up to 16σ are allowed for, and at most a fifth. Conversely, where all scales changed by σ, as a global
//! one does, σ/1.6u of the codes have to have moved: less than a sixteenth of that is a fault.
//!
//! A 4-bit code beside codes that were kept moves by one step, by more only where noise moves many of them.

use crate::{exact::same_bits, float::Float, whole::Whole};
use capture_core::Dtype;
use serde::{Deserialize, Serialize};

/// Rows and columns looked at together.
const PANEL: (u64, u64) = (16, 4096);
/// Neighbours along an axis.
const RUN: usize = 16;
/// Most that noise may have moved a scale by.
const MOST_MOVED: f64 = 0.2;
/// Mean change below which that of all values is not judged.
const LEAST_CHANGE: f64 = 1.0 / 4096.0;

/// What codes say of two quantised tensors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Codes {
    /// How many codes differ.
    pub differing: u64,
    /// Largest relative change of a run of values whose codes were kept.
    pub rescaled: f64,
    /// Change that rounding, and the noise that codes which differ are a sign of, may make of it.
    pub allowed: f64,
    /// Largest number of steps of a 4-bit code beside codes that were kept, over what is allowed: beside those of its row
    /// and of its column. Blocks lie along one of them, and across blocks a scale that changed looks the same.
    pub jump: [f64; 2],
    /// How many codes the change of all values whose codes were kept ought to have moved.
    pub expected: f64,
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
    let mut found = Codes { differing: 0, rescaled: 0.0, allowed: 0.0, jump: [0.0; 2], expected: 0.0 };
    let width = reference.shape.last().copied().unwrap_or(1).max(1);
    let rows = reference.len() / width;
    let is_small = a.float().is_none_or(|float| Some(float) == Float::of(Dtype::F4));
    let mut panel = Panel { steps_of: is_small.then_some(a.float()), ..Panel::default() };
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
    let change = panel.all.change();
    if change > LEAST_CHANGE {
        found.expected = change / (1.6 * codes_roundoff) * f64::from(panel.all.count.1);
    }
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
    /// Of 4-bit codes the format, if they are floats.
    steps_of: Option<Option<Float>>,
    /// All numbers so far.
    all: Run,
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

    fn measure(&mut self, found: &mut Codes) {
        let mut down = vec![Run::default(); self.columns];
        let [r, c, k, l] = &self.numbers;
        let apart = |a: f64, b: f64| match self.steps_of {
            None => 0,
            Some(None) => (a - b).abs() as u32,
            Some(Some(float)) => float.place(a).abs_diff(float.place(b)) as u32,
        };
        for row in (0..r.len()).step_by(self.columns) {
            let mut across = Run::default();
            for (j, down) in down.iter_mut().enumerate() {
                let at = row + j;
                let kept = k[at] == l[at];
                found.differing += u64::from(!kept);
                if r[at].abs() >= self.steps[at] && r[at].is_finite() && c[at].is_finite() {
                    let numbers = (r[at], c[at], apart(k[at], l[at]));
                    [&mut across, down, &mut self.all].into_iter().for_each(|run| run.add(numbers, kept));
                }
                if j % RUN == RUN - 1 || j == self.columns - 1 {
                    found.take(0, &std::mem::take(&mut across));
                }
            }
        }
        down.iter().for_each(|run| found.take(1, run));
    }
}

/// Sums over neighbours.
#[derive(Clone, Copy, Default)]
struct Run {
    /// All, and those that kept their code.
    count: (u32, u32),
    /// Σ |c − r| and Σ |r| of these.
    sums: (f64, f64),
    /// Most steps between codes.
    jump: u32,
}

impl Run {
    fn add(&mut self, (r, c, steps): (f64, f64, u32), kept: bool) {
        self.jump = self.jump.max(steps);
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

    /// The most steps over what noise allows that moves as many of the others.
    fn jump(&self) -> f64 {
        let (all, kept) = self.count;
        if 3 * kept < all || self.jump == 0 {
            return 0.0;
        }
        let others = f64::from(all - kept - 1) / f64::from(all);
        f64::from(self.jump) / (1.5 + 12.0 * others)
    }
}

impl Codes {
    fn take(&mut self, axis: usize, run: &Run) {
        self.rescaled = self.rescaled.max(run.change());
        self.jump[axis] = self.jump[axis].max(run.jump());
    }

    /// The tests: the change of a run over what is allowed, the change of all over what the codes that differ are a sign
    /// of, and steps of single codes.
    pub(crate) fn severities(&self) -> [(&'static str, f64); 3] {
        let moved = (self.differing as f64).max(2.0);
        [
            ("scale", self.rescaled / self.allowed),
            ("scales", self.expected / (16.0 * moved)),
            ("code", self.jump[0].min(self.jump[1])),
        ]
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
