//! Hooks: events of streams, posted to the receivers that operators configure (docs/hooks.md).
//!
//! 1. An event occurs (`events`): the body is made immediately, from the state at that time.
//! 2. The hook joins its stream's queue, called a line. Hooks of one stream are sent one after the other, in the order
//!    of their events; lines do not wait for each other.
//! 3. The hook becomes a job ([`Hooks::poll_post`]). Without an answer, or after any answer but 200, the hook is sent
//!    again, as often as the application's settings say, while the line waits.
//! 4. If more than [`WAITING_MAX`] hooks wait, the oldest hook of the application with most hooks is dropped and
//!    counted: a message of a data channel if one waits, else an event.
//! 5. Threads are shared ([`crate::jobs::shares`]): neither an application nor a silent receiver can occupy all of
//!    them.

mod events;
mod idles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub(super) use events::Notice;
use idles::Idles;

use crate::auth::access::Secret;
use crate::auth::{HookUrl, redact};
use crate::config::HookSettings;
use crate::jobs::shares::{Payer, Threads, Turn};
use crate::jobs::{BodyType, Class, Post, Receiver};
use crate::stats::HookCounts;
use crate::types::{Now, SessionRef, StreamKey};

/// Number of hooks sent at the same time.
const SENDERS: usize = Class::Hook.limits().threads;
/// Maximum number of waiting hooks (docs/robustness.md).
const WAITING_MAX: usize = 1000;
/// Maximum number of waiting messages of a stream's data channels.
const DATA_MAX: usize = 64;
/// Maximum bytes of messages of all data channels, including those being sent.
const DATA_BYTES_MAX: usize = 8 << 20;
/// Action of a lost message of a data channel.
pub(super) const DATA: &str = "data";
/// Maximum time for which the answer of a receiver is awaited.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for which the shutdown waits for hooks.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// A hook to be sent.
#[derive(Debug)]
struct Hook {
    /// Consecutive number of the hook; the lowest is the oldest.
    age: u64,
    action: &'static str,
    payer: Payer,
    /// Sender of a message of a data channel.
    sender: Option<SessionRef>,
    url: HookUrl,
    body: Bytes,
    body_type: BodyType,
    secret: Secret,
    retries: u32,
    retry_delay: Duration,
}

/// The state of a stream's queue of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first hook of the queue can be sent.
    Ready,
    /// A hook of the queue is being sent.
    Sending,
    /// The first hook has failed and is retried at this time.
    Pausing(Instant),
}

#[derive(Debug)]
struct Line {
    queue: VecDeque<Hook>,
    state: State,
}

/// A hook that is being sent.
#[derive(Debug)]
struct Sending {
    key: StreamKey,
    hook: Hook,
    turn: Turn,
    since: Instant,
}

/// All hooks.
#[derive(Debug)]
pub(super) struct Hooks {
    threads: Threads,
    lines: BTreeMap<StreamKey, Line>,
    /// Waiting hooks of each application, by age.
    ages: BTreeMap<Arc<str>, BTreeMap<u64, StreamKey>>,
    /// Total number of waiting hooks.
    waiting: usize,
    /// Streams whose first waiting hook can be sent, by the age of that hook.
    ready: BTreeMap<u64, StreamKey>,
    pauses: BTreeSet<(Instant, StreamKey)>,
    sending: BTreeMap<u64, Sending>,
    hooks: u64,
    counts: HookCounts,
    idles: Idles,
    drain_until: Option<Instant>,
    /// True if the shutdown has waited for hooks long enough.
    overdue: bool,
    /// True if the load was too high for new publishers when last checked.
    load_high: bool,
    data: DataBytes,
    /// Hooks that were given up, to be logged.
    lost: VecDeque<LostHook>,
}

/// Bytes of data channel messages that wait or are being sent.
#[derive(Debug, Default)]
struct DataBytes {
    all: usize,
    apps: BTreeMap<Arc<str>, usize>,
}

impl DataBytes {
    fn of(&self, app: &Arc<str>) -> usize {
        self.apps.get(app).copied().unwrap_or(0)
    }

    fn add(&mut self, app: &Arc<str>, bytes: usize) {
        self.all = self.all.saturating_add(bytes);
        let of_app = self.apps.entry(Arc::clone(app)).or_default();
        *of_app = of_app.saturating_add(bytes);
    }

