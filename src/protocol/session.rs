//! The worker's view of a protocol: a [`Session`] whose events and replies name no protocol.
//!
//! A session has a life cycle ([`Session`]: time, events, replies, the end) and, in any combination, further
//! capabilities: network paths ([`Paths`]), a byte stream ([`ByteStream`]), datagrams ([`DatagramPeer`]), and whole
//! units ([`UnitSink`]). A sink such as a recorder has only the last; a viewer of RTSP may have all of them.
//!
//! A session chooses a [`Handle`] for each of its publications, subscriptions, children and jobs, and answers carry
//! that handle in a [`Reply`].

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wire::{Datagrams, SendQueue};

use super::{Apps, Event, PathEvent, PathId, Remote, Reply};
use crate::hub::{Blobs, Delivery, PacketLogs, Parts};
use crate::mail::SessionSettings;
use crate::stats::Figures;
use crate::types::{Handle, Now};

/// The context in which a session handles input.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time of this turn.
    pub now: Now,
    /// The applications.
    pub apps: &'a Apps,
    /// The settings of the whole server.
    pub server: &'a SessionSettings,
    /// The blobs that requests are answered with.
    pub blobs: &'a Blobs,
    /// True if no new publishers and viewers are admitted.
    pub draining: bool,
}

/// The description of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The protocol, for logs and counters.
    pub protocol: &'static str,
    /// True if the session carries media; the end of such a session is logged.
    pub is_media: bool,
    /// True if the peer has proved its permission; it then no longer counts against the limits for unauthenticated
    /// peers.
    pub is_authenticated: bool,
}

/// The conversation with one peer, or a sink of the server, as the worker drives it.
pub trait Session: Debug + Send {
    /// Handles an answer or news of the worker.
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>);
    /// Closes the session as its protocol requires; `reason` is for the log.
    fn close(&mut self, ctx: &Context<'_>, reason: &str);
    /// Returns the next event for the worker.
    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event>;
    /// Returns protocol and state, for logs and counters.
    fn about(&self) -> About;

    /// Returns the timer side, if the session has deadlines.
    fn timers(&mut self) -> Option<&mut dyn Timers> {
        None
    }
    /// Returns the path side, if the session handles events of network paths.
    fn paths(&mut self) -> Option<&mut dyn Paths> {
        None
    }
    /// Returns the byte stream, if the session has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        None
    }
    /// Returns the datagram side, if the session has one.
    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        None
    }
    /// Returns the carrier, if the session's byte stream carries a shared port's datagrams.
    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        None
    }
    /// Returns the sink for whole units, if the session takes them. If not, the worker writes units to the byte stream,
    /// as bytes in the subscription's format.
    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        None
    }
    /// Returns the figures of the connection, which only its protocol understands.
    fn figures(&self) -> Option<Arc<dyn Figures>> {
        None
    }
}

/// A session with deadlines.
pub trait Timers {
    /// Handles deadlines that have passed.
    fn handle_timeout(&mut self, ctx: &Context<'_>);
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// A session with network paths: a connection, or sockets of its own.
pub trait Paths {
    /// Handles an event on a network path.
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>);
}

/// A session over a byte stream.
pub trait ByteStream {
    /// Takes bytes of the peer, split anywhere.
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]);
    /// Notes that the transport accepted this many bytes.
    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize);
    /// True if the transport should be read.
    fn wants_bytes(&self) -> bool;
    /// Moves output to `out`.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A session whose byte stream carries datagrams of a shared port to and from one of its peers.
pub trait Carrier {
    /// Queues datagrams. Datagrams for which the queue has no room are lost, as on a network. Returns the number of
    /// lost ones.
    fn carry(&mut self, datagrams: &Datagrams) -> usize;
    /// Ends the session here. Returns all received bytes, beginning with the message of `datagram`, for the worker
    /// that takes over the connection; `None` if a session has claimed it.
    fn hand_over(&mut self, datagram: &[u8]) -> Option<Bytes>;
}

/// The destination of gathered datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct To {
    /// The path.
    pub path: PathId,
    /// The peer; `None` for the peer to which the path is connected.
    pub remote: Option<Remote>,
    /// True if nothing follows the gathered datagrams, so that the session need not be asked again.
    pub last: bool,
}

impl To {
    /// The peer of the session's only path.
    pub const PEER: Self = Self { path: PathId(0), remote: None, last: false };

    /// Returns the destination `peer` over the session's only socket; `None` means the peer to which the socket is
    /// connected.
    #[must_use]
    pub fn of_socket(peer: Option<SocketAddr>) -> Self {
        Self { remote: peer.map(Remote::of), ..Self::PEER }
    }
}

/// Returns the packet logs of a subscription, if its format makes packets ([`crate::hub::Package::logs`]).
pub type Logs<'f, 's> = &'f dyn Fn(Handle) -> Option<&'s dyn PacketLogs>;

/// A session over datagrams. Its paths may change: a shared port may route another address to it, and it may open and
/// close sockets of its own.
pub trait DatagramPeer {
    /// Takes a datagram that arrived over one of the paths; it may be decrypted in place.
    fn handle_datagram(&mut self, ctx: &Context<'_>, path: PathId, from: Remote, datagram: &mut [u8]);
    /// True if the datagram just handled has left neither events nor datagrams, and no earlier deadline. The session is
    /// then not drained.
    fn is_quiet(&self, _ctx: &Context<'_>) -> bool {
        false
    }
    /// True if there may be datagrams to send now. If false, [`DatagramPeer::poll_datagrams`] is not called.
    fn has_datagrams(&self, _ctx: &Context<'_>) -> bool {
        true
    }
    /// Adds the datagrams to send now, all to one peer. `logs` returns the packets of a subscription.
    fn poll_datagrams(&mut self, ctx: &Context<'_>, logs: Logs<'_, '_>, out: &mut Datagrams) -> To;
}

/// A session that takes whole units: either it must keep sent units until they have arrived, or it is a sink without
/// a connection.
pub trait UnitSink {
    /// True if there is room for a unit. If false, the subscription does not advance, and falls behind the stream.
    fn has_room(&self) -> bool;
    /// Takes a unit of a stream to which the session is subscribed.
    fn handle_unit(&mut self, ctx: &Context<'_>, subscription: Handle, unit: &Delivery<'_>);
    /// Returns the side that sends several units together, if the sink does so.
    fn runs(&mut self) -> Option<&mut dyn UnitRuns> {
        None
    }
    /// Returns the pacing of old units, if the sink has one.
    fn paced(&mut self) -> Option<&mut dyn Paced> {
        None
    }
    /// Returns the side that takes bytes after the last unit, if the sink does so.
    fn tail(&mut self) -> Option<&mut dyn TailSink> {
        None
    }
}

/// A sink that sends several units together.
pub trait UnitRuns {
    /// Called after the last of the units that the worker passed one after another: no further unit follows for now.
    fn end_units(&mut self, ctx: &Context<'_>);
}

/// A sink whose format holds bytes back until the next unit ([`crate::hub::Package::finish`]).
pub trait TailSink {
    /// Takes the bytes after the last unit of a stream that has ended.
    fn handle_tail(&mut self, ctx: &Context<'_>, tail: &Parts);
}

/// The pacing of a sink for units that are old when sent.
pub trait Paced {
    /// Ends the pacing, because the stream has ended.
    fn end(&mut self);
}
