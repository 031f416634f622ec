//! How the records of several ranks make one logical tensor: DTensor's words `R`, `S(d)`, `P`, extended by what
//! fused and quantised projections need. The grammar is in docs/format.md.

use crate::{
    mesh::is_dim_name,
    notation::{Cursor, NotationError},
};
use std::{fmt, str::FromStr};

/// A placement over every mesh dimension that is named: `S(0)/ep, S(1)/tp`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placements(pub Vec<Placement>);

/// A sharding over one mesh dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placement {
    /// What each place along the dimension holds.
    pub sharding: Sharding,
    /// The mesh dimension, `tp` where none was written.
    pub over: String,
}

/// What the places along one mesh dimension hold of the logical tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sharding {
    /// `R`: each holds the whole.
    Replicate,
    /// `P`: the logical tensor is the sum over all.
    Partial,
    /// `S(axis, …)`: each holds a slice.
    Shard {
        /// The tensor dimension that is cut; negative counts from the end.
        axis: i32,
        /// How the slices are cut.
        cut: Cut,
        /// The logical size of the axis, where its tail is padding.
        size: Option<u64>,
    },
    /// `scale_of(tap, block=[…])`, which stands alone: each holds the block scales of its part of another tap.
    ScaleOf {
        /// The tap that the scales are of.
        tap: String,
        /// Sizes of a block over the last dims.
        block: Vec<u64>,
    },
}

/// How an axis is cut into slices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cut {
    /// One slice each, in rank order, perhaps uneven.
    Plain,
    /// Sections of these logical sizes, each cut by itself (merged QKV, gate/up).
    Sections(Vec<u64>),
    /// The same, where several neighbouring ranks hold the same slice of some sections (KV heads below TP).
    Shared(Vec<Section>),
    /// So many sections of equal size, each cut by itself.
    Equal(u64),
    /// So many groups, each rank owning whole groups whose parts are stored interleaved.
    Interleave(u64),
    /// So many distinct slices, each held by world/K neighbouring ranks (KV heads below TP).
    Groups(u64),
}

/// A section of an axis, cut by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Section {
    /// Logical size.
    pub size: u64,
    /// So many distinct slices, each held by world/K neighbouring ranks; `None` where each rank has its own.
    pub groups: Option<u64>,
}

impl Cut {
    /// How many sections `sections=N` may ask for.
    pub const MOST_SECTIONS: u64 = 1024;

    /// Sections, each with or without slices that several ranks hold.
    #[must_use]
    pub fn sections(sections: Vec<Section>) -> Self {
        if sections.iter().all(|section| section.groups.is_none()) {
            return Self::Sections(sections.into_iter().map(|section| section.size).collect());
        }
        Self::Shared(sections)
    }

    /// The sizes of the sections of an axis of that size; `None` where it has none.
    #[must_use]
    pub fn sizes(&self, of: u64) -> Option<Vec<u64>> {
        match self {
            Self::Sections(sizes) => Some(sizes.clone()),
            Self::Shared(sections) => Some(sections.iter().map(|section| section.size).collect()),
            Self::Equal(count) => Some(vec![of / count; *count as usize]),
            Self::Plain | Self::Interleave(_) | Self::Groups(_) => None,
        }
    }
}

impl FromStr for Placements {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let mut cursor = Cursor::new("placement", text);
        let mut all: Vec<Placement> = Vec::new();
        loop {
            let start = cursor.column();
            if all.is_empty() && cursor.eat("scale_of(") {
                all.push(Placement { sharding: scale_of(&mut cursor)?, over: "tp".to_owned() });
                return cursor.end().map(|()| Self(all));
            }
            let placement = placement(&mut cursor)?;
            if all.iter().any(|p| p.over == placement.over) {
                return cursor.expected_at(start, "each mesh dimension once");
            }
            all.push(placement);
            if cursor.eat(",") {
                continue;
            }
            return if cursor.rest().is_empty() {
                Ok(Self(all))
            } else {
                cursor.expected("\",\" or the end")
            };
        }
    }
}

fn placement(cursor: &mut Cursor<'_>) -> Result<Placement, NotationError> {
    let sharding = if cursor.eat("S(") {
        shard(cursor)?
    } else if cursor.eat("R") {
        Sharding::Replicate
    } else if cursor.eat("P") {
        Sharding::Partial
    } else {
        return cursor.expected("R, P, S(dim) or scale_of(tap)");
    };
    let mut over = "tp";
    if cursor.eat("/") {
        let start = cursor.column();
        over = cursor.take(|c| c.is_ascii_lowercase() || c == '_');
        if !is_dim_name(over) {
            return cursor.expected_at(start, "a mesh dimension such as tp");
        }
    }
    Ok(Placement { sharding, over: over.to_owned() })
}

fn shard(cursor: &mut Cursor<'_>) -> Result<Sharding, NotationError> {
    let axis = cursor.axis()?;
    let (mut size, mut cut) = (None, Cut::Plain);
    while cursor.eat(",") {
        if cursor.eat("size=") {
            size = Some(cursor.positive()?);
            continue;
        }
        if cut != Cut::Plain {
            return cursor
                .expected("size=N, as only one of sections, interleave and groups fits a placement");
        }
        cut = if cursor.eat("sections=[") {
            sections(cursor)?
        } else if cursor.eat("sections=") {
            Cut::Equal(count(cursor)?)
        } else if cursor.eat("interleave=") {
            Cut::Interleave(cursor.positive()?)
        } else if cursor.eat("groups=") {
            Cut::Groups(cursor.positive()?)
        } else {
            return cursor.expected("size=, sections=, interleave= or groups=");
        };
    }
    cursor.require(")", "\",\" or \")\"")?;
    Ok(Sharding::Shard { axis, cut, size })
}

