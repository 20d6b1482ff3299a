//! Publishes the files of a sink as blobs, with the versions and types that players and caches rely on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use hls::playlist::MediaPlaylist;
use hls::segmenter::{Anchor, GivenKey, Outline, Piece, Sealer, Sealing};
use media::TrackId;

use super::copies::{Copies, Sheet};
use super::dvr::{self, Dvr, DvrSettings};
use super::key_file::KeyFile;
use super::settings::HlsSettings;
use super::{DASH, NAME};
use crate::hub::{Chosen, Entry};
use crate::jobs::{Job, JobDone, JobId, Work};
use crate::mail::{Blob, KEY_TYPE, Laddered, Obsolete, Packed, Progress, Rung};
use crate::protocol::sinks::SinkOrder;
use crate::protocol::{Event, OrderEvent, SubscriptionEvent};
use crate::types::{Calendar, Handle, Now, StreamId};

/// RFC 8216 §4, §10.
const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";
/// RFC 3555 §4.
const TS_TYPE: &str = "video/mp2t";
/// ISO/IEC 23009-1 annex C.
const MANIFEST_TYPE: &str = "application/dash+xml";
const SEGMENT_TYPE: &str = "video/iso.segment";
const MP4_TYPE: &str = "video/mp4";
/// W3C WebVTT §8.
const TEXT_TYPE: &str = "text/vtt;charset=utf-8";
/// The id of the job that reads the key file; the ids of jobs of copies count from 0.
const KEY_JOB: u64 = u64::MAX;
/// The first id of jobs on segments that are kept on the disk for rewinding.
const DVR_JOBS: u64 = 1 << 32;

/// Makes the blobs of one sink.
#[derive(Debug)]
pub(super) struct Publishing {
    stream: StreamId,
    app: Arc<str>,
    /// Name of the sink's kind.
    kind: &'static str,
    /// The main track of the ladder to which the blobs belong.
    ladder: Option<Arc<str>>,
    /// The version of the next blob. The first one is taken from the wall clock, so that versions differ from those
    /// of an earlier stream of the same name.
    version: u64,
    /// Blobs that the next one makes obsolete.
    obsolete: Obsolete,
    /// Copies of the blobs in other places.
    copies: Copies,
    /// The settings for rewinding, and for each playlist the segments to which viewers can rewind.
    window: Option<DvrSettings>,
    dvr: Vec<Dvr>,
    /// The file with the key of segments, and the key last read from it.
    key_file: Option<KeyFile>,
    given: Option<GivenKey>,
    /// The seed of the encryption keys that this server generates.
    seed: Seed,
    events: VecDeque<Event>,
    /// The reason for the end, until it is reported.
    closing: Option<String>,
}

impl Publishing {
    /// Makes a [`Publishing`] with the copies that the settings require of the playlist with this name.
    pub(super) fn copied(now: Now, order: &SinkOrder, seed: Seed, playlist: &str) -> Self {
        let mut publishing = Self::new(now, order, seed);
        publishing.copies.add(playlist);
        publishing.go_back(playlist);
        publishing
    }

    /// Keeps the segments of the playlist with this name on the disk, if viewers can rewind the stream.
    pub(super) fn go_back(&mut self, playlist: &str) {
        if let Some(settings) = self.window.filter(|_| !self.dvr.iter().any(|dvr| dvr.is_of(playlist))) {
            self.dvr.push(Dvr::new(settings, &self.app, playlist));
        }
    }

    /// Makes a [`Publishing`] for a ladder.
    pub(super) fn of_ladder(now: Now, order: &SinkOrder, seed: Seed, main: Arc<str>) -> Self {
        Self { ladder: Some(main), ..Self::new(now, order, seed) }
    }

    pub(super) fn new(now: Now, order: &SinkOrder, seed: Seed) -> Self {
        let of_samples = HlsSettings::of(&order.settings).protects_samples();
        Self {
            ladder: None,
            stream: order.stream,
            app: Arc::clone(&order.key.app),
            kind: order.kind,
            version: now.wall_ms << 16,
            obsolete: Obsolete::default(),
            copies: Copies::new(order),
            window: HlsSettings::of_stream(&order.settings, &order.details).dvr(),
            dvr: Vec::new(),
            key_file: HlsSettings::of(&order.settings)
                .key_file
                .clone()
                .map(|path| KeyFile::new(path, order.key.to_string(), of_samples)),
            given: None,
            seed,
            events: VecDeque::new(),
            closing: None,
        }
    }

