//! The hot steps alone: chunks to messages, a unit to bytes, the ring to a thousand viewers, a request to its parts.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
fn main() {}
