//! Operations of an application, below `/{app}/rest/v2`; those of broadcasts and rooms are in [`super::broadcasts`].

use crate::control::rest::call::AppHandler;
use crate::control::rest::route::{Base, BodyKind, Handler, Policy, Route};
use crate::control::rest::{
    endpoints, features, lists, playback, room_recordings, root, subscribers, subtitles, subtracks,
    timed_data, tokens, vods,
};
use crate::http::Method;
use Method::{Delete, Get, Post, Put};

/// Tags of the OpenAPI document.
pub(super) const BROADCASTS: &str = "broadcasts";
pub(super) const CAMERAS: &str = "cameras";
const PUSH: &str = "push notification";
const RESTREAM: &str = "restreaming";
pub(super) const ROOMS: &str = "subtracks";
const SERVER: &str = "server";
pub(super) const STATS: &str = "statistics";
pub(super) const TOKENS: &str = "tokens and subscribers";
const VODS: &str = "recordings";

/// Makes the route of an application's operation.
pub(super) const fn app(
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
        gives_credential: false,
        at_origin: false,
        tag,
        summary,
        handler: Handler::App(handler),
    }
}

/// Routes of an application, other than [`super::broadcasts`].
pub(super) const ROUTES: &[Route] = &[
    // ---- an application: tokens and subscribers
    app(
        Get,
        "/broadcasts/{id}/token",
        |control, now, call| {
            tokens::create(&mut control.cx, &mut control.records, &mut control.walks, now, call)
        },
        "Token",
        TOKENS,
        "Make a one-time token",
    )
    .query(&["expireDate", "type", "roomId"])
    .credential(),
    app(
        Get,
        "/broadcasts/{id}/jwt-token",
        |_, _, call| tokens::create_jwt(call),
        "Token",
        TOKENS,
        "Make a signed token",
    )
    .query(&["expireDate", "type", "roomId"])
    .credential(),
    app(
        Delete,
        "/broadcasts/{id}/tokens",
        |control, now, call| tokens::delete_all(&mut control.records, now, call),
        "Result",
        TOKENS,
        "Delete all tokens",
    ),
    app(
        Get,
        "/broadcasts/{id}/tokens/list/{offset}/{size}",
        |control, _, call| tokens::list(&control.records, call),
        "[Token]",
        TOKENS,
        "List tokens, 250 at most",
    )
    .credential(),
    app(
        Post,
        "/broadcasts/{id}/subscribers",
        |control, now, call| subscribers::add(&mut control.records, now, call),
        "Result",
        TOKENS,
        "Add a subscriber",
    )
    .takes("Subscriber"),
    app(
        Delete,
        "/broadcasts/{id}/subscribers",
        |control, now, call| subscribers::delete_all(&mut control.records, now, call),
        "Result",
        TOKENS,
        "Delete all subscribers",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscriber-stats/list/{offset}/{size}",
        |control, _, call| subscribers::stats(&control.records, &control.access, call),
        "[SubscriberStats]",
        TOKENS,
        "Subscribers with their connection events",
    ),
    app(
        Get,
        "/broadcasts/{id}/detections/count",
        |_, _, _| features::no_detection_count(),
        "SimpleStat",
        STATS,
        "Count detected objects: none",
    ),
    app(
        Get,
        "/broadcasts/{id}/detections/{offset}/{size}",
        |_, _, call| features::no_detections(call),
        "[any]",
        STATS,
        "Detected objects: none",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscribers/list/{offset}/{size}",
        |control, _, call| {
            let cluster = &control.registry.cluster;
            subscribers::list(&control.cx, &control.records, &control.access, cluster, call)
        },
        "[Subscriber]",
        TOKENS,
        "List subscribers, 250 at most",
    ),
    app(
        Delete,
        "/broadcasts/{id}/subscribers/{sid}",
        |control, now, call| subscribers::delete(&mut control.records, now, call),
        "Result",
        TOKENS,
        "Delete a subscriber",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscribers/{sid}/totp",
        |control, now, call| subscribers::totp(&control.records, now, call),
        "Result",
        TOKENS,
        "The time code of this moment",
    )
    .query(&["type"])
    .credential(),
    app(
        Put,
        "/broadcasts/{id}/subscribers/{sid}/block/{seconds}/{type}",
        |control, now, call| {
            let (cx, registry) = (&mut control.cx, &mut control.registry);
            subscribers::block(cx, &mut control.records, registry, &mut control.access, now, call)
        },
        "Result",
        TOKENS,
        "Block a subscriber",
    ),
    app(
        Get,
        "/broadcasts/{id}/connection-events/{offset}/{size}",
        |control, _, call| subscribers::events(&control.access, call),
        "[ConnectionEvent]",
        TOKENS,
        "Who came and went, 250 at most",
    )
    .query(&["subscriberId"]),
    // ---- an application: restreaming
    app(
        Post,
        "/broadcasts/{id}/endpoint",
        |control, now, call| {
            endpoints::add(&mut control.cx, &mut control.records, &control.registry, now, call)
        },
        "Result",
        RESTREAM,
        "Add an endpoint",
    )
    .at_origin()
    .takes("Endpoint")
    .query(&["resolutionHeight"]),
    app(
        Delete,
        "/broadcasts/{id}/endpoint",
        |control, now, call| endpoints::remove(&mut control.records, now, call),
        "Result",
        RESTREAM,
        "Remove an endpoint",
    )
    .at_origin()
    .query(&["endpointServiceId", "resolutionHeight"]),
    app(
        Post,
        "/broadcasts/{id}/rtmp-endpoint",
        |control, now, call| {
            endpoints::add(&mut control.cx, &mut control.records, &control.registry, now, call)
        },
        "Result",
        RESTREAM,
        "Add an RTMP endpoint",
    )
    .at_origin()
    .takes("Endpoint")
    .query(&["resolutionHeight"]),
    app(
        Delete,
        "/broadcasts/{id}/rtmp-endpoint",
        |control, now, call| endpoints::remove(&mut control.records, now, call),
        "Result",
        RESTREAM,
        "Remove an RTMP endpoint",
    )
    .at_origin()
    .query(&["endpointServiceId", "resolutionHeight"]),
    // ---- an application: the rest
    app(
        Put,
        "/broadcasts/{id}/recording/{on}",
        |control, now, call| vods::record(control.recorder(now), call),
        "Result",
        BROADCASTS,
        "Switch recording",
    )
    .at_origin()
    .query(&["recordType"]),
    app(
        Post,
        "/broadcasts/{id}/clip",
        |control, now, call| vods::clip(control.recorder(now), call),
        "Result",
        BROADCASTS,
        "Record a part of the kept stream",
    )
    .at_origin()
    .query(&["start", "end", "fileName"]),
    app(
        Get,
        "/broadcasts/{id}/room-recordings/{offset}/{size}",
        |control, _, call| room_recordings::list(&control.records, call),
        "[RoomRecording]",
        VODS,
        "List the recordings of a room",
    ),
    app(
        Get,
        "/broadcasts/{id}/stream-info",
        |control, _, call| features::stream_info(&control.records, &control.registry, call),
        "[BasicStreamInfo]",
        BROADCASTS,
        "Renditions of a live stream",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/webrtc-client-stats/{offset}/{size}",
        |control, _, call| lists::clients(&mut control.cx, &control.registry, &mut control.figures, call),
        "[WebRTCClientStats]",
        STATS,
        "WebRTC viewers of a stream",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/viewers/list/{offset}/{size}",
        |control, _, call| lists::viewers(&mut control.cx, &control.registry, &mut control.figures, call),
        "[Viewer]",
        STATS,
        "Viewers of a stream with a connection of their own",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{id}/viewers/{viewer}/stop",
        |control, _, call| lists::stop_viewer(&mut control.cx, &control.registry, &mut control.figures, call),
        "Result",
        STATS,
        "Disconnect a viewer",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{id}/subtrack",
        |control, now, call| subtracks::add(&mut control.records, &control.registry, now, call),
        "Result",
        ROOMS,
        "Add a subtrack",
    )
    .at_origin()
    .query(&["id"]),
    app(
        Delete,
        "/broadcasts/{id}/subtrack",
        |control, now, call| subtracks::remove(&mut control.records, now, call),
        "Result",
        ROOMS,
        "Remove a subtrack",
    )
    .at_origin()
    .query(&["id"]),
    app(
        Get,
        "/broadcasts/{id}/subtracks/{offset}/{size}",
        |control, now, call| subtracks::list(control.lists(), now, call),
        "[Broadcast]",
        ROOMS,
        "List subtracks",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/active-subtracks/{offset}/{size}",
        |control, now, call| subtracks::list_active(control.lists(), now, call),
        "[Broadcast]",
        ROOMS,
        "List live subtracks",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/active-subtracks-count",
        |control, _, call| subtracks::count_active(&control.records, &control.registry, call),
        "SimpleStat",
        ROOMS,
        "Count live subtracks",
    )
    .query(&["role"]),
    app(
        Post,
        "/broadcasts/{id}/data",
        |control, _, call| features::data(&mut control.cx, &control.records, &control.registry, call),
        "Result",
        BROADCASTS,
        "Send a message over data channels",
    )
    .at_origin(),
    app(
        Put,
        "/broadcasts/{id}/seek-time/{ms}",
        |control, now, call| playback::seek(control.outgoing(now), call),
        "Result",
        BROADCASTS,
        "Seek in a source",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/playlists/{id}/next",
        |control, now, call| playback::next_item(control.outgoing(now), call),
        "Result",
        BROADCASTS,
        "Play the next item of a playlist",
    )
    .at_origin()
    .query(&["index"]),
    app(
        Get,
        "/broadcasts/{id}/ip-camera/device-profiles",
        |_, _, _| features::camera_profiles(),
        "",
        CAMERAS,
        "Profiles of a camera",
    ),
    app(
        Post,
        "/broadcasts/{id}/ip-camera/move",
        |_, _, call| features::camera_move(call),
        "Result",
        CAMERAS,
        "Move a camera",
    )
    .query(&["valueX", "valueY", "valueZ", "movement"]),
    app(
        Post,
        "/broadcasts/{id}/ip-camera/stop-move",
        |_, _, call| features::camera_stop(call),
        "Result",
        CAMERAS,
        "Stop moving a camera",
    ),
    app(
        Get,
        "/broadcasts/{id}/ip-camera-error",
        |_, _, call| features::camera_error(call),
        "Result",
        CAMERAS,
        "The error of a camera",
    ),
    app(
        Post,
        "/broadcasts/{id}/id3",
        |control, _, call| timed_data::id3(&mut control.cx, &control.registry, call),
        "Result",
        BROADCASTS,
        "Put an ID3 tag into a stream",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{id}/scte35",
        |control, _, call| timed_data::splice(&mut control.cx, &control.registry, call),
        "Result",
        BROADCASTS,
        "Put splice information into a stream",
    )
    .at_origin()
    .takes("Splice"),
    app(
        Post,
        "/broadcasts/{id}/subtitles",
        |control, now, call| subtitles::subtitles(&mut control.cx, &mut control.registry, now, call),
        "Result",
        BROADCASTS,
        "Put subtitles into a stream",
    )
    .at_origin()
    .takes_or_webvtt("Subtitles")
    .query(&["language", "offset"]),
    app(
        Post,
        "/broadcasts/{id}/sei",
        |control, _, call| features::sei(&control.registry, call),
        "Result",
        BROADCASTS,
        "Put SEI into a stream",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{file}/hls-to-mp4",
        |_, _, _| features::hls_to_mp4(),
        "Result",
        VODS,
        "Make MP4 of HLS",
    )
    .query(&["deleteHLSFiles"]),
    app(
        Get,
        "/vods/count",
        |control, now, call| vods::count(control.lists(), now, call),
        "SimpleStat",
        VODS,
        "Count the recordings",
    ),
    app(
        Get,
        "/vods/count/{search}",
        |control, now, call| vods::count(control.lists(), now, call),
        "SimpleStat",
        VODS,
        "Count the recordings that match",
    ),
    app(
        Get,
        "/vods/list/{offset}/{size}",
        |control, now, call| vods::list(control.lists(), now, call),
        "[VoD]",
        VODS,
        "List recordings",
    )
    .query(&["sort_by", "order_by", "streamId", "search"]),
    app(
        Post,
        "/vods/create",
        |control, now, call| {
            vods::create(&mut control.cx, &mut control.records, &mut control.files, now, call)
        },
        "Result",
        VODS,
        "Upload a file",
    )
    .query(&["name"])
    .multipart(),
    app(
        Post,
        "/vods/directory",
        |control, _, call| vods::import_folder(&mut control.cx, &control.records, call),
        "Result",
        VODS,
        "Import a folder",
    )
    .query(&["directory"]),
    app(
        Delete,
        "/vods/directory",
        |control, _, call| vods::forget_folder(&mut control.cx, call),
        "Result",
        VODS,
        "Forget an imported folder",
    )
    .query(&["directory"]),
    app(
        Delete,
        "/vods",
        |control, now, call| vods::delete_all(&mut control.records, &control.files, now, call),
        "Result",
        VODS,
        "Delete recordings",
    )
    .query(&["ids"]),
    app(
        Get,
        "/vods/{id}",
        |control, _, call| vods::read(&control.records, &control.files, call),
        "VoD",
        VODS,
        "Read a recording",
    ),
    app(
        Delete,
        "/vods/{id}",
        |control, now, call| vods::delete(&mut control.records, &control.files, now, call),
        "Result",
        VODS,
        "Delete a recording",
    ),
    app(
        Get,
        "/push-notification/subscriber-auth-token",
        |_, now, call| features::push_token(now, call),
        "Result",
        PUSH,
        "Make a token of a subscriber",
    )
    .query(&["subscriberId", "timeoutSeconds"])
    .credential(),
    app(
        Post,
        "/push-notification/subscribers",
        |_, _, call| features::push_to_subscribers(call),
        "Result",
        PUSH,
        "Notify subscribers",
    ),
    app(
        Post,
        "/push-notification/topics/{topic}",
        |_, _, call| features::push_to_topic(call),
        "Result",
        PUSH,
        "Notify a topic",
    ),
    app(
        Get,
        "/openapi.json",
        root::app_openapi,
        "application/json",
        SERVER,
        "The operations of the application",
    ),
    app(Get, "/version", |_, _, _| root::app_version(), "Version", SERVER, "The server's version"),
];
