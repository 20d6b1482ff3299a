//! What comes of the media of a peer: packets to sources, sources to frames.
//!
//! 1. A packet's source is known, or it is told by the `mid` on the packet, by the SSRCs of the description, by a payload
//!    type that only one section has (RFC 9143 §9.2).
//! 2. A retransmission becomes the packet that it repeats.
//! 3. A source's [`Receiver`] puts packets in order and says what is missing; its depacketiser puts frames together.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use rtp::payload::{Depacketizer, Format, Part};
use rtp::receive::{ReceiveConfig, ReceiveEvent, ReceiveStats, Received, Receiver, Sources};
use rtp::report::ClockMapping;
use rtp::rtcp::{ReportBlock, SenderInfo};
use rtp::rtx::RtxMap;
use rtp::transport_cc::ArrivalRecorder;
use rtp::{KeyFrameRequests, Packet, PayloadType, SequenceNumber, Ssrc};
use sdp::{Feedback, MediaKind};

use crate::event::Event;
use crate::negotiate::{Section, SectionId};

/// A source of the peer.
#[derive(Debug)]
struct Source {
    section: SectionId,
    receiver: Receiver,
    clock: ClockMapping,
    /// Which of the section's formats it sends, with what puts its frames together.
    format: Option<(usize, Depacketizer)>,
    /// Packets before the next one are missing for good.
    gap: bool,
}

/// What a section needs beside its sources.
#[derive(Debug)]
struct Incoming {
    section: Section,
    rtx: RtxMap,
    requests: KeyFrameRequests,
    /// Whether the peer repeats packets, and takes requests for key frames.
    nack: bool,
    pli: bool,
}

/// All that comes.
#[derive(Debug)]
pub(crate) struct Reception {
    sections: Vec<Incoming>,
    sources: Sources<Source>,
    arrivals: Option<ArrivalRecorder>,
    /// Packets of sources that nobody announced.
    pub(crate) unknown: u64,
    /// Packets of one source too many.
    pub(crate) too_many_sources: u64,
    /// What was no packet, or no payload of its format.
    pub(crate) malformed: u64,
}

/// What is to be told to the peer at once.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Packets of a source that are missed.
    pub(crate) nacks: Vec<(Ssrc, Vec<SequenceNumber>)>,
    /// Sources that must send a key frame.
    pub(crate) key_frames: Vec<Ssrc>,
}

impl Reception {
    /// For the sections that receive.
    pub(crate) fn new(now: Instant, sections: &[Section]) -> Self {
        let sections: Vec<Incoming> =
            sections.iter().filter(|section| section.direction.receives()).map(Incoming::new).collect();
        let reports_arrivals = sections
            .iter()
            .any(|incoming| incoming.section.extensions.id(rtp::extension::Extension::TransportCc).is_some());
        Self {
            sections,
            sources: Sources::new(),
            arrivals: reports_arrivals.then(|| ArrivalRecorder::new(now)),
            unknown: 0,
            too_many_sources: 0,
            malformed: 0,
        }
    }

    /// A packet in the clear.
    pub(crate) fn handle_packet(&mut self, now: Instant, bytes: &[u8], events: &mut VecDeque<Event>) {
        let Ok(packet) = Packet::read(bytes) else {
            self.malformed += 1;
            return;
        };
        let Some(index) = self.section_of(&packet) else {
            self.unknown += 1;
            return;
        };
        let Some(incoming) = self.sections.get_mut(index) else { return };
        if let (Some(arrivals), Some(number)) =
            (&mut self.arrivals, incoming.section.extensions.read(packet.header.extension).transport_sequence)
        {
            arrivals.handle_packet(now, number);
        }
        if incoming.rtx.original(packet.header.payload_type).is_some() {
            self.handle_repair(now, index, &packet, events);
            return;
        }
        let ssrc = packet.header.ssrc;
        let Some(format) = incoming.format_of(packet.header.payload_type) else {
            self.unknown += 1;
            return;
        };
        let Some(source) = self.sources.get_or_insert_with(ssrc, || incoming.source(ssrc, format)) else {
            self.too_many_sources += 1;
            return;
        };
        // Padding keeps its place in the numbers: what probes the road is not missing.
        source.receiver.handle_packet(now, &packet.header, Bytes::copy_from_slice(packet.payload));
        self.malformed += source.drain(now, incoming, events);
    }

    fn handle_repair(
        &mut self,
        now: Instant,
        index: usize,
        packet: &Packet<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(incoming) = self.sections.get_mut(index) else { return };
        let rtx = packet.header.ssrc;
        if incoming.rtx.source(rtx).is_none() {
            // Nobody said whom it repairs: the only source of its section, if there is one.
            let mut of_section =
                self.sources.iter().filter(|(_, source)| source.section == incoming.section.id);
            if let (Some((original, _)), None) = (of_section.next(), of_section.next()) {
                incoming.rtx.add_source(rtx, original);
            }
        }
        let Some(repaired) = incoming.rtx.unwrap(packet) else { return };
        let Some(source) = self.sources.get_mut(repaired.header.ssrc) else { return };
        let payload = packet.payload.get(repaired.payload_at..).unwrap_or_default();
        source.receiver.handle_recovered(now, &repaired.header, Bytes::copy_from_slice(payload));
        self.malformed += source.drain(now, incoming, events);
    }

