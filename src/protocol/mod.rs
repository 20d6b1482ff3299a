//! The registry of protocols, and what the worker sees of each: a [`Session`] that speaks in the hub's words.
//!
//! Adding a protocol is its machine crate, one folder here and one row in `registry`. A session composes
//! machines and is one itself: input with the time, events and bytes polled out.

pub mod http;
mod http_live;
pub mod outbound;
mod planned;
mod pull;
mod registry;
mod rtmp;
mod srt;
mod tags;
mod ts;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use media::{AccessUnit, Track, TrackId, TrackKind, Tracks};
use wire::{Datagrams, SendQueue};

use crate::auth::access::Params;
use crate::config::AppSettings;
use crate::hub::{Blobs, Chosen, FormatKey, Package, Parts, Pick, Selection};
use crate::mail::{
    Departure, FileAsk, FileReply, Grant, NoSubscription, PullState, PushState, Refusal, SessionSettings,
    StreamEnd,
};
use crate::types::{ConnId, Ingest, Now, StreamId, StreamKey};
pub use registry::{Addresses, Listener, Port, Security, listener_names, publish_url, schema};

/// An outgoing connection that is not there by then is given up.
pub const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The applications of this server, by name.
pub type Apps = BTreeMap<Arc<str>, Arc<AppSettings>>;

/// What a session may look at while it handles input.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time of this turn.
    pub now: Now,
    /// The applications.
    pub apps: &'a Apps,
    /// What is set for the whole server.
    pub server: &'a SessionSettings,
    /// What requests are answered with from memory.
    pub blobs: &'a Blobs,
    /// No new publishers and viewers.
    pub draining: bool,
}

/// A request to publish, as the protocol could read it.
#[derive(Debug)]
pub struct PublishAsk {
    /// Under which key.
    pub key: StreamKey,
    /// Over which protocol.
    pub ingest: Ingest,
    /// What the encoder calls itself.
    pub user_agent: String,
    /// Parameters behind the key.
    pub params: Params,
    /// Streams it was forwarded through.
    pub via: Vec<String>,
}

/// A request to play, as the protocol could read it.
#[derive(Debug, Clone)]
pub struct PlayAsk {
    /// What.
    pub key: StreamKey,
    /// In which form.
    pub format: Format,
    /// Parameters behind the key.
    pub params: Params,
    /// The page that asks, when a browser says so.
    pub origin: String,
}

/// A kind of format: what its protocol says of it once.
#[derive(Debug)]
pub struct FormatKind {
    /// Its name, in metrics and hooks.
    pub name: &'static str,
    /// Whether an application lets viewers play it.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// Makes the package of a variant. `None`: the sessions take units as they are.
    pub package: fn(u64) -> Option<Box<dyn Package>>,
    /// A viewer that closes its side of the connection gives up what it asked for. (An HTTP client may do so and read on.)
    pub is_given_up_by_close: bool,
}

/// A format that subscribers of one protocol share; see [`crate::hub::Package`].
#[derive(Debug, Clone, Copy)]
pub struct Format {
    kind: &'static FormatKind,
    variant: u64,
    selection: Selection,
}

impl Format {
    /// The default tracks in a variant of a kind.
    #[must_use]
    pub const fn new(kind: &'static FormatKind, variant: u64) -> Self {
        Self { kind, variant, selection: Selection::DEFAULT }
    }

    /// The default tracks in a variant of the kind with this name.
    #[must_use]
    pub fn find(name: &str, variant: u64) -> Option<Self> {
        registry::format(name).map(|kind| Self::new(kind, variant))
    }

    /// The same with other tracks.
    #[must_use]
    pub const fn select(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// What its protocol says of it.
    #[must_use]
    pub const fn kind(self) -> &'static FormatKind {
        self.kind
    }

    /// What the hub finds it by.
    #[must_use]
    pub const fn key(self) -> FormatKey {
        FormatKey { name: self.kind.name, variant: self.variant, selection: self.selection }
    }

    /// Makes the package for the first subscriber.
    #[must_use]
    pub fn package(self) -> Option<Box<dyn Package>> {
        (self.kind.package)(self.variant)
    }

