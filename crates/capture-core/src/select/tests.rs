use super::*;
use proptest::prelude::*;
use safetensors::Dtype;

const FIVE_ROWS: Subject<'_> = Subject { dtype: Some(Dtype::BF16), shape: &[5, 128], call: 0, rank: Some(3) };

fn capture(rule: usize, mode: Mode) -> Decision {
    Decision::Capture { rule, mode, head: None }
}

/// Decides on `subject` at a new tap `t`.
#[track_caller]
fn check(selection: &str, subject: Subject<'_>, decision: Decision) {
    let selection: Selection = selection.parse().unwrap();
    assert_eq!(Plan::new(&selection, "t").decide(&selection, &subject), decision, "{selection}");
}

/// Whether the condition holds for `subject`; a second rule catches what falls through.
#[track_caller]
fn check_condition(condition: &str, subject: Subject<'_>, holds: bool) {
    let decision = if holds { capture(0, Mode::Full) } else { capture(1, Mode::Hash) };
    check(&format!("*[{condition}], *=hash"), subject, decision);
}

#[track_caller]
fn check_error(text: &str, column: usize, expected: &str, found: &str) {
    let error = text.parse::<Selection>().unwrap_err();
    assert_eq!((error.column, error.expected, error.found.as_str()), (column, expected, found), "{text}");
}

#[test]
fn the_first_rule_that_applies_decides() {
    let text = "model.layers.{0..3}.self_attn.*[dim0=5,limit=1], *.mlp.*[every=100]=stats, *=hash";
    let selection: Selection = text.parse().unwrap();
    let texts: Vec<&str> = selection.rules().iter().map(Rule::text).collect();
    assert_eq!(
        texts,
        ["model.layers.{0..3}.self_attn.*[dim0=5,limit=1]", "*.mlp.*[every=100]=stats", "*=hash"]
    );
    let one_row = Subject { shape: &[1, 128], ..FIVE_ROWS };

    let attention = Plan::new(&selection, "model.layers.3.self_attn.q");
    assert_eq!(attention.decide(&selection, &one_row), capture(2, Mode::Hash));
    assert_eq!(attention.decide(&selection, &FIVE_ROWS), capture(0, Mode::Full));
    assert_eq!(attention.decide(&selection, &FIVE_ROWS), Decision::Skip, "limit does not fall through");
    assert_eq!(attention.decide(&selection, &one_row), capture(2, Mode::Hash));

    let mlp = Plan::new(&selection, "model.layers.3.mlp.gate");
    let taken: Vec<usize> =
        (0..250).filter(|_| mlp.decide(&selection, &FIVE_ROWS) == capture(1, Mode::Stats)).collect();
    assert_eq!(taken, [0, 100, 200]);

    let later = Plan::new(&selection, "model.layers.4.self_attn.q");
    assert_eq!(later.decide(&selection, &FIVE_ROWS), capture(2, Mode::Hash));
}

#[test]
fn no_match_and_mode_off_are_skipped() {
    check("x", FIVE_ROWS, Decision::Skip);
    check("t=off, *", FIVE_ROWS, Decision::Skip);
    check("t[dim0=4]=off, *", FIVE_ROWS, capture(1, Mode::Full));
    check("t[dim0=4]", FIVE_ROWS, Decision::Skip);
    assert!(Plan::new(&"x".parse().unwrap(), "t").is_empty());
    assert!(!Plan::new(&Selection::everything(), "t").is_empty());
}

#[test]
fn conditions_on_the_tensor_fall_through() {
    for (condition, holds) in [
        ("dim0=5", true),
        ("dim0=4", false),
        ("dim0=2..5", true),
        ("dim0=2..4", false),
        ("dim0<6", true),
        ("dim0<5", false),
        ("dim-1=128", true),
        ("dim-2=128", false),
        ("dim-3=5", false),
        ("dim2=0..1e9", false),
        ("ndim=2", true),
        ("ndim=3", false),
        ("numel<641", true),
        ("numel<640", false),
        ("numel<=640", true),
        ("numel>=640", true),
        ("numel>640", false),
        ("numel=640", true),
        ("numel<1e6", true),
        ("numel > 1e2 , numel < 1E3", true),
        ("numel>1e2,numel<2e2", false),
        ("call=0", true),
        ("call=0..3", true),
        ("call=1", false),
        ("rank=3", true),
        ("rank=0", false),
        ("dtype=bf16", true),
        ("dtype=BF16", true),
        ("dtype=torch.bfloat16", true),
        ("dtype=f16", false),
        ("dim0=5,dtype=f16", false),
    ] {
        check_condition(condition, FIVE_ROWS, holds);
    }
    let scalar = Subject { shape: &[], ..FIVE_ROWS };
    check_condition("numel=1", scalar, true);
    check_condition("ndim=0", scalar, true);
    check_condition("dim0>=0", scalar, false);
    let huge = Subject { shape: &[u64::MAX, 2], ..FIVE_ROWS };
    check_condition("numel>1e18", huge, true);
}

