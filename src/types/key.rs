//! The key of a live stream.

use std::fmt;
use std::sync::Arc;

/// The key of a live stream: application and id, both validated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// Name of the application.
    pub app: Arc<str>,
    /// Id of the stream.
    pub id: Arc<str>,
}

impl StreamKey {
    /// Makes a key of validated parts.
    #[must_use]
    pub fn new(app: &str, id: &str) -> Self {
        Self { app: app.into(), id: id.into() }
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.id)
    }
}
