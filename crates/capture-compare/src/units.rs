//! The second pass over two tensors: their errors in rounding units, by element, row, column, block and part.

use crate::{
    aligned::Aligned,
    errors::{BLOCK, Columns, Errors, Found, Means, Scale, Stretch},
    float::Float,
    largest::{Add, Largest},
    magnitudes::{RowScale, unit},
    pieces::pieces,
    real::Real,
    rows::{Grid, Pair, Row},
    scales::{GATHERED, Scales},
    statistics::{Line, Pieces, Statistics, Tail, lambda, median},
    vectors::{self, LANES},
};

/// Blocks that are kept: of more, those of every so-manieth row.
const BLOCKS: usize = 1 << 20;

/// The most rows of which the noise is taken that clips errors.
const SAMPLE: usize = 64;

/// What the errors are measured in.
pub(crate) struct Units<'s> {
    pub(crate) scales: &'s Scales,
    pub(crate) float: Float,
    /// Where |q| is clipped before column means are taken.
    pub(crate) clip: f64,
    /// What is not among the largest |q|, |v| and means of chunks, as a sample of the rows has so many that are larger.
    pub(crate) least: [f64; 3],
    /// Numbers of the candidate in 16 bytes.
    pub(crate) chunk: usize,
}

/// What rows add up to.
struct Sums {
    rows: Vec<Line>,
    /// Rms of v.
    near: Vec<f64>,
    slopes: Vec<f64>,
    blocks: Vec<Line>,
    columns: Columns<f64>,
    /// Σ of q² clipped, and of x².
    squares: [f64; 2],
    elements: Largest,
    near_elements: Largest,
    near_largest: f64,
    chunks: Largest,
    /// Largest |q| and the row it is in.
    largest: (f64, u32),
    /// Largest |q| and rms of a piece of a row, by part.
    parts: Vec<[f64; 2]>,
}

impl Units<'_> {
    /// Measures the rows that count. Where errors are clipped follows from their noise, which a sample of rows tells.
    pub(crate) fn write(mut self, pair: &Pair<'_, '_>, grid: &Grid, s: &mut Statistics) {
        let rows = (0u32..).zip(&self.scales.rows).filter(|(_, row)| row.counts);
        let counted: Vec<u32> = rows.map(|(i, _)| i).collect();
        s.pieces = pieces(pair, grid, self.scales, &counted, self.float);
        if counted.len() >= 4 {
            let n = counted.len().min(SAMPLE);
            let sample: Vec<u32> = (0..n).map(|i| counted[i * counted.len() / n]).collect();
            let counts = self.counts(pair, grid, &sample);
            let mut found = self.measure(pair, grid, &sample);
            self.clip = 4.0 * found.noise(&counts, s.pieces.as_ref()).max(0.5);
            self.least =
                [&mut found.elements, &mut found.near_elements, &mut found.chunks].map(Largest::least);
        }
        let mut all = self.measure(pair, grid, &counted);
        if pair.candidate.parts.len() > 1 {
            // A row that repeats another is no evidence of its own, but whoever holds it is off nonetheless.
            let rows = (0u32..).zip(&self.scales.rows).filter(|(_, row)| !row.counts && row.error > 0.0);
            let repeats: Vec<u32> = rows.map(|(i, _)| i).collect();
            all.take_parts(&self.measure(pair, grid, &repeats));
        }
        all.write(&self, pair, grid, s);
    }

    /// Places of each column in those rows that are there.
    fn counts(&self, pair: &Pair<'_, '_>, grid: &Grid, rows: &[u32]) -> Vec<u64> {
        let mut counts = vec![rows.len() as u64; grid.width];
        let mut numbers = Row::<f64>::new(grid);
        for i in rows {
            let (from, len) = grid.row(u64::from(*i));
            if (self.scales.rows[*i as usize].there as usize) < grid.width {
                pair.read(from, len, &mut numbers);
                numbers.mask(len);
                let places = numbers.r.iter().zip(&numbers.c).zip(&mut counts);
                places.for_each(|((r, c), n)| *n -= u64::from(*r == 0.0 && *c == 0.0));
            }
        }
        counts
    }

    fn measure(&self, pair: &Pair<'_, '_>, grid: &Grid, rows: &[u32]) -> Sums {
        let every = (rows.len() * (grid.width / BLOCK)).div_ceil(BLOCKS).max(1);
        let strips = grid.strips(|range| {
            let first = rows.partition_point(|i| u64::from(*i) < range.start);
            let own = rows[first..].iter().take_while(|i| u64::from(**i) < range.end);
            let mut strip = Strip::new(self, pair, grid);
            own.zip(first..).for_each(|(i, at)| strip.row(*i, at % every == 0));
            strip.gather();
            strip.sums
        });
        let mut all = Sums::new(self, pair, grid);
        strips.into_iter().for_each(|sums| all.merge(sums));
        all
    }
}

