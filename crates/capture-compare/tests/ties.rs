//! Ids that differ because rounding moved their scores past each other, and what follows from that.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{
    Layouts, Options, Report, Verdict, compare,
    report::{Kind, Row},
};
use capture_core::Dtype;
use recorded::{Tensor, record};
use std::path::Path;

use Verdict::{Different, Identical, Rounding, Suspect};

/// 1 and the next bf16 number above it.
const LOW: f32 = 1.0;
const HIGH: f32 = 1.0078125;

/// Scores of four experts for six tokens: of row 2 the second and the third are next to each other.
const SCORES: [[f32; 4]; 6] = [
    [4.0, 2.0, 1.0, 0.5],
    [0.5, 3.0, 2.0, 1.0],
    [4.0, HIGH, LOW, 0.5],
    [2.0, 1.0, 0.5, 4.0],
    [1.0, 0.5, 2.0, 3.0],
    [3.0, 0.5, 2.0, 1.0],
];
const IDS: [[i32; 2]; 6] = [[0, 1], [1, 2], [0, 1], [3, 0], [3, 2], [0, 2]];

/// The same where rounding swapped the two.
fn swapped() -> ([[f32; 4]; 6], [[i32; 2]; 6]) {
    let (mut scores, mut ids) = (SCORES, IDS);
    scores[2] = [4.0, LOW, HIGH, 0.5];
    ids[2] = [0, 2];
    (scores, ids)
}

fn scores(tap: &'static str, rows: &[[f32; 4]]) -> Tensor {
    Tensor::bf16(0, tap, &[rows.len() as u64, 4], rows.as_flattened())
}

fn ids<const K: usize>(tap: &'static str, rows: &[[i32; K]]) -> Tensor {
    let bytes = rows.as_flattened().iter().flat_map(|id| id.to_le_bytes()).collect();
    Tensor::new(0, tap, Dtype::I32, &[rows.len() as u64, K as u64], bytes)
}

/// 32 numbers for each of six tokens, those of some rows times a factor.
fn out(tap: &'static str, rows: &[u64], factor: f32) -> Tensor {
    let number = |i: u64| {
        let x = ((i * i * 7 + i * 37 + 11) % 61) as f32 / 16.0 - 2.0;
        if rows.contains(&(i / 32)) { x * factor } else { x }
    };
    Tensor::bf16(0, tap, &[6, 32], &(0..192).map(number).collect::<Vec<_>>())
}

fn report(reference: &[Tensor], candidate: &[Tensor], layouts: &str) -> Report {
    let (a, b) = (record("tp=1", reference), record("tp=1", candidate));
    let layouts = Layouts::of_text(Path::new("layouts.toml"), layouts).unwrap();
    compare(&a.run, &b.run, &layouts, Options::default())
}

/// The verdicts in capture order.
fn verdicts(report: &Report) -> Vec<Option<Verdict>> {
    report.rows.iter().map(|row| row.verdict).collect()
}

#[track_caller]
fn text(row: &Row, kind: Kind) -> &str {
    let found = row.diagnoses.iter().find(|d| d.kind == kind);
    &found.unwrap_or_else(|| panic!("expected {kind:?}, found {row:#?}")).text
}

#[test]
fn a_tie_is_suspect_and_its_row_left_out_of_what_follows() {
    let (tied, other) = swapped();
    let reference =
        [scores("gate", &SCORES), ids("topk_ids", &IDS), out("out", &[], 1.0), out("next", &[], 1.0)];
    let candidate =
        [scores("gate", &tied), ids("topk_ids", &other), out("out", &[2], 3.0), out("next", &[2], 3.0)];
    let found = report(&reference, &candidate, "");
    assert_eq!(
        verdicts(&found),
        [Some(Rounding), Some(Suspect), Some(Identical), Some(Identical)],
        "{:#?}",
        found.rows
    );
    assert_eq!(found.first_divergence, None);
    // (1 + 2^-7 − 1) / ((1 + 2^-7) + (4 + 1 + 2^-7 + 1 + 0.5) / 4) is 0.0078125 / 2.634765625, of 2^-8.
    assert_eq!(
        text(&found.rows[1], Kind::Tie),
        "a tie broken by rounding: 1 of 6 rows choose otherwise (2), at most 0.8 units apart by gate"
    );
    let left_out = "1 of 6 rows left out: they follow other choices, first of topk_ids";
    for row in &found.rows[2..] {
        assert_eq!((row.padded, row.n, text(row, Kind::LeftOut)), (1, 160, left_out));
    }
    // Without the scores there is nothing to tell a tie by.
    let found = report(&reference[1..], &candidate[1..], "");
    assert_eq!(verdicts(&found), [Some(Different); 3]);
}

