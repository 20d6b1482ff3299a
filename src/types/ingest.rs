//! Ways by which streams come in.

/// The way by which a stream comes in: a protocol that encoders publish over, or a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ingest {
    /// The reference's name for it, `publishType` of the API (docs/rest.md).
    pub publish_type: &'static str,
    /// The name in metrics.
    pub name: &'static str,
}

impl Ingest {
    /// Pulled from another server, over whichever protocol.
    pub const PULL: Self = Self { publish_type: "Pull", name: "pull" };
    /// A copy of another node's stream.
    pub const COPY: Self = Self { publish_type: "Pull", name: "relay" };
}
