//! The WebSocket of Ant Media's SDK, `/{app}/websocket`: one JSON object a message, told apart by `command`.
//!
//! A socket publishes and plays any number of streams. Each has a session of its own, a child of the socket's, which ends
//! with it; to the client they are told apart by the id of their stream, so there is one session for an id.
//!
//! | the client says | what happens |
//! |---|---|
//! | `publish` | a session that asks; granted: `start`; the offer (`takeConfiguration`) is answered; media: `publish_started` |
//! | `play` | a session that subscribes; our offer, whose answer comes; media: `play_started` |
//! | `play` of what viewers start | `streaming_starts_soon`, then as above |
//! | `publish` of a stream that waits | as above, and `session_restored` |
//! | `stop` | the session ends, and its id is free for another |
//!
//! The messages of the client are in [`command`], ours in [`answer`]. Not spoken: rooms, calls between two browsers.

mod answer;
mod command;

use std::collections::VecDeque;
use std::time::Instant;

use sdp::Description;

use self::command::Command;
use super::ice_servers::For;
use super::messages::{Ask, FromSession, Refused, ToSession};
use super::settings::RtcAppSettings;
use crate::auth::access::is_stream_id;
use crate::http::{Response, websocket};
use crate::mail::{Message, NoSubscription, Refusal};
use crate::protocol::http::{Action, Asked, Conversation, HttpSession};
use crate::protocol::{Context, Event, FamilyEvent, FamilyNews, Reply, RequestEvent, RequestNews};
use crate::types::{Handle, SessionRef, StreamKey};

/// Streams of one socket at a time.
const STREAMS_MAX: usize = 64;
/// Records that are being asked for.
const RECORDS_MAX: usize = 16;

/// Handler: opens the socket.
pub(in crate::protocol) fn open(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    // Publishing and playing have credentials of their own, so that every page may ask.
    match websocket::accept(&asked.request, |_| true) {
        Ok(response) => {
            let socket = Socket {
                app: asked.name("app").to_owned(),
                user_agent: asked.request.header("user-agent").unwrap_or_default().to_owned(),
                origin: asked.request.header("origin").unwrap_or_default().to_owned(),
                of_foreign_page: session.is_foreign(ctx, &asked.request),
                secret: session.draw(),
                streams: Vec::new(),
                next: 0,
                records: VecDeque::new(),
                events: VecDeque::new(),
                actions: VecDeque::from([Action::Upgrade(response)]),
                granted: false,
                was_let_in: false,
                awaits_ice_servers: false,
            };
            session.converse(asked, Box::new(socket));
        }
        Err(refusal) => session.respond(ctx.now, asked.fields, refusal),
    }
}

/// A stream that the client publishes or plays.
#[derive(Debug)]
struct Stream {
    id: String,
    child: Handle,
    session: Option<SessionRef>,
    publishes: bool,
    /// The session was let in.
    let_in: bool,
    /// A publisher's stream waited for it.
    restored: bool,
    /// Whether a viewer wants its video.
    video: bool,
    audio: bool,
}

/// See the module.
#[derive(Debug)]
struct Socket {
    app: String,
    user_agent: String,
    origin: String,
    of_foreign_page: bool,
    secret: u64,
    streams: Vec<Stream>,
    next: u16,
    /// Streams whose records were asked for, in order.
    records: VecDeque<String>,
    events: VecDeque<Event>,
    actions: VecDeque<Action>,
    granted: bool,
    /// Whether a session of this socket was let in.
    was_let_in: bool,
    /// The client has asked for the servers that help to find a path, and was not told all.
    awaits_ice_servers: bool,
}

impl Socket {
    fn send(&mut self, text: String) {
        self.actions.push_back(Action::Send(text));
    }

    fn stream(&mut self, id: &str) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    fn command(&mut self, ctx: &Context<'_>, command: &Command) {
        match command.name() {
            "ping" => self.send(answer::pong()),
            "getIceServerConfig" => {
                self.tell_ice_servers(ctx);
            }
            name => self.about_a_stream(ctx, name, command),
        }
    }

    /// Tells the servers that help to find a path: with credentials only who was let in, who is told again then.
    fn tell_ice_servers(&mut self, ctx: &Context<'_>) {
        let Some(app) = ctx.apps.get(self.app.as_str()) else { return };
        let told = |whom| answer::ice_servers(RtcAppSettings::of(app), whom);
        let (all, some) = (told(For::Client), told(For::Anybody));
        self.awaits_ice_servers = !self.was_let_in && all != some;
        self.send(if self.was_let_in { all } else { some });
    }

    /// Notes that a session of this socket was let in.
    fn let_in(&mut self, ctx: &Context<'_>, at: usize) {
        if let Some(stream) = self.streams.get_mut(at) {
            stream.let_in = true;
        }
        self.was_let_in = true;
        if self.awaits_ice_servers {
            self.tell_ice_servers(ctx);
        }
    }

