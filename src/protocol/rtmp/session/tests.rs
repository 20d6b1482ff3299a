use crate::protocol::RequestEvent;
use bytes::Bytes;
use rtmp::{Client, ClientConfig, ClientEvent};

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::mail::SessionSettings;
use crate::protocol::Apps;
use crate::types::StreamId;

/// A session and the state machine of its peer, wired together.
struct Rig {
    now: Now,
    apps: Apps,
    session: RtmpSession,
    client: Client,
    events: Vec<Event>,
    heard: Vec<ClientEvent>,
}

impl Rig {
    /// A rig whose peer has asked to publish or play a stream.
    fn asking(begin: fn(Instant, Arc<ClientConfig>, Seed) -> Client, app: &str, stream: &str) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let config = ClientConfig {
            app: app.to_owned(),
            tc_url: format!("rtmp://h/{app}"),
            stream: stream.to_owned(),
            ..ClientConfig::default()
        };
        let mut rig = Self {
            now,
            apps: Apps::from([("live".into(), Arc::new(AppSettings::defaults("live").unwrap()))]),
            session: RtmpSession::new(now, SocketAddr::from(([192, 0, 2, 1], 1)), Seed::from_number(1)),
            client: begin(now.mono, Arc::new(config), Seed::from_number(2)),
            events: Vec::new(),
            heard: Vec::new(),
        };
        rig.exchange();
        rig
    }

    /// A rig whose peer is an encoder that was granted its stream.
    fn publishing() -> Self {
        let mut rig = Self::asking(Client::publish, "live", "s");
        assert!(
            matches!(rig.events[..], [Event::Publication(_, PublicationEvent::Publish(_))]),
            "{:?}",
            rig.events
        );
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let grant = Grant {
            stream: StreamId(1),
            position: media::Position::default(),
            epoch: 0,
            zero_ms: 0,
            settings,
            standby: false,
        };
        let web = SessionSettings::default();
        rig.session.publish_verdict(&context(rig.now, &rig.apps, &web), Ok(grant));
        rig.exchange();
        assert!(matches!(rig.heard[..], [ClientEvent::Ready { .. }]), "{:?}", rig.heard);
        rig.events.clear();
        rig.heard.clear();
        rig
    }

    /// Carries bytes both ways until neither side has any.
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

/// An empty set of blobs.
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
        matches!(
            rig.events[..],
            [
                Event::Request(RequestEvent::Refused(_)),
                Event::Publication(_, PublicationEvent::Over(Departure::Failed)),
                Event::Closed(_)
            ]
        ),
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
        .filter_map(|event| {
            if let Event::Publication(_, PublicationEvent::Fault(reason)) = event {
                Some(*reason)
            } else {
                None
            }
        })
        .collect();
    let bad = "a video frame whose NAL units do not fit into it";
    assert_eq!(faults, [bad, "no frame of its video could be used within 15 s"], "once each");
    let units = rig
        .events
        .iter()
        .filter(|event| matches!(event, Event::Publication(_, PublicationEvent::Unit { .. })))
        .count();
    assert_eq!(units, 16, "the sound goes on");
}

/// The lines that the work logs at info and above.
fn logged(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // A global subscriber that writes nowhere. If there were none, a thread without a subscriber could disable log
    // lines for all other threads.
    let of_all = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    let _is_second = tracing::subscriber::set_global_default(of_all);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .with_max_level(tracing::Level::INFO)
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = lines.0.lock().unwrap();
    String::from_utf8(bytes.clone()).unwrap()
}

