//! The small operations of the server itself (docs/rest.md).

use super::call::{Call, Reply, RootCall};
use crate::control::answer::{Version, json};
use crate::control::context::Context;
use crate::control::stats::Figures;
use crate::control::{Control, Now};
use crate::http::Response;
use crate::types::build;

/// `GET /metrics`.
pub(super) fn metrics(cx: &mut Context, figures: &mut Figures, call: &RootCall<'_>) -> Reply {
    figures.metrics(cx, call.origin.requester, call.request)
}

/// `GET /openapi.json`.
pub(super) fn openapi(control: &mut Control, _: Now, _: &RootCall<'_>) -> Reply {
    Reply::Now(Response::json(200, control.openapi()))
}

/// `GET /openapi.json` of an application.
pub(super) fn app_openapi(control: &mut Control, _: Now, call: &Call<'_>) -> Reply {
    Reply::Now(Response::json(200, control.app_openapi(&call.app.name)))
}

/// Version in answers. The edition is `Enterprise Edition`: for any other, panels disable operations that this
/// server has.
pub(super) const VERSION: Version =
    Version { name: build::VERSION, kind: "Enterprise Edition", build: build::NUMBER };

/// `GET /version`.
pub(super) fn version() -> Reply {
    Reply::Now(json(200, &VERSION))
}

/// `GET /version` of an application.
pub(super) fn app_version() -> Reply {
    Reply::Now(json(200, &VERSION))
}
