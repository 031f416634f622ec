//! Two runs against each other: what the reports of users say must be found is found, and nothing else.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Report, Run, Verdict, compare, report::Row};
use capture_core::{Dtype, Identity, Mesh};
use recorded::{Tensor, record, record_as};

fn with_layouts(reference: &Run, candidate: &Run, layouts: &str) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layouts.toml");
    std::fs::write(&path, layouts).unwrap();
    compare(reference, candidate, &Layouts::read(&path).unwrap(), Options::default())
}

/// The rows of a comparison of a TP 1 reference with a candidate.
fn rows(reference: &[Tensor], mesh: &str, candidate: &[Tensor]) -> Vec<Row> {
    let (a, b) = (record("tp=1", reference), record(mesh, candidate));
    compare(&a.run, &b.run, &Layouts::default(), Options::default()).rows
}

/// The verdict, the ranks and the place of the worst element of the only row.
#[track_caller]
fn check(rows: &[Row], verdict: Verdict, ranks: &[u32], worst: Option<&[u64]>) {
    let [row] = rows else { panic!("expected one row, found {rows:#?}") };
    let found = row.worst.as_ref().map(|w| w.index.as_slice());
    assert_eq!((row.verdict, row.ranks.as_slice(), found), (Some(verdict), ranks, worst), "{row:#?}");
}

/// The only diagnosis of the only row.
#[track_caller]
fn text(rows: &[Row]) -> &str {
    let &[text] = texts(rows).as_slice() else { panic!("expected one diagnosis, found {rows:#?}") };
    text
}

/// The diagnoses of the only row.
#[track_caller]
fn texts(rows: &[Row]) -> Vec<&str> {
    let [row] = rows else { panic!("expected one row, found {rows:#?}") };
    row.diagnoses.iter().map(|d| d.text.as_str()).collect()
}

/// Rows of four numbers, each filled with its own number.
fn filled(rank: u32, tap: &'static str, of: &[f32]) -> Tensor {
    let numbers: Vec<f32> = of.iter().flat_map(|x| [*x; 4]).collect();
    Tensor::f32(rank, tap, &[of.len() as u64, 4], &numbers)
}

/// q0..q3, k0, k1, v0, v1 cut by sections; joined plainly the rows stand in another order.
#[test]
fn fused_sections_are_cut_each_by_itself() {
    let whole = [filled(0, "qkv", &[0., 1., 2., 3., 4., 5., 6., 7.])];
    let halves = |placement| {
        [
            filled(0, "qkv", &[0., 1., 4., 6.]).placed(placement),
            filled(1, "qkv", &[2., 3., 5., 7.]).placed(placement),
        ]
    };
    let declared = rows(&whole, "tp=2", &halves("S(0, sections=[4,2,2])"));
    check(&declared, Verdict::Identical, &[], None);
    let plain = rows(&whole, "tp=2", &halves("S(0)"));
    check(&plain, Verdict::Different, &[0, 1], Some(&[3, 0]));
    // Gate and up, by the layouts file, which overrides the capture call.
    let (a, b) = (record("tp=1", &whole), record("tp=2", &halves("S(0)")));
    let layouts = "[[tap]]\nmatch = \"q?v\"\nplacement = \"S(0, sections=[4,2,2])\"\n";
    let rows = with_layouts(&a.run, &b.run, layouts).rows;
    check(&rows, Verdict::Identical, &[], None);
    assert_eq!(rows[0].placement.as_deref(), Some("S(0, sections=[4,2,2])"));
}

/// b and a interleaved by group; cut at the midpoint as if stacked, row 1 of rank 0 is the first that is wrong.
#[test]
fn interleaved_groups_cut_as_halves_are_different() {
    let pair = |rank, of: &[f32]| filled(rank, "ba", of).placed("S(0, interleave=4)");
    // b0..b3 are 0..3, a0..a3 are 10..13.
    let whole = [filled(0, "ba", &[0., 10., 1., 11., 2., 12., 3., 13.])];
    let right = [pair(0, &[0., 10., 1., 11.]), pair(1, &[2., 12., 3., 13.])];
    check(&rows(&whole, "tp=2", &right), Verdict::Identical, &[], None);
    let wrong = [pair(0, &[0., 1., 10., 11.]), pair(1, &[2., 3., 12., 13.])];
    // Of errors of one size that of the smallest number is the largest in units.
    check(&rows(&whole, "tp=2", &wrong), Verdict::Different, &[0, 1], Some(&[2, 0]));
}

