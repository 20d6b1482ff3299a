//! The chunk reader: copies chunks into one buffer per incomplete message.
//!
//! A header is read directly from the input if the input contains all of it; otherwise its bytes are first collected in
//! a small carry buffer. Data is copied once: into a buffer that grows with the received bytes up to the length of the
//! message. If a small message has arrived completely, its data is copied into a block shared with neighbouring
//! messages instead, so that most messages need no allocation.

use bytes::{Bytes, BytesMut};

use super::{CHUNK_SIZE_DEFAULT, CHUNK_SIZE_MAX, CONTROL, EXTENDED, Message};
use crate::error::Fault;
use crate::message::kind;
use crate::{Config, Error, Limit, Violation};

/// Longest header, in bytes: 3 basic, 11 message, 4 extended timestamp.
const HEADER_BYTES_MAX: usize = 18;
/// Maximum number of bytes by which a message's buffer may exceed the data received so far, once a publish was
/// accepted. It is the size of one read from the socket.
const GROW_AHEAD_BYTES: usize = 64 << 10;
/// Size of a block that small media messages share. A block is freed when the last of its messages is dropped.
const BLOCK_BYTES: usize = 32 << 10;
/// Longest message that is stored in a block. If the next message does not fit, the rest of the block is unused.
const BLOCK_MESSAGE_BYTES_MAX: usize = BLOCK_BYTES / 8;

/// Limits on the memory that a peer can make the reader hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest audio, video or aggregate message.
    pub media_bytes_max: usize,
    /// Longest message of any other type.
    pub command_bytes_max: usize,
    /// Maximum memory for incomplete messages before a publish or play is granted.
    pub pending_bytes_max: usize,
    /// Maximum memory for incomplete messages after a publish or play was granted.
    pub pending_bytes_max_granted: usize,
    /// Maximum number of chunk streams.
    pub chunk_streams_max: usize,
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        Self {
            media_bytes_max: config.media_bytes_max,
            command_bytes_max: config.command_bytes_max,
            pending_bytes_max: config.pending_bytes_max,
            pending_bytes_max_granted: config.pending_bytes_max_granted,
            chunk_streams_max: config.chunk_streams_max,
        }
    }
}

/// The latest header of a chunk stream, and its incomplete message.
#[derive(Debug, Default)]
struct ChunkStream {
    id: u32,
    timestamp: u32,
    /// Timestamp field as in the header: absolute in type 0, a delta in types 1 and 2.
    field: u32,
    extended: bool,
    length: usize,
    kind: u8,
    message_stream: u32,
    /// True if a message has begun and its data is not complete.
    open: bool,
    data: Data,
}

/// Storage for the data of an incomplete message.
#[derive(Debug)]
enum Data {
    /// A separate buffer.
    Own(Vec<u8>),
    /// A part of a shared block, as large as the message.
    Place(BytesMut),
}

/// A chunk header.
#[derive(Debug, Clone, Copy)]
struct Header {
    bytes: usize,
    format: u8,
    chunk_stream: u32,
    /// Timestamp field of a header of type 0, 1 or 2, or the extended timestamp that replaces it; `None` in a header of
    /// type 3.
    field: Option<u32>,
    extended: bool,
    /// Message length and type in headers of types 0 and 1.
    length_and_kind: Option<(usize, u8)>,
    /// Message stream id in headers of type 0.
    message_stream: Option<u32>,
}

/// Part of a chunk's data that has not been read yet.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Index of the chunk stream in the list.
    index: usize,
    left: usize,
}

/// Result of a step of the reader.
#[derive(Debug)]
enum Step {
    Message(Message),
    InputUsedUp,
    /// Some bytes were taken for an extended timestamp but are data. They must be read again before the rest of the
    /// input.
    Replay,
}

/// Bytes that were taken as the start of an extended timestamp but turned out to be data.
#[derive(Debug, Clone, Copy, Default)]
struct Replay {
    bytes: [u8; 4],
    len: usize,
}

/// Assembles messages from chunks.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    granted: bool,
    chunk_size: usize,
    streams: Vec<ChunkStream>,
    carry: [u8; HEADER_BYTES_MAX],
    carried: usize,
    replay: Replay,
    open: Option<Open>,
    pending_bytes: usize,
    bytes_read: u64,
    /// Unused rest of the newest block.
    block: BytesMut,
}

