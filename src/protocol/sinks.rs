//! Sinks: consumers of streams that are not connections, such as recorders. Each is declared in the entry of its
//! protocol ([`super::registry`]).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;

use super::tailored::Tailored;
use super::{Session, registry};
use crate::config::AppSettings;
use crate::jobs::ArchiveWork;
use crate::mail::{Progress, RecordingOrder, StreamDetails};
use crate::types::{Now, StreamId, StreamKey};

/// The parameters of a new sink.
#[derive(Debug, Clone)]
pub struct SinkOrder {
    /// Id of the stream.
    pub stream: StreamId,
    /// Name of the sink's kind.
    pub kind: &'static str,
    /// Key of the stream.
    pub key: StreamKey,
    /// Settings of the application, as they are when the sink begins.
    pub settings: Arc<AppSettings>,
    /// The members of the stream's record that workers use.
    pub details: StreamDetails,
    /// The recording, if control has ordered one.
    pub recording: Option<RecordingOrder>,
}

/// Parameters of a request by name.
pub type Query = [(String, String)];

/// The meaning of request parameters for the blobs of a sink.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// Returns the segment and part that a growing playlist must have reached to answer the request; `None` if the
    /// parameters require none.
    pub wants: fn(&Query) -> Option<Progress>,
    /// Returns the name of the blob to serve instead of the named one; `None` to serve the named one.
    pub in_place: fn(&str, &Query) -> Option<String>,
    /// Returns the protocol under which the requester of the blob counts as a viewer; `None` for the protocol of the
    /// blob itself.
    pub viewers: fn(&AppSettings, &str, &Query) -> Option<&'static str>,
    /// Returns the form of a blob for one viewer, at this date in milliseconds on the blob's clock; `None` to serve the
    /// blob itself. Called also for requests without parameters.
    pub tailor: fn(&Requested<'_>, &Bytes, u64) -> Option<Tailored>,
    /// Returns the part of a playlist that the parameters select, with the dates of its segments even if viewers are not
    /// told them. `None` if the blob has no parts.
    pub dated: fn(&Requested<'_>, &Bytes) -> Option<Tailored>,
    /// Returns the status and text of a refusal if the parameters are invalid or too long to be repeated.
    pub refuse: fn(&Requested<'_>) -> Option<(u16, &'static str)>,
}

/// A requested blob.
#[derive(Debug, Clone, Copy)]
pub struct Requested<'a> {
    /// The application.
    pub app: &'a AppSettings,
    /// The path below the application's `streams`.
    pub name: &'a str,
    /// Parameters of the request.
    pub query: &'a Query,
}

impl Params {
    /// For sinks whose requests have no parameters with a meaning.
    pub const NONE: Self = Self {
        wants: |_| None,
        in_place: |_, _| None,
        viewers: |_, _, _| None,
        tailor: |_, _, _| None,
        dated: |_, _| None,
        refuse: |_| None,
    };
}

/// A folder of each application, beside `streams`, whose files are blobs of sinks. The folder has no subfolders.
#[derive(Debug, PartialEq, Eq)]
pub struct BlobRoot {
    /// Name of the folder.
    pub name: &'static str,
    /// The extension of a stream's picture, after the stream's id, if the folder has pictures.
    pub picture: Option<&'static str>,
}

impl BlobRoot {
    /// Returns the name of a blob in the folder, relative to `streams`. No request can have such a path.
    pub(super) fn blob(&self, file: &str) -> String {
        format!("../{}/{file}", self.name)
    }

    /// Returns the file in the folder to which a blob's name refers.
    pub(super) fn file<'n>(&self, blob: &'n str) -> Option<&'n str> {
        blob.strip_prefix("../")?.strip_prefix(self.name)?.strip_prefix('/')
    }
}

