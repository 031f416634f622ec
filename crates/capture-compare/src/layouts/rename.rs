//! `[rename]`: what taps of the second run are called in the first.

use super::fault::Fault;
use capture_core::select::Glob;

/// One line of `[rename]`.
#[derive(Debug, Clone)]
pub(super) struct Rename {
    from: Glob,
    to: String,
}

impl Rename {
    /// The lines of the table, of the file `text`.
    pub(super) fn all(table: toml::Table, text: &str) -> Result<Vec<Self>, Fault> {
        let mut renames = Vec::new();
        for (from, to) in table {
            // A table keeps no places: the first mention of the name is the best guess at the line.
            let at = text.find(&from).unwrap_or(0);
            let glob = from.parse().map_err(|e| Fault::no_glob(at, "rename", &e))?;
            let Some(to) = to.as_str() else {
                let reason = format!("rename {from:?}: expected a tap name or glob in quotes, found {to}");
                return Err(Fault::new(at, reason));
            };
            renames.push(Self { from: glob, to: to.to_owned() });
        }
        Ok(renames)
    }

    /// The new name of a tap that this line fits.
    pub(super) fn of(&self, tap: &str) -> Option<String> {
        Some(fill(&self.to, &self.from.captures(tap)?))
    }
}

/// `template` with its wildcards replaced, in order, by what a glob captured. A wildcard too many is left out.
pub(super) fn fill(template: &str, captured: &[&str]) -> String {
    let mut captured = captured.iter().copied();
    template.chars().fold(String::new(), |mut name, c| {
        match c {
            '*' | '?' => name.extend(captured.next()),
            c => name.push(c),
        }
        name
    })
}
