//! The part of the server's control that reads bodies.

mod reading;

use bytes::Bytes;

use crate::http::Request;

#[path = "../../../src/control/broadcast.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses the rest")]
pub(crate) mod broadcast;
#[path = "../../../src/control/from_json.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses the rest")]
mod from_json;
#[path = "../../../src/control/json_text.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses the rest")]
mod json_text;

/// Returns the parts of a form that have one of a few fixed names.
pub(crate) fn parts_of(request: &Request) -> Option<Vec<Bytes>> {
    reading::parts_of(request)
}
