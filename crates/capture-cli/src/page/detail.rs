//! How much of every row's detail a page holds, and how: short where it is rounding, nothing where there is no room.

use crate::number;
use capture_compare::{
    Verdict,
    detail::{Detail, Element, LISTED, Map},
    report::Row,
};
use serde::Serialize;

/// Bytes of all details, about.
const ROOM: usize = 16 << 20;

/// Bytes that are left for rows in short.
const FOR_SHORT: usize = ROOM / 2;

/// Rows and columns of a map, and elements that are listed, in short.
const SHORT: (usize, usize) = (32, 3);

/// A detail as page.js reads it.
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

/// What is shown of each row, the worst rows first in getting room; how many are short, and how many left out.
pub(crate) fn shown(rows: &[Row]) -> (Vec<Option<Shown>>, usize, usize) {
    let mut order: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].detail.is_some()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(rows[*i].verdict));
    let mut all: Vec<Option<Shown>> = rows.iter().map(|_| None).collect();
    let (mut taken, mut short, mut left_out) = (0, 0, 0);
    for i in order {
        let Some(detail) = &rows[i].detail else { continue };
        if taken > ROOM {
            left_out += 1;
            continue;
        }
        let is_bad = rows[i].verdict > Some(Verdict::Rounding);
        let is_whole = is_bad && taken < ROOM - FOR_SHORT;
        short += usize::from(!is_whole && detail.map.is_some());
        let shown = if is_whole {
            Shown::of(detail, None, LISTED)
        } else {
            Shown::of(detail, Some(SHORT.0), SHORT.1)
        };
        taken += shown.n_bytes();
        all[i] = Some(shown);
    }
    (all, short, left_out)
}

impl Shown {
    fn of(detail: &Detail, cells: Option<usize>, listed: usize) -> Self {
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
        let map = detail.map.as_ref().map(|map| match cells {
            Some(cells) => Levels::of(&map.shrunk(cells)),
            None => Levels::of(map),
        });
        Self {
            shape: detail.shape.clone(),
            sides: sides.collect(),
            map,
            worst: detail.worst.iter().take(listed).map(Listed::of).collect(),
        }
    }

    /// About how many bytes of JSON it is.
    fn n_bytes(&self) -> usize {
        let map = self.map.as_ref().map_or(0, |map| map.cells.len());
        map + 500 * self.sides.len() + 100 * self.worst.len()
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

    #[test]
    fn letters_are_half_octaves() {
        let letters: String =
            [0.0, 1e-9, 1.0 / 16.0, 1.0, 2.0, 1e30, f32::INFINITY].map(letter).iter().collect();
        assert_eq!(letters, "ABBJL+/");
    }
}
