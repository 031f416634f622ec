//! The hook of an engine written in Rust, from the environment to files that the safetensors crate reads.
//!
//! One test, as switch, taps and configuration belong to the process.

#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "makes views")]

use capture_core::control::{self, Aim, SwitchError};
use capture_core::{Dtype, Element, Hash, Manifest, Tap, TensorView, digested, notice};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

static Q: Tap = Tap::new("layers.0.q");
static SAME_NAME: Tap = Tap::new("layers.0.q");
static STATS: Tap = Tap::new("layers.0.stats");
static HASH: Tap = Tap::new("layers.0.hash");
static UNNAMED: Tap = Tap::new("other");

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn say(line: &str) {
    SAID.lock().unwrap().push(line.to_owned());
}

fn said() -> Vec<String> {
    std::mem::take(&mut SAID.lock().unwrap())
}

/// Two columns of three rows of halves, column by column in memory.
fn columns(memory: &[u16; 6]) -> TensorView<'_> {
    // SAFETY: three rows and two columns of six items.
    unsafe {
        TensorView::new(memory.as_ptr().cast(), Element::Plain(Dtype::F16), &[3, 2], &[1, 3], "cpu").unwrap()
    }
}

/// Shape and bytes of every tensor of the run's sealed segments.
fn tensors(run: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(run).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let bytes = std::fs::read(&path).unwrap();
            for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().iter() {
                assert_eq!(tensor.dtype(), Dtype::F16);
                found.insert(name.to_owned(), (tensor.shape().to_vec(), tensor.data().to_vec()));
            }
        }
    }
    found
}

fn lines(run: &Path) -> Vec<u8> {
    let mut entries = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    std::fs::read(entries.find(|path| path.extension().is_some_and(|e| e == "jsonl")).unwrap()).unwrap()
}

fn manifest(run: &Path) -> Manifest {
    let entries = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let path = entries.into_iter().find(|path| path.extension().is_some_and(|e| e == "json")).unwrap();
    Manifest::parse(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_engine_in_rust_captures() {
    let dir = tempfile::tempdir().unwrap();
    let env = BTreeMap::from([
        ("TPCAPTURE", "*.q[limit=3], *.stats=stats, *.hash=hash, *.never"),
        ("TPCAPTURE_DIR", dir.path().to_str().unwrap()),
        ("TPCAPTURE_RUN", "run"),
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
    ]);
    notice::set_sink(say);
    control::start(|name| env.get(name).map(Into::into));
    let run = dir.path().join("run");

    // Nothing is written before the first record.
    assert_eq!((control::status().state, run.exists()), ("armed", false));
    let mut memory = [1, 2, 3, 4, 5, 6];
    UNNAMED.capture(&columns(&memory));
    assert_eq!((control::status().state, run.exists()), ("armed", false));

    Q.capture(&columns(&memory));
    // The record is made: the model may do what it likes with its memory.
    memory = [10, 20, 30, 40, 50, 60];
    SAME_NAME.capture(&columns(&memory));
    capture_core::step();
    assert_eq!(Q.try_capture(&columns(&memory)), Ok(()));
    // Not wanted is no error.
    assert_eq!(Q.try_capture(&columns(&memory)), Ok(()));
    STATS.capture(&columns(&memory));
    HASH.capture(&columns(&memory));

    assert_eq!(control::flush(), None);
    let little_endian =
        |halves: [u16; 6]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let rows = |halves| (vec![3, 2], little_endian(halves));
    let expected = BTreeMap::from([
        ("step0/layers.0.q".to_owned(), rows([1, 4, 2, 5, 3, 6])),
        ("step0/layers.0.q#1".to_owned(), rows([10, 40, 20, 50, 30, 60])),
        ("step1/layers.0.q".to_owned(), rows([10, 40, 20, 50, 30, 60])),
    ]);
    assert_eq!(tensors(&run), expected);

    let status = control::status();
    assert_eq!((status.state, status.step, status.who.rank), ("capturing", 1, Some(1)));
    assert_eq!((status.counters.records, status.counters.refused), (5, 0));

    // Flushed, and before anything is sealed at the end: the lines of the records that have no bytes.
    let (who, digested, errors) = digested::decode(&lines(&run)).unwrap().unwrap();
    assert_eq!((who.rank, errors), (Some(1), vec![]));
    let known =
        digested.iter().map(|d| (d.record.tap.as_str(), d.record.step, d.record.seq, d.shape.as_slice()));
    assert_eq!(
        known.collect::<Vec<_>>(),
        [("layers.0.stats", 1, 3, &[3, 2][..]), ("layers.0.hash", 1, 4, &[3, 2][..])]
    );
    // Six subnormal halves of 10 to 60 times 2^-24: their mean is 35, their mean square 9100 / 6.
    let unit = 2f64.powi(-24);
    let stats = digested[0].digest.stats().unwrap();
    let finite = stats.finite.unwrap();
    assert_eq!((stats.n, finite.min, finite.max, finite.mean), (6, 10.0 * unit, 60.0 * unit, 35.0 * unit));
    assert!((finite.rms / unit - (9100.0f64 / 6.0).sqrt()).abs() < 1e-12);
    // By the formula in Python, of the record's 12 bytes.
    assert_eq!(digested[1].digest.hash(), Some(Hash(0xbb8492f657c3113e)));

    // One capture at a time.
    let aim = || Aim { selection: "*.q[head=1]".parse().unwrap(), ..Aim::everything(dir.path().to_owned()) };
    let on = SwitchError::On { run: "run".into(), dir: dir.path().to_owned() };
    assert_eq!(control::switch_on(aim()), Err(on));

    assert_eq!(control::switch_off("off"), None);
    assert_eq!(said(), ["rule \"*.never\" captured nothing"]);
    let ended = manifest(&run);
    assert_eq!(
        (ended.end_reason.as_deref(), ended.rank, ended.identity_from.as_str()),
        (Some("off"), Some(1), "RANK")
    );
    assert_eq!(ended.rules.iter().map(|rule| rule.records).collect::<Vec<_>>(), [3, 1, 1, 0]);
    Q.capture(&columns(&memory));
    assert_eq!((control::status().state, tensors(&run).len()), ("ended", 3));

    // The next one: its own steps, its own limits, a name of its own, and threads that share a tap.
    let second = control::switch_on(aim()).unwrap();
    assert_eq!(second, dir.path().join("run-2"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Q.capture(&columns(&memory)));
        }
    });
    assert_eq!(control::switch_off("off"), None);
    let first_row = (vec![1, 2], little_endian([10, 40, 0, 0, 0, 0])[..4].to_vec());
    let names = ["step0/layers.0.q", "step0/layers.0.q#1", "step0/layers.0.q#2", "step0/layers.0.q#3"];
    assert_eq!(tensors(&second), names.map(|name| (name.to_owned(), first_row.clone())).into());
    assert_eq!(manifest(&second).counters.records, 4);
    assert_eq!(said(), Vec::<String>::new());
}
