//! Changes on their way to the disk.
//!
//! A change is gathered (for at most 2 ms, or while a commit is under way), committed with others in one batch, and
//! only then applied to memory and answered. Requests that arrive before are checked against an overlay of the pending
//! changes. Changes caused by publishing are visible immediately and are written with a later batch (`dirty`). If a
//! commit fails, all pending changes fail with it, memory stays as it is, and a new file is written from memory; until
//! that succeeds, every write fails (docs/robustness.md B-04).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Records;
use super::auxiliary::{Auxiliary, AuxiliaryWrite, Place};
use super::change::{Change, Write};
use crate::control::broadcast::Broadcast;
use crate::control::mask::Requester;
use crate::store::{self, Op};
use crate::types::{NodeId, Now, StreamKey};

/// Time for which changes are gathered while no commit is under way.
const GATHER: Duration = Duration::from_millis(2);
/// Longest delay before a change caused by publishing is written.
const LAZY: Duration = Duration::from_millis(1000);
/// Pause before the second attempt to write a new file. Each further pause is twice as long, up to the maximum.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);
const REBUILD_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of changes caused by publishing in one batch.
const DIRTY_PER_BATCH: usize = 512;

/// An event that follows from an answer of the store.
#[derive(Debug)]
pub(in crate::control) enum Event {
    /// A committed change of a record, to be applied now.
    Record(Write),
    /// A committed write of auxiliary records.
    Auxiliary(AuxiliaryWrite),
    /// A failed change of a record.
    Undone(StreamKey),
    /// A failed change, with the request that waits for it.
    Failed(Requester),
    /// Changes of other nodes that waited for a commit that has failed.
    Foreign(Vec<Op>),
}

/// A change that is not committed yet.
#[derive(Debug)]
enum Pending {
    Record(Write),
    Auxiliary(AuxiliaryWrite),
}

impl Pending {
    fn waiter(&self) -> Option<Requester> {
        match self {
            Self::Record(write) => write.waiter.as_ref().map(|(requester, _)| *requester),
            Self::Auxiliary(write) => write.waiter.as_ref().map(|(requester, _)| *requester),
        }
    }
}

/// The reason for a failed commit, as far as the server's reaction depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fault {
    /// Any error of the operating system except the following ones.
    #[default]
    Refused,
    /// The disk is full.
    Full,
    /// The server's home directory was removed while the server ran. Nothing is written until the directory is back.
    Gone,
}

impl Fault {
    const fn of(error: &store::Error) -> Self {
        match error {
            store::Error::Gone(_) => Self::Gone,
            store::Error::Full { .. } => Self::Full,
            store::Error::Locked(_)
            | store::Error::Damaged { .. }
            | store::Error::Version { .. }
            | store::Error::Io { .. }
            | store::Error::Missing(_)
            | store::Error::Unknown => Self::Refused,
        }
    }
}

/// State after a failed commit.
#[derive(Debug, Default)]
struct Broken {
    /// Reason of the last failure.
    fault: Fault,
    /// The batch that rebuilds the file, or a probe before it, if under way.
    batch: Option<u64>,
    /// True if the batch under way is a probe.
    is_probe: bool,
    /// Number of failed attempts to rebuild.
    failed: u32,
    /// Time of the next attempt to rebuild.
    due: Option<Instant>,
}

/// Changes of records on their way to the disk; see the module.
#[derive(Debug, Default)]
pub(in crate::control) struct Writes {
    gathered: Vec<Pending>,
    gather_until: Option<Instant>,
    committing: Option<(u64, Vec<Pending>)>,
    overlay: BTreeMap<StreamKey, Option<Broadcast>>,
    inserts: usize,
    dirty: BTreeSet<StreamKey>,
    dirty_until: Option<Instant>,
    broken: Option<Broken>,
    batches: u64,
    failures: u64,
    requests: VecDeque<store::Request>,
    events: VecDeque<Event>,
    shared: Shared,
}

