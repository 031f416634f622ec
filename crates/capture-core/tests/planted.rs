//! Files that somebody has planted under the names that a segment would have: nothing is written through them, nobody
//! waits for them, and the error says which.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter, WriteError};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

const VICTIM: &str = "somebody else's";

fn identity() -> Identity {
    Identity {
        run: "run".into(),
        rank: Some(0),
        world: Some(1),
        mesh: Mesh::default(),
        process: "42-0badcafe".into(),
    }
}

fn write(dir: &RunDir) -> Result<(), WriteError> {
    let record = Record {
        tap: "q".into(),
        step: 1,
        abs_step: 1,
        call: 0,
        seq: 0,
        time_ns: 0,
        placement: None,
        rows: None,
        full_rows: None,
        strides: vec![1],
        device: "cpu".into(),
        encoding: None,
        crc32: 0,
    };
    let mut writer = SegmentWriter::new(dir.clone(), identity());
    writer.begin(&record, Dtype::U8, &[3], 3)?;
    writer.append(&[1, 2, 3])?;
    writer.finish()?;
    writer.seal()
}

type Plant = fn(&Path, &Path);

const PLANTS: [(&str, Plant); 5] = [
    ("a link", |victim, at| symlink(victim, at).unwrap()),
    ("a link to nothing", |_, at| symlink("/nowhere/at/all", at).unwrap()),
    ("a hard link", |victim, at| fs::hard_link(victim, at).unwrap()),
    ("a FIFO", |_, at| assert!(Command::new("mkfifo").arg(at).status().unwrap().success())),
    ("a directory", |_, at| fs::create_dir(at).unwrap()),
];

/// Plants each kind of file at that name and writes a segment; what came of it is `check`ed.
fn plant(suffix: &str, check: impl Fn(&str, Result<(), WriteError>, &Path)) {
    for (kind, plant) in PLANTS {
        let temp = tempfile::tempdir().unwrap();
        let dir = RunDir::create(temp.path(), "run").unwrap();
        let victim = temp.path().join("victim");
        fs::write(&victim, VICTIM).unwrap();
        let at = dir.path().join(format!("{}.000000{suffix}", identity().stem()));
        plant(&victim, &at);
        check(kind, write(&dir), &at);
        assert_eq!(fs::read_to_string(&victim).unwrap(), VICTIM, "{kind}");
        assert!(!Path::new("/nowhere").exists());
    }
}

#[test]
fn a_segment_is_not_begun_where_something_bears_its_name() {
    for suffix in [".journal", ".safetensors.partial"] {
        plant(suffix, |kind, written, at| {
            let error = written.unwrap_err();
            let WriteError::Io { what: "create", path, .. } = &error else { panic!("{kind}: {error}") };
            assert_eq!(path, at, "{kind}");
            let names = fs::read_dir(at.parent().unwrap()).unwrap().count();
            assert_eq!(names, 1, "{kind}: what was planted alone is there");
        });
    }
}

/// A name is replaced and not written to; a directory cannot be.
#[test]
fn sealing_replaces_a_planted_name() {
    plant(".safetensors", |kind, written, at| {
        if kind == "a directory" {
            let error = written.unwrap_err();
            assert!(matches!(error, WriteError::Io { what: "rename a segment", .. }), "{error}");
            return;
        }
        written.unwrap();
        assert!(fs::symlink_metadata(at).unwrap().is_file(), "{kind}");
    });
}
