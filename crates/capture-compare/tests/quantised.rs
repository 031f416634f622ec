//! Packed and scaled tensors of two runs: scales follow their weight, codes are compared as what they stand for, and
//! whatever does not fit is said with both sizes.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Report, Verdict, check, compare, report::Row};
use capture_core::Dtype;
use recorded::{Tensor, record};

fn layouts(text: &str) -> Layouts {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("layouts.toml");
    std::fs::write(&path, text).unwrap();
    Layouts::read(&path).unwrap()
}

/// A TP 1 reference against a candidate of `tp` ranks.
fn report(reference: &[Tensor], tp: u32, candidate: &[Tensor], text: &str) -> Report {
    let (a, b) = (record("tp=1", reference), record(&format!("tp={tp}"), candidate));
    compare(&a.run, &b.run, &layouts(text), Options::default())
}

fn row(report: &Report, tap: &str) -> Row {
    report.rows.iter().find(|r| r.tap == tap).unwrap().clone()
}

#[track_caller]
fn expect(row: &Row, verdict: Verdict, ranks: &[u32], texts: &[&str]) {
    let found: Vec<&str> = row.diagnoses.iter().map(|d| d.text.as_str()).collect();
    assert_eq!(
        (row.verdict, row.ranks.as_slice(), found),
        (Some(verdict), ranks, texts.to_vec()),
        "{row:#?}"
    );
}

/// A layout: the only row's verdict and text.
#[track_caller]
fn misfit(reference: &[Tensor], tp: u32, candidate: &[Tensor], text: &str, tap: &str, expected: &str) {
    let row = row(&report(reference, tp, candidate, text), tap);
    assert_eq!((row.verdict, row.diagnoses[0].text.as_str()), (Some(Verdict::Layout), expected), "{row:#?}");
}

/// 256 rows in two blocks of 128, over four ranks of 64.
mod block_fp8 {
    use super::*;

    const LAYOUTS: &str = r#"
        [[tap]]
        match = "*.scale"
        placement = "scale_of(*.weight, block=[128,128])"
        [[tap]]
        match = "*.weight"
        placement = "S(0)"
        transforms = ["dequant(fp8-block, scale=*.scale, block=[128,128])"]
    "#;

    fn weight(rank: u32, rows: std::ops::Range<u64>) -> Tensor {
        let bytes =
            rows.clone().flat_map(|row| (0..128).map(move |column| (row * 7 + column * 3) as u8 % 0x70));
        Tensor::new(rank, "q.weight", Dtype::F8_E4M3, &[rows.end - rows.start, 128], bytes.collect())
    }

    fn scale(rank: u32, scales: &[f32]) -> Tensor {
        Tensor::f32(rank, "q.scale", &[scales.len() as u64, 1], scales)
    }

    fn reference() -> [Tensor; 2] {
        [weight(0, 0..256), scale(0, &[0.5, 3.0])]
    }

    fn ranks(scales: [f32; 4]) -> Vec<Tensor> {
        let of = |(rank, x): (u32, f32)| {
            [weight(rank, u64::from(rank) * 64..u64::from(rank + 1) * 64), scale(rank, &[x])]
        };
        (0..4).zip(scales).flat_map(of).collect()
    }

    #[test]
    fn ranks_share_the_scale_of_a_block() {
        let report = report(&reference(), 4, &ranks([0.5, 0.5, 3.0, 3.0]), LAYOUTS);
        expect(&row(&report, "q.scale"), Verdict::Identical, &[], &[]);
        expect(&row(&report, "q.weight"), Verdict::Identical, &[], &[]);
        assert_eq!(row(&report, "q.scale").placement.unwrap(), "scale_of(q.weight, block=[128,128])");
    }

    #[test]
    fn a_rank_that_holds_another_row_is_named() {
        let report = report(&reference(), 4, &ranks([0.5, 0.5, 0.5, 3.0]), LAYOUTS);
        let texts =
            ["candidate: rank 3 does not hold what rank 2 does", "rank 2 holds scale row 0, expected row 1"];
        expect(&row(&report, "q.scale"), Verdict::Different, &[2], &texts);
        let texts = ["the codes are equal: only scales or zeros differ", "rank 2 is off by a factor: 0.17"];
        expect(&row(&report, "q.weight"), Verdict::Different, &[2], &texts);
    }