/// State of the records if other nodes write them as well.
#[derive(Debug, Default)]
struct Shared {
    /// Id of this node, if other nodes write these records as well.
    node: Option<NodeId>,
    /// True if another process of this server writes these records as well.
    is_pair: bool,
    /// Keys of the commit under way.
    under_way: BTreeSet<store::Key>,
    /// Changes that other nodes made to the keys of the commit under way. In the directory's order, they precede that
    /// commit.
    deferred: Vec<Op>,
}

impl Records {
    /// Rebuilds the overlay of pending changes, because the committed records on which they are based have changed.
    pub(in crate::control) fn stage_again(&mut self) {
        self.unstage();
        let committing = self.writes.committing.take();
        let gathered = std::mem::take(&mut self.writes.gathered);
        for pending in committing.iter().flat_map(|(_, writes)| writes).chain(&gathered) {
            self.stage(pending);
        }
        self.writes.committing = committing;
        self.writes.gathered = gathered;
    }

    /// Returns all records in their stored form.
    pub(in crate::control) fn encoded(&self) -> Vec<(store::Key, Bytes)> {
        let broadcasts = self.all().filter(|(_, record)| self.writes.keeps(record));
        let broadcasts = broadcasts.map(|(key, record)| (key.into(), record.encode()));
        let auxiliary = self.auxiliary.all().map(|(key, record)| (key.clone(), record.encode()));
        broadcasts.chain(auxiliary).collect()
    }

    /// Returns the record as it will be after all pending changes.
    pub(in crate::control) fn pending(&self, key: &StreamKey) -> Option<&Broadcast> {
        match self.writes.overlay.get(key) {
            Some(record) => record.as_ref(),
            None => self.get(key),
        }
    }

    /// True if a change of the record is not committed yet.
    pub(in crate::control) fn is_pending(&self, key: &StreamKey) -> bool {
        self.writes.overlay.contains_key(key)
    }

    /// Gathers a change that was checked against [`Records::pending`].
    pub(in crate::control) fn write(&mut self, now: Now, write: Write) {
        if matches!(write.change, Change::Insert(_)) && self.writes.broken.is_none() {
            self.writes.inserts += 1;
        }
        self.gather(now, Pending::Record(write));
    }

    /// Gathers changes of auxiliary records that were checked against [`super::auxiliary::AuxiliaryRecords::pending`].
    /// Records of new files get the name of this node.
    pub(in crate::control) fn write_auxiliary(&mut self, now: Now, mut write: AuxiliaryWrite) {
        for (_, record) in &mut write.changes {
            if let (Some(Auxiliary::Vod(vod)), Some(node)) = (record, &self.writes.shared.node) {
                vod.node.get_or_insert_with(|| Box::new(Place(node.to_string())));
            }
        }
        self.gather(now, Pending::Auxiliary(write));
    }

