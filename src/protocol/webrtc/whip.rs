//! WHIP (RFC 9725) and WHEP (draft-ietf-wish-whep-03): an offer by POST, and an answer with a session URL. Requests
//! to that URL end the session (DELETE), add candidates or restart ICE (PATCH).
//!
//! The URL is relative to that of the request (RFC 9725 §4.2), because a proxy may use another scheme, host, port or
//! folder. It ends in the session's name: the number of the session's worker, and 32 hexadecimal digits that contain
//! the session's slot at that worker and a secret. A request that arrives at another worker reaches the session by
//! one message; a request without the secret finds no session.

use std::time::{Duration, Instant};

use sdp::Description;

use super::extensions::{LAYER, LAYER_SEGMENT, LayerChoice};
use super::ice_servers::{self, For};
use super::messages::{Ask, Described, FromSession, Later, Refused, ToSession};
use super::port::CONNECT_TIMEOUT;
use super::settings::RtcAppSettings;
use crate::auth::access::{Params, is_stream_id};
use crate::http::{BodyKind, Cors, Method, Methods, Pages, Request, Response, cors, http_date};
use crate::mail::{Message, NoSubscription, Refusal};
use crate::protocol::http::{Action, Asked, Conversation, HttpSession};
use crate::protocol::ice_servers::{IceAsk, host_of};
use crate::protocol::{Context, Event, FamilyEvent, FamilyNews, Reply, Verb};
use crate::types::{ConnId, Handle, SessionRef, StreamKey, WorkerId};

/// The media types of descriptions and of their fragments (RFC 8840 §9).
const SDP: &str = "application/sdp";
const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
/// Maximum size of a description.
const BODY_BYTES_MAX: usize = 128 * 1024;
/// Time after which a request is no longer kept waiting.
const PATIENCE: Duration = Duration::from_secs(12);
/// Seconds that a client should wait before it tries again.
const RETRY_AFTER: &str = "2";

/// Bodies that the mounts accept.
pub(in crate::protocol) const OFFERS: BodyKind = BodyKind::Of { types: &[SDP], bytes_max: BODY_BYTES_MAX };
pub(in crate::protocol) const FRAGMENTS: BodyKind =
    BodyKind::Of { types: &[FRAGMENT, SDP], bytes_max: BODY_BYTES_MAX };
/// Methods that the endpoints accept.
pub(in crate::protocol) const ENDPOINT: Methods =
    Methods::These(&[Method::Get, Method::Post, Method::Options]);
pub(in crate::protocol) const SESSION: Methods =
    Methods::These(&[Method::Get, Method::Patch, Method::Delete]);
/// Cross-origin policy: pages of any origin, which may read the response fields that they need.
pub(in crate::protocol) const CORS: Cors = Cors {
    pages: Pages::Any,
    methods: "GET,POST,HEAD,OPTIONS,PATCH,DELETE",
    fields: cors::ANY_FIELD,
    exposed: Some("Location,ETag,Link,Accept-Patch"),
    is_cached: false,
};

/// Handler of WHIP's endpoint.
pub(in crate::protocol) fn publish(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    begin(session, ctx, asked, true);
}

/// Handler of WHEP's endpoint.
pub(in crate::protocol) fn play(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    begin(session, ctx, asked, false);
}

