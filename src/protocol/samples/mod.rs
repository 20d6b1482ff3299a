//! A sink and a derived track, small and complete: they show how much code a new one has to touch.

pub(super) mod file_sink;
pub(super) mod g711_law;
