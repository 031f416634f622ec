//! `tpcapture compare`: a run across its ranks, or a candidate against a reference.

use crate::{
    Error,
    gaps::gaps,
    notes::{notes, place},
    number,
    output::Output,
    pattern::matching,
    progress::Progress,
    rows::rows,
    run::{Reading, printable},
};
use capture_compare::{Entry, Layouts, Options, Report, Run, Verdict, check, report::Row};
use capture_core::{Placement, Placements, Sharding, steps::Steps};
use std::{collections::BTreeSet, env, io::IsTerminal as _, ops::Range, path::PathBuf};

/// What the words of the table mean, under `--help`.
const VERDICTS: &str = "\
Verdicts, from best to worst, and the exit status of the worst:
  IDENTICAL  0  the same bits
  ROUNDING   0  differs as much as sums taken in another order do
  SUSPECT    1  differs more, but it may be rounding of what came before; see --allow-suspect
  MISSING    1  one side, or one rank, has no record of it
  LAYOUT     1  the ranks' tensors do not make a whole under the placement given or taken
  DIFFERENT  1  differs beyond rounding; of one run, replicas that are not equal
  -             not checked: nothing to compare it with
Exit status 2: nothing was compared, or a file cannot be read and no difference was found.

units: the largest error, in roundings of the tensor's dtype at the size of the tensor's numbers. A row \
whose rms is more than 2 (fp32 and wider: 32) is DIFFERENT where nothing before was off; after taps that were off \
by rounding it may be 4 times their noise. A single element may be off by 20 times the tensor's own noise.";

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = VERDICTS)]
pub(crate) struct Args {
    /// A run, or a directory that holds one. The reference, where a second run is given.
    run: PathBuf,
    /// The run to compare with it. Without one, RUN is compared across its ranks.
    run_b: Option<PathBuf>,
    /// What is known of how taps are sharded (TOML).
    #[arg(long, value_name = "FILE")]
    layouts: Option<PathBuf>,
    /// Take NaN at the same place on both sides for a difference.
    #[arg(long)]
    fail_on_nan: bool,
    /// Take SUSPECT, where nothing can be told, for no difference.
    #[arg(long)]
    allow_suspect: bool,
    /// Report on these taps only: a tap, or a pattern such as 'model.layers.{0..3}.*'. All are compared nonetheless,
    /// since how much rounding a tap may show depends on those before it.
    #[arg(long, value_name = "GLOB")]
    tap: Option<String>,
    /// Report on these steps only: 10 or 10-20.
    #[arg(long, value_name = "N[-M]")]
    step: Option<Steps>,
    /// Print every row and note, not only those around the first divergence.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    reading: Reading,
}

/// Rows that are printed where not all are, and how many of them before the first divergence.
const MOST_ROWS: usize = 40;
const ROWS_BEFORE: usize = 8;
/// Notes that are printed where not all are.
const MOST_NOTES: usize = 20;

/// Compares.
pub(crate) fn compare(args: &Args) -> Result<Output, Error> {
    let layouts = args.layouts.as_deref().map_or_else(|| Ok(Layouts::default()), Layouts::read)?;
    let reference = Run::open(&args.run, args.reading.access())?;
    let candidate = args.run_b.as_deref().map(|b| Run::open(b, args.reading.access())).transpose()?;
    let n_bytes = |run: &Run| run.entries.iter().map(Entry::n_bytes).sum::<u64>();
    let progress = Progress::new(n_bytes(&reference) + candidate.as_ref().map_or(0, n_bytes));
    let add = |n_bytes| progress.add(n_bytes);
    let options = Options { fail_on_nan: args.fail_on_nan, progress: Some(&add) };
    let report = match &candidate {
        Some(candidate) => capture_compare::compare(&reference, candidate, &layouts, options),
        None => check(&reference, &layouts, options),
    };
    drop(progress);
    let unmatched: Vec<String> = match &args.layouts {
        Some(path) => {
            let unmatched = layouts.unmatched(report.rows.iter().map(|r| r.tap.as_str()));
            unmatched
                .iter()
                .map(|glob| format!("tpcapture: {}: match {glob:?} fits no tap", path.display()))
                .collect()
        }
        None => Vec::new(),
    };
    let mut report = chosen(report, args)?;
    report.runs = [Some(&args.run), args.run_b.as_ref()]
        .into_iter()
        .flatten()
        .map(|p| p.display().to_string())
        .collect();
    let mut output = if args.reading.json {
        Output::json(&report, &report.errors)
    } else {
        let runs = std::iter::once(&reference).chain(&candidate);
        let colours = std::io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let mut output = Output::text(text(args, &report, runs, colours), &report.errors);
        output.notes.extend(unmatched);
        if let Some(why) = nothing(&report, &reference) {
            output.notes.push(format!("tpcapture: nothing was compared: {why}"));
        }
        output
    };
    output.status = match report.verdict {
        Some(Verdict::Suspect) if args.allow_suspect && report.errors.is_empty() => 0,
        _ => report.exit_status(),
    };
    Ok(output)
}

