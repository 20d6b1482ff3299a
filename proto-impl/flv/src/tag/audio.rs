//! Audio bodies.

use bytes::Bytes;
use wire::Reader;

use crate::Error;

/// The sound format of AAC in the legacy header.
pub const AAC: u8 = 10;
/// The sound format that makes a body an enhanced-RTMP one.
const EX_HEADER: u8 = 9;
/// 44 kHz, 16 bit, stereo: what §E.4.2.1 demands of AAC whatever the stream really is.
const AAC_FLAGS: u8 = 0x0f;

/// What the payload is (§E.4.2.2, `AACPacketType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioPacket {
    /// The AudioSpecificConfig.
    SequenceHeader = 0,
    /// One raw access unit.
    Raw = 1,
    /// An empty body, with which some encoders mark silence. It is legal and carries nothing.
    Silence = 2,
}

/// An audio body.
///
/// ```text
///  0         3 4    5 6    7        8              15
/// +-----------+------+----+--------+-----------------+---------
/// |  format   | rate |size| stereo | AAC packet type | payload
/// +-----------+------+----+--------+-----------------+---------
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudioTag {
    /// The legacy sound format; [`AAC`] (also for an empty body, which has none).
    pub format: u8,
    /// What the payload is.
    pub packet: AudioPacket,
    /// A slice of the body.
    pub payload: Bytes,
}

impl AudioTag {
    /// Reads a body; the payload shares its memory.
    pub fn read(body: &Bytes) -> Result<Self, Error> {
        if body.is_empty() {
            return Ok(Self { format: AAC, packet: AudioPacket::Silence, payload: Bytes::new() });
        }
        let mut r = Reader::new(body);
        let format = r.u8()? >> 4;
        if format == EX_HEADER {
            return Err(Error::UnsupportedAudioFourCc(r.array()?));
        }
        if format != AAC {
            return Err(Error::UnsupportedAudioCodec(format));
        }
        let packet = match r.u8()? {
            0 => AudioPacket::SequenceHeader,
            1 => AudioPacket::Raw,
            other => return Err(Error::UnknownPacketType(other)),
        };
        Ok(Self { format, packet, payload: body.slice_ref(r.rest()) })
    }

    /// The head of an AAC body. [`AudioPacket::Silence`] has no head: its body is empty.
    #[must_use]
    pub const fn write_header(packet: AudioPacket) -> [u8; 2] {
        [(AAC << 4) | AAC_FLAGS, packet as u8]
    }
}
