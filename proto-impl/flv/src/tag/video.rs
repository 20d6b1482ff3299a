//! Video bodies.

use bytes::Bytes;
use media::{Codec, TrackKind};
use wire::Reader;

use super::enhanced::{DEFAULT_TRACK, Part, TrackPacket, default_of, nibbles, read_modifiers, read_tracks};
use crate::Error;

/// The codec id of H.264 in the legacy header.
pub const AVC: u8 = 7;
/// The codec id that encoders gave HEVC before Enhanced RTMP; laid out like H.264's.
pub const HEVC: u8 = 12;
/// The top bit that makes a body an enhanced-RTMP one.
const EX_HEADER: u8 = 0x80;

/// `VideoPacketType` of Enhanced RTMP v2.
mod packet_type {
    pub(super) const SEQUENCE_START: u8 = 0;
    pub(super) const CODED_FRAMES: u8 = 1;
    pub(super) const SEQUENCE_END: u8 = 2;
    pub(super) const CODED_FRAMES_X: u8 = 3;
    pub(super) const METADATA: u8 = 4;
    pub(super) const MPEG2TS_SEQUENCE_START: u8 = 5;
    pub(super) const MULTITRACK: u8 = 6;
}

/// The type of a video frame (§E.4.3.1, `FrameType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameType {
    /// Reserved. Some servers write it in all enhanced bodies: the payload has to tell.
    Unstated = 0,
    /// Can be decoded alone.
    Key = 1,
    /// Depends on earlier frames.
    Inter = 2,
    /// Depends on earlier frames, and nothing depends on it.
    Disposable = 3,
    /// A key frame made by a server; reserved.
    GeneratedKey = 4,
    /// No frame but a command to the player.
    Command = 5,
}

impl FrameType {
    fn read_enhanced(bits: u8) -> Result<Self, Error> {
        if bits == 0 { Ok(Self::Unstated) } else { Self::read(bits) }
    }

    fn read(bits: u8) -> Result<Self, Error> {
        Ok(match bits {
            1 => Self::Key,
            2 => Self::Inter,
            3 => Self::Disposable,
            4 => Self::GeneratedKey,
            5 => Self::Command,
            _ => return Err(Error::UnknownFrameType(bits)),
        })
    }
}

/// The type of a video packet (§E.4.3.1, `AVCPacketType`; Enhanced RTMP v2, `VideoPacketType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoPacket {
    /// The decoder configuration record.
    SequenceHeader,
    /// A frame in the codec's own framing: NAL units with their lengths, OBUs, or raw.
    Frame,
    /// The end of the sequence; no payload.
    EndOfSequence,
    /// AMF0 values: a name (`colorInfo`) and an object.
    Metadata,
    /// An AV1 video descriptor of MPEG-2 TS in place of the configuration record.
    Mpeg2TsSequenceStart,
}

/// A video body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VideoBody {
    /// The packet of one track, the usual case.
    Tag(VideoTag),
    /// Packets of several tracks, or of one that is not the default track.
    Multitrack(Vec<TrackPacket<VideoTag>>),
    /// No media but a command to the player: 0 and 1 are the start and end of a seek.
    Command(u8),
}

impl VideoBody {
    /// Reads a body; payloads share its memory. A legacy command frame of any codec is [`Error::UnknownFrameType`].
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        let mut r = Reader::new(body);
        let first = r.u8()?;
        if first & EX_HEADER == 0 {
            return VideoTag::read_legacy(body, first, r).map(Self::Tag);
        }
        let frame_type = FrameType::read_enhanced((first >> 4) & 7)?;
        let (packet, nanos) = read_modifiers(&mut r, first & 0x0f)?;
        if frame_type == FrameType::Command && packet != packet_type::METADATA {
            return Ok(Self::Command(r.u8()?));
        }
        if packet != packet_type::MULTITRACK {
            let part = Part { id: DEFAULT_TRACK, four_cc: r.array()?, body: r };
            return VideoTag::read_enhanced(body, frame_type, packet, nanos, part).map(Self::Tag);
        }
        let (packet, parts) = read_tracks(&mut r, packet_type::MULTITRACK)?;
        let read = |part: Part<'_>| TrackPacket {
            id: part.id,
            four_cc: part.four_cc,
            tag: VideoTag::read_enhanced(body, frame_type, packet, nanos, part),
        };
        Ok(Self::Multitrack(parts.into_iter().map(read).collect()))
    }
}

