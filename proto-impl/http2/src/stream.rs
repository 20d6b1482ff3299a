//! The state of one stream (RFC 9113 §5.1) and its flow-control windows (RFC 9113 §5.2).

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use crate::hpack::Field;

/// State of the response, as the application has provided it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The head was not sent yet.
    Head,
    /// The head was sent; the body may follow.
    Body,
    /// The body is completely queued. These trailers must be sent after it.
    Ending(Vec<Field>),
    /// Everything was sent.
    Done,
}

/// A send window granted by the peer. The peer's settings can make it negative (RFC 9113 §6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window(i64);

/// The largest window (RFC 9113 §6.9.1).
const WINDOW_MAX: i64 = 0x7fff_ffff;

impl Window {
    pub(crate) fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// Changes the window. Returns false if the window now exceeds the maximum.
    #[must_use]
    pub(crate) const fn add(&mut self, change: i64) -> bool {
        self.0 = self.0.saturating_add(change);
        self.0 <= WINDOW_MAX
    }

    /// Uses up part of the window.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Returns the bytes that may be sent.
    pub(crate) fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }
}

/// A receive window granted to the peer, and the released bytes by which it will be enlarged again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credit {
    /// Bytes that the peer may still send.
    left: u32,
    /// Bytes released since the last update.
    released: u32,
    /// Size of the whole window.
    size: u32,
}

impl Credit {
    pub(crate) const fn new(size: u32) -> Self {
        Self { left: size, released: 0, size }
    }

    /// Records received bytes. Returns false if they exceed the window.
    #[must_use]
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Records processed bytes. If a window update is due, returns its increment.
    pub(crate) fn release(&mut self, bytes: usize) -> Option<u32> {
        let outstanding = self.size.saturating_sub(self.left);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.released = self.released.saturating_add(bytes).min(outstanding);
        // The window is returned in steps of at least half its size.
        if self.released < self.size / 2 {
            return None;
        }
        let update = std::mem::take(&mut self.released);
        self.left = self.left.saturating_add(update);
        Some(update)
    }
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// True if the peer has not completed its side of the stream.
    pub(crate) is_receiving: bool,
    pub(crate) sending: Sending,
    pub(crate) window: Window,
    pub(crate) credit: Credit,
    /// Bytes of the request's body, padding included, that the application has not processed.
    pub(crate) unreleased: usize,
    /// Number of body bytes still missing from the announced length; `None` if no length was
    /// announced.
    pub(crate) left: Option<u64>,
    /// Parts of the response's body that wait to be sent.
    pub(crate) queue: VecDeque<Bytes>,
    pub(crate) queued: usize,
    /// True if the stream is in the list of streams with something to send.
    pub(crate) is_ready: bool,
    /// Number of sent bytes that were not reported to the application yet.
    pub(crate) unreported: usize,
    /// Time at which the last byte of the body was sent. If none was sent yet, the time at which
    /// the first one was queued.
    pub(crate) progress_at: Instant,
}

impl Stream {
    /// True if the stream has something to send and its own window allows it. The connection's
    /// window may still be too small.
    pub(crate) fn can_send(&self) -> bool {
        (self.queued > 0 && self.window.room() > 0) || (self.queued == 0 && self.is_ending())
    }

    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.sending, Sending::Ending(_))
    }

    /// Removes `length` bytes from the queue and passes them to `to` as slices.
    pub(crate) fn take(&mut self, length: usize, mut to: impl FnMut(Bytes)) {
        let mut left = length;
        self.queued = self.queued.saturating_sub(length);
        while left > 0
            && let Some(front) = self.queue.front_mut()
        {
            let slice = front.split_to(left.min(front.len()));
            if front.is_empty() {
                self.queue.pop_front();
            }
            left = left.saturating_sub(slice.len());
            to(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_given_back_by_halves() {
        let mut credit = Credit::new(100);
        assert!(credit.take(60) && credit.take(40) && !credit.take(1));
        let mut credit = Credit::new(100);
        assert!(credit.take(80));
        assert_eq!((credit.release(30), credit.release(30)), (None, Some(60)));
        assert_eq!(credit.release(1000), None, "no more than was taken");
        assert!(credit.take(80) && !credit.take(1));
    }

    #[test]
    fn a_window_may_be_negative_and_not_too_large() {
        let mut window = Window::new(10);
        assert!(window.add(-20));
        assert_eq!(window.room(), 0);
        assert!(window.add(25));
        assert_eq!(window.room(), 15);
        assert!(!window.add(WINDOW_MAX));
    }
}
