//! Messages in a byte stream (RFC 8656 §3.1, §12.5): STUN messages and ChannelData, each padded to a multiple
//! of four bytes.

use bytes::BytesMut;
use ice::stun::HEADER_BYTES;

use crate::attribute::{CHANNEL_HEAD_BYTES, CHANNELS};
use crate::error::Error;
use crate::limits::MESSAGE_BYTES_MAX;

/// Number of bytes that determine the length of a message.
const HEAD_BYTES: usize = 4;

/// Extracts messages from a stream that may be divided anywhere. Buffers at most one incomplete message.
#[derive(Debug)]
pub struct MessageReader {
    held: BytesMut,
    /// True until the first message has arrived, which must be a STUN request.
    is_first: bool,
}

impl MessageReader {
    /// Creates a reader for an accepted connection. If its first bytes are not those of a STUN request, the
    /// peer uses another protocol.
    #[must_use]
    pub fn accepted() -> Self {
        Self { held: BytesMut::new(), is_first: true }
    }

    /// Returns the next message, without padding, and consumes as much of `input` as needed. `None` if more
    /// input is needed; `input` is then empty.
    ///
    /// # Errors
    ///
    /// Fails if the data is not TURN, or a message is too long. The stream cannot be read further.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, Error> {
        let complete = if self.held.is_empty() {
            self.total(input)?.filter(|(total, _)| input.len() >= *total)
        } else {
            None
        };
        let message = match complete {
            Some((total, used)) => {
                let mut message = input.split_to(total);
                message.truncate(used);
                message
            }
            None => {
                self.fill(input, HEAD_BYTES);
                let Some((total, used)) = self.total(&self.held)? else { return Ok(None) };
                self.fill(input, total);
                self.total(&self.held)?;
                if self.held.len() < total {
                    return Ok(None);
                }
                let mut message = std::mem::take(&mut self.held);
                message.truncate(used);
                message
            }
        };
        self.is_first = false;
        Ok(Some(message))
    }

    fn fill(&mut self, input: &mut BytesMut, length: usize) {
        let more = length.saturating_sub(self.held.len()).min(input.len());
        self.held.extend_from_slice(&input.split_to(more));
    }

    /// Returns the length of the message with and without padding; `None` while it is unknown.
    fn total(&self, bytes: &[u8]) -> Result<Option<(usize, usize)>, Error> {
        let is_request = |first: u8, second: u8| first == 0 && second & 0x10 == 0;
        match bytes {
            [first, ..] if self.is_first && *first != 0 => return Err(Error::FirstMessage),
            [first, second, ..] if self.is_first && !is_request(*first, *second) => {
                return Err(Error::FirstMessage);
            }
            [4..=63 | 128..=255, ..] => return Err(Error::NotTurn),
            _ => {}
        }
        let Some(([a, b, c, d], _)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        let used = if CHANNELS.contains(&u16::from_be_bytes([*a, *b])) {
            CHANNEL_HEAD_BYTES.saturating_add(length)
        } else if *a <= 3 && length.is_multiple_of(4) {
            HEADER_BYTES.saturating_add(length)
        } else {
            return Err(Error::NotTurn);
        };
        if used > MESSAGE_BYTES_MAX {
            return Err(Error::TooLong { length: used });
        }
        Ok(Some((used.next_multiple_of(4), used)))
    }
}

/// Appends a message to a stream, with padding.
pub fn write(message: &[u8], out: &mut BytesMut) {
    out.extend_from_slice(message);
    let padding = message.len().next_multiple_of(4).saturating_sub(message.len());
    out.extend(std::iter::repeat_n(0, padding));
}
