//! The writer thread: takes pieces from the ring and appends them to segments, until the ring is closed.
//!
//! It is the only thread that touches files. Whatever goes wrong here ends the capture, is said once and is kept in
//! the ledger; the ring is drained to the end, so that nobody waits for a writer that has given up.
#![expect(unsafe_code, reason = "reads the ring's ranges")]

use crate::config::MinFree;
use crate::digest::partial;
use crate::digested::{self, DigestFile, Digested};
use crate::engine::{Draft, Engine, Failure as DeviceFailure, Piece, Reach};
use crate::leavings::Leavings;
use crate::ledger::Ledger;
use crate::manifest::{Manifest, State};
use crate::notice::notice;
use crate::record::Identity;
use crate::ring::{Next, Range};
use crate::rundir::{RunDir, RunDirError};
use crate::segment::{SegmentWriter, WriteError};
use crate::select::{Mode, Rule, Selection};
use crate::signals;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many bytes may be written before free space is asked for again.
const SPACE_INTERVAL: u64 = 64 << 20;
/// What share of the space that is left may be written meanwhile.
const SPACE_SHARE: u64 = 16;

/// How often the writer [attends](Assignment::attend).
const ATTENTION: Duration = Duration::from_millis(50);

/// How long the last manifest waits for producers that still have to count a loss.
const LAST_COUNT: Duration = Duration::from_secs(1);

/// What a writer has to know beside what comes through the ring.
pub(crate) struct Assignment {
    /// The directory that holds runs.
    pub(crate) dir: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) min_free: MinFree,
    /// Whether to tell where the run is, and whether it was there before: not where the caller knows.
    pub(crate) announced: bool,
    /// The manifest as it stands at the start.
    pub(crate) manifest: Manifest,
    pub(crate) selection: Selection,
    pub(crate) ledger: Arc<Ledger>,
    /// Looks whether somebody calls the process, and says how it stands.
    pub(crate) attend: fn(),
}

/// Starts the thread.
///
/// # Errors
/// Where the system has no thread to give.
pub(crate) fn spawn(engine: Arc<Engine>, assignment: Assignment) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("tpcapture-writer".into());
    thread.spawn(move || run(&engine, assignment)).map(drop)
}

fn run(engine: &Engine, assignment: Assignment) {
    signals::leave_to_the_model();
    let (ledger, attend) = (Arc::clone(&assignment.ledger), assignment.attend);
    let mut writer = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let writer = writer.insert(Writer::open(assignment)?);
        // On a crowded machine this takes longer than a disk may: it is progress, too.
        engine.ring.warm(|| engine.note_moved(0));
        writer.write_all(engine)
    }));
    let failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(panic) => Some(format!("the writer panicked: {}", panic_text(&*panic))),
    };
    if let Some(failure) = &failure {
        ledger.fail(failure, now_ns());
        engine.ring.close();
        // A second panic is a second look at the same fault.
        let open = writer.as_mut().and_then(|writer| writer.open.take());
        let _ = catch_unwind(AssertUnwindSafe(|| drain(engine, &ledger, failure, open)));
    }
    if let Some(mut writer) = writer {
        engine.await_producers(LAST_COUNT);
        let sealed = catch_unwind(AssertUnwindSafe(|| writer.finish(engine)));
        if let Ok(Err(error)) = sealed
            && failure.is_none()
        {
            ledger.fail(&error.to_string(), now_ns());
        }
    }
    if engine.release() {
        engine.ring.retire();
    }
    engine.note_finished();
    let _ = catch_unwind(attend);
}

/// Says where the run is, once per job, and whether an earlier process of this rank is in it already: whoever repeats an
/// attempt under one name would compare the old with the new.
fn tell_where(dir: &RunDir, assignment: &Assignment) {
    let Identity { rank, .. } = &assignment.identity;
    if !assignment.announced {
        return;
    }
    if rank.is_none_or(|rank| rank == 0) {
        notice(&format!("capturing to {:?}", dir.path()));
    }
    if rank.is_some_and(|rank| dir.holds(&format!("rank{rank}."))) {
        notice(&format!(
            "{:?} holds an earlier process of this rank already; comparing uses the later one. Give each attempt a TPCAPTURE_RUN of its own",
            dir.path()
        ));
    }
}

