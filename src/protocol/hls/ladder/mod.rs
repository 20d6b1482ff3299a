//! The renditions of a ladder: the video tracks of a stream, or several streams that are subtracks of one main track
//! (`hls.group=renditions`), and the multivariant playlist of all of them.
//!
//! ```text
//! streams/{main}_adaptive.m3u8                  all renditions
//!         {main}_{height}p{kbit/s}kbps.m3u8     one of them, and its segments
//! ```
//!
//! 1. A request for the first one begins this sink for the stream that leads: the main track, if that is live, or the first of its
//!    subtracks. It tells the others of itself ([`Rung`](crate::mail::Rung)), and with that their workers begin theirs; also those that
//!    come later.
//! 2. Each is a sink of its own. They share a time, and with it the timestamps of segments ([`clock`]); those that follow have numbers and
//!    boundaries of the one that leads, as far as their key frames allow it ([`rung`]).
//! 3. The one that began first and is still there publishes the playlist of all. One that ends while others go on takes its playlist
//!    away at once: players go to another rendition where one is gone, but none does where one has ended or does not move.

mod clock;
mod rung;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use hls::playlist::{MultivariantPlaylist, Resolution, Variant};
use hls::segmenter::Start;
use media::{Track, TrackKind};

use self::clock::Clock;
pub(super) use self::clock::SNAP_MS;
use self::rung::{Beside, Lead, Rung, longest_ms};
use super::cmaf;
use super::lineup::Lineup;
use super::publishing::Publishing;
use super::settings::HlsSettings;
use super::sink;
use super::{ENDING, NAME, start, stream_of, tailor};
use crate::hub::{Blobs, Chosen, Delivery, Entry, Pick, Selection};
use crate::mail::{self, Progress, StreamEnd};
use crate::protocol::sinks::{SinkKind, SinkOrder};
use crate::protocol::{
    About, Context, Event, Format, Reply, Session, SubscriptionEvent, SubscriptionNews, Timers, UnitSink,
};
use crate::types::{Handle, Now, StreamId, StreamKey};

/// The continuation of the name of the playlist of all renditions, behind the main track's id.
const MASTER: &str = "_adaptive.m3u8";
/// The folder of descriptions of renditions: names with a dot are given to nobody.
const RUNGS: &str = ".ladder";
/// Renditions that a ladder lists.
const RUNGS_MAX: usize = 16;
/// Time for which a rendition whose playlist is not there yet is waited for: players read the playlist of all once.
const WAIT: Duration = Duration::from_secs(8);
/// Names of renditions have rates in steps of so many kbit/s.
const KBPS_STEP: u64 = 50;

/// See the module.
pub(super) static KIND: SinkKind = SinkKind {
    name: "ladder",
    is_enabled: |app| HlsSettings::of(app).enabled,
    stream_of: |_, name| of_master(name),
    file_of: |_, _| None,
    begins_with_stream: |app, details| {
        (details.main.is_some() || details.videos > 1) && HlsSettings::of(app).begins_with_stream
    },
    part_of: |_| None,
    is_of_ladder: true,
    is_glance: false,
    needs_videos: |_| false,
    viewers: |_| NAME,
    params: tailor::PARAMS,
    begin: |now, order, seed| Box::new(LadderSink::new(now, order, seed)),
};

/// The main track of a playlist of all renditions with this name.
fn of_master(name: &str) -> Option<&str> {
    let path = name.strip_suffix(MASTER)?;
    stream_of(name)?;
    let id = path.rsplit_once('/').map_or(path, |(_, id)| id);
    (!id.is_empty()).then_some(id)
}

#[derive(Debug)]
struct LadderSink {
    stream: StreamId,
    key: StreamKey,
    /// The id of the main track.
    main: Arc<str>,
    /// The folder of the playlists, with its slash.
    folder: String,
    settings: HlsSettings,
    start: Start,
    publishing: Publishing,
    lineup: Lineup,
    clock: Clock,
    /// The largest number of tracks so far is bounded by that of a stream.
    rungs: Vec<Rung>,
    chosen_epoch: u32,
    /// The renditions of other streams, as of the last key frame.
    beside: Beside,
    shown: Shown,
    attached: bool,
    seed: Seed,
}

