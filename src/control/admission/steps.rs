//! The steps of an admission: what each of them checks, from memory.

use super::{Admission, Answer, Question, Request, Step, Why};
use crate::auth::access::{Credentials, Denial};
use crate::config::AppSettings;
use crate::control::audience::viewers_elsewhere;
use crate::control::broadcast::{Broadcast, is_stream_id};
use crate::control::records::Records;
use crate::control::records::auxiliary::Token;
use crate::control::{Control, wall};
use crate::mail::{NoSubscription, PlayRequest, PublishRequest, Refusal, ToWorker, via_entry};
use crate::protocol::{Format, VOD};
use crate::types::{Now, SessionRef, StreamKey};

/// Servers that one stream may pass.
const HOPS_MAX: usize = 8;

impl Records {
    /// The limit of the record, of viewers that watch by separate requests.
    pub(in crate::control) fn polled_limit(&self, request: &PlayRequest) -> Option<u32> {
        self.get(&request.key)?.viewer_limit(request.egress)
    }
}

impl Control {
    pub(super) fn take_step(&self, now: Now, step: Step, admission: &Admission) -> Answer {
        match (step, &admission.request) {
            (Step::Record, Request::Publish(request)) => {
                Answer::of(self.check_request(now, request).map_err(Why::Publish))
            }
            (Step::Record, Request::Play(request)) => {
                Answer::of(self.check_play_request(request).map_err(Why::Play))
            }
            (Step::Limits, Request::Publish(request)) => {
                Answer::of(self.check_limits(now, request).map_err(Why::Publish))
            }
            (Step::Limits, Request::Play(request)) => {
                Answer::of(self.check_viewer_limits(request).map_err(Why::Play))
            }
            // Viewers claim nothing.
            (Step::Claim, Request::Play(_)) => Answer::Continue,
            (Step::Claim, Request::Publish(request)) => {
                let live = self.stream_of(&request.key);
                let ours =
                    admission.claimed || live.is_some_and(|live| self.access.admissions.has_claim(live));
                if ours { Answer::Continue } else { Answer::Wait(Question::Claim) }
            }
            (Step::Token, request) => {
                let checked = self.check_request_credentials(now, request);
                Answer::of(checked.map_err(|denial| request.denied(denial)))
            }
            (Step::Hook, request) => self.hook_step(admission, request),
            (Step::Burn, request) => self.burn_step(admission, request),
            (Step::Reserve, Request::Publish(request)) => {
                Answer::of(self.check_free(request).map_err(Why::Publish))
            }
            // Whether the stream is there is told only to who may play it: at the end.
            (Step::Reserve, Request::Play(_)) => Answer::Continue,
        }
    }

    fn app_of(&self, key: &StreamKey) -> Option<&AppSettings> {
        self.apps.get(&key.app).map(AsRef::as_ref)
    }

    fn check_request(&self, now: Now, request: &PublishRequest) -> Result<(), Refusal> {
        if self.drain.is_some() {
            return Err(Refusal::Draining);
        }
        let app = self.app_of(&request.key).ok_or(Refusal::NoApplication)?;
        if !is_stream_id(&request.key.id) {
            return Err(Refusal::NotAllowed("the stream id is not valid"));
        }
        let rules = &app.allowed_publisher_cidr;
        if !rules.is_empty() && !rules.contains(request.peer.ip()) {
            return Err(Refusal::NotAllowed("the address is not in allowedPublisherCIDR"));
        }
        // One whose create is not on disk yet is nobody's: it may fail.
        let is_there = self.records.get(&request.key).is_some();
        if app.accept_only_streams_in_data_store && !is_there {
            return Err(Refusal::NotAllowed(NO_RECORD));
        }
        check_record(now, app, self.records.pending(&request.key))?;
        let own = via_entry(&self.config.node, &request.key);
        if request.via.len() >= HOPS_MAX || request.via.contains(&own) {
            return Err(Refusal::Loop);
        }
        Ok(())
    }

    /// The limits of the record and of the application, of the formats that are counted apart.
    fn check_viewer_limits(&self, request: &PlayRequest) -> Result<(), NoSubscription> {
        if request.polled.is_some() {
            return self.check_polled_limit(request);
        }
        let kind = Format::find(request.egress, 0).map(Format::kind);
        let Some(counted_as) = kind.and_then(|kind| kind.counted_as) else { return Ok(()) };
        let of_app = self.app_of(&request.key).and_then(|app| app.limits.viewers);
        let of_stream = self.records.get(&request.key).and_then(|record| record.viewer_limit(counted_as));
        let (presences, key) = (&self.access.presences, &request.key);
        let of_all = || {
            presences.viewers_of(request.egress, key).saturating_add(viewers_elsewhere(self, key, counted_as))
        };
        let is_full = of_stream.is_some_and(|limit| of_all() >= limit)
            || of_app.is_some_and(|limit| presences.viewers_of_app(request.egress, &key.app) >= limit);
        if is_full {
            return Err(NoSubscription::Denied(Denial::Viewers));
        }
        Ok(())
    }

    /// At the limit a network that has many viewers gives one place up for a newcomer whose network has fewer.
    fn check_polled_limit(&self, request: &PlayRequest) -> Result<(), NoSubscription> {
        let (key, egress) = (&request.key, request.egress);
        let of_all = || self.access.passes(key, egress).saturating_add(viewers_elsewhere(self, key, egress));
        let is_full = self.records.polled_limit(request).is_some_and(|limit| of_all() >= limit);
        if is_full && !self.access.passes.gives_way(key, egress, request.peer.ip()) {
            return Err(NoSubscription::Denied(Denial::Viewers));
        }
        Ok(())
    }

