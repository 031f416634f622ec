//! The fence that a command makes on behalf of processes which cannot afford one at every step: membarrier(2).

use super::other::Other;
use std::time::Duration;

const CMD_GLOBAL: libc::c_int = 1 << 0;
const CMD_GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const CMD_REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// How long a store may lie in a processor's buffer, and longer than any is known to.
const DRAINED: Duration = Duration::from_millis(5);

/// When this returns, what the caller had written to the pages is seen by every thread of their processes from its next
/// load on, and what those had stored before is seen by the caller.
pub fn barrier<'a>(pages: impl IntoIterator<Item = &'a Other>) {
    let expedited = pages.into_iter().all(Other::is_expedited) && membarrier(CMD_GLOBAL_EXPEDITED);
    if !expedited && !membarrier(CMD_GLOBAL) {
        std::thread::sleep(DRAINED);
    }
}

/// Has the kernel reach this process with the quick kind of barrier. False where it refuses.
pub(super) fn register() -> bool {
    membarrier(CMD_REGISTER_GLOBAL_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: a system call that touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
