//! A run by what was captured: which records of which ranks belong together.

use crate::{
    decode::decode_into,
    layouts::{Layouts, Rows},
    run::{Entry, FileError, Run},
};
use capture_core::{Mesh, Placements};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// One firing of a tap: what the records of all ranks have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Firing {
    /// Step of the run.
    pub step: u64,
    /// Tap, as the reference calls it.
    pub tap: String,
    /// Call within the step.
    pub call: u64,
}

/// The records of a firing that make one logical tensor.
#[derive(Debug, Clone)]
pub struct Group {
    /// Coordinates that tell the group from the others: dp, cp, …; pp only where the tap exists in several stages.
    pub at: BTreeMap<String, u32>,
    /// Indices of entries, by rank.
    pub entries: Vec<usize>,
}

impl Group {
    /// `dp=1`, `dp=0,pp=1`; `None` where nothing needs telling apart.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        let at: Vec<String> = self.at.iter().map(|(dim, coord)| format!("{dim}={coord}")).collect();
        (!at.is_empty()).then(|| at.join(","))
    }
}

/// A run, indexed.
#[derive(Debug)]
pub struct Index<'r> {
    /// The run.
    pub run: &'r Run,
    firings: HashMap<Firing, Vec<usize>>,
    /// Notes on firings that two processes of one rank recorded, or that two taps became by renaming.
    restarts: HashMap<Firing, String>,
    taps: HashSet<String>,
    alone: bool,
}

impl<'r> Index<'r> {
    /// Indexes a run, its taps renamed by `rename`. Where two processes of one rank recorded the same firing, as after
    /// a restart, the record of the one that started later counts.
    #[must_use]
    pub fn new(run: &'r Run, rename: &dyn Fn(&str) -> String) -> Self {
        let started = started(run);
        let mut index = Self {
            run,
            firings: HashMap::new(),
            restarts: HashMap::new(),
            taps: HashSet::new(),
            alone: run.entries.iter().all(|e| e.process == run.entries[0].process),
        };
        let mut names: HashMap<&str, String> = HashMap::new();
        for (i, entry) in run.entries.iter().enumerate() {
            let record = &entry.record;
            let tap = names.entry(&record.tap).or_insert_with(|| rename(&record.tap)).clone();
            if !index.taps.contains(&tap) {
                index.taps.insert(tap.clone());
            }
            let firing = Firing { step: record.step, tap, call: record.call };
            let rank = run.processes[entry.process].identity.rank;
            let entries = index.firings.entry(firing.clone()).or_default();
            let twin = entries
                .iter()
                .position(|e| rank.is_some() && run.processes[run.entries[*e].process].identity.rank == rank);
            let Some(twin) = twin else {
                entries.push(i);
                continue;
            };
            let other = &run.entries[entries[twin]];
            if other.process == entry.process {
                // One process records a firing once: the layouts file renames two of its taps to one name.
                let note = format!(
                    "the layouts file gives {:?} and {:?} one name: used the first, left the second out",
                    other.record.tap, record.tap
                );
                index.restarts.insert(firing, note);
                continue;
            }
            let other = other.process;
            let later = if started[entry.process] > started[other] { entry.process } else { other };
            if later == entry.process {
                entries[twin] = i;
            }
            let [a, b, used] = [other, entry.process, later].map(|p| &run.processes[p].identity.process);
            let note = format!(
                "rank {} recorded it in two processes, {a} and {b}: used {used}, which started later",
                rank.unwrap_or_default()
            );
            index.restarts.insert(firing, note);
        }
        index
    }

    /// Whether all records are of one process, which then holds the whole even if its rank is unknown.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// All firings, in no order.
    pub fn firings(&self) -> impl Iterator<Item = &Firing> {
        self.firings.keys()
    }

    /// The names of all taps, in no order.
    pub(crate) fn taps(&self) -> impl Iterator<Item = &str> {
        self.taps.iter().map(String::as_str)
    }

    /// Whether the tap ever fired.
    pub(crate) fn has_tap(&self, tap: &str) -> bool {
        self.taps.contains(tap)
    }

