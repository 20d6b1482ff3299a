//! Demand: the tracks that subscribers are sent, and the key frames that they wait for. It is reported to the worker
//! that has a stream's publisher, and from there to the publisher and to the producers of derived tracks.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, TrackId, TrackSet};

use super::conn::Purpose;
use super::conns::Conns;
use super::deadlines::Timer;
use super::memory::Memory;
use super::streams::Live;
use super::transcoders::TranscoderPermit;
use super::turn::Turn;
use super::{Output, Worker};
use crate::hub::Entry;
use crate::mail::ToWorker;
use crate::protocol::{PublicationNews, Reply, derived};
use crate::types::{ConnId, StreamId};

/// Time for which a derived track is still produced after its last subscriber has left. Viewers often come back within
/// this time.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// A derived track is left out, i.e. not offered to viewers, if no transcoder is free. After this time at the earliest,
/// all such tracks are offered again together. Each attempt changes the tracks that their viewers are sent, so attempts
/// must not be frequent.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Time for which a derived track is left out when its producer has failed.
const RETRY_FAILED: Duration = Duration::from_secs(10);
/// Minimum interval of log lines about tracks of the same stream that are left out.
const LEFT_OUT_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A derived track that is being made.
#[derive(Debug)]
pub(super) struct Producer {
    /// The session that makes the track.
    pub(super) conn: ConnId,
    /// Time at which the production of the track ends; `None` while any subscriber is sent the track.
    pub(super) ends: Option<Instant>,
    /// The producer's permit from the transcoder budget.
    pub(super) permit: Option<TranscoderPermit>,
}

/// Range of the keys of a stream's producers.
fn of_stream(id: StreamId) -> Range<(StreamId, TrackId)> {
    (id, TrackId::VIDEO)..(StreamId(id.0.saturating_add(1)), TrackId::VIDEO)
}

impl Live {
    /// Removes a producer whose session has ended. If subscribers are still sent its track, the track is left out for
    /// [`RETRY_FAILED`]: they get the next best one, and then another producer makes the track.
    pub(super) fn forget_producer(&mut self, turn: &Turn, id: ConnId, stream: StreamId, track: TrackId) {
        let Some(producer) = self.producers.get(&(stream, track)).filter(|producer| producer.conn == id)
        else {
            return;
        };
        let is_wanted = producer.ends.is_none();
        self.producers.remove(&(stream, track));
        let stream = self.streams.get_mut(&stream).filter(|stream| is_wanted && stream.source == turn.id);
        if let Some(stream) = stream {
            stream.leave_out_track(track, turn.now.mono + RETRY_FAILED);
        }
    }
}

impl Worker {
    /// Ends those producers of a stream that have lingered for [`LINGER`] without a subscriber.
    pub(super) fn end_lingering(&mut self, id: StreamId) {
        let now = self.turn.now.mono;
        let is_over = |producer: &Producer| producer.ends.is_some_and(|at| at <= now);
        let over: Vec<ConnId> = self
            .live
            .producers
            .range(of_stream(id))
            .filter(|(_, producer)| is_over(producer))
            .map(|(_, producer)| producer.conn)
            .collect();
        for conn in over {
            self.remove(conn, "nobody is sent its track", false);
        }
    }

    /// Ends the producers of a stream that has ended or whose publisher is now on another worker.
    pub(super) fn end_producers(&mut self, id: StreamId) {
        for conn in
            self.live.producers.range(of_stream(id)).map(|(_, producer)| producer.conn).collect::<Vec<_>>()
        {
            self.remove(conn, "its stream is gone", false);
        }
    }
}

impl Live {
    // ---- tracks

    /// Recomputes which tracks of a stream are wanted, after a change of subscribers, selections or tracks.
    pub(super) fn settle_demand(&mut self, turn: &mut Turn, conns: &mut Conns, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let is_mirror = stream.source != turn.id;
        if is_mirror && !stream.demand_is_known() {
            return;
        }
        let Some(wanted) = stream.wanted_anew() else { return };
        if is_mirror {
            if stream.is_mirrored_here() {
                let mail = ToWorker::MirrorWants { stream: id, to: turn.id, wanted };
                turn.agenda.outputs.push_back(Output::Worker(stream.source, mail));
            }
            return;
        }
        self.settle_producers(turn, conns, id, wanted);
        self.tell_wanted(turn, conns, id);
    }

    /// Reports to a stream's publisher which of the publisher's tracks are wanted.
    pub(super) fn tell_wanted(&self, turn: &mut Turn, conns: &mut Conns, id: StreamId) {
        let (Some(publisher), Some(stream)) = (self.publisher(id), self.streams.get(&id)) else {
            return;
        };
        let from = |track: TrackId| Some(stream.tracks().get(track)?.origin.from().unwrap_or(track));
        let tracks: TrackSet = stream.wanted().iter().filter_map(from).collect();
        let publication = publisher.handle;
        conns.reply(turn, publisher.conn, Reply::Publication(publication, PublicationNews::Wanted(tracks)));
        conns.touch(turn, publisher.conn);
    }

