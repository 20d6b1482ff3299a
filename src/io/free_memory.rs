//! Gives memory that a thread no longer uses back to the system.
//!
//! The allocator keeps the last empty page of each block size, up to 4 MiB each, for the thread that used it. It frees
//! such a page only after the thread has made it collect several times ([`ROUNDS`]) or has allocated much. After a
//! flood of peers, an idle thread would therefore keep these pages forever. So each thread that serves peers collects
//! once a second while it works, and for some seconds afterwards.

use std::time::{Duration, Instant};

use super::sys;

/// The interval of collections.
const PERIOD: Duration = Duration::from_secs(1);
/// Number of collections after the last work. The allocator frees an empty page at the 16th collection at the
/// latest.
const ROUNDS: u8 = 17;

/// The schedule of collections of one thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct FreeMemory {
    due: Instant,
    rounds: u8,
}

impl FreeMemory {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now, rounds: 0 }
    }

    /// Returns the time at which the thread must wake for the next collection; `None` if no collection is left.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.rounds > 0).then_some(self.due)
    }

    /// Registers a turn of the thread, and collects if a collection is due.
    pub(super) fn handle_turn(&mut self, now: Instant) {
        if self.is_due(now) {
            sys::return_memory();
        }
    }

    /// Returns true if a collection is due, and counts it as done. A turn before the due time means that the
    /// thread has other work. The count of collections then starts again, so that the memory of that work is
    /// returned, too.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.rounds == 0 {
            self.due = now + PERIOD;
        }
        if now < self.due {
            self.rounds = ROUNDS;
            return false;
        }
        self.due = now + PERIOD;
        self.rounds -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a thread that works at the times `work` and otherwise wakes only to collect. Returns the times
    /// of the collections.
    fn collections(work: &[Duration]) -> Vec<Duration> {
        let start = Instant::now();
        let mut memory = FreeMemory::new(start);
        let mut work = work.iter().copied().peekable();
        let mut collected = Vec::new();
        loop {
            let due = memory.poll_timeout().map(|due| due - start);
            let Some(at) = work.peek().copied().into_iter().chain(due).min() else { return collected };
            work.next_if_eq(&at);
            if memory.is_due(start + at) {
                collected.push(at);
            }
        }
    }

    #[test]
    fn a_thread_collects_for_some_seconds_behind_its_work_and_then_sleeps() {
        let at = Duration::from_secs(5);
        let expected: Vec<_> = (1..=u32::from(ROUNDS)).map(|round| at + PERIOD * round).collect();
        assert_eq!(collections(&[at]), expected);
        assert!(collections(&[]).is_empty());
    }

    #[test]
    fn a_thread_that_works_all_the_time_collects_once_a_second() {
        let work: Vec<_> = (0..10_000).map(Duration::from_millis).collect();
        let collected = collections(&work);
        let during: Vec<_> = collected.iter().filter(|at| at.as_secs() < 10).collect();
        assert_eq!(during.len(), 9, "{during:?}");
        assert!(collected.windows(2).all(|pair| pair[1] - pair[0] == PERIOD), "{collected:?}");
        assert_eq!(collected.len(), during.len() + usize::from(ROUNDS));
    }
}
