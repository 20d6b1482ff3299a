//! Frames of a publisher to access units.
//!
//! **Times.** Each section counts on a clock of its own, from anywhere. A section's first frame is put where it arrived;
//! the publisher's reports then tell how the sections lie to each other, and a section that lies elsewhere is moved
//! there little by little, so that lips come into step without a leap.
//!
//! **Beginning.** Units wait until each section is known, at most [`START_WAIT`], so that the stream's first viewers hear of
//! all tracks. What cannot be decoded (video before a key frame, and behind a loss until the next one) is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Section, SectionId};
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timeline, Timescale, Track, TrackId, TrackKind, Tracks, Unwrap};
use rtp::NtpTime;
use rtp::payload::{Frame, codec_of_description};

use super::configs;
use super::info::{Rates, TrackInfo};
use crate::mail::Grant;

/// Ticks of all tracks; every RTP clock rate in use divides it or is divided by it.
const TICKS: Timescale = Timescale::new(90_000);
/// Bits of the clock that the timeline is given.
const CLOCK_BITS: u32 = 33;
/// How long the first units wait for the other sections.
const START_WAIT: Duration = Duration::from_secs(2);
/// Units and bytes that wait for them at most.
const START_UNITS_MAX: usize = 512;
const START_BYTES_MAX: usize = 4 << 20;
/// How far a frame moves its section towards where the publisher's reports have it: an eighth of the way, 10 ms at most.
const SLEW_SHARE: i64 = 8;
const SLEW_MAX: i64 = 900;
/// Farther behind it is moved there at once: 500 ms.
const STEP: i64 = 45_000;

/// A section that is received.
#[derive(Debug)]
struct Incoming {
    section: SectionId,
    track: TrackId,
    codec: Codec,
    rate: Timescale,
    unwrap: Unwrap,
    /// Added to its own time, in ticks; `None` before the first frame.
    offset: Option<i64>,
    /// Nothing is decoded before the next key frame.
    needs_key_frame: bool,
    /// Its first format tells all there is to know.
    config: Option<CodecConfig>,
}

/// The state of one publisher.
#[derive(Debug)]
pub(super) struct Ingest {
    sections: Vec<Incoming>,
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// The zero of the sections' common time.
    began: Instant,
    /// A moment on the publisher's wall clock, and where it lies.
    anchor: Option<(NtpTime, i64)>,
    starting: bool,
    units: VecDeque<(AccessUnit, Arc<Tracks>)>,
    waiting_bytes: usize,
    dropped: u64,
    rates: Rates,
}

