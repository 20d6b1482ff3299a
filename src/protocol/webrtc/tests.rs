//! The negotiation of a session, the frames of publishers, and the packets of viewers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Config, IceMode, MediaPreference, Peer, Section, SectionId, offered_formats};
use bytes::{Bytes, BytesMut};
use crypto::Seed;
use media::codec::{Codec, CodecConfig, h264, opus};
use media::{AccessUnit, Timescale, Track, TrackId, TrackKind, Tracks, nal};
use rtp::payload::{Frame, SpatialLayer};
use rtp::{NtpAnchor, NtpTime};
use sdp::{Description, Direction, MediaKind};

use super::codecs::Codecs;
use super::ingest::Ingest;
use super::messages::{Ask, FromSession, ToSession};
use super::negotiation::{self, Shown, Taken};
use super::package::RtcPackage;
use super::room::Choice;
use super::session::RtcSession;
use super::settings::RtcAppSettings;
use crate::config::AppSettings;
use crate::hub::{Blobs, Chosen, Entry, Package, PacketLogs, Selection};
use crate::mail::{Message, SessionSettings};
use crate::protocol::publisher::grant;
use crate::protocol::{
    Apps, Context, Event, FamilyEvent, FamilyNews, PublicationNews, Reply, Session, SubscriptionNews,
};
use crate::types::{ConnId, Handle, Now, SessionRef, StreamKey, WorkerId};

const SPS: &[u8] = &[
    0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x5b, 0x01, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0xc0, 0xf1,
    0x62, 0xe4, 0x80,
];
const PPS: &[u8] = &[0x68, 0xcb, 0x83, 0xcb, 0x20];
const IDR: &[u8] = &[0x65, 0x88, 0x84, 0, 0x10];
const VIDEO: SectionId = SectionId(0);
const AUDIO: SectionId = SectionId(1);

pub(super) fn config(number: u64, lite: bool) -> Arc<Config> {
    let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(number)).unwrap());
    let ice = match lite {
        true => IceMode::Lite { config: Arc::default(), addresses: vec!["192.0.2.1:5000".parse().unwrap()] },
        false => IceMode::Full(Arc::default()),
    };
    Arc::new(Config::new(ice, identity))
}

pub(super) fn anchor(now: Instant) -> NtpAnchor {
    NtpAnchor::new(now, Duration::from_secs(1_790_000_000))
}

fn peer(now: Instant, number: u64, lite: bool) -> Peer {
    Peer::new(now, config(number, lite), anchor(now), Seed::from_number(number)).unwrap()
}

/// A client's offer with these codecs, in order, and Opus.
fn offer(codecs: &[Codec], direction: Direction) -> Description {
    let preference = |formats| MediaPreference { direction, formats, msid: None };
    let video =
        (96..).step_by(5).zip(codecs).flat_map(|(first, codec)| offered_formats(*codec, first)).collect();
    let sections = [
        (MediaKind::Video, preference(video)),
        (MediaKind::Audio, preference(offered_formats(Codec::Opus, 120))),
    ];
    let text = peer(Instant::now(), 1, false).offer(&sections).unwrap().write();
    Description::read(text.as_bytes()).unwrap()
}

/// The sections in the answer to a publisher of these codecs.
fn published(codecs: &[Codec], has: Codecs) -> Vec<Section> {
    let now = Instant::now();
    let mut server = peer(now, 2, true);
    let offer = offer(codecs, Direction::SendRecv);
    server.handle_offer(now, &offer, |_, media| negotiation::take(media, has)).unwrap();
    server.sections().to_vec()
}

fn encoding(section: &Section) -> &str {
    &section.formats[0].local.rtpmap.encoding
}

fn profile(section: &Section) -> String {
    section.formats[0].local.parameters.get("profile-level-id").unwrap().to_lowercase()
}

