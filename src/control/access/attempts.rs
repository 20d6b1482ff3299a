//! Failed time codes: six digits are soon guessed when attempts are unlimited. Counted by subscriber and address,
//! so that nobody keeps somebody else out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::auth::access::{Credentials, Params};
use crate::types::{Now, StreamKey};

/// Wrong codes of one address for one subscriber within [`WINDOW`]; what it shows then is wrong, whatever it is.
const ATTEMPTS_MAX: u32 = 10;
/// How long a wrong code counts.
const WINDOW: Duration = Duration::from_secs(60);
/// Pairs of subscriber and address that are remembered.
const REMEMBERED_MAX: usize = 10_000;

type Who = (StreamKey, String, IpAddr);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::control) struct CodeAttempts {
    wrong: BTreeMap<Who, u32>,
    since: Option<Instant>,
}

impl CodeAttempts {
    /// Whether this address has tried often enough.
    pub(super) fn is_over(&self, now: Now, key: &StreamKey, subscriber: Option<&str>, peer: IpAddr) -> bool {
        let Some(subscriber) = subscriber.filter(|_| self.is_fresh(now)) else { return false };
        let who = (key.clone(), subscriber.to_owned(), peer.to_canonical());
        self.wrong.get(&who).is_some_and(|wrong| *wrong >= ATTEMPTS_MAX)
    }

    /// A wrong code.
    pub(in crate::control) fn note(&mut self, now: Now, key: &StreamKey, params: &Params, peer: IpAddr) {
        let Some(subscriber) = Credentials::of(params).subscriber else { return };
        if !self.is_fresh(now) || self.wrong.len() >= REMEMBERED_MAX {
            self.wrong.clear();
            self.since = Some(now.mono);
        }
        let who = (key.clone(), subscriber.to_owned(), peer.to_canonical());
        let wrong = self.wrong.entry(who).or_default();
        *wrong = wrong.saturating_add(1);
    }

    fn is_fresh(&self, now: Now) -> bool {
        self.since.is_some_and(|since| now.mono.saturating_duration_since(since) < WINDOW)
    }
}
