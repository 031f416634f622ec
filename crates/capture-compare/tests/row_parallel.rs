//! One row-parallel linear layer: what reduction order and rounding make of it is ROUNDING in every format, and what a
//! fault makes of it is DIFFERENT.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_compare::{
    Verdict,
    float::Float,
    part::Part,
    verdict::{Decision, decide, measure},
    whole::{Node, Whole},
};
use capture_core::Dtype;
use half::{bf16, f16};

const ROWS: usize = 32;
const INNER: usize = 512;
const WIDTH: usize = 128;

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

    fn normal(&mut self) -> f32 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    }

    fn normals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * scale).collect()
    }
}

/// Rounding to a dtype and back, with 448 the end of e4m3.
fn round(dtype: Dtype, x: f32) -> f32 {
    match dtype {
        Dtype::BF16 => bf16::from_f32(x).to_f32(),
        Dtype::F16 => f16::from_f32(x).to_f32(),
        Dtype::F8_E4M3 => {
            let step = (x.abs().log2().floor().max(-6.0) - 3.0).exp2();
            ((x / step).round_ties_even() * step).clamp(-448.0, 448.0)
        }
        _ => x,
    }
}

/// One row-parallel linear layer with bias: the partial product of each rank, rounded, summed in rank order with
/// rounding.
struct Linear {
    dtype: Dtype,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    fn new(dtype: Dtype, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut make = |n, scale| -> Vec<f32> {
            random.normals(n, scale).into_iter().map(|x| round(dtype, x)).collect()
        };
        let x = make(ROWS * INNER, 1.0);
        let w = make(INNER * WIDTH, 1.0 / (INNER as f32).sqrt());
        Self { dtype, x, w, bias: make(WIDTH, 0.05) }
    }

    /// The slice of the inner dim that `x` takes is `slices.0`, that of `w` is `slices.1`.
    fn partial(&self, tp: usize, slices: (usize, usize)) -> Vec<f32> {
        let n = INNER / tp;
        let mut y = vec![0f32; ROWS * WIDTH];
        for (i, row) in y.chunks_mut(WIDTH).enumerate() {
            for k in 0..n {
                let x = self.x[i * INNER + slices.0 * n + k];
                let w = &self.w[(slices.1 * n + k) * WIDTH..][..WIDTH];
                row.iter_mut().zip(w).for_each(|(y, w)| *y += x * w);
            }
        }
        y.iter().map(|y| round(self.dtype, *y)).collect()
    }

    fn reduce(&self, partials: &[Vec<f32>], biases: usize) -> Vec<f32> {
        let mut y = partials[0].clone();
        for partial in &partials[1..] {
            y.iter_mut().zip(partial).for_each(|(y, p)| *y = round(self.dtype, *y + p));
        }
        for _ in 0..biases {
            y.iter_mut().enumerate().for_each(|(i, y)| *y = round(self.dtype, *y + self.bias[i % WIDTH]));
        }
        y
    }

    fn forward(&self, tp: usize) -> Vec<f32> {
        let partials: Vec<_> = (0..tp).map(|r| self.partial(tp, (r, r))).collect();
        self.reduce(&partials, 1)
    }
}

/// The numbers are exact in the dtype: stored as f32 they are judged by `precision`.
fn judge(dtype: Dtype, r: &[f32], c: &[f32], inherited: Option<f64>) -> Decision {
    let whole = |numbers: &[f32]| {
        let shape = vec![(numbers.len() / WIDTH) as u64, WIDTH as u64];
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = Part::new(Some(0), Dtype::F32, &shape, None, bytes.into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape, padded: 0 }
    };
    decide(&measure(&whole(r), &whole(c), Float::of(dtype)), inherited, false)
}

const DTYPES: [Dtype; 4] = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F8_E4M3];

#[test]
fn correct_rounding_is_rounding() {
    for dtype in DTYPES {
        for seed in 0..4 {
            let layer = Linear::new(dtype, seed);
            let reference = layer.forward(1);
            for tp in [2, 4, 8] {
                let found = judge(dtype, &reference, &layer.forward(tp), Some(0.0));
                assert_eq!(found.verdict, Verdict::Rounding, "{dtype:?} seed {seed} TP {tp}: {found:?}");
                // A decode step of one row.
                let row = judge(dtype, &reference[..WIDTH], &layer.forward(tp)[..WIDTH], None);
                assert_eq!(row.verdict, Verdict::Rounding, "{dtype:?} seed {seed} TP {tp}: {row:?}");
            }
        }
    }
}

