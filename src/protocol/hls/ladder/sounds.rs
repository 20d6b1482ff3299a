//! The audio of a ladder: that of the leading stream, as one group for all renditions.
//!
//! With separate tracks, each audio track is a rendition. Otherwise the first one is in the segments of each video,
//! and further ones are renditions beside it (RFC 8216 §4.3.4.1: a rendition without a URI is in the variant's own
//! segments).

use hls::playlist::Report;
use media::{Track, TrackKind};

use super::rung::Rung;
use super::{Ladder, Layout, apart};
use crate::hub::{Blobs, Chosen, Fit, Pick, Selection};
use crate::mail::{self, Progress};
use crate::protocol::hls::sounds::{self, Choice};
use crate::protocol::hls::{ENDING, cmaf, sink};

impl Ladder {
    /// Returns the selection of tracks for each rendition of the stream: videos, then audio beside them.
    pub(super) fn wanted(&self, chosen: &Chosen) -> Vec<Selection> {
        let only = |video: Pick, audio: Pick| Selection { video, audio, data: Pick::None, silence: false };
        let beside = if self.layout == Layout::Apart { Pick::None } else { Pick::Default };
        let videos: Vec<&Track> = chosen.of_kind(TrackKind::Video).collect();
        let mut wanted: Vec<Selection> = match &*videos {
            // The one video is that of the first member. The rendition goes on with the next one when that member leaves.
            [video] if video.member.is_some() => vec![only(Pick::First, beside)],
            _ => videos.iter().map(|video| only(Pick::Only(video.id), beside)).collect(),
        };
        let fit: fn(&Track) -> Fit = match self.has_mp4() {
            false => sink::fit,
            true if self.settings.protects_samples() => cmaf::fit_protected,
            true => cmaf::fit,
        };
        let sounds = sounds::to_choose(chosen.of_kind(TrackKind::Audio), fit);
        if self.layout == Layout::Apart && !sounds.is_empty()
            || self.layout == Layout::Together && wanted.is_empty()
        {
            wanted.push(only(Pick::None, Pick::Default));
        }
        let mut first = Chosen::default();
        first.update(wanted.last().copied().unwrap_or_default(), chosen.all(), &fit);
        let is_first = |sound: &Track| {
            let first = first.of_kind(TrackKind::Audio).next();
            first.or_else(|| sounds.first().copied()).is_some_and(|first| first.id == sound.id)
        };
        let others = sounds.iter().filter(|sound| !is_first(sound));
        wanted.extend(others.map(|sound| only(Pick::None, Pick::Only(sound.id))));
        wanted
    }

    /// Returns the progress of the shared audio playlists, except the one with this number (RFC 8216bis §4.4.5.4).
    pub(super) fn reports_of_sounds(
        &self,
        blobs: &Blobs,
        rungs: &[Rung],
        at: usize,
    ) -> Vec<(String, Progress, u32)> {
        let own = rungs.get(at).filter(|rung| rung.is_sound).map(|rung| rung.index);
        let others = self.others(blobs);
        let of_others = others.iter().filter(|(_, rung)| rung.is_sound).map(|(_, rung)| rung.sound.index);
        let mut all: Vec<u8> = rungs.iter().filter(|rung| rung.is_sound).map(|rung| rung.index).collect();
        all.extend(of_others);
        all.sort_unstable();
        all.dedup();
        all.retain(|index| Some(*index) != own);
        let told = all.into_iter().filter_map(|index| {
            let uri = format!("{}{ENDING}", apart::shared_sound(&self.main, index));
            let progress = blobs.get(&self.key.app, &format!("{}{uri}", self.folder))?.progress;
            let here = rungs.iter().find(|rung| rung.is_sound && rung.index == index);
            let there = others.iter().find(|(_, rung)| rung.is_sound && rung.sound.index == index);
            let parts = here.map(Rung::last_parts).or_else(|| there.map(|(_, rung)| rung.last_parts));
            Some((uri, progress, parts.unwrap_or(0)))
        });
        told.collect()
    }
}

/// Returns the report of a playlist's progress. Just after the end of a segment, its last part is the newest one;
/// `last_parts` is the number of its parts (RFC 8216bis §4.4.5.4).
pub(super) fn report((uri, Progress { segment, part }, last_parts): (String, Progress, u32)) -> Report {
    let (last_segment, parts) =
        if part > 0 { (segment, part) } else { (segment.saturating_sub(1), last_parts) };
    Report { uri, last_segment, last_part: parts.checked_sub(1).map(u64::from) }
}

/// True if the rendition is audio that has no segment yet; the multivariant playlist does not wait for it.
pub(super) fn is_silent(rung: &mail::Rung) -> bool {
    rung.is_sound && rung.marks.is_empty()
}

/// Returns the audio that players can choose from: first the audio within the video segments, if there is any,
/// then the audio renditions of the first stream that has some.
pub(super) fn to_choose<'r>(main: &str, rungs: &[&'r mail::Rung]) -> Vec<Choice<'r>> {
    let mut sounds = rungs.iter().filter(|rung| rung.is_sound).peekable();
    let began = sounds.peek().map(|first| first.began);
    let mut sounds: Vec<&&mail::Rung> = sounds.filter(|rung| Some(rung.began) == began).collect();
    sounds.sort_by_key(|rung| rung.sound.index);
    // Two streams may have begun at the same moment; only one of them provides each index.
    sounds.dedup_by_key(|rung| rung.sound.index);
    let beside = sounds.into_iter().map(|rung| Choice {
        uri: Some(format!("{}{ENDING}", apart::shared_sound(main, rung.sound.index))),
        sound: &rung.sound,
        bits: rung.bits,
    });
    let within = rungs.iter().find(|rung| !rung.is_sound && rung.sound.codec.is_some());
    let within = within.map(|rung| Choice { uri: None, sound: &rung.sound, bits: (0, 0) });
    within.into_iter().chain(beside).collect()
}
