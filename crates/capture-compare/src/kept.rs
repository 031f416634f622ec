//! Records of which only statistics or a hash were kept, against each other.
//!
//! Equal hashes of equal parts are equal bits. Other hashes are other bits, and of floats nobody can tell whether rounding
//! made them; statistics ignore order, so that equal ones prove nothing. Parts that are cut otherwise have nothing in
//! common, unless each is the whole.

use crate::{
    layouts::Layouts,
    options::{Options, PairBy},
    report::{Diagnosis, Kind, Row},
    run::{Entry, FileError, Kept, Run},
    verdict::Verdict,
};
use capture_core::{Digest, Dtype, Hash, Mesh, Record, Stats, digest, float::Float, placement::Placements};
use std::collections::{BTreeMap, BTreeSet};

/// Step, tap and call: what tells rows apart.
type Place = (u64, String, u64);

/// One rank's record of a place, of any mode.
#[derive(Clone, Copy)]
enum Part<'r> {
    Full(&'r Run, &'r Entry),
    Kept(&'r Run, &'r Kept),
}

/// The records of a place by rank; of several of one rank the latest.
type Parts<'r> = BTreeMap<Option<u32>, Part<'r>>;

/// What is known of a record's contents.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Hash(Hash),
    Stats(Stats),
    /// All its bytes, which were not asked for.
    Bytes,
}

impl<'r> Part<'r> {
    fn record(self) -> &'r Record {
        match self {
            Self::Full(_, entry) => &entry.record,
            Self::Kept(_, kept) => &kept.digested.record,
        }
    }

    fn mesh(self) -> &'r Mesh {
        let (run, process) = match self {
            Self::Full(run, entry) => (run, entry.process),
            Self::Kept(run, kept) => (run, kept.process),
        };
        &run.processes[process].identity.mesh
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Full(_, entry) => entry.dtype,
            Self::Kept(_, kept) => kept.digested.dtype,
        }
    }

    /// The stored shape without rows of padding, which are no part of a digest.
    fn shape(self) -> Vec<u64> {
        match self {
            Self::Kept(_, kept) => kept.digested.valid_shape(),
            Self::Full(_, entry) => {
                let mut shape = entry.shape.clone();
                if let (Some(first), Some(rows)) = (shape.first_mut(), entry.record.rows) {
                    *first = rows.min(*first);
                }
                shape
            }
        }
    }

    /// What was kept; of bytes their hash where it is `hashed`.
    fn known(self, hashed: bool) -> Result<Known, FileError> {
        match self {
            Self::Kept(_, kept) => Ok(match &kept.digested.digest {
                Digest::Hash { hash } => Known::Hash(*hash),
                Digest::Stats { stats } => Known::Stats(*stats),
            }),
            Self::Full(run, entry) if hashed => {
                let bytes = run.bytes(entry)?;
                // Rows and whole bytes were checked when the run was opened; half a byte has no hash of its own.
                let valid = capture_core::stored::byte_length(entry.dtype, &self.shape());
                let valid = valid.map_or(bytes.len(), |n| (n as usize).min(bytes.len()));
                let each = |take: &mut dyn FnMut(&[u8])| {
                    bytes[..valid].chunks(CHUNK).for_each(take);
                    Ok::<_, FileError>(())
                };
                Ok(Known::Hash(digest::hash_of_bytes(each)?))
            }
            Self::Full(..) => Ok(Known::Bytes),
        }
    }
}

/// Bytes hashed at a time: whole words.
const CHUNK: usize = 1 << 20;

