//! What is said of a difference: each finding where it is true, in both orders of the runs, exactly and with rounding on
//! top; none where the error has no explanation; and a suggested placement makes the comparison pass.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{
    Layouts, Options, Report, Run, Verdict, compare,
    report::{Diagnosis, Kind, Row},
};
use capture_core::Dtype;
use proptest::prelude::*;
use recorded::{Recorded, Tensor, record};

/// Numbers of a normal distribution, by the sum of twelve uniform ones.
struct Draw(u64);

impl Draw {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.uniform()).sum::<f64>() - 6.0) as f32
    }

    fn many(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
}

/// Numbers each off by about one rounding of bf16.
fn rounded(numbers: &[f32], draw: &mut Draw) -> Vec<f32> {
    numbers.iter().map(|x| x * (1.0 + draw.normal() / 600.0)).collect()
}

/// Whether the candidate's numbers have rounding on top.
const NOISE: [bool; 2] = [false, true];

fn noisy(numbers: &[f32], noise: bool, seed: u64) -> Vec<f32> {
    if noise { rounded(numbers, &mut Draw(seed)) } else { numbers.to_vec() }
}

/// Columns `from..to` of rows of `width`.
fn columns(numbers: &[f32], width: usize, from: usize, to: usize) -> Vec<f32> {
    numbers.chunks(width).flat_map(|row| row[from..to].to_vec()).collect()
}

fn layouts(text: &str) -> Layouts {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layouts.toml");
    std::fs::write(&path, text).unwrap();
    Layouts::read(&path).unwrap()
}

fn report(reference: &Run, candidate: &Run) -> Report {
    compare(reference, candidate, &Layouts::default(), Options::default())
}

/// What explains a row: all that is said but what replicas, codes and placements that do not fit say.
fn explanations(row: &Row) -> Vec<&Diagnosis> {
    let notes = [Kind::Replicas, Kind::Codes, Kind::Missing, Kind::Restart];
    let is = |d: &&Diagnosis| !notes.contains(&d.kind) && (d.kind != Kind::Placement || d.suggest.is_some());
    row.diagnoses.iter().filter(is).collect()
}

/// The only explanation of tap x.
#[track_caller]
fn check(report: &Report, kind: Kind, text: &str) {
    let row = report.rows.iter().find(|r| r.tap == "x").unwrap();
    let found: Vec<_> = explanations(row).into_iter().map(|d| (d.kind, d.text.as_str())).collect();
    assert_eq!(found, [(kind, text)], "{row:#?}");
}

/// The explanation suggests a placement that makes the comparison pass.
#[track_caller]
fn check_suggested(a: &Recorded, b: &Recorded, kind: Kind, text: &str, placement: &str) {
    let found = report(&a.run, &b.run);
    check(&found, kind, text);
    let row = found.rows.iter().find(|r| r.tap == "x").unwrap();
    assert_eq!(explanations(row)[0].suggest.as_deref(), Some(placement));
    let pasted = layouts(&format!("[[tap]]\nmatch = \"x\"\nplacement = {placement:?}\n"));
    let passed = compare(&a.run, &b.run, &pasted, Options::default());
    assert!(passed.verdict <= Some(Verdict::Rounding), "{passed:#?}");
}

/// Nothing explains tap x, which differs.
#[track_caller]
fn check_unexplained(report: &Report) {
    let row = report.rows.iter().find(|r| r.tap == "x").unwrap();
    assert_eq!(row.verdict, Some(Verdict::Different));
    assert!(explanations(row).is_empty(), "{row:#?}");
}

/// TP 1 and what was made of it on one rank, in bf16.
fn pair(reference: &[f32], candidate: &[f32], shape: &[u64]) -> [Recorded; 2] {
    [
        record("tp=1", &[Tensor::bf16(0, "x", shape, reference)]),
        record("tp=1", &[Tensor::bf16(0, "x", shape, candidate)]),
    ]
}

fn mesh(tp: usize) -> String {
    format!("tp={tp}")
}