/// Every fault that stands out of one rounding, on every seed; e4m3 cannot show a bias of 5 %.
#[test]
fn faults_are_different() {
    for dtype in DTYPES {
        for seed in 0..3 {
            let layer = Linear::new(dtype, seed);
            let reference = layer.forward(1);
            let right = layer.forward(4);
            let partials: Vec<_> = (0..4).map(|r| layer.partial(4, (r, r))).collect();
            let mut swapped = partials.clone();
            (swapped[0], swapped[1]) = (layer.partial(4, (0, 1)), layer.partial(4, (1, 0)));
            let mut faults = vec![
                ("a rank dropped", layer.reduce(&partials[..3], 1)),
                ("two ranks swapped", layer.reduce(&swapped, 1)),
            ];
            if dtype != Dtype::F8_E4M3 {
                faults.push(("bias twice", layer.reduce(&partials, 2)));
                let all = right.iter().map(|x| round(dtype, x * 1.01)).collect();
                faults.push(("all × 1.01", all));
            }
            let change = |at: std::ops::Range<usize>, by: &dyn Fn(f32) -> f32| {
                let mut c = right.clone();
                c[at].iter_mut().for_each(|x| *x = round(dtype, by(*x)));
                c
            };
            faults.push(("a row zeroed", change(5 * WIDTH..6 * WIDTH, &|_| 0.0)));
            faults.push(("one element + 5 rms", change(777..778, &|x| x + 5.0)));
            let mut heads = right.clone();
            for row in heads.chunks_mut(WIDTH) {
                for j in 0..32 {
                    row.swap(j, 64 + j);
                }
            }
            faults.push(("two heads swapped", heads));
            for (fault, candidate) in faults {
                let found = judge(dtype, &reference, &candidate, Some(0.0));
                assert_eq!(found.verdict, Verdict::Different, "{dtype:?} seed {seed} {fault}: {found:?}");
            }
        }
    }
}

/// Noise of 3 % before the tap: unknown it is suspect in bf16, known it is rounding.
#[test]
fn inherited_noise_is_rounding_where_it_is_known() {
    let mut random = Random(1);
    let r: Vec<f32> = random.normals(64 * WIDTH, 1.0).iter().map(|x| round(Dtype::BF16, *x)).collect();
    let c: Vec<f32> = r.iter().map(|x| round(Dtype::BF16, x + 0.03 * random.normal())).collect();
    let verdict = |inherited| judge(Dtype::BF16, &r, &c, inherited).verdict;
    assert_eq!(verdict(Some(0.01)), Verdict::Rounding);
    assert_eq!(verdict(None), Verdict::Suspect);
    assert_eq!(verdict(Some(0.0)), Verdict::Different);
    assert_eq!(judge(Dtype::F32, &r, &c, None).test.unwrap().name, "level");
}

#[test]
fn zeros_of_either_sign_and_other_nans_are_no_error() {
    let rounding = judge(Dtype::F32, &[0.0; WIDTH], &[-0.0; WIDTH], None);
    assert_eq!((rounding.verdict, rounding.test), (Verdict::Rounding, None));
    let mut nan = [1f32; WIDTH];
    nan[3] = f32::from_bits(0x7fc0_0001);
    let mut other = nan;
    other[3] = f32::from_bits(0x7fc0_0002);
    assert_eq!(judge(Dtype::F32, &nan, &other, None).verdict, Verdict::Rounding);
    assert_eq!(judge(Dtype::F32, &nan, &nan, None).verdict, Verdict::Identical);
    assert_eq!(judge(Dtype::F32, &nan, &[1f32; WIDTH], None).verdict, Verdict::Different);
}

/// In noise of half a per cent each test finds the fault it is there for.
#[test]
fn each_test_finds_its_fault() {
    let mut random = Random(2);
    let r: Vec<f32> = random.normals(64 * WIDTH, 1.0).iter().map(|x| round(Dtype::BF16, *x)).collect();
    let noise: Vec<f32> = random.normals(64 * WIDTH, 0.005);
    let extra: Vec<f32> = random.normals(64 * WIDTH, 0.02);
    let vector: Vec<f32> = random.normals(WIDTH, 0.008);
    type Change<'c> = &'c dyn Fn(usize, usize, f32) -> f32;
    let faults: [(&str, Option<f64>, Change<'_>); 8] = [
        ("element", Some(0.005), &|i, j, x| if (i, j) == (7, 9) { x + 2.0 } else { x }),
        ("row", Some(0.005), &|i, j, x| if i == 7 { x + 6.0 * extra[i * WIDTH + j] } else { x }),
        ("column", Some(0.005), &|i, j, x| if j == 9 { x + 6.0 * extra[i * WIDTH + j] } else { x }),
        ("level", Some(0.001), &|i, j, x| x + extra[i * WIDTH + j]),
        ("slope", Some(0.005), &|_, _, x| x * 1.03),
        ("row slope", Some(0.005), &|i, _, x| if i == 7 { x * 1.04 } else { x }),
        ("common", Some(0.005), &|_, j, x| x + vector[j]),
        // Noise that all rows may have after taps that were identical, and one row several times.
        ("direct row", Some(0.0), &|i, j, x| {
            let error = x - r[i * WIDTH + j];
            r[i * WIDTH + j] + if i == 7 { 5.5 * error } else { 1.6 * error }
        }),
    ];
    let noisy: Vec<f32> = r.iter().zip(&noise).map(|(x, e)| x + e).collect();
    let rounded = |x: &[f32]| -> Vec<f32> { x.iter().map(|x| round(Dtype::BF16, *x)).collect() };
    let correct = judge(Dtype::BF16, &r, &rounded(&noisy), Some(0.005));
    assert_eq!(correct.verdict, Verdict::Rounding, "{correct:?}");
    for (test, inherited, change) in faults {
        let c: Vec<f32> =
            noisy.iter().enumerate().map(|(at, x)| change(at / WIDTH, at % WIDTH, *x)).collect();
        let found = judge(Dtype::BF16, &r, &rounded(&c), inherited);
        assert_eq!(
            (found.verdict, found.test.as_ref().unwrap().name.as_ref()),
            (Verdict::Different, test),
            "{found:?}"
        );
    }
}
