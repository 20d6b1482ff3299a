//! Derived tracks: made by this server from a published one, while somebody selects them. Each kind is a folder and a row
//! here.
//!
//! 1. A row offers a track for each published one that it can be made from. The offers stand in the stream's track list.
//! 2. A subscriber whose format can carry none of the published tracks of a kind is given the first offer that it can carry
//!    ([`crate::hub::Pick::Default`]).
//! 3. The first such subscriber makes the worker of the publisher create the producer: a session that subscribes to the
//!    published track, has heavy work done as a job, and publishes the units of the derived track.
//! 4. The last one's end stops it, after a short linger.

use std::fmt;
use std::sync::Arc;

use crypto::Seed;
use media::{Origin, Track, TrackId, Tracks};

use super::Session;
use crate::config::AppSettings;
use crate::types::Now;

/// A way to make one track of another.
pub struct Derivation {
    /// The name, for logs.
    pub name: &'static str,
    /// The track that it makes of a published one: codec, parameter sets, clock and description; id and origin are set by
    /// who asks. `None`: not of this one, or the application does not want it.
    pub offer: fn(&Track, &AppSettings) -> Option<Track>,
    /// Creates the producer of an offered track. It has one subscription ([`super::Event::Attach`]) to the published track and
    /// one publication, whose units need no track list.
    pub begin: fn(Now, &Track, Seed) -> Box<dyn Session>,
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivation").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The derivations of this build.
static DERIVATIONS: &[&Derivation] = &[
    #[cfg(test)]
    &super::samples::g711_law::DERIVATION,
];

/// Adds what can be derived of the published tracks. The value itself when nothing can.
#[must_use]
pub fn with_offers(published: &Arc<Tracks>, settings: &AppSettings) -> Arc<Tracks> {
    let offers = published.iter().flat_map(|track| {
        DERIVATIONS.iter().filter_map(move |derivation| Some((track, (derivation.offer)(track, settings)?)))
    });
    let mut tracks = None::<Tracks>;
    for (number, (from, offer)) in (0..).zip(offers) {
        let Some(id) = TrackId::derived(number) else { break };
        let origin = Origin::Derived { from: from.id };
        // A new configuration of the published track is one of the derived track, too.
        let track = Track { id, origin, epoch: from.epoch, ..offer };
        tracks.get_or_insert_with(|| Tracks::clone(published)).put(track);
    }
    tracks.map_or_else(|| Arc::clone(published), Arc::new)
}

/// The derivation that makes a derived track of this stream.
#[must_use]
pub fn find(tracks: &Tracks, id: TrackId, settings: &AppSettings) -> Option<&'static Derivation> {
    let track = tracks.get(id)?;
    let Origin::Derived { from } = track.origin else { return None };
    let from = tracks.get(from)?;
    let makes = |derivation: &&&'static Derivation| {
        (derivation.offer)(from, settings).is_some_and(|offer| offer.config == track.config)
    };
    DERIVATIONS.iter().find(makes).copied()
}
