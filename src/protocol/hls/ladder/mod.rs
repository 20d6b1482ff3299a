//! The renditions of a ladder: the video tracks of a stream, or several streams that are subtracks of one main track
//! (`hls.group=renditions`), and the multivariant playlist of all of them.
//!
//! ```text
//! together   streams/{main}_adaptive.m3u8                           all renditions
//!                    {main}_{height}p{kbit/s}kbps.m3u8              one of them, and its segments
//! apart      streams/ll-hls/{main}/{main}__master_adaptive.m3u8     the same with low latency
//!                                  {main}_{height}p{kbit/s}kbps.m3u8
//!                                  {main}__adaptive_audio.m3u8      audio that all share
//!            streams/{main}/{main}_adaptive.mpd                     DASH, of the same segments
//! ```
//!
//! 1. A request for the playlist or the manifest of all renditions starts this sink for the leading stream: the main
//!    track if it is live, otherwise its first subtrack. The sink announces itself to the other streams
//!    ([`Rung`](crate::mail::Rung)), whose workers then start sinks of their own; so do those of later streams.
//! 2. Each stream has its own sink. All streams share one time, and therefore the timestamps of segments ([`clock`]).
//!    The other streams use the segment numbers and boundaries of the leading one, as far as their key frames allow
//!    ([`rung`]).
//! 3. Of the running sinks, the one that began first publishes the playlist of all. A sink that ends while others
//!    continue removes its playlist at once: players switch to another rendition if a playlist is gone, but not if it
//!    has ended or stalls.
//! 4. With separate tracks, the audio of each stream is a rendition with the numbers and boundaries of its video. All
//!    variants share the audio of the first stream; when that stream ends, the next one continues under the same
//!    name. [`apart`] has the list and the manifest.

mod apart;
mod clock;
mod list;
mod manifest;
mod rung;
mod sounds;
mod subtitles;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use hls::playlist::{MediaPlaylist, Report};
use hls::segmenter::{GivenKey, Start};
use media::captions::Known;

use self::apart::{Board, Listed, Splice};
use self::clock::Clock;
pub(super) use self::clock::SNAP_MS;
use self::rung::{Beside, Lead, Rung, longest_ms};
use super::cmaf;
use super::live::{LiveSink, Presenter};
use super::metadata::{Lag, Place};
use super::publishing::Publishing;
use super::settings::HlsSettings;
use super::sink;
use super::subtitles::Spoken;
use super::{DASH, DELTA, ENDING, NAME, start, stream_of, tailor};
use crate::config::AppSettings;
use crate::hub::{Blobs, Chosen, Entry, Pick, Selection};
use crate::mail::{self, Progress, StreamEnd};
use crate::protocol::sinks::{SinkKind, SinkOrder};
use crate::protocol::{Context, Format};
use crate::types::{Now, StreamId, StreamKey};

/// Suffix of the multivariant playlist's name, after the main track's id.
const MASTER: &str = "_adaptive.m3u8";
/// Suffixes of the names of the low-latency multivariant playlist and of the manifest.
const MASTER_APART: &str = "__master_adaptive.m3u8";
const MANIFEST: &str = "_adaptive.mpd";
/// Maximum number of renditions that a ladder lists.
const RUNGS_MAX: usize = 16;
/// Maximum wait for a rendition whose playlist does not exist yet, because players read the multivariant playlist
/// only once.
const WAIT: Duration = Duration::from_secs(8);
/// The rates in names of renditions are multiples of this, in kbit/s.
const KBPS_STEP: u64 = 50;

