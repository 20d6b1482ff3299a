//! Changes of a record, their effects, and the answers to them.

use crate::control::broadcast::{Body, Broadcast, EndpointRecord, status};
use crate::control::mask::Requester;
use crate::http::Response;
use crate::protocol::Container;
use crate::types::StreamKey;

/// A change of one record.
#[derive(Debug, Clone)]
pub(in crate::control) enum Change {
    Insert(Box<Broadcast>),
    Update {
        body: Box<Body>,
        endpoints: Option<Vec<EndpointRecord>>,
    },
    /// Sets a new publish key.
    PublishKey(String),
    AddEndpoint(EndpointRecord),
    RemoveEndpoint(String),
    /// Sets whether the source should run.
    Source(bool),
    /// Switches recording in a container on or off.
    Record {
        container: Container,
        on: bool,
    },
    Delete,
}

impl Change {
    /// Returns the record with this change applied. Called twice: for the overlay of pending changes, and after the
    /// commit for the record in memory.
    pub(in crate::control) fn apply(&self, before: Option<Broadcast>) -> Option<Broadcast> {
        let mut record = match (self, before) {
            (Self::Insert(record), _) => return Some((**record).clone()),
            (Self::Delete, _) | (_, None) => return None,
            (_, Some(record)) => record,
        };
        match self {
            Self::Insert(_) | Self::Delete => {}
            Self::Update { body, endpoints } => {
                update_status(&mut record, body);
                record.update((**body).clone());
                if let Some(endpoints) = endpoints {
                    record.end_point_list = Some(merge_endpoints(&record, endpoints));
                }
            }
            Self::PublishKey(key) => record.publish_key = Some(key.clone()),
            Self::AddEndpoint(endpoint) => {
                record.end_point_list.get_or_insert_default().push(endpoint.clone());
            }
            Self::RemoveEndpoint(id) => {
                // Two endpoints may have the same id. Each request removes only one of them.
                let list = record.end_point_list.get_or_insert_default();
                if let Some(at) = list.iter().position(|e| e.endpoint_service_id == *id) {
                    list.remove(at);
                }
            }
            Self::Source(wanted) => record.source_wanted = *wanted,
            Self::Record { container, on } => {
                let switch = if *on { 1 } else { -1 };
                match container {
                    Container::Mp4 => record.mp4_enabled = switch,
                    Container::WebM => record.webm_enabled = switch,
                }
            }
        }
        Some(record)
    }
}

impl Change {
    /// True if a running source must restart, because the update changed where or how its media are fetched.
    pub(in crate::control) fn restarts_source(&self, before: &Broadcast, after: &Broadcast) -> bool {
        matches!(self, Self::Update { .. }) && after.is_fetched_otherwise(before)
    }
}

impl Broadcast {
    /// True if the source, or the way of fetching it, differs from before.
    pub(in crate::control) fn is_fetched_otherwise(&self, before: &Self) -> bool {
        let of = |record: &Self| {
            let Self {
                stream_url, ip_addr, username, password, play_list_item_list, seek_time_in_ms, ..
            } = record.clone();
            (stream_url, ip_addr, username, password, play_list_item_list, seek_time_in_ms)
        };
        of(before) != of(self)
    }
}

/// Applies a status from a client. Has no effect unless the record is of type `liveStream` and its stream is not live.
fn update_status(record: &mut Broadcast, body: &Body) {
    if let Some(Some(wanted)) = &body.status
        && record.kind == "liveStream"
        && record.status != status::BROADCASTING
        && status::ALL.contains(&wanted.as_str())
        && wanted != status::BROADCASTING
        && wanted != status::PREPARING
    {
        record.status.clone_from(wanted);
    }
}

/// Returns the new list of endpoints, in which endpoints of the old list keep their status.
fn merge_endpoints(record: &Broadcast, wanted: &[EndpointRecord]) -> Vec<EndpointRecord> {
    let old = record.end_point_list.as_deref().unwrap_or_default();
    let same = |w: &EndpointRecord| {
        let same = |o: &&EndpointRecord| {
            o.endpoint_service_id == w.endpoint_service_id && o.endpoint_url == w.endpoint_url
        };
        old.iter().find(same).unwrap_or(w).clone()
    };
    wanted.iter().map(same).collect()
}

/// The kind of answer, given once the change is stored.
#[derive(Debug, Clone)]
pub(in crate::control) enum Answer {
    /// The created record.
    Created,
    /// The record as a conference room.
    Room,
    /// A plain success.
    Success,
    /// A success whose message and id are null.
    SuccessOfNulls,
    /// A plain failure, because a later part of a bulk request failed.
    Failure,
    /// The answer to a delete; its text depends on whether a stream was live.
    Deleted,
    /// The created object: the id of an endpoint, or a publish key.
    Made(String),
    /// The members of the record, followed by those of Ant Media Server's object `Result`. The record's source is
    /// started before the answer is sent.
    Started,
    /// Failure to start a source; its record has been removed again.
    NotStarted(String),
    /// A response prepared in advance: for the last change of an import, the result of each item; for a recording, its
    /// id.
    Prepared(Box<Response>),
}

/// A change, with the request that waits for it.
#[derive(Debug)]
pub(in crate::control) struct Write {
    pub(in crate::control) key: StreamKey,
    pub(in crate::control) change: Change,
    pub(in crate::control) waiter: Option<(Requester, Answer)>,
}
