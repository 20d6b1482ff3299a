use sdp::Description;

use super::*;
use crate::auth::Credentials;
use crate::testing::*;
use crate::{Event, Limit, Lower, Ports, RtpInfo, Status, Uri, Violation};

const URL: &str = "rtsp://127.0.0.1:8554/live/s?token=secret";

fn config() -> Arc<ClientConfig> {
    Arc::new(ClientConfig::new(Uri::read(URL).unwrap()))
}

fn with_password(password: &str) -> Arc<ClientConfig> {
    let credentials = Some(Credentials { user: "user".to_owned(), password: password.to_owned() });
    Arc::new(ClientConfig { credentials, ..(*config()).clone() })
}

const fn tcp(track: usize) -> TrackSetup {
    TrackSetup::interleaved(track)
}

fn udp(track: usize, port: u16) -> TrackSetup {
    TrackSetup::udp(track, Ports::from_rtp(port).unwrap())
}

fn player(config: Arc<ClientConfig>) -> Client {
    Client::play(start(), config, Seed::from_number(3))
}

fn publisher(tracks: &[TrackSetup]) -> Client {
    let description = Description::read(ANNOUNCED.as_bytes()).unwrap();
    Client::publish(start(), config(), description, tracks, Seed::from_number(3))
}

fn play(config: Arc<ClientConfig>, wanted: &[TrackSetup], cut: usize) -> Line {
    play_with(config, wanted, cut, |_| {})
}

fn play_with(
    config: Arc<ClientConfig>,
    wanted: &[TrackSetup],
    cut: usize,
    change: impl FnOnce(&mut Rig),
) -> Line {
    let mut rig = Rig::new(Config::default());
    change(&mut rig);
    let mut line = Line::new(player(config), rig, cut);
    line.wanted = wanted.to_vec();
    line.run();
    line
}

fn is_ready(events: &[ClientEvent]) -> bool {
    events.iter().any(|event| matches!(event, ClientEvent::Ready { .. }))
}

#[test]
fn a_pull_plays_through_any_cut_of_the_stream() {
    for cut in (1..40).chain([100, 4096]) {
        let mut line = play(config(), &[tcp(0), tcp(1)], cut);
        assert!(matches!(&line.events[0], ClientEvent::Described(d) if d.media.len() == 2));
        let info = RtpInfo { track: 0, sequence: Some(5), rtp_time: Some(90_000) };
        let rtp_info = vec![info, RtpInfo { track: 1, ..RtpInfo::default() }];
        assert_eq!(line.events.last(), Some(&ClientEvent::Ready { rtp_info }));
        let methods: Vec<_> = line.asked.lines().filter(|line| line.ends_with("RTSP/1.0")).collect();
        let asked = ["OPTIONS", "DESCRIBE", "SETUP", "SETUP", "PLAY"];
        assert_eq!(methods.iter().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(), asked);
        line.rig.server.send_frame(1, true, Bytes::from_static(b"report"));
        line.client.send_frame(0, true, Bytes::from_static(b"receipt"));
        line.run();
        assert!(matches!(line.events.last(), Some(ClientEvent::Interleaved(f)) if f.track == 1 && f.is_rtcp));
        assert!(matches!(line.rig.events.last(), Some(Event::Interleaved(f)) if &*f.payload == b"receipt"));
        line.client.close(line.rig.now, CloseReason::Requested);
        line.run();
        assert_eq!(line.rig.events.last(), Some(&Event::Teardown));
        assert_eq!(line.events.last(), Some(&ClientEvent::Closed(CloseReason::Requested)));
    }
}

#[test]
fn a_push_names_the_servers_that_its_stream_has_passed() {
    let via = vec!["node-a".to_owned(), "node-b".to_owned()];
    let config = Arc::new(ClientConfig { via: via.clone(), ..ClientConfig::clone(&config()) });
    let description = Description::read(ANNOUNCED.as_bytes()).unwrap();
    let client = Client::publish(start(), config, description, &[tcp(0), tcp(1)], Seed::from_number(3));
    let mut line = Line::new(client, Rig::new(Config::default()), 4096);
    line.run();
    let Event::Announce(request) = &line.rig.events[0] else { panic!("{:?}", line.rig.events) };
    assert_eq!(request.via, via);
}