/// Counts what will not be written, the record that was being written first. One whose last bytes never come is counted
/// by its producer, whom the closed ring turns away.
fn drain(engine: &Engine, ledger: &Ledger, reason: &str, mut open: Option<Open>) {
    loop {
        if let Some(lost) = open.take_if(|open| open.missing == 0) {
            ledger.lose(&lost.tap, reason);
        }
        let Next::Range(range) = engine.ring.next(None) else { return };
        let n_bytes = range.n_bytes() as u64;
        match &range.payload {
            Piece::First(draft) => open = Some(Open::new(draft, n_bytes)),
            Piece::More => open = open.map(|open| open.with(n_bytes)),
            Piece::Abandon => open = None,
            Piece::Digest(draft) | Piece::Failed { draft: Some(draft), .. } => {
                ledger.lose(&draft.record.tap, reason);
            }
            Piece::Failed { draft: None, .. } => {
                if let Some(lost) = open.take() {
                    ledger.lose(&lost.tap, reason);
                }
            }
            Piece::Seal => engine.note_sealed(),
        }
        engine.note_moved(n_bytes);
        engine.ring.free(range);
    }
}

/// A record some of whose bytes have come through the ring.
struct Open {
    tap: String,
    /// The selection's rule that wanted it.
    rule: usize,
    n_bytes: u64,
    /// Bytes still to come.
    missing: u64,
}

impl Open {
    fn new(draft: &Draft, n_bytes: u64) -> Self {
        let (tap, rule) = (draft.record.tap.clone(), draft.rule);
        Self { tap, rule, n_bytes: draft.n_bytes, missing: draft.n_bytes }.with(n_bytes)
    }

    fn with(self, n_bytes: u64) -> Self {
        Self { missing: self.missing.saturating_sub(n_bytes), ..self }
    }
}