fn scale_of(cursor: &mut Cursor<'_>) -> Result<Sharding, NotationError> {
    let tap = cursor.tap()?;
    if !cursor.eat(",") || !cursor.eat("block=[") {
        return cursor.expected("\", block=[\"");
    }
    let mut block = vec![cursor.positive()?];
    while cursor.eat(",") {
        block.push(cursor.positive()?);
    }
    cursor.require("]", "\",\" or \"]\"")?;
    cursor.require(")", "\")\"")?;
    Ok(Sharding::ScaleOf { tap, block })
}

/// Sections up to the closing bracket.
fn sections(cursor: &mut Cursor<'_>) -> Result<Cut, NotationError> {
    let mut sections = Vec::new();
    loop {
        let size = cursor.positive()?;
        let groups = if cursor.eat("/") { Some(cursor.positive()?) } else { None };
        sections.push(Section { size, groups });
        if !cursor.eat(",") {
            break;
        }
    }
    cursor.require("]", "\",\" or \"]\"")?;
    Ok(Cut::sections(sections))
}

/// A number of sections; of more than a tensor may have, none is made.
fn count(cursor: &mut Cursor<'_>) -> Result<u64, NotationError> {
    let start = cursor.column();
    let n = cursor.positive()?;
    if n > Cut::MOST_SECTIONS { cursor.expected_at(start, "at most 1024 sections") } else { Ok(n) }
}

impl fmt::Display for Placements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, placement) in self.0.iter().enumerate() {
            write!(f, "{}{placement}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sharding {
            Sharding::Replicate => f.write_str("R")?,
            Sharding::Partial => f.write_str("P")?,
            Sharding::Shard { axis, cut, size } => {
                write!(f, "S({axis}")?;
                if let Some(n) = size {
                    write!(f, ", size={n}")?;
                }
                match cut {
                    Cut::Plain => {}
                    Cut::Sections(sizes) => write!(f, ", sections=[{}]", listed(sizes))?,
                    Cut::Shared(sections) => {
                        let all: Vec<String> = sections.iter().map(Section::to_string).collect();
                        write!(f, ", sections=[{}]", all.join(","))?;
                    }
                    Cut::Equal(n) => write!(f, ", sections={n}")?,
                    Cut::Interleave(n) => write!(f, ", interleave={n}")?,
                    Cut::Groups(n) => write!(f, ", groups={n}")?,
                }
                f.write_str(")")?;
            }
            Sharding::ScaleOf { tap, block } => write!(f, "scale_of({tap}, block=[{}])", listed(block))?,
        }
        if self.over == "tp" { Ok(()) } else { write!(f, "/{}", self.over) }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.groups {
            None => write!(f, "{}", self.size),
            Some(groups) => write!(f, "{}/{groups}", self.size),
        }
    }
}

/// `16,4,4`.
fn listed(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str) {
        assert_eq!(text.parse::<Placements>().unwrap().to_string(), canonical);
    }

    #[track_caller]
    fn check_error(text: &str, column: usize, expected: &str) {
        let error = text.parse::<Placements>().unwrap_err();
        assert_eq!((error.column, error.expected), (column, expected));
    }

    #[test]
    fn placements_print_canonically() {
        check("R", "R");
        check(" P /tp ", "P");
        check("S( -1 )", "S(-1)");
        check("S(1,sections=[16, 4,4])/tp", "S(1, sections=[16,4,4])");
        check("S(1, sections=[16, 4 / 2,4/2])", "S(1, sections=[16,4/2,4/2])");
        check("S(-1, sections=2)", "S(-1, sections=2)");
        check("S(0, groups=2, size=10)", "S(0, size=10, groups=2)");
        check("S(0)/ep,S(1)", "S(0)/ep, S(1)");
        check("S(0,interleave=4)", "S(0, interleave=4)");
        check("scale_of( a.weight ,block=[128, 128])", "scale_of(a.weight, block=[128,128])");
    }

    #[test]
    fn errors_point_at_the_column() {
        check_error("", 0, "R, P, S(dim) or scale_of(tap)");
        check_error("S(x)", 2, "a number");
        check_error("S(0", 3, "\",\" or \")\"");
        check_error("S(0) R", 5, "\",\" or the end");
        check_error("S(0, size=0)", 10, "a number of at least 1");
        check_error("S(0, sections=0)", 14, "a number of at least 1");
        check_error("S(0, sections=1025)", 14, "at most 1024 sections");
        check_error("S(0, sections=[4/])", 17, "a number");
        check_error("S(0, sections=[4/2)", 18, "\",\" or \"]\"");
        check_error("R, P", 3, "each mesh dimension once");
        check_error("R/Tp", 2, "a mesh dimension such as tp");
        check_error("scale_of(, block=[1])", 9, "a tap name");
        check_error("scale_of(w)", 10, "\", block=[\"");
        check_error("scale_of(w, block=[0])", 19, "a number of at least 1");
        check_error("scale_of(w, block=[1], x)", 21, "\")\"");
        check_error("scale_of(w, block=[1]), R", 22, "the end");
        check_error("R, scale_of(w, block=[1])", 3, "R, P, S(dim) or scale_of(tap)");
    }
}
