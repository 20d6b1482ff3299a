//! Limits the number of log lines of one kind per second, so that a peer that causes a line with each packet fills
//! neither the disk nor the screen.
//!
//! A kind is a place in the source code. Places are mapped by a hash to a fixed table of counters, without a lock. Two
//! places that share a counter share its limit.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::log_line::write_head;
use crate::control::AUDIT;

/// Maximum lines of one kind per second.
const LINES_PER_SECOND: u64 = 100;
/// Number of counters: a power of two, and far more than there are places that log.
const KINDS: usize = 4096;
/// Number of bits of a counter that hold the number of lines.
const LINE_BITS: u32 = 32;

/// Limits the lines that each place of the code logs in a second. Further lines are omitted, and a notice states how
/// many.
pub(super) struct LogLimit {
    began: Instant,
    /// Counters. The high half holds a second, the low half the number of lines in it.
    kinds: Box<[AtomicU64]>,
    /// Output for notices about omitted lines. Its lock is taken only for the first line of a new second after lines
    /// were omitted, and only if it is free.
    out: Mutex<NonBlocking>,
    /// True if lines are JSON.
    json: bool,
}

impl LogLimit {
    pub(super) fn new(out: NonBlocking, json: bool) -> Self {
        let kinds = (0..KINDS).map(|_| AtomicU64::new(0)).collect();
        Self { began: Instant::now(), kinds, out: Mutex::new(out), json }
    }

    /// Returns whether a line of this kind may be written in this second, and the number of lines that were omitted in
    /// the last second.
    fn admit(&self, kind: usize, second: u64) -> (bool, u64) {
        let Some(counter) = self.kinds.get(kind % KINDS) else { return (true, 0) };
        let step = |old: u64| {
            let lines = if old >> LINE_BITS == second { (old & 0xffff_ffff).min(0xffff_fffe) } else { 0 };
            Some((second << LINE_BITS) | (lines + 1))
        };
        let old = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap_or(0);
        let lines = old & 0xffff_ffff;
        if old >> LINE_BITS == second {
            (lines < LINES_PER_SECOND, 0)
        } else {
            (true, lines.saturating_sub(LINES_PER_SECOND))
        }
    }

    /// Writes the notice about omitted lines with a single write, because the queue takes each write as a line.
    fn tell(&self, left_out: u64, level: &Level, target: &str) {
        if let Ok(mut out) = self.out.try_lock() {
            let text = format!("{left_out} more lines like the next one were left out");
            let line = if self.json {
                let line = serde_json::json!({ "level": level.as_str(), "target": target, "message": text });
                format!("{line}\n")
            } else {
                let mut line = String::new();
                // Writing to memory cannot fail.
                let _ = write_head(&mut line, level, target);
                format!("{line}{text}\n")
            };
            let _ = out.write_all(line.as_bytes());
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Audit lines about actions are always logged. Those about failures are limited like all other lines.
        if metadata.target() == AUDIT && *metadata.level() == Level::INFO {
            return true;
        }
        let place = std::ptr::from_ref(metadata).addr() / size_of::<usize>();
        // Multiplication by the golden ratio spreads places that are equally spaced.
        let kind = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - KINDS.trailing_zeros());
        let (admitted, left_out) = self.admit(kind, self.began.elapsed().as_secs());
        if left_out > 0 {
            self.tell(left_out, metadata.level(), metadata.target());
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn q_06_a_flood_of_one_kind_is_cut_and_told_and_others_are_not() {
        let (out, _guard) = tracing_appender::non_blocking(std::io::sink());
        let limit = LogLimit::new(out, false);
        let admitted = (0..1000).filter(|_| limit.admit(7, 3).0).count();
        assert_eq!((admitted, limit.admit(8, 3)), (100, (true, 0)));
        assert_eq!((limit.admit(7, 4), limit.admit(7, 4)), ((true, 900), (true, 0)));
    }

    /// Keeps each write separate, as the queue does.
    #[derive(Clone, Default)]
    struct Writes(Arc<Mutex<Vec<String>>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().push(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_about_a_flood_is_one_line_of_the_queue() {
        let writes = Writes::default();
        let (out, guard) = tracing_appender::non_blocking(writes.clone());
        let limit = LogLimit::new(out, false);
        limit.tell(7, &Level::INFO, "here");
        drop((limit, guard));
        let lines = writes.0.lock().unwrap().clone();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.ends_with("] INFO  here - 7 more lines like the next one were left out\n"), "{line}");
    }
}
