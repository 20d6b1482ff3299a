//! Simulations of later offers, for a viewer of a room whose participants come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use ice::Path;
use media::codec::{Codec, CodecConfig, opus, vp8};
use rtp::NtpAnchor;
use sdp::{Description, Direction, MediaKind, Msid};
use webrtc::{Config, Error, Event, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::Datagrams;

use crate::harness::{CLIENT, SERVER, client_config, server_config};

/// Offer for one place of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Inactive section, which only carries the transport.
    Idle,
    Audio(u8),
    Video(u8),
    Withdrawn(Codec),
    /// Section for data channels.
    Data,
}

impl Place {
    fn preference(self) -> (MediaKind, MediaPreference) {
        let msid = |n: u8| Some(Msid { stream: "room".to_owned(), track: Some(format!("participant{n}")) });
        let of = |codec, direction, msid| {
            let number = if codec == Codec::Opus { 111 } else { 96 };
            MediaPreference { direction, formats: offered_formats(codec, number), msid }
        };
        match self {
            Self::Idle => (MediaKind::Audio, of(Codec::Opus, Direction::Inactive, None)),
            Self::Audio(n) => (MediaKind::Audio, of(Codec::Opus, Direction::SendOnly, msid(n))),
            Self::Video(n) => (MediaKind::Video, of(Codec::Vp8, Direction::SendOnly, msid(n))),
            Self::Data => {
                let nothing =
                    MediaPreference { direction: Direction::SendOnly, formats: Vec::new(), msid: None };
                (MediaKind::Application, nothing)
            }
            Self::Withdrawn(codec) => {
                let kind = if codec == Codec::Opus { MediaKind::Audio } else { MediaKind::Video };
                (kind, MediaPreference { direction: Direction::SendOnly, formats: Vec::new(), msid: None })
            }
        }
    }
}

struct Room {
    now: Instant,
    server: Peer,
    client: Peer,
    tracks: BTreeMap<SectionId, Track>,
    came: BTreeMap<SectionId, Vec<Bytes>>,
    /// Sections whose frames came with their sampling time, which sender reports tell.
    timed: BTreeSet<SectionId>,
    /// Messages received on data channels.
    said: Vec<Bytes>,
    connected: BTreeSet<bool>,
    /// Bytes carried to the client.
    carried: usize,
    offers: Vec<Description>,
}

impl Room {
    fn new() -> Self {
        Self::of(server_config())
    }

    fn of(config: Config) -> Self {
        let now = netsim::Clock::new().now();
        let anchor = NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
        let peer = |config, seed| Peer::new(now, Arc::new(config), anchor, Seed::from_number(seed)).unwrap();
        let mut client = peer(Config { takes_changes: true, ..client_config() }, 1);
        client.add_local(now, CLIENT).unwrap();
        Self {
            now,
            server: peer(config, 2),
            client,
            tracks: BTreeMap::new(),
            came: BTreeMap::new(),
            timed: BTreeSet::new(),
            said: Vec::new(),
            connected: BTreeSet::new(),
            carried: 0,
            offers: Vec::new(),
        }
    }

    /// Exchanges our offer and the answer to it, as text.
    fn negotiate(&mut self, places: &[Place]) {
        let preferences: Vec<_> = places.iter().map(|place| place.preference()).collect();
        let read = |text: &str| Description::read(text.as_bytes()).unwrap();
        let offer = read(&self.server.offer(&preferences).unwrap().write());
        let answer = self.client.handle_offer(self.now, &offer, |_, media| {
            let codec = if media.kind == MediaKind::Audio { Codec::Opus } else { Codec::Vp8 };
            let direction = offer.direction(media).reverse();
            Some(MediaPreference { direction, formats: offered_formats(codec, 96), msid: None })
        });
        let answer = read(&answer.unwrap().write());
        self.server.handle_answer(self.now, &answer).unwrap();
        self.offers.push(offer);
        for (id, place) in (0..).map(SectionId).zip(places) {
            match place {
                Place::Audio(_) => self.begin(id, Codec::Opus),
                Place::Video(_) => self.begin(id, Codec::Vp8),
                Place::Idle | Place::Data | Place::Withdrawn(_) => drop(self.tracks.remove(&id)),
            }
        }
    }