/// Slices of columns, one for each rank.
fn by_columns(numbers: &[f32], rows: usize, order: &[usize], placement: &'static str) -> Vec<Tensor> {
    let width = numbers.len() / rows;
    let each = width / order.len();
    let slice = |(rank, slice): (usize, &usize)| {
        let own = columns(numbers, width, slice * each, (slice + 1) * each);
        Tensor::bf16(rank as u32, "x", &[rows as u64, each as u64], &own).placed(placement)
    };
    order.iter().enumerate().map(slice).collect()
}

#[test]
fn sections_are_found_and_fit() {
    for (tp, noise) in [2, 4].into_iter().flat_map(|tp| NOISE.map(|noise| (tp, noise))) {
        let whole = Draw(1).many(16 * 96);
        let c = noisy(&whole, noise, 2);
        // Sections of 64, 16 and 16 columns.
        let ranks: Vec<Tensor> = (0..tp)
            .map(|rank| {
                let share = |from: usize, n: usize| from + rank * n / tp..from + (rank + 1) * n / tp;
                let own: Vec<f32> = c
                    .chunks(96)
                    .flat_map(|row| {
                        [share(0, 64), share(64, 16), share(80, 16)].into_iter().flat_map(|s| row[s].to_vec())
                    })
                    .collect();
                Tensor::bf16(rank as u32, "x", &[16, 96 / tp as u64], &own).placed("S(1)")
            })
            .collect();
        let whole = record("tp=1", &[Tensor::bf16(0, "x", &[16, 96], &whole)]);
        let ranks = record(&mesh(tp), &ranks);
        let text = "the same columns in another order: S(1, sections=[64,16,16]) would fit";
        for [a, b] in [[&whole, &ranks], [&ranks, &whole]] {
            check_suggested(a, b, Kind::Reordered, text, "S(1, sections=[64,16,16])");
        }
    }
}

#[test]
fn rows_of_a_fused_projection_are_put_in_order() {
    let filled = |rank, of: &[f32]| {
        let numbers: Vec<f32> = of.iter().flat_map(|x| [*x; 4]).collect();
        Tensor::f32(rank, "x", &[of.len() as u64, 4], &numbers).placed("S(0)")
    };
    let a = record("tp=1", &[filled(0, &[0., 1., 2., 3., 4., 5., 6., 7.])]);
    let b = record("tp=2", &[filled(0, &[0., 1., 4., 6.]), filled(1, &[2., 3., 5., 7.])]);
    let text = "the same rows in another order: S(0, sections=[4,2,2]) would fit";
    check_suggested(&a, &b, Kind::Reordered, text, "S(0, sections=[4,2,2])");
    // Gate and up.
    let b = record("tp=2", &[filled(0, &[0., 1., 4., 5.]), filled(1, &[2., 3., 6., 7.])]);
    let text = "the same rows in another order: S(0, sections=[4,4]) would fit";
    check_suggested(&a, &b, Kind::Reordered, text, "S(0, sections=[4,4])");
}

/// Stacked halves where groups are interleaved. No placement says that; the order is said.
#[test]
fn an_order_that_no_placement_says_is_said() {
    let filled = |rank, of: &[f32], placement| {
        let numbers: Vec<f32> = of.iter().flat_map(|x| [*x; 2]).collect();
        Tensor::f32(rank, "x", &[of.len() as u64, 2], &numbers).placed(placement)
    };
    let placement = "S(0, interleave=4)";
    let a = record("tp=1", &[filled(0, &[0., 10., 1., 11., 2., 12., 3., 13.], placement)]);
    let b = record(
        "tp=2",
        &[filled(0, &[0., 1., 10., 11.], placement), filled(1, &[2., 3., 12., 13.], placement)],
    );
    let text = "the same rows in another order: rank 0 holds 0, 2, 1, 3; rank 1 holds 4, 6, 5, 7";
    check(&report(&a.run, &b.run), Kind::Reordered, text);
    let text = "the same rows in another order: 0, 2, 1, 3–4, 6, 5, 7";
    check(&report(&b.run, &a.run), Kind::Reordered, text);
    let whole = Draw(3).many(32 * 64);
    for noise in NOISE {
        let heads =
            |row: &[f32]| [0, 2, 1, 3].into_iter().flat_map(|h| row[h * 16..(h + 1) * 16].to_vec()).collect();
        let c: Vec<f32> =
            noisy(&whole, noise, 4).chunks(64).flat_map(|row| -> Vec<f32> { heads(row) }).collect();
        let [a, b] = pair(&whole, &c, &[32, 64]);
        let text = "the same columns in another order: 0–15, 32–47, 16–31, 48–63";
        check(&report(&a.run, &b.run), Kind::Reordered, text);
        check(&report(&b.run, &a.run), Kind::Reordered, text);
    }
}

