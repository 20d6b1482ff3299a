//! Checks that a publisher's stream can be played. A stream that nobody can play must not look as if all were well: faults are
//! reported, and a stream that cannot be used at all is ended.

use std::time::{Duration, Instant};

use bytes::Bytes;
use media::codec::{h264, h265};
use media::{CodecConfig, nal};

/// The time, from the first bytes on, in which a stream announces something that is carried.
pub(super) const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);
/// The time in which what it announces gives a frame: longer than encoders leave between two key frames.
pub(super) const FRAMES_WITHIN: Duration = Duration::from_secs(15);

/// The part of a stream that its publisher has brought so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    /// Nothing that is carried was announced.
    Nothing,
    /// Tracks, and no frame of them that can be used.
    Announced,
    /// Audio, and no frame of the video that was announced.
    AudioAlone,
    /// Something of each kind that was announced.
    Frames,
}

/// The fault of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is nothing in it to be played.
    Unusable(&'static str),
    /// The stream goes on without its video.
    NoVideo(&'static str),
}

/// The watch over one publisher.
#[derive(Debug, Default)]
pub(super) struct Usable {
    since: Option<Instant>,
    told_video: bool,
    told_bad: bool,
}

impl Usable {
    /// Takes what the bytes so far have brought. Each fault is reported once.
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

    /// The time of the next look at a stream of which nothing further may come.
    pub(super) fn deadline(&self, supply: Supply) -> Option<Instant> {
        let within = match supply {
            Supply::Nothing => ANNOUNCED_WITHIN,
            Supply::Announced => FRAMES_WITHIN,
            Supply::AudioAlone | Supply::Frames => return None,
        };
        self.since?.checked_add(within)
    }

    /// Whether this is the first message without sense: it is reported, those that follow are counted.
    pub(super) const fn is_first_bad(&mut self) -> bool {
        !std::mem::replace(&mut self.told_bad, true)
    }
}

/// Checks what can be checked of a frame; NAL units get 4-byte lengths. `None` when it has no slice of a picture.
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
