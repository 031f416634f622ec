//! Rows by what the taps that a layouts file aligns by hold of them: token ids, positions.

use crate::{
    gather::{Fault, Full, Gathered},
    index::{Firing, Group},
    placing::{groups, said},
    taps::Taps,
    whole::Whole,
};
use capture_core::{Dtype, Placements};
use std::collections::BTreeMap;

/// The rows of one step, each as the numbers that tell it from others.
#[derive(Debug, Default)]
pub(crate) struct RowKeys {
    /// The numbers of all kept rows, one row after the other.
    numbers: Vec<u64>,
    /// Kept rows.
    kept: usize,
    /// All rows, of which the first were kept.
    pub(crate) full: u64,
}

impl RowKeys {
    /// The kept rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u64]> {
        let width = self.numbers.len().checked_div(self.kept).unwrap_or(0);
        (0..self.kept).map(move |row| &self.numbers[row * width..(row + 1) * width])
    }
}

impl Taps<'_, '_> {
    /// The groups of ranks that each have rows of their own by one of the taps aligned by.
    pub(crate) fn keyed(&self, by: &str) -> Vec<Group> {
        let firing = self.aux(by);
        groups(self.index, &firing, &said(self.index, &firing, self.layouts).0, self.layouts)
    }

    /// The rows of the step for ranks that stand at `at`.
    ///
    /// # Errors
    /// A file that cannot be read; what was expected and found of the taps.
    pub(crate) fn row_keys(&self, at: &BTreeMap<String, u32>) -> Result<RowKeys, Fault> {
        let by = self.layouts.align();
        let columns = by.iter().map(|tap| self.column(tap, at)).collect::<Result<Vec<_>, _>>()?;
        let Some((first, rest)) = columns.split_first() else { return Ok(RowKeys::default()) };
        let count = |c: &Column| (c.full, c.rows);
        if let Some((i, other)) = rest.iter().enumerate().find(|(_, c)| count(c) != count(first)) {
            let text = format!(
                "expected as many rows of {:?} as of {:?}, found {} and {}",
                by[i + 1],
                by[0],
                other.rows,
                first.rows
            );
            return Err(Fault::Layout(text));
        }
        let row = |i: usize| columns.iter().flat_map(move |c| &c.numbers[i * c.width..(i + 1) * c.width]);
        let numbers = (0..first.rows).flat_map(row).copied().collect();
        Ok(RowKeys { numbers, kept: first.rows, full: first.full })
    }

    /// The tap at the firing's call, else at the first of the step.
    fn aux(&self, tap: &str) -> Firing {
        let own = Firing { tap: tap.to_owned(), ..self.firing.clone() };
        if self.index.entries(&own).is_empty() { Firing { call: 0, ..own } } else { own }
    }

    fn column(&self, tap: &str, at: &BTreeMap<String, u32>) -> Result<Column, Fault> {
        let layout = |text: String| Fault::Layout(text);
        let agrees = |group: &Group| group.at.iter().all(|(dim, i)| at.get(dim).is_none_or(|own| own == i));
        let all: Vec<Group> = self.keyed(tap).into_iter().filter(agrees).collect();
        let [group] = all.as_slice() else {
            return Err(layout(format!("expected one tensor of {tap:?} in the step, found {}", all.len())));
        };
        let firing = self.aux(tap);
        let own = Taps { firing: &firing, ..*self };
        let gathered = own.gather(group)?;
        let rows = self.index.rows(&firing, group, self.layouts).map_err(layout)?;
        let placements = match said(self.index, &firing, self.layouts).0.map_err(layout)? {
            Some(placements) => placements,
            None => replicas(&gathered, tap)?,
        };
        let tensor = own.assemble(gathered, group, &placements, rows)?;
        let whole = tensor.whole;
        let Some(&kept) = whole.shape.first() else {
            return Err(layout(format!("expected rows of {tap:?}, found one number")));
        };
        let full = match tensor.head_of {
            None => kept,
            Some(Full::Rows(full)) => full,
            Some(Full::Unknown) => {
                return Err(layout(format!("expected all rows of {tap:?}, found the first {kept} of them")));
            }
        };
        let numbers = numbers(&whole);
        let width = numbers.len().checked_div(kept as usize).unwrap_or(0);
        Ok(Column { numbers, width, rows: if width == 0 { 0 } else { kept as usize }, full })
    }
}

/// What one tap holds of the rows.
struct Column {
    numbers: Vec<u64>,
    /// Numbers of a row.
    width: usize,
    rows: usize,
    full: u64,
}

/// `R`, where nobody said anything and all ranks hold the same.
fn replicas(gathered: &Gathered<'_>, tap: &str) -> Result<Placements, Fault> {
    if gathered.are_replicas() {
        let all = "R".parse().map_err(|e| Fault::Layout(format!("{e}")));
        return all;
    }
    let text = format!("expected the same {tap:?} on all ranks, or its placement, found ranks that differ");
    Err(Fault::Layout(text))
}

/// Numbers that are equal where the tensor's are, whatever the width of its dtype: integers exactly, others by value.
fn numbers(whole: &Whole<'_>) -> Vec<u64> {
    let integer = whole.parts.first().is_some_and(|p| p.float().is_none()) && !whole.is_computed();
    if !integer {
        let mut numbers = vec![0.0; whole.len() as usize];
        whole.read(0, &mut numbers);
        // Zero has two signs.
        return numbers.into_iter().map(|x| (x + 0.0).to_bits()).collect();
    }
    let (dtype, item) = (whole.parts[0].dtype, whole.parts[0].item());
    let signed = matches!(dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64);
    let number = |bytes: &[u8]| {
        let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    whole.bytes(0, whole.len(), &mut Vec::new()).chunks_exact(item).map(number).collect()
}
