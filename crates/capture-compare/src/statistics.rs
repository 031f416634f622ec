//! How two logical tensors differ, in numbers: one pass over both for classes and scales, one for errors in rounding
//! units. Judging them is left to [`crate::verdict`].
//!
//! A *row* is the smallest block of trailing dims that holds at least 16 numbers; a longer one than [`MAX_ROW`] is cut.
//! With r the reference, c the candidate and u the unit roundoff of the coarsest arithmetic:
//!
//! - a_i is row i's mean of |r|, at least 1/64 of the median over rows; ĉ_j is column j's mean of |r|/a_i over its
//!   median, pulled towards 1 by four rows and at least 1/4. Means of magnitudes, as one massive channel moves an rms
//!   20-fold and a mean hardly.
//! - w = u·(|r| + a_i·ĉ_j + Σ|p|) + η, with p the terms where the tensor is a sum over ranks; q = (c − r)/w is the error
//!   in rounding units.
//!
//! Memory is a few rows, and a few numbers per row and column, whatever the size of the tensors. Places that are not
//! finite on both sides are counted and left out.

use crate::{
    float::{BF16, F16, F32, Float},
    whole::{Node, Whole},
};

/// The longest row, in numbers.
pub const MAX_ROW: u64 = 1 << 20;

/// How two tensors of one shape differ.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Places that are finite on both sides.
    pub finite: u64,
    /// Places that are NaN on one side only.
    pub nan: u64,
    /// Places that are NaN on both sides.
    pub both_nan: u64,
    /// First place where the classes (NaN, +inf, −inf, finite) differ.
    pub class_change: Option<u64>,
    /// The format whose roundoff is the unit.
    pub float: Option<Float>,
    /// Whether any finite number differs.
    pub differs: bool,
    /// Largest |q| and where.
    pub max_units: (f64, u64),
    /// The upper end of |q|.
    pub tail: Option<Tail>,
    /// Rms of q over each row that is not zero on both sides, and how many equal numbers would carry as much.
    pub rows: Vec<Line>,
    /// The same over columns.
    pub columns: Vec<Line>,
    /// Slope of q on (r + c)/2w by row: by how many times the row is too long.
    pub slopes: Vec<f64>,
    /// The share of the energy of q that is the same in every row, unbiased, and that of r·u/w.
    pub common: Option<(f64, f64)>,
    /// ‖c − r‖ / ‖r‖.
    pub rel_l2: Option<f64>,
    /// Largest |c − r| and where.
    pub max_abs: (f64, u64),
    /// Largest distance on the number line of the narrower dtype.
    pub max_ulp: u64,
    /// r·c / ‖r‖‖c‖.
    pub cosine: Option<f64>,
    /// r·c / r·r: the factor that takes the reference closest to the candidate.
    pub slope: Option<f64>,
    /// By part of the candidate.
    pub parts: Vec<PartError>,
}

/// The upper end of |q| by two order statistics, with k = clamp(N/16, 4, 64).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// k.
    pub k: usize,
    /// The k-th largest.
    pub kth: f64,
    /// The last of those looked at.
    pub last: f64,
    /// How many were looked at: 4k, or all there are.
    pub len: usize,
}

/// A row or column of q.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Line {
    /// Root mean square.
    pub rms: f64,
    /// (Σq²)²/Σq⁴: how many equal errors would carry as much.
    pub n_effective: f64,
}

/// What a part of the candidate contributes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartError {
    /// Largest |q|.
    pub max_units: f64,
    /// Largest rms of q over the part's piece of a row, where that has at least 16 numbers.
    pub row_units: f64,
    /// Places whose class differs.
    pub class_changes: u64,
}

