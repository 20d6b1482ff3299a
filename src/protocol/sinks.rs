//! Sinks: consumers of streams that are no connections, such as recorders. Each stands in the row of its folder ([`super::registry`]).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;

use super::tailored::Tailored;
use super::{Session, registry};
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
    /// The members of the stream's record that workers use.
    pub details: StreamDetails,
    /// The recording, of a sink that control has ordered.
    pub recording: Option<RecordingOrder>,
}

/// Parameters of a request, by their names.
pub type Query = [(String, String)];

/// The meaning of parameters of a request to the blobs of a sink.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// The progress that the parameters want of a blob that grows. `None`: as it is.
    pub wants: fn(&Query) -> Option<Progress>,
    /// The name of the blob that is given in place of one with this name. `None`: that one.
    pub in_place: fn(&str, &Query) -> Option<String>,
    /// The protocol that the requester of the blob with this name counts as a viewer of. `None`: that of the
    /// blob.
    pub viewers: fn(&AppSettings, &str, &Query) -> Option<&'static str>,
    /// The form for one viewer of a blob, at this date by the blob's calendar, in milliseconds. `None`: the blob. Asked for
    /// requests without parameters, too.
    pub tailor: fn(&Requested<'_>, &Bytes, u64) -> Option<Tailored>,
    /// The status and the text with which the parameters are refused: they make no sense, or are too long to be repeated.
    pub refuse: fn(&Requested<'_>) -> Option<(u16, &'static str)>,
}

/// A blob that is requested.
#[derive(Debug, Clone, Copy)]
pub struct Requested<'a> {
    /// The application.
    pub app: &'a AppSettings,
    /// The name below the application's `streams`.
    pub name: &'a str,
    /// Parameters of the request.
    pub query: &'a Query,
}

impl Params {
    /// Parameters that mean nothing.
    pub const NONE: Self = Self {
        wants: |_| None,
        in_place: |_, _| None,
        viewers: |_, _, _| None,
        tailor: |_, _, _| None,
        refuse: |_| None,
    };
}

/// A kind of sink.
pub struct SinkKind {
    /// The name, in orders and logs.
    pub name: &'static str,
    /// Whether an application has it.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// The stream for which a request for this blob begins the sink: what is below the application's `streams`. `None`: it
    /// makes no such blob, or another request begins it.
    pub stream_of: for<'n> fn(&AppSettings, &'n str) -> Option<&'n str>,
    /// The stream that a file of this name, below the application's `streams`, is a part of: what it made, and memory has no longer.
    pub file_of: for<'n> fn(&AppSettings, &'n str) -> Option<&'n str>,
    /// Whether it begins with the stream: what it makes is wanted before anybody asks.
    pub begins_with_stream: fn(&AppSettings, &StreamDetails) -> bool,
    /// The blob that announces this one, and how far that is when this one is there. `None`: it is announced when it is there.
    pub part_of: fn(&str) -> Option<(String, Progress)>,
    /// Whether it makes renditions of a ladder: a request begins it for all streams of that, if there is more than one rendition.
    pub is_of_ladder: bool,
    /// The protocol that viewers of this blob are counted under, before it is there.
    pub viewers: fn(&str) -> &'static str,
    /// The meaning of parameters of a request.
    pub params: Params,
    /// Creates the session of one stream. It asks for its tracks by [`super::SubscriptionEvent::Attach`].
    pub begin: fn(Now, &SinkOrder, Seed) -> Box<dyn Session>,
}

impl fmt::Debug for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The kinds of sinks that an application has.
fn enabled(app: &AppSettings) -> impl Iterator<Item = &'static SinkKind> {
    registry::sinks().filter(|kind| (kind.is_enabled)(app))
}

/// The kind of sink that a request for this blob of the application begins, and the id of the stream.
#[must_use]
pub fn maker_of<'n>(app: &AppSettings, blob: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    enabled(app).find_map(|kind| Some((kind, (kind.stream_of)(app, blob)?)))
}

/// The same, without the renditions of ladders: a stream may have a name that could be a ladder's.
#[must_use]
pub fn plain_maker_of<'n>(app: &AppSettings, blob: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    let mut plain = enabled(app).filter(|kind| !kind.is_of_ladder);
    plain.find_map(|kind| Some((kind, (kind.stream_of)(app, blob)?)))
}

/// The kind of sink that makes a blob or a file of this name, and the id of the stream that it is of.
#[must_use]
pub fn owner_of<'n>(app: &AppSettings, name: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    maker_of(app, name).or_else(|| enabled(app).find_map(|kind| Some((kind, (kind.file_of)(app, name)?))))
}

/// The kinds of sinks that begin with a stream.
pub fn begun_with_stream(
    app: &AppSettings,
    details: &StreamDetails,
) -> impl Iterator<Item = &'static SinkKind> {
    enabled(app).filter(|kind| (kind.begins_with_stream)(app, details))
}

/// The blob that announces this one before it is there, and how far that is when it is.
#[must_use]
pub fn part_of(app: &AppSettings, blob: &str) -> Option<(String, Progress)> {
    enabled(app).find_map(|kind| (kind.part_of)(blob))
}

/// The meanings of the parameters of a request to the sinks of an application.
fn params<'a>(app: &'a AppSettings, query: &'a Query) -> impl Iterator<Item = &'static Params> + 'a {
    enabled(app).filter(|_| !query.is_empty()).map(|kind| &kind.params)
}

/// The progress that a request wants of a blob that grows.
#[must_use]
pub fn wanted(app: &AppSettings, query: &Query) -> Option<Progress> {
    params(app, query).find_map(|params| (params.wants)(query))
}

/// The blob that is given in place of one with this name, by the parameters of the request. `None`: that one.
#[must_use]
pub fn in_place(app: &AppSettings, name: &str, query: &Query) -> Option<String> {
    params(app, query).find_map(|params| (params.in_place)(name, query))
}

/// The protocol that the requester of a blob counts as a viewer of, by the parameters of the request. `None`: that
/// of the blob.
#[must_use]
pub fn viewers(app: &AppSettings, name: &str, query: &Query) -> Option<&'static str> {
    params(app, query).find_map(|params| (params.viewers)(app, name, query))
}

/// The form of a blob for one viewer, by the parameters of its request and the date by the blob's calendar. `None`: the blob.
#[must_use]
pub fn tailored(requested: &Requested<'_>, blob: &Bytes, date_ms: u64) -> Option<Tailored> {
    enabled(requested.app).find_map(|kind| (kind.params.tailor)(requested, blob, date_ms))
}

/// The status and the text with which a request is refused for its parameters.
#[must_use]
pub fn refusal(requested: &Requested<'_>) -> Option<(u16, &'static str)> {
    params(requested.app, requested.query).find_map(|params| (params.refuse)(requested))
}

/// The kind of sink with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static SinkKind> {
    registry::sinks().find(|kind| kind.name == name)
}
