//! What a run lacks that was to be in it: processes that ended early, records that were lost or refused.

use crate::{number, run::printable};
use capture_compare::{Process, Run};
use capture_core::manifest::State;
use std::collections::{BTreeMap, BTreeSet};

/// Losses that are told one by one.
const MOST_LOSSES: usize = 8;
/// Ranks of a world that are looked for.
const MOST_RANKS: u32 = 1 << 16;

/// A line for each thing that was not captured; the same of several ranks is one.
pub(crate) fn gaps(run: &Run) -> String {
    let (ends, losses) = (ends(run), losses(run));
    let hidden = losses.len().saturating_sub(MOST_LOSSES);
    let all = ends.into_iter().chain(absent(run)).chain(idle(run));
    let mut text: String = all.chain(losses.into_iter().take(MOST_LOSSES)).collect();
    if hidden > 0 {
        text += &format!("… {hidden} more: ls --json\n");
    }
    text + &restarts(run)
}

/// What is to be set where it is not known how the ranks of a world are arranged, with an example of its size.
pub(crate) fn assumed<'r>(runs: impl IntoIterator<Item = &'r Run>) -> String {
    let meshes = runs.into_iter().flat_map(|run| &run.processes).map(|p| &p.identity.mesh);
    let sizes = meshes.filter(|mesh| mesh.assumed).flat_map(|mesh| &mesh.dims).map(|dim| dim.size);
    match sizes.max() {
        // One rank is one rank under any name.
        None | Some(0 | 1) => String::new(),
        Some(n) => {
            let stages = if n.is_multiple_of(2) { 2 } else { n };
            let other = format!("pp={stages},tp={}", n / stages);
            format!(
                "the mesh is assumed: all {n} ranks are taken as tp; set TPCAPTURE_MESH=tp={n}, or what it is, such as {other}\n"
            )
        }
    }
}

/// How processes ended, where it was not because they were told to.
fn ends(run: &Run) -> Vec<String> {
    let mut partial = BTreeSet::new();
    for entry in &run.entries {
        if run.file(entry).extension().is_some_and(|e| e == "partial") {
            partial.insert(entry.process);
        }
    }
    let mut ends = Merged::default();
    for (i, process) in run.processes.iter().enumerate() {
        let end = match process.manifest.as_ref() {
            Some(manifest) if manifest.state == State::Ended => match &manifest.end_reason {
                Some(reason) if !manifest.ended_as_told() => format!("ended early: {}", printable(reason)),
                _ => continue,
            },
            None if !partial.contains(&i) => continue,
            _ => "did not end: still running, or killed".to_owned(),
        };
        ends.add(end, process, 1);
    }
    ends.0.into_iter().map(|(end, of)| format!("{} {end}\n", of.ranks())).collect()
}

/// Ranks of the world that wrote nothing, where all were to.
fn absent(run: &Run) -> Option<String> {
    let all = |process: &Process| {
        let config = process.manifest.as_ref().map(|m| &m.config);
        let is = |key: &str, value: &str| config.is_some_and(|c| c.get(key).is_some_and(|v| v == value));
        is("ranks", "all") && !config.is_some_and(|c| c.get("select").is_some_and(|s| s.contains("rank=")))
    };
    let world = run.processes.iter().map(|p| p.identity.world).collect::<BTreeSet<_>>();
    let &[Some(world)] = world.into_iter().collect::<Vec<_>>().as_slice() else { return None };
    let there: BTreeSet<u32> = run.processes.iter().filter_map(|p| p.identity.rank).collect();
    // A world may claim any size.
    let absent = (0..world.min(MOST_RANKS)).filter(|rank| !there.contains(rank)).map(u64::from);
    let absent: Vec<u64> = absent.collect();
    let plural = if absent.len() == 1 { "" } else { "s" };
    (!absent.is_empty() && run.processes.iter().all(all))
        .then(|| format!("rank{plural} {} of {world} wrote nothing\n", number::ranges(absent)))
}

