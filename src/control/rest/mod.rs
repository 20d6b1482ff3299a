//! The REST API: one table of routes (`routes`), and the checks that run before every handler.
//!
//! Checks for paths of applications, in order (docs/rest.md): application, token filter, IP filter, route, content
//! type. For paths of the server: the dashboard's address filter, then the caller and its rights (`access`), then the
//! route. Requests arrive with a normalised path, so filters and routes see the same path (docs/robustness.md R-22).

mod access;
mod apps;
mod broadcasts;
mod call;
mod client;
mod conference;
mod drain;
mod elsewhere;
mod endpoints;
mod features;
mod feed;
mod form;
mod host;
mod import;
mod keys;
mod lists;
mod nodes;
mod openapi;
mod paths;
mod playback;
mod players;
mod proxy;
mod publishers;
mod questions;
mod room_recordings;
mod root;
mod route;
mod routes;
pub(super) mod scan;
mod schemas;
mod server;
mod subscribers;
pub(super) mod subtitles;
mod subtracks;
mod timed_data;
mod tokens;
mod users;
mod vods;

use std::net::{IpAddr, SocketAddr};

use super::Control;
use super::audit::ADDRESS;
use super::context::Context;
use super::mask::Requester;
use super::records::Records;
use super::records::auxiliary::AuxiliaryWrite;
use crate::config::AppSettings;
use crate::http::{Method, Request, Response};
use crate::mail::ToWorker;
use crate::types::{Now, SessionRef, StreamKey};
use call::{Call, Sender};
use paths::{players_of, rest_of, split_path};
use route::{Handler, has_type, refuse_media};
use routes::{Found, find};

pub(super) use call::{Origin, Reply};
pub(super) use conference::shown as room;
pub(super) use elsewhere::node_call;
pub(super) use feed::LINES;
pub(super) use questions::answer;
pub(super) use scan::list_from;

pub use route::{Base, BodyKind, Policy, Route};
pub use routes::routes;

/// The prefix under which the panel calls applications.
const PROXY: &str = "/request";

impl Control {
    pub(super) fn rest(&mut self, now: Now, mut origin: Origin, request: &Request) {
        match self.dispatch(now, &mut origin, request) {
            Reply::Now(response) => self.cx.answer(origin.requester, response),
            Reply::Later => {}
        }
    }

    /// Identifies the sender, notes it in `origin`, and handles the request.
    fn dispatch(&mut self, now: Now, origin: &mut Origin, request: &Request) -> Reply {
        let path = request.path.as_str();
        if let Some(rest) = path.strip_prefix('/').and_then(rest_of) {
            // The path by which the panel calls applications (`/rest/request`) is valid without a version, too.
            let rest = if rest == PROXY { Some(PROXY) } else { rest.strip_prefix("/v2") };
            let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
            return self.dispatch_root(now, origin, Base::Root, rest, request);
        }
        if !matches!(find(Base::Server, Method::Get, path), Found::Nothing) {
            return self.dispatch_root(now, origin, Base::Server, Some(path), request);
        }
        if let Some((app, rest)) = players_of(path) {
            return self.dispatch_players(now, origin.requester, (app, rest), request);
        }
        self.dispatch_app(now, &mut origin.requester, Sender::Peer(origin.peer), request)
    }

    /// Handles a request from a player, which may come from any address: the address filter and the tokens of the API
    /// are for operators.
    fn dispatch_players(
        &mut self,
        now: Now,
        requester: Requester,
        (app, rest): (&str, &str),
        request: &Request,
    ) -> Reply {
        let Some(app) = self.cx.apps.get(app).cloned() else {
            return Reply::Now(Response::error(404, "Not Found"));
        };
        match find(Base::Players, request.method, rest) {
            Found::Route(Route { handler: Handler::App(handler), .. }, params)
                if has_type(request, "application/json") =>
            {
                let call =
                    Call { requester, app: &app, request, params, client: None, is_administrator: false };
                handler(self, now, &call)
            }
            Found::Route(..) => Reply::Now(Response::error(415, "Unsupported Media Type")),
            found @ (Found::Methods(_) | Found::Nothing) => Reply::Now(found.refusal(request.method)),
        }
    }

