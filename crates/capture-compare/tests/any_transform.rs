//! Whatever a layouts file says of whatever records: a tensor or `LAYOUT`, never a panic and never more than is there.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, compare};
use capture_core::{Dtype, notation::LARGEST};
use proptest::prelude::*;
use recorded::{Tensor, record};

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..10, 2 => prop::sample::select(vec![16, 32, 128, 256]), 1 => Just(LARGEST), 1 => 0..=LARGEST]
}

fn transform() -> impl Strategy<Value = String> {
    let axis = -4i32..4;
    prop_oneof![
        (axis.clone(), size()).prop_map(|(d, n)| format!("crop({d}, {n})")),
        (axis.clone(), axis).prop_map(|(a, b)| format!("transpose({a}, {b})")),
        prop::collection::vec(size(), 0..3).prop_map(|dims| {
            let dims: String = dims.iter().map(|d| format!("{d}, ")).collect();
            format!("reshape({dims}-1)")
        }),
        prop::collection::vec(size(), 1..4).prop_map(|dims| {
            let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
            format!("reshape({})", dims.join(", "))
        }),
        Just("unswizzle(128x4)".to_owned()),
        prop::sample::select(vec!["mxfp4", "mxfp8", "nvfp4"]).prop_map(|s| format!("dequant({s}, scale=s)")),
        Just("dequant(nvfp4, scale=s, global=1/g)".to_owned()),
        (size(), size()).prop_map(|(m, n)| format!(
            "dequant(fp8-block, scale=s, block=[{},{}])",
            m.max(1),
            n.max(1)
        )),
        (size(), prop::sample::select(vec!["gptq", "gptq_v2", "awq"])).prop_map(|(group, order)| {
            format!("dequant(int4-group, scale=s, zero=z, g_idx=i, group={}, order={order})", group.max(1))
        }),
        (size(), prop::sample::select(vec!["gptq", "gptq_v2", "awq"])).prop_map(|(group, order)| format!(
            "dequant(int4-group, scale=s, group={}, order={order})",
            group.max(1)
        )),
    ]
}

/// A record of few bytes and any shape that has as many.
fn tensor(rank: u32, tap: &'static str) -> impl Strategy<Value = Tensor> {
    let dtypes = vec![
        Dtype::U8,
        Dtype::I32,
        Dtype::I64,
        Dtype::F16,
        Dtype::F32,
        Dtype::F8_E4M3,
        Dtype::F8_E8M0,
        Dtype::F4,
        Dtype::F6_E2M3,
        Dtype::C64,
    ];
    let dims = prop_oneof![6 => 0u64..5, 2 => prop::sample::select(vec![8, 16, 32, 128]), 1 => Just(1 << 40)];
    (prop::sample::select(dtypes), prop::collection::vec(dims, 0..4), any::<u8>()).prop_map(
        move |(dtype, shape, fill)| {
            let bits = shape.iter().try_fold(dtype.bitsize() as u64, |n, d| n.checked_mul(*d));
            match bits.filter(|bits| bits.is_multiple_of(8) && *bits < 1 << 22) {
                Some(bits) => Tensor::new(rank, tap, dtype, &shape, vec![fill; (bits / 8) as usize]),
                None => Tensor::new(rank, tap, dtype, &[0], Vec::new()),
            }
        },
    )
}

fn run() -> impl Strategy<Value = Vec<Tensor>> {
    let of = |rank| {
        (tensor(rank, "w"), tensor(rank, "s"), tensor(rank, "z"), tensor(rank, "i"), tensor(rank, "g"))
    };
    let all = |(a, b, c, d, e): (Tensor, Tensor, Tensor, Tensor, Tensor)| [a, b, c, d, e];
    (of(0), of(1)).prop_map(move |(a, b)| all(a).into_iter().chain(all(b)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        a in run(),
        b in run(),
        of_weight in prop::collection::vec(transform(), 0..3),
        of_scale in prop::collection::vec(transform(), 0..2),
        placement in prop::sample::select(vec!["S(0)", "R", "P", "S(-1)", "scale_of(s, block=[1,16])"]),
        of_scales in prop::sample::select(vec!["scale_of(w, block=[3,5,7,9])", "scale_of(w, block=[2])", "S(0)"]),
    ) {
        let table = |tap: &str, placement: &str, transforms: &[String]| {
            format!("[[tap]]\nmatch = {tap:?}\nplacement = {placement:?}\ntransforms = {transforms:?}\n")
        };
        let text = table("w", placement, &of_weight) + &table("s", of_scales, &of_scale);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layouts.toml");
        std::fs::write(&path, text).unwrap();
        let (a, b) = (record("tp=2", &a), record("tp=2", &b));
        let report = compare(&a.run, &b.run, &Layouts::read(&path).unwrap(), Options::default());
        prop_assert!(report.errors.is_empty());
        prop_assert_eq!(report.rows.len(), 5);
    }
}
