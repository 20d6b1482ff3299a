//! A viewer's session and its caller, connected without sockets.

use ::srt::{Endpoint, Route};
use bytes::Bytes;

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::mail::SessionSettings;
use crate::protocol::Apps;
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
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let seed = Seed::from_number(1);
        let from = SocketAddr::from(([192, 0, 2, 9], 9));
        let config = Arc::new(Config::default());
        let mut caller = Connection::caller(now.mono, config, SocketId(1), "#!::r=live/x,m=request", &seed);
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
        let mut rig = Self { now, session, caller };
        let asked = with(now, |ctx| rig.session.poll_event(ctx));
        assert!(matches!(asked, Some(Event::Subscription(_, SubscriptionEvent::Subscribe(_)))));
        let verdict = SubscriptionNews::Verdict(Ok(&Tracks::default()));
        with(now, |ctx| rig.session.handle_reply(ctx, Reply::Subscription(Handle::ONLY, verdict)));
        assert_eq!((rig.send(), rig.caller.is_connected()), ((1, true), true));
        rig
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
    assert!(
        rig.session.poll_timeout().is_some_and(|at| at < rig.now.mono + std::time::Duration::from_millis(50))
    );
}
