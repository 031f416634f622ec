//! One rule of a selection: `GLOB[CONDITIONS]=MODE`.

use super::condition::{Conditions, Subject};
use super::cursor::{Cursor, SelectError};
use super::glob::{Budget, Glob};
use std::fmt;

/// How much of a record is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// All its bytes.
    #[default]
    Full,
    /// Statistics of its values.
    Stats,
    /// A hash of its bytes.
    Hash,
    /// Nothing; the control page shows that the tap fired.
    Trace,
    /// Nothing at all.
    Off,
}

impl Mode {
    const ALL: [Self; 5] = [Self::Full, Self::Stats, Self::Hash, Self::Trace, Self::Off];

    /// As written in a selection.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Stats => "stats",
            Self::Hash => "hash",
            Self::Trace => "trace",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which taps, when, and how much of them.
#[derive(Debug, Clone)]
pub struct Rule {
    text: String,
    glob: Glob,
    conditions: Conditions,
    mode: Mode,
}

impl Rule {
    /// The rule as it was written, without the spaces around it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How much is kept of what the rule takes.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Keep only so many rows, from `head=N`.
    #[must_use]
    pub fn head(&self) -> Option<u64> {
        self.conditions.head
    }

    /// Whether the rule may apply to a tap of that name.
    #[must_use]
    pub fn names(&self, tap: &str) -> bool {
        self.glob.matches(tap)
    }

    /// Whether dtype, shape, call and rank are as the rule demands; its glob is not asked.
    #[must_use]
    pub fn holds(&self, subject: &Subject<'_>) -> bool {
        self.conditions.hold(subject)
    }

    /// Whether it has a condition on dtype or shape.
    pub(super) fn asks_of_tensor(&self) -> bool {
        self.conditions.ask_of_tensor()
    }

    pub(super) fn every(&self) -> Option<u64> {
        self.conditions.every
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.conditions.limit
    }

    /// The rule up to a `,` or the end.
    pub(super) fn parse(cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Self, SelectError> {
        cursor.skip_spaces();
        let start = cursor.column();
        let glob = Glob::parse(cursor, budget)?;
        let mut expected = "\"[\", \"=\", \",\" or the end";
        let mut conditions = Conditions::default();
        if cursor.eat("[") {
            conditions = Conditions::parse(cursor)?;
            cursor.skip_spaces();
            expected = "\"=\", \",\" or the end";
        }
        let mut mode = Mode::Full;
        if cursor.eat("=") {
            cursor.skip_spaces();
            let column = cursor.column();
            let word = cursor.take(|c| c.is_ascii_alphanumeric());
            match Mode::ALL.into_iter().find(|mode| word.eq_ignore_ascii_case(mode.as_str())) {
                Some(found) => mode = found,
                None => return cursor.expected_at(column, "full, stats, hash, trace or off"),
            }
            expected = "\",\" or the end";
        }
        let text = cursor.since(start).trim_ascii_end().to_owned();
        cursor.skip_spaces();
        match cursor.peek() {
            None | Some(',') => Ok(Self { text, glob, conditions, mode }),
            Some(_) => cursor.expected(expected),
        }
    }
}
