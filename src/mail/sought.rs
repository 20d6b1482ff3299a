//! The stream or file that a request asks for, if another node of the cluster may have it.

use std::sync::Arc;

use crate::types::StreamKey;

/// The subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sought {
    /// A live stream.
    Stream(StreamKey),
    /// A picture of a live stream.
    Picture(StreamKey),
    /// A recording.
    File {
        /// The application.
        app: Arc<str>,
        /// The path below the application.
        path: String,
    },
}
