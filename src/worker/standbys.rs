//! Standbys: publishers that wait on this worker to take over a stream, and those that have taken one over.
//!
//! 1. Control grants a publication as a standby. Its units are retained ([`Standby`]). It reports to control when it begins
//!    and ceases to send media.
//! 2. While a standby sends, the stream's details say so on all workers. The worker with the publisher then watches
//!    over its silence. A silent publisher yields: it becomes a standby itself, and reports where it ended to control.
//! 3. Control orders the standby to take over ([`crate::mail::ToWorker::TakeOver`]). Its retained units are appended
//!    first; all its units are mapped to the stream's clock ([`Splice`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, TrackId, TrackKind, Tracks};

use super::conns::Conns;
use super::deadlines::Timer;
use super::memory::Memory;
use super::publications::ingest_mapped;
use super::streams::{Live, SourceCount};
use super::turn::Turn;
use crate::hub::{Held, Pauses, Splice, Standby};
use crate::mail::{Departure, Seam, StandbyFigures, StreamEnd, ToControl};
use crate::protocol::{PublicationEvent, PublicationNews, Reply};
use crate::types::{ConnId, Handle, SessionRef, StreamId};

/// A publication that is or was a standby.
#[derive(Debug)]
struct Second {
    stream: StreamId,
    /// Shortest silence after which the standby counts as not sending.
    silence: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The publication waits. `sends` is the state last reported to control.
    Waiting { standby: Standby, sends: bool },
    /// The publication has taken over the stream.
    Active(Box<Splice>),
}

/// The publications of this worker that are or were standbys, and the deadlines of their streams.
#[derive(Debug, Default)]
pub(super) struct Standbys {
    of: BTreeMap<(ConnId, Handle), Second>,
    /// The publications of each stream.
    by_stream: BTreeMap<StreamId, BTreeSet<(ConnId, Handle)>>,
    /// The next check for silence of each stream that has a standby.
    armed: BTreeMap<StreamId, Instant>,
}

impl Standbys {
    /// Number of publications.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Number of streams that are watched for silence.
    pub(super) fn watched(&self) -> usize {
        self.armed.len()
    }

    /// True if the publication waits, so that it feeds no stream.
    pub(super) fn waits(&self, id: ConnId, publication: Handle) -> bool {
        self.of.get(&(id, publication)).is_some_and(|one| matches!(one.state, State::Waiting { .. }))
    }

    /// Makes a publication wait. `pauses` are those of its units so far.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        key: (ConnId, Handle),
        (stream, silence): (StreamId, Duration),
        pauses: Pauses,
    ) {
        let state = State::Waiting { standby: Standby::new(now, pauses), sends: false };
        self.remove(key.0, key.1);
        self.by_stream.entry(stream).or_default().insert(key);
        self.of.insert(key, Second { stream, silence, state });
    }

    /// Forgets a publication that has ended.
    pub(super) fn remove(&mut self, id: ConnId, publication: Handle) {
        let Some(one) = self.of.remove(&(id, publication)) else { return };
        let Some(keys) = self.by_stream.get_mut(&one.stream) else { return };
        keys.remove(&(id, publication));
        if keys.is_empty() {
            self.by_stream.remove(&one.stream);
        }
    }

    /// Forgets all publications.
    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.by_stream.clear();
    }

    /// Removes and returns the waiting publications of a stream that has ended.
    fn end(&mut self, stream: StreamId) -> Vec<(ConnId, Handle)> {
        self.armed.remove(&stream);
        let all = self.by_stream.remove(&stream).unwrap_or_default();
        let is_waiting = |key: &(ConnId, Handle)| {
            matches!(self.of.remove(key)?.state, State::Waiting { .. }).then_some(*key)
        };
        all.iter().filter_map(is_waiting).collect()
    }

    /// Bytes that the waiting publications retain.
    pub(super) fn retained_bytes(&self) -> usize {
        let bytes = |one: &Second| match &one.state {
            State::Waiting { standby, .. } => standby.retained_bytes(),
            State::Active(_) => 0,
        };
        self.of.values().map(bytes).sum()
    }

    /// Frees this many bytes, or all, of what waiting publications retain, the largest first. Each retains units again
    /// from its next key frame on. Returns the number of bytes that are still to be freed elsewhere.
    pub(super) fn free(&mut self, mut excess: usize) -> usize {
        let waiting = self.of.values_mut().filter_map(|one| match &mut one.state {
            State::Waiting { standby, .. } => Some(standby),
            State::Active(_) => None,
        });
        let mut waiting: Vec<&mut Standby> = waiting.collect();
        waiting.sort_by_key(|standby| Reverse(standby.retained_bytes()));
        for standby in waiting {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(standby.retained_bytes());
            standby.clear();
        }
        excess
    }

    /// Returns the figures of the waiting publications.
    pub(super) fn figures(&self, turn: &Turn) -> Vec<StandbyFigures> {
        let figures = |(&(conn, handle), one): (&(ConnId, Handle), &Second)| match &one.state {
            State::Waiting { standby, .. } => {
                let silent = turn.now.mono.saturating_duration_since(standby.last_unit());
                Some(StandbyFigures {
                    stream: one.stream,
                    session: turn.session_ref(conn, handle),
                    received_bytes: standby.received_bytes(),
                    silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
                    has_key_frame: standby.has_key_frame(),
                })
            }
            State::Active(_) => None,
        };
        self.of.iter().filter_map(figures).collect()
    }

    /// Arms the check for silence of a stream, unless an earlier one is armed.
    fn arm(&mut self, turn: &mut Turn, stream: StreamId, at: Instant) {
        if self.armed.get(&stream).is_some_and(|armed| *armed <= at) {
            return;
        }
        self.armed.insert(stream, at);
        turn.agenda.deadlines.arm(at, Timer::Silence(stream));
    }
}

