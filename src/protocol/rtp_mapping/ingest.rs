//! Converts RTP packets of a publisher to access units.
//!
//! **Times.** [`media::Timeline`] places the sources' frames on the stream's time, by their arrival and the sender's
//! reports. RTP carries presentation times; decode times follow from the order ([`crate::protocol::decode_order`]).
//!
//! **Beginning.** Units wait until the configuration of each source is known, at most [`START_WAIT`], so that the
//! stream's first viewers get all tracks. Units that cannot be decoded (video before a key frame, and after a loss
//! until the next one) are dropped.
//!
//! **Sources.** One source of a section is received: the first, until another one replaces it ([`super::succession`]).
//! Packets of other sources are dropped, and so are payload types that the description lacks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::codec::{Codec, mp3};
use media::{
    AccessUnit, ClockNews, CodecConfig, Timeline, Timescale, Track, TrackId, TrackKind, Tracks, Unwrap,
};
use rtp::payload::{Depacketizer, Frame, Part, codec_of_description};
use rtp::receive::{ReceiveConfig, ReceiveEvent, Received, Receiver};
use rtp::report::ClockMapping;
use rtp::rtcp::{Compound, Rtcp};
use rtp::{Packet, PayloadType, Ssrc};
use sdp::Format;

use super::clock::{SenderTime, SourceClock, TICKS};
use super::configs;
use super::succession::Succession;
use crate::mail::Grant;
use crate::protocol::decode_order::DecodeOrder;
use crate::protocol::usable::Supply;

/// Maximum time that the first units wait for the other sources.
const START_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of waiting units, and of their bytes.
const START_UNITS_MAX: usize = 512;
const START_BYTES_MAX: usize = 4 << 20;
/// The time at which the stream begins: 200 ms instead of 0, because reordered pictures are decoded before the
/// first one is presented.
const LEAD: i64 = 18_000;
/// Maximum size of a receiver report.
const REPORT_BYTES_MAX: usize = 1200;

/// A source of a publisher, as described in a section.
#[derive(Debug)]
pub(in crate::protocol) struct Source {
    codec: Codec,
    payload_type: PayloadType,
    rate: Timescale,
    config: Option<CodecConfig>,
    depacketizer: Depacketizer,
}

impl Source {
    /// Makes the source of a section's first format; `None` if it is not supported.
    pub(in crate::protocol) fn of(format: &Format) -> Option<Self> {
        let codec = codec_of_description(format)?;
        let depacketizer = Depacketizer::new(rtp::payload::Format::of_description(format).ok()??).ok()?;
        let in_mux = depacketizer.aac_config().cloned().map(CodecConfig::Aac);
        Some(Self {
            codec,
            payload_type: format.payload_type(),
            rate: Timescale::new(format.rtpmap.clock_rate),
            config: configs::known_before(codec, format).or(in_mux),
            depacketizer,
        })
    }

    /// Returns the configuration of AAC that came in band. ADTS does not signal SBR, so the described configuration is
    /// kept if it agrees with the one in band.
    fn aac_config(&self) -> Option<CodecConfig> {
        let in_band = self.depacketizer.aac_config()?;
        match &self.config {
            Some(described @ CodecConfig::Aac(config))
                if config.sample_rate == in_band.sample_rate
                    && config.channel_configuration == in_band.channel_configuration =>
            {
                Some(described.clone())
            }
            Some(_) | None => Some(CodecConfig::Aac(in_band.clone())),
        }
    }
}

/// A source being received.
#[derive(Debug)]
struct Incoming {
    source: Source,
    track: TrackId,
    receiver: Option<(Ssrc, Receiver)>,
    succession: Succession,
    mapping: ClockMapping,
    /// The source of the newest report, as long as no packet has arrived.
    reported: Option<Ssrc>,
    clock: SourceClock,
    order: DecodeOrder,
    /// The last DTS.
    decoded: i64,
    /// True if nothing can be decoded before the next key frame.
    needs_key_frame: bool,
    /// True if packets before the next one are missing.
    gap: bool,
}