impl Sums {
    fn new(units: &Units<'_>, pair: &Pair<'_, '_>, grid: &Grid) -> Self {
        let [elements, near_elements, chunks] = units.least.map(Largest::from);
        Self {
            rows: Vec::new(),
            near: Vec::new(),
            slopes: Vec::new(),
            blocks: Vec::new(),
            columns: Columns::new(grid.vectors() * LANES),
            squares: [0.0; 2],
            elements,
            near_elements,
            near_largest: 0.0,
            chunks,
            largest: (0.0, 0),
            parts: vec![[0.0; 2]; pair.candidate.parts.len()],
        }
    }

    fn merge(&mut self, mut other: Self) {
        self.take_parts(&other);
        self.rows.extend(other.rows);
        self.near.extend(other.near);
        self.slopes.extend(other.slopes);
        self.blocks.extend(other.blocks);
        self.columns.gather(&mut other.columns);
        self.squares.iter_mut().zip(other.squares).for_each(|(sum, x)| *sum += x);
        self.elements.merge(&other.elements);
        self.near_elements.merge(&other.near_elements);
        self.near_largest = self.near_largest.max(other.near_largest);
        self.chunks.merge(&other.chunks);
        self.largest = if other.largest.0 > self.largest.0 { other.largest } else { self.largest };
    }

    /// Takes in what there is by part.
    fn take_parts(&mut self, other: &Self) {
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            *part = [part[0].max(other[0]), part[1].max(other[1])];
        }
    }

    /// Rms and n_eff of all columns.
    fn columns(&self, counts: &[u64]) -> Vec<Line> {
        let sums = self.columns.second.iter().zip(&self.columns.fourth);
        sums.zip(counts).map(|((second, fourth), n)| line(*second, *fourth, *n)).collect()
    }

    /// Writes what was found.
    fn write(mut self, units: &Units<'_>, pair: &Pair<'_, '_>, grid: &Grid, s: &mut Statistics) {
        let (counts, width) = (&units.scales.counts, grid.width);
        let there = |(j, n): (usize, &u64)| (*n > 0).then_some(j);
        let there: Vec<usize> = counts.iter().enumerate().filter_map(there).collect();
        let columns = self.columns(counts);
        s.columns = there.iter().map(|j| columns[*j]).collect();
        s.groups = groups(&columns, counts);
        let n = self.rows.len();
        let k = (counts.iter().sum::<u64>() / 16).clamp(4, 64) as usize;
        s.tail = self.elements.tail(k, n * width);
        s.near_tail = Tail { largest: self.near_largest, ..self.near_elements.tail(k, n * width) };
        let chunks = n * (width / units.chunk);
        let chunk_tail = self.chunks.tail((chunks / 64).clamp(4, 64), chunks);
        s.chunk_tail = (width >= 2 * units.chunk).then_some(chunk_tail);
        let by_columns = there.iter().map(|j| (self.columns.near[*j] / counts[*j] as f64).sqrt());
        let by_columns = median(by_columns).unwrap_or(0.0);
        let by_rows = median(self.near.iter().copied()).unwrap_or(0.0);
        s.near_noise = if n < 4 { by_rows } else { by_rows.min(by_columns) };
        s.common = self.common(n as f64, width as f64);
        s.max_units = units.largest(pair, grid, self.largest.1);
        for (part, [max_units, row_units]) in s.parts.iter_mut().zip(self.parts) {
            (part.max_units, part.row_units) = (max_units, row_units);
        }
        s.row_units = self.rows.iter().map(|l| l.rms).fold(0.0, f64::max);
        (s.rows, s.slopes, s.blocks) = (self.rows, self.slopes, self.blocks);
    }

    /// λ.
    fn noise(&self, counts: &[u64], pieces: Option<&Pieces>) -> f64 {
        let columns: Vec<Line> =
            self.columns(counts).into_iter().zip(counts).filter(|c| *c.1 > 0).map(|c| c.0).collect();
        lambda(&self.rows, &columns, pieces)
    }

    /// The share of energy that column means hold, less what chance gives them: (mean m_j² − t/R)/(t(1 − 1/R)) with t
    /// the mean square, of q clipped and of x.
    fn common(&self, rows: f64, width: f64) -> Option<(f64, f64)> {
        if rows < 4.0 {
            return None;
        }
        let share = |square: f64, sums: &[f64]| {
            let means = sums.iter().map(|sum| (sum / rows).powi(2)).sum::<f64>() / width;
            let t = square / (rows * width);
            if t > 0.0 { (means - t / rows) / (t * (1.0 - 1.0 / rows)) } else { 0.0 }
        };
        Some((share(self.squares[0], &self.columns.clipped), share(self.squares[1], &self.columns.share)))
    }
}