/// The places of a run at which any rank kept a digest, with the records of all ranks there.
fn places<'r>(run: &'r Run, by: PairBy, name: &dyn Fn(&str) -> String) -> BTreeMap<Place, Parts<'r>> {
    let place = |record: &Record| {
        let step = if by == PairBy::Abs { record.abs_step } else { record.step };
        (step, name(&record.tap), record.call)
    };
    let kept: Vec<Part<'r>> = run.digests.iter().map(|kept| Part::Kept(run, kept)).collect();
    let mut places: BTreeMap<Place, Parts<'r>> = BTreeMap::new();
    let add = |part: Part<'r>, process: usize, parts: &mut Parts<'r>| {
        let rank = run.processes[process].identity.rank;
        let before = parts.get(&rank);
        if before.is_none_or(|before| before.record().time_ns <= part.record().time_ns) {
            parts.insert(rank, part);
        }
    };
    for (part, kept) in kept.iter().zip(&run.digests) {
        add(*part, kept.process, places.entry(place(part.record())).or_default());
    }
    if !places.is_empty() {
        for entry in &run.entries {
            if let Some(parts) = places.get_mut(&place(&entry.record)) {
                add(Part::Full(run, entry), entry.process, parts);
            }
        }
    }
    places
}

/// The records of a run at given places.
fn at<'r>(
    run: &'r Run,
    by: PairBy,
    name: &dyn Fn(&str) -> String,
    of: &BTreeSet<Place>,
) -> BTreeMap<Place, Parts<'r>> {
    let mut found = places(run, by, name);
    for entry in if of.is_empty() { &[] } else { run.entries.as_slice() } {
        let step = if by == PairBy::Abs { entry.record.abs_step } else { entry.record.step };
        let place = (step, name(&entry.record.tap), entry.record.call);
        if of.contains(&place) {
            let rank = run.processes[entry.process].identity.rank;
            found.entry(place).or_default().entry(rank).or_insert(Part::Full(run, entry));
        }
    }
    found
}

/// Rows of two runs for every place at which either kept a digest, and what of full records could not be read.
pub(crate) fn rows(runs: [&Run; 2], layouts: &Layouts, options: Options<'_>) -> (Vec<Row>, Vec<FileError>) {
    let same = |tap: &str| tap.to_owned();
    let renamed = |tap: &str| layouts.renamed(tap);
    let names: [&dyn Fn(&str) -> String; 2] = [&same, &renamed];
    let own: [BTreeSet<Place>; 2] =
        std::array::from_fn(|side| places(runs[side], options.pair, names[side]).into_keys().collect());
    let all: BTreeSet<Place> = own.iter().flatten().cloned().collect();
    let sides: [_; 2] = std::array::from_fn(|side| at(runs[side], options.pair, names[side], &all));
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for (step, tap, call) in all {
        let mut row = Row { tap, step, call, ..Row::default() };
        let place = (row.step, row.tap.clone(), row.call);
        match sides.each_ref().map(|side| side.get(&place)) {
            [Some(a), Some(b)] => match judge(&mut row, a, b) {
                Ok(()) => {}
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            },
            [a, b] => {
                if options.one_sided.leaves_out(usize::from(a.is_none())) {
                    continue;
                }
                row.verdict = Some(Verdict::Missing);
                row.ranks = a.or(b).into_iter().flat_map(|parts| parts.keys().copied().flatten()).collect();
                let side = if a.is_none() { "reference" } else { "candidate" };
                row.diagnoses.push(Diagnosis::new(Kind::Missing, format!("the {side} has no record")));
            }
        }
        rows.push(row);
    }
    (rows, errors)
}

