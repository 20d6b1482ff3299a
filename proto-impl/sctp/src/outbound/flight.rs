//! Chunks in flight: acknowledgements with gaps (RFC 9260 §6.2.1), losses, and abandoned messages (RFC 3758 §3.5).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use wire::Reader;

use super::congestion::Congestion;
use super::queue::{Piece, Queues};
use crate::config::{FLIGHT_CHUNKS_MAX, OVERHEAD_BYTES};
use crate::inbound::{DATA_HEAD_BYTES, flag};
use crate::packet::{CHUNK_HEAD_BYTES, chunk, chunk_bytes, write_chunk};
use crate::seq;

/// Number of acknowledgements of later chunks after which a chunk counts as lost (RFC 9260 §7.2.4).
const MISSES: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    /// Lost; must be sent again.
    Lost,
    /// Acknowledged by a gap block. The peer may revoke this, so the payload is kept.
    Acknowledged,
    Abandoned,
}

#[derive(Debug)]
struct Sent {
    piece: Piece,
    state: State,
    transmissions: u32,
    misses: u8,
    /// First TSN sent after this chunk's last transmission: an acknowledgement of this or a later TSN counts
    /// as a miss.
    behind: u64,
}

impl Sent {
    /// Bytes that count towards the windows.
    fn bytes(&self) -> usize {
        self.piece.payload.len().saturating_add(CHUNK_HEAD_BYTES).saturating_add(DATA_HEAD_BYTES)
    }

    fn charge(&self) -> usize {
        self.piece.payload.len().saturating_add(OVERHEAD_BYTES)
    }
}

/// Value of a `SACK` (RFC 9260 §3.3.4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sack<'a> {
    cumulative: u32,
    window: u32,
    gaps: &'a [u8],
}

impl<'a> Sack<'a> {
    pub(crate) fn read(value: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let (cumulative, window) = (reader.u32().ok()?, reader.u32().ok()?);
        let (gaps, _duplicates) = (reader.u16().ok()?, reader.u16().ok()?);
        Some(Self { cumulative, window, gaps: reader.take(usize::from(gaps).saturating_mul(4)).ok()? })
    }

    /// Returns the acknowledgement contained in a `SHUTDOWN`, which announces no window.
    pub(crate) const fn of_shutdown(cumulative: u32, window: u32) -> Self {
        Self { cumulative, window, gaps: &[] }
    }

    /// Iterates over the first and last offsets of the gap blocks.
    fn blocks(&self) -> impl Iterator<Item = (u16, u16)> {
        let (blocks, _) = self.gaps.as_chunks::<4>();
        blocks.iter().map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])))
    }
}

/// Effect of an acknowledgement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// True if the acknowledgement belongs to this association, and is not older than a previous one.
    pub(crate) is_current: bool,
    /// True if the first chunk in flight has changed, or none is left.
    pub(crate) advanced: bool,
    pub(crate) round_trip: Option<Duration>,
}

/// The chunks in flight of an association.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Last TSN acknowledged without gaps; the chunks follow it.
    cumulative: u64,
    chunks: VecDeque<Sent>,
    /// Number of unacknowledged chunks per stream.
    streams: BTreeMap<u16, u32>,
    in_flight: usize,
    lost: usize,
    held: usize,
    /// Last TSN up to which everything is acknowledged or abandoned, as sent in `FORWARD TSN`.
    advanced: u64,
    forward_due: bool,
    peer_window: usize,
    congestion: Congestion,
    /// TSN of the chunk whose round trip is being measured, and the time at which it was sent.
    timed: Option<(u64, Instant)>,
    has_forward: bool,
    /// True if a loss was just detected: one packet may then be sent regardless of the window (RFC 9260
    /// §7.2.4).
    rescues: bool,
    pub(crate) retransmitted: u64,
    pub(crate) abandoned: u64,
}

