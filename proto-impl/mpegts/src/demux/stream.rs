//! Elementary streams: continuity checks, and assembly of PES packets from transport packets.

use bytes::{Buf, BytesMut};

use super::{Event, Instant, Pes, Sink};
use crate::pes::PesHeader;
use crate::{Packet, Stream, StreamKind};

/// Number of stuffed packets that must have ended their PES packet before the next stuffed packet is assumed to
/// do so.
const TRUST_AFTER: u32 = 4;

/// An incomplete PES packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Begun {
    random_access: bool,
    discontinuity: bool,
}

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No PES packet is open; bytes before the next start are skipped.
    Idle,
    /// A PES packet is open.
    Open(Begun),
    /// The PES packet was already output, because its last transport packet was stuffed.
    Ended,
    /// The stream is ignored.
    Ignored,
}

/// Evidence that a stuffed packet ends its PES packet, as [`super`] describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filling {
    /// Stuffed packets have ended their PES packet this many times in a row.
    Seen(u32),
    /// A stuffed packet did not end its PES packet. Stuffing is ignored from now on.
    MeansNothing,
}

/// Reassembles the PES packets of one stream.
#[derive(Debug)]
pub(super) struct Assembly {
    stream: Stream,
    state: State,
    buffer: BytesMut,
    /// Total length of the open PES packet; `None` if unknown.
    total: Option<usize>,
    continuity: Option<u8>,
    /// First bytes of the last payload. A packet that has these bytes and the last counter is a repetition.
    last_head: [u8; 16],
    /// True if the last packet was stuffed.
    filled: bool,
    filling: Filling,
    /// True if data was lost or dropped since the last PES packet was output.
    discontinuity: bool,
    /// Arrival time of the last bytes.
    arrived: Option<Instant>,
}

impl Assembly {
    pub(super) fn new(stream: Stream) -> Self {
        let carried = !matches!(stream.kind, StreamKind::Splice | StreamKind::Other(_));
        Self {
            stream,
            state: if carried { State::Idle } else { State::Ignored },
            buffer: BytesMut::new(),
            total: None,
            continuity: None,
            last_head: [0; 16],
            filled: false,
            filling: Filling::Seen(0),
            discontinuity: false,
            arrived: None,
        }
    }

    pub(super) const fn stream(&self) -> Stream {
        self.stream
    }

