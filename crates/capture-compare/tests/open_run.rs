//! Opening runs: what lies in them is read, whatever else lies there is named, and nothing blocks or panics.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_compare::{Access, Entry, Layouts, OpenError, Options, Run, Verdict, check, compare};
use capture_core::{Dtype, Identity, Mesh, Record, Stored, Tags, journal};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const STEM: &str = "rank1.tp1of2.pid42-0badcafe";

fn identity(rank: u32, process: &str) -> Identity {
    let mesh = Mesh::from_sizes("tp=2", rank).unwrap();
    Identity { run: "r".into(), rank: Some(rank), world: Some(2), mesh, process: process.into() }
}

fn record(tap: &str, step: u64, seq: u64) -> Record {
    Record {
        tap: tap.into(),
        step,
        abs_step: step,
        call: 0,
        seq,
        time_ns: 1,
        placement: None,
        rows: None,
        full_rows: None,
        strides: vec![1],
        device: "cpu".into(),
        encoding: None,
        crc32: 0,
    }
}

/// U8 tensors of these bytes, one behind the other.
fn stored(tensors: &[(Record, &[u8])]) -> Vec<Stored> {
    let mut offset = 0;
    tensors
        .iter()
        .map(|(record, bytes)| {
            let length = bytes.len() as u64;
            offset += length;
            let (record, shape) = (record.clone(), vec![length]);
            Stored { record, dtype: Dtype::U8, shape, offset: offset - length, length }
        })
        .collect()
}

fn sealed_bytes(identity: &Identity, segment: u64, tensors: &[(Record, &[u8])]) -> Vec<u8> {
    let tags = serde_json::to_value(Tags::new(identity, segment)).unwrap();
    let mut header = serde_json::json!({ "__metadata__": tags });
    let records: Vec<_> = tensors.iter().map(|(record, _)| record).collect();
    header["__metadata__"]["records"] = serde_json::to_string(&records).unwrap().into();
    for entry in stored(tensors) {
        let name = format!("step{}/{}", entry.record.step, entry.record.tap);
        let end = entry.offset + entry.length;
        header[name] = serde_json::json!(
            { "dtype": "U8", "shape": entry.shape, "data_offsets": [entry.offset, end] });
    }
    let json = header.to_string();
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.bytes());
    tensors.iter().for_each(|(_, data)| bytes.extend(*data));
    bytes
}

fn journal_text(identity: &Identity, segment: u64, data_start: u64, tensors: &[(Record, &[u8])]) -> String {
    let opening = journal::Opening { tags: Tags::new(identity, segment), data_start };
    let lines = stored(tensors).iter().map(journal::encode).collect::<String>();
    journal::encode(&opening) + &lines
}

/// Taps and bytes.
type Records = Vec<(String, Vec<u8>)>;
/// File names and reasons.
type Errors = Vec<(String, String)>;

struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A run of two records in a sealed segment.
    fn good(&self) -> PathBuf {
        let tensors = [(record("b", 0, 1), &[4, 5][..]), (record("a", 0, 0), &[1, 2, 3][..])];
        self.write(
            &format!("{STEM}.000000.safetensors"),
            sealed_bytes(&identity(1, "42-0badcafe"), 0, &tensors),
        )
    }

    /// The taps and bytes of all records, and the errors by file name; the same mapped and unmapped.
    #[track_caller]
    fn read(&self) -> (Records, Errors) {
        let [mapped, unmapped] = [Access::Mapped, Access::Unmapped].map(|access| {
            let run = Run::open(self.path(), access).unwrap();
            let pair = |e: &Entry| (e.record.tap.clone(), run.bytes(e).unwrap().into_owned());
            let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_owned();
            let records: Vec<_> = run.entries.iter().map(pair).collect();
            let errors: Vec<_> = run.errors.iter().map(|e| (name(&e.file), e.reason.clone())).collect();
            (records, errors)
        });
        assert_eq!(mapped, unmapped);
        mapped
    }

    /// The good segment is read, and the file of that name is an error that begins like this.
    #[track_caller]
    fn check_error(&self, name: &str, reason: &str) {
        let (records, errors) = self.read();
        assert_eq!(records.len(), 2);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].0, name);
        assert!(errors[0].1.starts_with(reason), "expected {reason:?}, found {:?}", errors[0].1);
    }

    /// The same for a sealed segment of another process with these bytes.
    #[track_caller]
    fn check_sealed(bytes: impl AsRef<[u8]>, reason: &str) {
        let dir = Self::new();
        dir.good();
        dir.write("rank0.000000.safetensors", bytes);
        dir.check_error("rank0.000000.safetensors", reason);
    }
}