/// The sink of a ladder in which video and audio are in the same segments.
pub(super) static KIND: SinkKind = SinkKind {
    name: "ladder",
    is_enabled: |app| HlsSettings::of(app).enabled,
    stream_of: |_, name| of_master(name),
    root: None,
    file_of: |_, _| None,
    kept_at: |_, _, _| None,
    forgets: |_, _, _| None,
    begins_with_stream: |app, details| {
        let is_several = details.main.is_some() || details.videos > 1 || details.sounds > 1;
        (is_several || HlsSettings::has_subtitles(app)) && HlsSettings::of(app).begins_with_stream
    },
    is_outdated: HlsSettings::are_sealed_otherwise,
    part_of: |_, _| None,
    ladder: Some(HlsSettings::has_subtitles),
    is_glance: false,
    viewers: |_| NAME,
    params: tailor::PARAMS,
    begin: |now, order, seed| Box::new(LiveSink::new(Ladder::new(now, order, Layout::Together, seed))),
};

/// The sink of a ladder in which each rendition has a single track, with low latency and for DASH.
pub(super) static APART: SinkKind = SinkKind {
    name: "ladder-apart",
    is_enabled: |app| (cmaf::APART.is_enabled)(app),
    stream_of: of_master_apart,
    part_of: |_, _| None,
    viewers: |name| if name.ends_with(cmaf::MANIFEST) { DASH } else { NAME },
    begin: |now, order, seed| Box::new(LiveSink::new(Ladder::new(now, order, Layout::Apart, seed))),
    ..KIND
};

/// The form of the renditions of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Audio is in the segments of each video.
    Together,
    /// Each track has segments of its own.
    Apart,
}

impl Layout {
    /// Returns the kind of the sink.
    const fn kind(self) -> &'static str {
        match self {
            Self::Together => KIND.name,
            Self::Apart => APART.name,
        }
    }

    /// Returns the folder of the blobs that describe renditions; names that begin with a dot are not served.
    const fn records(self) -> &'static str {
        match self {
            Self::Together => ".ladder",
            Self::Apart => ".ladder-apart",
        }
    }
}

/// Returns the id of the main track, if this is the name of a ladder's multivariant playlist.
fn of_master(name: &str) -> Option<&str> {
    let path = name.strip_suffix(MASTER)?;
    stream_of(name)?;
    let id = path.rsplit_once('/').map_or(path, |(_, id)| id);
    (!id.is_empty()).then_some(id)
}

/// Returns the id of the main track, if this is the name of the multivariant playlist or the manifest of a ladder with
/// renditions of single tracks, and the application makes such files.
fn of_master_apart<'n>(app: &AppSettings, name: &'n str) -> Option<&'n str> {
    let settings = HlsSettings::of(app);
    let (folder, file) = name.rsplit_once('/')?;
    let main = match folder.strip_prefix(cmaf::FOLDER).and_then(|rest| rest.strip_prefix('/')) {
        Some(main) if settings.enabled && settings.low_latency => {
            Some(main).filter(|main| file.strip_prefix(*main) == Some(MASTER_APART))
        }
        _ => Some(folder).filter(|main| settings.dash && file.strip_prefix(*main) == Some(MANIFEST)),
    };
    main.filter(|main| !main.is_empty() && !main.contains('/'))
}

#[derive(Debug)]
struct Ladder {
    layout: Layout,
    stream: StreamId,
    key: StreamKey,
    /// The id of the main track.
    main: Arc<str>,
    /// The folder of the playlists, with a slash at the end.
    folder: String,
    settings: HlsSettings,
    start: Start,
    publishing: Publishing,
    clock: Clock,
    lag: Lag,
    /// Renditions; at most as many as a stream may have tracks.
    rungs: Vec<Rung>,
    around: Around,
    subtitles: Spoken,
    shown: Shown,
}

/// State of the ladder other than its renditions.
#[derive(Debug, Default)]
struct Around {
    /// Renditions whose tracks have left while there is no other rendition to switch to; their playlists continue
    /// with gaps.
    absent: Vec<Rung>,
    /// Time at which the newest complete segment of the first rendition ends.
    boundary_ms: Option<i64>,
    chosen_epoch: u32,
    /// The renditions of other streams, as of the last key frame.
    beside: Beside,
}

