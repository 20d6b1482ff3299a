//! Events for the owner of a peer.

use ice::{Candidate, Path};
use rtp::NtpTime;
use rtp::payload::Frame;

use crate::negotiate::SectionId;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A local candidate to signal to the peer; only full agents have this event.
    Candidate(Candidate),
    /// The peer may use this path: datagrams on it belong to this session from now on (`ice::Demux::open`).
    /// The event is repeated at each connectivity check on the path, so that this session reclaims the path
    /// if another session has claimed it.
    PathOpened(Path),
    /// The path was closed; remove it with `ice::Demux::close`.
    PathClosed(Path),
    /// The keys are established: media can be sent and received.
    Connected,
    /// Format of the frames that follow from a source. Reported before the source's first frame and at each
    /// change.
    Format {
        /// Section of the source.
        section: SectionId,
        /// Index into [`crate::Section::formats`].
        format: usize,
    },
    /// A complete frame was received.
    Frame {
        /// Section of the frame.
        section: SectionId,
        /// Index into [`crate::Section::layers`]; 0 without simulcast.
        layer: u8,
        /// The frame. Its timestamp is the lower 32 bits of a count at the format's clock rate.
        frame: Frame,
        /// Sampling time on the sender's clock, which all sections share. `None` before the sender's first
        /// report.
        sampled: Option<NtpTime>,
    },
    /// Frames were lost for good, and nothing can be decoded until the next key frame. Key frames are requested
    /// from the peer until one arrives.
    PictureLost {
        /// Section of the lost frames.
        section: SectionId,
        /// Layer of the section.
        layer: u8,
    },
    /// Smoothed loudness of an audio section whose packets carry audio levels (RFC 6464). Reported at most
    /// every 250 ms; and at least every 500 ms while above silence.
    AudioLevel {
        /// Section of the audio.
        section: SectionId,
        /// Level in -dBov: 0 is the loudest, 127 silence.
        level: u8,
    },
    /// The peer cannot decode the sent video and requests a key frame. Reported at most every 500 ms.
    KeyFrameWanted {
        /// Section that must send the key frame.
        section: SectionId,
    },
    /// The association of the data channels is established.
    DataConnected,
    /// The peer opened a data channel.
    ChannelOpened(Box<sctp::Opened>),
    /// The peer accepted a data channel that this side opened.
    ChannelAccepted(sctp::ChannelId),
    /// A complete message was received on a data channel.
    Message {
        /// Channel of the message.
        channel: sctp::ChannelId,
        /// Type of the message: text or binary.
        kind: sctp::Kind,
        /// Contents of the message.
        payload: bytes::Bytes,
    },
    /// A data channel is closed in both directions.
    ChannelClosed(sctp::ChannelId),
    /// Data channels have room to send again.
    DataWritable,
    /// The data channels have ended; media continues.
    DataClosed(sctp::CloseReason),
    /// The session has ended.
    Closed(CloseReason),
}

/// The reason the session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner closed the session.
    Local,
    /// No path to the peer was found in time.
    ConnectTimeout,
    /// The peer is unreachable or has withdrawn its consent to receive (RFC 7675).
    ConsentExpired,
    /// The peer sent `close_notify`.
    Peer,
    /// The DTLS handshake failed or was abandoned.
    Handshake(dtls::CloseReason),
}
