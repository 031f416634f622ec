use super::*;
use crate::{assemble::assemble as put_together, part::Part};
use capture_core::{Dtype, Mesh};
use proptest::prelude::*;

/// Where `n` neighbouring slices of `length` begin and end.
fn slices(length: u64, cuts: &[u64]) -> Vec<(u64, u64)> {
    let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (length + 1)).chain([0, length]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|w| (w[0], w[1])).collect()
}

fn member<'a>(rank: usize, mesh: &'a Mesh, dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Member<'a> {
    let part = Part::new(Some(rank as u32), dtype, shape, None, bytes.into()).unwrap();
    Member { part, mesh, rows: None, headed: false }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every rank holds the scales of the blocks that its rows and columns lie in, by the definition of a block: the
    /// number of a row divided by the block's rows. Together they are all scales, and replicas agree.
    #[test]
    fn scales_of_any_cut_make_the_whole(
        (rows, columns) in (1u64..20, 1u64..20),
        (m, n) in (1u64..8, 1u64..8),
        row_cuts in prop::collection::vec(any::<u64>(), 0..3),
        column_cuts in prop::collection::vec(any::<u64>(), 0..3),
    ) {
        let (ep, tp) = (slices(rows, &row_cuts), slices(columns, &column_cuts));
        let of = format!("ep={},tp={}", ep.len(), tp.len());
        let count = ep.len() * tp.len();
        let meshes: Vec<Mesh> = (0..count).map(|r| Mesh::from_sizes(&of, r as u32).unwrap()).collect();
        let (mut weights, mut scales) = (Vec::new(), Vec::new());
        for (rank, mesh) in meshes.iter().enumerate() {
            let ((a, b), (c, d)) = (ep[rank / tp.len()], tp[rank % tp.len()]);
            let zeros = vec![0; ((b - a) * (d - c)) as usize];
            weights.push(member(rank, mesh, Dtype::U8, &[b - a, d - c], zeros));
            let blocks = |from: u64, to: u64, of: u64| {
                let mut all: Vec<u64> = (from..to).map(|i| i / of).collect();
                all.dedup();
                all
            };
            let (held_rows, held_columns) = (blocks(a, b, m), blocks(c, d, n));
            let held = held_rows.iter().flat_map(|i| held_columns.iter().map(move |j| (i * 32 + j) as u16));
            let shape = [held_rows.len() as u64, held_columns.len() as u64];
            let bytes = held.flat_map(u16::to_le_bytes).collect();
            scales.push(member(rank, mesh, Dtype::U16, &shape, bytes));
        }
        let placements: Placements = "S(0)/ep, S(1)".parse().unwrap();
        let weight = put_together(weights, &placements, None).unwrap();
        let found = assemble(scales, &weight, &placements, &[m, n]);
        let whole = found.map_err(|(rank, misfit)| TestCaseError::fail(format!("{rank:?}: {misfit}")))?;
        prop_assert_eq!(&whole.shape, &vec![rows.div_ceil(m), columns.div_ceil(n)]);
        for replica in std::iter::once(whole.clone()).chain(whole.alternatives()) {
            let mut numbers = vec![0.0; replica.len() as usize];
            replica.read(0, &mut numbers);
            let at = |i: usize| (i as u64 / whole.shape[1] * 32 + i as u64 % whole.shape[1]) as f64;
            prop_assert_eq!(numbers, (0..replica.len() as usize).map(at).collect::<Vec<_>>());
        }
        prop_assert!(misplaced(&whole, &whole).is_empty());
    }
}
