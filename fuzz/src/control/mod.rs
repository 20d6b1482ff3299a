//! The part of the server's control that reads bodies.

#[path = "../../../src/control/broadcast.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses the rest")]
pub(crate) mod broadcast;
