//! The directory as a store, and as a source of news about other nodes. A single thread owns it, so that all changes
//! stay in order.
//!
//! 1. Each change has a number. This node keeps the number up to which it has reported all changes ([`Shared::last`]).
//! 2. A commit of this node gets a number, too. Before the commit is answered, earlier changes of other nodes are read
//!    and reported, so that all nodes see the changes in the same order.
//! 3. If a number is missing, or the connection was lost, everything is read again. Only differences are reported; they
//!    are found by comparing digests of the records.
//! 4. A directory that is empty, or older than before, has lost data. The nodes restore all records that they still
//!    have. A record that is missing does not count as removed.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::mem;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::RedisError;

use super::link::{Address, Change, Claimed, Entry, Link, Process};
use super::{ClaimAnswer, Holder, News, Request};
use crate::store::backup::Backup;
use crate::store::{Copying, Error, Key, Kind, Op, Store};
use crate::types::{NodeId, StreamKey};

/// Maximum number of bytes of records that are restored at a time.
const REFILLED_AT_ONCE: usize = 4 << 20;

/// Maximum number of changes that are reported together after everything was read again.
const TOLD_AT_ONCE: usize = 64;

/// Data that the directory has lost and that was not restored yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Nothing is lost.
    None,
    /// The loss was found, and is to be reported.
    Found,
    /// The loss was reported, so the records will be restored.
    Told,
}

/// The shared directory; see the module.
#[derive(Debug)]
pub struct Shared {
    address: Address,
    own: Process,
    link: Option<Link>,
    /// Name of the directory's contents. If it changes, the contents are new.
    epoch: String,
    /// Number of the last reported change.
    last: u64,
    /// Largest token seen.
    token_max: u64,
    digests: HashMap<Key, u64>,
    claims: Vec<(StreamKey, Holder)>,
    news: VecDeque<News>,
    loss: Loss,
    /// True if the pending news may contain changes that are later than the last commit.
    is_ahead: bool,
    is_away: bool,
    lease: Duration,
    /// End of a period as long as one lease. During it, leases that expired while the directory was away may still be
    /// renewed.
    returned: Option<Instant>,
}

impl Shared {
    /// Connects to the directory, and gets a number for this process.
    ///
    /// # Errors
    /// The directory is unreachable.
    pub fn open(address: Address, node: NodeId, lease: Duration) -> Result<Self, Error> {
        let mut link = Link::connect(&address).map_err(|error| failed(&error))?;
        let begin = |link: &mut Link| {
            let incarnation = link.new_incarnation()?;
            let (epoch, last) = link.state(&format!("{incarnation} {node}"))?;
            Ok((incarnation, epoch, last, (link.claims()?, link.presences()?)))
        };
        let (incarnation, epoch, last, (claims, presences)) =
            begin(&mut link).map_err(|error: RedisError| failed(&error))?;
        Ok(Self {
            address,
            own: Process { node, incarnation },
            link: Some(link),
            epoch,
            last,
            token_max: incarnation,
            digests: HashMap::new(),
            claims,
            news: VecDeque::from([News::Presences(presences)]),
            loss: Loss::None,
            is_ahead: false,
            is_away: false,
            lease,
            returned: None,
        })
    }

    /// Returns the process that uses the directory.
    #[must_use]
    pub const fn own(&self) -> &Process {
        &self.own
    }

    /// Returns the address of the directory.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Takes the claims that existed at the start.
    pub fn take_claims(&mut self) -> Vec<(StreamKey, Holder)> {
        mem::take(&mut self.claims)
    }

    /// Returns the number of the last reported change.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Returns the next news.
    pub fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Reads further changes. Reconnects first if the connection was lost.
    pub fn read_on(&mut self) {
        let done = match self.link.take().filter(Link::is_open) {
            Some(mut link) => self.advance(&mut link, u64::MAX).map(|()| link),
            None => self.connect(),
        };
        self.keep_link(done);
    }

    /// Handles a request from control.
    pub fn handle_request(&mut self, request: Request) {
        let Some(mut link) = self.link.take() else { return self.answer_without(request) };
        let done = self.ask(&mut link, request.clone());
        let is_done = done.is_ok();
        self.keep_link(done.map(|()| link));
        if !is_done {
            self.answer_without(request);
        }
    }

    /// Releases all claims of this node, at shutdown.
    pub fn close(&mut self) {
        if let Some(mut link) = self.link.take()
            && let Err(error) = link.goodbye(&self.own)
        {
            tracing::warn!(%error, "directory not told that this node is leaving; its lease will expire");
        }
    }

