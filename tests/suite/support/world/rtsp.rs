//! A viewer over RTSP that passes over nothing: a player would drop what it cannot show, and nobody would hear of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use millstream::protocol::load::{ClientDatagrams, ClientStream, LoadEvent, LoadPlayer};
use netsim::{Seen, secs};
use rtp::payload::{Depacketizer, Format, Part};
use rtp::{Packet, SequenceNumber, Ssrc};
use rtsp::{Client, ClientConfig, ClientEvent, CloseReason, Frame, TrackSetup, Uri};
use sdp::{Description, Media, MediaKind};
use wire::SendQueue;

/// How H.264's parameter sets begin.
const SPS: u8 = 0x67;

/// How far a timestamp may be off, against that of a former unit: pictures are shown in another order than
/// they are decoded in, and clocks of two tracks are brought together.
const OFF_MAX_MS: i64 = 400;

/// A section of the description.
#[derive(Debug)]
struct Section {
    is_video: bool,
    depacketizer: Depacketizer,
    clock: Clock,
    /// Who sends, and the number of the packet that is expected.
    next: Option<(Ssrc, SequenceNumber)>,
}

/// Compares timestamps with what the units' own stamps say.
#[derive(Debug)]
struct Clock {
    rate: u32,
    /// Timestamp and stamp of the first of the units that have come without a gap, and the number of the next.
    first: Option<(u32, u64, u64)>,
}

impl Clock {
    fn is_right(&mut self, timestamp: u32, payload: &[u8]) -> bool {
        // What cannot be read is somebody else's concern.
        let Ok(seen) = Seen::read(payload) else { return true };
        // What is pulled begins anew after a failure, and where it lies then says the server.
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

/// See the module.
#[derive(Debug)]
pub(super) struct RtspViewer {
    machine: Client,
    /// `None`: nobody sends such a thing.
    sections: Vec<Option<Section>>,
    frames_ignored: u64,
    has_ended: bool,
    events: VecDeque<LoadEvent>,
}

impl RtspViewer {
    /// On a connection that is being made.
    pub(super) fn new(now: Instant, url: &str, seed: crypto::Seed) -> Self {
        // Who has nothing to see is told by the server, not by a timer of its own.
        let config = ClientConfig {
            request_timeout: secs(600),
            stall_timeout: None,
            falls_back_to_udp: false,
            ..ClientConfig::new(Uri::read(url).unwrap())
        };
        Self {
            machine: Client::play(now, Arc::new(config), seed),
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
        // Nothing comes on a channel that was not set up.
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

    /// Every track is wanted.
    fn described(&mut self, now: Instant, description: &Description) {
        let section_of = |media: &Media| {
            let format = media.rtp_formats().next()?;
            let depacketizer = Depacketizer::new(Format::of_description(&format).ok()??).ok()?;
            let clock = Clock { rate: format.rtpmap.clock_rate, first: None };
            Some(Section { is_video: media.kind == MediaKind::Video, depacketizer, clock, next: None })
        };
        self.sections = description.media.iter().map(section_of).collect();
        let tracks: Vec<_> = (0..self.sections.len()).map(TrackSetup::interleaved).collect();
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
        // A source that changes is nobody's for most players. What was left out is missed by who looks at the units.
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
            self.events.push_back(LoadEvent::Unit { is_video, payload });
        }
        if is_bad {
            self.spoilt(is_video);
        }
    }

    /// A unit that cannot be read stands for what must not come.
    fn spoilt(&mut self, is_video: bool) {
        self.events.push_back(LoadEvent::Unit { is_video, payload: Bytes::new() });
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
        self.machine.close(now, CloseReason::PeerClosed);
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
        self.machine.close(now, CloseReason::Requested);
        self.drain(now);
    }
}
