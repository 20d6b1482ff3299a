//! A viewer over RTSP. It skips no interleaved data, so that data that a player would silently drop is noticed.
//! Over datagrams it shows complete frames, and reports losses every five seconds.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream::protocol::load::{ClientDatagrams, ClientStream, LoadEvent, LoadPlayer};
use millstream::protocol::{PathId, To};
use netsim::{Seen, secs};
use rtp::payload::{Depacketizer, Format, Part};
use rtp::receive::{ReceiveConfig, ReceiveEvent, Receiver};
use rtp::rtcp::Compound;
use rtp::{Packet, SequenceNumber, Ssrc};
use rtsp::{Client, ClientConfig, ClientEvent, CloseReason, Frame, Ports, TrackSetup, Uri};
use sdp::{Description, Media, MediaKind};
use wire::{Datagrams, SendQueue};

/// First byte of an H.264 sequence parameter set.
const SPS: u8 = 0x67;

/// Maximum deviation of a timestamp from the one expected from an earlier unit. Pictures are shown in another
/// order than they are decoded, and the clocks of two tracks are aligned, so small deviations are right.
const OFF_MAX_MS: i64 = 400;
/// Interval between reports about datagrams (RFC 3550 §6.2).
const REPORT_INTERVAL: Duration = secs(5);
/// First port of the first client, and number of ports of each client.
const PORTS_FROM: usize = 40_000;
const PORTS_EACH: usize = 16;
/// The first port of the sockets of the server.
const SERVER_PORTS_FROM: u16 = 30_000;

/// Returns the first of a client's ports.
pub(super) fn first_port(client: usize) -> u16 {
    u16::try_from(PORTS_FROM + client * PORTS_EACH).unwrap()
}

/// Returns the address of a socket that the server opens towards an RTSP client; `None` if the socket is for
/// another peer. RTP has even ports.
pub(super) fn server_port(path: PathId, to: Option<SocketAddr>) -> Option<SocketAddr> {
    let is_client = to.is_some_and(|to| usize::from(to.port()) >= PORTS_FROM);
    is_client.then(|| SocketAddr::from(([127, 0, 0, 1], SERVER_PORTS_FROM + u16::from(path.0) - 1)))
}

/// A section of the description.
#[derive(Debug)]
struct Section {
    is_video: bool,
    depacketizer: Depacketizer,
    clock: Clock,
    /// The sender of the packets, and the number of its next packet.
    next: Option<(Ssrc, SequenceNumber)>,
    /// Puts the packets from datagrams in order.
    receiver: Option<Receiver>,
    /// True if packets are missing before the next one.
    gap: bool,
}

/// Compares RTP timestamps with the times that the publisher wrote into the units.
#[derive(Debug)]
struct Clock {
    rate: u32,
    /// RTP timestamp of the first unit since the last gap, the time written into that unit, and the number of the next
    /// unit.
    first: Option<(u32, u64, u64)>,
}

impl Clock {
    fn is_right(&mut self, timestamp: u32, payload: &[u8]) -> bool {
        // The server may pass on messages that cannot be read, so they are not judged here.
        let Ok(seen) = Seen::read(payload) else { return true };
        // After a failure, a pull begins anew, at another time of the server's stream.
        let (ticks, dts_ms) = match self.first {
            Some((ticks, dts_ms, next)) if next == seen.counter => (ticks, dts_ms),
            _ => (timestamp, seen.dts_ms),
        };
        self.first = Some((ticks, dts_ms, seen.counter + 1));
        let passed_ms = i64::from(timestamp.wrapping_sub(ticks).cast_signed()) * 1000 / i64::from(self.rate);
        let off = passed_ms - (seen.dts_ms.cast_signed() - dts_ms.cast_signed());
        off.abs() <= OFF_MAX_MS
    }
}

