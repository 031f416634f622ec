//! `[[tap]]`: what is known of the taps that a glob fits.

use super::fault::Fault;
use crate::float::Float;
use capture_core::{Placements, select::Globs};
use serde::Deserialize;
use toml::Spanned;

/// One `[[tap]]` of a layouts file.
#[derive(Debug, Clone)]
pub struct TapLayout {
    pub(super) globs: Globs,
    /// `match` as written.
    pub(super) text: String,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    r#match: Spanned<String>,
    placement: Option<Spanned<String>>,
    rows: Option<Spanned<toml::Value>>,
    precision: Option<Spanned<String>>,
}

impl Entry {
    pub(super) fn check(self) -> Result<TapLayout, Fault> {
        let at = self.r#match.span().start;
        Ok(TapLayout {
            globs: self.r#match.get_ref().parse().map_err(|e| Fault::no_glob(at, "match", &e))?,
            text: self.r#match.into_inner(),
            placement: self.placement.as_ref().map(placement).transpose()?,
            rows: self.rows.as_ref().map(rows).transpose()?,
            precision: self.precision.as_ref().map(precision).transpose()?,
        })
    }
}

fn placement(text: &Spanned<String>) -> Result<Placements, Fault> {
    text.get_ref().parse().map_err(|e| Fault::new(text.span().start, format!("{e}")))
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
