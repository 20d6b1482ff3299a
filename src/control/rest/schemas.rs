//! JSON schemas of the OpenAPI document (JSON Schema 2020-12, as in OpenAPI 3.1). The schema of a broadcast is derived
//! from the record, so that the two always agree.

use serde_json::{Map, Value, json};

use crate::config::Shape;
use crate::control::broadcast::Broadcast;
use crate::protocol;

/// Returns the schemas by name.
pub(super) fn all() -> Map<String, Value> {
    let mut schemas = Map::new();
    schemas.insert("Broadcast".to_owned(), broadcast());
    schemas.insert("Role".to_owned(), json!({ "type": "string", "enum": ["ADMIN", "USER", "READ_ONLY"] }));
    schemas.insert("AppSettings".to_owned(), app_settings());
    let (one, several) = (reference("Subtitle"), reference("[Subtitle]"));
    schemas.insert("Subtitles".to_owned(), json!({ "oneOf": [one, several] }));
    for (name, members) in OBJECTS {
        schemas.insert((*name).to_owned(), object(members));
    }
    schemas
}

/// Members of objects: name and type. A `?` after a type allows null, `[X]` is an array, a capitalised type is the name
/// of another schema, and `any` is any value.
const OBJECTS: &[(&str, &[(&str, &str)])] = &[
    (
        "Result",
        &[("success", "boolean"), ("message", "string?"), ("dataId", "string?"), ("errorId", "integer")],
    ),
    (
        "Viewer",
        &[("viewerId", "string"), ("protocol", "string"), ("clientIp", "string"), ("seconds", "integer")],
    ),
    (
        "PlayerEvent",
        &[
            ("event", "string?"),
            ("protocol", "string?"),
            ("streamId", "string?"),
            ("token", "string?"),
            ("watchTimeMs", "integer?"),
        ],
    ),
    ("Login", &[("email", "string"), ("password", "string")]),
    ("NewPassword", &[("password", "string"), ("newPassword", "string")]),
    (
        "User",
        &[
            ("email", "string"),
            ("userType", "Role?"),
            ("scope", "string?"),
            ("appNameUserType", "object?"),
            ("firstName", "string?"),
            ("lastName", "string?"),
            ("fullName", "string?"),
            ("picture", "string?"),
        ],
    ),
    (
        "NewUser",
        &[
            ("email", "string"),
            ("password", "string"),
            ("newPassword", "string"),
            ("code", "string?"),
            ("userType", "Role?"),
            ("scope", "string?"),
            ("appNameUserType", "object?"),
            ("firstName", "string?"),
            ("lastName", "string?"),
            ("fullName", "string?"),
            ("picture", "string?"),
        ],
    ),
    ("Applications", &[("applications", "[string]")]),
    ("AppHistory", &[("viewers", "[integer]"), ("streams", "[integer]")]),
    (
        "StreamHistory",
        &[
            ("bitrate", "[integer]"),
            ("viewers", "[integer]"),
            ("speed", "[number]"),
            ("encoderQueueSize", "[integer]"),
            ("droppedPackets", "[integer]"),
            ("droppedFrames", "[integer]"),
            ("packetLostRatio", "[number]"),
        ],
    ),
    (
        "ServerHistory",
        &[
            ("cpu", "[integer]"),
            ("mem", "[integer]"),
            ("disk", "[integer]"),
            ("heap", "[integer]"),
            ("db", "[integer]"),
            ("live", "[integer]"),
            ("netOut", "[number]"),
            ("netIn", "[number]"),
        ],
    ),
    ("NetworkStatus", &[("outboundMbps", "number"), ("inboundMbps", "number"), ("uplinkMbps", "integer")]),
    (
        "ApplicationInfo",
        &[
            ("name", "string"),
            ("liveStreamCount", "integer"),
            ("vodCount", "integer"),
            ("storage", "integer"),
        ],
    ),
    (
        "SettingKey",
        &[
            ("key", "string"),
            ("name", "string?"),
            ("group", "string"),
            ("label", "string"),
            ("description", "string"),
            ("default", "string"),
            ("value", "string?"),
            ("origin", "string"),
            ("fixed", "boolean"),
            ("effect", "string"),
        ],
    ),
    (
        "ClusterNode",
        &[
            ("id", "string"),
            ("ip", "string"),
            ("lastUpdateTime", "integer"),
            ("memory", "string"),
            ("cpu", "string"),
            ("dbQueryAveargeTimeMs", "integer"),
            ("status", "string"),
            ("region", "string"),
            ("tier", "string"),
            ("relay", "string"),
            ("address", "string"),
            ("draining", "boolean"),
        ],
    ),
    (
        "Drain",
        &[
            ("draining", "boolean"),
            ("since", "integer?"),
            ("leftMs", "integer?"),
            ("publishers", "integer"),
            ("viewers", "integer"),
            ("sources", "integer"),
        ],
    ),
    ("Readiness", &[("status", "string")]),
    ("LiveStream", &[("name", "string"), ("watcherCount", "string")]),
    ("Liveness", &[("host", "string"), ("status", "string")]),
    ("LiveClients", &[("totalConnectionSize", "integer"), ("totalLiveStreamSize", "integer")]),
    ("LogPart", &[("logContent", "string"), ("logContentSize", "integer"), ("logFileSize", "integer")]),
    (
        "Threads",
        &[("dead-locked-thread", "[any]"), ("thread-count", "integer"), ("thread-peek-count", "integer")],
    ),
    (
        "CpuUsage",
        &[
            ("processCPUTime", "integer"),
            ("systemCPULoad", "integer"),
            ("processCPULoad", "integer"),
            ("systemLoadAverageLastMinute", "number"),
        ],
    ),
    (
        "ProcessMemory",
        &[
            ("maxMemory", "integer"),
            ("totalMemory", "integer"),
            ("freeMemory", "integer"),
            ("inUseMemory", "integer"),
        ],
    ),
    (
        "SystemInfo",
        &[
            ("osName", "string"),
            ("osArch", "string"),
            ("javaVersion", "string"),
            ("processorCount", "integer"),
        ],
    ),
    (
        "SystemMemory",
        &[
            ("virtualMemory", "integer"),
            ("totalMemory", "integer"),
            ("freeMemory", "integer"),
            ("inUseMemory", "integer"),
            ("totalSwapSpace", "integer"),
            ("freeSwapSpace", "integer"),
            ("inUseSwapSpace", "integer"),
            ("availableMemory", "integer"),
        ],
    ),
    (
        "FileSystem",
        &[
            ("usableSpace", "integer"),
            ("totalSpace", "integer"),
            ("freeSpace", "integer"),
            ("inUseSpace", "integer"),
        ],
    ),
    ("NativeMemory", &[("inUseMemory", "integer"), ("maxMemory", "integer")]),
    ("ServerTime", &[("up-time", "integer"), ("start-time", "integer")]),
    (
        "SystemResources",
        &[
            ("instanceId", "string"),
            ("cpuUsage", "CpuUsage"),
            ("jvmMemoryUsage", "ProcessMemory"),
            ("systemInfo", "SystemInfo"),
            ("systemMemoryInfo", "SystemMemory"),
            ("fileSystemInfo", "FileSystem"),
            ("jvmNativeMemoryUsage", "NativeMemory"),
            ("softwareVersion", "Version"),
            ("gpuUsageInfo", "[any]"),
            ("ffmpegBuildInfo", "string"),
            ("dbAverageQueryTimeMs", "integer"),
            ("localWebRTCLiveStreams", "integer"),
            ("localLiveStreams", "integer"),
            ("localWebRTCViewers", "integer"),
            ("localHLSViewers", "integer"),
            ("localDASHViewers", "integer"),
            ("encoders-blocked", "integer"),
            ("encoders-not-opened", "integer"),
            ("publish-timeout-errors", "integer"),
            ("vertx-worker-thread-queue-size", "integer"),
            ("webrtc-vertx-worker-thread-queue-size", "integer"),
            ("server-timing", "ServerTime"),
            ("totalLiveStreamSize", "integer"),
        ],
    ),
    (
        "ServerSettings",
        &[
            ("allowedDashboardCIDR", "string"),
            ("hostAddress", "string"),
            ("serverName", "string?"),
            ("licenceKey", "string?"),
            ("buildForMarket", "boolean"),
            ("marketplace", "string"),
            ("logLevel", "string?"),
            ("offlineLicense", "boolean"),
            ("nativeLogLevel", "string"),
            ("heartbeatEnabled", "boolean"),
            ("useGlobalIp", "boolean"),
            ("proxyAddress", "string?"),
            ("nodeGroup", "string?"),
            ("cpuMeasurementPeriodMs", "integer"),
            ("cpuMeasurementWindowSize", "integer"),
            ("defaultHttpPort", "integer"),
            ("jwtServerControlEnabled", "boolean"),
            ("jwtServerSecretKey", "string"),
            ("jwksURL", "string"),
            ("originServerPort", "integer"),
            ("srtPort", "integer"),
            ("appIngestsSrtStreamsWithoutStreamId", "string"),
            ("sslEnabled", "boolean"),
            ("rtmpPort", "integer"),
            ("serverStatusWebHookURL", "string?"),
            ("localLicenceServerIps", "string?"),
            ("hostAddressFromEnvironment", "string?"),
            ("webRTCLogLevel", "string"),
        ],
    ),
    ("SimpleStat", &[("number", "integer")]),
    (
        "Endpoint",
        &[
            ("status", "string"),
            ("type", "string"),
            ("endpointUrl", "string"),
            ("endpointServiceId", "string"),
            ("rtmpUrl", "string"),
            ("leftOut", "[string]"),
        ],
    ),
    (
        "Splice",
        &[
            ("section", "string?"),
            ("event", "string?"),
            ("id", "integer"),
            ("duration", "number?"),
            ("offset", "number"),
        ],
    ),
    ("Subtitle", &[("text", "string"), ("language", "string"), ("offset", "number"), ("duration", "number")]),
    (
        "Token",
        &[
            ("tokenId", "string"),
            ("streamId", "string"),
            ("expireDate", "integer"),
            ("type", "string"),
            ("roomId", "string?"),
        ],
    ),
    (
        "Subscriber",
        &[
            ("subscriberId", "string"),
            ("subscriberName", "string?"),
            ("streamId", "string"),
            ("type", "string?"),
            ("connected", "boolean"),
            ("currentConcurrentConnections", "integer"),
            ("concurrentConnectionsLimit", "integer"),
            ("blockedType", "string?"),
            ("blockedUntilUnitTimeStampMs", "integer"),
            ("registeredNodeIp", "string?"),
            ("avgVideoBitrate", "integer"),
            ("avgAudioBitrate", "integer"),
            ("totpExpiryPeriodSeconds", "integer?"),
        ],
    ),
    (
        "SubscriberStats",
        &[
            ("streamId", "string"),
            ("subscriberId", "string"),
            ("connectionEvents", "[ConnectionEvent]"),
            ("avgVideoBitrate", "integer"),
            ("avgAudioBitrate", "integer"),
        ],
    ),
    (
        "ConferenceRoom",
        &[
            ("roomId", "string"),
            ("startDate", "integer"),
            ("endDate", "integer"),
            ("roomStreamList", "[string]"),
            ("mode", "string?"),
            ("originAdress", "string?"),
        ],
    ),
    (
        "NewConferenceRoom",
        &[
            ("roomId", "string?"),
            ("startDate", "integer?"),
            ("endDate", "integer?"),
            ("mode", "string?"),
            ("roomStreamList", "[string]"),
        ],
    ),
    (
        "RoomInfo",
        &[
            ("roomId", "string"),
            ("streamDetailsMap", "object?"),
            ("streamList", "any"),
            ("startDate", "integer"),
            ("endDate", "integer"),
        ],
    ),
    (
        "ConnectionEvent",
        &[
            ("timestamp", "integer"),
            ("eventType", "string"),
            ("instanceIP", "string"),
            ("type", "string"),
            ("eventProtocol", "string"),
            ("streamId", "string"),
            ("subscriberId", "string"),
        ],
    ),
    (
        "BroadcastStatistics",
        &[
            ("totalRTMPWatchersCount", "integer"),
            ("totalHLSWatchersCount", "integer"),
            ("totalWebRTCWatchersCount", "integer"),
            ("totalDASHWatchersCount", "integer"),
        ],
    ),
    (
        "Publisher",
        &[
            ("active", "boolean"),
            ("publishType", "string"),
            ("userAgent", "string"),
            ("remoteIp", "string"),
            ("receivedBytes", "integer"),
            ("silentMs", "integer"),
            ("sends", "boolean"),
            ("hasKeyFrame", "boolean"),
        ],
    ),
    (
        "SrtStatistics",
        &[
            ("role", "string"),
            ("peer", "string"),
            ("msRTT", "number"),
            ("mbpsBandwidth", "number"),
            ("msRcvTsbPdDelay", "integer"),
            ("msSndTsbPdDelay", "integer"),
            ("pktFlightSize", "integer"),
            ("pktSent", "integer"),
            ("pktSentUnique", "integer"),
            ("pktRetrans", "integer"),
            ("pktSndLoss", "integer"),
            ("pktSndDrop", "integer"),
            ("pktSndBuf", "integer"),
            ("byteSndBuf", "integer"),
            ("msSndBuf", "integer"),
            ("pktRecv", "integer"),
            ("pktRecvUnique", "integer"),
            ("pktRcvLoss", "integer"),
            ("pktRcvDrop", "integer"),
            ("pktRcvRetrans", "integer"),
            ("pktRcvBelated", "integer"),
            ("pktRcvUndecrypt", "integer"),
            ("pktSndFilterExtra", "integer"),
            ("pktRcvFilterExtra", "integer"),
            ("pktRcvFilterSupply", "integer"),
            ("pktRcvFilterLoss", "integer"),
            ("pktRcvBuf", "integer"),
            ("byteRcvBuf", "integer"),
            ("pktSentACK", "integer"),
            ("pktRecvACK", "integer"),
            ("pktSentNAK", "integer"),
            ("pktRecvNAK", "integer"),
            ("byteSent", "integer"),
            ("byteSentUnique", "integer"),
            ("byteRetrans", "integer"),
            ("byteRecv", "integer"),
            ("byteRecvUnique", "integer"),
        ],
    ),
    (
        "AppBroadcastStatistics",
        &[
            ("totalRTMPWatchersCount", "integer"),
            ("totalHLSWatchersCount", "integer"),
            ("totalWebRTCWatchersCount", "integer"),
            ("totalDASHWatchersCount", "integer"),
            ("activeLiveStreamCount", "integer"),
        ],
    ),
    (
        "BasicStreamInfo",
        &[
            ("videoHeight", "integer"),
            ("videoWidth", "integer"),
            ("videoBitrate", "integer"),
            ("audioBitrate", "integer"),
            ("videoCodec", "string?"),
        ],
    ),
    (
        "WebRTCClientStats",
        &[
            ("measuredBitrate", "integer"),
            ("sendBitrate", "integer"),
            ("videoFrameSendPeriod", "number"),
            ("audioFrameSendPeriod", "number"),
            ("clientId", "integer"),
            ("videoPacketCount", "integer"),
            ("audioPacketCount", "integer"),
            ("videoSentStats", "object?"),
            ("audioSentStats", "object?"),
            ("clientInfo", "string?"),
            ("clientIp", "string?"),
        ],
    ),
    (
        "RoomFile",
        &[
            ("id", "string"),
            ("recording", "string"),
            ("zeroTime", "integer"),
            ("start", "integer"),
            ("startTime", "integer"),
        ],
    ),
    (
        "RoomRecording",
        &[
            ("recording", "string"),
            ("room", "string"),
            ("startTime", "integer"),
            ("files", "[RoomRecordingFile]"),
        ],
    ),
    (
        "RoomRecordingFile",
        &[
            ("vodId", "string?"),
            ("filePath", "string?"),
            ("streamId", "string?"),
            ("name", "string?"),
            ("start", "integer"),
            ("end", "integer?"),
            ("startTime", "integer"),
            ("endTime", "integer?"),
        ],
    ),
    (
        "VoD",
        &[
            ("streamName", "string?"),
            ("vodName", "string?"),
            ("streamId", "string?"),
            ("creationDate", "integer"),
            ("startTime", "integer"),
            ("duration", "integer"),
            ("fileSize", "integer"),
            ("filePath", "string?"),
            ("vodId", "string?"),
            ("type", "string?"),
            ("previewFilePath", "string?"),
            ("processStatus", "string?"),
            ("processStartTime", "integer"),
            ("processEndTime", "integer"),
            ("description", "string?"),
            ("metadata", "string?"),
            ("latitude", "string?"),
            ("longitude", "string?"),
            ("altitude", "string?"),
            ("node", "string?"),
            ("room", "RoomFile?"),
        ],
    ),
    ("Version", &[("versionName", "string"), ("versionType", "string"), ("buildNumber", "string")]),
];

