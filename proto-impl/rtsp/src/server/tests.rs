use super::*;
use crate::testing::*;
use crate::{Limit, Lower, Ports};

const URL: &str = "rtsp://127.0.0.1:8554/live/s?token=a";

/// Makes a request.
fn ask(method: &str, uri: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} {uri} RTSP/1.0\r\nCSeq: 7\r\n{fields}{length}\r\n{body}").into_bytes()
}

fn announce() -> Vec<u8> {
    ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\nUser-Agent: Lavf59.27.100\r\n", ANNOUNCED)
}

fn describe() -> Vec<u8> {
    ask("DESCRIBE", URL, "Accept: application/sdp\r\n", "")
}

fn setup(track: &str, transport: &str) -> Vec<u8> {
    ask("SETUP", &format!("{URL}/{track}"), &format!("Transport: {transport}\r\n"), "")
}

const RECORD_TCP: &str = "RTP/AVP/TCP;unicast;interleaved=0-1;mode=record";
const PLAY_UDP: &str = "RTP/AVP;unicast;client_port=5000-5001";

fn rig() -> Rig {
    Rig::new(Config::default())
}

/// Returns the status of the answer. There must be exactly one answer.
fn status(answer: &str) -> u16 {
    assert_eq!(answer.matches("RTSP/1.0 ").count(), 1, "{answer}");
    assert!(answer.contains("CSeq: 7\r\n"), "{answer}");
    answer[9..12].parse().unwrap()
}

/// Feeds requests. All of them must succeed.
fn through(rig: &mut Rig, requests: &[Vec<u8>]) {
    for request in requests {
        let answer = rig.feed(request);
        assert_eq!(status(&answer), 200, "{answer} to {}", String::from_utf8_lossy(request));
    }
}

fn recording() -> Rig {
    let mut rig = rig();
    let second = setup("streamid=1", "RTP/AVP/TCP;unicast;interleaved=2-3;mode=record");
    let record = ask("RECORD", URL, "Range: npt=0.000-\r\n", "");
    through(&mut rig, &[announce(), setup("streamid=0", RECORD_TCP), second, record]);
    rig
}

#[test]
fn ffmpeg_publishes() {
    let mut rig = recording();
    let Event::Announce(request) = &rig.events[0] else { panic!("{:?}", rig.events) };
    assert_eq!((request.stream.target.path.as_str(), request.description.media.len()), ("live/s", 2));
    assert_eq!(request.stream.target.query.as_deref(), Some("token=a"));
    assert_eq!(request.stream.user_agent, "Lavf59.27.100");
    assert_eq!(request.via, [""; 0]);
    let Event::Setup(request) = &rig.events[2] else { panic!("{:?}", rig.events) };
    assert_eq!((request.track, request.mode), (1, Mode::Record));
    assert_eq!(rig.server.channels(1), Some(Channels { rtp: 2, rtcp: 3 }));
    assert_eq!(rig.feed(b"$\x02\x00\x03abc$\x01\x00\x00"), "");
    let frames: Vec<_> = rig.events[4..].iter().collect();
    assert!(
        matches!(frames[0], Event::Interleaved(f) if f.track == 1 && !f.is_rtcp && &*f.payload == b"abc")
    );
    assert!(matches!(frames[1], Event::Interleaved(f) if f.track == 0 && f.is_rtcp && f.payload.is_empty()));
    let answer = rig.feed(&ask("TEARDOWN", URL, "", ""));
    assert_eq!((status(&answer), rig.events.last()), (200, Some(&Event::Teardown)));
    // The connection may begin another session.
    through(&mut rig, &[announce()]);
}