    /// The stream that a file is of: that of its record. Of a file without one the name tells: `{id}.mp4`, and the recordings
    /// that followed, `{id}_1.mp4` and so on.
    pub(super) fn name_stream(&self, request: &mut PlayRequest) {
        let Some(polled) = request.polled.as_ref().filter(|_| request.egress == VOD) else { return };
        if let Some(stream) = self.stream_of_file(&request.key.app, &polled.file) {
            request.key.id = stream;
            return;
        }
        if self.records.pending(&request.key).is_some() {
            return;
        }
        let (stem, number) = request.key.id.rsplit_once('_').unwrap_or((&request.key.id, ""));
        let named = StreamKey::new(&request.key.app, stem);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && self.records.pending(&named).is_some() {
            request.key = named;
        }
    }

    fn check_play_request(&self, request: &PlayRequest) -> Result<(), NoSubscription> {
        if self.drain.is_some() {
            return Err(NoSubscription::Unavailable);
        }
        self.app_of(&request.key).map(drop).ok_or(NoSubscription::NotFound)
    }

    /// A stream that is live was let in already.
    fn check_limits(&self, now: Now, request: &PublishRequest) -> Result<(), Refusal> {
        if self.is_live(&request.key) {
            return Ok(());
        }
        let app = self.app_of(&request.key).ok_or(Refusal::NoApplication)?;
        let limit = app.limits.streams.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if limit.is_some_and(|limit| self.streams_of(&app.name) >= limit) {
            return Err(Refusal::NotAllowed("ingestingStreamLimit is reached"));
        }
        let new_record = self.records.pending(&request.key).is_none();
        if new_record && !self.has_room_for_record(&request.key.app) {
            return Err(Refusal::NotAllowed(
                "limits.broadcasts is reached, or the application's share of it",
            ));
        }
        let address = request.peer.ip();
        let server = &self.config.server;
        let is_exempt = (server.limits.exempt_loopback && address.to_canonical().is_loopback())
            || server.trusted_proxies.contains(address);
        if !is_exempt && self.registry.count_of(address) >= server.limits.publishers_per_address {
            return Err(Refusal::NotAllowed("limits.publishers_per_address is reached"));
        }
        self.check_main_track(request)?;
        if self.figures.load.is_high(now, &self.config.server) {
            return Err(Refusal::Resources);
        }
        Ok(())
    }

    fn check_request_credentials(&self, now: Now, request: &Request) -> Result<(), Denial> {
        // Whether there is such an application was an earlier step.
        let Some(app) = self.app_of(request.key()) else { return Ok(()) };
        self.check_credentials(now, request.direction(), app, request.key(), request.params(), request.peer())
    }

    fn hook_step(&self, admission: &Admission, request: &Request) -> Answer {
        let Some(app) = self.app_of(request.key()).filter(|_| !admission.approved) else {
            return Answer::Continue;
        };
        let hook = match request {
            Request::Publish(_) => app.security.publish.hook.as_ref(),
            Request::Play(request) => app.security.play.hook.as_ref().filter(|_| self.is_watchable(request)),
        };
        hook.map_or(Answer::Continue, |url| Answer::Wait(Question::Hook(url.clone())))
    }

    /// A token that is for one use is used up by the directory, where there is one.
    fn burn_step(&self, admission: &Admission, request: &Request) -> Answer {
        let Some(app) = self.app_of(request.key()).filter(|_| !admission.burnt) else {
            return Answer::Continue;
        };
        let is_checked = match request {
            Request::Publish(_) => app.security.publish.token,
            Request::Play(play) => app.security.play.token && self.is_there(play),
        };
        let shown = Credentials::of(request.params()).token;
        match shown.filter(|_| is_checked && self.access.cluster.is_shared()) {
            Some(shown) => {
                Answer::Wait(Question::Burn(Token::key(&request.key().app, &request.key().id, shown)))
            }
            None => Answer::Continue,
        }
    }

    /// Whether a receiver need be asked: about what is there, or would be started by its viewer.
    fn is_watchable(&self, request: &PlayRequest) -> bool {
        let starts = |key| self.records.get(key).is_some_and(|record| record.auto_start_stop_enabled);
        self.is_there(request) || (request.egress != VOD && starts(&request.key))
    }

    /// Whether there is something to play: the live stream, a subtrack or, of a viewer by separate requests, what it has found.
    fn is_there(&self, request: &PlayRequest) -> bool {
        let is_found = request.polled.as_ref().is_some_and(|polled| polled.found);
        let is_live = || self.is_live(&request.key) || self.has_active_subtrack(&request.key);
        is_found || (request.egress != VOD && is_live())
    }

    /// The end of a viewer's admission. No token is used up for what is not there.
    pub(super) fn let_in(&mut self, now: Now, request: &PlayRequest) -> Result<(), NoSubscription> {
        if !self.is_there(request) {
            return Err(NoSubscription::NotFound);
        }
        let token = self.app_of(&request.key).is_some_and(|app| app.security.play.token);
        if token && !self.burn_token(now, &request.key, &request.params) {
            return Err(NoSubscription::Denied(Denial::Token));
        }
        Ok(())
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

/// Why a publisher is refused that needs a record.
const NO_RECORD: &str = "there is no broadcast of that id";

/// Record, expiry and schedule.
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
