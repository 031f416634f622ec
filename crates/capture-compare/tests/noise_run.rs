//! A second run of the reference says what rounding alone is off by: with it a tap that could be inherited noise is told
//! from one that is wrong.

#![expect(clippy::unwrap_used, reason = "a test")]

mod recorded;

use capture_compare::{Layouts, Options, Verdict, compare, report::Row};
use recorded::{Tensor, record};

const SHAPE: [u64; 2] = [32, 64];

/// Numbers around one, off by about `relative`, otherwise for every seed.
fn noisy(seed: u64, relative: f64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / 2f64.powi(53)
    };
    (0..32 * 64)
        .map(|i| {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            ((1.0 + f64::from(i % 7)) * (1.0 + relative * normal)) as f32
        })
        .collect()
}

fn row(candidate: &[f32], noise: Option<&[f32]>) -> Row {
    let run = |numbers: &[f32]| record("tp=1", &[Tensor::f32(0, "layers.20.out", &SHAPE, numbers)]);
    let (a, b, c) = (run(&noisy(0, 0.0)), run(candidate), noise.map(run));
    let options = Options { noise: c.as_ref().map(|c| &c.run), ..Options::default() };
    compare(&a.run, &b.run, &Layouts::default(), options).rows.remove(0)
}

#[test]
fn what_a_noise_run_is_off_by_is_allowed_and_no_more() {
    let (off, noise) = (noisy(1, 0.005), noisy(2, 0.005));
    assert_eq!(row(&off, None).verdict, Some(Verdict::Suspect));
    let cleared = row(&off, Some(&noise));
    assert_eq!(cleared.verdict, Some(Verdict::Rounding), "{:?}", cleared.test);
    // 0.5 % in units of fp32, as the twelve uniform numbers' deviation is one.
    let units = cleared.inherited_units.unwrap() * 2f64.powi(-24);
    assert!((0.002..0.005).contains(&units), "{units}");

    // Ten times as much is more than that, and so is one row of another token.
    assert_eq!(row(&noisy(3, 0.05), Some(&noise)).verdict, Some(Verdict::Different));
    let mut wrong = off;
    wrong[640..704].iter_mut().for_each(|x| *x *= -1.0);
    assert_eq!(row(&wrong, Some(&noise)).verdict, Some(Verdict::Different));
    // A noise run without noise allows what one rounding makes.
    assert_eq!(row(&noisy(4, 0.005), Some(&noisy(0, 0.0))).verdict, Some(Verdict::Different));
}

/// Another tensor altogether, or one that is wrong by itself, says nothing of rounding.
#[test]
fn a_noise_run_that_is_no_run_of_the_reference_is_not_used() {
    let off = noisy(1, 0.005);
    let unused = |noise: &[f32]| {
        let row = row(&off, Some(noise));
        assert_eq!(row.verdict, Some(Verdict::Suspect), "{row:#?}");
        let text = &row.diagnoses[0].text;
        assert!(text.starts_with("noise run not used: it "), "{text}");
        text.clone()
    };
    let mut nan = noisy(2, 0.005);
    nan[5] = f32::NAN;
    assert!(unused(&nan).contains("has NaN or infinity"));
    let mut wrong = noisy(2, 0.005);
    wrong[640..704].iter_mut().for_each(|x| *x *= -1.0);
    assert!(unused(&wrong).contains("as rounding does not ("));
    let doubled: Vec<f32> = noisy(2, 0.005).iter().map(|x| 2.0 * x).collect();
    assert!(unused(&doubled).contains("from the reference by "));
}

/// However much noise there is said to be, a tensor that is off by half of itself is another one.
#[test]
fn what_a_noise_run_may_allow_is_bounded() {
    let random =
        |seed| noisy(seed, 0.0).iter().zip(noisy(seed, 1.0)).map(|(x, y)| y - x).collect::<Vec<f32>>();
    let run = |numbers: &[f32]| record("tp=1", &[Tensor::f32(0, "out", &SHAPE, numbers)]);
    let (a, noise) = (run(&random(1)), run(&random(2)));
    let negated: Vec<f32> = random(1).iter().map(|x| -x).collect();
    for candidate in [negated, random(3)] {
        let options = Options { noise: Some(&noise.run), ..Options::default() };
        let row = compare(&a.run, &run(&candidate).run, &Layouts::default(), options).rows.remove(0);
        assert_eq!(row.verdict, Some(Verdict::Different), "{row:#?}");
    }
}
