//! The known keys with their defaults: the reference's and our own (docs/settings.md). A file with all of them, and those of the protocols,
//! is written at the first start.

/// The effect of a key on this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The server follows the key.
    Works,
    /// Kept and returned, but without effect here: a key of the reference.
    Foreign,
    /// A protection of the reference that is missing here. Values that ask for it are refused, because the operator would wrongly rely on
    /// it.
    Protection {
        /// Reason for the refusal.
        reason: &'static str,
    },
}

/// A known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Name in the file.
    pub name: &'static str,
    /// Value if the key is not set.
    pub default: &'static str,
    /// Description in one line.
    pub comment: &'static str,
    /// True if the value is never printed.
    pub secret: bool,
    /// True if even the default value means something when set; such a key is written as a comment.
    pub explicit: bool,
    /// Effect of the key.
    pub effect: Effect,
}

/// Defines a key.
pub(crate) const fn key(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { name, default, comment, secret: false, explicit: false, effect: Effect::Works }
}

/// Defines a key whose value is never printed.
pub(crate) const fn secret(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { secret: true, ..key(name, default, comment) }
}

/// Defines a key that counts only when set.
pub(crate) const fn explicit(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { explicit: true, ..key(name, default, comment) }
}

/// Defines a key of the reference without effect here; the comment says why.
pub(crate) const fn foreign(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { effect: Effect::Foreign, ..key(name, default, comment) }
}

/// Defines a key of the reference without effect here, whose value is never printed.
pub(crate) const fn foreign_secret(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { secret: true, ..foreign(name, default, comment) }
}

/// Defines a protection of the reference that is missing here; only the default is accepted.
const fn protection(
    name: &'static str,
    default: &'static str,
    comment: &'static str,
    reason: &'static str,
) -> Key {
    Key { effect: Effect::Protection { reason }, ..key(name, default, comment) }
}

impl Key {
    /// Returns the reason for refusing a value, if it asks for a protection that is missing here.
    #[must_use]
    pub fn refusal(&self, value: &str) -> Option<&'static str> {
        let Effect::Protection { reason } = self.effect else { return None };
        let value = value.trim();
        (!value.is_empty() && !is_same(value, self.default)).then_some(reason)
    }
}

/// True if two values are equal, as text or as JSON.
fn is_same(one: &str, other: &str) -> bool {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || json(one).is_some_and(|one| Some(one) == json(other))
}

/// Keys of `conf/red5.properties`; the protocols' keys go between the two parts.
pub(super) const SERVER: [&[Key]; 2] = [SERVER_FIRST, SERVER_LAST];
/// Keys of `webapps/{app}/WEB-INF/red5-web.properties`, likewise in two parts.
pub(super) const APP: [&[Key]; 2] = [APP_FIRST, APP_LAST];

const SERVER_FIRST: &[Key] = &[
    key("server.host", "", "Address of all listeners; empty: every address, IPv4 and IPv6"),
    key(
        "server.name",
        "",
        "Public host names with commas between; the first is used in rtmpURL; empty: the host address",
    ),
    key("server.workers", "", "Worker threads; empty: one per core"),
    key("http.host", "", "Address of the HTTP listener; empty: server.host"),
    key("http.port", "5080", "HTTP port; 0: any free one"),
    key("https.enabled", "true", "HTTPS listener"),
    key("https.port", "5443", "HTTPS port; 0: any free one"),
    key(
        "http.ssl_certificate_file",
        "conf/fullchain.pem",
        "Certificate of HTTPS and RTMPS (PEM), alone or with its chain; made when missing",
    ),
    key(
        "http.ssl_certificate_chain_file",
        "conf/chain.pem",
        "Chain of that certificate, when it has a file of its own",
    ),
    key("http.ssl_certificate_key_file", "conf/privkey.pem", "Private key of that certificate"),
    foreign("http.max_threads", "300", "There is one thread for each core"),
];

