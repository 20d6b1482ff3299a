//! Sessions as the worker drives them.

use super::*;
use crate::config::AppSettings;
use crate::mail::{FileAsk, FileError, WebSettings};
use crate::protocol::Apps;

/// A session with its worker: it hears the session's events and keeps what the peer is sent.
struct Rig {
    now: Now,
    apps: Apps,
    web: WebSettings,
    session: HttpSession,
    sent: Vec<u8>,
}

impl Rig {
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let session = HttpSession::new(now, ([192, 0, 2, 1], 1).into(), Seed::from_number(1));
        let (apps, web) = (Apps::from([("live".into(), settings)]), WebSettings::default());
        Self { now, apps, web, session, sent: Vec::new() }
    }

    /// Does something to the session; gives the events that follow.
    fn act(&mut self, act: impl FnOnce(&mut HttpSession, &Context<'_>)) -> Vec<Event> {
        let ctx = Context { now: self.now, apps: &self.apps, web: &self.web, draining: false };
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

    fn sent(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.sent)).unwrap()
    }
}

#[test]
fn a_connection_is_a_viewers_once_it_watches_and_not_for_asking() {
    let mut rig = Rig::new();
    assert!(matches!(rig.ask("/live/off.flv")[..], [Event::Subscribe { .. }]));
    rig.act(|session, ctx| session.subscribe_verdict(ctx, Err(NoSubscription::NotFound)));
    assert!(rig.sent().starts_with("HTTP/1.1 404 "));
    assert_eq!((rig.session.protocol(), rig.session.is_media()), ("http", false));
    assert!(matches!(rig.ask("/live/x.txt")[..], [Event::File(FileAsk::Open { .. })]));
    rig.act(|session, ctx| session.file_reply(ctx, FileReply::Opened(Err(FileError::NotFound))));
    assert!(rig.sent().starts_with("HTTP/1.1 404 "));
    rig.ask("/live/on.flv");
    rig.act(|session, ctx| session.subscribe_verdict(ctx, Ok(&Tracks::default())));
    assert_eq!((rig.session.protocol(), rig.session.is_media()), ("http-flv", true));
}
