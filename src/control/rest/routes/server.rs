//! Operations of the server: below `/rest/v2`, and two outside of the API.

use crate::control::rest::call::RootHandler;
use crate::control::rest::route::{Base, BodyKind, Handler, Policy, Route};
use crate::control::rest::{apps, feed, host, keys, nodes, proxy, root, server as upkeep, users};
use crate::http::Method;
use Method::{Delete, Get, Post, Put};

/// Tags of the document.
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

/// A call of the panel to an application; what it carries is for the route behind it.
const fn proxied(method: Method, summary: &'static str) -> Route {
    root(method, "/request", Policy::Proxied, proxy::pass, "any", PANEL, summary).query(&["_path"])
}

use Policy::{Login, Open, Scoped, System};

/// See the module.
pub(super) const ROUTES: &[Route] = &[
    server("/metrics", root::metrics, "text/plain, application/openmetrics-text", "Figures for Prometheus"),
    server("/openapi.json", root::openapi, "application/json", "This document"),
    // ---- users and sessions
    root(Post, "/users/authenticate", Open, users::authenticate, "Result", USERS, "Log in").takes("Login"),
    root(Post, "/users/initial", Open, users::initial, "Result", USERS, "Make the first user")
        .takes("NewUser"),
    root(
        Get,
        "/first-login-status",
        Open,
        users::first_login,
        "Result",
        USERS,
        "Whether there is no user yet",
    ),
    root(
        Get,
        "/authentication-status",
        Open,
        users::authentication,
        "Result",
        USERS,
        "Whether you are logged in",
    ),
    root(Get, "/users/{email}/blocked", Open, users::blocked, "Result", USERS, "Whether logins are blocked"),
    root(Delete, "/users/logout", Login, users::logout, "Result", USERS, "Log out"),
    root(
        Get,
        "/admin-status",
        Login,
        users::admin_status,
        "Result",
        USERS,
        "Whether you are an administrator",
    ),
    root(Get, "/user-list", System, users::list, "[User]", USERS, "List the users"),
    root(Post, "/users", System, users::create, "Result", USERS, "Add a user").takes("NewUser"),
    root(Put, "/users", System, users::update, "Result", USERS, "Change a user").takes("NewUser"),
    root(Post, "/users/password", Login, users::change_password, "Result", USERS, "Change your password")
        .takes("NewPassword"),
    root(Delete, "/users/{email}", System, users::delete, "Result", USERS, "Delete a user"),
    // ---- the panel's way to an application
    proxied(Get, "Read of an application"),
    proxied(Post, "Create in an application"),
    proxied(Put, "Change in an application"),
    proxied(Delete, "Delete in an application"),
    // ---- the server
    root(Get, "/version", Login, root::version, "Version", SERVER, "The server's version"),
    root(
        Get,
        "/enterprise-edition",
        Login,
        upkeep::yes,
        "Result",
        SERVER,
        "Whether this is an enterprise edition",
    ),
    root(Get, "/cluster-mode-status", System, nodes::status, "Result", CLUSTER, "Whether this is a cluster"),
    root(Get, "/licence-status", System, upkeep::no_licence, "", SERVER, "There is no licence")
        .query(&["key"]),
    root(Get, "/last-licence-status", System, upkeep::no_licence, "", SERVER, "There is no licence"),
    root(Post, "/store/backup", System, upkeep::back_up, "Result", SERVER, "Back up the store"),
    root(Get, "/liveness", Open, host::liveness, "Liveness", SERVER, "Whether the server lives"),
    root(Get, "/live-clients-size", System, host::clients, "LiveClients", SERVER, "Viewers and live streams"),
    root(
        Get,
        "/server-settings",
        System,
        upkeep::settings,
        "ServerSettings",
        SERVER,
        "The server's settings",
    ),
    root(
        Post,
        "/server-settings",
        System,
        upkeep::change_settings,
        "Result",
        SERVER,
        "Change the server's settings",
    )
    .takes("ServerSettings"),
    root(
        Get,
        "/server-settings/keys",
        System,
        keys::of_server,
        "[SettingKey]",
        SERVER,
        "Every setting of the server, what it means and where its value comes from",
    ),
    root(
        Post,
        "/ssl-settings",
        System,
        upkeep::ssl_settings,
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
        upkeep::log_file,
        "LogPart",
        SERVER,
        "A part of the log",
    )
    .query(&["logType"]),
    root(
        Get,
        "/shutdown-proper-status",
        System,
        upkeep::shutdown_status,
        "Result",
        SERVER,
        "Whether it ended well",
    )
    .query(&["appNames"]),
    root(
        Get,
        "/shutdown-properly",
        System,
        upkeep::shutdown_properly,
        "boolean",
        SERVER,
        "Remember that it did",
    )
    .query(&["appNames"]),
    root(Post, "/support/request", Login, upkeep::no_support, "Result", SERVER, "Refused").takes("any"),
    root(Post, "/system/gc", System, upkeep::no_garbage, "Result", HOST, "Refused"),
    root(Get, "/thread-dump", System, upkeep::no_machine, "text/plain", HOST, "Refused"),
    root(Get, "/thread-dump-json", System, upkeep::no_machine, "any", HOST, "Refused"),
    root(Get, "/heap-dump", System, upkeep::no_machine, "application/octet-stream", HOST, "Refused"),
    root(Get, "/cluster/node-count", System, nodes::count, "SimpleStat", CLUSTER, "The number of nodes"),
    root(Get, "/cluster/nodes/{offset}/{size}", System, nodes::list, "[ClusterNode]", CLUSTER, "The nodes"),
    root(
        Delete,
        "/cluster/node/{id}",
        System,
        nodes::delete,
        "Result",
        CLUSTER,
        "Forget a node that is gone",
    ),
    // ---- the machine
    root(
        Get,
        "/system-resources",
        System,
        host::resources,
        "SystemResources",
        HOST,
        "Everything of the machine",
    ),
    root(
        Get,
        "/system-resources/history",
        System,
        host::history,
        "ServerHistory",
        HOST,
        "The machine by the minute, for an hour",
    ),
    root(Get, "/network-status", System, host::network, "NetworkStatus", HOST, "Network interfaces"),
    root(Get, "/cpu-status", System, host::cpu_status, "CpuUsage", HOST, "Processors"),
    root(
        Get,
        "/jvm-memory-status",
        System,
        host::process_memory_status,
        "ProcessMemory",
        HOST,
        "This process",
    ),
    root(Get, "/system-memory-status", System, host::system_memory_status, "SystemMemory", HOST, "Memory"),
    root(Get, "/file-system-status", System, host::file_system_status, "FileSystem", HOST, "The disk"),
    root(Get, "/system-status", System, host::system_status, "SystemInfo", HOST, "The system"),
    root(Get, "/gpu-status", System, host::gpu_status, "[any]", HOST, "Graphics processors: none"),
    root(Get, "/server-time", System, host::server_time, "ServerTime", HOST, "Since when the server runs"),
    root(Get, "/threads", System, host::threads, "Threads", HOST, "Threads of this process"),
    // ---- as it happens
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
        feed::application,
        feed::LINES,
        LIVE,
        "Broadcasts of a page, as lines or events",
    )
    .query(&["ids"]),
    root(
        Get,
        "/live/{app}/{id}",
        Scoped,
        feed::broadcast,
        feed::LINES,
        LIVE,
        "A broadcast, as lines or events",
    ),
    // ---- applications
    root(Get, "/applications", System, apps::list, "Applications", APPS, "List the applications"),
    root(
        Get,
        "/applications-info",
        System,
        apps::info,
        "[ApplicationInfo]",
        APPS,
        "Applications and what they hold",
    ),
    root(
        Get,
        "/applications/{app}/metrics-history",
        Scoped,
        host::app_history,
        "AppHistory",
        APPS,
        "Viewers and streams of it by the minute, for an hour",
    ),
    root(
        Get,
        "/applications/live-streams/{app}",
        Scoped,
        apps::live_streams,
        "[LiveStream]",
        APPS,
        "Live streams",
    ),
    root(
        Get,
        "/applications/settings/{app}",
        Scoped,
        apps::settings,
        "AppSettings",
        APPS,
        "Settings of an application",
    ),
    root(
        Post,
        "/applications/settings/{app}",
        Scoped,
        apps::change_settings,
        "Result",
        APPS,
        "Replace its settings",
    )
    .takes("AppSettings"),
    root(
        Get,
        "/applications/settings/{app}/keys",
        Scoped,
        keys::of_app,
        "[SettingKey]",
        APPS,
        "What its settings mean and where their values come from",
    ),
    root(Post, "/applications/{app}", System, apps::create, "Result", APPS, "Make an application")
        .takes("any"),
    root(Put, "/applications/{app}", System, apps::upload, "Result", APPS, "Refused"),
    root(Delete, "/applications/{app}", System, apps::delete, "Result", APPS, "Delete an application")
        .query(&["deleteDB"]),
    root(Post, "/applications/{app}/reset", System, apps::reset, "Result", APPS, "Reset its broadcasts"),
];
