//! Viewers that keep the timestamps of the units that they receive.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::tag::{AudioPacket, VideoPacket};
use flv::{AudioTag, VideoTag};
use millstream::protocol::load::{ClientDatagrams, ClientStream, LoadEvent, LoadPlayer};
use millstream::protocol::{PathId, To};
use mpegts::Demuxer;
use netsim::{Seen, secs};
use rtmp::{ClientConfig, MediaKind};
use rtp::payload::{Depacketizer, Format, Part};
use rtp::report::ClockMapping;
use rtp::rtcp::Rtcp;
use rtp::{NtpTime, Packet};
use rtsp::{TrackSetup, Uri};
use sdp::Description;
use srt::{Connection, SocketId};
use wire::{Datagrams, SendQueue};

use crate::support::world;

/// A unit that a viewer received, with its timestamps in milliseconds.
#[derive(Debug, Clone)]
pub struct Got {
    pub at: Instant,
    pub is_video: bool,
    /// The mark that the test's publisher wrote into the unit's payload; `None` if the unit has no mark or is damaged.
    pub seen: Option<Seen>,
    pub dts: i64,
    pub pts: i64,
}

/// Everything that a viewer received.
#[derive(Debug, Default)]
pub struct Log {
    pub got: Vec<Got>,
    /// Parameter sets of video (`true`) and audio (`false`), in the order of arrival.
    pub configs: Vec<(bool, Bytes)>,
    /// Names of codecs, or stream types.
    pub codecs: Vec<String>,
}

impl Log {
    /// Creates a log of units without timestamps.
    pub fn of_units(units: &[world::Got]) -> Self {
        let unit = |unit: &world::Got| Got {
            at: unit.at,
            is_video: unit.is_video,
            seen: unit.seen.ok(),
            dts: 0,
            pts: 0,
        };
        Self { got: units.iter().map(unit).collect(), ..Self::default() }
    }
}

/// The log of a viewer, which its machine writes and the judge reads.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<Log>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    pub fn unit(&self, at: Instant, is_video: bool, (dts, pts): (i64, i64), payload: &[u8]) {
        let seen = Seen::read(payload).ok();
        self.lock().got.push(Got { at, is_video, seen, dts, pts });
    }

    pub fn codec(&self, name: String) {
        let mut log = self.lock();
        if !log.codecs.contains(&name) {
            log.codecs.push(name);
        }
    }
}

/// A viewer over RTMP.
#[derive(Debug)]
pub struct RtmpViewer {
    machine: rtmp::Client,
    log: Shared,
    events: VecDeque<LoadEvent>,
}

impl RtmpViewer {
    pub fn new(now: Instant, stream: &str, seed: Seed, log: Shared) -> Self {
        let config = ClientConfig {
            app: "live".to_owned(),
            tc_url: "rtmp://127.0.0.1:1935/live".to_owned(),
            stream: stream.to_owned(),
            four_ccs: rtmp::FourCcs::ALL,
            stall_timeout: secs(600),
            ..ClientConfig::default()
        };
        let machine = rtmp::Client::play(now, Arc::new(config), seed);
        Self { machine, log, events: VecDeque::new() }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                rtmp::ClientEvent::Ready { .. } => self.events.push_back(LoadEvent::Ready),
                rtmp::ClientEvent::Rejected { code, .. } => self.events.push_back(LoadEvent::Closed(code)),
                rtmp::ClientEvent::Closed(reason) => {
                    self.events.push_back(LoadEvent::Closed(reason.to_string()));
                }
                rtmp::ClientEvent::Media(message) => self.media(now, &message),
            }
        }
    }

    fn media(&self, now: Instant, message: &rtmp::MediaMessage) {
        let dts = i64::from(message.timestamp);
        match message.kind {
            MediaKind::Video => {
                let tag = VideoTag::read(&message.payload).unwrap();
                self.log.codec(format!("{:?}", tag.codec));
                match tag.packet {
                    VideoPacket::Frame => {
                        let pts = dts + i64::from(tag.composition_time_ms);
                        self.log.unit(now, true, (dts, pts), &tag.payload);
                    }
                    VideoPacket::SequenceHeader => self.log.lock().configs.push((true, tag.payload)),
                    _ => {}
                }
            }
            MediaKind::Audio => {
                let tag = AudioTag::read(&message.payload).unwrap();
                self.log.codec(format!("{:?}", tag.codec));
                match tag.packet {
                    AudioPacket::Frame => self.log.unit(now, false, (dts, dts), &tag.payload),
                    AudioPacket::SequenceHeader => self.log.lock().configs.push((false, tag.payload)),
                    _ => {}
                }
            }
            MediaKind::Data => {}
        }
    }
}

