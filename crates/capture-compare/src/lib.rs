//! Offline: open a run, assemble logical tensors, compare, report.
