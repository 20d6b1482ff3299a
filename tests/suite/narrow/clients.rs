//! Clients that the load generator does not have: a WebRTC viewer with false feedback; a WebRTC publisher whose encoder
//! adapts to the path; and an SRT publisher that sends at its encoder's rate whatever the path's rate is, as libsrt
//! does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use ice::Path;
use media::codec::{Codec, CodecConfig, h264};
use millstream::protocol::load::{
    ClientDatagrams, ClientStream, LoadEvent, LoadPlayer, LoadPublisher, PublisherEvent, TsMux,
};
use millstream::protocol::{PathId, To};
use netsim::{MediaSource, Seen, ms};
use sdp::{Description, Direction, MediaKind};
use webrtc::{Config, Event, IceMode, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::{Datagrams, SendQueue};

use super::liar::{Liar, Lie};
use super::{FPS, GOP, STREAM};
use crate::support::rtc;
use crate::support::world::heads;

const VIDEO: SectionId = SectionId(0);
/// Initial rate of an encoder, in bits per second.
const FIRST: u64 = STREAM / 4;
/// Maximum duration of the queued video. Beyond it, the encoder leaves pictures out.
const BACKLOG_MAX: Duration = ms(300);

/// A request with an offer, and its answer.
#[derive(Debug)]
pub(super) struct Signalling {
    target: String,
    request: Option<Bytes>,
    answer: Vec<u8>,
}

impl Signalling {
    pub(super) const fn new(target: String) -> Self {
        Self { target, request: None, answer: Vec::new() }
    }

    pub(super) fn ask(&mut self, offer: &str) {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: 127.0.0.1:5080\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n",
            self.target,
            offer.len()
        );
        self.request = Some((head + offer).into());
    }

    /// Returns the server's description and address once the answer is complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<(String, SocketAddr)> {
        self.answer.extend_from_slice(bytes);
        let text = std::str::from_utf8(&self.answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 201"), "{text}");
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        (body.len() >= length.unwrap()).then(|| rtc::candidates_of(body, rtc::Over::Udp))
    }

    pub(super) fn poll(&mut self, out: &mut SendQueue) {
        if let Some(request) = self.request.take() {
            out.push(request);
        }
    }
}

/// A WHEP viewer that sends false feedback.
#[derive(Debug)]
pub(super) struct LiarViewer {
    signalling: Signalling,
    lie: Lie,
    seed: Seed,
    machine: Option<Liar>,
    is_ready: bool,
}

impl LiarViewer {
    pub(super) fn new(lie: Lie, id: &str, seed: Seed) -> Self {
        let signalling = Signalling::new(format!("/live/whep/{id}"));
        Self { signalling, lie, seed, machine: None, is_ready: false }
    }
}

impl ClientStream for LiarViewer {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let (Some(machine), Some((answer, server))) = (&mut self.machine, self.signalling.take(bytes)) {
            machine.answered(now, &answer, server);
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.signalling.poll(out);
    }
}

impl ClientDatagrams for LiarViewer {
    fn handle_local(&mut self, now: Instant, _: PathId, local: Option<SocketAddr>) {
        let machine = Liar::new(now, self.lie, local.unwrap(), self.seed.clone());
        self.signalling.ask(&machine.offer(now));
        self.machine = Some(machine);
    }

    fn handle_datagram(&mut self, now: Instant, _: PathId, _: SocketAddr, datagram: &mut [u8]) {
        if let Some(machine) = &mut self.machine {
            machine.handle_datagram(now, datagram);
        }
    }

    fn poll_datagrams(&mut self, _: Instant, out: &mut Datagrams) -> To {
        while let Some(datagram) = self.machine.as_mut().and_then(Liar::poll_transmit) {
            out.push(&datagram, &[]);
        }
        To::PEER
    }
}

impl LoadPlayer for LiarViewer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(now);
        }
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        let is_ready = self.machine.as_ref().is_some_and(Liar::is_connected);
        (is_ready && !std::mem::replace(&mut self.is_ready, is_ready)).then_some(LoadEvent::Ready)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.as_ref().and_then(Liar::poll_timeout)
    }

    fn close(&mut self, _: Instant) {}
}

/// A picture that an encoder has made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made {
    pub(super) at: Instant,
    pub(super) counter: u64,
    /// Rate of the encoder at this time, in bits per second.
    pub(super) bits: u64,
}

/// The pictures that an encoder has made, shared with the test.
pub(super) type Log = Arc<Mutex<Vec<Made>>>;

/// A WHIP publisher whose encoder uses as much of the path's rate as it can, as browsers do.
#[derive(Debug)]
pub(super) struct Encoder {
    signalling: Signalling,
    peer: Peer,
    local: Option<SocketAddr>,
    source: Option<MediaSource>,
    began: Option<Instant>,
    due: Option<Instant>,
    track: Track,
    log: Log,
    events: VecDeque<PublisherEvent>,
}