/// A kind of sink.
pub struct SinkKind {
    /// The name, in orders and logs.
    pub name: &'static str,
    /// Returns true if an application enables the sink.
    pub is_enabled: fn(&AppSettings) -> bool,
    /// Returns the id of the stream for which a request for this blob (a path below the application's `streams`) begins
    /// the sink. `None` if the sink makes no such blob, or is begun by another request.
    pub stream_of: for<'n> fn(&AppSettings, &'n str) -> Option<&'n str>,
    /// The folder, beside `streams`, of the sink's blobs; `None` if they are in `streams` itself.
    pub root: Option<&'static BlobRoot>,
    /// Returns the stream to which a file of this name, below the application's `streams`, belongs: a file that the
    /// sink has made and that is no longer in memory.
    pub file_of: for<'n> fn(&AppSettings, &'n str) -> Option<&'n str>,
    /// Returns the path below `webapps` at which a file of [`SinkKind::file_of`] is kept, if that differs from the path
    /// in its name. The first parameter is the application's name.
    pub kept_at: fn(&str, &AppSettings, &str) -> Option<Vec<String>>,
    /// Returns the work that removes everything that the sink keeps of an ended stream. The parameters are the
    /// application with its settings, and the name of the stream's playlists without extension.
    pub forgets: fn(&str, &AppSettings, &str) -> Option<ArchiveWork>,
    /// Returns true if the sink begins with the stream, because its output is wanted before any request.
    pub begins_with_stream: fn(&AppSettings, &StreamDetails) -> bool,
    /// Returns true if a change from the first settings to the second ends the sink immediately and withdraws its
    /// output, because the output is no longer protected as the application requires. Other changes apply only to sinks
    /// that begin later.
    pub is_outdated: fn(&AppSettings, &AppSettings) -> bool,
    /// Returns the playlist that announces this blob before it exists, and the segment and part that the playlist has
    /// reached once the blob exists. `None` if the blob is announced only once it exists.
    pub part_of: fn(&AppSettings, &str) -> Option<(String, Progress)>,
    /// Set if the sink makes renditions of a ladder. A request then begins the sink for all streams of the ladder, if
    /// there is more than one rendition, or if the function returns true because the list of a single rendition names
    /// more than that rendition, such as subtitles.
    pub ladder: Option<fn(&AppSettings) -> bool>,
    /// True if requests for the sink's blobs do not count as watching the stream, and start no stream.
    pub is_glance: bool,
    /// Returns the protocol under which viewers of this blob are counted while the blob does not exist yet.
    pub viewers: fn(&str) -> &'static str,
    /// The meaning of request parameters.
    pub params: Params,
    /// Creates the session for one stream. The session subscribes to the stream by
    /// [`super::SubscriptionEvent::Attach`].
    pub begin: fn(Now, &SinkOrder, Seed) -> Box<dyn Session>,
}

impl fmt::Debug for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the kinds of sinks that an application has.
fn enabled(app: &AppSettings) -> impl Iterator<Item = &'static SinkKind> {
    registry::sinks().filter(|kind| (kind.is_enabled)(app))
}

/// Returns the kind of sink that a request for this blob begins, and the stream id.
#[must_use]
pub fn maker_of<'n>(app: &AppSettings, blob: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    enabled(app).find_map(|kind| Some((kind, (kind.stream_of)(app, blob)?)))
}

/// Like [`maker_of`], without sinks of ladders, because a stream's name may look like a ladder's.
#[must_use]
pub fn plain_maker_of<'n>(app: &AppSettings, blob: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    let mut plain = enabled(app).filter(|kind| kind.ladder.is_none());
    plain.find_map(|kind| Some((kind, (kind.stream_of)(app, blob)?)))
}

/// Returns the kind of sink that makes a blob or a file of this name, and the stream id.
#[must_use]
pub fn owner_of<'n>(app: &AppSettings, name: &'n str) -> Option<(&'static SinkKind, &'n str)> {
    maker_of(app, name).or_else(|| enabled(app).find_map(|kind| Some((kind, (kind.file_of)(app, name)?))))
}

