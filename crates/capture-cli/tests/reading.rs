//! The commands that read a run: what they print, and their exit statuses.

#![expect(clippy::unwrap_used, reason = "a test")]

mod sample;

use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter};
use sample::{Done, Sample, tpcapture};
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    process::{Command, Stdio},
};

#[track_caller]
fn check(done: &Done, status: i32, stdout: &str, stderr: &str) {
    assert_eq!((done.stdout.as_str(), done.stderr.as_str(), done.status), (stdout, stderr, status));
}

#[track_caller]
fn json(done: &Done, status: i32) -> Value {
    assert_eq!((done.status, done.stderr.as_str()), (status, ""));
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn ls_lists_taps_in_capture_order() {
    let sample = Sample::new();
    let text = "\
r: 2 processes, 16 records, 208 B
rank 1 did not end: still running, or killed
tap           steps  calls  ranks  dtype  shape   bytes  placement
layers.0.q    0-2        1  0-1    BF16   [2, 4]   96 B  S(1)
layers.0.out  0-2        1  0-1    F32    [1..3]   48 B  R
ids           1          2  0-1    I64    [2]      64 B
";
    check(&sample.command("ls", &[]), 0, text, "");

    let found = json(&sample.command("ls", &["--json"]), 0);
    let ids = json!({"tap": "ids", "steps": [1], "calls": 2, "ranks": [0, 1], "dtypes": ["I64"], "shapes": [[2]],
        "placements": [], "full_rows": null, "records": 4, "bytes": 64, "modes": ["full"]});
    assert_eq!((&found["taps"][2], &found["errors"]), (&ids, &json!([])));
    let rank1 = json!({"rank": 1, "world": 2, "process": "43-0badcafe", "records": 8, "bytes": 104, "state": null,
        "end_reason": null, "lost": null, "refused": null, "losses": [],
        "mesh": {"dims": [{"name": "tp", "coord": 1, "size": 2}], "assumed": false}});
    assert_eq!(found["processes"][1], rank1);
}

#[test]
fn ls_tells_of_losses_and_of_what_was_assumed() {
    let sample = Sample::new();
    let manifest = |rank: u32, pid: u32, state: &str, reason: &str, lost: u64, losses: &str| {
        let text = format!(
            r#"{{"tpcapture":"1","run":"r","rank":{rank},"world":8,"mesh":{{"dims":[{{"name":"tp","coord":{rank},
            "size":8}}],"assumed":true}},"identity_from":"RANK","process":{{"id":"{pid}-0badcafe","pid":{pid},
            "host":"h","program":"p"}},"versions":{{}},"config":{{}},"started_ns":1,"ended_ns":2,"state":"{state}",
            "end_reason":{reason},"counters":{{"records":0,"bytes":0,"segments":0,"lost":{lost},"refused":3}},
            "losses":[{losses}],"rules":[],"last_error":null}}"#
        );
        fs::write(sample.run().join(format!("rank{rank}.tp{rank}of8.pid{pid}-0badcafe.json")), text).unwrap();
    };
    let refused = r#"{"tap":"s.q","reason":"its layout is torch.sparse_coo","count":3}"#;
    let budget = r#""budget reached: 10 GiB""#;
    manifest(4, 14, "ended", budget, 0, refused);
    manifest(5, 15, "ended", budget, 0, refused);
    manifest(6, 16, "ended", r#""steps done""#, 4, "");
    manifest(7, 17, "capturing", "null", 0, refused);
    manifest(7, 27, "ended", r#""off""#, 0, refused);
    let text = sample.command("ls", &[]).stdout;
    let heading: Vec<_> = text.lines().take(7).collect();
    let expected = [
        "r: 7 processes, 16 records, 208 B",
        "ranks 1,7 did not end: still running, or killed",
        "ranks 4-5 ended early: budget reached: 10 GiB",
        "refused: s.q ×12: its layout is torch.sparse_coo (ranks 4-5,7)",
        "lost or refused: 7 records (rank 6)",
        "rank 7 is here in two processes; the later one is used",
        "the mesh is assumed: all 8 ranks are taken as tp; set TPCAPTURE_MESH=tp=8, or what it is, such as pp=2,tp=4",
    ];
    assert_eq!(heading, expected);
    let compared = sample.command("compare", &[]).stdout;
    assert!(compared.contains("\nranks 4-5 ended early: budget reached: 10 GiB\n"), "{compared}");
    let process = &json(&sample.command("ls", &["--json"]), 0)["processes"][2];
    let expected = [json!("ended"), json!("budget reached: 10 GiB"), json!(0), json!(3)];
    assert_eq!(["state", "end_reason", "lost", "refused"].map(|key| process[key].clone()), expected);
    let loss = json!([{"tap": "s.q", "reason": "its layout is torch.sparse_coo", "count": 3}]);
    assert_eq!(process["losses"], loss);
    // More than can be told: the most come first.
    let ten: Vec<_> =
        (1..=10).map(|n| format!(r#"{{"tap":"t{n}","reason":"ring full","count":{n}}}"#)).collect();
    manifest(6, 16, "ended", r#""steps done""#, 55, &ten.join(","));
    let text = sample.command("ls", &[]).stdout;
    let lines: Vec<_> = text.lines().skip(3).take(10).collect();
    assert_eq!(lines[0], "refused: s.q ×12: its layout is torch.sparse_coo (ranks 4-5,7)");
    assert_eq!(lines[1], "lost or refused: t10 ×10: ring full (rank 6)");
    assert_eq!(lines[7..9], ["lost or refused: t4 ×4: ring full (rank 6)", "… 3 more: ls --json"]);
}

#[test]
fn show_sums_up_each_rank() {
    let sample = Sample::new();
    // 8r to 8r + 7: means 3.5 and 11.5, mean squares 140/8 and 1100/8.
    let q = "\
layers.0.q: step 0 of 0-2, call 0, S(1)
rank  n  nan  inf  zero  min  max  mean     rms
   0  8    0    0     1    0    7   3.5  4.1833
   1  8    0    0     0    8   15  11.5  11.726
rank  dtype  shape   min to max        first values
   0  BF16   [2, 4]  █·█·█·█··█·█·█·█  0 1 2 3 …
   1  BF16   [2, 4]  █·█·█·█··█·█·█·█  8 9 10 11 …
";
    check(&sample.command("show", &["layers.0.q"]), 0, q, "");
    let one = "\
layers.0.out: step 2 of 0-2, call 0, R
rank  n  nan  inf  zero  min  max  mean  rms
   1  3    1    0     0  0.5  0.5   0.5  0.5
rank  dtype  shape  min to max        first values
   1  F32    [3]    █···············  nan 0.5 0.5
";
    // `ids` has no step 2.
    check(&sample.command("show", &["{*.out,ids}", "--step", "2", "--rank", "tp:1"]), 0, one, "");
    let ids = sample.command("show", &["ids", "--call", "1", "--rank", "0"]);
    assert!(ids.stdout.starts_with("ids: step 1, call 1 of 0-1, no placement\n"), "{}", ids.stdout);
    assert!(ids.stdout.ends_with("█··············█  -1 1000000000000\n"), "{}", ids.stdout);
}

#[test]
fn show_prints_no_number_that_json_lacks() {
    let sample = Sample::new();
    let found = json(&sample.command("show", &["layers.0.out", "--step", "1", "--rank", "0", "--json"]), 0);
    let record = &found["records"][0];
    assert_eq!(
        (&record["tap"], &record["rank"], &record["shape"]),
        (&json!("layers.0.out"), &json!(0), &json!([2]))
    );
    let summary = json!({"n": 2, "nan": 1, "pos_inf": 0, "neg_inf": 0, "zero": 0, "min": 0.5, "max": 0.5,
        "mean": 0.5, "rms": 0.5, "absmax": 0.5, "histogram": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "first": [null, 0.5]});
    assert_eq!(record["summary"], summary);
}

#[test]
fn what_is_not_there_says_what_is() {
    let sample = Sample::new();
    let error = |args: &[&str], expected: &str| check(&sample.command("show", args), 2, "", expected);
    error(
        &["idx"],
        "tpcapture: no tap matches \"idx\"; there are \"layers.0.q\", \"layers.0.out\", \"ids\"\n",
    );
    error(&["0.o"], "tpcapture: no tap matches \"0.o\"; did you mean \"layers.0.out\"\n");
    error(&["ids", "--step", "7"], "tpcapture: tap \"ids\" has no record of step 7; it has steps 1\n");
    error(
        &["ids", "--call", "7"],
        "tpcapture: tap \"ids\" has no record of step 1, call 7; it has calls 0-1\n",
    );
    error(&["ids", "--rank", "7"], "tpcapture: tap \"ids\" has no record of those ranks; it has ranks 0,1\n");
}

#[test]
fn verify_finds_the_byte_that_changed() {
    let sample = Sample::new();
    check(&sample.command("verify", &[]), 0, "r: 16 records, 208 B: every checksum holds\n", "");

    // The first byte of rank 0's first record.
    let name = "rank0.tp0of2.pid42-0badcafe.000000.safetensors";
    let file = fs::File::options().write(true).open(sample.run().join(name)).unwrap();
    file.write_all_at(&[1], 65536).unwrap();
    let text = format!(
        "rank 0 tap \"layers.0.q\" step 0 call 0: expected checksum a10be95b, found 0f6378ca: r/{name}\n\
         r: 16 records, 208 B: 1 of them not as written\n"
    );
    check(&sample.command("verify", &[]), 1, &text, "");
    let found = json(&sample.command("verify", &["--json"]), 1);
    let mismatch = &found["mismatches"][0];
    assert_eq!((&mismatch["tap"], &mismatch["file"]), (&json!("layers.0.q"), &json!(format!("r/{name}"))));
    assert_eq!(found["mismatches"].as_array().unwrap().len(), 1);

    // A file that cannot be read beside a checksum that fails: a difference was found.
    fs::write(sample.run().join("x.safetensors"), "").unwrap();
    let done = sample.command("verify", &[]);
    check(&done, 1, &text, "tpcapture: expected at least 8 bytes, found 0: r/x.safetensors\n");
}

#[test]
fn hostile_files_are_named_and_the_rest_is_read() {
    let sample = Sample::new();
    let place = |name: &str| sample.run().join(name);
    fs::write(place("a.safetensors"), [0xff; 64]).unwrap();
    fs::write(place("b.json"), "not ours").unwrap();
    fs::create_dir(place("c.safetensors")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place("d.safetensors")).unwrap();
    assert!(Command::new("mkfifo").arg(place("e.safetensors")).status().unwrap().success());
    let errors = "\
tpcapture: expected a header of at most 56 bytes, found one of 18446744073709551615: r/a.safetensors
tpcapture: expected a regular file, found a directory: r/c.safetensors
tpcapture: expected a regular file, found a symbolic link: r/d.safetensors
tpcapture: expected a regular file, found no regular file: r/e.safetensors
";
    check(&sample.command("verify", &[]), 2, "r: 16 records, 208 B: every checksum holds\n", errors);
    for args in [&["ls"][..], &["show", "ids"]] {
        let done = sample.command(args[0], &args[1..]);
        assert_eq!((done.status, done.stderr.as_str()), (2, errors));
        assert!(done.stdout.contains("ids"));
    }
    let found = json(&sample.command("ls", &["--json"]), 2);
    assert_eq!(found["taps"].as_array().unwrap().len(), 3);
    let reason = json!({"file": "r/c.safetensors", "reason": "expected a regular file, found a directory"});
    assert_eq!(found["errors"][1], reason);
}

#[test]
fn a_path_that_is_no_run_is_refused() {
    let sample = Sample::new();
    let at = |path: &str, command: &str| sample.command_on(&sample.dir.path().join(path), command, &[]);
    // The directory of one run means that run.
    assert_eq!(at("", "ls").stdout.lines().next(), Some("r: 2 processes, 16 records, 208 B"));
    check(&at("none", "ls"), 2, "", "tpcapture: no such run; there are r: none\n");
    fs::write(sample.dir.path().join("file"), "").unwrap();
    let file = "tpcapture: expected a run directory, or a directory holding one run, found a file: file\n";
    check(&at("file", "verify"), 2, "", file);
    fs::create_dir(sample.dir.path().join("s")).unwrap();
    let empty = "tpcapture: expected a run directory, or a directory holding one run, found no run: s\n";
    check(&at("s", "ls"), 2, "", empty);
    fs::write(sample.dir.path().join("s/x.journal"), "").unwrap();
    let several = at("", "ls").stderr;
    assert!(several.starts_with("tpcapture: expected one run, found r, s: "), "{several}");
}

#[test]
fn arguments_that_make_no_sense_are_2() {
    for args in [&[][..], &["ls"], &["frobnicate"], &["show", "r"], &["show", "r", "t", "--step", "x"]] {
        let done = tpcapture(args.iter().copied());
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{args:?}");
        assert!(done.stderr.contains("Usage") || done.stderr.contains("--help"), "{}", done.stderr);
    }
    let rank = tpcapture(["show", "r", "t", "--rank", "x"]);
    assert!(rank.stderr.contains("expected all, ranks such as 0,3 or 0-3"), "{}", rank.stderr);
    for args in [["--help"], ["--version"]] {
        let done = tpcapture(args);
        assert_eq!((done.status, done.stderr.as_str()), (0, ""));
        assert!(done.stdout.contains("tpcapture"));
    }
}

/// `tpcapture ls | head -0`: the reader is gone before anything is printed.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let sample = Sample::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tpcapture"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child =
        command.arg("ls").arg(sample.run()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(stderr, "");
}

/// A disk that is full is one.
#[test]
fn output_that_cannot_be_written_is_2() {
    let sample = Sample::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tpcapture"));
    let output = command.arg("ls").arg(sample.run()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "tpcapture: writing the output: No space left on device (os error 28)\n");
}

/// A run may lie anywhere and anyone may put a file into it: JSON holds such names with their odd bytes replaced, and a
/// terminal is not steered by them.
#[test]
fn names_that_are_no_text_are_printed_as_text() {
    let sample = Sample::new();
    let run = sample.run().with_file_name(OsStr::from_bytes(b"r\xff"));
    fs::rename(sample.run(), &run).unwrap();
    fs::write(run.join(OsStr::from_bytes(b"rank0\x1b[2J\xfe.json")), "{").unwrap();
    for (command, args) in [("ls", &[][..]), ("show", &["ids"]), ("verify", &[]), ("compare", &[])] {
        let done = |json: &[&str]| {
            let all = [OsStr::new(command), run.as_os_str()];
            tpcapture(all.into_iter().chain([args, json].concat().into_iter().map(OsStr::new)))
        };
        let found: Value = serde_json::from_str(&done(&["--json"]).stdout).unwrap();
        let file = found["errors"][0]["file"].as_str().unwrap();
        assert!(file.ends_with("r\u{fffd}/rank0\u{1b}[2J\u{fffd}.json"), "{command}: {file}");
        let text = done(&[]);
        assert_eq!(text.status, 2, "{command}");
        assert!(text.stderr.contains("rank0\\u{1b}[2J\u{fffd}.json"), "{command}: {}", text.stderr);
    }
}

#[test]
fn ls_says_of_how_many_rows_the_first_were_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mesh = Mesh::from_sizes("tp=1", 0).unwrap();
    let process = "7-0badcafe".to_owned();
    let identity = Identity { run: "r".into(), rank: Some(0), world: Some(1), mesh, process };
    let mut writer = SegmentWriter::new(RunDir::create(dir.path(), "r").unwrap(), identity);
    let record = Record { tap: "h".into(), full_rows: Some(64), ..sample::blank() };
    writer.begin(&record, Dtype::U8, &[2, 1], 2).unwrap();
    writer.append(&[1, 2]).unwrap();
    writer.finish().unwrap();
    writer.seal().unwrap();
    let done = tpcapture(["ls", dir.path().to_str().unwrap()]);
    let row = done.stdout.lines().nth(2).unwrap();
    assert!(row.contains("  [2, 1], first rows of 64  "), "{row}");
}

#[test]
fn a_pipe_is_as_wide_as_what_goes_through_it() {
    let dir = tempfile::tempdir().unwrap();
    let tap = "t.".repeat(200);
    let identity = Identity {
        run: "r".into(),
        rank: Some(0),
        world: Some(1),
        mesh: Mesh::default(),
        process: "7-0badcafe".into(),
    };
    let mut writer = SegmentWriter::new(RunDir::create(dir.path(), "r").unwrap(), identity);
    let record = Record { tap: tap.clone(), ..sample::blank() };
    writer.begin(&record, Dtype::U8, &[1], 1).unwrap();
    writer.append(&[1]).unwrap();
    writer.finish().unwrap();
    writer.seal().unwrap();
    let path = dir.path().to_str().unwrap();
    for args in [vec!["ls", path], vec!["compare", path, path]] {
        let done =
            Command::new(env!("CARGO_BIN_EXE_tpcapture")).args(args).env("COLUMNS", "80").output().unwrap();
        assert!(String::from_utf8(done.stdout).unwrap().contains(&tap));
    }
}
