//! Publications, from the request to the last unit.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::{AccessUnit, ClockNews, FaultNews, TrackId, TrackKind, Tracks};

use super::behind::Behind;
use super::conn::{Publication, Purpose, ROLES_MAX};
use super::conns::Conns;
use super::deadlines::Timer;
use super::dispatch::FLUSH_GRID;
use super::memory::Memory;
use super::messages::hear_copied;
use super::standbys::{self, Passed};
use super::streams::{Live, SourceCount};
use super::turn::Turn;
use super::{Worker, demand};
use crate::hub::{Entry, Flush, Pauses};
use crate::mail::{Departure, Grant, PublishRequest, Refusal, ToControl};
use crate::protocol::{PublicationEvent, PublicationNews, PublishAsk, Reply, SubscriptionNews, derived};
use crate::types::{ConnId, Handle, SessionRef, StreamId};

/// Minimum time between two log lines about the same kind of clock fault of a publisher.
const CLOCK_LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Worker {
    /// Appends timed data to a stream that is published here. The data gets the DTS of the stream's newest unit, also
    /// while the stream waits for its publisher.
    pub(super) fn put_timed_data(&mut self, id: StreamId, track: TrackId, payload: Bytes, ahead_ms: u32) {
        let Some(stream) = self.live.streams.get(&id).filter(|stream| stream.source == self.turn.id) else {
            return;
        };
        let tracks = Arc::clone(stream.tracks());
        if tracks.is_empty() {
            // Data without media is useless, and a data unit would end the wait of subscribers that wait for tracks.
            return;
        }
        let source = self.live.sources.get(&id).map(|source| source.position.dts_ms);
        let Some(dts) = source.or_else(|| stream.head_ms()) else { return };
        let pts = dts.saturating_add(i64::from(ahead_ms));
        let unit = AccessUnit { track, dts, pts, key_frame: false, config_epoch: 0, payload };
        let entry = Entry::new(self.turn.now.mono, self.turn.now.wall_ms, unit, tracks);
        // If a format panics when it packages the unit, the unit is left out.
        let _ = self.live.append(&mut self.turn, &mut self.conns, &mut self.memory, id, entry);
        self.live.feed_mirrors(&mut self.turn, id);
    }
}

impl Live {
    /// Returns the session that feeds a stream on this worker.
    pub(super) fn publisher(&self, stream: StreamId) -> Option<SessionRef> {
        self.sources.get(&stream)?.publisher
    }
}

impl Worker {
    /// Closes a publisher because a new one has taken over its stream.
    pub(super) fn replaced(&mut self, id: ConnId, stream: StreamId) {
        let Some(conn) = self.conns.get(id) else { return };
        let Some(publication) = conn.publication_of(stream) else { return };
        let is_only = conn.publications.len() == 1 && conn.subscriptions.is_empty();
        self.conns.forget_publication(id, stream);
        self.live.standbys.remove(id, publication);
        // A standby feeds no stream: the publisher is another session.
        if self.live.publisher(stream) == Some(self.turn.session_ref(id, publication)) {
            self.live.sources.remove(&stream);
        }
        if is_only {
            self.remove(id, "replaced by a new publisher", false);
        } else {
            let end = crate::mail::StreamEnd::Stopped;
            self.conns.reply(&self.turn, id, Reply::Publication(publication, PublicationNews::Ended(end)));
            self.conns.touch(&mut self.turn, id);
        }
    }
}

impl Live {
    /// Handles an event of a session about a publication.
    pub(super) fn publication_event(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        memory: &mut Memory,
        id: ConnId,
        publication: Handle,
        event: PublicationEvent,
    ) {
        if self.standbys.ignores(id, publication, &event) {
            return;
        }
        match event {
            PublicationEvent::Publish(ask) => conns.ask_publish(turn, id, publication, ask),
            PublicationEvent::Over(departure) => self.unpublish(turn, conns, id, publication, departure),
            PublicationEvent::Unit { unit, tracks } => {
                self.ingest(turn, conns, memory, id, publication, (unit, tracks))
            }
            PublicationEvent::UnitsDropped(units) => self.count_dropped(turn, conns, id, publication, units),
            PublicationEvent::Clock(news) => self.note_clock_news(turn, conns, id, publication, news),
            PublicationEvent::Loudness(level) => self.note_loudness(turn, conns, id, publication, level),
            PublicationEvent::Fault(reason) => self.log_fault(conns, id, publication, reason),
        }
    }

