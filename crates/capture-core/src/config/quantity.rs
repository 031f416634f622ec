//! Sizes and times as people write them: `10GiB`, `1.5GB`, `1e9`, `500ms`.

use std::time::Duration;

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// In nanoseconds.
const TIME_UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// A number of bytes: a plain number, or one with a unit, of ten in KB, MB, GB, TB and of two in KiB, MiB, GiB, TiB,
/// in any case. `None` where it is no size or does not fit 64 bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = if unit.is_empty() { 1 } else { unit_of(&SIZE_UNITS, unit)? };
    scaled(number, factor)
}

/// A span of time, whose unit must be written: `10s`, `500ms`, `2m`, `1h`.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    scaled(number, unit_of(&TIME_UNITS, unit)?).map(Duration::from_nanos)
}

/// The size in the largest unit that holds it exactly; [`parse_size`] reads it back.
pub(crate) fn show_size(n_bytes: u64) -> String {
    show(&SIZE_UNITS[..4], n_bytes).unwrap_or_else(|| n_bytes.to_string())
}

/// The time in the largest unit that holds it exactly, rounded down to microseconds; [`parse_time`] reads it back.
pub(crate) fn show_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    show(&TIME_UNITS, nanos / 1000 * 1000).unwrap_or_else(|| "0s".to_owned())
}

fn show(units: &[(&str, u64)], n: u64) -> Option<String> {
    let mut units = units.iter().filter(|(name, _)| *name != "min");
    units
        .find(|(_, factor)| n > 0 && n.is_multiple_of(*factor))
        .map(|(unit, factor)| format!("{}{unit}", n / factor))
}

fn unit_of(units: &[(&str, u64)], written: &str) -> Option<u64> {
    units.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(written)).map(|(_, factor)| *factor)
}

/// The number and what follows it. The `e` of `1e9` belongs to the number.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let mut end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let digits = exponent.bytes().take_while(u8::is_ascii_digit).count();
        end += if digits > 0 { 1 + digits } else { 0 };
    }
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then(|| (number, unit.trim()))
}

/// Whole numbers exactly, others to the precision of an f64.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    if let Ok(n) = number.parse::<u64>() {
        return n.checked_mul(factor);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    // 2^64 is exact in an f64; below it, the conversion does not saturate.
    (value < 18_446_744_073_709_551_616.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_ten_and_of_two() {
        for (text, n_bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("10GiB", Some(10_737_418_240)),
            ("256MiB", Some(268_435_456)),
            ("64KiB", Some(65_536)),
            ("1TiB", Some(1_099_511_627_776)),
            ("64KB", Some(64_000)),
            ("3mb", Some(3_000_000)),
            ("2 gb", Some(2_000_000_000)),
            ("1TB", Some(1_000_000_000_000)),
            ("7B", Some(7)),
            ("1e9", Some(1_000_000_000)),
            ("1e3KiB", Some(1_024_000)),
            ("1.5KiB", Some(1536)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e20", None),
            ("16777216TiB", None),
            ("1e999", None),
            ("10G", None),
            ("10XB", None),
            ("", None),
            ("GiB", None),
            ("1e", None),
            ("-1", None),
            ("1.2.3", None),
            ("nan", None),
            (".", None),
        ] {
            assert_eq!(parse_size(text), n_bytes, "{text:?}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        for (text, millis) in [
            ("10s", Some(10_000)),
            ("500ms", Some(500)),
            ("2m", Some(120_000)),
            ("2min", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("1.5s", Some(1500)),
            ("0s", Some(0)),
            ("2000us", Some(2)),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1e12h", None),
            ("10 seconds", None),
        ] {
            assert_eq!(parse_time(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for (n_bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1536, "1536"),
            (65_536, "64KiB"),
            (10 << 30, "10GiB"),
            (1_000_000_000, "1000000000"),
        ] {
            assert_eq!(show_size(n_bytes), text);
            assert_eq!(parse_size(text), Some(n_bytes));
        }
        for (millis, text) in
            [(0, "0s"), (1500, "1500ms"), (10_000, "10s"), (120_000, "2m"), (7_200_000, "2h")]
        {
            assert_eq!(show_time(Duration::from_millis(millis)), text);
            assert_eq!(parse_time(text), Some(Duration::from_millis(millis)));
        }
    }
}
