//! Rewinding a live stream, by up to the time of `dvr.window`: segments stay on the disk after memory has dropped
//! them, and a separate playlist lists them all.
//!
//! 1. A job reads the segments that an earlier run of the stream has left; they stay in the playlist if the new
//!    segments have the same form. If that run still writes, this stream waits for it.
//! 2. A job writes each complete segment. Live viewers are served from memory meanwhile. A segment that could not
//!    be written, or waits too long for a slow disk, becomes a gap (`EXT-X-GAP`) when memory drops it.
//! 3. Segments are removed by age, a chunk at a time. They are removed earlier if the disk is full or the
//!    application's bytes (`dvr.max_bytes`) are used up: a stream that has more than its share gives up its oldest
//!    segments, and so does a stream that needs room.
//! 4. After the end of the stream its files stay, in case the stream returns, until they are older than the window.
//!    If the stream is deleted, they are removed as well.
//!
//! ```text
//! webapps/{application}/.dvr/{stream}/{id}003900001.ts   segments, served under the names that they have in memory
//!                                     3900001.list       the lines of a chunk (`reach`)
//!                                     tail.list          the lines of segments that may still change
//! ```

mod edge;
pub(super) mod list;
pub(super) mod places;
mod reach;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hls::playlist::{MediaPlaylist, Segment};
use hls::segmenter::{Anchor, Outline, Piece};

use super::ENDING;
use super::cmaf::FOLDER;
use super::copy::{HELD_BYTES_MAX, RETRY, reason_of};
use crate::jobs::{AppendError, ArchiveWork, DVR, DvrDone, DvrWork, LIST, Outcome, Work, Writer};
use crate::protocol::sinks::Query;
use edge::Edge;
use places::Coming;
use reach::{CHUNK, Chunk, Listed, Reach};
pub(super) use settings::DvrSettings;

/// Appended to a playlist's name, gives the internal name of the playlist of all segments to which viewers can rewind.
/// Requests do not use that name.
pub(super) const QUERY: &str = "?dvr";
/// Minimum playlist version for `EXT-X-GAP` (RFC 8216bis §8).
const GAP_VERSION: u32 = 8;
/// Milliseconds for which a file is kept after it has left the playlist, for players that still use an older
/// playlist.
const LEAVING_MS: i64 = 30_000;
/// Ending of the names of initialization sections.
const INIT: &str = ".mp4";
/// Name of the list of segments that may still change.
const TAIL: &str = "tail";
/// Pause before the next attempt to write a list or to remove files; segments are written meanwhile.
const DUE_RETRY: Duration = Duration::from_secs(2);
/// Maximum number of consecutive attempts to write a list or to remove files, once the stream has ended.
const DUE_TRIES_MAX: u32 = 5;
/// Maximum number of lists that wait to be written: those of a day of one-second segments. The oldest are dropped
/// first.
const LISTS_MAX: usize = 8192;
/// Maximum number of names that wait to be removed. Files of further names stay on the disk until the stream returns.
const DROPS_MAX: usize = 1 << 17;

/// The job under way.
#[derive(Debug, PartialEq, Eq)]
enum Doing {
    Resume,
    File {
        name: String,
        bytes: Bytes,
    },
    List {
        name: String,
        bytes: Bytes,
    },
    /// Writes the list of the segments that may still change.
    Tail,
    Drop {
        names: Vec<String>,
    },
    Clear,
}

/// Files on their way to the disk.
#[derive(Debug, Default)]
struct Files {
    /// Files that wait to be written, and their total bytes.
    waiting: VecDeque<(String, Bytes)>,
    held_bytes: usize,
    /// Names that are not on the disk yet, or could not be written.
    pending: BTreeSet<String>,
    lost: BTreeSet<String>,
    /// Bytes of segments that no playlist has listed yet, by name.
    sizes: BTreeMap<String, u64>,
    /// Places of segments in DASH manifests that no playlist has listed yet.
    coming: Coming,
    /// Names of files that may be dropped from memory once they are on the disk.
    kept: Vec<String>,
    /// Name of the initialization section that the newest segment uses, as further segments may; and the
    /// initialization section that arrived last.
    map: Option<String>,
    init: Option<(String, Bytes)>,
}

