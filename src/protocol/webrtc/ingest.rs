//! Converts a publisher's frames to access units.
//!
//! **Times.** [`media::Timeline`] places the frames of all media sections of the session description on the stream's
//! time, by their arrival and the sender's reports.
//!
//! **Layers.** The layers of a simulcast are tracks with the same picture: renditions. A layer that the publisher
//! stops sending is removed from the stream, and returns with its next key frame. So are the spatial layers of a picture
//! (SVC): each is a track whose units contain what a decoder of that layer needs.
//!
//! **Beginning.** Units wait until each section has a track, at most [`START_WAIT`], so that the stream's first viewers
//! get all tracks. Units that cannot be decoded (video before a key frame, and after a loss until the next one) are
//! dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Section, SectionId};
use media::codec::Codec;
use media::{
    AccessUnit, ClockNews, CodecConfig, Rendition, Timeline, Timescale, Track, TrackId, TrackKind, Tracks,
    Unwrap,
};
use rtp::NtpTime;
use rtp::payload::{Frame, SpatialLayer, codec_of_description};

use super::info::{Rates, TrackInfo};
use crate::mail::Grant;
use crate::protocol::rtp_mapping::clock::{SenderTime, SourceClock, TICKS};
use crate::protocol::rtp_mapping::configs;

/// Maximum time for which the first units wait until every media section has a track.
const START_WAIT: Duration = Duration::from_secs(2);
/// Maximum time from the connection to the first frame of a publisher that must send.
const FIRST_WITHIN: Duration = Duration::from_secs(20);
/// Maximum number of waiting units, and of their bytes.
const START_UNITS_MAX: usize = 512;
const START_BYTES_MAX: usize = 4 << 20;
/// Time without frames, while other layers of the section continue, after which a layer counts as stopped.
const LAYER_SILENCE: Duration = Duration::from_secs(2);
/// The same for a spatial layer, whose frames come with those of the other layers.
const SPATIAL_SILENCE: Duration = Duration::from_millis(500);
/// Maximum number of tracks of a kind.
const TRACKS_MAX: u8 = 16;
/// Minimum interval of updates of a rendition's rate.
const RATE_INTERVAL: Duration = Duration::from_secs(2);

/// A media section in which the publisher sends, or one layer of a section's simulcast, or a spatial layer of either.
#[derive(Debug)]
struct Incoming {
    section: SectionId,
    layer: u8,
    /// Number of the spatial layer; `None` before the first picture with several.
    spatial: Option<u8>,
    /// Number of the group of renditions; 0 if the section has no layers.
    group: u8,
    /// Time of the last frame, without long pauses of the whole section since then.
    heard: Option<Instant>,
    track: TrackId,
    codec: Codec,
    clock: SourceClock,
    /// True if nothing can be decoded before the next key frame.
    needs_key_frame: bool,
    /// The configuration, if the codec's format determines it completely.
    config: Option<CodecConfig>,
}

/// The state of one publisher.
#[derive(Debug)]
pub(super) struct Ingest {
    sections: Vec<Incoming>,
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// Arrival time of the first frame.
    began: Instant,
    sender: SenderTime,
    starting: bool,
    /// True if the publisher must send media soon after it is connected.
    must_send: bool,
    /// Time by which the first frame must arrive; `None` without such a limit, and after that frame.
    first_by: Option<Instant>,
    units: VecDeque<(AccessUnit, Arc<Tracks>)>,
    waiting_bytes: usize,
    dropped: u64,
    rates: Rates,
    /// Time of the last update of the renditions' rates.
    rated: Option<Instant>,
}

