//! Operations on one broadcast (docs/rest.md).

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::call::{Call, Reply, bad_request};
use crate::auth::url::URL_BYTES_MAX;
use crate::auth::{HookUrl, UrlError};
use crate::control::answer::Outcome;
use crate::control::broadcast::{Body, Broadcast, RECORD_BYTES_MAX, is_stream_id, parse_body, status};
use crate::control::context::Context;
use crate::control::json_text::readable;
use crate::control::live::Registry;
use crate::control::outgoing::Outgoing;
use crate::control::playlists::is_playlist;
use crate::control::records::{Answer, Change, Records, Write};
use crate::control::sources::is_source;
use crate::control::{Control, ControlConfig, Now, Outbound};
use crate::http::Response;
use crate::mail::StreamEnd;
use crate::protocol::outbound;
use crate::types::StreamKey;

/// Answer to an unusable `listenerHookURL`.
const BAD_HOOK: &str = "Hook url is not valid.";
/// Number of characters of a publish key. Each random character holds almost six bits.
const PUBLISH_KEY_CHARACTERS: usize = 24;
/// Characters of generated ids.
const ALPHANUMERICS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Answer to requests about cameras, which would need ONVIF.
const NO_CAMERAS: &str = "IP cameras are not available";
/// Maximum number of streams of one bulk delete.
pub(super) const BULK_MAX: usize = 10_000;
/// Schemes with which a stream source may be stored, although the source is refused when started.
const STORED_SCHEMES: [&str; 3] = ["rtsps://", "rtsp://", "udp://"];

fn now(outcome: Outcome<'_>) -> Reply {
    Reply::Now(outcome.response(200))
}

fn refused(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(400))
}

/// `GET /broadcasts/{id}`.
pub(super) fn get(records: &Records, at: Now, call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    match records.find(&call.app.name, id) {
        Some(record) => Reply::Now(Response::json(200, record.to_json(at))),
        None => Reply::Now(Response::error(404, "Not Found")),
    }
}

/// `POST /broadcasts/create`; the order of checks is Ant Media Server's.
pub(super) fn create(control: &mut Control, at: Now, call: &Call<'_>) -> Reply {
    let body = match parse_body(&call.request.body) {
        Ok(body) => body,
        Err(error) => return bad_request(&error.to_string()),
    };
    let auto_start = call.query("autoStart").eq_ignore_ascii_case("true");
    let given = body.as_ref().and_then(|b| b.stream_id.clone()).flatten().unwrap_or_default();
    let given = given.trim();
    if !given.is_empty() {
        let key = StreamKey { app: call.app.name.clone(), id: given.into() };
        if is_stream_id(given) && control.records.pending(&key).is_some() {
            let text = "Stream id is already being used. Please change stream id or keep it empty";
            return control.records.settled(at, call.requester, &key, Outcome::failure(text).response(400));
        }
        if !is_stream_id(given) {
            return refused("Stream id is not valid.");
        }
    }
    if auto_start
        && let Some(refusal) =
            auto_start_refusal(&control.cx, &control.registry, &control.outbound, at, call, body.as_ref())
    {
        return refusal;
    }
    let mut body = body.unwrap_or_default();
    if auto_start && body.stream_url.iter().flatten().any(|url| is_file(url)) {
        body.kind = Some(Some("VoD".to_owned()));
    }
    let id =
        if given.is_empty() { control.records.generated_id(&mut control.cx, at) } else { given.to_owned() };
    let key = StreamKey { app: call.app.name.clone(), id: id.into() };
    let mut record = match control.records.new_record(&mut control.cx, at, &key, body) {
        Ok(record) => record,
        Err(message) => return refused(message),
    };
    record.source_wanted = auto_start;
    if auto_start
        && let Err(reason) = control.cx.source_target(&key, record.stream_url.as_deref().unwrap_or(""))
    {
        // Ant Media Server stores the record, fails to start it and deletes it again. To refuse the record here has the
        // same result.
        return now(Outcome::failure(&reason).error_id(-4));
    }
    let answer = if auto_start { Answer::Started } else { Answer::Created };
    let change = Change::Insert(Box::new(record));
    control.records.write(at, Write { key, change, waiter: Some((call.requester, answer)) });
    Reply::Later
}

