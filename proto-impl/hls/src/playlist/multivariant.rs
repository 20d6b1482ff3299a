//! Multivariant playlists (RFC 8216 §4.3.4).

/// Variants of one presentation, and the renditions that they share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MultivariantPlaylist {
    /// `EXT-X-VERSION`; 1 without the tag.
    pub version: u32,
    /// `EXT-X-INDEPENDENT-SEGMENTS`, for all media playlists.
    pub independent_segments: bool,
    /// The variants, at most [`VARIANTS_MAX`](crate::limits::VARIANTS_MAX).
    pub variants: Vec<Variant>,
    /// The renditions, at most [`RENDITIONS_MAX`](crate::limits::RENDITIONS_MAX).
    pub renditions: Vec<Rendition>,
}

/// `EXT-X-STREAM-INF` (RFC 8216 §4.3.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    /// The URI of its media playlist, relative to this one; not checked.
    pub uri: String,
    /// The peak, in bits per second.
    pub bandwidth: u64,
    /// The average, in bits per second.
    pub average_bandwidth: Option<u64>,
    /// The codecs (RFC 6381), separated by commas.
    pub codecs: Option<String>,
    /// The size of the video.
    pub resolution: Option<Resolution>,
    /// Frames in a thousand seconds.
    pub frame_rate_milli: Option<u64>,
    /// The group of its audio renditions.
    pub audio: Option<String>,
    /// The group of its video renditions.
    pub video: Option<String>,
    /// The group of its subtitles.
    pub subtitles: Option<String>,
    /// Closed captions of its video; `None` if nothing is said of them.
    pub closed_captions: Option<ClosedCaptions>,
}

/// The closed captions within a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosedCaptions {
    /// No variant has any.
    None,
    /// The group of their renditions.
    Group(String),
}

/// Width and height of video, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolution {
    /// The width.
    pub width: u32,
    /// The height.
    pub height: u32,
}

/// `EXT-X-MEDIA` (RFC 8216 §4.3.4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendition {
    /// The kind of the rendition.
    pub kind: RenditionKind,
    /// The group that variants name.
    pub group_id: String,
    /// The name by which people choose it.
    pub name: String,
    /// The language (RFC 5646).
    pub language: Option<String>,
    /// The URI of its media playlist, relative to this one and not checked; without, it is in the variant's
    /// segments.
    pub uri: Option<String>,
    /// True if it is played when nothing is chosen.
    pub default: bool,
    /// True if it may be played without having been chosen.
    pub autoselect: bool,
    /// `CHANNELS`: of audio, their number first.
    pub channels: Option<String>,
    /// `INSTREAM-ID`: the channel of closed captions, `CC1` to `CC4` or `SERVICE1` to `SERVICE63`.
    pub instream_id: Option<String>,
}

/// The kind of a rendition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenditionKind {
    /// Audio.
    Audio,
    /// Video.
    Video,
    /// Subtitles.
    Subtitles,
    /// Closed captions, in the video of the variant.
    ClosedCaptions,
}

impl RenditionKind {
    pub(super) const ALL: [Self; 4] = [Self::Audio, Self::Video, Self::Subtitles, Self::ClosedCaptions];

    /// The name in the playlist.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Audio => "AUDIO",
            Self::Video => "VIDEO",
            Self::Subtitles => "SUBTITLES",
            Self::ClosedCaptions => "CLOSED-CAPTIONS",
        }
    }
}
