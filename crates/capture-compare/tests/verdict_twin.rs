//! Every statistic and every test of the verdict agrees with a twin that holds everything in f64 and says each formula
//! in one line; the twin agrees with a third, in numpy, from which its numbers are literals here.

#![expect(clippy::unwrap_used, reason = "a test")]

mod naive;

use capture_compare::float::Float;
use capture_core::Dtype;
use naive::{
    draw::{Random, numbers, whole},
    statistics::{Place, Statistics},
};

fn places(r: &[f64], c: &[f64]) -> Vec<Place> {
    r.iter().copied().zip(c.iter().copied()).collect()
}

fn twin(dtype: Dtype, r: &[f64], c: &[f64], width: usize) -> Option<Statistics> {
    Statistics::of(&places(r, c), width, Float::of(dtype).unwrap(), 128 / dtype.bitsize())
}

#[track_caller]
fn close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let near = (found - expected).abs() <= tolerance * expected.abs().max(1e-9);
    assert!(near || found == expected, "{what}: expected {expected}, found {found}");
}

/// Rows of three sizes, a massive channel, a row of zeros, a repeated row and one wrong number.
fn golden(dtype: Dtype, rows: usize, width: usize, noise: f64, seed: u64) -> [Vec<f64>; 2] {
    let mut random = Random(seed);
    let mut signed = || (random.next() >> 40) as f64 / 2f64.powi(23) - 1.0;
    let mut r: Vec<f64> = (0..rows * width).map(|_| signed()).map(|x| x * x * x).collect();
    for (at, x) in r.iter_mut().enumerate() {
        *x *= (1 + at / width % 3) as f64 * if at % width == width / 3 { 40.0 } else { 1.0 };
    }
    if rows >= 12 {
        r[5 * width..6 * width].fill(0.0);
    }
    let mut c: Vec<f64> = r.iter().map(|x| x + noise * (x * signed() + 0.5 * signed())).collect();
    if rows >= 12 {
        c[5 * width..6 * width].fill(0.0);
        [&mut r, &mut c].into_iter().for_each(|t| t.copy_within(2 * width..3 * width, 7 * width));
    }
    c[rows / 2 * width + width / 2] += 1.0;
    [r, c].map(|t| numbers(&whole(dtype, rows, width, &t)))
}

/// `expected` are λ and the severities in the order of the twin, without the direct row, which numpy's has not.
#[track_caller]
fn check_golden(
    dtype: Dtype,
    [rows, width]: [usize; 2],
    noise: f64,
    seed: u64,
    inherited: Option<f64>,
    expected: [f64; 12],
) {
    let [r, c] = golden(dtype, rows, width, noise, seed);
    let found = twin(dtype, &r, &c, width).unwrap();
    close("λ", found.lambda, expected[0], 1e-8);
    for ((test, severity), expected) in found.severities(inherited).into_iter().zip(&expected[1..]) {
        close(test, severity, *expected, 1e-8);
    }
}

#[test]
#[rustfmt::skip]
fn the_twin_agrees_with_the_numpy_implementation() {
    check_golden(Dtype::BF16, [64, 256], 0.01, 1, Some(0.004),
        [1.23676687, 11.7105226, 12.7888018, 3.7736606, 0.381795167, 2.02279208, 0.54326683, 3.08048563, 0.376803532, 0.0186394264, -0.0064917213, 0.301945038]);
    check_golden(Dtype::BF16, [5, 64], 0.004, 2, Some(0.0),
        [0.695380321, 3.15809436, 0.99169164, 1.61802921, 0.150992915, 1.68468849, 0.0, 5.84325293, 0.504638952, 0.11912325, 0.0194576354, 0.34769016]);
    check_golden(Dtype::F32, [1, 512], 1e-06, 3, None,
        [15.069214, 1.61624407, 14471.7348, 45514.2727, 0.0, 0.0, 3301.78278, 51709.5172, 0.0, 0.0, 0.0, 0.329639056]);
    check_golden(Dtype::F8_E4M3, [40, 48], 0.05, 4, Some(0.02),
        [0.38942992, 0.0864655921, 0.898449562, 0.23267893, 0.380625403, 0.414343714, 0.0, 0.516061211, 0.18536411, 0.380987838, 0.0446316978, 0.19471496]);
    check_golden(Dtype::F16, [12, 256], 0.002, 5, Some(0.0004),
        [2.26218713, 58.3066452, 4.3575737, 7.64319728, 1.12438634, 5.55116271, 1.23828589, 16.107569, 1.67679238, 0.0980093354, -0.00360901249, 0.690364725]);
    check_golden(Dtype::BF16, [3, 96], 0.005, 6, None,
        [0.465612023, 13.4859658, 13.1115678, 11.7469592, 1.07170526, 0.0, 0.0, 15.5265759, 1.21686537, 0.152632912, 0.0, 0.162964208]);
}
