//! Sends media: packets of tracks that many peers share, numbered separately for each peer.
//!
//! A [`Track`] packetizes each unit once, and keeps the packets for a while. The owner chooses which units a
//! peer sends ([`crate::Peer::send`]), and the peer takes their packets from the track when it is drained. A
//! queued unit costs a peer only a range of packet numbers.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use media::codec::{Codec, CodecConfig};
use rtp::bandwidth::BandwidthEstimator;
use rtp::extension::{AudioLevel, PlayoutDelay};
use rtp::history::{LoggedPacket, LoggedUnit, PacketId, PacketLog, ResendHistory, ResendStats};
use rtp::payload::{Packetizer, Payloads};
use rtp::report::SenderState;
use rtp::rtcp::{ReportBlock, SenderInfo};
use rtp::{
    ExtendedSequence, Header, KeyFrameRequests, NtpAnchor, NtpTime, PayloadType, SequenceNumber, Ssrc,
};
use sdp::{Feedback, MediaKind};
use srtp::Outbound;
use wire::Datagrams;

use crate::config::Config;
use crate::heads::{BLOCK_BYTES_MAX, Heads, Stamps};
use crate::negotiate::{Section, SectionId, SourcePair};
use crate::pacer::Pacer;
use crate::probe::Prober;
use crate::redundancy::{LOSS_OF_ONE, Redundancy};
use crate::stats::SentStats;

mod catch_up;
mod head;
mod joined;
mod outflow;
mod seat;
mod tail;
#[cfg(test)]
mod tests;
mod unbegun;

pub(crate) use outflow::{Outflow, Purpose};

use catch_up::CatchUp;
use head::Head;
use joined::Joined;
use tail::Tail;

/// Maximum number of packet ranges queued for a peer. Consecutive units share a range, so this is a
/// second of frames at least. Beyond it, the oldest are dropped.
const WAITING_MAX: usize = 64;
/// Maximum number of packet requests (NACK) waiting for the next drain; our own receiver never requests more.
const ASKED_MAX: usize = rtp::receive::NACK_LIST_MAX;
/// Round trip assumed before the first measurement.
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(50);
/// Interval at which packets carry their capture time. Players derive the capture times of other packets from
/// these.
const CAPTURE_TIME_INTERVAL: Duration = Duration::from_secs(1);
/// Loss in thousandths from which on each retransmission is sent twice, because receivers request a packet only once
/// per estimated round trip. The second copy follows a little later, because losses come in bursts.
const LOSS_OF_ECHOES: u16 = 150;
const ECHO_AFTER: Duration = Duration::from_millis(15);
/// Maximum number of retransmissions whose second copy is still due.
const ECHOES_MAX: usize = 256;
/// Number of recent packets that a probe sends again.
const PADDING_PACKETS: u32 = 8;

/// An elementary stream as RTP packets, shared by all peers that receive it.
#[derive(Debug)]
pub struct Track {
    packetizer: Packetizer,
    payloads: Payloads,
    log: PacketLog,
    /// True if packets carry a marker bit. False for audio, because silence is not suppressed (RFC 3551 §4.1).
    marks: bool,
    /// True if two Opus packets may be joined into a single RTP packet.
    joins: bool,
}

impl Track {
    /// Creates a track with payloads of at most `payload_bytes_max`. `None` for codecs that this crate does not carry
    /// in RTP.
    #[must_use]
    pub fn new(codec: Codec, payload_bytes_max: usize) -> Option<Self> {
        let packetizer = Packetizer::new(codec, payload_bytes_max)?;
        let marks = codec.kind() == media::TrackKind::Video;
        Some(Self {
            packetizer: if marks { packetizer.even() } else { packetizer },
            payloads: Payloads::new(),
            log: PacketLog::new(),
            marks,
            joins: false,
        })
    }

    /// Allows two Opus packets that leave together to be joined into a single RTP packet. Not for a publisher's own
    /// audio, which may be encrypted end to end.
    #[must_use]
    pub fn join_audio(self) -> Self {
        Self { joins: !self.marks, ..self }
    }

