//! How much of every row's detail a page holds, and how: short where it is rounding, nothing where there is no room.

use crate::number;
use capture_compare::{
    Verdict,
    detail::{Detail, Element, Map},
    report::Row,
};
use serde::Serialize;

/// Bytes of all details, about.
const ROOM: usize = 16 << 20;

/// Bytes that are left for rows in short.
const FOR_SHORT: usize = ROOM / 2;

/// Rows and columns of a map, and elements that are listed, in short.
const SHORT: (usize, usize) = (32, 3);

/// A detail as the page's script reads it.
#[derive(Serialize)]
pub(crate) struct Shown {
    shape: Vec<u64>,
    sides: Vec<Side>,
    map: Option<Levels>,
    worst: Vec<Listed>,
}

/// What one side holds. Numbers are text, as JSON has no NaN.
#[derive(Serialize)]
struct Side {
    dtype: String,
    /// n, NaN, +inf, −inf, zero.
    counts: [u64; 5],
    /// min, max, mean, rms, absmax.
    finite: Option<[String; 5]>,
    histogram: Vec<u64>,
}

/// A map with a letter for each cell.
#[derive(Serialize)]
struct Levels {
    rows: u64,
    columns: u64,
    shape: [usize; 2],
    cells: String,
}

#[derive(Serialize)]
struct Listed {
    index: Vec<u64>,
    reference: String,
    candidate: String,
    rank: Option<u32>,
    error: String,
}

/// What is shown of each row; how many are short, and how many left out. Where not all have room, the worst rows are
/// the first to get it.
pub(crate) fn shown(rows: &[Row]) -> (Vec<Option<Shown>>, usize, usize) {
    let mut order: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].detail.is_some()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(rows[*i].verdict));
    let room_for_all = rows.iter().filter_map(|r| r.detail.as_deref()).map(n_bytes).sum::<usize>() <= ROOM;
    let mut all: Vec<Option<Shown>> = rows.iter().map(|_| None).collect();
    let (mut taken, mut short, mut left_out) = (0, 0, 0);
    for i in order {
        let Some(detail) = &rows[i].detail else { continue };
        let is_bad = rows[i].verdict > Some(Verdict::Rounding);
        if room_for_all || (is_bad && taken < ROOM - FOR_SHORT) {
            taken += n_bytes(detail);
            all[i] = Some(Shown::of(detail));
        } else if taken < ROOM {
            let cut = in_short(detail);
            taken += n_bytes(&cut);
            short += usize::from(cut.map.is_some());
            all[i] = Some(Shown::of(&cut));
        } else {
            left_out += 1;
        }
    }
    (all, short, left_out)
}

/// About how many bytes it is as JSON.
fn n_bytes(detail: &Detail) -> usize {
    let map = detail.map.as_ref().map_or(0, |map| map.cells.len());
    map + 500 * detail.sides.len() + 100 * detail.worst.len()
}

fn in_short(detail: &Detail) -> Detail {
    let (cells, listed) = SHORT;
    Detail {
        shape: detail.shape.clone(),
        sides: detail.sides.clone(),
        map: detail.map.as_ref().map(|map| map.shrunk(cells)),
        worst: detail.worst.iter().take(listed).cloned().collect(),
    }
}

impl Shown {
    fn of(detail: &Detail) -> Self {
        let sides = detail.sides.iter().map(|side| {
            let s = &side.summary;
            let finite = s.finite.as_ref();
            Side {
                dtype: side.dtype.clone(),
                counts: [s.n, s.nan, s.pos_inf, s.neg_inf, s.zero],
                finite: finite.map(|f| [f.min, f.max, f.mean, f.rms, f.absmax].map(number::float)),
                histogram: finite.map(|f| f.histogram.clone()).unwrap_or_default(),
            }
        });
        Self {
            shape: detail.shape.clone(),
            sides: sides.collect(),
            map: detail.map.as_ref().map(Levels::of),
            worst: detail.worst.iter().map(Listed::of).collect(),
        }
    }
}

impl Listed {
    fn of(element: &Element) -> Self {
        let [reference, candidate, error] =
            [element.at.reference, element.at.candidate, element.error].map(number::float);
        Self { index: element.at.index.clone(), reference, candidate, rank: element.at.rank, error }
    }
}

impl Levels {
    fn of(map: &Map) -> Self {
        let cells = map.cells.iter().map(|error| letter(*error)).collect();
        Self { rows: map.rows, columns: map.columns, shape: map.shape, cells }
    }
}

/// An error as a letter: the first for none, the last for a class that differs, and the others for the powers of √2
/// from 1/16 on.
fn letter(error: f32) -> char {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let level = match error {
        0.0 => 0,
        f32::INFINITY => 63,
        error => 1 + ((error.log2() + 4.0) * 2.0).round().clamp(0.0, 61.0) as usize,
    };
    char::from(LETTERS[level])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict) -> Row {
        let map = Map { rows: 64, columns: 64, shape: [64, 64], cells: vec![1.0; 64 * 64] };
        let detail = Detail { shape: vec![64, 64], sides: Vec::new(), map: Some(map), worst: Vec::new() };
        Row { verdict: Some(verdict), detail: Some(Box::new(detail)), ..Row::default() }
    }

    /// A map of 64 × 64 is 4 KiB: 4,096 of them fill the room, and 2,048 what whole ones may have of it.
    #[test]
    fn the_worst_rows_are_the_first_to_get_room() {
        let (all, short, left_out) = shown(&[row(Verdict::Rounding), row(Verdict::Different)]);
        assert_eq!((all.iter().flatten().count(), short, left_out), (2, 0, 0));

        let mut rows: Vec<Row> = (0..9000).map(|_| row(Verdict::Rounding)).collect();
        rows.extend((0..3000).map(|_| row(Verdict::Different)));
        let (all, short, left_out) = shown(&rows);
        let cells = |i: usize| all[i].as_ref().and_then(|s| s.map.as_ref()).map(|map| map.cells.len());
        assert_eq!([9000, 9000 + 2047, 9000 + 2048].map(cells), [Some(4096), Some(4096), Some(1024)]);
        assert_eq!([0, 7239, 7240, 8999].map(cells), [Some(1024), Some(1024), None, None]);
        assert_eq!((short, left_out), (3000 - 2048 + 7240, 9000 - 7240));
    }

    #[test]
    fn letters_are_half_octaves() {
        let letters: String =
            [0.0, 1e-9, 1.0 / 16.0, 1.0, 2.0, 1e30, f32::INFINITY].map(letter).iter().collect();
        assert_eq!(letters, "ABBJL+/");
    }
}
