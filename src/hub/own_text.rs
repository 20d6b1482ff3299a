//! Bytes that are made for a single viewer. They count toward the ring memory of their worker until the last
//! reference to them is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Maximum number of bytes for single viewers that a worker holds. While the worker holds this many, it makes no more
/// of them, because they would displace units in rings.
pub const OWN_TEXT_MAX: usize = 64 * 1024 * 1024;

/// Counter of the bytes for single viewers that a worker holds.
#[derive(Debug, Clone, Default)]
pub struct OwnText(Arc<AtomicUsize>);

/// Bytes that are counted in `all` until they are dropped.
#[derive(Debug)]
struct Counted<T: AsRef<[u8]>> {
    bytes: T,
    all: Arc<AtomicUsize>,
}

impl OwnText {
    /// Wraps `bytes` so that they are counted until their last slice is dropped.
    #[must_use]
    pub fn count<T: AsRef<[u8]> + Send + 'static>(&self, bytes: T) -> Bytes {
        self.0.fetch_add(bytes.as_ref().len(), Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, all: Arc::clone(&self.0) })
    }

    /// True if the worker may make more text for a single viewer: if it holds less than [`OWN_TEXT_MAX`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.bytes() < OWN_TEXT_MAX
    }

    /// Number of bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<T: AsRef<[u8]>> Drop for Counted<T> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes.as_ref().len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_their_last_part_is_let_go() {
        let own = OwnText::default();
        let mut text = own.count(vec![7; 1000]);
        let part = text.split_to(10);
        let other = own.count("xyz");
        assert_eq!((own.bytes(), &part[..]), (1003, &[7; 10][..]));
        drop(text);
        assert_eq!(own.bytes(), 1003, "the part holds all of it");
        drop((part, other));
        assert_eq!(own.bytes(), 0);
    }
}
