//! The index of a plain file: sample tables (ISO/IEC 14496-12 §8.6 and §8.7), collected while the media is written, and
//! written at the end.

use alloc::vec::Vec;

use bytes::Bytes;

use super::out::Out;
use super::{Description, file_type, movie};
use crate::Error;

/// Length of a [`media_head`].
pub const MEDIA_HEAD_BYTES: usize = 16;
/// Size after which a chunk ends, so that players need not search long chunks for a sample.
const CHUNK_BYTES_MAX: u64 = 1024 * 1024;

/// A sample of a plain file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSample {
    /// Offset of the sample, counted from the first byte of the media.
    pub offset: u64,
    /// Size of the sample, in bytes.
    pub size: u32,
    /// Ticks to the next sample.
    pub duration: u32,
    /// Presentation time − decode time, in ticks.
    pub composition: i32,
    /// True if decoding can start with the sample. Only used for video, since decoding audio can start with any sample.
    pub key_frame: bool,
}

/// Adjacent samples of one track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    offset: u64,
    samples: u32,
}

/// Samples of one track of a plain file. Memory: four bytes for each sample, and eight for each run of equal durations
/// or composition offsets, each key frame and each chunk. The owner must limit their number.
#[derive(Debug, Clone)]
pub struct TrackIndex {
    /// Description of the track.
    pub description: Description,
    sizes: Vec<u32>,
    durations: Vec<(u32, u32)>,
    compositions: Vec<(u32, i32)>,
    /// Numbers of key frames, counted from 1.
    key_frames: Vec<u32>,
    chunks: Vec<Chunk>,
    /// Offset at which the last sample ends.
    end: u64,
    duration: u64,
    /// Interval of presentation times in ticks, from the first sample presented to the end of the last one.
    presented: Option<(i64, i64)>,
}

/// Appends a value to a run-length coded list.
fn add<T: PartialEq>(runs: &mut Vec<(u32, T)>, value: T) {
    match runs.last_mut() {
        Some((count, last)) if *last == value && *count < u32::MAX => *count += 1,
        _ => runs.push((1, value)),
    }
}

impl TrackIndex {
    /// Creates the index of a track without samples.
    #[must_use]
    pub const fn new(description: Description) -> Self {
        Self {
            description,
            sizes: Vec::new(),
            durations: Vec::new(),
            compositions: Vec::new(),
            key_frames: Vec::new(),
            chunks: Vec::new(),
            end: 0,
            duration: 0,
            presented: None,
        }
    }

    /// Appends the next sample in decoding order.
    pub fn push(&mut self, sample: &IndexSample) {
        self.sizes.push(sample.size);
        add(&mut self.durations, sample.duration);
        add(&mut self.compositions, sample.composition);
        if sample.key_frame {
            self.key_frames.push(u32::try_from(self.sizes.len()).unwrap_or(u32::MAX));
        }
        match self.chunks.last_mut() {
            Some(chunk)
                if self.end == sample.offset
                    && sample.offset.saturating_sub(chunk.offset) < CHUNK_BYTES_MAX =>
            {
                chunk.samples = chunk.samples.saturating_add(1);
            }
            _ => self.chunks.push(Chunk { offset: sample.offset, samples: 1 }),
        }
        self.end = sample.offset.saturating_add(sample.size.into());
        let begin =
            i64::try_from(self.duration).unwrap_or(i64::MAX).saturating_add(sample.composition.into());
        let end = begin.saturating_add(sample.duration.into());
        let (first, last) = self.presented.unwrap_or((begin, end));
        self.presented = Some((first.min(begin), last.max(end)));
        self.duration = self.duration.saturating_add(sample.duration.into());
    }

    /// Returns the first presentation time of the media, and the end of the sample presented last.
    pub(super) fn presented(&self) -> (i64, i64) {
        self.presented.unwrap_or_default()
    }

    /// Sum of the durations, in ticks.
    #[must_use]
    pub const fn duration(&self) -> u64 {
        self.duration
    }

    /// The number of samples.
    #[must_use]
    pub const fn samples(&self) -> usize {
        self.sizes.len()
    }

    /// Writes the boxes of `stbl` after `stsd`.
    pub(super) fn write(&self, out: &mut Out, media_offset: u64, is_wide: bool) {
        // Decoding times (§8.6.1.2).
        out.full(b"stts", 0, 0, |out| {
            out.u32(count(&self.durations));
            self.durations.iter().for_each(|(count, value)| {
                out.u32(*count).u32(*value);
            });
        });
        // Sync samples (§8.6.2). Without the box every sample is a sync sample.
        if !self.key_frames.is_empty() && self.key_frames.len() < self.sizes.len() {
            out.full(b"stss", 0, 0, |out| {
                out.u32(count(&self.key_frames));
                self.key_frames.iter().for_each(|number| {
                    out.u32(*number);
                });
            });
        }
        // Composition times (§8.6.1.3). Version 1 of the box allows negative offsets.
        if self.compositions.iter().any(|(_, value)| *value != 0) {
            let is_signed = self.compositions.iter().any(|(_, value)| *value < 0);
            out.full(b"ctts", u8::from(is_signed), 0, |out| {
                out.u32(count(&self.compositions));
                self.compositions.iter().for_each(|(count, value)| {
                    out.u32(*count).i32(*value);
                });
            });
        }
        self.write_places(out, media_offset, is_wide);
    }