    /// Handles control's verdict on a publisher.
    pub(super) fn publish_verdict(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        publication: Handle,
        verdict: Result<Box<Grant>, Refusal>,
    ) {
        let session = turn.session_ref(id, publication);
        let granted = verdict.as_ref().ok().map(|grant| (grant.stream, grant.position));
        let waits = verdict
            .as_ref()
            .ok()
            .filter(|grant| grant.standby)
            .map(|grant| grant.settings.loss.standby_after);
        let asked = conns.get_mut(id).and_then(|conn| {
            let at =
                conn.publications.iter().position(|one| one.handle == publication && one.stream.is_none())?;
            match granted {
                Some((stream, ..)) => conn.publications.get_mut(at)?.stream = Some(stream),
                None => {
                    conn.publications.remove(at);
                }
            }
            Some(())
        });
        match (asked, granted) {
            (Some(()), _) => {
                match &verdict {
                    Ok(_) => conns.forgive(id),
                    Err(refusal) => conns.publish_refused(id, refusal),
                }
                if let (Some((stream, _)), Some(silence)) = (granted, waits) {
                    let pauses = Pauses::default();
                    self.standbys.begin(turn.now.mono, (id, publication), (stream, silence), pauses);
                } else if let Some((stream, position)) = granted {
                    let count = self.sources.entry(stream).or_default();
                    count.position = position;
                    count.behind = Behind::new(position);
                    (count.last_unit, count.pauses) = (Some(turn.now.mono), Pauses::default());
                    count.publisher = Some(session);
                }
                let verdict = verdict.map(|grant| *grant);
                conns.reply(turn, id, Reply::Publication(publication, PublicationNews::Verdict(verdict)));
                if let Some((stream, _)) = granted.filter(|_| waits.is_none()) {
                    self.tell_wanted(turn, conns, stream);
                    standbys::watch_silence(self, turn, stream);
                }
            }
            // The publisher left before control's verdict arrived, so control must not wait for its units.
            (None, Some((stream, position))) => {
                let (departure, tracks) = (Departure::Lost, tracks_of(self, stream));
                turn.tell(ToControl::PublisherGone { session, stream, departure, position, tracks });
            }
            (None, None) => {}
        }
        conns.note_authenticated(turn, id);
        conns.touch(turn, id);
    }

    /// Ends a publication of any protocol, and reports its end to control.
    pub(super) fn unpublish(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        publication: Handle,
        departure: Departure,
    ) {
        let session = turn.session_ref(id, publication);
        let Some(conn) = conns.get_mut(id) else { return };
        let Some(at) = conn.publications.iter().position(|one| one.handle == publication) else { return };
        self.standbys.remove(id, publication);
        match conn.publications.remove(at).stream {
            None => turn.tell(ToControl::PublishAbandoned(session)),
            Some(stream) => {
                // Another publisher may have taken over the stream. Only the counters of this publisher are removed.
                let is_own = |count: &SourceCount| count.publisher.is_none_or(|one| one == session);
                let own = self.sources.get(&stream).copied().filter(is_own);
                if own.is_some() {
                    self.sources.remove(&stream);
                }
                let position = own.map(|count| count.position).unwrap_or_default();
                let tracks = tracks_of(self, stream);
                turn.tell(ToControl::PublisherGone { session, stream, departure, position, tracks });
            }
        }
    }

