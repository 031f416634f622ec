//! What is to be said of compared tensors beside their numbers.

use crate::{number, run::printable};
use capture_compare::{
    Verdict,
    report::{Kind, Row},
};
use std::collections::{BTreeSet, HashMap};

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
    suggest: Option<&'r str>,
    steps: Vec<u64>,
    /// The worst of the rows.
    verdict: Option<Verdict>,
}

/// A line for each note, steps merged. Where there are more than `most`, those of the worst rows, the first of equals.
pub(crate) fn notes(rows: &[Row], most: usize) -> String {
    let mut notes: Vec<Note<'_>> = Vec::new();
    let mut known = HashMap::new();
    for row in rows {
        for (text, suggest) in of(row) {
            let key = (row.tap.as_str(), row.call, row.group.as_deref(), text.clone());
            let at = *known.entry(key).or_insert(notes.len());
            match notes.get_mut(at) {
                Some(note) => {
                    note.steps.push(row.step);
                    note.verdict = note.verdict.max(row.verdict);
                }
                None => notes.push(Note { row, text, suggest, steps: vec![row.step], verdict: row.verdict }),
            }
        }
    }
    let mut order: Vec<usize> = (0..notes.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(notes[*i].verdict));
    let hidden = order.split_off(most.min(order.len())).len();
    order.sort_unstable();
    let mut lines: String = order.into_iter().map(|i| line(&notes[i])).collect();
    if hidden > 0 {
        lines += &format!("… {hidden} more note{}: --all\n", if hidden == 1 { "" } else { "s" });
    }
    lines
}

fn line(note: &Note<'_>) -> String {
    let Note { row, text, suggest, steps, .. } = note;
    let group = row.group.as_ref().map_or_else(String::new, |g| format!(", {}", printable(g)));
    let place = place(&row.tap, steps.iter().copied(), row.call);
    let suggest = suggest.map_or_else(String::new, |s| format!("  placement = {s:?}\n"));
    format!("{place}{group}: {text}\n{suggest}")
}

/// The notes of one row, and the placement that each suggests.
fn of(row: &Row) -> Vec<(String, Option<&str>)> {
    // Where numbers are not finite stands at the top of the report.
    let told = row.diagnoses.iter().filter(|d| d.kind != Kind::NotFinite);
    let mut notes: Vec<_> = told.map(|d| (printable(&d.text), d.suggest.as_deref())).collect();
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

    #[test]
    fn steps_are_merged_and_the_worst_are_kept_in_order() {
        let row = |tap: &str, step, verdict, text: &str| Row {
            tap: tap.to_owned(),
            step,
            verdict: Some(verdict),
            diagnoses: vec![Diagnosis::new(Kind::Seen, text)],
            ..Row::default()
        };
        let rows = [
            row("a", 1, Verdict::Identical, "fine"),
            row("b", 1, Verdict::Missing, "gone"),
            row("a", 2, Verdict::Identical, "fine"),
            row("a", 3, Verdict::Identical, "other"),
            row("a", 5, Verdict::Different, "bad"),
        ];
        let all = "a, steps 1-2: fine\nb, step 1: gone\na, step 3: other\na, step 5: bad\n";
        assert_eq!(notes(&rows, usize::MAX), all);
        assert_eq!(notes(&rows, 2), "b, step 1: gone\na, step 5: bad\n… 2 more notes: --all\n");
    }
}
