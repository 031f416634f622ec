//! Where the parser stands in a selection, and what it says when it cannot go on.

/// Why a selection does not parse. Lower case, so that it can follow the name of what was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("selection {text:?}, column {column}: expected {expected}, found {found}")]
pub struct SelectError {
    /// The whole text.
    pub text: String,
    /// Where it stopped making sense, in bytes from 0; a character boundary of `text`.
    pub column: usize,
    /// What would have made sense there.
    pub expected: &'static str,
    /// What stands there, quoted, or `the end`.
    pub found: String,
}

impl SelectError {
    /// The text with a caret under the column, for a terminal.
    #[must_use]
    pub fn pointer(&self) -> String {
        let line: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let indent = self.text[..self.column].chars().count();
        format!("{line}\n{:indent$}^", "")
    }
}

/// A place in the text that moves forward only.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn column(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn since(&self, column: usize) -> &'a str {
        &self.text[column..self.at]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn bump(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(super) fn skip_spaces(&mut self) {
        self.take(|c| c.is_ascii_whitespace());
    }

    /// The characters from here on that are wanted; the cursor stands behind them.
    pub(super) fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// A whole number, perhaps with a power of ten as in `1e6`.
    pub(super) fn number(&mut self) -> Result<u64, SelectError> {
        let start = self.at;
        let digits = self.take(|c| c.is_ascii_digit());
        let mut value = digits.parse::<u64>().ok();
        let mut power = self.clone();
        if !digits.is_empty() && (power.eat("e") || power.eat("E")) {
            let exponent = power.take(|c| c.is_ascii_digit());
            if !exponent.is_empty() {
                let factor = exponent.parse().ok().and_then(|e| 10u64.checked_pow(e));
                value = value.zip(factor).and_then(|(n, f)| n.checked_mul(f));
                *self = power;
            }
        }
        value.map_or_else(|| self.expected_at(start, "a whole number of at most 64 bits"), Ok)
    }

    pub(super) fn positive(&mut self) -> Result<u64, SelectError> {
        let start = self.at;
        match self.number()? {
            0 => self.expected_at(start, "a number of at least 1"),
            n => Ok(n),
        }
    }

    pub(super) fn expected<T>(&self, expected: &'static str) -> Result<T, SelectError> {
        self.expected_at(self.at, expected)
    }

    pub(super) fn expected_at<T>(&self, column: usize, expected: &'static str) -> Result<T, SelectError> {
        let rest = &self.text[column..];
        let ends = |c: char| c.is_ascii_whitespace() || "[]{},=<>".contains(c);
        let word: String = rest.chars().take_while(|c| !ends(*c)).take(40).collect();
        let found = match (word.is_empty(), rest.chars().next()) {
            (true, None) => "the end".to_owned(),
            (true, Some(c)) => format!("{:?}", c.to_string()),
            (false, _) => format!("{word:?}"),
        };
        Err(SelectError { text: self.text.to_owned(), column, expected, found })
    }
}
