//! Data channels of a session.

use std::time::Duration;

use media::Tracks;

use super::{
    Context, DESCRIBE_WAIT, DataRelay, DataSettings, Event, FamilyEvent, FromSession, Message, Role,
    RtcAppSettings, RtcSession, StreamData,
};
use crate::protocol::RequestEvent;

/// Maximum time for which a viewer that can be offered data channels waits for the first tracks. The SDK starts over
/// after three seconds without a connection.
const TRACKS_WAIT: Duration = Duration::from_millis(1500);

impl RtcSession {
    /// Returns the time to wait for the first tracks of a stream that is played.
    pub(super) fn wait_for_tracks(&self, ctx: &Context<'_>) -> Duration {
        if self.may_offer_data(ctx) { TRACKS_WAIT } else { DESCRIBE_WAIT }
    }

    /// True if the client waits for our offer, which may have nothing but data channels and places for future tracks.
    fn may_offer_data(&self, ctx: &Context<'_>) -> bool {
        matches!(self.role, Role::AskedPlay(None)) && self.granted && self.data_settings(ctx).enabled
    }

    /// Offers a stream that still has no tracks, if the client can be offered data channels.
    pub(super) fn describe_data(&mut self, ctx: &Context<'_>) -> bool {
        let may = self.may_offer_data(ctx);
        if may {
            self.describe_stream(ctx, &Tracks::default());
        }
        may
    }

    /// Returns the application's settings of data channels.
    pub(super) fn data_settings(&self, ctx: &Context<'_>) -> DataSettings {
        let app = ctx.apps.get(&self.key.app).map(|app| RtcAppSettings::of(app).data);
        app.unwrap_or(DataSettings::NONE)
    }

    /// True if the session carries nothing but data channels so far; media of a viewer's stream may still begin.
    fn has_no_media(&self) -> bool {
        match &self.role {
            Role::Publisher(_) => self.peer.sections().is_empty(),
            Role::Viewer(viewer) => viewer.sends_nothing(),
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::AskedPlay(_)
            | Role::Offered(..)
            | Role::Room(_) => false,
        }
    }

    /// Handles an event of the peer's data channels.
    pub(super) fn data_event(&mut self, ctx: &Context<'_>, event: ::webrtc::Event) {
        if !matches!(self.role, Role::Publisher(_) | Role::Viewer(_) | Role::Room(_)) {
            return;
        }
        if self.has_no_media() && !std::mem::replace(&mut self.started, true) {
            self.tell(FromSession::Started);
        }
        let (now, settings) = (ctx.now.mono, self.data_settings(ctx));
        let relay = self.data.get_or_insert_with(|| Box::new(DataRelay::new(now, self.publishes)));
        if let Some(data) = relay.handle_event(now, &mut self.peer, settings, &self.key.id, event) {
            let has_receiver = ctx.apps.get(&self.key.app).is_some_and(|app| app.hooks.data_url.is_some());
            if has_receiver {
                let (key, payload) = (self.key.clone(), data.payload.clone());
                self.events.push_back(Event::Request(RequestEvent::Data { key, payload }));
            }
            self.tell_stream(data);
        }
    }

    /// Sends a message to the other sessions of the stream or the room.
    pub(super) fn tell_stream(&mut self, data: StreamData) {
        let (stream, message) = (self.key.clone(), Message::new(data));
        self.events.push_back(Event::Family(FamilyEvent::TellStream { stream, message }));
    }

    /// Delivers a message of another session. If the page is not sent one of its room's streams, it is not sent that
    /// stream's messages either.
    pub(super) fn hear(&mut self, ctx: &Context<'_>, data: &StreamData) {
        let is_strange = match &self.role {
            Role::Room(room) => data.stream != self.key.id && !room.has(&data.stream),
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::Publisher(_)
            | Role::AskedPlay(_)
            | Role::Offered(..)
            | Role::Viewer(_) => false,
        };
        if let Some(relay) = self.data.as_ref().filter(|_| !is_strange) {
            relay.hear(ctx.now.mono, &mut self.peer, data);
        }
    }
}
