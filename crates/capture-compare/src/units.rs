//! The second pass over two tensors: their errors in rounding units, by element, row, column and part.

use crate::{
    float::Float,
    rows::{Grid, Pair},
    scales::Scales,
    statistics::{Line, Pieces, Statistics, Tail, median},
    whole::{Node, Whole},
};

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
pub(crate) struct Errors<'s> {
    scales: &'s Scales,
    roundoff: f64,
    underflow: f64,
    columns: Vec<Powers>,
    /// Σq, Σx and Σx² by column, with x = r·u/w.
    means: Vec<[f64; 2]>,
    squares: [f64; 2],
    clip: f64,
    near_columns: Vec<f64>,
    near_rows: Vec<f64>,
    near_max: f64,
    near: Largest,
    chunks: Largest,
    chunk: usize,
    piece: usize,
    largest: Largest,
    /// Σe², Σr², Σc², Σrc.
    products: [f64; 4],
    q: Vec<f64>,
    s: Vec<f64>,
    pieces: Pieces,
}

impl<'s> Errors<'s> {
    pub(crate) fn new(grid: &Grid, scales: &'s Scales, float: Float, chunk: usize, clip: f64) -> Self {
        Self {
            scales,
            clip,
            chunk,
            piece: (grid.width / 16).max(8),
            near_columns: vec![0.0; grid.width],
            near_rows: Vec::new(),
            near_max: 0.0,
            near: Largest::default(),
            chunks: Largest::default(),
            pieces: Pieces::default(),
            s: vec![0.0; grid.width],
            roundoff: float.roundoff(),
            underflow: float.underflow(),
            columns: vec![Powers::default(); grid.width],
            means: vec![[0.0; 2]; grid.width],
            squares: [0.0; 2],
            largest: Largest::default(),
            products: [0.0; 4],
            q: vec![0.0; grid.width],
        }
    }