    /// Ends all publications of a session that has ended.
    pub(super) fn unpublish_all(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId) {
        while let Some(publication) = conns.get(id).and_then(|conn| conn.publications.last().copied()) {
            self.unpublish(turn, conns, id, publication.handle, Departure::Lost);
        }
    }

    pub(super) fn ingest(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        memory: &mut Memory,
        id: ConnId,
        publication: Handle,
        unit: (AccessUnit, Arc<Tracks>),
    ) {
        let Some(stream) = conns.published(id, publication) else {
            return self.ingest_derived(turn, conns, memory, id, unit.0);
        };
        if unit.0.track == TrackId::MESSAGES {
            hear_copied(self, turn, conns, id, stream, &unit.0.payload);
        }
        match self.standbys.pass(turn, conns, (id, publication), unit) {
            Passed::Unit(unit, tracks) => {
                ingest_mapped(self, turn, conns, memory, (id, stream), (unit, tracks));
            }
            Passed::Retained => {}
            Passed::LeftOut(track) => {
                // A publisher whose units are left out is not silent.
                if let Some(count) = self.sources.get_mut(&stream) {
                    count.hear(turn.now.mono);
                }
                if let Some(track) = track {
                    self.need_key_frame(turn, conns, stream, track);
                }
            }
        }
    }

    /// Appends a unit of a publisher or a producer on this worker, and sends it to the workers that mirror the stream.
    pub(super) fn append_published(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        memory: &mut Memory,
        id: ConnId,
        stream: StreamId,
        entry: Entry,
    ) {
        let appended = self.append(turn, conns, memory, stream, entry);
        self.feed_mirrors(turn, stream);
        if appended.is_err() {
            conns.note_panic(id);
        }
    }

