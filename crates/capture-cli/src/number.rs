//! Numbers as people read them.

use capture_core::Dtype;

/// Six significant digits, as C's `%g`: `0.125`, `-2`, `1.5e-08`, `nan`.
pub(crate) fn float(x: f64) -> String {
    if x == 0.0 {
        return if x.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if !x.is_finite() {
        return if x.is_nan() {
            "nan".into()
        } else if x > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let scientific = format!("{x:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -4..=5 => trimmed(&format!("{x:.*}", usize::try_from(5 - exponent).unwrap_or(0))).to_owned(),
        _ => format!("{}e{}{:02}", trimmed(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// A stored number: integers in full, as far as an `f64` holds them.
pub(crate) fn value(x: f64, dtype: Dtype) -> String {
    use Dtype::{BOOL, I8, I16, I32, I64, U8, U16, U32, U64};
    let integer = matches!(dtype, BOOL | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64);
    if integer && x.abs() < 2f64.powi(53) { x.to_string() } else { float(x) }
}

/// Without zeros at the end of a fraction.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Bytes: `640 B`, `1.25 KiB`, `256 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut x, mut unit) = (n as f64 / 1024.0, 0);
    while x >= 1023.5 && unit + 1 < UNITS.len() {
        x /= 1024.0;
        unit += 1;
    }
    let digits = if x < 10.0 { 2 } else { usize::from(x < 100.0) };
    format!("{} {}", trimmed(&format!("{x:.digits$}")), UNITS[unit])
}

/// A span of nanoseconds in its largest unit, rounded down: `0 s`, `59 s`, `3 min`, `2 h`, `5 d`.
pub(crate) fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Ascending numbers as ranges: `0-3,7,9-10`.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for n in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(n) => *last = n,
            _ => ranges.push((n, n)),
        }
    }
    let text = |(a, b): &(u64, u64)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of C's `printf("%g")`.
    #[test]
    fn floats_have_six_digits() {
        let all = [
            (0.125, "0.125"),
            (-2.0, "-2"),
            (1.5e-8, "1.5e-08"),
            (0.0001, "0.0001"),
            (0.00009999999, "0.0001"),
            (0.00001, "1e-05"),
            (123456.0, "123456"),
            (1234567.0, "1.23457e+06"),
            (999999.9, "1e+06"),
            (100000.0, "100000"),
            (3.3895313892515355e38, "3.38953e+38"),
            (1e-300, "1e-300"),
            (-0.0, "-0"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (x, expected) in all {
            assert_eq!(float(x), expected);
        }
    }

    #[test]
    fn integers_are_whole() {
        assert_eq!(value(1e12, Dtype::I64), "1000000000000");
        assert_eq!(value(-3.0, Dtype::I8), "-3");
        assert_eq!(value(18446744073709551616.0, Dtype::U64), "1.84467e+19");
        assert_eq!(value(1e12, Dtype::F32), "1e+12");
    }

    #[test]
    fn bytes_have_units() {
        let all = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1280, "1.25 KiB"),
            (256 << 20, "256 MiB"),
            ((1 << 20) - 1, "1 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (n, expected) in all {
            assert_eq!(bytes(n), expected);
        }
    }

    #[test]
    fn spans_have_one_unit() {
        let all =
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (86_400, "1 d"), (864_000, "10 d")];
        for (seconds, expected) in all {
            assert_eq!(span(seconds * 1_000_000_000 + 999_999_999), expected);
        }
    }

    #[test]
    fn neighbours_are_ranges() {
        assert_eq!(ranges([0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([u64::MAX]), "18446744073709551615");
    }
}
