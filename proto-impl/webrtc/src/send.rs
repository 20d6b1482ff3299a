//! Sending media: packets of tracks that many peers share, with each peer's own sequence numbers.
//!
//! A [`Track`] cuts its units once and keeps the packets for a while. A peer is told which of them to send
//! ([`crate::Peer::send`]), and takes them out of the track when it is drained: what waits costs it nothing but a range.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use media::codec::{Codec, CodecConfig};
use rtp::extension::Extensions;
use rtp::history::{LoggedPacket, PacketId, PacketLog, ResendHistory, ResendStats};
use rtp::payload::{Packetizer, Payloads};
use rtp::report::SenderState;
use rtp::rtcp::{ReportBlock, SenderInfo};
use rtp::{
    ExtendedSequence, ExtensionBlock, Header, KeyFrameRequests, NtpAnchor, PayloadType, SequenceNumber, Ssrc,
};
use sdp::{Feedback, MediaKind};
use srtp::Outbound;
use wire::Datagrams;

use crate::negotiate::{Section, SectionId, SourcePair};
use crate::pacer::Pacer;

#[cfg(test)]
mod tests;

/// Ranges that wait for a peer: a second of frames. When there are more, the oldest are given up.
const WAITING_MAX: usize = 64;
/// Requests for packets that wait for the next drain: as many as a receiver like ours asks for.
const ASKED_MAX: usize = rtp::receive::NACK_LIST_MAX;
/// Round trip before one was measured.
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(50);

/// An elementary stream as RTP packets, shared by all peers that receive it.
#[derive(Debug)]
pub struct Track {
    packetizer: Packetizer,
    payloads: Payloads,
    log: PacketLog,
    /// Audio packets have no marker bit: silence is not suppressed here (RFC 3551 §4.1).
    marks: bool,
}

impl Track {
    /// Creates a track with payloads of at most `payload_bytes_max`. `None` for codecs that are not carried in RTP
    /// here.
    #[must_use]
    pub fn new(codec: Codec, payload_bytes_max: usize) -> Option<Self> {
        Some(Self {
            packetizer: Packetizer::new(codec, payload_bytes_max)?,
            payloads: Payloads::new(),
            log: PacketLog::new(),
            marks: codec.kind() == media::TrackKind::Video,
        })
    }

    /// Cuts a unit, and keeps its packets for a second. `timestamp` counts at the codec's RTP clock rate. What comes back is
    /// to be given to [`crate::Peer::send`] of each peer.
    ///
    /// # Errors
    ///
    /// A unit that is not in its own format makes no packets.
    pub fn push(
        &mut self,
        now: Instant,
        config: &CodecConfig,
        key_frame: bool,
        timestamp: u32,
        unit: &[u8],
    ) -> Result<SentUnit, rtp::payload::Error> {
        self.packetizer.packetize(config, key_frame, unit, &mut self.payloads)?;
        let first = self.log.next_id();
        let payloads = self.payloads.take();
        let last = payloads.len().saturating_sub(1);
        let mut of_packet = timestamp;
        for (n, payload) in payloads.enumerate() {
            let next = of_packet.wrapping_add(samples(config, &payload));
            self.log
                .push(now, LoggedPacket { payload, timestamp: of_packet, marker: self.marks && n == last });
            of_packet = next;
        }
        let bytes = u64::try_from(unit.len()).unwrap_or(u64::MAX);
        Ok(SentUnit { packets: first..self.log.next_id(), timestamp, bytes })
    }

    /// Keeps the packets from this unit on for new viewers, until it is called again.
    pub const fn hold(&mut self, from: &SentUnit) {
        self.log.hold(from.packets.start);
    }

    /// Whether all packets of a unit are still kept.
    #[must_use]
    pub fn keeps(&self, unit: &SentUnit) -> bool {
        unit.packets.start >= self.log.first_id()
    }

    /// The packets that are kept.
    #[must_use]
    pub const fn log(&self) -> &PacketLog {
        &self.log
    }
}

/// The timestamp distance of a payload to the next one of its unit: the samples for G.711, one byte each per
/// channel; 0 for other codecs, whose payloads are parts of one frame.
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

/// A unit that a [`Track`] has cut: the same for all peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentUnit {
    pub(crate) packets: Range<PacketId>,
    pub(crate) timestamp: u32,
    pub(crate) bytes: u64,
}

impl SentUnit {
    /// The RTP timestamp on the clock of its track.
    #[must_use]
    pub const fn timestamp(&self) -> u32 {
        self.timestamp
    }
}

/// What a viewer begins with lies behind the live edge: its times are squeezed, so that it is shown at once and the viewer
/// is not late for ever.
#[derive(Debug, Clone, Copy)]
struct Backlog {
    /// The timestamp of the live edge at the beginning.
    edge: u32,
    /// The ticks from the first unit to the edge, and what they become.
    span: u32,
    squeezed: u32,
}

