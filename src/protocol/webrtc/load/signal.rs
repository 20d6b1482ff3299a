//! The signalling of a client: the requests of WHIP and WHEP, or the messages of a socket.

use std::time::Instant;

use wire::SendQueue;

use super::request::Requests;
use super::socket::Messages;

/// An event of the signalling.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SignalEvent {
    /// The client is to make its offer.
    OfferWanted,
    /// The server's answer to the client's offer.
    Answer(Vec<u8>),
    /// An offer of the server.
    Offer(Vec<u8>),
    /// The client needs a new byte stream.
    Reconnect,
    /// The session has ended at the client's request.
    Over,
    /// The session has ended, for this reason.
    Closed(String),
}

/// The signalling of a client.
#[derive(Debug)]
pub(super) enum Signal {
    Requests(Box<Requests>),
    Messages(Box<Messages>),
}

impl Signal {
    /// Begins, once the client's address is known.
    pub(super) fn begin(&mut self) {
        match self {
            Self::Requests(requests) => requests.begin(),
            Self::Messages(messages) => messages.begin(),
        }
    }

    /// Sends the client's offer.
    pub(super) fn offer(&mut self, now: Instant, sdp: &str) {
        match self {
            Self::Requests(requests) => requests.offer(sdp),
            Self::Messages(messages) => messages.describe(now, "offer", sdp),
        }
    }

    /// Sends the client's answer.
    pub(super) fn answer(&mut self, now: Instant, sdp: &str) {
        if let Self::Messages(messages) = self {
            messages.describe(now, "answer", sdp);
        }
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        match self {
            Self::Requests(requests) => requests.handle_bytes(bytes),
            Self::Messages(messages) => messages.handle_bytes(now, bytes),
        }
    }

    /// Handles the end of the byte stream.
    pub(super) fn handle_end(&mut self) {
        match self {
            Self::Requests(requests) => requests.handle_end(),
            Self::Messages(messages) => messages.handle_end(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Self::Messages(messages) = self {
            messages.handle_timeout(now);
        }
    }

    pub(super) fn poll_transmit(&mut self, out: &mut SendQueue) {
        match self {
            Self::Requests(requests) => requests.poll_transmit(out),
            Self::Messages(messages) => messages.poll_transmit(out),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<SignalEvent> {
        match self {
            Self::Requests(requests) => requests.poll_event(),
            Self::Messages(messages) => messages.poll_event(),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Requests(_) => None,
            Self::Messages(messages) => messages.poll_timeout(),
        }
    }

    /// Ends the session at the server.
    pub(super) fn close(&mut self, now: Instant) {
        match self {
            Self::Requests(requests) => requests.close(),
            Self::Messages(messages) => messages.close(now),
        }
    }

    /// True if the session is being ended, or has ended.
    pub(super) const fn is_over(&self) -> bool {
        match self {
            Self::Requests(requests) => requests.is_over(),
            Self::Messages(messages) => messages.is_over(),
        }
    }
}
