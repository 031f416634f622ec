//! A process that is switched through its own control page, as a command does it from outside.
//!
//! Page, taps and state belong to the process: the tests take turns, and each leaves the process switched off.

#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "makes views")]

use capture_core::answer::State;
use capture_core::page::{self, Other};
use capture_core::request::{By, Op};
use capture_core::{Answer, Dtype, Element, Manifest, Request, Tap, TensorView, control, notice};
use safetensors::SafeTensors;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

static Q: Tap = Tap::new("q");
static MLP: Tap = Tap::new("mlp");
static TURN: Mutex<()> = Mutex::new(());
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The process, for the time of one test.
struct Process {
    _turn: MutexGuard<'static, ()>,
    other: Other,
    dir: tempfile::TempDir,
    id: u64,
}

fn path() -> PathBuf {
    format!("/proc/self/fd/{}", page::descriptor().unwrap()).into()
}

impl Process {
    fn start() -> Self {
        static ONCE: OnceLock<()> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        ONCE.get_or_init(|| {
            notice::set_sink(|line| SAID.lock().unwrap().push(line.to_owned()));
            control::start(|name| match name {
                "RANK" => Some("1".into()),
                "WORLD_SIZE" => Some("2".into()),
                "TPCAPTURE_RING" => Some("1MiB".into()),
                "TPCAPTURE_MIN_FREE" => Some("0%".into()),
                _ => None,
            });
        });
        static IDS: Mutex<u64> = Mutex::new(0);
        let id = {
            let mut ids = IDS.lock().unwrap();
            *ids += 1;
            *ids
        };
        let other = Other::open(&path()).unwrap();
        Self { _turn: turn, other, dir: tempfile::tempdir().unwrap(), id }
    }

    /// Everything, for ever, not yet said where to begin.
    fn on(&self) -> Request {
        Request {
            op: Op::On,
            id: self.id,
            run: format!("run-{}", self.id),
            dir: Some(self.dir.path().into()),
            by: By { pid: 77, user: "ada".into(), host: "h".into() },
            ..Request::default()
        }
    }

    fn ask(&self, request: &Request) -> u64 {
        self.other.try_lock().unwrap().ask(request).unwrap()
    }

    fn answer(&self) -> Answer {
        self.other.answer().unwrap().unwrap()
    }

    /// One forward pass.
    fn pass(&self) {
        capture_core::step();
        fire(&Q);
        fire(&MLP);
    }

    /// What the run has, `step/tap`, once it is sealed.
    fn captured(&self) -> BTreeSet<String> {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.answer().sealed {
            assert!(Instant::now() < until, "{:?}", self.answer());
            std::thread::sleep(Duration::from_millis(2));
        }
        tensors(&self.run())
    }

    fn run(&self) -> PathBuf {
        self.dir.path().join(format!("run-{}", self.id))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask(&Request { op: Op::Off, ..Request::default() });
        fire(&Q);
        control::flush();
    }
}

fn fire(tap: &Tap) {
    let bytes = [1u8, 2, 3];
    // SAFETY: three bytes, alive as long as the view.
    let view = unsafe { TensorView::new(bytes.as_ptr(), Element::Plain(Dtype::U8), &[3], &[1], "cpu") };
    tap.capture(&view.unwrap());
}

fn files(run: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(run).map_or_else(|_| Vec::new(), |entries| entries.map(|e| e.unwrap().path()).collect())
}

fn tensors(run: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in files(run).iter().filter(|path| path.extension().is_some_and(|e| e == "safetensors")) {
        let bytes = std::fs::read(path).unwrap();
        names.extend(SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(str::to_owned));
    }
    names
}

