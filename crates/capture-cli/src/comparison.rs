//! What `compare` and `report` are asked for, and what they find out: the one comparison behind both, which Python runs,
//! too.

use crate::{
    Error, number,
    output::{json, unreadable},
    pattern::matching,
    run::Reading,
};
use capture_compare::{
    Access, Entry, Layouts, Options, PairBy, Report, Run, Verdict, check, compare,
    spread::{self, Cluster, Plan},
};
use capture_core::steps::Steps;
use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    str::FromStr,
};

/// What to compare, and how.
#[derive(Debug, Default, clap::Args)]
pub struct Comparison {
    /// A run, or a directory that holds one. The reference, where a second run is given.
    pub run: PathBuf,
    /// The run to compare with it. Without one, RUN is compared across its ranks.
    pub run_b: Option<PathBuf>,
    /// What is known of how taps are sharded (TOML).
    #[arg(long, value_name = "FILE")]
    pub layouts: Option<PathBuf>,
    /// A second run of the reference that differs from it by rounding only, such as one of another batch size: what it
    /// is off by is allowed.
    #[arg(long, value_name = "RUN", requires = "run_b")]
    pub noise: Option<PathBuf>,
    /// Which steps belong together: those of one number in the run (step), of one number in the process (abs), or with
    /// the same rows of the taps under [align] by in --layouts (inputs).
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
    #[arg(long, value_name = "N[-M]")]
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
    /// Opens the runs and the layouts file.
    fn open(&self) -> Result<Opened<'_>, Error> {
        let layouts = self.layouts.as_deref().map_or_else(|| Ok(Layouts::default()), Layouts::read)?;
        if self.pair == PairBy::Inputs && layouts.align().is_empty() {
            return Err(Error::NoAlignment);
        }
        let paths = std::iter::once(&self.run).chain(&self.run_b);
        let open = |path| Run::open(path, self.reading.access());
        let runs = paths.map(|path| open(path)).collect::<Result<_, _>>()?;
        let noise = self.noise.as_deref().map(open).transpose()?;
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

    fn spread(&self, cluster: &dyn Cluster, details: bool) -> Result<Compared, Error> {
        let run_b = self.run_b.as_deref().ok_or(Error::RayNeedsTwoRuns)?;
        if self.pair == PairBy::Inputs {
            return Err(Error::RayNeedsNumberedSteps);
        }
        let paths = [Some(self.run.as_path()), Some(run_b), self.noise.as_deref()];
        let runs = paths.into_iter().flatten().map(|path| spread::open(cluster, path));
        let text = |path: &PathBuf| Ok((path.clone(), Layouts::text(path)?));
        let plan = Plan {
            runs: runs.collect::<Result<_, _>>()?,
            layouts: self.layouts.iter().map(text).collect::<Result<_, Error>>()?,
            fail_on_nan: self.fail_on_nan,
            pair: self.pair,
            details,
            mmap: !self.reading.no_mmap,
        };
        let layouts = plan.layouts()?;
        let report = spread::compare(cluster, &plan)?;
        let runs = plan.runs[..2].iter().map(|run| run.open(None, Access::Unmapped, HashMap::new()));
        self.compared(report, &layouts, runs.collect())
    }

    /// The report on the taps and steps that were asked for, and what is to be said of it.
    fn compared(&self, report: Report, layouts: &Layouts, runs: Vec<Run>) -> Result<Compared, Error> {
        let mut notes = self.unmatched(layouts, &runs);
        let report = self.chosen(report)?;
        if let Some(why) = nothing(&report, &runs[0]) {
            notes.push(format!("tpcapture: nothing was compared: {why}"));
        }
        Ok(Compared { report, notes, runs, allow_suspect: self.allow_suspect })
    }

    /// The report on the taps and steps that were asked for, by the paths that were given.
    fn chosen(&self, report: Report) -> Result<Report, Error> {
        let Report { errors, mut rows, .. } = report;
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
        let paths = std::iter::once(&self.run).chain(&self.run_b);
        Ok(Report::new(paths.map(|p| p.display().to_string()).collect(), errors, rows))
    }

    /// What the layouts file says of taps that are not there.
    fn unmatched(&self, layouts: &Layouts, runs: &[Run]) -> Vec<String> {
        let Some(path) = &self.layouts else { return Vec::new() };
        let name = |(i, run): (usize, &Run)| {
            // The first of two runs keeps its names.
            let renamed = i > 0 || runs.len() == 1;
            let taps: BTreeSet<&str> = run.entries.iter().map(|e| e.record.tap.as_str()).collect();
            let name = |tap| if renamed { layouts.renamed(tap) } else { tap.to_owned() };
            taps.into_iter().map(name).collect::<Vec<_>>()
        };
        let taps: Vec<String> = runs.iter().enumerate().flat_map(name).collect();
        let unmatched = layouts.unmatched(&taps);
        unmatched
            .into_iter()
            .map(|what| format!("tpcapture: {}: {what} fits no tap", path.display()))
            .collect()
    }
}

impl Opened<'_> {
    /// Bytes of all records.
    fn n_bytes(&self) -> u64 {
        self.runs.iter().flat_map(|run| &run.entries).map(Entry::n_bytes).sum()
    }

    fn compare(self, options: Options<'_>) -> Result<Compared, Error> {
        let Comparison { fail_on_nan, pair, .. } = *self.asked;
        let options = Options { fail_on_nan, pair, noise: self.noise.as_ref(), ..options };
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
        lines.extend_from_slice(&self.notes);
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

/// Why no row has a verdict, where none has.
fn nothing(report: &Report, run: &Run) -> Option<&'static str> {
    let ranks = run.entries.iter().map(|e| e.process).collect::<BTreeSet<_>>().len();
    let placed = report.rows.iter().any(|r| r.placement.is_some());
    report.verdict.is_none().then_some(match (report.rows.as_slice(), report.errors.as_slice()) {
        ([], []) => "the runs hold no records",
        ([], _) => "no record can be read",
        _ if ranks == 1 => "the run has one rank; give a second run",
        _ if !placed => "no tap has a placement; give them at the taps or in --layouts, or a second run",
        _ => "no tap is held whole by several ranks; give a second run",
    })
}