#[test]
fn a_choice_that_its_own_scores_prove_wrong_is_different() {
    let mut wrong = IDS;
    wrong[0] = [0, 3];
    let reference = [scores("gate", &SCORES), ids("topk_ids", &IDS)];
    let found = report(&reference, &[scores("gate", &SCORES), ids("topk_ids", &wrong)], "");
    assert_eq!(verdicts(&found), [Some(Identical), Some(Different)]);
    // (2 − 0.5) / (2 + 7.5 / 4) of 2^-8.
    assert_eq!(
        text(&found.rows[1], Kind::WrongChoice),
        "1 of 6 rows choose otherwise, 1 of them no tie: 3 for 1 in row 0, 99.1 units away by gate"
    );
    // A tie in another row does not help.
    let (tied, mut other) = swapped();
    other[5] = [0, 4];
    let found = report(&reference, &[scores("gate", &tied), ids("topk_ids", &other)], "");
    assert_eq!(verdicts(&found), [Some(Rounding), Some(Different)]);
    assert_eq!(
        text(&found.rows[1], Kind::WrongChoice),
        "2 of 6 rows choose otherwise, 1 of them no tie: 4 for 2 in row 5, one of them twice, or without a score in gate"
    );
}

#[test]
fn scores_that_are_different_excuse_no_choice() {
    let moved = SCORES.map(|[a, b, c, d]| [d, c, b, a]);
    let order = |row: &[f32; 4]| -> [i32; 2] {
        let mut all = [0, 1, 2, 3];
        all.sort_by(|a: &i32, b| row[*b as usize].total_cmp(&row[*a as usize]));
        [all[0], all[1]]
    };
    let chosen = moved.map(|row| order(&row));
    let reference = [scores("gate", &SCORES), ids("topk_ids", &IDS)];
    let found = report(&reference, &[scores("gate", &moved), ids("topk_ids", &chosen)], "");
    assert_eq!(verdicts(&found), [Some(Different); 2]);
}

#[test]
fn places_of_a_tie_count_unless_rows_are_sets() {
    let mut tied = SCORES;
    let mut first = SCORES;
    first[0] = [HIGH, LOW, 0.5, 0.25];
    tied[0] = [LOW, HIGH, 0.5, 0.25];
    let mut swapped = IDS;
    swapped[0] = [1, 0];
    let reference = [scores("gate", &first), ids("topk_ids", &IDS)];
    let candidate = [scores("gate", &tied), ids("topk_ids", &swapped)];
    let sets = "[[tap]]\nmatch = \"topk_ids\"\ntransforms = [\"set_rows\"]\n";
    assert_eq!(verdicts(&report(&reference, &candidate, "")), [Some(Rounding), Some(Suspect)]);
    assert_eq!(verdicts(&report(&reference, &candidate, sets)), [Some(Rounding), Some(Identical)]);
    // And as sets, an expert that only one side chose.
    let (tied, other) = self::swapped();
    let mut reversed = other;
    reversed[4] = [2, 3];
    let reference = [scores("gate", &SCORES), ids("topk_ids", &IDS)];
    let candidate = [scores("gate", &tied), ids("topk_ids", &reversed)];
    assert_eq!(verdicts(&report(&reference, &candidate, sets)), [Some(Rounding), Some(Suspect)]);
    assert_eq!(verdicts(&report(&reference, &candidate, "")), [Some(Rounding), Some(Different)]);
}

/// Of two groups of two experts the one with the larger sum, and both of it: not the largest two of all.
#[test]
fn scores_can_be_named_where_the_choice_is_not_of_the_largest() {
    let of = |a: f32, b: f32| {
        let mut rows = [[8.0, 0.5, 4.0, 2.0]; 6];
        rows[3] = [3.0, a, 3.015625, b];
        rows
    };
    let mut other = [[0, 1]; 6];
    other[3] = [0, 2];
    let mut grouped = [[0, 1]; 6];
    grouped[3] = [0, 1];
    let reference = [scores("gate", &of(HIGH, LOW)), ids("topk_ids", &grouped)];
    // In row 3 the third expert is nearly as good as the first.
    let mut near = grouped;
    near[3] = [2, 1];
    let candidate = [scores("gate", &of(LOW, HIGH)), ids("topk_ids", &near)];
    assert_eq!(verdicts(&report(&reference, &candidate, "")), [Some(Rounding), Some(Different)]);
    let named = "[[tap]]\nmatch = \"*topk_ids\"\nscores = \"*gate\"\n";
    assert_eq!(verdicts(&report(&reference, &candidate, named)), [Some(Rounding), Some(Suspect)]);
    let candidate = [scores("gate", &of(LOW, HIGH)), ids("topk_ids", &other)];
    assert_eq!(verdicts(&report(&reference, &candidate, named)), [Some(Rounding), Some(Different)]);
    // What is named and is not there is said.
    let found = report(&reference, &candidate, "[[tap]]\nmatch = \"*topk_ids\"\nscores = \"router\"\n");
    assert!(
        text(&found.rows[1], Kind::Placement)
            .starts_with("scores: expected tap \"router\" before it in step 0")
    );
}

