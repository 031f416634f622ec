//! What `compare` and `report` are asked for, and what they find out: the one comparison behind both, which Python runs,
//! too.

use crate::{
    Error, number,
    output::{json, unreadable},
    pattern::matching,
    run::{Reading, printable},
};
use capture_compare::{
    Access, Entry, Layouts, LeftOut, OneSided, Options, PairBy, Report, Run, Verdict, check, compare,
    keep_parameters,
    spread::{self, Cluster, Holds, Plan},
};
use capture_core::steps::{Steps, StepsError};
use std::{
    collections::{BTreeSet, HashMap},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Steps to report on. Unlike in a variable that is not set, no text is no answer.
pub fn some_steps(text: &str) -> Result<Steps, StepsError> {
    if text.trim().is_empty() { Err(StepsError(text.to_owned())) } else { text.parse() }
}

/// What to compare, and how.
#[derive(Debug, Default, clap::Args)]
pub struct Comparison {
    /// A run, or a directory that holds one. The reference, where a second run is given.
    pub run: PathBuf,
    /// The run to compare with it. Without one, RUN is compared across its ranks.
    pub run_b: Option<PathBuf>,
    /// Compare the parameters that RUN captured with those of a checkpoint: a safetensors file, or a directory of them.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["run_b", "noise", "only_common"])]
    pub checkpoint: Option<PathBuf>,
    /// What is known of how taps are sharded: a TOML file, or vllm, vllm-ep or hf for the usual modules of these. May be
    /// given several times; the first that speaks of a tap counts.
    #[arg(long, value_name = "FILE|NAME")]
    pub layouts: Vec<PathBuf>,
    /// Leave out taps, steps and ranks that only one of two runs has, as of a model cut to its first layers; otherwise
    /// they are MISSING.
    #[arg(long, requires = "run_b")]
    pub only_common: bool,
    /// A second run of the reference that differs from it by rounding only, such as one of another batch size: what it
    /// is off by is allowed.
    #[arg(long, value_name = "RUN", requires = "run_b")]
    pub noise: Option<PathBuf>,
    /// Which steps belong together: those of one number in the run (step), of one number in the process (abs), or with
    /// the same rows of the taps that --layouts aligns by (inputs).
    #[arg(long, value_name = "step|abs|inputs", default_value = "step", requires = "run_b")]
    pub pair: PairBy,
    /// Take NaN at the same place on both sides for a difference.
    #[arg(long)]
    pub fail_on_nan: bool,
    /// Take SUSPECT, where nothing can be told, for no difference.
    #[arg(long)]
    pub allow_suspect: bool,
    /// Report on these taps only: a tap, or a pattern such as 'model.layers.{0..3}.*'. All are compared nonetheless,
    /// since how much rounding a tap may show depends on those before it.
    #[arg(long, value_name = "GLOB")]
    pub tap: Option<String>,
    /// Report on these steps only: 10 or 10-20.
    #[arg(long, value_name = "N[-M]", value_parser = some_steps)]
    pub step: Option<Steps>,
    /// Where tensors are read: here, or by an existing Ray cluster, on whose machines the files of a run may be spread.
    /// Variables such as $SCRATCH in a path are each machine's own.
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    pub engine: Engine,
    /// How the files are read.
    #[command(flatten)]
    pub reading: Reading,
}

/// Where tensors are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// In this process.
    #[default]
    Local,
    /// By tasks of a Ray cluster.
    Ray,
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        <Self as clap::ValueEnum>::from_str(name, false)
            .map_err(|_| format!("expected engine \"local\" or \"ray\", found {name:?}"))
    }
}

/// The runs and layouts of a comparison, opened.
struct Opened<'c> {
    asked: &'c Comparison,
    layouts: Layouts,
    runs: Vec<Run>,
    noise: Option<Run>,
}

/// What a comparison found, with the runs it is of.
pub struct Compared {
    /// On the taps and steps that were asked for.
    pub report: Report,
    notes: Vec<String>,
    pub(crate) runs: Vec<Run>,
    allow_suspect: bool,
}

/// What runs comparisons that are not done in this process, where there is any.
pub type Machines<'m> = Option<&'m dyn Cluster>;

impl Comparison {
    /// What the layouts files say.
    fn layouts(&self) -> Result<Layouts, Error> {
        let read = |all: Layouts, path: &PathBuf| Ok::<_, Error>(all.before(Layouts::read(path)?));
        let layouts = self.layouts.iter().try_fold(Layouts::default(), read)?;
        if self.pair == PairBy::Inputs && layouts.align().is_empty() {
            return Err(Error::NoAlignment);
        }
        Ok(layouts)
    }

