//! Draining before a shutdown, and the check that load balancers use (docs/operations.md).

use serde_json::json;

use super::call::Reply;
use crate::control::answer::json as object;
use crate::control::context::Context;
use crate::control::leaving::Sessions;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::{Now, Outbound};

/// Time after which a refused load balancer or client should ask again, in seconds.
const RETRY_AFTER: &str = "5";

/// `GET /drain`.
pub(super) fn state(cx: &Context, left: Sessions, now: Now) -> Reply {
    let Sessions { publishers, viewers, sources } = left;
    let leaving = cx.leaving.as_ref();
    Reply::Now(object(
        200,
        &json!({
            "draining": cx.lets_in_nothing(),
            "since": leaving.map(|leaving| leaving.since_ms),
            "leftMs": leaving.and_then(|leaving| leaving.left_ms(now.mono)),
            "publishers": publishers,
            "viewers": viewers,
            "sources": sources,
        }),
    ))
}

/// `POST /drain` begins a drain, `DELETE /drain` cancels it.
pub(super) fn order(
    cx: &mut Context,
    registry: &mut Registry,
    outbound: &Outbound,
    now: Now,
    is_leaving: bool,
) -> Reply {
    Reply::Now(outbound.drain(cx, registry, now, is_leaving).response(200))
}

/// `GET /readiness`: 200 while new publishers and viewers are admitted, else 503.
pub(super) fn readiness(cx: &Context, records: &Records) -> Reply {
    let status = match (records.writes.is_gone(), cx.lets_in_nothing()) {
        (true, _) => "error",
        (false, true) => "draining",
        (false, false) => return Reply::Now(object(200, &json!({ "status": "ready" }))),
    };
    Reply::Now(object(503, &json!({ "status": status })).header("Retry-After", RETRY_AFTER))
}
