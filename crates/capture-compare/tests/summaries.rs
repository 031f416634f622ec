//! Summaries of records: values worked out by hand, in both ways of reading.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_compare::{
    Access, Run,
    summary::{Finite, Summary, summarise},
};
use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter};

#[track_caller]
fn summary(dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Summary {
    let (run, process) = ("r".to_owned(), "1-00000000".to_owned());
    let identity = Identity { run, rank: None, world: None, mesh: Mesh::default(), process };
    let record = Record {
        tap: "t".into(),
        step: 0,
        abs_step: 0,
        call: 0,
        seq: 0,
        time_ns: 0,
        placement: None,
        rows: None,
        full_rows: None,
        strides: vec![],
        device: "cpu".into(),
        encoding: None,
        crc32: 0,
    };
    let temp = tempfile::tempdir().unwrap();
    let dir = RunDir::create(temp.path(), "r").unwrap();
    let mut writer = SegmentWriter::new(dir, identity);
    writer.begin(&record, dtype, shape, bytes.len() as u64).unwrap();
    writer.append(bytes).unwrap();
    writer.finish().unwrap();
    let [mapped, unmapped] = [Access::Mapped, Access::Unmapped].map(|access| {
        let run = Run::open(temp.path(), access).unwrap();
        summarise(&run, &run.entries[0]).unwrap()
    });
    assert_eq!(format!("{mapped:?}"), format!("{unmapped:?}"));
    mapped
}

fn f64s(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn classes_are_counted_and_the_finite_measured() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let found = summary(Dtype::F64, &[9], &f64s(&[3.0, nan, -1.0, inf, inf, -inf, 0.0, -0.0, 8.0]));
    let counts = (found.n, found.nan, found.pos_inf, found.neg_inf, found.zero);
    assert_eq!(counts, (9, 1, 2, 1, 2));
    assert_eq!(found.first.len(), 8);
    assert_eq!((found.first[0], found.first[7]), (3.0, -0.0));
    let finite = found.finite.unwrap();
    // -1, 0, 0, 3, 8: sum 10, squares 74. Parts of 9/16: 0 in the second, 3 in the eighth, 8 in the last.
    assert_eq!((finite.min, finite.max, finite.mean, finite.absmax), (-1.0, 8.0, 2.0, 8.0));
    assert!((finite.rms - 14.8f64.sqrt()).abs() < 1e-15);
    assert_eq!(finite.histogram, [1, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn extremes_do_not_overflow() {
    let finite = summary(Dtype::F64, &[2], &f64s(&[f64::MAX, f64::MAX])).finite.unwrap();
    assert_eq!((finite.mean, finite.rms), (f64::MAX, f64::MAX));
    let finite = summary(Dtype::F64, &[2], &f64s(&[f64::MAX, -f64::MAX])).finite.unwrap();
    assert_eq!((finite.mean, finite.histogram[0], finite.histogram[15]), (0.0, 1, 1));
    let finite = summary(Dtype::F64, &[1], &f64s(&[1e-300])).finite.unwrap();
    assert_eq!((finite.mean, finite.rms, finite.histogram[0]), (1e-300, 1e-300, 1));
}

#[test]
fn nothing_finite_has_no_statistics() {
    let empty = summary(Dtype::F32, &[0, 7], &[]);
    let nothing = Summary { n: 0, nan: 0, pos_inf: 0, neg_inf: 0, zero: 0, finite: None, first: vec![] };
    assert_eq!(empty, nothing);
    let nan = summary(Dtype::F8_E4M3, &[1], &[0x7f]);
    assert_eq!((nan.n, nan.nan, nan.finite), (1, 1, None));
    let zero = summary(Dtype::BF16, &[], &[0, 0]);
    let finite = zero.finite.unwrap();
    let mut histogram = vec![0; 16];
    histogram[0] = 1;
    assert_eq!(finite, Finite { min: 0.0, max: 0.0, mean: 0.0, rms: 0.0, absmax: 0.0, histogram });
}

/// Several chunks of every kind of granule: 0, 1, …, over and over.
#[test]
fn chunks_make_no_difference() {
    let n = 3_000_000u64;
    let eights = |bits: u64| (0..n * bits / 8).map(|i| (i % 251) as u8).collect::<Vec<u8>>();
    let found = summary(Dtype::U8, &[n], &eights(8)).finite.unwrap();
    let values = || (0..n).map(|i| (i % 251) as f64);
    let (mean, square) = (values().sum::<f64>() / n as f64, values().map(|x| x * x).sum::<f64>() / n as f64);
    assert!((found.mean - mean).abs() < 1e-9 && (found.rms - square.sqrt()).abs() < 1e-9);
    assert_eq!(found.histogram.iter().sum::<u64>(), n);
    for (dtype, bits) in [(Dtype::F4, 4), (Dtype::F6_E3M2, 6), (Dtype::C64, 64)] {
        let n = n / 8;
        let found = summary(dtype, &[n], &eights(bits)[..(n * bits / 8) as usize]);
        assert_eq!(found.n, if bits == 64 { 2 * n } else { n });
    }
}