fn begin(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked, publishes: bool) {
    let key = StreamKey::new(asked.name("any"), asked.name("id"));
    let request = &asked.request;
    if request.method != Method::Post {
        // RFC 9725 §4.1: the URL has no content. Players request it to check that a stream exists (WHEP §4).
        let mut answer = Response::empty(200).header("Content-Type", SDP).header("Accept-Post", SDP);
        if request.method == Method::Options {
            answer = answer.header("Allow", "GET, POST, HEAD, OPTIONS");
            answer = with_links(answer, &links_of(session, ctx, request, &key, For::Anybody));
        }
        return session.respond(ctx.now, asked.fields, answer);
    }
    // A WHEP player may leave the offer to us, by a request without a body.
    let has_none = !publishes && request.body.iter().all(u8::is_ascii_whitespace);
    let offer = if has_none { Ok(Description::default()) } else { Description::read(&request.body) };
    let refusal = match &offer {
        _ if !is_stream_id(&key.id) => {
            Some("the stream id has other characters than letters, digits, '-', '_' and '.'".to_owned())
        }
        Err(error) => Some(error.to_string()),
        Ok(offer) if !has_none && !goes_right(offer, publishes) => {
            Some("no section goes the right way".to_owned())
        }
        Ok(_) => None,
    };
    let (Ok(offer), None) = (offer, &refusal) else {
        let verb = if publishes { Verb::Publish } else { Verb::Play };
        session.note_refusal(verb, &key, refusal.clone().unwrap_or_default());
        return session.respond(ctx.now, asked.fields, Response::error(400, &refusal.unwrap_or_default()));
    };
    let (base, secret) = (base_of(request, session.prefix()), session.draw());
    let ask = Ask {
        publishes,
        params: params_of(request),
        user_agent: request.header("user-agent").unwrap_or_default().to_owned(),
        origin: request.header("origin").unwrap_or_default().to_owned(),
        of_foreign_page: session.is_foreign(ctx, request),
        offer: Some(offer),
        choice: None,
        secret,
        key: key.clone(),
    };
    let event = Event::Family(FamilyEvent::SpawnAt {
        child: Handle::ONLY,
        port: super::PORT,
        what: Box::new(ask),
        outlives: true,
    });
    let links = links_of(session, ctx, request, &key, For::Client);
    let connect =
        ctx.apps.get(&key.app).map_or(CONNECT_TIMEOUT, |app| RtcAppSettings::of(app).connect_timeout);
    let valid_ms = u64::try_from(connect.as_millis()).unwrap_or_default();
    let valid_until = http_date(ctx.now.wall_ms.saturating_add(valid_ms));
    let about = About::Offer { base, key, publishes, secret, links, valid_until };
    let conversation = Waiting::new(ctx, about, event, None);
    session.converse(asked, Box::new(conversation));
}

/// True if any section of the offer sends media to publish, or receives media to play (RFC 9725 §4.2).
fn goes_right(offer: &Description, publishes: bool) -> bool {
    let is_ours = |media: &&sdp::Media| {
        let direction = offer.direction(media);
        if publishes { direction.sends() } else { direction.receives() }
    };
    offer.media.iter().any(|media| is_ours(&media))
}

/// Returns the parameters of the query, and the token of `Authorization`: `Bearer TOKEN`, or the token alone. Another
/// scheme, such as the `Basic` of a proxy, is not for this server.
fn params_of(request: &Request) -> Params {
    let mut params = request.query.clone();
    if let Some(value) = request.header("authorization") {
        let mut words = value.split_ascii_whitespace();
        let token = match (words.next(), words.next(), words.next()) {
            (Some(scheme), token, None) if scheme.eq_ignore_ascii_case("bearer") => token,
            (Some(token), None, None) => Some(token),
            _ => None,
        };
        if let Some(token) = token {
            params.retain(|(name, _)| name != "token");
            params.push(("token".to_owned(), token.to_owned()));
        }
    }
    params
}

/// Returns the prefix of a session's URL, to which the session's name is appended.
///
/// OBS treats any `Location` that does not begin with `http` as a complete path, and sets it with libcurl's
/// `CURLUPART_PATH` (`WHIPOutput::Connect`). A relative reference would lose the application, so OBS gets the whole
/// path.
fn base_of(request: &Request, prefix: &str) -> String {
    let is_obs = request.header("user-agent").is_some_and(|agent| agent.contains("OBS-Studio"));
    let path = request.path.trim_end_matches('/');
    if is_obs {
        return format!("{prefix}{path}/");
    }
    match path.rsplit_once('/') {
        Some((_, id)) if !request.path.ends_with('/') => format!("{id}/"),
        Some(_) | None => String::new(),
    }
}

