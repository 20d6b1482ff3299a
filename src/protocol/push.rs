//! The common part of all pushes: the state of an attempt, and the reports about it to control.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Event, Format, OrderEvent, SubscriptionEvent};
use crate::mail::PushState;
use crate::types::Handle;

/// Interval of checks of the newest key frame's age. Viewers of the push target cannot request a key frame from
/// us, and a publishing browser makes none by itself.
const KEY_FRAME_LOOK: Duration = Duration::from_secs(1);

/// An attempt, from its connection to its end.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    events: VecDeque<Event>,
    broadcasting: bool,
    /// Time of the next check of the newest key frame.
    look_at: Option<Instant>,
    ending: bool,
    over: bool,
}

impl Attempt {
    /// Notes that the connection is established, and that the target was asked for permission to publish.
    pub(super) fn prepare(&mut self) {
        self.events.push_back(Event::Order(OrderEvent::Push(PushState::Preparing)));
    }

    /// Notes that the target accepts the stream, and subscribes to the stream in this format.
    pub(super) fn broadcast(&mut self, now: Instant, format: Format) {
        self.attach(format);
        self.broadcasting(now);
    }

    /// Subscribes to the stream in this format, before the target accepts it.
    pub(super) fn attach(&mut self, format: Format) {
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
    }

    /// Pauses or resumes the stream; nothing is sent while paused.
    pub(super) fn pause(&mut self, paused: bool) {
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(paused)));
    }

    /// Notes that the target accepts the stream.
    pub(super) fn broadcasting(&mut self, now: Instant) {
        self.broadcasting = true;
        self.look_at = Some(now + KEY_FRAME_LOOK);
        self.events.push_back(Event::Order(OrderEvent::Push(PushState::Broadcasting)));
    }

    /// Notes that the server ends the push, so that its end is no failure.
    pub(super) const fn finish(&mut self) {
        self.ending = true;
    }

    /// Ends the attempt, unless it has ended already.
    pub(super) fn end(&mut self, reason: &str) {
        let state = match (self.ending, self.broadcasting) {
            (true, _) => PushState::Finished,
            (false, true) => PushState::Error(reason.to_owned()),
            (false, false) => PushState::Failed(reason.to_owned()),
        };
        self.leave(state, reason);
    }

    /// Ends the attempt because a further track must be announced; the next attempt follows.
    pub(super) fn restart(&mut self, reason: &str) {
        self.leave(PushState::Again(reason.to_owned()), reason);
    }

    fn leave(&mut self, state: PushState, reason: &str) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.look_at = None;
        self.events.push_back(Event::Order(OrderEvent::Push(state)));
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
        self.events.push_back(Event::Closed(reason.to_owned()));
    }

    /// Requests a key frame when due, if the newest one is old.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + KEY_FRAME_LOOK);
            self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameSoon(None)));
        }
    }

    /// Returns the time at which [`Self::handle_timeout`] must be called.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// True if the attempt is over.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// True if there is an event.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(attempt: &mut Attempt) -> Vec<PushState> {
        std::iter::from_fn(|| attempt.poll_event())
            .filter_map(
                |event| if let Event::Order(OrderEvent::Push(state)) = event { Some(state) } else { None },
            )
            .collect()
    }

    #[test]
    fn the_first_reason_counts_and_says_how_far_it_came() {
        let mut attempt = Attempt::default();
        attempt.prepare();
        attempt.end("refused");
        attempt.end("hung up");
        assert_eq!(states(&mut attempt), [PushState::Preparing, PushState::Failed("refused".into())]);
        let mut attempt = Attempt::default();
        attempt.finish();
        attempt.end("the stream ended");
        assert!(attempt.is_over());
        assert_eq!(states(&mut attempt), [PushState::Finished]);
    }

    #[test]
    fn a_push_that_is_sent_looks_at_the_newest_key_frame_once_a_second() {
        let mut attempt = Attempt::default();
        let now = Instant::now();
        attempt.prepare();
        assert_eq!(attempt.poll_timeout(), None);
        attempt.broadcast(now, Format::find("flv", 0).unwrap());
        let looks = |attempt: &mut Attempt, ms| {
            attempt.handle_timeout(now + Duration::from_millis(ms));
            let soon =
                |event: &Event| matches!(event, Event::Subscription(_, SubscriptionEvent::KeyFrameSoon(_)));
            std::iter::from_fn(|| attempt.poll_event()).filter(soon).count()
        };
        assert_eq!([999, 1000, 1500, 2000].map(|ms| looks(&mut attempt, ms)), [0, 1, 0, 1]);
        attempt.end("refused");
        assert_eq!(attempt.poll_timeout(), None);
    }
}
