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
    parts.iter().flat_map(|p| expand(&format!("{}{p}{}", &pattern[..open], &pattern[close + 1..]))).collect()
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
