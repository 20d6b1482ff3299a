//! Receiving media: maps packets to sources, and assembles frames from sources.
//!
//! 1. The source of a packet is already known, or is found by the packet's `mid`, by the SSRCs of the
//!    description, or by a payload type that only one section uses (RFC 9143 §9.2).
//! 2. A retransmission is converted back to the original packet.
//! 3. The [`Receiver`] of a source puts packets in order and reports missing ones; its depacketizer assembles
//!    frames.
//! 4. Each layer of a section takes media from a single source, so that frames of several sources are not
//!    mixed. A section without simulcast has one layer.
//! 5. Audio levels (RFC 6464), if negotiated, are smoothed to a loudness and reported a few times per second
//!    ([`loudness`]).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::Codec;
use rtp::bandwidth::{QueueDelay, ReceivedRate};
use rtp::extension::PlayoutDelay;
use rtp::payload::{Continuity, Depacketizer, RedPacket, codec_of_description};
use rtp::receive::{ReceiveConfig, ReceiveStats, Receiver, Sources};
use rtp::report::ClockMapping;
use rtp::rtcp::{FirEntry, ReportBlock, SenderInfo};
use rtp::rtx::RtxMap;
use rtp::transport_cc::ArrivalRecorder;
use rtp::{Packet, PayloadType, SequenceNumber, Ssrc};
use sdp::{Feedback, MediaKind};

use crate::config::Config;
use crate::event::Event;
use crate::negotiate::{Section, SectionFormat, SectionId};
use described::Described;
use key_frames::KeyFrameDemand;
use loudness::Loudness;

mod described;
mod key_frames;
mod loudness;
mod source;

#[cfg(test)]
mod tests;

/// Time without media after which a section switches from its source to another one that sends.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Longest time that audio waits for a retransmission. A lost packet can be concealed, whereas delay of the
/// stream cannot.
const AUDIO_HOLD_MAX: Duration = Duration::from_millis(500);

/// Longest time for which lost packets may have been padding while no media arrives.
const PADDING_WAIT: Duration = Duration::from_millis(500);

/// A source of the peer, identified by its SSRC.
#[derive(Debug)]
struct Source {
    section: SectionId,
    layer: u8,
    receiver: Receiver,
    clock: ClockMapping,
    /// Index of the source's format in the section, and its depacketizer.
    format: Option<(usize, Depacketizer)>,
    /// Video only: finds out whether lost packets were padding, once the format is known.
    continuity: Option<Continuity>,
    /// Number of packets directly before the next one that are lost for good, but may have been padding.
    missing: u64,
    /// Time at which they count as media if none has arrived by then.
    lost_at: Option<Instant>,
    /// True if media directly before the next packet is lost for good.
    gap: bool,
    /// True if the source has sent media, not only padding.
    spoke: bool,
    /// Video only: estimates the queue on the path from the arrival times of frames.
    queue: QueueDelay,
    /// Video only: true if nothing can be decoded before a key frame.
    needs_key_frame: bool,
    /// Audio only: timestamp of the last frame, so that redundant copies of it are skipped.
    last_frame: Option<u32>,
    /// Sequence number of the next full intra request (RFC 5104 §4.3.1.1).
    command: u8,
    /// Descriptors of the source's frames, from the first one on.
    described: Option<Box<Described>>,
}

/// A layer of a section.
#[derive(Debug)]
struct Layer {
    requests: KeyFrameDemand,
    /// The source that the layer takes media from, and the time of its latest media.
    current: Option<(Ssrc, Instant)>,
}

/// State of a section apart from its sources.
#[derive(Debug)]
struct Incoming {
    section: Section,
    rtx: RtxMap,
    /// True if the peer supports NACK.
    nack: bool,
    /// True if the peer supports PLI.
    pli: bool,
    /// True if the peer supports full intra requests.
    fir: bool,
    /// True if a picture is a frame for each of its spatial layers.
    takes_layers: bool,
    /// Layers of the section, at least one.
    layers: Vec<Layer>,
    /// Audio only, if packets carry levels: the smoothed loudness.
    loudness: Option<Loudness>,
}

