//! The reader of a connection's byte stream: messages and interleaved frames (RFC 2326 §10.12).
//!
//! The reader accepts common deviations of real peers: lines that end with a bare LF, empty lines between messages, and
//! field values that are not UTF-8. It refuses whatever could hide a message inside another: a repeated or malformed
//! `Content-Length`, control characters, fields that continue on another line. After the first frame, bytes that belong
//! to neither a frame nor a message are skipped, up to a limit ([`stray`]). Memory is only allocated for bytes that
//! have arrived, never for an announced length.

mod stray;

use bytes::{Buf, Bytes, BytesMut};

use crate::error::Fault;
use crate::limits::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADER_NAME_BYTES_MAX, HEADER_VALUE_BYTES_MAX, HEADERS_MAX,
    START_LINE_BYTES_MAX, STRAY_BYTES_MAX, URL_BYTES_MAX,
};
use crate::message::{VERSION, number};
use crate::{Error, Headers, Limit, Method, Request, Response, Status, Violation};
use stray::{Beginning, Seen};

/// The first byte of an interleaved frame.
const DOLLAR: u8 = b'$';

/// An item of the byte stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A request.
    Request(Request),
    /// A response.
    Response(Response),
    /// An interleaved frame.
    Interleaved {
        /// Channel number. The `Transport` field assigns it to a track.
        channel: u8,
        /// Contents: an RTP or RTCP packet.
        payload: Bytes,
    },
}

/// A message without its body.
#[derive(Debug)]
enum Head {
    Request(Request),
    Response(Response),
}

#[derive(Debug, Default)]
enum State {
    /// Between messages.
    #[default]
    Start,
    /// After a frame or message: skips stray bytes, which belong neither to a frame nor to a message.
    Search { stray: usize },
    /// In the four header bytes of a frame.
    FrameHead,
    /// In a frame's payload.
    Frame { channel: u8, left: usize },
    /// In a message's head: the length of the current line, and the number of lines.
    Head { line: usize, lines: usize },
    /// In a message's body.
    Body { head: Box<Head>, left: usize },
}

/// Splits a byte stream into messages and frames.
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    /// Received part of the current head, body or frame.
    buffer: BytesMut,
    /// Channels of the frames received so far.
    seen: Seen,
    at: u64,
}

impl Reader {
    /// Creates a reader at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input` up to the end of one item. `None` means that all input was taken and more
    /// is needed. After an error the reader must not be used again.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Item>, Error> {
        let before = input.len();
        let result = self.step(input);
        let taken = u64::try_from(before.saturating_sub(input.len())).unwrap_or(0);
        self.at = self.at.saturating_add(taken);
        result.map_err(|fault| fault.at(self.at))
    }

    /// Returns the number of buffered bytes of an incomplete item.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Number of bytes taken so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.at
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Item>, Fault> {
        loop {
            match &mut self.state {
                State::Start => match input.first() {
                    None => return Ok(None),
                    Some(b'\r' | b'\n') => *input = input.get(1..).unwrap_or_default(),
                    Some(&DOLLAR) => self.state = State::FrameHead,
                    Some(_) if !self.seen.is_empty() => self.state = State::Search { stray: 0 },
                    Some(_) => self.state = State::Head { line: 0, lines: 0 },
                },
                &mut State::Search { stray } => {
                    if !self.search(stray, input)? {
                        return Ok(None);
                    }
                }
                State::FrameHead => {
                    if !fill(&mut self.buffer, 4, input) {
                        return Ok(None);
                    }
                    let [_, channel, high, low] = *self.buffer.first_chunk::<4>().unwrap_or(&[0; 4]);
                    self.buffer.clear();
                    let left = usize::from(u16::from_be_bytes([high, low]));
                    self.state = State::Frame { channel, left };
                }
                &mut State::Frame { channel, left } => {
                    let Some(payload) = self.collect(left, input) else { return Ok(None) };
                    self.state = State::Start;
                    self.seen.add(channel);
                    return Ok(Some(Item::Interleaved { channel, payload }));
                }
                State::Head { .. } => {
                    if !self.read_head(input)? {
                        return Ok(None);
                    }
                }
                &mut State::Body { left, .. } => {
                    let Some(body) = self.collect(left, input) else { return Ok(None) };
                    if let State::Body { head, .. } = std::mem::take(&mut self.state) {
                        return Ok(Some(match *head {
                            Head::Request(request) => Item::Request(Request { body, ..request }),
                            Head::Response(response) => Item::Response(Response { body, ..response }),
                        }));
                    }
                }
            }
        }
    }

    /// Skips stray bytes, one by one, until a frame or message begins. Returns false if `input` ends first.
    fn search(&mut self, mut stray: usize, input: &mut &[u8]) -> Result<bool, Fault> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            self.buffer.extend_from_slice(&[byte]);
            loop {
                match stray::judge(&self.buffer, &self.seen, stray) {
                    Beginning::Unknown => break,
                    Beginning::Frame { channel, length, first } => {
                        self.buffer.clear();
                        self.buffer.extend_from_slice(&[first]);
                        self.state = State::Frame { channel, left: length.into() };
                        return Ok(true);
                    }
                    Beginning::Message => {
                        self.state = State::Head { line: self.buffer.len(), lines: 0 };
                        return Ok(true);
                    }
                    Beginning::Stray => self.buffer.advance(1),
                }
                stray = stray.saturating_add(1);
                if stray > STRAY_BYTES_MAX {
                    return Err(Violation::StartLine.into());
                }
            }
        }
        self.state = State::Search { stray };
        Ok(false)
    }

    /// Returns the next `length` bytes once they have arrived.
    fn collect(&mut self, length: usize, input: &mut &[u8]) -> Option<Bytes> {
        if self.buffer.is_empty()
            && let Some((whole, rest)) = input.split_at_checked(length)
        {
            *input = rest;
            return Some(Bytes::copy_from_slice(whole));
        }
        fill(&mut self.buffer, length, input).then(|| std::mem::take(&mut self.buffer).freeze())
    }

    /// Reads up to the empty line after the header fields. Returns false if `input` ends first.
    fn read_head(&mut self, input: &mut &[u8]) -> Result<bool, Fault> {
        let State::Head { mut line, mut lines } = self.state else { return Ok(true) };
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            let line_max = if lines == 0 {
                START_LINE_BYTES_MAX
            } else {
                HEADER_NAME_BYTES_MAX.saturating_add(HEADER_VALUE_BYTES_MAX)
            };
            match byte {
                b'\n' if line == 0 => {
                    let head = std::mem::take(&mut self.buffer);
                    let (head, left) = parse_head(&String::from_utf8_lossy(&head))?;
                    self.state = State::Body { head: Box::new(head), left };
                    return Ok(true);
                }
                b'\n' => {
                    (line, lines) = (0, lines.saturating_add(1));
                    if lines > HEADERS_MAX.saturating_add(1) {
                        return Err(Limit::Headers.into());
                    }
                }
                // Part of the line end. A carriage return inside a line is refused later, as a control
                // character.
                b'\r' => {}
                _ => line = line.saturating_add(1),
            }
            self.buffer.extend_from_slice(&[byte]);
            if line > line_max {
                let limit = if lines == 0 { Limit::StartLineBytes } else { Limit::HeaderBytes };
                return Err(limit.into());
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(Limit::HeaderBytes.into());
            }
        }
        self.state = State::Head { line, lines };
        Ok(false)
    }
}

