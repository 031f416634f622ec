//! Rows of two runs that belong together although they stand elsewhere: in another order, or between other padding.
//!
//! The taps that the layouts file aligns by say what each row of dim 0 is. Rows whose numbers are equal belong together,
//! the first with the first where several are; rows of one side only are left out.

use crate::{
    gather::{Fault, Full, Tensor},
    index::Index,
    layouts::{Layouts, Side},
    pairing::Pair,
    taps::Taps,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

/// Steps, call and places of a pair's groups: what has one alignment.
type Key = ([u64; 2], u64, [BTreeMap<String, u32>; 2]);

/// Which row of one side is which of the other; what was expected and found where that cannot be told.
type Found = Result<Alignment, String>;

/// The alignments of two runs, each found when it is first needed.
#[derive(Default)]
pub(crate) struct Alignments(Mutex<HashMap<Key, Slot>>);

/// Kept for all tensors of a step; held while it is being found, so that others wait for it.
type Slot = Arc<Mutex<Option<Arc<Found>>>>;

/// The rows of a step that belong together.
struct Alignment {
    /// Rows of the reference and of the candidate, in the reference's order.
    rows: Vec<[u64; 2]>,
    /// How many rows each side has.
    full: [u64; 2],
}

/// Both tensors with the rows that belong together, and what is to be said of it.
pub(crate) type Aligned<'r> = ([Tensor<'r>; 2], Option<String>);

impl Alignments {
    /// Aligns the tensors of a pair, where the layouts file says by what and their dim 0 is that of the taps aligned by.
    ///
    /// # Errors
    /// Where no row of one side is one of the other.
    pub(crate) fn align<'r>(
        &self,
        indices: [&Index<'r>; 2],
        pair: &Pair,
        layouts: &Layouts,
        tensors: [Tensor<'r>; 2],
    ) -> Result<Aligned<'r>, Fault> {
        let [Some(a), Some(b)] = &pair.groups else { return Ok((tensors, None)) };
        if layouts.align().is_empty() {
            return Ok((tensors, None));
        }
        let key = (pair.steps, pair.firing.call, [a.at.clone(), b.at.clone()]);
        let slot = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let unaligned = |text: &str| Some(format!("rows compared as they stand: {text}"));
        let found = match &*slot {
            Some(found) => Arc::clone(found),
            None => match find(indices, pair, layouts, [&a.at, &b.at]) {
                Ok(alignment) => Arc::new(Ok(alignment)),
                Err(Fault::Layout(text)) => Arc::new(Err(text)),
                // On another machine of a cluster it may be readable: nothing is kept.
                Err(Fault::File(error)) => return Ok((tensors, unaligned(&error.to_string()))),
            },
        };
        *slot = Some(Arc::clone(&found));
        drop(slot);
        match &*found {
            Ok(alignment) => alignment.apply(tensors, layouts),
            Err(text) => Ok((tensors, unaligned(text))),
        }
    }
}

fn find(
    indices: [&Index<'_>; 2],
    pair: &Pair,
    layouts: &Layouts,
    at: [&BTreeMap<String, u32>; 2],
) -> Result<Alignment, Fault> {
    let keys = |side: usize| {
        let firing = pair.own(side);
        let name = [Side::Reference, Side::Candidate][side];
        let taps = Taps { index: indices[side], firing: &firing, layouts, side: Some(name) };
        taps.row_keys(at[side]).map_err(|fault| match fault {
            Fault::Layout(text) => Fault::Layout(format!("{}: {text}", ["reference", "candidate"][side])),
            file => file,
        })
    };
    let [reference, candidate] = [keys(0)?, keys(1)?];
    let mut places: HashMap<&[u64], VecDeque<u64>> = HashMap::new();
    for (i, row) in candidate.rows().enumerate() {
        places.entry(row).or_default().push_back(i as u64);
    }
    let pair = |(i, row)| Some([i as u64, places.get_mut(row)?.pop_front()?]);
    let rows = reference.rows().enumerate().filter_map(pair).collect();
    Ok(Alignment { rows, full: [reference.full, candidate.full] })
}

impl Alignment {
    fn apply<'r>(&self, [a, b]: [Tensor<'r>; 2], layouts: &Layouts) -> Result<Aligned<'r>, Fault> {
        let rows_of = |tensor: &Tensor<'_>| match tensor.head_of {
            None => tensor.whole.shape.first().copied(),
            Some(Full::Rows(full)) => Some(full),
            Some(Full::Unknown) => None,
        };
        if [rows_of(&a), rows_of(&b)] != self.full.map(Some) {
            return Ok(([a, b], None));
        }
        let kept = [a.whole.shape[0], b.whole.shape[0]];
        let rows: Vec<[u64; 2]> =
            self.rows.iter().copied().filter(|[i, j]| *i < kept[0] && *j < kept[1]).collect();
        let left = kept.map(|kept| kept - rows.len() as u64);
        if left == [0; 2] && rows.iter().enumerate().all(|(at, row)| *row == [at as u64; 2]) {
            return Ok(([a, b], None));
        }
        let by = layouts.align().join(", ");
        if rows.is_empty() && kept.iter().all(|kept| *kept > 0) {
            let text = format!("expected rows that both runs have by {by}, found none");
            return Err(Fault::Layout(text));
        }
        let side = |tensor: Tensor<'r>, side: usize| {
            let rows: Arc<[u64]> = rows.iter().map(|row| row[side]).collect();
            Tensor { whole: tensor.whole.with_rows(rows), head_of: None }
        };
        let text = (left != [0; 2]).then(|| {
            format!(
                "rows matched by {by}: {} of {} in the reference and {} of {} in the candidate have no counterpart",
                left[0], kept[0], left[1], kept[1]
            )
        });
        Ok(([side(a, 0), side(b, 1)], text))
    }
}