/// Partial sums passed off as replicas differ between ranks; declared as what they are they add up. Where nobody
/// said anything that is a placement to be given, and no fault of the numbers.
#[test]
fn a_skipped_reduction_is_different_and_a_declared_sum_is_not() {
    let whole = [Tensor::f32(0, "y", &[2, 2], &[1., 2., 3., 4.])];
    let parts =
        [Tensor::f32(0, "y", &[2, 2], &[0.5, 2., 1., 4.]), Tensor::f32(1, "y", &[2, 2], &[0.5, 0., 2., 0.])];
    let wrong = rows(&whole, "tp=2", &parts.clone().map(|p| p.placed("R")));
    check(&wrong, Verdict::Different, &[0, 1], Some(&[1, 1]));
    let sum = "each rank holds a partial sum: the all-reduce is missing, or the tap stands before it: then P would fit";
    assert_eq!(texts(&wrong), ["candidate: rank 1 does not hold what rank 0 does", sum]);
    let undeclared = rows(&whole, "tp=2", &parts);
    check(&undeclared, Verdict::Layout, &[0, 1], None);
    assert_eq!(undeclared[0].placement.as_deref(), Some("R"));
    assert_eq!(
        texts(&undeclared),
        [
            "candidate: no placement was given; taken as R, but ranks 0 and 1 differ: is it P? say placement=\"P\" at \
             the tap or in --layouts (\"R\" where they are meant to be equal)",
            sum
        ]
    );
    // The reference's two ranks agree, so that the tap is of replicas, and one is wrong.
    let twins = [0, 1].map(|rank| Tensor::f32(rank, "y", &[2, 2], &[0.5, 2., 1., 4.]));
    let (a, b) = (record("tp=2", &twins), record("tp=2", &parts));
    let one_wrong = compare(&a.run, &b.run, &Layouts::default(), Options::default()).rows;
    check(&one_wrong, Verdict::Different, &[1], Some(&[1, 1]));
    let declared = rows(&whole, "tp=2", &parts.map(|p| p.placed("P")));
    check(&declared, Verdict::Identical, &[], None);
}

/// The vocabulary padded from 10 to 12; uneven shards; fewer than declared.
#[test]
fn padding_is_counted_and_never_trimmed_from_the_reference() {
    let logits: Vec<f32> = (0..20).map(|i| i as f32).collect();
    let whole = [Tensor::f32(0, "logits", &[2, 10], &logits)];
    let shard = |rank: u32, columns: std::ops::Range<usize>, placement| {
        let row =
            |i: usize| columns.clone().map(move |j| if j < 10 { (10 * i + j) as f32 } else { f32::NAN });
        let numbers: Vec<f32> = row(0).chain(row(1)).collect();
        Tensor::f32(rank, "logits", &[2, columns.len() as u64], &numbers).placed(placement)
    };
    let padded = [0..3, 3..6, 6..9, 9..12];
    let padded: Vec<_> = (0..4).map(|r| shard(r, padded[r as usize].clone(), "S(1, size=10)")).collect();
    let found = rows(&whole, "tp=4", &padded);
    check(&found, Verdict::Identical, &[], None);
    assert_eq!((found[0].padded, found[0].n), (2, 20));
    let uneven = [0..3, 3..6, 6..9, 9..10];
    let uneven = |placement: &'static str| -> Vec<_> {
        (0..4).map(|r| shard(r, uneven[r as usize].clone(), placement)).collect()
    };
    check(&rows(&whole, "tp=4", &uneven("S(1)")), Verdict::Identical, &[], None);
    let short = rows(&whole, "tp=4", &uneven("S(1, size=11)"));
    check(&short, Verdict::Layout, &[0, 1, 2, 3], None);
    let fits = "the ranks' tensors joined along dim 1 are the reference: S(1) would fit";
    assert_eq!(texts(&short), ["reference: dim 1: expected 11, the slices add up to 10", fits]);
    // One column less than the reference, undeclared.
    let lost = [0..3, 3..6, 6..9, 9..9];
    let lost: Vec<_> = (0..4).map(|r| shard(r, lost[r as usize].clone(), "S(1)")).collect();
    let lost = rows(&whole, "tp=4", &lost);
    check(&lost, Verdict::Layout, &[0, 1, 2, 3], None);
    assert_eq!(text(&lost), "expected one shape, found [2, 10] and [2, 9] (candidate)");
}

