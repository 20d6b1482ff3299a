//! The load generator: clients that publish or play, and measure the results. `docs/bench.md` explains each figure.
//!
//! 1. [`Options`] come from the command line, a [`Target`] from the URL.
//! 2. A [`Clip`] is read once; a [`Source`] per publisher loops it, and numbers and stamps each unit ([`Stamp`]).
//! 3. A [`Peer`] is the state machine of one connection: a [`Publisher`] or a [`Player`]. The loop of `io::load` drives
//!    many peers. In a room each [`Participant`] has both, and speaks in its [`Turns`].
//! 4. Observations go into the [`Tally`] of the thread; the missing units of each peer stay in its [`Score`].
//! 5. A [`Report`] has all results, as text and as JSON.
//!
//! [`FloorReport`] measures the least work that sending takes on this machine, for comparison.
//!
//! Sockets and clocks are in `io::load`; this module has neither.

#![allow(clippy::cast_precision_loss, reason = "figures for people: 53 bits are enough")]

mod clip;
mod floor;
mod histogram;
mod options;
mod player;
mod publisher;
mod report;
mod room;
mod stamp;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod viewing;

use std::net::SocketAddr;
use std::time::Instant;

use wire::{Datagrams, SendQueue};

pub use crate::protocol::load::Sockets;
use crate::protocol::{OpenPath, PathId, To};
pub use clip::{Clip, ClipError, SAMPLE, Source, Unit};
pub use floor::{FRAMES, Floor, FloorOptions, FloorReport, Reader};
pub use histogram::Histogram;
pub use options::{ClipOptions, Options, Role, RoomOptions, ServerOptions, Task};
pub use player::{Player, PlayerOptions};
pub use publisher::{Publisher, PublisherOptions};
pub use report::{Connections, Report, ServerFigures};
pub use room::{Participant, Turns};
pub use stamp::{AMF_NAME, Stamp, UUID};
pub use tally::{Score, Sequence, Tally, TurnTally};
pub use target::{Target, TargetError};

/// The time of an input, on a monotonic clock and on the clock shared with other machines.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time, for deadlines.
    pub mono: Instant,
    /// Unix time in nanoseconds, for stamps.
    pub unix_nanos: u64,
}

impl Now {
    /// Returns both times of a later instant, computed from monotonic time.
    #[must_use]
    pub fn later(self, mono: Instant) -> Self {
        let since = u64::try_from(mono.saturating_duration_since(self.mono).as_nanos()).unwrap_or(u64::MAX);
        Self { mono, unix_nanos: self.unix_nanos.saturating_add(since) }
    }

    /// Returns both times of an earlier instant.
    fn at(self, mono: Instant) -> Self {
        let ago = self.mono.saturating_duration_since(mono).as_nanos();
        let ago = u64::try_from(ago).unwrap_or(u64::MAX);
        Self { mono, unix_nanos: self.unix_nanos.saturating_sub(ago) }
    }
}

/// An event of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// The server has accepted the peer.
    Ready,
    /// Request for a new byte stream to the same server, replacing the previous one.
    Reconnect,
    /// Request for a separate UDP socket; answered with [`PeerDatagrams::handle_local`].
    OpenPath(OpenPath),
    /// Request to close a UDP socket that [`Self::OpenPath`] has opened.
    ClosePath(PathId),
    /// End of the peer, once, with the reason; output from `poll_transmit` is still to be sent.
    Closed(String),
}

/// A connection of the load, driven by `io::load`: a life cycle plus optional capabilities, like
/// `protocol::Session`. This is a trait because benchmarks add peers of their own.
pub trait Peer: std::fmt::Debug + Send {
    /// Handles the passing of time; may be called before the deadline.
    fn handle_timeout(&mut self, now: Now, tally: &mut Tally);
    /// Handles the end of the transport: of the byte stream, if the peer has one. `why` is the error, if any.
    fn handle_hangup(&mut self, now: Now, why: Option<&str>);
    /// Closes the connection properly.
    fn close(&mut self, now: Now);
    /// Returns the next event.
    fn poll_event(&mut self) -> Option<PeerEvent>;
    /// Returns the time at which `handle_timeout` is due.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Returns the role of the peer, which selects its tally and its byte count.
    fn role(&self) -> Role;
    /// Returns the counts of received or missed units.
    fn score(&self) -> Score;

    /// Returns the byte stream, if the peer uses one.
    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        None
    }
    /// Returns the datagram capability, if the peer has it.
    fn datagrams(&mut self) -> Option<&mut dyn PeerDatagrams> {
        None
    }
    /// Returns the media capability, if the peer publishes.
    fn media(&mut self) -> Option<&mut dyn PeerMedia> {
        None
    }
}

/// A peer that uses a byte stream.
pub trait PeerStream {
    /// Handles bytes from the server, split anywhere.
    fn handle_bytes(&mut self, now: Now, bytes: &[u8], tally: &mut Tally);
    /// True if the socket is to be read.
    fn wants_bytes(&self) -> bool;
    /// Moves the output to `out`.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A peer that uses datagrams.
pub trait PeerDatagrams {
    /// Takes the local address of the requested UDP socket, which is open but not connected to the server; `None` if it
    /// could not be opened.
    fn handle_local(&mut self, now: Now, path: PathId, local: Option<SocketAddr>, tally: &mut Tally);
    /// Handles a datagram from the server, which may be decrypted in place.
    fn handle_datagram(
        &mut self,
        now: Now,
        path: PathId,
        from: SocketAddr,
        datagram: &mut [u8],
        tally: &mut Tally,
    );
    /// Adds the datagrams to send, and returns their destination.
    fn poll_datagrams(&mut self, now: Now, out: &mut Datagrams) -> To;
}

/// A peer that publishes.
pub trait PeerMedia {
    /// Stops after the next video frame, so that no audio is left waiting at the server for another frame.
    fn finish(&mut self);
}
