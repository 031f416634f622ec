//! A comparison in words: its terminal report.

use crate::{
    comparison::Compared,
    gaps::{assumed, gaps},
    notes::{notes, place},
    number,
    rows::{rows, short},
    run::printable,
    suggested::{is_guess_that_fails, suggested},
};
use capture_compare::{
    Report, Verdict,
    report::{Kind, Row},
};
use capture_core::{Placement, Placements, Sharding};
use std::{collections::BTreeSet, ops::Range};

/// Rows that are printed where not all are, and how many of them before the first divergence.
const MOST_ROWS: usize = 40;
const ROWS_BEFORE: usize = 8;
/// Notes that are printed where not all are.
const MOST_NOTES: usize = 20;

impl Compared {
    /// The verdict, where it begins, and how often there is which.
    pub(crate) fn headline(&self) -> String {
        headline(&self.report)
    }

    /// The terminal report: with all rows and notes, or those around the first divergence.
    #[must_use]
    pub fn text(&self, all: bool, colours: bool) -> String {
        let report = &self.report;
        let mut text = headline(report);
        if let Some(first) = report.errors.first() {
            let files = report.errors.len();
            let plural = if files == 1 { "" } else { "s" };
            text +=
                &format!("not all could be read: {files} file{plural}, {}\n", printable(&first.to_string()));
        }
        for row in &report.rows {
            let odd = row.diagnoses.iter().filter(|d| d.kind == Kind::NotFinite);
            text.extend(
                odd.map(|d| format!("{}: {}\n", place(&row.tap, [row.step], row.call), printable(&d.text))),
            );
        }
        let several = self.runs.iter().any(|r| r.processes.len() > 1);
        for run in &self.runs {
            let name = if self.runs.len() > 1 { format!("{}: ", run.path.display()) } else { String::new() };
            text.extend(gaps(run).lines().map(|line| format!("{}{line}\n", printable(&name))));
        }
        text += &assumed(&self.runs);
        let guessed: BTreeSet<&str> =
            report.rows.iter().filter(|r| is_guess_that_fails(r)).map(|r| r.tap.as_str()).collect();
        text += &match guessed.len() {
            0 => String::new(),
            1 => "1 tap has a guessed placement that does not fit: paste the lines at the end\n".to_owned(),
            n => format!("{n} taps have a guessed placement that does not fit: paste the lines at the end\n"),
        };
        if !report.rows.is_empty() {
            text += "\n";
            let window = if all { 0..report.rows.len() } else { window(report) };
            let hidden = report.rows.len() - window.len();
            let before = window.start;
            text += &rows(&report.rows[window], several, colours);
            if hidden > 0 {
                let before = if before > 0 { format!(", {before} of them before") } else { String::new() };
                text +=
                    &format!("… {hidden} more row{}{before}: --all\n", if hidden == 1 { "" } else { "s" });
            }
        }
        let notes = notes(&report.rows, (!all).then_some(MOST_NOTES));
        for below in [notes, suggested(&report.rows)].iter().filter(|below| !below.is_empty()) {
            text += "\n";
            text += below;
        }
        text
    }
}

/// The rows to print: some before the first divergence, or the first row that is not as it should be, and the rest
/// after it.
fn window(report: &Report) -> Range<usize> {
    let n = report.rows.len();
    let diverges = |row: &Row| {
        report.first_divergence.as_ref().is_some_and(|first| {
            (row.verdict >= Some(Verdict::Layout))
                && (row.tap == first.tap && row.step == first.step && row.call == first.call)
        })
    };
    let first = report.rows.iter().position(diverges);
    let first = first.or_else(|| report.rows.iter().position(|r| r.verdict > Some(Verdict::Rounding)));
    let start = first.unwrap_or(0).saturating_sub(ROWS_BEFORE).min(n.saturating_sub(MOST_ROWS));
    start..n.min(start + MOST_ROWS)
}

/// The verdict, where it begins, and how often there is which.
fn headline(report: &Report) -> String {
    let Some(verdict) = report.verdict else { return "nothing was compared\n".to_owned() };
    let rows = |n: usize| format!("{n} row{}", if n == 1 { "" } else { "s" });
    let unchecked = report.rows.iter().filter(|r| r.verdict.is_none()).count();
    if let (Verdict::Identical, [_]) = (verdict, report.runs.as_slice()) {
        let equal = format!("replicas equal: {}", rows(report.rows.len() - unchecked));
        return match unchecked {
            0 => equal + "\n",
            n => format!("{equal}; {} cannot be checked without a reference run\n", rows(n)),
        };
    }
    let mut text = verdict.to_string();
    if let Some(first) = &report.first_divergence {
        let same = |r: &&Row| {
            (r.tap == first.tap && r.step == first.step && r.call == first.call)
                && r.verdict.is_some_and(|v| v >= Verdict::Layout)
        };
        text +=
            &format!(", first at {}{}", place(&first.tap, [first.step], first.call), ranks_of(&first.ranks));
        let row = report.rows.iter().find(same);
        if first.ranks.len() > 1 && row.is_some_and(is_sum) {
            text += " (a sum: any of them)";
        }
        if let Some(test) = row.and_then(|r| r.test.as_ref()) {
            text += &format!(" ({}: {} times its limit)", test.name, short(test.severity));
        }
        if let Some(worst) = row.and_then(|r| r.worst.as_ref()) {
            let [reference, candidate] = [worst.reference, worst.candidate].map(number::float);
            let rank = worst.rank.map_or_else(|| "a rank".to_owned(), |rank| format!("rank {rank}"));
            let is_of_sum = row.is_some_and(|r| r.test.is_some());
            text += &format!("\nat {:?}: ", worst.index);
            text += &match (report.runs.len(), is_of_sum) {
                (1, true) => format!("the partials sum to {reference}, {rank} holds {candidate}"),
                (1, false) => format!("{rank} holds {candidate}, the replica beside it {reference}"),
                _ => format!("reference {reference}, candidate {candidate}"),
            };
        }
    }
    let mut counts: Vec<String> =
        report.counts.iter().filter(|c| *c.1 > 0).map(|(verdict, n)| format!("{n} {verdict}")).collect();
    if unchecked > 0 {
        counts.push(format!("{unchecked} not checked"));
    }
    format!("{text}\n{}\n", counts.join(", "))
}

/// Whether ranks hold summands, of which the wrong one cannot be told.
fn is_sum(row: &Row) -> bool {
    let placements = row.placement.as_deref().and_then(|text| text.parse::<Placements>().ok());
    let is_partial = |p: &Placement| p.sharding == Sharding::Partial;
    row.verdict == Some(Verdict::Different) && placements.is_some_and(|p| p.0.iter().any(is_partial))
}

pub(crate) fn ranks_of(ranks: &[u32]) -> String {
    match ranks {
        [] => String::new(),
        [one] => format!(", rank {one}"),
        several => format!(", ranks {}", number::ranges(several.iter().map(|r| u64::from(*r)))),
    }
}