/// The multivariant playlist as published, and the contents of the manifest.
#[derive(Debug, Default)]
struct Shown {
    text: String,
    /// For each shared audio playlist that this stream publishes, by number, the segments of another stream that it
    /// continues; and true once another stream is to continue these playlists.
    splices: BTreeMap<u8, Splice>,
    is_left: bool,
    /// Renditions and periods of the manifest; and the sum of the numbers of other streams' newest segments at the
    /// last check, by which new segments are noticed.
    board: Board,
    others: u64,
    /// The time at which the playlist could first have been published.
    ready_at: Option<Instant>,
}

impl Shown {
    /// True while the first playlist, or manifest, waits for renditions that have just begun.
    fn waits(&mut self, now: Instant) -> bool {
        let ready_at = *self.ready_at.get_or_insert(now);
        now.saturating_duration_since(ready_at) < WAIT
    }
}

impl Ladder {
    fn new(now: Now, order: &SinkOrder, layout: Layout, seed: Seed) -> Self {
        let main = order.details.main.as_ref();
        let id = main.map_or_else(|| Arc::clone(&order.key.id), |main| Arc::clone(&main.key.id));
        let settings = HlsSettings::of_stream(&order.settings, &order.details);
        let (folder, settings) = match layout {
            Layout::Together => (main.map_or(&order.details.folder, |main| &main.folder).clone(), settings),
            Layout::Apart => (format!("{}/{id}/", cmaf::FOLDER), settings.of_single_tracks()),
        };
        let start = start(now);
        let subtitles = subtitles::of(&settings, layout, &order.key.id, start);
        Self {
            layout,
            stream: order.stream,
            key: order.key.clone(),
            folder,
            settings,
            start,
            publishing: Publishing::of_ladder(now, order, seed, Arc::clone(&id)),
            main: id,
            clock: Clock::new(),
            lag: Lag::default(),
            rungs: Vec::new(),
            around: Around::default(),
            subtitles,
            shown: Shown::default(),
        }
    }

    /// True if the ladder's segments are fragmented MP4.
    const fn has_mp4(&self) -> bool {
        matches!(self.layout, Layout::Apart) || self.settings.fragmented
    }

