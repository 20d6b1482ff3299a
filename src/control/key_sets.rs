//! Sets of public keys for verifying tokens (`jwksURL`, `server.jwksURL`), fetched by jobs and refreshed.
//!
//! 1. A set is fetched when settings name it, and every five minutes.
//! 2. A token that names a key missing from the set is refused, and the set is fetched again soon, because the issuer
//!    may have started to use a new key. This happens at most every 30 seconds, since anybody can send such tokens.
//! 3. If fetching fails, the last set remains valid for a day. Without a set, every token is refused.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use crate::auth::access::Trust;
use crate::auth::jwks::KeySet;
use crate::auth::jwt::{self, Claims, JwtError};
use crate::auth::{HookUrl, redact};
use crate::control::access::Access;
use crate::jobs::Work;
use crate::types::Now;

/// Interval at which a set is refreshed.
const REFRESH: Duration = Duration::from_secs(300);
/// Minimum interval of fetches caused by tokens or failures.
const AGAIN: Duration = Duration::from_secs(30);
/// Time for which a set stays valid while it cannot be refreshed.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);

/// The key sets by URL.
#[derive(Debug, Default)]
pub(super) struct KeySets(BTreeMap<String, Kept>);

/// A key set, fetched or to be fetched.
#[derive(Debug)]
struct Kept {
    /// Application whose settings name the set; `None` if the server's do.
    app: Option<Arc<str>>,
    url: HookUrl,
    keys: Option<(KeySet, Instant)>,
    asked: Option<Instant>,
    due: Instant,
    under_way: bool,
    is_failing: bool,
    /// True if a token has named a key that the set lacks.
    is_stale: Cell<bool>,
}

impl Kept {
    fn due(&self) -> Option<Instant> {
        let soon = self.asked.and_then(|asked| asked.checked_add(AGAIN)).filter(|_| self.is_stale.get());
        Some(soon.map_or(self.due, |soon| soon.min(self.due))).filter(|_| !self.under_way)
    }
}

impl KeySets {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(Kept::due).min()
    }

    /// Verifies a token with a set; fails if the set is missing.
    pub(super) fn verify(&self, now: Now, url: &HookUrl, token: &str) -> Result<Claims, JwtError> {
        let kept = self.0.get(url.as_str()).ok_or(JwtError::NoKeys)?;
        let (keys, since) = kept.keys.as_ref().ok_or(JwtError::NoKeys)?;
        if now.mono.saturating_duration_since(*since) > GOOD_FOR {
            return Err(JwtError::NoKeys);
        }
        let verified = jwt::verify_by_keys(token, keys, now.wall_ms);
        if verified == Err(JwtError::UnknownKey) {
            kept.is_stale.set(true);
        }
        verified
    }
}

impl Access {
    /// Verifies a token by a secret or a key set.
    pub(super) fn verify_token(&self, now: Now, trust: &Trust, token: &str) -> Result<Claims, JwtError> {
        match trust {
            Trust::Secret(secret) => jwt::verify(token, secret.reveal().as_bytes(), now.wall_ms),
            Trust::Keys(url) => self.key_sets.verify(now, url, token),
        }
    }

    fn key_set_came(&mut self, now: Now, name: &str, result: Result<KeySet, String>) {
        let Some(kept) = self.key_sets.0.get_mut(name) else { return };
        kept.under_way = false;
        let url = redact(name);
        match result {
            Ok(keys) => {
                if kept.keys.is_none() || kept.is_failing {
                    tracing::info!(url, keys = keys.len(), "key set fetched");
                }
                kept.keys = Some((keys, now.mono));
                kept.is_failing = false;
                kept.due = now.mono + REFRESH;
            }
            Err(reason) => {
                let has_keys = kept.keys.is_some();
                if !std::mem::replace(&mut kept.is_failing, true) {
                    tracing::warn!(url, reason, has_keys, "key set not fetched; retrying every 30 s");
                }
                kept.due = now.mono + AGAIN;
            }
        }
    }

    /// Adds the sets named in the settings, and removes all others.
    pub(super) fn follow_key_sets(&mut self, cx: &Context, now: Now) {
        let server = cx.config.server.management_trust.as_ref().and_then(Trust::keys);
        let mut wanted: BTreeMap<&str, (Option<Arc<str>>, &HookUrl)> = BTreeMap::new();
        if let Some(url) = server {
            wanted.insert(url.as_str(), (None, url));
        }
        for (name, app) in &cx.apps {
            let of_api = app.security.rest_jwt.as_ref().and_then(Trust::keys);
            for url in [of_api, app.security.secrets.keys.as_ref()].into_iter().flatten() {
                wanted.entry(url.as_str()).or_insert_with(|| (Some(Arc::clone(name)), url));
            }
        }
        let sets = &mut self.key_sets.0;
        sets.retain(|name, _| wanted.contains_key(name.as_str()));
        for (name, (app, url)) in wanted {
            let kept = sets.entry(name.to_owned()).or_insert_with(|| Kept {
                app: None,
                url: url.clone(),
                keys: None,
                asked: None,
                due: now.mono,
                under_way: false,
                is_failing: false,
                is_stale: Cell::new(false),
            });
            kept.app = app;
        }
    }

    /// Fetches the sets that are due.
    pub(super) fn fire_key_sets(&mut self, cx: &mut Context, now: Now) {
        let due = |kept: &Kept| kept.due().is_some_and(|due| due <= now.mono);
        let sets = self.key_sets.0.values().filter(|kept| due(kept));
        for (app, url) in sets.map(|kept| (kept.app.clone(), kept.url.clone())).collect::<Vec<_>>() {
            let name = url.as_str().to_owned();
            let work = Work::Fetch { url };
            let of = name.clone();
            let sent = cx.submit_of(app, work, move |control, now, outcome| {
                control.access.key_set_came(
                    now,
                    &of,
                    outcome.fetched().and_then(|bytes| KeySet::read(&bytes).map_err(str::to_owned)),
                );
            });
            if let Some(kept) = self.key_sets.0.get_mut(&name) {
                kept.under_way = sent;
                kept.asked = Some(now.mono);
                kept.is_stale.set(false);
                kept.due = now.mono + AGAIN;
            }
        }
    }
}