impl Incoming {
    /// Restarts for another source, which has its own sequence numbers and clock.
    fn begin_anew(&mut self) {
        self.receiver = None;
        self.forget_reports();
        self.clock = SourceClock::new(self.source.rate, Unwrap::new(u32::BITS));
        self.gap = true;
        self.needs_key_frame = self.source.codec.kind() == TrackKind::Video;
    }

    fn forget_reports(&mut self) {
        self.reported = None;
        self.mapping = ClockMapping::new(self.source.rate.ticks());
    }
}

/// The state of one publisher.
#[derive(Debug)]
pub(in crate::protocol) struct Depackager {
    /// Sources by section; `None` for an unsupported section.
    incoming: Vec<Option<Incoming>>,
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// Arrival time of the first frame.
    began: Instant,
    sender: SenderTime,
    starting: bool,
    units: VecDeque<(AccessUnit, Arc<Tracks>)>,
    waiting_bytes: usize,
    dropped: u64,
    delivers: bool,
}

impl Depackager {
    /// Starts a publication whose times continue at the position in `grant`, the permission to publish.
    pub(in crate::protocol) fn new(now: Instant, grant: &Grant, sources: Vec<Option<Source>>) -> Self {
        let mut next = [0u8; 2];
        let incoming = sources.into_iter().map(|source| {
            let source = source?;
            let n = next.get_mut(usize::from(source.codec.kind() == TrackKind::Audio))?;
            let track = TrackId::nth(source.codec.kind(), *n)?;
            *n = n.saturating_add(1);
            Some(Incoming {
                track,
                receiver: None,
                succession: Succession::default(),
                mapping: ClockMapping::new(source.rate.ticks()),
                reported: None,
                clock: SourceClock::new(source.rate, Unwrap::new(u32::BITS)),
                order: DecodeOrder::default(),
                decoded: grant.position.floor(TICKS),
                needs_key_frame: source.codec.kind() == TrackKind::Video,
                gap: false,
                source,
            })
        });
        let mut new = Self {
            incoming: incoming.take(media::TRACKS_MAX).collect(),
            timeline: Timeline::of_sources(TICKS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            began: now,
            sender: SenderTime::default(),
            starting: true,
            units: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            delivers: false,
        };
        for at in 0..new.incoming.len() {
            let known = new.at(at).and_then(|one| Some((one.track, one.source.config.clone()?)));
            if let Some((track, config)) = known {
                new.configure(at, track, config);
            }
        }
        new
    }

    fn at(&mut self, section: usize) -> Option<&mut Incoming> {
        self.incoming.get_mut(section).and_then(Option::as_mut)
    }

    /// Takes an RTP packet of a section. Returns false if it belongs to no described source.
    pub(in crate::protocol) fn handle_rtp(&mut self, now: Instant, section: usize, packet: &[u8]) -> bool {
        let Some(one) = self.at(section) else { return false };
        let bytes = packet;
        let Ok(packet) = Packet::read(bytes) else { return false };
        let header = packet.header;
        if header.payload_type != one.source.payload_type {
            // Packets of another payload type are numbered together with those of the source, so this one must not
            // count as missing.
            if let Some((ssrc, receiver)) = &mut one.receiver
                && *ssrc == header.ssrc
            {
                receiver.handle_packet(now, &header, Bytes::new());
                self.drain(now, section);
            }
            return false;
        }
        // A report of another source, such as one of an earlier session, says nothing about this one.
        if one.receiver.is_none() && one.reported.is_some_and(|ssrc| ssrc != header.ssrc) {
            one.forget_reports();
        }
        let (ssrc, receiver) = one.receiver.get_or_insert_with(|| {
            let config = ReceiveConfig::without_nack(one.source.rate.ticks());
            (header.ssrc, Receiver::new(header.ssrc, config))
        });
        if *ssrc != header.ssrc {
            let Some(held) = one.succession.other(now, header.ssrc, bytes) else { return false };
            one.begin_anew();
            for (arrival, packet) in held {
                self.handle_rtp(arrival, section, &packet);
            }
            return true;
        }
        one.succession.received(now);
        receiver.handle_packet(now, &header, Bytes::copy_from_slice(packet.payload));
        self.drain(now, section);
        true
    }

    /// Takes an RTCP packet of a section. Sender reports align the sources. BYE is ignored, because the publication
    /// ends with its connection.
    pub(in crate::protocol) fn handle_rtcp(&mut self, now: Instant, section: usize, compound: &[u8]) {
        let Some(one) = self.at(section) else { return };
        for part in rtp::rtcp::packets(compound) {
            let Ok(Rtcp::SenderReport(report)) = part else { continue };
            match &mut one.receiver {
                Some((ssrc, receiver)) if *ssrc == report.ssrc => {
                    receiver.handle_sender_report(now, &report.info);
                }
                Some(_) => continue,
                None if one.reported == Some(report.ssrc) => {}
                None => {
                    one.forget_reports();
                    one.reported = Some(report.ssrc);
                }
            }
            one.mapping.handle_sender_report(&report.info);
        }
    }

    /// Returns the receiver report for a section; `None` before its first packet.
    pub(in crate::protocol) fn report(&mut self, now: Instant, section: usize) -> Option<Vec<u8>> {
        let (ssrc, receiver) = self.at(section)?.receiver.as_mut()?;
        let own = Ssrc(!ssrc.0);
        let block = receiver.report(now)?;
        let mut compound = Compound::new(REPORT_BYTES_MAX);
        compound.receiver_reports(own, &[block]);
        compound.source_description(own, "millstream");
        Some(compound.into_bytes())
    }

    /// Handles deadlines: gives up missing packets, and ends the wait of the first units.
    pub(in crate::protocol) fn handle_timeout(&mut self, now: Instant) {
        for section in 0..self.incoming.len() {
            if let Some((_, receiver)) = self.at(section).and_then(|one| one.receiver.as_mut()) {
                receiver.handle_timeout(now);
                self.drain(now, section);
            }
        }
        self.try_start(now);
    }

    /// Returns the next deadline.
    pub(in crate::protocol) fn poll_timeout(&self) -> Option<Instant> {
        let receivers = self.incoming.iter().flatten().filter_map(|one| one.receiver.as_ref());
        let starts = self.starting && !self.units.is_empty();
        receivers
            .filter_map(|(_, receiver)| receiver.poll_timeout())
            .chain(starts.then(|| self.began.checked_add(START_WAIT)).flatten())
            .min()
    }

    /// Returns the next unit with its tracks.
    pub(in crate::protocol) fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        if self.starting { None } else { self.units.pop_front() }
    }