/// `POST /broadcasts/{id}/publish-key`: makes a new key, replacing any old one. A live publisher stays.
pub(super) fn new_publish_key(cx: &mut Context, records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let key = call.key();
    if !call.app.security.publish.publish_key {
        return now(Outcome::failure("publishKeyRequired is not on"));
    }
    if records.pending(&key).is_none_or(|record| record.zombi) {
        return now(Outcome::failure("There is no broadcast of that id"));
    }
    let made = cx.alphanumerics(PUBLISH_KEY_CHARACTERS);
    let waiter = Some((call.requester, Answer::Made(made.clone())));
    records.write(at, Write { key, change: Change::PublishKey(made), waiter });
    Reply::Later
}

/// Returns the refusal of a create with `autoStart`, decided before the record is made.
fn auto_start_refusal(
    cx: &Context,
    registry: &Registry,
    outbound: &Outbound,
    at: Now,
    call: &Call<'_>,
    body: Option<&Body>,
) -> Option<Reply> {
    let Some(body) = body else { return Some(now(Outcome::failure("unexpected parameters received"))) };
    if outbound.is_short_for_source(cx, registry, at, call.app) {
        return Some(now(Outcome::failure("Resource usage is high").error_id(-3)));
    }
    match body.kind.as_ref().and_then(|kind| kind.as_deref()) {
        Some("streamSource") => {
            let url = body.stream_url.as_ref().and_then(|url| url.as_deref()).unwrap_or("");
            (!is_source_url(&call.app.name, url)).then(|| now(Outcome::failure("")))
        }
        Some("ipCamera") => Some(now(Outcome::failure(NO_CAMERAS).error_id(-4))),
        Some(_) | None => {
            Some(now(Outcome::failure("Auto start query needs an IP camera or stream source.")))
        }
    }
}

/// True if Ant Media Server treats a URL as a file: such a source becomes a `VoD` when created with `autoStart`.
fn is_file(url: &str) -> bool {
    (url.starts_with("http") || outbound::is_own_path(url))
        && ["mp4", "webm", "flv"].iter().any(|ending| url.ends_with(ending))
}

/// True if a source may be stored with this URL. The address of the host is checked later, when the source is started.
fn is_source_url(app: &str, url: &str) -> bool {
    if outbound::is_own_path(url) {
        return matches!(outbound::read_own_path(url, app), Ok(_) | Err(UrlError::Unsupported(_)));
    }
    if outbound::is_source_scheme(url) {
        return matches!(outbound::read_source(url), Ok(_) | Err(UrlError::Unsupported(_)));
    }
    url.len() <= URL_BYTES_MAX
        && url.bytes().all(|b| b.is_ascii_graphic())
        && STORED_SCHEMES.iter().any(|scheme| {
            let rest = url.strip_prefix(scheme).unwrap_or("");
            !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':'])
        })
}

/// True if the text is the address of a camera: a URL of a known scheme, or IPv4, optionally with a user, a port, a
/// path and a query.
fn is_camera_address(address: &str) -> bool {
    if address.len() > URL_BYTES_MAX || !address.bytes().all(|b| b.is_ascii_graphic()) {
        return false;
    }
    if outbound::is_source_scheme(address) || address.starts_with("rtsp://") {
        return true;
    }
    let host = address.split(['/', '?']).next().unwrap_or("");
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let (host, port) = host.split_once(':').unwrap_or((host, "80"));
    host.parse::<std::net::Ipv4Addr>().is_ok() && port.parse::<u16>().is_ok()
}