    /// A command that names a stream.
    fn about_a_stream(&mut self, ctx: &Context<'_>, name: &str, command: &Command) {
        let id = command.text("streamId");
        if id.is_empty() {
            return self.send(answer::error("noStreamNameSpecified", None));
        }
        if !is_stream_id(id) {
            return self.send(answer::error("invalidStreamName", Some(id)));
        }
        match name {
            "publish" => self.begin(command, id, true),
            "play" => self.begin(command, id, false),
            "stop" | "leave" => self.stop(id),
            "takeConfiguration" => self.take_configuration(command, id),
            // A lite agent has no use for candidates: the client's checks make it known.
            "takeCandidate" => {}
            "getStreamInfo" => match self.stream(id).and_then(|stream| stream.session) {
                Some(session) => self.tell(session, ToSession::Info),
                None => self.send(answer::not_there(id)),
            },
            "getTrackList" => self.send(answer::track_list(id)),
            "getBroadcastObject" => {
                if self.records.len() < RECORDS_MAX {
                    self.records.push_back(id.to_owned());
                    let let_in = self.streams.iter().filter(|stream| stream.let_in);
                    let let_in = let_in.map(|stream| stream.id.clone()).collect();
                    self.events.push_back(Event::Request(RequestEvent::Record {
                        key: StreamKey::new(&self.app, id),
                        let_in,
                    }));
                }
            }
            "toggleVideo" | "toggleAudio" => self.toggle(name == "toggleVideo", command, id),
            "forceStreamQuality" => {
                if let Some(session) = self.stream(id).and_then(|stream| stream.session) {
                    self.tell(session, ToSession::Force(command.height("streamHeight")));
                }
            }
            _ => {
                let _ = ctx;
                tracing::debug!(command = name, "command of a signalling socket that is not spoken");
            }
        }
    }

    fn begin(&mut self, command: &Command, id: &str, publishes: bool) {
        if let Some(stream) = self.stream(id) {
            let what = if stream.publishes { "already_publishing" } else { "already_playing" };
            return self.send(answer::error(what, Some(id)));
        }
        if self.streams.len() >= STREAMS_MAX {
            return self.send(answer::error("highResourceUsage", Some(id)));
        }
        let child = Handle(self.next);
        self.next = self.next.wrapping_add(1);
        let ask = Ask {
            publishes,
            key: StreamKey::new(&self.app, id),
            params: command.params(),
            user_agent: self.user_agent.clone(),
            origin: self.origin.clone(),
            of_foreign_page: self.of_foreign_page,
            offer: None,
            secret: self.secret,
        };
        let (video, audio) = (true, true);
        self.streams.push(Stream {
            id: id.to_owned(),
            child,
            session: None,
            publishes,
            let_in: false,
            restored: false,
            video,
            audio,
        });
        self.events.push_back(Event::Family(FamilyEvent::SpawnAt {
            child,
            port: super::PORT,
            what: Box::new(ask),
            outlives: false,
        }));
    }

    /// The client wants no more. The id is free at once: what the session still says is of nobody's interest.
    fn stop(&mut self, id: &str) {
        let Some(at) = self.streams.iter().position(|stream| stream.id == id) else { return };
        let stream = self.streams.remove(at);
        if let Some(session) = stream.session {
            self.tell(session, ToSession::End);
        }
        self.send(answer::finished(id, stream.publishes));
    }

    fn take_configuration(&mut self, command: &Command, id: &str) {
        let Some(stream) = self.stream(id) else {
            return self.send(answer::error("no_peer_associated_before", Some(id)));
        };
        let Some(session) = stream.session else { return };
        let is_offer = command.text("type").eq_ignore_ascii_case("offer");
        match Description::read(command.text("sdp").as_bytes()) {
            Ok(offer) if is_offer => self.tell(session, ToSession::Offer(offer)),
            Ok(answer) => self.tell(session, ToSession::Answer(answer)),
            Err(error) => {
                tracing::debug!(%error, "description refused");
                self.send(answer::error("notSetRemoteDescription", Some(id)));
            }
        }
    }

    fn toggle(&mut self, is_video: bool, command: &Command, id: &str) {
        let wanted = command.flag("enabled");
        let Some(stream) = self.stream(id).filter(|stream| !stream.publishes) else { return };
        *(if is_video { &mut stream.video } else { &mut stream.audio }) = wanted;
        let (video, audio) = (stream.video, stream.audio);
        if let Some(session) = stream.session {
            self.tell(session, ToSession::Want { video, audio });
        }
    }

    fn tell(&mut self, to: SessionRef, said: ToSession) {
        self.events.push_back(Event::Family(FamilyEvent::Tell { to, message: Message::new(said) }));
    }

    // ---- news