    /// The tracks of a stream that its subscribers are sent.
    #[must_use]
    pub fn choose(self, tracks: &Tracks) -> Chosen {
        let package = self.package();
        let carries = |track: &Track| package.as_ref().is_none_or(|package| package.carries(track));
        let mut chosen = Chosen::default();
        chosen.update(self.selection, &Arc::new(tracks.clone()), &carries);
        chosen
    }
}

/// The tracks that a viewer asks for by parameters of its URL: `tracks=all`, or `video=` and `audio=` with the number of
/// a track, `all` or `none`. `None`: it asks for none in particular.
#[must_use]
pub fn asked_selection(params: &[(String, String)]) -> Option<Selection> {
    let mut selection = None;
    for (name, value) in params {
        let pick = |kind| match value.as_str() {
            "all" => Some(Pick::All),
            "none" => Some(Pick::None),
            number => Some(Pick::Only(TrackId::nth(kind, number.parse().ok()?)?)),
        };
        let so_far = selection.unwrap_or(Selection::DEFAULT);
        let asked = match name.as_str() {
            "tracks" if value == "all" => Some(Selection::ALL),
            "video" => pick(TrackKind::Video).map(|video| Selection { video, ..so_far }),
            "audio" => pick(TrackKind::Audio).map(|audio| Selection { audio, ..so_far }),
            _ => None,
        };
        selection = asked.or(selection);
    }
    selection
}

/// Somebody who watches by one request after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// What.
    pub stream: StreamId,
    /// How, as viewers are counted.
    pub protocol: &'static str,
    /// What tells the viewer from others; `None`: its address.
    pub viewer: Option<String>,
}

/// What a session tells the worker.
#[derive(Debug)]
pub enum Event {
    /// Asks to publish; answered by [`Session::publish_verdict`].
    Publish(PublishAsk),
    /// Publishes no more, or gave up asking.
    Unpublished(Departure),
    /// A unit of the stream it publishes.
    Unit {
        /// The unit.
        unit: AccessUnit,
        /// The tracks that decode it.
        tracks: Arc<Tracks>,
    },
    /// So many units could not be used.
    UnitsDropped(u64),
    /// Asks to play; answered by [`Session::subscribe_verdict`].
    Subscribe(PlayAsk),
    /// A push is ready for the stream it was ordered to send.
    SubscribePush {
        /// In which form.
        format: Format,
    },
    /// Plays no more.
    Unsubscribe,
    /// Pauses or goes on.
    Pause(bool),
    /// A request of the API; answered by [`Session::rest_reply`].
    Rest {
        /// What.
        request: Box<crate::http::Request>,
        /// It came over TLS.
        secure: bool,
    },
    /// A request has shown that somebody watches a stream.
    Watched(Watched),
    /// A request about a file; answered by [`Session::file_reply`].
    File(FileAsk),
    /// News of the push that this session is.
    Push(PushState),
    /// News of the pull that this session is.
    Pull(PullState),
    /// The last one. What is queued is sent, then the connection closes.
    Closed(String),
}

