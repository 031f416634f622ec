//! Reading a sealed segment's header: safetensors JSON whose `__metadata__` carries our record objects. Nothing in it
//! is believed before it is checked, and nothing is allocated that the file merely claims.

use crate::{
    name::tensor_key,
    record::{Identity, Record},
    stored::{Stored, StoredError},
    tags::{Tags, TagsError},
};
use safetensors::Dtype;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, value::MapDeserializer},
};
use std::{
    collections::{HashMap, HashSet},
    fmt,
};

/// The safetensors limit on the header's JSON, in bytes.
pub const MAX_HEADER: u64 = 100_000_000;

/// What a sealed segment's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Which process wrote it.
    pub identity: Identity,
    /// The segment's number.
    pub segment: u64,
    /// The file's byte at which data begins.
    pub data_start: u64,
    /// The records in the order of `records`; together they cover the data without hole or overlap.
    pub entries: Vec<Stored>,
}

/// Why a file is no segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Not even a header length.
    #[error("expected at least 8 bytes, found {0}")]
    Short(u64),
    /// The header is said to be longer than the file, or than any header may be.
    #[error("expected a header of at most {limit} bytes, found one of {length}")]
    Long {
        /// Bytes after the length, or the format's limit.
        limit: u64,
        /// Its length as the file says.
        length: u64,
    },
    /// Not the JSON it has to be.
    #[error("header is no safetensors JSON: {0}")]
    Json(String),
    /// Two tensors, or two metadata values, of one name.
    #[error("{0:?} stands twice in the header")]
    Twice(String),
    /// A safetensors file, but none of ours.
    #[error("no tpcapture metadata: a safetensors file of another origin")]
    Foreign,
    /// The metadata's tags.
    #[error(transparent)]
    Tags(#[from] TagsError),
    /// A metadata value that is missing or does not parse.
    #[error("metadata: {0}")]
    Metadata(String),
    /// A tensor whose offsets do not fit.
    #[error("tensor {name:?}: expected its data at byte {expected}, found {start}..{end}")]
    Offsets {
        /// Tensor name.
        name: String,
        /// Where the tensor before it ended.
        expected: u64,
        /// Where it says it begins.
        start: u64,
        /// Where it says it ends.
        end: u64,
    },
    /// A tensor that cannot be.
    #[error("tensor {name:?}: {source}")]
    Tensor {
        /// Tensor name.
        name: String,
        /// What cannot be.
        source: StoredError,
    },
    /// A record without its tensor.
    #[error("record {0:?} has no tensor")]
    NoTensor(String),
    /// A tensor without its record.
    #[error("tensor {0:?} has no record")]
    NoRecord(String),
    /// The file is shorter or longer than its tensors.
    #[error("expected {expected} bytes of data, found {found}")]
    DataLength {
        /// Bytes of all tensors.
        expected: u64,
        /// Bytes after the header.
        found: u64,
    },
}

/// Bytes of the header's JSON, from the file's first eight bytes, checked against the file's length.
pub fn json_length(first: [u8; 8], file_length: u64) -> Result<u64, HeaderError> {
    let length = u64::from_le_bytes(first);
    let limit = MAX_HEADER.min(file_length.checked_sub(8).ok_or(HeaderError::Short(file_length))?);
    if length > limit {
        return Err(HeaderError::Long { limit, length });
    }
    Ok(length)
}

/// Parses a header's JSON. `file_length` is that of the whole file.
pub fn parse(json: &[u8], file_length: u64) -> Result<Header, HeaderError> {
    let raw: RawHeader = serde_json::from_slice(json).map_err(|e| HeaderError::Json(e.to_string()))?;
    let metadata = metadata(raw.metadata)?;
    let (identity, segment) = metadata.tags.parse()?;
    let records: Vec<Record> = serde_json::from_str(&metadata.records)
        .map_err(|e| HeaderError::Metadata(format!("records: {e}")))?;

    let data_start = 8 + json.len() as u64;
    let data_length = file_length.saturating_sub(data_start);
    let mut tensors = by_name(raw.tensors, data_length)?;
    let entries = records.into_iter().map(|record| {
        let name = tensor_key(&record.tap, record.step, record.call);
        // Removed, so that a second record of the same name finds none.
        let Some(Tensor { dtype, shape, data_offsets: (start, end) }) = tensors.remove(&name) else {
            return Err(HeaderError::NoTensor(name));
        };
        let entry = Stored { record, dtype, shape, offset: start, length: end - start };
        entry.check().map_err(|source| HeaderError::Tensor { name, source })?;
        Ok(entry)
    });
    let entries = entries.collect::<Result<_, _>>()?;
    if let Some(name) = tensors.into_keys().next() {
        return Err(HeaderError::NoRecord(name));
    }
    Ok(Header { identity, segment, data_start, entries })
}

/// The tensors by name, once they are known to cover the data exactly.
fn by_name(mut tensors: Vec<(String, Tensor)>, data: u64) -> Result<HashMap<String, Tensor>, HeaderError> {
    tensors.sort_by_key(|(_, t)| t.data_offsets);
    let mut expected = 0;
    for (name, tensor) in &tensors {
        let (start, end) = tensor.data_offsets;
        if start != expected || end < start {
            return Err(HeaderError::Offsets { name: name.clone(), expected, start, end });
        }
        expected = end;
    }
    if expected != data {
        return Err(HeaderError::DataLength { expected, found: data });
    }
    let mut by_name = HashMap::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        if by_name.contains_key(&name) {
            return Err(HeaderError::Twice(name));
        }
        by_name.insert(name, tensor);
    }
    Ok(by_name)
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(flatten)]
    tags: Tags,
    records: String,
}

fn metadata(mut found: Vec<Pairs>) -> Result<Metadata, HeaderError> {
    let pairs = match (found.pop(), found.is_empty()) {
        (Some(pairs), true) => pairs.0,
        (Some(_), false) => return Err(HeaderError::Twice("__metadata__".into())),
        (None, _) => return Err(HeaderError::Foreign),
    };
    if !pairs.iter().any(|(key, _)| key == "tpcapture") {
        return Err(HeaderError::Foreign);
    }
    let mut seen = HashSet::new();
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !seen.insert(key)) {
        return Err(HeaderError::Twice(key.clone()));
    }
    let known = pairs.into_iter().filter(|(key, _)| KEYS.contains(&key.as_str()));
    Metadata::deserialize(MapDeserializer::new(known))
        .map_err(|e: de::value::Error| HeaderError::Metadata(e.to_string()))
}

/// The keys of `__metadata__`; readers ignore others.
const KEYS: [&str; 8] = ["tpcapture", "run", "rank", "world", "mesh", "process", "segment", "records"];

#[derive(Deserialize)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's object as it stands, duplicates included: a map would hide them.
struct RawHeader {
    metadata: Vec<Pairs>,
    tensors: Vec<(String, Tensor)>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut header = RawHeader { metadata: Vec::new(), tensors: Vec::new() };
                while let Some(key) = map.next_key::<String>()? {
                    if key == "__metadata__" {
                        header.metadata.push(map.next_value()?);
                    } else {
                        header.tensors.push((key, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// An object's members in their order, duplicates included.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests;
