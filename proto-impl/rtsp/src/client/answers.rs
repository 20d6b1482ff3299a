//! The client's requests, and the handling of the server's answers and own requests.

use std::time::Instant;

use bytes::Bytes;
use sdp::Description;

use super::{Client, Phase};
use crate::presentation::Presentation;
use crate::via;
use crate::{
    ClientEvent, CloseReason, Error, Headers, Lower, Method, Mode, Request, Response, Status, Timer,
    TrackSetup, Transport, Violation, rtp_info,
};

/// Methods in the answer to a server's `OPTIONS`.
const PUBLIC: &str = "OPTIONS, ANNOUNCE, GET_PARAMETER, SET_PARAMETER, REDIRECT, TEARDOWN";
const SDP: &str = "application/sdp";

impl Client {
    /// Creates a request about the whole presentation. The request number and the credentials are still missing.
    pub(super) fn make_request(&self, method: Method) -> Request {
        let url = match &self.presentation {
            Some(presentation) => presentation.url().to_owned(),
            None => self.config.uri.to_string(),
        };
        self.request_to(method, url)
    }

    fn request_to(&self, method: Method, uri: String) -> Request {
        let mut headers = Headers::default();
        headers.push("User-Agent", &self.config.user_agent);
        Request { method, uri, headers, body: Bytes::new() }
    }

    /// Sends a request about the whole presentation.
    pub(super) fn request(&mut self, now: Instant, method: Method) {
        let mut request = self.make_request(method);
        match request.method {
            Method::Describe => request.headers.push("Accept", SDP),
            Method::Announce => {
                request.headers.push("Content-Type", SDP);
                if let Some(via) = via::written(&self.config.via) {
                    request.headers.push(via::NAME, &via);
                }
                request.body = self.announced.clone();
            }
            Method::Play | Method::Record => request.headers.push("Range", "npt=0.000-"),
            Method::Options
            | Method::Setup
            | Method::Pause
            | Method::Teardown
            | Method::GetParameter
            | Method::SetParameter
            | Method::Redirect
            | Method::Other(_) => {}
        }
        self.send(now, request);
    }

    fn send(&mut self, now: Instant, request: Request) {
        self.dialog.send(&mut self.link, request);
        self.timers.set(Timer::Request, now, self.config.request_timeout);
    }

    /// Sends a keep-alive (RFC 2326 §10.8). Its answer has no deadline, since some cameras never send one.
    pub(super) fn send_keep_alive(&mut self, now: Instant) {
        let method = if self.dialog.gets_parameters { Method::GetParameter } else { Method::Options };
        let request = self.make_request(method);
        self.dialog.send(&mut self.link, request);
        self.timers.set(Timer::KeepAlive, now, self.dialog.keep_alive_every);
    }

    pub(super) fn handle_response(&mut self, now: Instant, response: Response) -> Result<(), Error> {
        self.link.count_message(now)?;
        if !self.dialog.is_answer(&response) {
            return self.link.count_bad(now);
        }
        if response.status.is_provisional() {
            return Ok(());
        }
        if response.status == Status::UNAUTHORIZED && self.dialog.authenticate(&mut self.link, &response) {
            return Ok(());
        }
        let Some((method, url)) = self.dialog.settle(&response) else { return Ok(()) };
        self.timers.clear(Timer::Request);
        if matches!(self.phase, Phase::Ready) {
            self.kept_alive(&method, &response);
            return Ok(());
        }
        if response.status.is_redirect()
            && let Some(location) = response.headers.get("Location")
        {
            self.redirected(location.to_owned());
            return Ok(());
        }
        self.advance(now, &url, &response)
    }

