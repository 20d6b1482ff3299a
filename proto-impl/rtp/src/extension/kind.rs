//! The supported header extensions and their URIs.

/// A header extension supported by this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extension {
    /// Media section (mid).
    Mid,
    /// Simulcast layer (rid).
    Rid,
    /// Simulcast layer that a retransmission belongs to.
    RepairedRid,
    /// Audio level.
    AudioLevel,
    /// Absolute send time.
    AbsSendTime,
    /// Transport-wide sequence number.
    TransportCc,
    /// Playout delay requested from the player.
    PlayoutDelay,
    /// Video orientation.
    VideoOrientation,
    /// Capture time of the packet's contents.
    AbsCaptureTime,
    /// Dependency descriptor ([`crate::dependency`]).
    DependencyDescriptor,
}

impl Extension {
    /// All extensions, in the order in which they are written.
    pub const ALL: [Self; 10] = [
        Self::Mid,
        Self::Rid,
        Self::RepairedRid,
        Self::AudioLevel,
        Self::AbsSendTime,
        Self::TransportCc,
        Self::PlayoutDelay,
        Self::VideoOrientation,
        Self::AbsCaptureTime,
        Self::DependencyDescriptor,
    ];

    /// URI of the extension in `a=extmap`.
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
            Self::DependencyDescriptor => {
                "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension"
            }
        }
    }

    /// Returns the extension with this URI; `None` if unsupported.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|extension| extension.uri() == uri)
    }
}
