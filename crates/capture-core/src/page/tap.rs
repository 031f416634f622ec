//! The tap that fired last, as a process publishes it for whoever looks at a server that hangs.

use crate::name::MAX_TAP_NAME;

/// Bytes in front of the name: four words.
const FIXED: usize = 32;

/// The most bytes of a last tap.
pub(super) const MAX_LAST_TAP: usize = FIXED + MAX_TAP_NAME;

/// A call of a tap that the selection wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastTap {
    /// The tap's name.
    pub tap: String,
    /// Step of the run.
    pub step: u64,
    /// How many times it had fired in that step.
    pub call: u64,
    /// How many wanted calls of any tap there were before it in this session.
    pub seq: u64,
    /// When, nanoseconds since 1970.
    pub time_ns: u64,
}

/// Writes one into `room`, without allocating; the bytes written. `None` where the name is longer than a tap's can be.
pub(super) fn encode<'a>(tap: &str, words: [u64; 4], room: &'a mut [u8; MAX_LAST_TAP]) -> Option<&'a [u8]> {
    for (bytes, word) in room.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    room.get_mut(FIXED..FIXED + tap.len())?.copy_from_slice(tap.as_bytes());
    Some(&room[..FIXED + tap.len()])
}

/// `None` where the bytes are none.
pub(super) fn decode(bytes: &[u8]) -> Option<LastTap> {
    let (fixed, name) = bytes.split_at_checked(FIXED)?;
    let word = |i: usize| fixed[8 * i..][..8].try_into().map(u64::from_le_bytes).ok();
    let tap = String::from_utf8(name.to_vec()).ok()?;
    Some(LastTap { tap, step: word(0)?, call: word(1)?, seq: word(2)?, time_ns: word(3)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_reads_back() {
        let mut room = [0xff; MAX_LAST_TAP];
        let bytes = encode("é.q", [1, 2, 3, u64::MAX], &mut room).unwrap();
        assert_eq!(bytes.len(), 36);
        assert_eq!(&bytes[..9], [1, 0, 0, 0, 0, 0, 0, 0, 2]);
        let tap = LastTap { tap: "é.q".into(), step: 1, call: 2, seq: 3, time_ns: u64::MAX };
        assert_eq!(decode(bytes), Some(tap));
        assert_eq!(decode(&bytes[..31]), None);
        assert_eq!(decode(&bytes[..33]), None, "half a character");
        assert_eq!(decode(&bytes[..32]).map(|tap| tap.tap), Some(String::new()));
        assert_eq!(encode(&"x".repeat(1025), [0; 4], &mut room), None);
        assert!(encode(&"x".repeat(1024), [0; 4], &mut room).is_some());
    }
}
