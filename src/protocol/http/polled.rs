//! Requests below an application's `streams`: playlists, segments and parts that sinks publish, and files.
//!
//! 1. The worker is asked whether the viewer may have the file ([`RequestEvent::Pass`]). It answers by itself if
//!    nothing must be checked. If control does not know whether the file exists, the viewer is admitted for now, and
//!    the question is repeated once the file is found, before anything is sent. Only then is a webhook asked and a
//!    one-time token used up.
//! 2. A playlist may have to be made first, or may not have reached the segment that the request requires
//!    ([`sinks::wanted`]); an announced part may not exist yet. The request then waits ([`RequestEvent::AwaitBlob`]),
//!    but only once.
//! 3. The answer is the blob, or else the file of that name.
//!
//! A viewer is identified by its credentials. A viewer without credentials is identified as the application is
//! configured (`hls.identifyViewers`): by the session id that its player sends, together with address and user agent;
//! by a parameter; or by a cookie that is set with its first playlist.

use std::sync::Arc;
use std::time::Instant;

use super::files::{FilePath, Transfer, not_found};
use super::responder::{Link, Next, Responder};
use super::settings::{Identify, PolledSettings};
use super::{Fields, is_success};
use crate::auth::access::{Credentials, Denial};
use crate::config::AppSettings;
use crate::http::{Request, Response};
use crate::mail::{Blob, KEY_TYPE, NoSubscription, Progress};
use crate::protocol::sinks::Requested;
use crate::protocol::{
    Apps, Context, Event, PassAsk, Reply, RequestEvent, RequestNews, WantedBlob, Watched, sinks,
};
use crate::types::StreamKey;

/// Name of the protocol under which viewers of files are counted.
pub const VOD: &str = "vod";
/// Name of the cookie that identifies a viewer.
const COOKIE: &str = "viewer";
/// Length of the cookie's value.
const COOKIE_CHARS: usize = 32;
/// Maximum size of a viewer's request parameters that hooks report.
const TOLD_BYTES_MAX: usize = 1024;
/// Maximum number of segments by which a request may be ahead of the playlist and still wait for it (RFC 8216bis
/// §6.2.5.2).
const SEGMENTS_AHEAD_MAX: u64 = 2;

/// A request below `streams` that is in progress.
#[derive(Debug)]
pub(super) struct Polled {
    request: Request,
    file: FilePath,
    fields: Fields,
    viewer: Viewer,
    /// The protocol that the viewer counts under.
    protocol: &'static str,
    /// The stage of the viewer's admission.
    entry: Entry,
    /// True while the request waits for a blob, false while it waits for a verdict.
    awaits_blob: bool,
}

/// The stage of a viewer's admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The worker was not asked yet, or has not answered.
    Asked,
    /// Admitted if the file or blob exists. The worker is asked again once the file or blob is found.
    IfThere,
    /// The worker is asked again, about the blob or file that was found.
    AskedAgain,
    /// Admitted.
    LetIn,
}

/// The viewer of a request.
#[derive(Debug, Clone)]
struct Viewer {
    /// The viewer's identity.
    name: String,
    /// The identity under which the viewer was counted before it sent the cookie; `None` if it sends none.
    without: Option<String>,
    /// The cookie to set.
    cookie: Option<String>,
}

/// A request that waits for the worker's answer.
#[derive(Debug)]
struct Waiting {
    /// The request; `None` once another responder has taken it over.
    polled: Option<Box<Polled>>,
}

impl Waiting {
    fn next(polled: Polled) -> Next {
        Next::become_one(Self { polled: Some(Box::new(polled)) })
    }
}

impl Responder for Waiting {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        let Reply::Request(news) = reply else { return Next::Stay };
        let is_awaited = self.polled.as_ref().is_some_and(|polled| polled.awaits_blob);
        match news {
            RequestNews::Pass(verdict) if !is_awaited || verdict.is_err() => {
                self.polled.take().map_or(Next::Stay, |polled| polled.passed(ctx, link, verdict))
            }
            RequestNews::Blob if is_awaited => {
                self.polled.take().map_or(Next::Stay, |polled| polled.give(ctx, link))
            }
            RequestNews::Pass(_)
            | RequestNews::Call(..)
            | RequestNews::Blob
            | RequestNews::Response(_)
            | RequestNews::Upload(_)
            | RequestNews::TakeBody
            | RequestNews::StreamBegun(_) => Next::Stay,
        }
    }
}

