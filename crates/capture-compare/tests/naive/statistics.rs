//! Every statistic of the verdict, from whole tables.

use capture_compare::float::Float;
use std::collections::HashSet;

/// A reference and a candidate number at one place.
pub(crate) type Place = (f64, f64);

/// How two tensors differ. Rows are the active ones: zero on both sides is none, and a repeated row counts once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statistics {
    /// u.
    pub(crate) roundoff: f64,
    /// Numbers in a row.
    pub(crate) width: usize,
    /// Q_i and n_eff of each row of q.
    pub(crate) rows: Vec<Line>,
    /// P_j and n_eff of each column of q that has a finite place.
    pub(crate) columns: Vec<Line>,
    /// The same over each row × 128 columns.
    pub(crate) blocks: Vec<Line>,
    /// The same over the columns of equal j mod p and over runs of p columns, for each p.
    pub(crate) groups: Vec<Vec<Line>>,
    /// b_i.
    pub(crate) slopes: Vec<f64>,
    /// The slopes of pieces of rows, and their rms, where there are fewer than 8 rows.
    pub(crate) pieces: Option<(Vec<f64>, Vec<f64>)>,
    /// λ.
    pub(crate) lambda: f64,
    /// λ of v.
    pub(crate) near_lambda: f64,
    /// |q|/τ, |v|/τ_v and the mean of |q|/τ over chunks, largest first.
    pub(crate) elements: Vec<f64>,
    pub(crate) near_elements: Vec<f64>,
    pub(crate) chunks: Vec<f64>,
    /// k of the elements' tails.
    pub(crate) k: usize,
    /// The largest |v|/τ_v among those with |q| above 6.
    pub(crate) near_largest: f64,
    /// f_e and f_r.
    pub(crate) common: Option<(f64, f64)>,
    /// ‖e‖/‖r‖ over all rows that count.
    pub(crate) rel: f64,
}

/// Errors that belong together: root mean square, and how many equal ones would carry as much.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    pub(crate) rms: f64,
    pub(crate) n_effective: f64,
}

impl Line {
    fn of(errors: &[f64], count: usize) -> Self {
        let (second, fourth) = (sum(errors, |q| q * q), sum(errors, |q| q * q * q * q));
        let n_effective = if fourth > 0.0 { second * second / fourth } else { 0.0 };
        Self { rms: (second / count.max(1) as f64).sqrt(), n_effective }
    }
}