#[test]
fn a_publisher_of_which_nothing_can_be_played_is_told_and_ended_after_15_s() {
    type Sent = (MediaKind, &'static [u8]);
    let header = b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68";
    let cases: [(&str, &[Sent], Sent); 3] = [
        ("video without a sequence header", &[], (MediaKind::Video, b"\x17\x01\0\0\0\0\0\0\x01\x65")),
        (
            "inter frames alone",
            &[(MediaKind::Video, header)],
            (MediaKind::Video, b"\x27\x01\0\0\0\0\0\0\x01\x41"),
        ),
        ("AAC without a sequence header", &[], (MediaKind::Audio, b"\xaf\x01\x21")),
    ];
    for (name, first, frame) in cases {
        let mut rig = Rig::publishing();
        first.iter().for_each(|(kind, payload)| rig.send(*kind, payload));
        for second in 0..=15 {
            assert!(rig.session.wants_bytes(), "{name}: {second} s");
            rig.send(frame.0, frame.1);
            rig.exchange();
            rig.now.mono += std::time::Duration::from_secs(1);
        }
        let reason = "no frame could be used within 15 s";
        let told = |event: &ClientEvent| matches!(event, ClientEvent::Rejected { code, description } if code == "NetStream.Failed" && description == reason);
        assert!(rig.heard.iter().any(told), "{name}: {:?}", rig.heard);
        let ends = rig.events.iter().skip_while(
            |event| !matches!(event, Event::Publication(_, PublicationEvent::Fault(said)) if *said == reason),
        );
        assert!(
            matches!(
                ends.collect::<Vec<_>>()[..],
                [_, Event::Publication(_, PublicationEvent::Over(Departure::Failed)), Event::Closed(_)]
            ),
            "{name}: {:?}",
            rig.events
        );
        assert!(!rig.session.wants_bytes(), "{name}");
    }
}

/// The refusals that a session reports to the worker, as text.
fn refused(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| {
        let Event::Request(RequestEvent::Refused(request)) = event else { return None };
        Some(format!("{:?} {}: {}", request.verb, request.key, request.reason))
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn the_reason_of_every_refusal_by_the_session_is_told_with_the_stream_key() {
    type Begin = fn(Instant, Arc<ClientConfig>, Seed) -> Client;
    let (publish, play): (Begin, Begin) = (Client::publish, Client::play);
    for (begin, app, stream, told) in [
        (publish, "nope", "s", "Connect nope: no such application"),
        (publish, "a b", "s", "Connect a b: application name is"),
        (publish, "live", "s$?token=secret", "Publish live/s$: stream"),
        (play, "live", "s$/secret", "Play live/s$: stream name is"),
    ] {
        let rig = Rig::asking(begin, app, stream);
        let [line] = &refused(&rig.events)[..] else { panic!("{:?}", rig.events) };
        assert!(line.starts_with(told) && !line.contains("secret"), "{line}");
    }
    let mut rig = Rig::publishing();
    rig.send(MediaKind::Video, b"\x90vvc1");
    rig.exchange();
    assert_eq!(refused(&rig.events), ["Publish live/s: unsupported video FourCC vvc1"]);
}

#[test]
fn audio_that_is_not_carried_is_logged_once_and_refused_where_there_is_nothing_else() {
    for with_video in [true, false] {
        let mut rig = Rig::publishing();
        let log = logged(|| {
            for second in 0..20 {
                if with_video && second == 0 {
                    rig.send(
                        MediaKind::Video,
                        b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68",
                    );
                }
                rig.send(MediaKind::Audio, b"\xb6ab");
                if with_video {
                    rig.send(MediaKind::Video, b"\x17\x01\0\0\0\0\0\0\x01\x65");
                }
                rig.exchange();
                rig.now.mono += std::time::Duration::from_secs(1);
            }
        });
        let reason = r#"key=live/s peer=192.0.2.1:1 reason="unsupported audio format 11""#;
        assert_eq!(log.matches("audio of the publisher not carried").count(), 1, "{log}");
        assert!(log.contains(&format!("audio of the publisher not carried {reason}")), "{log}");
        let ends: &[&str] = if with_video { &[] } else { &["Publish live/s: unsupported audio format 11"] };
        assert_eq!(refused(&rig.events), ends);
        let told = |event: &ClientEvent| matches!(event, ClientEvent::Rejected { description, .. } if description.contains("format 11"));
        assert_eq!(rig.heard.iter().any(told), !with_video, "{:?}", rig.heard);
        let units = rig
            .events
            .iter()
            .filter(|event| matches!(event, Event::Publication(_, PublicationEvent::Unit { .. })))
            .count();
        assert_eq!(units, if with_video { 20 } else { 0 });
        assert!(
            !rig.events
                .iter()
                .any(|event| matches!(event, Event::Publication(_, PublicationEvent::Fault(_)))),
            "{:?}",
            rig.events
        );
    }
}