/// Exactly, and with rounding.
#[test]
fn an_unreduced_partial_sum_is_found() {
    for (tp, noise) in [2, 4, 8].into_iter().flat_map(|tp| NOISE.map(|noise| (tp, noise))) {
        let mut draw = Draw(5);
        let terms: Vec<Vec<f32>> = (0..tp).map(|_| draw.many(16 * 64)).collect();
        let sum: Vec<f32> = (0..16 * 64).map(|i| terms.iter().map(|t| t[i]).sum()).collect();
        let whole = record("tp=1", &[Tensor::bf16(0, "x", &[16, 64], &noisy(&sum, noise, 6))]);
        let text = "each rank holds a partial sum: the all-reduce is missing, or the tap stands before it: then P would fit";
        for placed in [Some("R"), None] {
            let term = |(rank, t): (usize, &Vec<f32>)| {
                let t = Tensor::bf16(rank as u32, "x", &[16, 64], t);
                Tensor { placement: placed, ..t }
            };
            let ranks: Vec<Tensor> = terms.iter().enumerate().map(term).collect();
            let ranks = record(&mesh(tp), &ranks);
            for [a, b] in [[&whole, &ranks], [&ranks, &whole]] {
                check_suggested(a, b, Kind::UnreducedPartial, text, "P");
            }
        }
    }
}

#[test]
fn a_placement_that_is_not_what_is_there_is_replaced() {
    let numbers = Draw(7).many(32);
    let f16 = |rank, shape: &[u64], numbers: &[f32]| {
        let bytes = numbers.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
        Tensor::new(rank, "x", Dtype::F16, shape, bytes)
    };
    let whole = record("tp=1", &[f16(0, &[4, 8], &numbers)]);
    let halves = [f16(0, &[2, 8], &numbers[..16]), f16(1, &[2, 8], &numbers[16..])].map(|t| t.placed("R"));
    let text = "the ranks' tensors joined along dim 0 are the reference: S(0) would fit";
    check_suggested(&whole, &record("tp=2", &halves), Kind::Placement, text, "S(0)");
    let both = [0, 1].map(|rank| f16(rank, &[4, 8], &numbers).placed("S(0)"));
    let text = "every rank holds the whole: R would fit";
    check_suggested(&whole, &record("tp=2", &both), Kind::Placement, text, "R");
    let tail: Vec<f32> = numbers[24..].iter().copied().chain([f32::NAN; 16]).collect();
    let padded = [f16(0, &[3, 8], &numbers[..24]), f16(1, &[3, 8], &tail)].map(|t| t.placed("S(0)"));
    let text = "what is past 4 in dim 0 is padding: S(0, size=4) would fit";
    check_suggested(&whole, &record("tp=2", &padded), Kind::Placement, text, "S(0, size=4)");
    // KV heads: two slices on four ranks.
    let four = [0, 0, 1, 1]
        .iter()
        .enumerate()
        .map(|(rank, half)| f16(rank as u32, &[2, 8], &numbers[half * 16..(half + 1) * 16]).placed("S(0)"));
    let text = "neighbouring ranks hold the same slice of dim 0: S(0, groups=2) would fit";
    let four = record("tp=4", &four.collect::<Vec<_>>());
    check_suggested(&whole, &four, Kind::Placement, text, "S(0, groups=2)");
    check_suggested(&four, &whole, Kind::Placement, text, "S(0, groups=2)");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_ranks_is_found_and_named(
        order in prop::sample::select(vec![2usize, 3, 4, 8]).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle()),
        noise: bool,
        rows: bool,
        swapped: bool,
        seed: u64,
    ) {
        prop_assume!(!order.is_sorted());
        let n = order.len();
        let whole = Draw(seed).many(16 * n * 16);
        let c = noisy(&whole, noise, seed ^ 1);
        let ranks = match rows {
            false => by_columns(&c, 16, &order, "S(1)"),
            true => {
                let slice = |(rank, slice): (usize, &usize)| {
                    let own = &c[slice * 256..(slice + 1) * 256];
                    Tensor::bf16(rank as u32, "x", &[8, 32], own).placed("S(0)")
                };
                order.iter().enumerate().map(slice).collect()
            }
        };
        let shape = if rows { [8 * n as u64, 32] } else { [16, 16 * n as u64] };
        let (whole, ranks) = (record("tp=1", &[Tensor::bf16(0, "x", &shape, &whole)]), record(&mesh(n), &ranks));
        let moved: Vec<String> = order.iter().enumerate().filter(|(r, s)| r != *s)
            .map(|(r, s)| format!("rank {r} holds slice {s}")).collect();
        let side = if swapped { "reference: " } else { "" };
        let text = side.to_owned() + &moved.join(", ");
        let found = if swapped { report(&ranks.run, &whole.run) } else { report(&whole.run, &ranks.run) };
        check(&found, Kind::RankOrder, &text);
    }
}

