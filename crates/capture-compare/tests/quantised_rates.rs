//! Quantised activations after noise: codes that rounding flipped are `ROUNDING`, a wrong scale is `DIFFERENT`.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Verdict, compare};
use capture_core::Dtype;
use half::{bf16, f16};
use recorded::{Tensor, record};

const ROWS: usize = 32;
const WIDTH: usize = 512;

/// Normal numbers from a fixed seed.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / 2f64.powi(53)
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// Activations: plain, with channels a hundred times as large, or products as after SwiGLU.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    Heavy,
    Product,
}

fn activations(kind: Kind, random: &mut Random) -> Vec<f64> {
    let mut all = Vec::with_capacity(ROWS * WIDTH);
    for _ in 0..ROWS {
        for j in 0..WIDTH {
            let x = random.normal();
            all.push(match kind {
                Kind::Plain => x,
                Kind::Heavy if j % 97 == 5 => 100.0 * x,
                Kind::Heavy => x,
                Kind::Product => x * random.normal(),
            });
        }
    }
    all
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Format {
    Nvfp4,
    Mxfp4,
    Mxfp8,
    Fp8Block,
    Int4,
}

/// The values of a float format's codes from 0 up.
fn values(exponent: u32, mantissa: u32, bias: i32, n: usize) -> Vec<f64> {
    let value = |code: usize| {
        let (e, m) = (code >> mantissa, (code & ((1 << mantissa) - 1)) as f64 / f64::from(1 << mantissa));
        let _ = exponent;
        if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e as i32 - bias) }
    };
    (0..n).map(value).collect()
}

/// The code nearest to a magnitude.
fn nearest(values: &[f64], x: f64) -> u8 {
    let above = values.partition_point(|v| *v < x).min(values.len() - 1);
    let below = above.saturating_sub(1);
    let (down, up) = (x - values[below], values[above] - x);
    (if down < up || (down == up && below.is_multiple_of(2)) { below } else { above }) as u8
}

/// Codes, one a byte, and scales by block, with what the scales' tap holds.
struct Quantised {
    codes: Vec<u8>,
    scales: Vec<f64>,
}

impl Format {
    /// Rows and columns of a block.
    fn block(self) -> (usize, usize) {
        match self {
            Self::Nvfp4 => (1, 16),
            Self::Mxfp4 | Self::Mxfp8 => (1, 32),
            Self::Fp8Block => (1, 128),
            Self::Int4 => (32, 1),
        }
    }

    fn layouts(self) -> &'static str {
        match self {
            Self::Nvfp4 => "dequant(nvfp4, scale=s)",
            Self::Mxfp4 => "dequant(mxfp4, scale=s)",
            Self::Mxfp8 => "dequant(mxfp8, scale=s)",
            Self::Fp8Block => "dequant(fp8-block, scale=s, block=[1,128])",
            Self::Int4 => "dequant(int4-group, scale=s, group=32, order=gptq)",
        }
    }

    fn quantise(self, x: &[f64]) -> Quantised {
        let (height, width) = self.block();
        let (e2m1, e4m3) = (values(2, 1, 1, 8), values(4, 3, 7, 127));
        let across = WIDTH / width;
        let block = |at: usize| at / WIDTH / height * across + at % WIDTH / width;
        let mut largest = vec![0f64; ROWS / height * across];
        for (at, x) in x.iter().enumerate() {
            largest[block(at)] = largest[block(at)].max(x.abs());
        }
        let scale = |largest: &f64| match self {
            Self::Nvfp4 => e4m3[nearest(&e4m3, largest / 6.0).max(1) as usize],
            Self::Mxfp4 => (largest.max(1e-30).log2().floor() - 2.0).exp2(),
            Self::Mxfp8 => (largest.max(1e-30).log2().floor() - 8.0).exp2(),
            Self::Fp8Block => f64::from((largest / 448.0) as f32),
            Self::Int4 => f16::from_f64(largest / 7.0).to_f64(),
        };
        let scales: Vec<f64> = largest.iter().map(scale).collect();
        let code = |(at, x): (usize, &f64)| {
            let x = x / scales[block(at)];
            match self {
                Self::Int4 => (x.round_ties_even().clamp(-8.0, 7.0) + 8.0) as u8,
                Self::Nvfp4 | Self::Mxfp4 => nearest(&e2m1, x.abs()) | if x < 0.0 { 8 } else { 0 },
                Self::Mxfp8 | Self::Fp8Block => nearest(&e4m3, x.abs()) | if x < 0.0 { 128 } else { 0 },
            }
        };
        Quantised { codes: x.iter().enumerate().map(code).collect(), scales }
    }

    /// The records of codes and scales.
    fn tensors(self, q: &Quantised) -> [Tensor; 2] {
        let (height, width) = self.block();
        let shape = [(ROWS / height) as u64, (WIDTH / width) as u64];
        let e4m3 = values(4, 3, 7, 127);
        let (dtype, bytes): (_, Vec<u8>) = match self {
            Self::Nvfp4 => (Dtype::F8_E4M3, q.scales.iter().map(|s| nearest(&e4m3, *s)).collect()),
            Self::Mxfp4 | Self::Mxfp8 => {
                (Dtype::F8_E8M0, q.scales.iter().map(|s| (s.log2() + 127.0) as u8).collect())
            }
            Self::Fp8Block => (Dtype::F32, q.scales.iter().flat_map(|s| (*s as f32).to_le_bytes()).collect()),
            Self::Int4 => {
                (Dtype::F16, q.scales.iter().flat_map(|s| f16::from_f64(*s).to_le_bytes()).collect())
            }
        };
        let scale = Tensor::new(0, "s", dtype, &shape, bytes);
        let pairs = |codes: &[u8]| codes.chunks(2).map(|c| c[0] | c[1] << 4).collect::<Vec<u8>>();
        let (rows, columns) = (ROWS as u64, WIDTH as u64);
        let codes = match self {
            Self::Nvfp4 | Self::Mxfp4 => Tensor::new(0, "q", Dtype::F4, &[rows, columns], pairs(&q.codes)),
            Self::Mxfp8 | Self::Fp8Block => {
                Tensor::new(0, "q", Dtype::F8_E4M3, &[rows, columns], q.codes.clone())
            }
            Self::Int4 => {
                let words = (0..ROWS / 8).flat_map(|row| (0..WIDTH).map(move |column| (row, column)));
                let word = |(row, column): (usize, usize)| {
                    (0..8)
                        .fold(0u32, |w, i| w | u32::from(q.codes[(row * 8 + i) * WIDTH + column]) << (4 * i))
                };
                let bytes = words.flat_map(|at| word(at).to_le_bytes()).collect();
                Tensor::new(0, "q", Dtype::I32, &[rows / 8, columns], bytes)
            }
        };
        [codes, scale]
    }
}