/// Returns the path below `webapps` of a file that a sink keeps, if it differs from the path in its name.
#[must_use]
pub fn kept_at(app: &str, settings: &AppSettings, name: &str) -> Option<Vec<String>> {
    enabled(settings).find_map(|kind| (kind.kept_at)(app, settings, name))
}

/// Returns the work that removes everything kept of a deleted stream ([`SinkKind::forgets`]), also by sinks that the
/// application has switched off since.
pub fn forgets(app: &str, settings: &AppSettings, stem: &str) -> impl Iterator<Item = ArchiveWork> {
    registry::sinks().filter_map(move |kind| (kind.forgets)(app, settings, stem))
}

/// Returns the kinds of sinks that begin with a stream.
pub fn begun_with_stream(
    app: &AppSettings,
    details: &StreamDetails,
) -> impl Iterator<Item = &'static SinkKind> {
    enabled(app).filter(|kind| (kind.begins_with_stream)(app, details))
}

/// Returns the kinds of sinks that a change of an application's settings ends immediately ([`SinkKind::is_outdated`]).
#[must_use]
pub fn outdated(former: &AppSettings, new: &AppSettings) -> Arc<[&'static str]> {
    registry::sinks().filter(|kind| (kind.is_outdated)(former, new)).map(|kind| kind.name).collect()
}

/// Returns true if an application has sinks of this kind.
#[must_use]
pub fn is_enabled(app: &AppSettings, kind: &str) -> bool {
    enabled(app).any(|enabled| enabled.name == kind)
}

/// Returns the playlist that announces a blob before it exists, and the segment and part that the playlist has
/// reached once the blob exists.
#[must_use]
pub fn part_of(app: &AppSettings, blob: &str) -> Option<(String, Progress)> {
    enabled(app).find_map(|kind| (kind.part_of)(app, blob))
}

/// Returns the meanings of request parameters for the sinks of an application; none if the request has no parameters.
fn params<'a>(app: &'a AppSettings, query: &'a Query) -> impl Iterator<Item = &'static Params> + 'a {
    enabled(app).filter(|_| !query.is_empty()).map(|kind| &kind.params)
}

/// Returns the segment and part that a growing playlist must have reached to answer a request.
#[must_use]
pub fn wanted(app: &AppSettings, query: &Query) -> Option<Progress> {
    params(app, query).find_map(|params| (params.wants)(query))
}

/// Returns the blob to serve instead of the named one, by the parameters of the request; `None` for the named one.
#[must_use]
pub fn in_place(app: &AppSettings, name: &str, query: &Query) -> Option<String> {
    params(app, query).find_map(|params| (params.in_place)(name, query))
}

/// Returns the protocol under which the requester of a blob counts as a viewer, by the parameters of the request;
/// `None` for the protocol of the blob itself.
#[must_use]
pub fn viewers(app: &AppSettings, name: &str, query: &Query) -> Option<&'static str> {
    params(app, query).find_map(|params| (params.viewers)(app, name, query))
}

/// Returns the form of a blob for one viewer, by the parameters of its request and the date on the blob's clock; `None`
/// for the blob itself.
#[must_use]
pub fn tailored(requested: &Requested<'_>, blob: &Bytes, date_ms: u64) -> Option<Tailored> {
    enabled(requested.app).find_map(|kind| (kind.params.tailor)(requested, blob, date_ms))
}

/// Returns the part of a playlist that a request selects, with the dates of its segments.
#[must_use]
pub fn dated(requested: &Requested<'_>, blob: &Bytes) -> Option<Tailored> {
    params(requested.app, requested.query).find_map(|params| (params.dated)(requested, blob))
}

/// Returns the status and text if a request must be refused for its parameters.
#[must_use]
pub fn refusal(requested: &Requested<'_>) -> Option<(u16, &'static str)> {
    params(requested.app, requested.query).find_map(|params| (params.refuse)(requested))
}

/// Returns the kind of sink with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static SinkKind> {
    registry::sinks().find(|kind| kind.name == name)
}
