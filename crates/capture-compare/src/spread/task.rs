//! What is done on a machine of the cluster.

use super::{Place, Plan, SpreadError, from_bytes, to_bytes};
use crate::{
    outcome::Outcome,
    run::{Access, Catalogue, Entry, FileError, Key, OpenError, Run},
    ties::Again,
    walk::Decided,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::{collections::HashMap, path::Path};

/// What a task is to do.
#[derive(Serialize, Deserialize)]
pub(super) enum Items {
    /// Measure these pairs.
    Measure(Vec<usize>),
    /// Measure pairs without the rows that parted.
    MeasureAgain(Vec<Again>),
    /// Explain these rows.
    Explain(Vec<Decided>),
}

/// What came of an item, to be taken only if nothing was wanted.
#[derive(Serialize, Deserialize)]
pub(super) struct Done<R> {
    pub(super) result: R,
    pub(super) wants: Vec<Place>,
}

/// What a machine, by its number, has of a run.
pub fn list(path: &Path, node: usize) -> Result<Vec<u8>, OpenError> {
    let run = Run::open(path, Access::Unmapped)?;
    Ok(to_bytes(&Catalogue::of(&run, node)).expect("paths of runs that were opened, names and numbers"))
}

/// Bytes of records that lie on this machine, for one that has them not.
pub fn fetch(plan: &[u8], node: usize, places: &[u8]) -> Result<Vec<u8>, SpreadError> {
    let plan: Plan = from_bytes(plan)?;
    let places: Vec<Place> = from_bytes(places)?;
    let runs: Vec<Run> =
        plan.runs.iter().map(|c| c.open(Some(node), plan.access(), HashMap::new())).collect();
    let by_key: Vec<HashMap<Key, &Entry>> =
        runs.iter().map(|run| run.entries.iter().map(|e| (e.key(), e)).collect()).collect();
    let read = |&(run, key): &Place| {
        let entry = by_key.get(run)?.get(&key)?;
        let bytes: Result<ByteBuf, FileError> =
            runs[run].bytes(entry).map(|bytes| ByteBuf::from(bytes.into_owned()));
        // What cannot be read is not held, and the task says so of the record.
        Some((run, key, bytes.ok()?))
    };
    to_bytes(&places.iter().filter_map(read).collect::<Vec<_>>())
}

/// Does a task on this machine with what was fetched for it.
pub fn work(plan: &[u8], node: usize, items: &[u8], fetched: &[Vec<u8>]) -> Result<Vec<u8>, SpreadError> {
    let plan: Plan = from_bytes(plan)?;
    let mut held: Vec<HashMap<Key, Vec<u8>>> = plan.runs.iter().map(|_| HashMap::new()).collect();
    for bytes in fetched {
        for (run, key, bytes) in from_bytes::<Vec<(usize, Key, ByteBuf)>>(bytes)? {
            if let Some(held) = held.get_mut(run) {
                held.insert(key, bytes.into_vec());
            }
        }
    }
    let runs: Vec<Run> = plan
        .runs
        .iter()
        .zip(held)
        .map(|(catalogue, held)| catalogue.open(Some(node), plan.access(), held))
        .collect();
    let layouts = plan.layouts()?;
    let comparison = plan.comparison(&runs, &layouts);
    // One item at a time, so that what is wanted is known of each.
    let wants = || -> Vec<Place> {
        let of = |(run, opened): (usize, &Run)| opened.take_wanted().into_iter().map(move |key| (run, key));
        runs.iter().enumerate().flat_map(of).collect()
    };
    match from_bytes(items)? {
        Items::Measure(pairs) => to_bytes(
            &pairs
                .iter()
                .map(|pair| Done::<Outcome> { result: comparison.measure(*pair), wants: wants() })
                .collect::<Vec<_>>(),
        ),
        Items::MeasureAgain(pairs) => to_bytes(
            &pairs
                .iter()
                .map(|again| Done::<Outcome> { result: comparison.measure_again(again), wants: wants() })
                .collect::<Vec<_>>(),
        ),
        Items::Explain(rows) => to_bytes(
            &rows
                .iter()
                .map(|row| Done { result: comparison.explain(row), wants: wants() })
                .collect::<Vec<_>>(),
        ),
    }
}