    /// Ranks of 96 rows: rank 1 reaches into both blocks, and its second begins at its row 32.
    #[test]
    fn parts_may_end_within_a_block() {
        let candidate = [
            vec![weight(0, 0..96), scale(0, &[0.5])],
            vec![weight(1, 96..192), scale(1, &[0.5, 3.0])],
            vec![weight(2, 192..256), scale(2, &[3.0])],
        ];
        let good = report(&reference(), 3, &candidate.concat(), LAYOUTS);
        expect(&row(&good, "q.scale"), Verdict::Identical, &[], &[]);
        expect(&row(&good, "q.weight"), Verdict::Identical, &[], &[]);
        let mut short = candidate.concat();
        short[3] = scale(1, &[0.5]);
        misfit(
            &reference(),
            3,
            &short,
            LAYOUTS,
            "q.scale",
            "candidate: rank 1: expected scales [2, 1] of its part [96, 128], found [1, 1]",
        );
        misfit(
            &reference(),
            3,
            &short,
            LAYOUTS,
            "q.weight",
            "candidate: rank 1: dequant(fp8-block, scale=q.scale, block=[128,128]): \
             expected scales [2, 1] in \"q.scale\" for codes [96, 128], found [1, 1]",
        );
    }

    #[test]
    fn a_run_alone_is_checked_too() {
        let run = record("tp=4", &ranks([0.5, 0.5, 0.5, 3.0]));
        let report = check(&run.run, &layouts(LAYOUTS), Options::default());
        let text = "replicas differ: rank 3 does not hold what rank 2 does";
        expect(&row(&report, "q.scale"), Verdict::Different, &[3], &[text]);
    }

    /// The placement may come from the capture call, and must find its weight.
    #[test]
    fn scales_need_their_weight() {
        let captured = |of: &'static str| {
            let all = ranks([0.5, 0.5, 3.0, 3.0]).into_iter();
            all.map(|t| if t.tap == "q.scale" { t.placed(of) } else { t.placed("S(0)") }).collect::<Vec<_>>()
        };
        let good = captured("scale_of(q.weight, block=[128,128])");
        expect(&row(&report(&reference(), 4, &good, ""), "q.scale"), Verdict::Identical, &[], &[]);
        for of in ["scale_of(w, block=[128,128])", "scale_of(q.scale, block=[128,128])"] {
            let tap = of["scale_of(".len()..].split(',').next().unwrap();
            let text = format!("candidate: scale_of: expected tap {tap:?} beside its scales, found none");
            misfit(&reference(), 4, &captured(of), "", "q.scale", &text);
        }
    }

    /// Gate and up of 192 rows each were quantised by themselves: two blocks each, of which the second is cut.
    #[test]
    fn sections_begin_with_a_block() {
        let text = LAYOUTS.replace("S(0)", "S(0, sections=[192,192])");
        let rows = |from: u64, to: u64| weight(0, from..to).bytes;
        let joined = |rank, parts: &[(u64, u64)]| {
            let bytes: Vec<u8> = parts.iter().flat_map(|(from, to)| rows(*from, *to)).collect();
            Tensor::new(rank, "q.weight", Dtype::F8_E4M3, &[bytes.len() as u64 / 128, 128], bytes)
        };
        let reference = [joined(0, &[(0, 384)]), scale(0, &[1., 2., 3., 4.])];
        let candidate = [
            joined(0, &[(0, 96), (192, 288)]),
            scale(0, &[1., 3.]),
            joined(1, &[(96, 192), (288, 384)]),
            scale(1, &[1., 2., 3., 4.]),
        ];
        let plain = text.replace("transforms", "# transforms");
        let report = report(&reference, 2, &candidate, &plain);
        expect(&row(&report, "q.scale"), Verdict::Identical, &[], &[]);
    }
}

