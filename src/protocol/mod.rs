//! The registry of protocols, and the worker's view of each: a [`Session`] whose events and replies name no protocol.
//!
//! A new protocol, sink or derived track needs a crate with its state machine, one folder here and one entry in
//! `registry`. A session is made of state machines and is one itself: its input is passed together with the time, and
//! its events and output are polled.

mod audio;
mod carrier;
mod conversation;
mod cue_rate;
mod decode_order;
pub mod derived;
mod first_bytes;
mod flv_mapping;
mod format;
mod hls;
pub mod http;
mod http_live;
mod ice_servers;
pub mod load;
mod mp4_mapping;
pub mod outbound;
mod own_files;
mod parameter_sets;
mod player;
mod preview;
mod proxied;
mod publisher;
mod pull;
mod push;
mod recording;
mod registry;
mod relay;
mod room_view;
mod row;
mod rtmp;
mod rtp_mapping;
mod rtsp;
#[cfg(test)]
mod samples;
mod session;
pub mod sinks;
mod srt;
mod steering;
mod tailored;
mod thinning;
mod ts;
mod turn;
mod udp;
mod usable;
mod webrtc;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crypto::Seed;

use crate::config::AppSettings;
use crate::mail::Message;
#[cfg(test)]
use crate::stats::Figures;
use crate::types::{ConnId, Now, SessionRef, StreamKey, WorkerId};
pub use audio::lack as audio_lack;
pub use conversation::{
    BLOB_WAIT, Event, FamilyEvent, FamilyNews, OpenPath, OrderEvent, PassAsk, PathEvent, PathId, PlayAsk,
    PortEvent, PortNews, PublicationEvent, PublicationNews, PublishAsk, RefusedRequest, Reply, RequestEvent,
    RequestNews, SocketEvent, SubscriptionEvent, SubscriptionNews, SubtrackNews, Verb, WantedBlob, Watched,
};
pub use format::{Format, FormatKind, asked_selection};
pub use http::{VOD, speaks_http2};
pub use preview::PREVIEW_WORKER;
pub use proxied::Proxied;
pub(crate) use pull::FILE_RESERVE;
pub use pull::Patience;
pub use recording::Container;
pub use registry::{
    catalogues, cluster_name, listener_names, lookups, node_secret, publish_address, publish_port,
    publish_url, schema,
};
pub use row::{Addresses, Bind, Listener, Port, PortContext, Security};
pub use session::{
    About, ByteStream, Carrier, Context, DatagramPeer, Logs, Paced, Paths, Session, TailSink, Timers, To,
    UnitRuns, UnitSink,
};
pub use steering::{Binding, Elsewhere, PathChange, PathNews};

/// Time after which an outgoing connection that is not established is given up.
pub const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The applications of this server by name.
pub type Apps = BTreeMap<Arc<str>, Arc<AppSettings>>;

/// Returns the current settings of a stream's application; if the application is gone, those that the stream began
/// with.
#[must_use]
pub fn settings_of<'a>(apps: &'a Apps, key: &StreamKey, first: &'a Arc<AppSettings>) -> &'a Arc<AppSettings> {
    apps.get(&key.app).unwrap_or(first)
}

/// The sender of a datagram and the local address that it was sent to, from which the answer must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Address of the peer, as the socket reports it.
    pub peer: SocketAddr,
    /// Local address, if the system reports it.
    pub local: Option<IpAddr>,
    /// The session whose byte stream carries this peer's datagrams of the port ([`Carrier`]); `None` if the port's
    /// socket does.
    pub carrier: Option<ConnId>,
    /// The worker that received the datagram, if it is not the session's ([`Elsewhere`]).
    pub via: Option<WorkerId>,
}

impl Remote {
    /// Makes the remote of a socket's peer.
    #[must_use]
    pub const fn of(peer: SocketAddr) -> Self {
        Self { peer, local: None, carrier: None, via: None }
    }
}

/// The result of routing a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// An existing session.
    Session(ConnId),
    /// A new peer, whose address is verified: [`Demux::begin`] makes the session.
    New,
    /// No session yet; the reply was written.
    Reply,
    /// The session may be at another worker.
    Elsewhere(Elsewhere),
    /// No session; the datagram is dropped.
    Drop,
}

/// The demultiplexer of a UDP port shared by many peers, on one worker.
pub trait Demux: Debug + Send {
    /// Routes a datagram. State for a session is kept only after the peer's address is verified.
    fn route(&mut self, ctx: &Context<'_>, from: Remote, datagram: &[u8], reply: &mut Vec<u8>) -> Route;
    /// Creates the session for the peer just routed as [`Route::New`]. `peer` is its canonical address: an IPv4 peer of
    /// a dual-stack socket has its IPv4 address.
    fn begin(
        &mut self,
        ctx: &Context<'_>,
        conn: ConnId,
        peer: SocketAddr,
        seed: Seed,
    ) -> Option<Box<dyn Session>>;
    /// Forgets a session that has ended.
    fn forget(&mut self, conn: ConnId);
    /// Number of known sessions.
    fn sessions(&self) -> usize;

    /// Returns the maker of sessions that other sessions request, if the port has one.
    fn on_request(&mut self) -> Option<&mut dyn SessionsOnRequest> {
        None
    }
}

/// A shared port whose sessions are made because another session requests them, not because a datagram has arrived.
pub trait SessionsOnRequest {
    /// Notes the address that the port is bound to.
    fn bound(&mut self, binding: Binding<'_>);
    /// Creates the session that another one requests ([`FamilyEvent::SpawnAt`]). `None` if there is no room, or the
    /// request is not of this protocol.
    fn create(
        &mut self,
        ctx: &Context<'_>,
        conn: ConnId,
        wanted: Wanted,
        seed: Seed,
    ) -> Option<Box<dyn Session>>;
    /// Registers a claim of a session ([`PortEvent::Claim`]).
    fn claim(&mut self, now: Now, conn: ConnId, claim: &Claim);
    /// Returns the answer to a message for a session that has ended; `None` if no such session is remembered.
    fn answer_for_past(&mut self, now: Now, conn: ConnId, message: &Message) -> Option<Message>;
    /// Handles news from another worker about a path.
    fn hear(&mut self, news: &PathNews);
    /// Returns the next change that another worker must learn of, after [`SessionsOnRequest::claim`] and
    /// [`Demux::forget`].
    fn poll_change(&mut self) -> Option<PathChange>;
}

/// A session requested by another one at a shared port.
#[derive(Debug)]
pub struct Wanted {
    /// The requesting session, with its handle for the child.
    pub parent: SessionRef,
    /// The peer that the new session will serve.
    pub peer: SocketAddr,
    /// The purpose, known only to the port's protocol.
    pub what: Box<dyn Any + Send>,
}

/// A claim of a session at its shared port, or the end of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Claims datagrams addressed to this name.
    Name(String),
    /// Claims datagrams from this remote.
    Open(Remote),
    /// Gives up datagrams from this remote.
    Close(Remote),
    /// Announces the end of the session. Messages with this number are answered on its behalf for a while
    /// ([`SessionsOnRequest::answer_for_past`]).
    Past(u64),
}

/// Figures of a connection of each protocol that has them; for tests of other modules.
#[cfg(test)]
pub(crate) fn figures_for_tests() -> [Arc<dyn Figures>; 3] {
    [srt::figures_for_tests(), turn::figures_for_tests(), webrtc::figures_for_tests()]
}
