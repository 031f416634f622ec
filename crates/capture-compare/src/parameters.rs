//! The parameters of a run under the names that a checkpoint has for them.

use crate::{
    layouts::Layouts,
    run::{Catalogue, Entry, Run},
};
use std::collections::HashSet;

/// What attaching puts between a module's name and a parameter's.
const PARAM: &str = ".param.";

/// Leaves of a run the parameters, under the names of a checkpoint and in step 0: taps named `….param.…`, and those
/// named as the checkpoint's tensors are, or as what the layouts file makes of these. Of a parameter that a process
/// captured several times the first counts, as weights do not change while a model serves.
pub fn keep_parameters(run: &mut Run, checkpoint: &Run, layouts: &Layouts) {
    keep(&mut run.entries, &checkpoint.entries, layouts);
}

impl Catalogue {
    /// The same of a run and a checkpoint whose files lie on other machines.
    pub fn keep_parameters(&mut self, checkpoint: &Self, layouts: &Layouts) {
        keep(self.entries_mut(), checkpoint.entries(), layouts);
    }
}

fn keep(entries: &mut Vec<Entry>, checkpoint: &[Entry], layouts: &Layouts) {
    let names: HashSet<&str> = checkpoint.iter().map(|e| e.record.tap.as_str()).collect();
    let joined = |tap: &str| {
        layouts.joins().iter().find_map(|join| join.part(tap).map(|(_, captured)| join.whole(&captured)))
    };
    let wholes: HashSet<String> = names.iter().filter_map(|name| joined(name)).collect();
    let is_known = |tap: &str| {
        let tap = layouts.renamed(tap);
        names.contains(tap.as_str())
            || wholes.contains(&tap)
            || joined(&tap).is_some_and(|whole| names.contains(whole.as_str()))
    };
    let mut seen = HashSet::new();
    entries.retain_mut(|entry| {
        let record = &mut entry.record;
        let is_parameter = match record.tap.rsplit_once(PARAM) {
            Some((module, parameter)) => {
                record.tap = format!("{module}.{parameter}");
                true
            }
            None => is_known(&record.tap),
        };
        (record.step, record.call) = (0, 0);
        is_parameter && seen.insert((entry.process, record.tap.clone()))
    });
}
