//! Applications (docs/rest.md).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::call::{Caller, Reply, RootCall, bad_request};
use super::lists::offset_of;
use super::scan::list_from;
use crate::config::{APPS_MAX, AppSettings, Edit, Member, Origin, Values, is_app_name};
use crate::control::answer::{Outcome, json as object};
use crate::control::broadcast::{Broadcast, parse_json, status};
use crate::control::context::Context;
use crate::control::from_json::{EncoderSettings, FromJson};
use crate::control::live::Registry;
use crate::control::management::{Role, SYSTEM};
use crate::control::records::Records;
use crate::control::{Control, Now, Walks, wall};
use crate::http::Response;
use crate::jobs::{AdminOutcome, AdminWork};
use crate::mail::{StreamEnd, ToWorker};
use crate::protocol;
use crate::types::StreamKey;

fn done(outcome: Outcome<'_>) -> Reply {
    Reply::Now(outcome.response(200))
}

fn failure(text: &str) -> Response {
    Outcome::failure(text).response(200)
}

/// Makes the answer to a disk failure. The reason is only logged, because nobody but the operator may know it.
fn failed(error: &str) -> Response {
    tracing::warn!(error, "settings change failed");
    failure("The change could not be saved")
}

pub(super) fn busy() -> Response {
    Response::error(503, "Too many requests wait").header("Retry-After", "1")
}

/// Refuses a change of settings, because it was made from settings that another change under way replaces.
pub(super) fn overtaken() -> Reply {
    let text = "Another change of these settings is under way";
    Reply::Now(Response::error(503, text).header("Retry-After", "1"))
}

/// True if a name has only characters that Ant Media Server accepts.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// `GET /applications`.
pub(super) fn list(cx: &Context) -> Reply {
    let names: Vec<&str> = cx.apps.keys().map(AsRef::as_ref).collect();
    Reply::Now(object(200, &json!({ "applications": names })))
}

/// `GET /applications-info`.
pub(super) fn info(cx: &mut Context, call: &RootCall<'_>) -> Reply {
    let names: Vec<Arc<str>> = cx.apps.keys().cloned().collect();
    cx.answer_admin(call.origin.requester, AdminWork::Storage(names.clone()), move |control, _, result| {
        let bytes = if let AdminOutcome::Storage(bytes) = result { bytes } else { Vec::new() };
        let rows = names.iter().zip(bytes.into_iter().chain(std::iter::repeat(-1))).map(|(name, storage)| {
            json!({
                "name": &**name,
                "liveStreamCount": control.registry.count(name),
                "vodCount": control.records.auxiliary.vods(name).count(),
                "storage": storage,
            })
        });
        object(200, &rows.collect::<Vec<_>>())
    });
    Reply::Later
}

/// `GET /applications/live-streams/{app}`.
pub(super) fn live_streams(registry: &Registry, call: &RootCall<'_>) -> Reply {
    let [app, ..] = call.params;
    let Some(offset) = offset_of(call.query("offset")) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let rows = registry.of_app(app).map(|(_, live)| {
        let viewers: u64 = live.viewers().map(crate::mail::ViewerCounts::total).sum();
        json!({ "name": &*live.key.id, "watcherCount": viewers.to_string() })
    });
    Reply::Now(list_from(offset, rows.skip(offset)))
}