    /// Returns the renditions of other streams.
    fn others<'b>(&self, blobs: &'b Blobs) -> Vec<(StreamId, &'b mail::Rung)> {
        let mut rungs = blobs.rungs(&self.key.app, &self.main);
        rungs.retain(|(stream, rung)| *stream != self.stream && rung.sink == self.layout.kind());
        rungs
    }

    /// True if a rendition of another stream began before those of this one, and so precedes them.
    fn is_earlier(&self, (stream, rung): (StreamId, &mail::Rung)) -> bool {
        (rung.began, stream) < (self.start.number, self.stream)
    }

    /// True if this stream publishes the blobs that belong to the whole ladder.
    fn leads(&self, blobs: &Blobs) -> bool {
        self.others(blobs).first().is_none_or(|first| !self.is_earlier(*first))
    }

    /// True if all variants share the audio of this stream.
    fn leads_sound(&self, blobs: &Blobs) -> bool {
        let others = self.others(blobs);
        !others.iter().any(|(stream, rung)| rung.is_sound && self.is_earlier((*stream, rung)))
    }

    /// Returns the facts that the renditions of this stream need about those of other streams.
    fn beside(&self, blobs: &Blobs) -> Beside {
        let others = self.others(blobs);
        let earlier = || others.iter().filter(|one| self.is_earlier(**one));
        let lead = earlier().find(|(_, rung)| !rung.is_sound).or_else(|| earlier().next());
        Beside {
            lead: lead.map(|(_, first)| Lead {
                marks: first.marks.clone(),
                keys: first.keys.clone(),
                target: first.target,
            }),
            longest_ms: others.iter().map(|(_, one)| longest_ms(&one.marks, &one.keys)).max().unwrap_or(0),
        }
    }

    /// Returns the facts that one rendition needs about the others.
    fn beside_of(&self, at: usize) -> Beside {
        let mut beside = self.around.beside.clone();
        let own = self.rungs.iter().enumerate().filter(|(other, _)| *other != at);
        for (other, rung) in own {
            let lead = rung.lead();
            beside.longest_ms = beside.longest_ms.max(longest_ms(&lead.marks, &lead.keys));
            if other == 0 && beside.lead.is_none() && !lead.marks.is_empty() {
                beside.lead = Some(lead);
            }
        }
        beside
    }

    // ---- inputs

    /// Fixes the time of this stream, and processes the units that were held back until then.
    fn settle(&mut self, ctx: &Context<'_>) {
        self.around.beside = self.beside(ctx.blobs);
        for (entry, chosen) in self.clock.settle(self.around.beside.lead.as_ref()) {
            self.take_timed(ctx, &entry, &chosen);
        }
    }

    /// Makes the renditions of these tracks, and removes those whose tracks have left.
    fn set_tracks(&mut self, ctx: &Context<'_>, chosen: &Chosen) {
        self.around.chosen_epoch = chosen.epoch();
        let wanted = self.wanted(chosen);
        let mut before = std::mem::take(&mut self.rungs);
        before.append(&mut self.around.absent);
        for selection in wanted {
            let own = before.iter().position(|rung| rung.is_of(selection)).map(|at| before.remove(at));
            let mut rung = own.unwrap_or_else(|| {
                // All renditions of one stream have the same segment numbers.
                let lead = self.rungs.first().filter(|lead| lead.name().is_some());
                let start = lead.map_or(self.start, |lead| lead.window().start_beside());
                // Players get one key only, so the samples of all tracks are encrypted with the same key.
                let is_one_key = self.settings.protects_samples();
                let name = if is_one_key { String::new() } else { rung::key_name(selection, chosen.all()) };
                let sealer = self.publishing.sealer(&self.settings.sealing, &name);
                Rung::new((selection, chosen.all()), (self.layout, &self.settings), start, sealer)
            });
            let namer = self.namer(ctx.blobs, &rung);
            rung.set_tracks(chosen, &self.around.beside, |height, kbps| namer.name(height, kbps));
            self.rungs.push(rung);
        }
        let goes_on = self.layout == Layout::Apart && self.others(ctx.blobs).is_empty();
        let is_alone = |rung: &Rung, left: &[Rung]| left.iter().all(|other| other.is_sound != rung.is_sound);
        for mut rung in before {
            if rung.is_other_sound() || goes_on && is_alone(&rung, &self.rungs) {
                rung.pause();
                self.around.absent.push(rung);
            } else {
                self.remove(&rung);
            }
        }
    }

    /// Takes a unit whose time is known.
    fn take_timed(&mut self, ctx: &Context<'_>, entry: &Entry, chosen: &Chosen) {
        if chosen.epoch() != self.around.chosen_epoch {
            self.set_tracks(ctx, chosen);
        }
        self.lag.note(entry, chosen);
        let shared = self.clock.shared(entry);
        let is_end = |rung: &Rung| rung.end_before(&shared).is_some();
        let jumps = self.clock.is_due() && self.rungs.first().is_some_and(is_end);
        if jumps {
            self.clock.jump(entry);
        }
        let shared = if jumps { self.clock.shared(entry) } else { shared };
        let date_ms = self.clock.date_ms(entry.dts_ms);
        if self.rungs.iter().any(|rung| rung.begins_with(&shared)) {
            self.around.beside = self.beside(ctx.blobs);
        }
        if let Some(end_ms) = self.rungs.first().and_then(|lead| lead.end_before(&shared)) {
            self.around.boundary_ms = Some(end_ms);
            let offset_ms = date_ms.saturating_sub(shared.dts_ms);
            let dated = |ms: i64| ms.saturating_add(offset_ms);
            self.around.absent.iter_mut().for_each(|rung| rung.pass(end_ms, dated));
            self.rungs.iter_mut().for_each(|rung| rung.resume(end_ms, dated));
        }
        for at in 0..self.rungs.len() {
            self.take_into(ctx, at, &shared, date_ms);
        }
        self.publish(ctx);
    }

    /// Passes a unit to a rendition.
    fn take_into(&mut self, ctx: &Context<'_>, at: usize, shared: &Entry, date_ms: i64) {
        let beside = self.beside_of(at);
        let namer = self.rungs.get(at).filter(|rung| rung.name().is_none());
        let namer = namer.map(|rung| self.namer(ctx.blobs, rung));
        let has_begun = self.rungs.first().is_some_and(Rung::has_begun);
        let Some(rung) = self.rungs.get_mut(at) else { return };
        let named = |height, kbps| namer.map(|namer| namer.name(height, kbps)).unwrap_or_default();
        if rung.is_sound && at > 0 {
            // Audio before the first picture belongs to no segment.
            if !has_begun {
                return;
            }
            rung.follow(shared, date_ms, &beside, (self.around.boundary_ms, named));
        } else {
            rung.take(shared, date_ms, &beside, named);
        }
    }

    // ---- outputs

    /// Returns the name of the blob that describes a rendition.
    fn record(&self, rung: &Rung) -> String {
        let folder = format!("{}/{}/{}", self.layout.records(), self.main, self.key.id);
        if rung.is_sound {
            format!("{folder}/sound{}", super::sounds::suffix(rung.index))
        } else {
            format!("{folder}/{}", rung.index)
        }
    }

    /// Makes the namer of a rendition. A rendition that existed before under the same id keeps its former name, so that
    /// players find it.
    fn namer(&self, blobs: &Blobs, rung: &Rung) -> Namer {
        let former =
            blobs.get(&self.key.app, &self.record(rung)).and_then(|blob| blob.ladder.as_ref()?.rung.as_ref());
        let others = self.others(blobs);
        let of_others = others.iter().filter_map(|(_, rung)| rung.playlist.clone());
        let own = self.rungs.iter().filter_map(Rung::name).map(|name| format!("{name}{ENDING}"));
        Namer {
            main: Arc::clone(&self.main),
            id: Arc::clone(&self.key.id),
            fixed: rung.is_sound.then(|| apart::own_sound(&self.key.id, rung.index)),
            former: former.and_then(|rung| rung.playlist.clone()),
            taken: of_others.chain(own).collect(),
        }
    }

    /// Publishes new blobs: segments and parts before the playlists that name them.
    fn publish(&mut self, ctx: &Context<'_>) {
        let mut rungs = std::mem::take(&mut self.rungs);
        let mut absent = std::mem::take(&mut self.around.absent);
        let mut is_news = false;
        for at in 0..rungs.len() {
            let (is_cut, has_made) =
                rungs.get_mut(at).map_or((false, false), |rung| (rung.take_news(), rung.has_made()));
            is_news |= is_cut;
            if is_cut || has_made {
                let reports = self.reports(ctx.blobs, &rungs, at);
                rungs
                    .get_mut(at)
                    .into_iter()
                    .for_each(|rung| self.publish_rung(ctx.blobs, rung, reports.clone()));
            }
            if is_cut {
                rungs.get(at).into_iter().for_each(|rung| self.publish_record(rung));
            }
        }
        for rung in absent.iter_mut().filter_map(|rung| rung.take_news().then_some(rung)) {
            self.publish_rung(ctx.blobs, rung, Vec::new());
        }
        (self.rungs, self.around.absent) = (rungs, absent);
        self.publish_subtitles(ctx.blobs);
        if is_news {
            self.publish_master(ctx.now.mono, ctx.blobs);
        }
        if is_news || self.is_news_of_others(ctx.blobs) {
            self.publish_manifest(ctx, false);
        }
    }

    fn publish_rung(&mut self, blobs: &Blobs, rung: &mut Rung, reports: Vec<Report>) {
        let folder = self.folder.clone();
        let (left, gone) = rung.take_left();
        self.publishing.leave(left.into_iter().map(|name| format!("{folder}{name}")));
        self.publishing.forget(gone.into_iter().map(|name| format!("{folder}{name}")));
        for (name, bytes, is_init) in rung.take_made() {
            let name = format!("{folder}{name}");
            if is_init {
                self.publishing.init(&name, bytes);
            } else {
                self.publishing.resource(&name, bytes);
            }
        }
        let (Some((mut playlist, progress)), Some(name)) = (rung.playlist(), rung.name()) else { return };
        if let Some(low) = &mut playlist.low_latency {
            low.reports = reports;
        }
        self.publish_playlist(name, &playlist, progress);
        if rung.is_sound && self.leads_sound(blobs) && !self.shown.is_left {
            let base = apart::shared_sound(&self.main, rung.index);
            let app = &self.key.app;
            let former = || blobs.get(app, &format!("{}{base}{ENDING}", self.folder));
            let splice = self.shown.splices.entry(rung.index).or_insert_with(|| {
                former()
                    .filter(|blob| blob.stream != self.stream)
                    .map_or_else(Splice::default, |blob| Splice::behind(&blob.bytes))
            });
            if splice.apply(&mut playlist) {
                self.publish_playlist(&base, &playlist, progress);
            }
        }
    }

    fn publish_playlist(&mut self, base: &str, playlist: &MediaPlaylist, progress: Progress) {
        let name = format!("{}{base}{ENDING}", self.folder);
        if playlist.low_latency.is_some() {
            let delta = playlist.delta().unwrap_or_else(|| playlist.clone());
            self.publishing.playlist(&format!("{name}{DELTA}"), delta.to_string(), progress);
        }
        self.publishing.media_playlist(&name, playlist, progress);
    }

    fn publish_record(&mut self, rung: &Rung) {
        let described = self.described(rung);
        self.publishing.rung(&self.record(rung), Some(described));
    }

    /// Returns the progress of the playlists other than that of rendition `at` (RFC 8216bis §4.4.5.4).
    fn reports(&self, blobs: &Blobs, rungs: &[Rung], at: usize) -> Vec<Report> {
        if self.layout == Layout::Together || !self.settings.low_latency {
            return Vec::new();
        }
        let there = |uri: &str| blobs.get(&self.key.app, &format!("{}{uri}", self.folder));
        let own = rungs.iter().enumerate().filter(|(other, rung)| *other != at && !rung.is_sound);
        let own = own.filter(|(_, rung)| rung.window().is_enough());
        let own = own.filter_map(|(_, rung)| {
            Some((format!("{}{ENDING}", rung.name()?), rung.progress(), rung.last_parts()))
        });
        let others = self.others(blobs);
        let others = others.iter().filter(|(_, rung)| !rung.is_sound && rung.is_there);
        let others = others.filter_map(|(_, rung)| Some((rung.playlist.clone()?, rung.last_parts)));
        let others = others.filter_map(|(uri, parts)| there(&uri).map(|blob| (uri, blob.progress, parts)));
        let elsewhere = others.chain(self.reports_of_sounds(blobs, rungs, at));
        own.chain(elsewhere.filter(|(_, progress, _)| *progress != Progress::ENDED))
            .map(sounds::report)
            .collect()
    }

    /// Removes the playlists and the description of a rendition.
    fn remove(&mut self, rung: &Rung) {
        let own = rung.name().map(str::to_owned);
        let is_gone = rung.is_sound && !self.shown.is_left;
        let shared = is_gone.then(|| apart::shared_sound(&self.main, rung.index));
        for base in own.into_iter().chain(shared) {
            let name = format!("{}{base}{ENDING}", self.folder);
            self.publishing.forget([format!("{name}{DELTA}"), name]);
        }
        self.publishing.rung(&self.record(rung), None);
    }

    fn described(&self, rung: &Rung) -> mail::Rung {
        let window = rung.window();
        let Lead { marks, keys, target } = rung.lead();
        mail::Rung {
            sink: self.layout.kind(),
            began: self.start.number,
            playlist: rung.name().map(|name| format!("{name}{ENDING}")),
            is_there: window.is_enough(),
            is_sound: rung.is_sound,
            sound: rung.sound(),
            codecs: rung.codecs(),
            bits: super::declared_bits(window.peak_bits(), window.average_bits()),
            picture: mail::Picture {
                size: rung.size(),
                frame_rate_milli: rung.frame_rate_milli(),
                captions: rung.captions.known.clone(),
            },
            is_independent: window.playlist().independent_segments,
            target,
            last_parts: rung.last_parts(),
            keys,
            marks,
            annex: rung.outline().filter(|_| self.makes_manifest() && window.is_enough()).map(|outline| {
                let periods = self.shown.board.periods().to_vec();
                mail::Annex::of(Listed { outline: Arc::new(outline), periods })
            }),
        }
    }

    // ---- of all renditions

    /// Publishes the playlist of all renditions if it has changed and no other stream's renditions lead.
    fn publish_master(&mut self, now: Instant, blobs: &Blobs) {
        if !self.leads(blobs) || self.layout == Layout::Apart && !self.settings.low_latency {
            return;
        }
        let own: Vec<mail::Rung> = self.rungs.iter().map(|rung| self.described(rung)).collect();
        let others = self.others(blobs);
        let all: Vec<&mail::Rung> = own.iter().chain(others.iter().map(|(_, rung)| *rung)).collect();
        // Videos and audio are limited separately, so that a stream's many audio tracks displace no video.
        let of_kind = |is_sound: bool| all.iter().copied().filter(move |rung| rung.is_sound == is_sound);
        let ready_of = |is_sound| of_kind(is_sound).filter(|rung| rung.is_there).take(RUNGS_MAX);
        let ready: Vec<&mail::Rung> = ready_of(false).chain(ready_of(true)).collect();
        if ready.is_empty() {
            return;
        }
        let awaited_of =
            |is_sound| of_kind(is_sound).filter(|rung| !sounds::is_silent(rung)).count().min(RUNGS_MAX);
        let waits = ready.len() < awaited_of(false).saturating_add(awaited_of(true));
        if self.shown.text.is_empty() && waits && self.shown.waits(now) {
            return;
        }
        let (version, ending) = match self.layout {
            Layout::Together => (6, MASTER),
            Layout::Apart => (9, MASTER_APART),
        };
        let mut list = list::master(version, &self.main, &ready);
        let known = ready.iter().fold(Known::default(), |known, rung| known.or(&rung.picture.captions));
        // Captions are declared only if there is a video, and only videos have key frames.
        if ready.iter().any(|rung| !rung.keys.is_empty()) {
            self.settings.told.captions.declare(&known, &mut list);
        }
        self.settings.told.languages.declare(&mut list, &subtitles::shared(&self.main));
        let text = list.to_string();
        if text != self.shown.text {
            let name = format!("{}{}{ending}", self.folder, self.main);
            self.publishing.master(&name, text.clone());
            self.shown.text = text;
        }
    }
}

