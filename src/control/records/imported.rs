//! Conversion of Ant Media Server's records to ours (docs/import.md).
//!
//! Members have the same names on both sides, so a record of Ant Media Server is parsed like a record in the store. The
//! functions here decide which members are left out, which are reset because they applied only to the old server, and
//! what is reported about the rest.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::auxiliary::{Auxiliary, Subscriber, Token, Vod};
use crate::auth::{HookUrl, redact};
use crate::control::broadcast::{Broadcast, EndpointRecord, RECORD_BYTES_MAX, is_stream_id, status};
use crate::control::management::{PasswordHash, User, is_email};
use crate::jobs::PasswordDigest;
use crate::protocol::outbound;
use crate::store::{Key, Kind};
use crate::types::StreamKey;

/// Longest id of a token or a file, in bytes.
const ID_BYTES_MAX: usize = 256;
/// Members that MongoDB and its mapper add for themselves.
const PLUMBING: [&str; 4] = ["_id", "dbId", "_t", "className"];
/// Types of broadcasts that fetch their media.
const FETCHED: [&str; 2] = ["streamSource", "ipCamera"];

/// A record to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRecord {
    /// Key of the record.
    pub key: Key,
    /// Stored form of the record.
    pub bytes: Bytes,
    /// Descriptions of parts of the record that will not work, one line each.
    pub remarks: Vec<String>,
}

/// The reason for which a record is not imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotImported {
    /// An expired token.
    Expired,
    /// A broadcast that existed only while it was published.
    Passing,
    /// A record that is not valid here, with the reason.
    Unusable(String),
}

/// Returns the key for a record of Ant Media Server; `None` if its id is missing or not valid here.
#[must_use]
pub fn imported_key(kind: Kind, app: &str, record: &Map<String, Value>) -> Option<Key> {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    let stream = text("streamId");
    let app_name = app.into();
    match kind {
        Kind::Broadcast => is_stream_id(stream).then(|| StreamKey::new(app, stream).into()),
        Kind::Token => {
            let token = text("tokenId");
            let fits = is_stream_id(stream) && is_short(token);
            fits.then(|| Token::key(&app_name, stream, token))
        }
        Kind::Subscriber => {
            let id = text("subscriberId");
            let fits = is_stream_id(stream) && Subscriber::is_id(id);
            fits.then(|| Subscriber::key(&app_name, stream, id))
        }
        Kind::Vod => Some(text("vodId")).filter(|id| is_short(id)).map(|id| Vod::key(&app_name, id)),
        Kind::User => {
            Some(text("email")).filter(|email| is_email(email)).map(|email| Key::new(kind, "", email))
        }
    }
}

fn is_short(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && !id.contains('/') && !id.chars().any(char::is_control)
}

/// Converts a record of Ant Media Server. `hash` converts a password as stored there to the text to store here.
///
/// # Errors
/// The reason for which the record is not imported.
pub fn imported_record(
    kind: Kind,
    app: &str,
    mut record: Map<String, Value>,
    now_ms: u64,
    hash: &dyn Fn(&PasswordDigest) -> String,
) -> Result<ImportedRecord, NotImported> {
    let Some(key) = imported_key(kind, app, &record) else {
        return Err(NotImported::Unusable("it has no id that is one here".to_owned()));
    };
    record.retain(|name, value| !value.is_null() && !PLUMBING.contains(&name.as_str()));
    let mut remarks = Vec::new();
    let bytes = match kind {
        Kind::Broadcast => broadcast(record, &mut remarks)?.encode(),
        Kind::Token => {
            let token: Token = read(record)?;
            let over = u64::try_from(token.expire_date).is_ok_and(|date| date <= now_ms / 1000);
            if over || token.expire_date < 0 {
                return Err(NotImported::Expired);
            }
            Auxiliary::Token(token).encode()
        }
        Kind::Subscriber => Auxiliary::Subscriber(read(record)?).encode(),
        Kind::Vod => Auxiliary::Vod(vod(record)?).encode(),
        Kind::User => Auxiliary::User(user(record, hash)?).encode(),
    };
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(NotImported::Unusable(format!("it is larger than {} KiB", RECORD_BYTES_MAX >> 10)));
    }
    Ok(ImportedRecord { key, bytes, remarks })
}

fn read<T: DeserializeOwned>(record: Map<String, Value>) -> Result<T, NotImported> {
    serde_json::from_value(Value::Object(record)).map_err(|error| NotImported::Unusable(error.to_string()))
}