// ---- requests that a session answers

/// The subject of a waiting request.
#[derive(Debug)]
enum About {
    /// An offer for which a session is made.
    Offer {
        base: String,
        key: StreamKey,
        publishes: bool,
        secret: u64,
        /// The `Link` fields of the response, which announce ICE servers.
        links: Vec<String>,
        /// Time until which our counter-offer can be answered.
        valid_until: String,
    },
    /// An existing or former session.
    Session,
    /// The layers of a session's video.
    Layers,
}

/// A request that waits for a session's answer.
#[derive(Debug)]
struct Waiting {
    about: About,
    event: Option<Event>,
    session: Option<SessionRef>,
    response: Option<Response>,
    /// Time until which the request waits; `None` once answered.
    until: Option<Instant>,
}

impl Waiting {
    fn new(ctx: &Context<'_>, about: About, event: Event, session: Option<SessionRef>) -> Self {
        let until = ctx.now.mono.checked_add(PATIENCE);
        Self { about, event: Some(event), session, response: None, until }
    }

    fn respond(&mut self, response: Response) {
        if self.until.take().is_some() {
            self.response = Some(response);
        }
    }

    fn heard(&mut self, said: &FromSession) {
        let response = match (said, &self.about) {
            (FromSession::Described(described), About::Offer { base, secret, links, publishes, .. }) => {
                let answer = |session| created((201, SDP), described, base, name_of(session, *secret));
                let response = with_links(self.session.map_or_else(unavailable, answer), links);
                match self.session.filter(|_| !publishes) {
                    Some(session) => {
                        let name = name_of(session, *secret);
                        let link = format!("<{base}{name}/{LAYER_SEGMENT}>; rel=\"{LAYER}\"");
                        response.header("Link", link)
                    }
                    None => response,
                }
            }
            (FromSession::Countered(described), About::Offer { base, secret, links, valid_until, .. }) => {
                let kind = format!("{SDP}; valid-until=\"{valid_until}\"");
                let answer = |session| created((406, &kind), described, base, name_of(session, *secret));
                with_links(self.session.map_or_else(unavailable, answer), links)
            }
            (FromSession::Refused(why), About::Offer { key, publishes, .. }) => refusal(why, key, *publishes),
            (FromSession::Ended, About::Offer { .. }) => unavailable(),
            (FromSession::Answered(status, tag, body), About::Session) => {
                answered(*status, tag.as_deref(), body)
            }
            (FromSession::Answered(200, _, body), About::Layers) if !body.is_empty() => {
                Response::with_body(200, "application/json", body.clone()).header("Cache-Control", "no-store")
            }
            (FromSession::Answered(status, _, body), About::Layers) => answered(*status, None, body),
            (
                FromSession::Described(_)
                | FromSession::Refused(_)
                | FromSession::OfferRefused
                | FromSession::Ended
                | FromSession::Granted
                | FromSession::Soon
                | FromSession::Restored
                | FromSession::Connected
                | FromSession::Started
                | FromSession::Bitrates(_)
                | FromSession::Resolution(_)
                | FromSession::Info(_)
                | FromSession::Countered(_)
                | FromSession::Answered(..),
                _,
            ) => return,
        };
        self.respond(response);
    }

    fn is_from(&self, from: SessionRef) -> bool {
        self.session.is_some_and(|session| session.worker == from.worker && session.conn == from.conn)
    }
}