    /// Opens the runs and the layouts file.
    fn open(&self) -> Result<Opened<'_>, Error> {
        let layouts = self.layouts()?;
        let open = |path| Run::open(path, self.reading.access());
        let paths = std::iter::once(&self.run).chain(&self.run_b);
        let mut runs = paths.map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
        if let Some(path) = &self.checkpoint {
            let checkpoint = Run::checkpoint(path, self.reading.access())?;
            keep_parameters(&mut runs[0], &checkpoint, &layouts);
            runs.insert(0, checkpoint);
        }
        let noise = self.noise.as_deref().map(open).transpose()?;
        if let Some(noise) = &noise {
            let runs: Vec<&Path> = runs.iter().map(|run| run.path.as_path()).collect();
            not_compared(&noise.path, &runs)?;
        }
        Ok(Opened { asked: self, layouts, runs, noise })
    }

    /// Compares: here, or on the machines that were asked for. `options` say whether in detail, who is told of progress,
    /// after `begin` was of how many bytes there are, and what stops it; the rest was asked for.
    pub fn compare(
        &self,
        machines: Machines<'_>,
        options: Options<'_>,
        begin: impl FnOnce(u64),
    ) -> Result<Compared, Error> {
        if self.engine == Engine::Ray {
            return self.spread(machines.ok_or(Error::NoRay)?, options.details);
        }
        let opened = self.open()?;
        begin(opened.n_bytes());
        opened.compare(options)
    }

    /// What becomes of a tensor that only one side has.
    fn one_sided(&self) -> OneSided {
        match (&self.checkpoint, self.only_common) {
            (Some(_), _) => OneSided::OfReferenceLeftOut,
            (None, true) => OneSided::LeftOut,
            (None, false) => OneSided::Missing,
        }
    }

    fn spread(&self, cluster: &dyn Cluster, details: bool) -> Result<Compared, Error> {
        let layouts = self.layouts()?;
        let paths = [Some(&self.run), self.run_b.as_ref(), self.noise.as_ref()];
        let runs = paths.into_iter().flatten().map(|path| spread::open(cluster, path, Holds::Run));
        let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
        if let Some(path) = &self.checkpoint {
            let checkpoint = spread::open(cluster, path, Holds::Checkpoint)?;
            runs[0].keep_parameters(&checkpoint, &layouts);
            runs.insert(0, checkpoint);
        }
        let text = |path: &PathBuf| Ok((path.clone(), Layouts::text(path)?));
        if let [a, b, noise] = runs.as_slice() {
            not_compared(noise.path(), &[a.path(), b.path()])?;
        }
        let plan = Plan {
            runs,
            layouts: self.layouts.iter().map(text).collect::<Result<_, Error>>()?,
            fail_on_nan: self.fail_on_nan,
            pair: self.pair,
            one_sided: self.one_sided(),
            stored: self.checkpoint.is_some(),
            details,
            mmap: !self.reading.no_mmap,
        };
        let report = spread::compare(cluster, &plan)?;
        // The noise run is none of those compared.
        let runs = plan.runs.iter().take(2).map(|run| run.open(None, Access::Unmapped, HashMap::new()));
        self.compared(report, &layouts, runs.collect())
    }

    /// The report on the taps and steps that were asked for, and what is to be said of it.
    fn compared(&self, report: Report, layouts: &Layouts, runs: Vec<Run>) -> Result<Compared, Error> {
        let mut notes = self.unmatched(layouts, &runs);
        let report = self.chosen(report)?;
        notes.extend(self.left_out(&report, &runs[0]));
        if let [a, b] = runs.as_slice()
            && is_same(&a.path, &b.path)
        {
            notes.push(format!("tpcapture: both runs are one directory, read twice: {}", a.path.display()));
        }
        if let Some(why) = self.nothing(&report, &runs[0]) {
            notes.push(format!("tpcapture: nothing was compared: {why}"));
        }
        Ok(Compared { report, notes, runs, allow_suspect: self.allow_suspect })
    }

    /// The report on the taps and steps that were asked for, by the paths that were given.
    fn chosen(&self, report: Report) -> Result<Report, Error> {
        let Report { errors, mut rows, left_out, .. } = report;
        if let (Some(wanted), false) = (&self.tap, rows.is_empty()) {
            let mut seen = BTreeSet::new();
            let taps: Vec<&str> =
                rows.iter().map(|r| r.tap.as_str()).filter(|tap| seen.insert(*tap)).collect();
            let taps: BTreeSet<String> = matching(&taps, wanted)?.into_iter().map(str::to_owned).collect();
            rows.retain(|r| taps.contains(&r.tap));
        }
        if let (Some(wanted), false) = (self.step, rows.is_empty()) {
            let steps: BTreeSet<u64> = rows.iter().map(|r| r.step).collect();
            rows.retain(|r| wanted.contains(r.step));
            if rows.is_empty() {
                let steps = number::ranges(steps);
                return Err(Error::NotFound(format!("nothing of step {wanted}; there are steps {steps}")));
            }
        }
        let paths = self.checkpoint.iter().chain(std::iter::once(&self.run)).chain(&self.run_b);
        let paths = paths.map(|p| p.display().to_string()).collect();
        Ok(Report { left_out, ..Report::new(paths, errors, rows) })
    }

    /// What the layouts file says of taps that are not there.
    fn unmatched(&self, layouts: &Layouts, runs: &[Run]) -> Vec<String> {
        let name = |(i, run): (usize, &Run)| {
            // The first of two runs keeps its names.
            let renamed = i > 0 || runs.len() == 1;
            let taps: BTreeSet<&str> = run.entries.iter().map(|e| e.record.tap.as_str()).collect();
            let name = |tap| if renamed { layouts.renamed(tap) } else { tap.to_owned() };
            taps.into_iter().map(name).collect::<Vec<_>>()
        };
        let taps: Vec<String> = runs.iter().enumerate().flat_map(name).collect();
        let files: Vec<String> = self.layouts.iter().map(|path| path.display().to_string()).collect();
        let unmatched = layouts.unmatched(&taps).into_iter();
        let unmatched = unmatched.map(|what| format!("tpcapture: {}: {what} fits no tap", files.join(", ")));
        // Of what comes with the package most may fit no tap, but all of it only where taps have other names.
        let is_for_other_names = |path: &&PathBuf| {
            Layouts::read(path).is_ok_and(|own| own.is_ready_made() && !own.fits_any(&taps))
        };
        let ready_made = self.layouts.iter().filter(is_for_other_names).map(|path| {
            format!(
                "tpcapture: --layouts {}: fits no tap; taps are to have the names of modules, as in docs/layouts.md",
                path.display()
            )
        });
        unmatched.chain(ready_made).collect()
    }

    /// What was left out since only one side has it.
    fn left_out(&self, report: &Report, reference: &Run) -> Option<String> {
        let LeftOut { reference: a, candidate: b } = report.left_out;
        if self.checkpoint.is_some() {
            let all = reference.entries.len();
            return (a > 0)
                .then(|| format!("tpcapture: {a} of {all} tensors of the checkpoint were not captured"));
        }
        (a + b > 0).then(|| {
            format!("tpcapture: left out what only one run has: {a} tensors of the reference, {b} of the candidate")
        })
    }

    /// Why no row has a verdict, where none has.
    fn nothing(&self, report: &Report, run: &Run) -> Option<&'static str> {
        let ranks = run.entries.iter().map(|e| e.process).collect::<BTreeSet<_>>().len();
        let placed = report.rows.iter().any(|r| r.placement.is_some());
        report.verdict.is_none().then_some(match (report.rows.as_slice(), report.errors.as_slice()) {
            ([], []) if self.checkpoint.is_some() => {
                "the run holds no parameters; capture them, as a tap NAME.param.weight or under their own names"
            }
            ([], []) if report.left_out != LeftOut::default() => "the runs have no tap in common",
            ([], []) => "the runs hold no records",
            ([], _) => "no record can be read",
            _ if ranks == 1 => "the run has one rank; give a second run",
            _ if !placed => "no tap has a placement; give them at the taps or in --layouts, or a second run",
            _ => "no tap is held whole by several ranks; give a second run",
        })
    }
}

