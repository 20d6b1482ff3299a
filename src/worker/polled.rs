//! Streams that are fetched by separate requests: their blobs, the requests that wait for a blob, and the viewers that
//! make the requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::barred::Barred;
use super::conns::Conns;
use super::deadlines::Timer;
use super::incumbents::Incumbents;
use super::leases::{Ended, LEASE, Ledger, Renewed};
use super::passes::Passes;
use super::rooms::has_view;
use super::streams::Live;
use super::turn::Turn;
use super::waits::{BlobName, Wait, Waits};
use super::{Output, Worker};
use crate::hub::{BlobMemory, Published};
use crate::mail::{
    BLOBS_LINGER, Blob, BlobMail, BlobsInTransit, LeaseNews, NoSubscription, SinkNews, ToControl, ToWorker,
    WatchedMail,
};
use crate::protocol::{BLOB_WAIT, PassAsk, Reply, RequestNews, WantedBlob, Watched, settings_of, sinks};
use crate::types::{ConnId, Now, StreamId, StreamKey, WorkerId};

/// Time within which the last blobs of an ended stream arrive. Its sinks publish them as soon as it ends.
const LAST_BLOBS: Duration = Duration::from_secs(1);
/// An ended stream without blobs is remembered because its first blob may still arrive, but only while fewer ended
/// streams than this are remembered. An ended stream with blobs is always remembered.
pub(super) const ENDED_MAX: usize = 1024;

/// Blobs and leases of a worker.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// Memory for large blobs. If `None`, blobs keep the memory in which they were made.
    memory: Option<Box<dyn BlobMemory>>,
    in_transit: BlobsInTransit,
    pub(super) leases: Ledger,
    /// Number of workers that share the counting of viewers.
    workers: Workers,
    pub(super) passes: Passes,
    pub(super) barred: Barred,
    /// Viewers that are still served while the server is draining.
    pub(super) incumbents: Incumbents,
    /// Ended streams that have blobs or may still get some, each with the time at which its blobs are dropped.
    ended: VecDeque<(Instant, StreamId)>,
    /// Keys of the ended streams.
    pub(super) ended_keys: BTreeMap<StreamId, StreamKey>,
    /// Requests that wait for blobs.
    waits: Waits,
    /// Kinds of sinks to begin once the stream is live, for streams that viewers have started.
    sinks_to_come: BTreeMap<StreamKey, BTreeSet<&'static str>>,
    /// Sinks that run on this worker, with their sessions.
    pub(super) making: BTreeMap<(StreamId, &'static str), ConnId>,
    /// The earliest time at which the deadline table has an entry for these blobs and leases.
    armed: Option<Instant>,
}

/// Number of workers, at least one.
#[derive(Debug, Clone, Copy)]
struct Workers(NonZeroU16);

impl Default for Workers {
    fn default() -> Self {
        Self(NonZeroU16::MIN)
    }
}

impl Polled {
    /// Number of table entries of waiting requests.
    pub(super) fn waiting_requests(&self) -> usize {
        self.waits.entries()
    }

    /// Ends the wait of a connection. Returns false if the connection did not wait.
    pub(super) fn end_wait(&mut self, conn: ConnId) -> bool {
        let has_waited = self.waits.end(conn);
        if has_waited && self.waits.is_empty() {
            self.sinks_to_come.clear();
        }
        has_waited
    }

    /// Number of blobs that requests wait for.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> usize {
        self.waits.awaited()
    }

    /// Number of ended streams that are remembered.
    #[cfg(test)]
    pub(super) fn ended_streams(&self) -> usize {
        self.ended_keys.len()
    }

    /// Number of sinks that run on this worker.
    #[cfg(test)]
    pub(super) fn held_sinks(&self) -> usize {
        self.making.len()
    }
}

impl Worker {
    /// Keeps large blobs in this memory.
    #[must_use]
    pub fn with_blob_memory(mut self, memory: Box<dyn BlobMemory>) -> Self {
        self.polled.memory = Some(memory);
        self
    }

    /// Limits the bytes of all blobs.
    #[must_use]
    pub const fn with_segment_bytes(mut self, bytes: usize) -> Self {
        self.turn.blobs.limit_bytes(bytes);
        self
    }

    /// Sets the number of workers that share the counting of viewers that watch by separate requests.
    #[must_use]
    pub fn of_workers(mut self, workers: u16) -> Self {
        self.polled.workers = NonZeroU16::new(workers).map_or_else(Workers::default, Workers);
        self
    }