/// Block scales of one side in tiles of 128 × 4 padded with NaN, those of the other as they are.
mod tiles {
    use super::*;

    const ROWS: usize = 130;

    fn linear(rank: u32) -> Tensor {
        let bytes = (0..ROWS * 8).map(|i| (i * 11 % 120) as u8).collect();
        Tensor::new(rank, "scale", Dtype::U8, &[ROWS as u64, 8], bytes)
    }

    /// cuBLAS' formula, number by number.
    fn tiled(rank: u32) -> Tensor {
        let mut bytes = vec![0x7f; 256 * 8];
        for (i, x) in linear(0).bytes.into_iter().enumerate() {
            let (row, column) = (i / 8, i % 8);
            let tile = row / 128 * 2 + column / 4;
            bytes[tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4] = x;
        }
        Tensor::new(rank, "scale", Dtype::U8, &[256, 8], bytes)
    }

    #[test]
    fn one_side_may_be_in_tiles() {
        let text = r#"
            [[tap]]
            match = "scale"
            side = "candidate"
            transforms = ["unswizzle(128x4)", "crop(0, 130)"]
        "#;
        expect(&row(&report(&[linear(0)], 1, &[tiled(0)], text), "scale"), Verdict::Identical, &[], &[]);
        let turned = text.replace("candidate", "reference");
        expect(&row(&report(&[tiled(0)], 1, &[linear(0)], &turned), "scale"), Verdict::Identical, &[], &[]);
        let mut wrong = tiled(0);
        wrong.bytes[17] ^= 1;
        let found = row(&report(&[linear(0)], 1, &[wrong], text), "scale");
        expect(&found, Verdict::Different, &[0], &[]);
        assert_eq!(found.worst.unwrap().index, [1, 1]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_shown() {
        misfit(
            &[linear(0)],
            1,
            &[tiled(0)],
            "",
            "scale",
            "expected one shape, found [130, 8] and [256, 8] (candidate); [256, 8] is [130, 8] in whole tiles \
             of 128 × 4: say transforms = [\"unswizzle(128x4)\", \"crop(0, 130)\"] of that side",
        );
        let text = "[[tap]]\nmatch = \"scale\"\ntransforms = [\"unswizzle(128x4)\"]";
        misfit(
            &[linear(0)],
            1,
            &[tiled(0)],
            text,
            "scale",
            "reference: rank 0: unswizzle(128x4): expected rows and columns in whole tiles of 128 × 4, found shape [130, 8]",
        );
    }

    /// Weights whose scales are in tiles on one side; padding of the tiles needs no crop there.
    #[test]
    fn codes_are_compared_as_what_they_stand_for() {
        let text = r#"
            [[tap]]
            match = "scale"
            side = "candidate"
            transforms = ["unswizzle(128x4)"]
            [[tap]]
            match = "weight"
            transforms = ["dequant(nvfp4, scale=scale)"]
        "#;
        let weight = |rank| {
            let bytes = (0..ROWS * 64).map(|i| (i * 37 % 251) as u8).collect();
            Tensor::new(rank, "weight", Dtype::U8, &[ROWS as u64, 64], bytes)
        };
        let found = report(&[weight(0), linear(0)], 1, &[weight(0), tiled(0)], text);
        expect(&row(&found, "weight"), Verdict::Identical, &[], &[]);
        assert_eq!(row(&found, "weight").n, 130 * 128);
        let plain = text.replace("unswizzle(128x4)", "crop(0, 256)");
        let found = row(&report(&[weight(0), linear(0)], 1, &[weight(0), tiled(0)], &plain), "weight");
        assert_eq!(
            found.diagnoses[0].text,
            "candidate: rank 0: dequant(nvfp4, scale=scale): \
             expected scales [130, 8] in \"scale\" for codes [130, 128], found [256, 8]"
        );
    }
}

const MXFP4: &str = r#"
    [[tap]]
    match = "*.w"
    placement = "S(0)"
    transforms = ["dequant(mxfp4, scale=*.s)"]
"#;

fn mxfp4(rank: u32, codes: &[u8], scale: &[u8]) -> [Tensor; 2] {
    let rows = scale.len() as u64;
    [
        Tensor::new(rank, "m.w", Dtype::F4, &[rows, 32], codes.to_vec()),
        Tensor::new(rank, "m.s", Dtype::F8_E8M0, &[rows, 1], scale.to_vec()),
    ]
}

/// 2 · 1 is 1 · 2: the same numbers of other codes.
#[test]
fn equal_values_of_other_codes_are_identical_and_said() {
    let (a, b) = (mxfp4(0, &[0x22; 16], &[128]), mxfp4(0, &[0x44; 16], &[127]));
    let found = row(&report(&a, 1, &b, MXFP4), "m.w");
    expect(&found, Verdict::Identical, &[], &["the values are equal, their codes are not"]);
}

#[test]
fn what_a_dequantisation_needs_is_named() {
    let [weight, scale] = mxfp4(0, &[0x22; 16], &[128]);
    let both = [weight.clone(), scale.clone()];
    misfit(
        &both,
        1,
        std::slice::from_ref(&weight),
        MXFP4,
        "m.w",
        "candidate: rank 0: expected tap \"m.s\" in step 0, found none",
    );
    let twice = format!("{MXFP4}\n[[tap]]\nmatch = \"m.s\"\ntransforms = [\"dequant(mxfp4, scale=m.w)\"]");
    misfit(
        &both,
        1,
        &both,
        &twice,
        "m.w",
        "reference: expected scales and zeros as recorded or rearranged, found \"m.s\" under dequant(mxfp4, scale=m.w)",
    );
}

/// Slices are dequantised each with its rank's scales, and their scales follow the same cut.
#[test]
fn slices_are_dequantised_before_they_are_joined() {
    let codes: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(5)).collect();
    let whole = mxfp4(0, &codes, &[126, 127, 130, 120]);
    let ranks = [mxfp4(0, &codes[..32], &[126, 127]), mxfp4(1, &codes[32..], &[130, 120])].concat();
    expect(&row(&report(&whole, 2, &ranks, MXFP4), "m.w"), Verdict::Identical, &[], &[]);
    let wrong = [mxfp4(0, &codes[..32], &[126, 127]), mxfp4(1, &codes[32..], &[130, 121])].concat();
    let text = "the codes are equal: only scales or zeros differ";
    expect(&row(&report(&whole, 2, &wrong, MXFP4), "m.w"), Verdict::Different, &[1], &[text]);
}

/// GPTQ stores [in, out]; the other side holds the dequantised weight as [out, in].
#[test]
fn a_dequantised_weight_may_be_transposed() {
    // Rows 0 to 7 of two columns: column 0 counts up, column 1 down; zeros 8, scales 1 and 0.5.
    let words = [0x7654_3210u32, 0x0123_4567].map(u32::to_le_bytes).concat();
    let packed = [
        Tensor::new(0, "w", Dtype::I32, &[1, 2], words),
        Tensor::new(0, "s", Dtype::F16, &[1, 2], vec![0x00, 0x3c, 0x00, 0x38]),
    ];
    let numbers: Vec<f32> =
        (0..8).map(|i| i as f32 - 8.0).chain((0..8).map(|i| (7 - i) as f32 * 0.5 - 4.0)).collect();
    let text = r#"
        [[tap]]
        match = "w"
        side = "candidate"
        transforms = ["dequant(int4-group, scale=s, group=8, order=gptq)", "transpose(0, 1)"]
    "#;
    let found = report(&[Tensor::f32(0, "w", &[2, 8], &numbers)], 1, &packed, text);
    expect(&row(&found, "w"), Verdict::Identical, &[], &[]);
}

/// Rows that are padding by the capture call are gone before anything else is done.
#[test]
fn padding_rows_are_left_out_first() {
    let of = |rows: u64, padded: bool| {
        let all: Vec<f32> = (0..rows).flat_map(|i| [i as f32, 10.0]).collect();
        let tensor = Tensor::f32(0, "h", &[rows, 2], &all);
        if padded { tensor.rows(3) } else { tensor }
    };
    let text = "[[tap]]\nmatch = \"h\"\ntransforms = [\"transpose(0, 1)\"]";
    let found = row(&report(&[of(3, false)], 1, &[of(5, true)], text), "h");
    expect(&found, Verdict::Identical, &[], &[]);
    let mut headed = of(3, false);
    headed.full_rows = Some(9);
    let expected = "candidate: transforms: expected whole tensors, found their first rows only (head=N)";
    misfit(&[of(3, false)], 1, &[headed], text, "h", expected);
}

/// Steps of codes and scales that rounding does not make, and what comes after them.
mod faults {
    use super::*;

