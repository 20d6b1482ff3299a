//! The client of a pull.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ::hls::{Config, Event};
use bytes::Bytes;
use wire::SendQueue;

use super::fetch::{Fetch, Fetched, Go};
use super::units::Units;
use crate::mail::Grant;
use crate::protocol::pull::{Client, ClientEvent, ClientStream, Patience, Start, UnitClient};
use crate::protocol::usable::Supply;

/// Segments arrive faster than they are played. Their units are emitted this much ahead of real time.
const RESERVE: Duration = Duration::from_millis(100);
/// Number of waiting units above which nothing further is requested: about a second. The next response then arrives
/// in time, and no server waits long for its response to be read.
const QUEUED_MAX: usize = 64;

/// A pull of a stream from a playlist.
#[derive(Debug)]
pub(super) struct HlsPull {
    url: String,
    /// Maximum time from a request to the head of its response.
    patience: Duration,
    /// The state machine of the HLS client; `None` until the first connection is open.
    machine: Option<Box<::hls::Client>>,
    fetch: Fetch,
    /// True if there is a connection, usable or not.
    has_socket: bool,
    /// Time of the last input.
    now: Option<Instant>,
    head_until: Option<Instant>,
    out: SendQueue,
    /// Events of the HLS client that wait for the permission to publish.
    waiting: VecDeque<Event>,
    begun: bool,
    units: Option<Box<Units>>,
    events: VecDeque<ClientEvent>,
}

impl HlsPull {
    pub(super) fn new(url: String, patience: Patience) -> Self {
        Self {
            fetch: Fetch::new(&url),
            url,
            patience: patience.handshake,
            machine: None,
            has_socket: false,
            now: None,
            head_until: None,
            out: SendQueue::new(),
            waiting: VecDeque::new(),
            begun: false,
            units: None,
            events: VecDeque::new(),
        }
    }

    fn end(&mut self, reason: impl Into<String>) {
        self.events.push_back(ClientEvent::Ended(reason.into()));
    }

    /// Passes received data to the HLS client, and makes its next request.
    fn advance(&mut self, now: Instant, fetched: Vec<Fetched>) {
        for one in fetched {
            let Some(machine) = &mut self.machine else { return };
            match one {
                Fetched::Body(bytes) => {
                    if !machine.handle_body(now, bytes) {
                        self.fetch.abandon();
                        break;
                    }
                }
                Fetched::End => machine.handle_response_end(now),
                Fetched::Moved(location) => machine.handle_redirect(now, &location),
                Fetched::Failed(why) => machine.handle_failure(now, &why),
            }
        }
        self.take_events();
        self.ask(now);
    }

    fn ask(&mut self, now: Instant) {
        self.now = Some(now);
        if self.events.len() >= QUEUED_MAX {
            return;
        }
        while let Some(request) = self.machine.as_mut().and_then(|machine| machine.poll_request()) {
            self.head_until = now.checked_add(self.patience);
            match self.fetch.ask(&request) {
                Some(Go::Here(text)) => return self.out.push(Bytes::from(text)),
                Some(Go::To(server)) => {
                    self.has_socket = false;
                    return self.events.push_back(ClientEvent::NextServer(server));
                }
                None => {
                    if let Some(machine) = &mut self.machine {
                        machine.handle_failure(now, "a URL that cannot be requested");
                    }
                }
            }
        }
        if !self.fetch.awaits_head() && !self.fetch.is_moving() {
            self.head_until = None;
        }
        // An unusable connection is closed immediately, even if no request is open.
        if !self.fetch.is_connected() && std::mem::take(&mut self.has_socket) {
            self.events.push_back(ClientEvent::Disconnect);
        }
    }

