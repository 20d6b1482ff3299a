//! What settings mean: each key with its description, its default and where its value comes from (docs/rest.md).

use serde_json::{Value, json};

use super::call::{Reply, RootCall};
use crate::config::{Key, Level, Origin, Values};
use crate::control::answer::json as object;
use crate::control::{Control, Now};
use crate::http::Response;
use crate::protocol;

/// Where a value comes from, as people call it.
const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::File => "file",
        Origin::Environment => "environment",
        Origin::Set => "command line",
    }
}

/// `name`: the member of the settings object that the key is.
fn described(key: &Key, name: Option<&str>, values: &Values) -> Value {
    let value = (!key.secret).then(|| values.text(key.name));
    json!({
        "key": key.name,
        "name": name,
        "description": key.comment,
        "default": key.default,
        "value": value,
        "origin": origin(values.origin(key.name)),
        "fixed": values.is_fixed(key.name),
    })
}

/// `GET /applications/settings/{app}/keys`: the members of the application's settings, in their order.
pub(super) fn of_app(control: &mut Control, _: Now, call: &RootCall<'_>) -> Reply {
    let [app, ..] = call.params;
    let Some(app) = control.apps.get(app) else { return Reply::Now(Response::error(404, "Not Found")) };
    let members = protocol::schema().members();
    let keys = members.map(|member| described(member.key, Some(member.name), &app.values));
    Reply::Now(object(200, &keys.collect::<Vec<_>>()))
}

/// `GET /server-settings/keys`: every key of the server's file, in its order.
pub(super) fn of_server(control: &mut Control, _: Now, _: &RootCall<'_>) -> Reply {
    let values = &control.config.server.values;
    let name = |key: &Key| {
        super::server::CHANGEABLE.iter().find(|(_, of, _)| *of == key.name).map(|(name, ..)| *name)
    };
    let keys = protocol::schema().keys(Level::Server).iter().map(|key| described(key, name(key), values));
    Reply::Now(object(200, &keys.collect::<Vec<_>>()))
}
