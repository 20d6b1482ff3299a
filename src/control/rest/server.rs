//! Settings and maintenance of the server (docs/rest.md), and answers to operations about clusters, licences, scripts
//! and a Java virtual machine, which this server does not have.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::apps::{busy, foreign_members, overtaken};
use super::call::{Reply, RootCall, bad_request};
use super::form::Form;
use crate::config::Edit;
use crate::control::answer::{Outcome, json as object};
use crate::control::broadcast::parse_json;
use crate::control::context::Context;
use crate::control::management::SYSTEM;
use crate::control::records::Records;
use crate::control::{Now, Walks, backups};
use crate::http::Response;
use crate::jobs::AdminWork;
use crate::protocol;

/// Maximum bytes of the log in one answer.
const LOG_BYTES_MAX: usize = 512_000;
/// Levels that a client may set.
const LEVELS: [&str; 7] = ["ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF"];

/// Members of the settings that can be changed, with their keys and the value that null means.
pub(super) const CHANGEABLE: [(&str, &str, Option<&str>); 4] = [
    ("serverName", "server.name", Some("")),
    ("licenceKey", "server.licence_key", Some("")),
    ("nodeGroup", "nodeGroup", Some("default")),
    ("logLevel", "logLevel", None),
];

fn done(outcome: Outcome<'_>) -> Reply {
    Reply::Now(outcome.response(200))
}

/// `GET /server-settings`. The secret that signs tokens (`jwtServerSecretKey`) is never shown, because clients have no
/// use for it.
pub(super) fn settings(cx: &Context, records: &Records, call: &RootCall<'_>) -> Reply {
    let answer = shown(cx, records, call);
    Reply::Now(object(200, &answer))
}

/// Returns the settings as a JSON object.
fn shown(cx: &Context, records: &Records, call: &RootCall<'_>) -> Value {
    let server = &cx.config.server;
    let values = &server.values;
    let text = |key: &str| values.text(key).to_owned();
    let flag = |key: &str| values.text(key).eq_ignore_ascii_case("true");
    let number = |key: &str| values.text(key).parse::<i64>().unwrap_or(0);
    let may_know = records.administers(&call.caller, SYSTEM);
    let reader = call.origin.requester.seeing(may_know);
    let hook = "server.statusWebHookURL";
    json!({
        "allowedDashboardCIDR": text("server.allowed_dashboard_CIDR"),
        "hostAddress": cx.config.host_address,
        "serverName": text("server.name"),
        "licenceKey": if may_know { text("server.licence_key") } else { String::new() },
        "buildForMarket": false,
        "marketplace": "",
        "logLevel": text("logLevel"),
        "offlineLicense": false,
        "nativeLogLevel": text("nativeLogLevel"),
        "heartbeatEnabled": flag("server.heartbeatEnabled"),
        "useGlobalIp": flag("useGlobalIp"),
        "proxyAddress": null,
        "nodeGroup": text("nodeGroup"),
        "cpuMeasurementPeriodMs": number("server.cpu_measurement_period_ms"),
        "cpuMeasurementWindowSize": number("server.cpu_measurement_window_size"),
        "defaultHttpPort": server.http_port,
        "jwtServerControlEnabled": server.management_trust.is_some(),
        "jwtServerSecretKey": "",
        "jwksURL": if may_know { text("server.jwksURL") } else { String::new() },
        "originServerPort": number("server.origin_port"),
        "srtPort": number("server.srt_port"),
        "appIngestsSrtStreamsWithoutStreamId": text("appIngestsSrtStreamsWithoutStreamId"),
        "sslEnabled": server.https_port.is_some(),
        "rtmpPort": protocol::publish_port(&cx.config.addresses),
        "serverStatusWebHookURL": Some(reader.member(hook, values.text(hook))).filter(|url| !url.is_empty()),
        "localLicenceServerIps": null,
        "hostAddressFromEnvironment": null,
        "webRTCLogLevel": "LS_WARNING",
    })
}

/// `POST /server-settings`: only the members in [`CHANGEABLE`] are changed.
pub(super) fn change_settings(
    cx: &mut Context,
    records: &Records,
    walks: &mut Walks,
    call: &RootCall<'_>,
) -> Reply {
    if walks.app_changes.editing.contains("") {
        return overtaken();
    }
    let body: Option<Option<Map<String, Value>>> = match parse_json(&call.request.body) {
        Ok(body) => body,
        Err(error) => return bad_request(&error.to_string()),
    };
    let Some(body) = body.flatten() else { return done(Outcome::failure("")) };
    let known = shown(cx, records, call);
    let foreign = foreign_members(&body, |name| known.get(name).is_some());
    let given = |name: &str| match body.get(name) {
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(format!("{name} has the wrong type"))
        }
    };
    let values = &cx.config.server.values;
    let mut edit = Edit::default();
    for (member, key, default) in CHANGEABLE {
        let wanted = match given(member) {
            Ok(given) => given.or(default),
            Err(text) => return bad_request(&text),
        };
        let Some(wanted) = wanted.filter(|text| member != "logLevel" || LEVELS.contains(text)) else {
            continue;
        };
        // `TRACE` is the most detailed level.
        let wanted = if wanted == "ALL" { "TRACE" } else { wanted };
        if wanted == values.text(key) {
            continue;
        }
        if values.is_fixed(key) {
            let text = format!("{member} is fixed by the command line or the environment");
            return done(Outcome::failure(&text));
        }
        edit.set.push((key.to_owned(), wanted.to_owned()));
    }
    let requester = call.origin.requester;
    let sent = cx.submit_admin(AdminWork::EditServer(edit), move |control, now, result| {
        control.walks.app_changes.editing.remove("");
        let response = match result.server() {
            Ok(server) => {
                control.cx.install_server(now, Arc::new(server));
                Outcome::success().message(Some(&foreign)).response(200)
            }
            Err(text) => Outcome::failure(&text).response(200),
        };
        control.cx.answer(requester, response);
    });
    if !sent {
        return Reply::Now(busy());
    }
    walks.app_changes.editing.insert("".into());
    Reply::Later
}

