//! All copies of a sink's files in other places ([`super::copy`]), and the texts about several tracks beside them on
//! the disk: the multivariant playlist and the DASH manifest.
//!
//! The manifest has the segments that are on the disk. It is written anew when one was stored, and once more at the end
//! of the stream: it is then a recording that begins at zero. If files are removed after the end, these texts go last.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use hls::playlist::MediaPlaylist;
use hls::segmenter::{
    Accessibility, Anchor, Excerpt, Moments, NUMBERS_FROM_MS, Outline, Past, Piece, select,
};
use media::TrackKind;

use super::copy::{ATTEMPT_PAUSE, HlsCopy, Plan, RETRY};
use crate::jobs::{ArchiveWork, Outcome, Work};
use crate::protocol::sinks::SinkOrder;
use crate::types::Now;

/// The id of jobs on texts; those of copies count from 0.
const TEXTS_JOB: u64 = (1 << 32) - 1;

/// The description of the DASH manifest on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sheet {
    /// The manifest's name below the application's `streams`.
    pub(super) name: String,
    /// The folder of the segments relative to the manifest, with a slash at the end.
    pub(super) base: String,
    /// The periods of this run of the stream.
    pub(super) anchors: Vec<Anchor>,
    /// Delay that players should keep, in milliseconds.
    pub(super) latency_ms: u64,
    /// Descriptors of all videos.
    pub(super) accessibility: Vec<Accessibility>,
}

/// The copies of a sink's files.
#[derive(Debug)]
pub(super) struct Copies {
    plan: Plan,
    of: Vec<HlsCopy>,
    texts: Texts,
    sheet: Option<Sheet>,
    /// True if the manifest on the disk is out of date.
    is_due: bool,
}

/// Small files that are written whole, each time that they change.
#[derive(Debug, Default)]
struct Texts {
    /// Beginnings of names whose files an earlier run of the stream may have left. They are removed before any file is
    /// written.
    former: Vec<String>,
    waiting: BTreeMap<String, Bytes>,
    /// Files on the disk with their contents.
    there: BTreeMap<String, Bytes>,
    doing: Option<Doing>,
    retry_at: Option<Instant>,
    is_over: bool,
    /// The time at which the files are removed.
    remove_at: Option<Instant>,
}

/// The job on texts that is under way.
#[derive(Debug)]
enum Doing {
    /// Removes files of an earlier run, whose names begin with this.
    Clear(String),
    /// Writes a file.
    Put(String, Bytes),
    /// Removes a file.
    Withdraw(String, Bytes),
}

impl Copies {
    /// Makes no copy yet; the places are those that the settings of a stream require.
    pub(super) fn new(order: &SinkOrder) -> Self {
        Self { plan: Plan::of(order), of: Vec::new(), texts: Texts::default(), sheet: None, is_due: false }
    }

    /// Copies the playlist with this name, of all tracks together.
    pub(super) fn add(&mut self, playlist: &str) {
        self.of.extend(self.plan.copies(playlist));
    }

    /// Copies the playlist of a single track to the disk, if it is not copied yet.
    pub(super) fn add_track(&mut self, playlist: &str) {
        if !self.of.iter().any(|copy| copy.is_of(playlist)) {
            self.of.extend(self.plan.of_track(playlist));
        }
    }

    /// Removes the files on the disk whose names begin with these, before any copy is made.
    pub(super) fn clear(&mut self, stems: impl IntoIterator<Item = String>) {
        if self.is_on_disk() {
            self.texts.former.extend(stems);
        }
    }

    /// True if copies are on the disk.
    pub(super) const fn is_on_disk(&self) -> bool {
        self.plan.disk.is_some()
    }

    // ---- inputs

    /// Adds a segment or an initialization section, by its name below the application's `streams`.
    pub(super) fn store(&mut self, name: &str, bytes: &Bytes) {
        let copies = self.of.iter_mut().filter(|copy| copy.has(name));
        copies.for_each(|copy| copy.add(name, bytes.clone()));
    }

    /// Adds the new segments of the playlist in memory with this name.
    pub(super) fn note(&mut self, name: &str, playlist: &MediaPlaylist) {
        self.of.iter_mut().filter(|copy| copy.is_of(name)).for_each(|copy| copy.note(playlist));
    }

