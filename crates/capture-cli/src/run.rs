//! The run that commands are given, and how its parts are written.

use capture_compare::{Access, OpenError, Run};
use capture_core::{Dtype, Identity, Record};
use std::path::PathBuf;

/// Arguments of every command that reads a run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// A run, or a directory that holds one.
    pub(crate) run: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// How runs are read.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Reading {
    /// Read files instead of mapping them, as for network file systems.
    #[arg(long)]
    pub no_mmap: bool,
}

impl RunArgs {
    pub(crate) fn open(&self) -> Result<Run, OpenError> {
        Run::open(&self.run, self.reading.access())
    }
}

impl Reading {
    pub(crate) fn access(self) -> Access {
        if self.no_mmap { Access::Unmapped } else { Access::Mapped }
    }
}

/// A global rank; `?` where it is unknown.
pub(crate) fn rank(identity: &Identity) -> String {
    identity.rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string())
}

/// The name of a dtype as it is stored, or of what it stands for.
pub(crate) fn dtype(record: &Record, stored: Dtype) -> String {
    record.encoding.clone().unwrap_or_else(|| stored.to_string())
}

/// The shape in the words of the framework that was captured.
pub(crate) fn logical_shape<'s>(record: &Record, stored: &'s [u64]) -> &'s [u64] {
    match record.encoding.as_deref() {
        // Stored with a trailing 2; checked when the run was opened.
        Some(capture_core::stored::COMPLEX128) => &stored[..stored.len() - 1],
        _ => stored,
    }
}

/// Text from a file or the command line with all escaped that cannot be seen: what steers the terminal, changes the
/// direction of writing, breaks the line or has no width.
pub(crate) fn printable(text: &str) -> String {
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return text.to_owned();
    }
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => printable.push(c),
            // Behind a letter: an accent is only escaped where there is none for it to stand on.
            _ => printable.extend(format!("a{c}").escape_debug().skip(1)),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a.q 🚀\n\u{1b}[2J"), "a.q 🚀\\n\\u{1b}[2J");
        assert_eq!(printable(r#"a "b" 'c' \d"#), r#"a "b" 'c' \d"#);
        assert_eq!(printable("é e\u{301} 层"), "é e\u{301} 层");
        assert_eq!(
            printable("a\u{202e}b\u{2028}\u{feff}\u{e0001}\u{9b}"),
            r"a\u{202e}b\u{2028}\u{feff}\u{e0001}\u{9b}"
        );
    }
}
