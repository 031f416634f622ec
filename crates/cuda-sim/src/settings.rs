//! How unkind it is at the moment: seed, delays, calls that fail, devices.

use crate::code::{Code, Done};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks what no panic can leave half-done in a way that matters to a test.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

static RANDOM: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(number("CUDA_SIM_SEED", 1)));
static DELAY_US: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(number("CUDA_SIM_DELAY_US", 200)));

pub(crate) fn set_seed(seed: u64) {
    RANDOM.store(seed, SeqCst);
}

pub(crate) fn set_delay_us(most: u64) {
    DELAY_US.store(most, SeqCst);
}

/// A number that the seed and the count of those before give.
pub(crate) fn random() -> u64 {
    let mut z = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream takes its time before each piece of work.
pub(crate) fn linger() {
    match DELAY_US.load(SeqCst) {
        0 => {}
        most => std::thread::sleep(Duration::from_micros(random() % most)),
    }
}

static HELD: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Holds every copy to the host before it begins, or lets them all go on.
pub(crate) fn hold_copies_to_host(holds: bool) {
    *lock(&HELD.0) = holds;
    HELD.1.notify_all();
}

/// Where a copy to the host is held.
pub(crate) fn await_release() {
    let mut held = lock(&HELD.0);
    while *held {
        held = HELD.1.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Devices of the machine.
pub(crate) fn devices() -> i32 {
    number("CUDA_SIM_DEVICES", 2) as i32
}

/// As `cuDriverGetVersion` says it.
pub(crate) fn driver_version() -> i32 {
    number("CUDA_SIM_DRIVER", 13_020) as i32
}

/// Compute capability of every device.
pub(crate) fn capability() -> (i32, i32) {
    let text = std::env::var("CUDA_SIM_CAPABILITY").unwrap_or_default();
    let parts =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.unwrap_or((12, 0))
}

/// What every device is called.
pub(crate) fn device_name() -> String {
    std::env::var("CUDA_SIM_NAME").unwrap_or_else(|_| "Simulated RTX PRO 6000".to_owned())
}

/// A call that is to fail once.
struct Planned {
    code: Code,
    /// After so many of its name.
    after: u64,
}

#[derive(Default)]
struct Calls {
    counts: BTreeMap<&'static str, u64>,
    planned: BTreeMap<String, Planned>,
}

static CALLS: LazyLock<Mutex<Calls>> = LazyLock::new(Mutex::default);

/// Counts a call; the error that was planned for it.
pub(crate) fn called(name: &'static str) -> Done {
    let mut calls = lock(&CALLS);
    *calls.counts.entry(name).or_default() += 1;
    let Some(planned) = calls.planned.get_mut(name) else { return Ok(()) };
    if planned.after > 0 {
        planned.after -= 1;
        return Ok(());
    }
    let code = planned.code;
    calls.planned.remove(name);
    Err(code)
}

pub(crate) fn plan_failure(name: &str, code: Code, after: u64) {
    lock(&CALLS).planned.insert(name.to_owned(), Planned { code, after });
}

pub(crate) fn count(name: &str) -> u64 {
    lock(&CALLS).counts.get(name).copied().unwrap_or(0)
}