    /// Notes the places of a track's newest segments in DASH manifests, before its playlist with this name.
    pub(super) fn describe(&mut self, playlist: &str, names: &[String], outline: &Outline) {
        let copies = self.of.iter_mut().filter(|copy| copy.is_of(playlist));
        copies.for_each(|copy| copy.describe(names, outline));
    }

    /// Sets the description of the manifest.
    pub(super) fn set_sheet(&mut self, sheet: Sheet) {
        if self.sheet.as_ref() != Some(&sheet) {
            (self.sheet, self.is_due) = (Some(sheet), true);
        }
    }

    /// Writes a multivariant playlist. A comment has the run of the stream, so that the end of an earlier run removes
    /// only its own file.
    pub(super) fn put_master(&mut self, name: &str, text: String, run: u64) {
        let text = Bytes::from(format!("{text}#MILLSTREAM-RUN:{run}\n"));
        if self.is_on_disk() && self.texts.newest(name) != Some(&text) {
            self.texts.waiting.insert(name.to_owned(), text);
        }
    }

    /// Returns the names of files that may be dropped from memory, of those that no playlist in memory needs.
    pub(super) fn release(&mut self, names: Vec<String>) -> Vec<String> {
        self.of.iter_mut().fold(names, |names, copy| copy.release(names))
    }

    /// Ends all copies, because the stream has ended.
    pub(super) fn finish(&mut self, now: Instant) {
        self.of.iter_mut().for_each(|copy| copy.finish(now));
        if !std::mem::replace(&mut self.texts.is_over, true) {
            let lingers = self.plan.disk.and_then(|(_, lingers)| lingers);
            self.texts.remove_at = lingers.and_then(|lingers| now.checked_add(lingers));
            self.is_due = self.sheet.is_some();
        }
    }

    /// Hastens the end, because the session must end soon.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.finish(now);
        self.of.iter_mut().for_each(|copy| copy.hurry(now));
        self.texts.remove_at = self.texts.remove_at.map(|at| at.min(now));
    }

    pub(super) fn job_done(&mut self, now: Instant, id: u64, outcome: Outcome) {
        if id == TEXTS_JOB {
            return self.texts.job_done(now, outcome);
        }
        if let Some(copy) = usize::try_from(id).ok().and_then(|at| self.of.get_mut(at)) {
            let has_stored = copy.job_done(now, outcome);
            self.is_due |= has_stored && self.sheet.is_some();
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.of.iter_mut().for_each(|copy| copy.handle_timeout(now));
        self.texts.retry_at.take_if(|at| *at <= now);
    }

    // ---- outputs

    /// Returns the playlist of all segments, if live viewers get it.
    pub(super) fn text(&self) -> Option<String> {
        self.of.iter().find_map(HlsCopy::text)
    }

    /// Returns the next job with its id.
    pub(super) fn next_job(&mut self, now: Now) -> Option<(u64, Work)> {
        let plan = &self.plan;
        if self.texts.is_clearing() {
            let work = self.texts.next_clear(|name| plan.path(name))?;
            return Some((TEXTS_JOB, Work::Archive(work)));
        }
        let job = |(id, copy): (u64, &mut HlsCopy)| Some((id, copy.next_job(now.mono)?));
        if let Some(job) = (0..).zip(&mut self.of).find_map(job) {
            return Some(job);
        }
        if self.texts.is_idle() && std::mem::take(&mut self.is_due) {
            let new =
                self.manifest(now.wall_ms).filter(|(name, text)| self.texts.there.get(name) != Some(text));
            self.texts.waiting.extend(new);
        }
        let (plan, is_last) = (&self.plan, self.are_copies_settled());
        let work = self.texts.next_job(now.mono, is_last, |name| plan.path(name))?;
        Some((TEXTS_JOB, Work::Archive(work)))
    }

    /// Returns the manifest of the stored segments, with its name.
    fn manifest(&mut self, now_ms: u64) -> Option<(String, Bytes)> {
        let Sheet { name, base, anchors, latency_ms, accessibility } = self.sheet.clone()?;
        let mut renditions: Vec<Vec<Piece>> =
            self.of.iter_mut().filter_map(|copy| copy.pieces(&anchors)).collect();
        renditions.sort_by_key(|pieces| pieces.last().is_none_or(|last| last.kind() != TrackKind::Video));
        let (renditions, base, accessibility) = (&*renditions, &*base, &*accessibility);
        let past = Past { renditions, base, ended: false, latency_ms, accessibility };
        let text = Bytes::from(past.manifest(Moments { zero_ms: NUMBERS_FROM_MS, now_ms })?);
        if !self.texts.is_over {
            return Some((name, text));
        }
        let whole = Excerpt { start_ms: None, end_ms: Some(u64::MAX) };
        Some((name, select(&text, whole)?.concat().into()))
    }

    fn are_copies_settled(&self) -> bool {
        self.of.iter().all(HlsCopy::is_settled)
    }

    /// True if nothing remains to be done.
    pub(super) fn is_settled(&self) -> bool {
        self.are_copies_settled() && !self.is_due && self.texts.is_settled()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let removes = self.texts.is_idle() && self.are_copies_settled();
        let texts = [self.texts.retry_at, self.texts.remove_at.filter(|_| removes)];
        self.of.iter().filter_map(HlsCopy::poll_timeout).chain(texts.into_iter().flatten()).min()
    }
}