#[test]
fn a_slice_on_two_ranks_is_found() {
    for noise in NOISE {
        let whole = Draw(8).many(16 * 64);
        let ranks = by_columns(&noisy(&whole, noise, 9), 16, &[0, 0, 2, 3], "S(1)");
        let (a, b) = (record("tp=1", &[Tensor::bf16(0, "x", &[16, 64], &whole)]), record("tp=4", &ranks));
        check(&report(&a.run, &b.run), Kind::DuplicateSlice, "ranks 0 and 1 hold the same slice");
        let text = "reference: ranks 0 and 1 hold the same slice";
        check(&report(&b.run, &a.run), Kind::DuplicateSlice, text);
    }
}

#[test]
fn factors_are_found() {
    let whole = Draw(10).many(32 * 64);
    for noise in NOISE {
        let c = noisy(&whole, noise, 11);
        let by = |f: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            c.iter().enumerate().map(|(i, x)| x * f(i / 64, i % 64)).collect()
        };
        let [a, b] = pair(&whole, &by(&|_, _| 2.0), &[32, 64]);
        check(&report(&a.run, &b.run), Kind::Scaled, "candidate = 2.00 × reference");
        check(&report(&b.run, &a.run), Kind::Scaled, "candidate = 0.50 × reference");
        let [a, b] = pair(&whole, &by(&|_, _| 0.0), &[32, 64]);
        check(&report(&a.run, &b.run), Kind::Scaled, "candidate holds zeros only");
        let a = record("tp=1", &[Tensor::bf16(0, "x", &[32, 64], &whole)]);
        let ranks = |numbers: &[f32]| record("tp=2", &by_columns(numbers, 32, &[0, 1], "S(1)"));
        let b = ranks(&by(&|_, j| if j < 32 { 0.5 } else { 1.25 }));
        let text = "each rank is off by its own factor: 0.50, 1.25";
        check(&report(&a.run, &b.run), Kind::ScaledPerRank, text);
        let text = "each rank is off by its own factor: 2.00, 0.80";
        check(&report(&b.run, &a.run), Kind::ScaledPerRank, text);
        let b = ranks(&by(&|_, j| if j < 32 { 1.0 } else { 1.25 }));
        check(&report(&a.run, &b.run), Kind::ScaledPerRank, "rank 1 is off by a factor: 1.25");
    }
}