/// The receiving half of a session.
#[derive(Debug)]
pub(crate) struct Reception {
    sections: Vec<Incoming>,
    sources: Sources<Source>,
    /// Records arrival times, if the peer uses transport-wide feedback.
    arrivals: Option<ArrivalRecorder>,
    rate: Option<ReceivedRate>,
    /// Packets from sources that were not announced.
    pub(crate) unknown: u64,
    /// Packets dropped because the peer has too many sources.
    pub(crate) too_many_sources: u64,
    /// Packets that are malformed or have a malformed payload.
    pub(crate) malformed: u64,
    /// The latest playout delay that the peer requested for its video.
    pub(crate) playout_delay: Option<PlayoutDelay>,
}

/// Settings for a peer that sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    /// Maximum rate in bits per second, for peers with REMB.
    pub(crate) bitrate_max: u64,
    /// True if a picture is a frame for each of its spatial layers.
    pub(crate) spatial_layers: bool,
}

impl Wishes {
    pub(crate) const fn of(config: &Config) -> Self {
        Self { bitrate_max: config.bitrate_max, spatial_layers: config.spatial_layers }
    }
}

/// Feedback to be sent to the peer at once.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Missing packets of each source.
    pub(crate) nacks: Vec<(Ssrc, Vec<SequenceNumber>)>,
    /// Sources that must send a key frame, requested by PLI.
    pub(crate) key_frames: Vec<Ssrc>,
    /// Sources that must send a key frame, for peers that support full intra requests only.
    pub(crate) commands: Vec<FirEntry>,
}

impl Reception {
    /// Creates the state for the sections that receive.
    pub(crate) fn new(now: Instant, sections: &[Section], wishes: Wishes) -> Self {
        let sections: Vec<Incoming> = sections
            .iter()
            .filter(|section| section.direction.receives())
            .map(|section| Incoming::new(section, wishes))
            .collect();
        let mut reception = Self {
            sections,
            sources: Sources::new(),
            arrivals: None,
            rate: None,
            unknown: 0,
            too_many_sources: 0,
            malformed: 0,
            playout_delay: None,
        };
        reception.choose_feedback(now, wishes.bitrate_max);
        reception
    }

    /// Chooses the feedback: arrival times if a section negotiated them, otherwise a rate estimate if a section
    /// requests it. Feedback that has begun continues.
    fn choose_feedback(&mut self, now: Instant, bitrate_max: u64) {
        let numbers = rtp::extension::Extension::TransportCc;
        let reports_arrivals = self.sections.iter().any(|incoming| {
            incoming.wants(&Feedback::TransportCc) && incoming.section.extensions.id(numbers).is_some()
        });
        let is_told = self.sections.iter().any(|incoming| incoming.wants(&Feedback::Remb));
        if reports_arrivals {
            self.arrivals.get_or_insert_with(|| ArrivalRecorder::new(now));
        } else if is_told {
            self.rate.get_or_insert_with(|| ReceivedRate::new(now, bitrate_max));
        }
    }

    /// Applies the sections of a later description; sections that continue keep their state.
    pub(crate) fn change(&mut self, now: Instant, sections: &[Section], wishes: Wishes) {
        let mut former = std::mem::take(&mut self.sections);
        for section in sections.iter().filter(|section| section.direction.receives()) {
            let same = |old: &Incoming| old.section.id == section.id && old.section.mid == section.mid;
            let old = former.iter().position(same).map(|at| former.swap_remove(at));
            self.sections.push(old.unwrap_or_else(|| Incoming::new(section, wishes)));
        }
        let gone: Vec<SectionId> = former.iter().map(|incoming| incoming.section.id).collect();
        let of_gone = self.sources.iter_mut().filter(|(_, source)| gone.contains(&source.section));
        let of_gone: Vec<Ssrc> = of_gone.map(|(ssrc, _)| ssrc).collect();
        of_gone.into_iter().for_each(|ssrc| drop(self.sources.remove(ssrc)));
        self.choose_feedback(now, wishes.bitrate_max);
    }

