//! One run across its ranks: replicas agree step by step, and what nobody placed is only described.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Verdict, check, report::Row};
use recorded::{Tensor, record};

fn rows(mesh: &str, tensors: &[Tensor]) -> Vec<Row> {
    check(&record(mesh, tensors).run, &Layouts::default(), Options::default()).rows
}

#[track_caller]
fn expect(row: &Row, verdict: Option<Verdict>, ranks: &[u32], text: &str) {
    let texts: Vec<&str> = row.diagnoses.iter().map(|d| d.text.as_str()).collect();
    assert_eq!((row.verdict, row.ranks.as_slice()), (verdict, ranks), "{row:#?}");
    assert_eq!(texts.join("; "), text);
}

/// U16: four ranks sample two tokens in five steps; rank 2 picks another at step 3, a third at step 4, and is gone at
/// step 5.
#[test]
fn a_rank_that_samples_another_token_is_found_at_its_first_step() {
    let mut tensors = Vec::new();
    for step in 1..=5 {
        for rank in 0..4 {
            let tokens: &[i32] = match (rank, step) {
                (2, 5) => continue,
                (2, 4) => &[7, 8, 9],
                (2, 3) => &[7, 9],
                _ => &[7, 8],
            };
            tensors.push(Tensor::i32(rank, "sampled", tokens).placed("R").step(step));
        }
    }
    let report = check(&record("tp=4", &tensors).run, &Layouts::default(), Options::default());
    let rows = &report.rows;
    assert_eq!(rows.iter().map(|r| r.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for row in &rows[..2] {
        expect(row, Some(Verdict::Identical), &[], "");
    }
    let different = "replicas differ: the others hold what rank 0 does";
    expect(&rows[2], Some(Verdict::Different), &[2], different);
    let worst = rows[2].worst.as_ref().unwrap();
    assert_eq!((worst.index.as_slice(), worst.reference, worst.candidate), (&[1][..], 8.0, 9.0));
    assert_eq!(worst.rank, Some(2));
    let shapes =
        "expected shapes that fit together under R, found rank 0 [2], rank 1 [2], rank 2 [3], rank 3 [2]";
    expect(&rows[3], Some(Verdict::Layout), &[0, 1, 2, 3], shapes);
    expect(&rows[4], Some(Verdict::Missing), &[0, 1, 3], "no record of rank 2");
    let first = report.first_divergence.as_ref().unwrap();
    assert_eq!((first.step, first.ranks.as_slice()), (3, &[2][..]));
    assert_eq!(report.exit_status(), 1);
}

/// Bits count: replicas that differ by one rounding are different, and the odd one out is named.
#[test]
fn replicas_are_compared_bit_for_bit() {
    let of = |rank, x: f32| Tensor::bf16(rank, "h", &[2], &[1.0, x]).placed("R");
    let rows = rows("tp=3", &[of(0, 1.0078125), of(1, 1.0), of(2, 1.0)]);
    expect(&rows[0], Some(Verdict::Different), &[0], "replicas differ: the others hold what rank 1 does");
    assert_eq!(rows[0].max_ulp, Some(1));
}

#[test]
fn slices_and_sums_need_only_fit() {
    let of = |rank, placement| Tensor::f32(rank, "h", &[2, 1], &[1.0, rank as f32]).placed(placement);
    let seen = |placement| rows("tp=2", &[of(0, placement), of(1, placement)]).remove(0);
    expect(&seen("S(1)"), None, &[], "slices join to [2, 2]");
    expect(&seen("P"), None, &[], "partial sums of [2, 1]");
    let size = "dim 1: expected 3, the slices add up to 2";
    expect(&seen("S(1, size=3)"), Some(Verdict::Layout), &[0, 1], size);
    let lone = rows("tp=2", &[of(0, "S(1)")]).remove(0);
    expect(&lone, Some(Verdict::Layout), &[0], "expected 2 ranks over tp, found 1: tp 1 missing");
    let wrong = rows("tp=2", &[of(0, "S(1)"), of(1, "R")]).remove(0);
    let text = "expected one placement from all ranks, found R and S(1)";
    expect(&wrong, Some(Verdict::Layout), &[0, 1], text);
    let nonsense = rows("tp=2", &[of(0, "Q")]).remove(0);
    let text = "placement \"Q\", column 0: expected R, P, S(dim) or scale_of(tap)";
    expect(&nonsense, Some(Verdict::Layout), &[0], text);
}

/// KV heads held by two ranks each: the replicas inside a group are compared.
#[test]
fn replicas_inside_a_group_are_compared() {
    let of = |rank, x: f32| Tensor::f32(rank, "k", &[1], &[x]).placed("S(0, groups=2)");
    let good = rows("tp=4", &[of(0, 1.0), of(1, 1.0), of(2, 2.0), of(3, 2.0)]).remove(0);
    expect(&good, Some(Verdict::Identical), &[], "");
    let bad = rows("tp=4", &[of(0, 1.0), of(1, 1.0), of(2, 2.0), of(3, 3.0)]).remove(0);
    expect(&bad, Some(Verdict::Different), &[3], "replicas differ: the others hold what rank 0, 2 does");
}

#[test]
fn what_nobody_placed_is_described() {
    let of = |rank, x: f32| Tensor::f32(rank, "h", &[1], &[x]);
    expect(&rows("tp=2", &[of(0, 1.0), of(1, 1.0)])[0], None, &[], "equal on all ranks");
    expect(&rows("tp=2", &[of(0, 1.0), of(1, 2.0)])[0], None, &[], "different: sharded or partial?");
    expect(&rows("tp=2", &[of(0, 1.0)])[0], None, &[], "on one rank: [1]");
    // Rank 1 recorded the tap at step 0, so that it is missed at step 1.
    let found = rows("tp=2", &[of(0, 1.0), of(1, 1.0), of(0, 1.0).step(1)]);
    let text = "on one rank: [1]; no record of rank 1";
    expect(&found[1], Some(Verdict::Missing), &[0], text);
}

#[test]
fn nans_are_counted_and_fail_where_asked() {
    let tensors = [Tensor::f32(0, "h", &[3], &[f32::NAN, 1.0, f32::NAN])];
    let recorded = record("tp=1", &tensors);
    let report = check(&recorded.run, &Layouts::default(), Options::default());
    assert_eq!((report.rows[0].both_nan, report.verdict, report.exit_status()), (2, None, 2));
    let strict = Options { fail_on_nan: true, ..Options::default() };
    let report = check(&recorded.run, &Layouts::default(), strict);
    assert_eq!((report.verdict, report.exit_status()), (Some(Verdict::Different), 1));
}
