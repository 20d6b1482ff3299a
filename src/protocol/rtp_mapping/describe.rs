//! Tracks as formats of a session description: encoding, clock, parameter sets.

use bytes::Bytes;
use media::codec::{g711, h265};
use media::{CodecConfig, Timescale, Track, TrackKind};
use sdp::{Format, Formats, H265Sets, Media, MediaKind, Parameters, PayloadType, Rtpmap};

/// RTP clock rate of video and of MP3 (RFC 3551 §6).
const VIDEO_TICKS: u32 = 90_000;
/// RTP clock rate of Opus at any sample rate (RFC 7587 §4.1).
const OPUS_TICKS: u32 = 48_000;
/// The first dynamic payload type (RFC 3551 §6). `DYNAMIC_COUNT` is the number of dynamic ones.
const DYNAMIC_FIRST: u8 = 96;
const DYNAMIC_COUNT: u8 = 32;
/// Static payload types (RFC 3551 §6).
const PCMU: u8 = 0;
const PCMA: u8 = 8;
const MPA: u8 = 14;

/// Returns the RTP clock rate of a track; `None` if its codec is not supported over RTP.
pub(in crate::protocol) fn clock_of(config: &CodecConfig) -> Option<Timescale> {
    Some(Timescale::new(match config {
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Mp3(_) => VIDEO_TICKS,
        CodecConfig::Aac(config) => config.sample_rate,
        // Opus with more than two channels has no registered RTP format.
        CodecConfig::Opus(config) if config.channels <= 2 => OPUS_TICKS,
        CodecConfig::G711(_) => g711::Config::SAMPLE_RATE,
        CodecConfig::Opus(_) | CodecConfig::Ac3(_) | CodecConfig::Eac3(_) | CodecConfig::Flac(_) => {
            return None;
        }
    }))
}

