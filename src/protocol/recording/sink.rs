//! A sink that records a stream to a file, and to the next one when the file is full or the stream's tracks change.
//!
//! At most one append is in progress at a time; units that arrive meanwhile are gathered, up to [`HELD_BYTES_MAX`].
//! Beyond it the sink accepts no units, its cursor lags, and after `maxLatencyMs` it continues at a key frame, like a
//! viewer whose socket is full. Appended data is synced immediately, so that a power cut loses little more than a crash
//! does. Appends do not wait for a slow sync, so that a crash of the server does not lose more because of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;

use super::Container;
use super::fragments::Fragments;
use crate::hub::{AsPublished, Chosen, Delivery, Entry, Package, Pick, Selection};
use crate::jobs::{AppendError, AppendFile, AppendTo, Job, JobDone, JobId, Outcome, Work, series_of};
use crate::mail::{Arrival, RecordingNews, RecordingOrder};
use crate::protocol::sinks::{Params, SinkKind, SinkOrder};
use crate::protocol::{
    About, Context, Event, Format, FormatKind, OrderEvent, Reply, Session, SubscriptionEvent,
    SubscriptionNews, Timers, UnitSink,
};
use crate::types::{Handle, Now};

/// Maximum duration of a file, even if the application allows more: a day, because the index of a finished file is
/// made in memory.
const FILE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Maximum bytes gathered while a job is in progress.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Maximum number of appended bytes that are not synced yet.
const UNSYNCED_BYTES_MAX: usize = 8 << 20;
/// Maximum number of recent track changes after which a new file begins immediately. With more changes, one file begins
/// per [`CHANGE_PERIOD`], and nothing is recorded in between.
const CHANGES_MAX: u32 = 8;
/// Period after which a change no longer counts towards [`CHANGES_MAX`].
const CHANGE_PERIOD: Duration = Duration::from_secs(10);
/// Ids of the jobs in progress.
const WRITE: JobId = JobId(0);
const SYNC: JobId = JobId(1);
/// Pause before a job that was refused, because too many jobs waited, is submitted again.
const RETRY: Duration = Duration::from_millis(200);

/// The kind of sink that records MP4.
pub(super) static MP4: SinkKind = kind(
    Container::Mp4.name(),
    |_| Container::Mp4.name(),
    |_, order, _| Box::new(RecordingSink::new(Container::Mp4, order)),
);

/// The kind of sink that records WebM.
pub(super) static WEBM: SinkKind = kind(
    Container::WebM.name(),
    |_| Container::WebM.name(),
    |_, order, _| Box::new(RecordingSink::new(Container::WebM, order)),
);

/// Makes a kind of sink that has no blobs, and begins when control orders it.
pub(super) const fn kind(
    name: &'static str,
    viewers: fn(&str) -> &'static str,
    begin: fn(Now, &SinkOrder, Seed) -> Box<dyn Session>,
) -> SinkKind {
    SinkKind {
        name,
        is_enabled: |_| true,
        stream_of: |_, _| None,
        root: None,
        file_of: |_, _| None,
        kept_at: |_, _, _| None,
        forgets: |_, _, _| None,
        begins_with_stream: |_, _| false,
        is_outdated: |_, _| false,
        part_of: |_, _| None,
        ladder: None,
        is_glance: false,
        viewers,
        params: Params::NONE,
        begin,
    }
}

/// Format of every track that MP4 can store.
static MP4_FORMAT: FormatKind =
    format(Container::Mp4.name(), |_| Some(Box::new(AsPublished(|track| Container::Mp4.fit(track)))));

/// Format of every track that WebM can store.
static WEBM_FORMAT: FormatKind =
    format(Container::WebM.name(), |_| Some(Box::new(AsPublished(|track| Container::WebM.fit(track)))));

const fn format(name: &'static str, package: fn(u64) -> Option<Box<dyn Package>>) -> FormatKind {
    FormatKind {
        name,
        counted_as: None,
        is_enabled: |_| true,
        selection: Selection::DEFAULT,
        package,
        is_given_up_by_close: false,
        is_for_nodes: false,
    }
}

/// A step on files, to be done in order.
#[derive(Debug)]
enum Step {
    /// Begin a file. The arrival is that of its first unit.
    Begin(Arrival),
    Append(Vec<Bytes>),
    /// End the file.
    End,
}

