//! Attempts with servers of every kind, without sockets.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for some events")]

mod key_frames;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::{Header, TagHead, TagKind};

use super::*;
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::jobs::{BlockSource, Job, JobDone, OpenedFile, Outcome, Work};
use crate::mail::SessionSettings;
use crate::protocol::{Apps, outbound};
use crate::types::{PullId, StreamId};

/// An empty set of blobs.
static BLOBS: Blobs = Blobs::new();
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
const FILE_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
const CONFIG: &[u8] = b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68";
const KEY: &[u8] = b"\x17\x01\0\0\0\0\0\0\x01\x65";
const INTER: &[u8] = b"\x27\x01\0\0\0\0\0\0\x01\x41";

struct Rig {
    session: PullSession,
    now: Now,
    began: Instant,
    apps: Apps,
    server: SessionSettings,
}

impl Rig {
    fn new(url: &str) -> Self {
        let began = Instant::now();
        let now = Now { mono: began, wall_ms: 0 };
        let own_path = || outbound::read_own_path(url, "live").unwrap();
        let target = outbound::read_source(url).unwrap_or_else(|_| own_path());
        let client = outbound::pull_client(&target, Seed::from_number(1)).unwrap();
        let order = PullOrder {
            pull: PullId(1),
            attempt: 1,
            key: StreamKey::new("live", "s"),
            address: SocketAddr::from(([192, 0, 2, 1], 9)),
            target,
            lead: Duration::ZERO,
            via: Vec::new(),
            skip: Duration::ZERO,
        };
        let session = PullSession::new(now, &order, client);
        Self { session, now, began, apps: Apps::new(), server: SessionSettings::default() }
    }

    fn flv() -> Self {
        Self::new("http://h/live/s.flv?t=1")
    }

    fn call<R>(&mut self, verb: impl FnOnce(&mut PullSession, &Context<'_>) -> R) -> R {
        let ctx =
            Context { now: self.now, apps: &self.apps, server: &self.server, blobs: &BLOBS, draining: false };
        verb(&mut self.session, &ctx)
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.call(|session, ctx| session.poll_event(ctx)))
            .map(|event| name(&event))
            .collect()
    }

    fn connected(&mut self) -> Vec<String> {
        self.call(|session, ctx| {
            session.handle_path(ctx, PathId::default(), PathEvent::Open { local: None })
        });
        self.events()
    }

    fn sent(&mut self) -> Vec<u8> {
        let mut out = SendQueue::new();
        self.session.poll_transmit(&mut out);
        out.take_all().to_vec()
    }

    fn give(&mut self, bytes: &[u8]) -> Vec<String> {
        self.call(|session, ctx| session.handle_bytes(ctx, bytes));
        self.events()
    }

    fn grant(&mut self) -> Vec<String> {
        let grant = Grant {
            stream: StreamId(1),
            position: media::Position::default(),
            epoch: 0,
            zero_ms: 0,
            settings: Arc::new(AppSettings::defaults("live").unwrap()),
            standby: false,
        };
        self.call(|session, ctx| session.publish_verdict(ctx, Ok(grant)));
        self.events()
    }

    /// Begins a pull that receives media.
    fn flowing() -> Self {
        Self::begun(HEAD)
    }

    /// Begins a pull whose response has this head.
    fn begun(head: &[u8]) -> Self {
        let mut rig = Self::flv();
        rig.connected();
        rig.give(head);
        assert_eq!(rig.give(&file(&[(CONFIG, 0), (KEY, 0)])), ["publish"]);
        assert_eq!(rig.grant(), ["unit 0"]);
        rig
    }

    /// Advances the clock to `time`, stopping at each deadline.
    fn run_to(&mut self, time: Duration) -> Vec<String> {
        let end = self.began + time;
        let mut events = Vec::new();
        while let Some(at) = self.session.poll_timeout().filter(|at| *at <= end) {
            self.now.mono = at.max(self.now.mono);
            self.call(|session, ctx| session.handle_timeout(ctx));
            events.extend(self.events());
            assert!(
                self.session.poll_timeout().is_none_or(|next| next > self.now.mono),
                "a deadline that stays"
            );
        }
        self.now.mono = end;
        events
    }
}

