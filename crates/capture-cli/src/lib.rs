//! The `tpcapture` command.
