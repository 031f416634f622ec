//! The `tpcapture` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    capture_cli::main(std::env::args_os(), None).into()
}
