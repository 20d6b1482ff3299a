//! Answers to authenticated requests, at most twice as long as the request.

use std::net::SocketAddr;

use crate::stun::{Class, ErrorCode, Message, MessageWriter};

/// Buffer capacity for a typical answer, in bytes.
const ANSWER_BYTES: usize = 128;

/// Reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request has unknown comprehension-required attributes (RFC 8489 §6.3.1).
    UnknownAttributes,
    /// Both sides claim the same role (RFC 8445 §7.3.1.1).
    RoleConflict,
}

/// Returns a success answer, which contains the source address of the request (RFC 8445 §7.3.1.2).
pub(crate) fn succeed(request: &Message<'_>, from: SocketAddr, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ANSWER_BYTES);
    MessageWriter::new(&mut out, Class::Success, request.transaction_id()).mapped_address(from).finish(key);
    out
}

pub(crate) fn refuse(request: &Message<'_>, refusal: Refusal, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ANSWER_BYTES);
    let writer = MessageWriter::new(&mut out, Class::Error, request.transaction_id());
    match refusal {
        Refusal::UnknownAttributes => {
            writer.error_code(ErrorCode::UNKNOWN_ATTRIBUTE).unknown(request.unknown().iter()).finish(key)
        }
        Refusal::RoleConflict => writer.error_code(ErrorCode::ROLE_CONFLICT).finish(key),
    };
    out
}
