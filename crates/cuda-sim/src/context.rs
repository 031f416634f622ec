//! Contexts, and what belongs to them: streams, events, functions.

use crate::code::{Code, INVALID_CONTEXT, INVALID_HANDLE, NOT_INITIALIZED};
use crate::settings::lock;
use crate::stream::Stream;
use crate::token::Token;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::ThreadId;

/// A handle: no address of anything, so that whoever follows one dies of it.
pub(crate) type Handle = usize;

#[derive(Clone, Default)]
pub(crate) struct Event {
    pub(crate) context: Handle,
    /// When it was recorded last.
    pub(crate) token: Option<Token>,
    /// The graph into which it was recorded.
    pub(crate) graph: Option<Handle>,
}

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) context: Handle,
    pub(crate) name: CString,
}

/// A stream of a context is known by its handle; the default ones are made when they are first used, the per-thread ones a
/// thread.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
enum Default {
    Legacy(Handle),
    PerThread(Handle, ThreadId),
}

#[derive(Default)]
pub(crate) struct Registry {
    /// Primary contexts by device, and how often they are retained.
    pub(crate) primary: BTreeMap<i32, (Handle, usize)>,
    /// The device of every context that is alive.
    pub(crate) contexts: BTreeMap<Handle, i32>,
    pub(crate) streams: HashMap<Handle, Arc<Stream>>,
    defaults: HashMap<Default, Arc<Stream>>,
    pub(crate) events: HashMap<Handle, Event>,
    pub(crate) modules: HashMap<Handle, Handle>,
    pub(crate) functions: HashMap<Handle, Function>,
}

pub(crate) static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
pub(crate) static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);
/// The error after which nothing works any more.
static STICKY: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The thread's contexts, the current one last.
    pub(crate) static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn new_handle() -> Handle {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    NEXT.fetch_add(0x10, SeqCst)
}

pub(crate) fn sticky() -> Result<(), Code> {
    match STICKY.load(SeqCst) {
        0 => Ok(()),
        code => Err(code),
    }
}

pub(crate) fn set_sticky(code: Code) {
    STICKY.store(code, SeqCst);
}

/// The thread's current context, without which hardly any call makes sense.
pub(crate) fn current() -> Result<Handle, Code> {
    if !IS_INITIALIZED.load(SeqCst) {
        return Err(NOT_INITIALIZED);
    }
    STACK.with_borrow(|stack| stack.last().copied().filter(|handle| *handle != 0)).ok_or(INVALID_CONTEXT)
}

/// The device of the current context.
pub(crate) fn current_device() -> Result<i32, Code> {
    lock(&REGISTRY).contexts.get(&current()?).copied().ok_or(INVALID_CONTEXT)
}

/// The stream of that handle, as the calling thread sees it: 0 and 1 the legacy default stream of its context, 2 its own.
pub(crate) fn stream(handle: Handle) -> Result<Arc<Stream>, Code> {
    let context = current()?;
    let key = match handle {
        0 | 1 => Default::Legacy(context),
        2 => Default::PerThread(context, std::thread::current().id()),
        _ => return lock(&REGISTRY).streams.get(&handle).cloned().ok_or(INVALID_HANDLE),
    };
    let mut registry = lock(&REGISTRY);
    let made = registry.defaults.entry(key);
    Ok(Arc::clone(made.or_insert_with(|| Stream::start(context, true))))
}

/// The same, where the call is refused for one of another context.
pub(crate) fn stream_of_current(handle: Handle) -> Result<Arc<Stream>, Code> {
    let stream = stream(handle)?;
    if stream.context == current()? { Ok(stream) } else { Err(INVALID_HANDLE) }
}

/// The legacy default stream of a context, if anybody has used it.
pub(crate) fn legacy(context: Handle) -> Option<Arc<Stream>> {
    lock(&REGISTRY).defaults.get(&Default::Legacy(context)).cloned()
}

/// All streams of a context.
pub(crate) fn streams_of(context: Handle) -> Vec<Arc<Stream>> {
    let registry = lock(&REGISTRY);
    let all = registry.streams.values().chain(registry.defaults.values());
    all.filter(|stream| stream.context == context).cloned().collect()
}