fn broadcast(mut record: Map<String, Value>, remarks: &mut Vec<String>) -> Result<Broadcast, NotImported> {
    for name in ["endPointList", "playListItemList", "encoderSettingsList"] {
        if let Some(Value::Array(items)) = record.get_mut(name) {
            items.iter_mut().for_each(tidy);
        }
    }
    let mut record: Broadcast = read(record)?;
    if record.zombi {
        return Err(NotImported::Passing);
    }
    let was_live = [status::BROADCASTING, status::PREPARING].contains(&record.status.as_str());
    if was_live {
        status::FINISHED.clone_into(&mut record.status);
    }
    let is_fetched = FETCHED.contains(&record.kind.as_str());
    if was_live && is_fetched {
        remarks.push("it was being fetched: start it here when the old server has stopped".to_owned());
    }
    forget_the_old_server(&mut record);
    if let Some(list) = record.end_point_list.take() {
        record.end_point_list = Some(endpoints(list, remarks));
    }
    say_what_will_not_work(&record, is_fetched, remarks);
    Ok(record)
}

/// Cleans an element of a list: drops MongoDB's members and renames members that older servers named differently.
fn tidy(item: &mut Value) {
    let Value::Object(item) = item else { return };
    item.retain(|_, value| !value.is_null());
    for (old, new) in [("_id", "endpointServiceId"), ("rtmpUrl", "endpointUrl")] {
        if let Some(value) = item.get(old).filter(|value| value.is_string() && !item.contains_key(new)) {
            let value = value.clone();
            item.insert(new.to_owned(), value);
        }
    }
    item.retain(|name, _| !PLUMBING.contains(&name.as_str()));
}

/// Resets the members that applied only to the old server.
fn forget_the_old_server(record: &mut Broadcast) {
    record.origin_adress = String::new();
    record.rtmp_url = String::new();
    record.forget_viewers();
    record.bitrate = 0;
    record.speed = 0.0;
    record.pending_packet_size = 0;
    record.encoder_queue_size = 0;
}

/// Returns the endpoints that can be pushed to, and adds a remark for each of the others.
fn endpoints(list: Vec<EndpointRecord>, remarks: &mut Vec<String>) -> Vec<EndpointRecord> {
    let mut kept: Vec<EndpointRecord> = Vec::new();
    for (number, mut endpoint) in list.into_iter().enumerate() {
        if let Err(error) = outbound::read_endpoint(&endpoint.endpoint_url) {
            let url = redact(&endpoint.endpoint_url);
            remarks.push(format!("its endpoint {url} is left out: {error}"));
            continue;
        }
        if endpoint.endpoint_service_id.is_empty() {
            endpoint.endpoint_service_id = format!("imported{number}");
        }
        "generic".clone_into(&mut endpoint.kind);
        status::CREATED.clone_into(&mut endpoint.status);
        endpoint.rtmp_url.clone_from(&endpoint.endpoint_url);
        kept.push(endpoint);
    }
    kept
}

fn say_what_will_not_work(record: &Broadcast, is_fetched: bool, remarks: &mut Vec<String>) {
    let url = record.stream_url.as_deref().unwrap_or_default();
    if is_fetched
        && !url.is_empty()
        && !outbound::is_own_path(url)
        && let Err(error) = outbound::read_source(url)
    {
        remarks.push(format!("its source {} cannot be fetched: {error}", redact(url)));
    }
    let hook = record.listener_hook_url.as_deref().filter(|url| !url.trim().is_empty());
    if let Some(Err(error)) = hook.map(HookUrl::parse) {
        remarks.push(format!("its listenerHookURL is never called: {error}"));
    }
    if record.encoder_settings_list.as_ref().is_some_and(|list| !list.is_empty()) {
        remarks.push("its encoder settings have no effect: video is not transcoded".to_owned());
    }
}

fn vod(record: Map<String, Value>) -> Result<Vod, NotImported> {
    let mut vod: Vod = read(record)?;
    if vod.kind.as_deref() == Some(Vod::IMPORTED) {
        let text = "it is of a folder that was imported: import the folder here (docs/vod.md)";
        return Err(NotImported::Unusable(text.to_owned()));
    }
    let path = vod.file_path.as_deref().unwrap_or_default();
    let is_below =
        path.starts_with("streams/") && !path.split('/').any(|name| ["", ".", ".."].contains(&name));
    if !is_below {
        return Err(NotImported::Unusable("its file is not below streams".to_owned()));
    }
    (vod.unfinished, vod.kept) = (false, None);
    Ok(vod)
}

fn user(
    mut record: Map<String, Value>,
    hash: &dyn Fn(&PasswordDigest) -> String,
) -> Result<User, NotImported> {
    let Some(digest) = imported_password(&record) else {
        let text = "its password is no MD5: add it anew by 'millstream user add'";
        return Err(NotImported::Unusable(text.to_owned()));
    };
    for name in ["password", "newPassword", "passwordHash", "id"] {
        record.remove(name);
    }
    let user: User = read(record)?;
    Ok(User { password_hash: PasswordHash(hash(&digest)), ..user })
}

/// Converts a user's password as Ant Media Server stores it: the MD5 of the text that clients send.
fn imported_password(record: &Map<String, Value>) -> Option<PasswordDigest> {
    record.get("password").and_then(Value::as_str).and_then(PasswordDigest::parse)
}
