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
pub(super) enum Piece {
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

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
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

impl FromStr for Glob {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let mut cursor = Cursor::new(text);
        let glob = Self::parse(&mut cursor, &mut Budget::new())?;
        if cursor.peek().is_some() { cursor.expected("the end") } else { Ok(glob) }
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

    pub(super) fn patterns(&self) -> &[Glob] {
        &self.0
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
pub(super) fn walk(pieces: &[Piece], name: &str, mut starts: Vec<usize>) -> Vec<usize> {
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
mod tests;
