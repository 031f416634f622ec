//! `tpcapture compare`: a run across its ranks, or a candidate against a reference.

use crate::{
    Error,
    comparison::{Comparison, Machines},
    output::Output,
    progress::Progress,
};
use capture_compare::Options;
use std::{env, io::IsTerminal as _};

/// What the words of the table mean, under `--help`.
const VERDICTS: &str = "\
Verdicts, from best to worst, and the exit status of the worst:
  IDENTICAL  0  the same bits
  ROUNDING   0  differs as much as sums taken in another order do
  SUSPECT    1  differs more, but it may be rounding of what came before; see --allow-suspect
  MISSING    1  one side, or one rank, has no record of it
  LAYOUT     1  the ranks' tensors do not make a whole under the placement given or taken
  DIFFERENT  1  differs beyond rounding; of one run, replicas that are not equal, or sums that do not add up
  -             not checked: nothing to compare it with
Exit status 2: nothing was compared, or a file cannot be read and no difference was found.

units: the largest error, in roundings of the tensor's dtype at the size of the tensor's numbers. A row \
whose rms is more than 2 (fp32 and wider: 32) is DIFFERENT where nothing before was off; after taps that were off \
by rounding it may be 4 times their noise. A single element may be off by 20 times the tensor's own noise.";

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = VERDICTS)]
pub(crate) struct Args {
    #[command(flatten)]
    comparison: Comparison,
    /// Print every row and note, not only those around the first divergence.
    #[arg(long)]
    all: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Compares.
pub(crate) fn compare(args: &Args, machines: Machines<'_>) -> Result<Output, Error> {
    let progress = Progress::new(0);
    let add = |n_bytes| progress.add(n_bytes);
    let options = Options { progress: Some(&add), ..Options::default() };
    let compared = args.comparison.compare(machines, options, |total| progress.expect(total))?;
    drop(progress);
    let mut output = if args.json {
        Output::json(&compared.report, &compared.report.errors)
    } else {
        let colours = std::io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Output { text: compared.text(args.all, colours), notes: compared.complaints(), status: 0 }
    };
    output.status = compared.exit_status();
    Ok(output)
}
