//! The subject of a request that another node of the cluster may have.

use std::sync::Arc;

use crate::types::StreamKey;

/// The subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sought {
    /// A live stream.
    Stream(StreamKey),
    /// A recording.
    File {
        /// The application.
        app: Arc<str>,
        /// The path below the application.
        path: String,
    },
}
