//! The placements that a comparison suggests, as a layouts file that can be pasted.

use capture_compare::report::Row;
use capture_core::select::Globs;
use std::collections::{BTreeMap, BTreeSet};

/// One entry for all taps of one placement whose names differ in their numbers, as those of a model's layers do, where no
/// other tap bears such a name. Empty where nothing is suggested.
pub(crate) fn suggestions(rows: &[Row]) -> String {
    // A tap of several suggestions has its first: what comes after it is of another step.
    let mut by_tap: BTreeMap<&str, &str> = BTreeMap::new();
    let mut order = Vec::new();
    for row in rows {
        let suggested = row.diagnoses.iter().find_map(|d| d.suggest.as_deref());
        if let Some(placement) = suggested
            && !by_tap.contains_key(row.tap.as_str())
        {
            by_tap.insert(&row.tap, placement);
            order.push(row.tap.as_str());
        }
    }
    let taps: BTreeSet<&str> = rows.iter().map(|row| row.tap.as_str()).collect();
    let (mut entries, mut covered) = (Vec::new(), BTreeSet::new());
    for tap in order {
        if covered.contains(tap) {
            continue;
        }
        let placement = by_tap[tap];
        let of_all_layers = pattern(tap, true);
        let like: Vec<&str> = match of_all_layers.parse::<Globs>() {
            Ok(globs) => taps.iter().copied().filter(|other| globs.matches(other)).collect(),
            Err(_) => Vec::new(),
        };
        let are_alike = like.len() > 1 && like.iter().all(|other| by_tap.get(other) == Some(&placement));
        let (of, names) = if are_alike { (of_all_layers, like) } else { (pattern(tap, false), vec![tap]) };
        entries.push(format!("[[tap]]\nmatch = \"{of}\"\nplacement = {placement:?}\n"));
        covered.extend(names);
    }
    if entries.is_empty() {
        return String::new();
    }
    format!("\nwhat fits, for the taps or as a file for --layouts:\n\n{}", entries.join("\n"))
}

/// A pattern that fits the tap; `numbered`: and those that have other numbers between dots. What a pattern or TOML may take
/// for something else stands as `?`, which fits any character.
fn pattern(tap: &str, numbered: bool) -> String {
    let part = |part: &str| {
        if numbered && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return "*".to_owned();
        }
        let plain = |c: char| c.is_alphanumeric() || "_-/:#+".contains(c);
        part.chars().map(|c| if plain(c) { c } else { '?' }).collect()
    };
    tap.split('.').map(part).collect::<Vec<String>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_compare::{
        Layouts,
        report::{Diagnosis, Kind},
    };

    fn row(tap: &str, suggest: Option<&str>) -> Row {
        let diagnosis =
            Diagnosis { suggest: suggest.map(str::to_owned), ..Diagnosis::new(Kind::Placement, "it fits") };
        Row { tap: tap.to_owned(), diagnoses: vec![diagnosis], ..Row::default() }
    }

    #[test]
    fn layers_are_one_entry_where_no_other_tap_is_meant() {
        let rows = [
            row("layers.0.qkv.out", Some("S(-1, sections=[8, 2, 2])")),
            row("layers.1.qkv.out", Some("S(-1, sections=[8, 2, 2])")),
            row("layers.0.qkv.out", Some("S(-1, sections=[8, 2, 2])")),
            row("layers.0.o.out", Some("P")),
            row("layers.1.o.out", None),
            row("x[0],\"\n.7", Some("R")),
        ];
        let text = suggestions(&rows);
        let (_, file) = text.split_once("\n\n").unwrap();
        let expected = r#"[[tap]]
match = "layers.*.qkv.out"
placement = "S(-1, sections=[8, 2, 2])"

[[tap]]
match = "layers.0.o.out"
placement = "P"

[[tap]]
match = "x?0????.7"
placement = "R"
"#;
        assert_eq!(file, expected);
        // As it stands it is a layouts file.
        Layouts::of_text("printed".as_ref(), file).unwrap();
        assert_eq!(suggestions(&rows[4..5]), "");
    }
}