/// The playlist of all renditions, as it is shown.
#[derive(Debug, Default)]
struct Shown {
    text: String,
    /// The time at which it could have been shown first.
    ready_at: Option<Instant>,
}

impl LadderSink {
    fn new(now: Now, order: &SinkOrder, seed: Seed) -> Self {
        let main = order.details.main.as_ref();
        let id = main.map_or_else(|| Arc::clone(&order.key.id), |main| Arc::clone(&main.key.id));
        Self {
            stream: order.stream,
            key: order.key.clone(),
            folder: main.map_or_else(|| order.details.folder.clone(), |main| main.folder.clone()),
            settings: HlsSettings::of_stream(&order.settings, &order.details),
            start: start(now),
            publishing: Publishing::of_ladder(now, order, Arc::clone(&id)),
            main: id,
            lineup: Lineup::default(),
            clock: Clock::new(),
            rungs: Vec::new(),
            chosen_epoch: 0,
            beside: Beside::default(),
            shown: Shown::default(),
            attached: false,
            seed,
        }
    }

    /// The renditions of other streams.
    fn others<'b>(&self, blobs: &'b Blobs) -> Vec<(StreamId, &'b mail::Rung)> {
        let mut rungs = blobs.rungs(&self.key.app, &self.main);
        rungs.retain(|(stream, _)| *stream != self.stream);
        rungs
    }

    /// The renditions of other streams, as far as those of this one go by them.
    fn beside(&self, blobs: &Blobs) -> Beside {
        let others = self.others(blobs);
        let is_earlier = |(stream, first): &&(StreamId, &mail::Rung)| {
            (first.began, *stream) < (self.start.number, self.stream)
        };
        let lead = others.first().filter(is_earlier);
        Beside {
            lead: lead.map(|(_, first)| Lead {
                marks: first.marks.clone(),
                keys: first.keys.clone(),
                target: first.target,
            }),
            longest_ms: others.iter().map(|(_, one)| longest_ms(&one.marks, &one.keys)).max().unwrap_or(0),
        }
    }

    /// The renditions beside one of these.
    fn beside_of(&self, at: usize) -> Beside {
        let mut beside = self.beside.clone();
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

    fn handle(&mut self, ctx: &Context<'_>, entry: &Entry, chosen: &Chosen) {
        self.clock.note(entry, chosen);
        if self.clock.is_settled() {
            self.take(ctx, entry, chosen);
        } else if self.clock.hold(entry, chosen) {
            self.settle(ctx);
        }
    }

    /// The time is known from now on.
    fn settle(&mut self, ctx: &Context<'_>) {
        self.beside = self.beside(ctx.blobs);
        for (entry, chosen) in self.clock.settle(self.beside.lead.as_ref()) {
            self.take(ctx, &entry, &chosen);
        }
    }

    /// Takes the units that wait for other tracks.
    fn take_rest(&mut self, ctx: &Context<'_>, chosen: &Chosen) {
        while let Some(entry) = self.lineup.pop_rest() {
            self.handle(ctx, &entry, chosen);
        }
    }

    /// The renditions of these tracks. One whose track has left goes.
    fn set_tracks(&mut self, ctx: &Context<'_>, chosen: &Chosen) {
        self.chosen_epoch = chosen.epoch();
        let videos: Vec<&Track> = chosen.of_kind(TrackKind::Video).collect();
        let wanted: Vec<Option<&Track>> =
            if videos.is_empty() { vec![None] } else { videos.into_iter().map(Some).collect() };
        let mut before = std::mem::take(&mut self.rungs);
        for video in wanted {
            let own = before.iter().position(|rung| rung.is_of(video)).map(|at| before.remove(at));
            let mut rung = own.unwrap_or_else(|| Rung::new(video, &self.settings, self.start, &self.seed));
            let namer = self.namer(ctx.blobs, &rung);
            rung.set_tracks(chosen, &self.beside, |height, kbps| namer.name(height, kbps));
            self.rungs.push(rung);
        }
        for rung in before {
            self.remove(&rung);
        }
    }

    fn take(&mut self, ctx: &Context<'_>, entry: &Entry, chosen: &Chosen) {
        if chosen.epoch() != self.chosen_epoch {
            self.set_tracks(ctx, chosen);
        }
        let shared = self.clock.shared(entry);
        let is_end = |rung: &Rung| rung.end_before(&shared).is_some();
        let jumps = self.clock.is_due() && self.rungs.first().is_some_and(is_end);
        if jumps {
            self.clock.jump(entry);
        }
        let shared = if jumps { self.clock.shared(entry) } else { shared };
        let date_ms = self.clock.date_ms(entry.dts_ms);
        if self.rungs.iter().any(|rung| rung.begins_with(&shared)) {
            self.beside = self.beside(ctx.blobs);
        }
        for at in 0..self.rungs.len() {
            let beside = self.beside_of(at);
            let namer = self.rungs.get(at).filter(|rung| rung.end_before(&shared).is_some());
            let namer = namer.filter(|rung| rung.name().is_none()).map(|rung| self.namer(ctx.blobs, rung));
            let Some(rung) = self.rungs.get_mut(at) else { continue };
            let named = |height, kbps| namer.map(|namer| namer.name(height, kbps)).unwrap_or_default();
            rung.take(&shared, date_ms, &beside, named);
        }
        self.publish(ctx);
    }

    fn finish(&mut self, ctx: &Context<'_>, end: StreamEnd, reason: &str) {
        if self.publishing.is_over() {
            return;
        }
        self.take_rest(ctx, &self.lineup.chosen().clone());
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
        self.publish(ctx);
        if go_on {
            for rung in std::mem::take(&mut self.rungs) {
                self.remove(&rung);
            }
        }
        self.publishing.finish(ctx.now, reason);
    }

    // ---- outputs

    /// The blob that describes a rendition.
    fn record(&self, rung: &Rung) -> String {
        format!("{RUNGS}/{}/{}/{}", self.main, self.key.id, rung.index)
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
            former: former.and_then(|rung| rung.playlist.clone()),
            taken: of_others.chain(own).collect(),
        }
    }

    /// Publishes what is new: what playlists name before they name it.
    fn publish(&mut self, ctx: &Context<'_>) {
        let mut rungs = std::mem::take(&mut self.rungs);
        let mut is_news = false;
        for rung in &mut rungs {
            if rung.take_news() {
                is_news = true;
                self.publish_rung(rung);
            }
        }
        self.rungs = rungs;
        if is_news {
            self.publish_master(ctx.now.mono, ctx.blobs);
        }
    }

    fn publish_rung(&mut self, rung: &mut Rung) {
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
        if let (Some((playlist, progress)), Some(name)) = (rung.playlist(), rung.name()) {
            self.publishing.media_playlist(&format!("{folder}{name}{ENDING}"), playlist, progress);
        }
        let described = self.described(rung);
        self.publishing.rung(&self.record(rung), Some(described));
    }

    /// Takes a rendition away.
    fn remove(&mut self, rung: &Rung) {
        let playlist = rung.name().map(|name| format!("{}{name}{ENDING}", self.folder));
        self.publishing.forget(playlist);
        self.publishing.rung(&self.record(rung), None);
    }

    fn described(&self, rung: &Rung) -> mail::Rung {
        let window = rung.window();
        let Lead { marks, keys, target } = rung.lead();
        mail::Rung {
            sink: KIND.name,
            began: self.start.number,
            playlist: rung.name().map(|name| format!("{name}{ENDING}")),
            is_there: window.is_enough(),
            codecs: rung.codecs(),
            // Rounded up, so that the playlist of all does not change with each segment.
            bits: (
                window.peak_bits().next_multiple_of(250_000),
                window.average_bits().next_multiple_of(100_000),
            ),
            size: rung.size(),
            frame_rate_milli: rung.frame_rate_milli(),
            is_independent: window.playlist().independent_segments,
            target,
            keys,
            marks,
        }
    }

    /// The playlist of all renditions, when it is another one, and no other stream's renditions lead.
    fn publish_master(&mut self, now: Instant, blobs: &Blobs) {
        if self.beside(blobs).lead.is_some() {
            return;
        }
        let own: Vec<mail::Rung> = self.rungs.iter().map(|rung| self.described(rung)).collect();
        let others = self.others(blobs);
        let all: Vec<&mail::Rung> = own.iter().chain(others.iter().map(|(_, rung)| *rung)).collect();
        let ready: Vec<&mail::Rung> =
            all.iter().copied().filter(|rung| rung.is_there).take(RUNGS_MAX).collect();
        if ready.is_empty() {
            return;
        }
        let ready_at = *self.shown.ready_at.get_or_insert(now);
        let waits = self.shown.text.is_empty() && now.saturating_duration_since(ready_at) < WAIT;
        if waits && ready.len() < all.len().min(RUNGS_MAX) {
            return;
        }
        let text = master(&ready).to_string();
        if text != self.shown.text {
            let name = format!("{}{}{MASTER}", self.folder, self.main);
            self.publishing.playlist(&name, text.clone(), Progress::ENDED);
            self.shown.text = text;
        }
    }
}

