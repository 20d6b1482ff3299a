//! What a peer tells its owner.

use ice::{Candidate, Path};
use rtp::NtpTime;
use rtp::payload::Frame;

use crate::negotiate::SectionId;

/// What happened, in order. After [`Event::Closed`] nothing follows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A candidate of ours, for the peer to know: only of a full agent.
    Candidate(Candidate),
    /// The peer may be at the other end of this path: what comes by it belongs to this session (`ice::Demux::open`). It
    /// comes again with each check by the path, so that nobody else keeps it.
    PathOpened(Path),
    /// It is there no more (`ice::Demux::close`).
    PathClosed(Path),
    /// Keys are there: media can be sent, and comes.
    Connected,
    /// What a source sends is, from here on, of this format: an index into the section's formats. Before its first frame.
    Format {
        /// Where.
        section: SectionId,
        /// Which of [`crate::Section::formats`].
        format: usize,
    },
    /// A whole frame.
    Frame {
        /// Where.
        section: SectionId,
        /// The frame; its timestamp has the lower 32 bits of a count at the format's clock rate.
        frame: Frame,
        /// When it was sampled, on the sender's clock: the same clock for all sections. `None` before the sender's first
        /// report.
        sampled: Option<NtpTime>,
    },
    /// Frames were lost for good: nothing can be decoded until the next key frame. The peer is asked for one until it
    /// comes.
    PictureLost {
        /// Where.
        section: SectionId,
    },
    /// The peer cannot decode what we send, and wants a key frame. Not more often than one in 500 ms.
    KeyFrameWanted {
        /// Where.
        section: SectionId,
    },
    /// The end.
    Closed(CloseReason),
}

/// Why a session ended.
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
