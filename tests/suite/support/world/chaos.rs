//! Faults around the machines of a server, and pauses of its threads.

use std::time::{Duration, Instant};

use crypto::{Random, Seed};

/// Random faults that a world inflicts on the server.
#[derive(Debug, Clone, Copy)]
pub struct Chaos {
    /// True if machines are driven in random order, and take only some of their mail at a time.
    pub shuffles: bool,
    /// The chance that a thread pauses before it takes or sends a message.
    pub pauses: f64,
    /// The longest pause.
    pub pause_max: Duration,
    /// The longest time that the disk takes.
    pub disk_max: Duration,
    /// The chance that a datagram is lost, and the chance that it is duplicated.
    pub datagrams_lost: f64,
    pub datagrams_doubled: f64,
    /// The chance that an outgoing connection fails.
    pub connects_fail: f64,
    /// The chance that a name lookup fails, and the chance that the name server is silent for long.
    pub names_fail: f64,
    pub names_silent: f64,
    /// The chance that a call of a hook receiver fails.
    pub posts_fail: f64,
}

impl Chaos {
    /// No faults: everything happens without delay, in a fixed order, and succeeds.
    pub const NONE: Self = Self {
        shuffles: false,
        pauses: 0.0,
        pause_max: Duration::ZERO,
        disk_max: Duration::ZERO,
        datagrams_lost: 0.0,
        datagrams_doubled: 0.0,
        connects_fail: 0.0,
        names_fail: 0.0,
        names_silent: 0.0,
        posts_fail: 0.0,
    };
}

/// The threads of the server: its workers', then control's.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) chaos: Chaos,
    pub(super) random: Random,
    asleep: Vec<Option<Instant>>,
}

impl Threads {
    pub(super) fn new(seed: &Seed, workers: u16, chaos: Chaos) -> Self {
        let random = seed.derive("chaos", 0).random();
        Self { chaos, random, asleep: vec![None; usize::from(workers) + 1] }
    }

    pub(super) fn runs(&self, thread: usize) -> bool {
        self.asleep[thread].is_none()
    }

    /// Time at which a pausing thread continues.
    pub(super) fn wakes(&self, thread: usize) -> Option<Instant> {
        self.asleep[thread]
    }

    pub(super) fn wake(&mut self, now: Instant) {
        self.asleep.iter_mut().for_each(|until| *until = until.filter(|until| *until > now));
    }

    pub(super) fn wake_all(&mut self) {
        self.asleep.fill(None);
    }

    pub(super) fn pause(&mut self, thread: usize, until: Instant) {
        let thread = &mut self.asleep[thread];
        *thread = Some(thread.map_or(until, |before| before.max(until)));
    }

    /// Decides whether a thread pauses now, before its next message.
    pub(super) fn may_pause(&mut self, now: Instant, thread: usize) -> bool {
        if self.chaos.pauses == 0.0 || !self.random.chance(self.chaos.pauses) {
            return false;
        }
        let time = self.up_to(self.chaos.pause_max);
        self.pause(thread, now + time);
        true
    }

    /// Maximum number of messages that a machine takes before other machines get their turn.
    pub(super) fn batch(&mut self) -> usize {
        if self.chaos.shuffles { 1 + usize::try_from(self.random.below(8)).unwrap() } else { usize::MAX }
    }

    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap();
        Duration::from_micros(self.random.below(micros + 1))
    }

    pub(super) fn shuffle(&mut self, steps: &mut [usize]) {
        if !self.chaos.shuffles {
            return;
        }
        for index in (1..steps.len()).rev() {
            let other = usize::try_from(self.random.below(index as u64 + 1)).unwrap();
            steps.swap(index, other);
        }
    }
}
