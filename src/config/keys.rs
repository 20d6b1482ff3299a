//! The known keys with their defaults: the reference's and ours. A file with all of
//! them is written at first start.

/// A known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// As written in the file.
    pub name: &'static str,
    /// Used when nobody sets it.
    pub default: &'static str,
    /// One line for people.
    pub comment: &'static str,
    /// Never printed.
    pub secret: bool,
    /// Setting it means something even with the default's value; such a key is written commented out.
    pub explicit: bool,
}

const fn key(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { name, default, comment, secret: false, explicit: false }
}

const fn secret(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { name, default, comment, secret: true, explicit: false }
}

const fn explicit(name: &'static str, default: &'static str, comment: &'static str) -> Key {
    Key { name, default, comment, secret: false, explicit: true }
}

/// The key of that name in a table.
#[must_use]
pub(super) fn find(table: &'static [Key], name: &str) -> Option<&'static Key> {
    table.iter().find(|key| key.name == name)
}

/// Keys of `conf/red5.properties`.
pub const SERVER: &[Key] = &[
    key("server.host", "", "Address of all listeners; empty: every address, IPv4 and IPv6"),
    key("server.name", "", "Public host name, used in rtmpURL; empty: the host address"),
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
    key("http.max_threads", "300", "Kept for older files; not used"),
    key("rtmp.host", "", "Address of the RTMP listener; empty: server.host"),
    key("rtmp.port", "1935", "RTMP port; 0: any free one"),
    key("rtmps.enabled", "true", "RTMPS listener"),
    key("rtmps.port", "8443", "RTMPS port; 0: any free one"),
    key("rtsp.port", "5554", "RTSP port"),
    key("webrtc.port", "50000", "First UDP and TCP port of WebRTC media, one per worker"),
    key("webrtc.candidates", "", "Public addresses offered to WebRTC peers; empty: those of the interfaces"),
    key("srt.enabled", "true", "SRT port for publishers and viewers"),
    key("srt.host", "", "Address of the SRT port; empty: server.host"),
    key("server.srt_port", "4200", "SRT port (UDP); 0: any free one"),
    secret("srt.passphrase", "", "Passphrase of SRT, 10 to 80 characters; empty: none"),
    key("srt.pbkeylen", "16", "Key length of outgoing SRT connections with a passphrase: 16, 24 or 32"),
    key("srt.latency_ms", "120", "SRT latency in milliseconds; the peer may ask for more"),
    key("srt.latency_max_ms", "8000", "The most that a peer may ask for"),
    key("appIngestsSrtStreamsWithoutStreamId", "LiveApp", "Application of SRT streams without a stream id"),
    key("server.origin_port", "5000", "Port between nodes"),
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
    key("server.min_free_ram", "10", "Kept for older files; not used"),
    key("server.cpu_measurement_period_ms", "1000", "Kept for older files; not used"),
    key("server.cpu_measurement_window_size", "5", "Kept for older files; not used"),
    key("server.trusted_proxies", "", "Address rules of proxies whose X-Forwarded-For counts; empty: none"),
    key("server.cors_origins", "", "Origins that may use the management API from a browser"),
    explicit(
        "server.allowed_dashboard_CIDR",
        "0.0.0.0/0",
        "Address rules of the management API and /metrics; not set: loopback until a user exists",
    ),
    key("server.jwtServerControlEnabled", "false", "Signed tokens for the management API"),
    secret("server.jwtServerSecretKey", "", "Secret of those tokens, at least 32 characters"),
    key("server.jwksURL", "", "Key set of those tokens"),
    secret("server.licence_key", "", "Kept for older files; not used"),
    key("server.heartbeatEnabled", "true", "Kept for older files; not used"),
    key("server.statusWebHookURL", "", "Hook for high resource usage"),
    key("outbound.deny", "", "Address rules that restreaming never connects to"),
    key("limits.broadcasts", "100000", "Broadcast records of all applications"),
    key("limits.endpoints", "16", "Restreaming endpoints of one broadcast"),
    key("limits.pulls", "500", "Stream sources that run at a time"),
    key("limits.connections", "20000", "Open connections"),
    key("limits.connections_per_address", "1000", "Unauthenticated connections of one address"),
    key("limits.unauthenticated", "4096", "Unauthenticated connections"),
    key(
        "limits.new_connections_per_second",
        "100",
        "New unauthenticated connections of one address per second",
    ),
    key("limits.new_connections_burst", "200", "How many of those may come at once"),
    key("limits.exempt_loopback", "true", "Whether loopback addresses are free of the limits per address"),
    key("metrics.per_stream", "false", "Figures of each stream in /metrics"),
    key("useGlobalIp", "false", "Kept for older files; not used"),
    key("nodeGroup", "default", "Group of nodes"),
    key("logLevel", "INFO", "ERROR, WARN, INFO, DEBUG or TRACE"),
    key("logFormat", "text", "text, or json: one object per line"),
    key("nativeLogLevel", "ERROR", "Kept for older files; not used"),
    key("clusterdb.host", "localhost", "Kept for older files; not used"),
    key("clusterdb.user", "", "Kept for older files; not used"),
    secret("clusterdb.password", "", "Kept for older files; not used"),
];

/// Keys of `webapps/{app}/WEB-INF/red5-web.properties`.
pub const APP: &[Key] = &[
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
    key("jwksURL", "", "Key set of those tokens"),
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
    key("hashControlPublishEnabled", "false", "Hash control for publishers"),
    key("hashControlPlayEnabled", "false", "Hash control for viewers"),
    secret("tokenHashSecret", "", "Secret of the hash control"),
    key("webhookAuthenticateURL", "", "Hook that admits publishers"),
    key("webhookPlayAuthUrl", "", "Hook that admits viewers"),
    key("listenerHookURL", "", "Hook of stream events"),
    key("webhookRetryCount", "0", "Retries of a hook"),
    key("webhookRetryAttemptDelay", "1000", "Milliseconds between them"),
    key("webhookContentType", "application/json", "Content type of hooks"),
    key("webhookStreamStatusUpdatePeriodMs", "-1", "Period of the status hook in milliseconds; -1: off"),
    key("dataChannelEnabled", "true", "WebRTC data channels"),
    key("dataChannelPlayerDistribution", "all", "Who gets viewers' messages: none, publisher, all"),
    key("dataChannelWebHookURL", "", "Hook of data channel messages"),
    key("hlsMuxingEnabled", "true", "HLS"),
    key("hlsTime", "2", "Segment duration in seconds"),
    key("hlsListSize", "15", "Segments in the playlist"),
    key("hlsPlayListType", "", "event, vod or empty"),
    key("hlsSegmentType", "mpegts", "mpegts or fmp4"),
    key("hlsSegmentFileSuffixFormat", "%09d", "Suffix of segment files"),
    key("hlsflags", "delete_segments+program_date_time", "Flags of the playlist"),
    key("deleteHLSFilesOnEnded", "true", "Delete HLS files at the end"),
    key("addDateTimeToHlsFileName", "false", "Date in HLS file names"),
    key("addOriginalMuxerIntoHLSPlaylist", "true", "Source rendition in the HLS playlist"),
    key("hlsHttpEndpoint", "", "Push HLS by HTTP to this address"),
    key("hlsEncryptionKeyInfoFile", "", "Key file of HLS encryption"),
    key("hlsEnableLowLatency", "false", "Low latency HLS"),
    key("dashEnableLowLatency", "true", "Low latency DASH"),
    key("hlsEnabledViaDash", "false", "HLS playlist over DASH segments"),
    key("dashMuxingEnabled", "false", "DASH"),
    key("dashSegDuration", "6", "Segment duration in seconds"),
    key("dashFragmentDuration", "0.5", "Fragment duration in seconds"),
    key("dashWindowSize", "5", "Segments in the manifest"),
    key("dashExtraWindowSize", "5", "Segments kept beyond the manifest"),
    key("dashTargetLatency", "3.5", "Target latency in seconds"),
    key("deleteDASHFilesOnEnded", "true", "Delete DASH files at the end"),
    key("mp4MuxingEnabled", "false", "Record to MP4"),
    key("webMMuxingEnabled", "false", "Record to WebM"),
    key("addDateTimeToMp4FileName", "false", "Date in MP4 file names"),
    key("fileNameFormat", "%r%b", "Format of file names"),
    key("subFolder", "", "Folder below streams"),
    key("recordingSubfolder", "", "Folder of recordings"),
    key("muxerFinishScript", "", "Kept for older files; scripts are never run"),
    key("vodUploadFinishScript", "", "Kept for older files; scripts are never run"),
    key("streamStartedScript", "", "Kept for older files; scripts are never run"),
    key("streamEndedScript", "", "Kept for older files; scripts are never run"),
    key("streamIdleTimeoutScript", "", "Kept for older files; scripts are never run"),
    key("s3RecordingEnabled", "false", "Upload recordings to S3"),
    secret("s3AccessKey", "", "S3 access key"),
    secret("s3SecretKey", "", "S3 secret key"),
    key("s3BucketName", "", "S3 bucket"),
    key("s3RegionName", "", "S3 region"),
    key("s3Endpoint", "", "S3 endpoint"),
    key("s3StreamsFolderPath", "streams", "S3 folder of streams"),
    key("s3PreviewsFolderPath", "previews", "S3 folder of previews"),
    key("s3Permission", "public-read", "S3 permission"),
    key("s3StorageClass", "STANDARD", "S3 storage class"),
    key("uploadExtensionsToS3", "7", "What is uploaded: 1 MP4, 2 HLS, 4 preview"),
    key("webRTCEnabled", "true", "WebRTC"),
    key("webRTCFrameRate", "30", "Kept for older files; not used"),
    key("webRTCPortRangeMin", "50000", "Kept for older files; see webrtc.port"),
    key("webRTCPortRangeMax", "60000", "Kept for older files; see webrtc.port"),
    key("stunServerURI", "stun:stun1.l.google.com:19302", "STUN server told to browsers"),
    key("turnServerUsername", "", "TURN user told to browsers"),
    secret("turnServerCredential", "", "TURN password told to browsers"),
    key("webRTCTcpCandidatesEnabled", "false", "ICE candidates over TCP"),
    key("webRTCClientStartTimeoutMs", "10000", "Milliseconds a WebRTC client has to start"),
    key("webRTCKeyframeTime", "2000", "Milliseconds between key frames asked for"),
    key("replaceCandidateAddrWithServerAddr", "false", "Offer the server's name as candidate"),
    key("disableIPv6Candidates", "true", "No IPv6 candidates"),
    key("iceGatheringTimeoutMs", "2000", "Milliseconds to gather candidates"),
    key("dropWebRTCIngestIfNoPacketReceived", "false", "Drop WebRTC publishers that send nothing"),
    key("h264Enabled", "true", "H.264"),
    key("vp8Enabled", "false", "VP8"),
    key("h265Enabled", "false", "H.265"),
    key("av1Enabled", "false", "AV1"),
    key("encoderSettingsString", "", "Kept for older files; nothing is transcoded"),
    key("encoderSettings", "", "Kept for older files; nothing is transcoded"),
    key("useOriginalWebRTCEnabled", "false", "Kept for older files; nothing is transcoded"),
    key("gopSize", "0", "Kept for older files; nothing is transcoded"),
    key("encoderName", "", "Kept for older files; nothing is transcoded"),
    key("encoderSelectionPreference", "gpu_and_cpu", "Kept for older files; nothing is transcoded"),
    key("generatePreview", "false", "Kept for older files; not used"),
    key("createPreviewPeriod", "5000", "Kept for older files; not used"),
    key("previewHeight", "480", "Kept for older files; not used"),
    key("previewFormat", "png", "Kept for older files; not used"),
    key("previewOverwrite", "false", "Kept for older files; not used"),
    key("startStreamFetcherAutomatically", "false", "Pull stream sources at start"),
    key("restartStreamFetcherPeriod", "0", "Seconds after which a pull is restarted; 0: never"),
    key("streamFetcherBufferTime", "0", "Kept for older files; not used"),
    key("rtspPullTransportType", "3", "Transport of RTSP pulls"),
    key("rtspTimeoutDurationMs", "5000", "Timeout of RTSP pulls in milliseconds"),
    explicit(
        "endpointRepublishLimit",
        "3",
        "Tries after which restreaming gives up; unset or negative: never",
    ),
    key("endpointHealthCheckPeriodMs", "2000", "Kept for older files; not used"),
    key("rtmpPlaybackEnabled", "true", "RTMP playback"),
    key("rtmpIngestBufferTimeMs", "0", "Kept for older files; not used"),
    secret("srtPassphrase", "", "SRT passphrase of this application; empty: srt.passphrase"),
    key("srtPlaybackEnabled", "true", "Viewers over SRT"),
    explicit("srtReceiveLatencyInMs", "150", "SRT latency of this application; unset: srt.latency_ms"),
    key("maxAnalyzeDurationMS", "1500", "Kept for older files; not used"),
    key("maxResolutionAccept", "0", "Highest accepted picture height; 0: any"),
    key("maxFpsAccept", "0", "Kept for older files; not used"),
    key("maxBitrateAccept", "0", "Kept for older files; not used"),
    key("writeStatsToDatastore", "true", "Viewer counts in broadcast records"),
    key("writeSubscriberEventsToDatastore", "false", "Store events of subscribers"),
    key("id3TagEnabled", "false", "ID3 tags in HLS"),
    key("httpForwardingExtension", "", "Extensions forwarded elsewhere"),
    key("httpForwardingBaseURL", "", "Where they are forwarded to"),
    key("contentSecurityPolicyHeaderValue", "", "Content-Security-Policy of the application"),
    key("maxVideoTrackCount", "-1", "Video tracks of a room; -1: no limit"),
    key("maxAudioTrackCount", "-1", "Audio tracks of a room; -1: no limit"),
    key("playWebRTCStreamOnceForEachSession", "true", "Kept for older files; not used"),
    key("participantVisibilityMatrix", "", "Kept for older files; not used"),
    key("customSettings", "{}", "Free JSON"),
    key("encoderParameters", "{}", "Kept for older files; nothing is transcoded"),
    key("appName", "", "Kept for older files; the folder's name counts"),
    key("updateTime", "0", "Kept for older files; not used"),
    key("appStatus", "installed", "Kept for older files; not used"),
    secret("clusterCommunicationKey", "", "Secret between nodes"),
    secret("subscriberAuthenticationKey", "", "Secret of subscribers' tokens"),
    key("db.type", "mapdb", "Kept for older files; the store is one file below data"),
    key("db.name", "", "Kept for older files; not used"),
    key("db.host", "", "Kept for older files; not used"),
    key("db.user", "", "Kept for older files; not used"),
    secret("db.password", "", "Kept for older files; not used"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_texts_fit_one_line() {
        for table in [SERVER, APP] {
            for (index, key) in table.iter().enumerate() {
                assert!(table[..index].iter().all(|k| k.name != key.name), "{}", key.name);
                assert!(!key.comment.is_empty() && !key.comment.contains('\n'));
                assert!(!key.secret || key.default.is_empty(), "C-02: no default secret, {}", key.name);
            }
        }
    }
}
