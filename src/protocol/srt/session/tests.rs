//! A session and its caller, connected without sockets.

use ::srt::{Endpoint, Route};
use bytes::Bytes;

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::mail::SessionSettings;
use crate::protocol::Apps;
use crate::protocol::publisher::grant;
use crate::types::Now;

/// An empty set of blobs.
static BLOBS: Blobs = Blobs::new();

struct Rig {
    now: Now,
    session: SrtSession,
    caller: Connection,
}

impl Rig {
    /// Connects a viewer.
    fn new() -> Self {
        let mut rig = Self::calling("#!::r=live/x,m=request", Config::default());
        let asked = with(rig.now, |ctx| rig.session.poll_event(ctx));
        assert!(matches!(asked, Some(Event::Subscription(_, SubscriptionEvent::Subscribe(_)))));
        let verdict = SubscriptionNews::Verdict(Ok(&Tracks::default()));
        with(rig.now, |ctx| rig.session.handle_reply(ctx, Reply::Subscription(Handle::ONLY, verdict)));
        assert_eq!((rig.send(), rig.caller.is_connected()), ((1, true), true));
        rig
    }

    /// Connects a publisher that requests this latency.
    fn publisher(latency: Duration) -> Self {
        let config = Config { peer_latency: latency, ..Config::default() };
        let mut rig = Self::calling("#!::r=live/x,m=publish", config);
        let asked = with(rig.now, |ctx| rig.session.poll_event(ctx));
        assert!(matches!(asked, Some(Event::Publication(_, PublicationEvent::Publish(_)))));
        let verdict = PublicationNews::Verdict(Ok(grant()));
        with(rig.now, |ctx| rig.session.handle_reply(ctx, Reply::Publication(Handle::ONLY, verdict)));
        assert_eq!((rig.send(), rig.caller.is_connected()), ((1, true), true));
        rig
    }

    /// Makes the session of a caller with this stream id.
    fn calling(stream_id: &str, config: Config) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let seed = Seed::from_number(1);
        let from = SocketAddr::from(([192, 0, 2, 9], 9));
        let mut caller = Connection::caller(now.mono, Arc::new(config), SocketId(1), stream_id, &seed);
        let mut port: Endpoint<()> = Endpoint::new(now.mono, &seed);
        let incoming = loop {
            let (mut out, mut reply) = (Datagrams::new(), Vec::new());
            assert!(caller.poll_transmit(now.mono, &mut out));
            match port.route(now.mono, from, out.get(0), &mut reply) {
                Route::New(incoming) => break incoming,
                Route::Session(()) | Route::Reply | Route::Drop(_) => {
                    caller.handle_datagram(now.mono, &reply);
                }
            }
        };
        let derivations = Arc::new(Derivations::new(now.mono, &seed));
        let session =
            with(now, |ctx| SrtSession::new(ctx, *incoming, SocketId(2), from, (&seed, derivations)));
        Self { now, session, caller }
    }

    /// Lets `ms` pass, in steps of 10 ms, while the connection is kept alive. Returns the events of the session that
    /// are not units, with the time of each.
    fn run(&mut self, ms: u64, events: &mut Vec<(Duration, Event)>, began: Instant) {
        for _ in 0..ms / 10 {
            self.now.mono += Duration::from_millis(10);
            let now = self.now;
            self.caller.handle_timeout(now.mono);
            while self.caller.poll_event().is_some() {}
            let mut out = Datagrams::new();
            self.caller.poll_transmit(now.mono, &mut out);
            let peer = Remote::of(SocketAddr::from(([192, 0, 2, 9], 9)));
            for datagram in out.iter() {
                with(now, |ctx| {
                    self.session.handle_datagram(ctx, PathId::default(), peer, &mut datagram.to_vec());
                });
            }
            if self.session.poll_timeout().is_some_and(|at| at <= now.mono) {
                with(now, |ctx| self.session.handle_timeout(ctx));
            }
            while let Some(event) = with(now, |ctx| self.session.poll_event(ctx)) {
                if !matches!(event, Event::Publication(_, PublicationEvent::Unit { .. })) {
                    events.push((now.mono - began, event));
                }
            }
            self.send();
        }
    }

    /// Passes the session's datagrams to the caller. Returns their number, and whether the session says that no more
    /// follow.
    fn send(&mut self) -> (usize, bool) {
        let mut out = Datagrams::new();
        let to = with(self.now, |ctx| self.session.poll_datagrams(ctx, &|_| None, &mut out));
        out.iter().for_each(|datagram| self.caller.handle_datagram(self.now.mono, datagram));
        (out.len(), to.last)
    }

    fn unit(&mut self, packets: usize) {
        let parts = Parts::new([Bytes::from(vec![0x47; packets * 188])]);
        with(self.now, |ctx| {
            self.session.handle_tail(ctx, &parts);
            self.session.end_units(ctx);
        });
    }
}

