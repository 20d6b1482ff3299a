//! Ladders. A ladder consists of the renditions of one programme, which are tracks of one stream or several streams,
//! and of the playlist that lists them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use media::captions::Known;

use crate::types::StreamKey;

/// The main track of a stream. The stream is one of the main track's renditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MainTrack {
    /// Stream key of the main track.
    pub key: StreamKey,
    /// Folder below the application's `streams` that holds the main track's playlists, with a trailing slash; empty if
    /// the playlists are directly in `streams`.
    pub folder: String,
}

/// The place of a blob in a ladder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laddered {
    /// Id of the main track. A viewer who may play the main track may fetch the blob.
    pub main: Arc<str>,
    /// Description of the rendition. One blob of each rendition carries it. While the rendition continues, that blob is
    /// replaced by newer versions.
    pub rung: Option<Rung>,
}

/// A rendition, described for the playlist that lists all renditions and for the other renditions of the ladder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rung {
    /// The kind of sink that makes the rendition.
    pub sink: &'static str,
    /// Number that orders renditions by their beginning. The stream of the rendition that began first
    /// publishes the playlists of the whole ladder.
    pub began: u64,
    /// Name of the rendition's playlist, in the folder of the main track. `None` until it is known.
    pub playlist: Option<String>,
    /// True if the rendition's playlist exists.
    pub is_there: bool,
    /// True if the rendition is audio only and is shared by renditions that have no audio of their own.
    pub is_sound: bool,
    /// Description of the audio, if `is_sound` is set.
    pub sound: Sound,
    /// Codecs of the rendition (RFC 6381), separated by commas.
    pub codecs: String,
    /// Peak and average bit rate, in bits per second.
    pub bits: (u64, u64),
    /// Description of the video.
    pub picture: Picture,
    /// True if all segments begin with a key frame.
    pub is_independent: bool,
    /// Target duration of the playlist, once it is known.
    pub target: Option<Duration>,
    /// Number of parts of the newest whole segment.
    pub last_parts: u32,
    /// Times of the newest key frames of the rendition, in milliseconds.
    pub keys: Vec<i64>,
    /// Beginnings of the newest segments. The last one is the beginning of the segment that is being written.
    pub marks: Vec<Mark>,
    /// Additional data from the sink of this rendition, for other sinks of the same kind.
    pub annex: Option<Annex>,
}

/// A description of video, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
    /// Frame rate in frames per 1000 seconds.
    pub frame_rate_milli: Option<u64>,
    /// Closed captions that were found in the video so far, or that the publisher announces.
    pub captions: Known,
}

/// A description of sound, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sound {
    /// Number of the audio track among the audio tracks of its stream.
    pub index: u8,
    /// Codec of the sound (RFC 6381).
    pub codec: Option<String>,
    /// Number of channels.
    pub channels: Option<u8>,
    /// Language of the sound.
    pub language: Option<Arc<str>>,
    /// Name of the audio track, shown to viewers.
    pub name: Option<String>,
}

/// A value that only the kind of sink that made it can read.
#[derive(Clone)]
pub struct Annex(Arc<dyn Any + Send + Sync>);

impl Annex {
    /// Wraps a value.
    #[must_use]
    pub fn of<T: Any + Send + Sync>(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Returns the value, if it is of this type.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

/// An annex equals only its clones.
impl PartialEq for Annex {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Annex {}

impl fmt::Debug for Annex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Annex")
    }
}

/// The beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The number of the segment.
    pub number: u64,
    /// Number of discontinuities before the segment.
    pub discontinuities: u64,
    /// Time of the segment, in milliseconds, on the clock that all renditions of a ladder share.
    pub begin_ms: i64,
}