/// A unit of a publication that may be a standby.
pub(super) enum Passed {
    /// The unit becomes part of the stream. Its times are those of the stream.
    Unit(AccessUnit, Arc<Tracks>),
    /// The unit is that of a publication that waits.
    Retained,
    /// The unit of the stream's publisher is left out. The stream needs a key frame of the track, if one is given.
    LeftOut(Option<TrackId>),
}

impl Standbys {
    /// True if an event of a publication has no effect because the publication waits. Its units are handled by
    /// [`Standbys::pass`].
    pub(super) fn ignores(&self, id: ConnId, publication: Handle, event: &PublicationEvent) -> bool {
        let is_news = match event {
            PublicationEvent::UnitsDropped(_)
            | PublicationEvent::Clock(_)
            | PublicationEvent::Loudness(_)
            | PublicationEvent::Fault(_) => true,
            PublicationEvent::Publish(_) | PublicationEvent::Over(_) | PublicationEvent::Unit { .. } => false,
        };
        is_news && self.waits(id, publication)
    }

    /// Handles a unit of a publication that may be a standby.
    pub(super) fn pass(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        (id, publication): (ConnId, Handle),
        (unit, tracks): (AccessUnit, Arc<Tracks>),
    ) -> Passed {
        let now = turn.now.mono;
        let Some(one) = self.of.get_mut(&(id, publication)) else { return Passed::Unit(unit, tracks) };
        let (stream, silence) = (one.stream, one.silence);
        match &mut one.state {
            State::Active(splice) => {
                let track = unit.track;
                let is_video = tracks.get(track).is_some_and(|track| track.kind() == TrackKind::Video);
                match splice.map(Held { unit, tracks, came: now }) {
                    Some((unit, tracks)) => Passed::Unit(unit, tracks),
                    None => Passed::LeftOut(
                        Some(track).filter(|track| is_video && splice.awaits_key_frame(*track)),
                    ),
                }
            }
            State::Waiting { standby, sends } => {
                let is_media = !unit.track.is_data();
                let key_frame = standby.hold(now, unit, tracks);
                if is_media && !std::mem::replace(sends, true) {
                    let session = turn.session_ref(id, publication);
                    turn.tell(ToControl::StandbySends { session, stream, sends: true });
                    self.arm(turn, stream, now + silence);
                }
                if let Some(track) = key_frame {
                    let news = PublicationNews::KeyFrameNeeded(track);
                    conns.reply(turn, id, Reply::Publication(publication, news));
                    conns.touch(turn, id);
                }
                Passed::Retained
            }
        }
    }

    /// Tells control of those standbys of a stream that have fallen silent. Returns the time of the next check.
    fn tell_silent(&mut self, turn: &mut Turn, stream: StreamId) -> Option<Instant> {
        let (now, mut next, mut silent) = (turn.now.mono, None, Vec::new());
        for key in self.by_stream.get(&stream).into_iter().flatten().copied() {
            let Some(one) = self.of.get_mut(&key) else { continue };
            let State::Waiting { standby, sends: sends @ true } = &mut one.state else { continue };
            let due = standby.silent_at(one.silence).unwrap_or(now);
            if due > now {
                let check = due.min(now + one.silence);
                next = Some(next.map_or(check, |next: Instant| next.min(check)));
            } else {
                *sends = false;
                silent.push(key);
            }
        }
        for (id, publication) in silent {
            let session = turn.session_ref(id, publication);
            turn.tell(ToControl::StandbySends { session, stream, sends: false });
        }
        next
    }