/// The verdict on the codes, after the activations themselves, and the test that made it.
fn verdict(
    format: Format,
    x: &[f64],
    y: &[f64],
    spoil: impl Fn(&Quantised, &mut Quantised),
) -> (Verdict, String) {
    let h = |x: &[f64]| {
        let numbers: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        Tensor::bf16(0, "h", &[ROWS as u64, WIDTH as u64], &numbers)
    };
    let (of_x, mut spoilt) = (format.quantise(x), format.quantise(y));
    spoil(&of_x, &mut spoilt);
    let run = |x: &[f64], q: &Quantised| {
        let [codes, scale] = format.tensors(q);
        record("tp=1", &[h(x), codes, scale])
    };
    let (a, b) = (run(x, &of_x), run(y, &spoilt));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layouts.toml");
    std::fs::write(&path, format!("[[tap]]\nmatch = \"q\"\ntransforms = [\"{}\"]", format.layouts()))
        .unwrap();
    let report = compare(&a.run, &b.run, &Layouts::read(&path).unwrap(), Options::default());
    let row = report.rows.into_iter().find(|r| r.tap == "q").unwrap();
    (
        row.verdict.unwrap(),
        format!("{:?} {:?} E {:?} {:?}", row.test, row.max_units, row.inherited_units, row.diagnoses),
    )
}

const FORMATS: [Format; 5] = [Format::Nvfp4, Format::Mxfp4, Format::Mxfp8, Format::Fp8Block, Format::Int4];

/// Pairs of activations that differ by bf16 rounding, or by that after relative noise.
fn pairs(seeds: u64) -> impl Iterator<Item = (String, Vec<f64>, Vec<f64>)> {
    let kinds = [Kind::Plain, Kind::Heavy, Kind::Product];
    let all = kinds.into_iter().flat_map(move |k| [0.0, 0.003, 0.01, 0.03].into_iter().map(move |n| (k, n)));
    all.flat_map(move |(k, n)| (0..seeds).map(move |s| (k, n, s))).map(|(kind, noise, seed)| {
        let mut random = Random(seed * 1000 + 17);
        let exact = activations(kind, &mut random);
        let round = |x: f64| bf16::from_f64(x).to_f64();
        let x = exact.iter().map(|x| round(*x)).collect();
        let y = exact
            .iter()
            .map(|x| round(x * (1.0 + noise * random.normal()) * (1.0 + 0.003 * (random.uniform() - 0.5))))
            .collect();
        (format!("{kind:?} noise {noise} seed {seed}"), x, y)
    })
}

#[test]
fn flipped_codes_are_rounding() {
    let seeds = std::env::var("SEEDS").map_or(1, |s| s.parse().unwrap());
    let (mut n, mut suspect) = (0, Vec::new());
    for (name, x, y) in pairs(seeds) {
        for format in FORMATS {
            let (found, why) = verdict(format, &x, &y, |_, _| ());
            assert!(found < Verdict::Different, "{format:?} {name}: {found} {why}");
            n += 1;
            if found == Verdict::Suspect {
                suspect.push(format!("{format:?} {name}: {why}"));
            }
        }
    }
    assert!(suspect.len() * 100 <= n, "{} of {n} SUSPECT: {suspect:#?}", suspect.len());
}

#[test]
fn a_wrong_scale_is_different() {
    let seeds = std::env::var("SEEDS").map_or(1, |s| s.parse().unwrap());
    let mut missed = Vec::new();
    let mut n = 0;
    for (name, x, y) in pairs(seeds) {
        for format in FORMATS {
            let power = matches!(format, Format::Mxfp4 | Format::Mxfp8);
            for factor in if power { [2.0, 0.5] } else { [2.0, 1.5] } {
                n += 1;
                let (found, why) = verdict(format, &x, &y, |of_x, q| {
                    // One that rounding left alone: two wrongs can make a right.
                    let mut all = q.scales.len() / 2..q.scales.len();
                    let at = all.find(|at| q.scales[*at] == of_x.scales[*at]).unwrap_or(0);
                    q.scales[at] *= factor;
                });
                if found != Verdict::Different {
                    missed.push(format!("{format:?} × {factor} {name}: {found} {why}"));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{} of {n} missed: {missed:#?}", missed.len());
}