/// Rules of the selection that captured nothing on any rank.
fn idle(run: &Run) -> Vec<String> {
    let mut records: BTreeMap<&str, u64> = BTreeMap::new();
    for rule in run.processes.iter().filter_map(|p| p.manifest.as_ref()).flat_map(|m| &m.rules) {
        let sum = records.entry(&rule.rule).or_default();
        *sum = sum.saturating_add(rule.records);
    }
    let idle = records.into_iter().filter(|(_, n)| *n == 0);
    idle.map(|(rule, _)| format!("the rule {} captured nothing\n", printable(rule))).collect()
}

/// Records that are not there and the reasons, the most first. A manifest counts what was lost and what was refused,
/// but lists both in one.
fn losses(run: &Run) -> Vec<String> {
    let mut losses = Merged::default();
    let mut uncounted = Merged::default();
    for process in &run.processes {
        let Some(manifest) = &process.manifest else { continue };
        let counters = manifest.counters;
        let what = match (counters.lost, counters.refused) {
            (0, 0) => "noted",
            (_, 0) => "lost",
            (0, _) => "refused",
            _ => "lost or refused",
        };
        for loss in &manifest.losses {
            losses.add((what, loss.tap.as_str(), loss.reason.as_str()), process, loss.count);
        }
        if manifest.losses.is_empty() && what != "noted" {
            let n = counters.lost.saturating_add(counters.refused);
            uncounted.add(format!("{what}: {n} record{}", if n == 1 { "" } else { "s" }), process, n);
        }
    }
    let mut losses: Vec<_> = losses.0.into_iter().collect();
    losses.sort_by_key(|(_, of)| std::cmp::Reverse(of.count));
    let told = losses.into_iter().map(|((what, tap, reason), of)| {
        format!("{what}: {} ×{}: {} ({})\n", printable(tap), of.count, printable(reason), of.ranks())
    });
    let untold = uncounted.0.into_iter().map(|(text, of)| format!("{text} ({})\n", of.ranks()));
    told.chain(untold).collect()
}

/// Ranks of several processes, as after a restart.
fn restarts(run: &Run) -> String {
    let mut processes: BTreeMap<u32, u64> = BTreeMap::new();
    for rank in run.processes.iter().filter_map(|p| p.identity.rank) {
        *processes.entry(rank).or_default() += 1;
    }
    let text = |(rank, n): (u32, u64)| {
        let (n, later) = if n == 2 { ("two".to_owned(), "later") } else { (n.to_string(), "latest") };
        format!("rank {rank} is here in {n} processes; the {later} one is used\n")
    };
    processes.into_iter().filter(|(_, n)| *n > 1).map(text).collect()
}

/// What holds of several processes.
struct Merged<K>(BTreeMap<K, Of>);

impl<K> Default for Merged<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The processes of which something holds, and how often altogether.
#[derive(Default)]
struct Of {
    ranks: BTreeSet<u64>,
    /// Processes of unknown rank.
    unknown: BTreeSet<String>,
    count: u64,
}

impl<K: Ord> Merged<K> {
    fn add(&mut self, key: K, process: &Process, count: u64) {
        let of = self.0.entry(key).or_default();
        match process.identity.rank {
            Some(rank) => of.ranks.insert(u64::from(rank)),
            None => of.unknown.insert(process.identity.process.clone()),
        };
        of.count = of.count.saturating_add(count);
    }
}

impl Of {
    /// `rank 0`, `ranks 0-3`, `process 42-0badcafe`.
    fn ranks(&self) -> String {
        let plural = if self.ranks.len() == 1 { "" } else { "s" };
        let known = format!("rank{plural} {}", number::ranges(self.ranks.iter().copied()));
        let unknown = self.unknown.iter().map(|process| format!("process {process}"));
        let known = (!self.ranks.is_empty()).then_some(known);
        known.into_iter().chain(unknown).collect::<Vec<_>>().join(", ")
    }
}
