//! The `tpcapture` command.
//!
//! Every command makes an `Output`, which is printed here: what it found on stdout, what went wrong
//! on stderr, and an exit status of 0 for done, 1 for something found, 2 for what could not be done.

mod number;
mod run;
mod output;
mod progress;
mod pattern;
mod rows;
mod notes;
mod suggested;
mod gaps;
mod comparison;
mod terminal;
mod page;
mod live;

mod compare;
mod report;
mod ls;
mod show;
mod verify;
mod recover;
mod ps;
mod status;
mod on;
mod off;

pub use comparison::{Compared, Comparison, Engine, Machines, some_steps};
pub use live::LiveError;
pub use run::Reading;

use clap::{Parser, Subcommand};
use output::Output;
use std::{ffi::OsString, io::Write as _};

/// Captures tensors of tensor-parallel inference servers, and finds out what is wrong with them.
#[derive(Debug, Parser)]
#[command(name = "tpcapture", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the live processes that can be switched on, and where each is.
    Ps(ps::Args),
    /// Switch a capture on in live processes, all from the same step on.
    On(on::Args),
    /// End captures in live processes, and wait until what they captured is sealed.
    Off(off::Args),
    /// Say what live processes capture: what, since when, by whom, how much, and why it ended.
    Status(status::Args),
    /// List what a run holds.
    Ls(ls::Args),
    /// Show statistics, histogram and first values of a tap's records.
    Show(show::Args),
    /// Hold every record against its checksum.
    Verify(verify::Args),
    /// Seal what killed processes left: partial segments become plain safetensors files.
    Recover(recover::Args),
    /// Compare a run across its ranks, or two runs of any tensor-parallel sizes.
    Compare(compare::Args),
    /// Compare as `compare` does, and write what is found as one HTML page.
    Report(report::Args),
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path is no run.
    #[error(transparent)]
    Open(#[from] capture_compare::OpenError),
    /// A record that was readable when the run was opened.
    #[error(transparent)]
    File(#[from] capture_compare::FileError),
    /// The layouts file is not one.
    #[error(transparent)]
    Layouts(#[from] capture_compare::LayoutsError),
    /// Steps cannot be paired by inputs that nobody named.
    #[error(
        "--pair inputs: expected the taps of the inputs in --layouts, as in [align] by = \"input_ids\", found none"
    )]
    NoAlignment,
    /// The noise run is one of the runs that are compared.
    #[error(
        "--noise: expected another run of the reference, found the {name} itself: {}", path.display()
    )]
    NoiseOfItself {
        /// Which.
        name: &'static str,
        /// Its directory.
        path: std::path::PathBuf,
    },
    /// The comparison could not be spread over machines.
    #[error(transparent)]
    Spread(#[from] capture_compare::spread::SpreadError),
    /// Nothing here speaks to a Ray cluster.
    #[error("expected the Python package's command for --engine ray: pip install 'tpcapture[ray]'")]
    NoRay,
    /// A run cannot be recovered.
    #[error("cannot recover: {source}: {}", path.display())]
    Recover {
        /// Its directory.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The page cannot be written.
    #[error("cannot write the page: {reason}: {}", path.display())]
    Write {
        /// What the system said.
        reason: std::io::Error,
        /// The file.
        path: std::path::PathBuf,
    },
    /// Live processes cannot be looked at or switched.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// No such tap, step or call.
    #[error("{0}")]
    NotFound(String),
}

/// Runs the command of those arguments, the program's name first, and returns its exit status. `machines` are for those
/// that ask for them.
pub fn main(args: impl IntoIterator<Item = OsString>, machines: Machines<'_>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are printed in the same way. That nobody reads it any more is no fault.
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    let made = match cli.command {
        Command::Ps(args) => ps::ps(&args),
        Command::On(args) => on::on(&args),
        Command::Off(args) => off::off(&args),
        Command::Status(args) => status::status(&args),
        Command::Ls(args) => ls::ls(&args),
        Command::Show(args) => show::show(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Recover(args) => recover::recover_runs(&args),
        Command::Compare(args) => compare::compare(&args, machines),
        Command::Report(args) => report::report(&args, machines),
    };
    let output = made.unwrap_or_else(|e| Output::failed(&e));
    print(&output)
}

/// Prints, and returns the status. A reader that went away (`| head`) is no fault; a disk that is full is.
fn print(output: &Output) -> u8 {
    let (mut stdout, mut stderr) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = stdout.write_all(output.text.as_bytes()).and_then(|()| stdout.flush());
    for note in &output.notes {
        // Nobody is left to be told.
        let _ = writeln!(stderr, "{}", run::printable(note));
    }
    match printed {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            let _ = writeln!(stderr, "tpcapture: writing the output: {e}");
            2
        }
        _ => output.status,
    }
}
