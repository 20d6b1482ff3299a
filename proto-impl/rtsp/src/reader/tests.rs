use proptest::prelude::*;

use super::*;

/// Reads all items of a stream in pieces of `cut` bytes and returns them with the final error.
fn read(bytes: &[u8], cut: usize) -> (Vec<Item>, Option<Error>) {
    let (mut reader, mut items) = (Reader::new(), Vec::new());
    for mut piece in bytes.chunks(cut) {
        loop {
            match reader.read(&mut piece) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Some(error)),
            }
        }
        assert!(piece.is_empty(), "bytes left behind");
        assert!(reader.pending_bytes() <= HEAD_BYTES_MAX.max(BODY_BYTES_MAX));
    }
    (items, None)
}

fn items(bytes: &[u8]) -> Vec<Item> {
    let (items, error) = read(bytes, usize::MAX);
    assert_eq!(error, None, "{}", String::from_utf8_lossy(bytes));
    for cut in 1..bytes.len().min(40) {
        assert_eq!(read(bytes, cut), (items.clone(), None), "cut {cut}");
    }
    items
}

fn fault(bytes: &[u8]) -> Fault {
    let Some(error) = read(bytes, usize::MAX).1 else { panic!("{}", String::from_utf8_lossy(bytes)) };
    assert!(read(bytes, 1).1.is_some(), "the cuts changed the meaning");
    match error {
        Error::Violation { violation, .. } => violation.into(),
        Error::Limit { limit, .. } => limit.into(),
    }
}

fn request(item: &Item) -> &Request {
    let Item::Request(request) = item else { panic!("{item:?}") };
    request
}

const ANNOUNCE: &[u8] = b"ANNOUNCE rtsp://127.0.0.1:8554/live/s?token=a RTSP/1.0\r\n\
    Content-Type: application/sdp\r\nCSeq: 2\r\nUser-Agent: Lavf59.27.100\r\nContent-Length: 5\r\n\r\nv=0\r\n";

#[test]
fn requests_of_real_clients_are_read() {
    let all = items(ANNOUNCE);
    let announce = request(&all[0]);
    assert_eq!((all.len(), &announce.method, &*announce.body), (1, &Method::Announce, &b"v=0\r\n"[..]));
    assert_eq!(announce.headers.cseq(), Some(2));
    assert_eq!(announce.headers.get("USER-AGENT"), Some("Lavf59.27.100"));
    assert_eq!(announce.headers.get("Content-Length"), None);
    // rtspsrc claims to be a RealMedia client.
    let all = items(
        b"OPTIONS rtsp://h/s RTSP/1.0\r\nCSeq: 1\r\nUser-Agent: WMPlayer/9.0.0.2980 guid/3300AD50\r\n\
          User-Agent: RealMedia Player\r\nClientChallenge: 9e26d33f2984236010ef6253fb1887f7\r\n\
          PlayerStarttime: [28/03/2003:22:50:23 00:00]\r\nSupportsMaximumASMBandwidth: 1\r\n\r\n",
    );
    assert_eq!(request(&all[0]).headers.all("User-Agent").count(), 2);
}

#[test]
fn what_real_peers_send_beside_the_grammar_is_taken() {
    // Bare LF, empty lines between messages, no space after the colon, no reason phrase, bytes of Latin-1.
    let stream =
        b"\r\n\nOPTIONS * RTSP/1.0\nCSeq:1\n\n\r\nRTSP/1.0 200\r\nCSeq: 1\r\nServer: Cam\xe9ra\r\n: \r\n\r\n";
    let all = items(stream);
    assert_eq!(request(&all[0]).uri, "*");
    let Item::Response(response) = &all[1] else { panic!("{all:?}") };
    assert_eq!((response.status, response.reason.as_str()), (Status::OK, ""));
    assert_eq!(response.headers.get("Server"), Some("Cam\u{fffd}ra"));
}

#[test]
fn frames_and_messages_share_a_stream() {
    let stream = [
        b"$\x00\x00\x03abc".as_slice(),
        b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        b"$\x01\x00\x00",
        b"\r\n$\xff\x00\x04OPTI",
        b"GET_PARAMETER * RTSP/1.0\r\nCSeq: 2\r\nContent-Length: 4\r\n\r\n$abc",
    ]
    .concat();
    let all = items(&stream);
    let frame = |channel, payload: &'static [u8]| Item::Interleaved { channel, payload: payload.into() };
    assert_eq!(all[0], frame(0, b"abc"));
    assert_eq!(all[2..4], [frame(1, b""), frame(255, b"OPTI")]);
    assert_eq!(&*request(&all[4]).body, b"$abc");
}

