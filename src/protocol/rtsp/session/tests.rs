//! Peers that write their requests by hand, on a line without sockets.

use crate::protocol::SocketEvent;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use media::codec::{opus, vp8};
use media::{CodecConfig, Timescale, Track, TrackId};

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::mail::{SessionSettings, StreamEnd};
use crate::protocol::publisher::grant;
use crate::protocol::{Apps, OpenPath};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
/// Description of a stream with VP8 and G.711.
const DESCRIPTION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\na=control:trackID=0\r\n\
    m=audio 0 RTP/AVP 0\r\na=control:trackID=1\r\n";
const UDP: &str = "Transport: RTP/AVP;unicast;client_port=7000-7001\r\n";
const TCP: &str = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
/// The beginning of a key frame of VP8: 16 x 16.
const KEY_FRAME: [u8; 10] = [0x10, 0, 0, 0x9d, 0x01, 0x2a, 16, 0, 16, 0];

/// An empty set of blobs.
static BLOBS: Blobs = Blobs::new();

struct Rig {
    now: Now,
    session: RtspSession,
    cseq: u32,
    events: Vec<Event>,
    /// The next port at which a socket opens; `None` if sockets cannot be opened.
    port: Option<u16>,
}

impl Rig {
    fn new(security: Security) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let session = RtspSession::new(now, SocketAddr::new(PEER, 1), security, Seed::from_number(1));
        Self { now, session, cseq: 0, events: Vec::new(), port: Some(40_000) }
    }

    /// Creates a session to which a stream of video and audio was described.
    fn viewing(security: Security) -> Self {
        let mut rig = Self::new(security);
        assert_eq!(rig.ask("DESCRIBE", "", "", ""), "");
        assert!(matches!(rig.take_events()[..], [Event::Subscription(_, SubscriptionEvent::Subscribe(_))]));
        rig.answer(Ok(&tracks()));
        let said = rig.said();
        assert!(said.starts_with("RTSP/1.0 200") && said.contains("a=control:trackID=1"), "{said}");
        rig.take_events();
        rig
    }

    /// Creates a session whose peer was granted its stream.
    fn publishing() -> Self {
        let mut rig = Self::new(Security::Plain);
        assert_eq!(rig.ask("ANNOUNCE", "", "", DESCRIPTION), "");
        assert!(matches!(rig.take_events()[..], [Event::Publication(_, PublicationEvent::Publish(_))]));
        rig.with(|session, ctx| {
            session
                .handle_reply(ctx, Reply::Publication(Handle::ONLY, PublicationNews::Verdict(Ok(grant()))));
        });
        assert!(rig.said().starts_with("RTSP/1.0 200"));
        rig
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut RtspSession, &Context<'_>) -> T) -> T {
        let apps = Apps::from([("live".into(), Arc::new(AppSettings::defaults("live").unwrap()))]);
        let server = SessionSettings::default();
        let ctx = Context { now: self.now, apps: &apps, server: &server, blobs: &BLOBS, draining: false };
        act(&mut self.session, &ctx)
    }

    fn answer(&mut self, verdict: Result<&Tracks, NoSubscription>) {
        self.tell(SubscriptionNews::Verdict(verdict));
    }

    fn tell(&mut self, news: SubscriptionNews<'_>) {
        self.with(|session, ctx| session.handle_reply(ctx, Reply::Subscription(Handle::ONLY, news)));
        self.run();
    }

    /// Sends a request, and returns the answer.
    fn ask(&mut self, method: &str, track: &str, fields: &str, body: &str) -> String {
        self.cseq += 1;
        let (cseq, length) = (self.cseq, body.len());
        let head = format!("{method} rtsp://h/live/s{track} RTSP/1.0\r\nCSeq: {cseq}\r\n{fields}");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        self.with(|session, ctx| session.handle_bytes(ctx, request.as_bytes()));
        self.run();
        self.said()
    }

    /// Takes the session's events, and opens the sockets that it wants.
    fn run(&mut self) {
        while let Some(event) = self.with(|session, ctx| session.poll_event(ctx)) {
            if let Event::Socket(SocketEvent::Open(OpenPath { path, bind, .. })) = &event {
                let (path, wanted) = (*path, bind.unwrap().port());
                let local = self.port.map(|next| if wanted > 0 { wanted } else { next });
                self.port = local.map(|port| port + 1);
                let local = local.map(|port| SocketAddr::new(PEER, port));
                self.with(|session, ctx| match local {
                    Some(_) => session.handle_path(ctx, path, PathEvent::Open { local }),
                    None => session.handle_path(ctx, path, PathEvent::Broken("no socket")),
                });
            }
            self.events.push(event);
        }
    }

    fn said(&mut self) -> String {
        let mut out = SendQueue::new();
        self.session.poll_transmit(&mut out);
        String::from_utf8_lossy(&out.take_all()).into_owned()
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.run();
        std::mem::take(&mut self.events)
    }

    fn datagram(&mut self, path: u8, datagram: &[u8]) {
        let (path, from) = (PathId(path), Remote::of(SocketAddr::new(PEER, 7000)));
        self.with(|session, ctx| session.handle_datagram(ctx, path, from, &mut datagram.to_vec()));
    }

    /// Returns the datagrams that the session has to send: path and bytes.
    fn datagrams(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            let mut out = Datagrams::new();
            let nothing = |_: Handle| None;
            let to = self.with(|session, ctx| session.poll_datagrams(ctx, &nothing, &mut out));
            if out.is_empty() {
                return sent;
            }
            sent.extend((0..out.len()).map(|at| (to.path.0, out.get(at).to_vec())));
        }
    }

    /// Lets some seconds pass, handling deadlines each second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.mono += Duration::from_secs(1);
            self.with(|session, ctx| session.handle_timeout(ctx));
        }
    }

    fn is_over(&mut self) -> bool {
        self.take_events().iter().any(|event| matches!(event, Event::Closed(_)))
    }
}