    /// Notes names of blobs that are no longer needed; they are removed when the next blob is published.
    pub(super) fn forget(&mut self, names: impl IntoIterator<Item = String>) {
        let names = names.into_iter().collect();
        let names = self.copies.release(names);
        self.obsolete.forgets.extend(self.dvr.iter_mut().fold(names, |names, dvr| dvr.release(names)));
    }

    /// Notes names that no playlist lists any more; they are the first to be removed if memory is short.
    pub(super) fn leave(&mut self, names: impl IntoIterator<Item = String>) {
        self.obsolete.leaves.extend(names);
    }

    /// Publishes a media playlist; if live viewers get the playlist of all segments, publishes that one instead.
    pub(super) fn media_playlist(&mut self, name: &str, playlist: &MediaPlaylist, progress: Progress) {
        self.copies.note(name, playlist);
        self.reach(name, playlist, progress);
        let of_all = self.copies.text();
        self.playlist(name, of_all.unwrap_or_else(|| playlist.to_string()), progress);
    }

    /// Publishes the playlist of all segments to which viewers can rewind. The playlist of the newest segments is
    /// published afterwards.
    fn reach(&mut self, name: &str, playlist: &MediaPlaylist, progress: Progress) {
        let Some(dvr) = self.dvr.iter_mut().find(|dvr| dvr.is_of(name)) else { return };
        dvr.note(playlist);
        if let Some(text) = dvr.text(playlist) {
            self.playlist(&format!("{name}{}", dvr::QUERY), text, progress);
        }
    }

    /// Notes the places of a rendition's newest segments in DASH manifests, before its playlist with this name is
    /// published. The segments have these names.
    pub(super) fn describe(&mut self, playlist: &str, names: &[String], outline: &Outline) {
        if let Some(dvr) = self.dvr.iter_mut().find(|dvr| dvr.is_of(playlist)) {
            dvr.describe(names, outline);
        }
        self.copies.describe(playlist, names, outline);
    }

    /// Keeps the playlist of a single track, and its segments, on the disk if the settings require it.
    pub(super) fn copy_track(&mut self, playlist: &str) {
        self.copies.add_track(playlist);
    }

    /// Removes files that an earlier run of the stream may have left on the disk, whose names begin with these, before
    /// the first file of this run is written there.
    pub(super) fn clear_former(&mut self, stems: impl IntoIterator<Item = String>) {
        self.copies.clear(stems);
    }

    /// Keeps a playlist that names other playlists on the disk if the settings require it. `run` tells runs of the
    /// stream apart.
    pub(super) fn copy_master(&mut self, name: &str, text: String, run: u64) {
        self.copies.put_master(name, text, run);
    }

    /// True if the segments of single tracks are kept on the disk.
    pub(super) const fn copies_tracks(&self) -> bool {
        self.copies.is_on_disk()
    }

    /// Sets the description of the DASH manifest on the disk.
    pub(super) fn set_sheet(&mut self, sheet: Sheet) {
        self.copies.set_sheet(sheet);
    }

    /// Sets the periods of this run of the stream in DASH manifests. Returns the numbers of the segments to which
    /// viewers can rewind, from the first to the next one of each playlist.
    pub(super) fn anchor(&mut self, anchors: &[Anchor]) -> Vec<(u64, u64)> {
        self.dvr.iter_mut().for_each(|dvr| dvr.set_anchors(anchors));
        self.dvr.iter().map(Dvr::span).collect()
    }

    /// Returns the places of all segments to which viewers can rewind in DASH manifests, a list for each playlist.
    pub(super) fn pieces(&self) -> Vec<Vec<Piece>> {
        self.dvr.iter().map(Dvr::pieces).collect()
    }