/// `POST /applications/{app}`.
pub(super) fn create(cx: &mut Context, walks: &mut Walks, call: &RootCall<'_>) -> Reply {
    let [name, ..] = call.params;
    if !is_plain(name) {
        let text = "Application name is not alphanumeric. Please provide alphanumeric characters";
        return done(Outcome::failure(text));
    }
    let taken = cx.apps.contains_key(name)
        || cx.config.lost.contains(name)
        || walks.app_changes.changing.contains(name)
        || walks.app_changes.removed.iter().any(|app| &**app == name);
    if taken {
        return done(Outcome::failure("Application with the same name already exists"));
    }
    if !is_app_name(name) {
        return done(Outcome::failure("The application's name is reserved or too long"));
    }
    if cx.apps.len() + walks.app_changes.changing.len() >= APPS_MAX {
        return done(Outcome::failure("The limit of applications is reached"));
    }
    let name: Arc<str> = name.into();
    walks.app_changes.changing.insert(name.clone());
    let work = AdminWork::CreateApp(name.clone());
    let requester = call.origin.requester;
    let sent = cx.submit_admin(work, move |control, now, result| {
        control.walks.app_changes.changing.remove(&name);
        let response = match result.app() {
            Ok(settings) => {
                control.install_app(now, settings);
                Outcome::success().response(200)
            }
            Err(error) => failed(&error),
        };
        control.cx.answer(requester, response);
    });
    if !sent {
        let [name, ..] = call.params;
        walks.app_changes.changing.remove(name);
        return Reply::Now(busy());
    }
    Reply::Later
}

/// `PUT /applications/{app}`, refused: the server runs no code received over the network.
pub(super) fn upload() -> Reply {
    Reply::Now(
        Response::error(405, "WAR files cannot be deployed").header("Allow", "GET, HEAD, POST, DELETE"),
    )
}

/// `DELETE /applications/{app}?deleteDB=`: ends the streams, removes the application, then deletes its folder.
pub(super) fn delete(control: &mut Control, now: Now, call: &RootCall<'_>) -> Reply {
    let [name, ..] = call.params;
    if !is_plain(name) {
        let text = "appname contains invalid character and does not match regexp ^[a-zA-Z0-9_-]*$";
        return done(Outcome::failure(text));
    }
    // An application that was not started because its settings are lost can be deleted as well.
    let running = control.cx.apps.get(name).map(|app| &app.name);
    let Some(name) = running
        .or_else(|| control.cx.config.lost.get(name))
        .filter(|name| !control.walks.app_changes.changing.contains(*name))
        .cloned()
    else {
        let text = format!(
            "AppSettings is not available for app: {name}. It's not available or it's being initialized"
        );
        return done(Outcome::failure(&text));
    };
    let requester = call.origin.requester;
    let own = name.clone();
    let sent = control.cx.submit_admin(AdminWork::DeleteApp(name.clone()), move |control, _, result| {
        control.walks.app_changes.changing.remove(&own);
        let response = match result.done() {
            Ok(()) => {
                control.cx.config.lost.remove(&own);
                Outcome::success().response(200)
            }
            Err(error) => failed(&error),
        };
        control.cx.answer(requester, response);
    });
    if !sent {
        return Reply::Now(busy());
    }
    control.walks.app_changes.changing.insert(name.clone());
    if control.cx.apps.contains_key(&name) {
        control.remove_app(now, &name);
    }
    if call.query("deleteDB").eq_ignore_ascii_case("true") {
        control.walks.purge(now, name);
    }
    Reply::Later
}

/// `POST /applications/{app}/reset`: marks streams that are not live as finished and sets their viewers to zero.
/// Returns the number of all records.
pub(super) fn reset(
    cx: &Context,
    records: &mut Records,
    registry: &Registry,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    let [name, ..] = call.params;
    let Some(app) = cx.apps.get(name).map(|app| app.name.clone()) else {
        return done(Outcome::failure(&format!("No application adaptor with this name {name}")));
    };
    let changed = |record: &&Broadcast| record.status != status::FINISHED || record.anyone_watching;
    let all = records.count(&app);
    let key = |id: &str| StreamKey { app: app.clone(), id: id.into() };
    let keys: Vec<StreamKey> = records
        .of(&app)
        .filter(changed)
        .map(|record| key(&record.stream_id))
        .filter(|key| !registry.is_live(key))
        .collect();
    for key in &keys {
        if let Some(record) = records.get_mut(key) {
            status::FINISHED.clone_into(&mut record.status);
            record.forget_viewers();
        }
        records.writes.mark_dirty(now, key.clone());
    }
    let text = format!("Successfull operations: {all}");
    done(Outcome::success().message(Some(&text)))
}

