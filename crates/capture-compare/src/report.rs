//! What a comparison found, as docs/format.md writes it down.

pub use crate::element::Worst;
use crate::{
    detail::Detail,
    run::FileError,
    verdict::{Test, Verdict},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A comparison's findings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The worst of the rows; `None` where no row has one.
    pub verdict: Option<Verdict>,
    /// The paths as given.
    pub runs: Vec<String>,
    /// What could not be read.
    pub errors: Vec<FileError>,
    /// The first row in capture order that is `DIFFERENT`, or `LAYOUT` where none is: a placement that is not what is
    /// there is no statement about the numbers.
    pub first_divergence: Option<Divergence>,
    /// How many rows have each verdict.
    pub counts: BTreeMap<Verdict, u64>,
    /// What only one side has, where that is left out.
    pub left_out: LeftOut,
    /// One row per tap, step, call and group, in capture order.
    pub rows: Vec<Row>,
}

/// How many tensors were left out because the other side lacks them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Of the reference.
    pub reference: usize,
    /// Of the candidate.
    pub candidate: usize,
}

/// Where two runs part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Tap, as the reference calls it.
    pub tap: String,
    /// Step of the run.
    pub step: u64,
    /// Call within the step.
    pub call: u64,
    /// Global ranks whose part differs.
    pub ranks: Vec<u32>,
}

/// One logical tensor, compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Tap, as the reference calls it.
    pub tap: String,
    /// Step of the run.
    pub step: u64,
    /// Call within the step.
    pub call: u64,
    /// Coordinates that tell replicas of a data-parallel (or other) dimension apart: `dp=1`.
    pub group: Option<String>,
    /// `None` where nothing was compared.
    pub verdict: Option<Verdict>,
    /// The placement used: the candidate's, or the reference's where only that has several ranks.
    pub placement: Option<String>,
    /// Who said so.
    pub placement_from: Option<PlacementFrom>,
    /// The test that decided; `None` where none was needed.
    pub test: Option<Test>,
    /// Global ranks whose part differs; all that took part for `LAYOUT` and `MISSING`; none where nothing differs more
    /// than rounding does.
    pub ranks: Vec<u32>,
    /// Elements compared: numbers, two for a complex one.
    pub n: u64,
    /// Slices of padding left out.
    pub padded: u64,
    /// Largest error in rounding units.
    pub max_units: Option<f64>,
    /// Largest rms of a row's errors in rounding units.
    pub row_units: Option<f64>,
    /// ‖candidate − reference‖ / ‖reference‖.
    pub rel_l2: Option<f64>,
    /// Largest |candidate − reference|.
    pub max_abs: Option<f64>,
    /// Largest distance on the number line of the narrower dtype.
    pub max_ulp: Option<u64>,
    /// Cosine of the angle between both.
    pub cosine: Option<f64>,
    /// The factor that takes the reference closest to the candidate.
    pub slope: Option<f64>,
    /// Places that are NaN on one side only.
    pub nan: u64,
    /// Places that are NaN on both sides.
    pub both_nan: u64,
    /// The errors of each rank's part, where a number is one rank's: not in a sum.
    pub by_rank: Vec<RankError>,
    /// The first element whose class differs; else, by a running bound, the one farthest beyond it; else the one with the
    /// largest error, in rounding units where there are any.
    pub worst: Option<Worst>,
    /// Noise of the taps before, in this tap's rounding units.
    pub inherited_units: Option<f64>,
    /// What is to be said of it.
    pub diagnoses: Vec<Diagnosis>,
    /// What a page shows beside, where it was asked for.
    #[serde(skip)]
    pub detail: Option<Box<Detail>>,
}

/// The errors of one rank's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankError {
    /// Global rank of the candidate.
    pub rank: u32,
    /// Largest error in rounding units; `None` where there are none, as of integers.
    pub max_units: Option<f64>,
    /// Largest rms of the part's piece of a row, of at least 16 numbers.
    pub row_units: Option<f64>,
}

/// Who said how a tensor is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementFrom {
    /// The capture call.
    Capture,
    /// The layouts file.
    Layouts,
    /// The shapes.
    Inferred,
}

/// What kind of finding a [`Diagnosis`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A declared placement is not what is there.
    Placement,
    /// A side, or a rank, has no record.
    Missing,
    /// Replicas hold different bits.
    Replicas,
    /// Two processes of one rank recorded the same firing.
    Restart,
    /// What is there, where nothing can be compared.
    Seen,
    /// What the codes of quantised tensors say beside their values.
    Codes,
    /// A rank holds another rank's slice.
    RankOrder,
    /// A step of the reference has another number in the candidate.
    Paired,
    /// What a side was joined of.
    Joined,
    /// Which rows have no counterpart, or why rows could not be matched.
    Aligned,
    /// Several ranks hold one slice.
    DuplicateSlice,
    /// The same slices of a dim in another order.
    Reordered,
    /// A partial sum taken for the whole.
    UnreducedPartial,
    /// Another tap, added too often or left out.
    AddedMultiple,
    /// One vector added to every row.
    ConstantVector,
    /// A factor.
    Scaled,
    /// A factor of each rank, or of each rank and row.
    ScaledPerRank,
    /// Where the error is, and nowhere else.
    Pattern,
    /// A rank holds its own input where it should hold a reduction.
    NotReduced,
    /// Many taps hold the same bytes.
    SameBytes,
    /// A matrix is transposed.
    Transposed,
    /// Moved by one step.
    Shifted,
    /// The bits of another dtype or byte order.
    Reinterpreted,
    /// A rank does not hold the sum of the partials before it.
    NotTheSum,
    /// NaN or infinity, where one first appears.
    NotFinite,
    /// Ids that differ because rounding moved their scores past each other, or what may follow from that.
    Tie,
    /// Ids that differ more than their scores allow.
    WrongChoice,
    /// Rows that were left out, and why.
    LeftOut,
}

