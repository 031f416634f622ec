//! The taps that a user means.

use crate::Error;
use capture_core::select::{Globs, SelectError};

/// The tap of that name, else those that the pattern names, in the order given.
pub(crate) fn matching<'a>(taps: &[&'a str], wanted: &str) -> Result<Vec<&'a str>, Error> {
    if let Some(exact) = taps.iter().find(|tap| **tap == wanted) {
        return Ok(vec![*exact]);
    }
    let like: Vec<&str> = taps.iter().copied().filter(|tap| tap.contains(wanted)).collect();
    let globs: Globs = match wanted.parse() {
        Ok(globs) => globs,
        Err(SelectError { text, column, expected, found }) => {
            let hint =
                if like.is_empty() { String::new() } else { format!("; did you mean {}", quoted(&like)) };
            let text = format!(
                "no tap is called {text:?}, and as a pattern, column {column}: expected {expected}, found {found}{hint}"
            );
            return Err(Error::NotFound(text));
        }
    };
    let matching: Vec<&str> = taps.iter().copied().filter(|tap| globs.matches(tap)).collect();
    if matching.is_empty() {
        let hint = match (like.as_slice(), taps) {
            (_, []) => "the run has no records".to_owned(),
            ([], some) => format!("there are {}", quoted(some)),
            (like, _) => format!("did you mean {}", quoted(like)),
        };
        return Err(Error::NotFound(format!("no tap matches {wanted:?}; {hint}")));
    }
    Ok(matching)
}

/// The first few names.
fn quoted(names: &[&str]) -> String {
    const FEW: usize = 5;
    let more = names.len().saturating_sub(FEW);
    let few: Vec<_> = names.iter().take(FEW).map(|name| format!("{name:?}")).collect();
    few.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &str, expected: Result<&[&str], &str>) {
        let found = matching(&["a.q", "a[0].k", "b.q"], wanted).map_err(|e| e.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn a_name_is_no_pattern_and_a_pattern_says_what_is_wrong_with_it() {
        check("*.q", Ok(&["a.q", "b.q"]));
        check("a[0].k", Ok(&["a[0].k"]));
        check("q", Err(r#"no tap matches "q"; did you mean "a.q", "b.q""#));
        let text = r#"no tap is called "{a", and as a pattern, column 2: expected "," or "}", found the end"#;
        check("{a", Err(text));
        let text = r#"no tap is called "a[", and as a pattern, column 1: expected "," or the end, found "["; did you mean "a[0].k""#;
        check("a[", Err(text));
    }
}