#[test]
fn of_a_publisher_h264_is_taken_where_it_is_offered_and_else_the_first() {
    let encodings = |codecs: &[Codec], has| {
        published(codecs, has).iter().map(|one| encoding(one).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(encodings(&[Codec::Vp8, Codec::H264], Codecs::ALL), ["H264", "opus"]);
    assert_eq!(encodings(&[Codec::Av1, Codec::Vp9], Codecs::ALL), ["AV1", "opus"]);
    let sections = published(&[Codec::H264], Codecs::ALL);
    assert!(profile(&sections[0]).starts_with("42e0"), "{}", profile(&sections[0]));
    assert!(sections.iter().all(|section| section.direction == Direction::RecvOnly));
}

/// Returns the codecs that an application enables with one setting changed.
fn with(key: &str, value: &str) -> Codecs {
    let app = AppSettings::of(crate::protocol::schema(), "live", &[(key, value)]).unwrap();
    RtcAppSettings::of(&app).codecs
}

/// A publisher of `live/s` that has made its offer, and was granted its stream.
fn granted_publisher(start: Instant) -> RtcSession {
    let (now, apps, server, blobs) =
        (Now { mono: start, wall_ms: 0 }, Apps::new(), SessionSettings::default(), Blobs::default());
    let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
    let ask =
        Ask { publishes: true, offer: Some(offer(&[Codec::H264], Direction::SendRecv)), ..play_ask(None) };
    let asker = SessionRef::new(WorkerId(0), ConnId { slot: 1, generation: 0 });
    let parts = (config(2, true), anchor(start), "192.0.2.1:5000".parse().unwrap());
    let mut session = RtcSession::new(&ctx, parts, asker, ask, Seed::from_number(2)).unwrap();
    let verdict = PublicationNews::Verdict(Ok(grant()));
    session.handle_reply(&ctx, Reply::Publication(Handle::ONLY, verdict));
    session
}

#[test]
fn a_publisher_that_offers_media_must_send_some_but_may_be_silent_later() {
    let start = Instant::now();
    let after = |ms| start + Duration::from_millis(ms);
    let sections = published(&[Codec::H264], Codecs::ALL);
    let mut ingest = Ingest::new(start, &grant(), &sections);
    ingest.connected(start);
    assert_eq!(ingest.poll_timeout(), None, "a participant of a room may send nothing");
    ingest.require_media();
    assert_eq!(ingest.poll_timeout(), None, "it is not connected");
    ingest.connected(after(5000));
    ingest.connected(after(9000));
    assert_eq!(ingest.poll_timeout(), Some(after(25_000)));
    assert!(!ingest.is_silent(after(24_999)) && ingest.is_silent(after(25_000)));
    ingest.frame(after(24_000), (AUDIO, 0), Frame::new(0, false, Bytes::from_static(b"sound")), None);
    ingest.connected(after(30_000));
    assert!(!ingest.is_silent(after(1_000_000)));
    // Data channels alone are no reason to end a publisher.
    let mut ingest = Ingest::new(start, &grant(), &[]);
    ingest.require_media();
    ingest.connected(start);
    assert_eq!(ingest.poll_timeout(), None);
}

#[test]
fn a_publisher_that_sends_no_media_loses_its_stream() {
    let start = Instant::now();
    let mut session = granted_publisher(start);
    let (apps, server, blobs) = (Apps::new(), SessionSettings::default(), Blobs::default());
    let at = |ms| Now { mono: start + Duration::from_millis(ms), wall_ms: 0 };
    let context = |now| Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
    let events = |session: &mut RtcSession, now| -> Vec<String> {
        let events = std::iter::from_fn(|| session.poll_event(&context(now)));
        events.map(|event| format!("{event:?}")).collect()
    };
    events(&mut session, at(0));
    session.note_connected(&context(at(1000)));
    session.publisher_timeout(&context(at(20_999)));
    let before = events(&mut session, at(20_999));
    assert!(!before.iter().any(|event| event.contains("Over")), "{before:?}");
    session.publisher_timeout(&context(at(21_000)));
    let ended = events(&mut session, at(21_000));
    assert!(ended.iter().any(|event| event.contains("Over(Lost)")), "{ended:?}");
    assert!(ended.last().unwrap().contains("the publisher sends no media"), "{ended:?}");
}

#[test]
fn a_codec_that_is_switched_off_is_neither_taken_nor_given() {
    for (key, codec, name) in [
        ("h264Enabled", Codec::H264, "H264"),
        ("h265Enabled", Codec::H265, "H265"),
        ("vp8Enabled", Codec::Vp8, "VP8"),
        ("av1Enabled", Codec::Av1, "AV1"),
    ] {
        let (on, off) = (with(key, "true"), with(key, "false"));
        let first = |codecs: &[Codec], has| encoding(&published(codecs, has)[0]).to_owned();
        assert_eq!(first(&[codec, Codec::Vp9], on), name);
        assert_eq!(first(&[codec, Codec::Vp9], off), "VP9", "{key}");
        let offer = offer(&[codec], Direction::SendRecv);
        assert!(!negotiation::leaves_out_video(&offer, on) && negotiation::leaves_out_video(&offer, off));
    }
    let stream = tracks(h264(0x42));
    let kinds = |has: Codecs| has.of(&stream).iter().map(Track::kind).collect::<Vec<_>>();
    assert_eq!(kinds(with("vp8Enabled", "false")), [TrackKind::Video, TrackKind::Audio]);
    assert_eq!(kinds(with("h264Enabled", "false")), [TrackKind::Audio], "viewers have the sound");
}

pub(super) fn h264(profile: u8) -> CodecConfig {
    let mut sps = SPS.to_vec();
    sps[1] = profile;
    CodecConfig::H264(h264::Config::of_sets(&[&sps], &[PPS]).unwrap())
}

pub(super) fn tracks(video: CodecConfig) -> Tracks {
    let audio = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
    let track = |id, config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) };
    Tracks::new(1, [track(TrackId::VIDEO, video), track(TrackId::AUDIO, audio)])
}

