//! Rows that repeat an earlier one on both sides: a batch of equal prompts is one observation, not many.

use crate::{
    magnitudes::RowScale,
    rows::{Grid, Pair, Row},
};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
};

/// Lets no row count that holds the numbers of an earlier one, and says whether there was any. Equal rows have equal
/// sums, so that only those few are read again which have them in common with another.
pub(crate) fn leave_out(rows: &mut [RowScale], pair: &Pair<'_, '_>, grid: &Grid) -> bool {
    let key = |row: &RowScale| [row.sums[0], row.sums[1], row.error].map(f64::to_bits);
    let mut order: Vec<u32> = (0..rows.len() as u32).filter(|i| rows[*i as usize].counts).collect();
    order.sort_unstable_by_key(|i| (key(&rows[*i as usize]), *i));
    let mut found = false;
    let alike: Vec<Vec<u32>> = order
        .chunk_by(|a, b| key(&rows[*a as usize]) == key(&rows[*b as usize]))
        .filter(|alike| alike.len() > 1)
        .map(<[u32]>::to_vec)
        .collect();
    if alike.is_empty() {
        return false;
    }
    let (mut own, mut other) = (Row::new(grid), Row::new(grid));
    for alike in alike {
        // By what they hold, so that each is held against few, however many have equal sums.
        let mut known: HashMap<u64, Vec<u32>> = HashMap::new();
        for i in alike {
            read(pair, grid, i, &mut own);
            let kept = known.entry(hash(&own)).or_default();
            let repeats = kept.iter().any(|k| {
                read(pair, grid, *k, &mut other);
                bits(&own).eq(bits(&other))
            });
            rows[i as usize].counts = !repeats;
            found |= repeats;
            if !repeats {
                kept.push(i);
            }
        }
    }
    found
}

/// The row's numbers, and zeros behind the last one that is short.
fn read(pair: &Pair<'_, '_>, grid: &Grid, i: u32, row: &mut Row<f64>) {
    let (from, len) = grid.row(u64::from(i));
    pair.read(from, len, row);
}

fn bits(row: &Row<f64>) -> impl Iterator<Item = u64> {
    row.r.iter().chain(&row.c).map(|x| x.to_bits())
}

fn hash(row: &Row<f64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    bits(row).for_each(|x| hasher.write_u64(x));
    hasher.finish()
}
