//! Descriptions of settings: for each key its meaning, its default, and the origin of its value (docs/rest.md).

use serde_json::{Value, json};

use super::call::{Reply, RootCall};
use crate::config::{Effect, Key, Level, Origin, Values};
use crate::control::answer::json as object;
use crate::control::context::Context;
use crate::control::management::SYSTEM;
use crate::control::mask::Requester;
use crate::control::records::Records;
use crate::http::Response;
use crate::protocol;

/// Returns the name of a value's origin.
const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::File => "file",
        Origin::Environment => "environment",
        Origin::Set => "command line",
    }
}

/// Returns the effect of a setting: `works`, or `foreign` if the setting has no effect here.
const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Works => "works",
        Effect::Foreign => "foreign",
    }
}

/// Describes a key; `name` is its member in the settings object.
fn described(key: &Key, name: Option<&str>, values: &Values, requester: Requester) -> Value {
    let value = (!key.secret).then(|| requester.member(key.name, values.text(key.name)));
    json!({
        "key": key.name,
        "name": name,
        "group": key.group.name(),
        "label": key.label,
        "description": key.comment,
        "effect": effect(key.effect),
        "default": key.default,
        "value": value,
        "origin": origin(values.origin(key.name)),
        "fixed": values.is_fixed(key.name),
    })
}

/// `GET /applications/settings/{app}/keys`: the members of the application's settings, in order.
pub(super) fn of_app(cx: &Context, records: &Records, call: &RootCall<'_>) -> Reply {
    let [app, ..] = call.params;
    let Some(app) = cx.apps.get(app) else { return Reply::Now(Response::error(404, "Not Found")) };
    let reader = call.origin.requester.seeing(records.administers(&call.caller, &app.name));
    let members = protocol::schema().members();
    let keys = members.map(|member| described(member.key, Some(member.name), &app.values, reader));
    Reply::Now(object(200, &keys.collect::<Vec<_>>()))
}

/// `GET /server-settings/keys`: all keys of the server's file, in order.
pub(super) fn of_server(cx: &Context, records: &Records, call: &RootCall<'_>) -> Reply {
    let values = &cx.config.server.values;
    let name = |key: &Key| {
        super::server::CHANGEABLE.iter().find(|(_, of, _)| *of == key.name).map(|(name, ..)| *name)
    };
    let reader = call.origin.requester.seeing(records.administers(&call.caller, SYSTEM));
    let keys =
        protocol::schema().keys(Level::Server).iter().map(|key| described(key, name(key), values, reader));
    Reply::Now(object(200, &keys.collect::<Vec<_>>()))
}
