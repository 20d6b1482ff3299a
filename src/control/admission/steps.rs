//! The steps of an admission and their checks, from memory.

use super::{Admission, Answer, Question, Request, Step, Ticket, Why};
use crate::auth::access::{Credentials, Denial};
use crate::config::AppSettings;
use crate::control::access::Access;
use crate::control::access::tokens::burn_token;
use crate::control::broadcast::{Broadcast, is_stream_id};
use crate::control::context::Context;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::records::auxiliary::Token;
use crate::control::{Control, Files, Outbound, wall};
use crate::mail::{NoSubscription, PlayRequest, PublishRequest, Refusal, ToWorker, via_entry};
use crate::protocol::{Format, VOD};
use crate::types::{Now, SessionRef, StreamKey};

/// Maximum number of servers that a stream may pass.
const HOPS_MAX: usize = 8;

impl Records {
    /// Returns the record's limit of polling viewers.
    pub(in crate::control) fn polled_limit(&self, request: &PlayRequest) -> Option<u32> {
        self.get(&request.key)?.viewer_limit(request.egress)
    }
}

/// The parts of control that the steps of an admission read.
#[derive(Clone, Copy)]
pub(in crate::control) struct Gate<'c> {
    access: &'c Access,
    cx: &'c Context,
    records: &'c Records,
    registry: &'c Registry,
    outbound: &'c Outbound,
    now: Now,
}

impl<'c> Gate<'c> {
    /// Borrows the current state of control.
    pub(in crate::control) const fn of(control: &'c Control, now: Now) -> Self {
        let Control { access, cx, records, registry, outbound, .. } = control;
        Self { access, cx, records, registry, outbound, now }
    }

    /// Passes all steps. Returns the first question that is not answered yet; the error is the refusal of a step.
    pub(super) fn pass_steps(self, admission: &Admission) -> Result<Option<Question>, Why> {
        let mut open = None;
        for step in Step::ALL {
            match self.take_step(step, admission) {
                Answer::Continue => {}
                Answer::Refuse(why) => return Err(why),
                Answer::Wait(question) => open = open.or(Some(question)),
            }
        }
        Ok(open)
    }

    /// Checks whether a socket may join a call. The rules are those for a viewer of the stream with the call's id, but
    /// the hook receiver is not asked: an application with a hook for viewers refuses the socket.
    pub(in crate::control) fn check_call(self, request: PlayRequest) -> Result<(), NoSubscription> {
        if self.cx.app_of(&request.key).is_some_and(|app| app.security.play.hook.is_some()) {
            return Err(NoSubscription::Denied(Denial::Hook));
        }
        let admission = Admission::new(Ticket(0), Request::Play(request));
        for step in Step::ALL {
            match self.take_step(step, &admission) {
                Answer::Continue => {}
                Answer::Refuse(Why::Play(why)) => return Err(why),
                Answer::Refuse(Why::Publish(_)) | Answer::Wait(_) => {
                    return Err(NoSubscription::Denied(Denial::Hook));
                }
            }
        }
        Ok(())
    }

    fn take_step(self, step: Step, admission: &Admission) -> Answer {
        let Self { access, cx, records, registry, outbound, now } = self;
        match (step, &admission.request) {
            (Step::Record, Request::Publish(request)) => {
                Answer::of(records.check_request(cx, now, request).map_err(Why::Publish))
            }
            (Step::Record, Request::Play(request)) => {
                Answer::of(cx.check_play_request(request).map_err(Why::Play))
            }
            (Step::Limits, Request::Publish(request)) => {
                Answer::of(self.check_limits(request).map_err(Why::Publish))
            }
            (Step::Limits, Request::Play(request)) => {
                Answer::of(access.check_viewer_limits(cx, records, registry, request).map_err(Why::Play))
            }
            // Viewers need no claim.
            (Step::Claim, Request::Play(_)) => Answer::Continue,
            (Step::Claim, Request::Publish(request)) => {
                let live = registry.find(&request.key);
                let ours = admission.claimed || live.is_some_and(|live| registry.cluster.has_claim(live));
                if ours { Answer::Continue } else { Answer::Wait(Question::Claim) }
            }
            (Step::Token, request) => {
                Answer::of(self.check_credentials(request).map_err(|denial| request.denied(denial)))
            }
            (Step::Hook, request) => registry.hook_step(cx, records, admission, request),
            (Step::Burn, request) => self.burn_step(admission, request),
            (Step::Reserve, Request::Publish(request)) => {
                Answer::of(registry.check_free(outbound, records, now, request).map_err(Why::Publish))
            }
            // Viewers reserve nothing. Only after all steps, `let_in` checks whether the stream exists, so that a
            // viewer who may not play it does not learn this.
            (Step::Reserve, Request::Play(_)) => Answer::Continue,
        }
    }

