//! Tests of both machines with each other, with data in pieces of any size, and with meaningless
//! bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::codec::{aac, ac3, av1, g711, h264, mp3, opus, vp8};
use media::{AccessUnit, CodecConfig, Rendition, Timescale, Track, TrackId, TrackKind, TrackSet, Tracks};
use proptest::prelude::*;
use wire::SendQueue;

use crate::frame::{self, HEAD_BYTES, VERSION, kind};
use crate::{
    BODY_BYTES_MAX, Client, ClientEvent, Ended, Error, Playing, Refused, Server, ServerEvent, tracks_frame,
    unit_head,
};

mod calls;

const V1: TrackId = match TrackId::nth(TrackKind::Video, 1) {
    Some(id) => id,
    None => TrackId::VIDEO,
};

/// Start instant of a test.
#[allow(clippy::disallowed_methods, reason = "there is no other way to an Instant")]
fn begin() -> Instant {
    Instant::now()
}

fn config(which: usize) -> CodecConfig {
    let h264 = Bytes::from_static(b"\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68");
    match which % 9 {
        0 => CodecConfig::H264(h264::Config::read(h264).unwrap()),
        1 => CodecConfig::Av1(av1::Config::read(Bytes::from_static(b"\x81\x08\x0c\0")).unwrap()),
        2 => CodecConfig::Vp8(vp8::Config::default()),
        3 => CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x12, 0x10])).unwrap()),
        4 => CodecConfig::Opus(opus::Config::read(Bytes::new()).unwrap()),
        5 => CodecConfig::Mp3(mp3::Config { sample_rate: 44_100, channels: 2 }),
        6 => CodecConfig::G711(g711::Config { law: g711::Law::Mu, channels: 1 }),
        7 => CodecConfig::Ac3(ac3::Config),
        _ => CodecConfig::Eac3(ac3::Config),
    }
}

/// Makes tracks of every kind, some with all optional fields.
fn tracks(epoch: u32) -> Tracks {
    let mut numbers = [0u8; 2];
    let list = (0..9).map(|which| {
        let config = config(which);
        let kind = config.codec().kind();
        let number = &mut numbers[usize::from(kind == TrackKind::Audio)];
        let id = TrackId::nth(kind, *number).unwrap();
        *number += 1;
        let track = Track { epoch: epoch.min(3), ..Track::new(id, config, Timescale::new(90_000)) };
        if which % 2 == 1 {
            return track;
        }
        Track {
            extra: Some(Bytes::from_static(b"colour")),
            label: Some("Ton zwölf".into()),
            language: Some("de".into()),
            rendition: Some(Rendition { group: 1, width: 1920, height: 1080, bit_rate: 2_000_000 }),
            ..track
        }
    });
    let mut tracks = Tracks::new(epoch, list);
    tracks.metadata = Some(Bytes::from_static(b"\x02\0\x0aonMetaData"));
    tracks
}

fn unit(track: TrackId, dts: i64, payload: Vec<u8>) -> AccessUnit {
    AccessUnit {
        track,
        dts,
        pts: dts + 40,
        key_frame: track == TrackId::VIDEO && dts % 2 == 0,
        config_epoch: 0,
        payload: payload.into(),
    }
}

fn feed(unit: &AccessUnit) -> Vec<u8> {
    [&unit_head(unit).unwrap()[..], &unit.payload].concat()
}

struct Pair {
    now: Instant,
    client: Client,
    server: Server,
    to_client: Vec<u8>,
    /// Maximum number of bytes passed to the other side at once, to test split frames.
    piece: usize,
}

impl Pair {
    fn new(clusters: [&str; 2], piece: usize) -> Self {
        let now = begin();
        let client = Client::new(now, clusters[0], ("live", "s"), &["a".to_owned(), "b".to_owned()]);
        Self { now, client, server: Server::new(now, clusters[1]), to_client: Vec::new(), piece }
    }

