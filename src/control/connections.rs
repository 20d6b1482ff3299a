//! Figures of a stream's connections: every worker is asked, and requests are answered when all workers have replied.
//! Requests that arrive while the workers are being asked share the result, and each list is written once. An application
//! may have as many waiting requests as it leaves places free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::answer::Outcome;
use super::context::Context;
use super::mask::Requester;
use super::rest::{Reply, list_from};
use super::stats::Figures;
use crate::http::Response;
use crate::mail::ToWorker;
use crate::stats::{ConnectionFigures, Role, ViewerFigures, ViewerName};
use crate::types::{Now, SessionRef, StreamId, SubscriptionId, WorkerId};

/// Maximum number of waiting requests.
const WAITING_MAX: usize = 64;

/// A question about the connections of a stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    /// Figures of the connections of one protocol.
    Statistics(&'static str),
    /// A page of viewers, limited to the protocols whose clients Ant Media Server lists.
    Clients {
        /// Number of viewers to skip at the beginning.
        offset: usize,
        /// Maximum number of viewers to list.
        size: usize,
    },
    /// A page of viewers of every protocol.
    Viewers {
        /// Number of viewers to skip at the beginning.
        offset: usize,
        /// Maximum number of viewers to list.
        size: usize,
    },
    /// A request to end the viewer with this name.
    End(String),
}

/// A query about the connections of a stream.
#[derive(Debug)]
struct Question {
    app: Arc<str>,
    /// The requesters that wait, with their questions.
    waiting: Vec<(Requester, Asked)>,
    told: BTreeSet<WorkerId>,
    connections: Vec<ConnectionFigures>,
    viewers: Vec<ViewerFigures>,
}

/// All queries in progress.
#[derive(Debug, Default)]
pub(super) struct ConnectionQuestions {
    by_stream: BTreeMap<StreamId, Question>,
}

impl Figures {
    /// Handles a request for the figures of a live stream's connections.
    pub(super) fn ask_connections(
        &mut self,
        cx: &mut Context,
        requester: Requester,
        (app, stream): (&Arc<str>, StreamId),
        asked: Asked,
    ) -> Reply {
        let questions = &mut self.connections.by_stream;
        let waiting: usize = questions.values().map(|question| question.waiting.len()).sum();
        let of_app = questions.values().filter(|question| question.app == *app);
        let own: usize = of_app.map(|question| question.waiting.len()).sum();
        let free = WAITING_MAX.saturating_sub(waiting);
        if free == 0 || own > free {
            return Reply::Now(Response::error(503, "Too many requests wait"));
        }
        let question = questions.entry(stream).or_insert_with(|| Question {
            app: Arc::clone(app),
            waiting: Vec::new(),
            told: BTreeSet::new(),
            connections: Vec::new(),
            viewers: Vec::new(),
        });
        question.waiting.push((requester, asked));
        if question.waiting.len() == 1 {
            cx.post_all(&ToWorker::Connections(stream));
        }
        Reply::Later
    }

    /// Handles the answer of one worker.
    pub(super) fn connections_told(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        stream: StreamId,
        (connections, viewers): (Vec<ConnectionFigures>, Vec<ViewerFigures>),
    ) {
        let Some(question) = self.connections.by_stream.get_mut(&stream) else { return };
        question.told.insert(worker);
        question.connections.extend(connections);
        question.viewers.extend(viewers);
        if question.told.len() < usize::from(cx.config.workers) {
            return;
        }
        let Some(mut question) = self.connections.by_stream.remove(&stream) else { return };
        // Sort independently of the order in which workers replied, so that the pages of a list are consistent.
        question.connections.sort_by_key(|one| one.peer);
        question.viewers.sort_by(|a, b| (b.seconds, &b.name).cmp(&(a.seconds, &a.name)));
        let mut lists: BTreeMap<Asked, Response> = BTreeMap::new();
        for (requester, asked) in std::mem::take(&mut question.waiting) {
            if let Asked::End(name) = &asked {
                let one = question.viewers.iter().find(|one| name_of(&one.name) == *name);
                cx.end_viewer(requester, stream, one);
                continue;
            }
            let list = lists.entry(asked).or_insert_with_key(|asked| question.list(now, asked));
            cx.answer(requester, list.clone());
        }
    }
}

impl Question {
    /// Writes a list. Pages that would be too long are cut.
    fn list(&self, now: Now, asked: &Asked) -> Response {
        let all = self.connections.iter();
        match asked {
            Asked::Statistics(protocol) => {
                let of_protocol = |one: &&ConnectionFigures| one.figures.catalogue().name == *protocol;
                let list = all.filter(of_protocol).map(|one| Value::Object(to_json(one)));
                Response::json(200, Value::Array(list.collect()).to_string())
            }
            Asked::Clients { offset, size } => {
                let clients = all.filter_map(|one| client(one, now.wall_ms));
                list_from(*offset, clients.skip(*offset).take(*size).map(Value::Object))
            }
            Asked::Viewers { offset, size } => {
                list_from(*offset, self.viewers.iter().skip(*offset).take(*size).map(viewer))
            }
            Asked::End(_) => list_from(0, std::iter::empty::<Value>()),
        }
    }
}

impl Context {
    /// Ends a viewer, and answers whether the viewer existed.
    fn end_viewer(&mut self, requester: Requester, stream: StreamId, viewer: Option<&ViewerFigures>) {
        let Some(viewer) = viewer else {
            return self.answer(requester, Outcome::failure("There is no such viewer").response(200));
        };
        let reason = "an operator ended it";
        match &viewer.name {
            ViewerName::Session(SessionRef { worker, conn, handle }) => {
                let viewer = SubscriptionId { conn: *conn, handle: *handle };
                self.post(*worker, ToWorker::EndViewer { stream, viewer, reason });
            }
            // The viewer's next request may reach any worker, so every worker must end the viewer.
            ViewerName::Lease { identity, .. } => self.post_all(&ToWorker::EndPolled {
                stream,
                protocol: viewer.protocol,
                viewer: Arc::clone(identity),
                reason,
            }),
        }
        self.answer(requester, Outcome::success().response(200));
    }
}

/// Returns the name of a viewer in the API, unique while the server runs. The viewer's identity is not part of the
/// name, since it may be a token.
fn name_of(name: &ViewerName) -> String {
    match name {
        ViewerName::Session(SessionRef { worker, conn, handle }) => {
            format!("{}-{}-{}-{}", worker.0, conn.slot, conn.generation, handle.0)
        }
        ViewerName::Lease { worker, number, .. } => format!("{}-{number}", worker.0),
    }
}

/// Returns the JSON of a viewer, as in the list of all viewers.
fn viewer(one: &ViewerFigures) -> Value {
    json!({
        "viewerId": name_of(&one.name),
        "protocol": one.protocol,
        "clientIp": one.address.to_canonical().to_string(),
        "seconds": one.seconds,
    })
}

/// Returns the JSON of a viewer in Ant Media Server's form; `None` for a publisher, or a protocol that Ant Media Server
/// omits.
fn client(connection: &ConnectionFigures, wall_ms: u64) -> Option<Map<String, Value>> {
    let mut members = connection.figures.client(wall_ms).filter(|_| connection.role == Role::Viewer)?;
    members.insert("clientIp".to_owned(), connection.peer.ip().to_string().into());
    Some(members)
}

fn to_json(connection: &ConnectionFigures) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("role".to_owned(), connection.role.name().into());
    members.insert("peer".to_owned(), connection.peer.to_string().into());
    members.extend(connection.figures.members());
    members
}
