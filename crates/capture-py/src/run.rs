//! Reading a run.

use capture_compare::{Access, Entry, run};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};
use std::path::PathBuf;

/// An open run: its records by number, in capture order of each process.
#[pyclass(frozen, module = "tpcapture._native")]
pub(crate) struct Run(run::Run);

#[pymethods]
impl Run {
    /// Opens a run directory, or a directory that holds one run. OSError where there is none. Files that cannot be read
    /// are left out and listed by `errors()`.
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracts")]
    #[pyo3(signature = (path, mmap=true))]
    fn new(py: Python<'_>, path: PathBuf, mmap: bool) -> PyResult<Self> {
        let access = if mmap { Access::Mapped } else { Access::Unmapped };
        let open = py.detach(|| run::Run::open(&path, access));
        open.map(Self).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// The run directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path.clone()
    }

    /// Files that could not be read, wholly or in part: (file, reason).
    fn errors(&self) -> Vec<(PathBuf, String)> {
        self.0.errors.iter().map(|error| (error.file.clone(), error.reason.clone())).collect()
    }

    /// The manifests that could be read, as JSON text by process.
    fn manifests(&self) -> Vec<(String, String)> {
        let manifests = self.0.processes.iter().filter_map(|process| {
            let manifest = process.manifest.as_ref()?;
            Some((process.identity.process.clone(), manifest.to_json()))
        });
        manifests.collect()
    }

    /// What is known of every record: a dict each.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.0.entries.iter().map(|entry| self.describe(py, entry)).collect()
    }

    /// A record's bytes, copied.
    fn read<'py>(&self, py: Python<'py>, record: usize) -> PyResult<Bound<'py, PyByteArray>> {
        let entry = self.entry(record)?;
        PyByteArray::new_with(py, entry.n_bytes() as usize, |buffer| {
            self.0.read_at(entry, 0, buffer).map_err(|error| PyOSError::new_err(error.to_string()))
        })
    }

    /// Where a record's bytes are: (file, offset, length), the offset perhaps unaligned.
    fn place(&self, record: usize) -> PyResult<(PathBuf, u64, u64)> {
        let entry = self.entry(record)?;
        Ok((self.0.file(entry).to_owned(), entry.offset(), entry.n_bytes()))
    }
}

impl Run {
    fn entry(&self, record: usize) -> PyResult<&Entry> {
        self.0.entries.get(record).ok_or_else(|| {
            PyIndexError::new_err(format!("record {record} of a run of {}", self.0.entries.len()))
        })
    }

    fn describe<'py>(&self, py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyDict>> {
        let (record, identity) = (&entry.record, &self.0.processes[entry.process].identity);
        let mesh = identity.mesh.dims.iter().map(|dim| (dim.name.as_str(), (dim.coord, dim.size)));
        let dict = PyDict::new(py);
        dict.set_item("tap", &record.tap)?;
        dict.set_item("step", record.step)?;
        dict.set_item("abs_step", record.abs_step)?;
        dict.set_item("call", record.call)?;
        dict.set_item("seq", record.seq)?;
        dict.set_item("time_ns", record.time_ns)?;
        dict.set_item("placement", &record.placement)?;
        dict.set_item("rows", record.rows)?;
        dict.set_item("full_rows", record.full_rows)?;
        dict.set_item("strides", &record.strides)?;
        dict.set_item("device", &record.device)?;
        dict.set_item("encoding", &record.encoding)?;
        dict.set_item("crc32", record.crc32)?;
        dict.set_item("dtype", entry.dtype.to_string())?;
        dict.set_item("shape", &entry.shape)?;
        dict.set_item("rank", identity.rank)?;
        dict.set_item("world", identity.world)?;
        dict.set_item("mesh", mesh.collect::<std::collections::HashMap<_, _>>())?;
        dict.set_item("process", &identity.process)?;
        Ok(dict)
    }
}
