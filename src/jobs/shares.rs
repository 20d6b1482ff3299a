//! Shares of limited resources, so that no application uses them up.
//!
//! Resources that applications share (threads that wait for the network, queues, records, sources) are divided among
//! the current users. An application's share covers all its targets: a silent host blocks only a part of the threads of
//! its application.
//!
//! - [`Threads`]: decides whether one more thread may be used. One application may use at most five of every eight
//!   threads, and one target at most half of its application's threads. All slow targets together may use a quarter of
//!   the threads. A new target of an application that has several slow targets is assumed to be slow, too.
//! - [`Lines`]: the work that waits for a thread. The next item comes from the application with the fewest threads, and
//!   within an application from the target with the fewest threads. If several have equally few, the one that has
//!   waited longest is next.
//! - [`Room`]: decides whether an application may hold one more item of a kind that it keeps, such as a record or a source.
//!
//! Work of the server itself and of its administrators has no application. Only the total number of threads limits such
//! work.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A target counts as slow once it has kept a thread for this long, until a later use of a thread
/// is shorter.
const SLOW: Duration = Duration::from_secs(1);
/// Maximum number of targets remembered, fast or slow; the oldest is forgotten first.
const KNOWN_MAX: usize = 4096;
/// If an application has this many slow targets, its new targets count as slow until they have proven fast.
const SUSPECT: usize = 4;

/// The application and target that a thread, or a place in a queue, counts for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Payer {
    /// Application; `None` for the server itself.
    pub app: Option<Arc<str>>,
    /// The peer to wait for: a host, a zone, an endpoint.
    pub target: Arc<str>,
}

impl Payer {
    /// Makes a payer from an application and a target.
    #[must_use]
    pub fn new(app: Option<&Arc<str>>, target: &str) -> Self {
        Self { app: app.cloned(), target: target.into() }
    }
}

/// A thread in use, returned with [`Threads::end`].
#[derive(Debug)]
pub struct Turn {
    payer: Payer,
    was_slow: bool,
}

/// Threads in use, by payer.
#[derive(Debug)]
pub struct Threads {
    all: usize,
    running: usize,
    apps: BTreeMap<Arc<str>, usize>,
    targets: BTreeMap<Payer, usize>,
    /// Number of threads in use for slow targets.
    slow_running: usize,
    /// Known targets, and whether their last turn was slow.
    known: BTreeMap<Payer, bool>,
    /// Keys of [`Threads::known`], oldest first.
    order: VecDeque<Payer>,
    /// Number of slow targets for each application.
    slow_of: BTreeMap<Arc<str>, usize>,
}

impl Threads {
    /// Creates the shares of unused threads.
    #[must_use]
    pub const fn new(all: usize) -> Self {
        Self {
            all,
            running: 0,
            apps: BTreeMap::new(),
            targets: BTreeMap::new(),
            slow_running: 0,
            known: BTreeMap::new(),
            order: VecDeque::new(),
            slow_of: BTreeMap::new(),
        }
    }

    /// Returns the maximum number of threads of one application. Three of every eight threads are left for other
    /// applications.
    const fn of_app_max(&self) -> usize {
        if self.all < 2 { self.all } else { self.all - at_least_one(self.all * 3 / 8) }
    }

    /// Returns the maximum number of threads for one target of an application.
    const fn of_target_max(&self) -> usize {
        at_least_one(self.of_app_max() / 2)
    }

    /// Returns the maximum number of threads for all slow targets together.
    const fn of_slow_max(&self) -> usize {
        at_least_one(self.all / 4)
    }

