//! Processes that make their steps together, and the first step that all of them capture.
//!
//! Ranks of one data-parallel replica count the same forward passes, though one may be ahead of another. The first
//! step is a little beyond where the foremost is. It is written to all, then their counts are read again, with a
//! barrier in between: who is still below it finds it when it gets there (see `page::bell`). Where one was faster, a
//! later step is tried. How much beyond is a matter of how soon, never of whether all begin together.

use super::{
    LiveError,
    jobs::{Key, heads},
    party::{Party, wait},
    process::Seen,
};
use std::{collections::BTreeMap, sync::atomic::AtomicBool, time::Duration};

/// Beyond the foremost, where steps go by: as many as were made while the processes were armed, times this.
const FACTOR: u64 = 4;
const LEAST_MARGIN: u64 = 4;
/// How long one that may have come too late has to say so; it does at its next tap or step.
const LATE_LIMIT: Duration = Duration::from_millis(100);
/// A count of steps that is higher is none.
const MAX_STEPS: u64 = 1 << 62;

/// Places in the list of parties, and what was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) members: Vec<usize>,
    pub(super) first: u64,
    margin: u64,
    foremost: u64,
    /// Whether steps went by while it was armed.
    moves: bool,
    pub(super) is_agreed: bool,
}

/// Steps of a process, before it was armed and after.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) before: u64,
    pub(super) after: u64,
    /// Stages of its pipeline.
    pub(super) stages: u64,
}

/// The job, the place in its data-parallel dimension, and whether the rank is known: what helpers of ranks count, if
/// anything, are not the model's passes.
pub(super) type ReplicaKey = (Key, Option<u32>, bool);

/// The replica of each process.
pub(super) fn replica_keys(seen: &[Seen]) -> Vec<ReplicaKey> {
    let place = |seen: &Seen| seen.answer.mesh.dim("dp").map(|dim| dim.coord);
    let keys = heads(seen).into_iter().zip(seen);
    keys.map(|((key, _), seen)| (key, place(seen), seen.answer.rank.is_some())).collect()
}