impl ClientStream for RtmpViewer {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let _ = self.machine.handle_bytes(now, bytes);
        self.drain(now);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.machine.poll_transmit(out);
    }
}

impl LoadPlayer for RtmpViewer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }

    fn handle_end(&mut self, now: Instant) {
        self.machine.close(now, rtmp::CloseReason::PeerClosed);
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.drain(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.machine.close(now, rtmp::CloseReason::Requested);
    }
}

/// Converts ticks of 90 kHz to milliseconds. A row's stream is too short for the ticks to wrap.
fn ticks_to_ms(ticks: u64) -> i64 {
    i64::try_from(ticks / 90).unwrap()
}

/// Demuxes the transport stream that a viewer receives in pieces.
#[derive(Debug)]
pub struct TransportStream {
    demuxer: Demuxer,
    log: Shared,
}

impl TransportStream {
    pub fn new(log: Shared) -> Self {
        Self { demuxer: Demuxer::new(), log }
    }

    /// Ends a segment: takes all that the demuxer still holds.
    pub fn finish(&mut self, now: Instant) {
        self.demuxer.finish();
        self.payload(now, &[]);
    }

    pub fn payload(&mut self, now: Instant, mut payload: &[u8]) {
        while let Some(event) = self.demuxer.read(&mut payload) {
            match event {
                mpegts::Event::Program(pmt) => {
                    pmt.streams.iter().for_each(|stream| self.log.codec(format!("{:?}", stream.kind)));
                }
                mpegts::Event::Pes(pes) => {
                    let Some(pts) = pes.pts else { continue };
                    let dts = pes.dts.unwrap_or(pts);
                    let (dts, pts) = (ticks_to_ms(dts), ticks_to_ms(pts));
                    if pes.stream.kind.is_video() {
                        self.log.unit(now, true, (dts, pts), &pes.payload);
                    } else {
                        self.frames(now, pts, pes.payload);
                    }
                }
                mpegts::Event::Splice(_) => {}
            }
        }
    }

    /// Logs the frames of an audio PES packet: several ADTS frames, or Opus packets after control headers.
    fn frames(&self, now: Instant, pts: i64, mut payload: Bytes) {
        let mut n = 0;
        while let Ok(control) = media::codec::opus::Control::read(&payload) {
            let rest = payload.split_off(control.header_bytes);
            payload = rest;
            let frame = payload.split_to(control.packet_bytes.min(payload.len()));
            let pts = pts + n * 1024 * 1000 / 48_000;
            self.log.unit(now, false, (pts, pts), &frame);
            n += 1;
        }
        while payload.len() > 7 && payload[0] == 0xff {
            let length = usize::from(payload[3] & 3) << 11
                | usize::from(payload[4]) << 3
                | usize::from(payload[5]) >> 5;
            let frame = payload.split_to(length.min(payload.len()));
            let pts = pts + n * 1024 * 1000 / 48_000;
            self.log.unit(now, false, (pts, pts), &frame[7..]);
            n += 1;
        }
        if !payload.is_empty() {
            self.log.unit(now, false, (pts, pts), &payload);
        }
    }
}

/// A viewer over SRT.
#[derive(Debug)]
pub struct SrtViewer {
    connection: Connection,
    media: TransportStream,
    events: VecDeque<LoadEvent>,
}

impl SrtViewer {
    pub fn new(now: Instant, stream: &str, seed: &Seed, log: Shared) -> Self {
        let id = SocketId(1 | u32::try_from(seed.derive("socket id", 0).random().below(1 << 30)).unwrap());
        let stream_id = format!("#!::r=live/{stream},m=request");
        let connection = Connection::caller(now, Arc::default(), id, &stream_id, seed);
        Self { connection, media: TransportStream::new(log), events: VecDeque::new() }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                srt::Event::Connected(_) => self.events.push_back(LoadEvent::Ready),
                srt::Event::Closed(reason) => self.events.push_back(LoadEvent::Closed(format!("{reason:?}"))),
                srt::Event::Payload(payload) => self.media.payload(now, &payload),
                srt::Event::Skipped(_) => self.media.demuxer.lost(),
            }
        }
    }
}

impl ClientDatagrams for SrtViewer {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {}

    fn handle_datagram(&mut self, now: Instant, _path: PathId, _from: SocketAddr, datagram: &mut [u8]) {
        self.connection.handle_datagram(now, datagram);
        self.drain(now);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        self.connection.poll_transmit(now, out);
        To::PEER
    }
}

impl LoadPlayer for SrtViewer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, _now: Instant) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        self.drain(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.connection.close(now, srt::CloseReason::Local);
    }
}

