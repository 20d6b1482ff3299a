//! The subtracks of each main track, and their lists in the records of main tracks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::types::StreamKey;

/// Maximum number of subtracks listed in the record of a main track. The API's own lists of subtracks contain all of
/// them.
pub(super) const SHOWN_MAX: usize = 500;

/// Subtracks by main track, including main tracks without a record.
#[derive(Debug, Default)]
pub(super) struct Subtracks(BTreeMap<StreamKey, BTreeSet<Arc<str>>>);

impl Subtracks {
    pub(super) fn of(&self, main: &StreamKey) -> Option<&BTreeSet<Arc<str>>> {
        self.0.get(main)
    }

    /// Adds a subtrack, also to the list in the record of its main track, if there is one.
    pub(super) fn insert(&mut self, main: StreamKey, id: &Arc<str>, shown: Option<&mut Vec<String>>) {
        self.0.entry(main).or_default().insert(Arc::clone(id));
        let Some(shown) = shown else { return };
        if let Err(at) = shown.binary_search_by(|one| one.as_str().cmp(id))
            && at < SHOWN_MAX
        {
            shown.insert(at, id.to_string());
            shown.truncate(SHOWN_MAX);
        }
    }

    /// Removes a subtrack, also from the list in the record of its main track, if there is one. The list stays as long
    /// as it can be.
    pub(super) fn remove(&mut self, main: &StreamKey, id: &Arc<str>, shown: Option<&mut Vec<String>>) {
        let Some(all) = self.0.get_mut(main) else { return };
        all.remove(id);
        if let Some(shown) = shown
            && let Ok(at) = shown.binary_search_by(|one| one.as_str().cmp(id))
        {
            let last = shown.last().filter(|_| shown.len() >= SHOWN_MAX);
            let behind = last.map(|last| (Bound::Excluded(last.as_str()), Bound::Unbounded));
            let next = behind.and_then(|behind| all.range::<str, _>(behind).next().map(ToString::to_string));
            shown.remove(at);
            shown.extend(next);
        }
        if all.is_empty() {
            self.0.remove(main);
        }
    }
}