#[test]
fn a_push_records() {
    for cut in [1, 7, 4096] {
        let mut line =
            Line::new(publisher(&[tcp(0), tcp(1), tcp(1), tcp(9)]), Rig::new(Config::default()), cut);
        line.run();
        assert!(is_ready(&line.events), "{:?}", line.events);
        let Event::Announce(request) = &line.rig.events[0] else { panic!("{:?}", line.rig.events) };
        assert_eq!(request.stream.target.query.as_deref(), Some("token=secret"));
        // Like ffmpeg, the client appends the track after the query.
        assert!(line.asked.contains(&format!("SETUP {URL}/streamid=1 RTSP/1.0\r\n")), "{}", line.asked);
        assert!(line.client.send_frame(1, false, Bytes::from_static(b"media")));
        assert!(!line.client.send_frame(1, false, vec![0; 70_000].into()));
        line.run();
        assert!(matches!(line.rig.events.last(), Some(Event::Interleaved(f)) if f.track == 1 && !f.is_rtcp));
    }
}

#[test]
fn udp_is_asked_for_and_fallen_back_from() {
    let line = play(config(), &[udp(0, 5000), udp(1, 5002)], 100);
    let mut transports = Vec::new();
    for event in &line.events {
        if let ClientEvent::SetUp { track, transport } = event {
            transports.push((*track, transport.clone()));
        }
    }
    assert_eq!(transports.len(), 2);
    assert_eq!(transports[1].1.client_ports, Ports::from_rtp(5002));
    assert_eq!(transports[1].1.server_ports, Ports::from_rtp(6970));

    let line = play_with(config(), &[udp(0, 5000), udp(1, 5002)], 100, |rig| rig.takes = &[Lower::Tcp]);
    assert!(is_ready(&line.events) && line.client.channels(1).is_some(), "{:?}", line.events);
    assert_eq!(line.asked.matches("client_port").count(), 1, "the second track is not tried");

    let stays = Arc::new(ClientConfig { falls_back_to_tcp: false, ..(*config()).clone() });
    let line = play_with(stays, &[udp(0, 5000)], 100, |rig| rig.takes = &[Lower::Tcp]);
    assert!(
        matches!(&line.events[1], ClientEvent::Rejected { status, .. } if *status == Status::UNSUPPORTED_TRANSPORT)
    );
    assert_eq!(line.events.last(), Some(&ClientEvent::Closed(CloseReason::Rejected)));
}

#[test]
fn a_server_that_interleaves_nothing_is_asked_again_if_the_owner_likes() {
    let tries = |falls_back_to_udp| {
        let config = Arc::new(ClientConfig { falls_back_to_udp, ..(*config()).clone() });
        let rig = Rig { takes: &[Lower::Udp], ..Rig::new(Config::default()) };
        let mut line = Line::new(player(config), rig, 100);
        line.wanted = vec![tcp(0), tcp(1)];
        line.wanted_instead = vec![udp(0, 5000), udp(1, 5002)];
        line.run();
        line
    };
    let line = tries(true);
    assert!(is_ready(&line.events) && line.client.channels(0).is_none(), "{:?}", line.events);
    let again = line.events.iter().filter(|event| **event == ClientEvent::NotInterleaved);
    assert_eq!((again.count(), line.asked.matches("interleaved=").count()), (1, 1));
    assert!(!is_ready(&tries(false).events));
}

#[test]
fn channels_are_those_that_the_owner_wants_unless_they_are_taken() {
    let channels = |rtp| Channels::from_rtp(rtp).unwrap();
    let line = play(config(), &[TrackSetup::on_channels(0, channels(6)), tcp(1)], 100);
    assert_eq!((line.client.channels(0), line.client.channels(1)), (Some(channels(6)), Some(channels(0))));
    let wanted = [0, 1].map(|track| TrackSetup::on_channels(track, channels(6)));
    let line = play(config(), &wanted, 100);
    assert_eq!((line.client.channels(0), line.client.channels(1)), (Some(channels(6)), Some(channels(0))));
}

