//! G.711 (ITU-T G.711): 8 kHz, one byte per sample. It has no parameter sets.

/// The companding law of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Law {
    /// A-law (PCMA).
    A,
    /// mu-law (PCMU).
    Mu,
}

/// Parameters of a G.711 track. The container defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The companding law.
    pub law: Law,
    /// Number of channels: 1, or 2 interleaved.
    pub channels: u8,
}

impl Config {
    /// Sample rate in Hz, which is fixed.
    pub const SAMPLE_RATE: u32 = 8000;
}