    pub(in crate::control) fn handle_timeout(&mut self, now: Now) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now.mono);
        if let Some(broken) = &self.writes.broken {
            match due(broken.due) {
                true if self.writes.keeps_all() => self.rebuild(),
                true => self.writes.probe(),
                false => {}
            }
        } else if due(self.writes.gather_until) || due(self.writes.dirty_until) {
            self.flush(now);
        }
    }

    /// Handles an answer of the store. Returns true after a commit: the caller applies the events, then calls
    /// [`Records::settle`].
    pub(in crate::control) fn handle_store(&mut self, now: Now, reply: store::Reply) -> bool {
        if self.writes.broken.as_ref().is_some_and(|broken| broken.batch == Some(reply.batch)) {
            self.rebuilt(now, reply);
            return false;
        }
        if reply.batch == store::OF_OTHERS {
            if let Err(error) = reply.result.as_ref()
                && self.writes.broken.is_none()
            {
                tracing::error!(%error, "store not writable for the older process; changes fail until it is writable again");
                self.commit_failed(Vec::new(), Fault::of(error));
            }
            return false;
        }
        let committed = self.writes.committing.take_if(|(batch, _)| *batch == reply.batch);
        let Some((_, writes)) = committed else { return false };
        if let Err(error) = reply.result {
            tracing::error!(%error, "store not writable; changes fail until it is writable again");
            self.commit_failed(writes, Fault::of(&error));
            return false;
        }
        self.unstage();
        self.writes.shared.under_way.clear();
        self.writes.shared.deferred.clear();
        self.writes.happen(writes);
        true
    }

    /// Adds the changes that were gathered during a commit to the overlay again, and submits them.
    pub(in crate::control) fn settle(&mut self, now: Now, draining: bool) {
        let gathered = std::mem::take(&mut self.writes.gathered);
        for pending in &gathered {
            self.stage(pending);
        }
        self.writes.gathered = gathered;
        if !self.writes.gathered.is_empty() || draining {
            self.flush(now);
        }
    }

    /// Submits the gathered changes, unless a commit is under way.
    pub(in crate::control) fn flush(&mut self, now: Now) {
        if self.writes.committing.is_some() || self.writes.broken.is_some() {
            return;
        }
        // Changes made by publishing since the overlay was built are written with this batch.
        if !self.writes.dirty.is_empty() {
            self.stage_again();
        }
        let gathered = std::mem::take(&mut self.writes.gathered);
        self.writes.gather_until = None;
        let mut keys = BTreeSet::new();
        let mut auxiliary = BTreeSet::new();
        for pending in &gathered {
            match pending {
                Pending::Record(write) => drop(keys.insert(write.key.clone())),
                Pending::Auxiliary(write) => {
                    auxiliary.extend(write.changes.iter().map(|(key, _)| key.clone()));
                }
            }
        }
        while keys.len() < gathered.len().saturating_add(DIRTY_PER_BATCH) {
            let Some(key) = self.writes.dirty.pop_first() else { break };
            keys.insert(key);
        }
        self.writes.dirty_until = if self.writes.dirty.is_empty() { None } else { Some(now.mono) };
        if keys.is_empty() && auxiliary.is_empty() {
            // Nothing has to be written: the gathered events only waited for the end of the last commit, so they take
            // effect now.
            return self.writes.happen(gathered);
        }
        let ops = keys.into_iter().map(|key| self.writes.op(self.pending(&key), key));
        let auxiliary = auxiliary.into_iter().map(|key| match self.auxiliary.pending(&key) {
            Some(record) => Op::Put(key.clone(), record.encode()),
            None => Op::Delete(key),
        });
        let ops: Vec<Op> = ops.chain(auxiliary).collect();
        if self.writes.keeps_all() {
            self.writes.shared.under_way = ops.iter().map(|op| op.key().clone()).collect();
        }
        let batch = self.writes.next_batch();
        self.writes.committing = Some((batch, gathered));
        self.writes.requests.push_back(store::Request::Commit { batch, ops });
    }

    fn gather(&mut self, now: Now, pending: Pending) {
        if self.writes.broken.is_some() {
            return self.writes.fail(&pending);
        }
        self.stage(&pending);
        if self.writes.gathered.is_empty() {
            self.writes.gather_until = now.mono.checked_add(GATHER);
        }
        self.writes.gathered.push(pending);
    }

    /// Adds a change to the overlay of pending changes.
    fn stage(&mut self, pending: &Pending) {
        match pending {
            Pending::Record(write) => {
                let after = write.change.apply(self.pending(&write.key).cloned());
                self.writes.overlay.insert(write.key.clone(), after);
            }
            Pending::Auxiliary(write) => self.auxiliary.stage(&write.changes),
        }
    }

    fn unstage(&mut self) {
        self.writes.overlay.clear();
        self.auxiliary.unstage();
    }

    fn commit_failed(&mut self, writes: Vec<Pending>, fault: Fault) {
        self.writes.failures += 1;
        self.unstage();
        self.writes.inserts = 0;
        self.writes.gather_until = None;
        self.writes.dirty_until = None;
        let gathered = std::mem::take(&mut self.writes.gathered);
        for pending in writes.iter().chain(&gathered) {
            self.writes.fail(pending);
        }
        self.writes.broken = Some(Broken { fault, ..Broken::default() });
        // The directory may or may not have these records, so they are written again from memory when the directory is
        // back.
        for key in std::mem::take(&mut self.writes.shared.under_way) {
            if key.kind == store::Kind::Broadcast {
                self.writes.dirty.insert(StreamKey { app: key.app, id: key.id });
            }
        }
        let deferred = std::mem::take(&mut self.writes.shared.deferred);
        if !deferred.is_empty() {
            self.writes.events.push_back(Event::Foreign(deferred));
        }
        self.rebuild();
    }

    /// Writes everything in memory to a new file. This takes longer than anything else that control does for a single
    /// input, but happens only after a disk failure.
    fn rebuild(&mut self) {
        let batch = self.writes.next_batch();
        let broken = self.writes.broken.take().unwrap_or_default();
        self.writes.broken = Some(Broken { batch: Some(batch), is_probe: false, due: None, ..broken });
        let all = if self.writes.shared.node.is_some() {
            // Other nodes' records must not be overwritten. Changes made here are written when the directory is back.
            Vec::new()
        } else {
            // If the other process has the store, nothing is rebuilt, so the changes made here are still needed.
            if !self.writes.shared.is_pair {
                self.writes.dirty.clear();
            }
            self.encoded()
        };
        self.writes.requests.push_back(store::Request::Rebuild { batch, all });
    }

    fn rebuilt(&mut self, now: Now, reply: store::Reply) {
        let broken = self.writes.broken.take().unwrap_or_default();
        match reply.result {
            Ok(()) if broken.is_probe => {
                self.writes.broken = Some(broken);
                self.rebuild();
            }
            Ok(()) => {
                tracing::info!("store writable again");
                self.writes.dirty_until = (!self.writes.dirty.is_empty()).then_some(now.mono);
            }
            Err(error) => {
                tracing::debug!(%error, "rebuild failed");
                self.writes.failures += 1;
                let doubled = if self.writes.keeps_all() { 0 } else { broken.failed };
                let pause = REBUILD_PAUSE.saturating_mul(2_u32.saturating_pow(doubled));
                self.writes.broken = Some(Broken {
                    fault: Fault::of(&error),
                    due: now.mono.checked_add(pause.min(REBUILD_PAUSE_MAX)),
                    failed: broken.failed.saturating_add(1),
                    ..Broken::default()
                });
            }
        }
    }
}