/// One peer's conversation, as the worker drives it.
///
/// A trait and not inherent methods as in the machines: the verbs that make no sense for a protocol (a verdict on
/// a subscription for an API connection) have one place where they do nothing.
pub trait Session: Debug + Send {
    /// Bytes of the peer, any split of them.
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]);
    /// An outgoing connection is there.
    fn handle_connected(&mut self, _ctx: &Context<'_>) {}
    /// The peer closed its side (`None`) or the connection broke.
    fn handle_hangup(&mut self, ctx: &Context<'_>, error: Option<&str>);
    /// A deadline may have passed.
    fn handle_timeout(&mut self, ctx: &Context<'_>);
    /// The transport took so many bytes.
    fn handle_sent(&mut self, _ctx: &Context<'_>, _bytes: usize) {}
    /// Whether the transport should be read.
    fn wants_bytes(&self) -> bool;
    /// The next thing the worker must know.
    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event>;
    /// Moves what is to be sent.
    fn poll_transmit(&mut self, out: &mut SendQueue);
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Answer to [`Event::Publish`].
    fn publish_verdict(&mut self, _ctx: &Context<'_>, _verdict: Result<Grant, Refusal>) {}
    /// Answer to [`Event::Subscribe`].
    fn subscribe_verdict(&mut self, _ctx: &Context<'_>, _verdict: Result<&Tracks, NoSubscription>) {}
    /// The stream it plays had no tracks when it was subscribed; now it has.
    fn tracks_known(&mut self, _ctx: &Context<'_>, _tracks: &Tracks) {}
    /// The stream it plays has ended.
    fn end_subscription(&mut self, _ctx: &Context<'_>, _end: StreamEnd) {}
    /// The stream it publishes was ended by the server.
    fn end_publish(&mut self, _ctx: &Context<'_>, _end: StreamEnd) {}
    /// Answer to [`Event::Rest`].
    fn rest_reply(&mut self, _ctx: &Context<'_>, _response: crate::http::Response) {}
    /// Answer to [`Event::File`].
    fn file_reply(&mut self, _ctx: &Context<'_>, _reply: FileReply) {}
    /// Say goodbye and close: `reason` is for the log.
    fn close(&mut self, ctx: &Context<'_>, reason: &str);

    /// A datagram of a peer, on a session that speaks in datagrams.
    fn handle_datagram(&mut self, _ctx: &Context<'_>, _from: SocketAddr, _datagram: &[u8]) {}
    /// Whether it takes units: a viewer that speaks in datagrams has to remember what it has sent until it has arrived.
    fn takes_units(&self) -> bool {
        false
    }
    /// A unit of the stream it plays, or what a viewer needs before it.
    fn send_unit(&mut self, _ctx: &Context<'_>, _parts: &Parts) {}
    /// No further unit follows for now.
    fn end_units(&mut self, _ctx: &Context<'_>) {}
    /// Adds the datagrams that are to be sent now, all for one peer: the one that is given back, or who the session
    /// is with.
    fn poll_datagrams(&mut self, _ctx: &Context<'_>, _out: &mut Datagrams) -> Option<SocketAddr> {
        None
    }

    /// Figures of an SRT connection.
    fn srt_stats(&self) -> Option<::srt::Stats> {
        None
    }

    /// Whether the peer has shown that it may be here; from then on it no longer counts against the limits for
    /// strangers.
    fn is_authenticated(&self) -> bool;
    /// The protocol, for logs and counters.
    fn protocol(&self) -> &'static str;
    /// Whether it is there for media; the end of such a session is worth a line of the log.
    fn is_media(&self) -> bool {
        true
    }
}

/// Who a datagram is from, and which of our addresses it was sent to: the answer must come from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The peer, as the socket names it.
    pub peer: SocketAddr,
    /// Ours, when the system tells.
    pub local: Option<IpAddr>,
}

/// Whose a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// This session's.
    Session(ConnId),
    /// A peer's that has proved its address: [`Demux::begin`] makes the session.
    New,
    /// Nobody's yet; the reply is made.
    Reply,
    /// Nobody's.
    Drop,
}

/// A UDP port that many peers share, on one worker.
pub trait Demux: Debug + Send {
    /// Tells whose the datagram is. Room is made for a session only after the peer has proved its address.
    fn route(&mut self, ctx: &Context<'_>, from: Remote, datagram: &[u8], reply: &mut Vec<u8>) -> Route;
    /// Creates the session for the peer just routed as [`Route::New`]. `peer` is its canonical address: an IPv4 peer of a
    /// dual-stack socket has its IPv4 address.
    fn begin(
        &mut self,
        ctx: &Context<'_>,
        conn: ConnId,
        peer: SocketAddr,
        seed: Seed,
    ) -> Option<Box<dyn Session>>;
    /// A session is over.
    fn forget(&mut self, conn: ConnId);
}

/// What the load generator shares with the sessions.
pub(crate) mod bench {
    pub(crate) use super::rtmp::RtmpUrl;
    pub(crate) use super::srt::{OutboundConnection, OutboundEvent, Packer, SrtAddress, SrtSettings, SrtUrl};
    pub(crate) use super::tags::{Ingest as TagIngest, Outcome};
    pub(crate) use super::ts::{Ingest as TsIngest, TsPackage};
}
