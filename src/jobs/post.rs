//! Requests to an operator's HTTP receivers.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::auth::HookUrl;
use crate::auth::access::Secret;

/// The purpose of a receiver; each has threads of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Notifications.
    Hook,
    /// The receiver is asked for admission: a peer waits.
    Admission,
}

/// The type of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyType {
    /// JSON.
    Json,
    /// The fields of a form.
    Form,
    /// A value that is sent as the field `data` of a multipart form (RFC 7578).
    Data,
}

/// A POST request.
#[derive(Clone)]
pub struct Post {
    /// The purpose of the receiver.
    pub receiver: Receiver,
    /// The receiver's URL.
    pub url: HookUrl,
    /// The request's body.
    pub body: Bytes,
    /// The type of the body.
    pub body_type: BodyType,
    /// The key that signs the body; empty: no signature.
    pub secret: Secret,
    /// The timeout of the whole request, including the wait for a thread.
    pub timeout: Duration,
}

/// Does not print the body, which carries credentials of peers.
impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Post");
        out.field("receiver", &self.receiver).field("url", &self.url).finish_non_exhaustive()
    }
}
