//! The first pass over two tensors: the classes of their numbers, and the reference's scale by row and column.

use crate::{
    aligned::Aligned,
    magnitudes::{Absent, Look, Looks, RowScale, Shares, Squares},
    real::{Line, Real},
    repeats,
    rows::{Grid, Pair, Row},
    statistics::{Statistics, median},
    vectors::{self, LANES},
};

/// Rows whose columns are added up in f32 before they are gathered in f64.
pub(crate) const GATHERED: usize = 32;

/// What the first pass finds.
pub(crate) struct Scales {
    /// By row.
    pub(crate) rows: Vec<RowScale>,
    /// ĉ_j, and ones up to the next whole vector.
    pub(crate) columns: Vec<f64>,
    /// Places of each column in rows that count, less those that are not finite or zero on both sides.
    pub(crate) counts: Vec<u64>,
    /// All bits that the significands of both sides use.
    pub(crate) bits: u64,
}

impl Scales {
    pub(crate) fn measure(pair: &Pair<'_, '_>, grid: &Grid, line: &Line, s: &mut Statistics) -> Self {
        let strips = grid.strips(|rows| {
            let mut strip = Strip::new(pair, grid, line);
            rows.for_each(|i| strip.row(i));
            strip.gather();
            strip.found
        });
        let mut all = Found::new(grid, pair);
        strips.into_iter().for_each(|found| all.merge(found));
        all.write(s);
        s.max_abs = largest_error(pair, grid, all.error.1);
        let Found { mut rows, mut columns, bits, .. } = all;
        if repeats::leave_out(&mut rows, pair, grid) {
            columns = columns_of(&rows, pair, grid, line);
        }
        let counted = || rows.iter().filter(|row| row.counts);
        let squares = counted().fold([0.0; 2], |sum, row| [sum[0] + row.squares[0], sum[1] + row.squares[1]]);
        s.relative = (squares[1] / squares[0]).sqrt();
        let n = counted().count() as u64;
        let counts: Vec<u64> = columns.absent.iter().map(|absent| n - u64::from(*absent)).collect();
        let mut shares = columns.shares;
        shares.iter_mut().zip(&counts).for_each(|(c, n)| *c /= (*n).max(1) as f64);
        let typical = median(shares[..grid.width].iter().copied().filter(|c| *c > 0.0)).unwrap_or(1.0);
        for (c, n) in shares.iter_mut().zip(&counts) {
            let n = *n as f64;
            *c = ((*c / typical * n + 4.0) / (n + 4.0)).max(0.25);
        }
        shares[grid.width..].fill(1.0);
        // A row's own share is taken with its mean as it is, so that one pass does; the means are raised after.
        let typical = median(counted().map(|row| row.scale).filter(|a| *a > 0.0)).unwrap_or(1.0);
        let least = typical / 4.0;
        rows.iter_mut().for_each(|row| {
            (row.is_raised, row.scale) = (row.scale < least, row.scale.max(least));
        });
        Self { rows, columns: shares, counts, bits: bits | pair.term_bits() }
    }
}

/// The largest |c − r| of a row and its first place.
fn largest_error(pair: &Pair<'_, '_>, grid: &Grid, i: u64) -> (f64, u64) {
    if grid.rows == 0 {
        return (0.0, 0);
    }
    let mut row = Row::<f64>::new(grid);
    let (from, len) = grid.row(i);
    pair.read(from, len, &mut row);
    row.mask(len);
    let errors = row.r.iter().zip(&row.c).map(|(r, c)| (c - r).abs()).zip(from..);
    errors.fold((0.0, 0), |max, (e, at)| if e > max.0 { (e, at) } else { max })
}

/// Σ|r|/mean by column, once more, of the rows that count.
fn columns_of(rows: &[RowScale], pair: &Pair<'_, '_>, grid: &Grid, line: &Line) -> Columns {
    let strips = grid.strips(|range| {
        let mut strip = Strip::new(pair, grid, line);
        range.filter(|i| rows[*i as usize].counts).for_each(|i| strip.row(i));
        strip.gather();
        strip.found.columns
    });
    let mut all = Columns::new(grid);
    strips.iter().for_each(|columns| all.merge(columns));
    all
}

/// What neighbouring rows add up to.
struct Found {
    rows: Vec<RowScale>,
    columns: Columns,
    /// Σr², Σr·e and Σe².
    squares: [f64; 3],
    bits: u64,
    ulp: u64,
    /// Largest |c − r| and the row it is in.
    error: (f64, u64),
    finite: u64,
    nan: u64,
    both_nan: u64,
    class_change: Option<u64>,
    /// By part of the candidate.
    class_changes: Vec<u64>,
}

