//! AC-3 and E-AC-3 (ETSI TS 102 366). Neither has parameter sets: every syncframe is complete in itself, and what a
//! container wants to know of it (`dac3`, `dec3`) can be read there.

/// An AC-3 or E-AC-3 track. It says no more than that it is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config;