/// Chooses the name of a rendition.
#[derive(Debug)]
struct Namer {
    main: Arc<str>,
    /// The id of the rendition's stream. No rendition gets it as its name, because the stream's own playlist has it.
    id: Arc<str>,
    /// The prescribed name of an audio rendition; `None` for a video, whose name is chosen.
    fixed: Option<String>,
    /// The rendition's former name.
    former: Option<String>,
    /// Names of other renditions.
    taken: Vec<String>,
}

impl Namer {
    fn name(&self, height: u32, kbps: u64) -> String {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let is_free = |name: &String| {
            let playlist = format!("{name}{ENDING}");
            **name != *self.id && !self.taken.contains(&playlist)
        };
        let former = self.former.as_ref().and_then(|name| name.strip_suffix(ENDING)).map(str::to_owned);
        let kbps = kbps.next_multiple_of(KBPS_STEP).max(KBPS_STEP);
        let own = (kbps..).map(|kbps| format!("{}_{height}p{kbps}kbps", self.main));
        former.into_iter().chain(own).find(is_free).unwrap_or_default()
    }
}

impl Presenter for Ladder {
    fn format(&self) -> Format {
        let data = self.settings.metadata.pick();
        let selection = Selection { video: Pick::First, data, ..Selection::ALL };
        if self.has_mp4() { cmaf::format(&self.settings) } else { Format::new(&sink::FORMAT, 0) }
            .select(selection)
    }

