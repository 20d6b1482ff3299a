//! Tracks as formats of a session description: encoding, clock, parameter sets.

use bytes::Bytes;
use media::codec::{g711, h265};
use media::{CodecConfig, Timescale, Track, TrackKind};
use sdp::{Format, Formats, H265Sets, Media, MediaKind, Parameters, PayloadType, Rtpmap};

/// Ticks of video, and of MP3 (RFC 3551 §6).
const VIDEO_TICKS: u32 = 90_000;
/// RFC 7587 §4.1: whatever was sampled.
const OPUS_TICKS: u32 = 48_000;
/// The first payload type without a meaning of its own (RFC 3551 §6), and how many there are.
const DYNAMIC_FIRST: u8 = 96;
const DYNAMIC_COUNT: u8 = 32;
/// RFC 3551 §6.
const PCMU: u8 = 0;
const PCMA: u8 = 8;
const MPA: u8 = 14;

/// The RTP clock of a track; `None` when RTP does not carry its codec here.
pub(in crate::protocol) fn clock_of(config: &CodecConfig) -> Option<Timescale> {
    Some(Timescale::new(match config {
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Mp3(_) => VIDEO_TICKS,
        CodecConfig::Aac(config) => config.sample_rate,
        // More channels have no registered format.
        CodecConfig::Opus(config) if config.channels <= 2 => OPUS_TICKS,
        CodecConfig::G711(_) => g711::Config::SAMPLE_RATE,
        CodecConfig::Opus(_) | CodecConfig::Ac3(_) | CodecConfig::Eac3(_) | CodecConfig::Flac(_) => {
            return None;
        }
    }))
}

/// The payload type of a track: its codec's own where it has one, else one by the track's number.
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

/// A section for a track, without a transport; `None` when RTP does not carry its codec here.
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
        CodecConfig::Aac(config) => ("mpeg4-generic", Some(channels_of(config.channel_configuration))),
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

/// Channels of a channelConfiguration (ISO/IEC 14496-3 §1.6.3.4); where a program config element tells, two.
const fn channels_of(configuration: u8) -> u16 {
    match configuration {
        1 => 1,
        3 => 3,
        4 => 4,
        5 => 5,
        6 => 6,
        7 => 8,
        _ => 2,
    }
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
    use media::codec::{aac, h264, opus};

    use super::*;
    use crate::protocol::rtp_mapping::configs;

    /// 640 x 360, High profile, as x264 writes it.
    const SPS: &[u8] = &[
        0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01,
        0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2d, 0x96,
    ];
    const PPS: &[u8] = &[0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0];

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
}
