//! Rows put in an order of their own: a router's choice is the same whichever expert comes first.

use crate::{misfit::Misfit, part::Part, transform::Transform};

/// The numbers of each row, which runs along the last dim, in ascending order of those at the same place in `by`. Equal
/// ones keep their order, NaN comes last.
///
/// # Errors
/// A [`Misfit`] where `by` has another shape, or the numbers are not stored one by one.
pub(crate) fn sorted<'a>(part: &Part<'_>, by: &Part<'_>, transform: &Transform) -> Result<Part<'a>, Misfit> {
    let misfit = |expected: String, found: String| Misfit::Transform {
        transform: transform.to_string(),
        expected,
        found,
    };
    let (shape, rank, dtype) = (part.shape.clone(), part.rank, part.dtype);
    let Some(width) = shape.last().copied().filter(|_| !part.complex) else {
        return Err(misfit("rows of real numbers".to_owned(), format!("{dtype:?} {shape:?}")));
    };
    // Rows that are padding may have been left out already.
    let fits = by.shape.len() == shape.len() && by.shape[1..] == shape[1..] && by.shape[0] >= shape[0];
    if by.complex || !(fits || by.shape == shape) {
        return Err(misfit(format!("shape {shape:?} as its own"), format!("shape {:?}", by.shape)));
    }
    let (rows, item) = (part.len().checked_div(width).unwrap_or(0), part.item());
    if !part.is_stored() {
        return Err(misfit("numbers as recorded".to_owned(), format!("packed or quantised {dtype:?}")));
    }
    let mut bytes = Vec::with_capacity(part.bytes(0, part.len()).len());
    // Rows of a tensor without any may have any length.
    let mut keys = vec![0.0; if rows > 0 { width as usize } else { 0 }];
    for row in 0..rows {
        let (from, to) = (row * width, (row + 1) * width);
        by.read(from, &mut keys);
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
        let own = part.bytes(from, to);
        order.iter().for_each(|at| bytes.extend_from_slice(&own[at * item..(at + 1) * item]));
    }
    Part::new(rank, dtype, &shape, None, bytes.into())
        .map_err(|error| misfit("as many bytes as before".to_owned(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::Dtype;

    fn part(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Part<'static> {
        Part::new(Some(0), dtype, shape, None, bytes.into()).unwrap()
    }

    fn weights() -> Part<'static> {
        part(Dtype::F32, &[2, 3], (1..7u8).flat_map(|x| f32::from(x).to_le_bytes()).collect())
    }

    #[test]
    fn each_row_is_sorted_by_the_other_tap() {
        let by = part(Dtype::I8, &[2, 3], vec![2, 0xff, 1, 7, 7, 3]);
        let transform = Transform::SortRowsBy("i".into());
        let mut out = [0.0; 6];
        sorted(&weights(), &by, &transform).unwrap().read(0, &mut out);
        assert_eq!(out, [2., 3., 1., 6., 4., 5.]);
        let mut out = [0.0; 6];
        sorted(&by, &by, &Transform::SetRows).unwrap().read(0, &mut out);
        assert_eq!(out, [-1., 1., 2., 3., 7., 7.]);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let transform = Transform::SortRowsBy("i".into());
        let error = sorted(&weights(), &part(Dtype::I8, &[2, 2], vec![0; 4]), &transform).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sort_rows_by(i): expected shape [2, 3] as its own, found shape [2, 2]"
        );
        let scalar = || part(Dtype::I8, &[], vec![0]);
        let error = sorted(&scalar(), &scalar(), &Transform::SetRows).unwrap_err();
        assert_eq!(error.to_string(), "set_rows: expected rows of real numbers, found I8 []");
        let packed = || part(Dtype::F4, &[2], vec![0]);
        let error = sorted(&packed(), &packed(), &Transform::SetRows).unwrap_err();
        assert_eq!(error.to_string(), "set_rows: expected numbers as recorded, found packed or quantised F4");
        for shape in [[3, 0], [0, 1 << 40]] {
            let empty = || part(Dtype::I8, &shape, vec![]);
            assert_eq!(sorted(&empty(), &empty(), &transform).unwrap().shape, shape);
        }
    }
}
