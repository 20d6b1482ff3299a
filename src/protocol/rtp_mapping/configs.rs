//! Configurations of a publisher's tracks, from its description if that has parameter sets, else from its frames.

use bytes::{BufMut, Bytes, BytesMut};
use media::CodecConfig;
use media::codec::{Codec, aac, av1, g711, h264, h265, opus, vp8, vp9};
use media::nal::{self, Nals};
use sdp::Format;

/// Bit depth and subsampling byte of a VP9 profile with 8 bits (VP9 in ISOBMFF §2.2): bit depth in the upper half;
/// 4:2:0, limited range below.
const VP9_8_BITS: u8 = 8 << 4 | 1 << 1;
const VP9_10_BITS: u8 = 10 << 4 | 1 << 1;
/// The value "not specified" (ISO/IEC 23091-2).
const COLOUR_UNSPECIFIED: u8 = 2;
/// Marker and version of an AV1CodecConfigurationRecord. The constants below stand for 8 bits with 4:2:0, and for level
/// 4.0.
const AV1_MARKER_AND_VERSION: u8 = 0x81;
const AV1_SUBSAMPLING_420: u8 = 0x0c;
const AV1_LEVEL_4_0: u8 = 8;

/// Returns the configuration of a track before any frame; `None` if only frames carry it.
pub(in crate::protocol) fn known_before(codec: Codec, format: &Format) -> Option<CodecConfig> {
    Some(match codec {
        Codec::Vp8 => CodecConfig::Vp8(vp8::Config::default()),
        Codec::Vp9 => CodecConfig::Vp9(vp9_of(format)?),
        // RFC 7587 §7: always two channels.
        Codec::Opus => CodecConfig::Opus(opus::Config::of_channels(2).ok()?),
        Codec::G711(law) => {
            let channels = u8::try_from(format.rtpmap.channels.unwrap_or(1)).ok()?;
            CodecConfig::G711(g711::Config { law, channels })
        }
        Codec::H264 => CodecConfig::H264(h264_of(format)?),
        Codec::H265 => CodecConfig::H265(h265_of(format)?),
        // In LATM, a StreamMuxConfig surrounds the configuration; the depacketiser reads it.
        Codec::Aac if !format.rtpmap.is("MP4A-LATM") => {
            CodecConfig::Aac(aac::Config::read(format.parameters.mpeg4_config().ok()??).ok()?)
        }
        Codec::Av1 | Codec::Aac | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => return None,
    })
}

fn h264_of(format: &Format) -> Option<h264::Config> {
    let sets = format.parameters.h264_sets().ok()?;
    let of = |kind| sets.iter().map(Bytes::as_ref).filter(|set| h264::nal_type(set) == kind).collect();
    let (sps, pps): (Vec<&[u8]>, Vec<&[u8]>) = (of(h264::NAL_SPS), of(h264::NAL_PPS));
    if pps.is_empty() {
        return None;
    }
    h264::Config::of_sets(&sps, &pps).ok()
}

fn h265_of(format: &Format) -> Option<h265::Config> {
    let sets = format.parameters.h265_sets().ok()?;
    let [vps, sps, pps] =
        [&sets.vps, &sets.sps, &sets.pps].map(|sets| sets.iter().map(Bytes::as_ref).collect::<Vec<&[u8]>>());
    if pps.is_empty() {
        return None;
    }
    h265::Config::of_sets(&vps, &sps, &pps).ok()
}