/// An RMS norm over each rank's columns, of which the first half are larger.
#[test]
fn a_norm_over_the_local_shard_is_found() {
    let scale = |j: usize| if j < 32 { 3.0 } else { 1.0 };
    let x: Vec<f32> = Draw(40).many(32 * 64).iter().enumerate().map(|(i, x)| x * scale(i % 64)).collect();
    let normed = |width: usize| -> Vec<f32> {
        let norm = |of: &[f32]| (of.iter().map(|x| x * x).sum::<f32>() / of.len() as f32).sqrt();
        x.chunks(width).flat_map(|of| of.iter().map(|x| x / norm(of)).collect::<Vec<_>>()).collect()
    };
    for noise in NOISE {
        let a = record("tp=1", &[Tensor::bf16(0, "x", &[32, 64], &normed(64))]);
        let b = record("tp=2", &by_columns(&noisy(&normed(32), noise, 41), 32, &[0, 1], "S(1)"));
        for (a, b) in [(&a, &b), (&b, &a)] {
            let found = report(&a.run, &b.run);
            let [one] = explanations(&found.rows[0])[..] else { panic!("{found:#?}") };
            assert_eq!((one.kind, one.fit.len()), (Kind::ScaledPerRank, 2));
            assert!(one.text.ends_with("in the middle: a norm over the local shard?"), "{}", one.text);
        }
    }
}

#[test]
fn a_bias_added_too_often_is_found() {
    let (whole, bias) = (Draw(12).many(5 * 256), Draw(13).many(256));
    for noise in NOISE {
        let with = |n: f32| -> Vec<f32> {
            let sum: Vec<f32> = whole.iter().zip(bias.iter().cycle()).map(|(x, b)| x + n * b).collect();
            noisy(&sum, noise, 14)
        };
        let [a, b] = pair(&whole, &with(3.0), &[5, 256]);
        let unknown = "the same vector on every token: a bias added once too often or not at all";
        check(&report(&a.run, &b.run), Kind::ConstantVector, unknown);
        let known = |numbers: &[f32]| {
            let x = Tensor::bf16(0, "x", &[5, 256], numbers);
            record("tp=1", &[Tensor::bf16(0, "o_proj.bias", &[256], &bias), x])
        };
        for (n, text) in [
            (3.0, "the same vector on every token: 3.00 × o_proj.bias: added 3 times too often"),
            (1.0, "the same vector on every token: 1.00 × o_proj.bias: added once too often"),
            (-1.0, "the same vector on every token: -1.00 × o_proj.bias: left out"),
        ] {
            check(&report(&known(&whole).run, &known(&with(n)).run), Kind::ConstantVector, text);
        }
    }
}

#[test]
fn another_tap_added_too_often_is_found() {
    for (noise, tp) in NOISE.into_iter().flat_map(|noise| [1, 4].map(|tp| (noise, tp))) {
        let (whole, shared) = (Draw(15).many(16 * 64), Draw(16).many(16 * 64));
        let run = |n: f32, tp: usize| {
            let sum: Vec<f32> = whole.iter().zip(&shared).map(|(x, s)| x + n * s).collect();
            let sum = noisy(&sum, noise, 17);
            let rank = |rank| {
                [("mlp.shared_experts.out", &shared), ("unrelated", &whole), ("x", &sum)]
                    .map(|(tap, numbers)| Tensor::bf16(rank as u32, tap, &[16, 64], numbers).placed("R"))
            };
            record(&mesh(tp), &(0..tp).flat_map(rank).collect::<Vec<_>>())
        };
        let words = |n: &str| format!("candidate − reference = {n} × mlp.shared_experts.out");
        for (n, text) in [
            (1.0, words("1.00") + ": added once too often"),
            (3.0, words("3.00") + ": added 3 times too often"),
            (-1.0, words("-1.00") + ": left out"),
        ] {
            check(&report(&run(0.0, 1).run, &run(n, tp).run), Kind::AddedMultiple, &text);
        }
    }
}

