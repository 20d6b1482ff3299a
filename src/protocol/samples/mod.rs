//! A sink and a derived track, small and whole: how much of the house a new one has to touch.

pub(super) mod file_sink;
pub(super) mod g711_law;
