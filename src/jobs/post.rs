//! Requests to an operator's HTTP receivers.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::auth::HookUrl;

/// What a receiver is for; each has threads of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// The receiver is told of something.
    Hook,
    /// The receiver is asked for admission: a peer waits.
    Admission,
}

/// One POST.
#[derive(Clone)]
pub struct Post {
    /// What the receiver is for.
    pub receiver: Receiver,
    /// The receiver's URL.
    pub url: HookUrl,
    /// The request's body.
    pub body: Bytes,
    /// The body is a form; otherwise it is JSON.
    pub form: bool,
    /// How long all of it may take, the wait for a thread included.
    pub timeout: Duration,
}

/// Without the body, which carries what peers show.
impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Post");
        out.field("receiver", &self.receiver).field("url", &self.url).finish_non_exhaustive()
    }
}
