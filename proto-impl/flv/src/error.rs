//! Errors in reading FLV and AMF0.

use wire::Truncated;

/// The reason bytes could not be read as FLV or AMF0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input ended inside a value.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// AMF0: objects or arrays nested deeper than [`crate::amf0::DEPTH_MAX`].
    #[error("values nested too deep at byte {at}")]
    TooDeep {
        /// Offset of the value.
        at: usize,
    },
    /// AMF0: a message contains more values than [`crate::amf0::VALUES_MAX`].
    #[error("too many values at byte {at}")]
    TooManyValues {
        /// Offset of the first value beyond the limit.
        at: usize,
    },
    /// AMF0: a type marker that is unknown, or that only Flash itself used (references, movie clips).
    #[error("unknown AMF0 marker {marker:#04x} at byte {at}")]
    UnknownMarker {
        /// Value of the marker.
        marker: u8,
        /// Offset of the marker in the input.
        at: usize,
    },
    /// AMF0: a switch to AMF3 (marker 0x11).
    #[error("AMF3 value at byte {at}")]
    Amf3 {
        /// Offset of the marker in the input.
        at: usize,
    },
    /// AMF0: a value does not have the required type.
    #[error("another type of value expected")]
    UnexpectedType,
    /// Unsupported video codec id in a legacy header.
    #[error("unsupported video codec id {0}")]
    UnsupportedVideoCodec(u8),
    /// Unsupported audio format in a legacy header.
    #[error("unsupported audio format {0}")]
    UnsupportedAudioCodec(u8),
    /// Unsupported video FourCC.
    #[error("unsupported video FourCC {}", .0.escape_ascii())]
    UnsupportedVideoFourCc([u8; 4]),
    /// Unsupported audio FourCC.
    #[error("unsupported audio FourCC {}", .0.escape_ascii())]
    UnsupportedAudioFourCc([u8; 4]),
    /// Unknown video frame type.
    #[error("unknown video frame type {0}")]
    UnknownFrameType(u8),
    /// The codec has no packet type with this number.
    #[error("unknown packet type {0}")]
    UnknownPacketType(u8),
    /// A multitrack body within a multitrack body, which Enhanced RTMP v2 forbids.
    #[error("multitrack within multitrack")]
    NestedMultitrack,
    /// Unknown `AvMultitrackType`.
    #[error("unknown multitrack type {0}")]
    UnknownMultitrack(u8),
    /// A body contains too many tracks.
    #[error("too many tracks in one body")]
    TooManyTracks,
    /// A multitrack body does not contain track 0, but the caller requested that track.
    #[error("no packet of the default track")]
    NoDefaultTrack,
    /// The file does not begin with an FLV header.
    #[error("not an FLV file")]
    NotFlv,
    /// A tag uses the encryption filter of FLV 10.1.
    #[error("encrypted tag at byte {at}")]
    Encrypted {
        /// Offset of the tag in the file.
        at: u64,
    },
    /// A tag exceeds the reader's limit.
    #[error("tag of {bytes} bytes at byte {at}")]
    TagTooLarge {
        /// Announced size, in bytes.
        bytes: u32,
        /// Offset of the tag in the file.
        at: u64,
    },
}

impl Error {
    /// True if the bytes are well-formed but contain an unsupported codec. The publisher can then be
    /// informed of the reason.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::UnsupportedVideoCodec(_)
                | Self::UnsupportedAudioCodec(_)
                | Self::UnsupportedVideoFourCc(_)
                | Self::UnsupportedAudioFourCc(_)
        )
    }
}