/// Compares two tensors of one shape. `precision` is the coarsest arithmetic upstream, where it is known.
#[must_use]
pub fn measure(reference: &Whole<'_>, candidate: &Whole<'_>, precision: Option<Float>) -> Statistics {
    let grid = Grid::of(&reference.shape);
    let mut pair = Pair::new(reference, candidate, &grid);
    let mut s =
        Statistics { parts: vec![PartError::default(); candidate.parts.len()], ..Statistics::default() };
    let scales = Scales::measure(&mut pair, &grid, &mut s);
    let Some(stored) = coarser_of(reference, candidate) else { return s };
    let mut float = in_use(stored, scales.bits);
    if let Some(precision) = precision {
        float = float.coarser(precision);
    }
    s.float = Some(float);
    if !s.differs && s.finite > 0 {
        s.rel_l2 = Some(0.0);
    }
    if s.differs {
        Errors::new(&grid, &scales, float).measure(&mut pair, &grid, stored, &mut s);
    }
    s
}

/// The coarser of the stored formats; `None` for integers.
fn coarser_of(reference: &Whole<'_>, candidate: &Whole<'_>) -> Option<Float> {
    let of = |whole: &Whole<'_>| whole.parts.first()?.float();
    Some(of(reference)?.coarser(of(candidate)?))
}

/// What the arithmetic was, where its results were stored wider: the low bits of every significand are zero then. Only
/// the usual formats are taken for one, and the exponents stay those of the stored format.
fn in_use(stored: Float, significands: u64) -> Float {
    let bits = 53 - (significands | 1 << 52).trailing_zeros();
    let precision = [BF16, F16, F32].map(|f| f.precision).into_iter().find(|p| bits <= *p);
    Float { precision: precision.map_or(stored.precision, |p| p.min(stored.precision)), ..stored }
}

/// How the flat numbers are cut into rows.
struct Grid {
    width: usize,
    rows: u64,
    len: u64,
}

impl Grid {
    fn of(shape: &[u64]) -> Self {
        let len: u64 = if shape.contains(&0) { 0 } else { shape.iter().product() };
        let mut width = 1;
        for dim in shape.iter().rev() {
            if width >= 16 {
                break;
            }
            width *= dim;
        }
        let width = width.clamp(1, MAX_ROW);
        Self { width: width as usize, rows: len.div_ceil(width), len }
    }

    /// First number and length of a row; the last one may be short.
    fn row(&self, row: u64) -> (u64, usize) {
        let from = row * self.width as u64;
        (from, (self.len - from).min(self.width as u64) as usize)
    }
}

/// Both tensors and one row of each.
struct Pair<'w, 'a> {
    reference: &'w Whole<'a>,
    candidate: &'w Whole<'a>,
    sums: (bool, bool),
    r: Vec<f64>,
    c: Vec<f64>,
    /// Σ|p| of both.
    p: Vec<f64>,
    scratch: Vec<f64>,
}

impl<'w, 'a> Pair<'w, 'a> {
    fn new(reference: &'w Whole<'a>, candidate: &'w Whole<'a>, grid: &Grid) -> Self {
        let row = || vec![0.0; grid.width];
        let sums = (reference.has_sum(), candidate.has_sum());
        Self { reference, candidate, sums, r: row(), c: row(), p: row(), scratch: row() }
    }

    fn read(&mut self, from: u64, len: usize) {
        self.reference.read(from, &mut self.r[..len]);
        self.candidate.read(from, &mut self.c[..len]);
    }

    fn read_terms(&mut self, from: u64, len: usize) {
        self.p[..len].fill(0.0);
        for (has_sum, whole) in [(self.sums.0, self.reference), (self.sums.1, self.candidate)] {
            if has_sum {
                whole.read_magnitudes(from, &mut self.scratch[..len]);
                self.p[..len].iter_mut().zip(&self.scratch).for_each(|(p, x)| *p += x);
            }
        }
    }

    /// All bits that the significands of a sum's terms use.
    fn term_bits(&self) -> u64 {
        let mut bits = 0;
        let mut chunk = vec![0.0; 4096];
        for (has_sum, whole) in [(self.sums.0, self.reference), (self.sums.1, self.candidate)] {
            for part in whole.parts.iter().filter(|_| has_sum) {
                let mut from = 0;
                while from < part.len() {
                    let len = (part.len() - from).min(chunk.len() as u64) as usize;
                    part.read(from, &mut chunk[..len]);
                    bits |= chunk[..len].iter().map(|x| significand(*x)).fold(0, |a, b| a | b);
                    from += len as u64;
                }
            }
        }
        bits
    }
}

