//! Quantised records and their scales, put together as their formats say. Where each convention was looked up:
//!
//! - NVFP4: NVIDIA's ModelOpt multiplies by `weight_scale_2`; compressed-tensors divides the block's scale by
//!   `weight_global_scale` first, which here is `global=1/TAP`. e2m1 pairs, the low nibble first.
//! - MXFP8, MXFP4: OCP Microscaling Formats v1.0: e8m0 scales of 32 along the last dim.
//! - fp8-block: DeepSeek-V3's `weight_scale_inv` multiplies, blocks at the edges are cut.
//! - int4-group: AutoGPTQ packs eight input rows in a word, and its zeros, packed along the columns, are one less than they
//!   are, modulo 16 as exllama's kernels take them; its v2 stores them as they are. AutoAWQ packs eight columns.

use crate::{
    float::Float,
    misfit::Misfit,
    part::{Along, Blocks, Global, Nibbles, Part, Scaled, Zero, product},
    transform::{Dequant, Order, Scheme, Transform},
};
use capture_core::Dtype;

/// What other taps of the same rank hold.
pub(crate) struct Operands<'a> {
    pub(crate) scale: Part<'a>,
    /// Whether the scales came in tiles, and so may be padded to whole ones.
    pub(crate) tiled: bool,
    pub(crate) global: Option<Part<'a>>,
    pub(crate) zero: Option<Part<'a>>,
    pub(crate) g_idx: Option<Part<'a>>,
    /// Where the rank's rows and columns begin in the logical tensor.
    pub(crate) origin: [u64; 2],
}

/// 4-bit integers: steps of 1, and half a step is the error of a rounding near 4.
const INT4: Float = Float { precision: 3, min_exponent: 2 };

/// The dequantised part.
pub(crate) fn dequant<'a>(part: Part<'a>, dequant: &Dequant, of: Operands<'a>) -> Result<Part<'a>, Misfit> {
    Dequantising::new(dequant, &part).part(part, of)
}

/// The part's codes, one number each, without their scales.
pub(crate) fn codes<'a>(part: Part<'a>, dequant: &Dequant) -> Result<Part<'a>, Misfit> {
    Dequantising::new(dequant, &part).codes(part)
}

struct Dequantising<'d> {
    dequant: &'d Dequant,
    /// The record.
    found: String,
}

impl<'d> Dequantising<'d> {
    fn new(dequant: &'d Dequant, part: &Part<'_>) -> Self {
        Self { dequant, found: format!("{:?} {:?}", part.dtype, part.shape) }
    }

    fn part<'a>(&self, part: Part<'a>, of: Operands<'a>) -> Result<Part<'a>, Misfit> {
        let codes = self.codes(part)?;
        let [matrices, rows, columns] = matrix(&codes.shape);
        let payload = Float::of(codes.dtype).unwrap_or(INT4);
        let blocks = match self.dequant.scheme {
            Scheme::Nvfp4 => [1, 16],
            Scheme::Mxfp4 | Scheme::Mxfp8 => [1, 32],
            Scheme::Fp8Block(blocks) => blocks,
            Scheme::Int4Group(group, _) => [group, 1],
        };
        let lost = [of.origin[0] % blocks[0], of.origin[1] % blocks[1]];
        let blocks_of = |i: usize, size: u64| size.saturating_add(lost[i]).div_ceil(blocks[i]);
        let mut wanted = [blocks_of(0, rows), blocks_of(1, columns)];
        let scale = self.scale(of.scale)?;
        let by_row = match &of.g_idx {
            None => Blocks::Even { length: blocks[0], lost: lost[0] },
            Some(table) => {
                // With act-order a rank may hold the groups of all ranks.
                wanted[0] = scale.shape.len().checked_sub(2).map_or(wanted[0], |d| scale.shape[d]);
                Blocks::Table(self.table(table, rows, wanted[0])?)
            }
        };
        let held = self.held(&codes.shape, &scale, wanted, of.tiled)?;
        let zero = match &of.zero {
            None if payload == INT4 => Zero::Fixed(8.0),
            None => Zero::Fixed(0.0),
            Some(zero) => self.zero(zero, &scale)?,
        };
        let global = self.global(of.global.as_ref(), matrices)?;
        Ok(Part::scaled(Scaled {
            zero,
            global,
            rows: (rows, held[0]),
            columns: (columns, held[1]),
            by_row,
            by_column: Blocks::Even { length: blocks[1], lost: lost[1] },
            payload,
            codes,
            scale,
        }))
    }

