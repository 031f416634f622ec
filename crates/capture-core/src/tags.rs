//! The strings that say whose a segment is: the same in a header's `__metadata__` and in a journal's first line.

use crate::{
    FORMAT_VERSION,
    mesh::{Mesh, is_dim_name},
    record::Identity,
};
use serde::{Deserialize, Serialize};

/// Identity and segment number as strings, since safetensors metadata knows nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    /// Format version.
    pub tpcapture: String,
    /// Run name.
    pub run: String,
    /// Global rank, decimal or `unknown`.
    pub rank: String,
    /// Number of ranks, decimal or `unknown`.
    pub world: String,
    /// The mesh as JSON.
    pub mesh: String,
    /// `PID-HEX`.
    pub process: String,
    /// Decimal number of the segment.
    pub segment: String,
}

/// What of the tags makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagsError {
    /// Another format version.
    #[error("expected format version {FORMAT_VERSION:?}, found {0:?}")]
    Version(String),
    /// A value that does not parse.
    #[error("{key}: expected {expected}, found {found:?}")]
    Value {
        /// Which value.
        key: &'static str,
        /// What would have been one.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

const UNKNOWN: &str = "unknown";

impl Tags {
    /// The tags of that process's segment.
    #[must_use]
    pub fn new(identity: &Identity, segment: u64) -> Self {
        let number = |n: Option<u32>| n.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
        Self {
            tpcapture: FORMAT_VERSION.to_owned(),
            run: identity.run.clone(),
            rank: number(identity.rank),
            world: number(identity.world),
            mesh: serde_json::to_string(&identity.mesh).expect("names and numbers are always JSON"),
            process: identity.process.clone(),
            segment: segment.to_string(),
        }
    }

    /// Reads them back: the process, and the number of its segment.
    pub fn parse(&self) -> Result<(Identity, u64), TagsError> {
        if self.tpcapture != FORMAT_VERSION {
            return Err(TagsError::Version(self.tpcapture.clone()));
        }
        let mesh: Mesh = serde_json::from_str(&self.mesh).map_err(|_| {
            value("mesh", "a mesh as JSON, {\"dims\": [...], \"assumed\": false}", &self.mesh)
        })?;
        let identity = Identity {
            run: self.run.clone(),
            rank: number("rank", &self.rank)?,
            world: number("world", &self.world)?,
            mesh,
            process: self.process.clone(),
        };
        check(&identity)?;
        let segment = self.segment.parse();
        Ok((identity, segment.map_err(|_| value("segment", "a decimal number", &self.segment))?))
    }
}

/// Whether an identity that was read can be: coordinates within sizes, the rank within the world.
pub fn check(identity: &Identity) -> Result<(), TagsError> {
    let dims = &identity.mesh.dims;
    for (i, dim) in dims.iter().enumerate() {
        if !is_dim_name(&dim.name) || dims[..i].iter().any(|d| d.name == dim.name) {
            return Err(value("mesh", "distinct names of lower-case letters", &dim.name));
        }
        if dim.coord >= dim.size {
            let found = format!("{} {} of {}", dim.name, dim.coord, dim.size);
            return Err(value("mesh", "coordinates below their sizes", &found));
        }
    }
    if let (Some(rank), Some(world)) = (identity.rank, identity.world)
        && rank >= world
    {
        return Err(value("rank", "a rank below the world", &format!("{rank} of {world}")));
    }
    if identity.process.is_empty() {
        return Err(value("process", "PID-HEX", ""));
    }
    Ok(())
}

fn number(key: &'static str, text: &str) -> Result<Option<u32>, TagsError> {
    if text == UNKNOWN {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| value(key, "a decimal number or \"unknown\"", text))
}

fn value(key: &'static str, expected: &'static str, found: &str) -> TagsError {
    TagsError::Value { key, expected, found: found.chars().take(200).collect() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn identity() -> Identity {
        Identity {
            run: "r".into(),
            rank: Some(1),
            world: Some(2),
            mesh: Mesh::from_sizes("tp=2", 1).unwrap(),
            process: "42-0badcafe".into(),
        }
    }

    #[test]
    fn tags_read_back() {
        let tags = Tags::new(&identity(), 7);
        assert_eq!(tags.mesh, r#"{"dims":[{"name":"tp","coord":1,"size":2}],"assumed":false}"#);
        assert_eq!(tags.parse(), Ok((identity(), 7)));
        let unknown = Identity { rank: None, world: None, mesh: Mesh::default(), ..identity() };
        let tags = Tags::new(&unknown, 0);
        assert_eq!((tags.rank.as_str(), tags.world.as_str()), ("unknown", "unknown"));
        assert_eq!(tags.parse(), Ok((unknown, 0)));
    }

    #[track_caller]
    fn check_error(change: impl Fn(&mut Tags), key: &str, found: &str) {
        let mut tags = Tags::new(&identity(), 0);
        change(&mut tags);
        match tags.parse().unwrap_err() {
            TagsError::Value { key: k, found: f, .. } => assert_eq!((k, f.as_str()), (key, found)),
            TagsError::Version(v) => assert_eq!(("tpcapture", v.as_str()), (key, found)),
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        check_error(|t| t.tpcapture = "2".into(), "tpcapture", "2");
        check_error(|t| t.rank = "-1".into(), "rank", "-1");
        check_error(|t| t.rank = "2".into(), "rank", "2 of 2");
        check_error(|t| t.world = String::new(), "world", "");
        check_error(|t| t.segment = "x".into(), "segment", "x");
        check_error(|t| t.process = String::new(), "process", "");
        check_error(|t| t.mesh = "[".repeat(300), "mesh", &"[".repeat(200));
        let mesh = |name, coord, size| {
            move |t: &mut Tags| {
                t.mesh = format!(
                    r#"{{"dims":[{{"name":"{name}","coord":{coord},"size":{size}}}],"assumed":false}}"#
                );
            }
        };
        check_error(mesh("tp", 2, 2), "mesh", "tp 2 of 2");
        check_error(mesh("tp", 0, 0), "mesh", "tp 0 of 0");
        check_error(mesh("../x", 0, 1), "mesh", "../x");
    }
}
