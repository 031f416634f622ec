//! The names in and around a segment: `step12/layers.0.q#1` of tap `layers.0.q`, its step and its call; and a run's.

use std::fmt::Write as _;

/// The longest tap name, in bytes: with every byte escaped its header entry still fits the smallest header.
pub const MAX_TAP_NAME: usize = 1024;

/// The safetensors key of a record.
#[must_use]
pub fn tensor_key(tap: &str, step: u64, call: u64) -> String {
    let mut key = format!("step{step}/");
    for c in tap.chars() {
        match c {
            '%' | '#' | '\0'..='\x1f' | '\x7f' => write!(key, "%{:02X}", c as u32),
            _ => write!(key, "{c}"),
        }
        .expect("a String takes what is written to it");
    }
    if call > 0 {
        write!(key, "#{call}").expect("a String takes what is written to it");
    }
    key
}

/// The longest run name, in bytes.
pub const MAX_RUN_NAME: usize = 200;

/// Whether `name` may name a run: one path component, the same on every file system.
#[must_use]
pub fn is_run_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= MAX_RUN_NAME && !name.starts_with('.') && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_escaped() {
        assert_eq!(tensor_key("layers.0/attn\n\0", 12, 0), "step12/layers.0/attn%0A%00");
        assert_eq!(tensor_key("a#1", 0, 2), "step0/a%231#2");
        assert_eq!(tensor_key("100%", 0, 0), "step0/100%25");
        assert_eq!(tensor_key("__metadata__", 3, 0), "step3/__metadata__");
        assert_eq!(tensor_key("", 1, 1), "step1/#1");
        assert_eq!(tensor_key("🚀 ../x", 1, 0), "step1/🚀 ../x");
    }
}