    /// Packetizes a unit, and keeps its packets for a second. `timestamp` counts at the codec's RTP clock rate.
    /// Pass the result to [`crate::Peer::send`] of each peer.
    ///
    /// # Errors
    ///
    /// Fails if the unit is not in its codec's format; no packets are made.
    pub fn push(
        &mut self,
        now: Instant,
        config: &CodecConfig,
        key_frame: bool,
        timestamp: u32,
        unit: &[u8],
    ) -> Result<LoggedUnit, rtp::payload::Error> {
        self.packetizer.packetize(config, key_frame, unit, &mut self.payloads)?;
        let first = self.log.next_id();
        let payloads = self.payloads.take_padded();
        let last = payloads.len().saturating_sub(1);
        let mut of_packet = timestamp;
        for (n, (payload, padding)) in payloads.enumerate() {
            let next = of_packet.wrapping_add(samples(config, &payload));
            let marker = self.marks && n == last;
            self.log.push(
                now,
                LoggedPacket { payload, timestamp: of_packet, marker, padding, joins: self.joins },
            );
            of_packet = next;
        }
        let bytes = u64::try_from(unit.len()).unwrap_or(u64::MAX);
        Ok(LoggedUnit { packets: first..self.log.next_id(), timestamp, bytes })
    }

    /// Keeps the packets of this unit and of later ones for new viewers, until the next call.
    pub const fn hold(&mut self, from: &LoggedUnit) {
        self.log.hold(from.packets.start);
    }

    /// True if all packets of a unit are still kept.
    #[must_use]
    pub fn keeps(&self, unit: &LoggedUnit) -> bool {
        unit.packets.start >= self.log.first_id()
    }

    /// The packets that are kept.
    #[must_use]
    pub const fn log(&self) -> &PacketLog {
        &self.log
    }
}

/// Returns the timestamp distance between a payload and the next one of its unit: for G.711, the number of
/// samples, which are one byte per channel; 0 for other codecs, whose payloads are parts of a single frame.
fn samples(config: &CodecConfig, payload: &[u8]) -> u32 {
    match config {
        CodecConfig::G711(config) => {
            u32::try_from(payload.len() / usize::from(config.channels.max(1))).unwrap_or(0)
        }
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => 0,
    }
}

/// Output state of a session, shared by all its senders.
pub(crate) struct Road<'a> {
    pub(crate) keys: &'a mut Outbound,
    pub(crate) pacer: &'a mut Pacer,
    pub(crate) bandwidth: &'a mut BandwidthEstimator,
    pub(crate) prober: &'a mut Prober,
    pub(crate) outflow: &'a mut Outflow,
    pub(crate) anchor: &'a NtpAnchor,
    pub(crate) out: &'a mut Datagrams,
}

impl Road<'_> {
    /// Accounts for a packet that leaves now, with a payload of this size. Returns the values of its header
    /// extensions.
    fn leaves(&mut self, now: Instant, heads: &Heads, (purpose, payload_bytes): (Purpose, usize)) -> Stamps {
        let bytes = payload_bytes.saturating_add(HEAD_BYTES);
        let counted = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.pacer.sent(now, counted);
        self.outflow.add(now, purpose, counted);
        self.prober.sent(bytes);
        let number = if heads.are_numbered() {
            self.bandwidth.packet_sent(now, bytes)
        } else {
            self.bandwidth.packet_apart(now, bytes);
            None
        };
        Stamps { number, sent: heads.are_timed().then(|| self.anchor.at(now)) }
    }
}

/// Maps the timestamps of a track to the timestamps that the peer is sent.
#[derive(Debug)]
struct Clock {
    /// Offset of this peer, added to the track's timestamps.
    offset: u32,
    /// Shifts of timestamps while the peer catches up with the live edge.
    catch_up: Option<Box<CatchUp>>,
    /// Timestamp and sampling time of the latest queued unit.
    newest: Option<(u32, Instant)>,
    /// Time at which a packet last carried its capture time.
    told: Option<Instant>,
    /// Time at which the former stream ended; `None` once the first unit of the next one is queued.
    vacated: Option<Instant>,
}