    /// Which section a packet is of.
    fn section_of(&self, packet: &Packet<'_>) -> Option<usize> {
        let (ssrc, payload_type) = (packet.header.ssrc, packet.header.payload_type);
        let by_id = |id: SectionId| self.sections.iter().position(|incoming| incoming.section.id == id);
        if let Some(source) = self.sources.get(ssrc) {
            return by_id(source.section);
        }
        let by_mid = self.sections.iter().position(|incoming| {
            let mid = incoming.section.extensions.read(packet.header.extension).mid;
            mid.is_some_and(|mid| mid == incoming.section.mid)
        });
        let announced = || self.sections.iter().position(|incoming| incoming.announces(ssrc));
        let by_payload_type = || {
            let mut known =
                self.sections.iter().enumerate().filter(|(_, incoming)| incoming.knows(payload_type));
            known.next().filter(|_| known.next().is_none()).map(|(index, _)| index)
        };
        by_mid
            .or_else(announced)
            .or_else(by_payload_type)
            .filter(|&index| self.sections.get(index).is_some_and(|incoming| incoming.knows(payload_type)))
    }

    pub(crate) fn handle_sender_report(&mut self, now: Instant, ssrc: Ssrc, info: &SenderInfo) {
        if let Some(source) = self.sources.get_mut(ssrc) {
            source.receiver.handle_sender_report(now, info);
            source.clock.handle_sender_report(info);
        }
    }

    /// The peer ends a source. Others are none of its business, and none of ours.
    pub(crate) fn handle_bye(&mut self, ssrc: Ssrc) {
        self.sources.remove(ssrc);
    }

    pub(crate) fn set_round_trip(&mut self, round_trip: std::time::Duration) {
        self.sources.iter_mut().for_each(|(_, source)| source.receiver.set_round_trip(round_trip));
    }

    /// The owner cannot go on without a key frame.
    pub(crate) fn request_key_frame(&mut self, section: SectionId) -> bool {
        let found =
            self.sections.iter_mut().find(|incoming| incoming.section.id == section && incoming.is_video());
        found.map(|incoming| incoming.requests.request()).is_some()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        for (_, source) in self.sources.iter_mut() {
            source.receiver.handle_timeout(now);
            if let Some(incoming) = self.sections.iter_mut().find(|one| one.section.id == source.section) {
                self.malformed += source.drain(now, incoming, events);
            }
        }
    }

    /// What is to be asked for now.
    pub(crate) fn poll_requests(&mut self, now: Instant) -> Requests {
        let mut requests = Requests::default();
        for (ssrc, source) in self.sources.iter_mut() {
            let mut numbers = Vec::new();
            source.receiver.poll_nacks(now, &mut numbers);
            let asks = |incoming: &Incoming| incoming.section.id == source.section && incoming.nack;
            if !numbers.is_empty() && self.sections.iter().any(asks) {
                requests.nacks.push((ssrc, numbers));
            }
        }
        for incoming in &mut self.sections {
            let sources = || self.sources.iter().filter(|(_, source)| source.section == incoming.section.id);
            if incoming.requests.poll(now) && incoming.pli {
                requests.key_frames.extend(sources().map(|(ssrc, _)| ssrc));
            }
        }
        requests
    }

    /// What was received of each source, for a report.
    pub(crate) fn report(&mut self, now: Instant) -> Vec<ReportBlock> {
        self.sources.iter_mut().filter_map(|(_, source)| source.receiver.report(now)).collect()
    }

    /// The sources that a receiver's estimate of the rate is for.
    pub(crate) fn rated_sources(&self) -> Vec<Ssrc> {
        let wants = |incoming: &Incoming| {
            incoming.section.formats.iter().any(|format| format.has_feedback(&Feedback::Remb))
        };
        let rated = |source: &Source| {
            self.sections.iter().any(|incoming| incoming.section.id == source.section && wants(incoming))
        };
        self.sources.iter().filter(|(_, source)| rated(source)).map(|(ssrc, _)| ssrc).collect()
    }

    pub(crate) const fn arrivals(&mut self) -> Option<&mut ArrivalRecorder> {
        self.arrivals.as_mut()
    }

    /// Any source, for feedback that is about all of them.
    pub(crate) fn any_source(&self) -> Option<Ssrc> {
        self.sources.iter().next().map(|(ssrc, _)| ssrc)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let sources = self.sources.iter().filter_map(|(_, source)| source.receiver.poll_timeout());
        let requests = self.sections.iter().filter_map(|incoming| incoming.requests.poll_timeout());
        let arrivals = self.arrivals.as_ref().and_then(ArrivalRecorder::poll_timeout);
        sources.chain(requests).chain(arrivals).min()
    }

