//! The layouts file (`--layouts FILE`, TOML): what the engineer knows of taps that the capture calls did not say.
//!
//! ```toml
//! [[tap]]
//! match = "*.qkv_proj.out"                  # globs over tap names as in a selection; the first match wins
//! placement = "S(1, sections=[16, 4, 4])"
//! rows = "num_tokens"                       # valid rows: a number, or the tap that holds it
//! precision = "bf16"                        # the coarsest arithmetic upstream, where it is not the stored dtype
//!
//! [rename]                                  # taps of the second run → taps of the first
//! "model.decoder.*" = "model.layers.*"
//! ```
//!
//! `match` speaks of names as they are after renaming.

use crate::float::Float;
use capture_core::{
    Placements,
    select::{Glob, Globs, SelectError},
};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// What a layouts file says. The default says nothing.
#[derive(Debug, Clone, Default)]
pub struct Layouts {
    taps: Vec<TapLayout>,
    renames: Vec<(Glob, String)>,
}

/// One `[[tap]]` of a layouts file.
#[derive(Debug, Clone)]
pub struct TapLayout {
    globs: Globs,
    /// `match` as written.
    text: String,
    /// How the ranks' records make the logical tensor; overrides the capture call.
    pub placement: Option<Placements>,
    /// How many leading rows of the logical tensor are valid.
    pub rows: Option<Rows>,
    /// The coarsest arithmetic upstream.
    pub precision: Option<Float>,
}

/// Where the number of valid rows comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// The number itself.
    Number(u64),
    /// A tap of the same step whose one element is the number.
    Tap(String),
}

/// Why a layouts file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutsError {
    /// It cannot be read.
    #[error("cannot read layouts file: {reason}: {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A line of it says something else than what is expected.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What was expected and found.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tap: Vec<TapEntry>,
    #[serde(default)]
    rename: toml::Table,
    join: Option<Spanned<toml::Value>>,
    align: Option<Spanned<toml::Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TapEntry {
    r#match: Spanned<String>,
    placement: Option<Spanned<String>>,
    rows: Option<Spanned<toml::Value>>,
    precision: Option<Spanned<String>>,
}

impl Layouts {
    /// Reads a layouts file.
    pub fn read(path: &Path) -> Result<Self, LayoutsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| LayoutsError::Read { path: path.to_owned(), reason })?;
        Self::parse(&text).map_err(|Fault { at, reason }| LayoutsError::Line {
            path: path.to_owned(),
            line: text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1,
            reason,
        })
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let file: File = toml::from_str(text).map_err(|error| Fault {
            at: error.span().map_or(0, |span| span.start),
            reason: error.message().to_owned(),
        })?;
        for (name, table) in [("[[join]]", &file.join), ("[align]", &file.align)] {
            if let Some(table) = table {
                return Err(Fault {
                    at: table.span().start,
                    reason: format!("{name} is not supported yet; [[tap]] and [rename] are"),
                });
            }
        }
        let taps = file.tap.into_iter().map(TapEntry::check).collect::<Result<_, _>>()?;
        let mut renames = Vec::new();
        for (from, to) in file.rename {
            // A table keeps no places: the first mention of the name is the best guess at the line.
            let at = text.find(&from).unwrap_or(0);
            let glob = from.parse().map_err(|e| Fault { at, reason: no_glob("rename", &e) })?;
            let Some(to) = to.as_str() else {
                let reason = format!("rename {from:?}: expected a tap name or glob in quotes, found {to}");
                return Err(Fault { at, reason });
            };
            renames.push((glob, to.to_owned()));
        }
        Ok(Self { taps, renames })
    }

    /// The first `[[tap]]` that matches.
    #[must_use]
    pub fn of(&self, tap: &str) -> Option<&TapLayout> {
        self.taps.iter().find(|t| t.globs.matches(tap))
    }

    /// The text of every `match` that fits none of the taps, names as they are after renaming.
    #[must_use]
    pub fn unmatched<'t>(&self, taps: impl IntoIterator<Item = &'t str>) -> Vec<&str> {
        let mut unmatched: Vec<&TapLayout> = self.taps.iter().collect();
        for tap in taps {
            unmatched.retain(|t| !t.globs.matches(tap));
        }
        unmatched.into_iter().map(|t| t.text.as_str()).collect()
    }

    /// The name that a tap of the second run has in the first.
    #[must_use]
    pub fn renamed(&self, tap: &str) -> String {
        self.renames
            .iter()
            .find_map(|(from, to)| Some(fill(to, &from.captures(tap)?)))
            .unwrap_or_else(|| tap.to_owned())
    }
}

/// `template` with its wildcards replaced, in order, by what a glob captured. A wildcard too many is left out.
fn fill(template: &str, captured: &[&str]) -> String {
    let mut captured = captured.iter().copied();
    template.chars().fold(String::new(), |mut name, c| {
        match c {
            '*' | '?' => name.extend(captured.next()),
            c => name.push(c),
        }
        name
    })
}

fn no_glob(key: &str, error: &SelectError) -> String {
    let SelectError { text, column, expected, found } = error;
    format!("{key} {text:?}, column {column}: expected {expected}, found {found}")
}

