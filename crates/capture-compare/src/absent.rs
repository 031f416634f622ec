//! Ranks that have no record of a firing although their place in the mesh is part of its group, and what the run itself
//! says of why.

use crate::{
    index::{Firing, Group, Index},
    misfit::Misfit,
    report::{Diagnosis, Kind},
    run::{FileError, Process},
};
use capture_core::{
    Mesh, Placements, Selection,
    ranks::RankSet,
    select::{Mode, Subject},
};
use std::collections::{BTreeMap, BTreeSet};

/// The mesh dimensions that a placement is over; tp where none was said.
pub(crate) fn over(placements: Option<&Placements>) -> Vec<&str> {
    placements.map_or_else(|| vec!["tp"], |all| all.0.iter().map(|p| p.over.as_str()).collect())
}

/// What is to be said of the places along the dimensions `over` at which a group has no record: [`Kind::Missing`] where
/// the run has no reason for it, else [`Kind::Seen`]. Over pp a tap exists where it exists.
pub(crate) fn absent(index: &Index<'_>, firing: &Firing, group: &Group, over: &[&str]) -> Vec<Diagnosis> {
    let mut found: BTreeMap<Option<String>, Places> = BTreeMap::new();
    for dim in over.iter().filter(|dim| **dim != "pp") {
        for (entry, present) in lines(index, group, over, dim) {
            let mesh = index.mesh(&index.run.entries[entry]);
            let size = mesh.dim(dim).map_or(1, |d| d.size);
            let n_absent = (size as usize).saturating_sub(present.len());
            // A mesh may claim any size: only the first few that are missing are looked for.
            let absent = (0..size).filter(|c| !present.contains(c)).take(n_absent.min(Misfit::LISTED));
            let mut last = None;
            for coord in absent {
                let seat = Seat::of(index, entry, dim, coord);
                let reason = seat.reason(index, firing, group, entry);
                match seat.rank {
                    Some(rank) => found.entry(reason.clone()).or_default().ranks.push(rank),
                    None => found.entry(reason.clone()).or_default().others.push(format!("{dim} {coord}")),
                }
                last = Some(reason);
            }
            if let Some(last) = last {
                found.entry(last).or_default().more += n_absent.saturating_sub(Misfit::LISTED);
            }
        }
    }
    let is_assumed = group.entries.first().is_some_and(|e| index.mesh(&index.run.entries[*e]).assumed);
    let assumed = if is_assumed { " (the mesh is not known: all ranks were taken as tp)" } else { "" };
    let say = |(reason, places): (Option<String>, Places)| match reason {
        None => Diagnosis::new(Kind::Missing, format!("no record of {places}{assumed}")),
        Some(reason) => Diagnosis::new(Kind::Seen, format!("no record of {places}: {reason}")),
    };
    found.into_iter().map(say).collect()
}

/// The members of a group along one dimension: one of them, and the coordinates of all, for each place along the other
/// dimensions. Where dimensions overlap not every place exists, and all are looked at together.
fn lines(index: &Index<'_>, group: &Group, over: &[&str], dim: &str) -> Vec<(usize, BTreeSet<u32>)> {
    let mut lines: BTreeMap<Vec<u32>, (usize, BTreeSet<u32>)> = BTreeMap::new();
    for &entry in &group.entries {
        let mesh = index.mesh(&index.run.entries[entry]);
        let others = over.iter().filter(|other| **other != dim && !index.overlaps(entry));
        let line = others.map(|other| mesh.dim(other).map_or(0, |d| d.coord)).collect();
        let coord = mesh.dim(dim).map_or(0, |d| d.coord);
        lines.entry(line).or_insert_with(|| (entry, BTreeSet::new())).1.insert(coord);
    }
    lines.into_values().collect()
}

/// A place in the mesh without a record of the firing.
struct Seat<'r> {
    rank: Option<u32>,
    mesh: Mesh,
    /// Who stands there, if that rank left anything at all.
    process: Option<&'r Process>,
}

