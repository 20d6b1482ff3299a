//! The serving side of the relay: the session of this node, which has a stream, with a node that wants a copy.

use std::collections::VecDeque;
use std::time::Instant;

use ::relay::{Answer, Call, Ended, Refused, Server, ServerEvent};
use media::{TrackId, TrackKind, TrackSet};
use wire::SendQueue;

use super::{FORMAT, settings};
use crate::http::Response;
use crate::hub::{Pick, Selection};
use crate::mail::{NoSubscription, StreamEnd};
use crate::protocol::{
    About, ByteStream, Context, Event, Format, PathEvent, PathId, Paths, PlayAsk, Reply, RequestEvent,
    RequestNews, Session, SubscriptionEvent, SubscriptionNews, Timers,
};
use crate::types::{Handle, Now, StreamKey};

/// The session with one node about one stream.
#[derive(Debug)]
pub(super) struct RelaySession {
    /// The state machine of the relay's server; `None` until the first bytes arrive, because the settings are known
    /// only then.
    server: Option<Server>,
    /// Time at which the session began.
    began: Instant,
    zero_ms: i64,
    events: VecDeque<Event>,
    is_over: bool,
}

impl RelaySession {
    pub(super) fn new(now: Now) -> Self {
        Self { server: None, began: now.mono, zero_ms: 0, events: VecDeque::new(), is_over: false }
    }

    /// Returns the state machine. The first call makes it, with the cluster's name from the current settings.
    fn server(&mut self, ctx: &Context<'_>) -> &mut Server {
        let began = self.began;
        self.server.get_or_insert_with(|| Server::new(began, settings::cluster(ctx.server)))
    }

    fn asked(&mut self, ctx: &Context<'_>, key: StreamKey, via: Vec<String>) {
        let own = &ctx.server.node;
        if ctx.draining {
            return self.server(ctx).refuse(Refused::Unavailable, "the node is going down");
        }
        if via.iter().any(|node| node == own) {
            return self.server(ctx).refuse(Refused::Loop, "the stream has passed this node already");
        }
        let ask = PlayAsk {
            key,
            format: Format::new(&FORMAT, 0),
            params: Vec::new(),
            origin: String::new(),
            via,
            takes_subtracks: false,
        };
        self.subscription(SubscriptionEvent::Subscribe(ask));
    }

    /// Handles a call of the API that another node passes on after it has authenticated the caller.
    fn called(&mut self, ctx: &Context<'_>, call: Call) {
        if ctx.draining {
            return self.server(ctx).refuse(Refused::Unavailable, "the node is going down");
        }
        self.events.push_back(Event::Request(RequestEvent::NodeCall(Box::new(call))));
    }

    fn answer(&mut self, ctx: &Context<'_>, response: Response) {
        let fields = response.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let fields = fields.collect();
        self.server(ctx).answer(&Answer { status: response.status, fields, body: response.body });
    }

    fn subscription(&mut self, event: SubscriptionEvent) {
        self.events.push_back(Event::Subscription(Handle::ONLY, event));
    }

    fn drain(&mut self, ctx: &Context<'_>) {
        while !self.is_over
            && let Some(event) = self.server(ctx).poll_event()
        {
            match event {
                ServerEvent::Play { app, id, via } => self.asked(ctx, StreamKey::new(&app, &id), via),
                ServerEvent::Call(call) => self.called(ctx, call),
                ServerEvent::Viewers(viewers) => self.subscription(SubscriptionEvent::Audience(viewers)),
                ServerEvent::Want(tracks) => self.subscription(SubscriptionEvent::Select(selection(tracks))),
                ServerEvent::KeyFrame(track) => {
                    self.subscription(SubscriptionEvent::KeyFrameNeeded(Some(track)))
                }
                ServerEvent::Closed => self.end("the node has ended the feed"),
            }
        }
    }