fn significand(x: f64) -> u64 {
    if x.is_finite() { x.to_bits() & ((1 << 52) - 1) } else { 0 }
}

/// NaN, +inf, −inf or finite.
fn class(x: f64) -> u8 {
    if x.is_finite() {
        0
    } else if x.is_nan() {
        1
    } else {
        2 + u8::from(x < 0.0)
    }
}

/// What the first pass finds: the reference's scale by row and column.
struct Scales {
    /// a_i, zero where the row is zero on both sides.
    row: Vec<f64>,
    /// ĉ_j.
    column: Vec<f64>,
    /// Finite places of each column in active rows.
    counts: Vec<u64>,
    /// All bits that the significands of both sides use.
    bits: u64,
}

impl Scales {
    fn measure(pair: &mut Pair<'_, '_>, grid: &Grid, s: &mut Statistics) -> Self {
        let mut row = vec![0.0; grid.rows as usize];
        let mut active = vec![false; grid.rows as usize];
        let (mut column, mut counts) = (vec![0.0; grid.width], vec![0u64; grid.width]);
        let mut bits = pair.term_bits();
        let sums = pair.sums.0 || pair.sums.1;
        for i in 0..grid.rows {
            let (from, len) = grid.row(i);
            pair.read(from, len);
            let (mut sum, mut finite, mut alive) = (0.0, 0u64, false);
            for j in 0..len {
                let (r, c) = (pair.r[j], pair.c[j]);
                if !(r.is_finite() && c.is_finite()) {
                    s.class_at(pair.candidate, from + j as u64, r, c);
                    continue;
                }
                finite += 1;
                sum += r.abs();
                alive |= r != 0.0 || c != 0.0;
                s.differs |= r != c;
                if !sums {
                    bits |= significand(r) | significand(c);
                }
            }
            s.finite += finite;
            if !alive {
                continue;
            }
            active[i as usize] = true;
            let a = sum / finite as f64;
            row[i as usize] = a;
            for j in 0..len {
                let (r, c) = (pair.r[j], pair.c[j]);
                if r.is_finite() && c.is_finite() {
                    counts[j] += 1;
                    column[j] += if a > 0.0 { r.abs() / a } else { 0.0 };
                }
            }
        }
        let typical = median(row.iter().copied().filter(|a| *a > 0.0)).unwrap_or(1.0);
        for (a, active) in row.iter_mut().zip(&active) {
            *a = if *active { a.max(typical / 64.0) } else { 0.0 };
        }
        for (c, n) in column.iter_mut().zip(&counts) {
            *c /= (*n).max(1) as f64;
        }
        let typical = median(column.iter().copied().filter(|c| *c > 0.0)).unwrap_or(1.0);
        let rows = active.iter().filter(|a| **a).count() as f64;
        for c in &mut column {
            *c = ((*c / typical * rows + 4.0) / (rows + 4.0)).max(0.25);
        }
        Self { row, column, counts, bits }
    }
}

impl Statistics {
    /// Counts a place that is not finite on both sides.
    fn class_at(&mut self, candidate: &Whole<'_>, index: u64, r: f64, c: f64) {
        self.nan += u64::from(r.is_nan() != c.is_nan());
        self.both_nan += u64::from(r.is_nan() && c.is_nan());
        if class(r) != class(c) {
            self.class_change.get_or_insert(index);
            for part in candidate.owners(index) {
                self.parts[part].class_changes += 1;
            }
        }
    }
}

/// Sums of powers of q over a row or column.
#[derive(Clone, Copy, Default)]
struct Powers {
    second: f64,
    fourth: f64,
}

impl Powers {
    fn add(&mut self, q: f64) {
        self.second += q * q;
        self.fourth += q * q * q * q;
    }