impl<'r> Seat<'r> {
    /// The place at a coordinate of a dimension, beside that of an entry.
    fn of(index: &Index<'r>, entry: usize, dim: &str, coord: u32) -> Self {
        let own = &index.run.processes[index.run.entries[entry].process].identity;
        let mut mesh = own.mesh.clone();
        mesh.dims.iter_mut().filter(|d| d.name == dim).for_each(|d| d.coord = coord);
        let alike = |process: &&Process| {
            let there = &process.identity.mesh;
            mesh.dims.iter().filter(|d| there.dim(&d.name) == Some(d)).count()
        };
        // Of dimensions that overlap, another has another coordinate there, too.
        let least = mesh.dims.len() - usize::from(index.overlaps(entry));
        let stands = |process: &&Process| {
            let there = process.identity.mesh.dim(dim);
            there.is_some_and(|d| d.coord == coord) && alike(process) >= least
        };
        let process = index.run.processes.iter().filter(stands).max_by_key(alike);
        let known = process.map(|process| (process.identity.rank, process.identity.mesh.clone()));
        let (rank, mesh) = known.unwrap_or_else(|| {
            // The last dimension varies fastest, if that is so of the rank that is there.
            let counts = own.rank.is_some() && number(&own.mesh) == own.rank && !index.overlaps(entry);
            (counts.then(|| number(&mesh)).flatten(), mesh)
        });
        Self { rank, mesh, process }
    }

    /// Why the run has no record of it; `None` where it does not say.
    fn reason(&self, index: &Index<'r>, firing: &Firing, group: &Group, entry: usize) -> Option<String> {
        let unknown = index.run.processes.iter().filter(|p| p.identity.rank.is_none()).count();
        if unknown > 0 {
            return Some(format!("the rank of {unknown} processes is unknown"));
        }
        // That is an error of its own, and no statement about what the rank held.
        let of_rank = |name: &str| self.rank.is_some_and(|rank| name.starts_with(&format!("rank{rank}.")));
        let name = |error: &FileError| error.file.file_name().is_some_and(|f| of_rank(&f.to_string_lossy()));
        if index.run.errors.iter().any(name) {
            return Some("a file of it cannot be read".to_owned());
        }
        let entry_of = &index.run.entries[entry];
        let own = &index.run.processes[entry_of.process];
        // An expert lives on one place of ep, which overlaps tp.
        let elsewhere = |(dim, coord): (&String, &u32)| {
            let there = self.process?.identity.mesh.dim(dim)?;
            (there.coord != *coord).then(|| format!("{:?} is on {dim} {coord} only", firing.tap))
        };
        let alone = group.entries.len() == 1 && index.overlaps(entry);
        if let Some(reason) = group.at.iter().filter(|_| alone).find_map(elsewhere) {
            return Some(reason);
        }
        // Switched on together, all ranks were told the same.
        let config = &self.process.and_then(|p| p.manifest.as_ref()).or(own.manifest.as_ref())?.config;
        if let Some(text) = config.get("ranks")
            && text.parse::<RankSet>().is_ok_and(|ranks| !ranks.contains(self.rank, &self.mesh))
        {
            return Some(format!("captured was on ranks {text}"));
        }
        let shape = &entry_of.shape;
        let taken = |rank: Option<u32>, selection: &Selection| {
            let subject = Subject { dtype: Some(entry_of.dtype), shape, call: entry_of.record.call, rank };
            let named = selection.rules().iter().filter(|rule| rule.names(&entry_of.record.tap));
            named.into_iter().find(|rule| rule.holds(&subject)).is_some_and(|rule| rule.mode() == Mode::Full)
        };
        if let Some(selection) = config.get("select").and_then(|text| text.parse::<Selection>().ok())
            && taken(own.identity.rank, &selection)
            && !taken(self.rank, &selection)
        {
            return Some(format!("the selection {selection} leaves it out there"));
        }
        None
    }
}

/// The rank at a place where the last dimension varies fastest.
fn number(mesh: &Mesh) -> Option<u32> {
    mesh.dims.iter().try_fold(0u32, |rank, d| rank.checked_mul(d.size)?.checked_add(d.coord))
}

/// Places without a record.
#[derive(Default)]
struct Places {
    ranks: Vec<u32>,
    /// Those of which the rank is not known, by their coordinate.
    others: Vec<String>,
    more: usize,
}

impl std::fmt::Display for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let plural = if ranks.len() > 1 { "s" } else { "" };
        let ranks = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let ranks = (!ranks.is_empty()).then(|| format!("rank{plural} {ranks}"));
        let all: Vec<String> = ranks.into_iter().chain(self.others.iter().cloned()).collect();
        f.write_str(&all.join(", "))?;
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}