    /// Takes the next fault of the sources' clocks.
    pub(in crate::protocol) fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.timeline.take_clock_news()
    }

    /// Takes the number of frames that could not be used since the last call.
    pub(in crate::protocol) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Returns what the publisher has sent so far: nothing usable, only announcements, audio alone, or frames.
    pub(in crate::protocol) fn supply(&self) -> Supply {
        let sources = || self.incoming.iter().flatten();
        let videos = sources().filter(|one| one.source.codec.kind() == TrackKind::Video);
        match self.delivers {
            true => Supply::of_videos(videos.map(|one| one.clock.has_begun())),
            false if sources().next().is_none() => Supply::Nothing,
            false => Supply::Announced,
        }
    }

    fn drain(&mut self, now: Instant, section: usize) {
        while let Some(one) = self.at(section) {
            let Some((_, receiver)) = &mut one.receiver else { return };
            match receiver.poll_event() {
                Some(ReceiveEvent::Packet(packet)) => self.packet(now, section, &packet),
                Some(ReceiveEvent::Lost { .. } | ReceiveEvent::Restarted) => {
                    one.gap = true;
                    one.needs_key_frame = one.source.codec.kind() == TrackKind::Video;
                }
                None => return,
            }
        }
    }

    fn packet(&mut self, now: Instant, section: usize, packet: &Received) {
        let Some(one) = self.at(section) else { return };
        if packet.payload.is_empty() {
            // Padding, or another payload type: only the sequence number counts.
            return;
        }
        let gap = std::mem::take(&mut one.gap);
        let Received { timestamp, marker, .. } = *packet;
        let part = Part { timestamp, marker, gap, payload: &packet.payload };
        let before = one.source.depacketizer.stats().dropped;
        if let Err(error) = one.source.depacketizer.handle_part(&part) {
            tracing::debug!(%error, "RTP payload of a publisher");
        }
        let lost = one.source.depacketizer.stats().dropped.saturating_sub(before);
        if lost > 0 {
            one.needs_key_frame = one.source.codec.kind() == TrackKind::Video;
        }
        self.dropped = self.dropped.saturating_add(lost);
        while let Some(frame) = self.at(section).and_then(|one| one.source.depacketizer.poll_frame()) {
            self.frame(now, section, frame);
        }
    }

    /// Converts a complete frame of a section.
    fn frame(&mut self, now: Instant, section: usize, frame: Frame) {
        let began = self.incoming.iter().flatten().any(|one| one.clock.has_begun());
        let Some(one) = self.incoming.get_mut(section).and_then(Option::as_mut) else { return };
        if one.needs_key_frame && !frame.key_frame {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if !began {
            self.began = now;
        }
        let sampled = one.mapping.time_of(frame.timestamp).map(|sampled| self.sender.ticks(sampled));
        let own = one.clock.own(frame.timestamp);
        self.timeline.arrive(now);
        let shown = self.timeline.place_frame(one.track, own, sampled).saturating_add(LEAD);
        let (track, codec) = (one.track, one.source.codec);
        one.needs_key_frame = false;
        let mut payload = frame.payload;
        let mut config = match codec {
            Codec::Mp3 => mp3::Config::of_frame(&payload).ok().map(CodecConfig::Mp3),
            Codec::Aac => one.source.aac_config(),
            Codec::H264
            | Codec::H265
            | Codec::Vp8
            | Codec::Vp9
            | Codec::Av1
            | Codec::Opus
            | Codec::G711(_)
            | Codec::Ac3
            | Codec::Eac3
            | Codec::Flac => None,
        };
        if frame.key_frame {
            let (own, rest) = configs::of_key_frame(codec, &payload);
            config = own.or(config);
            payload = rest;
        }
        if let Some(config) = config {
            self.configure(section, track, config);
        }
        self.unit(now, section, (track, shown), frame.key_frame, payload);
    }

    /// Makes a frame a unit of its track.
    fn unit(
        &mut self,
        now: Instant,
        section: usize,
        (track, shown): (TrackId, i64),
        key_frame: bool,
        payload: Bytes,
    ) {
        let Some(one) = self.incoming.get_mut(section).and_then(Option::as_mut) else { return };
        let is_video = one.source.codec.kind() == TrackKind::Video;
        let Some(known) = self.tracks.get(track).filter(|_| !payload.is_empty()) else {
            // The key frame has no parameter sets, and none arrived before it.
            one.needs_key_frame = is_video;
            self.dropped = self.dropped.saturating_add(1);
            return;
        };
        let config_epoch = known.epoch;
        let decoded = if is_video { one.order.next(shown) } else { shown };
        let dts = decoded.max(one.decoded);
        one.decoded = dts;
        let pts = shown.max(dts);
        self.delivers = true;
        self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
        let unit = AccessUnit { track, dts, pts, key_frame, config_epoch, payload };
        self.units.push_back((unit, Arc::clone(&self.tracks)));
        self.try_start(now);
    }

    /// Ends the wait of the first units, if they have waited long enough or all sources are known.
    fn try_start(&mut self, now: Instant) {
        let is_known = self.incoming.iter().flatten().all(|one| self.tracks.get(one.track).is_some());
        let is_late = now.saturating_duration_since(self.began) >= START_WAIT
            || self.units.len() >= START_UNITS_MAX
            || self.waiting_bytes >= START_BYTES_MAX;
        if !self.starting || self.units.is_empty() || !(is_known || is_late) {
            return;
        }
        self.starting = false;
        for (unit, tracks) in &mut self.units {
            if tracks.get(unit.track) == self.tracks.get(unit.track) {
                *tracks = Arc::clone(&self.tracks);
            }
        }
    }

    /// Sets the configuration of a track. A different one begins a new epoch.
    fn configure(&mut self, section: usize, id: TrackId, config: CodecConfig) {
        if self.tracks.get(id).is_some_and(|track| track.config == config) {
            return;
        }
        if let (Some(one), Some(depth)) = (self.at(section), configs::reorder_of(&config)) {
            one.order.announce(depth);
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        tracks.put(Track { epoch, ..Track::new(id, config, TICKS) });
    }
}