    /// Where a firing stands in capture order: step, pipeline stage, then the order within its first process.
    #[must_use]
    pub fn order(&self, firing: &Firing) -> (u64, u32, u64) {
        let seat = |e: &usize| {
            let entry = &self.run.entries[*e];
            let stage = self.mesh(entry).dim("pp").map_or(0, |d| d.coord);
            (stage, entry.process, entry.record.seq)
        };
        let entries = self.firings.get(firing).map_or(&[][..], Vec::as_slice);
        let (stage, _, seq) = entries.iter().map(seat).min().unwrap_or_default();
        (firing.step, stage, seq)
    }

    /// What is to be said of a firing that two processes of one rank recorded, or that two taps became by renaming.
    #[must_use]
    pub fn restart(&self, firing: &Firing) -> Option<&str> {
        self.restarts.get(firing).map(String::as_str)
    }

    /// The mesh of the process that wrote an entry.
    #[must_use]
    pub fn mesh(&self, entry: &Entry) -> &'r Mesh {
        &self.run.processes[entry.process].identity.mesh
    }

    /// Bytes of a group's records.
    #[must_use]
    pub fn n_bytes(&self, group: &Group) -> u64 {
        group.entries.iter().map(|e| self.run.entries[*e].n_bytes()).sum()
    }

    /// The global rank that wrote an entry.
    #[must_use]
    pub fn rank(&self, entry: usize) -> Option<u32> {
        self.run.processes[self.run.entries[entry].process].identity.rank
    }

    /// All records of a firing.
    #[must_use]
    pub fn entries(&self, firing: &Firing) -> &[usize] {
        self.firings.get(firing).map_or(&[], Vec::as_slice)
    }

    /// The placement that the capture calls gave, if any did; the text that does not parse or differs otherwise.
    pub fn captured_placement(&self, entries: &[usize]) -> Result<Option<Placements>, String> {
        let texts: BTreeSet<Option<&str>> =
            entries.iter().map(|e| self.run.entries[*e].record.placement.as_deref()).collect();
        match texts.into_iter().collect::<Vec<_>>().as_slice() {
            [] | [None] => Ok(None),
            [Some(text)] => text.parse().map(Some).map_err(|e| format!("{e}")),
            several => {
                let several: Vec<&str> = several.iter().map(|t| t.unwrap_or("none")).collect();
                Err(format!("expected one placement from all ranks, found {}", several.join(" and ")))
            }
        }
    }

    /// The groups of a firing, given the mesh dimensions that its placement is over. Ranks of a group differ in those
    /// only. Dimensions may overlap (vLLM's ep spans tp × dp): then those are left out without which groups have most of
    /// their places, and each once.
    #[must_use]
    pub fn groups(&self, firing: &Firing, over: &[&str]) -> Vec<Group> {
        let entries = self.entries(firing);
        let mut dims: BTreeSet<&str> = BTreeSet::new();
        for e in entries {
            let mesh = self.mesh(&self.run.entries[*e]);
            dims.extend(mesh.dims.iter().filter(|d| d.size > 1).map(|d| d.name.as_str()));
        }
        let others: Vec<&str> = dims.into_iter().filter(|d| !over.contains(d)).collect();
        let all = self.split(entries, &others);
        if !entries.iter().any(|e| self.overlaps(*e)) {
            return self.without_lone_stage(all);
        }
        // Fewest left out first.
        let mut subsets: Vec<u32> = (0..1u32 << others.len().min(8)).collect();
        subsets.sort_by_key(|s| s.count_ones());
        let splits = subsets.into_iter().filter_map(|left_out| {
            let is_kept = |i: usize| i >= 8 || left_out >> i & 1 == 0;
            let kept: Vec<&str> = (0..others.len()).filter(|i| is_kept(*i)).map(|i| others[i]).collect();
            let groups = self.split(entries, &kept);
            let count = |sum: u64, g: &Group| Some(sum.saturating_add(self.n_missing(g, over)?));
            let missing = groups.iter().try_fold(0, count)?;
            Some((missing, groups))
        });
        self.without_lone_stage(splits.min_by_key(|(missing, _)| *missing).map_or(all, |(_, groups)| groups))
    }

    fn split(&self, entries: &[usize], by: &[&str]) -> Vec<Group> {
        let mut groups: BTreeMap<BTreeMap<String, u32>, Vec<usize>> = BTreeMap::new();
        for &e in entries {
            let mesh = self.mesh(&self.run.entries[e]);
            let at = by.iter().filter_map(|dim| Some(((*dim).to_owned(), mesh.dim(dim)?.coord))).collect();
            groups.entry(at).or_default().push(e);
        }
        groups.into_iter().map(|(at, entries)| Group { at, entries }).collect()
    }

    /// Whether the mesh of the process that wrote an entry has dimensions that overlap.
    pub(crate) fn overlaps(&self, entry: usize) -> bool {
        let identity = &self.run.processes[self.run.entries[entry].process].identity;
        let product = identity.mesh.dims.iter().map(|d| u64::from(d.size)).fold(1, u64::saturating_mul);
        identity.world.is_some_and(|world| product != u64::from(world))
    }

    /// How many places along the dimensions the group lacks; `None` where it has one twice.
    fn n_missing(&self, group: &Group, over: &[&str]) -> Option<u64> {
        let mut places = BTreeSet::new();
        let mut size = 1;
        for e in &group.entries {
            let mesh = self.mesh(&self.run.entries[*e]);
            let dims: Vec<_> = over.iter().filter_map(|dim| mesh.dim(dim)).collect();
            size = dims.iter().map(|d| u64::from(d.size)).fold(1, u64::saturating_mul);
            places.insert(dims.iter().map(|d| d.coord).collect::<Vec<_>>());
        }
        (places.len() == group.entries.len()).then(|| size.saturating_sub(places.len() as u64))
    }

    /// A tap exists where it exists: its pipeline stage says nothing unless there are several.
    fn without_lone_stage(&self, mut groups: Vec<Group>) -> Vec<Group> {
        let stages: BTreeSet<Option<u32>> = groups.iter().map(|g| g.at.get("pp").copied()).collect();
        if stages.len() == 1 {
            for group in &mut groups {
                group.at.remove("pp");
            }
        }
        groups
    }

    /// How many leading rows of the firing's logical tensor the layouts file says are valid.
    pub fn rows(&self, firing: &Firing, group: &Group, layouts: &Layouts) -> Result<Option<u64>, String> {
        let tap = match layouts.of(&firing.tap).and_then(|t| t.rows.as_ref()) {
            None => return Ok(None),
            Some(Rows::Number(n)) => return Ok(Some(*n)),
            Some(Rows::Tap(tap)) => tap,
        };
        let processes: BTreeSet<usize> = group.entries.iter().map(|e| self.run.entries[*e].process).collect();
        let find = |call| {
            let firing = Firing { tap: tap.clone(), step: firing.step, call };
            let entries = self.entries(&firing);
            let own = entries.iter().find(|e| processes.contains(&self.run.entries[**e].process));
            own.or(entries.first()).copied()
        };
        let Some(e) = find(firing.call).or_else(|| find(0)) else {
            return Err(format!("rows: expected tap {tap:?} in step {}, found none", firing.step));
        };
        let entry = &self.run.entries[e];
        let mut number = [f64::NAN];
        if entry.numel() == 1 {
            let bytes = self.run.bytes(entry).map_err(|e: FileError| format!("rows: {e}"))?;
            decode_into(entry.dtype, &bytes, &mut number);
        }
        if number[0] >= 0.0 && number[0].fract() == 0.0 {
            Ok(Some(number[0] as u64))
        } else {
            Err(format!(
                "rows: expected tap {tap:?} to hold one number of at least 0, found {:?} {:?}",
                entry.dtype, entry.shape
            ))
        }
    }
}

/// When each process started: by its manifest, else by its first record.
fn started(run: &Run) -> Vec<u64> {
    let mut first = vec![u64::MAX; run.processes.len()];
    for entry in &run.entries {
        first[entry.process] = first[entry.process].min(entry.record.time_ns);
    }
    let manifests = run.processes.iter().map(|p| p.manifest.as_ref().map(|m| m.started_ns));
    manifests.zip(first).map(|(manifest, first)| manifest.unwrap_or(first)).collect()
}