/// Whether the number of a row and column is bad.
type Is<'i> = &'i dyn Fn(usize, usize) -> bool;

#[test]
fn a_pattern_is_found() {
    let whole = Draw(18).many(16 * 256);
    for noise in NOISE {
        let c = noisy(&whole, noise, 19);
        let off = |is: Is<'_>| -> Vec<f32> {
            let number = |(i, x): (usize, &f32)| if is(i / 256, i % 256) { x + 1.5 } else { *x };
            c.iter().enumerate().map(number).collect()
        };
        let every = |_: usize, j: usize| j % 32 == 7;
        let rows = |i: usize, _: usize| (3..=5).contains(&i);
        let head = |_: usize, j: usize| (64..128).contains(&j);
        let chunk = |i: usize, j: usize| i == 2 && (96..128).contains(&j);
        let cases: [(Is<'_>, &str); 4] = [
            (&every, "every 32nd element of the last dim from 7"),
            (&rows, "rows 3–5"),
            (&head, "elements 64–127 of the last dim"),
            (&chunk, "row 2, elements 96–127 of the last dim"),
        ];
        for (is, text) in cases {
            let [a, b] = pair(&whole, &off(is), &[16, 256]);
            check(&report(&a.run, &b.run), Kind::Pattern, text);
            check(&report(&b.run, &a.run), Kind::Pattern, text);
        }
        let a = record("tp=1", &[Tensor::bf16(0, "x", &[16, 256], &whole)]);
        let b = record("tp=2", &by_columns(&off(&|_, j| (160..192).contains(&j)), 16, &[0, 1], "S(1)"));
        check(&report(&a.run, &b.run), Kind::Pattern, "rank 1, elements 160–191 of the last dim");
        let mut random = Draw(20);
        let slice: Vec<f32> =
            c.iter().enumerate().map(|(i, x)| if i % 256 < 128 { *x } else { random.normal() }).collect();
        let b = record("tp=2", &by_columns(&slice, 16, &[0, 1], "S(1)"));
        check(&report(&a.run, &b.run), Kind::Pattern, "rank 1's slice and no other");
    }
}

/// Of 20 layers, more than are searched: all need the placement, and none of them is wrong.
#[test]
fn a_guessed_placement_that_does_not_fit_is_no_fault_of_the_numbers() {
    let whole = Draw(31).many(12 * 16);
    let rows = |of: [usize; 6]| of.iter().flat_map(|i| whole[16 * i..][..16].to_vec()).collect::<Vec<f32>>();
    let cut = [rows([0, 1, 2, 3, 8, 10]), rows([4, 5, 6, 7, 9, 11])];
    let names: Vec<&'static str> = (0..20).map(|i| &*format!("layers.{i}.qkv").leak()).collect();
    let of_one = names.iter().map(|tap| Tensor::bf16(0, tap, &[12, 16], &whole));
    let a = record("tp=1", &of_one.collect::<Vec<_>>());
    let candidate = |placement: Option<&'static str>| {
        let rank = |tap: &'static str, rank: usize| Tensor {
            placement,
            ..Tensor::bf16(rank as u32, tap, &[6, 16], &cut[rank])
        };
        record("tp=2", &names.iter().flat_map(|tap| [rank(tap, 0), rank(tap, 1)]).collect::<Vec<_>>())
    };
    let found = report(&a.run, &candidate(None).run);
    for row in &found.rows {
        assert_eq!(
            (row.verdict, row.max_units, row.ranks.as_slice()),
            (Some(Verdict::Layout), None, &[0, 1][..])
        );
        let suggested: Vec<_> = row.diagnoses.iter().filter_map(|d| d.suggest.as_deref()).collect();
        assert_eq!(suggested, ["S(0, sections=[8,2,2])"], "{row:#?}");
    }
    // Said at the tap it is a fault, and the rows that are not searched say so once.
    let found = report(&a.run, &candidate(Some("S(0)")).run);
    assert!(found.rows.iter().all(|row| row.verdict == Some(Verdict::Different)), "{:#?}", found.rows);
    let not_searched = |row: &Row| row.diagnoses.iter().any(|d| d.text.starts_with("not searched"));
    let at: Vec<usize> = (0..20).filter(|i| not_searched(&found.rows[*i])).collect();
    assert_eq!(at, [16]);
}

