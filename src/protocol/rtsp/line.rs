//! The outgoing datagrams of a viewer: their queue, their pace, and the state of the path according to the viewer's
//! reports.
//!
//! An RTSP player never requests lost packets again, so a path with less capacity than the stream needs spoils all
//! pictures. Once reports show such a path ([`ReportedPath`]), datagrams leave at its rate, audio ahead of video, and
//! the viewer leaves pictures out ([`crate::protocol::thinning`]). Packets are numbered as they leave, so that
//! omitted ones cause no gap.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rtp::bandwidth::ReportedPath;
use rtp::rtcp::{self, Rtcp};
use rtp::{SequenceNumber, Ssrc};
use wire::Datagrams;

use super::pairs::{path_of, track_of};
use super::viewer::after;
use crate::protocol::PathId;
use crate::protocol::thinning::time_of;

/// Maximum bytes that wait to be sent. At this limit, the viewer gets no more units.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes sent per [`PACE_INTERVAL`]. This limits the rate to 128 Mb/s, so that a viewer's initial backlog does
/// not overflow its socket.
pub(super) const PACE_BYTES: usize = 32 << 10;
pub(super) const PACE_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum bytes sent in one burst to a distant viewer while little waits: most pictures, or the beginning of a key
/// frame.
const FAR_BYTES: usize = 16 << 10;
/// Further bytes per interval for a distant viewer (20 Mb/s).
const FAR_STEP: usize = 5 << 10;
/// Number of intervals over which the waiting bytes of a distant viewer are spread, if that is faster than
/// [`FAR_STEP`]: 25 ms in total, little compared with the viewer's round trip.
const FAR_INTERVALS: usize = 12;
/// Maximum time by which datagrams may lag behind the pace of a narrow path and still catch up immediately. Time lost
/// beyond that is not made up.
const CATCH_UP: Duration = Duration::from_millis(5);
/// Maximum time that audio may wait on a narrow path; older audio is dropped.
const SOUND_WAITS_MAX: Duration = Duration::from_millis(300);
/// Position of the sequence number in an RTP header, and of the marker bit (RFC 3550 §5.1).
const NUMBER_AT: usize = 2;
const MARKER_AT: usize = 1;
const MARKER: u8 = 0x80;

/// A packet in two slices.
#[derive(Debug)]
struct Packet {
    path: PathId,
    /// True for a packet of audio, but not for a report about it.
    is_sound: bool,
    head: Bytes,
    payload: Bytes,
}

impl Packet {
    const fn bytes(&self) -> usize {
        self.head.len().saturating_add(self.payload.len())
    }

    /// True if the packet is the last of its unit.
    fn is_last(&self) -> bool {
        self.head.get(MARKER_AT).is_some_and(|byte| byte & MARKER != 0)
    }

    /// Returns the source of an RTP packet, and the sequence number that all viewers share.
    fn numbered(&self) -> Option<(Ssrc, SequenceNumber)> {
        let &[_, _, high, low, _, _, _, _, a, b, c, d] = self.head.first_chunk::<{ rtp::HEADER_BYTES }>()?;
        Some((Ssrc(u32::from_be_bytes([a, b, c, d])), SequenceNumber(u16::from_be_bytes([high, low]))))
    }
}

/// Sequence numbers of a section's packets as sent to this viewer.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    ssrc: Ssrc,
    next: SequenceNumber,
    /// True if the last packet did not end its unit.
    is_within_unit: bool,
}

/// The queue of a viewer's datagrams, described in the module.
#[derive(Debug)]
pub(super) struct Line {
    waiting: VecDeque<Packet>,
    /// Audio packets that leave before the waiting ones, and their bytes. `sound_in_order` counts the audio packets
    /// among those that wait in order.
    sound: VecDeque<Packet>,
    sound_bytes: usize,
    sound_in_order: usize,
    waiting_bytes: usize,
    /// Start of the pacing window, and the bytes that may still leave in it.
    paced: (Instant, usize),
    /// True for a distant viewer: queues on the path may hold less than a key frame.
    is_far: bool,
    /// Time from which the next datagram may leave on a narrow path.
    next: Instant,
    path: ReportedPath,
    numbers: Vec<Option<Numbers>>,
}

