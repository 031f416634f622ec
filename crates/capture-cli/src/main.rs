//! The `tpcapture` command.
fn main() {}
