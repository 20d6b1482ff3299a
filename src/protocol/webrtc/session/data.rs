//! Data channels of a session.

use super::{
    Context, DataRelay, DataSettings, Event, FamilyEvent, Message, Role, RtcAppSettings, RtcSession,
};

impl RtcSession {
    /// The settings of data channels of the application.
    pub(super) fn data_settings(&self, ctx: &Context<'_>) -> DataSettings {
        let app = ctx.apps.get(&self.key.app).map(|app| RtcAppSettings::of(app).data);
        app.unwrap_or(DataSettings::NONE)
    }

    /// An event of the peer's data channels.
    pub(super) fn data_event(&mut self, ctx: &Context<'_>, event: ::webrtc::Event) {
        if !matches!(self.role, Role::Publisher(_) | Role::Viewer(_) | Role::Room(_)) {
            return;
        }
        let (now, settings) = (ctx.now.mono, self.data_settings(ctx));
        let relay = self.data.get_or_insert_with(|| Box::new(DataRelay::new(now, self.publishes)));
        if let Some(data) = relay.handle_event(now, &mut self.peer, settings, &self.key.id, event) {
            for (stream, of_viewers) in self.receivers() {
                let message = Message::new(data.clone().of(of_viewers));
                self.events.push_back(Event::Family(FamilyEvent::TellStream { stream, message }));
            }
        }
    }
}