    pub(crate) fn stats(&self) -> impl Iterator<Item = (SectionId, Ssrc, ReceiveStats)> {
        self.sources.iter().map(|(ssrc, source)| (source.section, ssrc, source.receiver.stats()))
    }
}

impl Incoming {
    fn new(section: &Section) -> Self {
        let mut rtx = RtxMap::new();
        for format in &section.formats {
            if let Some(repair) = format.rtx {
                rtx.add_payload_type(repair, format.payload_type());
            }
        }
        for source in &section.remote_sources {
            if let Some(repair) = source.rtx {
                rtx.add_source(Ssrc(repair), Ssrc(source.ssrc));
            }
        }
        let wants = |feedback| section.formats.iter().any(|format| format.has_feedback(feedback));
        Self {
            rtx,
            requests: KeyFrameRequests::new(),
            nack: wants(&Feedback::Nack),
            pli: wants(&Feedback::Pli) || wants(&Feedback::Fir),
            section: section.clone(),
        }
    }

    fn is_video(&self) -> bool {
        self.section.kind == MediaKind::Video
    }

    fn format_of(&self, payload_type: PayloadType) -> Option<usize> {
        self.section.formats.iter().position(|format| format.payload_type() == payload_type)
    }

    fn knows(&self, payload_type: PayloadType) -> bool {
        self.format_of(payload_type).is_some() || self.rtx.original(payload_type).is_some()
    }

    fn announces(&self, ssrc: Ssrc) -> bool {
        self.section
            .remote_sources
            .iter()
            .any(|source| source.ssrc == ssrc.value() || source.rtx == Some(ssrc.value()))
    }

    fn source(&self, ssrc: Ssrc, format: usize) -> Source {
        let clock_rate =
            self.section.formats.get(format).map_or(90_000, |format| format.remote.rtpmap.clock_rate).max(1);
        let config = if self.nack {
            ReceiveConfig::with_nack(clock_rate)
        } else {
            ReceiveConfig::without_nack(clock_rate)
        };
        Source {
            section: self.section.id,
            receiver: Receiver::new(ssrc, config),
            clock: ClockMapping::new(clock_rate),
            format: None,
            gap: false,
        }
    }
}

impl Source {
    /// Puts together what has come in order. How many payloads were malformed.
    fn drain(&mut self, now: Instant, incoming: &mut Incoming, events: &mut VecDeque<Event>) -> u64 {
        let mut malformed = 0;
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiveEvent::Packet(packet) => {
                    malformed += u64::from(self.take(&packet, incoming, events).is_err())
                }
                ReceiveEvent::Lost { .. } => self.lose(incoming, events),
                ReceiveEvent::Restarted => {
                    self.format = None;
                    self.lose(incoming, events);
                }
            }
        }
        // A first request goes at once, so that the owner's next look at the deadlines need not find it.
        let _ = now;
        malformed
    }

    /// Packets are missing for good. Of pictures, nothing can be decoded until a key frame comes.
    fn lose(&mut self, incoming: &mut Incoming, events: &mut VecDeque<Event>) {
        self.gap = true;
        if incoming.is_video() {
            incoming.requests.request();
            events.push_back(Event::PictureLost { section: self.section });
        }
    }

    fn take(
        &mut self,
        packet: &Received,
        incoming: &mut Incoming,
        events: &mut VecDeque<Event>,
    ) -> Result<(), rtp::payload::Error> {
        let Some(index) = incoming.format_of(packet.payload_type) else { return Ok(()) };
        if self.format.as_ref().is_none_or(|(known, _)| *known != index) {
            let described = incoming.section.formats.get(index).map(|format| &format.remote);
            // Comfort noise, telephone events and the like are no frames.
            let Some(format) = described.map(Format::of_description).transpose()?.flatten() else {
                return Ok(());
            };
            self.format = Some((index, Depacketizer::new(format)?));
            events.push_back(Event::Format { section: self.section, format: index });
        }
        let Some((_, depacketizer)) = &mut self.format else { return Ok(()) };
        let part = Part {
            timestamp: packet.timestamp,
            marker: packet.marker,
            gap: std::mem::take(&mut self.gap),
            payload: &packet.payload,
        };
        let dropped = depacketizer.stats().dropped;
        let taken = depacketizer.handle_part(&part);
        let spoilt = depacketizer.stats().dropped > dropped || taken.is_err();
        while let Some(frame) = depacketizer.poll_frame() {
            if frame.key_frame {
                incoming.requests.handle_key_frame();
            }
            let sampled = self.clock.time_of(frame.timestamp);
            events.push_back(Event::Frame { section: self.section, frame, sampled });
        }
        if spoilt && incoming.is_video() {
            incoming.requests.request();
        }
        taken
    }
}
