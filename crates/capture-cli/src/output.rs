//! What a command has to say.

use crate::run::printable;
use capture_compare::FileError;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::{fmt::Display, io::Write as _};

/// What to print, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// For stdout.
    pub(crate) text: String,
    /// For stderr, a line each.
    pub(crate) notes: Vec<String>,
    /// 0 done, 1 something found, 2 could not be done.
    pub(crate) status: u8,
}

impl Output {
    /// A command that could not be carried out.
    pub(crate) fn failed(error: &dyn Display) -> Self {
        Self { text: String::new(), notes: vec![format!("tpcapture: {error}")], status: 2 }
    }

    /// A text, with what could not be read on stderr.
    pub(crate) fn text(text: String, errors: &[FileError]) -> Self {
        Self { text, notes: unreadable(errors), status: status(errors) }
    }

    /// An object that lists by itself what could not be read.
    pub(crate) fn json(value: &impl Serialize, errors: &[FileError]) -> Self {
        Self { text: json(value) + "\n", notes: Vec::new(), status: status(errors) }
    }
}

/// Prints what is known before the command has come to its end.
pub(crate) fn early(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // Whether the output can be written shows again at the end.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names, numbers, lists and paths as text are always JSON")
}

/// A line for each file that cannot be read. Names of files may hold what steers a terminal.
pub(crate) fn unreadable(errors: &[FileError]) -> Vec<String> {
    errors.iter().map(|e| format!("tpcapture: {}", printable(&e.to_string()))).collect()
}

fn status(errors: &[FileError]) -> u8 {
    if errors.is_empty() { 0 } else { 2 }
}

/// A table without rules, which fits itself into a terminal and is as wide as it needs to be elsewhere.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

/// The table's lines, without the column that pads their beginning and the spaces at their ends.
pub(crate) fn lines(table: &Table) -> String {
    let bare = |line: &str| {
        // A coloured cell is coloured with its padding: the column comes after the first code.
        let code = if line.starts_with('\u{1b}') { line.find('m').map_or(0, |m| m + 1) } else { 0 };
        let (code, rest) = line.split_at(code);
        format!("{code}{}\n", rest.strip_prefix(' ').unwrap_or(rest).trim_end())
    };
    table.to_string().lines().map(bare).collect()
}