fn manifest(run: &Path) -> Manifest {
    let manifests: Vec<_> =
        files(run).into_iter().filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    let [path] = &manifests[..] else { panic!("one manifest: {manifests:?}") };
    Manifest::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn between_the_steps_that_it_captures_taps_are_as_off() {
    let process = Process::start();
    let run = process.run().file_name().unwrap().to_str().unwrap().to_owned();
    let aim = control::Aim {
        run: Some(run),
        steps: "2-6/2".parse().unwrap(),
        ..control::Aim::everything(process.dir.path().into())
    };
    control::switch_on(aim).unwrap();
    let awake: Vec<bool> = (0..8)
        .map(|_| {
            process.pass();
            process.other.is_on()
        })
        .collect();
    assert_eq!(awake, [false, true, false, true, false, true, false, false]);
    let all = ["step2/q", "step2/mlp", "step4/q", "step4/mlp", "step6/q", "step6/mlp"];
    assert_eq!(process.captured(), names(&all));
    assert_eq!(process.answer().reason.as_deref(), Some("steps done"));
}

#[test]
fn a_capture_between_its_steps_hears_what_it_is_told() {
    let process = Process::start();
    let aim = control::Aim {
        steps: "1000000".parse().unwrap(),
        ..control::Aim::everything(process.dir.path().into())
    };
    control::switch_on(aim).unwrap();
    process.pass();
    assert!(!process.other.is_on());
    process.ask(&Request { first: Some(process.other.steps() + 1), ..process.on() });
    process.pass();
    assert_eq!(process.answer().state, State::Capturing);
    process.ask(&Request { op: Op::Off, ..Request::default() });
    process.pass();
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp"]));
}

#[test]
fn it_begins_at_the_step_that_was_said_and_ends_after_as_many_as_were_asked_for() {
    let process = Process::start();
    process.pass();
    let generation = process.ask(&process.on());
    assert_ne!(process.answer().heeded, generation, "it has not looked yet");
    process.pass();
    let answer = process.answer();
    assert_eq!((answer.heeded, answer.refused, answer.meant), (generation, None, true));
    assert_eq!(
        (answer.state, answer.id, answer.rank, answer.world),
        (State::Armed, process.id, Some(1), Some(2))
    );
    assert_eq!((answer.run, answer.by.unwrap().user), (Some(process.run()), "ada".to_owned()));
    assert!(!process.other.is_on() && !process.other.is_knocked(), "armed is as off");

    let first = process.other.steps() + 3;
    process.ask(&Request { first: Some(first), steps: Some(2), ..process.on() });
    process.pass();
    assert_eq!((process.answer().first, process.answer().began_at), (Some(first), None));
    process.pass();
    assert!(!process.run().exists());
    // The taps before the step is marked are of the pass before.
    fire(&Q);
    process.pass();
    let answer = process.answer();
    assert_eq!((answer.state, answer.began_at, answer.late_at), (State::Capturing, Some(first), None));
    let last = process.other.last_tap().unwrap().unwrap();
    assert_eq!((last.tap.as_str(), last.step, last.call, last.seq), ("mlp", 1, 0, 1));
    process.pass();
    process.pass();
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp", "step2/q", "step2/mlp"]));
    let answer = process.answer();
    assert_eq!((answer.state, answer.reason.as_deref()), (State::Ended, Some("steps done")));
    assert_eq!((answer.counters.records, answer.counters.bytes), (4, 12));
    let manifest = manifest(&process.run());
    assert_eq!((manifest.end_reason.as_deref(), manifest.rank), (Some("steps done"), Some(1)));
    assert!(!process.other.is_on());
}

/// A request that the process never saw as armed is whole by itself.
#[test]
fn arming_may_be_left_out() {
    let process = Process::start();
    process.ask(&Request { first: Some(process.other.steps() + 1), ..process.on() });
    process.pass();
    process.ask(&Request { op: Op::Off, ..Request::default() });
    // Nobody fires: the writer looks.
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp"]));
    assert_eq!(process.answer().reason.as_deref(), Some("off"));
}

#[test]
fn who_hears_too_late_says_so_and_begins_where_it_is_told_next() {
    let process = Process::start();
    process.ask(&process.on());
    process.pass();
    let missed = process.other.steps();
    process.ask(&Request { first: Some(missed), ..process.on() });
    fire(&Q);
    let answer = process.answer();
    assert_eq!((answer.state, answer.late_at, answer.began_at), (State::Armed, Some(missed), None));
    process.ask(&Request { first: Some(missed + 2), ..process.on() });
    process.pass();
    assert_eq!((process.answer().late_at, process.answer().first), (None, Some(missed + 2)));
    process.pass();
    assert_eq!(process.answer().began_at, Some(missed + 2));
    process.ask(&Request { op: Op::Off, ..Request::default() });
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp"]));
}

/// Another rank was late: what this one has captured is of no use to anybody.
#[test]
fn who_began_where_others_could_not_begins_anew_and_leaves_no_trace() {
    for (steps, passes) in [(None, 1), (Some(1), 2)] {
        let process = Process::start();
        let before = process.other.steps();
        let on = Request { steps, ..process.on() };
        process.ask(&Request { first: Some(before + 1), ..on.clone() });
        (0..passes).for_each(|_| process.pass());
        if steps.is_some() {
            process.captured();
        } else {
            control::flush();
        }
        assert_eq!(files(&process.run()).len(), 2, "a segment and the manifest");
        process.ask(&Request { first: Some(before + 5), ..on.clone() });
        (passes..4).for_each(|_| process.pass());
        assert_eq!((process.answer().state, process.answer().first), (State::Armed, Some(before + 5)));
        let until = Instant::now() + Duration::from_secs(20);
        while !files(&process.run()).is_empty() {
            assert!(Instant::now() < until, "{:?}", files(&process.run()));
            std::thread::sleep(Duration::from_millis(2));
        }
        process.pass();
        // The same request once more changes nothing.
        process.ask(&Request { first: Some(before + 5), ..on });
        process.pass();
        process.ask(&Request { op: Op::Off, ..Request::default() });
        let step2 = if steps.is_some() { &[][..] } else { &["step2/q", "step2/mlp"] };
        assert_eq!(process.captured(), names(&[&["step1/q", "step1/mlp"], step2].concat()));
        assert_eq!(process.answer().began_at, Some(before + 5));
    }
}

#[test]
fn re_aiming_ends_the_one_and_begins_the_other() {
    let mut process = Process::start();
    process.ask(&Request { first: Some(process.other.steps() + 1), select: "q".into(), ..process.on() });
    process.pass();
    let old = process.run();
    process.id += 1000;
    let first = process.other.steps() + 2;
    process.ask(&Request { first: Some(first), select: "mlp".into(), ..process.on() });
    process.pass();
    assert_eq!(process.answer().state, State::Armed);
    process.pass();
    process.ask(&Request { op: Op::Off, ..Request::default() });
    assert_eq!(process.captured(), names(&["step1/mlp"]));
    let until = Instant::now() + Duration::from_secs(20);
    while manifest(&old).end_reason.is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(2));
    }
    let reason = format!("re-aimed: run \"run-{}\" by ada (pid 77)", process.id);
    assert_eq!(manifest(&old).end_reason, Some(reason));
    assert_eq!(tensors(&old), names(&["step1/q"]));
}