    /// Passes a file to the copies that keep it.
    fn copy(&mut self, name: &str, bytes: &Bytes) {
        self.copies.store(name, bytes);
        let windows = self.dvr.iter_mut().filter(|dvr| dvr.has(name));
        if let Some(dvr) = windows.max_by_key(|dvr| dvr.stem().len()) {
            dvr.add(name, bytes.clone());
        }
    }

    pub(super) fn playlist(&mut self, name: &str, text: String, progress: Progress) {
        self.blob(name, text.into(), progress, None, false);
    }

    /// Publishes a multivariant playlist, without which new viewers find nothing. It rarely changes, so by its age it
    /// would be dropped first.
    pub(super) fn master(&mut self, name: &str, text: String) {
        self.blob(name, text.into(), Progress::ENDED, None, true);
    }

    /// Publishes a DASH manifest. Each player's copy states the present time by `calendar`, which also gives the dates
    /// of the media's arrival.
    pub(super) fn manifest(&mut self, name: &str, text: String, calendar: Option<Calendar>) {
        self.blob(name, text.into(), Progress::ENDED, calendar, false);
    }

    /// Publishes a part of a segment, which is kept only while players may still fetch it.
    pub(super) fn part(&mut self, name: &str, bytes: Bytes) {
        self.blob(name, bytes, Progress::ENDED, None, false);
    }

    /// Publishes a file that does not grow.
    pub(super) fn resource(&mut self, name: &str, bytes: Bytes) {
        self.copy(name, &bytes);
        self.blob(name, bytes, Progress::ENDED, None, false);
    }

    /// Publishes an init segment or a key, without which segments cannot be played.
    pub(super) fn init(&mut self, name: &str, bytes: Bytes) {
        self.copy(name, &bytes);
        self.blob(name, bytes, Progress::ENDED, None, true);
    }

    fn blob(
        &mut self,
        name: &str,
        bytes: Bytes,
        progress: Progress,
        calendar: Option<Calendar>,
        is_needed: bool,
    ) {
        let blob = self.blob_of(name, bytes, progress, calendar, is_needed);
        self.events.push_back(Event::Order(OrderEvent::Blob(Box::new(blob))));
    }

    /// Publishes the description of a rendition under a name that is not served; `None` removes it.
    pub(super) fn rung(&mut self, name: &str, rung: Option<Rung>) {
        let mut blob = self.blob_of(name, Bytes::new(), Progress::ENDED, None, false);
        if let Some(ladder) = &mut blob.ladder {
            ladder.rung = rung;
        }
        self.events.push_back(Event::Order(OrderEvent::Blob(Box::new(blob))));
    }

