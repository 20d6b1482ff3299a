//! Information about a stream for a page: its tracks and their rates.

use std::time::{Duration, Instant};

use media::{Track, TrackId, TrackKind, Tracks};
use smallvec::SmallVec;

/// Time over which a rate is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// A track of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrackInfo {
    pub(super) is_video: bool,
    pub(super) codec: String,
    /// Width and height of the video, if known.
    pub(super) size: Option<(u32, u32)>,
    /// Recent bit rate in bits per second.
    pub(super) bit_rate: u64,
    /// Recent rate in units per 1000 seconds.
    pub(super) unit_rate: u64,
}

/// The estimated rate of a viewer's path (`target`), and the rates of video and audio sent to the viewer, in bits per
/// second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bitrates {
    pub(super) target: u64,
    pub(super) video: u64,
    pub(super) audio: u64,
}

/// The measurement of a track: bytes and units counted from `since` on, and the rates of the last complete second.
#[derive(Debug)]
struct Rate {
    track: TrackId,
    since: Instant,
    bytes: u64,
    units: u64,
    bit_rate: u64,
    unit_rate: u64,
}

/// The rates of several tracks.
#[derive(Debug, Default)]
pub(super) struct Rates(SmallVec<[Rate; 2]>);

impl Rates {
    /// Counts a unit of a track that was received or sent.
    pub(super) fn add(&mut self, now: Instant, track: TrackId, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let Some(rate) = self.0.iter_mut().find(|rate| rate.track == track) else {
            return self.0.push(Rate { track, since: now, bytes, units: 1, bit_rate: 0, unit_rate: 0 });
        };
        let took = now.saturating_duration_since(rate.since);
        if took >= MEASURE {
            let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
            rate.bit_rate = rate.bytes.saturating_mul(8000) / millis;
            rate.unit_rate = rate.units.saturating_mul(1_000_000) / millis;
            (rate.since, rate.bytes, rate.units) = (now, 0, 0);
        }
        rate.units = rate.units.saturating_add(1);
        rate.bytes = rate.bytes.saturating_add(bytes);
    }

    /// Returns the bit rate of a track in bits per second; 0 until it is known.
    pub(super) fn of(&self, track: TrackId) -> u64 {
        self.0.iter().find(|rate| rate.track == track).map_or(0, |rate| rate.bit_rate)
    }

    /// Describes these tracks.
    pub(super) fn info(&self, tracks: &Tracks) -> Vec<TrackInfo> {
        let info = |track: &Track| {
            let rate = self.0.iter().find(|rate| rate.track == track.id);
            let announced = || track.rendition.as_ref().map_or(0, |rendition| rendition.bit_rate.into());
            TrackInfo {
                is_video: track.kind() == TrackKind::Video,
                codec: track.config.codec().to_string(),
                size: track.picture_size(),
                bit_rate: Some(self.of(track.id)).filter(|rate| *rate > 0).unwrap_or_else(announced),
                unit_rate: rate.map_or(0, |rate| rate.unit_rate),
            }
        };
        tracks.iter().filter(|track| !track.id.is_derived()).map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_second() {
        let start = Instant::now();
        let mut rates = Rates::default();
        let tracks = Tracks::new(
            1,
            [Track::new(
                TrackId::VIDEO,
                media::CodecConfig::Vp8(media::codec::vp8::Config::default()),
                media::Timescale::MILLISECONDS,
            )],
        );
        assert_eq!(rates.info(&tracks)[0].bit_rate, 0);
        for n in 0..=40 {
            rates.add(start + Duration::from_millis(50 * n), TrackId::VIDEO, 1000);
        }
        let info = &rates.info(&tracks)[0];
        assert_eq!((info.bit_rate, info.unit_rate), (160_000, 20_000));
    }
}
