//! The broadcast record, in three forms: the JSON of the API, with Ant Media Server's order of members (docs/rest.md),
//! the stored form, and the bodies of requests that set members.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::from_json::{EncoderSettings, FromJson, HlsParameters, PlayListItem, loose};
use super::json_text::readable;
pub use crate::auth::access::is_stream_id;
use crate::types::Now;

/// First byte of a stored record; the rest is JSON.
const RECORD_VERSION: u8 = 1;
/// Time without an update after which a record with a live status is shown as `terminated_unexpectedly`.
const STALE: Duration = Duration::from_secs(20);
/// Value of `durationInMs` for a playlist item whose URL cannot be opened.
const UNREADABLE: i64 = -2;
/// Maximum size of a record in bytes. The limit ensures that the records of a full store fit into memory.
pub const RECORD_BYTES_MAX: usize = 32 << 10;

/// Values of `status`.
pub mod status {
    /// The record is stored, but its stream has never been live.
    pub const CREATED: &str = "created";
    /// The stream is about to be live.
    pub const PREPARING: &str = "preparing";
    /// The stream is live.
    pub const BROADCASTING: &str = "broadcasting";
    /// The stream was live and has ended.
    pub const FINISHED: &str = "finished";
    /// The record says that the stream is live, but is no longer updated.
    pub const TERMINATED: &str = "terminated_unexpectedly";
    /// The connection to the endpoint could not be opened, or the endpoint refused the stream.
    pub const FAILED: &str = "failed";
    /// The connection to the endpoint was lost.
    pub const ERROR: &str = "error";
    /// All statuses.
    pub const ALL: [&str; 7] = [CREATED, PREPARING, BROADCASTING, FINISHED, TERMINATED, FAILED, ERROR];
}

/// A restreaming endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointRecord {
    /// Status of the endpoint, a value in [`status`].
    pub status: String,
    /// Always `generic`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The URL as the client sent it.
    pub endpoint_url: String,
    /// Id by which the endpoint is removed.
    pub endpoint_service_id: String,
    /// Equal to `endpoint_url`, for old clients.
    pub rtmp_url: String,
    /// Codecs of the tracks that cannot be sent to the target; omitted if empty.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The type of a record's member, with the rule by which a request body sets the member. `None` is JSON's null.
pub(in crate::control) trait Member {
    type Given: FromJson;
    fn set(&mut self, given: Option<Self::Given>);
}

macro_rules! plain_members {
    ($($ty:ty),*) => {$(
        impl Member for $ty {
            type Given = $ty;
            /// Null becomes zero or false, as in Ant Media Server.
            fn set(&mut self, given: Option<$ty>) {
                *self = given.unwrap_or_default();
            }
        }
    )*};
}
plain_members!(bool, i32, i64, f64, String);

impl<T: FromJson> Member for Option<T> {
    type Given = T;
    fn set(&mut self, given: Self) {
        *self = given;
    }
}

/// Deserializes a member. Null gives `Some(None)`, so that it differs from an absent member, which is `None`.
fn given<'de, T: FromJson, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    loose(from).map(Some)
}

/// Sets a member from a request body, if the member's rule allows it: `server` never, `create` in a create request,
/// `both` also in an update.
macro_rules! assign {
    (server, $create:ident, $to:expr, $given:expr) => {};
    (create, true, $to:expr, $given:expr) => {
        if let Some(given) = $given {
            $to.set(given);
        }
    };
    (create, false, $to:expr, $given:expr) => {};
    (both, true, $to:expr, $given:expr) => {
        assign!(create, true, $to, $given);
    };
    (both, false, $to:expr, $given:expr) => {
        if let Some(Some(given)) = $given {
            $to.set(Some(given));
        }
    };
}

/// A record with default values.
static USUAL: LazyLock<Broadcast> = LazyLock::new(Broadcast::default);

