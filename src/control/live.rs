//! All live streams, with their indexes by key, publisher, worker, network and application.
//!
//! The indexes change only in [`Registry::insert`], [`Registry::remove`], [`Registry::change`] and
//! [`Registry::set_viewers`]. Thanks to the indexes, no event scans all streams, of which there may be ten thousand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use media::Position;

use super::acceptance::Measured;
use super::cluster::Cluster;
use super::history::{Minutes, StreamSample};
use super::rest::subtitles::Rates;
use super::standby::Standby;
use crate::auth::access::Params;
use crate::auth::network;
use crate::config::AppSettings;
use crate::mail::{PublishRequest, Report, SourceFigures, StreamDetails, StreamEnd, ViewerCounts};
use crate::types::{Ingest, Now, PushId, SessionRef, StreamId, StreamKey, WorkerId};

/// The state of a stream's publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Live(SessionRef),
    Grace(Instant),
    /// No attempt to pull the stream delivers media now: the last one has ended, and the next one has not begun to
    /// deliver.
    Awaited,
}

/// The origin of a stream: its current or last publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) state: State,
    pub(super) worker: WorkerId,
    pub(super) ingest: Ingest,
    /// The network of the publisher's address. The limit of streams per address applies to this network.
    network: IpAddr,
}

impl Source {
    pub(super) fn of(request: &PublishRequest) -> Self {
        Self {
            state: State::Live(request.session),
            worker: request.session.worker,
            ingest: request.ingest,
            network: network(request.peer.ip()),
        }
    }

    /// Returns the network that the stream counts for; `None` for pulls and copies, which count for no network.
    fn counted_network(&self) -> Option<IpAddr> {
        (!self.ingest.is_fetched()).then_some(self.network)
    }

    /// True if the publisher counts for the limit of this address.
    pub(super) fn counts_for(&self, address: IpAddr) -> bool {
        self.counted_network() == Some(network(address))
    }
}

/// State of a stream as last reported to hooks and workers.
#[derive(Debug)]
pub(super) struct Told {
    /// True if hooks have been called to report that the stream is live.
    pub(super) announced: bool,
    /// The fields of the stream's record that were last sent to workers.
    pub(super) details: StreamDetails,
}

/// Figures of the data that a stream has received from its publishers.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Total of the bytes received from all publishers of the stream before the current one.
    pub(super) bytes_before: u64,
    /// The last report about the current publisher.
    pub(super) figures: Option<SourceFigures>,
    /// Minute samples of the last hour.
    pub(super) minutes: Minutes<StreamSample>,
    /// The beginning of the current measurement of rates.
    pub(super) measured: Option<Measured>,
}

/// The permission of a publisher to publish.
#[derive(Debug)]
pub(super) struct Granted {
    /// The time of the grant.
    pub(super) at: Instant,
    /// Position of the stream's clock at the time of the grant.
    pub(super) from: Position,
}

/// The clock of a stream as last reported by its worker, at most a second ago.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamClock {
    pub(super) position: Position,
    /// Epoch of the stream's tracks.
    pub(super) epoch: u32,
    /// The wall clock at which the stream's clock was zero, in milliseconds since the Unix epoch.
    pub(super) zero_ms: i64,
}

/// A live stream, from its first publisher to its end.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) key: StreamKey,
    pub(super) settings: Arc<AppSettings>,
    source: Source,
    pub(super) clock: StreamClock,
    /// Time for which the publisher had been silent at the last report, in milliseconds.
    pub(super) silent_ms: u64,
    /// The path by which the stream was relayed to this server: an entry (node and stream) for each push. Pushes of
    /// this stream send the list to their targets, which detect loops by it.
    pub(super) via: Vec<String>,
    /// Parameters of the current publisher, for hooks.
    pub(super) params: Params,
    pub(super) told: Told,
    /// Endpoints to which the stream is being pushed.
    pub(super) pushes: Vec<PushId>,
    pub(super) received: Received,
    /// The permission given to the current or last publisher.
    pub(super) granted: Granted,
    /// Beginning of the time counted by the record's `duration`.
    pub(super) began: Instant,
    /// Viewers on each worker.
    viewers: BTreeMap<WorkerId, ViewerCounts>,
    /// The worker of each sink of the stream, by the sink's kind.
    pub(super) sinks: BTreeMap<&'static str, WorkerId>,
    /// The publisher that waits to take the stream over.
    standby: Option<Box<Standby>>,
}

