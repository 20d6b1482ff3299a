//! Figures of a stream's connections of one protocol: every worker is asked, and the answer is made when all have told.
//! Requests that come meanwhile get the same answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Control;
use super::rest::Reply;
use crate::http::Response;
use crate::mail::ToWorker;
use crate::stats::ConnectionFigures;
use crate::types::{SessionRef, StreamId, WorkerId};

/// Requests that wait at a time.
const WAITING_MAX: usize = 64;

/// A query about the connections of a stream.
#[derive(Debug, Default)]
struct Question {
    /// The sessions that wait for an answer, with the protocol they ask about.
    waiting: Vec<(SessionRef, &'static str)>,
    told: BTreeSet<WorkerId>,
    connections: Vec<ConnectionFigures>,
}

/// All queries under way.
#[derive(Debug, Default)]
pub(super) struct ConnectionQuestions {
    by_stream: BTreeMap<StreamId, Question>,
}

impl Control {
    /// A request for the figures of a live stream's connections of a protocol.
    pub(super) fn ask_connections(
        &mut self,
        session: SessionRef,
        stream: StreamId,
        protocol: &'static str,
    ) -> Reply {
        let questions = &mut self.figures.connections.by_stream;
        let waiting: usize = questions.values().map(|question| question.waiting.len()).sum();
        if waiting >= WAITING_MAX {
            return Reply::Now(Response::error(503, "Too many requests wait"));
        }
        let question = questions.entry(stream).or_default();
        question.waiting.push((session, protocol));
        if question.waiting.len() == 1 {
            self.post_all(&ToWorker::Connections(stream));
        }
        Reply::Later
    }

    /// Takes the answer of one worker.
    pub(super) fn connections_told(
        &mut self,
        worker: WorkerId,
        stream: StreamId,
        connections: Vec<ConnectionFigures>,
    ) {
        let Some(question) = self.figures.connections.by_stream.get_mut(&stream) else { return };
        question.told.insert(worker);
        question.connections.extend(connections);
        if question.told.len() < usize::from(self.config.workers) {
            return;
        }
        let Some(question) = self.figures.connections.by_stream.remove(&stream) else { return };
        for (session, protocol) in question.waiting {
            let of_protocol = |one: &&ConnectionFigures| one.figures.catalogue().name == protocol;
            let list: Vec<Value> = question
                .connections
                .iter()
                .filter(of_protocol)
                .map(|one| Value::Object(to_json(one)))
                .collect();
            self.answer(session, Response::json(200, Value::Array(list).to_string()));
        }
    }
}

fn to_json(connection: &ConnectionFigures) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("role".to_owned(), connection.role.name().into());
    members.insert("peer".to_owned(), connection.peer.to_string().into());
    members.extend(connection.figures.members());
    members
}