    fn publishing(&self) -> &Publishing {
        &self.publishing
    }

    fn publishing_mut(&mut self) -> &mut Publishing {
        &mut self.publishing
    }

    fn take(&mut self, ctx: &Context<'_>, entry: &Entry, chosen: &Chosen) {
        self.clock.note(entry, chosen);
        if self.clock.is_settled() {
            self.take_timed(ctx, entry, chosen);
        } else if self.clock.hold(entry, chosen) {
            self.settle(ctx);
        }
    }

    /// Adds timed metadata to the video renditions, or to the audio rendition if there is no video, and splice
    /// information to the playlists of all.
    fn take_data(&mut self, entry: &Entry) {
        if !self.clock.is_settled() {
            return;
        }
        let at_ms = self.clock.shared(entry).dts_ms;
        let splice_ms = at_ms.saturating_add(entry.unit.pts.saturating_sub(entry.dts_ms));
        self.subtitles.take(entry, splice_ms.saturating_sub(entry.unit.pts));
        let tags = self.settings.metadata.tags(entry);
        let place = Place {
            at_ms: splice_ms,
            date_ms: self.clock.date_ms(self.lag.dts_ms(entry.unit.pts)),
            zero_ms: if self.has_mp4() { 0 } else { Place::ts_zero_ms() },
        };
        let cue = self.settings.metadata.cue(entry, place);
        let is_alone = self.rungs.iter().all(Rung::is_sound);
        for rung in &mut self.rungs {
            let has_events = is_alone || !rung.is_sound();
            cue.iter().for_each(|cue| rung.cue(cue, has_events));
            tags.iter().filter(|_| has_events).for_each(|tags| rung.metadata(at_ms, tags));
        }
        for rung in &mut self.around.absent {
            let has_events = !rung.is_sound();
            cue.iter().for_each(|cue| rung.cue(cue, has_events));
        }
    }