    fn remove(&mut self, app: &Arc<str>, bytes: usize) {
        self.all = self.all.saturating_sub(bytes);
        let left = self.of(app).saturating_sub(bytes);
        if left == 0 {
            self.apps.remove(app);
        } else {
            self.apps.insert(Arc::clone(app), left);
        }
    }

    /// Returns the application with most bytes, if it would have more than another one with these bytes even after
    /// losing them.
    fn largest_beside(&self, app: &Arc<str>, bytes: usize) -> Option<Arc<str>> {
        let own = self.of(app).saturating_add(bytes);
        let (largest, most) = self.apps.iter().max_by_key(|(_, bytes)| **bytes)?;
        (largest != app && *most > own).then(|| Arc::clone(largest))
    }
}

/// A hook that was given up.
#[derive(Debug)]
pub(super) struct LostHook {
    pub(super) key: StreamKey,
    pub(super) action: &'static str,
    /// The receiver's URL, with credentials masked.
    pub(super) url: String,
    pub(super) reason: String,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            threads: Threads::new(SENDERS),
            lines: BTreeMap::new(),
            ages: BTreeMap::new(),
            waiting: 0,
            ready: BTreeMap::new(),
            pauses: BTreeSet::new(),
            sending: BTreeMap::new(),
            hooks: 0,
            counts: HookCounts::default(),
            idles: Idles::default(),
            drain_until: None,
            overdue: false,
            load_high: false,
            data: DataBytes::default(),
            lost: VecDeque::new(),
        }
    }
}

