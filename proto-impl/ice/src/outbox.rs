//! Datagrams waiting to be sent.

use std::collections::VecDeque;

use crate::limits::OUT_MAX;
use crate::path::{Path, Transmit};

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<(Path, Vec<u8>)>,
}

impl Outbox {
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < OUT_MAX
    }

    /// Queues a datagram. Returns false, and queues nothing, if there is no room.
    pub(crate) fn push(&mut self, path: Path, bytes: Vec<u8>) -> bool {
        let room = self.has_room();
        if room {
            self.queue.push_back((path, bytes));
        }
        room
    }

    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (path, bytes) = self.queue.pop_front()?;
        out.extend_from_slice(&bytes);
        if self.queue.is_empty() {
            // Frees the queue's memory while the session is idle.
            self.queue = VecDeque::new();
        }
        Some(Transmit { path, length: bytes.len() })
    }
}
