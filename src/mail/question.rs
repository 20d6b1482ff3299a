//! Questions of signalling sockets about streams and rooms, which control answers from its records.

/// A question about a stream, or about the main track with that id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Asks for the stream's record. 404 if there is none.
    Record,
    /// Asks for the records of the main track's subtracks, as an array.
    Subtracks {
        /// Role of the requested subtracks; empty for any role.
        role: String,
        /// Number of subtracks to skip at the beginning.
        offset: usize,
        /// Maximum number of subtracks requested; control may return fewer.
        size: usize,
    },
    /// Asks for the number of the main track's live subtracks: `{"count":1}`. Unless the role is empty, only subtracks
    /// with this role count.
    SubtrackCount(String),
    /// Asks for the subscribers that play the stream, as an array of objects.
    Subscribers {
        /// Number of subscribers to skip at the beginning.
        offset: usize,
        /// Maximum number of subscribers requested; control may return fewer.
        size: usize,
    },
    /// Asks how many subscribers play the stream over a connection that control knows of: `{"count":1}`.
    SubscriberCount,
    /// Asks for the live streams of a room:
    /// `{"streams":[..],"streamList":[{"streamId":..,"streamName":..,"metaData":..}]}`.
    Room,
    /// Asks for the resolution and the bit rates of a live stream:
    /// `{"width":1,"height":1,"videoBitrate":1,"videoCodec":".."}`. 404 if the stream is not live.
    Media,
}
