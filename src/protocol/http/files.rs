//! Files below `webapps`, and the built-in pages: how a path names a file, and how the file is sent.
//!
//! A transfer has three steps. 1. A helper thread opens the file ([`FileAsk::Open`]). 2. The conditions and the range
//! of the request select the bytes to send, from the file or, if there is none, from the built-in page of the same
//! name. 3. Blocks are read one at a time, the next one when few bytes are left to send. The file is closed when the
//! transfer is dropped.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::file_jobs::{BlockSource, FileAsk, FileError, FileReply, OpenedFile};
use super::polled::refusal;
use super::responder::{Link, Next, Responder};
use super::{Fields, pages};
use crate::http::{BodyLength, Connection, Request, Resource, Response, Selection, coding, media_type};
use crate::mail::Blob;
use crate::protocol::registry;
use crate::protocol::sinks::BlobRoot;
use crate::protocol::tailored::Tailored;
use crate::protocol::{Apps, Context, Event, PassAsk, Reply, RequestEvent, RequestNews};
use crate::types::Now;

/// Size of a block in bytes.
const BLOCK_BYTES: u64 = 64 * 1024;
/// Block size of files in memory, each sent with a single write. All recipients share the memory.
const MEMORY_BLOCK_BYTES: usize = 1024 * 1024;
/// The folder of the application at `/`.
const ROOT: &str = "root";
/// The folder of recordings. Its files are served, but the folder is not listed.
const STREAMS: &str = "streams";
/// Maximum length of a challenge's token.
const TOKEN_BYTES_MAX: usize = 256;
/// Name of a folder's page.
const INDEX: &str = "index.html";

/// A file below `webapps`, as named by a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePath {
    /// Path below `webapps`, beginning with the application.
    pub(super) segments: Vec<String>,
    /// The folder that contains the file, if its files may be blobs.
    root: Option<Root>,
}

/// A folder of each application. Sinks may publish blobs as its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    /// The folder `streams`, including the folders in it.
    Streams,
    /// A folder of blobs beside `streams`.
    Beside(&'static BlobRoot),
}

/// The reason a path does not name a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nowhere {
    /// The file is hidden.
    Hidden,
    /// The path is the folder of recordings itself.
    Forbidden,
}

impl FilePath {
    /// Resolves a path. The HTTP state machine has decoded it and refused ambiguous paths.
    pub(super) fn of(path: &str, apps: &Apps) -> Result<Self, Nowhere> {
        let rest = path.strip_prefix('/').ok_or(Nowhere::Hidden)?;
        let app = rest.split('/').next().unwrap_or_default();
        let is_app = apps.contains_key(app);
        let mut segments: Vec<String> = Vec::new();
        if !is_app {
            segments.push(ROOT.to_owned());
        }
        segments.extend(rest.split('/').map(str::to_owned));
        if segments.iter().any(|segment| is_hidden(segment)) {
            return Err(Nowhere::Hidden);
        }
        let root = segments.get(1).filter(|_| is_app).and_then(|name| Root::named(name, segments.len()));
        if let Some(last) = segments.last_mut()
            && last.is_empty()
        {
            if root.is_some() && segments.len() <= 3 {
                return Err(Nowhere::Forbidden);
            }
            INDEX.clone_into(segments.last_mut().ok_or(Nowhere::Hidden)?);
        }
        if root.is_some() && segments.len() == 2 {
            return Err(Nowhere::Forbidden);
        }
        Ok(Self { segments, root })
    }

    /// Returns the path of a stream's picture. `None` if there is no such application, or `id` cannot be the id of a
    /// stream.
    pub(super) fn of_picture(app: &str, id: &str, apps: &Apps) -> Option<Self> {
        let (root, ending) = registry::blob_roots().find_map(|root| Some((root, root.picture?)))?;
        let is_name = !id.is_empty() && !is_hidden(id) && !id.contains('/');
        let segments = vec![app.to_owned(), root.name.to_owned(), format!("{id}.{ending}")];
        (is_name && apps.contains_key(app)).then_some(Self { segments, root: Some(Root::Beside(root)) })
    }

