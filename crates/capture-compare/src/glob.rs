//! Globs over tap names: `*` crosses dots, `?` is one character, `{a,b}` and `{0..3}` expand. What the wildcards
//! matched can be put into another glob, which is how taps are renamed.

/// The most alternatives that braces may expand to.
const MAX_ALTERNATIVES: usize = 4096;

/// A glob over tap names.
#[derive(Debug, Clone)]
pub struct Glob {
    alternatives: Vec<Vec<char>>,
}

/// Why a glob does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobError {
    /// Braces that do not pair or hold something else than a list or a range.
    #[error("glob {0:?}: expected {{a,b}} or {{0..3}}, with every brace closed")]
    Braces(String),
    /// Braces that expand to too much.
    #[error("glob {0:?}: its braces expand to more than {MAX_ALTERNATIVES} names")]
    TooMany(String),
}

impl Glob {
    /// Parses a glob.
    pub fn new(text: &str) -> Result<Self, GlobError> {
        let mut alternatives = Vec::new();
        expand(text, String::new(), text, &mut alternatives)?;
        Ok(Self { alternatives: alternatives.iter().map(|a| a.chars().collect()).collect() })
    }

    /// Whether the whole of `name` matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.captures(name).is_some()
    }

    /// What each `*` and `?` matched, in order; `None` where `name` does not match.
    #[must_use]
    pub fn captures(&self, name: &str) -> Option<Vec<String>> {
        let name: Vec<char> = name.chars().collect();
        self.alternatives.iter().find_map(|pattern| captures(pattern, &name))
    }
}

/// Writes every alternative of `rest`, each preceded by `front`.
fn expand(rest: &str, front: String, whole: &str, all: &mut Vec<String>) -> Result<(), GlobError> {
    let bad = || GlobError::Braces(whole.to_owned());
    let Some(open) = rest.find('{') else {
        if rest.contains('}') {
            return Err(bad());
        }
        if all.len() == MAX_ALTERNATIVES {
            return Err(GlobError::TooMany(whole.to_owned()));
        }
        all.push(front + rest);
        return Ok(());
    };
    let close = rest[open..].find('}').ok_or_else(bad)? + open;
    let (inside, after) = (&rest[open + 1..close], &rest[close + 1..]);
    if inside.contains('{') || rest[..open].contains('}') {
        return Err(bad());
    }
    let choices: Vec<String> = match inside.split_once("..") {
        Some((first, last)) => {
            let (first, last) =
                (first.parse::<u32>().map_err(|_| bad())?, last.parse::<u32>().map_err(|_| bad())?);
            if last < first {
                return Err(bad());
            }
            if (last - first) as usize >= MAX_ALTERNATIVES {
                return Err(GlobError::TooMany(whole.to_owned()));
            }
            (first..=last).map(|n| n.to_string()).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    for choice in choices {
        expand(after, format!("{front}{}{choice}", &rest[..open]), whole, all)?;
    }
    Ok(())
}

/// Only the last `*` passed ever needs to give way: the ones before it took the least they could. So the match is
/// found in time `pattern × name`.
fn captures(pattern: &[char], name: &[char]) -> Option<Vec<String>> {
    // Spans of the wildcards passed, and the last star: its place in the pattern and among the spans.
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() || p < pattern.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, spans.len()));
                spans.push((n, n));
                p += 1;
            }
            Some('?') if n < name.len() => {
                spans.push((n, n + 1));
                (p, n) = (p + 1, n + 1);
            }
            Some(c) if *c != '?' && name.get(n) == Some(c) => (p, n) = (p + 1, n + 1),
            _ => {
                let (at, span) = star?;
                let end = spans[span].1;
                if end == name.len() {
                    return None;
                }
                spans.truncate(span + 1);
                spans[span].1 = end + 1;
                (p, n) = (at + 1, end + 1);
            }
        }
    }
    Some(spans.iter().map(|&(from, to)| name[from..to].iter().collect()).collect())
}

/// `template` with its wildcards replaced, in order, by what another glob captured. A wildcard too many is left out.
#[must_use]
pub fn fill(template: &str, captured: &[String]) -> String {
    let mut captured = captured.iter();
    template.chars().fold(String::new(), |mut name, c| {
        match c {
            '*' | '?' => name.extend(captured.next().map(String::as_str)),
            c => name.push(c),
        }
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, name: &str, captured: Option<&[&str]>) {
        let captured = captured.map(|all| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(Glob::new(glob).unwrap().captures(name), captured);
    }

    #[test]
    fn wildcards_capture_what_they_matched() {
        check("*", "layers.0.q", Some(&["layers.0.q"]));
        check("layers.*.q", "layers.0.attn.q", Some(&["0.attn"]));
        check("layers.*.q", "layers.0.attn.k", None);
        check("*.q", "a.q.b.q", Some(&["a.q.b"]));
        check("layers.?.*", "layers.7.q", Some(&["7", "q"]));
        check("layers.?", "layers.17", None);
        check("?", "?", Some(&["?"]));
        check("", "", Some(&[]));
        check("a*b*c", "aXbYbZc", Some(&["X", "YbZ"]));
        check("a*", "a", Some(&[""]));
    }

    #[test]
    fn braces_expand() {
        check("layers.{0..3}.{q,k}", "layers.3.k", Some(&[]));
        check("layers.{0..3}.{q,k}", "layers.4.k", None);
        check("{a,}b", "b", Some(&[]));
        for bad in ["{a", "a}", "{a,{b,c}}", "{3..1}", "{a..b}"] {
            assert_eq!(Glob::new(bad).unwrap_err(), GlobError::Braces(bad.into()));
        }
        let many = "{0..99}{0..99}";
        assert_eq!(Glob::new(many).unwrap_err(), GlobError::TooMany(many.into()));
    }

    #[test]
    fn a_hostile_glob_is_done_in_time() {
        let name = "a".repeat(5_000);
        assert!(Glob::new(&"a*".repeat(200)).unwrap().matches(&name));
        assert!(!Glob::new(&("a*".repeat(200) + "b")).unwrap().matches(&name));
    }

    #[test]
    fn a_template_takes_the_captures_in_order() {
        assert_eq!(fill("model.layers.*.?", &["3".into(), "q".into()]), "model.layers.3.q");
        assert_eq!(fill("plain", &["3".into()]), "plain");
    }
}
