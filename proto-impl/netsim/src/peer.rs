//! The trait by which a machine is driven here: the only one of the tree, for tests only.

use std::time::Instant;

use bytes::Bytes;
use wire::SendQueue;

/// An input of a datagram machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A datagram arrived.
    Datagram(Bytes),
    /// The deadline passed.
    Timeout,
}

/// A machine that speaks in datagrams. The test's wrapper drains the machine's events inside `handle`.
pub trait Peer {
    /// Takes an input.
    fn handle(&mut self, now: Instant, input: Input);
    /// The next datagram to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes>;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// An input of a stream machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamInput {
    /// Bytes arrived, cut anywhere.
    Bytes(Bytes),
    /// The transport took this many of the transmitted bytes.
    Sent(usize),
    /// The other side ended its direction.
    Fin,
    /// The transport is gone.
    Reset,
    /// The deadline passed.
    Timeout,
}

/// A machine that speaks in bytes. The first three methods are the trait; the others are for those that care.
pub trait StreamPeer {
    /// Takes an input.
    fn handle(&mut self, now: Instant, input: StreamInput);
    /// Moves what is to be sent into `out`.
    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue);
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether bytes are taken now; otherwise they stay in the link, and its window fills.
    fn wants_bytes(&self) -> bool {
        true
    }

    /// Whether this direction ends once all is sent.
    fn is_closing(&self) -> bool {
        false
    }
}