    /// True if the file is below the application's `streams`, or in a folder of blobs next to `streams`.
    pub(super) const fn is_stream(&self) -> bool {
        self.root.is_some()
    }

    /// True if the file is a picture of a stream.
    pub(super) fn is_picture(&self) -> bool {
        matches!(&self.root, Some(Root::Beside(root)) if root.picture.is_some())
    }

    /// Returns the blob published under this name, unless it is too old.
    pub(super) fn blob<'b>(&self, ctx: &Context<'b>) -> Option<&'b Arc<Blob>> {
        let blob = ctx.blobs.get(self.segments.first()?, &self.name_below()?)?;
        Some(blob).filter(|blob| blob.is_fresh(ctx.now.mono))
    }

    /// Returns the URL to which the client is redirected if this server does not have the file.
    pub(super) fn elsewhere(&self, apps: &Apps) -> Option<String> {
        let forwarding = apps.get(self.segments.first()?.as_str())?.vod.forwarding.as_ref()?;
        forwarding.location(&self.segments.get(1..)?.join("/")).filter(|_| self.root == Some(Root::Streams))
    }

    /// Returns the name of the blob: its path relative to the application's `streams`.
    pub(super) fn name_below(&self) -> Option<String> {
        let below = self.segments.get(2..)?.join("/");
        Some(match self.root? {
            Root::Streams => below,
            Root::Beside(root) => root.blob(&below),
        })
    }

    fn name(&self) -> &str {
        self.segments.last().map(String::as_str).unwrap_or_default()
    }
}

impl Root {
    /// Returns the folder with this name, if a path of `segments` segments may name one of its files.
    fn named(name: &str, segments: usize) -> Option<Self> {
        if name == STREAMS {
            return Some(Self::Streams);
        }
        registry::blob_roots().find(|root| root.name == name && segments == 3).map(Self::Beside)
    }
}

