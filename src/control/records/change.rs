//! A change of a record, what it does, and what is answered when it is there.

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
    /// Another publish key.
    PublishKey(String),
    AddEndpoint(EndpointRecord),
    RemoveEndpoint(String),
    /// Whether its source is to run.
    Source(bool),
    /// A recording switch.
    Record {
        container: Container,
        on: bool,
    },
    Delete,
}

impl Change {
    /// The record after the change. Applied twice: for the overlay, and after the commit to what memory is then.
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
                // Two may have the same id: each removal takes one.
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
    /// Whether a source that runs begins anew: an update has changed where it is fetched from, or how.
    pub(in crate::control) fn restarts_source(&self, before: &Broadcast, after: &Broadcast) -> bool {
        matches!(self, Self::Update { .. }) && after.is_fetched_otherwise(before)
    }
}

impl Broadcast {
    /// Whether its source is another than before, or fetched in another way.
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

/// The status is a client's to set only while nothing is live, and only of a live stream's record.
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

/// A replaced list keeps the status of what stays.
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

/// The answer once the change is stored.
#[derive(Debug, Clone)]
pub(in crate::control) enum Answer {
    /// The record.
    Created,
    /// The record as a conference room.
    Room,
    /// A plain success.
    Success,
    /// A success whose message and id are null.
    SuccessOfNulls,
    /// A plain failure: an earlier part of a bulk request worked, a later one could not.
    Failure,
    /// The answer to a delete; its text depends on whether something was live.
    Deleted,
    /// The made thing: the id of an endpoint, or a publish key.
    Made(String),
    /// The record of a source that runs by then, and the result of the reference behind it.
    Started,
    /// A source that could not be started; its record is gone again.
    NotStarted(String),
    /// A response made in advance: with the last change of an import the outcome of each item, with a
    /// recording its id.
    Prepared(Box<Response>),
}

/// A change and who waits for it.
#[derive(Debug)]
pub(in crate::control) struct Write {
    pub(in crate::control) key: StreamKey,
    pub(in crate::control) change: Change,
    pub(in crate::control) waiter: Option<(Requester, Answer)>,
}