#[test]
fn a_viewer_is_answered_with_the_streams_own_profile_and_idle_where_nothing_fits() {
    let now = Instant::now();
    let given = |tracks: &Tracks, codecs: &[Codec]| {
        let (mut server, mut taken) = (peer(now, 2, true), Taken::default());
        let offer = offer(codecs, Direction::RecvOnly);
        let stream = Shown { tracks, codecs: Codecs::ALL, to_come: &[], id: "s" };
        server.handle_offer(now, &offer, |_, media| negotiation::give(media, stream, &mut taken)).unwrap();
        server.sections().to_vec()
    };
    let baseline = given(&tracks(h264(0x42)), &[Codec::Vp8, Codec::H264]);
    assert!(profile(&baseline[0]).starts_with("42"), "{}", profile(&baseline[0]));
    let high = given(&tracks(h264(0x64)), &[Codec::H264]);
    assert!(profile(&high[0]).starts_with("64"), "{}", profile(&high[0]));
    assert_eq!(high[0].msid.as_ref().unwrap().track.as_deref(), Some("ARDAMSvs"));
    let none = given(&tracks(h264(0x42)), &[Codec::Vp8]);
    assert_eq!((none[0].direction, none[1].direction), (Direction::Inactive, Direction::SendOnly));
}

/// A request to play `live/s`, for which the server makes the offer.
pub(super) fn play_ask(choice: Option<Choice>) -> Ask {
    Ask {
        publishes: false,
        key: StreamKey::new("live", "s"),
        params: Vec::new(),
        user_agent: String::new(),
        origin: String::new(),
        of_foreign_page: false,
        offer: None,
        choice,
        secret: 1,
    }
}

