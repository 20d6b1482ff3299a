//! Sinks: consumers of streams that are no connections, such as recorders. Each is a folder and a row here.

use std::fmt;
use std::sync::Arc;

use crypto::Seed;

use super::Session;
use crate::config::AppSettings;
use crate::mail::RecordingOrder;
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
    /// What is to be recorded where, of a sink that control has ordered.
    pub recording: Option<RecordingOrder>,
}

/// A kind of sink.
pub struct SinkKind {
    /// The name, in orders and logs.
    pub name: &'static str,
    /// Whether an application has it.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// The stream for which a request for this blob begins the sink: what is below the application's `streams`. `None`: it
    /// makes no such blob, or another request begins it.
    pub stream_of: fn(&str) -> Option<&str>,
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
    &super::mp4::sink::KIND,
    #[cfg(test)]
    &super::samples::file_sink::KIND,
];

/// The kind of sink that a request for this blob of the application begins, and the id of the stream.
#[must_use]
pub fn maker_of<'n>(app: &AppSettings, blob: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    SINKS.iter().filter(|kind| (kind.is_enabled)(app)).find_map(|kind| Some((*kind, (kind.stream_of)(blob)?)))
}

/// The kind of sink with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static SinkKind> {
    SINKS.iter().find(|kind| kind.name == name).copied()
}
