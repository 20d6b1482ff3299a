//! Candidate pairs, and the order of their checks (RFC 8445 §6.1.2). A session has a single component of a
//! single stream, so the Frozen state, which orders checks between streams, is not needed.

use std::collections::VecDeque;
use std::time::Instant;

use crate::agent::Role;
use crate::candidate::pair_priority;
use crate::limits::CHECK_LIST_MAX;
use crate::path::Path;

/// State of a pair (RFC 8445 §6.1.2.6), without Frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairState {
    Waiting,
    InProgress,
    Succeeded,
    Failed,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) path: Path,
    pub(super) local_priority: u32,
    pub(super) remote_priority: u32,
    pub(super) state: PairState,
    /// Generation of credentials that the pair uses.
    pub(super) generation: u32,
    /// True if the peer has nominated the pair, but no check of ours has succeeded since.
    pub(super) is_wanted: bool,
    /// Time of the last answer to one of our checks.
    pub(super) answered: Option<Instant>,
    /// Time until which data other than STUN is accepted on the pair; `None` if it is not accepted.
    pub(super) valid_until: Option<Instant>,
}

impl Pair {
    pub(super) const fn new(path: Path, local_priority: u32, remote_priority: u32, generation: u32) -> Self {
        Self {
            path,
            local_priority,
            remote_priority,
            state: PairState::Waiting,
            generation,
            is_wanted: false,
            answered: None,
            valid_until: None,
        }
    }

    pub(super) fn priority(&self, role: Role) -> u64 {
        match role {
            Role::Controlling => pair_priority(self.local_priority, self.remote_priority),
            Role::Controlled => pair_priority(self.remote_priority, self.local_priority),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, PairState::Waiting | PairState::InProgress)
    }

    pub(super) fn was_answered_since(&self, since: Option<Instant>) -> bool {
        self.answered.is_some_and(|at| since.is_none_or(|since| at > since))
    }
}

#[derive(Debug, Default)]
pub(super) struct CheckList {
    pairs: Vec<Pair>,
    triggered: VecDeque<Path>,
}

impl CheckList {
    pub(super) fn get(&self, path: &Path) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.path == *path)
    }

    pub(super) fn get_mut(&mut self, path: &Path) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| pair.path == *path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pair> {
        self.pairs.iter_mut()
    }

    pub(super) const fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Adds a pair, or restarts one that uses earlier credentials. If the list is full, the pair with the lowest
    /// priority among those on which no data is accepted is dropped, provided that the new pair has a higher priority.
    /// Returns false if there is no room.
    pub(super) fn add(&mut self, pair: Pair, role: Role) -> bool {
        if let Some(old) = self.get_mut(&pair.path) {
            if old.generation != pair.generation {
                let (answered, valid_until) = (old.answered, old.valid_until);
                *old = Pair { answered, valid_until, ..pair };
            }
            return true;
        }
        if self.pairs.len() >= CHECK_LIST_MAX {
            let worst = self.pairs.iter().enumerate().filter(|(_, pair)| pair.valid_until.is_none());
            let worst = worst.min_by_key(|(_, pair)| pair.priority(role));
            match worst.map(|(index, worst)| (index, worst.priority(role))) {
                Some((index, priority)) if priority < pair.priority(role) => {
                    let gone = self.pairs.swap_remove(index);
                    self.triggered.retain(|path| *path != gone.path);
                }
                _ => return false,
            }
        }
        self.pairs.push(pair);
        true
    }

    /// Drops all triggered checks, and all pairs except those for which `keep` is true.
    pub(super) fn retain(&mut self, keep: impl Fn(&Pair) -> bool) {
        self.pairs.retain(keep);
        self.triggered.clear();
    }

    /// Triggers a check of a pair (RFC 8445 §7.3.1.4).
    pub(super) fn trigger(&mut self, path: Path) {
        if !self.triggered.contains(&path) && self.get(&path).is_some() {
            self.triggered.push_back(path);
        }
    }

    /// Returns the pair to check now (RFC 8445 §6.1.4.2): a triggered one, otherwise the best waiting one.
    pub(super) fn next(&mut self, role: Role) -> Option<Path> {
        if let Some(path) = self.triggered.pop_front() {
            return Some(path);
        }
        let waiting = self.pairs.iter().filter(|pair| pair.state == PairState::Waiting);
        waiting.max_by_key(|pair| pair.priority(role)).map(|pair| pair.path)
    }

    pub(super) fn has_next(&self) -> bool {
        !self.triggered.is_empty() || self.pairs.iter().any(|pair| pair.state == PairState::Waiting)
    }

    /// Number of pairs waiting for a check or being checked.
    pub(super) fn open(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.is_open()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(port: usize) -> Path {
        let address =
            |port: usize| std::net::SocketAddr::from(([192, 0, 2, 1], u16::try_from(port).unwrap()));
        Path::udp(address(1), address(port))
    }

    fn filled() -> CheckList {
        let mut list = CheckList::default();
        for port in 0..CHECK_LIST_MAX {
            let priority = 1000 + u32::try_from(port).unwrap();
            assert!(list.add(Pair::new(path(port), 9999, priority, 0), Role::Controlling));
        }
        list
    }

    #[test]
    fn the_best_goes_first_and_triggered_ones_before_it() {
        let mut list = filled();
        list.trigger(path(3));
        list.trigger(path(3));
        list.trigger(path(60_000));
        assert_eq!(list.next(Role::Controlling), Some(path(3)));
        assert_eq!(list.next(Role::Controlling), Some(path(CHECK_LIST_MAX - 1)));
        list.iter_mut().for_each(|pair| pair.state = PairState::Failed);
        assert!(!list.has_next() && list.next(Role::Controlled).is_none() && list.open() == 0);
    }

    #[test]
    fn a_full_list_gives_up_its_worst_for_a_better_one() {
        let mut list = filled();
        assert!(!list.add(Pair::new(path(5000), 9999, 999, 0), Role::Controlling));
        assert!(list.add(Pair::new(path(5000), 9999, 1001, 0), Role::Controlling));
        assert!(list.get(&path(0)).is_none() && list.len() == CHECK_LIST_MAX);
        list.iter_mut().for_each(|pair| pair.valid_until = Some(netsim::Clock::new().now()));
        assert!(!list.add(Pair::new(path(5001), 9999, 9999, 0), Role::Controlling));
    }

    #[test]
    fn a_pair_of_new_credentials_begins_anew_and_stays_valid() {
        let mut list = CheckList::default();
        let now = netsim::Clock::new().now();
        list.add(Pair::new(path(1), 1, 1, 0), Role::Controlling);
        list.iter_mut().for_each(|pair| (pair.state, pair.valid_until) = (PairState::Succeeded, Some(now)));
        list.add(Pair::new(path(1), 1, 1, 0), Role::Controlling);
        assert_eq!(list.get(&path(1)).unwrap().state, PairState::Succeeded);
        list.add(Pair::new(path(1), 1, 1, 1), Role::Controlling);
        let pair = list.get(&path(1)).unwrap();
        assert_eq!((pair.state, pair.valid_until, list.len()), (PairState::Waiting, Some(now), 1));
    }
}
