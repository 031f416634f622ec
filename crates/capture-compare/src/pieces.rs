//! Rows cut into pieces, where there are too few rows to tell by them what is usual.

use crate::{
    float::Float,
    magnitudes::unit,
    rows::{Grid, Pair, Row},
    scales::Scales,
    statistics::Pieces,
};

/// Rows from which on they stand for themselves.
const ENOUGH: usize = 8;

/// The pieces of the rows that count, if these are few and long enough.
pub(crate) fn pieces(
    pair: &Pair<'_, '_>,
    grid: &Grid,
    scales: &Scales,
    counted: &[u32],
    float: Float,
) -> Option<Pieces> {
    let length = (grid.width / 16).max(8);
    if counted.len() >= ENOUGH || grid.width / length < 2 {
        return None;
    }
    let mut pieces = Pieces::default();
    let unit = unit(float);
    let mut row = Row::<f64>::new(grid);
    for i in counted {
        let (from, len) = grid.row(u64::from(*i));
        pair.read(from, len, &mut row);
        pair.read_terms(from, len, &mut row);
        row.mask(len);
        let scale = scales.rows[*i as usize].scale;
        for start in (0..=grid.width - length).step_by(length) {
            let (mut square, mut slope, mut energy) = (0.0, 0.0, 0.0);
            for j in start..start + length {
                let (r, c) = (row.r[j], row.c[j]);
                let w = unit(r, scale * scales.columns[j], row.term(j));
                let q = if c == r { 0.0 } else { (c - r) / w };
                let s = (r / 2.0 + c / 2.0) / w;
                (square, slope, energy) = (square + q * q, slope + q * s, energy + s * s);
            }
            let there = row.there(start..start + length);
            if there > 0 {
                pieces.rms.push((square / there as f64).sqrt());
            }
            if energy > 0.0 {
                pieces.slopes.push(slope / energy);
            }
        }
    }
    Some(pieces)
}
