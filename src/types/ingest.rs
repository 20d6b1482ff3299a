//! The ways in which streams arrive.

/// The way in which a stream arrives: a protocol for encoders, or a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ingest {
    /// Name in the reference, the `publishType` of the API (docs/rest.md).
    pub publish_type: &'static str,
    /// Name in metrics.
    pub name: &'static str,
}

impl Ingest {
    /// Pulled from another server, over any protocol.
    pub const PULL: Self = Self { publish_type: "Pull", name: "pull" };
    /// A copy of another node's stream.
    pub const COPY: Self = Self { publish_type: "Pull", name: "relay" };
}