    fn misfit(&self, expected: impl Into<String>, found: impl Into<String>) -> Misfit {
        let transform = Transform::Dequant(self.dequant.clone()).to_string();
        Misfit::Transform { transform, expected: expected.into(), found: found.into() }
    }

    /// The codes, one number each.
    fn codes<'a>(&self, part: Part<'a>) -> Result<Part<'a>, Misfit> {
        let refuse = |expected: &str| Err(self.misfit(expected, self.found.as_str()));
        match (self.dequant.scheme, part.dtype) {
            (Scheme::Nvfp4 | Scheme::Mxfp4, Dtype::F4) => Ok(part),
            (Scheme::Nvfp4 | Scheme::Mxfp4, Dtype::U8 | Dtype::I8) => {
                let expected = "pairs of e2m1 in bytes";
                let mut shape = part.shape.clone();
                match shape.last_mut().and_then(|d| Some((d.checked_mul(2)?, d))) {
                    Some((twice, d)) => *d = twice,
                    None => return refuse(expected),
                }
                part.reinterpreted(Dtype::F4, &shape).map_or_else(|| refuse(expected), Ok)
            }
            (Scheme::Nvfp4 | Scheme::Mxfp4, _) => refuse("F4, or U8 that holds pairs"),
            (
                Scheme::Mxfp8 | Scheme::Fp8Block(_),
                Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ,
            ) => Ok(part),
            (Scheme::Mxfp8 | Scheme::Fp8Block(_), Dtype::U8) => {
                let shape = part.shape.clone();
                part.reinterpreted(Dtype::F8_E4M3, &shape).map_or_else(|| refuse("F8_E4M3"), Ok)
            }
            (Scheme::Mxfp8 | Scheme::Fp8Block(_), _) => refuse("F8_E4M3 or F8_E5M2"),
            (Scheme::Int4Group(_, order), _) => {
                let along = if order == Order::Awq { Along::Awq } else { Along::Rows };
                self.nibbles(&part, along)
            }
        }
    }

    /// 4-bit integers out of words of 32 bits or bytes.
    fn nibbles<'a>(&self, part: &Part<'a>, along: Along) -> Result<Part<'a>, Misfit> {
        let per_word = match part.dtype {
            Dtype::I32 | Dtype::U32 => 8,
            Dtype::U8 | Dtype::I8 if along != Along::Awq => 2,
            _ => {
                let expected = if along == Along::Awq { "I32" } else { "I32 or U8" };
                return Err(self.misfit(expected, format!("{:?} {:?}", part.dtype, part.shape)));
            }
        };
        let (mut shape, found) = (part.shape.clone(), format!("{:?} {:?}", part.dtype, part.shape));
        let packed = shape.len().checked_sub(if along == Along::Rows { 2 } else { 1 });
        let unpacked = packed.and_then(|d| Some((d, shape[d].checked_mul(per_word)?)));
        let Some((d, size)) = unpacked.filter(|_| shape.len() > 1) else {
            return Err(self.misfit("a matrix", found));
        };
        shape[d] = size;
        let columns = shape[shape.len() - 1];
        match part.clone().into_data() {
            Some(data) => Ok(Part::nibbles(part.rank, shape, Nibbles { data, per_word, columns, along })),
            None => Err(self.misfit("words as recorded", found)),
        }
    }

    /// The scales as numbers of their format.
    fn scale<'a>(&self, part: Part<'a>) -> Result<Part<'a>, Misfit> {
        let bytes = match self.dequant.scheme {
            Scheme::Nvfp4 => Some(Dtype::F8_E4M3),
            Scheme::Mxfp4 | Scheme::Mxfp8 => Some(Dtype::F8_E8M0),
            Scheme::Fp8Block(_) | Scheme::Int4Group(..) => None,
        };
        let found = format!("{:?} {:?}", part.dtype, part.shape);
        let refuse = |expected: String| Err(self.misfit(expected, found.clone()));
        match (part.dtype, bytes) {
            (Dtype::U8, Some(dtype)) => {
                let shape = part.shape.clone();
                part.reinterpreted(dtype, &shape)
                    .map_or_else(|| refuse(format!("{:?} in {dtype:?}", self.dequant.scale)), Ok)
            }
            _ if part.float().is_some() && !part.complex => Ok(part),
            (_, Some(dtype)) => refuse(format!("{:?} in {dtype:?} or U8", self.dequant.scale)),
            (_, None) => refuse(format!("floats in {:?}", self.dequant.scale)),
        }
    }

    /// Rows and columns of the scales that are there: as many as blocks, or padded to whole tiles of 128 × 4.
    fn held(
        &self,
        codes: &[u64],
        scale: &Part<'_>,
        wanted: [u64; 2],
        tiled: bool,
    ) -> Result<[u64; 2], Misfit> {
        let lead = &codes[..codes.len().saturating_sub(2)];
        let shaped = |size: [u64; 2]| -> Vec<u64> {
            let of_dims = if codes.len() < 2 { &size[1..] } else { &size[..] };
            lead.iter().chain(of_dims).copied().collect()
        };
        if scale.shape == shaped(wanted) {
            return Ok(wanted);
        }
        let padded = [128, 4].into_iter().zip(wanted).map(|(tile, n)| n.checked_next_multiple_of(tile));
        if let (true, [Some(rows), Some(columns)]) = (tiled, padded.collect::<Vec<_>>().as_slice())
            && scale.shape == shaped([*rows, *columns])
        {
            return Ok([*rows, *columns]);
        }
        let expected = format!("scales {:?} in {:?} for codes {codes:?}", shaped(wanted), self.dequant.scale);
        Err(self.misfit(expected, format!("{:?}", scale.shape)))
    }

    /// Zeros, packed along the columns.
    fn zero<'a>(&self, part: &Part<'a>, scale: &Part<'a>) -> Result<Zero<'a>, Misfit> {
        let (along, add) = match self.dequant.scheme {
            Scheme::Int4Group(_, Order::Awq) => (Along::Awq, 0),
            Scheme::Int4Group(_, Order::Gptq) => (Along::Columns, 1),
            _ => (Along::Columns, 0),
        };
        let of = self.nibbles(part, along)?;
        if of.shape == scale.shape {
            return Ok(Zero::Each { of, add });
        }
        let tap = self.dequant.zero.as_deref().unwrap_or_default();
        let expected = format!("zeros of {:?} in {tap:?}", scale.shape);
        Err(self.misfit(expected, format!("{:?}", of.shape)))
    }

    /// One factor, or one for each matrix.
    fn global(&self, part: Option<&Part<'_>>, matrices: u64) -> Result<Global, Misfit> {
        let (Some(part), Some((tap, divides))) = (part, &self.dequant.global) else { return Ok(Global::One) };
        if part.float().is_none() || part.complex || (part.len() != 1 && part.len() != matrices) {
            let expected = match matrices {
                1 => format!("one float in {tap:?}"),
                _ => format!("one float or {matrices} in {tap:?}"),
            };
            return Err(self.misfit(expected, format!("{:?} {:?}", part.dtype, part.shape)));
        }
        let mut all = vec![0.0; part.len() as usize];
        part.read(0, &mut all);
        Ok(if *divides { Global::Over(all) } else { Global::Times(all) })
    }

    /// The group of each row, each one of `groups`.
    fn table(&self, part: &Part<'_>, rows: u64, groups: u64) -> Result<Vec<u32>, Misfit> {
        let tap = self.dequant.g_idx.as_deref().unwrap_or_default();
        if !matches!(part.dtype, Dtype::I32 | Dtype::I64) || part.len() != rows {
            let expected = format!("{rows} integers in {tap:?}");
            return Err(self.misfit(expected, format!("{:?} {:?}", part.dtype, part.shape)));
        }
        let mut numbers = vec![0.0; rows as usize];
        part.read(0, &mut numbers);
        let group = |x: f64| {
            let fits = x >= 0.0 && x < groups as f64 && x <= f64::from(u32::MAX);
            fits.then_some(x as u32).ok_or_else(|| {
                self.misfit(format!("groups of 0 to {} in {tap:?}", groups.saturating_sub(1)), x.to_string())
            })
        };
        numbers.into_iter().map(group).collect()
    }
}

/// How many matrices a shape holds, their rows and columns; a vector is one row.
fn matrix(shape: &[u64]) -> [u64; 3] {
    match shape {
        [] => [1; 3],
        [columns] => [1, 1, *columns],
        [lead @ .., rows, columns] => [product(lead), *rows, *columns],
    }
}

#[cfg(test)]
mod tests;
