//! Encryption of an established connection: its keys, and the key messages that wait to be sent.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::cipher::SessionKeys;
use crate::packet::DataHead;

/// Keys and key messages of a connection. Without keys, packets are not encrypted.
#[derive(Debug)]
pub(super) struct Keying {
    pub(super) keys: Option<Box<SessionKeys>>,
    /// Key material message that announces our next key to the peer.
    pub(super) tell: Option<Bytes>,
    /// Key material message of the peer, to be sent back as our confirmation.
    pub(super) reply: Option<Bytes>,
}

impl Keying {
    pub(super) const fn new(keys: Option<Box<SessionKeys>>) -> Self {
        Self { keys, tell: None, reply: None }
    }

    /// Decrypts a payload; `None` when its key is unknown.
    pub(super) fn open(&mut self, head: &DataHead, payload: &[u8]) -> Option<Bytes> {
        let Some(keys) = &mut self.keys else { return Some(Bytes::copy_from_slice(payload)) };
        let mut clear = BytesMut::from(payload);
        keys.unseal(head.key, head.seq, &mut clear).then(|| clear.freeze())
    }

    /// True if this key request would cause a key derivation.
    pub(super) fn derives(&self, now: Instant, body: &[u8]) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.derives(now, body))
    }

    /// Handles a key request of the peer. Returns false when the request is malformed or the connection is not
    /// encrypted.
    pub(super) fn handle_request(&mut self, now: Instant, body: &[u8]) -> bool {
        let is_taken = self.keys.as_mut().is_some_and(|keys| keys.handle_request(now, body).is_ok());
        if is_taken {
            self.reply = Some(Bytes::copy_from_slice(body));
        }
        is_taken
    }

    /// Handles the peer's confirmation of a key. Returns false if no key with this message was announced.
    pub(super) fn handle_response(&mut self, body: &[u8]) -> bool {
        self.keys.as_mut().is_some_and(|keys| keys.handle_response(body))
    }

    /// Prepares the message that announces a key, if it is time to send it. Announcements are repeated every `pause`.
    pub(super) fn announce(&mut self, now: Instant, pause: Duration) {
        if let Some(message) = self.keys.as_mut().and_then(|keys| keys.tell(now, pause)) {
            self.tell = Some(message);
        }
    }

    /// Returns the time at which a key must be announced or announced again.
    pub(super) fn announce_at(&self, now: Instant, pause: Duration) -> Option<Instant> {
        self.keys.as_ref().and_then(|keys| keys.tell_at(now, pause))
    }
}