impl Files {
    fn hold(&mut self, name: String, bytes: Bytes) {
        self.held_bytes = self.held_bytes.saturating_add(bytes.len());
        self.pending.insert(name.clone());
        self.waiting.push_back((name, bytes));
    }
}

/// Work on the disk other than the writing of segments and initialization sections.
#[derive(Debug, Default)]
struct Due {
    /// Lists to write; and true if the list of the newest segments must be written.
    lists: VecDeque<(String, Bytes)>,
    tail: bool,
    /// Names to remove now; and names that no playlist lists any more, with the date at which their chunk ends.
    drops: Vec<String>,
    leaving: VecDeque<(i64, Vec<String>)>,
    /// True if the folder is to be removed.
    clear: bool,
    /// Number of failed attempts in a row, and the time of the next one.
    failed: u32,
    retry_at: Option<Instant>,
}

/// Flags of the progress of a window.
#[derive(Debug, Default)]
struct Stage {
    /// Two flags: the files of an earlier run have been requested; and they are known. Nothing is listed until
    /// they are known.
    has_resumed: bool,
    is_ready: bool,
    /// Two flags: the playlist has its end tag; and no more segments follow.
    is_ended: bool,
    is_over: bool,
    /// True once everything is to be removed, whatever follows.
    is_cleared: bool,
    /// Two flags: the last file could not be written; and the disk was full at some time.
    is_failing: bool,
    is_short: bool,
}

/// The segments of one playlist to which viewers can rewind.
#[derive(Debug)]
pub(super) struct Dvr {
    settings: DvrSettings,
    /// The folder on the disk.
    folder: Vec<String>,
    /// Held while this window writes to the folder. Until it is dropped, another stream of this name must wait.
    writer: Arc<()>,
    /// Prefix of the names of the window's files: the playlist's name without the ending.
    stem: String,
    reach: Reach,
    /// Number of the first segment in memory, and the number after the newest segment.
    in_memory_from: u64,
    next: u64,
    files: Files,
    due: Due,
    stage: Stage,
    /// Usage of the application, as it was last reported.
    usage: DvrDone,
    doing: Option<Doing>,
    retry_at: Option<Instant>,
}

impl Dvr {
    /// Makes the window of a playlist with this name, below the application's `streams`.
    pub(super) fn new(settings: DvrSettings, app: &str, playlist: &str) -> Self {
        let stem = playlist.strip_suffix(ENDING).unwrap_or(playlist).to_owned();
        Self {
            settings,
            folder: folder_of(app, &stem),
            writer: Arc::default(),
            reach: Reach::new(settings.window),
            stem,
            in_memory_from: 0,
            next: 0,
            files: Files::default(),
            due: Due::default(),
            stage: Stage::default(),
            usage: DvrDone::default(),
            doing: None,
            retry_at: None,
        }
    }

    /// True if the file with this name, below the application's `streams`, belongs to this playlist.
    pub(super) fn has(&self, path: &str) -> bool {
        path.starts_with(&self.stem)
    }

    /// Returns the prefix of the names of the window's files.
    pub(super) fn stem(&self) -> &str {
        &self.stem
    }

    /// True if this is the window of the playlist with this name.
    pub(super) fn is_of(&self, playlist: &str) -> bool {
        playlist.strip_suffix(ENDING) == Some(self.stem.as_str())
    }

    // ---- inputs

