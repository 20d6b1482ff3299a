//! Video bodies.

use bytes::Bytes;
use wire::Reader;

use crate::Error;

/// The codec id of H.264 in the legacy header.
pub const AVC: u8 = 7;
/// The top bit that makes a body an enhanced-RTMP one.
const EX_HEADER: u8 = 0x80;

/// What a video frame depends on (§E.4.3.1, `FrameType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameType {
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

/// What the payload is (§E.4.3.1, `AVCPacketType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoPacket {
    /// The decoder configuration record.
    SequenceHeader = 0,
    /// NAL units with their lengths.
    NalUnits = 1,
    /// The end of the sequence; no payload.
    EndOfSequence = 2,
}

/// A video body.
///
/// ```text
///  0        3 4       7 8              15 16                                   39
/// +----------+---------+-----------------+--------------------------------------+---------
/// |frame type|codec id | AVC packet type | composition time, ms, signed         | payload
/// +----------+---------+-----------------+--------------------------------------+---------
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoTag {
    /// What the frame depends on.
    pub frame_type: FrameType,
    /// The legacy codec id; [`AVC`].
    pub codec_id: u8,
    /// What the payload is.
    pub packet: VideoPacket,
    /// PTS minus DTS in milliseconds.
    pub composition_time_ms: i32,
    /// A slice of the body.
    pub payload: Bytes,
}

impl VideoTag {
    /// Reads a body; the payload shares its memory. A command frame (type 5) of any codec is
    /// [`Error::UnknownFrameType`]: there is no frame in it, and it is to be dropped.
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        let mut r = Reader::new(body);
        let first = r.u8()?;
        if first & EX_HEADER != 0 {
            return Err(Error::UnsupportedVideoFourCc(r.array()?));
        }
        let frame_type = FrameType::read(first >> 4)?;
        if frame_type == FrameType::Command {
            return Err(Error::UnknownFrameType(first >> 4));
        }
        let codec_id = first & 0x0f;
        if codec_id != AVC {
            return Err(Error::UnsupportedVideoCodec(codec_id));
        }
        let packet = match r.u8()? {
            0 => VideoPacket::SequenceHeader,
            1 => VideoPacket::NalUnits,
            2 => VideoPacket::EndOfSequence,
            other => return Err(Error::UnknownPacketType(other)),
        };
        // Some encoders end the sequence with two bytes and no composition time.
        let composition_time_ms = match packet {
            VideoPacket::EndOfSequence if r.remaining() < 3 => 0,
            VideoPacket::SequenceHeader | VideoPacket::NalUnits | VideoPacket::EndOfSequence => r.i24()?,
        };
        Ok(Self { frame_type, codec_id, packet, composition_time_ms, payload: body.slice_ref(r.rest()) })
    }

    /// The head of an AVC body. The composition time is cut to 24 bits.
    #[must_use]
    pub const fn write_header(
        frame_type: FrameType,
        packet: VideoPacket,
        composition_time_ms: i32,
    ) -> [u8; 5] {
        let [_, a, b, c] = composition_time_ms.to_be_bytes();
        [((frame_type as u8) << 4) | AVC, packet as u8, a, b, c]
    }
}
