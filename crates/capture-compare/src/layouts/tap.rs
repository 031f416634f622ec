//! `[[tap]]`: what is known of the taps that a glob fits.

use super::{fault::Fault, rename::fill};
use crate::{float::Float, transform::Transform};
use capture_core::{Placement, Placements, Sharding, placement::Cut, select::Globs};
use serde::Deserialize;
use toml::Spanned;

/// One `[[tap]]` of a layouts file.
#[derive(Debug, Clone)]
pub struct TapLayout {
    pub(super) globs: Globs,
    /// `match` as written.
    pub(super) text: String,
    /// How the ranks' records make the logical tensor; overrides the capture call.
    placement: Option<Placements>,
    /// How many leading rows of the logical tensor are valid.
    pub rows: Option<Rows>,
    /// The coarsest arithmetic upstream.
    pub precision: Option<Float>,
    /// Whether the side that is longer along the dim that is cut has padding at its end.
    pub padded: bool,
    /// Taps whose last dim is as wide as a rank's share of the first section.
    first_section: Vec<String>,
    /// The tap that holds the scores by which the ids were chosen.
    scores: Option<String>,
    /// What is done to each rank's record first, in this order.
    transforms: Vec<Transform>,
    /// The only side of a comparison that the table speaks of, where it has one.
    pub(super) side: Option<Side>,
    /// Whether it comes with the package.
    pub(crate) ready_made: bool,
}

/// A side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first run.
    Reference,
    /// The second run.
    Candidate,
}

/// Where the number of valid rows comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// The number itself.
    Number(u64),
    /// A tap of the same step whose one element is the number.
    Tap(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    r#match: Spanned<String>,
    placement: Option<Spanned<String>>,
    rows: Option<Spanned<toml::Value>>,
    precision: Option<Spanned<String>>,
    #[serde(default)]
    transforms: Vec<Spanned<String>>,
    side: Option<Spanned<String>>,
    padded: Option<Spanned<bool>>,
    first_section: Option<Spanned<Vec<String>>>,
    scores: Option<String>,
}

impl TapLayout {
    /// The taps that show how wide the first section is of a tap that the table matches.
    pub(super) fn first_section_of(&self, tap: &str) -> Vec<String> {
        self.first_section.iter().map(|of| self.fill(of, tap)).collect()
    }

    /// The tap of the scores for a tap that the table matches.
    pub(super) fn scores_of(&self, tap: &str) -> Option<String> {
        self.scores.as_ref().map(|of| self.fill(of, tap))
    }

    /// The placement of a tap that the table matches.
    pub(super) fn placement_of(&self, tap: &str) -> Option<Placements> {
        let filled = |placement: &Placement| match &placement.sharding {
            Sharding::ScaleOf { tap: of, block } => {
                let (tap, block) = (self.fill(of, tap), block.clone());
                Placement { sharding: Sharding::ScaleOf { tap, block }, over: placement.over.clone() }
            }
            _ => placement.clone(),
        };
        Some(Placements(self.placement.as_ref()?.0.iter().map(filled).collect()))
    }

    /// The transforms of a tap that the table matches.
    pub(super) fn transforms_of(&self, tap: &str) -> Vec<Transform> {
        self.transforms.iter().map(|t| t.with_taps(|of| self.fill(of, tap))).collect()
    }

    /// A name whose wildcards stand for what those of `match` fit in `tap`.
    fn fill(&self, name: &str, tap: &str) -> String {
        fill(name, &self.globs.captures(tap).unwrap_or_default())
    }
}

impl Entry {
    pub(super) fn check(self) -> Result<TapLayout, Fault> {
        let at = self.r#match.span().start;
        let side = self.side.as_ref().map(side).transpose()?;
        // padded and first_section need a placement.
        let for_both =
            [self.placement.is_some(), self.rows.is_some(), self.precision.is_some(), self.scores.is_some()];
        if let (Some(name), true) = (&self.side, for_both.contains(&true)) {
            let reason = "side: expected match and transforms beside it, found keys that hold for both sides";
            return Err(Fault::new(name.span().start, reason));
        }
        let placement = self.placement.as_ref().map(placement).transpose()?;
        let cut = match placement.as_ref().map(|p| p.0.as_slice()) {
            Some([Placement { sharding: Sharding::Shard { cut, size, .. }, .. }]) => Some((cut, size)),
            _ => None,
        };
        if let Some(padded) = &self.padded
            && !matches!(cut, Some((_, None)))
        {
            let reason = "padded: expected a placement such as S(0), without a size, beside it";
            return Err(Fault::new(padded.span().start, reason));
        }
        if let Some(taps) = &self.first_section
            && !matches!(cut, Some((Cut::Equal(2..), _)))
        {
            let reason = "first_section: expected a placement such as S(0, sections=3) beside it";
            return Err(Fault::new(taps.span().start, reason));
        }
        Ok(TapLayout {
            globs: self.r#match.get_ref().parse().map_err(|e| Fault::no_glob(at, "match", &e))?,
            text: self.r#match.into_inner(),
            placement,
            rows: self.rows.as_ref().map(rows).transpose()?,
            precision: self.precision.as_ref().map(precision).transpose()?,
            padded: self.padded.is_some_and(Spanned::into_inner),
            first_section: self.first_section.map(Spanned::into_inner).unwrap_or_default(),
            scores: self.scores,
            transforms: self.transforms.iter().map(transform).collect::<Result<_, _>>()?,
            side,
            ready_made: false,
        })
    }
}

fn placement(text: &Spanned<String>) -> Result<Placements, Fault> {
    text.get_ref().parse().map_err(|e| Fault::new(text.span().start, format!("{e}")))
}

fn transform(text: &Spanned<String>) -> Result<Transform, Fault> {
    text.get_ref().parse().map_err(|e| Fault::new(text.span().start, format!("{e}")))
}

fn side(name: &Spanned<String>) -> Result<Side, Fault> {
    match name.get_ref().as_str() {
        "reference" => Ok(Side::Reference),
        "candidate" => Ok(Side::Candidate),
        found => {
            let reason = format!("side: expected reference or candidate, found {found:?}");
            Err(Fault::new(name.span().start, reason))
        }
    }
}

fn rows(rows: &Spanned<toml::Value>) -> Result<Rows, Fault> {
    match rows.get_ref() {
        toml::Value::Integer(n) if *n >= 0 => Ok(Rows::Number(n.unsigned_abs())),
        toml::Value::String(tap) => Ok(Rows::Tap(tap.clone())),
        other => {
            let reason = format!("rows: expected a number of at least 0 or a tap name, found {other}");
            Err(Fault::new(rows.span().start, reason))
        }
    }
}

fn precision(name: &Spanned<String>) -> Result<Float, Fault> {
    Float::named(name.get_ref()).ok_or_else(|| {
        let found = name.get_ref();
        let reason = format!("precision: expected fp64, fp32, fp16, bf16, e4m3 or e5m2, found {found:?}");
        Fault::new(name.span().start, reason)
    })
}