/// A section of an RTSP session description, and the state of its reception.
#[derive(Debug)]
struct Section {
    is_video: bool,
    depacketizer: Depacketizer,
    mapping: ClockMapping,
    /// Frames that arrived before the first sender report.
    early: Vec<(Instant, u32, Bytes)>,
}

/// A viewer over RTSP, interleaved in the connection. Its timestamps are derived from sender reports.
#[derive(Debug)]
pub struct RtspViewer {
    machine: rtsp::Client,
    sections: Vec<Option<Section>>,
    base: Option<NtpTime>,
    log: Shared,
    events: VecDeque<LoadEvent>,
}

impl RtspViewer {
    pub fn new(now: Instant, stream: &str, seed: Seed, log: Shared) -> Self {
        let uri = Uri::read(&format!("rtsp://127.0.0.1:5554/live/{stream}")).unwrap();
        let config = rtsp::ClientConfig {
            request_timeout: secs(600),
            stall_timeout: None,
            ..rtsp::ClientConfig::new(uri)
        };
        let machine = rtsp::Client::play(now, Arc::new(config), seed);
        Self { machine, sections: Vec::new(), base: None, log, events: VecDeque::new() }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                rtsp::ClientEvent::Described(description) => self.described(now, &description),
                rtsp::ClientEvent::Ready { .. } => self.events.push_back(LoadEvent::Ready),
                rtsp::ClientEvent::Interleaved(frame) => self.frame(now, &frame),
                rtsp::ClientEvent::Rejected { status, reason } => {
                    self.events.push_back(LoadEvent::Closed(format!("{} {reason}", status.code())));
                }
                rtsp::ClientEvent::Closed(reason) => {
                    self.events.push_back(LoadEvent::Closed(reason.to_string()));
                }
                rtsp::ClientEvent::NotInterleaved
                | rtsp::ClientEvent::SetUp { .. }
                | rtsp::ClientEvent::Announced(_)
                | rtsp::ClientEvent::Redirect { .. } => {}
            }
        }
    }

    fn described(&mut self, now: Instant, description: &Description) {
        let section_of = |media: &sdp::Media| {
            let format = media.rtp_formats().next()?;
            self.log.codec(format.rtpmap.encoding.clone());
            Some(Section {
                is_video: media.kind == sdp::MediaKind::Video,
                depacketizer: Depacketizer::new(Format::of_description(&format).ok()??).ok()?,
                mapping: ClockMapping::new(format.rtpmap.clock_rate),
                early: Vec::new(),
            })
        };
        self.sections = description.media.iter().map(section_of).collect();
        let tracks: Vec<_> = (0..self.sections.len()).map(TrackSetup::interleaved).collect();
        self.machine.setup(now, &tracks);
    }

    fn frame(&mut self, now: Instant, frame: &rtsp::Frame) {
        let Some(section) = self.sections.get_mut(frame.track).and_then(Option::as_mut) else { return };
        if frame.is_rtcp {
            for part in rtp::rtcp::packets(&frame.payload) {
                if let Ok(Rtcp::SenderReport(report)) = part {
                    section.mapping.handle_sender_report(&report.info);
                }
            }
        } else {
            let packet = Packet::read(&frame.payload).unwrap();
            let header = packet.header;
            let part = Part {
                timestamp: header.timestamp,
                marker: header.marker,
                gap: false,
                payload: packet.payload,
            };
            let _ = section.depacketizer.handle_part(&part);
            while let Some(frame) = section.depacketizer.poll_frame() {
                section.early.push((now, frame.timestamp, frame.payload));
            }
        }
        let is_video = section.is_video;
        let (mut early, mut late) = (std::mem::take(&mut section.early).into_iter(), Vec::new());
        for (at, timestamp, payload) in early.by_ref() {
            let Some(time) = section.mapping.time_of(timestamp) else {
                late.push((at, timestamp, payload));
                continue;
            };
            // The base is a minute before the first report, so that no unit is earlier.
            let base = *self.base.get_or_insert_with(|| time.minus(secs(60)));
            let time = time.since(base).map_or(-1, |since| since.as_micros().cast_signed() as i64);
            let time = (time + 500) / 1000;
            self.log.unit(at, is_video, (time, time), &payload);
        }
        section.early = late;
    }
}

impl ClientStream for RtspViewer {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let _ = self.machine.handle_bytes(now, bytes);
        self.drain(now);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.machine.poll_transmit(out);
    }
}

impl LoadPlayer for RtspViewer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }

    fn handle_end(&mut self, now: Instant) {
        self.machine.close(now, rtsp::CloseReason::PeerClosed);
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.drain(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.machine.close(now, rtsp::CloseReason::Requested);
        self.drain(now);
    }
}