/// Returns the number of pictures that may come before one that is presented earlier; `None` if the parameter sets
/// do not say.
pub(in crate::protocol) fn reorder_of(config: &CodecConfig) -> Option<u8> {
    match config {
        CodecConfig::H264(config) => {
            let mut sets = config.parameter_sets();
            h264::Sps::read(sets.find(|set| h264::nal_type(set) == h264::NAL_SPS)?).ok()?.reorder
        }
        CodecConfig::H265(config) => {
            let mut sets = config.parameter_sets();
            h265::Sps::read(sets.find(|set| h265::nal_type(set) == Some(h265::NAL_SPS))?).ok()?.reorder
        }
        // These codecs present pictures in decoding order.
        CodecConfig::Vp8(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => Some(0),
    }
}

fn vp9_of(format: &Format) -> Option<vp9::Config> {
    let profile = u8::try_from(format.parameters.number("profile-id").unwrap_or(0)).ok()?;
    let depth = if profile < 2 { VP9_8_BITS } else { VP9_10_BITS };
    let colour = COLOUR_UNSPECIFIED;
    vp9::Config::read(Bytes::copy_from_slice(&[1, 0, 0, 0, profile, 0, depth, colour, colour, colour, 0, 0]))
        .ok()
}

/// Returns the configuration in a key frame, and the frame without its parameter sets.
pub(in crate::protocol) fn of_key_frame(codec: Codec, payload: &Bytes) -> (Option<CodecConfig>, Bytes) {
    let none = (None, payload.clone());
    match codec {
        Codec::H264 => {
            let is_set = |nal: &[u8]| matches!(h264::nal_type(nal), h264::NAL_SPS | h264::NAL_PPS);
            let of = |kind| nals(payload, move |nal| h264::nal_type(nal) == kind);
            let config = h264::Config::of_sets(&of(h264::NAL_SPS), &of(h264::NAL_PPS));
            config.map_or(none, |config| (Some(CodecConfig::H264(config)), without(payload, is_set)))
        }
        Codec::H265 => {
            let kinds = [h265::NAL_VPS, h265::NAL_SPS, h265::NAL_PPS];
            let is_set = |nal: &[u8]| h265::nal_type(nal).is_some_and(|kind| kinds.contains(&kind));
            let [vps, sps, pps] =
                kinds.map(|kind| nals(payload, move |nal| h265::nal_type(nal) == Some(kind)));
            let config = h265::Config::of_sets(&vps, &sps, &pps);
            config.map_or(none, |config| (Some(CodecConfig::H265(config)), without(payload, is_set)))
        }
        Codec::Av1 => (av1_of(payload).map(CodecConfig::Av1), payload.clone()),
        Codec::Vp8
        | Codec::Vp9
        | Codec::Opus
        | Codec::G711(_)
        | Codec::Aac
        | Codec::Mp3
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac => none,
    }
}

/// Returns width and height of a key frame, for codecs whose configuration does not state them.
pub(in crate::protocol) fn size_of_key_frame(codec: Codec, payload: &[u8]) -> Option<(u32, u32)> {
    match codec {
        Codec::Vp8 => vp8::picture_size(payload),
        Codec::Vp9 => vp9::picture_size(payload),
        Codec::H264
        | Codec::H265
        | Codec::Av1
        | Codec::Opus
        | Codec::G711(_)
        | Codec::Aac
        | Codec::Mp3
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac => None,
    }
}

fn nals(payload: &[u8], which: impl Fn(&[u8]) -> bool) -> Vec<&[u8]> {
    Nals::new(payload, 4).flatten().filter(|nal| which(nal)).collect()
}

/// Copies a frame without the NAL units that `is_left_out` selects. Called once per key frame.
fn without(payload: &[u8], is_left_out: impl Fn(&[u8]) -> bool) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len());
    Nals::new(payload, 4)
        .flatten()
        .filter(|nal| !is_left_out(nal))
        .for_each(|nal| nal::put_with_length(nal, &mut out));
    out.freeze()
}