#[test]
fn ranks_that_are_not_meant_go_on_as_they_were() {
    let process = Process::start();
    process.ask(&Request { ranks: "0,2-3".into(), first: Some(process.other.steps() + 1), ..process.on() });
    process.pass();
    let answer = process.answer();
    assert_eq!((answer.meant, answer.refused, answer.id), (false, None, answer.id));
    assert_ne!((answer.state, answer.id), (State::Armed, process.id));
    process.ask(&Request { ranks: "tp:1".into(), first: Some(process.other.steps() + 1), ..process.on() });
    process.pass();
    assert_eq!((process.answer().meant, process.answer().id), (true, process.id));
    process.ask(&Request { op: Op::Off, ranks: "0".into(), ..Request::default() });
    process.pass();
    assert!(process.other.is_on());
}

#[test]
fn a_request_that_makes_no_sense_is_refused_with_its_fault() {
    let process = Process::start();
    let refusal = |request: &Request| {
        process.ask(request);
        fire(&Q);
        process.answer().refused.unwrap()
    };
    let select = Request { select: "q[".into(), ..process.on() };
    assert!(refusal(&select).starts_with("selection \"q[\", column 2: expected "), "{}", refusal(&select));
    let ranks = Request { ranks: "x".into(), ..process.on() };
    assert!(refusal(&ranks).starts_with("ranks: expected all, ranks such as 0,3"));
    let run = Request { run: "../up".into(), ..process.on() };
    assert_eq!(refusal(&run), "expected a run name, found \"../up\"");
    let op = Request { op: Op::Unknown, ..process.on() };
    assert_eq!(refusal(&op), "expected op on or off");
    process.ask(&process.on());
    fire(&Q);
    assert_eq!((process.answer().refused, process.answer().state), (None, State::Armed));
}

