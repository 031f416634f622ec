//! Which ranks capture: `all`, `0,3`, `0-3`, or by mesh `tp:0,1;pp:0`.

use crate::mesh::{Mesh, is_dim_name};
use std::{fmt, str::FromStr};

/// A set of ranks, as `TPCAPTURE_RANKS` names it. Each process asks for itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankSet(Set);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Set {
    #[default]
    All,
    /// Global ranks.
    Ranks(Numbers),
    /// Coordinates along mesh dimensions, all of which must fit.
    Places(Vec<(String, Numbers)>),
}

/// Ranges of which both ends belong to the set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Numbers(Vec<(u32, u32)>);

/// Why a set of ranks does not parse: the part that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected all, ranks such as 0,3 or 0-3, or places in the mesh such as tp:0,1;pp:0, found {0:?}")]
pub struct RankSetError(pub String);

impl RankSet {
    /// Whether the process belongs to it. One whose rank is unknown belongs only to `all`; one whose mesh lacks a
    /// dimension that is named does not belong.
    #[must_use]
    pub fn contains(&self, rank: Option<u32>, mesh: &Mesh) -> bool {
        match (&self.0, rank) {
            (Set::All, _) => true,
            (_, None) => false,
            (Set::Ranks(ranks), Some(rank)) => ranks.contains(rank),
            (Set::Places(places), Some(_)) => places
                .iter()
                .all(|(name, coords)| mesh.dim(name).is_some_and(|dim| coords.contains(dim.coord))),
        }
    }
}

impl FromStr for RankSet {
    type Err = RankSetError;

    fn from_str(text: &str) -> Result<Self, RankSetError> {
        if text.trim().eq_ignore_ascii_case("all") {
            return Ok(Self(Set::All));
        }
        if !text.contains(':') {
            return Ok(Self(Set::Ranks(Numbers::parse(text)?)));
        }
        let mut places: Vec<(String, Numbers)> = Vec::new();
        for part in text.split(';') {
            let bad = || RankSetError(part.trim().to_owned());
            let (name, coords) = part.split_once(':').ok_or_else(bad)?;
            let name = name.trim();
            if !is_dim_name(name) || places.iter().any(|(other, _)| other == name) {
                return Err(bad());
            }
            places.push((name.to_owned(), Numbers::parse(coords)?));
        }
        Ok(Self(Set::Places(places)))
    }
}

impl Numbers {
    fn parse(text: &str) -> Result<Self, RankSetError> {
        let range = |part: &str| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (whole(low)?, whole(high)?);
            (low <= high).then_some((low, high))
        };
        let parts = text.split(',').map(str::trim);
        parts
            .map(|part| range(part).ok_or_else(|| RankSetError(part.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn contains(&self, n: u32) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&n))
    }
}

/// Digits only: `u32`'s own parser also takes a plus sign.
fn whole(text: &str) -> Option<u32> {
    let text = text.trim();
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Set::All => f.write_str("all"),
            Set::Ranks(ranks) => ranks.fmt(f),
            Set::Places(places) => {
                for (i, (name, coords)) in places.iter().enumerate() {
                    write!(f, "{}{name}:{coords}", if i == 0 { "" } else { ";" })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (low, high)) in self.0.iter().enumerate() {
            write!(f, "{}{low}", if i == 0 { "" } else { "," })?;
            if low != high {
                write!(f, "-{high}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the eight ranks of a mesh `pp=2,tp=4` belong to the set, and how it prints.
    #[track_caller]
    fn check(text: &str, ranks: &[u32], canonical: &str) {
        let set: RankSet = text.parse().unwrap();
        let mesh = |rank| Mesh::from_sizes("pp=2,tp=4", rank).unwrap();
        let found: Vec<u32> = (0..8).filter(|rank| set.contains(Some(*rank), &mesh(*rank))).collect();
        assert_eq!(found, ranks);
        assert_eq!(set.to_string(), canonical);
    }

    #[track_caller]
    fn check_error(text: &str, part: &str) {
        assert_eq!(text.parse::<RankSet>(), Err(RankSetError(part.into())));
    }

    #[test]
    fn ranks_are_listed_or_ranged() {
        check("all", &[0, 1, 2, 3, 4, 5, 6, 7], "all");
        check("0,3", &[0, 3], "0,3");
        check("0-3", &[0, 1, 2, 3], "0-3");
        check(" 0 , 2 - 3,7-7 ", &[0, 2, 3, 7], "0,2-3,7");
        check("8", &[], "8");
    }

    #[test]
    fn places_in_the_mesh_must_all_fit() {
        check("tp:0", &[0, 4], "tp:0");
        check("tp:0,1;pp:0", &[0, 1], "tp:0,1;pp:0");
        check("pp:1 ; tp:2-3", &[6, 7], "pp:1;tp:2-3");
        check("ep:0", &[], "ep:0");
        check("tp:0;ep:0", &[], "tp:0;ep:0");
    }

    #[test]
    fn an_unknown_rank_belongs_only_to_all() {
        let within = |text: &str, mesh| text.parse::<RankSet>().unwrap().contains(None, &mesh);
        assert!(within("all", Mesh::default()));
        assert!(!within("0-100", Mesh::default()));
        assert!(!within("tp:0", Mesh::from_sizes("tp=4", 0).unwrap()));
    }

    #[test]
    fn what_is_no_set_is_quoted() {
        check_error("", "");
        check_error("0,", "");
        check_error("0;1", "0;1");
        check_error("0,3-1", "3-1");
        check_error("0-", "0-");
        check_error("-1", "-1");
        check_error("+1", "+1");
        check_error("4294967296", "4294967296");
        check_error("tp:0;1", "1");
        check_error("tp:0;tp:1", "tp:1");
        check_error("TP:0", "TP:0");
        check_error("tp:", "");
        let sentence =
            "expected all, ranks such as 0,3 or 0-3, or places in the mesh such as tp:0,1;pp:0, found \"x\"";
        assert_eq!("x".parse::<RankSet>().unwrap_err().to_string(), sentence);
    }
}
