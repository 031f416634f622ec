use super::*;
use crate::record::Record;
use crate::ring::Patience;
use safetensors::{Dtype, SafeTensors};
use std::path::Path;
use std::time::Duration;

const MANIFEST: &str = r#"{
    "tpcapture": "1", "run": "run", "rank": 0, "world": 1, "mesh": {"dims": [], "assumed": false},
    "identity_from": "RANK", "process": {"id": "42-0badcafe", "pid": 42, "host": "h", "program": "p"},
    "versions": {}, "config": {}, "started_ns": 5, "ended_ns": null, "state": "capturing", "end_reason": null,
    "counters": {"records": 0, "bytes": 0, "segments": 0, "lost": 0, "refused": 0},
    "losses": [], "rules": [], "last_error": null
}"#;

fn start(dir: &Path) -> (Arc<Engine>, Arc<Ledger>) {
    let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
    let engine = Arc::new(Engine::new(1 << 20).unwrap());
    let ledger = Arc::new(Ledger::default());
    let assignment = Assignment {
        dir: dir.to_owned(),
        identity: manifest.identity(),
        min_free: MinFree::Bytes(0),
        announced: false,
        manifest,
        selection: Selection::everything(),
        ledger: Arc::clone(&ledger),
        attend: || (),
    };
    spawn(Arc::clone(&engine), assignment).unwrap();
    (engine, ledger)
}

/// Half of a record of six bytes: three times `byte`.
fn send(engine: &Engine, piece: Piece, byte: u8) {
    let mut room = engine.ring.reserve(3, || piece, Patience::None).unwrap();
    let (to, n_bytes) = room.bytes();
    // SAFETY: the reservation's own bytes.
    unsafe { to.write_bytes(byte, n_bytes) };
}

fn draft() -> Piece {
    let record = Record {
        tap: "q".into(),
        step: 0,
        abs_step: 0,
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
    Piece::First(Box::new(Draft {
        record,
        dtype: Dtype::U8,
        shape: vec![6],
        n_bytes: 6,
        rule: 0,
        mode: Mode::Full,
        digest: None,
    }))
}

/// What the sealed segments hold, in their order.
fn sealed(dir: &Path) -> Vec<Vec<u8>> {
    let paths = std::fs::read_dir(dir.join("run")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
    paths.sort();
    let tensors = paths.iter().flat_map(|path| {
        let bytes = std::fs::read(path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        file.iter().map(|(_, tensor)| tensor.data().to_vec()).collect::<Vec<_>>()
    });
    tensors.collect()
}

/// A producer may take long between the pieces of a record: longer than a segment stays open.
#[test]
fn a_deadline_does_not_cut_a_record_between_its_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, ledger) = start(dir.path());
    send(&engine, draft(), 1);
    std::thread::sleep(Duration::from_millis(2300));
    send(&engine, Piece::More, 2);
    engine.finish(None).unwrap();
    assert_eq!(ledger.balance().last_error, None);
    assert_eq!(sealed(dir.path()), [[1, 1, 1, 2, 2, 2]]);
}

/// The pieces are one thread's, the flush another's.
#[test]
fn a_flush_does_not_cut_a_record_between_its_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, ledger) = start(dir.path());
    send(&engine, draft(), 1);
    let flush = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || engine.flush(None))
    };
    std::thread::sleep(Duration::from_millis(300));
    assert!(!flush.is_finished());
    send(&engine, Piece::More, 2);
    flush.join().unwrap().unwrap();
    assert_eq!(sealed(dir.path()), [[1, 1, 1, 2, 2, 2]]);
    assert_eq!((ledger.balance().counters.segments, ledger.balance().last_error), (1, None));
    engine.finish(None).unwrap();
}

/// An asker is not left waiting where the record it came into is given up.
#[test]
fn a_flush_ends_with_the_record_that_is_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, ledger) = start(dir.path());
    send(&engine, draft(), 1);
    let flush = {
        let engine = Arc::clone(&engine);
        std::thread::spawn(move || engine.flush(None))
    };
    std::thread::sleep(Duration::from_millis(50));
    engine.ring.signal(Piece::Abandon);
    flush.join().unwrap().unwrap();
    assert_eq!((ledger.balance().counters.records, ledger.balance().last_error), (0, None));
    engine.finish(None).unwrap();
    assert_eq!(sealed(dir.path()), Vec::<Vec<u8>>::new());
}
