//! Hooks: events of streams, posted to the receivers that operators configure (docs/hooks.md).
//!
//! 1. Something happens (`events`): the body is made at once, of what is true now.
//! 2. It stands in its stream's line. Hooks of one stream are sent one after the other, in the order in which things
//!    happened; lines do not wait for each other.
//! 3. It becomes a job ([`Hooks::poll_post`]). Anything but 200 is tried again as often as the application says, while its line waits.
//! 4. More than [`WAITING_MAX`] waiting: the oldest is dropped, and counted.

mod events;
mod idles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use idles::Idles;

use crate::auth::access::Secret;
use crate::auth::{HookUrl, redact};
use crate::config::HookSettings;
use crate::jobs::{Class, Post, Receiver};
use crate::stats::HookCounts;
use crate::types::{Now, StreamKey};

/// Hooks that are sent at the same time.
const SENDERS: usize = Class::Hook.limits().threads;
/// Hooks that wait (docs/robustness.md).
const WAITING_MAX: usize = 1000;
/// The timeout of a receiver.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Threads that one receiver may occupy: one that hangs does not stop the others.
const PER_RECEIVER: usize = SENDERS / 2;
/// How long the drain waits for hooks.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Something to tell.
#[derive(Debug)]
struct Hook {
    /// Grows with every hook: the lowest is the oldest.
    age: u64,
    action: &'static str,
    url: HookUrl,
    body: Bytes,
    form: bool,
    secret: Secret,
    retries: u32,
    retry_delay: Duration,
}

/// The state of a stream's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its first hook can be sent.
    Ready,
    /// The one before its first is being sent.
    Sending,
    /// Its first hook has failed and is retried then.
    Pausing(Instant),
}

#[derive(Debug)]
struct Line {
    queue: VecDeque<Hook>,
    state: State,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    lines: BTreeMap<StreamKey, Line>,
    /// All waiting hooks, by age.
    ages: BTreeMap<u64, StreamKey>,
    /// Lines whose first can be sent, by its age.
    ready: BTreeMap<u64, StreamKey>,
    pauses: BTreeSet<(Instant, StreamKey)>,
    sending: BTreeMap<u64, (StreamKey, Hook)>,
    hooks: u64,
    counts: HookCounts,
    idles: Idles,
    drain_until: Option<Instant>,
    /// The drain has waited long enough.
    overdue: bool,
    /// A hook has reported that the server is short of resources.
    load_high: bool,
    /// Hooks that were given up, for the log.
    lost: VecDeque<LostHook>,
}

/// A hook that no receiver has taken.
#[derive(Debug)]
pub(super) struct LostHook {
    pub(super) key: StreamKey,
    pub(super) action: &'static str,
    /// The receiver, redacted.
    pub(super) url: String,
    pub(super) reason: String,
}

