//! Records in another shape or order: crop, transpose, reshape and unswizzle.

use crate::{
    misfit::Misfit,
    part::{Part, Strided, product},
    transform::Transform,
};

/// Rows and columns of a tile of block scales.
const TILE: [u64; 2] = [128, 4];

/// The part after a transform; one that takes other taps leaves it as it is.
pub(crate) fn rearrange<'a>(part: Part<'a>, transform: &Transform) -> Result<Part<'a>, Misfit> {
    let dims = part.shape.len() - usize::from(part.complex);
    let misfit = |expected: String| Misfit::Transform {
        transform: transform.to_string(),
        expected,
        found: format!("shape {:?}", &part.shape[..dims]),
    };
    let axis = |axis: i32| {
        let found = if axis < 0 { dims as i64 + i64::from(axis) } else { i64::from(axis) };
        let found = usize::try_from(found).ok().filter(|d| *d < dims);
        found.ok_or_else(|| misfit(format!("a tensor with dim {axis}")))
    };
    let (mut shape, mut at) = (part.shape.clone(), Strided::of(&part.shape));
    match transform {
        Transform::Crop { axis: dim, size } => {
            let dim = axis(*dim)?;
            if shape[dim] < *size {
                return Err(misfit(format!("at least {size} in dim {dim}")));
            }
            (shape[dim], at.dims[dim].0) = (*size, *size);
        }
        Transform::Transpose(a, b) => {
            let (a, b) = (axis(*a)?, axis(*b)?);
            shape.swap(a, b);
            at.dims.swap(a, b);
        }
        Transform::Reshape(wanted) => {
            shape = reshaped(&part.shape[..dims], wanted)
                .ok_or_else(|| misfit(format!("as many numbers as {transform} holds")))?;
            shape.extend_from_slice(&part.shape[dims..]);
            return Ok(part.reshaped(shape));
        }
        Transform::Unswizzle => {
            let tiles = |(size, tile): (&u64, u64)| size.is_multiple_of(tile);
            if dims < 2 || part.complex || !part.shape[dims - 2..].iter().zip(TILE).all(tiles) {
                return Err(misfit("rows and columns in whole tiles of 128 × 4".to_owned()));
            }
            at.dims = tiled(&part.shape, &at.dims);
        }
        // These take another tap, or the numbers themselves.
        Transform::Dequant(_) | Transform::SortRowsBy(_) | Transform::SetRows => return Ok(part),
    }
    Ok(part.rearranged(at, shape))
}

/// What to say where one shape is another padded to whole tiles, as block scales are.
pub(crate) fn tiles_hint(logical: &[u64], physical: &[u64]) -> Option<String> {
    let at =
        logical.len().checked_sub(2).filter(|_| logical.len() == physical.len() && logical != physical)?;
    let padded = |(n, tile): (&u64, u64)| n.checked_next_multiple_of(tile);
    let tiles: Option<Vec<u64>> = logical[at..].iter().zip(TILE).map(padded).collect();
    if logical[..at] != physical[..at] || tiles? != physical[at..] {
        return None;
    }
    let crops = (at..logical.len()).filter(|d| logical[*d] != physical[*d]);
    let crops: String = crops.map(|d| format!(", \"crop({d}, {})\"", logical[d])).collect();
    Some(format!(
        "; {physical:?} is {logical:?} in whole tiles of 128 × 4: say transforms = [\"unswizzle(128x4)\"{crops}] \
         of that side"
    ))
}

/// The shape that holds as many numbers, with the dim left open filled in.
fn reshaped(shape: &[u64], wanted: &[Option<u64>]) -> Option<Vec<u64>> {
    let numbers = product(shape);
    let said = wanted.iter().flatten().try_fold(1u64, |n, d| n.checked_mul(*d))?;
    let open = match wanted.contains(&None) {
        true => numbers.checked_div(said)?,
        false => 1,
    };
    (said.checked_mul(open)? == numbers).then(|| wanted.iter().map(|d| d.unwrap_or(open)).collect())
}