    fn end(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.subscription(SubscriptionEvent::Unsubscribe);
            self.events.push_back(Event::Closed(reason.to_owned()));
        }
    }

    fn refuse(&mut self, ctx: &Context<'_>, why: &NoSubscription) {
        let (code, reason) = match why {
            NoSubscription::NotFound => (Refused::NotFound, "no such stream"),
            NoSubscription::Draining
            | NoSubscription::Resources
            | NoSubscription::Disabled
            | NoSubscription::Denied(_) => (Refused::Unavailable, "the stream cannot be sent now"),
        };
        self.server(ctx).refuse(code, reason);
    }

    fn handle_news(&mut self, ctx: &Context<'_>, news: &SubscriptionNews<'_>) {
        match news {
            SubscriptionNews::Zero(zero_ms) => self.zero_ms = *zero_ms,
            SubscriptionNews::Verdict(Ok(_)) => {
                let (zero_ms, node) = (self.zero_ms, &ctx.server.node);
                self.server(ctx).accept(node, zero_ms);
            }
            SubscriptionNews::Verdict(Err(why)) => self.refuse(ctx, why),
            SubscriptionNews::Ended(end) => {
                self.server(ctx).end(ended(*end), end.reason());
            }
            SubscriptionNews::Held
            | SubscriptionNews::Seasoned
            | SubscriptionNews::KindAdded(_)
            | SubscriptionNews::TracksKnown(_)
            | SubscriptionNews::Subtracks(_) => {}
        }
    }
}

/// Returns the reason that the other node gets for the end of a stream here.
const fn ended(end: StreamEnd) -> Ended {
    match end {
        // Another node may have the stream.
        StreamEnd::Drain | StreamEnd::Superseded => Ended::Left,
        StreamEnd::Unpublished
        | StreamEnd::GraceOver
        | StreamEnd::Stopped
        | StreamEnd::Unaccepted(_)
        | StreamEnd::Deleted => Ended::Over,
    }
}

/// Returns the selection for these tracks. If several tracks of a kind are wanted, all tracks of that kind are sent.
fn selection(tracks: Option<TrackSet>) -> Selection {
    let Some(tracks) = tracks else { return Selection::ALL };
    let pick = |kind| {
        let mut of_kind = tracks.iter().filter(|id| TrackId::nth(kind, id.index()) == Some(*id));
        match (of_kind.next(), of_kind.next()) {
            (None, _) => Pick::None,
            (Some(id), None) => Pick::Only(id),
            (Some(_), Some(_)) => Pick::All,
        }
    };
    Selection {
        video: pick(TrackKind::Video),
        audio: pick(TrackKind::Audio),
        data: Pick::All,
        silence: false,
    }
}

impl Session for RelaySession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Subscription(_, news) => self.handle_news(ctx, &news),
            Reply::Request(RequestNews::Response(response)) => self.answer(ctx, response),
            Reply::Publication(..)
            | Reply::Request(_)
            | Reply::Job(_)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.server(ctx).end(Ended::Left, reason);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        self.drain(ctx);
        self.events.pop_front()
    }

    fn about(&self) -> About {
        About { protocol: "relay", is_media: self.server.is_some(), is_authenticated: self.server.is_some() }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        Some(self)
    }
}

impl Timers for RelaySession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if let Err(error) = self.server(ctx).handle_timeout(ctx.now.mono) {
            self.end(&error.to_string());
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over { None } else { self.server.as_ref()?.poll_timeout() }
    }
}

impl Paths for RelaySession {
    fn handle_path(&mut self, _ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::PeerClosed => self.end("the node closed the connection"),
            PathEvent::Broken(reason) => self.end(reason),
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
        }
    }
}

impl ByteStream for RelaySession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Err(error) = self.server(ctx).handle_bytes(ctx.now.mono, bytes) {
            self.end(&error.to_string());
        }
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, _bytes: usize) {}

    fn wants_bytes(&self) -> bool {
        !self.is_over
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(server) = &mut self.server {
            server.poll_transmit(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_asks_elsewhere_for_a_stream_that_goes_on_at_another_node() {
        use StreamEnd::{Deleted, Drain, GraceOver, Stopped, Superseded, Unaccepted, Unpublished};
        assert_eq!([Drain, Superseded].map(ended), [Ended::Left; 2]);
        let over = [Unpublished, GraceOver, Stopped, Unaccepted("x"), Deleted];
        assert_eq!(over.map(ended), [Ended::Over; 5]);
    }

    #[test]
    fn what_an_edge_wants_is_chosen_by_kind() {
        assert_eq!(selection(None), Selection::ALL);
        let second = TrackId::nth(TrackKind::Video, 1).unwrap();
        let one = selection(Some(TrackSet::of(second).with(TrackId::AUDIO)));
        assert_eq!(
            (one.video, one.audio, one.data),
            (Pick::Only(second), Pick::Only(TrackId::AUDIO), Pick::All)
        );
        let two = selection(Some(TrackSet::of(second).with(TrackId::VIDEO)));
        assert_eq!((two.video, two.audio), (Pick::All, Pick::None));
    }
}
