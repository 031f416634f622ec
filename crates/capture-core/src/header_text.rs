//! Building a segment's header while its records arrive, with its length known at every moment, so that a record whose
//! entry would not fit the room in front of the data is known before it begins.

use crate::{name::tensor_key, record::Identity, stored::Stored, tags::Tags};
use serde_json::to_string;
use std::collections::HashSet;

/// The header of one segment as it grows.
#[derive(Debug)]
pub struct HeaderText {
    /// Bytes in front of the data, the eight of the header's length included.
    room: u64,
    /// All up to the list of records, which is a string inside the JSON.
    front: String,
    records: String,
    tensors: String,
    /// A second tensor of one name would make the file unreadable.
    keys: HashSet<String>,
}

/// Ends the list of records and with it `__metadata__`.
const MIDDLE: &str = r#"]"}"#;
const END: &str = "}";

/// A record's two places in the header.
struct HeaderEntry {
    record: String,
    tensor: String,
}

impl HeaderText {
    /// An empty header in that room.
    #[must_use]
    pub fn new(identity: &Identity, segment: u64, room: u64) -> Self {
        let tags = json(&Tags::new(identity, segment));
        let tags = tags.strip_suffix('}').expect("an object ends so");
        let front = format!(r#"{{"__metadata__":{tags},"records":"["#);
        Self { room, front, records: String::new(), tensors: String::new(), keys: HashSet::new() }
    }

    /// Whether a record still fits, whatever its checksum will be.
    #[must_use]
    pub fn fits(&self, entry: &Stored) -> bool {
        self.length_with(entry) <= self.room
    }

    /// Bytes that the header would need with that record, the eight of its length included.
    #[must_use]
    pub fn length_with(&self, entry: &Stored) -> u64 {
        let mut longest = entry.clone();
        longest.record.crc32 = u32::MAX;
        let HeaderEntry { record, tensor } = self.entry(&longest);
        self.length() + (record.len() + tensor.len()) as u64
    }

    /// Bytes that the header needs, the eight of its length included.
    #[must_use]
    pub fn length(&self) -> u64 {
        let parts = [&self.front, &self.records, MIDDLE, &self.tensors, END];
        8 + parts.iter().map(|part| part.len() as u64).sum::<u64>()
    }

    /// Whether a record of the same tap, step and call was added.
    #[must_use]
    pub fn has(&self, entry: &Stored) -> bool {
        self.keys.contains(&key(entry))
    }

    /// Adds a record that [`fits`](Self::fits) and that it does not [have](Self::has).
    pub fn push(&mut self, entry: &Stored) {
        self.keys.insert(key(entry));
        let HeaderEntry { record, tensor } = self.entry(entry);
        self.records += &record;
        self.tensors += &tensor;
    }

    /// Whether no record was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The header as it stands in the file: its length, the JSON, and spaces up to the data.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let length = self.room - 8;
        let mut bytes = length.to_le_bytes().to_vec();
        for part in [&self.front, &self.records, MIDDLE, &self.tensors, END] {
            bytes.extend_from_slice(part.as_bytes());
        }
        debug_assert!(bytes.len() as u64 <= self.room, "every record fitted when it was added");
        bytes.resize(usize::try_from(self.room).expect("the header was built in memory"), b' ');
        bytes
    }

    fn entry(&self, entry: &Stored) -> HeaderEntry {
        let comma = if self.is_empty() { "" } else { "," };
        let escaped = json(&json(&entry.record));
        let record = format!("{comma}{}", &escaped[1..escaped.len() - 1]);
        let (key, dtype, shape) = (json(&key(entry)), json(&entry.dtype), json(&entry.shape));
        let (start, end) = (entry.range().start, entry.range().end);
        let tensor = format!(r#",{key}:{{"dtype":{dtype},"shape":{shape},"data_offsets":[{start},{end}]}}"#);
        HeaderEntry { record, tensor }
    }
}

fn key(entry: &Stored) -> String {
    tensor_key(&entry.record.tap, entry.record.step, entry.record.call)
}

fn json(value: &impl serde::Serialize) -> String {
    to_string(value).expect("strings, numbers and lists are always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{header, stored::tests::stored, tags::tests::identity};
    use safetensors::Dtype;

    #[test]
    fn the_length_is_known_beforehand_and_the_text_reads_back() {
        let mut text = HeaderText::new(&identity(), 3, 2048);
        let mut first = stored(Dtype::F32, &[2], 8);
        first.record.crc32 = u32::MAX;
        (first.record.tap, first.record.placement) = ("a\"\\\n\u{1}é".into(), Some("S(0)".into()));
        let mut second = first.clone();
        (second.record.call, second.offset) = (1, 8);
        for entry in [&first, &second] {
            let expected = text.length_with(entry);
            text.push(entry);
            let written = text.bytes().iter().rposition(|b| *b != b' ').unwrap() as u64 + 1;
            assert_eq!(written, expected);
        }
        let bytes = text.bytes();
        assert_eq!(bytes.len(), 2048);
        let header = header::parse(&bytes[8..], 2048 + 16).unwrap();
        assert_eq!((header.data_start, header.segment), (2048, 3));
        assert_eq!(header.entries, [first, second]);
    }

    #[test]
    fn a_record_fits_to_the_byte() {
        let entry = stored(Dtype::U8, &[1], 1);
        let needed = HeaderText::new(&identity(), 0, 0).length_with(&entry);
        assert!(HeaderText::new(&identity(), 0, needed).fits(&entry));
        assert!(!HeaderText::new(&identity(), 0, needed - 1).fits(&entry));
    }
}
