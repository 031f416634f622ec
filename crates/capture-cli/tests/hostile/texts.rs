//! Texts of what a grammar knows, in an order that mostly makes no sense.

use crate::choices::Choices;

pub(crate) const PLACEMENT: &[&str] = &[
    "S(",
    "0",
    ")",
    "R",
    "P",
    "-1",
    ",",
    "/",
    "tp",
    "ep",
    "1",
    " ",
    "size=",
    "sections=",
    "sections=[",
    "]",
    "interleave=",
    "groups=",
    "2",
    "scale_of(",
    "w",
    "block=[",
    "17592186044417",
    "é",
];
pub(crate) const TRANSFORM: &[&str] = &[
    "crop(",
    "0",
    ",",
    "1",
    ")",
    "transpose(",
    "reshape(",
    "-1",
    "unswizzle(",
    "128x4",
    "dequant(",
    "nvfp4",
    "mxfp8",
    "fp8-block",
    "int4-group",
    "scale=",
    "s",
    "global=",
    "1/",
    "zero=",
    "g_idx=",
    "group=",
    "order=",
    "awq",
    "block=[",
    "]",
    "sort_rows_by(",
    "set_rows",
    " ",
    "18446744073709551616",
    "é",
];
pub(crate) const SELECTION: &[&str] = &[
    "*",
    "a",
    ".",
    "?",
    "{",
    "a,b",
    "..",
    "}",
    "0",
    "3",
    "[",
    "dim0=",
    "numel<",
    "1e6",
    "every=",
    "limit=",
    "ndim=",
    "dtype=",
    "bf16",
    "call=",
    "rank=",
    "head=",
    "]",
    "=",
    "stats",
    "hash",
    ",",
    " ",
    "99999999999",
    "é",
];
pub(crate) const NUMBERS: &[&str] = &[
    "0",
    "-",
    "3",
    ",",
    "/",
    "tp:",
    ";",
    "all",
    "7",
    " ",
    "18446744073709551615",
    "99999999999999999999",
    "é",
];

/// Words of a grammar, now and then any character.
pub(crate) fn of(choices: &mut Choices<'_>, words: &[&str]) -> String {
    let mut text = String::new();
    for _ in 0..choices.below(24) {
        match choices.below(30) {
            0 => text.push(char::from(choices.byte())),
            1 => text += &choices.number().to_string(),
            _ => text += *choices.of(words),
        }
    }
    text
}

/// A placement that parses, mostly.
pub(crate) fn placement(choices: &mut Choices<'_>) -> String {
    let axis = *choices.of(&["0", "1", "-1", "2", "-3"]);
    let n = choices.number();
    let one = match choices.below(12) {
        0 => "R".to_owned(),
        1 => "P".to_owned(),
        2 | 3 => format!("S({axis})"),
        4 => format!("S({axis}, size={n})"),
        5 => format!("S({axis}, sections=[{n},{},{}])", choices.number(), choices.number()),
        6 => format!("S({axis}, sections=[{n},{}/{}])", choices.number(), choices.number()),
        7 => format!("S({axis}, sections={n})"),
        8 => format!("S({axis}, groups={n})"),
        9 => format!("S({axis}, interleave={n})"),
        10 => format!("scale_of(a, block=[{n},{}])", choices.number()),
        _ => return of(choices, PLACEMENT),
    };
    if choices.is(15) { format!("S(0)/ep, {one}") } else { one }
}

fn transform(choices: &mut Choices<'_>) -> String {
    let (m, n) = (choices.number(), choices.number());
    match choices.below(12) {
        0 | 1 => format!("crop(0, {n})"),
        2 => "transpose(0, -1)".to_owned(),
        3 => format!("reshape({m}, -1)"),
        4 => format!("reshape({m}, {n})"),
        5 => "unswizzle(128x4)".to_owned(),
        6 => format!("dequant({}, scale=b)", choices.of(&["nvfp4", "mxfp4", "mxfp8"])),
        7 => format!("dequant(fp8-block, scale=b, block=[{m},{n}])"),
        8 => format!("dequant(int4-group, scale=b, zero=c, g_idx=d, group={m}, order=awq)"),
        9 => format!("dequant(int4-group, scale=b, group={m}, order=gptq)"),
        10 => choices.of(&["set_rows", "sort_rows_by(b)"]).to_string(),
        _ => of(choices, TRANSFORM),
    }
}

/// A layouts file. Values are quoted as Rust quotes, which TOML mostly reads.
pub(crate) fn layouts(choices: &mut Choices<'_>) -> String {
    let mut text = String::new();
    for _ in 0..choices.below(5) {
        text += &match choices.below(10) {
            0..6 => tap(choices),
            6 => {
                let (part, dim) = (choices.of(&["b", "*", "a"]), choices.of(&["0", "-1", "9", "1.5"]));
                format!("[[join]]\nof = [\"a\", {part:?}]\ninto = \"c\"\ndim = {dim}\n")
            }
            7 if !text.contains("[align]") => {
                format!("[align]\nby = {:?}\n", choices.of(&["a", "a, b", "a, a", "*", ""]))
            }
            8 if !text.contains("[rename]") => {
                let (from, to) = (of(choices, SELECTION), choices.of(&["a", "b", "*", "x"]));
                format!("[rename]\n{from:?} = {to:?}\n")
            }
            _ => of(choices, &["[", "]", "tap", "\"", "=", "\n", "1", "match", "'", "{", "}", "#"]),
        };
    }
    text
}

fn tap(choices: &mut Choices<'_>) -> String {
    let mut text = format!("[[tap]]\nmatch = {:?}\n", choices.of(&["a", "*", "b", "{a,b}", "c", "[", ""]));
    if choices.is(70) {
        text += &format!("placement = {:?}\n", placement(choices));
    }
    if choices.is(50) {
        let all: Vec<String> = (0..choices.below(3)).map(|_| transform(choices)).collect();
        text += &format!("transforms = {all:?}\n");
    }
    for (key, values) in [
        ("rows", &["3", "\"c\"", "-1", "99999999999", "\"\""][..]),
        ("precision", &["\"bf16\"", "\"int8\"", "3"]),
        ("padded", &["true", "1"]),
        ("first_section", &["[\"b\"]", "[]", "\"b\""]),
        ("side", &["\"candidate\"", "\"reference\"", "\"x\""]),
    ] {
        if choices.is(15) {
            text += &format!("{key} = {}\n", choices.of(values));
        }
    }
    text
}