#[test]
fn a_rank_that_holds_its_own_input_is_found() {
    let inputs = [Draw(21).many(256), Draw(22).many(256)];
    let sum: Vec<f32> = inputs[0].iter().zip(&inputs[1]).map(|(a, b)| a + b).collect();
    let mut bad = sum.clone();
    bad[96..104].copy_from_slice(&inputs[1][96..104]);
    let of =
        |tap, rank, numbers: &[f32], placement| Tensor::bf16(rank, tap, &[4, 64], numbers).placed(placement);
    let run = |outputs: [&[f32]; 2]| {
        let rank = |rank: u32| {
            [of("ar.in", rank, &inputs[rank as usize], "P"), of("x", rank, outputs[rank as usize], "R")]
        };
        record("tp=2", &[rank(0), rank(1)].concat())
    };
    let found = report(&run([&sum, &sum]).run, &run([&sum, &bad]).run);
    let row = found.rows.iter().find(|r| r.tap == "x").unwrap();
    let said: Vec<_> = explanations(row).into_iter().map(|d| (d.kind, d.text.as_str())).collect();
    assert_eq!(
        said,
        [
            (Kind::Pattern, "rank 1, row 1, elements 32–39 of the last dim"),
            (Kind::NotReduced, "rank 1's output there is its own ar.in: not reduced"),
        ]
    );
    // All of it was left out.
    let whole = record("tp=1", &[of("ar.in", 0, &sum, "P"), of("x", 0, &sum, "R")]);
    let found = report(&whole.run, &run([&inputs[0], &inputs[1]]).run);
    let row = found.rows.iter().find(|r| r.tap == "x").unwrap();
    let said: Vec<_> = explanations(row).into_iter().map(|d| (d.kind, d.text.as_str())).collect();
    let partial = "each rank holds a partial sum: the all-reduce is missing, or the tap stands before it: then P would fit";
    let own = "rank 1's output there is its own ar.in: not reduced";
    assert_eq!(said, [(Kind::NotReduced, own), (Kind::UnreducedPartial, partial)]);
}

#[test]
fn a_transpose_and_a_shift_are_found() {
    for (noise, n) in NOISE.into_iter().flat_map(|noise| [16, 24].map(|n| (noise, n))) {
        let whole = Draw(23).many(16 * n);
        let c = noisy(&whole, noise, 24);
        let transpose: Vec<f32> = (0..16 * n).map(|k| c[k % 16 * n + k / 16]).collect();
        let [a, b] = pair(&whole, &transpose, &[16, n as u64]);
        let other = format!("the numbers of the transpose, [{n}, 16], read as [16, {n}]");
        check(&report(&a.run, &b.run), Kind::Transposed, if n == 16 { "transposed" } else { &other });
        for (by, text) in [
            (n, "shifted by one row: each holds what the reference has before it"),
            (1, "shifted by one element of the flat tensor: each holds what the reference has before it"),
        ] {
            let moved = [&Draw(25).many(by)[..], &c[..16 * n - by]].concat();
            let [a, b] = pair(&whole, &moved, &[16, n as u64]);
            check(&report(&a.run, &b.run), Kind::Shifted, text);
            check(&report(&b.run, &a.run), Kind::Shifted, &text.replace("before", "after"));
        }
    }
}

