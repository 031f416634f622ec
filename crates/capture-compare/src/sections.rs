//! How large the sections of a fused tensor are, where that is not written: from the width that the first section has on
//! every rank, as another tap shows it. The others share the rest equally.
//!
//! Of a merged QKV the first section is the queries. Keys and values may be on more ranks than they have heads; then the
//! side whose ranks hold least of them in all tells how many there are, and on the other side neighbours hold the same.

use capture_core::placement::{Cut, Section};

/// What the ranks of one side hold along the dim that is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Widths {
    /// Of the fused tensor.
    pub(crate) slices: Vec<u64>,
    /// Of its first section, where a tap shows it.
    pub(crate) first: Option<Vec<u64>>,
}

/// How each side is cut into `count` sections.
///
/// # Errors
/// What does not fit, in words.
pub(crate) fn sections(count: u64, sides: &[Widths]) -> Result<Vec<Cut>, String> {
    let sum = |widths: &[u64]| widths.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let mut firsts = sides.iter().filter_map(|side| side.first.as_deref()).map(sum);
    let Some(first) = firsts.next() else { return Err("found none".to_owned()) };
    if let Some(other) = firsts.find(|other| *other != first) {
        return Err(format!("found first sections of {first} and {other}"));
    }
    let others = count.saturating_sub(1).max(1);
    let rest = |side: &Widths| {
        let total = sum(&side.slices);
        let rest = total.checked_sub(first).filter(|rest| rest.is_multiple_of(others));
        rest.ok_or_else(|| {
            format!("found a first section of {first} in {total}, and no {others} equal others")
        })
    };
    let rests = sides.iter().map(rest).collect::<Result<Vec<_>, _>>()?;
    let size = rests.iter().min().map_or(0, |least| least / others);
    let cut = |(side, rest): (&Widths, &u64)| {
        let (ranks, held) = (side.slices.len() as u64, rest / others);
        let mut sections = vec![Section { size: first, groups: None }];
        // Each rank holds held/ranks of `size`, so that there are size/(held/ranks) distinct slices.
        let all = size.checked_mul(ranks);
        let slices = all.and_then(|all| all.checked_div(held).filter(|n| n * held == all));
        let groups = match slices {
            Some(n) if n < ranks && ranks.is_multiple_of(n) => Some(n),
            Some(n) if n == ranks => None,
            _ if held == 0 => None,
            _ => return Err(format!("found {ranks} ranks with {held} in all of a section of {size}")),
        };
        sections.extend((0..others).map(|_| Section { size, groups }));
        Ok(Cut::sections(sections))
    };
    sides.iter().zip(&rests).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(slices: &[u64], first: Option<&[u64]>) -> Widths {
        Widths { slices: slices.to_vec(), first: first.map(<[u64]>::to_vec) }
    }

    #[track_caller]
    fn check(sides: &[Widths], expected: Result<&[&str], &str>) {
        let found = sections(3, sides).map(|cuts| {
            let text = |cut| {
                let sharding = capture_core::Sharding::Shard { axis: 0, cut, size: None };
                capture_core::Placement { sharding, over: "tp".to_owned() }.to_string()
            };
            cuts.into_iter().map(text).collect::<Vec<_>>()
        });
        let expected = expected.map(|all| all.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    /// 32 heads of queries and 8 of keys, each 4 wide.
    #[test]
    fn the_rest_is_halved() {
        let (one, eight) = (side(&[192], None), side(&[24; 8], Some(&[16; 8])));
        let whole = "S(0, sections=[128,32,32])";
        check(&[one, eight.clone()], Ok(&[whole, whole]));
        check(&[eight], Ok(&[whole]));
    }

    /// The same with 4 heads of keys and with 2: at TP=8 a rank has one all the same.
    #[test]
    fn fewer_heads_than_ranks_are_held_by_neighbours() {
        let eight = side(&[24; 8], Some(&[16; 8]));
        let whole = "S(0, sections=[128,16,16])";
        check(&[side(&[160], None), eight.clone()], Ok(&[whole, "S(0, sections=[128,16/4,16/4])"]));
        check(&[side(&[40; 4], None), eight.clone()], Ok(&[whole, "S(0, sections=[128,16/4,16/4])"]));
        let (whole, split) = ("S(0, sections=[128,8,8])", "S(0, sections=[128,8/2,8/2])");
        check(&[side(&[144], Some(&[128])), eight.clone()], Ok(&[whole, split]));
        check(
            &[side(&[40; 4], None), side(&[144], None), eight],
            Ok(&["S(0, sections=[128,8/2,8/2])", whole, split]),
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let eight = side(&[24; 8], Some(&[16; 8]));
        check(&[side(&[24], None), side(&[12; 2], None)], Err("found none"));
        check(&[side(&[192], Some(&[64])), eight.clone()], Err("found first sections of 64 and 128"));
        check(
            &[side(&[100], None), eight.clone()],
            Err("found a first section of 128 in 100, and no 2 equal others"),
        );
        check(&[side(&[152], None), eight], Err("found 8 ranks with 32 in all of a section of 12"));
        // Shapes of tensors without numbers.
        let huge = side(&[u64::MAX, 0, 0, 0], Some(&[1, 0, 0, 0]));
        let text = format!("found 4 ranks with {0} in all of a section of {0}", u64::MAX / 2);
        check(&[huge], Err(&text));
    }
}