/// The power of two next to 1/x, which leaves the bits of what it is multiplied with.
fn inverse_power(x: f64) -> f64 {
    let exponent = (x.to_bits() >> 52).clamp(1, 2045);
    f64::from_bits((2046 - exponent) << 52)
}

fn line(second: f64, fourth: f64, n: u64) -> Line {
    let n_effective = if fourth > 0.0 { second * second / fourth } else { 0.0 };
    Line { rms: (second / n.max(1) as f64).sqrt(), n_effective }
}

/// Columns j of equal j mod p, and runs of p columns, for each p that divides their number into at least 4. Those that
/// hold nothing are in none.
fn groups(columns: &[Line], counts: &[u64]) -> Vec<Vec<Line>> {
    let group = |columns: &mut dyn Iterator<Item = (&Line, &u64)>| {
        let of = |sum: (f64, f64, f64), l: &Line| (sum.0 + l.rms * l.rms, sum.1 + l.n_effective, sum.2 + 1.0);
        let there = columns.filter(|(_, n)| **n > 0).map(|(line, _)| line);
        let (square, n_effective, n) = there.fold((0.0, 0.0, 0.0), of);
        Line { rms: (square / f64::max(n, 1.0)).sqrt(), n_effective }
    };
    let width = columns.len();
    let periods = [8, 16, 32, 64].into_iter().filter(|p| width.is_multiple_of(*p) && width / p >= 4);
    let all = || columns.iter().zip(counts);
    periods
        .flat_map(|p| {
            let residues = (0..p).map(|i| group(&mut all().skip(i).step_by(p))).collect();
            [residues, (0..width / p).map(|i| group(&mut all().skip(i * p).take(p))).collect()]
        })
        .collect()
}

/// The pass over neighbouring rows.
struct Strip<'p, 'w, 'a> {
    units: &'p Units<'p>,
    pair: &'p Pair<'w, 'a>,
    grid: &'p Grid,
    /// Whether rows may fit f32.
    is_narrow: bool,
    narrow: Buffers<f32>,
    /// Sums of the last rows.
    columns: Columns<f32>,
    pending: usize,
    sums: Sums,
}

/// What a row needs.
struct Buffers<T> {
    row: Row<T>,
    /// ĉ.
    columns: Aligned<T>,
    q: Aligned<T>,
    v: Aligned<T>,
    blocks: Vec<[T; 2]>,
}

impl<T: Real> Buffers<T> {
    fn new(units: &Units<'_>, grid: &Grid) -> Self {
        let numbers = || Aligned::new(grid.vectors() * LANES);
        Self {
            row: Row::new(grid),
            columns: Aligned::of(units.scales.columns.iter().map(|c| T::of(*c))),
            q: numbers(),
            v: numbers(),
            blocks: vec![[T::default(); 2]; grid.width.div_ceil(BLOCK)],
        }
    }
}

impl<'p, 'w, 'a> Strip<'p, 'w, 'a> {
    fn new(units: &'p Units<'p>, pair: &'p Pair<'w, 'a>, grid: &'p Grid) -> Self {
        let columns = Columns::new(grid.vectors() * LANES);
        let (narrow, sums) = (Buffers::new(units, grid), Sums::new(units, pair, grid));
        let is_narrow = pair.is_narrow && units.scales.columns.iter().all(|c| *c < 2f64.powi(20));
        Self { units, pair, grid, is_narrow, narrow, columns, pending: 0, sums }
    }

    /// Adds a row; `blocks` says whether its blocks are among those that are kept.
    fn row(&mut self, i: u32, blocks: bool) {
        let row = &self.units.scales.rows[i as usize];
        if self.is_narrow && row.units_fit_f32(self.units.float.roundoff()) {
            let Self { units, pair, grid, narrow, columns, sums, .. } = self;
            units.add(pair, grid, i, narrow, columns, sums, blocks);
            self.pending += 1;
            if self.pending == GATHERED {
                self.gather();
            }
        } else {
            let mut wide = Buffers::<f64>::new(self.units, self.grid);
            let mut columns = std::mem::replace(&mut self.sums.columns, Columns::new(0));
            self.units.add(self.pair, self.grid, i, &mut wide, &mut columns, &mut self.sums, blocks);
            self.sums.columns = columns;
        }
    }

