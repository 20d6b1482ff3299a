//! A live stream as fragmented MP4: segments for HLS, with low latency if the application enables it (RFC 8216bis),
//! and the same segments for DASH.
//!
//! ```text
//! together   streams/{id}.m3u8   {id}000000001.m4s ...                   one playlist of all tracks (hlsSegmentType=fmp4)
//! apart      streams/ll-hls/{id}/{id}__master.m3u8                       a playlist for each track
//!                               {id}__video.m3u8  {id}__audio.m3u8  {id}__audio1.m3u8
//!                               {id}__video_{run}_000000001.m4s, its parts {id}__video_{run}_000000001.0.m4s ...
//!            streams/{id}/{id}.mpd                                       DASH
//! ```
//!
//! Each further video ends its segments at its own key frames, close to the segment ends of the first video. Audio
//! segments end with those of the first video.

mod list;
mod members;
mod past;
mod periods;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crypto::Seed;
use hls::playlist::Report;
use hls::segmenter::{
    Dates, GivenKey, Made, Mp4Segmenter, Names, Sealer, Start, Suffix, Zero, is_protectable,
};
use media::captions::Known;
use media::{Codec, Track, TrackKind};

use self::members::Members;
use self::past::Window;
use self::periods::Periods;
use super::ladder::SNAP_MS;
use super::live::{LiveSink, Presenter};
use super::metadata::{Lag, Place};
use super::publishing::Publishing;
use super::settings::HlsSettings;
use super::silence::{News, Silence};
use super::sounds;
use super::subtitles::{self, Spoken};
use super::{
    DASH, DELTA, ENDING, NAME, arrival, dvr, file_of, forgets, kept_at, start, stream_of, tailor, timed,
};
use crate::config::AppSettings;
use crate::hub::{AsPublished, Chosen, Entry, Fit, Pick, Selection};
use crate::jobs::ArchiveWork;
use crate::mail::{Progress, StreamEnd};
use crate::protocol::sinks::{SinkKind, SinkOrder};
use crate::protocol::{Context, Format, FormatKind};
use crate::types::Now;

/// The folder of the playlists for single tracks, which have low latency.
pub(super) const FOLDER: &str = "ll-hls";
/// Ending of the multivariant playlist that lists a playlist for each track.
pub(super) const MASTER: &str = "__master.m3u8";
const MARK: &str = "__";
/// Mark in the names of subtitle playlists, after the stream's id; the language follows.
pub(super) const SUBTITLES: &str = "__subs_";
/// Minimum time that the stream's first unit gets in the segments, in milliseconds. The first unit of another track
/// may be a little earlier, and times in segments cannot be negative.
const SPARE_MS: i64 = 1000;
/// Maximum time that the first multivariant playlist waits for a rendition that has begun, because players read it
/// only once.
const WAIT: Duration = Duration::from_secs(8);
/// Variant of the format for encrypted samples. Tracks with a codec that cannot be encrypted do not fit it.
const PROTECTED: u64 = 1;
/// The ending of the names of manifests.
pub(super) const MANIFEST: &str = ".mpd";

/// The sink that publishes one playlist for all tracks together.
pub(super) static TOGETHER: SinkKind = SinkKind {
    name: "hls-fmp4",
    is_enabled: |app| HlsSettings::of(app).enabled && HlsSettings::of(app).fragmented,
    stream_of: |_, name| stream_of(name),
    root: None,
    file_of,
    kept_at,
    forgets,
    begins_with_stream: HlsSettings::begins_with_stream,
    is_outdated: HlsSettings::are_sealed_otherwise,
    part_of: |_, _| None,
    ladder: None,
    is_glance: false,
    viewers: |_| NAME,
    params: tailor::PARAMS,
    begin: |now, order, seed| Box::new(LiveSink::new(Cmaf::new(now, order, Layout::Together, seed))),
};

/// The sink that publishes a playlist for each track, and the DASH manifest.
pub(super) static APART: SinkKind = SinkKind {
    name: "cmaf",
    is_enabled: |app| {
        let settings = HlsSettings::of(app);
        settings.enabled && settings.low_latency || settings.dash
    },
    stream_of: apart_stream,
    root: None,
    file_of: |_, name| Some(track_file(name)?.0),
    kept_at: kept_apart,
    forgets: forgets_apart,
    begins_with_stream: |app, details| {
        let settings = HlsSettings::of_stream(app, details);
        settings.begins_with_stream || settings.kept.is_some()
    },
    is_outdated: HlsSettings::are_sealed_otherwise,
    part_of: |app, name| part_of(&HlsSettings::of(app).rules.suffix, name),
    ladder: None,
    is_glance: false,
    viewers: |name| if name.ends_with(MANIFEST) { DASH } else { NAME },
    params: tailor::PARAMS,
    begin: |now, order, seed| Box::new(LiveSink::new(Cmaf::new(now, order, Layout::Apart, seed))),
};

