//! Derived tracks, which this server makes from published ones while a subscriber selects them. Each derivation is
//! declared in the entry of its protocol ([`super::registry`]).
//!
//! 1. A derivation offers a track for each published one that it can be made from. The offers are part of the
//!    stream's track list.
//! 2. A subscriber whose format can carry none of the published tracks of a kind is given the first offer that it can
//!    carry ([`crate::hub::Pick::Default`]).
//! 3. The first such subscriber makes the worker of the publisher create the producer: a session that subscribes to
//!    the published track, has heavy work done as a job, and publishes the units of the derived track.
//! 4. When the last such subscriber leaves, the producer stops after a short linger.

use std::fmt;
use std::sync::Arc;

use crypto::Seed;
use media::{Origin, Track, TrackId, Tracks};

use super::{Format, Session, registry};
use crate::config::{AppSettings, ServerSettings};
use crate::types::Now;

/// A way to make one track from another.
pub struct Derivation {
    /// The name, for logs.
    pub name: &'static str,
    /// Maximum number of tracks of this derivation that are made at the same time, on a machine with this number of
    /// cores. All derivations with a limit share the largest limit. `None` if the work costs almost nothing.
    pub limit: Option<fn(&ServerSettings, usize) -> usize>,
    /// Returns true if viewers get the track when the stream has none of its kind; otherwise only push targets do.
    pub stands_in: fn(&AppSettings) -> bool,
    /// Returns the track to make from a published one: codec, parameter sets, clock and description. The caller sets
    /// the id, and the origin if it is [`Origin::Published`]. `None` if the derivation does not apply to the track, or
    /// is disabled in the application.
    pub offer: fn(&Tracks, &Track, &AppSettings) -> Option<Track>,
    /// Creates the producer of an offered track. It has one subscription ([`super::SubscriptionEvent::Attach`]) to the
    /// published track, and one publication, whose units need no track list.
    pub begin: fn(Now, &Track, &AppSettings, Seed) -> Box<dyn Session>,
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivation").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the maximum number of costly derived tracks made at a time, on a machine with this number of cores.
#[must_use]
pub fn costly_max(server: &ServerSettings, cores: usize) -> usize {
    let limits = registry::derivations().filter_map(|(_, derivation)| derivation.limit);
    limits.map(|limit| limit(server, cores)).max().unwrap_or(0)
}

/// Returns the format for viewers of an application, with silence if the application wants that.
#[must_use]
pub fn for_viewers(format: Format, settings: &AppSettings) -> Format {
    let stands_in = registry::derivations().any(|(_, derivation)| (derivation.stands_in)(settings));
    if stands_in { format.with_silence() } else { format }
}

/// Returns the published tracks and those that can be derived from them; `published` itself if none can be derived.
#[must_use]
pub fn with_offers(published: &Arc<Tracks>, settings: &AppSettings) -> Arc<Tracks> {
    let mut tracks = None::<Tracks>;
    for from in published.iter() {
        for (number, derivation) in registry::derivations() {
            let Some(id) = id_of(from, number) else { continue };
            let Some(offer) = (derivation.offer)(published, from, settings) else { continue };
            let origin = if offer.is_stand_in() { offer.origin } else { Origin::Derived { from: from.id } };
            // The derived track gets the epoch of the published one, because a new configuration of the published track
            // also gives the derived track a new configuration.
            let track = Track { id, origin, epoch: from.epoch, ..offer };
            tracks.get_or_insert_with(|| Tracks::clone(published)).put(track);
        }
    }
    tracks.map_or_else(|| Arc::clone(published), Arc::new)
}

/// Returns the id of the track that derivation `number` makes from a track. The id is fixed for the life of the
/// stream. A video and an audio track with the same index give the same id, but no derivation applies to both.
fn id_of(from: &Track, number: u8) -> Option<TrackId> {
    let count = u8::try_from(registry::derivations().count()).ok()?;
    TrackId::derived(from.id.index().checked_mul(count)?.checked_add(number)?)
}

/// Returns the derivation that makes a derived track of this stream.
#[must_use]
pub fn find(tracks: &Tracks, id: TrackId) -> Option<&'static Derivation> {
    let track = tracks.get(id)?;
    let from = tracks.get(track.origin.from()?)?;
    let (_, derivation) = registry::derivations().find(|(number, _)| id_of(from, *number) == Some(id))?;
    Some(derivation)
}

#[cfg(test)]
mod tests {
    use media::codec::g711;
    use media::{CodecConfig, TRACKS_MAX, Timescale, TrackKind};

    use super::*;

    #[test]
    fn every_audio_track_of_a_stream_is_offered_transcoded() {
        let settings = AppSettings::of(crate::protocol::schema(), "a", &[]).unwrap();
        let config = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
        let track = |n| {
            let id = TrackId::nth(TrackKind::Audio, n).unwrap();
            Track::new(id, config.clone(), Timescale::MILLISECONDS)
        };
        let count = u8::try_from(TRACKS_MAX).unwrap();
        let published = Arc::new(Tracks::new(1, (0..count).map(track)));
        let tracks = with_offers(&published, &settings);
        for from in published.iter() {
            let is_of = |track: &&Track| track.origin == Origin::Derived { from: from.id };
            let derived: Vec<_> = tracks.iter().filter(is_of).collect();
            assert!(derived.iter().any(|track| track.config.codec() == media::Codec::Opus), "{:?}", from.id);
            assert!(derived.iter().all(|track| find(&tracks, track.id).is_some()));
        }
    }
}