/// A packet of the default track.
///
/// ```text
/// legacy:
///  0        3 4       7 8              15 16                                   39
/// +----------+---------+-----------------+--------------------------------------+---------
/// |frame type|codec id | AVC packet type | composition time, ms, signed         | payload
/// +----------+---------+-----------------+--------------------------------------+---------
/// enhanced:
///  0 1       3 4        7 8          39 40                                     63
/// +-+---------+----------+-------------+----------------------------------------+---------
/// |1|frametype|packettype| FourCC      | the same, of avc1 and hvc1 CodedFrames | payload
/// +-+---------+----------+-------------+----------------------------------------+---------
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoTag {
    /// The type of the frame.
    pub frame_type: FrameType,
    /// The codec, whichever way it was named.
    pub codec: Codec,
    /// The type of the packet.
    pub packet: VideoPacket,
    /// PTS minus DTS in milliseconds.
    pub composition_time_ms: i32,
    /// Nanoseconds to be added to the timestamp (Enhanced RTMP v2, `TimestampOffsetNano`).
    pub offset_nanos: u32,
    /// A slice of the body.
    pub payload: Bytes,
}

impl VideoTag {
    /// Reads a body of one track.
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        match VideoBody::read(body)? {
            VideoBody::Tag(tag) => Ok(tag),
            VideoBody::Multitrack(packets) => default_of(packets),
            VideoBody::Command(_) => Err(Error::UnknownFrameType(FrameType::Command as u8)),
        }
    }

    fn read_legacy(body: &Bytes, first: u8, mut r: Reader<'_>) -> Result<Self, Error> {
        let [frame_type, codec_id] = nibbles(first);
        let frame_type = FrameType::read(frame_type)?;
        if frame_type == FrameType::Command {
            return Err(Error::UnknownFrameType(first >> 4));
        }
        let codec = match codec_id {
            AVC => Codec::H264,
            HEVC => Codec::H265,
            other => return Err(Error::UnsupportedVideoCodec(other)),
        };
        let packet = match r.u8()? {
            0 => VideoPacket::SequenceHeader,
            1 => VideoPacket::Frame,
            2 => VideoPacket::EndOfSequence,
            other => return Err(Error::UnknownPacketType(other)),
        };
        // Some encoders end the sequence with two bytes and no composition time.
        let ends = packet == VideoPacket::EndOfSequence && r.remaining() < 3;
        let composition_time_ms = if ends { 0 } else { r.i24()? };
        let payload = body.slice_ref(r.rest());
        Ok(Self { frame_type, codec, packet, composition_time_ms, offset_nanos: 0, payload })
    }

    fn read_enhanced(
        body: &Bytes,
        frame_type: FrameType,
        packet: u8,
        offset_nanos: u32,
        mut part: Part<'_>,
    ) -> Result<Self, Error> {
        let codec = Codec::from_four_cc(part.four_cc)
            .filter(|codec| codec.kind() == TrackKind::Video)
            .ok_or(Error::UnsupportedVideoFourCc(part.four_cc))?;
        let (packet, composed) = match packet {
            packet_type::SEQUENCE_START => (VideoPacket::SequenceHeader, false),
            packet_type::CODED_FRAMES => (VideoPacket::Frame, matches!(codec, Codec::H264 | Codec::H265)),
            packet_type::SEQUENCE_END => (VideoPacket::EndOfSequence, false),
            packet_type::CODED_FRAMES_X => (VideoPacket::Frame, false),
            packet_type::METADATA => (VideoPacket::Metadata, false),
            packet_type::MPEG2TS_SEQUENCE_START => (VideoPacket::Mpeg2TsSequenceStart, false),
            other => return Err(Error::UnknownPacketType(other)),
        };
        let composition_time_ms = if composed { part.body.i24()? } else { 0 };
        let payload = body.slice_ref(part.body.rest());
        Ok(Self { frame_type, codec, packet, composition_time_ms, offset_nanos, payload })
    }

    /// The legacy head of an H.264 body. The composition time is cut to 24 bits. Packets that the legacy form does
    /// not have are written as frames: a bug of the caller.
    #[must_use]
    pub const fn write_header(
        frame_type: FrameType,
        packet: VideoPacket,
        composition_time_ms: i32,
    ) -> [u8; 5] {
        let packet = match packet {
            VideoPacket::SequenceHeader => 0,
            VideoPacket::Frame | VideoPacket::Metadata | VideoPacket::Mpeg2TsSequenceStart => 1,
            VideoPacket::EndOfSequence => 2,
        };
        let [_, a, b, c] = composition_time_ms.to_be_bytes();
        [((frame_type as u8) << 4) | AVC, packet, a, b, c]
    }

    /// The enhanced head of a body. A composition time, cut to 24 bits, is written where the codec has one and it is
    /// not zero: CodedFramesX saves it.
    #[must_use]
    pub fn write_enhanced(
        frame_type: FrameType,
        packet: VideoPacket,
        four_cc: [u8; 4],
        composition_time_ms: i32,
    ) -> EnhancedHead {
        let (packet, composition) = enhanced_packet(packet, four_cc, composition_time_ms);
        let mut head = EnhancedHead::default();
        head.put(&[EX_HEADER | ((frame_type as u8) << 4) | packet]);
        head.put(&four_cc);
        head.put(composition.as_ref().map_or(&[], <[u8; 3]>::as_slice));
        head
    }

    /// Writes what stands before the payload of a packet of track `id`, in a body of its own
    /// (`AvMultitrackType.OneTrack`).
    #[must_use]
    pub fn write_multitrack(
        id: u8,
        frame_type: FrameType,
        packet: VideoPacket,
        four_cc: [u8; 4],
        composition_time_ms: i32,
    ) -> EnhancedHead {
        let (packet, composition) = enhanced_packet(packet, four_cc, composition_time_ms);
        let mut head = EnhancedHead::default();
        head.put(&[EX_HEADER | ((frame_type as u8) << 4) | packet_type::MULTITRACK, packet]);
        head.put(&four_cc);
        head.put(&[id]);
        head.put(composition.as_ref().map_or(&[], <[u8; 3]>::as_slice));
        head
    }
}