impl Backlog {
    /// The timestamp as the viewer is sent it.
    fn squeeze(&self, timestamp: u32) -> u32 {
        // Behind the edge the difference is over half of the clock.
        let before = self.edge.wrapping_sub(timestamp);
        if before > self.span {
            return timestamp;
        }
        let squeezed = u64::from(before) * u64::from(self.squeezed) / u64::from(self.span.max(1));
        self.edge.wrapping_sub(u32::try_from(squeezed).unwrap_or(0))
    }
}

/// A source of ours.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) section: SectionId,
    source: SourcePair,
    payload_type: PayloadType,
    rtx_payload_type: Option<PayloadType>,
    /// This peer's offset, added to the timestamps of the track.
    timestamp_offset: u32,
    backlog: Option<Backlog>,
    next: ExtendedSequence,
    rtx_next: SequenceNumber,
    /// The extension block with the section's name.
    mid: Vec<u8>,
    mid_profile: u16,
    /// The peer has reported about the source: its packets need the name no more.
    bound: bool,
    /// Packets were left out since the last one: the next number is left out too, so that the peer knows.
    hole: bool,
    state: SenderState,
    history: ResendHistory,
    round_trip: Duration,
    waiting: VecDeque<Range<PacketId>>,
    asked: VecDeque<SequenceNumber>,
    requests: KeyFrameRequests,
    nack: bool,
    is_video: bool,
    /// Packets that were gone before they could be sent.
    pub(crate) skipped: u64,
}

impl Sender {
    /// Creates the sender of a section, in its first format.
    pub(crate) fn new(section: &Section, random: &mut crypto::Random) -> Option<Self> {
        let source = section.local_source.filter(|_| section.direction.sends())?;
        let format = section.formats.first()?;
        let [a, b, c, d, e, f, g, h] = random.u64().to_be_bytes();
        let (mid_profile, mid) = mid_block(section);
        Some(Self {
            section: section.id,
            source,
            payload_type: format.payload_type(),
            rtx_payload_type: format.rtx.filter(|_| source.rtx.is_some()),
            timestamp_offset: u32::from_be_bytes([a, b, c, d]),
            backlog: None,
            // RFC 3711 §3.3.1: the first number is in the lower half, so that a lost first packet cannot confuse the
            // count of rounds.
            next: ExtendedSequence::first(SequenceNumber(u16::from_be_bytes([e, f]) & 0x7fff)),
            rtx_next: SequenceNumber(u16::from_be_bytes([g, h]) & 0x7fff),
            mid,
            mid_profile,
            bound: false,
            hole: false,
            state: SenderState::new(format.local.rtpmap.clock_rate),
            history: ResendHistory::new(),
            round_trip: ROUND_TRIP_FIRST,
            waiting: VecDeque::new(),
            asked: VecDeque::new(),
            requests: KeyFrameRequests::new(),
            nack: format.has_feedback(&Feedback::Nack),
            is_video: section.kind == MediaKind::Video,
            skipped: 0,
        })
    }

    pub(crate) const fn ssrc(&self) -> Ssrc {
        Ssrc(self.source.ssrc)
    }

    /// What is sent begins so many ticks before the live edge, whose timestamp is `edge`; they are squeezed into `squeezed`.
    pub(crate) fn begin_behind(&mut self, edge: u32, span: u32, squeezed: u32) {
        self.backlog = (span > squeezed).then_some(Backlog { edge, span, squeezed });
    }

    fn timestamp(&self, of_track: u32) -> u32 {
        let squeezed = self.backlog.map_or(of_track, |backlog| backlog.squeeze(of_track));
        squeezed.wrapping_add(self.timestamp_offset)
    }

    /// Queues a unit that was sampled at `sampled`.
    pub(crate) fn send(&mut self, unit: &SentUnit, sampled: Instant) {
        self.state.map(self.timestamp(unit.timestamp), sampled);
        let packets = unit.packets.clone();
        match self.waiting.back_mut() {
            Some(last) if last.end == packets.start => last.end = packets.end,
            _ => self.waiting.push_back(packets),
        }
        if self.waiting.len() > WAITING_MAX
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.skipped = self.skipped.saturating_add(oldest.start.distance(oldest.end));
            self.hole = true;
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.asked.is_empty()
    }

    /// Drops what waits: the owner continues elsewhere in the stream.
    pub(crate) fn skip(&mut self) {
        self.hole |= !self.waiting.is_empty();
        self.waiting.clear();
    }

    /// The peer asks for packets again.
    pub(crate) fn handle_nack(&mut self, numbers: impl Iterator<Item = SequenceNumber>) {
        if self.nack {
            let room = ASKED_MAX.saturating_sub(self.asked.len());
            self.asked.extend(numbers.take(room));
        }
    }

    /// The peer wants a key frame.
    pub(crate) const fn handle_key_frame_request(&mut self) {
        if self.is_video {
            self.requests.request();
        }
    }

    /// Whether a key frame is to be requested of the owner now.
    pub(crate) fn poll_key_frame_request(&mut self, now: Instant) -> bool {
        self.requests.poll(now)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.requests.poll_timeout()
    }