/// Begins to handle a request below `streams`.
pub(super) fn begin(
    ctx: &Context<'_>,
    link: &mut Link,
    request: Request,
    file: FilePath,
    fields: Fields,
) -> Next {
    if let Some((status, text)) = file.refusal(ctx.apps, &request) {
        link.respond(ctx.now, &fields, Response::error(status, text));
        return Next::Over;
    }
    let viewer = Viewer::of(link, &request, file.app(ctx.apps));
    let blob = file.blob(ctx);
    let name = blob.map(|blob| blob.name.to_string()).or_else(|| file.name_below());
    let own = file.app(ctx.apps).zip(name).and_then(|(app, name)| sinks::viewers(app, &name, &request.query));
    let protocol =
        own.or_else(|| blob.and_then(|blob| blob.viewers)).or_else(|| file.protocol(ctx.apps)).unwrap_or(VOD);
    let entry = Entry::Asked;
    Polled { request, file, fields, viewer, protocol, entry, awaits_blob: false }.ask_pass(ctx, link)
}

impl Viewer {
    fn of(link: &mut Link, request: &Request, app: Option<&AppSettings>) -> Self {
        let without = unnamed(request, link.passed.client, app);
        let by_cookie = app.is_some_and(|app| PolledSettings::of(app).identify == Identify::Cookie);
        match cookie_of(request).filter(|_| by_cookie) {
            Some(cookie) => Self { name: format!("c:{cookie}"), without: Some(without), cookie: None },
            None => {
                let cookie = by_cookie.then(|| format!("{:016x}{:016x}", link.draw(), link.draw()));
                Self { name: without, without: None, cookie }
            }
        }
    }
}

impl Polled {
    fn ask_pass(self, ctx: &Context<'_>, link: &mut Link) -> Next {
        link.tell(Event::Request(RequestEvent::Pass(Box::new(self.ask(ctx)))));
        Waiting::next(self)
    }

    /// Handles the verdict on the viewer.
    fn passed(mut self, ctx: &Context<'_>, link: &mut Link, verdict: Result<(), NoSubscription>) -> Next {
        self.entry = match verdict {
            Ok(()) => Entry::LetIn,
            Err(NoSubscription::NotFound) if self.entry == Entry::Asked => Entry::IfThere,
            Err(why) => {
                link.respond(ctx.now, &self.fields, refusal(&why, &self.file.key(ctx.apps).id));
                return Next::Over;
            }
        };
        match self.file.wanted(ctx, &self.request) {
            Wanted::Now => self.give(ctx, link),
            Wanted::Blob(wanted) => {
                link.tell(Event::Request(RequestEvent::AwaitBlob(wanted)));
                self.awaits_blob = true;
                Waiting::next(self)
            }
            Wanted::TooFar => {
                link.respond(ctx.now, &self.fields, Response::error(400, "That is too far ahead"));
                Next::Over
            }
        }
    }

