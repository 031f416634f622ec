//! What the model's threads hand to a device's copier, and the ring that their tensors wait in. One lock holds both, so
//! that tensors are copied in the order of their ranges.

use crate::device_ring::{DeviceRing, Range};
use crate::event::Event;
use capture_core::device::{Outcome, Room};
use capture_core::ring::Patience;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The copier looks for work by itself for so long after it had some, so that the model's threads need not wake it.
const LINGER: Duration = Duration::from_millis(50);
const NAP: Duration = Duration::from_micros(500);

/// A tensor on its way.
pub(crate) struct Job {
    pub(crate) room: Room,
    /// Where it lies packed; `None` where the model's stream itself writes to the room.
    pub(crate) range: Option<Range>,
    /// When it does.
    pub(crate) ready: Event,
    /// What keeps the source alive until then.
    pub(crate) keep: Option<Box<dyn Send>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Once it is allocated.
    pub(crate) ring: Option<DeviceRing>,
    jobs: VecDeque<Job>,
    sleeps: bool,
    pub(crate) has_copier: bool,
    /// Why the device can capture nothing any more.
    pub(crate) failure: Option<String>,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
}

/// Why there is no range.
pub(crate) enum NoRange {
    /// And no patience.
    Full,
    /// There never will be.
    TooLarge,
    /// There was none for so long.
    Stuck(Duration),
    /// The device failed.
    Failed(String),
}

impl Queue {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A range of the ring, which is there.
    pub(crate) fn reserve<'q>(
        &'q self,
        mut state: MutexGuard<'q, State>,
        n_bytes: usize,
        patience: Patience,
    ) -> Result<(MutexGuard<'q, State>, Range), NoRange> {
        let mut deadline = None;
        loop {
            if let Some(failure) = &state.failure {
                return Err(NoRange::Failed(failure.clone()));
            }
            if let Some(range) = state.ring.as_mut().and_then(|ring| ring.reserve(n_bytes as u64)) {
                return Ok((state, range));
            }
            if state.ring.as_ref().is_none_or(|ring| !ring.can_ever_hold(n_bytes as u64)) {
                return Err(NoRange::TooLarge);
            }
            state = match patience {
                Patience::None => return Err(NoRange::Full),
                Patience::Forever => self.room.wait(state).unwrap_or_else(PoisonError::into_inner),
                Patience::For(limit) => {
                    let now = Instant::now();
                    let left = deadline.get_or_insert(now + limit).saturating_duration_since(now);
                    if left.is_zero() {
                        return Err(NoRange::Stuck(limit));
                    }
                    self.room.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Gives a job to the copier.
    pub(crate) fn push(&self, mut state: MutexGuard<'_, State>, job: Job) {
        state.jobs.push_back(job);
        if std::mem::take(&mut state.sleeps) {
            drop(state);
            self.work.notify_one();
        }
    }

    /// The copier's next job, if there is one now.
    pub(crate) fn take(&self) -> Option<Job> {
        self.lock().jobs.pop_front()
    }

    /// The copier's next job, when there is one.
    pub(crate) fn wait(&self) -> Job {
        let since = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return job;
            }
            state = if since.elapsed() < LINGER {
                self.work.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0
            } else {
                state.sleeps = true;
                self.work.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// The oldest range was copied.
    pub(crate) fn free(&self) {
        if let Some(ring) = self.lock().ring.as_mut() {
            ring.free();
        }
        self.room.notify_all();
    }

    /// The device can capture nothing any more: neither what waits nor what comes. The first reason stays.
    pub(crate) fn fail(&self, reason: &str) {
        let mut state = self.lock();
        state.failure.get_or_insert_with(|| reason.to_owned());
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.room.notify_all();
        for job in jobs {
            // Into the room itself the stream may still write.
            let failed = if job.range.is_some() { Outcome::Failed } else { Outcome::Unknown };
            job.room.settle(failed(reason.to_owned()));
        }
    }
}
