//! Finding the processes that hold a control page.
//!
//! A page is a descriptor that links to [`LINK`]. So every descriptor of every process is asked for its link, in as few
//! system calls as that takes. A command that looks at a page holds a descriptor of it, too; the page says whose it is.

use super::{
    LiveError,
    closed::Closed,
    process::{Ancestor, Process},
    procfs::ProcDir,
};
use capture_core::page::{LINK, Other, OtherError};
use rustix::{
    fs::{RawDir, readlinkat_raw},
    io::Errno,
};
use std::{collections::BTreeSet, fs, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

/// All that is there.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By pid.
    pub(crate) processes: Vec<Process>,
    /// Those that cannot be used, though they hold a page or look like a server.
    pub(crate) closed: Vec<Closed>,
    /// How many processes this user may not look into, whatever they look like.
    pub(crate) n_opaque: usize,
    /// Why processes that were asked for are not there, where others are.
    pub(crate) absent: Vec<String>,
    /// Ranks of processes that are there and were not asked for.
    pub(crate) other_ranks: BTreeSet<u32>,
}

/// A chain of parents that is longer is a process that moved meanwhile.
const MAX_ANCESTORS: usize = 64;

impl Found {
    /// Looks at every process but this one.
    pub(crate) fn search() -> Result<Self, LiveError> {
        let entries = fs::read_dir("/proc").map_err(LiveError::NoProc)?;
        // An empty directory is there where nothing is mounted.
        fs::metadata("/proc/self/fd").map_err(LiveError::NoProc)?;
        let mut found = Self::default();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(|pid| *pid != std::process::id()) {
            // Whoever ended meanwhile is not there.
            if let Ok(dir) = ProcDir::open(pid) {
                found.search_in(&dir);
            }
        }
        found.processes.sort_by_key(Process::pid);
        found.closed.sort_by_key(|closed| closed.pid);
        Ok(found)
    }

    fn search_in(&mut self, dir: &ProcDir) {
        match dir.descriptors().and_then(|descriptors| pages(&descriptors)) {
            Ok(numbers) => {
                for number in numbers {
                    self.open(dir, number);
                }
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                let program = dir.program();
                // Threads of the kernel have none.
                self.n_opaque += usize::from(!program.is_empty());
                self.closed.extend(Closed::unseen(dir, program));
            }
            Err(_) => {}
        }
    }

    fn open(&mut self, dir: &ProcDir, number: u32) {
        let pid = dir.pid;
        match Other::open(Path::new(&format!("/proc/{pid}/fd/{number}"))) {
            Ok(page) => {
                let is_its_own = page.pid() == dir.inner_pid().unwrap_or(pid);
                // A page has one process, which may hold it by several descriptors.
                let is_known = self.processes.iter().any(|known| known.pid() == pid);
                if let Some(dir) = ProcDir::open(pid).ok().filter(|_| is_its_own && !is_known) {
                    let ancestors = ancestors(&dir);
                    self.processes.push(Process { program: dir.program(), ancestors, dir, page });
                }
            }
            // The descriptor was closed, and with it the page.
            Err(OtherError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.closed.push(Closed::unopened(dir, &error)),
        }
    }
}

/// The numbers of the descriptors that are pages.
fn pages(descriptors: &OwnedFd) -> rustix::io::Result<Vec<u32>> {
    let mut room = [MaybeUninit::uninit(); 8 << 10];
    let mut link = [0; LINK.len() + 1];
    let mut entries = RawDir::new(descriptors, &mut room);
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_owned();
        let Some(number) = name.to_str().ok().and_then(|name| name.parse().ok()) else { continue };
        match readlinkat_raw(descriptors, &name, &mut link) {
            Ok(length) if &link[..length] == LINK.as_bytes() => numbers.push(number),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(numbers)
}

fn ancestors(dir: &ProcDir) -> Vec<Ancestor> {
    let parent = |dir: &ProcDir| dir.stat().map(|stat| stat.parent).filter(|pid| *pid != 0);
    let mut ancestors = Vec::new();
    let mut next = parent(dir);
    while let Some(dir) =
        next.and_then(|pid| ProcDir::open(pid).ok()).filter(|_| ancestors.len() < MAX_ANCESTORS)
    {
        let name = dir.stat().map_or_else(String::new, |stat| stat.name);
        ancestors.push(Ancestor { pid: dir.pid, name });
        next = parent(&dir);
    }
    ancestors
}
