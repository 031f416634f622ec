//! What is to be said of compared tensors beside their numbers.

use crate::{number, run::printable};
use capture_compare::{
    Verdict,
    report::{Kind, Row},
};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

/// `layers.0.q, step 3` or `layers.0.q, steps 1-3`, and the call where it is not the first.
pub(crate) fn place(tap: &str, steps: impl IntoIterator<Item = u64>, call: u64) -> String {
    let steps: BTreeSet<u64> = steps.into_iter().collect();
    let plural = if steps.len() == 1 { "" } else { "s" };
    let call = if call == 0 { String::new() } else { format!(", call {call}") };
    format!("{}, step{plural} {}{call}", printable(tap), number::ranges(steps))
}

/// What holds of one tap in the same words at several steps.
struct Note<'r> {
    row: &'r Row,
    text: String,
    kind: Option<Kind>,
    steps: Vec<u64>,
    /// Other taps of which it holds as well, as they follow.
    after: BTreeSet<&'r str>,
    /// The worst of the rows.
    verdict: Option<Verdict>,
}

impl Note<'_> {
    fn is_of_fault(&self) -> bool {
        self.verdict > Some(Verdict::Rounding)
    }
}

/// A line for each note, steps merged: first those of rows that are not as they should be. Where there are more than
/// `most`, those of the worst rows, the first of equals; and beside a fault not what is seen of rows that are right.
pub(crate) fn notes(rows: &[Row], most: Option<usize>) -> String {
    let all = merged(rows);
    let n = all.len();
    let has_fault = rows.iter().any(|row| row.verdict > Some(Verdict::Rounding));
    let is_news = |note: &Note<'_>| !has_fault || note.is_of_fault() || note.kind != Some(Kind::Seen);
    let mut told: Vec<(usize, Note<'_>)> =
        all.into_iter().filter(|note| most.is_none() || is_news(note)).enumerate().collect();
    told.sort_by_key(|(_, note)| Reverse(note.verdict));
    told.truncate(most.unwrap_or(n));
    told.sort_by_key(|(at, note)| (!note.is_of_fault(), *at));
    let hidden = n - told.len();
    let mut lines: String = told.iter().map(|(_, note)| line(note)).collect();
    if hidden > 0 {
        lines += &format!("… {hidden} more note{}: --all\n", if hidden == 1 { "" } else { "s" });
    }
    lines
}

/// What is to be said of all rows, in their order. A vector that goes through the taps after it is news once.
fn merged(rows: &[Row]) -> Vec<Note<'_>> {
    let mut notes: Vec<Note<'_>> = Vec::new();
    let mut known = HashMap::new();
    for row in rows {
        for (text, kind) in of(row) {
            let is_passed_on = kind == Some(Kind::ConstantVector);
            let tap = (!is_passed_on).then_some((row.tap.as_str(), row.call));
            let at = *known.entry((tap, row.group.as_deref(), text.clone())).or_insert(notes.len());
            match notes.get_mut(at) {
                Some(note) if (&note.row.tap, note.row.call) != (&row.tap, row.call) => {
                    note.after.insert(&row.tap);
                }
                Some(note) => {
                    note.steps.push(row.step);
                    note.verdict = note.verdict.max(row.verdict);
                }
                None => {
                    let (steps, after) = (vec![row.step], BTreeSet::new());
                    notes.push(Note { row, text, kind, steps, after, verdict: row.verdict });
                }
            }
        }
    }
    notes
}

fn line(note: &Note<'_>) -> String {
    let Note { row, text, steps, after, .. } = note;
    let group = row.group.as_ref().map_or_else(String::new, |g| format!(", {}", printable(g)));
    let place = place(&row.tap, steps.iter().copied(), row.call);
    let after = match after.len() {
        0 => String::new(),
        1 => "; so at 1 tap after it".to_owned(),
        n => format!("; so at {n} taps after it"),
    };
    format!("{place}{group}: {text}{after}\n")
}

/// The notes of one row.
fn of(row: &Row) -> Vec<(String, Option<Kind>)> {
    // Where numbers are not finite stands at the top of the report.
    let told = row.diagnoses.iter().filter(|d| d.kind != Kind::NotFinite);
    let mut notes: Vec<_> = told.map(|d| (printable(&d.text), Some(d.kind))).collect();
    let counted = |n: u64, what: &str, beyond: &str| {
        let plural = if n == 1 { "" } else { "s" };
        (n > 0).then(|| (format!("{n} {what}{plural} {beyond}"), None))
    };
    notes.extend(counted(row.padded, "slice", "of padding left out"));
    notes.extend(counted(row.nan, "place", "NaN on one side only"));
    notes.extend(counted(row.both_nan, "place", "NaN on both sides"));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_compare::report::Diagnosis;

    fn row(tap: &str, step: u64, verdict: Verdict, kind: Kind, text: &str) -> Row {
        Row {
            tap: tap.to_owned(),
            step,
            verdict: Some(verdict),
            diagnoses: vec![Diagnosis::new(kind, text)],
            ..Row::default()
        }
    }

    #[test]
    fn steps_are_merged_and_the_worst_are_kept_in_order() {
        let rows = [
            row("a", 1, Verdict::Identical, Kind::Joined, "fine"),
            row("b", 1, Verdict::Missing, Kind::Missing, "gone"),
            row("a", 2, Verdict::Identical, Kind::Joined, "fine"),
            row("a", 3, Verdict::Identical, Kind::Joined, "other"),
            row("a", 5, Verdict::Different, Kind::Pattern, "bad"),
        ];
        let all = "b, step 1: gone\na, step 5: bad\na, steps 1-2: fine\na, step 3: other\n";
        assert_eq!(notes(&rows, None), all);
        assert_eq!(notes(&rows, Some(2)), "b, step 1: gone\na, step 5: bad\n… 2 more notes: --all\n");
    }

    #[test]
    fn what_is_seen_of_right_rows_does_not_stand_beside_a_fault() {
        let mut rows = vec![row("q", 1, Verdict::Identical, Kind::Seen, "slices join to [4]")];
        assert_eq!(notes(&rows, Some(20)), "q, step 1: slices join to [4]\n");
        rows.push(row("o", 1, Verdict::Different, Kind::NotTheSum, "bad"));
        assert_eq!(notes(&rows, Some(20)), "o, step 1: bad\n… 1 more note: --all\n");
        assert_eq!(notes(&rows, None), "o, step 1: bad\nq, step 1: slices join to [4]\n");
    }

    #[test]
    fn a_vector_that_goes_through_later_taps_is_told_once() {
        let of = |tap, step| row(tap, step, Verdict::Different, Kind::ConstantVector, "the same vector");
        let rows = [of("a", 1), of("b", 1), of("c", 1), of("a", 2), of("b", 2)];
        assert_eq!(notes(&rows, None), "a, steps 1-2: the same vector; so at 2 taps after it\n");
        assert_eq!(notes(&rows[..2], None), "a, step 1: the same vector; so at 1 tap after it\n");
    }
}
