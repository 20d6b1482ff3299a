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
    /// URI of the variant's media playlist, relative to this playlist; not checked.
    pub uri: String,
    /// Peak bandwidth in bits per second.
    pub bandwidth: u64,
    /// Average bandwidth in bits per second.
    pub average_bandwidth: Option<u64>,
    /// The codecs (RFC 6381), separated by commas.
    pub codecs: Option<String>,
    /// Size of the video, in pixels.
    pub resolution: Option<Resolution>,
    /// Frame rate, in frames per 1000 seconds.
    pub frame_rate_milli: Option<u64>,
    /// Group of the variant's audio renditions.
    pub audio: Option<String>,
    /// Group of the variant's video renditions.
    pub video: Option<String>,
    /// Group of the variant's subtitles.
    pub subtitles: Option<String>,
    /// Closed captions in the variant's video; `None` if the playlist does not say.
    pub closed_captions: Option<ClosedCaptions>,
}

/// The closed captions within a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosedCaptions {
    /// No variant has closed captions (`CLOSED-CAPTIONS=NONE`).
    None,
    /// Group of the closed caption renditions.
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
    /// The group, by which variants refer to the rendition.
    pub group_id: String,
    /// The name shown to users.
    pub name: String,
    /// The language (RFC 5646).
    pub language: Option<String>,
    /// URI of the rendition's media playlist, relative to this playlist; not checked. `None` if the rendition
    /// is part of the variant's segments.
    pub uri: Option<String>,
    /// True if the rendition is played until the user chooses another.
    pub default: bool,
    /// True if a player may select the rendition by itself, for example because of the user's language.
    pub autoselect: bool,
    /// `CHANNELS`: for audio, begins with the number of channels.
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