/// `PUT /broadcasts/{id}`.
pub(super) fn update(
    cx: &mut Context,
    records: &mut Records,
    outbound: &Outbound,
    at: Now,
    call: &Call<'_>,
) -> Reply {
    let body = match parse_body(&call.request.body) {
        Ok(body) => body,
        Err(error) => return bad_request(&error.to_string()),
    };
    let key = call.key();
    let [id, ..] = call.params;
    let Some(mut body) = body else { return now(Outcome::failure("")) };
    let Some(record) = records.pending(&key) else {
        return now(Outcome::failure(&format!("Broadcast with streamId: {id} does not exist")));
    };
    let url = body.stream_url.as_ref().and_then(|url| url.as_deref()).unwrap_or("");
    let checked = is_source(&record.kind) && !url.trim().is_empty();
    // A running source is not stopped to switch to a URL from which it could not continue.
    let runs = outbound.sources.is_running(&key);
    if checked && (!is_source_url(&key.app, url) || (runs && cx.source_target(&key, url).is_err())) {
        return now(Outcome::failure("Stream URL is not valid"));
    }
    let mut after = record.clone();
    after.update(body.clone());
    if has_dots(after.sub_folder.as_deref()) {
        return now(Outcome::failure("Subfolder is not valid. "));
    }
    let hook = body.listener_hook_url.as_ref().and_then(|url| url.as_deref());
    if !cx.config.may_hook(hook) {
        return now(Outcome::failure(BAD_HOOK));
    }
    let endpoints = match body.end_point_list.take().flatten() {
        None => None,
        Some(given) => {
            let old = record.end_point_list.as_deref().unwrap_or_default();
            match cx.endpoints_of_body(&key, old, given) {
                Some(list) => after.end_point_list.insert(list).clone().into(),
                None => return now(Outcome::failure(&format!("Endpoint is not added to stream: {id}"))),
            }
        }
    };
    if after.encode().len() > RECORD_BYTES_MAX {
        return bad_request("the record is larger than 32 KiB");
    }
    let change = Change::Update { body: Box::new(body), endpoints };
    records.write(at, Write { key, change, waiter: Some((call.requester, Answer::Success)) });
    Reply::Later
}

/// `DELETE /broadcasts/{id}`, including subtracks unless `deleteSubtracks=false`.
pub(super) fn delete(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let key = call.key();
    if records.pending(&key).is_none() {
        return now(Outcome::failure(""));
    }
    if unless_false(call, "deleteSubtracks") {
        for key in records.subtrack_keys(&key) {
            records.write(at, Write { key, change: Change::Delete, waiter: None });
        }
    }
    records.write(at, Write { key, change: Change::Delete, waiter: Some((call.requester, Answer::Deleted)) });
    Reply::Later
}

/// `DELETE /broadcasts?ids=a,b`, up to the first unknown id.
pub(super) fn delete_many(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let ids = call.query("ids");
    if ids.trim().is_empty() {
        return now(Outcome::failure("ids parameter is blank"));
    }
    delete_all(records, at, call, ids.split(','))
}

/// `DELETE /broadcasts/bulk` of Ant Media Server before 3.0: like [`delete_many`], with an array of ids as its body.
pub(super) fn delete_bulk(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    match serde_json::from_slice::<Vec<String>>(&readable(&call.request.body)) {
        Ok(ids) if ids.is_empty() => now(Outcome::failure("")),
        Ok(ids) => delete_all(records, at, call, ids.iter().map(String::as_str)),
        Err(error) => bad_request(&error.to_string()),
    }
}

