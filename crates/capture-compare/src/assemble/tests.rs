use super::*;
use capture_core::Dtype;

/// Members of a mesh, each an F32 tensor of that shape and numbers.
fn check(
    mesh: &str,
    placement: &str,
    parts: &[(&[u64], &[f32])],
) -> Result<(Vec<u64>, Vec<f64>, u64), Misfit> {
    let meshes: Vec<Mesh> =
        (0..parts.len()).map(|rank| Mesh::from_sizes(mesh, rank as u32).unwrap()).collect();
    let members = parts.iter().zip(&meshes).enumerate().map(|(rank, ((shape, numbers), mesh))| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = Part::new(Some(rank as u32), Dtype::F32, shape, None, bytes.into()).unwrap();
        Member { part, mesh, rows: None, headed: false }
    });
    let whole = assemble(members.collect(), &placement.parse().unwrap(), None)?;
    let mut numbers = vec![0.0; whole.len() as usize];
    whole.read(0, &mut numbers);
    Ok((whole.shape.clone(), numbers, whole.padded))
}

#[test]
fn slices_join_in_rank_order() {
    let parts: &[(&[u64], &[f32])] = &[(&[1, 2], &[1., 2.]), (&[1, 2], &[3., 4.])];
    assert_eq!(check("tp=2", "S(0)", parts).unwrap(), (vec![2, 2], vec![1., 2., 3., 4.], 0));
    assert_eq!(check("tp=2", "S(-1)", parts).unwrap(), (vec![1, 4], vec![1., 2., 3., 4.], 0));
    assert_eq!(check("tp=2", "P", parts).unwrap(), (vec![1, 2], vec![4., 6.], 0));
    assert_eq!(check("tp=2", "R", parts).unwrap(), (vec![1, 2], vec![1., 2.], 0));
}

/// Rows are q0..q3, k0, k1, v0, v1; rank 0 holds q0 q1 k0 v0.
#[test]
fn sections_are_cut_each_by_itself() {
    let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 4., 6.]), (&[4], &[2., 3., 5., 7.])];
    let (_, numbers, _) = check("tp=2", "S(0, sections=[4,2,2])", parts).unwrap();
    assert_eq!(numbers, [0., 1., 2., 3., 4., 5., 6., 7.]);
    let misfit = check("tp=2", "S(0, sections=[4,2,4])", parts).unwrap_err();
    assert_eq!(misfit.to_string(), "dim 0: sections [4, 2, 4] over 2 ranks leave rank 0 5, found 4");
}

#[test]
fn uneven_sections_are_cut_as_torch_chunk_does() {
    // 5 over 2 ranks is 3 and 2; 2 over 2 ranks is 1 and 1.
    let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 2., 5.]), (&[3], &[3., 4., 6.])];
    let (_, numbers, _) = check("tp=2", "S(0, sections=[5,2])", parts).unwrap();
    assert_eq!(numbers, [0., 1., 2., 3., 4., 5., 6.]);
}

/// Rows are gate 0..4 and up 4..8, cut each by itself without saying how many.
#[test]
fn equal_sections_need_no_sizes() {
    let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 4., 5.]), (&[4], &[2., 3., 6., 7.])];
    let (_, numbers, _) = check("tp=2", "S(0, sections=2)", parts).unwrap();
    assert_eq!(numbers, [0., 1., 2., 3., 4., 5., 6., 7.]);
    let misfit = check("tp=2", "S(0, sections=3)", parts).unwrap_err();
    assert_eq!(misfit.to_string(), "dim 0: expected 3 sections of equal size, found 8 in all");
}

/// Four query heads and two each of keys and values over four ranks: ranks 0 and 1 hold the first of these, 2 and 3 the
/// second.
#[test]
fn neighbours_hold_slices_of_sections_that_have_fewer_than_ranks() {
    let parts: &[(&[u64], &[f32])] =
        &[(&[3], &[0., 4., 6.]), (&[3], &[1., 4., 6.]), (&[3], &[2., 5., 7.]), (&[3], &[3., 5., 7.])];
    let (shape, numbers, _) = check("tp=4", "S(0, sections=[4,2/2,2/2])", parts).unwrap();
    assert_eq!((shape, numbers), (vec![8], vec![0., 1., 2., 3., 4., 5., 6., 7.]));
    let misfit = check("tp=4", "S(0, sections=[4,3/3])", parts).unwrap_err();
    assert_eq!(misfit, Misfit::Groups { groups: 3, size: 4 });
}

/// Ten columns over four ranks of three, and uneven slices 3, 3, 3, 1.
#[test]
fn the_tail_past_the_size_is_padding() {
    let three: &[(&[u64], &[f32])] =
        &[(&[3], &[0., 1., 2.]), (&[3], &[3., 4., 5.]), (&[3], &[6., 7., 8.]), (&[3], &[9., -1., -1.])];
    let ten: Vec<f64> = (0..10).map(f64::from).collect();
    assert_eq!(check("tp=4", "S(0, size=10)", three).unwrap(), (vec![10], ten.clone(), 2));
    let mut uneven = three.to_vec();
    uneven[3] = (&[1], &[9.]);
    assert_eq!(check("tp=4", "S(0)", &uneven).unwrap(), (vec![10], ten, 0));
    assert_eq!(
        check("tp=4", "S(0, size=11)", &uneven).unwrap_err(),
        Misfit::Size { axis: 0, expected: 11, found: 10 }
    );
    // A record that is the whole is cropped too.
    assert_eq!(check("tp=1", "S(0, size=2)", &three[..1]).unwrap(), (vec![2], vec![0., 1.], 1));
}

