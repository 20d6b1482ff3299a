//! Calls between two signalling sockets. Control pairs the sockets. After that, each session sends its messages to the
//! other one.

use crate::auth::access::Params;
use crate::mail::NoSubscription;
use crate::types::{SessionRef, StreamKey};

/// An event of a signalling socket that concerns a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// The socket joins the call with this id.
    Join {
        /// Application and id of the call.
        key: StreamKey,
        /// Credentials. They are checked like those of a viewer of the stream whose id is the call's id.
        params: Params,
        /// Origin of the requesting page.
        origin: String,
    },
    /// The socket leaves the call with this id.
    Leave(StreamKey),
    /// The socket has closed.
    Gone,
}

/// News of a call, sent to a signalling socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallNews {
    /// The socket has joined the call.
    Joined,
    /// The socket was refused, because two sockets are in the call already.
    Full,
    /// The socket was refused, for this reason.
    Refused(NoSubscription),
    /// Another socket is in the call.
    Paired {
        /// Session of the other socket.
        with: SessionRef,
        /// True if this socket makes the offer.
        begins: bool,
    },
    /// The other socket has left the call.
    Alone,
}
