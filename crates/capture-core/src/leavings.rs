//! What a writer that is through has left in its run, for the case that it was all for nothing.

use crate::digested::SUFFIX;
use crate::rundir::RunDir;
use std::path::PathBuf;

/// The files of one process and session. All bear its random name and were made by it alone.
#[derive(Debug)]
pub(crate) struct Leavings {
    /// The run's directory.
    pub(crate) dir: PathBuf,
    /// What the names begin with.
    pub(crate) stem: String,
    /// Segments that were begun.
    pub(crate) n_segments: u64,
}

impl Leavings {
    /// Deletes them. What cannot be deleted stays: a reader finds a manifest that says why it ended, or whole segments.
    pub(crate) fn delete(&self) {
        let Ok(dir) = RunDir::reopen(&self.dir) else { return };
        for segment in 0..self.n_segments {
            for suffix in ["safetensors", "safetensors.partial", "journal"] {
                let _ = dir.delete(&format!("{}.{segment:06}.{suffix}", self.stem));
            }
        }
        let _ = dir.delete(&format!("{}{SUFFIX}", self.stem));
        let _ = dir.delete(&format!("{}.json", self.stem));
    }

    /// The same in a thread of its own, as the model must not wait for a disk.
    pub(crate) fn delete_aside(self) {
        // Where there is no thread to be had they stay.
        let _ = std::thread::Builder::new().name("tpcapture-writer".into()).spawn(move || self.delete());
    }
}
