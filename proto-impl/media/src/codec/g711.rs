//! G.711 (ITU-T G.711): 8 kHz, one byte a sample. It has no parameter sets.

/// How the samples are companded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Law {
    /// PCMA.
    A,
    /// PCMU.
    Mu,
}

/// What the container says of a G.711 track; the samples do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How the samples are companded.
    pub law: Law,
    /// 1 or 2, interleaved.
    pub channels: u8,
}

impl Config {
    /// Hz, always.
    pub const SAMPLE_RATE: u32 = 8000;
}
