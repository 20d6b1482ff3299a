//! Addresses of this machine that the settings give as a host name, or leave to a STUN server.
//!
//! 1. An address is looked up as soon as the settings need it, and every five minutes, since addresses of cloud
//!    machines and home connections change.
//! 2. Sessions get the addresses with the settings ([`crate::mail::Site`]); before the first answer they have none.
//! 3. If a look-up fails, the last addresses remain in use, and the look-up is retried after 30 s.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use crate::directory::Side;
use crate::jobs::Work;
use crate::mail::ToWorker;
use crate::protocol;
use crate::types::{Lookup, Now};

/// Interval at which an address is looked up.
const REFRESH: Duration = Duration::from_secs(300);
/// Interval of attempts while a look-up fails.
const AGAIN: Duration = Duration::from_secs(30);

/// The look-ups that the settings need.
#[derive(Debug, Default)]
pub(super) struct Lookups(BTreeMap<Lookup, Kept>);

/// A look-up and its last addresses.
#[derive(Debug)]
struct Kept {
    addresses: Vec<IpAddr>,
    due: Instant,
    under_way: bool,
    is_failing: bool,
}

impl Lookups {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.values().filter(|kept| !kept.under_way).map(|kept| kept.due).min()
    }

    /// Returns the addresses found so far.
    pub(super) fn found(&self) -> BTreeMap<Lookup, Vec<IpAddr>> {
        self.0.iter().map(|(lookup, kept)| (lookup.clone(), kept.addresses.clone())).collect()
    }

    /// Handles the result of a look-up. Returns true if the addresses have changed.
    fn take(&mut self, now: Now, lookup: &Lookup, result: Result<Vec<IpAddr>, String>) -> bool {
        // The settings may no longer need this look-up.
        let Some(kept) = self.0.get_mut(lookup) else { return false };
        kept.under_way = false;
        let result =
            result.and_then(|found| if found.is_empty() { Err("no address".to_owned()) } else { Ok(found) });
        match result {
            Ok(mut addresses) => {
                addresses.sort_unstable();
                addresses.dedup();
                kept.due = now.mono + REFRESH;
                kept.is_failing = false;
                if kept.addresses == addresses {
                    return false;
                }
                tracing::info!(%lookup, ?addresses, "public address found");
                kept.addresses = addresses;
                true
            }
            Err(reason) => {
                kept.due = now.mono + AGAIN;
                if !std::mem::replace(&mut kept.is_failing, true) {
                    let kept = &kept.addresses;
                    tracing::warn!(%lookup, reason, ?kept, "public address not found; retrying every 30 s");
                }
                false
            }
        }
    }
}

impl Context {
    /// Adds the look-ups that the settings need, and removes all others.
    pub(super) fn follow_lookups(&mut self, now: Now) {
        let wanted = protocol::lookups(&self.config.server);
        let kept = &mut self.lookups.0;
        kept.retain(|lookup, _| wanted.contains(lookup));
        for lookup in wanted {
            kept.entry(lookup).or_insert_with(|| Kept {
                addresses: Vec::new(),
                due: now.mono,
                under_way: false,
                is_failing: false,
            });
        }
    }

    /// Begins the look-ups that are due.
    pub(super) fn fire_lookups(&mut self, now: Now) {
        let due = self.lookups.0.iter().filter(|(_, kept)| !kept.under_way && kept.due <= now.mono);
        for lookup in due.map(|(lookup, _)| lookup.clone()).collect::<Vec<_>>() {
            let work = match lookup.clone() {
                Lookup::Name(host) => Work::Resolve { host, port: 0 },
                Lookup::Seen { server, port } => Work::FindSeen { server, port },
            };
            let of = lookup.clone();
            let sent = self.submit(work, move |control, now, outcome| {
                let addresses =
                    outcome.resolved().map(|found| found.iter().map(|one| one.ip().to_canonical()).collect());
                if control.cx.lookups.take(now, &of, addresses) {
                    control.cx.post_settings();
                }
            });
            if let Some(kept) = self.lookups.0.get_mut(&lookup) {
                kept.under_way = sent;
                kept.due = now.mono + AGAIN;
            }
        }
    }

    /// Posts the settings of sessions to every worker.
    pub(super) fn post_settings(&mut self) {
        let mut settings = self.session_settings();
        settings.fetches_any |= self.side.is_some();
        settings.leaves_strays = self.side == Some(Side::Keeper);
        settings.retires = self.side == Some(Side::Guest);
        self.post_all(&ToWorker::Server(Arc::new(settings)));
    }
}
