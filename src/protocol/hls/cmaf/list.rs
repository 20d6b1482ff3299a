//! The multivariant playlist of all renditions, and their DASH manifest.

use std::time::Instant;

use hls::playlist::MultivariantPlaylist;
use hls::segmenter::{Moments, Mp4Segmenter, NUMBERS_FROM_MS, Outline, Presentation};
use media::TrackKind;

use super::members::{Member, master};
use super::{Cmaf, Layout, MANIFEST, MASTER, SUBTITLES, WAIT, has_begun};
use crate::protocol::hls::settings::DashSettings;
use crate::protocol::hls::subtitles;
use crate::protocol::hls::{ENDING, calendar};
use crate::types::Now;

fn is_of(rendition: &Mp4Segmenter, kind: TrackKind) -> bool {
    rendition.tracks().iter().any(|track| track.kind() == kind)
}

impl Cmaf {
    /// Returns the renditions that players can choose; `None` while the first playlist waits for another rendition.
    /// The playlist waits, up to a limit, for a rendition that has begun, but not for a rendition without any media.
    fn ready(&mut self, now: Instant) -> Option<Vec<&Mp4Segmenter>> {
        let (ready, others): (Vec<_>, Vec<_>) =
            self.renditions.iter().partition(|one| one.window().is_enough());
        if ready.is_empty() {
            return None;
        }
        let ready_at = *self.shown.ready_at.get_or_insert(now);
        let is_first = self.shown.master.is_empty() && self.shown.periods.is_empty();
        let waits = is_first
            && now.saturating_duration_since(ready_at) < WAIT
            && others.iter().copied().any(has_begun);
        (!waits).then_some(ready)
    }

    /// Returns the names of the renditions of the manifest's newest period; `None` while it waits for segments.
    fn members(&mut self, now: Instant) -> Option<Vec<String>> {
        let names = |of: Vec<&Mp4Segmenter>| of.into_iter().map(|one| one.names().base.clone()).collect();
        if self.shown.periods.is_empty() {
            return self.ready(now).map(names);
        }
        let shown = self.shown.periods.members();
        let is_listed = |one: &&Mp4Segmenter| one.window().is_enough() || shown.contains(&one.names().base);
        if self.renditions.first().is_some_and(|lead| is_listed(&lead)) {
            return Some(names(self.renditions.iter().filter(is_listed).collect()));
        }
        // A presentation that goes on with another first rendition is being played, so it does not wait for as many
        // segments as at its beginning. Periods begin with segments of the first rendition.
        let has_cut = |one: &&Mp4Segmenter| one.window().has_cut();
        let begun: Vec<&Mp4Segmenter> = self.renditions.iter().filter(|one| has_begun(one)).collect();
        (!begun.is_empty() && begun.iter().all(has_cut)).then(|| names(begun))
    }

    /// Publishes the subtitles, the multivariant playlist and the manifest.
    pub(super) fn publish_lists(&mut self, now: Now) {
        self.publish_subtitles();
        self.publish_master(now.mono);
        self.publish_manifest(now, false);
    }

    /// Publishes the subtitles: a segment for each one of the first rendition that has segments, and the playlists.
    fn publish_subtitles(&mut self) {
        if self.layout == Layout::Together {
            return;
        }
        let all = self.renditions.iter().map(|one| (one.names().base.as_str(), one.window()));
        let Some(lead) = self.shown.subtitles.lead(all) else { return };
        let folder = &self.folder;
        if !self.shown.subtitles.follow(lead, &mut self.publishing, folder) {
            return;
        }
        for (language, subtitles) in self.shown.subtitles.iter() {
            let name = format!("{folder}{}{SUBTITLES}{language}{ENDING}", self.id);
            let text = subtitles.playlist().to_string();
            self.publishing.playlist(&name, text, subtitles::progress(subtitles));
        }
    }

    /// Publishes the multivariant playlist if it has changed.
    fn publish_master(&mut self, now: Instant) {
        if self.layout == Layout::Together || !self.settings.low_latency {
            return;
        }
        let members = |ready: Vec<&Mp4Segmenter>| ready.into_iter().map(Member::of).collect();
        let Some(ready): Option<Vec<Member>> = self.ready(now).map(members) else { return };
        let mut list = self.captioned(&ready);
        if self.shown.subtitles.are_listed() {
            self.settings.told.languages.declare(&mut list, &format!("{}{SUBTITLES}", self.id));
        }
        let name = format!("{}{}{MASTER}", self.folder, self.id);
        let text = list.to_string();
        if text != self.shown.master {
            self.publishing.master(&name, text.clone());
            self.shown.master = text;
        }
        if self.publishing.copies_tracks() {
            let present = self.renditions.iter().filter(|one| one.window().is_enough());
            self.shown.members.note(present, &self.absent);
            // Subtitles are not on the disk.
            let text = self.captioned(self.shown.members.all()).to_string();
            self.publishing.copy_master(&name, text, self.start.number);
        }
    }

