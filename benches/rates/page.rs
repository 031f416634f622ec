//! Tables in Markdown, and the page that holds them.

use std::{io, path::Path};

/// A table with its columns aligned.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, w)| format!(" {cell:<w$} ")).collect();
        format!("|{}|\n", padded.join("|"))
    };
    let rules: Vec<String> = widths.iter().map(|w| "-".repeat(w + 2)).collect();
    let mut text = line(header.to_vec());
    text += &format!("|{}|\n", rules.join("|"));
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// Puts the text between the page's marks of that name.
pub(crate) fn write(page: &Path, name: &str, text: &str) -> io::Result<()> {
    let (start, end) = (format!("<!-- rates {name} -->\n"), format!("<!-- end {name} -->"));
    let old = std::fs::read_to_string(page)?;
    let parts = old.split_once(&start).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else {
        let text = format!("expected {start:?} and {end:?}, found no such marks in {}", page.display());
        return Err(io::Error::other(text));
    };
    std::fs::write(page, format!("{before}{start}{text}{end}{after}"))
}
