//! A pair of tensors that differs, and whether a guess explains it.
//!
//! A guess predicts the candidate from the reference. It explains the difference where candidate and prediction differ by
//! rounding only, under the tests and the inherited noise of the verdict itself. That is checked band by band from the
//! first number to the last, and memory is a band. Most guesses are wrong by far: those fail at a glance at the first rows.

use crate::{
    float::Float,
    noise::MOST_INHERITED,
    part::Part,
    verdict::{Verdict, decide, measure},
    whole::{Join, Node, Piece, Whole},
};
use capture_core::Dtype;

/// Numbers of a band, unless one row is longer.
const BAND: u64 = 1 << 18;
/// Numbers that a guess is held against first, unless one row is longer.
const GLANCE: u64 = 1 << 12;
/// The most rows and numbers that guesses are fitted to.
const SAMPLE: (u64, u64) = (64, 1 << 20);

/// One of the terms whose sum predicts the candidate: it writes the numbers from a place on.
pub(crate) type Term<'t> = &'t dyn Fn(u64, &mut [f64]);

/// A pair of tensors of one shape that differs.
#[derive(Clone, Copy)]
pub(crate) struct Case<'w, 'r> {
    pub(crate) reference: &'w Whole<'r>,
    pub(crate) candidate: &'w Whole<'r>,
    /// The format whose roundoff is the unit; `None` for integers.
    pub(crate) float: Option<Float>,
    /// Noise of the taps before.
    pub(crate) inherited: Option<f64>,
}

/// Some rows of both tensors, evenly spaced.
pub(crate) struct Sample {
    pub(crate) rows: Vec<u64>,
    pub(crate) width: usize,
    pub(crate) r: Vec<f64>,
    pub(crate) c: Vec<f64>,
}

impl<'w, 'r> Case<'w, 'r> {
    pub(crate) fn new(
        reference: &'w Whole<'r>,
        candidate: &'w Whole<'r>,
        precision: Option<Float>,
        inherited: Option<f64>,
    ) -> Self {
        // A prediction has more digits than what it was made of: the arithmetic is told by the tensors as they are.
        let end = reference.len().min(BAND);
        let float = measure(&band(reference, 0, end), &band(candidate, 0, end), precision).statistics.float;
        let float = reference.parts.first().and_then(Part::float).and(float);
        Self { reference, candidate, float, inherited }
    }

    /// The candidate taken for the reference, and the other way round.
    pub(crate) fn swapped(self) -> Self {
        Self { reference: self.candidate, candidate: self.reference, ..self }
    }

    /// The rank of a replica of the candidate that is not as the others.
    pub(crate) fn odd_rank(&self) -> Option<u32> {
        match self.candidate.picked().as_slice() {
            &[part] if self.candidate.parts.len() > 1 => self.candidate.parts[part].rank,
            _ => None,
        }
    }

    /// Length of a row: the last dim.
    pub(crate) fn width(&self) -> u64 {
        self.reference.shape.last().copied().unwrap_or(1).clamp(1, SAMPLE.1)
    }

    /// Whole rows.
    pub(crate) fn rows(&self) -> u64 {
        self.reference.len() / self.width()
    }

