//! The sections of a WebRTC viewer: their tracks, and how a viewer begins.
//!
//! A viewer begins with the newest key frame, which may be seconds old. The timestamps of this backlog follow the
//! time of sending ([`Peer::begin_behind`]), so that it is shown on arrival; from the live edge on, the viewer is on
//! time. Audio begins at the live edge.
//!
//! A section of a kind that the stream lacks is reserved ([`negotiation::give`]), and assigned once there is a track.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Peer, Section, SectionId};
use media::codec::Codec;
use media::{Track, TrackId, TrackKind, Tracks};
use smallvec::SmallVec;

use super::info::{Bitrates, Rates, TrackInfo};
use super::layers::{Forced, Layers, PathState, Step};
use super::negotiation;
use super::pace::Pace;
use super::package::clock_of;
use super::patience::Patience;
use super::playout;
use crate::hub::{Delivery, Entry, Pick, Selection};
use crate::protocol::thinning::{Load, Picture, Thinning};
use crate::types::StreamKey;

/// Interval of reports to a page about the rate that it is sent and the rate of its path.
const BITRATES_INTERVAL: Duration = Duration::from_secs(3);

/// A viewer who begins is not sent audio that is older than this.
const SOUND_BEHIND_MAX: Duration = Duration::from_millis(200);

/// A section and the track that it carries.
#[derive(Debug)]
struct Output {
    section: SectionId,
    track: TrackId,
    codec: Codec,
    /// True if the first unit was sent.
    begun: bool,
    /// Stream time of the last unit sent, in milliseconds.
    newest_ms: i64,
    /// Stream time of the last unit that an earlier subscription sent, in milliseconds. Units up to this time are not
    /// sent again.
    floor_ms: i64,
}

/// A rendition of a viewer's video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layer {
    /// Number of the video track.
    pub(super) number: u8,
    /// Width and height; 0 if unknown.
    pub(super) size: (u32, u32),
    /// Bits per second; 0 if unknown.
    pub(super) bit_rate: u32,
    /// True if the viewer is sent this rendition.
    pub(super) is_sent: bool,
}

/// The state of a viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    outputs: Vec<Output>,
    /// The viewer's own sections; empty for all sections of the peer.
    own: SmallVec<[SectionId; 2]>,
    /// True if the sections also carry other streams, one after another.
    has_seats: bool,
    /// A time of the stream in milliseconds, and the instant at which it counts as sampled.
    clock: Option<(i64, Instant)>,
    rates: Rates,
    patience: Patience,
    /// The choice among renditions; `None` if the stream has none.
    layers: Option<Box<Layers>>,
    /// The pace of selections that the client's commands cause.
    pace: Pace,
    /// True if the choice among renditions has just begun, and the hub must be notified of the selection.
    selects: bool,
    thinning: Thinning,
    /// Time of the next report to the page; `None` if the page gets no reports.
    tells_at: Option<Instant>,
    /// Two flags, for video and for audio: true if the viewer wants the kind.
    wants: (bool, bool),
    /// The tracks of the last unit sent.
    tracks: Arc<Tracks>,
}

/// The outcome of sending a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The unit was sent, or is not for this viewer.
    Done,
    /// The unit was sent, and is the first of another rendition, of this height.
    Switched(u32),
    /// The unit was left out, because the path has no room.
    LeftOut,
    /// The track has another codec now, so that this session cannot continue.
    OtherCodec,
}

impl Viewer {
    /// Creates a viewer once its sections are agreed on and the tracks are known.
    pub(super) fn new(now: Instant, peer: &mut Peer, tracks: &Arc<Tracks>) -> Self {
        Self::of_sections(now, peer, tracks, SmallVec::new(), false)
    }

    /// Makes a viewer of one of several streams that share a peer, in these sections; empty for all sections.
    /// `has_seats` is true if the sections also carry other streams, one after another.
    pub(super) fn of_sections(
        now: Instant,
        peer: &mut Peer,
        tracks: &Arc<Tracks>,
        own: SmallVec<[SectionId; 2]>,
        has_seats: bool,
    ) -> Self {
        let mut viewer = Self {
            own,
            has_seats,
            outputs: Vec::new(),
            layers: None,
            selects: false,
            tells_at: None,
            wants: (true, true),
            clock: None,
            thinning: Thinning::default(),
            rates: Rates::default(),
            pace: Pace::default(),
            patience: Patience::default(),
            tracks: Arc::clone(tracks),
        };
        viewer.settle(now, peer);
        viewer
    }