#[test]
fn p_09_stray_bytes_behind_a_frame_are_passed_over_up_to_a_bound() {
    const PACKET: &[u8] = b"$\x00\x00\x0c\x80\x60\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03";
    const OPTIONS: &[u8] = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    let noise: Vec<u8> =
        (0..37u8).map(|n| n.wrapping_mul(73).wrapping_add(11)).filter(|byte| *byte != b'$').collect();
    for stray in [
        &noise[..],
        b"x",
        b"\0\0\r\n\r\n\0",
        // A frame on a channel that had no earlier frames, and a frame whose content is not an RTP or RTCP
        // packet.
        b"?$\x09\x00\x10",
        b"?$\x00\x00\x0c\x00",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA rtsp",
        b"RTSP/1RTSP/1PLAYPLAY",
    ] {
        for next in [PACKET, OPTIONS] {
            let all = items(&[PACKET, stray, next, PACKET].concat());
            let last = if next == PACKET { all[0].clone() } else { items(OPTIONS).remove(0) };
            assert_eq!(all, [all[0].clone(), last, all[0].clone()], "{}", stray.escape_ascii());
        }
    }
    // The length in the frame's header is smaller than the packet, so the last bytes of the packet are skipped.
    let short = [PACKET, &[7; 5], PACKET].concat();
    assert_eq!(items(&short).len(), 2);
    // Each run of stray bytes has its own limit. Before the first frame, stray bytes are not allowed.
    let long = vec![b'x'; STRAY_BYTES_MAX];
    let runs = [PACKET, &long, PACKET, &long, PACKET].concat();
    assert_eq!(read(&runs, 1000).0.len(), 3);
    assert_eq!(fault(&[PACKET, &long, b"xx"].concat()), Violation::StartLine.into());
    assert_eq!(fault(b"x\n\n"), Violation::StartLine.into());
}

#[test]
fn p_09_a_frame_that_stops_holds_what_came_and_no_more() {
    let mut reader = Reader::new();
    let mut input = &b"$\x00\xff\xff12345"[..];
    assert_eq!(reader.read(&mut input), Ok(None));
    assert_eq!((reader.pending_bytes(), reader.buffer.capacity() < 1024), (5, true));
}

#[test]
fn p_01_oversized_messages_are_refused() {
    let with = |fields: &str| format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n{fields}\r\n").into_bytes();
    let long = |length: usize| "a".repeat(length);
    assert_eq!(items(&with(&"A: b\r\n".repeat(HEADERS_MAX - 1))).len(), 1);
    assert_eq!(fault(&with(&"A: b\r\n".repeat(HEADERS_MAX))), Limit::Headers.into());
    assert_eq!(fault(&with(&format!("{}: b\r\n", long(513)))), Limit::HeaderBytes.into());
    assert_eq!(items(&with(&format!("A: {}\r\n", long(2048)))).len(), 1);
    assert_eq!(fault(&with(&format!("A: {}\r\n", long(2049)))), Limit::HeaderBytes.into());
    assert_eq!(fault(&with(&format!("A: {}\r\n", long(1 << 20)))), Limit::HeaderBytes.into());
    assert_eq!(fault(&with(&format!("A: {}\r\n", long(2000)).repeat(20))), Limit::HeaderBytes.into());
    assert_eq!(fault(&with("Content-Length: 131073\r\n")), Limit::BodyBytes.into());
    let url = |length| {
        format!("OPTIONS rtsp://h/{} RTSP/1.0\r\nCSeq: 1\r\n\r\n", long(length - 9_usize)).into_bytes()
    };
    assert_eq!(items(&url(2048)).len(), 1);
    assert_eq!(fault(&url(2049)), Limit::StartLineBytes.into());
    assert_eq!(fault(long(10_000).as_bytes()), Limit::StartLineBytes.into());
}

#[test]
fn p_02_a_crooked_content_length_is_refused() {
    for value in ["-1", "18446744073709551616", "+5", "5x", "0x5", "", "5, 5", "5.0"] {
        let stream = format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: {value}\r\n\r\n");
        assert_eq!(fault(stream.as_bytes()), Violation::ContentLength.into(), "{value}");
    }
    for second in ["5", "6"] {
        let lengths = format!("Content-Length: 5\r\ncontent-length: {second}\r\n");
        let stream = format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n{lengths}\r\n12345");
        assert_eq!(fault(stream.as_bytes()), Violation::ContentLength.into());
    }
}