impl Texts {
    const fn is_idle(&self) -> bool {
        self.doing.is_none() && self.retry_at.is_none()
    }

    /// The newest content of a file, which may not be written yet.
    fn newest(&self, name: &str) -> Option<&Bytes> {
        let doing = match &self.doing {
            Some(Doing::Put(other, data)) if other == name => Some(data),
            Some(Doing::Clear(_) | Doing::Put(..) | Doing::Withdraw(..)) | None => None,
        };
        self.waiting.get(name).or(doing).or_else(|| self.there.get(name))
    }

    fn is_settled(&self) -> bool {
        self.doing.is_none() && self.former.is_empty() && self.waiting.is_empty() && self.remove_at.is_none()
    }

    /// True while files of an earlier run are removed.
    const fn is_clearing(&self) -> bool {
        !self.former.is_empty() || matches!(self.doing, Some(Doing::Clear(_)))
    }

    /// Returns the next job that removes files of an earlier run.
    fn next_clear(&mut self, path: impl Fn(&str) -> Vec<String>) -> Option<ArchiveWork> {
        if !self.is_idle() || self.former.is_empty() {
            return None;
        }
        let stem = self.former.remove(0);
        let work = ArchiveWork::Clear { path: path(&stem) };
        self.doing = Some(Doing::Clear(stem));
        Some(work)
    }

    /// Returns the next job. The texts are removed only if `is_last`: all other files are settled, so that no text is
    /// written anew.
    fn next_job(
        &mut self,
        now: Instant,
        is_last: bool,
        path: impl Fn(&str) -> Vec<String>,
    ) -> Option<ArchiveWork> {
        if !self.is_idle() {
            return None;
        }
        if let Some((name, data)) = self.waiting.pop_first() {
            self.doing = Some(Doing::Put(name.clone(), data.clone()));
            return Some(ArchiveWork::Put { path: path(&name), data });
        }
        if !is_last || self.remove_at.is_none_or(|at| at > now) {
            return None;
        }
        let Some((name, data)) = self.there.pop_first() else {
            self.remove_at = None;
            return None;
        };
        self.doing = Some(Doing::Withdraw(name.clone(), data.clone()));
        Some(ArchiveWork::Withdraw { path: path(&name), data })
    }

    fn job_done(&mut self, now: Instant, outcome: Outcome) {
        let Some(doing) = self.doing.take() else { return };
        if matches!(outcome, Outcome::Busy) {
            match doing {
                Doing::Clear(stem) => self.former.insert(0, stem),
                Doing::Put(name, data) => drop(self.waiting.entry(name).or_insert(data)),
                Doing::Withdraw(name, data) => drop(self.there.insert(name, data)),
            }
            self.retry_at = now.checked_add(RETRY);
            return;
        }
        let is_done = outcome.archived().is_ok();
        match doing {
            Doing::Put(name, data) if is_done => drop(self.there.insert(name, data)),
            // The disk may remain full for ever, so after the end of the stream nothing is tried again. The copies warn
            // of such a disk.
            Doing::Put(name, data) if !self.is_over => {
                tracing::debug!(file = name, "a file of the HLS copy was not written");
                self.waiting.entry(name).or_insert(data);
                self.retry_at = now.checked_add(ATTEMPT_PAUSE);
            }
            Doing::Clear(name) | Doing::Put(name, _) | Doing::Withdraw(name, _) => {
                if !is_done {
                    tracing::debug!(file = name, "a file of the HLS copy was not written or removed");
                }
            }
        }
    }
}