impl Encoder {
    pub(super) fn new(now: Instant, id: &str, seed: Seed, log: Log) -> Self {
        let identity = Arc::new(dtls::Identity::self_signed(&seed).unwrap());
        let config = Arc::new(Config::new(IceMode::Full(Arc::default()), identity));
        let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
        let track = Track::new(Codec::H264, Peer::payload_bytes_max(&config)).unwrap();
        let source = MediaSource::new(&seed).fps(FPS).gop(GOP);
        Self {
            signalling: Signalling::new(format!("/live/whip/{id}")),
            peer: Peer::new(now, config, anchor, seed).unwrap(),
            local: None,
            source: Some(source),
            began: None,
            due: None,
            track,
            log,
            events: VecDeque::new(),
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => {
                    (self.began, self.due) = (Some(now), Some(now));
                    self.events.push_back(PublisherEvent::Ready);
                }
                Event::Closed(reason) => self.events.push_back(PublisherEvent::Closed(format!("{reason:?}"))),
                _ => {}
            }
        }
    }

    /// Returns the rate for the encoder: the path's rate without the part for repairs.
    fn bits(&self, now: Instant) -> u64 {
        let budget = self.peer.video_budget(now).or_else(|| Some(self.peer.estimate(now)? * 9 / 10));
        budget.unwrap_or(FIRST).min(STREAM)
    }

    fn make(&mut self, now: Instant) {
        let Some((began, due)) = self.began.zip(self.due).filter(|(_, due)| *due <= now) else { return };
        self.due = Some(due + Duration::from_secs(1) / u32::try_from(FPS).unwrap());
        // The encoder leaves a picture out before encoding it, so that no other picture refers to it.
        if self.peer.queued(now).time > BACKLOG_MAX {
            return;
        }
        let bits = self.bits(now);
        let picture = usize::try_from(bits / 8 / FPS * GOP / (GOP + 7)).unwrap();
        let mut source = self.source.take().unwrap().sizes(picture.max(100), 0);
        let unit = source.next_unit();
        self.source = Some(source);
        let counter = Seen::read(&unit.payload).unwrap().counter;
        self.log.lock().unwrap().push(Made { at: now, counter, bits });
        let config = CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap());
        let timestamp = u32::try_from((now - began).as_millis() * 90).unwrap();
        let packets = self.track.push(now, &config, unit.key_frame, timestamp, &unit.payload).unwrap();
        assert!(self.peer.send(VIDEO, &packets, now));
    }
}

impl ClientStream for Encoder {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some((answer, _)) = self.signalling.take(bytes) {
            self.peer.handle_answer(now, &Description::read(answer.as_bytes()).unwrap()).unwrap();
            self.drain(now);
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.signalling.poll(out);
    }
}

impl ClientDatagrams for Encoder {
    fn handle_local(&mut self, now: Instant, _: PathId, local: Option<SocketAddr>) {
        self.local = local;
        self.peer.add_local(now, local.unwrap()).unwrap();
        let formats = offered_formats(Codec::H264, 96);
        let preference = MediaPreference { direction: Direction::SendOnly, formats, msid: None };
        let offer = self.peer.offer(&[(MediaKind::Video, preference)]).unwrap().write();
        self.signalling.ask(&offer);
    }

    fn handle_datagram(&mut self, now: Instant, _: PathId, from: SocketAddr, datagram: &mut [u8]) {
        self.peer.handle_datagram(now, Path::udp(self.local.unwrap(), from), datagram);
        self.drain(now);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        let log = self.track.log();
        let path = self.peer.poll_transmit(now, |_| Some(log), out);
        To::of_socket(path.map(|path| path.remote))
    }
}

impl LoadPublisher for Encoder {
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
        self.make(now);
    }

    fn send(&mut self, _: Instant, _: TagKind, _: u32, _: Bytes) {}

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.peer.poll_timeout(), self.due].into_iter().flatten().min()
    }

    fn close(&mut self, now: Instant) {
        self.peer.close(now);
    }
}

/// Latency of SRT. It covers four round trips of 40 ms, and sending a key frame twice at twice the stream's rate.
const LATENCY: Duration = ms(600);
/// Bytes of a payload of SRT: seven packets of MPEG-TS.
const PAYLOAD_BYTES: usize = 7 * 188;

/// A publisher over SRT.
#[derive(Debug)]
pub(super) struct SrtEncoder {
    connection: srt::Connection,
    mux: TsMux,
    events: VecDeque<PublisherEvent>,
}

impl SrtEncoder {
    pub(super) fn new(now: Instant, id: &str, seed: &Seed, source: &MediaSource) -> Self {
        let mut mux = TsMux::new();
        for (kind, body) in heads(source) {
            assert!(mux.packets(now, kind, 0, &body).is_none());
        }
        let number =
            srt::SocketId(1 | u32::try_from(seed.derive("socket", 0).random().below(1 << 30)).unwrap());
        let config =
            Arc::new(srt::Config { receives: false, peer_latency: LATENCY, ..srt::Config::default() });
        let stream_id = format!("#!::r=live/{id},m=publish");
        let connection = srt::Connection::caller(now, config, number, &stream_id, seed);
        Self { connection, mux, events: VecDeque::new() }
    }

    fn drain(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                srt::Event::Connected(_) => self.events.push_back(PublisherEvent::Ready),
                srt::Event::Closed(reason) => {
                    self.events.push_back(PublisherEvent::Closed(format!("{reason:?}")))
                }
                srt::Event::Payload(_) | srt::Event::Skipped(_) => {}
            }
        }
    }
}

impl ClientDatagrams for SrtEncoder {
    fn handle_local(&mut self, _: Instant, _: PathId, _: Option<SocketAddr>) {}

    fn handle_datagram(&mut self, now: Instant, _: PathId, _: SocketAddr, datagram: &mut [u8]) {
        self.connection.handle_datagram(now, datagram);
        self.drain();
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        self.connection.poll_transmit(now, out);
        To::PEER
    }
}

impl LoadPublisher for SrtEncoder {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        self.drain();
    }

    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes) {
        let packets = self.mux.packets(now, kind, timestamp, &body).unwrap_or_default();
        for payload in packets.chunks(PAYLOAD_BYTES) {
            self.connection.send(now, Bytes::copy_from_slice(payload)).unwrap();
        }
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.connection.close(now, srt::CloseReason::Local);
    }
}
