//! RTSP: the reader, the header fields with their own grammar, and the state machines of server and client. The
//! meaning of a stream does not depend on how it is cut.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use rtsp::auth::{Authorization, Challenge, Credentials};
use rtsp::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX};
use rtsp::{
    Client, ClientConfig, ClientEvent, Config, Event, Item, Lower, Ports, Reader, RtpInfo, Server, Status,
    Target, TrackSetup, Transport, Uri,
};
use sdp::Description;
use wire::SendQueue;

use crate::http_targets::epoch;
use crate::splits::{head, pieces};

/// The description that the application gives to a server to answer with, and to a client to announce.
const DESCRIPTION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:trackID=0\r\n\
    m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/44100/2\r\na=control:trackID=1\r\n";
/// Maximum number of deadlines that may pass.
const TIMEOUTS_MAX: usize = 8;

/// Checks the reader: any cut gives the same items, and items written again read the same. Then reads the same bytes as
/// header fields.
pub fn rtsp_message(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let whole = items(&[stream]);
    assert_eq!(whole, items(&pieces(seed, stream)), "the cuts changed the meaning");
    let mut bytes = Vec::new();
    for item in &whole.0 {
        match item {
            Item::Request(request) => request.write(&mut bytes),
            Item::Response(response) => response.write(&mut bytes),
            Item::Interleaved { channel, payload } => {
                let head = rtsp::frame_head(*channel, payload.len()).expect("it came in a frame");
                bytes.extend_from_slice(&head);
                bytes.extend_from_slice(payload);
            }
        }
    }
    assert_eq!(items(&[&bytes]).0.len(), whole.0.len(), "own messages do not read");
    for line in String::from_utf8_lossy(stream).lines() {
        fields(line);
    }
}

fn items(pieces: &[&[u8]]) -> (Vec<Item>, bool) {
    let (mut reader, mut items) = (Reader::new(), Vec::new());
    for piece in pieces {
        let mut input = *piece;
        loop {
            match reader.read(&mut input) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(_) => return (items, true),
            }
        }
        assert!(input.is_empty(), "bytes left behind");
        assert!(reader.pending_bytes() <= HEAD_BYTES_MAX.max(BODY_BYTES_MAX));
    }
    (items, false)
}

fn fields(line: &str) {
    for transport in Transport::read_all(line).unwrap_or_default() {
        let text = transport.to_string();
        let again = Transport::read_all(&text).expect("own fields are read");
        assert_eq!(again.first().map(ToString::to_string), Some(text));
    }
    for challenge in Challenge::read_all([line].into_iter()) {
        // Reading drops control characters, so the first written text is compared.
        let text = challenge.to_string();
        let again = Challenge::read_all([text.as_str()].into_iter());
        assert_eq!(again.first().map(ToString::to_string), Some(text));
    }
    if let Some(authorization) = Authorization::read(line) {
        let text = authorization.write();
        assert_eq!(Authorization::read(&text).map(|again| again.write()), Some(text));
    }
    if let Some(uri) = Uri::read(line) {
        assert_eq!(Uri::read(&uri.to_string()).map(|again| again.to_string()), Some(uri.to_string()));
        for target in [Target::of_stream(&uri), Target::of_track(&uri)] {
            assert!(!target.path.starts_with('/') && !target.path.ends_with('/'));
        }
    }
}

/// Runs the server's state machine. Flags of the first byte: 1 challenges; 2 refuses UDP; 4 refuses publishers; 8
/// begins within a session. The whole byte seeds the cuts.
pub fn rtsp_server(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let mut bytes = Vec::new();
    if seed & 8 != 0 {
        bytes.extend_from_slice(
            b"DESCRIBE rtsp://h/live/s RTSP/1.0\r\nCSeq: 1\r\n\r\n\
              SETUP rtsp://h/live/s/trackID=0 RTSP/1.0\r\nCSeq: 2\r\n\
              Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n\r\n",
        );
    }
    bytes.extend_from_slice(stream);
    let (whole, cut) = (serve(seed, &[&bytes]), serve(seed, &pieces(seed | 16, &bytes)));
    assert_eq!(whole.0, cut.0, "the cuts changed the meaning");
    assert!(whole.1 == cut.1, "the cuts changed the answer");
}