impl Conversation for Waiting {
    fn handle_message(&mut self, _ctx: &Context<'_>, _text: &str) {}

    fn handle_reply(&mut self, _ctx: &Context<'_>, reply: Reply<'_>) {
        let Reply::Family(news) = reply else { return };
        match news {
            FamilyNews::Spawned { session: None, .. } => self.respond(unavailable()),
            FamilyNews::Spawned { session, .. } => self.session = session,
            FamilyNews::Message { from, message } => {
                if let Some(said) = message.content::<FromSession>().filter(|_| self.is_from(from)) {
                    self.heard(said);
                }
            }
            FamilyNews::Ended(session) if self.is_from(session) => self.respond(not_found()),
            FamilyNews::Ended(_) => {}
        }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if self.until.is_none_or(|until| until > ctx.now.mono) {
            return;
        }
        match (&self.about, self.session) {
            (About::Offer { .. }, session) => {
                let end = |to| Event::Family(FamilyEvent::Tell { to, message: Message::new(ToSession::End) });
                self.event = session.map(end);
                self.respond(unavailable());
            }
            (About::Session | About::Layers, _) => self.respond(not_found()),
        }
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        self.event.take()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.response.take().map(Action::Respond)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }
}

/// Returns the response with our description and its session's URL: 201 with an answer, 406 with an offer (WHEP §4.3).
fn created((status, kind): (u16, &str), described: &Described, base: &str, name: String) -> Response {
    Response::with_body(status, kind, described.sdp.clone())
        .header("Location", format!("{base}{name}"))
        .header("ETag", format!("\"{}\"", described.tag))
        .header("Accept-Patch", FRAGMENT)
}

/// Returns the `Link` fields of an application's responses, which announce ICE servers.
fn links_of(
    session: &mut HttpSession,
    ctx: &Context<'_>,
    request: &Request,
    key: &StreamKey,
    whom: For,
) -> Vec<String> {
    let Some(app) = ctx.apps.get(&key.app) else { return Vec::new() };
    let host = host_of(request.header("host").unwrap_or_default());
    let ask = IceAsk { now: ctx.now, server: ctx.server, host, user: session.draw() };
    ice_servers::links(&ice_servers::told(&ask, RtcAppSettings::of(app), whom))
}

fn with_links(response: Response, links: &[String]) -> Response {
    links.iter().fold(response, |response, link| response.header("Link", link.as_str()))
}

fn answered(status: u16, tag: Option<&str>, body: &str) -> Response {
    let response = match (status, body.is_empty()) {
        (404, _) => not_found(),
        (412, _) => Response::error(412, "Precondition Failed"),
        (428, _) => Response::error(428, "Precondition Required"),
        (status, true) if status < 400 => Response::empty(status),
        (status, true) => Response::error(status, "Bad Request"),
        (status, false) => Response::with_body(status, FRAGMENT, body.to_owned()),
    };
    match tag {
        Some(tag) => response.header("ETag", format!("\"{tag}\"")),
        None => response,
    }
}

fn not_found() -> Response {
    Response::error(404, "Not Found")
}

fn unavailable() -> Response {
    Response::error(503, "Service Unavailable").header("Retry-After", RETRY_AFTER)
}

/// Returns the response to a refusal, with the codes of docs/webrtc.md.
fn refusal(why: &Refused, key: &StreamKey, publishes: bool) -> Response {
    let later = |status, text: &str| Response::error(status, text).header("Retry-After", RETRY_AFTER);
    match why {
        Refused::Publish(Refusal::NoApplication) => Response::error(404, "no such application"),
        Refused::Publish(Refusal::InUse) => Response::error(409, "the stream id is in use"),
        Refused::Publish(Refusal::Loop) => Response::error(409, "the stream came through this server before"),
        Refused::Publish(Refusal::NotAllowed(text)) => Response::text(403, *text),
        Refused::Publish(Refusal::Denied(denial)) | Refused::Play(NoSubscription::Denied(denial)) => {
            Response::text(403, denial.text(&key.id))
        }
        Refused::Publish(Refusal::Resources | Refusal::Draining)
        | Refused::Play(NoSubscription::Draining | NoSubscription::Resources)
        | Refused::Closed => unavailable(),
        Refused::Play(NoSubscription::NotFound) => later(409, "the stream is not live"),
        Refused::Play(NoSubscription::Disabled) => Response::text(403, "WebRTC is switched off here"),
        Refused::NoTracks => later(409, "the stream has sent nothing yet"),
        // A 406: the stream's codecs cannot be changed for this viewer.
        Refused::Description(::webrtc::Error::NothingInCommon) if !publishes => {
            Response::error(406, "no codec of the stream is offered, or in no form that can be sent")
        }
        Refused::Description(::webrtc::Error::NothingInCommon) => {
            Response::error(422, "no known codec is offered, or video in no form that can be taken")
        }
        Refused::Description(error) => Response::error(400, &error.to_string()),
    }
}

// ---- later requests

/// Returns the public name of a session.
fn name_of(session: SessionRef, secret: u64) -> String {
    let ConnId { slot, generation } = session.conn;
    format!("{}-{slot:08x}{generation:08x}{secret:016x}", session.worker.0)
}

/// Parses a public name into the session and the secret.
fn read_name(name: &str) -> Option<(SessionRef, u64)> {
    let (worker, digits) = name.split_once('-')?;
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let number = |from: usize, to: usize| u64::from_str_radix(digits.get(from..to)?, 16).ok();
    let conn =
        ConnId { slot: u32::try_from(number(0, 8)?).ok()?, generation: u32::try_from(number(8, 16)?).ok()? };
    Some((SessionRef::new(WorkerId(worker.parse().ok()?), conn), number(16, 32)?))
}

/// Handler of the layers of a player's video, below its session's URL.
pub(in crate::protocol) fn layer(http: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    let later = match asked.request.method {
        Method::Get | Method::Head => Some(Later::Layers),
        Method::Options => return http.respond(ctx.now, asked.fields, Response::empty(200)),
        Method::Post | Method::Put | Method::Patch | Method::Delete => {
            LayerChoice::read(&asked.request.body).map(Later::Choose)
        }
    };
    match (read_name(asked.name("session")), later) {
        (_, None) => http.respond(ctx.now, asked.fields, Response::error(400, "no choice of a layer")),
        (None, _) => http.respond(ctx.now, asked.fields, not_found()),
        (Some((to, secret)), Some(request)) => {
            let message = Message::new(ToSession::Request { secret, request });
            let event = Event::Family(FamilyEvent::Tell { to, message });
            let conversation = Waiting::new(ctx, About::Layers, event, Some(to));
            http.converse(asked, Box::new(conversation));
        }
    }
}

/// Handler of a session's URL.
pub(in crate::protocol) fn session(http: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    let request = &asked.request;
    let found = read_name(asked.name("session"));
    let later = match request.method {
        Method::Delete => Ok(Later::Delete),
        Method::Patch if request.media_type().eq_ignore_ascii_case(SDP) => Description::read(&request.body)
            .map(|answer| Later::Answer(Box::new(answer)))
            .map_err(|error| Response::error(400, &error.to_string())),
        Method::Patch => Description::read_fragment(&request.body)
            .map(|fragment| Later::Patch {
                fragment: Box::new(fragment),
                if_match: request.header("if-match").map(str::to_owned),
            })
            .map_err(|error| Response::error(400, &error.to_string())),
        // RFC 9725 §4.1.
        Method::Get | Method::Head | Method::Post | Method::Put | Method::Options => {
            Err(Response::empty(200))
        }
    };
    match (found, later) {
        (_, Err(response)) => http.respond(ctx.now, asked.fields, response),
        (None, Ok(_)) => http.respond(ctx.now, asked.fields, not_found()),
        (Some((to, secret)), Ok(request)) => {
            let message = Message::new(ToSession::Request { secret, request });
            let event = Event::Family(FamilyEvent::Tell { to, message });
            let conversation = Waiting::new(ctx, About::Session, event, Some(to));
            http.converse(asked, Box::new(conversation));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::http::{Headers, Version};

    /// Resolves a session URL as OBS does (obs-studio, plugins/obs-webrtc/whip-output.cpp): a `Location` that does
    /// not begin with `http` becomes the path of the URL, with a slash that libcurl puts in front, and the query
    /// is dropped.
    fn as_obs(endpoint: &str, location: &str) -> String {
        if location.starts_with("http") {
            return location.to_owned();
        }
        let mut url = url::Url::parse(endpoint).unwrap();
        url.set_path(location);
        url.set_query(None);
        url.to_string()
    }

    /// Resolves a session URL by RFC 3986 §5, as GStreamer's signallers (`Url::join`), ffmpeg
    /// (`ff_make_absolute_url`) and browsers do.
    fn as_others(endpoint: &str, location: &str) -> String {
        url::Url::parse(endpoint).unwrap().join(location).unwrap().to_string()
    }

    fn request(path: String, query: Params, field: (&'static str, &str)) -> Request {
        let mut headers = Headers::new();
        headers.push(field.0, field.1);
        let (method, version, target) = (Method::Post, Version::Http11, String::new());
        let (body, body_waits) = (Bytes::new(), false);
        Request { method, version, target, path, query, headers, body, body_waits }
    }

    #[test]
    fn a_token_comes_from_the_query_or_as_bearer() {
        for (field, wanted) in [
            ("Bearer abc", "abc"),
            ("bearer  abc ", "abc"),
            ("abc", "abc"),
            // The credentials of a proxy, and fields without a token.
            ("Basic dXNlcjpwYXNz", "own"),
            ("Digest username=\"u\", realm=\"r\"", "own"),
            ("Bearer", "own"),
            ("Bearer ", "own"),
            ("", "own"),
        ] {
            let query = vec![("token".to_owned(), "own".to_owned()), ("a".to_owned(), "b".to_owned())];
            let params = params_of(&request(String::new(), query, ("Authorization", field)));
            let tokens: Vec<&str> =
                params.iter().filter(|(name, _)| name == "token").map(|(_, token)| token.as_str()).collect();
            assert_eq!((tokens, params.len()), (vec![wanted], 2), "{field}");
        }
    }

    fn location(endpoint: &str, folder: &str, agent: &str, told: bool) -> String {
        let url = url::Url::parse(endpoint).unwrap();
        let path = url.path().strip_prefix(folder).unwrap().to_owned();
        let request = request(path, Vec::new(), ("User-Agent", agent));
        base_of(&request, if told { folder } else { "" }) + "NAME"
    }

    #[test]
    fn every_client_finds_its_session_below_the_url_that_it_asked() {
        const OBS: &str = "Mozilla/5.0 (OBS-Studio/30.2.0; Linux x86_64; en-US)";
        for (origin, folder) in
            [("http://h:5080", ""), ("https://media.example", ""), ("https://media.example:8443", "/h/i")]
        {
            for (tail, query) in
                [("live/whip/cam", ""), ("live/whep/cam/", ""), ("live/whip/http.cam", "?a=b/c")]
            {
                let endpoint = format!("{origin}{folder}/{tail}{query}");
                let want = format!("{origin}{folder}/{}/NAME", tail.trim_end_matches('/'));
                let told = location(&endpoint, folder, "GStreamer", false);
                assert_eq!(as_others(&endpoint, &told), want, "{told}");
                let told = location(&endpoint, folder, OBS, true);
                assert_eq!(as_obs(&endpoint, &told), want, "{told}");
            }
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written_and_nothing_else_is() {
        let session = SessionRef::new(WorkerId(3), ConnId { slot: 7, generation: 0xffff_fffe });
        let name = name_of(session, 0x0123_4567_89ab_cdef);
        assert_eq!(name, "3-00000007fffffffe0123456789abcdef");
        assert_eq!(read_name(&name), Some((session, 0x0123_4567_89ab_cdef)));
        for bad in [
            "",
            "3",
            "3-",
            "-00000007fffffffe0123456789abcdef",
            "3-00000007fffffffe0123456789abcde",
            "3-00000007fffffffe0123456789abcdeg",
            "70000-00000007fffffffe0123456789abcdef",
            "3-+0000007fffffffe0123456789abcdef",
        ] {
            assert_eq!(read_name(bad), None, "{bad}");
        }
    }
}
