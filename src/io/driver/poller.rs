//! The wait for events. Also detects that the process was held up: stopped (SIGSTOP), suspended together with its
//! machine, or starved.
//!
//! After the process was held up, bytes that arrived in time may still be in the sockets although a deadline has
//! passed. They are read before deadlines are handled: deadlines are delayed, for a limited number of turns, until a
//! poll finds nothing more to read. If other threads may read for this one (workers that share a port), deadlines are
//! also delayed for a short time in any case.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

/// Maximum events of one poll.
const EVENTS: usize = 1024;
/// If a turn or a wait takes this much longer than expected, the process counts as held up.
const HELD_UP: Duration = Duration::from_secs(1);
/// Maximum number of turns for which deadlines are delayed while there is input to read.
const TURNS_MAX: u32 = 64;

/// The poll, and whether the process was held up.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) poll: Poll,
    pub(super) events: Events,
    held_up: HeldUp,
}

impl Poller {
    /// Makes a poller. `settle` is the time that other threads may need to pass on the input that they have read.
    pub(super) fn new(poll: Poll, settle: Duration) -> Self {
        Self { poll, events: Events::with_capacity(EVENTS), held_up: HeldUp::new(Instant::now(), settle) }
    }

    /// Waits for events. A wait that a signal has interrupted returns no events, even if there are some.
    pub(super) fn wait(&mut self, patience: Option<Duration>) -> io::Result<()> {
        let began = Instant::now();
        let mut interrupted = false;
        let mut patience_left = patience;
        loop {
            match self.poll.poll(&mut self.events, patience_left) {
                Ok(()) => break,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Err(_) if interrupted => break,
                Err(_) => (interrupted, patience_left) = (true, Some(Duration::ZERO)),
            }
        }
        self.held_up.waited(began, Instant::now(), patience);
        Ok(())
    }

    /// True if deadlines are delayed in this turn. `unread` is true if there is more to read.
    pub(super) fn defers_deadlines(&mut self, unread: bool) -> bool {
        let full = self.events.iter().count() >= EVENTS;
        self.held_up.defers(unread || full)
    }
}

/// Detects that the process was held up, and delays deadlines until the pending input is read.
///
/// If the process is held up again during the delay, the delay still ends after [`TURNS_MAX`] turns, so deadlines are
/// always handled in the end, however slow the machine is.
#[derive(Debug, Clone, Copy)]
struct HeldUp {
    /// Time at which the last wait ended.
    woke: Instant,
    /// Number of turns for which deadlines may still be delayed; 0 if they are not delayed.
    turns: u32,
    /// True until the first turn after the process was held up: deadlines are delayed in that turn
    /// in any case.
    is_first: bool,
    /// Time for which deadlines are delayed even if nothing is left to read.
    settle: Duration,
    /// End of the current delay by `settle`; `None` if the process was never held up.
    until: Option<Instant>,
}

impl HeldUp {
    const fn new(now: Instant, settle: Duration) -> Self {
        Self { woke: now, turns: 0, is_first: false, settle, until: None }
    }

    /// Processes a wait from `began` to `ended` that should have taken at most `patience`.
    fn waited(&mut self, began: Instant, ended: Instant, patience: Option<Duration>) {
        let turn = began.saturating_duration_since(self.woke);
        let waited = ended.saturating_duration_since(began);
        let overslept = patience.is_some_and(|patience| waited >= patience.saturating_add(HELD_UP));
        if turn >= HELD_UP || overslept {
            self.is_first = true;
            if self.turns == 0 {
                self.turns = TURNS_MAX;
                self.until = ended.checked_add(self.settle);
            }
        }
        self.woke = ended;
    }

    /// True if deadlines are delayed in this turn: because the time `settle` is not over, because there is more to
    /// read, or because this is the first poll after the process was held up.
    fn defers(&mut self, more: bool) -> bool {
        if self.turns == 0 {
            return false;
        }
        let first = std::mem::take(&mut self.is_first);
        if self.until.is_some_and(|until| self.woke < until) {
            return true;
        }
        self.turns = if more || first { self.turns.saturating_sub(1) } else { 0 };
        self.turns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Simulates turns of one millisecond each. The process is stopped once, either during a wait or during a turn.
    fn deferred(stop_in_wait: u64, stop_in_turn: u64, unread: impl Fn(u32) -> bool) -> Vec<bool> {
        let mut now = Instant::now();
        let mut held_up = HeldUp::new(now, Duration::ZERO);
        let mut seen = Vec::new();
        for turn in 0..100 {
            let began = now + ms(if turn == 3 { stop_in_turn } else { 1 });
            let ended = began + ms(if turn == 2 { stop_in_wait } else { 5 });
            held_up.waited(began, ended, Some(ms(5)));
            now = ended;
            seen.push(held_up.defers(unread(turn)));
        }
        seen
    }

    fn turns(deferred: &[bool]) -> Vec<usize> {
        (0..deferred.len()).filter(|turn| deferred[*turn]).collect()
    }

    #[test]
    fn q_12_deadlines_wait_for_what_came_while_the_process_was_stopped() {
        assert_eq!(turns(&deferred(5, 1, |_| false)), [0; 0], "nothing happened");
        assert_eq!(turns(&deferred(900, 900, |_| true)), [0; 0], "a busy moment");
        assert_eq!(turns(&deferred(20_000, 1, |_| false)), [2], "stopped in a wait");
        assert_eq!(turns(&deferred(5, 20_000, |_| false)), [3], "stopped in a turn");
        assert_eq!(turns(&deferred(20_000, 1, |turn| turn < 7)), [2, 3, 4, 5, 6], "until all is read");
        let endless = turns(&deferred(20_000, 1, |_| true));
        assert_eq!((endless[0], endless.len()), (2, 63), "and not for ever");
    }

    #[test]
    fn q_12_deadlines_come_however_slow_the_machine_is() {
        let mut now = Instant::now();
        let mut held_up = HeldUp::new(now, Duration::ZERO);
        let mut deferred = Vec::new();
        for _ in 0..200 {
            let (began, ended) = (now + ms(2000), now + ms(2005));
            held_up.waited(began, ended, Some(ms(5)));
            now = ended;
            deferred.push(held_up.defers(false));
        }
        let judged: Vec<usize> = (0..deferred.len()).filter(|turn| !deferred[*turn]).collect();
        assert_eq!(judged, [63, 127, 191]);
    }

    #[test]
    fn q_12_deadlines_wait_a_moment_for_what_others_read() {
        let mut now = Instant::now();
        let mut held_up = HeldUp::new(now, ms(100));
        held_up.waited(now, now + ms(20_000), Some(ms(5)));
        now += ms(20_000);
        let mut deferred = 0;
        while held_up.defers(false) {
            deferred += 1;
            held_up.waited(now, now + ms(1), Some(Duration::ZERO));
            now += ms(1);
        }
        assert_eq!(deferred, 100);
    }

    #[test]
    fn q_12_a_wait_without_an_end_is_no_hold_up() {
        let now = Instant::now();
        let mut held_up = HeldUp::new(now, Duration::ZERO);
        held_up.waited(now, now + ms(60_000), None);
        assert!(!held_up.defers(true));
    }
}
