//! What a file may hold at the ends of its ranges neither passes unseen nor ends the comparison.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Verdict, compare};
use capture_core::{Dim, Dtype, Identity, Mesh};
use recorded::{Tensor, record, record_as};

fn f64s(numbers: impl Iterator<Item = f64>) -> Tensor {
    let bytes: Vec<u8> = numbers.flat_map(f64::to_le_bytes).collect();
    Tensor::new(0, "x", Dtype::F64, &[8, 16], bytes)
}

#[track_caller]
fn check(reference: Tensor, candidate: Tensor, expected: Verdict) {
    let (a, b) = (record("tp=1", &[reference]), record("tp=1", &[candidate]));
    let report = compare(&a.run, &b.run, &Layouts::default(), Options::default());
    assert_eq!(report.verdict, Some(expected), "{report:#?}");
}

/// 1 + i/1000 times a power of ten, off by so many roundoffs now up, now down.
fn near(scale: f64, off: f64) -> impl Iterator<Item = f64> {
    (0..128u32).map(move |i| {
        let sign = f64::from(i.wrapping_mul(2_654_435_761) >> 31) * 2.0 - 1.0;
        (1.0 + f64::from(i) / 1000.0) * scale * (1.0 + off * sign * f64::EPSILON)
    })
}

/// Squares of errors of 10^200 are infinite, and infinity over infinity is no number.
#[test]
fn errors_beyond_f64_are_different() {
    check(f64s(near(1e-100, 0.0)), f64s(near(1e100, 0.0)), Verdict::Different);
    check(f64s(near(1e-100, 0.0)), f64s(near(1e-100, 1.0)), Verdict::Rounding);
}

/// Two of these numbers add up to infinity.
#[test]
fn the_largest_numbers_are_compared_as_others_are() {
    check(f64s(near(1e308, 0.0)), f64s(near(1e308, 1.0)), Verdict::Rounding);
    check(f64s(near(1e308, 0.0)), f64s(near(1.01e308, 0.0)), Verdict::Different);
}

/// Of overlapping dimensions the first eight are tried; a mesh may have any number of them.
#[test]
fn a_mesh_of_33_dimensions_is_grouped() {
    // The file's name holds them all.
    let names =
        ('a'..='z').map(String::from).chain((0..7).map(|i| "_".repeat(i % 3 + 1) + ["", "a", "b"][i / 3]));
    let identity = |rank: u32| Identity {
        run: "r".into(),
        rank: Some(rank),
        world: Some(2),
        mesh: Mesh {
            dims: names.clone().map(|name| Dim { name, coord: rank, size: 2 }).collect(),
            assumed: false,
        },
        process: format!("{}-00000000", rank + 1),
    };
    let tensors = [0, 1].map(|rank| Tensor::f32(rank, "x", &[1], &[1.0]).placed("R"));
    let run = record_as(&tensors, identity);
    let report = compare(&run.run, &run.run, &Layouts::default(), Options::default());
    assert_eq!(report.verdict, Some(Verdict::Identical), "{report:#?}");
}