    /// Checks the limits of streams, records and load for a publisher. A stream that is already live
    /// passes; its standby counts like another stream, unless it replaces a standby that counts.
    fn check_limits(self, request: &PublishRequest) -> Result<(), Refusal> {
        let Self { cx, records, registry, outbound, now, .. } = self;
        let is_counted = registry.is_live(&request.key) && !outbound.is_copy(registry, &request.key);
        if is_counted && !registry.would_stand_by(records, now, request) {
            return Ok(());
        }
        let app = cx.app_of(&request.key).ok_or(Refusal::NoApplication)?;
        let limit = app.limits.streams.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let replaced = registry.replaced_standby(records, now, request);
        let streams = outbound.streams_of(registry, &app.name);
        if limit.is_some_and(|limit| streams.saturating_sub(usize::from(replaced.is_some())) >= limit) {
            return Err(Refusal::NotAllowed("ingestingStreamLimit is reached"));
        }
        let new_record = records.pending(&request.key).is_none();
        if new_record && !records.has_room_for_record(cx, &request.key.app) {
            return Err(Refusal::NotAllowed(
                "limits.broadcasts is reached, or the application's share of it",
            ));
        }
        let address = request.peer.ip();
        let server = &cx.config.server;
        let is_exempt = (server.limits.exempt_loopback && address.to_canonical().is_loopback())
            || server.trusted_proxies.contains(address);
        let is_replaced = replaced.is_some_and(|standby| standby.source.counts_for(address));
        let of_address = registry.count_of(address).saturating_sub(usize::from(is_replaced));
        if !is_exempt && of_address >= server.limits.publishers_per_address {
            return Err(Refusal::NotAllowed("limits.publishers_per_address is reached"));
        }
        registry.check_main_track(cx, records, request)?;
        if cx.load.is_high(now, &cx.config.server) {
            return Err(Refusal::Resources);
        }
        Ok(())
    }

    fn check_credentials(self, request: &Request) -> Result<(), Denial> {
        // An earlier step has checked that the application exists.
        let Some(app) = self.cx.app_of(request.key()) else { return Ok(()) };
        self.access.check_credentials(self.records, self.registry, self.now, app, request.asked())
    }

    /// Asks the directory, if there is one, to use up a one-time token.
    fn burn_step(self, admission: &Admission, request: &Request) -> Answer {
        let Self { cx, records, registry, .. } = self;
        let Some(app) = cx.app_of(request.key()).filter(|_| !admission.burnt) else {
            return Answer::Continue;
        };
        let is_checked = match request {
            Request::Publish(_) => app.security.publish.token,
            Request::Play(play) => app.security.play.token && registry.is_there(records, play),
        };
        let shown = Credentials::of(request.params()).token;
        match shown.filter(|_| is_checked && registry.cluster.is_shared()) {
            Some(shown) => {
                Answer::Wait(Question::Burn(Token::key(&request.key().app, &request.key().id, shown)))
            }
            None => Answer::Continue,
        }
    }
}

impl Context {
    fn app_of(&self, key: &StreamKey) -> Option<&AppSettings> {
        self.apps.get(&key.app).map(AsRef::as_ref)
    }

