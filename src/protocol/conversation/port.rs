//! Events and news of the shared ports of a worker.

use bytes::BytesMut;

use crate::protocol::Claim;

/// An event for a shared port.
#[derive(Debug)]
pub enum PortEvent {
    /// Claims what is the session's own at its port.
    Claim(Claim),
    /// A datagram of a shared port that came in the session's byte stream. [`PortNews::Uncarried`] when no session takes
    /// it, [`PortNews::Carries`] when it has shown whose all the others are.
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
    /// A session of the port has claimed the datagrams of [`PortEvent::Carried`]. It closes this one with itself.
    Carries,
    /// No session takes a datagram of [`PortEvent::Carried`].
    Uncarried,
}
