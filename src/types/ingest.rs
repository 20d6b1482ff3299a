//! How streams come in.

/// How a stream comes in: a protocol that is published over, or a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ingest {
    /// The reference's name for it, `publishType` of the API (docs/rest.md).
    pub publish_type: &'static str,
    /// In metrics.
    pub name: &'static str,
}

impl Ingest {
    /// Pulled from another server, over whichever protocol.
    pub const PULL: Self = Self { publish_type: "Pull", name: "pull" };
}