/// Format of the units that the sinks take: as published, unpackaged.
pub(super) static FORMAT: FormatKind = FormatKind {
    name: "cmaf",
    counted_as: None,
    is_enabled: |app| (TOGETHER.is_enabled)(app) || (APART.is_enabled)(app),
    selection: Selection::DEFAULT,
    package: |form| Some(Box::new(AsPublished(if form == PROTECTED { fit_protected } else { fit }))),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// Takes the rendition with this name out of the list.
fn take_named(renditions: &mut Vec<Mp4Segmenter>, base: &str) -> Option<Mp4Segmenter> {
    let at = renditions.iter().position(|rendition| rendition.names().base == base)?;
    Some(renditions.remove(at))
}

/// True if a segment of the rendition has begun.
fn has_begun(rendition: &Mp4Segmenter) -> bool {
    rendition.window().begin_ms().is_some() || rendition.window().has_cut()
}

/// Returns the stream of a playlist in [`FOLDER`], or of a manifest; `None` if the application does not make such
/// files. Players that probe for them then get an immediate answer, instead of waiting for files that never appear.
fn apart_stream<'n>(app: &AppSettings, name: &'n str) -> Option<&'n str> {
    let (folder, file) = name.rsplit_once('/')?;
    let id = folder
        .strip_prefix(FOLDER)
        .and_then(|rest| rest.strip_prefix('/'))
        .filter(|_| file.ends_with(ENDING));
    let id = id.or_else(|| Some(folder).filter(|_| file.ends_with(MANIFEST)))?;
    let rest = file.strip_prefix(id)?;
    let settings = HlsSettings::of(app);
    let is_made = match rest {
        MASTER => settings.enabled && settings.low_latency,
        MANIFEST => settings.dash,
        _ => is_of_track(settings, rest),
    };
    (!id.is_empty() && !id.contains('/') && is_made).then_some(id)
}

/// Returns the stream of a segment or an initialization section of a track, and the name of the track's playlist
/// without its ending.
fn track_file(name: &str) -> Option<(&str, &str)> {
    let (id, file) = name.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
    let (stem, ending) = file.rsplit_once('.')?;
    let rest = stem.strip_prefix(id)?.strip_prefix(MARK)?;
    let (track, _) = rest.split_once('_')?;
    let is_file = matches!(ending, "m4s" | "mp4") && !file.contains('/') && is_track(track);
    let length = name.len().checked_sub(file.len())?.checked_add(id.len())?;
    let length = length.checked_add(MARK.len())?.checked_add(track.len())?;
    (is_file && !id.is_empty()).then_some((id, name.get(..length)?))
}

/// Returns the path on the disk of a track's segment or initialization section; `None` if viewers cannot rewind.
fn kept_apart(app: &str, settings: &AppSettings, name: &str) -> Option<Vec<String>> {
    HlsSettings::of(settings).dvr()?;
    let (_, playlist) = track_file(name)?;
    Some(dvr::kept_of(app, playlist, name))
}

/// Returns the work that removes the segments of an ended stream's tracks.
fn forgets_apart(app: &str, settings: &AppSettings, stem: &str) -> Option<ArchiveWork> {
    HlsSettings::of(settings).dvr()?;
    let id = stem.rsplit_once('/').map_or(stem, |(_, id)| id);
    Some(dvr::clearing_all(app, &format!("{FOLDER}/{id}/{id}{MARK}")))
}

/// True if the part of a name after the stream's id is that of a track's playlist: `__video.m3u8`, `__video2.m3u8`,
/// `__audio.m3u8`, `__audio1.m3u8`, or that of subtitles in a language of the setting: `__subs_en.m3u8`.
fn is_of_track(settings: &HlsSettings, rest: &str) -> bool {
    if let Some(language) = rest.strip_prefix(SUBTITLES).and_then(|rest| rest.strip_suffix(ENDING)) {
        return settings.told.languages.has(language);
    }
    let track = rest.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(ENDING));
    track.is_some_and(is_track)
}

