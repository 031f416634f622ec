//! What is done on a machine of the cluster.

use super::{Holds, Place, Shared, SpreadError, from_bytes, to_bytes};
use crate::{
    alone::Checking,
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
    /// Look at these groups of a run alone.
    Look(Vec<usize>),
    /// Bring these records to the driver.
    Bring(Vec<Place>),
}

/// What came of an item, to be taken only if nothing was wanted.
#[derive(Serialize, Deserialize)]
pub(super) struct Done<R> {
    pub(super) result: R,
    pub(super) wants: Vec<Place>,
}

/// What a machine, by its number, has of a run or checkpoint.
pub fn list(path: &Path, what: Holds, node: usize) -> Result<Vec<u8>, OpenError> {
    let run = match what {
        Holds::Run => Run::open(path, Access::Unmapped)?,
        Holds::Checkpoint => Run::checkpoint(path, Access::Unmapped)?,
    };
    Ok(to_bytes(&Catalogue::of(&run, node)).expect("paths of runs that were opened, names and numbers"))
}

/// Bytes of records that lie on this machine, for one that has them not.
pub fn fetch(shared: &[u8], node: usize, places: &[u8]) -> Result<Vec<u8>, SpreadError> {
    let shared: Shared<'_> = from_bytes(shared)?;
    bring(&shared.plan.open(Some(node), Vec::new()), &from_bytes::<Vec<Place>>(places)?)
}

/// A record's place and bytes.
type Brought = (usize, Key, ByteBuf);

fn bring(runs: &[Run], places: &[Place]) -> Result<Vec<u8>, SpreadError> {
    let by_key: Vec<HashMap<Key, &Entry>> =
        runs.iter().map(|run| run.entries.iter().map(|e| (e.key(), e)).collect()).collect();
    let read = |&(run, key): &Place| -> Option<Brought> {
        let entry = by_key.get(run)?.get(&key)?;
        let bytes: Result<ByteBuf, FileError> =
            runs[run].bytes(entry).map(|bytes| ByteBuf::from(bytes.into_owned()));
        // What cannot be read is not held, and the task says so of the record.
        Some((run, key, bytes.ok()?))
    };
    to_bytes(&places.iter().filter_map(read).collect::<Vec<_>>())
}

pub(super) fn brought(bytes: &[u8]) -> Result<Vec<Brought>, SpreadError> {
    from_bytes(bytes)
}

/// The records that were asked for and are not here.
pub(super) fn wanted(runs: &[Run]) -> Vec<Place> {
    let of = |(run, opened): (usize, &Run)| opened.take_wanted().into_iter().map(move |key| (run, key));
    runs.iter().enumerate().flat_map(of).collect()
}

/// Does a task on this machine with what was fetched for it.
pub fn work(shared: &[u8], node: usize, items: &[u8], fetched: &[Vec<u8>]) -> Result<Vec<u8>, SpreadError> {
    let shared: Shared<'_> = from_bytes(shared)?;
    let mut held: Vec<HashMap<Key, Vec<u8>>> = shared.plan.runs.iter().map(|_| HashMap::new()).collect();
    for bytes in fetched {
        for (run, key, bytes) in brought(bytes)? {
            if let Some(held) = held.get_mut(run) {
                held.insert(key, bytes.into_vec());
            }
        }
    }
    let runs = shared.plan.open(Some(node), held);
    let layouts = shared.plan.layouts()?;
    match from_bytes(items)? {
        Items::Measure(pairs) => {
            let comparison = shared.comparison(&runs, &layouts);
            done(&runs, &pairs, |pair| comparison.measure(*pair))
        }
        Items::MeasureAgain(pairs) => {
            let comparison = shared.comparison(&runs, &layouts);
            done(&runs, &pairs, |again| comparison.measure_again(again))
        }
        Items::Explain(rows) => {
            let comparison = shared.comparison(&runs, &layouts);
            done(&runs, &rows, |row| comparison.explain(row))
        }
        Items::Look(groups) => {
            let checking = Checking::new(&runs[0], &layouts, shared.plan.options(&runs));
            done(&runs, &groups, |group| checking.look(*group))
        }
        Items::Bring(places) => bring(&runs, &places),
    }
}

/// One item at a time, so that what is wanted is known of each.
fn done<T, R: Serialize>(runs: &[Run], items: &[T], work: impl Fn(&T) -> R) -> Result<Vec<u8>, SpreadError> {
    let done = |item| Done { result: work(item), wants: wanted(runs) };
    to_bytes(&items.iter().map(done).collect::<Vec<_>>())
}