/// A finding beside the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What kind.
    pub kind: Kind,
    /// In words.
    pub text: String,
    /// The numbers of the fit, none where nothing was fitted.
    pub fit: Vec<f64>,
    /// A placement to try.
    pub suggest: Option<String>,
}

impl Row {
    /// Whether nobody said how the tensor is placed.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        !matches!(self.placement_from, Some(PlacementFrom::Capture | PlacementFrom::Layouts))
    }

    /// Leaves of the row that its placement is not what is there: figures under another are none of the tensor.
    pub(crate) fn take_for_misplaced(&mut self) {
        let Self { tap, step, call, group, placement, placement_from, ranks, diagnoses, .. } =
            std::mem::take(self);
        let verdict = Some(Verdict::Layout);
        let row = Self { tap, step, call, group, verdict, placement, placement_from, ..Self::default() };
        *self = Self { ranks, diagnoses, ..row };
    }
}

impl Diagnosis {
    /// A finding in words.
    #[must_use]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), fit: Vec::new(), suggest: None }
    }

    /// With the numbers of the fit.
    #[must_use]
    pub fn fitted(self, fit: impl IntoIterator<Item = f64>) -> Self {
        Self { fit: fit.into_iter().collect(), ..self }
    }
}

impl Report {
    /// Sums up rows in capture order.
    #[must_use]
    pub fn new(runs: Vec<String>, errors: Vec<FileError>, rows: Vec<Row>) -> Self {
        let all = [
            Verdict::Identical,
            Verdict::Rounding,
            Verdict::Suspect,
            Verdict::Missing,
            Verdict::Layout,
            Verdict::Different,
        ];
        let mut counts: BTreeMap<Verdict, u64> = all.into_iter().map(|v| (v, 0)).collect();
        for verdict in rows.iter().filter_map(|r| r.verdict) {
            *counts.entry(verdict).or_default() += 1;
        }
        let first = |verdict| rows.iter().find(|r| r.verdict == Some(verdict));
        let first_divergence = first(Verdict::Different).or_else(|| first(Verdict::Layout)).map(|row| {
            Divergence { tap: row.tap.clone(), step: row.step, call: row.call, ranks: row.ranks.clone() }
        });
        let verdict = rows.iter().filter_map(|r| r.verdict).max();
        let left_out = LeftOut::default();
        Self { verdict, runs, errors, first_divergence, counts, left_out, rows }
    }

    /// The command's exit status: 0 same, 1 different, 2 could not be done. A difference outweighs what could
    /// not be read; nothing compared is not the same.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self.verdict {
            Some(verdict) if verdict > Verdict::Rounding => 1,
            Some(_) if self.errors.is_empty() => 0,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tap: &str, verdict: Option<Verdict>) -> Row {
        Row { tap: tap.to_owned(), verdict, ranks: vec![1], ..Row::default() }
    }

    #[track_caller]
    fn check(rows: &[(&str, Option<Verdict>)], error: bool, first: Option<&str>, status: u8) {
        let errors = FileError { file: "x".into(), reason: "torn".into() };
        let rows = rows.iter().map(|(tap, verdict)| row(tap, *verdict)).collect();
        let report = Report::new(vec![], if error { vec![errors] } else { vec![] }, rows);
        assert_eq!(report.first_divergence.as_ref().map(|d| d.tap.as_str()), first);
        assert_eq!(report.exit_status(), status);
    }

    #[test]
    fn the_first_divergence_is_one_of_numbers_where_there_is_one() {
        use Verdict::{Different, Identical, Layout, Missing, Rounding, Suspect};
        let (different, layout) = (Some(Different), Some(Layout));
        check(&[("a", layout), ("b", different), ("c", different)], false, Some("b"), 1);
        check(&[("a", Some(Missing)), ("b", layout)], false, Some("b"), 1);
        check(&[("a", Some(Missing))], false, None, 1);
        check(&[("a", Some(Suspect))], false, None, 1);
        check(&[("a", Some(Identical)), ("b", Some(Rounding)), ("c", None)], false, None, 0);
        check(&[("a", Some(Identical))], true, None, 2);
        check(&[("a", different)], true, Some("a"), 1);
        check(&[("a", None)], false, None, 2);
        check(&[], false, None, 2);
    }

    #[test]
    fn json_is_that_of_the_format() {
        let error = FileError { file: "run/x".into(), reason: "torn".into() };
        let mut row = row("q", Some(Verdict::Different));
        row.max_units = Some(f64::INFINITY);
        let report = Report::new(vec!["a".into()], vec![error], vec![row]);
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            concat!(
                r#"{"verdict":"DIFFERENT","runs":["a"],"errors":[{"file":"run/x","reason":"torn"}],"#,
                r#""first_divergence":{"tap":"q","step":0,"call":0,"ranks":[1]},"#,
                r#""counts":{"IDENTICAL":0,"ROUNDING":0,"SUSPECT":0,"MISSING":0,"LAYOUT":0,"DIFFERENT":1},"#,
                r#""left_out":{"reference":0,"candidate":0},"#,
                r#""rows":[{"tap":"q","step":0,"call":0,"group":null,"verdict":"DIFFERENT","placement":null,"#,
                r#""placement_from":null,"test":null,"ranks":[1],"n":0,"padded":0,"max_units":null,"row_units":null,"#,
                r#""rel_l2":null,"max_abs":null,"max_ulp":null,"cosine":null,"slope":null,"nan":0,"both_nan":0,"#,
                r#""by_rank":[],"worst":null,"inherited_units":null,"diagnoses":[]}]}"#
            )
        );
    }
}
