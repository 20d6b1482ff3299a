use super::*;
use crate::mail::{NextServer, SessionSettings};
use crate::protocol::publisher::grant;

const PLAYLIST: &str =
    "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na.ts\n#EXTINF:2,\nhttp://cdn:81/b.ts\n#EXT-X-ENDLIST\n";

struct Rig {
    now: Instant,
    pull: HlsPull,
}

impl Rig {
    /// Creates a pull that has sent its first request.
    fn new() -> Self {
        let pull = HlsPull::new("http://h/live/x.m3u8?t=1".to_owned(), Patience::PULL);
        let mut rig = Self { now: Instant::now(), pull };
        rig.connected();
        assert!(rig.sent().starts_with("GET /live/x.m3u8?t=1 HTTP/1.1\r\nHost: h\r\n"));
        rig
    }

    fn connected(&mut self) {
        let server = SessionSettings::default();
        self.pull.begin(&Start { via: &[], now: self.now, address: None, server: &server, app: None });
    }

    fn sent(&mut self) -> String {
        let mut out = SendQueue::new();
        self.pull.poll_transmit(&mut out);
        String::from_utf8(out.take_all().to_vec()).unwrap()
    }

    fn give(&mut self, head: &str, body: &[u8]) -> Vec<ClientEvent> {
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
        self.pull.handle_bytes(self.now, &[head.as_bytes(), body].concat());
        self.events()
    }

    fn events(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.pull.poll()).collect()
    }

    /// Advances the clock by `ms`, polling every millisecond as pacing does.
    fn wait(&mut self, ms: u64) -> Vec<ClientEvent> {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            self.pull.handle_timeout(self.now);
        }
        self.events()
    }
}

fn to(host: &str, port: u16) -> ClientEvent {
    ClientEvent::NextServer(NextServer { host: host.to_owned(), port, tls: false })
}

#[test]
fn one_connection_as_long_as_the_server_is_the_same_and_then_another() {
    let mut rig = Rig::new();
    assert_eq!(rig.give("200 OK", PLAYLIST.as_bytes()), []);
    rig.wait(20);
    assert!(rig.sent().starts_with("GET /live/a.ts HTTP/1.1\r\n"), "over the same connection");
    assert_eq!(rig.give("200 OK", &[0x47; 188]), [ClientEvent::Begun, to("cdn", 81)]);
    rig.pull.handle_grant(rig.now, &grant());
    // The connection attempt is left alone, however long it takes and however often the clock is polled.
    assert_eq!(rig.wait(300), []);
    rig.connected();
    assert!(rig.sent().starts_with("GET /b.ts HTTP/1.1\r\nHost: cdn:81\r\n"));
    let events = rig.give("200 OK\r\nConnection: close", &[0x47; 188]);
    let ends = events.iter().any(|event| matches!(event, ClientEvent::Ended(_)));
    assert!(ends && events.contains(&ClientEvent::Disconnect), "{events:?}");
}

#[test]
fn a_server_that_closes_is_connected_to_again_and_one_that_is_silent_is_given_up() {
    let mut rig = Rig::new();
    rig.pull.handle_end(rig.now);
    assert_eq!(rig.events(), [ClientEvent::Disconnect], "let go once");
    assert_eq!(rig.wait(600), [to("h", 80)], "and asked again, half a second later");
    rig.connected();
    assert!(rig.sent().starts_with("GET /live/x.m3u8"));
    // No answer for five seconds.
    assert_eq!(rig.wait(5100), [ClientEvent::Disconnect]);
    let events = rig.wait(20_000);
    assert!(
        events.iter().any(|event| matches!(event, ClientEvent::Ended(_))) || events.contains(&to("h", 80))
    );
}

#[test]
fn nothing_is_asked_for_while_much_waits_to_be_seen() {
    let mut rig = Rig::new();
    rig.give("200 OK", PLAYLIST.as_bytes());
    rig.wait(20);
    rig.sent();
    (0..QUEUED_MAX).for_each(|_| rig.pull.events.push_back(ClientEvent::Dropped(1)));
    let all = [b"HTTP/1.1 200 OK\r\nContent-Length: 188\r\n\r\n".as_slice(), &[0x47; 188]].concat();
    rig.pull.handle_bytes(rig.now, &all);
    for _ in 0..10_000 {
        rig.now += Duration::from_millis(1);
        rig.pull.handle_timeout(rig.now);
    }
    let is_next = |event: &ClientEvent| matches!(event, ClientEvent::NextServer(_));
    assert!(!rig.pull.events.iter().any(is_next));
    assert!(rig.events().iter().any(is_next), "when it has been seen");
}

#[test]
fn u_33_redirects_go_to_the_server_that_is_named_and_what_else_is_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.give("302 Found\r\nLocation: http://edge:82/y.m3u8", b""), [ClientEvent::Disconnect]);
    assert_eq!(rig.wait(20), [to("edge", 82)]);
    rig.connected();
    assert!(rig.sent().starts_with("GET /y.m3u8 HTTP/1.1\r\nHost: edge:82\r\n"));
    let events = rig.give("302 Found\r\nLocation: file:///etc/passwd", b"");
    assert!(!events.iter().any(|event| matches!(event, ClientEvent::NextServer(_))), "{events:?}");
}

#[test]
fn a_server_of_http_1_0_is_asked_over_a_new_connection_each_time() {
    for (head, is_kept) in [("200 OK", false), ("200 OK\r\nConnection: Keep-Alive", true)] {
        let mut rig = Rig::new();
        let body = PLAYLIST.as_bytes();
        let head = format!("HTTP/1.0 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
        rig.pull.handle_bytes(rig.now, &[head.as_bytes(), body].concat());
        let mut events = rig.events();
        events.extend(rig.wait(20));
        if !is_kept {
            assert_eq!((events, rig.sent().as_str()), (vec![ClientEvent::Disconnect, to("h", 80)], ""));
            rig.connected();
        }
        assert!(rig.sent().starts_with("GET /live/a.ts HTTP/1.1\r\n"), "kept: {is_kept}");
    }
}
