//! `/openapi.json`: OpenAPI 3.1, made from the route table and the schemas.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::route::{Base, BodyKind, Policy, Route, WEBVTT};
use super::routes::routes;
use super::schemas;
use crate::control::Control;

/// OpenAPI document of all routes, built once.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let whole = document(|_| true, |route| format!("{}{}", route.base.prefix(), route.path));
    serde_json::to_vec(&whole).unwrap_or_default().into()
});

/// OpenAPI document of one application, with paths relative to it.
static APP_DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let of_app = document(|route| route.base == Base::App, |route| route.path.to_owned());
    serde_json::to_vec(&of_app).unwrap_or_default().into()
});

/// Path parameters that are numbers.
const NUMBERS: [&str; 4] = ["offset", "size", "charSize", "ms"];

impl Control {
    /// Returns the document of all routes.
    #[allow(clippy::unused_self, reason = "handlers stand below the table that the document is made from")]
    pub(super) fn openapi(&self) -> Bytes {
        DOCUMENT.clone()
    }

    /// Returns the document of one application, with the application's path as the URL of the server.
    #[allow(clippy::unused_self, reason = "handlers stand below the table that the document is made from")]
    pub(super) fn app_openapi(&self, app: &str) -> Bytes {
        let server = json!([{ "url": format!("/{app}/rest/v2") }]);
        let mut text = APP_DOCUMENT.to_vec();
        if text.pop() == Some(b'}') {
            text.extend_from_slice(format!(r#","servers":{server}}}"#).as_bytes());
        }
        text.into()
    }
}

/// Builds the document of the selected routes, each with its path.
fn document(is_in: impl Fn(&Route) -> bool, path_of: impl Fn(&Route) -> String) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in routes().filter(|route| is_in(route)) {
        let path = path_of(route);
        let entry = paths.entry(path.clone()).or_insert_with(|| json!({}));
        if let Some(operations) = entry.as_object_mut() {
            operations.insert(route.method.as_str().to_ascii_lowercase(), operation(route, &path));
        }
    }
    // Workers answer this path without control, so no route has it.
    let beside = paths.keys().find_map(|path| path.strip_suffix(CLIP));
    if let Some(path) = beside.map(|beside| format!("{beside}{SNAPSHOT}")) {
        let described = snapshot(&path);
        paths.insert(path, described);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "millstream",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The REST API of a live-streaming media server.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "session": { "type": "apiKey", "in": "cookie", "name": "JSESSIONID" },
                "token": { "type": "apiKey", "in": "header", "name": "ProxyAuthorization" },
            },
        },
    })
}

/// Path of the picture of a stream, below the prefix of an application's routes.
const SNAPSHOT: &str = "/broadcasts/{id}/snapshot";
/// Path of a route beside [`SNAPSHOT`].
const CLIP: &str = "/broadcasts/{id}/clip";

/// Describes `GET /broadcasts/{id}/snapshot`.
fn snapshot(path: &str) -> Value {
    json!({ "get": {
        "tags": ["broadcasts"],
        "summary": "Picture of a live stream",
        "operationId": "get_app_broadcasts_id_snapshot",
        "parameters": path_parameters(path).collect::<Vec<_>>(),
        "responses": {
            "200": { "description": "The picture", "content": { "image/jpeg": {} } },
            "default": { "description": "Refused, or there is no picture" },
        },
        "x-policy": "Viewers",
    } })
}

fn operation(route: &Route, path: &str) -> Value {
    let mut operation = json!({
        "tags": [route.tag],
        "summary": route.summary,
        "operationId": operation_id(route),
        "parameters": parameters(route, path),
        "responses": responses(route),
        "x-policy": format!("{:?}", route.policy),
    });
    let Some(members) = operation.as_object_mut() else { return operation };
    if let Some(body) = request_body(route) {
        members.insert("requestBody".to_owned(), body);
    }
    if needs_login(route.policy) {
        members.insert("security".to_owned(), json!([{ "session": [] }, { "token": [] }]));
    }
    operation
}

const fn needs_login(policy: Policy) -> bool {
    match policy {
        Policy::AppFilter | Policy::Dashboard | Policy::Open => false,
        Policy::Login | Policy::System | Policy::Scoped | Policy::Proxied => true,
    }
}

/// Makes an operation id from the method and the words of the path. The id is unique, because no
/// two operations share both.
fn operation_id(route: &Route) -> String {
    let base = match route.base {
        Base::App => "app",
        Base::Root => "root",
        Base::Server => "server",
        Base::Players => "players",
    };
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.map(|word| word.to_ascii_lowercase()).collect::<Vec<_>>().join("_");
    format!("{}_{base}_{words}", route.method.as_str().to_ascii_lowercase())
}

fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        let kind = if NUMBERS.contains(&name) { "integer" } else { "string" };
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": kind } })
    })
}

fn parameters(route: &Route, path: &str) -> Vec<Value> {
    let in_path = path_parameters(path);
    let in_query =
        route.query.iter().map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }));
    in_path.chain(in_query).collect()
}

fn request_body(route: &Route) -> Option<Value> {
    match route.body {
        BodyKind::None => None,
        BodyKind::Json => {
            Some(json!({ "content": { "application/json": { "schema": schemas::reference(route.takes) } } }))
        }
        BodyKind::JsonOrWebVtt => {
            let schema = schemas::reference(route.takes);
            let text = json!({ "schema": { "type": "string" } });
            Some(json!({ "content": { "application/json": { "schema": schema }, WEBVTT: text } }))
        }
        BodyKind::Multipart => {
            Some(json!({ "content": { "multipart/form-data": { "schema": { "type": "object" } } } }))
        }
    }
}

fn responses(route: &Route) -> Value {
    let content = match route.gives {
        "" => None,
        media if media.contains('/') => {
            let kinds = media.split(", ").map(|kind| (kind.to_owned(), json!({})));
            Some(Value::Object(kinds.collect()))
        }
        schema => Some(json!({ "application/json": { "schema": schemas::reference(schema) } })),
    };
    let good = match content {
        None => ("204", json!({ "description": "Nothing to say" })),
        Some(content) => ("200", json!({ "description": "The answer", "content": content })),
    };
    json!({
        good.0: good.1,
        "403": { "description": "Not allowed; the page says why", "content": { "text/html": {} } },
        "default": { "description": "Refused; the body says why" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_every_route_and_every_reference_is_there() {
        let document: Value = serde_json::from_slice(&DOCUMENT).unwrap();
        let mut ids = Vec::new();
        for route in routes() {
            let path = format!("{}{}", route.base.prefix(), route.path);
            let operation = &document["paths"][&path][route.method.as_str().to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary);
            assert!(!route.summary.is_empty() && !route.summary.ends_with('.'), "{path}");
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
        }
        ids.sort();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        let subtitles = &document["paths"]["/{app}/rest/v2/broadcasts/{id}/subtitles"]["post"];
        let types: Vec<_> = subtitles["requestBody"]["content"].as_object().unwrap().keys().collect();
        assert_eq!(types, ["application/json", WEBVTT]);
        let picture = &document["paths"]["/{app}/rest/v2/broadcasts/{id}/snapshot"]["get"];
        assert_eq!(picture["parameters"].as_array().unwrap().len(), 2);
        assert!(picture["responses"]["200"]["content"]["image/jpeg"].is_object(), "{picture}");
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }

    #[test]
    fn the_document_of_an_application_has_its_operations_below_its_address() {
        let whole: Value = serde_json::from_slice(&APP_DOCUMENT).unwrap();
        let paths = whole["paths"].as_object().unwrap();
        let of_app: Vec<&Route> = routes().filter(|route| route.base == Base::App).collect();
        assert!(of_app.iter().all(|route| paths.contains_key(route.path)));
        assert!(paths.keys().all(|path| path == SNAPSHOT || of_app.iter().any(|route| route.path == path)));
        let create = &whole["paths"]["/broadcasts/{id}"]["get"]["parameters"];
        assert_eq!(create.as_array().unwrap().len(), 1, "no name of an application");
    }

    #[test]
    fn a_broadcast_fits_its_schema() {
        let schema = &schemas::all()["Broadcast"]["properties"];
        assert_eq!(schema["streamId"]["type"], "string");
        assert_eq!(schema["speed"]["type"], "number");
        assert_eq!(schema["hlsViewerLimit"]["type"], "integer");
        assert_eq!(schema["name"]["type"], json!(["string", "null"]));
        assert_eq!(schema["endPointList"]["oneOf"][0]["items"]["$ref"], "#/components/schemas/Endpoint");
        let shown: Value = serde_json::from_slice(
            &crate::control::broadcast::Broadcast::default()
                .to_json(crate::types::Now { mono: std::time::Instant::now(), wall_ms: 0 }),
        )
        .unwrap();
        assert!(shown.as_object().unwrap().keys().all(|member| schema[member].is_object()));
    }
}