/// Makes the configuration of a sequence header (AV1 in ISOBMFF §2.3.3).
fn av1_of(payload: &Bytes) -> Option<av1::Config> {
    let mut reader = wire::Reader::new(payload);
    while !reader.is_empty() {
        let obu = av1::read_obu(&mut reader).ok()?;
        if obu.kind != av1::OBU_SEQUENCE_HEADER {
            continue;
        }
        let mut record = BytesMut::new();
        // The header begins with seq_profile. The level is not read, because it follows fields of variable length; the
        // header itself contains it for decoders.
        let profile = obu.body.first()? & 0xe0;
        record.put_slice(&[AV1_MARKER_AND_VERSION, profile | AV1_LEVEL_4_0]);
        record.put_slice(&[AV1_SUBSAMPLING_420, 0]);
        // OBU header with a size field (AV1 §5.3.2).
        record.put_u8(av1::OBU_SEQUENCE_HEADER << 3 | 2);
        av1::put_leb128(obu.body.len(), &mut record);
        record.put_slice(obu.body);
        return av1::Config::read(record.freeze()).ok();
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// 640 x 360, High profile, as x264 writes it.
    pub(in crate::protocol::rtp_mapping) const SPS: &[u8] = &[
        0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01,
        0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2d, 0x96,
    ];
    pub(in crate::protocol::rtp_mapping) const PPS: &[u8] = &[0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0];
    /// The sequence header of SVT-AV1, 320 x 180, as an OBU with its size.
    const SEQUENCE: &[u8] = &[0x0a, 0x0b, 0x02, 0x00, 0x00, 0x05, 0x21, 0xe7, 0xf6, 0x60, 0x17, 0xc0, 0x02];

    fn with_lengths(nals: &[&[u8]]) -> Bytes {
        let mut out = BytesMut::new();
        nals.iter().for_each(|nal| nal::put_with_length(nal, &mut out));
        out.freeze()
    }

    #[test]
    fn parameter_sets_are_taken_out_of_a_key_frame() {
        let picture: &[u8] = &[0x65, 1, 2, 3];
        let (config, rest) = of_key_frame(Codec::H264, &with_lengths(&[SPS, PPS, picture]));
        assert_eq!(config, Some(CodecConfig::H264(h264::Config::of_sets(&[SPS], &[PPS]).unwrap())));
        assert_eq!(rest, with_lengths(&[picture]));
        // Without parameter sets the frame stays as it is.
        let bare = with_lengths(&[picture]);
        assert_eq!(of_key_frame(Codec::H264, &bare), (None, bare.clone()));
        assert_eq!(of_key_frame(Codec::Vp8, &bare), (None, bare));
    }

    #[test]
    fn the_record_of_av1_is_made_of_its_sequence_header() {
        let delimiter: &[u8] = &[0x12, 0x00];
        let unit = Bytes::from([delimiter, SEQUENCE].concat());
        let (config, rest) = of_key_frame(Codec::Av1, &unit);
        let Some(CodecConfig::Av1(config)) = config else { panic!("{config:?}") };
        assert_eq!((config.profile, config.size), (0, Some((320, 180))));
        assert_eq!(config.record, [&[0x81, 0x08, 0x0c, 0x00][..], SEQUENCE].concat());
        assert_eq!(rest, unit);
        assert_eq!(of_key_frame(Codec::Av1, &Bytes::from_static(delimiter)).0, None);
    }

    #[test]
    fn sizes_are_read_from_pictures_of_codecs_whose_configuration_has_none() {
        let vp8 = [0x10, 0, 0, 0x9d, 0x01, 0x2a, 0x80, 0x02, 0x68, 0x01];
        assert_eq!(size_of_key_frame(Codec::Vp8, &vp8), Some((640, 360)));
        let vp9 = [0x82, 0x49, 0x83, 0x42, 0x20, 0x4f, 0xf0, 0x2c, 0xf0];
        assert_eq!(size_of_key_frame(Codec::Vp9, &vp9), Some((1280, 720)));
        assert_eq!(size_of_key_frame(Codec::H264, &vp8), None);
    }

    #[test]
    fn what_a_description_does_not_have_a_frame_must_tell() {
        let known = |rtpmap: &str, codec| {
            let text = format!(
                "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nt=0 0\r\nm=audio 0 RTP/AVP 96\r\na=rtpmap:96 {rtpmap}\r\n\
                 a=fmtp:96 config=1190; mode=AAC-hbr\r\n"
            );
            let description = sdp::Description::read(text.as_bytes()).unwrap();
            let format = description.media[0].rtp_formats().next().unwrap();
            known_before(codec, &format)
        };
        let aac = aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        assert_eq!(known("mpeg4-generic/48000/2", Codec::Aac), Some(CodecConfig::Aac(aac)));
        assert_eq!(known("MP4A-LATM/90000", Codec::Aac), None);
        assert_eq!(known("H264/90000", Codec::H264), None);
        assert_eq!(known("H265/90000", Codec::H265), None);
    }
}