/// The stored form of a record, with only the members that differ from [`Broadcast::default`]; missing members get the
/// default. A changed default therefore requires a new [`RECORD_VERSION`].
struct Stored<'a>(&'a Broadcast);

macro_rules! members {
    ($($field:ident: $ty:ty = $default:expr, $json:literal, $rule:ident;)*) => {
        /// A broadcast. The members are the API's: /openapi.json describes each under its JSON name.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[allow(missing_docs, reason = "/openapi.json describes each member under its JSON name")]
        pub struct Broadcast {
            $(#[serde(rename = $json)] pub $field: $ty,)*
            /// The key that a publisher must give, in an application with `publishKeyRequired`.
            #[serde(rename = "publishKey", skip_serializing_if = "Option::is_none")]
            pub publish_key: Option<String>,
            /// True if the record's source should run, because it was started and has not been stopped since. Stored,
            /// but never shown.
            #[serde(rename = "sourceWanted", skip_serializing)]
            pub source_wanted: bool,
            /// True if a second publisher may wait as a standby.
            #[serde(rename = "standbyEnabled", skip_serializing_if = "std::ops::Not::not")]
            pub standby_enabled: bool,
            /// True if any viewer count is not zero.
            #[serde(rename = "anyoneWatching", skip_deserializing)]
            pub anyone_watching: bool,
            /// Equal to `origin_adress`, because clients use both spellings.
            #[serde(rename = "originAddress", skip_deserializing)]
            pub origin_address: String,
            /// The first subtracks of the stream, for old SDK pages.
            #[serde(rename = "subTrackStreamIds", skip_deserializing)]
            pub sub_track_stream_ids: Vec<String>,
            /// The mode of a conference room; absent in other records.
            #[serde(rename = "conferenceMode", skip_serializing_if = "Option::is_none")]
            pub conference_mode: Option<String>,
            /// Monotonic time of `update_time`; `None` if the update is from an earlier run of the server.
            #[serde(skip)]
            pub updated: Option<Instant>,
        }

        /// The record made by a create with an empty body, without the members that the server fills in.
        impl Default for Broadcast {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    publish_key: None,
                    source_wanted: false,
                    standby_enabled: false,
                    anyone_watching: false,
                    origin_address: String::new(),
                    sub_track_stream_ids: Vec::new(),
                    conference_mode: None,
                    updated: None,
                }
            }
        }

        impl Serialize for Stored<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let (record, usual) = (self.0, &*USUAL);
                let mut map = serializer.serialize_map(None)?;
                $(if record.$field != usual.$field {
                    map.serialize_entry($json, &record.$field)?;
                })*
                if record.source_wanted {
                    map.serialize_entry("sourceWanted", &true)?;
                }
                if record.standby_enabled {
                    map.serialize_entry("standbyEnabled", &true)?;
                }
                let others = [("publishKey", &record.publish_key), ("conferenceMode", &record.conference_mode)];
                for (name, value) in others {
                    if value.is_some() {
                        map.serialize_entry(name, value)?;
                    }
                }
                map.end()
            }
        }

        /// The body of a create or an update. Outer `None` means absent, inner `None` null. Unknown members are
        /// ignored.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(default)]

        pub struct Body {
            $(#[serde(rename = $json, deserialize_with = "given")]
            pub(in crate::control) $field: Option<Option<<$ty as Member>::Given>>,)*
            #[serde(rename = "standbyEnabled", deserialize_with = "given")]
            pub(in crate::control) standby_enabled: Option<Option<bool>>,
            /// The mode of a conference room; absent in the body of a broadcast.
            #[serde(skip)]
            pub(in crate::control) conference_mode: Option<String>,
        }

        impl Broadcast {
            fn take_create(&mut self, body: Body) {
                $(assign!($rule, true, self.$field, body.$field);)*
                assign!(create, true, self.standby_enabled, body.standby_enabled);
                self.conference_mode = body.conference_mode;
            }

            fn take_update(&mut self, body: Body) {
                $(assign!($rule, false, self.$field, body.$field);)*
                assign!(both, false, self.standby_enabled, body.standby_enabled);
                if body.conference_mode.is_some() {
                    self.conference_mode = body.conference_mode;
                }
            }
        }
    };
}