    /// Bytes held of the open PES packet.
    pub(super) fn held(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn ignore(&mut self) {
        self.buffer = BytesMut::new();
        self.state = State::Ignored;
    }

    /// Handles a packet of this stream that has payload. `room` is the number of bytes that all streams may still
    /// hold.
    pub(super) fn push(&mut self, packet: &Packet<'_>, payload: &[u8], room: usize, sink: &mut Sink) {
        if self.state == State::Ignored {
            return sink.stats.count_other(self.stream.kind.stream_type());
        }
        let announced = packet.adaptation.is_some_and(|adaptation| adaptation.discontinuity);
        let mut head = [0; 16];
        head.iter_mut().zip(payload).for_each(|(to, from)| *to = *from);
        let expected = self.continuity.map(|last| (last + 1) & 0x0f);
        if self.continuity == Some(packet.continuity) && self.last_head == head && !announced {
            sink.stats.duplicates = sink.stats.duplicates.saturating_add(1);
            return;
        }
        if expected.is_some_and(|expected| expected != packet.continuity) {
            if !announced {
                sink.stats.gaps = sink.stats.gaps.saturating_add(1);
            }
            self.tear(sink);
        }
        self.discontinuity |= announced;
        self.continuity = Some(packet.continuity);
        self.last_head = head;
        self.place(packet.unit_start, sink);
        if packet.unit_start {
            let random_access = packet.adaptation.is_some_and(|adaptation| adaptation.random_access);
            self.state = State::Open(Begun { random_access, discontinuity: self.discontinuity });
        }
        self.filled = packet.adaptation.is_some_and(|adaptation| adaptation.stuffed);
        if matches!(self.state, State::Open(_)) {
            self.append(payload, room, sink);
        }
    }

    /// Evaluates the stuffing of the previous packet, now that the next packet is known.
    fn place(&mut self, unit_start: bool, sink: &mut Sink) {
        if self.filled && self.continuity.is_some() {
            self.filling = match self.filling {
                Filling::Seen(times) if unit_start => Filling::Seen(times.saturating_add(1)),
                Filling::Seen(_) | Filling::MeansNothing if self.state == State::Idle => self.filling,
                Filling::Seen(_) | Filling::MeansNothing => Filling::MeansNothing,
            };
        }
        if unit_start {
            if self.total.is_some() {
                // The PES packet announced more bytes than have arrived.
                self.tear(sink);
            }
            return self.finish(sink);
        }
        if self.state == State::Ended {
            sink.stats.pes_cut = sink.stats.pes_cut.saturating_add(1);
            self.discontinuity = true;
            self.state = State::Idle;
        }
    }

    fn append(&mut self, payload: &[u8], room: usize, sink: &mut Sink) {
        if payload.len() > room {
            sink.stats.pes_oversized = sink.stats.pes_oversized.saturating_add(1);
            // Free the buffer, which has become large.
            self.buffer = BytesMut::new();
            return self.drop_begun();
        }
        self.arrived = sink.now;
        self.buffer.extend_from_slice(payload);
        if self.total.is_none() {
            self.total = PesHeader::total(&self.buffer).flatten();
            if let Some(total) = self.total {
                self.buffer.reserve(total.saturating_sub(self.buffer.len()));
            }
        }
        match self.total {
            Some(total) if self.buffer.len() >= total => {
                self.buffer.truncate(total);
                self.emit(State::Idle, sink);
            }
            None if self.filled && matches!(self.filling, Filling::Seen(times) if times >= TRUST_AFTER) => {
                self.emit(State::Ended, sink);
            }
            Some(_) | None => {}
        }
    }

    /// Drops the open PES packet, because part of it was lost.
    pub(super) fn tear(&mut self, sink: &mut Sink) {
        self.filled = false;
        if matches!(self.state, State::Open(_)) {
            sink.stats.pes_damaged = sink.stats.pes_damaged.saturating_add(1);
        }
        if self.state != State::Ignored {
            self.drop_begun();
        }
    }

    /// Handles the loss of an unknown number of packets. One in sixteen such gaps leaves the continuity counter in
    /// sequence, so open PES packets without a length are dropped; a PES packet with a length reveals the loss by that
    /// length.
    pub(super) fn lost(&mut self, sink: &mut Sink) {
        if self.total.is_none() {
            self.tear(sink);
        }
    }

    /// Ends the stream, which completes a PES packet without a length.
    pub(super) fn finish(&mut self, sink: &mut Sink) {
        match self.state {
            State::Open(_) if self.total.is_none() => self.emit(State::Idle, sink),
            State::Open(_) => self.tear(sink),
            State::Ended => self.state = State::Idle,
            State::Idle | State::Ignored => {}
        }
    }

    fn drop_begun(&mut self) {
        self.buffer.clear();
        self.total = None;
        self.discontinuity = true;
        self.state = State::Idle;
    }

    fn emit(&mut self, next: State, sink: &mut Sink) {
        let State::Open(begun) = self.state else { return };
        self.state = next;
        let bounded = self.total.take().is_some();
        let mut packet = self.buffer.split().freeze();
        let header = match PesHeader::read(&packet) {
            Ok(header) if header.scrambled => {
                sink.stats.scrambled = sink.stats.scrambled.saturating_add(1);
                return self.drop_begun();
            }
            Ok(header) => header,
            Err(_) => {
                sink.stats.pes_invalid = sink.stats.pes_invalid.saturating_add(1);
                return self.drop_begun();
            }
        };
        packet.advance(header.payload_at.min(packet.len()));
        self.discontinuity = false;
        sink.stats.pes = sink.stats.pes.saturating_add(1);
        sink.ready.push_back(Event::Pes(Pes {
            stream: self.stream,
            pts: header.pts,
            dts: header.dts,
            random_access: begun.random_access,
            aligned: header.aligned,
            bounded,
            discontinuity: begun.discontinuity,
            arrived: self.arrived,
            payload: packet,
        }));
    }
}
