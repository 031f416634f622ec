//! Ranks that recorded nothing are missing and named, unless the run itself says why.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Access, Layouts, OneSided, Options, Run, Verdict, check, compare, report::Row};
use capture_core::{Identity, Mesh};
use recorded::{Recorded, Tensor, record, record_as};

fn tensor(rank: u32, tap: &'static str, placement: Option<&'static str>) -> Tensor {
    Tensor { placement, ..Tensor::f32(rank, tap, &[2], &[1.0, 2.0]) }
}

/// The row of a tap of a run alone, and of the same run against a reference of one rank.
fn rows(recorded: &Recorded, tap: &'static str) -> [Row; 2] {
    let reference = record("tp=1", &[tensor(0, "n", None), tensor(0, "z", None)]);
    let only = |report: capture_compare::Report| report.rows.into_iter().rfind(|r| r.tap == tap).unwrap();
    let options = Options { one_sided: OneSided::Missing, ..Options::default() };
    [
        only(check(&recorded.run, &Layouts::default(), options)),
        only(compare(&reference.run, &recorded.run, &Layouts::default(), options)),
    ]
}

#[track_caller]
fn expect(recorded: &Recorded, tap: &'static str, is_missing: bool, text: &str) {
    for (row, side) in rows(recorded, tap).iter().zip(["", "candidate: "]) {
        assert_eq!(row.verdict == Some(Verdict::Missing), is_missing, "{row:#?}");
        let text = format!("{side}{text}");
        assert!(row.diagnoses.iter().any(|d| d.text == text), "{text:?} in {row:#?}");
    }
}

/// Tap `n` on all of these ranks, `z` on some of them.
fn run(mesh: &str, ranks: &[u32], of_z: &[u32], placement: Option<&'static str>) -> Recorded {
    let n = ranks.iter().map(|rank| tensor(*rank, "n", placement));
    let z = of_z.iter().map(|rank| tensor(*rank, "z", placement));
    record(mesh, &n.chain(z).collect::<Vec<_>>())
}

#[test]
fn a_rank_without_a_file_is_missing() {
    for placement in [Some("R"), None] {
        expect(&run("tp=4", &[0, 1, 3], &[], placement), "n", true, "no record of rank 2");
        expect(&run("tp=4", &[3], &[], placement), "n", true, "no record of ranks 0, 1, 2");
        expect(&run("dp=2,tp=2", &[0, 1, 2], &[], placement), "n", true, "no record of rank 3");
    }
}

#[test]
fn a_tap_that_some_ranks_never_fired_is_missing_there() {
    for placement in [Some("R"), None] {
        expect(&run("tp=4", &[0, 1, 2, 3], &[0, 1, 2], placement), "z", true, "no record of rank 3");
        expect(&run("tp=2", &[0, 1], &[0], placement), "z", true, "no record of rank 1");
    }
}

/// A tap of one pipeline stage, and a replica that did not run.
#[test]
fn over_pp_and_dp_a_tap_exists_where_it_exists() {
    for (mesh, ranks) in [("pp=2,tp=2", [0, 1]), ("dp=2,tp=2", [0, 1])] {
        for row in rows(&run(mesh, &[0, 1, 2, 3], &ranks, Some("R")), "z") {
            assert_eq!((row.verdict, row.diagnoses), (Some(Verdict::Identical), vec![]));
        }
    }
}

/// vLLM's mesh of two replicas of two ranks whose four share the experts: a rank's file is gone, or one rank has an expert.
#[test]
fn dimensions_that_overlap_are_told_apart() {
    let identity = |rank: u32| {
        let mut mesh = Mesh::from_sizes("dp=2,tp=2", rank).unwrap();
        mesh.dims.push(capture_core::Dim { name: "ep".into(), coord: rank, size: 4 });
        let process = format!("{}-0000000{rank}", 100 + rank);
        Identity { run: "r".into(), rank: Some(rank), world: Some(4), mesh, process }
    };
    let n = |ranks: &[u32]| ranks.iter().map(|rank| tensor(*rank, "n", Some("R"))).collect::<Vec<_>>();
    let gone = record_as(&n(&[0, 1, 3]), identity);
    let rows = check(&gone.run, &Layouts::default(), Options::default()).rows;
    assert_eq!(
        rows.iter().map(|r| r.verdict).collect::<Vec<_>>(),
        [Some(Verdict::Identical), Some(Verdict::Missing)]
    );
    assert_eq!(rows[1].diagnoses.last().unwrap().text, "no record of tp 0");
    let mut all = n(&[0, 1, 2, 3]);
    all.push(tensor(3, "z", Some("R")));
    expect(&record_as(&all, identity), "z", false, "no record of rank 2: \"z\" is on ep 3 only");
}

