//! A comparison spread over a cluster whose machines each have some of the files. The driver plans, walks and reports as a
//! comparison of one machine does; tensors are measured and explained by tasks, each on the machine that has most of its
//! bytes. Records that lie elsewhere are fetched for it. What a task turns out to need besides, as another tap that its
//! layout draws on, comes back as wanted, and the task is given again with it. The same goes for the driver, where it
//! needs tensors to plan.

mod task;

pub use task::{fetch, list, work};

use crate::{
    alone::{Checking, Found},
    compare::{Comparison, take_in},
    layouts::{Layouts, LayoutsError},
    options::{OneSided, Options, PairBy},
    outcome::Outcome,
    report::Report,
    run::{Access, Catalogue, Entry, FileError, Key, Run},
    steps::Steps,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};
use task::{Done, Items};

/// Bytes of records that a task has at most, if it has more than one pair.
const TASK_BYTES: u64 = 256 << 20;
/// Pairs that a task has at most.
const TASK_PAIRS: usize = 1000;

/// What runs tasks on machines, which it counts from 0. Errors are its own, in words.
pub trait Cluster {
    /// What [`list()`] returns of a path on every machine, or why there is nothing.
    fn list(&self, path: &Path, what: Holds) -> Result<Vec<Result<Vec<u8>, String>>, String>;
    /// Keeps the plan where every task finds it.
    fn share(&self, plan: Vec<u8>) -> Result<(), String>;
    /// Runs the tasks, each [`work`] on its machine after [`fetch`] on others; what they return, in order.
    fn run(&self, tasks: Vec<Task>) -> Result<Vec<Vec<u8>>, String>;
}

/// What a path holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A run.
    Run,
    /// A checkpoint.
    Checkpoint,
}

/// What one call of [`work`] is given, to be passed on as it is.
#[derive(Debug)]
pub struct Task {
    /// Where.
    pub node: usize,
    /// What to do.
    pub items: Vec<u8>,
    /// What to fetch first: by machine, the argument of [`fetch`].
    pub fetches: Vec<(usize, Vec<u8>)>,
}

/// What every task needs to know.
#[derive(Clone, Serialize, Deserialize)]
pub struct Plan {
    /// A run alone; or reference, candidate, and the noise run where there is one.
    pub runs: Vec<Catalogue>,
    /// The texts of layouts files, and their names.
    pub layouts: Vec<(PathBuf, String)>,
    /// See [`Options`].
    pub fail_on_nan: bool,
    /// See [`Options`].
    pub pair: PairBy,
    /// See [`Options`].
    pub one_sided: OneSided,
    /// See [`Options`].
    pub stored: bool,
    /// See [`Options`].
    pub details: bool,
    /// Whether files are mapped.
    pub mmap: bool,
}

/// The plan, and what follows from it only by reading tensors.
#[derive(Serialize, Deserialize)]
struct Shared<'p> {
    plan: Cow<'p, Plan>,
    /// `None` where they follow from the headers, or are not known yet.
    steps: Option<Steps>,
}

/// Why a comparison could not be spread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpreadError {
    /// The cluster's.
    #[error("{0}")]
    Cluster(String),
    /// No machine has the run.
    #[error("{reason} (on each of {nodes} machines)")]
    NoRun {
        /// What the first said.
        reason: String,
        /// How many there are.
        nodes: usize,
    },
    /// A layouts file is not one.
    #[error(transparent)]
    Layouts(#[from] LayoutsError),
    /// What came over the wire is not what was sent: two versions of tpcapture.
    #[error("expected what this version of tpcapture writes, found another's: {0}")]
    Wire(String),
}

/// The run or checkpoint that is at a path on one or more machines of a cluster.
pub fn open(cluster: &dyn Cluster, path: &Path, what: Holds) -> Result<Catalogue, SpreadError> {
    let listed = cluster.list(path, what).map_err(SpreadError::Cluster)?;
    let nodes = listed.len();
    let (found, missing): (Vec<_>, Vec<_>) = listed.into_iter().partition(Result::is_ok);
    let found: Vec<Vec<u8>> = found.into_iter().flatten().collect();
    let found = found.iter().map(|bytes| from_bytes(bytes)).collect::<Result<_, _>>()?;
    let merged = match what {
        Holds::Run => Catalogue::merged(found),
        Holds::Checkpoint => Catalogue::merged_checkpoint(found),
    };
    let reason = || missing.into_iter().find_map(Result::err).unwrap_or_else(|| "no machine".to_owned());
    merged.ok_or_else(|| SpreadError::NoRun { reason: reason(), nodes })
}

/// A record of one of the plan's runs.
type Place = (usize, Key);

