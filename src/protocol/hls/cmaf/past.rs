//! The DASH manifest of all segments to which viewers can rewind ([`dvr`]), and of those that are copied to the disk.
//!
//! Its time counts from the beginning of 2026, so that it continues when a stream returns. Its periods are those of
//! the live manifest; the periods of earlier runs of the stream stay while their segments are on the disk.

use hls::segmenter::{Anchor, Made, Moments, Mp4Segmenter, NUMBERS_FROM_MS, Outline, Past};
use media::TrackKind;

use super::{Cmaf, ENDING, MANIFEST, part_of};
use crate::protocol::hls::copies::Sheet;
use crate::protocol::hls::{calendar, dvr};

/// Number of periods whose segments may still be in memory. The lists on the disk have the periods of older ones.
const ANCHORS_MAX: usize = 32;

/// State of the manifest.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The periods of this run, each with its number in the live manifest.
    anchors: Vec<(u64, Anchor)>,
    /// The numbers of the first and the next segment of each rendition, as published; true if the stream has ended.
    shown: (Vec<(u64, u64)>, bool),
}

impl Cmaf {
    /// Notes the places of a rendition's new segments.
    pub(super) fn describe(&mut self, rendition: &Mp4Segmenter, made: &[Made]) {
        let suffix = &self.settings.rules.suffix;
        let is_segment = |made: &&Made| !made.is_init && part_of(suffix, &made.name).is_none();
        let names: Vec<String> = made.iter().filter(is_segment).map(|made| made.name.clone()).collect();
        let is_kept = self.settings.dvr().is_some() || self.publishing.copies_tracks();
        if self.settings.dash && is_kept && !names.is_empty() {
            let playlist = format!("{}{}{ENDING}", self.folder, rendition.names().base);
            self.publishing.describe(&playlist, &names, &Outline::of(rendition));
        }
    }

    /// Notes the periods that have begun, for the manifest and for the one on the disk.
    pub(super) fn note_window(&mut self, outlines: &[Outline], moments: Moments) {
        let has_copies = self.publishing.copies_tracks();
        if !has_copies && self.settings.dvr().is_none() {
            return;
        }
        self.note_anchors(outlines, moments.zero_ms, self.run_ms().unwrap_or(0));
        if has_copies {
            self.publishing.set_sheet(Sheet {
                name: format!("{0}/{0}{MANIFEST}", self.id),
                base: format!("../{}", self.folder),
                anchors: self.shown.window.anchors.iter().map(|(_, anchor)| *anchor).collect(),
                latency_ms: self.settings.dash_own.latency_ms,
                accessibility: self.settings.told.captions.accessibility(&self.shown.captions),
            });
        }
    }

    /// Publishes the manifest if segments have come or gone.
    pub(super) fn publish_window(&mut self, moments: Moments, ended: bool) {
        if self.settings.dvr().is_none() {
            return;
        }
        let anchors: Vec<Anchor> = self.shown.window.anchors.iter().map(|(_, anchor)| *anchor).collect();
        let shown = (self.publishing.anchor(&anchors), ended);
        if shown == self.shown.window.shown {
            return;
        }
        let mut renditions = self.publishing.pieces();
        renditions.sort_by_key(|pieces| pieces.last().is_none_or(|last| last.kind() != TrackKind::Video));
        let base = format!("../{}", self.folder);
        let accessibility = self.settings.told.captions.accessibility(&self.shown.captions);
        let latency_ms = self.settings.dash_own.latency_ms;
        let (renditions, base, accessibility) = (&*renditions, &*base, &*accessibility);
        let past = Past { renditions, base, ended, latency_ms, accessibility };
        if let Some(text) = past.manifest(Moments { zero_ms: NUMBERS_FROM_MS, ..moments }) {
            let name = format!("{0}/{0}{MANIFEST}{1}", self.id, dvr::QUERY);
            self.publishing.manifest(&name, text, calendar(&self.dates));
            self.shown.window.shown = shown;
        }
    }

    /// Notes the periods that have begun. `zero_ms` is the beginning of the presentation, and `run_ms` the date of the
    /// time zero of segments.
    fn note_anchors(&mut self, outlines: &[Outline], zero_ms: u64, run_ms: u64) {
        let known = self.shown.window.anchors.last().map_or(0, |(id, _)| *id);
        for stretch in self.shown.periods.stretches().into_iter().filter(|stretch| stretch.id > known) {
            let date_ms = zero_ms.saturating_add(stretch.begin_ms).saturating_add(stretch.delay_ms);
            let start_ms = date_ms.saturating_sub(NUMBERS_FROM_MS);
            let mut anchor = Anchor { start_ms, run_ms, begin_ms: stretch.begin_ms };
            if known == 0 && stretch.begin_ms == 0 {
                // The first period of the live manifest begins at zero, before its first segment. An earlier run may
                // have ended only then.
                let begins = outlines.iter().filter_map(|one| Some(one.spanned().next()?.begin_ms()));
                anchor = begins.min().map_or(anchor, |begin_ms| anchor.moved_to(begin_ms));
            }
            self.shown.window.anchors.push((stretch.id, anchor));
        }
        let beyond = self.shown.window.anchors.len().saturating_sub(ANCHORS_MAX);
        self.shown.window.anchors.drain(..beyond);
    }
}
