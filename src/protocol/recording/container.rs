//! The containers of recordings.

use media::{Codec, Track, TrackKind};

use super::fragments::Muxer;
use super::{mp4, webm};
use crate::hub::{Chosen, Fit};

/// The container of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Container {
    /// MP4: every codec except G.711.
    Mp4,
    /// WebM: VP8, VP9, AV1 and Opus.
    WebM,
}

impl Container {
    /// All containers.
    pub const ALL: [Self; 2] = [Self::Mp4, Self::WebM];

    /// Name of the file extension, the sink and the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mp4 => "mp4",
            Self::WebM => "webm",
        }
    }

    /// True if a stream with these codecs is recorded. The WebM recording of a stream with video must contain its
    /// video, because audio alone would not be a recording of the stream. Transcoded audio is recorded only with
    /// video that WebM can carry.
    pub fn records(self, mut codecs: impl Iterator<Item = Codec> + Clone) -> bool {
        match self {
            Self::Mp4 => true,
            Self::WebM => {
                let has_video = codecs.clone().any(|codec| codec.kind() == TrackKind::Video);
                codecs.any(|codec| ::webm::carries(codec) && (codec.kind() == TrackKind::Video || !has_video))
            }
        }
    }

    /// True if a stream with these published tracks is recorded.
    pub(super) fn records_stream(self, chosen: &Chosen) -> bool {
        let published = chosen.all().iter().filter(|track| !track.id.is_derived());
        self.records(published.map(|track| track.config.codec()))
    }

    /// Returns how well the container carries a track.
    pub(super) fn fit(self, track: &Track) -> Fit {
        let codec = track.config.codec();
        Fit::of(match self {
            Self::Mp4 => !matches!(codec, Codec::G711(_)),
            Self::WebM => ::webm::carries(codec),
        })
    }

    /// Makes the writer of a file.
    pub(super) fn muxer(self) -> Box<dyn Muxer> {
        match self {
            Self::Mp4 => Box::new(mp4::Mp4::default()),
            Self::WebM => Box::new(webm::WebM::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use media::codec::g711::Law;

    use super::*;

    #[test]
    fn a_webm_recording_is_of_what_the_publisher_sends() {
        for (codecs, is_recorded) in [
            (&[Codec::Vp8, Codec::Opus][..], true),
            (&[Codec::Vp9, Codec::Aac], true),
            (&[Codec::Av1], true),
            (&[Codec::Opus], true),
            (&[Codec::H264, Codec::Vp9, Codec::Aac], true),
            (&[Codec::H264, Codec::Aac], false),
            (&[Codec::H264, Codec::Opus], false),
            (&[Codec::H265], false),
            (&[Codec::Aac], false),
            (&[Codec::G711(Law::A)], false),
            (&[], false),
        ] {
            assert_eq!(Container::WebM.records(codecs.iter().copied()), is_recorded, "{codecs:?}");
            assert!(Container::Mp4.records(codecs.iter().copied()));
        }
    }
}
