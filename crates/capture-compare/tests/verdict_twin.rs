//! Every statistic and every test of the verdict agrees with a twin that holds everything in f64 and says each formula
//! in one line; the twin agrees with a third, in numpy, from which its numbers are literals here.

#![expect(clippy::unwrap_used, reason = "a test")]

mod naive;

use capture_compare::{
    float::Float,
    measure::measure,
    noise::severities,
    statistics::{self, Tail},
};
use capture_core::Dtype;
use naive::{
    draw::{ODDITIES, Random, Recipe, numbers, whole},
    statistics::{Line, Place, Statistics},
};
use proptest::prelude::*;

/// What sums in another order and another precision may differ by.
const TOLERANCE: f64 = 4e-6;

fn places(r: &[f64], c: &[f64]) -> Vec<Place> {
    r.iter().copied().zip(c.iter().copied()).collect()
}

fn twin(dtype: Dtype, r: &[f64], c: &[f64], width: usize) -> Option<Statistics> {
    Statistics::of(&places(r, c), width, Float::of(dtype).unwrap(), 128 / dtype.bitsize())
}

/// As near as that, relative to the number or, where it is a difference of others, to `scale`.
#[track_caller]
fn close_at(what: &str, found: f64, expected: f64, tolerance: f64, scale: f64) {
    let near = (found - expected).abs() <= tolerance * expected.abs().max(scale);
    assert!(near || found == expected, "{what}: expected {expected}, found {found}");
}

#[track_caller]
fn close(what: &str, found: f64, expected: f64) {
    close_at(what, found, expected, TOLERANCE, 1e-9);
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
    close_at("λ", found.lambda, expected[0], 1e-8, 0.0);
    for ((test, severity), expected) in found.severities(inherited).into_iter().zip(&expected[1..]) {
        // Numpy's has no allowance for few rows, and takes a group of columns of one row for a fault.
        let expected = match test {
            "groups" if rows == 1 => 0.9,
            "level" if inherited.is_none() => *expected,
            _ => found.of_few(*expected),
        };
        close_at(test, severity, expected, 1e-8, 1e-3);
    }
}

#[test]
#[rustfmt::skip]
fn the_twin_agrees_with_the_numpy_implementation() {
    check_golden(Dtype::BF16, [64, 256], 0.01, 1, Some(0.004),
        [1.23676687, 11.7105226, 12.7888018, 3.7736606, 0.381795167, 2.02279208, 0.54326683, 3.08048563, 0.376803532, 0.0186394264, -0.0064917213, 0.301945038]);
    check_golden(Dtype::BF16, [5, 64], 0.004, 2, Some(0.0),
        [0.695380321, 3.15809436, 0.99169164, 1.61802921, 0.150992915, 1.68468849, 0.0, 5.84325293, 0.504638952, 0.11912325, 0.0194576354, 0.278152128]);
    check_golden(Dtype::F32, [1, 512], 1e-06, 3, None,
        [15.069214, 1.61624407, 14471.7348, 45514.2727, 0.0, 0.0, 3301.78278, 51709.5172, 0.0, 0.0, 0.0, 0.329639056]);
    check_golden(Dtype::F8_E4M3, [40, 48], 0.05, 4, Some(0.02),
        [0.390450745, 0.0861149375, 0.861038183, 0.226637464, 0.382873107, 0.416883593, 0.0, 0.519000329, 0.188651386, 0.378319674, 0.0443515319, 0.195225372]);
    check_golden(Dtype::F16, [12, 256], 0.002, 5, Some(0.0004),
        [2.26218713, 58.3066452, 4.3575737, 7.64319728, 1.12438634, 5.55116271, 1.23828589, 16.107569, 1.67679238, 0.0980093354, -0.00360901249, 0.690364725]);
    check_golden(Dtype::BF16, [3, 96], 0.005, 6, None,
        [0.465612023, 13.4859658, 13.1115678, 11.7469592, 1.07170526, 0.0, 0.0, 15.5265759, 1.21686537, 0.152632912, 0.0, 0.162964208]);
}

#[track_caller]
fn lines(what: &str, found: &[statistics::Line], expected: &[Line]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        close(what, found.rms, expected.rms);
        close(what, found.n_effective, expected.n_effective);
    }
}

#[track_caller]
fn numbers_agree(what: &str, found: &[f64], expected: &[f64], scale: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    found.iter().zip(expected).for_each(|(f, e)| close_at(what, *f, *e, TOLERANCE, scale));
}

/// The tail holds some of the numbers that the twin has all of, in units of `unit`.
#[track_caller]
fn tail(what: &str, found: &Tail, largest_first: &[f64], unit: f64) {
    let at = |i: usize| largest_first[i.min(largest_first.len() - 1)] * unit;
    close(what, found.kth, at(found.k - 1));
    close(what, found.last, at(4 * found.k - 1));
}

