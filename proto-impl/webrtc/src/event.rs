//! Events for the owner of a peer.

use ice::{Candidate, Path};
use rtp::NtpTime;
use rtp::payload::Frame;

use crate::negotiate::SectionId;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A candidate of ours, for the peer to know: only of a full agent.
    Candidate(Candidate),
    /// The peer may be at the other end of this path: what comes by it belongs to this session (`ice::Demux::open`). It
    /// comes again with each check by the path, so that nobody else keeps it.
    PathOpened(Path),
    /// The path was closed; remove it with `ice::Demux::close`.
    PathClosed(Path),
    /// The keys are established: media can be sent and received.
    Connected,
    /// From here on the frames of a source have this format. Precedes its first frame.
    Format {
        /// The section.
        section: SectionId,
        /// The index into [`crate::Section::formats`].
        format: usize,
    },
    /// A whole frame.
    Frame {
        /// The section.
        section: SectionId,
        /// The index into [`crate::Section::layers`]; 0 without simulcast.
        layer: u8,
        /// The frame; its timestamp has the lower 32 bits of a count at the format's clock rate.
        frame: Frame,
        /// The time at which it was sampled, on the sender's clock: the same clock for all sections. `None` before the
        /// sender's first report.
        sampled: Option<NtpTime>,
    },
    /// Frames were lost for good: nothing can be decoded until the next key frame. The peer is asked for one until it
    /// comes.
    PictureLost {
        /// The section.
        section: SectionId,
        /// The layer of it.
        layer: u8,
    },
    /// The loudness of a section of audio, smoothed, of a peer whose packets carry levels (RFC 6464). At most one in 250 ms, and at
    /// least one in 500 ms above silence.
    AudioLevel {
        /// The section.
        section: SectionId,
        /// In -dBov: 0 is the loudest, 127 silence.
        level: u8,
    },
    /// The peer cannot decode what we send, and wants a key frame. Not more often than one in 500 ms.
    KeyFrameWanted {
        /// The section.
        section: SectionId,
    },
    /// The association of the data channels is established.
    DataConnected,
    /// The peer opened a data channel.
    ChannelOpened(Box<sctp::Opened>),
    /// The peer took a data channel of ours.
    ChannelAccepted(sctp::ChannelId),
    /// A whole message of a data channel.
    Message {
        /// The channel.
        channel: sctp::ChannelId,
        /// Text or bytes.
        kind: sctp::Kind,
        /// The message.
        payload: bytes::Bytes,
    },
    /// A data channel is closed in both directions.
    ChannelClosed(sctp::ChannelId),
    /// Data channels have room again for what is sent.
    DataWritable,
    /// There are no data channels any more; media goes on.
    DataClosed(sctp::CloseReason),
    /// The end.
    Closed(CloseReason),
}

/// The reason the session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner wanted it.
    Local,
    /// No path to the peer in time.
    ConnectTimeout,
    /// The peer is not there any more, or does not want to be sent anything (RFC 7675).
    ConsentExpired,
    /// The peer sent `close_notify`.
    Peer,
    /// The handshake failed, or was given up.
    Handshake(dtls::CloseReason),
}