/// A noise run that is one of the runs compared would allow for whatever is wrong with it.
fn not_compared(noise: &Path, runs: &[&Path]) -> Result<(), Error> {
    for (run, name) in runs.iter().zip(["reference", "candidate"]) {
        if is_same(noise, run) {
            return Err(Error::NoiseOfItself { name, path: noise.to_owned() });
        }
    }
    Ok(())
}

/// Whether two paths are one directory, under whatever names.
fn is_same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| path.metadata().map(|m| (m.dev(), m.ino())).ok();
    a == b || (place(a).is_some() && place(a) == place(b))
}

impl Opened<'_> {
    /// Bytes of all records.
    fn n_bytes(&self) -> u64 {
        self.runs.iter().flat_map(|run| &run.entries).map(Entry::n_bytes).sum()
    }

    fn compare(self, options: Options<'_>) -> Result<Compared, Error> {
        let Comparison { fail_on_nan, pair, .. } = *self.asked;
        let (one_sided, noise) = (self.asked.one_sided(), self.noise.as_ref());
        let stored = self.asked.checkpoint.is_some();
        let options = Options { fail_on_nan, pair, one_sided, noise, stored, ..options };
        let report = match self.runs.as_slice() {
            [reference, candidate] => compare(reference, candidate, &self.layouts, options),
            runs => check(&runs[0], &self.layouts, options),
        };
        self.asked.compared(report, &self.layouts, self.runs)
    }
}

impl Compared {
    /// The report as `--json` prints it.
    #[must_use]
    pub fn json(&self) -> String {
        json(&self.report)
    }

    /// What is to be said on stderr, a line each: files that cannot be read, and what was asked for in vain.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut lines = unreadable(&self.report.errors);
        lines.extend(self.notes.iter().map(|note| printable(note)));
        lines
    }

    /// The command's exit status.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self.report.verdict {
            Some(Verdict::Suspect) if self.allow_suspect && self.report.errors.is_empty() => 0,
            _ => self.report.exit_status(),
        }
    }
}
