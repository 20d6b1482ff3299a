//! The media lane between two workers: bounded in bytes per stream and receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use media::{AccessUnit, Tracks};

use crate::types::StreamId;

/// Bytes of one stream that may be on the way to one worker. A key frame larger than this still passes alone.
const LANE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One unit on its way to a mirror.
#[derive(Debug)]
pub struct MirroredUnit {
    /// Of which stream.
    pub stream: StreamId,
    /// When its last byte came to the source.
    pub received: Instant,
    /// The unit.
    pub unit: AccessUnit,
    /// The tracks of its epoch.
    pub tracks: Arc<Tracks>,
    /// Given back when the unit has entered the mirror's ring.
    pub credit: Credit,
}

/// The fill of one lane.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    bytes: Arc<AtomicUsize>,
}

impl Lane {
    /// Room for `bytes`, or `None` when the lane is full. An empty lane takes anything.
    #[must_use]
    pub fn credit(&self, bytes: usize) -> Option<Credit> {
        let used = self.bytes.load(Ordering::Acquire);
        if used > 0 && used.saturating_add(bytes) > LANE_BYTES_MAX {
            return None;
        }
        Some(self.credit_beyond(bytes))
    }

    /// Room for `bytes` however full the lane is.
    #[must_use]
    pub fn credit_beyond(&self, bytes: usize) -> Credit {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Credit { lane: Arc::clone(&self.bytes), bytes }
    }
}

/// A unit's share of its lane, given back when dropped.
#[derive(Debug)]
pub struct Credit {
    lane: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.lane.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_refuses_and_an_empty_one_takes_anything() {
        let lane = Lane::default();
        let huge = lane.credit(LANE_BYTES_MAX * 2).unwrap();
        assert!(lane.credit(1).is_none());
        drop(huge);
        let held: Vec<_> = (0..).map_while(|_| lane.credit(LANE_BYTES_MAX / 4)).collect();
        assert_eq!(held.len(), 4);
    }
}
