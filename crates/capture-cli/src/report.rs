//! `tpcapture report`: a comparison as a page.

use crate::{
    Error,
    comparison::{Comparison, Machines},
    output::Output,
    progress::Progress,
};
use capture_compare::Options;
use std::{fs, path::PathBuf};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: that of compare, 1 where the verdict is worse than ROUNDING. The page is written either way."
)]
pub(crate) struct Args {
    #[command(flatten)]
    comparison: Comparison,
    /// The HTML file to write; one that is there is written over.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

/// Compares, and writes the page.
pub(crate) fn report(args: &Args, machines: Machines<'_>) -> Result<Output, Error> {
    let progress = Progress::new(0);
    let add = |n_bytes| progress.add(n_bytes);
    let options = Options { details: true, progress: Some(&add), ..Options::default() };
    let compared = args.comparison.compare(machines, options, |total| progress.expect(total))?;
    drop(progress);
    let page = compared.page();
    fs::write(&args.output, &page).map_err(|reason| Error::Write { reason, path: args.output.clone() })?;
    let text = format!("{}the page of all rows: {}\n", compared.headline(), args.output.display());
    Ok(Output { text, notes: compared.complaints(), status: compared.exit_status() })
}