    /// Answers with the blob or the file of this name.
    fn give(mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        self.awaits_blob = false;
        let elsewhere = self.file.elsewhere(ctx.apps);
        let is_there = elsewhere.is_some() || self.file.blob_for(ctx, &self.request).is_some();
        let again = (self.entry == Entry::IfThere).then_some(Entry::AskedAgain);
        self.entry = again.unwrap_or(self.entry);
        if again.is_some() && is_there {
            return self.ask_pass(ctx, link);
        }
        let again = again.map(|_| self.ask(ctx));
        let Self { request, file, mut fields, viewer, protocol, .. } = self;
        let Some(blob) = file.blob_for(ctx, &request) else {
            let kept = file.kept_at(ctx.apps);
            let (transfer, ask) = Transfer::begin(request, file, fields);
            let (transfer, ask) = transfer.kept_at(kept, ask);
            let transfer = transfer.asking_again(again).or_elsewhere(elsewhere);
            link.tell(Event::Job(ask.into()));
            return Next::become_one(transfer);
        };
        let app = file.app(ctx.apps);
        let wanted = app.and_then(|app| sinks::wanted(app, &request.query));
        if wanted.is_some_and(|wanted| blob.progress < wanted) {
            // The blob was not made, or did not grow as far as requested, in time.
            let response = Response::error(503, "It is not there yet").header("Retry-After", "1");
            link.respond(ctx.now, &fields, response);
            return Next::Over;
        }
        let stream = blob.stream;
        let is_watched = blob.viewers.is_some();
        let date_ms = blob.calendar.map_or(ctx.now.wall_ms, |calendar| calendar.date_ms(ctx.now.mono));
        let requested = |app| Requested { app, name: &blob.name, query: &request.query };
        let own = app.and_then(|app| sinks::tailored(&requested(app), &blob.bytes, date_ms));
        if own.is_some() && !ctx.blobs.own_text().has_room() {
            let busy = Response::error(503, "Too many playlists are being sent").header("Retry-After", "1");
            link.respond(ctx.now, &fields, busy);
            return Next::Over;
        }
        let own = own.map(|own| own.counted_in(ctx.blobs.own_text()));
        let is_playlist = blob.content_type.starts_with("application/");
        let caching = app.map_or("no-cache", |app| {
            let settings = PolledSettings::of(app);
            let is_for_all = own.is_none() && viewer.cookie.is_none() && !app.security.play.any();
            match (is_playlist, wanted) {
                _ if blob.content_type == KEY_TYPE => "no-store",
                (true, Some(_)) if is_for_all => &settings.reloads,
                (true, _) => &settings.playlists,
                (false, _) => &settings.segments,
            }
        });
        let caching =
            blob.fresh_until.map_or_else(|| caching.to_owned(), |until| while_fresh(ctx, app, until));
        if let Some(cookie) = viewer.cookie.as_ref().filter(|_| is_playlist) {
            let app = file.segments.first().map(String::as_str).unwrap_or_default();
            let field =
                format!("{COOKIE}={cookie}; Path={}/{app}; HttpOnly; SameSite=Lax", link.passed.prefix);
            fields.push(("Set-Cookie", field));
        }
        let params = if is_watched { told_params(&request.query) } else { Vec::new() };
        let (transfer, status) =
            Transfer::of_blob(ctx.now, &mut link.connection, request, file, fields, (blob, own, &caching));
        let watched = (is_watched && is_success(status)).then_some(Watched {
            stream,
            protocol,
            viewer: viewer.name,
            former: viewer.without,
            params,
        });
        link.granted |= watched.is_some();
        link.events.extend(watched.map(|watched| Event::Request(RequestEvent::Watched(watched))));
        Next::become_one(transfer)
    }

    fn ask(&self, ctx: &Context<'_>) -> PassAsk {
        let blob = self.file.blob(ctx);
        let ladder = blob.and_then(|blob| Some((blob, blob.ladder.as_ref()?)));
        // A viewer that may play the main track may also play its renditions.
        let of_ladder = ladder
            .map(|(blob, ladder)| StreamKey { app: Arc::clone(&blob.app), id: Arc::clone(&ladder.main) });
        PassAsk {
            stream: blob.filter(|_| of_ladder.is_none()).map(|blob| blob.stream),
            watched: blob.map(|blob| blob.stream),
            is_glance: self.file.is_glance(ctx.apps),
            key: of_ladder.unwrap_or_else(|| self.file.key(ctx.apps)),
            protocol: self.protocol,
            viewer: self.viewer.name.clone(),
            former: self.viewer.without.clone(),
            file: self.file.name_below().unwrap_or_default(),
            found: self.entry == Entry::AskedAgain,
            params: self.request.query.clone(),
            origin: self.request.header("origin").unwrap_or_default().to_owned(),
        }
    }
}

