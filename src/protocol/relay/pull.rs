//! The client of a node that wants a copy of a stream.
//!
//! Units keep their tracks and times. A copy keeps the clock of the stream with which it began. If the stream
//! restarts at another node, it has a new clock, and its units are moved by the difference of the two clocks'
//! wall-clock zeros. All copies move them by the same amount, so that segments keep equal numbers. Units that the
//! copy already has are skipped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ::relay::{Client as Machine, ClientEvent as Heard, Ended, Playing, Refused, Viewers};
use media::{AccessUnit, Timescale, Track, TrackId, TrackKind, TrackSet, Tracks, scte35};
use wire::SendQueue;

use super::settings;
use crate::mail::Grant;
use crate::protocol::pull::{Client, ClientEvent, ClientStream, Demands, Start, UnitClient};
use crate::protocol::usable::Supply;
use crate::types::StreamKey;

/// The client of one stream.
#[derive(Debug)]
pub(super) struct RelayPull {
    key: StreamKey,
    /// The state machine of the relay's client; `None` until the connection is open.
    machine: Option<Machine>,
    playing: Option<Playing>,
    /// True if the first unit was reported and waits for the grant.
    has_begun: bool,
    waiting: VecDeque<(AccessUnit, Arc<Tracks>)>,
    clock: Option<Clock>,
    /// The event that ends the client, reported after all earlier ones.
    ended: Option<ClientEvent>,
}

impl RelayPull {
    pub(super) const fn new(key: StreamKey) -> Self {
        Self {
            key,
            machine: None,
            playing: None,
            has_begun: false,
            waiting: VecDeque::new(),
            clock: None,
            ended: None,
        }
    }

    fn end(&mut self, event: ClientEvent) {
        self.ended.get_or_insert(event);
    }

    fn next(&mut self) -> Option<ClientEvent> {
        if let (Some(clock), Some((unit, tracks))) = (&mut self.clock, self.waiting.pop_front()) {
            return Some(clock.convert(unit, &tracks));
        }
        loop {
            let event = match self.machine.as_mut()?.poll_event()? {
                Heard::Playing(playing) => {
                    self.playing = Some(playing);
                    ClientEvent::Accepted
                }
                Heard::Unit { unit, tracks } => match &mut self.clock {
                    Some(clock) => clock.convert(unit, &tracks),
                    None => {
                        self.waiting.push_back((unit, tracks));
                        if std::mem::replace(&mut self.has_begun, true) {
                            continue;
                        }
                        ClientEvent::Begun
                    }
                },
                // The origin is alive but sends no media: its publisher may pause for as long as the origin allows.
                Heard::Alive => ClientEvent::Dropped(0),
                // A loop means that the other node would have to fetch the stream from this one, so it does not have
                // the stream either.
                Heard::Refused(Refused::NotFound | Refused::Loop, reason)
                | Heard::Ended(Ended::Over, reason) => ClientEvent::Over(reason),
                Heard::Refused(_, reason) | Heard::Ended(Ended::Left, reason) => ClientEvent::Ended(reason),
                Heard::Closed => ClientEvent::Ended("the connection ended".to_owned()),
            };
            return Some(event);
        }
    }
}

impl Client for RelayPull {
    fn begin(&mut self, start: &Start<'_>) {
        let (cluster, node) = (settings::cluster(start.server), &start.server.node);
        let (app, id) = (&*self.key.app, &*self.key.id);
        let via = [std::slice::from_ref(node), start.via].concat();
        self.machine = Some(Machine::new(start.now, cluster, (app, id), &via));
    }

    fn handle_end(&mut self, _now: Instant) {
        self.end(ClientEvent::Ended("the node closed the connection".to_owned()));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine
            && let Err(error) = machine.handle_timeout(now)
        {
            self.end(ClientEvent::Ended(error.to_string()));
        }
    }

    fn close(&mut self, _now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.leave();
        }
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        self.next().or_else(|| self.ended.take())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.as_ref()?.poll_timeout()
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn units(&mut self) -> Option<&mut dyn UnitClient> {
        Some(self)
    }

    fn demands(&mut self) -> Option<&mut dyn Demands> {
        Some(self)
    }

    fn zero_ms(&self) -> Option<i64> {
        self.playing.as_ref().map(|playing| playing.zero_ms)
    }

    fn name(&self) -> &'static str {
        "relay"
    }
}

impl ClientStream for RelayPull {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some(machine) = &mut self.machine
            && let Err(error) = machine.handle_bytes(now, bytes)
        {
            self.end(ClientEvent::Ended(error.to_string()));
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(machine) = &mut self.machine {
            machine.poll_transmit(out);
        }
    }
}

impl UnitClient for RelayPull {
    fn handle_grant(&mut self, _now: Instant, grant: &Grant) {
        let zero_ms = self.playing.as_ref().map_or(grant.zero_ms, |playing| playing.zero_ms);
        self.clock = Some(Clock::new(grant, zero_ms));
    }

