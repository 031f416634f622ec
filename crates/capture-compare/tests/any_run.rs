//! Whatever a run says of itself, comparing it neither panics nor takes a tensor for the same that is not: records of
//! any placement, shape, dtype, rank and step.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Verdict, check, compare};
use capture_core::Dtype;
use proptest::prelude::*;
use recorded::{Tensor, record};

const PLACEMENTS: [Option<&str>; 16] = [
    None,
    None,
    Some("R"),
    Some("P"),
    Some("S(0)"),
    Some("S(-1)"),
    Some("S(7)"),
    Some("S(0, size=3)"),
    Some("S(1, size=1, sections=[1,2])"),
    Some("S(0, sections=[2,1,1])"),
    Some("S(0, interleave=2)"),
    Some("S(0, groups=2)"),
    Some("S(1)/dp, S(0)"),
    Some("R/dp, P"),
    Some("S(0)/dp, R"),
    Some("nonsense"),
];

fn tensor() -> impl Strategy<Value = Tensor> {
    let dtypes = [Dtype::F32, Dtype::BF16, Dtype::I32, Dtype::BOOL, Dtype::F8_E8M0, Dtype::C64, Dtype::F4];
    let shape = prop::collection::vec(0u64..4, 0..3);
    let who = (0u32..4, 0u64..2, prop::sample::select(&["a", "b"][..]));
    let rows = (prop::option::weighted(0.2, 0u64..5), prop::option::weighted(0.1, 0u64..5));
    let parts =
        (who, prop::sample::select(dtypes.to_vec()), shape, prop::sample::select(PLACEMENTS.to_vec()), rows);
    (parts, any::<u64>()).prop_map(
        |(((rank, step, tap), dtype, mut shape, placement, (rows, full)), seed)| {
            // Packed elements fill whole bytes.
            if dtype == Dtype::F4 {
                shape.push(2);
            }
            let n_bytes = shape.iter().product::<u64>() as usize * dtype.bitsize() / 8;
            let bytes = (0..n_bytes).map(|i| (seed.rotate_left(8 * i as u32) % 7) as u8 * 9).collect();
            let mut tensor = Tensor::new(rank, tap, dtype, &shape, bytes).step(step);
            // What the writer would refuse is no run.
            let kept = shape.first().copied();
            tensor.placement = placement;
            tensor.full_rows = full.zip(kept).map(|(full, kept)| full.max(kept));
            tensor.rows = rows.zip(kept).map(|(rows, kept)| rows.min(kept));
            tensor
        },
    )
}

/// Tensors of which no rank records the same firing twice.
fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    prop::collection::vec(tensor(), 1..8).prop_map(|mut all| {
        let mut seen = std::collections::HashSet::new();
        all.retain(|t| seen.insert((t.rank, t.tap, t.step)));
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_is_compared_without_a_panic(
        a in tensors(),
        b in tensors(),
        meshes in prop::sample::select(&["tp=4", "dp=2,tp=2", "pp=2,tp=2", "ep=4"][..]),
    ) {
        let [a, b] = [a, b].map(|tensors| record(meshes, &tensors));
        let report = compare(&a.run, &b.run, &Layouts::default(), Options::default());
        prop_assert!(!report.rows.is_empty());
        prop_assert!(!check(&a.run, &Layouts::default(), Options::default()).rows.is_empty());
        // A run against itself differs nowhere but in what does not fit, and in replicas that are none.
        let same = compare(&a.run, &a.run, &Layouts::default(), Options::default());
        for row in &same.rows {
            let excused = row.verdict >= Some(Verdict::Missing) && !row.diagnoses.is_empty();
            // What is all padding has no verdict.
            let nothing = row.verdict.is_none() && row.n == 0;
            prop_assert!(row.verdict == Some(Verdict::Identical) || excused || nothing, "{row:#?}");
        }
    }
}