impl Clock {
    /// Continues with another stream whose first unit has the timestamp `first`: the sent timestamps advance
    /// by the time since the former stream ended.
    fn go_on(&mut self, first: u32, sampled: Instant, clock_rate: u32) {
        let (Some(left), Some((newest, _))) = (self.vacated.take(), self.newest) else { return };
        let passed = sampled.saturating_duration_since(left).as_millis();
        let ticks = passed.saturating_mul(clock_rate.into()) / 1000;
        // Only the lower 32 bits are used, because the clock wraps around.
        let ticks = u32::try_from(ticks.max(1) % (1 << 32)).unwrap_or(1);
        let ahead = newest.wrapping_add(ticks).wrapping_sub(self.timestamp(first));
        self.offset = self.offset.wrapping_add(ahead);
    }

    const fn timestamp(&self, of_track: u32) -> u32 {
        of_track.wrapping_add(self.offset)
    }

    /// Returns the timestamp of a packet that leaves now for the first time.
    fn leaves(&mut self, now: Instant, of_track: u32) -> u32 {
        self.catch_up.take_if(|catch_up| catch_up.is_over(now));
        let shift = self.catch_up.as_mut().map_or(0, |catch_up| catch_up.leaves(now, of_track));
        self.timestamp(of_track).wrapping_add(shift)
    }

    /// Returns the timestamp with which a packet was first sent.
    fn left(&self, of_track: u32) -> u32 {
        let shift = self.catch_up.as_ref().map_or(0, |catch_up| catch_up.left(of_track));
        self.timestamp(of_track).wrapping_add(shift)
    }

    /// Returns the capture time of a unit, if its packet must carry it.
    fn captured(&mut self, now: Instant, timestamp: u32, anchor: &NtpAnchor) -> Option<NtpTime> {
        let (newest, sampled) = self.newest.filter(|(newest, _)| *newest == timestamp)?;
        let is_due = |told: Instant| now.saturating_duration_since(told) >= CAPTURE_TIME_INTERVAL;
        if !self.told.is_none_or(is_due) || newest != timestamp {
            return None;
        }
        self.told = Some(now);
        Some(anchor.at(sampled))
    }
}

/// A range of packets waiting to be sent, and the bytes of their payloads.
#[derive(Debug)]
struct Waiting {
    packets: Range<PacketId>,
    bytes: u64,
}

/// Negotiated parameters of a source. They are constant, except for the format of a source that several streams
/// share in turn.
#[derive(Debug)]
struct Agreed {
    source: SourcePair,
    payload_type: PayloadType,
    clock_rate: u32,
    rtx_payload_type: Option<PayloadType>,
    payload_bytes_max: usize,
    /// True if the peer may request retransmissions.
    nack: bool,
    is_video: bool,
}

/// State of retransmissions.
#[derive(Debug)]
struct Repairs {
    history: ResendHistory,
    round_trip: Duration,
    asked: VecDeque<SequenceNumber>,
    /// Retransmissions that are sent twice, each with the time at which its second copy will be due; `None` if it is due.
    echoes: VecDeque<(Option<Instant>, SequenceNumber)>,
    has_echoes: bool,
    /// True if the path loses packets. Audio packets are then not joined, so that a lost packet costs less audio.
    is_lossy: bool,
    rtx_next: SequenceNumber,
    head: Head,
    tail: Tail,
}

impl Repairs {
    /// Creates the state; `first` is the first sequence number of the RTX source.
    fn new(first: SequenceNumber) -> Self {
        Self {
            history: ResendHistory::new(),
            round_trip: ROUND_TRIP_FIRST,
            asked: VecDeque::new(),
            echoes: VecDeque::new(),
            has_echoes: false,
            is_lossy: false,
            rtx_next: first,
            head: Head::default(),
            tail: Tail::default(),
        }
    }
}

/// Sender of one section.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) section: SectionId,
    agreed: Agreed,
    redundancy: Option<Redundancy>,
    clock: Clock,
    next: ExtendedSequence,
    heads: Heads,
    /// True once the peer has reported about the source; packets then no longer need the mid.
    bound: bool,
    /// True if packets were omitted since the last sent one: a sequence number is skipped, so that the peer
    /// notices the loss.
    hole: bool,
    /// True if the next packet is the first of a unit.
    starts: bool,
    state: SenderState,
    waiting: VecDeque<Waiting>,
    repairs: Repairs,
    requests: KeyFrameRequests,
    /// Packets that the track's log no longer kept when they should have been sent.
    pub(crate) skipped: u64,
    pub(crate) sent: SentStats,
}

