//! Standbys: a stream may have a second publisher, which waits. If the first is lost or falls silent, the second takes
//! the stream over ([`crate::hub::Standby`], `worker::standbys`).
//!
//! A stream has a standby if its record allows it (`standbyEnabled`), or if one of the two publishers says `backup=1`.
//! Whichever publisher comes second waits, so a publisher that returns does not interrupt its successor.

use std::sync::Arc;
use std::time::Instant;

use media::{Position, Tracks};

use super::access::Access;
use super::broadcast::Broadcast;
use super::context::Context;
use super::live::{Granted, Live, Registry, Source, State};
use super::records::Records;
use super::registry::{STALE_MS, agent, publish_type, remote_ip};
use crate::auth::access::Params;
use crate::mail::{Grant, PublishRequest, Report, Seam, StandbyFigures, ToWorker};
use crate::types::{Now, SessionRef, StreamId, StreamKey};

/// The parameter by which a publisher asks to be, or to have, a standby.
const BACKUP: &str = "backup";

/// A publisher that waits to take over a stream.
#[derive(Debug, Clone)]
pub(super) struct Standby {
    pub(super) session: SessionRef,
    pub(super) source: Source,
    via: Vec<String>,
    params: Params,
    pub(super) agent: String,
    pub(super) address: Option<String>,
    /// Time since which the standby sends no media; `None` while it sends.
    silent_since: Option<Instant>,
    /// The last report about the standby.
    pub(super) figures: Option<StandbyFigures>,
}

impl Standby {
    fn new(now: Now, request: &PublishRequest) -> Self {
        Self {
            session: request.session,
            source: Source::of(request),
            via: request.via.clone(),
            params: request.params.clone(),
            agent: agent(&request.user_agent),
            address: remote_ip(request),
            silent_since: Some(now.mono),
            figures: None,
        }
    }

    /// Makes a standby of a stream's present publisher.
    fn of_publisher(now: Now, session: SessionRef, live: &Live, record: Option<&Broadcast>) -> Self {
        Self {
            session,
            source: *live.source(),
            via: live.via.clone(),
            params: live.params.clone(),
            agent: record.map(|record| record.user_agent.clone()).unwrap_or_default(),
            address: record.and_then(|record| record.remote_ip.clone()),
            silent_since: Some(now.mono),
            figures: None,
        }
    }

    /// True if the standby sends media.
    pub(super) const fn sends(&self) -> bool {
        self.silent_since.is_none()
    }

    /// True if the standby has been silent for so long that another one may replace it.
    fn is_stale(&self, now: Now) -> bool {
        let silent = |at| now.mono.saturating_duration_since(at).as_millis() >= u128::from(STALE_MS);
        self.silent_since.is_some_and(silent)
    }
}

/// The place of a publisher whose stream has a publisher already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The publisher replaces the present one.
    Publisher,
    /// The publisher waits, in the place of a stale standby if there is one.
    Standby,
    /// There is no place: the id is in use.
    None,
}

/// Decides on the place of a second publisher. `is_paired`: the stream may have a standby. `is_silent`: the present
/// publisher has been silent for long. `standby`: whether the present standby is stale, if there is one.
const fn place(is_paired: bool, is_silent: bool, standby: Option<bool>) -> Place {
    match (is_paired, standby) {
        (true, None | Some(true)) => Place::Standby,
        (true, Some(false)) => Place::None,
        (false, Some(true)) if is_silent => Place::Standby,
        (false, Some(_)) => Place::None,
        (false, None) if is_silent => Place::Publisher,
        (false, None) => Place::None,
    }
}

/// True if a publisher says that it is a backup, or that it has one.
fn is_backup(params: &Params) -> bool {
    params.iter().any(|(name, value)| name == BACKUP && matches!(value.as_str(), "1" | "true"))
}

/// Returns the place of a publisher with these parameters beside the present publisher of a stream.
fn place_beside(records: &Records, now: Now, live: &Live, params: &Params) -> Place {
    let standby = live.standby();
    let is_allowed = records.get(&live.key).is_some_and(|record| record.standby_enabled);
    let is_present = is_backup(&live.params) || standby.is_some_and(|standby| is_backup(&standby.params));
    let is_paired = is_allowed || is_backup(params) || is_present;
    let is_published = !live.source().ingest.is_fetched() && !live.is_view();
    let is_stale = standby.map(|standby| standby.is_stale(now));
    place(is_paired && is_published, live.silent_ms >= STALE_MS, is_stale)
}

/// Returns the later of two positions of a stream's clock.
fn later(one: Position, other: Position) -> Position {
    Position { dts_ms: one.dts_ms.max(other.dts_ms), started: one.started || other.started }
}

