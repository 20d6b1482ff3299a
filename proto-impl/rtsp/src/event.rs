//! Events that a server or a client reports to its owner, and the types of the owner's answers.

use bytes::Bytes;
use sdp::Description;

use crate::auth::Authorization;
use crate::{Error, Mode, Status, Target, Transport};

/// An event of a [`crate::Server`]. `Describe`, `Announce`, `Setup`, `Play` and `Record` are requests: the server
/// processes no further input until the owner accepts, rejects or challenges the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The peer requests the description of a stream to play.
    Describe(Box<StreamRequest>),
    /// The peer requests to publish the stream that it describes.
    Announce(Box<AnnounceRequest>),
    /// The peer requests to set up a track.
    Setup(SetupRequest),
    /// The peer requests media. The owner may send media once it has accepted the request.
    Play,
    /// The peer requests to send media.
    Record,
    /// The peer, a player or a publisher, pauses. The server has already answered the request.
    Pause,
    /// The peer ended the session. The server has already answered the request. The connection may begin another
    /// session.
    Teardown,
    /// An interleaved packet was received.
    Interleaved(Frame),
    /// The connection has ended; always the last event. Send the rest of `poll_transmit`, then close the connection.
    Closed(CloseReason),
}

/// A request for a stream, and its sender.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRequest {
    /// Requested stream.
    pub target: Target,
    /// Name of the client's program; empty if not given.
    pub user_agent: String,
    /// Credentials of the request. They are not verified yet: call [`crate::Server::verify`].
    pub authorization: Option<Authorization>,
}

/// An `ANNOUNCE` request (RFC 2326 §10.3).
#[derive(Debug, Clone, PartialEq)]
pub struct AnnounceRequest {
    /// Announced stream, and the sender of the request.
    pub stream: StreamRequest,
    /// Description of the stream. Its sections are the tracks, in order.
    pub description: Description,
    /// Servers that the stream has passed, from the first to the last, according to the `Via` fields of the request
    /// (RFC 2326 §12.43); at most [`crate::limits::VIA_MAX`].
    pub via: Vec<String>,
}

/// A `SETUP` request (RFC 2326 §10.4).
#[derive(Debug, Clone, PartialEq)]
pub struct SetupRequest {
    /// Track: index of its section in the description.
    pub track: usize,
    /// Direction of media.
    pub mode: Mode,
    /// Acceptable transports, at least one, the peer's favourite first. All are unicast; those over UDP have the
    /// client's ports, interleaved ones have free channels. Accept one of them, with server ports and source filled in.
    pub transports: Vec<Transport>,
}

/// A packet of a track from an interleaved frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Index of the track's section in the description.
    pub track: usize,
    /// True if the packet is RTCP, false if it is RTP.
    pub is_rtcp: bool,
    /// Channel of the frame.
    pub channel: u8,
    /// Bytes of the packet.
    pub payload: Bytes,
}

/// Position at which a track's packets begin (RFC 2326 §12.33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RtpInfo {
    /// Index of the track's section in the description.
    pub track: usize,
    /// Sequence number of the first packet.
    pub sequence: Option<u16>,
    /// RTP timestamp that corresponds to the beginning of `Range`.
    pub rtp_time: Option<u32>,
}

/// An event of a [`crate::Client`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The server described the stream to play. The client waits for [`crate::Client::setup`].
    Described(Description),
    /// A track was set up with the transport that the server chose.
    SetUp {
        /// Index of the track's section in the description.
        track: usize,
        /// Transport chosen by the server. Its host is that of the connection, whatever the field says.
        transport: Transport,
    },
    /// The server refuses interleaving (461) of the first track. A pull may choose again with [`crate::Client::setup`],
    /// with ports; nothing happens until then.
    NotInterleaved,
    /// Media may flow.
    Ready {
        /// Positions at which the tracks begin, if the server gives them.
        rtp_info: Vec<RtpInfo>,
    },
    /// An interleaved packet was received; possibly before `Ready`.
    Interleaved(Frame),
    /// The server sent a new description of the stream (RFC 2326 §10.3).
    Announced(Description),
    /// The server redirects to another URL. `Closed` follows; the owner decides whether and how often to follow
    /// redirects.
    Redirect {
        /// URL as the server sent it.
        location: String,
    },
    /// The server refused.
    Rejected {
        /// Status of the server's answer.
        status: Status,
        /// The server's human-readable reason.
        reason: String,
    },
    /// The connection has ended; always the last event. Send the rest of `poll_transmit`, then close the connection.
    Closed(CloseReason),
}

/// A track that a client sets up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackSetup {
    /// Index of the track's section in the description.
    pub track: usize,
    /// Local UDP ports; `None` to interleave the track.
    pub ports: Option<crate::Ports>,
    /// Channels to request if interleaved; `None` for the first free ones.
    pub channels: Option<crate::Channels>,
}

impl TrackSetup {
    /// Sets up a track over UDP on these local ports.
    #[must_use]
    pub const fn udp(track: usize, ports: crate::Ports) -> Self {
        Self { track, ports: Some(ports), channels: None }
    }

    /// Sets up an interleaved track on any channels.
    #[must_use]
    pub const fn interleaved(track: usize) -> Self {
        Self { track, ports: None, channels: None }
    }

    /// Sets up an interleaved track on these channels, if the server agrees.
    #[must_use]
    pub const fn on_channels(track: usize, channels: crate::Channels) -> Self {
        Self { track, ports: None, channels: Some(channels) }
    }
}

/// A timer of a server or a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Timer {
    /// Deadline of the next request that leads to a session; in a client, deadline of the answer to a request.
    #[error("no request or no answer to one came in time")]
    Request,
    /// Deadline of the session's next keep-alive.
    #[error("the session was silent")]
    Session,
    /// Deadline of the next packet, in a playing client.
    #[error("no media came")]
    Media,
    /// Time of the next keep-alive that the client sends.
    #[error("a keep-alive is due")]
    KeepAlive,
}

/// The reason the connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner closed the connection.
    #[error("closed on request")]
    Requested,
    /// The peer closed the transport, as reported by the owner, or ended the session.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The owner's process is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
    /// A request was refused, and the refusal ends the connection.
    #[error("a request was refused")]
    Rejected,
    /// The server redirected to another URL.
    #[error("redirected")]
    Redirected,
    /// A deadline has passed.
    #[error("{0}")]
    Timeout(Timer),
    /// The peer violated the protocol or a limit.
    #[error("{0}")]
    Failed(Error),
}

/// Counters of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes queued by this crate; the owner counts the frames it writes itself.
    pub bytes_sent: u64,
    /// Requests and responses received.
    pub messages_received: u64,
    /// Interleaved frames received on channels that were set up.
    pub frames_received: u64,
    /// Frames received on other channels, or before media was requested.
    pub frames_ignored: u64,
    /// Misplaced messages.
    pub bad_messages: u32,
}