/// `GET /applications/settings/{app}`. Secrets, and parts of URLs that may be secret, are shown to administrators only,
/// since no other user can write them back.
pub(super) fn settings(cx: &Context, records: &Records, call: &RootCall<'_>) -> Reply {
    let [name, ..] = call.params;
    let Some(app) = cx.apps.get(name) else { return Reply::Now(Response::empty(204)) };
    let may_know = records.administers(&call.caller, name);
    let reader = call.origin.requester.seeing(may_know);
    let shown: Map<String, Value> = protocol::schema()
        .members()
        .map(|member| {
            let value = match member.name {
                "appName" => Value::from(name),
                _ if member.key.secret && !may_know => member.hidden(),
                _ => member.show(&app.values),
            };
            let value = match value {
                Value::String(text) => reader.member(member.name, &text).into_owned().into(),
                other @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_)) => other,
            };
            (member.name.to_owned(), value)
        })
        .collect();
    Reply::Now(object(200, &shown))
}

/// The reason for which a settings object is refused.
enum Unfit {
    /// The body is not a settings object. Answered with 400.
    Malformed(String),
    /// A setting has a value that is not possible.
    Refused(String),
}

/// `POST /applications/settings/{app}`: the whole object; absent members return to their defaults.
pub(super) fn change_settings(
    cx: &mut Context,
    records: &Records,
    walks: &mut Walks,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    let [name, ..] = call.params;
    let Some(app) = cx.apps.get(name).filter(|_| !walks.app_changes.changing.contains(name)).cloned() else {
        return done(Outcome::failure(&format!("No application adaptor with this name {name}")));
    };
    if walks.app_changes.editing.contains(name) {
        return overtaken();
    }
    let body: Option<Option<Map<String, Value>>> = match parse_json(&call.request.body) {
        Ok(body) => body,
        Err(error) => return bad_request(&error.to_string()),
    };
    let Some(body) = body.flatten() else { return done(Outcome::failure("")) };
    let known: Vec<&str> = protocol::schema().members().map(|member| member.name).collect();
    let foreign = foreign_members(&body, |name| known.contains(&name));
    let may_use_role = records.administers(&call.caller, SYSTEM);
    let edit = match edit_of(&app, body, now, may_use_role) {
        Ok(edit) => edit,
        Err(Unfit::Malformed(text)) => return bad_request(&text),
        Err(Unfit::Refused(text)) => return done(Outcome::failure(&text)),
    };
    let own = app.name.clone();
    let requester = call.origin.requester;
    let sent = cx.submit_admin(AdminWork::EditApp(own.clone(), edit), move |control, now, result| {
        control.walks.app_changes.editing.remove(&own);
        let response = match result.app() {
            Ok(_) if !control.cx.apps.contains_key(&own) => {
                failure(&format!("No application adaptor with this name {own}"))
            }
            Ok(settings) => {
                control.install_app(now, settings);
                Outcome::success().message(Some(&foreign)).response(200)
            }
            Err(error) => failed(&error),
        };
        control.cx.answer(requester, response);
    });
    if !sent {
        return Reply::Now(busy());
    }
    walks.app_changes.editing.insert(app.name.clone());
    Reply::Later
}

/// Maximum number of unknown members that an answer names, and maximum length of each name.
const FOREIGN_MAX: usize = 20;
const FOREIGN_CHARS_MAX: usize = 64;

/// Describes members of a body that are not settings of this server; empty if there are none.
pub(super) fn foreign_members(body: &Map<String, Value>, is_known: impl Fn(&str) -> bool) -> String {
    let foreign = body.keys().filter(|name| !is_known(name));
    let names: Vec<String> = foreign.map(|name| name.chars().take(FOREIGN_CHARS_MAX).collect()).collect();
    match names.get(..FOREIGN_MAX) {
        None if names.is_empty() => String::new(),
        None => format!("not known, and ignored: {}", names.join(", ")),
        Some(first) => format!(
            "not known, and ignored: {} and {} more",
            first.join(", "),
            names.len().saturating_sub(first.len())
        ),
    }
}

/// Members that the server writes itself, and members that keep their value if a body lacks them.
const OWN: [&str; 3] = ["appName", "updateTime", "appStatus"];
const KEPT: [&str; 2] = ["clusterCommunicationKey", "subscriberAuthenticationKey"];

