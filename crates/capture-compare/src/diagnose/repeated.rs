//! Many taps that hold the same bytes, as where a buffer was read after all of them had run.

use crate::{
    index::{Firing, Index},
    run::Entry,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// How many taps are no chance: the output of one layer is the input of the next.
const LEAST_TAPS: usize = 3;
/// How many numbers make equal bytes a finding.
const LEAST_NUMBERS: u64 = 16;
/// How many taps are named.
const NAMED: usize = 3;

/// Taps of one rank and step whose records have one checksum, by the first of them.
#[derive(Debug, Default)]
pub(crate) struct Repeated(HashMap<Firing, Alike>);

#[derive(Debug)]
struct Alike {
    taps: BTreeSet<String>,
    /// Entries, the first one's first.
    entries: Vec<usize>,
}

impl Repeated {
    /// Finds them by the headers. Taps that are alike in another run as well, `than`, are meant to be.
    pub(crate) fn of(index: &Index<'_>, than: &Index<'_>) -> Self {
        let usual: HashSet<BTreeSet<String>> = alike(than).into_iter().map(|(_, alike)| alike.taps).collect();
        let mut said = HashSet::new();
        let found = alike(index).into_iter();
        Self(found.filter(|(_, a)| !usual.contains(&a.taps) && said.insert(a.taps.clone())).collect())
    }

    /// What is to be said of a firing that is the first of several that hold the same bytes, in which not all numbers
    /// are one. Reads them.
    pub(crate) fn text(&self, index: &Index<'_>, firing: &Firing) -> Option<String> {
        let Alike { taps, entries } = self.0.get(firing)?;
        let (first, rest) = entries.split_first()?;
        // All are read, so that a cluster learns of all that it has to fetch.
        let others: Vec<_> = rest.iter().map(|e| index.run.data(&index.run.entries[*e]).ok()).collect();
        let first = &index.run.entries[*first];
        let data = index.run.data(first).ok()?;
        let varied = data.is_varied((first.dtype.bitsize() as u64 / 8).max(1));
        let equal = others.into_iter().all(|other| other.is_some_and(|other| other == data));
        let named: Vec<&str> = taps.iter().take(NAMED).map(String::as_str).collect();
        let more = if taps.len() > NAMED { ", …" } else { "" };
        let text = || format!("{} taps hold the same bytes: {}{more}", taps.len(), named.join(", "));
        (varied && equal).then(text)
    }
}

fn alike(index: &Index<'_>) -> Vec<(Firing, Alike)> {
    let mut alike: BTreeMap<_, Vec<(&Firing, usize, &Entry)>> = BTreeMap::new();
    for firing in index.firings() {
        for &e in index.entries(firing) {
            let entry = &index.run.entries[e];
            if entry.numel() >= LEAST_NUMBERS && crate::float::Float::of(entry.dtype).is_some() {
                let key = (firing.step, entry.process, entry.record.crc32, entry.n_bytes());
                alike.entry(key).or_default().push((firing, e, entry));
            }
        }
    }
    let mut found = Vec::new();
    for mut all in alike.into_values() {
        all.sort_by_key(|(firing, _, entry)| (entry.record.seq, *firing));
        let taps: BTreeSet<String> = all.iter().map(|(firing, _, _)| firing.tap.clone()).collect();
        if taps.len() >= LEAST_TAPS {
            found.push((all[0].0.clone(), Alike { taps, entries: all.iter().map(|(_, e, _)| *e).collect() }));
        }
    }
    found
}