#[test]
fn an_offer_that_nobody_waits_for_changes_nothing() {
    let now = Now { mono: Instant::now(), wall_ms: 0 };
    let (apps, server, blobs) = (Apps::new(), SessionSettings::default(), Blobs::default());
    let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
    let asker = SessionRef::new(WorkerId(0), ConnId { slot: 1, generation: 0 });
    let ask = play_ask(None);
    let parts = (config(2, true), anchor(now.mono), "192.0.2.1:5000".parse().unwrap());
    let mut viewer = RtcSession::new(&ctx, parts, asker, ask, Seed::from_number(2)).unwrap();
    let message = Message::new(ToSession::Offer(offer(&[Codec::H264], Direction::SendRecv)));
    viewer.handle_reply(&ctx, Reply::Family(FamilyNews::Message { from: asker, message }));
    let verdict = Ok(&tracks(h264(0x42)));
    viewer.handle_reply(&ctx, Reply::Subscription(Handle::ONLY, SubscriptionNews::Verdict(verdict)));
    let said = said(&mut viewer, &ctx);
    assert!(matches!(said[..], [FromSession::Described(_)]), "a viewer waits for our offer: {said:?}");
}

/// The messages of a session to its controller.
fn said(session: &mut RtcSession, ctx: &Context<'_>) -> Vec<FromSession> {
    let message = |event| {
        let Event::Family(FamilyEvent::Tell { message, .. }) = event else { return None };
        message.content::<FromSession>().cloned()
    };
    std::iter::from_fn(|| session.poll_event(ctx)).filter_map(message).collect()
}

#[test]
fn a_later_offer_of_a_publisher_that_cannot_be_accepted_is_answered_and_ends_nothing() {
    let now = Now { mono: Instant::now(), wall_ms: 0 };
    let (apps, server, blobs) = (Apps::new(), SessionSettings::default(), Blobs::default());
    let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
    let asker = SessionRef::new(WorkerId(0), ConnId { slot: 1, generation: 0 });
    let first = offer(&[Codec::H264], Direction::SendRecv);
    let ask = Ask { publishes: true, offer: Some(first.clone()), ..play_ask(None) };
    let parts = (config(2, true), anchor(now.mono), "192.0.2.1:5000".parse().unwrap());
    let mut publisher = RtcSession::new(&ctx, parts, asker, ask, Seed::from_number(2)).unwrap();
    let verdict = PublicationNews::Verdict(Ok(grant()));
    publisher.handle_reply(&ctx, Reply::Publication(Handle::ONLY, verdict));
    assert!(matches!(said(&mut publisher, &ctx)[..], [FromSession::Described(_)]));
    let mut offers = |offer: &Description| {
        let message = Message::new(ToSession::Offer(offer.clone()));
        publisher.handle_reply(&ctx, Reply::Family(FamilyNews::Message { from: asker, message }));
        said(&mut publisher, &ctx)
    };
    // Another codec needs another session.
    let other = Description::read(first.write().replace("H264/", "VP8/").as_bytes()).unwrap();
    let answered = offers(&other);
    assert!(matches!(answered[..], [FromSession::OfferRefused]), "{answered:?}");
    let answered = offers(&first);
    assert!(matches!(answered[..], [FromSession::Described(_)]), "{answered:?}");
}

// ---- publishers

fn picture(nals: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::new();
    nals.iter().for_each(|one| nal::put_with_length(one, &mut out));
    out.freeze()
}

fn frame(timestamp: u32, key_frame: bool, payload: Bytes) -> Frame {
    Frame::new(timestamp, key_frame, payload)
}

fn key(timestamp: u32) -> Frame {
    frame(timestamp, true, picture(&[SPS, PPS, IDR]))
}

fn sound(timestamp: u32) -> Frame {
    frame(timestamp, false, Bytes::from_static(&[0xfc, 1, 2]))
}

fn units(ingest: &mut Ingest) -> Vec<(TrackId, i64, bool)> {
    std::iter::from_fn(|| ingest.poll_unit())
        .map(|(unit, _)| (unit.track, unit.dts, unit.key_frame))
        .collect()
}