impl Reader {
    /// Creates the reader of a connection before its first chunk.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            granted: false,
            chunk_size: CHUNK_SIZE_DEFAULT,
            streams: Vec::new(),
            carry: [0; HEADER_BYTES_MAX],
            carried: 0,
            replay: Replay { bytes: [0; 4], len: 0 },
            open: None,
            pending_bytes: 0,
            bytes_read: 0,
            block: BytesMut::new(),
        }
    }

    /// Takes bytes off the front of `input` up to the end of the next message. `None` means that all input was taken.
    /// After an error the reader must not be used again.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Error> {
        let before = input.len();
        let result = self.read_replayed(input);
        let taken = before.saturating_sub(input.len());
        self.bytes_read = self.bytes_read.saturating_add(u64::try_from(taken).unwrap_or(0));
        result.map_err(|fault| fault.at(self.bytes_read))
    }

    /// Applies Set Chunk Size (§5.4.1). The size must be a number of 31 bits other than 0. A size above the longest
    /// possible message is reduced to that length.
    pub fn set_chunk_size(&mut self, size: u32) -> Result<(), Error> {
        if size == 0 || size > 0x7fff_ffff {
            return Err(Fault::from(Violation::ChunkSize(size)).at(self.bytes_read));
        }
        self.chunk_size = usize::try_from(size.min(CHUNK_SIZE_MAX)).unwrap_or(CHUNK_SIZE_DEFAULT);
        Ok(())
    }

    /// Applies Abort (§5.4.2): drops the incomplete message of a chunk stream. An unknown chunk stream is ignored.
    pub fn abort(&mut self, chunk_stream: u32) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == chunk_stream) {
            stream.open = false;
            self.pending_bytes = self.pending_bytes.saturating_sub(stream.data.capacity());
            stream.data = Data::default();
        }
    }

    /// Selects the limits that apply once a publish was granted, or while our client plays; `false` selects the lower
    /// limits.
    pub const fn grant(&mut self, granted: bool) {
        self.granted = granted;
    }

    /// Number of bytes taken so far.
    #[must_use]
    pub const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the number of bytes allocated for incomplete messages.
    #[must_use]
    pub const fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    fn read_replayed(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Fault> {
        loop {
            let step = if self.replay.len > 0 {
                let Replay { bytes, len } = std::mem::take(&mut self.replay);
                let mut replayed = bytes.get(..len).unwrap_or_default();
                let step = self.step(&mut replayed)?;
                self.replay = Replay::of(replayed);
                match step {
                    Step::InputUsedUp => Step::Replay,
                    Step::Message(_) | Step::Replay => step,
                }
            } else {
                self.step(input)?
            };
            match step {
                Step::Message(message) => return Ok(Some(message)),
                Step::InputUsedUp => return Ok(None),
                Step::Replay => {}
            }
        }
    }

    /// Reads chunks until a message is complete.
    fn step(&mut self, input: &mut &[u8]) -> Result<Step, Fault> {
        loop {
            let open = match self.open {
                Some(open) => open,
                None => {
                    let Some(header) = self.read_header(input) else {
                        return Ok(Step::InputUsedUp);
                    };
                    let open = self.open_chunk(&header)?;
                    if self.replay.len > 0 {
                        return Ok(Step::Replay);
                    }
                    open
                }
            };
            if let Some(message) = self.read_data(open, input)? {
                return Ok(Step::Message(message));
            }
            if self.open.is_some() {
                return Ok(Step::InputUsedUp);
            }
        }
    }

    /// Reads a header from the input, or from the carry buffer and the input. `None` if the input ends first.
    fn read_header(&mut self, input: &mut &[u8]) -> Option<Header> {
        if self.carried == 0
            && let Some(header) = self.parse_header(input)
        {
            consume(input, header.bytes);
            return Some(header);
        }
        let before = self.carried;
        for (slot, byte) in self.carry.iter_mut().skip(before).zip(input.iter()) {
            *slot = *byte;
            self.carried = self.carried.saturating_add(1);
        }
        let carry = self.carry;
        let Some(header) = self.parse_header(carry.get(..self.carried).unwrap_or_default()) else {
            consume(input, self.carried.saturating_sub(before));
            return None;
        };
        consume(input, header.bytes.saturating_sub(before));
        self.replay = Replay::of(carry.get(header.bytes..before).unwrap_or_default());
        self.carried = 0;
        Some(header)
    }

    /// Parses a header. `None` if `bytes` ends within the header.
    fn parse_header(&self, bytes: &[u8]) -> Option<Header> {
        let mut r = wire::Reader::new(bytes);
        let first = r.u8().ok()?;
        let format = first >> 6;
        let chunk_stream = match first & 0x3f {
            0 => u32::from(r.u8().ok()?).saturating_add(64),
            1 => {
                let low = r.u8().ok()?;
                let high = r.u8().ok()?;
                u32::from(u16::from_be_bytes([high, low])).saturating_add(64)
            }
            id => u32::from(id),
        };
        let mut header = Header {
            bytes: 0,
            format,
            chunk_stream,
            field: None,
            extended: false,
            length_and_kind: None,
            message_stream: None,
        };
        if format == 3 {
            self.skip_repeated_timestamp(chunk_stream, &mut r)?;
        } else {
            let field = r.u24().ok()?;
            if format < 2 {
                header.length_and_kind = Some((usize::try_from(r.u24().ok()?).ok()?, r.u8().ok()?));
            }
            if format == 0 {
                header.message_stream = Some(r.u32_le().ok()?);
            }
            header.extended = field == EXTENDED;
            header.field = Some(if header.extended { r.u32().ok()? } else { field });
        }
        header.bytes = r.position();
        Some(header)
    }

    /// Skips a repeated extended timestamp. If the last header had an extended timestamp, most senders (ffmpeg,
    /// librtmp) repeat it in a type 3 header (§5.3.1.3), but some do not. Four bytes that equal the timestamp, as a
    /// delta or as an absolute time, are taken as the repetition. If a single byte differs, the bytes are data.
    fn skip_repeated_timestamp(&self, chunk_stream: u32, r: &mut wire::Reader<'_>) -> Option<()> {
        let Some(stream) = self.streams.iter().find(|stream| stream.id == chunk_stream) else {
            return Some(());
        };
        if !stream.extended {
            return Some(());
        }
        let have = r.clone().rest();
        let repeats = |timestamp: u32| have.iter().zip(timestamp.to_be_bytes()).all(|(a, b)| *a == b);
        if repeats(stream.field) || repeats(stream.timestamp) {
            r.u32().ok()?;
        }
        Some(())
    }

    /// Applies a header to its chunk stream and starts reading the chunk's data.
    fn open_chunk(&mut self, header: &Header) -> Result<Open, Fault> {
        let index = self.stream_index(header)?;
        let Some(stream) = self.streams.get_mut(index) else {
            return Err(Limit::ChunkStreams.into());
        };
        if stream.open {
            // Within a message, a chunk only continues the data. If it has a full header, the message length in it must
            // be the same.
            if let Some((to, _)) = header.length_and_kind
                && to != stream.length
            {
                return Err(Violation::LengthChanged { from: stream.length, to }.into());
            }
        } else {
            stream.begin(header);
            let media = matches!(stream.kind, kind::AUDIO | kind::VIDEO | kind::AGGREGATE);
            let max = if media { self.limits.media_bytes_max } else { self.limits.command_bytes_max };
            if stream.length > max {
                return Err(Limit::MessageBytes { bytes: stream.length, kind: stream.kind }.into());
            }
        }
        let left = stream.length.saturating_sub(stream.data.len()).min(self.chunk_size);
        let open = Open { index, left };
        self.open = Some(open);
        Ok(open)
    }

    fn stream_index(&mut self, header: &Header) -> Result<usize, Fault> {
        if let Some(index) = self.streams.iter().position(|stream| stream.id == header.chunk_stream) {
            return Ok(index);
        }
        // librtmp begins the control stream with a type 1 header, which has no message stream id. The id is then
        // assumed to be 0.
        let known_to_begin_so = header.format == 1 && header.chunk_stream == CONTROL;
        if header.format != 0 && !known_to_begin_so {
            let (chunk_stream, format) = (header.chunk_stream, header.format);
            return Err(Violation::FirstHeader { chunk_stream, format }.into());
        }
        if self.streams.len() >= self.limits.chunk_streams_max {
            return Err(Limit::ChunkStreams.into());
        }
        self.streams.push(ChunkStream { id: header.chunk_stream, ..ChunkStream::default() });
        Ok(self.streams.len().saturating_sub(1))
    }

    /// Copies the available data of the chunk. Returns the message if it is complete.
    fn read_data(&mut self, open: Open, input: &mut &[u8]) -> Result<Option<Message>, Fault> {
        let available = input.len();
        let ahead = if self.granted { available.min(GROW_AHEAD_BYTES) } else { 0 };
        let data = consume(input, open.left);
        let left = open.left.saturating_sub(data.len());
        let Some(stream) = self.streams.get_mut(open.index) else {
            return Err(Limit::ChunkStreams.into());
        };
        if self.granted && stream.fits_a_block(available) {
            stream.data = Data::Place(take_place(&mut self.block, stream.length));
        }
        let before = stream.data.capacity();
        // This is the only copy of the data between the receive buffer and the message.
        stream.append(data, ahead);
        self.pending_bytes = self.pending_bytes.saturating_sub(before).saturating_add(stream.data.capacity());
        self.open = (left > 0).then_some(Open { index: open.index, left });
        if left == 0 && stream.data.len() >= stream.length {
            let message = stream.finish();
            self.pending_bytes = self.pending_bytes.saturating_sub(message.payload.len());
            return Ok(Some(message));
        }
        let max =
            if self.granted { self.limits.pending_bytes_max_granted } else { self.limits.pending_bytes_max };
        if self.pending_bytes > max { Err(Limit::PendingBytes.into()) } else { Ok(None) }
    }
}