    /// Takes the events of the HLS client. Before the permission to publish, no units can be made of them.
    fn take_events(&mut self) {
        while let Some(event) = self.machine.as_mut().and_then(|machine| machine.poll_event()) {
            self.waiting.push_back(event);
        }
        if !self.begun && self.waiting.iter().any(|event| matches!(event, Event::Begin { .. })) {
            self.begun = true;
            self.events.push_back(ClientEvent::Begun);
        }
        if !self.begun
            && let Some(Event::Ended(reason)) = self.waiting.back()
        {
            let reason = reason.clone();
            return self.end(reason);
        }
        while self.units.is_some()
            && let Some(event) = self.waiting.pop_front()
        {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        let Some(units) = &mut self.units else { return };
        let taken = match event {
            Event::Begin { rendition, kind, discontinuity } => units.begin(rendition, kind, discontinuity),
            Event::Init { rendition, bytes } => units.index(rendition, &bytes),
            Event::Media { rendition, bytes } => units.media(rendition, &bytes),
            Event::End { .. } => Ok(()),
            Event::Lost { rendition } => units.lost(rendition),
            Event::Ended(reason) => {
                units.finish();
                Err(reason)
            }
        };
        while let Some((unit, tracks)) = units.poll_unit() {
            self.events.push_back(ClientEvent::Unit { unit, tracks });
        }
        while let Some(news) = units.take_clock_news() {
            self.events.push_back(ClientEvent::ClockNews(news));
        }
        let dropped = units.take_dropped();
        if dropped > 0 {
            self.events.push_back(ClientEvent::Dropped(dropped));
        }
        if let Err(reason) = taken {
            self.end(reason);
        }
    }
}

impl ClientStream for HlsPull {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let mut fetched = Vec::new();
        self.fetch.handle_bytes(bytes, &mut fetched);
        self.advance(now, fetched);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.append(&mut self.out);
    }
}

impl UnitClient for HlsPull {
    fn handle_grant(&mut self, _now: Instant, grant: &Grant) {
        let has_audio_beside = self.machine.as_ref().is_some_and(|machine| machine.has_audio_beside());
        self.units = Some(Box::new(Units::new(grant, has_audio_beside)));
        self.take_events();
    }

    fn supply(&self) -> Supply {
        self.units.as_ref().map_or(Supply::Nothing, |units| units.supply())
    }
}

impl Client for HlsPull {
    fn reserve(&self) -> Option<Duration> {
        Some(RESERVE)
    }

    fn begin(&mut self, start: &Start<'_>) {
        self.has_socket = true;
        if self.machine.is_none() {
            match ::hls::Client::new(&self.url, Config::default(), start.now) {
                Ok(machine) => self.machine = Some(Box::new(machine)),
                Err(error) => return self.end(error.to_string()),
            }
        }
        match self.fetch.connected() {
            Some(text) => {
                self.head_until = start.now.checked_add(self.patience);
                self.out.push(Bytes::from(text));
            }
            None => self.ask(start.now),
        }
    }

    fn handle_end(&mut self, now: Instant) {
        self.out = SendQueue::new();
        let mut fetched = Vec::new();
        self.fetch.handle_end(&mut fetched);
        self.advance(now, fetched);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut fetched = Vec::new();
        if self.head_until.is_some_and(|until| until <= now) {
            self.head_until = None;
            self.fetch.abandon();
            fetched.push(Fetched::Failed("no answer to the request".to_owned()));
        }
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(now);
        }
        self.advance(now, fetched);
    }

    fn close(&mut self, _now: Instant) {
        self.machine = None;
        self.end("closed");
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        if self.events.len() < QUEUED_MAX
            && let Some(now) = self.now
        {
            self.ask(now);
        }
        let event = self.events.pop_front();
        if event.is_none() {
            self.events.shrink_to(8);
        }
        event
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.machine.as_ref().and_then(|machine| machine.poll_timeout());
        [machine, self.head_until].into_iter().flatten().min()
    }

    fn name(&self) -> &'static str {
        "hls-pull"
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn units(&mut self) -> Option<&mut dyn UnitClient> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