    fn keep_link(&mut self, done: Result<Link, RedisError>) -> Option<RedisError> {
        let is_away = done.is_err();
        let error = match done {
            Ok(link) => {
                self.link = Some(link);
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the directory does not answer");
                Some(error)
            }
        };
        if mem::replace(&mut self.is_away, is_away) != is_away {
            self.returned = (!is_away).then(Instant::now);
            self.news.push_back(News::Contact(!is_away));
        }
        // If the connection breaks, the request to restore the records may be lost too, so the loss is reported again.
        if is_away && self.loss == Loss::Told {
            self.loss = Loss::Found;
        } else if !is_away && self.loss == Loss::Found {
            self.loss = Loss::Told;
            self.news.push_back(News::Lost);
        }
        error
    }

    fn connect(&mut self) -> Result<Link, RedisError> {
        let mut link = Link::connect(&self.address)?;
        self.read_anew(&mut link)?;
        Ok(link)
    }

    fn answer_without(&mut self, request: Request) {
        match request {
            Request::Claim { ticket, key } => {
                self.news.push_back(News::Answer { ticket, key, answer: ClaimAnswer::Away });
            }
            Request::Burn { ticket, .. } => {
                self.news.push_back(News::Burnt { ticket, is_burnt: false });
            }
            // These requests are dropped. When the directory is back, claims are reported again, and records that it
            // has lost are restored.
            Request::Keep { .. }
            | Request::Release { .. }
            | Request::HandOver { .. }
            | Request::Bury { .. }
            | Request::Refill(_)
            | Request::Load { .. }
            | Request::Draining(_)
            | Request::Present(_)
            | Request::Forget(_)
            | Request::Paired(_) => {}
        }
    }

    fn ask(&mut self, link: &mut Link, request: Request) -> Result<(), RedisError> {
        match request {
            Request::Claim { ticket, key } => {
                let is_patient = self.returned.is_some_and(|returned| returned.elapsed() < self.lease);
                let answer = match link.claim(&self.own, &key, self.token_max, is_patient)? {
                    Claimed::Granted { token, seq } => {
                        self.advance(link, seq)?;
                        ClaimAnswer::Granted(token)
                    }
                    Claimed::Taken(node) => ClaimAnswer::Taken(node),
                };
                self.news.push_back(News::Answer { ticket, key, answer });
                Ok(())
            }
            Request::Keep { key, token } => {
                let seq = link.keep(&self.own, &key, self.token_max, token)?;
                self.advance(link, seq)
            }
            Request::Release { key, token } => link.release(&self.own, &key, token),
            Request::HandOver { key, token, to: (node, incarnation) } => {
                let tokens = (token, self.token_max);
                let seq = link.hand_over(&self.own, &key, tokens, (&node, incarnation))?;
                self.advance(link, seq)
            }
            Request::Bury { key, token } => {
                let seq = link.bury(&self.own, &key, token)?;
                self.advance(link, seq)
            }
            Request::Present(subscribed) => {
                let seq = link.present(&self.own, &subscribed)?;
                self.advance(link, seq)
            }
            Request::Burn { ticket, key } => {
                let seq = link.burn(&self.own.writer(), key)?;
                self.advance(link, seq)?;
                self.news.push_back(News::Burnt { ticket, is_burnt: seq > 0 });
                Ok(())
            }
            Request::Refill(all) => self.refill(link, all),
            Request::Forget(node) => link.forget(&node),
            Request::Load { .. } | Request::Draining(_) | Request::Paired(_) => Ok(()),
        }
    }

    /// Restores the records that the directory has lost.
    fn refill(&mut self, link: &mut Link, all: Vec<(Key, Bytes)>) -> Result<(), RedisError> {
        let (mut ops, mut bytes) = (Vec::new(), 0);
        tracing::warn!(records = all.len(), "directory has lost records; putting them back");
        for (key, value) in all {
            bytes += value.len();
            ops.push(Op::Put(key, value));
            if bytes >= REFILLED_AT_ONCE {
                link.refill(&self.own.writer(), &mem::take(&mut ops))?;
                bytes = 0;
            }
        }
        if !ops.is_empty() {
            link.refill(&self.own.writer(), &ops)?;
        }
        self.loss = Loss::None;
        // If another node has restored a record already, that node's version stays. It is read now.
        self.read_anew(link)
    }

    /// Reports the changes up to the number `until`, in order.
    fn advance(&mut self, link: &mut Link, until: u64) -> Result<(), RedisError> {
        while self.last < until {
            let entries = link.changes_behind(self.last)?;
            if entries.is_empty() {
                // Either no change follows, or the directory was emptied while it was connected.
                let (epoch, seq) = link.state(&self.new_epoch())?;
                return if epoch == self.epoch && seq == self.last { Ok(()) } else { self.read_anew(link) };
            }
            // Changes after `until` are not reported yet, because they must come after the answer to change number
            // `until`.
            for entry in entries.into_iter().take_while(|entry| entry.seq <= until) {
                if entry.seq != self.last.saturating_add(1) {
                    return self.read_anew(link);
                }
                self.last = entry.seq;
                self.tell(entry);
            }
        }
        Ok(())
    }

