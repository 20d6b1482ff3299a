//! The owner's decisions. A decision is ignored if no matching request is pending: the connection may have ended in the
//! meantime.

use std::time::Instant;

use bytes::Bytes;
use sdp::Description;

use super::requests::SDP;
use super::{Pending, Server, State, Step};
use crate::auth::{Verdict, hex};
use crate::limits::HEADER_VALUE_BYTES_MAX;
use crate::presentation::Presentation;
use crate::{CloseReason, Headers, Limit, Lower, Mode, RtpInfo, Status, Timer, Transport, rtp_info};

impl Server {
    /// Verifies the credentials of the pending request against those of a user. After [`Verdict::Stale`], call
    /// [`Server::challenge`]; its challenge then lets the client retry without asking its user.
    pub fn verify(&mut self, now: Instant, user: &str, password: &str) -> Verdict {
        let Some(pending) = &mut self.pending else { return Verdict::Refused };
        let Some(authorization) = &pending.authorization else { return Verdict::Refused };
        let request = (pending.request.method.as_str(), pending.request.uri.as_str());
        let verdict = self.gatekeeper.verify(now, request, authorization, (user, password));
        pending.stale = verdict == Verdict::Stale;
        verdict
    }

    /// Answers the pending request with 401 and challenges. If the client has sent wrong credentials too often, ends
    /// the connection: see [`crate::Config::authentications_max`].
    pub fn challenge(&mut self, now: Instant) {
        let Some(pending) = &self.pending else { return };
        let (stale, failed) = (pending.stale, pending.authorization.is_some() && !pending.stale);
        let challenges = self.gatekeeper.challenges(now, stale);
        self.settle(Status::UNAUTHORIZED, |headers| {
            for challenge in &challenges {
                headers.push("WWW-Authenticate", &challenge.to_string());
            }
        });
        if failed {
            self.failed_authentications = self.failed_authentications.saturating_add(1);
        }
        if self.failed_authentications > self.config.authentications_max {
            let error = self.link.fault(Limit::Authentications);
            self.finish(CloseReason::Failed(error));
        } else {
            self.resume(now);
        }
    }

    /// Accepts the pending `DESCRIBE`. Each section should have a unique `control` attribute, such as `trackID=0`. An
    /// invalid description is answered with 500.
    pub fn accept_describe(&mut self, now: Instant, description: &str) {
        let Some(Pending { request, step: Step::Describe, .. }) = &self.pending else { return };
        let read = Description::read(description.as_bytes()).ok();
        let base = format!("{}/", request.uri.trim_end_matches('/'));
        let Some(presentation) =
            read.and_then(|description| Presentation::new(Mode::Play, &base, &description))
        else {
            self.reject(now, Status::INTERNAL_ERROR);
            return;
        };
        let Some(Pending { request, .. }) = self.pending.take() else { return };
        let mut response = self.response(&request, Status::OK);
        response.headers.push("Content-Base", &base);
        response.headers.push("Content-Type", SDP);
        response.body = Bytes::copy_from_slice(description.as_bytes());
        self.link.send_response(&response);
        self.presentation = Some(presentation);
        self.resume(now);
    }

    /// Accepts the pending `ANNOUNCE`.
    pub fn accept_announce(&mut self, now: Instant) {
        match self.pending.take() {
            Some(Pending { request, step: Step::Announce(presentation), .. }) => {
                self.presentation = Some(presentation);
                self.answer(&request, Status::OK, |_| {});
                self.resume(now);
            }
            other => self.pending = other,
        }
    }

    /// Accepts the pending `SETUP` with one of its transports, to which the owner has added the server's ports and the
    /// source of the packets. If interleaved channels are missing or in use, the answer is 500.
    pub fn accept_setup(&mut self, now: Instant, transport: Transport) {
        let Some(Pending { step: Step::Setup { track }, .. }) = &self.pending else { return };
        let track = *track;
        let Some(presentation) = &mut self.presentation else { return };
        let carried = match transport.lower {
            Lower::Udp => true,
            Lower::Tcp => transport.channels.is_some_and(|channels| presentation.are_free(channels)),
        };
        let Some(slot) = presentation.tracks.get_mut(track).filter(|_| carried) else {
            self.reject(now, Status::INTERNAL_ERROR);
            return;
        };
        let transport = Transport { destination: None, ..transport };
        let field = transport.to_string();
        slot.transport = Some(transport);
        if self.session_id.is_none() {
            // 128 bits, so that the session of another connection cannot be guessed.
            let mut id = [0; 16];
            self.random.fill(&mut id);
            self.session_id = Some(hex(&id));
        }
        self.state = State::Ready;
        let session = self.session_field().unwrap_or_default();
        self.settle(Status::OK, |headers| {
            headers.push("Transport", &field);
            headers.push("Session", &session);
        });
        self.timers.set(Timer::Session, now, self.config.session_timeout);
        self.resume(now);
    }

    /// Accepts the pending `PLAY`. The owner may then write media after the queued output. `infos` are the positions at
    /// which tracks begin, if they are known.
    pub fn accept_play(&mut self, now: Instant, infos: &[RtpInfo]) {
        let Some(Pending { step: Step::Play, .. }) = &self.pending else { return };
        self.state = State::Playing;
        let session = self.session_field().unwrap_or_default();
        let info = self.presentation.as_ref().map_or_else(String::new, |own| rtp_info::write(infos, own));
        self.settle(Status::OK, |headers| {
            headers.push("Session", &session);
            headers.push("Range", "npt=0.000-");
            // The field is optional, so it is omitted if it is too long for clients to read.
            if !info.is_empty() && info.len() <= HEADER_VALUE_BYTES_MAX {
                headers.push("RTP-Info", &info);
            }
        });
        self.keep_alive(now);
        self.resume(now);
    }

    /// Accepts the pending `RECORD`.
    pub fn accept_record(&mut self, now: Instant) {
        let Some(Pending { step: Step::Record, .. }) = &self.pending else { return };
        self.state = State::Recording;
        let session = self.session_field().unwrap_or_default();
        self.settle(Status::OK, |headers| headers.push("Session", &session));
        self.keep_alive(now);
        self.resume(now);
    }

    /// Refuses the pending request. The connection continues; [`Server::close`] ends it.
    pub fn reject(&mut self, now: Instant, status: Status) {
        if self.pending.is_some() {
            self.settle(status, |_| {});
            self.resume(now);
        }
    }

    /// Ends the connection.
    pub fn close(&mut self, _now: Instant, reason: CloseReason) {
        self.finish(reason);
    }

    /// Answers the pending request.
    fn settle(&mut self, status: Status, fill: impl FnOnce(&mut Headers)) {
        if let Some(Pending { request, .. }) = self.pending.take() {
            self.answer(&request, status, fill);
        }
    }
}