fn pairs(expected: &[(&str, &[u8])]) -> Records {
    expected.iter().map(|(tap, bytes)| ((*tap).to_owned(), bytes.to_vec())).collect()
}

#[test]
fn a_sealed_segment_is_read_in_capture_order() {
    let dir = Dir::new();
    let file = dir.good();
    assert_eq!(dir.read(), (pairs(&[("a", &[1, 2, 3]), ("b", &[4, 5])]), vec![]));

    let run = Run::open(dir.path(), Access::Unmapped).unwrap();
    assert_eq!(run.processes.len(), 1);
    assert_eq!(run.processes[0].identity, identity(1, "42-0badcafe"));
    let (a, mut two) = (&run.entries[0], [0; 2]);
    assert_eq!((a.dtype, a.shape.as_slice(), a.process, a.n_bytes()), (Dtype::U8, &[3][..], 0, 3));
    assert_eq!(run.file(a), file);
    run.read_at(a, 1, &mut two).unwrap();
    assert_eq!(two, [2, 3]);
    let error = run.read_at(a, 2, &mut two).unwrap_err();
    assert_eq!(error.reason, "bytes 2 and 2 more of a record of 3");
    assert!(run.read_at(a, u64::MAX, &mut two).is_err());
}

#[test]
fn a_partial_is_read_through_its_journal() {
    let dir = Dir::new();
    dir.good();
    let me = identity(1, "42-0badcafe");
    let tensors = [(record("c", 1, 2), &[7][..]), (record("d", 1, 3), &[8, 9][..])];
    let partial = [&[b'x'; 16][..], &[7, 8, 9], b"more that is being written"].concat();
    let partial = dir.write(&format!("{STEM}.000001.safetensors.partial"), partial);
    let text = journal_text(&me, 1, 16, &tensors);
    let journal = dir.write(&format!("{STEM}.000001.journal"), &text);
    let all = pairs(&[("a", &[1, 2, 3]), ("b", &[4, 5]), ("c", &[7]), ("d", &[8, 9])]);
    assert_eq!(dir.read(), (all.clone(), vec![]));

    // Torn in its last line: what stands before it counts.
    fs::write(&journal, &text[..text.len() - 1]).unwrap();
    assert_eq!(dir.read(), (all[..3].to_vec(), vec![]));
    fs::write(&journal, &text[..20]).unwrap();
    assert_eq!(dir.read(), (all[..2].to_vec(), vec![]));

    // Shorter than the journal says.
    fs::write(&journal, &text).unwrap();
    fs::write(&partial, [0; 18]).unwrap();
    let (records, errors) = dir.read();
    assert_eq!(records.len(), 3);
    let reason = "expected 2 records, found bytes of 1 in 18 bytes";
    assert_eq!(errors, [(format!("{STEM}.000001.safetensors.partial"), reason.to_owned())]);

    fs::remove_file(&partial).unwrap();
    dir.check_error(&format!("{STEM}.000001.journal"), "its segment is missing");
    fs::write(&partial, [0; 18]).unwrap();
    fs::remove_file(&journal).unwrap();
    dir.check_error(&format!("{STEM}.000001.safetensors.partial"), "its journal is missing");
}

#[test]
fn a_stale_journal_is_ignored() {
    let dir = Dir::new();
    dir.good();
    dir.write(&format!("{STEM}.000000.journal"), "nonsense");
    dir.write(&format!("{STEM}.000000.safetensors.partial"), "nonsense");
    assert_eq!(dir.read().1, []);
    assert_eq!(dir.read().0.len(), 2);
}

