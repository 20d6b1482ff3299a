//! Elementary streams and the set of them that a live stream has.

use bytes::Bytes;

use crate::{CodecConfig, Timescale};

/// Index of a track within its stream. Track ids are stable for the life of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u8);

impl TrackId {
    /// The video track of a stream that has one of each kind.
    pub const VIDEO: Self = Self(0);
    /// The audio track of a stream that has one of each kind.
    pub const AUDIO: Self = Self(1);
    /// Timed data: onMetaData, ID3, KLV.
    pub const DATA: Self = Self(2);
}

/// What a track carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrackKind {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
    /// Timed data.
    Data,
}

/// One elementary stream: its coding, its parameter sets, its clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Index within the stream.
    pub id: TrackId,
    /// Codec and parameter sets.
    pub config: CodecConfig,
    /// Clock of the timestamps.
    pub timescale: Timescale,
    /// What Enhanced RTMP says of the track beside its parameter sets, the newest as it came: of video the body of
    /// its Metadata (colour and HDR), of audio that of its MultichannelConfig. Only FLV gives it on.
    pub extra: Option<Bytes>,
}

impl Track {
    /// What the track carries.
    #[must_use]
    pub const fn kind(&self) -> TrackKind {
        self.config.codec().kind()
    }
}

/// The tracks of a stream under one config epoch. A change of any parameter set makes a new value with the next
/// epoch; units point at the epoch that decodes them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tracks {
    /// Counts the changes since the stream began; 0 means that nothing is known yet.
    pub epoch: u32,
    /// The video track.
    pub video: Option<Track>,
    /// The audio track.
    pub audio: Option<Track>,
    /// The last onMetaData as the publisher sent it (AMF0 values behind the name), FLV to FLV as it is.
    pub metadata: Option<Bytes>,
}

impl Tracks {
    /// The track with this id.
    #[must_use]
    pub fn get(&self, id: TrackId) -> Option<&Track> {
        [&self.video, &self.audio].into_iter().flatten().find(|track| track.id == id)
    }

    /// Bytes of parameter sets and metadata that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_track =
            |track: &Track| track.config.record().len() + track.extra.as_ref().map_or(0, Bytes::len);
        let tracks: usize = [&self.video, &self.audio].into_iter().flatten().map(of_track).sum();
        tracks + self.metadata.as_ref().map_or(0, Bytes::len)
    }

    /// Whether neither picture nor sound is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.video.is_none() && self.audio.is_none()
    }
}
