//! Answers to requests.

use ice::stun::{AttributeType, Class, ErrorCode, MessageWriter};

use crate::credentials::Key;
use crate::request::Request;

/// A realm and a new nonce.
pub(crate) type Challenge<'a> = (&'a str, String);

/// Begins an answer to a request.
pub(crate) fn begin<'o>(out: &'o mut Vec<u8>, request: &Request<'_>, class: Class) -> MessageWriter<'o> {
    let message = &request.message;
    MessageWriter::of_method(out, message.method(), class, message.transaction_id())
}

/// Writes an error answer. With `key`, the answer to an authenticated client is authenticated; other answers
/// have no integrity. `challenge` is included if the answer requests credentials or another nonce.
pub(crate) fn refuse(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    code: ErrorCode,
    key: Option<Key>,
    challenge: Option<Challenge<'_>>,
) {
    let mut writer = begin(out, request, Class::Error).error_code(code);
    if code == ErrorCode::UNKNOWN_ATTRIBUTE {
        writer = writer.unknown(request.unknown.iter().take(ice::limits::UNKNOWN_MAX).copied());
    }
    if let Some((realm, nonce)) = challenge {
        writer = writer
            .attribute(AttributeType::REALM, realm.as_bytes())
            .attribute(AttributeType::NONCE, nonce.as_bytes());
    }
    match key {
        Some(key) => writer.finish(&key),
        None => writer.finish_open(),
    };
}

/// True if an error answer with this code contains a realm and a nonce (RFC 8489 §9.2.4).
pub(crate) fn is_challenge(code: ErrorCode) -> bool {
    code == ErrorCode::UNAUTHENTICATED || code == ErrorCode::STALE_NONCE
}