impl Sender {
    /// Creates the sender of a section, in its first format; `None` if the section does not send.
    pub(crate) fn new(section: &Section, config: &Config, random: &mut crypto::Random) -> Option<Self> {
        let source = section.local_source.filter(|_| section.direction.sends())?;
        let format = section.formats.first()?;
        let [a, b, c, d, e, f, g, h] = random.u64().to_be_bytes();
        let clock = Clock {
            offset: u32::from_be_bytes([a, b, c, d]),
            catch_up: None,
            newest: None,
            told: None,
            vacated: None,
        };
        let of = format.payload_type();
        Some(Self {
            section: section.id,
            agreed: Agreed {
                source,
                payload_type: of,
                clock_rate: format.local.rtpmap.clock_rate,
                rtx_payload_type: format.rtx.filter(|_| source.rtx.is_some()),
                payload_bytes_max: config.datagram_bytes_max.saturating_sub(HEAD_BYTES_MAX),
                nack: format.has_feedback(&Feedback::Nack),
                is_video: section.kind == MediaKind::Video,
            },
            redundancy: format.red.map(|payload_type| Redundancy::new(payload_type, of)),
            clock,
            // RFC 3711 §3.3.1: the first number is in the lower half of the range, so that losing the first
            // packets cannot confuse the rollover counter.
            next: ExtendedSequence::first(SequenceNumber(u16::from_be_bytes([e, f]) & 0x7fff)),
            heads: Heads::new(section, config.playout_delay.filter(|_| section.kind == MediaKind::Video)),
            bound: false,
            hole: false,
            starts: true,
            state: SenderState::new(format.local.rtpmap.clock_rate),
            waiting: VecDeque::new(),
            repairs: Repairs::new(SequenceNumber(u16::from_be_bytes([g, h]) & 0x7fff)),
            requests: KeyFrameRequests::new(),
            skipped: 0,
            sent: SentStats::default(),
        })
    }

    pub(crate) const fn ssrc(&self) -> Ssrc {
        Ssrc(self.agreed.source.ssrc)
    }

    /// True once a unit was queued.
    pub(crate) const fn has_begun(&self) -> bool {
        self.clock.newest.is_some()
    }

    /// True if packets carry transport-wide sequence numbers.
    pub(crate) const fn is_numbered(&self) -> bool {
        self.heads.are_numbered()
    }