    /// Appends a published or mirrored unit to this worker's ring. If a format panics while it packages the unit, the
    /// unit is left out.
    pub(super) fn append(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        memory: &mut Memory,
        id: StreamId,
        entry: Entry,
    ) -> std::thread::Result<()> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        turn.meter.stats.units = turn.meter.stats.units.saturating_add(1);
        let bytes = entry.unit.payload.len();
        let first = stream.tracks().is_empty();
        let now = turn.now.mono;
        let pushed =
            catch_unwind(AssertUnwindSafe(|| stream.push(now, entry))).inspect_err(|_| stream.leave_out())?;
        match pushed.flush {
            Flush::Now => {
                if stream.flush.queue() {
                    turn.agenda.flushing.push(id);
                }
            }
            Flush::By(_) => self.arm_flush(turn, id),
        }
        if pushed.trim {
            self.trim(turn, conns, id);
        }
        memory.note_appended(turn, self, bytes);
        if pushed.rechosen || first {
            self.settle_demand(turn, conns, id);
        }
        if first || pushed.kind_added {
            self.tell_tracks(turn, conns, id, first);
        }
        Ok(())
    }

    /// Notifies the subscribers of a stream that had no tracks that it now has some, and those of a stream with only
    /// video or only audio that it now has both.
    fn tell_tracks(&self, turn: &mut Turn, conns: &mut Conns, id: StreamId, first: bool) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (tracks, subscribers) = (Arc::clone(stream.tracks()), stream.subscribers.clone());
        for subscriber in subscribers {
            let news = if first {
                SubscriptionNews::TracksKnown(&tracks)
            } else {
                SubscriptionNews::KindAdded(&tracks)
            };
            conns.reply(turn, subscriber.conn, Reply::Subscription(subscriber.handle, news));
            conns.touch(turn, subscriber.conn);
        }
    }

    /// Arms the deadline for units that wait to be sent. One entry in the deadline table is enough for each stream:
    /// while video flows, each frame flushes the stream, and when the entry fires there is nothing to do. Deadlines are
    /// rounded down to multiples of [`FLUSH_GRID`], so that hundreds of streams share a wake-up.
    pub(super) fn arm_flush(&mut self, turn: &mut Turn, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(at) = stream.flush.due() else { return };
        let since = at.saturating_duration_since(turn.meter.began).as_nanos();
        let early = u64::try_from(since.checked_rem(FLUSH_GRID.as_nanos()).unwrap_or(0)).unwrap_or(0);
        let on_grid = at - Duration::from_nanos(early);
        let on_grid = on_grid.max(turn.now.mono);
        if stream.flush.arm(on_grid) {
            turn.agenda.deadlines.arm(on_grid, Timer::Flush(id));
        }
    }

    pub(super) fn count_dropped(
        &mut self,
        turn: &mut Turn,
        conns: &Conns,
        id: ConnId,
        publication: Handle,
        units: u64,
    ) {
        if let Some(stream) = conns.published(id, publication) {
            let count: &mut SourceCount = self.sources.entry(stream).or_default();
            count.dropped = count.dropped.saturating_add(units);
            turn.meter.stats.units_dropped = turn.meter.stats.units_dropped.saturating_add(units);
        }
    }

    /// Counts faults of a publisher's clock, or records by how many milliseconds the stream has advanced beyond the
    /// publisher's timestamps.
    pub(super) fn note_clock_news(
        &mut self,
        turn: &mut Turn,
        conns: &Conns,
        id: ConnId,
        publication: Handle,
        news: ClockNews,
    ) {
        let Some(stream) = conns.published(id, publication) else { return };
        match news {
            ClockNews::Fault(fault) => self.note_clock_fault(turn, conns, id, stream, fault),
            ClockNews::MadeUp(ms) => self.sources.entry(stream).or_default().made_up_ms = ms,
        }
    }

    /// Counts a clock fault. Logs at most one fault of each kind in [`CLOCK_LOG_INTERVAL`].
    fn note_clock_fault(
        &mut self,
        turn: &mut Turn,
        conns: &Conns,
        id: ConnId,
        stream: StreamId,
        news: FaultNews,
    ) {
        let FaultNews { fault, track, off_ms, count } = news;
        turn.meter.clock_faults.add(fault, count);
        let source: &mut SourceCount = self.sources.entry(stream).or_default();
        source.clock_faults.add(fault, count);
        let Some(told) = source.clock_told.get_mut(fault as usize) else { return };
        let is_soon = |at: Instant| turn.now.mono.saturating_duration_since(at) < CLOCK_LOG_INTERVAL;
        if told.is_some_and(is_soon) {
            return;
        }
        *told = Some(turn.now.mono);
        let total = source.clock_faults.of(fault);
        let (Some(conn), Some(stream)) = (conns.get(id), self.streams.get(&stream)) else { return };
        let (key, protocol) = (&stream.key, conn.session.about().protocol);
        let codec = stream.tracks().get(track).map(|track| track.config.codec());
        let (fault, remedy) = (fault.name(), fault.remedy());
        let track = track.number();
        tracing::warn!(%key, protocol, track, ?codec, fault, off_ms, total, remedy, "publisher's clock corrected");
    }

    /// Logs a fault of a stream with the stream's name.
    pub(super) fn log_fault(&self, conns: &Conns, id: ConnId, publication: Handle, reason: &str) {
        let stream = conns.published(id, publication).and_then(|stream| self.streams.get(&stream));
        let (Some(conn), Some(stream)) = (conns.get(id), stream) else { return };
        let (key, peer, protocol) = (&stream.key, conn.client(), conn.session.about().protocol);
        tracing::warn!(%key, protocol, %peer, reason, "stream has a fault");
    }
}