/// The packet type on the wire, and the composition time where the packet has one.
fn enhanced_packet(packet: VideoPacket, four_cc: [u8; 4], composition_time_ms: i32) -> (u8, Option<[u8; 3]>) {
    let reorders = matches!(&four_cc, b"avc1" | b"hvc1");
    let packet = match packet {
        VideoPacket::SequenceHeader => packet_type::SEQUENCE_START,
        VideoPacket::Frame if reorders && composition_time_ms == 0 => packet_type::CODED_FRAMES_X,
        VideoPacket::Frame => packet_type::CODED_FRAMES,
        VideoPacket::EndOfSequence => packet_type::SEQUENCE_END,
        VideoPacket::Metadata => packet_type::METADATA,
        VideoPacket::Mpeg2TsSequenceStart => packet_type::MPEG2TS_SEQUENCE_START,
    };
    let [_, x, y, z] = composition_time_ms.to_be_bytes();
    let composed = reorders && packet == packet_type::CODED_FRAMES;
    (packet, composed.then_some([x, y, z]))
}

/// The head of a body in the enhanced form.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnhancedHead {
    bytes: [u8; 10],
    len: usize,
}

impl EnhancedHead {
    /// Appends; the longest head has 10 bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }
}

impl std::ops::Deref for EnhancedHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