/// Removes the offsets from an error text, because they depend on how the bytes were cut.
fn without_offset(text: &str) -> String {
    let mut parts = text.split("at: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "at: _" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

fn serve(seed: u8, pieces: &[&[u8]]) -> (Vec<String>, Bytes) {
    let now = epoch();
    // While the server waits for a decision, it must be able to buffer the whole input. A smaller limit would make the
    // result depend on the cuts.
    let config = Config { held_bytes_max: 1 << 20, ..Config::default() };
    let mut server = Server::new(now, Arc::new(config), Seed::from_number(1));
    let (mut events, mut out) = (Vec::new(), SendQueue::new());
    for piece in pieces {
        let failed = server.handle_bytes(now, piece).is_err();
        decide(&mut server, now, seed, &mut events);
        server.poll_transmit(&mut out);
        if failed {
            assert!(events.last().is_some_and(|e| e.starts_with("Closed")), "an error without an end");
        }
    }
    for _ in 0..TIMEOUTS_MAX {
        let Some(at) = server.poll_timeout() else { break };
        server.handle_timeout(at);
        decide(&mut server, at, seed, &mut events);
        server.poll_transmit(&mut out);
        assert!(server.poll_timeout().is_none_or(|next| next > at), "a deadline that stays");
    }
    ends_once(&events);
    (events, out.take_all())
}

fn ends_once(events: &[String]) {
    let ends = events.iter().filter(|e| e.starts_with("Closed")).count();
    assert!(ends <= 1 && (ends == 0 || events.last().is_some_and(|e| e.starts_with("Closed"))), "{events:?}");
}

fn decide(server: &mut Server, now: Instant, seed: u8, events: &mut Vec<String>) {
    let accepted = rtsp::auth::Verdict::Accepted;
    while let Some(event) = server.poll_event() {
        events.push(without_offset(&format!("{event:?}")));
        match event {
            Event::Describe(_) if seed & 1 != 0 && server.verify(now, "user", "pass") != accepted => {
                server.challenge(now);
            }
            Event::Describe(_) => server.accept_describe(now, DESCRIPTION),
            Event::Announce(_) if seed & 4 != 0 => server.reject(now, Status::FORBIDDEN),
            Event::Announce(_) => server.accept_announce(now),
            Event::Setup(request) => {
                assert!(request.transports.iter().all(|transport| !transport.multicast));
                let takes = |transport: &&Transport| seed & 2 == 0 || transport.lower == Lower::Tcp;
                match request.transports.iter().find(takes) {
                    Some(transport) => {
                        let server_ports = Ports::from_rtp(6970).filter(|_| transport.lower == Lower::Udp);
                        server.accept_setup(now, Transport { server_ports, ..transport.clone() });
                        assert!(server.transport(request.track).is_none_or(|t| t.destination.is_none()));
                    }
                    None => server.reject(now, Status::UNSUPPORTED_TRANSPORT),
                }
            }
            Event::Play => server.accept_play(now, &[RtpInfo { sequence: Some(1), ..RtpInfo::default() }]),
            Event::Record => server.accept_record(now),
            Event::Pause | Event::Teardown | Event::Interleaved(_) | Event::Closed(_) => {}
        }
    }
}

static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let uri = Uri::read("rtsp://127.0.0.1/live/s?token=a").expect("it is a URL");
    let credentials = Credentials { user: "user".to_owned(), password: "pass".to_owned() };
    let credentials = Some(credentials);
    Arc::new(ClientConfig {
        credentials,
        stall_timeout: Some(Duration::from_secs(95)),
        ..ClientConfig::new(uri)
    })
});

/// Runs the client's state machine. Flags of the first byte: 1 publishes; 2 requests UDP; 4 begins after the
/// description. The whole byte seeds the cuts.
pub fn rtsp_client(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let mut bytes = Vec::new();
    if seed & 4 != 0 {
        let described = if seed & 1 == 0 {
            format!("Content-Length: {}\r\n\r\n{DESCRIPTION}", DESCRIPTION.len())
        } else {
            "\r\n".to_owned()
        };
        let ok = "RTSP/1.0 200 OK\r\n";
        bytes.extend_from_slice(format!("{ok}Public: GET_PARAMETER\r\n\r\n{ok}{described}").as_bytes());
    }
    bytes.extend_from_slice(stream);
    // The results are not compared: the owner of a pull chooses tracks between two reads, so they may depend on
    // the cuts.
    let _ = (ask(seed, &[&bytes]), ask(seed, &pieces(seed | 8, &bytes)));
}

fn ask(seed: u8, pieces: &[&[u8]]) -> Vec<String> {
    let now = epoch();
    let ports = |port| Ports::from_rtp(port).filter(|_| seed & 2 != 0);
    let setup = |track, port| {
        ports(port).map_or(TrackSetup::interleaved(track), |ports| TrackSetup::udp(track, ports))
    };
    let tracks = [setup(0, 5000), setup(1, 5002)];
    let mut client = if seed & 1 == 0 {
        Client::play(now, Arc::clone(&CONFIG), Seed::from_number(1))
    } else {
        let description = Description::read(DESCRIPTION.as_bytes()).expect("it is one");
        Client::publish(now, Arc::clone(&CONFIG), description, &tracks, Seed::from_number(1))
    };
    let (mut events, mut out) = (Vec::new(), SendQueue::new());
    for piece in pieces {
        let failed = client.handle_bytes(now, piece).is_err();
        drain(&mut client, now, &tracks, &mut events);
        client.poll_transmit(&mut out);
        if failed {
            assert!(events.last().is_some_and(|e| e.starts_with("Closed")), "an error without an end");
        }
        // Our own reader can read the client's requests.
        let (_, malformed) = items(&[&out.take_all()]);
        assert!(!malformed, "own requests do not read");
    }
    for _ in 0..TIMEOUTS_MAX {
        let Some(at) = client.poll_timeout() else { break };
        client.handle_timeout(at);
        drain(&mut client, at, &tracks, &mut events);
        client.poll_transmit(&mut out);
        assert!(client.poll_timeout().is_none_or(|next| next > at), "a deadline that stays");
    }
    ends_once(&events);
    events
}

fn drain(client: &mut Client, now: Instant, tracks: &[TrackSetup], events: &mut Vec<String>) {
    while let Some(event) = client.poll_event() {
        if matches!(event, ClientEvent::Described(_) | ClientEvent::NotInterleaved) {
            client.setup(now, tracks);
        }
        if let ClientEvent::SetUp { transport, .. } = &event {
            assert!(!transport.multicast, "nobody joins a group");
        }
        events.push(format!("{event:?}"));
    }
}