#[test]
fn a_section_that_cannot_be_read_is_left_out_and_the_others_keep_their_numbers() {
    let head = "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nt=0 0\r\n";
    let foreign = "m=application/TP-LINK 0 RTP/AVP smart/1/90000\r\na=control:track1\r\n";
    let body = format!("{head}{foreign}nonsense\r\nm=audio -5 RTP/AVP 0\r\na=control:track2\r\n");
    let mut publisher = rig();
    through(&mut publisher, &[ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\n", &body)]);
    let Event::Announce(request) = &publisher.events[0] else { panic!("{:?}", publisher.events) };
    let known: Vec<_> =
        request.description.media.iter().map(|media| media.rtp_formats().next().is_some()).collect();
    assert_eq!(known, [false, true]);
    through(&mut publisher, &[setup("track2", RECORD_TCP)]);
    assert!(matches!(publisher.events.last(), Some(Event::Setup(request)) if request.track == 1));
    // A description without any usable track is refused.
    let request = ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\n", &format!("{head}{foreign}"));
    assert_eq!(status(&rig().feed(&request)), 400);
}

/// Checks GStreamer, which appends the track to the path and keeps the query after it.
#[test]
fn rtspclientsink_publishes() {
    let mut rig = rig();
    let announced = ANNOUNCED.replace("streamid=", "stream=");
    let track = "rtsp://127.0.0.1:8554/live/s/stream=1?token=a";
    let transport = "Transport: RTP/AVP/UDP;unicast;client_port=5002-5003;mode=RECORD\r\n";
    through(
        &mut rig,
        &[
            ask("OPTIONS", URL, "", ""),
            ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\n", &announced),
            ask("SETUP", track, transport, ""),
            ask("RECORD", URL, "", ""),
        ],
    );
    assert!(matches!(&rig.events[1], Event::Setup(request) if request.track == 1));
    assert_eq!(rig.events.last(), Some(&Event::Record));
}

#[test]
fn a_player_is_answered_with_all_it_needs() {
    let mut rig = rig();
    let answer = rig.feed(&ask("OPTIONS", "*", "", ""));
    assert!(answer.contains("Public: OPTIONS, DESCRIBE, ANNOUNCE, SETUP, PLAY, RECORD"), "{answer}");
    let answer = rig.feed(&describe());
    assert!(answer.contains(&format!("Content-Base: {URL}/\r\n")), "{answer}");
    assert!(answer.ends_with(DESCRIPTION) && answer.contains("Content-Type: application/sdp\r\n"));
    let answer = rig.feed(&setup("trackID=0", PLAY_UDP));
    let transport =
        "Transport: RTP/AVP;unicast;client_port=5000-5001;server_port=6970-6971;ssrc=00000007\r\n";
    assert!(answer.contains(transport) && answer.contains(";timeout=60\r\n"), "{answer}");
    through(&mut rig, &[setup("trackID=1", "RTP/AVP/TCP;unicast;interleaved=8-9")]);
    let answer = rig.feed(&ask("PLAY", &format!("{URL}/"), "Range: npt=0.000-\r\n", ""));
    let info = format!("RTP-Info: url={URL}/trackID=0;seq=5;rtptime=90000,url={URL}/trackID=1\r\n");
    assert!(answer.contains(&info) && answer.contains("Range: npt=0.000-\r\n"), "{answer}");
    assert!(rig.server.send_frame(1, true, Bytes::from_static(b"sr")));
    assert!(!rig.server.send_frame(0, true, Bytes::from_static(b"sr")), "it is not interleaved");
    assert_eq!(rig.sent(), "$\x09\0\x02sr");
    through(&mut rig, &[ask("PLAY", URL, "", ""), ask("PAUSE", URL, "", ""), ask("PAUSE", URL, "", "")]);
    assert_eq!(rig.events.iter().filter(|event| **event == Event::Pause).count(), 1);
    through(&mut rig, &[ask("GET_PARAMETER", URL, "", ""), ask("GET_PARAMETER", URL, "", "x: y\r\n")]);
    assert_eq!(status(&rig.feed(&ask("SET_PARAMETER", URL, "", "x: y\r\n"))), 451);
}

#[test]
fn frames_have_a_head_of_four_bytes() {
    assert_eq!(crate::frame_head(3, 0x1234), Some([b'$', 3, 0x12, 0x34]));
    assert_eq!(crate::frame_head(3, crate::limits::FRAME_BYTES_MAX), Some([b'$', 3, 0xff, 0xff]));
    assert_eq!(crate::frame_head(3, crate::limits::FRAME_BYTES_MAX + 1), None);
}

#[test]
fn any_cut_of_the_stream_gives_the_same() {
    let stream = [
        announce(),
        setup("streamid=0", RECORD_TCP),
        ask("RECORD", URL, "", ""),
        b"$\x00\x00\x03abc".to_vec(),
        ask("TEARDOWN", URL, "", ""),
    ]
    .concat();
    let run = |cut: usize| {
        let mut rig = rig();
        let sent: String = stream.chunks(cut).map(|piece| rig.feed(piece)).collect();
        (sent, rig.events)
    };
    let whole = run(usize::MAX);
    assert_eq!((whole.0.matches("200 OK").count(), whole.1.len()), (4, 5), "pipelined, in order");
    for cut in 1..60 {
        assert_eq!(run(cut), whole, "cut {cut}");
    }
}

#[test]
fn reading_stops_while_a_verdict_is_awaited() {
    let mut rig = rig();
    let now = rig.now;
    rig.server.handle_bytes(now, &describe()).unwrap();
    rig.server.handle_bytes(now, &ask("OPTIONS", "*", "", "")).unwrap();
    assert!(!rig.server.wants_bytes() && rig.sent().is_empty() && rig.server.poll_timeout().is_none());
    rig.server.accept_play(now, &[]);
    rig.server.accept_announce(now);
    assert!(rig.sent().is_empty(), "verbs that do not fit change nothing");
    rig.server.reject(now, crate::Status::NOT_FOUND);
    let answers = rig.sent();
    assert!(
        answers.starts_with("RTSP/1.0 404 Not Found\r\n") && answers.contains("RTSP/1.0 200 OK"),
        "{answers}"
    );
    rig.server.handle_bytes(now, &describe()).unwrap();
    let error = rig.server.handle_bytes(now, &vec![b'x'; 200 << 10]).unwrap_err();
    assert!(matches!(error, Error::Limit { limit: Limit::HeldBytes, .. }) && rig.sent().is_empty());
}

#[test]
fn p_07_requests_out_of_order_change_nothing() {
    let play = || ask("PLAY", URL, "", "");
    let record = || ask("RECORD", URL, "", "");
    let teardown = || ask("TEARDOWN", URL, "", "");
    let mut rig = rig();
    for (request, code) in [
        (play(), 455),
        (record(), 455),
        (ask("PAUSE", URL, "", ""), 455),
        (teardown(), 454),
        (setup("trackID=0", PLAY_UDP), 455),
        (ask("PLAY", URL, "Session: 1234\r\n", ""), 454),
        (ask("SETUP", URL, "Session: 1234\r\n", ""), 454),
        (ask("REDIRECT", URL, "", ""), 405),
        (ask("FLY", URL, "", ""), 501),
        (ask("DESCRIBE", URL, "Require: com.example\r\n", ""), 551),
        (ask("DESCRIBE", URL, "Accept: text/html\r\n", ""), 406),
        (ask("DESCRIBE", "*", "", ""), 400),
        (ask("ANNOUNCE", URL, "Content-Type: text/plain\r\n", "v=0\r\n"), 415),
        (describe(), 200),
        (setup("trackID=9", PLAY_UDP), 404),
        (ask("SETUP", URL, "Transport: RTP/AVP;client_port=1-2\r\n", ""), 459),
        (setup("trackID=0", RECORD_TCP), 455),
        (setup("trackID=0", PLAY_UDP), 200),
        (setup("trackID=0", PLAY_UDP), 455),
        (setup("trackID=1", "RTP/AVP;unicast;client_port=5002-5003"), 200),
        (record(), 455),
        (ask("PLAY", URL, "Session: 1234\r\n", ""), 454),
        (ask("PLAY", &format!("{URL}/trackID=0"), "", ""), 460),
        (describe(), 455),
        (announce(), 455),
        (play(), 200),
        (setup("trackID=1", PLAY_UDP), 455),
        (ask("TEARDOWN", URL, "Session: 1234\r\n", ""), 454),
        (teardown(), 200),
        (teardown(), 454),
    ] {
        let text = String::from_utf8_lossy(&request).into_owned();
        assert_eq!(status(&rig.feed(&request)), code, "{text}");
    }
    assert_eq!(rig.closed(), None);
}

#[test]
fn p_08_media_goes_to_the_peer_and_nowhere_else() {
    for (transport, code) in [
        ("RTP/AVP;unicast;client_port=0-1", 400),
        ("RTP/AVP;unicast;client_port=70000-70001", 400),
        ("RTP/AVP;unicast;client_port=5001-5000", 400),
        ("RTP/AVP;multicast;destination=239.1.1.1;port=5000-5001", 461),
        ("RTP/AVP;unicast", 461),
        ("RTP/SAVP;unicast;client_port=5000-5001", 461),
        ("RAW/RAW/UDP;unicast;client_port=5000-5001", 461),
        ("", 400),
    ] {
        let mut rig = rig();
        through(&mut rig, &[describe()]);
        assert_eq!(status(&rig.feed(&setup("trackID=0", transport))), code, "{transport}");
    }
    let mut rig = rig();
    through(&mut rig, &[describe()]);
    let answer = rig.feed(&setup("trackID=0", &format!("{PLAY_UDP};destination=192.0.2.1")));
    assert!(status(&answer) == 200 && !answer.contains("destination"), "{answer}");
    let chosen = rig.server.transport(0).unwrap();
    assert_eq!((chosen.destination.as_deref(), chosen.client_ports), (None, Ports::from_rtp(5000)));
}

#[test]
fn p_09_channels_and_frames_out_of_place() {
    let mut rig = rig();
    through(&mut rig, &[announce(), setup("streamid=0", RECORD_TCP)]);
    assert_eq!(status(&rig.feed(&setup("streamid=1", RECORD_TCP))), 461, "doubled");
    assert_eq!(status(&rig.feed(&setup("streamid=1", "RTP/AVP/TCP;unicast;interleaved=1-2"))), 461);
    assert_eq!(status(&rig.feed(&setup("streamid=1", "RTP/AVP/TCP;unicast;interleaved=255-256"))), 400);
    // The server chooses the channels if the client does not.
    let answer = rig.feed(&setup("streamid=1", "RTP/AVP/TCP;unicast;mode=record"));
    assert!(answer.contains("interleaved=2-3"), "{answer}");
    rig.feed(b"$\x09\x00\x01x$\x00\x00\x01x");
    assert_eq!((rig.server.stats().frames_ignored, rig.server.stats().frames_received), (1, 1));
    // Ignored frames do not end the session, but do not keep it alive either.
    rig.now += secs(50);
    rig.feed(&b"$\x09\x00\x01x".repeat(10_000));
    assert_eq!((rig.closed(), rig.server.stats().frames_ignored), (None, 10_001));
    rig.server.handle_timeout(rig.now + secs(10));
    rig.decide();
    assert_eq!(rig.closed(), Some(&CloseReason::Timeout(Timer::Session)));

    let mut rig = recording();
    rig.feed(b"$\x00\xff\xff");
    for _ in 0..10 {
        rig.feed(&[b'x'; 6000]);
    }
    assert!(rig.server.link.reader.pending_bytes() <= crate::limits::FRAME_BYTES_MAX);
}

#[test]
fn messages_out_of_place_are_counted_by_the_minute() {
    const ANSWER: &[u8] = b"RTSP/1.0 200 OK\r\nCSeq: 999\r\n\r\n";
    let mut rig = recording();
    for n in 0..3000 {
        rig.now += Duration::from_millis(100);
        rig.feed(ANSWER);
        assert_eq!(rig.closed(), None, "{n}");
        if n % 100 == 0 {
            rig.feed(b"$\x00\x00\x00");
        }
    }
    for _ in 0..2000 {
        rig.now += Duration::from_millis(20);
        rig.feed(ANSWER);
    }
    let failed = Error::Limit { at: rig.server.stats().bytes_received, limit: Limit::BadMessages };
    assert_eq!(rig.closed(), Some(&CloseReason::Failed(failed)));
}

#[test]
fn a_player_sets_up_its_tracks_in_any_order() {
    // The player numbers the channels of its tracks from 0. The server replaces them by its own.
    let mut rig = rig();
    through(&mut rig, &[describe()]);
    for (track, asked, offered, chosen) in [(1, 0, 0, 2), (0, 2, 0, 0)] {
        let transport = format!("RTP/AVP/TCP;unicast;interleaved={asked}-{}", asked + 1);
        rig.server.handle_bytes(rig.now, &setup(&format!("trackID={track}"), &transport)).unwrap();
        let Some(Event::Setup(request)) = rig.server.poll_event() else { panic!("{}", rig.sent()) };
        assert_eq!((request.track, request.transports[0].channels), (track, Channels::from_rtp(offered)));
        let transport = Transport { channels: Channels::from_rtp(chosen), ..request.transports[0].clone() };
        rig.server.accept_setup(rig.now, transport);
        let answer = rig.sent();
        assert!(answer.contains(&format!("interleaved={chosen}-")), "{answer}");
    }
}

#[test]
fn p_10_descriptions_that_cannot_be_are_refused() {
    let many = format!(
        "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nt=0 0\r\n{}",
        "m=audio 0 RTP/AVP 0\r\n".repeat(5000)
    );
    let long = format!("v=0\r\ns={}\r\n", "x".repeat(100_000));
    let none = "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nt=0 0\r\n";
    for body in [many.as_str(), &long, none, "nonsense"] {
        let request = ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\n", body);
        assert_eq!(status(&rig().feed(&request)), 400, "{:.40}", body);
    }
    // A control attribute is only compared with URLs, never resolved.
    for control in ["../../etc", "rtsp://192.0.2.1/x/y"] {
        let body = format!("{none}m=audio 0 RTP/AVP 0\r\na=control:{control}\r\nm=audio 0 RTP/AVP 0\r\n");
        let mut rig = rig();
        through(&mut rig, &[ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\n", &body)]);
        assert_eq!(status(&rig.feed(&setup("z", RECORD_TCP))), 404);
        assert_eq!(
            status(&rig.feed(&ask(
                "SETUP",
                &format!("{URL}/{control}"),
                &format!("Transport: {RECORD_TCP}\r\n"),
                ""
            ))),
            200
        );
    }
}

#[test]
fn p_13_sessions_have_ids_that_nobody_guesses() {
    let id = |seed: u64| {
        let server = Server::new(start(), Arc::new(Config::default()), Seed::from_number(seed));
        let mut rig = Rig { server, ..rig() };
        through(&mut rig, &[describe()]);
        rig.now = start();
        let answer = rig.feed(&setup("trackID=0", PLAY_UDP));
        let id = answer.split("Session: ").nth(1).unwrap().split(';').next().unwrap().to_owned();
        assert_eq!(id.len(), 32);
        id
    };
    let ids: std::collections::BTreeSet<String> = (0..300).map(id).collect();
    assert_eq!(ids.len(), 300);
    assert_eq!(id(1), id(1));
}

#[test]
fn p_13_a_silent_session_ends_after_a_minute() {
    let mut rig = recording();
    let begin = rig.now;
    assert_eq!(rig.server.poll_timeout(), Some(begin + secs(60)));
    rig.now = begin + secs(50);
    rig.feed(b"$\x00\x00\x01x");
    assert_eq!(rig.server.poll_timeout(), Some(begin + secs(110)), "a frame is a sign of life");
    rig.now = begin + secs(100);
    rig.server.keep_alive(rig.now);
    rig.server.handle_timeout(begin + secs(159));
    assert_eq!(rig.server.poll_timeout(), Some(begin + secs(160)));
    rig.server.handle_timeout(begin + secs(160));
    rig.decide();
    assert_eq!(rig.closed(), Some(&CloseReason::Timeout(Timer::Session)));
    assert_eq!(
        (rig.server.poll_timeout(), rig.server.poll_event(), rig.server.wants_bytes()),
        (None, None, false)
    );
    rig.server.keep_alive(rig.now);
    assert_eq!(rig.server.poll_timeout(), None);
}

#[test]
fn a_connection_without_a_session_is_closed_however_it_chatters() {
    let mut rig = rig();
    let begin = rig.now;
    rig.now = begin + secs(9);
    through(&mut rig, &[ask("OPTIONS", "*", "", ""), describe()]);
    assert_eq!(rig.server.poll_timeout(), Some(begin + secs(10)));
    // The time that the owner takes for a decision does not count against the peer.
    rig.server.handle_bytes(rig.now, &describe()).unwrap();
    assert_eq!(rig.server.poll_timeout(), None);
    rig.now = begin + secs(100);
    rig.server.reject(rig.now, crate::Status::UNAVAILABLE);
    rig.server.handle_timeout(begin + secs(100));
    rig.decide();
    assert_eq!((rig.closed(), rig.server.poll_timeout()), (None, Some(begin + secs(101))));
    rig.server.handle_timeout(begin + secs(101));
    rig.decide();
    assert_eq!(rig.closed(), Some(&CloseReason::Timeout(Timer::Request)));
}

#[test]
fn p_01_to_p_06_what_is_no_message_is_answered_and_closed() {
    for (bytes, code) in [
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: -1\r\n\r\n", 400),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 999999\r\n\r\n", 413),
        ("OPTIONS * RTSP/1.0\r\n\r\n", 400),
        ("GET /live/s HTTP/1.0\r\nx-sessioncookie: 1\r\n\r\n", 505),
        ("OPTIONS * RTSP/2.0\r\nCSeq: 1\r\n\r\n", 505),
    ] {
        let mut rig = rig();
        let answer = rig.feed(bytes.as_bytes());
        assert!(answer.starts_with(&format!("RTSP/1.0 {code} ")), "{answer}");
        assert!(matches!(rig.closed(), Some(CloseReason::Failed(_))));
        assert_eq!(rig.feed(&describe()), "");
    }
    let mut rig = rig();
    rig.feed(&ask("OPTIONS", "*", "", "").repeat(101));
    assert!(matches!(
        rig.closed(),
        Some(CloseReason::Failed(Error::Limit { limit: Limit::RequestRate, .. }))
    ));
}

#[test]
fn p_12_wrong_credentials_are_challenged_and_then_left() {
    let mut rig = rig();
    rig.login = Some(("user", "pass"));
    let answer = rig.feed(&describe());
    assert_eq!((status(&answer), answer.matches("WWW-Authenticate: Digest realm=").count()), (401, 2));
    let fields = [
        "Digest username=\"user\", realm=\"millstream\", nonce=\"00\", uri=\"*\", response=\"00\"",
        "Basic dXNlcjpwYXNz",
    ];
    for field in fields.into_iter().cycle().take(6) {
        let answer = rig.feed(&ask("DESCRIBE", URL, &format!("Authorization: {field}\r\n"), ""));
        assert_eq!(status(&answer), 401);
    }
    assert!(matches!(
        rig.closed(),
        Some(CloseReason::Failed(Error::Limit { limit: Limit::Authentications, .. }))
    ));
}

#[test]
fn a_requests_damage_does_no_harm() {
    let stream = [announce(), setup("streamid=0", RECORD_TCP), ask("RECORD", URL, "", "")].concat();
    for at in 0..stream.len() {
        rig().feed(&stream[..at]);
        for flip in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = stream.clone();
            damaged[at] ^= flip;
            let mut rig = rig();
            rig.feed(&damaged);
            let ends = rig.events.iter().filter(|event| matches!(event, Event::Closed(_))).count();
            assert!(ends == 0 || ends == 1 && rig.closed().is_some());
        }
    }
}

#[test]
fn single_tracks_may_be_set_up_by_the_streams_url() {
    let one = "v=0\r\no=- 1 1 IN IP4 1.1.1.1\r\ns=-\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n";
    let mut rig = rig();
    through(
        &mut rig,
        &[
            ask("ANNOUNCE", URL, "Content-Type: application/sdp\r\n", one),
            ask("SETUP", URL, "Transport: RTP/AVP/UDP;unicast;client_port=4000;mode=\"RECORD\"\r\n", ""),
            ask("RECORD", URL, "", ""),
        ],
    );
    let chosen = rig.server.transport(0).unwrap();
    assert_eq!((chosen.lower, chosen.client_ports), (Lower::Udp, Some(Ports { rtp: 4000, rtcp: 4001 })));
    assert!(!format!("{:?} {:?}", rig.server, rig.events).contains("token"));
}
