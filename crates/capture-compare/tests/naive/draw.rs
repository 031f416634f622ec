//! Pairs of tensors to judge, drawn from a seed: what layers make, what breaks them, and what files may hold.

use capture_compare::{
    float::Float,
    part::Part,
    whole::{Node, Whole},
};
use capture_core::Dtype;
use half::{bf16, f16};

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 40) as f64 / 2f64.powi(24)
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// The bytes of numbers rounded to a dtype. Those beyond the end of e4m3 become its last, 448.
pub(crate) fn encode(dtype: Dtype, numbers: &[f64]) -> Vec<u8> {
    let e4m3 = |x: f64| {
        let float = Float::of(Dtype::F8_E4M3).unwrap();
        let bits = if x.is_finite() { float.place(x.abs().min(448.0)) as u8 } else { 0x7f };
        bits | u8::from(x.is_sign_negative()) << 7
    };
    match dtype {
        Dtype::BF16 => numbers.iter().flat_map(|x| bf16::from_f64(*x).to_le_bytes()).collect(),
        Dtype::F16 => numbers.iter().flat_map(|x| f16::from_f64(*x).to_le_bytes()).collect(),
        Dtype::F32 => numbers.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
        Dtype::F8_E4M3 => numbers.iter().map(|x| e4m3(*x)).collect(),
        other => panic!("expected a dtype of the verdict's tests, found {other:?}"),
    }
}

/// A tensor of one part.
pub(crate) fn whole(dtype: Dtype, rows: usize, width: usize, numbers: &[f64]) -> Whole<'static> {
    let shape = vec![rows as u64, width as u64];
    let part = Part::new(Some(0), dtype, &shape, None, encode(dtype, numbers).into()).unwrap();
    Whole { parts: vec![part].into(), root: Node::Part(0), shape, padded: 0 }
}

/// The numbers as they were stored.
pub(crate) fn numbers(whole: &Whole<'_>) -> Vec<f64> {
    let mut numbers = vec![0.0; whole.len() as usize];
    whole.read(0, &mut numbers);
    numbers
}

/// What to draw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) dtype: Dtype,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Relative noise of the candidate before it is rounded.
    pub(crate) noise: f64,
    /// Each bit asks for one of the odd things that [`Recipe::draw`] lists.
    pub(crate) oddities: u16,
    pub(crate) seed: u64,
}

/// How many oddities there are.
pub(crate) const ODDITIES: u32 = 13;

impl Recipe {
    /// Reference and candidate.
    pub(crate) fn draw(self) -> [Whole<'static>; 2] {
        let mut random = Random(self.seed);
        let (rows, width) = (self.rows, self.width);
        let odd = |bit: u32| self.oddities & (1 << bit) != 0;
        // Numbers near the smallest of every dtype.
        let scale = if odd(0) { tiny(self.dtype) } else { 1.0 };
        let mut r: Vec<f64> = (0..rows * width).map(|_| scale * random.normal()).collect();
        if odd(1) {
            // A massive channel and a massive row.
            let (channel, row) = (random.below(width), random.below(rows));
            (0..rows).for_each(|i| r[i * width + channel] *= 60.0);
            r[row * width..][..width].iter_mut().for_each(|x| *x *= 20.0);
        }
        if odd(2) {
            // Some numbers, some rows and a column of zeros.
            for x in &mut r {
                *x *= f64::from(u8::from(random.below(4) > 0));
            }
            for _ in 0..rows / 4 {
                let row = random.below(rows);
                r[row * width..][..width].fill(0.0);
            }
            let column = random.below(width);
            (0..rows).for_each(|i| r[i * width + column] = 0.0);
        }
        let mut c: Vec<f64> = r.iter().map(|x| x * (1.0 + self.noise * random.normal())).collect();
        if odd(3) {
            // Errors that know nothing of the numbers' sizes, heavier in some rows.
            for row in c.chunks_mut(width) {
                let noise = self.noise * scale * (0.5 * random.normal()).exp();
                row.iter_mut().for_each(|x| *x += noise * random.normal());
            }
        }
        if odd(4) {
            // Equal prompts.
            for _ in 0..=rows / 3 {
                let (from, to) = (random.below(rows), random.below(rows));
                for t in [&mut r, &mut c] {
                    t.copy_within(from * width..(from + 1) * width, to * width);
                }
            }
        }
        let at = random.below(rows * width);
        let row = at / width;
        if odd(5) {
            c[at] += 8.0 * scale;
        }
        if odd(6) {
            c[row * width..][..width].iter_mut().for_each(|x| *x *= 1.03);
        }
        if odd(7) {
            (0..rows).for_each(|i| c[i * width + at % width] = -0.5 * scale);
        }
        if odd(8) {
            let to = (row * width + 128).min(c.len());
            c[row * width..to].iter_mut().for_each(|x| *x *= 1.5);
        }
        if odd(9) {
            c.iter_mut().skip(at % 32).step_by(32).for_each(|x| *x += 0.3 * scale);
        }
        if odd(10) {
            c.iter_mut().for_each(|x| *x *= 1.01);
        }
        if odd(11) {
            // The same vector on every row.
            let vector: Vec<f64> = (0..width).map(|_| 0.05 * scale * random.normal()).collect();
            c.chunks_mut(width).for_each(|row| row.iter_mut().zip(&vector).for_each(|(x, v)| *x += v));
        }
        if odd(12) {
            // The same classes on both sides: a masked column, a masked tail, some NaN.
            let masked = random.below(width);
            let infinite = if self.dtype == Dtype::F8_E4M3 { f64::NAN } else { f64::NEG_INFINITY };
            for i in 0..rows {
                (r[i * width + masked], c[i * width + masked]) = (infinite, infinite);
                let nan = i * width + random.below(width);
                if random.below(2) == 0 {
                    (r[nan], c[nan]) = (f64::NAN, f64::NAN);
                }
            }
        }
        // What rounds to infinity on one side only is a class of its own, and no matter for the tests.
        let most = if self.dtype == Dtype::F16 { 6e4 } else { 1e30 };
        let finite = |x: &f64| if x.is_finite() { x.clamp(-most, most) } else { *x };
        [r, c].map(|t| whole(self.dtype, rows, width, &t.iter().map(finite).collect::<Vec<_>>()))
    }
}

/// A few steps of the smallest number.
fn tiny(dtype: Dtype) -> f64 {
    16.0 * 2.0 * Float::of(dtype).unwrap().underflow()
}