impl Writes {
    /// Notes that other nodes write these records, too. From then on, records made by publishing are stored as well,
    /// and no new file is written from memory.
    pub(in crate::control) fn share(&mut self, node: NodeId) {
        self.shared.node = Some(node);
    }

    /// Notes that another process of this server writes these records, too.
    pub(in crate::control) const fn pair(&mut self) {
        self.shared.is_pair = true;
    }

    /// Notes that no other process writes these records any more.
    pub(in crate::control) const fn part(&mut self) -> bool {
        std::mem::replace(&mut self.shared.is_pair, false)
    }

    /// True if a record is one that the store keeps.
    pub(in crate::control) const fn keeps(&self, record: &Broadcast) -> bool {
        !record.zombi || self.keeps_all()
    }

    /// True if records made by publishing are stored, too.
    pub(in crate::control) const fn keeps_all(&self) -> bool {
        self.shared.node.is_some() || self.shared.is_pair
    }

    /// Returns the changes of other nodes that can be applied now. Defers changes of keys that are part of this node's
    /// commit under way.
    pub(in crate::control) fn without_under_way(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let shared = &mut self.shared;
        let (deferred, now) = ops.into_iter().partition(|op| shared.under_way.contains(op.key()));
        let deferred: Vec<Op> = deferred;
        shared.deferred.extend(deferred);
        now
    }

    pub(in crate::control) fn deadline(&self) -> Option<Instant> {
        if let Some(broken) = &self.broken {
            return broken.due;
        }
        if self.committing.is_some() {
            return None;
        }
        [self.gather_until, self.dirty_until].into_iter().flatten().min()
    }

    /// True if no change waits for the disk, or the store is broken.
    pub(in crate::control) fn is_flushed(&self) -> bool {
        self.broken.is_some()
            || (self.gathered.is_empty() && self.committing.is_none() && self.dirty.is_empty())
    }