/// True if the text names a track in a file name: `video`, `video2`, `audio`, `audio1`.
fn is_track(track: &str) -> bool {
    let number = ["video", "audio"].iter().find_map(|kind| track.strip_prefix(kind));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Splits a name into the text before its trailing digits, and their number.
fn digits_behind(name: &str) -> Option<(&str, u64)> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (before, number) = name.split_at_checked(name.len().checked_sub(digits)?)?;
    Some((before, number.parse().ok()?))
}

/// Returns the playlist that lists a part, and how far that playlist must have progressed to contain the part. `suffix`
/// is the application's suffix of segment names.
fn part_of(suffix: &Suffix, name: &str) -> Option<(String, Progress)> {
    let stem = name.strip_suffix(".m4s")?;
    let (segment, part) = stem.rsplit_once('.')?;
    let (rest, count) = suffix.split(segment)?;
    let (base, run) = digits_behind(rest.strip_suffix('_')?)?;
    let progress = Progress {
        segment: run.checked_add(count)?.checked_sub(1)?,
        part: part.parse::<u32>().ok()?.checked_add(1)?,
    };
    let base = base.strip_suffix('_')?;
    Some((format!("{base}{ENDING}"), progress))
}

/// Judges how well fragmented MP4 carries a track. Few players support Opus in it, so AAC is preferred.
pub(super) const fn fit(track: &Track) -> Fit {
    match track.config.codec() {
        Codec::H264 | Codec::H265 | Codec::Av1 | Codec::Vp9 => Fit::Well,
        Codec::Aac | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => Fit::Well,
        Codec::Opus => Fit::Rarely,
        Codec::Vp8 | Codec::G711(_) => Fit::No,
    }
}

/// Judges how well players take a track whose samples are encrypted.
pub(super) const fn fit_protected(track: &Track) -> Fit {
    if is_protectable(track.config.codec()) { fit(track) } else { Fit::No }
}

/// Applies the settings for encryption and metadata to a segmenter.
pub(super) fn segmenter(
    settings: &HlsSettings,
    segmenter: Mp4Segmenter,
    sealer: Option<Sealer>,
) -> Mp4Segmenter {
    let segmenter = segmenter.sealed_by(sealer);
    if settings.metadata.has_tags { segmenter.with_metadata() } else { segmenter }
}

/// Returns the format of units for a sink with these settings.
pub(super) fn format(settings: &HlsSettings) -> Format {
    Format::new(&FORMAT, if settings.protects_samples() { PROTECTED } else { 0 })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Together,
    Apart,
}

#[derive(Debug)]
struct Cmaf {
    layout: Layout,
    id: String,
    /// The folder of the playlists, with a slash at the end.
    folder: String,
    settings: HlsSettings,
    publishing: Publishing,
    /// Renditions, video first.
    renditions: Vec<Mp4Segmenter>,
    /// Renditions of tracks that have left the stream; their playlists continue with gaps until the tracks return.
    absent: Vec<Mp4Segmenter>,
    /// Audio renditions that joined later, with the time in milliseconds from which they have segments: the end of the
    /// segment that the first rendition was making then; `i64::MAX` until it is known.
    joining: Vec<(String, i64)>,
    /// Segment number and discontinuity number with which the first rendition starts.
    start: Start,
    /// Time at which the newest complete segment of the first rendition ends, in milliseconds.
    boundary_ms: Option<i64>,
    epochs: Epochs,
    /// Milliseconds added to decode times in segments.
    shift_ms: i64,
    dates: Dates,
    lag: Lag,
    shown: Shown,
}

/// Changes of the tracks.
#[derive(Debug, Default)]
struct Epochs {
    /// The [`Chosen::epoch`] of the tracks.
    chosen: u32,
    /// Number of changes that are discontinuities.
    shown: u32,
    /// Tracks that send nothing.
    silence: Silence,
}

/// Data of the multivariant playlist and the DASH manifest, which describe all renditions together.
#[derive(Debug)]
struct Shown {
    /// The subtitles beside a rendition.
    subtitles: Spoken,
    /// The multivariant playlist, as published, and the renditions of the one on the disk.
    master: String,
    members: Members,
    /// Caption channels found in the videos so far, and those that the publisher announces.
    captions: Known,
    /// The periods of the manifest.
    periods: Periods,
    /// The manifest of all segments to which viewers can rewind.
    window: Window,
    /// The time at which the multivariant playlist could first have been published.
    ready_at: Option<Instant>,
}