    /// Publishes a blob of a live stream on all workers. While too many bytes are on their way to the other workers,
    /// publishes it only on this one.
    pub fn publish_blob(&mut self, now: Now, mut blob: Blob) -> Published {
        self.turn.now = now;
        if let Some(kept) = self.polled.memory.as_ref().and_then(|memory| memory.keep(&blob.bytes)) {
            blob.bytes = kept;
        }
        let blob = Arc::new(blob);
        let published = self.polled.keep_blob(&mut self.turn, &mut self.conns, &self.live, &blob);
        if published == Published::Stored {
            let mail = self.polled.in_transit.mail(blob);
            self.turn.agenda.outputs.extend(mail.map(|mail| Output::Others(ToWorker::Blob(mail))));
        }
        published
    }
}

impl Polled {
    /// Stores a blob sent by another worker.
    pub(super) fn take_blob(&mut self, turn: &mut Turn, conns: &mut Conns, live: &Live, mail: &BlobMail) {
        self.keep_blob(turn, conns, live, &mail.blob);
    }

    /// Stores a blob and answers the requests that wait for it. A stream that has just ended may still publish its last
    /// blobs, unless a new stream has the same key.
    fn keep_blob(&mut self, turn: &mut Turn, conns: &mut Conns, live: &Live, blob: &Arc<Blob>) -> Published {
        let is_live = live.streams.contains_key(&blob.stream);
        // If a new stream has the same key, the names of the blobs belong to that stream.
        let is_last = |key| !live.directory.contains_key(key);
        if !is_live && !self.ended_keys.get(&blob.stream).is_some_and(is_last) {
            return Published::Refused;
        }
        let published = turn.blobs.publish(Arc::clone(blob));
        if published == Published::Stored {
            if !is_live {
                turn.blobs.retire(blob.stream);
            }
            self.answer_waiting_for(turn, conns, blob);
            for (stream, kind) in missing_rungs(turn, live, self, blob) {
                self.begin_sinks(turn, conns, live, stream, vec![kind]);
            }
        }
        published
    }

    fn answer_waiting_for(&mut self, turn: &mut Turn, conns: &mut Conns, blob: &Blob) {
        let name = (Arc::clone(&blob.app), Arc::clone(&blob.name));
        for conn in self.waits.reached(&name, blob.progress) {
            self.end_wait(conn);
            conns.answer_waiting(turn, conn);
        }
    }

    // ---- requests that wait

    /// Makes a request wait for a blob, and starts the sink that makes the blob. If the stream is not live and viewers
    /// may start it, it is started.
    pub(super) fn await_blob(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        live: &Live,
        id: ConnId,
        wanted: &WantedBlob,
    ) {
        let wanted = &as_there_is(turn, live, wanted);
        let name: BlobName = (Arc::clone(&wanted.key.app), wanted.name.as_str().into());
        let is_of_ladder = wanted.sink.is_some_and(is_of_ladder);
        let mut streams = live.directory.get(&wanted.key).copied().into_iter();
        // A ladder is a group of streams that are renditions of one programme. Its first stream gets its sink
        // immediately. The others get theirs when the sink of the first has published its blob.
        let stream = streams.next().or_else(|| live.ladder(&wanted.key).next().filter(|_| is_of_ladder));
        let blob = turn.blobs.get(&name.0, &name.1).filter(|blob| blob.is_fresh(turn.now.mono));
        let grows = blob.is_some_and(|blob| live.streams.contains_key(&blob.stream));
        let may_come = if is_of_ladder {
            grows || has_ladder(turn, live, wanted)
        } else {
            let may_start = || live.holds.may_be_started(turn, &wanted.key) || has_view(live, &wanted.key);
            grows || stream.is_some() || !is_glance(wanted) && may_start()
        };
        if !may_come || blob.is_some_and(|blob| blob.progress >= wanted.progress) {
            return conns.answer_waiting(turn, id);
        }
        if turn.leaving && stream.is_none() && !grows {
            // While the server is draining, nothing is started for new viewers; another server may have the stream.
            conns.pass_refused(id, wanted.sink.unwrap_or_default(), &wanted.key, &NoSubscription::Draining);
            return conns.answer_pass(turn, id, Err(NoSubscription::Draining));
        }
        let is_first = !self.waits.has(&name);
        let (until, progress, key) = (turn.now.mono + BLOB_WAIT, wanted.progress, wanted.key.clone());
        self.waits.begin(id, Wait { until, name, progress, key });
        match (stream, wanted.sink) {
            (Some(stream), Some(sink)) if is_first => turn.order_sink(sink, stream),
            (None, Some(sink)) => {
                self.sinks_to_come.entry(wanted.key.clone()).or_default().insert(sink);
                turn.tell(ToControl::Wanted { key: wanted.key.clone(), via: Vec::new() });
            }
            (Some(_), _) | (None, None) => {}
        }
        self.arm_polled(turn);
    }