#[test]
fn p_03_to_p_05_what_hides_in_a_message_is_refused() {
    // The body is shorter than announced, so it swallows the start of the next request. The rest of that
    // request is not a message.
    let glued = b"SET_PARAMETER * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 20\r\n\r\nshort\
        TEARDOWN rtsp://h/s RTSP/1.0\r\nCSeq: 2\r\n\r\n";
    let (all, error) = read(glued, 7);
    assert_eq!((&*request(&all[0]).body, all.len()), (&b"shortTEARDOWN rtsp:/"[..], 1));
    assert!(error.is_some());
    let with = |fields: &str| format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n{fields}\r\n").into_bytes();
    assert_eq!(fault(&with("A: b\0c\r\n")), Violation::Control.into());
    assert_eq!(fault(&with("A: b\rc\r\n")), Violation::Control.into());
    assert_eq!(fault(&with("A: b\r\n c\r\n")), Violation::Header.into());
    assert_eq!(fault(&with("A: b\r\n\tc: d\r\n")), Violation::Header.into());
    assert_eq!(fault(&with("no field\r\n")), Violation::Header.into());
    assert_eq!(fault(&with("A: b\r\n".repeat(1000).as_str())), Limit::Headers.into());
    assert_eq!(fault(b"OPTIONS\0 * RTSP/1.0\r\nCSeq: 1\r\n\r\n"), Violation::Control.into());
}

#[test]
fn a_request_has_one_number() {
    for fields in ["", "CSeq: x\r\n", "CSeq: -1\r\n", "CSeq: 4294967296\r\n", "CSeq: 1\r\nCSeq: 1\r\n"] {
        let stream = format!("OPTIONS * RTSP/1.0\r\n{fields}\r\n");
        assert_eq!(fault(stream.as_bytes()), Violation::CSeq.into(), "{fields}");
    }
    assert_eq!(items(b"RTSP/1.0 200 OK\r\n\r\n").len(), 1);
}

#[test]
fn p_06_other_protocols_and_versions_are_refused() {
    assert_eq!(fault(b"GET /live/s HTTP/1.0\r\nx-sessioncookie: 1\r\n\r\n"), Violation::Version.into());
    assert_eq!(fault(b"OPTIONS * RTSP/2.0\r\nCSeq: 1\r\n\r\n"), Violation::Version.into());
    assert_eq!(fault(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Violation::Version.into());
    assert_eq!(fault(b"\x16\x03\x01\x02\x00\n\n"), Violation::Control.into());
    assert_eq!(fault(b"RTSP/1.0 20 OK\r\n\r\n"), Violation::StartLine.into());
    assert_eq!(fault(b"RTSP/1.0 999 OK\r\n\r\n"), Violation::StartLine.into());
    assert_eq!(fault(b"OPTIONS rtsp://h/a b RTSP/1.0\r\nCSeq: 1\r\n\r\n"), Violation::StartLine.into());
}

#[test]
fn a_message_that_is_cut_or_damaged_does_no_harm() {
    for at in 0..ANNOUNCE.len() {
        let _ = read(&ANNOUNCE[..at], 16);
        for bit in 0..8 {
            let mut damaged = ANNOUNCE.to_vec();
            damaged[at] ^= 1 << bit;
            assert_eq!(read(&damaged, usize::MAX).0, read(&damaged, 3).0);
        }
    }
}

#[test]
fn session_fields_are_read() {
    for (field, id, timeout_secs) in [
        ("12345678", "12345678", None),
        ("12345678;timeout=60", "12345678", Some(60)),
        (" A-b_c.9 ; Timeout = 30 ; x", "A-b_c.9", Some(30)),
        ("1;timeout=never", "1", None),
    ] {
        assert_eq!(crate::SessionHeader::read(field), crate::SessionHeader { id, timeout_secs });
    }
}

#[test]
fn what_is_written_has_no_second_line() {
    let mut request = Request::new(Method::Setup, "rtsp://h/a b\r\nX: y", 1);
    request.headers.push("A", "b\r\nC: d");
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    let all = items(&bytes);
    let Item::Request(sent) = &all[0] else { panic!("{all:?}") };
    assert_eq!((sent.uri.as_str(), all.len()), ("rtsp://h/a%20bX:%20y", 1));
    assert_eq!(sent.headers.get("C"), None);
    request.headers.push("Authorization", "Basic c2VjcmV0");
    assert!(!format!("{request:?}").contains("c2Vj"));
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("X-[A-Za-z]{1,10}", "[!-~]([ -~]{0,30}[!-~])?"), 0..6)
}

proptest! {
    #[test]
    fn what_was_written_reads_the_same(
        uri in "rtsp://[a-z]{1,9}/[!-~]{0,30}",
        method in "[A-Z_]{1,12}",
        cseq: u32,
        fields in fields(),
        body in prop::collection::vec(any::<u8>(), 0..200),
        code in 100u16..600,
        cut in 1usize..50,
    ) {
        let mut request = Request::new(Method::read(&method), &uri, cseq);
        let mut response = Response::new(Status::new(code).unwrap(), Some(cseq));
        for (name, value) in &fields {
            request.headers.push(name, value);
            response.headers.push(name, value);
        }
        request.body = body.clone().into();
        response.body = body.into();
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        response.write(&mut bytes);
        prop_assert_eq!(read(&bytes, cut), (vec![Item::Request(request), Item::Response(response)], None));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..50) {
        prop_assert_eq!(read(&bytes, usize::MAX).0, read(&bytes, cut).0);
    }
}