impl Live {
    pub(super) fn new(now: Now, request: &PublishRequest, settings: Arc<AppSettings>) -> Self {
        Self {
            key: request.key.clone(),
            settings,
            source: Source::of(request),
            clock: StreamClock {
                position: Position::default(),
                epoch: 0,
                zero_ms: request.zero_ms.unwrap_or_else(|| i64::try_from(now.wall_ms).unwrap_or(0)),
            },
            silent_ms: 0,
            via: request.via.clone(),
            params: request.params.clone(),
            told: Told { announced: false, details: StreamDetails::default() },
            pushes: Vec::new(),
            received: Received::default(),
            granted: Granted { at: now.mono, from: Position::default() },
            began: now.mono,
            viewers: BTreeMap::new(),
            sinks: BTreeMap::new(),
            standby: None,
        }
    }

    pub(super) fn standby(&self) -> Option<&Standby> {
        self.standby.as_deref()
    }

    /// Returns the standby for changes of its state. Its source must stay the same.
    pub(super) fn standby_mut(&mut self) -> Option<&mut Standby> {
        self.standby.as_deref_mut()
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the viewers of each worker that has any.
    pub(super) fn viewers(&self) -> impl Iterator<Item = &ViewerCounts> {
        self.viewers.values()
    }
}

/// A stream that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) stream: StreamId,
    pub(super) live: Live,
    pub(super) end: StreamEnd,
}

/// All live streams.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// State of the cluster.
    pub(super) cluster: Cluster,
    live: BTreeMap<StreamId, Live>,
    indexes: Indexes,
    lives: u64,
    /// Streams that ended while control handled the current input, and that [`super::Control::follow_ends`] has not
    /// processed yet.
    pub(super) ended: VecDeque<Ended>,
    /// Main tracks whose records are to be updated, because records of their subtracks have changed
    /// ([`Registry::follow_subtracks`]).
    pub(super) touched_mains: BTreeSet<StreamKey>,
    /// Publishers that left while control handled the current input, and that were not processed yet.
    pub(super) left: VecDeque<SessionRef>,
    /// The rates at which API clients insert subtitles.
    pub(super) subtitle_rates: Rates,
    /// Number of streams and records that searches for live subtracks have examined.
    #[cfg(test)]
    pub(super) examined: std::cell::Cell<usize>,
}

/// The indexes of live streams.
#[derive(Debug, Default, PartialEq, Eq)]
struct Indexes {
    keys: BTreeMap<StreamKey, StreamId>,
    apps: BTreeMap<Arc<str>, usize>,
    /// Number of copies of other nodes' streams in each application.
    copies: BTreeMap<Arc<str>, usize>,
    publishers: BTreeMap<SessionRef, StreamId>,
    networks: BTreeMap<IpAddr, usize>,
    /// Number of standbys of each application.
    standbys: BTreeMap<Arc<str>, usize>,
    /// Streams by the worker of their current or last publisher.
    workers: BTreeSet<(WorkerId, StreamId)>,
    /// Each worker with each stream that has viewers on that worker.
    watched: BTreeSet<(WorkerId, StreamId)>,
    graces: BTreeSet<(Instant, StreamId)>,
}

impl Indexes {
    fn add(&mut self, stream: StreamId, live: &Live) {
        self.keys.insert(live.key.clone(), stream);
        *self.apps.entry(live.key.app.clone()).or_default() += 1;
        self.watched.extend(live.viewers.keys().map(|worker| (*worker, stream)));
        self.add_source(stream, &live.key.app, &live.source);
        if let Some(standby) = live.standby() {
            self.add_standby(stream, &live.key.app, standby);
        }
    }

    fn remove(&mut self, stream: StreamId, live: &Live) {
        self.keys.remove(&live.key);
        decrease(&mut self.apps, &live.key.app);
        for worker in live.viewers.keys() {
            self.watched.remove(&(*worker, stream));
        }
        self.remove_source(stream, &live.key.app, &live.source);
        if let Some(standby) = live.standby() {
            self.remove_standby(&live.key.app, standby);
        }
    }

    fn add_standby(&mut self, stream: StreamId, app: &Arc<str>, standby: &Standby) {
        *self.standbys.entry(app.clone()).or_default() += 1;
        if let Some(network) = standby.source.counted_network() {
            *self.networks.entry(network).or_default() += 1;
        }
        self.publishers.insert(standby.session, stream);
    }

