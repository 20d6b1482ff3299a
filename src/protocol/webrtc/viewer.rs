//! What a WebRTC viewer is sent: which section carries which track, and how it begins.
//!
//! A viewer begins with the newest key frame, which may be seconds old. That backlog is squeezed into [`SQUEEZED`] of its
//! clock: it is decoded as it comes, and from the live edge on the viewer is on time. Audio begins at the edge.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Peer, Section, SectionId};
use media::codec::Codec;
use media::{Track, TrackId, TrackKind, Tracks};
use rtp::payload::codec_of_description;

use super::info::{Rates, TrackInfo};
use super::package::{RtcPackage, clock_of};
use super::patience::Patience;
use crate::hub::Delivery;
use crate::types::StreamKey;

/// What a backlog takes of a viewer's clock.
const SQUEEZED: Duration = Duration::from_millis(200);

/// A section and what it carries.
#[derive(Debug)]
struct Output {
    section: SectionId,
    track: TrackId,
    codec: Codec,
    /// It was sent its first unit.
    begun: bool,
}

/// The state of a viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    outputs: Vec<Output>,
    /// A time of the stream in milliseconds, and when it is said to have been sampled.
    clock: Option<(i64, Instant)>,
    rates: Rates,
    patience: Patience,
    /// The tracks of what was sent last.
    tracks: Arc<Tracks>,
}

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was sent, or is none of the viewer's.
    Done,
    /// Its track has another codec now: this session cannot go on.
    OtherCodec,
}

impl Viewer {
    /// The sections that were agreed on, and the tracks that they were agreed on for.
    pub(super) fn new(sections: &[Section], tracks: &Arc<Tracks>) -> Self {
        let mut outputs: Vec<Output> = Vec::new();
        for section in sections.iter().filter(|section| section.direction.sends()) {
            let codec = section.formats.first().and_then(|format| codec_of_description(&format.remote));
            let Some(codec) = codec else { continue };
            let is_free = |track: &&Track| outputs.iter().all(|output| output.track != track.id);
            let mut found = tracks.iter().filter(|track| track.config.codec() == codec);
            if let Some(track) = found.find(is_free) {
                outputs.push(Output { section: section.id, track: track.id, codec, begun: false });
            }
        }
        Self {
            outputs,
            clock: None,
            rates: Rates::default(),
            patience: Patience::default(),
            tracks: Arc::clone(tracks),
        }
    }

    /// The track of a section.
    pub(super) fn track_of(&self, section: SectionId) -> Option<TrackId> {
        self.outputs.iter().find(|output| output.section == section).map(|output| output.track)
    }

    /// The peer cannot go on without a key frame: the track of which one is asked for, unless it has asked too often.
    pub(super) fn key_frame_wanted(&mut self, now: Instant, section: SectionId) -> Option<TrackId> {
        self.track_of(section).filter(|_| self.patience.hears(now))
    }

    /// What the stream is.
    pub(super) fn info(&self) -> Vec<TrackInfo> {
        self.rates.info(&self.tracks)
    }

    /// Has a unit sent.
    pub(super) fn send(
        &mut self,
        now: Instant,
        peer: &mut Peer,
        delivery: &Delivery<'_>,
        key: &StreamKey,
    ) -> Outcome {
        let Some(package) = delivery.shared.and_then(|shared| shared.downcast_ref::<RtcPackage>()) else {
            return Outcome::Done;
        };
        if let Some(pictures) = package.take_news() {
            tracing::info!(%key, pictures, "B-frames are not sent to WebRTC viewers");
        }
        let entry = delivery.entry;
        let Some(output) = self.outputs.iter_mut().find(|output| output.track == entry.unit.track) else {
            return Outcome::Done;
        };
        let Some((codec, edge)) = package.edge(output.track) else { return Outcome::Done };
        if codec != output.codec {
            return Outcome::OtherCodec;
        }
        let Some(unit) = delivery.parts().find_map(|parts| package.sent(parts)) else { return Outcome::Done };
        let squeezed = ticks(codec, SQUEEZED);
        let behind = edge.wrapping_sub(unit.timestamp());
        if !output.begun {
            if codec.kind() == TrackKind::Audio && behind > squeezed && behind < u32::MAX / 2 {
                return Outcome::Done;
            }
            output.begun = true;
            peer.begin_behind(output.section, edge, behind, squeezed);
        }
        self.rates.add(now, output.track, entry.unit.payload.len());
        if !Arc::ptr_eq(&self.tracks, &entry.tracks) {
            self.tracks = Arc::clone(&entry.tracks);
        }
        let ms = entry
            .tracks
            .get(output.track)
            .map_or(entry.dts_ms, |track| track.timescale.to_ms(entry.unit.pts));
        let (base, sampled) = *self.clock.get_or_insert((ms, now));
        peer.send(output.section, unit, moved(sampled, ms.saturating_sub(base)));
        Outcome::Done
    }
}

fn ticks(codec: Codec, duration: Duration) -> u32 {
    let per_second = u128::from(clock_of(codec).ticks());
    u32::try_from(duration.as_millis() * per_second / 1000).unwrap_or(u32::MAX)
}

/// A moment moved by milliseconds.
fn moved(at: Instant, ms: i64) -> Instant {
    let by = Duration::from_millis(ms.unsigned_abs());
    let moved = if ms < 0 { at.checked_sub(by) } else { at.checked_add(by) };
    moved.unwrap_or(at)
}