fn tracks() -> Tracks {
    let track = |id, config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) };
    let video = track(TrackId::VIDEO, CodecConfig::Vp8(vp8::Config::default()));
    let audio = track(TrackId::AUDIO, CodecConfig::Opus(opus::Config::of_channels(2).unwrap()));
    Tracks::new(1, [video, audio])
}

/// A packet of a picture.
fn packet(payload_type: u8, sequence: u16) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    // The descriptor of VP8's payloads: the first partition begins here.
    [
        &[0x80, 0x80 | payload_type, high, low, 0, 0, sequence.to_be_bytes()[1], 0, 0, 0, 0, 7, 0x10][..],
        &KEY_FRAME,
    ]
    .concat()
}

fn closed_paths(events: &[Event]) -> Vec<u8> {
    events
        .iter()
        .filter_map(
            |event| if let Event::Socket(SocketEvent::Close(path)) = event { Some(path.0) } else { None },
        )
        .collect()
}

#[test]
fn a_viewer_has_datagrams_on_sockets_of_its_own_until_it_leaves() {
    let mut rig = Rig::viewing(Security::Plain);
    let said = rig.ask("SETUP", "/trackID=0", UDP, "");
    assert!(said.contains("server_port=40000-40001"), "{said}");
    let wanted: Vec<_> = rig
        .take_events()
        .into_iter()
        .filter_map(
            |event| if let Event::Socket(SocketEvent::Open(wanted)) = event { wanted.to } else { None },
        )
        .collect();
    assert_eq!(wanted, [7000, 7001].map(|port| SocketAddr::new(PEER, port)));
    // All tracks use the same transport.
    assert!(rig.ask("SETUP", "/trackID=1", TCP, "").starts_with("RTSP/1.0 461"));
    assert!(rig.ask("SETUP", "/trackID=1", UDP, "").contains("server_port=40002-40003"));
    assert!(rig.session.unit_sink().is_some_and(|sink| sink.has_room()));
    let said = rig.ask("PLAY", "", "", "");
    assert!(said.contains("/trackID=0") && said.contains("/trackID=1"), "{said}");
    assert!(matches!(rig.take_events()[..], [.., Event::Subscription(_, SubscriptionEvent::Pause(false))]));
    assert!(rig.ask("TEARDOWN", "", "", "").starts_with("RTSP/1.0 200"));
    let events = rig.take_events();
    assert!(matches!(events[0], Event::Subscription(_, SubscriptionEvent::Unsubscribe)), "{events:?}");
    assert_eq!(closed_paths(&events), [1, 2, 3, 4]);
    assert!(rig.session.unit_sink().is_none());
}