#[test]
fn the_first_units_wait_for_the_other_track_and_key_frames_bring_the_configuration() {
    let start = Instant::now();
    let mut ingest = Ingest::new(start, &grant(), &published(&[Codec::H264], Codecs::ALL));
    let at = |ms| start + Duration::from_millis(ms);
    ingest.frame(at(3000), (AUDIO, 0), sound(7), None);
    ingest.frame(at(3020), (AUDIO, 0), sound(967), None);
    assert_eq!(units(&mut ingest), [], "three seconds of handshake are not waited for");
    ingest.frame(at(3050), (VIDEO, 0), frame(1, false, picture(&[IDR])), None);
    assert_eq!((units(&mut ingest).len(), ingest.take_dropped()), (0, 1));
    ingest.frame(at(3080), (VIDEO, 0), key(2700), None);
    let (unit, tracks) = ingest.poll_unit().unwrap();
    assert_eq!(
        (unit.track, unit.dts, tracks.iter().count()),
        (TrackId::AUDIO, 0, 2),
        "both are known from the first on"
    );
    assert_eq!(tracks.video().unwrap().config.picture_size(), Some((640, 352)));
    assert_eq!(units(&mut ingest), [(TrackId::AUDIO, 1800, false), (TrackId::VIDEO, 4500 + 2699, true)]);
    // The parameter sets are removed from the payload: they are kept in the track's configuration.
    ingest.frame(at(3113), (VIDEO, 0), key(5700), None);
    assert_eq!(ingest.poll_unit().unwrap().0.payload, picture(&[IDR]));
    ingest.lost(VIDEO, 0);
    ingest.frame(at(3146), (VIDEO, 0), frame(8700, false, picture(&[IDR])), None);
    assert_eq!((units(&mut ingest).len(), ingest.take_dropped()), (0, 1));
}

#[test]
fn a_publisher_of_one_track_waits_no_longer_than_two_seconds() {
    let start = Instant::now();
    let mut ingest = Ingest::new(start, &grant(), &published(&[Codec::H264], Codecs::ALL));
    for n in 0..99u32 {
        ingest.frame(start + Duration::from_millis(u64::from(n) * 20), (AUDIO, 0), sound(n * 960), None);
    }
    assert!(units(&mut ingest).is_empty());
    assert_eq!(ingest.poll_timeout(), Some(start + Duration::from_secs(2)));
    ingest.try_start(start + Duration::from_secs(2));
    assert_eq!(units(&mut ingest).len(), 99);
}

#[test]
fn lips_come_into_step_without_a_leap() {
    let start = Instant::now();
    let mut ingest = Ingest::new(start, &grant(), &published(&[Codec::H264], Codecs::ALL));
    let zero = NtpTime::new(5 << 32);
    // Pictures arrive 200 ms later than the audio sampled with them.
    let mut last = [0; 2];
    let sampled = |n: u32| Some(zero.plus(Duration::from_millis(u64::from(n) * 20)));
    for n in 0..300u32 {
        let now = start + Duration::from_millis(u64::from(n) * 20);
        ingest.frame(now, (AUDIO, 0), sound(n * 960), sampled(n));
        if let Some(late) = n.checked_sub(10) {
            ingest.frame(now, (VIDEO, 0), key(late * 1800), sampled(late));
        }
        for (track, dts, _) in units(&mut ingest) {
            let before = std::mem::replace(&mut last[usize::from(track == TrackId::AUDIO)], dts);
            assert!(n < 12 || (900..=2700).contains(&(dts - before)), "{n}: {before} to {dts}");
        }
    }
    assert!((last[1] - last[0] - 18_000).abs() < 20, "{last:?}");
}

/// A key frame of VP8 (RFC 6386 §9.1) with this width and height in pixels.
fn vp8_key(timestamp: u32, width: u16, height: u16) -> Frame {
    let [a, b] = width.to_le_bytes();
    let [c, d] = height.to_le_bytes();
    let payload = [&[0x50, 0x42, 0, 0x9d, 0x01, 0x2a, a, b, c, d][..], &[7; 200]].concat();
    frame(timestamp, true, payload.into())
}