    /// Starts producers for the wanted derived tracks. Producers of tracks that are no longer wanted end after
    /// [`LINGER`].
    fn settle_producers(&mut self, turn: &mut Turn, conns: &mut Conns, id: StreamId, wanted: TrackSet) {
        let now = turn.now.mono;
        for track in wanted.iter().filter(|track| track.is_derived()) {
            match self.producers.get_mut(&(id, track)) {
                Some(producer) => producer.ends = None,
                None => self.start_producer(turn, conns, id, track),
            }
        }
        let mut lingers = false;
        for ((_, track), producer) in self.producers.range_mut(of_stream(id)) {
            if !wanted.contains(*track) && producer.ends.is_none() {
                producer.ends = Some(now + LINGER);
                lingers = true;
            }
        }
        if lingers {
            turn.agenda.deadlines.arm(now + LINGER, Timer::Linger(id));
        }
    }

    fn start_producer(&mut self, turn: &mut Turn, conns: &mut Conns, id: StreamId, track: TrackId) {
        let now = turn.now;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (tracks, settings) = (Arc::clone(stream.tracks()), Arc::clone(&stream.settings));
        let Some(derivation) = derived::find(&tracks, track) else { return };
        let Some(from) = tracks.get(track).and_then(|track| tracks.get(track.origin.from()?)) else { return };
        let permit = derivation.limit.is_some().then(|| self.transcoders.take(&stream.key.app));
        if let Some(None) = permit {
            stream.leave_out_track(track, now.mono + RETRY);
            turn.meter.stats.transcoders_refused = turn.meter.stats.transcoders_refused.saturating_add(1);
            return self.log_left_out(now.mono, id, derivation.name);
        }
        let seed = turn.session_seed();
        let session = (derivation.begin)(now, from, &settings, seed);
        if let Some(conn) = conns.insert_inner(turn, session, Purpose::Producer { stream: id, track }) {
            tracing::debug!(derivation = derivation.name, stream = id.0, "derived track started");
            let permit = permit.flatten();
            self.producers.insert((id, track), Producer { conn, ends: None, permit });
        }
    }

    /// Logs that a derived track is not made because no transcoder is free, at most once in [`LEFT_OUT_LOG_INTERVAL`]
    /// for each stream.
    fn log_left_out(&mut self, now: Instant, id: StreamId, name: &str) {
        let told = &mut self.sources.entry(id).or_default().left_out_told;
        if told.is_some_and(|at| now.saturating_duration_since(at) < LEFT_OUT_LOG_INTERVAL) {
            return;
        }
        *told = Some(now);
        let Some(key) = self.streams.get(&id).map(|stream| &stream.key) else { return };
        tracing::warn!(%key, name, "track not transcoded: the application's share of audio.max_transcoders is used up");
    }

    /// Appends a unit of a derived track.
    pub(super) fn ingest_derived(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        memory: &mut Memory,
        id: ConnId,
        unit: AccessUnit,
    ) {
        let Some(Purpose::Producer { stream: stream_id, track }) = conns.get(id).map(|conn| conn.purpose)
        else {
            return;
        };
        let Some(stream) = self.streams.get(&stream_id) else { return };
        let tracks = Arc::clone(stream.tracks());
        // The published track may have ended while the unit was being made.
        let Some(of) = tracks.get(track) else { return };
        let unit = AccessUnit { track, config_epoch: of.epoch, ..unit };
        let entry = Entry::new(turn.now.mono, turn.now.wall_ms, unit, tracks);
        self.append_published(turn, conns, memory, id, stream_id, entry);
    }

    // ---- key frames

    /// Requests a key frame of a video track for a subscriber that waits for it. Requests in quick succession are
    /// merged, here and again at the source worker.
    pub(super) fn need_key_frame(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: StreamId,
        track: TrackId,
    ) {
        let now = turn.now.mono;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.may_ask_key_frame(now, track) {
            return;
        }
        if stream.source != turn.id {
            let mail = ToWorker::KeyFrameNeeded { stream: id, track };
            turn.agenda.outputs.push_back(Output::Worker(stream.source, mail));
            return;
        }
        stream.await_key_frame(now, track);
        ask_key_frame(self, turn, conns, id, track);
    }
}

/// Requests a key frame again if the publisher goes on without one, because the request may have been lost.
pub(super) fn repeat_key_request(
    live: &mut Live,
    turn: &mut Turn,
    conns: &mut Conns,
    id: StreamId,
    unit: &AccessUnit,
) {
    let Some(stream) = live.streams.get_mut(&id) else { return };
    let now = turn.now.mono;
    if stream.is_key_overdue(now, unit.track, unit.key_frame) && stream.may_ask_key_frame(now, unit.track) {
        ask_key_frame(live, turn, conns, id, unit.track);
    }
}

fn ask_key_frame(live: &Live, turn: &mut Turn, conns: &mut Conns, id: StreamId, track: TrackId) {
    turn.meter.stats.key_frames_asked = turn.meter.stats.key_frames_asked.saturating_add(1);
    let Some(publisher) = live.publisher(id) else { return };
    let needed = Reply::Publication(publisher.handle, PublicationNews::KeyFrameNeeded(track));
    conns.reply(turn, publisher.conn, needed);
    conns.touch(turn, publisher.conn);
}
