//! The file of a process's records of mode stats and hash, `stem.stats.jsonl`: a line that says whose it is, then a line
//! for each record.
//!
//! Each is plain JSON, so that any tool reads it; a line counts once its newline is there.

use crate::decode;
use crate::digest::Digest;
use crate::record::{Identity, Record};
use crate::rundir::RunDir;
use crate::stored::{Stored, StoredError, byte_length};
use crate::tags::{Tags, TagsError};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};

/// What the file's name ends with.
pub const SUFFIX: &str = ".stats.jsonl";

/// A record of which only a digest was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Digested {
    /// What is known of the record. There are no bytes that a checksum could be of: it is 0.
    #[serde(flatten)]
    pub record: Record,
    /// How the elements would have been stored.
    pub dtype: Dtype,
    /// Stored shape.
    pub shape: Vec<u64>,
    /// What was kept.
    #[serde(flatten)]
    pub digest: Digest,
}

/// What a line says that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DigestedError {
    /// Not the JSON it has to be.
    #[error("line {line}: {reason}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// The first line's tags.
    #[error("line 1: {0}")]
    Tags(#[from] TagsError),
    /// A record that cannot be.
    #[error("line {line}: tap {tap:?}: {source}")]
    Record {
        /// Line, from 1.
        line: usize,
        /// Tap name.
        tap: String,
        /// What cannot be.
        source: StoredError,
    },
    /// Counts that do not belong to the shape.
    #[error(
        "line {line}: tap {tap:?}: expected statistics of {expected} numbers, found {found} or other counts within"
    )]
    Counts {
        /// Line, from 1.
        line: usize,
        /// Tap name.
        tap: String,
        /// Numbers of the tensor.
        expected: u64,
        /// What `n` says.
        found: u64,
    },
}

impl Digested {
    /// The shape of what the digest is of: without the rows that are padding.
    #[must_use]
    pub fn valid_shape(&self) -> Vec<u64> {
        let mut shape = self.shape.clone();
        if let (Some(first), Some(rows)) = (shape.first_mut(), self.record.rows) {
            *first = rows.min(*first);
        }
        shape
    }

    fn check(&self, line: usize) -> Result<(), DigestedError> {
        let (tap, dtype) = (|| self.record.tap.clone(), self.dtype);
        let failed = |source| DigestedError::Record { line, tap: tap(), source };
        let length = byte_length(dtype, &self.shape);
        let length = length.ok_or_else(|| failed(StoredError::Bits { dtype, shape: self.shape.clone() }))?;
        let (record, shape) = (self.record.clone(), self.shape.clone());
        Stored { record, dtype, shape, offset: 0, length }.check().map_err(failed)?;
        let per_element = decode::numbers_per_element(dtype) as u64;
        let expected = self.valid_shape().iter().product::<u64>() * per_element;
        match self.digest.stats() {
            Some(stats) if !stats.is_of(expected) => {
                Err(DigestedError::Counts { line, tap: tap(), expected, found: stats.n })
            }
            _ => Ok(()),
        }
    }
}

/// Reads such a file: whose it is, its records, and what is wrong with lines that are whole and make no sense. `None` where
/// not even the first line is whole: the process has just begun it, or died then. What stands behind the last newline is
/// torn, and no fault.
///
/// # Errors
/// Where the first line does not say whose the file is.
#[expect(clippy::type_complexity, reason = "three things of one file")]
pub fn decode(bytes: &[u8]) -> Result<Option<(Identity, Vec<Digested>, Vec<DigestedError>)>, DigestedError> {
    let whole = bytes.split_inclusive(|b| *b == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let mut lines = whole.zip(1..);
    let Some((first, _)) = lines.next() else { return Ok(None) };
    let tags: Tags = parse(first, 1)?;
    let (identity, _) = tags.parse()?;
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    for (json, line) in lines {
        let read = parse::<Digested>(json, line).and_then(|read| read.check(line).map(|()| read));
        match read {
            Ok(read) => records.push(read),
            Err(error) => errors.push(error),
        }
    }
    Ok(Some((identity, records, errors)))
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], line: usize) -> Result<T, DigestedError> {
    serde_json::from_slice(json).map_err(|e| DigestedError::Json { line, reason: e.to_string() })
}

