//! Where a process comes from, and the names that follow from it: the run's and the process's own.

use super::{Who, slurm_step};
use crate::name::is_run_name;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;

/// A process's host, pid and start, and its parent's. Start times are in clock ticks since boot, as in `/proc`; 0
/// where `/proc` does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// When the process started.
    pub start: u64,
    /// The parent's process id; 0 where it lies outside the pid namespace.
    pub parent: u32,
    /// When the parent started.
    pub parent_start: u64,
}

impl Origin {
    /// The calling process's. Reads `/proc`; a child of fork must ask anew.
    #[must_use]
    pub fn of_this_process() -> Self {
        let pid = std::process::id();
        let (parent, start) = stat(pid).unwrap_or_default();
        let parent_start = stat(parent).map_or(0, |(_, start)| start);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("localhost").to_owned();
        Self { host, pid, start, parent, parent_start }
    }
}

fn stat(pid: u32) -> Option<(u32, u64)> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parent and start time out of `/proc/PID/stat`, its fields 4 and 22. Field 2 is the program's name in parentheses,
/// which may itself hold spaces and parentheses.
fn parse_stat(stat: &[u8]) -> Option<(u32, u64)> {
    let after_name = stat.iter().rposition(|b| *b == b')')? + 1;
    let fields: Vec<&str> = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// The name of a process's `count`-th run, from 1: equal on all ranks of a job (docs/format.md, Run name). Always a
/// valid one.
#[must_use]
pub fn run_name(get: impl Fn(&str) -> Option<OsString>, who: &Who, count: u32, origin: &Origin) -> String {
    let text = |name: &str| {
        let text = get(name)?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    if let Some(given) = text("TPCAPTURE_RUN") {
        return if count <= 1 && is_run_name(&given) { given } else { component(&given, count) };
    }
    let Origin { host, pid, start, parent, parent_start } = origin;
    let name = if let Some(ident) = text("VLLM_DIST_IDENT") {
        format!("vllm-{ident}")
    } else if let Some(id) = text("TORCHELASTIC_RUN_ID").filter(|id| id != "none") {
        format!("elastic-{id}-{}", text("TORCHELASTIC_RESTART_COUNT").as_deref().unwrap_or("0"))
    } else if let Some((job, step)) = slurm_step(text) {
        format!("slurm-{job}.{step}")
    } else if let Some(port) = text("MASTER_PORT") {
        format!("{host}-{parent}-{parent_start}-{port}")
    } else if who.world.is_some_and(|world| world > 1) {
        format!("{host}-{parent}-{parent_start}-0")
    } else {
        format!("{host}-{pid}-{start}")
    };
    component(&name, count)
}

/// `NAME-COUNT` (a first `NAME` that was given has no count) with what a run name cannot hold replaced. What is too
/// long is cut and told apart by its checksum.
fn component(name: &str, count: u32) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let mut safe: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if safe.starts_with('.') {
        safe.replace_range(..1, "_");
    }
    if safe.len() > 180 {
        safe.truncate(171);
        safe += &format!("-{:08x}", crc32fast::hash(name.as_bytes()));
    }
    format!("{safe}-{count}")
}

/// `PID-8HEX`: unique per process and run. The random part tells apart equal pids of different hosts, containers and
/// restarts, and is drawn anew at each call, so a child of fork shares nothing with its parent.
#[must_use]
pub fn process_id() -> String {
    let mut random = [0; 4];
    let drawn = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    if drawn.is_err() {
        // Seeded by the system per thread; the clock and the pid tell a child of fork from its parent.
        let seen = (std::process::id(), std::time::SystemTime::now());
        random = (RandomState::new().hash_one(seen) as u32).to_le_bytes();
    }
    format!("{}-{:08x}", std::process::id(), u32::from_le_bytes(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { host: "node7".into(), pid: 4242, start: 9000, parent: 41, parent_start: 900 }
    }

    #[track_caller]
    fn check(variables: &[(&str, &str)], world: Option<u32>, count: u32, name: &str) {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into());
        let who = Who { world, ..Who::unknown() };
        let found = run_name(get, &who, count, &origin());
        assert_eq!(found, name);
        assert!(is_run_name(&found));
    }

    #[test]
    fn a_given_name_is_taken_verbatim_the_first_time() {
        let given = [("TPCAPTURE_RUN", "exp.1"), ("VLLM_DIST_IDENT", "x")];
        check(&given, None, 1, "exp.1");
        check(&given, None, 2, "exp.1-2");
        check(&given, None, 3, "exp.1-3");
        check(&[("TPCAPTURE_RUN", "../x")], None, 1, "_._x-1");
    }

    #[test]
    fn a_derived_name_is_what_all_ranks_share() {
        let all = [
            ("VLLM_DIST_IDENT", "ab/c"),
            ("TORCHELASTIC_RUN_ID", "job 5"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "0"),
            ("MASTER_PORT", "29500"),
        ];
        check(&all, Some(8), 1, "vllm-ab_c-1");
        check(&all[1..], Some(8), 1, "elastic-job_5-2-1");
        check(&[("TORCHELASTIC_RUN_ID", "5")], None, 2, "elastic-5-0-2");
        check(&all[3..], Some(8), 1, "slurm-77.0-1");
        check(&all[5..], Some(8), 1, "node7-41-900-29500-1");
        check(&[("MASTER_PORT", "1"), ("TORCHELASTIC_RUN_ID", "none")], None, 1, "node7-41-900-1-1");
        check(&[], Some(8), 1, "node7-41-900-0-1");
        check(&[], Some(1), 2, "node7-4242-9000-2");
        check(&[], None, 1, "node7-4242-9000-1");
    }

    #[test]
    fn a_slurm_job_without_a_step_does_not_name_the_run() {
        check(&[("SLURM_JOB_ID", "77")], None, 1, "node7-4242-9000-1");
        check(&[("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "4294967291")], None, 1, "node7-4242-9000-1");
    }

    #[test]
    fn a_long_name_is_cut_and_told_apart() {
        let name = |last: char| component(&("x".repeat(300) + &last.to_string()), u32::MAX);
        assert!(is_run_name(&name('a')), "{}", name('a'));
        assert_ne!(name('a'), name('b'));
        assert_eq!(component(".hidden/é", 1), "_hidden__-1");
    }

    #[test]
    fn stat_is_read_behind_the_program_name() {
        let stat = b"4242 (a) R 7 (\xff) S 41 4242 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 9000 12345 678";
        assert_eq!(parse_stat(stat), Some((41, 9000)));
        assert_eq!(parse_stat(b"4242 (a) S 41 4242"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn this_process_has_a_parent_that_started_before_it() {
        let origin = Origin::of_this_process();
        assert_eq!((origin.pid, origin.parent), (std::process::id(), std::os::unix::process::parent_id()));
        assert!(origin.start > 0 && origin.parent_start <= origin.start, "{origin:?}");
        assert!(!origin.host.is_empty() && !origin.host.contains('\n'));
    }

    #[test]
    fn a_process_id_is_drawn_anew() {
        let (a, b) = (process_id(), process_id());
        assert_ne!(a, b);
        let (pid, hex) = a.split_once('-').unwrap();
        assert_eq!(pid, std::process::id().to_string());
        assert!(
            hex.len() == 8 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
            "{a}"
        );
    }
}