fn delete_all<'a>(
    records: &mut Records,
    at: Now,
    call: &Call<'_>,
    ids: impl Iterator<Item = &'a str>,
) -> Reply {
    let mut ids = ids.peekable();
    let first = ids.peek().copied().unwrap_or("");
    let (mut keys, mut known) = (Vec::new(), BTreeSet::new());
    let mut failed = false;
    for id in ids {
        let key = StreamKey { app: call.app.name.clone(), id: id.into() };
        failed = keys.len() >= BULK_MAX || records.pending(&key).is_none() || !known.insert(id);
        if failed {
            break;
        }
        keys.push(key);
    }
    let Some(last) = keys.pop() else {
        let key = StreamKey { app: call.app.name.clone(), id: first.into() };
        return records.settled(at, call.requester, &key, Outcome::failure("").response(200));
    };
    for key in keys {
        records.write(at, Write { key, change: Change::Delete, waiter: None });
    }
    let answer = if failed { Answer::Failure } else { Answer::Deleted };
    records.write(at, Write { key: last, change: Change::Delete, waiter: Some((call.requester, answer)) });
    Reply::Later
}

/// `POST /broadcasts/{id}/start`.
pub(super) fn start(mut outgoing: Outgoing<'_>, call: &Call<'_>) -> Reply {
    let key = call.key();
    let [id, ..] = call.params;
    let Some(record) = outgoing.records.get(&key) else {
        return now(Outcome::failure(&format!("No Stream Exists with id:{id}")));
    };
    let url = record.stream_url.as_deref();
    match record.kind.as_str() {
        "playlist" if record.play_list_item_list.as_ref().is_none_or(Vec::is_empty) => {
            now(Outcome::failure(&format!("There is no playlist  for stream id:{id}")))
        }
        "playlist" => start_playlist(&mut outgoing, call, &key),
        "ipCamera" if url.is_none() => now(Outcome::failure(NO_CAMERAS).error_id(-4)),
        _ if url.is_none() => now(Outcome::failure(&format!(
            "Stream url is null and it's not an IP camera to get stream url for id:{id}"
        ))),
        kind if is_source(kind) => start_source(&mut outgoing, call, &key),
        _ => now(Outcome::failure(
            "Broadcast type is not supported. It can be StreamSource, IP Camera, VOD, Playlist",
        )),
    }
}

/// Starts a playlist, with Ant Media Server's answers. Ant Media Server has none for a playlist without usable items.
fn start_playlist(outgoing: &mut Outgoing<'_>, call: &Call<'_>, key: &StreamKey) -> Reply {
    if outgoing.outbound.sources.is_running(key) {
        let text = format!("Playlist is already running for stream:{}", key.id);
        return now(Outcome::failure(&text));
    }
    if outgoing.records.first_item(outgoing.cx, key).is_err() {
        outgoing.records.source_status(outgoing.now, key, status::FINISHED);
        outgoing.records.writes.mark_dirty(outgoing.now, key.clone());
        return now(Outcome::failure(""));
    }
    start_source(outgoing, call, key)
}

fn start_source(outgoing: &mut Outgoing<'_>, call: &Call<'_>, key: &StreamKey) -> Reply {
    if outgoing.outbound.is_short_for_source(outgoing.cx, outgoing.registry, outgoing.now, call.app) {
        return now(Outcome::failure("Not enough resource on server to start streaming."));
    }
    if outgoing.outbound.sources.is_running(key) || outgoing.registry.is_live(key) {
        let text = "Stream is already active. It's already streaming or trying to connect";
        return now(Outcome::failure(text));
    }
    match outgoing.begin_source(key) {
        Ok(()) => source_kept(outgoing, call, key, true, Outcome::success().data_id(&key.id).response(200)),
        Err(reason) => now(Outcome::failure(&reason).error_id(-4)),
    }
}

/// Answers once the store has the source's new state, running or stopped, so that the state survives a crash. Does not
/// wait for a broken disk, since the request has already taken effect.
fn source_kept(
    outgoing: &mut Outgoing<'_>,
    call: &Call<'_>,
    key: &StreamKey,
    wanted: bool,
    response: Response,
) -> Reply {
    if outgoing.records.writes.is_broken() {
        return Reply::Now(response);
    }
    let waiter = Some((call.requester, Answer::Prepared(Box::new(response))));
    outgoing.records.write(outgoing.now, Write { key: key.clone(), change: Change::Source(wanted), waiter });
    Reply::Later
}