/// Sums by column.
struct Columns {
    /// Σ|r|/mean.
    shares: Vec<f64>,
    /// Places that are not finite, or zero on both sides.
    absent: Vec<u32>,
}

impl Columns {
    fn new(grid: &Grid) -> Self {
        Self { shares: vec![0.0; grid.vectors() * LANES], absent: vec![0; grid.width] }
    }

    fn merge(&mut self, other: &Self) {
        self.shares.iter_mut().zip(&other.shares).for_each(|(sum, x)| *sum += x);
        self.absent.iter_mut().zip(&other.absent).for_each(|(sum, x)| *sum += x);
    }
}

impl Found {
    fn new(grid: &Grid, pair: &Pair<'_, '_>) -> Self {
        Self {
            rows: Vec::new(),
            columns: Columns::new(grid),
            squares: [0.0; 3],
            bits: 0,
            ulp: 0,
            error: (0.0, 0),
            finite: 0,
            nan: 0,
            both_nan: 0,
            class_change: None,
            class_changes: vec![0; pair.candidate.parts.len()],
        }
    }

    fn merge(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.columns.merge(&other.columns);
        self.squares.iter_mut().zip(other.squares).for_each(|(sum, x)| *sum += x);
        self.bits |= other.bits;
        self.ulp = self.ulp.max(other.ulp);
        self.error = if other.error.0 > self.error.0 { other.error } else { self.error };
        self.finite += other.finite;
        self.nan += other.nan;
        self.both_nan += other.both_nan;
        self.class_change = self.class_change.or(other.class_change);
        self.class_changes.iter_mut().zip(other.class_changes).for_each(|(sum, n)| *sum += n);
    }

    fn write(&self, s: &mut Statistics) {
        (s.finite, s.nan, s.both_nan) = (self.finite, self.nan, self.both_nan);
        s.class_change = self.class_change;
        s.parts.iter_mut().zip(&self.class_changes).for_each(|(part, n)| part.class_changes = *n);
        (s.differs, s.max_ulp) = (self.error.0 > 0.0, self.ulp);
        let [rr, re, ee] = self.squares;
        let finite = |x: f64| x.is_finite().then_some(x);
        s.rel_l2 = finite((ee / rr).sqrt());
        // With c = r + e, so that what is next to 1 keeps its digits.
        let (slope, square) = (re / rr, ee / rr);
        s.slope = finite(1.0 + slope);
        s.cosine = finite((1.0 + slope) / (1.0 + 2.0 * slope + square).sqrt());
    }

    /// Counts the places of a row, which starts at `from`, that are not finite on both sides.
    fn classes(&mut self, pair: &Pair<'_, '_>, from: u64, row: &Row<f64>, len: usize) {
        for (j, (r, c)) in row.r[..len].iter().zip(&row.c).enumerate() {
            if r.is_finite() && c.is_finite() {
                continue;
            }
            self.nan += u64::from(r.is_nan() != c.is_nan());
            self.both_nan += u64::from(r.is_nan() && c.is_nan());
            if class(*r) != class(*c) {
                let index = from + j as u64;
                self.class_change.get_or_insert(index);
                for part in pair.candidate.owners(index) {
                    self.class_changes[part] += 1;
                }
            }
        }
    }
}

/// NaN, +inf, −inf or finite.
pub(crate) fn class(x: f64) -> u8 {
    if x.is_finite() {
        0
    } else if x.is_nan() {
        1
    } else {
        2 + u8::from(x < 0.0)
    }
}

/// The pass over neighbouring rows.
struct Strip<'p, 'w, 'a> {
    pair: &'p Pair<'w, 'a>,
    grid: &'p Grid,
    line: &'p Line,
    narrow: Row<f32>,
    /// Σ|r|/mean of the last rows.
    shares: Aligned<f32>,
    pending: usize,
    found: Found,
}

impl<'p, 'w, 'a> Strip<'p, 'w, 'a> {
    fn new(pair: &'p Pair<'w, 'a>, grid: &'p Grid, line: &'p Line) -> Self {
        let (narrow, shares) = (Row::new(grid), Aligned::new(grid.vectors() * LANES));
        Self { pair, grid, line, narrow, shares, pending: 0, found: Found::new(grid, pair) }
    }

