//! The journal beside a partial segment: one line per record, each behind its own checksum, so that what a killed
//! process wrote can be read up to its last whole record.

use crate::{
    record::Identity,
    stored::{Stored, StoredError},
    tags::{Tags, TagsError},
};
use serde::{Deserialize, Serialize};

/// A journal's first line: whose the segment is, and where its data begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Whose it is.
    #[serde(flatten)]
    pub tags: Tags,
    /// The segment's byte at which data begins.
    pub data_start: u64,
}

/// What a journal says, up to its first torn line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// Which process wrote the segment.
    pub identity: Identity,
    /// The segment's number.
    pub segment: u64,
    /// The segment's byte at which data begins.
    pub data_start: u64,
    /// The records, in file order and without holes, checked by themselves but not against the partial's length.
    pub entries: Vec<Stored>,
    /// What is wrong with the next line, where a line is whole and yet makes no sense.
    pub broken: Option<JournalError>,
}

/// What of a whole line makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Not the JSON it has to be.
    #[error("journal line {line}: {reason}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// The first line's tags.
    #[error("journal line 1: {0}")]
    Tags(#[from] TagsError),
    /// A record that cannot be.
    #[error("journal line {line}: tap {tap:?}: {source}")]
    Record {
        /// Line, from 1.
        line: usize,
        /// Tap name.
        tap: String,
        /// What cannot be.
        source: StoredError,
    },
    /// A record that does not begin where the one before it ended.
    #[error("journal line {line}: tap {tap:?}: expected its data at byte {expected}, found {found}")]
    Offset {
        /// Line, from 1.
        line: usize,
        /// Tap name.
        tap: String,
        /// Where the record before it ended.
        expected: u64,
        /// Where it says it begins.
        found: u64,
    },
}

/// One line: the checksum of the JSON, the JSON, a newline.
#[must_use]
pub fn encode(line: &impl Serialize) -> String {
    let json = serde_json::to_string(line).expect("strings, numbers and lists are always JSON");
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

/// Reads a journal. `None` where not even the first line is whole: the process has just begun, or died then.
/// A torn line ends the journal and is no fault.
pub fn decode(bytes: &[u8]) -> Result<Option<Journal>, JournalError> {
    let mut lines = whole_lines(bytes).zip(1..);
    let Some((first, _)) = lines.next() else { return Ok(None) };
    let opening: Opening = parse(first, 1)?;
    let (identity, segment) = opening.tags.parse()?;
    let mut journal =
        Journal { identity, segment, data_start: opening.data_start, entries: Vec::new(), broken: None };
    let mut end = 0;
    for (json, line) in lines {
        match record(json, line, end) {
            Ok(entry) => {
                end = entry.range().end;
                journal.entries.push(entry);
            }
            Err(error) => {
                journal.broken = Some(error);
                break;
            }
        }
    }
    Ok(Some(journal))
}

fn record(json: &[u8], line: usize, expected: u64) -> Result<Stored, JournalError> {
    let entry: Stored = parse(json, line)?;
    let tap = || entry.record.tap.clone();
    entry.check().map_err(|source| JournalError::Record { line, tap: tap(), source })?;
    if entry.offset != expected {
        return Err(JournalError::Offset { line, tap: tap(), expected, found: entry.offset });
    }
    Ok(entry)
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], line: usize) -> Result<T, JournalError> {
    serde_json::from_slice(json).map_err(|e| JournalError::Json { line, reason: e.to_string() })
}

/// Whether no whole line stands behind one that is not: so a killed process leaves its journal, a damaged disk may not.
#[must_use]
pub fn is_torn_at_its_end_only(bytes: &[u8]) -> bool {
    let mut rest = lines(bytes).skip_while(|line| whole(line).is_some());
    rest.all(|line| whole(line).is_none())
}

/// The JSON of each line up to the first that is short, torn or fails its checksum.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(bytes).map_while(whole)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|b| *b == b'\n')
}

