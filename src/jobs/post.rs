//! Requests to an operator's HTTP receivers.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::auth::HookUrl;
use crate::auth::access::Secret;

/// The purpose of a receiver. Each purpose has its own threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Notifications.
    Hook,
    /// Admission decisions, for which a peer waits.
    Admission,
}

/// The type of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyType {
    /// JSON.
    Json,
    /// The fields of a form.
    Form,
    /// A value sent as the field `data` of a multipart form (RFC 7578).
    Data,
}

/// A POST request.
#[derive(Clone)]
pub struct Post {
    /// Purpose of the receiver.
    pub receiver: Receiver,
    /// URL of the receiver.
    pub url: HookUrl,
    /// Body of the request.
    pub body: Bytes,
    /// Type of the body.
    pub body_type: BodyType,
    /// Key to sign the body with; empty: no signature.
    pub secret: Secret,
    /// Time limit of the whole request, including the wait for a thread.
    pub timeout: Duration,
}

/// Hides the body, because it contains credentials of peers.
impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Post");
        out.field("receiver", &self.receiver).field("url", &self.url).finish_non_exhaustive()
    }
}
