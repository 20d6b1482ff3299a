//! A copy of a stream's HLS in another place: on the disk (`hlsPlayListType`), or at a server (`hlsHttpEndpoint`).
//!
//! 1. A job stores each complete segment, then the playlist that names it: the playlist never names a missing file,
//!    and no file on the disk is ever incomplete.
//! 2. A segment that cannot be stored, or waits too long, becomes a gap in the playlist (`EXT-X-GAP`, RFC 8216bis
//!    §4.4.4.7); the next segment is tried again. Live viewers are served from memory meanwhile.
//! 3. The playlist on the disk has all segments. With `event`, live viewers get it too, so that they can rewind to
//!    the beginning; segments that are no longer in memory are then served from the disk. A server has the segments
//!    that memory has, under the same names; files that memory drops are removed from the server.
//! 4. When the stream has ended, the playlist says so. Files are kept until the stream is published again, or
//!    (`deleteHLSFilesOnEnded`) until the last viewers have had time to finish.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hls::limits::{PLAYLIST_BYTES_MAX, SEGMENTS_MAX};
use hls::playlist::{Kind, MediaPlaylist, Segment, SegmentLines};
use hls::segmenter::{Anchor, Outline, Piece};
use url::Url;

use super::ENDING;
use super::dvr::places::{Coming, Places};
use super::settings::{HlsSettings, Keep};
use crate::http::media_type;
use crate::jobs::{AppendError, ArchiveWork, Outcome, RelayWork, Work};
use crate::protocol::sinks::SinkOrder;

/// Maximum bytes of segments that wait to be stored.
pub(super) const HELD_BYTES_MAX: usize = 32 << 20;
/// Pause before a job that was refused, because too many jobs waited, is submitted again.
pub(super) const RETRY: Duration = Duration::from_millis(200);
/// The playlist is closed when this many bytes remain to the maximum that our own reader accepts, so that the last
/// segments still fit.
const SPARE_BYTES: usize = 64 << 10;
/// Minimum playlist version for `EXT-X-GAP` (RFC 8216bis §8).
const GAP_VERSION: u32 = 8;
/// The folder of an application from which files are played.
pub(super) const STREAMS: &str = "streams";

/// Maximum number of attempts to send a file to a server.
const ATTEMPTS: u32 = 3;
/// Pause between two attempts to store a file.
pub(super) const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of files that wait to be removed from a server; further ones stay there.
const REMOVALS_MAX: usize = 100;

/// The place of a copy.
#[derive(Debug)]
enum Place {
    Disk {
        kind: Kind,
        /// Time for which the files stay after the stream has ended; `None` to keep them.
        lingers: Option<Duration>,
        /// The application's folder and the names below it that lead to the playlist.
        folder: Vec<String>,
    },
    /// A server; the files are below this URL.
    Server(Arc<Url>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { folder, .. } => f.write_str(&folder.join("/")),
            // The rest of the URL may contain keys.
            Self::Server(url) => f.write_str(url.host_str().unwrap_or_default()),
        }
    }
}

/// A file to store or to remove.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    name: String,
    /// The contents; `None` to remove the file.
    bytes: Option<Bytes>,
    /// Number of failed attempts.
    failed: u32,
}

/// The job under way.
#[derive(Debug, PartialEq, Eq)]
enum Doing {
    /// Removes the files of the stream's previous copy.
    Clear,
    /// Stores or removes a file.
    File(Step),
    /// Stores the playlist.
    List,
    /// Removes all files.
    Remove,
}

/// The state of the stream's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The stream continues.
    No,
    /// The stream has ended. The files are removed at this time; `None` for never.
    At(Option<Instant>),
}

/// Files other than the playlist.
#[derive(Debug, Default)]
struct Files {
    /// Files that wait to be stored, and their total bytes.
    waiting: VecDeque<Step>,
    held_bytes: usize,
    /// Names of files that are not stored yet, and of those that could not be stored.
    pending: BTreeSet<String>,
    lost: BTreeSet<String>,
}

impl Files {
    /// True if the segment, or its initialization section, is not stored yet.
    fn is_pending(&self, segment: &Segment) -> bool {
        Self::has(&self.pending, segment)
    }

