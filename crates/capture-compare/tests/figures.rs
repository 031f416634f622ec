//! However a tensor is cut over ranks, the figures of a report are those of the whole, for any shape, cut and numbers.

#![expect(clippy::unwrap_used, reason = "a test")]

mod naive;

use capture_compare::{
    assemble::{Member, assemble},
    exact::same_bits,
    float::BF16,
    measure::measure,
    part::Part,
    statistics::Statistics,
    whole::Whole,
};
use capture_core::{Dtype, Mesh};
use naive::statistics::Place;
use proptest::prelude::*;

/// The tensor cut along `axis` into slices of these lengths.
fn sliced<'a>(shape: &[u64], axis: usize, cuts: &[u64], numbers: &[f32], meshes: &'a [Mesh]) -> Whole<'a> {
    let inner: usize = shape[axis + 1..].iter().product::<u64>() as usize;
    let mut start = 0;
    let members = cuts.iter().zip(meshes).enumerate().map(|(rank, (&cut, mesh))| {
        let stride = shape[axis] as usize * inner;
        let (from, len) = (start as usize * inner, cut as usize * inner);
        let own = numbers.chunks(stride.max(1)).flat_map(|outer| &outer[from..from + len]);
        let bytes: Vec<u8> = own.flat_map(|x| x.to_le_bytes()).collect();
        start += cut;
        let mut shape = shape.to_vec();
        shape[axis] = cut;
        let part = Part::new(Some(rank as u32), Dtype::F32, &shape, None, bytes.into()).unwrap();
        Member { part, mesh, rows: None, headed: false }
    });
    assemble(members.collect(), &format!("S({axis})").parse().unwrap(), None).unwrap()
}

/// The figures of a report, one formula each.
struct Figures {
    rel_l2: f64,
    max_abs: f64,
    nan: u64,
    both_nan: u64,
    finite: u64,
    max_ulp: u64,
    class_change: Option<u64>,
}

fn figures(places: &[Place]) -> Figures {
    let finite: Vec<&Place> = places.iter().filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
    let sum = |of: &dyn Fn(&Place) -> f64| finite.iter().map(|p| of(p)).sum::<f64>();
    let count = |holds: &dyn Fn(&Place) -> bool| places.iter().filter(|p| holds(p)).count() as u64;
    let class = |x: f64| (x.is_nan(), x.is_infinite(), x.is_infinite() && x < 0.0);
    Figures {
        rel_l2: (sum(&|p| (p.1 - p.0).powi(2)) / sum(&|p| p.0 * p.0)).sqrt(),
        max_abs: finite.iter().map(|p| (p.1 - p.0).abs()).fold(0.0, f64::max),
        nan: count(&|p| p.0.is_nan() != p.1.is_nan()),
        both_nan: count(&|p| p.0.is_nan() && p.1.is_nan()),
        finite: finite.len() as u64,
        max_ulp: finite.iter().map(|p| ordered(p.0 as f32).abs_diff(ordered(p.1 as f32))).max().unwrap_or(0),
        class_change: places.iter().position(|p| class(p.0) != class(p.1)).map(|at| at as u64),
    }
}

/// Numbers in a row: the trailing dims that hold at least 16.
fn width(shape: &[u64]) -> usize {
    let grow = |width: u64, dim: &u64| if width < 16 { width * dim } else { width };
    shape.iter().rev().fold(1, grow) as usize
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-6 * expected.abs() + 1e-300
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -4.0f32..4.0,
        2 => (-8i32..8).prop_map(|x| x as f32),
        1 => prop_oneof![Just(0.0), Just(-0.0), Just(1e-12), Just(1e12)],
        1 => prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)],
    ]
}

/// A shape of up to three dims, an axis, its cuts on either side, and two sets of numbers that mostly agree.
#[derive(Debug, Clone)]
struct Case {
    shape: Vec<u64>,
    axis: usize,
    cuts: [Vec<u64>; 2],
    r: Vec<f32>,
    c: Vec<f32>,
}

