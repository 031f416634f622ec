//! What two sides chose by scores: a router's experts, a sampled token. Scores that rounding moved past each other make
//! another choice of nearly the same, and all that follows in that row differs.
//!
//! Distances are shares of a row's scale, |x − y| / (max(|x|, |y|) + a) with a the mean magnitude of the row: over u they
//! are the rounding units of [`crate::measure`]. A side's choice *stands* by its own scores if none that it passed over
//! is larger than one that it took, and each is followed by a smaller one where their order counts, but for one direct
//! rounding: it may have been made before the scores were rounded.

use crate::{float::Float, noise::direct_units, part::Part, whole::Whole};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// More rows than this that differ are no ties.
const MOST_ROWS: usize = 1 << 14;

/// The rows in which two sides chose otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Number of the pair that holds the scores.
    pub(crate) scores: usize,
    /// The tap of the scores.
    pub(crate) tap: String,
    /// How many rows there are, and how many ids are chosen in each.
    pub(crate) shape: [u64; 2],
    /// The rows that differ, in order.
    pub(crate) chosen: Vec<Chosen>,
}

/// A row in which two sides chose otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chosen {
    pub(crate) row: u64,
    /// What each side chose and the other did not: of several those whose scores are farthest apart.
    pub(crate) ids: [i64; 2],
    /// How far apart their scores are, on the side where that is more; infinite where there is no score.
    pub(crate) apart: f64,
    /// Whether the choice of each side stands.
    pub(crate) stands: [bool; 2],
}

/// What a choice that differs is, given that its scores differ by rounding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ruling {
    /// Number of the pair that holds the scores.
    pub(crate) scores: usize,
    /// Whether every row that differs is a tie.
    pub(crate) is_tie: bool,
    /// Whether the candidate's choice is wrong by scores by which the reference's is right.
    pub(crate) is_wrong: bool,
    /// In words.
    pub(crate) text: String,
}

/// Ids and the scores that they may have been chosen by, of reference and candidate.
pub(crate) struct Choosing<'w, 'r> {
    ids: &'w [Whole<'r>; 2],
    scores: &'w [Whole<'r>; 2],
    /// Whether the place of an id in its row counts.
    ordered: bool,
    rows: u64,
    /// Scores and ids of a row.
    widths: [usize; 2],
    slack: [f64; 2],
}

impl<'w, 'r> Choosing<'w, 'r> {
    /// `None` where the shapes are not those of ids and their scores.
    pub(crate) fn new(
        ids: &'w [Whole<'r>; 2],
        scores: &'w [Whole<'r>; 2],
        precision: Option<Float>,
        ordered: bool,
    ) -> Option<Self> {
        let last = *scores[0].shape.last().filter(|last| **last > 1)?;
        let rows = scores[0].len() / last;
        let (n, k) = (ids[0].len(), ids[0].shape.last().copied().unwrap_or(1));
        // Sampled ids need no dim of their own.
        let width = if n == rows { 1 } else { k };
        if rows == 0 || n != rows * width || width > last {
            return None;
        }
        let slack = |whole: &Whole<'_>| {
            let float = whole.parts.first().and_then(Part::float)?;
            let float = precision.map_or(float, |precision| float.coarser(precision));
            Some(direct_units(float) * float.roundoff())
        };
        let slack = [slack(&scores[0])?, slack(&scores[1])?];
        Some(Self { ids, scores, ordered, rows, widths: [last as usize, width as usize], slack })
    }

    /// Whether all that the reference chose stands by its scores.
    pub(crate) fn is_by_scores(&self) -> bool {
        (0..self.rows)
            .into_par_iter()
            .all(|row| self.scores_of(row, 0).allow(&self.ids_of(row, 0), self.ordered))
    }

    /// The rows that differ; `None` where they are too many.
    pub(crate) fn chosen(&self) -> Option<Vec<Chosen>> {
        let rows: Vec<u64> =
            (0..self.rows).filter(|row| self.ids_of(*row, 0) != self.ids_of(*row, 1)).collect();
        (rows.len() <= MOST_ROWS).then(|| rows.into_par_iter().map(|row| self.of_row(row)).collect())
    }

    /// Rows and ids of each.
    pub(crate) fn shape(&self) -> [u64; 2] {
        [self.rows, self.widths[1] as u64]
    }

    fn of_row(&self, row: u64) -> Chosen {
        let ids = [self.ids_of(row, 0), self.ids_of(row, 1)];
        let mut chosen = Chosen { row, ids: [ids[0][0], ids[1][0]], apart: -1.0, stands: [true; 2] };
        for (side, own) in ids.iter().enumerate() {
            let scores = self.scores_of(row, side);
            chosen.stands[side] = scores.allow(own, self.ordered);
            let (apart, pair) = match self.ordered {
                true => scores.apart_by_place(&ids),
                false => scores.apart_as_sets(&ids),
            };
            if apart > chosen.apart {
                (chosen.apart, chosen.ids) = (apart, pair);
            }
        }
        chosen
    }

    fn ids_of(&self, row: u64, side: usize) -> Vec<i64> {
        read(&self.ids[side], row, self.widths[1]).into_iter().map(|id| id as i64).collect()
    }

    fn scores_of(&self, row: u64, side: usize) -> Scores {
        let of = read(&self.scores[side], row, self.widths[0]);
        let finite = of.iter().filter(|x| x.is_finite());
        let (sum, n) = finite.fold((0.0, 0.0), |(sum, n), x| (sum + x.abs(), n + 1.0));
        Scores { scale: sum / f64::max(n, 1.0), of, slack: self.slack[side] }
    }
}