    fn remove_standby(&mut self, app: &Arc<str>, standby: &Standby) {
        decrease(&mut self.standbys, app);
        if let Some(network) = standby.source.counted_network() {
            decrease(&mut self.networks, &network);
        }
        self.publishers.remove(&standby.session);
    }

    fn add_source(&mut self, stream: StreamId, app: &Arc<str>, source: &Source) {
        if source.ingest == Ingest::COPY {
            *self.copies.entry(app.clone()).or_default() += 1;
        }
        self.workers.insert((source.worker, stream));
        if let Some(network) = source.counted_network() {
            *self.networks.entry(network).or_default() += 1;
        }
        match source.state {
            State::Live(session) => drop(self.publishers.insert(session, stream)),
            State::Grace(until) => drop(self.graces.insert((until, stream))),
            State::Awaited => {}
        }
    }

    fn remove_source(&mut self, stream: StreamId, app: &Arc<str>, source: &Source) {
        if source.ingest == Ingest::COPY {
            decrease(&mut self.copies, app);
        }
        self.workers.remove(&(source.worker, stream));
        if let Some(network) = source.counted_network() {
            decrease(&mut self.networks, &network);
        }
        match source.state {
            State::Live(session) => drop(self.publishers.remove(&session)),
            State::Grace(until) => drop(self.graces.remove(&(until, stream))),
            State::Awaited => {}
        }
    }
}

/// Decreases a count, and removes the entry when the count becomes zero.
fn decrease<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn of_worker(set: &BTreeSet<(WorkerId, StreamId)>, worker: WorkerId) -> impl Iterator<Item = StreamId> {
    set.range((worker, StreamId(0))..=(worker, StreamId(u64::MAX))).map(|(_, stream)| *stream)
}

