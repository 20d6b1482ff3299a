//! The layout of a view that shows one stream at a time.
//!
//! 1. It subscribes to the stream to be shown. To show another stream, it subscribes to that one as well and switches
//!    at that stream's next key frame, which is requested if the publisher can make one. Until then the former stream
//!    continues.
//! 2. If nothing is shown, because a stream has left or there was none, the next stream begins at its newest key
//!    frame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, TrackKind, Tracks};

use super::cast::Cast;
use super::output::Output;
use super::session::ask;
use super::settings::Shows;
use crate::hub::{Delivery, Pick};
use crate::mail::Grant;
use crate::protocol::{Event, SubscriptionEvent, SubscriptionNews, SubtrackNews};
use crate::types::{Handle, StreamKey};

/// Handles of the subscriptions to two streams: the one that is shown, and the next one.
const STREAMS: [Handle; 2] = [Handle(1), Handle(2)];
/// Time after which the next stream is shown with audio only, if it has video but no picture arrives.
pub(super) const PICTURE_WAIT: Duration = Duration::from_secs(4);

/// A stream that is subscribed to.
#[derive(Debug)]
struct Feed {
    handle: Handle,
    key: StreamKey,
    since: Instant,
    /// True if the feed may begin with units from before the subscription.
    takes_old: bool,
}

/// A view that shows one stream at a time.
#[derive(Debug)]
pub(super) struct One {
    cast: Cast,
    /// The output; `None` until the view has begun.
    output: Option<Output>,
    /// The stream whose units are published.
    shown: Option<Feed>,
    /// The stream that is about to replace the shown one.
    next: Option<Feed>,
}

impl One {
    pub(super) const fn new(shows: Shows) -> Self {
        Self { cast: Cast::new(shows), output: None, shown: None, next: None }
    }

    pub(super) fn begin(&mut self, grant: &Grant) {
        self.output = Some(Output::new(grant));
    }

    pub(super) fn handle_streams(&mut self, now: Instant, news: SubtrackNews<'_>) {
        match news {
            SubtrackNews::Room(streams) => streams.iter().for_each(|key| self.cast.came(key)),
            SubtrackNews::Came(key) => self.cast.came(key),
            SubtrackNews::Left(key) => self.cast.left(key),
            SubtrackNews::Loudness { key, level } => self.cast.heard(now, key, level),
            SubtrackNews::Role { .. } => {}
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.cast.is_empty()
    }

    /// Returns the subscription to the stream that is shown.
    pub(super) fn shown(&self) -> Option<Handle> {
        self.shown.as_ref().map(|feed| feed.handle)
    }

    /// Returns the time at which another stream should be shown.
    pub(super) fn due(&self) -> Option<Instant> {
        self.cast.due().filter(|_| self.output.is_some())
    }

    /// Subscribes to the stream to be shown.
    pub(super) fn settle(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        if self.output.is_none() {
            return;
        }
        let Some(key) = self.cast.choose(now).cloned() else { return };
        let is_shown = self.shown.as_ref().is_some_and(|feed| feed.key == key);
        if self.next.as_ref().is_some_and(|feed| feed.key == key) {
            return;
        }
        if let Some(former) = self.next.take() {
            events.push_back(Event::Subscription(former.handle, SubscriptionEvent::Unsubscribe));
        }
        if is_shown {
            return;
        }
        let taken = self.shown();
        let Some(handle) = STREAMS.into_iter().find(|handle| Some(*handle) != taken) else { return };
        let ask = ask(key.clone(), false, Pick::All);
        events.push_back(Event::Subscription(handle, SubscriptionEvent::Subscribe(ask)));
        self.next = Some(Feed { handle, key, since: now, takes_old: taken.is_none() });
    }

    pub(super) fn handle_stream(
        &mut self,
        now: Instant,
        handle: Handle,
        news: &SubscriptionNews<'_>,
        events: &mut VecDeque<Event>,
    ) {
        match news {
            SubscriptionNews::Verdict(Ok(_)) => {
                let next = self.next.as_ref().filter(|feed| feed.handle == handle);
                let wanted = next.map(|feed| match feed.takes_old {
                    true => SubscriptionEvent::KeyFrameSoon(None),
                    false => SubscriptionEvent::KeyFrameNeeded(None),
                });
                events.extend(wanted.map(|event| Event::Subscription(handle, event)));
            }
            SubscriptionNews::Verdict(Err(_)) | SubscriptionNews::Ended(_) => {
                let is_it = |feed: &mut Feed| feed.handle == handle;
                let gone = self.shown.take_if(is_it).or_else(|| self.next.take_if(is_it));
                if let Some(feed) = gone {
                    self.cast.left(&feed.key);
                    self.settle(now, events);
                }
            }
            SubscriptionNews::Held
            | SubscriptionNews::Seasoned
            | SubscriptionNews::Zero(_)
            | SubscriptionNews::TracksKnown(_)
            | SubscriptionNews::KindAdded(_)
            | SubscriptionNews::Subtracks(_) => {}
        }
    }

    /// Converts a unit of a stream. `None` if the unit is not shown.
    pub(super) fn handle_unit(
        &mut self,
        now: Instant,
        subscription: Handle,
        unit: &Delivery<'_>,
        events: &mut VecDeque<Event>,
    ) -> Option<(AccessUnit, Arc<Tracks>)> {
        self.take_over(now, subscription, unit, events);
        if self.shown() != Some(subscription) {
            return None;
        }
        self.output.as_mut()?.convert(unit.entry, unit.chosen)
    }

    /// Shows the next stream if it can begin with this unit.
    fn take_over(&mut self, now: Instant, handle: Handle, unit: &Delivery<'_>, events: &mut VecDeque<Event>) {
        let Some(next) = self.next.as_ref().filter(|feed| feed.handle == handle) else { return };
        let has_video = unit.chosen.of_kind(TrackKind::Video).next().is_some();
        let waits = has_video && now.saturating_duration_since(next.since) < PICTURE_WAIT;
        let is_start = match unit.entry.kind {
            Some(TrackKind::Video) => unit.entry.unit.key_frame,
            Some(TrackKind::Audio) => !waits,
            Some(TrackKind::Data) | None => false,
        };
        if !is_start || (!next.takes_old && unit.entry.received < next.since) {
            return;
        }
        let former = self.shown.take().map(|feed| feed.handle);
        events.extend(former.map(|of| Event::Subscription(of, SubscriptionEvent::Unsubscribe)));
        self.shown = self.next.take();
        if let Some(output) = &mut self.output {
            output.cut(unit.entry);
        }
    }
}