impl Replica {
    /// The replicas of those that take part.
    pub(super) fn of(parties: &[Party<'_>], counted: &[Counted]) -> Vec<Self> {
        let seen: Vec<Seen> = parties.iter().map(Party::look).collect();
        let mut members: BTreeMap<ReplicaKey, Vec<usize>> = BTreeMap::new();
        for (i, key) in replica_keys(&seen).into_iter().enumerate() {
            if parties[i].takes_part() && counted[i].after < MAX_STEPS {
                members.entry(key).or_default().push(i);
            }
        }
        let of = |members: Vec<usize>| {
            let counted = members.iter().map(|i| counted[*i]).collect::<Vec<_>>();
            Self::new(members, &counted)
        };
        members.into_values().map(of).collect()
    }

    fn new(members: Vec<usize>, counted: &[Counted]) -> Self {
        let moved = counted.iter().map(|count| count.after.saturating_sub(count.before)).max().unwrap_or(0);
        let stages = counted.iter().map(|count| count.stages).max().unwrap_or(1);
        // Where nothing moves the next pass is the first: a prompt that is sent now is captured from its beginning.
        let margin = if moved == 0 { 1 } else { LEAST_MARGIN.max(stages).max(moved.saturating_mul(FACTOR)) };
        Self { members, first: 0, margin, foremost: 0, moves: moved > 0, is_agreed: false }
    }

    /// Looks where the foremost is.
    pub(super) fn measure(&mut self, parties: &[Party<'_>]) {
        let steps = self.members.iter().map(|i| parties[*i].page.steps());
        self.foremost = steps.filter(|steps| *steps < MAX_STEPS).max().unwrap_or(0);
    }

    /// Chooses the first step: `others` are all replicas. Where two go in step, as those of a model whose experts span
    /// them do, they get the same one. One that never made a step begins at once.
    pub(super) fn choose(&mut self, others: &[(u64, u64)]) {
        let near = |other: &&(u64, u64)| self.moves && other.0.abs_diff(self.foremost) <= self.margin;
        let common =
            others.iter().filter(near).map(|(foremost, margin)| foremost.saturating_add(*margin)).max();
        self.first = match self.foremost {
            0 => 0,
            foremost => common.unwrap_or(0).max(foremost.saturating_add(self.margin)),
        };
    }

    /// Foremost and margin, where steps go by.
    pub(super) fn pace(&self) -> Option<(u64, u64)> {
        self.moves.then_some((self.foremost, self.margin))
    }

    /// Whether all begin at the first step, once it was written and fenced.
    pub(super) fn check(&mut self, parties: &[Party<'_>], interrupt: &AtomicBool) -> Result<(), LiveError> {
        let first = self.first.max(1);
        let reached = |i: &&usize| parties[**i].page.steps() >= first;
        let reached: Vec<usize> = self.members.iter().filter(reached).copied().collect();
        let mut begun = 0;
        let is_clear = || {
            begun = 0;
            reached.iter().all(|i| match parties[*i].answer() {
                Some(answer) if answer.began_at == Some(first) => {
                    begun += 1;
                    true
                }
                // One that does not take part makes nobody late.
                Some(answer) => answer.late_at.is_some() || answer.refused.is_some() || !answer.meant,
                None => false,
            })
        };
        let is_clear = reached.is_empty() || wait(LATE_LIMIT, interrupt, is_clear)?;
        let n_out = reached.iter().filter(|i| !parties[**i].takes_part()).count();
        self.is_agreed = is_clear && begun + n_out == reached.len();
        if !self.is_agreed {
            (self.margin, self.moves) = (self.margin.saturating_mul(2), true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{process::Process, procfs::ProcDir};
    use capture_core::{
        Answer, Request,
        page::{Block, Other},
        request::Op,
    };
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::{
        fs::File,
        os::{fd::AsRawFd as _, unix::fs::FileExt as _},
        path::Path,
        sync::atomic::{AtomicU64, Ordering::Relaxed},
    };

    /// A process whose page is written by hand, by the offsets of docs/control-page.md.
    fn process(steps: u64) -> (File, Process) {
        let file: File = memfd_create("page", MemfdFlags::ALLOW_SEALING).unwrap().into();
        file.set_len(65536).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let words = [u64::from_le_bytes(*b"TPCAPTUR"), 2, 0, steps, u64::MAX, 1].map(u64::to_le_bytes);
        file.write_all_at(words.as_flattened(), 0).unwrap();
        let page = Other::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        let dir = ProcDir::open(std::process::id()).unwrap();
        (file, Process { dir, page, program: String::new(), ancestors: Vec::new() })
    }

    /// What the process says, in slot 1 of the answers.
    fn say(file: &File, answer: Answer) {
        let current = AtomicU64::new(0);
        let slots: [Vec<AtomicU64>; 2] =
            std::array::from_fn(|_| (0..0x600).map(|_| AtomicU64::new(0)).collect());
        Block::new(&current, [&slots[0], &slots[1]]).write(&answer.to_json(4096)).unwrap();
        let slot: Vec<u8> = slots[1].iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        file.write_all_at(&slot, 0xb000).unwrap();
        file.write_all_at(&1u64.to_le_bytes(), 0xc0).unwrap();
    }

    /// Whether all begin at step 12, where a process whose steps are `now` by then says so of it.
    #[track_caller]
    fn check_agreed(now: u64, answer: Answer, is_agreed: bool) {
        let (file, process) = process(8);
        let (processes, before) = ([process], [Seen::default()]);
        let mut parties = Party::lock(&processes, &before).unwrap();
        let mut replica = Replica::new(vec![0], &[Counted { before: 7, after: 8, stages: 1 }]);
        replica.measure(&parties);
        replica.choose(&[]);
        assert_eq!(replica.first, 12);
        parties[0].ask(&Request { op: Op::On, id: 5, first: Some(12), ..Request::default() }).unwrap();
        file.write_all_at(&now.to_le_bytes(), 0x18).unwrap();
        say(&file, answer);
        replica.check(&parties, &AtomicBool::new(false)).unwrap();
        assert_eq!((replica.is_agreed, replica.margin), (is_agreed, if is_agreed { 4 } else { 8 }));
    }

    #[test]
    fn one_that_comes_late_makes_all_begin_later() {
        let heard = Answer { heeded: 1, meant: true, id: 5, ..Answer::default() };
        let began = Answer { began_at: Some(12), ..heard.clone() };
        let late = Answer { late_at: Some(13), ..heard.clone() };
        let armed_only = Answer { heeded: 0, ..heard.clone() };
        check_agreed(11, armed_only.clone(), true); // it is below, and will find it
        check_agreed(12, began.clone(), true);
        check_agreed(13, began.clone(), true);
        check_agreed(13, late, false);
        check_agreed(12, armed_only, false); // nobody knows
        check_agreed(13, Answer { began_at: Some(11), ..heard.clone() }, false);
        check_agreed(13, Answer { meant: false, ..heard.clone() }, true); // it does not take part
        check_agreed(13, Answer { refused: Some("no".into()), ..heard }, true);
    }

    /// The first step of one that was at those counts before arming and after, and of which the foremost is there now.
    #[track_caller]
    fn check(counted: &[(u64, u64)], stages: u64, now: u64, first: u64) {
        let counted: Vec<_> = counted
            .iter()
            .map(|(before, after)| Counted { before: *before, after: *after, stages })
            .collect();
        let mut replica = Replica::new((0..counted.len()).collect(), &counted);
        replica.foremost = now;
        replica.choose(&replica.pace().into_iter().collect::<Vec<_>>());
        assert_eq!(replica.first, first);
    }

    #[test]
    fn the_first_step_is_beyond_the_foremost() {
        check(&[(7, 7), (6, 6)], 1, 7, 8); // idle: the next pass
        check(&[(7, 8), (6, 7)], 1, 8, 12); // at least 4 beyond
        check(&[(7, 7), (6, 9)], 1, 10, 10 + 12); // 3 went by meanwhile
        check(&[(7, 8)], 6, 8, 14); // as many as the pipeline has stages
        check(&[(0, 0), (0, 0)], 1, 0, 0); // never stepped: at once
        check(&[(0, 0), (4, 4)], 1, 4, 5);
    }

    #[test]
    fn replicas_in_step_begin_together() {
        let replica = |foremost, moved| {
            let counted = Counted { before: foremost, after: foremost + moved, stages: 1 };
            Replica { foremost: foremost + moved, ..Replica::new(vec![0], &[counted]) }
        };
        let firsts = |mut replicas: Vec<Replica>| {
            let paces: Vec<_> = replicas.iter().filter_map(Replica::pace).collect();
            replicas.iter_mut().for_each(|replica| replica.choose(&paces));
            replicas.into_iter().map(|replica| replica.first).collect::<Vec<_>>()
        };
        assert_eq!(firsts(vec![replica(100, 1), replica(101, 1)]), [106, 106]);
        assert_eq!(firsts(vec![replica(100, 1), replica(200, 1)]), [105, 205]);
        assert_eq!(firsts(vec![replica(100, 0), replica(101, 1)]), [101, 106], "an idle one does not wait");
    }
}