fn text<'r>(args: &Args, report: &Report, runs: impl Iterator<Item = &'r Run>, colours: bool) -> String {
    let mut text = headline(report);
    let runs: Vec<&Run> = runs.collect();
    let several = runs.iter().any(|r| r.processes.len() > 1);
    for run in &runs {
        let name = if runs.len() > 1 { format!("{}: ", run.path.display()) } else { String::new() };
        text.extend(gaps(run).lines().map(|line| format!("{}{line}\n", printable(&name))));
    }
    if runs.iter().flat_map(|r| &r.processes).any(|p| p.identity.mesh.assumed) {
        text +=
            "the mesh is assumed: all of the world is taken as tp; if not, set TPCAPTURE_MESH=pp=2,tp=4\n";
    }
    if !report.rows.is_empty() {
        text += "\n";
        let window = if args.all { 0..report.rows.len() } else { window(report) };
        let hidden = report.rows.len() - window.len();
        let before = window.start;
        text += &rows(&report.rows[window], several, colours);
        if hidden > 0 {
            let before = if before > 0 { format!(", {before} of them before") } else { String::new() };
            text += &format!("… {hidden} more row{}{before}: --all\n", if hidden == 1 { "" } else { "s" });
        }
    }
    let notes = notes(&report.rows, if args.all { usize::MAX } else { MOST_NOTES });
    if !notes.is_empty() {
        text += "\n";
        text += &notes;
    }
    text
}

/// The report on the taps and steps that were asked for.
fn chosen(report: Report, args: &Args) -> Result<Report, Error> {
    let Report { runs, errors, mut rows, .. } = report;
    if let (Some(wanted), false) = (&args.tap, rows.is_empty()) {
        let mut seen = BTreeSet::new();
        let taps: Vec<&str> = rows.iter().map(|r| r.tap.as_str()).filter(|tap| seen.insert(*tap)).collect();
        let taps: BTreeSet<String> = matching(&taps, wanted)?.into_iter().map(str::to_owned).collect();
        rows.retain(|r| taps.contains(&r.tap));
    }
    if let (Some(wanted), false) = (args.step, rows.is_empty()) {
        let steps: BTreeSet<u64> = rows.iter().map(|r| r.step).collect();
        rows.retain(|r| wanted.contains(r.step));
        if rows.is_empty() {
            let steps = number::ranges(steps);
            return Err(Error::NotFound(format!("nothing of step {wanted}; there are steps {steps}")));
        }
    }
    Ok(Report::new(runs, errors, rows))
}

/// The rows to print: some before the first divergence, or the first row that is not as it should be, and the rest
/// after it.
fn window(report: &Report) -> Range<usize> {
    let n = report.rows.len();
    let diverges = |row: &Row| {
        report.first_divergence.as_ref().is_some_and(|first| {
            (row.verdict >= Some(Verdict::Layout))
                && (row.tap == first.tap && row.step == first.step && row.call == first.call)
        })
    };
    let first = report.rows.iter().position(diverges);
    let first = first.or_else(|| report.rows.iter().position(|r| r.verdict > Some(Verdict::Rounding)));
    let start = first.unwrap_or(0).saturating_sub(ROWS_BEFORE).min(n.saturating_sub(MOST_ROWS));
    start..n.min(start + MOST_ROWS)
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

/// The verdict, where it begins, and how often there is which.
fn headline(report: &Report) -> String {
    let Some(verdict) = report.verdict else { return "nothing was compared\n".to_owned() };
    let rows = |n: usize| format!("{n} row{}", if n == 1 { "" } else { "s" });
    let unchecked = report.rows.iter().filter(|r| r.verdict.is_none()).count();
    if let (Verdict::Identical, [_]) = (verdict, report.runs.as_slice()) {
        let equal = format!("replicas equal: {}", rows(report.rows.len() - unchecked));
        return match unchecked {
            0 => equal + "\n",
            n => format!("{equal}; {} cannot be checked without a reference run\n", rows(n)),
        };
    }
    let mut text = verdict.to_string();
    if let Some(first) = &report.first_divergence {
        let same = |r: &&Row| {
            (r.tap == first.tap && r.step == first.step && r.call == first.call)
                && r.verdict.is_some_and(|v| v >= Verdict::Layout)
        };
        text +=
            &format!(", first at {}{}", place(&first.tap, [first.step], first.call), ranks_of(&first.ranks));
        let row = report.rows.iter().find(same);
        if first.ranks.len() > 1 && row.is_some_and(is_sum) {
            text += " (a sum: any of them)";
        }
        if let Some(worst) = row.and_then(|r| r.worst.as_ref()) {
            let [reference, candidate] = [worst.reference, worst.candidate].map(number::float);
            text += &format!("\nat {:?}: reference {reference}, candidate {candidate}", worst.index);
        }
    }
    let mut counts: Vec<String> =
        report.counts.iter().filter(|c| *c.1 > 0).map(|(verdict, n)| format!("{n} {verdict}")).collect();
    if unchecked > 0 {
        counts.push(format!("{unchecked} not checked"));
    }
    format!("{text}\n{}\n", counts.join(", "))
}

/// Whether ranks hold summands, of which the wrong one cannot be told.
fn is_sum(row: &Row) -> bool {
    let placements = row.placement.as_deref().and_then(|text| text.parse::<Placements>().ok());
    let is_partial = |p: &Placement| p.sharding == Sharding::Partial;
    row.verdict == Some(Verdict::Different) && placements.is_some_and(|p| p.0.iter().any(is_partial))
}

fn ranks_of(ranks: &[u32]) -> String {
    match ranks {
        [] => String::new(),
        [one] => format!(", rank {one}"),
        several => format!(", ranks {}", number::ranges(several.iter().map(|r| u64::from(*r)))),
    }
}