    /// Returns [`Supply::Frames`], because the origin has checked its publisher's stream.
    fn supply(&self) -> Supply {
        Supply::Frames
    }
}

impl Demands for RelayPull {
    fn handle_wanted(&mut self, tracks: TrackSet) {
        // While nobody watches, all tracks continue, so that a new viewer finds the newest pictures here.
        if let Some(machine) = self.machine.as_mut().filter(|_| !tracks.is_empty()) {
            machine.want(Some(tracks));
        }
    }

    fn handle_key_frame_needed(&mut self, track: TrackId) {
        if let Some(machine) = &mut self.machine {
            machine.need_key_frame(track);
        }
    }

    fn handle_audience(&mut self, viewers: &Viewers) {
        if let Some(machine) = &mut self.machine {
            machine.tell_viewers(viewers);
        }
    }
}

/// Converts the origin's times and epochs to those of the copy.
#[derive(Debug)]
struct Clock {
    /// Shift of all times in milliseconds; `None` until the first unit.
    shift_ms: Option<i64>,
    /// Milliseconds from the zero of the origin's clock to that of the copy's clock.
    between_ms: i64,
    /// Time up to which the copy already has units; `None` if it has none.
    had_ms: Option<i64>,
    /// Video tracks that have had a key frame since units were skipped.
    begun: TrackSet,
    epoch: u32,
    /// The tracks as last described by the origin.
    described: Arc<Tracks>,
    /// The tracks as the copy has them.
    tracks: Arc<Tracks>,
}

impl Clock {
    fn new(grant: &Grant, zero_ms: i64) -> Self {
        Self {
            shift_ms: None,
            between_ms: zero_ms.saturating_sub(grant.zero_ms),
            had_ms: grant.position.started.then_some(grant.position.dts_ms),
            begun: TrackSet::EMPTY,
            epoch: grant.epoch,
            described: Arc::default(),
            tracks: Arc::default(),
        }
    }

    fn convert(&mut self, mut unit: AccessUnit, described: &Arc<Tracks>) -> ClientEvent {
        if !Arc::ptr_eq(&self.described, described) {
            self.describe(described);
        }
        let track = described.get(unit.track);
        let timescale = track.map_or(Timescale::MILLISECONDS, |track| track.timescale);
        let shift_ms = self.shift(timescale.to_ms(unit.dts));
        let shift = Timescale::MILLISECONDS.convert(shift_ms, timescale);
        unit.dts = unit.dts.saturating_add(shift);
        unit.pts = unit.pts.saturating_add(shift);
        if unit.track == TrackId::CUES {
            unit.payload = scte35::moved_along(&unit.payload, shift_ms);
        }
        let is_video = track.is_some_and(|track| track.kind() == TrackKind::Video);
        if self.was_had(timescale.to_ms(unit.dts)) || (is_video && !self.may_begin(&unit)) {
            return ClientEvent::Dropped(0);
        }
        unit.config_epoch = self.tracks.get(unit.track).map_or(0, |track| track.epoch);
        ClientEvent::Unit { unit, tracks: Arc::clone(&self.tracks) }
    }

    /// Returns the shift of all units in milliseconds. After a restart of the stream, the shift places no unit
    /// before those that the copy already has.
    fn shift(&mut self, first_ms: i64) -> i64 {
        let (between_ms, had_ms) = (self.between_ms, self.had_ms);
        *self.shift_ms.get_or_insert_with(|| match had_ms {
            Some(had_ms) if between_ms != 0 => {
                between_ms.max(had_ms.saturating_add(1).saturating_sub(first_ms))
            }
            Some(_) | None => between_ms,
        })
    }

    fn was_had(&self, dts_ms: i64) -> bool {
        self.had_ms.is_some_and(|had_ms| dts_ms <= had_ms)
    }

    /// True if a picture can be decoded: it directly follows the units that the copy has, or its track has had a
    /// key frame.
    fn may_begin(&mut self, unit: &AccessUnit) -> bool {
        let follows = self.had_ms.is_some() && self.between_ms == 0;
        if follows || unit.key_frame {
            self.begun = self.begun.with(unit.track);
        }
        self.begun.contains(unit.track)
    }

    /// Applies a new description of the tracks. Unchanged tracks keep their epoch.
    fn describe(&mut self, described: &Arc<Tracks>) {
        self.epoch = self.epoch.saturating_add(1);
        let epoch_of = |track: &Track| {
            let same = self.described.get(track.id).is_some_and(|before| before == track);
            let kept = self.tracks.get(track.id).filter(|_| same);
            kept.map_or(self.epoch, |kept| kept.epoch)
        };
        let list: Vec<Track> =
            described.iter().map(|track| Track { epoch: epoch_of(track), ..track.clone() }).collect();
        let mut tracks = Tracks::new(self.epoch, list);
        tracks.metadata.clone_from(&described.metadata);
        (self.tracks, self.described) = (Arc::new(tracks), Arc::clone(described));
    }
}

#[cfg(test)]
mod tests;
