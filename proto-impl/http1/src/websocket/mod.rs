//! WebSocket (RFC 6455), both roles, as a sans-IO state machine.
//!
//! Message flow of a server:
//! 1. [`accept`] checks the request and returns the response: 101 with the accept value, or 400, 403 or 426 (§4.2).
//! 2. The HTTP connection sends the 101 and hands over the bytes that it holds
//!    ([`crate::Connection::upgrade`]). From then on this machine owns the transport.
//! 3. [`WebSocket::handle_bytes`] takes any split of the stream. The head of each frame is checked before any of its
//!    payload is held, and no buffer is allocated by the length that the head announces.
//! 4. [`Event::Text`] and [`Event::Binary`] hand out whole messages; [`WebSocket::send_text`] and
//!    [`WebSocket::send_binary`] queue messages. Pings are answered; in a flood only the newest are (§5.5.3).
//! 5. A quiet peer is pinged, and the connection is closed if no answer comes. A violation of the protocol closes it
//!    with 1002, 1007 or 1009. Then [`WebSocket::is_closing`] turns true, and the shell flushes and half-closes.
//!    [`Event::Closed`] is the last event.
//!
//! A client begins with a [`ClientHandshake`]; its masks come from its seed.
//!
//! tungstenite unmasks, reassembles and checks the text of messages, and checks the peer's close frame. Its writing
//! side is not used: it would answer every ping of a flood, draw a client's masks from the system, and frame media
//! itself. Its reading side allocates by the announced length and accepts lengths that are not minimal; therefore
//! the heads are checked here, and tungstenite sees whole frames only.
//!
//! Media sent by this server (WS-FLV) bypasses the machine: [`media_frame_head`] makes a frame head that all
//! viewers share.

mod frame;
mod handshake;
mod machine;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use frame::{FrameHead, FrameHeadBytes, Opcode, media_frame_head};
pub use handshake::{ClientHandshake, HandshakeError, accept, is_upgrade};
pub use machine::{CloseReason, Event, Stats, WebSocket};

/// The status codes of §7.4.1 that this machine sends.
pub mod code {
    /// Normal closure.
    pub const NORMAL: u16 = 1000;
    /// The endpoint is going away.
    pub const AWAY: u16 = 1001;
    /// The peer broke the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// Text is not UTF-8.
    pub const INVALID: u16 = 1007;
    /// The peer broke a rule of the application.
    pub const POLICY: u16 = 1008;
    /// A message is too large.
    pub const TOO_LARGE: u16 = 1009;
    /// The server failed.
    pub const INTERNAL: u16 = 1011;
}

/// The limits of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum payload of a message, all fragments together.
    pub message_bytes: usize,
    /// Maximum number of bytes that wait to be sent. If there are more, the connection is given up.
    pub queued_bytes: usize,
    /// Maximum time for which writes may make no progress while output waits.
    pub write_stall: Duration,
    /// Idle time after which a ping is sent.
    pub ping: Duration,
    /// Maximum time to wait for any frame from the peer after a ping.
    pub pong: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 128 * 1024,
            queued_bytes: 1024 * 1024,
            write_stall: Duration::from_secs(10),
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(10),
        }
    }
}

/// A violation of the protocol by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the frame format (§5.2): a reserved bit or opcode, a mask that is missing or forbidden, a length
    /// that is not minimal, a control frame that is too long or fragmented, a fragment out of order, or a malformed
    /// close frame.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// A text message or the reason of a close frame is not UTF-8 (§8.1).
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A message exceeds [`Limits::message_bytes`].
    #[error("message too large")]
    TooLarge,
    /// The peer reads nothing: [`Limits::queued_bytes`] or [`Limits::write_stall`] was exceeded. The transport must be
    /// dropped.
    #[error("no write progress")]
    WriteStalled,
    /// The peer sent nothing within [`Limits::pong`] after a ping.
    #[error("no pong")]
    NoPong,
    /// Bytes were passed in although [`WebSocket::wants_bytes`] was false.
    #[error("more bytes than wanted")]
    Overrun,
}

impl Error {
    /// Returns the close code to send to the peer, or `None` if the peer would not read it.
    #[must_use]
    pub const fn code(self) -> Option<u16> {
        match self {
            Self::Protocol(_) => Some(code::PROTOCOL),
            Self::NotUtf8 => Some(code::INVALID),
            Self::TooLarge => Some(code::TOO_LARGE),
            Self::Overrun => Some(code::POLICY),
            Self::WriteStalled | Self::NoPong => None,
        }
    }
}
