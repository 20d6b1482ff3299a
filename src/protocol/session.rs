//! The worker's view of a protocol: a [`Session`] whose events and replies name no protocol.
//!
//! A session has a life cycle ([`Session`]: time, events, replies, the end) and capabilities beside it: network paths
//! ([`Paths`]), a byte stream ([`ByteStream`]), datagrams ([`DatagramPeer`]), units taken whole ([`UnitSink`]), in any
//! combination. A sink such as a recorder has only the last; a viewer of RTSP may have all of them.
//!
//! Whatever a session has several of, publications, subscriptions, children and jobs, it names itself by a [`Handle`],
//! and the answers come back under that name as a [`Reply`].

use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use wire::{Datagrams, SendQueue};

use super::{Apps, Event, PathEvent, PathId, Remote, Reply};
use crate::hub::{Blobs, Delivery, Parts};
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
    /// Blobs that requests are answered with.
    pub blobs: &'a Blobs,
    /// No new publishers and viewers.
    pub draining: bool,
}

/// The description of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The protocol, for logs and counters.
    pub protocol: &'static str,
    /// Whether it is there for media; the end of such a session is worth a line of the log.
    pub is_media: bool,
    /// Whether the peer has shown that it may be here; from then on it no longer counts against the limits for
    /// unauthenticated peers.
    pub is_authenticated: bool,
}

/// The conversation with one peer, or a sink of the server's own, as the worker drives it.
pub trait Session: Debug + Send {
    /// An answer, or news.
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>);
    /// Closes in the way of the protocol: `reason` is for the log.
    fn close(&mut self, ctx: &Context<'_>, reason: &str);
    /// The next thing the worker must know.
    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event>;
    /// Protocol and standing, for logs and counters.
    fn about(&self) -> About;

    /// Its deadlines, if it has any.
    fn timers(&mut self) -> Option<&mut dyn Timers> {
        None
    }
    /// Its network paths, if it hears of them.
    fn paths(&mut self) -> Option<&mut dyn Paths> {
        None
    }
    /// The byte stream, if it has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        None
    }
    /// The datagrams, if it has any.
    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        None
    }
    /// The way for a shared port's datagrams, if its byte stream carries them.
    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        None
    }
    /// The sink for whole units, if it takes them; else the worker writes what its format packages to the byte
    /// stream.
    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        None
    }
    /// Figures of its connection; its protocol knows what they are.
    fn figures(&self) -> Option<Arc<dyn Figures>> {
        None
    }
}

/// A session with deadlines.
pub trait Timers {
    /// A deadline may have passed.
    fn handle_timeout(&mut self, ctx: &Context<'_>);
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// A session with network paths: a connection, or sockets of its own.
pub trait Paths {
    /// Something happened to a network path.
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>);
}

/// A session over a byte stream.
pub trait ByteStream {
    /// Bytes of the peer, any split of them.
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]);
    /// The transport took this many bytes.
    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize);
    /// Whether the transport should be read.
    fn wants_bytes(&self) -> bool;
    /// Moves what is to be sent.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A session whose byte stream carries datagrams of a shared port to and from one peer of it.
pub trait Carrier {
    /// Queues them. What its queue has no room for is lost, as on a network: the number of datagrams.
    fn carry(&mut self, datagrams: &Datagrams) -> usize;
}

/// The destination of gathered datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct To {
    /// The path.
    pub path: PathId,
    /// The peer. `None`: the one that the path has.
    pub remote: Option<Remote>,
    /// There is nothing behind what was gathered, so the session is not asked again.
    pub last: bool,
}

impl To {
    /// The peer of the only path.
    pub const PEER: Self = Self { path: PathId(0), remote: None, last: false };

    /// A peer of the only socket; `None`: the one that it is connected to.
    #[must_use]
    pub fn of_socket(peer: Option<SocketAddr>) -> Self {
        Self { remote: peer.map(Remote::of), ..Self::PEER }
    }
}

/// The data that the sessions of a format share besides bytes ([`crate::hub::Package::shared`]), by the subscription.
pub type Shared<'f, 's> = &'f dyn Fn(Handle) -> Option<&'s dyn Any>;

/// A session that speaks in datagrams. Its paths may change while it lives: a shared port may route another address to it, and
/// it may open and close sockets of its own.
pub trait DatagramPeer {
    /// A datagram that came over one of its paths; it may be decrypted in place.
    fn handle_datagram(&mut self, ctx: &Context<'_>, path: PathId, from: Remote, datagram: &mut [u8]);
    /// Whether there may be datagrams to send now. If not, [`DatagramPeer::poll_datagrams`] is not called.
    fn has_datagrams(&self, _ctx: &Context<'_>) -> bool {
        true
    }
    /// Adds the datagrams that are to be sent now, all to one peer. `shared` is what the formats of its subscriptions share.
    fn poll_datagrams(&mut self, ctx: &Context<'_>, shared: Shared<'_, '_>, out: &mut Datagrams) -> To;
}

/// A session that takes units whole: one that must remember what it has sent until it has arrived, or a sink that is no
/// connection.
pub trait UnitSink {
    /// Whether there is room for a unit. While there is none the subscription's cursor stays, and lags.
    fn has_room(&self) -> bool;
    /// A unit of a stream that it is subscribed to.
    fn handle_unit(&mut self, ctx: &Context<'_>, subscription: Handle, unit: &Delivery<'_>);
    /// The taker of the end of a run of units, in sinks that send several together.
    fn runs(&mut self) -> Option<&mut dyn UnitRuns> {
        None
    }
    /// The pace of units that are not new, where they have one.
    fn paced(&mut self) -> Option<&mut dyn Paced> {
        None
    }
    /// The taker of bytes behind the last unit, in sinks that have one.
    fn tail(&mut self) -> Option<&mut dyn TailSink> {
        None
    }
}

/// A sink that sends several units together.
pub trait UnitRuns {
    /// Takes the end of a run: no further unit follows for now.
    fn end_units(&mut self, ctx: &Context<'_>);
}

/// A sink whose format holds bytes back until the next unit ([`crate::hub::Package::finish`]).
pub trait TailSink {
    /// Bytes behind the last unit of a stream that has ended.
    fn handle_tail(&mut self, ctx: &Context<'_>, tail: &Parts);
}

/// The pace at which a sink takes units that are not new.
pub trait Paced {
    /// The stream is over: nothing has to wait any more.
    fn end(&mut self);
}
