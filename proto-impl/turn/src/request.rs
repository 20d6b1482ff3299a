//! A message of a client: its TURN attributes, and its authentication.

use std::net::SocketAddr;
use std::time::Instant;

use ice::stun::{AttributeType, Class, ErrorCode, Message, read_address};

use crate::attribute::{
    self, ADDITIONAL_ADDRESS_FAMILY, CHANNEL_NUMBER, DONT_FRAGMENT, EVEN_PORT, Family, LIFETIME,
    REQUESTED_ADDRESS_FAMILY, REQUESTED_TRANSPORT, RESERVATION_TOKEN, XOR_PEER_ADDRESS,
};
use crate::config::Config;
use crate::credentials::{Key, key_of};
use crate::limits::PEERS_OF_REQUEST_MAX;
use crate::nonce::Nonces;

/// Attributes of a message before its integrity. Only the first of each type counts.
#[derive(Debug, Clone)]
pub(crate) struct Request<'a> {
    pub(crate) message: Message<'a>,
    pub(crate) realm: Option<&'a [u8]>,
    pub(crate) nonce: Option<&'a [u8]>,
    pub(crate) lifetime: Option<u32>,
    pub(crate) transport: Option<u8>,
    /// REQUESTED-ADDRESS-FAMILY; `Some(None)` for an unknown family.
    pub(crate) family: Option<Option<Family>>,
    pub(crate) additional: Option<Option<Family>>,
    pub(crate) peers: Vec<SocketAddr>,
    pub(crate) channel: Option<u16>,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) even_port: bool,
    pub(crate) reservation: bool,
    /// True if a TURN attribute has an invalid value, or occurs too often.
    pub(crate) is_malformed: bool,
    /// Unknown comprehension-required attributes.
    pub(crate) unknown: Vec<AttributeType>,
}

impl<'a> Request<'a> {
    /// Parses a message; `None` if it is not STUN.
    pub(crate) fn read(datagram: &'a [u8]) -> Option<Self> {
        let message = Message::read(datagram).ok()?;
        let mut this = Self {
            message,
            realm: None,
            nonce: None,
            lifetime: None,
            transport: None,
            family: None,
            additional: None,
            peers: Vec::new(),
            channel: None,
            data: None,
            even_port: false,
            reservation: false,
            is_malformed: false,
            unknown: Vec::new(),
        };
        for attribute in message.attributes() {
            if attribute.kind == AttributeType::MESSAGE_INTEGRITY {
                break;
            }
            this.take(attribute.kind, attribute.value);
        }
        Some(this)
    }

    fn take(&mut self, kind: AttributeType, value: &'a [u8]) {
        let first = |value: &[u8], length: usize| value.first().copied().filter(|_| value.len() == length);
        let mut is_bad = false;
        match kind {
            AttributeType::REALM => self.realm = self.realm.or(Some(value)),
            AttributeType::NONCE => self.nonce = self.nonce.or(Some(value)),
            LIFETIME => {
                let seconds = value.try_into().ok().map(u32::from_be_bytes);
                is_bad = seconds.is_none();
                self.lifetime = self.lifetime.or(seconds);
            }
            REQUESTED_TRANSPORT => {
                is_bad = value.len() != 4;
                self.transport = self.transport.or_else(|| first(value, 4));
            }
            REQUESTED_ADDRESS_FAMILY => {
                is_bad = value.len() != 4;
                self.family = self.family.or_else(|| first(value, 4).map(Family::read));
            }
            ADDITIONAL_ADDRESS_FAMILY => {
                is_bad = value.len() != 4;
                self.additional = self.additional.or_else(|| first(value, 4).map(Family::read));
            }
            XOR_PEER_ADDRESS => match read_address(value, self.message.transaction_id()) {
                Some(peer) if self.peers.len() < PEERS_OF_REQUEST_MAX => self.peers.push(peer),
                Some(_) | None => is_bad = true,
            },
            CHANNEL_NUMBER => {
                let number = value.first_chunk().map(|number| u16::from_be_bytes(*number));
                is_bad = value.len() != 4;
                self.channel = self.channel.or(number);
            }
            attribute::DATA => self.data = self.data.or(Some(value)),
            EVEN_PORT => (self.even_port, is_bad) = (true, value.len() != 1),
            RESERVATION_TOKEN => (self.reservation, is_bad) = (true, value.len() != 8),
            DONT_FRAGMENT => is_bad = !value.is_empty(),
            AttributeType::USERNAME
            | AttributeType::MESSAGE_INTEGRITY_SHA256
            | AttributeType::MAPPED_ADDRESS
            | AttributeType::XOR_MAPPED_ADDRESS => {}
            kind if kind.is_required() => self.unknown.push(kind),
            _ => {}
        }
        self.is_malformed |= is_bad;
    }

    pub(crate) fn is_request(&self, method: u16) -> bool {
        self.message.class() == Class::Request && self.message.method() == method
    }

    /// Checks credentials (RFC 8489 §9.2.4). `known` is the user and key of an existing allocation: another
    /// user is refused, and the same user is accepted even if the credentials have expired in the meantime.
    pub(crate) fn authenticate(
        &self,
        now: Instant,
        client: SocketAddr,
        (config, nonces): (&Config, &Nonces),
        known: Option<(&[u8], Key)>,
    ) -> Result<Key, ErrorCode> {
        if !self.message.has_integrity() {
            return Err(ErrorCode::UNAUTHENTICATED);
        }
        let (Some(username), Some(realm), Some(nonce)) = (self.message.username(), self.realm, self.nonce)
        else {
            return Err(ErrorCode::BAD_REQUEST);
        };
        let unix = config.unix(now);
        if !nonces.is_fresh(nonce, unix, client) {
            return Err(ErrorCode::STALE_NONCE);
        }
        let key = match known {
            Some((user, _)) if user != username => return Err(ErrorCode::WRONG_CREDENTIALS),
            Some((_, key)) => Some(key),
            None => key_of(&config.secret, &config.realm, username, unix),
        };
        let is_authentic = |key: &Key| realm == config.realm.as_bytes() && self.message.is_authentic(key);
        key.filter(is_authentic).ok_or(ErrorCode::UNAUTHENTICATED)
    }
}