#[test]
fn a_viewer_whose_sockets_cannot_be_opened_may_have_its_tracks_in_the_connection() {
    let mut rig = Rig::viewing(Security::Plain);
    rig.port = None;
    assert!(rig.ask("SETUP", "/trackID=0", UDP, "").starts_with("RTSP/1.0 503"));
    assert!(rig.ask("SETUP", "/trackID=0", TCP, "").starts_with("RTSP/1.0 200"));
    assert!(rig.session.unit_sink().is_none());
}

#[test]
fn only_reports_show_that_a_viewer_of_datagrams_is_there() {
    let mut rig = Rig::viewing(Security::Plain);
    rig.ask("SETUP", "/trackID=0", UDP, "");
    rig.ask("PLAY", "", "", "");
    for _ in 0..5 {
        rig.pass(30);
        rig.datagram(2, &[0x80, 201, 0, 1, 0, 0, 0, 7]);
    }
    assert!(!rig.is_over());
    for _ in 0..4 {
        rig.pass(16);
        // Neither answers that were sent to the viewer nor packets that are not reports show that the viewer is
        // alive.
        rig.with(|session, ctx| session.handle_sent(ctx, 100));
        rig.datagram(1, &packet(96, 1));
    }
    assert!(rig.is_over());
}

#[test]
fn a_viewer_in_the_connection_is_there_while_it_takes_what_is_sent() {
    let mut rig = Rig::viewing(Security::Plain);
    assert!(rig.ask("SETUP", "/trackID=0", TCP, "").starts_with("RTSP/1.0 200"));
    rig.ask("PLAY", "", "", "");
    assert!(rig.session.unit_sink().is_none());
    for _ in 0..5 {
        rig.pass(30);
        rig.with(|session, ctx| session.handle_sent(ctx, 100));
    }
    assert!(!rig.is_over());
    rig.pass(61);
    assert!(rig.is_over());
}

#[test]
fn who_asks_for_tls_has_nothing_beside_it() {
    let mut rig = Rig::viewing(Security::Tls);
    assert!(rig.ask("SETUP", "/trackID=0", UDP, "").starts_with("RTSP/1.0 461"));
    assert!(rig.ask("SETUP", "/trackID=0", TCP, "").starts_with("RTSP/1.0 200"));
}

#[test]
fn a_publisher_of_datagrams_is_reported_to_on_its_sockets_and_ends_behind_its_silence() {
    let mut rig = Rig::publishing();
    assert!(rig.ask("SETUP", "/trackID=0", UDP, "").contains("server_port=40000-40001"));
    assert!(rig.ask("SETUP", "/trackID=1", UDP, "").contains("server_port=40002-40003"));
    assert!(rig.ask("RECORD", "", "", "").starts_with("RTSP/1.0 200"));
    rig.take_events();
    for sequence in 0..90 {
        rig.datagram(1, &packet(96, sequence));
        rig.pass(1);
    }
    let events = rig.take_events();
    let units = events
        .iter()
        .filter(|event| matches!(event, Event::Publication(_, PublicationEvent::Unit { .. })))
        .count();
    assert!(units > 80, "{units}");
    assert!(!events.iter().any(|event| matches!(event, Event::Closed(_))), "packets are signs of life");
    let reports = rig.datagrams();
    assert_eq!(reports.iter().map(|(path, _)| *path).collect::<Vec<_>>(), [2]);
    assert!(rtp::rtcp::packets(&reports[0].1).all(|part| part.is_ok()));
    rig.pass(11);
    let events = rig.take_events();
    let is_end =
        |event: &Event| matches!(event, Event::Publication(_, PublicationEvent::Over(Departure::Lost)));
    assert!(events.iter().any(is_end), "{events:?}");
    assert_eq!(closed_paths(&events), [1, 2, 3, 4]);
}

/// The tracks of a stream of which only the video has begun.
fn video_alone() -> Tracks {
    Tracks::new(1, tracks().iter().filter(|track| track.id == TrackId::VIDEO).cloned())
}

/// Creates a session that waits for tracks that its stream may still begin.
fn awaiting(is_seasoned: bool) -> Rig {
    let mut rig = Rig::new(Security::Plain);
    rig.ask("DESCRIBE", "", "", "");
    if is_seasoned {
        rig.tell(SubscriptionNews::Seasoned);
    }
    rig.answer(Ok(&video_alone()));
    rig
}

