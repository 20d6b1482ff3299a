//! Writing movie fragments (ISO/IEC 14496-12 §8.8): `moof` and `mdat`, with one track as in CMAF, or with several.

use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;
use media::TrackKind;

use super::Description;
use super::out::Out;
use super::protection::{self, Subsample};
use crate::Error;
use crate::boxes::HEAD_BYTES;

/// Flags of `tfhd`: default-base-is-moof, and the defaults that are present (§8.8.7.1).
const TFHD_BASE_IS_MOOF: u32 = 0x02_0000;
const TFHD_DURATION: u32 = 0x08;
const TFHD_SIZE: u32 = 0x10;
const TFHD_FLAGS: u32 = 0x20;
/// Flags of `trun`: the fields of each sample, and the data offset (§8.8.8.1).
const TRUN_DATA_OFFSET: u32 = 0x001;
const TRUN_FIRST_FLAGS: u32 = 0x004;
const TRUN_DURATION: u32 = 0x100;
const TRUN_SIZE: u32 = 0x200;
const TRUN_FLAGS: u32 = 0x400;
const TRUN_COMPOSITION: u32 = 0x800;
/// Sample flags of a sync sample: sample_depends_on 2 (§8.8.3.1).
const SYNC: u32 = 0x0200_0000;
/// Sample flags of other samples: sample_depends_on 1, sample_is_non_sync_sample.
const NON_SYNC: u32 = 0x0101_0000;

/// A sample of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentSample {
    /// Ticks to the next sample.
    pub duration: u32,
    /// Presentation time − decode time, in ticks.
    pub composition: i32,
    /// True if decoding can start with the sample; always true for audio.
    pub key_frame: bool,
    /// Media data. NAL lengths have the size given in the configuration.
    pub payload: Bytes,
    /// Clear and protected parts of a protected sample; together they are as long as the sample. Empty if the whole
    /// sample is protected, and in tracks without [`Description::protection`].
    pub subsamples: Vec<Subsample>,
}

/// Samples of one track in a fragment.
#[derive(Debug)]
struct Part {
    track: u32,
    decode_time: u64,
    is_video: bool,
    samples: Vec<FragmentSample>,
}

impl Part {
    /// Returns the flags of a sample.
    const fn flags(&self, sample: &FragmentSample) -> u32 {
        if sample.key_frame || !self.is_video { SYNC } else { NON_SYNC }
    }

    fn bytes(&self) -> u64 {
        self.samples.iter().map(|sample| sample.payload.len() as u64).sum()
    }
}

/// A fragment under construction.
#[derive(Debug)]
pub struct Fragment {
    sequence: u32,
    parts: Vec<Part>,
}

impl Fragment {
    /// Creates a fragment without samples. `sequence` increases with each fragment of a file (§8.8.5).
    #[must_use]
    pub const fn new(sequence: u32) -> Self {
        Self { sequence, parts: Vec::new() }
    }

    /// Creates a fragment of these samples, none of which is video. `decode_time` is that of the first one, in ticks.
    pub(super) fn of_samples(
        sequence: u32,
        (track, decode_time): (u32, u64),
        samples: Vec<FragmentSample>,
    ) -> Self {
        Self { sequence, parts: vec![Part { track, decode_time, is_video: false, samples }] }
    }

    /// Adds the samples of a track; call it at most once per track. A track without samples is omitted. `decode_time`
    /// is that of the first sample, in ticks (`tfdt`).
    pub fn add(&mut self, track: &Description, decode_time: u64, samples: Vec<FragmentSample>) -> &mut Self {
        if !samples.is_empty() {
            let is_video = track.config.codec().kind() == TrackKind::Video;
            self.parts.push(Part { track: track.id, decode_time, is_video, samples });
        }
        self
    }

