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

/// Four ranks sample two tokens in five steps; rank 2 picks another at step 3, a third at step 4, and is gone at
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
    let different = "replicas differ: rank 2 does not hold what rank 0 does";
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
    expect(
        &rows[0],
        Some(Verdict::Different),
        &[0],
        "replicas differ: rank 0 does not hold what rank 1 does",
    );
    assert_eq!(rows[0].max_ulp, Some(1));
    let two = self::rows("tp=5", &[of(0, 1.0), of(1, 2.0), of(2, 1.0), of(3, 3.0), of(4, 1.0)]);
    expect(
        &two[0],
        Some(Verdict::Different),
        &[1, 3],
        "replicas differ: ranks 1, 3 do not hold what rank 0 does",
    );
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
    expect(&bad, Some(Verdict::Different), &[3], "replicas differ: rank 3 does not hold what rank 2 does");
}

#[test]
fn what_nobody_placed_is_described() {
    let of = |rank, x: f32| Tensor::f32(rank, "h", &[1], &[x]);
    expect(&rows("tp=2", &[of(0, 1.0), of(1, 1.0)])[0], None, &[], "equal on all ranks");
    expect(&rows("tp=2", &[of(0, 1.0), of(1, 2.0)])[0], None, &[], "different: sharded or partial?");
    expect(&rows("tp=1", &[of(0, 1.0)])[0], None, &[], "on one rank: [1]");
    let found = rows("tp=2", &[of(0, 1.0), of(1, 1.0), of(0, 1.0).step(1)]);
    let text = "on one rank: [1]; no record of rank 1";
    expect(&found[1], Some(Verdict::Missing), &[0], text);
}

/// The texts of a row, and what it is.
#[track_caller]
fn summed(mesh: &str, tensors: &[Tensor], verdict: Option<Verdict>, ranks: &[u32], text: &str) -> Row {
    let mut rows = rows(mesh, tensors);
    let out = rows.remove(1);
    expect(&out, verdict, ranks, text);
    out
}

fn inputs(of: &[&[f32]]) -> Vec<Tensor> {
    let n = of[0].len() as u64;
    of.iter().zip(0..).map(|(x, rank)| Tensor::bf16(rank, "ar.in", &[1, n], x).placed("P")).collect()
}

fn outputs(of: &[&[f32]], placement: &'static str) -> Vec<Tensor> {
    let n = of[0].len() as u64;
    of.iter().zip(0..).map(|(x, rank)| Tensor::bf16(rank, "ar.out", &[1, n], x).placed(placement)).collect()
}

