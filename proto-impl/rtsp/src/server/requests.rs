//! Handling of a client's requests.

use std::time::Instant;

use sdp::Description;

use super::{Pending, Server, State, Step};
use crate::auth::Authorization;
use crate::presentation::Presentation;
use crate::via;
use crate::{
    AnnounceRequest, Error, Event, Lower, Method, Mode, Request, Response, SetupRequest, Status,
    StreamRequest, Target, Timer, Transport, Uri,
};

/// Methods in the answer to `OPTIONS`.
const PUBLIC: &str =
    "OPTIONS, DESCRIBE, ANNOUNCE, SETUP, PLAY, RECORD, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER";
/// Media type of a description.
pub(super) const SDP: &str = "application/sdp";

impl Server {
    pub(super) fn handle_request(&mut self, now: Instant, request: Request) -> Result<(), Error> {
        self.link.count_message(now)?;
        let result = match self.check(&request) {
            Ok(()) => {
                self.keep_alive(now);
                self.dispatch(&request)
            }
            refused @ Err(_) => refused,
        };
        match result {
            Ok(()) => {}
            Err(status) => self.answer(&request, status, |_| {}),
        }
        Ok(())
    }

    /// Checks the rules for every request: it must not require an unsupported feature (RFC 2326 §12.32), and its
    /// session must be that of the connection. A request without `Session` belongs to the connection's session.
    fn check(&self, request: &Request) -> Result<(), Status> {
        if request.headers.get("Require").is_some() {
            return Err(Status::OPTION_NOT_SUPPORTED);
        }
        let named = request.headers.session().map(|session| session.id);
        let is_ours = named.is_none() || named == self.session_id.as_deref();
        if is_ours || request.method == Method::Options { Ok(()) } else { Err(Status::SESSION_NOT_FOUND) }
    }

    /// Handles a request by its method. An error contains the status of the answer. `Ok` means that the request was
    /// answered or waits for the owner's decision.
    fn dispatch(&mut self, request: &Request) -> Result<(), Status> {
        match &request.method {
            Method::Options => self.answer(request, Status::OK, |headers| headers.push("Public", PUBLIC)),
            Method::Describe => return self.describe(request),
            Method::Announce => return self.announce(request),
            Method::Setup => return self.setup(request),
            Method::Play => return self.play(request),
            Method::Record => return self.record(request),
            Method::Pause => return self.pause(request),
            Method::Teardown => return self.teardown(request),
            // Every GET_PARAMETER is answered as a keep-alive, even if a client asks for parameters of its own.
            Method::GetParameter => self.answer_in_session(request),
            Method::SetParameter if request.body.is_empty() => self.answer_in_session(request),
            Method::SetParameter => return Err(Status::PARAMETER_NOT_UNDERSTOOD),
            // RTSP defines this method, but only servers may send it.
            Method::Redirect => return Err(Status::METHOD_NOT_ALLOWED),
            Method::Other(_) => return Err(Status::NOT_IMPLEMENTED),
        }
        Ok(())
    }

    fn describe(&mut self, request: &Request) -> Result<(), Status> {
        if self.state != State::Init || self.has_mode(Mode::Record) {
            return Err(Status::NOT_VALID_IN_STATE);
        }
        let accepts = |list: &str| {
            let list = list.to_ascii_lowercase();
            [SDP, "application/*", "*/*"].iter().any(|kind| list.contains(kind))
        };
        if request.headers.get("Accept").is_some_and(|list| !accepts(list)) {
            return Err(Status::NOT_ACCEPTABLE);
        }
        let stream = stream_request(request)?;
        self.ask(request, Step::Describe, Event::Describe(Box::new(stream)));
        Ok(())
    }

    fn announce(&mut self, request: &Request) -> Result<(), Status> {
        if self.state != State::Init || self.has_mode(Mode::Record) {
            return Err(Status::NOT_VALID_IN_STATE);
        }
        let kind = request.headers.get("Content-Type").unwrap_or(SDP);
        let kind = kind.split(';').next().unwrap_or_default().trim_ascii();
        if !kind.eq_ignore_ascii_case(SDP) {
            return Err(Status::UNSUPPORTED_MEDIA_TYPE);
        }
        let stream = stream_request(request)?;
        let description = Description::read_streams(&request.body).map_err(|error| {
            tracing::debug!(%error, "announced a description that cannot be read");
            Status::BAD_REQUEST
        })?;
        let presentation = Presentation::new(Mode::Record, &request.uri, &description);
        let presentation = presentation.ok_or(Status::BAD_REQUEST)?;
        let event = Event::Announce(Box::new(AnnounceRequest {
            stream,
            description,
            via: via::read(&request.headers),
        }));
        self.ask(request, Step::Announce(presentation), event);
        Ok(())
    }

    fn setup(&mut self, request: &Request) -> Result<(), Status> {
        if !matches!(self.state, State::Init | State::Ready) {
            return Err(Status::NOT_VALID_IN_STATE);
        }
        let presentation = self.presentation.as_ref().ok_or(Status::NOT_VALID_IN_STATE)?;
        let track = presentation.track_of(&request.uri);
        let whole = presentation.is_whole(&request.uri);
        let none = if whole { Status::AGGREGATE_NOT_ALLOWED } else { Status::NOT_FOUND };
        let track = track.ok_or(none)?;
        if presentation.transport(track).is_some() {
            return Err(Status::NOT_VALID_IN_STATE);
        }
        let fields: Vec<&str> = request.headers.all("Transport").collect();
        let offered = Transport::read_all(&fields.join(",")).map_err(|_| Status::BAD_REQUEST)?;
        let mode = presentation.mode;
        let fits = |transport: &Transport| transport.mode.is_none_or(|asked| asked == mode);
        if !offered.is_empty() && !offered.iter().any(fits) {
            return Err(Status::NOT_VALID_IN_STATE);
        }
        let usable = offered.into_iter().filter(fits).filter_map(|transport| usable(presentation, transport));
        let transports: Vec<Transport> = usable.collect();
        if transports.is_empty() {
            return Err(Status::UNSUPPORTED_TRANSPORT);
        }
        let event = Event::Setup(SetupRequest { track, mode, transports });
        self.ask(request, Step::Setup { track }, event);
        Ok(())
    }