    /// Takes the sections agreed on later, and gives up sections that are no longer this viewer's. Returns false
    /// if no section is new.
    pub(super) fn take_sections(
        &mut self,
        now: Instant,
        peer: &mut Peer,
        tracks: &Arc<Tracks>,
        own: SmallVec<[SectionId; 2]>,
    ) -> bool {
        let has_more = own.iter().any(|section| !self.own.contains(section));
        if self.own != own {
            (self.own, self.tracks) = (own, Arc::clone(tracks));
            self.outputs.retain(|output| self.own.contains(&output.section));
            self.settle(now, peer);
        }
        has_more
    }

    /// Assigns tracks to sections that carry none yet, if the stream has them now.
    fn settle(&mut self, now: Instant, peer: &mut Peer) {
        let tracks = Arc::clone(&self.tracks);
        self.begin_layers(now, &tracks);
        let is_free = |section: &&Section| {
            let is_own = self.own.is_empty() || self.own.contains(&section.id);
            is_own && section.direction.sends() && self.outputs.iter().all(|one| one.section != section.id)
        };
        let found = |section: &Section| Some((section.id, negotiation::carries(section, &tracks)?));
        let found: Vec<_> = peer.sections().iter().filter(is_free).filter_map(found).collect();
        for (section, (track, payload_type)) in found {
            let is_taken = self.outputs.iter().any(|output| output.track == track.id);
            let has_format = match self.has_seats {
                _ if is_taken => false,
                true => peer.occupy(now, section, payload_type),
                false => peer.settle(now, section, payload_type),
            };
            if !has_format {
                continue;
            }
            let (codec, newest_ms, floor_ms) = (track.config.codec(), i64::MIN, i64::MIN);
            let mut output = Output { section, track: track.id, codec, begun: false, newest_ms, floor_ms };
            if let Some(mut layers) = Layers::of(now, &tracks, track.id) {
                output.track = layers.first(&tracks);
                (self.layers, self.selects) = (Some(Box::new(layers)), true);
            }
            self.outputs.push(output);
        }
    }

    /// Begins to choose among renditions if the viewer's video, which had none, has become one: a publisher may begin with
    /// fewer spatial layers.
    fn begin_layers(&mut self, now: Instant, tracks: &Tracks) {
        if self.layers.is_none()
            && let Some(layers) = self.video().and_then(|track| Layers::of(now, tracks, track))
        {
            (self.layers, self.selects) = (Some(Box::new(layers)), true);
        }
    }

    /// Prepares for another subscription to the same stream: units that were already sent are not sent again.
    pub(super) fn resubscribe(&mut self) {
        for output in &mut self.outputs {
            output.floor_ms = output.newest_ms;
        }
    }

    /// True if the viewer is sent no track.
    pub(super) const fn sends_nothing(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Returns the first video track that the viewer is sent.
    pub(super) fn video(&self) -> Option<TrackId> {
        let is_video = |output: &&Output| output.codec.kind() == TrackKind::Video;
        self.outputs.iter().find(is_video).map(|output| output.track)
    }

    /// Returns the track of a section.
    pub(super) fn track_of(&self, section: SectionId) -> Option<TrackId> {
        self.outputs.iter().find(|output| output.section == section).map(|output| output.track)
    }

    /// Handles a key frame request of the peer. Returns the track to request one for, unless the peer asks too often.
    pub(super) fn key_frame_wanted(&mut self, now: Instant, section: SectionId) -> Option<TrackId> {
        self.track_of(section).filter(|_| self.patience.hears(now))
    }

    /// Returns the track to request a key frame for, if pictures were left out and the path is free again.
    pub(super) fn key_frame_due(&mut self, now: Instant, peer: &Peer) -> Option<TrackId> {
        if self.thinning.needs_key(now, load_of(peer, now)) { self.video() } else { None }
    }

    /// Number of pictures for which the path had no room.
    pub(super) const fn left_out(&self) -> u64 {
        self.thinning.left_out()
    }

    /// Sets the kinds of tracks that the viewer wants.
    pub(super) const fn want(&mut self, video: bool, audio: bool) {
        self.wants = (video, audio);
    }

    /// Returns two flags, for video and for audio: true if the viewer wants the kind.
    pub(super) const fn wants(&self) -> (bool, bool) {
        self.wants
    }

    /// Records a command that changes the selection. Returns true if the hub may be notified now; otherwise
    /// [`Viewer::look`] returns true in time.
    pub(super) fn may_select(&mut self, now: Instant) -> bool {
        self.pace.may_change(now)
    }

    /// Sets the height that the viewer wants; `None` to choose by the path.
    pub(super) fn force(&mut self, height: Option<u32>) {
        if let Some(layers) = &mut self.layers {
            layers.force(height.map(Forced::Height));
        }
    }

    /// Sets the rendition that the viewer wants; `None` to choose by the path. Returns false if there is no such track.
    pub(super) fn choose(&mut self, forced: Option<Forced>) -> bool {
        let known = self.layers();
        if let Some(Forced::Track(number)) = forced
            && !known.iter().any(|layer| layer.number == number)
        {
            return false;
        }
        if let Some(layers) = &mut self.layers {
            layers.force(forced);
        }
        !known.is_empty()
    }

    /// Returns the renditions of the viewer's video, smallest first; a video without renditions is one.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let sent = self.video();
        let all = match &self.layers {
            Some(layers) => layers.all(&self.tracks),
            None => sent.and_then(|id| self.tracks.get(id)).into_iter().collect(),
        };
        let layer = |track: &Track| Layer {
            number: track.id.index(),
            size: track.picture_size().unwrap_or_default(),
            bit_rate: track.rendition.as_ref().map_or(0, |rendition| rendition.bit_rate),
            is_sent: Some(track.id) == sent,
        };
        all.into_iter().map(layer).collect()
    }