/// Rank 1 left its own input in 16 bytes.
#[test]
fn an_all_reduce_that_left_a_chunk_out_is_found_on_its_rank() {
    let a: Vec<f32> = (0..32).map(|i| 1.0 + i as f32).collect();
    // Two of the numbers are so small that a sum without them is within rounding.
    let a: Vec<f32> =
        a.iter().enumerate().map(|(i, x)| if i == 8 || i == 11 { x / 65536.0 } else { *x }).collect();
    let b: Vec<f32> = (0..32).map(|i| 100.0 - i as f32).collect();
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| half::bf16::from_f32(a + b).to_f32()).collect();
    let torn = |own: &[f32]| [&sum[..8], &own[8..16], &sum[16..]].concat();
    let text = |rank: u32| {
        format!(
            "replicas differ: rank {rank} does not hold what rank {} does; rank {rank}: elements 8–15 are not the sum of \
             \"ar.in\"; rank {rank}'s output there is its own input: not reduced",
            1 - rank
        )
    };
    let of = |out: &[&[f32]]| [inputs(&[&a, &b]), outputs(out, "R")].concat();
    let bad = torn(&b);
    let row = summed("tp=2", &of(&[&sum, &bad]), Some(Verdict::Different), &[1], &text(1));
    let worst = row.worst.unwrap();
    assert_eq!(
        (worst.rank, worst.index[1] / 8, row.test.unwrap().name.as_ref()),
        (Some(1), 1, "running bound")
    );
    // The lower rank is not right by being lower.
    let mut small = b.clone();
    small[8..16].copy_from_slice(&[1e-5, 2.0, 3.0, 1e-5, 4.0, 5.0, 6.0, 7.0]);
    let sum: Vec<f32> = a.iter().zip(&small).map(|(a, b)| half::bf16::from_f32(a + b).to_f32()).collect();
    let bad = [&sum[..8], &a[8..16], &sum[16..]].concat();
    let tensors = [inputs(&[&a, &small]), outputs(&[&bad, &sum], "R")].concat();
    let row = rows("tp=2", &tensors).remove(1);
    assert_eq!((row.verdict, row.ranks.as_slice()), (Some(Verdict::Different), &[0][..]), "{row:#?}");
    // Nothing was reduced at all.
    let row = rows("tp=2", &of(&[&a, &b])).remove(1);
    assert_eq!(row.ranks, [0, 1]);
    // The errors of ranks are those against the sum, as the row's are, and not against the other replica.
    let largest = row.by_rank.iter().filter_map(|e| e.max_units).fold(0.0, f64::max);
    assert_eq!(largest.round(), row.max_units.unwrap().round(), "{row:#?}");
    // Both are wrong alike.
    let row = rows("tp=2", &of(&[&bad, &bad])).remove(1);
    assert_eq!((row.verdict, row.ranks.as_slice()), (Some(Verdict::Different), &[0, 1][..]));
    let units: Vec<_> = row.by_rank.iter().map(|e| (e.rank, e.max_units.unwrap().round())).collect();
    assert_eq!(units, [(0, 83.0), (1, 83.0)]);
    assert_eq!(row.max_units.unwrap().round(), 83.0);
}

#[test]
fn a_reduction_adds_up_but_for_rounding() {
    let (a, b): (&[f32], &[f32]) = (&[1.0, 2.0, 3.0, 4.0], &[0.5, -2.0, 1.0, 0.0078125]);
    let (sum, half): (&[f32], &[f32]) = (&[1.5, 0.0, 4.0, 4.0], &[1.5, 0.0]);
    let of = |out: Vec<Tensor>| [inputs(&[a, b]), out].concat();
    summed("tp=2", &of(outputs(&[sum, sum], "R")), Some(Verdict::Identical), &[], "the sum of \"ar.in\"");
    // A reduce-scatter.
    let text = "slices join to [1, 4]; the sum of \"ar.in\"";
    summed("tp=2", &of(outputs(&[half, &sum[2..]], "S(1)")), Some(Verdict::Rounding), &[], text);
    let text = "slices join to [1, 4]; rank 1: element 3 are not the sum of \"ar.in\"";
    let wrong = outputs(&[half, &[4.0, 9.0]], "S(1)");
    summed("tp=2", &of(wrong), Some(Verdict::Different), &[1], &text.replace("are", "is"));
    // Another tensor of the same shape, such as one after a norm.
    let other: &[f32] = &[-0.3, 0.7, 0.2, -0.9];
    summed("tp=2", &of(outputs(&[other, other], "R")), Some(Verdict::Identical), &[], "");
    // A factor over all of it.
    let text = |rank: u32| format!("rank {rank}: elements 0, 2–3 are not the sum of \"ar.in\"");
    let large: &[f32] = &[1.875, 0.0, 5.0, 5.0];
    let text = format!("{}; {}", text(0), text(1));
    summed("tp=2", &of(outputs(&[large, large], "R")), Some(Verdict::Different), &[0, 1], &text);
    // The sum without a rank, where that is most of it, as all others are.
    let (most, least): (&[f32], &[f32]) = (&[4.0, -8.0, 16.0, 2.0], &[0.5, -2.0, 1.0, 0.25]);
    let text = |y: &[f32], verdict, ranks: &[u32], text| {
        let tensors = [inputs(&[most, least, least]), outputs(&[y, y, y], "R")].concat();
        summed("tp=3", &tensors, verdict, ranks, text)
    };
    let all = "elements 0–3 are not the sum of \"ar.in\"";
    let all = format!("rank 0: {all}; rank 1: {all}; rank 2: {all}");
    text(&[4.5, -10.0, 17.0, 2.25], Some(Verdict::Different), &[0, 1, 2], &all);
    text(&[5.5, -14.0, 19.0, 2.75], Some(Verdict::Different), &[0, 1, 2], &all);
    // A residual that is small beside the sum.
    let near = "near the sum of \"ar.in\" and not the sum: was something added to it?";
    let row = text(&[5.5, -11.5, 18.25, 2.25], Some(Verdict::Suspect), &[0, 1, 2], near);
    assert_eq!(row.test.unwrap().name, "running bound");
    // A residual was added, and a massive number makes the directions of both the same.
    let massive: &[f32] = &[256.0, 0.125, 0.125, 0.125];
    let residual: &[f32] = &[512.0, 1.25, -0.75, 1.25];
    let tensors = [inputs(&[massive, massive]), outputs(&[residual, residual], "R")].concat();
    summed("tp=2", &tensors, Some(Verdict::Identical), &[], "");
    // Nobody said how it is placed.
    let unplaced =
        |of: &[&[f32]]| outputs(of, "R").into_iter().map(|t| Tensor { placement: None, ..t }).collect();
    let text = "equal on all ranks; the sum of \"ar.in\"";
    summed("tp=2", &of(unplaced(&[sum, sum])), None, &[], text);
    let text = "different: sharded or partial?; rank 1: element 0 is not the sum of \"ar.in\"";
    summed("tp=2", &of(unplaced(&[sum, &[9.0, 0.0, 4.0, 4.0]])), None, &[], text);
}