    const NVFP4: &str =
        "[[tap]]\nmatch=\"w\"\nplacement=\"R\"\ntransforms=[\"dequant(nvfp4, scale=s, global=g)\"]\n";

    fn random(seed: u64, n: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..n).map(|_| next()).collect()
    }

    fn nvfp4(global: f32) -> [Tensor; 3] {
        [
            Tensor::new(0, "w", Dtype::U8, &[64, 64], random(1, 64 * 64)),
            Tensor::new(
                0,
                "s",
                Dtype::F8_E4M3,
                &[64, 8],
                random(2, 512).iter().map(|x| 40 + x % 32).collect(),
            ),
            Tensor::f32(0, "g", &[1], &[global]),
        ]
    }

    /// Of a global scale all codes are kept: no noise moves that alone, nor does the weight pass any on.
    #[test]
    fn a_global_scale_that_moves_no_code_is_wrong() {
        for factor in [1.003, 1.01, 2.0] {
            let report = report(&nvfp4(0.01), 1, &nvfp4(0.01 * factor), NVFP4);
            assert_eq!(row(&report, "w").verdict, Some(Verdict::Different), "{factor}");
            assert_eq!(row(&report, "s").verdict, Some(Verdict::Identical));
            assert_eq!(row(&report, "g").verdict, Some(Verdict::Different), "{factor}");
        }
    }

