//! Bodies of audio tags and messages.

use alloc::vec::Vec;

use bytes::Bytes;
use media::codec::g711;
use media::{Codec, TrackKind};
use wire::Reader;

use super::enhanced::{DEFAULT_TRACK, Part, TrackPacket, default_of, nibbles, read_modifiers, read_tracks};
use crate::Error;

/// Sound format of AAC in the legacy header.
pub const AAC: u8 = 10;
/// Sound format that marks an enhanced body.
const EX_HEADER: u8 = 9;
/// Sound format of MP3.
const MP3: u8 = 2;
/// Sound format of MP3 at 8 kHz, which the two-bit rate cannot express.
const MP3_8K: u8 = 14;
/// Sound format of G.711 A-law.
const ALAW: u8 = 7;
/// Sound format of G.711 mu-law.
const MULAW: u8 = 8;
/// Sample size flag for 16 bits, as set for all compressed formats (§E.4.2.1).
const SIXTEEN_BITS: u8 = 0x02;
/// Stereo flag, the lowest bit.
const STEREO: u8 = 0x01;
/// Flags for 44 kHz, 16 bit, stereo, which §E.4.2.1 requires for AAC regardless of its real parameters.
const AAC_FLAGS: u8 = 0x0f;

/// `AudioPacketType` of Enhanced RTMP v2.
mod packet_type {
    pub(super) const SEQUENCE_START: u8 = 0;
    pub(super) const CODED_FRAMES: u8 = 1;
    pub(super) const SEQUENCE_END: u8 = 2;
    pub(super) const MULTICHANNEL_CONFIG: u8 = 4;
    pub(super) const MULTITRACK: u8 = 5;
}

/// Type of an audio packet (§E.4.2.2, `AACPacketType`; Enhanced RTMP v2, `AudioPacketType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioPacket {
    /// The AudioSpecificConfig, or its equivalent for another codec.
    SequenceHeader,
    /// A raw access unit.
    Frame,
    /// An empty body. Some encoders mark silence with it. It is valid but has no content.
    Silence,
    /// End of the sequence, without payload.
    EndOfSequence,
    /// Order and number of channels.
    MultichannelConfig,
}

/// Contents of an audio body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AudioBody {
    /// A packet of a single track, the usual case.
    Tag(AudioTag),
    /// Packets of several tracks, or a packet of one track that is not the default track.
    Multitrack(Vec<TrackPacket<AudioTag>>),
}

impl AudioBody {
    /// Reads a body; payloads are slices of it.
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        let mut r = Reader::new(body);
        if body.is_empty() {
            return Ok(Self::Tag(AudioTag::silence()));
        }
        let first = r.u8()?;
        let [format, packet] = nibbles(first);
        if format != EX_HEADER {
            return AudioTag::read_legacy(body, first, r).map(Self::Tag);
        }
        let (packet, nanos) = read_modifiers(&mut r, packet)?;
        if packet != packet_type::MULTITRACK {
            let part = Part { id: DEFAULT_TRACK, four_cc: r.array()?, body: r };
            return AudioTag::read_enhanced(body, packet, nanos, part).map(Self::Tag);
        }
        let (packet, parts) = read_tracks(&mut r, packet_type::MULTITRACK)?;
        let read = |part: Part<'_>| TrackPacket {
            id: part.id,
            four_cc: part.four_cc,
            tag: AudioTag::read_enhanced(body, packet, nanos, part),
        };
        Ok(Self::Multitrack(parts.into_iter().map(read).collect()))
    }
}

/// An audio packet of the default track.
///
/// ```text
/// legacy:
///  0         3 4    5 6    7        8              15
/// +-----------+------+----+--------+-----------------+---------
/// |  format   | rate |size| stereo | AAC packet type | payload      (the packet type: of AAC only)
/// +-----------+------+----+--------+-----------------+---------
/// enhanced:
///  0         3 4           7 8              39
/// +-----------+-------------+-----------------+---------
/// | 9         | packet type | FourCC          | payload
/// +-----------+-------------+-----------------+---------
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudioTag {
    /// Codec, from the legacy or the enhanced header. An empty body names no codec, and counts as AAC.
    pub codec: Codec,
    /// Type of the packet.
    pub packet: AudioPacket,
    /// Stereo flag of the legacy header. Only G.711 needs it.
    pub stereo: bool,
    /// Nanoseconds to add to the timestamp (Enhanced RTMP v2, `TimestampOffsetNano`).
    pub offset_nanos: u32,
    /// Payload, as a slice of the body.
    pub payload: Bytes,
}