/// What is wrong, and the byte of the text where.
#[derive(Debug, PartialEq)]
struct Fault {
    at: usize,
    reason: String,
}

impl TapEntry {
    fn check(self) -> Result<TapLayout, Fault> {
        let globs = self.r#match.get_ref().parse();
        let globs =
            globs.map_err(|e| Fault { at: self.r#match.span().start, reason: no_glob("match", &e) })?;
        let placement = match self.placement {
            Some(text) => Some(
                text.get_ref()
                    .parse()
                    .map_err(|e| Fault { at: text.span().start, reason: format!("{e}") })?,
            ),
            None => None,
        };
        let rows = match self.rows {
            Some(rows) => Some(match rows.get_ref() {
                toml::Value::Integer(n) if *n >= 0 => Rows::Number(n.unsigned_abs()),
                toml::Value::String(tap) => Rows::Tap(tap.clone()),
                other => {
                    let reason =
                        format!("rows: expected a number of at least 0 or a tap name, found {other}");
                    return Err(Fault { at: rows.span().start, reason });
                }
            }),
            None => None,
        };
        let precision = match self.precision {
            Some(name) => Some(Float::named(name.get_ref()).ok_or_else(|| Fault {
                at: name.span().start,
                reason: format!(
                    "precision: expected fp64, fp32, fp16, bf16, e4m3 or e5m2, found {:?}",
                    name.get_ref()
                ),
            })?),
            None => None,
        };
        Ok(TapLayout { globs, text: self.r#match.into_inner(), placement, rows, precision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::BF16;

    #[test]
    fn the_first_match_wins() {
        let layouts = Layouts::parse(
            r#"
            [[tap]]
            match = "*.qkv"
            placement = "S(1,sections=[16, 4, 4])"
            rows = "num_tokens"
            precision = "bf16"
            [[tap]]
            match = "*"
            placement = "R"
            rows = 5
            [rename]
            "model.decoder.*" = "model.layers.*"
            "#,
        )
        .unwrap();
        let qkv = layouts.of("layers.0.qkv").unwrap();
        assert_eq!(qkv.placement.as_ref().unwrap().to_string(), "S(1, sections=[16,4,4])");
        assert_eq!(qkv.rows, Some(Rows::Tap("num_tokens".into())));
        assert_eq!(qkv.precision, Some(BF16));
        assert_eq!(layouts.of("x").unwrap().rows, Some(Rows::Number(5)));
        assert_eq!(layouts.renamed("model.decoder.3.q"), "model.layers.3.q");
        assert_eq!(layouts.renamed("other"), "other");
        assert_eq!(layouts.unmatched(["layers.0.qkv", "x"]), [""; 0]);
        assert_eq!(layouts.unmatched(["layers.0.q", "x"]), ["*.qkv"]);
        assert_eq!(layouts.unmatched([]), ["*.qkv", "*"]);
    }

    #[test]
    fn a_template_takes_the_captures_in_order() {
        assert_eq!(fill("model.layers.*.?", &["3", "q"]), "model.layers.3.q");
        assert_eq!(fill("plain", &["3"]), "plain");
        assert_eq!(fill("*.*", &["3"]), "3.");
    }

    #[track_caller]
    fn check_error(text: &str, line: usize, reason: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.toml");
        std::fs::write(&path, text).unwrap();
        let error = Layouts::read(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{}:{line}: {reason}", path.display()));
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        check_error(
            "[[tap]]\nmatch = \"*\"\nplacement = \"S(x)\"\n",
            3,
            "placement \"S(x)\", column 2: expected a number",
        );
        check_error(
            "\n[[join]]\nof = [\"q\"]\n",
            2,
            "[[join]] is not supported yet; [[tap]] and [rename] are",
        );
        check_error("[align]\nby = \"ids\"\n", 1, "[align] is not supported yet; [[tap]] and [rename] are");
        check_error(
            "[[tap]]\nmatch = \"*\"\nrows = -1\n",
            3,
            "rows: expected a number of at least 0 or a tap name, found -1",
        );
        check_error(
            "[[tap]]\nmatch = \"*\"\nprecision = \"int4\"\n",
            3,
            "precision: expected fp64, fp32, fp16, bf16, e4m3 or e5m2, found \"int4\"",
        );
        check_error(
            "[[tap]]\nmatch = \"{a\"\n",
            2,
            "match \"{a\", column 2: expected \",\" or \"}\", found the end",
        );
        check_error(
            "[rename]\n\"a,b\" = \"c\"\n",
            2,
            "rename \"a,b\", column 1: expected the end, found \",\"",
        );
    }

    #[test]
    fn every_example_of_the_page_is_a_layouts_file() {
        let page = include_str!("../../../docs/layouts.md");
        let examples: Vec<&str> =
            page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(examples.len(), 6);
        for example in examples {
            let layouts = Layouts::parse(example).unwrap();
            assert!(!layouts.taps.is_empty() || !layouts.renames.is_empty(), "{example}");
        }
    }

    #[test]
    fn a_missing_file_is_said_so() {
        let error = Layouts::read(Path::new("no/such.toml")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read layouts file: No such file"), "{error}");
        assert!(error.ends_with(": no/such.toml"), "{error}");
    }
}