/// Classes come first, zeros share a place, distance is counted in the narrower dtype.
#[test]
fn classes_come_before_distances() {
    let bf16 = |bits: [u16; 2]| {
        let bytes = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        [Tensor::new(0, "x", Dtype::BF16, &[2], bytes)]
    };
    let (inf, nan, other_nan, max, one) = (0x7f80, 0x7fc0, 0x7fc1, 0x7f7f, 0x3f80);
    for (r, c, verdict, ulp) in [
        (inf, nan, Verdict::Different, 0),
        (max, inf, Verdict::Different, 0),
        (inf, 0xff80, Verdict::Different, 0),
        (nan, other_nan, Verdict::Rounding, 0),
        (0x0000, 0x8000, Verdict::Rounding, 0),
        // The smallest numbers of either sign are two apart.
        (0x0001, 0x8001, Verdict::Rounding, 2),
        (one, 0x3f81, Verdict::Rounding, 1),
    ] {
        let found = rows(&bf16([one, r]), "tp=1", &bf16([one, c]));
        assert_eq!(
            (found[0].verdict, found[0].max_ulp),
            (Some(verdict), Some(ulp)),
            "{r:#x} {c:#x} {found:#?}"
        );
    }
    let both = rows(&bf16([one, nan]), "tp=1", &bf16([one, nan]));
    assert_eq!((both[0].verdict, both[0].both_nan, both[0].nan), (Some(Verdict::Identical), 1, 0));
    let strict = Options { fail_on_nan: true, ..Options::default() };
    let (a, b) = (record("tp=1", &bf16([one, nan])), record("tp=1", &bf16([one, nan])));
    assert_eq!(compare(&a.run, &b.run, &Layouts::default(), strict).verdict, Some(Verdict::Different));
    // An f32 copy of a bf16 tensor, and one a step of e4m3 away.
    let numbers = [1.0, 1.0078125];
    let wide = rows(&bf16([one, 0x3f81]), "tp=1", &[Tensor::f32(0, "x", &[2], &numbers)]);
    assert_eq!((wide[0].verdict, wide[0].max_ulp), (Some(Verdict::Rounding), Some(0)));
    let e4m3 = |bytes: &[u8]| [Tensor::new(0, "x", Dtype::F8_E4M3, &[bytes.len() as u64], bytes.to_vec())];
    let step = rows(&e4m3(&[0x38, 0x40]), "tp=1", &e4m3(&[0x39, 0x40]));
    assert_eq!((step[0].verdict, step[0].max_ulp), (Some(Verdict::Rounding), Some(1)));
    assert_eq!(rows(&e4m3(&[0x38, 0x7e]), "tp=1", &e4m3(&[0x38, 0x7f]))[0].nan, 1);
}

/// Every dtype is compared with itself and tells a change of one element; scalars and empty tensors too.
#[test]
fn every_dtype_is_compared() {
    use Dtype::{
        BF16, BOOL, C64, F4, F6_E2M3, F6_E3M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2, F8_E5M2FNUZ, F8_E8M0, F16, F32,
        F64, I8, I16, I32, I64, U8, U16, U32, U64,
    };
    let all = [
        BOOL,
        U8,
        I8,
        U16,
        I16,
        U32,
        I32,
        U64,
        I64,
        F16,
        BF16,
        F32,
        F64,
        C64,
        F8_E4M3,
        F8_E5M2,
        F8_E4M3FNUZ,
        F8_E5M2FNUZ,
        F8_E8M0,
        F4,
        F6_E2M3,
        F6_E3M2,
    ];
    for dtype in all {
        let n_bytes = 16 * dtype.bitsize() / 8;
        let tensor = |bytes: Vec<u8>| [Tensor::new(0, "x", dtype, &[2, 8], bytes)];
        let zeros = tensor(vec![0; n_bytes]);
        let same = rows(&zeros, "tp=1", &zeros);
        check(&same, Verdict::Identical, &[], None);
        assert_eq!(same[0].n, if dtype == C64 { 32 } else { 16 });
        let mut changed = vec![0; n_bytes];
        // The sign and exponent of the last element, or all of it; not a NaN in any format.
        changed[n_bytes - 1] = 0x40;
        let changed = rows(&zeros, "tp=1", &tensor(changed));
        let worst: &[u64] = if dtype == C64 { &[1, 7, 1] } else { &[1, 7] };
        check(&changed, Verdict::Different, &[0], Some(worst));
    }
    let scalar = [Tensor::f32(0, "x", &[], &[1.0])];
    check(&rows(&scalar, "tp=1", &scalar), Verdict::Identical, &[], None);
    let empty = |shape: &[u64]| [Tensor::f32(0, "x", shape, &[])];
    check(&rows(&empty(&[0, 7]), "tp=1", &empty(&[0, 7])), Verdict::Identical, &[], None);
    check(&rows(&empty(&[0, 7]), "tp=1", &empty(&[7, 0])), Verdict::Layout, &[0], None);
    let mut complex = Tensor::new(0, "x", F64, &[1, 2], vec![0; 16]);
    complex.encoding = Some("complex128");
    check(&rows(&[complex.clone()], "tp=1", &[complex.clone()]), Verdict::Identical, &[], None);
    let real = Tensor::new(0, "x", F64, &[1, 2], vec![0; 16]);
    check(&rows(&[complex], "tp=1", &[real]), Verdict::Layout, &[0], None);
    let mixed = rows(&[Tensor::i32(0, "x", &[1])], "tp=1", &[Tensor::f32(0, "x", &[1], &[1.0])]);
    check(&mixed, Verdict::Layout, &[0], None);
    assert_eq!(text(&mixed), "expected dtypes that can be compared, found I32 and F32 (candidate)");
}