    fn has(names: &BTreeSet<String>, segment: &Segment) -> bool {
        names.contains(&segment.uri) || segment.map.as_ref().is_some_and(|map| names.contains(&map.uri))
    }

    /// Returns the segments, with those that could not be stored marked as gaps.
    fn marked(&self, mut segments: Vec<Segment>) -> Vec<Segment> {
        for segment in &mut segments {
            segment.gap |= Self::has(&self.lost, segment);
        }
        segments
    }
}

/// The oldest segments, which no longer change. Their lines are written once, because there may be thousands.
#[derive(Debug, Default)]
struct Settled {
    count: u64,
    /// The lines of these segments in the playlist.
    text: String,
    last: Option<Segment>,
    /// Date of the first segment of the copy, in milliseconds of Unix time.
    begun_ms: Option<i64>,
}

/// The places in which copies of a stream are kept.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The application.
    app: Arc<str>,
    /// The type of playlists on the disk, and the time for which the files stay there after the stream has ended.
    pub(super) disk: Option<(Kind, Option<Duration>)>,
    server: Option<Arc<Url>>,
}

impl Plan {
    /// Returns the places that the settings of a stream require.
    pub(super) fn of(order: &SinkOrder) -> Self {
        let settings = HlsSettings::of_stream(&order.settings, &order.details);
        let kept = settings.kept.and_then(|keep| match keep {
            Keep::All(kind) => Some(kind),
            Keep::Newest(_) => None,
        });
        let list_size = u32::try_from(settings.rules.list_size).unwrap_or(u32::MAX);
        let segment = Duration::from_millis(settings.rules.segment_ms.unsigned_abs());
        let lingers = settings.deleted_at_end.then(|| segment.saturating_mul(list_size));
        let disk = kept.map(|kind| (kind, lingers));
        Self { app: Arc::clone(&order.key.app), disk, server: settings.pushed_to }
    }

    /// Returns the path on the disk of a file below the application's `streams`.
    pub(super) fn path(&self, name: &str) -> Vec<String> {
        let folders =
            [&*self.app, STREAMS].into_iter().chain(name.split('/').filter(|name| !name.is_empty()));
        folders.map(str::to_owned).collect()
    }

    /// Returns the copies of the playlist with this name.
    pub(super) fn copies(&self, playlist: &str) -> Vec<HlsCopy> {
        let (_, name) = playlist.rsplit_once('/').unwrap_or(("", playlist));
        let pushed = self.server.clone().map(|url| HlsCopy::new(Place::Server(url), name));
        self.on_disk(playlist).into_iter().chain(pushed).collect()
    }

    fn on_disk(&self, playlist: &str) -> Option<HlsCopy> {
        let (kind, lingers) = self.disk?;
        let (folders, name) = playlist.rsplit_once('/').unwrap_or(("", playlist));
        Some(HlsCopy::new(Place::Disk { kind, lingers, folder: self.path(folders) }, name))
    }

    /// Returns the copy of the playlist of a single track.
    pub(super) fn of_track(&self, playlist: &str) -> Option<HlsCopy> {
        let stem = playlist.strip_suffix(ENDING)?.to_owned();
        let track = OfTrack {
            stem,
            coming: Coming::default(),
            stored: Vec::new(),
            places: Places::default(),
            pieces: Vec::new(),
        };
        Some(HlsCopy { track: Some(track), ..self.on_disk(playlist)? })
    }
}

/// The segments of a single track in a DASH manifest.
#[derive(Debug)]
struct OfTrack {
    /// The common prefix of the names of the track's files, before a `_`.
    stem: String,
    /// Places of segments that are not stored yet.
    coming: Coming,
    /// Places of segments that have been stored since the last manifest.
    stored: Vec<Piece>,
    places: Places,
    pieces: Vec<Piece>,
}