    #[test]
    fn a_code_of_four_bits_moves_by_a_step() {
        const INT4: &str =
            "[[tap]]\nmatch=\"q\"\ntransforms=[\"dequant(int4-group, scale=s, group=32, order=gptq)\"]\n";
        let tensors = |flipped: u8| {
            let mut codes = random(3, 8 * 16 * 4);
            codes[70] = (codes[70] & 0xf0) | 4;
            codes[70] ^= flipped;
            let scale: Vec<f32> = (0..32).map(|i| 0.5 + (i % 7) as f32 / 8.0).collect();
            [Tensor::new(0, "q", Dtype::I32, &[8, 16], codes), Tensor::f32(0, "s", &[2, 16], &scale)]
        };
        let verdict = |flipped| row(&report(&tensors(0), 1, &tensors(flipped), INT4), "q").verdict;
        assert_eq!(verdict(0), Some(Verdict::Identical));
        assert_eq!(verdict(1), Some(Verdict::Rounding));
        assert_eq!(verdict(8), Some(Verdict::Different));
    }

    #[test]
    fn powers_of_two_move_one_by_one() {
        let tensors = |moved: &dyn Fn(usize) -> u8| {
            let scales =
                random(4, 64 * 64).iter().enumerate().map(|(i, x)| 110 + x % 16 + moved(i)).collect();
            let same = Tensor::f32(0, "a", &[2], &[1.0, 2.0]);
            [same, Tensor::new(0, "e", Dtype::F8_E8M0, &[64, 64], scales)]
        };
        let verdict =
            |moved: &dyn Fn(usize) -> u8| row(&report(&tensors(&|_| 0), 1, &tensors(moved), ""), "e").verdict;
        assert_eq!(verdict(&|_| 1), Some(Verdict::Different));
        assert_eq!(verdict(&|i| u8::from(i / 64 == 5)), Some(Verdict::Different));
        assert_eq!(verdict(&|i| u8::from(i % 23 == 0)), Some(Verdict::Rounding));
    }
}