    /// Writes sizes (§8.7.3.2), chunks (§8.7.4) and their offsets (§8.7.5).
    fn write_places(&self, out: &mut Out, media_offset: u64, is_wide: bool) {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut number = 0u32;
        for chunk in &self.chunks {
            number = number.saturating_add(1);
            if runs.last().is_none_or(|(_, samples)| *samples != chunk.samples) {
                runs.push((number, chunk.samples));
            }
        }
        out.full(b"stsc", 0, 0, |out| {
            out.u32(count(&runs));
            // All samples use the first sample entry.
            runs.iter().for_each(|(first, samples)| {
                out.u32(*first).u32(*samples).u32(1);
            });
        });
        let first = self.sizes.first().copied().unwrap_or(0);
        let is_same = first > 0 && self.sizes.iter().all(|size| *size == first);
        out.full(b"stsz", 0, 0, |out| {
            out.u32(if is_same { first } else { 0 }).u32(count(&self.sizes));
            if !is_same {
                self.sizes.iter().for_each(|size| {
                    out.u32(*size);
                });
            }
        });
        out.full(if is_wide { b"co64" } else { b"stco" }, 0, 0, |out| {
            out.u32(count(&self.chunks));
            for chunk in &self.chunks {
                let offset = media_offset.saturating_add(chunk.offset);
                match u32::try_from(offset) {
                    Ok(offset) if !is_wide => out.u32(offset),
                    _ => out.u64(offset),
                };
            }
        });
    }

    fn last_offset(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.offset).max().unwrap_or(0)
    }
}

fn count<T>(entries: &[T]) -> u32 {
    u32::try_from(entries.len()).unwrap_or(u32::MAX)
}

/// Returns the `moov` of a plain file whose media begins at offset `media_offset`, for example after a `ftyp` and a
/// [`media_head`]. The `moov` may be placed before or after the media. Its size depends on `media_offset` only because
/// offsets above 2^32 take eight bytes.
pub fn moov(tracks: &[TrackIndex], media_offset: u64) -> Result<Bytes, Error> {
    let last = tracks.iter().map(TrackIndex::last_offset).max().unwrap_or(0);
    let is_wide = media_offset.saturating_add(last) > u32::MAX.into();
    written(tracks, media_offset, is_wide)
}

fn written(tracks: &[TrackIndex], media_offset: u64, is_wide: bool) -> Result<Bytes, Error> {
    if tracks.iter().any(|track| u32::try_from(track.sizes.len()).is_err()) {
        return Err(Error::TooLarge("samples of a track"));
    }
    let mut out = Out::new();
    movie::plain(&mut out, tracks, media_offset, is_wide)?;
    if u32::try_from(out.len()).is_err() {
        return Err(Error::TooLarge("moov"));
    }
    Ok(out.into_bytes())
}

/// Returns everything before the media of a plain file with its index first: `ftyp`, `moov`, and the header of an
/// `mdat` of `media_bytes` bytes.
pub fn file_head(tracks: &[TrackIndex], media_bytes: u64) -> Result<Bytes, Error> {
    let descriptions: Vec<&Description> = tracks.iter().map(|track| &track.description).collect();
    let file_type = file_type(&descriptions, false);
    let before = |moov: &Bytes| (file_type.len() + moov.len() + MEDIA_HEAD_BYTES) as u64;
    // The size of the `moov` depends only on whether its offsets need 64 bits. So the `moov` is first written with an
    // offset of 0 to measure it, and then with the real offset.
    let last = tracks.iter().map(TrackIndex::last_offset).max().unwrap_or(0);
    let narrow = written(tracks, 0, false)?;
    let is_wide = before(&narrow).saturating_add(last) > u32::MAX.into();
    let measured = if is_wide { written(tracks, 0, true)? } else { narrow };
    let moov = written(tracks, before(&measured), is_wide)?;
    let mut out = Out::new();
    out.bytes(&file_type).bytes(&moov).bytes(&media_head(media_bytes));
    Ok(out.into_bytes())
}

/// Returns the header of an `mdat` of `media_bytes` bytes. Its size field always has 64 bits, so that the header can be
/// written first and its size filled in later.
#[must_use]
pub fn media_head(media_bytes: u64) -> [u8; MEDIA_HEAD_BYTES] {
    let [a, b, c, d, e, f, g, h] = media_bytes.saturating_add(MEDIA_HEAD_BYTES as u64).to_be_bytes();
    [0, 0, 0, 1, b'm', b'd', b'a', b't', a, b, c, d, e, f, g, h]
}