    /// Returns the section of the viewer's video.
    pub(super) fn video_section(&self) -> Option<SectionId> {
        let is_video = |output: &&Output| output.codec.kind() == TrackKind::Video;
        self.outputs.iter().find(is_video).map(|output| output.section)
    }

    /// Returns the selection of tracks to send. Without renditions the stream's default is used.
    pub(super) fn selection(&self) -> Selection {
        let video = self.layers.as_ref().map_or(Pick::Default, |layers| layers.pick());
        let pick = |wanted, pick| if wanted { pick } else { Pick::None };
        let (wants_video, wants_audio) = self.wants;
        Selection {
            video: pick(wants_video, video),
            audio: pick(wants_audio, Pick::Default),
            ..Selection::DEFAULT
        }
    }

    /// Evaluates the path, of which this viewer may use one of `shares` equal parts. Returns true if the selection has
    /// changed.
    pub(super) fn look(&mut self, now: Instant, peer: &mut Peer, shares: usize) -> bool {
        let is_due = self.pace.poll(now);
        let Some(layers) = &mut self.layers else { return is_due };
        if std::mem::take(&mut self.selects) {
            return true;
        }
        match layers.look(now, &self.tracks, PathState::of(peer, now, shares)) {
            Some(Step::Switch) => true,
            Some(Step::Probe(bits)) => {
                peer.probe(now, bits.saturating_mul(u64::try_from(shares).unwrap_or(1)));
                is_due
            }
            None => is_due,
        }
    }

    /// Returns true, once, after a choice among renditions has begun.
    pub(super) const fn begins_to_choose(&mut self) -> bool {
        std::mem::replace(&mut self.selects, false)
    }

    /// Begins the reports to the page.
    pub(super) fn tell_bitrates(&mut self, now: Instant) {
        self.tells_at = now.checked_add(BITRATES_INTERVAL);
    }

    /// Returns the rates for the page, if due and the path is known.
    pub(super) fn poll_bitrates(&mut self, now: Instant, peer: &Peer) -> Option<Bitrates> {
        self.tells_at.filter(|at| *at <= now)?;
        self.tells_at = now.checked_add(BITRATES_INTERVAL);
        let of = |kind| {
            let outputs = self.outputs.iter().filter(move |output| output.codec.kind() == kind);
            outputs.map(|output| self.rates.of(output.track)).sum()
        };
        Some(Bitrates {
            target: peer.estimate(now)?,
            video: of(TrackKind::Video),
            audio: of(TrackKind::Audio),
        })
    }

