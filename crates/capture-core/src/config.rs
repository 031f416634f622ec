//! The configuration: the `TPCAPTURE` variables, read once when the process starts.

pub mod quantity;
mod value;

pub use value::{MinFree, OnFull, Switch};

use crate::name::is_run_name;
use crate::ranks::RankSet;
use crate::select::{Globs, SelectError, Selection};
use crate::steps::Steps;
use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

/// What the variables say, or the defaults where they say nothing.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether to capture.
    pub switch: Switch,
    /// What to capture; everything, unless `TPCAPTURE` is a selection.
    pub selection: Selection,
    /// Which ranks capture.
    pub ranks: RankSet,
    /// Where runs go.
    pub dir: PathBuf,
    /// The run's name where it is given: one path component, see [`is_run_name`].
    pub run: Option<String>,
    /// Which steps of the run are captured.
    pub steps: Steps,
    /// Globs of modules that a framework plugin taps without edits; they parse as [`Globs`]. No plugin reads them yet.
    pub attach: Option<String>,
    /// How many bytes one rank may write in a run.
    pub budget: u64,
    /// How much of the disk stays free.
    pub min_free: MinFree,
    /// Bytes of the host ring.
    pub ring: usize,
    /// Bytes of each device's ring; 0 for none: then tensors are copied to the host on the model's own stream.
    pub device_ring: usize,
    /// What happens where the ring is full.
    pub on_full: OnFull,
    /// Whether failures raise instead of being counted.
    pub strict: bool,
}

/// Every variable beside `TPCAPTURE` itself; those of the identity are read by `identity`.
pub const VARIABLES: [&str; 13] = [
    "TPCAPTURE_RANKS",
    "TPCAPTURE_DIR",
    "TPCAPTURE_RUN",
    "TPCAPTURE_STEPS",
    "TPCAPTURE_ATTACH",
    "TPCAPTURE_BUDGET",
    "TPCAPTURE_MIN_FREE",
    "TPCAPTURE_RING",
    "TPCAPTURE_DEVICE_RING",
    "TPCAPTURE_ON_FULL",
    "TPCAPTURE_STRICT",
    "TPCAPTURE_RANK",
    "TPCAPTURE_MESH",
];

/// A variable that does not parse. Its words end with what comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The variable's name.
    pub variable: String,
    /// The value as found.
    pub value: String,
    /// What is wrong with it: `expected …`.
    pub reason: String,
    /// What the process does now, such as `capture is off`.
    pub outcome: &'static str,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}: {}; {}", self.variable, self.value, self.reason, self.outcome)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            switch: Switch::Off,
            selection: Selection::everything(),
            ranks: RankSet::default(),
            dir: PathBuf::from("tpcapture"),
            run: None,
            steps: Steps::All,
            attach: None,
            budget: 10 << 30,
            min_free: MinFree::Share(0.05),
            ring: 256 << 20,
            device_ring: 64 << 20,
            on_full: OnFull::Wait(Duration::from_secs(10)),
            strict: false,
        }
    }
}

impl Config {
    /// Reads the variables through `get` (`std::env::var_os` in a process). An empty one counts as not set. One that
    /// does not parse keeps its default and makes a warning; the switch is then off, since what was asked for is
    /// not known.
    pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<Warning>) {
        let mut env = Env { get, warnings: Vec::new() };
        let mut config = Self::default();
        if let Some((switch, selection)) = env.read("TPCAPTURE", switch) {
            config.switch = switch;
            config.selection = selection.unwrap_or(config.selection);
        }
        env.set(&mut config.ranks, "TPCAPTURE_RANKS", |text| text.parse().map_err(sentence));
        // A path may hold any bytes, and its spaces count.
        if let Some(dir) = (env.get)("TPCAPTURE_DIR").filter(|dir| !dir.is_empty()) {
            config.dir = dir.into();
        }
        config.run = env.read("TPCAPTURE_RUN", |text| {
            if is_run_name(text) { Ok(text.to_owned()) } else { Err(expected(RUN_NAME)) }
        });
        env.set(&mut config.steps, "TPCAPTURE_STEPS", |text| text.parse().map_err(sentence));
        config.attach = env
            .read("TPCAPTURE_ATTACH", |text| text.parse::<Globs>().map(|_| text.to_owned()).map_err(place));
        env.set(&mut config.budget, "TPCAPTURE_BUDGET", |text| value::budget(text).map_err(expected));
        env.set(&mut config.min_free, "TPCAPTURE_MIN_FREE", |text| text.parse().map_err(expected));
        env.set(&mut config.ring, "TPCAPTURE_RING", |text| value::ring(text).map_err(expected));
        env.set(&mut config.device_ring, "TPCAPTURE_DEVICE_RING", |text| {
            value::device_ring(text).map_err(expected)
        });
        env.set(&mut config.on_full, "TPCAPTURE_ON_FULL", |text| text.parse().map_err(expected));
        env.set(&mut config.strict, "TPCAPTURE_STRICT", |text| value::strict(text).map_err(expected));
        if !env.warnings.is_empty() && config.switch != Switch::Never {
            config.switch = Switch::Off;
        }
        (config, env.warnings)
    }

    /// The `config` object of the manifest: each value as the text that sets it.
    #[must_use]
    pub fn texts(&self) -> [(&'static str, String); 8] {
        [
            ("select", self.selection.to_string()),
            ("ranks", self.ranks.to_string()),
            ("steps", self.steps.to_string()),
            ("budget", quantity::show_size(self.budget)),
            ("min_free", self.min_free.to_string()),
            ("ring", quantity::show_size(self.ring as u64)),
            ("device_ring", quantity::show_size(self.device_ring as u64)),
            ("on_full", self.on_full.to_string()),
        ]
    }
}

const RUN_NAME: &str = "one path component of letters, digits, \".\", \"_\" and \"-\" that does not start with \".\", \
                        of at most 200 bytes";

fn switch(text: &str) -> Result<(Switch, Option<Selection>), String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "0" | "off" | "false" | "no" => (Switch::Off, None),
        "standby" => (Switch::Standby, None),
        "1" | "on" | "true" | "yes" => (Switch::On, None),
        "never" => (Switch::Never, None),
        _ => (Switch::On, Some(text.parse().map_err(place)?)),
    })
}

fn expected(what: &str) -> String {
    format!("expected {what}")
}

fn sentence(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Without the whole text, which the warning quotes anyway.
fn place(error: SelectError) -> String {
    let SelectError { column, expected, found, .. } = error;
    format!("column {column}: expected {expected}, found {found}")
}

struct Env<G> {
    get: G,
    warnings: Vec<Warning>,
}

impl<G: Fn(&str) -> Option<OsString>> Env<G> {
    fn read<T>(&mut self, variable: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = (self.get)(variable)?;
        let parsed = match value.to_str().map(str::trim) {
            Some("") => return None,
            Some(text) => parse(text),
            None => Err(expected("UTF-8")),
        };
        let warn = |reason| Warning {
            variable: variable.to_owned(),
            value: value.to_string_lossy().into_owned(),
            reason,
            outcome: "capture is off",
        };
        parsed.map_err(|reason| self.warnings.push(warn(reason))).ok()
    }

    fn set<T>(&mut self, field: &mut T, variable: &str, parse: impl FnOnce(&str) -> Result<T, String>) {
        if let Some(value) = self.read(variable, parse) {
            *field = value;
        }
    }
}

#[cfg(test)]
mod tests;