impl Ingest {
    /// Creates the state of a publisher, whose stream continues at the position in the grant.
    pub(super) fn new(now: Instant, grant: &Grant, sections: &[Section]) -> Self {
        let mut next = [0u8; 2];
        let receiving = sections.iter().filter(|section| section.direction.receives());
        let layers = receiving.flat_map(|section| {
            let count = u8::try_from(section.layers.len()).unwrap_or(u8::MAX);
            let group = if count > 1 { section.id.0.saturating_add(1) } else { 0 };
            (0..count.max(1)).map(move |layer| (section, layer, group))
        });
        let incoming = layers.filter_map(|(section, layer, group)| {
            let format = section.formats.first()?;
            let codec = codec_of_description(&format.remote)?;
            let n = next.get_mut(usize::from(codec.kind() == TrackKind::Audio))?;
            let track = TrackId::nth(codec.kind(), *n)?;
            *n += 1;
            Some(Incoming {
                section: section.id,
                layer,
                spatial: None,
                group,
                heard: None,
                track,
                codec,
                clock: SourceClock::new(
                    Timescale::new(format.local.rtpmap.clock_rate),
                    Unwrap::new(u32::BITS),
                ),
                needs_key_frame: codec.kind() == TrackKind::Video,
                config: configs::known_before(codec, &format.remote),
            })
        });
        Self {
            sections: incoming.collect(),
            timeline: Timeline::of_sources(TICKS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            began: now,
            sender: SenderTime::default(),
            starting: true,
            must_send: false,
            first_by: None,
            units: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            rates: Rates::default(),
            rated: None,
        }
    }

    /// Requires the first frame soon after the publisher is connected, unless there is no section for media. After that
    /// frame a publisher may be silent, because its tracks can be muted.
    pub(super) const fn require_media(&mut self) {
        self.must_send = true;
    }

    /// Begins the wait for the first frame, because the publisher is connected.
    pub(super) fn connected(&mut self, now: Instant) {
        let has_begun = self.sections.iter().any(|one| one.heard.is_some());
        if self.must_send && !has_begun && !self.sections.is_empty() {
            self.first_by = self.first_by.or_else(|| now.checked_add(FIRST_WITHIN));
        }
    }

    /// True if the first frame has not arrived in time.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.first_by.is_some_and(|by| by <= now)
    }

    /// Takes a complete frame of a section. Returns false if the frame is dropped because a key frame is needed first.
    pub(super) fn frame(
        &mut self,
        now: Instant,
        (section, layer): (SectionId, u8),
        frame: Frame,
        sampled: Option<NtpTime>,
    ) -> bool {
        self.first_by = None;
        let Some(at) = self.place_of(section, layer, frame.layer) else { return true };
        if !self.sections.iter().any(|one| one.clock.has_begun()) {
            // The wait for the other sections begins with the first frame, because ICE and DTLS took the time before
            // it.
            self.began = now;
        }
        self.drop_silent_layers(now, section);
        if frame.key_frame {
            self.drop_upper_layers((section, layer), frame.layer.top);
        }
        let Some(incoming) = self.sections.get_mut(at) else { return true };
        incoming.heard = Some(now);
        let own = incoming.clock.own(frame.timestamp);
        let sampled = sampled.map(|sampled| self.sender.ticks(sampled));
        self.timeline.arrive(now);
        let dts = self.timeline.map_frame(incoming.track, own, sampled);
        if incoming.needs_key_frame && !frame.key_frame {
            self.dropped = self.dropped.saturating_add(1);
            return false;
        }
        let (track, codec) = (incoming.track, incoming.codec);
        let mut payload = frame.payload;
        // The track of a layer that was silent was removed. When the layer returns, its track needs a configuration
        // again.
        let is_new = self.tracks.get(track).is_none();
        let (mut config, mut size) = (incoming.config.clone().filter(|_| is_new), None);
        if frame.key_frame {
            let (own, rest) = configs::of_key_frame(codec, &payload);
            config = own.or(config);
            size = frame.layer.size.or_else(|| configs::size_of_key_frame(codec, &payload));
            payload = rest;
        }
        incoming.needs_key_frame = false;
        if let Some(config) = config {
            self.configure(track, config);
        }
        if let Some(size) = size {
            self.resize(track, size);
        }
        let Some(known) = self.tracks.get(track).filter(|_| !payload.is_empty()) else {
            // This key frame has no parameter sets, and none have arrived before.
            if let Some(incoming) = self.sections.get_mut(at) {
                incoming.needs_key_frame = incoming.codec.kind() == TrackKind::Video;
            }
            self.dropped = self.dropped.saturating_add(1);
            return false;
        };
        let config_epoch = known.epoch;
        self.rates.add(now, track, payload.len());
        self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
        let unit = AccessUnit { track, dts, pts: dts, key_frame: frame.key_frame, config_epoch, payload };
        self.tell_rates(now);
        self.units.push_back((unit, Arc::clone(&self.tracks)));
        self.try_start(now);
        true
    }