#[test]
fn a_challenge_is_answered_once() {
    let login = |rig: &mut Rig| rig.login = Some(("user", "pass"));
    let line = play_with(with_password("pass"), &[tcp(0)], 50, login);
    assert!(is_ready(&line.events), "{:?}", line.events);
    assert_eq!(line.asked.matches("DESCRIBE").count(), 2);
    assert!(line.asked.contains("algorithm=SHA-256") && !line.asked.contains("Basic"));
    for (config, asked) in [(with_password("wrong"), 2), (config(), 1)] {
        let line = play_with(config, &[tcp(0)], 50, login);
        assert!(
            matches!(&line.events[0], ClientEvent::Rejected { status, .. } if *status == Status::UNAUTHORIZED)
        );
        assert_eq!(line.asked.matches("DESCRIBE").count(), asked);
        assert!(!format!("{:?} {:?}", line.client, line.events).contains("secret"));
    }
}

/// A client, and the sequence numbers for the answers that its scripted server gives.
struct Script {
    client: Client,
    cseq: u32,
    events: Vec<ClientEvent>,
    sent: String,
}

impl Script {
    fn new(client: Client) -> Self {
        Self { client, cseq: 0, events: Vec::new(), sent: String::new() }
    }

    fn feed(&mut self, now: Instant, bytes: &[u8]) {
        let _ = self.client.handle_bytes(now, bytes);
        while let Some(event) = self.client.poll_event() {
            if matches!(event, ClientEvent::Described(_)) {
                self.client.setup(now, &[tcp(0)]);
            }
            self.events.push(event);
        }
        let mut out = SendQueue::new();
        self.client.poll_transmit(&mut out);
        self.sent = String::from_utf8_lossy(&out.take_all()).into_owned();
    }

    /// Feeds the server's answer to the client's next request.
    fn answer(&mut self, now: Instant, status: &str, fields: &str, body: &str) -> &mut Self {
        self.cseq += 1;
        let cseq = self.cseq;
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let text = format!("RTSP/1.0 {status}\r\nCSeq: {cseq}\r\n{fields}{length}\r\n{body}");
        self.feed(now, text.as_bytes());
        self
    }

    /// Runs a client up to the server's answer to `PLAY`. `public` and `session` are header fields of the server's
    /// answers.
    fn playing(now: Instant, public: &str, session: &str) -> Self {
        let mut script = Self::new(player(with_password("pass")));
        script.answer(now, "200 OK", &format!("Public: {public}\r\n"), "");
        script.answer(now, "200 OK", "Content-Base: rtsp://10.0.0.9/cam/\r\n", DESCRIPTION);
        let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
        script.answer(now, "200 OK", &format!("{transport}Session: {session}\r\n"), "");
        script.answer(now, "200 OK", "", "");
        assert!(is_ready(&script.events), "{:?}", script.events);
        script
    }

    fn closed(&self) -> Option<&CloseReason> {
        match self.events.last() {
            Some(ClientEvent::Closed(reason)) => Some(reason),
            _ => None,
        }
    }
}

#[test]
fn a_session_is_kept_alive_at_half_of_its_time() {
    let now = start();
    for (public, method) in [("OPTIONS, GET_PARAMETER", "GET_PARAMETER"), ("OPTIONS, PLAY", "OPTIONS")] {
        let mut script = Script::playing(now, public, "abc;timeout=20");
        script.client.media_progress(now + secs(5));
        assert_eq!(script.client.poll_timeout(), Some(now + secs(10)));
        script.client.media_progress(now + secs(9));
        script.client.handle_timeout(now + secs(10));
        script.feed(now + secs(10), b"");
        assert!(
            script.sent.starts_with(&format!("{method} rtsp://10.0.0.9/cam/ RTSP/1.0\r\n")),
            "{}",
            script.sent
        );
        assert!(script.sent.contains("Session: abc\r\n"));
        assert!(script.client.poll_timeout() > Some(now + secs(10)));
        script.answer(now + secs(10), "501 Not Implemented", "", "");
        script.client.media_progress(now + secs(19));
        script.client.handle_timeout(now + secs(20));
        script.feed(now + secs(20), b"");
        assert!(script.sent.starts_with("OPTIONS "), "{}", script.sent);
        script.answer(now + secs(20), "454 Session Not Found", "", "");
        assert_eq!(script.closed(), Some(&CloseReason::Rejected));
    }
    // A hostile server can make the client neither send keep-alives too often nor stop sending them.
    for (session, every) in [("a;timeout=0", 1), ("a;timeout=4294967295", 300), ("a", 30)] {
        let script = Script::playing(now, "OPTIONS", session);
        assert_eq!(script.client.dialog.keep_alive_every, secs(every), "{session}");
    }
}

