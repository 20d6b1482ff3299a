//! Calls about a stream that is live at another node (docs/cluster.md), which that node answers.
//!
//! 1. The route table marks operations whose calls belong where the stream is live ([`Route::at_origin`]).
//! 2. This node checks the caller, then a job sends the call to the origin's relay, with the user and the user's right
//!    to see credentials.
//! 3. The origin trusts the check and the right, since the nodes are in one cluster, and answers from its own state.
//!    The origin never forwards a call, so no call goes in circles.
//! 4. If the origin was not reached, nothing has been done. The call is then answered here if the origin's claim has
//!    ended, else with 503.

use std::net::IpAddr;
use std::sync::Arc;

use relay::{ANSWER_WITHIN, Answer, Call as NodeCall};

use super::call::{AppHandler, Call, PARAMS_MAX, Reply};
use super::paths::split_path;
use super::route::{Base, Handler, Route};
use super::routes::{Found, find};
use crate::config::AppSettings;
use crate::control::Control;
use crate::control::cluster::Location;
use crate::control::mask::Requester;
use crate::http::{Headers, Method, Request, Response, Version};
use crate::jobs::{NodeOutcome, NodeWork, Work};
use crate::protocol;
use crate::types::{Now, SessionRef};

/// Header fields of the origin's answer that are passed on.
const FIELDS: [&str; 3] = ["content-type", "retry-after", "cache-control"];

/// The operation that a request calls, with its application and its parameters.
struct Row<'a> {
    app: Arc<AppSettings>,
    route: &'static Route,
    handler: AppHandler,
    params: [&'a str; PARAMS_MAX],
}

impl<'a> Row<'a> {
    const fn how(&self) -> (Method, AppHandler) {
        (self.route.method, self.handler)
    }

    fn call(&'a self, requester: Requester, request: &'a Request) -> Call<'a> {
        Call {
            requester,
            app: &self.app,
            request,
            params: self.params,
            client: None,
            is_administrator: false,
        }
    }
}

/// Forwards a call to the other node that has the call's stream; `None` if no other node has the stream.
pub(super) fn ask_origin(control: &mut Control, now: Now, route: &Route, call: &Call<'_>) -> Option<Reply> {
    if !route.at_origin {
        return None;
    }
    let key = call.key();
    let Location { host, port, node } = control.registry.cluster.location(&key)?;
    let cluster = protocol::cluster_name(&control.cx.config.server).to_owned();
    let actor = control.cx.audit.actor();
    let asked = NodeCall {
        method: call.request.method.as_str().to_owned(),
        path: call.request.path.clone(),
        query: call.request.query.clone(),
        content_type: call.request.header("content-type").unwrap_or_default().to_owned(),
        body: call.request.body.clone(),
        user: actor.map_or_else(String::new, |actor| actor.who.clone()),
        address: actor.and_then(|actor| actor.from).map_or_else(String::new, |from| from.to_string()),
        sees_credentials: !call.requester.is_masked(),
    };
    let (requester, request) = (call.requester, call.request.clone());
    tracing::debug!(%key, %node, path = request.path, "call is answered by another node");
    let until = now.mono.checked_add(ANSWER_WITHIN).unwrap_or(now.mono);
    let work = Work::Node(NodeWork { cluster, host, port, call: asked, until });
    let is_sent = control.cx.submit_for(&call.app.name, work, move |control, now, outcome| {
        origin_answered(control, now, requester, &request, outcome.node());
    });
    let full = || Reply::Now(Response::error(503, "Too many requests wait").header("Retry-After", "1"));
    Some(if is_sent { Reply::Later } else { full() })
}

fn origin_answered(
    control: &mut Control,
    now: Now,
    requester: Requester,
    request: &Request,
    outcome: NodeOutcome,
) {
    let response = match outcome {
        NodeOutcome::Answered(answer) => answered(answer),
        NodeOutcome::NotSent(reason) => {
            let row = row_of(control, request);
            let row = row.filter(|row| {
                let key = row.call(requester, request).key();
                control.registry.cluster.location(&key).is_none()
            });
            // `row` is set if no other node has the stream any more: answer the call here.
            match row.map(|row| handle_app(control, now, row.how(), &row.call(requester, request))) {
                Some(Reply::Now(response)) => response,
                Some(Reply::Later) => return,
                None => unreached("The node of the stream cannot be reached", "not sent", request, &reason),
            }
        }
        NodeOutcome::Failed(reason) => {
            unreached("The node of the stream does not answer", "no answer", request, &reason)
        }
    };
    control.cx.answer(requester, response);
}

/// Finds the operation that a request calls, with the application and the parameters.
fn row_of<'a>(control: &Control, request: &'a Request) -> Option<Row<'a>> {
    let (app, rest) = split_path(&request.path)?;
    let app = control.cx.apps.get(app).cloned()?;
    let Found::Route(route, params) = find(Base::App, request.method, rest.strip_prefix("/v2")?) else {
        return None;
    };
    let Handler::App(handler) = route.handler else { return None };
    Some(Row { app, route, handler, params })
}

/// Handles a call that another node has checked.
pub(in crate::control) fn node_call(control: &mut Control, now: Now, session: SessionRef, asked: NodeCall) {
    let requester = Requester::unknown(session).seeing(asked.sees_credentials);
    let (user, from) = (asked.user.clone(), asked.address.parse::<IpAddr>().ok());
    let Some(request) = request_of(asked) else {
        return control.cx.answer(requester, Response::error(405, "Method Not Allowed"));
    };
    let Some(row) = row_of(control, &request).filter(|row| row.route.at_origin) else {
        return control.cx.answer(requester, Response::error(404, "Not Found"));
    };
    if row.route.gives_credential && requester.is_masked() {
        return control.cx.answer(requester, Response::error(403, "Not allowed from another site"));
    }
    control.cx.audit.audit_actor(&user, from);
    control.cx.audit_route(session, row.route, &request);
    if let Reply::Now(response) = handle_app(control, now, row.how(), &row.call(requester, &request)) {
        control.cx.answer(requester, response);
    }
}

/// Runs the handler of an application's operation.
pub(super) fn handle_app(
    control: &mut Control,
    now: Now,
    (method, handler): (Method, AppHandler),
    call: &Call<'_>,
) -> Reply {
    match handler(control, now, call) {
        Reply::Now(response) if method != Method::Get => {
            control.records.settled(now, call.requester, &call.key(), response)
        }
        reply @ (Reply::Now(_) | Reply::Later) => reply,
    }
}

/// Builds the request of a call; `None` if the method is unknown.
fn request_of(asked: NodeCall) -> Option<Request> {
    let mut headers = Headers::new();
    if !asked.content_type.is_empty() {
        headers.push("Content-Type", asked.content_type);
    }
    Some(Request {
        method: Method::from_token(asked.method.as_bytes())?,
        version: Version::Http11,
        target: String::new(),
        path: asked.path,
        query: asked.query,
        headers,
        body: asked.body,
        body_waits: false,
    })
}

fn answered(answer: Answer) -> Response {
    let mut response = Response::empty(answer.status);
    for (name, value) in answer.fields {
        if FIELDS.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            response.headers.push(name, value);
        }
    }
    Response { body: answer.body, ..response }
}

fn unreached(text: &str, what: &str, request: &Request, reason: &str) -> Response {
    tracing::warn!(path = request.path, reason, "call to the node of a stream: {what}");
    Response::error(503, text).header("Retry-After", "1")
}
