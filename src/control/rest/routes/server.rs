//! Operations of the server: below `/rest/v2`, and two outside of the API.

use crate::control::leaving::Sessions;
use crate::control::rest::call::RootHandler;
use crate::control::rest::route::{Base, BodyKind, Handler, Policy, Route};
use crate::control::rest::{apps, drain, feed, host, keys, nodes, proxy, root, server as upkeep, users};
use crate::http::Method;
use Method::{Delete, Get, Post, Put};

/// Tags of the OpenAPI document.
const SERVER: &str = "server";
const USERS: &str = "users";
const PANEL: &str = "panel";
const APPS: &str = "applications";
const HOST: &str = "host";
const CLUSTER: &str = "cluster";
const LIVE: &str = "live figures";

const fn server(
    path: &'static str,
    handler: RootHandler,
    gives: &'static str,
    summary: &'static str,
) -> Route {
    Route {
        method: Get,
        base: Base::Server,
        path,
        policy: Policy::Dashboard,
        body: BodyKind::None,
        takes: "",
        gives,
        query: &[],
        gives_credential: false,
        at_origin: false,
        tag: SERVER,
        summary,
        handler: Handler::Root(handler),
    }
}

const fn root(
    method: Method,
    path: &'static str,
    policy: Policy,
    handler: RootHandler,
    gives: &'static str,
    tag: &'static str,
    summary: &'static str,
) -> Route {
    Route {
        method,
        base: Base::Root,
        path,
        policy,
        body: BodyKind::None,
        takes: "",
        gives,
        query: &[],
        gives_credential: false,
        at_origin: false,
        tag,
        summary,
        handler: Handler::Root(handler),
    }
}

/// Makes the route by which a panel calls an application; the called route handles the request.
const fn proxied(method: Method, summary: &'static str) -> Route {
    root(method, "/request", Policy::Proxied, proxy::pass, "any", PANEL, summary).query(&["_path"])
}

use Policy::{Login, Open, Scoped, System};