#[test]
fn frames_of_other_channels_neither_end_a_pull_nor_keep_it() {
    let now = start();
    let mut script = Script::playing(now, "OPTIONS", "a");
    script.feed(now + secs(5), &b"$\x09\x00\x01x".repeat(10_000));
    // Neither packet counts as progress: the first is RTCP, and for the second the owner does not call
    // `media_progress`.
    script.feed(now + secs(9), b"$\x01\x00\x01x$\x00\x00\x01x");
    assert_eq!((script.closed(), script.client.stats().frames_ignored), (None, 10_000));
    assert_eq!(script.client.poll_timeout(), Some(now + secs(10)));
    script.client.media_progress(now + secs(9));
    script.client.handle_timeout(now + secs(10));
    assert_eq!(script.closed(), None);
    script.client.handle_timeout(now + secs(19));
    script.feed(now + secs(19), b"");
    assert_eq!(script.closed(), Some(&CloseReason::Timeout(Timer::Media)));
}

#[test]
fn a_camera_that_describes_nothing_of_use_is_told_the_line() {
    let now = start();
    for (description, error) in [
        ("v=0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/0\r\n", "line 3: malformed rtpmap"),
        ("<html></html>", "line 1 is not an SDP line"),
        ("s=x\r\n", "no media section"),
    ] {
        let mut script = Script::new(player(config()));
        script.answer(now, "200 OK", "", "").answer(now, "200 OK", "", description);
        let Some(CloseReason::Failed(reason)) = script.closed() else { panic!("{:?}", script.events) };
        assert!(reason.to_string().ends_with(error), "{reason}");
    }
    let odd =
        DESCRIPTION.replace("m=audio", "nonsense\r\nm=application x RTP/AVP y\r\na=control:z\r\nm=audio");
    let mut script = Script::new(player(config()));
    script.answer(now, "200 OK", "", "").answer(now, "200 OK", "", &odd);
    let Some(ClientEvent::Described(read)) = script.events.first() else { panic!("{:?}", script.events) };
    let of =
        |media: &sdp::Media| (media.attributes.control().map(str::to_owned), media.payload_types().len());
    let wanted = [("trackID=0", 1), ("z", 0), ("trackID=1", 1)];
    assert!(read.media.iter().map(of).eq(wanted.map(|(control, types)| (Some(control.to_owned()), types))));
}

#[test]
fn a_silent_server_is_left() {
    let now = start();
    let mut script = Script::new(player(config()));
    assert!(script.client.poll_timeout() >= Some(now + secs(10)));
    script.client.handle_timeout(now + secs(11));
    script.feed(now + secs(11), b"");
    assert_eq!(script.closed(), Some(&CloseReason::Timeout(Timer::Request)));
    let mut script = Script::playing(now, "OPTIONS", "a");
    script.client.handle_timeout(now + secs(11));
    script.feed(now + secs(11), b"");
    assert_eq!(script.closed(), Some(&CloseReason::Timeout(Timer::Media)));
    assert_eq!((script.client.poll_timeout(), script.client.poll_event()), (None, None));
}

#[test]
fn a_stale_nonce_is_answered_again_but_not_for_ever() {
    let now = start();
    let mut script = Script::new(player(with_password("pass")));
    let challenge =
        "WWW-Authenticate: Digest realm=\"cam\", nonce=\"1\"\r\nWWW-Authenticate: Basic realm=\"cam\"\r\n";
    script.answer(now, "401 Unauthorized", challenge, "");
    assert!(
        script.sent.contains("OPTIONS") && script.sent.contains("Authorization: Digest username=\"user\"")
    );
    assert!(!script.sent.contains("qop") && !script.sent.contains("algorithm"), "{}", script.sent);
    let stale = "WWW-Authenticate: Digest realm=\"cam\", nonce=\"2\", stale=true\r\n";
    script.answer(now, "401 Unauthorized", stale, "");
    assert!(script.sent.contains("nonce=\"2\""));
    script.answer(now, "401 Unauthorized", stale, "");
    assert_eq!(script.closed(), Some(&CloseReason::Rejected));
}

