//! Rows that repeat an earlier one on both sides: a batch of equal prompts is one observation, not many.

use crate::{
    magnitudes::RowScale,
    rows::{Grid, Pair, Row},
};

/// How many different rows of equal sums are kept to compare others with; past them each is taken to be new.
const KEPT: usize = 8;

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
    let (mut first, mut other) = (Row::new(grid), Row::new(grid));
    for alike in alike {
        let mut kept: Vec<u32> = Vec::new();
        for i in alike {
            let repeats = kept.iter().any(|k| same(pair, grid, [*k, i], [&mut first, &mut other]));
            rows[i as usize].counts = !repeats;
            found |= repeats;
            if !repeats && kept.len() < KEPT {
                kept.push(i);
            }
        }
    }
    found
}

/// Whether two rows hold the same numbers on both sides, bit by bit.
fn same(pair: &Pair<'_, '_>, grid: &Grid, rows: [u32; 2], [first, other]: [&mut Row<f64>; 2]) -> bool {
    let [(a, a_len), (b, b_len)] = rows.map(|i| grid.row(u64::from(i)));
    pair.read(a, a_len, first);
    pair.read(b, b_len, other);
    fn bits(row: &Row<f64>) -> impl Iterator<Item = u64> {
        row.r.iter().chain(&row.c).map(|x| x.to_bits())
    }
    a_len == b_len && bits(first).eq(bits(other))
}
