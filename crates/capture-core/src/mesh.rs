//! The parallel dimensions of a job and where one process stands in them.

use serde::{Deserialize, Serialize};

/// One dimension of the mesh: its name (`tp`), this process's coordinate and the number of processes along it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dim {
    /// `pp`, `dp`, `cp`, `tp`, `ep` or another name of lower-case letters and `_`.
    pub name: String,
    /// This process's place along the dimension, below `size`.
    pub coord: u32,
    /// How many places the dimension has, at least 1.
    pub size: u32,
}

/// A process's place in the mesh. Dimensions may overlap (vLLM's ep spans tp × dp), so that sizes need not
/// multiply to the world.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mesh {
    /// The dimensions, in the order given; the last one varies fastest.
    pub dims: Vec<Dim>,
    /// True where only the world size was known and was taken as `tp`.
    pub assumed: bool,
}

/// Why a mesh does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A part is not `name=size`.
    #[error(
        "expected name=size with a name of letters and a size of at least 1, as in pp=2,tp=4, found {0:?}"
    )]
    Part(String),
    /// A name stands twice.
    #[error("mesh dimension {0:?} is named twice")]
    Twice(String),
    /// The rank does not fit the sizes.
    #[error("rank {rank} does not fit a mesh of {world} processes")]
    Rank {
        /// The rank.
        rank: u32,
        /// The product of the sizes.
        world: u64,
    },
}

impl Mesh {
    /// The mesh of sizes `pp=2,tp=4` seen by `rank`: coordinates follow from the rank, the last dimension varying
    /// fastest, as in torch's DeviceMesh.
    pub fn from_sizes(text: &str, rank: u32) -> Result<Self, MeshError> {
        let mut dims: Vec<Dim> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let bad = || MeshError::Part(part.to_owned());
            let (name, size) = part.split_once('=').ok_or_else(bad)?;
            let (name, size) = (name.trim(), size.trim().parse().map_err(|_| bad())?);
            if !is_dim_name(name) || size == 0 {
                return Err(bad());
            }
            if dims.iter().any(|d| d.name == name) {
                return Err(MeshError::Twice(name.to_owned()));
            }
            dims.push(Dim { name: name.to_owned(), coord: 0, size });
        }
        let world = dims.iter().try_fold(1u64, |n, d| n.checked_mul(u64::from(d.size))).unwrap_or(u64::MAX);
        if u64::from(rank) >= world {
            return Err(MeshError::Rank { rank, world });
        }
        let mut rest = rank;
        for dim in dims.iter_mut().rev() {
            dim.coord = rest % dim.size;
            rest /= dim.size;
        }
        Ok(Self { dims, assumed: false })
    }

    /// The mesh taken where only the world is known: all of it tensor parallel.
    #[must_use]
    pub fn assumed_tp(rank: u32, world: u32) -> Self {
        Self { dims: vec![Dim { name: "tp".into(), coord: rank, size: world }], assumed: true }
    }

    /// The dimension of that name.
    #[must_use]
    pub fn dim(&self, name: &str) -> Option<&Dim> {
        self.dims.iter().find(|d| d.name == name)
    }
}

/// Whether `name` may name a mesh dimension: lower-case letters and `_`, so that `tp3of8` reads back.
#[must_use]
pub fn is_dim_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 16 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_dimension_varies_fastest() {
        let coords = |rank| {
            let mesh = Mesh::from_sizes("pp=2,dp=2,tp=2", rank).unwrap();
            mesh.dims.iter().map(|d| d.coord).collect::<Vec<_>>()
        };
        assert_eq!(coords(0), [0, 0, 0]);
        assert_eq!(coords(1), [0, 0, 1]);
        assert_eq!(coords(6), [1, 1, 0]);
    }

    #[test]
    fn what_is_no_mesh_is_quoted() {
        assert_eq!(Mesh::from_sizes("tp", 0), Err(MeshError::Part("tp".into())));
        assert_eq!(Mesh::from_sizes("tp=0", 0), Err(MeshError::Part("tp=0".into())));
        assert_eq!(Mesh::from_sizes("TP=2", 0), Err(MeshError::Part("TP=2".into())));
        assert_eq!(Mesh::from_sizes("tp=2,tp=2", 0), Err(MeshError::Twice("tp".into())));
        assert_eq!(Mesh::from_sizes("pp=2,tp=2", 4), Err(MeshError::Rank { rank: 4, world: 4 }));
    }
}