#[test]
fn a_nonce_that_a_camera_forgot_is_no_refusal() {
    let now = start();
    let challenge = |nonce: u8| format!("WWW-Authenticate: Digest realm=\"cam\", nonce=\"{nonce}\"\r\n");
    let mut script = Script::new(player(with_password("pass")));
    script.answer(now, "401 Unauthorized", &challenge(1), "").answer(now, "200 OK", "", "");
    script.answer(now, "401 Unauthorized", &challenge(2), "");
    assert!(script.sent.starts_with("DESCRIBE ") && script.sent.contains("nonce=\"2\""), "{}", script.sent);
    script.answer(now, "401 Unauthorized", &challenge(3), "");
    assert_eq!(script.closed(), Some(&CloseReason::Rejected));
}

#[test]
fn a_redirect_is_for_the_owner() {
    let now = start();
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary"] {
        let mut script = Script::new(player(config()));
        script.answer(now, "200 OK", "", "").answer(now, status, "Location: rtsp://h2/s\r\n", "");
        assert_eq!(script.events[0], ClientEvent::Redirect { location: "rtsp://h2/s".to_owned() });
        assert_eq!(script.closed(), Some(&CloseReason::Redirected));
    }
    let mut script = Script::new(player(config()));
    script.answer(now, "302 Found", "", "");
    assert!(matches!(&script.events[0], ClientEvent::Rejected { status, .. } if status.code() == 302));
    let mut script = Script::playing(now, "", "a");
    script.feed(now, b"REDIRECT rtsp://h/s RTSP/1.0\r\nCSeq: 1\r\nLocation: rtsp://h3/s\r\n\r\n");
    assert_eq!(script.closed(), Some(&CloseReason::Redirected));
}

#[test]
fn requests_of_the_server_are_answered() {
    let now = start();
    let mut script = Script::playing(now, "", "a");
    for (method, status) in
        [("OPTIONS", 200), ("GET_PARAMETER", 200), ("SET_PARAMETER", 200), ("PLAY", 501), ("X", 501)]
    {
        script.feed(now, format!("{method} * RTSP/1.0\r\nCSeq: 9\r\n\r\n").as_bytes());
        assert!(
            script.sent.starts_with(&format!("RTSP/1.0 {status} ")) && script.sent.contains("CSeq: 9\r\n")
        );
    }
    let announce = format!(
        "ANNOUNCE * RTSP/1.0\r\nCSeq: 9\r\nContent-Length: {}\r\n\r\n{DESCRIPTION}",
        DESCRIPTION.len()
    );
    script.feed(now, announce.as_bytes());
    assert!(
        script.sent.starts_with("RTSP/1.0 200 ")
            && matches!(script.events.last(), Some(ClientEvent::Announced(_)))
    );
    script.feed(now, b"ANNOUNCE * RTSP/1.0\r\nCSeq: 9\r\nContent-Length: 1\r\n\r\nx");
    assert!(script.sent.starts_with("RTSP/1.0 400 "));
    script.feed(now, b"TEARDOWN * RTSP/1.0\r\nCSeq: 9\r\n\r\n");
    assert_eq!(
        (script.sent.starts_with("RTSP/1.0 200 "), script.closed()),
        (true, Some(&CloseReason::PeerClosed))
    );
}

