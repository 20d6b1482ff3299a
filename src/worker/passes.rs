//! Viewers that watch by separate requests and must be admitted by control. Control is asked about each viewer, and
//! again after [`KNOWN`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::conns::Conns;
use super::polled::Polled;
use super::streams::Live;
use super::turn::Turn;
use crate::auth::access::{Credentials, Denial};
use crate::auth::network;
use crate::mail::{NoSubscription, PlayRequest, PolledRequest, ToControl};
use crate::protocol::{PassAsk, Reply, RequestNews};
use crate::types::{ConnId, Handle, StreamKey};

/// Time for which a positive answer of control about a viewer is reused.
const KNOWN: Duration = Duration::from_secs(5);
/// Maximum number of answers kept.
const KNOWN_MAX: usize = 50_000;

/// Stream, protocol, identity and address of the viewer that an answer applies to.
type Holder = (StreamKey, &'static str, String, IpAddr);

/// An answer of control that is still valid.
#[derive(Debug)]
struct Known {
    until: Instant,
    /// The `subscriberId` that the viewer presented.
    subscriber: Option<String>,
}

/// A pending question to control.
#[derive(Debug)]
struct Asked {
    holder: Holder,
    subscriber: Option<String>,
}

/// Answers of control about viewers, and pending questions.
#[derive(Debug, Default)]
pub(super) struct Passes {
    known: BTreeMap<Holder, Known>,
    ends: BTreeSet<(Instant, Holder)>,
    asked: BTreeMap<ConnId, Asked>,
}

impl Passes {
    /// Number of connections that wait for an answer.
    pub(super) fn waiting(&self) -> usize {
        self.asked.len()
    }

    fn is_known(&mut self, now: Instant, holder: &Holder) -> bool {
        while let Some((until, _)) = self.ends.first()
            && *until <= now
        {
            self.ends.pop_first().and_then(|(_, old)| self.known.remove(&old));
        }
        self.known.contains_key(holder)
    }

    fn note(&mut self, now: Instant, Asked { holder, subscriber }: Asked) {
        if self.known.len() >= KNOWN_MAX || self.known.contains_key(&holder) {
            return;
        }
        let until = now.checked_add(KNOWN).unwrap_or(now);
        self.ends.insert((until, holder.clone()));
        self.known.insert(holder, Known { until, subscriber });
    }

    /// Forgets the answers about a subscriber.
    pub(super) fn end_subscriber(&mut self, app: &str, subscriber: &str) {
        let ends = &mut self.ends;
        self.known.retain(|holder, known| {
            let (key, ..) = holder;
            let stays = *key.app != *app || known.subscriber.as_deref() != Some(subscriber);
            if !stays {
                ends.remove(&(known.until, holder.clone()));
            }
            stays
        });
    }

    /// Forgets the pending question of a connection.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.asked.remove(&conn);
    }
}

impl Polled {
    /// Checks whether the viewer of a request may be served. If control has admitted the viewer recently, that answer
    /// is reused; otherwise control is asked.
    pub(super) fn ask_pass(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        live: &Live,
        id: ConnId,
        ask: PassAsk,
    ) {
        let stream = ask.stream.or_else(|| live.directory.get(&ask.key).copied());
        let of_stream = stream.and_then(|stream| self.key_of_polled(live, stream));
        if turn.leaving && !ask.is_glance && !self.serves_on(live, &ask) {
            conns.pass_refused(id, ask.protocol, &ask.key, &NoSubscription::Draining);
            return conns.answer_pass(turn, id, Err(NoSubscription::Draining));
        }
        let key = of_stream.unwrap_or(ask.key);
        let Some(app) = turn.apps.get(&key.app) else {
            return conns.answer_pass(turn, id, Err(NoSubscription::Disabled));
        };
        if self.barred.has(turn.now.mono, &key, ask.protocol, &ask.viewer) {
            let ended = NoSubscription::Denied(Denial::Ended);
            conns.pass_refused(id, ask.protocol, &key, &ended);
            return conns.answer_pass(turn, id, Err(ended));
        }
        let details = stream.and_then(|stream| live.details.get(stream));
        let is_limited = details.is_some_and(|details| details.limits_polled);
        let shown = Credentials::of(&ask.params).counting(&app.security.play);
        if !app.security.play.any() && !is_limited && shown.subscriber.is_none() {
            return conns.answer_pass(turn, id, Ok(()));
        }
        if turn.draining {
            return conns.answer_pass(turn, id, Err(NoSubscription::Draining));
        }
        let Some(conn) = conns.get(id) else { return };
        let peer = conn.client();
        let who = identity(&shown, &ask.viewer);
        let former = ask.former.filter(|_| who == ask.viewer);
        let holder = (key.clone(), ask.protocol, who.clone(), network(peer.ip()));
        if self.passes.is_known(turn.now.mono, &holder) {
            return conns.answer_pass(turn, id, Ok(()));
        }
        let subscriber = shown.subscriber.map(str::to_owned);
        self.passes.asked.insert(id, Asked { holder, subscriber });
        let request = PlayRequest {
            session: turn.session_ref(id, Handle::ONLY),
            key,
            egress: ask.protocol,
            peer,
            params: ask.params,
            origin: ask.origin,
            polled: Some(PolledRequest { who, former, file: ask.file, found: ask.found }),
        };
        turn.tell(ToControl::Play(Box::new(request)));
    }

    /// Handles control's verdict on a viewer, and answers the viewer's request.
    pub(super) fn pass_verdict(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        verdict: Result<(), NoSubscription>,
    ) {
        let Some(asked) = self.passes.asked.remove(&id) else { return };
        match &verdict {
            Ok(()) => self.passes.note(turn.now.mono, asked),
            // Control knows no stream for this request, but there may be a file. The request is not refused yet: if the
            // file is found on disk, control is asked again.
            Err(NoSubscription::NotFound) => {}
            Err(why) => {
                let (key, protocol, ..) = asked.holder;
                conns.pass_refused(id, protocol, &key, why);
            }
        }
        conns.answer_pass(turn, id, verdict);
    }
}

impl Conns {
    pub(super) fn answer_pass(&mut self, turn: &mut Turn, id: ConnId, verdict: Result<(), NoSubscription>) {
        self.reply(turn, id, Reply::Request(RequestNews::Pass(verdict)));
        self.touch(turn, id);
    }
}

/// Returns the identity of a viewer: a hash of the viewer's credentials, which may be long, or the viewer's name if
/// there are no credentials.
fn identity(shown: &Credentials<'_>, viewer: &str) -> String {
    let all = [shown.token, shown.subscriber, shown.code];
    if all.iter().all(Option::is_none) {
        return viewer.to_owned();
    }
    let parts: Vec<&[u8]> =
        all.iter().flat_map(|part| [part.unwrap_or_default().as_bytes(), b"\0"]).collect();
    crypto::sha256(&parts).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