impl ChunkStream {
    /// Applies the header that starts a message. Timestamps wrap; deltas (§5.3.1.2.1) add up in the chunk stream's
    /// timestamp. A type 3 header adds the timestamp field of the last header once more as a delta, even if that header
    /// was of type 0 (§5.3.1.2.4).
    fn begin(&mut self, header: &Header) {
        if let Some(field) = header.field {
            self.field = field;
            self.extended = header.extended;
        }
        if let Some((length, kind)) = header.length_and_kind {
            self.length = length;
            self.kind = kind;
        }
        if let Some(message_stream) = header.message_stream {
            self.message_stream = message_stream;
            self.timestamp = self.field;
        } else {
            self.timestamp = self.timestamp.wrapping_add(self.field);
        }
        self.open = true;
    }

    /// True if the starting message is stored in a block: it is media, and no longer than the data that has already
    /// arrived. So a peer that announces a length but sends no data gets no memory.
    fn fits_a_block(&self, available: usize) -> bool {
        matches!(self.kind, kind::AUDIO | kind::VIDEO)
            && (1..=BLOCK_MESSAGE_BYTES_MAX.min(available)).contains(&self.length)
            && self.data.capacity() == 0
    }

    /// Appends data. The capacity of the buffer is limited to twice the received bytes, or to one socket read more than
    /// the received bytes, and never exceeds the message length. So a complete message has no spare capacity.
    fn append(&mut self, data: &[u8], ahead: usize) {
        match &mut self.data {
            Data::Own(buffer) => {
                let needed = buffer.len().saturating_add(data.len());
                if needed > buffer.capacity() {
                    let ahead = buffer.len().saturating_add(ahead);
                    let target = needed.max(ahead).max(buffer.len().saturating_mul(2)).min(self.length);
                    buffer.reserve_exact(target.saturating_sub(buffer.len()));
                }
                buffer.extend_from_slice(data);
            }
            Data::Place(place) => place.extend_from_slice(data),
        }
    }