impl AudioTag {
    /// Reads the default track of a body.
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        match AudioBody::read(body)? {
            AudioBody::Tag(tag) => Ok(tag),
            AudioBody::Multitrack(packets) => default_of(packets),
        }
    }

    const fn silence() -> Self {
        let (codec, packet) = (Codec::Aac, AudioPacket::Silence);
        Self { codec, packet, stereo: false, offset_nanos: 0, payload: Bytes::new() }
    }

    fn read_legacy(body: &Bytes, first: u8, mut r: Reader<'_>) -> Result<Self, Error> {
        let codec = match first >> 4 {
            AAC => Codec::Aac,
            MP3 | MP3_8K => Codec::Mp3,
            ALAW => Codec::G711(g711::Law::A),
            MULAW => Codec::G711(g711::Law::Mu),
            other => return Err(Error::UnsupportedAudioCodec(other)),
        };
        let packet = if codec != Codec::Aac {
            AudioPacket::Frame
        } else {
            match r.u8()? {
                0 => AudioPacket::SequenceHeader,
                1 => AudioPacket::Frame,
                other => return Err(Error::UnknownPacketType(other)),
            }
        };
        let payload = body.slice_ref(r.rest());
        Ok(Self { codec, packet, stereo: first & STEREO != 0, offset_nanos: 0, payload })
    }

    fn read_enhanced(body: &Bytes, packet: u8, offset_nanos: u32, mut part: Part<'_>) -> Result<Self, Error> {
        let codec = Codec::from_four_cc(part.four_cc)
            .filter(|codec| codec.kind() == TrackKind::Audio)
            .ok_or(Error::UnsupportedAudioFourCc(part.four_cc))?;
        let packet = match packet {
            packet_type::SEQUENCE_START => AudioPacket::SequenceHeader,
            packet_type::CODED_FRAMES => AudioPacket::Frame,
            packet_type::SEQUENCE_END => AudioPacket::EndOfSequence,
            packet_type::MULTICHANNEL_CONFIG => AudioPacket::MultichannelConfig,
            other => return Err(Error::UnknownPacketType(other)),
        };
        let payload = body.slice_ref(part.body.rest());
        Ok(Self { codec, packet, stereo: false, offset_nanos, payload })
    }

    /// Returns the legacy header of an AAC body. Not to be used for silence, which has an empty body. A packet type
    /// that the legacy form does not have is written as a frame; callers must not pass one.
    #[must_use]
    pub const fn write_header(packet: AudioPacket) -> [u8; 2] {
        let packet = match packet {
            AudioPacket::SequenceHeader => 0,
            AudioPacket::Frame
            | AudioPacket::Silence
            | AudioPacket::EndOfSequence
            | AudioPacket::MultichannelConfig => 1,
        };
        [(AAC << 4) | AAC_FLAGS, packet]
    }

    /// Returns the legacy header of an MP3 frame. Like ffmpeg, it states the nearest rate that two bits can express;
    /// the frame itself contains the exact rate.
    #[must_use]
    pub const fn write_mp3(sample_rate: u32, channels: u8) -> [u8; 1] {
        let (format, rate) = match sample_rate {
            0..=8_000 => (MP3_8K, 0),
            8_001..=12_000 => (MP3, 1),
            12_001..=24_000 => (MP3, 2),
            _ => (MP3, 3),
        };
        [(format << 4) | (rate << 2) | SIXTEEN_BITS | stereo(channels)]
    }

    /// Returns the legacy header of G.711 samples.
    #[must_use]
    pub const fn write_g711(law: g711::Law, channels: u8) -> [u8; 1] {
        let format = match law {
            g711::Law::A => ALAW,
            g711::Law::Mu => MULAW,
        };
        [(format << 4) | SIXTEEN_BITS | stereo(channels)]
    }

    /// Returns the enhanced header of a body.
    #[must_use]
    pub const fn write_enhanced(packet: AudioPacket, four_cc: [u8; 4]) -> [u8; 5] {
        let [a, b, c, d] = four_cc;
        [(EX_HEADER << 4) | enhanced_packet(packet), a, b, c, d]
    }

    /// Returns the header of a body that contains only a packet of track `id` (`AvMultitrackType.OneTrack`).
    #[must_use]
    pub const fn write_multitrack(id: u8, packet: AudioPacket, four_cc: [u8; 4]) -> [u8; 7] {
        let [a, b, c, d] = four_cc;
        [(EX_HEADER << 4) | packet_type::MULTITRACK, enhanced_packet(packet), a, b, c, d, id]
    }
}

/// Returns the packet type as encoded.
const fn enhanced_packet(packet: AudioPacket) -> u8 {
    match packet {
        AudioPacket::SequenceHeader => packet_type::SEQUENCE_START,
        AudioPacket::Frame | AudioPacket::Silence => packet_type::CODED_FRAMES,
        AudioPacket::EndOfSequence => packet_type::SEQUENCE_END,
        AudioPacket::MultichannelConfig => packet_type::MULTICHANNEL_CONFIG,
    }
}

const fn stereo(channels: u8) -> u8 {
    if channels > 1 { STEREO } else { 0 }
}
