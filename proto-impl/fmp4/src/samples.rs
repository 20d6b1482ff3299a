//! Units of a track as samples of fragments; each sample lasts until the next one.

use alloc::vec::Vec;

use bytes::Bytes;
use media::{AccessUnit, CodecConfig, Track, TrackId};

use crate::{Description, FragmentSample, Subsample};

/// Samples of one track that are not yet in a fragment. A sample lasts until the next unit of the track, so
/// the duration of the newest sample is never known.
#[derive(Debug)]
pub struct Samples {
    /// Id of the track in the stream.
    pub id: TrackId,
    /// Description of the track in an init segment.
    pub description: Description,
    /// Newest sample, whose duration is not known yet, with its decode time.
    open: Option<(i64, FragmentSample)>,
    /// Decode time of the first sample in `complete`, in ticks of the stream.
    at: i64,
    complete: Vec<FragmentSample>,
}

impl Samples {
    /// Creates an empty list for a track whose track_ID in the file is `number`.
    #[must_use]
    pub fn new(number: u32, track: &Track) -> Self {
        Self {
            id: track.id,
            description: Description {
                config: with_four_byte_lengths(&track.config),
                ..Description::of_track(number, track)
            },
            open: None,
            at: 0,
            complete: Vec::new(),
        }
    }

    /// True if no unit was pushed yet.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.open.is_none() && self.complete.is_empty()
    }

    /// True if there is no complete sample.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.complete.is_empty()
    }

    /// Adds a unit, which completes the previous sample.
    pub fn push(&mut self, unit: &AccessUnit) {
        self.push_protected(unit, unit.payload.clone(), Vec::new());
    }

    /// Adds a unit whose encrypted payload is `payload`, with the clear and protected parts of that payload.
    pub fn push_protected(&mut self, unit: &AccessUnit, payload: Bytes, subsamples: Vec<Subsample>) {
        let lasted = self.open.as_ref().map_or(0, |(_, sample)| sample.duration);
        let sample = FragmentSample {
            duration: lasted,
            composition: i32::try_from(unit.pts.saturating_sub(unit.dts)).unwrap_or(0),
            key_frame: unit.key_frame,
            payload,
            subsamples,
        };
        // Decode times grow: a clock that stands still for a moment would make samples without a duration.
        let earliest = self.open.as_ref().map_or(unit.dts, |(before, _)| before.saturating_add(1));
        let begin = unit.dts.max(earliest);
        let Some((dts, mut before)) = self.open.replace((begin, sample)) else { return };
        before.duration = u32::try_from(begin.saturating_sub(dts)).unwrap_or(u32::MAX);
        if let Some((_, sample)) = &mut self.open {
            // Until the next unit arrives, the newest sample is assumed to last as long as the previous one.
            sample.duration = before.duration;
        }
        self.add(dts, before);
    }

    /// Completes the newest sample with its assumed duration, because no unit follows it directly.
    pub fn finish(&mut self) {
        if let Some((dts, sample)) = self.open.take() {
            self.add(dts, sample);
        }
    }

    /// Number of complete samples, and their total duration in ticks.
    #[must_use]
    pub fn measure(&self) -> (usize, u64) {
        (self.complete.len(), self.complete.iter().map(|sample| u64::from(sample.duration)).sum())
    }

    /// Takes the complete samples for a fragment, with the decode time of the first.
    pub fn take(&mut self) -> (i64, Vec<FragmentSample>) {
        (self.at, core::mem::take(&mut self.complete))
    }

    fn add(&mut self, dts: i64, sample: FragmentSample) {
        if self.complete.is_empty() {
            self.at = dts;
        }
        self.complete.push(sample);
    }
}

/// Returns the configuration with a NAL length size of four bytes, which access units always have, regardless
/// of the size that the publisher used (ISO/IEC 14496-15 §5.3.3.1, §8.3.3.1).
#[must_use]
pub fn with_four_byte_lengths(config: &CodecConfig) -> CodecConfig {
    let patched = |record: &Bytes, at: usize| {
        let mut record = record.to_vec();
        if let Some(byte) = record.get_mut(at) {
            *byte |= 3;
        }
        Bytes::from(record)
    };
    let record = match config {
        CodecConfig::H264(config) if config.length_size != 4 => patched(&config.record, 4),
        CodecConfig::H265(config) if config.length_size != 4 => patched(&config.record, 21),
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => return config.clone(),
    };
    CodecConfig::read(config.codec(), record).ok().flatten().unwrap_or_else(|| config.clone())
}

#[cfg(test)]
mod tests {
    use media::Timescale;
    use media::codec::Codec;

    use super::*;

    fn track() -> Track {
        let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
        Track::new(TrackId::AUDIO, config, Timescale::new(48_000))
    }

    fn unit(dts: i64) -> AccessUnit {
        let payload = Bytes::from_static(b"x");
        AccessUnit { track: TrackId::AUDIO, dts, pts: dts, key_frame: false, config_epoch: 0, payload }
    }

    #[test]
    fn a_sample_lasts_until_the_next_one_and_the_last_as_long_as_that_before() {
        let mut samples = Samples::new(1, &track());
        assert!(samples.is_new());
        [1000, 2024, 3050].iter().for_each(|dts| samples.push(&unit(*dts)));
        assert!(!samples.is_new() && !samples.is_empty());
        let durations = |(at, samples): (i64, Vec<FragmentSample>)| {
            (at, samples.iter().map(|sample| sample.duration).collect::<Vec<_>>())
        };
        assert_eq!(durations(samples.take()), (1000, vec![1024, 1026]));
        samples.push(&unit(4074));
        samples.finish();
        assert_eq!(durations(samples.take()), (3050, vec![1024, 1024]));
        samples.push(&unit(9000));
        assert!(samples.is_empty(), "nothing is before it");
    }
    #[test]
    fn samples_have_a_duration_even_while_the_clock_stands_still() {
        let mut samples = Samples::new(1, &track());
        [1000, 2024, 2024, 2024, 2020, 6000].iter().for_each(|dts| samples.push(&unit(*dts)));
        let (at, samples) = samples.take();
        let durations: Vec<u32> = samples.iter().map(|sample| sample.duration).collect();
        assert_eq!(
            (at, durations),
            (1000, vec![1024, 1, 1, 1, 3973]),
            "the last one ends where its successor begins"
        );
        assert!(samples.iter().all(|sample| sample.composition == 0));
    }
}