    pub(crate) fn measure(mut self, pair: &mut Pair<'_, '_>, grid: &Grid, stored: Float, s: &mut Statistics) {
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
        let (mut q_by_x, mut x_by_x, mut near) = (0.0, 0.0, 0.0);
        // Multiplied before anything is added, so that the largest numbers of f64 do not overflow.
        let (u, a_in_units) = (self.roundoff, self.roundoff * a);
        for j in 0..len {
            let (r, c) = (pair.r[j], pair.c[j]);
            (self.q[j], self.s[j]) = (0.0, 0.0);
            if !(r.is_finite() && c.is_finite()) {
                continue;
            }
            count += 1;
            let e = c - r;
            let w = u * r.abs() + a_in_units * self.scales.column[j] + u * pair.p[j] + self.underflow;
            let q = if e == 0.0 { 0.0 } else { e / w };
            self.q[j] = q;
            powers.add(q);
            self.columns[j].add(q);
            let v = if e == 0.0 { 0.0 } else { e / (w - 0.85 * u * r.abs()) };
            self.near_columns[j] += v * v;
            near += v * v;
            if q.abs() > 6.0 {
                self.near_max = self.near_max.max(v.abs());
            }
            let (x, both) = (r * u / w, (r / 2.0 + c / 2.0) / w);
            let means = &mut self.means[j];
            let clipped = q.clamp(-self.clip, self.clip);
            (means[0], means[1]) = (means[0] + clipped, means[1] + x);
            (self.squares[0], self.squares[1]) =
                (self.squares[0] + clipped * clipped, self.squares[1] + x * x);
            self.s[j] = both;
            (q_by_x, x_by_x) = (q_by_x + q * both, x_by_x + both * both);
            let products = &mut self.products;
            (products[1], products[2], products[3]) =
                (products[1] + r * r, products[2] + c * c, products[3] + r * c);
            if e != 0.0 {
                products[0] += e * e;
                self.largest.add(q.abs());
                self.near.add(v.abs());
                let at = from + j as u64;
                s.max_units = if q.abs() > s.max_units.0 { (q.abs(), at) } else { s.max_units };
                s.max_abs = if e.abs() > s.max_abs.0 { (e.abs(), at) } else { s.max_abs };
                s.max_ulp = s.max_ulp.max(stored.place(r).abs_diff(stored.place(c)));
            }
        }
        s.rows.push(powers.line(count));
        self.near_rows.push((near / count as f64).sqrt());
        if self.q.len() >= 256 {
            for block in self.q.chunks_exact(128) {
                let mut powers = Powers::default();
                block.iter().for_each(|q| powers.add(*q));
                s.blocks.push(powers.line(128));
            }
        }
        for chunk in self.q.chunks_exact(self.chunk) {
            self.chunks.add(chunk.iter().map(|q| q.abs()).sum::<f64>() / self.chunk as f64);
        }
        if s.rows.len() < 8 {
            for (q, s) in self.q.chunks_exact(self.piece).zip(self.s.chunks_exact(self.piece)) {
                let sum = |f: &dyn Fn(f64, f64) -> f64| q.iter().zip(s).map(|(q, s)| f(*q, *s)).sum::<f64>();
                self.pieces.rms.push((sum(&|q, _| q * q) / q.len() as f64).sqrt());
                let energy = sum(&|_, s| s * s);
                if energy > 0.0 {
                    self.pieces.slopes.push(sum(&|q, s| q * s) / energy);
                }
            }
        }
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
        let lines: Vec<Line> = self.columns.iter().zip(counts).map(|(p, n)| p.line(*n)).collect();
        let width = lines.len();
        let k = (counts.iter().sum::<u64>() / 16).clamp(4, 64) as usize;
        let places = s.rows.len() * width;
        s.tail = self.largest.tail(k, places);
        s.near_tail = Tail { largest: self.near_max, ..self.near.tail(k, places) };
        let chunks = s.rows.len() * (width / self.chunk);
        s.chunk_tail =
            (width >= 2 * self.chunk).then(|| self.chunks.tail((chunks / 64).clamp(4, 64), chunks));
        for p in [8, 16, 32, 64] {
            if width.is_multiple_of(p) && width / p >= 4 {
                let group = |lines: &mut dyn Iterator<Item = &Line>, n: usize| {
                    let (squares, n_effective) =
                        lines.fold((0.0, 0.0), |sum, l| (sum.0 + l.rms * l.rms, sum.1 + l.n_effective));
                    Line { rms: (squares / n as f64).sqrt(), n_effective }
                };
                s.groups
                    .push((0..p).map(|i| group(&mut lines.iter().skip(i).step_by(p), width / p)).collect());
                s.groups.push(lines.chunks_exact(p).map(|run| group(&mut run.iter(), p)).collect());
            }
        }
        let there = |x: &(usize, &u64)| *x.1 > 0;
        let near_columns =
            counts.iter().enumerate().filter(there).map(|(j, n)| (self.near_columns[j] / *n as f64).sqrt());
        let rows = median(self.near_rows.iter().copied()).unwrap_or(0.0);
        let columns = median(near_columns).unwrap_or(0.0);
        s.near_noise = if s.rows.len() < 4 { rows } else { rows.min(columns) };
        s.columns = counts.iter().enumerate().filter(there).map(|(j, _)| lines[j]).collect();
        s.common = self.common(s.rows.len() as f64);
        s.pieces = (s.rows.len() < 8 && width / self.piece >= 2).then(|| std::mem::take(&mut self.pieces));
        let [e, r, c, rc] = self.products;
        let finite = |x: f64| x.is_finite().then_some(x);
        s.relative = (e / r).sqrt();
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
        let width = self.means.len() as f64;
        let mut means = [0.0; 2];
        for sums in &self.means {
            means = [means[0] + (sums[0] / rows).powi(2), means[1] + (sums[1] / rows).powi(2)];
        }
        let share = |i: usize| {
            let t = self.squares[i] / (rows * width);
            if t > 0.0 { (means[i] / width - t / rows) / (t * (1.0 - 1.0 / rows)) } else { 0.0 }
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

    fn tail(&mut self, k: usize, n: usize) -> Tail {
        // Places without an error were not added and are the smallest of all.
        let len = n.min(4 * k);
        self.kept.sort_unstable_by(|a, b| b.total_cmp(a));
        let at = |i: usize| self.kept.get(i).copied().unwrap_or(0.0);
        Tail { k, kth: at(k.min(len) - 1), last: at(len - 1), len, largest: at(0) }
    }
}
