//! Track entries (RFC 9559 §5.1.4) and their content for each codec (Matroska Codec Specifications; AV1 in Matroska;
//! private data of the VP codecs in the WebM Container Guidelines).

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use media::codec::{opus, vp8, vp9};
use media::{Codec, CodecConfig, TrackKind, language};
use wire::Reader;

use crate::ebml::{put_binary, put_float, put_master, put_uint};
use crate::id;

/// Value of TrackType for video.
const VIDEO: u64 = 1;
const AUDIO: u64 = 2;
/// Time in nanoseconds that an Opus decoder needs before a seek point (RFC 7845 §4.6).
const OPUS_PRE_ROLL_NS: u64 = 80_000_000;
/// Code point of H.273 for an unspecified value.
const UNSPECIFIED: u8 = 2;

/// Returns whether WebM supports the codec.
#[must_use]
pub const fn carries(codec: Codec) -> bool {
    codec_id(codec).is_some()
}

/// CodecID of a codec.
const fn codec_id(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::Vp8 => Some("V_VP8"),
        Codec::Vp9 => Some("V_VP9"),
        Codec::Av1 => Some("V_AV1"),
        Codec::Opus => Some("A_OPUS"),
        Codec::H264
        | Codec::H265
        | Codec::Aac
        | Codec::Mp3
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac
        | Codec::G711(_) => None,
    }
}

/// Description of a track for the head of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// TrackNumber, from 1 to 126.
    pub number: u8,
    /// Codec with its parameter sets.
    pub config: CodecConfig,
    /// Language as a BCP 47 tag. Only three-letter codes are written to the file.
    pub language: Option<Arc<str>>,
    /// Width and height of the pictures; only needed if neither the configuration nor the first unit contains them.
    pub size: Option<(u32, u32)>,
    /// First access unit, which contains the picture size of VP8 and VP9.
    pub first_unit: Bytes,
}

impl Description {
    /// Describes a stream's track as the track `number` of a file.
    #[must_use]
    pub fn of_track(number: u8, track: &media::Track) -> Self {
        Self {
            number,
            config: track.config.clone(),
            language: track.language.clone(),
            size: track.picture_size(),
            first_unit: Bytes::new(),
        }
    }

    /// True if a file can contain the track: WebM supports its codec, and the picture size is known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let codec = self.config.codec();
        carries(codec) && (codec.kind() == TrackKind::Audio || self.picture_size().is_some())
    }

    /// CodecDelay in nanoseconds: a decoder discards this much at the start. The times of blocks include it.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        match &self.config {
            CodecConfig::Opus(config) => {
                u64::from(config.pre_skip).saturating_mul(1_000_000_000) / u64::from(opus::SAMPLE_RATE)
            }
            CodecConfig::Vp8(_)
            | CodecConfig::Vp9(_)
            | CodecConfig::Av1(_)
            | CodecConfig::H264(_)
            | CodecConfig::H265(_)
            | CodecConfig::Aac(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => 0,
        }
    }

    fn picture_size(&self) -> Option<(u32, u32)> {
        let of_unit = match self.config.codec() {
            Codec::Vp8 => vp8::picture_size(&self.first_unit),
            Codec::Vp9 => vp9::picture_size(&self.first_unit),
            Codec::Av1
            | Codec::Opus
            | Codec::H264
            | Codec::H265
            | Codec::Aac
            | Codec::Mp3
            | Codec::Ac3
            | Codec::Eac3
            | Codec::Flac
            | Codec::G711(_) => None,
        };
        of_unit.or_else(|| self.config.picture_size()).or(self.size)
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        let codec = self.config.codec();
        let Some(name) = codec_id(codec) else { return };
        put_master(out, id::TRACK_ENTRY, |out| {
            put_uint(out, id::TRACK_NUMBER, self.number.into());
            put_uint(out, id::TRACK_UID, self.number.into());
            put_uint(out, id::TRACK_TYPE, if codec == Codec::Opus { AUDIO } else { VIDEO });
            put_uint(out, id::FLAG_LACING, 0);
            let language = self.language.as_deref().and_then(bibliographic).unwrap_or(*b"und");
            put_binary(out, id::LANGUAGE, &language);
            put_binary(out, id::CODEC_ID, name.as_bytes());
            self.put_codec(out);
        });
    }

    fn put_codec(&self, out: &mut BytesMut) {
        match &self.config {
            CodecConfig::Opus(config) => put_opus(out, config, self.delay_ns()),
            CodecConfig::Av1(config) => {
                put_binary(out, id::CODEC_PRIVATE, &config.record);
                self.put_video(out, &[]);
            }
            CodecConfig::Vp9(config) => {
                put_binary(out, id::CODEC_PRIVATE, &vp9_features(config));
                self.put_video(out, &config.record);
            }
            CodecConfig::Vp8(config) => self.put_video(out, &config.record),
            CodecConfig::H264(_)
            | CodecConfig::H265(_)
            | CodecConfig::Aac(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => {}
        }
    }

    /// Appends the video settings. If the VPCodecConfigurationBox `vpcc` contains colours, they are included.
    fn put_video(&self, out: &mut BytesMut, vpcc: &[u8]) {
        let (width, height) = self.picture_size().unwrap_or((0, 0));
        put_master(out, id::VIDEO, |out| {
            put_uint(out, id::PIXEL_WIDTH, width.into());
            put_uint(out, id::PIXEL_HEIGHT, height.into());
            if let Ok(Some(colour)) = Colour::of_vpcc(vpcc) {
                colour.put(out);
            }
        });
    }
}

