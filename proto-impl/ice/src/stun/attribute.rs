//! Attributes (RFC 8489 §14, RFC 8445 §16.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::Reader;

use super::{MAGIC_COOKIE, TransactionId};
use crate::error::Error;
use crate::limits::UNKNOWN_MAX;

/// Type of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeType(pub u16);

impl AttributeType {
    /// Address of the requester (RFC 8489 §14.1).
    pub const MAPPED_ADDRESS: Self = Self(0x0001);
    /// User name (RFC 8489 §14.3).
    pub const USERNAME: Self = Self(0x0006);
    /// HMAC of the message (RFC 8489 §14.5).
    pub const MESSAGE_INTEGRITY: Self = Self(0x0008);
    /// Error code and reason (RFC 8489 §14.8).
    pub const ERROR_CODE: Self = Self(0x0009);
    /// Unknown attributes of a request (RFC 8489 §14.13).
    pub const UNKNOWN_ATTRIBUTES: Self = Self(0x000a);
    /// Realm (RFC 8489 §14.9); unused in ICE, but no reason to refuse a request.
    pub const REALM: Self = Self(0x0014);
    /// Nonce (RFC 8489 §14.10); unused in ICE, but, like [`AttributeType::REALM`], no reason to refuse a
    /// request.
    pub const NONCE: Self = Self(0x0015);
    /// HMAC with SHA-256 (RFC 8489 §14.6); ignored, since ICE only negotiates SHA-1.
    pub const MESSAGE_INTEGRITY_SHA256: Self = Self(0x001c);
    /// Obfuscated address of the requester (RFC 8489 §14.2).
    pub const XOR_MAPPED_ADDRESS: Self = Self(0x0020);
    /// Priority of a peer-reflexive candidate (RFC 8445 §16.1).
    pub const PRIORITY: Self = Self(0x0024);
    /// Nomination of the pair (RFC 8445 §16.1).
    pub const USE_CANDIDATE: Self = Self(0x0025);
    /// Name of the sender's software (RFC 8489 §14.14).
    pub const SOFTWARE: Self = Self(0x8022);
    /// CRC-32 of the message (RFC 8489 §14.7).
    pub const FINGERPRINT: Self = Self(0x8028);
    /// The sender is the controlled agent (RFC 8445 §16.1).
    pub const ICE_CONTROLLED: Self = Self(0x8029);
    /// The sender is the controlling agent (RFC 8445 §16.1).
    pub const ICE_CONTROLLING: Self = Self(0x802a);
    /// Counter of nominations (draft-thatcher-ice-renomination), which Chromium sends once negotiated.
    pub const NOMINATION: Self = Self(0xc001);
    /// Chromium's network id and cost, draft-thatcher-ice-network-cost.
    pub const NETWORK_COST: Self = Self(0xc057);

    /// True if a receiver that does not know the attribute must refuse the request (RFC 8489 §14).
    #[must_use]
    pub const fn is_required(self) -> bool {
        self.0 < 0x8000
    }

    /// True if the attribute is no reason to refuse a request.
    const fn is_known(self) -> bool {
        matches!(
            self,
            Self::MAPPED_ADDRESS
                | Self::USERNAME
                | Self::MESSAGE_INTEGRITY
                | Self::ERROR_CODE
                | Self::UNKNOWN_ATTRIBUTES
                | Self::REALM
                | Self::NONCE
                | Self::MESSAGE_INTEGRITY_SHA256
                | Self::XOR_MAPPED_ADDRESS
                | Self::PRIORITY
                | Self::USE_CANDIDATE
        )
    }

    pub(super) const fn is_unknown(self) -> bool {
        self.is_required() && !self.is_known()
    }
}

/// An attribute as encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawAttribute<'a> {
    /// Type of the attribute.
    pub kind: AttributeType,
    /// Value without padding.
    pub value: &'a [u8],
}

/// Iterates over attributes, up to the first truncated one.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    reader: Reader<'a>,
}

impl<'a> Attributes<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes) }
    }

    /// Offset of the next attribute.
    pub(super) const fn position(&self) -> usize {
        self.reader.position()
    }

    /// Reads the next attribute; `None` at the end.
    pub(super) fn read(&mut self) -> Result<Option<RawAttribute<'a>>, Error> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let kind = AttributeType(self.reader.u16()?);
        let length = usize::from(self.reader.u16()?);
        let value = self.reader.take(length)?;
        self.reader.take(padding(length))?;
        Ok(Some(RawAttribute { kind, value }))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = RawAttribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().ok().flatten()
    }
}

/// Returns the number of bytes to the next multiple of four (RFC 8489 §14).
pub(super) const fn padding(length: usize) -> usize {
    (4 - length % 4) % 4
}

/// Role claimed in a check, with the tie-breaker (RFC 8445 §7.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleAttribute {
    /// ICE-CONTROLLING.
    Controlling(u64),
    /// ICE-CONTROLLED.
    Controlled(u64),
}

/// Code of an error answer (RFC 8489 §14.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u16);

