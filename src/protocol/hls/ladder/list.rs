//! The multivariant playlist of a ladder.

use hls::playlist::{MultivariantPlaylist, Resolution, Variant};

use super::sounds::to_choose;
use crate::mail::Rung;
use crate::protocol::hls::sounds::{Group, grouped};

/// Returns the playlist of these renditions, the highest rate first, each with every audio group. A single audio
/// track within the segments of the videos is not listed as a rendition.
pub(super) fn master(version: u32, main: &str, rungs: &[&Rung]) -> MultivariantPlaylist {
    let videos: Vec<&&Rung> = rungs.iter().filter(|rung| !rung.is_sound).collect();
    let choices = to_choose(main, rungs);
    let is_sole = choices.len() <= 1 && (videos.is_empty() || choices.iter().all(|one| one.uri.is_none()));
    let (groups, renditions) = if is_sole { (Vec::new(), Vec::new()) } else { grouped(&choices) };
    let beside: Vec<Option<&Group>> =
        if groups.is_empty() { vec![None] } else { groups.iter().map(Some).collect() };
    let mut variants: Vec<Variant> =
        videos.iter().flat_map(|rung| beside.iter().map(|group| variant(rung, *group))).collect();
    if videos.is_empty() {
        let sounds = rungs.iter().filter(|rung| rung.is_sound).take(1);
        variants.extend(
            sounds.map(|rung| Variant {
                audio: groups.first().map(|one| one.id.clone()),
                ..variant(rung, None)
            }),
        );
    }
    variants.sort_by(|a, b| b.bandwidth.cmp(&a.bandwidth).then_with(|| a.uri.cmp(&b.uri)));
    MultivariantPlaylist {
        version,
        independent_segments: rungs.iter().all(|rung| rung.is_independent),
        variants,
        renditions,
    }
}

fn variant(rung: &Rung, sound: Option<&Group>) -> Variant {
    let (peak, average) = sound.map_or((0, 0), |sound| sound.bits);
    let mut codecs: Vec<&str> = rung.codecs.split(',').filter(|codec| !codec.is_empty()).collect();
    for codec in sound.into_iter().flat_map(|sound| &sound.codecs) {
        if !codecs.contains(&codec.as_str()) {
            codecs.push(codec);
        }
    }
    Variant {
        uri: rung.playlist.clone().unwrap_or_default(),
        bandwidth: rung.bits.0.saturating_add(peak),
        average_bandwidth: Some(rung.bits.1.saturating_add(average)),
        codecs: Some(codecs.join(",")).filter(|codecs| !codecs.is_empty()),
        frame_rate_milli: rung.picture.frame_rate_milli,
        resolution: rung.picture.size.map(|(width, height)| Resolution { width, height }),
        audio: sound.map(|sound| sound.id.clone()),
        ..Variant::default()
    }
}
