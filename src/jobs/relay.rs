//! HLS that is pushed to another server.

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

/// A PUT or DELETE request to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayWork {
    /// URL of the folder. Its query is added to each request.
    pub url: Arc<Url>,
    /// Name of the file.
    pub name: String,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// New content; `None` removes the file.
    pub data: Option<Bytes>,
}
