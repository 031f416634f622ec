//! A comparison as a page: one HTML file that needs nothing beside itself.
//!
//! What comes from a run reaches the page in two ways. The template's text is escaped by askama; the report is JSON in
//! a script element that is never run, from which the page's script makes text nodes. Should markup get through
//! nonetheless, the page's policy lets it load nothing and run nothing, but for the one script of that hash.

mod detail;

use crate::{
    comparison::Compared,
    notes::place,
    output::json,
    page::detail::{Shown, shown},
    terminal::ranks_of,
};
use askama::Template as _;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use capture_compare::{FileError, report::Row};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// In the order in which they run.
const SCRIPT: &str = concat!(
    include_str!("../templates/script/data.js"),
    include_str!("../templates/script/colours.js"),
    include_str!("../templates/script/rows.js"),
    include_str!("../templates/script/heatmap.js"),
    include_str!("../templates/script/grid.js"),
    include_str!("../templates/script/panel.js"),
    include_str!("../templates/script/detail.js"),
    include_str!("../templates/script/controls.js"),
);

#[derive(askama::Template)]
#[template(path = "page.html")]
struct Page<'p> {
    verdict: String,
    /// Where it begins.
    first: String,
    runs: &'p [String],
    /// The terminal report.
    text: String,
    style: &'static str,
    script: &'static str,
    script_hash: String,
    data: String,
}

/// What the page's script reads.
#[derive(Serialize)]
struct Data<'p> {
    runs: &'p [String],
    errors: &'p [FileError],
    /// Rows of which there are details for lack of room in short, or not at all.
    short: usize,
    left_out: usize,
    rows: Vec<DataRow<'p>>,
}

#[derive(Serialize)]
struct DataRow<'p> {
    #[serde(flatten)]
    row: &'p Row,
    detail: Option<Shown>,
}

impl Compared {
    /// The page. Rows have details where the comparison was made with them.
    #[must_use]
    pub fn page(&self) -> String {
        let report = &self.report;
        let (details, short, left_out) = shown(&report.rows);
        let rows = report.rows.iter().zip(details).map(|(row, detail)| DataRow { row, detail }).collect();
        let data = Data { runs: &report.runs, errors: &report.errors, short, left_out, rows };
        let first = report.first_divergence.as_ref().map_or_else(String::new, |first| {
            place(&first.tap, [first.step], first.call) + &ranks_of(&first.ranks)
        });
        let complaints = self.complaints().into_iter().map(|line| line + "\n");
        let page = Page {
            verdict: report.verdict.map_or_else(|| "nothing was compared".to_owned(), |v| v.to_string()),
            first,
            runs: &report.runs,
            text: self.text(false, false) + &complaints.collect::<String>(),
            style: include_str!("../templates/page.css"),
            script: SCRIPT,
            script_hash: BASE64_STANDARD.encode(Sha256::digest(SCRIPT)),
            data: in_script(&json(&data)),
        };
        page.render().expect("a text is always there to be written to")
    }
}

/// JSON that ends no script element and begins no comment: these characters stand in its strings only.
fn in_script(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text += &format!("\\u{:04x}", u32::from(c)),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_end_a_script_and_says_the_same() {
        let hostile = ["</script><!--", "a & b", "\u{2028}\u{2029}", "\"quoted\" \\u003c"];
        let escaped = in_script(&json(&hostile));
        assert!(!escaped.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{escaped}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), hostile);
    }
}