    fn new_epoch(&self) -> String {
        format!("{} {} {}", self.own.incarnation, self.own.node, self.last)
    }

    fn tell(&mut self, entry: Entry) {
        match entry.change {
            Change::Records(ops) if entry.writer == self.own.writer() => self.note(&ops),
            Change::Records(ops) => {
                self.note(&ops);
                self.news.push_back(News::Foreign(ops));
            }
            Change::Claim(key, holder) => {
                let token = holder.as_ref().map_or(0, |holder| holder.token);
                self.token_max = self.token_max.max(token);
                self.news.push_back(News::Claim { key, holder });
            }
            Change::Present(presence) => self.news.push_back(News::Present(presence)),
            Change::Unknown => {}
        }
    }

    fn note(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Put(key, value) => drop(self.digests.insert(key.clone(), digest(value))),
                Op::Delete(key) => drop(self.digests.remove(key)),
            }
        }
    }

    /// Reads everything, and reports how it differs from what was reported before.
    fn read_anew(&mut self, link: &mut Link) -> Result<(), RedisError> {
        let (epoch, seq) = link.state(&self.new_epoch())?;
        if epoch != self.epoch || seq < self.last {
            tracing::warn!(
                epoch,
                seq,
                last = self.last,
                "directory is older than records already seen in it"
            );
            self.loss = Loss::Found;
        }
        let mut found = BTreeSet::new();
        let mut changed = Vec::new();
        for kind in Kind::ALL {
            link.read(kind, &mut |key, value| {
                if self.digests.get(&key) != Some(&digest(&value)) {
                    changed.push(Op::Put(key.clone(), value));
                }
                found.insert(key);
            })?;
        }
        if self.loss == Loss::None {
            let gone = self.digests.keys().filter(|key| !found.contains(*key));
            changed.extend(gone.cloned().map(Op::Delete));
        }
        let claims = link.claims()?;
        (self.epoch, self.last) = (epoch, seq);
        self.note(&changed);
        for some in changed.chunks(TOLD_AT_ONCE) {
            self.news.push_back(News::Foreign(some.to_vec()));
        }
        let tokens = claims.iter().map(|(_, holder)| holder.token);
        self.token_max = tokens.fold(self.token_max, u64::max);
        self.news.push_back(News::Claims(claims));
        self.news.push_back(News::Presences(link.presences()?));
        self.advance(link, u64::MAX)
    }

    fn commit_by(&mut self, link: &mut Link, ops: &[Op]) -> Result<(), RedisError> {
        let seq = link.commit(&self.own.writer(), ops)?;
        if seq != self.last.saturating_add(1) {
            self.advance(link, seq)?;
            // If everything had to be read again, the pending news may contain changes that are later than this commit.
            self.is_ahead = self.last > seq;
            return Ok(());
        }
        self.last = seq;
        self.note(ops);
        Ok(())
    }

    /// Returns true if the pending news may contain changes that are later than the last commit. In that case, the
    /// commit must be answered before the news is passed on; otherwise it is answered afterwards. The next call returns
    /// false.
    pub const fn take_is_ahead(&mut self) -> bool {
        mem::replace(&mut self.is_ahead, false)
    }
}

impl Store for Shared {
    fn read(&mut self, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error> {
        let Some(mut link) = self.link.take() else { return Err(away()) };
        self.digests.clear();
        for kind in Kind::ALL {
            let read = link.read(kind, &mut |key, value| {
                self.digests.insert(key.clone(), digest(&value));
                give(key, value);
            });
            read.map_err(|error| failed(&error))?;
        }
        self.link = Some(link);
        Ok(())
    }

    fn commit(&mut self, ops: &[Op]) -> Result<(), Error> {
        let Some(mut link) = self.link.take() else { return Err(away()) };
        let done = self.commit_by(&mut link, ops);
        match self.keep_link(done.map(|()| link)) {
            Some(error) => Err(failed(&error)),
            None => Ok(()),
        }
    }

    /// Writes nothing, because the directory also has records of other nodes. Succeeds if the directory is reachable
    /// again.
    fn rebuild(&mut self, _: &[(Key, Bytes)]) -> Result<(), Error> {
        if self.link.is_none() {
            self.read_on();
        }
        if self.link.is_some() { Ok(()) } else { Err(away()) }
    }

    fn backup(&mut self, _: &Backup) -> Copying {
        Box::new(|| {
            Err(Error::Io {
                path: "the directory".to_owned(),
                reason: "is backed up by its own means (docs/cluster.md)".to_owned(),
            })
        })
    }
}

fn digest(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Converts an error into one of the store. Its text contains no passwords.
fn failed(error: &RedisError) -> Error {
    Error::Io { path: "the directory".to_owned(), reason: error.to_string() }
}

fn away() -> Error {
    Error::Io { path: "the directory".to_owned(), reason: "cannot be reached".to_owned() }
}
