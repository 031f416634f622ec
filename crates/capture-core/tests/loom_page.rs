//! The control page's protocols in every interleaving of a command and a process that loom can make.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p capture-core --release --target-dir target/loom --test loom_page`
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test")]

use capture_core::page::{Bell, Block, Word};
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// What both map: the words, and a block of eight bytes.
struct Page {
    switch: AtomicU64,
    steps: AtomicU64,
    due: AtomicU64,
    current: AtomicU64,
    slots: [[AtomicU64; 3]; 2],
}

impl Page {
    fn new(steps: u64) -> Arc<Self> {
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Self {
            switch: AtomicU64::new(0),
            steps: AtomicU64::new(steps),
            due: AtomicU64::new(u64::MAX),
            current: AtomicU64::new(0),
            slots: [words(), words()],
        })
    }

    fn bell(&self) -> Bell<'_, AtomicU64> {
        Bell { switch: &self.switch, steps: &self.steps, due: &self.due }
    }

    fn block(&self) -> Block<'_, AtomicU64> {
        Block::new(&self.current, [&self.slots[0], &self.slots[1]])
    }

    /// The command asks that a process begins at the step `first`; 0 only arms.
    fn ask(&self, first: u64) {
        self.block().write(&first.to_le_bytes()).unwrap();
        self.bell().knock(first);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Tap,
    Step,
    Writer,
}

/// A process: what it was asked last, where it began, and whether it was too late to.
#[derive(Default)]
struct Process {
    heeded: u64,
    first: Option<u64>,
    began: Option<u64>,
    late: bool,
}

impl Process {
    /// What of `heed` bears on it: a step begins or is too late, a tap is too late, a writer neither.
    fn look(&mut self, page: &Page, at: At) {
        page.bell().heed(|| {
            if page.block().generation() != self.heeded {
                let text = page.block().read().unwrap().unwrap();
                self.heeded = text.generation;
                self.first = Some(u64::from_le_bytes(text.bytes.try_into().unwrap()));
            }
            let n = page.steps.load(SeqCst);
            match self.first {
                Some(first) if first > 0 && self.began.is_none() => {
                    if at == At::Step && n == first {
                        self.began = Some(n);
                    }
                    self.late |= at != At::Writer && self.began.is_none() && n >= first;
                    // Only a step knows that it was missed.
                    if at != At::Step || n < first { first } else { u64::MAX }
                }
                _ => u64::MAX,
            }
        });
    }

    fn tap(&mut self, page: &Page) {
        if page.switch.load(std::sync::atomic::Ordering::Relaxed) != 0 {
            self.look(page, At::Tap);
        }
    }

    fn step(&mut self, page: &Page) {
        if page.bell().step() {
            self.look(page, At::Step);
        }
    }
}

#[track_caller]
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Two texts are written while one is read: the first look may find its slot overwritten, the second does not.
#[test]
fn a_reader_finds_a_whole_text_at_its_second_look_at_the_latest() {
    check(|| {
        let page = Page::new(0);
        page.block().write(b"first...").unwrap();
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                page.block().write(b"second..").unwrap();
                page.block().write(b"third").unwrap();
            })
        };
        let text = page.block().read().unwrap().unwrap();
        let expected: [&[u8]; 3] = [b"first...", b"second..", b"third"];
        assert_eq!(text.bytes, expected[text.generation as usize - 1]);
        writer.join().unwrap();
    });
}

/// Whatever the process was at when a request came: its next tap takes it.
#[test]
fn no_request_is_lost_to_taps() {
    check(|| {
        let page = Page::new(0);
        let command = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                page.ask(0);
                page.ask(7);
            })
        };
        let mut process = Process::default();
        process.tap(&page);
        process.tap(&page);
        command.join().unwrap();
        process.tap(&page);
        assert_eq!(process.first, Some(7));
        assert_eq!(page.switch.load(SeqCst), 0, "and then it has peace");
        assert_eq!(page.due.load(SeqCst), 7);
    });
}

/// The same for a process that only steps.
#[test]
fn no_request_is_lost_to_steps() {
    check(|| {
        let page = Page::new(0);
        let command = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                page.ask(0);
                page.ask(0);
            })
        };
        let mut process = Process::default();
        process.step(&page);
        command.join().unwrap();
        process.step(&page);
        assert_eq!(process.heeded, 2);
    });
}

/// The command finds the count below the step it has said: then the process begins there. And whoever cannot, says so.
#[test]
fn a_process_whose_count_is_below_the_step_begins_at_it() {
    check(|| {
        let page = Page::new(0);
        let process = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                let mut process = Process::default();
                for _ in 0..3 {
                    process.step(&page);
                }
                process
            })
        };
        page.ask(2);
        // The barrier, which makes the process's fence as well: there it stands in `light_fence`.
        <AtomicU64 as Word>::fence(SeqCst);
        let below = page.steps.load(SeqCst) < 2;
        let mut process = process.join().unwrap();
        if below {
            assert_eq!(process.began, Some(2));
        }
        process.tap(&page);
        assert!(process.began == Some(2) || process.late, "it began, or says that it could not");
    });
}

/// Its writer looks at the same time, finds the older request, and must not put off the step that the newer has said.
#[test]
fn a_look_at_an_older_request_does_not_put_off_the_step_of_a_newer() {
    check(|| {
        let page = Page::new(0);
        let process = Arc::new(Mutex::new(Process::default()));
        page.ask(0);
        let writer = {
            let (page, process) = (Arc::clone(&page), Arc::clone(&process));
            thread::spawn(move || process.lock().unwrap().look(&page, At::Writer))
        };
        let model = {
            let (page, process) = (Arc::clone(&page), Arc::clone(&process));
            thread::spawn(move || {
                if page.bell().step() {
                    process.lock().unwrap().look(&page, At::Step);
                }
            })
        };
        page.ask(1);
        <AtomicU64 as Word>::fence(SeqCst);
        let below = page.steps.load(SeqCst) < 1;
        writer.join().unwrap();
        model.join().unwrap();
        if below {
            assert_eq!(process.lock().unwrap().began, Some(1));
        }
    });
}
