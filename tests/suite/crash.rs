//! Recovery after kills, full and failing disks, damaged files and slow disks (docs/robustness.md B rows).

mod disk;
mod files;
mod kill;
mod recording_disk;
mod recordings;
mod upgrade;

use super::support::{Api, Server};

const CREATE: &str = "/live/rest/v2/broadcasts/create";

/// Creates a broadcast, and returns the status; `None` if the server did not answer.
fn try_create(api: &Api, id: &str, name: &str) -> Option<u16> {
    let body = format!(r#"{{"streamId":"{id}","name":"{name}","description":"{name}"}}"#);
    let reply = api.try_call("POST", CREATE, Some(&body))?;
    // A truncated answer counts as no answer.
    (reply.status != 200 || serde_json::from_str::<serde_json::Value>(&reply.body).is_ok())
        .then_some(reply.status)
}

/// Changes the name and the description of a broadcast in one request. Returns the result, if there was an answer.
fn try_update(api: &Api, id: &str, name: &str) -> Option<bool> {
    let body = format!(r#"{{"name":"{name}","description":"{name}"}}"#);
    let reply = api.try_call("PUT", &format!("/live/rest/v2/broadcasts/{id}"), Some(&body))?;
    let outcome: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    (reply.status == 200).then(|| outcome["success"] == true)
}

/// Returns the name of a broadcast. Checks that no update was stored only partly.
fn name_of(server: &Server, id: &str) -> Option<String> {
    let record = server.api().broadcast("live", id)?;
    assert_eq!(record["streamId"], id);
    assert_eq!(record["name"], record["description"], "half an update: {record}");
    Some(record["name"].as_str().unwrap().to_owned())
}
