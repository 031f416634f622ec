//! `tpcapture compare`: what it prints, and its exit statuses.

#![expect(clippy::unwrap_used, reason = "a test")]

mod sample;

use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter};
use sample::{Done, Sample, tpcapture};
use serde_json::{Value, json};
use std::{fs, path::Path};

#[track_caller]
fn check(done: &Done, status: i32, stdout: &str, stderr: &str) {
    assert_eq!((done.stdout.as_str(), done.stderr.as_str(), done.status), (stdout, stderr, status));
}

#[track_caller]
fn json(done: &Done, status: i32) -> Value {
    assert_eq!((done.status, done.stderr.as_str()), (status, ""));
    serde_json::from_str(&done.stdout).unwrap()
}

/// A copy of the sample's run, as `name`.
fn copy(sample: &Sample, name: &str) -> std::path::PathBuf {
    let to = sample.dir.path().join(name);
    fs::create_dir(&to).unwrap();
    for file in fs::read_dir(sample.run()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    to
}

/// The file of rank 0, which is sealed.
fn sealed(run: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(run).unwrap().map(|f| f.unwrap().path());
    files.into_iter().find(|f| f.extension().is_some_and(|e| e == "safetensors")).unwrap()
}

/// Writes bytes over the start of a tensor of rank 0.
fn overwrite(run: &Path, tensor: &str, with: &[u8]) {
    let file = sealed(run);
    let mut bytes = fs::read(&file).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let offset = json[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[8 + header + offset..][..with.len()].copy_from_slice(with);
    fs::write(&file, bytes).unwrap();
}

#[test]
fn one_run_is_compared_across_its_ranks() {
    let sample = Sample::new();
    let text = "\
replicas equal: 3 rows; 5 rows cannot be checked without a reference run
layers.0.out, step 0: the first NaN: rank 0, at [0]
rank 1 did not end: still running, or killed

verdict    tap           step  call  units  rel L2  max abs  ranks  placement
-          layers.0.q       0     0                                 S(1)
IDENTICAL  layers.0.out     0     0                                 R
-          layers.0.q       1     0                                 S(1)
IDENTICAL  layers.0.out     1     0      0       0        0         R
-          ids              1     0
-          ids              1     1
-          layers.0.q       2     0                                 S(1)
IDENTICAL  layers.0.out     2     0      0       0        0         R

layers.0.q, steps 0-2: slices join to [2, 8]
layers.0.out, steps 0-2: 1 place NaN on both sides
ids, step 1: equal on all ranks
ids, step 1, call 1: equal on all ranks
";
    check(&sample.command("compare", &[]), 0, text, "");
    assert_eq!(sample.command("compare", &["--fail-on-nan"]).status, 1);
}

#[test]
fn a_difference_is_found_with_its_rank_and_place() {
    let sample = Sample::new();
    let other = copy(&sample, "b");
    let other = other.to_str().unwrap();
    let same = json(&sample.command("compare", &[other, "--json"]), 0);
    assert_eq!((&same["verdict"], &same["first_divergence"]), (&json!("IDENTICAL"), &Value::Null));
    assert_eq!(same["runs"], json!(["r", "b"]));

    // Element [0, 1] of rank 0's slice was 1.0 and becomes 8.0.
    overwrite(Path::new(other), "step1/layers.0.q", &[0, 0, 0x00, 0x41]);
    let found = json(&sample.command("compare", &[other, "--json"]), 1);
    let first = json!({"tap": "layers.0.q", "step": 1, "call": 0, "ranks": [0]});
    assert_eq!((&found["verdict"], &found["first_divergence"]), (&json!("DIFFERENT"), &first));
    let row = &found["rows"][2];
    let worst = json!({"index": [0, 1], "reference": 1.0, "candidate": 8.0, "rank": 0});
    assert_eq!((&row["worst"], &row["max_abs"], &row["n"]), (&worst, &json!(7.0), &json!(16)));
    assert_eq!((&row["placement"], &row["placement_from"]), (&json!("S(1)"), &json!("capture")));
    let text = sample.command("compare", &[other]);
    let headline = "\
DIFFERENT, first at layers.0.q, step 1, rank 0 (direct row: 5.07 times its limit)
at [0, 1]: reference 1, candidate 8
7 IDENTICAL, 1 DIFFERENT
";
    assert!(text.stdout.starts_with(headline), "{}", text.stdout);
}

/// Of one run there is no reference, and no candidate.
#[test]
fn replicas_that_differ_are_told_by_their_rank() {
    let sample = Sample::new();
    // NaN, as it was, and 8 for 0.5.
    overwrite(&sample.run(), "step1/layers.0.out", &[0, 0, 0xc0, 0x7f, 0, 0, 0x00, 0x41]);
    let done = sample.command("compare", &[]);
    let headline = "\
DIFFERENT, first at layers.0.out, step 1, rank 1
at [1]: rank 1 holds 0.5, the replica beside it 8
";
    assert!(done.stdout.starts_with(headline), "{}", done.stdout);
}

#[test]
fn what_cannot_be_done_is_2_and_a_difference_outweighs_it() {
    let sample = Sample::new();
    let other = copy(&sample, "b");
    let torn = "rank5.pid9-0badcafe.000000.safetensors";
    fs::write(other.join(torn), [1, 2, 3]).unwrap();
    let path = other.to_str().unwrap().to_owned();
    let done = sample.command("compare", &[&path]);
    assert_eq!(done.status, 2);
    assert!(done.stderr.contains(torn), "{}", done.stderr);
    let found: Value = serde_json::from_str(&sample.command("compare", &[&path, "--json"]).stdout).unwrap();
    assert_eq!(found["errors"].as_array().unwrap().len(), 1);
    overwrite(&other, "step1/layers.0.q", &[0, 0, 0x00, 0x41]);
    assert_eq!(sample.command("compare", &[&path]).status, 1);

    let beside = sample.dir.path().join("nope");
    let done = sample.command("compare", &[beside.to_str().unwrap()]);
    check(&done, 2, "", "tpcapture: no such run; there are b, r: nope\n");
    let missing = tpcapture(["compare", "no/such/run"]);
    check(&missing, 2, "", "tpcapture: No such file or directory (os error 2): no/such/run\n");
}

#[test]
fn a_layouts_file_that_is_none_is_said_with_its_line() {
    let sample = Sample::new();
    let layouts = sample.dir.path().join("layouts.toml");
    fs::write(&layouts, "[[tap]]\nmatch = \"*.q\"\nplacement = \"S(q)\"\n").unwrap();
    let layouts = layouts.to_str().unwrap().to_owned();
    let done = sample.command("compare", &["--layouts", &layouts]);
    check(&done, 2, "", "tpcapture: layouts.toml:3: placement \"S(q)\", column 2: expected a number\n");

    fs::write(&layouts, "[[tap]]\nmatch = \"idx\"\nplacement = \"R\"\n").unwrap();
    let done = sample.command("compare", &["--layouts", &layouts]);
    let note = "tpcapture: layouts.toml: match \"idx\" fits no tap\n";
    assert_eq!((done.stderr.as_str(), done.status), (note, 0), "{}", done.stdout);

    fs::write(&layouts, "[[tap]]\nmatch = \"ids\"\nplacement = \"S(0, size=5)\"\n").unwrap();
    let done = sample.command("compare", &["--layouts", &layouts]);
    assert_eq!(done.status, 1);
    let headline = "LAYOUT, first at ids, step 1, ranks 0-1\n3 IDENTICAL, 2 LAYOUT, 3 not checked\n";
    assert!(done.stdout.starts_with(headline), "{}", done.stdout);
    let note = "ids, step 1, call 1: dim 0: expected 5, the slices add up to 4\n";
    assert!(done.stdout.contains(note), "{}", done.stdout);
}

/// Most of what comes with the package fits no tap of a model; nothing of it does where taps have names of their own.
#[test]
fn ready_made_layouts_that_fit_no_tap_say_so() {
    let sample = Sample::new();
    let done = sample.command("compare", &["--layouts", "hf"]);
    let fits_none = "\
tpcapture: --layouts hf: fits no tap; taps are to have the names of modules, as in docs/layouts.md
";
    assert_eq!((done.stderr.as_str(), done.status), (fits_none, 0));
}

#[test]
fn a_placement_that_nobody_gave_is_marked() {
    let sample = Sample::new();
    let done = sample.command("compare", &[sample.run().to_str().unwrap()]);
    let ids = "IDENTICAL  ids              1     0              0        0         R?\n";
    let said = "IDENTICAL  layers.0.out     2     0      0       0        0         R\n";
    assert!(done.stdout.contains(ids) && done.stdout.contains(said), "{}", done.stdout);
    assert!(
        done.stdout.contains("\n?: no placement was given, and this one fits the shapes\n"),
        "{}",
        done.stdout
    );
}

#[test]
fn nothing_compared_is_not_the_same() {
    let sample = Sample::new();
    let run = copy(&sample, "alone");
    for file in fs::read_dir(&run).unwrap().map(|f| f.unwrap().path()) {
        if file.file_name().unwrap().to_str().unwrap().starts_with("rank1.") {
            fs::remove_file(file).unwrap();
        }
    }
    // Alone, rank 0 would lack the other half of `layers.0.q`.
    let layouts = sample.dir.path().join("layouts.toml");
    fs::write(&layouts, "[[tap]]\nmatch = \"*\"\nplacement = \"R/dp\"\n").unwrap();
    let done = sample.command_on(&run, "compare", &["--layouts", layouts.to_str().unwrap()]);
    let why = "tpcapture: nothing was compared: the run has one rank; give a second run\n";
    assert_eq!((done.stderr.as_str(), done.status), (why, 2), "{}", done.stdout);
    assert!(
        done.stdout.starts_with("nothing was compared\nlayers.0.out, step 0: the first NaN"),
        "{}",
        done.stdout
    );
    let json = sample.command_on(&run, "compare", &["--layouts", layouts.to_str().unwrap(), "--json"]);
    assert_eq!((json.status, json.stderr.as_str()), (2, ""));
}

/// A run of one rank, 100 steps of `t`, whose value at step `odd` is another.
fn hundred(dir: &Path, name: &str, odd: u64) {
    let mesh = Mesh::from_sizes("tp=1", 0).unwrap();
    let process = "7-0badcafe".to_owned();
    let identity = Identity { run: name.into(), rank: Some(0), world: Some(1), mesh, process };
    let mut writer = SegmentWriter::new(RunDir::create(dir, name).unwrap(), identity);
    for step in 0..100 {
        let value = if step == odd { 7u8 } else { 1 };
        let record = Record { tap: "t".into(), step, seq: step, ..sample::blank() };
        writer.begin(&record, Dtype::U8, &[1], 1).unwrap();
        writer.append(&[value]).unwrap();
        writer.finish().unwrap();
    }
    writer.seal().unwrap();
}

#[test]
fn rows_are_printed_around_the_first_divergence() {
    let dir = tempfile::tempdir().unwrap();
    for (name, odd) in [("a", 100), ("b", 50), ("c", 98)] {
        hundred(dir.path(), name, odd);
    }
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    // The steps in the table, and what stands below it.
    let steps = |b: &str, more: &[&str]| {
        let done = tpcapture([&["compare", &at("a"), &at(b)], more].concat());
        let text = done.stdout;
        let table = text.lines().skip_while(|l| !l.starts_with("verdict")).skip(1);
        let rows: Vec<_> = table.clone().take_while(|l| l.contains("  t ")).collect();
        let step = |row: &str| row.split_whitespace().nth(2).unwrap().to_owned();
        let rest = table.skip(rows.len()).collect::<Vec<_>>().join("|");
        (step(rows[0]), step(rows[rows.len() - 1]), rest, done.status)
    };
    let expect =
        |first: &str, last: &str, rest: &str, status| (first.into(), last.into(), rest.into(), status);
    assert_eq!(steps("b", &[]), expect("42", "81", "… 60 more rows, 42 of them before: --all", 1));
    assert_eq!(steps("c", &[]), expect("60", "99", "… 60 more rows, 60 of them before: --all", 1));
    assert_eq!(steps("a", &[]), expect("0", "39", "… 60 more rows: --all", 0));
    assert_eq!(steps("b", &["--all"]), expect("0", "99", "", 1));
    assert_eq!(steps("b", &["--step", "50-51"]), expect("50", "51", "", 1));
    assert_eq!(steps("b", &["--step", "3", "--tap", "{t,u}"]), expect("3", "3", "", 0));
    let json = tpcapture(["compare", &at("a"), &at("b"), "--json", "--step", "10-70"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 61);
    let none = tpcapture(["compare", &at("a"), &at("b"), "--step", "200"]);
    check(&none, 2, "", "tpcapture: nothing of step 200; there are steps 0-99\n");
    let none = tpcapture(["compare", &at("a"), &at("b"), "--tap", "u"]);
    check(&none, 2, "", "tpcapture: no tap matches \"u\"; there are \"t\"\n");
}

#[test]
fn help_explains_every_verdict() {
    let help = tpcapture(["compare", "--help"]);
    assert_eq!(help.status, 0);
    for word in [
        "IDENTICAL  0",
        "ROUNDING   0",
        "SUSPECT    1",
        "MISSING    1",
        "LAYOUT     1",
        "DIFFERENT  1",
        "units:",
    ] {
        assert!(help.stdout.contains(word), "{word} in {}", help.stdout);
    }
}

#[test]
fn of_a_sum_any_rank_may_be_the_one() {
    let sample = Sample::new();
    let other = copy(&sample, "b");
    overwrite(&other, "step1/ids", &[5]);
    let layouts = sample.dir.path().join("layouts.toml");
    fs::write(&layouts, "[[tap]]\nmatch = \"ids\"\nplacement = \"P\"\n").unwrap();
    let args = [other.to_str().unwrap(), "--layouts", layouts.to_str().unwrap()];
    let done = sample.command("compare", &args);
    let headline = "DIFFERENT, first at ids, step 1, ranks 0-1 (a sum: any of them)\n";
    assert!(done.stdout.starts_with(headline), "{}", done.stdout);
}

/// Under whatever name, it would allow for what is wrong with the run itself.
#[test]
fn a_noise_run_is_none_of_those_compared() {
    let sample = Sample::new();
    let run = sample.run();
    let (candidate, link) = (copy(&sample, "candidate"), sample.dir.path().join("link"));
    std::os::unix::fs::symlink(&candidate, &link).unwrap();
    for (noise, name) in [(&run, "reference"), (&candidate, "candidate"), (&link, "candidate")] {
        let asked = ["compare".as_ref(), run.as_os_str(), candidate.as_os_str()];
        let done = tpcapture(asked.into_iter().chain(["--noise".as_ref(), noise.as_os_str()]));
        let text =
            format!("tpcapture: --noise: expected another run of the reference, found the {name} itself: ");
        assert!(done.stderr.starts_with(&text), "{}", done.stderr);
        assert_eq!((done.status, done.stdout.as_str()), (2, ""));
    }
    let other = copy(&sample, "other");
    let asked = ["compare".as_ref(), run.as_os_str(), candidate.as_os_str()];
    assert_eq!(tpcapture(asked.into_iter().chain(["--noise".as_ref(), other.as_os_str()])).status, 0);
}

#[test]
fn one_directory_twice_is_said_and_no_step_is_no_answer() {
    let sample = Sample::new();
    let run = sample.run();
    let done = tpcapture(["compare".as_ref(), run.as_os_str(), run.as_os_str()]);
    let text = format!("tpcapture: both runs are one directory, read twice: {}\n", run.display());
    assert_eq!((done.status, done.stderr), (0, text));
    let done = sample.command("compare", &["--step", ""]);
    assert_eq!(done.status, 2);
    assert!(done.stderr.contains("expected steps such as 10"), "{}", done.stderr);
}

/// A device without an end, and names that steer the terminal.
#[test]
fn what_is_hostile_is_neither_read_nor_printed() {
    let sample = Sample::new();
    let done = sample.command("compare", &["--layouts", "/dev/zero"]);
    assert_eq!(done.status, 2);
    assert!(
        done.stderr.contains("expected at most 100000000 bytes, found more: /dev/zero"),
        "{}",
        done.stderr
    );
    let layouts = sample.dir.path().join("layouts.toml");
    fs::write(&layouts, "[[tap]]\nmatch = \"a\"\n\"\\u001b[31m\" = 1\n").unwrap();
    let done = sample.command("compare", &["--layouts", layouts.to_str().unwrap()]);
    assert_eq!(done.status, 2);
    assert!(!done.stderr.contains('\u{1b}'), "{}", done.stderr);
    let done = sample.command("compare", &["--layouts", "/none/\u{1b}[31m\u{202e}"]);
    assert!(done.stderr.ends_with("/none/\\u{1b}[31m\\u{202e}\n"), "{}", done.stderr);
}

#[test]
fn a_file_that_cannot_be_read_stands_beside_the_verdict() {
    let sample = Sample::new();
    let torn = copy(&sample, "torn");
    fs::write(sealed(&torn), b"torn").unwrap();
    let done = tpcapture(["compare".as_ref(), sample.run().as_os_str(), torn.as_os_str()]);
    let second = done.stdout.lines().find(|line| line.starts_with("not all could be read: 1 file, "));
    assert!(second.is_some(), "{}", done.stdout);
}
