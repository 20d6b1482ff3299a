//! The route table: every operation there is, with who may use it. What is not here does not exist; what is here
//! has a policy, because a [`Route`] cannot be made without one. The OpenAPI document is made from it
//! ([`super::openapi`]).
//!
//! A row: method, path, handler, tag, summary; then what it takes and gives. `{name}` in a path is a parameter, literal
//! paths stand before those with parameters.

use super::{
    AppHandler, RootHandler, broadcasts, endpoints, features, lists, root, subscribers, subtracks, tokens,
};
use crate::http::Method;

/// What stands before a route's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// `/{app}/rest/v2`.
    App,
    /// `/rest/v2`.
    Root,
    /// Nothing.
    Server,
}

impl Base {
    /// As the OpenAPI document writes it.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::App => "/{app}/rest/v2",
            Self::Root => "/rest/v2",
            Self::Server => "",
        }
    }
}

/// Who may use a route. Those of [`Base::Root`] and [`Base::Server`] pass the dashboard's address filter first,
/// whatever their policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Whoever passes the application's IP filter and token filter (rest.md §9.1).
    AppFilter,
    /// Nothing but the dashboard's address filter: `/metrics`, `/openapi.json`.
    Dashboard,
    /// No login (rest.md §9.2 row 3).
    Open,
    /// Everybody who is logged in, of whatever role.
    Login,
    /// Scope `system`: any role reads, administrators write.
    System,
    /// Scope `system`, or the application that the first parameter names: any role reads, administrators write.
    Scoped,
    /// As its `_path` says: see the proxy.
    Proxied,
}

/// What a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// Nothing that is looked at.
    None,
    /// JSON, or nothing.
    Json,
    /// Files of a form.
    Multipart,
}

/// Who answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handler {
    /// An operation of an application.
    App(AppHandler),
    /// An operation of the server.
    Root(RootHandler),
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Of the request.
    pub method: Method,
    /// What stands before the path.
    pub base: Base,
    /// The rest.
    pub path: &'static str,
    /// Who may.
    pub policy: Policy,
    /// What it carries.
    pub body: BodyKind,
    /// The schema of the body; empty when it has none.
    pub takes: &'static str,
    /// The schema of a good answer, or a media type; empty when there is no body. `[X]` is an array.
    pub gives: &'static str,
    /// Parameters of the query.
    pub query: &'static [&'static str],
    /// Its group in the document.
    pub tag: &'static str,
    /// One line for people.
    pub summary: &'static str,
    pub(super) handler: Handler,
}

impl Route {
    /// With a JSON body of this schema.
    const fn takes(self, schema: &'static str) -> Self {
        Self { body: BodyKind::Json, takes: schema, ..self }
    }

    /// With these parameters in the query.
    const fn query(self, names: &'static [&'static str]) -> Self {
        Self { query: names, ..self }
    }
}

const fn app(
    method: Method,
    path: &'static str,
    handler: AppHandler,
    gives: &'static str,
    tag: &'static str,
    summary: &'static str,
) -> Route {
    Route {
        method,
        base: Base::App,
        path,
        policy: Policy::AppFilter,
        body: BodyKind::None,
        takes: "",
        gives,
        query: &[],
        tag,
        summary,
        handler: Handler::App(handler),
    }
}

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
        tag: "server",
        summary,
        handler: Handler::Root(handler),
    }
}

use Method::{Delete, Get, Post, Put};

/// Tags of the document.
const BROADCASTS: &str = "broadcasts";
const RESTREAM: &str = "restreaming";
const SECURITY: &str = "tokens and subscribers";
const SUBTRACKS: &str = "subtracks";
const MEDIA: &str = "media";
const CAMERAS: &str = "cameras";
const VODS: &str = "recordings";
const NOTIFICATIONS: &str = "notifications";
const SERVER: &str = "server";

