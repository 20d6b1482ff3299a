//! Questions of signalling sockets about streams and rooms, which control answers from its records.

/// A question about a stream, or about the main track of that id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Its record. No record: 404.
    Record,
    /// The records of its subtracks, as an array.
    Subtracks {
        /// The role of those that are wanted; empty: any.
        role: String,
        /// The number of those that are left out at the beginning.
        offset: usize,
        /// The most that are wanted; control gives fewer.
        size: usize,
    },
    /// The number of its live subtracks, of this role where one is named: `{"count":1}`.
    SubtrackCount(String),
    /// The subscribers that play it, as an array of objects.
    Subscribers {
        /// The number of subscribers left out at the beginning.
        offset: usize,
        /// The most that are wanted; control gives fewer.
        size: usize,
    },
    /// The number of those who play it by a connection that control knows of: `{"count":1}`.
    SubscriberCount,
    /// The live streams of a room: `{"streams":[..],"streamList":[{"streamId":..,"streamName":..,"metaData":..}]}`.
    Room,
    /// The pictures and rates of a live stream: `{"width":1,"height":1,"videoBitrate":1,"videoCodec":".."}`. Not live: 404.
    Media,
}