/// Chooses the name of a rendition.
#[derive(Debug)]
struct Namer {
    main: Arc<str>,
    /// The id of its stream, whose own playlist has another name.
    id: Arc<str>,
    /// The name that it had.
    former: Option<String>,
    /// The names of others.
    taken: Vec<String>,
}

impl Namer {
    fn name(&self, height: u32, kbps: u64) -> String {
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

/// The playlist of these renditions, the one with the highest rate first.
fn master(rungs: &[&mail::Rung]) -> MultivariantPlaylist {
    let mut variants: Vec<Variant> = rungs
        .iter()
        .map(|rung| Variant {
            uri: rung.playlist.clone().unwrap_or_default(),
            bandwidth: rung.bits.0,
            average_bandwidth: Some(rung.bits.1),
            codecs: Some(rung.codecs.clone()).filter(|codecs| !codecs.is_empty()),
            frame_rate_milli: rung.frame_rate_milli,
            resolution: rung.size.map(|(width, height)| Resolution { width, height }),
            ..Variant::default()
        })
        .collect();
    variants.sort_by(|a, b| b.bandwidth.cmp(&a.bandwidth).then_with(|| a.uri.cmp(&b.uri)));
    MultivariantPlaylist {
        version: 6,
        independent_segments: rungs.iter().all(|rung| rung.is_independent),
        variants,
        renditions: Vec::new(),
    }
}

impl UnitSink for LadderSink {
    fn has_room(&self) -> bool {
        true
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        let (entry, chosen) = (unit.entry, unit.chosen);
        if let Some(former) = self.lineup.former(chosen) {
            self.take_rest(ctx, &former);
        }
        if self.lineup.passes(entry, chosen) {
            self.handle(ctx, entry, chosen);
        }
        while let Some(entry) = self.lineup.pop() {
            self.handle(ctx, &entry, chosen);
        }
    }
}

impl Session for LadderSink {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Subscription(_, SubscriptionNews::Ended(end)) = reply {
            self.finish(ctx, end, "the stream ended");
        }
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.finish(ctx, StreamEnd::Drain, reason);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let format = if self.settings.fragmented { &cmaf::FORMAT } else { &sink::FORMAT };
            let selection = Selection { video: Pick::All, data: Pick::None, ..Selection::DEFAULT };
            let format = Format::new(format, 0).select(selection);
            return Some(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
        }
        self.publishing.poll(ctx.now)
    }

    fn about(&self) -> About {
        About { protocol: NAME, is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}

impl Timers for LadderSink {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.publishing.handle_timeout(ctx.now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.publishing.poll_timeout()
    }
}