#[test]
fn layers_are_renditions_and_one_that_is_not_sent_leaves_the_stream() {
    let start = Instant::now();
    let mut sections = published(&[Codec::Vp8], Codecs::ALL);
    sections[0].layers = vec!["l".to_owned(), "h".to_owned()];
    let mut ingest = Ingest::new(start, &grant(), &sections);
    let delta = |timestamp| frame(timestamp, false, Bytes::from_static(&[0x51, 1, 2]));
    let (low, high) = (TrackId::VIDEO, TrackId::nth(TrackKind::Video, 1).unwrap());
    let mut tracks = Arc::default();
    let mut sent = Vec::new();
    for n in 0..400u32 {
        let now = start + Duration::from_millis(u64::from(n) * 20);
        ingest.frame(now, (AUDIO, 0), sound(n * 960), None);
        let video = if n % 50 == 0 { vp8_key(n * 1800, 320, 180) } else { delta(n * 1800) };
        assert!(ingest.frame(now, (VIDEO, 0), video, None));
        // The larger layer begins after a second, and pauses from the third second to the sixth.
        if n >= 50 && !(150..300).contains(&n) {
            let is_taken = ingest.frame(now, (VIDEO, 1), delta(7 + n * 1800), None);
            assert_eq!(is_taken, n != 50 && n != 300, "{n}");
            if !is_taken {
                assert!(ingest.frame(now, (VIDEO, 1), vp8_key(7 + n * 1800, 640, 360), None));
            }
        }
        while let Some((unit, of)) = ingest.poll_unit() {
            (sent.push((n, unit.track)), tracks = of).0
        }
        let rendition = |id| Tracks::get(&tracks, id).and_then(|track| track.rendition.clone());
        let is_there = rendition(high).is_some();
        assert_eq!(is_there, (50..249).contains(&n) || n >= 300, "{n}");
        assert_eq!(tracks.video().unwrap().id, if is_there { high } else { low });
        if n == 399 {
            let (low, high) = (rendition(low).unwrap(), rendition(high).unwrap());
            assert_eq!((low.group, high.group), (1, 1));
            assert_eq!(((low.width, low.height), (high.width, high.height)), ((320, 180), (640, 360)));
            assert!(low.bit_rate > 0 && high.bit_rate > 0);
        }
    }
    assert_eq!(ingest.source_of(high), Some((VIDEO, 1)));
    assert!(sent.iter().filter(|(_, track)| *track == high).count() > 190);
}

#[test]
fn a_publisher_that_pauses_keeps_all_its_layers() {
    let start = Instant::now();
    let mut sections = published(&[Codec::Vp8], Codecs::ALL);
    sections[0].layers = vec!["l".to_owned(), "m".to_owned(), "h".to_owned()];
    let mut simulcast = Ingest::new(start, &grant(), &sections);
    let mut spatial = Ingest::new(start, &grant(), &published(&[Codec::Vp9], Codecs::ALL));
    let mut now = start;
    let known = |ingest: &mut Ingest| {
        std::iter::from_fn(|| ingest.poll_unit())
            .last()
            .map(|(_, tracks)| tracks.of_kind(TrackKind::Video).count())
    };
    // Pauses of all lengths, each after half a second of frames. Only the first frames are key frames.
    for (n, pause) in [0, 300, 600, 1100, 2000, 2500, 9000, 60_000].into_iter().enumerate() {
        now += Duration::from_millis(pause);
        for picture in 0..25u32 {
            let (is_first, stamp) =
                (n == 0 && picture == 0, u32::try_from(n).unwrap() * 9_000_000 + picture * 1800);
            for layer in 0..3u8 {
                // Layers of a simulcast return one after the other.
                let returned = u64::from(picture) * 20 >= u64::from(layer) * 100 || n == 0;
                let delta = frame(stamp, false, Bytes::from_static(&[0x51, 1, 2]));
                let video = if is_first { vp8_key(stamp, 320 << layer, 180 << layer) } else { delta };
                assert!(!returned || simulcast.frame(now, (VIDEO, layer), video, None), "{pause} {picture}");
                let picture = vp9_layer(stamp, is_first, 2 - layer, 2);
                assert!(spatial.frame(now, (VIDEO, 0), picture, None), "{pause}");
            }
            simulcast.frame(now, (AUDIO, 0), sound(stamp / 2), None);
            spatial.frame(now, (AUDIO, 0), sound(stamp / 2), None);
            now += Duration::from_millis(20);
        }
        assert_eq!((known(&mut simulcast), known(&mut spatial)), (Some(3), Some(3)), "{pause}");
    }
}