/// Returns the cache directives of a blob that expires. If viewers are checked, shared caches may not store the blob.
fn while_fresh(ctx: &Context<'_>, app: Option<&AppSettings>, until: Instant) -> String {
    let seconds = until.saturating_duration_since(ctx.now.mono).as_secs();
    let is_for_all = app.is_some_and(|app| !app.security.play.any());
    format!("{}max-age={seconds}", if is_for_all { "" } else { "private, " })
}

/// Returns the request parameters of a viewer that hooks report: without those that players add, and none if they are
/// too long.
fn told_params(query: &[(String, String)]) -> Vec<(String, String)> {
    let is_told = |(name, _): &&(String, String)| !name.starts_with("_HLS_") && name != "CMCD";
    let told = query.iter().filter(is_told);
    let bytes: usize = told.clone().map(|(name, value)| name.len().saturating_add(value.len())).sum();
    if bytes > TOLD_BYTES_MAX { Vec::new() } else { told.cloned().collect() }
}

/// Returns the identity of a viewer that has no cookie.
fn unnamed(request: &Request, client: std::net::IpAddr, app: Option<&AppSettings>) -> String {
    let shown = app.map(|app| Credentials::of(&request.query).counting(&app.security.play));
    let shown = shown.unwrap_or_default();
    if let Some(shown) = shown.subscriber.or(shown.token) {
        return format!("t:{shown}");
    }
    if let Some(named) = app.and_then(|app| PolledSettings::of(app).viewer_of(&request.query)) {
        return format!("q:{named}");
    }
    let agent = request.header("user-agent").unwrap_or_default();
    let session = session_of(request);
    let hash = crypto::sha256(&[agent.as_bytes(), b"\0", session.as_bytes()]);
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("a:{client}:{hash}")
}

/// Returns the session id that a player sends with each request: `sid` in CMCD (CTA-5004 §3), or Apple's header field.
fn session_of(request: &Request) -> &str {
    let of_list = |list: &'_ str| -> Option<(usize, usize)> {
        let mut at = list.match_indices("sid=\"").map(|(at, _)| at);
        let start = at.find(|at| *at == 0 || list.as_bytes().get(at.saturating_sub(1)) == Some(&b','))?;
        let start = start.saturating_add(5);
        let length = list.get(start..)?.find('"')?;
        Some((start, start.saturating_add(length)))
    };
    let cmcd = request.header("cmcd-session").or_else(|| request.query_value("CMCD"));
    let sid = cmcd.and_then(|list| of_list(list).and_then(|(from, to)| list.get(from..to)));
    sid.or_else(|| request.header("x-playback-session-id")).unwrap_or_default()
}

