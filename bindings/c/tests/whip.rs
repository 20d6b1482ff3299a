//! A publisher of WHIP and a port of the library: frames, losses and key frames.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ptr::null;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream::whip_port::*;
use millstream::{MillstreamAddress, MillstreamDatagram, MillstreamResult};
use netsim::{Clock, MediaSource, SyntheticUnit};
use webrtc::dtls::Identity;
use webrtc::ice::Path;
use webrtc::media::codec::{Codec, CodecConfig, h264};
use webrtc::rtp::NtpAnchor;
use webrtc::sdp::{Description, Direction, MediaKind};
use webrtc::{
    Config, Datagrams, Event, IceMode, MediaPreference, Peer, SectionId, Seed, Track, offered_formats,
};

const STEP_US: u64 = 5_000;
/// The test below sends the first key frame, and those before the second.
const GOP: u64 = 102;
const VIDEO: SectionId = SectionId(0);

const fn address(port: u16) -> MillstreamAddress {
    MillstreamAddress { ip: [127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ip_length: 4, port }
}

/// An event of the port: its kind, its codec, whether it is a key frame, and its data.
type Happened = (MillstreamWhipEventKind, MillstreamCodec, bool, Vec<u8>);

/// A publisher with one section of video or audio, and the port that it publishes to.
struct Session {
    whip: *mut MillstreamWhip,
    id: u64,
    peer: Peer,
    path: Path,
    track: Track,
    config: CodecConfig,
    units: VecDeque<SyntheticUnit>,
    begin: Instant,
    now_us: u64,
    /// True while media is lost on the way.
    loses: bool,
    key_frames_wanted: usize,
    /// True while the program takes no events.
    is_idle: bool,
    /// True once the publisher was told that the session has ended.
    is_over: bool,
    events: Vec<Happened>,
}

impl Session {
    fn new(kind: MediaKind, codec: Codec) -> Self {
        let begin = Clock::new().now();
        let (client, server) =
            (SocketAddr::from(([127, 0, 0, 1], 5000)), SocketAddr::from(([127, 0, 0, 1], 8000)));
        let identity = Identity::self_signed(&Seed::from_number(1)).unwrap();
        let config = Config::new(IceMode::Full(Arc::default()), Arc::new(identity));
        let payload_bytes_max = Peer::payload_bytes_max(&config);
        let anchor = NtpAnchor::new(begin, Duration::from_secs(1_770_000_000));
        let mut peer = Peer::new(begin, Arc::new(config), anchor, Seed::from_number(2)).unwrap();
        peer.add_local(begin, client).unwrap();
        let formats = offered_formats(codec, 96);
        let preference = MediaPreference { direction: Direction::SendOnly, formats, msid: None };
        let offer = peer.offer(&[(kind, preference)]).unwrap().write();
        let (local, mut id, mut answer, mut length) = (address(8000), 0, null(), 0);
        // SAFETY: the pointers are those of values that live, and the answer lives until the next call.
        let (whip, answer) = unsafe {
            let whip = millstream_whip_new(0, 0, &raw const local);
            let (data, bytes) = (offer.as_ptr(), offer.len());
            let made =
                millstream_whip_offer(whip, 0, data, bytes, &raw mut id, &raw mut answer, &raw mut length);
            assert_eq!(made, MillstreamResult::Ok);
            (whip, Description::read(std::slice::from_raw_parts(answer, length)).unwrap())
        };
        peer.handle_answer(begin, &answer).unwrap();
        let source = MediaSource::new(&Seed::from_number(3)).gop(GOP).sizes(3000, 100);
        Self {
            whip,
            id,
            peer,
            path: Path::udp(client, server),
            track: Track::new(Codec::H264, payload_bytes_max).unwrap(),
            config: CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap()),
            units: source.filter(|unit| unit.is_video).take(1000).collect(),
            begin,
            now_us: 0,
            loses: false,
            key_frames_wanted: 0,
            is_idle: false,
            is_over: false,
            events: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.begin + Duration::from_micros(self.now_us)
    }

    /// Sends a picture, as a key frame or not.
    fn send(&mut self, key_frame: bool) {
        let unit = self.units.pop_front().unwrap();
        assert_eq!(unit.key_frame, key_frame);
        let (now, timestamp) = (self.now(), u32::try_from(self.now_us * 9 / 100).unwrap());
        let packets = self.track.push(now, &self.config, key_frame, timestamp, &unit.payload).unwrap();
        assert!(self.peer.send(VIDEO, &packets, now));
    }

    /// Lets a time pass, in which both ends talk to each other.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis * 1000 / STEP_US {
            self.now_us += STEP_US;
            let now = self.now();
            self.peer.handle_timeout(now);
            self.carry(now);
            // SAFETY: the handle is valid, and the data of a datagram and an event lives until the next call.
            unsafe {
                millstream_whip_handle_timeout(self.whip, self.now_us);
                let mut out = MillstreamDatagram { to: address(0), data: null(), length: 0 };
                while millstream_whip_poll_transmit(self.whip, self.now_us, &raw mut out)
                    == MillstreamResult::Ok
                {
                    let mut datagram = std::slice::from_raw_parts(out.data, out.length).to_vec();
                    self.peer.handle_datagram(now, self.path, &mut datagram);
                }
            }
            if !self.is_idle {
                self.take_events();
            }
        }
    }

    /// Carries the publisher's datagrams to the port.
    fn carry(&mut self, now: Instant) {
        while let Some(event) = self.peer.poll_event() {
            self.key_frames_wanted += usize::from(matches!(event, Event::KeyFrameWanted { .. }));
            self.is_over |= matches!(event, Event::Closed(_));
        }
        let (from, mut out) = (address(5000), Datagrams::new());
        let track = &self.track;
        while self.peer.poll_transmit(now, |_| Some(track.log()), &mut out).is_some() {
            for n in 0..out.len() {
                let datagram = out.get(n);
                // Media and its reports (RFC 7983 §7).
                if self.loses && (128..192).contains(&datagram[0]) {
                    continue;
                }
                let (data, length) = (datagram.as_ptr(), datagram.len());
                // SAFETY: the handle is valid, and the pointers are those of values that live.
                let handled = unsafe {
                    millstream_whip_handle_datagram(self.whip, self.now_us, &raw const from, data, length)
                };
                assert_eq!(handled, MillstreamResult::Ok);
            }
            out.clear();
        }
    }

    fn take_events(&mut self) {
        let mut event = MillstreamWhipEvent {
            kind: MillstreamWhipEventKind::Closed,
            session: 0,
            codec: MillstreamCodec::Other,
            timestamp: 0,
            key_frame: false,
            data: null(),
            length: 0,
        };
        // SAFETY: the handle is valid, and the data of an event lives until the next call.
        unsafe {
            while millstream_whip_poll_event(self.whip, &raw mut event) == MillstreamResult::Ok {
                assert_eq!(event.session, self.id);
                let data = std::slice::from_raw_parts(event.data, event.length).to_vec();
                self.events.push((event.kind, event.codec, event.key_frame, data));
            }
        }
    }

    fn request_key_frame(&self) -> MillstreamResult {
        // SAFETY: the handle is valid.
        unsafe { millstream_whip_request_key_frame(self.whip, self.now_us, self.id) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and is freed once.
        unsafe { millstream_whip_free(self.whip) }
    }
}

