//! A small but complete sink, which shows how little code a new one has to touch.

pub(super) mod file_sink;
