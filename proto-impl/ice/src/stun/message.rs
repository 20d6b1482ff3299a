//! Parsing of received messages.

use std::net::SocketAddr;

use wire::Reader;

use super::attribute::{Attributes, ErrorCode, RoleAttribute, UnknownAttributes, read_address};
use super::integrity::{INTEGRITY_BYTES, fingerprint, verify};
use super::{AttributeType, HEADER_BYTES, MAGIC_COOKIE, RawAttribute};
use crate::error::Error;
use crate::limits::{ATTRIBUTES_MAX, STUN_BYTES_MAX};

/// Transaction id: 96 bits that match an answer to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId(pub [u8; 12]);

/// The class of a message (RFC 8489 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A request, which expects an answer.
    Request,
    /// An indication, which expects no answer.
    Indication,
    /// A success response.
    Success,
    /// An error response.
    Error,
}

impl Class {
    pub(super) const fn bits(self) -> u16 {
        match self {
            Self::Request => 0x0000,
            Self::Indication => 0x0010,
            Self::Success => 0x0100,
            Self::Error => 0x0110,
        }
    }

    const fn of(kind: u16) -> Self {
        match kind & 0x0110 {
            0x0000 => Self::Request,
            0x0010 => Self::Indication,
            0x0100 => Self::Success,
            _ => Self::Error,
        }
    }
}

/// True if a datagram is STUN, on a port shared with other protocols (RFC 7983 §7: the first byte is 0 to 3).
#[must_use]
pub fn is_stun(datagram: &[u8]) -> bool {
    matches!(datagram, [0..=3, ..]) && datagram.len() >= HEADER_BYTES
}

/// Returns the receiver's user name fragment in a request, without any cryptography, so that the session can be
/// found on a shared port. `None` unless the datagram is a request with a user name. Reads at most
/// [`ATTRIBUTES_MAX`] attributes.
#[must_use]
pub fn username_fragment(datagram: &[u8]) -> Option<&[u8]> {
    let head = Head::read(datagram).ok().filter(|head| head.class == Class::Request)?;
    let mut attributes = Attributes::new(head.body);
    for _ in 0..ATTRIBUTES_MAX {
        let attribute = attributes.read().ok().flatten()?;
        match attribute.kind {
            AttributeType::USERNAME => return before_colon(attribute.value),
            // Attributes after MESSAGE-INTEGRITY are ignored, so a user name there does not count.
            AttributeType::MESSAGE_INTEGRITY => return None,
            _ => {}
        }
    }
    None
}

fn before_colon(username: &[u8]) -> Option<&[u8]> {
    let mut parts = username.splitn(2, |byte| *byte == b':');
    let ufrag = parts.next()?;
    parts.next().map(|_| ufrag)
}

struct Head<'a> {
    class: Class,
    method: u16,
    id: TransactionId,
    body: &'a [u8],
}

impl<'a> Head<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() > STUN_BYTES_MAX {
            return Err(Error::TooLong { length: bytes.len() });
        }
        let mut r = Reader::new(bytes);
        let kind = r.u16()?;
        let length = usize::from(r.u16()?);
        let cookie = r.u32()?;
        let id = TransactionId(r.array()?);
        // RFC 8489 §5, §6.3: two zero bits, the cookie, a length that is a multiple of four. A datagram
        // contains exactly one message.
        let fits = length.is_multiple_of(4) && length == r.remaining();
        if kind & 0xc000 != 0 || cookie != MAGIC_COOKIE || !fits {
            return Err(Error::NotStun);
        }
        let method = (kind & 0x000f) | ((kind & 0x00e0) >> 1) | ((kind & 0x3e00) >> 2);
        Ok(Self { class: Class::of(kind), method, id, body: r.rest() })
    }
}

/// A view of a datagram that is one STUN message. A FINGERPRINT, if present, has been verified.
/// MESSAGE-INTEGRITY has not been verified; see [`Message::is_authentic`].
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    bytes: &'a [u8],
    body: &'a [u8],
    class: Class,
    method: u16,
    id: TransactionId,
    integrity_at: Option<usize>,
    has_fingerprint: bool,
    username: Option<&'a [u8]>,
    mapped: Option<SocketAddr>,
    priority: Option<u32>,
    use_candidate: bool,
    role: Option<RoleAttribute>,
    error: Option<ErrorCode>,
    unknown: UnknownAttributes,
}