impl Cmaf {
    fn new(now: Now, order: &SinkOrder, layout: Layout, seed: Seed) -> Self {
        let id = order.key.id.to_string();
        let folder = match layout {
            Layout::Together => order.details.folder.clone(),
            Layout::Apart => format!("{FOLDER}/{id}/"),
        };
        let publishing = match layout {
            Layout::Together => Publishing::copied(now, order, seed, &format!("{folder}{id}{ENDING}")),
            Layout::Apart => {
                let mut publishing = Publishing::new(now, order, seed);
                // The manifest names segments, so it goes first.
                publishing.clear_former([format!("{id}/{id}{MANIFEST}"), format!("{folder}{id}{MARK}")]);
                publishing
            }
        };
        let settings = HlsSettings::of_stream(&order.settings, &order.details);
        let settings = match layout {
            Layout::Together => settings,
            Layout::Apart => settings.of_single_tracks(),
        };
        let form = subtitles::Form {
            base: &format!("{id}{SUBTITLES}"),
            suffix: "",
            zero: Zero { shift_ms: 0, ticks: 0 },
            has_track: settings.dash,
        };
        let shown = Shown {
            subtitles: Spoken::new(&settings, form),
            master: String::new(),
            members: Members::default(),
            captions: Known::default(),
            periods: Periods::new(start(now).number),
            window: Window::default(),
            ready_at: None,
        };
        Self {
            layout,
            id,
            folder,
            settings,
            publishing,
            renditions: Vec::new(),
            absent: Vec::new(),
            joining: Vec::new(),
            start: start(now),
            boundary_ms: None,
            epochs: Epochs::default(),
            shift_ms: 0,
            dates: Dates::new(),
            lag: Lag::default(),
            shown,
        }
    }

    // ---- tracks

    /// Returns the names of the renditions of these tracks, video first, with the tracks of each. Silent tracks are left
    /// out.
    fn groups(&self, chosen: &Chosen) -> Vec<(String, Vec<Track>)> {
        let is_present = |track: &Track| !self.epochs.silence.is_silent(track.id);
        if self.layout == Layout::Together {
            let tracks = chosen.iter().filter(|track| is_present(track));
            return vec![(self.id.clone(), tracks.cloned().collect())];
        }
        let videos: Vec<&Track> = chosen.of_kind(TrackKind::Video).collect();
        let video = |track: &Track| match videos.len() {
            1 => format!("{}{MARK}video", self.id),
            _ => format!("{}{MARK}video{}", self.id, track.number()),
        };
        let fit = if self.settings.protects_samples() { fit_protected } else { fit };
        let sounds = sounds::to_choose(chosen.of_kind(TrackKind::Audio), fit);
        let audio = |track: &Track| format!("{}{MARK}audio{}", self.id, sounds::suffix(track.number()));
        let videos = videos.iter().map(|track| (video(track), vec![(*track).clone()]));
        let all = videos.chain(sounds.iter().map(|track| (audio(track), vec![(*track).clone()])));
        all.filter(|(_, tracks)| tracks.iter().all(is_present)).collect()
    }