/// A copy of a playlist and its segments, on the disk or at another server.
#[derive(Debug)]
pub(super) struct HlsCopy {
    place: Place,
    /// The playlist's own name.
    name: String,
    /// The playlist, with only those segments that are not settled.
    all: MediaPlaylist,
    settled: Settled,
    /// Number of the first segment in memory.
    in_memory_from: u64,
    files: Files,
    /// Names of files that may be dropped from memory once the copy has stored them.
    kept: Vec<String>,
    /// Set if the playlist is that of a single track.
    track: Option<OfTrack>,
    cleared: bool,
    /// True if the stored playlist is out of date.
    list_due: bool,
    /// True if no more segments fit, so that the playlist must be closed.
    full: bool,
    /// True if the last file could not be stored.
    failing: bool,
    doing: Option<Doing>,
    retry_at: Option<Instant>,
    end: End,
}

impl HlsCopy {
    fn new(place: Place, name: &str) -> Self {
        Self {
            cleared: matches!(place, Place::Server(_)),
            place,
            name: name.to_owned(),
            all: MediaPlaylist::default(),
            settled: Settled::default(),
            in_memory_from: 0,
            files: Files::default(),
            kept: Vec::new(),
            track: None,
            list_due: false,
            full: false,
            failing: false,
            doing: None,
            retry_at: None,
            end: End::No,
        }
    }

    // ---- inputs

    /// Adds a segment or an initialization section, by its name below the application's `streams`.
    pub(super) fn add(&mut self, path: &str, bytes: Bytes) {
        if self.full {
            return;
        }
        let name = own_name(path).to_owned();
        if self.files.held_bytes.saturating_add(bytes.len()) > HELD_BYTES_MAX {
            self.lose(name, "it is too slow");
            return;
        }
        self.files.held_bytes = self.files.held_bytes.saturating_add(bytes.len());
        self.files.pending.insert(name.clone());
        self.files.waiting.push_back(Step { name, bytes: Some(bytes), failed: 0 });
    }

    /// True if this is a copy of the playlist with this name.
    pub(super) fn is_of(&self, playlist: &str) -> bool {
        self.track.as_ref().is_none_or(|track| playlist.strip_suffix(ENDING) == Some(track.stem.as_str()))
    }

    /// True if the copy has the segment or initialization section with this name below the application's `streams`.
    pub(super) fn has(&self, path: &str) -> bool {
        let is_of =
            |track: &OfTrack| path.strip_prefix(&track.stem).is_some_and(|rest| rest.starts_with('_'));
        self.track.as_ref().is_none_or(is_of)
    }

    /// Notes the places of the newest segments in DASH manifests; they have these names.
    pub(super) fn describe(&mut self, names: &[String], outline: &Outline) {
        if let Some(track) = self.track.as_mut().filter(|_| !self.full) {
            track.coming.add(names, outline);
        }
    }

    /// Returns the places of the stored segments in a DASH manifest with these periods; `None` if the playlist is that
    /// of several tracks.
    pub(super) fn pieces(&mut self, anchors: &[Anchor]) -> Option<Vec<Piece>> {
        let track = self.track.as_mut()?;
        track.places.set_anchors(anchors);
        if track.places.has_anchors() {
            let stored = std::mem::take(&mut track.stored);
            stored.into_iter().for_each(|piece| track.places.add(piece, &mut track.pieces));
        }
        Some(track.pieces.clone())
    }

    /// Adds the new segments of the playlist in memory.
    pub(super) fn note(&mut self, live: &MediaPlaylist) {
        if self.full {
            return;
        }
        if self.count() == 0 {
            let kind = matches!(self.place, Place::Disk { .. }).then_some(Kind::Event);
            self.all = MediaPlaylist { kind, segments: Vec::new(), low_latency: None, ..*live };
            self.settled.begun_ms = live.segments.first().and_then(|segment| segment.program_date_time);
        }
        let known = self.all.media_sequence.saturating_add(self.count()).saturating_sub(live.media_sequence);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let is_of_track = self.track.is_some();
        let new = live.segments.iter().skip(known).cloned();
        self.all.segments.extend(new.map(|segment| match is_of_track {
            // The parts of a segment leave memory long before it does.
            true => Segment { parts: Vec::new(), ..segment },
            false => segment,
        }));
        self.in_memory_from = live.media_sequence;
        match self.place {
            Place::Disk { .. } => self.settle(),
            Place::Server(_) => self.drop_oldest(live),
        }
        self.all.ended = live.ended;
        self.all.independent_segments &= live.independent_segments;
        self.list_due |= self.files.pending.is_empty();
        if !self.all.ended && self.is_at_bound() {
            self.close();
        }
    }

