//! Placements where nobody said any: from the shapes of the parts alone, so that a guess is never made to fit the
//! numbers.

use capture_core::{Placement, Placements, Sharding, placement::Cut};

/// The placements over tp that would fit, and the shape each would make of which so many rows are valid: `R` first,
/// then `S(0)`, `S(1)`, …
pub(crate) fn fitting(shapes: &[Vec<u64>], rows: Option<u64>) -> Vec<(Sharding, Vec<u64>)> {
    let Some(first) = shapes.first() else { return Vec::new() };
    let mut all = Vec::new();
    if shapes.iter().all(|s| s == first) {
        all.push((Sharding::Replicate, first.clone()));
    }
    let axes = if shapes.len() == 1 { 0 } else { first.len() };
    for axis in 0..axes {
        let others = |s: &[u64]| s.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| *d).collect();
        let wanted: Vec<u64> = others(first);
        if shapes.iter().all(|s| s.len() == first.len() && others(s) == wanted) {
            let mut shape = first.clone();
            shape[axis] = shapes.iter().fold(0, |sum, s| s[axis].saturating_add(sum));
            all.push((Sharding::Shard { axis: axis as i32, cut: Cut::Plain, size: None }, shape));
        }
    }
    of_valid(all, rows)
}

/// With the shapes that valid rows make.
fn of_valid(mut all: Vec<(Sharding, Vec<u64>)>, rows: Option<u64>) -> Vec<(Sharding, Vec<u64>)> {
    for (_, shape) in &mut all {
        if let (Some(d), Some(rows)) = (shape.first_mut(), rows) {
            *d = rows.min(*d);
        }
    }
    all
}

/// The same for fewer slices than ranks, each on neighbours, as keys and values are that have fewer heads than ranks.
fn shared(shapes: &[Vec<u64>]) -> Vec<(Sharding, Vec<u64>)> {
    let ranks = shapes.len() as u64;
    let Some(first) = shapes.first().filter(|first| shapes.iter().all(|s| s == *first)) else {
        return Vec::new();
    };
    let shares = (2..ranks).filter(|n| ranks.is_multiple_of(*n));
    let all = shares.flat_map(|n| (0..first.len()).map(move |axis| (n, axis)));
    let made = all.map(|(n, axis)| {
        let mut shape = first.clone();
        shape[axis] = shape[axis].saturating_mul(n);
        (Sharding::Shard { axis: axis as i32, cut: Cut::Groups(n), size: None }, shape)
    });
    made.collect()
}

/// Which placement is tried first: replicas, then the leading dims before the trailing ones, and slices on several ranks
/// last.
pub(crate) fn rank(sharding: &Sharding) -> i32 {
    match sharding {
        Sharding::Shard { axis, cut: Cut::Groups(_), .. } => 1000 + *axis,
        Sharding::Shard { axis, .. } => 1 + *axis,
        _ => 0,
    }
}

/// Placements of both sides under which they have the same shape. `replicas` tells whether the ranks of a side whose
/// shapes agree also hold the same bytes. Where both sides have as many ranks and parts of the same shape that are not
/// replicas, any placement pairs rank with rank: `S(0)` does. One record on either side is the whole.
///
/// # Errors
/// What was found, where nothing fits.
pub fn infer(
    reference: &[Vec<u64>],
    candidate: &[Vec<u64>],
    rows: [Option<u64>; 2],
    replicas: [&dyn Fn() -> bool; 2],
) -> Result<[Placements; 2], String> {
    if reference.len() == 1 && candidate.len() == 1 {
        return Ok([0; 2].map(|_| over_tp(Sharding::Replicate)));
    }
    let Some(mut found) = all(reference, candidate, rows).into_iter().next() else {
        return Err(format!(
            "no placement given, and none fits: reference {}, candidate {}",
            listed(reference),
            listed(candidate)
        ));
    };
    let several = reference.len() > 1 && reference.len() == candidate.len();
    let both_whole = found.iter().all(|p| p.0[0].sharding == Sharding::Replicate);
    if several && both_whole && !reference[0].is_empty() && !replicas[0]() && !replicas[1]() {
        found = [0; 2].map(|axis| over_tp(Sharding::Shard { axis, cut: Cut::Plain, size: None }));
    }
    Ok(found)
}

