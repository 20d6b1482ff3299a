//! A worker's share of the memory budget of all rings. Bytes that are made for single viewers also count toward it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Worker;
use super::streams::Live;
use super::turn::Turn;
use crate::hub::{RingMemory, Stream};
use crate::types::StreamId;

/// A ring holds the newest units of a stream. Rings of no more than this size are not shrunk.
const RING_BYTES_MIN: usize = 64 * 1024;
/// Maximum number of rounds in which memory is freed. Each round halves the largest rings; this many rounds reduce a
/// ring from 16 MiB to [`RING_BYTES_MIN`].
const ROUNDS: u32 = 8;

/// The budget, and the number of bytes appended to rings since the budget was last checked.
#[derive(Debug, Default)]
pub(super) struct Memory {
    budget: Arc<RingMemory>,
    unseen: usize,
}

impl Worker {
    /// Makes the rings of this worker count toward a budget that it shares with other workers.
    #[must_use]
    pub fn with_ring_memory(mut self, budget: Arc<RingMemory>) -> Self {
        self.memory.budget = budget;
        self
    }
}

impl Memory {
    /// Counts bytes appended to a ring. From time to time, checks whether the rings exceed the budget.
    pub(super) fn note_appended(&mut self, turn: &Turn, live: &mut Live, bytes: usize) {
        self.unseen = self.unseen.saturating_add(bytes);
        if self.unseen >= self.budget.look_after() {
            self.keep_ring_memory(turn, live);
        }
    }

    /// Frees as many bytes as exceed the budget, first from the largest rings without subscribers.
    pub(super) fn keep_ring_memory(&mut self, turn: &Turn, live: &mut Live) {
        self.unseen = 0;
        let held = live.retained_bytes().saturating_add(turn.blobs.own_text().bytes());
        let mut excess = self.budget.excess(turn.id, held);
        if excess > 0 {
            // Nobody is sent what standbys retain.
            excess = live.standbys.free(excess);
        }
        for is_watched in [false, true] {
            for _ in 0..ROUNDS {
                if excess == 0 {
                    return;
                }
                excess = shrink_rings(live, is_watched, excess);
            }
        }
    }
}

/// Halves the largest rings, those of watched streams if `is_watched` is true, else those of unwatched streams, until
/// `excess` bytes are freed. Returns the number of bytes that still have to be freed.
fn shrink_rings(live: &mut Live, is_watched: bool, mut excess: usize) -> usize {
    let streams = live.streams.values();
    let large = streams
        .filter(|stream| stream.is_watched() == is_watched && stream.retained_bytes() > RING_BYTES_MIN);
    let mut sizes: Vec<(Reverse<usize>, StreamId)> =
        large.map(|stream| (Reverse(stream.retained_bytes()), stream.id)).collect();
    sizes.sort_unstable();
    for (Reverse(bytes), id) in sizes {
        if excess == 0 {
            break;
        }
        let Some(stream) = live.streams.get_mut(&id) else { continue };
        stream.shrink(bytes / 2);
        excess = excess.saturating_sub(bytes.saturating_sub(Stream::retained_bytes(stream)));
    }
    excess
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use crypto::Seed;
    use media::codec::vp8;
    use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, Tracks};

    use super::*;
    use crate::config::AppSettings;
    use crate::hub::Entry;
    use crate::mail::StreamDetails;
    use crate::mail::ToWorker;
    use crate::types::{Ingest, Now, StreamKey, WorkerId};

    const KIB: usize = 1024;

    struct Rig {
        worker: Worker,
        now: Now,
        tracks: Arc<Tracks>,
    }

    impl Rig {
        fn new(limit: usize) -> Self {
            let now = Now { mono: Instant::now(), wall_ms: 0 };
            let worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(0));
            let worker = worker.with_ring_memory(Arc::new(RingMemory::new(limit, 1)));
            let config = CodecConfig::Vp8(vp8::Config::default());
            let track = Track { epoch: 1, ..Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS) };
            Self { worker, now, tracks: Arc::new(Tracks::new(1, [track])) }
        }

        /// Appends `units` units of 10 KiB to a stream; the first is a key frame.
        fn fill(&mut self, id: u64, units: i64) {
            let settings = Arc::new(AppSettings::defaults("live").unwrap());
            let (key, source, stream) = (StreamKey::new("live", &id.to_string()), WorkerId(0), StreamId(id));
            let up = ToWorker::StreamUp {
                stream,
                key,
                source,
                ingest: Ingest::PULL,
                details: StreamDetails::default(),
                settings,
            };
            self.worker.handle_mail(self.now, up);
            for n in 0..units {
                let unit = AccessUnit {
                    track: TrackId::VIDEO,
                    dts: n,
                    pts: n,
                    key_frame: n == 0,
                    config_epoch: 1,
                    payload: Bytes::from(vec![0; 10 * KIB]),
                };
                let entry = Entry::new(self.now.mono, 0, unit, Arc::clone(&self.tracks));
                self.worker
                    .live
                    .append(
                        &mut self.worker.turn,
                        &mut self.worker.conns,
                        &mut self.worker.memory,
                        stream,
                        entry,
                    )
                    .unwrap();
            }
        }

        fn kib_of(&self, id: u64) -> usize {
            self.worker.live.streams[&StreamId(id)].retained_bytes() / KIB
        }
    }

    #[test]
    fn m_27_the_largest_ring_that_nobody_watches_shrinks_first() {
        let mut rig = Rig::new(1024 * KIB);
        rig.fill(1, 40);
        rig.worker.live.streams.get_mut(&StreamId(1)).unwrap().add_mirror(
            (WorkerId(1), 1),
            media::TrackSet::EMPTY,
            Vec::new(),
        );
        rig.fill(2, 30);
        rig.fill(3, 10);
        assert_eq!((rig.kib_of(1), rig.kib_of(2), rig.kib_of(3)), (400, 300, 100));
        rig.fill(4, 24);
        // The second ring lost its key frame when it was shrunk. It was emptied, because no viewer could begin with the
        // rest.
        assert_eq!((rig.kib_of(1), rig.kib_of(2), rig.kib_of(3), rig.kib_of(4)), (400, 0, 100, 240));
    }

    #[test]
    fn t_11_rings_give_way_to_the_texts_of_viewers() {
        let mut rig = Rig::new(1024 * KIB);
        rig.fill(1, 40);
        let text = rig.worker.turn.blobs.own_text().count(vec![0; 900 * KIB]);
        rig.fill(2, 20);
        assert!(rig.worker.retained_bytes() <= (1024 - 900 + 100) * KIB, "{}", rig.worker.retained_bytes());
        drop(text);
        rig.fill(3, 40);
        assert_eq!(rig.kib_of(3), 400, "there is room again");
    }

    #[test]
    fn m_27_watched_rings_shrink_when_nothing_else_is_left() {
        let mut rig = Rig::new(1024 * KIB);
        rig.fill(1, 1);
        rig.worker.live.streams.get_mut(&StreamId(1)).unwrap().add_mirror(
            (WorkerId(1), 1),
            media::TrackSet::EMPTY,
            Vec::new(),
        );
        for _ in 0..30 {
            rig.fill(1, 60);
            assert!(rig.worker.retained_bytes() <= (1024 + 16 + 10) * KIB);
        }
        assert!(rig.kib_of(1) >= 448, "no more than half at a time: {}", rig.kib_of(1));
    }
}
