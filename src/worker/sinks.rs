//! The sinks on this worker. A sink begins when a stream is published here, or on request. It stays on this worker
//! when the stream's publisher moves to another worker.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::conn::Purpose;
use super::conns::Conns;
use super::polled::Polled;
use super::streams::Live;
use super::turn::Turn;
use super::{Output, Worker};
use crate::mail::{RecordingOrder, SinkNews, ToControl, ToWorker};
use crate::protocol::settings_of;
use crate::protocol::sinks::{self, SinkKind, SinkOrder};
use crate::types::{ConnId, StreamId};

/// Reason for closing the session of a sink whose application has got other settings.
const OUTDATED: &str = "the settings of the application have changed";

impl Polled {
    /// Creates a sink of a stream, unless it exists.
    pub(super) fn start_sink(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        live: &Live,
        name: &str,
        stream: StreamId,
    ) {
        let Some(kind) = sinks::find(name) else { return };
        if self.making.contains_key(&(stream, kind.name)) {
            return;
        }
        let purpose = Purpose::Sink { stream, kind: kind.name };
        match live.insert_sink(turn, conns, kind, stream, None, purpose) {
            Some(conn) => self.note_sink(stream, kind.name, conn),
            None => self.sink_over(turn, stream, kind.name),
        }
    }

    /// Begins sinks of these kinds for a stream that is published here, and reports each of them to control.
    pub(super) fn begin_sinks(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        live: &Live,
        stream: StreamId,
        kinds: impl IntoIterator<Item = &'static str>,
    ) {
        for kind in kinds {
            turn.tell(ToControl::Sink { stream, kind, news: SinkNews::Begun(turn.id) });
            self.start_sink(turn, conns, live, kind, stream);
        }
    }

    /// Forgets a sink that has ended. The next request for its output begins a new sink.
    pub(super) fn sink_over(&mut self, turn: &mut Turn, stream: StreamId, kind: &'static str) {
        self.making.remove(&(stream, kind));
        turn.tell(ToControl::Sink { stream, kind, news: SinkNews::Over });
    }

    /// Notes the session of a sink.
    pub(super) fn note_sink(&mut self, stream: StreamId, kind: &'static str, conn: ConnId) {
        self.making.insert((stream, kind), conn);
    }

    /// Withdraws the blobs that sinks of these kinds have published of ended streams.
    fn withdraw_ended(&self, turn: &mut Turn, app: &str, kinds: &[&'static str]) {
        let ended = self.ended_keys.iter().filter(|(_, key)| *key.app == *app);
        ended.for_each(|(stream, _)| turn.blobs.withdraw(*stream, kinds));
    }

    /// Returns the sinks of these kinds that a stream has on this worker, with their sessions.
    fn sinks_of(&self, stream: StreamId, kinds: &[&'static str]) -> Vec<(&'static str, ConnId)> {
        let running = kinds.iter().filter_map(|kind| Some((*kind, *self.making.get(&(stream, kind))?)));
        running.collect()
    }
}

impl Worker {
    /// Called after a change of an application's settings: ends the outdated sinks of the application on this
    /// worker, withdraws their blobs on all workers, and restarts those sinks that the application still has.
    pub(super) fn renew_sinks(&mut self, app: &str, kinds: &Arc<[&'static str]>) {
        if kinds.is_empty() {
            return;
        }
        self.polled.withdraw_ended(&mut self.turn, app, kinds);
        let mut ended = 0;
        for stream in streams_of_app(&self.live, app) {
            let running = self.polled.sinks_of(stream, kinds);
            ended += running.len();
            self.withdraw_sinks(stream, kinds, &running);
            for (kind, _) in running {
                let is_wanted = self.turn.apps.get(app).is_some_and(|app| sinks::is_enabled(app, kind));
                if is_wanted {
                    self.polled.start_sink(&mut self.turn, &mut self.conns, &self.live, kind, stream);
                } else {
                    self.polled.sink_over(&mut self.turn, stream, kind);
                }
            }
            for kind in begun_with(&self.turn, &self.live, stream) {
                // The sink may run on another worker already, and only control knows: let control start it.
                self.turn.order_sink(kind, stream);
            }
        }
        if ended > 0 {
            tracing::info!(app, sinks = ended, "sinks restarted: the encryption has changed");
        }
    }

    fn withdraw_sinks(
        &mut self,
        stream: StreamId,
        kinds: &Arc<[&'static str]>,
        running: &[(&'static str, ConnId)],
    ) {
        for (kind, conn) in running {
            self.end_sink(stream, kind, *conn);
        }
        if !running.is_empty() {
            self.turn.blobs.withdraw(stream, kinds);
            // Mail is delivered in order: blobs of the ended sinks arrive at other workers before this message,
            // blobs of new sinks after it.
            let withdrawn = ToWorker::Withdrawn { stream, makers: Arc::clone(kinds) };
            self.turn.agenda.outputs.push_back(Output::Others(withdrawn));
        }
    }

    /// Ends the session of a sink immediately, without writing its pending files. Control is not notified here. It
    /// lists the sink as running on this worker, which remains true if a new sink follows; if none does, the caller
    /// notifies control.
    fn end_sink(&mut self, stream: StreamId, kind: &'static str, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.purpose = Purpose::Ended;
        }
        self.polled.making.remove(&(stream, kind));
        self.remove(id, OUTDATED, true);
    }
}

impl Live {
    /// Creates the session of a sink with the current settings of the sink's application.
    pub(super) fn insert_sink(
        &self,
        turn: &mut Turn,
        conns: &mut Conns,
        kind: &SinkKind,
        stream: StreamId,
        recording: Option<RecordingOrder>,
        purpose: Purpose,
    ) -> Option<ConnId> {
        let live = self.streams.get(&stream)?;
        let settings = Arc::clone(settings_of(&turn.apps, &live.key, &live.settings));
        let details = self.details.get(stream).cloned().unwrap_or_default();
        let order =
            SinkOrder { stream, kind: kind.name, key: live.key.clone(), settings, details, recording };
        let seed = turn.session_seed();
        let session = (kind.begin)(turn.now, &order, seed);
        conns.insert_inner(turn, session, purpose)
    }
}

/// Returns the streams of an application.
fn streams_of_app(live: &Live, app: &str) -> Vec<StreamId> {
    let streams = live.streams.iter().filter(|(_, live)| *live.key.app == *app);
    streams.map(|(stream, _)| *stream).collect()
}

/// Returns the kinds of sinks that begin without a request as soon as the stream is live; none unless the stream is
/// published here.
pub(super) fn begun_with(turn: &Turn, live: &Live, stream: StreamId) -> BTreeSet<&'static str> {
    let source = live.streams.get(&stream).filter(|stream| stream.source == turn.id);
    let Some(source) = source else { return BTreeSet::new() };
    let settings = settings_of(&turn.apps, &source.key, &source.settings);
    let details = live.details.get(stream).cloned().unwrap_or_default();
    let own = sinks::begun_with_stream(settings, &details).map(|kind| kind.name);
    let mut kinds: BTreeSet<_> = own.collect();
    if let Some(ladder) = live.ladder_key(stream) {
        let rungs = turn.blobs.rungs(&ladder.app, &ladder.id);
        kinds.extend(rungs.iter().map(|(_, rung)| rung.sink));
    }
    kinds
}
