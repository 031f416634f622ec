//! What is wrong where a placement is not what is there.

/// Why parts do not make the logical tensor that a placement says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// Places of a mesh dimension without a record.
    #[error("expected {size} ranks over {over}, found {found}: {over} {} missing", first(missing, *size as usize - found))]
    Missing {
        /// The mesh dimension.
        over: String,
        /// Its size.
        size: u32,
        /// Coordinates that have a record.
        found: usize,
        /// Coordinates without a record, the first [`Misfit::LISTED`] of them.
        missing: Vec<u32>,
    },
    /// Ranks that cannot be told apart.
    #[error("expected one rank at each place, found ranks {} at the same: say over which mesh dimension they differ", list(.0))]
    SamePlace(Vec<u32>),
    /// Ranks of one dimension disagree about its size.
    #[error("expected one size of mesh dimension {over}, found {found:?}")]
    Mesh {
        /// The mesh dimension.
        over: String,
        /// Sizes found.
        found: Vec<u32>,
    },
    /// Ranks hold tensors that do not fit together.
    #[error("expected shapes that fit together under {placement}, found {found}")]
    Shapes {
        /// The placement.
        placement: String,
        /// `rank 0 [2, 3], rank 1 [2, 4]`.
        found: String,
    },
    /// Ranks hold different dtypes.
    #[error("expected one dtype on all ranks, found {0}")]
    Dtypes(String),
    /// The slices add up to another size than was declared.
    #[error("dim {axis}: expected {expected}, the slices add up to {found}")]
    Size {
        /// Dim.
        axis: usize,
        /// Declared size.
        expected: u64,
        /// Sum of the slices.
        found: u64,
    },
    /// A rank's slice is not what the declared sections leave it.
    #[error(
        "dim {axis}: sections {sections:?} over {size} ranks leave rank {place} {expected}, found {found}"
    )]
    Sections {
        /// Dim.
        axis: usize,
        /// Declared sizes.
        sections: Vec<u64>,
        /// Ranks along the mesh dimension.
        size: usize,
        /// Coordinate of the rank.
        place: usize,
        /// What it should hold.
        expected: u64,
        /// What it holds.
        found: u64,
    },
    /// The dim cannot be cut into so many equal sections.
    #[error("dim {axis}: expected {count} sections of equal size, found {total} in all")]
    Equal {
        /// Dim.
        axis: usize,
        /// Declared number of sections.
        count: u64,
        /// Sum of the slices.
        total: u64,
    },
    /// Groups are cut apart, or do not divide what they group.
    #[error("dim {axis}: expected whole groups of {groups} in {total}, found slices {slices:?}")]
    Interleave {
        /// Dim.
        axis: usize,
        /// Declared number of groups.
        groups: u64,
        /// Length of the dim.
        total: u64,
        /// Slices found.
        slices: Vec<u64>,
    },
    /// `groups=K` does not divide the ranks.
    #[error("expected a number of ranks that {groups} divides, found {size}")]
    Groups {
        /// Declared number of distinct slices.
        groups: u64,
        /// Ranks.
        size: usize,
    },
    /// The tensor has no such dim.
    #[error("expected a tensor with dim {axis}, found shape {shape:?}")]
    Axis {
        /// Dim as written.
        axis: i32,
        /// Shape.
        shape: Vec<u64>,
    },
    /// More valid rows are said than there are.
    #[error("expected at least {rows} rows, found shape {shape:?}")]
    Rows {
        /// Valid rows said.
        rows: u64,
        /// Shape.
        shape: Vec<u64>,
    },
    /// A transform does not fit the record, or what it takes of other taps.
    #[error("{transform}: expected {expected}, found {found}")]
    Transform {
        /// The transform as written.
        transform: String,
        /// What it needs.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Block scales without the tensor that they are of.
    #[error("scale_of: expected tap {0:?} beside its scales, found none")]
    ScaleOf(String),
    /// A rank's scales are not as many as its part has blocks.
    #[error("expected scales {expected:?} of its part {part:?}, found {found:?}")]
    Scales {
        /// Scales that its part needs.
        expected: Vec<u64>,
        /// Shape of its part.
        part: Vec<u64>,
        /// Scales there.
        found: Vec<u64>,
    },
    /// Scales that no rank holds.
    #[error("dim {axis}: expected scales {from} to {to} on some rank, found none")]
    Unscaled {
        /// Dim.
        axis: usize,
        /// First of them.
        from: u64,
        /// Behind the last.
        to: u64,
    },
    /// Only the first rows of each slice were kept, which leaves gaps.
    #[error("dim 0 is sharded and only its first rows were kept (head=N): the slices do not join")]
    Headed,
    /// There is nothing to assemble.
    #[error("expected a record, found none")]
    Empty,
}

impl Misfit {
    /// How many missing coordinates are listed.
    pub const LISTED: usize = 16;
}

/// `0, 2, 3`, and how many more there are.
fn first(numbers: &[u32], all: usize) -> String {
    let more = all.saturating_sub(numbers.len());
    list(numbers) + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// `0, 2, 3`.
fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