    /// Delivers data until neither side sends any more. Returns the results of both sides.
    fn run(&mut self) -> (Result<(), Error>, Result<(), Error>) {
        let (mut of_server, mut of_client) = (Ok(()), Ok(()));
        loop {
            let (mut up, mut down) = (SendQueue::new(), SendQueue::new());
            self.client.poll_transmit(&mut up);
            self.server.poll_transmit(&mut down);
            self.to_client.splice(0..0, down.take_all());
            if up.is_empty() && self.to_client.is_empty() {
                return (of_server, of_client);
            }
            for piece in up.take_all().chunks(self.piece) {
                let result = self.server.handle_bytes(self.now, piece);
                of_server = of_server.and(result);
            }
            for piece in std::mem::take(&mut self.to_client).chunks(self.piece) {
                let result = self.client.handle_bytes(self.now, piece);
                of_client = of_client.and(result);
            }
        }
    }

    fn server_events(&mut self) -> Vec<ServerEvent> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }

    fn client_events(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }
}

fn asked() -> ServerEvent {
    ServerEvent::Play { app: "live".into(), id: "s".into(), via: vec!["a".into(), "b".into()] }
}

#[test]
fn a_stream_comes_as_it_is_with_every_kind_of_track_and_any_cut() {
    for piece in [1, 2, 7, 64, 100_000] {
        let mut pair = Pair::new(["c", "c"], piece);
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        assert_eq!(pair.server_events(), [asked()]);
        pair.server.accept("north", -5);
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        let first = Arc::new(tracks(0));
        let units =
            [unit(TrackId::VIDEO, -2, vec![1; 5000]), unit(V1, 7, vec![]), unit(TrackId::DATA, 0, vec![3])];
        pair.to_client.extend_from_slice(&tracks_frame(&first));
        units.iter().for_each(|unit| pair.to_client.extend(feed(unit)));
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        let mut expected = vec![ClientEvent::Playing(Playing { node: "north".into(), zero_ms: -5 })];
        expected.extend(units.map(|unit| ClientEvent::Unit { unit, tracks: first.clone() }));
        assert_eq!(pair.client_events(), expected);
        // After the tracks were described again, the new description applies to the units that
        // follow.
        let second = Arc::new(tracks(3));
        let later = AccessUnit { config_epoch: 3, ..unit(TrackId::AUDIO, 1, vec![9]) };
        pair.to_client.extend_from_slice(&tracks_frame(&second));
        pair.to_client.extend(feed(&later));
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        assert_eq!(pair.client_events(), [ClientEvent::Unit { unit: later, tracks: second }]);
        pair.server.end(Ended::Over, "unpublished");
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        assert_eq!(
            pair.client_events(),
            [ClientEvent::Ended(Ended::Over, "unpublished".into()), ClientEvent::Closed]
        );
        assert_eq!(pair.server_events(), [ServerEvent::Closed]);
    }
}

#[test]
fn derived_tracks_stay_at_home() {
    let mut all = tracks(0);
    all.put(Track::new(TrackId::DERIVED, config(4), Timescale::new(48_000)));
    assert_eq!(crate::tracks::read(&tracks_frame(&all)[HEAD_BYTES..]).unwrap(), tracks(0));
}

#[test]
fn demands_reach_the_server() {
    let mut pair = Pair::new(["c", "c"], 3);
    let wanted = TrackSet::of(TrackId::VIDEO).with(TrackId::AUDIO);
    pair.client.want(Some(wanted));
    pair.client.need_key_frame(V1);
    pair.client.want(None);
    assert_eq!(pair.run(), (Ok(()), Ok(())));
    let events = [ServerEvent::Want(Some(wanted)), ServerEvent::KeyFrame(V1), ServerEvent::Want(None)];
    assert_eq!(pair.server_events(), [&[asked()][..], &events].concat());
    pair.client.leave();
    pair.client.leave();
    assert_eq!((pair.run(), pair.server_events()), ((Ok(()), Ok(())), vec![ServerEvent::Closed]));
    assert_eq!(pair.client_events(), [ClientEvent::Closed]);
}

#[test]
fn nothing_is_read_behind_a_goodbye() {
    for behind in
        [frame::frame(kind::KEY_FRAME, &[0]), Bytes::from_static(&[kind::WANT, 0xff, 0xff, 0xff, 0xff])]
    {
        let goodbye = frame::frame(kind::LEAVE, &[]);
        let mut server = Server::new(begin(), "c");
        let bytes = [&frame::hello("c")[..], &goodbye, &behind].concat();
        assert_eq!(server.handle_bytes(begin(), &bytes), Ok(()));
        assert_eq!(std::iter::from_fn(|| server.poll_event()).collect::<Vec<_>>(), [ServerEvent::Closed]);
    }
}