/// Compares as [`crate::compare()`] does, with the same report; a run alone is looked at as [`crate::check`] does.
pub fn compare(cluster: &dyn Cluster, plan: &Plan) -> Result<Report, SpreadError> {
    let layouts = plan.layouts()?;
    let mut runs: Vec<Run> = plan.open(None, Vec::new());
    let mut shared = Shared { plan: Cow::Borrowed(plan), steps: None };
    shared.put(cluster)?;
    if plan.pair == PairBy::Inputs {
        shared.steps = Some(steps(cluster, plan, &mut runs, &layouts)?);
        shared.put(cluster)?;
    }
    if let [run] = runs.as_slice() {
        let checking = Checking::new(run, &layouts, plan.options(&runs));
        let records = |group| checking.records(group).map(|entry| (0, entry)).collect();
        let spread = Spread { cluster, plan, records: &records };
        let groups = spread.batches((0..checking.len()).collect(), |group| *group);
        let found: Vec<Result<Found, FileError>> = spread.all(groups, Items::Look)?;
        return Ok(checking.report(found));
    }
    let comparison = shared.comparison(&runs, &layouts);
    let records = |pair| comparison.records(pair).collect();
    let spread = Spread { cluster, plan, records: &records };
    let pairs = spread.batches((0..comparison.len()).collect(), |pair| *pair);
    let mut outcomes: Vec<Outcome> = spread.all(pairs, Items::Measure)?;
    let again = comparison.rule(&mut outcomes);
    let batches = spread.batches(again.clone(), |again| again.pair);
    let found = spread.all(batches, Items::MeasureAgain)?;
    take_in(&mut outcomes, &again, found);
    let (mut decided, errors) = comparison.walk(outcomes);
    let to_explain = spread.batches(decided.clone(), |decided| decided.pair);
    let explained = spread.all(to_explain, Items::Explain)?;
    for (decided, found) in decided.iter_mut().zip(explained) {
        decided.say(found);
    }
    Ok(comparison.report(decided, errors))
}

/// Pairs the steps of two runs by the tensors of their inputs, which are fetched as they turn out to be needed.
fn steps(
    cluster: &dyn Cluster,
    plan: &Plan,
    runs: &mut [Run],
    layouts: &Layouts,
) -> Result<Steps, SpreadError> {
    let mut asked: BTreeSet<Place> = BTreeSet::new();
    loop {
        let steps = Comparison::steps([&runs[0], &runs[1]], layouts, plan.pair);
        let mut by_node: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for place in task::wanted(runs) {
            // What is nowhere to be had is no reason to ask again.
            if let (true, Some(node)) = (asked.insert(place), plan.runs[place.0].nodes(place.1).first()) {
                by_node.entry(*node).or_default().push(place);
            }
        }
        if by_node.is_empty() {
            return Ok(steps);
        }
        let task =
            |(node, places)| Ok(Task { node, items: to_bytes(&Items::Bring(places))?, fetches: Vec::new() });
        let tasks = by_node.into_iter().map(task).collect::<Result<_, SpreadError>>()?;
        for brought in cluster.run(tasks).map_err(SpreadError::Cluster)? {
            for (run, key, bytes) in task::brought(&brought)? {
                runs.get_mut(run).into_iter().for_each(|run| run.hold(key, bytes.clone().into_vec()));
            }
        }
    }
}

impl Shared<'_> {
    /// Puts it where every task finds it.
    fn put(&self, cluster: &dyn Cluster) -> Result<(), SpreadError> {
        cluster.share(to_bytes(self)?).map_err(SpreadError::Cluster)
    }

    fn comparison<'r>(&self, runs: &'r [Run], layouts: &'r Layouts) -> Comparison<'r> {
        let options = self.plan.options(runs);
        match &self.steps {
            Some(steps) => Comparison::paired([&runs[0], &runs[1]], layouts, options, steps),
            None => Comparison::new(&runs[0], &runs[1], layouts, options),
        }
    }
}

impl Plan {
    fn access(&self) -> Access {
        if self.mmap { Access::Mapped } else { Access::Unmapped }
    }

    /// What its layouts files say.
    pub fn layouts(&self) -> Result<Layouts, LayoutsError> {
        self.layouts
            .iter()
            .try_fold(Layouts::default(), |all, (path, text)| Ok(all.before(Layouts::of_text(path, text)?)))
    }

    /// The runs as a machine has them, with records that it was given for each; the driver has none of the files.
    fn open(&self, node: Option<usize>, mut held: Vec<HashMap<Key, Vec<u8>>>) -> Vec<Run> {
        held.resize_with(self.runs.len(), HashMap::new);
        let access = if node.is_some() { self.access() } else { Access::Unmapped };
        self.runs.iter().zip(held).map(|(catalogue, held)| catalogue.open(node, access, held)).collect()
    }

    fn options<'r>(&self, runs: &'r [Run]) -> Options<'r> {
        let Self { fail_on_nan, pair, one_sided, stored, details, .. } = *self;
        Options { fail_on_nan, pair, one_sided, stored, details, noise: runs.get(2), ..Options::default() }
    }
}