/// The verdict of two sides' records of a place.
fn judge(row: &mut Row, a: &Parts<'_>, b: &Parts<'_>) -> Result<(), FileError> {
    let is_whole = |parts: &Parts<'_>| parts.values().all(|part| is_replicated(part.record()));
    let seats = |parts: &Parts<'_>| -> Vec<_> {
        parts.iter().map(|(rank, part)| (*rank, part.mesh().dims.clone())).collect()
    };
    let replicated = is_whole(a) && is_whole(b);
    let is_only_dim_tp =
        |part: &Part<'_>| part.mesh().dims.iter().all(|dim| dim.name == "tp" || dim.size == 1);
    let pairs: Vec<(Option<u32>, Part<'_>, Part<'_>)> = if seats(a) == seats(b) {
        b.iter().filter_map(|(rank, part)| Some((*rank, *a.get(rank)?, *part))).collect()
    } else if replicated && a.values().chain(b.values()).all(is_only_dim_tp) {
        // Every rank of one side against the first of the other, so that no replica goes unseen.
        let (Some(first_a), Some(first_b)) = (a.values().next(), b.values().next()) else { return Ok(()) };
        let of_b = b.iter().map(|(rank, part)| (*rank, *first_a, *part));
        of_b.chain(a.values().map(|part| (None, *part, *first_b))).collect()
    } else {
        suspect(
            row,
            b,
            "the ranks are not the same on both sides: parts that are cut otherwise can only be compared in full",
        );
        return Ok(());
    };
    let mut texts = BTreeSet::new();
    let mut verdict = Verdict::Identical;
    for (rank, reference, candidate) in pairs {
        let (found, text) = compare(reference, candidate)?;
        row.n += candidate.shape().iter().product::<u64>();
        if found > verdict {
            // What is said is said of the ranks that decide.
            verdict = found;
            row.ranks.clear();
            texts.clear();
        }
        if found == verdict && verdict > Verdict::Identical {
            row.ranks.extend(rank);
            texts.extend(text);
        }
    }
    row.ranks.sort_unstable();
    row.ranks.dedup();
    row.verdict = Some(verdict);
    row.placement = b.values().next().and_then(|part| part.record().placement.clone());
    row.diagnoses.extend(texts.into_iter().map(|text| Diagnosis::new(Kind::Seen, text)));
    Ok(())
}

fn suspect(row: &mut Row, parts: &Parts<'_>, text: &str) {
    row.verdict = Some(Verdict::Suspect);
    row.ranks = parts.keys().copied().flatten().collect();
    row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
}

/// One rank's record against its counterpart, and what is to be said of it.
fn compare(a: Part<'_>, b: Part<'_>) -> Result<(Verdict, Option<String>), FileError> {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        let [a, b] = [a, b].map(|part| format!("{} {:?}", part.dtype(), part.shape()));
        let text = format!("{a} and {b}: only records in full can be compared across dtypes and shapes");
        return Ok((Verdict::Suspect, Some(text)));
    }
    let is_hash = |part: Part<'_>| matches!(part.known(false), Ok(Known::Hash(_)));
    let hashed = is_hash(a) || is_hash(b);
    Ok(match (a.known(hashed)?, b.known(hashed)?) {
        (Known::Hash(a), Known::Hash(b)) if a == b => (Verdict::Identical, None),
        (Known::Hash(_), Known::Hash(_)) if Float::of(b.dtype()).is_none() => {
            (Verdict::Different, Some("the hashes differ: other integers".to_owned()))
        }
        (Known::Hash(_), Known::Hash(_)) => {
            let text = "the hashes differ: other bits, whether by rounding or a fault a hash cannot tell";
            (Verdict::Suspect, Some(text.to_owned()))
        }
        (Known::Stats(a), Known::Stats(b)) => of_stats(&a, &b),
        _ => {
            let text = "one side kept statistics only, the other did not: nothing to compare them with";
            (Verdict::Suspect, Some(text.to_owned()))
        }
    })
}

