//! Operations of an application on its broadcasts and rooms, below `/{app}/rest/v2`.

use super::apps::{BROADCASTS, CAMERAS, ROOMS, STATS, TOKENS, app};
use crate::control::rest::route::Route;
use crate::control::rest::{broadcasts, conference, features, import, lists, publishers, tokens};
use crate::http::Method;
use Method::{Delete, Get, Post, Put};

/// Routes of an application's broadcasts and rooms.
pub(super) const ROUTES: &[Route] = &[
    // ---- an application: broadcasts
    app(Post, "/broadcasts/create", broadcasts::create, "Broadcast", BROADCASTS, "Create a broadcast")
        .takes("Broadcast")
        .query(&["autoStart"]),
    app(
        Post,
        "/broadcasts/create-list",
        |control, now, call| import::create_list(&mut control.cx, &mut control.records, now, call),
        "[Result]",
        BROADCASTS,
        "Import broadcasts",
    )
    .takes("[Broadcast]")
    .query(&["onDuplicate"]),
    app(
        Post,
        "/broadcasts/{id}/publish-key",
        |control, now, call| broadcasts::new_publish_key(&mut control.cx, &mut control.records, now, call),
        "Result",
        BROADCASTS,
        "Make a new publish key",
    )
    .at_origin()
    .credential(),
    app(
        Get,
        "/broadcasts/count",
        |control, now, call| lists::count(control.lists(), now, call),
        "SimpleStat",
        BROADCASTS,
        "Count the broadcasts",
    )
    .query(&["search", "status_by", "protocol_by"]),
    app(
        Get,
        "/broadcasts/active-live-stream-count",
        |control, now, call| lists::active(&control.lists(), now, call),
        "SimpleStat",
        BROADCASTS,
        "Count the live streams",
    ),
    app(
        Get,
        "/broadcasts/total-broadcast-statistics",
        |control, now, call| lists::total_statistics(&control.lists(), now, call),
        "AppBroadcastStatistics",
        BROADCASTS,
        "Viewers of all streams",
    ),
    app(
        Get,
        "/broadcasts/count/{search}",
        |control, now, call| lists::count(control.lists(), now, call),
        "SimpleStat",
        BROADCASTS,
        "Count the broadcasts that match",
    )
    .query(&["status_by", "protocol_by"]),
    app(
        Get,
        "/broadcasts/list/{offset}/{size}",
        |control, now, call| lists::list(control.lists(), now, call),
        "[Broadcast]",
        BROADCASTS,
        "List broadcasts, 250 at most",
    )
    .query(&["type_by", "sort_by", "order_by", "search", "status_by", "protocol_by"]),
    app(
        Delete,
        "/broadcasts",
        |control, now, call| broadcasts::delete_many(&mut control.records, now, call),
        "Result",
        BROADCASTS,
        "Delete broadcasts",
    )
    .query(&["ids"]),
    app(
        Get,
        "/broadcasts/filter-list/{offset}/{size}/{type}",
        |control, now, call| lists::filter_list(control.lists(), now, call),
        "[Broadcast]",
        BROADCASTS,
        "List broadcasts of one type, 250 at most",
    ),
    app(
        Get,
        "/broadcasts/webrtc-viewers/list/{offset}/{size}",
        |_, _, call| features::no_webrtc_viewers(call),
        "[any]",
        STATS,
        "List WebRTC viewers",
    ),
    app(
        Get,
        "/broadcasts/webrtc-send-low-level-stats",
        |_, _, _| features::webrtc_send_stats(),
        "any",
        STATS,
        "Send statistics of WebRTC",
    ),
    app(
        Get,
        "/broadcasts/webrtc-receive-low-level-stats",
        |_, _, _| features::webrtc_receive_stats(),
        "any",
        STATS,
        "Receive statistics of WebRTC",
    ),
    app(
        Get,
        "/broadcasts/duration",
        |_, _, call| features::duration(call),
        "Result",
        BROADCASTS,
        "Duration of media at a URL",
    )
    .query(&["url"]),
    app(
        Get,
        "/broadcasts/onvif-devices",
        |_, _, _| features::no_cameras(),
        "[string]",
        CAMERAS,
        "Cameras of the network",
    ),
    app(
        Post,
        "/broadcasts/validate-token",
        |control, now, call| tokens::validate(&mut control.records, now, call),
        "Result",
        TOKENS,
        "Use up a token",
    )
    .takes("Token"),
    app(
        Delete,
        "/broadcasts/bulk",
        |control, now, call| broadcasts::delete_bulk(&mut control.records, now, call),
        "Result",
        BROADCASTS,
        "Delete broadcasts",
    )
    .takes("[string]"),
    app(
        Post,
        "/broadcasts/webrtc-viewers/{viewer}/stop",
        |_, _, _| features::stop_webrtc_viewer(),
        "Result",
        STATS,
        "Stop a WebRTC viewer: there are none",
    ),
    app(
        Post,
        "/broadcasts/conference-rooms",
        |control, now, call| conference::create(&mut control.cx, &mut control.records, now, call),
        "ConferenceRoom",
        ROOMS,
        "Make a room",
    )
    .takes("NewConferenceRoom"),
    app(
        Get,
        "/broadcasts/conference-rooms/list/{offset}/{size}",
        |control, now, call| conference::list(control.lists(), now, call),
        "[ConferenceRoom]",
        ROOMS,
        "List the rooms",
    )
    .query(&["sort_by", "order_by", "search"]),
    app(
        Get,
        "/broadcasts/conference-rooms/{id}",
        |control, _, call| conference::get(&control.records, call),
        "ConferenceRoom",
        ROOMS,
        "Read a room",
    ),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}",
        |control, now, call| conference::update(&mut control.records, now, call),
        "ConferenceRoom",
        ROOMS,
        "Change a room",
    )
    .at_origin()
    .takes("NewConferenceRoom"),
    app(
        Delete,
        "/broadcasts/conference-rooms/{id}",
        |control, now, call| conference::delete(&mut control.records, now, call),
        "Result",
        ROOMS,
        "Delete a room",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/conference-rooms/{id}/room-info",
        |control, _, call| conference::info(&control.records, &control.registry, call),
        "RoomInfo",
        ROOMS,
        "Live streams of a room",
    )
    .query(&["streamId"]),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}/add",
        |control, now, call| conference::add(&mut control.records, &control.registry, now, call),
        "Result",
        ROOMS,
        "Put a stream into a room",
    )
    .at_origin()
    .query(&["streamId"]),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}/delete",
        |control, now, call| conference::remove(&mut control.records, now, call),
        "Result",
        ROOMS,
        "Take a stream out of a room",
    )
    .at_origin()
    .query(&["streamId"]),
    app(
        Put,
        "/broadcasts/conference-rooms/{id}/{sid}",
        |control, now, call| conference::add_named(&mut control.records, &control.registry, now, call),
        "Result",
        ROOMS,
        "Put a stream into a room",
    )
    .at_origin(),
    app(
        Delete,
        "/broadcasts/conference-rooms/{id}/{sid}",
        |control, now, call| conference::remove_named(&mut control.records, now, call),
        "Result",
        ROOMS,
        "Take a stream out of a room",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}",
        |control, now, call| broadcasts::get(&control.records, now, call),
        "Broadcast",
        BROADCASTS,
        "Read a broadcast",
    ),
    app(
        Put,
        "/broadcasts/{id}",
        |control, now, call| {
            broadcasts::update(&mut control.cx, &mut control.records, &control.outbound, now, call)
        },
        "Result",
        BROADCASTS,
        "Change a broadcast",
    )
    .at_origin()
    .takes("Broadcast"),
    app(
        Delete,
        "/broadcasts/{id}",
        |control, now, call| broadcasts::delete(&mut control.records, now, call),
        "Result",
        BROADCASTS,
        "Delete a broadcast",
    )
    .at_origin()
    .query(&["deleteSubtracks"]),
    app(
        Post,
        "/broadcasts/{id}/start",
        |control, now, call| broadcasts::start(control.outgoing(now), call),
        "Result",
        BROADCASTS,
        "Start a stream source",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{id}/stop",
        |control, now, call| broadcasts::stop(control.outgoing(now), call),
        "Result",
        BROADCASTS,
        "Stop a stream",
    )
    .at_origin()
    .query(&["stopSubtracks"]),
    app(
        Get,
        "/broadcasts/{id}/broadcast-statistics",
        |control, _, call| lists::statistics(&control.lists(), call),
        "BroadcastStatistics",
        BROADCASTS,
        "Viewers of a stream",
    ),
    app(
        Get,
        "/broadcasts/{id}/publishers",
        |control, _, call| publishers::list(&control.records, &control.registry, call),
        "[Publisher]",
        BROADCASTS,
        "The publisher of a stream, and its standby",
    )
    .at_origin(),
    app(
        Post,
        "/broadcasts/{id}/standby/switch",
        |control, _, call| publishers::switch(&mut control.cx, &control.registry, call),
        "Result",
        BROADCASTS,
        "Make the standby of a stream its publisher",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/metrics-history",
        |control, _, call| lists::metrics_history(&control.records, &control.registry, call),
        "StreamHistory",
        BROADCASTS,
        "Figures of a live stream by the minute, for an hour",
    )
    .at_origin(),
    app(
        Get,
        "/broadcasts/{id}/srt-stats",
        |control, _, call| {
            lists::connection_statistics(
                &mut control.cx,
                &control.records,
                &control.registry,
                &mut control.figures,
                call,
            )
        },
        "[SrtStatistics]",
        STATS,
        "SRT connections of a live stream",
    )
    .at_origin(),
];
