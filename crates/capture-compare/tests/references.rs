//! One model on two meshes, and taps, rows and steps that the two runs have otherwise: what is the same is IDENTICAL.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, PairBy, Report, Verdict, compare, report::Row};
use capture_core::{Dtype, Identity, Mesh};
use recorded::{Recorded, Tensor, record, record_as};

fn compared(reference: &Recorded, candidate: &Recorded, layouts: &str, pair: PairBy) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layouts.toml");
    std::fs::write(&path, layouts).unwrap();
    let options = Options { pair, ..Options::default() };
    compare(&reference.run, &candidate.run, &Layouts::read(&path).unwrap(), options)
}

fn rows(reference: &Recorded, candidate: &Recorded, layouts: &str) -> Vec<Row> {
    compared(reference, candidate, layouts, PairBy::Step).rows
}

/// Tap, step and verdict of every row.
fn verdicts(rows: &[Row]) -> Vec<(&str, u64, Verdict)> {
    rows.iter().map(|r| (r.tap.as_str(), r.step, r.verdict.unwrap())).collect()
}

#[track_caller]
fn all_identical(rows: &[Row], taps: &[&str]) {
    let found: Vec<&str> = rows.iter().map(|r| r.tap.as_str()).collect();
    assert_eq!(found, taps);
    assert!(rows.iter().all(|r| r.verdict == Some(Verdict::Identical)), "{rows:#?}");
}

/// `[rows, columns]` counted up from `start`.
fn counted(start: u32, rows: u32, columns: u32) -> Vec<f32> {
    (0..rows * columns).map(|i| (start + i) as f32).collect()
}

/// Columns `from..to` of a matrix of `width` columns.
fn columns(matrix: &[f32], width: usize, from: usize, to: usize) -> Vec<f32> {
    matrix.chunks(width).flat_map(|row| row[from..to].to_vec()).collect()
}

/// A model of two layers, split over tp and pp: replicated, sharded by rows and by columns, and summed.
fn model(mesh: &str, world: u32, declared: bool) -> Recorded {
    let placed = |tensor: Tensor, placement| if declared { tensor.placed(placement) } else { tensor };
    let mut tensors = Vec::new();
    for rank in 0..world {
        let mesh = Mesh::from_sizes(mesh, rank).unwrap();
        let at = |dim: &str| mesh.dim(dim).map_or((0, 1), |d| (d.coord as usize, d.size as usize));
        let ((tp, size), (pp, stages)) = (at("tp"), at("pp"));
        for layer in (0..2).filter(|layer| stages == 1 || *layer == pp) {
            let taps: [&'static str; 4] = [
                ["layers.0.in", "layers.0.q", "layers.0.gate", "layers.0.partial"],
                ["layers.1.in", "layers.1.q", "layers.1.gate", "layers.1.partial"],
            ][layer];
            let all = counted(100 * layer as u32, 4, 16);
            let own = columns(&all, 16, tp * 16 / size, (tp + 1) * 16 / size);
            let width = 16 / size as u64;
            tensors.push(placed(Tensor::f32(rank, taps[0], &[4, 16], &all), "R"));
            tensors.push(placed(Tensor::f32(rank, taps[1], &[4, width], &own), "S(-1)"));
            // Gate and up are halves of the columns, each cut by itself.
            let half = |from: usize| columns(&all, 16, from + tp * 8 / size, from + (tp + 1) * 8 / size);
            let (gate, up, half_width) = (half(0), half(8), 8 / size);
            let fused: Vec<f32> = gate
                .chunks(half_width)
                .zip(up.chunks(half_width))
                .flat_map(|(g, u)| [g, u].concat())
                .collect();
            tensors.push(Tensor::f32(rank, taps[2], &[4, width], &fused).placed("S(1, sections=[8, 8])"));
            let share: Vec<f32> = all.iter().map(|x| x / size as f32).collect();
            tensors.push(Tensor::f32(rank, taps[3], &[4, 16], &share).placed("P"));
        }
    }
    record(mesh, &tensors)
}