    /// True if no thread is free.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.running >= self.all
    }

    /// Returns the number of threads in use.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Returns the number of threads that an application uses.
    #[must_use]
    pub fn of_app(&self, app: Option<&Arc<str>>) -> usize {
        app.and_then(|app| self.apps.get(app)).copied().unwrap_or(0)
    }

    fn of_target(&self, payer: &Payer) -> usize {
        self.targets.get(payer).copied().unwrap_or(0)
    }

    fn has_app_room(&self, app: Option<&Arc<str>>) -> bool {
        !self.is_full() && (app.is_none() || self.of_app(app) < self.of_app_max())
    }

    /// True if another thread may work for this payer.
    #[must_use]
    pub fn may_begin(&self, payer: &Payer) -> bool {
        if payer.app.is_none() {
            return !self.is_full();
        }
        self.has_app_room(payer.app.as_ref())
            && (payer.target.is_empty() || self.of_target(payer) < self.of_target_max())
            && (!self.is_slow(payer) || self.slow_running < self.of_slow_max())
    }

    /// True if a target is expected to be slow.
    fn is_slow(&self, payer: &Payer) -> bool {
        let Some(app) = payer.app.as_ref().filter(|_| !payer.target.is_empty()) else { return false };
        let is_suspect = || self.slow_of.get(app).is_some_and(|slow| *slow >= SUSPECT);
        self.known.get(payer).copied().unwrap_or_else(is_suspect)
    }

    /// Starts a thread's work for this payer.
    pub fn begin(&mut self, payer: Payer) -> Turn {
        let was_slow = self.is_slow(&payer);
        self.running = self.running.saturating_add(1);
        self.slow_running = self.slow_running.saturating_add(usize::from(was_slow));
        if let Some(app) = &payer.app {
            let count = self.apps.entry(Arc::clone(app)).or_default();
            *count = count.saturating_add(1);
            let count = self.targets.entry(payer.clone()).or_default();
            *count = count.saturating_add(1);
        }
        Turn { payer, was_slow }
    }

    /// Ends a thread's work, which took this long.
    pub fn end(&mut self, turn: Turn, took: Duration) {
        let Turn { payer, was_slow } = turn;
        self.running = self.running.saturating_sub(1);
        self.slow_running = self.slow_running.saturating_sub(usize::from(was_slow));
        if let Some(app) = &payer.app {
            lower(&mut self.apps, app);
            lower(&mut self.targets, &payer);
            if !payer.target.is_empty() {
                self.remember(payer, took >= SLOW);
            }
        }
    }

    fn remember(&mut self, payer: Payer, is_slow: bool) {
        match self.known.insert(payer.clone(), is_slow) {
            Some(was_slow) => self.count_slow(&payer, was_slow, false),
            None => self.order.push_back(payer.clone()),
        }
        self.count_slow(&payer, is_slow, true);
        while self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let was_slow = self.known.remove(&oldest).unwrap_or(false);
            self.count_slow(&oldest, was_slow, false);
        }
    }

    fn count_slow(&mut self, payer: &Payer, is_slow: bool, more: bool) {
        let Some(app) = payer.app.as_ref().filter(|_| is_slow) else { return };
        if more {
            let count = self.slow_of.entry(Arc::clone(app)).or_default();
            *count = count.saturating_add(1);
        } else {
            lower(&mut self.slow_of, app);
        }
    }
}

const fn at_least_one(count: usize) -> usize {
    if count == 0 { 1 } else { count }
}

/// Decrements a count; a zero count is removed.
fn lower<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        Some(_) => drop(counts.remove(key)),
        None => {}
    }
}

/// The queue of a target: its items, oldest first, and the number of its last turn.
#[derive(Debug)]
struct Line<T> {
    queue: VecDeque<T>,
    turn: u64,
}

/// The queues of an application.
#[derive(Debug)]
struct AppLines<T> {
    targets: BTreeMap<Arc<str>, Line<T>>,
    turn: u64,
}

/// Work that waits for threads, by payer.
#[derive(Debug)]
pub struct Lines<T> {
    apps: BTreeMap<Option<Arc<str>>, AppLines<T>>,
    len: usize,
    turns: u64,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { apps: BTreeMap::new(), len: 0, turns: 0 }
    }
}

impl<T> Lines<T> {
    /// True if nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of waiting items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Adds an item to the queue of its payer.
    pub fn push(&mut self, payer: &Payer, item: T) {
        self.turns = self.turns.saturating_add(1);
        let turn = self.turns;
        let new_app = || AppLines { targets: BTreeMap::new(), turn };
        let app = self.apps.entry(payer.app.clone()).or_insert_with(new_app);
        let new_line = || Line { queue: VecDeque::new(), turn };
        app.targets.entry(Arc::clone(&payer.target)).or_insert_with(new_line).queue.push_back(item);
        self.len = self.len.saturating_add(1);
    }

