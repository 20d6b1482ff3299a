//! The load generator: clients that publish and play, and measure what comes back. `docs/bench.md` says what each
//! figure means.
//!
//! 1. [`Options`] come from the command line, a [`Target`] from the URL.
//! 2. A [`Clip`] is read once; a [`Source`] per publisher loops it, numbers and stamps each unit ([`Stamp`]).
//! 3. A [`Peer`] is one connection's machine: a [`Publisher`] or a [`Player`]. The loop of `io::load` drives many.
//! 4. What they see goes into the [`Tally`] of their thread, what each of them missed stays in its [`Score`].
//! 5. [`Report`] is all of it, as text and as JSON.
//!
//! [`FloorReport`] is what the machine itself has to do at the least, for comparison.
//!
//! No socket and no clock is here: `io::load` has them.

#![allow(clippy::cast_precision_loss, reason = "figures for people: 53 bits are enough")]

mod clip;
mod floor;
mod histogram;
mod options;
mod player;
mod publisher;
mod report;
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
pub use options::{Options, Role, ServerOptions, Task};
pub use player::{Player, PlayerOptions};
pub use publisher::{Publisher, PublisherOptions};
pub use report::{Connections, Report, ServerFigures};
pub use stamp::{AMF_NAME, Stamp, UUID};
pub use tally::{Score, Sequence, Tally};
pub use target::{Target, TargetError};

/// The time of an input: one clock to count with, and the one that other machines have too.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For deadlines.
    pub mono: Instant,
    /// Nanoseconds since 1970 in UTC, for stamps.
    pub unix_nanos: u64,
}

impl Now {
    /// The same of a later instant, by monotonic time alone.
    #[must_use]
    pub fn later(self, mono: Instant) -> Self {
        let since = u64::try_from(mono.saturating_duration_since(self.mono).as_nanos()).unwrap_or(u64::MAX);
        Self { mono, unix_nanos: self.unix_nanos.saturating_add(since) }
    }

    /// The same of an instant not long ago.
    fn at(self, mono: Instant) -> Self {
        let ago = self.mono.saturating_duration_since(mono).as_nanos();
        let ago = u64::try_from(ago).unwrap_or(u64::MAX);
        Self { mono, unix_nanos: self.unix_nanos.saturating_sub(ago) }
    }
}

/// An event of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerEvent {
    /// The server consented.
    Ready,
    /// Wants another byte stream to the same server in place of the one it has had.
    Reconnect,
    /// Wants a UDP socket of its own beside its byte stream; the answer is [`PeerDatagrams::handle_local`].
    OpenPath(OpenPath),
    /// Closes such a socket.
    ClosePath(PathId),
    /// The end, once, and why; what `poll_transmit` still gives is to be sent.
    Closed(String),
}

/// A connection of the load, as `io::load` drives it: a life cycle, and capabilities beside it, as `protocol::Session` has
/// them. A trait, because a benchmark brings peers of its own beside those of this room.
pub trait Peer: std::fmt::Debug + Send {
    /// The deadline has come, or any other moment.
    fn handle_timeout(&mut self, now: Now, tally: &mut Tally);
    /// The transport ended, its byte stream if it has both; `why` is its error, if it was one.
    fn handle_hangup(&mut self, now: Now, why: Option<&str>);
    /// Says goodbye.
    fn close(&mut self, now: Now);
    /// The next event.
    fn poll_event(&mut self) -> Option<PeerEvent>;
    /// The time at which `handle_timeout` is due.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Whether it publishes or plays: which tally counts for it, and which bytes.
    fn role(&self) -> Role;
    /// The units that it has got, or missed, so far.
    fn score(&self) -> Score;

    /// Its byte stream, if it has one.
    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        None
    }
    /// Its datagrams, if it has any.
    fn datagrams(&mut self) -> Option<&mut dyn PeerDatagrams> {
        None
    }
    /// The media that it sends, if it does.
    fn media(&mut self) -> Option<&mut dyn PeerMedia> {
        None
    }
}

/// A peer that speaks over a byte stream.
pub trait PeerStream {
    /// Bytes of the server, split anywhere.
    fn handle_bytes(&mut self, now: Now, bytes: &[u8], tally: &mut Tally);
    /// Whether its socket is to be read.
    fn wants_bytes(&self) -> bool;
    /// Moves what is to be sent.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A peer that speaks in datagrams.
pub trait PeerDatagrams {
    /// Takes the address at which a socket receives, once it is open and not connected to the server. `None`: a socket
    /// that the peer wanted could not be opened.
    fn handle_local(&mut self, now: Now, path: PathId, local: Option<SocketAddr>, tally: &mut Tally);
    /// A datagram of the server; it may be opened in place.
    fn handle_datagram(
        &mut self,
        now: Now,
        path: PathId,
        from: SocketAddr,
        datagram: &mut [u8],
        tally: &mut Tally,
    );
    /// Adds the datagrams that are to be sent, and says where to.
    fn poll_datagrams(&mut self, now: Now, out: &mut Datagrams) -> To;
}

/// A peer that publishes.
pub trait PeerMedia {
    /// Sends nothing behind the next video frame: no audio is left waiting for another one.
    fn finish(&mut self);
}
