//! It is as unkind as it says: each test would pass on no driver that is kinder.
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the driver under test")]

use cuda_sim::*;
use std::sync::Mutex;

/// Sticky errors and held copies are the process's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

const N: usize = 4096;

/// With a context and a stream of its own.
fn on_stream(test: impl FnOnce(usize)) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut context, mut stream) = (0, 0);
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
    }
    test(stream);
    cuda_sim_fault(0);
}

fn device(bytes: &[u8]) -> usize {
    let mut at = 0;
    unsafe {
        assert_eq!(cuMemAlloc_v2(&raw mut at, bytes.len()), 0);
        assert_eq!(cuMemcpyHtoD_v2(at, bytes.as_ptr() as usize, bytes.len()), 0);
    }
    at
}

fn pinned() -> usize {
    let mut at = 0;
    assert_eq!(unsafe { cuMemHostAlloc(&raw mut at, N, 0) }, 0);
    at
}

fn byte(at: usize) -> u8 {
    unsafe { (at as *const u8).read_volatile() }
}

#[test]
fn memory_is_poisoned_when_it_is_allocated_and_given_out_again_when_it_is_freed() {
    on_stream(|_| {
        let first = device(&[7; N]);
        let mut read = [0u8; N];
        let (mut fresh, mut again) = (0, 0);
        unsafe {
            cuMemAlloc_v2(&raw mut fresh, N);
            cuMemcpyDtoH_v2(read.as_mut_ptr() as usize, fresh, N);
            assert_eq!(read, [0xCD; N]);
            cuMemFree_v2(first);
            cuMemAlloc_v2(&raw mut again, N);
        }
        assert_eq!(again, first);
    });
}

/// In a child, which dies of it.
#[test]
fn the_host_cannot_touch_device_memory() {
    on_stream(|_| {
        let at = device(&[1; N]);
        let child = unsafe { libc::fork() };
        if child == 0 {
            byte(at);
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    });
}

#[test]
fn a_stream_is_late_and_its_pinned_source_is_read_late() {
    on_stream(|stream| {
        let (to, from) = (device(&[0; N]), pinned());
        let mut read = [0u8; N];
        unsafe {
            std::ptr::write_bytes(from as *mut u8, 1, N);
            cuda_sim_gate(stream, 0);
            cuMemcpyHtoDAsync_v2(to, from, N, stream);
            assert_eq!(cuStreamQuery(stream), 600);
            std::ptr::write_bytes(from as *mut u8, 2, N);
            cuda_sim_gate(stream, -1);
            cuStreamSynchronize(stream);
            cuMemcpyDtoH_v2(read.as_mut_ptr() as usize, to, N);
        }
        assert_eq!(read, [2; N]);
    });
}

#[test]
fn a_copy_to_the_host_lands_its_tail_first() {
    on_stream(|stream| {
        let (from, to) = (device(&[9; N]), pinned());
        cuda_sim_delay_us(200_000);
        unsafe { cuMemcpyDtoHAsync_v2(to, from, N, stream) };
        while byte(to + N - 1) != 9 {
            std::thread::yield_now();
        }
        let head = byte(to);
        cuda_sim_delay_us(0);
        unsafe { cuStreamSynchronize(stream) };
        assert_eq!((head, byte(to)), (0xCD, 9));
    });
}

#[test]
fn memory_that_goes_under_a_running_copy_is_a_sticky_error() {
    on_stream(|stream| {
        let (from, to) = (device(&[9; N]), pinned());
        let mut at = 0;
        unsafe {
            cuda_sim_gate(stream, 0);
            cuMemcpyDtoHAsync_v2(to, from, N, stream);
            assert_eq!(cuMemHostUnregister(to), 0);
            cuda_sim_gate(stream, -1);
            assert_eq!(cuStreamSynchronize(stream), 700);
            assert_eq!(cuMemAlloc_v2(&raw mut at, N), 700, "it stays");
        }
    });
}

#[test]
fn the_legacy_stream_waits_for_streams_that_block_and_for_no_other() {
    on_stream(|free| {
        let mut blocking = 0;
        let (at, to) = (device(&[1; N]), device(&[0; N]));
        unsafe {
            cuStreamCreate(&raw mut blocking, 0);
            for (stream, expected) in [(free, 0), (blocking, 600)] {
                cuda_sim_gate(stream, 0);
                cuMemcpyAsync(to, at, N, stream);
                cuMemcpyAsync(to, at, N, 0);
                std::thread::sleep(std::time::Duration::from_millis(50));
                assert_eq!(cuStreamQuery(0), expected);
                cuda_sim_gate(stream, -1);
                cuStreamSynchronize(0);
            }
        }
    });
}

#[test]
fn calls_want_a_context_and_their_own() {
    on_stream(|stream| {
        let (mut other, mut event, mut at) = (0, 0, 0);
        unsafe {
            cuEventCreate(&raw mut event, 0);
            cuCtxCreate_v2(&raw mut other, 0, 1);
            assert_eq!(cuEventRecord(event, stream), 400);
            // Off the stack, and then the primary context below it.
            cuCtxSetCurrent(0);
            cuCtxSetCurrent(0);
            assert_eq!(cuMemAlloc_v2(&raw mut at, 1), 201);
        }
    });
}

#[test]
fn a_call_fails_once_when_it_is_told_to() {
    on_stream(|_| {
        let mut at = 0;
        unsafe {
            cuda_sim_fail(c"cuMemAlloc_v2".as_ptr(), 2, 1);
            assert_eq!([0; 3].map(|_: i32| cuMemAlloc_v2(&raw mut at, 1)), [0, 2, 0]);
        }
    });
}