    /// Handles a decrypted RTP packet.
    pub(crate) fn handle_packet(&mut self, now: Instant, bytes: &[u8], events: &mut VecDeque<Event>) {
        let Ok(packet) = Packet::read(bytes) else {
            self.malformed += 1;
            return;
        };
        let Some((index, layer)) = self.place_of(&packet) else {
            self.unknown += 1;
            return;
        };
        let Some(incoming) = self.sections.get_mut(index) else { return };
        let values = incoming.section.extensions.read(packet.header.extension);
        if let (Some(arrivals), Some(number)) = (&mut self.arrivals, values.transport_sequence) {
            arrivals.handle_packet(now, number);
        }
        if let Some(rate) = &mut self.rate {
            rate.handle_packet(now, bytes.len());
        }
        self.playout_delay = values.playout_delay.or(self.playout_delay);
        if incoming.rtx.original(packet.header.payload_type).is_some() {
            self.handle_repair(now, (index, layer), &packet, events);
            return;
        }
        let ssrc = packet.header.ssrc;
        let format = incoming.format_of(packet.header.payload_type);
        let known = self.sources.get(ssrc);
        // Packets of a known source in an unknown format, such as comfort noise, are not dropped here, because they
        // occupy sequence numbers.
        if known.is_none() && format.is_none() {
            self.unknown += 1;
            return;
        }
        let spoke = known.is_some_and(|source| source.spoke);
        let speaks = format.is_some() && !packet.payload.is_empty();
        let before = incoming.current(layer);
        let listens = incoming.listens(now, layer, ssrc, speaks, !spoke);
        if let Some(old) =
            before.filter(|old| listens && *old != ssrc).and_then(|old| self.sources.get_mut(old))
        {
            old.leave();
            if incoming.is_video() {
                events.push_back(Event::PictureLost { section: incoming.section.id, layer });
            }
        }
        if let (true, Some(value)) = (listens, values.audio_level) {
            incoming.handle_level(now, value.level, events);
        }
        let format = format.unwrap_or(0);
        let Some(source) =
            self.sources.get_or_insert_with(ssrc, || incoming.source(now, ssrc, layer, format))
        else {
            self.too_many_sources += 1;
            return;
        };
        source.spoke |= speaks;
        if let Some(rate) = self.rate.as_mut().filter(|_| speaks && incoming.is_video())
            && let Some(queue) = source.queue.handle_packet(now, packet.header.timestamp)
        {
            rate.handle_queue(queue);
        }
        if let Some(value) =
            values.dependency_descriptor.filter(|_| listens && incoming.takes_layers_of(format))
        {
            source.described.get_or_insert_default().arrive(&packet.header, value);
        }
        // Padding and packets of unused sources occupy sequence numbers too. They are passed to the receiver with an
        // empty payload, so that they do not count as missing.
        let payload = if listens && speaks { packet.payload } else { &[] };
        let covers = incoming.covers(packet.header.payload_type, payload);
        source.receiver.handle_covering(now, &packet.header, Bytes::copy_from_slice(payload), covers);
        self.malformed += source.drain(now, ssrc, incoming, events);
    }

    fn handle_repair(
        &mut self,
        now: Instant,
        (index, layer): (usize, u8),
        packet: &Packet<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(incoming) = self.sections.get_mut(index) else { return };
        let rtx = packet.header.ssrc;
        if incoming.rtx.source(rtx).is_none()
            && let Some(current) = incoming.current(layer)
        {
            // The description does not say which source this RTX source repairs. It is assumed to be the
            // current source of the layer.
            incoming.rtx.add_source(rtx, current);
        }
        let Some(repaired) = incoming.rtx.unwrap(packet) else { return };
        let ssrc = repaired.header.ssrc;
        let values = incoming.section.extensions.read(packet.header.extension);
        let Some(source) = self.sources.get_mut(ssrc) else { return };
        let format = incoming.format_of(repaired.header.payload_type);
        let is_layered = format.is_some_and(|format| incoming.takes_layers_of(format));
        if let Some(value) = values.dependency_descriptor.filter(|_| is_layered && incoming.is_current(ssrc))
        {
            source.described.get_or_insert_default().arrive(&repaired.header, value);
        }
        let payload = packet.payload.get(repaired.payload_at..).filter(|_| incoming.is_current(ssrc));
        let payload = Bytes::copy_from_slice(payload.unwrap_or_default());
        source.receiver.handle_recovered(now, &repaired.header, payload);
        self.malformed += source.drain(now, ssrc, incoming, events);
    }