impl Registry {
    /// Returns the place of a publisher whose stream is live with the publisher `session`.
    pub(super) fn place_of(
        &self,
        records: &Records,
        now: Now,
        live: &Live,
        session: SessionRef,
        request: &PublishRequest,
    ) -> Place {
        let standby = live.standby();
        if request.session == session || standby.is_some_and(|standby| standby.session == request.session) {
            return Place::None;
        }
        place_beside(records, now, live, &request.params)
    }

    /// Returns the session whose place a publisher with these parameters takes: that of the present publisher or of a
    /// stale standby. `None` if the publisher would wait beside the present one.
    pub(super) fn replaced_by(
        &self,
        records: &Records,
        now: Now,
        key: &StreamKey,
        params: &Params,
    ) -> Option<SessionRef> {
        let live = self.get(&self.find(key)?)?;
        let State::Live(publisher) = live.source().state else { return None };
        match place_beside(records, now, live, params) {
            Place::Standby => live.standby().map(|standby| standby.session),
            Place::Publisher | Place::None => Some(publisher),
        }
    }

    /// True if a publisher would wait as a standby.
    pub(super) fn would_stand_by(&self, records: &Records, now: Now, request: &PublishRequest) -> bool {
        let Some(live) = self.find(&request.key).and_then(|stream| self.get(&stream)) else { return false };
        match live.source().state {
            State::Live(session) => self.place_of(records, now, live, session, request) == Place::Standby,
            State::Grace(_) | State::Awaited => false,
        }
    }

    /// Returns the stale standby whose place a publisher would take.
    pub(super) fn replaced_standby(
        &self,
        records: &Records,
        now: Now,
        request: &PublishRequest,
    ) -> Option<&Standby> {
        let standby = self.get(&self.find(&request.key)?)?.standby()?;
        self.would_stand_by(records, now, request).then_some(standby)
    }

    /// Admits a publisher as the standby of a stream.
    pub(super) fn stand_by(
        &mut self,
        cx: &mut Context,
        access: &mut Access,
        now: Now,
        stream: StreamId,
        request: &PublishRequest,
    ) -> Option<Grant> {
        let (key, protocol) = (&request.key, request.ingest.name);
        tracing::info!(%key, protocol, peer = %request.peer, "standby connected");
        self.end_standby(cx, stream);
        self.set_standby(stream, Some(Standby::new(now, request)));
        access.publisher_came(cx, now, request);
        let live = self.get(&stream)?;
        let (zero_ms, settings) = (live.clock.zero_ms, live.settings.clone());
        Some(Grant { stream, position: Position::default(), epoch: 0, zero_ms, settings, standby: true })
    }

    /// Closes the standby of a stream, if there is one.
    pub(super) fn end_standby(&mut self, cx: &mut Context, stream: StreamId) {
        let Some(Standby { session, .. }) = self.set_standby(stream, None) else { return };
        self.left.push_back(session);
        cx.post(session.worker, ToWorker::Replaced { conn: session.conn, stream });
    }

    /// Closes a standby whose subscriber may no longer publish.
    pub(super) fn block_standby(
        &mut self,
        cx: &mut Context,
        records: &Records,
        key: &StreamKey,
        session: SessionRef,
    ) {
        let Some(stream) = self.find(key) else { return };
        if self.standby_gone(cx, records, stream, session) {
            cx.post(session.worker, ToWorker::Replaced { conn: session.conn, stream });
        }
    }

    /// Handles the departure of a standby. Returns false if the session is not the stream's standby.
    pub(super) fn standby_gone(
        &mut self,
        cx: &mut Context,
        records: &Records,
        stream: StreamId,
        session: SessionRef,
    ) -> bool {
        let is_standby = |live: &&Live| live.standby().is_some_and(|standby| standby.session == session);
        let Some(key) = self.get(&stream).filter(is_standby).map(|live| live.key.clone()) else {
            return false;
        };
        tracing::info!(%key, "standby disconnected");
        self.set_standby(stream, None);
        self.left.push_back(session);
        self.review_viewers(cx, records, &key);
        true
    }

    /// Handles a standby's report that it has begun or ceased to send media.
    pub(super) fn standby_sends(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        (session, stream): (SessionRef, StreamId),
        sends: bool,
    ) {
        let Some(live) = self.get_mut(&stream) else { return };
        let key = live.key.clone();
        let Some(standby) = live.standby_mut().filter(|standby| standby.session == session) else { return };
        standby.silent_since = (!sends).then_some(now.mono);
        if !sends {
            tracing::warn!(%key, "standby is silent");
        }
        self.review_viewers(cx, records, &key);
    }

