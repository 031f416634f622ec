//! Reading a run.

use capture_compare::{Access, Entry, Kept, run};
use capture_core::{Digest, Stats};
use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};
use std::path::PathBuf;

/// An open run: its records by number, in capture order of each process.
#[pyclass(frozen, module = "tpcapture._native")]
pub(crate) struct Run {
    run: run::Run,
    /// Its records of all modes, in capture order of each process.
    order: Vec<Place>,
}

/// Where a record is: among those with bytes, or those without.
#[derive(Clone, Copy)]
enum Place {
    Entry(usize),
    Digest(usize),
}

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
        let run = open.map_err(|error| PyOSError::new_err(error.to_string()))?;
        let order = order(&run);
        Ok(Self { run, order })
    }

    /// The run directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.run.path.clone()
    }

    /// Files that could not be read, wholly or in part: (file, reason).
    fn errors(&self) -> Vec<(PathBuf, String)> {
        self.run.errors.iter().map(|error| (error.file.clone(), error.reason.clone())).collect()
    }

    /// The manifests that could be read, as JSON text by process.
    fn manifests(&self) -> Vec<(String, String)> {
        let manifests = self.run.processes.iter().filter_map(|process| {
            let manifest = process.manifest.as_ref()?;
            Some((process.identity.process.clone(), manifest.to_json()))
        });
        manifests.collect()
    }

    /// What is known of every record: a dict each.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.order.iter().map(|place| self.describe(py, *place)).collect()
    }

    /// A record's bytes, copied.
    fn read<'py>(&self, py: Python<'py>, record: usize) -> PyResult<Bound<'py, PyByteArray>> {
        let entry = self.entry(record)?;
        PyByteArray::new_with(py, entry.n_bytes() as usize, |buffer| {
            self.run.read_at(entry, 0, buffer).map_err(|error| PyOSError::new_err(error.to_string()))
        })
    }

    /// Where a record's bytes are: (file, offset, length), the offset perhaps unaligned.
    fn place(&self, record: usize) -> PyResult<(PathBuf, u64, u64)> {
        let entry = self.entry(record)?;
        Ok((self.run.file(entry).to_owned(), entry.offset(), entry.n_bytes()))
    }
}

impl Run {
    fn entry(&self, record: usize) -> PyResult<&Entry> {
        match self.order.get(record) {
            Some(Place::Entry(entry)) => Ok(&self.run.entries[*entry]),
            Some(Place::Digest(_)) => {
                Err(PyValueError::new_err(format!("record {record} was kept without its bytes")))
            }
            None => Err(PyIndexError::new_err(format!("record {record} of a run of {}", self.order.len()))),
        }
    }

    fn describe<'py>(&self, py: Python<'py>, place: Place) -> PyResult<Bound<'py, PyDict>> {
        let (record, dtype, shape, process, digest) = match place {
            Place::Entry(at) => {
                let Entry { record, dtype, shape, process, .. } = &self.run.entries[at];
                (record, dtype, shape, *process, None)
            }
            Place::Digest(at) => {
                let Kept { digested, process } = &self.run.digests[at];
                (&digested.record, &digested.dtype, &digested.shape, *process, Some(&digested.digest))
            }
        };
        let identity = &self.run.processes[process].identity;
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
        dict.set_item("crc32", digest.is_none().then_some(record.crc32))?;
        dict.set_item("dtype", dtype.to_string())?;
        dict.set_item("shape", shape)?;
        dict.set_item("rank", identity.rank)?;
        dict.set_item("world", identity.world)?;
        dict.set_item("mesh", mesh.collect::<std::collections::HashMap<_, _>>())?;
        dict.set_item("process", &identity.process)?;
        dict.set_item("mode", digest.map_or("full", Digest::mode))?;
        dict.set_item("stats", digest.and_then(Digest::stats).map(|stats| figures(py, stats)).transpose()?)?;
        dict.set_item("hash", digest.and_then(Digest::hash).map(|hash| hash.to_string()))?;
        Ok(dict)
    }
}

/// The records of all modes, by process and within it in the order of capture.
fn order(run: &run::Run) -> Vec<Place> {
    let entries = run.entries.iter().enumerate();
    let entries = entries.map(|(i, entry)| (entry.process, entry.record.seq, Place::Entry(i)));
    let digests = run.digests.iter().enumerate();
    let digests = digests.map(|(i, kept)| (kept.process, kept.digested.record.seq, Place::Digest(i)));
    let mut order: Vec<_> = entries.chain(digests).collect();
    order.sort_by_key(|(process, seq, _)| (*process, *seq));
    order.into_iter().map(|(_, _, place)| place).collect()
}

/// Statistics by name; those of finite numbers are None where there are none.
fn figures<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("n", stats.n)?;
    dict.set_item("nan", stats.nan)?;
    dict.set_item("pos_inf", stats.pos_inf)?;
    dict.set_item("neg_inf", stats.neg_inf)?;
    dict.set_item("zero", stats.zero)?;
    let finite = stats.finite.as_ref();
    dict.set_item("min", finite.map(|f| f.min))?;
    dict.set_item("max", finite.map(|f| f.max))?;
    dict.set_item("mean", finite.map(|f| f.mean))?;
    dict.set_item("rms", finite.map(|f| f.rms))?;
    dict.set_item("absmax", finite.map(|f| f.absmax))?;
    Ok(dict)
}