    /// Ends the standbys of a stream that has ended.
    pub(super) fn end_all(&mut self, turn: &mut Turn, conns: &mut Conns, stream: StreamId, end: StreamEnd) {
        for (id, publication) in self.end(stream) {
            conns.forget_publication(id, stream);
            conns.blame(id, end.reason());
            conns.reply(turn, id, Reply::Publication(publication, PublicationNews::Ended(end)));
            conns.touch(turn, id);
        }
    }
}

/// Begins to watch over the silence of a stream's publisher, if the publisher is on this worker and a standby sends.
pub(super) fn watch_silence(live: &mut Live, turn: &mut Turn, stream: StreamId) {
    if let Some((due, least)) = silent_at(live, stream) {
        let now = turn.now.mono;
        live.standbys.arm(turn, stream, due.max(now).min(now + least));
    }
}

/// Returns the time at which the publisher of a stream must yield if it sends nothing until then, and the least silence
/// after which it must. The time may become earlier as pauses are forgotten.
fn silent_at(live: &Live, stream: StreamId) -> Option<(Instant, Duration)> {
    live.details.get(stream).filter(|details| details.has_standby)?;
    let source = live.sources.get(&stream)?;
    source.publisher?;
    // A copy may be silent: its publisher is at another node.
    live.streams.get(&stream).filter(|stream| !stream.ingest.is_copy())?;
    let least = live.streams.get(&stream)?.settings.loss.standby_after;
    Some((source.last_unit?.checked_add(source.pauses.silence(least))?, least))
}

/// Handles the check for silence of a stream: a silent publisher yields, and silent standbys are reported to control.
pub(super) fn silence_timeout(
    live: &mut Live,
    turn: &mut Turn,
    conns: &Conns,
    stream: StreamId,
    at: Instant,
) {
    if live.standbys.armed.get(&stream) != Some(&at) {
        return;
    }
    live.standbys.armed.remove(&stream);
    if let Some(next) = live.standbys.tell_silent(turn, stream) {
        live.standbys.arm(turn, stream, next);
    }
    match silent_at(live, stream) {
        Some((due, least)) if due > turn.now.mono => {
            live.standbys.arm(turn, stream, due.min(turn.now.mono + least));
        }
        Some(_) => {
            if let Some(publisher) = live.publisher(stream) {
                yield_stream(live, turn, conns, publisher, stream);
            }
        }
        None => {}
    }
}

/// Makes the publisher of a stream wait as a standby, and reports the end of its part of the stream to control.
pub(super) fn yield_stream(
    live: &mut Live,
    turn: &mut Turn,
    conns: &Conns,
    session: SessionRef,
    id: StreamId,
) {
    let feeds = live.publisher(id) == Some(session)
        && conns.get(session.conn).is_some_and(|conn| conn.publication_of(id) == Some(session.handle));
    let Some(stream) = live.streams.get(&id).filter(|_| feeds) else { return };
    let (tracks, silence) = (Arc::clone(stream.tracks()), stream.settings.loss.standby_after);
    let Some(source) = live.sources.remove(&id) else { return };
    let now = turn.now.mono;
    let silent = source.last_unit.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
    live.standbys.begin(now, (session.conn, session.handle), (id, silence), source.pauses);
    let seam = Seam { position: source.position, tracks, silent };
    turn.tell(ToControl::Yielded { session, stream: id, seam });
}

/// Makes a standby the publisher of its stream, beginning with its retained units.
pub(super) fn take_over(
    live: &mut Live,
    turn: &mut Turn,
    conns: &mut Conns,
    memory: &mut Memory,
    session: SessionRef,
    (stream, seam): (StreamId, Seam),
) {
    let (key, now) = ((session.conn, session.handle), turn.now.mono);
    let second = live.standbys.of.get_mut(&key).filter(|one| one.stream == stream);
    let Some(Second { state: state @ State::Waiting { .. }, .. }) = second else {
        // The standby has left, and control had not heard of it yet when it gave this order.
        let Seam { position, tracks, .. } = seam;
        let departure = Departure::Lost;
        return turn.tell(ToControl::PublisherGone { session, stream, departure, position, tracks });
    };
    let splice = State::Active(Box::new(Splice::new(now, &seam)));
    let State::Waiting { mut standby, .. } = std::mem::replace(state, splice) else { return };
    let source = SourceCount {
        position: seam.position,
        last_unit: Some(now),
        pauses: standby.pauses(),
        publisher: Some(session),
        ..SourceCount::default()
    };
    live.sources.insert(stream, source);
    for held in standby.take() {
        let second = live.standbys.of.get_mut(&key);
        let Some(Second { state: State::Active(splice), .. }) = second else { return };
        if let Some(mapped) = splice.map(held) {
            ingest_mapped(live, turn, conns, memory, (session.conn, stream), mapped);
        }
    }
    live.tell_wanted(turn, conns, stream);
    watch_silence(live, turn, stream);
}