    /// True if the fragment has no samples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the fragment as slices in the order of writing: the headers, then the payload of each sample.
    pub fn write(self) -> Result<Vec<Bytes>, Error> {
        let media: u64 = self.parts.iter().map(Part::bytes).sum();
        let media_box = media.saturating_add(HEAD_BYTES as u64);
        let media_box = u32::try_from(media_box).map_err(|_| Error::TooLarge("media of a fragment"))?;
        let mut out = Out::new();
        // Positions at which the offsets of the runs are filled in later.
        let mut offsets = Vec::with_capacity(self.parts.len());
        out.boxed(b"moof", |out| {
            out.full(b"mfhd", 0, 0, |out| {
                out.u32(self.sequence);
            });
            for part in &self.parts {
                offsets.push(part.write(out));
            }
        });
        let mut offset = out.len().saturating_add(HEAD_BYTES) as u64;
        for (at, part) in offsets.into_iter().zip(&self.parts) {
            // data_offset is a signed field.
            let fitting = i32::try_from(offset).map_err(|_| Error::TooLarge("media of a fragment"))?;
            out.set_u32(at, fitting.cast_unsigned());
            offset = offset.saturating_add(part.bytes());
        }
        out.u32(media_box).bytes(b"mdat");
        let mut slices = vec![out.into_bytes()];
        let samples = self.parts.into_iter().flat_map(|part| part.samples);
        slices.extend(samples.map(|sample| sample.payload).filter(|payload| !payload.is_empty()));
        Ok(slices)
    }
}

/// Returns the common value of all items; `None` if they differ.
fn common<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

impl Part {
    /// Writes the `traf` (§8.8.6), and returns the position of its data_offset.
    fn write(&self, out: &mut Out) -> usize {
        let size = |sample: &FragmentSample| u32::try_from(sample.payload.len()).unwrap_or(u32::MAX);
        let duration = common(self.samples.iter().map(|sample| sample.duration));
        let same_size = common(self.samples.iter().map(size));
        // Usually all samples but the first have the same flags.
        let rest_flags = common(self.samples.iter().skip(1).map(|sample| self.flags(sample)));
        let first_flags = self.samples.first().map_or(SYNC, |sample| self.flags(sample));
        let default_flags = if self.samples.len() == 1 { Some(first_flags) } else { rest_flags };
        let mut offset_at = 0;
        out.boxed(b"traf", |out| {
            let has = |flag, value: Option<u32>| if value.is_some() { flag } else { 0 };
            let flags = TFHD_BASE_IS_MOOF
                | has(TFHD_DURATION, duration)
                | has(TFHD_SIZE, same_size)
                | has(TFHD_FLAGS, default_flags);
            out.full(b"tfhd", 0, flags, |out| {
                out.u32(self.track);
                for value in [duration, same_size, default_flags].into_iter().flatten() {
                    out.u32(value);
                }
            });
            out.full(b"tfdt", 1, 0, |out| {
                out.u64(self.decode_time);
            });
            let is_first_other = default_flags.is_some_and(|flags| flags != first_flags);
            let without = |flag, value: Option<u32>| if value.is_none() { flag } else { 0 };
            let composed = self.samples.iter().any(|sample| sample.composition != 0);
            let flags = TRUN_DATA_OFFSET
                | if is_first_other { TRUN_FIRST_FLAGS } else { 0 }
                | without(TRUN_DURATION, duration)
                | without(TRUN_SIZE, same_size)
                | without(TRUN_FLAGS, default_flags)
                | if composed { TRUN_COMPOSITION } else { 0 };
            // Version 1 of the box allows negative composition offsets.
            let is_signed = self.samples.iter().any(|sample| sample.composition < 0);
            out.full(b"trun", u8::from(is_signed), flags, |out| {
                out.u32(u32::try_from(self.samples.len()).unwrap_or(u32::MAX));
                offset_at = out.len();
                out.u32(0);
                if is_first_other {
                    out.u32(first_flags);
                }
                for sample in &self.samples {
                    let fields = [
                        (TRUN_DURATION, sample.duration),
                        (TRUN_SIZE, size(sample)),
                        (TRUN_FLAGS, self.flags(sample)),
                        (TRUN_COMPOSITION, sample.composition.cast_unsigned()),
                    ];
                    for (_, value) in fields.into_iter().filter(|(flag, _)| flags & flag != 0) {
                        out.u32(value);
                    }
                }
            });
            protection::write_samples(out, &self.samples);
        });
        offset_at
    }
}