fn read(whole: &Whole<'_>, row: u64, width: usize) -> Vec<f64> {
    let mut numbers = vec![0.0; width];
    whole.read(row * width as u64, &mut numbers);
    numbers
}

/// One side's scores of a row.
struct Scores {
    of: Vec<f64>,
    /// Mean magnitude of those that are finite.
    scale: f64,
    slack: f64,
}

impl Scores {
    /// The score of an id; NaN where there is none.
    fn at(&self, id: i64) -> f64 {
        usize::try_from(id).ok().and_then(|id| self.of.get(id)).copied().unwrap_or(f64::NAN)
    }

    fn distance(&self, x: f64, y: f64) -> f64 {
        match (x - y).abs() / (x.abs().max(y.abs()) + self.scale) {
            _ if x == y => 0.0,
            // Of what is not finite on one side, or no number on any.
            distance if distance.is_nan() => f64::INFINITY,
            distance => distance,
        }
    }

    /// Whether a choice stands by these scores.
    fn allow(&self, ids: &[i64], ordered: bool) -> bool {
        let not_above = |high: f64, low: f64| high <= low || self.distance(high, low) <= self.slack;
        let mut passed_over = self.of.clone();
        for id in ids {
            // No id is chosen twice.
            match usize::try_from(*id).ok().and_then(|id| passed_over.get_mut(id)) {
                Some(score) if !score.is_nan() => *score = f64::NAN,
                _ => return false,
            }
        }
        let least = ids.iter().map(|id| self.at(*id)).fold(f64::INFINITY, f64::min);
        let most = passed_over.into_iter().fold(f64::NEG_INFINITY, f64::max);
        not_above(most, least)
            && (!ordered || ids.windows(2).all(|pair| not_above(self.at(pair[1]), self.at(pair[0]))))
    }

    /// The ids of the two sides that stand at one place and are farthest apart, and how far.
    fn apart_by_place(&self, [a, b]: &[Vec<i64>; 2]) -> (f64, [i64; 2]) {
        let places = a.iter().zip(b).filter(|(a, b)| a != b);
        let all = places.map(|(a, b)| (self.distance(self.at(*a), self.at(*b)), [*a, *b]));
        all.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap_or((f64::INFINITY, [a[0], b[0]]))
    }

    /// The ids that only one side chose and that are farthest apart, and how far.
    fn apart_as_sets(&self, [a, b]: &[Vec<i64>; 2]) -> (f64, [i64; 2]) {
        let only = |own: &[i64], others: &[i64]| -> Option<[i64; 2]> {
            let mut others = others.to_vec();
            others.sort_unstable();
            let mut own: Vec<i64> =
                own.iter().copied().filter(|id| others.binary_search(id).is_err()).collect();
            own.sort_by(|x, y| self.at(*x).total_cmp(&self.at(*y)));
            Some([*own.first()?, *own.last()?])
        };
        // An id that was chosen twice leaves nothing that only one side chose.
        let (Some(own), Some(others)) = (only(a, b), only(b, a)) else {
            return (f64::INFINITY, [a[0], b[0]]);
        };
        let pairs = [[own[0], others[1]], [own[1], others[0]]];
        let all = pairs.map(|[a, b]| (self.distance(self.at(a), self.at(b)), [a, b]));
        if all[0].0 >= all[1].0 { all[0] } else { all[1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whole::Node;
    use capture_core::Dtype;

    fn whole(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Whole<'static> {
        let part = Part::new(Some(0), dtype, shape, None, bytes.into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape: shape.to_vec(), padded: 0 }
    }

    fn scores(rows: &[&[f32]]) -> Whole<'static> {
        let bytes =
            rows.iter().flat_map(|row| row.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()));
        whole(Dtype::BF16, &[rows.len() as u64, rows[0].len() as u64], bytes.collect())
    }

    fn ids(rows: &[&[i32]]) -> Whole<'static> {
        let bytes = rows.iter().flat_map(|row| row.iter().flat_map(|id| id.to_le_bytes()));
        whole(Dtype::I32, &[rows.len() as u64, rows[0].len() as u64], bytes.collect())
    }