#[test]
fn a_picture_that_is_lost_is_told_and_a_key_frame_can_be_requested() {
    use MillstreamWhipEventKind::{Connected, Frame, Lost};
    let mut session = Session::new(MediaKind::Video, Codec::H264);
    session.pass(1000);
    assert_eq!(session.events, [(Connected, MillstreamCodec::Other, false, Vec::new())]);
    session.events.clear();

    session.send(true);
    session.pass(40);
    session.send(false);
    session.pass(500);
    let kinds: Vec<_> = session.events.iter().map(|event| (event.0, event.1, event.2)).collect();
    assert_eq!(kinds, [(Frame, MillstreamCodec::H264, true), (Frame, MillstreamCodec::H264, false)]);
    assert!(session.events.iter().all(|event| event.3.starts_with(&[0, 0, 0, 1])));
    session.events.clear();

    // A program that begins a file asks for a key frame.
    let wanted = session.key_frames_wanted;
    assert_eq!(session.request_key_frame(), MillstreamResult::Ok);
    session.pass(40);
    assert_eq!(session.key_frames_wanted, wanted + 1);
    session.events.clear();

    // Longer than a publisher repeats packets for.
    session.loses = true;
    for _ in 0..50 {
        session.send(false);
        session.pass(40);
    }
    session.loses = false;
    for _ in 0..50 {
        session.send(false);
        session.pass(40);
    }
    let kinds: Vec<_> = session.events.iter().map(|event| (event.0, event.1, event.2)).collect();
    assert_eq!(kinds.first(), Some(&(Lost, MillstreamCodec::H264, false)), "{kinds:?}");
    assert!(session.key_frames_wanted > wanted + 1, "the library asks for a key frame itself");
    session.events.clear();
    session.send(true);
    session.pass(500);
    let kinds: Vec<_> = session.events.iter().map(|event| (event.0, event.1, event.2)).collect();
    assert_eq!(kinds, [(Frame, MillstreamCodec::H264, true)]);
}

#[test]
fn key_frames_need_a_session_with_video() {
    let session = Session::new(MediaKind::Audio, Codec::Opus);
    // SAFETY: the handle is valid.
    unsafe {
        let unknown = millstream_whip_request_key_frame(session.whip, 0, session.id + 1);
        assert_eq!(unknown, MillstreamResult::State);
        let missing = millstream_whip_request_key_frame(std::ptr::null_mut(), 0, session.id);
        assert_eq!(missing, MillstreamResult::Null);
    }
    assert_eq!(session.request_key_frame(), MillstreamResult::State);
}

/// A program that takes no events holds a bounded number of bytes: the session ends, and says why.
#[test]
fn events_that_are_not_taken_end_their_session() {
    use MillstreamWhipEventKind::{Closed, Connected, Frame, Overflow};
    let mut session = Session::new(MediaKind::Video, Codec::H264);
    session.is_idle = true;
    session.pass(500);
    // A slice of 40 000 bytes: 209 of them are what a session may hold.
    let slice = [&40_001_u32.to_be_bytes()[..], &[0x65], &[7; 40_000]].concat();
    while !session.is_over {
        let mut unit = session.units.pop_front().expect("the session ends before a thousand frames");
        let key_frame = unit.key_frame;
        unit.payload = slice.clone().into();
        session.units.push_front(unit);
        session.send(key_frame);
        session.pass(100);
    }
    session.take_events();
    let kinds: Vec<_> = session.events.iter().map(|event| event.0).collect();
    let frames = kinds.iter().filter(|kind| **kind == Frame).count();
    assert!((180..=209).contains(&frames), "{frames} frames");
    assert_eq!((kinds.first(), &kinds[kinds.len() - 2..]), (Some(&Connected), &[Overflow, Closed][..]));
    // SAFETY: the handle is valid.
    let closed = unsafe { millstream_whip_close(session.whip, session.now_us, session.id) };
    assert_eq!(closed, MillstreamResult::State);
}