impl Hooks {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pause = self.pauses.first().map(|(at, _)| *at);
        [pause, self.drain_until, self.idles.deadline()].into_iter().flatten().min()
    }

    /// Hooks that wait or are being sent.
    pub(super) fn waiting(&self) -> usize {
        self.ages.len().saturating_add(self.sending.len())
    }

    pub(super) const fn counts(&self) -> HookCounts {
        self.counts
    }

    /// Whether a drain need not wait for them (any longer).
    pub(super) fn is_drained(&self) -> bool {
        self.overdue || self.waiting() == 0
    }

    fn has_line(&self, key: &StreamKey) -> bool {
        self.lines.contains_key(key)
    }

    fn push(&mut self, key: StreamKey, hook: Hook) {
        if self.ages.len() >= WAITING_MAX {
            self.drop_oldest();
        }
        self.ages.insert(hook.age, key.clone());
        let new = || Line { queue: VecDeque::new(), state: State::Ready };
        let line = self.lines.entry(key.clone()).or_insert_with(new);
        if line.state == State::Ready && line.queue.is_empty() {
            self.ready.insert(hook.age, key);
        }
        line.queue.push_back(hook);
    }

    fn drop_oldest(&mut self) {
        let Some((age, key)) = self.ages.pop_first() else { return };
        self.counts.dropped = self.counts.dropped.saturating_add(1);
        self.ready.remove(&age);
        let Some(line) = self.lines.get_mut(&key) else { return };
        let dropped = line.queue.pop_front();
        if let State::Pausing(at) = line.state {
            self.pauses.remove(&(at, key.clone()));
            line.state = State::Ready;
        }
        self.settle(&key);
        if let Some(hook) = dropped {
            self.note_lost(&key, &hook, "too many wait".to_owned());
        }
    }

    fn note_lost(&mut self, key: &StreamKey, hook: &Hook, reason: String) {
        if self.lost.len() < WAITING_MAX {
            let (action, url) = (hook.action, redact(hook.url.as_str()));
            self.lost.push_back(LostHook { key: key.clone(), action, url, reason });
        }
    }

    /// The next hook that was given up.
    pub(super) fn poll_lost(&mut self) -> Option<LostHook> {
        self.lost.pop_front()
    }

    /// A line without anything is gone; one that is ready is found by the age of its first.
    fn settle(&mut self, key: &StreamKey) {
        let Some(line) = self.lines.get(key) else { return };
        match (line.state, line.queue.front()) {
            (State::Ready, None) => drop(self.lines.remove(key)),
            (State::Ready, Some(first)) => drop(self.ready.insert(first.age, key.clone())),
            (State::Sending | State::Pausing(_), _) => {}
        }
    }

    /// The oldest that can be sent to a receiver that has threads left.
    fn next(&mut self) -> Option<(StreamKey, Hook)> {
        if self.sending.len() >= SENDERS {
            return None;
        }
        let age = self.ready.iter().find_map(|(age, key)| {
            let url = &self.lines.get(key)?.queue.front()?.url;
            let same =
                |(_, hook): &&(StreamKey, Hook)| hook.url.host == url.host && hook.url.port == url.port;
            (self.sending.values().filter(same).count() < PER_RECEIVER).then_some(*age)
        })?;
        let key = self.ready.remove(&age)?;
        self.ages.remove(&age);
        let line = self.lines.get_mut(&key)?;
        line.state = State::Sending;
        Some((key, line.queue.pop_front()?))
    }

    /// Puts a hook that failed back before the others of its stream.
    fn pause(&mut self, now: Now, key: StreamKey, hook: Hook) {
        let until = now.mono.checked_add(hook.retry_delay).unwrap_or(now.mono);
        self.ages.insert(hook.age, key.clone());
        if let Some(line) = self.lines.get_mut(&key) {
            line.queue.push_front(hook);
            line.state = State::Pausing(until);
        }
        self.pauses.insert((until, key));
    }

    /// Puts a hook into its stream's line.
    pub(super) fn tell(
        &mut self,
        key: &StreamKey,
        url: &HookUrl,
        action: &'static str,
        body: Bytes,
        settings: &HookSettings,
    ) {
        self.hooks += 1;
        let hook = Hook {
            age: self.hooks,
            action,
            url: url.clone(),
            body,
            form: settings.form,
            secret: settings.secret.clone(),
            retries: settings.retries,
            retry_delay: settings.retry_delay,
        };
        self.push(key.clone(), hook);
    }

    /// The next hook to send, by its number, while there are threads for it.
    pub(super) fn poll_post(&mut self) -> Option<(u64, Post)> {
        let (key, hook) = self.next()?;
        let post = Post {
            receiver: Receiver::Hook,
            url: hook.url.clone(),
            body: hook.body.clone(),
            form: hook.form,
            secret: hook.secret.clone(),
            timeout: TIMEOUT,
        };
        let age = hook.age;
        self.sending.insert(age, (key, hook));
        Some((age, post))
    }

    /// A receiver has taken a hook, or has not.
    pub(super) fn handle_answer(&mut self, now: Now, number: u64, result: &Result<u16, String>) {
        let Some((key, mut hook)) = self.sending.remove(&number) else { return };
        if let Some(line) = self.lines.get_mut(&key) {
            line.state = State::Ready;
        }
        match (result, hook.retries.checked_sub(1)) {
            (Ok(200), _) => self.counts.sent = self.counts.sent.saturating_add(1),
            (Ok(_) | Err(_), Some(left)) => {
                hook.retries = left;
                self.pause(now, key.clone(), hook);
            }
            (failed, None) => {
                self.counts.failed = self.counts.failed.saturating_add(1);
                let reason = match failed {
                    Ok(status) => format!("status {status}"),
                    Err(reason) => reason.clone(),
                };
                self.note_lost(&key, &hook, reason);
            }
        }
        self.settle(&key);
    }

    /// Lines whose pause is over are ready again, and a drain ends that has waited long enough.
    pub(super) fn handle_timeout(&mut self, now: Now) {
        while let Some((at, key)) = self.pauses.first().cloned() {
            if at > now.mono {
                break;
            }
            self.pauses.pop_first();
            if let Some(line) = self.lines.get_mut(&key) {
                line.state = State::Ready;
            }
            self.settle(&key);
        }
        if self.drain_until.is_some_and(|until| until <= now.mono) {
            self.drain_until = None;
            self.overdue = true;
        }
    }

    /// The server is shutting down: waiting hooks get a little time.
    pub(super) fn drain(&mut self, now: Now) {
        self.drain_until = now.mono.checked_add(DRAIN_MAX);
    }
}