fn name(event: &Event) -> String {
    match event {
        Event::Publication(_, PublicationEvent::Publish(ask)) => {
            assert_eq!((ask.ingest, &*ask.key.id), (Ingest::PULL, "s"));
            "publish".to_owned()
        }
        Event::Publication(_, PublicationEvent::Unit { unit, .. }) => format!("unit {}", unit.dts),
        Event::Publication(_, PublicationEvent::UnitsDropped(_)) => "dropped".to_owned(),
        Event::Publication(_, PublicationEvent::Over(departure)) => format!("{departure:?}"),
        Event::Order(OrderEvent::Pull(PullState::Preparing)) => "preparing".to_owned(),
        Event::Order(OrderEvent::Pull(PullState::Failed(why))) => format!("failed: {why}"),
        Event::Order(OrderEvent::Pull(PullState::Lost { reason, .. })) => format!("lost: {reason}"),
        Event::Closed(_) => "closed".to_owned(),
        other => format!("{other:?}"),
    }
}

fn tag(body: &[u8], timestamp: u32) -> Vec<u8> {
    let head = TagHead { kind: TagKind::Video, size: u32::try_from(body.len()).unwrap(), timestamp };
    [&head.write()[..], body, &head.trailer()].concat()
}

fn file(tags: &[(&[u8], u32)]) -> Vec<u8> {
    let mut bytes = Header { audio: false, video: true }.write().to_vec();
    tags.iter().for_each(|(body, timestamp)| bytes.extend(tag(body, *timestamp)));
    bytes
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_first_frame_asks_and_nothing_is_read_before_the_verdict() {
    let mut rig = Rig::flv();
    assert!(rig.sent().is_empty(), "nothing before the connection");
    assert_eq!(rig.connected(), ["preparing"]);
    let request = String::from_utf8(rig.sent()).unwrap();
    assert!(request.starts_with("GET /live/s.flv?t=1 HTTP/1.1\r\nHost: h\r\n"), "{request}");
    let all = [HEAD, &file(&[(CONFIG, 7), (KEY, 7), (INTER, 40)])].concat();
    for cut in [1, 7, all.len()] {
        let mut rig = Rig::flv();
        rig.connected();
        let mut events = Vec::new();
        for piece in all.chunks(cut) {
            events.extend(rig.give(piece));
        }
        assert_eq!(events, ["publish"], "cut {cut}");
        assert!(!rig.session.wants_bytes());
        assert_eq!(rig.grant(), ["unit 7", "unit 40"], "cut {cut}");
        assert!(rig.session.wants_bytes());
    }
}

#[test]
fn metadata_asks_for_nothing_and_a_refusal_here_is_a_failure() {
    let mut rig = Rig::flv();
    rig.connected();
    rig.give(HEAD);
    rig.give(&file(&[]));
    let metadata = TagHead { kind: TagKind::Data, size: 3, timestamp: 0 };
    let one = [&metadata.write()[..], b"\x02\0\0", &metadata.trailer()].concat();
    assert!(rig.give(&one.repeat(1000)).is_empty());
    assert!(rig.session.held.len() <= HELD_MAX);
    assert_eq!(rig.give(&tag(CONFIG, 0)), ["publish"]);
    rig.call(|session, ctx| session.publish_verdict(ctx, Err(Refusal::InUse)));
    assert_eq!(rig.events(), ["Lost", "failed: refused here: InUse", "closed"]);
}

#[test]
fn u_02_four_seconds_without_media_are_the_end_and_metadata_is_no_media() {
    let mut rig = Rig::flowing();
    let data = TagHead { kind: TagKind::Data, size: 3, timestamp: 9 };
    let data = [&data.write()[..], b"\x02\0\0", &data.trailer()].concat();
    assert!(rig.run_to(secs(3)).is_empty());
    rig.give(&tag(INTER, 3000));
    assert!(rig.run_to(secs(6)).is_empty());
    rig.give(&data);
    assert!(rig.run_to(Duration::from_millis(6900)).is_empty());
    let frozen = "lost: frozen: no media for 4 s";
    assert_eq!(rig.run_to(Duration::from_millis(7000)), ["Lost", frozen, "closed"]);
    assert_eq!(rig.session.poll_timeout(), None);
    assert!(!rig.session.wants_bytes() && rig.events().is_empty());
}

#[test]
fn a_pull_whose_video_stops_ends_although_its_sound_goes_on() {
    let mut rig = Rig::flowing();
    let sound = |ms| {
        let head = TagHead { kind: TagKind::Audio, size: 3, timestamp: ms };
        [&head.write()[..], b"\x82\x55\x55", &head.trailer()].concat()
    };
    let mut ended = None;
    for ms in (1_000u32..40_000).step_by(500) {
        assert!(rig.run_to(Duration::from_millis(u64::from(ms))).is_empty(), "{ms}");
        if ms < 12_000 {
            assert!(!rig.give(&tag(INTER, ms)).is_empty(), "{ms}");
        }
        let events = rig.give(&sound(ms));
        if events.iter().any(|event| event == "closed") {
            ended = Some((ms, events));
            break;
        }
    }
    let (ms, events) = ended.unwrap();
    assert_eq!(ms, 21_500);
    assert!(events.iter().any(|event| event == "lost: no video for 10 s while audio went on"), "{events:?}");
}

#[test]
fn u_20_servers_that_are_silent_or_break_the_rules() {
    // Three failures: no connection, no answer, no media.
    let mut rig = Rig::flv();
    assert_eq!(rig.run_to(secs(6)), ["Lost", "failed: connect timed out", "closed"]);
    let mut rig = Rig::flv();
    rig.connected();
    assert_eq!(rig.run_to(secs(6)), ["Lost", "failed: no answer to the request", "closed"]);
    let mut rig = Rig::flv();
    rig.connected();
    rig.give(HEAD);
    assert_eq!(rig.run_to(secs(11)), ["Lost", "failed: no media came", "closed"]);
    let flv = file(&[]);
    let large = TagHead { kind: TagKind::Video, size: 0xff_ffff, timestamp: 0 }.write();
    let encrypted = TagHead { kind: TagKind::Other(0x29), size: 5, timestamp: 0 }.write();
    for (answer, why) in [
        (b"SSH-2.0-x\r\n\r\n".to_vec(), "malformed response"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "HTTP 302"),
        (b"HTTP/1.1 404 Not\x07 Found\r\nContent-Length: 0\r\n\r\n".to_vec(), ""),
        ([b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'x'; 20_000]].concat(), "response head too large"),
        ([HEAD, b"<html>no flv</html>"].concat(), ""),
        ([HEAD, &flv, &large].concat(), ""),
        ([HEAD, &flv, &encrypted].concat(), ""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(), "malformed response body"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n".iter().chain(&flv).copied().collect(), "ended"),
    ] {
        let mut rig = Rig::flv();
        rig.connected();
        let events = rig.give(&answer);
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(60)]).into_owned();
        assert_eq!(events.len(), 3, "{shown}: {events:?}");
        assert!(events[1].starts_with("failed: ") && events[1].contains(why), "{shown}: {events:?}");
        assert_eq!(events[2], "closed");
    }
}