impl Ingest {
    /// Continues the stream at the position of the grant.
    pub(super) fn new(now: Instant, grant: &Grant, sections: &[Section]) -> Self {
        let mut next = [0u8; 2];
        let incoming = sections.iter().filter(|section| section.direction.receives()).filter_map(|section| {
            let format = section.formats.first()?;
            let codec = codec_of_description(&format.remote)?;
            let n = next.get_mut(usize::from(codec.kind() == TrackKind::Audio))?;
            let track = TrackId::nth(codec.kind(), *n)?;
            *n += 1;
            Some(Incoming {
                section: section.id,
                track,
                codec,
                rate: Timescale::new(format.local.rtpmap.clock_rate),
                unwrap: Unwrap::new(u32::BITS),
                offset: None,
                needs_key_frame: codec.kind() == TrackKind::Video,
                config: configs::known_before(codec, &format.remote),
            })
        });
        Self {
            sections: incoming.collect(),
            timeline: Timeline::new(CLOCK_BITS, TICKS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            began: now,
            anchor: None,
            starting: true,
            units: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            rates: Rates::default(),
        }
    }

    /// A whole frame of a section.
    pub(super) fn frame(&mut self, now: Instant, section: SectionId, frame: Frame, sampled: Option<NtpTime>) {
        let Some(at) = self.sections.iter().position(|one| one.section == section) else { return };
        if self.sections.iter().all(|one| one.offset.is_none()) {
            // Until the first frame ICE and DTLS had their time.
            self.began = now;
        }
        let Some(incoming) = self.sections.get_mut(at) else { return };
        let ticks = place(incoming, (self.began, now), &mut self.anchor, frame.timestamp, sampled);
        if incoming.needs_key_frame && !frame.key_frame {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let (track, codec) = (incoming.track, incoming.codec);
        let mut payload = frame.payload;
        let mut config = incoming.config.take();
        if frame.key_frame {
            let (own, rest) = configs::of_key_frame(codec, &payload);
            config = own.or(config);
            payload = rest;
        }
        incoming.needs_key_frame = false;
        if let Some(config) = config {
            self.configure(track, config);
        }
        let Some(known) = self.tracks.get(track).filter(|_| !payload.is_empty()) else {
            // A key frame without parameter sets, and none came before.
            if let Some(incoming) = self.sections.get_mut(at) {
                incoming.needs_key_frame = incoming.codec.kind() == TrackKind::Video;
            }
            self.dropped = self.dropped.saturating_add(1);
            return;
        };
        let config_epoch = known.epoch;
        let dts = self.timeline.map(track, ticks.max(0).unsigned_abs() & ((1 << CLOCK_BITS) - 1));
        self.rates.add(now, track, payload.len());
        self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
        let unit = AccessUnit { track, dts, pts: dts, key_frame: frame.key_frame, config_epoch, payload };
        self.units.push_back((unit, Arc::clone(&self.tracks)));
        self.try_start(now);
    }

    /// Video of a section was lost: until the next key frame nothing can be decoded.
    pub(super) fn lost(&mut self, section: SectionId) {
        if let Some(incoming) = self.sections.iter_mut().find(|one| one.section == section) {
            incoming.needs_key_frame = incoming.codec.kind() == TrackKind::Video;
        }
    }

    /// What the stream is.
    pub(super) fn info(&self) -> Vec<TrackInfo> {
        self.rates.info(&self.tracks)
    }

    /// The section of a track.
    pub(super) fn section_of(&self, track: TrackId) -> Option<SectionId> {
        self.sections.iter().find(|one| one.track == track).map(|one| one.section)
    }

    /// When the first units wait no longer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.starting && !self.units.is_empty()).then(|| self.began.checked_add(START_WAIT)).flatten()
    }

    /// Looks whether the first units have waited long enough.
    pub(super) fn try_start(&mut self, now: Instant) {
        let is_known = self.sections.iter().all(|one| self.tracks.get(one.track).is_some());
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

    /// The next unit, and the tracks that decode it.
    pub(super) fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        if self.starting { None } else { self.units.pop_front() }
    }

    /// Frames that could not be used, since this was asked before.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Makes this the configuration of the track. One that differs begins an epoch of it.
    fn configure(&mut self, id: TrackId, config: CodecConfig) {
        if self.tracks.get(id).is_some_and(|track| track.config == config) {
            return;
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        tracks.put(Track { epoch, ..Track::new(id, config, TICKS) });
    }
}

/// Where a frame lies on the common time, in ticks.
fn place(
    incoming: &mut Incoming,
    (began, now): (Instant, Instant),
    anchor: &mut Option<(NtpTime, i64)>,
    timestamp: u32,
    sampled: Option<NtpTime>,
) -> i64 {
    let own = incoming.rate.convert(incoming.unwrap.unwrap(timestamp.into()), TICKS);
    let arrived = ticks(now.saturating_duration_since(began));
    let offset = incoming.offset.get_or_insert_with(|| arrived.saturating_sub(own));
    let at = own.saturating_add(*offset);
    let Some(sampled) = sampled else { return at };
    let (base, base_at) = *anchor.get_or_insert((sampled, at));
    let Some(wanted) = distance(base, sampled).and_then(|distance| base_at.checked_add(distance)) else {
        return at;
    };
    let error = wanted.saturating_sub(at);
    // Times do not run backwards: what is too late by far is moved over many frames, what is too early at once.
    let step = if error > STEP { error } else { (error / SLEW_SHARE).clamp(-SLEW_MAX, SLEW_MAX) };
    *offset = offset.saturating_add(step);
    own.saturating_add(*offset)
}

fn ticks(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos() * 9 / 100_000).unwrap_or(i64::MAX)
}

/// From one time to another, in ticks.
fn distance(from: NtpTime, to: NtpTime) -> Option<i64> {
    let ahead = to.since(from).map(ticks);
    ahead.or_else(|| from.since(to).map(|back| ticks(back).saturating_neg()))
}
