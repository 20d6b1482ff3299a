//! Encryption of an established connection: its keys, and the key messages that wait to be sent.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::cipher::SessionKeys;
use crate::packet::DataHead;

/// Keys and key messages; without keys packets travel in the clear.
#[derive(Debug)]
pub(super) struct Keying {
    pub(super) keys: Option<Box<SessionKeys>>,
    /// Key material that is announced to the peer.
    pub(super) tell: Option<Bytes>,
    /// The peer's key material, sent back as its confirmation.
    pub(super) reply: Option<Bytes>,
}

impl Keying {
    pub(super) const fn new(keys: Option<Box<SessionKeys>>) -> Self {
        Self { keys, tell: None, reply: None }
    }

    /// A payload in the clear; `None` where its key is not known.
    pub(super) fn open(&mut self, head: &DataHead, payload: &[u8]) -> Option<Bytes> {
        let Some(keys) = &mut self.keys else { return Some(Bytes::copy_from_slice(payload)) };
        let mut clear = BytesMut::from(payload);
        keys.unseal(head.key, head.seq, &mut clear).then(|| clear.freeze())
    }

    /// Whether a key request would have a key derived.
    pub(super) fn derives(&self, now: Instant, body: &[u8]) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.derives(now, body))
    }

    /// A key request of the peer; `false` when it is malformed, or nothing is encrypted here.
    pub(super) fn handle_request(&mut self, now: Instant, body: &[u8]) -> bool {
        let is_taken = self.keys.as_mut().is_some_and(|keys| keys.handle_request(now, body).is_ok());
        if is_taken {
            self.reply = Some(Bytes::copy_from_slice(body));
        }
        is_taken
    }

    /// The peer's confirmation of a key; `false` when it confirms none of ours.
    pub(super) fn handle_response(&mut self, body: &[u8]) -> bool {
        self.keys.as_mut().is_some_and(|keys| keys.handle_response(body))
    }

    /// Prepares the message that announces a key, when one is due. `pause`: between its repetitions.
    pub(super) fn announce(&mut self, now: Instant, pause: Duration) {
        if let Some(message) = self.keys.as_mut().and_then(|keys| keys.tell(now, pause)) {
            self.tell = Some(message);
        }
    }

    /// The time at which a key is to be announced (again).
    pub(super) fn announce_at(&self, now: Instant, pause: Duration) -> Option<Instant> {
        self.keys.as_ref().and_then(|keys| keys.tell_at(now, pause))
    }
}