fn case() -> impl Strategy<Value = Case> {
    prop::collection::vec(1u64..9, 1..4)
        .prop_flat_map(|shape| {
            let n = shape.iter().product::<u64>() as usize;
            let axes = 0..shape.len();
            let numbers = prop::collection::vec((number(), prop::option::weighted(0.2, number())), n);
            (
                Just(shape),
                axes,
                prop::collection::vec(0u64..9, 0..4),
                prop::collection::vec(0u64..9, 0..4),
                numbers,
            )
        })
        .prop_map(|(shape, axis, a, b, numbers)| {
            let cuts = [a, b].map(|places| {
                let mut places: Vec<u64> = places.into_iter().map(|p| p.min(shape[axis])).collect();
                places.extend([0, shape[axis]]);
                places.sort_unstable();
                places.windows(2).map(|w| w[1] - w[0]).collect()
            });
            let mut r: Vec<f32> = numbers.iter().map(|(r, _)| *r).collect();
            let mut c: Vec<f32> = numbers.iter().map(|(r, c)| c.unwrap_or(*r)).collect();
            // Some rows repeat the first one.
            let row = width(&shape);
            for from in (row..r.len()).step_by(row).filter(|from| from / row % 3 == 1) {
                r.copy_within(..row, from);
                c.copy_within(..row, from);
            }
            Case { shape, axis, cuts, r, c }
        })
}

fn check(case: &Case) -> Statistics {
    let meshes = |n: usize| -> Vec<Mesh> {
        (0..n).map(|rank| Mesh::from_sizes(&format!("tp={n}"), rank as u32).unwrap()).collect()
    };
    let meshes = case.cuts.clone().map(|cuts| meshes(cuts.len()));
    let whole = |side: usize, numbers: &[f32]| {
        sliced(&case.shape, case.axis, &case.cuts[side], numbers, &meshes[side])
    };
    let (r, c) = (whole(0, &case.r), whole(1, &case.c));
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(same_bits(&r, &c), bits(&case.r) == bits(&case.c));
    measure(&r, &c, Some(BF16))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn figures_are_those_of_the_whole(case in case()) {
        let found = check(&case);
        let places: Vec<Place> = case.r.iter().zip(&case.c).map(|(r, c)| (f64::from(*r), f64::from(*c))).collect();
        let expected = figures(&places);
        prop_assert_eq!(
            (found.nan, found.both_nan, found.finite, found.class_change),
            (expected.nan, expected.both_nan, expected.finite, expected.class_change)
        );
        let Some(twin) = naive::statistics::Statistics::of(&places, width(&case.shape), BF16, 4) else {
            prop_assert!(!found.differs && expected.max_abs == 0.0);
            return Ok(());
        };
        prop_assert_eq!(found.max_ulp, expected.max_ulp);
        prop_assert!(close(found.max_abs.0, expected.max_abs));
        prop_assert!(close(found.max_units.0, twin.elements[0] * twin.tau()));
        prop_assert_eq!(found.rows.len(), twin.rows.len());
        for (line, expected) in found.rows.iter().zip(&twin.rows) {
            prop_assert!(close(line.rms, expected.rms), "{} {}", line.rms, expected.rms);
        }
        if let Some(rel_l2) = found.rel_l2 {
            prop_assert!(close(rel_l2, expected.rel_l2), "{} {}", rel_l2, expected.rel_l2);
        }
    }
}

/// A row that repeats one before it is no evidence of its own, but the rank that holds it is off nonetheless.
#[test]
fn a_rank_whose_rows_repeat_those_of_another_is_off_too() {
    let r: Vec<f32> = (0..32u16).map(|j| f32::from(j % 16 + 1)).collect();
    let c: Vec<f32> = r.iter().map(|x| x * 1.25).collect();
    let found = check(&Case { shape: vec![2, 16], axis: 0, cuts: [vec![2], vec![1, 1]], r, c });
    assert_eq!(found.parts[0], found.parts[1]);
}

/// Rows of the same numbers in another order have equal sums, and are none the less rows of their own.
#[test]
fn a_row_that_repeats_one_of_many_with_equal_sums_counts_once() {
    let mut r: Vec<f32> =
        (0..12u16).flat_map(|i| (0..16).map(move |j| f32::from((i + j) % 16 + 1))).collect();
    r.extend_from_within(11 * 16..);
    let c: Vec<f32> = r.iter().map(|x| x * 1.25).collect();
    let found = check(&Case { shape: vec![13, 16], axis: 0, cuts: [vec![13], vec![13]], r, c });
    assert_eq!(found.rows.len(), 12);
}

/// The integer line of f32 by its bits, +0 and -0 at 0.
fn ordered(x: f32) -> i64 {
    let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -magnitude } else { magnitude }
}
