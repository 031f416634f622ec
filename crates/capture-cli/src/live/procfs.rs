//! What the kernel tells of a process in `/proc/PID`.

use rustix::fs::{Mode, OFlags, open, openat, readlinkat};
use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, OwnedFd},
};

/// A process's directory, held open: once the process has ended nothing can be read in it, not even where another one
/// has its number by then.
#[derive(Debug)]
pub(crate) struct ProcDir {
    pub(crate) pid: u32,
    fd: OwnedFd,
}

/// Whether a process can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    /// By SIGSTOP, a terminal or a debugger.
    Stopped,
    Ended,
}

/// The parts of `/proc/PID/stat` that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The program's short name.
    pub(crate) name: String,
    pub(crate) parent: u32,
    pub(crate) life: Life,
}

/// The longest command line that is read.
const MAX_TEXT: u64 = 64 << 10;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl ProcDir {
    /// Fails where there is no such process.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, fd: open(format!("/proc/{pid}"), DIRECTORY, Mode::empty())? })
    }

    /// The directory of its descriptors. Fails where this user may not look into the process.
    pub(crate) fn descriptors(&self) -> rustix::io::Result<OwnedFd> {
        openat(&self.fd, "fd", DIRECTORY, Mode::empty())
    }

    pub(crate) fn stat(&self) -> Option<Stat> {
        parse_stat(&self.read("stat").ok()?)
    }

    /// One that cannot be asked any more has ended.
    pub(crate) fn life(&self) -> Life {
        self.stat().map_or(Life::Ended, |stat| stat.life)
    }

    /// The real user id.
    pub(crate) fn user(&self) -> Option<u32> {
        status_word(&self.read("status").ok()?, "Uid:", 0)
    }

    /// Its number in its own namespace.
    pub(crate) fn inner_pid(&self) -> Option<u32> {
        status_word(&self.read("status").ok()?, "NSpid:", usize::MAX)
    }

    /// Its command line; empty for a thread of the kernel.
    pub(crate) fn program(&self) -> String {
        let text = self.read("cmdline").unwrap_or_default();
        let arguments = text.split(|b| *b == 0).filter(|argument| !argument.is_empty());
        arguments.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
    }

    /// Whether its paths are this command's, too.
    pub(crate) fn shares_paths(&self) -> bool {
        let own = rustix::fs::readlink("/proc/self/ns/mnt", Vec::new());
        match (own, readlinkat(&self.fd, "ns/mnt", Vec::new())) {
            (Ok(own), Ok(theirs)) => own == theirs,
            // Where nobody says otherwise.
            _ => true,
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file: File =
            openat(self.fd.as_fd(), name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into();
        let mut text = Vec::new();
        file.take(MAX_TEXT).read_to_end(&mut text)?;
        Ok(text)
    }
}

/// Field 2 is the program's name in parentheses, which may itself hold spaces and parentheses.
fn parse_stat(stat: &[u8]) -> Option<Stat> {
    let stat = String::from_utf8_lossy(stat);
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let life = match fields.next()? {
        "T" | "t" => Life::Stopped,
        "Z" | "X" | "x" => Life::Ended,
        _ => Life::Running,
    };
    Some(Stat { name: name.to_owned(), parent: fields.next()?.parse().ok()?, life })
}

/// The number at that place behind a label of `/proc/PID/status`, or the last one.
fn status_word(status: &[u8], label: &str, place: usize) -> Option<u32> {
    let status = String::from_utf8_lossy(status);
    let words: Vec<&str> =
        status.lines().find_map(|line| line.strip_prefix(label))?.split_ascii_whitespace().collect();
    words.get(place.min(words.len().checked_sub(1)?))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_the_programs_name() {
        let stat = |name: &str, parent, life| Some(Stat { name: name.into(), parent, life });
        assert_eq!(
            parse_stat(b"42 (a) R 7 (\xff) T 41 42 41 0"),
            stat("a) R 7 (\u{fffd}", 41, Life::Stopped)
        );
        assert_eq!(parse_stat(b"42 (python) t 1"), stat("python", 1, Life::Stopped));
        assert_eq!(parse_stat(b"42 (python) Z 1"), stat("python", 1, Life::Ended));
        assert_eq!(parse_stat(b"42 (python) S 1"), stat("python", 1, Life::Running));
        assert_eq!(parse_stat(b"42 (python) S"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn status_has_users_and_the_pid_in_each_namespace() {
        let status = b"Name:\tx\nUid:\t1001\t0\t0\t0\nNSpid:\t4242\t17\n";
        assert_eq!(status_word(status, "Uid:", 0), Some(1001));
        assert_eq!(status_word(status, "NSpid:", usize::MAX), Some(17));
        assert_eq!(status_word(status, "Gid:", 0), None);
        assert_eq!(status_word(b"Uid:\n", "Uid:", 0), None);
    }

    #[test]
    fn this_process_runs_and_one_that_ended_is_not_mistaken_for_another() {
        let own = ProcDir::open(std::process::id()).unwrap();
        assert_eq!(own.life(), Life::Running);
        assert_eq!(own.stat().map(|stat| stat.parent), Some(std::os::unix::process::parent_id()));
        assert_eq!(own.user(), Some(rustix::process::getuid().as_raw()));
        assert_eq!(own.inner_pid(), Some(std::process::id()));
        assert!(own.shares_paths() && own.program().contains("capture_cli"), "{}", own.program());

        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let dir = ProcDir::open(child.id()).unwrap();
        assert_eq!(dir.life(), Life::Running);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(dir.life(), Life::Ended);
        assert!(ProcDir::open(child.id()).is_err());
    }
}
