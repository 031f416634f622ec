//! What is known of a record, and of the process it comes from, as docs/format.md writes it down.

use crate::mesh::Mesh;
use serde::{Deserialize, Serialize};

/// The record object of docs/format.md: all that is known of one captured tensor beside dtype, shape and bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Tap name, not escaped.
    pub tap: String,
    /// Step of the run, 0 before its first `step()`.
    pub step: u64,
    /// The process's own step count.
    pub abs_step: u64,
    /// How many times the tap had fired in this step.
    pub call: u64,
    /// Capture order within this process and run.
    pub seq: u64,
    /// Wall clock at the call, nanoseconds since 1970.
    pub time_ns: u64,
    /// Placement as given by the capture call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Valid leading rows; the rest of dim 0 is padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Dim 0 of the tensor, where only its first rows were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_rows: Option<u64>,
    /// The source's strides, in elements.
    pub strides: Vec<i64>,
    /// `cpu`, `cuda:0`, …
    pub device: String,
    /// How the logical dtype is stored, where safetensors has no name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// CRC-32 of the bytes.
    pub crc32: u32,
}

/// Which process of which run wrote a file: the part of `__metadata__` that is the same for all its segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Run name.
    pub run: String,
    /// Global rank; `None` is unknown, never 0.
    pub rank: Option<u32>,
    /// Number of ranks.
    pub world: Option<u32>,
    /// Place in the mesh.
    pub mesh: Mesh,
    /// `PID-HEX`, unique per process and run.
    pub process: String,
}

impl Identity {
    /// The common front of this process's file names (docs/format.md, File names).
    #[must_use]
    pub fn stem(&self) -> String {
        let mut stem = match self.rank {
            Some(rank) => format!("rank{rank}"),
            None => "rankunknown".to_owned(),
        };
        for dim in self.mesh.dims.iter().filter(|d| d.size > 1) {
            stem += &format!(".{}{}of{}", dim.name, dim.coord, dim.size);
        }
        stem + ".pid" + &self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stem_names_rank_mesh_and_process() {
        let mut id = Identity {
            run: "r".into(),
            rank: Some(7),
            world: Some(8),
            mesh: Mesh::from_sizes("pp=2,dp=1,tp=4", 7).unwrap(),
            process: "4242-9f3c01ab".into(),
        };
        assert_eq!(id.stem(), "rank7.pp1of2.tp3of4.pid4242-9f3c01ab");
        (id.rank, id.mesh) = (None, Mesh::default());
        assert_eq!(id.stem(), "rankunknown.pid4242-9f3c01ab");
    }
}