/// The partial's name was listed, but it is sealed before its bytes are asked for.
#[test]
fn a_partial_sealed_meanwhile_is_read_under_its_final_name() {
    let dir = Dir::new();
    let me = identity(1, "42-0badcafe");
    let tensors = [(record("c", 1, 2), &[7, 8][..])];
    let sealed = sealed_bytes(&me, 0, &tensors);
    let partial = dir.write(&format!("{STEM}.000000.safetensors.partial"), &sealed);
    let text = journal_text(&me, 0, sealed.len() as u64 - 2, &tensors);
    let journal = dir.write(&format!("{STEM}.000000.journal"), text);
    for access in [Access::Mapped, Access::Unmapped] {
        let run = Run::open(dir.path(), access).unwrap();
        fs::rename(&partial, dir.path().join(format!("{STEM}.000000.safetensors"))).unwrap();
        assert_eq!(*run.bytes(&run.entries[0]).unwrap(), [7, 8]);
        fs::rename(dir.path().join(format!("{STEM}.000000.safetensors")), &partial).unwrap();
    }
    // Renamed, and its journal not yet deleted, between listing and opening: only the journal was seen.
    fs::rename(&partial, dir.path().join(format!("{STEM}.000000.safetensors"))).unwrap();
    assert_eq!(dir.read(), (pairs(&[("c", &[7, 8])]), vec![]));
    fs::remove_file(journal).unwrap();
    assert_eq!(dir.read(), (pairs(&[("c", &[7, 8])]), vec![]));
}

#[test]
fn a_file_that_was_replaced_or_truncated_is_not_read() {
    let dir = Dir::new();
    let file = dir.good();
    let run = Run::open(dir.path(), Access::Unmapped).unwrap();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let b = &run.entries[1];
    assert_eq!(*run.bytes(b).unwrap(), [4, 5]);
    assert_eq!(run.bytes(&run.entries[0]).unwrap_err().reason, "it was truncated since it was opened");
    let other = dir.write("other", &bytes);
    fs::rename(other, &file).unwrap();
    assert_eq!(run.bytes(b).unwrap_err().reason, "another file took its place since it was opened");
}

#[test]
fn hostile_sealed_files_are_named_and_the_rest_is_read() {
    let good = sealed_bytes(&identity(0, "7-0badcafe"), 0, &[(record("q", 0, 0), &[1, 2, 3])]);
    let with_length = |n: u64| [&n.to_le_bytes()[..], &good[8..]].concat();
    let n = u64::from_le_bytes(good[..8].try_into().unwrap());
    Dir::check_sealed([], "expected at least 8 bytes, found 0");
    Dir::check_sealed(&good[..7], "expected at least 8 bytes, found 7");
    Dir::check_sealed(&good[..50], &format!("expected a header of at most 42 bytes, found one of {n}"));
    Dir::check_sealed(&good[..good.len() - 1], "expected 3 bytes of data, found 2");
    Dir::check_sealed([&good[..], &[0]].concat(), "expected 3 bytes of data, found 4");
    Dir::check_sealed(with_length(u64::MAX), "expected a header of at most");
    Dir::check_sealed(with_length(n + 4), "expected a header of at most");
    Dir::check_sealed(with_length(n + 1), "header is no safetensors JSON");
    Dir::check_sealed(with_length(n - 1), "header is no safetensors JSON");
    Dir::check_sealed(with_length(0), "header is no safetensors JSON");
    let json = r#"{"a":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}"#;
    let foreign = [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &[0; 16]].concat();
    Dir::check_sealed(foreign, "no tpcapture metadata");
    // Cut anywhere it is an error; with a byte changed it never panics.
    let dir = Dir::new();
    for at in 0..good.len() {
        dir.write("x.safetensors", &good[..at]);
        assert_eq!((dir.read().0.len(), dir.read().1.len()), (0, 1), "cut at {at}");
        let mut changed = good.clone();
        changed[at] ^= 0x80;
        dir.write("x.safetensors", changed);
        let (records, errors) = dir.read();
        assert_eq!(records.len() + errors.len(), 1, "changed at {at}");
    }
}

#[test]
fn what_is_no_file_is_named_and_never_waited_for() {
    let dir = Dir::new();
    let target = dir.good();
    let place = dir.path().join("rank0.000000.safetensors");
    symlink(target, &place).unwrap();
    dir.check_error("rank0.000000.safetensors", "expected a regular file, found a symbolic link");
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    dir.check_error("rank0.000000.safetensors", "expected a regular file, found a directory");
    fs::remove_dir(&place).unwrap();
    for name in ["rank0.000000.safetensors", "rank0.000000.journal", "rank0.json"] {
        let place = dir.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&place).status().unwrap().success());
        dir.check_error(name, "expected a regular file, found no regular file");
        fs::remove_file(place).unwrap();
    }
}