    /// Returns the section of a packet and its layer.
    fn place_of(&self, packet: &Packet<'_>) -> Option<(usize, u8)> {
        let index = self.section_of(packet)?;
        if let Some(source) = self.sources.get(packet.header.ssrc) {
            return Some((index, source.layer));
        }
        let incoming = self.sections.get(index)?;
        if incoming.section.layers.is_empty() {
            return Some((index, 0));
        }
        let told = incoming.section.extensions.read(packet.header.extension);
        let layer = match told.rid.or(told.repaired_rid) {
            Some(rid) => incoming.section.layers.iter().position(|layer| layer == rid)?,
            // Only the first packets of an RTX source carry a rid. Later ones belong to the layer of the
            // repaired source.
            None => usize::from(self.sources.get(incoming.rtx.source(packet.header.ssrc)?)?.layer),
        };
        Some((index, u8::try_from(layer).ok()?))
    }

    /// Returns the section of a packet.
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

    /// Removes a source that the peer has ended with BYE.
    pub(crate) fn handle_bye(&mut self, ssrc: Ssrc) {
        self.sources.remove(ssrc);
        let layers = self.sections.iter_mut().flat_map(|incoming| &mut incoming.layers);
        layers.filter(|layer| layer.current.is_some_and(|(current, _)| current == ssrc)).for_each(|layer| {
            layer.current = None;
        });
    }

    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.sources.iter_mut().for_each(|(_, source)| source.receiver.set_round_trip(round_trip));
        let layers = self.sections.iter_mut().flat_map(|incoming| &mut incoming.layers);
        layers.for_each(|layer| layer.requests.set_round_trip(round_trip));
    }

    /// Records that the owner needs a key frame. Returns false if the section has no such video layer.
    pub(crate) fn request_key_frame(&mut self, section: SectionId, layer: u8) -> bool {
        let found =
            self.sections.iter_mut().find(|incoming| incoming.section.id == section && incoming.is_video());
        let layer = found.and_then(|incoming| incoming.layers.get_mut(usize::from(layer)));
        layer.map(|layer| layer.requests.request()).is_some()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        for (ssrc, source) in self.sources.iter_mut() {
            source.receiver.handle_timeout(now);
            if let Some(incoming) = self.sections.iter_mut().find(|one| one.section.id == source.section) {
                self.malformed += source.drain(now, ssrc, incoming, events);
            }
        }
        for incoming in &mut self.sections {
            let report = incoming.loudness.as_mut().and_then(|loudness| loudness.handle_timeout(now));
            events.extend(report.map(|level| Event::AudioLevel { section: incoming.section.id, level }));
        }
    }

    /// Returns the feedback that is due now.
    pub(crate) fn poll_requests(&mut self, now: Instant) -> Requests {
        let mut requests = Requests::default();
        for (ssrc, source) in self.sources.iter_mut() {
            let mut numbers = Vec::new();
            source.receiver.poll_nacks(now, &mut numbers);
            // Receivers are polled even if nothing is requested, so that their deadlines advance. For peers
            // without retransmission, the list is always empty.
            if !numbers.is_empty() && self.sections.iter().any(|incoming| incoming.is_current(ssrc)) {
                requests.nacks.push((ssrc, numbers));
            }
        }
        for incoming in &mut self.sections {
            for layer in &mut incoming.layers {
                let due = layer.requests.poll(now);
                let Some((ssrc, _)) = layer.current.filter(|_| due) else { continue };
                if incoming.pli {
                    requests.key_frames.push(ssrc);
                } else if let Some(source) = self.sources.get_mut(ssrc).filter(|_| incoming.fir) {
                    requests.commands.push(FirEntry { ssrc, sequence: source.command });
                    source.command = source.command.wrapping_add(1);
                }
            }
        }
        requests
    }

    /// Returns a report block for each source.
    pub(crate) fn report(&mut self, now: Instant) -> Vec<ReportBlock> {
        self.sources.iter_mut().filter_map(|(_, source)| source.receiver.report(now)).collect()
    }

    /// Returns the rate at which the peer may send, in bits per second, and the sources to which it applies;
    /// `None` for peers without REMB. `blocks` are those of the accompanying report.
    pub(crate) fn rate_estimate(&mut self, now: Instant, blocks: &[ReportBlock]) -> Option<(u64, Vec<Ssrc>)> {
        let is_rated = |source: &Source| {
            let of = |incoming: &&Incoming| incoming.section.id == source.section;
            self.sections.iter().find(of).is_some_and(|incoming| incoming.wants(&Feedback::Remb))
        };
        let rated: Vec<Ssrc> =
            self.sources.iter().filter(|(_, source)| is_rated(source)).map(|(ssrc, _)| ssrc).collect();
        let lost = blocks.iter().filter(|block| rated.contains(&block.ssrc)).map(|block| block.fraction_lost);
        let loss = u16::from(lost.max().unwrap_or(0)).saturating_mul(125) / 32;
        let rate = self.rate.as_mut().filter(|_| !rated.is_empty())?;
        Some((rate.report(now, loss), rated))
    }

    /// True if the estimate must be sent before the next report is due, because a queue has built up on the
    /// path.
    pub(crate) fn is_rate_urgent(&self, now: Instant) -> bool {
        self.rate.as_ref().is_some_and(|rate| rate.is_urgent(now))
    }

    /// True if arrival times must be reported now.
    pub(crate) fn has_arrivals(&self, now: Instant) -> bool {
        self.arrivals.as_ref().and_then(ArrivalRecorder::poll_timeout).is_some_and(|due| due <= now)
    }

    pub(crate) const fn arrivals(&mut self) -> Option<&mut ArrivalRecorder> {
        self.arrivals.as_mut()
    }

    /// Returns any source, for feedback that concerns all of them.
    pub(crate) fn any_source(&self) -> Option<Ssrc> {
        self.sources.iter().next().map(|(ssrc, _)| ssrc)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let sources = self.sources.iter().filter_map(|(_, source)| source.receiver.poll_timeout());
        let layers = self.sections.iter().flat_map(|incoming| &incoming.layers);
        let requests = layers.filter_map(|layer| layer.requests.poll_timeout());
        let arrivals = self.arrivals.as_ref().and_then(ArrivalRecorder::poll_timeout);
        let loudness = self.sections.iter().filter_map(|incoming| incoming.loudness.as_ref()?.poll_timeout());
        let lost = self.sources.iter().filter_map(|(_, source)| source.lost_at);
        sources.chain(lost).chain(requests).chain(arrivals).chain(loudness).min()
    }

    pub(crate) fn stats(&self) -> impl Iterator<Item = (SectionId, Ssrc, ReceiveStats)> {
        self.sources.iter().map(|(ssrc, source)| (source.section, ssrc, source.receiver.stats()))
    }
}