    /// Adds a segment or an initialization section.
    pub(super) fn add(&mut self, path: &str, bytes: Bytes) {
        if self.stage.is_cleared {
            return;
        }
        let name = own_name(path).to_owned();
        if name.ends_with(INIT) {
            self.files.init = Some((name.clone(), bytes.clone()));
        } else if let Some((name, bytes)) =
            self.files.init.clone().filter(|(name, _)| self.files.lost.contains(name))
        {
            // Without the initialization section no segment can be played, so a failed write of it is tried again
            // with each segment.
            self.files.lost.remove(&name);
            self.files.hold(name, bytes);
        }
        self.files.sizes.insert(name.clone(), u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.files.held_bytes.saturating_add(bytes.len()) > HELD_BYTES_MAX {
            return self.lose(name, "it is too slow");
        }
        self.files.hold(name, bytes);
    }

    /// Adds the places of the newest segments in DASH manifests; they have these names.
    pub(super) fn describe(&mut self, names: &[String], outline: &Outline) {
        if !self.stage.is_cleared {
            self.files.coming.add(names, outline);
        }
    }

    /// Sets the periods of this run of the stream in DASH manifests.
    pub(super) fn set_anchors(&mut self, anchors: &[Anchor]) {
        self.reach.set_anchors(anchors);
    }

    /// Adds the new segments of the playlist in memory.
    pub(super) fn note(&mut self, live: &MediaPlaylist) {
        let noted = (self.in_memory_from, self.next);
        self.in_memory_from = live.media_sequence;
        self.stage.is_ended |= live.ended;
        self.reach.note_independent(live.independent_segments);
        if self.stage.is_ready && !self.stage.is_cleared {
            self.take(live);
            // A new part of the growing segment changes nothing here.
            if noted != (self.in_memory_from, self.next) {
                self.settle();
            }
        }
    }

    /// Adds the segments that are new.
    fn take(&mut self, live: &MediaPlaylist) {
        // Segments are missing if some have left the playlist in memory since the last call: a rendition without media
        // gets several gaps at once, more than the shortest playlist has.
        let mut is_behind_a_hole = self.next > 0 && self.next < live.media_sequence;
        let known = usize::try_from(self.next.saturating_sub(live.media_sequence)).unwrap_or(usize::MAX);
        for segment in live.segments.iter().skip(known) {
            self.reach.begin_at(live.media_sequence, live.discontinuity_sequence);
            let mut names = vec![segment.uri.as_str()];
            names.extend(segment.map.as_ref().map(|map| map.uri.as_str()));
            let bytes =
                names.iter().filter_map(|name| self.files.sizes.remove(*name)).fold(0, u64::saturating_add);
            let mut segment = Segment { parts: Vec::new(), ..segment.clone() };
            segment.discontinuity |= std::mem::take(&mut is_behind_a_hole);
            self.files.map = segment.map.as_ref().map(|map| map.uri.clone());
            let piece = self.files.coming.take(&segment.uri);
            let listed = Listed { segment, bytes, piece };
            let left = self.reach.push(listed, (live.target_duration, live.version));
            left.iter().for_each(|chunk| self.remove(chunk));
        }
        self.next = live.media_sequence.saturating_add(u64::try_from(live.segments.len()).unwrap_or(0));
    }

    /// Makes chunks of segments that no longer change, and removes chunks that are too old.
    fn settle(&mut self) {
        let count = u64::try_from(self.reach.recent().len()).unwrap_or(0);
        let first = self.next.saturating_sub(count);
        let gone = usize::try_from(self.in_memory_from.saturating_sub(first)).unwrap_or(usize::MAX);
        let (pending, lost) = (&self.files.pending, &self.files.lost);
        let ours = self.reach.recent().iter().take(gone);
        let mut settled = ours.take_while(|listed| !is_named(pending, &listed.segment)).count();
        for listed in self.reach.recent().iter_mut().take(gone) {
            listed.segment.gap |= is_named(lost, &listed.segment);
        }
        while settled >= CHUNK {
            self.seal(CHUNK);
            settled = settled.saturating_sub(CHUNK);
        }
        // If the disk has hung for as long as the window, chunks are made without waiting for it.
        while self.reach.is_overdue() {
            self.seal(CHUNK);
        }
        while let Some(chunk) = self.reach.expire() {
            let names = self.unneeded(&chunk);
            self.due.leaving.push_back((chunk.mark.end_ms, names));
        }
        let now_ms = self.reach.recent().back().and_then(|listed| listed.segment.program_date_time);
        let window_ms = i64::try_from(self.settings.window.as_millis()).unwrap_or(i64::MAX);
        let from_ms = now_ms.unwrap_or(i64::MIN).saturating_sub(window_ms).saturating_sub(LEAVING_MS);
        while let Some((_, names)) = self.due.leaving.pop_front_if(|(end_ms, _)| *end_ms < from_ms) {
            self.remove_names(names);
        }
        self.due.tail = true;
    }

    fn seal(&mut self, segments: usize) {
        let Some(chunk) = self.reach.seal(segments) else { return };
        self.due.lists.push_back((reach::list_name(&chunk.mark), chunk.list()));
        if self.due.lists.len() > LISTS_MAX {
            self.due.lists.pop_front();
        }
        let names: Vec<String> = chunk.names().map(str::to_owned).collect();
        for name in names {
            if !self.is_needed(&name) {
                self.files.lost.remove(&name);
            }
        }
    }

    /// True if future segments, or segments that may still change, need this initialization section.
    fn is_needed(&self, name: &str) -> bool {
        self.files.map.as_deref() == Some(name) || self.reach.needs(name)
    }

    /// Removes the files of a chunk.
    fn remove(&mut self, chunk: &Chunk) {
        let names = self.unneeded(chunk);
        self.remove_names(names);
    }

    /// Removes files, and cancels the writing of those that are not on the disk yet.
    fn remove_names(&mut self, names: Vec<String>) {
        let gone: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.due.lists.retain(|(name, _)| !gone.contains(name.as_str()));
        let Files { waiting, held_bytes, pending, .. } = &mut self.files;
        waiting.retain(|(name, bytes)| {
            let is_gone = gone.contains(name.as_str());
            if is_gone {
                *held_bytes = held_bytes.saturating_sub(bytes.len());
                pending.remove(name);
            }
            !is_gone
        });
        self.due.drops.extend(names);
        self.due.drops.truncate(DROPS_MAX);
    }

    /// Returns the names of a chunk's files that no remaining segment needs.
    fn unneeded(&self, chunk: &Chunk) -> Vec<String> {
        let mut names = self.reach.unneeded(chunk);
        names.retain(|name| self.files.map.as_ref() != Some(name));
        names
    }

    /// Removes the oldest chunk now, even if players may still fetch its segments. Returns false if there is none.
    fn shed(&mut self) -> bool {
        if let Some((_, names)) = self.due.leaving.pop_front() {
            self.remove_names(names);
            return true;
        }
        let chunk = self.reach.shed();
        if let Some(chunk) = &chunk {
            self.remove(chunk);
        }
        chunk.is_some()
    }

    /// If the application has nearly reached `dvr.max_bytes` and the stream has more than its share, removes the
    /// oldest segments. A stream with several playlists removes the same proportion of the bytes of each.
    fn share(&mut self) {
        let brim = self.settings.max_bytes / 8 * 7;
        let share = brim.checked_div(self.usage.streams.max(1)).unwrap_or(brim);
        let stream_bytes = self.usage.stream_bytes.max(self.reach.bytes());
        if self.usage.app_bytes < brim || stream_bytes <= share {
            return;
        }
        let own = u128::from(self.reach.bytes()) * u128::from(share) / u128::from(stream_bytes.max(1));
        let own = u64::try_from(own).unwrap_or(u64::MAX);
        while self.reach.bytes() > own && self.shed() {}
    }

    /// The given files have left the live playlist. Returns the names of files that may now be dropped from memory.
    pub(super) fn release(&mut self, names: Vec<String>) -> Vec<String> {
        for name in &names {
            self.files.sizes.remove(own_name(name));
            self.files.coming.take(own_name(name));
            if !self.stage.is_ready {
                // No playlist will ever list this segment, so it need not be marked as a gap.
                self.files.lost.remove(own_name(name));
            }
        }
        self.files.kept.extend(names);
        let (pending, stem) = (&self.files.pending, &self.stem);
        let is_free = |name: &mut String| !name.starts_with(stem) || !pending.contains(own_name(name));
        self.files.kept.extract_if(.., is_free).collect()
    }

    /// Ends the window with the stream; the remaining segments are still written.
    pub(super) const fn finish(&mut self) {
        self.stage.is_over = true;
        self.due.failed = 0;
    }

    /// Removes everything, because the stream is deleted.
    pub(super) fn clear(&mut self) {
        self.stage.is_over = true;
        self.stage.is_cleared = true;
        self.files = Files { kept: std::mem::take(&mut self.files.kept), ..Files::default() };
        self.due = Due { clear: true, ..Due::default() };
    }

    pub(super) fn job_done(&mut self, now: Instant, outcome: Outcome) {
        let Some(doing) = self.doing.take() else { return };
        if self.stage.is_cleared && doing != Doing::Clear {
            // The folder is removed after this job, and its result no longer matters.
            return;
        }
        if matches!(outcome, Outcome::Busy) {
            self.retry_at = now.checked_add(RETRY);
            return self.put_back(doing);
        }
        let result = outcome.dvr();
        if let Ok(done) = &result {
            self.usage = DvrDone { lists: Vec::new(), ..done.clone() };
        }
        match (doing, result) {
            (Doing::Resume, Ok(done)) if done.is_taken => {
                self.retry_at = now.checked_add(RETRY);
                return self.put_back(Doing::Resume);
            }
            (Doing::Resume, result) => {
                self.stage.is_ready = true;
                match result {
                    Ok(done) => self.resumed(&done.lists),
                    Err(error) => self.warn(reason_of(error)),
                }
            }
            (Doing::File { name, bytes }, result) => self.file_done(name, bytes, result.err()),
            (Doing::List { .. } | Doing::Tail | Doing::Drop { .. } | Doing::Clear, Ok(_)) => {
                self.due.failed = 0
            }
            (doing, Err(error)) => self.due_failed(now, doing, error),
        }
        self.share();
    }

    /// Puts a job that was not done back into its queue, ahead of the other jobs of its kind.
    fn put_back(&mut self, doing: Doing) {
        match doing {
            // The segment was given up meanwhile.
            Doing::List { name, .. } if self.due.drops.contains(&name) => {}
            Doing::File { name, bytes } if self.due.drops.contains(&name) => {
                self.files.held_bytes = self.files.held_bytes.saturating_sub(bytes.len());
                self.files.pending.remove(&name);
            }
            Doing::Resume => self.stage.has_resumed = false,
            Doing::File { name, bytes } => self.files.waiting.push_front((name, bytes)),
            Doing::List { name, bytes } => self.due.lists.push_front((name, bytes)),
            Doing::Tail => self.due.tail = true,
            Doing::Drop { names } => {
                self.due.drops.splice(..0, names);
                self.due.drops.truncate(DROPS_MAX);
            }
            Doing::Clear => self.due.clear = true,
        }
    }

    /// Called if a job failed that does not write a segment file: schedules another attempt. If a list were never
    /// written, a restart would lose all segments before those of the list.
    fn due_failed(&mut self, now: Instant, doing: Doing, error: AppendError) {
        let is_list = matches!(doing, Doing::List { .. } | Doing::Tail);
        self.put_back(doing);
        if error == AppendError::Full && is_list && self.shorten() {
            return;
        }
        if self.due.failed == 0 {
            let (app, stream, reason) = (self.folder.first(), &self.stem, reason_of(error));
            tracing::warn!(
                app,
                stream,
                reason,
                "DVR cannot keep its lists, or remove what is over: it tries again"
            );
        }
        self.due.failed = self.due.failed.saturating_add(1);
        self.due.retry_at = now.checked_add(DUE_RETRY);
        if self.stage.is_over && self.due.failed >= DUE_TRIES_MAX {
            self.due = Due::default();
        }
    }

    /// Takes over the lists of an earlier run.
    fn resumed(&mut self, lists: &[Bytes]) {
        let chunks = lists.iter().filter_map(|list| Chunk::read(std::str::from_utf8(list).ok()?));
        let resumed = self.reach.resume(chunks.collect());
        resumed.left.iter().for_each(|chunk| self.remove(chunk));
        let lists = resumed.changed.iter();
        self.due.lists.extend(lists.map(|chunk| (reach::list_name(&chunk.mark), chunk.list())));
    }

    fn file_done(&mut self, name: String, bytes: Bytes, error: Option<AppendError>) {
        if error == Some(AppendError::Full) && self.shorten() {
            return self.put_back(Doing::File { name, bytes });
        }
        self.files.held_bytes = self.files.held_bytes.saturating_sub(bytes.len());
        self.files.pending.remove(&name);
        match error {
            Some(error) => self.lose(name, reason_of(error)),
            None => self.stage.is_failing = false,
        }
        self.due.tail = true;
    }

    /// Gives up the oldest segments to make room for the newest. Returns false if nothing is left to give up.
    fn shorten(&mut self) -> bool {
        let is_shorter = self.shed();
        if is_shorter && !std::mem::replace(&mut self.stage.is_short, true) {
            let (app, stream) = (self.folder.first(), &self.stem);
            tracing::warn!(
                app,
                stream,
                "DVR window shortened: the disk is full, or dvr.max_bytes is reached"
            );
        }
        is_shorter
    }

    fn lose(&mut self, name: String, reason: &str) {
        if let Some(bytes) = self.files.sizes.get_mut(&name) {
            *bytes = 0;
        }
        if let Some(listed) = self.reach.recent().iter_mut().rfind(|listed| listed.segment.uri == name) {
            listed.bytes = 0;
        }
        self.files.lost.insert(name);
        self.warn(reason);
    }

    fn warn(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.stage.is_failing, true) {
            let (app, stream) = (self.folder.first(), &self.stem);
            tracing::warn!(app, stream, reason, "DVR lacks segments");
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.retry_at.take_if(|at| *at <= now);
        self.due.retry_at.take_if(|at| *at <= now);
    }

    // ---- outputs

    /// Returns the text from which viewers' playlists are made, with the parts of the playlist in memory; `None`
    /// before the first segment. If segment numbers continue those of an earlier run, the text has no parts, because
    /// players request parts by the numbers in memory, which are then different.
    pub(super) fn text(&self, live: &MediaPlaylist) -> Option<String> {
        let edge = Edge::of(live).filter(|_| self.reach.next() == self.next);
        (!self.reach.is_empty()).then(|| self.reach.text(self.stage.is_ended, edge.as_ref()))
    }

    /// Returns the places of all segments in DASH manifests.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.reach.pieces()
    }