/// The places of block scales in tiles of 128 rows and 4 columns, row by row. A tile's 512 numbers lie together, number
/// (row, column) at (row mod 32)·16 + (row div 32)·4 + column; tiles lie in C order. The layout of cuBLAS and CUTLASS:
/// <https://docs.nvidia.com/cuda/cublas/index.html#d-block-scaling-factors-layout>.
fn tiled(shape: &[u64], dims: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let across = columns / TILE[1];
    let mut all = dims[..dims.len() - 2].to_vec();
    let tile = TILE[0] * TILE[1];
    all.extend([(rows / TILE[0], across.saturating_mul(tile)), (4, 4), (32, 16), (across, tile), (4, 1)]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::Dtype;

    fn part(shape: &[u64]) -> Part<'static> {
        let bytes: Vec<u8> = (0..product(shape)).flat_map(|i| (i as u16).to_le_bytes()).collect();
        Part::new(Some(0), Dtype::U16, shape, None, bytes.into()).unwrap()
    }

    fn numbers(part: &Part<'_>) -> Vec<f64> {
        let mut numbers = vec![0.0; part.len() as usize];
        part.read(0, &mut numbers);
        numbers
    }

    #[track_caller]
    fn check(shape: &[u64], transform: &str, expected_shape: &[u64], expected: &[u64]) {
        let found = rearrange(part(shape), &transform.parse().unwrap()).unwrap();
        let expected: Vec<f64> = expected.iter().map(|x| *x as f64).collect();
        assert_eq!((found.shape.as_slice(), numbers(&found)), (expected_shape, expected));
    }

    #[track_caller]
    fn check_error(shape: &[u64], transform: &str, expected: &str) {
        let error = rearrange(part(shape), &transform.parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn dims_are_cropped_exchanged_and_renamed() {
        check(&[2, 3], "crop(-1, 2)", &[2, 2], &[0, 1, 3, 4]);
        check(&[3, 2], "crop(0, 2)", &[2, 2], &[0, 1, 2, 3]);
        check(&[2, 3], "transpose(0, 1)", &[3, 2], &[0, 3, 1, 4, 2, 5]);
        check(&[2, 1, 3], "transpose(0, -1)", &[3, 1, 2], &[0, 3, 1, 4, 2, 5]);
        check(&[2, 3], "reshape(3, -1)", &[3, 2], &[0, 1, 2, 3, 4, 5]);
        check(&[0, 3], "reshape(5, 0)", &[5, 0], &[]);
        check(&[2, 3], "crop(0, 0)", &[0, 3], &[]);
    }

    /// What torchao's `to_blocked` puts at these places of one tile and of two beside each other.
    #[test]
    fn tiles_are_taken_apart() {
        let one = rearrange(part(&[128, 4]), &Transform::Unswizzle).unwrap();
        let at = |row: usize, column: usize| numbers(&one)[row * 4 + column];
        assert_eq!([at(0, 1), at(1, 0), at(31, 3), at(32, 0), at(127, 3)], [1., 16., 499., 4., 511.]);
        let two = rearrange(part(&[2, 128, 8]), &Transform::Unswizzle).unwrap();
        let at = |row: usize, column: usize| numbers(&two)[row * 8 + column];
        assert_eq!([at(0, 3), at(0, 4), at(1, 4), at(128, 0)], [3., 512., 528., 1024.]);
    }

    #[test]
    fn what_does_not_fit_is_said_with_the_shape() {
        check_error(&[2, 3], "crop(1, 4)", "crop(1, 4): expected at least 4 in dim 1, found shape [2, 3]");
        check_error(&[2, 3], "crop(2, 1)", "crop(2, 1): expected a tensor with dim 2, found shape [2, 3]");
        check_error(
            &[2, 3],
            "transpose(0, -3)",
            "transpose(0, -3): expected a tensor with dim -3, found shape [2, 3]",
        );
        let misfit = |dims: &str| {
            format!("reshape({dims}): expected as many numbers as reshape({dims}) holds, found shape [2, 3]")
        };
        for dims in ["4", "-1, 4", "0, -1", "17592186044416, 17592186044416"] {
            check_error(&[2, 3], &format!("reshape({dims})"), &misfit(dims));
        }
        check_error(
            &[130, 8],
            "unswizzle(128x4)",
            "unswizzle(128x4): expected rows and columns in whole tiles of 128 × 4, found shape [130, 8]",
        );
        check_error(
            &[512],
            "unswizzle(128x4)",
            "unswizzle(128x4): expected rows and columns in whole tiles of 128 × 4, found shape [512]",
        );
    }

    #[test]
    fn padding_to_tiles_is_recognised() {
        let hint = tiles_hint(&[2, 130, 7], &[2, 256, 8]).unwrap();
        let expected = "; [2, 256, 8] is [2, 130, 7] in whole tiles of 128 × 4: say transforms = \
                        [\"unswizzle(128x4)\", \"crop(1, 130)\", \"crop(2, 7)\"] of that side";
        assert_eq!(hint, expected);
        for (logical, physical) in [
            (&[130u64, 7][..], &[130u64, 7][..]),
            (&[130, 7], &[384, 8]),
            (&[7], &[8]),
            (&[u64::MAX, 4], &[1, 4]),
        ] {
            assert_eq!(tiles_hint(logical, physical), None);
        }
    }

    #[test]
    fn packed_and_complex_numbers_are_rearranged_too() {
        let bytes = vec![0x10u8, 0x32, 0x54];
        let part = Part::new(Some(0), Dtype::F4, &[2, 3], None, bytes.into()).unwrap();
        let part = rearrange(part, &Transform::Transpose(0, 1)).unwrap();
        assert_eq!(
            numbers(&rearrange(part, &Transform::Crop { axis: 0, size: 2 }).unwrap()),
            [0., 1.5, 0.5, 2.]
        );
        let bytes: Vec<u8> = (0..8u8).flat_map(|x| f32::from(x).to_le_bytes()).collect();
        let part = Part::new(Some(0), Dtype::C64, &[2, 2], None, bytes.into()).unwrap();
        let part = rearrange(part, &Transform::Transpose(0, -1)).unwrap();
        assert_eq!(numbers(&part), [0., 1., 4., 5., 2., 3., 6., 7.]);
    }
}