    /// Handles the answer to the current request.
    fn advance(&mut self, now: Instant, url: &str, response: &Response) -> Result<(), Error> {
        let succeeded = response.status.is_success();
        match &self.phase {
            // Servers that do not support OPTIONS support the other methods.
            Phase::Options
                if succeeded
                    || matches!(response.status, Status::METHOD_NOT_ALLOWED | Status::NOT_IMPLEMENTED) =>
            {
                self.dialog.gets_parameters = offers_get_parameter(response);
                let (phase, method) = match self.mode {
                    Mode::Play => (Phase::Describe, Method::Describe),
                    Mode::Record => (Phase::Announce, Method::Announce),
                };
                self.phase = phase;
                self.request(now, method);
            }
            Phase::Setup { track, offer }
                if response.status == Status::UNSUPPORTED_TRANSPORT
                    && offer.lower == Lower::Udp
                    && self.config.falls_back_to_tcp =>
            {
                self.wanted.push_front(TrackSetup::interleaved(*track));
                self.wanted.iter_mut().for_each(|wanted| wanted.ports = None);
                self.set_up_next(now);
            }
            Phase::Setup { offer, .. }
                if response.status == Status::UNSUPPORTED_TRANSPORT
                    && offer.lower == Lower::Tcp
                    && self.mode == Mode::Play
                    && self.config.falls_back_to_udp
                    && self.presentation.as_ref().is_some_and(|presentation| presentation.count() == 0) =>
            {
                self.wanted.clear();
                self.phase = Phase::Described;
                self.events.push_back(ClientEvent::NotInterleaved);
            }
            _ if !succeeded => self.rejected(response),
            Phase::Describe => self.described(url, response)?,
            Phase::Announce => self.set_up_next(now),
            Phase::Setup { .. } => self.was_set_up(now, response)?,
            Phase::Start => self.ready(now, response),
            Phase::Options | Phase::Described | Phase::Ready | Phase::Closed => {}
        }
        Ok(())
    }

    fn described(&mut self, url: &str, response: &Response) -> Result<(), Error> {
        let malformed = |error| self.link.fault(Violation::Description(error));
        let description = Description::read_streams(&response.body).map_err(malformed)?;
        // A base that is not a URL is ignored: some cameras send a path.
        let base = ["Content-Base", "Content-Location"]
            .into_iter()
            .find_map(|name| response.headers.get(name).filter(|base| base.contains("://")))
            .unwrap_or(url);
        let presentation = Presentation::new(Mode::Play, base, &description);
        self.presentation = Some(presentation.ok_or_else(|| malformed(sdp::Error::NoMedia))?);
        self.phase = Phase::Described;
        self.events.push_back(ClientEvent::Described(description));
        Ok(())
    }

    /// Sets up the next track; after the last one, requests media.
    pub(super) fn set_up_next(&mut self, now: Instant) {
        let Some(TrackSetup { track, ports, channels }) = self.wanted.pop_front() else {
            let method = match self.mode {
                Mode::Play => Method::Play,
                Mode::Record => Method::Record,
            };
            self.phase = Phase::Start;
            self.request(now, method);
            return;
        };
        let Some(presentation) = &self.presentation else { return };
        let offer = match ports {
            Some(ports) => Some(Transport::udp(ports)),
            None => channels
                .filter(|channels| presentation.are_free(*channels))
                .or_else(|| presentation.free_channels())
                .map(Transport::tcp),
        };
        let (Some(offer), Some(url)) = (offer, presentation.url_of(track)) else {
            self.finish(CloseReason::Rejected);
            return;
        };
        // The default mode is PLAY. It is omitted, because some cameras fail on further parameters.
        let mode = Some(Mode::Record).filter(|_| self.mode == Mode::Record);
        let offer = Transport { mode, ..offer };
        let mut request = self.request_to(Method::Setup, url);
        request.headers.push("Transport", &offer.to_string());
        self.phase = Phase::Setup { track, offer };
        self.send(now, request);
    }

    fn was_set_up(&mut self, now: Instant, response: &Response) -> Result<(), Error> {
        let Phase::Setup { track, offer } = std::mem::replace(&mut self.phase, Phase::Start) else {
            return Ok(());
        };
        let answer = match response.headers.get("Transport") {
            Some(field) => Transport::read_all(field).ok().and_then(|all| all.into_iter().next()),
            // A server that omits the field accepts the offered transport.
            None => Some(offer.clone()),
        };
        let chosen = answer.and_then(|answer| self.chosen(&offer, answer));
        let slot = self.presentation.as_mut().and_then(|presentation| presentation.tracks.get_mut(track));
        let (Some(transport), Some(slot)) = (chosen, slot) else {
            return Err(self.link.fault(Violation::Transport));
        };
        slot.transport = Some(transport.clone());
        self.events.push_back(ClientEvent::SetUp { track, transport });
        self.set_up_next(now);
        Ok(())
    }