impl Incoming {
    fn new(section: &Section, wishes: Wishes) -> Self {
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
            nack: wants(&Feedback::Nack),
            pli: wants(&Feedback::Pli),
            fir: wants(&Feedback::Fir),
            takes_layers: wishes.spatial_layers,
            layers: (0..section.layers.len().max(1))
                .map(|_| Layer { requests: KeyFrameDemand::default(), current: None })
                .collect(),
            loudness: section
                .extensions
                .id(rtp::extension::Extension::AudioLevel)
                .map(|_| Loudness::default()),
            section: section.clone(),
        }
    }

    /// Adds the audio level of a packet, and reports the loudness if a report is due.
    fn handle_level(&mut self, now: Instant, level: u8, events: &mut VecDeque<Event>) {
        let report = self.loudness.as_mut().and_then(|loudness| loudness.handle_level(now, level));
        events.extend(report.map(|level| Event::AudioLevel { section: self.section.id, level }));
    }

    /// Returns the source that a layer takes media from.
    fn current(&self, layer: u8) -> Option<Ssrc> {
        Some(self.layers.get(usize::from(layer))?.current?.0)
    }

    /// True if both sides support this feedback type.
    fn wants(&self, feedback: &Feedback) -> bool {
        self.section.formats.iter().any(|format| format.has_feedback(feedback))
    }

    fn is_video(&self) -> bool {
        self.section.kind == MediaKind::Video
    }

    /// Returns the index of a packet's format, in plain or redundant form.
    fn format_of(&self, payload_type: PayloadType) -> Option<usize> {
        let is_it = |format: &SectionFormat| {
            format.payload_type() == payload_type || format.red == Some(payload_type)
        };
        self.section.formats.iter().position(is_it)
    }

    /// Returns the payload type of the format that this redundant payload type contains.
    fn bare_of(&self, payload_type: PayloadType) -> Option<PayloadType> {
        let mut formats = self.section.formats.iter();
        formats.find(|format| format.red == Some(payload_type)).map(SectionFormat::payload_type)
    }

    /// Returns the number of earlier packets that a redundant packet repeats.
    fn covers(&self, payload_type: PayloadType, payload: &[u8]) -> u16 {
        let frames = |of| Some(RedPacket::read(payload).ok()?.earlier(of).count());
        let count = self.bare_of(payload_type).and_then(frames).unwrap_or(0);
        u16::try_from(count).unwrap_or(0)
    }

    /// True if each spatial layer of a format is a frame. Decoders of AV1 need temporal delimiters to show less than the top
    /// layer.
    fn takes_layers_of(&self, format: usize) -> bool {
        let format = self.section.formats.get(format).map(|format| &format.remote);
        self.takes_layers && format.and_then(codec_of_description) == Some(Codec::Vp9)
    }

    /// True if lost packets of a format are repeated under an SSRC of their own.
    fn repairs(&self, format: usize) -> bool {
        self.section.formats.get(format).is_some_and(|format| format.rtx.is_some())
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

    fn is_current(&self, ssrc: Ssrc) -> bool {
        self.layers.iter().any(|layer| layer.current.is_some_and(|(current, _)| current == ssrc))
    }

    /// True if the packet's media is used: it has a known format and a payload (`speaks`), and its source is
    /// the layer's current one, is new, or replaces a silent one. The source then becomes the current one.
    fn listens(&mut self, now: Instant, layer: u8, ssrc: Ssrc, speaks: bool, is_new: bool) -> bool {
        let Some(layer) = self.layers.get_mut(usize::from(layer)) else { return false };
        let silent = |heard: Instant| is_new || now.saturating_duration_since(heard) >= SILENCE_MAX;
        let listens = speaks && layer.current.is_none_or(|(current, heard)| current == ssrc || silent(heard));
        if listens {
            layer.current = Some((ssrc, now));
        }
        listens
    }

    fn clock_rate(&self, format: usize) -> u32 {
        self.section.formats.get(format).map_or(90_000, |format| format.remote.rtpmap.clock_rate).max(1)
    }

    fn source(&self, now: Instant, ssrc: Ssrc, layer: u8, format: usize) -> Source {
        let clock_rate = self.clock_rate(format);
        let config = match (self.nack, self.is_video()) {
            (true, true) => ReceiveConfig::with_nack(clock_rate),
            (true, false) => {
                ReceiveConfig { hold_max: AUDIO_HOLD_MAX, ..ReceiveConfig::with_nack(clock_rate) }
            }
            (false, _) => ReceiveConfig::without_nack(clock_rate),
        };
        Source {
            section: self.section.id,
            layer,
            receiver: Receiver::new(ssrc, config),
            clock: ClockMapping::new(clock_rate),
            queue: QueueDelay::new(now, clock_rate),
            format: None,
            continuity: None,
            missing: 0,
            lost_at: None,
            gap: false,
            spoke: false,
            needs_key_frame: true,
            last_frame: None,
            command: 0,
            described: None,
        }
    }
}