/// Returns the language of a tag as `Language` has it: as the bibliographic code of ISO 639-2 (RFC 9559 §12). `None` if
/// the language has no code of three letters.
fn bibliographic(tag: &str) -> Option<[u8; 3]> {
    let code = language::three_letters(tag)?;
    let row = BIBLIOGRAPHIC.iter().find(|(terminological, _)| **terminological == code);
    Some(row.map_or(code, |(_, bibliographic)| **bibliographic))
}

/// Terminological codes of ISO 639-2 that differ from the bibliographic ones.
const BIBLIOGRAPHIC: [(&[u8; 3], &[u8; 3]); 20] = [
    (b"bod", b"tib"),
    (b"ces", b"cze"),
    (b"cym", b"wel"),
    (b"deu", b"ger"),
    (b"ell", b"gre"),
    (b"eus", b"baq"),
    (b"fas", b"per"),
    (b"fra", b"fre"),
    (b"hye", b"arm"),
    (b"isl", b"ice"),
    (b"kat", b"geo"),
    (b"mkd", b"mac"),
    (b"mri", b"mao"),
    (b"msa", b"may"),
    (b"mya", b"bur"),
    (b"nld", b"dut"),
    (b"ron", b"rum"),
    (b"slk", b"slo"),
    (b"sqi", b"alb"),
    (b"zho", b"chi"),
];

fn put_opus(out: &mut BytesMut, config: &opus::Config, delay_ns: u64) {
    // A stream may lack an identification header, but a file needs one.
    let made = if config.record.is_empty() { opus::Config::of_channels(config.channels).ok() } else { None };
    let record = made.map_or_else(|| config.record.clone(), |made| made.record);
    put_binary(out, id::CODEC_PRIVATE, &record);
    put_uint(out, id::CODEC_DELAY, delay_ns);
    put_uint(out, id::SEEK_PRE_ROLL, OPUS_PRE_ROLL_NS);
    put_master(out, id::AUDIO, |out| {
        put_float(out, id::SAMPLING_FREQUENCY, opus::SAMPLE_RATE.into());
        put_uint(out, id::CHANNELS, config.channels.into());
    });
}

/// Makes the features of VP9: ID, length and value of each (WebM Container Guidelines, VP9 Codec Feature Metadata).
fn vp9_features(config: &vp9::Config) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(&[1, 1, config.profile]);
    if config.level > 0 {
        out.put_slice(&[2, 1, config.level]);
    }
    out.put_slice(&[3, 1, config.bit_depth]);
    out
}

/// Colour settings (code points of ITU-T H.273).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Colour {
    bits: u8,
    full_range: bool,
    primaries: u8,
    transfer: u8,
    matrix: u8,
}

impl Colour {
    /// Reads the colours from a record: version and flags, profile, level, then bit depth (4), subsampling (3) and
    /// range (1), and the code points (VP Codec ISO Media File Format Binding §2.2). Returns `None` if they are
    /// unspecified.
    fn of_vpcc(record: &[u8]) -> Result<Option<Self>, wire::Truncated> {
        let mut reader = Reader::new(record);
        reader.take(4 + 2)?;
        let depth = reader.u8()?;
        let [primaries, transfer, matrix] = reader.array()?;
        let colour = Self { bits: depth >> 4, full_range: depth & 1 != 0, primaries, transfer, matrix };
        Ok(Some(colour).filter(|_| [primaries, transfer, matrix] != [UNSPECIFIED; 3]))
    }

