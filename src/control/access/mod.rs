//! Who may publish and play: the checks of an application that need memory (tokens that are used up, subscribers,
//! receivers that are asked), and who is there.
//!
//! 1. A request comes with the parameters of its peer. What memory answers is checked at once (`check_credentials`).
//! 2. A receiver is asked off this thread (`asks`); with its yes everything is checked again.
//! 3. The token is used up last and only once (`tokens`), the subscriber's connection counted (`presence`).

mod asks;
mod guesses;
mod presence;
mod subscribers;
mod tokens;

pub(super) use asks::Asks;
pub(super) use guesses::Guesses;
pub(super) use presence::Presences;
pub(super) use subscribers::Subscriber;
pub(super) use tokens::{Sweep, TOKENS_MAX, Token};

use std::net::IpAddr;
use std::sync::Arc;

use super::Control;
use crate::auth::access::{Credentials, Denial, Direction, Params, is_hash, is_jwt};
use crate::auth::time_code;
use crate::config::AppSettings;
use crate::mail::{NoSubscription, PlayRequest, ToWorker};
use crate::types::{Now, SessionRef, StreamKey};

impl Control {
    /// Everything that an application checks and memory can answer. Nothing is used up.
    pub(super) fn check_credentials(
        &self,
        now: Now,
        direction: Direction,
        app: &AppSettings,
        key: &StreamKey,
        params: &Params,
        peer: IpAddr,
    ) -> Result<(), Denial> {
        let shown = Credentials::of(params);
        let security = &app.security;
        let checks = match direction {
            Direction::Publish => &security.publish,
            Direction::Play => &security.play,
        };
        if let Some(id) = shown.subscriber
            && let Some(subscriber) = self.subscriber(key, id)
        {
            if subscriber.is_blocked(direction, now) {
                return Err(Denial::Blocked(id.to_owned()));
            }
            if !subscriber.has_room(self.connections_of(direction, key, id)) {
                return Err(Denial::Connections);
            }
        }
        if checks.time_code
            && (self.guesses.is_over(now, key, shown.subscriber, peer)
                || !self.is_time_code(now, direction, app, key, shown))
        {
            return Err(Denial::TimeCode);
        }
        if checks.token && self.valid_token(now, direction, key, shown.token).is_none() {
            return Err(Denial::Token);
        }
        if checks.hash && !is_hash(shown.token, &key.id, direction, &security.secrets.hash) {
            return Err(Denial::Hash);
        }
        if checks.jwt && !is_jwt(shown.token, &key.id, direction, &security.secrets.jwt, now.wall_ms) {
            return Err(Denial::Jwt);
        }
        Ok(())
    }

    /// The code of a subscriber: by its own secret where it has one, else by the application's.
    fn is_time_code(
        &self,
        now: Now,
        direction: Direction,
        app: &AppSettings,
        key: &StreamKey,
        shown: Credentials<'_>,
    ) -> bool {
        let (Some(id), Some(code)) = (shown.subscriber, shown.code) else { return false };
        let secrets = &app.security.secrets;
        let record = self.subscriber(key, id);
        if record.is_some_and(|record| !record.may(direction)) {
            return false;
        }
        let period = record.and_then(Subscriber::period).unwrap_or(secrets.time_code_period);
        let known = match record.and_then(|record| record.b32_secret.as_deref()) {
            Some(secret) => time_code::key_of_secret(secret),
            None => stranger_key(app, direction.word(), key, id),
        };
        known.is_some_and(|known| time_code::is_valid(&known, period, now.wall_ms, code))
    }

    /// A viewer asks.
    pub(super) fn play(&mut self, now: Now, request: PlayRequest) {
        let app = match self.admit_play(now, &request) {
            Ok(app) => app,
            Err(why) => {
                if why == NoSubscription::Denied(Denial::TimeCode) {
                    self.guesses.note(now, &request.key, &request.params, request.peer.ip());
                }
                return self.refuse_play(&request, why);
            }
        };
        match app.security.play.hook.clone() {
            Some(url) if self.is_watchable(&request.key) => self.ask_about_play(now, request, url),
            Some(_) | None => self.grant_play(now, request),
        }
    }

    fn admit_play(&self, now: Now, request: &PlayRequest) -> Result<Arc<AppSettings>, NoSubscription> {
        if self.drain.is_some() {
            return Err(NoSubscription::Unavailable);
        }
        let app = self.apps.get(&request.key.app).ok_or(NoSubscription::NotFound)?;
        let (key, params) = (&request.key, &request.params);
        self.check_credentials(now, Direction::Play, app, key, params, request.peer.ip())
            .map_err(NoSubscription::Denied)?;
        Ok(app.clone())
    }

    /// Whether a receiver need be asked: about what is live, or would be started by its viewer.
    fn is_watchable(&self, key: &StreamKey) -> bool {
        self.is_live(key) || self.records.get(key).is_some_and(|record| record.auto_start_stop_enabled)
    }

    /// Everything was asked.
    fn grant_play(&mut self, now: Now, request: PlayRequest) {
        let app = match self.admit_play(now, &request) {
            Ok(app) => app,
            Err(why) => return self.refuse_play(&request, why),
        };
        // Told only to who may play it, and no token is used up for what is not there.
        if !self.is_live(&request.key) {
            return self.refuse_play(&request, NoSubscription::NotFound);
        }
        if app.security.play.token && !self.burn_token(now, &request.key, &request.params) {
            return self.refuse_play(&request, NoSubscription::Denied(Denial::Token));
        }
        let session = request.session;
        self.viewer_admitted(request);
        self.play_verdict(session, Ok(()));
    }

    fn refuse_play(&mut self, request: &PlayRequest, why: NoSubscription) {
        if let NoSubscription::Denied(denial) = &why {
            let reason = denial.reason();
            tracing::info!(key = %request.key, peer = %request.peer, reason, "viewer refused");
        }
        self.play_verdict(request.session, Err(why));
    }

    fn play_verdict(&mut self, session: SessionRef, verdict: Result<(), NoSubscription>) {
        self.post(session.worker, ToWorker::PlayVerdict { conn: session.conn, verdict });
    }
}

/// The key behind the codes of a subscriber without a secret of its own; `None` when the application has none either.
pub(super) fn stranger_key(app: &AppSettings, kind: &str, key: &StreamKey, id: &str) -> Option<Vec<u8>> {
    let direction = if kind == Direction::Play.word() { Direction::Play } else { Direction::Publish };
    let secret = app.security.secrets.time_code(direction);
    (!secret.is_empty()).then(|| time_code::key_of_stranger(secret.reveal(), id, &key.id, kind))
}
