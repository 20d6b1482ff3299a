//! The manifest of a ladder, published by the leading stream.

use std::sync::Arc;

use hls::segmenter::{Moments, Outline, Presentation, Stretch};

use super::apart::Listed;
use super::{Ladder, Layout, MANIFEST, RUNGS_MAX};
use crate::hub::Blobs;
use crate::mail;
use crate::protocol::Context;
use crate::protocol::hls::settings::DashSettings;
use crate::types::StreamId;

impl Ladder {
    /// True if there is a manifest of the renditions.
    pub(super) const fn makes_manifest(&self) -> bool {
        matches!(self.layout, Layout::Apart) && self.settings.dash
    }

    /// True if other streams have new segments since the last call, which the manifest of this stream lacks.
    pub(super) fn is_news_of_others(&mut self, blobs: &Blobs) -> bool {
        if !self.makes_manifest() {
            return false;
        }
        let newest = |(_, rung): &(StreamId, &mail::Rung)| rung.marks.last().map_or(0, |mark| mark.number);
        let sum = self.others(blobs).iter().map(newest).fold(0, u64::saturating_add);
        std::mem::replace(&mut self.shown.others, sum) != sum
    }

    /// Returns the renditions for a manifest, those of the leading stream first. All audio is that of one stream,
    /// the first that has any.
    fn there(&self, others: &[(StreamId, &mail::Rung)]) -> Vec<Arc<Outline>> {
        let (earlier, later): (Vec<_>, Vec<_>) =
            others.iter().copied().partition(|one| self.is_earlier(*one));
        let of_other = |(stream, rung): (StreamId, &mail::Rung)| {
            Some((rung.is_sound.then_some(stream), Arc::clone(&Listed::of(rung)?.outline)))
        };
        let own = self.rungs.iter().chain(&self.around.absent).filter(|rung| rung.window().is_enough());
        let own =
            own.filter_map(|rung| Some((rung.is_sound.then_some(self.stream), Arc::new(rung.outline()?))));
        let all = earlier.into_iter().filter_map(of_other).chain(own);
        let mut first = None;
        // All audio renditions of the first stream with audio are listed.
        let is_listed = |(sound_of, _): &(Option<StreamId>, Arc<Outline>)| {
            sound_of.is_none_or(|stream| *first.get_or_insert(stream) == stream)
        };
        let all = all.chain(later.into_iter().filter_map(of_other)).filter(is_listed);
        all.map(|(_, outline)| outline).take(RUNGS_MAX).collect()
    }

    /// Publishes the manifest, if this stream leads.
    pub(super) fn publish_manifest(&mut self, ctx: &Context<'_>, ended: bool) {
        if !self.makes_manifest() {
            return;
        }
        let others = self.others(ctx.blobs);
        let mut there = self.there(&others);
        if !there.is_empty() && self.leads(ctx.blobs) {
            there.extend(self.subtitles.outlines().map(Arc::new));
        }
        if !self.leads(ctx.blobs) {
            let lead = others.first().and_then(|(_, lead)| Listed::of(lead));
            self.shown.board.follow(lead.map_or(&[], |lead| &lead.periods), &there);
            return;
        }
        let silent = self.rungs.iter().filter(|rung| rung.is_sound && !rung.has_begun()).count();
        let all = others.len().saturating_add(self.rungs.len()).saturating_sub(silent);
        let ready = others.iter().filter(|(_, rung)| rung.is_there).count();
        let ready = ready.saturating_add(self.rungs.iter().filter(|rung| rung.window().is_enough()).count());
        let is_first = self.shown.board.periods().is_empty() && !ended && !there.is_empty();
        if is_first && ready < all && self.shown.waits(ctx.now.mono) {
            return;
        }
        self.shown.board.note(&there);
        let outlines = self.shown.board.listed(&there);
        let outlines: Vec<&Outline> = outlines.iter().collect();
        let stretches: Vec<Stretch> = self.shown.board.stretches();
        let base = format!("../{}", self.folder);
        let DashSettings { window: listed, latency_ms, .. } = self.settings.dash_own;
        let (renditions, stretches, base) = (&*outlines, &*stretches, &*base);
        let all = Presentation { renditions, stretches, base, ended, listed, latency_ms };
        let calendar = self.clock.calendar();
        let Some(now_ms) = calendar.map(|calendar| calendar.date_ms(ctx.now.mono)) else { return };
        if let Some(text) = all.manifest(Moments { zero_ms: self.clock.zero_ms(), now_ms }) {
            let name = format!("{0}/{0}{MANIFEST}", self.main);
            self.publishing.manifest(&name, text, calendar);
        }
    }
}
