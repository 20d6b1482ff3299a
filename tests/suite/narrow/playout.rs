//! The playout delay that the server requests of a WebRTC viewer while it leaves pictures out, and afterwards.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crypto::Seed;
use ice::Path;
use media::codec::Codec;
use millstream::protocol::load::{ClientDatagrams, ClientStream, LoadEvent, LoadPlayer};
use millstream::protocol::{PathId, To};
use netsim::{MediaSource, ms, secs};
use rtp::extension::PlayoutDelay;
use sdp::{Description, Direction, MediaKind};
use webrtc::{Config, Event, IceMode, MediaPreference, Peer, SectionId, offered_formats};
use wire::{Datagrams, SendQueue};

use super::clients::Signalling;
use super::{FPS, GOP, PICTURE, path};
use crate::support::world::{Over, World};

/// Observations of the viewer, shared with the test.
type Heard = Arc<Mutex<Noted>>;

#[derive(Debug, Default)]
struct Noted {
    /// Last playout delay that the server requested.
    delay: Option<PlayoutDelay>,
    /// Arrival and timestamp of each picture.
    pictures: Vec<(Instant, u32)>,
}

/// A WHEP viewer that records the requested playout delay and the arrival of pictures.
#[derive(Debug)]
struct Viewer {
    signalling: Signalling,
    peer: Peer,
    local: Option<SocketAddr>,
    heard: Heard,
    is_ready: bool,
}

impl Viewer {
    fn new(now: Instant, id: &str, seed: Seed, heard: Heard) -> Self {
        let identity = Arc::new(dtls::Identity::self_signed(&seed).unwrap());
        let config = Arc::new(Config::new(IceMode::Full(Arc::default()), identity));
        let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
        let peer = Peer::new(now, config, anchor, seed).unwrap();
        let signalling = Signalling::new(format!("/live/whep/{id}"));
        Self { signalling, peer, local: None, heard, is_ready: false }
    }

    fn drain(&mut self, now: Instant) {
        let mut heard = self.heard.lock().unwrap();
        while let Some(event) = self.peer.poll_event() {
            self.is_ready |= matches!(event, Event::Connected);
            if let Event::Frame { section: SectionId(0), frame, .. } = event {
                heard.pictures.push((now, frame.timestamp));
            }
        }
        heard.delay = self.peer.playout_delay();
    }
}

impl ClientStream for Viewer {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some((answer, _)) = self.signalling.take(bytes) {
            self.peer.handle_answer(now, &Description::read(answer.as_bytes()).unwrap()).unwrap();
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.signalling.poll(out);
    }
}

impl ClientDatagrams for Viewer {
    fn handle_local(&mut self, now: Instant, _: PathId, local: Option<SocketAddr>) {
        self.local = local;
        self.peer.add_local(now, local.unwrap()).unwrap();
        let of = |kind, codec, first| {
            let formats = offered_formats(codec, first);
            (kind, MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
        };
        let sections = [of(MediaKind::Video, Codec::H264, 96), of(MediaKind::Audio, Codec::Opus, 111)];
        let offer = self.peer.offer(&sections).unwrap().write();
        self.signalling.ask(&offer);
    }

    fn handle_datagram(&mut self, now: Instant, _: PathId, from: SocketAddr, datagram: &mut [u8]) {
        self.peer.handle_datagram(now, Path::udp(self.local.unwrap(), from), datagram);
        self.drain(now);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        To::of_socket(self.peer.poll_transmit(now, |_| None, out).map(|path| path.remote))
    }
}

impl LoadPlayer for Viewer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.peer.handle_timeout(now);
        self.drain(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        std::mem::take(&mut self.is_ready).then_some(LoadEvent::Ready)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.peer.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.peer.close(now);
    }
}

/// N-07: while pictures are left out for a browser, the server requests that it shows pictures on arrival. Afterwards,
/// the server requests the usual buffer.
#[test]
fn a_viewer_is_asked_for_a_short_buffer_while_pictures_are_left_out() {
    let mut world = World::new(7, 1, &[]);
    let source = MediaSource::new(&Seed::from_number(7)).fps(FPS).gop(GOP).sizes(PICTURE, 170);
    let publisher = world.publish("live", "one", source);
    world.run_until("the publisher", secs(5), |world| world.is_ready(publisher));
    let (heard, seed) = (Heard::default(), world.client_seed());
    let machine = Viewer::new(world.instant(), "one", seed, Arc::clone(&heard));
    let viewer = world.watch_by(Over::WebRtc, Box::new(machine));
    let requested = |world: &mut World, percent, time| {
        world.narrow(viewer, path(percent));
        world.run_for(time);
        heard.lock().unwrap().delay.map(|delay| (delay.min, delay.max))
    };
    assert_eq!(requested(&mut world, 1000, secs(5)), None, "nothing is left out");
    assert_eq!(requested(&mut world, 60, secs(10)), Some((ms(0), ms(500))));
    assert_eq!(requested(&mut world, 1000, secs(60)), Some((ms(0), secs(10))));
}

/// Returns the timestamp ticks per millisecond, as seen by a receiver that fits a line through arrival times and
/// timestamps.
fn clock_rate_seen(pictures: &[(Instant, u32)]) -> f64 {
    let (start, first) = pictures[0];
    let points: Vec<(f64, f64)> = pictures
        .iter()
        .map(|(at, timestamp)| {
            ((*at - start).as_secs_f64() * 1000.0, f64::from(timestamp.wrapping_sub(first)))
        })
        .collect();
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    above / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}

/// N-07: the first GOP of a new viewer may take long on a slow path. Nevertheless, the sender's clock must seem to run
/// at the right rate, because a browser would otherwise delay pictures.
#[test]
fn a_newcomer_sees_a_clock_of_the_right_rate_however_long_its_beginning_takes() {
    for (percent, joins_at) in [(1000, 1900), (300, 1900), (150, 1700), (120, 1200)] {
        let mut world = World::new(9, 1, &[]);
        let source = MediaSource::new(&Seed::from_number(9)).fps(FPS).gop(GOP).sizes(PICTURE, 170);
        let publisher = world.publish("live", "one", source);
        world.run_until("the publisher", secs(5), |world| world.is_ready(publisher));
        world.run_for(ms(joins_at));
        let (heard, seed) = (Heard::default(), world.client_seed());
        let machine = Viewer::new(world.instant(), "one", seed, Arc::clone(&heard));
        let viewer = world.watch_by(Over::WebRtc, Box::new(machine));
        world.narrow(viewer, path(percent));
        world.run_for(secs(3));
        let noted = heard.lock().unwrap();
        let rate = clock_rate_seen(&noted.pictures);
        println!("{percent} %: {} pictures, {rate:.0} ticks per millisecond", noted.pictures.len());
        assert!((75.0..=110.0).contains(&rate), "{percent} %: {rate:.1} ticks per millisecond");
    }
}