/// Fills in missing members of renditions. Stores the renditions as a list and as text, because older clients read the
/// text.
fn complete_renditions(body: &mut Map<String, Value>) -> Result<(), Unfit> {
    let Some(list @ Value::Array(_)) = body.get("encoderSettings") else { return Ok(()) };
    let list = Vec::<EncoderSettings>::from_json(list.clone());
    let list = list.map_err(|_| Unfit::Malformed("encoderSettings has the wrong type".to_owned()))?;
    let list = json!(list.unwrap_or_default());
    let is_given = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty() && text != "[]");
    if list != json!([]) || !body.get("encoderSettingsString").is_some_and(is_given) {
        body.insert("encoderSettingsString".to_owned(), list.to_string().into());
    }
    body.insert("encoderSettings".to_owned(), list);
    Ok(())
}

/// Makes the edit of the file. `may_use_role`: whether uploads with the credentials of the machine's role may change.
fn edit_of(
    app: &AppSettings,
    mut body: Map<String, Value>,
    now: Now,
    may_use_role: bool,
) -> Result<Edit, Unfit> {
    complete_renditions(&mut body)?;
    let mut edit = Edit::default();
    let mut after = app.values.clone();
    for member in protocol::schema().members().filter(|member| !OWN.contains(&member.name)) {
        let key = member.key.name;
        let given = body.get(member.name);
        if given.is_none() && KEPT.contains(&key) {
            continue;
        }
        let wanted = match given {
            None => member.key.default.to_owned(),
            Some(value) => clamped(&member, member.text_of(value).ok_or_else(|| wrong_type(&member))?)?,
        };
        let shown = member.show(&app.values);
        let same = wanted == app.values.text(key) || given == Some(&shown);
        if app.values.is_fixed(key) {
            if given.is_some() && !same {
                let text = format!("{} is fixed by the command line or the environment", member.name);
                return Err(Unfit::Refused(text));
            }
        } else if given.is_none() && member.key.explicit && app.values.origin(key) == Origin::File {
            edit.unset.push(key.to_owned());
            after.set(key, wanted, Origin::Default);
        } else if !same {
            edit.set.push((key.to_owned(), wanted.clone()));
            after.set(key, wanted, Origin::File);
        }
    }
    let after = check(app, &after, &body)?;
    let is_changed = after.vod.s3 != app.vod.s3;
    if is_changed && after.vod.s3.as_ref().is_some_and(|s3| s3.keys.is_none()) && !may_use_role {
        let text = "s3AccessKey and s3SecretKey are needed: only an administrator of the server can change uploads \
                    to S3 that use the credentials of the machine's role";
        return Err(Unfit::Refused(text.to_owned()));
    }
    if edit != Edit::default() && !app.values.is_fixed("updateTime") {
        edit.set.push(("updateTime".to_owned(), wall(now).to_string()));
    }
    Ok(edit)
}

fn wrong_type(member: &Member) -> Unfit {
    Unfit::Malformed(format!("{} has the wrong type", member.name))
}

/// Raises a value to the minimum that Ant Media Server accepts.
fn clamped(member: &Member, text: String) -> Result<String, Unfit> {
    let at_least = |least: i64| match text.parse::<i64>() {
        Ok(value) if value < least => Ok(least.to_string()),
        Ok(_) => Ok(text.clone()),
        Err(_) if text.is_empty() => Ok(member.key.default.to_owned()),
        Err(_) => Err(Unfit::Refused(format!("{} must be a whole number", member.name))),
    };
    match member.name {
        "hlsListSize" => at_least(5),
        "hlsTime" => at_least(1),
        _ => Ok(text),
    }
}