/// The file being written.
#[derive(Debug)]
struct OpenFile {
    path: Vec<String>,
    file: Arc<dyn AppendFile>,
    unsynced_bytes: usize,
}

/// The step in progress.
#[derive(Debug)]
enum Doing {
    Nothing,
    Begin(Arrival),
    /// An append. The bytes are kept until they are in the file, because the job is submitted again if there was no
    /// room.
    Append(Vec<Bytes>),
}

/// Limits how often a new file begins because tracks have changed: a publisher that changes them with every key frame
/// would fill the disk with files.
#[derive(Debug, Default)]
struct Changes {
    /// Number of recent changes, reduced by one for each period that has passed.
    count: u32,
    /// The beginning of the current period.
    since: Option<Instant>,
    /// True if a new file is due and must wait.
    waits: bool,
    /// True if it was logged that a file waits.
    told: bool,
}

impl Changes {
    /// Notes that the tracks have changed, so that a file is due.
    fn note(&mut self) {
        self.waits = true;
    }

    /// True if the file that is due may begin now.
    fn may_begin(&mut self, now: Instant) -> bool {
        if !self.waits {
            return true;
        }
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since).as_secs() / CHANGE_PERIOD.as_secs();
        if passed > 0 {
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            self.count = self.count.saturating_sub(passed);
            // The part of the current period that has passed still counts.
            self.since = Some(since + CHANGE_PERIOD.saturating_mul(passed));
        }
        self.waits = self.count >= CHANGES_MAX;
        self.count = self.count.saturating_add(u32::from(!self.waits));
        self.told &= self.waits;
        !self.waits
    }

    /// Returns true, once, if it must be logged that a file waits.
    fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }
}

#[derive(Debug)]
pub(super) struct RecordingSink {
    container: Container,
    order: RecordingOrder,
    attached: bool,
    fragments: Option<Fragments>,
    /// True if the file ends at the next key frame.
    ends_soon: bool,
    changes: Changes,
    steps: VecDeque<Step>,
    held_bytes: usize,
    doing: Doing,
    /// Number of bytes covered by the sync in progress.
    syncing: Option<usize>,
    file: Option<OpenFile>,
    retry_at: Option<Instant>,
    /// The reason the sink has given up, if it has.
    failed: Option<String>,
    events: VecDeque<Event>,
    closing: Option<String>,
}

impl RecordingSink {
    fn new(container: Container, order: &SinkOrder) -> Self {
        Self::of(container, order.recording.clone().unwrap_or_default())
    }

    /// Makes a sink for a clip: MP4, without a subscription.
    pub(super) fn of_clip(order: RecordingOrder) -> Self {
        Self { attached: true, ..Self::of(Container::Mp4, order) }
    }

    /// True if more units are accepted now.
    pub(super) const fn has_room_for_more(&self) -> bool {
        self.held_bytes < HELD_BYTES_MAX || self.failed.is_some()
    }

    fn of(container: Container, order: RecordingOrder) -> Self {
        Self {
            container,
            order,
            attached: false,
            fragments: None,
            ends_soon: false,
            changes: Changes::default(),
            steps: VecDeque::new(),
            held_bytes: 0,
            doing: Doing::Nothing,
            syncing: None,
            file: None,
            retry_at: None,
            failed: None,
            events: VecDeque::new(),
            closing: None,
        }
    }

    fn append(&mut self, slices: Vec<Bytes>) {
        self.held_bytes = slices.iter().map(Bytes::len).fold(self.held_bytes, usize::saturating_add);
        match self.steps.back_mut() {
            Some(Step::Append(held)) => held.extend(slices),
            Some(Step::Begin(_) | Step::End) | None => self.steps.push_back(Step::Append(slices)),
        }
    }

