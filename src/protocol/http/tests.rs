//! Sessions, driven in the way in which a worker drives them.

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::jobs::{FileError, Job, JobDone, JobId, OpenedFile, Outcome as JobOutcome, Work};
use crate::mail::{NoSubscription, SessionSettings, StreamEnd};
use crate::protocol::{Apps, SubscriptionEvent, SubscriptionNews};
use media::Tracks;
use std::net::Ipv4Addr;

/// Store of blobs in which nothing is published.
static BLOBS: Blobs = Blobs::new();

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4000);

/// A session with its worker: takes the session's events, and keeps the bytes sent to the peer.
pub(super) struct Rig {
    pub(super) now: Now,
    apps: Apps,
    server: SessionSettings,
    pub(super) session: HttpSession,
    pub(super) sent: Vec<u8>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_mounts(&mounts::MOUNTS)
    }

    pub(super) fn with_mounts(mounts: &'static Mounts<Handler>) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let session = HttpSession::with_mounts(now, PEER, &Seed::from_number(0), mounts);
        let (apps, server) = (Apps::from([("live".into(), settings)]), SessionSettings::default());
        Self { now, apps, server, session, sent: Vec::new() }
    }

    /// Calls `act` with the session. Returns the events that result from the call.
    pub(super) fn act(&mut self, act: impl FnOnce(&mut HttpSession, &Context<'_>)) -> Vec<Event> {
        let ctx =
            Context { now: self.now, apps: &self.apps, server: &self.server, blobs: &BLOBS, draining: false };
        act(&mut self.session, &ctx);
        let events = std::iter::from_fn(|| self.session.poll_event(&ctx)).collect();
        let mut out = SendQueue::new();
        self.session.poll_transmit(&mut out);
        let sent = out.take_all();
        self.session.handle_sent(&ctx, sent.len());
        self.sent.extend_from_slice(&sent);
        events
    }

    fn ask(&mut self, target: &str) -> Vec<Event> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        self.act(|session, ctx| session.handle_bytes(ctx, request.as_bytes()))
    }

    pub(super) fn sent(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.sent)).unwrap()
    }
}

#[test]
fn r_20_what_a_trusted_proxy_says_of_scheme_and_host_goes_to_control() {
    let mut rig = Rig::new();
    let request = b"GET /rest/v2/version HTTP/1.1\r\nHost: up:5080\r\nX-Forwarded-Proto: https\r\n\
                    X-Forwarded-Host: media.example\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    for (trusted, want) in [("", (false, "up:5080")), ("10.0.0.0/8", (true, "media.example"))] {
        rig.server.trusted_proxies = crate::auth::cidr::parse(trusted).unwrap();
        let events = rig.act(|session, ctx| session.handle_bytes(ctx, request));
        let Some(Event::Request(RequestEvent::Rest { request, secure })) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!((*secure, request.header("host").unwrap()), want, "{trusted}");
        rig.act(|session, ctx| {
            session.handle_reply(ctx, Reply::Request(RequestNews::Response(Response::empty(200))))
        });
    }
}

/// Makes the worker's verdict on the subscription with this number.
fn verdict(number: u16, verdict: Result<&Tracks, NoSubscription>) -> Reply<'_> {
    Reply::Subscription(Handle(number), SubscriptionNews::Verdict(verdict))
}

/// Makes the news that the stream of the first subscription has ended.
const fn ended(end: StreamEnd) -> Reply<'static> {
    Reply::Subscription(Handle(0), SubscriptionNews::Ended(end))
}

/// Makes the answer of a job that opens a file.
const fn opened(result: Result<OpenedFile, FileError>) -> Reply<'static> {
    Reply::Job(JobDone { id: JobId(0), outcome: JobOutcome::Opened(result) })
}

fn about(rig: &Rig) -> (&'static str, bool) {
    let about = rig.session.about();
    (about.protocol, about.is_media)
}

