//! What a device computes of a tensor is what the host does: hashes to the bit, statistics but for the order of sums.

#![expect(unsafe_code, reason = "makes views")]

mod sim;

use capture_core::{Digest, Dtype, Element, TensorView, digest};
use sim::{Capture, RING, Tensor, enter, new_stream, upload};

/// More than a block looks at, and no whole number of units.
const N: usize = 300_001;

/// One test, as switch and taps belong to the process.
#[test]
fn a_device_comes_to_the_hosts_figures() {
    enter(0);
    let stream = new_stream();
    let numbers: Vec<u8> =
        (0..N).flat_map(|i| ((i as f32 * 0.37).sin() * 100.0 + 3.0).to_le_bytes()).collect();
    let at = upload(&numbers);
    let element = Element::Plain(Dtype::F32);
    let shapes: [(&str, &[u64], &[i64]); 4] = [
        ("whole", &[N as u64], &[1]),
        ("rows", &[500, 300], &[600, 1]),
        ("turned", &[600, 500], &[1, 600]),
        ("one", &[1], &[1]),
    ];
    let capture = Capture::begin("*.stats=stats, *.hash=hash", &[]);
    for (name, shape, strides) in shapes {
        let tensor = Tensor { device: 0, stream, at, element, shape, strides, ring_bytes: RING };
        tensor.capture(&format!("{name}.stats")).unwrap();
        tensor.capture(&format!("{name}.hash")).unwrap();
    }
    let run = capture.end();
    assert_eq!(run.manifest.counters.lost, 0, "{:?}", run.manifest.losses);
    for (name, shape, strides) in shapes {
        // SAFETY: shapes that lie within the numbers.
        let view = unsafe { TensorView::new(numbers.as_ptr(), element, shape, strides, "cpu") }.unwrap();
        assert_eq!(
            run.digests[&format!("{name}.hash")],
            Digest::Hash { hash: digest::hash(&view) },
            "{name}"
        );
        let Digest::Stats { stats: found } = run.digests[&format!("{name}.stats")] else { panic!("{name}") };
        let expected = digest::stats(&view);
        let (found_finite, expected_finite) = (found.finite.unwrap(), expected.finite.unwrap());
        assert_eq!((found.n, found.nan, found.zero), (expected.n, expected.nan, expected.zero), "{name}");
        assert_eq!(
            (found_finite.min, found_finite.max),
            (expected_finite.min, expected_finite.max),
            "{name}"
        );
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * expected_finite.rms;
        assert!(
            near(found_finite.mean, expected_finite.mean) && near(found_finite.rms, expected_finite.rms),
            "{name}"
        );
    }
}
