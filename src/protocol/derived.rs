//! Derived tracks: made by this server from a published one, while somebody selects them. Each kind stands in the
//! row of its folder ([`super::registry`]).
//!
//! 1. A derivation offers a track for each published one that it can be made from. The offers stand in the stream's track list.
//! 2. A subscriber whose format can carry none of the published tracks of a kind is given the first offer that it can carry
//!    ([`crate::hub::Pick::Default`]).
//! 3. The first such subscriber makes the worker of the publisher create the producer: a session that subscribes to the
//!    published track, has heavy work done as a job, and publishes the units of the derived track.
//! 4. The last one's end stops it, after a short linger.

use std::fmt;
use std::sync::Arc;

use crypto::Seed;
use media::{Origin, Track, TrackId, Tracks};

use super::{Format, Session, registry};
use crate::config::{AppSettings, ServerSettings};
use crate::types::Now;

/// A way to make one track of another.
pub struct Derivation {
    /// The name, for logs.
    pub name: &'static str,
    /// The number that may be made at a time on a machine of so many cores, where the work takes a share of a core; all such derivations
    /// share the largest of these limits. `None`: it costs nearly nothing.
    pub limit: Option<fn(&ServerSettings, usize) -> usize>,
    /// Whether viewers get it where the stream has nothing of its kind, and not push targets alone.
    pub stands_in: fn(&AppSettings) -> bool,
    /// The track that it makes of a published one of these: codec, parameter sets, clock and description; the id is set by who
    /// asks, and the origin when it is [`Origin::Published`]. `None`: not of this one, or the application does not want it.
    pub offer: fn(&Tracks, &Track, &AppSettings) -> Option<Track>,
    /// Creates the producer of an offered track. It has one subscription ([`super::SubscriptionEvent::Attach`]) to the published track and
    /// one publication, whose units need no track list.
    pub begin: fn(Now, &Track, &AppSettings, Seed) -> Box<dyn Session>,
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivation").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The number of costly derived tracks that may be made at a time, on a machine of so many cores.
#[must_use]
pub fn costly_max(server: &ServerSettings, cores: usize) -> usize {
    let limits = registry::derivations().filter_map(|(_, derivation)| derivation.limit);
    limits.map(|limit| limit(server, cores)).max().unwrap_or(0)
}

/// The format as a viewer of an application is sent it: with silence, where the application wants that.
#[must_use]
pub fn for_viewers(format: Format, settings: &AppSettings) -> Format {
    let stands_in = registry::derivations().any(|(_, derivation)| (derivation.stands_in)(settings));
    if stands_in { format.with_silence() } else { format }
}

/// Adds what can be derived of the published tracks. The value itself when nothing can.
#[must_use]
pub fn with_offers(published: &Arc<Tracks>, settings: &AppSettings) -> Arc<Tracks> {
    let mut tracks = None::<Tracks>;
    for from in published.iter() {
        for (number, derivation) in registry::derivations() {
            let Some(id) = id_of(from, number) else { continue };
            let Some(offer) = (derivation.offer)(published, from, settings) else { continue };
            let origin = if offer.is_stand_in() { offer.origin } else { Origin::Derived { from: from.id } };
            // A new configuration of the published track is one of the derived track, too.
            let track = Track { id, origin, epoch: from.epoch, ..offer };
            tracks.get_or_insert_with(|| Tracks::clone(published)).put(track);
        }
    }
    tracks.map_or_else(|| Arc::clone(published), Arc::new)
}

/// The id of what the derivation of this number makes of a track: the same as long as the stream lives, whatever else comes and
/// goes. The tracks of one index share their ids, since no derivation takes video and audio.
fn id_of(from: &Track, number: u8) -> Option<TrackId> {
    let count = u8::try_from(registry::derivations().count()).ok()?;
    TrackId::derived(from.id.index().checked_mul(count)?.checked_add(number)?)
}

/// The derivation that makes a derived track of this stream.
#[must_use]
pub fn find(tracks: &Tracks, id: TrackId) -> Option<&'static Derivation> {
    let track = tracks.get(id)?;
    let from = tracks.get(track.origin.from()?)?;
    let (_, derivation) = registry::derivations().find(|(number, _)| id_of(from, *number) == Some(id))?;
    Some(derivation)
}
