//! The extensions that are known, and their names.

/// An extension that this crate knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extension {
    /// The media section.
    Mid,
    /// The layer of a simulcast.
    Rid,
    /// The layer that a retransmission repairs.
    RepairedRid,
    /// Loudness.
    AudioLevel,
    /// Time of sending.
    AbsSendTime,
    /// Numbers of the transport.
    TransportCc,
    /// The delay of the player.
    PlayoutDelay,
    /// Rotation.
    VideoOrientation,
    /// The time at which the contents of the packet were captured.
    AbsCaptureTime,
}

impl Extension {
    /// All extensions, in the order in which they are written.
    pub const ALL: [Self; 9] = [
        Self::Mid,
        Self::Rid,
        Self::RepairedRid,
        Self::AudioLevel,
        Self::AbsSendTime,
        Self::TransportCc,
        Self::PlayoutDelay,
        Self::VideoOrientation,
        Self::AbsCaptureTime,
    ];

    /// The URI in `a=extmap`.
    #[must_use]
    pub const fn uri(self) -> &'static str {
        match self {
            Self::Mid => "urn:ietf:params:rtp-hdrext:sdes:mid",
            Self::Rid => "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
            Self::RepairedRid => "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id",
            Self::AudioLevel => "urn:ietf:params:rtp-hdrext:ssrc-audio-level",
            Self::AbsSendTime => "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time",
            Self::TransportCc => "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01",
            Self::PlayoutDelay => "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay",
            Self::VideoOrientation => "urn:3gpp:video-orientation",
            Self::AbsCaptureTime => "http://www.webrtc.org/experiments/rtp-hdrext/abs-capture-time",
        }
    }

    /// The extension of this name.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|extension| extension.uri() == uri)
    }
}