    /// SSRCs of media and of retransmissions.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Ssrc> {
        [Some(self.agreed.source.ssrc), self.agreed.source.rtx].into_iter().flatten().map(Ssrc)
    }

    /// Starts with a unit that is older than the live edge of the track. `edge` is the track's
    /// timestamp of the live edge now.
    pub(crate) fn begin_behind(&mut self, now: Instant, edge: u32) {
        self.clock.catch_up = Some(Box::new(CatchUp::new(now, edge, self.agreed.clock_rate)));
    }

    /// Requests another playout delay from the player of a video section.
    pub(crate) fn request_playout_delay(&mut self, delay: PlayoutDelay) {
        if self.agreed.is_video && self.heads.requested_delay() != Some(delay) {
            self.heads.request_delay(delay);
        }
    }

    /// Sets the level of the audio from now on.
    pub(crate) fn set_audio_level(&mut self, level: AudioLevel) {
        if !self.agreed.is_video {
            self.heads.set_level(level);
        }
    }

    /// The playout delay requested during the session, if any.
    pub(crate) fn requested_playout_delay(&self) -> Option<PlayoutDelay> {
        self.heads.requested_delay()
    }

    /// Queues a unit sampled at `sampled`.
    pub(crate) fn send(&mut self, unit: &LoggedUnit, sampled: Instant) {
        self.clock.go_on(unit.timestamp, sampled, self.agreed.clock_rate);
        let timestamp = self.clock.timestamp(unit.timestamp);
        self.state.map(timestamp, sampled);
        self.clock.newest = Some((timestamp, sampled));
        let packets = unit.packets.clone();
        match self.waiting.back_mut() {
            Some(last) if last.packets.end == packets.start => {
                last.packets.end = packets.end;
                last.bytes = last.bytes.saturating_add(unit.bytes);
            }
            Some(_) | None => self.waiting.push_back(Waiting { packets, bytes: unit.bytes }),
        }
        if self.waiting.len() > WAITING_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            let lost = oldest.packets.start.distance(oldest.packets.end);
            self.skipped = self.skipped.saturating_add(lost);
            self.hole = true;
        }
    }

    /// Switches to another track with the same content, starting with `unit`. The sent timestamps advance even
    /// if the track's clock is behind that of the former track. `unit` is a key frame, which needs nothing before it, so
    /// the peer sees a gap only if a unit has left in part.
    pub(crate) fn switch(&mut self, unit: &LoggedUnit) {
        self.hole |= !self.starts && !self.waiting.is_empty();
        self.waiting.clear();
        if let Some(catch_up) = &mut self.clock.catch_up {
            catch_up.end();
        }
        let Some((newest, _)) = self.clock.newest else { return };
        let timestamp = self.clock.timestamp(unit.timestamp);
        let behind = newest.wrapping_sub(timestamp);
        if behind < u32::MAX / 2 {
            self.clock.offset = self.clock.offset.wrapping_add(behind).wrapping_add(1);
        }
    }

    /// Payload bytes of waiting packets, without retransmissions.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.bytes).fold(0, u64::saturating_add)
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.repairs.asked.is_empty() || !self.repairs.echoes.is_empty()
    }

    /// Drops the queued packets, because the owner continues at another point of the stream.
    pub(crate) fn skip(&mut self) {
        self.hole |= !self.waiting.is_empty();
        self.waiting.clear();
    }

    /// Handles a NACK of the peer.
    pub(crate) fn handle_nack(&mut self, numbers: impl Iterator<Item = SequenceNumber>) {
        if self.agreed.nack {
            let numbers = numbers.inspect(|_| self.sent.nacked += 1);
            let room = ASKED_MAX.saturating_sub(self.repairs.asked.len());
            self.repairs.asked.extend(numbers.take(room));
        }
    }

    /// Adapts to the loss on the path. `mended` is the share of packets lost for other reasons than
    /// congestion, in thousandths; `is_congested` means that the path cannot carry more.
    pub(crate) fn set_loss(&mut self, mended: u16, is_congested: bool) {
        self.repairs.history.set_loss(mended);
        self.repairs.has_echoes = mended >= LOSS_OF_ECHOES && !is_congested;
        self.repairs.is_lossy = mended >= LOSS_OF_ONE;
        match &mut self.redundancy {
            Some(redundancy) if is_congested && mended == 0 => redundancy.suspend(),
            Some(redundancy) => redundancy.set_loss(mended),
            None => {}
        }
    }

    /// Handles a key frame request of the peer.
    pub(crate) fn handle_key_frame_request(&mut self) {
        if self.agreed.is_video {
            self.sent.key_frame_requests += 1;
            self.requests.request();
            let Repairs { asked, head, history, .. } = &mut self.repairs;
            let room = ASKED_MAX.saturating_sub(asked.len());
            asked.extend(head.take().take(room).inspect(|number| history.doubt(*number)));
        }
    }

    /// True if a key frame must be requested from the owner now.
    pub(crate) fn poll_key_frame_request(&mut self, now: Instant) -> bool {
        self.requests.poll(now)
    }

    /// Returns the next deadline; `paused` is the time at which the pacer resumes video.
    pub(crate) fn poll_timeout(&self, paused: Option<Instant>) -> Option<Instant> {
        let paused = paused.filter(|_| self.agreed.is_video);
        let next = self.repairs.echoes.iter().find_map(|(at, _)| *at);
        let echo = next.map(|at| paused.map_or(at, |go| go.max(at)));
        [self.requests.poll_timeout(), echo, self.repairs.tail.poll_timeout()].into_iter().flatten().min()
    }

    /// Sends the last packets again if nothing has followed them, unless feedback shows that they arrived.
    /// Does nothing if the path limits the rate: the packets may still wait in a queue on the path, and
    /// copies would only make the queue longer.
    pub(crate) fn handle_timeout(&mut self, now: Instant, bandwidth: &BandwidthEstimator) {
        let Repairs { tail, asked, echoes, round_trip, .. } = &mut self.repairs;
        // A draining that sends nothing, because the track is gone or the pacer waits, leaves no deadline in the past.
        echoes.iter_mut().for_each(|(due, _)| *due = due.filter(|at| *at > now));
        let is_limited = bandwidth.is_congested(now) || bandwidth.target(now).is_some();
        let room = if is_limited { 0 } else { ASKED_MAX.saturating_sub(asked.len()) };
        asked.extend(tail.take_due(now, *round_trip, |number| bandwidth.has_arrived(number)).take(room));
    }

    /// Handles a report block of the peer. Returns the round trip, if the block is about this source and
    /// reveals the round trip.
    pub(crate) fn handle_report(&mut self, now: NtpTime, block: &ReportBlock) -> Option<Duration> {
        if block.ssrc != self.ssrc() {
            return None;
        }
        // Without RTX, a retransmitted packet must be identical, so its header must keep the mid.
        self.bound |= self.agreed.rtx_payload_type.is_some();
        let round_trip = rtp::report::round_trip(now, block)?;
        self.repairs.round_trip = round_trip;
        Some(round_trip)
    }

    pub(crate) fn report(&self, now: Instant, anchor: &NtpAnchor) -> Option<SenderInfo> {
        self.state.info(now, anchor)
    }

    pub(crate) const fn is_video(&self) -> bool {
        self.agreed.is_video
    }

    /// Encrypts retransmissions, then queued packets, as long as there is room and the pacer allows. Returns
    /// false if there was no room.
    pub(crate) fn fill(&mut self, now: Instant, log: &PacketLog, road: &mut Road<'_>) -> bool {
        while let Some(&number) = self.repairs.asked.front() {
            // The request is removed before its packet is looked up, so there must be room for the longest packet.
            if !road.out.has_room(DATAGRAM_BYTES_MAX) {
                return false;
            }
            if self.agreed.is_video && !road.pacer.may_send(now) {
                return true;
            }
            self.repairs.asked.pop_front();
            let round_trip = self.repairs.round_trip;
            let has_arrived = |number| road.bandwidth.has_arrived(number);
            let Some(packet) = self.repairs.history.resend(now, number, round_trip, log, has_arrived) else {
                continue;
            };
            self.resend(now, Purpose::Repair, (number, packet), road);
            if self.repairs.has_echoes && self.repairs.echoes.len() < ECHOES_MAX {
                self.repairs.echoes.push_back((Some(now + ECHO_AFTER), number));
            }
        }
        while let Some(&(_, number)) =
            self.repairs.echoes.front().filter(|(due, _)| due.is_none_or(|at| at <= now))
        {
            if !road.out.has_room(DATAGRAM_BYTES_MAX) {
                return false;
            }
            if self.agreed.is_video && !road.pacer.may_send(now) {
                return true;
            }
            self.repairs.echoes.pop_front();
            if let Some(packet) = self.repairs.history.repeat(number, log) {
                self.resend(now, Purpose::Repair, (number, packet), road);
            }
        }
        while let Some(Waiting { packets: range, bytes }) = self.waiting.front_mut() {
            if range.start == range.end {
                self.waiting.pop_front();
                continue;
            }
            let id = range.start;
            let redundancy = self.redundancy.as_ref();
            let max = self.agreed.payload_bytes_max;
            // With redundant blocks, a packet may have the maximum size, so that much room is required.
            let longest = |bytes: usize| if redundancy.is_some() { bytes.max(max) } else { bytes };
            let room = |packet: &LoggedPacket| {
                road.out.has_room(
                    longest(packet.payload.len().saturating_add(usize::from(packet.padding)))
                        .saturating_add(HEAD_BYTES_MAX),
                )
            };
            let Some(packet) = log.get(id).filter(|packet| !road.out.is_empty() || room(packet)) else {
                // The packet is no longer in the log, or is larger than any datagram.
                range.start = id.next();
                self.skipped = self.skipped.saturating_add(1);
                self.hole = true;
                continue;
            };
            if !room(packet) {
                return false;
            }
            if self.agreed.is_video && !road.pacer.may_send(now) {
                return true;
            }
            let second = log.get(id.next()).filter(|second| {
                let joins = packet.joins && second.joins && id.next() != range.end && !self.agreed.nack;
                let is_safe = !self.repairs.is_lossy
                    && self.redundancy.as_ref().is_none_or(|redundancy| !redundancy.is_active());
                joins && is_safe
            });
            let joined = second
                .and_then(|second| {
                    Joined::new((&packet.payload, packet.timestamp), (&second.payload, second.timestamp))
                })
                .filter(|joined| joined.len() <= max && road.out.has_room(joined.len() + HEAD_BYTES_MAX));
            let sent = joined.map_or(packet.payload.len(), |joined| joined.len());
            range.start = if joined.is_some() { id.next().next() } else { id.next() };
            *bytes = bytes.saturating_sub(u64::try_from(sent).unwrap_or(0));
            self.seal(now, (id, packet), joined, log, road);
        }
        true
    }

    /// Sends recent packets again as padding for a probe, at least `bytes` bytes. Returns false if there was
    /// not room for all.
    pub(crate) fn pad(&mut self, now: Instant, bytes: u64, log: &PacketLog, road: &mut Road<'_>) -> bool {
        let mut left = bytes;
        for back in (0..PADDING_PACKETS).cycle().take(DATAGRAMS_MAX) {
            let Some((number, packet)) = self.repairs.history.recent(back, log) else {
                // Fewer recent packets are kept: continue with the newest, or stop if there is none.
                if back == 0 {
                    return true;
                }
                continue;
            };
            if left == 0 {
                return true;
            }
            if !road.out.has_room(DATAGRAM_BYTES_MAX) {
                return false;
            }
            self.resend(now, Purpose::Probe, (number, packet), road);
            left = left.saturating_sub(u64::try_from(packet.payload.len().max(1)).unwrap_or(u64::MAX));
        }
        true
    }

    /// True if a probe can use this sender as padding: video with a separate RTX source.
    pub(crate) const fn can_pad(&self) -> bool {
        self.agreed.is_video && self.agreed.rtx_payload_type.is_some()
    }

    /// True if packets may be padded, except while the path limits the rate. Requires a peer that takes retransmissions
    /// as RTX: such a peer has to remove padding (RFC 4588 §4). Among other peers, libdatachannel fails to remove
    /// padding from fragments.
    const fn takes_padding(&self) -> bool {
        self.can_pad()
    }

    /// Returns the payload length of the packet that is sent next, without retransmissions.
    pub(crate) fn next_bytes(&self, log: &PacketLog) -> Option<usize> {
        let range = &self.waiting.front()?.packets;
        log.get(range.start).filter(|_| range.start != range.end).map(|packet| packet.payload.len())
    }

    fn seal(
        &mut self,
        now: Instant,
        (id, packet): (PacketId, &LoggedPacket),
        joined: Option<Joined<'_>>,
        log: &PacketLog,
        road: &mut Road<'_>,
    ) {
        if std::mem::take(&mut self.hole) {
            self.next = self.next.next();
        }
        let redundancy = self.redundancy.as_ref();
        let blocks = redundancy.and_then(|red| {
            Some((red.payload_type(), red.blocks(id, packet, log, self.agreed.payload_bytes_max)?))
        });
        let timestamp = self.clock.leaves(now, packet.timestamp);
        let tells = self.heads.tell_capture_times();
        let captured = if tells { self.clock.captured(now, timestamp, road.anchor) } else { None };
        let purpose = if self.agreed.is_video { Purpose::Video } else { Purpose::Audio };
        let pads = self.takes_padding() && !road.pacer.is_limited();
        let padding = if pads { packet.padding } else { 0 };
        let sent_bytes = joined.map_or(packet.payload.len(), |joined| joined.len());
        let padded = sent_bytes.saturating_add(padding.into());
        let payload_bytes = blocks
            .as_ref()
            .map_or(padded, |(_, blocks)| blocks.parts(&packet.payload).iter().map(|part| part.len()).sum());
        let stamps = road.leaves(now, &self.heads, (purpose, payload_bytes));
        let number = stamps.number;
        let repeats =
            std::mem::replace(&mut self.starts, packet.marker) && self.heads.requested_delay().is_some();
        let header = Header {
            marker: packet.marker,
            payload_type: blocks.as_ref().map_or(self.agreed.payload_type, |(payload_type, _)| *payload_type),
            sequence_number: self.next.number(),
            timestamp,
            ssrc: Ssrc(self.agreed.source.ssrc),
            csrcs: rtp::Csrcs::default(),
            extension: self.heads.block(!self.bound || repeats, stamps, captured),
        };
        let sealed = match (&blocks, joined) {
            (Some((_, blocks)), _) => road.keys.seal_parts(&header, &blocks.parts(&packet.payload), road.out),
            (None, Some(joined)) => road.keys.seal_parts(&header, &joined.parts(), road.out),
            (None, None) => road.keys.seal_padded(&header, (&packet.payload, padding), road.out),
        };
        if sealed.is_ok() {
            // The history serves only requests for retransmission. Without NACK it would be useless, and each joined
            // packet would begin a new range in it.
            if self.agreed.nack {
                self.repairs.history.sent(self.next, id, packet.payload.len());
            }
            if self.agreed.is_video && self.agreed.nack {
                self.repairs.head.sent(self.next.number());
                self.repairs.tail.sent(now, self.next.number(), number, self.repairs.round_trip);
            }
            self.state.sent(sent_bytes);
            self.sent.packets += 1;
            self.sent.bytes += u64::try_from(sent_bytes).unwrap_or(0);
            self.next = self.next.next();
        }
    }

    fn resend(
        &mut self,
        now: Instant,
        purpose: Purpose,
        (number, packet): (SequenceNumber, &LoggedPacket),
        road: &mut Road<'_>,
    ) {
        let stamps = road.leaves(now, &self.heads, (purpose, packet.payload.len()));
        if let (Purpose::Repair, Some(transport)) = (purpose, stamps.number) {
            self.repairs.history.resent(number, transport);
        }
        let header = Header {
            marker: packet.marker,
            payload_type: self.agreed.payload_type,
            sequence_number: number,
            timestamp: self.clock.left(packet.timestamp),
            ssrc: Ssrc(self.agreed.source.ssrc),
            csrcs: rtp::Csrcs::default(),
            // Always carries the mid: RTX packets have their own source, about which no receiver sends reports, and
            // Firefox drops packets of a source that has never carried a mid, regardless of the description.
            extension: self.heads.block(true, stamps, None),
        };
        let (Some(payload_type), Some(ssrc)) = (self.agreed.rtx_payload_type, self.agreed.source.rtx) else {
            // Without RTX, the packet is sent again with an unchanged header.
            let _ = road.keys.seal_again(&header, &packet.payload, road.out);
            return;
        };
        let repair =
            Header { payload_type, ssrc: Ssrc(ssrc), sequence_number: self.repairs.rtx_next, ..header };
        let parts = [&rtp::rtx::osn(number), &*packet.payload];
        if road.keys.seal_parts(&repair, &parts, road.out).is_ok() {
            self.repairs.rtx_next = self.repairs.rtx_next.next();
        }
    }

    pub(crate) const fn resend_stats(&self) -> ResendStats {
        self.repairs.history.stats()
    }
}

/// Estimated bytes of a packet besides its payload: header, extensions and tag.
const HEAD_BYTES: usize = 12 + 12 + 16;
/// Maximum number of bytes of a packet besides its payload: header with extensions, tag, original sequence number.
pub(crate) const HEAD_BYTES_MAX: usize = 12 + 4 + BLOCK_BYTES_MAX + 16 + 2;
/// Largest packet including all headers.
const DATAGRAM_BYTES_MAX: usize = 1500;
/// Maximum number of packets that one fill of a probe sends.
const DATAGRAMS_MAX: usize = 128;
