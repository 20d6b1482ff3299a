//! Data channels of a session.

use super::{
    Context, DataRelay, DataSettings, Event, FamilyEvent, Message, Role, RtcAppSettings, RtcSession,
    StreamData,
};
use crate::protocol::RequestEvent;

impl RtcSession {
    /// Returns the application's settings of data channels.
    pub(super) fn data_settings(&self, ctx: &Context<'_>) -> DataSettings {
        let app = ctx.apps.get(&self.key.app).map(|app| RtcAppSettings::of(app).data);
        app.unwrap_or(DataSettings::NONE)
    }

    /// Handles an event of the peer's data channels.
    pub(super) fn data_event(&mut self, ctx: &Context<'_>, event: ::webrtc::Event) {
        if !matches!(self.role, Role::Publisher(_) | Role::Viewer(_) | Role::Room(_)) {
            return;
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

    /// Delivers a message of another session. A page that is not sent a stream of its room gets no messages of it either.
    pub(super) fn hear(&mut self, ctx: &Context<'_>, data: &StreamData) {
        let is_strange = match &self.role {
            Role::Room(room) => data.stream != self.key.id && !room.has(&data.stream),
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::Publisher(_)
            | Role::AskedPlay(_)
            | Role::Offered(_)
            | Role::Viewer(_) => false,
        };
        if let Some(relay) = self.data.as_ref().filter(|_| !is_strange) {
            relay.hear(ctx.now.mono, &mut self.peer, data);
        }
    }
}
