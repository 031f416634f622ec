use super::{rename::fill, *};
use crate::float::BF16;

fn unmatched(layouts: &Layouts, taps: &[&str]) -> Vec<String> {
    layouts.unmatched(&taps.iter().map(|tap| (*tap).to_owned()).collect::<Vec<_>>())
}

#[test]
fn the_first_match_wins() {
    let layouts = Layouts::parse(
        r#"
        [[tap]]
        match = "*.qkv"
        placement = "S(1,sections=[16, 4, 4])"
        rows = "num_tokens"
        precision = "bf16"
        [[tap]]
        match = "*"
        placement = "R"
        rows = 5
        [rename]
        "model.decoder.*" = "model.layers.*"
        "#,
    )
    .unwrap();
    let qkv = layouts.of("layers.0.qkv").unwrap();
    assert_eq!(layouts.placement("layers.0.qkv").unwrap().to_string(), "S(1, sections=[16,4,4])");
    assert_eq!(qkv.rows, Some(Rows::Tap("num_tokens".into())));
    assert_eq!(qkv.precision, Some(BF16));
    assert_eq!(layouts.of("x").unwrap().rows, Some(Rows::Number(5)));
    assert_eq!(layouts.renamed("model.decoder.3.q"), "model.layers.3.q");
    assert_eq!(layouts.renamed("other"), "other");
    assert_eq!(unmatched(&layouts, &["layers.0.qkv", "x"]), [""; 0]);
    assert_eq!(unmatched(&layouts, &["layers.0.q", "x"]), [r#"match "*.qkv""#]);
    assert_eq!(unmatched(&layouts, &[]), [r#"match "*.qkv""#, r#"match "*""#]);
}

#[test]
fn a_template_takes_the_captures_in_order() {
    assert_eq!(fill("model.layers.*.?", &["3", "q"]), "model.layers.3.q");
    assert_eq!(fill("plain", &["3"]), "plain");
    assert_eq!(fill("*.*", &["3"]), "3.");
}

#[track_caller]
fn check_error(text: &str, line: usize, reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l.toml");
    std::fs::write(&path, text).unwrap();
    let error = Layouts::read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}:{line}: {reason}", path.display()));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    check_error(
        "[[tap]]\nmatch = \"*\"\nplacement = \"S(x)\"\n",
        3,
        "placement \"S(x)\", column 2: expected a number",
    );
    check_error(
        "[[tap]]\nmatch = \"*\"\nrows = -1\n",
        3,
        "rows: expected a number of at least 0 or a tap name, found -1",
    );
    check_error(
        "[[tap]]\nmatch = \"*\"\nprecision = \"int4\"\n",
        3,
        "precision: expected fp64, fp32, fp16, bf16, e4m3 or e5m2, found \"int4\"",
    );
    check_error(
        "[[tap]]\nmatch = \"*\"\nplacement = \"R\"\npadded = true\n",
        4,
        "padded: expected a placement such as S(0), without a size, beside it",
    );
    check_error(
        "[[tap]]\nmatch = \"*\"\nplacement = \"S(0)\"\nfirst_section = [\"q\"]\n",
        4,
        "first_section: expected a placement such as S(0, sections=3) beside it",
    );
    check_error(
        "[[tap]]\nmatch = \"*\"\nscores = \"q\"\nside = \"reference\"\n",
        4,
        "side: expected match and transforms beside it, found keys that hold for both sides",
    );
    check_error(
        "[[tap]]\nmatch = \"{a\"\n",
        2,
        "match \"{a\", column 2: expected \",\" or \"}\", found the end",
    );
    check_error("[rename]\n\"a,b\" = \"c\"\n", 2, "rename \"a,b\", column 1: expected the end, found \",\"");
}

#[test]
fn names_of_taps_take_what_the_match_did() {
    let layouts = Layouts::parse(
        r#"
        [[tap]]
        match = "layers.*.scale"
        side = "candidate"
        transforms = ["unswizzle(128x4)", "crop(0, 130)"]
        [[tap]]
        match = "*.{q,k}.scale, layers.*.scale"
        placement = "scale_of(layers.*.weight, block=[1,16])"
        transforms = ["transpose(0, 1)"]
        [[tap]]
        match = "layers.*.weight"
        transforms = ["dequant(nvfp4, scale=layers.*.scale, global=1/layers.*.global)"]
        [[tap]]
        match = "*.topk_ids"
        scores = "*.gate"
        "#,
    )
    .unwrap();
    let transforms = |tap, side| {
        layouts.transforms(tap, side).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let dequant = "dequant(nvfp4, scale=layers.3.mlp.scale, global=1/layers.3.mlp.global)";
    assert_eq!(transforms("layers.3.mlp.weight", Some(Side::Reference)), dequant);
    assert_eq!(transforms("layers.3.scale", Some(Side::Candidate)), "unswizzle(128x4); crop(0, 130)");
    for side in [Some(Side::Reference), None] {
        assert_eq!(transforms("layers.3.scale", side), "transpose(0, 1)");
    }
    assert_eq!(transforms("other", None), "");
    assert_eq!(layouts.scores("layers.3.topk_ids").as_deref(), Some("layers.3.gate"));
    let placement = layouts.placement("layers.3.scale").unwrap().to_string();
    assert_eq!(placement, "scale_of(layers.3.weight, block=[1,16])");
}

#[test]
fn every_example_of_the_page_is_a_layouts_file() {
    let page = include_str!("../../../../docs/layouts.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 17);
    for example in examples {
        let layouts = Layouts::parse(example).unwrap();
        let tables = layouts.taps.len() + layouts.renames.len() + layouts.joins.len() + layouts.align.len();
        assert!(tables > 0, "{example}");
    }
}

#[test]
fn several_files_speak_in_order() {
    let vllm = Layouts::read(Path::new("vllm")).unwrap();
    let own = Layouts::parse("[[tap]]\nmatch = \"*.qkv_proj, no.such\"\nplacement = \"S(0)\"\n").unwrap();
    let both = own.before(vllm);
    let placement = |tap| both.placement(tap).unwrap().to_string();
    assert_eq!(placement("layers.0.attn.qkv_proj"), "S(0)");
    assert_eq!(placement("layers.0.attn.qkv_proj.0"), "S(-1, sections=3)");
    assert_eq!(
        both.first_section("layers.0.attn.qkv_proj.0"),
        ["layers.0.attn.attn.in.0", "layers.0.attn.o_proj.in.0"]
    );
    // Of what comes with the package nobody asked for every table.
    assert_eq!(both.unmatched(&["x".to_owned()]), ["match \"*.qkv_proj, no.such\""]);
}

#[test]
fn ready_made_layouts_parse_and_know_parameters_by_both_names() {
    for (name, text) in READY_MADE {
        assert!(!Layouts::of_text(Path::new(name), text).unwrap().taps.is_empty(), "{name}");
    }
    let layouts = Layouts::read(Path::new("hf")).unwrap();
    for tap in ["m.0.o_proj.weight", "m.0.o_proj.param.weight"] {
        assert_eq!(layouts.placement(tap).unwrap().to_string(), "S(1)");
    }
}

#[test]
fn norms_over_heads_are_left_to_the_shapes() {
    for name in ["vllm", "hf"] {
        let layouts = Layouts::read(Path::new(name)).unwrap();
        let said = |tap: &str| layouts.placement(tap).map(|p| p.to_string());
        assert_eq!(said("model.layers.0.self_attn.q_norm"), None, "{name}");
        assert_eq!(said("model.layers.0.self_attn.k_norm.param.weight").as_deref(), Some("R"), "{name}");
        assert_eq!(said("model.layers.0.input_layernorm").as_deref(), Some("R"), "{name}");
    }
}

#[test]
fn a_missing_file_is_said_so() {
    let error = Layouts::read(Path::new("no/such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read layouts file: No such file"), "{error}");
    assert!(error.ends_with(": no/such.toml"), "{error}");
}

#[test]
fn parts_are_told_by_what_the_wildcards_stand_for() {
    let text =
        "[[join]]\nof = [\"*.q\", \"*.k\"]\ninto = \"*.qk\"\ndim = -1\n[align]\nby = \"ids, positions\"\n";
    let layouts = Layouts::parse(text).unwrap();
    let [join] = layouts.joins() else { panic!("expected one join") };
    assert_eq!((join.len(), join.dim), (2, -1));
    assert_eq!(join.part("layers.3.k"), Some((1, vec!["layers.3"])));
    assert_eq!(join.part("layers.3.v"), None);
    assert_eq!((join.whole(&["layers.3"]), join.name(0, &["x"])), ("layers.3.qk".into(), "x.q".into()));
    assert_eq!(layouts.align(), ["ids", "positions"]);
    assert_eq!(unmatched(&layouts, &["a.k"]), [""; 0]);
    assert_eq!(unmatched(&layouts, &["a"]), ["join of *.q, *.k into *.qk"]);
}

#[test]
fn numbered_parts_are_counted_on() {
    let text = "[[join]]\nof = [\"*.#.gate\", \"*.#.up\"]\ninto = \"*.both\"\ndim = 0\n";
    let layouts = Layouts::parse(text).unwrap();
    let [join] = layouts.joins() else { panic!("expected one join") };
    assert_eq!((join.len(), join.stacked()), (2, Some(2)));
    assert_eq!(join.part("mlp.0.up"), Some((1, vec!["mlp"])));
    assert_eq!(join.part("layers.3.mlp.12.gate"), Some((24, vec!["layers.3.mlp"])));
    assert_eq!(join.name(25, &["mlp"]), "mlp.12.up");
    for other in ["mlp.x.up", "mlp.01.up", "mlp..up", "mlp.65536.up", "mlp.up"] {
        assert_eq!(join.part(other), None, "{other}");
    }
}

#[test]
fn joins_and_alignments_that_cannot_be_are_refused() {
    let join = |of: &str, into: &str, dim: &str| format!("[[join]]\nof = {of}\ninto = {into}\ndim = {dim}\n");
    let good = join(r#"["*.q", "*.k"]"#, r#""*.qk""#, "1");
    for (of, into, dim, line, reason) in [
        (r#"["*.q"]"#, r#""*.qk""#, "1", 2, "of: expected two taps or more, found 1"),
        (
            r#"["*.q", "k"]"#,
            r#""*.qk""#,
            "1",
            2,
            r#"of: expected as many wildcards as into has, 1, found 0 in "k""#,
        ),
        (r#"["*.q", "*.q"]"#, r#""*.qk""#, "1", 2, r#"of: expected each tap once, found "*.q" again"#),
        (
            r#"["*.qk", "*.k"]"#,
            r#""*.qk""#,
            "1",
            2,
            r#"of: expected taps as recorded, found "*.qk", which is joined"#,
        ),
        (
            r#"["a", "b"]"#,
            r#""{a,b}""#,
            "1",
            3,
            r#"into: expected a tap name, perhaps with * and ?, found "{a,b}""#,
        ),
        (r##"["*.#.q"]"##, r#""*.qk""#, "1", 4, "dim: expected 0, as # stacks along a dim in front, found 1"),
        (
            r##"["*.#.q", "*.k"]"##,
            r#""*.qk""#,
            "0",
            2,
            r#"of: expected one # in every part or in none, found 0 in "*.k""#,
        ),
        (
            r##"["*.#.q"]"##,
            r##""*.#.qk""##,
            "0",
            3,
            r##"into: expected # in the parts only, found "*.#.qk""##,
        ),
        (r#"["a", "b"]"#, r#""""#, "1", 3, r#"into: expected a tap name, perhaps with * and ?, found """#),
        (
            r#"["a", "b"]"#,
            r#""ab""#,
            "9999999999",
            4,
            "dim: expected a dim such as 1 or -1, found 9999999999",
        ),
    ] {
        check_error(&join(of, into, dim), line, reason);
    }
    check_error(&format!("{good}{good}"), 7, r#"into: expected each tap once, found "*.qk" again"#);
    check_error(
        "[align]\nby = \"ids,\"\n",
        2,
        r#"by: expected different tap names with commas between, found """#,
    );
    check_error(
        "[align]\nby = \"*\"\n",
        2,
        r#"by: expected different tap names with commas between, found "*""#,
    );
}
