//! The state that a session keeps for each of its peer's sources.

use alloc::vec::Vec;

use crate::number::Ssrc;

/// Maximum number of sources in a session, since a peer may make up any number of them.
pub const SOURCES_MAX: usize = 32;

/// A small table indexed by SSRC. When it is full, new sources are refused, and the owner counts them; no
/// source is evicted.
#[derive(Debug, Clone)]
pub struct Sources<T> {
    entries: Vec<(Ssrc, T)>,
}

impl<T> Default for Sources<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> Sources<T> {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the entry of a source.
    #[must_use]
    pub fn get(&self, ssrc: Ssrc) -> Option<&T> {
        self.entries.iter().find(|(other, _)| *other == ssrc).map(|(_, entry)| entry)
    }

    /// Returns the entry of a source for changes.
    #[must_use]
    pub fn get_mut(&mut self, ssrc: Ssrc) -> Option<&mut T> {
        self.entries.iter_mut().find(|(other, _)| *other == ssrc).map(|(_, entry)| entry)
    }

    /// Returns the entry of a source, created if missing; `None` if there are already [`SOURCES_MAX`] others.
    pub fn get_or_insert_with(&mut self, ssrc: Ssrc, make: impl FnOnce() -> T) -> Option<&mut T> {
        let at = match self.entries.iter().position(|(other, _)| *other == ssrc) {
            Some(at) => at,
            None if self.entries.len() >= SOURCES_MAX => return None,
            None => {
                self.entries.push((ssrc, make()));
                self.entries.len().saturating_sub(1)
            }
        };
        self.entries.get_mut(at).map(|(_, entry)| entry)
    }

    /// Removes a source, for example after its BYE.
    pub fn remove(&mut self, ssrc: Ssrc) -> Option<T> {
        let at = self.entries.iter().position(|(other, _)| *other == ssrc)?;
        Some(self.entries.remove(at).1)
    }

    /// Iterates over all entries in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (Ssrc, &T)> {
        self.entries.iter().map(|(ssrc, entry)| (*ssrc, entry))
    }

    /// Iterates over all entries for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Ssrc, &mut T)> {
        self.entries.iter_mut().map(|(ssrc, entry)| (*ssrc, entry))
    }

    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_07_a_session_keeps_32_sources() {
        let mut sources = Sources::new();
        let kept = (0..10_000).filter(|&n| sources.get_or_insert_with(Ssrc(n), || n).is_some()).count();
        assert_eq!((kept, sources.len()), (SOURCES_MAX, SOURCES_MAX));
        assert_eq!(sources.get_or_insert_with(Ssrc(5), || 0), Some(&mut 5));
        assert_eq!(sources.remove(Ssrc(5)), Some(5));
        assert_eq!((sources.get(Ssrc(5)), sources.len()), (None, SOURCES_MAX - 1));
        assert_eq!(sources.remove(Ssrc(5)), None);
        assert_eq!(sources.get_or_insert_with(Ssrc(77), || 1), Some(&mut 1));
        assert_eq!(sources.iter().last(), Some((Ssrc(77), &1)));
        *sources.get_mut(Ssrc(77)).unwrap() = 2;
        assert_eq!(sources.iter_mut().map(|(_, n)| *n).max(), Some(31));
    }
}