impl Hooks {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pause = self.pauses.first().map(|(at, _)| *at);
        [pause, self.drain_until, self.idles.deadline()].into_iter().flatten().min()
    }

    /// Number of hooks that wait or are being sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.saturating_add(self.sending.len())
    }

    pub(super) const fn counts(&self) -> HookCounts {
        self.counts
    }

    /// True if the shutdown need not wait for hooks any longer.
    pub(super) fn is_drained(&self) -> bool {
        self.overdue || self.waiting() == 0
    }

    fn has_line(&self, key: &StreamKey) -> bool {
        self.lines.contains_key(key)
    }

    fn push(&mut self, key: StreamKey, hook: Hook) {
        if self.waiting >= WAITING_MAX {
            self.drop_oldest();
        }
        self.note_waiting(hook.age, &key);
        let new = || Line { queue: VecDeque::new(), state: State::Ready };
        let line = self.lines.entry(key.clone()).or_insert_with(new);
        if line.state == State::Ready && line.queue.is_empty() {
            self.ready.insert(hook.age, key);
        }
        line.queue.push_back(hook);
    }

    fn note_waiting(&mut self, age: u64, key: &StreamKey) {
        let of_app = self.ages.entry(Arc::clone(&key.app)).or_default();
        if of_app.insert(age, key.clone()).is_none() {
            self.waiting = self.waiting.saturating_add(1);
        }
    }

    fn waits_no_more(&mut self, age: u64, app: &Arc<str>) {
        let Some(of_app) = self.ages.get_mut(app) else { return };
        if of_app.remove(&age).is_some() {
            self.waiting = self.waiting.saturating_sub(1);
        }
        if of_app.is_empty() {
            self.ages.remove(app);
        }
    }

    /// Drops the oldest hook of the application with most waiting hooks. Messages of data channels are dropped before
    /// events.
    fn drop_oldest(&mut self) {
        let most = self.ages.iter().max_by_key(|(_, of_app)| of_app.len());
        let Some(app) = most.map(|(app, _)| Arc::clone(app)) else { return };
        if !self.drop_oldest_data(&app) {
            let oldest = self.ages.get(&app).and_then(BTreeMap::first_key_value);
            if let Some((age, key)) = oldest.map(|(age, key)| (*age, key.clone())) {
                self.drop_one(age, key, 0);
            }
        }
    }

    /// Drops the oldest waiting data channel message of an application. Returns false if none waits.
    fn drop_oldest_data(&mut self, app: &Arc<str>) -> bool {
        let is_data = |key: &StreamKey| {
            let first = self.lines.get(key).and_then(|line| line.queue.front());
            first.is_some_and(|hook| hook.body_type == BodyType::Data)
        };
        if self.data.of(app) == 0 {
            return false;
        }
        let mut waiting = self.ages.get(app).into_iter().flatten();
        let Some((age, key)) = waiting.find(|(_, key)| is_data(key)) else { return false };
        let (age, key) = (*age, key.clone());
        self.drop_one(age, key, 0);
        true
    }

    /// Makes room in a stream's full queue of data channel messages: drops the oldest message of the sender with most
    /// of them, if it has more than `sender` would have. Returns whether a message was dropped.
    fn drop_of_busiest(&mut self, line: &StreamKey, sender: SessionRef) -> bool {
        let queue = || self.lines.get(line).into_iter().flat_map(|line| &line.queue);
        let mut counts: BTreeMap<SessionRef, usize> = BTreeMap::new();
        for sender in queue().filter_map(|hook| hook.sender) {
            *counts.entry(sender).or_default() += 1;
        }
        let own = counts.get(&sender).map_or(1, |count| count.saturating_add(1));
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > own);
        let Some((busiest, _)) = busiest else { return false };
        let oldest = queue().enumerate().find(|(_, hook)| hook.sender == Some(busiest));
        let Some((at, age)) = oldest.map(|(at, hook)| (at, hook.age)) else { return false };
        self.drop_one(age, line.clone(), at);
        true
    }

    /// Drops the hook at this place of a queue, which has this age.
    fn drop_one(&mut self, age: u64, key: StreamKey, at: usize) {
        self.waits_no_more(age, &key.app);
        self.counts.dropped = self.counts.dropped.saturating_add(1);
        self.ready.remove(&age);
        let Some(line) = self.lines.get_mut(&key) else { return };
        let dropped = line.queue.remove(at);
        if let State::Pausing(until) = line.state
            && at == 0
        {
            self.pauses.remove(&(until, key.clone()));
            line.state = State::Ready;
        }
        self.settle(&key);
        if let Some(hook) = dropped {
            self.forget(&hook);
            self.note_lost(&key, &hook, "too many wait".to_owned());
        }
    }

    fn note_lost(&mut self, key: &StreamKey, hook: &Hook, reason: String) {
        // Peers may send any number of data messages; lost ones leave room for events.
        let most = if hook.body_type == BodyType::Data { WAITING_MAX / 2 } else { WAITING_MAX };
        if self.lost.len() < most {
            let (action, url) = (hook.action, redact(hook.url.as_str()));
            self.lost.push_back(LostHook { key: key.clone(), action, url, reason });
        }
    }

    /// Returns the next hook that was given up.
    pub(super) fn poll_lost(&mut self) -> Option<LostHook> {
        self.lost.pop_front()
    }

    /// Removes a stream's queue if it is empty. Lists it by the age of its first hook if that hook can be sent.
    fn settle(&mut self, key: &StreamKey) {
        let Some(line) = self.lines.get(key) else { return };
        match (line.state, line.queue.front()) {
            (State::Ready, None) => drop(self.lines.remove(key)),
            (State::Ready, Some(first)) => drop(self.ready.insert(first.age, key.clone())),
            (State::Sending | State::Pausing(_), _) => {}
        }
    }

    /// Takes the next hook for which a thread is free: the oldest one of the application that uses the fewest threads.
    fn next(&mut self) -> Option<(StreamKey, Hook)> {
        if self.threads.is_full() {
            return None;
        }
        let ready = self.ready.iter().filter_map(|(age, key)| {
            let payer = &self.lines.get(key)?.queue.front()?.payer;
            let of_app = self.threads.of_app(payer.app.as_ref());
            self.threads.may_begin(payer).then_some((of_app, *age))
        });
        let (_, age) = ready.min()?;
        let key = self.ready.remove(&age)?;
        self.waits_no_more(age, &key.app);
        let line = self.lines.get_mut(&key)?;
        line.state = State::Sending;
        Some((key, line.queue.pop_front()?))
    }

    /// Puts a failed hook back at the front of its stream's queue, to be retried after a pause.
    fn pause(&mut self, now: Now, key: StreamKey, hook: Hook) {
        let until = now.mono.checked_add(hook.retry_delay).unwrap_or(now.mono);
        self.note_waiting(hook.age, &key);
        if let Some(line) = self.lines.get_mut(&key) {
            line.queue.push_front(hook);
            line.state = State::Pausing(until);
        }
        self.pauses.insert((until, key));
    }

    /// Adds a hook to the queue of its stream.
    pub(super) fn tell(
        &mut self,
        key: &StreamKey,
        url: &HookUrl,
        action: &'static str,
        body: Bytes,
        settings: &HookSettings,
    ) {
        self.hooks += 1;
        // The server's own hooks do not belong to an application.
        let app = Some(&key.app).filter(|app| !app.is_empty());
        let hook = Hook {
            age: self.hooks,
            action,
            payer: Payer::new(app, &format!("{}:{}", url.host, url.port)),
            sender: None,
            url: url.clone(),
            body,
            body_type: if settings.form { BodyType::Form } else { BodyType::Json },
            secret: settings.secret.clone(),
            retries: settings.retries,
            retry_delay: settings.retry_delay,
        };
        self.push(key.clone(), hook);
    }

    /// Queues a message of a data channel, in a queue separate from the stream's events. While [`DATA_MAX`] messages of
    /// the stream wait, one of the busiest sender is dropped and counted for each further one. If all messages would
    /// exceed [`DATA_BYTES_MAX`], the application with most bytes loses its oldest ones; if that is the new message's
    /// application, the new message is dropped. Messages are not retried.
    pub(super) fn tell_data(
        &mut self,
        (key, sender): (&StreamKey, SessionRef),
        url: &HookUrl,
        body: Bytes,
        settings: &HookSettings,
    ) {
        // No stream id contains a blank, so this is not the key of any queue of events.
        let line = StreamKey::new(&key.app, &format!("{} (data)", key.id));
        let waiting = self.lines.get(&line).map_or(0, |line| line.queue.len());
        let mut has_room = waiting < DATA_MAX || self.drop_of_busiest(&line, sender);
        while has_room && self.data.all.saturating_add(body.len()) > DATA_BYTES_MAX {
            let largest = self.data.largest_beside(&key.app, body.len());
            has_room = largest.is_some_and(|app| self.drop_oldest_data(&app));
        }
        self.hooks += 1;
        let hook = Hook {
            age: self.hooks,
            action: DATA,
            payer: Payer::new(Some(&key.app), &format!("{}:{}", url.host, url.port)),
            sender: Some(sender),
            url: url.clone(),
            body,
            body_type: BodyType::Data,
            secret: settings.secret.clone(),
            retries: 0,
            retry_delay: settings.retry_delay,
        };
        if !has_room {
            self.counts.dropped = self.counts.dropped.saturating_add(1);
            return self.note_lost(&line, &hook, "too many wait".to_owned());
        }
        self.data.add(&key.app, hook.body.len());
        self.push(line, hook);
    }

    /// Stops counting the bytes of a data channel message that was sent or dropped.
    fn forget(&mut self, hook: &Hook) {
        if let Some(app) = hook.payer.app.as_ref().filter(|_| hook.body_type == BodyType::Data) {
            self.data.remove(app, hook.body.len());
        }
    }

    /// Returns the next hook to send, with its number and application, if a thread is free.
    pub(super) fn poll_post(&mut self, now: Now) -> Option<(u64, Option<Arc<str>>, Post)> {
        let (key, hook) = self.next()?;
        let post = Post {
            receiver: Receiver::Hook,
            url: hook.url.clone(),
            body: hook.body.clone(),
            body_type: hook.body_type,
            secret: hook.secret.clone(),
            timeout: TIMEOUT,
        };
        let (age, app) = (hook.age, hook.payer.app.clone());
        let turn = self.threads.begin(hook.payer.clone());
        self.sending.insert(age, Sending { key, hook, turn, since: now.mono });
        Some((age, app, post))
    }

    /// Handles the result of sending a hook.
    pub(super) fn handle_answer(&mut self, now: Now, number: u64, result: &Result<u16, String>) {
        let Some(Sending { key, mut hook, turn, since }) = self.sending.remove(&number) else { return };
        self.threads.end(turn, now.mono.saturating_duration_since(since));
        if let Some(line) = self.lines.get_mut(&key) {
            line.state = State::Ready;
        }
        match (result, hook.retries.checked_sub(1)) {
            (Ok(200), _) => {
                self.forget(&hook);
                self.counts.sent = self.counts.sent.saturating_add(1);
            }
            (Ok(_) | Err(_), Some(left)) => {
                hook.retries = left;
                self.pause(now, key.clone(), hook);
            }
            (failed, None) => {
                self.forget(&hook);
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

    /// Lets each queue continue when its pause is over. Ends the shutdown's wait for hooks when [`DRAIN_MAX`] is over.
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

    /// Begins the shutdown, in which waiting hooks get a little more time.
    pub(super) fn drain(&mut self, now: Now) {
        self.drain_until = now.mono.checked_add(DRAIN_MAX);
    }
}