    /// Returns the numbers of the first segment and of the next one.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.reach.first(), self.reach.next())
    }

    /// Returns the next job if none is under way.
    pub(super) fn next_job(&mut self, now: Instant) -> Option<Work> {
        if self.is_settled() {
            // Dropping the former `writer` lets the next stream of this name use the folder, even if other copies
            // of this stream are still being stored.
            self.writer = Arc::default();
        }
        if self.doing.is_some() || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        let is_due = self.due.retry_at.is_none_or(|at| at <= now);
        let doing = if is_due && std::mem::take(&mut self.due.clear) {
            Doing::Clear
        } else if self.stage.is_cleared {
            return None;
        } else if !std::mem::replace(&mut self.stage.has_resumed, true) {
            Doing::Resume
        } else if is_due && !self.due.drops.is_empty() {
            Doing::Drop { names: std::mem::take(&mut self.due.drops) }
        } else if let Some((name, bytes)) = self.due.lists.pop_front_if(|_| is_due) {
            Doing::List { name, bytes }
        } else if let Some((name, bytes)) = self.files.waiting.pop_front() {
            Doing::File { name, bytes }
        } else if is_due && std::mem::take(&mut self.due.tail) {
            // Written after the lists of earlier segments, so that a restart finds no hole.
            Doing::Tail
        } else {
            return None;
        };
        let folder = self.folder.clone();
        let work = match &doing {
            Doing::Tail => {
                let list = self.tail()?;
                self.put(&format!("{TAIL}{LIST}"), &list)
            }
            Doing::Clear => DvrWork::Clear { folder },
            Doing::Resume => DvrWork::Resume {
                folder,
                keep: self.settings.keep(),
                stream: id_of(&self.stem).to_owned(),
                writer: Writer::of(&self.writer),
            },
            Doing::Drop { names } => DvrWork::Drop { folder, names: names.clone() },
            Doing::List { name, bytes } | Doing::File { name, bytes } => self.put(name, bytes),
        };
        self.doing = Some(doing);
        Some(Work::Archive(ArchiveWork::Dvr(work)))
    }

    /// Returns the list of the newest segments, as far as they are on the disk.
    fn tail(&mut self) -> Option<Bytes> {
        let (pending, lost) = (&self.files.pending, &self.files.lost);
        let there = self.reach.recent().iter().take_while(|listed| !is_named(pending, &listed.segment));
        let marked = there.map(|listed| {
            let gap = listed.segment.gap || is_named(lost, &listed.segment);
            let segment = Segment { gap, ..listed.segment.clone() };
            Listed { segment, bytes: listed.bytes, piece: listed.piece.clone() }
        });
        let marked: Vec<Listed> = marked.collect();
        Some(self.reach.tail(&marked)?.list())
    }

    fn put(&self, name: &str, data: &Bytes) -> DvrWork {
        let cap = self.settings.max_bytes;
        let (folder, name, data) = (self.folder.clone(), name.to_owned(), data.clone());
        DvrWork::Put { folder, name, data, cap, keep: self.settings.keep() }
    }

    /// True if nothing remains to be done.
    pub(super) fn is_settled(&self) -> bool {
        let is_done = self.files.waiting.is_empty() && self.due.lists.is_empty() && self.due.drops.is_empty();
        self.stage.is_over && is_done && self.doing.is_none() && !self.due.tail && !self.due.clear
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at.into_iter().chain(self.due.retry_at).min()
    }
}