/// A reference whose TP is not 1, and pipeline stages on either side, both run orders.
#[test]
fn a_model_is_the_same_on_every_mesh() {
    let taps = [
        "layers.0.in",
        "layers.0.q",
        "layers.0.gate",
        "layers.0.partial",
        "layers.1.in",
        "layers.1.q",
        "layers.1.gate",
        "layers.1.partial",
    ];
    let meshes = [("tp=1", 1), ("tp=2", 2), ("tp=4", 4), ("tp=8", 8), ("pp=2", 2), ("pp=2,tp=4", 8)];
    for declared in [true, false] {
        let runs = meshes.map(|(mesh, ranks)| model(mesh, ranks, declared));
        for a in &runs {
            for b in &runs {
                all_identical(&rows(a, b, ""), &taps);
            }
        }
    }
}

/// Experts spread over ep, which spans tp × dp.
#[test]
fn experts_are_the_same_on_every_mesh() {
    let run = |dp: u32, tp: u32| {
        let world = dp * tp;
        let each = 8 / world;
        let of = |rank: u32| {
            let experts = counted(8 * rank * each, each, 8);
            Tensor::f32(rank, "experts", &[u64::from(each), 8], &experts).placed("S(0)/ep")
        };
        let tensors: Vec<Tensor> = (0..world).map(of).collect();
        record_as(&tensors, |rank| {
            let mut mesh = Mesh::from_sizes(&format!("dp={dp},tp={tp}"), rank).unwrap();
            mesh.dims.extend(Mesh::from_sizes(&format!("ep={world}"), rank).unwrap().dims);
            let process = format!("{}-0000000{rank}", 100 + rank);
            Identity { run: "r".into(), rank: Some(rank), world: Some(world), mesh, process }
        })
    };
    let runs = [(1, 1), (1, 4), (2, 2), (4, 2), (2, 4), (8, 1)].map(|(dp, tp)| run(dp, tp));
    for a in &runs {
        for b in &runs {
            all_identical(&rows(a, b, ""), &["experts"]);
        }
    }
}

const JOIN: &str = "[[join]]\nof = [\"*.q\", \"*.k\", \"*.v\"]\ninto = \"*.qkv\"\ndim = 1\n";

/// q of 8 columns, k and v of 4 each, on `tp` ranks: fused, or as three taps.
fn qkv(tp: u32, fused: bool, placed: bool) -> Recorded {
    let [q, k, v] = [counted(0, 3, 8), counted(100, 3, 4), counted(200, 3, 4)];
    let mut tensors = vec![];
    for rank in 0..tp {
        let of = |all: &[f32], width: usize| {
            let (rank, tp) = (rank as usize, tp as usize);
            columns(all, width, rank * width / tp, (rank + 1) * width / tp)
        };
        let parts = [of(&q, 8), of(&k, 4), of(&v, 4)];
        let place = |tensor: Tensor, text| if placed { tensor.placed(text) } else { tensor };
        if fused {
            let width = |part: &[f32]| part.len() / 3;
            let row = |i: usize| {
                parts
                    .iter()
                    .flat_map(move |p| p[i * width(p)..(i + 1) * width(p)].to_vec())
                    .collect::<Vec<_>>()
            };
            let all: Vec<f32> = (0..3).flat_map(row).collect();
            let tensor = Tensor::f32(rank, "a.qkv", &[3, all.len() as u64 / 3], &all);
            tensors.push(place(tensor, "S(1, sections=[8,4,4])"));
        } else {
            for (tap, part) in ["a.q", "a.k", "a.v"].into_iter().zip(&parts) {
                tensors.push(place(Tensor::f32(rank, tap, &[3, part.len() as u64 / 3], part), "S(1)"));
            }
        }
        tensors.push(Tensor::f32(rank, "a.out", &[1], &[7.0]));
    }
    record(&format!("tp={tp}"), &tensors)
}