    fn check_play_request(&self, request: &PlayRequest) -> Result<(), NoSubscription> {
        if self.is_draining() {
            return Err(NoSubscription::Draining);
        }
        self.app_of(&request.key).map(drop).ok_or(NoSubscription::NotFound)
    }

    pub(super) fn refuse_publish(&mut self, request: &PublishRequest, refusal: Refusal) {
        let SessionRef { worker, conn, handle } = request.session;
        self.post(worker, ToWorker::Verdict { conn, handle, verdict: Err(refusal) });
    }

    pub(super) fn play_verdict(&mut self, request: &PlayRequest, verdict: Result<(), NoSubscription>) {
        let SessionRef { worker, conn, handle } = request.session;
        let mail = match request.polled {
            Some(_) => ToWorker::Pass { conn, verdict },
            None => ToWorker::PlayVerdict { conn, handle, verdict },
        };
        self.post(worker, mail);
    }
}

impl Records {
    fn check_request(&self, cx: &Context, now: Now, request: &PublishRequest) -> Result<(), Refusal> {
        if cx.lets_in_nothing() {
            return Err(Refusal::Draining);
        }
        let app = cx.app_of(&request.key).ok_or(Refusal::NoApplication)?;
        if !is_stream_id(&request.key.id) {
            return Err(Refusal::NotAllowed("the stream id is not valid"));
        }
        let rules = &app.allowed_publisher_cidr;
        if !rules.is_empty() && !rules.contains(request.peer.ip()) {
            return Err(Refusal::NotAllowed("the address is not in allowedPublisherCIDR"));
        }
        // A record whose creation is not yet on disk does not count, because the write may fail.
        let is_there = self.get(&request.key).is_some();
        if app.accept_only_streams_in_data_store && !is_there {
            return Err(Refusal::NotAllowed(NO_RECORD));
        }
        check_record(now, app, self.pending(&request.key))?;
        let own = via_entry(&cx.config.node, &request.key);
        if request.via.len() >= HOPS_MAX || request.via.contains(&own) {
            return Err(Refusal::Loop);
        }
        Ok(())
    }
}

impl Files {
    /// Sets the request's stream id to the stream from which a file was recorded: the stream in the file's record or,
    /// without a record, the stream in the file's name (`{id}.mp4`, `{id}_1.mp4` and so on).
    pub(super) fn name_stream(&self, records: &Records, request: &mut PlayRequest) {
        let Some(polled) = request.polled.as_ref().filter(|_| request.egress == VOD) else { return };
        if let Some(stream) = self.stream_of_file(records, &request.key.app, &polled.file) {
            request.key.id = stream;
            return;
        }
        if records.pending(&request.key).is_some() {
            return;
        }
        let (stem, number) = request.key.id.rsplit_once('_').unwrap_or((&request.key.id, ""));
        let named = StreamKey::new(&request.key.app, stem);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && records.pending(&named).is_some() {
            request.key = named;
        }
    }
}

impl Registry {
    fn hook_step(&self, cx: &Context, records: &Records, admission: &Admission, request: &Request) -> Answer {
        let Some(app) = cx.app_of(request.key()).filter(|_| !admission.approved) else {
            return Answer::Continue;
        };
        let hook = match request {
            Request::Publish(_) => app.security.publish.hook.as_ref(),
            Request::Play(request) => {
                app.security.play.hook.as_ref().filter(|_| self.is_watchable(records, request))
            }
        };
        hook.map_or(Answer::Continue, |url| Answer::Wait(Question::Hook(url.clone())))
    }

    /// True if the hook receiver should be asked about a viewer, because the stream exists or the viewer would start
    /// it.
    fn is_watchable(&self, records: &Records, request: &PlayRequest) -> bool {
        let starts = |key| records.get(key).is_some_and(|record| record.auto_start_stop_enabled);
        self.is_there(records, request) || (request.egress != VOD && starts(&request.key))
    }