    pub(crate) fn sample(&self) -> Sample {
        let width = self.width();
        let n = self.rows().min(SAMPLE.0).min((SAMPLE.1 / width).max(1));
        let rows: Vec<u64> = (0..n).map(|i| i * self.rows() / n).collect();
        let read = |whole: &Whole<'_>| {
            let mut numbers = vec![0.0; (n * width) as usize];
            for (row, out) in rows.iter().zip(numbers.chunks_mut(width as usize)) {
                whole.read(row * width, out);
            }
            numbers
        };
        let (r, c) = (read(self.reference), read(self.candidate));
        Sample { rows, width: width as usize, r, c }
    }

    /// Whether the candidate is the sum of the terms, of which there are one or two, but for rounding.
    pub(crate) fn is_sum_of(&self, terms: &[Term<'_>]) -> bool {
        !self.is_far(terms)
            && self.bands(BAND).all(|(from, to)| {
                let mut numbers = vec![vec![0.0; (to - from) as usize]; terms.len()];
                terms.iter().zip(&mut numbers).for_each(|(term, out)| term(from, out));
                if self.float.is_none() {
                    let mut candidate = vec![0.0; (to - from) as usize];
                    self.candidate.read(from, &mut candidate);
                    return (0..candidate.len())
                        .all(|i| numbers.iter().map(|n| n[i]).sum::<f64>() == candidate[i]);
                }
                let candidate = band(self.candidate, from, to);
                let shape = &candidate.shape;
                let parts: Option<Vec<Part<'_>>> = numbers.iter().map(|n| part(n, shape)).collect();
                let Some(parts) = parts else { return false };
                let root = match parts.len() {
                    1 => Node::Part(0),
                    n => Node::Sum((0..n).map(Node::Part).collect()),
                };
                let predicted = Whole { parts: parts.into(), root, shape: shape.clone(), padded: 0 };
                self.differ_by_rounding(&predicted, &candidate)
            })
    }

    /// Whether the candidate differs from the predicted tensor by rounding only.
    pub(crate) fn is(&self, predicted: &Whole<'_>) -> bool {
        let is_far = !predicted.is_computed() && self.is_far(&[&|from, out| predicted.read(from, out)]);
        !is_far
            && self.bands(BAND).all(|(from, to)| {
                self.differ_by_rounding(&band(predicted, from, to), &band(self.candidate, from, to))
            })
    }

    /// Whether the sum of the terms is farther from the first rows of the candidate than rounding and noise could take it,
    /// with much to spare. Sums may cancel, so that their size is that of what they are made of.
    fn is_far(&self, terms: &[Term<'_>]) -> bool {
        let Some((from, to)) = self.bands(GLANCE).next() else { return false };
        let zeros = || vec![0.0; (to - from) as usize];
        let (mut candidate, mut sum, mut sizes, mut own) = (zeros(), zeros(), zeros(), zeros());
        self.candidate.read(from, &mut candidate);
        if self.candidate.is_computed() {
            self.candidate.read_magnitudes(from, &mut sizes);
        }
        sizes.iter_mut().zip(&candidate).for_each(|(size, c)| *size += c.abs());
        for term in terms {
            term(from, &mut own);
            sum.iter_mut().zip(&own).for_each(|(sum, x)| *sum += x);
            sizes.iter_mut().zip(&own).for_each(|(size, x)| *size += x.abs());
        }
        let Some(float) = self.float else { return sum != candidate };
        let places = candidate.iter().zip(&sum).zip(&sizes).filter(|(_, size)| size.is_finite());
        let (error, size) = places.fold((0.0, 0.0), |(error, all), ((c, sum), size)| {
            (error + (c - sum) * (c - sum), all + size * size)
        });
        let noise = self.inherited.unwrap_or(MOST_INHERITED).max(float.roundoff());
        error > size * (16.0 * noise * noise).max(0.1)
    }

    fn differ_by_rounding(&self, predicted: &Whole<'_>, candidate: &Whole<'_>) -> bool {
        let measured = measure(predicted, candidate, self.float);
        decide(&measured, self.inherited, false).verdict <= Verdict::Rounding
    }

    /// Stretches of whole rows, of about so many numbers.
    fn bands(&self, numbers: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (len, width) = (self.candidate.len(), self.width());
        let step = width * (numbers / width).max(1);
        (0..len.div_ceil(step)).map(move |i| (i * step, ((i + 1) * step).min(len)))
    }
}

impl Sample {
    /// Both sides of every number, with its row and column; those that are not finite on both are left out.
    pub(crate) fn finite(&self) -> impl Iterator<Item = (usize, usize, f64, f64)> {
        let both = self.r.iter().zip(&self.c).enumerate();
        both.map(|(i, (r, c))| (i / self.width, i % self.width, *r, *c))
            .filter(|(_, _, r, c)| r.is_finite() && c.is_finite())
    }
}

/// The factor that takes the reference closest to the candidate.
#[derive(Clone, Copy, Default)]
pub(crate) struct Factor {
    product: f64,
    square: f64,
}

impl Factor {
    pub(crate) fn add(&mut self, r: f64, c: f64) {
        if r.is_finite() && c.is_finite() {
            self.product += r * c;
            self.square += r * r;
        }
    }

    /// Σ r².
    pub(crate) fn energy(&self) -> f64 {
        self.square
    }

    pub(crate) fn value(&self) -> Option<f64> {
        let factor = self.product / self.square;
        (self.square > 0.0 && factor.is_finite()).then_some(factor)
    }
}

/// A part that holds these numbers.
fn part(numbers: &[f64], shape: &[u64]) -> Option<Part<'static>> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    Part::new(None, Dtype::F64, shape, None, bytes.into()).ok()
}

/// The numbers `from..to` of a tensor: whole rows where they are.
fn band<'r>(whole: &Whole<'r>, from: u64, to: u64) -> Whole<'r> {
    let (length, width) = (to - from, whole.shape.last().copied().unwrap_or(1).max(1));
    let shape = match length.is_multiple_of(width) {
        true => vec![length / width, width],
        false => vec![length],
    };
    let pieces = vec![Piece { node: whole.root.clone(), start: from, length, of: whole.len() }];
    let root = Node::Join(Join { pieces, length, inner: 1 });
    Whole { parts: whole.parts.clone(), root, shape, padded: 0 }
}
