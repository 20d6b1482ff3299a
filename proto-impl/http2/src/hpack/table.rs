//! The static and the dynamic table (RFC 7541 §2.3, Appendix A).

use std::collections::VecDeque;

use bytes::Bytes;

use super::Field;

/// Size of an entry in addition to its text (RFC 7541 §4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// The static table (RFC 7541, Appendix A); its first entry has index 1.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The static table followed by a dynamic one, in one index space.
#[derive(Debug)]
pub(super) struct Table {
    /// Entries of the dynamic table, the newest first.
    entries: VecDeque<Field>,
    bytes: usize,
    max: usize,
}

/// Result of searching the table for a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Index of an entry with name and value.
    Whole(usize),
    /// Index of an entry with the name only.
    Name(usize),
    /// No entry matches.
    Nothing,
}

impl Table {
    pub(super) const fn new(max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, max }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Changes the maximum size (RFC 7541 §4.3).
    pub(super) fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict(0);
    }

    /// Adds an entry. An entry larger than the table is not added, but empties the table (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, field: Field) {
        let size = field.size();
        self.evict(size);
        if size <= self.max {
            self.bytes = self.bytes.saturating_add(size);
            self.entries.push_front(field);
        }
    }

    /// Evicts entries to make room for one of `size` bytes.
    fn evict(&mut self, size: usize) {
        while self.bytes.saturating_add(size) > self.max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes = self.bytes.saturating_sub(oldest.size());
        }
    }

    /// Returns the entry with an index. Indices count from 1.
    pub(super) fn get(&self, index: usize) -> Option<Field> {
        let index = index.checked_sub(1)?;
        match STATIC.get(index) {
            Some((name, value)) => Some(Field {
                name: Bytes::from_static(name.as_bytes()),
                value: Bytes::from_static(value.as_bytes()),
            }),
            None => self.entries.get(index.checked_sub(STATIC.len())?).cloned(),
        }
    }

    /// Searches both tables for an entry that matches a field.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Found {
        let fixed = STATIC.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let added = self.entries.iter().map(|field| (&field.name[..], &field.value[..]));
        let mut found = Found::Nothing;
        for (index, (own_name, own_value)) in fixed.chain(added).enumerate() {
            if own_name != name {
                continue;
            }
            let index = index.saturating_add(1);
            if own_value == value {
                return Found::Whole(index);
            }
            if found == Found::Nothing {
                found = Found::Name(index);
            }
        }
        found
    }

    #[cfg(test)]
    pub(super) fn listing(&self) -> (usize, Vec<(String, String)>) {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        (self.bytes, self.entries.iter().map(|field| (text(&field.name), text(&field.value))).collect())
    }
}