members! {
    stream_id: String = String::new(), "streamId", server;
    status: String = status::CREATED.to_owned(), "status", server;
    play_list_status: Option<String> = None, "playListStatus", both;
    kind: String = "liveStream".to_owned(), "type", create;
    publish_type: Option<String> = None, "publishType", server;
    name: Option<String> = None, "name", both;
    description: Option<String> = None, "description", both;
    publish: bool = true, "publish", create;
    date: i64 = 0, "date", server;
    planned_start_date: i64 = 0, "plannedStartDate", both;
    planned_end_date: i64 = 0, "plannedEndDate", both;
    duration: i64 = 0, "duration", server;
    end_point_list: Option<Vec<EndpointRecord>> = None, "endPointList", server;
    play_list_item_list: Option<Vec<PlayListItem>> = None, "playListItemList", both;
    public_stream: bool = true, "publicStream", create;
    is_360: bool = false, "is360", create;
    listener_hook_url: Option<String> = None, "listenerHookURL", create;
    category: Option<String> = None, "category", create;
    ip_addr: Option<String> = None, "ipAddr", both;
    username: Option<String> = None, "username", both;
    password: Option<String> = None, "password", both;
    quality: Option<String> = None, "quality", both;
    speed: f64 = 0.0, "speed", server;
    stream_url: Option<String> = None, "streamUrl", both;
    origin_adress: String = String::new(), "originAdress", server;
    mp4_enabled: i32 = 0, "mp4Enabled", create;
    webm_enabled: i32 = 0, "webMEnabled", create;
    seek_time_in_ms: i64 = 0, "seekTimeInMs", both;
    subtracks_limit: i32 = -1, "subtracksLimit", both;
    expire_duration_ms: i32 = 0, "expireDurationMS", create;
    rtmp_url: String = String::new(), "rtmpURL", server;
    zombi: bool = false, "zombi", server;
    pending_packet_size: i32 = 0, "pendingPacketSize", server;
    hls_viewer_count: i32 = 0, "hlsViewerCount", server;
    dash_viewer_count: i32 = 0, "dashViewerCount", server;
    webrtc_viewer_count: i32 = 0, "webRTCViewerCount", server;
    rtmp_viewer_count: i32 = 0, "rtmpViewerCount", server;
    start_time: i64 = 0, "startTime", server;
    received_bytes: i64 = 0, "receivedBytes", server;
    bitrate: i64 = 0, "bitrate", server;
    width: i32 = 0, "width", server;
    height: i32 = 0, "height", server;
    encoder_queue_size: i32 = 0, "encoderQueueSize", server;
    drop_packet_count_in_ingestion: i32 = 0, "dropPacketCountInIngestion", server;
    drop_frame_count_in_encoding: i32 = 0, "dropFrameCountInEncoding", server;
    packet_lost_ratio: f64 = 0.0, "packetLostRatio", server;
    packets_lost: i32 = 0, "packetsLost", server;
    jitter_ms: i32 = 0, "jitterMs", server;
    rtt_ms: i32 = 0, "rttMs", server;
    user_agent: String = "N/A".to_owned(), "userAgent", server;
    remote_ip: Option<String> = None, "remoteIp", server;
    latitude: Option<String> = None, "latitude", both;
    longitude: Option<String> = None, "longitude", both;
    altitude: Option<String> = None, "altitude", both;
    main_track_stream_id: Option<String> = None, "mainTrackStreamId", both;
    absolute_start_time_ms: i64 = 0, "absoluteStartTimeMs", server;
    webrtc_viewer_limit: i32 = -1, "webRTCViewerLimit", both;
    hls_viewer_limit: i32 = -1, "hlsViewerLimit", both;
    dash_viewer_limit: i32 = -1, "dashViewerLimit", both;
    sub_folder: Option<String> = None, "subFolder", both;
    current_play_index: i32 = 0, "currentPlayIndex", both;
    meta_data: Option<String> = None, "metaData", both;
    playlist_loop_enabled: bool = true, "playlistLoopEnabled", both;
    update_time: i64 = 0, "updateTime", server;
    role: Option<String> = None, "role", both;
    hls_parameters: Option<HlsParameters> = None, "hlsParameters", create;
    auto_start_stop_enabled: bool = false, "autoStartStopEnabled", both;
    encoder_settings_list: Option<Vec<EncoderSettings>> = None, "encoderSettingsList", both;
    is_virtual: bool = false, "virtual", both;
    max_idle_time: i32 = 0, "maxIdleTime", both;
}

