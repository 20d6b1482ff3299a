//! MPEG audio (RFC 2250 §3.5): a header of four bytes, the last two of which give the offset of the payload in its
//! frame.

use bytes::BytesMut;
use media::codec::mp3;
use wire::Reader;

use super::frames::Out;
use super::{Error, Frame, Part, Payloads, fragments};

/// Length of the header: MBZ(16), Frag_offset(16).
const HEAD_BYTES: usize = 4;
/// Maximum frame size of layer III, in bytes: 320 kbit/s at 32 kHz, or 160 at 8 kHz. Also limits free format.
const FRAME_BYTES_MAX: usize = 8192;

/// Packetizes frames; see [`super::Packetizer::packetize`]. Frames that together fit into one packet stay
/// together. Otherwise each frame is divided separately, since a packet must not contain the end of one frame
/// and the start of another.
pub(super) fn packetize(unit: &[u8], max: usize, out: &mut Payloads) -> Result<(), Error> {
    let room = max.saturating_sub(HEAD_BYTES);
    let mut rest = unit;
    while !rest.is_empty() {
        let bytes = if rest.len() <= room { rest.len() } else { first_frame_bytes(rest) };
        let (frame, behind) = rest.split_at(bytes.min(rest.len()));
        if frame.len() > FRAME_BYTES_MAX {
            return Err(Error::BadUnit);
        }
        let mut offset = 0u16;
        for (piece, _, _) in fragments::equal(frame, room) {
            let [high, low] = offset.to_be_bytes();
            out.push(&[&[0, 0, high, low], piece]);
            offset = offset.saturating_add(u16::try_from(piece.len()).unwrap_or(u16::MAX));
        }
        rest = behind;
    }
    Ok(())
}

/// Returns the length of the first frame in `frames`; the length of all bytes if the header does not give it.
fn first_frame_bytes(frames: &[u8]) -> usize {
    mp3::Header::read(frames)
        .ok()
        .and_then(|header| header.frame_bytes)
        .filter(|&bytes| bytes > 0)
        .unwrap_or(frames.len())
}

/// Depacketizer of MPEG audio; see [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// Frame received in fragments.
    frame: BytesMut,
    timestamp: u32,
}

impl Depacketizer {
    pub(super) fn handle_part(&mut self, part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if part.payload.is_empty() {
            return Ok(());
        }
        if part.gap || (part.timestamp != self.timestamp && !self.frame.is_empty()) {
            self.give_up(out);
        }
        self.take(part, out).inspect_err(|_| self.give_up(out))
    }

    fn take(&mut self, part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut reader = Reader::new(part.payload);
        reader.u16()?;
        let offset = usize::from(reader.u16()?);
        if offset != self.frame.len() {
            if offset == 0 {
                self.give_up(out);
            } else {
                // The start of this frame was lost.
                return Err(Error::Malformed("Frag_offset"));
            }
        }
        let data = reader.rest();
        if self.frame.len().saturating_add(data.len()) > FRAME_BYTES_MAX {
            return Err(Error::FrameTooLarge);
        }
        self.timestamp = part.timestamp;
        self.frame.extend_from_slice(data);
        let header = mp3::Header::read(&self.frame).map_err(|_| Error::Malformed("MPEG audio header"))?;
        // In free format, no field gives the length, so a packet is assumed to contain a whole frame.
        if header.frame_bytes.is_none_or(|bytes| bytes <= self.frame.len()) {
            let payload = self.frame.split().freeze();
            out.give(Frame::new(part.timestamp, false, payload));
        }
        Ok(())
    }

    fn give_up(&mut self, out: &mut Out<'_>) {
        if !self.frame.is_empty() {
            self.frame.clear();
            out.drop_frame();
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.frame.len()
    }
}
