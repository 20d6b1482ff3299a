//! Viewers on their way in and out: admitted from the replica where nothing is checked, else by control.
//! Control hears of viewers only where it checks them or a hook tells of them.

use std::sync::Arc;

use super::Worker;
use super::conn::{Publishing, Watching};
use crate::auth::access::{Credentials, Denial};
use crate::mail::{NoSubscription, PlayRequest, ToControl};
use crate::protocol::PlayAsk;
use crate::types::{ConnId, StreamId};

impl Worker {
    /// A session asks to play.
    pub(super) fn subscribe(&mut self, id: ConnId, ask: PlayAsk) {
        self.end_hold(id);
        let checked = match self.gate(&ask) {
            Ok(checked) => checked,
            Err(why) => return self.subscribe_verdict(id, Err(why)),
        };
        let session = self.session_ref(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let request = |ask: &PlayAsk, peer| {
            let (egress, params) = (ask.format.key().name, ask.params.clone());
            let (key, origin) = (ask.key.clone(), ask.origin.clone());
            Box::new(PlayRequest { session, key, egress, peer, params, origin })
        };
        let peer = conn.peer;
        if checked {
            let request = request(&ask, peer);
            conn.watching = Watching::Asked(Box::new(ask));
            self.tell(ToControl::Play(request));
            return;
        }
        let stream = self.serve(id, &ask);
        if stream.as_ref().is_ok_and(|stream| self.tell_viewers.contains(stream)) {
            self.set_watching(id, Watching::Told);
            self.tell(ToControl::PlayStarted { session, request: Some(request(&ask, peer)) });
        }
        self.answer_subscribe(id, Box::new(ask), stream);
    }

    /// Who may play and finds nothing may have started it.
    fn answer_subscribe(&mut self, id: ConnId, ask: Box<PlayAsk>, stream: Result<StreamId, NoSubscription>) {
        if stream != Err(NoSubscription::NotFound) || !self.hold(id, ask) {
            self.subscribe_verdict(id, stream);
        }
    }

    /// Whether control has to be asked.
    fn gate(&self, ask: &PlayAsk) -> Result<bool, NoSubscription> {
        if self.draining {
            return Err(NoSubscription::Unavailable);
        }
        let app = self.apps.get(&ask.key.app).ok_or(NoSubscription::NotFound)?;
        if !(ask.format.kind().is_enabled)(app) {
            return Err(NoSubscription::Disabled);
        }
        // A subscriber may be blocked, or there often enough, whatever else is checked.
        Ok(app.security.play.any() || Credentials::of(&ask.params).subscriber.is_some())
    }

    fn serve(&mut self, id: ConnId, ask: &PlayAsk) -> Result<StreamId, NoSubscription> {
        let stream = *self.directory.get(&ask.key).ok_or(NoSubscription::NotFound)?;
        self.attach(id, stream, ask.format).ok_or(NoSubscription::Unavailable)?;
        Ok(stream)
    }

    fn subscribe_verdict(&mut self, id: ConnId, verdict: Result<StreamId, NoSubscription>) {
        let tracks = verdict.map(|stream| {
            self.streams.get(&stream).map(|stream| Arc::clone(stream.tracks())).unwrap_or_default()
        });
        self.call(id, |session, ctx| match tracks {
            Ok(tracks) => session.subscribe_verdict(ctx, Ok(&tracks)),
            Err(why) => session.subscribe_verdict(ctx, Err(why)),
        });
        self.note_authenticated(id);
        self.enqueue_write(id);
    }

    /// Control has decided.
    pub(super) fn play_verdict(&mut self, id: ConnId, verdict: Result<(), NoSubscription>) {
        let session = self.session_ref(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        // Who went meanwhile has said so.
        let asked = std::mem::replace(&mut conn.watching, Watching::Untold);
        let Watching::Asked(ask) = asked else {
            conn.watching = asked;
            return;
        };
        let granted = verdict.is_ok();
        let stream = verdict.and_then(|()| {
            if self.draining { Err(NoSubscription::Unavailable) } else { self.serve(id, &ask) }
        });
        if stream.is_ok() {
            self.set_watching(id, Watching::Told);
            self.tell(ToControl::PlayStarted { session, request: None });
        } else if granted {
            self.tell(ToControl::PlayEnded(session));
        }
        self.answer_subscribe(id, ask, stream);
        self.touch(id);
    }

    /// Tells control that a viewer is gone, if it knows of it.
    pub(super) fn unwatch(&mut self, id: ConnId) {
        let session = self.session_ref(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        match std::mem::replace(&mut conn.watching, Watching::Untold) {
            Watching::Untold => {}
            Watching::Asked(..) | Watching::Told => self.tell(ToControl::PlayEnded(session)),
        }
    }

    /// The viewer may play no longer. The unit begun is finished, then it is told goodbye.
    pub(super) fn drop_viewer(&mut self, id: ConnId, reason: &'static str) {
        let Some(conn) = self.conns.get(id) else { return };
        match conn.watching {
            Watching::Untold => return,
            Watching::Asked(..) => {
                self.unwatch(id);
                self.subscribe_verdict(id, Err(NoSubscription::Denied(Denial::Unsupported)));
            }
            Watching::Told => {
                self.call(id, |session, ctx| session.close(ctx, reason));
                self.unsubscribe_keeping_rest(id);
                self.unwatch(id);
            }
        }
        self.touch(id);
    }

    /// Whether a peer that closes its side now has no use for what it asked: RTMP has no half-closed connections, and
    /// who has sent an HTTP request may close its side and read on.
    pub fn waits_for_verdict(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(|conn| {
            let asks =
                matches!(&conn.watching, Watching::Asked(ask) if ask.format.kind().is_given_up_by_close);
            conn.publishing == Publishing::Asked || asks
        })
    }

    fn set_watching(&mut self, id: ConnId, watching: Watching) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.watching = watching;
        }
    }
}