    fn spawned(&mut self, child: Handle, session: Option<SessionRef>) {
        let Some(at) = self.streams.iter().position(|stream| stream.child == child) else {
            // Stopped before it was there.
            session.into_iter().for_each(|session| self.tell(session, ToSession::End));
            return;
        };
        match (session, self.streams.get_mut(at)) {
            (Some(session), Some(stream)) => stream.session = Some(session),
            _ => {
                let stream = self.streams.remove(at);
                self.send(answer::error("highResourceUsage", Some(&stream.id)));
            }
        }
    }

    fn heard(&mut self, ctx: &Context<'_>, from: SessionRef, said: &FromSession) {
        let is_of = |stream: &Stream| stream.session.is_some_and(|session| session.conn == from.conn);
        let Some(at) = self.streams.iter().position(is_of) else { return };
        let Some(stream) = self.streams.get_mut(at) else { return };
        let (id, publishes) = (stream.id.clone(), stream.publishes);
        match said {
            FromSession::Granted => {
                self.let_in(ctx, at);
                self.send(answer::start(&id));
            }
            FromSession::Described(described) => {
                self.let_in(ctx, at);
                self.send(answer::configuration(&id, publishes, described));
            }
            FromSession::Connected => self.granted = true,
            FromSession::Soon => self.send(answer::starts_soon(&id)),
            FromSession::Restored => stream.restored = true,
            FromSession::Started => {
                // Its viewers have stayed: pages that know of it need not begin anew.
                let restored = std::mem::take(&mut stream.restored);
                self.send(answer::started(&id, publishes));
                restored.then(|| self.send(answer::session_restored(&id)));
            }
            FromSession::Info(tracks) => self.send(answer::stream_information(&id, tracks)),
            FromSession::Refused(why) => {
                self.streams.remove(at);
                self.refused(&id, why);
            }
            FromSession::Ended => {
                self.streams.remove(at);
                self.send(answer::finished(&id, publishes));
            }
            FromSession::Bitrates(bitrates) => self.send(answer::bitrates(&id, bitrates)),
            FromSession::Resolution(height) => self.send(answer::resolution(&id, *height)),
            FromSession::Answered(..) | FromSession::Countered(_) => {}
        }
    }

    fn refused(&mut self, id: &str, why: &Refused) {
        let definition = match why {
            Refused::Play(NoSubscription::NotFound) | Refused::NoTracks => {
                // Its page waits for the stream to begin.
                self.events.push_back(Event::Request(RequestEvent::Await(StreamKey::new(&self.app, id))));
                return self.send(answer::not_there(id));
            }
            Refused::Publish(Refusal::InUse | Refusal::Loop) => "streamIdInUse",
            Refused::Publish(Refusal::NoApplication) => "not_initialized_yet",
            Refused::Publish(Refusal::NotAllowed(_)) => "not_allowed_unregistered_streams",
            Refused::Publish(Refusal::Denied(denial)) | Refused::Play(NoSubscription::Denied(denial)) => {
                answer::denial(denial)
            }
            Refused::Publish(Refusal::Resources | Refusal::Draining)
            | Refused::Play(NoSubscription::Unavailable) => "highResourceUsage",
            Refused::Play(NoSubscription::Disabled) => return self.send(answer::not_enabled(id)),
            Refused::Description(_) => "notSetRemoteDescription",
            Refused::Closed => "publishTimeoutError",
        };
        self.send(answer::error(definition, Some(id)));
    }

    fn record(&mut self, response: &Response) {
        let Some(id) = self.records.pop_front() else { return };
        match std::str::from_utf8(&response.body).ok().filter(|_| response.status == 200) {
            Some(record) => self.send(answer::broadcast_object(&id, record)),
            None => self.send(answer::not_there(&id)),
        }
    }
}

impl Conversation for Socket {
    fn handle_message(&mut self, ctx: &Context<'_>, text: &str) {
        match Command::read(text) {
            Some(command) => self.command(ctx, &command),
            None => tracing::debug!("message of a signalling socket that is no command"),
        }
    }

    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Family(FamilyNews::Spawned { child, session }) => self.spawned(child, session),
            Reply::Family(FamilyNews::Message { from, message }) => {
                if let Some(said) = message.content::<FromSession>() {
                    self.heard(ctx, from, said);
                }
            }
            Reply::Family(FamilyNews::Ended(session)) => self.heard(ctx, session, &FromSession::Ended),
            Reply::Request(RequestNews::StreamBegun(key)) => self.send(answer::streaming_started(&key.id)),
            Reply::Request(RequestNews::Response(response)) => self.record(&response),
            Reply::Request(RequestNews::Upload(_) | RequestNews::Blob | RequestNews::Pass(_))
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Job(_)
            | Reply::Port(_) => {}
        }
    }

    fn handle_timeout(&mut self, _ctx: &Context<'_>) {}

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn is_granted(&self) -> bool {
        self.granted
    }

    fn farewell(&self) -> Option<String> {
        Some(answer::server_will_stop())
    }
}

#[cfg(test)]
mod tests;
