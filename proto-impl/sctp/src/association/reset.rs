//! Stream reset (RFC 6525), which closes channels (RFC 8831 §6.7).

use std::collections::BTreeSet;
use std::time::Instant;

use wire::Reader;

use super::channels::Side;
use super::timers::later;
use super::{Association, Phase};
use crate::config::RESETS_MAX;
use crate::packet::{chunk, next_parameter, parameter, write_parameter};
use crate::seq;

/// Maximum number of streams in a request.
const STREAMS_PER_REQUEST: usize = 128;
/// Maximum number of parameters in a chunk: a request and a response (RFC 6525 §3.1).
const PARAMETERS_MAX: usize = 2;

/// Result codes of a reset (RFC 6525 §4.4).
mod result {
    pub(super) const NOTHING_TO_DO: u32 = 0;
    pub(super) const PERFORMED: u32 = 1;
    pub(super) const DENIED: u32 = 2;
    pub(super) const BAD_NUMBER: u32 = 5;
    pub(super) const IN_PROGRESS: u32 = 6;
}

/// A reset request that we have sent.
#[derive(Debug)]
struct Request {
    number: u32,
    streams: Vec<u16>,
    value: Vec<u8>,
    /// True if the peer answered that it is still waiting for data.
    in_progress: bool,
}

/// A reset request of the peer that is waiting for data.
#[derive(Debug)]
struct Deferred {
    number: u32,
    last_tsn: u64,
    streams: Vec<u16>,
}

/// State of stream resets in both directions, described in the module.
#[derive(Debug)]
pub(super) struct Resets {
    /// Outgoing streams that are to be reset.
    wanted: BTreeSet<u16>,
    request: Option<Request>,
    next: u32,
    /// Sequence number of the peer's next request.
    expected: u32,
    /// Result of the peer's previous request.
    last: u32,
    deferred: Option<Deferred>,
}

impl Resets {
    pub(super) const fn new(first: u32) -> Self {
        Self {
            wanted: BTreeSet::new(),
            request: None,
            next: first,
            expected: 0,
            last: result::BAD_NUMBER,
            deferred: None,
        }
    }

    /// Sets the sequence number of the peer's first request.
    pub(super) const fn expect(&mut self, first: u32) {
        self.expected = first;
    }

    pub(super) fn want(&mut self, stream: u16) {
        if self.wanted.len() < RESETS_MAX {
            self.wanted.insert(stream);
        }
    }

    /// True if a stream is being reset.
    pub(super) fn has(&self, stream: u16) -> bool {
        self.wanted.contains(&stream)
            || self.request.as_ref().is_some_and(|request| request.streams.contains(&stream))
    }
}

impl Association {
    /// Requests the reset of streams on which no data is in flight.
    pub(super) fn request_resets(&mut self, now: Instant) {
        if self.resets.wanted.is_empty() || self.resets.request.is_some() || self.phase != Phase::Established
        {
            return;
        }
        let Some(session) = &self.session else { return };
        if !session.agreed.extensions.reset {
            return self.close_alone();
        }
        let is_idle = |stream: &u16| self.queues.is_idle(*stream) && session.flight.is_idle(*stream);
        let streams: Vec<u16> =
            self.resets.wanted.iter().copied().filter(is_idle).take(STREAMS_PER_REQUEST).collect();
        if streams.is_empty() {
            return;
        }
        let last = seq::wrap_tsn(session.flight.last_tsn());
        let answered = self.resets.expected.wrapping_sub(1);
        let number = self.resets.next;
        self.resets.next = number.wrapping_add(1);
        let mut value = Vec::new();
        for field in [number, answered, last] {
            value.extend_from_slice(&field.to_be_bytes());
        }
        streams.iter().for_each(|stream| value.extend_from_slice(&stream.to_be_bytes()));
        let mut request = Vec::new();
        write_parameter(&mut request, parameter::OUTGOING_RESET, &value);
        self.resets.wanted.retain(|stream| !streams.contains(stream));
        self.push_control(chunk::RE_CONFIG, 0, &request);
        self.resets.request = Some(Request { number, streams, value: request, in_progress: false });
        self.timers.reset = Some(later(now, self.rto.current()));
    }

    /// Closes channels without involving the peer, which does not support resets.
    fn close_alone(&mut self) {
        for stream in std::mem::take(&mut self.resets.wanted) {
            if let Some(channel) = self.channels.get_mut(stream) {
                (channel.outgoing, channel.incoming) = (Side::Reset, Side::Reset);
                self.queues.clear(stream);
                self.finish_channel(stream);
            }
        }
    }

    /// Repeats a request that was not answered in time.
    pub(super) fn repeat_reset(&mut self, now: Instant) {
        let Some(request) = &self.resets.request else { return };
        let (value, waits) = (request.value.clone(), request.in_progress);
        if !waits && !self.count_error() {
            return;
        }
        self.push_control(chunk::RE_CONFIG, 0, &value);
        self.timers.reset = Some(later(now, self.rto.current()));
    }