/// `POST /broadcasts/{id}/stop`: the id is free when this is answered.
pub(super) fn stop(mut outgoing: Outgoing<'_>, call: &Call<'_>) -> Reply {
    let key = call.key();
    let [id, ..] = call.params;
    let subtracks =
        if unless_false(call, "stopSubtracks") { outgoing.records.subtrack_keys(&key) } else { Vec::new() };
    let (mut stopped, mut waited) = (false, None);
    for key in subtracks {
        let was_wanted = outgoing.outbound.take_wanted(outgoing.records, &key);
        stopped |= outgoing.stop_live(&key) || was_wanted;
        if was_wanted {
            let_rest(outgoing.records, outgoing.now, &key);
            waited = Some(key);
        }
    }
    let is_playlist = outgoing.records.get(&key).is_some_and(is_playlist);
    // The source may be waiting for resources or for its id. In this case, stop the waiting.
    let was_wanted = outgoing.outbound.take_wanted(outgoing.records, &key);
    if outgoing.stop_source(&key, StreamEnd::Stopped) {
        let outcome = Outcome::success();
        let outcome = if is_playlist { outcome } else { outcome.message(Some("Stream stopped")) };
        return source_kept(&mut outgoing, call, &key, false, outcome.response(200));
    }
    if was_wanted && outgoing.records.writes.is_broken() {
        outgoing.records.source_wanted(outgoing.now, &key, false);
    }
    if outgoing.stop_live(&key) || stopped {
        let outcome = Outcome::success();
        if was_wanted {
            return source_kept(&mut outgoing, call, &key, false, outcome.response(200));
        }
        return match waited {
            Some(key) => outgoing.records.settled(outgoing.now, call.requester, &key, outcome.response(200)),
            None => now(outcome),
        };
    }
    let is_elsewhere =
        outgoing.registry.cluster.elsewhere(&key).is_some() && !outgoing.records.writes.is_broken();
    match outgoing.records.pending(&key).map(|record| record.kind.as_str()) {
        Some(kind) if (is_elsewhere || was_wanted) && (is_source(kind) || kind == "playlist") => {
            // The source may run at another node, which learns of the stop from the record.
            let outcome = Outcome::success().message(Some("Stream stopped"));
            source_kept(&mut outgoing, call, &key, false, outcome.response(200))
        }
        Some(kind) if is_source(kind) || kind == "playlist" => {
            let text = format!("No matching stream source in this server:{id}");
            now(Outcome::failure(&text).data_id(id))
        }
        Some(_) | None => now(Outcome::failure("")),
    }
}

/// Returns a query parameter that is a switch: on if it is absent or `true`, off for any other value.
fn unless_false(call: &Call<'_>, name: &str) -> bool {
    call.request.query_value(name).is_none_or(|value| value.eq_ignore_ascii_case("true"))
}

fn has_dots(folder: Option<&str>) -> bool {
    folder.is_some_and(|folder| folder.contains(".."))
}

impl ControlConfig {
    /// True if hooks may be sent to a URL. A host name is resolved and checked at each request; a literal address is
    /// checked here.
    fn may_hook(&self, url: Option<&str>) -> bool {
        let Some(url) = url.filter(|url| !url.trim().is_empty()) else { return true };
        let Ok(url) = HookUrl::parse(url) else { return false };
        let address = url.host.parse().map(|address| SocketAddr::new(address, url.port));
        address.is_err() || address.is_ok_and(|address| self.outbound.check(address).is_ok())
    }
}

