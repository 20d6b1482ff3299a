//! Frames: the hello, the header of a frame, a reader that accepts pieces of any size, and the frame of a unit.

use bytes::{Buf, Bytes, BytesMut};
use media::{AccessUnit, TrackId};
use wire::{Reader, Writer};

use crate::Error;

/// Version of the protocol in this crate.
pub const VERSION: u8 = 1;
/// Length of the header of a frame in bytes.
pub const HEAD_BYTES: usize = 5;
/// Maximum length of the body of a frame in bytes.
pub const BODY_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Number of bytes before the payload in the frame of a unit.
pub const UNIT_HEAD_BYTES: usize = HEAD_BYTES + UNIT_FIELDS_BYTES;

const MAGIC: [u8; 4] = *b"MSRL";
/// Length in bytes of magic, version and the length of the cluster's name.
const HELLO_HEAD_BYTES: usize = 6;
/// Length in bytes of the track, flags, epoch of the track, DTS and PTS.
const UNIT_FIELDS_BYTES: usize = 1 + 1 + 4 + 8 + 8;
const UNIT_FIELDS_SIZE: u32 = 22;
const KEY_FRAME: u8 = 1;

/// Kinds of frames.
pub(crate) mod kind {
    pub(crate) const PLAY: u8 = 1;
    pub(crate) const WANT: u8 = 2;
    pub(crate) const KEY_FRAME: u8 = 3;
    pub(crate) const PING: u8 = 4;
    pub(crate) const PONG: u8 = 5;
    pub(crate) const LEAVE: u8 = 6;
    pub(crate) const CALL: u8 = 7;
    pub(crate) const VIEWERS: u8 = 8;
    pub(crate) const PLAYING: u8 = 16;
    pub(crate) const REFUSED: u8 = 17;
    pub(crate) const TRACKS: u8 = 18;
    pub(crate) const UNIT: u8 = 19;
    pub(crate) const ENDED: u8 = 20;
    pub(crate) const ANSWER: u8 = 21;
}

/// Complete frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) body: Bytes,
}

/// Makes the hello, which each side sends first. A cluster name that is too long is truncated.
pub(crate) fn hello(cluster: &str) -> Bytes {
    let mut out = Writer::new();
    out.bytes(&MAGIC).u8(VERSION);
    put_name(&mut out, cluster);
    out.take()
}

/// Appends a text of at most 255 bytes after its length. Longer text is truncated.
pub(crate) fn put_name(out: &mut Writer, name: &str) {
    let name = name.get(..name.floor_char_boundary(255)).unwrap_or_default();
    out.u8(u8::try_from(name.len()).unwrap_or(u8::MAX)).bytes(name.as_bytes());
}

pub(crate) fn read_name(reader: &mut Reader<'_>) -> Result<String, Error> {
    let length = reader.u8()?;
    let name = reader.take(usize::from(length))?;
    std::str::from_utf8(name).map(str::to_owned).map_err(|_| Error::Invalid("name"))
}

/// Makes a frame with this body. The caller must keep the body small.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Bytes {
    let mut out = Writer::with_capacity(HEAD_BYTES.saturating_add(body.len()));
    out.u8(kind).u32(u32::try_from(body.len()).unwrap_or(u32::MAX)).bytes(body);
    out.take()
}

/// Makes the bytes that precede the payload in the frame of a unit; the payload completes the frame. Returns `None` if
/// the unit is too large to be sent.
#[must_use]
pub fn unit_head(unit: &AccessUnit) -> Option<[u8; UNIT_HEAD_BYTES]> {
    let size = u32::try_from(unit.payload.len()).ok()?.checked_add(UNIT_FIELDS_SIZE)?;
    if size > BODY_BYTES_MAX {
        return None;
    }
    let mut out = Writer::with_capacity(UNIT_HEAD_BYTES);
    out.u8(kind::UNIT).u32(size);
    out.u8(unit.track.number()).u8(if unit.key_frame { KEY_FRAME } else { 0 }).u32(unit.config_epoch);
    out.bytes(&unit.dts.to_be_bytes()).bytes(&unit.pts.to_be_bytes());
    out.take().first_chunk().copied()
}

/// Reads the body of the frame of a unit. The caller must check that the unit's track and epoch are known and that its
/// time is valid.
pub(crate) fn read_unit(body: &Bytes) -> Result<AccessUnit, Error> {
    let mut reader = Reader::new(body);
    let track = TrackId::from_number(reader.u8()?).ok_or(Error::Invalid("track"))?;
    let key_frame = reader.u8()? & KEY_FRAME != 0;
    let config_epoch = reader.u32()?;
    let dts = i64::from_be_bytes(reader.array()?);
    let pts = i64::from_be_bytes(reader.array()?);
    if pts < dts {
        return Err(Error::Invalid("time"));
    }
    let payload = body.slice(reader.position()..);
    Ok(AccessUnit { track, dts, pts, key_frame, config_epoch, payload })
}

/// The part that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Hello,
    Head,
    Body { kind: u8, length: usize },
}

/// Reader of the hello and the frames after it. It buffers the bytes that were pushed and not returned yet. Once
/// [`Self::poll`] returns `None`, that is at most one incomplete frame.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    next: Next,
    /// Returns the maximum length of a frame's body in bytes, given the frame's kind.
    body_max: fn(u8) -> u32,
}

impl FrameReader {
    /// Creates a reader that refuses frames with bodies longer than `body_max` allows for their kind.
    pub(crate) fn new(body_max: fn(u8) -> u32) -> Self {
        Self { buffer: BytesMut::new(), next: Next::Hello, body_max }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the cluster named in the peer's hello, once it has arrived. Later calls return `None`.
    pub(crate) fn poll_hello(&mut self) -> Result<Option<String>, Error> {
        if self.next != Next::Hello {
            return Ok(None);
        }
        let so_far = self.buffer.len().min(MAGIC.len());
        if self.buffer.get(..so_far) != MAGIC.get(..so_far) {
            return Err(Error::Magic);
        }
        let Some([.., version, length]) = self.buffer.first_chunk::<HELLO_HEAD_BYTES>() else {
            return Ok(None);
        };
        if *version != VERSION {
            return Err(Error::Version(*version));
        }
        let whole = HELLO_HEAD_BYTES.saturating_add(usize::from(*length));
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let hello = self.buffer.split_to(whole);
        self.next = Next::Head;
        read_name(&mut Reader::new(hello.get(HELLO_HEAD_BYTES.saturating_sub(1)..).unwrap_or_default()))
            .map(Some)
    }

    /// Returns the next complete frame after the hello. After an error there are no more frames.
    pub(crate) fn poll(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            match self.next {
                Next::Hello => return Ok(None),
                Next::Head => {
                    let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
                    let [kind, length @ ..] = *head;
                    let length = u32::from_be_bytes(length);
                    if length > (self.body_max)(kind) {
                        return Err(Error::TooLarge(length));
                    }
                    self.buffer.advance(HEAD_BYTES);
                    let length = usize::try_from(length).map_err(|_| Error::TooLarge(length))?;
                    self.next = Next::Body { kind, length };
                }
                Next::Body { kind, length } => {
                    if self.buffer.len() < length {
                        return Ok(None);
                    }
                    let body = self.buffer.split_to(length).freeze();
                    self.next = Next::Head;
                    return Ok(Some(Frame { kind, body }));
                }
            }
        }
    }
}
