//! Events and requests for the owner of a machine, and the values of its answers.

use bytes::Bytes;
use sdp::Description;

use crate::auth::Authorization;
use crate::{Error, Mode, Status, Target, Transport};

/// An event of a [`crate::Server`]. `Describe`, `Announce`, `Setup`, `Play` and `Record` are requests: the machine reads
/// no further until the owner accepts, rejects or challenges.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The peer wants the description of a stream, to play it.
    Describe(Box<StreamRequest>),
    /// The peer wants to publish what it describes.
    Announce(Box<AnnounceRequest>),
    /// The peer wants to set up a track.
    Setup(SetupRequest),
    /// The peer wants media. Media may be sent behind the answer.
    Play,
    /// The peer wants to send media.
    Record,
    /// The peer wants no media for now, or sends none; it was answered.
    Pause,
    /// The peer ended the session; it was answered. The connection may begin another one.
    Teardown,
    /// A packet that came in the connection.
    Interleaved(Frame),
    /// The end, and always the last event: send what `poll_transmit` still gives, then close the connection.
    Closed(CloseReason),
}

/// A request for a stream, and its sender.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRequest {
    /// The stream.
    pub target: Target,
    /// The name that the client gives itself, empty without one.
    pub user_agent: String,
    /// Credentials, nothing of which is proved: [`crate::Server::verify`] does that.
    pub authorization: Option<Authorization>,
}

/// `ANNOUNCE` (RFC 2326 §10.3).
#[derive(Debug, Clone, PartialEq)]
pub struct AnnounceRequest {
    /// The stream, and who asks.
    pub stream: StreamRequest,
    /// The description of the stream to come. Its sections are the tracks, in their order.
    pub description: Description,
}

/// `SETUP` (RFC 2326 §10.4).
#[derive(Debug, Clone, PartialEq)]
pub struct SetupRequest {
    /// The track: the index of its section in the description.
    pub track: usize,
    /// The side that sends media.
    pub mode: Mode,
    /// The alternatives, the peer's favourite first, and at least one: unicast; UDP ones have the client's ports, interleaved
    /// ones have channels that are free. Accept one of them, with server ports and source filled in.
    pub transports: Vec<Transport>,
}

/// A packet of a track, from an interleaved frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The index of the track's section in the description.
    pub track: usize,
    /// Whether it is RTCP.
    pub is_rtcp: bool,
    /// The channel it came on.
    pub channel: u8,
    /// The packet.
    pub payload: Bytes,
}

/// The point at which a track's packets begin (RFC 2326 §12.33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RtpInfo {
    /// The index of the track's section in the description.
    pub track: usize,
    /// The sequence number of the first packet.
    pub sequence: Option<u16>,
    /// Its RTP time, which belongs to the beginning of `Range`.
    pub rtp_time: Option<u32>,
}

/// An event of a [`crate::Client`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The description of the stream that is to be played. The machine waits for [`crate::Client::setup`].
    Described(Description),
    /// A track was set up, with what the server chose.
    SetUp {
        /// The index of the track's section in the description.
        track: usize,
        /// The server's transport; its host is that of the connection whatever it says.
        transport: Transport,
    },
    /// The server interleaves nothing (461), and the first track was to be. A pull may choose again with
    /// [`crate::Client::setup`], with ports; nothing happens until then.
    NotInterleaved,
    /// Media may flow.
    Ready {
        /// The points at which the tracks begin, if the server gives them.
        rtp_info: Vec<RtpInfo>,
    },
    /// A packet that came in the connection; the first may come before `Ready`.
    Interleaved(Frame),
    /// The server describes the stream anew (RFC 2326 §10.3).
    Announced(Description),
    /// The stream is elsewhere. `Closed` follows; whether to go there, and how often, is the owner's to decide.
    Redirect {
        /// The URL as it came.
        location: String,
    },
    /// The server refused.
    Rejected {
        /// The status of its answer.
        status: Status,
        /// Its reason, for people.
        reason: String,
    },
    /// The end, and always the last event: send what `poll_transmit` still gives, then close the connection.
    Closed(CloseReason),
}

/// A track that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackSetup {
    /// The index of the track's section in the description.
    pub track: usize,
    /// Ports for UDP; without them the track is interleaved.
    pub ports: Option<crate::Ports>,
    /// The channels that are asked for when it is interleaved; `None`: the first that are free.
    pub channels: Option<crate::Channels>,
}

impl TrackSetup {
    /// The setup of a track over UDP, at these ports.
    #[must_use]
    pub const fn udp(track: usize, ports: crate::Ports) -> Self {
        Self { track, ports: Some(ports), channels: None }
    }

    /// The setup of a track in the connection, on any channels.
    #[must_use]
    pub const fn interleaved(track: usize) -> Self {
        Self { track, ports: None, channels: None }
    }

    /// The setup of a track in the connection, on these channels if the server agrees.
    #[must_use]
    pub const fn on_channels(track: usize, channels: crate::Channels) -> Self {
        Self { track, ports: None, channels: Some(channels) }
    }
}

/// A timer of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Timer {
    /// The next request that leads to a session; in a client, the answer to a request.
    #[error("no request or no answer to one came in time")]
    Request,
    /// The deadline of the session's next keep-alive.
    #[error("the session was silent")]
    Session,
    /// In a playing client, the next packet.
    #[error("no media came")]
    Media,
    /// The client's next sign of life to the server.
    #[error("a keep-alive is due")]
    KeepAlive,
}

/// The reason the connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner wanted it.
    #[error("closed on request")]
    Requested,
    /// The peer closed the transport, as reported by the owner, or ended the session.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The owner stopped: the process ends.
    #[error("the server is shutting down")]
    Shutdown,
    /// A request was refused, and the refusal ends the connection.
    #[error("a request was refused")]
    Rejected,
    /// The server named another place.
    #[error("redirected")]
    Redirected,
    /// A time ran out.
    #[error("{0}")]
    Timeout(Timer),
    /// The peer broke the protocol or went over a limit.
    #[error("{0}")]
    Failed(Error),
}

/// Counters of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes read by the machine.
    pub bytes_received: u64,
    /// Bytes that the machine itself wrote; the owner counts its frames.
    pub bytes_sent: u64,
    /// Requests and responses received.
    pub messages_received: u64,
    /// Interleaved frames of known channels received.
    pub frames_received: u64,
    /// Frames of channels that were not set up, or before media was asked for.
    pub frames_ignored: u64,
    /// Messages out of place.
    pub bad_messages: u32,
}