    /// True if the file is full.
    fn is_full(&self, entry: &Entry) -> bool {
        let (length_ms, bytes) = self.fragments.as_ref().map_or((0, 0), |fragments| fragments.extent(entry));
        let is_over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value >= limit);
        let file_ms_max = self.order.file_ms_max.unwrap_or(FILE_MS_MAX).min(FILE_MS_MAX);
        is_over(Some(file_ms_max), u64::try_from(length_ms).unwrap_or(0))
            || is_over(self.order.file_bytes_max, bytes)
    }

    pub(super) fn take_unit(&mut self, entry: &Entry, chosen: &Chosen) {
        if self.failed.is_some() || self.closing.is_some() {
            return;
        }
        self.ends_soon |= self.fragments.as_mut().is_some_and(|fragments| fragments.is_of_others(chosen));
        let is_recorded = self.container.records_stream(chosen);
        if !is_recorded && self.fragments.as_ref().is_some_and(Fragments::is_empty) {
            // Tracks that arrived before anything was written show that the container cannot record this stream.
            self.fragments = None;
            self.steps.push_back(Step::End);
        }
        if Fragments::may_begin(chosen, entry) {
            if self.ends_soon {
                self.changes.note();
            }
            if self.ends_soon || self.is_full(entry) {
                self.end_file();
            }
            let is_due = is_recorded && self.fragments.is_none() && self.failed.is_none();
            if is_due && self.changes.may_begin(entry.received) {
                self.fragments = Some(Fragments::new(self.container, chosen));
                let first = Arrival { at: entry.received, wall_ms: entry.wall_ms };
                self.steps.push_back(Step::Begin(first));
            } else if is_due && self.changes.is_news() {
                let (folder, file) = (self.order.folder.join("/"), &self.order.stem);
                tracing::warn!(folder, file, "recording paused: the tracks change too often");
            }
        }
        let Some(fragments) = &mut self.fragments else { return };
        match fragments.unit(entry) {
            Ok(Some(slices)) => self.append(slices),
            Ok(None) => {}
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn end_file(&mut self) {
        let Some(fragments) = self.fragments.take() else { return };
        match fragments.finish() {
            Ok(slices) => {
                if let Some(slices) = slices {
                    self.append(slices);
                }
                self.steps.push_back(Step::End);
            }
            Err(error) => self.fail(error.to_string()),
        }
        self.ends_soon = false;
    }

    /// Gives up: gathered units are lost, the file stays. Jobs in progress end first.
    fn fail(&mut self, reason: String) {
        self.fragments = None;
        self.steps.clear();
        self.steps.push_back(Step::End);
        self.held_bytes = 0;
        self.retry_at = None;
        if let Some(file) = &mut self.file {
            file.unsynced_bytes = 0;
        }
        self.closing.get_or_insert_with(|| reason.clone());
        self.failed.get_or_insert(reason);
    }

    /// Returns a job that can begin now.
    fn next_job(&mut self) -> Option<Job> {
        if self.retry_at.is_some() {
            return None;
        }
        let unsynced_bytes = self.file.as_ref().map_or(0, |file| file.unsynced_bytes);
        if let Some(file) = self.file.as_ref().filter(|_| unsynced_bytes > 0 && self.syncing.is_none()) {
            self.syncing = Some(unsynced_bytes);
            return Some(Job { id: SYNC, app: None, work: Work::FileSync { file: Arc::clone(&file.file) } });
        }
        let waits = match self.steps.front()? {
            Step::Begin(_) => false,
            Step::Append(_) => unsynced_bytes >= UNSYNCED_BYTES_MAX,
            Step::End => self.syncing.is_some(),
        };
        if waits || !matches!(self.doing, Doing::Nothing) {
            return None;
        }
        let work = match self.steps.pop_front()? {
            Step::Begin(first) => {
                self.doing = Doing::Begin(first);
                self.begin_file()
            }
            Step::Append(data) => {
                let to = AppendTo::Open(Arc::clone(&self.file.as_ref()?.file));
                self.doing = Doing::Append(data.clone());
                Work::FileAppend { to, data }
            }
            Step::End => {
                let path = self.file.take()?.path;
                self.events.push_back(Event::Order(OrderEvent::Recording(RecordingNews::Ended { path })));
                return self.next_job();
            }
        };
        Some(Job { id: WRITE, app: None, work })
    }

    /// Returns the name of the first file of the recording's series.
    fn first_name(&self) -> String {
        format!("{}.{}", self.order.stem, self.container.name())
    }

    fn begin_file(&self) -> Work {
        let path = self.order.folder.iter().cloned().chain([self.first_name()]).collect();
        let to = AppendTo::Recording { path, from: self.order.number };
        Work::FileAppend { to, data: Vec::new() }
    }

    /// Notes the name of a file, so that the next file gets a later number of the series, even if the file is removed
    /// in the meantime.
    fn note_name(&mut self, name: &str) {
        let (first, number) = series_of(name);
        let number = if first == self.first_name() { number } else { 0 };
        self.order.number = number.saturating_add(1);
    }

    fn job_done(&mut self, ctx: &Context<'_>, done: JobDone) {
        if done.id == SYNC {
            return self.synced(ctx, done.outcome);
        }
        let doing = std::mem::replace(&mut self.doing, Doing::Nothing);
        match (doing, done.outcome) {
            (Doing::Begin(first), Outcome::Appended(Ok(appended))) => {
                self.note_name(appended.name.as_deref().unwrap_or_default());
                let path: Vec<String> = self.order.folder.iter().cloned().chain(appended.name).collect();
                self.events.push_back(Event::Order(OrderEvent::Recording(RecordingNews::Begun {
                    path: path.clone(),
                    first,
                })));
                self.file = Some(OpenFile { path, file: appended.file, unsynced_bytes: 0 });
            }
            (Doing::Append(data), Outcome::Appended(Ok(_))) => {
                let bytes = data.iter().map(Bytes::len).sum();
                self.held_bytes = self.held_bytes.saturating_sub(bytes);
                if let Some(file) = self.file.as_mut().filter(|_| self.failed.is_none()) {
                    file.unsynced_bytes = file.unsynced_bytes.saturating_add(bytes);
                }
            }
            (doing, Outcome::Busy) => {
                match doing {
                    Doing::Begin(first) => self.steps.push_front(Step::Begin(first)),
                    Doing::Append(data) => self.steps.push_front(Step::Append(data)),
                    Doing::Nothing => {}
                }
                self.retry_at = Some(ctx.now.mono + RETRY);
            }
            (_, Outcome::Appended(Err(error))) => self.fail(reason(error).to_owned()),
            _ => self.fail("the file cannot be written".to_owned()),
        }
    }

    fn synced(&mut self, ctx: &Context<'_>, outcome: Outcome) {
        let synced_bytes = self.syncing.take().unwrap_or(0);
        if matches!(outcome, Outcome::Busy) {
            self.retry_at = Some(ctx.now.mono + RETRY);
            return;
        }
        let Outcome::Synced(result) = outcome else {
            return self.fail("the file cannot be written".to_owned());
        };
        match (result, &mut self.file) {
            (Ok(()), Some(file)) => file.unsynced_bytes = file.unsynced_bytes.saturating_sub(synced_bytes),
            (Ok(()), None) => {}
            (Err(error), _) => self.fail(reason(error).to_owned()),
        }
    }
}

/// Returns the reason why a file cannot be written.
const fn reason(error: AppendError) -> &'static str {
    match error {
        AppendError::Path => "the path leads to something that is no file",
        AppendError::Exists => "there are too many files of that name",
        AppendError::Full => "the disk is full",
        AppendError::Failed => "the file cannot be written",
    }
}