/// The reason for refusing a body; the text is that of the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is not JSON, or a member has the wrong type.
    #[error("{0}")]
    Json(String),
    /// A member that may not be null is null; the text is its name.
    #[error("{0} cannot be null")]
    Null(&'static str),
}

/// Parses the body of a create or an update. Empty, blank and `null` bodies give `None`.
///
/// # Errors
/// The body is not JSON, or not a broadcast.
pub fn parse_body(bytes: &[u8]) -> Result<Option<Body>, BodyError> {
    match parse_json::<Option<Body>>(bytes)?.flatten() {
        Some(body) => checked(body).map(Some),
        None => Ok(None),
    }
}

/// Refuses a body with null members where null is not allowed.
///
/// # Errors
/// The first such member.
pub fn checked(body: Body) -> Result<Body, BodyError> {
    match &body {
        Body { stream_id: Some(None), .. } => Err(BodyError::Null("streamId")),
        Body { duration: Some(None), .. } => Err(BodyError::Null("duration")),
        Body { .. } => Ok(body),
    }
}

/// Parses a body that is an object or null; `None` if it is blank. serde_json limits nesting to 128 levels of known
/// members, and skips unknown ones without recursion.
///
/// # Errors
/// The body is not JSON, or not of the expected type.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<T>, BodyError> {
    let bytes = readable(bytes);
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        None => return Ok(None),
        // Without this check, serde would read an array as the members of an object in order.
        Some(b'{' | b'n') => {}
        Some(_) => return Err(BodyError::Json("expected an object".to_owned())),
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|e| BodyError::Json(e.to_string()))
}

impl Broadcast {
    /// Makes a record from the body of a create request; the caller fills in the members that the server sets.
    #[must_use]
    pub fn from_body(body: Body) -> Self {
        let mut record = Self::default();
        record.take_create(body);
        record.drop_empty_items();
        for item in record.play_list_item_list.iter_mut().flatten() {
            // The item is a file on another server. The file is not opened here, so its duration is that of unreadable
            // media.
            if item.kind.as_deref() == Some("VoD") {
                item.duration_in_ms = UNREADABLE;
            }
        }
        record
    }

    /// Applies the members of an update that are present, not null, and changeable by updates.
    pub fn update(&mut self, mut body: Body) {
        if let Some(Some(url)) = body.listener_hook_url.take()
            && !url.is_empty()
        {
            self.listener_hook_url = Some(url);
        }
        self.take_update(body);
        self.drop_empty_items();
    }

    /// Removes playlist items that have no URL.
    fn drop_empty_items(&mut self) {
        if let Some(items) = &mut self.play_list_item_list {
            items.retain(PlayListItem::has_url);
        }
    }

    /// Sets the time of the last update.
    pub fn touch(&mut self, now: Now) {
        self.update_time = now.wall_date();
        self.updated = Some(now.mono);
    }

    /// Returns the record as shown by the API at `now`.
    #[must_use]
    pub fn to_json(&self, now: Now) -> Vec<u8> {
        let mut out = Vec::with_capacity(2048);
        self.write_json(now, &mut out);
        out
    }

