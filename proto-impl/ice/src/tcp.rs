//! Frames over TCP (RFC 4571 §2): a length of two bytes followed by the message. ICE uses them for STUN, DTLS
//! and SRTP (RFC 6544 §3).

use bytes::BytesMut;

use crate::error::Error;
use crate::limits::FRAME_BYTES_MAX;
use crate::stun::HEADER_BYTES;

/// Length of a frame header.
pub const FRAME_HEAD_BYTES: usize = 2;

/// Extracts frames from a stream that may be divided anywhere. Buffers at most one incomplete frame.
#[derive(Debug)]
pub struct FrameReader {
    held: BytesMut,
    most: usize,
    /// True if the connection was accepted and its first frame, which must be STUN, has not arrived yet.
    is_first: bool,
}

impl FrameReader {
    /// Creates a reader for frames of up to `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { held: BytesMut::new(), most, is_first: false }
    }

    /// Creates a reader for an accepted connection. The first frame must be a STUN request; if its first bytes
    /// show something else, the peer speaks another protocol and has connected to the wrong port.
    #[must_use]
    pub fn accepted(most: usize) -> Self {
        Self { is_first: true, ..Self::new(most) }
    }

    /// Returns the next frame, and consumes as much of `input` as needed. `None` if more input is needed;
    /// `input` is then empty. Empty frames are skipped.
    ///
    /// # Errors
    ///
    /// Fails if a frame is too long, or the first one is not a STUN request. The stream cannot be read further.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, Error> {
        loop {
            // Frames that are complete in the input are returned without copying; incomplete frames are
            // buffered.
            let complete = if self.held.is_empty() {
                self.total(input)?.filter(|total| input.len() >= *total).map(|total| input.split_to(total))
            } else {
                None
            };
            let Some(mut frame) = complete.map_or_else(|| self.gather(input), |frame| Ok(Some(frame)))?
            else {
                return Ok(None);
            };
            let _head = frame.split_to(FRAME_HEAD_BYTES);
            if !frame.is_empty() {
                self.is_first = false;
                return Ok(Some(frame));
            }
        }
    }

    fn gather(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, Error> {
        self.fill(input, FRAME_HEAD_BYTES);
        let Some(total) = self.total(&self.held)? else { return Ok(None) };
        self.fill(input, total);
        self.total(&self.held)?;
        let complete = self.held.len() >= total;
        Ok(complete.then(|| std::mem::take(&mut self.held)))
    }

    fn fill(&mut self, input: &mut BytesMut, length: usize) {
        let more = length.saturating_sub(self.held.len()).min(input.len());
        self.held.extend_from_slice(&input.split_to(more));
    }

    /// Returns the length of the frame including its header; `None` while it is unknown. Fails if the frame
    /// cannot be valid.
    fn total(&self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let Some((head, frame)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*head));
        if length > self.most {
            return Err(Error::FrameTooLong { length, most: self.most });
        }
        let begins = frame.iter().zip([0x00, 0x01]).all(|(byte, request)| *byte == request);
        if self.is_first && length != 0 && (length < HEADER_BYTES || !begins) {
            return Err(Error::FirstFrame);
        }
        Ok(Some(length.saturating_add(FRAME_HEAD_BYTES)))
    }
}

/// Creates a reader with the default limit.
impl Default for FrameReader {
    fn default() -> Self {
        Self::new(FRAME_BYTES_MAX)
    }
}

/// Returns the header of a frame with `length` bytes.
///
/// # Errors
///
/// Fails if the length does not fit into two bytes.
pub fn frame_head(length: usize) -> Result<[u8; FRAME_HEAD_BYTES], Error> {
    let most = usize::from(u16::MAX);
    u16::try_from(length).map(u16::to_be_bytes).map_err(|_| Error::FrameTooLong { length, most })
}

/// Appends a frame.
///
/// # Errors
///
/// Fails as [`frame_head`] does. On failure, nothing is appended.
pub fn write_frame(payload: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend_from_slice(&frame_head(payload.len())?);
    out.extend_from_slice(payload);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        payloads.iter().for_each(|payload| write_frame(payload, &mut out).unwrap());
        out
    }

    fn read(mut reader: FrameReader, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, Error> {
        let mut frames = Vec::new();
        for piece in pieces {
            let mut input = BytesMut::from(*piece);
            while let Some(frame) = reader.next(&mut input)? {
                frames.push(frame.to_vec());
            }
            assert!(input.is_empty());
            assert!(reader.held.len() <= reader.most + FRAME_HEAD_BYTES);
        }
        Ok(frames)
    }

    #[test]
    fn any_cut_gives_the_same_frames_and_empty_ones_are_passed_over() {
        let stream = framed(&[b"abc", b"", b"d", &[7; 300], b""]);
        let want = vec![b"abc".to_vec(), b"d".to_vec(), vec![7; 300]];
        for first in 0..stream.len() {
            let (a, b) = stream.split_at(first);
            assert_eq!(read(FrameReader::default(), &[a, b]), Ok(want.clone()), "{first}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(FrameReader::default(), &bytes), Ok(want));
    }

    #[test]
    fn long_frames_are_refused_by_their_head() {
        let refused = Err(Error::FrameTooLong { length: 101, most: 100 });
        assert_eq!(read(FrameReader::new(100), &[&[0, 101]]), refused);
        assert_eq!(read(FrameReader::new(100), &[&[0], &[101]]), refused);
        assert_eq!(read(FrameReader::new(100), &[&framed(&[&[1; 100]])]).unwrap().len(), 1);
        assert!(frame_head(65_535).is_ok() && frame_head(65_536).is_err());
    }

    #[test]
    fn what_is_accepted_begins_with_a_stun_request() {
        let mut request = vec![0, 1, 0, 0];
        request.resize(20, 9);
        let other = framed(&[&request, &[22, 254, 253]]);
        assert_eq!(read(FrameReader::accepted(2048), &[&other]).unwrap().len(), 2);
        let begins: [&[u8]; 6] = [
            b"GET / HTTP/1.1",
            &[3, 0, 0, 0x13],
            &[0, 20, 1],
            &[0, 20, 0, 0x11],
            &[0, 19],
            &[0, 0, 0, 20, 22],
        ];
        for bytes in begins {
            let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
            for pieces in [vec![bytes], pieces] {
                let end = read(FrameReader::accepted(0x5000), &pieces);
                assert_eq!(end, Err(Error::FirstFrame), "{bytes:?}");
            }
        }
    }
}
