//! Patterns of tap names: `*` is any run of characters, dots too, `?` is one character, `{a,b}` is one of several
//! patterns and `{0..3}` one of several numbers. There are no character classes and no escapes.
//!
//! Matching keeps the set of all places in the name at which the pattern read so far may end, and moves the whole
//! set over one piece of the pattern at a time. Nothing is tried twice, so `*a*a*a*` costs at most the product of
//! the two lengths, and alternatives that follow each other never multiply.

use super::cursor::{Cursor, SelectError};
use std::str::FromStr;

/// How many alternatives all braces of one text may hold together.
const MAX_ALTERNATIVES: u64 = 10_000;
/// How deep braces may nest.
const MAX_DEPTH: usize = 8;

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<Piece>);

/// Comma-separated patterns, without the conditions and modes of a selection; used to name modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globs(Vec<Glob>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    One,
    Many,
    Either(Vec<Vec<Piece>>),
}

impl Glob {
    /// Whether the whole of `name` fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        walk(&self.0, name, vec![0]).last() == Some(&name.len())
    }

    /// The pattern up to a `,`, `[` or `=` outside braces. `budget` is what of [`MAX_ALTERNATIVES`] is left.
    pub(super) fn parse(cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Self, SelectError> {
        let pieces = sequence(cursor, 0, budget)?;
        if pieces.is_empty() {
            return cursor.expected("a tap name or a pattern such as model.layers.*");
        }
        Ok(Self(pieces))
    }
}

/// How many alternatives the rest of a text may still have.
pub(super) struct Budget(u64);

impl Budget {
    pub(super) fn new() -> Self {
        Self(MAX_ALTERNATIVES)
    }

    fn spend(&mut self, n: u64, cursor: &Cursor<'_>, column: usize) -> Result<(), SelectError> {
        match self.0.checked_sub(n) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => cursor.expected_at(column, "at most 10000 alternatives in all braces"),
        }
    }
}

impl Globs {
    /// Whether the whole of `name` fits one of the patterns.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(name))
    }
}

impl FromStr for Globs {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let (mut cursor, mut budget, mut globs) = (Cursor::new(text), Budget::new(), Vec::new());
        loop {
            globs.push(Glob::parse(&mut cursor, &mut budget)?);
            match cursor.peek() {
                None => return Ok(Self(globs)),
                Some(',') => cursor.bump(),
                Some(_) => return cursor.expected("\",\" or the end"),
            }
        }
    }
}

/// Reads pieces up to what ends them: outside braces (depth 0) `,`, `[`, `=` or the end, inside `,` or `}`. Spaces
/// at both ends do not count.
fn sequence(cursor: &mut Cursor<'_>, depth: usize, budget: &mut Budget) -> Result<Vec<Piece>, SelectError> {
    let mut pieces = Vec::new();
    cursor.skip_spaces();
    while let Some(c) = cursor.peek() {
        match (c, depth) {
            (',', _) | ('[' | '=', 0) | ('}', 1..) => break,
            ('[' | ']' | '=' | '}', _) => {
                return cursor
                    .expected("a character of a name, where ? stands for one of [ ] { } = and comma");
            }
            ('{', _) => pieces.push(Piece::Either(alternatives(cursor, depth + 1, budget)?)),
            _ => {
                if depth > 0 && cursor.rest().starts_with("..") {
                    return cursor.expected("a range of two numbers such as {0..3}");
                }
                cursor.bump();
                match (c, pieces.last_mut()) {
                    ('*', Some(Piece::Many)) => {}
                    ('*', _) => pieces.push(Piece::Many),
                    ('?', _) => pieces.push(Piece::One),
                    (_, Some(Piece::Text(text))) => text.push(c),
                    _ => pieces.push(Piece::Text(c.to_string())),
                }
            }
        }
    }
    if let Some(Piece::Text(text)) = pieces.last_mut() {
        text.truncate(text.trim_end_matches(|c: char| c.is_ascii_whitespace()).len());
        if text.is_empty() {
            pieces.pop();
        }
    }
    Ok(pieces)
}

