//! How placements and transforms are written: words, numbers, brackets and commas, with spaces between them where one
//! likes.

/// The largest number that may be written, and the largest dim of a tensor: some more than any has. Sums over ranks and
/// products of a few cannot overflow then, whatever a file says.
pub const LARGEST: u64 = 1 << 44;

/// Why a text does not parse; `column` counts bytes from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?}, column {column}: expected {expected}")]
pub struct NotationError {
    /// What the text was to be: `placement`, `transform`.
    pub what: &'static str,
    /// The whole text.
    pub text: String,
    /// Where it stopped making sense.
    pub column: usize,
    /// What would have made sense there.
    pub expected: &'static str,
}

/// A place in the text. It moves forward, and back to where something began that turned out to be wrong.
#[derive(Debug)]
pub struct Cursor<'a> {
    what: &'static str,
    text: &'a str,
    /// Bytes before the place; a character boundary.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning of a text that is to be a `what`.
    #[must_use]
    pub fn new(what: &'static str, text: &'a str) -> Self {
        Self { what, text, at: 0 }
    }

    /// What is left of the text.
    #[must_use]
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Where it stands, for [`expected_at`](Self::expected_at).
    #[must_use]
    pub fn column(&self) -> usize {
        self.at
    }

    /// Steps over a token and the spaces around it, if that stands here.
    pub fn eat(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        self.skip_spaces();
        found
    }

    /// Steps over a token that has to be here.
    pub fn require(&mut self, token: &str, expected: &'static str) -> Result<(), NotationError> {
        if self.eat(token) { Ok(()) } else { self.expected(expected) }
    }

    /// That nothing is left.
    pub fn end(&self) -> Result<(), NotationError> {
        if self.rest().is_empty() { Ok(()) } else { self.expected("the end") }
    }

    /// The characters from here on that are wanted; stands behind them.
    pub fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// The name of a tap, which ends at a comma or bracket.
    pub fn tap(&mut self) -> Result<String, NotationError> {
        let start = self.at;
        let name = self.take(|c| !matches!(c, ',' | ')')).trim_end();
        if name.is_empty() { self.expected_at(start, "a tap name") } else { Ok(name.to_owned()) }
    }

    /// A dim; negative counts from the end.
    pub fn axis(&mut self) -> Result<i32, NotationError> {
        let start = self.at;
        let negative = self.eat("-");
        match i32::try_from(self.number()?) {
            Ok(axis) => Ok(if negative { -axis } else { axis }),
            Err(_) => self.expected_at(start, "a tensor dimension"),
        }
    }

    /// A number of at least 1.
    pub fn positive(&mut self) -> Result<u64, NotationError> {
        let start = self.at;
        match self.number()? {
            0 => self.expected_at(start, "a number of at least 1"),
            n => Ok(n),
        }
    }

    /// A number of at most [`LARGEST`].
    pub fn number(&mut self) -> Result<u64, NotationError> {
        self.skip_spaces();
        let start = self.at;
        let digits = self.take(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return self.expected_at(start, "a number");
        }
        let number = digits.parse().ok().filter(|n| *n <= LARGEST);
        number.map_or_else(|| self.expected_at(start, "a number of at most 17592186044416"), Ok)
    }

    /// The error that something else was expected here.
    pub fn expected<T>(&self, expected: &'static str) -> Result<T, NotationError> {
        self.expected_at(self.at, expected)
    }

    /// The error that something else was expected at that column.
    pub fn expected_at<T>(&self, column: usize, expected: &'static str) -> Result<T, NotationError> {
        Err(NotationError { what: self.what, text: self.text.to_owned(), column, expected })
    }

    fn skip_spaces(&mut self) {
        self.take(|c| c == ' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_tensor_has_are_refused() {
        let number = |text: &str| Cursor::new("placement", text).number().map_err(|e| e.to_string());
        assert_eq!(number(" 17592186044416)"), Ok(LARGEST));
        let error = "placement \"17592186044417\", column 0: expected a number of at most 17592186044416";
        assert_eq!(number("17592186044417"), Err(error.to_owned()));
        let error = "placement \" x\", column 1: expected a number";
        assert_eq!(number(" x"), Err(error.to_owned()));
    }

    #[test]
    fn a_tap_ends_before_what_follows_it() {
        let mut cursor = Cursor::new("transform", "läyer.w , block");
        assert_eq!(cursor.tap().as_deref(), Ok("läyer.w"));
        assert_eq!((cursor.rest(), cursor.column()), (", block", 9));
    }
}