#[test]
fn a_description_waits_three_seconds_for_the_sound_of_a_young_stream() {
    let mut rig = awaiting(false);
    rig.pass(2);
    assert_eq!(rig.said(), "");
    rig.tell(SubscriptionNews::KindAdded(&tracks()));
    let said = rig.said();
    assert!(said.starts_with("RTSP/1.0 200") && said.contains("m=audio"), "{said}");
    let mut rig = awaiting(false);
    rig.pass(3);
    let said = rig.said();
    assert!(
        said.starts_with("RTSP/1.0 200") && said.contains("m=video") && !said.contains("m=audio"),
        "{said}"
    );
    // DESCRIBE is answered only once; tracks that begin later are not described to the viewer.
    rig.tell(SubscriptionNews::KindAdded(&tracks()));
    assert_eq!(rig.said(), "");
    let said = awaiting(true).said();
    assert!(said.starts_with("RTSP/1.0 200") && !said.contains("m=audio"), "{said}");
}

#[test]
fn who_waits_for_tracks_that_do_not_come_is_told_that_there_is_no_such_stream() {
    let mut rig = Rig::new(Security::Plain);
    rig.ask("DESCRIBE", "", "", "");
    rig.answer(Ok(&Tracks::default()));
    assert!(matches!(
        rig.take_events()[..],
        [
            Event::Subscription(_, SubscriptionEvent::Subscribe(_)),
            Event::Subscription(_, SubscriptionEvent::Pause(true))
        ]
    ));
    rig.pass(9);
    assert_eq!((rig.said(), rig.take_events().len()), (String::new(), 0));
    rig.pass(1);
    assert!(rig.said().starts_with("RTSP/1.0 404"));
    assert!(matches!(rig.take_events()[..], [Event::Subscription(_, SubscriptionEvent::Unsubscribe)]));
    // The connection continues, and another DESCRIBE is answered.
    rig.ask("DESCRIBE", "", "", "");
    rig.answer(Ok(&tracks()));
    assert!(rig.said().starts_with("RTSP/1.0 200"));
    assert!(rig.ask("DESCRIBE", "", "", "").starts_with("RTSP/1.0 200"), "some players ask again");
}

#[test]
fn a_publisher_says_what_servers_its_stream_has_passed() {
    let mut rig = Rig::new(Security::Plain);
    rig.ask("ANNOUNCE", "", "Via: RTSP/1.0 node/live/a, RTSP/1.0 other/live/b\r\n", DESCRIPTION);
    let events = rig.take_events();
    let [Event::Publication(_, PublicationEvent::Publish(ask))] = &events[..] else { panic!("{events:?}") };
    assert_eq!(ask.via, ["node/live/a", "other/live/b"]);
}

#[test]
fn a_refusal_has_its_status_and_what_is_out_of_order_another_one() {
    let mut rig = Rig::new(Security::Plain);
    rig.ask("DESCRIBE", "", "", "");
    rig.answer(Err(NoSubscription::Disabled));
    assert!(rig.said().starts_with("RTSP/1.0 403"));
    assert!(rig.ask("DESCRIBE", "/more", "", "").starts_with("RTSP/1.0 404"));
    let other = DESCRIPTION.replace("VP8", "XYZ8").replace("AVP 0", "AVP 13");
    assert!(rig.ask("ANNOUNCE", "", "", &other).starts_with("RTSP/1.0 415"));
    assert!(rig.ask("SETUP", "/trackID=0", TCP, "").starts_with("RTSP/1.0 455"));
    let mut rig = Rig::viewing(Security::Plain);
    assert!(rig.ask("ANNOUNCE", "", "", DESCRIPTION).starts_with("RTSP/1.0 455"));
    rig.ask("SETUP", "/trackID=0", TCP, "");
    rig.ask("PLAY", "", "", "");
    rig.take_events();
    rig.ask("PAUSE", "", "", "");
    assert!(matches!(rig.take_events()[..], [Event::Subscription(_, SubscriptionEvent::Pause(true))]));
    let end = StreamEnd::Stopped;
    rig.with(|session, ctx| {
        session.handle_reply(ctx, Reply::Subscription(Handle::ONLY, SubscriptionNews::Ended(end)));
    });
    assert!(rig.is_over());
}