    fn put(self, out: &mut BytesMut) {
        put_master(out, id::COLOUR, |out| {
            put_uint(out, id::MATRIX_COEFFICIENTS, self.matrix.into());
            put_uint(out, id::BITS_PER_CHANNEL, self.bits.into());
            put_uint(out, id::RANGE, if self.full_range { 2 } else { 1 });
            put_uint(out, id::TRANSFER_CHARACTERISTICS, self.transfer.into());
            put_uint(out, id::PRIMARIES, self.primaries.into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ebml::{read_element, read_uint};
    use crate::testing::{config, description};

    /// The children of an element, by ID.
    fn children(body: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut reader = Reader::new(body);
        let mut found = Vec::new();
        while !reader.is_empty() {
            let (id, body) = read_element(&mut reader).unwrap();
            found.push((id, body.to_vec()));
        }
        found
    }

    fn entry(track: &Description) -> Vec<(u32, Vec<u8>)> {
        let mut out = BytesMut::new();
        track.put(&mut out);
        children(&children(&out)[0].1)
    }

    fn get(found: &[(u32, Vec<u8>)], id: u32) -> Option<Vec<u8>> {
        found.iter().find(|(one, _)| *one == id).map(|(_, body)| body.clone())
    }

    #[test]
    fn each_codec_has_what_its_mapping_wants() {
        let opus = entry(&description(2, Codec::Opus));
        assert_eq!(get(&opus, id::CODEC_ID).unwrap(), b"A_OPUS");
        assert!(get(&opus, id::CODEC_PRIVATE).unwrap().starts_with(b"OpusHead"));
        assert_eq!(get(&opus, id::CODEC_DELAY).map(|body| read_uint(&body)), Some(Ok(6_500_000)));
        assert_eq!(get(&opus, id::SEEK_PRE_ROLL).map(|body| read_uint(&body)), Some(Ok(80_000_000)));
        let vp9 = entry(&description(1, Codec::Vp9));
        assert_eq!(get(&vp9, id::CODEC_PRIVATE).unwrap(), [1, 1, 0, 2, 1, 11, 3, 1, 8]);
        let video = children(&get(&vp9, id::VIDEO).unwrap());
        assert_eq!(get(&video, id::PIXEL_WIDTH).map(|body| read_uint(&body)), Some(Ok(1280)));
        let colour = children(&get(&video, id::COLOUR).unwrap());
        assert_eq!(get(&colour, id::PRIMARIES).unwrap(), [9]);
        assert_eq!(get(&colour, id::RANGE).unwrap(), [1]);
        let av1 = entry(&description(1, Codec::Av1));
        assert_eq!(get(&av1, id::CODEC_PRIVATE).unwrap(), config(Codec::Av1).record()[..]);
        let vp8 = entry(&description(1, Codec::Vp8));
        assert_eq!(get(&vp8, id::CODEC_PRIVATE), None);
        for found in [opus, vp9, av1, vp8] {
            assert_eq!(
                (get(&found, id::FLAG_LACING).unwrap(), get(&found, id::LANGUAGE).unwrap()),
                (vec![0], b"und".to_vec())
            );
        }
    }

    #[test]
    fn opus_without_a_header_gets_one() {
        let config = opus::Config::read(Bytes::new()).unwrap();
        let track = Description {
            config: CodecConfig::Opus(config),
            language: Some("deu".into()),
            ..description(1, Codec::Opus)
        };
        let found = entry(&track);
        let head = opus::Config::read(get(&found, id::CODEC_PRIVATE).unwrap().into()).unwrap();
        assert_eq!((head.channels, head.pre_skip, track.delay_ns()), (2, 0, 0));
        assert_eq!(get(&found, id::LANGUAGE).unwrap(), b"ger");
    }

    #[test]
    fn languages_are_bibliographic_codes() {
        for (tag, code) in [
            ("de", "ger"),
            ("de-AT", "ger"),
            ("deu", "ger"),
            ("ger", "ger"),
            ("en", "eng"),
            ("FR", "fre"),
            ("gsw", "gsw"),
            ("qq", "und"),
            ("tlh-Latn", "tlh"),
            ("x", "und"),
        ] {
            let track = Description { language: Some(tag.into()), ..description(1, Codec::Opus) };
            assert_eq!(get(&entry(&track), id::LANGUAGE).unwrap(), code.as_bytes(), "{tag}");
        }
    }

    #[test]
    fn a_track_is_complete_with_its_size() {
        let sized = description(1, Codec::Vp8);
        assert!(sized.is_complete() && description(1, Codec::Opus).is_complete());
        let unknown = Description { first_unit: Bytes::new(), ..sized };
        assert!(!unknown.is_complete());
        assert!(Description { size: Some((16, 16)), ..unknown }.is_complete());
        for codec in Codec::ALL {
            let carried = matches!(codec, Codec::Vp8 | Codec::Vp9 | Codec::Av1 | Codec::Opus);
            assert_eq!(carries(codec), carried, "{codec}");
        }
    }
}
