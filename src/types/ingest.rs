//! The ways in which streams arrive.

/// The way in which a stream arrives: a protocol for encoders, or a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ingest {
    /// Name in Ant Media Server, the `publishType` of the API (docs/rest.md).
    pub publish_type: &'static str,
    /// Name in metrics.
    pub name: &'static str,
}

impl Ingest {
    /// Pulled from another server, over any protocol.
    pub const PULL: Self = Self { publish_type: "Pull", name: "pull" };
    /// A copy of another node's stream.
    pub const COPY: Self = Self { publish_type: "Pull", name: "relay" };
    /// The view of a room, made of the room's streams by this server.
    pub const ROOM_VIEW: Self = Self { publish_type: "Pull", name: "room" };

    /// True if the stream is derived from another one (a copy, or the view of a room). Such a stream has no
    /// record, hooks or recordings of its own.
    #[must_use]
    pub fn is_copy(self) -> bool {
        self == Self::COPY || self == Self::ROOM_VIEW
    }

    /// True if this server fetches or makes the stream, so that nobody publishes it here.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self == Self::PULL || self.is_copy()
    }
}