    /// Returns the tracks that may hold back others: the video that leads and, in renditions of their own, the audio
    /// beside it.
    fn may_fall_silent<'t>(&self, chosen: &'t Chosen) -> impl Iterator<Item = &'t Track> {
        let is_apart = self.layout == Layout::Apart;
        let videos = chosen.of_kind(TrackKind::Video).take(1);
        let sounds = chosen.of_kind(TrackKind::Audio).filter(move |_| is_apart);
        let has_lead = chosen.lead().is_some();
        videos.chain(sounds).skip(usize::from(!has_lead))
    }

    /// True if these groups differ from the present renditions, apart from additional audio, which joins and leaves
    /// without a discontinuity in the other renditions.
    fn is_other_stretch(&self, groups: &[(String, Vec<Track>)]) -> bool {
        let is_sound = |tracks: &[Track]| tracks.first().is_some_and(|one| one.kind() == TrackKind::Audio);
        let before: Vec<(&str, &[Track])> =
            self.renditions.iter().map(|one| (one.names().base.as_str(), one.tracks())).collect();
        let after: Vec<(&str, &[Track])> =
            groups.iter().map(|(base, tracks)| (base.as_str(), tracks.as_slice())).collect();
        let is_extra = |all: &[(&str, &[Track])], at: usize| {
            let first = all.iter().position(|(_, tracks)| is_sound(tracks));
            first.is_some_and(|first| first < at)
        };
        let is_same = |a: &[Track], b: &[Track]| {
            let identity = |track: &Track| (track.id, track.epoch);
            a.iter().map(identity).eq(b.iter().map(identity))
        };
        let differs = |of: &[(&str, &[Track])], others: &[(&str, &[Track])]| {
            of.iter().enumerate().any(|(at, (base, tracks))| {
                let other = others.iter().find(|(other, _)| other == base);
                other.map_or_else(|| !is_extra(of, at), |(_, other)| !is_same(tracks, other))
            })
        };
        before.is_empty() || differs(&before, &after) || differs(&after, &before)
    }

    /// Makes the renditions of these tracks. A rendition that remains keeps its playlist. If only silence has begun or
    /// ended, the segments of the others go on, except where silent pictures return: they begin with a segment of all.
    fn set_tracks(&mut self, chosen: &Chosen, news: News) {
        self.epochs.chosen = chosen.epoch();
        let groups = self.groups(chosen);
        let is_free = news == News::Sound || news == News::Silence && chosen.videos().len() < 2;
        let goes_on = is_free && self.layout == Layout::Apart;
        let is_other = !goes_on && self.is_other_stretch(&groups);
        self.epochs.shown = self.epochs.shown.saturating_add(u32::from(is_other));
        let parts = self.layout == Layout::Apart && self.settings.low_latency;
        let mut before = std::mem::take(&mut self.renditions);
        let start = before.first_mut().map_or(self.start, |lead| {
            // A new rendition begins with the segment in which the others go on, after their discontinuity.
            let stays = groups.iter().any(|(base, _)| *base == lead.names().base);
            if is_other && stays {
                lead.set_tracks(lead.tracks().to_vec(), self.epochs.shown);
            } else if is_other {
                lead.pause();
            }
            let Start { number, discontinuities } = lead.window().start_beside();
            let is_behind = is_other && lead.window().has_cut();
            Start { number, discontinuities: discontinuities.saturating_add(u64::from(is_behind)) }
        });
        let end_ms = before.first().filter(|_| is_other).map(|lead| lead.window().end_ms());
        let begins_later = !is_other && before.first().is_some_and(has_begun);
        // Audio that waits for the end of this segment continues to wait, unless the segment ends here.
        let waits = |base: &String| !is_other && groups.iter().any(|(other, _)| other == base);
        self.joining.retain(|(base, from_ms)| *from_ms == i64::MAX && waits(base));
        let target = before.first().map(|lead| lead.window().playlist().target_duration);
        for (base, tracks) in groups {
            if let Some(same) = take_named(&mut before, &base) {
                self.renditions.push(same);
            } else {
                let mut former = take_named(&mut self.absent, &base);
                // Does nothing if it has segments.
                if let Some(former) = &mut former {
                    former.begin_at(start);
                    let dates = &self.dates;
                    end_ms.map(|end_ms| former.pass(end_ms, |dts_ms| dates.date_ms(dts_ms)));
                }
                if begins_later {
                    self.joining.push((base.clone(), i64::MAX));
                }
                let mut rendition = former.unwrap_or_else(|| {
                    let run = (self.layout == Layout::Apart).then_some(start.number);
                    let names = Names { base, ending: "m4s", run };
                    // Players get one key only, so the samples of all tracks are encrypted with the same key.
                    let of = if self.settings.protects_samples() { &self.id } else { &names.base };
                    let sealer = self.publishing.sealer(&self.settings.sealing, of);
                    if self.layout == Layout::Apart {
                        let playlist = format!("{}{}{ENDING}", self.folder, names.base);
                        self.publishing.go_back(&playlist);
                        self.publishing.copy_track(&playlist);
                    }
                    let new = Mp4Segmenter::new(names, &self.settings.rules, parts, (start, self.shift_ms));
                    segmenter(&self.settings, new, sealer)
                });
                rendition.set_tracks(tracks.clone(), self.epochs.shown);
                self.renditions.push(rendition);
            }
            let Some(rendition) = self.renditions.last_mut() else { continue };
            target.into_iter().for_each(|target| rendition.adopt(target));
            if is_other {
                rendition.set_tracks(tracks, self.epochs.shown);
            }
        }
        for mut rendition in before {
            rendition.pause();
            self.publish_rendition(&mut rendition, Vec::new());
            self.absent.push(rendition);
        }
    }

    /// Called at the end of a segment of the first rendition: audio renditions that have joined begin here, and
    /// continue the first rendition's segment numbers.
    fn join(&mut self, end_ms: i64) {
        let Some((lead, others)) = self.renditions.split_first_mut() else { return };
        let mark = lead.window().mark();
        for (base, from_ms) in self.joining.iter_mut().filter(|(_, from_ms)| *from_ms == i64::MAX) {
            *from_ms = end_ms;
            let Some(one) = others.iter_mut().find(|one| one.names().base == *base) else { continue };
            if let Some(mark) = mark.filter(|_| !one.window().has_cut()) {
                one.begin_at(Start { number: mark.number, discontinuities: mark.discontinuities });
            }
            let dates = &self.dates;
            one.pass(end_ms, |dts_ms| dates.date_ms(dts_ms));
        }
    }

    /// Notes an audio rendition whose first unit arrives after the first rendition has cut a segment: the audio joins
    /// when the first rendition ends its current segment.
    fn join_late(&mut self, at: usize) {
        let is_late = self.renditions.first().is_some_and(|lead| lead.window().has_cut());
        let Some(one) = self.renditions.get(at).filter(|one| is_late && !has_begun(one)) else { return };
        let base = &one.names().base;
        if self.joining.iter().all(|(joining, _)| joining != base) {
            self.joining.push((base.clone(), i64::MAX));
        }
    }

    /// True if the unit is dropped because its audio rendition only begins when the first rendition ends its segment.
    fn is_early(&self, at: usize, dts_ms: i64) -> bool {
        let base = self.renditions.get(at).map(|one| one.names().base.as_str());
        let joins = self.joining.iter().find(|(joining, _)| Some(joining.as_str()) == base);
        joins.is_some_and(|(_, from_ms)| dts_ms < *from_ms)
    }

    /// Called when a further video has begun a segment: gives the segment the number of the first video's segment that
    /// covers the same time, and lets both segments end close to each other.
    fn keep_beside(&mut self, at: usize) {
        let lead = self.renditions.first().and_then(|lead| lead.window().mark());
        let own = self.renditions.get_mut(at).map(Mp4Segmenter::window_mut);
        let (Some(lead), Some(window)) = (lead, own) else { return };
        let Some(mark) = window.mark() else { return };
        let (end_ms, begin_ms) =
            (lead.begin_ms.saturating_add(self.settings.rules.segment_ms), mark.begin_ms);
        // The first video may not have begun the segment that covers this time yet.
        let is_ahead = begin_ms >= end_ms.saturating_sub(SNAP_MS);
        let number = lead.number.saturating_add(u64::from(is_ahead)).max(mark.number);
        window.begin_at(Start { number, discontinuities: lead.discontinuities });
        let is_same = begin_ms.saturating_sub(lead.begin_ms).saturating_abs() <= SNAP_MS;
        if !is_ahead && !is_same {
            let next_ms = if begin_ms < lead.begin_ms { lead.begin_ms } else { end_ms };
            window.end_from(next_ms.saturating_sub(SNAP_MS));
        }
    }

    /// Sets the target duration of all renditions once the first one has enough segments for a playlist. If the
    /// first one has no segment, another rendition that has waited long enough suffices.
    fn settle(&mut self, ended: bool) {
        let Some((lead, others)) = self.renditions.split_first() else { return };
        let others_ripe =
            || others.iter().any(|one| one.window().is_ripe() && (ended || one.window().has_waited()));
        let all = || self.renditions.iter().chain(&self.absent);
        if lead.window().is_ripe() || !lead.window().has_cut() && others_ripe() {
            let target = all().map(|one| one.window().wanted_target()).max().unwrap_or_default();
            self.renditions.iter_mut().chain(&mut self.absent).for_each(|one| one.adopt(target));
        }
    }

    // ---- outputs

    /// Publishes new blobs: segments and parts before the playlists that name them.
    fn publish(&mut self, now: Now) {
        let mut renditions = std::mem::take(&mut self.renditions);
        let mut changed = false;
        for index in 0..renditions.len() {
            let reports = self.reports(&renditions, index);
            if let Some(rendition) = renditions.get_mut(index) {
                changed |= self.publish_rendition(rendition, reports);
            }
        }
        self.renditions = renditions;
        if changed {
            self.publish_lists(now);
        }
    }

    fn reports(&self, renditions: &[Mp4Segmenter], index: usize) -> Vec<Report> {
        if !self.settings.low_latency || self.layout == Layout::Together {
            return Vec::new();
        }
        let others = renditions.iter().enumerate().filter(|(other, _)| *other != index);
        let report = |rendition: &Mp4Segmenter| {
            let (segment, part) = rendition.progress();
            let whole = rendition.window().playlist().segments.last().map_or(0, |last| last.parts.len());
            // Just after the end of a segment, its last part is the newest one (RFC 8216bis §4.4.5.4).
            let parts = if part > 0 { u64::from(part) } else { u64::try_from(whole).unwrap_or(0) };
            Report {
                uri: format!("{}{ENDING}", rendition.names().base),
                last_segment: if part > 0 { segment } else { segment.saturating_sub(1) },
                last_part: parts.checked_sub(1),
            }
        };
        others.map(|(_, rendition)| report(rendition)).collect()
    }

    /// Publishes the new files of a rendition, and its playlist. Returns false if nothing is new.
    fn publish_rendition(&mut self, rendition: &mut Mp4Segmenter, reports: Vec<Report>) -> bool {
        let made = rendition.take_made();
        if made.is_empty() && !rendition.window().is_over() {
            return false;
        }
        self.publish_made(rendition, made, reports);
        true
    }

    /// Publishes new segments of a rendition, then its playlist.
    fn publish_made(&mut self, rendition: &mut Mp4Segmenter, made: Vec<Made>, reports: Vec<Report>) {
        let ended = rendition.window().playlist().ended;
        let folder = self.folder.clone();
        self.publishing.leave(rendition.take_left().into_iter().map(|name| format!("{folder}{name}")));
        self.publishing.forget(rendition.take_gone().into_iter().map(|name| format!("{folder}{name}")));
        self.describe(rendition, &made);
        for made in made {
            let name = format!("{folder}{}", made.name);
            if made.is_init {
                self.publishing.init(&name, made.bytes);
            } else if part_of(&self.settings.rules.suffix, &made.name).is_some() {
                self.publishing.part(&name, made.bytes);
            } else {
                self.publishing.resource(&name, made.bytes);
            }
        }
        if !rendition.window().is_enough() {
            return;
        }
        self.dates.settle();
        let (segment, part) = rendition.progress();
        let progress = if ended { Progress::ENDED } else { Progress { segment, part } };
        let name = format!("{folder}{}{ENDING}", rendition.names().base);
        let mut playlist = rendition.playlist();
        if let Some(low) = &mut playlist.low_latency {
            low.reports = reports;
            let delta = playlist.delta().unwrap_or_else(|| playlist.clone());
            self.publishing.playlist(&format!("{name}{DELTA}"), delta.to_string(), progress);
        }
        self.publishing.media_playlist(&name, &playlist, progress);
    }

    /// Adds gaps to the playlists of absent tracks, up to the end of the first rendition's newest segment.
    fn pass_absent(&mut self, end_ms: i64) {
        let mut absent = std::mem::take(&mut self.absent);
        for rendition in &mut absent {
            let dates = &self.dates;
            if rendition.pass(end_ms, |dts_ms| dates.date_ms(dts_ms)) {
                self.publish_made(rendition, Vec::new(), Vec::new());
            }
        }
        self.absent = absent;
    }

    /// Returns the wall-clock date of a unit. If the unit's arrival shows that the dates were wrong, the dates in all
    /// renditions are corrected.
    fn date(&mut self, entry: &Entry) -> i64 {
        let moved_ms = self.dates.note(arrival(entry), self.epochs.shown);
        let renditions = self.renditions.iter_mut().chain(&mut self.absent);
        renditions.for_each(|rendition| rendition.move_dates(moved_ms));
        if self.dates.is_due() {
            // Dates jump where a segment of the first rendition ends, and for all renditions at the same time (RFC
            // 8216bis §6.2.4).
            let lead = self.renditions.first().filter(|lead| lead.has(entry.unit.track));
            if let Some(end_ms) = lead.and_then(|lead| lead.end_before(&timed(entry, 0))) {
                self.dates.jump(end_ms);
            }
        }
        self.dates.date_ms(entry.dts_ms)
    }

    fn take_media(&mut self, now: Now, entry: &Entry, chosen: &Chosen) {
        if chosen.epoch() != self.epochs.chosen {
            let is_first = self.epochs.chosen == 0;
            if is_first {
                // Leaves room for other tracks, which may begin a little earlier.
                self.shift_ms = SPARE_MS.saturating_sub(entry.dts_ms).max(0);
                self.shown.subtitles.set_zero(Zero { shift_ms: self.shift_ms, ticks: 0 });
            }
            self.epochs.silence = Silence::of(self.may_fall_silent(chosen));
            self.set_tracks(chosen, News::Tracks);
        }
        match self.epochs.silence.note(entry) {
            Some(News::KeyFrameNeeded(track)) => self.publishing.need_key_frame(track),
            Some(news) => {
                self.set_tracks(chosen, news);
                // The lists may have waited for a track that is silent now.
                if news == News::Silence {
                    self.publish_lists(now);
                }
            }
            None => {}
        }
        self.lag.note(entry, chosen);
        let is_lead = self.renditions.first().is_some_and(|lead| lead.has(entry.unit.track));
        self.settings.told.captions.note(&mut self.shown.captions, entry, is_lead);
        let date_ms = self.date(entry);
        let boundary = self.boundary_ms;
        let Some(at) = self.renditions.iter().position(|rendition| rendition.has(entry.unit.track)) else {
            return;
        };
        let is_follower = at > 0 && entry.kind == Some(TrackKind::Audio);
        if is_follower {
            self.join_late(at);
            if self.is_early(at, entry.dts_ms) {
                return;
            }
        }
        let Some(rendition) = self.renditions.get_mut(at) else { return };
        let begun_ms = rendition.window().begin_ms();
        if is_follower {
            rendition.follow(&timed(entry, date_ms), boundary);
        } else if let Some(end) = rendition.unit(&timed(entry, date_ms)).filter(|_| at == 0) {
            self.boundary_ms = Some(end);
            self.pass_absent(end);
            self.join(end);
        } else if at > 0 && rendition.window().begin_ms() != begun_ms {
            self.keep_beside(at);
        }
        self.settle(false);
        self.publish(now);
    }

    /// Publishes the remaining media of the stream.
    fn end(&mut self, now: Now, end: StreamEnd) {
        let is_told = self.settings.ends.with(end);
        self.renditions.iter_mut().chain(&mut self.absent).for_each(|rendition| rendition.finish(is_told));
        self.settle(true);
        let mut absent = std::mem::take(&mut self.absent);
        for rendition in &mut absent {
            self.publish_rendition(rendition, Vec::new());
        }
        self.publish(now);
        self.publish_manifest(now, is_told);
    }
}

