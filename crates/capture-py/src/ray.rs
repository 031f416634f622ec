//! A Ray cluster for comparisons: `tpcapture._ray` speaks to Ray, this hands over bytes between the two.

use capture_compare::spread::{self, Cluster, Holds, SpreadError, Task};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Seconds after which a comparison that waits for tasks looks whether it was cancelled.
const LOOK: f64 = 0.1;

/// The Ray cluster that is there, connected to when it is first needed.
#[derive(Default)]
pub(crate) struct Ray<'c> {
    cluster: OnceLock<Py<PyAny>>,
    cancelled: Option<&'c AtomicBool>,
}

impl<'c> Ray<'c> {
    /// Tasks are cancelled once the flag is set.
    pub(crate) fn cancelled_by(flag: &'c AtomicBool) -> Self {
        Self { cancelled: Some(flag), ..Self::default() }
    }

    /// Calls `work` with the Python object, connecting first.
    fn with<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        Python::attach(|py| {
            let connected = || match self.cluster.get() {
                Some(cluster) => Ok(cluster.clone_ref(py)),
                None => {
                    let cluster = py.import("tpcapture._ray")?.getattr("Cluster")?.call0()?.unbind();
                    Ok::<_, PyErr>(self.cluster.get_or_init(|| cluster).clone_ref(py))
                }
            };
            connected()
                .and_then(|cluster| work(cluster.bind(py)))
                .map_err(|error| error.value(py).to_string())
        })
    }

    /// What tasks return that were started. Nothing else is read by virtue of the flag.
    fn results<'py>(
        &self,
        cluster: &Bound<'py, PyAny>,
        tasks: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        while !cluster.call_method1("are_done", (tasks, LOOK))?.extract::<bool>()? {
            if self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                cluster.call_method1("cancel", (tasks,))?;
                return Err(PyRuntimeError::new_err("cancelled"));
            }
        }
        cluster.call_method1("results", (tasks,))
    }
}

impl Cluster for Ray<'_> {
    fn list(&self, path: &Path, what: Holds) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        self.with(|cluster| {
            let tasks = cluster.call_method1("start_list", (path, what == Holds::Checkpoint))?;
            let listed: Vec<(Option<Vec<u8>>, String)> = self.results(cluster, &tasks)?.extract()?;
            Ok(listed.into_iter().map(|(found, reason)| found.ok_or(reason)).collect())
        })
    }

    fn share(&self, plan: Vec<u8>) -> Result<(), String> {
        self.with(|cluster| {
            let plan = PyBytes::new(cluster.py(), &plan);
            cluster.call_method1("share", (plan,)).map(|_| ())
        })
    }

    fn run(&self, tasks: Vec<Task>) -> Result<Vec<Vec<u8>>, String> {
        self.with(|cluster| {
            let py = cluster.py();
            let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
            let tasks: Vec<_> = tasks
                .iter()
                .map(|task| {
                    let fetches: Vec<_> = task.fetches.iter().map(|(node, of)| (*node, bytes(of))).collect();
                    (task.node, bytes(&task.items), fetches)
                })
                .collect();
            let tasks = cluster.call_method1("start_work", (tasks,))?;
            self.results(cluster, &tasks)?.extract()
        })
    }
}

/// What this machine, number `node` of the cluster, has of the run or checkpoint at a path. OSError: there is none.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracts")]
pub(crate) fn spread_list(
    py: Python<'_>,
    path: PathBuf,
    checkpoint: bool,
    node: usize,
) -> PyResult<Bound<'_, PyBytes>> {
    let what = if checkpoint { Holds::Checkpoint } else { Holds::Run };
    let listed = py.detach(|| spread::list(&path, what, node));
    listed.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Bytes of records that lie on this machine. ValueError: another version's plan.
#[pyfunction]
pub(crate) fn spread_fetch<'py>(
    py: Python<'py>,
    plan: &[u8],
    node: usize,
    places: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    returned(py, py.detach(|| spread::fetch(plan, node, places)))
}

/// Does a task on this machine with what was fetched for it. ValueError: another version's plan.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracts")]
pub(crate) fn spread_work<'py>(
    py: Python<'py>,
    plan: &[u8],
    node: usize,
    items: &[u8],
    fetched: Vec<Vec<u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    returned(py, py.detach(|| spread::work(plan, node, items, &fetched)))
}

fn returned(py: Python<'_>, made: Result<Vec<u8>, SpreadError>) -> PyResult<Bound<'_, PyBytes>> {
    made.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| PyValueError::new_err(error.to_string()))
}