    /// True if a thread may start on a waiting item.
    #[must_use]
    pub fn has_next(&self, threads: &Threads) -> bool {
        !threads.is_full() && self.next_payer(threads).is_some()
    }

    /// Takes the next item that a thread may start on, and begins its turn. Items of the server come first.
    pub fn next(&mut self, threads: &mut Threads) -> Option<(T, Turn)> {
        if self.is_empty() || threads.is_full() {
            return None;
        }
        let payer = self.next_payer(threads)?;
        self.turns = self.turns.saturating_add(1);
        let app = self.apps.get_mut(&payer.app)?;
        app.turn = self.turns;
        let line = app.targets.get_mut(&payer.target)?;
        line.turn = self.turns;
        let item = line.queue.pop_front()?;
        if line.queue.is_empty() {
            app.targets.remove(&payer.target);
        }
        if app.targets.is_empty() {
            self.apps.remove(&payer.app);
        }
        self.len = self.len.saturating_sub(1);
        Some((item, threads.begin(payer)))
    }

    fn next_payer(&self, threads: &Threads) -> Option<Payer> {
        let mut apps: Vec<_> = self
            .apps
            .iter()
            .filter(|(app, _)| threads.has_app_room(app.as_ref()))
            .map(|(app, lines)| (app.is_some(), threads.of_app(app.as_ref()), lines.turn, app, lines))
            .collect();
        apps.sort_unstable_by_key(|(is_app, running, turn, ..)| (*is_app, *running, *turn));
        apps.into_iter().find_map(|(_, _, _, app, lines)| {
            let payers = lines.targets.iter().map(|(target, line)| {
                let payer = Payer { app: app.clone(), target: Arc::clone(target) };
                (threads.of_target(&payer), line.turn, payer)
            });
            let next = payers.filter(|(.., payer)| threads.may_begin(payer)).min()?;
            Some(next.2)
        })
    }
}

/// Room under a limit on items that applications keep for any length of time. A place once given cannot be taken back.
///
/// Half of the limit is divided equally among the applications that hold any items: their guaranteed parts. The other
/// half is first come, first served. At most an eighth of the limit is reserved for applications that hold nothing yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    limit: usize,
    own: usize,
    used: usize,
    /// Unused places in the guaranteed parts of other applications.
    reserved: usize,
    /// Number of applications without items.
    idle: usize,
    part: usize,
}

impl Room {
    /// Computes the room of an application that holds `own` items. `others` lists the number of items that each of the
    /// other registered applications holds.
    #[must_use]
    pub fn new(limit: usize, own: usize, others: impl Iterator<Item = usize> + Clone) -> Self {
        let (mut active, mut idle, mut used) = (1_usize, 0_usize, own);
        for held in others.clone() {
            used = used.saturating_add(held);
            let is_active = usize::from(held > 0);
            active = active.saturating_add(is_active);
            idle = idle.saturating_add(1 - is_active);
        }
        let part = at_least_one(limit / active.saturating_mul(2));
        let unused = others.filter(|held| *held > 0).map(|held| part.saturating_sub(held));
        let reserved = unused.fold(0, usize::saturating_add);
        let newcomers = if idle == 0 { 0 } else { part.max(idle).min(limit / 8) };
        // Other applications will not all use their guaranteed parts, so at most half of the limit is reserved for the
        // unused ones.
        let reserved = reserved.min(limit / 2).saturating_add(newcomers);
        Self { limit, own, used, reserved, idle: idle.min(limit / 8), part }
    }

    /// True if there is room for another item.
    #[must_use]
    pub const fn is_there(self) -> bool {
        let free = self.limit.saturating_sub(self.used);
        if self.own == 0 {
            free > 0
        } else if self.own < self.part {
            free > self.idle
        } else {
            free > self.reserved
        }
    }
}

#[cfg(test)]
mod tests;