impl Statistics {
    /// `chunk` is how many numbers of the stored dtype 16 bytes hold. `None` where no finite number differs.
    pub(crate) fn of(places: &[Place], width: usize, float: Float, chunk: usize) -> Option<Self> {
        let (u, eta) = (float.roundoff(), float.underflow());
        let finite = |p: &Place| p.0.is_finite() && p.1.is_finite();
        // What is zero on both sides has no size to be measured by, and no error.
        let there = |p: &Place| finite(p) && *p != (0.0, 0.0);
        let mut seen = HashSet::new();
        let mut table: Vec<Vec<Place>> = places.chunks(width).map(<[Place]>::to_vec).collect();
        table.retain(|row| {
            seen.insert(row.iter().map(|p| (p.0.to_bits(), p.1.to_bits())).collect::<Vec<_>>())
        });
        table.retain(|row| row.iter().any(there));
        if table.iter().flatten().filter(|p| finite(p)).all(|p| p.0 == p.1) {
            return None;
        }
        let rows = table.len();
        let row_count: Vec<usize> = table.iter().map(|row| row.iter().filter(|p| there(p)).count()).collect();
        let column_count: Vec<usize> =
            (0..width).map(|j| table.iter().filter(|row| there(&row[j])).count()).collect();
        let n: usize = row_count.iter().sum();
        let is_there: Vec<Vec<bool>> = table.iter().map(|row| row.iter().map(there).collect()).collect();
        // Places that are not finite are zero from here on.
        table.iter_mut().flatten().filter(|p| !finite(p)).for_each(|p| *p = (0.0, 0.0));

        // The scale of each row and column.
        let mean: Vec<f64> =
            table.iter().zip(&row_count).map(|(row, n)| sum(row, |p| p.0.abs()) / *n as f64).collect();
        let typical = median(mean.iter().copied().filter(|a| *a > 0.0)).unwrap_or(1.0);
        let a: Vec<f64> = mean.iter().map(|a| a.max(typical / 4.0)).collect();
        let share = |i: usize, j: usize| if mean[i] > 0.0 { table[i][j].0.abs() / mean[i] } else { 0.0 };
        let column: Vec<f64> = (0..width)
            .map(|j| (0..rows).map(|i| share(i, j)).sum::<f64>() / column_count[j].max(1) as f64)
            .collect();
        let typical = median(column.iter().copied().filter(|c| *c > 0.0)).unwrap_or(1.0);
        let active = rows as f64;
        let c: Vec<f64> = column
            .iter()
            .zip(&column_count)
            .map(|(c, n)| ((c / typical * *n as f64 + 4.0) / (*n as f64 + 4.0)).max(0.25))
            .collect();

        // Errors in rounding units.
        let of = |f: &dyn Fn(usize, usize, Place) -> f64| -> Vec<Vec<f64>> {
            let row = |i: usize| table[i].iter().enumerate().map(|(j, p)| f(i, j, *p)).collect();
            (0..rows).map(row).collect()
        };
        let w = of(&|i, j, p| u * (p.0.abs() + a[i] * c[j]) + eta);
        let q = of(&|i, j, p| (p.1 - p.0) / w[i][j]);
        let v = of(&|i, j, p| (p.1 - p.0) / (u * (0.15 * p.0.abs() + a[i] * c[j]) + eta));
        let s = of(&|i, j, p| (p.0 + p.1) / 2.0 / w[i][j]);
        let x = of(&|i, j, p| p.0 / (w[i][j] / u));

        let in_column = |table: &[Vec<f64>], j: usize| table.iter().map(|row| row[j]).collect::<Vec<f64>>();
        let by_row = |t: &[Vec<f64>]| -> Vec<Line> {
            t.iter().zip(&row_count).map(|(row, n)| Line::of(row, *n)).collect()
        };
        let by_column = |t: &[Vec<f64>]| -> Vec<Line> {
            let there = (0..width).filter(|j| column_count[*j] > 0);
            there.map(|j| Line::of(&in_column(t, j), column_count[j])).collect()
        };
        let (row_lines, column_lines) = (by_row(&q), by_column(&q));

        // Of pieces of rows that hold anything.
        let lines_of = |q: &[Vec<f64>], length: usize| -> Vec<Line> {
            let counts = is_there.iter().flat_map(|row| row.chunks_exact(length)).map(count);
            q.iter().zip(counts).filter(|(_, n)| *n > 0).map(|(q, n)| Line::of(q, n)).collect()
        };
        // Pieces of rows stand for rows where there are few.
        let length = (width / 16).max(8);
        let slope = |q: &[f64], s: &[f64]| {
            let energy = sum(s, |s| s * s);
            (energy > 0.0).then(|| q.iter().zip(s).map(|(q, s)| q * s).sum::<f64>() / energy)
        };
        let pieces = (rows < 8 && width / length >= 2).then(|| {
            let cut = |t: &[Vec<f64>]| -> Vec<Vec<f64>> {
                t.iter().flat_map(|row| row.chunks_exact(length)).map(<[f64]>::to_vec).collect()
            };
            let (q, s) = (cut(&q), cut(&s));
            let slopes = q.iter().zip(&s).filter_map(|(q, s)| slope(q, s)).collect();
            (slopes, lines_of(&q, length).iter().map(|l| l.rms).collect::<Vec<f64>>())
        });

        // The tensor's own noise.
        let middle = |lines: &[Line]| median(lines.iter().map(|l| l.rms)).unwrap_or(0.0);
        let both = |rows: f64, columns: f64| if active < 4.0 { rows } else { rows.min(columns) };
        let lambda = match &pieces {
            Some((_, rms)) => middle(&row_lines).min(median(rms.iter().copied()).unwrap_or(0.0)),
            None => both(middle(&row_lines), middle(&column_lines)),
        };
        let near_lambda = both(middle(&by_row(&v)), middle(&by_column(&v)));
        let (tau, near_tau) = (lambda.max(0.5), near_lambda.max(0.5));

        let blocks = if width / 128 >= 2 {
            let blocks = q.iter().flat_map(|row| row.chunks_exact(128)).map(<[f64]>::to_vec);
            lines_of(&blocks.collect::<Vec<_>>(), 128)
        } else {
            Vec::new()
        };
        let mut groups = Vec::new();
        for p in [8usize, 16, 32, 64] {
            if width.is_multiple_of(p) && width / p >= 4 {
                let group = |of: &dyn Fn(usize) -> bool| {
                    let lines: Vec<Line> = (0..width)
                        .filter(|j| of(*j) && column_count[*j] > 0)
                        .map(|j| Line::of(&in_column(&q, j), column_count[j]))
                        .collect();
                    let rms = (sum(&lines, |l| l.rms * l.rms) / lines.len().max(1) as f64).sqrt();
                    Line { rms, n_effective: sum(&lines, |l| l.n_effective) }
                };
                groups.push((0..p).map(|residue| group(&|j| j % p == residue)).collect());
                groups.push((0..width / p).map(|run| group(&|j| j / p == run)).collect());
            }
        }

        let size = |t: &[Vec<f64>], tau: f64| sorted(t.iter().flatten().map(|q| q.abs() / tau).collect());
        let large = q.iter().flatten().zip(v.iter().flatten()).filter(|(q, _)| q.abs() > 6.0);
        let near_largest = large.map(|(_, v)| v.abs() / near_tau).fold(0.0, f64::max);
        let chunk_means = if width >= 2 * chunk {
            let mean = |q: &[f64]| sum(q, |q| q.abs()) / chunk as f64 / tau;
            sorted(q.iter().flat_map(|row| row.chunks_exact(chunk)).map(mean).collect())
        } else {
            Vec::new()
        };

        let share = |t: &[Vec<f64>]| {
            let square = sum(&t.concat(), |x| x * x) / (rows * width) as f64;
            let mean = |j: usize| in_column(t, j).iter().sum::<f64>() / active;
            let of_means = (0..width).map(|j| mean(j).powi(2)).sum::<f64>() / width as f64;
            if square > 0.0 { (of_means - square / active) / (square * (1.0 - 1.0 / active)) } else { 0.0 }
        };
        // The noise that errors are clipped by is that of a sample.
        let n_sample = rows.min(64);
        let sample: Vec<usize> = (0..n_sample).map(|i| i * rows / n_sample).collect();
        let sample_rows: Vec<Line> = sample.iter().map(|i| row_lines[*i]).collect();
        let sample_columns = (0..width).filter_map(|j| {
            let errors: Vec<f64> = sample.iter().map(|i| q[*i][j]).collect();
            let count = sample.iter().filter(|i| is_there[**i][j]).count();
            (count > 0).then(|| Line::of(&errors, count))
        });
        let sample_tau = match &pieces {
            Some(_) => tau,
            None => both(middle(&sample_rows), middle(&sample_columns.collect::<Vec<_>>())).max(0.5),
        };
        let clip = 4.0 * sample_tau;
        let clipped: Vec<Vec<f64>> =
            q.iter().map(|row| row.iter().map(|q| q.clamp(-clip, clip)).collect()).collect();
        let places = table.concat();
        Some(Self {
            roundoff: u,
            width,
            rows: row_lines,
            columns: column_lines,
            blocks,
            groups,
            slopes: (0..rows).filter(|i| mean[*i] >= a[*i]).filter_map(|i| slope(&q[i], &s[i])).collect(),
            pieces,
            lambda,
            near_lambda,
            elements: size(&q, tau),
            near_elements: size(&v, near_tau),
            chunks: chunk_means,
            k: (n / 16).clamp(4, 64),
            near_largest,
            common: (rows >= 4).then(|| (share(&clipped), share(&x))),
            rel: (sum(&places, |p| (p.1 - p.0).powi(2)) / sum(&places, |p| p.0 * p.0)).sqrt(),
        })
    }

    /// max(λ, ½).
    pub(crate) fn tau(&self) -> f64 {
        self.lambda.max(0.5)
    }
}

fn count(there: &[bool]) -> usize {
    there.iter().filter(|t| **t).count()
}

fn sum<T>(values: &[T], of: impl Fn(&T) -> f64) -> f64 {
    values.iter().map(of).sum()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(|a, b| b.total_cmp(a));
    values
}

/// The mean of the middle two where there are two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(values, 0.5)
}

/// With linear interpolation between neighbours, as numpy's default.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = share * values.len().checked_sub(1)? as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}