/// The JSON of a line that is whole.
fn whole(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let (digits, json) = (line.get(..8)?, line.get(9..)?);
    let lower = digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let crc = u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    (lower && line[8] == b' ' && crc32fast::hash(json) == crc).then_some(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::Record, tags::tests::identity};
    use safetensors::Dtype;

    // Checksums by zlib.crc32 of Python.
    const OPENING: &str = concat!(
        r#"4e824d65 {"tpcapture":"1","run":"r","rank":"1","world":"2","#,
        r#""mesh":"{\"dims\":[{\"name\":\"tp\",\"coord\":1,\"size\":2}],\"assumed\":false}","#,
        r#""process":"42-0badcafe","segment":"3","data_start":65536}"#,
        "\n"
    );
    const FIRST: &str = concat!(
        r#"29803357 {"tap":"q","step":1,"abs_step":9,"call":0,"seq":4,"time_ns":5,"strides":[2,1],"#,
        r#""device":"cpu","crc32":7,"dtype":"F32","shape":[1,2],"offset":0,"length":8}"#,
        "\n"
    );

    fn first() -> Stored {
        let record = Record {
            tap: "q".into(),
            step: 1,
            abs_step: 9,
            call: 0,
            seq: 4,
            time_ns: 5,
            placement: None,
            rows: None,
            full_rows: None,
            strides: vec![2, 1],
            device: "cpu".into(),
            encoding: None,
            crc32: 7,
        };
        Stored { record, dtype: Dtype::F32, shape: vec![1, 2], offset: 0, length: 8 }
    }

    fn opening() -> Opening {
        Opening { tags: Tags::new(&identity(), 3), data_start: 65536 }
    }

    #[test]
    fn lines_are_written_as_documented() {
        assert_eq!(encode(&opening()), OPENING);
        assert_eq!(encode(&first()), FIRST);
    }

    #[test]
    fn a_journal_reads_back() {
        let second = Stored { offset: 8, ..first() };
        let text = format!("{OPENING}{FIRST}{}", encode(&second));
        let journal = decode(text.as_bytes()).unwrap().unwrap();
        assert_eq!((journal.segment, journal.data_start, &journal.identity), (3, 65536, &identity()));
        assert_eq!((journal.entries, journal.broken), (vec![first(), second], None));
    }

    /// Cut anywhere, or with any byte changed, the journal gives the whole lines before that place and no error.
    #[test]
    fn a_torn_journal_ends_at_the_tear() {
        let text = format!("{OPENING}{FIRST}{}", encode(&Stored { offset: 8, ..first() }));
        let read = |bytes: &[u8]| decode(bytes).unwrap().map(|j| (j.entries.len(), j.broken));
        let (a, b) = (OPENING.len(), OPENING.len() + FIRST.len());
        let expected = |at: usize| match at {
            _ if at < a => None,
            _ if at < b => Some((0, None)),
            _ => Some((1, None)),
        };
        for at in 0..text.len() {
            assert_eq!(read(&text.as_bytes()[..at]), expected(at), "cut at {at}");
            assert!(is_torn_at_its_end_only(&text.as_bytes()[..at]), "cut at {at}");
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(read(&changed), expected(at), "changed at {at}");
            // The newline of the last line but one taken away, both of them are one line that is not whole.
            let is_in_the_last = at >= b || at == b - 1;
            assert_eq!(is_torn_at_its_end_only(&changed), is_in_the_last, "changed at {at}");
        }
    }

    #[track_caller]
    fn check_broken(line: &impl Serialize, expected: &str) {
        let journal = decode(format!("{OPENING}{FIRST}{}{FIRST}", encode(line)).as_bytes()).unwrap().unwrap();
        assert_eq!(journal.entries, [first()]);
        assert_eq!(journal.broken.unwrap().to_string(), expected);
    }

    #[test]
    fn whole_lines_that_make_no_sense_are_named() {
        check_broken(
            &"x",
            "journal line 3: invalid type: string \"x\", expected struct Stored at line 1 column 3",
        );
        check_broken(&first(), "journal line 3: tap \"q\": expected its data at byte 8, found 0");
        let short = Stored { offset: 8, length: 4, ..first() };
        check_broken(&short, "journal line 3: tap \"q\": F32 [1, 2] needs 8 bytes, found 4");
        let other = Opening { tags: Tags { tpcapture: "2".into(), ..opening().tags }, data_start: 0 };
        let error = decode(encode(&other).as_bytes()).unwrap_err();
        assert_eq!(error, JournalError::Tags(TagsError::Version("2".into())));
    }
}