    /// Begins the sinks that were requested before their stream was live. Forgets those blobs of an earlier stream of
    /// the same key that sinks make on request, e.g. playlists, so that requests wait for those of the new stream.
    pub(super) fn begin_awaited_sinks(
        &mut self,
        turn: &mut Turn,
        live: &Live,
        key: &StreamKey,
        stream: StreamId,
    ) {
        if let Some(begun) = live.streams.get(&stream) {
            let settings = settings_of(&turn.apps, &begun.key, &begun.settings);
            let ladder = live.ladder_key(stream).filter(|ladder| ladder != key);
            let is_own = |id: &str| *id == *key.id || ladder.as_ref().is_some_and(|key| *id == *key.id);
            let begins = |name: &str| sinks::maker_of(settings, name).is_some_and(|(_, id)| is_own(id));
            turn.blobs.forget_retired(&key.app, begins);
        }
        for kind in self.sinks_to_come.remove(key).unwrap_or_default() {
            turn.order_sink(kind, stream);
        }
    }

    /// Answers the requests that wait for playlists of a stream that will not become live.
    pub(super) fn end_blob_waits(&mut self, turn: &mut Turn, conns: &mut Conns, key: &StreamKey) {
        for conn in self.waits.of(key) {
            self.end_wait(conn);
            conns.answer_waiting(turn, conn);
        }
        self.sinks_to_come.remove(key);
    }

    /// Returns the key of a stream that is live, or has ended and can still be fetched.
    pub(super) fn key_of_polled(&self, live: &Live, stream: StreamId) -> Option<StreamKey> {
        let live = live.streams.get(&stream).map(|live| &live.key);
        live.or_else(|| self.ended_keys.get(&stream)).cloned()
    }

    // ---- viewers

    /// Renews the lease of a viewer that made a request. A viewer's requests may reach any worker, so the viewer is
    /// counted by the one worker that its name is assigned to.
    pub(super) fn renew_lease(
        &mut self,
        turn: &mut Turn,
        conns: &Conns,
        live: &Live,
        id: ConnId,
        watched: Watched,
    ) {
        let Some(conn) = conns.get(id) else { return };
        let Watched { stream, protocol, viewer, former, params } = watched;
        let mail = WatchedMail { stream, protocol, viewer, former, peer: conn.client(), params };
        let owner = self.owner_of(turn, stream, protocol, &mail.viewer);
        if owner == turn.id {
            self.take_watched(turn, live, mail);
        } else {
            turn.agenda.outputs.push_back(Output::Worker(owner, ToWorker::Watched(Box::new(mail))));
        }
    }

    /// Counts a request of a viewer assigned to this worker.
    pub(super) fn take_watched(&mut self, turn: &mut Turn, live: &Live, mail: WatchedMail) {
        let WatchedMail { stream, protocol, viewer, former, peer, params } = mail;
        let Some(key) = live.streams.get(&stream).map(|stream| stream.key.clone()) else { return };
        let renewed = self.leases.renew(turn.now.mono, (stream, protocol, &viewer), peer.ip(), LEASE);
        if renewed == Renewed::New && former.is_none() {
            tracing::info!(%key, protocol, %peer, "viewer started");
        }
        if renewed == Renewed::New {
            let news = live.details.tells_viewers(stream).then_some(LeaseNews { key, came: true, params });
            if let Some(news) = &news {
                let gone = Box::new(LeaseNews { came: false, ..news.clone() });
                self.leases.note((stream, protocol, &viewer), gone);
            }
            self.viewer_came(turn, (stream, protocol), former, news.map(Box::new));
        }
        self.tell_ended_leases(turn, live);
        self.arm_polled(turn);
    }