/// One rank of four off, and the ranks that hold replicas of the fault.
#[test]
fn the_ranks_whose_part_differs_are_named() {
    let numbers: Vec<f32> = (0..64).map(|i| 1.0 + (i % 7) as f32 / 8.0).collect();
    let whole = [Tensor::f32(0, "y", &[4, 16], &numbers)];
    let slice = |rank: u32, scale: f32| {
        let row: Vec<f32> = numbers[16 * rank as usize..][..16].iter().map(|x| x * scale).collect();
        Tensor::f32(rank, "y", &[1, 16], &row).placed("S(0)")
    };
    let found = rows(&whole, "tp=4", &[slice(0, 1.), slice(1, 1.), slice(2, 2.), slice(3, 1.)]);
    check(&found, Verdict::Different, &[2], Some(&[2, 2]));
    assert_eq!(found[0].worst.as_ref().unwrap().rank, Some(2));
    let copy = |rank: u32, scale: f32| {
        let numbers: Vec<f32> = numbers.iter().map(|x| x * scale).collect();
        Tensor::f32(rank, "y", &[4, 16], &numbers).placed("R")
    };
    let found = rows(&whole, "tp=3", &[copy(0, 1.), copy(1, 2.), copy(2, 1.)]);
    check(&found, Verdict::Different, &[1], Some(&[3, 0]));
    let found = rows(&whole, "tp=3", &[copy(0, 2.), copy(1, 1.), copy(2, 2.)]);
    check(&found, Verdict::Different, &[0, 2], Some(&[3, 0]));
}

/// Data-parallel replicas are rows of their own, pipeline stages are not; ep spans tp × dp.
#[test]
fn groups_are_told_apart() {
    let whole = [Tensor::f32(0, "y", &[4], &[0., 1., 2., 3.])];
    let half = |rank: u32, at: usize, off: f32| {
        Tensor::f32(rank, "y", &[2], &[at as f32 + off, at as f32 + 1.0]).placed("S(0)")
    };
    let dp = [half(0, 0, 0.), half(1, 2, 0.), half(2, 0, 0.), half(3, 2, 9.)];
    let found = rows(&whole, "dp=2,tp=2", &dp);
    let seen: Vec<_> = found.iter().map(|r| (r.group.as_deref(), r.verdict, r.ranks.clone())).collect();
    let (same, different) = (Some(Verdict::Identical), Some(Verdict::Different));
    assert_eq!(seen, [(Some("dp=0"), same, vec![]), (Some("dp=1"), different, vec![3])]);
    let pp = [half(2, 0, 0.), half(3, 2, 0.)];
    let found = rows(&whole, "pp=2,tp=2", &pp);
    check(&found, Verdict::Identical, &[], None);
    assert_eq!(found[0].group, None);
    let quarter = |rank: u32| Tensor::f32(rank, "y", &[1], &[rank as f32]).placed("S(0)/ep");
    let b = record_as(&[0, 1, 2, 3].map(quarter), |rank| {
        let mut mesh = Mesh::from_sizes("dp=2,tp=2", rank).unwrap();
        mesh.dims.push(capture_core::Dim { name: "ep".into(), coord: rank, size: 4 });
        let process = format!("{rank}-0000000{rank}");
        Identity { run: "r".into(), rank: Some(rank), world: Some(4), mesh, process }
    });
    let found = compare(&record("tp=1", &whole).run, &b.run, &Layouts::default(), Options::default());
    check(&found.rows, Verdict::Identical, &[], None);
}

#[test]
fn what_is_on_one_side_only_is_missing() {
    let at = |tap, step| Tensor::f32(0, tap, &[1], &[1.0]).step(step);
    let found = rows(&[at("a", 0), at("b", 0), at("a", 1)], "tp=1", &[at("a", 0), at("c", 0)]);
    let seen: Vec<_> = found.iter().map(|r| (r.tap.as_str(), r.step, r.verdict.unwrap())).collect();
    let missing = Verdict::Missing;
    assert_eq!(seen, [("a", 0, Verdict::Identical), ("b", 0, missing), ("c", 0, missing), ("a", 1, missing)]);
    assert_eq!(found[2].diagnoses[0].text, "only the candidate has it");
    // A slice that is missing is no whole; a replica that is leaves the others to compare.
    let half = |rank, placement| Tensor::f32(rank, "x", &[1], &[1.0]).placed(placement);
    let whole = [Tensor::f32(0, "x", &[1], &[1.0]), Tensor::f32(0, "x", &[1], &[1.0]).step(1)];
    let found = rows(&whole, "tp=2", &[half(0, "R"), half(1, "R"), half(0, "R").step(1)]);
    assert_eq!(found[0].verdict, Some(Verdict::Identical));
    assert_eq!((found[1].verdict, found[1].n), (Some(Verdict::Missing), 1));
    let found = rows(&whole[..1], "tp=2", &[half(0, "S(0)")]);
    check(&found, Verdict::Layout, &[0], None);
    assert_eq!(text(&found), "candidate: expected 2 ranks over tp, found 1: tp 1 missing");
}

#[test]
fn processes_of_unknown_rank_are_no_slices() {
    let tensors = [0, 1].map(|rank| Tensor::f32(rank, "x", &[1], &[1.0]));
    let unknown = |rank: u32| Identity {
        run: "r".into(),
        rank: None,
        world: None,
        mesh: Mesh::default(),
        process: format!("{rank}-0000000{rank}"),
    };
    let a = record("tp=1", &tensors[..1]);
    let one = record_as(&tensors[..1], unknown);
    let two = record_as(&tensors, unknown);
    let compare = |b: &Run| compare(&a.run, b, &Layouts::default(), Options::default()).rows;
    check(&compare(&one.run), Verdict::Identical, &[], None);
    let found = compare(&two.run);
    check(&found, Verdict::Layout, &[], None);
    assert_eq!(
        text(&found),
        "candidate: expected known ranks, found 2 of 2 processes of unknown rank: set TPCAPTURE_RANK"
    );
}

