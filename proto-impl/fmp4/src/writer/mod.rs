//! Writes init segments, fragments, and the index of plain files. Values are only checked for fitting their fields.

mod entry;
mod fragment;
mod index;
mod movie;
pub(crate) mod out;
mod protection;
mod recording;
mod segment;
#[cfg(test)]
mod tests;
mod text;

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use media::codec::{vp8, vp9};
use media::{CodecConfig, Timescale};

pub use self::fragment::{Fragment, FragmentSample};
pub use self::index::{IndexSample, MEDIA_HEAD_BYTES, TrackIndex, file_head, media_head, moov};
use self::out::Out;
pub use self::protection::{Protection, SUBSAMPLES_MAX, Subsample};
pub use self::recording::{PlainHead, plain_head, recording_head};
pub use self::segment::{EventMessage, ID3_SCHEME, Reference, SPLICE_SCHEME, Sidx, prft, styp};
pub use self::text::{TextCue, text_init_segment, text_segment};
use crate::Error;

/// Bit rate of a track's media (`btrt`, ISO/IEC 14496-12 §8.5.2.2). 0 means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BitRate {
    /// Size of the decoding buffer, in bytes.
    pub buffer_bytes: u32,
    /// Maximum number of bits in any second.
    pub max: u32,
    /// Average bits per second.
    pub average: u32,
}

/// Colour interpretation of a video track (`colr` of type `nclx`, ISO/IEC 14496-12 §12.1.5; code points of ITU-T
/// H.273).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    /// colour_primaries.
    pub primaries: u16,
    /// transfer_characteristics.
    pub transfer: u16,
    /// matrix_coefficients.
    pub matrix: u16,
    /// full_range_flag.
    pub full_range: bool,
}

/// Description of a track for an index.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// track_ID, counted from 1.
    pub id: u32,
    /// Codec and parameter sets of the track.
    pub config: CodecConfig,
    /// Timescale of the timestamps.
    pub timescale: Timescale,
    /// Language, as a BCP 47 tag.
    pub language: Option<Arc<str>>,
    /// Media time that is presented at zero, in ticks, written as an edit list if it is not 0 (ISO/IEC 14496-12
    /// §8.6.6). Usually the first presentation time. A negative value delays the track by an empty edit, in whole
    /// milliseconds, which CMAF does not allow (ISO/IEC 23000-19 §7.5).
    pub media_start: i64,
    /// Width and height of pictures; only needed if neither the configuration nor the first unit contains them.
    pub size: Option<(u32, u32)>,
    /// First access unit, needed for the description of AC-3 and E-AC-3 and for the size of VP8 and VP9; may be empty
    /// for other codecs.
    pub first_unit: Bytes,
    /// True if samples may contain parameter sets: `avc3` and `hev1` instead of `avc1` and `hvc1` (ISO/IEC
    /// 14496-15 §5.4.2.1, §8.4.1.1).
    pub in_band: bool,
    /// Bit rate, if known.
    pub bit_rate: Option<BitRate>,
    /// Width and height of a pixel (`pasp`, ISO/IEC 14496-12 §12.1.4).
    pub pixel_aspect: Option<(u32, u32)>,
    /// Colour interpretation, if known.
    pub colour: Option<Colour>,
    /// Encryption of the samples.
    pub protection: Option<Protection>,
}

impl Description {
    /// Describes a track by its configuration; everything else is unknown.
    #[must_use]
    pub const fn new(id: u32, config: CodecConfig, timescale: Timescale) -> Self {
        Self {
            id,
            config,
            timescale,
            language: None,
            media_start: 0,
            size: None,
            first_unit: Bytes::new(),
            in_band: false,
            bit_rate: None,
            pixel_aspect: None,
            colour: None,
            protection: None,
        }
    }

    /// Describes a track of a stream that gets the track_ID `id` in the file.
    #[must_use]
    pub fn of_track(id: u32, track: &media::Track) -> Self {
        Self {
            language: track.language.clone(),
            size: track.picture_size(),
            ..Self::new(id, track.config.clone(), track.timescale)
        }
    }

    /// Returns the width and height if they are known.
    fn picture_size(&self) -> Option<(u32, u32)> {
        let of_unit = || match &self.config {
            CodecConfig::Vp8(_) => vp8::picture_size(&self.first_unit),
            CodecConfig::Vp9(_) => vp9::picture_size(&self.first_unit),
            CodecConfig::H264(_)
            | CodecConfig::H265(_)
            | CodecConfig::Av1(_)
            | CodecConfig::Aac(_)
            | CodecConfig::Opus(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => None,
        };
        self.config.picture_size().or(self.size).or_else(of_unit)
    }
}

/// Returns the `ftyp` of a file with these tracks (§4.3). A single fragmented track is a CMAF track (`cmfc`, ISO/IEC
/// 23000-19 §7).
#[must_use]
pub fn file_type(tracks: &[&Description], is_fragmented: bool) -> Bytes {
    let mut out = Out::new();
    out.boxed(b"ftyp", |out| {
        out.bytes(if is_fragmented { b"iso6" } else { b"isom" }).u32(512);
        out.bytes(b"iso6mp41");
        if is_fragmented && tracks.len() == 1 {
            out.bytes(b"cmfc");
        }
        if !is_fragmented {
            out.bytes(b"isommp42");
        }
        // A file with AV1 must list the brand `av01` (AV1 Codec ISO Media File Format Binding §2.1).
        if tracks.iter().any(|track| matches!(track.config, CodecConfig::Av1(_))) {
            out.bytes(b"av01");
        }
    });
    out.into_bytes()
}

/// Returns the init segment of a fragmented file: `ftyp`, and a `moov` without samples (ISO/IEC 14496-12 §8.8).
pub fn init_segment(tracks: &[Description]) -> Result<Bytes, Error> {
    let tracks: Vec<&Description> = tracks.iter().collect();
    let mut out = Out::new();
    out.bytes(&file_type(&tracks, true));
    movie::fragmented(&mut out, &tracks)?;
    Ok(out.into_bytes())
}
