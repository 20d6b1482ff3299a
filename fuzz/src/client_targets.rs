//! HTTP/1.1 client with a hostile server: the meaning of a response does not depend on how it is cut.

use http1::client::{ResponseError, ResponseEvent, ResponseHead, ResponseReader};

use crate::pull::{check, pull, reads};
use crate::splits::{head, pieces};

/// Separates the response of one server from that of the next in an input.
const NEXT: &[u8] = b"\n==\n";
/// Maximum number of servers in an input: redirects, and two parts of a file.
const SERVERS_MAX: usize = 8;

#[derive(Debug, Default, PartialEq)]
struct Answer {
    head: Option<ResponseHead>,
    body: Vec<u8>,
    ended: bool,
    error: Option<ResponseError>,
}

/// Reads a response alone, then in a pull that may follow redirects. The first byte seeds the cuts.
pub fn http_client(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let whole = read(&[stream]);
    assert_eq!(whole, read(&pieces(seed, stream)), "the cuts changed the meaning");
    has_one_reading(stream, &whole);

    let servers = servers(stream);
    let outcome = pull(&servers.iter().map(|bytes| reads(bytes)).collect::<Vec<_>>());
    let cut = pull(&servers.iter().map(|bytes| pieces(seed, bytes)).collect::<Vec<_>>());
    assert_eq!(outcome, cut, "the cuts changed the stream");
    assert!(outcome.moves.len() < SERVERS_MAX, "it is sent around in circles");
    outcome.requests.iter().for_each(|request| is_one_request(request));
    for server in &outcome.moves {
        assert!(server.port != 0 && !server.host.is_empty() && !server.host.contains(char::is_control));
    }
    check(&outcome);
}

/// Checks that a reader that treats line ends or codings differently gets the same body (RFC 9112 §2.2, §6.3).
fn has_one_reading(stream: &[u8], answer: &Answer) {
    assert!(answer.body.len() <= stream.len());
    let Some(head) = &answer.head else { return };
    let count = |wanted: &str| head.headers.iter().filter(|(name, _)| name == wanted).count();
    let (codings, lengths) = (count("transfer-encoding"), count("content-length"));
    let is_framed = !matches!(head.status, 101 | 204 | 304);
    if answer.error.is_none() && is_framed {
        assert!(codings + lengths <= 1, "{head:?}");
    }
    // True if this is the only head of the stream, before everything else.
    let is_only = stream.starts_with(format!("HTTP/1.1 {:03}", head.status).as_bytes());
    if answer.ended && is_framed && is_only && codings + lengths == 0 {
        let head = &stream[..stream.len() - answer.body.len()];
        let empty_line = |end: usize| head[..end].ends_with(b"\n\n") || head[..end].ends_with(b"\n\r\n");
        assert_eq!((1..=head.len()).find(|end| empty_line(*end)), Some(head.len()), "an empty line within");
    }
}

fn servers(stream: &[u8]) -> Vec<&[u8]> {
    let mut servers = Vec::new();
    let mut rest = stream;
    while servers.len() < SERVERS_MAX
        && let Some(at) = rest.windows(NEXT.len()).position(|window| window == NEXT)
    {
        servers.push(&rest[..at]);
        rest = &rest[at + NEXT.len()..];
    }
    servers.push(rest);
    servers
}

fn read(pieces: &[&[u8]]) -> Answer {
    let mut reader = ResponseReader::new();
    let mut answer = Answer::default();
    for piece in pieces {
        let outcome = reader.handle_bytes(piece);
        drain(&mut reader, &mut answer);
        answer.error = outcome.err();
        if answer.error.is_some() {
            return answer;
        }
    }
    answer.error = reader.handle_end().err();
    drain(&mut reader, &mut answer);
    assert_ne!(answer.ended, answer.error.is_some(), "an answer has one end");
    answer
}

fn drain(reader: &mut ResponseReader, answer: &mut Answer) {
    while let Some(event) = reader.poll_event() {
        assert!(!answer.ended, "nothing follows the end");
        match event {
            ResponseEvent::Head(head) => assert_eq!(answer.head.replace(head), None, "one head"),
            ResponseEvent::Body(bytes) => {
                assert!(answer.head.is_some() && !bytes.is_empty());
                answer.body.extend_from_slice(&bytes);
            }
            ResponseEvent::End => answer.ended = true,
        }
    }
}

/// True if a request target begins at the root and has no `.` or `..` segments (RFC 3986 §5.2.4).
fn is_absolute(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    path.starts_with('/') && !path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Checks that the bytes are exactly one valid request, whatever the servers have sent: no second request, and no
/// injected lines (RFC 9112 §3).
fn is_one_request(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("ASCII");
    let head = text.strip_suffix("\r\n\r\n").expect("it ends");
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    assert!(matches!(words[..], ["GET", target, "HTTP/1.1"] if is_absolute(target)), "{text}");
    assert!(lines.all(|line| line.contains(": ")) && !head.contains("\r\n\r\n"), "{text}");
    let is_text = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    assert!(head.split("\r\n").all(|line| line.bytes().all(is_text)), "{text}");
}
