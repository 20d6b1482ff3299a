//! The subtitles of a ladder: those of the leading stream, in segments like those of its first rendition.
//!
//! Each stream makes segments of its own subtitles, but only the leading one publishes playlists of them. If another
//! stream leads later, it continues these playlists.

use hls::segmenter::{Start, Zero};

use super::apart::Splice;
use super::{Ladder, Layout};
use crate::hub::Blobs;
use crate::protocol::hls::ENDING;
use crate::protocol::hls::metadata::Place;
use crate::protocol::hls::settings::HlsSettings;
use crate::protocol::hls::subtitles::{Form, Spoken, progress};

/// Key of the first language's subtitles in `Shown::splices`; further languages follow. Smaller keys are those of
/// shared audio playlists.
const SPLICES: usize = 100;

/// Returns the beginning of the names of the playlists; the language follows.
pub(super) fn shared(main: &str) -> String {
    format!("{main}__adaptive_subs_")
}

/// Makes the subtitles of a stream.
pub(super) fn of(settings: &HlsSettings, layout: Layout, id: &str, start: Start) -> Spoken {
    let is_ts = layout == Layout::Together && !settings.fragmented;
    let ticks = if is_ts { Place::ts_zero_ticks() } else { 0 };
    let form = Form {
        base: &format!("{id}__adaptive_subs_"),
        suffix: &format!("_{}", start.number),
        zero: Zero { shift_ms: 0, ticks },
        has_track: layout == Layout::Apart && settings.dash,
    };
    Spoken::new(settings, form)
}

impl Ladder {
    /// Publishes a segment of subtitles for each one of the first rendition that has segments; if this stream leads,
    /// also the playlists of subtitles.
    pub(super) fn publish_subtitles(&mut self, blobs: &Blobs) {
        let all = self.rungs.iter().filter_map(|rung| Some((rung.name()?, rung.window())));
        let Some(lead) = self.subtitles.lead(all) else { return };
        let is_changed = self.subtitles.follow(lead, &mut self.publishing, &self.folder);
        if !is_changed || self.shown.is_left || !self.leads(blobs) {
            return;
        }
        for (index, (language, subtitles)) in (SPLICES..).zip(self.subtitles.iter()) {
            let name = format!("{}{}{language}{ENDING}", self.folder, shared(&self.main));
            let mut playlist = subtitles.playlist().clone();
            let former = blobs.get(&self.key.app, &name).filter(|blob| blob.stream != self.stream);
            let splice = self.shown.splices.entry(u8::try_from(index).unwrap_or(u8::MAX));
            let splice = splice
                .or_insert_with(|| former.map_or_else(Splice::default, |blob| Splice::behind(&blob.bytes)));
            if splice.apply(&mut playlist) {
                self.publishing.playlist(&name, playlist.to_string(), progress(subtitles));
            }
        }
    }
}
