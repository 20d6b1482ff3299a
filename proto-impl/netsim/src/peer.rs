//! Trait by which the simulations here drive a machine. It is the only such trait in the tree, and only for tests.

use std::time::Instant;

use bytes::Bytes;
use wire::SendQueue;

/// Input of a datagram machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A datagram arrived.
    Datagram(Bytes),
    /// The deadline passed.
    Timeout,
}

/// Machine that sends and receives datagrams. The wrapper in a test must drain the machine's events inside `handle`.
pub trait Peer {
    /// Handles an input.
    fn handle(&mut self, now: Instant, input: Input);
    /// Returns the next datagram to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes>;
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// Input of a stream machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamInput {
    /// Bytes arrived, split anywhere.
    Bytes(Bytes),
    /// The transport accepted this many of the transmitted bytes.
    Sent(usize),
    /// The other side closed its direction.
    Fin,
    /// The transport was reset.
    Reset,
    /// The deadline passed.
    Timeout,
}

/// Machine that sends and receives a byte stream. The first three methods are required; the others are for machines
/// that need them.
pub trait StreamPeer {
    /// Handles an input.
    fn handle(&mut self, now: Instant, input: StreamInput);
    /// Moves outgoing bytes into `out`.
    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue);
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// True if the machine accepts bytes now. Otherwise they stay in the link, and its window fills.
    fn wants_bytes(&self) -> bool {
        true
    }

    /// True if this direction closes once all bytes are sent.
    fn is_closing(&self) -> bool {
        false
    }
}