    fn play(&mut self, request: &Request) -> Result<(), Status> {
        self.check_aggregate(request, Mode::Play)?;
        if self.state == State::Playing {
            // A queued range (RFC 2326 §10.5) has no meaning for a live stream.
            self.answer_in_session(request);
        } else {
            self.ask(request, Step::Play, Event::Play);
        }
        Ok(())
    }

    fn record(&mut self, request: &Request) -> Result<(), Status> {
        self.check_aggregate(request, Mode::Record)?;
        if self.state == State::Recording {
            self.answer_in_session(request);
        } else {
            self.ask(request, Step::Record, Event::Record);
        }
        Ok(())
    }

    fn pause(&mut self, request: &Request) -> Result<(), Status> {
        let mode = self.presentation.as_ref().map_or(Mode::Play, |presentation| presentation.mode);
        self.check_aggregate(request, mode)?;
        if self.state != State::Ready {
            self.state = State::Ready;
            self.events.push_back(Event::Pause);
        }
        self.answer_in_session(request);
        Ok(())
    }

    fn teardown(&mut self, request: &Request) -> Result<(), Status> {
        if self.session_id.is_none() {
            return Err(Status::SESSION_NOT_FOUND);
        }
        self.check_whole(request)?;
        self.answer_in_session(request);
        self.state = State::Init;
        self.session_id = None;
        self.presentation = None;
        self.timers.clear(Timer::Session);
        self.events.push_back(Event::Teardown);
        Ok(())
    }

    /// Checks that the session has tracks of this mode, and that the request is about all of them.
    fn check_aggregate(&self, request: &Request, mode: Mode) -> Result<(), Status> {
        if self.state == State::Init || !self.has_mode(mode) {
            return Err(Status::NOT_VALID_IN_STATE);
        }
        self.check_whole(request)
    }

    /// Checks that a request is about all tracks, because they start and stop together (RFC 2326 §11.3.11). If the
    /// session has only one track, the track's URL is accepted, too.
    fn check_whole(&self, request: &Request) -> Result<(), Status> {
        let Some(presentation) = &self.presentation else { return Ok(()) };
        let names_one = !presentation.is_whole(&request.uri) && presentation.track_of(&request.uri).is_some();
        if names_one && presentation.count() > 1 { Err(Status::ONLY_AGGREGATE_ALLOWED) } else { Ok(()) }
    }

    /// Passes the request to the owner for a decision.
    fn ask(&mut self, request: &Request, step: Step, event: Event) {
        let request = Request { body: bytes::Bytes::new(), ..request.clone() };
        let authorization = request.headers.get("Authorization").and_then(Authorization::read);
        self.pending = Some(Pending { request, authorization, stale: false, step });
        self.events.push_back(event);
    }

    fn answer_in_session(&mut self, request: &Request) {
        let session = self.session_field();
        self.answer(request, Status::OK, |headers| {
            if let Some(session) = session {
                headers.push("Session", &session);
            }
        });
    }

    /// Returns the value of `Session`.
    pub(super) fn session_field(&self) -> Option<String> {
        let timeout = self.config.session_timeout.as_secs();
        self.session_id.as_ref().map(|id| format!("{id};timeout={timeout}"))
    }

    pub(super) fn answer(
        &mut self,
        request: &Request,
        status: Status,
        fill: impl FnOnce(&mut crate::Headers),
    ) {
        let mut response = self.response(request, status);
        fill(&mut response.headers);
        self.link.send_response(&response);
    }

    pub(super) fn response(&self, request: &Request, status: Status) -> Response {
        let mut response = Response::new(status, request.headers.cseq());
        response.headers.push("Server", &self.config.server_name);
        if status == Status::OPTION_NOT_SUPPORTED
            && let Some(feature) = request.headers.get("Require")
        {
            response.headers.push("Unsupported", feature);
        }
        response
    }
}

fn stream_request(request: &Request) -> Result<StreamRequest, Status> {
    let uri = Uri::read(&request.uri).ok_or(Status::BAD_REQUEST)?;
    Ok(StreamRequest {
        target: Target::of_stream(&uri),
        user_agent: request.headers.get("User-Agent").unwrap_or_default().to_owned(),
        authorization: request.headers.get("Authorization").and_then(Authorization::read),
    })
}

/// Returns the transport, with its channels filled in, if the owner may accept it; otherwise `None`.
fn usable(presentation: &Presentation, transport: Transport) -> Option<Transport> {
    if transport.multicast {
        return None;
    }
    match (transport.lower, transport.channels) {
        (Lower::Udp, _) => transport.client_ports.is_some().then_some(transport),
        (Lower::Tcp, Some(channels)) if presentation.are_free(channels) => Some(transport),
        // An earlier track may already use the channels that the player requests for this one. Offer free channels
        // instead.
        (Lower::Tcp, Some(_)) if presentation.mode == Mode::Record => None,
        (Lower::Tcp, Some(_) | None) => {
            Some(Transport { channels: Some(presentation.free_channels()?), ..transport })
        }
    }
}