#[test]
fn it_ends_by_itself() {
    let process = Process::start();
    let first = || Some(process.other.steps() + 1);
    process.ask(&Request { first: first(), limit_bytes: Some(7), ..process.on() });
    process.pass();
    process.pass();
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp"]));
    let reason = "limit reached: 6 bytes captured, the next record of 3 would exceed the limit of 7";
    assert_eq!(process.answer().reason.as_deref(), Some(reason));
    drop(process);

    let process = Process::start();
    let first = Some(process.other.steps() + 1);
    process.ask(&Request { first, for_ms: Some(30), ..process.on() });
    process.pass();
    // Nobody fires any more: the writer sees to it.
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp"]));
    assert_eq!(process.answer().reason.as_deref(), Some("time is up: 30ms"));
    drop(process);

    let process = Process::start();
    let first = Some(process.other.steps() + 1);
    process.ask(&Request { first, select: "q[limit=2], mlp[limit=1]".into(), ..process.on() });
    (0..3).for_each(|_| process.pass());
    assert!(
        !process.answer().sealed,
        "a whole step in which none was new and all were through has not passed"
    );
    process.pass();
    assert_eq!(process.captured(), names(&["step1/q", "step1/mlp", "step2/q"]));
    assert_eq!(process.answer().reason.as_deref(), Some("limit reached at every tap"));
}

#[test]
fn trace_keeps_nothing_and_shows_where_the_model_is() {
    let process = Process::start();
    process.ask(&Request {
        first: Some(process.other.steps() + 1),
        select: "*=trace".into(),
        ..process.on()
    });
    process.pass();
    process.pass();
    let last = process.other.last_tap().unwrap().unwrap();
    assert_eq!((last.tap.as_str(), last.step, last.seq), ("mlp", 2, 3));
    process.ask(&process.on());
    fire(&Q);
    assert!(!process.run().exists());
}

/// Any bytes over what a command may write: the process goes on, says so once, and can be switched again.
#[test]
fn a_page_that_was_scribbled_over_is_set_right() {
    let process = Process::start();
    let file = std::fs::OpenOptions::new().write(true).open(path()).unwrap();
    SAID.lock().unwrap().clear();
    let mut state = 88172645463325252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        // The switch, what is due, the holder, the request: its current word and both slots.
        for (from, to) in
            [(0x10, 0x18), (0x20, 0x28), (0x40, 0x50), (0x80, 0x88), (0x2000, 0x2040), (0x5000, 0x5040)]
        {
            for at in (from..to).step_by(8) {
                if random() % 2 == 0 {
                    file.write_all_at(&random().to_le_bytes(), at).unwrap();
                }
            }
        }
        process.pass();
        process.pass();
        assert!(!process.other.is_on() && !process.other.is_knocked(), "round {round}");
        assert!(!process.run().exists());
    }
    let said: Vec<_> =
        SAID.lock().unwrap().iter().filter(|line| line.starts_with("control page")).cloned().collect();
    assert_eq!(said, ["control page: what is there is no whole request; it is passed over"]);
    assert!(process.answer().refused.is_some());
    process.ask(&Request { first: Some(process.other.steps() + 1), ..process.on() });
    process.pass();
    assert_eq!(process.answer().began_at, Some(process.other.steps()));
    // While on, too: it stays on.
    file.write_all_at(&0u64.to_le_bytes(), 0x10).unwrap();
    process.pass();
    assert!(process.other.is_on());
}

#[test]
fn a_capture_from_inside_is_seen_and_ended_from_outside() {
    let process = Process::start();
    let run = control::switch_on(control::Aim::everything(process.dir.path().into())).unwrap();
    process.pass();
    let answer = process.answer();
    assert_eq!((answer.state, answer.id, answer.run.as_ref()), (State::Capturing, 0, Some(&run)));
    process.ask(&process.on());
    fire(&Q);
    // What is armed from outside keeps a second from inside out.
    let refused = control::switch_on(control::Aim::everything(process.dir.path().into()));
    assert!(refused.unwrap_err().to_string().starts_with("a capture is on already: run "));
}
