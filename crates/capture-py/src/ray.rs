//! A Ray cluster for comparisons: `tpcapture._ray` speaks to Ray, this hands over bytes between the two.

use capture_compare::spread::{self, Cluster, SpreadError, Task};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The Ray cluster that is there, connected to when it is first needed.
#[derive(Default)]
pub(crate) struct Ray(OnceLock<Py<PyAny>>);

impl Ray {
    /// Calls `work` with the Python object, connecting first.
    fn with<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        Python::attach(|py| {
            let connected = || match self.0.get() {
                Some(cluster) => Ok(cluster.clone_ref(py)),
                None => {
                    let cluster = py.import("tpcapture._ray")?.getattr("Cluster")?.call0()?.unbind();
                    Ok::<_, PyErr>(self.0.get_or_init(|| cluster).clone_ref(py))
                }
            };
            connected()
                .and_then(|cluster| work(cluster.bind(py)))
                .map_err(|error| error.value(py).to_string())
        })
    }
}

impl Cluster for Ray {
    fn list(&self, path: &Path) -> Result<Vec<Result<Vec<u8>, String>>, String> {
        self.with(|cluster| {
            let listed: Vec<(Option<Vec<u8>>, String)> =
                cluster.call_method1("list_run", (path,))?.extract()?;
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
            cluster.call_method1("run", (tasks,))?.extract()
        })
    }
}

/// What this machine, number `node` of the cluster, has of the run at a path. OSError: no run.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracts")]
pub(crate) fn spread_list(py: Python<'_>, path: PathBuf, node: usize) -> PyResult<Bound<'_, PyBytes>> {
    let listed = py.detach(|| spread::list(&path, node));
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