#[test]
fn chunked_bodies_are_read_and_ends_are_told_after_what_came_before() {
    let mut rig = Rig::flv();
    rig.connected();
    rig.give(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = file(&[(CONFIG, 0), (KEY, 0), (INTER, 33)]);
    for piece in body.chunks(11) {
        rig.give(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    assert_eq!(rig.grant(), ["unit 0", "unit 33"]);
    rig.call(|session, ctx| session.handle_bytes(ctx, &[&b"5\r\n"[..], &tag(INTER, 66)[..5]].concat()));
    rig.call(|session, ctx| session.handle_path(ctx, PathId::default(), PathEvent::PeerClosed));
    assert_eq!(
        rig.events(),
        ["Lost", "lost: the server closed the connection during the response", "closed"]
    );
    let mut rig = Rig::flowing();
    rig.call(|session, ctx| session.handle_bytes(ctx, &tag(INTER, 66)));
    rig.call(|session, ctx| session.handle_path(ctx, PathId::default(), PathEvent::PeerClosed));
    assert_eq!(rig.events(), ["unit 66", "Lost", "lost: the server ended the stream", "closed"]);
}

#[test]
fn u_33_redirects_are_followed_five_times_in_connections_of_their_own() {
    let mut rig = Rig::flv();
    rig.connected();
    rig.sent();
    let redirect = |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 3\r\n\r\nxyz");
    let next = |events: &[String]| events.iter().find(|event| event.starts_with("Order(NextServer")).cloned();
    // The server closes the connection after its redirect, which does not end the attempt.
    rig.call(|session, ctx| {
        session.handle_bytes(ctx, redirect("http://edge:81/b.flv").as_bytes());
        session.handle_path(ctx, PathId::default(), PathEvent::PeerClosed);
    });
    let asked = next(&rig.events()).unwrap();
    assert!(asked.contains(r#"host: "edge", port: 81, tls: false"#), "{asked}");
    assert_eq!(rig.connected(), [""; 0], "it is the same attempt");
    assert!(rig.sent().starts_with(b"GET /b.flv HTTP/1.1\r\nHost: edge:81\r\n"));
    rig.give(HEAD);
    assert_eq!(rig.give(&file(&[(CONFIG, 0), (KEY, 0)])), ["publish"]);

    let mut rig = Rig::flv();
    rig.connected();
    for hop in 0..6 {
        let events = rig.give(redirect("/again.flv").as_bytes());
        assert_eq!(next(&events).is_some(), hop < 5, "{hop}");
        match hop {
            5 => assert_eq!(events[1], "failed: the server redirects too often"),
            _ => assert_eq!(rig.connected(), [""; 0]),
        }
    }
    let mut rig = Rig::flv();
    rig.connected();
    let events = rig.give(redirect("file:///etc/passwd").as_bytes());
    assert!(next(&events).is_none() && events[1].starts_with("failed: the server redirects to where"));
    // A redirect that arrives before any request was made does not cause two requests to the next server.
    let mut rig = Rig::flv();
    rig.call(|session, ctx| {
        session.handle_path(ctx, PathId::default(), PathEvent::Open { local: None });
        session.handle_bytes(ctx, redirect("/b.flv").as_bytes());
    });
    assert!(next(&rig.events()).is_some() && rig.sent().is_empty());
    rig.connected();
    assert_eq!(rig.sent().windows(4).filter(|bytes| bytes == b"GET ").count(), 1);
    // Redirects to addresses that control does not allow, or cannot resolve.
    let mut rig = Rig::flv();
    rig.connected();
    rig.give(redirect("http://169.254.169.254/").as_bytes());
    rig.call(|session, ctx| session.handle_path(ctx, PathId::default(), PathEvent::Broken("denied")));
    assert_eq!(rig.events(), ["Lost", "failed: denied", "closed"]);
}

#[test]
fn nonsense_ends_it_and_a_codec_that_is_not_carried_says_so() {
    let mut rig = Rig::flowing();
    let events = rig.give(&tag(b"\x17", 1).repeat(200));
    assert_eq!(events.iter().filter(|event| *event == "dropped").count(), 101);
    assert!(events.contains(&"lost: the server sends nonsense".to_owned()));
    let mut rig = Rig::flowing();
    let events = rig.give(&tag(b"\x90vvc1", 1));
    assert!(events[1].starts_with("lost: ") && events[1].contains("vvc1"), "{events:?}");
}

fn count(events: &[String]) -> usize {
    events.iter().filter(|event| event.starts_with("unit")).count()
}

#[test]
fn what_cannot_be_used_does_not_freeze_a_file_that_waits() {
    let mut rig = Rig::begun(FILE_HEAD);
    rig.give(&tag(INTER, 4000));
    // One frame of the known track, and one of a track that has no parameter sets.
    let both = b"\xa6\x23avc1\0\0\0\x05\0\0\0\x01\x41avc1\x01\0\0\x05\0\0\0\x01\x41";
    assert!(rig.give(&tag(both, 12_000)).is_empty());
    assert!(!rig.session.wants_bytes(), "a unit waits until it is due");
    assert_eq!(rig.run_to(secs(9)), ["unit 4000"]);
    assert_eq!(rig.run_to(secs(11)), ["unit 12000", "dropped"]);
    assert!(rig.session.wants_bytes());
}

#[test]
fn the_units_of_a_file_leave_one_by_one_when_they_are_due() {
    let mut rig = Rig::begun(FILE_HEAD);
    let minute: Vec<u8> = (1..=600).flat_map(|n| tag(KEY, n * 100)).collect();
    let first = count(&rig.give(&minute));
    assert_eq!(first, 20, "the reserve at once");
    assert!(!rig.session.wants_bytes());
    for tenth in 1..=580 {
        assert_eq!(count(&rig.run_to(Duration::from_millis(tenth * 100))), 1, "{tenth}");
    }
    assert!(rig.session.wants_bytes());
    assert_eq!(rig.run_to(secs(70)).last().map(String::as_str), Some("closed"), "and then it is frozen");
}

#[test]
fn a_live_source_is_never_held_back_and_a_file_without_a_length_is_found_out() {
    let mut rig = Rig::flowing();
    // A live server may keep the newest part of a stream and send it immediately to a new viewer. Its 19 s of media are
    // passed on without pacing, because only a lead of more than 20 s shows that the source is a file.
    let kept: Vec<u8> = (1..=190).flat_map(|n| tag(KEY, n * 100)).collect();
    assert_eq!(count(&rig.give(&kept)), 190);
    assert!(rig.session.wants_bytes());
    let rest: Vec<u8> = (191..=600).flat_map(|n| tag(KEY, n * 100)).collect();
    assert_eq!(count(&rig.give(&rest)), 11, "more than 20 s ahead");
    assert!(!rig.session.wants_bytes());
    assert_eq!(count(&rig.run_to(secs(18))), 0);
    assert_eq!(count(&rig.run_to(secs(20))), 20);
    // A camera whose media clock runs 15 % fast gets ahead of real time, but by less than 20 s. So it still counts as
    // live, and no unit waits.
    let mut rig = Rig::flowing();
    for n in 1..=100u32 {
        rig.run_to(Duration::from_millis(u64::from(n) * 100));
        assert_eq!(count(&rig.give(&tag(KEY, n * 115))), 1, "{n}");
        assert!(rig.session.wants_bytes());
    }
}

#[test]
fn a_short_file_is_played_whole_though_its_server_has_gone_before_the_verdict() {
    let mut rig = Rig::flv();
    rig.connected();
    let tags: Vec<(&[u8], u32)> = (0..25).map(|n| (KEY, n * 100)).collect();
    rig.give(FILE_HEAD);
    rig.give(&file(&[&[(CONFIG, 0)][..], &tags].concat()));
    rig.call(|session, ctx| session.handle_path(ctx, PathId::default(), PathEvent::PeerClosed));
    let mut events = rig.grant();
    events.extend(rig.run_to(secs(3)));
    assert_eq!(count(&events), 25, "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("closed"));
}

/// A file in memory.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl BlockSource for Memory {
    fn read_block(&self, offset: u64, length: usize) -> Bytes {
        let rest = &self.0[usize::try_from(offset).unwrap()..];
        Bytes::copy_from_slice(&rest[..length.min(rest.len())])
    }
}

#[test]
fn viewers_of_a_file_of_our_own_are_not_sent_ten_seconds_at_once() {
    let mut rig = Rig::new("streams/film.flv");
    let tags: Vec<(&[u8], u32)> = (0..100).map(|n| (KEY, n * 100)).collect();
    let film = file(&[&[(CONFIG, 0)][..], &tags].concat());
    let (mut asked, mut units) = (0, 0);
    rig.call(|session, ctx| session.handle_path(ctx, PathId::default(), PathEvent::Open { local: None }));
    while let Some(event) = rig.call(|session, ctx| session.poll_event(ctx)) {
        let Event::Job(Job { id, work, .. }) = event else {
            units += usize::from(matches!(event, Event::Publication(_, PublicationEvent::Unit { .. })));
            if matches!(event, Event::Publication(_, PublicationEvent::Publish(_))) {
                units += rig.grant().iter().filter(|event| event.starts_with("unit")).count();
            }
            continue;
        };
        let outcome = match work {
            Work::FileOpen { .. } => {
                let (length, source) = (film.len() as u64, Arc::new(Memory(film.clone())));
                let opened = OpenedFile { file: source, length, modified_ms: 0, tag: String::new() };
                Outcome::Opened(Ok(opened))
            }
            Work::FileRead { file, offset, length } => Outcome::Block(file.read_block(offset, length)),
            other => panic!("{other:?}"),
        };
        asked += 1;
        rig.call(|session, ctx| session.handle_reply(ctx, Reply::Job(JobDone { id, outcome })));
    }
    assert_eq!((asked, units), (2, 21), "two seconds of ten");
    let rest = rig.run_to(secs(9));
    assert_eq!(rest.iter().filter(|event| event.starts_with("unit")).count(), 79);
    assert!(rest.contains(&"lost: the file is over".to_owned()), "{rest:?}");
}

#[test]
fn a_file_behind_another_is_held_for_what_is_still_to_be_seen_of_that() {
    let mut rig = Rig::flv();
    rig.session.lead = Duration::from_millis(1500);
    rig.connected();
    rig.give(FILE_HEAD);
    rig.give(&file(&[(CONFIG, 0), (KEY, 0)]));
    rig.grant();
    let minute: Vec<u8> = (1..=600).flat_map(|n| tag(KEY, n * 100)).collect();
    assert_eq!(count(&rig.give(&minute)), 5, "a second and a half of the two are taken");
    assert_eq!(count(&rig.run_to(secs(20))), 200, "then as time goes");
    // The event at the end reports by how much the stream is ahead of real time.
    rig.call(|session, ctx| session.end(ctx.now.mono, "over"));
    let ends = std::iter::from_fn(|| rig.call(|session, ctx| session.poll_event(ctx)));
    let ahead = ends.filter_map(|event| match event {
        Event::Order(OrderEvent::Pull(PullState::Lost { ahead, .. })) => Some(ahead),
        _ => None,
    });
    assert_eq!(ahead.collect::<Vec<_>>(), [secs(2)]);
}

#[test]
fn u_20_rtmp_servers_that_are_silent_or_hostile() {
    let new = || Rig::new("rtmp://h/a/s");
    let mut rig = new();
    rig.connected();
    assert_eq!(rig.sent().len(), 1537);
    let events = rig.run_to(secs(6));
    assert!(events[1].starts_with("failed: the handshake took too long"), "{events:?}");
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 8192]] {
        let mut rig = new();
        rig.connected();
        let events = rig.give(answer);
        assert!(events.last().is_some_and(|event| event == "closed"), "{events:?}");
    }
    // Answers the handshake; then sends a chunk size of 2^31 and beginnings of large messages.
    let mut bytes = vec![3];
    bytes.extend([0; 3072]);
    bytes.extend(b"\x02\0\0\0\0\0\x04\x01\0\0\0\0\x80\0\0\x01");
    for chunk_stream in 0..190u8 {
        bytes.extend([0, chunk_stream, 0, 0, 0, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0, 0x17]);
    }
    let mut rig = new();
    rig.connected();
    let mut events = rig.give(&bytes);
    events.extend(rig.run_to(secs(11)));
    assert_eq!(events.iter().filter(|event| event.starts_with("failed")).count(), 1, "{events:?}");
}

#[test]
fn a_stop_says_goodbye_and_is_the_end() {
    let mut rig = Rig::flowing();
    rig.call(|session, ctx| {
        let end = crate::mail::StreamEnd::Stopped;
        session.handle_reply(ctx, Reply::Publication(Handle::ONLY, PublicationNews::Ended(end)));
    });
    let events = rig.events();
    assert_eq!(events.last().map(String::as_str), Some("closed"));
    assert!(rig.give(&tag(KEY, 100)).is_empty());
}

impl Rig {
    /// Passes on the peer's datagrams, and the answers to it.
    fn exchange(&mut self, peer: &mut ::srt::Connection) {
        let peer_address = SocketAddr::from(([192, 0, 2, 1], 9));
        let (now, from) = (self.now.mono, Remote::of(peer_address));
        let mut out = Datagrams::new();
        peer.poll_transmit(now, &mut out);
        for n in 0..out.len() {
            self.call(|session, ctx| {
                session.handle_datagram(ctx, PathId::default(), from, &mut out.get(n).to_vec())
            });
        }
        let mut answers = Datagrams::new();
        self.call(|session, ctx| session.poll_datagrams(ctx, &|_| None, &mut answers));
        (0..answers.len()).for_each(|n| peer.handle_datagram(now, answers.get(n)));
    }
}

/// A pull that was called by an SRT server.
fn called() -> (Rig, ::srt::Connection) {
    let mut rig = Rig::new("srt://:9000?mode=listener");
    rig.connected();
    let (id, seed) = (::srt::SocketId(1), Seed::from_number(2));
    let mut peer = ::srt::Connection::caller(rig.now.mono, Arc::default(), id, "", &seed);
    while !peer.is_connected() {
        rig.exchange(&mut peer);
    }
    (rig, peer)
}

#[test]
fn an_srt_server_hears_that_it_was_given_up() {
    let (mut rig, mut peer) = called();
    assert_eq!(rig.events(), [""; 0]);
    for half in 1..=20 {
        rig.now.mono = rig.began + secs(half) / 2;
        peer.handle_timeout(rig.now.mono);
        rig.call(|session, ctx| session.handle_timeout(ctx));
        rig.exchange(&mut peer);
    }
    assert_eq!(rig.events(), ["Lost", "failed: no media came", "closed"]);
    let last = std::iter::from_fn(|| peer.poll_event()).last();
    assert_eq!(last, Some(::srt::Event::Closed(::srt::CloseReason::Peer)));
}

#[test]
fn nobody_is_kept_busy_by_what_an_srt_server_sends_before_the_verdict() {
    let (mut rig, mut peer) = called();
    let (mut events, mut turns, end) = (rig.events(), 0, rig.began + secs(3));
    while rig.now.mono < end {
        if turns < 20 {
            peer.send(rig.now.mono, Bytes::from_static(&[0x47; 188])).unwrap();
        }
        rig.exchange(&mut peer);
        rig.call(|session, ctx| session.handle_timeout(ctx));
        events.extend(rig.events());
        rig.exchange(&mut peer);
        let next = rig.session.poll_timeout().unwrap_or(end).max(rig.now.mono);
        let step = Duration::from_millis(if turns < 20 { 5 } else { 0 });
        rig.now.mono = next.max(rig.now.mono + step);
        turns += 1;
        assert!(turns < 500, "a deadline that stays");
    }
    assert_eq!(events, ["publish"]);
}

#[test]
fn a_source_whose_video_never_comes_to_anything_is_told_and_tried_again() {
    let audio = |body: &[u8], timestamp| {
        let head = TagHead { kind: TagKind::Audio, size: u32::try_from(body.len()).unwrap(), timestamp };
        [&head.write()[..], body, &head.trailer()].concat()
    };
    // Either the length of the NAL unit exceeds the frame; or the frame is well-formed, but no key frame ever arrives.
    for (bad, told) in [(&b"\x17\x01\0\0\0\0\0\0\x09\x65"[..], true), (INTER, false)] {
        let mut rig = Rig::flv();
        rig.connected();
        rig.give(HEAD);
        rig.give(&file(&[(CONFIG, 0)]));
        rig.grant();
        let mut events = rig.give(&audio(b"\xaf\0\x11\x90", 0));
        for second in 0..15 {
            events.extend(rig.run_to(secs(second)));
            let ms = u32::try_from(second * 1000).unwrap();
            events.extend(rig.give(&[tag(bad, ms), audio(b"\xaf\x01\x21", ms)].concat()));
        }
        let faults = |events: &[String]| events.iter().filter(|event| event.contains("Fault")).count();
        let units = events.iter().filter(|event| event.starts_with("unit")).count();
        assert_eq!(
            (units, faults(&events)),
            (15, usize::from(told)),
            "the first bad frame is told: {events:?}"
        );
        rig.run_to(secs(15));
        let end = rig.give(&audio(b"\xaf\x01\x21", 15_000));
        let lost = "lost: no frame of its video could be used within 15 s";
        assert_eq!(
            (faults(&end), &end[end.len() - 3..]),
            (1, &["Lost", lost, "closed"].map(str::to_owned)[..])
        );
    }
    // A stream without video does not count as one that lacks its video.
    let mut rig = Rig::flv();
    rig.connected();
    rig.give(HEAD);
    rig.give(&[file(&[]), audio(b"\xaf\0\x11\x90", 0)].concat());
    rig.grant();
    for second in 0..20 {
        rig.run_to(secs(second));
        let events = rig.give(&audio(b"\xaf\x01\x21", u32::try_from(second * 1000).unwrap()));
        assert_eq!(events.len(), 1, "{events:?}");
    }
}