    /// Of one row: whether the reference chose by its scores, and what came of it.
    #[track_caller]
    fn check(of: [&[f32]; 2], chose: [&[i32]; 2], ordered: bool) -> (bool, Chosen) {
        let (scores, ids) = (of.map(|s| scores(&[s])), chose.map(|i| ids(&[i])));
        let choosing = Choosing::new(&ids, &scores, None, ordered).unwrap();
        (choosing.is_by_scores(), choosing.chosen().unwrap().remove(0))
    }

    /// Scores of mean magnitude 2, so that those of 1 and 1 + 1/128 are 1/128 / (1 + 1/128 + 2) apart.
    #[test]
    fn scores_that_rounding_moved_past_each_other_allow_both_choices() {
        let (low, high) = (1.0, 1.0 + 1.0 / 128.0);
        let (by_scores, chosen) =
            check([&[5.0, high, low, 1.0], &[5.0, low, high, 1.0]], [&[0, 1], &[0, 2]], true);
        assert!(by_scores && chosen.stands == [true; 2]);
        let scale = f64::from(5.0 + high + low + 1.0) / 4.0;
        assert_eq!((chosen.row, chosen.ids), (0, [1, 2]));
        assert!((chosen.apart - (1.0 / 128.0) / (1.0 + 1.0 / 128.0 + scale)).abs() < 1e-12, "{chosen:?}");
    }

    #[test]
    fn a_choice_stands_by_its_own_scores_only() {
        let scores: &[f32] = &[5.0, 3.0, 2.0, 1.0];
        // By the same scores: 2 is (3 − 2)/(3 + 2.75) below 1.
        let (by_scores, chosen) = check([scores, scores], [&[0, 1], &[0, 2]], true);
        assert!(by_scores && chosen.stands == [true, false]);
        assert!((chosen.apart - 1.0 / 5.75).abs() < 1e-12, "{chosen:?}");
        // Where the reference chose otherwise, these are not its scores.
        assert!(!check([scores, scores], [&[0, 2], &[0, 1]], true).0);
    }

    #[test]
    fn the_order_of_a_set_does_not_count() {
        let scores: &[f32] = &[5.0, 3.0, 2.0, 1.0];
        let (by_scores, chosen) = check([scores, scores], [&[1, 0], &[0, 3]], false);
        assert!(by_scores);
        assert_eq!(chosen.ids, [1, 3]);
        assert!(!check([scores, scores], [&[1, 0], &[0, 1]], true).0);
        let swapped = check([scores, scores], [&[0, 1], &[1, 0]], true).1;
        assert!(swapped.stands == [true, false] && (swapped.apart - 2.0 / 7.75).abs() < 1e-12, "{swapped:?}");
    }

    #[test]
    fn ids_without_a_score_and_twice_the_same_are_never_ties() {
        let scores: &[f32] = &[1.0; 4];
        for wrong in [&[0, 4], &[0, -1], &[0, 0]] {
            for ordered in [true, false] {
                let (_, chosen) = check([scores, scores], [&[0, 1], wrong], ordered);
                assert_eq!(chosen.stands, [true, false], "{wrong:?}");
            }
        }
        assert_eq!(check([scores, scores], [&[0, 1], &[0, 4]], true).1.apart, f64::INFINITY);
        assert_eq!(check([scores, scores], [&[0, 1], &[0, 0]], false).1.apart, f64::INFINITY);
    }

    #[test]
    fn equal_scores_that_are_masked_allow_any_choice_of_them() {
        let (masked, nan) = (f32::NEG_INFINITY, f32::NAN);
        let chosen = check([&[1.0, masked, masked], &[1.0, masked, masked]], [&[0, 1], &[0, 2]], true).1;
        assert_eq!((chosen.stands, chosen.apart), ([true; 2], 0.0));
        let chosen = check([&[1.0, 2.0, 0.0], &[1.0, nan, 0.0]], [&[1], &[0]], true).1;
        assert_eq!(chosen.apart, f64::INFINITY);
    }

    #[test]
    fn shapes_tell_ids_and_scores() {
        let of = |scores: &[u64], ids: &[u64]| {
            let scores = whole(Dtype::F32, scores, vec![0; 4 * scores.iter().product::<u64>() as usize]);
            let ids = whole(Dtype::I64, ids, vec![0; 8 * ids.iter().product::<u64>() as usize]);
            let (scores, ids) = ([scores.clone(), scores], [ids.clone(), ids]);
            Choosing::new(&ids, &scores, None, true).map(|choosing| choosing.shape())
        };
        assert_eq!(of(&[6, 8], &[6, 2]), Some([6, 2]));
        assert_eq!(of(&[6, 8], &[6]), Some([6, 1]));
        assert_eq!(of(&[6, 8], &[2, 3, 2]), Some([6, 2]));
        assert_eq!(of(&[6, 8], &[5, 2]), None);
        assert_eq!(of(&[6, 1], &[6, 1]), None);
        assert_eq!(of(&[6, 2], &[6, 8]), None);
    }
}