impl Flight {
    /// Creates the state before the first chunk; `window` is the window announced by the peer.
    pub(crate) fn new(first: u32, mtu: usize, window: u32, has_forward: bool) -> Self {
        let before = seq::TSN_BASE.saturating_add(u64::from(first)).saturating_sub(1);
        let peer_window = usize::try_from(window).unwrap_or(usize::MAX);
        Self {
            cumulative: before,
            chunks: VecDeque::new(),
            streams: BTreeMap::new(),
            in_flight: 0,
            lost: 0,
            held: 0,
            advanced: before,
            forward_due: false,
            peer_window,
            congestion: Congestion::new(mtu, peer_window),
            timed: None,
            has_forward,
            rescues: false,
            retransmitted: 0,
            abandoned: 0,
        }
    }

    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) const fn window(&self) -> usize {
        self.congestion.window()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// True if no chunk of a stream is in flight.
    pub(crate) fn is_idle(&self, stream: u16) -> bool {
        !self.streams.contains_key(&stream)
    }

    /// Returns the last TSN used.
    pub(crate) fn last_tsn(&self) -> u64 {
        self.cumulative.saturating_add(u64::try_from(self.chunks.len()).unwrap_or(u64::MAX))
    }

    /// Handles a pause in which nothing was sent.
    pub(crate) fn rest(&mut self) {
        if self.chunks.is_empty() {
            self.congestion.rest();
        }
    }

    fn index(&self, tsn: u64) -> Option<usize> {
        let at = tsn.checked_sub(self.cumulative)?.checked_sub(1)?;
        usize::try_from(at).ok().filter(|at| *at < self.chunks.len())
    }

    fn set(&mut self, at: usize, state: State) {
        let Some(sent) = self.chunks.get_mut(at) else { return };
        let bytes = sent.bytes();
        match sent.state {
            State::InFlight => self.in_flight = self.in_flight.saturating_sub(bytes),
            State::Lost => self.lost = self.lost.saturating_sub(1),
            State::Acknowledged | State::Abandoned => {}
        }
        match state {
            State::InFlight => self.in_flight = self.in_flight.saturating_add(bytes),
            State::Lost => self.lost = self.lost.saturating_add(1),
            State::Acknowledged | State::Abandoned => {}
        }
        sent.state = state;
    }

    /// Handles an acknowledgement.
    pub(crate) fn acknowledge(&mut self, now: Instant, sack: &Sack<'_>, queues: &mut Queues) -> Acknowledged {
        let to = seq::unwrap_tsn(self.cumulative, sack.cumulative);
        if to < self.cumulative || to > self.last_tsn() {
            return Acknowledged::default();
        }
        let before = self.in_flight;
        let advanced = to > self.cumulative;
        let mut bytes = 0usize;
        while self.cumulative < to {
            bytes = bytes.saturating_add(self.pop());
        }
        let mut newest = advanced.then_some(to);
        bytes = bytes.saturating_add(self.mark_gaps(sack, &mut newest));
        let is_timed = self.timed.is_some_and(|(tsn, _)| self.is_acknowledged(tsn));
        let round_trip = self.timed.take_if(|_| is_timed);
        self.congestion.acknowledge(self.cumulative, advanced, bytes, before);
        if let Some(newest) = newest {
            // In fast recovery, each advance of the cumulative TSN counts as another miss (§7.2.4).
            let told = sack.blocks().last().map(|(_, last)| self.cumulative.saturating_add(u64::from(last)));
            let highest = told.filter(|_| self.congestion.in_recovery() && advanced);
            self.count_misses(newest.max(highest.unwrap_or_default()));
        }
        self.give_up(now, queues);
        self.peer_window = usize::try_from(sack.window).unwrap_or(usize::MAX).saturating_sub(self.in_flight);
        self.forward_due |= self.advanced > self.cumulative;
        self.advanced = self.advanced.max(self.cumulative);
        Acknowledged {
            is_current: true,
            advanced,
            round_trip: round_trip.map(|(_, sent)| now.saturating_duration_since(sent)),
        }
    }

    /// Removes the first chunk. Returns the number of bytes that this acknowledges for the first time.
    fn pop(&mut self) -> usize {
        self.cumulative = self.cumulative.saturating_add(1);
        let Some(sent) = self.chunks.front() else { return 0 };
        let newly = match sent.state {
            State::InFlight | State::Lost => sent.bytes(),
            State::Acknowledged | State::Abandoned => 0,
        };
        self.held = self.held.saturating_sub(sent.charge());
        let stream = sent.piece.stream;
        self.set(0, State::Acknowledged);
        self.chunks.pop_front();
        if let Some(count) = self.streams.get_mut(&stream) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.streams.remove(&stream);
            }
        }
        newly
    }

    /// Marks chunks acknowledged by gap blocks. Blocks must be in ascending order, so that each chunk is
    /// visited once.
    fn mark_gaps(&mut self, sack: &Sack<'_>, newest: &mut Option<u64>) -> usize {
        let (mut bytes, mut floor) = (0usize, 1);
        for (first, last) in sack.blocks() {
            if first < floor || last < first {
                break;
            }
            floor = last.saturating_add(1);
            for offset in first..=last {
                let tsn = self.cumulative.saturating_add(u64::from(offset));
                let Some(at) = self.index(tsn) else { return bytes };
                let Some(sent) = self.chunks.get(at) else { return bytes };
                if matches!(sent.state, State::InFlight | State::Lost) {
                    bytes = bytes.saturating_add(sent.bytes());
                    *newest = (*newest).max(Some(tsn));
                    self.set(at, State::Acknowledged);
                }
            }
        }
        bytes
    }

    fn is_acknowledged(&self, tsn: u64) -> bool {
        let state = self.index(tsn).and_then(|at| self.chunks.get(at)).map(|sent| sent.state);
        tsn <= self.cumulative || state == Some(State::Acknowledged)
    }

    /// Counts a miss for each chunk that was overtaken by the chunk with this TSN.
    fn count_misses(&mut self, highest: u64) {
        let mut is_lost = false;
        for at in 0..self.chunks.len() {
            let tsn = self.cumulative.saturating_add(u64::try_from(at).unwrap_or(u64::MAX)).saturating_add(1);
            if tsn >= highest {
                break;
            }
            let Some(sent) = self.chunks.get_mut(at) else { break };
            if sent.state != State::InFlight || highest < sent.behind {
                continue;
            }
            sent.misses = sent.misses.saturating_add(1);
            if sent.misses >= MISSES {
                self.set(at, State::Lost);
                is_lost = true;
            }
        }
        if is_lost {
            self.congestion.lose(self.last_tsn());
            self.rescues = true;
        }
    }

    /// Handles a timeout (RFC 9260 §6.3.3): all chunks count as lost. If the first chunk was acknowledged by
    /// a gap block but is still not acknowledged cumulatively, the peer has dropped it (§6.2.1), and perhaps
    /// other chunks.
    pub(crate) fn time_out(&mut self, now: Instant, queues: &mut Queues) {
        let is_taken_back = self.chunks.front().is_some_and(|sent| sent.state == State::Acknowledged);
        for at in 0..self.chunks.len() {
            let state = self.chunks.get(at).map(|sent| sent.state);
            if state == Some(State::InFlight) || (is_taken_back && state == Some(State::Acknowledged)) {
                self.set(at, State::Lost);
            }
        }
        self.timed = None;
        self.congestion.time_out();
        self.give_up(now, queues);
        self.forward_due |= self.advanced > self.cumulative;
    }

    /// Abandons the messages of lost chunks that have exceeded their limit (RFC 3758 §3.5, A3).
    fn give_up(&mut self, now: Instant, queues: &mut Queues) {
        if self.has_forward && self.lost > 0 {
            let mut at = 0;
            while let Some(sent) = self.chunks.get(at) {
                let is_over = sent.state == State::Lost && sent.piece.limit.is_over(now, sent.transmissions);
                at = if is_over { self.abandon(at, sent.piece.id, queues) } else { at.saturating_add(1) };
            }
        }
        self.advance();
    }

    /// Abandons the message of the chunk at `at`. Returns the index after the message's last chunk.
    fn abandon(&mut self, at: usize, id: u64, queues: &mut Queues) -> usize {
        let is_of = |flight: &Self, at: usize| flight.chunks.get(at).is_some_and(|sent| sent.piece.id == id);
        let mut first = at;
        while first.checked_sub(1).is_some_and(|before| is_of(self, before)) {
            first = first.saturating_sub(1);
        }
        let mut end = first;
        while is_of(self, end) {
            self.set(end, State::Abandoned);
            end = end.saturating_add(1);
        }
        self.abandoned = self.abandoned.saturating_add(1);
        // The unsent rest of the message is represented by one TSN that is never sent. Without that TSN, the
        // next message would directly follow the middle of this one.
        if queues.abandon(id)
            && let Some(last) = self.chunks.back()
        {
            let mut piece = last.piece.clone();
            piece.payload = bytes::Bytes::new();
            piece.flags |= flag::END;
            self.push(piece, State::Abandoned);
        }
        end
    }

    fn push(&mut self, piece: Piece, state: State) {
        let count = self.streams.entry(piece.stream).or_default();
        *count = count.saturating_add(1);
        let behind = self.last_tsn().saturating_add(2);
        let sent = Sent { piece, state, transmissions: 1, misses: 0, behind };
        self.held = self.held.saturating_add(sent.charge());
        if state == State::InFlight {
            self.in_flight = self.in_flight.saturating_add(sent.bytes());
        }
        self.chunks.push_back(sent);
    }

    /// Advances the point up to which everything was abandoned or acknowledged (RFC 3758 §3.5, C2).
    fn advance(&mut self) {
        self.advanced = self.advanced.max(self.cumulative);
        while let Some(at) = self.index(self.advanced.saturating_add(1)) {
            if self.chunks.get(at).is_none_or(|sent| sent.state != State::Abandoned) {
                break;
            }
            self.advanced = self.advanced.saturating_add(1);
            self.forward_due = true;
        }
    }

    /// Returns the value of a `FORWARD TSN` that is due (RFC 3758 §3.2), of at most `bytes_max` bytes.
    pub(crate) fn take_forward(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.forward_due) || self.advanced <= self.cumulative {
            return None;
        }
        let room = bytes_max.saturating_sub(4) / 4;
        let mut skipped: BTreeMap<u16, u16> = BTreeMap::new();
        let mut to = self.cumulative;
        while let Some(sent) = self.index(to.saturating_add(1)).and_then(|at| self.chunks.get(at)) {
            let stream = sent.piece.stream;
            let is_ordered = sent.piece.flags & flag::UNORDERED == 0;
            let has_room = skipped.len() < room || skipped.contains_key(&stream);
            if to >= self.advanced || (is_ordered && !has_room) {
                break;
            }
            if is_ordered {
                skipped.insert(stream, sent.piece.ssn);
            }
            to = to.saturating_add(1);
        }
        let mut value = seq::wrap_tsn(to).to_be_bytes().to_vec();
        for (stream, ssn) in skipped {
            value.extend_from_slice(&stream.to_be_bytes());
            value.extend_from_slice(&ssn.to_be_bytes());
        }
        Some(value)
    }

    /// True if the windows allow sending a chunk, lost or new.
    pub(crate) fn may_send(&self, queues: &Queues) -> bool {
        if self.lost > 0 {
            return self.may_repeat();
        }
        let has_window = self.in_flight < self.congestion.window() && self.congestion.may_burst();
        !queues.is_empty() && has_window && self.chunks.len() < FLIGHT_CHUNKS_MAX
    }

    fn may_repeat(&self) -> bool {
        let has_window = self.in_flight < self.congestion.window() && self.congestion.may_burst();
        has_window || self.rescues || self.in_flight == 0
    }

    /// Fills the rest of a packet with data chunks of at most `room` bytes in total. Returns the number of
    /// chunks.
    pub(crate) fn fill(
        &mut self,
        now: Instant,
        queues: &mut Queues,
        room: usize,
        packet: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        if self.in_flight == 0 {
            self.congestion.refill();
        }
        let (start, mut count) = (out.len(), 0usize);
        let left = |out: &Vec<u8>| room.saturating_sub(out.len().saturating_sub(start));
        count = count.saturating_add(self.fill_lost(room, out));
        while self.lost == 0 && self.may_send(queues) {
            let heads = CHUNK_HEAD_BYTES.saturating_add(DATA_HEAD_BYTES);
            let mut most = (left(out) & !3).saturating_sub(heads);
            if self.in_flight > 0 {
                most = most.min(self.peer_window);
            }
            let whole = (packet & !3).saturating_sub(heads);
            // With nothing in flight, one chunk may be sent regardless of the peer's window (§6.1, A).
            let Some(piece) = queues.next(now, most, whole) else { break };
            let tsn = self.last_tsn().saturating_add(1);
            self.peer_window = self.peer_window.saturating_sub(piece.payload.len());
            write(tsn, &piece, out);
            self.push(piece, State::InFlight);
            self.timed.get_or_insert((tsn, now));
            count = count.saturating_add(1);
        }
        if count > 0 {
            self.congestion.count_packet();
            self.rescues = false;
        }
        count
    }

    /// Sends lost chunks again. With nothing in flight, the first is sent regardless of the windows.
    fn fill_lost(&mut self, room: usize, out: &mut Vec<u8>) -> usize {
        let (start, mut count, mut at) = (out.len(), 0usize, 0usize);
        while self.lost > 0 {
            if !self.may_repeat() {
                break;
            }
            let Some(sent) = self.chunks.get(at) else { break };
            if sent.state == State::Lost {
                let bytes = chunk_bytes(DATA_HEAD_BYTES.saturating_add(sent.piece.payload.len()));
                if out.len().saturating_sub(start).saturating_add(bytes) > room {
                    break;
                }
                let tsn =
                    self.cumulative.saturating_add(u64::try_from(at).unwrap_or(u64::MAX)).saturating_add(1);
                let behind = self.last_tsn().saturating_add(1);
                write(tsn, &sent.piece, out);
                // Karn's algorithm: a round trip cannot be measured with a retransmitted chunk.
                self.timed.take_if(|(timed, _)| *timed == tsn);
                if let Some(sent) = self.chunks.get_mut(at) {
                    sent.transmissions = sent.transmissions.saturating_add(1);
                    (sent.misses, sent.behind) = (0, behind);
                }
                self.set(at, State::InFlight);
                self.retransmitted = self.retransmitted.saturating_add(1);
                count = count.saturating_add(1);
            }
            at = at.saturating_add(1);
        }
        count
    }
}

/// Appends a data chunk.
fn write(tsn: u64, piece: &Piece, out: &mut Vec<u8>) {
    let parts = [
        &seq::wrap_tsn(tsn).to_be_bytes()[..],
        &piece.stream.to_be_bytes(),
        &piece.ssn.to_be_bytes(),
        &piece.ppid.to_be_bytes(),
        &piece.payload,
    ];
    write_chunk(out, chunk::DATA, piece.flags, &parts);
}