    /// Handles the report of a publisher that has yielded its stream: its standby takes over, and the publisher waits.
    pub(super) fn yielded(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        (session, stream): (SessionRef, StreamId),
        seam: Seam,
    ) {
        let is_active = |live: &&mut Live| live.source().state == State::Live(session);
        let Some(live) = self.get_mut(&stream).filter(is_active) else { return };
        live.clock.position = later(live.clock.position, seam.position);
        let Some(live) = self.get(&stream) else { return };
        let former = Standby::of_publisher(now, session, live, records.get(&live.key));
        if !self.take_over(cx, records, now, stream, seam.clone()) {
            // The standby has left meanwhile, so the publisher goes on.
            let seam = Box::new(seam);
            return cx.post(session.worker, ToWorker::TakeOver { session, stream, seam });
        }
        self.set_standby(stream, Some(former));
    }

    /// Makes the standby of a stream its publisher. Returns false if there is none.
    pub(super) fn take_over(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        stream: StreamId,
        seam: Seam,
    ) -> bool {
        let Some(standby) = self.set_standby(stream, None) else { return false };
        let Some(before) = self.change(stream, |source| *source = standby.source) else { return false };
        let Some(live) = self.get_mut(&stream) else { return false };
        let (key, session) = (live.key.clone(), standby.session);
        let protocol = standby.source.ingest.name;
        tracing::info!(%key, protocol, silent_ms = seam.silent.as_millis(), "standby took over the stream");
        live.clock.position = later(live.clock.position, seam.position);
        let is_known = seam.tracks.epoch >= live.clock.epoch;
        live.clock.epoch = live.clock.epoch.max(seam.tracks.epoch);
        let tracks = if is_known { seam.tracks } else { Arc::new(Tracks::new(live.clock.epoch, [])) };
        let seam = Box::new(Seam { position: live.clock.position, tracks, silent: seam.silent });
        live.silent_ms = 0;
        live.granted = Granted { at: now.mono, from: live.clock.position };
        let received = live.received.figures.take().map_or(0, |figures| figures.received_bytes);
        live.received.bytes_before += received;
        (live.via, live.params) = (standby.via, standby.params);
        if let Some(record) = records.get_mut(&key) {
            record.publish_type = Some(publish_type(standby.source.ingest));
            (record.user_agent, record.remote_ip) = (standby.agent, standby.address);
            record.touch(now);
        }
        let details = self.details_of(cx, records, &key);
        let Some(live) = self.get_mut(&stream) else { return false };
        let is_told = std::mem::replace(&mut live.told.details, details.clone()) == details;
        let source = *live.source();
        if !is_told || (before.worker, before.ingest) != (source.worker, source.ingest) {
            self.post_stream_up(cx, stream);
        }
        cx.post(session.worker, ToWorker::TakeOver { session, stream, seam });
        true
    }

    /// Takes over a worker's figures of its standbys.
    pub(super) fn note_standbys(&mut self, report: &Report) {
        for figures in &report.standbys {
            let standby = self.get_mut(&figures.stream).and_then(Live::standby_mut);
            if let Some(standby) = standby.filter(|standby| standby.session == figures.session) {
                standby.figures = Some(*figures);
            }
        }
    }

    /// Orders the publisher of a stream to leave it to its standby. Returns false if there is no standby.
    pub(super) fn switch_to_standby(&self, cx: &mut Context, key: &StreamKey) -> bool {
        let Some(stream) = self.find(key) else { return false };
        let Some(live) = self.get(&stream).filter(|live| live.standby().is_some()) else { return false };
        let State::Live(session) = live.source().state else { return false };
        cx.post(session.worker, ToWorker::Yield { session, stream });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_second_publisher() {
        // (may have a standby, the publisher is silent, the standby is stale)
        for (is_paired, is_silent, standby, expected) in [
            (false, false, None, Place::None),
            (false, true, None, Place::Publisher),
            (true, false, None, Place::Standby),
            (true, true, None, Place::Standby),
            (true, false, Some(false), Place::None),
            (true, true, Some(false), Place::None),
            (true, false, Some(true), Place::Standby),
            // The record no longer allows a standby, but there is one. It takes over unless it is silent itself.
            (false, true, Some(false), Place::None),
            (false, true, Some(true), Place::Standby),
            (false, false, Some(true), Place::None),
        ] {
            assert_eq!(place(is_paired, is_silent, standby), expected, "{is_paired} {is_silent} {standby:?}");
        }
    }

    #[test]
    fn only_a_true_value_asks_for_a_standby() {
        let params =
            |value: &str| vec![("token".to_owned(), "1".to_owned()), (BACKUP.to_owned(), value.to_owned())];
        assert!(is_backup(&params("1")) && is_backup(&params("true")));
        assert!(!is_backup(&params("0")) && !is_backup(&params("")) && !is_backup(&Params::new()));
    }
}