impl Presenter for Cmaf {
    fn format(&self) -> Format {
        let pick = if self.layout == Layout::Apart { Pick::First } else { Pick::Default };
        let audio = if self.layout == Layout::Apart { Pick::All } else { Pick::Default };
        let data = self.settings.metadata.pick();
        format(&self.settings).select(Selection { video: pick, audio, data, ..Selection::DEFAULT })
    }

    fn publishing(&self) -> &Publishing {
        &self.publishing
    }

    fn publishing_mut(&mut self) -> &mut Publishing {
        &mut self.publishing
    }

    fn take(&mut self, ctx: &Context<'_>, entry: &Entry, chosen: &Chosen) {
        self.take_media(ctx.now, entry, chosen);
    }

    /// Adds timed metadata to the video renditions, where players look for it, or to the first rendition if there
    /// is no video. The playlists of all renditions list splice information.
    fn take_data(&mut self, entry: &Entry) {
        self.shown.subtitles.take(entry, 0);
        let tags = self.settings.metadata.tags(entry);
        let (at_ms, date_ms) = (entry.unit.pts, self.dates.date_ms(self.lag.dts_ms(entry.unit.pts)));
        let place = Place { at_ms, date_ms, zero_ms: self.shift_ms };
        let cue = self.settings.metadata.cue(entry, place);
        let cue = cue.filter(|_| self.dates.reading().is_some());
        let has_pictures = |rendition: &Mp4Segmenter| {
            rendition.tracks().iter().any(|track| track.kind() == TrackKind::Video)
        };
        let first = self.renditions.iter().position(has_pictures).unwrap_or(0);
        for (at, rendition) in self.renditions.iter_mut().enumerate() {
            let has_events = at == first || has_pictures(rendition);
            cue.iter().for_each(|cue| rendition.cue(cue, has_events));
            tags.iter().filter(|_| has_events).for_each(|tags| rendition.metadata(entry.dts_ms, tags));
        }
        // The end of an ad break is also listed by renditions whose tracks have left.
        for rendition in &mut self.absent {
            let has_events = has_pictures(rendition);
            cue.iter().for_each(|cue| rendition.cue(cue, has_events));
        }
    }

    fn set_key(&mut self, key: GivenKey) {
        let renditions = self.renditions.iter_mut().chain(&mut self.absent);
        renditions.for_each(|rendition| rendition.set_key(key.clone()));
    }

    fn finish(&mut self, ctx: &Context<'_>, end: StreamEnd) {
        self.end(ctx.now, end);
    }
}
