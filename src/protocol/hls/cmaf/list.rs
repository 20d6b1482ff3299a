//! The multivariant playlist of all renditions, and their DASH manifest.

use std::time::Instant;

use hls::playlist::{MultivariantPlaylist, Rendition, Resolution, Variant};
use hls::segmenter::{Moments, Mp4Segmenter, NUMBERS_FROM_MS, Outline, Presentation};
use media::{Track, TrackKind};

use super::{Cmaf, Layout, MANIFEST, MASTER, SUBTITLES, WAIT, has_begun};
use crate::mail::Sound;
use crate::protocol::hls::settings::DashSettings;
use crate::protocol::hls::sounds::{self, Choice, Group};
use crate::protocol::hls::subtitles;
use crate::protocol::hls::{ENDING, calendar, declared_bits};
use crate::types::Now;

/// Returns the peak and the average bit rate of a rendition.
fn bits(rendition: &Mp4Segmenter) -> (u64, u64) {
    (rendition.window().peak_bits(), rendition.window().average_bits())
}

/// Returns the URI of a rendition's playlist.
fn uri(rendition: &Mp4Segmenter) -> String {
    format!("{}{ENDING}", rendition.names().base)
}

fn is_of(rendition: &Mp4Segmenter, kind: TrackKind) -> bool {
    rendition.tracks().iter().any(|track| track.kind() == kind)
}

fn variant(rendition: &Mp4Segmenter, sound: Option<&Group>) -> Variant {
    let described = rendition.newest();
    let own = described.into_iter().flat_map(|one| &one.codecs);
    let codecs: Vec<&str> =
        own.chain(sound.into_iter().flat_map(|sound| &sound.codecs)).map(String::as_str).collect();
    let size = rendition.tracks().first().and_then(Track::picture_size);
    let ((peak, average), (beside_peak, beside_average)) =
        (bits(rendition), sound.map_or((0, 0), |sound| sound.bits));
    let (bandwidth, average) =
        declared_bits(peak.saturating_add(beside_peak), average.saturating_add(beside_average));
    Variant {
        uri: uri(rendition),
        bandwidth,
        average_bandwidth: Some(average),
        codecs: Some(codecs.join(",")),
        frame_rate_milli: described.and_then(|one| one.frame_rate_milli),
        resolution: size.map(|(width, height)| Resolution { width, height }),
        audio: sound.map(|sound| sound.id.clone()),
        ..Variant::default()
    }
}

/// Returns the variant with audio only; players begin with the default rendition of its group.
fn of_sounds(group: &Group, renditions: &[Rendition]) -> Variant {
    /// Publishes the subtitles, the multivariant playlist and the manifest.
    pub(super) fn publish_lists(&mut self, now: Now) {
        self.publish_subtitles();
        self.publish_master(now.mono);
        self.publish_manifest(now, false);
    }

    let first = renditions.iter().find(|one| one.group_id == group.id && one.default);
    let (bandwidth, average) = declared_bits(group.bits.0, group.bits.1);
    Variant {
        uri: first.and_then(|first| first.uri.clone()).unwrap_or_default(),
        bandwidth,
        average_bandwidth: Some(average),
        codecs: Some(group.codecs.join(",")),
        audio: Some(group.id.clone()),
        ..Variant::default()
    }
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
    pub(super) fn publish_master(&mut self, now: Instant) {
        if self.layout == Layout::Together || !self.settings.low_latency {
            return;
        }
        let listed = |ready: Vec<&Mp4Segmenter>| {
            (master(&ready), ready.iter().any(|one| is_of(one, TrackKind::Video)))
        };
        let Some((mut list, has_pictures)) = self.ready(now).map(listed) else { return };
        if has_pictures {
            self.settings.told.captions.declare(&self.shown.captions, &mut list);
        }
        // Subtitles are not on the disk.
        let copied = list.to_string();
        if self.shown.subtitles.are_listed() {
            self.settings.told.languages.declare(&mut list, &format!("{}{SUBTITLES}", self.id));
        }
        let text = list.to_string();
        if text != self.shown.master {
            let name = format!("{}{}{MASTER}", self.folder, self.id);
            self.publishing.copy_master(&name, &copied, self.start.number);
            self.publishing.master(&name, text.clone());
            self.shown.master = text;
        }
            self.shown.periods.publish();
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

fn master(ready: &[&Mp4Segmenter]) -> MultivariantPlaylist {
    let of_kind = |kind| ready.iter().filter(move |one| is_of(one, kind));
    let told: Vec<Sound> =
        of_kind(TrackKind::Audio).filter_map(|one| one.tracks().first().map(sounds::of)).collect();
    let choices: Vec<Choice<'_>> = of_kind(TrackKind::Audio)
        .zip(&told)
        .map(|(one, sound)| Choice { uri: Some(uri(one)), sound, bits: bits(one) })
        .collect();
    let videos: Vec<&&Mp4Segmenter> = of_kind(TrackKind::Video).collect();
    let (groups, renditions) = sounds::grouped(&choices);
    let (variants, renditions) = match (&*videos, &*choices) {
        ([], [_]) => (of_kind(TrackKind::Audio).map(|one| variant(one, None)).collect(), Vec::new()),
        ([], _) => (groups.iter().map(|group| of_sounds(group, &renditions)).collect(), renditions),
        (_, []) => (videos.iter().map(|one| variant(one, None)).collect(), Vec::new()),
        _ => {
            let with_each =
                videos.iter().flat_map(|one| groups.iter().map(|group| variant(one, Some(group))));
            (with_each.collect(), renditions)
        }
    };
    MultivariantPlaylist {
        version: 9,
        independent_segments: ready.iter().all(|one| one.window().playlist().independent_segments),
        variants,
        renditions,
    }
}
