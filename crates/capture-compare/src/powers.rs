//! Numbers that are whole powers of two, as E8M0 scales are. A relative error cannot be judged where the next number is
//! twice as large, but how many of them rounding moved can: a scale follows the largest number of its block, and goes up
//! or down by one step where noise takes that over a power of two. Noise σ does so to about 1.4σ of them, each by itself.
//!
//! Rounding is: steps of one, of at most a quarter of all, and of no more than half of a row or column one way, unless so
//! few numbers say nothing.

use crate::{float::Float, whole::Whole};

/// Largest share of all that rounding moves.
const MOST_MOVED: f64 = 0.25;
/// Largest share of a row or column that it moves one way.
const MOST_OF_LINE: f64 = 0.5;
/// Numbers that are read at once, unless one row is longer.
const BAND: u64 = 1 << 16;

/// How many numbers of a row or column went up and down, and how many there are.
#[derive(Clone, Copy, Default)]
struct Line {
    up: u64,
    down: u64,
    all: u64,
}

impl Line {
    fn add(&mut self, steps: i64) {
        self.up += u64::from(steps > 0);
        self.down += u64::from(steps < 0);
        self.all += 1;
    }

    fn share(self) -> f64 {
        self.up.max(self.down) as f64 / self.all.max(1) as f64
    }
}

/// How far two tensors of one shape are from what rounding does, above 1 where it does not; `None` where they are no
/// powers of two.
#[must_use]
pub fn severity(reference: &Whole<'_>, candidate: &Whole<'_>) -> Option<f64> {
    let float = |whole: &Whole<'_>| whole.parts.first()?.float().filter(|float| float.precision == 1);
    let (float, _) = (float(reference)?, float(candidate)?);
    if reference.has_sum() || candidate.has_sum() || reference.is_empty() {
        return None;
    }
    let width = reference.shape.last().copied().unwrap_or(1).max(1) as usize;
    let n_rows = (BAND / width as u64).max(1);
    let (mut rows, mut columns, mut all) = (Vec::new(), vec![Line::default(); width], Line::default());
    let (mut farthest, mut from) = (0, 0);
    while from < reference.len() {
        let len = (n_rows * width as u64).min(reference.len() - from) as usize;
        let [r, c] = [reference, candidate].map(|whole| {
            let mut numbers = vec![0.0; len];
            whole.read(from, &mut numbers);
            numbers
        });
        for (r, c) in r.chunks(width).zip(c.chunks(width)) {
            let mut row = Line::default();
            for ((r, c), column) in r.iter().zip(c).zip(&mut columns) {
                let steps = steps(float, *r, *c);
                farthest = farthest.max(steps.abs());
                [&mut row, column, &mut all].into_iter().for_each(|line| line.add(steps));
            }
            rows.push(row);
        }
        from += len as u64;
    }
    let moved = (all.up + all.down) as f64 / all.all as f64;
    let many =
        if is_more_than_chance(moved, all.all, 0.5 * MOST_MOVED, 1) { moved / MOST_MOVED } else { 0.0 };
    let n_lines = rows.len() + columns.len();
    let line = |line: &Line| {
        let is_more = is_more_than_chance(line.share(), line.all, moved, n_lines);
        if is_more { line.share() / MOST_OF_LINE } else { 0.0 }
    };
    let lines = rows.iter().chain(&columns).map(line).fold(0.0, f64::max);
    Some((farthest as f64 / 1.5).max(many).max(lines))
}

fn steps(float: Float, r: f64, c: f64) -> i64 {
    if r.is_finite() && c.is_finite() { float.place(c) - float.place(r) } else { 0 }
}

/// Whether so large a share of `n` numbers, in the one of so many lines that has the largest, is more than what happens
/// where each of them moves with that probability: by the bound of Chernoff and Hoeffding, at e⁻⁷.
fn is_more_than_chance(share: f64, n: u64, probability: f64, lines: usize) -> bool {
    let p = probability.clamp(1e-6, 1.0 - 1e-6);
    let term = |x: f64, p: f64| if x > 0.0 { x * (x / p).ln() } else { 0.0 };
    share > p && n as f64 * (term(share, p) + term(1.0 - share, 1.0 - p)) > 7.0 + (lines as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{part::Part, whole::Node};
    use capture_core::Dtype;

    fn whole(shape: &[u64], exponent: impl Fn(u64) -> u8) -> Whole<'static> {
        let bytes: Vec<u8> = (0..shape.iter().product()).map(exponent).collect();
        let part = Part::new(Some(0), Dtype::F8_E8M0, shape, None, bytes.into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape: shape.to_vec(), padded: 0 }
    }

    #[track_caller]
    fn check(shape: &[u64], steps: impl Fn(u64) -> i8, passes: bool) {
        let base = |i: u64| 120 + (i % 11) as u8;
        let moved = whole(shape, |i| base(i).wrapping_add_signed(steps(i)));
        let found = severity(&whole(shape, base), &moved).unwrap();
        assert_eq!(found <= 1.0, passes, "{found}");
    }

    #[test]
    fn single_steps_here_and_there_are_rounding_and_no_more() {
        check(&[64, 64], |_| 0, true);
        check(&[64, 64], |i| i8::from(i == 70), true);
        // Every 13th up or down.
        check(&[64, 64], |i| i8::from(i % 13 == 0) - i8::from(i % 13 == 5), true);
        check(&[64, 64], |i| 2 * i8::from(i == 70), false);
        check(&[64, 64], |_| 1, false);
        check(&[64, 64], |i| i8::from(i / 64 == 3), false);
        check(&[64, 64], |i| -i8::from(i % 64 == 3), false);
        check(&[64, 8], |i| i8::from(i / 8 == 3), false);
        check(&[64, 64], |i| i8::from(i % 2 == 0), false);
        // Of so few nothing can be said.
        check(&[2], |i| i8::from(i == 0), true);
        check(&[8], |_| 1, false);
    }

    #[test]
    fn other_formats_are_none_of_its() {
        let part = Part::new(Some(0), Dtype::U8, &[1], None, vec![1].into()).unwrap();
        let whole = Whole { parts: vec![part].into(), root: Node::Part(0), shape: vec![1], padded: 0 };
        assert_eq!(severity(&whole, &whole), None);
    }
}
