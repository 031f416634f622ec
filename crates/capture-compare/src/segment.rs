//! One segment of a run: sealed, or as far as its journal says it is written.

use crate::source::{Access, FileError, Source, file_error, open_regular};
use capture_core::segment::{JOURNAL, PARTIAL, SEALED};
use capture_core::{Identity, Stored, header, journal};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, ErrorKind, Read},
    path::Path,
};

/// A segment whose entries all lie within its file.
pub(crate) struct Segment {
    pub(crate) identity: Identity,
    pub(crate) source: Source,
    pub(crate) data_start: u64,
    pub(crate) entries: Vec<Stored>,
}

/// Reads the segment of that base name, appending to `errors` what of it cannot be read. `is_sealed`: its final name
/// was seen, and so a partial or journal beside it is stale.
pub(crate) fn read(
    dir: &Path,
    base: &OsStr,
    is_sealed: bool,
    access: Access,
    errors: &mut Vec<FileError>,
) -> Option<Segment> {
    let with = |suffix: &str| {
        let mut name = OsString::from(base);
        name.push(suffix);
        dir.join(name)
    };
    let (sealed, partial, journal) = (with(SEALED), with(PARTIAL), with(JOURNAL));
    if !is_sealed {
        match read_partial(&partial, &journal, &sealed, access, errors) {
            Outcome::Read(segment) => return segment,
            // Sealed since the directory was listed.
            Outcome::Gone(_) if sealed.symlink_metadata().is_ok() => {}
            Outcome::Gone(lost) => {
                errors.extend(lost);
                return None;
            }
        }
    }
    read_sealed(&sealed, access).map_err(|reason| errors.push(FileError { file: sealed, reason })).ok()
}

fn read_sealed(path: &Path, access: Access) -> Result<Segment, String> {
    let text = |e: io::Error| e.to_string();
    let mut file = open_regular(path).map_err(text)?;
    let file_length = file.metadata().map_err(text)?.len();
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => header::HeaderError::Short(file_length).to_string(),
        _ => e.to_string(),
    })?;
    let length = header::json_length(first, file_length).map_err(|e| e.to_string())?;
    let mut json = Vec::new();
    (&file).take(length).read_to_end(&mut json).map_err(text)?;
    let header = header::parse(&json, file_length).map_err(|e| e.to_string())?;
    let source = Source::new(&file, path.to_owned(), None, access).map_err(text)?;
    Ok(Segment { identity: header.identity, source, data_start: header.data_start, entries: header.entries })
}

enum Outcome {
    Read(Option<Segment>),
    /// Partial or journal is not there, or not any more: sealed, or the loss it is.
    Gone(Option<FileError>),
}

fn read_partial(
    partial: &Path,
    journal: &Path,
    sealed: &Path,
    access: Access,
    errors: &mut Vec<FileError>,
) -> Outcome {
    let mut fail = |file: &Path, reason: String| {
        errors.push(FileError { file: file.to_owned(), reason });
        Outcome::Read(None)
    };
    // The journal first: whatever it says is in the partial by then, and when the partial is sealed it goes last.
    let bytes = match read_whole(journal) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let lost = partial.symlink_metadata().is_ok();
            return Outcome::Gone(lost.then(|| file_error(partial, &"its journal is missing")));
        }
        Err(e) => return fail(journal, e.to_string()),
        Ok(bytes) => bytes,
    };
    let said = match journal::decode(&bytes) {
        Ok(Some(said)) => said,
        // Its process has just begun the segment, or died then: nothing is lost.
        Ok(None) => return Outcome::Read(None),
        Err(e) => return fail(journal, e.to_string()),
    };
    let opened = open_regular(partial).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (file_length, file) = match opened {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let lost = !said.entries.is_empty();
            return Outcome::Gone(lost.then(|| file_error(journal, &"its segment is missing")));
        }
        Err(e) => return fail(partial, e.to_string()),
        Ok(opened) => opened,
    };
    let source = match Source::new(&file, partial.to_owned(), Some(sealed.to_owned()), access) {
        Err(e) => return fail(partial, e.to_string()),
        Ok(source) => source,
    };
    if let Some(broken) = &said.broken {
        errors.push(file_error(journal, &broken));
    }
    let mut entries = said.entries;
    let written = entries
        .iter()
        .take_while(|e| said.data_start.checked_add(e.range().end).is_some_and(|end| end <= file_length))
        .count();
    if written < entries.len() {
        let reason =
            format!("expected {} records, found bytes of {written} in {file_length} bytes", entries.len());
        errors.push(file_error(partial, &reason));
        entries.truncate(written);
    }
    Outcome::Read(Some(Segment { identity: said.identity, source, data_start: said.data_start, entries }))
}

/// All bytes of a regular file that is small by nature: a journal or a manifest.
pub(crate) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let file: File = open_regular(path)?;
    let mut bytes = Vec::new();
    let n = file.take(header::MAX_HEADER + 1).read_to_end(&mut bytes)?;
    if n as u64 > header::MAX_HEADER {
        return Err(io::Error::other(format!("expected at most {} bytes, found more", header::MAX_HEADER)));
    }
    Ok(bytes)
}