/// Appends a unit with times of the stream's clock, and counts it.
pub(super) fn ingest_mapped(
    live: &mut Live,
    turn: &mut Turn,
    conns: &mut Conns,
    memory: &mut Memory,
    (id, stream): (ConnId, StreamId),
    (unit, tracks): (AccessUnit, Arc<Tracks>),
) {
    let tracks = match live.streams.get_mut(&stream) {
        Some(stream) => {
            let has_room = |app: &str| live.transcoders.has_room(app);
            stream.with_derived((turn.now.mono, demand::RETRY), has_room, tracks, derived::with_offers)
        }
        None => tracks,
    };
    let count = live.sources.entry(stream).or_default();
    count.received_bytes = count.received_bytes.saturating_add(unit.payload.len() as u64);
    // Script data and messages may go on while the encoder's media has stopped.
    if !unit.track.is_data() {
        count.hear(turn.now.mono);
    }
    let is_video = tracks.get(unit.track).is_some_and(|track| track.kind() == TrackKind::Video);
    count.pictures = count.pictures.saturating_add(u64::from(is_video));
    let has_stopped = count.video.note(turn.now.mono, is_video);
    let mut entry = Entry::new(turn.now.mono, turn.now.wall_ms, unit, tracks);
    if !count.behind.place(&mut entry) {
        count.dropped = count.dropped.saturating_add(1);
        turn.meter.stats.units_dropped = turn.meter.stats.units_dropped.saturating_add(1);
        return;
    }
    count.position.dts_ms = count.position.dts_ms.max(entry.dts_ms);
    if !std::mem::replace(&mut count.position.started, true) {
        turn.tell(ToControl::SourceStarted(stream));
    }
    if has_stopped && let Some(publication) = conns.get(id).and_then(|conn| conn.publication_of(stream)) {
        live.log_fault(conns, id, publication, "no video for 10 s while audio goes on");
    }
    demand::repeat_key_request(live, turn, conns, stream, &entry.unit);
    live.append_published(turn, conns, memory, id, stream, entry);
}

/// Returns the tracks of a stream, none if it is not known here.
fn tracks_of(live: &Live, stream: StreamId) -> Arc<Tracks> {
    live.streams.get(&stream).map(|stream| Arc::clone(stream.tracks())).unwrap_or_default()
}

impl Conns {
    pub(super) fn ask_publish(&mut self, turn: &mut Turn, id: ConnId, publication: Handle, ask: PublishAsk) {
        let session = turn.session_ref(id, publication);
        let Some(conn) = self.get_mut(id) else { return };
        if conn.publications.len() >= ROLES_MAX || conn.publication_mut(publication).is_some() {
            conn.figures.key = Some(ask.key);
            self.publish_refused(id, &Refusal::Resources);
            let verdict = Err(Refusal::Resources);
            self.reply(turn, id, Reply::Publication(publication, PublicationNews::Verdict(verdict)));
            return;
        }
        conn.publications.push(Publication { handle: publication, stream: None });
        let pull = match conn.purpose {
            Purpose::Pull { pull, attempt } => Some((pull, attempt)),
            Purpose::Peer
            | Purpose::Push { .. }
            | Purpose::Sink { .. }
            | Purpose::Recording { .. }
            | Purpose::Producer { .. }
            | Purpose::Ended => None,
        };
        conn.figures.key = Some(ask.key.clone());
        let request = PublishRequest {
            session,
            key: ask.key,
            ingest: ask.ingest,
            peer: if ask.of_foreign_page { nobodys(conn.peer) } else { conn.peer },
            user_agent: ask.user_agent,
            params: ask.params,
            via: ask.via,
            zero_ms: ask.zero_ms,
            pull,
        };
        turn.tell(ToControl::Publish(request));
    }

    /// Removes a publication without a report to control, which already knows.
    pub(super) fn forget_publication(&mut self, id: ConnId, stream: StreamId) {
        if let Some(conn) = self.get_mut(id) {
            conn.publications.retain(|one| one.stream != Some(stream));
        }
    }

    fn published(&self, id: ConnId, publication: Handle) -> Option<StreamId> {
        self.get(id)?.publications.iter().find(|one| one.handle == publication)?.stream
    }
}

/// Replaces a loopback address by the unspecified address. A loopback address does not identify the requester, and the
/// unspecified address matches only rules for all addresses.
fn nobodys(peer: SocketAddr) -> SocketAddr {
    if peer.ip().to_canonical().is_loopback() {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), peer.port())
    } else {
        peer
    }
}
