//! Formats: in which form, and with which tracks, a subscriber is sent a stream.

use std::sync::Arc;

use media::{Codec, Origin, Track, TrackId, TrackKind, Tracks};

use crate::config::AppSettings;
use crate::hub::{Chosen, Fit, FormatKey, Package, Pick, Selection};

/// A kind of format: what its protocol says of it once.
#[derive(Debug)]
pub struct FormatKind {
    /// The name in metrics and hooks.
    pub name: &'static str,
    /// The record's count of its viewers; `None`: the one of all that have none of their own.
    pub counted_as: Option<&'static str>,
    /// Whether an application lets viewers play it.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// Makes the package of a variant. `None`: the sessions take units as they are.
    pub package: fn(u64) -> Option<Box<dyn Package>>,
    /// A viewer that closes its side of the connection gives up what it asked for. (An HTTP client may do so and read on.)
    pub is_given_up_by_close: bool,
    /// Other nodes are sent it, which have proved to be of the cluster: nothing is checked, and they are no viewers.
    pub is_for_nodes: bool,
}

/// A format that subscribers of one protocol share; see [`crate::hub::Package`].
#[derive(Debug, Clone, Copy)]
pub struct Format {
    kind: &'static FormatKind,
    variant: u64,
    selection: Selection,
}

impl Format {
    /// The default tracks in a variant of a kind.
    #[must_use]
    pub const fn new(kind: &'static FormatKind, variant: u64) -> Self {
        Self { kind, variant, selection: Selection::DEFAULT }
    }

    /// The format with another selection of tracks; silence stays.
    #[must_use]
    pub const fn select(self, selection: Selection) -> Self {
        let silence = self.selection.silence || selection.silence;
        Self { selection: Selection { silence, ..selection }, ..self }
    }

    /// The format with silence where the stream has no audio, if that is offered.
    #[must_use]
    pub(super) const fn with_silence(mut self) -> Self {
        self.selection.silence = true;
        self
    }

    /// The kind of format, as its protocol defines it.
    #[must_use]
    pub const fn kind(self) -> &'static FormatKind {
        self.kind
    }

    /// The key by which the hub finds it.
    #[must_use]
    pub const fn key(self) -> FormatKey {
        FormatKey { name: self.kind.name, variant: self.variant, selection: self.selection }
    }

    /// Makes the package for the first subscriber.
    #[must_use]
    pub fn package(self) -> Option<Box<dyn Package>> {
        (self.kind.package)(self.variant)
    }

    /// The codecs of the published tracks that it cannot carry.
    #[must_use]
    pub fn left_out(self, tracks: &Tracks) -> Vec<Codec> {
        let Some(package) = self.package() else { return Vec::new() };
        let published = tracks.iter().filter(|track| track.origin == Origin::Published);
        published.filter(|track| package.fit(track) == Fit::No).map(|track| track.config.codec()).collect()
    }

    /// The tracks of a stream that its subscribers are sent.
    #[must_use]
    pub fn choose(self, tracks: &Tracks) -> Chosen {
        let package = self.package();
        let fit = |track: &Track| package.as_ref().map_or(Fit::Well, |package| package.fit(track));
        let mut chosen = Chosen::default();
        chosen.update(self.selection, &Arc::new(tracks.clone()), &fit);
        chosen
    }
}

/// The tracks that a viewer asks for by parameters of its URL: `tracks=all`, or `video=` and `audio=` with the number of
/// a track, `all` or `none`. `None`: it asks for none in particular.
#[must_use]
pub fn asked_selection(params: &[(String, String)]) -> Option<Selection> {
    let mut selection = None;
    for (name, value) in params {
        let pick = |kind| match value.as_str() {
            "all" => Some(Pick::All),
            "none" => Some(Pick::None),
            number => Some(Pick::Only(TrackId::nth(kind, number.parse().ok()?)?)),
        };
        let so_far = selection.unwrap_or(Selection::DEFAULT);
        let asked = match name.as_str() {
            "tracks" if value == "all" => Some(Selection::ALL),
            "video" => pick(TrackKind::Video).map(|video| Selection { video, ..so_far }),
            "audio" => pick(TrackKind::Audio).map(|audio| Selection { audio, ..so_far }),
            _ => None,
        };
        selection = asked.or(selection);
    }
    selection
}