#[test]
fn a_refusal_is_told_and_ends_both() {
    for why in [Refused::NotFound, Refused::Unavailable, Refused::Loop, Refused::Stranger] {
        let mut pair = Pair::new(["c", "c"], 100);
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        pair.server.refuse(why, "because");
        assert_eq!(pair.run(), (Ok(()), Ok(())));
        assert_eq!(pair.client_events(), [ClientEvent::Refused(why, "because".into()), ClientEvent::Closed]);
    }
}

#[test]
fn a_node_of_another_cluster_is_told_so() {
    let mut pair = Pair::new(["ours", "theirs"], 100);
    assert_eq!(pair.run(), (Err(Error::Cluster), Err(Error::Cluster)));
    assert_eq!(pair.server_events(), [ServerEvent::Closed]);
}

#[test]
fn another_version_is_told_by_a_word_and_the_own_hello() {
    let mut server = Server::new(begin(), "c");
    let hello = [b'M', b'S', b'R', b'L', VERSION + 1, 1, b'c'];
    assert_eq!(server.handle_bytes(begin(), &hello), Err(Error::Version(VERSION + 1)));
    let mut out = SendQueue::new();
    server.poll_transmit(&mut out);
    let mut client = Client::new(begin(), "c", ("live", "s"), &[]);
    client.handle_bytes(begin(), &out.take_all()).unwrap();
    let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
    assert!(
        matches!(&events[..], [ClientEvent::Refused(Refused::Stranger, _), ClientEvent::Closed]),
        "{events:?}"
    );
    let mut http = Server::new(begin(), "c");
    assert_eq!(http.handle_bytes(begin(), b"GET"), Err(Error::Magic));
    http.poll_transmit(&mut out);
    assert!(out.is_empty(), "strangers are told nothing");
}

#[test]
fn pings_keep_both_alive_and_silence_ends_both() {
    let mut pair = Pair::new(["c", "c"], 100);
    pair.run().0.unwrap();
    for _ in 0..40 {
        let at = pair.client.poll_timeout().unwrap();
        assert!(at <= pair.now + Duration::from_secs(1));
        pair.now = pair.now.max(at);
        assert_eq!(pair.client.handle_timeout(pair.now), Ok(()));
        assert_eq!(pair.server.handle_timeout(pair.now), Ok(()));
        assert_eq!(pair.run(), (Ok(()), Ok(())));
    }
    assert_eq!(pair.client.round_trip(), Some(Duration::ZERO));
    assert!(pair.client_events().iter().all(|event| *event == ClientEvent::Alive));
    let last = pair.now;
    let silent = last + Duration::from_secs(10);
    assert_eq!(pair.client.handle_timeout(last + Duration::from_secs(3)), Ok(()));
    assert_eq!(pair.client.handle_timeout(last + Duration::from_secs(4)), Err(Error::Silent));
    assert_eq!(pair.server.handle_timeout(silent - Duration::from_millis(1)), Ok(()));
    assert_eq!(pair.server.handle_timeout(silent), Err(Error::Silent));
    assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
}

/// Sends frames that a server must not send, and checks the errors.
#[test]
fn units_that_no_description_covers_end_the_client() {
    let playing = {
        let mut server = Server::new(begin(), "c");
        server.handle_bytes(begin(), b"MSRL\x01\x01c").unwrap();
        server.accept("n", 0);
        let mut out = SendQueue::new();
        server.poll_transmit(&mut out);
        out.take_all()
    };
    let described = tracks_frame(&tracks(3));
    let good = AccessUnit { config_epoch: 3, ..unit(TrackId::VIDEO, 5, vec![1]) };
    let unknown = TrackId::nth(TrackKind::Audio, 12).unwrap();
    let cases: [(&str, Vec<u8>, Option<Error>); 6] = [
        ("in order", [&described[..], &feed(&good)].concat(), None),
        ("no tracks", feed(&good), Some(Error::Invalid("track"))),
        (
            "epoch",
            [&described[..], &feed(&unit(TrackId::VIDEO, 5, vec![1]))].concat(),
            Some(Error::Invalid("epoch")),
        ),
        (
            "unknown track",
            [&described[..], &feed(&AccessUnit { track: unknown, ..good.clone() })].concat(),
            Some(Error::Invalid("track")),
        ),
        (
            "backwards",
            [&described[..], &feed(&good), &feed(&AccessUnit { dts: 4, ..good.clone() })].concat(),
            Some(Error::Invalid("time")),
        ),
        (
            "presented before it is decoded",
            [&described[..], &feed(&AccessUnit { pts: 4, ..good.clone() })].concat(),
            Some(Error::Invalid("time")),
        ),
    ];
    for (name, bytes, expected) in cases {
        let mut client = Client::new(begin(), "c", ("live", "s"), &[]);
        client.handle_bytes(begin(), &playing).unwrap();
        assert_eq!(client.handle_bytes(begin(), &bytes).err(), expected, "{name}");
    }
    let mut early = Client::new(begin(), "c", ("live", "s"), &[]);
    let hello = [&b"MSRL\x01\x01c"[..], &described].concat();
    assert_eq!(early.handle_bytes(begin(), &hello), Err(Error::Invalid("order")));
}

