//! What a pattern's wildcards stand for in a name that fits it, which is how taps are renamed.
//!
//! A name may fit in many ways. As in the match itself nothing is tried twice: the places that pieces can reach from the
//! front are cut down to those from which the rest can reach the end, and then each piece in turn takes the least it can.

use super::glob::{Glob, Globs, Piece, walk};

impl Glob {
    /// What each `*` and `?` stands for in `name`, in the order of the pattern; the earlier ones take the least they can.
    /// Those inside braces count where their alternative is the one that fits, the first of several. `None` where
    /// `name` does not fit.
    ///
    /// ```
    /// use capture_core::select::Glob;
    ///
    /// let glob: Glob = "layers.*.{q,k?}".parse()?;
    /// assert_eq!(glob.captures("layers.3.attn.k2"), Some(vec!["3.attn", "2"]));
    /// assert_eq!(glob.captures("layers.3.q"), Some(vec!["3"]));
    /// assert_eq!(glob.captures("layers.3.v"), None);
    /// # Ok::<(), capture_core::select::SelectError>(())
    /// ```
    #[must_use]
    pub fn captures<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        let mut captured = Vec::new();
        self.matches(name).then(|| take(self.pieces(), name, (0, name.len()), &mut captured))?;
        Some(captured)
    }
}

impl Globs {
    /// What the wildcards of the first pattern that fits stand for.
    #[must_use]
    pub fn captures<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        self.patterns().iter().find_map(|glob| glob.captures(name))
    }
}

/// Appends what the wildcards of `pieces`, which cover the part `from..to` of the name, stand for.
fn take<'n>(pieces: &[Piece], name: &'n str, (from, to): (usize, usize), captured: &mut Vec<&'n str>) {
    let places = places(pieces, name, from, to);
    let mut at = from;
    for (piece, ends) in pieces.iter().zip(&places[1..]) {
        let first_end =
            |pieces: &[Piece]| walk(pieces, name, vec![at]).into_iter().find(|e| contains(ends, *e));
        // There is always one: the pieces cover that part.
        let end = first_end(std::slice::from_ref(piece)).unwrap_or(to);
        match piece {
            Piece::Text(_) => {}
            Piece::One | Piece::Many => captured.push(&name[at..end]),
            Piece::Either(all) => {
                let fits = |pieces: &&Vec<Piece>| walk(pieces, name, vec![at]).binary_search(&end).is_ok();
                if let Some(pieces) = all.iter().find(fits) {
                    take(pieces, name, (at, end), captured);
                }
            }
        }
        at = end;
    }
}

/// Where each piece may begin, and the last one end, so that all of them together cover `from..to`.
fn places(pieces: &[Piece], name: &str, from: usize, to: usize) -> Vec<Vec<usize>> {
    let mut places = vec![vec![from]];
    for piece in pieces {
        let starts = places.last().cloned().unwrap_or_default();
        let mut ends = walk(std::slice::from_ref(piece), name, starts);
        ends.retain(|end| *end <= to);
        places.push(ends);
    }
    let mut ends = vec![to];
    for (piece, starts) in pieces.iter().zip(&mut places).rev() {
        starts.retain(|start| match piece {
            Piece::Many => ends.last().is_some_and(|last| start <= last),
            _ => {
                walk(std::slice::from_ref(piece), name, vec![*start]).iter().any(|end| contains(&ends, *end))
            }
        });
        ends.clone_from(starts);
    }
    if let Some(last) = places.last_mut() {
        *last = vec![to];
    }
    places
}

fn contains(ascending: &[usize], place: usize) -> bool {
    ascending.binary_search(&place).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(glob: &str, name: &str, captured: Option<&[&str]>) {
        assert_eq!(glob.parse::<Glob>().unwrap().captures(name).as_deref(), captured);
    }

    #[test]
    fn wildcards_stand_for_what_they_matched() {
        check("*", "layers.0.q", Some(&["layers.0.q"]));
        check("layers.*.q", "layers.0.attn.q", Some(&["0.attn"]));
        check("layers.*.q", "layers.0.attn.k", None);
        check("*.q", "a.q.b.q", Some(&["a.q.b"]));
        check("layers.?.*", "layers.7.q", Some(&["7", "q"]));
        check("?", "é", Some(&["é"]));
        check("a*b*c", "aXbYbZc", Some(&["X", "YbZ"]));
        check("a*", "a", Some(&[""]));
        check("plain", "plain", Some(&[]));
    }

    #[test]
    fn only_the_alternative_that_fits_captures() {
        check("layers.{0..3}.{q,k}", "layers.3.k", Some(&[]));
        check("{a*,b?}.*", "b7.x", Some(&["7", "x"]));
        check("{x*y,x*}z", "x1yz", Some(&["1"]));
        check("{x*y,x*}z", "x1z", Some(&["1"]));
        // The first alternative that fits at all, not the first that begins to.
        check("{a,ab}{bc,c}*", "abcd", Some(&["d"]));
        check("{a?,ab?}cd", "abxcd", Some(&["x"]));
    }

    #[test]
    fn a_hostile_pattern_is_done_in_time() {
        let name = "a".repeat(1024);
        let captured =
            "a*".repeat(100).parse::<Glob>().unwrap().captures(&name).map(|all| all.concat().len());
        assert_eq!(captured, Some(1024 - 100));
        assert_eq!(("a*".repeat(100) + "b").parse::<Glob>().unwrap().captures(&name), None);
    }

    proptest! {
        /// Whatever fits, the pattern with its wildcards filled in is the name.
        #[test]
        fn what_was_captured_makes_the_name_again(pattern in "[ab*?]{1,8}", name in "[ab]{0,8}") {
            let glob: Glob = pattern.parse().unwrap();
            let Some(captured) = glob.captures(&name) else {
                prop_assert!(!glob.matches(&name));
                return Ok(());
            };
            let mut captured = captured.into_iter();
            let (mut again, mut last) = (String::new(), ' ');
            for c in pattern.chars() {
                match (last, c) {
                    ('*', '*') => {}
                    (_, '*' | '?') => again += captured.next().unwrap(),
                    _ => again.push(c),
                }
                last = c;
            }
            prop_assert_eq!((again.as_str(), captured.next()), (name.as_str(), None));
        }
    }
}
