//! Expected values are CRC-32s of the little-endian fp32 numbers that torch 2 and ml_dtypes make of the same bytes, by
//! the formulas of the checkpoints' own loaders.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|d| u8::from_str_radix(str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn part(dtype: Dtype, shape: &[u64], hex: &str) -> Part<'static> {
    Part::new(Some(2), dtype, shape, None, bytes(hex).into()).unwrap()
}

fn operands(scale: Part<'static>) -> Operands<'static> {
    Operands { scale, tiled: false, global: None, zero: None, g_idx: None, origin: [0, 0] }
}

fn dequantised(text: &str, codes: Part<'static>, of: Operands<'static>) -> Result<Part<'static>, Misfit> {
    let Transform::Dequant(words) = text.parse().unwrap() else { panic!("{text}") };
    dequant(codes, &words, of)
}

fn numbers(part: &Part<'_>) -> Vec<f32> {
    let mut numbers = vec![0.0; part.len() as usize];
    part.read(0, &mut numbers);
    numbers.into_iter().map(|x| x as f32).collect()
}

#[track_caller]
fn check(text: &str, codes: Part<'static>, of: Operands<'static>, shape: &[u64], crc: u32) {
    let part = dequantised(text, codes, of).unwrap();
    let all = numbers(&part);
    let found = crc32fast::hash(&all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!((part.shape.as_slice(), found), (shape, crc), "{all:?}");
    // Any stretch reads as in the whole.
    for from in 0..all.len() {
        let mut some = [0.0; 3];
        let n = some.len().min(all.len() - from);
        part.read(from as u64, &mut some[..n]);
        let expected: Vec<f64> = all[from..from + n].iter().map(|x| f64::from(*x)).collect();
        assert_eq!(some[..n], expected, "from {from}");
    }
}

#[track_caller]
fn check_error(text: &str, codes: Part<'static>, of: Operands<'static>, expected: &str) {
    assert_eq!(dequantised(text, codes, of).unwrap_err().to_string(), expected);
}

const NVFP4: &str = "6a98f983b8c80015fd93ca6bf9a98a9577a6e094ac5da78ef81a51da964202bf";
const MXFP8: &str = "3c214f4a51306655096e3003066b5c1f714b0f603d5c1679515b1e0854271a5c084d5e104f5d1c7817653152292d1d39\
                     3d6b7a1b6808476b2c5734446c16562b475c136151167079291c05382e0e107836141c1813560248745b554135383c17\
                     1d28685d1d2707502c17533406583838001c5c4b4f3c586e4f122d0b6972385d";
const MXFP4: &str = "12bf02d7e3943ed116dceb87b9e1ab20fc5c3c901b356b08140898ce4c1364891ab23c85d4f75fe96a5109208dfe2c47\
                     5c247daac8fc1a98943eac9e917420b5";
const BLOCKS: &str = "566f34074867004d6451371603504f";

#[test]
fn nvfp4() {
    let of = || {
        let global = Some(part(Dtype::F32, &[1], "f085493c"));
        Operands { global, ..operands(part(Dtype::F8_E4M3, &[2, 2], "3c2875c5")) }
    };
    let times = "dequant(nvfp4, scale=s, global=g)";
    check(times, part(Dtype::F4, &[2, 32], NVFP4), of(), &[2, 32], 0x4ce8_7436);
    // torch before 2.8 has no fp4: pairs in bytes, and scales in bytes too.
    let scale = part(Dtype::U8, &[2, 2], "3c2875c5");
    check(times, part(Dtype::U8, &[2, 16], NVFP4), Operands { scale, ..of() }, &[2, 32], 0x4ce8_7436);
    check(
        "dequant(nvfp4, scale=s, global=1/g)",
        part(Dtype::F4, &[2, 32], NVFP4),
        of(),
        &[2, 32],
        0xcbda_d0af,
    );
}

#[test]
fn microscaling() {
    let of = || operands(part(Dtype::U8, &[2, 2], "787f8200"));
    check("dequant(mxfp8, scale=s)", part(Dtype::F8_E4M3, &[2, 64], MXFP8), of(), &[2, 64], 0x37d6_5903);
    check("dequant(mxfp8, scale=s)", part(Dtype::U8, &[2, 64], MXFP8), of(), &[2, 64], 0x37d6_5903);
    let of = || operands(part(Dtype::F8_E8M0, &[2, 2], "787f8200"));
    check("dequant(mxfp8, scale=s)", part(Dtype::F8_E5M2, &[2, 64], MXFP8), of(), &[2, 64], 0xfb3d_48af);
    check("dequant(mxfp4, scale=s)", part(Dtype::U8, &[2, 32], MXFP4), of(), &[2, 64], 0xa207_820b);
}

#[test]
fn blocks_at_the_edges_are_cut() {
    let text = "dequant(fp8-block, scale=s, block=[2,3])";
    let codes = || part(Dtype::F8_E4M3, &[3, 5], BLOCKS);
    let of = operands(part(Dtype::F32, &[2, 2], "cdcccc3d00000040000040403333333f"));
    check(text, codes(), of, &[3, 5], 0x19ab_6224);
    // A rank whose rows begin at 1 and columns at 2 of the logical tensor.
    let scale = part(Dtype::F32, &[2, 3], "cdcccc3d000000400000a040000040403333333f0000c040");
    let of = Operands { origin: [1, 2], ..operands(scale) };
    check(text, codes(), of, &[3, 5], 0x2b93_b292);
}

#[test]
fn int4_in_the_orders_of_gptq_and_awq() {
    let qweight = "4668bb20f97c93a8eccf85eef1c49cdd93c7b1a7d7fa4871dde859e20fa5d2e5cc3f74c3cb86a225565d5b25e76407ce\
                   99c8e76471aaa26ac53432372789a0cd";
    let scale =
        || part(Dtype::F16, &[2, 8], "3a324b374e346f3ae53630358134373cfe389e3994392d3c4d387437bb364733");
    let zero = |hex: &str| Some(part(Dtype::I32, &[2, 1], hex));
    let rows = || part(Dtype::I32, &[2, 8], qweight);
    let of = |zero| Operands { zero, ..operands(scale()) };
    let options = "scale=s, zero=z, group=8";
    let gptq = format!("dequant(int4-group, {options}, order=gptq)");
    check(&gptq, rows(), of(zero("029b7800b045c4dd")), &[16, 8], 0x1675_7759);
    let v2 = format!("dequant(int4-group, {options}, order=gptq_v2)");
    check(&v2, rows(), of(zero("13ac8911c156d5ee")), &[16, 8], 0x1675_7759);
    let awq = format!("dequant(int4-group, {options}, order=awq)");
    let columns = "c6d319f7e4d9ff0df8874c5ac6ecc7af5b91c3288b5b99d4e027d851e2eadae76c597b715cc9ec27df48469a533c688a\
                   b4277202573e0aaa5374e5da2c36c2c6";
    let awq_codes = part(Dtype::I32, &[16, 1], columns);
    check(&awq, awq_codes, of(zero("c319a11861e55ced")), &[16, 8], 0x1675_7759);
    let pairs = "46f9ecf193d7dd0f687ccfc4c7fae8a5bb93859cb14859d220a8eedda771e2e5cccb56e79971c5273f865d64c8aa3489\
                 74a25b07e7a232a0c32525ce646a37cd";
    check(&gptq, part(Dtype::U8, &[8, 8], pairs), of(zero("029b7800b045c4dd")), &[16, 8], 0x1675_7759);
    check("dequant(int4-group, scale=s, group=8, order=gptq)", rows(), of(None), &[16, 8], 0x61fd_369d);
    // Act-order: rows 0, 2, … are of group 1.
    let g_idx = Some(part(Dtype::I32, &[16], &"0100000000000000".repeat(8)));
    let text = "dequant(int4-group, scale=s, zero=z, g_idx=i, group=8, order=gptq_v2)";
    check(text, rows(), Operands { g_idx, ..of(zero("13ac8911c156d5ee")) }, &[16, 8], 0x6671_3b30);
    let g_idx = Some(part(Dtype::I32, &[16], &"0200000000000000".repeat(8)));
    check_error(
        text,
        rows(),
        Operands { g_idx, ..of(zero("13ac8911c156d5ee")) },
        &format!("{text}: expected groups of 0 to 1 in \"i\", found 2"),
    );
    let odd = of(Some(part(Dtype::I32, &[1, 1], "029b7800")));
    check_error(&gptq, rows(), odd, &format!("{gptq}: expected zeros of [2, 8] in \"z\", found [1, 8]"));
    check_error(
        &awq,
        part(Dtype::U8, &[8, 8], pairs),
        of(None),
        &format!("{awq}: expected I32, found U8 [8, 8]"),
    );
}

#[test]
fn scales_may_be_padded_to_tiles_and_nothing_else() {
    let text = "dequant(nvfp4, scale=s)";
    let codes = || part(Dtype::F4, &[2, 32], NVFP4);
    let mut padded = vec![0x7f; 512];
    padded[..2].copy_from_slice(&[0x3c, 0x28]);
    padded[4..6].copy_from_slice(&[0x75, 0xc5]);
    let scale = Part::new(None, Dtype::U8, &[128, 4], None, padded.into()).unwrap();
    let plain = dequantised(text, codes(), operands(part(Dtype::U8, &[2, 2], "3c2875c5"))).unwrap();
    assert_eq!(
        numbers(&dequantised(text, codes(), Operands { tiled: true, ..operands(scale.clone()) }).unwrap()),
        numbers(&plain)
    );
    check_error(
        text,
        codes(),
        operands(scale),
        &format!("{text}: expected scales [2, 2] in \"s\" for codes [2, 32], found [128, 4]"),
    );
    let found = |shape: &[u64], hex: &str| operands(part(Dtype::U8, shape, hex));
    check_error(
        text,
        codes(),
        found(&[2, 3], "3c2875c53c28"),
        &format!("{text}: expected scales [2, 2] in \"s\" for codes [2, 32], found [2, 3]"),
    );
    check_error(
        text,
        part(Dtype::F4, &[32], &NVFP4[..32]),
        found(&[4], "3c2875c5"),
        &format!("{text}: expected scales [2] in \"s\" for codes [32], found [4]"),
    );
}

#[test]
fn dtypes_that_do_not_fit_are_named() {
    let scale = || operands(part(Dtype::F32, &[1, 1], "0000803f"));
    let text = "dequant(nvfp4, scale=s)";
    let found = part(Dtype::F16, &[1, 1], "0000");
    check_error(
        text,
        found,
        scale(),
        &format!("{text}: expected F4, or U8 that holds pairs, found F16 [1, 1]"),
    );
    check_error(
        text,
        part(Dtype::F4, &[1, 2], "00"),
        operands(part(Dtype::I32, &[1, 1], "00000000")),
        &format!("{text}: expected \"s\" in F8_E4M3 or U8, found I32 [1, 1]"),
    );
    let text = "dequant(nvfp4, scale=s, global=g)";
    let global = Some(part(Dtype::F32, &[2], "0000803f0000803f"));
    check_error(
        text,
        part(Dtype::F4, &[1, 2], "00"),
        Operands { global, ..scale() },
        &format!("{text}: expected one float in \"g\", found F32 [2]"),
    );
}

#[test]
fn a_record_without_numbers_has_none() {
    let huge = [0, 1 << 40, 1 << 40];
    let text = "dequant(fp8-block, scale=s)";
    let scale = part(Dtype::F32, &[0, 1 << 33, 1 << 33], "");
    let found = dequantised(text, part(Dtype::F8_E4M3, &huge, ""), operands(scale)).unwrap();
    assert!(found.is_empty());
}

/// A step of the codes is at most 1.2 units wherever it happens, of every format: what rounding flips is `ROUNDING`.
#[test]
fn one_step_of_a_code_is_about_a_unit() {
    for (text, codes, scale) in [
        (
            "dequant(nvfp4, scale=s)",
            part(Dtype::F4, &[1, 16], "1032547698badcfe"),
            part(Dtype::U8, &[1, 1], "48"),
        ),
        (
            "dequant(mxfp4, scale=s)",
            part(Dtype::F4, &[1, 16], "1032547698badcfe"),
            part(Dtype::U8, &[1, 1], "85"),
        ),
    ] {
        let part = dequantised(text, codes, operands(scale)).unwrap();
        let (u, mut terms) = (part.float().unwrap().roundoff(), [0.0; 16]);
        part.read_terms(0, &mut terms);
        let numbers = numbers(&part);
        for i in 0..7 {
            let step = f64::from(numbers[i + 1] - numbers[i]);
            let units = step / (u * (f64::from(numbers[i]) + terms[i]));
            assert!((0.6..=2.0).contains(&units), "{text} {i}: {units}");
        }
    }
}
