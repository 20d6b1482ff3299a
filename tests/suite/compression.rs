//! Compression of answers, depending on the path and on the fields of the request.

use std::io::Read;

use crate::support::{Publisher, Server, raw_exchange, secs, wait_for};

/// Returns the answer to a request: status, header fields in lower case, and the body as sent.
fn ask(server: &Server, request: &str) -> (u16, String, Vec<u8>) {
    let request = format!("{request}Connection: close\r\n\r\n");
    let bytes = raw_exchange(server.http, request.as_bytes());
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), bytes[at + 4..].to_vec())
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

const PAGE: &str = "/panel.js";
const PLAYLIST: &str = "/live/streams/s.m3u8";
const LIST: &str = "/live/rest/v2/broadcasts/list/0/50";

/// Requests: path, additional header fields, and true if the answer is compressed.
const ROWS: &[(&str, &str, bool)] = &[
    (PAGE, "Accept-Encoding: gzip, deflate, br\r\n", true),
    (PAGE, "Accept-Encoding: gzip\r\nCookie: a=b\r\nSec-Fetch-Site: same-origin\r\n", true),
    (PAGE, "", false),
    (PAGE, "Accept-Encoding: gzip;q=0\r\n", false),
    (PAGE, "Accept-Encoding: br\r\n", false),
    (LIST, "Accept-Encoding: gzip\r\n", true),
    (LIST, "Accept-Encoding: *\r\n", true),
    (LIST, "", false),
    (LIST, "Accept-Encoding: gzip\r\nCookie: a=b\r\n", false),
    (LIST, "Accept-Encoding: gzip\r\nSec-Fetch-Site: none\r\n", false),
    (LIST, "Accept-Encoding: gzip\r\nReferer: http://localhost/\r\n", false),
    (PLAYLIST, "Accept-Encoding: gzip\r\n", true),
    (PLAYLIST, "Accept-Encoding: gzip\r\nSec-Fetch-Site: cross-site\r\n", true),
    (PLAYLIST, "", false),
];

#[test]
fn answers_are_compressed_for_those_who_take_it() {
    let server = Server::start(&["app.hlsListSize=100", "app.hlsTime=1"]);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    for n in 0..20 {
        server.api().post("/live/rest/v2/broadcasts/create", &format!(r#"{{"streamId":"b{n}"}}"#));
    }
    // Waits until the playlist exceeds 1 KiB, because shorter answers are not compressed.
    wait_for("a long playlist", secs(120), || server.api().get(PLAYLIST).body.len() > 1100);
    for (path, fields, coded) in ROWS {
        let (status, head, body) =
            ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"));
        let what = format!("{path} {fields:?}: {head}");
        assert_eq!((status, field(&head, "content-encoding").is_some()), (200, *coded), "{what}");
        assert!(head.contains("vary: accept-encoding"), "{what}");
        assert_eq!(field(&head, "content-length"), Some(body.len().to_string().as_str()), "{what}");
        if *coded {
            let (.., plain) = ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n"));
            let unpacked = unpacked(&body);
            assert!(body.len() < plain.len(), "{what}");
            let is_same = unpacked == plain || *path == PLAYLIST && unpacked.starts_with(b"#EXTM3U");
            assert!(is_same || *path == LIST && unpacked.len().abs_diff(plain.len()) < 100, "{what}");
        }
        // The answer to HEAD has the same header fields, without the body.
        let (status, told, none) =
            ask(&server, &format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"));
        assert_eq!((status, none.len()), (200, 0), "{what}");
        for name in ["content-encoding", "content-type", "vary"] {
            assert_eq!(field(&told, name), field(&head, name), "{what}: {told}");
        }
    }
    publisher.stop();
}

#[test]
fn each_coding_of_a_page_has_a_tag_of_its_own_and_ranges_are_of_the_page_itself() {
    let server = Server::start(&[]);
    let get = |fields: &str| ask(&server, &format!("GET {PAGE} HTTP/1.1\r\nHost: localhost\r\n{fields}"));
    let (plain, packed) = (get(""), get("Accept-Encoding: gzip\r\n"));
    let [tag, packed_tag] = [&plain.1, &packed.1].map(|head| field(head, "etag").unwrap().to_owned());
    assert_ne!(tag, packed_tag);
    assert_eq!(unpacked(&packed.2), plain.2);
    for (tag, fields, status) in [
        (&tag, "", 304),
        (&packed_tag, "Accept-Encoding: gzip\r\n", 304),
        (&packed_tag, "", 200),
        (&tag, "Accept-Encoding: gzip\r\n", 200),
    ] {
        let (found, head, body) = get(&format!("If-None-Match: {tag}\r\n{fields}"));
        assert_eq!(found, status, "{tag} {fields}: {head}");
        assert!(head.contains("vary: accept-encoding"), "{head}");
        assert!(status == 200 || body.is_empty() && field(&head, "content-encoding").is_none(), "{head}");
    }
    let (status, head, body) = get("Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n");
    assert_eq!((status, field(&head, "content-encoding"), &body[..]), (206, None, &plain.2[..10]), "{head}");
    let (status, head, body) =
        get(&format!("Accept-Encoding: gzip\r\nRange: bytes=0-9\r\nIf-Range: {packed_tag}\r\n"));
    assert_eq!((status, field(&head, "content-encoding"), body.len()), (200, None, plain.2.len()), "{head}");
}