/// A restarted rank: the later process's record counts, and it is said.
#[test]
fn of_two_processes_of_one_rank_the_later_counts() {
    let tensors = [Tensor::f32(0, "x", &[1], &[1.0]), Tensor::f32(1, "x", &[1], &[2.0])];
    let restarted = record_as(&tensors, |process| Identity {
        run: "r".into(),
        rank: Some(0),
        world: Some(1),
        mesh: Mesh::default(),
        process: format!("{process}-0000000{process}"),
    });
    let reference = record("tp=1", &[Tensor::f32(0, "x", &[1], &[2.0])]);
    let found = compare(&reference.run, &restarted.run, &Layouts::default(), Options::default()).rows;
    check(&found, Verdict::Identical, &[], None);
    assert_eq!(
        text(&found),
        "candidate: rank 0 recorded it in two processes, 0-00000000 and 1-00000001: used 1-00000001, which \
         started later"
    );
}

/// Valid rows by the record and by a tap that the layouts file names; first rows only.
#[test]
fn rows_past_the_valid_ones_are_left_out() {
    let whole = [Tensor::f32(0, "h", &[2, 1], &[1., 2.])];
    let padded = Tensor::f32(0, "h", &[4, 1], &[1., 2., 7., 8.]);
    let found = rows(&whole, "tp=1", &[padded.clone().rows(2)]);
    check(&found, Verdict::Identical, &[], None);
    assert_eq!((found[0].padded, found[0].n), (2, 2));
    let layouts = "[[tap]]\nmatch = \"h\"\nrows = \"num_tokens\"\n";
    let tokens = Tensor::i32(0, "num_tokens", &[2]);
    let a = record("tp=1", &[tokens.clone(), whole[0].clone()]);
    let b = record("tp=1", &[tokens, padded.clone()]);
    let report = with_layouts(&a.run, &b.run, layouts);
    assert_eq!((report.verdict, report.rows[1].padded), (Some(Verdict::Identical), 2));
    let lone = record("tp=1", std::slice::from_ref(&padded));
    let found = with_layouts(&a.run, &lone.run, layouts).rows;
    assert_eq!(
        found[1].diagnoses[0].text,
        "candidate: rows: expected tap \"num_tokens\" in step 0, found none"
    );
    // Two of four rows were kept on one side, three on the other.
    let head = |n: u64, numbers: &[f32]| {
        let mut tensor = Tensor::f32(0, "h", &[n, 1], numbers);
        tensor.full_rows = Some(4);
        [tensor]
    };
    let found = rows(&head(2, &[1., 2.]), "tp=1", &head(3, &[1., 2., 7.]));
    check(&found, Verdict::Identical, &[], None);
    assert_eq!((found[0].n, found[0].padded), (2, 1));
    check(&rows(&[padded], "tp=1", &head(2, &[1., 2.])), Verdict::Identical, &[], None);
    // Of a padded tensor's head it is not said how many rows were valid.
    let [padded_head] = head(2, &[1., 2.]).map(|t| t.rows(2));
    check(&rows(&whole, "tp=1", std::slice::from_ref(&padded_head)), Verdict::Identical, &[], None);
    check(&rows(&head(2, &[1., 2.]), "tp=1", &[padded_head]), Verdict::Identical, &[], None);
    // Where padding was kept, it is.
    let [one_row] = head(2, &[1., 2.]).map(|t| t.rows(1));
    let of_one = [Tensor::f32(0, "h", &[1, 1], &[1.])];
    check(&rows(&of_one, "tp=1", std::slice::from_ref(&one_row)), Verdict::Identical, &[], None);
    check(&rows(&whole, "tp=1", &[one_row]), Verdict::Layout, &[0], None);
    check(&rows(&whole, "tp=1", &head(2, &[1., 2.])), Verdict::Layout, &[0], None);
}

/// The first divergence is the first row in capture order, whatever its name; renamed taps are paired.
#[test]
fn the_first_divergence_is_in_capture_order() {
    let tap = |tap, x: f32| Tensor::f32(0, tap, &[1], &[x]);
    let a = record("tp=1", &[tap("z.1", 1.0), tap("b.2", 1.0), tap("a.3", 1.0)]);
    let b = record("tp=1", &[tap("y.1", 1.0), tap("b.2", 3.0), tap("a.3", 3.0)]);
    let report = with_layouts(&a.run, &b.run, "[rename]\n\"y.*\" = \"z.*\"\n");
    let taps: Vec<_> = report.rows.iter().map(|r| r.tap.as_str()).collect();
    assert_eq!(taps, ["z.1", "b.2", "a.3"]);
    let first = report.first_divergence.unwrap();
    assert_eq!((first.tap.as_str(), first.ranks), ("b.2", vec![0]));
    assert_eq!(report.counts[&Verdict::Different], 2);
}

