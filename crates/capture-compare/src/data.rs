//! The bytes of a record: mapped or held, or read piece by piece where they are looked at, so that a file that is not
//! mapped takes no more memory than the pieces that are kept.
//!
//! Who looks at bytes cannot fail half-way through a tensor. What cannot be read any more is taken for zeros, and the
//! failure kept: a row that had a part in it is asked for it at the end, and is no row then.

use crate::source::{FileError, Source, file_error};
use quick_cache::sync::Cache;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes of a piece. A tensor that is sharded over many ranks is read row by row from as many places, and the pieces
/// around all of them have to be kept.
const PIECE: u64 = 64 << 10;
/// How many pieces of a run are kept: 64 MiB.
const KEPT: usize = 1 << 10;

/// Names a piece: its file, where its record begins there, and which of the record's pieces it is.
type Name = (usize, u64, u64);

/// The pieces of a run's files that were read last, and the files that could not be read.
pub(crate) struct Pieces {
    kept: Cache<Name, Arc<[u8]>>,
    failed: Mutex<BTreeMap<usize, FileError>>,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { kept: Cache::new(KEPT), failed: Mutex::default() }
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

impl Pieces {
    /// The files, by number, that failed while their records were looked at, and how.
    pub(crate) fn failed(&self) -> BTreeMap<usize, FileError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Bytes of a record, or a stretch of them.
#[derive(Debug, Clone)]
pub(crate) enum Data<'a> {
    /// In memory, or mapped.
    Held(Cow<'a, [u8]>),
    /// Read where they are looked at.
    Unread(Unread<'a>),
}

/// A stretch of a record in a file that is not mapped.
#[derive(Debug, Clone)]
pub(crate) struct Unread<'a> {
    pieces: &'a Pieces,
    source: &'a Source,
    /// Number of the file.
    number: usize,
    /// Where the record begins in the file, and its length.
    record: (u64, u64),
    /// The stretch, in bytes of the record.
    from: u64,
    to: u64,
}

impl<'a> Unread<'a> {
    /// A whole record of the file of that number.
    ///
    /// # Errors
    /// The first piece cannot be read.
    pub(crate) fn new(
        pieces: &'a Pieces,
        (number, source): (usize, &'a Source),
        (offset, length): (u64, u64),
    ) -> Result<Self, FileError> {
        let unread = Self { pieces, source, number, record: (offset, length), from: 0, to: length };
        if length > 0 {
            unread.piece(0)?;
        }
        Ok(unread)
    }

    fn piece(&self, at: u64) -> Result<Arc<[u8]>, FileError> {
        let (offset, length) = self.record;
        let read = || {
            let begin = at * PIECE;
            let mut bytes = vec![0; (length - begin).min(PIECE) as usize];
            self.source
                .read_at(offset + begin, &mut bytes)
                .map_err(|e| file_error(self.source.path(), &e))?;
            Ok(bytes.into())
        };
        self.pieces.kept.get_or_insert_with(&(self.number, offset, at), read)
    }

    fn get(&self, from: u64, to: u64) -> Vec<u8> {
        let (mut at, end) = (self.from + from, self.from + to);
        let mut bytes = Vec::with_capacity((end - at) as usize);
        while at < end {
            let begin = at / PIECE * PIECE;
            let next = end.min(begin + PIECE);
            match self.piece(at / PIECE) {
                Ok(piece) => bytes.extend_from_slice(&piece[(at - begin) as usize..(next - begin) as usize]),
                Err(error) => {
                    let mut failed = self.pieces.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.entry(self.number).or_insert(error);
                    bytes.resize(bytes.len() + (next - at) as usize, 0);
                }
            }
            at = next;
        }
        bytes
    }
}

impl<'a> Data<'a> {
    /// How many bytes there are.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Held(bytes) => bytes.len() as u64,
            Self::Unread(unread) => unread.to - unread.from,
        }
    }

    /// The bytes `from..to`, which exist.
    pub(crate) fn get(&self, from: u64, to: u64) -> Cow<'_, [u8]> {
        match self {
            Self::Held(bytes) => Cow::Borrowed(&bytes[from as usize..to as usize]),
            Self::Unread(unread) => Cow::Owned(unread.get(from, to)),
        }
    }

    /// All of it.
    pub(crate) fn all(&self) -> Cow<'_, [u8]> {
        self.get(0, self.len())
    }

    /// The bytes `from..to` for as long as the record is there; `None` where they would have to be copied.
    pub(crate) fn stretch(&self, from: u64, to: u64) -> Option<Self> {
        match self {
            Self::Held(Cow::Borrowed(bytes)) => {
                Some(Self::Held(Cow::Borrowed(&bytes[from as usize..to as usize])))
            }
            Self::Held(Cow::Owned(_)) => None,
            Self::Unread(unread) => {
                let (from, to) = (unread.from + from, unread.from + to);
                Some(Self::Unread(Unread { from, to, ..unread.clone() }))
            }
        }
    }

    /// Whether they need not be read.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// All of it in pieces, in order, with where each begins.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let (len, step) = (self.len(), if self.is_held() { u64::MAX } else { PIECE });
        (0..len.div_ceil(step)).map(move |i| (i * step, len.min((i + 1).saturating_mul(step))))
    }

    /// Whether any of the chunks of `n` bytes is unlike the first.
    pub(crate) fn is_varied(&self, n: u64) -> bool {
        let first = self.get(0, n.min(self.len()));
        // Pieces are a multiple of any number's size.
        self.pieces().any(|(from, to)| self.get(from, to).chunks(first.len().max(1)).any(|c| *c != *first))
    }
}

impl PartialEq for Data<'_> {
    fn eq(&self, other: &Self) -> bool {
        let mut pieces = if self.is_held() { other.pieces() } else { self.pieces() };
        self.len() == other.len() && pieces.all(|(from, to)| self.get(from, to) == other.get(from, to))
    }
}

impl<'a> From<Cow<'a, [u8]>> for Data<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Self::Held(bytes)
    }
}

impl From<Vec<u8>> for Data<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Held(bytes.into())
    }
}
