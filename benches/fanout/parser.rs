//! A light reader of RTMP chunks (RTMP 1.0 §5.3): it sees every message's boundary and keeps only the first bytes
//! of a body, so that five hundred players cost one core little.

use super::media::HEAD_BYTES;

/// S0, S1 and S2 (§5.2).
const HANDSHAKE_BYTES: usize = 1 + 1536 + 1536;
/// The chunk size before any Set Chunk Size (§5.4.1).
const CHUNK_SIZE_DEFAULT: usize = 128;
/// 3 basic, 11 message, 4 extended timestamp.
const HEADER_BYTES_MAX: usize = 18;
const EXTENDED: u32 = 0xff_ffff;
const SET_CHUNK_SIZE: u8 = 1;

/// A message that has come whole.
#[derive(Debug)]
pub struct Whole<'a> {
    /// The message type id.
    pub kind: u8,
    /// The first bytes of its body.
    pub head: &'a [u8],
}

#[derive(Debug, Default)]
struct ChunkStream {
    id: u32,
    kind: u8,
    length: usize,
    extended: bool,
    /// Bytes of the message that have come.
    got: usize,
    head: Vec<u8>,
}

/// A chunk header as far as it matters here.
struct Header {
    bytes: usize,
    id: u32,
    format: u8,
    /// Length and type, of formats 0 and 1.
    message: Option<(usize, u8)>,
    /// Of formats 0 to 2: whether an extended timestamp follows.
    extended: Option<bool>,
}

/// The reader of one connection.
#[derive(Debug)]
pub struct Parser {
    /// Bytes of the handshake that are still to come.
    skip: usize,
    chunk_size: usize,
    streams: Vec<ChunkStream>,
    /// A header that was cut by the end of a read.
    partial: Vec<u8>,
    /// The chunk stream whose chunk is open, and what is missing of the chunk.
    open: Option<(usize, usize)>,
}

impl Parser {
    /// From the first byte of a server.
    pub const fn new() -> Self {
        Self {
            skip: HANDSHAKE_BYTES,
            chunk_size: CHUNK_SIZE_DEFAULT,
            streams: Vec::new(),
            partial: Vec::new(),
            open: None,
        }
    }

    /// Takes bytes, split anywhere, and tells of each message that has become whole.
    pub fn feed(&mut self, bytes: &[u8], mut tell: impl FnMut(Whole<'_>)) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let mut rest = bytes.get(skipped..).unwrap_or_default();
        while !rest.is_empty() {
            rest = match self.open {
                Some((index, missing)) => self.body(index, missing, rest, &mut tell),
                None => self.header(rest, &mut tell),
            };
        }
    }

    fn body<'a>(
        &mut self,
        index: usize,
        missing: usize,
        bytes: &'a [u8],
        tell: &mut impl FnMut(Whole<'_>),
    ) -> &'a [u8] {
        let Some(stream) = self.streams.get_mut(index) else { return &[] };
        let (now, rest) = bytes.split_at(missing.min(bytes.len()));
        let wanted = HEAD_BYTES.saturating_sub(stream.head.len()).min(now.len());
        stream.head.extend_from_slice(now.get(..wanted).unwrap_or_default());
        stream.got += now.len();
        self.open = (missing > now.len()).then(|| (index, missing - now.len()));
        if self.open.is_none() && stream.got >= stream.length {
            stream.got = 0;
            if let (SET_CHUNK_SIZE, Some(size)) = (stream.kind, stream.head.first_chunk::<4>()) {
                self.chunk_size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(1).max(1);
            }
            tell(Whole { kind: stream.kind, head: &stream.head });
            stream.head.clear();
        }
        rest
    }

    fn header<'a>(&mut self, bytes: &'a [u8], tell: &mut impl FnMut(Whole<'_>)) -> &'a [u8] {
        if self.partial.is_empty()
            && let Some(header) = read_header(bytes, &self.streams)
        {
            self.begin(&header, tell);
            return bytes.get(header.bytes..).unwrap_or_default();
        }
        // The header is cut: it is gathered byte by byte.
        let Some((first, rest)) = bytes.split_first() else { return &[] };
        self.partial.push(*first);
        if let Some(header) = read_header(&self.partial, &self.streams) {
            self.partial.clear();
            self.begin(&header, tell);
        }
        rest
    }

    fn begin(&mut self, header: &Header, tell: &mut impl FnMut(Whole<'_>)) {
        let index = self.streams.iter().position(|stream| stream.id == header.id).unwrap_or_else(|| {
            self.streams.push(ChunkStream { id: header.id, ..ChunkStream::default() });
            self.streams.len() - 1
        });
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let Some((length, kind)) = header.message {
            (stream.length, stream.kind) = (length, kind);
        }
        if let Some(extended) = header.extended {
            stream.extended = extended;
        }
        if header.format < 3 {
            stream.got = 0;
            stream.head.clear();
        }
        let chunk = (stream.length - stream.got).min(self.chunk_size);
        if chunk == 0 {
            tell(Whole { kind: stream.kind, head: &[] });
        } else {
            self.open = Some((index, chunk));
        }
    }
}

/// `None`: there is not enough of it yet.
fn read_header(bytes: &[u8], streams: &[ChunkStream]) -> Option<Header> {
    let bytes = bytes.get(..bytes.len().min(HEADER_BYTES_MAX))?;
    let first = *bytes.first()?;
    let format = first >> 6;
    let (id, basic) = match first & 0x3f {
        0 => (64 + u32::from(*bytes.get(1)?), 2),
        1 => (64 + u32::from(*bytes.get(1)?) + 256 * u32::from(*bytes.get(2)?), 3),
        id => (u32::from(id), 1),
    };
    let fields = [11, 7, 3, 0].get(usize::from(format)).copied().unwrap_or(0);
    let message = bytes.get(basic..basic + fields)?;
    let known = || streams.iter().any(|stream| stream.id == id && stream.extended);
    let extended = (fields >= 3).then(|| u24(message) == Some(EXTENDED));
    let size = basic + fields + if extended.unwrap_or_else(known) { 4 } else { 0 };
    if bytes.len() < size {
        return None;
    }
    let length = message.get(3..).and_then(u24).and_then(|length| usize::try_from(length).ok());
    let message = length.zip(message.get(6).copied());
    Some(Header { bytes: size, id, format, message, extended })
}

fn u24(bytes: &[u8]) -> Option<u32> {
    let [a, b, c] = *bytes.first_chunk::<3>()?;
    Some(u32::from_be_bytes([0, a, b, c]))
}
