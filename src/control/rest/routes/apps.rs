//! Operations of an application, below `/{app}/rest/v2`.

use crate::control::rest::call::AppHandler;
use crate::control::rest::route::{Base, BodyKind, Handler, Policy, Route};
use crate::control::rest::{
    broadcasts, conference, endpoints, features, import, lists, playback, root, subscribers, subtracks,
    tokens, vods,
};
use crate::http::Method;
use Method::{Delete, Get, Post, Put};

/// Tags of the document.
const BROADCASTS: &str = "broadcasts";
const CAMERAS: &str = "cameras";
const PUSH: &str = "push notification";
const RESTREAM: &str = "restreaming";
const ROOMS: &str = "subtracks";
const SERVER: &str = "server";
const STATS: &str = "statistics";
const TOKENS: &str = "tokens and subscribers";
const VODS: &str = "recordings";

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
        gives_credential: false,
        at_origin: false,
        tag,
        summary,
        handler: Handler::App(handler),
    }
}

/// See the module.
pub(super) const ROUTES: &[Route] = &[
    // ---- an application: broadcasts
    app(Post, "/broadcasts/create", broadcasts::create, "Broadcast", BROADCASTS, "Create a broadcast")
        .takes("Broadcast")
        .query(&["autoStart"]),
    app(Post, "/broadcasts/create-list", import::create_list, "[Result]", BROADCASTS, "Import broadcasts")
        .takes("[Broadcast]")
        .query(&["onDuplicate"]),
    app(
        Post,
        "/broadcasts/{id}/publish-key",
        broadcasts::new_publish_key,
        "Result",
        BROADCASTS,
        "Make a new publish key",
    )
    .at_origin()
    .credential(),
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
        "List broadcasts, 250 at most",
    )
    .query(&["type_by", "sort_by", "order_by", "search"]),
    app(Delete, "/broadcasts", broadcasts::delete_many, "Result", BROADCASTS, "Delete broadcasts")
        .query(&["ids"]),
    app(
        Get,
        "/broadcasts/filter-list/{offset}/{size}/{type}",
        lists::filter_list,
        "[Broadcast]",
        BROADCASTS,
        "List broadcasts of one type, 250 at most",
    ),
    app(
        Get,
        "/broadcasts/webrtc-viewers/list/{offset}/{size}",
        features::no_webrtc_viewers,
        "[any]",
        STATS,
        "List WebRTC viewers",
    ),
    app(
        Get,
        "/broadcasts/webrtc-send-low-level-stats",
        features::webrtc_send_stats,
        "any",
        STATS,
        "Send statistics of WebRTC",
    ),
    app(
        Get,
        "/broadcasts/webrtc-receive-low-level-stats",
        features::webrtc_receive_stats,
        "any",
        STATS,
        "Receive statistics of WebRTC",
    ),
    app(Get, "/broadcasts/duration", features::duration, "Result", BROADCASTS, "Duration of media at a URL")
        .query(&["url"]),
    app(
        Get,
        "/broadcasts/onvif-devices",
        features::no_cameras,
        "[string]",
        CAMERAS,
        "Cameras of the network",
    ),
    app(Post, "/broadcasts/validate-token", tokens::validate, "Result", TOKENS, "Use up a token")
        .takes("Token"),
    app(Delete, "/broadcasts/bulk", broadcasts::delete_bulk, "Result", BROADCASTS, "Delete broadcasts")
        .takes("[string]"),
    app(
        Post,
        "/broadcasts/webrtc-viewers/{viewer}/stop",
        features::stop_webrtc_viewer,
        "Result",
        STATS,
        "Stop a WebRTC viewer: there are none",
    ),
    app(Post, "/broadcasts/conference-rooms", conference::create, "ConferenceRoom", ROOMS, "Make a room")
        .takes("NewConferenceRoom"),
    app(
        Get,
        "/broadcasts/conference-rooms/list/{offset}/{size}",
        conference::list,
        "[ConferenceRoom]",
        ROOMS,
        "List the rooms",
    )
    .query(&["sort_by", "order_by", "search"]),
    app(Get, "/broadcasts/conference-rooms/{id}", conference::get, "ConferenceRoom", ROOMS, "Read a room"),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}",
        conference::update,
        "ConferenceRoom",
        ROOMS,
        "Change a room",
    )
    .at_origin()
    .takes("NewConferenceRoom"),
    app(Delete, "/broadcasts/conference-rooms/{id}", conference::delete, "Result", ROOMS, "Delete a room")
        .at_origin(),
    app(
        Get,
        "/broadcasts/conference-rooms/{id}/room-info",
        conference::info,
        "RoomInfo",
        ROOMS,
        "Live streams of a room",
    )
    .query(&["streamId"]),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}/add",
        conference::add,
        "Result",
        ROOMS,
        "Put a stream into a room",
    )
    .at_origin()
    .query(&["streamId"]),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}/delete",
        conference::remove,
        "Result",
        ROOMS,
        "Take a stream out of a room",
    )
    .at_origin()
    .query(&["streamId"]),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}/{sid}",
        conference::add_named,
        "Result",
        ROOMS,
        "Put a stream into a room",
    )
    .at_origin(),
    app(
        Delete,
        "/broadcasts/conference-rooms/{id}/{sid}",
        conference::remove_named,
        "Result",
        ROOMS,
        "Take a stream out of a room",
    )
    .at_origin(),
    app(Get, "/broadcasts/{id}", broadcasts::get, "Broadcast", BROADCASTS, "Read a broadcast"),
    app(Put, "/broadcasts/{id}", broadcasts::update, "Result", BROADCASTS, "Change a broadcast")
        .at_origin()
        .takes("Broadcast"),
    app(Delete, "/broadcasts/{id}", broadcasts::delete, "Result", BROADCASTS, "Delete a broadcast")
        .at_origin()
        .query(&["deleteSubtracks"]),
    app(Post, "/broadcasts/{id}/start", broadcasts::start, "Result", BROADCASTS, "Start a stream source")
        .at_origin(),
    app(Post, "/broadcasts/{id}/stop", broadcasts::stop, "Result", BROADCASTS, "Stop a stream")
        .at_origin()
        .query(&["stopSubtracks"]),
    app(
        Get,
        "/broadcasts/{id}/broadcast-statistics",
        lists::statistics,
        "BroadcastStatistics",
        BROADCASTS,
        "Viewers of a stream",
    ),
    app(
        Get,
        "/broadcasts/{id}/metrics-history",
        lists::metrics_history,
        "StreamHistory",
        BROADCASTS,
        "Figures of a live stream by the minute, for an hour",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/srt-stats",
        lists::connection_statistics,
        "[SrtStatistics]",
        STATS,
        "SRT connections of a live stream",
    )
    .at_origin(),
    // ---- an application: tokens and subscribers
    app(Get, "/broadcasts/{id}/token", tokens::create, "Token", TOKENS, "Make a one-time token")
        .query(&["expireDate", "type", "roomId"])
        .credential(),
    app(Get, "/broadcasts/{id}/jwt-token", tokens::create_jwt, "Token", TOKENS, "Make a signed token")
        .query(&["expireDate", "type", "roomId"])
        .credential(),
    app(Delete, "/broadcasts/{id}/tokens", tokens::delete_all, "Result", TOKENS, "Delete all tokens"),
    app(
        Get,
        "/broadcasts/{id}/tokens/list/{offset}/{size}",
        tokens::list,
        "[Token]",
        TOKENS,
        "List tokens, 250 at most",
    )
    .credential(),
    app(Post, "/broadcasts/{id}/subscribers", subscribers::add, "Result", TOKENS, "Add a subscriber")
        .takes("Subscriber"),
    app(
        Delete,
        "/broadcasts/{id}/subscribers",
        subscribers::delete_all,
        "Result",
        TOKENS,
        "Delete all subscribers",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscriber-stats/list/{offset}/{size}",
        subscribers::stats,
        "[SubscriberStats]",
        TOKENS,
        "Subscribers with their connection events",
    ),
    app(
        Get,
        "/broadcasts/{id}/detections/count",
        features::no_detection_count,
        "SimpleStat",
        STATS,
        "Count detected objects: none",
    ),
    app(
        Get,
        "/broadcasts/{id}/detections/{offset}/{size}",
        features::no_detections,
        "[any]",
        STATS,
        "Detected objects: none",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscribers/list/{offset}/{size}",
        subscribers::list,
        "[Subscriber]",
        TOKENS,
        "List subscribers, 250 at most",
    ),
    app(
        Delete,
        "/broadcasts/{id}/subscribers/{sid}",
        subscribers::delete,
        "Result",
        TOKENS,
        "Delete a subscriber",
    ),
    app(
        Get,
        "/broadcasts/{id}/subscribers/{sid}/totp",
        subscribers::totp,
        "Result",
        TOKENS,
        "The time code of this moment",
    )
    .query(&["type"])
    .credential(),
    app(
        Put,
        "/broadcasts/{id}/subscribers/{sid}/block/{seconds}/{type}",
        subscribers::block,
        "Result",
        TOKENS,
        "Block a subscriber",
    ),
    app(
        Get,
        "/broadcasts/{id}/connection-events/{offset}/{size}",
        subscribers::events,
        "[ConnectionEvent]",
        TOKENS,
        "Who came and went, 250 at most",
    )
    .query(&["subscriberId"]),
    // ---- an application: restreaming
    app(Post, "/broadcasts/{id}/endpoint", endpoints::add, "Result", RESTREAM, "Add an endpoint")
        .at_origin()
        .takes("Endpoint")
        .query(&["resolutionHeight"]),
    app(Delete, "/broadcasts/{id}/endpoint", endpoints::remove, "Result", RESTREAM, "Remove an endpoint")
        .at_origin()
        .query(&["endpointServiceId", "resolutionHeight"]),
    app(Post, "/broadcasts/{id}/rtmp-endpoint", endpoints::add, "Result", RESTREAM, "Add an RTMP endpoint")
        .at_origin()
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
    .at_origin()
    .query(&["endpointServiceId", "resolutionHeight"]),
    // ---- an application: the rest
    app(Put, "/broadcasts/{id}/recording/{on}", vods::record, "Result", BROADCASTS, "Switch recording")
        .at_origin()
        .query(&["recordType"]),
    app(Post, "/broadcasts/{id}/clip", vods::clip, "Result", BROADCASTS, "Make a recording of what is kept")
        .at_origin()
        .query(&["start", "end", "fileName"]),
    app(
        Get,
        "/broadcasts/{id}/stream-info",
        features::stream_info,
        "[BasicStreamInfo]",
        BROADCASTS,
        "Renditions of a live stream",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/webrtc-client-stats/{offset}/{size}",
        lists::clients,
        "[WebRTCClientStats]",
        STATS,
        "WebRTC viewers of a stream",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/viewers/list/{offset}/{size}",
        lists::viewers,
        "[Viewer]",
        STATS,
        "Viewers of a stream with a connection of their own",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{id}/viewers/{viewer}/stop",
        lists::stop_viewer,
        "Result",
        STATS,
        "Disconnect a viewer",
    )
    .at_origin(),
    app(Post, "/broadcasts/{id}/subtrack", subtracks::add, "Result", ROOMS, "Add a subtrack")
        .at_origin()
        .query(&["id"]),
    app(Delete, "/broadcasts/{id}/subtrack", subtracks::remove, "Result", ROOMS, "Remove a subtrack")
        .at_origin()
        .query(&["id"]),
    app(
        Get,
        "/broadcasts/{id}/subtracks/{offset}/{size}",
        subtracks::list,
        "[Broadcast]",
        ROOMS,
        "List subtracks",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/active-subtracks/{offset}/{size}",
        subtracks::list_active,
        "[Broadcast]",
        ROOMS,
        "List live subtracks",
    )
    .query(&["role"]),
    app(
        Get,
        "/broadcasts/{id}/active-subtracks-count",
        subtracks::count_active,
        "SimpleStat",
        ROOMS,
        "Count live subtracks",
    )
    .query(&["role"]),
    app(
        Post,
        "/broadcasts/{id}/data",
        features::data,
        "Result",
        BROADCASTS,
        "Send a message over data channels",
    )
    .at_origin(),
    app(Put, "/broadcasts/{id}/seek-time/{ms}", playback::seek, "Result", BROADCASTS, "Seek in a source")
        .at_origin(),
    app(
        Post,
        "/broadcasts/playlists/{id}/next",
        playback::next_item,
        "Result",
        BROADCASTS,
        "Play the next item of a playlist",
    )
    .at_origin()
    .query(&["index"]),
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
        "The error of a camera",
    ),
    app(Post, "/broadcasts/{id}/id3", features::id3, "Result", BROADCASTS, "Put an ID3 tag into a stream")
        .at_origin(),
    app(Post, "/broadcasts/{id}/sei", features::sei, "Result", BROADCASTS, "Put SEI into a stream")
        .at_origin(),
    app(Post, "/broadcasts/{file}/hls-to-mp4", features::hls_to_mp4, "Result", VODS, "Make MP4 of HLS")
        .query(&["deleteHLSFiles"]),
    app(Get, "/vods/count", vods::count, "SimpleStat", VODS, "Count the recordings"),
    app(Get, "/vods/count/{search}", vods::count, "SimpleStat", VODS, "Count the recordings that match"),
    app(Get, "/vods/list/{offset}/{size}", vods::list, "[VoD]", VODS, "List recordings")
        .query(&["sort_by", "order_by", "streamId", "search"]),
    app(Post, "/vods/create", vods::create, "Result", VODS, "Upload a file").query(&["name"]).multipart(),
    app(Post, "/vods/directory", vods::import_folder, "Result", VODS, "Import a folder")
        .query(&["directory"]),
    app(Delete, "/vods/directory", vods::forget_folder, "Result", VODS, "Forget an imported folder")
        .query(&["directory"]),
    app(Delete, "/vods", vods::delete_all, "Result", VODS, "Delete recordings").query(&["ids"]),
    app(Get, "/vods/{id}", vods::read, "VoD", VODS, "Read a recording"),
    app(Delete, "/vods/{id}", vods::delete, "Result", VODS, "Delete a recording"),
    app(
        Get,
        "/push-notification/subscriber-auth-token",
        features::push_token,
        "Result",
        PUSH,
        "Make a token of a subscriber",
    )
    .query(&["subscriberId", "timeoutSeconds"])
    .credential(),
    app(
        Post,
        "/push-notification/subscribers",
        features::push_to_subscribers,
        "Result",
        PUSH,
        "Notify subscribers",
    ),
    app(Post, "/push-notification/topics/{topic}", features::push_to_topic, "Result", PUSH, "Notify a topic"),
    app(
        Get,
        "/openapi.json",
        root::app_openapi,
        "application/json",
        SERVER,
        "The operations of the application",
    ),
    app(Get, "/version", root::app_version, "Version", SERVER, "The server's version"),
];