    /// True if there is something to play: a live stream or subtrack, or a file that a request has already found.
    fn is_there(&self, records: &Records, request: &PlayRequest) -> bool {
        let is_found = request.polled.as_ref().is_some_and(|polled| polled.found);
        let is_live = || self.is_live(&request.key) || self.has_active_subtrack(records, &request.key);
        is_found || (request.egress != VOD && is_live())
    }
}

impl Access {
    /// Checks the record's and the application's limits of viewers, for the formats whose viewers are counted
    /// separately.
    fn check_viewer_limits(
        &self,
        cx: &Context,
        records: &Records,
        registry: &Registry,
        request: &PlayRequest,
    ) -> Result<(), NoSubscription> {
        if request.polled.is_some() {
            return self.check_polled_limit(records, registry, request);
        }
        let kind = Format::find(request.egress, 0).map(Format::kind);
        let Some(counted_as) = kind.and_then(|kind| kind.counted_as) else { return Ok(()) };
        let of_app = cx.app_of(&request.key).and_then(|app| app.limits.viewers);
        let of_stream = records.get(&request.key).and_then(|record| record.viewer_limit(counted_as));
        let (presences, key) = (&self.presences, &request.key);
        let of_all = || {
            let elsewhere = self.viewers_elsewhere(records, registry, key, counted_as);
            presences.viewers_of(request.egress, key).saturating_add(elsewhere)
        };
        let is_full = of_stream.is_some_and(|limit| of_all() >= limit)
            || of_app.is_some_and(|limit| presences.viewers_of_app(request.egress, &key.app) >= limit);
        if is_full {
            return Err(NoSubscription::Denied(Denial::Viewers));
        }
        Ok(())
    }

    /// Checks the limit of polling viewers. At the limit, a newcomer may replace a viewer of a network that has at
    /// least two viewers more than the newcomer's network.
    fn check_polled_limit(
        &self,
        records: &Records,
        registry: &Registry,
        request: &PlayRequest,
    ) -> Result<(), NoSubscription> {
        let (key, egress) = (&request.key, request.egress);
        let of_all = || {
            self.passes(key, egress).saturating_add(self.viewers_elsewhere(records, registry, key, egress))
        };
        let is_full = records.polled_limit(request).is_some_and(|limit| of_all() >= limit);
        if is_full && !self.passes.gives_way(key, egress, request.peer.ip()) {
            return Err(NoSubscription::Denied(Denial::Viewers));
        }
        Ok(())
    }

    /// Completes the admission of a viewer. No token is used up if there is nothing to play.
    pub(super) fn let_in(
        &self,
        cx: &Context,
        records: &mut Records,
        registry: &Registry,
        now: Now,
        request: &PlayRequest,
    ) -> Result<(), NoSubscription> {
        if !registry.is_there(records, request) {
            return Err(NoSubscription::NotFound);
        }
        let token = cx.app_of(&request.key).is_some_and(|app| app.security.play.token);
        if token && !burn_token(records, registry.cluster.is_shared(), now, &request.key, &request.params) {
            return Err(NoSubscription::Denied(Denial::Token));
        }
        Ok(())
    }
}

/// The reason for refusing a publisher without the required record.
const NO_RECORD: &str = "there is no broadcast of that id";

/// Checks record, expiry and schedule.
fn check_record(now: Now, app: &AppSettings, record: Option<&Broadcast>) -> Result<(), Refusal> {
    let Some(record) = record else {
        if app.accept_only_streams_in_data_store {
            return Err(Refusal::NotAllowed(NO_RECORD));
        }
        return Ok(());
    };
    let now_ms = wall(now);
    let expires = record.date.saturating_add(i64::from(record.expire_duration_ms));
    if record.expire_duration_ms != 0 && now_ms >= expires {
        return Err(Refusal::NotAllowed("the broadcast has expired"));
    }
    let (start, end) = (record.planned_start_date, record.planned_end_date);
    if start != 0 && end != 0 && !(start..=end).contains(&(now_ms / 1000)) {
        return Err(Refusal::NotAllowed("outside the planned time"));
    }
    Ok(())
}
