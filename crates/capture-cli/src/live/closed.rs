//! Processes that were seen and cannot be used, and why.

use super::{
    procfs::{Life, ProcDir},
    user,
};
use crate::run::printable;
use capture_core::page::OtherError;
use serde::Serialize;
use std::io::ErrorKind;

/// A process that may hold a control page, or holds one that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Closed {
    pub(crate) pid: u32,
    /// Its command line.
    pub(crate) program: String,
    pub(crate) why: String,
}

/// How much of a command line stands in a line.
const MAX_PROGRAM: usize = 48;

impl Closed {
    /// One whose descriptors this user may not see; `None` for what looks like no server.
    pub(crate) fn unseen(dir: &ProcDir, program: String) -> Option<Self> {
        let why = forbidden(dir.user(), rustix::process::geteuid().as_raw());
        looks_like_a_server(&program).then_some(Self { pid: dir.pid, program, why })
    }

    /// One whose page does not open.
    pub(crate) fn unopened(dir: &ProcDir, error: &OtherError) -> Self {
        let why = match error {
            _ if dir.life() == Life::Ended => "it has ended meanwhile".to_owned(),
            OtherError::Io(io) if io.kind() == ErrorKind::PermissionDenied => {
                forbidden(dir.user(), rustix::process::geteuid().as_raw())
            }
            error => error.to_string(),
        };
        Self { pid: dir.pid, program: dir.program(), why }
    }

    pub(crate) fn line(&self) -> String {
        format!("pid {} ({}): {}", self.pid, shortened(&self.program, MAX_PROGRAM), self.why)
    }
}

/// Why one user's process is closed to another, or to the same one, and what to do.
fn forbidden(owner: Option<u32>, own: u32) -> String {
    match owner {
        Some(owner) if owner != own && own != 0 => {
            let name = user::name(owner);
            format!("it is {name}'s: run this command as {name}, or with sudo")
        }
        // Root may do anything but what its container took from it.
        _ if own == 0 => "even root may not look into it from here: run this command where it runs \
                          (docker exec), or give this container SYS_PTRACE"
            .to_owned(),
        _ => "it may not be looked into (another group, more privileges, or not dumpable): \
              run this command with sudo, or where it runs (docker exec)"
            .to_owned(),
    }
}

/// Whether the command line is of what people serve models with.
fn looks_like_a_server(program: &str) -> bool {
    let basename = |argument: &str| argument.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let mut arguments = program.split(' ').map(basename);
    let is_python = arguments.next().is_some_and(|name| name.starts_with("python"));
    is_python || ["vllm", "sglang", "torchrun"].iter().any(|name| program.to_ascii_lowercase().contains(name))
}

/// The beginning of a command line, without what steers a terminal.
pub(crate) fn shortened(program: &str, most: usize) -> String {
    let text = printable(program);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_depends_on_whose_it_is() {
        assert_eq!(forbidden(Some(0), 1001), "it is root's: run this command as root, or with sudo");
        assert!(forbidden(Some(1001), 1001).contains("not dumpable"));
        assert!(forbidden(None, 1001).contains("not dumpable"));
        assert!(forbidden(Some(1001), 0).contains("SYS_PTRACE"));
    }

    #[test]
    fn servers_are_known_by_their_command_line() {
        for program in
            ["python3.11 serve.py", "/opt/venv/bin/python -m x", "VLLM::Worker_TP0", "/usr/bin/torchrun x"]
        {
            assert!(looks_like_a_server(program), "{program}");
        }
        for program in ["", "bash", "/usr/bin/sleep 10", "vim python.txt"] {
            assert!(!looks_like_a_server(program), "{program}");
        }
    }

    #[test]
    fn a_line_is_short_and_steers_nothing() {
        let program = format!("python \u{1b}[2J{}", "x".repeat(100));
        let line = Closed { pid: 7, program, why: "why".into() }.line();
        assert_eq!(line, format!("pid 7 (python \\u{{1b}}[2J{}…): why", "x".repeat(31)));
    }
}
