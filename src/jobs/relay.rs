//! HLS that is pushed to another server.

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

/// A request to the server: PUT, or DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayWork {
    /// The folder there. Its query goes along with each request.
    pub url: Arc<Url>,
    /// The name in it.
    pub name: String,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The new content; `None`: it is removed.
    pub data: Option<Bytes>,
}