/// True if a name can be the token of a challenge: letters, digits, `-` and `_` (RFC 8555 §8.3).
pub(super) fn is_challenge(name: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// True for settings, names that start with a dot, and private parts of an archive. Case is ignored, because some file
/// systems ignore it.
fn is_hidden(segment: &str) -> bool {
    segment.starts_with('.')
        || segment.eq_ignore_ascii_case("WEB-INF")
        || segment.eq_ignore_ascii_case("META-INF")
}

/// The stage of a transfer.
#[derive(Debug)]
enum Stage {
    /// The file is being opened. If `again` is set, the worker is asked once more, after the file is open, whether the
    /// viewer may have it.
    Opening {
        again: Option<Box<PassAsk>>,
    },
    /// The file is open, but the worker has not yet answered whether the viewer may have it.
    Found(OpenedFile),
    Sending {
        file: Arc<dyn BlockSource>,
        left: Range<u64>,
        asked: bool,
    },
    /// Remaining bytes of a blob in memory.
    Memory {
        left: Bytes,
    },
    /// Bytes of a blob in the form made for this viewer: `left` bytes are still to be sent, after `skip` bytes that are
    /// left out.
    Own {
        text: Box<Tailored>,
        skip: u64,
        left: u64,
    },
    Over,
}

/// The transfer that answers one request.
#[derive(Debug)]
pub(super) struct Transfer {
    request: Box<Request>,
    file_path: FilePath,
    fields: Fields,
    /// Path of the file to open if the first one does not exist.
    instead: Option<Vec<String>>,
    /// URL to redirect the client to if the file does not exist.
    elsewhere: Option<String>,
    stage: Stage,
}

impl Transfer {
    /// Begins a transfer. Returns it with its first job.
    pub(super) fn begin(mut request: Request, file_path: FilePath, fields: Fields) -> (Self, FileAsk) {
        // The body of the request is not needed, and the transfer may take hours.
        request.body = Bytes::new();
        let ask = FileAsk::Open { segments: file_path.segments.clone() };
        let stage = Stage::Opening { again: None };
        let request = Box::new(request);
        (Self { request, file_path, fields, instead: None, elsewhere: None, stage }, ask)
    }

    /// Sets the path at which a sink may keep the file; it is tried first. Returns the transfer and its first job.
    pub(super) fn kept_at(mut self, kept: Option<Vec<String>>, ask: FileAsk) -> (Self, FileAsk) {
        let Some(segments) = kept else { return (self, ask) };
        self.instead = Some(self.file_path.segments.clone());
        (self, FileAsk::Open { segments })
    }

    /// Sets the URL to redirect to if the file does not exist.
    pub(super) fn or_elsewhere(mut self, address: Option<String>) -> Self {
        self.elsewhere = address;
        self
    }

    /// Makes the transfer of the answer to an ACME challenge. Its first job is [`FileAsk::Challenge`].
    pub(super) fn of_challenge(request: Request, token: String, fields: Fields) -> Self {
        let file_path = FilePath { segments: vec![token], root: None };
        Self::begin(request, file_path, fields).0
    }

    /// Makes the transfer ask the worker once more whether the viewer may have the file, after the file is found.
    /// With `None`, the worker is not asked again.
    pub(super) fn asking_again(mut self, ask: Option<PassAsk>) -> Self {
        self.stage = Stage::Opening { again: ask.map(Box::new) };
        self
    }

    /// Handles the worker's answer to the question whether the viewer may have the file: sends the file or a refusal.
    fn found(&mut self, now: Now, connection: &mut Connection, refusal: Option<Response>) {
        match (std::mem::replace(&mut self.stage, Stage::Over), refusal) {
            (Stage::Found(opened), None) => self.opened(now, connection, opened),
            (Stage::Found(_), Some(refusal)) => drop(self.respond(now, connection, refusal)),
            (
                stage @ (Stage::Opening { .. }
                | Stage::Sending { .. }
                | Stage::Memory { .. }
                | Stage::Own { .. }
                | Stage::Over),
                _,
            ) => self.stage = stage,
        }
    }

    /// Answers with a blob, or with its form made for this viewer. Returns the transfer and the status.
    pub(super) fn of_blob(
        now: Now,
        connection: &mut Connection,
        request: Request,
        file_path: FilePath,
        fields: Fields,
        (blob, own, caching): (&Blob, Option<Tailored>, &str),
    ) -> (Self, u16) {
        let shared = u64::try_from(blob.bytes.len()).unwrap_or(u64::MAX);
        let length = own.as_ref().map_or(shared, Tailored::length);
        // The text of a live manifest states the present time.
        let calendar = blob.calendar.filter(|_| own.is_some());
        let date = calendar.map(|calendar| format!("-{:x}", calendar.date_ms(now.mono))).unwrap_or_default();
        let etag = format!("\"{:x}-{length:x}{date}\"", blob.version);
        let (body, own) = match packed(&request, blob, own) {
            (Some(body), _) => (Some(body), None),
            (None, own) => (None, own),
        };
        let resource = Resource {
            length: body.as_ref().map_or(length, |body| u64::try_from(body.len()).unwrap_or(u64::MAX)),
            etag: if body.is_some() { coding::tag_in_gzip(&etag) } else { etag },
            modified_ms: None,
            content_type: blob.content_type,
        };
        let Selection { mut head, part } = resource.select(&request);
        if coding::is_compressible(blob.content_type) {
            coding::vary(&mut head.headers);
        }
        if body.is_some() && part.is_some() {
            coding::mark(&mut head.headers);
        }
        let body = body.unwrap_or_else(|| blob.bytes.clone());
        let request = Box::new(request);
        let (instead, elsewhere, stage) = (None, None, Stage::Over);
        let mut transfer = Self { request, file_path, fields, instead, elsewhere, stage };
        let mut head = head.header("Cache-Control", caching);
        let Some(part) = part else {
            let status = transfer.respond(now, connection, head);
            return (transfer, status);
        };
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
        let left = part.end.saturating_sub(part.start);
        let stage = match own {
            Some(text) => Stage::Own { text: Box::new(text), skip: part.start, left },
            None => Stage::Memory { left: body.slice(at(part.start)..at(part.end)) },
        };
        crate::http::cors::add(&transfer.fields, &mut head.headers);
        if connection.begin(now.mono, now.wall_ms, &head, BodyLength::Known(left)) {
            transfer.stage = stage;
        }
        (transfer, head.status)
    }

    /// Sends bytes from memory until enough of them wait for the peer.
    fn pump(&mut self, now: Now, connection: &mut Connection) {
        let is_over = match &mut self.stage {
            Stage::Memory { left } => {
                while !left.is_empty() && connection.wants_body() {
                    connection.body(now.mono, left.split_to(MEMORY_BLOCK_BYTES.min(left.len())));
                }
                left.is_empty()
            }
            Stage::Own { text, skip, left } => {
                while *left > 0 && connection.wants_body() {
                    let Some(block) = text.next_block() else {
                        // The text is shorter than announced, which should not happen. End the body, because the client
                        // would wait for the rest.
                        *left = 0;
                        break;
                    };
                    if let Some(block) = part_of(block, skip, left) {
                        connection.body(now.mono, block);
                    }
                }
                *left == 0
            }
            Stage::Opening { .. } | Stage::Found(_) | Stage::Sending { .. } | Stage::Over => false,
        };
        if is_over {
            connection.end_body(now.mono);
            self.stage = Stage::Over;
        }
    }

    /// Handles the answer of the job service.
    fn reply(&mut self, now: Now, connection: &mut Connection, reply: FileReply) -> Option<Event> {
        let is_missing = matches!(reply, FileReply::Opened(Err(FileError::NotFound)));
        if let Some(segments) = self.instead.take().filter(|_| is_missing) {
            return Some(Event::Job(FileAsk::Open { segments }.into()));
        }
        match (reply, &mut self.stage) {
            (FileReply::Opened(Ok(opened)), Stage::Opening { again }) => match again.take() {
                Some(ask) => {
                    self.stage = Stage::Found(opened);
                    return Some(Event::Request(RequestEvent::Pass(ask)));
                }
                None => self.opened(now, connection, opened),
            },
            (FileReply::Opened(Err(error)), Stage::Opening { .. }) => {
                self.not_opened(now, connection, error);
            }
            (FileReply::Block(block), Stage::Sending { left, asked, .. }) => {
                *asked = false;
                left.start = left.start.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
                // An empty block means that the file has become shorter or cannot be read.
                if left.start >= left.end || block.is_empty() {
                    connection.body(now.mono, block);
                    connection.end_body(now.mono);
                    self.stage = Stage::Over;
                } else {
                    connection.body(now.mono, block);
                }
            }
            (FileReply::Opened(_) | FileReply::Block(_), _) => {}
        }
        None
    }

    /// Returns the next job.
    fn poll_ask(&mut self, connection: &Connection) -> Option<FileAsk> {
        if connection.is_closing() {
            self.stage = Stage::Over;
        }
        let Stage::Sending { file, left, asked } = &mut self.stage else { return None };
        if *asked || !connection.wants_body() {
            return None;
        }
        *asked = true;
        let length = left.end.saturating_sub(left.start).min(BLOCK_BYTES);
        let length = usize::try_from(length).unwrap_or(0);
        Some(FileAsk::Read { file: Arc::clone(file), offset: left.start, length })
    }

    fn opened(&mut self, now: Now, connection: &mut Connection, opened: OpenedFile) {
        let resource = Resource {
            length: opened.length,
            etag: format!("\"{}\"", opened.tag),
            modified_ms: Some(opened.modified_ms),
            content_type: media_type(self.file_path.name()),
        };
        let Selection { head, part } = resource.select(&self.request);
        let head = head.header("Cache-Control", caching(self.file_path.name()));
        let Some(left) = part else {
            self.respond(now, connection, head);
            return;
        };
        let mut head = head;
        crate::http::cors::add(&self.fields, &mut head.headers);
        let length = left.end.saturating_sub(left.start);
        if !connection.begin(now.mono, now.wall_ms, &head, BodyLength::Known(length)) {
            self.stage = Stage::Over;
        } else if left.is_empty() {
            connection.end_body(now.mono);
            self.stage = Stage::Over;
        } else {
            self.stage = Stage::Sending { file: opened.file, left, asked: false };
        }
    }

    fn not_opened(&mut self, now: Now, connection: &mut Connection, error: FileError) {
        let page = pages::find(&self.file_path.segments);
        let response = match (error, page) {
            (FileError::NotFound, Some(page)) => page.answer(&self.request),
            (FileError::Directory, _) if !self.request.path.ends_with('/') => redirect(&self.request),
            (FileError::NotFound, None) if let Some(address) = self.elsewhere.take() => {
                Response::text(302, Bytes::from_static(b"Found")).header("Location", address)
            }
            (FileError::NotFound, None) | (FileError::Directory, _) => not_found(),
            (FileError::Failed, _) => Response::error(500, "The file cannot be read"),
        };
        self.respond(now, connection, response);
    }

    fn respond(&mut self, now: Now, connection: &mut Connection, mut response: Response) -> u16 {
        let status = response.status;
        crate::http::cors::add(&self.fields, &mut response.headers);
        connection.respond(now.mono, now.wall_ms, response);
        self.stage = Stage::Over;
        status
    }
}

impl Responder for Transfer {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        match reply {
            Reply::Job(done) => {
                let event = self.reply(ctx.now, &mut link.connection, done.into());
                link.events.extend(event);
            }
            Reply::Request(RequestNews::Pass(verdict)) => {
                let refusal = verdict.err().map(|why| refusal(&why, &self.file_path.key(ctx.apps).id));
                self.found(ctx.now, &mut link.connection, refusal);
            }
            Reply::Request(_)
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
        Next::Stay
    }

    fn advance(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        self.pump(ctx.now, &mut link.connection);
        if let Some(ask) = self.poll_ask(&link.connection) {
            link.tell(Event::Job(ask.into()));
        }
        if matches!(self.stage, Stage::Over) { Next::Over } else { Next::Stay }
    }
}

/// Returns a 404 with a short max-age. Without max-age, caches could keep the 404 for any time, although the file may
/// exist soon.
pub(super) fn not_found() -> Response {
    Response::error(404, "Not Found").header("Cache-Control", "max-age=1")
}

/// Returns the compressed content if the client accepts gzip and requests the whole content; otherwise the form made
/// for this viewer, if there is one. That form is compressed only if it contains nothing from the request.
fn packed(request: &Request, blob: &Blob, own: Option<Tailored>) -> (Option<Bytes>, Option<Tailored>) {
    if request.header("range").is_some() || !coding::accepts_gzip(&request.headers) {
        return (None, own);
    }
    let Some(own) = own else { return (blob.packed().cloned(), None) };
    let is_short = own.length() <= u64::try_from(coding::CODED_BYTES_MAX).unwrap_or(0)
        && own.length() >= u64::try_from(coding::CODED_BYTES_MIN).unwrap_or(0);
    if !request.query.is_empty() && own.is_edited() || !is_short {
        return (None, Some(own));
    }
    let mut text = own.clone();
    let whole: Vec<u8> = std::iter::from_fn(|| text.next_block()).flatten().collect();
    (coding::gzip(&whole).map(|packed| own.held().count(packed)), Some(own))
}

/// Cuts out the part of a block that is sent, and updates the number of bytes to skip and of bytes left to send.
fn part_of(mut block: Bytes, skip: &mut u64, left: &mut u64) -> Option<Bytes> {
    let length = |block: &Bytes| u64::try_from(block.len()).unwrap_or(u64::MAX);
    let skipped = length(&block).min(*skip);
    *skip = skip.saturating_sub(skipped);
    drop(block.split_to(usize::try_from(skipped).unwrap_or(block.len())));
    block.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
    *left = left.saturating_sub(length(&block));
    (!block.is_empty()).then_some(block)
}

/// Redirects to the folder's name with a slash at the end, so that relative links on its page work (RFC 9110 §15.4.2).
/// The location is relative, because a proxy may serve this server below a folder. It keeps the query, because a
/// player's page reads its stream id from there.
fn redirect(request: &Request) -> Response {
    const PLAIN: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let (_, name) = request.path.rsplit_once('/').unwrap_or_default();
    let name = percent_encoding::utf8_percent_encode(name, PLAIN);
    let query = request.target.find('?').and_then(|at| request.target.get(at..)).unwrap_or_default();
    Response::empty(302).header("Location", format!("{name}/{query}"))
}

/// Returns the cache directive of a file: segments live for 10 s, everything else must be revalidated.
fn caching(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("ts" | "m4s") => "max-age=10",
        Some(_) | None => "no-cache",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppSettings;

    fn file_of(path: &str) -> Result<String, Nowhere> {
        let apps = Apps::from([("live".into(), Arc::new(AppSettings::defaults("live").unwrap()))]);
        FilePath::of(path, &apps).map(|file| file.segments.join("/"))
    }

    #[test]
    fn paths_name_files_of_their_application_or_of_the_root() {
        for (path, want) in [
            ("/", "root/index.html"),
            ("/favicon.ico", "root/favicon.ico"),
            ("/other/x", "root/other/x"),
            ("/live", "live"),
            ("/live/", "live/index.html"),
            ("/live/play.html", "live/play.html"),
            ("/live/streams/x.mp4", "live/streams/x.mp4"),
            ("/live/streams/sub/", "live/streams/sub/index.html"),
        ] {
            assert_eq!(file_of(path).as_deref(), Ok(want), "{path}");
        }
    }

    #[test]
    fn h_15_settings_and_dot_names_are_not_there() {
        for path in [
            "/live/WEB-INF/red5-web.properties",
            "/live/web-inf/x",
            "/live/META-INF/",
            "/live/.git/config",
            "/.well-known",
            "/live/streams/.x.mp4",
            "*",
        ] {
            assert_eq!(file_of(path), Err(Nowhere::Hidden), "{path}");
        }
        assert_eq!(file_of("/live/streams"), Err(Nowhere::Forbidden));
        assert_eq!(file_of("/live/streams/"), Err(Nowhere::Forbidden));
    }

    fn request(target: &str, path: &str) -> Request {
        Request {
            method: crate::http::Method::Get,
            version: crate::http::Version::Http11,
            target: target.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: crate::http::Headers::new(),
            body: Bytes::new(),
            body_waits: false,
        }
    }

    #[test]
    fn a_transfer_holds_no_body_of_its_request() {
        let body = Bytes::from(vec![0; 1000]);
        let request = Request { body: body.clone(), ..request("/live/x", "/live/x") };
        let path = FilePath { segments: vec!["live".into(), "x".into()], root: None };
        let (_transfer, _) = Transfer::begin(request, path, Vec::new());
        assert!(body.is_unique());
    }

    #[test]
    fn a_redirect_stays_on_this_host_and_keeps_the_query() {
        for (target, path, want) in [
            ("/li%20ve%c3%a9", "/li ve\u{e9}", "li%20ve%C3%A9/"),
            ("/live?id=a%2Fb&x=?", "/live", "live/?id=a%2Fb&x=?"),
            ("http://h//live?id=1", "/live", "live/?id=1"),
            ("/live?", "/live", "live/?"),
            ("/live/a:b", "/live/a:b", "a%3Ab/"),
        ] {
            assert_eq!(redirect(&request(target, path)).headers.get("location"), Some(want), "{target}");
        }
    }
}