#[test]
fn what_is_unknown_holds_no_condition() {
    check_condition("rank=0..100", Subject { rank: None, ..FIVE_ROWS }, false);
    check_condition("dtype=f64", Subject { dtype: None, ..FIVE_ROWS }, false);
}

#[test]
fn dtypes_have_the_names_people_write() {
    let all = [
        ("BOOL", Dtype::BOOL),
        ("u8", Dtype::U8),
        ("int8", Dtype::I8),
        ("uint16", Dtype::U16),
        ("I16", Dtype::I16),
        ("u32", Dtype::U32),
        ("int32", Dtype::I32),
        ("uint64", Dtype::U64),
        ("i64", Dtype::I64),
        ("half", Dtype::F16),
        ("fp16", Dtype::F16),
        ("float32", Dtype::F32),
        ("double", Dtype::F64),
        ("complex64", Dtype::C64),
        ("f8_e4m3", Dtype::F8_E4M3),
        ("float8_e4m3fn", Dtype::F8_E4M3),
        ("fp8_e5m2", Dtype::F8_E5M2),
        ("F8_E4M3FNUZ", Dtype::F8_E4M3FNUZ),
        ("float8_e5m2fnuz", Dtype::F8_E5M2FNUZ),
        ("float8_e8m0fnu", Dtype::F8_E8M0),
        ("F6_E2M3", Dtype::F6_E2M3),
        ("F6_E3M2", Dtype::F6_E3M2),
        ("float4_e2m1fn_x2", Dtype::F4),
    ];
    for (name, dtype) in all {
        check_condition(&format!("dtype={name}"), Subject { dtype: Some(dtype), ..FIVE_ROWS }, true);
        check_condition(&format!("dtype={name}"), FIVE_ROWS, false);
    }
}

#[test]
fn every_and_limit_count_what_the_rule_matched() {
    let selection: Selection = "*[dim0=5,every=3,limit=2,head=2]=stats".parse().unwrap();
    let plan = Plan::new(&selection, "t");
    let other = Subject { shape: &[6], ..FIVE_ROWS };
    let taken: Vec<usize> = (0..20)
        .filter(|i| {
            // Every second call does not match and is not counted.
            let subject = if i % 2 == 0 { &FIVE_ROWS } else { &other };
            match plan.decide(&selection, subject) {
                Decision::Skip => false,
                found => {
                    assert_eq!(found, Decision::Capture { rule: 0, mode: Mode::Stats, head: Some(2) });
                    true
                }
            }
        })
        .collect();
    assert_eq!(taken, [0, 6]);
    assert_ne!(Plan::new(&selection, "u").decide(&selection, &FIVE_ROWS), Decision::Skip, "taps count alone");
}

#[test]
fn threads_never_take_more_than_the_limit() {
    let selection: Selection = "*[limit=100]".parse().unwrap();
    let plan = Plan::new(&selection, "t");
    let take = || (0..1000).filter(|_| plan.decide(&selection, &FIVE_ROWS) != Decision::Skip).count();
    let total: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(total, 100);
}

#[test]
fn spaces_and_line_ends_are_free() {
    let text = "\n  t [ dim0 = 5 , dtype = bf16 ] = STATS ,\n\t* = off\n";
    check(text, FIVE_ROWS, capture(0, Mode::Stats));
    assert_eq!(text.parse::<Selection>().unwrap().to_string(), text);
}

