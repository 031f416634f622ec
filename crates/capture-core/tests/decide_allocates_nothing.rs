//! Asserts that a decision allocates nothing, by an allocator that counts. Alone in its process, as the allocator is
//! the process's.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use capture_core::Dtype;
use capture_core::select::{Decision, Plan, Selection, Subject};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static N_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator; counting in a const-initialised thread local without a destructor
// does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.set(N_ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps to the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract of `dealloc`, and `alloc` took the memory from there.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_decision_allocates_nothing() {
    let text = "*.q[dim0=5,dtype=bf16,numel<1e6,limit=2], *.q[every=3,head=2]=stats, *=hash";
    let selection: Selection = text.parse().unwrap();
    let before_plan = N_ALLOCATIONS.get();
    let plan = Plan::new(&selection, "layers.0.q");
    let before = N_ALLOCATIONS.get();
    assert!(before > before_plan, "the allocator counts");
    let mut n_captured = 0;
    for shape in [[5, 128], [6, 128]].iter().cycle().take(20) {
        let subject = Subject { dtype: Some(Dtype::BF16), shape, call: 0, rank: Some(0) };
        n_captured += u32::from(plan.decide(&selection, &subject) != Decision::Skip);
    }
    // Two of five rows by their limit; of ten of six rows the 1st, 4th, 7th and 10th.
    assert_eq!((N_ALLOCATIONS.get() - before, n_captured), (0, 6));
}