    /// Appends the record as shown by the API at `now`.
    pub fn write_json(&self, now: Now, out: &mut Vec<u8>) {
        // Writing to memory cannot fail, and no member is a map with keys other than strings.
        let done = if self.is_stale(now) {
            let stale = Self { status: status::TERMINATED.to_owned(), ..self.clone() };
            serde_json::to_writer(out, &stale)
        } else {
            serde_json::to_writer(out, self)
        };
        debug_assert!(done.is_ok());
    }

    /// Returns the status shown by the API.
    #[must_use]
    pub fn effective_status(&self, now: Now) -> &str {
        if self.is_stale(now) { status::TERMINATED } else { &self.status }
    }

    fn is_stale(&self, now: Now) -> bool {
        let claims = self.status == status::BROADCASTING || self.status == status::PREPARING;
        let silent = match self.updated {
            Some(updated) => now.mono.saturating_duration_since(updated),
            // For updates made before the server restarted, only the wall-clock time is known.
            None => {
                Duration::from_millis(now.wall_date().saturating_sub(self.update_time).max(0).unsigned_abs())
            }
        };
        claims && !self.is_virtual && silent >= STALE
    }

    /// Returns the HLS settings that the broadcast overrides, each under the name of the application's setting.
    #[must_use]
    pub fn hls_overrides(&self) -> Vec<(&'static str, String)> {
        let Some(own) = &self.hls_parameters else { return Vec::new() };
        let values = [
            ("hlsTime", &own.hls_time),
            ("hlsListSize", &own.hls_list_size),
            ("hlsPlayListType", &own.hls_play_list_type),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect()
    }

    /// Recomputes `anyone_watching`.
    pub const fn recount(&mut self) {
        self.anyone_watching = self.hls_viewer_count != 0
            || self.dash_viewer_count != 0
            || self.webrtc_viewer_count != 0
            || self.rtmp_viewer_count != 0;
    }

    /// Returns the stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(512);
        out.push(RECORD_VERSION);
        let done = serde_json::to_writer(&mut out, &Stored(self));
        debug_assert!(done.is_ok());
        out.into()
    }

    /// Parses the stored form.
    ///
    /// # Errors
    /// The record is of a newer version, or malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (version, json) = bytes.split_first().ok_or("an empty record")?;
        if *version != RECORD_VERSION {
            return Err(format!("a record of version {version}, which this server does not know"));
        }
        let mut record: Self = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        record.origin_address.clone_from(&record.origin_adress);
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_stand_in_the_reference_s_order() {
        let mut record =
            Broadcast { stream_id: "s1".into(), date: 5, origin_adress: "h".into(), ..Broadcast::default() };
        record.rtmp_url = "rtmp://h/live/s1".into();
        record.origin_address = "h".into();
        let expected = concat!(
            r#"{"streamId":"s1","status":"created","playListStatus":null,"type":"liveStream","publishType":null,"#,
            r#""name":null,"description":null,"publish":true,"date":5,"plannedStartDate":0,"plannedEndDate":0,"#,
            r#""duration":0,"endPointList":null,"playListItemList":null,"publicStream":true,"is360":false,"#,
            r#""listenerHookURL":null,"category":null,"ipAddr":null,"username":null,"password":null,"#,
            r#""quality":null,"speed":0.0,"streamUrl":null,"originAdress":"h","mp4Enabled":0,"webMEnabled":0,"#,
            r#""seekTimeInMs":0,"subtracksLimit":-1,"expireDurationMS":0,"rtmpURL":"rtmp://h/live/s1","#,
            r#""zombi":false,"pendingPacketSize":0,"hlsViewerCount":0,"dashViewerCount":0,"webRTCViewerCount":0,"#,
            r#""rtmpViewerCount":0,"startTime":0,"receivedBytes":0,"bitrate":0,"width":0,"height":0,"#,
            r#""encoderQueueSize":0,"dropPacketCountInIngestion":0,"dropFrameCountInEncoding":0,"#,
            r#""packetLostRatio":0.0,"packetsLost":0,"jitterMs":0,"rttMs":0,"userAgent":"N/A","remoteIp":null,"#,
            r#""latitude":null,"longitude":null,"altitude":null,"mainTrackStreamId":null,"#,
            r#""absoluteStartTimeMs":0,"webRTCViewerLimit":-1,"hlsViewerLimit":-1,"dashViewerLimit":-1,"#,
            r#""subFolder":null,"currentPlayIndex":0,"metaData":null,"playlistLoopEnabled":true,"updateTime":0,"#,
            r#""role":null,"hlsParameters":null,"autoStartStopEnabled":false,"encoderSettingsList":null,"#,
            r#""virtual":false,"maxIdleTime":0,"anyoneWatching":false,"originAddress":"h","subTrackStreamIds":[]}"#,
        );
        assert_eq!(
            String::from_utf8(record.to_json(Now { mono: Instant::now(), wall_ms: 0 })).unwrap(),
            expected
        );
        assert_eq!(Broadcast::decode(&record.encode()).unwrap(), record);
        let all = [b"\x01", expected.as_bytes()].concat();
        assert_eq!(Broadcast::decode(&all).unwrap(), record, "as former servers stored it");
    }