    /// True if the disk has failed, and changes are refused.
    pub(in crate::control) const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// True if the server's home directory was removed while the server ran.
    pub(in crate::control) fn is_gone(&self) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.fault == Fault::Gone)
    }

    /// True if changes are refused because the disk is full.
    pub(in crate::control) fn is_full(&self) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.fault == Fault::Full)
    }

    /// Submits a backup to the store. Returns the number of the request, which its reply repeats.
    pub(in crate::control) fn back_up(&mut self, backup: store::backup::Backup) -> u64 {
        let batch = self.next_batch();
        self.requests.push_back(store::Request::Backup { batch, backup });
        batch
    }

    /// Returns the number of new records that are not stored yet.
    pub(in crate::control) const fn inserts(&self) -> usize {
        self.inserts
    }

    /// Returns the number of failed commits since the start.
    pub(in crate::control) const fn store_failures(&self) -> u64 {
        self.failures
    }

    /// Returns the number of changes that wait for the disk.
    pub(in crate::control) fn waiting_writes(&self) -> usize {
        let committing = self.committing.as_ref().map_or(0, |(_, writes)| writes.len());
        self.gathered.len().saturating_add(committing)
    }

    /// Notes a record that has changed in memory and must be written later.
    pub(in crate::control) fn mark_dirty(&mut self, now: Now, key: StreamKey) {
        if self.dirty.is_empty() {
            self.dirty_until = now.mono.checked_add(LAZY);
        }
        self.dirty.insert(key);
    }

    /// The change that gives the store the state `record` of this key. A record that was made by publishing is kept in
    /// memory only, and removed when its stream ends.
    pub(in crate::control) fn op(&self, record: Option<&Broadcast>, key: StreamKey) -> Op {
        match record {
            Some(record) if self.keeps(record) => Op::Put(key.into(), record.encode()),
            Some(_) | None => Op::Delete(key.into()),
        }
    }

    /// Submits changes behind the commit that is under way. Nothing waits for the answer: if it is an error, the next
    /// commit has it, too.
    pub(in crate::control) fn commit_at_once(&mut self, ops: Vec<Op>) {
        if !ops.is_empty() && self.broken.is_none() {
            let batch = self.next_batch();
            self.requests.push_back(store::Request::Commit { batch, ops });
        }
    }

    /// True if a change of the record in memory waits for a commit.
    pub(in crate::control) fn is_dirty(&self, key: &StreamKey) -> bool {
        self.dirty.contains(key)
    }

    /// Notes that a new record is stored, and no longer counts as queued.
    pub(in crate::control) fn inserted(&mut self) {
        self.inserts = self.inserts.saturating_sub(1);
    }

    /// Returns the next request to the store.
    pub(in crate::control) fn poll_request(&mut self) -> Option<store::Request> {
        self.requests.pop_front()
    }

    /// Returns the next event.
    pub(in crate::control) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Tries to write a small file before the new one, so that records are not encoded for a disk that is still full.
    /// Processes that share the records do without: they have nothing to encode, or are an upgrade, which is short.
    fn probe(&mut self) {
        let batch = self.next_batch();
        let broken = self.broken.take().unwrap_or_default();
        self.broken = Some(Broken { batch: Some(batch), is_probe: true, due: None, ..broken });
        self.requests.push_back(store::Request::Probe { batch });
    }

    fn next_batch(&mut self) -> u64 {
        self.batches += 1;
        self.batches
    }

    fn happen(&mut self, writes: Vec<Pending>) {
        self.events.extend(writes.into_iter().map(|pending| match pending {
            Pending::Record(write) => Event::Record(write),
            Pending::Auxiliary(write) => Event::Auxiliary(write),
        }));
    }

    fn fail(&mut self, pending: &Pending) {
        if let Pending::Record(write) = pending {
            self.events.push_back(Event::Undone(write.key.clone()));
        }
        self.events.extend(pending.waiter().map(Event::Failed));
    }
}