    /// Returns the transport that the server chose, given our offer. `None` if the choice is invalid: it must be
    /// interleaved on free channels, or UDP if UDP was offered. Interleaving is also accepted if UDP was offered.
    fn chosen(&self, offer: &Transport, answer: Transport) -> Option<Transport> {
        let presentation = self.presentation.as_ref()?;
        match answer.lower {
            _ if answer.multicast => None,
            Lower::Tcp => {
                let free = || presentation.free_channels();
                let channels = answer.channels.or(offer.channels).or_else(free)?;
                let channels = Some(channels).filter(|channels| presentation.are_free(*channels));
                channels.map(|_| Transport { channels, ..answer })
            }
            Lower::Udp => {
                // A push needs the server's ports, because it sends media to them.
                let is_whole = self.mode == Mode::Play || answer.server_ports.is_some();
                let client_ports = offer.client_ports;
                (is_whole && client_ports.is_some()).then_some(Transport { client_ports, ..answer })
            }
        }
    }

    fn ready(&mut self, now: Instant, response: &Response) {
        let infos = response.headers.get("RTP-Info").zip(self.presentation.as_ref());
        let rtp_info = infos.map_or_else(Vec::new, |(field, own)| rtp_info::read(field, own));
        self.phase = Phase::Ready;
        self.timers.set(Timer::KeepAlive, now, self.dialog.keep_alive_every);
        self.media_progress(now);
        self.events.push_back(ClientEvent::Ready { rtp_info });
    }

    /// Handles the answer to a keep-alive. The answer may show that the session no longer exists.
    fn kept_alive(&mut self, method: &Method, response: &Response) {
        match response.status {
            Status::SESSION_NOT_FOUND | Status::UNAUTHORIZED => self.rejected(response),
            status if !status.is_success() && *method == Method::GetParameter => {
                self.dialog.gets_parameters = false;
            }
            _ => {}
        }
    }

    fn rejected(&mut self, response: &Response) {
        let (status, reason) = (response.status, response.reason.clone());
        self.events.push_back(ClientEvent::Rejected { status, reason });
        self.finish(CloseReason::Rejected);
    }

    fn redirected(&mut self, location: String) {
        self.events.push_back(ClientEvent::Redirect { location });
        self.finish(CloseReason::Redirected);
    }

    /// Answers a request of the server.
    pub(super) fn handle_request(&mut self, now: Instant, request: &Request) -> Result<(), Error> {
        self.link.count_message(now)?;
        let mut response = Response::new(Status::OK, request.headers.cseq());
        let mut end = None;
        match request.method {
            Method::Options => response.headers.push("Public", PUBLIC),
            Method::GetParameter | Method::SetParameter => {}
            Method::Announce if self.mode == Mode::Play => match Description::read_streams(&request.body) {
                Ok(description) => self.events.push_back(ClientEvent::Announced(description)),
                Err(_) => response = Response::new(Status::BAD_REQUEST, request.headers.cseq()),
            },
            Method::Redirect => end = Some(request.headers.get("Location").map(str::to_owned)),
            Method::Teardown => end = Some(None),
            Method::Announce
            | Method::Describe
            | Method::Setup
            | Method::Play
            | Method::Record
            | Method::Pause
            | Method::Other(_) => {
                response = Response::new(Status::NOT_IMPLEMENTED, request.headers.cseq());
            }
        }
        self.link.send_response(&response);
        match end {
            Some(Some(location)) => self.redirected(location),
            Some(None) => self.finish(CloseReason::PeerClosed),
            None => {}
        }
        Ok(())
    }
}

/// True if `Public` lists `GET_PARAMETER`.
fn offers_get_parameter(response: &Response) -> bool {
    response
        .headers
        .all("Public")
        .flat_map(|list| list.split(','))
        .any(|method| method.trim_ascii().eq_ignore_ascii_case("GET_PARAMETER"))
}
