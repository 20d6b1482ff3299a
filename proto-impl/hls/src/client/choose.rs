//! Chooses the variants of a multivariant playlist that may be pulled, orders them, and finds their separate
//! audio playlists.

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::playlist::{MultivariantPlaylist, RenditionKind, Variant};
use crate::uri::Url;

/// Supported codecs: the part of an RFC 6381 codec string before its first dot.
const CARRIED: [&str; 11] =
    ["avc1", "avc3", "hvc1", "hev1", "av01", "vp09", "mp4a", "opus", "ac-3", "ec-3", "flac"];

/// A variant that may be pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// URL of the variant's media playlist.
    pub(super) main: Url,
    /// URL of the separate audio playlist; `None` if the variant contains its audio.
    pub(super) audio: Option<Url>,
}

/// The URL of the best variant's media playlist, and of its separate audio playlist if it has one.
#[must_use]
pub fn choose(
    playlist: &MultivariantPlaylist,
    base: &Url,
    bandwidth_max: Option<u64>,
) -> Option<(Url, Option<Url>)> {
    let best = choices(playlist, base, bandwidth_max).pop_front()?;
    Some((best.main, best.audio))
}

/// The variants that may be pulled, best first: those within the bandwidth limit by descending bandwidth or, if
/// there are none, all by ascending bandwidth. Variants of equal bandwidth keep their order, because servers
/// list a backup after the variant it replaces.
pub(super) fn choices(
    playlist: &MultivariantPlaylist,
    base: &Url,
    bandwidth_max: Option<u64>,
) -> VecDeque<Choice> {
    let mut usable: Vec<&Variant> = playlist.variants.iter().filter(|variant| is_carried(variant)).collect();
    let fits = |variant: &&Variant| bandwidth_max.is_none_or(|max| variant.bandwidth <= max);
    if usable.iter().any(|variant| fits(variant) && base.resolve(&variant.uri).is_ok()) {
        usable.retain(fits);
        usable.sort_by_key(|variant| Reverse(variant.bandwidth));
    } else {
        usable.sort_by_key(|variant| variant.bandwidth);
    }
    let mut choices = VecDeque::new();
    for choice in usable.into_iter().filter_map(|variant| choice_of(playlist, base, variant)) {
        if !choices.contains(&choice) {
            choices.push_back(choice);
        }
    }
    choices
}

/// A variant with the default audio of its group; `None` if its URI is invalid.
fn choice_of(playlist: &MultivariantPlaylist, base: &Url, variant: &Variant) -> Option<Choice> {
    let main = base.resolve(&variant.uri).ok()?;
    let group = || {
        playlist.renditions.iter().filter(|rendition| {
            rendition.kind == RenditionKind::Audio && variant.audio.as_ref() == Some(&rendition.group_id)
        })
    };
    let audio = group().find(|rendition| rendition.default).or_else(|| group().next());
    let audio = audio.and_then(|rendition| base.resolve(rendition.uri.as_deref()?).ok());
    let audio = audio.filter(|audio| *audio != main);
    Some(Choice { main, audio })
}

fn is_carried(variant: &Variant) -> bool {
    let is_known = |codec: &str| {
        let name = codec.trim().split('.').next().unwrap_or_default();
        CARRIED.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    variant.codecs.as_ref().is_none_or(|codecs| codecs.split(',').all(is_known))
}