/// Routes of the server.
pub(super) const ROUTES: &[Route] = &[
    server(
        "/metrics",
        |control, _, call| root::metrics(&mut control.cx, &mut control.figures, call),
        "text/plain, application/openmetrics-text",
        "Figures for Prometheus",
    ),
    server("/openapi.json", root::openapi, "application/json", "This document"),
    // ---- users and sessions
    root(
        Post,
        "/users/authenticate",
        Open,
        |control, now, call| {
            users::authenticate(&mut control.cx, &control.records, &mut control.management, now, call)
        },
        "Result",
        USERS,
        "Log in",
    )
    .takes("Login"),
    root(
        Post,
        "/users/initial",
        Open,
        |control, now, call| {
            users::initial(
                &mut control.cx,
                &control.records,
                &mut control.outbound,
                &mut control.management,
                now,
                call,
            )
        },
        "Result",
        USERS,
        "Make the first user",
    )
    .takes("NewUser"),
    root(
        Get,
        "/first-login-status",
        Open,
        |control, _, _| users::first_login(&control.cx, &control.records),
        "Result",
        USERS,
        "Tell whether there is no user yet",
    ),
    root(
        Get,
        "/authentication-status",
        Open,
        |_, _, call| users::authentication(call),
        "Result",
        USERS,
        "Tell whether you are logged in",
    ),
    root(
        Get,
        "/users/{email}/blocked",
        Open,
        |control, _, call| users::blocked(&control.management, call),
        "Result",
        USERS,
        "Tell whether logins are blocked",
    ),
    root(
        Delete,
        "/users/logout",
        Login,
        |control, _, call| users::logout(&mut control.management, call),
        "Result",
        USERS,
        "Log out",
    ),
    root(
        Get,
        "/admin-status",
        Login,
        |control, _, call| users::admin_status(&control.records, call),
        "Result",
        USERS,
        "Tell whether you are an administrator",
    ),
    root(
        Get,
        "/user-list",
        System,
        |control, now, call| users::list(control.lists(), now, call),
        "[User]",
        USERS,
        "List the users",
    )
    .query(&["offset"]),
    root(
        Post,
        "/users",
        System,
        |control, _, call| users::create(&mut control.cx, &control.records, call),
        "Result",
        USERS,
        "Add a user",
    )
    .takes("NewUser"),
    root(
        Put,
        "/users",
        System,
        |control, now, call| users::update(&mut control.cx, &mut control.records, now, call),
        "Result",
        USERS,
        "Change a user",
    )
    .takes("NewUser"),
    root(
        Post,
        "/users/password",
        Login,
        |control, now, call| {
            users::change_password(&mut control.cx, &control.records, &mut control.management, now, call)
        },
        "Result",
        USERS,
        "Change your password",
    )
    .takes("NewPassword"),
    root(
        Delete,
        "/users/{email}",
        System,
        |control, now, call| users::delete(&mut control.records, now, call),
        "Result",
        USERS,
        "Delete a user",
    ),
    // ---- the panel's way to an application
    proxied(Get, "Read of an application"),
    proxied(Post, "Create in an application"),
    proxied(Put, "Change in an application"),
    proxied(Delete, "Delete in an application"),
    // ---- the server
    root(Get, "/version", Login, |_, _, _| root::version(), "Version", SERVER, "The server's version"),
    root(
        Get,
        "/enterprise-edition",
        Login,
        |_, _, _| upkeep::yes(),
        "Result",
        SERVER,
        "Tell whether this is an enterprise edition",
    ),
    root(
        Get,
        "/cluster-mode-status",
        System,
        |control, _, _| nodes::status(&control.registry.cluster),
        "Result",
        CLUSTER,
        "Tell whether this is a cluster",
    ),
    root(Get, "/licence-status", System, |_, _, _| upkeep::no_licence(), "", SERVER, "There is no licence")
        .query(&["key"]),
    root(
        Get,
        "/last-licence-status",
        System,
        |_, _, _| upkeep::no_licence(),
        "",
        SERVER,
        "There is no licence",
    ),
    root(
        Post,
        "/store/backup",
        System,
        |control, now, call| {
            upkeep::back_up(&control.cx, &mut control.records, &mut control.walks, now, call)
        },
        "Result",
        SERVER,
        "Back up the store",
    ),
    root(
        Get,
        "/liveness",
        Open,
        |control, _, call| host::liveness(&control.cx, &control.records, &control.figures, call),
        "Liveness",
        SERVER,
        "Tell whether the server lives",
    ),
    root(Get, "/live-clients-size", System, host::clients, "LiveClients", SERVER, "Viewers and live streams"),
    root(
        Get,
        "/server-settings",
        System,
        |control, _, call| upkeep::settings(&control.cx, &control.records, call),
        "ServerSettings",
        SERVER,
        "The server's settings",
    ),
    root(
        Post,
        "/server-settings",
        System,
        |control, _, call| {
            upkeep::change_settings(&mut control.cx, &control.records, &mut control.walks, call)
        },
        "Result",
        SERVER,
        "Change the server's settings",
    )
    .takes("ServerSettings"),
    root(
        Get,
        "/server-settings/keys",
        System,
        |control, _, call| keys::of_server(&control.cx, &control.records, call),
        "[SettingKey]",
        SERVER,
        "Every setting of the server, its meaning and the origin of its value",
    ),
    root(
        Post,
        "/ssl-settings",
        System,
        |control, _, call| upkeep::ssl_settings(&mut control.cx, call),
        "Result",
        SERVER,
        "Give the server a certificate",
    )
    .multipart()
    .query(&["domain", "type"]),
    root(
        Get,
        "/log-file/{offset}/{charSize}",
        System,
        |control, _, call| upkeep::log_file(&mut control.cx, call),
        "LogPart",
        SERVER,
        "A part of the log",
    )
    .query(&["logType"]),
    root(
        Get,
        "/shutdown-proper-status",
        System,
        |control, _, call| upkeep::shutdown_status(&control.cx, call),
        "Result",
        SERVER,
        "Tell whether the last shutdown was regular",
    )
    .query(&["appNames"]),
    root(
        Get,
        "/shutdown-properly",
        System,
        |control, _, call| upkeep::shutdown_properly(&control.cx, call),
        "boolean",
        SERVER,
        "Confirm a regular shutdown",
    )
    .query(&["appNames"]),
    root(Post, "/support/request", Login, |_, _, _| upkeep::no_support(), "Result", SERVER, "Refused")
        .takes("any"),
    root(Post, "/system/gc", System, |_, _, _| upkeep::no_garbage(), "Result", HOST, "Refused"),
    root(Get, "/thread-dump", System, |_, _, _| upkeep::no_machine(), "text/plain", HOST, "Refused"),
    root(Get, "/thread-dump-json", System, |_, _, _| upkeep::no_machine(), "any", HOST, "Refused"),
    root(
        Get,
        "/heap-dump",
        System,
        |_, _, _| upkeep::no_machine(),
        "application/octet-stream",
        HOST,
        "Refused",
    ),
    root(
        Get,
        "/cluster/node-count",
        System,
        |control, _, _| nodes::count(&control.registry.cluster),
        "SimpleStat",
        CLUSTER,
        "The number of nodes",
    ),
    root(
        Get,
        "/cluster/nodes/{offset}/{size}",
        System,
        |control, now, call| nodes::list(&control.registry.cluster, now, call),
        "[ClusterNode]",
        CLUSTER,
        "The nodes",
    ),
    root(
        Delete,
        "/cluster/node/{id}",
        System,
        |control, _, call| nodes::delete(&mut control.registry.cluster, call),
        "Result",
        CLUSTER,
        "Forget a node that is gone",
    ),
    root(
        Get,
        "/drain",
        System,
        |control, now, _| {
            let left = Sessions::of(&control.registry, &control.access, &control.outbound);
            drain::state(&control.cx, left, now)
        },
        "Drain",
        CLUSTER,
        "Tell whether the server is draining, and the sessions that are left",
    ),
    root(
        Post,
        "/drain",
        System,
        |control, now, _| drain::order(&mut control.cx, &mut control.registry, &control.outbound, now, true),
        "Result",
        CLUSTER,
        "Refuse new sessions, and end when all sessions have ended",
    ),
    root(
        Delete,
        "/drain",
        System,
        |control, now, _| drain::order(&mut control.cx, &mut control.registry, &control.outbound, now, false),
        "Result",
        CLUSTER,
        "Call the drain off",
    ),
    root(
        Get,
        "/readiness",
        Open,
        |control, _, _| drain::readiness(&control.cx, &control.records),
        "Readiness",
        CLUSTER,
        "Tell whether the server takes new sessions, for health checks",
    ),
    // ---- the machine
    root(
        Get,
        "/system-resources",
        System,
        |control, now, _| host::resources(&control.cx, &control.registry, &control.figures, now),
        "SystemResources",
        HOST,
        "Everything of the machine",
    ),
    root(
        Get,
        "/system-resources/history",
        System,
        |control, _, _| host::history(&control.figures),
        "ServerHistory",
        HOST,
        "The machine by the minute, for an hour",
    ),
    root(
        Get,
        "/network-status",
        System,
        |control, _, _| host::network(&control.figures),
        "NetworkStatus",
        HOST,
        "Network interfaces",
    ),
    root(
        Get,
        "/cpu-status",
        System,
        |control, now, _| host::cpu_status(&control.figures, now),
        "CpuUsage",
        HOST,
        "Processors",
    ),
    root(
        Get,
        "/jvm-memory-status",
        System,
        |control, now, _| host::process_memory_status(&control.figures, now),
        "ProcessMemory",
        HOST,
        "This process",
    ),
    root(
        Get,
        "/system-memory-status",
        System,
        |control, now, _| host::system_memory_status(&control.figures, now),
        "SystemMemory",
        HOST,
        "Memory",
    ),
    root(
        Get,
        "/file-system-status",
        System,
        |control, now, _| host::file_system_status(&control.figures, now),
        "FileSystem",
        HOST,
        "The disk",
    ),
    root(
        Get,
        "/system-status",
        System,
        |control, now, _| host::system_status(&control.figures, now),
        "SystemInfo",
        HOST,
        "The system",
    ),
    root(
        Get,
        "/gpu-status",
        System,
        |_, _, _| host::gpu_status(),
        "[any]",
        HOST,
        "Graphics processors: none",
    ),
    root(
        Get,
        "/server-time",
        System,
        |control, now, _| host::server_time(&control.figures, now),
        "ServerTime",
        HOST,
        "Since when the server runs",
    ),
    root(
        Get,
        "/threads",
        System,
        |control, _, _| host::threads(&control.figures),
        "Threads",
        HOST,
        "Threads of this process",
    ),
    // ---- live figures
    root(
        Get,
        "/live",
        System,
        feed::server,
        feed::LINES,
        LIVE,
        "The machine and the applications, as lines or events",
    ),
    root(
        Get,
        "/live/{app}",
        Scoped,
        |control, now, call| {
            feed::application(&control.cx, &control.records, &control.registry, &control.files, now, call)
        },
        feed::LINES,
        LIVE,
        "Broadcasts of a page, as lines or events",
    )
    .query(&["ids"]),
    root(
        Get,
        "/live/{app}/{id}",
        Scoped,
        |control, now, call| {
            let (records, registry) = (&control.records, &control.registry);
            feed::broadcast(records, registry, &control.outbound, &control.files, now, call)
        },
        feed::LINES,
        LIVE,
        "A broadcast, as lines or events",
    ),
    // ---- applications
    root(
        Get,
        "/applications",
        System,
        |control, _, _| apps::list(&control.cx),
        "Applications",
        APPS,
        "List the applications",
    ),
    root(
        Get,
        "/applications-info",
        System,
        |control, _, call| apps::info(&mut control.cx, call),
        "[ApplicationInfo]",
        APPS,
        "Applications and what they hold",
    ),
    root(
        Get,
        "/applications/{app}/metrics-history",
        Scoped,
        |control, _, call| host::app_history(&control.figures, call),
        "AppHistory",
        APPS,
        "Viewers and streams of it by the minute, for an hour",
    ),
    root(
        Get,
        "/applications/live-streams/{app}",
        Scoped,
        |control, _, call| apps::live_streams(&control.registry, call),
        "[LiveStream]",
        APPS,
        "Live streams",
    )
    .query(&["offset"]),
    root(
        Get,
        "/applications/settings/{app}",
        Scoped,
        |control, _, call| apps::settings(&control.cx, &control.records, call),
        "AppSettings",
        APPS,
        "Settings of an application",
    ),
    root(
        Post,
        "/applications/settings/{app}",
        Scoped,
        |control, now, call| {
            apps::change_settings(&mut control.cx, &control.records, &mut control.walks, now, call)
        },
        "Result",
        APPS,
        "Change the settings of an application",
    )
    .takes("AppSettings"),
    root(
        Get,
        "/applications/settings/{app}/keys",
        Scoped,
        |control, _, call| keys::of_app(&control.cx, &control.records, call),
        "[SettingKey]",
        APPS,
        "Every setting of an application, its meaning and the origin of its value",
    ),
    root(
        Post,
        "/applications/{app}",
        System,
        |control, _, call| apps::create(&mut control.cx, &mut control.walks, call),
        "Result",
        APPS,
        "Make an application",
    )
    .takes("any"),
    root(Put, "/applications/{app}", System, |_, _, _| apps::upload(), "Result", APPS, "Refused"),
    root(Delete, "/applications/{app}", System, apps::delete, "Result", APPS, "Delete an application")
        .query(&["deleteDB"]),
    root(
        Post,
        "/applications/{app}/reset",
        System,
        |control, now, call| apps::reset(&control.cx, &mut control.records, &control.registry, now, call),
        "Result",
        APPS,
        "Reset the broadcasts of an application",
    ),
];
