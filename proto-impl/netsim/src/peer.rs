//! The traits by which simulations drive a protocol's state machine. They are only for tests: no other code of the tree
//! has traits for state machines.

use std::time::Instant;

use bytes::Bytes;
use wire::SendQueue;

/// Input of a state machine that exchanges datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A datagram arrived.
    Datagram(Bytes),
    /// The deadline passed.
    Timeout,
}

/// A state machine that sends and receives datagrams. The implementation in a test must poll the events of the state
/// machine inside `handle`.
pub trait Peer {
    /// Handles an input.
    fn handle(&mut self, now: Instant, input: Input);
    /// Returns the next datagram to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes>;
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// Input of a state machine that reads and writes a byte stream.
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

/// A state machine that sends and receives a byte stream. Every implementation needs the first three methods; the
/// others have defaults.
pub trait StreamPeer {
    /// Handles an input.
    fn handle(&mut self, now: Instant, input: StreamInput);
    /// Moves outgoing bytes into `out`.
    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue);
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// True if the state machine accepts bytes now. Otherwise the bytes stay in the link, and its window fills up.
    fn wants_bytes(&self) -> bool {
        true
    }

    /// True if the state machine closes its direction once all its bytes are sent.
    fn is_closing(&self) -> bool {
        false
    }
}