/// Returns the settings with these values. Refuses settings that Ant Media Server refuses (its answer gives no reason),
/// and settings that cannot work here.
fn check(app: &AppSettings, after: &Values, body: &Map<String, Value>) -> Result<AppSettings, Unfit> {
    let heights = body.get("encoderSettings").and_then(Value::as_array);
    let is_flat = |step: &Value| step.get("height").and_then(Value::as_i64).is_some_and(|height| height <= 0);
    if heights.is_some_and(|steps| steps.iter().any(is_flat)) {
        return Err(Unfit::Refused(String::new()));
    }
    let on = |keys: [&str; 3]| keys.iter().filter(|key| after.text(key).eq_ignore_ascii_case("true")).count();
    let publish = on(["publishTokenControlEnabled", "publishJwtControlEnabled", "enableTimeTokenForPublish"]);
    let play = on(["playTokenControlEnabled", "playJwtControlEnabled", "enableTimeTokenForPlay"]);
    if publish > 1 || play > 1 {
        return Err(Unfit::Refused(String::new()));
    }
    AppSettings::from_values(&app.name, app.epoch, after.clone())
        .map_err(|error| Unfit::Refused(error.to_string()))
}

impl Records {
    /// True if the caller is an administrator of an application or, for [`SYSTEM`], of the server.
    pub(super) fn administers(&self, caller: &Caller, scope: &str) -> bool {
        match caller {
            Caller::Token => true,
            Caller::Nobody => false,
            Caller::User { email, .. } => self.auxiliary.user(email).is_some_and(|user| {
                [SYSTEM, scope].iter().any(|scope| user.role_in(scope) == Some(Role::Admin))
            }),
        }
    }
}

impl Control {
    /// Installs new or changed settings of an application, on every worker.
    pub(in crate::control) fn install_app(&mut self, now: Now, settings: AppSettings) {
        let name = settings.name.clone();
        let epoch = self.cx.apps.get(&settings.name).map_or(0, |old| old.epoch + 1);
        let settings = Arc::new(AppSettings { epoch, ..settings });
        tracing::info!(app = %settings.name, epoch, "application settings in effect");
        for notice in settings.notices() {
            tracing::warn!(app = %settings.name, "{notice}");
        }
        self.cx.apps.insert(settings.name.clone(), settings.clone());
        self.cx.post_all(&ToWorker::App(settings.clone()));
        self.access.follow_key_sets(&self.cx, now);
        self.outbound.reconcile_given_up(&mut self.cx, &self.registry, now, &settings);
        self.outgoing(now).app_changed(&name);
        let of_app = self.registry.of_app(&name).map(|(_, live)| live.key.clone());
        for key in of_app.collect::<Vec<_>>() {
            self.registry.review_viewers(&mut self.cx, &self.records, &key);
        }
        self.recorder(now).reconcile_recordings_of(&name);
        self.files.keep_objects_of(&mut self.cx, &self.records, now, &name);
        self.files.remove_old_recordings(&mut self.cx, &mut self.records, now);
    }

    /// Removes an application and ends its streams.
    pub(in crate::control) fn remove_app(&mut self, now: Now, name: &Arc<str>) {
        let streams: Vec<_> = self.registry.of_app(name).map(|(stream, _)| stream).collect();
        let streams_ended = streams.len();
        for stream in streams {
            self.registry.end(&mut self.cx, stream, StreamEnd::Deleted);
        }
        self.follow_ends(now);
        tracing::info!(app = %name, streams = streams_ended, "application removed");
        self.cx.apps.remove(name);
        self.access.presences.forget_events(name);
        self.access.follow_key_sets(&self.cx, now);
        self.outgoing(now).app_changed(name);
        self.cx.post_all(&ToWorker::AppGone(name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_no_settings_are_named() {
        let told = |count: usize| {
            let members = (0..count).map(|n| (format!("other{n:02}"), Value::Null));
            let body: Map<String, Value> = members.chain([("known".to_owned(), Value::Null)]).collect();
            foreign_members(&body, |name| name == "known")
        };
        assert_eq!(told(0), "");
        assert_eq!(told(2), "not known, and ignored: other00, other01");
        assert!(told(25).ends_with("other19 and 5 more"), "{}", told(25));
        let long = Map::from_iter([("x".repeat(1000), Value::Null)]);
        assert!(foreign_members(&long, |_| false).len() < 100);
    }
}
