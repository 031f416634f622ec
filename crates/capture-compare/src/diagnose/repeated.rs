//! Many taps that hold the same bytes, as where a buffer was read after all of them had run.

use crate::{
    index::{Firing, Index},
    run::Entry,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// How many taps are no chance: the output of one layer is the input of the next.
const LEAST_TAPS: usize = 3;
/// How many numbers make equal bytes a finding.
const LEAST_NUMBERS: u64 = 16;
/// How many taps are named.
const NAMED: usize = 3;

/// Where taps of one rank and step hold the same bytes of floats, in which not all numbers are one: the first of them, and
/// words. Taps that are equal in another run as well, `than`, are meant to be.
pub(crate) fn same_bytes(index: &Index<'_>, than: Option<&Index<'_>>) -> Vec<(Firing, String)> {
    let usual: HashSet<BTreeSet<String>> =
        than.map(|index| repeated(index).into_iter().map(|(_, taps)| taps).collect()).unwrap_or_default();
    let mut said = HashSet::new();
    let found = repeated(index).into_iter();
    found
        .filter(|(_, taps)| !usual.contains(taps) && said.insert(taps.clone()))
        .map(|(firing, taps)| {
            let named: Vec<&str> = taps.iter().take(NAMED).map(String::as_str).collect();
            let more = if taps.len() > NAMED { ", …" } else { "" };
            (firing, format!("{} taps hold the same bytes: {}{more}", taps.len(), named.join(", ")))
        })
        .collect()
}

/// Sets of taps that hold the same bytes at one rank and step, with the first firing of each.
fn repeated(index: &Index<'_>) -> Vec<(Firing, BTreeSet<String>)> {
    let mut alike: BTreeMap<(u64, usize, u32, u64), Vec<(&Firing, &Entry)>> = BTreeMap::new();
    for firing in index.firings() {
        for e in index.entries(firing) {
            let entry = &index.run.entries[*e];
            if entry.numel() >= LEAST_NUMBERS && crate::float::Float::of(entry.dtype).is_some() {
                let key = (firing.step, entry.process, entry.record.crc32, entry.n_bytes());
                alike.entry(key).or_default().push((firing, entry));
            }
        }
    }
    let mut found = Vec::new();
    for mut all in alike.into_values() {
        all.sort_by_key(|(firing, entry)| (entry.record.seq, *firing));
        let taps: BTreeSet<String> = all.iter().map(|(firing, _)| firing.tap.clone()).collect();
        let [(first, entry), rest @ ..] = all.as_slice() else { continue };
        if taps.len() >= LEAST_TAPS && are_equal(index, entry, rest.iter().map(|(_, e)| *e)) {
            found.push(((*first).clone(), taps));
        }
    }
    found
}

/// Whether records that share a checksum hold the same bytes, and not one number only.
fn are_equal<'e>(index: &Index<'_>, first: &Entry, mut rest: impl Iterator<Item = &'e Entry>) -> bool {
    let Ok(bytes) = index.run.bytes(first) else { return false };
    let item = (first.dtype.bitsize() / 8).max(1);
    let varied = bytes.chunks(item).any(|number| number != &bytes[..item]);
    varied && rest.all(|e| index.run.bytes(e).is_ok_and(|other| other == bytes))
}
