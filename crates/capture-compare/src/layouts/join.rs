//! `[[join]]`: several taps of one run that are one tap of the other.
//!
//! A `#` in the names of the parts is a number, as experts have: the parts of one number are joined, and what that makes
//! of all numbers is stacked.

use super::{fault::Fault, rename::fill};
use capture_core::select::Glob;
use serde::Deserialize;
use std::collections::BTreeSet;
use toml::Spanned;

/// What stands for a number in the name of a part.
const NUMBER: char = '#';

const WILDCARDS: [char; 2] = ['*', '?'];

/// One `[[join]]` of a layouts file.
#[derive(Debug, Clone)]
pub struct Join {
    /// The parts in order, each as what stands before and after its number, the whole where it has none, and as written.
    of: Vec<(Vec<Glob>, String)>,
    /// Whether the parts have a number.
    numbered: bool,
    /// The name of the whole, with wildcards for what those of a part fit.
    into: String,
    /// Dim along which the parts lie one after the other; negative counts from the end.
    pub dim: i32,
    /// Whether it comes with the package.
    pub(super) ready_made: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    of: Spanned<Vec<Spanned<String>>>,
    into: Spanned<String>,
    dim: Spanned<i64>,
}

impl Join {
    /// How many parts there are, of one number where they have one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// How many parts are joined to make a step along dim 0 of the whole, where these are stacked.
    #[must_use]
    pub fn stacked(&self) -> Option<usize> {
        self.numbered.then_some(self.of.len())
    }

    /// Whether there are none, which no file can say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Which part the tap is, counted on over all numbers, and what the wildcards stand for in its name.
    #[must_use]
    pub fn part<'n>(&self, tap: &'n str) -> Option<(usize, Vec<&'n str>)> {
        self.of.iter().enumerate().find_map(|(i, (globs, _))| match globs.as_slice() {
            [before, after] => numbers(tap).find_map(|(from, to)| {
                let mut captured = before.captures(&tap[..from])?;
                captured.extend(after.captures(&tap[to..])?);
                // As it is written, so that two names never are one part.
                let n: u16 = tap[from..to].parse().ok().filter(|n: &u16| n.to_string() == tap[from..to])?;
                Some((usize::from(n) * self.of.len() + i, captured))
            }),
            globs => Some((i, globs.first()?.captures(tap)?)),
        })
    }

    /// The name of the whole.
    #[must_use]
    pub fn whole(&self, captured: &[&str]) -> String {
        fill(&self.into, captured)
    }

    /// The name of a part.
    #[must_use]
    pub fn name(&self, part: usize, captured: &[&str]) -> String {
        let Some((number, i)) = part.checked_div(self.len()).zip(part.checked_rem(self.len())) else {
            return String::new();
        };
        fill(&self.of[i].1, captured).replace(NUMBER, &number.to_string())
    }

    /// `of` and `into` as written.
    pub(super) fn text(&self) -> String {
        let of: Vec<&str> = self.of.iter().map(|(_, text)| text.as_str()).collect();
        format!("{} into {}", of.join(", "), self.into)
    }

    /// The tables of a file, in order.
    pub(super) fn all(entries: Vec<Entry>) -> Result<Vec<Self>, Fault> {
        // What is joined is recorded: names that are wholes are no parts.
        let wholes: BTreeSet<String> = entries.iter().map(|e| e.into.get_ref().clone()).collect();
        let mut seen = BTreeSet::new();
        let mut joins = Vec::new();
        for Entry { of, into, dim } in entries {
            let numbered = of.get_ref().iter().any(|text| text.get_ref().contains(NUMBER));
            if of.get_ref().len() < if numbered { 1 } else { 2 } {
                let reason = format!("of: expected two taps or more, found {}", of.get_ref().len());
                return Err(Fault::new(of.span().start, reason));
            }
            let wanted = wildcards("into", &into)?;
            if into.get_ref().contains(NUMBER) {
                let reason = format!("into: expected # in the parts only, found {:?}", into.get_ref());
                return Err(Fault::new(into.span().start, reason));
            }
            if !seen.insert(into.get_ref().clone()) {
                let reason = format!("into: expected each tap once, found {:?} again", into.get_ref());
                return Err(Fault::new(into.span().start, reason));
            }
            let dim = match i32::try_from(*dim.get_ref()) {
                Ok(axis) if numbered && axis != 0 => {
                    let reason = format!("dim: expected 0, as # stacks along a dim in front, found {axis}");
                    return Err(Fault::new(dim.span().start, reason));
                }
                Ok(axis) => axis,
                Err(_) => {
                    let reason = format!("dim: expected a dim such as 1 or -1, found {}", dim.get_ref());
                    return Err(Fault::new(dim.span().start, reason));
                }
            };
            let mut parts: Vec<(Vec<Glob>, String)> = Vec::new();
            for text in of.into_inner() {
                let (at, found) = (text.span().start, wildcards("of", &text)?);
                let text = text.into_inner();
                if found != wanted {
                    let reason = format!(
                        "of: expected as many wildcards as into has, {wanted}, found {found} in {text:?}"
                    );
                    return Err(Fault::new(at, reason));
                }
                let numbers = text.matches(NUMBER).count();
                if numbers != usize::from(numbered) {
                    let reason =
                        format!("of: expected one # in every part or in none, found {numbers} in {text:?}");
                    return Err(Fault::new(at, reason));
                }
                if wholes.contains(&text) {
                    let reason = format!("of: expected taps as recorded, found {text:?}, which is joined");
                    return Err(Fault::new(at, reason));
                }
                if parts.iter().any(|(_, other)| *other == text) {
                    return Err(Fault::new(at, format!("of: expected each tap once, found {text:?} again")));
                }
                let globs = text.split(NUMBER).map(str::parse).collect::<Result<_, _>>();
                parts.push((globs.map_err(|e| Fault::no_glob(at, "of", &e))?, text));
            }
            joins.push(Self { of: parts, numbered, into: into.into_inner(), dim, ready_made: false });
        }
        Ok(joins)
    }
}

/// Where the numbers in a name are.
fn numbers(name: &str) -> impl Iterator<Item = (usize, usize)> {
    let starts = name
        .char_indices()
        .filter(|(i, c)| c.is_ascii_digit() && !name[..*i].ends_with(|before: char| before.is_ascii_digit()));
    starts.map(|(from, _)| {
        let length = name[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len() - from);
        (from, from + length)
    })
}

/// How many wildcards a name has that may have `*` and `?` only, as its wildcards take the place of others.
fn wildcards(key: &str, text: &Spanned<String>) -> Result<usize, Fault> {
    let name = text.get_ref();
    if name.is_empty() || name.contains(['{', '}', ',']) {
        let reason = format!("{key}: expected a tap name, perhaps with * and ?, found {name:?}");
        return Err(Fault::new(text.span().start, reason));
    }
    Ok(name.matches(WILDCARDS).count())
}