#[test]
fn a_process_is_one_and_its_records_are_distinct() {
    let dir = Dir::new();
    dir.good();
    let other_rank = sealed_bytes(&identity(0, "42-0badcafe"), 1, &[(record("q", 0, 9), &[1])]);
    dir.write("x.safetensors", other_rank);
    dir.check_error("x.safetensors", "expected the run, rank and mesh of");
    let again = sealed_bytes(&identity(1, "42-0badcafe"), 1, &[(record("a", 0, 9), &[1])]);
    dir.write("x.safetensors", again);
    dir.check_error("x.safetensors", "tap \"a\", step 0, call 0 stands twice");
}

#[test]
fn processes_stand_by_rank_with_their_manifests() {
    let dir = Dir::new();
    dir.good();
    let zero = sealed_bytes(&identity(0, "7-0badcafe"), 0, &[(record("z", 0, 5), &[9])]);
    dir.write("rank0.tp0of2.pid7-0badcafe.000000.safetensors", zero);
    let manifest = r#"{"tpcapture":"1","run":"r","rank":null,"world":null,"mesh":{"dims":[],"assumed":false},
        "identity_from":"unknown","process":{"id":"9-0badcafe","pid":9,"host":"h","program":"p"},"versions":{},
        "config":{},"started_ns":1,"ended_ns":2,"state":"ended","end_reason":"off","counters":{"records":0,
        "bytes":0,"segments":0,"lost":0,"refused":0},"losses":[],"rules":[],"last_error":null}"#;
    dir.write("rankunknown.pid9-0badcafe.json", manifest);
    dir.write("rank3.json", "[");
    let run = Run::open(dir.path(), Access::Mapped).unwrap();
    let ranks: Vec<_> = run.processes.iter().map(|p| (p.identity.rank, p.manifest.is_some())).collect();
    assert_eq!(ranks, [(Some(0), false), (Some(1), false), (None, true)]);
    let order: Vec<_> = run.entries.iter().map(|e| (e.process, e.record.tap.as_str())).collect();
    assert_eq!(order, [(0, "z"), (1, "a"), (1, "b")]);
    assert_eq!(run.errors.len(), 1);
    assert_eq!(run.errors[0].reason, "manifest: EOF while parsing a list at line 1 column 1");
}

#[test]
fn a_directory_of_one_run_means_that_run() {
    let dir = Dir::new();
    let open = || Run::open(dir.path(), Access::Mapped);
    assert!(matches!(open().unwrap_err(), OpenError::NoRun(_)));
    let run = |name: &str| {
        fs::create_dir(dir.path().join(name)).unwrap();
        dir.write(&format!("{name}/{STEM}.000000.journal"), "");
    };
    dir.write("notes.txt", "");
    fs::create_dir(dir.path().join("empty")).unwrap();
    run("run-1");
    assert_eq!(open().unwrap().path, dir.path().join("run-1"));
    run("run-2");
    let error = open().unwrap_err();
    assert!(error.to_string().starts_with("expected one run, found run-1, run-2: "), "{error}");
    let missing = Run::open(&dir.path().join("none"), Access::Mapped).unwrap_err();
    assert!(matches!(&missing, OpenError::NoSuch { runs, .. } if runs == &["run-1", "run-2"]), "{missing}");
    let file = Run::open(&dir.path().join("notes.txt"), Access::Mapped).unwrap_err();
    assert!(matches!(file, OpenError::File(_)), "{file}");
}

/// Only its first piece is read when a record is taken up.
#[test]
fn what_a_file_lost_while_it_was_compared_is_no_row() {
    let dir = Dir::new();
    let me = Identity { world: Some(1), mesh: Mesh::default(), ..identity(0, "1-ab") };
    let data = vec![7; 200_000];
    let file =
        dir.write(&format!("{STEM}.000000.safetensors"), sealed_bytes(&me, 0, &[(record("a", 0, 0), &data)]));
    let opened = || Run::open(dir.path(), Access::Unmapped).unwrap();
    let (a, b) = (opened(), opened());
    let report = |a, b| compare(a, b, &Layouts::default(), Options::default());
    assert_eq!(report(&a, &b).verdict, Some(Verdict::Identical));

    let (a, b) = (opened(), opened());
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(150_000).unwrap();
    for report in [report(&a, &b), check(&b, &Layouts::default(), Options::default())] {
        assert!(report.rows.is_empty(), "{report:#?}");
        let reasons: Vec<&str> = report.errors.iter().map(|e| e.reason.as_str()).collect();
        assert_eq!(reasons, ["it was truncated since it was opened"]);
        assert_eq!(report.exit_status(), 2);
    }
}
