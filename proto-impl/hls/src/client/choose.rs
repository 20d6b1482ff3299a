//! Which variant of a multivariant playlist is pulled, and which audio beside it.

use crate::playlist::{MultivariantPlaylist, RenditionKind, Variant};
use crate::uri::Url;

/// Codecs (RFC 6381) that are carried, by what stands before the first dot.
const CARRIED: [&str; 11] =
    ["avc1", "avc3", "hvc1", "hev1", "av01", "vp09", "mp4a", "opus", "ac-3", "ec-3", "flac"];

/// The media playlist of the best variant, and that of its audio if it is a separate one.
#[must_use]
pub fn choose(
    playlist: &MultivariantPlaylist,
    base: &Url,
    bandwidth_max: Option<u64>,
) -> Option<(Url, Option<Url>)> {
    let usable = || {
        playlist.variants.iter().filter(|variant| is_carried(variant) && base.resolve(&variant.uri).is_ok())
    };
    let fits = |variant: &&Variant| bandwidth_max.is_none_or(|max| variant.bandwidth <= max);
    let best = usable().filter(fits).max_by_key(|variant| variant.bandwidth);
    let variant = best.or_else(|| usable().min_by_key(|variant| variant.bandwidth))?;
    let main = base.resolve(&variant.uri).ok()?;
    let group = || {
        playlist.renditions.iter().filter(|rendition| {
            rendition.kind == RenditionKind::Audio && variant.audio.as_ref() == Some(&rendition.group_id)
        })
    };
    let audio = group().find(|rendition| rendition.default).or_else(|| group().next());
    let audio = audio.and_then(|rendition| base.resolve(rendition.uri.as_deref()?).ok());
    Some((main.clone(), audio.filter(|audio| *audio != main)))
}

fn is_carried(variant: &Variant) -> bool {
    let is_known = |codec: &str| {
        let name = codec.trim().split('.').next().unwrap_or_default();
        CARRIED.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    variant.codecs.as_ref().is_none_or(|codecs| codecs.split(',').all(is_known))
}