    fn finish(&mut self) -> Message {
        self.open = false;
        Message {
            chunk_stream: self.id,
            timestamp: self.timestamp,
            kind: self.kind,
            message_stream: self.message_stream,
            payload: std::mem::take(&mut self.data).into_bytes(),
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::Own(buffer) => buffer.len(),
            Self::Place(place) => place.len(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Own(buffer) => buffer.capacity(),
            Self::Place(place) => place.capacity(),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Own(buffer) => Bytes::from(buffer),
            Self::Place(place) => place.freeze(),
        }
    }
}

/// Splits `length` bytes off the front of the block. A block with too little room is replaced by a new one first, so
/// that the split cannot panic.
fn take_place(block: &mut BytesMut, length: usize) -> BytesMut {
    if block.capacity() < length {
        *block = BytesMut::with_capacity(BLOCK_BYTES.max(length));
    }
    let rest = block.split_off(length);
    std::mem::replace(block, rest)
}

impl Replay {
    fn of(bytes: &[u8]) -> Self {
        let mut replay = Self::default();
        for (slot, byte) in replay.bytes.iter_mut().zip(bytes) {
            *slot = *byte;
            replay.len = replay.len.saturating_add(1);
        }
        replay
    }
}

/// Takes at most `bytes` bytes off the front of `input` and returns them.
fn consume<'a>(input: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (head, tail) = input.split_at_checked(bytes).unwrap_or((input, &[]));
    *input = tail;
    head
}