    fn line(self, count: u64) -> Line {
        let n_effective = if self.fourth > 0.0 { self.second * self.second / self.fourth } else { 0.0 };
        Line { rms: (self.second / count.max(1) as f64).sqrt(), n_effective }
    }
}

/// The second pass.
struct Errors<'s> {
    scales: &'s Scales,
    roundoff: f64,
    underflow: f64,
    columns: Vec<Powers>,
    /// Σq, Σx and Σx² by column, with x = r·u/w.
    means: Vec<[f64; 3]>,
    largest: Largest,
    /// Σe², Σr², Σc², Σrc.
    products: [f64; 4],
    q: Vec<f64>,
}

impl<'s> Errors<'s> {
    fn new(grid: &Grid, scales: &'s Scales, float: Float) -> Self {
        Self {
            scales,
            roundoff: float.roundoff(),
            underflow: float.underflow(),
            columns: vec![Powers::default(); grid.width],
            means: vec![[0.0; 3]; grid.width],
            largest: Largest::default(),
            products: [0.0; 4],
            q: vec![0.0; grid.width],
        }
    }

    fn measure(mut self, pair: &mut Pair<'_, '_>, grid: &Grid, stored: Float, s: &mut Statistics) {
        for i in 0..grid.rows {
            let a = self.scales.row[i as usize];
            if a == 0.0 {
                continue;
            }
            let (from, len) = grid.row(i);
            pair.read(from, len);
            pair.read_terms(from, len);
            self.row(a, from, len, pair, stored, s);
            self.pieces(pair.candidate, from, len, s);
        }
        self.finish(s);
    }

    fn row(&mut self, a: f64, from: u64, len: usize, pair: &Pair<'_, '_>, stored: Float, s: &mut Statistics) {
        let (mut powers, mut count) = (Powers::default(), 0);
        let (mut q_by_x, mut x_by_x) = (0.0, 0.0);
        for j in 0..len {
            let (r, c) = (pair.r[j], pair.c[j]);
            self.q[j] = 0.0;
            if !(r.is_finite() && c.is_finite()) {
                continue;
            }
            count += 1;
            let e = c - r;
            let w = self.roundoff * (r.abs() + a * self.scales.column[j] + pair.p[j]) + self.underflow;
            let q = if e == 0.0 { 0.0 } else { e / w };
            self.q[j] = q;
            powers.add(q);
            self.columns[j].add(q);
            let (x, both) = (r * self.roundoff / w, (r + c) / 2.0 / w);
            let means = &mut self.means[j];
            (means[0], means[1], means[2]) = (means[0] + q, means[1] + x, means[2] + x * x);
            (q_by_x, x_by_x) = (q_by_x + q * both, x_by_x + both * both);
            let products = &mut self.products;
            (products[1], products[2], products[3]) =
                (products[1] + r * r, products[2] + c * c, products[3] + r * c);
            if e != 0.0 {
                products[0] += e * e;
                self.largest.add(q.abs());
                let at = from + j as u64;
                s.max_units = if q.abs() > s.max_units.0 { (q.abs(), at) } else { s.max_units };
                s.max_abs = if e.abs() > s.max_abs.0 { (e.abs(), at) } else { s.max_abs };
                s.max_ulp = s.max_ulp.max(stored.place(r).abs_diff(stored.place(c)));
            }
        }
        s.rows.push(powers.line(count));
        if x_by_x > 0.0 {
            s.slopes.push(q_by_x / x_by_x);
        }
    }

    /// The row's errors by the candidate's parts.
    fn pieces(&self, candidate: &Whole<'_>, from: u64, len: usize, s: &mut Statistics) {
        let mut at = 0;
        candidate.runs(from, from + len as u64, &mut |leaf, from, to| {
            let next = at + (to - from) as usize;
            let q = &self.q[at..next];
            at = next;
            let Node::Part(part) = leaf else { return };
            let part = &mut s.parts[*part];
            part.max_units = q.iter().fold(part.max_units, |max, q| max.max(q.abs()));
            if q.len() < 16 {
                return;
            }
            let rms = (q.iter().map(|q| q * q).sum::<f64>() / q.len() as f64).sqrt();
            part.row_units = part.row_units.max(rms);
        });
    }

