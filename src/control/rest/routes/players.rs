//! Operations for players, below `/{app}/analytic`, open to everybody.

use crate::control::rest::call::AppHandler;
use crate::control::rest::players;
use crate::control::rest::route::{Base, BodyKind, Handler, Policy, Route};
use crate::http::Method;

const fn event(path: &'static str, handler: AppHandler, summary: &'static str) -> Route {
    Route {
        method: Method::Post,
        base: Base::Players,
        path,
        policy: Policy::Open,
        body: BodyKind::Json,
        takes: "PlayerEvent",
        gives: "Result",
        query: &[],
        gives_credential: false,
        at_origin: false,
        tag: "players",
        summary,
        handler: Handler::App(handler),
    }
}

/// Routes for players.
pub(super) const ROUTES: &[Route] = &[
    event(
        "/events/play",
        |control, now, call| players::play(&mut control.figures, now, call),
        "Report that a viewer started, paused or ended",
    ),
    event(
        "/events/watch-time",
        |control, now, call| players::watch_time(&mut control.figures, now, call),
        "Report how long a viewer has watched",
    ),
];