    pub(super) fn handle_reset(&mut self, now: Instant, mut value: &[u8]) {
        if !matches!(self.phase, Phase::Established | Phase::ShutdownPending) {
            return;
        }
        for _ in 0..PARAMETERS_MAX {
            let Some(found) = next_parameter(&mut value) else { break };
            let mut reader = Reader::new(found.value);
            let Ok(number) = reader.u32() else { break };
            match found.kind {
                parameter::OUTGOING_RESET => {
                    let (Ok(_), Ok(last)) = (reader.u32(), reader.u32()) else { break };
                    let streams = std::iter::from_fn(|| reader.u16().ok()).take(RESETS_MAX).collect();
                    self.handle_reset_request(now, number, last, streams);
                }
                parameter::RESET_RESPONSE => {
                    let Ok(result) = reader.u32() else { break };
                    self.handle_reset_response(now, number, result);
                }
                parameter::INCOMING_RESET
                | parameter::TSN_RESET
                | parameter::ADD_OUTGOING
                | parameter::ADD_INCOMING => {
                    let result = self.judge_number(number).unwrap_or(result::DENIED);
                    self.answer_reset(number, result);
                }
                _ => break,
            }
        }
    }

    /// Returns the result for a request with an unexpected number. `None` if the number is the expected one,
    /// which then advances.
    fn judge_number(&mut self, number: u32) -> Option<u32> {
        if number == self.resets.expected {
            self.resets.expected = number.wrapping_add(1);
            self.resets.last = result::DENIED;
            return None;
        }
        let is_last = number == self.resets.expected.wrapping_sub(1);
        Some(if is_last { self.resets.last } else { result::BAD_NUMBER })
    }

    fn answer_reset(&mut self, number: u32, result: u32) {
        if result != result::BAD_NUMBER {
            self.resets.last = result;
        }
        let value = [number.to_be_bytes(), result.to_be_bytes()].concat();
        let mut response = Vec::new();
        write_parameter(&mut response, parameter::RESET_RESPONSE, &value);
        self.push_control(chunk::RE_CONFIG, 0, &response);
    }

    /// Handles the peer's request to reset its outgoing streams (RFC 6525 §5.2.2).
    fn handle_reset_request(&mut self, now: Instant, number: u32, last: u32, streams: Vec<u16>) {
        if let Some(known) = self.judge_number(number) {
            return self.answer_reset(number, known);
        }
        let Some(session) = &self.session else { return };
        let last_tsn = seq::unwrap_tsn(session.received.cumulative(), last);
        self.resets.deferred = Some(Deferred { number, last_tsn, streams });
        if !self.perform_reset(now) {
            self.answer_reset(number, result::IN_PROGRESS);
        }
    }

    /// Performs a deferred request once all preceding data has arrived. Returns false if it must still wait.
    pub(super) fn perform_reset(&mut self, now: Instant) -> bool {
        let Some(session) = &mut self.session else { return false };
        let cumulative = session.received.cumulative();
        let due = self.resets.deferred.take_if(|deferred| deferred.last_tsn <= cumulative);
        let Some(Deferred { number, mut streams, .. }) = due else { return false };
        if streams.is_empty() {
            // An empty list means all streams.
            streams = session.order.streams();
            streams.extend(self.channels.streams());
        }
        for stream in &streams {
            session.order.reset(*stream);
        }
        for stream in streams {
            if let Some(channel) = self.channels.get_mut(stream) {
                channel.incoming = Side::Reset;
                if channel.outgoing == Side::Open {
                    channel.outgoing = Side::Closing;
                    // The peer no longer reads the stream.
                    self.queues.clear(stream);
                    self.resets.want(stream);
                }
                self.finish_channel(stream);
            }
        }
        self.answer_reset(number, result::PERFORMED);
        self.request_resets(now);
        true
    }

    fn handle_reset_response(&mut self, now: Instant, number: u32, result: u32) {
        let Some(request) = self.resets.request.as_mut().filter(|request| request.number == number) else {
            return;
        };
        self.timers.errors = 0;
        if result == result::IN_PROGRESS {
            request.in_progress = true;
            return;
        }
        self.timers.reset = None;
        let streams = self.resets.request.take().map(|request| request.streams).unwrap_or_default();
        let is_done = matches!(result, result::PERFORMED | result::NOTHING_TO_DO);
        for stream in streams {
            self.queues.reset(stream);
            if let Some(channel) = self.channels.get_mut(stream) {
                channel.outgoing = Side::Reset;
                if !is_done {
                    // If the peer refuses a reset, it will not reset the other direction either.
                    channel.incoming = Side::Reset;
                }
                self.finish_channel(stream);
            }
        }
        self.request_resets(now);
    }
}
