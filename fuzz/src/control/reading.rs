//! Opens modules that are private to control's API, so that the targets can call them.

use bytes::Bytes;

use crate::http::Request;

#[path = "../../../src/control/rest/form.rs"]
#[allow(dead_code, reason = "the server uses the rest")]
mod form;

/// Returns the parts of a form that have one of a few fixed names.
pub(super) fn parts_of(request: &Request) -> Option<Vec<Bytes>> {
    let form = form::Form::parse(request)?;
    Some(["", "a", "b", "fullChainFile"].into_iter().filter_map(|name| form.part(name)).collect())
}