fn with<T>(now: Now, act: impl FnOnce(&Context<'_>) -> T) -> T {
    let apps = Apps::from([("live".into(), Arc::new(AppSettings::defaults("live").unwrap()))]);
    let server = SessionSettings::default();
    act(&Context { now, apps: &apps, server: &server, blobs: &BLOBS, draining: false })
}

#[test]
fn a_viewer_that_was_sent_a_unit_is_not_asked_for_more() {
    let mut rig = Rig::new();
    for packets in [1, 7, 40] {
        rig.unit(packets);
        assert!(with(rig.now, |ctx| rig.session.has_datagrams(ctx)));
        assert_eq!(rig.send(), (packets.div_ceil(7), true));
        assert!(!with(rig.now, |ctx| rig.session.has_datagrams(ctx)));
    }
    // These ten units make more datagrams than one batch can hold.
    rig.caller.poll_event();
    (0..10).for_each(|_| rig.unit(70));
    assert!(rig.send().1, "the rest of a large burst has its own deadline");
    assert!(rig.session.poll_timeout().is_some_and(|at| at < rig.now.mono + Duration::from_millis(50)));
}

/// Publishes audio in the given pauses, in milliseconds, then nothing, over a connection with this latency in seconds
/// that stays alive. Returns the second at which the session ends, from the last data, its departure and its reason.
fn ends_after(latency: u64, pauses: &[u64]) -> (u64, Departure, String) {
    let mut rig = Rig::publisher(Duration::from_secs(latency));
    let (mut began, mut events) = (rig.now.mono, Vec::new());
    let config = media::codec::aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
    let frame = [&config.adts(5).unwrap()[..], b"audio"].concat();
    let mut muxer = mpegts::Muxer::new();
    muxer.set_streams(None, Some(mpegts::StreamKind::AacAdts));
    let mut dts = mpegts::ZERO;
    for pause in pauses {
        dts += pause * 90;
        rig.run(*pause, &mut events, began);
        assert!(events.is_empty(), "{events:?}");
        let (kind, payload) = (mpegts::Kind::Audio, &[&frame[..]][..]);
        let unit = mpegts::Unit { kind, number: 0, pts: dts, dts, random_access: true, payload };
        rig.caller.send(rig.now.mono, muxer.write(&unit)).unwrap();
        began = rig.now.mono;
    }
    rig.run(30_000, &mut events, began);
    let [(at, Event::Publication(_, PublicationEvent::Over(departure))), (_, Event::Closed(reason))] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    (at.as_secs(), *departure, reason.clone())
}

#[test]
fn a_publisher_that_sends_no_data_loses_its_stream_though_it_keeps_its_connection() {
    let no_data = |seconds| (seconds, Departure::Lost, "the publisher sends no data".to_owned());
    assert_eq!(ends_after(0, &[]), no_data(20));
    assert_eq!(ends_after(0, &[0]), no_data(10));
    assert_eq!(ends_after(0, &[19_000, 9_000, 9_000, 20]), no_data(10));
}

#[test]
fn a_publisher_s_first_data_may_take_the_agreed_latency_longer() {
    let no_data = |seconds| (seconds, Departure::Lost, "the publisher sends no data".to_owned());
    assert_eq!(ends_after(8, &[]), no_data(28));
    assert_eq!(ends_after(8, &[19_000]), no_data(18));
}