/// Projections that one engine has merged, on either side and on any number of ranks. Where nobody says how the merged one
/// is cut, each part is a section.
#[test]
fn taps_are_joined_into_the_tap_of_the_other_run() {
    for placed in [true, false] {
        for (tp_parts, tp_whole) in [(1, 1), (1, 2), (1, 4), (2, 1), (4, 2), (2, 4)] {
            let (parts, whole) = (qkv(tp_parts, false, placed), qkv(tp_whole, true, placed));
            all_identical(&rows(&parts, &whole, JOIN), &["a.qkv", "a.out"]);
            all_identical(&rows(&whole, &parts, JOIN), &["a.qkv", "a.out"]);
        }
    }
    let found = rows(&qkv(2, false, false), &qkv(4, true, false), JOIN);
    assert_eq!(found[0].placement.as_deref(), Some("S(1, sections=[8,4,4])"));
    assert_eq!(found[0].diagnoses[0].text, "reference: joined along dim 1 of a.q S(1), a.k S(1), a.v S(1)");
    // Where both runs have the parts, or both the whole, nothing is joined.
    all_identical(&rows(&qkv(1, false, true), &qkv(2, false, true), JOIN), &["a.q", "a.k", "a.v", "a.out"]);
    all_identical(&rows(&qkv(1, true, true), &qkv(2, true, true), JOIN), &["a.qkv", "a.out"]);
}

#[test]
fn parts_that_do_not_make_the_whole_are_said_with_their_names() {
    let whole = record("tp=1", &[Tensor::f32(0, "a.qkv", &[1, 4], &[1., 2., 3., 4.])]);
    let part = |tap, numbers: &[f32]| Tensor::f32(0, tap, &[1, numbers.len() as u64], numbers);
    let two = record("tp=1", &[part("a.q", &[1., 2.]), part("a.v", &[4.])]);
    let found = rows(&whole, &two, JOIN);
    assert_eq!(verdicts(&found), [("a.qkv", 0, Verdict::Missing)]);
    assert_eq!(
        found[0].diagnoses[0].text,
        "candidate: expected all parts to join, found a.q, a.v and not a.k"
    );
    let short = record("tp=1", &[part("a.q", &[1.]), part("a.k", &[3.]), part("a.v", &[4.])]);
    let found = rows(&whole, &short, JOIN);
    assert_eq!(verdicts(&found), [("a.qkv", 0, Verdict::Layout)]);
    assert!(
        found[0]
            .diagnoses
            .iter()
            .any(|d| d.text == "expected one shape, found [1, 4] and [1, 3] (candidate)")
    );
    let flat = record("tp=1", &["a.q", "a.k", "a.v"].map(|tap| Tensor::f32(0, tap, &[], &[1.])));
    let found = rows(&whole, &flat, JOIN);
    assert_eq!(found[0].diagnoses[0].text, "candidate: expected parts with dim 1 to join, found []");
    // A wrong number is where the whole has it.
    let wrong = [part("a.q", &[1., 2.]), part("a.k", &[9.]), part("a.v", &[4.])];
    let found = rows(&whole, &record("tp=1", &wrong), JOIN);
    assert_eq!(found[0].worst.as_ref().unwrap().index, [0, 2]);
}

const ALIGN: &str = "[align]\nby = \"ids, positions\"\n";

/// Tokens `(id, position)`, and a tap that holds ten times the id plus the position in each row of two.
fn tokens(tokens: &[(i32, i32)], wrong: Option<usize>) -> Recorded {
    let of = |column: fn(&(i32, i32)) -> i32| tokens.iter().map(column).collect::<Vec<_>>();
    let hidden = tokens.iter().enumerate().flat_map(|(i, (id, position))| {
        let x = (10 * id + position) as f32 + if wrong == Some(i) { 100.0 } else { 0.0 };
        [x, x]
    });
    let hidden: Vec<f32> = hidden.collect();
    record(
        "tp=1",
        &[
            Tensor::i32(0, "ids", &of(|t| t.0)),
            Tensor::i32(0, "positions", &of(|t| t.1)),
            Tensor::f32(0, "hidden", &[tokens.len() as u64, 2], &hidden),
            Tensor::f32(0, "weight", &[1, 2], &[1., 2.]),
        ],
    )
}