#[test]
fn bits_of_another_dtype_are_found() {
    let whole = Draw(26).many(256);
    let bytes = |of: &dyn Fn(f32) -> [u8; 2]| -> Vec<u8> { whole.iter().flat_map(|x| of(*x)).collect() };
    let tensor = |bytes| record("tp=1", &[Tensor::new(0, "x", Dtype::BF16, &[16, 16], bytes)]);
    let a = tensor(bytes(&|x| half::bf16::from_f32(x).to_le_bytes()));
    let b = tensor(bytes(&|x| half::f16::from_f32(x).to_le_bytes()));
    let text = "the candidate's bits are right and are of F16, read as BF16";
    check(&report(&a.run, &b.run), Kind::Reinterpreted, text);
    let text = "the reference's bits are right and are of F16, read as BF16";
    check(&report(&b.run, &a.run), Kind::Reinterpreted, text);
    let b = tensor(bytes(&|x| half::bf16::from_f32(x).to_be_bytes()));
    let text = "the candidate's bytes are in the other byte order";
    check(&report(&a.run, &b.run), Kind::Reinterpreted, text);
    let codes: Vec<u8> = (0..96).map(|i| i + 8).collect();
    let [a, b] = [Dtype::F8_E4M3, Dtype::F8_E4M3FNUZ]
        .map(|dtype| record("tp=1", &[Tensor::new(0, "x", dtype, &[6, 16], codes.clone())]));
    let text = "the candidate's bits are right and are of F8_E4M3, read as F8_E4M3FNUZ";
    check(&report(&a.run, &b.run), Kind::Reinterpreted, text);
}

#[test]
fn taps_that_hold_the_same_bytes_are_noted_once() {
    let taps = ["layers.0.out", "layers.1.out", "layers.2.out", "layers.3.out"];
    let run = |same: bool| {
        let tensor = |(i, tap): (usize, &&'static str)| {
            Tensor::bf16(0, tap, &[4, 16], &Draw(if same { 30 } else { 30 + i as u64 }).many(64))
        };
        let zeros = ["a", "b", "c"].map(|tap| Tensor::bf16(0, tap, &[4, 16], &[0.0; 64]));
        record("tp=1", &[taps.iter().enumerate().map(tensor).collect(), zeros.to_vec()].concat())
    };
    let said = |report: &Report| -> Vec<String> {
        let all = report.rows.iter().flat_map(|r| &r.diagnoses);
        all.filter(|d| d.kind == Kind::SameBytes).map(|d| d.text.clone()).collect()
    };
    let text = "4 taps hold the same bytes: layers.0.out, layers.1.out, layers.2.out, …";
    assert_eq!(said(&report(&run(false).run, &run(true).run)), [text]);
    // What is alike in both is meant to be.
    assert_eq!(said(&report(&run(true).run, &run(true).run)), [""; 0]);
}

/// Errors without an explanation get none: unrelated numbers, random places, more noise than rounding makes.
#[test]
fn what_nothing_explains_is_not_explained() {
    for seed in 0..6 {
        let mut draw = Draw(100 + seed);
        let whole = draw.many(16 * 64);
        let unrelated = draw.many(16 * 64);
        let mut scattered = rounded(&whole, &mut draw);
        for _ in 0..7 {
            let at = (draw.uniform() * 1024.0) as usize;
            scattered[at] += 3.0;
        }
        let noise: Vec<f32> = whole.iter().map(|x| x + 0.2 * draw.normal()).collect();
        for candidate in [unrelated, scattered, noise] {
            let other = draw.many(16 * 64);
            let with = |numbers: &[f32], tp: usize| {
                let rank = |t: &Tensor| [t.clone(), Tensor::bf16(t.rank, "y", &[16, 64], &other).placed("R")];
                let order: Vec<usize> = (0..tp).collect();
                let ranks: Vec<Tensor> =
                    by_columns(numbers, 16, &order, "S(1)").iter().flat_map(rank).collect();
                record(&mesh(tp), &ranks)
            };
            for tp in [1, 2, 4] {
                check_unexplained(&report(&with(&whole, 1).run, &with(&candidate, tp).run));
                check_unexplained(&report(&with(&candidate, tp).run, &with(&whole, 1).run));
            }
        }
    }
}
