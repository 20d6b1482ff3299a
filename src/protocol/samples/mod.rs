//! A sink, small and complete: it shows how much code a new one has to touch.

pub(super) mod file_sink;