    fn begin(&mut self, id: SectionId, codec: Codec) {
        let track = || Track::new(codec, Peer::payload_bytes_max(&server_config())).unwrap();
        self.tracks.entry(id).or_insert_with(track);
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(5);
            let now = self.now;
            self.server.handle_timeout(now);
            self.client.handle_timeout(now);
            let tracks = &self.tracks;
            self.carried += carry(now, &mut self.server, &mut self.client, |id| tracks.get(&id));
            carry(now, &mut self.client, &mut self.server, |_| None);
            for (is_client, peer) in [(false, &mut self.server), (true, &mut self.client)] {
                while let Some(event) = peer.poll_event() {
                    match event {
                        Event::Connected => drop(self.connected.insert(is_client)),
                        Event::Frame { section, frame, sampled, .. } => {
                            self.timed.extend(sampled.map(|_| section));
                            self.came.entry(section).or_default().push(frame.payload);
                        }
                        Event::Message { payload, .. } => self.said.push(payload),
                        Event::Closed(reason) => panic!("closed: {reason:?}"),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Sends a unit in each section, and returns the sections whose unit arrived intact.
    fn send(&mut self, mark: u8) -> BTreeSet<u8> {
        self.came.clear();
        for (id, track) in &mut self.tracks {
            let is_video =
                self.server.sections().iter().any(|one| one.id == *id && one.kind == MediaKind::Video);
            let (config, payload) = if is_video {
                // The header of a key frame of 16 x 16 pixels (RFC 6386 §9.1).
                let head = [0x10, 2, 0, 0x9d, 1, 0x2a, 16, 0, 16, 0];
                (CodecConfig::Vp8(vp8::Config::default()), [&head[..], &[0; 900], &[mark, id.0]].concat())
            } else {
                (CodecConfig::Opus(opus::Config::of_channels(2).unwrap()), vec![0xfc, mark, id.0])
            };
            let unit = track.push(self.now, &config, true, 9000 * u32::from(mark), &payload).unwrap();
            assert!(self.server.send(*id, &unit, self.now), "section {}", id.0);
        }
        self.run(Duration::from_millis(200));
        let whole = |(id, frames): (&SectionId, &Vec<Bytes>)| {
            frames.iter().any(|frame| frame.ends_with(&[mark, id.0])).then_some(id.0)
        };
        self.came.iter().filter_map(whole).collect()
    }
}

/// Carries the datagrams of a peer to the other, and returns their bytes.
fn carry<'l>(
    now: Instant,
    from: &mut Peer,
    to: &mut Peer,
    track: impl Fn(SectionId) -> Option<&'l Track>,
) -> usize {
    let mut carried = 0;
    let mut out = Datagrams::new();
    while let Some(path) = from.poll_transmit(now, |id| track(id).map(Track::log), &mut out) {
        let path = Path::udp(path.remote, path.local);
        (0..out.len()).for_each(|n| to.handle_datagram(now, path, &mut out.get(n).to_vec()));
        carried += out.iter().map(<[u8]>::len).sum::<usize>();
        out.clear();
    }
    carried
}

fn mids(offer: &Description) -> Vec<&str> {
    offer.media.iter().filter_map(|media| media.attributes.mid()).collect()
}

#[test]
fn participants_come_and_go_while_the_others_go_on() {
    let mut room = Room::new();
    // An empty room connects as well.
    room.negotiate(&[Place::Idle]);
    room.run(Duration::from_secs(2));
    assert_eq!(room.connected.len(), 2);
    room.negotiate(&[Place::Idle, Place::Audio(1), Place::Video(1)]);
    assert_eq!(room.send(1), [1, 2].into());
    room.negotiate(&[Place::Idle, Place::Audio(1), Place::Video(1), Place::Audio(2), Place::Video(2)]);
    assert_eq!(room.send(2), [1, 2, 3, 4].into());
    // A participant leaves, and the other is not affected.
    let (gone_audio, gone_video) = (Place::Withdrawn(Codec::Opus), Place::Withdrawn(Codec::Vp8));
    room.negotiate(&[Place::Idle, gone_audio, gone_video, Place::Audio(2), Place::Video(2)]);
    assert_eq!(room.send(3), [3, 4].into());
    let former: Vec<_> = room.client.sections().iter().flat_map(|one| one.remote_sources.clone()).collect();
    // A third participant takes the places, with new mids and sources.
    room.negotiate(&[Place::Idle, Place::Audio(3), Place::Video(3), Place::Audio(2), Place::Video(2)]);
    assert_eq!(room.send(4), [1, 2, 3, 4].into());
    assert_eq!(mids(&room.offers[3]), ["0", "1", "2", "3", "4"]);
    assert_eq!(mids(&room.offers[4]), ["0", "5", "6", "3", "4"]);
    let now: Vec<_> = room.client.sections().iter().flat_map(|one| one.remote_sources.clone()).collect();
    assert_eq!((former.len(), now.len()), (2, 4));
    assert!(former.iter().all(|source| now.contains(source)));
    assert_eq!(room.client.stats().unknown_sources, 0);
}

#[test]
fn a_payload_type_means_the_same_in_all_offers() {
    let mut room = Room::new();
    room.negotiate(&[Place::Video(1)]);
    room.negotiate(&[Place::Video(1), Place::Audio(1), Place::Video(2)]);
    room.negotiate(&[Place::Withdrawn(Codec::Vp8), Place::Audio(1), Place::Video(2)]);
    room.negotiate(&[Place::Video(3), Place::Audio(1), Place::Video(2), Place::Audio(2)]);
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for offer in &room.offers {
        let text = offer.write();
        let bundle = text.lines().find(|line| line.starts_with("a=group:BUNDLE")).unwrap();
        let live = offer.media.iter().filter(|media| !media.is_rejected()).count();
        assert_eq!(bundle.split(' ').count() - 1, live, "{bundle}");
        for line in text.lines().filter_map(|line| line.strip_prefix("a=rtpmap:")) {
            let (number, format) = line.split_once(' ').unwrap();
            let before = known.entry(number.to_owned()).or_insert_with(|| format.to_owned());
            assert_eq!(before, format, "{number}");
        }
    }
    // VP8 and Opus, and for each the payload type that repeats its packets (RTX, RED).
    assert_eq!(known.len(), 4, "{known:?}");
}

#[test]
fn fifty_participants_fit() {
    let mut room = Room::new();
    let mut places = vec![Place::Idle];
    room.negotiate(&places);
    room.run(Duration::from_secs(2));
    for n in 0..50 {
        places.extend([Place::Audio(n), Place::Video(n)]);
    }
    room.negotiate(&places);
    let text = room.offers[1].write();
    assert!(text.len() < sdp::limits::BYTES_MAX, "{}", text.len());
    assert_eq!(room.server.sections().len(), 100);
}

#[test]
fn later_offers_that_cannot_be_made_change_nothing() {
    let mut room = Room::new();
    let preferences = |places: &[Place]| places.iter().map(|place| place.preference()).collect::<Vec<_>>();
    room.negotiate(&[Place::Idle, Place::Video(1)]);
    room.run(Duration::from_secs(2));
    // Refused: fewer sections, and media from the peer.
    assert_eq!(room.server.offer(&preferences(&[Place::Idle])).unwrap_err(), Error::State);
    let mut receives = preferences(&[Place::Idle, Place::Video(1), Place::Video(2)]);
    receives[2].1.direction = Direction::RecvOnly;
    assert_eq!(room.server.offer(&receives).unwrap_err(), Error::State);
    // Refused: a second offer before the first is answered, and an answer from another peer.
    let offer = room.server.offer(&preferences(&[Place::Idle, Place::Video(1), Place::Video(2)])).unwrap();
    assert_eq!(room.server.offer(&preferences(&[Place::Idle, Place::Video(1)])).unwrap_err(), Error::State);
    let offer = Description::read(offer.write().as_bytes()).unwrap();
    let anchor = NtpAnchor::new(room.now, Duration::from_secs(1_770_000_000));
    let mut stranger = Peer::new(room.now, Arc::new(client_config()), anchor, Seed::from_number(9)).unwrap();
    let takes = |_: SectionId, media: &sdp::Media| {
        let codec = if media.kind == MediaKind::Audio { Codec::Opus } else { Codec::Vp8 };
        let direction = offer.direction(media).reverse();
        Some(MediaPreference { direction, formats: offered_formats(codec, 96), msid: None })
    };
    let answer = stranger.handle_offer(room.now, &offer, takes).unwrap();
    let answer = Description::read(answer.write().as_bytes()).unwrap();
    assert_eq!(room.server.handle_answer(room.now, &answer), Err(Error::NewAssociation));
    assert_eq!(room.send(1), [1].into());
    let answer = room.client.handle_offer(room.now, &offer, takes).unwrap();
    let answer = Description::read(answer.write().as_bytes()).unwrap();
    assert_eq!(room.server.handle_answer(room.now, &answer), Ok(()));
    room.begin(SectionId(2), Codec::Vp8);
    assert_eq!(room.send(2), [1, 2].into());
    let server = SERVER;
    assert_eq!(room.client.media_path().map(|path| path.remote), Some(server));
}

#[test]
fn a_data_channel_goes_on_through_later_offers() {
    let mut room = Room::new();
    [&mut room.server, &mut room.client].into_iter().for_each(Peer::take_data);
    room.negotiate(&[Place::Idle, Place::Data]);
    room.run(Duration::from_secs(2));
    let channel = room.server.open_channel(room.now, "room", "", sctp::Options::default()).unwrap();
    let mut places = vec![Place::Idle, Place::Data];
    for n in 1..=3 {
        places.push(Place::Video(n));
        room.negotiate(&places);
        let text = format!("{n} are here");
        room.server.send_data(room.now, channel, sctp::Kind::Text, text.into()).unwrap();
        assert_eq!(room.send(n).len(), usize::from(n));
    }
    places[2] = Place::Withdrawn(Codec::Vp8);
    room.negotiate(&places);
    room.server.send_data(room.now, channel, sctp::Kind::Text, "one left".into()).unwrap();
    room.run(Duration::from_secs(1));
    assert_eq!(room.said, ["1 are here", "2 are here", "3 are here", "one left"]);
    assert_eq!(mids(&room.offers[4]), ["0", "1", "2", "3", "4"]);
}

/// Checks that reports about more sources than fit into a packet reach the peer, and so does the goodbye.
#[test]
fn every_source_of_a_large_room_has_reports_and_a_goodbye() {
    let mut room = Room::of(Config { datagram_bytes_max: 600, ..server_config() });
    let mut places = vec![Place::Idle];
    room.negotiate(&places);
    room.run(Duration::from_secs(2));
    for n in 0..15 {
        places.extend([Place::Audio(n), Place::Video(n)]);
    }
    room.negotiate(&places);
    for mark in 1..30 {
        assert_eq!(room.send(mark).len(), 30);
    }
    assert_eq!(room.timed.len(), 30);
    assert_eq!(room.client.stats().received.len(), 30);
    room.server.close(room.now);
    assert!(carry(room.now, &mut room.server, &mut room.client, |_| None) > 0);
    assert_eq!(room.client.stats().received, []);
}

/// Checks that a room is probed with the packets of whichever video is sent.
#[test]
fn a_probe_repeats_the_video_that_is_sent() {
    let mut room = Room::new();
    room.negotiate(&[Place::Idle, Place::Video(1), Place::Video(2)]);
    room.run(Duration::from_secs(2));
    // The first video is paused, and then its track is gone.
    for is_gone in [false, true] {
        assert_eq!(room.send(0), [1, 2].into());
        let paused = room.tracks.remove(&SectionId(1)).filter(|_| !is_gone);
        (1..20).for_each(|mark| assert_eq!(room.send(mark), [2].into()));
        room.tracks.extend(paused.map(|track| (SectionId(1), track)));
        let before = room.carried;
        assert!(room.server.probe(room.now, 2_000_000));
        room.run(Duration::from_millis(300));
        assert!(room.carried - before > 40_000, "{} of 50 000 bytes", room.carried - before);
    }
}