const SERVER_LAST: &[Key] = &[
    foreign("server.origin_port", "5000", "There is no cluster"),
    key(
        "server.cpu_limit",
        "95",
        "Busy share of the workers in percent above which publishers are refused; 100: off",
    ),
    key(
        "server.memory_limit_percentage",
        "75",
        "Used memory in percent above which publishers are refused; 100: off",
    ),
    foreign("server.min_free_ram", "10", "See server.memory_limit_percentage"),
    foreign("server.cpu_measurement_period_ms", "1000", "Load is measured once a second"),
    foreign("server.cpu_measurement_window_size", "5", "Load is measured once a second"),
    key(
        "server.trusted_proxies",
        "",
        "Address rules of proxies whose X-Forwarded-* and Forwarded count; empty: none",
    ),
    key("server.cors_origins", "", "Origins that may use the management API from a browser"),
    explicit(
        "server.allowed_dashboard_CIDR",
        "0.0.0.0/0",
        "Address rules of the management API; not set: loopback until a user exists",
    ),
    key("server.first_user_code", "false", "users/initial asks for the code that the log has at the start"),
    key("server.jwtServerControlEnabled", "false", "Signed tokens for the management API"),
    secret("server.jwtServerSecretKey", "", "Secret of those tokens, at least 32 characters"),
    key(
        "server.jwksURL",
        "",
        "URL of the key set (RS256, ES256) of those tokens; empty: server.jwtServerSecretKey",
    ),
    foreign_secret("server.licence_key", "", "There are no licences"),
    foreign("server.heartbeatEnabled", "true", "Nothing is sent home"),
    key("server.statusWebHookURL", "", "Hook for high resource usage"),
    key(
        "http.acme_folder",
        "acme",
        "Folder, in the home or absolute, whose .well-known/acme-challenge is served: the webroot of certbot; empty: none",
    ),
    key(
        "vod.import_folders",
        "",
        "Folders, with commas between, below which applications may import folders of files; empty: none",
    ),
    key(
        "store.backup_hours",
        "24",
        "Hours between two backups of the store in data/backups; 0: none are made",
    ),
    key("store.backups_kept", "7", "Backups that are kept; the oldest go; 0: all"),
    secret(
        "cluster.url",
        "",
        "Directory that the nodes of a cluster share: redis://, rediss:// or redis+sentinel:// with user and password; empty: a server alone",
    ),
    key("cluster.name", "millstream", "Prefix of all keys in the directory: one for each cluster"),
    key("cluster.node", "", "Name of this node, unlike that of any other; empty: the host name"),
    key("cluster.lease", "5", "Seconds without a sign of life after which a node counts as gone"),
    key(
        "cluster.without_directory",
        "accept",
        "New publishers while the directory is away: accept, the newest wins afterwards, or refuse",
    ),
    key("cluster.relay_address", "", "host:port at which the other nodes reach this node's relay"),
    key("cluster.region", "", "Region of this node"),
    key(
        "cluster.public_address",
        "",
        "URL at which clients reach this node, as in https://node-1.example:5443; empty: its own address and http.port",
    ),
    key(
        "cluster.redirect",
        "false",
        "Who plays or publishes by HTTP, WHEP or WHIP is sent to the node at which the stream is live",
    ),
    key(
        "edge.origins",
        "",
        "URLs with {app} and {id}, with commas between: a stream that is not here is fetched from the first that has it; relay:// or any that is pulled",
    ),
    key("edge.linger", "10", "Seconds that a stream of another node stays here without a viewer"),
    key("outbound.preset", "", "public: restreaming, sources and hooks connect to the public internet only"),
    key("outbound.deny", "", "Address rules that restreaming never connects to"),
    key("limits.broadcasts", "100000", "Broadcast records of all applications"),
    key("limits.endpoints", "16", "Restreaming endpoints of one broadcast"),
    key("limits.pulls", "500", "Stream sources that run at a time"),
    key("limits.connections", "20000", "Open connections"),
    key("limits.connections_per_address", "1000", "Unauthenticated connections of one address"),
    key(
        "limits.authenticated_per_address",
        "0",
        "Publishers, viewers and logins of one address; 0: a quarter of limits.connections",
    ),
    key("limits.publishers_per_address", "500", "Live streams that publishers of one address have"),
    key(
        "limits.ring_memory",
        "0",
        "MiB that the buffers of all live streams retain together; 0: a quarter of the memory",
    ),
    key("limits.unauthenticated", "4096", "Unauthenticated connections"),
    key(
        "limits.new_connections_per_second",
        "100",
        "New unauthenticated connections of one address per second",
    ),
    key("limits.new_connections_burst", "200", "How many of those may come at once"),
    key("limits.exempt_loopback", "true", "Whether loopback addresses are free of the limits per address"),
    key(
        "metrics.allowed_CIDR",
        "127.0.0.1",
        "Address rules of /metrics and /openapi.json; others need a login",
    ),
    key("metrics.per_stream", "false", "Figures of each stream in /metrics"),
    foreign("useGlobalIp", "false", "See server.name"),
    foreign("nodeGroup", "default", "There is no cluster"),
    key("logLevel", "INFO", "ERROR, WARN, INFO, DEBUG or TRACE"),
    key("auditLog", "true", "Who did what, from where, in log/audit.log"),
    key("logFormat", "text", "text, or json: one object per line"),
    foreign("nativeLogLevel", "ERROR", "See logLevel"),
    foreign("clusterdb.host", "localhost", "There is no cluster"),
    foreign("clusterdb.user", "", "There is no cluster"),
    foreign_secret("clusterdb.password", "", "There is no cluster"),
];