    /// Handles a request to an application. If a user of the panel sent it, it is already known whether this user may
    /// see credentials.
    fn dispatch_app(
        &mut self,
        now: Now,
        requester: &mut Requester,
        sender: Sender,
        request: &Request,
    ) -> Reply {
        let peer = sender.peer();
        let not_found = || Reply::Now(Response::error(404, "Not Found"));
        let Some((app, rest)) = split_path(&request.path) else { return not_found() };
        let Some(app) = self.cx.apps.get(app).cloned() else { return not_found() };
        if let Some(refusal) = self.refuse(now, &app, peer, request) {
            return Reply::Now(refusal);
        }
        if peer.is_some() {
            *requester = requester.seeing(self.cx.may_hand_out(&app, peer, request));
        }
        let requester = *requester;
        if app.security.rest_jwt.is_some() {
            self.cx.note_authenticated(requester.session());
        }
        let Some(rest) = rest.strip_prefix("/v2") else { return not_found() };
        match find(Base::App, request.method, rest) {
            Found::Route(route, _)
                if route.gives_credential && !self.cx.may_hand_out(&app, peer, request) =>
            {
                Reply::Now(Response::error(403, "Not allowed from another site"))
            }
            Found::Route(route, params) => match (refuse_media(route, request), route.handler) {
                (Some(refusal), _) => Reply::Now(refusal),
                (None, Handler::App(_)) if request.body_waits => self.cx.let_body_come(requester.session()),
                (None, Handler::App(handler)) => {
                    if let Some(peer) = peer {
                        let who = if app.security.rest_jwt.is_some() { "token" } else { ADDRESS };
                        let from = self.cx.config.client_of(peer, request);
                        self.cx.audit.audit_actor(who, from);
                    }
                    self.cx.audit_route(requester.session(), route, request);
                    let anonymous = peer.filter(|_| app.security.rest_jwt.is_none());
                    let client = anonymous.and_then(|peer| self.cx.config.client_of(peer, request));
                    let is_administrator = sender.is_administrator();
                    let call = Call { requester, app: &app, request, params, client, is_administrator };
                    match elsewhere::ask_origin(self, now, route, &call) {
                        Some(reply) => reply,
                        None => elsewhere::handle_app(self, now, (route.method, handler), &call),
                    }
                }
                (None, Handler::Root(_)) => not_found(),
            },
            found @ (Found::Methods(_) | Found::Nothing) => Reply::Now(found.refusal(request.method)),
        }
    }

    /// Applies the application's filters of tokens and addresses, before every operation and regardless of path and
    /// method. Returns the refusal, if any.
    fn refuse(
        &mut self,
        now: Now,
        app: &AppSettings,
        peer: Option<SocketAddr>,
        request: &Request,
    ) -> Option<Response> {
        // A request without a peer came by the panel's path, where a login or the server's token was checked.
        if let Some(trust) = app.security.rest_jwt.as_ref().filter(|_| peer.is_some())
            && token_of(request).is_none_or(|token| self.access.verify_token(now, trust, token).is_err())
        {
            return Some(Response::error(403, "Invalid App JWT Token"));
        }
        if app.ip_filter_enabled {
            let client = match peer {
                Some(peer) => self.cx.config.client_of(peer, request),
                None => Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            };
            if !client.is_some_and(|client| app.remote_allowed_cidr.contains(client)) {
                self.outbound.note_refused(&self.cx, &self.records, Some(app), client, request);
                return Some(Response::error(403, "Not allowed IP"));
            }
        }
        None
    }
}

impl Context {
    /// Lets the worker accept the body of a request whose head has passed all checks. The complete request is handled
    /// later.
    fn let_body_come(&mut self, session: SessionRef) -> Reply {
        self.post(session.worker, ToWorker::TakeBody(session.conn));
        Reply::Later
    }

    /// Marks the connection as authenticated, after a request with a login or a valid token.
    fn note_authenticated(&mut self, session: SessionRef) {
        self.post(session.worker, ToWorker::Authenticated(session.conn));
    }
}

impl Records {
    /// Delays a refusal that may depend on a pending change, until that is committed and visible.
    fn settled(&mut self, now: Now, requester: Requester, key: &StreamKey, response: Response) -> Reply {
        if !self.is_pending(key) {
            return Reply::Now(response);
        }
        self.write_auxiliary(
            now,
            AuxiliaryWrite { changes: Vec::new(), files: Vec::new(), waiter: Some((requester, response)) },
        );
        Reply::Later
    }
}

/// Returns the token of a request, bare or with `Bearer`. Two such header fields are refused, since proxies differ in
/// which of the two they use.
fn token_of(request: &Request) -> Option<&str> {
    let mut given = request.headers.all("authorization");
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let value = value.trim();
    let bearer = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Some(bearer.map_or(value, |(_, token)| token.trim()))
}
