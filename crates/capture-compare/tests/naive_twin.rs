//! The statistics that stream over slices agree with a twin that holds everything in f64 and says each formula in one
//! line, for any shape, cut and numbers.

#![expect(clippy::unwrap_used, reason = "a test")]

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

/// rel L2, max abs, max units, row rms, NaN on one side, NaN on both, places of finite pairs.
struct Naive {
    rel_l2: f64,
    max_abs: f64,
    max_units: f64,
    rows: Vec<f64>,
    nan: u64,
    both_nan: u64,
    finite: u64,
}

fn naive(shape: &[u64], r: &[f32], c: &[f32]) -> Naive {
    let mut width = 1;
    for dim in shape.iter().rev() {
        if width < 16 {
            width *= *dim as usize;
        }
    }
    let pairs: Vec<(f64, f64)> = r.iter().zip(c).map(|(r, c)| (f64::from(*r), f64::from(*c))).collect();
    let ok = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
    let rows: Vec<&[(f64, f64)]> = pairs
        .chunks(width)
        .filter(|row| row.iter().filter(ok).any(|(r, c)| *r != 0.0 || *c != 0.0))
        .collect();
    let mean = |row: &[(f64, f64)]| {
        row.iter().filter(ok).map(|p| p.0.abs()).sum::<f64>() / row.iter().filter(ok).count() as f64
    };
    let median = |mut x: Vec<f64>| {
        x.retain(|x| *x > 0.0);
        x.sort_by(f64::total_cmp);
        if x.is_empty() { 1.0 } else { (x[(x.len() - 1) / 2] + x[x.len() / 2]) / 2.0 }
    };
    let typical = median(rows.iter().map(|row| mean(row)).collect());
    let column: Vec<f64> = (0..width)
        .map(|j| {
            let there: Vec<_> = rows.iter().filter(|row| ok(&&row[j])).collect();
            let sum: f64 =
                there.iter().filter(|row| mean(row) > 0.0).map(|row| row[j].0.abs() / mean(row)).sum();
            sum / there.len().max(1) as f64
        })
        .collect();
    let middle = median(column.clone());
    let n = rows.len() as f64;
    let column: Vec<f64> = column.iter().map(|c| ((c / middle * n + 4.0) / (n + 4.0)).max(0.25)).collect();
    let units = |row: &[(f64, f64)]| -> Vec<f64> {
        let a = mean(row).max(typical / 64.0);
        let of = |(p, c): (&(f64, f64), &f64)| {
            (p.1 - p.0) / (2f64.powi(-8) * (p.0.abs() + a * c) + 2f64.powi(-134))
        };
        row.iter().zip(&column).filter(|(p, _)| ok(p)).map(of).collect()
    };
    let q: Vec<Vec<f64>> = rows.iter().map(|row| units(row)).collect();
    let finite: Vec<&(f64, f64)> = pairs.iter().filter(ok).collect();
    let max = |x: f64, y: f64| x.max(y.abs());
    Naive {
        rel_l2: (finite.iter().map(|p| (p.1 - p.0).powi(2)).sum::<f64>()
            / finite.iter().map(|p| p.0.powi(2)).sum::<f64>())
        .sqrt(),
        max_abs: finite.iter().map(|p| p.1 - p.0).fold(0.0, max),
        max_units: q.iter().flatten().copied().fold(0.0, max),
        rows: q.iter().map(|q| (q.iter().map(|q| q * q).sum::<f64>() / q.len() as f64).sqrt()).collect(),
        nan: pairs.iter().filter(|p| p.0.is_nan() != p.1.is_nan()).count() as u64,
        both_nan: pairs.iter().filter(|p| p.0.is_nan() && p.1.is_nan()).count() as u64,
        finite: finite.len() as u64,
    }
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-6 * expected.abs() + 1e-300
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -4.0f32..4.0,
        2 => (-8i32..8).prop_map(|x| x as f32),
        1 => prop_oneof![Just(0.0), Just(-0.0), Just(1e-30), Just(1e30)],
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
            let r = numbers.iter().map(|(r, _)| *r).collect();
            let c = numbers.iter().map(|(r, c)| c.unwrap_or(*r)).collect();
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
    fn streaming_agrees_with_the_naive_twin(case in case()) {
        let found = check(&case);
        let expected = naive(&case.shape, &case.r, &case.c);
        prop_assert_eq!(
            (found.nan, found.both_nan, found.finite),
            (expected.nan, expected.both_nan, expected.finite)
        );
        let class = |x: &f32| (x.is_nan(), x.is_infinite(), x.is_infinite() && *x < 0.0);
        let changed = case.r.iter().zip(&case.c).position(|(r, c)| class(r) != class(c));
        prop_assert_eq!(found.class_change, changed.map(|i| i as u64));
        if found.differs {
            prop_assert!(close(found.max_abs.0, expected.max_abs));
            prop_assert!(close(found.max_units.0, expected.max_units), "{} {}", found.max_units.0, expected.max_units);
            prop_assert_eq!(found.rows.len(), expected.rows.len());
            for (line, expected) in found.rows.iter().zip(&expected.rows) {
                prop_assert!(close(line.rms, *expected), "{} {}", line.rms, expected);
            }
            if let Some(rel_l2) = found.rel_l2 {
                prop_assert!(close(rel_l2, expected.rel_l2), "{} {}", rel_l2, expected.rel_l2);
            }
            let place = case.r.iter().zip(&case.c).filter(|(r, c)| r.is_finite() && c.is_finite());
            let ulp = place.map(|(r, c)| ordered(*r).abs_diff(ordered(*c))).max().unwrap_or(0);
            prop_assert_eq!(found.max_ulp, ulp);
        } else {
            prop_assert_eq!(expected.max_abs, 0.0);
        }
    }
}

/// The integer line of f32 by its bits, +0 and -0 at 0.
fn ordered(x: f32) -> i64 {
    let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -magnitude } else { magnitude }
}
