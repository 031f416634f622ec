//! From the records of a group to its logical tensor.

use crate::{
    assemble::{Member, assemble},
    index::Index,
    part::Part,
    run::FileError,
    whole::Whole,
};
use capture_core::{Identity, Placements};

/// Why there is no logical tensor.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A file cannot be read.
    File(FileError),
    /// What is there is not what was said.
    Layout(String),
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// The records of a group, as numbers.
pub(crate) struct Gathered<'r> {
    /// One for each entry.
    pub(crate) members: Vec<Member<'r>>,
    /// Dim 0 of the tensor, where only its first rows were kept.
    pub(crate) head_of: Option<Full>,
}

/// How many valid rows a tensor has of which the first were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many.
    Rows(u64),
    /// Not said: every kept row is valid, and of the others some may be padding.
    Unknown,
}

/// A logical tensor, and what it is the head of.
pub(crate) struct Tensor<'r> {
    /// What was kept.
    pub(crate) whole: Whole<'r>,
    /// Dim 0 of all of it, where only the first rows were kept.
    pub(crate) head_of: Option<Full>,
}

/// Reads the records of a group.
pub(crate) fn gather<'r>(index: &Index<'r>, entries: &[usize]) -> Result<Gathered<'r>, Fault> {
    let run = index.run;
    if !index.is_alone() && entries.iter().any(|e| index.rank(*e).is_none()) {
        let unknown = run.processes.iter().filter(|p| p.identity.rank.is_none()).count();
        return Err(Fault::Layout(format!(
            "expected known ranks, found {unknown} of {} processes of unknown rank: set TPCAPTURE_RANK",
            run.processes.len()
        )));
    }
    let mut head_of = None;
    let mut members = Vec::with_capacity(entries.len());
    for &e in entries {
        let entry = &run.entries[e];
        let Identity { rank, mesh, .. } = &run.processes[entry.process].identity;
        let record = &entry.record;
        let data = run.data(entry)?;
        let part = Part::of(*rank, entry.dtype, &entry.shape, record.encoding.as_deref(), data)
            .map_err(|e| Fault::Layout(e.to_string()))?;
        let kept = entry.shape.first().copied().unwrap_or(0);
        if let Some(full) = record.full_rows {
            head_of = Some(match record.rows {
                None => Full::Rows(full),
                Some(rows) if rows < kept => Full::Rows(rows),
                Some(_) => Full::Unknown,
            });
        }
        let (rows, headed) = (record.rows, record.full_rows.is_some());
        members.push(Member { part, mesh, rows, headed });
    }
    // Whether ranks are replicas is asked several times, and answered by one look at their bytes.
    if let Some((first, rest)) = members.split_first_mut() {
        rest.iter_mut().for_each(|member| member.part.share(&first.part));
    }
    Ok(Gathered { members, head_of })
}

impl<'r> Gathered<'r> {
    /// Shapes as the ranks had them, or `kept` them, without padding rows and the 2 of complex numbers.
    pub(crate) fn shapes(&self, kept: bool) -> Vec<Vec<u64>> {
        let of = |member: &Member<'_>| {
            let mut shape = member.part.shape.clone();
            if member.part.complex {
                shape.pop();
            }
            let rows = match self.head_of {
                Some(Full::Rows(rows)) if !kept => Some(rows),
                _ => member.rows,
            };
            if let (Some(d), Some(rows)) = (shape.first_mut(), rows) {
                *d = rows;
            }
            shape
        };
        self.members.iter().map(of).collect()
    }

    /// Whether all ranks hold the same bytes.
    pub(crate) fn are_replicas(&self) -> bool {
        let Some((first, rest)) = self.members.split_first() else { return true };
        rest.iter().all(|m| m.part == first.part)
    }

    /// The logical tensor under a placement, of which the layouts file says that `rows` are valid.
    pub(crate) fn assemble(self, placements: &Placements, rows: Option<u64>) -> Result<Tensor<'r>, Fault> {
        let whole =
            assemble(self.members, placements, rows).map_err(|misfit| Fault::Layout(misfit.to_string()))?;
        Ok(Tensor { whole, head_of: self.head_of })
    }
}