/// Other counts of what is not finite are other classes somewhere; more cannot be said of statistics, as they ignore order.
fn of_stats(a: &Stats, b: &Stats) -> (Verdict, Option<String>) {
    let classes = |s: &Stats| [s.nan, s.pos_inf, s.neg_inf];
    if classes(a) != classes(b) {
        let [a, b] = [a, b].map(|s| format!("{} NaN, {} inf and {} -inf", s.nan, s.pos_inf, s.neg_inf));
        return (Verdict::Different, Some(format!("{a} on the reference, {b} on the candidate")));
    }
    let figures = |s: &Stats| {
        s.finite.map_or_else(
            || "nothing finite".to_owned(),
            |f| format!("mean {:.4e}, rms {:.4e}", f.mean, f.rms),
        )
    };
    let text = match (figures(a), figures(b)) {
        (a, b) if a == b => format!("only statistics were kept, which ignore order: {a} on both sides"),
        (a, b) => format!("only statistics were kept, which ignore order: {a} and {b}"),
    };
    (Verdict::Suspect, Some(text))
}

/// Whether every rank holds the whole, as the capture call said.
fn is_replicated(record: &Record) -> bool {
    let placements = record.placement.as_deref().and_then(|text| text.parse::<Placements>().ok());
    placements.is_some_and(|all| all.to_string() == "R")
}

/// Rows of a run alone: replicas that kept other bits, and else only what is seen.
pub(crate) fn rows_alone(run: &Run) -> (Vec<Row>, Vec<FileError>) {
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for ((step, tap, call), parts) in places(run, PairBy::Step, &str::to_owned) {
        let mut row = Row { tap, step, call, ..Row::default() };
        match replicas(&mut row, &parts) {
            Ok(()) => rows.push(row),
            Err(error) => errors.push(error),
        }
    }
    (rows, errors)
}

/// A replica's rank, and all that has to be the same of it.
type Replica = (Option<u32>, Known, Dtype, Vec<u64>);

fn replicas(row: &mut Row, parts: &Parts<'_>) -> Result<(), FileError> {
    let Some(first) = parts.values().next() else { return Ok(()) };
    row.n = first.shape().iter().product();
    row.placement = first.record().placement.clone();
    let is_hash = |part: &Part<'_>| matches!(part.known(false), Ok(Known::Hash(_)));
    let hashed = parts.values().any(is_hash);
    // Replicas over tp; those of other dims are of other tensors.
    let others = |part: &Part<'_>| -> Vec<(String, u32)> {
        let dims = part.mesh().dims.iter().filter(|dim| dim.name != "tp");
        dims.map(|dim| (dim.name.clone(), dim.coord)).collect()
    };
    let mut groups: BTreeMap<_, Vec<Replica>> = BTreeMap::new();
    for (rank, part) in parts {
        let known = part.known(hashed)?;
        groups.entry(others(part)).or_default().push((*rank, known, part.dtype(), part.shape()));
    }
    let is_odd = |usual: &Replica, one: &Replica| (&usual.1, usual.2, &usual.3) != (&one.1, one.2, &one.3);
    let odd: Vec<u32> = groups
        .values()
        .flat_map(|group| {
            let alike = |one| group.iter().filter(|other| !is_odd(one, other)).count();
            let usual = group.iter().rev().max_by_key(|one| alike(*one));
            group
                .iter()
                .filter(move |one| usual.is_some_and(|usual| is_odd(usual, one)))
                .filter_map(|one| one.0)
        })
        .collect();
    let are_hashes = hashed && groups.values().flatten().all(|one| matches!(one.1, Known::Hash(_)));
    let what = if are_hashes { "hashes" } else { "statistics" };
    if !parts.values().all(|part| is_replicated(part.record())) {
        let text = if odd.is_empty() {
            format!("only {what} were kept: equal on all ranks")
        } else {
            format!("only {what} were kept: different on ranks: sharded or partial?")
        };
        row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
    } else if !odd.is_empty() {
        row.verdict = Some(Verdict::Different);
        let named = odd.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        row.ranks = odd;
        row.diagnoses
            .push(Diagnosis::new(Kind::Replicas, format!("replicas differ: other {what} on {named}")));
    } else if are_hashes {
        row.verdict = Some(Verdict::Identical);
    } else {
        let text = "only statistics were kept: equal on all ranks, which is no proof, as they ignore order";
        row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
    }
    Ok(())
}
