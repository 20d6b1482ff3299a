//! Events from players (`POST /{app}/analytic/events/...`, docs/rest.md), counted by event and technology. No data of a
//! viewer is kept.

use serde::Deserialize;

use super::call::{Call, Reply, bad_request};
use crate::auth::jwt;
use crate::control::Now;
use crate::control::answer::Outcome;
use crate::control::broadcast::parse_json;
use crate::control::from_json::loose;
use crate::control::stats::Figures;
use crate::http::Response;

/// The body of an event; its other members are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Event {
    #[serde(deserialize_with = "loose")]
    event: Option<String>,
    #[serde(deserialize_with = "loose")]
    protocol: Option<String>,
    #[serde(deserialize_with = "loose")]
    token: Option<String>,
    #[serde(deserialize_with = "loose")]
    watch_time_ms: Option<i64>,
}

impl Event {
    /// Parses the body of a request; if it cannot be read, the error is the answer to send.
    fn of(now: Now, call: &Call<'_>) -> Result<Self, Reply> {
        let event: Self = match parse_json(&call.request.body) {
            Ok(event) => event.unwrap_or_default(),
            Err(_) => return Err(bad_request("The event cannot be read")),
        };
        if call.app.values.boolean("secureAnalyticEndpoint").unwrap_or(false) {
            let secret = call.app.values.text("jwtSecretKey").as_bytes();
            let token = event.token.as_deref().unwrap_or_default();
            if secret.len() < jwt::SECRET_BYTES_MIN || jwt::verify(token, secret, now.wall_ms).is_err() {
                return Err(Reply::Now(Response::empty(401)));
            }
        }
        Ok(event)
    }

    fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or_default()
    }
}

/// `POST /events/play`.
pub(super) fn play(figures: &mut Figures, now: Now, call: &Call<'_>) -> Reply {
    let event = match Event::of(now, call) {
        Ok(event) => event,
        Err(refusal) => return refusal,
    };
    figures.players.event(event.event.as_deref().unwrap_or_default(), event.protocol());
    Reply::Now(Outcome::success().response(200))
}

/// `POST /events/watch-time`.
pub(super) fn watch_time(figures: &mut Figures, now: Now, call: &Call<'_>) -> Reply {
    let event = match Event::of(now, call) {
        Ok(event) => event,
        Err(refusal) => return refusal,
    };
    figures.players.watched(event.watch_time_ms.unwrap_or(0), event.protocol());
    Reply::Now(Outcome::success().response(200))
}