const APP_FIRST: &[Key] = &[
    key("publisherGraceMs", "5000", "How long a stream waits for a lost publisher, in milliseconds"),
    key("maxLatencyMs", "5000", "A viewer further behind jumps to the newest key frame, in milliseconds"),
    key("coalesceMs", "40", "How long an audio unit may wait for the next video unit, in milliseconds"),
    key("mergeWriteMs", "0", "How long units are gathered for one write, in milliseconds"),
    key("gopCache", "true", "Keep the newest group of pictures for new viewers"),
    key("httpFlvEnabled", "true", "HTTP-FLV and WS-FLV playback"),
    key("remoteAllowedCIDR", "127.0.0.1", "Address rules of the REST API; empty: nobody"),
    key("ipFilterEnabled", "true", "Apply remoteAllowedCIDR"),
    key("jwtControlEnabled", "false", "Signed tokens for the REST API"),
    secret("jwtSecretKey", "", "Secret of those tokens"),
    key("secureAnalyticEndpoint", "false", "Events of players need a token signed with jwtSecretKey"),
    key(
        "jwksURL",
        "",
        "URL of a key set (RS256, ES256): of tokens for the REST API instead of jwtSecretKey, of streams beside jwtStreamSecretKey",
    ),
    key("acceptOnlyStreamsInDataStore", "false", "Refuse publishers without a broadcast record"),
    key("acceptOnlyRoomsInDataStore", "false", "Refuse rooms without a record"),
    key("allowedPublisherCIDR", "", "Address rules of publishers; empty: everybody"),
    key("ingestingStreamLimit", "-1", "Live streams of the application; -1: no limit"),
    key("webRTCViewerLimit", "-1", "WebRTC viewers of the application; -1: no limit"),
    key("publishTokenControlEnabled", "false", "One-time tokens for publishers"),
    key("playTokenControlEnabled", "false", "One-time tokens for viewers"),
    key("publishJwtControlEnabled", "false", "Signed tokens for publishers"),
    key("playJwtControlEnabled", "false", "Signed tokens for viewers"),
    secret("jwtStreamSecretKey", "", "Secret of the stream tokens, at least 32 characters"),
    key("enableTimeTokenForPlay", "false", "Time based codes for viewers"),
    key("enableTimeTokenForPublish", "false", "Time based codes for publishers"),
    secret("timeTokenSecretForPlay", "", "Secret of the viewers' codes"),
    secret("timeTokenSecretForPublish", "", "Secret of the publishers' codes"),
    key("timeTokenPeriod", "60", "Period of the codes in seconds"),
    key(
        "timeTokenSeparators",
        "false",
        "Keys of codes are joined by /, so that none is another's; clients must do so too",
    ),
    key("timeTokenStoredSubscribersOnly", "false", "Refuse the codes of subscribers without a record"),
    key("hashControlPublishEnabled", "false", "Hash control for publishers"),
    key("hashControlPlayEnabled", "false", "Hash control for viewers"),
    key("publishKeyRequired", "false", "Every broadcast has a key that its publisher must give"),
    secret("tokenHashSecret", "", "Secret of the hash control"),
    key("webhookAuthenticateURL", "", "Hook that admits publishers"),
    key("webhookPlayAuthUrl", "", "Hook that admits viewers"),
    key("listenerHookURL", "", "Hook of stream events"),
    secret(
        "webhookSecret",
        "",
        "Secret that hooks are signed with, at least 32 characters; empty: they are not",
    ),
    key("webhookRetryCount", "0", "Retries of a hook"),
    key("webhookRetryAttemptDelay", "1000", "Milliseconds between them"),
    key("webhookContentType", "application/json", "Content type of hooks"),
    key("webhookStreamStatusUpdatePeriodMs", "-1", "Period of the status hook in milliseconds; -1: off"),
    key("dataChannelEnabled", "true", "Data channels between WebRTC publishers and viewers"),
    key(
        "dataChannelPlayerDistribution",
        "all",
        "Receivers of viewers' messages: none, publisher, or all (other viewers too)",
    ),
    key(
        "dataChannelWebHookURL",
        "",
        "URL that messages of data channels are posted to, as the field data of a form",
    ),
    foreign(
        "hlsflags",
        "delete_segments+program_date_time",
        "Segments that are over are always deleted, dates are always in playlists",
    ),
    foreign("addDateTimeToHlsFileName", "false", "Names of segments have no date"),
    foreign("addOriginalMuxerIntoHLSPlaylist", "true", "The only rendition is the source"),
    protection(
        "hlsEncryptionKeyInfoFile",
        "",
        "Key file of HLS encryption",
        "segments of HLS are not encrypted with keys of files by this server; leave it empty, and see hls.encryption",
    ),
    foreign("dashEnableLowLatency", "true", "The manifest is always of low latency"),
    foreign("hlsEnabledViaDash", "false", "HLS and DASH always share fragmented segments"),
    explicit("dashSegDuration", "6", "Seconds of a segment that DASH alone has; unset: as hlsTime"),
    foreign("dashFragmentDuration", "0.5", "Segments of DASH are sent whole; see hls.part_ms"),
    explicit("dashWindowSize", "5", "Segments in the manifest; unset: as hlsListSize"),
    key("dashExtraWindowSize", "5", "Segments that are kept behind those of dashWindowSize"),
    foreign("deleteDASHFilesOnEnded", "true", "DASH is served from memory"),
    key("mp4MuxingEnabled", "false", "Record to MP4"),
    key("webMMuxingEnabled", "false", "Record to WebM"),
    key("addDateTimeToMp4FileName", "false", "Date in MP4 file names"),
    key(
        "fileNameFormat",
        "%r%b",
        "Names of recordings: {text} is put behind the id; %r and %b are of renditions, of which there are none",
    ),
    key("subFolder", "", "Folder below streams"),
    key("recordingSubfolder", "", "Folder of recordings"),
    key("record.max_streams", "0", "Streams that are recorded at a time; 0: no limit"),
    key(
        "record.max_duration",
        "21600",
        "Seconds of one recorded file, then the next one begins; 0: no limit",
    ),
    key("record.max_file_bytes", "0", "Bytes of one recorded file, then the next one begins; 0: no limit"),
    key("record.max_age", "0", "Seconds that recordings are kept; 0: no limit"),
    key("record.max_bytes", "0", "Bytes that all recordings have, the oldest go; 0: no limit"),
    key("upload.max_bytes", "10737418240", "Bytes of one uploaded file; 0: none may be uploaded"),
    key("s3.keep_local", "false", "Files stay here when they are uploaded to S3"),
    foreign("muxerFinishScript", "", "Scripts are never run"),
    foreign("vodUploadFinishScript", "", "Scripts are never run"),
    foreign("streamStartedScript", "", "Scripts are never run"),
    foreign("streamEndedScript", "", "Scripts are never run"),
    foreign("streamIdleTimeoutScript", "", "Scripts are never run"),
    key("s3RecordingEnabled", "false", "Move recordings and uploaded files to S3"),
    secret("s3AccessKey", "", "S3 access key; empty, with the other: the role of the machine or container"),
    secret("s3SecretKey", "", "S3 secret key"),
    key("s3BucketName", "", "S3 bucket"),
    key("s3RegionName", "", "S3 region; empty: us-east-1"),
    key("s3Endpoint", "", "URL of another S3-compatible storage, its buckets in the path; empty: Amazon's"),
    key("s3StreamsFolderPath", "streams", "S3 folder of streams"),
    foreign("s3PreviewsFolderPath", "previews", "No previews are made"),
    key("s3Permission", "public-read", "Permission of objects (x-amz-acl); empty: the bucket's"),
    key("s3StorageClass", "STANDARD", "S3 storage class"),
    key(
        "uploadExtensionsToS3",
        "7",
        "Odd: recordings and uploads go to S3; HLS (2) and previews (4) never do",
    ),
    key("webRTCEnabled", "true", "WebRTC"),
    foreign("webRTCFrameRate", "30", "Video is not transcoded"),
    foreign("webRTCPortRangeMin", "50000", "See webrtc.port"),
    foreign("webRTCPortRangeMax", "60000", "See webrtc.port"),
    key("stunServerURI", "stun:stun1.l.google.com:19302", "STUN server told to browsers"),
    key("turnServerUsername", "", "TURN user told to browsers"),
    secret("turnServerCredential", "", "TURN password told to browsers"),
    explicit("webRTCTcpCandidatesEnabled", "false", "ICE candidates over TCP; unset: as webrtc.tcp says"),
    key("webRTCClientStartTimeoutMs", "10000", "Milliseconds that a WebRTC client has to connect"),
    foreign("webRTCKeyframeTime", "2000", "Key frames are asked for when somebody needs one"),
    foreign("replaceCandidateAddrWithServerAddr", "false", "See webrtc.candidates"),
    foreign("disableIPv6Candidates", "true", "See webrtc.candidates"),
    foreign("iceGatheringTimeoutMs", "2000", "Candidates are known at once"),
    foreign(
        "dropWebRTCIngestIfNoPacketReceived",
        "false",
        "A publisher that sends nothing is always dropped",
    ),
    key("h264Enabled", "true", "H.264 over WebRTC; preferred where a publisher offers it"),
    explicit("vp8Enabled", "false", "VP8 over WebRTC; unset: on"),
    explicit("h265Enabled", "false", "H.265 over WebRTC; unset: on"),
    explicit("av1Enabled", "false", "AV1 over WebRTC; unset: on"),
    foreign("encoderSettingsString", "", "Video is not transcoded"),
    foreign("encoderSettings", "", "Video is not transcoded"),
    foreign("useOriginalWebRTCEnabled", "false", "Video is not transcoded"),
    foreign("gopSize", "0", "Video is not transcoded"),
    foreign("encoderName", "", "Video is not transcoded"),
    foreign("encoderSelectionPreference", "gpu_and_cpu", "Video is not transcoded"),
    foreign("generatePreview", "false", "No previews are made"),
    foreign("createPreviewPeriod", "5000", "No previews are made"),
    foreign("previewHeight", "480", "No previews are made"),
    foreign("previewFormat", "png", "No previews are made"),
    foreign("previewOverwrite", "false", "No previews are made"),
    key(
        "startStreamFetcherAutomatically",
        "false",
        "Pull all stream sources at start; without it those that ran when the server ended",
    ),
    key("restartStreamFetcherPeriod", "0", "Seconds after which a pull is restarted; 0: never"),
    foreign("streamFetcherBufferTime", "0", "A pull is passed on as it comes"),
    explicit(
        "endpointRepublishLimit",
        "3",
        "Tries after which restreaming gives up; unset or negative: never",
    ),
    foreign("endpointHealthCheckPeriodMs", "2000", "A lost endpoint is noticed at once"),
];