    fn row(&mut self, i: u64) {
        let (from, len) = self.grid.row(i);
        if self.pair.is_narrow {
            let (looks, finite) = look(self.pair, from, len, self.line, &mut self.narrow);
            let mut row = row_of(&looks, finite, self.grid);
            row.scale = looks.reference / f64::from(row.there.max(1));
            if !row.counts {
                return self.push(i, row, &looks, None);
            }
            if (looks.reference + looks.candidate).is_finite() && row.fits_f32() {
                let scale = 1.0 / row.scale as f32;
                let (r, c) = (&self.narrow.r, &self.narrow.c);
                let squares = vectors::run(Shares { r, c, scale, columns: &mut self.shares });
                row.squares = self.add(squares, f64::from(scale));
                absent(&row, &self.narrow, &mut self.found.columns);
                self.push(i, row, &looks, None);
                self.pending += 1;
                if self.pending == GATHERED {
                    self.gather();
                }
                return;
            }
        }
        let mut wide = Row::<f64>::new(self.grid);
        let (looks, finite) = look(self.pair, from, len, self.line, &mut wide);
        // Added up as shares of the row, numbers at the end of f64 do not overflow.
        let mut row = row_of(&looks, finite, self.grid);
        row.scale = wide.r.iter().map(|r| r.abs() / f64::from(row.there.max(1))).sum();
        if row.counts {
            let scale = if row.scale > 0.0 { (1.0 / row.scale).min(f64::MAX) } else { 1.0 };
            let (r, c) = (&wide.r, &wide.c);
            let columns = &mut self.found.columns.shares;
            let squares = vectors::run(Shares { r, c, scale, columns });
            row.squares = self.add(squares, scale);
            absent(&row, &wide, &mut self.found.columns);
        }
        self.push(i, row, &looks, Some(wide));
    }

    /// Adds the squares of a row, which are in units of 1/scale.
    fn add(&mut self, squares: Squares, scale: f64) -> [f64; 2] {
        let Squares { rr, re, ee } = squares;
        let [rr, re, ee] = [rr, re, ee].map(|x| x / scale / scale);
        self.found.squares.iter_mut().zip([rr, re, ee]).for_each(|(sum, x)| *sum += x);
        [rr, ee]
    }

    fn push(&mut self, i: u64, row: RowScale, looks: &Looks, wide: Option<Row<f64>>) {
        let (from, len) = self.grid.row(i);
        let found = &mut self.found;
        found.rows.push(row);
        found.finite += u64::from(row.finite);
        found.bits |= looks.bits;
        found.ulp = found.ulp.max(looks.ulp);
        if looks.error > found.error.0 {
            found.error = (looks.error, i);
        }
        if (row.finite as usize) < len {
            let mut wide = wide.unwrap_or_else(|| Row::new(self.grid));
            self.pair.read(from, len, &mut wide);
            found.classes(self.pair, from, &wide, len);
        }
    }

    /// Gathers what was added up in f32.
    fn gather(&mut self) {
        self.pending = 0;
        for (sum, x) in self.found.columns.shares.iter_mut().zip(self.shares.iter_mut()) {
            *sum += f64::from(std::mem::take(x));
        }
    }
}

/// The row, masked, what its numbers are, and how many are finite.
fn look<T: Real>(
    pair: &Pair<'_, '_>,
    from: u64,
    len: usize,
    line: &Line,
    row: &mut Row<T>,
) -> (Looks, usize) {
    pair.read(from, len, row);
    let looks = vectors::run(Look { r: &row.r, c: &row.c, line });
    if (looks.reference + looks.candidate).is_finite() {
        return (looks, len);
    }
    let finite = row.mask(len);
    (vectors::run(Look { r: &row.r, c: &row.c, line }), finite)
}

/// Counts what is not there, where any is.
fn absent<T: Real>(row: &RowScale, numbers: &Row<T>, columns: &mut Columns) {
    if (row.there as usize) < columns.absent.len() {
        vectors::run(Absent { r: &numbers.r, c: &numbers.c, columns: &mut columns.absent });
    }
}

/// A row, its scale left open. Zeros are counted in whole vectors, and stand where numbers are not finite.
fn row_of(looks: &Looks, finite: usize, grid: &Grid) -> RowScale {
    RowScale {
        scale: 0.0,
        error: looks.error,
        sums: [looks.reference, looks.candidate],
        squares: [0.0; 2],
        finite: finite as u32,
        there: (grid.vectors() * LANES - looks.zeros) as u32,
        is_raised: false,
        counts: looks.reference > 0.0 || looks.candidate > 0.0,
    }
}