impl Records {
    /// Returns the subtracks of a main track that have records, without the main track.
    fn subtrack_keys(&self, main: &StreamKey) -> Vec<StreamKey> {
        let key = |id: &std::sync::Arc<str>| StreamKey { app: main.app.clone(), id: id.clone() };
        self.subtracks(main).take(BULK_MAX).map(key).filter(|key| key != main).collect()
    }
}

/// Stores that a source should no longer run. The caller answers the request.
fn let_rest(records: &mut Records, at: Now, key: &StreamKey) {
    if records.writes.is_broken() {
        return records.source_wanted(at, key, false);
    }
    records.write(at, Write { key: key.clone(), change: Change::Source(false), waiter: None });
}

impl Outbound {
    /// Removes a source from the sources that wait. Returns true if the source should have been running.
    fn take_wanted(&mut self, records: &Records, key: &StreamKey) -> bool {
        self.sources.held_back.remove(key) || records.pending(key).is_some_and(|record| record.source_wanted)
    }
}

impl Outgoing<'_> {
    /// Ends a live stream of this id, pulled or published. Returns whether there was one.
    fn stop_live(&mut self, key: &StreamKey) -> bool {
        if self.stop_source(key, StreamEnd::Stopped) {
            return true;
        }
        let stream = self.registry.find(key);
        if let Some(stream) = stream {
            self.registry.end(self.cx, stream, StreamEnd::Stopped);
        }
        stream.is_some()
    }
}

impl Records {
    /// Makes the record that a create request asks for.
    pub(super) fn new_record(
        &self,
        cx: &mut Context,
        at: Now,
        key: &StreamKey,
        mut body: Body,
    ) -> Result<Broadcast, &'static str> {
        let endpoints = body.end_point_list.take().flatten();
        let mut record = Broadcast::from_body(body);
        let url = record.stream_url.as_deref().unwrap_or("");
        let camera = record.ip_addr.as_deref().unwrap_or("");
        let bad_url = match record.kind.as_str() {
            "streamSource" => !is_source_url(&key.app, url),
            "ipCamera" => !is_camera_address(camera),
            _ => false,
        };
        if bad_url {
            return Err("Stream url is not valid. ");
        }
        if has_dots(record.sub_folder.as_deref()) {
            return Err("Subfolder is not valid. ");
        }
        if !cx.config.may_hook(record.listener_hook_url.as_deref()) {
            return Err(BAD_HOOK);
        }
        if let Some(given) = endpoints {
            let list = cx.endpoints_of_body(key, &[], given);
            record.end_point_list = Some(list.ok_or("Endpoint is not valid.")?);
        }
        cx.complete(at, key, &mut record);
        if cx.apps.get(&key.app).is_some_and(|app| app.security.publish.publish_key) {
            record.publish_key = Some(cx.alphanumerics(PUBLISH_KEY_CHARACTERS));
        }
        if record.encode().len() > RECORD_BYTES_MAX {
            return Err("The record is larger than 32 KiB.");
        }
        if !self.has_room_for_record(cx, &key.app) {
            return Err("Broadcast limit is reached.");
        }
        Ok(record)
    }

    /// Generates an id: sixteen random letters and digits, then a number that increases.
    pub(super) fn generated_id(&mut self, cx: &mut Context, at: Now) -> String {
        self.generated = self.generated.wrapping_add(1);
        let nanos = u128::from(at.wall_ms) * 1_000_000 + u128::from(self.generated % 1_000_000);
        format!("{}{nanos}", cx.alphanumerics(16))
    }
}

impl Context {
    /// Returns random letters and digits, each of which holds almost six bits.
    pub(in crate::control) fn alphanumerics(&mut self, count: usize) -> String {
        let pick = |random: &mut crypto::Random| {
            let at = usize::try_from(random.below(ALPHANUMERICS.len() as u64)).unwrap_or(0);
            char::from(ALPHANUMERICS.get(at).copied().unwrap_or(b'A'))
        };
        (0..count).map(|_| pick(&mut self.random)).collect()
    }
}
