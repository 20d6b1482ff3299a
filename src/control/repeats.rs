//! Log lines of repeated failures: the first failure of a series has its own line, further ones are summed up once a
//! minute for each kind.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hooks::{DATA, Hooks, LostHook};
use crate::control::Outbound;
use crate::types::{Now, StreamKey};

/// Time over which failures are summed up.
const PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of refused addresses remembered.
const REFUSED_MAX: usize = 1000;

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A failed attempt of a source.
    Pull,
    /// A failed attempt of an endpoint.
    Push,
    /// A host name for which the resolver has not answered in time.
    Resolver,
    /// A playlist item that delivered no media.
    Item,
    /// A hook call that was given up.
    Hook,
    /// A message of a data channel that its receiver did not get. Peers may send any number of messages, so the first
    /// one has no line of its own.
    Data,
}

impl Repeat {
    const ALL: [Self; 6] = [Self::Pull, Self::Push, Self::Resolver, Self::Item, Self::Hook, Self::Data];

    const fn index(self) -> usize {
        match self {
            Self::Pull => 0,
            Self::Push => 1,
            Self::Resolver => 2,
            Self::Item => 3,
            Self::Hook => 4,
            Self::Data => 5,
        }
    }
}

/// The failures of one kind since the last log line.
#[derive(Debug, Default)]
struct Sum {
    failures: u64,
    /// Stream and reason of the latest failure.
    latest: Option<(StreamKey, String)>,
}

/// Counts of repeated failures; see the module.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    sums: [Sum; Repeat::ALL.len()],
    due: Option<Instant>,
    /// Time of the last lost hook.
    hook_lost: Option<Instant>,
    /// Addresses that were refused and logged, by application; the name is empty for the server's API.
    refused: BTreeSet<(Arc<str>, IpAddr)>,
}

impl Repeats {
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Counts a failure that follows the first one of its series. The first failure has its own log line.
    pub(super) fn note(&mut self, now: Now, kind: Repeat, key: &StreamKey, reason: &str) {
        let Some(sum) = self.sums.get_mut(kind.index()) else { return };
        sum.failures = sum.failures.saturating_add(1);
        sum.latest = Some((key.clone(), reason.to_owned()));
        self.due = self.due.or_else(|| now.mono.checked_add(PERIOD));
    }

    /// True if a refused address should be logged, which happens once per address. After [`REFUSED_MAX`] addresses, all
    /// are forgotten and may be logged again.
    pub(super) fn is_first_refusal(&mut self, app: Option<&str>, client: IpAddr) -> bool {
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.insert((app.unwrap_or_default().into(), client))
    }

    /// True if a lost hook gets its own log line, because no other hook was lost during the last [`PERIOD`].
    fn is_first_hook(&mut self, now: Now) -> bool {
        let before = self.hook_lost.replace(now.mono);
        before.is_none_or(|before| now.mono.saturating_duration_since(before) >= PERIOD)
    }

    /// Takes the sums that are due: kind, count, and the latest failure.
    fn take_due(&mut self, now: Now) -> Vec<(Repeat, u64, StreamKey, String)> {
        if self.due.is_none_or(|due| due > now.mono) {
            return Vec::new();
        }
        self.due = None;
        let sums = Repeat::ALL.into_iter().zip(&mut self.sums).filter_map(|(kind, sum)| {
            let Sum { failures, latest } = std::mem::take(sum);
            latest.map(|(key, reason)| (kind, failures, key, reason))
        });
        sums.collect()
    }
}

impl Outbound {
    /// Logs the sums that are due.
    pub(super) fn fire_repeats(&mut self, now: Now) {
        for (kind, failures, key, reason) in self.repeats.take_due(now) {
            match kind {
                Repeat::Pull => {
                    let sources = self.supervisor.failing().1;
                    tracing::info!(failures, sources, latest = %key, reason, "sources still failing");
                }
                Repeat::Push => {
                    let endpoints = self.supervisor.failing().0;
                    tracing::info!(failures, endpoints, latest = %key, reason, "endpoints still failing");
                }
                Repeat::Resolver => {
                    tracing::info!(failures, latest = %key, reason, "DNS resolver still not answering");
                }
                Repeat::Item => {
                    tracing::info!(failures, latest = %key, reason, "playlist items still delivering nothing");
                }
                Repeat::Data => {
                    tracing::warn!(failures, app = &*key.app, reason, "data channel messages lost");
                }
                Repeat::Hook => tracing::warn!(failures, latest = %key, reason, "more hook calls lost"),
            }
        }
    }

    /// Logs hook calls that were given up, because the receivers of these hooks have missed an event.
    pub(super) fn tell_lost_hooks(&mut self, hooks: &mut Hooks, now: Now) {
        while let Some(LostHook { key, action, url, reason }) = hooks.poll_lost() {
            if action == DATA {
                self.repeats.note(now, Repeat::Data, &key, &reason);
            } else if self.repeats.is_first_hook(now) {
                tracing::warn!(%key, action, url, reason, "hook call lost");
            } else {
                tracing::debug!(%key, action, url, reason, "hook call lost");
                self.repeats.note(now, Repeat::Hook, &key, &reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_13_a_kind_of_failures_is_one_line_a_minute() {
        let mut now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut repeats = Repeats::default();
        let mut lines = Vec::new();
        for second in 0..300_u64 {
            now.mono += Duration::from_secs(1);
            for n in 0..20 {
                let key = StreamKey::new("live", &format!("s{n}"));
                repeats.note(now, Repeat::Pull, &key, &format!("reason {second}"));
                repeats.note(now, Repeat::Push, &key, "refused");
            }
            lines.extend(repeats.take_due(now));
        }
        let counts: Vec<_> = lines.iter().map(|(kind, failures, ..)| (*kind, *failures)).collect();
        // A period begins with a failure and ends sixty seconds later. With failures in both the first and the last
        // second, each sum has the failures of 61 seconds.
        assert_eq!(counts, [(Repeat::Pull, 61 * 20), (Repeat::Push, 61 * 20)].repeat(4));
        assert_eq!((lines[0].2.to_string(), &*lines[0].3), ("live/s19".to_owned(), "reason 60"));
        // If nothing fails, nothing is logged and no deadline is set.
        now.mono += PERIOD;
        repeats.take_due(now);
        assert_eq!((repeats.deadline(), repeats.take_due(now).len()), (None, 0));
    }

    #[test]
    fn q_13_a_lost_hook_is_told_at_once_and_more_of_them_in_one_line() {
        let mut now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut repeats = Repeats::default();
        let key = StreamKey::new("live", "s");
        let (mut at_once, mut sums) = (Vec::new(), Vec::new());
        for second in 0..200_u64 {
            if second < 100 {
                if repeats.is_first_hook(now) {
                    at_once.push(second);
                } else {
                    repeats.note(now, Repeat::Hook, &key, "refused");
                }
            }
            sums.extend(repeats.take_due(now).into_iter().map(|(_, failures, ..)| (second, failures)));
            now.mono += Duration::from_secs(1);
        }
        // One sum covers the first minute, the other one the failures after that minute.
        assert_eq!((at_once, sums), (vec![0], vec![(61, 61), (122, 38)]));
    }
}