fn cookie_of(request: &Request) -> Option<&str> {
    let pairs = request.headers.all("cookie").flat_map(|line| line.split(';'));
    let mut values = pairs.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    values.find(|value| value.len() == COOKIE_CHARS && value.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the response to a refusal.
pub(super) fn refusal(why: &NoSubscription, stream: &str) -> Response {
    match why {
        NoSubscription::NotFound | NoSubscription::Disabled => not_found(),
        NoSubscription::Denied(Denial::Blocked(_)) => Response::error(401, "Subscriber is blocked"),
        NoSubscription::Denied(denial) => Response::error(403, &denial.text(stream)),
        NoSubscription::Draining | NoSubscription::Resources => {
            // A proxy must not keep the connection for other clients.
            Response::error(503, why.reason()).header("Retry-After", "5").header("Connection", "close")
        }
    }
}

/// The blob for which a request must wait, if any.
enum Wanted {
    /// No blob: the request can be answered immediately.
    Now,
    Blob(WantedBlob),
    TooFar,
}

impl FilePath {
    /// Returns the key of the file's stream. For a recording, its name is used as the id.
    pub(super) fn key(&self, apps: &Apps) -> StreamKey {
        let app = self.segments.first().map(String::as_str).unwrap_or_default();
        let name = self.name_below().unwrap_or_default();
        let of_sink = apps.get(app).and_then(|settings| sinks::owner_of(settings, &name));
        if let Some((_, id)) = of_sink {
            return StreamKey::new(app, id);
        }
        let file = name.rsplit_once('/').map_or(name.as_str(), |(_, file)| file);
        StreamKey::new(app, file.rsplit_once('.').map_or(file, |(stem, _)| stem))
    }

    /// Returns the settings of the file's application.
    fn app<'a>(&self, apps: &'a Apps) -> Option<&'a AppSettings> {
        apps.get(self.segments.first()?.as_str()).map(|app| &**app)
    }

    /// Returns the path below `webapps` at which the file is really kept, if that differs from its own path.
    fn kept_at(&self, apps: &Apps) -> Option<Vec<String>> {
        sinks::kept_at(self.segments.first()?, self.app(apps)?, &self.name_below()?)
    }

    /// Returns status and text of the response if the parameters of the request are not allowed.
    fn refusal(&self, apps: &Apps, request: &Request) -> Option<(u16, &'static str)> {
        let (app, name) = (self.app(apps)?, self.name_below()?);
        sinks::refusal(&Requested { app, name: &name, query: &request.query })
    }

    /// Returns the protocol under which viewers of a sink's blob or file are counted.
    fn protocol(&self, apps: &Apps) -> Option<&'static str> {
        let app = self.app(apps)?;
        let name = self.name_below()?;
        let (kind, _) = sinks::owner_of(app, &name)?;
        Some((kind.viewers)(&name))
    }

    /// Returns the blob that answers a request: the named blob, or instead the blob that the request's parameters
    /// select, if that is as recent as the named one.
    fn blob_for<'b>(&self, ctx: &Context<'b>, request: &Request) -> Option<&'b Arc<Blob>> {
        let named = self.blob(ctx)?;
        let other = self.app(ctx.apps).and_then(|app| sinks::in_place(app, &named.name, &request.query));
        let other = other.and_then(|name| ctx.blobs.get(&named.app, &name));
        if named.bytes.is_empty() && named.fresh_until.is_some() {
            return None;
        }
        let is_as_far = |other: &&Arc<Blob>| other.stream == named.stream && other.progress >= named.progress;
        Some(other.filter(is_as_far).unwrap_or(named))
    }

    /// True if a request for this file is a mere glance and does not count as watching.
    fn is_glance(&self, apps: &Apps) -> bool {
        let app = self.segments.first().and_then(|app| apps.get(app.as_str()));
        let maker = app
            .zip(self.name_below())
            .map(|(app, name)| sinks::maker_of(app, &name).is_some_and(|(kind, _)| kind.is_glance));
        maker.unwrap_or(false)
    }

    fn wanted(&self, ctx: &Context<'_>, request: &Request) -> Wanted {
        if let Some(blob) = self.blob(ctx) {
            let wanted = self.app(ctx.apps).and_then(|app| sinks::wanted(app, &request.query));
            let Some(progress) = wanted else { return Wanted::Now };
            return wait_for(blob, progress, SEGMENTS_AHEAD_MAX);
        }
        let (Some(app), Some(name)) = (self.segments.first(), self.name_below()) else { return Wanted::Now };
        let Some(settings) = ctx.apps.get(app.as_str()) else { return Wanted::Now };
        if let Some((announcer, progress)) = sinks::part_of(settings, &name) {
            // A request waits only for the part that the playlist has announced as the next one.
            return match ctx.blobs.get(app, &announcer).map(|blob| wait_for(blob, progress, 0)) {
                Some(wanted @ Wanted::Blob(_)) => wanted,
                Some(Wanted::Now | Wanted::TooFar) | None => Wanted::Now,
            };
        }
        match sinks::maker_of(settings, &name) {
            Some((kind, id)) => Wanted::Blob(WantedBlob {
                key: StreamKey::new(app, id),
                name,
                progress: Progress::default(),
                sink: Some(kind.name),
            }),
            None => Wanted::Now,
        }
    }
}

fn wait_for(blob: &Blob, progress: Progress, ahead_max: u64) -> Wanted {
    if blob.progress >= progress {
        Wanted::Now
    } else if progress.segment > blob.progress.segment.saturating_add(ahead_max) {
        Wanted::TooFar
    } else {
        let key = StreamKey::new(&blob.app, "");
        Wanted::Blob(WantedBlob { key, name: blob.name.to_string(), progress, sink: None })
    }
}
