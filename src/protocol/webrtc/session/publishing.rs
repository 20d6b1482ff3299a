//! A session that publishes: its units, and news of its stream.

use std::sync::Arc;

use serde_json::json;

use super::{
    Context, Departure, Description, Event, FamilyEvent, FromSession, Handle, Message, PublicationEvent,
    PublicationNews, Refused, Role, RtcAppSettings, RtcSession, StreamData, unpublished,
};
use crate::mail::DataSender;

impl RtcSession {
    /// Handles the offer of a client that publishes.
    pub(super) fn take_offer(&mut self, ctx: &Context<'_>, offer: &Description) {
        // An unexpected offer is ignored, and must change nothing: viewers answer our offers, and make none.
        if !matches!(self.role, Role::Granted(_) | Role::Publisher(_)) {
            return;
        }
        // Pages of the SDK open a channel regardless of the application's settings.
        self.peer.take_data();
        let answer = self.answer_publisher(ctx, offer);
        match (answer, std::mem::replace(&mut self.role, Role::None)) {
            (Ok(described), Role::Granted(grant)) => {
                self.begin_ingest(ctx, &grant);
                self.send_description(ctx, described);
            }
            // A publisher offers again only to restart ICE. Its stream continues whether or not that succeeds.
            (Ok(described), role @ Role::Publisher(_)) => {
                self.role = role;
                self.send_description(ctx, described);
            }
            (Err(error), Role::Granted(_)) => {
                self.refuse(Refused::Description(error));
                self.events.push_back(unpublished(Departure::Clean));
            }
            (Err(error), role) => {
                tracing::debug!(stream = %self.key.id, %error, "later offer of a publisher refused");
                self.role = role;
                self.tell(FromSession::OfferRefused);
            }
            (Ok(_), role) => self.role = role,
        }
    }

    /// Handles a deadline of a publisher. One that has sent no media loses its stream, which waits for its return.
    pub(in crate::protocol::webrtc) fn publisher_timeout(&mut self, ctx: &Context<'_>) {
        let Role::Publisher(ingest) = &mut self.role else { return };
        if ingest.is_silent(ctx.now.mono) {
            self.peer.close(ctx.now.mono);
            return self.over("the publisher sends no media", Departure::Lost);
        }
        ingest.try_start(ctx.now.mono);
        self.take_units();
    }

    /// Passes units that are ready, and changes of the publisher's clocks, to the worker.
    pub(super) fn take_units(&mut self) {
        let Role::Publisher(ingest) = &mut self.role else { return };
        while let Some((unit, tracks)) = ingest.poll_unit() {
            if !std::mem::replace(&mut self.started, true) {
                let message = Message::new(FromSession::Started);
                self.events.push_back(Event::Family(FamilyEvent::Tell { to: self.asker.session, message }));
            }
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
        }
        while let Some(news) = ingest.take_clock_news() {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Clock(news)));
        }
        let units = ingest.take_dropped();
        if units > 0 {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::UnitsDropped(units)));
        }
    }

    /// Reports the publisher's loudness to rooms, and to viewers if the application wants that
    /// (`sendAudioLevelToViewers`).
    pub(super) fn note_loudness(&mut self, ctx: &Context<'_>, level: u8) {
        let Role::Publisher(_) = &self.role else { return };
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Loudness(level)));
        let app = ctx.apps.get(&self.key.app).map(|app| RtcAppSettings::of(app));
        let Some(quietest) = app.and_then(|app| app.audio_levels.filter(|_| app.data.enabled)) else {
            return;
        };
        let level = if level > quietest { 127 } else { level };
        let (stream, sender) = (Arc::clone(&self.key.id), DataSender::Publisher);
        let said = json!({"eventType": "UPDATE_AUDIO_LEVEL", "streamId": &*stream, "audioLevel": level});
        let payload = said.to_string().into();
        self.tell_stream(StreamData { sender, stream, is_text: true, payload });
    }

    /// Handles news of the stream that the session publishes.
    pub(super) fn publication_news(&mut self, ctx: &Context<'_>, news: PublicationNews) {
        match news {
            PublicationNews::Verdict(verdict) => self.publish_verdict(ctx, verdict),
            PublicationNews::Ended(_) => {
                // The worker has already ended the publication.
                self.role = Role::None;
                self.end(ctx, Departure::Clean);
            }
            PublicationNews::KeyFrameNeeded(track) => {
                if let Role::Publisher(ingest) = &self.role
                    && let Some((section, layer)) = ingest.source_of(track)
                {
                    self.peer.request_key_frame(ctx.now.mono, section, layer);
                }
            }
            PublicationNews::Wanted(_) | PublicationNews::Audience(_) => {}
        }
    }
}