    /// Returns the index of a frame's source. The first picture with several spatial layers makes the section's track that
    /// of the lowest one, and each other layer has a track of its own.
    fn place_of(&mut self, section: SectionId, layer: u8, of: SpatialLayer) -> Option<usize> {
        let is_it = |one: &Incoming| one.section == section && one.layer == layer;
        let first = self.sections.iter().position(is_it)?;
        let known = self.sections.get_mut(first)?;
        if known.spatial.is_none() && of.top > 0 {
            let group = if known.group == 0 { section.0.saturating_add(1) } else { known.group };
            let id = known.track;
            (known.spatial, known.group) = (Some(0), group);
            self.regroup(id, group);
        }
        let known = self.sections.get(first)?;
        let of_spatial = |one: &Incoming| is_it(one) && one.spatial == Some(of.index);
        if known.spatial.is_none() {
            return Some(first);
        }
        if let Some(at) = self.sections.iter().position(of_spatial) {
            return Some(at);
        }
        let (codec, rate, group) = (known.codec, known.clock.rate(), known.group);
        let config = known.config.clone();
        let is_used = |track: &TrackId| self.sections.iter().any(|one| one.track == *track);
        let track =
            (0..TRACKS_MAX).filter_map(|n| TrackId::nth(codec.kind(), n)).find(|track| !is_used(track))?;
        self.sections.push(Incoming {
            section,
            layer,
            spatial: Some(of.index),
            group,
            heard: None,
            track,
            codec,
            clock: SourceClock::new(rate, Unwrap::new(u32::BITS)),
            needs_key_frame: true,
            config,
        });
        self.sections.len().checked_sub(1)
    }

    /// Makes a track a rendition.
    fn regroup(&mut self, id: TrackId, group: u8) {
        let bit_rate = u32::try_from(self.rates.of(id)).unwrap_or(u32::MAX);
        let Some(size) = self.tracks.get(id).map(|track| track.picture_size().unwrap_or_default()) else {
            return;
        };
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        if let Some(track) = tracks.get_mut(id) {
            let (width, height) = size;
            track.rendition = Some(Rendition { group, width, height, bit_rate });
        }
    }

    /// Removes layers of a section that the publisher no longer sends. A publisher that pauses pauses all layers of the
    /// section, so at most half of a layer's time passes during a pause: after it, each layer has the other half to
    /// return.
    fn drop_silent_layers(&mut self, now: Instant, section: SectionId) {
        let silence = |one: &Incoming| if one.spatial.is_some() { SPATIAL_SILENCE } else { LAYER_SILENCE };
        let of_section = |one: &Incoming| one.section == section && one.group != 0;
        let newest = self.sections.iter().filter(|one| of_section(one)).filter_map(|one| one.heard).max();
        let pause = newest.map_or(Duration::ZERO, |newest| now.saturating_duration_since(newest));
        for one in self.sections.iter_mut().filter(|one| of_section(one)) {
            let excess = pause.saturating_sub(silence(one) / 2);
            one.heard = one.heard.and_then(|heard| heard.checked_add(excess));
        }
        self.drop_layers(|one| {
            let is_silent = |heard| now.saturating_duration_since(heard) >= silence(one);
            one.section == section && one.heard.is_some_and(is_silent)
        });
    }

    /// Removes spatial layers that a key picture no longer has.
    fn drop_upper_layers(&mut self, (section, layer): (SectionId, u8), top: u8) {
        self.drop_layers(|one| {
            let is_it = one.section == section && one.layer == layer && one.heard.is_some();
            is_it && one.spatial.is_some_and(|spatial| spatial > top)
        });
    }

    fn drop_layers(&mut self, is_gone: impl Fn(&Incoming) -> bool) {
        for layer in self.sections.iter_mut().filter(|one| one.group != 0 && is_gone(one)) {
            (layer.heard, layer.needs_key_frame) = (None, true);
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.epoch = tracks.epoch.wrapping_add(1);
            tracks.retain(|track| track.id != layer.track);
        }
    }