/// Two taps renamed to one name are no restart: the second is left out, and it is said.
#[test]
fn taps_that_are_renamed_to_one_name_are_said() {
    let tap = |tap, x: f32| Tensor::f32(0, tap, &[1], &[x]);
    let a = record("tp=1", &[tap("q", 1.0)]);
    let b = record("tp=1", &[tap("q", 1.0), tap("k", 3.0)]);
    let report = with_layouts(&a.run, &b.run, "[rename]\n\"k\" = \"q\"\n");
    check(&report.rows, Verdict::Identical, &[], None);
    assert_eq!(
        text(&report.rows),
        "candidate: the layouts file gives \"q\" and \"k\" one name: used the first, left the second out"
    );
}

/// Undeclared, shapes tell: equal ones are replicas, ones that add up are slices.
#[test]
fn placements_are_inferred_from_shapes() {
    let whole = [Tensor::f32(0, "x", &[2, 2], &[1., 2., 3., 4.])];
    let columns = [Tensor::f32(0, "x", &[2, 1], &[1., 3.]), Tensor::f32(1, "x", &[2, 1], &[2., 4.])];
    let found = rows(&whole, "tp=2", &columns);
    check(&found, Verdict::Identical, &[], None);
    assert_eq!(found[0].placement.as_deref(), Some("S(1)"));
    let odd = [Tensor::f32(0, "x", &[2, 1], &[1., 3.]), Tensor::f32(1, "x", &[3, 1], &[2., 4., 5.])];
    let found = rows(&whole, "tp=2", &odd);
    check(&found, Verdict::Layout, &[0, 1], None);
    assert_eq!(
        text(&found),
        "no placement given, and none fits: reference [2, 2], candidate ranks of [2, 1], [3, 1]"
    );
    // Neither side whole: two ranks against four.
    let of = |mesh, n: u64| {
        let each = 4 / n as usize;
        let slice = |rank: u64| {
            let numbers: Vec<f32> = (0..each).map(|i| (rank as usize * each + i) as f32).collect();
            Tensor::f32(rank as u32, "x", &[each as u64], &numbers)
        };
        record(mesh, &(0..n).map(slice).collect::<Vec<_>>())
    };
    let found = compare(&of("tp=2", 2).run, &of("tp=4", 4).run, &Layouts::default(), Options::default());
    check(&found.rows, Verdict::Identical, &[], None);
}

/// What a tap may be off by is what the taps before were: the same noise is different where nothing came before.
#[test]
fn noise_carries_over_from_tap_to_tap() {
    let mut state = 3u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    let numbers: Vec<f32> = (0..4096).map(|_| half::bf16::from_f32(random()).to_f32()).collect();
    let mut off = |units: f32| -> Vec<f32> {
        numbers.iter().map(|x| x + (x.abs() + 0.5) * units / 256.0 * random() * 1.7).collect()
    };
    let (little, more, much) = (off(1.0), off(3.0), off(6.0));
    let tap = |tap, step, numbers: &[f32]| Tensor::bf16(0, tap, &[64, 64], numbers).step(step);
    let exact = |tap_, step| tap(tap_, step, &numbers);
    let found = rows(
        &[exact("a", 0), exact("b", 0), exact("c", 0)],
        "tp=1",
        &[exact("a", 0), tap("b", 0, &little), tap("c", 0, &more)],
    );
    let verdicts: Vec<_> = found.iter().map(|r| r.verdict.unwrap()).collect();
    assert_eq!(verdicts, [Verdict::Identical, Verdict::Rounding, Verdict::Rounding], "{found:#?}");
    let inherited: Vec<_> = found.iter().map(|r| r.inherited_units).collect();
    assert_eq!(&inherited[..2], &[None, Some(0.0)]);
    assert!((0.8..1.2).contains(&inherited[2].unwrap()), "{inherited:?}");
    // By its size alone it is suspect up to twice what one rounding makes.
    for (numbers, verdict) in [(&more, Verdict::Suspect), (&much, Verdict::Different)] {
        let found = rows(&[exact("a", 0), exact("c", 0)], "tp=1", &[exact("a", 0), tap("c", 0, numbers)]);
        assert_eq!(found[1].verdict, Some(verdict));
    }
}