    /// Gathers what was added up in f32.
    fn gather(&mut self) {
        self.pending = 0;
        self.sums.columns.gather(&mut self.columns);
    }
}

impl Units<'_> {
    #[expect(clippy::too_many_arguments, reason = "a row, where it comes from and where it goes")]
    fn add<T: Real>(
        &self,
        pair: &Pair<'_, '_>,
        grid: &Grid,
        i: u32,
        buffers: &mut Buffers<T>,
        columns: &mut Columns<T>,
        sums: &mut Sums,
        blocks: bool,
    ) {
        let scale = self.scales.rows[i as usize];
        let (from, len) = grid.row(u64::from(i));
        let Buffers { row, columns: shares, q, v, blocks: squares } = buffers;
        pair.read(from, len, row);
        if (scale.finite as usize) < len {
            row.mask(len);
        }
        pair.read_terms(from, len, row);
        let (power, u) = (inverse_power(scale.scale), self.float.roundoff());
        let found = vectors::run(Errors {
            r: &row.r,
            c: &row.c,
            p: &row.p,
            columns: shares,
            units: Scale {
                roundoff: T::of(u),
                power: T::of(power),
                scale: T::of(scale.scale * power),
                underflow: T::of(self.float.underflow() * power / u),
                clip: T::of(self.clip),
            },
            sums: columns,
            q,
            v,
            blocks: squares,
        });
        sums.add(&found, i, &scale);
        if blocks && grid.width >= 2 * BLOCK {
            let is_full = scale.there as usize == grid.width;
            let there = |at: usize| if is_full { BLOCK } else { row.there(at..at + BLOCK) };
            let whole = squares[..grid.width / BLOCK].iter().enumerate();
            let lines = whole.map(|(i, [a, b])| (there(i * BLOCK), a.wide(), b.wide()));
            let lines = lines.filter(|(n, ..)| *n > 0).map(|(n, a, b)| line(a, b, n as u64));
            sums.blocks.extend(lines);
        }
        sums.pieces(&row.runs, q, &found);
        vectors::run(Add { to: &mut sums.elements, values: q });
        vectors::run(Add { to: &mut sums.near_elements, values: v });
        if grid.width >= 2 * self.chunk {
            let means = vectors::run(Means { values: q, means: v, of: self.chunk });
            vectors::run(Add { to: &mut sums.chunks, values: &means[..grid.width / self.chunk] });
        }
    }

    /// The largest |q| of a row, in f64, and its first place.
    fn largest(&self, pair: &Pair<'_, '_>, grid: &Grid, i: u32) -> (f64, u64) {
        let mut row = Row::<f64>::new(grid);
        let (from, len) = grid.row(u64::from(i));
        pair.read(from, len, &mut row);
        pair.read_terms(from, len, &mut row);
        row.mask(len);
        let scale = self.scales.rows[i as usize].scale;
        let (unit, mut largest) = (unit(self.float), (0.0, 0));
        for j in 0..len {
            let (r, c) = (row.r[j], row.c[j]);
            let q = ((c - r) / unit(r, scale * self.scales.columns[j], row.term(j))).abs();
            largest = if q > largest.0 { (q, from + j as u64) } else { largest };
        }
        largest
    }
}

impl Sums {
    fn add(&mut self, found: &Found, i: u32, row: &RowScale) {
        self.rows.push(line(found.second, found.fourth, row.there.into()));
        self.near.push((found.near / f64::from(row.there.max(1))).sqrt());
        // A factor of what is next to nothing is none.
        if found.slope[1] > 0.0 && !row.is_raised {
            self.slopes.push(found.slope[0] / found.slope[1]);
        }
        self.squares = [self.squares[0] + found.clipped, self.squares[1] + found.share];
        self.near_largest = self.near_largest.max(found.near_largest);
        self.largest = if found.largest > self.largest.0 { (found.largest, i) } else { self.largest };
    }

    /// The row by the candidate's parts. Pieces of less than 16 numbers say nothing about a row.
    fn pieces<T: Real>(&mut self, runs: &[(Option<usize>, usize)], q: &[T], found: &Found) {
        let mut at = 0;
        for (part, n) in runs {
            let piece = &q[at..at + n];
            at += n;
            let Some(part) = part else { continue };
            let (largest, second) = if runs.len() == 1 {
                (found.largest, found.second)
            } else {
                vectors::run(Stretch { q: piece })
            };
            let own = &mut self.parts[*part];
            own[0] = own[0].max(largest);
            if *n >= 16 {
                own[1] = own[1].max((second / *n as f64).sqrt());
            }
        }
    }
}