/// True if a request is for the playlist of all segments to which viewers can rewind, or for a part of that playlist.
pub(super) fn is_wanted(query: &Query) -> bool {
    query.iter().any(|(name, _)| is_choice(name))
}

/// True if the parameter with this name requests the playlist for rewinding, or selects a part of it.
pub(super) fn is_choice(name: &str) -> bool {
    matches!(name, "dvr" | "start" | "end")
}

/// True if the segment, or its initialization section, is among these names.
fn is_named(names: &BTreeSet<String>, segment: &Segment) -> bool {
    names.contains(&segment.uri) || segment.map.as_ref().is_some_and(|map| names.contains(&map.uri))
}

/// Returns the folder of a stream's files, by the name of its playlist without the ending.
fn folder_of(app: &str, stem: &str) -> Vec<String> {
    vec![app.to_owned(), DVR.to_owned(), stem.replace('%', "%25").replace('/', "%2F")]
}

/// Returns the work that removes the files of a stream that is over, by the name of its playlist without the ending.
pub(super) fn clearing(app: &str, stem: &str) -> ArchiveWork {
    ArchiveWork::Dvr(DvrWork::Clear { folder: folder_of(app, stem) })
}

/// Returns the id of the stream to which a playlist belongs, given the playlist's name without its ending.
fn id_of(stem: &str) -> &str {
    let of_track = stem.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')?.split_once('/'));
    of_track.map_or_else(|| own_name(stem), |(id, _)| id)
}

/// Returns the work that removes the files of all streams' playlists whose names begin with `start`.
pub(super) fn clearing_all(app: &str, start: &str) -> ArchiveWork {
    let start = folder_of(app, start).pop().unwrap_or_default();
    ArchiveWork::Dvr(DvrWork::ClearAll { app: app.to_owned(), start })
}

/// Returns the path of a file on the disk. `stem` is the name of the file's playlist, without the ending.
pub(super) fn kept_of(app: &str, stem: &str, name: &str) -> Vec<String> {
    folder_of(app, stem).into_iter().chain([own_name(name).to_owned()]).collect()
}

/// Returns the path on the disk of a file that is kept for rewinding. `name` is its name below the application's
/// `streams`, `id` the id of its stream.
pub(super) fn path_of(app: &str, name: &str, id: &str) -> Vec<String> {
    let folders = name.rsplit_once('/').map_or(String::new(), |(folders, _)| format!("{folders}/"));
    let folder = folder_of(app, &format!("{folders}{id}"));
    folder.into_iter().chain([own_name(name).to_owned()]).collect()
}

/// Returns the name of a file without its folders.
fn own_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