/// The RTSP viewer that the module describes.
#[derive(Debug)]
pub(super) struct RtspViewer {
    machine: Client,
    /// First of the viewer's ports if it takes datagrams; the time of its next report; and the reports to send.
    ports: Option<u16>,
    report_at: Option<Instant>,
    reports: VecDeque<(PathId, Vec<u8>)>,
    /// Sections of the description; `None` for media that no publisher sends.
    sections: Vec<Option<Section>>,
    frames_ignored: u64,
    has_ended: bool,
    events: VecDeque<LoadEvent>,
}

impl RtspViewer {
    /// Creates a viewer on a connection in progress. With `ports` it takes datagrams.
    pub(super) fn new(now: Instant, url: &str, ports: Option<u16>, seed: crypto::Seed) -> Self {
        // The timeouts are long: if there is no media, the server must end the connection, and not a timer of the
        // viewer.
        let config = ClientConfig {
            request_timeout: secs(600),
            stall_timeout: None,
            falls_back_to_udp: false,
            ..ClientConfig::new(Uri::read(url).unwrap())
        };
        Self {
            machine: Client::play(now, Arc::new(config), seed),
            ports,
            report_at: ports.map(|_| now + REPORT_INTERVAL),
            reports: VecDeque::new(),
            sections: Vec::new(),
            frames_ignored: 0,
            has_ended: false,
            events: VecDeque::new(),
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                ClientEvent::Described(description) => self.described(now, &description),
                ClientEvent::Ready { .. } => self.events.push_back(LoadEvent::Ready),
                ClientEvent::Interleaved(frame) => self.frame(&frame),
                ClientEvent::Rejected { status, reason } => self.end(format!("{} {reason}", status.code())),
                ClientEvent::Closed(reason) => self.end(reason.to_string()),
                ClientEvent::NotInterleaved
                | ClientEvent::SetUp { .. }
                | ClientEvent::Announced(_)
                | ClientEvent::Redirect { .. } => {}
            }
        }
        // The server must send nothing on a channel that was not set up.
        let before = std::mem::replace(&mut self.frames_ignored, self.machine.stats().frames_ignored);
        if self.frames_ignored > before {
            self.spoilt(true);
        }
    }

    fn end(&mut self, reason: String) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.events.push_back(LoadEvent::Closed(reason));
        }
    }

    /// Sets up every track.
    fn described(&mut self, now: Instant, description: &Description) {
        let section_of = |media: &Media| {
            let format = media.rtp_formats().next()?;
            let depacketizer = Depacketizer::new(Format::of_description(&format).ok()??).ok()?;
            let clock = Clock { rate: format.rtpmap.clock_rate, first: None };
            let is_video = media.kind == MediaKind::Video;
            Some(Section { is_video, depacketizer, clock, next: None, receiver: None, gap: false })
        };
        self.sections = description.media.iter().map(section_of).collect();
        let setup = |track| match self.ports {
            Some(first) => TrackSetup::udp(track, Ports::from_rtp(first + 2 * track as u16).unwrap()),
            None => TrackSetup::interleaved(track),
        };
        let tracks: Vec<_> = (0..self.sections.len()).map(setup).collect();
        self.machine.setup(now, &tracks);
    }

    fn frame(&mut self, frame: &Frame) {
        let Some(section) = self.sections.get_mut(frame.track).and_then(Option::as_mut) else { return };
        let is_video = section.is_video;
        if frame.is_rtcp {
            return;
        }
        let Ok(packet) = Packet::read(&frame.payload) else { return self.spoilt(is_video) };
        let header = packet.header;
        let number = header.sequence_number;
        let expected = section.next.replace((header.ssrc, number.next()));
        // Most players ignore a source that replaces another one. Missing packets are noticed by the judge of the
        // units.
        let is_other = expected.is_some_and(|(ssrc, next)| {
            ssrc != header.ssrc || (next != number && number.ahead_of(next).is_none())
        });
        let gap = expected.is_some_and(|(_, next)| next != number);
        let part = Part { timestamp: header.timestamp, marker: header.marker, gap, payload: packet.payload };
        let dropped = section.depacketizer.stats().dropped;
        let is_bad = section.depacketizer.handle_part(&part).is_err()
            || section.depacketizer.stats().dropped > dropped
            || is_other;
        while let Some(frame) = section.depacketizer.poll_frame() {
            let has_sets = frame.payload.get(4) == Some(&SPS);
            let is_right = section.clock.is_right(frame.timestamp, &frame.payload);
            let is_whole = is_right && (has_sets || !frame.key_frame);
            let payload = if is_whole { frame.payload } else { Bytes::new() };
            self.events.push_back(LoadEvent::Unit { is_video, place: 0, payload });
        }
        if is_bad {
            self.spoilt(is_video);
        }
    }

    /// Takes a datagram of a section, and shows the frames that are complete.
    fn packet(&mut self, now: Instant, track: usize, datagram: &[u8]) {
        let Some(section) = self.sections.get_mut(track).and_then(Option::as_mut) else { return };
        let packet = Packet::read(datagram).expect("RTP");
        let config = || ReceiveConfig::without_nack(section.clock.rate);
        let receiver = section.receiver.get_or_insert_with(|| Receiver::new(packet.header.ssrc, config()));
        receiver.handle_packet(now, &packet.header, Bytes::copy_from_slice(packet.payload));
        self.show(track);
    }

    fn show(&mut self, track: usize) {
        let Some(section) = self.sections.get_mut(track).and_then(Option::as_mut) else { return };
        while let Some(event) = section.receiver.as_mut().and_then(Receiver::poll_event) {
            let ReceiveEvent::Packet(packet) = event else {
                section.gap = true;
                continue;
            };
            let gap = std::mem::take(&mut section.gap);
            let (timestamp, marker, payload) = (packet.timestamp, packet.marker, &packet.payload[..]);
            let _ = section.depacketizer.handle_part(&Part { timestamp, marker, gap, payload });
            while let Some(frame) = section.depacketizer.poll_frame() {
                let unit = LoadEvent::Unit { is_video: section.is_video, place: 0, payload: frame.payload };
                self.events.push_back(unit);
            }
        }
    }

    /// Makes a report on each section.
    fn report(&mut self, now: Instant) {
        for (track, section) in self.sections.iter_mut().enumerate() {
            let block = section.as_mut().and_then(|section| section.receiver.as_mut()?.report(now));
            let mut compound = Compound::new(1200);
            compound.receiver_reports(Ssrc(1), block.as_slice());
            self.reports.push_back((PathId(2 * track as u8 + 2), compound.into_bytes()));
        }
    }

    /// Adds an unreadable unit, to report data that must not arrive.
    fn spoilt(&mut self, is_video: bool) {
        self.events.push_back(LoadEvent::Unit { is_video, place: 0, payload: Bytes::new() });
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
        self.ports.is_some().then_some(self as _)
    }

    fn handle_end(&mut self, now: Instant) {
        self.machine.close(now, CloseReason::PeerClosed);
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        self.drain(now);
        for track in 0..self.sections.len() {
            if let Some(receiver) = self.sections[track].as_mut().and_then(|one| one.receiver.as_mut()) {
                receiver.handle_timeout(now);
            }
            self.show(track);
        }
        if self.report_at.is_some_and(|at| at <= now) {
            self.report_at = Some(now + REPORT_INTERVAL);
            self.report(now);
        }
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let receivers =
            self.sections.iter().flatten().filter_map(|one| one.receiver.as_ref()?.poll_timeout());
        receivers.chain(self.machine.poll_timeout()).chain(self.report_at).min()
    }

    fn close(&mut self, now: Instant) {
        self.machine.close(now, CloseReason::Requested);
        self.drain(now);
    }
}

impl ClientDatagrams for RtspViewer {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {}

    fn handle_datagram(&mut self, now: Instant, path: PathId, _from: SocketAddr, datagram: &mut [u8]) {
        let number = usize::from(path.0) - 1;
        if number.is_multiple_of(2) {
            self.packet(now, number / 2, datagram);
        }
    }

    fn poll_datagrams(&mut self, _now: Instant, out: &mut Datagrams) -> To {
        let Some((path, report)) = self.reports.pop_front() else { return To::PEER };
        out.push(&[], &report);
        To { path, ..To::PEER }
    }
}