/// Rows in another order and between other padding, duplicates among them.
#[test]
fn rows_are_matched_by_what_they_are() {
    let reference = [(5, 0), (6, 1), (5, 0), (7, 2), (0, 0)];
    let candidate = [(7, 2), (5, 0), (0, 0), (0, 0), (5, 0), (6, 1)];
    let found = rows(&tokens(&reference, None), &tokens(&candidate, None), ALIGN);
    all_identical(&found, &["ids", "positions", "hidden", "weight"]);
    assert_eq!(found.iter().map(|r| r.padded).collect::<Vec<_>>(), [1, 1, 1, 0]);
    assert_eq!(
        found[2].diagnoses[0].text,
        "rows matched by ids, positions: 0 of 5 in the reference and 1 of 6 in the candidate have no counterpart"
    );
    assert_eq!((found[2].n, found[3].diagnoses.len()), (10, 0));
    // Rows in place need no words, and a wrong one is told in the order of the reference.
    assert!(rows(&tokens(&reference, None), &tokens(&reference, None), ALIGN)[2].diagnoses.is_empty());
    let wrong = rows(&tokens(&reference, None), &tokens(&candidate, Some(5)), ALIGN);
    assert_eq!(wrong[2].verdict, Some(Verdict::Different));
    assert_eq!(wrong[2].worst.as_ref().unwrap().index, [1, 0]);
    let none = rows(&tokens(&[(1, 1)], None), &tokens(&[(2, 2), (3, 3)], None), ALIGN);
    assert_eq!(none[2].verdict, Some(Verdict::Layout));
    assert_eq!(none[2].diagnoses[0].text, "expected rows that both runs have by ids, positions, found none");
}

#[test]
fn rows_that_cannot_be_matched_are_compared_as_they_stand() {
    let ids = |numbers: &[i32]| Tensor::i32(0, "ids", numbers);
    let hidden = Tensor::f32(0, "hidden", &[2], &[1., 2.]);
    let a = record("tp=1", &[ids(&[1, 2]), hidden.clone()]);
    let found = rows(&a, &a, ALIGN);
    assert_eq!(found[1].verdict, Some(Verdict::Identical));
    assert_eq!(
        found[1].diagnoses[0].text,
        "rows compared as they stand: reference: expected one tensor of \"positions\" in the step, found 0"
    );
    let uneven = record("tp=1", &[ids(&[1, 2]), Tensor::i32(0, "positions", &[0]), hidden]);
    let found = rows(&uneven, &uneven, ALIGN);
    assert_eq!(
        found[2].diagnoses[0].text,
        "rows compared as they stand: reference: expected as many rows of \"positions\" as of \"ids\", found 1 and 2"
    );
}