    /// True if no more segments fit into the playlist. That of a server has only those in memory.
    fn is_at_bound(&self) -> bool {
        let lines = SegmentLines { behind: self.settled.last.as_ref(), segments: &self.all.segments };
        let bytes = || self.settled.text.len().saturating_add(lines.to_string().len());
        matches!(self.place, Place::Disk { .. })
            && (self.count() >= u64::try_from(SEGMENTS_MAX).unwrap_or(u64::MAX)
                || bytes() > PLAYLIST_BYTES_MAX.saturating_sub(SPARE_BYTES))
    }

    /// Returns the number of segments so far; for a server, of those in memory.
    fn count(&self) -> u64 {
        self.settled.count.saturating_add(self.all.segments.len() as u64)
    }

    /// Returns the number of segments that are not settled and are no longer in memory.
    fn gone(&self) -> usize {
        let first = self.all.media_sequence.saturating_add(self.settled.count);
        let gone = self.in_memory_from.saturating_sub(first);
        usize::try_from(gone).unwrap_or(usize::MAX).min(self.all.segments.len())
    }

    /// Drops segments that memory no longer has.
    fn drop_oldest(&mut self, live: &MediaPlaylist) {
        let gone = self.gone();
        for segment in self.all.segments.drain(..gone) {
            self.files.lost.remove(&segment.uri);
        }
        // Date ranges that are still open are listed with the first remaining segment.
        if let (Some(first), Some(live)) = (self.all.segments.first_mut(), live.segments.first()) {
            first.date_ranges.clone_from(&live.date_ranges);
        }
        self.all.media_sequence = self.in_memory_from;
        self.all.discontinuity_sequence = live.discontinuity_sequence;
    }

    /// Moves segments that memory no longer has to `settled`: each is either on the disk or a permanent gap.
    fn settle(&mut self) {
        let gone = self.all.segments.iter().take(self.gone());
        let settled = gone.take_while(|segment| !self.files.is_pending(segment)).count();
        let settled: Vec<Segment> = self.all.segments.drain(..settled).collect();
        let settled = self.files.marked(settled);
        self.all.version = version(self.all.version, &settled);
        let lines = SegmentLines { behind: self.settled.last.as_ref(), segments: &settled };
        self.settled.text.push_str(&lines.to_string());
        self.settled.count = self.settled.count.saturating_add(settled.len() as u64);
        for segment in settled {
            self.files.lost.remove(&segment.uri);
            self.settled.last = Some(segment);
        }
    }

    /// The given files have left the live playlist. Returns the names of files that may now be dropped from memory.
    /// If the copy is at a server, the given files are removed there as well.
    pub(super) fn release(&mut self, names: Vec<String>) -> Vec<String> {
        if matches!(self.place, Place::Server(_)) {
            let room = REMOVALS_MAX.saturating_sub(self.files.waiting.len());
            let removals = names.iter().take(room).map(|name| own_name(name).to_owned());
            self.files.waiting.extend(removals.map(|name| Step { name, bytes: None, failed: 0 }));
            return names;
        }
        self.kept.extend(names);
        let pending = &self.files.pending;
        self.kept.extract_if(.., |name| !pending.contains(own_name(name))).collect()
    }

    /// Ends the copy, because the stream has ended.
    pub(super) fn finish(&mut self, now: Instant) {
        if self.end == End::No {
            let lingers = match self.place {
                Place::Disk { lingers, .. } => {
                    // The playlist on the disk gets its end tag, even if the playlist of live viewers gets none
                    // (`hls.endlist`).
                    let is_told = std::mem::replace(&mut self.all.ended, true);
                    self.list_due |= !is_told && self.count() > 0 && self.files.pending.is_empty();
                    lingers
                }
                Place::Server(_) => None,
            };
            self.end = End::At(lingers.and_then(|lingers| now.checked_add(lingers)));
        }
    }

