//! G.711 (ITU-T G.711): 8 kHz, one byte a sample. It has no parameter sets.

/// The companding law of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Law {
    /// PCMA.
    A,
    /// PCMU.
    Mu,
}

/// The parameters of a G.711 track from its container; the samples do not carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The companding law.
    pub law: Law,
    /// 1 or 2, interleaved.
    pub channels: u8,
}

impl Config {
    /// Hz, always.
    pub const SAMPLE_RATE: u32 = 8000;
}