    fn blob_of(
        &mut self,
        name: &str,
        bytes: Bytes,
        progress: Progress,
        calendar: Option<Calendar>,
        is_needed: bool,
    ) -> Blob {
        self.version = self.version.wrapping_add(1);
        // The name of a delta update has a query after the ending that determines the type.
        let path = name.split_once('?').map_or(name, |(path, _)| path);
        let (content_type, viewers) = match path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("m3u8") => (PLAYLIST_TYPE, NAME),
            Some("mpd") => (MANIFEST_TYPE, DASH),
            Some("ts") => (TS_TYPE, NAME),
            Some("m4s") => (SEGMENT_TYPE, NAME),
            Some("vtt") => (TEXT_TYPE, NAME),
            Some("key") => (KEY_TYPE, NAME),
            _ => (MP4_TYPE, NAME),
        };
        Blob {
            stream: self.stream,
            app: Arc::clone(&self.app),
            name: name.into(),
            version: self.version,
            content_type,
            viewers: Some(viewers),
            progress,
            maker: self.kind,
            obsolete: std::mem::take(&mut self.obsolete),
            calendar,
            fresh_until: None,
            bytes,
            is_needed,
            ladder: self.ladder.clone().map(|main| Box::new(Laddered { main, rung: None })),
            packed: Packed::default(),
        }
    }

    /// Asks the publisher for a key frame of a track.
    pub(super) fn need_key_frame(&mut self, track: TrackId) {
        let event = SubscriptionEvent::KeyFrameNeeded(Some(track));
        self.events.push_back(Event::Subscription(Handle::ONLY, event));
    }

    // ---- the key of segments

    /// True unless the stream has to wait for its first key.
    pub(super) fn has_room(&self) -> bool {
        self.key_file.as_ref().is_none_or(KeyFile::has_room)
    }

    /// True if a unit becomes part of a segment; false if the key for it is missing.
    pub(super) fn admits(&mut self, entry: &Entry, chosen: &Chosen) -> bool {
        self.key_file.as_mut().is_none_or(|file| file.admits(entry, chosen))
    }

    /// Returns the key for the next segment and those after it, if the key has changed.
    pub(super) fn take_key(&mut self) -> Option<GivenKey> {
        let new = self.key_file.as_mut()?.take_new();
        if new.is_some() {
            self.given.clone_from(&new);
        }
        new
    }

    /// Returns the sealer of segments of this name; `None` if they are not encrypted.
    pub(super) fn sealer(&self, sealing: &Sealing, name: &str) -> Option<Sealer> {
        let mut sealer = Sealer::of(sealing, &self.seed.derive(name, 0))?;
        self.given.iter().for_each(|key| sealer.set_key(key.clone()));
        Some(sealer)
    }

    // ---- the end, and copies

    /// True if the stream has ended, so that nothing more is published.
    pub(super) const fn is_over(&self) -> bool {
        self.closing.is_some()
    }

    /// Ends all copies, because the stream has ended.
    pub(super) fn finish(&mut self, now: Now, reason: &str) {
        self.closing.get_or_insert_with(|| reason.to_owned());
        self.copies.finish(now.mono);
        self.dvr.iter_mut().for_each(Dvr::finish);
    }

    /// Removes the segments that are kept for rewinding, because the stream is deleted.
    pub(super) fn clear(&mut self) {
        self.dvr.iter_mut().for_each(Dvr::clear);
    }

    /// Hastens the end of the copies, because the session must end soon.
    pub(super) fn hurry(&mut self, now: Now) {
        self.copies.hurry(now.mono);
    }

    /// Returns the next event. The last one is the end, once all copies are complete.
    pub(super) fn poll(&mut self, now: Now) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(work) = self.key_job(now) {
            return Some(Event::Job(Job { id: JobId(KEY_JOB), app: None, work }));
        }
        if let Some((id, work)) = self.copies.next_job(now) {
            return Some(Event::Job(Job { id: JobId(id), app: None, work }));
        }
        let job = |(id, dvr): (u64, &mut Dvr)| {
            // The job names the application, because files are also written after the end of the stream, when
            // the worker no longer knows it.
            Some(Job { id: JobId(id), app: Some(Arc::clone(&self.app)), work: dvr.next_job(now.mono)? })
        };
        if let Some(job) = (DVR_JOBS..).zip(&mut self.dvr).find_map(job) {
            return Some(Event::Job(job));
        }
        let is_settled = self.copies.is_settled() && self.dvr.iter().all(Dvr::is_settled);
        self.closing.take_if(|_| is_settled).map(Event::Closed)
    }

    fn key_job(&mut self, now: Now) -> Option<Work> {
        self.key_file.as_mut().filter(|_| self.closing.is_none())?.next_job(now.mono)
    }

    pub(super) fn job_done(&mut self, now: Now, done: JobDone) {
        if done.id == JobId(KEY_JOB) {
            if let Some(file) = &mut self.key_file {
                file.job_done(now.mono, done.outcome);
            }
            return;
        }
        let dvr = done.id.0.checked_sub(DVR_JOBS).and_then(|at| usize::try_from(at).ok());
        if let Some(dvr) = dvr.and_then(|at| self.dvr.get_mut(at)) {
            return dvr.job_done(now.mono, done.outcome);
        }
        self.copies.job_done(now.mono, done.id.0, done.outcome);
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        self.copies.handle_timeout(now.mono);
        self.dvr.iter_mut().for_each(|dvr| dvr.handle_timeout(now.mono));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let look = self.key_file.as_ref().filter(|_| self.closing.is_none());
        let retries = self.dvr.iter().filter_map(Dvr::poll_timeout);
        let copies = self.copies.poll_timeout().into_iter().chain(retries);
        copies.chain(look.and_then(KeyFile::poll_timeout)).min()
    }
}