impl Line {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            sound: VecDeque::new(),
            sound_bytes: 0,
            sound_in_order: 0,
            waiting_bytes: 0,
            paced: (now, PACE_BYTES),
            is_far: false,
            next: now,
            path: ReportedPath::new(),
            numbers: Vec::new(),
        }
    }

    /// Makes the line spread large units over some milliseconds, for a distant viewer. A queue on the path may be too
    /// small for a whole key frame; the picture would then stand still for up to five seconds, until the next report
    /// reveals the loss.
    pub(super) fn spread_for_distance(&mut self) {
        self.is_far = true;
        self.paced.1 = self.paced.1.min(FAR_BYTES);
    }

    /// True if there is room for another unit.
    pub(super) const fn has_room(&self) -> bool {
        self.waiting_bytes < WAITING_BYTES_MAX
    }

    #[cfg(test)]
    pub(super) const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Bits per second that the path carries; `None` while it is not known to be narrow.
    pub(super) const fn limit(&self) -> Option<u64> {
        self.path.limit()
    }

    /// Returns the time that a narrow path needs for the waiting packets.
    pub(super) fn queued(&self) -> Duration {
        self.limit().map_or(Duration::ZERO, |limit| time_of(self.waiting_bytes, limit))
    }

    /// Queues a packet of a section.
    pub(super) fn push(&mut self, path: PathId, is_sound: bool, (head, payload): (Bytes, Bytes)) {
        let packet = Packet { path, is_sound, head, payload };
        self.waiting_bytes = self.waiting_bytes.saturating_add(packet.bytes());
        if let Some(limit) = self.limit().filter(|_| is_sound && self.sound_in_order == 0) {
            self.sound_bytes = self.sound_bytes.saturating_add(packet.bytes());
            self.sound.push_back(packet);
            while self.sound.len() > 1 && time_of(self.sound_bytes, limit) > SOUND_WAITS_MAX {
                self.pop();
            }
            return;
        }
        self.sound_in_order = self.sound_in_order.saturating_add(usize::from(is_sound));
        self.waiting.push_back(packet);
    }

    /// Drops the waiting units of a section that have not begun to leave. Returns their number.
    pub(super) fn drop_unbegun(&mut self, section: usize) -> u64 {
        let path = path_of(section, false);
        let begun = self.numbers.get(section).copied().flatten();
        let mut is_begun = begun.is_some_and(|numbers| numbers.is_within_unit);
        let (mut dropped, mut bytes) = (0u64, 0usize);
        self.waiting.retain(|packet| {
            let is_kept = packet.path != path || is_begun;
            if packet.path == path {
                is_begun &= !packet.is_last();
            }
            if !is_kept {
                dropped = dropped.saturating_add(u64::from(packet.is_last()));
                bytes = bytes.saturating_add(packet.bytes());
            }
            is_kept
        });
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        dropped
    }

    /// Applies the receiver reports of a compound packet. Returns true if the path has turned out to be narrow.
    pub(super) fn handle_rtcp(&mut self, now: Instant, compound: &[u8]) -> bool {
        let before = self.limit();
        for part in rtcp::packets(compound).flatten() {
            if let Rtcp::ReceiverReport(report) = part {
                for block in report.blocks() {
                    self.path.handle_report(now, &block);
                }
            }
        }
        before.is_none() && self.limit().is_some()
    }

    /// Adds the next datagrams of one path, as far as the pace allows. Returns their path.
    pub(super) fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> Option<PathId> {
        self.refill(now);
        let path = self.front()?.path;
        while self.may_send(now)
            && let Some(packet) = self.front()
            && packet.path == path
            && out.has_room(packet.bytes())
            && let Some(packet) = self.pop()
        {
            self.leave(now, &packet, out);
        }
        Some(path)
    }

    /// Begins a pacing window if the last one is over.
    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.paced.0).as_micros() / PACE_INTERVAL.as_micros();
        if elapsed == 0 {
            return;
        }
        let bytes = if self.is_far {
            let steps = usize::try_from(elapsed).unwrap_or(usize::MAX);
            let kept = self.paced.1.saturating_add(steps.saturating_mul(FAR_STEP)).min(FAR_BYTES);
            kept.max(self.waiting_bytes / FAR_INTERVALS).min(PACE_BYTES)
        } else {
            PACE_BYTES
        };
        self.paced = (now, bytes);
    }

    fn front(&self) -> Option<&Packet> {
        self.sound.front().or_else(|| self.waiting.front())
    }

    fn pop(&mut self) -> Option<Packet> {
        let packet = match self.sound.pop_front() {
            Some(packet) => {
                self.sound_bytes = self.sound_bytes.saturating_sub(packet.bytes());
                packet
            }
            None => {
                let packet = self.waiting.pop_front()?;
                self.sound_in_order = self.sound_in_order.saturating_sub(usize::from(packet.is_sound));
                packet
            }
        };
        self.waiting_bytes = self.waiting_bytes.saturating_sub(packet.bytes());
        Some(packet)
    }

    fn may_send(&self, now: Instant) -> bool {
        if self.limit().is_some() { self.next <= now } else { self.paced.1 > 0 }
    }

    fn leave(&mut self, now: Instant, packet: &Packet, out: &mut Datagrams) {
        let bytes = packet.bytes();
        self.paced.1 = self.paced.1.saturating_sub(bytes);
        if let Some(limit) = self.limit() {
            let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
            self.next = after(self.next.max(earliest), time_of(bytes, limit));
        }
        let Some((section, false)) = track_of(packet.path) else {
            return out.push(&packet.head, &packet.payload);
        };
        let number = packet.numbered().map(|shared| {
            let number = self.number(section, shared, packet.is_last());
            self.path.packet_sent(now, shared.0, number, bytes);
            number
        });
        out.push_made(|made| {
            let begins = made.len();
            made.extend_from_slice(&packet.head);
            made.extend_from_slice(&packet.payload);
            let field =
                made.get_mut(begins.saturating_add(NUMBER_AT)..).and_then(|rest| rest.first_chunk_mut());
            if let (Some(field), Some(number)) = (field, number) {
                *field = number.0.to_be_bytes();
            }
        });
    }

    /// Returns the number of a section's next packet for this viewer.
    fn number(&mut self, section: usize, shared: (Ssrc, SequenceNumber), is_last: bool) -> SequenceNumber {
        let (ssrc, first) = shared;
        if self.numbers.len() <= section {
            self.numbers.resize(section.saturating_add(1), None);
        }
        let Some(numbers) = self.numbers.get_mut(section) else { return first };
        let before = numbers.filter(|numbers| numbers.ssrc == ssrc);
        let number = before.map_or(first, |numbers| numbers.next);
        *numbers = Some(Numbers { ssrc, next: number.next(), is_within_unit: !is_last });
        number
    }

    /// Returns the time at which more may be sent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.front()?;
        Some(if self.limit().is_some() { self.next } else { after(self.paced.0, PACE_INTERVAL) })
    }
}

#[cfg(test)]
mod tests;