fn alternatives(
    cursor: &mut Cursor<'_>,
    depth: usize,
    budget: &mut Budget,
) -> Result<Vec<Vec<Piece>>, SelectError> {
    if depth > MAX_DEPTH {
        return cursor.expected("braces at most 8 deep");
    }
    cursor.bump();
    cursor.skip_spaces();
    if cursor.peek() == Some('}') {
        return cursor.expected("alternatives such as q,k or 0..3");
    }
    let mut all = Vec::new();
    loop {
        cursor.skip_spaces();
        if let Some(numbers) = numbers(cursor, budget)? {
            all.extend(numbers.into_iter().map(|n| vec![Piece::Text(n)]));
        } else {
            budget.spend(1, cursor, cursor.column())?;
            all.push(sequence(cursor, depth, budget)?);
        }
        match cursor.peek() {
            Some(',') => cursor.bump(),
            Some('}') => break,
            _ => return cursor.expected("\",\" or \"}\""),
        }
    }
    cursor.bump();
    Ok(all)
}

/// The numbers of a range such as `0..3`, where one begins here. As in a shell, `08..11` keeps two digits.
fn numbers(cursor: &mut Cursor<'_>, budget: &mut Budget) -> Result<Option<Vec<String>>, SelectError> {
    let mut ahead = cursor.clone();
    let column = ahead.column();
    let digits = |c: char| c.is_ascii_digit();
    let first = ahead.take(digits);
    if first.is_empty() || !ahead.eat("..") {
        return Ok(None);
    }
    let column_of_last = ahead.column();
    let last = ahead.take(digits);
    let (Ok(low), Ok(high)) = (first.parse::<u64>(), last.parse::<u64>()) else {
        return ahead.expected_at(column_of_last, "the last number of a range such as 0..3");
    };
    if high < low {
        return ahead.expected_at(column_of_last, "a range's last number not below its first");
    }
    budget.spend((high - low).saturating_add(1), cursor, column)?;
    ahead.skip_spaces();
    *cursor = ahead;
    let padded = |n: &str| n.len() > 1 && n.starts_with('0');
    let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
    Ok(Some((low..=high).map(|n| format!("{n:0width$}")).collect()))
}

