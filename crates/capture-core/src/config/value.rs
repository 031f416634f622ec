//! The values that single variables may have, and the limits they keep.

use super::quantity::{parse_size, parse_time, show_size, show_time};
use std::{fmt, str::FromStr, time::Duration};

/// Whether a process captures, and whether it can be made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// Off; taps outside compiled regions can be switched on from inside the process.
    #[default]
    Off,
    /// Off; taps inside compiled regions and CUDA graphs are kept, so that they can be switched on too.
    Standby,
    /// On from the start.
    On,
    /// Off, and nothing can switch it on.
    Never,
}

/// How much of the disk a capture leaves free.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MinFree {
    /// A share of the disk, from 0 to below 1.
    Share(f64),
    /// So many bytes.
    Bytes(u64),
}

impl MinFree {
    /// The limit in bytes on a disk of `total` bytes.
    #[must_use]
    pub fn bytes_of(self, total: u64) -> u64 {
        match self {
            Self::Share(share) => (total as f64 * share) as u64,
            Self::Bytes(n_bytes) => n_bytes,
        }
    }
}

/// What a record does that finds the ring full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// Wait, at most so long; then the capture ends.
    Wait(Duration),
    /// Wait however long it takes.
    WaitForever,
    /// Never wait: the record is lost, counted and named.
    Drop,
}

/// The smallest ring that is of use.
const MIN_RING: u64 = 64 << 10;
/// The largest ring: what is above is a slip of the unit.
const MAX_RING: u64 = 1 << 40;
/// The longest wait that has an end.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn budget(text: &str) -> Result<u64, &'static str> {
    match parse_size(text) {
        Some(0) => Err("a size of at least 1 byte, as TPCAPTURE=off is what writes nothing"),
        Some(n_bytes) => Ok(n_bytes),
        None => Err("a size such as 10GiB, 500MB or 1e9 (bytes)"),
    }
}

pub(super) fn ring(text: &str) -> Result<usize, &'static str> {
    match parse_size(text) {
        Some(n_bytes @ MIN_RING..=MAX_RING) => {
            usize::try_from(n_bytes).map_err(|_| "a size that fits the memory")
        }
        Some(0..MIN_RING) => Err("a size of at least 64KiB, as less holds hardly a tensor"),
        Some(_) => Err("a size of at most 1TiB, as it is memory"),
        None => Err("a size such as 256MiB, 1GB or 1e9 (bytes)"),
    }
}

/// As [`ring`], and 0 for none.
pub(super) fn device_ring(text: &str) -> Result<usize, &'static str> {
    match parse_size(text) {
        Some(0) => Ok(0),
        Some(1..MIN_RING) => Err(
            "0 (the model's stream waits for the copy to the host) or a size of at least 64KiB, as less holds hardly a tensor",
        ),
        _ => ring(text),
    }
}

pub(super) fn strict(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "0" | "off" | "false" => Ok(false),
        "1" | "on" | "true" => Ok(true),
        _ => Err("0 or 1"),
    }
}

impl FromStr for MinFree {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a share from 0% to below 100%, or a size such as 20GiB";
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.trim().parse().map_err(|_| EXPECTED)?;
                if (0.0..100.0).contains(&percent) { Ok(Self::Share(percent / 100.0)) } else { Err(EXPECTED) }
            }
            None => parse_size(text).map(Self::Bytes).ok_or(EXPECTED),
        }
    }
}

impl fmt::Display for MinFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // Dividing by 100 and multiplying again may leave 28.999999999999996 of 29.
            Self::Share(share) => write!(f, "{}%", (share * 1e8).round() / 1e6),
            Self::Bytes(n_bytes) => f.write_str(&show_size(n_bytes)),
        }
    }
}

impl FromStr for OnFull {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "wait:TIME such as wait:10s, wait:forever or drop";
        let text = text.to_ascii_lowercase();
        if text == "drop" {
            return Ok(Self::Drop);
        }
        let time = text.strip_prefix("wait:").ok_or(EXPECTED)?.trim();
        if time == "forever" {
            return Ok(Self::WaitForever);
        }
        match parse_time(time).ok_or(EXPECTED)? {
            Duration::ZERO => Err("a time above 0, as drop is what never waits"),
            time if time > MAX_WAIT => Err("a time of at most 24h, as wait:forever is what waits longer"),
            time => Ok(Self::Wait(time)),
        }
    }
}

impl fmt::Display for OnFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Wait(time) => write!(f, "wait:{}", show_time(time)),
            Self::WaitForever => f.write_str("wait:forever"),
            Self::Drop => f.write_str("drop"),
        }
    }
}
