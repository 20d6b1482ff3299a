//! The client side of HTTP/1.1: the text of requests, and a state machine that reads the response (RFC 9112 §4, §6,
//! §7).
//!
//! 1. [`get`] or [`request`] returns the text to send.
//! 2. [`ResponseReader::handle_bytes`] takes the response, in pieces of any size. Interim responses are skipped (RFC
//!    9110 §15.2).
//! 3. [`ResponseEvent::Head`], then [`ResponseEvent::Body`] as the bytes arrive, then [`ResponseEvent::End`].
//!
//! The server is not trusted: the sizes of the head, of interim responses and of chunk framing are limited. Bytes of
//! the body are passed on as they arrive and are never collected. Redirects are not followed.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{BodyDecoder, Error, Framing, Limits};

/// Maximum size of a response head in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of header lines.
const HEADERS_MAX: usize = 64;
/// Maximum number of interim responses before the final one.
const INTERIM_MAX: usize = 8;
/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Status of a switch of protocols (RFC 9110 §15.2.2): the following bytes are not HTTP.
const SWITCHING_PROTOCOLS: u16 = 101;
const NO_CONTENT: u16 = 204;
const NOT_MODIFIED: u16 = 304;

/// Returns a GET request of the program `agent`; `keep_alive` asks the server to keep the connection open.
#[must_use]
pub fn get(agent: &str, authority: &str, path: &str, keep_alive: bool) -> String {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\
         Connection: {connection}\r\n\r\n"
    )
}

/// Returns a GET request on a connection that stays open, with an optional range of bytes, from the first to the last
/// byte inclusive (RFC 9110 §14.1).
#[must_use]
pub fn get_part(agent: &str, authority: &str, path: &str, range: Option<(u64, u64)>) -> String {
    let range = range.map_or_else(String::new, |(first, last)| format!("Range: bytes={first}-{last}\r\n"));
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n{range}\
         Connection: keep-alive\r\n\r\n"
    )
}

/// Returns a GET request for all bytes from `first` on (RFC 9110 §14.1.2). The server closes the connection after its
/// response.
#[must_use]
pub fn get_rest(agent: &str, authority: &str, path: &str, first: u64) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\
         Range: bytes={first}-\r\nConnection: close\r\n\r\n"
    )
}

/// Returns a request that asks the server to close the connection after its response. `content`, if given, is a media
/// type and a body.
#[must_use]
pub fn request(
    agent: &str,
    method: &str,
    authority: &str,
    path: &str,
    content: Option<(&str, &str)>,
) -> String {
    let (kind, body) = content.unwrap_or_default();
    let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n{kind}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The minor version of HTTP/1 in which the server answers.
    pub minor_version: u8,
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Names in lower case, and values as received.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl ResponseHead {
    /// Returns the first value of the field with this lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_slice())
    }

    /// True if the server closes the connection after this response (RFC 9112 §9.3).
    #[must_use]
    pub fn closes(&self) -> bool {
        let fields = || self.headers.iter().filter(|(name, _)| name == "connection");
        let options = || fields().flat_map(|(_, value)| value.split(|byte| *byte == b','));
        let has = |option: &[u8]| options().any(|own| own.trim_ascii().eq_ignore_ascii_case(option));
        has(b"close") || (self.minor_version == 0 && !has(b"keep-alive"))
    }
}

/// Events for the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseEvent {
    /// The final response begins.
    Head(ResponseHead),
    /// A part of the body; after a switch of protocols, bytes of the new protocol.
    Body(Bytes),
    /// The end of the body.
    End,
}

/// The fault of a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The response is not HTTP/1, or is ambiguous.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The head is too long, has too many lines, or follows too many interim responses.
    #[error("response head too large")]
    HeadTooLarge,
    /// The chunk framing is malformed.
    #[error("malformed response body: {0}")]
    Body(Error),
    /// The server closed before the end of the response.
    #[error("the server closed the connection during the response")]
    Truncated,
}

#[derive(Debug)]
enum Stage {
    Head { scanned: usize, interim: usize },
    Framed(BodyDecoder),
    UntilClose,
    Done,
}

/// Reads one response.
#[derive(Debug)]
pub struct ResponseReader {
    stage: Stage,
    held: BytesMut,
    events: VecDeque<ResponseEvent>,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseReader {
    /// Prepares for the response to the next request.
    #[must_use]
    pub fn new() -> Self {
        Self { stage: Stage::Head { scanned: 0, interim: 0 }, held: BytesMut::new(), events: VecDeque::new() }
    }

    /// Takes bytes from the server, in pieces of any size. Bytes after the end of the response are dropped, because no
    /// other request is pending.
    ///
    /// # Errors
    /// The fault found in the bytes. Later bytes are ignored.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        let outcome = self.read(bytes);
        if outcome.is_err() {
            self.stage = Stage::Done;
        }
        outcome
    }

