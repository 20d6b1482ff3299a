//! Checks that a publisher's stream can be played. A stream that nobody can play must not look healthy: faults are
//! reported, and a stream that is entirely unusable is ended.

use std::time::{Duration, Instant};

use bytes::Bytes;
use media::codec::{h264, h265};
use media::{CodecConfig, nal};

/// Maximum time from the first bytes until a supported track is announced.
pub(super) const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time until an announced track has a frame: longer than encoders leave between two key frames.
pub(super) const FRAMES_WITHIN: Duration = Duration::from_secs(15);

/// The content of a publisher's stream so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    /// No supported track was announced.
    Nothing,
    /// Tracks were announced, but no usable frame has arrived.
    Announced,
    /// Audio has arrived, but no frame of the announced video.
    AudioAlone,
    /// Frames of each announced kind have arrived.
    Frames,
}

/// A fault of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The stream has nothing that can be played.
    Unusable(&'static str),
    /// The stream continues without its video.
    NoVideo(&'static str),
}

/// The checks of one publisher.
#[derive(Debug, Default)]
pub(super) struct Usable {
    since: Option<Instant>,
    told_video: bool,
    told_bad: bool,
}

impl Usable {
    /// Checks the media that has arrived so far. Returns each fault once.
    pub(super) fn check(&mut self, now: Instant, supply: Supply) -> Option<Fault> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        match supply {
            Supply::Nothing if passed >= ANNOUNCED_WITHIN => {
                Some(Fault::Unusable("nothing that is carried was announced within 5 s"))
            }
            Supply::Announced if passed >= FRAMES_WITHIN => {
                Some(Fault::Unusable("no frame could be used within 15 s"))
            }
            Supply::AudioAlone if passed >= FRAMES_WITHIN && !self.told_video => {
                self.told_video = true;
                Some(Fault::NoVideo("no frame of its video could be used within 15 s"))
            }
            Supply::Nothing | Supply::Announced | Supply::AudioAlone | Supply::Frames => None,
        }
    }

    /// Returns the time of the next check, in case nothing more arrives.
    pub(super) fn deadline(&self, supply: Supply) -> Option<Instant> {
        let within = match supply {
            Supply::Nothing => ANNOUNCED_WITHIN,
            Supply::Announced => FRAMES_WITHIN,
            Supply::AudioAlone | Supply::Frames => return None,
        };
        self.since?.checked_add(within)
    }

    /// Returns true for the first malformed message, which is reported; later ones are only counted.
    pub(super) const fn is_first_bad(&mut self) -> bool {
        !std::mem::replace(&mut self.told_bad, true)
    }
}

/// Checks a frame, and gives its NAL units 4-byte lengths. `None` if it contains no slice of a picture.
pub(super) fn video_payload(config: &CodecConfig, payload: Bytes) -> Result<Option<Bytes>, nal::Error> {
    let (length_size, is_picture): (_, fn(&[u8]) -> bool) = match config {
        CodecConfig::H264(config) => (config.length_size, h264::is_picture),
        CodecConfig::H265(config) => (config.length_size, h265::is_picture),
        CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => return Ok(Some(payload)),
    };
    let payload = nal::to_four_byte_lengths(payload, length_size)?;
    let has_picture = nal::Nals::new(&payload, 4).flatten().any(is_picture);
    Ok(has_picture.then_some(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_5_s_to_announce_and_15_s_to_deliver() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut usable = Usable::default();
        assert_eq!(usable.deadline(Supply::Nothing), None, "it has not begun");
        assert_eq!(usable.check(start, Supply::Nothing), None);
        assert_eq!(usable.deadline(Supply::Nothing), Some(at(5)));
        assert_eq!(usable.deadline(Supply::Announced), Some(at(15)));
        let early =
            [(4, Supply::Nothing), (14, Supply::Announced), (14, Supply::AudioAlone), (99, Supply::Frames)];
        assert!(early.iter().all(|(seconds, supply)| usable.check(at(*seconds), *supply).is_none()));
        assert!(matches!(usable.check(at(5), Supply::Nothing), Some(Fault::Unusable(_))));
        assert!(matches!(usable.check(at(15), Supply::Announced), Some(Fault::Unusable(_))));
        assert!(matches!(usable.check(at(15), Supply::AudioAlone), Some(Fault::NoVideo(_))));
        assert_eq!(usable.check(at(16), Supply::AudioAlone), None, "once");
        assert_eq!((usable.is_first_bad(), usable.is_first_bad()), (true, false));
    }
}
