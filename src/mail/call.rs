//! Calls between two signalling sockets, which control brings together. What they then say goes from one to the other.

use crate::auth::access::Params;
use crate::mail::NoSubscription;
use crate::types::{SessionRef, StreamKey};

/// An event of a socket about calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// Takes part in the call of this id.
    Join {
        /// The call.
        key: StreamKey,
        /// Credentials: those of a viewer of that id.
        params: Params,
        /// The page that asks.
        origin: String,
    },
    /// Leaves the call of this id.
    Leave(StreamKey),
    /// The socket is gone.
    Gone,
}

/// News of a call for a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallNews {
    /// The socket takes part.
    Joined,
    /// The socket does not take part: two do already.
    Full,
    /// The socket does not take part; why.
    Refused(NoSubscription),
    /// Another socket takes part, too.
    Paired {
        /// The other's session.
        with: SessionRef,
        /// Whether this one makes the offer.
        begins: bool,
    },
    /// The other has left.
    Alone,
}
