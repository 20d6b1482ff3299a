//! The session of all sinks in this module: it sorts the hub's units by time, publishes files, and ends with the
//! stream.

use std::time::Instant;

use hls::segmenter::{GivenKey, Lineup};

use super::NAME;
use super::publishing::Publishing;
use crate::hub::{Chosen, Delivery, Entry};
use crate::mail::StreamEnd;
use crate::protocol::{
    About, Context, Event, Format, Reply, Session, SubscriptionEvent, SubscriptionNews, Timers, UnitSink,
};
use crate::types::Handle;

/// A presentation of a stream as files.
pub(super) trait Presenter: std::fmt::Debug + Send {
    /// Returns the format of the units to take; the choice of tracks depends on it.
    fn format(&self) -> Format;
    /// Returns the files to be published.
    fn publishing(&self) -> &Publishing;
    /// Returns the files to be published.
    fn publishing_mut(&mut self) -> &mut Publishing;
    /// Takes a unit of video or audio; units of all tracks arrive in the order of their times.
    fn take(&mut self, ctx: &Context<'_>, entry: &Entry, chosen: &Chosen);
    /// Takes a unit of a data track.
    fn take_data(&mut self, entry: &Entry);
    /// Sets the encryption key for the next segment and those after it.
    fn set_key(&mut self, key: GivenKey);
    /// Publishes the remaining media of the stream.
    fn finish(&mut self, ctx: &Context<'_>, end: StreamEnd);
}

/// A sink that publishes a live stream in the form of its [`Presenter`].
#[derive(Debug)]
pub(super) struct LiveSink<P> {
    presenter: P,
    /// Units that wait, because their tracks are ahead of other tracks.
    lineup: Lineup<Entry>,
    /// The tracks of the last unit, and therefore of all waiting units.
    chosen: Chosen,
    attached: bool,
}

impl<P: Presenter> LiveSink<P> {
    /// Makes a sink that has not attached yet.
    pub(super) fn new(presenter: P) -> Self {
        Self { presenter, lineup: Lineup::default(), chosen: Chosen::default(), attached: false }
    }

    /// Passes on the units that still wait for other tracks.
    fn take_rest(&mut self, ctx: &Context<'_>) {
        while let Some(entry) = self.lineup.pop_rest() {
            self.presenter.take(ctx, &entry, &self.chosen);
        }
    }

    fn finish(&mut self, ctx: &Context<'_>, end: StreamEnd, reason: &str) {
        if self.presenter.publishing().is_over() {
            return;
        }
        self.take_rest(ctx);
        self.presenter.finish(ctx, end);
        if matches!(end, StreamEnd::Deleted) {
            self.presenter.publishing_mut().clear();
        }
        self.presenter.publishing_mut().finish(ctx.now, reason);
    }
}

impl<P: Presenter> UnitSink for LiveSink<P> {
    fn has_room(&self) -> bool {
        self.presenter.publishing().has_room()
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        let (entry, chosen) = (unit.entry, unit.chosen);
        let Entry { unit: ref own, dts_ms, .. } = *entry;
        if own.track.is_data() {
            return self.presenter.take_data(entry);
        }
        if !self.presenter.publishing_mut().admits(entry, chosen) {
            return;
        }
        if self.chosen.epoch() != chosen.epoch() {
            self.take_rest(ctx);
            self.lineup.change_tracks();
        }
        self.chosen = chosen.clone();
        if self.lineup.passes(own.track, dts_ms, own.payload.len(), || entry.clone()) {
            self.presenter.take(ctx, entry, chosen);
        }
        while let Some(entry) = self.lineup.pop() {
            self.presenter.take(ctx, &entry, chosen);
        }
    }
}

impl<P: Presenter> Session for LiveSink<P> {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Subscription(_, SubscriptionNews::Ended(end)) = reply {
            self.finish(ctx, end, "the stream ended");
        } else if let Reply::Job(done) = reply {
            let publishing = self.presenter.publishing_mut();
            publishing.job_done(ctx.now, done);
            if let Some(key) = publishing.take_key() {
                self.presenter.set_key(key);
            }
        }
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.finish(ctx, StreamEnd::Drain, reason);
        self.presenter.publishing_mut().hurry(ctx.now);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let attach = SubscriptionEvent::Attach(self.presenter.format());
            return Some(Event::Subscription(Handle::ONLY, attach));
        }
        self.presenter.publishing_mut().poll(ctx.now)
    }

    fn about(&self) -> About {
        About { protocol: NAME, is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}

impl<P: Presenter> Timers for LiveSink<P> {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.presenter.publishing_mut().handle_timeout(ctx.now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.presenter.publishing().poll_timeout()
    }
}