/// Items for one task, and where.
struct Batch<T> {
    node: usize,
    n_bytes: u64,
    /// With the number of each.
    items: Vec<(usize, T)>,
    /// Records of other machines.
    needs: BTreeSet<Place>,
}

struct Spread<'s> {
    cluster: &'s dyn Cluster,
    plan: &'s Plan,
    /// The records of a pair or group, each with the number of its run.
    records: &'s dyn Fn(usize) -> Vec<(usize, &'s Entry)>,
}

impl Spread<'_> {
    /// Items in batches, each where most bytes of its pair or group are.
    fn batches<T>(&self, items: Vec<T>, pair: impl Fn(&T) -> usize) -> Vec<Batch<T>> {
        let mut batches: Vec<Batch<T>> = Vec::new();
        let mut open: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, item) in items.into_iter().enumerate() {
            let (mut by_node, mut n_bytes) = (BTreeMap::<usize, u64>::new(), 0);
            let records = (self.records)(pair(&item));
            for &(side, entry) in &records {
                n_bytes += entry.n_bytes();
                for node in self.plan.runs[side].nodes(entry.key()) {
                    *by_node.entry(*node).or_default() += entry.n_bytes();
                }
            }
            // The first of those that have most.
            let most = by_node.iter().max_by_key(|(node, n)| (**n, std::cmp::Reverse(**node)));
            let node = most.map_or(0, |(node, _)| *node);
            let away =
                records.into_iter().filter(|(side, e)| !self.plan.runs[*side].nodes(e.key()).contains(&node));
            let needs: Vec<Place> = away.map(|(side, e)| (side, e.key())).collect();
            let fits = |b: &Batch<T>| b.n_bytes + n_bytes <= TASK_BYTES && b.items.len() < TASK_PAIRS;
            let at = open.get(&node).copied().filter(|at| fits(&batches[*at])).unwrap_or(batches.len());
            if at == batches.len() {
                batches.push(Batch { node, n_bytes: 0, items: Vec::new(), needs: BTreeSet::new() });
                open.insert(node, at);
            }
            let batch = &mut batches[at];
            batch.n_bytes += n_bytes;
            batch.items.push((number, item));
            batch.needs.extend(needs);
        }
        batches
    }

    /// What comes of all items, in their order. What a batch wants besides is fetched, and the rest of it done again.
    fn all<T: Clone, R: DeserializeOwned>(
        &self,
        mut batches: Vec<Batch<T>>,
        items: impl Fn(Vec<T>) -> Items,
    ) -> Result<Vec<R>, SpreadError> {
        let mut results: BTreeMap<usize, R> = BTreeMap::new();
        while !batches.is_empty() {
            let tasks = batches.iter().map(|batch| self.task(batch, &items)).collect::<Result<_, _>>()?;
            let answers = self.cluster.run(tasks).map_err(SpreadError::Cluster)?;
            let mut again = Vec::new();
            for (mut batch, answer) in batches.into_iter().zip(answers) {
                let done: Vec<Done<R>> = from_bytes(&answer)?;
                if done.len() != batch.items.len() {
                    let text = format!("{} results of {} items", done.len(), batch.items.len());
                    return Err(SpreadError::Wire(text));
                }
                let before = batch.needs.len();
                let mut left = Vec::new();
                for ((number, item), done) in batch.items.into_iter().zip(done) {
                    // What is nowhere to be had is no reason to ask again.
                    let wants = done.wants.into_iter().filter(|p| !batch.needs.contains(p));
                    let wants: BTreeSet<Place> = wants.collect();
                    if wants.is_empty() {
                        results.insert(number, done.result);
                    } else {
                        left.push((number, item));
                        batch.needs.extend(wants);
                    }
                }
                batch.items = left;
                if batch.needs.len() > before && !batch.items.is_empty() {
                    again.push(batch);
                }
            }
            batches = again;
        }
        Ok(results.into_values().collect())
    }

    fn task<T: Clone>(
        &self,
        batch: &Batch<T>,
        items: &impl Fn(Vec<T>) -> Items,
    ) -> Result<Task, SpreadError> {
        let mut fetches: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for &(run, key) in &batch.needs {
            if let Some(node) = self.plan.runs[run].nodes(key).first() {
                fetches.entry(*node).or_default().push((run, key));
            }
        }
        let fetches = fetches.into_iter().map(|(node, places)| Ok((node, to_bytes(&places)?)));
        Ok(Task {
            node: batch.node,
            items: to_bytes(&items(batch.items.iter().map(|(_, item)| item.clone()).collect()))?,
            fetches: fetches.collect::<Result<_, SpreadError>>()?,
        })
    }
}

/// MessagePack: numbers keep their bits, and a field that is left out may be.
fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, SpreadError> {
    rmp_serde::to_vec_named(value).map_err(|e| SpreadError::Wire(e.to_string()))
}

fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SpreadError> {
    rmp_serde::from_slice(bytes).map_err(|e| SpreadError::Wire(e.to_string()))
}