/// Numbers in fp32 that were made of bf16 differ by what bf16 rounds, whether or not a tap shows where. A fault larger
/// than that is found, and so is one of fp32 where nothing before was coarser.
#[test]
fn what_is_stored_wider_than_a_tap_before_may_be_off_by_its_rounding() {
    let mut state = 5u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    let input: Vec<f32> = (0..1024).map(|_| random()).collect();
    let numbers: Vec<f32> = (0..1024).map(|_| random()).collect();
    let mut off = |by: f32| -> Vec<f32> { numbers.iter().map(|x| x + x * by * random()).collect() };
    let tap = |numbers: &[f32]| Tensor::f32(0, "router", &[16, 64], numbers);
    for (before, by, verdict) in [
        (Tensor::bf16(0, "in", &[16, 64], &input), 1.0 / 256.0, Verdict::Rounding),
        (Tensor::bf16(0, "in", &[16, 64], &input), 1.0 / 16.0, Verdict::Different),
        (Tensor::f32(0, "in", &[16, 64], &input), 1.0 / 256.0, Verdict::Different),
    ] {
        let found = rows(&[before.clone(), tap(&numbers)], "tp=1", &[before, tap(&off(by))]);
        assert_eq!(found[1].verdict, Some(verdict), "{found:#?}");
    }
}

