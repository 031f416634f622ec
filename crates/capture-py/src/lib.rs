//! Python bindings of tpcapture.