/// What every rank was told, as its manifest has it.
fn told(recorded: &mut Recorded, ranks: &[u32], config: &str) {
    for rank in ranks {
        let id = format!("{}-0000000{rank}", 100 + rank);
        let json = format!(
            r#"{{"tpcapture": "1", "run": "r", "rank": {rank}, "world": 4,
            "mesh": {{"dims": [{{"name": "tp", "coord": {rank}, "size": 4}}], "assumed": false}},
            "identity_from": "RANK", "process": {{"id": "{id}", "pid": 1, "host": "h", "program": "p"}},
            "versions": {{}}, "config": {config}, "started_ns": 5, "ended_ns": 9, "state": "ended",
            "end_reason": "off", "counters": {{"records": 1, "bytes": 8, "segments": 1, "lost": 0, "refused": 0}},
            "losses": [], "rules": [], "last_error": null}}"#
        );
        let dir = recorded.dir.path().join("r");
        std::fs::write(dir.join(format!("rank{rank}.tp{rank}of4.pid{id}.json")), json).unwrap();
    }
    recorded.run = Run::open(&recorded.dir.path().join("r"), Access::Mapped).unwrap();
    assert!(recorded.run.errors.is_empty(), "{:?}", recorded.run.errors);
}

#[test]
fn ranks_that_were_not_to_capture_are_not_missing() {
    let mut recorded = run("tp=4", &[0, 1], &[], Some("R"));
    told(&mut recorded, &[0, 1], r#"{"select": "*", "ranks": "0-1"}"#);
    expect(&recorded, "n", false, "no record of ranks 2, 3: captured was on ranks 0-1");
    let mut recorded = run("tp=4", &[0, 1], &[], Some("R"));
    told(&mut recorded, &[0, 1], r#"{"select": "*", "ranks": "0-2"}"#);
    expect(&recorded, "n", true, "no record of rank 2");
    let mut recorded = run("tp=4", &[0, 1, 2, 3], &[0], Some("R"));
    told(&mut recorded, &[0, 1, 2, 3], r#"{"select": "z[rank=0], n", "ranks": "all"}"#);
    expect(
        &recorded,
        "z",
        false,
        "no record of ranks 1, 2, 3: the selection z[rank=0], n leaves it out there",
    );
    let mut recorded = run("tp=4", &[0, 1, 2, 3], &[0], Some("R"));
    told(&mut recorded, &[0, 1, 2, 3], r#"{"select": "z, n[rank=0]", "ranks": "all"}"#);
    expect(&recorded, "z", true, "no record of ranks 1, 2, 3");
}

#[test]
fn an_assumed_mesh_is_said() {
    let identity = |rank: u32| Identity {
        run: "r".into(),
        rank: Some(rank),
        world: Some(2),
        mesh: Mesh::assumed_tp(rank, 2),
        process: format!("{}-0000000{rank}", 100 + rank),
    };
    let recorded = record_as(&[tensor(0, "n", None)], identity);
    expect(&recorded, "n", true, "no record of rank 1 (the mesh is not known: all ranks were taken as tp)");
}

/// What a file would have said cannot be told: it is an error, and no difference.
#[test]
fn a_rank_of_which_a_file_cannot_be_read_is_no_difference() {
    let mut recorded = run("tp=2", &[0, 1], &[], Some("R"));
    let dir = recorded.dir.path().join("r");
    let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let of_rank_1 =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("rank1.");
    std::fs::write(files.into_iter().find(of_rank_1).unwrap(), b"torn").unwrap();
    recorded.run = Run::open(&dir, Access::Mapped).unwrap();
    assert_eq!(recorded.run.errors.len(), 1);
    expect(&recorded, "n", false, "no record of rank 1: a file of it cannot be read");
}