    /// Reports a new viewer to control. If the viewer has a former name, the report goes to the worker that counts that
    /// name. That worker ends the former name's lease, or passes the report on to control if there is no such lease.
    fn viewer_came(
        &mut self,
        turn: &mut Turn,
        (stream, protocol): (StreamId, &'static str),
        former: Option<String>,
        news: Option<Box<LeaseNews>>,
    ) {
        let Some(former) = former else { return turn.tell_all(news.map(ToControl::Leased)) };
        match self.owner_of(turn, stream, protocol, &former) {
            owner if owner == turn.id => self.watched_no_more(turn, (stream, protocol, &former), news),
            owner => {
                let mail = ToWorker::WatchedNoMore { stream, protocol, viewer: former, news };
                turn.agenda.outputs.push_back(Output::Worker(owner, mail));
            }
        }
    }

    /// Ends the lease of a viewer that now has a new name. If the former name had no lease, the viewer is new and is
    /// reported to control.
    pub(super) fn watched_no_more(
        &mut self,
        turn: &mut Turn,
        viewer: (StreamId, &'static str, &str),
        news: Option<Box<LeaseNews>>,
    ) {
        if !self.leases.end_viewer(viewer) {
            turn.tell_all(news.map(ToControl::Leased));
        }
    }

    /// Ends a viewer on request: ends its lease, if this worker counts the viewer, and refuses its requests to this
    /// worker.
    pub(super) fn end_viewer(
        &mut self,
        turn: &mut Turn,
        live: &Live,
        viewer: (StreamId, &'static str, &str),
        reason: &'static str,
    ) {
        let (stream, protocol, name) = viewer;
        let Some(key) = live.ladder_key(stream) else { return };
        self.leases.drop_viewer(viewer, reason);
        self.tell_ended_leases(turn, live);
        self.barred.add(turn.now.mono, key, protocol, name);
    }

    /// Logs ended leases, and reports them to control.
    fn tell_ended_leases(&mut self, turn: &mut Turn, live: &Live) {
        for ended in self.leases.take_ended() {
            let key = self.key_of_polled(live, ended.stream);
            tell_ended(turn, key.as_ref(), ended);
        }
    }

    /// True if a viewer may still be served while the server drains: it was already watching when the drain began, or
    /// the stream that it requests does not exist. A viewer may switch between the renditions of a ladder, so it is
    /// enough that it watched one of them.
    pub(super) fn serves_on(&self, live: &Live, ask: &PassAsk) -> bool {
        let mut streams = ask.stream.or(ask.watched).into_iter().chain(live.ladder(&ask.key)).peekable();
        let names = [Some(&ask.viewer), ask.former.as_ref()];
        let serves = |stream| {
            let viewer = names.into_iter().flatten();
            self.incumbents.serves(self.workers.0.get(), (stream, ask.protocol), viewer)
        };
        streams.peek().is_none() || streams.any(serves)
    }

    /// Returns the worker that counts a viewer.
    fn owner_of(&self, turn: &Turn, stream: StreamId, protocol: &str, viewer: &str) -> WorkerId {
        let workers = u64::from(self.workers.0.get());
        if workers == 1 {
            return turn.id;
        }
        let number = stream.0.to_le_bytes();
        let bytes = number.iter().chain(protocol.as_bytes()).chain(viewer.as_bytes());
        // FNV-1a, and then a mixing round of MurmurHash3, so that the last bytes affect all bits of the hash.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 33;
        WorkerId(u16::try_from(hash.checked_rem(workers).unwrap_or(0)).unwrap_or(0))
    }

    pub(super) fn polled_timeout(&mut self, turn: &mut Turn, conns: &mut Conns, live: &Live, at: Instant) {
        if self.armed == Some(at) {
            self.armed = None;
        }
        let now = turn.now.mono;
        self.leases.handle_timeout(now);
        self.tell_ended_leases(turn, live);
        while let Some((_, stream)) = self.ended.pop_front_if(|(until, _)| *until <= now) {
            self.ended_keys.remove(&stream);
            turn.blobs.end_stream(stream);
        }
        while let Some(conn) = self.waits.pop_due(now) {
            conns.answer_waiting(turn, conn);
        }
        if self.waits.is_empty() {
            self.sinks_to_come.clear();
        }
        self.arm_polled(turn);
    }

    /// Ends the leases and sinks of an ended stream. Its blobs remain for a while, because viewers lag behind. Requests
    /// for a playlist that does not exist wait only until the stream's last blobs should have arrived.
    pub(super) fn forget_polled(&mut self, turn: &mut Turn, stream: StreamId, key: &StreamKey) {
        self.leases.end_stream(stream);
        self.leases.take_ended().into_iter().for_each(|ended| tell_ended(turn, Some(key), ended));
        while let Some((sink, _)) = self.making.range((stream, "")..).next()
            && sink.0 == stream
        {
            let sink = *sink;
            self.making.remove(&sink);
        }
        if turn.blobs.retire(stream) || self.ended.len() < ENDED_MAX {
            self.ended.push_back((turn.now.mono + BLOBS_LINGER, stream));
            self.ended_keys.insert(stream, key.clone());
        }
        let is_there = |(app, name): &BlobName| turn.blobs.get(app, name).is_some();
        self.waits.hasten(key, turn.now.mono + LAST_BLOBS, is_there);
        self.arm_polled(turn);
    }

    fn arm_polled(&mut self, turn: &mut Turn) {
        let ended = self.ended.front().map(|(until, _)| *until);
        let waits = self.waits.poll_timeout();
        let due = [self.leases.poll_timeout(), ended, waits].into_iter().flatten().min();
        let Some(due) = due else { return };
        // A call handles a limited number of expired entries. If some are left, they are handled in a later turn.
        let due = due.max(turn.now.mono + super::dispatch::FLUSH_GRID);
        if self.armed.is_none_or(|armed| due < armed) {
            self.armed = Some(due);
            turn.agenda.deadlines.arm(due, Timer::Polled);
        }
    }
}

impl Turn {
    /// Asks control to begin a sink at the publisher's worker, unless it exists.
    pub(super) fn order_sink(&mut self, kind: &'static str, stream: StreamId) {
        self.tell(ToControl::Sink { stream, kind, news: SinkNews::Wanted });
    }

    fn tell_all(&mut self, mail: impl IntoIterator<Item = ToControl>) {
        self.agenda.outputs.extend(mail.into_iter().map(Output::Control));
    }
}

impl Conns {
    fn answer_waiting(&mut self, turn: &mut Turn, id: ConnId) {
        self.reply(turn, id, Reply::Request(RequestNews::Blob));
        self.touch(turn, id);
    }
}

fn is_of_ladder(sink: &'static str) -> bool {
    sinks::find(sink).is_some_and(|kind| kind.ladder.is_some())
}

/// True if the requested main track is served as a ladder: it has several renditions, or it has one, and the
/// application's settings require a ladder even for a single rendition.
fn has_ladder(turn: &Turn, live: &Live, wanted: &WantedBlob) -> bool {
    let rule = wanted.sink.and_then(sinks::find).and_then(|kind| kind.ladder);
    let is_wanted = rule.zip(turn.apps.get(&wanted.key.app)).is_some_and(|(rule, app)| rule(app));
    live.is_ladder(&wanted.key) || is_wanted && live.ladder(&wanted.key).next().is_some()
}

/// True if a request for the blob must not start the stream.
fn is_glance(wanted: &WantedBlob) -> bool {
    wanted.sink.and_then(sinks::find).is_some_and(|kind| kind.is_glance)
}

/// Returns the blob that a request has to wait for. A ladder's blob is replaced by the blob of the same name that a
/// single stream's sink makes, if the requested key belongs to no ladder. Any other blob is returned unchanged.
fn as_there_is(turn: &Turn, live: &Live, wanted: &WantedBlob) -> WantedBlob {
    if !wanted.sink.is_some_and(is_of_ladder) || has_ladder(turn, live, wanted) {
        return wanted.clone();
    }
    let app = turn.apps.get(&wanted.key.app);
    let plain = app.and_then(|app| sinks::plain_maker_of(app, &wanted.name));
    plain.map_or_else(
        || wanted.clone(),
        |(kind, id)| WantedBlob {
            key: StreamKey::new(&wanted.key.app, id),
            sink: Some(kind.name),
            ..wanted.clone()
        },
    )
}

/// Returns the streams of the blob's ladder that are published here and have no sink of the blob's kind yet, each with
/// that kind.
fn missing_rungs(turn: &Turn, live: &Live, polled: &Polled, blob: &Blob) -> Vec<(StreamId, &'static str)> {
    let Some(ladder) = &blob.ladder else { return Vec::new() };
    let Some(rung) = &ladder.rung else { return Vec::new() };
    let is_here = |id: &StreamId| live.streams.get(id).is_some_and(|stream| stream.source == turn.id);
    let main = StreamKey { app: Arc::clone(&blob.app), id: Arc::clone(&ladder.main) };
    let missing = live.ladder(&main).filter(is_here);
    missing.map(|id| (id, rung.sink)).filter(|sink| !polled.making.contains_key(sink)).collect()
}

/// Logs an ended lease of a viewer of this stream, and reports it to control.
fn tell_ended(turn: &mut Turn, key: Option<&StreamKey>, ended: Ended) {
    let Ended { protocol, client: peer, began, reason, news, .. } = ended;
    if let Some(key) = key {
        let seconds = turn.now.mono.saturating_duration_since(began).as_secs();
        tracing::info!(%key, protocol, %peer, reason, seconds, "viewer ended");
    }
    turn.tell_all(news.map(ToControl::Leased));
}