#[test]
fn viewers_behind_a_trusted_proxy_are_told_apart() {
    let mut rig = Rig::new();
    let ask = |rig: &mut Rig, header: &str| {
        let request = format!("HEAD /live/s.flv HTTP/1.1\r\nHost: h\r\n{header}\r\n");
        let mut events = rig.act(|session, ctx| session.handle_bytes(ctx, request.as_bytes()));
        let client = events.first().and_then(|event| {
            if let Event::Request(RequestEvent::Client(client)) = event {
                Some(client.to_string())
            } else {
                None
            }
        });
        assert!(
            matches!(events.pop(), Some(Event::Subscription(_, SubscriptionEvent::Subscribe(_)))),
            "{events:?}"
        );
        rig.act(|session, ctx| {
            session.handle_reply(ctx, verdict(session.subscriptions - 1, Err(NoSubscription::NotFound)))
        });
        client
    };
    assert_eq!(ask(&mut rig, "X-Forwarded-For: 192.0.2.1\r\n"), None, "it is not trusted");
    rig.server.trusted_proxies = crate::auth::cidr::parse("10.0.0.0/8").unwrap();
    assert_eq!(ask(&mut rig, "X-Forwarded-For: 192.0.2.1\r\n").as_deref(), Some("192.0.2.1"));
    assert_eq!(ask(&mut rig, "X-Forwarded-For: 192.0.2.1\r\n"), None, "as it was");
    assert_eq!(ask(&mut rig, "X-Forwarded-For: 192.0.2.2, 10.9.9.9\r\n").as_deref(), Some("192.0.2.2"));
    assert_eq!(ask(&mut rig, "").as_deref(), Some("10.0.0.1"), "the proxy itself");
    rig.sent();
    let request = b"GET /live/s.flv HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: junk\r\n\r\n";
    assert!(rig.act(|session, ctx| session.handle_bytes(ctx, request)).is_empty());
    assert!(rig.sent().starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_connection_is_a_viewers_once_it_watches_and_not_for_asking() {
    let mut rig = Rig::new();
    assert!(matches!(
        rig.ask("/live/off.flv")[..],
        [Event::Subscription(_, SubscriptionEvent::Subscribe(_))]
    ));
    rig.act(|session, ctx| session.handle_reply(ctx, verdict(0, Err(NoSubscription::NotFound))));
    assert!(rig.sent().starts_with("HTTP/1.1 404 "));
    assert_eq!(about(&rig), ("http", false));
    assert!(matches!(rig.ask("/live/x.txt")[..], [Event::Job(Job { work: Work::FileOpen { .. }, .. })]));
    rig.act(|session, ctx| session.handle_reply(ctx, opened(Err(FileError::NotFound))));
    assert!(rig.sent().starts_with("HTTP/1.1 404 "));
    rig.ask("/live/on.flv");
    rig.act(|session, ctx| session.handle_reply(ctx, verdict(1, Ok(&Tracks::default()))));
    assert_eq!(about(&rig), ("http-flv", true));
}

#[test]
fn h_28_an_answer_with_success_does_not_authenticate_the_peer() {
    for (target, status) in [
        ("/live/play.html", 200),
        ("/live/none.html", 404),
        ("/live/streams/x.mp4", 404),
        ("/live/.hidden", 404),
    ] {
        let mut rig = Rig::new();
        let events = rig.ask(target);
        if let [Event::Request(RequestEvent::Pass(_))] = events[..] {
            rig.act(|session, ctx| session.handle_reply(ctx, Reply::Request(RequestNews::Pass(Ok(())))));
        }
        if !events.is_empty() {
            rig.act(|session, ctx| session.handle_reply(ctx, opened(Err(FileError::NotFound))));
        }
        assert!(rig.sent().starts_with(&format!("HTTP/1.1 {status} ")), "{target}");
        assert!(!rig.session.about().is_authenticated, "{target}");
    }
    let mut rig = Rig::new();
    rig.ask("/live/on.flv");
    rig.act(|session, ctx| session.handle_reply(ctx, verdict(0, Ok(&Tracks::default()))));
    assert!(rig.session.about().is_authenticated, "who is sent a stream is");
}

#[test]
fn h_28_a_file_does_not_authenticate_who_is_sent_it() {
    #[derive(Debug)]
    struct Empty;

    impl crate::jobs::BlockSource for Empty {
        fn read_block(&self, _offset: u64, _length: usize) -> bytes::Bytes {
            bytes::Bytes::new()
        }
    }

    for (fields, status) in [("", 200), ("Range: bytes=900-\r\n", 416)] {
        let mut rig = Rig::new();
        let request = format!("GET /live/x.bin HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        rig.act(|session, ctx| session.handle_bytes(ctx, request.as_bytes()));
        let file = OpenedFile { file: Arc::new(Empty), length: 100, modified_ms: 0, tag: "1".to_owned() };
        rig.act(|session, ctx| session.handle_reply(ctx, opened(Ok(file))));
        assert!(rig.sent().starts_with(&format!("HTTP/1.1 {status} ")), "{status}");
        assert!(!rig.session.about().is_authenticated, "{status}");
    }
}

/// Adds a viewer that waits for the tracks of its stream.
fn waiting(upgrade: &str) -> Rig {
    let mut rig = Rig::new();
    let request = format!("GET /live/x.flv HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n");
    rig.act(|session, ctx| session.handle_bytes(ctx, request.as_bytes()));
    let events = rig.act(|session, ctx| session.handle_reply(ctx, verdict(0, Ok(&Tracks::default()))));
    assert!(matches!(events[..], [Event::Subscription(_, SubscriptionEvent::Pause(true))]), "{events:?}");
    rig
}

#[test]
fn a_viewer_that_waits_for_tracks_is_told_why_there_is_nothing() {
    for upgrade in ["", UPGRADE] {
        let mut rig = waiting(upgrade);
        rig.act(|session, ctx| session.handle_reply(ctx, ended(StreamEnd::Unpublished)));
        assert!(rig.sent().starts_with("HTTP/1.1 404 "));
        // In a drain, the stream usually ends before the connection is closed, but the connection may be closed alone.
        for stream_first in [true, false] {
            let mut rig = waiting(upgrade);
            if stream_first {
                rig.act(|session, ctx| session.handle_reply(ctx, ended(StreamEnd::Drain)));
            }
            rig.act(|session, ctx| session.close(ctx, "server goes down"));
            let sent = rig.sent();
            assert!(sent.starts_with("HTTP/1.1 503 ") && sent.contains("\r\nRetry-After: "), "{sent}");
        }
    }
}

#[test]
fn a_web_socket_is_told_whether_the_stream_or_the_server_goes() {
    for (end, code) in [(StreamEnd::Unpublished, 1000u16), (StreamEnd::Drain, 1001)] {
        let mut rig = waiting(UPGRADE);
        rig.now.mono += std::time::Duration::from_secs(1);
        rig.act(|session, ctx| session.handle_timeout(ctx));
        assert!(rig.sent.starts_with(b"HTTP/1.1 101 "));
        rig.sent.clear();
        rig.act(|session, ctx| session.handle_reply(ctx, ended(end)));
        rig.act(|session, ctx| session.close(ctx, "server goes down"));
        let [high, low] = code.to_be_bytes();
        assert_eq!(rig.sent, [0x88, 2, high, low]);
    }
}

/// The header fields of a request for a WebSocket.
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
