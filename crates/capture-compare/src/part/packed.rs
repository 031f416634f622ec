//! Numbers of which several share a byte or word: the small floats, and int4 as GPTQ and AWQ pack it.

use crate::{
    data::Data,
    decode::{decode_into, granule},
};
use capture_core::Dtype;

/// Packed numbers, decoded where they are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Packed<'a> {
    /// `F4` or `F6`, one after the other.
    Floats {
        /// The dtype.
        dtype: Dtype,
        /// Whole granules.
        data: Data<'a>,
    },
    /// Unsigned 4-bit integers.
    Nibbles(Nibbles<'a>),
}

/// A matrix, or several one below the other, of 4-bit integers in little-endian words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Nibbles<'a> {
    pub(crate) data: Data<'a>,
    /// Integers in a word: 2 in a byte, 8 in 32 bits.
    pub(crate) per_word: u64,
    /// Columns of the matrix of integers.
    pub(crate) columns: u64,
    pub(crate) along: Along,
}

/// Which neighbours share a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Along {
    /// Those of a column, the first row lowest.
    Rows,
    /// Those of a row, the first column lowest.
    Columns,
    /// Those of a row, column 0, 2, 4, 6, 1, 3, 5, 7 from the lowest nibble up.
    Awq,
}

/// Where columns 0 to 7 lie in a word of AWQ.
const AWQ: [u64; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

impl Packed<'_> {
    /// The numbers from `from` on, as many as `out` holds.
    pub(crate) fn read(&self, mut from: u64, mut out: &mut [f64]) {
        match self {
            Self::Nibbles(nibbles) => nibbles.read(from, out),
            Self::Floats { dtype, data } => {
                let (elements, n_bytes) = granule(*dtype);
                let granules = (from / elements as u64, (from + out.len() as u64).div_ceil(elements as u64));
                let bytes = data.get(granules.0 * n_bytes as u64, granules.1 * n_bytes as u64);
                while !out.is_empty() {
                    let at = (from / elements as u64 - granules.0) as usize * n_bytes;
                    let skip = (from % elements as u64) as usize;
                    let done = if skip == 0 && out.len() >= elements {
                        decode_into(*dtype, &bytes[at..], out)
                    } else {
                        let mut some = [0.0; 4];
                        decode_into(*dtype, &bytes[at..], &mut some[..elements]);
                        let n = (elements - skip).min(out.len());
                        out[..n].copy_from_slice(&some[skip..skip + n]);
                        n
                    };
                    from += done as u64;
                    out = &mut out[done..];
                }
            }
        }
    }
}

impl Nibbles<'_> {
    /// The integers from `from` on, row by row: those of one row lie in neighbouring words.
    fn read(&self, mut from: u64, mut out: &mut [f64]) {
        while !out.is_empty() {
            let n = (self.columns - from % self.columns).min(out.len() as u64);
            let (first, last) = (self.place(from).0, self.place(from + n - 1).0);
            let bytes = self.data.get(first * self.per_word / 2, (last + 1) * self.per_word / 2);
            let (row, rest) = out.split_at_mut(n as usize);
            for (i, number) in row.iter_mut().enumerate() {
                let (word, place) = self.place(from + i as u64);
                let byte = bytes[((word - first) * self.per_word / 2 + place / 2) as usize];
                *number = f64::from(byte >> (place % 2 * 4) & 15);
            }
            (from, out) = (from + n, rest);
        }
    }

    /// The word that an integer is in, and which of the word's it is from the lowest up.
    fn place(&self, index: u64) -> (u64, u64) {
        let (row, column) = (index / self.columns, index % self.columns);
        match self.along {
            Along::Rows => (row / self.per_word * self.columns + column, row % self.per_word),
            Along::Columns => (index / self.per_word, column % self.per_word),
            Along::Awq => (index / self.per_word, AWQ[(column % self.per_word) as usize]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(packed: &Packed<'_>, expected: &[f64]) {
        for from in 0..expected.len() {
            for to in from..=expected.len() {
                let mut out = vec![9.0; to - from];
                packed.read(from as u64, &mut out);
                assert_eq!(out, expected[from..to], "{from}..{to}");
            }
        }
    }

    /// Bytes of ml_dtypes' float6_e2m3fn values packed by hand: codes 1, 2, 3, 63, 8, 9, 10, 11.
    #[test]
    fn any_stretch_of_small_floats_is_read() {
        let data = vec![0x81, 0x30, 0xfc, 0x48, 0xa2, 0x2c].into();
        check(
            &Packed::Floats { dtype: Dtype::F6_E2M3, data },
            &[0.125, 0.25, 0.375, -7.5, 1.0, 1.125, 1.25, 1.375],
        );
        let data = vec![0x72, 0x98, 0x01].into();
        check(&Packed::Floats { dtype: Dtype::F4, data }, &[1.0, 6.0, -0.0, -0.5, 0.5, 0.0]);
    }

    /// One word 0x76543210 holds 0 to 7 from the lowest nibble up.
    #[test]
    fn words_are_unpacked_in_each_order() {
        let words = |n: u32| [0x7654_3210u32, 0xfedc_ba98][..n as usize].iter().flat_map(|w| w.to_le_bytes());
        let of = |n, columns, along| {
            Packed::Nibbles(Nibbles {
                data: words(n).collect::<Vec<u8>>().into(),
                per_word: 8,
                columns,
                along,
            })
        };
        check(&of(1, 8, Along::Columns), &[0., 1., 2., 3., 4., 5., 6., 7.]);
        check(&of(1, 8, Along::Awq), &[0., 4., 1., 5., 2., 6., 3., 7.]);
        // Two columns of eight rows.
        let rows: Vec<f64> = (0..8).flat_map(|i| [f64::from(i), f64::from(i + 8)]).collect();
        check(&of(2, 2, Along::Rows), &rows);
        let bytes = Nibbles { data: vec![0x21, 0x43].into(), per_word: 2, columns: 2, along: Along::Rows };
        check(&Packed::Nibbles(bytes), &[1., 3., 2., 4.]);
    }
}