    /// Returns the list of these renditions, with the captions of the videos.
    fn captioned(&self, members: &[Member]) -> MultivariantPlaylist {
        let mut list = master(members);
        if members.iter().any(Member::is_video) {
            self.settings.told.captions.declare(&self.shown.captions, &mut list);
        }
        list
    }

    pub(super) fn publish_manifest(&mut self, now: Now, ended: bool) {
        if !self.settings.dash || self.layout == Layout::Together {
            return;
        }
        let Some(mut members) = self.members(now.mono) else { return };
        // Audio that joins with the next segment is not in the period of this one.
        let joins =
            |base: &String| self.joining.iter().any(|(one, from_ms)| one == base && *from_ms == i64::MAX);
        members.retain(|base| !joins(base));
        let texts: Vec<Outline> = self.shown.subtitles.outlines().collect();
        members.extend(texts.iter().map(|one| one.id.clone()));
        let accessibility = self.settings.told.captions.accessibility(&self.shown.captions);
        let outline = |one: &Mp4Segmenter| {
            let accessibility = if is_of(one, TrackKind::Video) { accessibility.clone() } else { Vec::new() };
            Outline::of(one).with_accessibility(accessibility)
        };
        let media = self.renditions.iter().chain(&self.absent).map(outline);
        let outlines: Vec<Outline> = media.chain(texts).collect();
        self.note_periods(&outlines, &members);
        let Some(moments) = self.moments(now) else { return };
        self.note_window(&outlines, moments);
        if !ended && self.shown.periods.is_incomplete(&outlines) {
            return;
        }
        let base = format!("../{}", self.folder);
        self.publish_window(moments, ended);
        let outlines: Vec<Outline> = outlines.iter().map(|one| self.shown.periods.listed(one)).collect();
        let renditions: Vec<&Outline> = outlines.iter().collect();
        let stretches = self.shown.periods.stretches();
        let DashSettings { window: listed, latency_ms, .. } = self.settings.dash_own;
        let (renditions, stretches, base) = (&*renditions, &*stretches, &*base);
        let all = Presentation { renditions, stretches, base, ended, listed, latency_ms };
        if let Some(text) = all.manifest(moments) {
            let name = format!("{0}/{0}{MANIFEST}", self.id);
            let calendar = calendar(&self.dates);
            self.publishing.manifest(&name, text, calendar);
            self.shown.periods.publish();
        }
    }

    /// Adds the periods that have begun to the manifest, and drops those that have no segments left.
    fn note_periods(&mut self, outlines: &[Outline], members: &[String]) {
        let (dates, shift_ms) = (&self.dates, self.shift_ms);
        let began_ms = self.run_ms().unwrap_or(0).saturating_sub(NUMBERS_FROM_MS);
        let delay_ms = |at_ms: u64| {
            let at_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
            began_ms.saturating_add(dates.delay_ms(at_ms.saturating_sub(shift_ms)))
        };
        let Some(lead) = outlines.first() else { return };
        self.shown.periods.note(lead, members, delay_ms);
        let oldest = outlines.iter().filter_map(|one| one.spanned().next().map(|first| first.middle_ms()));
        oldest.min().into_iter().for_each(|oldest_ms| self.shown.periods.forget(oldest_ms));
    }

    /// The date of the time zero of segments, in milliseconds of Unix time. `None` before the first playlist.
    pub(super) fn run_ms(&self) -> Option<u64> {
        let zero_ms = self.dates.zero_ms()?.saturating_sub(self.shift_ms);
        Some(u64::try_from(zero_ms).unwrap_or(0))
    }

    /// Returns the beginning of the presentation. It is the same for every run of the stream, because the beginning of
    /// a manifest's presentation never changes, even if the stream or the server is restarted (ISO/IEC 23009-1
    /// §5.3.1.2). Only while the clock of this machine is wrong and shows an earlier time, it is that of the run.
    fn moments(&self, now: Now) -> Option<Moments> {
        let now_ms = calendar(&self.dates)?.date_ms(now.mono);
        Some(Moments { zero_ms: self.run_ms()?.min(NUMBERS_FROM_MS), now_ms })
    }
}
