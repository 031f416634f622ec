//! Streams: each a thread that takes its work in order and takes its time. A gate holds one until a test opens it.

use crate::settings::{linger, lock};
use crate::token::Token;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A piece of work.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;

pub(crate) enum Item {
    Run(Work),
    Signal(Token),
    Wait(Token),
}

#[derive(Default)]
struct Line {
    items: VecDeque<Item>,
    is_closed: bool,
    /// How many items may still run; all where `None`.
    gate: Option<u64>,
}

pub(crate) struct Stream {
    /// The handle of its context.
    pub(crate) context: usize,
    /// Whether the legacy default stream and it wait for each other.
    pub(crate) is_blocking: bool,
    line: Mutex<Line>,
    changed: Condvar,
    /// The graph that it is being captured into.
    pub(crate) graph: Mutex<Option<usize>>,
}

impl Stream {
    pub(crate) fn start(context: usize, is_blocking: bool) -> Arc<Self> {
        let stream = Arc::new(Self {
            context,
            is_blocking,
            line: Mutex::default(),
            changed: Condvar::new(),
            graph: Mutex::new(None),
        });
        let worker = Arc::clone(&stream);
        let thread = std::thread::Builder::new().name("cuda-sim".into());
        thread.spawn(move || worker.work()).expect("the simulator needs a thread for each stream");
        stream
    }

    fn work(&self) {
        while let Some(item) = self.next() {
            match item {
                Item::Wait(token) => token.wait(),
                Item::Signal(token) => token.set(),
                Item::Run(work) => {
                    linger();
                    work();
                }
            }
        }
    }

    fn next(&self) -> Option<Item> {
        let mut line = lock(&self.line);
        loop {
            if line.gate != Some(0)
                && let Some(item) = line.items.pop_front()
            {
                if let (Some(left), Item::Run(_)) = (&mut line.gate, &item) {
                    *left -= 1;
                }
                return Some(item);
            }
            if line.is_closed && line.items.is_empty() {
                return None;
            }
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn push(&self, item: Item) {
        lock(&self.line).items.push_back(item);
        self.changed.notify_all();
    }

    /// That all it was given so far is done.
    pub(crate) fn mark(&self) -> Token {
        let token = Token::default();
        self.push(Item::Signal(token.clone()));
        token
    }

    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.line).items.is_empty()
    }

    pub(crate) fn set_gate(&self, gate: Option<u64>) {
        lock(&self.line).gate = gate;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        lock(&self.line).is_closed = true;
        self.changed.notify_all();
    }
}