/// Rows of a tensor that the ranks hold slices of, and sums over ranks; the aux tap is wider on one side.
#[test]
fn aligned_rows_keep_their_ranks() {
    let wide = |numbers: [i64; 2]| {
        Tensor::new(0, "ids", Dtype::I64, &[2], numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
    };
    let a = record("tp=1", &[wide([-3, 4]), Tensor::f32(0, "h", &[2, 2], &[1., 2., 3., 4.])]);
    let b = [
        Tensor::i32(0, "ids", &[4, -3]),
        Tensor::f32(0, "h", &[2, 1], &[3., 1.]).placed("S(1)"),
        Tensor::i32(1, "ids", &[4, -3]),
        Tensor::f32(1, "h", &[2, 1], &[9., 2.]).placed("S(1)"),
    ];
    let found = rows(&a, &record("tp=2", &b), "[align]\nby = \"ids\"\n");
    assert_eq!((found[1].verdict, found[1].ranks.as_slice()), (Some(Verdict::Different), &[1][..]));
    assert_eq!(found[1].worst.as_ref().unwrap().index, [1, 1]);
}

/// Steps of ids and a tap that follows from them, numbered from `first` in the process.
fn steps(ids: &[&[i32]], first: u64) -> Recorded {
    let tensors = ids.iter().enumerate().flat_map(|(step, ids)| {
        let twice: Vec<i32> = ids.iter().map(|x| 2 * x).collect();
        [Tensor::i32(0, "ids", ids), Tensor::i32(0, "twice", &twice)]
            .map(|t| Tensor { abs_step: Some(first + step as u64), ..t.step(step as u64) })
    });
    record("tp=1", &tensors.collect::<Vec<_>>())
}

#[test]
fn steps_are_paired_by_what_was_asked_for() {
    use Verdict::{Different, Identical, Missing};
    let (a, b) = (steps(&[&[1], &[2], &[3]], 10), steps(&[&[2], &[3], &[4]], 11));
    let by = "[align]\nby = \"ids\"\n";
    let of = |pair| {
        let rows = compared(&a, &b, if pair == PairBy::Inputs { by } else { "" }, pair).rows;
        let of_twice = rows.into_iter().filter(|r| r.tap == "twice");
        of_twice.map(|r| (r.step, r.verdict.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(of(PairBy::Step), [(0, Different), (1, Different), (2, Different)]);
    let paired = [(0, Missing), (1, Identical), (2, Identical), (2, Missing)];
    assert_eq!(of(PairBy::Abs), paired);
    assert_eq!(of(PairBy::Inputs), paired);
    let rows = compared(&a, &b, by, PairBy::Inputs).rows;
    let text = |row: &Row| row.diagnoses.iter().map(|d| d.text.clone()).collect::<Vec<_>>();
    assert_eq!(text(&rows[2]), ["paired with the candidate's step 0"]);
    assert_eq!(text(&rows[3]), [""; 0]);
    assert_eq!(text(&rows[6]), ["only the candidate has it"]);
    // The same inputs twice: the first with the first; the order of the rows does not count.
    let (a, b) = (steps(&[&[1, 2], &[1, 2]], 0), steps(&[&[2, 1], &[5], &[1, 2]], 0));
    let rows = compared(&a, &b, by, PairBy::Inputs).rows;
    let found: Vec<_> =
        rows.iter().filter(|r| r.tap == "twice").map(|r| (r.step, r.verdict.unwrap())).collect();
    assert_eq!(found, [(0, Identical), (1, Identical), (1, Missing)]);
}

/// Two routers. Of token 2 they chose the same experts in another order, of token 4 others with weights that are
/// nearly those.
#[test]
fn chosen_experts_are_sets_and_their_weights_follow() {
    let choice = |changed: bool| {
        let mut weights: Vec<f32> = (0..48).map(|i| 0.3 - (i % 8) as f32 / 32.0).collect();
        let mut experts: Vec<i32> = (0..48).map(|i| 8 * (i / 8) + (3 * i) % 8).collect();
        if changed {
            // Sorted by weight again, where two weights are as good as equal.
            experts.swap(16, 17);
            weights.swap(16, 17);
            for i in 32..40 {
                experts[i] += 100;
                weights[i] *= 1.001;
            }
        }
        let ids = experts.iter().flat_map(|x| x.to_le_bytes()).collect();
        let ids = Tensor::new(0, "0.topk_idx", Dtype::I32, &[6, 8], ids);
        record("tp=1", &[Tensor::f32(0, "0.topk_w", &[6, 8], &weights), ids])
    };
    let layouts = "[[tap]]\nmatch = \"*.topk_w\"\ntransforms = [\"sort_rows_by(*.topk_idx)\"]\n\
                   [[tap]]\nmatch = \"*.topk_idx\"\ntransforms = [\"set_rows\"]\n";
    let found = rows(&choice(false), &choice(true), layouts);
    assert_eq!(found[1].verdict, Some(Verdict::Different));
    let worst = found[1].worst.as_ref().unwrap();
    assert_eq!((worst.index[0], worst.candidate - worst.reference), (4, 100.0));
    assert_eq!(found[0].worst.as_ref().unwrap().index[0], 4, "token 2's weights are equal: {:#?}", found[0]);
    all_identical(&rows(&choice(true), &choice(true), layouts), &["0.topk_w", "0.topk_idx"]);
    // Only the order of token 2.
    let plain = rows(&choice(false), &choice(true), "");
    assert_eq!(plain[0].worst.as_ref().unwrap().index[0], 2);
}