    /// Returns the time of the next evaluation or report.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let layers = self.layers.as_ref().map(|layers| layers.poll_timeout());
        [layers, self.tells_at, self.pace.poll_timeout()].into_iter().flatten().min()
    }

    /// Returns the output that carries a unit: the output of the unit's track or, with the flag set, the output of
    /// another rendition of the same picture.
    fn output_of(&mut self, entry: &Entry) -> Option<(&mut Output, bool)> {
        let track = entry.unit.track;
        if let Some(at) = self.outputs.iter().position(|output| output.track == track) {
            return self.outputs.get_mut(at).map(|output| (output, false));
        }
        let layers = self.layers.as_ref().filter(|layers| layers.has(&entry.tracks, track))?;
        let output = self.outputs.iter_mut().find(|output| output.codec == layers.codec())?;
        output.track = track;
        Some((output, true))
    }

    /// Describes the stream's tracks.
    pub(super) fn info(&self) -> Vec<TrackInfo> {
        self.rates.info(&self.tracks)
    }

    /// Sends a unit.
    pub(super) fn send(
        &mut self,
        now: Instant,
        peer: &mut Peer,
        delivery: &Delivery<'_>,
        key: &StreamKey,
    ) -> Outcome {
        let (Some(logs), Some(packets)) = (delivery.logs, delivery.packets()) else { return Outcome::Done };
        if let Some(pictures) = logs.take_left_out() {
            tracing::info!(%key, pictures, "B-frames are not sent to WebRTC viewers");
        }
        let entry = delivery.entry;
        if !Arc::ptr_eq(&self.tracks, &entry.tracks) {
            self.tracks = Arc::clone(&entry.tracks);
            self.settle(now, peer);
        }
        let Some((output, is_other)) = self.output_of(entry) else { return Outcome::Done };
        if entry.dts_ms <= output.floor_ms {
            return Outcome::Done;
        }
        let Some((codec, edge)) = logs.edge(output.track) else { return Outcome::Done };
        if codec != output.codec {
            return Outcome::OtherCodec;
        }
        output.newest_ms = entry.dts_ms;
        let unit = &packets.unit;
        let behind = edge.wrapping_sub(unit.timestamp);
        if is_other && output.begun {
            peer.switch(output.section, unit);
        } else if !output.begun {
            let is_audio = codec.kind() == TrackKind::Audio;
            if is_audio && behind > ticks(codec, SOUND_BEHIND_MAX) && behind < u32::MAX / 2 {
                return Outcome::Done;
            }
            output.begun = true;
            if !is_audio {
                peer.begin_behind(now, output.section, edge);
            }
        }
        let (section, track) = (output.section, output.track);
        if codec.kind() == TrackKind::Video {
            if is_other {
                self.thinning.switch();
            }
            let picture = Picture {
                needs: packets.needs,
                is_key: entry.unit.key_frame,
                bytes: entry.unit.payload.len(),
            };
            if picture.is_key && Thinning::is_full(load_of(peer, now)) {
                let dropped = logs.log(track).map_or(0, |log| peer.drop_unbegun(section, log));
                self.thinning.dropped(now, dropped);
            }
            let passes = self.thinning.passes(now, picture, load_of(peer, now));
            self.thinning.probe(now, load_of(peer, now), |bits| peer.probe(now, bits));
            if !passes {
                return Outcome::LeftOut;
            }
            let requested = peer.requested_playout_delay(section);
            if let Some(delay) = playout::delay_for(self.thinning.is_recent(now), requested) {
                peer.request_playout_delay(section, delay);
            }
        }
        if codec.kind() == TrackKind::Video
            && let Some(layers) = &mut self.layers
        {
            layers.feed(now);
        }
        self.rates.add(now, track, entry.unit.payload.len());
        let of_stream = entry.tracks.get(track);
        let ms = of_stream.map_or(entry.dts_ms, |track| track.timescale.to_ms(entry.unit.pts));
        let (base, sampled) = *self.clock.get_or_insert((ms, now));
        peer.send(section, unit, moved(sampled, ms.saturating_sub(base)));
        let height = of_stream.and_then(|track| Some(track.rendition.as_ref()?.height));
        height.filter(|_| is_other).map_or(Outcome::Done, Outcome::Switched)
    }
}

/// Returns the load on the path of a peer.
fn load_of(peer: &Peer, now: Instant) -> Load {
    Load { queued: peer.queued(now).time, budget: peer.video_budget(now), hint: peer.hint() }
}

fn ticks(codec: Codec, duration: Duration) -> u32 {
    let per_second = u128::from(clock_of(codec).ticks());
    u32::try_from(duration.as_millis() * per_second / 1000).unwrap_or(u32::MAX)
}

/// Returns an instant moved by milliseconds.
fn moved(at: Instant, ms: i64) -> Instant {
    let by = Duration::from_millis(ms.unsigned_abs());
    let moved = if ms < 0 { at.checked_sub(by) } else { at.checked_add(by) };
    moved.unwrap_or(at)
}