impl UnitSink for RecordingSink {
    fn has_room(&self) -> bool {
        self.has_room_for_more()
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        self.take_unit(unit.entry, unit.chosen);
    }
}

impl Session for RecordingSink {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Job(done) => self.job_done(ctx, done),
            Reply::Subscription(_, SubscriptionNews::Ended(_) | SubscriptionNews::Verdict(Err(_))) => {
                self.close(ctx, "the stream ended");
            }
            Reply::Subscription(..)
            | Reply::Publication(..)
            | Reply::Request(_)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.end_file();
        self.closing.get_or_insert_with(|| reason.to_owned());
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let selection = Selection { data: Pick::None, ..Selection::ALL };
            let kind = match self.container {
                Container::Mp4 => &MP4_FORMAT,
                Container::WebM => &WEBM_FORMAT,
            };
            let format = Format::new(kind, 0).select(selection);
            return Some(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
        }
        if let Some(job) = self.next_job() {
            return Some(Event::Job(job));
        }
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        // Gathered units are written first.
        let is_done = matches!(self.doing, Doing::Nothing) && self.steps.is_empty() && self.file.is_none();
        self.closing.take_if(|_| is_done).map(Event::Closed)
    }

    fn about(&self) -> About {
        About { protocol: self.container.name(), is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}

impl Timers for RecordingSink {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.retry_at.take_if(|at| *at <= ctx.now.mono);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }
}

#[cfg(test)]
mod tests;