    fn finish(mut self, s: &mut Statistics) {
        let counts = &self.scales.counts;
        s.columns =
            self.columns.iter().zip(counts).filter(|(_, n)| **n > 0).map(|(p, n)| p.line(*n)).collect();
        s.tail = self.largest.tail(counts.iter().sum());
        s.common = self.common(s.rows.len() as f64);
        let [e, r, c, rc] = self.products;
        let finite = |x: f64| x.is_finite().then_some(x);
        s.rel_l2 = finite((e / r).sqrt());
        s.cosine = finite(rc / (r.sqrt() * c.sqrt()));
        s.slope = finite(rc / r);
    }

    /// The share of energy that column means hold, less what chance gives them: (mean m_j² − t/R)/(t(1 − 1/R)) with t
    /// the mean square.
    fn common(&self, rows: f64) -> Option<(f64, f64)> {
        if rows < 4.0 {
            return None;
        }
        let (mut n, mut columns, mut squares, mut means) = (0.0, 0.0, [0.0; 2], [0.0; 2]);
        for ((sums, powers), count) in self.means.iter().zip(&self.columns).zip(&self.scales.counts) {
            if *count > 0 {
                let count = *count as f64;
                (n, columns) = (n + count, columns + 1.0);
                squares = [squares[0] + powers.second, squares[1] + sums[2]];
                means = [means[0] + (sums[0] / count).powi(2), means[1] + (sums[1] / count).powi(2)];
            }
        }
        let share = |i: usize| {
            let t = squares[i] / n;
            if t > 0.0 { (means[i] / columns - t / rows) / (t * (1.0 - 1.0 / rows)) } else { 0.0 }
        };
        Some((share(0), share(1)))
    }
}

/// The 256 largest of a stream, and a few more.
#[derive(Default)]
struct Largest {
    kept: Vec<f64>,
    /// What is not above it is not among them.
    floor: f64,
}

impl Largest {
    const N: usize = 256;

    fn add(&mut self, x: f64) {
        if x > self.floor {
            self.kept.push(x);
            if self.kept.len() == 8 * Self::N {
                self.kept.select_nth_unstable_by(Self::N - 1, |a, b| b.total_cmp(a));
                self.kept.truncate(Self::N);
                self.floor = self.kept[Self::N - 1];
            }
        }
    }

    fn tail(&mut self, n: u64) -> Option<Tail> {
        // Places without an error were not added and are the smallest of all.
        let k = (n / 16).clamp(4, 64) as usize;
        let len = n.min(4 * k as u64) as usize;
        self.kept.sort_unstable_by(|a, b| b.total_cmp(a));
        let at = |i: usize| self.kept.get(i).copied().unwrap_or(0.0);
        (len > 0).then(|| Tail { k, kth: at(k.min(len) - 1), last: at(len - 1), len })
    }
}

/// The median, the mean of the middle two where there are two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(values.collect(), 0.5)
}

