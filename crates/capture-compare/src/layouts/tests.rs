use super::{rename::fill, *};
use crate::float::BF16;

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
    assert_eq!(layouts.unmatched(["layers.0.qkv", "x"]), [""; 0]);
    assert_eq!(layouts.unmatched(["layers.0.q", "x"]), ["*.qkv"]);
    assert_eq!(layouts.unmatched([]), ["*.qkv", "*"]);
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
    check_error("\n[[join]]\nof = [\"q\"]\n", 2, "[[join]] is not supported yet; [[tap]] and [rename] are");
    check_error("[align]\nby = \"ids\"\n", 1, "[align] is not supported yet; [[tap]] and [rename] are");
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
    let placement = layouts.placement("layers.3.scale").unwrap().to_string();
    assert_eq!(placement, "scale_of(layers.3.weight, block=[1,16])");
}

#[test]
fn every_example_of_the_page_is_a_layouts_file() {
    let page = include_str!("../../../../docs/layouts.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 10);
    for example in examples {
        let layouts = Layouts::parse(example).unwrap();
        assert!(!layouts.taps.is_empty() || !layouts.renames.is_empty(), "{example}");
    }
}

#[test]
fn a_missing_file_is_said_so() {
    let error = Layouts::read(Path::new("no/such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read layouts file: No such file"), "{error}");
    assert!(error.ends_with(": no/such.toml"), "{error}");
}
