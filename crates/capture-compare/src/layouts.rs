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
//!
//! [[join]]                                  # taps of one run that are one tap of the other
//! of = ["*.q_proj", "*.k_proj", "*.v_proj"]
//! into = "*.qkv_proj"
//! dim = -1
//!
//! [align]                                   # taps that say which rows belong together
//! by = "input_ids, positions"
//! ```
//!
//! `match` speaks of names as they are after renaming.

mod align;
mod fault;
mod join;
mod rename;
mod tap;

pub use fault::LayoutsError;
pub use join::Join;
pub use tap::{Rows, Side, TapLayout};

use crate::transform::Transform;
use capture_core::{Placements, header::MAX_HEADER};
use fault::Fault;
use rename::Rename;
use serde::Deserialize;
use std::{
    fs,
    io::{self, ErrorKind, Read as _},
    path::Path,
};

/// The layouts that come with the package, by name.
const READY_MADE: [(&str, &str); 3] = [
    ("vllm", include_str!("../layouts/vllm.toml")),
    ("vllm-ep", include_str!("../layouts/vllm-ep.toml")),
    ("hf", include_str!("../layouts/hf.toml")),
];

/// What a layouts file says, or several. The default says nothing.
#[derive(Debug, Clone, Default)]
pub struct Layouts {
    taps: Vec<TapLayout>,
    renames: Vec<Rename>,
    joins: Vec<Join>,
    align: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tap: Vec<tap::Entry>,
    #[serde(default)]
    rename: toml::Table,
    #[serde(default)]
    join: Vec<join::Entry>,
    align: Option<align::Entry>,
}

impl Layouts {
    /// Reads layouts: a file, or what comes with the package under that name where there is no such file.
    pub fn read(path: &Path) -> Result<Self, LayoutsError> {
        Self::of_text(path, &Self::text(path)?)
    }

    /// The text of what is read.
    pub fn text(path: &Path) -> Result<String, LayoutsError> {
        match (read(path), ready_made(path)) {
            (Ok(text), _) => Ok(text),
            // A directory of that name, as of vLLM's own sources, is no file.
            (Err(e), Some(text)) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
                Ok(text.to_owned())
            }
            (Err(reason), _) => Err(LayoutsError::Read { path: path.to_owned(), reason }),
        }
    }

    /// What is said here, and where nothing is, in `other`.
    #[must_use]
    pub fn before(mut self, other: Self) -> Self {
        self.taps.extend(other.taps);
        self.renames.extend(other.renames);
        self.joins.extend(other.joins);
        if self.align.is_empty() {
            self.align = other.align;
        }
        self
    }

    /// What a layouts file of that name says that holds this text.
    pub fn of_text(path: &Path, text: &str) -> Result<Self, LayoutsError> {
        let mut layouts = Self::parse(text).map_err(|Fault { at, reason }| LayoutsError::Line {
            path: path.to_owned(),
            line: text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1,
            reason,
        })?;
        if ready_made(path) == Some(text) {
            layouts.taps.iter_mut().for_each(|tap| tap.ready_made = true);
            layouts.joins.iter_mut().for_each(|join| join.ready_made = true);
        }
        Ok(layouts)
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let file: File = toml::from_str(text)
            .map_err(|error| Fault::new(error.span().map_or(0, |span| span.start), error.message()))?;
        let taps = file.tap.into_iter().map(tap::Entry::check).collect::<Result<_, _>>()?;
        Ok(Self {
            taps,
            renames: Rename::all(file.rename, text)?,
            joins: Join::all(file.join)?,
            align: file.align.map_or_else(|| Ok(Vec::new()), align::Entry::check)?,
        })
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

    /// The taps whose last dim is as wide as a rank's share of the first section of a tap.
    #[must_use]
    pub fn first_section(&self, tap: &str) -> Vec<String> {
        self.of(tap).map_or_else(Vec::new, |layout| layout.first_section_of(tap))
    }

    /// The tap that holds the scores by which a tap's ids were chosen, where it is named.
    #[must_use]
    pub fn scores(&self, tap: &str) -> Option<String> {
        self.of(tap)?.scores_of(tap)
    }

    /// What every `[[tap]]` matches and every `[[join]]` joins that fits none of the taps, names as they are after
    /// renaming. What comes with the package speaks of more modules than a model has.
    #[must_use]
    pub fn unmatched(&self, taps: &[String]) -> Vec<String> {
        let unmatched =
            self.taps.iter().filter(|t| !t.ready_made && !taps.iter().any(|tap| t.globs.matches(tap)));
        let unjoined =
            self.joins.iter().filter(|j| !j.ready_made && !taps.iter().any(|tap| j.part(tap).is_some()));
        let unmatched = unmatched.map(|t| format!("match {:?}", t.text));
        unmatched.chain(unjoined.map(|j| format!("join of {}", j.text()))).collect()
    }

    /// Whether anything said here of taps fits one of them, names as they are after renaming.
    #[must_use]
    pub fn fits_any(&self, taps: &[String]) -> bool {
        let fits = |tap: &String| {
            self.taps.iter().any(|t| t.globs.matches(tap)) || self.joins.iter().any(|j| j.part(tap).is_some())
        };
        taps.iter().any(fits)
    }

    /// Whether it comes with the package.
    #[must_use]
    pub fn is_ready_made(&self) -> bool {
        self.taps.iter().any(|tap| tap.ready_made)
    }

    /// Which taps of one run are one of the other.
    #[must_use]
    pub fn joins(&self) -> &[Join] {
        &self.joins
    }

    /// The taps by which rows are matched; none where rows stand where they belong.
    #[must_use]
    pub fn align(&self) -> &[String] {
        &self.align
    }

    /// The name that a tap of the second run has in the first.
    #[must_use]
    pub fn renamed(&self, tap: &str) -> String {
        self.renames.iter().find_map(|rename| rename.of(tap)).unwrap_or_else(|| tap.to_owned())
    }
}

/// The text of the layouts that come with the package under that name.
/// A file of no more than a segment's header may have: a device or pipe need have no end.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let n = fs::File::open(path)?.take(MAX_HEADER + 1).read_to_string(&mut text)?;
    match n as u64 > MAX_HEADER {
        true => Err(io::Error::other(format!("expected at most {MAX_HEADER} bytes, found more"))),
        false => Ok(text),
    }
}

fn ready_made(name: &Path) -> Option<&'static str> {
    READY_MADE.iter().find(|(ready, _)| name == Path::new(ready)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests;