    fn set_key(&mut self, key: GivenKey) {
        let rungs = self.rungs.iter_mut().chain(&mut self.around.absent);
        rungs.for_each(|rung| rung.set_key(key.clone()));
    }

    fn finish(&mut self, ctx: &Context<'_>, end: StreamEnd) {
        if !self.clock.is_settled() {
            self.settle(ctx);
        }
        let go_on = !self.others(ctx.blobs).is_empty();
        let is_told = self.settings.ends.with(end) && !go_on;
        for at in 0..self.rungs.len() {
            let beside = self.beside_of(at);
            let Some(namer) = self.rungs.get(at).map(|rung| self.namer(ctx.blobs, rung)) else { continue };
            let is_begun = |rung: &&mut Rung| rung.window().mark().is_some() || rung.window().has_cut();
            let Some(rung) = self.rungs.get_mut(at).filter(is_begun) else { continue };
            rung.finish(is_told, &beside, |height, kbps| namer.name(height, kbps));
        }
        self.around
            .absent
            .iter_mut()
            .for_each(|rung| rung.finish(is_told, &Beside::default(), |_, _| String::new()));
        self.shown.is_left = go_on;
        self.publish(ctx);
        if !go_on {
            self.publish_manifest(ctx, is_told);
        } else {
            let mut all = std::mem::take(&mut self.rungs);
            all.append(&mut self.around.absent);
            all.iter().for_each(|rung| self.remove(rung));
        }
    }
}
