//! Checks that a publisher's stream can be played. A stream that nobody can play must not look healthy: faults are
//! reported, and a stream that is entirely unusable is ended.

use std::time::{Duration, Instant};

use bytes::Bytes;
use media::codec::{h264, h265};
use media::{CodecConfig, nal};

/// Maximum time from the first bytes until a supported track is announced.
pub(super) const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time from the announcement of a track until it has a frame: longer than encoders leave between two key
/// frames.
pub(super) const FRAMES_WITHIN: Duration = Duration::from_secs(15);

/// The content of a publisher's stream so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    /// No supported track was announced.
    Nothing,
    /// Tracks were announced, but no usable frame has arrived.
    Announced,
    /// Audio has arrived, but no frame of the announced video since it last began.
    LacksVideo,
    /// No video is announced.
    AudioOnly,
    /// Frames of the announced video have arrived.
    Frames,
}

impl Supply {
    /// Returns the supply of a stream that has frames, given for each announced video whether it has begun. A stream
    /// with several videos needs only one of them.
    pub(super) fn of_videos(begun: impl IntoIterator<Item = bool>) -> Self {
        let add = |supply, has_begun| {
            if has_begun || supply == Self::Frames { Self::Frames } else { Self::LacksVideo }
        };
        begun.into_iter().fold(Self::AudioOnly, add)
    }
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
    /// Time at which the stream last had no video announced.
    without_video: Option<Instant>,
    /// Time since which tracks are announced, and no frame of theirs has arrived.
    announced: Option<Instant>,
    /// True if there was a frame of video. Video that stops later, or waits for a key frame again, is no fault here.
    had_video: bool,
    told_video: bool,
    told_bad: bool,
}

impl Usable {
    /// Checks the media that has arrived so far. Returns each fault once.
    pub(super) fn check(&mut self, now: Instant, supply: Supply) -> Option<Fault> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        match supply {
            Supply::AudioOnly => self.without_video = Some(now),
            Supply::Frames => self.had_video = true,
            Supply::Nothing | Supply::Announced | Supply::LacksVideo => {}
        }
        // A codec that changes begins anew.
        self.announced = (supply == Supply::Announced).then(|| self.announced.unwrap_or(now));
        let waiting =
            self.announced.map_or(Duration::ZERO, |announced| now.saturating_duration_since(announced));
        let lacking = now.saturating_duration_since(self.without_video.unwrap_or(since));
        match supply {
            Supply::Nothing if passed >= ANNOUNCED_WITHIN => {
                Some(Fault::Unusable("nothing that is carried was announced within 5 s"))
            }
            Supply::Announced if waiting >= FRAMES_WITHIN => {
                Some(Fault::Unusable("no frame could be used within 15 s"))
            }
            Supply::LacksVideo if lacking >= FRAMES_WITHIN && !self.had_video && !self.told_video => {
                self.told_video = true;
                Some(Fault::NoVideo("no frame of its video could be used within 15 s"))
            }
            Supply::Nothing | Supply::Announced | Supply::LacksVideo | Supply::AudioOnly | Supply::Frames => {
                None
            }
        }
    }

    /// Returns the time of the next check, in case nothing more arrives.
    pub(super) fn deadline(&self, supply: Supply) -> Option<Instant> {
        match supply {
            Supply::Nothing => self.since?.checked_add(ANNOUNCED_WITHIN),
            Supply::Announced => self.announced.or(self.since)?.checked_add(FRAMES_WITHIN),
            Supply::LacksVideo | Supply::AudioOnly | Supply::Frames => None,
        }
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
        assert_eq!(usable.deadline(Supply::Announced), Some(at(15)), "if it were announced now");
        assert_eq!(usable.check(start, Supply::Announced), None);
        assert_eq!(usable.check(at(14), Supply::Announced), None);
        assert!(matches!(usable.check(at(15), Supply::Announced), Some(Fault::Unusable(_))));
        let early = [(4, Supply::Nothing), (14, Supply::LacksVideo)];
        assert!(early.iter().all(|(seconds, supply)| usable.check(at(*seconds), *supply).is_none()));
        assert!(matches!(usable.check(at(5), Supply::Nothing), Some(Fault::Unusable(_))));
        assert!(matches!(usable.check(at(15), Supply::LacksVideo), Some(Fault::NoVideo(_))));
        assert_eq!(usable.check(at(16), Supply::LacksVideo), None, "once");
        assert_eq!((usable.is_first_bad(), usable.is_first_bad()), (true, false));
    }

    /// The seconds at which there is a fault, given the supply of each second.
    fn faults(supplies: &[(std::ops::Range<u64>, Supply)]) -> Vec<(u64, Fault)> {
        let (start, mut usable) = (Instant::now(), Usable::default());
        let seconds =
            supplies.iter().flat_map(|(range, supply)| range.clone().map(|second| (second, *supply)));
        let found = seconds.filter_map(|(second, supply)| {
            Some((second, usable.check(start + Duration::from_secs(second), supply)?))
        });
        found.collect()
    }

    /// The seconds at which a lack of video is reported, given the supply of each second.
    fn lacking(supplies: &[(std::ops::Range<u64>, Supply)]) -> Vec<u64> {
        let lacks_video = |(_, fault): &(u64, Fault)| matches!(fault, Fault::NoVideo(_));
        faults(supplies).into_iter().filter(lacks_video).map(|(second, _)| second).collect()
    }

    #[test]
    fn frames_have_15_s_from_each_announcement() {
        use Supply::{Announced, AudioOnly, Frames};
        let ended = |supplies| faults(supplies).first().map(|(second, _)| *second);
        // Another codec is announced while the stream runs.
        assert_eq!(ended(&[(0..20, Frames), (20..30, Announced), (30..60, Frames)]), None);
        assert_eq!(ended(&[(0..20, Frames), (20..60, Announced)]), Some(35));
        // The parameters of the video come long after the connection has begun.
        assert_eq!(ended(&[(0..16, AudioOnly), (16..30, Announced), (30..60, Frames)]), None);
        assert_eq!(ended(&[(0..16, AudioOnly), (16..60, Announced)]), Some(31));
        // Parameters that are repeated do not extend the time.
        assert_eq!(ended(&[(0..5, Announced), (5..10, Announced), (10..60, Announced)]), Some(15));
    }

    #[test]
    fn video_has_15_s_from_its_announcement_and_may_wait_for_a_key_frame_again() {
        use Supply::{AudioOnly, Frames, LacksVideo, Nothing};
        assert_eq!(lacking(&[(0..3, Nothing), (3..40, LacksVideo)]), [15]);
        assert_eq!(lacking(&[(0..14, LacksVideo), (14..20, Frames), (20..60, LacksVideo)]), [0; 0]);
        // The video of a program comes late: it has its time from then on.
        assert_eq!(lacking(&[(0..60, AudioOnly), (60..90, LacksVideo)]), [74]);
        assert_eq!(lacking(&[(0..60, AudioOnly), (60..70, LacksVideo), (70..99, Frames)]), [0; 0]);
        assert_eq!(lacking(&[(0..99, Frames)]), [0; 0]);
    }

    #[test]
    fn one_of_several_videos_is_enough() {
        let table = [
            (&[][..], Supply::AudioOnly),
            (&[false], Supply::LacksVideo),
            (&[true], Supply::Frames),
            (&[false, true], Supply::Frames),
            (&[true, false], Supply::Frames),
            (&[false, false], Supply::LacksVideo),
        ];
        for (begun, supply) in table {
            assert_eq!(Supply::of_videos(begun.iter().copied()), supply, "{begun:?}");
        }
    }
}