/// Moves bytes from `input` to `buffer` until `buffer` has `length` bytes. Returns true once it has them.
fn fill(buffer: &mut BytesMut, length: usize, input: &mut &[u8]) -> bool {
    let missing = length.saturating_sub(buffer.len()).min(input.len());
    if let Some((taken, rest)) = input.split_at_checked(missing) {
        buffer.extend_from_slice(taken);
        *input = rest;
    }
    buffer.len() >= length
}

/// Parses the head of a message without the empty line. Also returns the length of the body.
fn parse_head(text: &str) -> Result<(Head, usize), Fault> {
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let start = lines.next().unwrap_or_default();
    if start.contains(char::is_control) {
        return Err(Violation::Control.into());
    }
    let mut head = parse_start(start)?;
    let mut length = None;
    let (is_request, headers) = match &mut head {
        Head::Request(request) => (true, &mut request.headers),
        Head::Response(response) => (false, &mut response.headers),
    };
    for line in lines.filter(|line| !line.is_empty()) {
        if line.contains(|c: char| c.is_control() && c != '\t') {
            return Err(Violation::Control.into());
        }
        let Some((name, value)) = field(line)? else { continue };
        if name.eq_ignore_ascii_case("Content-Length") {
            let first = length.replace(number::<usize>(value).ok_or(Violation::ContentLength)?);
            if first.is_some() {
                return Err(Violation::ContentLength.into());
            }
        } else {
            headers.push(name, value);
        }
    }
    let mut numbers = headers.all("CSeq");
    let numbered =
        numbers.next().is_none_or(|value| number::<u32>(value).is_some()) && numbers.next().is_none();
    drop(numbers);
    if !numbered || is_request && headers.cseq().is_none() {
        return Err(Violation::CSeq.into());
    }
    let length = length.unwrap_or(0);
    if length > BODY_BYTES_MAX { Err(Limit::BodyBytes.into()) } else { Ok((head, length)) }
}

/// Splits a header field into name and value. `None` for a line without a name: some cameras send `: `.
fn field(line: &str) -> Result<Option<(&str, &str)>, Fault> {
    let (name, value) = line.split_once(':').ok_or(Violation::Header)?;
    // A space at the start would continue the previous field. No peer sends such a field, and peers do not agree on its
    // meaning.
    let name = name.trim_ascii_end();
    if name.contains(char::is_whitespace) || !name.is_ascii() {
        return Err(Violation::Header.into());
    }
    let value = value.trim_ascii();
    if name.len() > HEADER_NAME_BYTES_MAX || value.len() > HEADER_VALUE_BYTES_MAX {
        return Err(Limit::HeaderBytes.into());
    }
    Ok((!name.is_empty()).then_some((name, value)))
}

fn parse_start(line: &str) -> Result<Head, Fault> {
    if let Some(rest) = line.strip_prefix(VERSION) {
        let rest = rest.strip_prefix(' ').ok_or(Violation::StartLine)?.trim_ascii();
        let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let status = number(code).and_then(Status::new).ok_or(Violation::StartLine)?;
        let reason = reason.trim_ascii().to_owned();
        let (headers, body) = (Headers::default(), Bytes::new());
        return Ok(Head::Response(Response { status, reason, headers, body }));
    }
    // The response has another version, or comes from an HTTP server at this port.
    if line.starts_with("RTSP/") || line.starts_with("HTTP/") {
        return Err(Violation::Version.into());
    }
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let (Some(method), Some(uri), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Violation::StartLine.into());
    };
    if version != VERSION {
        return Err(Violation::Version.into());
    }
    let is_token = method.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if !is_token {
        return Err(Violation::StartLine.into());
    }
    if uri.len() > URL_BYTES_MAX {
        return Err(Limit::StartLineBytes.into());
    }
    let (headers, body) = (Headers::default(), Bytes::new());
    Ok(Head::Request(Request { method: Method::read(method), uri: uri.to_owned(), headers, body }))
}

#[cfg(test)]
mod tests;