/// All placements of both sides under which they have the same shape, the likeliest first.
pub(crate) fn all(
    reference: &[Vec<u64>],
    candidate: &[Vec<u64>],
    rows: [Option<u64>; 2],
) -> Vec<[Placements; 2]> {
    let of_side = |shapes: &[Vec<u64>], rows| {
        let mut all = fitting(shapes, rows);
        all.extend(of_valid(shared(shapes), rows));
        all
    };
    let (of_reference, of_candidate) = (of_side(reference, rows[0]), of_side(candidate, rows[1]));
    let mut all = Vec::new();
    for (a, shape) in of_reference {
        let alike = of_candidate.iter().filter(|(_, other)| *other == shape);
        all.extend(alike.map(|(b, _)| (rank(&a) + rank(b), [a.clone(), b.clone()])));
    }
    all.sort_by_key(|(cost, _)| *cost);
    all.into_iter().map(|(_, found)| found.map(over_tp)).collect()
}

fn over_tp(sharding: Sharding) -> Placements {
    Placements(vec![Placement { sharding, over: "tp".to_owned() }])
}

/// `[2, 4]`, `2 ranks of [2, 4]`, `ranks of [2, 4], [2, 3]`.
pub(crate) fn listed(shapes: &[Vec<u64>]) -> String {
    match shapes {
        [one] => format!("{one:?}"),
        [first, rest @ ..] if rest.iter().all(|s| s == first) => {
            format!("{} ranks of {first:?}", shapes.len())
        }
        _ => {
            let shapes: Vec<String> = shapes.iter().map(|s| format!("{s:?}")).collect();
            format!("ranks of {}", shapes.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reference: &[&[u64]], candidate: &[&[u64]], expected: Result<[&str; 2], &str>) {
        let own = |shapes: &[&[u64]]| shapes.iter().map(|s| s.to_vec()).collect::<Vec<_>>();
        let found = infer(&own(reference), &own(candidate), [None; 2], [&|| false, &|| false]);
        let found = found.map(|p| p.map(|p| p.to_string()));
        assert_eq!(found, expected.map(|p| p.map(str::to_owned)).map_err(str::to_owned));
    }

    #[test]
    fn shapes_tell_the_placement() {
        check(&[&[4, 8]], &[&[4, 8], &[4, 8]], Ok(["R", "R"]));
        check(&[&[4, 8]], &[&[2, 8], &[2, 8]], Ok(["R", "S(0)"]));
        check(&[&[4, 8]], &[&[4, 3], &[4, 5]], Ok(["R", "S(1)"]));
        check(&[&[4, 4], &[4, 4]], &[&[4, 2], &[4, 2], &[4, 2], &[4, 2]], Ok(["S(1)", "S(1)"]));
        check(&[&[4, 4], &[4, 4]], &[&[4, 4], &[4, 4], &[4, 4], &[4, 4]], Ok(["R", "R"]));
        check(&[&[4, 4], &[4, 4]], &[&[4, 8]], Ok(["S(1)", "R"]));
        check(&[&[]], &[&[], &[]], Ok(["R", "R"]));
    }

    /// Two heads of keys on four ranks, as the ranks of a vLLM worker have them.
    #[test]
    fn fewer_slices_than_ranks_are_on_neighbours() {
        let head = &[5, 32][..];
        check(&[&[5, 64]], &[head; 4], Ok(["R", "S(1, groups=2)"]));
        check(&[head; 2], &[head; 4], Ok(["R", "R"]));
        check(
            &[&[5, 64]],
            &[head; 3],
            Err("no placement given, and none fits: reference [5, 64], candidate 3 ranks of [5, 32]"),
        );
    }

    #[test]
    fn ranks_are_paired_with_ranks_where_they_are_as_many() {
        check(&[&[4, 8], &[4, 8]], &[&[4, 8], &[4, 8]], Ok(["S(0)", "S(0)"]));
        let shapes = [vec![4, 8], vec![4, 8]];
        let found = infer(&shapes, &shapes, [None; 2], [&|| true, &|| false]).unwrap();
        assert_eq!(found.map(|p| p.to_string()), ["R", "R"]);
    }

    #[test]
    fn what_does_not_fit_says_what_was_found() {
        check(
            &[&[4, 8]],
            &[&[4, 3], &[4, 4]],
            Err("no placement given, and none fits: reference [4, 8], candidate ranks of [4, 3], [4, 4]"),
        );
        check(
            &[&[4, 8]],
            &[&[4, 8, 1], &[4, 8, 1]],
            Err("no placement given, and none fits: reference [4, 8], candidate 2 ranks of [4, 8, 1]"),
        );
    }
}
