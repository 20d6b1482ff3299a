//! The session that makes the view of a room.
//!
//! 1. It watches the room, and is notified of its streams and of speech. With the first stream it asks to publish.
//! 2. It subscribes to the stream to be shown. To show another stream, it subscribes to that one as well and switches
//!    at that stream's next key frame, which is requested if the publisher can make one. Until then the former stream
//!    continues.
//! 3. If nothing is shown, because a stream has left or there was none, the next stream begins at its newest key
//!    frame.
//! 4. The view ends with the room.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use media::TrackKind;

use super::FORMAT;
use super::cast::Cast;
use super::output::Output;
use super::settings::Shows;
use crate::hub::{Delivery, Pick, Selection};
use crate::mail::{Departure, PullState};
use crate::protocol::{
    About, Context, Event, Format, OrderEvent, PlayAsk, PublicationEvent, PublicationNews, PublishAsk, Reply,
    Session, SubscriptionEvent, SubscriptionNews, SubtrackNews, Timers, UnitSink,
};
use crate::types::{Handle, Ingest, StreamKey};

/// The subscription that watches the room.
const ROOM: Handle = Handle(0);
/// Handles of the subscriptions to two streams: the one that is shown, and the next one.
const STREAMS: [Handle; 2] = [Handle(1), Handle(2)];
/// Time after which the next stream is shown with audio only, if it has video but no picture arrives.
const PICTURE_WAIT: Duration = Duration::from_secs(4);

/// The stage of the session.
#[derive(Debug)]
enum Stage {
    New,
    /// The room is watched; nothing was published yet.
    Watching,
    /// Control was asked whether the view may be published.
    Asked,
    Live(Output),
    Over,
}

/// A stream that is subscribed to.
#[derive(Debug)]
struct Feed {
    handle: Handle,
    key: StreamKey,
    since: Instant,
    /// True if the feed may begin with units from before the subscription.
    takes_old: bool,
}

/// The view of a room.
#[derive(Debug)]
pub(super) struct RoomView {
    room: StreamKey,
    stage: Stage,
    cast: Cast,
    /// The stream whose units are published.
    shown: Option<Feed>,
    /// The stream that is about to replace the shown one.
    next: Option<Feed>,
    events: VecDeque<Event>,
}

impl RoomView {
    pub(super) const fn new(room: StreamKey) -> Self {
        Self {
            room,
            stage: Stage::New,
            cast: Cast::new(Shows::Speaker),
            shown: None,
            next: None,
            events: VecDeque::new(),
        }
    }

    fn begin(&mut self, ctx: &Context<'_>) {
        self.stage = Stage::Watching;
        self.cast = Cast::new(Shows::of(ctx.apps.get(&self.room.app).map(|app| &**app)));
        self.events.push_back(Event::Order(OrderEvent::Pull(PullState::Preparing)));
        let ask = ask(self.room.clone(), true);
        self.events.push_back(Event::Subscription(ROOM, SubscriptionEvent::Subscribe(ask)));
    }

    // ---- the room

    fn handle_room(&mut self, now: Instant, news: &SubscriptionNews<'_>) {
        match news {
            SubscriptionNews::Subtracks(news) => self.handle_streams(now, *news),
            SubscriptionNews::Verdict(Ok(_)) => self.end("it is no room any more", true),
            SubscriptionNews::Verdict(Err(_)) => self.end("the room is empty", true),
            SubscriptionNews::Ended(end) => self.end(end.reason(), true),
            SubscriptionNews::Held
            | SubscriptionNews::Seasoned
            | SubscriptionNews::Zero(_)
            | SubscriptionNews::TracksKnown(_)
            | SubscriptionNews::KindAdded(_) => {}
        }
    }

    fn handle_streams(&mut self, now: Instant, news: SubtrackNews<'_>) {
        match news {
            SubtrackNews::Room(streams) => streams.iter().for_each(|key| self.cast.came(key)),
            SubtrackNews::Came(key) => self.cast.came(key),
            SubtrackNews::Left(key) => self.cast.left(key),
            SubtrackNews::Loudness { key, level } => self.cast.heard(now, key, level),
            SubtrackNews::Role { .. } => {}
        }
        if matches!(self.stage, Stage::Watching) && !self.cast.is_empty() {
            self.publish();
        }
        self.settle(now);
    }

    fn publish(&mut self) {
        self.stage = Stage::Asked;
        let ask = PublishAsk {
            key: self.room.clone(),
            ingest: Ingest::ROOM_VIEW,
            user_agent: String::new(),
            params: Vec::new(),
            via: Vec::new(),
            zero_ms: None,
            of_foreign_page: false,
        };
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
    }

    fn handle_publication(&mut self, now: Instant, news: PublicationNews) {
        match news {
            PublicationNews::Verdict(Ok(grant)) if matches!(self.stage, Stage::Asked) => {
                self.stage = Stage::Live(Output::new(&grant));
                self.settle(now);
            }
            PublicationNews::Verdict(Ok(_)) => {}
            PublicationNews::Verdict(Err(refusal)) => self.end(&format!("refused here: {refusal:?}"), false),
            PublicationNews::Ended(end) => self.end(end.reason(), false),
            PublicationNews::KeyFrameNeeded(_) => {
                let shown = self.shown.as_ref().map(|feed| feed.handle);
                self.events
                    .extend(shown.map(|of| Event::Subscription(of, SubscriptionEvent::KeyFrameNeeded(None))));
            }
            PublicationNews::Wanted(_) | PublicationNews::Audience(_) => {}
        }
    }