/// bf16 sums of a sum over ranks in another order are rounding, and a P tap knows its terms.
#[test]
fn another_reduction_order_is_rounding() {
    let mut state = 7u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    let terms: Vec<Vec<f32>> =
        (0..8).map(|_| (0..512).map(|_| half::bf16::from_f32(random()).to_f32()).collect()).collect();
    let sum = |order: &[usize]| {
        let mut y = vec![0f32; 512];
        for rank in order {
            y.iter_mut().zip(&terms[*rank]).for_each(|(y, x)| *y = half::bf16::from_f32(*y + x).to_f32());
        }
        y
    };
    let whole = |order: &[usize]| [Tensor::bf16(0, "y", &[8, 64], &sum(order))];
    let up = whole(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let found = rows(&up, "tp=1", &whole(&[7, 6, 5, 4, 3, 2, 1, 0]));
    assert_eq!(found[0].verdict, Some(Verdict::Rounding), "{found:#?}");
    let parts: Vec<Tensor> = terms
        .iter()
        .enumerate()
        .map(|(rank, t)| Tensor::bf16(rank as u32, "y", &[8, 64], t).placed("P"))
        .collect();
    let found = rows(&up, "tp=8", &parts);
    assert_eq!(found[0].verdict, Some(Verdict::Rounding), "{found:#?}");
    // Magnitudes of the terms make the units: the errors are smaller in them.
    assert!(found[0].max_units.unwrap() < 2.0, "{found:#?}");
    let dropped = rows(&whole(&[0, 1, 2, 3, 4, 5, 6]), "tp=8", &parts);
    assert_eq!(dropped[0].verdict, Some(Verdict::Different), "{dropped:#?}");
}

/// A replica that is wrong is no padding, and neither are members of groups that changed places.
#[test]
fn the_whole_part_of_a_rank_is_no_padding() {
    let x: Vec<f32> = (0..64).map(|i| (i * 37 % 64) as f32).collect();
    let mut broken = x.clone();
    broken[9] = 99.0;
    let reference = [Tensor::f32(0, "x", &[8, 8], &x)];
    let of = |rank, numbers: &[f32], placement| Tensor::f32(rank, "x", &[8, 8], numbers).placed(placement);
    let found = rows(&reference, "tp=2", &[of(0, &x, "R"), of(1, &broken, "R")]);
    check(&found, Verdict::Different, &[1], Some(&[1, 1]));
    assert!(found[0].diagnoses.iter().all(|d| d.suggest.is_none()), "{found:#?}");
    let halves = |rank| Tensor::f32(rank, "x", &[4, 8], &x[32 * (rank as usize % 2)..][..32]);
    let swapped: Vec<Tensor> = (0..4).map(|rank| halves(rank).placed("S(0, groups=2)")).collect();
    let found = rows(&reference, "tp=4", &swapped);
    assert_eq!(found[0].verdict, Some(Verdict::Different));
    assert!(found[0].diagnoses.iter().all(|d| d.suggest.is_none()), "{found:#?}");
    // Padding of less than that is found as before.
    let padded = |rank: u32| {
        let mut rows: Vec<f32> = x.iter().copied().chain([-1.0; 8]).collect();
        Tensor::f32(rank, "x", &[3, 8], &rows.split_off(24 * rank as usize)[..24]).placed("S(0)")
    };
    let found = rows(&reference, "tp=3", &(0..3).map(padded).collect::<Vec<_>>());
    let found: Vec<_> = found[0].diagnoses.iter().filter_map(|d| d.suggest.as_deref()).collect();
    assert_eq!(found, ["S(0, size=8)"]);
}

#[test]
fn partial_sums_of_integers_are_exact() {
    let of = |rank, x: i64| Tensor::new(rank, "x", Dtype::I64, &[1], x.to_le_bytes().to_vec()).placed("P");
    let reference = [Tensor::new(0, "x", Dtype::I64, &[1], (1i64 << 53).to_le_bytes().to_vec())];
    let found = rows(&reference, "tp=2", &[of(0, 1 << 53), of(1, 1)]);
    check(&found, Verdict::Different, &[0, 1], Some(&[0]));
    assert_eq!(found[0].max_abs, Some(1.0));
    let found = rows(&reference, "tp=2", &[of(0, (1 << 53) + 1), of(1, -1)]);
    assert_eq!(found[0].verdict, Some(Verdict::Identical));
    let of = |rank, x: u8| Tensor::new(rank, "x", Dtype::I8, &[1], vec![x]).placed("P");
    let found = rows(&[of(0, 253)], "tp=2", &[of(0, 255), of(1, 254)]);
    assert_eq!(found[0].verdict, Some(Verdict::Identical), "-3 = -1 + -2");
}

/// What is all padding is not compared, and what is empty by itself is.
#[test]
fn nothing_is_not_identical() {
    let side = |sign: f32, rows| Tensor::f32(0, "a", &[2, 2], &[sign, 2.0, 3.0, 4.0]).rows(rows);
    let found = rows(&[side(1.0, 0)], "tp=1", &[side(-1.0, 0)]);
    assert_eq!(found[0].verdict, None);
    assert_eq!(texts(&found), ["nothing compared: all of it is left out as padding"]);
    let cropped = "[[tap]]\nmatch = \"a\"\ntransforms = [\"crop(0, 0)\"]\n";
    let whole = |sign: f32| record("tp=1", &[Tensor::f32(0, "a", &[2, 2], &[sign, 2.0, 3.0, 4.0])]);
    let report = with_layouts(&whole(1.0).run, &whole(-1.0).run, cropped);
    assert_eq!((report.verdict, report.exit_status()), (None, 2));
    let empty = [Tensor::f32(0, "a", &[0, 2], &[])];
    assert_eq!(rows(&empty, "tp=1", &empty)[0].verdict, Some(Verdict::Identical));
    let alone = record("tp=2", &[0, 1].map(|rank| Tensor { rank, ..side(1.0, 0) }.placed("R")));
    let rows = capture_compare::check(&alone.run, &Layouts::default(), Options::default()).rows;
    assert_eq!(rows[0].verdict, None, "{rows:#?}");
}

#[test]
fn all_ranks_that_hold_it_are_named_and_a_factor_beside_one_has_its_digits() {
    let x: Vec<f32> = (0..256).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
    let times = |rank, factor: f32| {
        let numbers: Vec<f32> = x.iter().map(|x| x * factor).collect();
        Tensor::f32(rank, "n", &[16, 16], &numbers).placed("R")
    };
    let found = rows(&[times(0, 1.0)], "tp=2", &[times(0, 2.0), times(1, 2.0)]);
    assert_eq!(texts(&found), ["candidate = 2.00 × reference"]);
    let found = rows(&[times(0, 1.0)], "tp=3", &[times(0, 2.0), times(1, 2.0), times(2, 1.0)]);
    assert!(texts(&found).contains(&"each of ranks 0, 1 = 2.00 × reference"), "{found:#?}");
    let found = rows(&[times(0, 1.0)], "tp=1", &[times(0, 1.00001)]);
    assert!(
        texts(&found).iter().any(|t| t.starts_with("candidate = 1.0000") && !t.contains("1.0000 ")),
        "{found:#?}"
    );
}

/// Weights are stored and not computed: another fine-tune is no rounding, and neither is a step of every code.
#[test]
fn stored_numbers_differ_by_a_cast_or_are_different() {
    let stored = |reference: Tensor, candidate: Tensor| {
        let (a, b) = (record("tp=1", &[reference]), record("tp=1", &[candidate]));
        let options = Options { stored: true, ..Options::default() };
        compare(&a.run, &b.run, &Layouts::default(), options).rows.remove(0)
    };
    let x: Vec<f32> = (0..64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
    let shape = &[8, 8];
    let (wide, narrow) =
        (|x: &[f32]| Tensor::f32(0, "w", shape, x), |x: &[f32]| Tensor::bf16(0, "w", shape, x));
    assert_eq!(stored(narrow(&x), narrow(&x)).verdict, Some(Verdict::Identical));
    assert_eq!(stored(wide(&x), narrow(&x)).verdict, Some(Verdict::Rounding));
    let mut moved = x.clone();
    moved[9] *= 1.01;
    let row = stored(narrow(&x), narrow(&moved));
    assert_eq!((row.verdict, row.worst.unwrap().index), (Some(Verdict::Different), vec![1, 1]));
    assert!(row.max_units.is_some() && row.max_ulp.is_some());
    assert_eq!(stored(wide(&x), narrow(&moved)).verdict, Some(Verdict::Different));
    // Truncated and not rounded.
    let cut: Vec<f32> = x.iter().map(|x| f32::from_bits(x.to_bits() & 0xffff_0000)).collect();
    assert_eq!(stored(wide(&x), narrow(&cut)).verdict, Some(Verdict::Different));
    let scales =
        |by: u8| Tensor::new(0, "w", Dtype::F8_E8M0, &[64], (0..64).map(|i| 100 + i % 20 + by).collect());
    assert_eq!(stored(scales(0), scales(1)).verdict, Some(Verdict::Different));
    let codes = |by: u8| Tensor::new(0, "w", Dtype::F8_E4M3, &[64], (0..64).map(|i| (40 + i) ^ by).collect());
    assert_eq!(stored(codes(0), codes(1)).verdict, Some(Verdict::Different));
}