    /// Handles the end of the connection: the server has closed it.
    ///
    /// # Errors
    /// The response is not complete.
    pub fn handle_end(&mut self) -> Result<(), ResponseError> {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::UntilClose => self.events.push_back(ResponseEvent::End),
            Stage::Done => {}
            Stage::Head { .. } | Stage::Framed(_) => return Err(ResponseError::Truncated),
        }
        Ok(())
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ResponseEvent> {
        self.events.pop_front()
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        if matches!(self.stage, Stage::UntilClose) {
            self.body(Bytes::copy_from_slice(bytes));
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        while let Stage::Head { scanned, interim } = self.stage {
            let Some(end) = find_end(&self.held, scanned) else {
                if self.held.len() > HEAD_BYTES_MAX {
                    return Err(ResponseError::HeadTooLarge);
                }
                self.stage = Stage::Head { scanned: self.held.len(), interim };
                return Ok(());
            };
            if end > HEAD_BYTES_MAX || interim > INTERIM_MAX {
                return Err(ResponseError::HeadTooLarge);
            }
            let head = parse(&self.held.split_to(end))?;
            if (100..200).contains(&head.status) && head.status != SWITCHING_PROTOCOLS {
                self.stage = Stage::Head { scanned: 0, interim: interim.saturating_add(1) };
                continue;
            }
            self.stage = stage_of(&head)?;
            self.events.push_back(ResponseEvent::Head(head));
        }
        self.read_body()
    }

    fn read_body(&mut self) -> Result<(), ResponseError> {
        match &mut self.stage {
            Stage::Framed(decoder) => {
                let done = decoder.decode(&mut self.held);
                // The bytes before a fault are valid, even if they arrived together with the fault.
                let decoded = decoder.take_decoded();
                self.body(decoded);
                if done.map_err(ResponseError::Body)? {
                    self.stage = Stage::Done;
                    self.events.push_back(ResponseEvent::End);
                }
            }
            Stage::UntilClose => {
                let held = self.held.split().freeze();
                self.body(held);
            }
            Stage::Done => self.held = BytesMut::new(),
            Stage::Head { .. } => {}
        }
        Ok(())
    }

    fn body(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.events.push_back(ResponseEvent::Body(bytes));
        }
    }
}

/// Returns the length of the head if it is complete. Bytes already scanned are not scanned again, except the last
/// three, which may be the beginning of the head's end.
fn find_end(held: &[u8], scanned: usize) -> Option<usize> {
    let from = scanned.saturating_sub(HEAD_END.len().saturating_sub(1));
    let at = held.get(from..)?.windows(HEAD_END.len()).position(|window| window == HEAD_END)?;
    Some(from.saturating_add(at).saturating_add(HEAD_END.len()))
}

fn parse(head: &[u8]) -> Result<ResponseHead, ResponseError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        // Some parsers take an empty line that ends with only LF as the end of the head, others do not. Refuse it.
        Ok(httparse::Status::Complete(_) | httparse::Status::Partial) => {
            return Err(ResponseError::Malformed("head"));
        }
        Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::HeadTooLarge),
        Err(_) => return Err(ResponseError::Malformed("head")),
    }
    Ok(ResponseHead {
        minor_version: response.version.ok_or(ResponseError::Malformed("version"))?,
        status: response.code.ok_or(ResponseError::Malformed("status"))?,
        reason: response.reason.unwrap_or_default().to_owned(),
        headers: response
            .headers
            .iter()
            .map(|header| (header.name.to_ascii_lowercase(), header.value.to_vec()))
            .collect(),
    })
}