fn object(members: &[(&str, &str)]) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|(name, kind)| ((*name).to_owned(), reference(kind))).collect();
    json!({ "type": "object", "properties": properties })
}

/// Returns the schema of a type as written in these tables.
pub(super) fn reference(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix('?') {
        return match kind.starts_with(char::is_lowercase) {
            true => json!({ "type": [kind, "null"] }),
            false => json!({ "oneOf": [reference(kind), { "type": "null" }] }),
        };
    }
    if let Some(item) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({ "type": "array", "items": reference(item) });
    }
    match kind {
        "any" => json!({}),
        name if name.starts_with(char::is_uppercase) => {
            json!({ "$ref": format!("#/components/schemas/{name}") })
        }
        plain => json!({ "type": plain }),
    }
}

/// Types of members that are null in a new record and do not hold text.
const BROADCAST_TYPES: &[(&str, &str)] = &[
    ("endPointList", "[Endpoint]"),
    ("playListItemList", "[any]"),
    ("encoderSettingsList", "[any]"),
    ("hlsParameters", "any"),
    ("subTrackStreamIds", "[string]"),
];

fn app_settings() -> Value {
    let properties: Map<String, Value> = protocol::schema()
        .members()
        .map(|member| {
            let kind = match member.shape {
                Shape::Bool => "boolean",
                Shape::Int => "integer",
                Shape::Number => "number",
                Shape::Text | Shape::ArrayText => "string",
                Shape::NullText => "string?",
                Shape::Object => "object",
                Shape::Array => "[any]",
            };
            let mut schema = reference(kind);
            if let Some(schema) = schema.as_object_mut() {
                schema.insert("title".to_owned(), member.key.label.into());
                schema.insert("description".to_owned(), member.key.comment.into());
            }
            (member.name.to_owned(), schema)
        })
        .collect();
    json!({ "type": "object", "properties": properties })
}

fn broadcast() -> Value {
    // The schema contains only members that the record shows, so the record needs a publish key and a standby.
    let publish_key = Some(String::new());
    let record = Broadcast { publish_key, standby_enabled: true, ..Broadcast::default() };
    let record = serde_json::to_value(record).unwrap_or_default();
    let members = record.as_object().cloned().unwrap_or_default();
    let properties: Map<String, Value> = members
        .into_iter()
        .map(|(name, value)| {
            let known = BROADCAST_TYPES.iter().find(|(member, _)| *member == name);
            let schema = match (known, &value) {
                (Some((_, kind)), Value::Null) if kind.starts_with('[') => {
                    json!({ "oneOf": [reference(kind), { "type": "null" }] })
                }
                (Some((_, kind)), _) => reference(kind),
                (None, Value::Bool(_)) => reference("boolean"),
                (None, Value::Number(number)) if number.is_f64() => reference("number"),
                (None, Value::Number(_)) => reference("integer"),
                (None, Value::String(_)) => reference("string"),
                (None, Value::Null | Value::Array(_) | Value::Object(_)) => reference("string?"),
            };
            (name, schema)
        })
        .collect();
    json!({ "type": "object", "properties": properties })
}
