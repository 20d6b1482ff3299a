//! Formats: the form in which a subscriber is sent a stream, and its selection of tracks.

use std::sync::Arc;

use media::{Codec, Origin, Track, TrackId, TrackKind, Tracks};

use crate::config::AppSettings;
use crate::hub::{Chosen, Fit, FormatKey, Package, Pick, Selection};

/// A kind of format, as its protocol declares it.
#[derive(Debug)]
pub struct FormatKind {
    /// The name in metrics and hooks.
    pub name: &'static str,
    /// The name under which the API counts its viewers; `None` to count them with all viewers that have no such name.
    pub counted_as: Option<&'static str>,
    /// Returns true if an application lets viewers play the format.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// The tracks that a viewer gets if it asks for none in particular.
    pub selection: Selection,
    /// Makes the package of a variant; `None` if the sessions take units unpackaged.
    pub package: fn(u64) -> Option<Box<dyn Package>>,
    /// True if a viewer that closes its side of the connection gives up its request. (An HTTP client may close its side
    /// and read on.)
    pub is_given_up_by_close: bool,
    /// True if the format is for other nodes of the cluster. Nodes are authenticated, so their requests to play are not
    /// checked, and they do not count as viewers.
    pub is_for_nodes: bool,
}

/// A format shared by subscribers of one protocol; see [`crate::hub::Package`].
#[derive(Debug, Clone, Copy)]
pub struct Format {
    kind: &'static FormatKind,
    variant: u64,
    selection: Selection,
}

impl Format {
    /// Makes a format of a kind and a variant, with the kind's usual tracks.
    #[must_use]
    pub const fn new(kind: &'static FormatKind, variant: u64) -> Self {
        Self { kind, variant, selection: kind.selection }
    }

    /// Returns the format with another selection of tracks. If the format asks for silence, the new one does too.
    #[must_use]
    pub const fn select(self, selection: Selection) -> Self {
        let silence = self.selection.silence || selection.silence;
        Self { selection: Selection { silence, ..selection }, ..self }
    }

    /// Returns the format with silence if the stream has no audio, provided that silence is offered.
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

    /// True if every viewer of the protocol can take the format: it needs no codecs beyond the plain ones
    /// ([`FormatKey::variant`]), and has the kind's usual tracks.
    #[must_use]
    pub fn is_plain(self) -> bool {
        let usual = Selection { silence: self.selection.silence, ..self.kind.selection };
        self.variant >> 32 == 0 && self.selection == usual
    }

    /// Returns the key by which the hub finds the format.
    #[must_use]
    pub const fn key(self) -> FormatKey {
        FormatKey { name: self.kind.name, variant: self.variant, selection: self.selection }
    }

    /// Makes a package of the format; `None` if the format's sessions take units unpackaged.
    #[must_use]
    pub fn package(self) -> Option<Box<dyn Package>> {
        (self.kind.package)(self.variant)
    }

    /// Returns the codecs of the published tracks that the format cannot carry.
    #[must_use]
    pub fn left_out(self, tracks: &Tracks) -> Vec<Codec> {
        let Some(package) = self.package() else { return Vec::new() };
        let published = tracks.iter().filter(|track| track.origin == Origin::Published);
        published.filter(|track| package.fit(track) == Fit::No).map(|track| track.config.codec()).collect()
    }

    /// Returns the tracks of a stream that subscribers of the format are sent.
    #[must_use]
    pub fn choose(self, tracks: &Tracks) -> Chosen {
        let package = self.package();
        let fit = |track: &Track| package.as_ref().map_or(Fit::Well, |package| package.fit(track));
        let mut chosen = Chosen::default();
        chosen.update(self.selection, &Arc::new(tracks.clone()), &fit);
        chosen
    }
}

/// Returns the selection that a viewer's URL parameters request: `tracks=all`, or `video=` and `audio=` with the
/// number of a track, `all` or `none`. `None` without such parameters.
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
