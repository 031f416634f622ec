//! The layouts file (`--layouts FILE`, TOML): what the engineer knows of taps that the capture calls did not say.
//!
//! ```toml
//! [[tap]]
//! match = "*.qkv_proj.out"                  # globs over tap names as in a selection; the first match wins
//! placement = "S(1, sections=[16, 4, 4])"
//! rows = "num_tokens"                       # valid rows: a number, or the tap that holds it
//! precision = "bf16"                        # the coarsest arithmetic upstream, where it is not the stored dtype
//! transforms = ["crop(0, 130)"]             # done to each rank's record first
//!
//! [rename]                                  # taps of the second run → taps of the first
//! "model.decoder.*" = "model.layers.*"
//! ```
//!
//! `match` speaks of names as they are after renaming.

mod fault;
mod rename;
mod tap;

pub use fault::LayoutsError;
pub use tap::{Rows, Side, TapLayout};

use crate::transform::Transform;
use capture_core::Placements;
use fault::Fault;
use rename::Rename;
use serde::Deserialize;
use std::path::Path;
use toml::Spanned;

/// What a layouts file says. The default says nothing.
#[derive(Debug, Clone, Default)]
pub struct Layouts {
    taps: Vec<TapLayout>,
    renames: Vec<Rename>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tap: Vec<tap::Entry>,
    #[serde(default)]
    rename: toml::Table,
    join: Option<Spanned<toml::Value>>,
    align: Option<Spanned<toml::Value>>,
}

impl Layouts {
    /// Reads a layouts file.
    pub fn read(path: &Path) -> Result<Self, LayoutsError> {
        Self::of_text(path, &Self::text(path)?)
    }

    /// The text of a layouts file.
    pub fn text(path: &Path) -> Result<String, LayoutsError> {
        std::fs::read_to_string(path).map_err(|reason| LayoutsError::Read { path: path.to_owned(), reason })
    }

    /// What a layouts file of that name says that holds this text.
    pub fn of_text(path: &Path, text: &str) -> Result<Self, LayoutsError> {
        Self::parse(text).map_err(|Fault { at, reason }| LayoutsError::Line {
            path: path.to_owned(),
            line: text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1,
            reason,
        })
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let file: File = toml::from_str(text)
            .map_err(|error| Fault::new(error.span().map_or(0, |span| span.start), error.message()))?;
        for (name, table) in [("[[join]]", &file.join), ("[align]", &file.align)] {
            if let Some(table) = table {
                let reason = format!("{name} is not supported yet; [[tap]] and [rename] are");
                return Err(Fault::new(table.span().start, reason));
            }
        }
        let taps = file.tap.into_iter().map(tap::Entry::check).collect::<Result<_, _>>()?;
        Ok(Self { taps, renames: Rename::all(file.rename, text)? })
    }

    /// The first `[[tap]]` for both sides that matches.
    #[must_use]
    pub fn of(&self, tap: &str) -> Option<&TapLayout> {
        self.taps.iter().find(|t| t.side.is_none() && t.globs.matches(tap))
    }

    /// The placement of a tap, if any is said.
    #[must_use]
    pub fn placement(&self, tap: &str) -> Option<Placements> {
        self.of(tap)?.placement_of(tap)
    }

    /// What is done to each record of a tap on a side of a comparison: what the first `[[tap]]` of that side says, else
    /// the first for both.
    #[must_use]
    pub fn transforms(&self, tap: &str, side: Option<Side>) -> Vec<Transform> {
        let own = self.taps.iter().find(|t| t.side.is_some() && t.side == side && t.globs.matches(tap));
        own.or_else(|| self.of(tap)).map_or_else(Vec::new, |t| t.transforms_of(tap))
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
        self.renames.iter().find_map(|rename| rename.of(tap)).unwrap_or_else(|| tap.to_owned())
    }
}

#[cfg(test)]
mod tests;
