//! The session that makes the view of a room.
//!
//! 1. It watches the room, and is notified of its streams and of speech. With the first stream it asks to publish.
//! 2. Its layout subscribes to the streams to be shown, and turns their units into units of the view: one stream after
//!    another ([`One`]), or all of them beside one another ([`Gallery`]).
//! 3. The view ends with the room.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use media::TrackId;

use super::FORMAT;
use super::gallery::Gallery;
use super::one::One;
use super::settings::Shows;
use crate::hub::{Delivery, Pick, Selection};
use crate::mail::{Departure, Grant, PullState};
use crate::protocol::{
    About, Context, Event, Format, OrderEvent, PlayAsk, PublicationEvent, PublicationNews, PublishAsk, Reply,
    Session, SubscriptionEvent, SubscriptionNews, SubtrackNews, Timers, UnitSink,
};
use crate::types::{Handle, Ingest, StreamKey};

/// The subscription that watches the room.
const ROOM: Handle = Handle(0);

/// The stage of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    /// The room is watched; nothing was published yet.
    Watching,
    /// Control was asked whether the view may be published.
    Asked,
    Live,
    Over,
}

/// The arrangement of a room's streams in the view.
#[derive(Debug)]
enum Layout {
    /// The streams one after another.
    One(Box<One>),
    /// All streams, each with tracks of its own.
    All(Box<Gallery>),
}

/// The view of a room.
#[derive(Debug)]
pub(super) struct RoomView {
    room: StreamKey,
    stage: Stage,
    layout: Layout,
    events: VecDeque<Event>,
}

impl Layout {
    fn of(shows: Shows) -> Self {
        match shows {
            Shows::Speaker | Shows::First => Self::One(Box::new(One::new(shows))),
            Shows::All => Self::All(Box::new(Gallery::new())),
        }
    }

    fn handle_streams(&mut self, now: Instant, news: SubtrackNews<'_>, events: &mut VecDeque<Event>) {
        match self {
            Self::One(one) => one.handle_streams(now, news),
            Self::All(gallery) => gallery.handle_streams(news, events),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::One(one) => one.is_empty(),
            Self::All(gallery) => gallery.is_empty(),
        }
    }

    fn begin(&mut self, grant: &Grant) {
        match self {
            Self::One(one) => one.begin(grant),
            Self::All(gallery) => gallery.begin(grant),
        }
    }

    /// Subscribes to the streams to be shown, once the view has begun.
    fn settle(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        match self {
            Self::One(one) => one.settle(now, events),
            Self::All(gallery) => gallery.settle(now, events),
        }
    }

    fn ask_key_frame(&self, of: TrackId, events: &mut VecDeque<Event>) {
        let handle = match self {
            Self::One(one) => one.shown(),
            Self::All(gallery) => gallery.source_of(of),
        };
        events.extend(handle.map(|of| Event::Subscription(of, SubscriptionEvent::KeyFrameNeeded(None))));
    }

    fn handle_stream(
        &mut self,
        now: Instant,
        of: Handle,
        news: &SubscriptionNews<'_>,
        events: &mut VecDeque<Event>,
    ) {
        match self {
            Self::One(one) => one.handle_stream(now, of, news, events),
            Self::All(gallery) => gallery.handle_stream(now, of, news, events),
        }
    }
}

impl RoomView {
    pub(super) fn new(room: StreamKey) -> Self {
        let layout = Layout::of(Shows::Speaker);
        Self { room, stage: Stage::New, layout, events: VecDeque::new() }
    }

    fn begin(&mut self, ctx: &Context<'_>) {
        self.stage = Stage::Watching;
        self.layout = Layout::of(Shows::of(ctx.apps.get(&self.room.app).map(|app| &**app)));
        self.events.push_back(Event::Order(OrderEvent::Pull(PullState::Preparing)));
        let ask = ask(self.room.clone(), true, Pick::All);
        self.events.push_back(Event::Subscription(ROOM, SubscriptionEvent::Subscribe(ask)));
    }

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
        self.layout.handle_streams(now, news, &mut self.events);
        if self.stage == Stage::Watching && !self.layout.is_empty() {
            self.publish();
        }
        self.layout.settle(now, &mut self.events);
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
            PublicationNews::Verdict(Ok(grant)) if self.stage == Stage::Asked => {
                self.stage = Stage::Live;
                self.layout.begin(&grant);
                self.layout.settle(now, &mut self.events);
            }
            PublicationNews::Verdict(Ok(_)) => {}
            PublicationNews::Verdict(Err(refusal)) => self.end(&format!("refused here: {refusal:?}"), false),
            PublicationNews::Ended(end) => self.end(end.reason(), false),
            PublicationNews::KeyFrameNeeded(track) => self.layout.ask_key_frame(track, &mut self.events),
            PublicationNews::Wanted(_) | PublicationNews::Audience(_) => {}
        }
    }

    /// Ends the session, unless it has ended already. `is_over` is true if the view is over and must not be begun
    /// again.
    fn end(&mut self, reason: &str, is_over: bool) {
        let state = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => return,
            Stage::New | Stage::Watching | Stage::Asked | Stage::Live if is_over => {
                PullState::Over(reason.to_owned())
            }
            Stage::Live => PullState::Lost { reason: reason.to_owned(), ahead: Duration::ZERO },
            Stage::New | Stage::Watching | Stage::Asked => PullState::Failed(reason.to_owned()),
        };
        self.layout = Layout::of(Shows::Speaker);
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Lost)));
        self.events.push_back(Event::Order(OrderEvent::Pull(state)));
        self.events.push_back(Event::Closed(reason.to_owned()));
    }
}

/// Returns the request for the room, or for one of its streams with these data tracks.
pub(super) fn ask(key: StreamKey, takes_subtracks: bool, data: Pick) -> PlayAsk {
    let selection = Selection { data, ..Selection::DEFAULT };
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
            Reply::Subscription(handle, news) => {
                self.layout.handle_stream(now, handle, &news, &mut self.events)
            }
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
        self.layout.settle(ctx.now.mono, &mut self.events);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.layout {
            Layout::One(one) => one.due(),
            Layout::All(gallery) => gallery.due(),
        }
    }
}

impl UnitSink for RoomView {
    fn has_room(&self) -> bool {
        true
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, subscription: Handle, unit: &Delivery<'_>) {
        let now = ctx.now.mono;
        let made = match &mut self.layout {
            Layout::One(one) => one.handle_unit(now, subscription, unit, &mut self.events),
            Layout::All(gallery) => gallery.handle_unit(now, subscription, unit.entry, unit.chosen),
        };
        if let Some((unit, tracks)) = made {
            let event = PublicationEvent::Unit { unit, tracks };
            self.events.push_back(Event::Publication(Handle::ONLY, event));
        }
    }
}