/// `GET /log-file/{offset}/{charSize}?logType=`.
pub(super) fn log_file(cx: &mut Context, call: &RootCall<'_>) -> Reply {
    let [offset, size, ..] = call.params;
    let (Ok(offset), Ok(size)) = (offset.parse::<i64>(), size.parse::<i64>()) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let size = usize::try_from(size).unwrap_or(0).min(LOG_BYTES_MAX);
    let work = AdminWork::ReadLog { offset, size, errors: call.query("logType") == "error" };
    cx.answer_admin(call.origin.requester, work, |_, _, result| match result.log() {
        Ok(Some((text, bytes))) => {
            object(200, &json!({ "logContent": text, "logContentSize": text.len(), "logFileSize": bytes }))
        }
        Ok(None) => object(200, &json!({ "logContent": "There is no log yet" })),
        Err(_) => Response::error(500, "The log cannot be read"),
    });
    Reply::Later
}

/// `POST /ssl-settings?domain=&type=`: writes the files of a certificate, which the file watcher then loads.
pub(super) fn ssl_settings(cx: &mut Context, call: &RootCall<'_>) -> Reply {
    let refused = |text: &str| Reply::Now(Outcome::failure(text).response(400));
    let domain = call.query("domain");
    match call.query("type") {
        "CUSTOM_CERTIFICATE" => {}
        "CUSTOM_DOMAIN" | "ANTMEDIA_SUBDOMAIN" => {
            let text =
                "Certificates are not ordered by this server. Please provide one as CUSTOM_CERTIFICATE";
            return refused(text);
        }
        "NO_SSL" => {
            return refused("HTTPS is switched off by https.enabled in conf/red5.properties");
        }
        "" => return refused("Undefined configuration type"),
        _ => return refused("Unknown SSL configuration type"),
    }
    let form = Form::parse(call.request);
    let part = |name: &str| form.as_ref().and_then(|form| form.part(name)).filter(|part| !part.is_empty());
    let parts = (part("fullChainFile"), part("privateKeyFile"), part("chainFile"));
    let (Some(full_chain), Some(key), Some(chain)) = parts else {
        let text = "Missing parameters for custom SSL certificate. Please provide domain name, fullChain, private \
                    key, and chain";
        return refused(text);
    };
    if domain.is_empty()
        || domain.len() > 253
        || !domain.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    {
        return refused("Invalid domain name parameter");
    }
    let work = AdminWork::Certificate { full_chain, chain, key };
    cx.answer_admin(call.origin.requester, work, |_, _, result| match result.done() {
        Ok(()) => Outcome::success().response(200),
        Err(reason) => {
            let text = format!("Certificate file operation is not succesful due to {reason}");
            Outcome::failure(&text).response(200)
        }
    });
    Reply::Later
}

/// `POST /store/backup`: copies the store to `data/backups`; the answer's `dataId` is the name of the copy.
pub(super) fn back_up(
    cx: &Context,
    records: &mut Records,
    walks: &mut Walks,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    if walks.back_up(cx, records, now, call.origin.requester) {
        return Reply::Later;
    }
    Reply::Now(backups::busy())
}

/// `GET /enterprise-edition`: true, since otherwise panels disable features that this server has.
pub(super) fn yes() -> Reply {
    done(Outcome::success())
}

/// `GET /licence-status` and `GET /last-licence-status`: no content, because this server needs no licence.
pub(super) fn no_licence() -> Reply {
    Reply::Now(Response::empty(204))
}

/// Answers operations that only a Java virtual machine supports.
pub(super) fn no_machine() -> Reply {
    Reply::Now(Response::text(
        404,
        "This server runs without a Java virtual machine: there is nothing to dump",
    ))
}

/// `POST /system/gc`.
pub(super) fn no_garbage() -> Reply {
    done(Outcome::failure("Memory is not garbage collected in this server"))
}

/// `POST /support/request`: refused, because this server sends nothing to its makers.
pub(super) fn no_support() -> Reply {
    done(Outcome::failure("Support requests are not sent by this server"))
}

/// Checks the applications that `appNames` names; the error is the refusal.
fn named_apps(cx: &Context, call: &RootCall<'_>) -> Result<(), Response> {
    let names = call.query("appNames");
    if names.trim().is_empty() {
        return Err(Outcome::failure("Bad parameter for appNames. ").response(400));
    }
    if names.split(',').all(|name| cx.apps.contains_key(name.trim())) {
        return Ok(());
    }
    let text = "Either server may not be initialized or application name that does not exist is requested. ";
    Err(Outcome::failure(text).response(500))
}

/// `GET /shutdown-proper-status?appNames=`: always proper, since every change is on disk before it is answered.
pub(super) fn shutdown_status(cx: &Context, call: &RootCall<'_>) -> Reply {
    match named_apps(cx, call) {
        Ok(()) => done(Outcome::success()),
        Err(refusal) => Reply::Now(refusal),
    }
}

/// `GET /shutdown-properly?appNames=`.
pub(super) fn shutdown_properly(cx: &Context, call: &RootCall<'_>) -> Reply {
    match named_apps(cx, call) {
        Ok(()) => Reply::Now(object(200, &true)),
        Err(refusal) => Reply::Now(refusal),
    }
}