impl ErrorCode {
    /// Bad Request.
    pub const BAD_REQUEST: Self = Self(400);
    /// Unauthenticated.
    pub const UNAUTHENTICATED: Self = Self(401);
    /// Forbidden (RFC 8656 §19).
    pub const FORBIDDEN: Self = Self(403);
    /// Unknown Attribute.
    pub const UNKNOWN_ATTRIBUTE: Self = Self(420);
    /// Allocation Mismatch (RFC 8656 §19).
    pub const ALLOCATION_MISMATCH: Self = Self(437);
    /// Stale Nonce.
    pub const STALE_NONCE: Self = Self(438);
    /// Address Family not Supported (RFC 8656 §19).
    pub const FAMILY_NOT_SUPPORTED: Self = Self(440);
    /// Wrong Credentials (RFC 8656 §19).
    pub const WRONG_CREDENTIALS: Self = Self(441);
    /// Unsupported Transport Protocol (RFC 8656 §19).
    pub const TRANSPORT_NOT_SUPPORTED: Self = Self(442);
    /// Peer Address Family Mismatch (RFC 8656 §19).
    pub const FAMILY_MISMATCH: Self = Self(443);
    /// Allocation Quota Reached (RFC 8656 §19).
    pub const QUOTA_REACHED: Self = Self(486);
    /// Role Conflict (RFC 8445 §7.3.1.1).
    pub const ROLE_CONFLICT: Self = Self(487);
    /// Insufficient Capacity (RFC 8656 §19).
    pub const INSUFFICIENT_CAPACITY: Self = Self(508);

    /// Returns the reason phrase; phrases are short to keep answers small.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::BAD_REQUEST => "Bad Request",
            Self::UNAUTHENTICATED => "Unauthenticated",
            Self::FORBIDDEN => "Forbidden",
            Self::UNKNOWN_ATTRIBUTE => "Unknown Attribute",
            Self::ALLOCATION_MISMATCH => "Allocation Mismatch",
            Self::STALE_NONCE => "Stale Nonce",
            Self::FAMILY_NOT_SUPPORTED => "Address Family not Supported",
            Self::WRONG_CREDENTIALS => "Wrong Credentials",
            Self::TRANSPORT_NOT_SUPPORTED => "Unsupported Transport Protocol",
            Self::FAMILY_MISMATCH => "Peer Address Family Mismatch",
            Self::QUOTA_REACHED => "Allocation Quota Reached",
            Self::ROLE_CONFLICT => "Role Conflict",
            Self::INSUFFICIENT_CAPACITY => "Insufficient Capacity",
            Self(_) => "",
        }
    }

    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let mut r = Reader::new(value);
        let (_, class, number) = (r.u16().ok()?, r.u8().ok()? & 0x07, r.u8().ok()?);
        let valid = (3..=6).contains(&class) && number < 100;
        valid.then(|| Self(u16::from(class) * 100 + u16::from(number)))
    }

    /// Returns the first four bytes of the value of ERROR-CODE. The reason phrase follows them.
    #[must_use]
    pub fn head(self) -> [u8; 4] {
        let part = |number: u16| u8::try_from(number).unwrap_or(0);
        [0, 0, part(self.0 / 100), part(self.0 % 100)]
    }
}

/// The unknown comprehension-required attributes of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnknownAttributes {
    kinds: [u16; UNKNOWN_MAX],
    count: usize,
}

impl UnknownAttributes {
    pub(super) fn push(&mut self, kind: AttributeType) {
        if let Some(slot) = self.kinds.get_mut(self.count) {
            *slot = kind.0;
            self.count += 1;
        }
    }

    /// True if the message has no unknown comprehension-required attributes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the attributes, at most the first [`UNKNOWN_MAX`].
    pub fn iter(&self) -> impl Iterator<Item = AttributeType> + '_ {
        self.kinds.iter().take(self.count).map(|kind| AttributeType(*kind))
    }
}

/// Reads an address in the format of XOR-MAPPED-ADDRESS (RFC 8489 §14.2) from a message of this transaction.
/// `None` if it is malformed.
#[must_use]
pub fn read_address(value: &[u8], id: TransactionId) -> Option<SocketAddr> {
    let mut r = Reader::new(value);
    let (_, family) = (r.u8().ok()?, r.u8().ok()?);
    let port = r.u16().ok()? ^ cookie_high();
    let ip: IpAddr = match family {
        1 => Ipv4Addr::from(r.u32().ok()? ^ MAGIC_COOKIE).into(),
        2 => Ipv6Addr::from(u128::from_be_bytes(r.array().ok()?) ^ mask(id)).into(),
        _ => return None,
    };
    r.is_empty().then(|| SocketAddr::new(ip, port))
}

/// Writes an address in the format of XOR-MAPPED-ADDRESS. An IPv4-mapped IPv6 address, from a dual-stack
/// socket, is written as IPv4.
pub(super) fn write_address(address: SocketAddr, id: TransactionId, out: &mut Vec<u8>) {
    let port = (address.port() ^ cookie_high()).to_be_bytes();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            out.extend_from_slice(&[0, 1]);
            out.extend_from_slice(&port);
            out.extend_from_slice(&(u32::from(ip) ^ MAGIC_COOKIE).to_be_bytes());
        }
        IpAddr::V6(ip) => {
            out.extend_from_slice(&[0, 2]);
            out.extend_from_slice(&port);
            out.extend_from_slice(&(u128::from(ip) ^ mask(id)).to_be_bytes());
        }
    }
}

const fn cookie_high() -> u16 {
    let [a, b, _, _] = MAGIC_COOKIE.to_be_bytes();
    u16::from_be_bytes([a, b])
}

/// Returns the XOR mask of IPv6 addresses: the magic cookie, then the transaction id.
fn mask(id: TransactionId) -> u128 {
    id.0.iter().fold(u128::from(MAGIC_COOKIE), |mask, byte| (mask << 8) | u128::from(*byte))
}