/// Returns the framing of the body (RFC 9112 §6.3).
fn stage_of(head: &ResponseHead) -> Result<Stage, ResponseError> {
    if head.status == SWITCHING_PROTOCOLS {
        return Ok(Stage::UntilClose);
    }
    // Bytes of the body are passed on as they arrive, so a large announced length of the body or of a chunk takes no
    // memory.
    let limits = Limits { body_bytes: usize::MAX, ..Limits::default() };
    if matches!(head.status, NO_CONTENT | NOT_MODIFIED) {
        return Ok(Stage::Framed(BodyDecoder::new(Framing::Length(0), &limits)));
    }
    let values = |wanted: &'static str| {
        head.headers.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| value.as_slice())
    };
    let codings: Vec<&[u8]> = values("transfer-encoding").collect();
    let mut lengths = values("content-length");
    match (&*codings, lengths.next(), lengths.next()) {
        ([coding], None, None) if coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Stage::Framed(BodyDecoder::new(Framing::Chunked, &limits)))
        }
        ([_, ..], _, _) => Err(ResponseError::Malformed("transfer coding")),
        ([], Some(length), None) => {
            let length =
                std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = length.and_then(|text| text.parse().ok());
            let length = length.ok_or(ResponseError::Malformed("content length"))?;
            Ok(Stage::Framed(BodyDecoder::new(Framing::Length(length), &limits)))
        }
        ([], Some(_), Some(_)) => Err(ResponseError::Malformed("content length")),
        ([], None, _) => Ok(Stage::UntilClose),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the status, the body, and whether the response is complete.
    fn read(answer: &[u8], cut: usize) -> Result<(u16, Vec<u8>, bool), ResponseError> {
        let mut reader = ResponseReader::new();
        for piece in answer.chunks(cut) {
            reader.handle_bytes(piece)?;
        }
        reader.handle_end()?;
        let (mut status, mut body, mut end) = (0, Vec::new(), false);
        while let Some(event) = reader.poll_event() {
            match event {
                ResponseEvent::Head(head) => status = head.status,
                ResponseEvent::Body(bytes) => body.extend_from_slice(&bytes),
                ResponseEvent::End => end = true,
            }
        }
        Ok((status, body, end))
    }

    #[test]
    fn any_cut_gives_the_same_response() {
        for (answer, status, body) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..], 200, &b"hello"[..]),
            (b"HTTP/1.1 200 OK\r\nContent-Type: video/x-flv\r\nConnection: close\r\n\r\nFLV...", 200, b"FLV..."),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nFLV\r\n2\r\n..\r\n0\r\nT: 1\r\n\r\n",
                200,
                b"FLV..",
            ),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, b""),
            (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
            (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x82\x00", 101, b"\x82\x00"),
        ] {
            for cut in 1..=answer.len() {
                assert_eq!(read(answer, cut), Ok((status, body.to_vec(), true)), "cut {cut}");
            }
        }
    }

    #[test]
    fn a_connection_is_kept_as_the_version_and_the_server_say() {
        let table: [(&str, &[&str], bool); 9] = [
            ("1.1", &[], false),
            ("1.1", &["keep-alive"], false),
            ("1.1", &["Close"], true),
            ("1.1", &["te, close"], true),
            ("1.1", &["te", "close"], true),
            ("1.0", &[], true),
            ("1.0", &["Keep-Alive"], false),
            ("1.0", &["te , keep-alive"], false),
            ("1.0", &["keep-alive, close"], true),
        ];
        for (version, fields, closes) in table {
            let fields: String = fields.iter().map(|value| format!("Connection: {value}\r\n")).collect();
            let mut reader = ResponseReader::new();
            reader.handle_bytes(format!("HTTP/{version} 200 OK\r\n{fields}\r\n").as_bytes()).unwrap();
            let Some(ResponseEvent::Head(head)) = reader.poll_event() else { panic!("{version} {fields}") };
            assert_eq!(head.closes(), closes, "{version} {fields}");
        }
    }

    #[test]
    fn a_hostile_server_is_bounded() {
        let long = [&b"HTTP/1.1 200 OK\r\nA: "[..], &[b'x'; HEAD_BYTES_MAX]].concat();
        assert_eq!(read(&long, 1000), Err(ResponseError::HeadTooLarge));
        let many = [&b"HTTP/1.1 200 OK\r\n"[..], &b"A: b\r\n".repeat(HEADERS_MAX + 1), b"\r\n"].concat();
        assert_eq!(read(&many, 100), Err(ResponseError::HeadTooLarge));
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(INTERIM_MAX + 2);
        assert_eq!(read(&interim, 100), Err(ResponseError::HeadTooLarge));
        for answer in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\na",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\n\nA: b\r\n\r\na",
        ] {
            assert!(matches!(read(answer, 7), Err(ResponseError::Malformed(_))));
        }
        let body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        assert!(matches!(read(body, 7), Err(ResponseError::Body(_))));
        assert_eq!(
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", 7),
            Err(ResponseError::Truncated)
        );
    }

    #[test]
    fn what_came_before_a_fault_is_handed_out_however_it_came() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nFLV\r\nx\r\n";
        for cut in 1..=answer.len() {
            let mut reader = ResponseReader::new();
            assert!(answer.chunks(cut).any(|piece| reader.handle_bytes(piece).is_err()));
            let mut body = Vec::new();
            while let Some(event) = reader.poll_event() {
                if let ResponseEvent::Body(bytes) = event {
                    body.extend_from_slice(&bytes);
                }
            }
            assert_eq!(body, b"FLV", "cut {cut}");
        }
    }

    /// The length of a chunk is not limited, even if the chunk begins in the same read in which an earlier one ends.
    #[test]
    fn a_chunk_of_any_length_is_no_fault_however_it_came() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n4000000\r\nb";
        for cut in 1..=answer.len() {
            assert_eq!(read(answer, cut), Err(ResponseError::Truncated), "cut {cut}");
        }
    }

    #[test]
    fn a_stream_of_many_chunks_is_not_gathered() {
        let mut reader = ResponseReader::new();
        reader.handle_bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let chunk = [&b"10000\r\n"[..], &[7; 0x10000], b"\r\n"].concat();
        let mut bytes = 0;
        // Feed more bytes than the reader may hold. It passes them on.
        for _ in 0..1100 {
            reader.handle_bytes(&chunk).unwrap();
            while let Some(event) = reader.poll_event() {
                if let ResponseEvent::Body(body) = event {
                    bytes += body.len();
                }
            }
        }
        assert_eq!(bytes, 1100 * 0x10000);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..50) {
            let _ = read(&bytes, cut);
            let _ = read(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat(), cut);
        }
    }
}
