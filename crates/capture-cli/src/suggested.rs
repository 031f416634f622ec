//! The placements that would fit, as a layouts file to paste: one `[[tap]]` for all layers of a kind.

use crate::run::printable;
use capture_compare::report::{Diagnosis, Kind, Row};
use capture_core::select::Globs;
use std::collections::{BTreeSet, HashMap};

/// Whether a row's placement is a guess that another takes the place of.
pub(crate) fn is_guess_that_fails(row: &Row) -> bool {
    row.is_guess() && row.diagnoses.iter().any(|d| d.suggest.is_some())
}

/// Whether to paste a suggestion makes something right. Where a tap was said to hold the whole, partial sums are a fault,
/// which the placement that fits them would hide.
fn helps(row: &Row, diagnosis: &Diagnosis) -> bool {
    diagnosis.kind != Kind::UnreducedPartial || row.is_guess()
}

/// The file; nothing where nothing is suggested.
pub(crate) fn suggested(rows: &[Row]) -> String {
    let all: BTreeSet<&str> = rows.iter().map(|row| row.tap.as_str()).collect();
    let mut told = BTreeSet::new();
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut known = HashMap::new();
    for row in rows {
        let Some(placement) =
            row.diagnoses.iter().filter(|d| helps(row, d)).find_map(|d| d.suggest.as_deref())
        else {
            continue;
        };
        if told.insert(row.tap.as_str()) {
            let at = *known.entry((every_layer(&row.tap), placement)).or_insert(groups.len());
            match groups.get_mut(at) {
                Some((_, taps)) => taps.push(&row.tap),
                None => groups.push((placement, vec![&row.tap])),
            }
        }
    }
    let block = |(placement, taps): &(&str, Vec<&str>)| {
        let text = match_of(taps, &all)?;
        Some(format!("[[tap]]\nmatch = \"{text}\"\nplacement = \"{placement}\"\n"))
    };
    let blocks: Vec<String> = groups.iter().filter_map(block).collect();
    match blocks.is_empty() {
        true => String::new(),
        false => format!("# to paste into a file for --layouts:\n{}", blocks.join("\n")),
    }
}

/// A pattern of these taps and no other; `None` where their names cannot be written as one.
fn match_of(taps: &[&str], all: &BTreeSet<&str>) -> Option<String> {
    let pattern = every_layer(taps.first()?);
    let is_of_these = |text: &String| {
        let globs = text.parse::<Globs>().ok();
        globs.is_some_and(|globs| all.iter().all(|tap| globs.matches(tap) == taps.contains(tap)))
    };
    let can_be_written = |text: &String| *text == printable(text) && !text.contains(['"', '\\']);
    let several = (taps.len() > 1).then_some(pattern);
    several.into_iter().chain([taps.join(", ")]).find(|text| can_be_written(text) && is_of_these(text))
}

/// `layers.*.q` of `layers.12.q`.
fn every_layer(tap: &str) -> String {
    let part = |part: &str| match !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
        true => "*".to_owned(),
        false => part.to_owned(),
    };
    tap.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_compare::report::PlacementFrom;

    fn row(tap: &str, suggest: Option<&str>) -> Row {
        let diagnosis =
            Diagnosis { suggest: suggest.map(str::to_owned), ..Diagnosis::new(Kind::Placement, "would fit") };
        Row { tap: tap.to_owned(), diagnoses: vec![diagnosis], ..Row::default() }
    }

    #[test]
    fn layers_of_a_kind_are_one_block() {
        let of = |layer: u32, suggest| row(&format!("layers.{layer}.qkv.out"), suggest);
        let sections = Some("S(1, sections=[16, 4, 4])");
        let rows =
            [of(0, sections), of(1, sections), of(1, sections), of(12, sections), row("embed", Some("P"))];
        let expected = "\
# to paste into a file for --layouts:
[[tap]]
match = \"layers.*.qkv.out\"
placement = \"S(1, sections=[16, 4, 4])\"

[[tap]]
match = \"embed\"
placement = \"P\"
";
        assert_eq!(suggested(&rows), expected);
        // A layer that is right is not to be told otherwise.
        let rows = [of(0, sections), of(1, None), of(2, sections)];
        let expected = "match = \"layers.0.qkv.out, layers.2.qkv.out\"\n";
        assert!(suggested(&rows).contains(expected), "{}", suggested(&rows));
        assert_eq!(suggested(&[of(0, None)]), "");
    }

    #[test]
    fn what_would_hide_a_fault_or_is_no_pattern_is_not_to_be_pasted() {
        let mut partial = row("o_proj", Some("P"));
        partial.diagnoses[0].kind = Kind::UnreducedPartial;
        assert!(suggested(&[partial.clone()]).contains("\"P\""));
        assert!(is_guess_that_fails(&partial));
        partial.placement_from = Some(PlacementFrom::Capture);
        assert_eq!((suggested(&[partial.clone()]), is_guess_that_fails(&partial)), (String::new(), false));
        assert_eq!(suggested(&[row("a[0]", Some("R")), row("a\"b", Some("R")), row("a\nb", Some("R"))]), "");
    }
}