/// The file while it is written, made for its first record.
#[derive(Debug)]
pub(crate) struct DigestFile {
    file: File,
    is_synced: bool,
}

impl DigestFile {
    pub(crate) fn create(dir: &RunDir, identity: &Identity) -> io::Result<Self> {
        let file = dir.create_new(&Self::name(identity))?;
        let mut file = Self { file, is_synced: true };
        file.write(&line(&Tags::new(identity, 0)))?;
        Ok(file)
    }

    pub(crate) fn name(identity: &Identity) -> String {
        identity.stem() + SUFFIX
    }

    /// Appends a whole line.
    pub(crate) fn write(&mut self, line: &str) -> io::Result<()> {
        self.is_synced = false;
        self.file.write_all(line.as_bytes())
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

/// One line of the file.
pub(crate) fn line(content: &impl Serialize) -> String {
    serde_json::to_string(content).expect("strings, finite numbers and lists are always JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Hash, Stats};
    use crate::stored::tests::stored;
    use crate::tags::tests::identity;

    fn digested(digest: Digest) -> Digested {
        let Stored { record, dtype, shape, .. } = stored(Dtype::C64, &[2, 3], 48);
        Digested { record, dtype, shape, digest }
    }

    fn nothing_finite(n: u64) -> Digest {
        let stats = Stats { n, nan: n, pos_inf: 0, neg_inf: 0, zero: 0, finite: None };
        Digest::Stats { stats }
    }

    #[test]
    fn lines_are_written_as_documented() {
        let hash = digested(Digest::Hash { hash: Hash(0xab) });
        let known = concat!(
            r#"{"tap":"q","step":0,"abs_step":0,"call":0,"seq":0,"time_ns":0,"strides":[],"device":"cpu","crc32":0,"#,
            r#""dtype":"C64","shape":[2,3],"#
        );
        assert_eq!(line(&hash), format!("{known}\"mode\":\"hash\",\"hash\":\"00000000000000ab\"}}\n"));
        let counts = r#""mode":"stats","stats":{"n":12,"nan":12,"pos_inf":0,"neg_inf":0,"zero":0}}"#;
        assert_eq!(line(&digested(nothing_finite(12))), format!("{known}{counts}\n"));
    }

    /// Cut anywhere, the file gives the whole lines before that place and no error.
    #[test]
    fn a_torn_last_line_is_passed_over() {
        let opening = line(&Tags::new(&identity(), 0));
        let record = digested(Digest::Hash { hash: Hash(7) });
        let text = opening.clone() + &line(&record);
        for at in 0..text.len() {
            let found = decode(&text.as_bytes()[..at]).unwrap();
            let expected = (at >= opening.len()).then(|| (identity(), vec![], vec![]));
            assert_eq!(found, expected, "cut at {at}");
        }
        assert_eq!(decode(text.as_bytes()).unwrap().unwrap().1, [record]);
    }

    /// A line that makes no sense is named, and those behind it are read.
    #[test]
    fn hostile_lines_cost_no_other() {
        let good = digested(nothing_finite(12));
        let mut rows = good.clone();
        rows.record.rows = Some(3);
        let huge = Digested { shape: vec![u64::MAX, 2], ..good.clone() };
        let lines = [
            line(&Tags::new(&identity(), 0)),
            "{}\n".to_owned(),
            line(&digested(nothing_finite(6))),
            line(&rows),
            line(&huge),
            line(&good),
        ];
        let (_, records, errors) = decode(lines.concat().as_bytes()).unwrap().unwrap();
        assert_eq!(records, [good]);
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors[0], "line 2: missing field `dtype` at line 1 column 2");
        let counts = "expected statistics of 12 numbers, found 6 or other counts within";
        assert_eq!(errors[1], format!("line 3: tap \"q\": {counts}"));
        assert_eq!(errors[2], "line 4: tap \"q\": rows is 3, which a tensor of shape [2, 3] cannot have");
        assert!(
            errors[3].starts_with("line 5: tap \"q\": C64 [18446744073709551615, 2] is no"),
            "{}",
            errors[3]
        );
        assert!(decode(b"[]\n").is_err());
    }
}
