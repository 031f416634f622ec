//! Comparing runs.

use crate::ray::Ray;
use capture_cli::{Compared, Comparison, Error, Reading, some_steps};
use capture_compare::{LayoutsError, Options};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often a comparison looks for a Ctrl-C.
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

/// What to compare: a dict that has the command's options by name.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    run: PathBuf,
    run_b: Option<PathBuf>,
    checkpoint: Option<PathBuf>,
    layouts: Vec<PathBuf>,
    only_common: bool,
    noise: Option<PathBuf>,
    pair: String,
    fail_on_nan: bool,
    allow_suspect: bool,
    tap: Option<String>,
    step: Option<String>,
    engine: String,
    mmap: bool,
}

impl Asked {
    /// Compares, and makes something of it before the GIL is taken again.
    fn compare<T: Send>(
        self,
        py: Python<'_>,
        details: bool,
        make: impl FnOnce(&Compared) -> T + Send,
    ) -> PyResult<T> {
        let comparison = self.comparison()?;
        let compare = |cancelled: &AtomicBool| {
            let options = Options { details, cancelled: Some(cancelled), ..Options::default() };
            Ok(make(&comparison.compare(Some(&Ray::cancelled_by(cancelled)), options, |_| ())?))
        };
        interruptible(py, compare)?.map_err(|error| exception(&error))
    }

    fn comparison(self) -> PyResult<Comparison> {
        let Self { run, run_b, checkpoint, layouts, only_common, noise, pair, .. } = self;
        let Self { fail_on_nan, allow_suspect, tap, step, engine, mmap, .. } = self;
        let parse = |text: String| {
            let step = some_steps(&text);
            step.map_err(|error| PyValueError::new_err(format!("step={text:?}: {error}")))
        };
        let pair = pair.parse().map_err(|error: String| PyValueError::new_err(format!("pair: {error}")))?;
        let engine = engine.parse().map_err(PyValueError::new_err::<String>)?;
        let (step, reading) = (step.map(parse).transpose()?, Reading { no_mmap: !mmap });
        Ok(Comparison {
            run,
            run_b,
            checkpoint,
            layouts,
            only_common,
            noise,
            pair,
            fail_on_nan,
            allow_suspect,
            tap,
            step,
            engine,
            reading,
        })
    }
}

/// Compares, and returns the report as JSON, the terminal report and the command's exit status.
///
/// OSError: a path is no run, or the layouts file cannot be read. ValueError: an argument or the layouts file does not
/// parse, or there is no such tap or step.
#[pyfunction]
pub(crate) fn compare(py: Python<'_>, asked: Asked) -> PyResult<(String, String, u8)> {
    asked.compare(py, false, |compared| (compared.json(), text(compared), compared.exit_status()))
}

/// Compares in detail, and returns the HTML page. Errors are those of `compare`.
#[pyfunction]
pub(crate) fn page(py: Python<'_>, asked: Asked) -> PyResult<String> {
    asked.compare(py, true, Compared::page)
}

/// What the command prints, and says on stderr.
fn text(compared: &Compared) -> String {
    let complaints = compared.complaints().into_iter().map(|line| line + "\n");
    compared.text(false, false) + &complaints.collect::<String>()
}

fn exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::NotFound(_)
        | Error::NoAlignment
        | Error::NoiseOfItself { .. }
        | Error::Layouts(LayoutsError::Line { .. }) => PyValueError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// Does the work in a thread of its own, without the GIL, while this one looks after signals. Once a handler raises,
/// the work is told to stop, and its result is dropped.
fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&AtomicBool) -> T + Send) -> PyResult<T> {
    let cancelled = AtomicBool::new(false);
    thread::scope(|scope| {
        let (done, mut is_done) = channel::<()>();
        let cancelled = &cancelled;
        let worker = scope.spawn(move || {
            // Dropped at the end, whichever way the work ends.
            let _done = done;
            work(cancelled)
        });
        let mut raised = None;
        while let Err(RecvTimeoutError::Timeout) = py.detach({
            let is_done = &mut is_done;
            move || is_done.recv_timeout(LOOK_FOR_SIGNALS)
        }) {
            if let Err(error) = py.check_signals() {
                raised = Some(error);
                cancelled.store(true, Ordering::Relaxed);
            }
        }
        let result = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        raised.map_or(Ok(result), Err)
    })
}
