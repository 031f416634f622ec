//! The selection language: comma-separated rules `GLOB[CONDITIONS]=MODE` that say which taps are captured, when, how
//! often and how much of them. docs/selection.md describes it for users.
//!
//! A selection is compiled once when it is read. A tap makes its [`Plan`] of it once; a decision then looks at a few
//! numbers and allocates nothing.
//!
//! ```
//! use capture_core::select::{Decision, Mode, Plan, Selection, Subject};
//!
//! let selection: Selection = "*.q[dim0=5,limit=1], *=hash".parse()?;
//! let plan = Plan::new(&selection, "layers.0.q");
//! let prefill = Subject { dtype: None, shape: &[5, 128], call: 0, rank: Some(0) };
//! let decode = Subject { shape: &[1, 128], ..prefill };
//! assert_eq!(plan.decide(&selection, &prefill), Decision::Capture { rule: 0, mode: Mode::Full, head: None });
//! assert_eq!(plan.decide(&selection, &prefill), Decision::Skip); // the limit is exhausted
//! assert_eq!(plan.decide(&selection, &decode), Decision::Capture { rule: 1, mode: Mode::Hash, head: None });
//! # Ok::<(), capture_core::select::SelectError>(())
//! ```

mod cursor;
mod glob;
mod wildcard;
mod condition;
mod rule;
mod plan;

pub use condition::Subject;
pub use cursor::SelectError;
pub use glob::{Glob, Globs};
pub use plan::{Decision, Plan};
pub use rule::{Mode, Rule};

use std::{fmt, str::FromStr, sync::Arc};

/// The rules, compiled, and the text they came from. A clone shares both.
#[derive(Debug, Clone)]
pub struct Selection {
    text: Arc<str>,
    rules: Arc<[Rule]>,
}

impl Selection {
    /// Every tap in full: `*`.
    #[must_use]
    pub fn everything() -> Self {
        "*".parse().expect("`*` is a selection")
    }

    /// In the order written; the first that applies has the say.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl FromStr for Selection {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let (mut cursor, mut budget) = (cursor::Cursor::new(text), glob::Budget::new());
        let mut rules = vec![Rule::parse(&mut cursor, &mut budget)?];
        while cursor.eat(",") {
            rules.push(Rule::parse(&mut cursor, &mut budget)?);
        }
        Ok(Self { text: text.into(), rules: rules.into() })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