/// Why a writer stops.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("disk: {0}")]
    Dir(#[from] RunDirError),
    #[error("disk: {0}")]
    Write(#[from] WriteError),
    #[error("disk: {what}: {source}: {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("disk: {available} of {total} bytes free, less than TPCAPTURE_MIN_FREE={limit}, at {path:?}")]
    Space { available: u64, total: u64, limit: MinFree, path: PathBuf },
}

struct Writer {
    dir: RunDir,
    segments: SegmentWriter,
    /// Records of mode stats and hash, once there is one.
    digests: Option<DigestFile>,
    n_segments: u64,
    assignment: Assignment,
    /// The record that is being written.
    open: Option<Open>,
    /// Askers for a seal that came between the pieces of that record: it is not cut.
    seals_asked: u64,
    /// Bytes until free space is asked for.
    unasked: u64,
    attends_at: Instant,
}

impl Writer {
    fn open(assignment: Assignment) -> Result<Self, Failure> {
        let dir = RunDir::create(&assignment.dir, &assignment.identity.run)?;
        tell_where(&dir, &assignment);
        let segments = SegmentWriter::new(dir.clone(), assignment.identity.clone());
        let mut writer = Self {
            dir,
            segments,
            digests: None,
            n_segments: 0,
            assignment,
            open: None,
            seals_asked: 0,
            unasked: 0,
            attends_at: Instant::now(),
        };
        writer.check_space(0)?;
        writer.write_manifest()?;
        Ok(writer)
    }

    fn write_all(&mut self, engine: &Engine) -> Result<(), Failure> {
        loop {
            // A segment that is due waits for the record it is in the middle of.
            let due = if self.open.is_none() { self.segments.deadline() } else { None };
            self.attend();
            match engine.ring.next(Some(due.map_or(self.attends_at, |due| due.min(self.attends_at)))) {
                Next::Range(range) => {
                    let n_bytes = range.n_bytes() as u64;
                    let taken = self.take(engine, &range);
                    engine.ring.free(range);
                    engine.note_moved(n_bytes);
                    taken?;
                    if self.seals_asked > 0 && self.open.is_none() {
                        self.segments.seal()?;
                        self.sync_digests()?;
                        if self.digests.is_some() {
                            // A segment that is sealed is in the manifest; so is a line that is asked for.
                            self.write_manifest()?;
                        }
                    }
                }
                Next::Timeout if due.is_some_and(|due| Instant::now() >= due) => self.segments.seal()?,
                Next::Timeout => {}
                Next::Closed => return Ok(()),
            }
            if self.note_segments()? {
                engine.note_overhead(self.segments.header_bytes());
            }
            if self.open.is_none() {
                // Whoever waits for a seal finds its segment counted and in the manifest.
                (0..std::mem::take(&mut self.seals_asked)).for_each(|_| engine.note_sealed());
            }
        }
    }

    fn attend(&mut self) {
        let now = Instant::now();
        if now >= self.attends_at {
            self.attends_at = now + ATTENTION;
            (self.assignment.attend)();
        }
    }

    fn take(&mut self, engine: &Engine, range: &Range<Piece>) -> Result<(), Failure> {
        let (from, n_bytes) = engine.ring.bytes_of(range);
        match &range.payload {
            Piece::First(draft) => {
                // Open even where it cannot be begun: then it is lost along with those behind it.
                self.open = Some(Open::new(draft, n_bytes as u64));
                self.check_space(draft.n_bytes)?;
                match self.segments.begin(&draft.record, draft.dtype, &draft.shape, draft.n_bytes) {
                    Ok(()) => {}
                    // One record that cannot be written says nothing of the next.
                    Err(error) if error.is_of_one_record() => {
                        self.open = None;
                        self.assignment.ledger.lose(&draft.record.tap, &error.to_string());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Piece::More => self.open = self.open.take().map(|open| open.with(n_bytes as u64)),
            Piece::Abandon => {
                self.open = None;
                self.segments.abandon()?;
            }
            Piece::Digest(draft) => {
                // SAFETY: as below.
                let parts = unsafe { std::slice::from_raw_parts(from, n_bytes) };
                self.write_digest(draft, parts)?;
            }
            Piece::Failed { draft, failure } => self.lose_to_device(draft.as_deref(), failure)?,
            Piece::Seal => self.seals_asked += 1,
        }
        if self.open.is_none() {
            return Ok(());
        }
        if n_bytes > 0 {
            // SAFETY: a published range, ours until it is freed; producers write to it no more.
            self.segments.append(unsafe { std::slice::from_raw_parts(from, n_bytes) })?;
        }
        if self.open.as_ref().is_some_and(|open| open.missing == 0) {
            self.segments.finish()?;
            if let Some(Open { rule, n_bytes, .. }) = self.open.take() {
                self.assignment.ledger.record(rule, n_bytes);
            }
        }
        Ok(())
    }

    /// A device did not fill a range: the record is lost, and perhaps all that would follow.
    fn lose_to_device(&mut self, draft: Option<&Draft>, failure: &DeviceFailure) -> Result<(), Failure> {
        let DeviceFailure { device, reason, reach } = failure;
        let ledger = &self.assignment.ledger;
        let tap = match (draft, self.open.take()) {
            (Some(draft), _) => Some(draft.record.tap.clone()),
            (None, Some(open)) => {
                self.segments.abandon()?;
                Some(open.tap)
            }
            // Counted with its first piece.
            (None, None) => None,
        };
        if let Some(tap) = tap {
            ledger.lose(&tap, &format!("{device}: {reason}"));
        }
        match reach {
            Reach::Record => {}
            Reach::Device => ledger.fail_device(device, reason),
            Reach::Capture => ledger.fail(&format!("{device}: {reason}"), now_ns()),
        }
        Ok(())
    }

    /// Appends the line of a record that has no bytes, its digest computed before or from a device's `parts`.
    fn write_digest(&mut self, draft: &Draft, parts: &[u8]) -> Result<(), Failure> {
        let Draft { record, dtype, shape, n_bytes, mode, digest, .. } = draft;
        let digest = digest.clone().unwrap_or_else(|| match mode {
            Mode::Hash => partial::hash(parts, *n_bytes),
            _ => partial::stats(parts, *dtype, *n_bytes),
        });
        let (record, shape) = (record.clone(), shape.clone());
        let line = digested::line(&Digested { record, dtype: *dtype, shape, digest });
        let n_bytes = line.len() as u64;
        let written = self.check_space(n_bytes).and_then(|()| self.append_digest(&line));
        match &written {
            Ok(()) => self.assignment.ledger.record(draft.rule, n_bytes),
            Err(failure) => self.assignment.ledger.lose(&draft.record.tap, &failure.to_string()),
        }
        written
    }

    fn append_digest(&mut self, line: &str) -> Result<(), Failure> {
        let identity = &self.assignment.identity;
        let io = |what| {
            let path = self.dir.path().join(DigestFile::name(identity));
            move |source| Failure::Io { what, path, source }
        };
        if self.digests.is_none() {
            self.digests =
                Some(DigestFile::create(&self.dir, identity).map_err(io("make the file of statistics"))?);
        }
        self.digests.as_mut().map_or(Ok(()), |digests| digests.write(line)).map_err(io("write statistics"))
    }

    /// Has the lines on the disk.
    fn sync_digests(&mut self) -> Result<(), Failure> {
        let path = self.dir.path().join(DigestFile::name(&self.assignment.identity));
        let Some(digests) = &mut self.digests else { return Ok(()) };
        digests.sync().map_err(|source| Failure::Io { what: "sync statistics", path, source })
    }

    /// Keeps the manifest abreast of the segments; whether any was sealed since.
    fn note_segments(&mut self) -> Result<bool, Failure> {
        let sealed = self.segments.segments();
        if self.n_segments == sealed {
            return Ok(false);
        }
        (self.n_segments..sealed).for_each(|_| self.assignment.ledger.segment());
        self.n_segments = sealed;
        self.write_manifest()?;
        Ok(true)
    }

    /// Every so many bytes, fewer where there is less: is there still room, beside the `n_bytes` to come?
    fn check_space(&mut self, n_bytes: u64) -> Result<(), Failure> {
        self.unasked = self.unasked.saturating_sub(n_bytes);
        if self.unasked > 0 {
            return Ok(());
        }
        let io =
            |source| Failure::Io { what: "ask for free space", path: self.dir.path().to_owned(), source };
        let space = self.dir.space().map_err(io)?;
        let limit = self.assignment.min_free;
        let Some(spare) = space.available.saturating_sub(n_bytes).checked_sub(limit.bytes_of(space.total))
        else {
            let path = self.dir.path().to_owned();
            return Err(Failure::Space { available: space.available, total: space.total, limit, path });
        };
        // The closer the limit the sooner the next question, as other ranks write to the same disk.
        self.unasked = SPACE_INTERVAL.min(spare / SPACE_SHARE);
        Ok(())
    }

    fn write_manifest(&mut self) -> Result<(), Failure> {
        let balance = self.assignment.ledger.balance();
        let manifest = &mut self.assignment.manifest;
        manifest.rules = balance.rule_counts(self.assignment.selection.rules().iter().map(Rule::text));
        manifest.counters = balance.counters;
        manifest.losses = balance.losses;
        manifest.last_error = balance.last_error;
        if let Some(end) = balance.end {
            manifest.state = State::Ended;
            manifest.ended_ns = Some(end.at_ns);
            manifest.end_reason = Some(end.reason);
        }
        let stem = self.assignment.identity.stem();
        manifest.write(&self.dir, &stem).map_err(|source| {
            let path = self.dir.path().join(format!("{stem}.json"));
            Failure::Io { what: "write the manifest", path, source }
        })
    }

    /// Seals what is complete and writes the last manifest, unless all is to be thrown away.
    fn finish(&mut self, engine: &Engine) -> Result<(), Failure> {
        let sealed = self.segments.seal();
        let synced = self.sync_digests();
        let stem = self.assignment.identity.stem();
        let leavings = Leavings { dir: self.dir.path().to_owned(), stem, n_segments: self.segments.begun() };
        if engine.leave(leavings) {
            return Ok(());
        }
        let noted = self.note_segments();
        self.write_manifest()?;
        self.tell_what_is_missing();
        sealed?;
        synced?;
        noted.map(drop)
    }

    /// Names what was asked for and is not there.
    fn tell_what_is_missing(&self) {
        let Assignment { manifest, identity, .. } = &self.assignment;
        if manifest.counters.records == 0 && manifest.counters.refused > 0 {
            let run = &identity.run;
            notice(&format!("run {run:?}: nothing was captured, all that its taps were given was refused"));
            return;
        }
        let keeps = |rule: &Rule| !matches!(rule.mode(), Mode::Trace | Mode::Off);
        for (rule, count) in self.assignment.selection.rules().iter().zip(&self.assignment.manifest.rules) {
            if count.records == 0 && keeps(rule) {
                notice(&format!("rule {:?} captured nothing", rule.text()));
            }
        }
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests;
