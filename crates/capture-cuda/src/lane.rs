//! The hook's side: has the stream on which a tensor was made pack it, and marks the place with an event. Nothing here waits
//! for the device, unless its ring is full.
#![expect(unsafe_code, reason = "launches kernels")]

use crate::error::{CAPTURE_IMPLICIT, CudaError};
use crate::gpu::Gpu;
use crate::kernels::Which;
use crate::pinned;
use crate::plan::{Launch, Plan};
use crate::queue::{Job, NoRange};
use capture_core::device::{Device, Outcome, Room, Work};
use capture_core::ring::Patience;
use capture_core::strided::Items;
use cudarc::driver::sys::CUstream;
use std::cell::Cell;
use std::ffi::c_void;

/// The largest piece of a tensor, where the ring is larger than four of them.
const MAX_PIECE: usize = 32 << 20;

/// A device, and the stream on which a tensor of it was made.
pub struct Lane {
    gpu: &'static Gpu,
    stream: CUstream,
    ring_bytes: usize,
    /// What keeps the tensor alive until it was packed.
    keep: Cell<Option<Box<dyn Send>>>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {:?} of {:?}", self.stream, self.gpu)
    }
}

/// The lane of a tensor on the device of that number, made on the stream of that handle: 0 and 1 are the legacy default
/// stream, 2 the thread's own. `ring_bytes` is the size of the device's ring, 0 for none: then the stream itself copies to the
/// host. `keep` is dropped by another thread, once the tensor was packed.
///
/// # Errors
/// Why nothing can be captured from that device.
pub fn lane(
    ordinal: i32,
    stream: usize,
    ring_bytes: usize,
    keep: Option<Box<dyn Send>>,
) -> Result<Lane, String> {
    let gpu = Gpu::of(ordinal)?;
    Ok(Lane { gpu, stream: stream as CUstream, ring_bytes, keep: Cell::new(keep) })
}

impl Device for Lane {
    fn max_piece(&self) -> usize {
        if self.ring_bytes == 0 { MAX_PIECE } else { (self.ring_bytes / 4).clamp(1, MAX_PIECE) }
    }

    fn has_room(&self, n_bytes: usize) -> bool {
        self.gpu.queue.lock().ring.as_ref().is_none_or(|ring| ring.has_room(n_bytes as u64))
    }

    fn begin(&self, work: Work, items: &Items<'_>, room: Room, patience: Patience) -> Result<(), String> {
        let mut room = Some(room);
        self.try_begin(work, items, &mut room, patience).map_err(|outcome| {
            let (Outcome::Lost(reason) | Outcome::Failed(reason) | Outcome::Unknown(reason)) = &outcome
            else {
                unreachable!("what was not begun is not filled");
            };
            let reason = reason.clone();
            if let Some(room) = room {
                room.settle(outcome);
            }
            reason
        })
    }
}

impl Lane {
    /// Takes the room where it succeeds; the outcome for it where not.
    fn try_begin(
        &self,
        work: Work,
        items: &Items<'_>,
        room: &mut Option<Room>,
        patience: Patience,
    ) -> Result<(), Outcome> {
        let gpu = self.gpu;
        let failed = |error: CudaError| Outcome::Failed(gpu.explain(&error));
        let _visit = gpu.context.enter().map_err(failed)?;
        self.check_stream()?;
        let Some(held) = room.as_mut() else { return Ok(()) };
        let (at, n_bytes) = held.bytes();
        let state = gpu.ready(self.ring_bytes).map_err(Outcome::Failed)?;
        let (mut state, range) = if self.ring_bytes == 0 {
            pinned::pin(gpu.context, held).map_err(failed)?;
            (state, None)
        } else {
            let reserved = gpu.queue.reserve(state, n_bytes, patience).map_err(no_range)?;
            (reserved.0, Some(reserved.1))
        };
        let begin = || {
            let to = match range {
                Some(range) => range.at,
                None => pinned::address_for_kernels(&gpu.context, at).map_err(failed)?,
            };
            let plan = Plan::new(work, items, to).map_err(Outcome::Lost)?;
            let ready = gpu.events.take(&gpu.context).map_err(failed)?;
            self.run(&plan, items, to).map_err(failed)?;
            Ok(ready)
        };
        let ready = match begin() {
            Ok(ready) => ready,
            Err(outcome) => {
                if let (Some(ring), Some(range)) = (state.ring.as_mut(), range) {
                    ring.take_back(range);
                }
                return Err(outcome);
            }
        };
        if let Err(error) = ready.record(&gpu.context, self.stream) {
            // The stream will write there at a time that nobody can tell: the range stays taken, the room haunted.
            let reason = gpu.explain(&error);
            drop(state);
            gpu.queue.fail(&reason);
            return Err(if range.is_some() { Outcome::Failed(reason) } else { Outcome::Unknown(reason) });
        }
        let Some(room) = room.take() else { return Ok(()) };
        gpu.queue.push(state, Job { room, range, ready, keep: self.keep.take() });
        Ok(())
    }