    /// Updates the announced rate of each rendition whose rate has changed by a quarter.
    fn tell_rates(&mut self, now: Instant) {
        let is_soon = |at: Instant| now.saturating_duration_since(at) < RATE_INTERVAL;
        if self.rated.is_some_and(is_soon) || self.sections.iter().all(|one| one.group == 0) {
            return;
        }
        self.rated = Some(now);
        for one in self.sections.iter().filter(|one| one.group != 0) {
            let measured = u32::try_from(self.rates.of(one.track)).unwrap_or(u32::MAX);
            let told = |track: &Track| track.rendition.as_ref().map(|rendition| rendition.bit_rate);
            let Some(told) = self.tracks.get(one.track).and_then(told) else { continue };
            if measured > 0 && measured.abs_diff(told) > told / 4 {
                let tracks = Arc::make_mut(&mut self.tracks);
                tracks.epoch = tracks.epoch.wrapping_add(1);
                if let Some(rendition) = tracks.get_mut(one.track).and_then(|track| track.rendition.as_mut())
                {
                    rendition.bit_rate = measured;
                }
            }
        }
    }

    /// Handles a loss in a section. Video of the section cannot be decoded until the next key frame.
    pub(super) fn lost(&mut self, section: SectionId, layer: u8) {
        let is_it = |one: &&mut Incoming| one.section == section && one.layer == layer;
        for incoming in self.sections.iter_mut().filter(is_it) {
            incoming.needs_key_frame = incoming.codec.kind() == TrackKind::Video;
        }
    }

    /// Describes the stream's tracks.
    pub(super) fn info(&self) -> Vec<TrackInfo> {
        self.rates.info(&self.tracks)
    }

    /// Returns the section and layer of a track.
    pub(super) fn source_of(&self, track: TrackId) -> Option<(SectionId, u8)> {
        self.sections.iter().find(|one| one.track == track).map(|one| (one.section, one.layer))
    }

    /// Returns the time at which the first units stop waiting, or by which the first frame must arrive.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.starting && !self.units.is_empty();
        waits.then(|| self.began.checked_add(START_WAIT)).flatten().or(self.first_by)
    }

    /// Ends the wait of the first units, if they have waited long enough or all sections have a track.
    pub(super) fn try_start(&mut self, now: Instant) {
        // One layer of each section is enough: a publisher sends larger layers only once its path carries them.
        let has_track = |section| {
            let mut of_section = self.sections.iter().filter(|one| one.section == section);
            of_section.any(|one| self.tracks.get(one.track).is_some())
        };
        let is_known = self.sections.iter().all(|one| has_track(one.section));
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

    /// Returns the next unit with its tracks.
    pub(super) fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        if self.starting { None } else { self.units.pop_front() }
    }

    /// Returns the next change of the publisher's clocks that has not been reported yet.
    pub(super) fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.timeline.take_clock_news()
    }

    /// Takes the number of frames that could not be used since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Sets the configuration of a track. A different one begins a new epoch.
    fn configure(&mut self, id: TrackId, config: CodecConfig) {
        if self.tracks.get(id).is_some_and(|track| track.config == config) {
            return;
        }
        let group = self.group_of(id);
        let (width, height) = config.picture_size().unwrap_or_default();
        let bit_rate = u32::try_from(self.rates.of(id)).unwrap_or(u32::MAX);
        let rendition = (group != 0).then_some(Rendition { group, width, height, bit_rate });
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        tracks.put(Track { epoch, rendition, ..Track::new(id, config, TICKS) });
    }

    /// Records the frame size of a track whose configuration lacks it. Decoders need not be notified.
    fn resize(&mut self, id: TrackId, (width, height): (u32, u32)) {
        let group = self.group_of(id);
        let is_known = |track: &Track| {
            let told = track.rendition.as_ref().map(|rendition| (rendition.width, rendition.height));
            if group == 0 {
                track.picture_size() == Some((width, height))
            } else {
                told == Some((width, height))
            }
        };
        if self.tracks.get(id).is_none_or(is_known) {
            return;
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        if let Some(track) = tracks.get_mut(id) {
            let bit_rate = track.rendition.as_ref().map_or(0, |rendition| rendition.bit_rate);
            track.rendition = Some(Rendition { group, width, height, bit_rate });
        }
    }

    fn group_of(&self, id: TrackId) -> u8 {
        self.sections.iter().find(|one| one.track == id).map_or(0, |one| one.group)
    }
}