#[test]
fn the_first_number_that_is_not_finite_is_named() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let of = |rank, tap, x: &[f32]| Tensor::bf16(rank, tap, &[2, 2], x).placed("R");
    let good = [1.0; 4];
    let rows = rows(
        "tp=2",
        &[
            of(0, "a", &good),
            of(1, "a", &good),
            of(0, "b", &good),
            of(1, "b", &[1.0, 1.0, nan, nan]),
            of(0, "mask", &[-inf, 0.0, 0.0, 0.0]),
            of(1, "mask", &[-inf, 0.0, 0.0, 0.0]),
            of(0, "c", &[nan, inf, 0.0, 0.0]).step(1),
            of(1, "c", &[nan, inf, 0.0, 0.0]).step(1),
        ],
    );
    expect(&rows[0], Some(Verdict::Identical), &[], "");
    let text =
        "replicas differ: rank 1 does not hold what rank 0 does; the first NaN: rank 1, at [1, 0], 2 in all";
    expect(&rows[1], Some(Verdict::Different), &[1], text);
    let text = "the first -inf (normal in a mask): rank 0, at [0, 0]";
    expect(&rows[2], Some(Verdict::Identical), &[], text);
    expect(&rows[3], Some(Verdict::Identical), &[], "the first inf: rank 0, at [0, 1]");
}

#[test]
fn a_tap_that_misses_a_step_now_and_then_is_named() {
    let of = |tap, step| Tensor::f32(0, tap, &[1], &[1.0]).step(step);
    let all = (0..9).map(|step| of("x", step));
    let some = (0..9).filter(|step| *step != 4).map(|step| of("y", step));
    let few = (0..9).step_by(3).map(|step| of("z", step));
    let rows = rows("tp=1", &all.chain(some).chain(few).collect::<Vec<_>>());
    let said = |row: &&Row| row.diagnoses.iter().any(|d| d.text == "did not fire in step 4");
    assert_eq!(rows.iter().filter(said).map(|r| (r.tap.as_str(), r.step)).collect::<Vec<_>>(), [("y", 0)]);
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