#[test]
fn what_is_announced_and_too_large_is_refused_before_it_comes() {
    let hello = b"MSRL\x01\x01c";
    let huge = |kind: u8, bytes: u32| [&hello[..], &[kind], &bytes.to_be_bytes()].concat();
    let mut client = Client::new(begin(), "c", ("live", "s"), &[]);
    let refused = client.handle_bytes(begin(), &huge(19, BODY_BYTES_MAX + 1));
    assert_eq!(refused, Err(Error::TooLarge(BODY_BYTES_MAX + 1)));
    let mut server = Server::new(begin(), "c");
    assert_eq!(server.handle_bytes(begin(), &huge(2, 1 << 20)), Err(Error::TooLarge(1 << 20)));
    assert_eq!(unit_head(&unit(TrackId::VIDEO, 0, vec![0; BODY_BYTES_MAX as usize])), None);
}

/// Checks a client that never reads. Without a bound, the server would queue a pong for each of its
/// pings.
#[test]
fn a_server_queues_no_more_than_a_client_may_be_owed() {
    let mut server = Server::new(begin(), "c");
    server.handle_bytes(begin(), b"MSRL\x01\x01c").unwrap();
    let ping = [&[4u8, 0, 0, 0, 8][..], &[0; 8]].concat();
    let refused = (0..10_000).find(|_| server.handle_bytes(begin(), &ping).is_err());
    assert!(refused.is_some());
    let mut out = SendQueue::new();
    server.poll_transmit(&mut out);
    assert!(out.len() < 20_000);
}

proptest! {
    #[test]
    fn tracks_survive_and_cut_descriptions_are_refused(epoch: u32, which in 0..9usize, cut in 0..200usize) {
        let config = config(which);
        let id = TrackId::nth(config.codec().kind(), 3).unwrap();
        let all = Tracks::new(epoch, [Track { epoch, ..Track::new(id, config, Timescale::new(1000)) }]);
        let frame = tracks_frame(&all);
        let body = &frame[HEAD_BYTES..];
        prop_assert_eq!(crate::tracks::read(body).unwrap(), all);
        if cut < body.len() {
            prop_assert!(crate::tracks::read(&body[..cut]).is_err());
        }
    }

    #[test]
    fn bytes_without_sense_end_no_more_than_the_connection(bytes: Vec<u8>, kind: u8, flips in 0..40usize) {
        let now = begin();
        let mut body = tracks_frame(&tracks(1)).to_vec();
        if let Some(byte) = body.get_mut(HEAD_BYTES + flips * 7) {
            *byte ^= kind;
        }
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let framed = [&b"MSRL\x01\x01c"[..], &[16, 0, 0, 0, 9, 0], &[0; 8], &body, &[kind], &length, &bytes].concat();
        let mut client = Client::new(now, "c", ("live", "s"), &[]);
        let ends = client.handle_bytes(now, &framed).is_err();
        let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
        prop_assert!(!ends || events.last() == Some(&ClientEvent::Closed));
        let mut server = Server::new(now, "c");
        let ends = server.handle_bytes(now, &framed).is_err();
        let events: Vec<_> = std::iter::from_fn(|| server.poll_event()).collect();
        prop_assert!(!ends || events.last() == Some(&ServerEvent::Closed));
    }
}
