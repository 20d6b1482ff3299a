//! Adding and removing restreaming endpoints (docs/rest.md). The paths `endpoint` and `rtmp-endpoint` have the same
//! operations.

use serde::Deserialize;

use super::call::{Call, Reply, bad_request};
use crate::auth::redact;
use crate::control::Now;
use crate::control::answer::Outcome;
use crate::control::broadcast::{BodyError, EndpointRecord, RECORD_BYTES_MAX, parse_json, status};
use crate::control::context::Context;
use crate::control::from_json::loose;
use crate::control::live::Registry;
use crate::control::records::{Answer, Change, Records, Write};
use crate::protocol::outbound;
use crate::types::StreamKey;

/// Longest id that a client may choose, in bytes.
const SERVICE_ID_BYTES_MAX: usize = 128;

const TOO_MANY: &str = "more endpoints than limits.endpoints allows";
const ID_TOO_LONG: &str = "its id is longer than 128 bytes";

/// Logs why an endpoint is refused. Answers do not say it, because clients know their text.
fn note_refused(key: &StreamKey, url: &str, reason: &str) {
    tracing::info!(%key, url = redact(url), reason, "endpoint refused");
}

/// The body of a request to add an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AddBody {
    #[serde(deserialize_with = "loose")]
    endpoint_url: Option<String>,
    #[serde(deserialize_with = "loose")]
    rtmp_url: Option<String>,
    endpoint_service_id: Option<String>,
}

fn failure(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(200))
}

/// `POST /broadcasts/{id}/endpoint` and `/rtmp-endpoint`.
pub(super) fn add(
    cx: &mut Context,
    records: &mut Records,
    registry: &Registry,
    now: Now,
    call: &Call<'_>,
) -> Reply {
    let body: Result<Option<Option<AddBody>>, BodyError> = parse_json(&call.request.body);
    let body = match body {
        Ok(body) => body.flatten().unwrap_or_default(),
        Err(error) => return bad_request(&error.to_string()),
    };
    let height: i32 = match call.number("resolutionHeight") {
        Ok(height) => height.unwrap_or(0),
        Err(refusal) => return refusal,
    };
    let Some(url) = body.endpoint_url.or(body.rtmp_url) else { return failure("Missing Endpoint url") };
    let key = call.key();
    let [id, ..] = call.params;
    let Some(record) = records.pending(&key) else {
        return failure(&format!("Stream does not exist with Id: {id}"));
    };
    let list = record.end_point_list.as_deref().unwrap_or_default();
    let not_added = format!("Endpoint is not added to stream: {id}");
    if height != 0 && height != record.height && registry.is_live(&key) {
        note_refused(&key, &url, "the stream has no rendition with this resolutionHeight");
        return failure(&not_added);
    }
    if list.iter().any(|e| e.endpoint_url == url) {
        let text = format!("Endpoint is not added to datastore for stream {id}. It is already added ->{url}");
        return failure(&text);
    }
    let wanted = body.endpoint_service_id.unwrap_or_default();
    let full = if list.len() >= cx.config.server.limits.endpoints {
        Some(TOO_MANY)
    } else if wanted.len() > SERVICE_ID_BYTES_MAX {
        Some(ID_TOO_LONG)
    } else if record.encode().len().saturating_add(url.len() * 2) > RECORD_BYTES_MAX {
        Some("the record would be larger than 32 KiB")
    } else {
        None
    };
    if let Some(reason) = full {
        note_refused(&key, &url, reason);
        return failure(&not_added);
    }
    if let Err(reason) = cx.check_url(&key, &url) {
        note_refused(&key, &url, &reason);
        // Like Ant Media Server, return an id although no endpoint has it.
        let id = cx.service_id();
        return Reply::Now(Outcome::failure(&not_added).data_id(&id).response(200));
    }
    let service_id = if wanted.is_empty() { cx.service_id() } else { wanted };
    let endpoint = endpoint_record(service_id.clone(), url);
    let change = Change::AddEndpoint(endpoint);
    let waiter = Some((call.requester, Answer::Made(service_id)));
    records.write(now, Write { key, change, waiter });
    Reply::Later
}

fn endpoint_record(service_id: String, url: String) -> EndpointRecord {
    EndpointRecord {
        status: status::CREATED.to_owned(),
        kind: "generic".to_owned(),
        rtmp_url: url.clone(),
        endpoint_url: url,
        endpoint_service_id: service_id,
        left_out: Vec::new(),
    }
}

/// `DELETE /broadcasts/{id}/endpoint` and `/rtmp-endpoint`.
pub(super) fn remove(records: &mut Records, now: Now, call: &Call<'_>) -> Reply {
    let key = call.key();
    if let Err(refusal) = call.number::<i32>("resolutionHeight") {
        return refusal;
    }
    let wanted = call.query("endpointServiceId").to_owned();
    let list = records.pending(&key).and_then(|record| record.end_point_list.as_deref()).unwrap_or_default();
    if wanted.is_empty() || !list.iter().any(|e| e.endpoint_service_id == wanted) {
        return failure("");
    }
    let waiter = Some((call.requester, Answer::Success));
    records.write(now, Write { key, change: Change::RemoveEndpoint(wanted), waiter });
    Reply::Later
}

impl Context {
    /// Checks the URL of an endpoint. A host name is resolved and checked at each connection; a literal address is
    /// checked here.
    fn check_url(&self, key: &StreamKey, url: &str) -> Result<(), String> {
        let target = outbound::read_endpoint(url).map_err(|e| e.to_string())?;
        if self.config.is_loop(key, &target) {
            return Err("the stream would be pushed into itself".to_owned());
        }
        match target.host.parse() {
            Ok(address) if !target.listens() => self
                .config
                .outbound
                .check(std::net::SocketAddr::new(address, target.port))
                .map_err(|e| e.to_string()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Makes an id: `custom` and six random letters or digits.
    pub(super) fn service_id(&mut self) -> String {
        format!("custom{}", self.alphanumerics(6))
    }

    /// Returns the endpoints that a create or update body lists; `None` if any is invalid. An endpoint without an id
    /// keeps the id that the same URL has in `old`, so that a running push goes on.
    pub(super) fn endpoints_of_body(
        &mut self,
        key: &StreamKey,
        old: &[EndpointRecord],
        given: Vec<EndpointRecord>,
    ) -> Option<Vec<EndpointRecord>> {
        let mut list: Vec<EndpointRecord> = Vec::new();
        if let Some(last) = given.last().filter(|_| given.len() > self.config.server.limits.endpoints) {
            let url = if last.endpoint_url.is_empty() { &last.rtmp_url } else { &last.endpoint_url };
            note_refused(key, url, TOO_MANY);
            return None;
        }
        for entry in given {
            let url = if entry.endpoint_url.is_empty() { entry.rtmp_url } else { entry.endpoint_url };
            if let Err(reason) = self.check_url(key, &url) {
                note_refused(key, &url, &reason);
                return None;
            }
            let known = old.iter().find(|known| known.endpoint_url == url);
            let id = match (entry.endpoint_service_id, known) {
                (id, _) if !id.is_empty() => id,
                (_, Some(known)) => known.endpoint_service_id.clone(),
                (_, None) => self.service_id(),
            };
            let is_double = list.iter().any(|e| e.endpoint_url == url);
            if is_double || id.len() > SERVICE_ID_BYTES_MAX {
                note_refused(key, &url, if is_double { "its URL is listed twice" } else { ID_TOO_LONG });
                return None;
            }
            list.push(endpoint_record(id, url));
        }
        Some(list)
    }
}