#[test]
fn cameras_have_their_ways() {
    let now = start();
    // This camera does not know OPTIONS, omits CSeq and Transport in its answers, describes control URLs with another
    // host, and sends media before it answers PLAY.
    let described = DESCRIPTION.replace("trackID=0", "rtsp://192.168.1.64/Streaming/trackID=1");
    let mut script = Script::new(player(config()));
    script.feed(now, b"RTSP/1.0 501 Not Implemented\r\n\r\n");
    let describe = format!(
        "RTSP/1.0 200 OK\r\nContent-Length: {}\r\nContent-Base: /x\r\n\r\n{described}",
        described.len()
    );
    script.feed(now, describe.as_bytes());
    assert!(
        script.sent.starts_with("SETUP rtsp://192.168.1.64/Streaming/trackID=1 RTSP/1.0\r\n"),
        "{}",
        script.sent
    );
    script.feed(now, b"RTSP/1.0 200 OK\r\nSession:  1234567 ;timeout=60\r\n\r\n");
    assert!(
        script.sent.starts_with(&format!("PLAY {URL} RTSP/1.0\r\n"))
            && script.sent.contains("Session: 1234567\r\n")
    );
    script.feed(
        now,
        b"$\x00\x00\x01xRTSP/1.0 100 Continue\r\n\r\nRTSP/1.0 200 OK\r\nRTP-Info: nonsense\r\n\r\n",
    );
    assert!(matches!(&script.events[2], ClientEvent::Interleaved(frame) if frame.track == 0));
    assert_eq!(script.events.last(), Some(&ClientEvent::Ready { rtp_info: vec![] }));
    // The client accepts interleaving as an answer to an offer of UDP.
    let mut client = player(config());
    let first = format!(
        "RTSP/1.0 200 OK\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{DESCRIPTION}",
        DESCRIPTION.len()
    );
    client.handle_bytes(now, first.as_bytes()).unwrap();
    client.setup(now, &[udp(0, 5000)]);
    client.handle_bytes(now, b"RTSP/1.0 200 OK\r\nTransport: RTP/AVP/TCP;interleaved=4-5\r\n\r\n").unwrap();
    assert_eq!(client.channels(0), Channels::from_rtp(4));
}

#[test]
fn u_20_a_hostile_server_hits_the_same_limits() {
    let now = start();
    let failed = |begin: bool, bytes: &[u8]| {
        let mut script = if begin { Script::playing(now, "", "a") } else { Script::new(player(config())) };
        script.feed(now, bytes);
        match script.closed() {
            Some(CloseReason::Failed(error)) => error.clone(),
            other => panic!("{other:?}"),
        }
    };
    let violation = |bytes: &[u8]| match failed(false, bytes) {
        Error::Violation { violation, .. } => violation,
        Error::Limit { limit, .. } => panic!("{limit}"),
    };
    let limit = |begin: bool, bytes: &[u8]| match failed(begin, bytes) {
        Error::Limit { limit, .. } => limit,
        Error::Violation { violation, .. } => panic!("{violation}"),
    };
    assert_eq!(violation(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Violation::Version);
    assert_eq!(violation(b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n"), Violation::ContentLength);
    let ok = "RTSP/1.0 200 OK\r\n\r\n";
    assert_eq!(violation(format!("{ok}{ok}").as_bytes()), Violation::Description(sdp::Error::NoMedia));
    assert_eq!(limit(false, b"RTSP/1.0 200 OK\r\nContent-Length: 200000\r\n\r\n"), Limit::BodyBytes);
    assert_eq!(limit(true, &b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".repeat(101)), Limit::RequestRate);
    assert_eq!(limit(true, &ok.repeat(101).into_bytes()), Limit::RequestRate);
    for transport in [
        "RTP/AVP;multicast",
        "RTP/AVP;unicast;server_port=1-2",
        "RTP/SAVP",
        "",
        "RTP/AVP/TCP;interleaved=9-8",
    ] {
        let mut script = Script::new(player(config()));
        script.answer(now, "200 OK", "", "").answer(now, "200 OK", "", DESCRIPTION);
        script.answer(now, "200 OK", &format!("Transport: {transport}\r\n"), "");
        let violated = matches!(
            script.closed(),
            Some(CloseReason::Failed(Error::Violation { violation: Violation::Transport, .. }))
        );
        assert!(violated, "{transport}: {:?}", script.events);
    }
}

#[test]
fn an_answers_damage_does_no_harm() {
    let now = start();
    let length = DESCRIPTION.len();
    let stream = format!(
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\nPublic: OPTIONS\r\n\r\n\
         RTSP/1.0 401 No\r\nCSeq: 2\r\nWWW-Authenticate: Digest realm=\"a\", nonce=\"b\"\r\n\r\n\
         RTSP/1.0 200 OK\r\nCSeq: 3\r\nContent-Length: {length}\r\n\r\n{DESCRIPTION}"
    );
    for at in 0..stream.len() {
        let mut script = Script::new(player(with_password("pass")));
        script.feed(now, &stream.as_bytes()[..at]);
        for flip in [0x01, 0x80] {
            let mut damaged = stream.clone().into_bytes();
            damaged[at] ^= flip;
            let mut script = Script::new(player(with_password("pass")));
            script.feed(now, &damaged);
            script.feed(now, b"RTSP/1.0 200 OK\r\nCSeq: 4\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n");
        }
    }
}