    #[test]
    fn members_are_stored_that_are_not_as_in_most_records() {
        let encode = |record: &Broadcast| String::from_utf8(record.encode()[1..].to_vec()).unwrap();
        assert_eq!(encode(&Broadcast::default()), "{}");
        let mut record = Broadcast { stream_id: "s1".into(), publish: false, ..Broadcast::default() };
        assert_eq!(encode(&record), r#"{"streamId":"s1","publish":false}"#);
        record.publish_key = Some("k".into());
        record.conference_mode = Some("m".into());
        (record.webrtc_viewer_limit, record.user_agent) = (0, String::new());
        let text = r#"{"streamId":"s1","publish":false,"userAgent":"","webRTCViewerLimit":0,"publishKey":"k","conferenceMode":"m"}"#;
        assert_eq!(encode(&record), text);
        assert_eq!(Broadcast::decode(&record.encode()).unwrap(), record);
    }

    fn created(body: &str) -> Broadcast {
        Broadcast::from_body(parse_body(body.as_bytes()).unwrap().unwrap())
    }

    #[test]
    fn null_is_zero_in_a_create_and_nothing_in_an_update() {
        let mut record = created(r#"{"publish":null,"hlsViewerLimit":null,"name":null,"category":"c"}"#);
        assert_eq!((record.publish, record.hls_viewer_limit, record.name.clone()), (false, 0, None));
        record.update(parse_body(br#"{"hlsViewerLimit":7,"name":"n","category":"x"}"#).unwrap().unwrap());
        record.update(parse_body(br#"{"hlsViewerLimit":null,"name":null}"#).unwrap().unwrap());
        assert_eq!((record.hls_viewer_limit, record.name.as_deref()), (7, Some("n")));
        assert_eq!(record.category.as_deref(), Some("c"), "an update does not change it");
        record.update(parse_body(br#"{"listenerHookURL":"http://h"}"#).unwrap().unwrap());
        record.update(parse_body(br#"{"listenerHookURL":""}"#).unwrap().unwrap());
        assert_eq!(record.listener_hook_url.as_deref(), Some("http://h"));
    }

    #[test]
    fn playlists_keep_what_can_be_played() {
        let items = r#"[{"streamUrl":"http://h/a.mp4","type":"VoD"},{"streamUrl":""},{},{"streamUrl":"rtmp://h/a/b"}]"#;
        let record = created(&format!("{{\"playListItemList\":{items}}}"));
        let lengths = record.play_list_item_list.iter().flatten().map(|item| item.duration_in_ms);
        assert_eq!(lengths.collect::<Vec<_>>(), [UNREADABLE, 0]);
    }

    #[test]
    fn what_the_server_measures_is_not_taken_from_a_body() {
        let record =
            created(r#"{"rtmpViewerCount":9,"status":"broadcasting","zombi":true,"unknown":{"a":[1]}}"#);
        assert_eq!((record.rtmp_viewer_count, record.status.as_str(), record.zombi), (0, "created", false));
    }

    #[test]
    fn r_12_broken_bodies_are_refused_and_never_panic() {
        let deep = |name| format!("{{\"{name}\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(parse_body(deep("unknown").as_bytes()).is_ok(), "ignored, whatever it is");
        for body in [
            deep("hlsParameters").as_bytes(),
            br#"{"name":"a","name":"b"}"#,
            br#"{"speed":1e400}"#,
            br#"{"date":18446744073709551616}"#,
            br#"{"mp4Enabled":2147483648}"#,
            br#"{"name":[5]}"#,
            br#"{"publish":"yes"}"#,
            br#"{"hlsParameters":"x"}"#,
            br#"{"encoderSettingsList":[1]}"#,
            br#"{"streamId":null}"#,
            br#"{"duration":null}"#,
            br#"{"streamId":"a"} x"#,
            br#"[{}]"#,
            br#""x""#,
            b"\xef\xbb\xbf\xef\xbb\xbf{}",
            b"{\x00\"\x00}\x00",
            b"{",
            b"\xff",
        ] {
            assert!(parse_body(body).is_err(), "{:?}", &body[..body.len().min(60)]);
        }
        for body in [&b""[..], b"  \r\n", b"null", b"\xef\xbb\xbf"] {
            assert_eq!(parse_body(body), Ok(None));
        }
        assert!(matches!(parse_body(b"\xef\xbb\xbf{}"), Ok(Some(_))), "a mark in front is no fault");
        assert!(parse_body(br#"{"mp4Enabled":-1}"#).is_ok());
        proptest::proptest!(|(bytes: Vec<u8>)| { let _ = parse_body(&bytes); });
    }

    #[test]
    fn silence_shows_as_terminated_unexpectedly() {
        let began = Instant::now();
        let at = |ms, wall_ms| Now { mono: began + Duration::from_millis(ms), wall_ms };
        // If the status was set before the server restarted, only the wall-clock time of the update is known.
        let mut live =
            Broadcast { status: status::BROADCASTING.into(), update_time: 1000, ..Broadcast::default() };
        assert_eq!(live.effective_status(at(0, 20_999)), status::BROADCASTING);
        assert_eq!(live.effective_status(at(0, 21_000)), status::TERMINATED);
        // After an update in this run of the server, only monotonic time counts, because the wall clock may be set.
        live.touch(at(0, 5_000_000));
        assert_eq!(live.update_time, 5_000_000);
        for wall_ms in [0, 5_019_999, 9_000_000] {
            assert_eq!(live.effective_status(at(19_999, wall_ms)), status::BROADCASTING);
            assert_eq!(live.effective_status(at(20_000, wall_ms)), status::TERMINATED);
        }
        let text = String::from_utf8(live.to_json(at(20_000, 0))).unwrap();
        assert!(text.contains(r#""status":"terminated_unexpectedly""#));
        let room = Broadcast { is_virtual: true, ..live };
        assert_eq!(room.effective_status(at(99_999, 9_000_000)), status::BROADCASTING);
    }

    #[test]
    fn r_10_ids() {
        for id in ["a", "A-b_c.1", "x.m3u8", "CON", "-lead", &"x".repeat(128)] {
            assert!(is_stream_id(id), "{id}");
        }
        for id in [
            "",
            ".",
            "..",
            "../x",
            ".a",
            "a/b",
            "%2e%2e",
            "a\0",
            "a\r\n",
            "\u{1f600}",
            "a b",
            &"x".repeat(129),
        ] {
            assert!(!is_stream_id(id), "{id:?}");
        }
        assert!(!is_stream_id(&"x".repeat(1 << 20)));
    }
}