/// A frame of VP9 of one spatial layer (of three), with its size in key frames.
fn vp9_layer(timestamp: u32, key_frame: bool, index: u8, top: u8) -> Frame {
    let size = key_frame.then_some((160 << index, 90 << index));
    let payload = Bytes::from(vec![0x86; 10 << index]);
    Frame { layer: SpatialLayer { index, top, size }, ..frame(timestamp, key_frame, payload) }
}

#[test]
fn spatial_layers_are_renditions_and_the_lowest_one_keeps_the_track() {
    let start = Instant::now();
    let mut ingest = Ingest::new(start, &grant(), &published(&[Codec::Vp9], Codecs::ALL));
    let mut at = 0;
    let mut tracks = Arc::default();
    // Gives a picture whose layers are listed, the top layer first. Returns the tracks of its units.
    let mut picture = |ingest: &mut Ingest, key: bool, layers: &[u8], top: u8| {
        at += 1;
        let now = start + Duration::from_millis(u64::from(at) * 40);
        ingest.frame(now, (AUDIO, 0), sound(at * 1920), None);
        for layer in layers {
            ingest.frame(now, (VIDEO, 0), vp9_layer(at * 3600, key, *layer, top), None);
        }
        let mut units = Vec::new();
        while let Some((unit, of)) = ingest.poll_unit() {
            tracks = of;
            if unit.track != TrackId::AUDIO {
                units.push((unit.track, unit.payload.len(), unit.dts));
            }
        }
        let renditions = tracks.of_kind(TrackKind::Video).map(|track| (track.id, track.picture_size()));
        (units, renditions.collect::<Vec<_>>())
    };
    let id = |n| TrackId::nth(TrackKind::Video, n).unwrap();
    let ids = |units: &[(TrackId, usize, i64)]| units.iter().map(|unit| unit.0).collect::<Vec<_>>();

    let (units, known) = picture(&mut ingest, true, &[0], 0);
    assert_eq!((ids(&units), known), (vec![id(0)], vec![(id(0), Some((160, 90)))]), "before any layers");
    let (units, known) = picture(&mut ingest, true, &[2, 1, 0], 2);
    assert_eq!(ids(&units), [id(1), id(2), id(0)], "the top layer comes first");
    assert_eq!(known, [(id(0), Some((160, 90))), (id(1), Some((640, 360))), (id(2), Some((320, 180)))]);
    assert!(units.iter().all(|unit| unit.2 == units[0].2), "one time: {units:?}");
    let (units, _) = picture(&mut ingest, false, &[2, 1, 0], 2);
    assert_eq!(units.iter().map(|unit| unit.1).collect::<Vec<_>>(), [40, 20, 10]);
    // The publisher omits the top layer: it leaves after half a second, and returns with a key frame.
    let mut left = None;
    for n in 0..30 {
        let (units, known) = picture(&mut ingest, false, &[1, 0], 2);
        assert_eq!(ids(&units), [id(2), id(0)]);
        if known.len() == 2 {
            left.get_or_insert(n);
        }
    }
    assert!(left.is_some_and(|n| (11..=14).contains(&n)), "{left:?}");
    assert_eq!(ids(&picture(&mut ingest, false, &[2, 1, 0], 2).0), [id(2), id(0)], "before its key frame");
    assert_eq!(picture(&mut ingest, true, &[2, 1, 0], 2).1.len(), 3);
    // A key picture with fewer layers: the upper ones leave at once.
    let (units, known) = picture(&mut ingest, true, &[0], 0);
    assert_eq!((ids(&units), known), (vec![id(0)], vec![(id(0), Some((160, 90)))]));
    assert_eq!(ids(&picture(&mut ingest, true, &[2, 1, 0], 2).0), [id(1), id(2), id(0)]);
    // A loss concerns all layers.
    ingest.lost(VIDEO, 0);
    assert_eq!(ids(&picture(&mut ingest, false, &[2, 1, 0], 2).0), []);
    assert_eq!(ids(&picture(&mut ingest, true, &[2, 1, 0], 2).0), [id(1), id(2), id(0)]);
    assert!((0..3).all(|n| ingest.source_of(id(n)) == Some((VIDEO, 0))));
}