#[test]
fn a_sampled_token_parts_its_row_for_good() {
    let (tied, _) = swapped();
    let first = |rows: &[[f32; 4]; 6]| {
        rows.map(|row| [(0..4).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as i32])
    };
    let lift = |mut rows: [[f32; 4]; 6]| {
        rows[2][0] = 0.0;
        rows
    };
    let (reference, candidate) = (lift(SCORES), lift(tied));
    let step = |all: Vec<Tensor>, step| all.into_iter().map(move |t| t.step(step));
    let sides = |rows: &[[f32; 4]; 6], parted: &[u64], others: &[u64], factor| {
        let mut all = vec![scores("logits", rows), ids("sampled", &first(rows))];
        all.extend(step(vec![out("hidden", parted, factor), out("late", others, factor)], 1));
        all
    };
    let a = sides(&reference, &[], &[], 1.0);
    let found = report(&a, &sides(&candidate, &[2], &[2, 4], 3.0), "");
    let expected = [Some(Rounding), Some(Suspect), Some(Identical), Some(Suspect)];
    assert_eq!(verdicts(&found), expected, "{:#?}", found.rows);
    let left_out = "1 of 6 rows left out: they follow other choices, first of sampled in step 0";
    assert_eq!(text(&found.rows[2], Kind::LeftOut), left_out);
    assert_eq!(
        text(&found.rows[3], Kind::Tie),
        "in single rows only, which may follow from the tie at sampled in step 0"
    );
    // What most rows share follows from no tie.
    let found = report(&a, &sides(&candidate, &[2], &[0, 1, 2, 3, 4, 5], 3.0), "");
    assert_eq!(verdicts(&found)[2..], [Some(Identical), Some(Different)]);
    assert_eq!(found.first_divergence.unwrap().tap, "late");
}

#[test]
fn a_router_parts_its_rows_for_the_step_only() {
    let (tied, other) = swapped();
    let side = |rows: &[[f32; 4]; 6], chosen: &[[i32; 2]; 6], factor| {
        [
            scores("gate", rows),
            ids("topk_ids", chosen),
            out("out", &[2], factor),
            out("out", &[2], factor).step(1),
        ]
    };
    let found = report(&side(&SCORES, &IDS, 1.0), &side(&tied, &other, 3.0), "");
    assert_eq!(verdicts(&found), [Some(Rounding), Some(Suspect), Some(Identical), Some(Suspect)]);
    assert_eq!((found.rows[2].padded, found.rows[3].padded), (1, 0));
    // Whether or not anything follows in its step: only a choice of one is what the next step begins with.
    let last = |rows, chosen, factor| -> Vec<Tensor> {
        side(rows, chosen, factor).into_iter().filter(|t| t.tap != "out" || t.step == 1).collect()
    };
    let found = report(&last(&SCORES, &IDS, 1.0), &last(&tied, &other, 3.0), "");
    assert_eq!(verdicts(&found), [Some(Rounding), Some(Suspect), Some(Suspect)]);
    // And one that is followed is not.
    let one = |rows: &[[f32; 4]; 6], parted, factor| {
        let mut rows = *rows;
        rows[2][0] = 0.0;
        let first = |row: [f32; 4]| (0..4).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as i32;
        let chosen = ids("top1_ids", &rows.map(|row| [first(row)]));
        let outs = [out("out", parted, factor), out("out", parted, factor).step(1)];
        [scores("gate", &rows), chosen].into_iter().chain(outs).collect::<Vec<_>>()
    };
    let found = report(&one(&SCORES, &[], 1.0), &one(&tied, &[2], 3.0), "");
    assert_eq!(verdicts(&found), [Some(Rounding), Some(Suspect), Some(Identical), Some(Suspect)]);
}

/// Where every row parted there is nothing to compare.
#[test]
fn nothing_is_said_of_what_is_left_out_altogether() {
    let one = |a: f32, b: f32, id: i32, factor| {
        let out = Tensor::bf16(
            0,
            "out",
            &[1, 32],
            &out("", &[], factor).bytes.iter().take(32).map(|b| f32::from(*b) * factor).collect::<Vec<_>>(),
        );
        vec![scores("logits", &[[a, b, 0.5, 0.25]]), ids("sampled", &[[id]]), out.step(1)]
    };
    let found = report(&one(HIGH, LOW, 0, 1.0), &one(LOW, HIGH, 1, 3.0), "");
    assert_eq!(verdicts(&found), [Some(Rounding), Some(Suspect), None], "{:#?}", found.rows);
    assert_eq!(
        text(&found.rows[2], Kind::LeftOut),
        "1 of 1 rows left out: they follow other choices, first of sampled in step 0"
    );
    assert_eq!(found.exit_status(), 1);
}