    /// Whether the stream can be given something that is not recorded into a graph.
    fn check_stream(&self) -> Result<(), Outcome> {
        let Gpu { context, .. } = self.gpu;
        let functions = &context.driver.functions;
        let mut capturing = 0;
        // SAFETY: a stream of the framework, alive as it is current.
        let code = unsafe { (functions.stream_is_capturing)(self.stream, &raw mut capturing) };
        if code == CAPTURE_IMPLICIT || (code == 0 && capturing != 0) {
            let reason =
                "its stream was being captured into a CUDA graph, which a tap is not recorded into yet";
            return Err(Outcome::Lost(reason.to_owned()));
        }
        let asked = context.driver.check("cuStreamIsCapturing", code);
        asked.map_err(|error| Outcome::Failed(self.gpu.explain(&error)))?;
        if self.stream as usize <= PER_THREAD {
            return Ok(());
        }
        let mut its = std::ptr::null_mut();
        // SAFETY: as above.
        let code = unsafe { (functions.stream_context)(self.stream, &raw mut its) };
        let asked = context.driver.check("cuStreamGetCtx", code);
        asked.map_err(|error| Outcome::Failed(self.gpu.explain(&error)))?;
        if context.is(its) {
            return Ok(());
        }
        let name = self.gpu.name();
        Err(Outcome::Lost(format!("its stream does not belong to the primary context of {name}")))
    }

    /// Has the stream do it.
    fn run(&self, plan: &Plan, items: &Items<'_>, to: u64) -> Result<(), CudaError> {
        let context = &self.gpu.context;
        let from = items.first as u64;
        match plan {
            Plan::Copy { n_bytes } => {
                // SAFETY: so many bytes of the tensor, and their place.
                let code = unsafe { (context.driver.functions.copy)(to, from, *n_bytes, self.stream) };
                context.driver.check("cuMemcpyAsync", code)
            }
            Plan::Turn(turn) => {
                let which = Which::Turn { item_bytes: turn.item_bytes };
                let (rows, columns) = (argument(&turn.rows), argument(&turn.columns));
                let mut arguments = [argument(&from), argument(&to), rows, columns, argument(&turn.stride)];
                // SAFETY: as the kernel's description says: a matrix, and room for all of it.
                unsafe { self.gpu.kernels.launch(context, which, turn.blocks, self.stream, &mut arguments) }
            }
            Plan::Kernel(launch) => {
                let Launch { which, blocks, count, units, layout } = launch;
                let (from, to, count) = (argument(&from), argument(&to), argument(count));
                let (units, layout) = (argument(units), argument(layout));
                let mut pack = [from, to, count, layout];
                let mut digest = [from, count, units, to, layout];
                let arguments = if matches!(which, Which::Pack { .. }) { &mut pack[..] } else { &mut digest };
                // SAFETY: as the kernels' descriptions say; items lie where their layout says, and the destination
                // has room for all units, or for a partial result a block.
                unsafe { self.gpu.kernels.launch(context, *which, *blocks, self.stream, arguments) }
            }
        }
    }
}

/// An argument of a kernel, which is copied at the launch.
fn argument<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// The handle of a thread's own default stream; those below are the legacy one.
const PER_THREAD: usize = 2;

fn no_range(no_range: NoRange) -> Outcome {
    match no_range {
        NoRange::Full => Outcome::Lost("the device's ring was full (TPCAPTURE_ON_FULL=drop)".to_owned()),
        NoRange::TooLarge => {
            Outcome::Lost("larger than the device's ring (TPCAPTURE_DEVICE_RING)".to_owned())
        }
        NoRange::Stuck(limit) => Outcome::Failed(format!(
            "its ring stayed full for {limit:?} (TPCAPTURE_ON_FULL): a stream of the model stands still"
        )),
        NoRange::Failed(reason) => Outcome::Failed(reason),
    }
}