    /// Finishes the copy early, because this process shuts down or the session must end. On the disk, files that are
    /// not to be kept are removed now; a remote server is sent the final playlist alone, without the waiting files.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.finish(now);
        if matches!(self.place, Place::Server(_)) {
            for step in std::mem::take(&mut self.files.waiting) {
                self.files.pending.remove(&step.name);
                self.files.lost.extend(step.bytes.map(|_| step.name));
            }
            self.files.held_bytes = 0;
            self.list_due = true;
        }
        if let End::At(Some(at)) = &mut self.end {
            *at = now.min(*at);
        }
    }

    /// Handles the outcome of the job under way. Returns true if the manifest has a new segment.
    pub(super) fn job_done(&mut self, now: Instant, outcome: Outcome) -> bool {
        let Some(doing) = self.doing.take() else { return false };
        match (doing, outcome) {
            (doing, Outcome::Busy) => {
                match doing {
                    Doing::File(step) => self.files.waiting.push_front(step),
                    Doing::List => self.list_due = true,
                    Doing::Clear => self.cleared = false,
                    Doing::Remove => self.end = End::At(Some(now)),
                }
                self.retry_at = now.checked_add(RETRY);
            }
            (Doing::File(step), outcome) => return self.step_done(now, step, failure(outcome)),
            (Doing::Clear | Doing::List | Doing::Remove, outcome) => {
                if let Some(reason) = failure(outcome) {
                    self.warn(&reason);
                }
            }
        }
        false
    }

    /// Handles the outcome of a file. Returns true if the manifest has a new segment.
    fn step_done(&mut self, now: Instant, step: Step, failure: Option<Cow<'static, str>>) -> bool {
        let Some(bytes) = &step.bytes else { return false };
        let failed = step.failed.saturating_add(1);
        // After the end of the stream, a failed file is not sent again, because another stream may soon use its name
        // at the server.
        let is_tried_again =
            matches!((&self.place, self.end), (Place::Server(_), End::No)) && failed < ATTEMPTS;
        if failure.is_some() && is_tried_again {
            self.files.waiting.push_front(Step { failed, ..step });
            self.retry_at = now.checked_add(ATTEMPT_PAUSE);
            return false;
        }
        self.files.held_bytes = self.files.held_bytes.saturating_sub(bytes.len());
        self.files.pending.remove(&step.name);
        self.list_due = true;
        if let Some(reason) = failure {
            self.lose(step.name, &reason);
            return false;
        }
        self.failing = false;
        let track = self.track.as_mut();
        let stored = track.and_then(|track| Some((track.coming.take(&step.name)?, &mut track.stored)));
        stored.map(|(piece, stored)| stored.push(piece)).is_some()
    }

    fn lose(&mut self, name: String, reason: &str) {
        self.track.iter_mut().for_each(|track| drop(track.coming.take(&name)));
        self.files.lost.insert(name);
        self.warn(reason);
    }

    fn warn(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(place = %self.place, playlist = self.name, reason, "HLS copy lacks segments");
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.retry_at.take_if(|at| *at <= now);
    }

    // ---- outputs

    /// Returns the playlist for live viewers, if it differs from the one in memory.
    pub(super) fn text(&self) -> Option<String> {
        let is_shown = matches!(self.place, Place::Disk { kind: Kind::Event, .. }) && self.track.is_none();
        if !is_shown || self.full {
            return None;
        }
        let (gone, in_memory) = self.all.segments.split_at_checked(self.gone())?;
        let gone = self.files.marked(gone.to_vec());
        Some(self.playlist(&[gone, in_memory.to_vec()].concat(), self.all.kind, self.all.ended))
    }

    /// Returns the playlist of the settled segments, followed by these unsettled ones.
    fn playlist(&self, unsettled: &[Segment], kind: Option<Kind>, ended: bool) -> String {
        let version = version(self.all.version, unsettled);
        let (segments, low_latency) = (Vec::new(), None);
        let head = MediaPlaylist { version, kind, ended: false, segments, low_latency, ..self.all };
        let lines = SegmentLines { behind: self.settled.last.as_ref(), segments: unsettled };
        let end = if ended { "#EXT-X-ENDLIST\n" } else { "" };
        format!("{head}{}{lines}{end}", self.settled.text)
    }

    /// Closes the playlist, because no more segments fit.
    fn close(&mut self) {
        tracing::warn!(playlist = self.name, segments = self.count(), "playlist full; it ends here");
        self.full = true;
        self.list_due = true;
        self.all.ended = true;
    }

    /// Returns the next job if none is under way.
    pub(super) fn next_job(&mut self, now: Instant) -> Option<Work> {
        if self.doing.is_some() || self.retry_at.is_some() {
            return None;
        }
        let (doing, work) = if !std::mem::replace(&mut self.cleared, true) {
            (Doing::Clear, self.removal(None))
        } else if let Some(data) = self.list() {
            (Doing::List, self.file(&self.name, Some(data)))
        } else if let Some(step) = self.files.waiting.pop_front() {
            let work = self.file(&step.name, step.bytes.clone());
            (Doing::File(step), work)
        } else if let End::At(at @ Some(_)) = &mut self.end
            && at.take_if(|at| *at <= now).is_some()
        {
            // The work names the date of this copy's first segment. If another copy of the stream has begun
            // meanwhile, its date is different, and its files are not removed.
            (Doing::Remove, self.removal(self.settled.begun_ms))
        } else {
            return None;
        };
        self.doing = Some(doing);
        Some(work)
    }

    /// Makes the job that stores or removes a file.
    fn file(&self, name: &str, data: Option<Bytes>) -> Work {
        match &self.place {
            Place::Disk { .. } => {
                let data = data.unwrap_or_default();
                Work::Archive(ArchiveWork::Put { path: self.path(name), data })
            }
            Place::Server(url) => {
                let content_type = media_type(name);
                Work::Relay(RelayWork { url: Arc::clone(url), name: name.to_owned(), content_type, data })
            }
        }
    }

    /// Makes the work that removes all files.
    fn removal(&self, begun_ms: Option<i64>) -> Work {
        Work::Archive(ArchiveWork::Remove { path: self.path(&self.name), begun_ms })
    }

    /// Returns the path of a file on the disk.
    fn path(&self, name: &str) -> Vec<String> {
        match &self.place {
            Place::Disk { folder, .. } => folder.iter().cloned().chain([name.to_owned()]).collect(),
            Place::Server(_) => Vec::new(),
        }
    }

    /// Returns the playlist of the stored segments, if it has changed.
    fn list(&mut self) -> Option<Bytes> {
        if !std::mem::take(&mut self.list_due) {
            return None;
        }
        let there = self.all.segments.iter().take_while(|segment| !self.files.is_pending(segment));
        let there: Vec<Segment> = self.files.marked(there.cloned().collect());
        if there.is_empty() && self.settled.count == 0 {
            return None;
        }
        let ended = self.all.ended && there.len() == self.all.segments.len();
        let kind = match self.place {
            Place::Disk { kind, .. } if ended => Some(kind),
            Place::Disk { .. } | Place::Server(_) => self.all.kind,
        };
        Some(self.playlist(&there, kind, ended).into())
    }

    /// True if nothing remains to be done.
    pub(super) fn is_settled(&self) -> bool {
        let is_over = matches!(self.end, End::At(None));
        is_over && self.doing.is_none() && self.files.waiting.is_empty() && !self.list_due
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let remove_at = match self.end {
            End::At(at) if self.doing.is_none() && self.files.waiting.is_empty() => at,
            End::At(_) | End::No => None,
        };
        [self.retry_at, remove_at].into_iter().flatten().min()
    }
}

/// Returns the name of a file without its folders.
fn own_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the version that a playlist needs with these segments added.
fn version(version: u32, segments: &[Segment]) -> u32 {
    if segments.iter().any(|segment| segment.gap) { version.max(GAP_VERSION) } else { version }
}

/// Returns the reason why a job failed; `None` if it succeeded.
fn failure(outcome: Outcome) -> Option<Cow<'static, str>> {
    if let Outcome::Relayed(result) = outcome {
        return result.err().map(Cow::Owned);
    }
    outcome.archived().err().map(|error| Cow::Borrowed(reason_of(error)))
}

/// Returns the reason why a file was not written.
pub(super) const fn reason_of(error: AppendError) -> &'static str {
    match error {
        AppendError::Full => "the disk is full",
        AppendError::Path | AppendError::Exists => "the path leads to something that is no file",
        AppendError::Failed => "the file cannot be written",
    }
}
