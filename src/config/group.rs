//! Topics of settings. Each row in the tables of keys names its topic.

/// A topic of settings, under which people look for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(&'static str);

/// Checks of publishers, viewers and users: tokens, addresses, codes.
pub(crate) const ACCESS: Group = Group::new("access");
/// Audio that is transcoded for viewers.
pub(crate) const AUDIO: Group = Group::new("audio");
/// Clusters of several servers.
pub(crate) const CLUSTER: Group = Group::new("cluster");
/// DASH.
pub(crate) const DASH: Group = Group::new("dash");
/// Delivery of units to viewers of every protocol.
pub(crate) const DELIVERY: Group = Group::new("delivery");
/// HLS.
pub(crate) const HLS: Group = Group::new("hls");
/// HTTP, certificates and proxies.
pub(crate) const HTTP: Group = Group::new("http");
/// Limits.
pub(crate) const LIMITS: Group = Group::new("limits");
/// Log, store and the machine.
pub(crate) const OPERATION: Group = Group::new("operation");
/// Recordings and uploads.
pub(crate) const RECORDING: Group = Group::new("recording");
/// Rooms and data channels.
pub(crate) const ROOMS: Group = Group::new("rooms");
/// Object storage.
pub(crate) const S3: Group = Group::new("s3");
/// Streams that are pulled or pushed.
pub(crate) const SOURCES: Group = Group::new("sources");
/// Transcoding of video, which only Ant Media Server does, and previews.
pub(crate) const TRANSCODING: Group = Group::new("transcoding");
/// HTTP calls to other servers.
pub(crate) const WEBHOOKS: Group = Group::new("webhooks");
/// WebRTC.
pub(crate) const WEBRTC: Group = Group::new("webrtc");

impl Group {
    /// Creates a group with the name shown by the API.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}