impl Registry {
    /// Makes a registry without streams.
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, ..Self::default() }
    }

    /// Adds a live stream. Returns its new id.
    pub(super) fn insert(&mut self, live: Live) -> StreamId {
        self.lives += 1;
        let stream = StreamId(self.lives);
        self.indexes.add(stream, &live);
        self.live.insert(stream, live);
        stream
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Live> {
        let live = self.live.remove(&stream)?;
        self.indexes.remove(stream, &live);
        Some(live)
    }

    /// Changes the source of a stream. Returns the former source.
    pub(super) fn change(&mut self, stream: StreamId, change: impl FnOnce(&mut Source)) -> Option<Source> {
        let live = self.live.get_mut(&stream)?;
        let before = live.source;
        self.indexes.remove_source(stream, &live.key.app, &before);
        change(&mut live.source);
        self.indexes.add_source(stream, &live.key.app, &live.source);
        Some(before)
    }

    /// Sets or removes the standby of a stream. Returns the former standby.
    pub(super) fn set_standby(&mut self, stream: StreamId, standby: Option<Standby>) -> Option<Standby> {
        let live = self.live.get_mut(&stream)?;
        let before = live.standby.take();
        if let Some(before) = &before {
            self.indexes.remove_standby(&live.key.app, before);
        }
        live.standby = standby.map(Box::new);
        if let Some(standby) = live.standby() {
            self.indexes.add_standby(stream, &live.key.app, standby);
        }
        before.map(|before| *before)
    }

    /// Number of standbys of an application.
    pub(super) fn standbys(&self, app: &str) -> usize {
        self.indexes.standbys.get(app).copied().unwrap_or(0)
    }

    /// Sets the viewers reported by a worker, replacing its last report. Returns the streams whose count has changed.
    pub(super) fn set_viewers(&mut self, worker: WorkerId, report: &Report) -> BTreeSet<StreamId> {
        let mut counts = BTreeMap::<StreamId, ViewerCounts>::new();
        for (stream, viewers) in &report.viewers {
            counts.entry(*stream).or_default().connected = *viewers;
        }
        for (stream, protocol, viewers) in &report.leased {
            counts.entry(*stream).or_default().leased.insert(protocol, *viewers);
        }
        for (stream, viewers) in &report.elsewhere {
            counts.entry(*stream).or_default().elsewhere.clone_from(viewers);
        }
        let unwatched = |stream: &StreamId| !counts.contains_key(stream);
        let mut changed: BTreeSet<StreamId> =
            of_worker(&self.indexes.watched, worker).filter(unwatched).collect();
        for stream in &changed {
            self.indexes.watched.remove(&(worker, *stream));
            if let Some(live) = self.live.get_mut(stream) {
                live.viewers.remove(&worker);
            }
        }
        for (stream, counts) in counts {
            let Some(live) = self.live.get_mut(&stream) else { continue };
            if live.viewers.get(&worker) != Some(&counts) {
                live.viewers.insert(worker, counts);
                self.indexes.watched.insert((worker, stream));
                changed.insert(stream);
            }
        }
        changed
    }

    pub(super) fn get(&self, stream: &StreamId) -> Option<&Live> {
        self.live.get(stream)
    }

    pub(super) fn get_mut(&mut self, stream: &StreamId) -> Option<&mut Live> {
        self.live.get_mut(stream)
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Number of entries in all indexes.
    pub(super) fn indexed(&self) -> usize {
        let Indexes { keys, apps, copies, publishers, networks, standbys, workers, watched, graces } =
            &self.indexes;
        let maps =
            keys.len() + apps.len() + copies.len() + publishers.len() + networks.len() + standbys.len();
        maps + workers.len() + watched.len() + graces.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Live> {
        self.live.values()
    }

    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.live.keys().copied().collect()
    }

    pub(super) fn find(&self, key: &StreamKey) -> Option<StreamId> {
        self.indexes.keys.get(key).copied()
    }

    /// Returns the live streams of an application.
    pub(super) fn of_app<'a>(&'a self, app: &'a str) -> impl Iterator<Item = (StreamId, &'a Live)> {
        let of_app =
            self.indexes.keys.range(StreamKey::new(app, "")..).take_while(move |(key, _)| &*key.app == app);
        of_app.filter_map(|(_, stream)| Some((*stream, self.live.get(stream)?)))
    }

    /// Number of live streams of an application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.indexes.apps.get(app).copied().unwrap_or(0)
    }

    /// Number of live streams of an application that are not copies of other nodes' streams.
    pub(super) fn count_own(&self, app: &str) -> usize {
        self.count(app).saturating_sub(self.indexes.copies.get(app).copied().unwrap_or(0))
    }

    /// Number of live streams whose publishers have this address; pulls and copies do not count.
    pub(super) fn count_of(&self, address: IpAddr) -> usize {
        self.indexes.networks.get(&network(address)).copied().unwrap_or(0)
    }

    /// Returns the stream of this publisher.
    pub(super) fn of_publisher(&self, session: SessionRef) -> Option<StreamId> {
        self.indexes.publishers.get(&session).copied()
    }

    /// Returns the streams whose current or last publisher is on a worker.
    pub(super) fn of_worker(&self, worker: WorkerId) -> impl Iterator<Item = StreamId> {
        of_worker(&self.indexes.workers, worker)
    }

    /// Returns the grace period that ends first, with its stream.
    pub(super) fn first_grace(&self) -> Option<(Instant, StreamId)> {
        self.indexes.graces.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Random, Seed};

    use crate::config::AppSettings;
    use crate::types::ConnId;

    use super::*;

    const APPS: [&str; 3] = ["live", "live2", "LiveApp"];

    struct Model {
        registry: Registry,
        random: Random,
        began: Instant,
        settings: Arc<AppSettings>,
        conns: u32,
    }

    impl Model {
        fn below(&mut self, limit: u64) -> u64 {
            self.random.below(limit)
        }

        fn request(&mut self) -> PublishRequest {
            self.conns += 1;
            let worker = WorkerId(u16::try_from(self.below(3)).unwrap());
            let app = APPS[usize::try_from(self.below(3)).unwrap()];
            let ingest = match self.below(6) {
                0 => Ingest::PULL,
                1 => Ingest::COPY,
                2 => Ingest::ROOM_VIEW,
                _ => Ingest { publish_type: "RTMP", name: "rtmp" },
            };
            PublishRequest {
                session: SessionRef::new(worker, ConnId { slot: self.conns, generation: 0 }),
                key: StreamKey::new(app, &format!("s{}", self.conns)),
                ingest,
                peer: format!("192.0.2.{}:1", self.below(5)).parse().unwrap(),
                user_agent: String::new(),
                params: Vec::new(),
                via: Vec::new(),
                zero_ms: None,
                pull: None,
            }
        }

        fn any(&mut self) -> StreamId {
            StreamId(self.random.below(self.registry.lives + 1))
        }

        fn step(&mut self) {
            let now = Now { mono: self.began, wall_ms: 0 };
            match self.below(8) {
                0..=2 => {
                    let live = Live::new(now, &self.request(), self.settings.clone());
                    self.registry.insert(live);
                }
                3 => {
                    let stream = self.any();
                    self.registry.remove(stream);
                }
                4 => {
                    let (stream, request) = (self.any(), self.request());
                    self.registry.change(stream, |source| *source = Source::of(&request));
                }
                5 => {
                    let stream = self.any();
                    let until = self.began + std::time::Duration::from_secs(self.below(4));
                    self.registry.change(stream, |source| source.state = State::Grace(until));
                }
                6 => {
                    let stream = self.any();
                    self.registry.change(stream, |source| source.state = State::Awaited);
                }
                _ => {
                    let worker = WorkerId(u16::try_from(self.below(3)).unwrap());
                    let viewers =
                        (0..self.below(6)).map(|n| (self.any(), u32::try_from(n).unwrap())).collect();
                    let leased = (0..self.below(3)).map(|_| (self.any(), "hls", 1)).collect();
                    let before = self.watched_by(worker);
                    let report = Report { viewers, leased, ..Report::default() };
                    let told = self.registry.set_viewers(worker, &report);
                    let after = self.watched_by(worker);
                    let all: BTreeSet<StreamId> = before.keys().chain(after.keys()).copied().collect();
                    let changed = all.into_iter().filter(|stream| before.get(stream) != after.get(stream));
                    assert_eq!(told, changed.collect());
                    let reported = report.viewers.iter().map(|(stream, _)| *stream);
                    let reported = reported.chain(report.leased.iter().map(|(stream, ..)| *stream));
                    let is_live = |stream: &StreamId| self.registry.live.contains_key(stream);
                    assert!(after.keys().copied().eq(reported.filter(is_live).collect::<BTreeSet<_>>()));
                }
            }
        }

        fn watched_by(&self, worker: WorkerId) -> BTreeMap<StreamId, ViewerCounts> {
            let all = self.registry.live.iter();
            all.filter_map(|(stream, live)| Some((*stream, live.viewers.get(&worker)?.clone()))).collect()
        }

        /// Compares the indexes with indexes that are rebuilt from all streams.
        fn check(&self) {
            let registry = &self.registry;
            let mut indexes = Indexes::default();
            registry.live.iter().for_each(|(stream, live)| indexes.add(*stream, live));
            assert_eq!(registry.indexes, indexes);
            let number = |is: &dyn Fn(&Live) -> bool| registry.all().filter(|live| is(live)).count();
            for app in APPS {
                assert_eq!(registry.count(app), number(&|live| &*live.key.app == app), "{app}");
                assert_eq!(registry.of_app(app).count(), registry.count(app), "{app}");
                let is_own = |live: &Live| &*live.key.app == app && live.source.ingest != Ingest::COPY;
                assert_eq!(registry.count_own(app), number(&is_own), "{app}");
                assert!(registry.of_app(app).all(|(stream, live)| registry.find(&live.key) == Some(stream)));
            }
            for host in 0..5 {
                let address: IpAddr = format!("192.0.2.{host}").parse().unwrap();
                let is_of =
                    |live: &Live| !live.source.ingest.is_fetched() && live.source.network == network(address);
                assert_eq!(registry.count_of(address), number(&is_of), "{address}");
            }
            for (stream, live) in &registry.live {
                if let State::Live(session) = live.source.state {
                    assert_eq!(registry.of_publisher(session), Some(*stream));
                }
                assert!(registry.of_worker(live.source.worker).any(|found| found == *stream));
            }
            let graces = registry.live.iter().filter_map(|(stream, live)| match live.source.state {
                State::Grace(until) => Some((until, *stream)),
                State::Live(_) | State::Awaited => None,
            });
            assert_eq!(registry.first_grace(), graces.min());
        }
    }

    #[test]
    fn the_indexes_find_what_a_walk_over_all_streams_finds() {
        for seed in 0..20 {
            let mut model = Model {
                registry: Registry::default(),
                random: Seed::from_number(seed).random(),
                began: Instant::now(),
                settings: Arc::new(AppSettings::with("live", &[]).unwrap()),
                conns: 0,
            };
            for _ in 0..300 {
                model.step();
                model.check();
            }
            // When the last stream is removed, the indexes are empty.
            model.registry.streams().into_iter().for_each(|stream| drop(model.registry.remove(stream)));
            assert_eq!(model.registry.indexes, Indexes::default(), "seed {seed}");
        }
    }
}