/// Where in `name` the pieces may end if they begin at one of `starts`; both ascend without repetition.
fn walk(pieces: &[Piece], name: &str, mut starts: Vec<usize>) -> Vec<usize> {
    for piece in pieces {
        let Some(&first) = starts.first() else { break };
        starts = match piece {
            Piece::Text(text) => {
                starts.retain(|s| name[*s..].starts_with(text.as_str()));
                starts.into_iter().map(|s| s + text.len()).collect()
            }
            Piece::One => starts
                .into_iter()
                .filter_map(|s| name[s..].chars().next().map(|c| s + c.len_utf8()))
                .collect(),
            Piece::Many => (first..=name.len()).filter(|s| name.is_char_boundary(*s)).collect(),
            Piece::Either(all) => {
                let mut ends: Vec<usize> =
                    all.iter().flat_map(|pieces| walk(pieces, name, starts.clone())).collect();
                ends.sort_unstable();
                ends.dedup();
                ends
            }
        };
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, fits: &[&str], fails: &[&str]) {
        let globs: Globs = pattern.parse().unwrap();
        for name in fits {
            assert!(globs.matches(name), "{pattern:?} should fit {name:?}");
        }
        for name in fails {
            assert!(!globs.matches(name), "{pattern:?} should not fit {name:?}");
        }
    }

    #[track_caller]
    fn check_error(pattern: &str, column: usize, expected: &str) {
        let error = pattern.parse::<Globs>().unwrap_err();
        assert_eq!((error.column, error.expected), (column, expected));
    }

    #[test]
    fn stars_cross_dots_and_questions_are_one_character() {
        check("*", &["", "a", "a.b"], &[]);
        check("a.*.q", &["a.1.q", "a.b.c.q", "a..q"], &["a.q", "a.1.k", "xa.1.q"]);
        check("a?c", &["abc", "a.c", "aéc", "a🚀c"], &["ac", "abbc"]);
        check("***", &["", "ab"], &[]);
        check(" a b , c ", &["a b", "c"], &["a b ", "ab"]);
    }

    #[test]
    fn braces_expand_and_nest() {
        check("l.{0..3}.q", &["l.0.q", "l.3.q"], &["l.4.q", "l.03.q", "l..q"]);
        check("l.{9..11,20}", &["l.9", "l.10", "l.11", "l.20"], &["l.1", "l.110"]);
        check("l.{08..11}", &["l.08", "l.11"], &["l.8"]);
        check("{q,k,}x", &["qx", "kx", "x"], &["vx"]);
        check("{ a , b }", &["a", "b"], &[" a "]);
        check("{a,b{*,{0..1}}}", &["a", "b", "bxx", "b1"], &["", "ab"]);
        check("{a,ab}{bc,c}", &["abc", "ac", "abbc"], &["ab"]);
    }

    #[test]
    fn what_explodes_is_refused() {
        const MANY: &str = "at most 10000 alternatives in all braces";
        check_error("l.{0..1e9}", 7, "\",\" or \"}\"");
        check_error("l.{0..1000000000}", 3, MANY);
        check_error("l.{0..18446744073709551615}", 3, MANY);
        check_error("{0..5999}, {0..5999}", 12, MANY);
        check("{0..9999}", &["9999"], &["10000"]);
        check(&"{a,b}".repeat(64), &[&"ab".repeat(32)], &["ab"]);
        check_error(&"{".repeat(100_000), 8, "braces at most 8 deep");
    }

    #[test]
    fn errors_point_at_the_column() {
        const NAME: &str = "a character of a name, where ? stands for one of [ ] { } = and comma";
        check_error("", 0, "a tap name or a pattern such as model.layers.*");
        check_error("a,,b", 2, "a tap name or a pattern such as model.layers.*");
        check_error("a[0]", 1, "\",\" or the end");
        check_error("a}", 1, NAME);
        check_error("a]", 1, NAME);
        check_error("{a=b}", 2, NAME);
        check_error("x{}", 2, "alternatives such as q,k or 0..3");
        check_error("{a,b", 4, "\",\" or \"}\"");
        check_error("{3..x}", 4, "the last number of a range such as 0..3");
        check_error("{3..1}", 4, "a range's last number not below its first");
        check_error("{a..c}", 2, "a range of two numbers such as {0..3}");
        check_error("{-1..3}", 3, "a range of two numbers such as {0..3}");
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product_of_the_lengths() {
        // A backtracking matcher would need about 1024^50 steps.
        let pattern = "*a".repeat(50) + "b";
        check(&pattern, &[], &[&"a".repeat(1024)]);
    }

    /// The naive twin: braces expanded as text, stars tried at every length.
    fn naive(pattern: &str, name: &str) -> bool {
        expand(pattern).iter().any(|flat| {
            let (flat, name): (Vec<char>, Vec<char>) = (flat.chars().collect(), name.chars().collect());
            backtrack(&flat, &name)
        })
    }

    fn expand(pattern: &str) -> Vec<String> {
        // The innermost brace pair first: no "{" between its ends.
        let Some(close) = pattern.find('}') else { return vec![pattern.to_owned()] };
        let open = pattern[..close].rfind('{').unwrap();
        let inside = &pattern[open + 1..close];
        let parts: Vec<String> = match inside.split_once("..") {
            Some((a, b)) => (a.parse::<u32>().unwrap()..=b.parse().unwrap()).map(|n| n.to_string()).collect(),
            None => inside.split(',').map(str::to_owned).collect(),
        };
        parts
            .iter()
            .flat_map(|p| expand(&format!("{}{p}{}", &pattern[..open], &pattern[close + 1..])))
            .collect()
    }

    fn backtrack(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|n| backtrack(rest, &name[n..])),
            Some(('?', rest)) => !name.is_empty() && backtrack(rest, &name[1..]),
            Some((c, rest)) => name.first() == Some(c) && backtrack(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_backtracking_twin(
            pattern in r"(a|b|é|\.|\*|\?|\{a,b\}|\{b\*,,\?\}|\{0\.\.3\}|\{9\.\.10\}){1,7}",
            name in r"[ab.é013]{0,7}",
        ) {
            let globs: Globs = pattern.parse().unwrap();
            prop_assert_eq!(globs.matches(&name), naive(&pattern, &name));
        }
    }
}
