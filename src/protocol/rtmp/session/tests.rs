use bytes::Bytes;
use rtmp::{Client, ClientConfig, ClientEvent};

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::mail::SessionSettings;
use crate::protocol::Apps;
use crate::types::StreamId;

/// A session and the machine of an encoder, wired together.
struct Rig {
    now: Now,
    apps: Apps,
    session: RtmpSession,
    client: Client,
    events: Vec<Event>,
    heard: Vec<ClientEvent>,
}

impl Rig {
    /// An encoder that was granted its stream.
    fn publishing() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let config = ClientConfig {
            app: "live".to_owned(),
            tc_url: "rtmp://h/live".to_owned(),
            stream: "s".to_owned(),
            ..ClientConfig::default()
        };
        let mut rig = Self {
            now,
            apps: Apps::from([("live".into(), Arc::clone(&settings))]),
            session: RtmpSession::new(now, SocketAddr::from(([192, 0, 2, 1], 1)), Seed::from_number(1)),
            client: Client::publish(now.mono, Arc::new(config), Seed::from_number(2)),
            events: Vec::new(),
            heard: Vec::new(),
        };
        rig.exchange();
        assert!(matches!(rig.events[..], [Event::Publish { .. }]), "{:?}", rig.events);
        let grant = Grant { stream: StreamId(1), position: media::Position::default(), epoch: 0, settings };
        let web = SessionSettings::default();
        rig.session.publish_verdict(&context(rig.now, &rig.apps, &web), Ok(grant));
        rig.exchange();
        assert!(matches!(rig.heard[..], [ClientEvent::Ready { .. }]), "{:?}", rig.heard);
        rig.events.clear();
        rig.heard.clear();
        rig
    }

    /// Carries bytes both ways until nobody has any.
    fn exchange(&mut self) {
        let web = SessionSettings::default();
        loop {
            let (mut up, mut down) = (SendQueue::new(), SendQueue::new());
            self.client.poll_transmit(&mut up);
            let up = up.take_all();
            let ctx = context(self.now, &self.apps, &web);
            self.session.handle_bytes(&ctx, &up);
            self.events.extend(std::iter::from_fn(|| self.session.poll_event(&ctx)));
            self.session.poll_transmit(&mut down);
            let down = down.take_all();
            self.client.handle_bytes(self.now.mono, &down).unwrap();
            self.heard.extend(std::iter::from_fn(|| self.client.poll_event()));
            if up.is_empty() && down.is_empty() {
                return;
            }
        }
    }

    fn send(&mut self, kind: MediaKind, payload: &'static [u8]) {
        let payload = Bytes::from_static(payload);
        self.client.send(self.now.mono, &MediaMessage { message_stream: 1, kind, timestamp: 0, payload });
    }
}

/// Nothing is published.
static BLOBS: Blobs = Blobs::new();

fn context<'a>(now: Now, apps: &'a Apps, server: &'a SessionSettings) -> Context<'a> {
    Context { now, apps, server, blobs: &BLOBS, draining: false }
}

#[test]
fn an_encoder_whose_codec_is_not_carried_is_told_and_closed() {
    let mut rig = Rig::publishing();
    rig.send(MediaKind::Video, b"\x90vvc1");
    rig.send(MediaKind::Audio, b"\xaf\0\x11\x90");
    rig.exchange();
    let told = |event: &ClientEvent| {
        matches!(event, ClientEvent::Rejected { code, description }
            if code == "NetStream.Failed" && description.contains("vvc1"))
    };
    assert!(rig.heard.iter().any(told), "{:?}", rig.heard);
    assert!(
        matches!(rig.events[..], [Event::Unpublished { departure: Departure::Clean, .. }, Event::Closed(_)]),
        "{:?}",
        rig.events
    );
    assert!(!rig.session.wants_bytes());
}

#[test]
fn the_first_bad_message_is_told_and_video_that_never_comes_to_anything() {
    let mut rig = Rig::publishing();
    rig.send(MediaKind::Audio, b"\xaf\0\x11\x90");
    rig.send(MediaKind::Video, b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68");
    for _ in 0..16 {
        // A NAL unit that is longer than its frame.
        rig.send(MediaKind::Video, b"\x17\x01\0\0\0\0\0\0\x09\x65");
        rig.send(MediaKind::Audio, b"\xaf\x01\x21");
        rig.exchange();
        rig.now.mono += std::time::Duration::from_secs(1);
    }
    let faults: Vec<_> = rig
        .events
        .iter()
        .filter_map(|event| if let Event::Fault { reason, .. } = event { Some(*reason) } else { None })
        .collect();
    let bad = "a video frame whose NAL units do not fit into it";
    assert_eq!(faults, [bad, "no frame of its video could be used within 15 s"], "once each");
    let units = rig.events.iter().filter(|event| matches!(event, Event::Unit { .. })).count();
    assert_eq!(units, 16, "the sound goes on");
}