// ---- viewers

fn entry(pts: i64, dts: i64, key_frame: bool, reference: bool, tracks: &Arc<Tracks>) -> Entry {
    let head = if key_frame {
        0x65
    } else if reference {
        0x41
    } else {
        0x01
    };
    let payload = picture(&[&[head, 0x88, 0x84, 0, 0x10]]);
    let unit = AccessUnit { track: TrackId::VIDEO, dts, pts, key_frame, config_epoch: 1, payload };
    Entry::new(Instant::now(), 0, unit, Arc::clone(tracks))
}

#[test]
fn pictures_that_come_late_are_left_out() {
    let tracks = Arc::new(tracks(h264(0x64)));
    let mut package = RtcPackage::default();
    let mut chosen = Chosen::default();
    chosen.update(Selection::DEFAULT, &tracks, &|_| crate::hub::Fit::Well);
    let mut sent = |pts, dts, key, reference| {
        let item = package.unit(&entry(pts, dts, key, reference, &tracks), &chosen);
        item.packets().map(|packets| packets.unit.timestamp)
    };
    assert_eq!(sent(66, 0, true, true), Some(66 * 90));
    assert_eq!(sent(166, 33, false, true), Some(166 * 90));
    assert_eq!(sent(100, 66, false, false), None);
    assert_eq!(sent(133, 100, false, true), None, "others may need it, and no browser puts it in order");
    assert_eq!(sent(200, 133, false, false), Some(200 * 90), "in order");
    assert_eq!(package.take_left_out(), Some(2));
    assert_eq!(package.take_left_out(), None);
    assert_eq!(package.edge(TrackId::VIDEO).unwrap().1, 200 * 90);
    assert!(package.log(TrackId::AUDIO).is_none());
}

#[test]
fn packets_are_kept_from_the_newest_key_frame_on() {
    let tracks = Arc::new(tracks(h264(0x42)));
    let mut package = RtcPackage::default();
    let chosen = Chosen::default();
    let start = Instant::now();
    let mut kept = Vec::new();
    for n in 0..60i64 {
        let mut entry = entry(n * 250, n * 250, n % 20 == 0, true, &tracks);
        entry.received = start + Duration::from_millis(n as u64 * 250);
        package.unit(&entry, &chosen);
        if n >= 19 && [3, 7, 11, 19].contains(&(n % 20)) || n == 19 {
            kept.push(package.log(TrackId::VIDEO).unwrap().len());
        }
    }
    // Four pictures a second, one packet each, with a key frame every five seconds. A viewer that began with the
    // key frame before the newest has four seconds to catch up.
    assert_eq!(kept, [20, 24, 28, 32, 20, 24, 28, 32, 20]);
    assert_eq!(tracks.of_kind(TrackKind::Video).count(), 1);
}