/// Every statistic and severity of the two, after no tap, after identical ones and after noise; and the verdict, which
/// is their largest.
fn check(recipe: Recipe) {
    let [r, c] = recipe.draw();
    let found = measure(&r, &c, None);
    let expected = twin(recipe.dtype, &numbers(&r), &numbers(&c), recipe.width);
    let Some(expected) = expected else {
        assert!(!found.differs, "{recipe:?}");
        return;
    };
    // What was drawn may happen to be stored with fewer bits than the dtype has, and is then judged by these.
    let float = Float::of(recipe.dtype).unwrap();
    let found = if found.float == Some(float) { found } else { measure(&r, &c, Some(float)) };
    if found.float != Some(float) {
        return;
    }
    lines("rows", &found.rows, &expected.rows);
    lines("columns", &found.columns, &expected.columns);
    lines("blocks", &found.blocks, &expected.blocks);
    assert_eq!(found.groups.len(), expected.groups.len());
    found.groups.iter().zip(&expected.groups).for_each(|(f, e)| lines("groups", f, e));
    let u = float.roundoff();
    // Slopes are sums of errors that cancel, which are of the size of the largest row's.
    let largest = expected.rows.iter().map(|l| l.rms).fold(1.0, f64::max);
    let noise = 10.0 * u * largest;
    numbers_agree("slopes", &found.slopes, &expected.slopes, noise);
    assert_eq!(found.pieces.is_some(), expected.pieces.is_some());
    if let (Some(found), Some((slopes, rms))) = (&found.pieces, &expected.pieces) {
        numbers_agree("slopes of pieces", &found.slopes, slopes, noise);
        numbers_agree("rms of pieces", &found.rms, rms, 1e-9);
    }
    close("τ of v", found.near_noise, expected.near_lambda);
    tail("elements", &found.tail, &expected.elements, expected.tau());
    tail("near elements", &found.near_tail, &expected.near_elements, expected.near_lambda.max(0.5));
    assert_eq!(found.chunk_tail.is_some(), !expected.chunks.is_empty());
    if let Some(found) = &found.chunk_tail {
        tail("chunks", found, &expected.chunks, expected.tau());
    }
    assert_eq!(found.common.is_some(), expected.common.is_some());
    if let (Some(found), Some(expected)) = (found.common, expected.common) {
        close_at("common", found.0, expected.0, TOLERANCE, 1.0);
        close_at("common of the reference", found.1, expected.1, TOLERANCE, 1.0);
    }
    for inherited in [None, Some(0.0), Some(0.05 * u), Some(recipe.noise), Some(0.3)] {
        let (found, expected) = (severities(&found, float, inherited), expected.severities(inherited));
        assert_eq!(found.len(), expected.len());
        for (test, expected) in expected {
            let found = found.iter().find(|(name, _)| *name == test).unwrap().1;
            // What slopes are sums of is of the size of the noise, and what they may be is a few units.
            let tolerance = 10.0 * TOLERANCE * if test.ends_with("slope") { largest } else { 1.0 };
            // A share of 1 at most, of which chance's is taken away.
            let scale = if test == "common" { 0.1 } else { 1e-3 };
            close_at(&format!("{test} after {inherited:?}"), found, expected, tolerance, scale);
        }
    }
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let dtype = prop::sample::select(&[Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F8_E4M3][..]);
    let rows = prop_oneof![1usize..4, 4usize..8, 8usize..20, Just(64), 65usize..150];
    // Widths below 16 would make several rows one.
    let width = prop_oneof![16usize..70, (2usize..9).prop_map(|n| 32 * n), 250usize..300, Just(1037)];
    // Few oddities at a time.
    let oddities = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| a & b & ((1 << ODDITIES) - 1));
    (dtype, rows, width, -7.0f64..-0.5, oddities, any::<u64>()).prop_map(
        |(dtype, rows, width, exponent, oddities, seed)| {
            let noise = 10f64.powf(exponent);
            Recipe { dtype, rows, width, noise, oddities, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_verdict_agrees_with_its_twin(recipe in recipe()) {
        check(recipe);
    }
}

/// Small numbers of few bits make many rows of equal sums.
#[test]
fn a_repeat_of_one_of_many_rows_of_equal_sums_is_found() {
    for (dtype, rows, width, noise, oddities, seed) in [
        (Dtype::F8_E4M3, 109, 19, 0.1, 4564, 606),
        (Dtype::F16, 80, 21, 1e-7, 1620, 563),
        (Dtype::BF16, 128, 27, 0.1, 5525, 45),
    ] {
        check(Recipe { dtype, rows, width, noise, oddities, seed });
    }
}

/// One oddity at a time, so that none depends on luck.
#[test]
fn every_oddity_is_judged_as_the_twin_does() {
    for (i, dtype) in [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F8_E4M3].into_iter().enumerate() {
        for bit in 0..ODDITIES {
            for (rows, width) in [(1, 512), (2, 16), (3, 40), (6, 256), (24, 128), (80, 50)] {
                let seed = u64::from(bit) * 100 + i as u64;
                check(Recipe { dtype, rows, width, noise: 0.01, oddities: 1 << bit, seed });
            }
        }
    }
}