/// Returns the payload type of a track: the static one of its codec or, if there is none, a dynamic one chosen by the
/// track's number.
pub(in crate::protocol) fn payload_type_of(track: &Track) -> Option<PayloadType> {
    let dynamic = DYNAMIC_FIRST.saturating_add(track.id.number() % DYNAMIC_COUNT);
    let number = match &track.config {
        CodecConfig::G711(config) if config.channels == 1 => match config.law {
            g711::Law::Mu => PCMU,
            g711::Law::A => PCMA,
        },
        CodecConfig::Mp3(_) => MPA,
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::G711(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => dynamic,
    };
    PayloadType::new(number)
}

/// Makes a section for a track, without a transport; `None` if its codec is not supported over RTP.
pub(in crate::protocol) fn section_of(track: &Track) -> Option<Media> {
    let payload_type = payload_type_of(track)?;
    let kind = match track.kind() {
        TrackKind::Video => MediaKind::Video,
        TrackKind::Audio => MediaKind::Audio,
        TrackKind::Data => return None,
    };
    let mut section = Media::new(kind, 0, "RTP/AVP", Formats::Rtp(vec![payload_type]));
    section.push_format(&format_of(track, payload_type)?);
    Some(section)
}

fn format_of(track: &Track, payload_type: PayloadType) -> Option<Format> {
    let clock_rate = clock_of(&track.config)?.ticks();
    let (encoding, channels) = match &track.config {
        CodecConfig::H264(_) => ("H264", None),
        CodecConfig::H265(_) => ("H265", None),
        CodecConfig::Vp8(_) => ("VP8", None),
        CodecConfig::Vp9(_) => ("VP9", None),
        CodecConfig::Av1(_) => ("AV1", None),
        CodecConfig::Mp3(_) => ("MPA", None),
        CodecConfig::Aac(config) => ("mpeg4-generic", Some(config.channels().unwrap_or(2).into())),
        CodecConfig::Opus(_) => ("opus", Some(2)),
        CodecConfig::G711(config) => {
            let name = if config.law == g711::Law::Mu { "PCMU" } else { "PCMA" };
            (name, Some(u16::from(config.channels)).filter(|channels| *channels > 1))
        }
        CodecConfig::Ac3(_) | CodecConfig::Eac3(_) | CodecConfig::Flac(_) => return None,
    };
    let rtpmap = Rtpmap { payload_type, encoding: encoding.to_owned(), clock_rate, channels };
    Some(Format { rtpmap, parameters: parameters_of(&track.config), feedback: Vec::new() })
}

fn parameters_of(config: &CodecConfig) -> Parameters {
    let none = Parameters::new();
    match config {
        CodecConfig::H264(config) => {
            let level: String = config
                .record
                .get(1..4)
                .unwrap_or_default()
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect();
            let sets: Vec<&[u8]> = config.parameter_sets().collect();
            none.with("packetization-mode", 1).with("profile-level-id", level).with_h264_sets(&sets)
        }
        CodecConfig::H265(config) => {
            let of = |kind| {
                let sets = config.parameter_sets().filter(|set| h265::nal_type(set) == Some(kind));
                sets.map(Bytes::copy_from_slice).collect()
            };
            let (vps, sps, pps) = (of(h265::NAL_VPS), of(h265::NAL_SPS), of(h265::NAL_PPS));
            none.with_h265_sets(&H265Sets { vps, sps, pps })
        }
        // RFC 3640 §3.3.6; the profile level is not known (RFC 3640 §4.1).
        CodecConfig::Aac(config) => none
            .with("streamtype", 5)
            .with("profile-level-id", 1)
            .with("mode", "AAC-hbr")
            .with("sizelength", 13)
            .with("indexlength", 3)
            .with("indexdeltalength", 3)
            .with_mpeg4_config(&config.record),
        CodecConfig::Opus(config) if config.channels == 2 => none.with("sprop-stereo", 1),
        CodecConfig::Vp9(config) => none.with("profile-id", config.profile),
        CodecConfig::Av1(config) => none.with("profile", config.profile).with("level-idx", config.level),
        CodecConfig::Vp8(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::G711(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => none,
    }
}

#[cfg(test)]
mod tests {
    use media::TrackId;
    use media::codec::{aac, h264, mp3, opus, vp8, vp9};

    use super::*;
    use crate::protocol::rtp_mapping::configs::{self, tests::PPS, tests::SPS};

    /// 320 x 180, as x265 writes it.
    const VPS_265: &[u8] = &[0x40, 0x01, 0x0c, 0x01, 0xff];
    const SPS_265: &[u8] = &[
        0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00,
        0x3c, 0xa0, 0x0a, 0x08, 0x0c, 0x1f, 0x3e, 0x59, 0x59, 0x12, 0x93, 0x0b, 0xc0, 0x5a, 0x02, 0x00, 0x00,
        0x03, 0x00, 0x02, 0x00, 0x00, 0x03, 0x00, 0x3c, 0x10,
    ];
    const PPS_265: &[u8] = &[0x44, 0x01, 0xc0, 0x73, 0xc1, 0x89];

    fn there_and_back(config: CodecConfig) -> Option<CodecConfig> {
        let id = if config.codec().kind() == TrackKind::Video { TrackId::VIDEO } else { TrackId::AUDIO };
        let section = section_of(&Track::new(id, config, clock::TICKS))?;
        let mut description = sdp::Description::default();
        description.media.push(section);
        let read = sdp::Description::read(description.write().as_bytes()).unwrap();
        let format = read.media[0].rtp_formats().next().unwrap();
        configs::known_before(rtp::payload::codec_of_description(&format).unwrap(), &format)
    }

    use crate::protocol::rtp_mapping::clock;

    #[test]
    fn parameter_sets_and_configurations_come_back_as_they_were() {
        for config in [
            CodecConfig::H264(h264::Config::of_sets(&[SPS], &[PPS]).unwrap()),
            CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap()),
            CodecConfig::Opus(opus::Config::of_channels(2).unwrap()),
            CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 }),
            CodecConfig::G711(g711::Config { law: g711::Law::Mu, channels: 2 }),
        ] {
            assert_eq!(there_and_back(config.clone()), Some(config));
        }
        let six = CodecConfig::Opus(opus::Config::of_channels(6).unwrap());
        assert_eq!(there_and_back(six), None);
    }

    #[test]
    fn the_depth_of_reordering_is_read_from_the_parameter_sets() {
        let config = CodecConfig::H264(h264::Config::of_sets(&[SPS], &[PPS]).unwrap());
        assert_eq!(configs::reorder_of(&config), Some(2));
    }

    /// The lines of a description about a track's encoding.
    fn lines(config: CodecConfig) -> Vec<String> {
        let id = if config.codec().kind() == TrackKind::Video { TrackId::VIDEO } else { TrackId::AUDIO };
        let mut description = sdp::Description::default();
        description.media.extend(section_of(&Track::new(id, config, clock::TICKS)));
        let text = description.write();
        let of_encoding =
            |line: &&str| ["m=", "a=rtpmap", "a=fmtp"].iter().any(|kind| line.starts_with(kind));
        text.lines().filter(of_encoding).map(str::to_owned).collect()
    }

    #[test]
    fn each_codec_is_called_by_its_name_and_has_its_payload_type() {
        let aac =
            |record: &'static [u8]| CodecConfig::Aac(aac::Config::read(Bytes::from_static(record)).unwrap());
        let vp9 = Bytes::from_static(&[1, 0, 0, 0, 2, 0, 0xa2, 2, 2, 2, 0, 0]);
        let g711 = |law, channels| CodecConfig::G711(g711::Config { law, channels });
        let opus = |channels| CodecConfig::Opus(opus::Config::of_channels(channels).unwrap());
        for (config, format, rtpmap) in [
            (CodecConfig::Vp8(vp8::Config::default()), "video 0 RTP/AVP 96", "96 VP8/90000"),
            (CodecConfig::Vp9(vp9::Config::read(vp9).unwrap()), "video 0 RTP/AVP 96", "96 VP9/90000"),
            (g711(g711::Law::Mu, 1), "audio 0 RTP/AVP 0", "0 PCMU/8000"),
            (g711(g711::Law::A, 1), "audio 0 RTP/AVP 8", "8 PCMA/8000"),
            (g711(g711::Law::A, 2), "audio 0 RTP/AVP 97", "97 PCMA/8000/2"),
            (
                CodecConfig::Mp3(mp3::Config { sample_rate: 44_100, channels: 2 }),
                "audio 0 RTP/AVP 14",
                "14 MPA/90000",
            ),
            (opus(1), "audio 0 RTP/AVP 97", "97 opus/48000/2"),
            (aac(&[0x11, 0x88]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/1"),
            (aac(&[0x11, 0x90]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/2"),
            (aac(&[0x11, 0x98]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/3"),
            (aac(&[0x11, 0xa0]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/4"),
            (aac(&[0x11, 0xa8]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/5"),
            (aac(&[0x11, 0xb0]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/6"),
            (aac(&[0x11, 0xb8]), "audio 0 RTP/AVP 97", "97 mpeg4-generic/48000/8"),
        ] {
            let lines = lines(config);
            assert_eq!(lines[..2], [format!("m={format}"), format!("a=rtpmap:{rtpmap}")]);
        }
        assert!(lines(opus(6)).is_empty());
    }

    #[test]
    fn parameters_say_what_a_decoder_needs() {
        let parameters = |config| lines(config).get(2).cloned();
        let opus = |channels| CodecConfig::Opus(opus::Config::of_channels(channels).unwrap());
        assert_eq!(parameters(opus(2)).as_deref(), Some("a=fmtp:97 sprop-stereo=1"));
        assert_eq!(parameters(opus(1)), None);
        let h264 = parameters(CodecConfig::H264(h264::Config::of_sets(&[SPS], &[PPS]).unwrap())).unwrap();
        assert!(h264.contains("profile-level-id=64001E") && h264.contains("packetization-mode=1"), "{h264}");
        let h265 = CodecConfig::H265(h265::Config::of_sets(&[VPS_265], &[SPS_265], &[PPS_265]).unwrap());
        assert_eq!(there_and_back(h265.clone()), Some(h265.clone()));
        assert_eq!(configs::reorder_of(&h265), h265::Sps::read(SPS_265).unwrap().reorder);
        assert_eq!(configs::reorder_of(&CodecConfig::Vp8(vp8::Config::default())), Some(0));
        for (profile, depth) in [(0, 8), (1, 8), (2, 10), (3, 10)] {
            let record = Bytes::copy_from_slice(&[1, 0, 0, 0, profile, 0, depth << 4 | 2, 2, 2, 2, 0, 0]);
            let vp9 = CodecConfig::Vp9(vp9::Config::read(record).unwrap());
            assert_eq!(there_and_back(vp9.clone()), Some(vp9));
        }
    }
}