#[test]
fn errors_point_at_the_column() {
    const GLOB: &str = "a tap name or a pattern such as model.layers.*";
    const NAMES: &str = "dimN, ndim, dtype, numel, call, rank, every, limit or head";
    const NUMBER: &str = "a whole number of at most 64 bits";
    check_error("", 0, GLOB, "the end");
    check_error("a,", 2, GLOB, "the end");
    check_error("a, =off", 3, GLOB, "\"=\"");
    check_error("[dim0=5]", 0, GLOB, "\"[\"");
    check_error("a[]", 2, NAMES, "\"]\"");
    check_error("a[dim0=5,]", 9, NAMES, "\"]\"");
    check_error("a[dims=5]", 2, NAMES, "\"dims\"");
    check_error("a[dim00=5]", 2, NAMES, "\"dim00\"");
    check_error("a[dim0]", 6, "=, <, <=, > or >=", "\"]\"");
    check_error("a[dim0=x]", 7, NUMBER, "\"x\"");
    check_error("a[dim0=-1]", 7, NUMBER, "\"-1\"");
    check_error("a[numel<2e19]", 8, NUMBER, "\"2e19\"");
    check_error("a[numel<1M]", 9, "\",\" or \"]\"", "\"M\"");
    check_error("a[numel<0]", 8, "a number of at least 1", "\"0\"");
    check_error("a[dim0=8..2]", 10, "a range's last number not below its first", "\"2\"");
    check_error("a[every=0]", 8, "a number of at least 1", "\"0\"");
    check_error("a[limit<3]", 7, "\"=\"", "\"<\"");
    check_error("a[dim0=5,dim0=6]", 9, "each condition once", "\"dim0\"");
    check_error("a[numel<5,numel<=6]", 10, "each condition once", "\"numel\"");
    check_error("a[limit=5,limit=5]", 10, "each condition once", "\"limit\"");
    check_error("a[dim0=5", 8, "\",\" or \"]\"", "the end");
    check_error("a[dim0=5] b", 10, "\"=\", \",\" or the end", "\"b\"");
    check_error("a=stat", 2, "full, stats, hash, trace or off", "\"stat\"");
    check_error("a=", 2, "full, stats, hash, trace or off", "the end");
    check_error("a=full x", 7, "\",\" or the end", "\"x\"");
    check_error(
        "é, é[dtype=bf17]",
        13,
        "a dtype such as bf16, f16, f32, f8_e4m3, f8_e5m2, i64, u8 or bool",
        "\"bf17\"",
    );
}

#[test]
fn an_error_reads_as_a_sentence_and_as_a_picture() {
    let error = "é=full, b=fast".parse::<Selection>().unwrap_err();
    let sentence =
        "selection \"é=full, b=fast\", column 11: expected full, stats, hash, trace or off, found \"fast\"";
    assert_eq!(error.to_string(), sentence);
    assert_eq!(error.pointer(), "é=full, b=fast\n          ^");
}

#[test]
fn every_example_of_the_documentation_parses() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/selection.md");
    let page = std::fs::read_to_string(page).unwrap();
    // Odd parts lie between fences; those that say what they are (```text) are no selections.
    let examples: Vec<&str> =
        page.split("```").skip(1).step_by(2).filter_map(|part| part.strip_prefix('\n')).collect();
    assert_eq!(examples.len(), 5);
    for example in examples {
        assert!(example.parse::<Selection>().is_ok(), "{example}");
    }
}

#[test]
fn the_error_of_the_documentation_is_the_real_one() {
    let error = "*.q[dim0=5,dtype=bf17]".parse::<Selection>().unwrap_err();
    assert_eq!((error.column, error.found.as_str()), (17, "\"bf17\""));
}

/// Text that is nearly a selection, so that much of it parses.
fn near_selections() -> impl Strategy<Value = String> {
    r"((a|\*|\?|\{0\.\.3\}|\{a,b\}|\[dim0=5\]|\[every=2,limit=1\]|\[numel<1e6|=hash|=off|,| |é|\[|\]|\{|\}|=|[0-9]|\.\.){0,12})"
}

proptest! {
    #[test]
    fn parsing_never_panics_and_prints_what_was_read(text in near_selections()) {
        match text.parse::<Selection>() {
            Ok(selection) => {
                prop_assert_eq!(selection.to_string(), text);
                for rule in selection.rules() {
                    let again: Selection = rule.text().parse().unwrap();
                    prop_assert_eq!(again.rules().len(), 1);
                    prop_assert_eq!(again.rules()[0].text(), rule.text());
                }
            }
            Err(error) => {
                prop_assert!(text.is_char_boundary(error.column));
                let _ = error.pointer();
            }
        }
    }

    #[test]
    fn no_text_at_all_makes_it_panic(text in r"\PC{0,40}") {
        if let Err(error) = text.parse::<Selection>() {
            prop_assert!(text.is_char_boundary(error.column));
        }
    }
}