impl<'a> Message<'a> {
    /// Parses a datagram.
    ///
    /// # Errors
    ///
    /// Fails if the datagram is not STUN, is truncated, exceeds a limit, has a malformed known attribute, or
    /// has a wrong FINGERPRINT.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let head = Head::read(bytes)?;
        let mut message = Self {
            bytes,
            body: head.body,
            class: head.class,
            method: head.method,
            id: head.id,
            integrity_at: None,
            has_fingerprint: false,
            username: None,
            mapped: None,
            priority: None,
            use_candidate: false,
            role: None,
            error: None,
            unknown: UnknownAttributes::default(),
        };
        message.read_attributes()?;
        Ok(message)
    }

    fn read_attributes(&mut self) -> Result<(), Error> {
        let mut attributes = Attributes::new(self.body);
        let mut count = 0;
        loop {
            let at = HEADER_BYTES.saturating_add(attributes.position());
            let Some(attribute) = attributes.read()? else { return Ok(()) };
            count += 1;
            if count > ATTRIBUTES_MAX {
                return Err(Error::TooManyAttributes);
            }
            if self.has_fingerprint {
                return Err(Error::AfterFingerprint);
            }
            if attribute.kind == AttributeType::FINGERPRINT {
                self.check_fingerprint(attribute.value, at)?;
            } else if self.integrity_at.is_none() {
                self.take(attribute, at).ok_or(Error::Attribute(attribute.kind))?;
            }
        }
    }

    fn check_fingerprint(&mut self, value: &[u8], at: usize) -> Result<(), Error> {
        let malformed = Error::Attribute(AttributeType::FINGERPRINT);
        let value = <[u8; 4]>::try_from(value).map_err(|_| malformed)?;
        let own = fingerprint(self.bytes.get(..at).ok_or(malformed)?);
        if u32::from_be_bytes(value) != own {
            return Err(Error::Fingerprint);
        }
        self.has_fingerprint = true;
        Ok(())
    }

    /// Stores a known attribute, unless the message has an earlier one of this type. `None` if the attribute
    /// is malformed.
    fn take(&mut self, attribute: RawAttribute<'a>, at: usize) -> Option<()> {
        let RawAttribute { kind, value } = attribute;
        match kind {
            AttributeType::USERNAME => self.username = self.username.or(Some(value)),
            AttributeType::MESSAGE_INTEGRITY => {
                self.integrity_at = Some(at).filter(|_| value.len() == INTEGRITY_BYTES);
                self.integrity_at?;
            }
            AttributeType::XOR_MAPPED_ADDRESS => {
                let address = read_address(value, self.id)?;
                self.mapped = self.mapped.or(Some(address));
            }
            AttributeType::PRIORITY => {
                let priority = u32::from_be_bytes(value.try_into().ok()?);
                self.priority = self.priority.or(Some(priority));
            }
            AttributeType::USE_CANDIDATE if value.is_empty() => self.use_candidate = true,
            AttributeType::USE_CANDIDATE => return None,
            AttributeType::ICE_CONTROLLED | AttributeType::ICE_CONTROLLING => {
                let tie_breaker = u64::from_be_bytes(value.try_into().ok()?);
                let role = if kind == AttributeType::ICE_CONTROLLED {
                    RoleAttribute::Controlled(tie_breaker)
                } else {
                    RoleAttribute::Controlling(tie_breaker)
                };
                self.role = self.role.or(Some(role));
            }
            AttributeType::ERROR_CODE => {
                let error = ErrorCode::read(value)?;
                self.error = self.error.or(Some(error));
            }
            kind if kind.is_unknown() => self.unknown.push(kind),
            _ => {}
        }
        Some(())
    }

    /// True if the message has a MESSAGE-INTEGRITY computed with `key` (a password, RFC 8489 §9.1.1). Costs one
    /// HMAC-SHA1.
    #[must_use]
    pub fn is_authentic(&self, key: &[u8]) -> bool {
        self.integrity_at.is_some_and(|at| verify(self.bytes, at, key))
    }

    /// True if the message has a MESSAGE-INTEGRITY, valid or not.
    #[must_use]
    pub const fn has_integrity(&self) -> bool {
        self.integrity_at.is_some()
    }

    /// True if the message has a FINGERPRINT; it has already been verified.
    #[must_use]
    pub const fn has_fingerprint(&self) -> bool {
        self.has_fingerprint
    }

    /// Class of the message.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Method; [`super::BINDING`] in ICE.
    #[must_use]
    pub const fn method(&self) -> u16 {
        self.method
    }

    /// Transaction id, which matches answers to requests.
    #[must_use]
    pub const fn transaction_id(&self) -> TransactionId {
        self.id
    }

    /// Value of USERNAME.
    #[must_use]
    pub const fn username(&self) -> Option<&'a [u8]> {
        self.username
    }

    /// Value of XOR-MAPPED-ADDRESS.
    #[must_use]
    pub const fn mapped_address(&self) -> Option<SocketAddr> {
        self.mapped
    }

    /// Value of PRIORITY.
    #[must_use]
    pub const fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// True if the message has USE-CANDIDATE.
    #[must_use]
    pub const fn use_candidate(&self) -> bool {
        self.use_candidate
    }

    /// Value of ICE-CONTROLLING or ICE-CONTROLLED.
    #[must_use]
    pub const fn role(&self) -> Option<RoleAttribute> {
        self.role
    }

    /// Value of ERROR-CODE.
    #[must_use]
    pub const fn error_code(&self) -> Option<ErrorCode> {
        self.error
    }

    /// Unknown attributes for which a request must be refused with error 420.
    #[must_use]
    pub const fn unknown(&self) -> &UnknownAttributes {
        &self.unknown
    }

    /// Iterates over all attributes in order, including those that are ignored.
    #[must_use]
    pub const fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.body)
    }
}
