//! Events and news of the shared ports of a worker.

use bytes::BytesMut;

use crate::protocol::Claim;

/// An event for a shared port.
#[derive(Debug)]
pub enum PortEvent {
    /// Claims or gives up an identifier of the session at its port.
    Claim(Claim),
    /// Carries a datagram of a shared port that arrived in the session's byte stream. Answered by
    /// [`PortNews::Uncarried`] if no session accepts it, or by [`PortNews::Carries`] once a session has claimed
    /// the byte stream.
    Carried {
        /// The name of the port.
        port: &'static str,
        /// The datagram.
        datagram: BytesMut,
    },
}

/// News of a shared port.
#[derive(Debug)]
pub enum PortNews {
    /// A session of the port has claimed the byte stream of [`PortEvent::Carried`]; the two end together.
    Carries,
    /// No session accepts a datagram of [`PortEvent::Carried`].
    Uncarried,
}