    // ---- the streams

    /// Subscribes to the stream to be shown.
    fn settle(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Live(_)) {
            return;
        }
        let Some(key) = self.cast.choose(now).cloned() else { return };
        let is_shown = self.shown.as_ref().is_some_and(|feed| feed.key == key);
        if self.next.as_ref().is_some_and(|feed| feed.key == key) {
            return;
        }
        if let Some(former) = self.next.take() {
            self.events.push_back(Event::Subscription(former.handle, SubscriptionEvent::Unsubscribe));
        }
        if is_shown {
            return;
        }
        let taken = self.shown.as_ref().map(|feed| feed.handle);
        let Some(handle) = STREAMS.into_iter().find(|handle| Some(*handle) != taken) else { return };
        let ask = ask(key.clone(), false);
        self.events.push_back(Event::Subscription(handle, SubscriptionEvent::Subscribe(ask)));
        self.next = Some(Feed { handle, key, since: now, takes_old: taken.is_none() });
    }

    fn handle_stream(&mut self, now: Instant, handle: Handle, news: &SubscriptionNews<'_>) {
        match news {
            SubscriptionNews::Verdict(Ok(_)) => {
                let next = self.next.as_ref().filter(|feed| feed.handle == handle);
                let wanted = next.map(|feed| match feed.takes_old {
                    true => SubscriptionEvent::KeyFrameSoon(None),
                    false => SubscriptionEvent::KeyFrameNeeded(None),
                });
                self.events.extend(wanted.map(|event| Event::Subscription(handle, event)));
            }
            SubscriptionNews::Verdict(Err(_)) | SubscriptionNews::Ended(_) => {
                let is_it = |feed: &mut Feed| feed.handle == handle;
                let gone = self.shown.take_if(is_it).or_else(|| self.next.take_if(is_it));
                if let Some(feed) = gone {
                    self.cast.left(&feed.key);
                    self.settle(now);
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

    /// Shows the next stream if it can begin with this unit.
    fn take_over(&mut self, now: Instant, handle: Handle, unit: &Delivery<'_>) {
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
        self.events.extend(former.map(|of| Event::Subscription(of, SubscriptionEvent::Unsubscribe)));
        self.shown = self.next.take();
        if let Stage::Live(output) = &mut self.stage {
            output.cut(unit.entry);
        }
    }

    /// Ends the session, unless it has ended already. `is_over` is true if the view is over and must not be begun
    /// again.
    fn end(&mut self, reason: &str, is_over: bool) {
        let state = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => return,
            Stage::New | Stage::Watching | Stage::Asked | Stage::Live(_) if is_over => {
                PullState::Over(reason.to_owned())
            }
            Stage::Live(_) => PullState::Lost { reason: reason.to_owned(), ahead: Duration::ZERO },
            Stage::New | Stage::Watching | Stage::Asked => PullState::Failed(reason.to_owned()),
        };
        (self.shown, self.next) = (None, None);
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Lost)));
        self.events.push_back(Event::Order(OrderEvent::Pull(state)));
        self.events.push_back(Event::Closed(reason.to_owned()));
    }
}

/// Returns the request for the room, or for one of its streams.
fn ask(key: StreamKey, takes_subtracks: bool) -> PlayAsk {
    let selection = Selection { data: Pick::All, ..Selection::DEFAULT };
    PlayAsk {
        key,
        format: Format::new(&FORMAT, 0).select(selection),
        params: Vec::new(),
        origin: String::new(),
        via: Vec::new(),
        takes_subtracks,
    }
}

impl Session for RoomView {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        let now = ctx.now.mono;
        match reply {
            Reply::Subscription(ROOM, news) => self.handle_room(now, &news),
            Reply::Subscription(handle, news) => self.handle_stream(now, handle, &news),
            Reply::Publication(_, news) => self.handle_publication(now, news),
            Reply::Request(_) | Reply::Job(_) | Reply::Family(_) | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.end(reason, false);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if matches!(self.stage, Stage::New) {
            self.begin(ctx);
        }
        self.events.pop_front()
    }

    fn about(&self) -> About {
        About { protocol: FORMAT.name, is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}

impl Timers for RoomView {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.settle(ctx.now.mono);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let is_live = matches!(self.stage, Stage::Live(_));
        self.cast.due().filter(|_| is_live)
    }
}

impl UnitSink for RoomView {
    fn has_room(&self) -> bool {
        true
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, subscription: Handle, unit: &Delivery<'_>) {
        self.take_over(ctx.now.mono, subscription, unit);
        let Stage::Live(output) = &mut self.stage else { return };
        if self.shown.as_ref().is_some_and(|feed| feed.handle == subscription)
            && let Some((unit, tracks)) = output.convert(unit.entry, unit.chosen)
        {
            let event = PublicationEvent::Unit { unit, tracks };
            self.events.push_back(Event::Publication(Handle::ONLY, event));
        }
    }
}