/// The quantile with linear interpolation between neighbours, as numpy's default.
pub(crate) fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    let at = share * values.len().checked_sub(1)? as f64;
    let below = at.floor() as usize;
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    Some(if at > below as f64 { low + (high - low) * (at - below as f64) } else { low })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;
    use capture_core::Dtype;

    fn whole(shape: &[u64], numbers: &[f32]) -> Whole<'static> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = Part::new(Some(0), Dtype::F32, shape, None, bytes.into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape: shape.to_vec(), padded: 0 }
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-6 * expected.abs(), "expected {expected}, found {found}");
    }

    /// Eight rows of 32, one of them zero, one with a spike. The expected values come from a numpy implementation.
    #[test]
    fn statistics_are_those_of_the_numpy_implementation() {
        let (mut r, mut c) = (vec![0f32; 256], vec![0f32; 256]);
        for i in 0..7i32 {
            for j in 0..32i32 {
                let at = (i * 32 + j) as usize;
                let scale = if i == 2 { 8.0 } else { 1.0 };
                r[at] = ((i * 7 + j * 13) % 17 - 8) as f32 / 4.0 * scale;
                c[at] = r[at] + ((i * 5 + j * 11) % 7 - 3) as f32 / 256.0;
            }
        }
        c[5 * 32 + 3] += 2.0;
        let s = measure(&whole(&[8, 32], &r), &whole(&[2, 4, 32], &c), Some(BF16));
        assert_eq!((s.rows.len(), s.columns.len(), s.finite), (7, 32, 256));
        let rows = [1.04225134, 1.16000667, 0.1420352, 1.05003372, 1.11596415, 56.79287093, 1.11970677];
        let effective =
            [13.65362589, 10.80668585, 11.36233727, 13.57606172, 14.2926445, 1.00065645, 11.57787146];
        for ((line, rms), n) in s.rows.iter().zip(rows).zip(effective) {
            close(line.rms, rms);
            close(line.n_effective, n);
        }
        for (line, rms) in s.columns.iter().zip([1.09315213, 0.71111134, 0.9550604, 121.41307555]) {
            close(line.rms, rms);
        }
        let slopes = [
            8.88559617e-04,
            -7.02547118e-05,
            -1.12701066e-05,
            8.67264764e-04,
            -4.45133229e-04,
            5.16036782e-02,
            3.92802776e-04,
        ];
        s.slopes.iter().zip(slopes).for_each(|(b, expected)| close(*b, expected));
        let (error, reference) = s.common.unwrap();
        close(error, 0.0020274447867048473);
        close(reference, -0.14448352980623966);
        let tail = s.tail.unwrap();
        assert_eq!((tail.k, tail.len), (14, 56));
        close(tail.kth, 1.9397080833210807);
        close(tail.last, 1.1750650885336784);
        close(s.max_units.0, 321.21629019783376);
        close(s.rel_l2.unwrap(), 0.03469452120804337);
        close(s.cosine.unwrap(), 0.9993984410905559);
        close(s.slope.unwrap(), 0.9997733121013116);
        assert_eq!((s.max_units.1, s.max_abs.1), (163, 163));
        assert_eq!(
            s.parts,
            [PartError { max_units: s.max_units.0, row_units: s.rows[5].rms, class_changes: 0 }]
        );
    }

    #[test]
    fn low_bits_that_are_zero_tell_the_arithmetic() {
        let float = |r: f32, c: f32| measure(&whole(&[1], &[r]), &whole(&[1], &[c]), None).float.unwrap();
        assert_eq!(float(1.0, 1.0078125).precision, 8);
        assert_eq!(float(1.0, 1.0 + 2f32.powi(-9)).precision, 11);
        assert_eq!(float(1.0, 1.1).precision, 24);
        // The exponents stay: a tiny f32 is not below fp16's smallest number.
        assert_eq!(float(1.0, 1.0 + 2f32.powi(-9)).min_exponent, -126);
    }

    #[test]
    fn classes_are_counted_and_left_out() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let r = whole(&[6], &[1.0, nan, nan, inf, -inf, 2.0]);
        let c = whole(&[6], &[1.0, nan, 3.0, nan, inf, 2.5]);
        let s = measure(&r, &c, None);
        assert_eq!((s.finite, s.nan, s.both_nan, s.class_change), (2, 2, 1, Some(2)));
        assert_eq!((s.parts[0].class_changes, s.max_abs), (3, (0.5, 5)));
        close(s.slope.unwrap(), 1.2);
    }

    #[test]
    fn quantiles_interpolate_as_numpy_does() {
        // numpy.quantile([1, 2, 3, 10], 0.75) is 4.75
        assert_eq!(quantile(vec![10.0, 1.0, 3.0, 2.0], 0.75), Some(4.75));
        assert_eq!(median([3.0, 1.0].into_iter()), Some(2.0));
        assert_eq!(median([].into_iter()), None);
    }
}