/// Default for the roles that each role in a room sees.
pub(super) const VISIBILITY: &str = r#"{"default":["default"],"attendee":["speaker","active_attendee"],"active_attendee":["active_attendee","speaker"],"speaker":["speaker","active_attendee"]}"#;

const APP_LAST: &[Key] = &[
    foreign("maxAnalyzeDurationMS", "1500", "Tracks are known without analysis"),
    key("maxResolutionAccept", "0", "Highest pictures that a stream may have; it is ended otherwise; 0: any"),
    key("maxFpsAccept", "0", "Most pictures a second that a stream may have; it is ended otherwise; 0: any"),
    key("maxBitrateAccept", "0", "Most bits a second that a stream may have; it is ended otherwise; 0: any"),
    key("writeStatsToDatastore", "true", "Viewer counts in broadcast records"),
    key("writeSubscriberEventsToDatastore", "false", "Store events of subscribers"),
    foreign("id3TagEnabled", "false", "No ID3 tags are written into HLS; calls for them fail"),
    key(
        "httpForwardingExtension",
        "",
        "Endings of files, with commas between, that players are sent elsewhere for (302) when they are not here",
    ),
    key("httpForwardingBaseURL", "", "Where they are: the path below the application is put behind it"),
    key("contentSecurityPolicyHeaderValue", "", "Content-Security-Policy of the application"),
    key(
        "maxVideoTrackCount",
        "-1",
        "Videos that a viewer of a room is sent, of those who spoke last, 30 at most; -1: all",
    ),
    key(
        "maxAudioTrackCount",
        "-1",
        "Sounds that a viewer of a room is sent, of those who spoke last, 30 at most; -1: all",
    ),
    foreign("playWebRTCStreamOnceForEachSession", "true", "A session may play a stream once"),
    key("participantVisibilityMatrix", VISIBILITY, "Roles that viewers of a room see, by their own role"),
    foreign("customSettings", "{}", "Free JSON for clients, kept and given back"),
    foreign("encoderParameters", "{}", "Video is not transcoded"),
    foreign("appName", "", "The folder's name counts"),
    foreign("updateTime", "0", "Written by the server when settings change"),
    foreign("appStatus", "installed", "Written by the server"),
    foreign_secret("clusterCommunicationKey", "", "There is no cluster"),
    secret("subscriberAuthenticationKey", "", "Secret of subscribers' tokens"),
    foreign("signalingEnabled", "false", "There is no signalling proxy"),
    foreign("signalingAddress", "", "There is no signalling proxy"),
    foreign("useTimelineDashMuxing", "false", "Segments are named by number"),
    foreign("mySqlClientPath", "/usr/local/antmedia/mysql", "No database is used"),
    foreign("webRTCSdpSemantics", "unifiedPlan", "Always the unified plan"),
    foreign("portAllocatorFlags", "0", "See webrtc.port"),
    foreign("encoderThreadCount", "0", "Video is not transcoded"),
    foreign("encoderThreadType", "0", "Video is not transcoded"),
    foreign("vp8EncoderThreadCount", "1", "Video is not transcoded"),
    foreign("previewQuality", "75", "No previews are made"),
    foreign("excessiveBandwidthValue", "300000", "Pictures are thinned to what the path carries"),
    foreign("excessiveBandwidthCallThreshold", "3", "Pictures are thinned to what the path carries"),
    foreign(
        "excessiveBandwithTryCountBeforeSwitchback",
        "4",
        "Pictures are thinned to what the path carries",
    ),
    foreign("excessiveBandwidthAlgorithmEnabled", "false", "Pictures are thinned to what the path carries"),
    foreign("packetLossDiffThresholdForSwitchback", "10", "Pictures are thinned to what the path carries"),
    foreign(
        "rttMeasurementDiffThresholdForSwitchback",
        "20",
        "Pictures are thinned to what the path carries",
    ),
    foreign("audioBitrateSFU", "96000", "See audio.opusBitrate and audio.aacBitrate"),
    key("aacEncodingEnabled", "true", "false: as audio.toAac=false"),
    foreign("appInstallationTime", "0", "Written by older servers"),
    foreign("pullWarFile", "false", "Nothing is deployed"),
    foreign("warFileOriginServerAddress", "", "Nothing is deployed"),
    foreign("dashHttpStreaming", "true", "DASH is served from memory"),
    foreign("dashHttpEndpoint", "", "DASH is not pushed; see hlsHttpEndpoint"),
    foreign("forceDecoding", "false", "Video is not transcoded"),
    key(
        "s3CacheControl",
        "no-store, no-cache, must-revalidate, max-age=0",
        "Cache-Control of what is uploaded to S3",
    ),
    key("s3PathStyleAccessEnabled", "false", "S3 buckets in the path"),
    foreign("s3TransferBufferSizeInBytes", "10000000", "Uploads are streamed"),
    foreign("forceAspectRatioInTranscoding", "false", "Video is not transcoded"),
    foreign("originEdgeIdleTimeout", "2", "There is no cluster"),
    foreign("statsBasedABREnabled", "true", "Video is not transcoded"),
    foreign("abrDownScalePacketLostRatio", "1.0", "Video is not transcoded"),
    foreign("abrUpScalePacketLostRatio", "0.1", "Video is not transcoded"),
    foreign("abrUpScaleRTTMs", "150", "Video is not transcoded"),
    foreign("abrUpScaleJitterMs", "30", "Video is not transcoded"),
    key(
        "sendAudioLevelToViewers",
        "false",
        "Viewers are told by a data channel how loud a WebRTC publisher is",
    ),
    key("audioLevelThreshold", "120", "Quietest level that they are told, 0 to 127 (silence)"),
    foreign("hwScalingEnabled", "false", "Video is not transcoded"),
    foreign("hwDecoderEnabled", "true", "Video is not transcoded"),
    foreign_secret("firebaseAccountKeyJSON", "", "No push notifications are sent"),
    foreign("apnsServer", "api.sandbox.push.apple.com", "No push notifications are sent"),
    foreign("apnTeamId", "", "No push notifications are sent"),
    foreign_secret("apnPrivateKey", "", "No push notifications are sent"),
    foreign("apnKeyId", "", "No push notifications are sent"),
    foreign("encodingQueueSize", "150", "Video is not transcoded"),
    foreign("db.type", "mapdb", "Records are kept in a file below data"),
    foreign("db.name", "", "See db.type"),
    foreign("db.host", "", "See db.type"),
    foreign("db.user", "", "See db.type"),
    foreign_secret("db.password", "", "See db.type"),
];
