//! `[align]`: taps that say which rows of the two runs belong together.

use super::fault::Fault;
use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    by: Spanned<String>,
}

impl Entry {
    /// The taps, as the first run calls them.
    pub(super) fn check(self) -> Result<Vec<String>, Fault> {
        let mut taps: Vec<String> = Vec::new();
        for tap in self.by.get_ref().split(',').map(str::trim) {
            if tap.is_empty() || tap.contains(['*', '?', '{', '}']) || taps.iter().any(|t| t == tap) {
                let reason = format!("by: expected different tap names with commas between, found {tap:?}");
                return Err(Fault::new(self.by.span().start, reason));
            }
            taps.push(tap.to_owned());
        }
        Ok(taps)
    }
}