#[test]
fn groups_are_held_by_neighbours() {
    let parts: &[(&[u64], &[f32])] = &[(&[1], &[1.]), (&[1], &[1.]), (&[1], &[2.]), (&[1], &[2.])];
    assert_eq!(check("tp=4", "S(0, groups=2)", parts).unwrap(), (vec![2], vec![1., 2.], 0));
    assert_eq!(check("tp=4", "S(0, groups=3)", parts).unwrap_err(), Misfit::Groups { groups: 3, size: 4 });
}

#[test]
fn interleaved_groups_stay_whole() {
    let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 2., 3.]), (&[4], &[4., 5., 6., 7.])];
    assert_eq!(check("tp=2", "S(0, interleave=4)", parts).unwrap().0, [8]);
    let cut: &[(&[u64], &[f32])] = &[(&[3], &[0., 1., 2.]), (&[5], &[3., 4., 5., 6., 7.])];
    assert!(matches!(check("tp=2", "S(0, interleave=4)", cut), Err(Misfit::Interleave { .. })));
}

#[test]
fn the_left_dimension_is_outermost() {
    let parts: &[(&[u64], &[f32])] = &[(&[1], &[0.]), (&[1], &[1.]), (&[1], &[2.]), (&[1], &[3.])];
    // rank = 2·ep + tp
    assert_eq!(check("ep=2,tp=2", "S(0)/ep, S(0)", parts).unwrap().1, [0., 1., 2., 3.]);
    assert_eq!(check("ep=2,tp=2", "S(0), S(0)/ep", parts).unwrap().1, [0., 2., 1., 3.]);
    assert_eq!(check("ep=2,tp=2", "S(0)/ep, R", parts).unwrap().1, [0., 2.]);
}

#[test]
fn what_does_not_fit_is_said_with_both_sizes() {
    let parts: &[(&[u64], &[f32])] = &[(&[1, 2], &[1., 2.]), (&[1, 3], &[3., 4., 5.])];
    assert_eq!(
        check("tp=2", "S(0)", parts).unwrap_err().to_string(),
        "expected shapes that fit together under S(0), found rank 0 [1, 2], rank 1 [1, 3]"
    );
    assert_eq!(
        check("tp=4", "S(1)", parts).unwrap_err().to_string(),
        "expected 4 ranks over tp, found 2: tp 2, 3 missing"
    );
    assert_eq!(check("tp=2", "S(2)", parts).unwrap_err(), Misfit::Axis { axis: 2, shape: vec![1, 2] });
    assert_eq!(check("dp=2", "S(0)", parts).unwrap_err(), Misfit::SamePlace(vec![0, 1]));
}

/// A mesh is what a file claims: nothing is made as large as that.
#[test]
fn a_mesh_of_any_size_is_only_counted() {
    let parts: &[(&[u64], &[f32])] = &[(&[1], &[1.]), (&[1], &[2.])];
    assert_eq!(
        check("tp=4294967295", "S(0)", parts).unwrap_err().to_string(),
        "expected 4294967295 ranks over tp, found 2: \
         tp 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 and 4294967277 more missing"
    );
}

#[test]
fn a_tensor_without_numbers_may_have_any_other_dims() {
    let parts: &[(&[u64], &[f32])] = &[(&[0, 1 << 40, 1 << 40], &[]), (&[0, 1 << 40, 1 << 40], &[])];
    assert_eq!(check("tp=2", "S(0)", parts).unwrap(), (vec![0, 1 << 40, 1 << 40], vec![], 0));
}

#[test]
fn padding_rows_of_each_rank_are_left_out() {
    let mesh = [Mesh::from_sizes("tp=2", 0).unwrap(), Mesh::from_sizes("tp=2", 1).unwrap()];
    let member = |rank: usize, rows| {
        let bytes: Vec<u8> =
            [rank as f32, 10.0 + rank as f32, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = Part::new(Some(rank as u32), Dtype::F32, &[3, 1], None, bytes.into()).unwrap();
        Member { part, mesh: &mesh[rank], rows, headed: false }
    };
    let members = || vec![member(0, Some(2)), member(1, Some(2))];
    for (placement, shape, padded) in [("S(0)", [4, 1], 2), ("S(1)", [2, 2], 1), ("P", [2, 1], 1)] {
        let whole = assemble(members(), &placement.parse().unwrap(), None).unwrap();
        assert_eq!((whole.shape.as_slice(), whole.padded), (shape.as_slice(), padded), "{placement}");
    }
    let error = assemble(vec![member(0, Some(4))], &"R".parse().unwrap(), None).unwrap_err();
    assert_eq!(error, Misfit::Rows { rows: 4, shape: vec![3, 1] });
    let headed = Member { headed: true, ..member(0, None) };
    let error = assemble(vec![headed, member(1, None)], &"S(0)".parse().unwrap(), None);
    assert_eq!(error.unwrap_err(), Misfit::Headed);
}

/// Sizes as large as can be said, of records without numbers.
#[test]
fn the_largest_sizes_do_not_overflow() {
    const N: u64 = capture_core::notation::LARGEST;
    let parts: &[(&[u64], &[f32])] = &[(&[0, N], &[]), (&[0, N], &[]), (&[0, N], &[]), (&[0, N], &[])];
    let shape = |placement: &str| check("tp=4", placement, parts).map(|(shape, ..)| shape);
    assert_eq!(shape("S(1)"), Ok(vec![0, 4 * N]));
    assert_eq!(shape(&format!("S(1, sections=[{N},{N},{N},{N}])")), Ok(vec![0, 4 * N]));
    assert_eq!(shape(&format!("S(1, sections=[{N}/2,{N}/2])")), Ok(vec![0, 2 * N]));
}