/// Every operation there is.
pub const ROUTES: &[Route] = &[
    // ---- outside of the API
    server("/metrics", root::metrics, "application/openmetrics-text", "Figures for Prometheus"),
    server("/openapi.json", root::openapi, "application/json", "This document"),
    // ---- an application: broadcasts
    app(Post, "/broadcasts/create", broadcasts::create, "Broadcast", BROADCASTS, "Create a broadcast")
        .takes("Broadcast")
        .query(&["autoStart"]),
    app(Get, "/broadcasts/count", lists::count, "SimpleStat", BROADCASTS, "Count the broadcasts"),
    app(
        Get,
        "/broadcasts/active-live-stream-count",
        lists::active,
        "SimpleStat",
        BROADCASTS,
        "Count the live streams",
    ),
    app(
        Get,
        "/broadcasts/total-broadcast-statistics",
        lists::total_statistics,
        "AppBroadcastStatistics",
        BROADCASTS,
        "Viewers of all streams",
    ),
    app(
        Get,
        "/broadcasts/count/{search}",
        lists::count,
        "SimpleStat",
        BROADCASTS,
        "Count the broadcasts that match",
    ),
    app(
        Get,
        "/broadcasts/list/{offset}/{size}",
        lists::list,
        "[Broadcast]",
        BROADCASTS,
        "List broadcasts, 50 at most",
    )
    .query(&["type_by", "sort_by", "order_by", "search"]),
    app(Delete, "/broadcasts", broadcasts::delete_many, "Result", BROADCASTS, "Delete broadcasts")
        .query(&["ids"]),
    app(
        Get,
        "/broadcasts/webrtc-send-low-level-stats",
        features::webrtc_send_stats,
        "any",
        MEDIA,
        "Sending by WebRTC",
    ),
    app(
        Get,
        "/broadcasts/webrtc-receive-low-level-stats",
        features::webrtc_receive_stats,
        "any",
        MEDIA,
        "Receiving by WebRTC",
    ),
    app(Get, "/broadcasts/duration", features::duration, "Result", MEDIA, "The length of media at a URL")
        .query(&["url"]),
    app(
        Get,
        "/broadcasts/onvif-devices",
        features::no_cameras,
        "[string]",
        CAMERAS,
        "Cameras that were found",
    ),
    app(Post, "/broadcasts/validate-token", tokens::validate, "Result", SECURITY, "Use up a token")
        .takes("Token"),
    app(Get, "/broadcasts/{id}", broadcasts::get, "Broadcast", BROADCASTS, "Read a broadcast"),
    app(Put, "/broadcasts/{id}", broadcasts::update, "Result", BROADCASTS, "Change a broadcast")
        .takes("Broadcast"),
    app(Delete, "/broadcasts/{id}", broadcasts::delete, "Result", BROADCASTS, "Delete a broadcast")
        .query(&["deleteSubtracks"]),
    app(Post, "/broadcasts/{id}/start", broadcasts::start, "Result", BROADCASTS, "Start a stream source"),
    app(Post, "/broadcasts/{id}/stop", broadcasts::stop, "Result", BROADCASTS, "Stop a stream")
        .query(&["stopSubtracks"]),
    app(
        Get,
        "/broadcasts/{id}/broadcast-statistics",
        lists::statistics,
        "BroadcastStatistics",
        BROADCASTS,
        "Viewers of a stream",
    ),
    // ---- an application: restreaming
    app(Post, "/broadcasts/{id}/endpoint", endpoints::add, "Result", RESTREAM, "Add an endpoint")
        .takes("Endpoint")
        .query(&["resolutionHeight"]),
    app(Delete, "/broadcasts/{id}/endpoint", endpoints::remove, "Result", RESTREAM, "Remove an endpoint")
        .query(&["endpointServiceId", "resolutionHeight"]),
    app(Post, "/broadcasts/{id}/rtmp-endpoint", endpoints::add, "Result", RESTREAM, "Add an RTMP endpoint")
        .takes("Endpoint")
        .query(&["resolutionHeight"]),
    app(
        Delete,
        "/broadcasts/{id}/rtmp-endpoint",
        endpoints::remove,
        "Result",
        RESTREAM,
        "Remove an RTMP endpoint",
    )
    .query(&["endpointServiceId", "resolutionHeight"]),
    // ---- an application: tokens and subscribers
    app(Get, "/broadcasts/{id}/token", tokens::create, "Token", SECURITY, "Make a one-time token").query(&[
        "expireDate",
        "type",
        "roomId",
    ]),
    app(Get, "/broadcasts/{id}/jwt-token", tokens::create_jwt, "Token", SECURITY, "Make a signed token")
        .query(&["expireDate", "type", "roomId"]),
    app(Delete, "/broadcasts/{id}/tokens", tokens::delete_all, "Result", SECURITY, "Delete all tokens"),
    app(
        Get,
        "/broadcasts/{id}/tokens/list/{offset}/{size}",
        tokens::list,
        "[Token]",
        SECURITY,
        "List tokens, 50 at most",
    ),
    app(Post, "/broadcasts/{id}/subscribers", subscribers::add, "Result", SECURITY, "Add a subscriber")
        .takes("Subscriber"),
    app(
        Delete,
        "/broadcasts/{id}/subscribers",
        subscribers::delete_all,
        "Result",
        SECURITY,
        "Delete all subscribers",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscribers/list/{offset}/{size}",
        subscribers::list,
        "[Subscriber]",
        SECURITY,
        "List subscribers, 50 at most",
    ),
    app(
        Delete,
        "/broadcasts/{id}/subscribers/{sid}",
        subscribers::delete,
        "Result",
        SECURITY,
        "Delete a subscriber",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscribers/{sid}/totp",
        subscribers::totp,
        "Result",
        SECURITY,
        "The time code of this moment",
    )
    .query(&["type"]),
    app(
        Put,
        "/broadcasts/{id}/subscribers/{sid}/block/{seconds}/{type}",
        subscribers::block,
        "Result",
        SECURITY,
        "Block a subscriber",
    ),
    app(
        Get,
        "/broadcasts/{id}/connection-events/{offset}/{size}",
        subscribers::events,
        "[ConnectionEvent]",
        SECURITY,
        "Who came and went, 50 at most",
    )
    .query(&["subscriberId"]),
    // ---- an application: media, subtracks, and what is absent
    app(Put, "/broadcasts/{id}/recording/{on}", features::recording, "Result", MEDIA, "Switch recording")
        .query(&["recordType", "resolutionHeight", "fileName"]),
    app(
        Get,
        "/broadcasts/{id}/stream-info",
        features::stream_info,
        "[BasicStreamInfo]",
        MEDIA,
        "What a live stream is made of",
    ),
    app(
        Get,
        "/broadcasts/{id}/webrtc-client-stats/{offset}/{size}",
        features::no_webrtc_clients,
        "[any]",
        MEDIA,
        "WebRTC viewers",
    ),
    app(Post, "/broadcasts/{id}/data", features::data, "Result", MEDIA, "Send data to viewers"),
    app(Put, "/broadcasts/{id}/seek-time/{ms}", features::seek, "Result", MEDIA, "Seek in a source"),
    app(
        Post,
        "/broadcasts/playlists/{id}/next",
        features::playlist_next,
        "Result",
        MEDIA,
        "Next item of a playlist",
    )
    .query(&["index"]),
    app(Post, "/broadcasts/{id}/id3", features::id3, "Result", MEDIA, "Send an ID3 tag"),
    app(Post, "/broadcasts/{id}/sei", features::sei, "Result", MEDIA, "Send SEI data"),
    app(
        Post,
        "/broadcasts/{file}/hls-to-mp4",
        features::hls_to_mp4,
        "Result",
        MEDIA,
        "Make an MP4 of HLS files",
    ),
    app(Post, "/broadcasts/{id}/subtrack", subtracks::add, "Result", SUBTRACKS, "Add a subtrack")
        .query(&["id"]),
    app(Delete, "/broadcasts/{id}/subtrack", subtracks::remove, "Result", SUBTRACKS, "Remove a subtrack")
        .query(&["id"]),
    app(
        Get,
        "/broadcasts/{id}/subtracks/{offset}/{size}",
        subtracks::list,
        "[Broadcast]",
        SUBTRACKS,
        "List subtracks, 50 at most",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/active-subtracks/{offset}/{size}",
        subtracks::list_active,
        "[Broadcast]",
        SUBTRACKS,
        "List live subtracks, 50 at most",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/active-subtracks-count",
        subtracks::count_active,
        "SimpleStat",
        SUBTRACKS,
        "Count live subtracks",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/ip-camera/device-profiles",
        features::camera_profiles,
        "",
        CAMERAS,
        "Profiles of a camera",
    ),
    app(Post, "/broadcasts/{id}/ip-camera/move", features::camera_move, "Result", CAMERAS, "Move a camera")
        .query(&["valueX", "valueY", "valueZ", "movement"]),
    app(
        Post,
        "/broadcasts/{id}/ip-camera/stop-move",
        features::camera_stop,
        "Result",
        CAMERAS,
        "Stop moving a camera",
    ),
    app(
        Get,
        "/broadcasts/{id}/ip-camera-error",
        features::camera_error,
        "Result",
        CAMERAS,
        "The last error of a camera",
    ),
    app(Get, "/vods/count", features::no_vods, "SimpleStat", VODS, "Count recordings"),
    app(Get, "/vods/count/{search}", features::no_vods, "SimpleStat", VODS, "Count recordings that match"),
    app(
        Get,
        "/vods/list/{offset}/{size}",
        features::no_vod_list,
        "[any]",
        VODS,
        "List recordings, 50 at most",
    )
    .query(&["sort_by", "order_by", "streamId", "search"]),
    app(Delete, "/vods", features::delete_vods, "Result", VODS, "Delete recordings").query(&["ids"]),
    app(Get, "/vods/{id}", features::vod, "VoD", VODS, "Read a recording"),
    app(Delete, "/vods/{id}", features::delete_vod, "Result", VODS, "Delete a recording"),
    app(
        Post,
        "/push-notification/subscribers",
        features::push_notification,
        "Result",
        NOTIFICATIONS,
        "Notify subscribers",
    )
    .query(&["serviceName"]),
    app(
        Post,
        "/push-notification/topics/{topic}",
        features::push_notification,
        "Result",
        NOTIFICATIONS,
        "Notify a topic",
    )
    .query(&["serviceName"]),
    // ---- an application: the rest
    app(Get, "/version", root::app_version, "Version", SERVER, "The server's version"),
];
