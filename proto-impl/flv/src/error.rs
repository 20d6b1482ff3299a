//! Errors of reading FLV and AMF0.

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
        /// Offset of the value that is nested too deeply.
        at: usize,
    },
    /// AMF0: more values than [`crate::amf0::VALUES_MAX`] in one message.
    #[error("too many values at byte {at}")]
    TooManyValues {
        /// Offset of the first value too many.
        at: usize,
    },
    /// AMF0: a marker that names no type, or one that only Flash's serialiser used (references, movie clips).
    #[error("unknown AMF0 marker {marker:#04x} at byte {at}")]
    UnknownMarker {
        /// The marker.
        marker: u8,
        /// The offset in the input.
        at: usize,
    },
    /// AMF0: the marker 0x11, behind which the value is AMF3.
    #[error("AMF3 value at byte {at}")]
    Amf3 {
        /// The offset of the marker in the input.
        at: usize,
    },
    /// AMF0: a value of another type was required.
    #[error("another type of value expected")]
    UnexpectedType,
    /// A video codec id of the legacy header that this crate does not read.
    #[error("unsupported video codec id {0}")]
    UnsupportedVideoCodec(u8),
    /// An audio format of the legacy header that this crate does not read.
    #[error("unsupported audio format {0}")]
    UnsupportedAudioCodec(u8),
    /// A video FourCC that this crate does not read.
    #[error("unsupported video FourCC {}", .0.escape_ascii())]
    UnsupportedVideoFourCc([u8; 4]),
    /// An audio FourCC that this crate does not read.
    #[error("unsupported audio FourCC {}", .0.escape_ascii())]
    UnsupportedAudioFourCc([u8; 4]),
    /// A video frame type that names nothing.
    #[error("unknown video frame type {0}")]
    UnknownFrameType(u8),
    /// A packet type that the codec does not have.
    #[error("unknown packet type {0}")]
    UnknownPacketType(u8),
    /// A multitrack body within a multitrack body, which Enhanced RTMP v2 forbids.
    #[error("multitrack within multitrack")]
    NestedMultitrack,
    /// An `AvMultitrackType` that names nothing.
    #[error("unknown multitrack type {0}")]
    UnknownMultitrack(u8),
    /// More tracks in one body than any encoder has.
    #[error("too many tracks in one body")]
    TooManyTracks,
    /// A multitrack body without track 0, where one track was asked for.
    #[error("no packet of the default track")]
    NoDefaultTrack,
    /// The file does not begin with an FLV header.
    #[error("not an FLV file")]
    NotFlv,
    /// A tag with the encryption filter of FLV 10.1.
    #[error("encrypted tag at byte {at}")]
    Encrypted {
        /// Offset of the tag in the file.
        at: u64,
    },
    /// A tag larger than the reader's limit.
    #[error("tag of {bytes} bytes at byte {at}")]
    TagTooLarge {
        /// The announced size.
        bytes: u32,
        /// Offset of the tag in the file.
        at: u64,
    },
}

impl Error {
    /// Whether the bytes are well-formed but of a codec that is not carried: a publisher of such a codec can be told.
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
