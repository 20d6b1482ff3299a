//! Sinks: consumers of streams that are no connections, such as recorders. Each is a folder and a row here.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;

use super::Session;
use crate::config::AppSettings;
use crate::mail::{Progress, RecordingOrder, StreamDetails};
use crate::types::{Now, StreamId, StreamKey};

/// The parameters of a new sink.
#[derive(Debug, Clone)]
pub struct SinkOrder {
    /// The stream's number.
    pub stream: StreamId,
    /// The stream that it takes.
    pub key: StreamKey,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
    /// What the record of the stream says.
    pub details: StreamDetails,
    /// What is to be recorded where, of a sink that control has ordered.
    pub recording: Option<RecordingOrder>,
}

/// See [`SinkKind::tailor`]: the name, the content, the parameters.
pub type Tailor = fn(&str, &Bytes, &[(String, String)]) -> Option<Bytes>;

/// A kind of sink.
pub struct SinkKind {
    /// The name, in orders and logs.
    pub name: &'static str,
    /// Whether an application has it.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// The stream for which a request for this blob begins the sink: what is below the application's `streams`. `None`: it
    /// makes no such blob, or another request begins it.
    pub stream_of: fn(&str) -> Option<&str>,
    /// Whether it begins with the stream: what it makes is wanted before anybody asks.
    pub begins_with_stream: fn(&AppSettings, &StreamDetails) -> bool,
    /// The blob that announces this one, and how far that is when this one is there. `None`: it is announced when it is there.
    pub part_of: fn(&str) -> Option<(String, Progress)>,
    /// The protocol that viewers of this blob are counted under, before it is there.
    pub viewers: fn(&str) -> &'static str,
    /// What one viewer is sent in place of a blob with this name and content, by the parameters of its request. `None`: the blob.
    pub tailor: Tailor,
    /// Creates the session of one stream. It asks for its tracks by [`super::Event::Attach`].
    pub begin: fn(Now, &SinkOrder, Seed) -> Box<dyn Session>,
}

impl fmt::Debug for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The sinks of this build.
static SINKS: &[&SinkKind] = &[
    &super::hls::sink::KIND,
    &super::hls::cmaf::TOGETHER,
    &super::hls::cmaf::APART,
    &super::mp4::sink::KIND,
    #[cfg(test)]
    &super::samples::file_sink::KIND,
];

/// The kind of sink that a request for this blob of the application begins, and the id of the stream.
#[must_use]
pub fn maker_of<'n>(app: &AppSettings, blob: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    SINKS.iter().filter(|kind| (kind.is_enabled)(app)).find_map(|kind| Some((*kind, (kind.stream_of)(blob)?)))
}

/// The kinds of sinks that begin with a stream.
pub fn begun_with_stream(
    app: &AppSettings,
    details: &StreamDetails,
) -> impl Iterator<Item = &'static SinkKind> {
    let enabled = SINKS.iter().copied().filter(|kind| (kind.is_enabled)(app));
    enabled.filter(|kind| (kind.begins_with_stream)(app, details))
}

/// The blob that announces this one before it is there, and how far that is when it is.
#[must_use]
pub fn part_of(app: &AppSettings, blob: &str) -> Option<(String, Progress)> {
    SINKS.iter().filter(|kind| (kind.is_enabled)(app)).find_map(|kind| (kind.part_of)(blob))
}

/// What one viewer is sent in place of a blob, by the parameters of its request. `None`: the blob.
#[must_use]
pub fn tailored(app: &AppSettings, name: &str, blob: &Bytes, query: &[(String, String)]) -> Option<Bytes> {
    if query.is_empty() {
        return None;
    }
    let enabled = SINKS.iter().filter(|kind| (kind.is_enabled)(app));
    enabled.map(|kind| (kind.tailor)(name, blob, query)).find_map(|own| own)
}

/// The kind of sink with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static SinkKind> {
    SINKS.iter().find(|kind| kind.name == name).copied()
}
