//! The records of a firing as the layouts file wants them: transformed, each with what it needs of other taps of its
//! rank, and put together.

use crate::{
    assemble,
    dequant::{Operands, codes, dequant},
    extent::extents,
    gather::{Fault, Gathered, Tensor, gather},
    index::{Firing, Group, Index},
    layouts::{Layouts, Side},
    misfit::Misfit,
    part::Part,
    placing::{groups, said},
    rearrange::rearrange,
    scale,
    sort::sorted,
    transform::{Dequant, Scheme, Transform},
};
use capture_core::{Placements, Sharding};

/// One side of a comparison at one firing.
#[derive(Clone, Copy)]
pub(crate) struct Taps<'t, 'r> {
    pub(crate) index: &'t Index<'r>,
    pub(crate) firing: &'t Firing,
    pub(crate) layouts: &'t Layouts,
    /// `None` where a run is looked at alone.
    pub(crate) side: Option<Side>,
}

impl<'r> Taps<'_, 'r> {
    /// The records of a group, each after the transforms of its tap.
    pub(crate) fn gather(&self, group: &Group) -> Result<Gathered<'r>, Fault> {
        self.transformed(group, |part, words, entry, origin| {
            dequant(part, words, self.operands(words, entry, origin)?).map_err(Wrong::Misfit)
        })
    }

    /// The same, with codes left without their scales: only shapes matter.
    fn gather_codes(&self, group: &Group) -> Result<Gathered<'r>, Fault> {
        self.transformed(group, |part, words, _, _| codes(part, words).map_err(Wrong::Misfit))
    }

    fn transformed(
        &self,
        group: &Group,
        dequantised: impl Fn(Part<'r>, &Dequant, usize, Option<[u64; 2]>) -> Result<Part<'r>, Wrong>,
    ) -> Result<Gathered<'r>, Fault> {
        let transforms = self.layouts.transforms(&self.firing.tap, self.side);
        let mut gathered = gather(self.index, &group.entries)?;
        if transforms.is_empty() {
            return Ok(gathered);
        }
        if gathered.head_of.is_some() {
            let text = "transforms: expected whole tensors, found their first rows only (head=N)";
            return Err(Fault::Layout(text.to_owned()));
        }
        let origins = self.origins(&gathered, &transforms);
        for (m, (member, entry)) in gathered.members.iter_mut().zip(&group.entries).enumerate() {
            let rank = member.part.rank;
            // Rows that are padding as captured are none of the tensor's.
            let valid = member.rows.take().map(|size| Transform::Crop { axis: 0, size });
            for transform in valid.iter().chain(&transforms) {
                let part = member.part.clone();
                let made = match transform {
                    Transform::Dequant(words) => dequantised(part, words, *entry, origins.get(m).copied()),
                    Transform::SortRowsBy(tap) => {
                        let by = self.operand(tap, *entry).map_err(Wrong::from);
                        by.and_then(|(by, _)| sorted(&part, &by, transform).map_err(Wrong::Misfit))
                    }
                    Transform::SetRows => sorted(&part, &part, transform).map_err(Wrong::Misfit),
                    other => rearrange(part, other).map_err(Wrong::Misfit),
                };
                member.part = made.map_err(|wrong| wrong.of(rank))?;
            }
        }
        Ok(gathered)
    }

    /// The logical tensor of a group's records under a placement, of which `rows` are valid.
    pub(crate) fn assemble(
        &self,
        gathered: Gathered<'r>,
        group: &Group,
        placements: &Placements,
        rows: Option<u64>,
    ) -> Result<Tensor<'r>, Fault> {
        let [placement] = placements.0.as_slice() else { return gathered.assemble(placements, rows) };
        let Sharding::ScaleOf { tap, block } = &placement.sharding else {
            return gathered.assemble(placements, rows);
        };
        if gathered.members.len() == 1 {
            return gathered.assemble(placements, rows);
        }
        let firing = Firing { tap: tap.clone(), ..self.firing.clone() };
        let none = || Fault::Layout(Misfit::ScaleOf(tap.clone()).to_string());
        let (placed, _) = said(self.index, &firing, self.layouts);
        let all = groups(self.index, &firing, &placed, self.layouts);
        let weight = Taps { firing: &firing, ..*self };
        let own = all.iter().find(|g| g.at == group.at).or(all.first()).ok_or_else(none)?;
        let placed = placed.map_err(Fault::Layout)?;
        let placed = placed.ok_or_else(|| {
            Fault::Layout(format!("scale_of: expected a placement of tap {tap:?}, found none"))
        })?;
        let whole = weight.gather_codes(own)?.assemble(&placed, None)?.whole;
        let members = gathered.members;
        if members.iter().any(|m| whole.parts.iter().all(|p| p.rank != m.part.rank)) {
            return Err(none());
        }
        let whole = scale::assemble(members, &whole, &placed, block)
            .map_err(|(rank, misfit)| of_rank(rank, &misfit))?;
        Ok(Tensor { whole, head_of: None })
    }

    /// What a dequantisation takes of other taps of the rank that wrote `entry`.
    fn operands(
        &self,
        words: &Dequant,
        entry: usize,
        origin: Option<[u64; 2]>,
    ) -> Result<Operands<'r>, Fault> {
        let of = |tap: Option<&String>| tap.map(|tap| self.operand(tap, entry)).transpose();
        let (scale, tiled) = self.operand(&words.scale, entry)?;
        let plain = |operand: Option<(Part<'r>, bool)>| operand.map(|(part, _)| part);
        Ok(Operands {
            scale,
            tiled,
            global: plain(of(words.global.as_ref().map(|g| &g.0))?),
            zero: plain(of(words.zero.as_ref())?),
            g_idx: plain(of(words.g_idx.as_ref())?),
            origin: origin.unwrap_or_default(),
        })
    }

    /// The record of another tap of the same process, step and call, else of the step's first call, after that tap's own
    /// transforms; and whether they took tiles apart.
    fn operand(&self, tap: &str, entry: usize) -> Result<(Part<'r>, bool), Fault> {
        let process = |e: usize| self.index.run.entries[e].process;
        let find = |call| {
            let firing = Firing { step: self.firing.step, tap: tap.to_owned(), call };
            self.index.entries(&firing).iter().copied().find(|e| process(*e) == process(entry))
        };
        let rank = self.index.rank(entry);
        let Some(found) = find(self.firing.call).or_else(|| find(0)) else {
            let text = format!("expected tap {tap:?} in step {}, found none", self.firing.step);
            return Err(Fault::Layout(labelled(rank, &text)));
        };
        let group = Group { at: Default::default(), entries: vec![found] };
        let mut part = gather(self.index, &group.entries)?.members.remove(0).part;
        let transforms = self.layouts.transforms(tap, self.side);
        for transform in &transforms {
            if matches!(transform, Transform::Dequant(_)) {
                let text = format!(
                    "expected scales and zeros as recorded or rearranged, found {tap:?} under {transform}"
                );
                return Err(Fault::Layout(text));
            }
            // What is sorted by a tap is sorted by it as recorded: `rearrange` leaves its own order alone.
            part = rearrange(part, transform).map_err(|misfit| of_rank(rank, &misfit))?;
        }
        Ok((part, transforms.contains(&Transform::Unswizzle)))
    }

    /// Where rows and columns of each member begin in the logical tensor, as its blocks may have begun on another rank;
    /// nothing where that is not known or does not matter.
    fn origins(&self, gathered: &Gathered<'r>, transforms: &[Transform]) -> Vec<[u64; 2]> {
        let blocks =
            |t: &Transform| matches!(t, Transform::Dequant(Dequant { scheme: Scheme::Fp8Block(_), .. }));
        let (Ok(Some(placements)), _) = said(self.index, self.firing, self.layouts) else {
            return Vec::new();
        };
        if !transforms.first().is_some_and(blocks) {
            return Vec::new();
        }
        let Ok(whole) = assemble::assemble(gathered.members.clone(), &placements, None) else {
            return Vec::new();
        };
        let start = |extent: &[Vec<crate::extent::Stretch>], from_last: usize| {
            let axis = extent.len().checked_sub(from_last).and_then(|axis| extent.get(axis));
            axis.and_then(|axis| if axis.len() == 1 { axis.first() } else { None }).map_or(0, |s| s.global)
        };
        extents(&whole).iter().map(|extent| [start(extent, 2), start(extent, 1)]).collect()
    }
}

/// What is wrong with a record, or with another that it needs.
enum Wrong {
    Misfit(Misfit),
    Fault(Fault),
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Wrong {
    fn of(self, rank: Option<u32>) -> Fault {
        match self {
            Self::Misfit(misfit) => of_rank(rank, &misfit),
            Self::Fault(fault) => fault,
        }
    }
}

fn of_rank(rank: Option<u32>, misfit: &Misfit) -> Fault {
    Fault::Layout(labelled(rank, &misfit.to_string()))
}

/// `rank 2: …`.
fn labelled(rank: Option<u32>, text: &str) -> String {
    rank.map_or_else(|| text.to_owned(), |rank| format!("rank {rank}: {text}"))
}