    /// The peer reports about a source of ours.
    pub(crate) fn handle_report(&mut self, now: rtp::NtpTime, block: &ReportBlock) -> Option<Duration> {
        if block.ssrc != self.ssrc() {
            return None;
        }
        // Without RTX a packet is repeated as it was, its head included.
        self.bound |= self.rtx_payload_type.is_some();
        let round_trip = rtp::report::round_trip(now, block)?;
        self.round_trip = round_trip;
        Some(round_trip)
    }

    pub(crate) fn report(&self, now: Instant, anchor: &NtpAnchor) -> Option<SenderInfo> {
        self.state.info(now, anchor)
    }

    pub(crate) const fn is_video(&self) -> bool {
        self.is_video
    }

    /// Seals what was asked for, then what waits, while there is room and the pacer lets it. False when there was no room.
    pub(crate) fn fill(
        &mut self,
        now: Instant,
        log: &PacketLog,
        keys: &mut Outbound,
        pacer: &mut Pacer,
        out: &mut Datagrams,
    ) -> bool {
        while let Some(&number) = self.asked.front() {
            // The longest that a packet may be; what is asked for is looked at once.
            if !out.has_room(DATAGRAM_BYTES_MAX) {
                return false;
            }
            self.asked.pop_front();
            let Some(packet) = self.history.resend(now, number, self.round_trip, log) else { continue };
            self.resend(number, packet, keys, out);
            pacer.sent(now, byte_count(packet));
        }
        while let Some(range) = self.waiting.front_mut() {
            if range.start == range.end {
                self.waiting.pop_front();
                continue;
            }
            let id = range.start;
            let room =
                |packet: &LoggedPacket| out.has_room(packet.payload.len().saturating_add(HEAD_BYTES_MAX));
            let Some(packet) = log.get(id).filter(|packet| !out.is_empty() || room(packet)) else {
                // Gone, or larger than any datagram.
                range.start = id.next();
                self.skipped = self.skipped.saturating_add(1);
                self.hole = true;
                continue;
            };
            if !room(packet) {
                return false;
            }
            if self.is_video && !pacer.may_send(now) {
                return true;
            }
            range.start = id.next();
            self.seal(id, packet, keys, out);
            pacer.sent(now, byte_count(packet));
        }
        true
    }

    fn seal(&mut self, id: PacketId, packet: &LoggedPacket, keys: &mut Outbound, out: &mut Datagrams) {
        if std::mem::take(&mut self.hole) {
            self.next = self.next.next();
        }
        let header = self.header(self.next.number(), packet, !self.bound);
        if keys.seal(&header, &packet.payload, out).is_ok() {
            self.history.sent(self.next, id, packet.payload.len());
            self.state.sent(packet.payload.len());
            self.next = self.next.next();
        }
    }

    fn resend(
        &mut self,
        number: SequenceNumber,
        packet: &LoggedPacket,
        keys: &mut Outbound,
        out: &mut Datagrams,
    ) {
        // Always with the name: repairs have a source of their own, of which no peer reports, and Firefox drops what comes
        // from a source that it has not seen with a name, whatever the description says of it.
        let header = self.header(number, packet, true);
        let (Some(payload_type), Some(ssrc)) = (self.rtx_payload_type, self.source.rtx) else {
            // The very packet once more: its head is what it was, as long as no RTX is agreed on.
            let _ = keys.seal_again(&header, &packet.payload, out);
            return;
        };
        let repair = Header { payload_type, ssrc: Ssrc(ssrc), sequence_number: self.rtx_next, ..header };
        if keys.seal_parts(&repair, &[&rtp::rtx::osn(number), &packet.payload], out).is_ok() {
            self.rtx_next = self.rtx_next.next();
        }
    }

    fn header(&self, number: SequenceNumber, packet: &LoggedPacket, named: bool) -> Header<'_> {
        let mid = ExtensionBlock { profile: self.mid_profile, bytes: &self.mid };
        Header {
            marker: packet.marker,
            payload_type: self.payload_type,
            sequence_number: number,
            timestamp: self.timestamp(packet.timestamp),
            ssrc: self.ssrc(),
            csrcs: rtp::Csrcs::default(),
            extension: Some(mid).filter(|mid| named && !mid.bytes.is_empty()),
        }
    }

    pub(crate) const fn resend_stats(&self) -> ResendStats {
        self.history.stats()
    }
}

fn byte_count(packet: &LoggedPacket) -> u64 {
    u64::try_from(packet.payload.len()).unwrap_or(u64::MAX)
}

/// The extension block that says of which section a packet is; without a name of usual length there is none.
fn mid_block(section: &Section) -> (u16, Vec<u8>) {
    let mid = Some(section.mid.as_str()).filter(|mid| (1..=MID_BYTES_MAX).contains(&mid.len()));
    let mut bytes = Vec::new();
    let block = section.extensions.write(&Extensions { mid, ..Extensions::default() }, &mut bytes);
    let profile = block.map_or(0, |block| block.profile);
    (profile, bytes)
}

/// The longest name of a section that packets carry: a payload has no more room for it.
const MID_BYTES_MAX: usize = 16;
/// Head with extensions, tag, original number.
const HEAD_BYTES_MAX: usize = 12 + 4 + 20 + 16 + 2;
/// The largest packet as a whole.
const DATAGRAM_BYTES_MAX: usize = 1500;
