//! Switching from inside the process, and the command.

use crate::ray::Ray;
use crate::{errors, host};
use capture_core::config::VARIABLES;
use capture_core::control::{self, Aim};
use capture_core::notice::notice;
use capture_core::select::{Globs, Selection};
use pyo3::exceptions::{PyImportError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

/// Reads the environment, at the package's first import: whoever imports it again, also under another name, finds what
/// is there.
///
/// ImportError: in a subinterpreter.
#[pyfunction]
pub(crate) fn start(py: Python<'_>) -> PyResult<()> {
    static ONCE: Once = Once::new();
    if !host::is_main_interpreter(py) {
        return Err(PyImportError::new_err(
            "tpcapture does not work in a subinterpreter: import it in the main interpreter",
        ));
    }
    ONCE.call_once(|| {
        capture_core::notice::set_sink(host::print_notice);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for unknown in
            names.filter(|name| name.starts_with("TPCAPTURE_") && !VARIABLES.contains(&name.as_str()))
        {
            notice(&format!("{unknown} is no variable of tpcapture; there are {}", VARIABLES.join(", ")));
        }
        control::start(|name| std::env::var_os(name));
    });
    Ok(())
}

/// Whether taps in compiled regions are kept.
#[pyfunction]
pub(crate) fn keeps_compiled_taps() -> bool {
    control::keeps_compiled_taps()
}

/// Which of the names fit one of the globs.
///
/// ValueError: they do not parse.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 extracts it")]
pub(crate) fn matching(patterns: &str, names: Vec<String>) -> PyResult<Vec<bool>> {
    let globs: Globs =
        patterns.parse().map_err(|error| PyValueError::new_err(format!("patterns={patterns:?}: {error}")))?;
    Ok(names.iter().map(|name| globs.matches(name)).collect())
}

/// The directory of the run that taps are captured into now; None where they are not.
#[pyfunction]
pub(crate) fn run_now() -> Option<PathBuf> {
    let status = capture_core::page::is_awake().then(control::status)?;
    status.run
}

/// Says a line as tpcapture says everything: to stderr, with the rank.
#[pyfunction(name = "notice")]
pub(crate) fn say(line: &str) {
    notice(line);
}

/// Gets CUDA devices ready for captures, before the server takes all their memory: each one's ring (TPCAPTURE_DEVICE_RING, 64
/// MiB) is allocated now, and not at its first tensor.
///
/// device: its number as CUDA counts in this process, or None for every device that the process uses by now. Returns the
/// names of those that are ready, such as `["cuda:0"]`. RuntimeError: one of them cannot be had.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn prepare(py: Python<'_>, device: Option<i32>) -> PyResult<Vec<String>> {
    let prepared =
        py.detach(|| capture_cuda::prepare(device.map(|device| vec![device]), control::device_ring()));
    prepared.map_err(PyRuntimeError::new_err)
}

/// Switches a capture on and returns the directory its run will have; `dir` is TPCAPTURE_DIR where None.
///
/// ValueError: `select`, `ranks`, `steps`, `run` or `seconds` does not parse. RuntimeError: a capture is on already, or
/// `TPCAPTURE=never`.
#[pyfunction]
#[pyo3(signature = (dir, select=None, ranks=None, steps=None, run=None, limit_bytes=None, seconds=None))]
pub(crate) fn switch_on(
    dir: Option<PathBuf>,
    select: Option<&str>,
    ranks: Option<&str>,
    steps: Option<&str>,
    run: Option<String>,
    limit_bytes: Option<u64>,
    seconds: Option<f64>,
) -> PyResult<PathBuf> {
    fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> PyResult<T> {
        text.parse().map_err(|error| PyValueError::new_err(format!("{name}={text:?}: {error}")))
    }
    if let Some(run) = run.as_deref().filter(|run| !capture_core::name::is_run_name(run)) {
        return Err(PyValueError::new_err(format!(
            "run={run:?}: expected one path component of letters, digits, '.', '_' and '-' that does not start with '.'"
        )));
    }
    let duration = match seconds.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(duration)) if !duration.is_zero() => Some(duration),
        Some(_) => return Err(PyValueError::new_err("seconds: expected a time above 0")),
    };
    let aim = Aim {
        run,
        selection: select.map_or_else(|| Ok(Selection::everything()), |text| parse("select", text))?,
        ranks: parse("ranks", ranks.unwrap_or("all"))?,
        steps: parse("steps", steps.unwrap_or("all"))?,
        limit_bytes,
        duration,
        ..Aim::everything(dir.unwrap_or_else(control::configured_dir))
    };
    control::switch_on(aim).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Ends the capture that is on, or only that of the run in `run`, and returns once it is sealed; what went wrong in it,
/// or None.
#[pyfunction]
#[pyo3(signature = (reason, run=None))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes it of what it is given")]
pub(crate) fn switch_off(py: Python<'_>, reason: &str, run: Option<PathBuf>) -> PyResult<Option<String>> {
    errors::unless_strict(py.detach(|| match &run {
        Some(run) => control::switch_off_run(run, reason),
        None => control::switch_off(reason),
    }))
}

/// Return once everything captured before is in sealed files; what went wrong in this capture, or None.
#[pyfunction]
pub(crate) fn flush(py: Python<'_>) -> PyResult<Option<String>> {
    errors::unless_strict(py.detach(control::flush))
}

/// How this process stands: state ('off', 'armed', 'capturing' or 'ended'), run, step, abs_step, rank, world, mesh,
/// counters, losses, rules, end_reason, last_error.
#[pyfunction]
pub(crate) fn status(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let status = control::status();
    let of = |pairs: &[(&str, u64)]| -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in pairs {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    };
    let counters = status.counters;
    let losses = status.losses.iter().map(|loss| {
        let dict = of(&[("count", loss.count)])?;
        dict.set_item("tap", &loss.tap)?;
        dict.set_item("reason", &loss.reason)?;
        Ok(dict)
    });
    let rules = status.rules.iter().map(|rule| {
        let dict = of(&[("records", rule.records)])?;
        dict.set_item("rule", &rule.rule)?;
        Ok(dict)
    });
    let mesh = status.who.mesh.dims.iter().map(|dim| (dim.name.as_str(), (dim.coord, dim.size)));
    let dict = PyDict::new(py);
    dict.set_item("state", status.state)?;
    dict.set_item("run", status.run)?;
    dict.set_item("step", status.step)?;
    dict.set_item("abs_step", status.abs_step)?;
    dict.set_item("rank", status.who.rank)?;
    dict.set_item("world", status.who.world)?;
    dict.set_item("mesh", mesh.collect::<std::collections::HashMap<_, _>>())?;
    dict.set_item(
        "counters",
        of(&[
            ("records", counters.records),
            ("bytes", counters.bytes),
            ("segments", counters.segments),
            ("lost", counters.lost),
            ("refused", counters.refused),
        ])?,
    )?;
    dict.set_item("losses", losses.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("rules", rules.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("end_reason", status.end_reason)?;
    dict.set_item("last_error", status.last_error)?;
    Ok(dict)
}

/// Runs the command `tpcapture` with these arguments, the first of which is its name; its exit status.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    capture_core::page::hide();
    py.detach(|| capture_cli::main(arguments, Some(&Ray::default())))
}
