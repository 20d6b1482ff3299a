//! Writing messages.

use std::net::SocketAddr;

use super::attribute::{RoleAttribute, padding, write_address};
use super::integrity::{fingerprint, integrity};
use super::{AttributeType, BINDING, Class, ErrorCode, HEADER_BYTES, MAGIC_COOKIE, TransactionId};

/// Appends a message to a buffer. A value too long for its length field is truncated.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    id: TransactionId,
}

impl<'a> MessageWriter<'a> {
    /// Begins a Binding message at the end of `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, class: Class, id: TransactionId) -> Self {
        Self::of_method(out, BINDING, class, id)
    }

    /// Begins a message of this method (12 bits; RFC 8489 §5) at the end of `out`.
    #[must_use]
    pub fn of_method(out: &'a mut Vec<u8>, method: u16, class: Class, id: TransactionId) -> Self {
        let start = out.len();
        let spread = (method & 0x000f) | ((method & 0x0070) << 1) | ((method & 0x0f80) << 2);
        out.extend_from_slice(&(spread | class.bits()).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&MAGIC_COOKIE.to_be_bytes());
        out.extend_from_slice(&id.0);
        Self { out, start, id }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attribute(self, kind: AttributeType, value: &[u8]) -> Self {
        self.made(kind, |out| out.extend_from_slice(value))
    }

    /// Appends the USERNAME of a check: the receiver's fragment, and the sender's (RFC 8445 §7.2.2).
    #[must_use]
    pub fn username(self, receiver: &str, sender: &str) -> Self {
        self.made(AttributeType::USERNAME, |out| {
            out.extend_from_slice(receiver.as_bytes());
            out.push(b':');
            out.extend_from_slice(sender.as_bytes());
        })
    }

    /// Adds XOR-MAPPED-ADDRESS.
    #[must_use]
    pub fn mapped_address(self, address: SocketAddr) -> Self {
        self.xor_address(AttributeType::XOR_MAPPED_ADDRESS, address)
    }

    /// Adds an attribute with the format of XOR-MAPPED-ADDRESS (RFC 8489 §14.2), for example the address attributes of
    /// TURN (RFC 8656 §18.3, §18.5).
    #[must_use]
    pub fn xor_address(self, kind: AttributeType, address: SocketAddr) -> Self {
        let id = self.id;
        self.made(kind, |out| write_address(address, id, out))
    }

    /// Adds PRIORITY.
    #[must_use]
    pub fn priority(self, priority: u32) -> Self {
        self.attribute(AttributeType::PRIORITY, &priority.to_be_bytes())
    }

    /// Adds USE-CANDIDATE if `nominate` is true.
    #[must_use]
    pub fn use_candidate(self, nominate: bool) -> Self {
        if nominate { self.attribute(AttributeType::USE_CANDIDATE, &[]) } else { self }
    }

    /// Adds ICE-CONTROLLING or ICE-CONTROLLED.
    #[must_use]
    pub fn role(self, role: RoleAttribute) -> Self {
        let (kind, tie_breaker) = match role {
            RoleAttribute::Controlling(tie_breaker) => (AttributeType::ICE_CONTROLLING, tie_breaker),
            RoleAttribute::Controlled(tie_breaker) => (AttributeType::ICE_CONTROLLED, tie_breaker),
        };
        self.attribute(kind, &tie_breaker.to_be_bytes())
    }

    /// Adds ERROR-CODE with its reason phrase.
    #[must_use]
    pub fn error_code(self, code: ErrorCode) -> Self {
        self.made(AttributeType::ERROR_CODE, |out| {
            out.extend_from_slice(&code.head());
            out.extend_from_slice(code.reason().as_bytes());
        })
    }

    /// Adds UNKNOWN-ATTRIBUTES.
    #[must_use]
    pub fn unknown(self, kinds: impl Iterator<Item = AttributeType>) -> Self {
        self.made(AttributeType::UNKNOWN_ATTRIBUTES, |out| {
            kinds.for_each(|kind| out.extend_from_slice(&kind.0.to_be_bytes()));
        })
    }

    /// Ends the message with a MESSAGE-INTEGRITY computed with `key` and a FINGERPRINT. Returns the length of
    /// the message.
    pub fn finish(self, key: &[u8]) -> usize {
        let at = self.out.len().saturating_sub(self.start);
        let own = self.out.get(self.start..).and_then(|bytes| integrity(bytes, at, key)).unwrap_or_default();
        self.attribute(AttributeType::MESSAGE_INTEGRITY, &own).finish_open()
    }

    /// Ends the message with a FINGERPRINT only, for requests to a STUN server. Returns the length of the
    /// message.
    pub fn finish_open(self) -> usize {
        let this = self.attribute(AttributeType::FINGERPRINT, &[0; 4]);
        let covered = this.out.len().saturating_sub(8);
        let sum = this.out.get(this.start..covered).map(fingerprint).unwrap_or_default();
        if let Some(value) = this.out.last_chunk_mut::<4>() {
            *value = sum.to_be_bytes();
        }
        this.out.len().saturating_sub(this.start)
    }

    fn made(self, kind: AttributeType, make: impl FnOnce(&mut Vec<u8>)) -> Self {
        self.out.extend_from_slice(&kind.0.to_be_bytes());
        let length_at = self.out.len();
        self.out.extend_from_slice(&[0, 0]);
        let value_at = self.out.len();
        make(self.out);
        let length = self.out.len().saturating_sub(value_at).min(usize::from(u16::MAX));
        self.out.truncate(value_at.saturating_add(length));
        self.out.extend(std::iter::repeat_n(0, padding(length)));
        put(self.out, length_at, length);
        let body = self.out.len().saturating_sub(self.start).saturating_sub(HEADER_BYTES);
        put(self.out, self.start.saturating_add(2), body);
        self
    }
}

fn put(out: &mut [u8], at: usize, length: usize) {
    if let Some(field) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *field = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    }
}
