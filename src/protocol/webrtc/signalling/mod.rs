//! The WebSocket of Ant Media's SDK, `/{app}/websocket`: one JSON object per message, whose kind is its `command`.
//!
//! A socket publishes and plays any number of streams. Each stream has its own session, which is a child of the
//! socket's session and ends with it. The client identifies a session by the id of its stream, so there is one session
//! per id.
//!
//! | the client says | what happens |
//! |---|---|
//! | `publish` | once granted: `start`; the offer (`takeConfiguration`) is answered; with media: `publish_started` |
//! | `play` | once granted: our offer, which the client answers; with media: `play_started` |
//! | `play` of a stream that is started for viewers | `streaming_starts_soon`, then as above |
//! | `publish` of a stream that waits for its publisher | as above, and `session_restored` |
//! | `play` of a main track | the same with all its streams ([`super::room`]); offers as streams join or leave |
//! | `stop` | the session ends, and its id is free for another |
//! | `joinRoom`, `getSubtracks`, ... | [`rooms`]: control answers |
//! | `join`, `leave` | [`calls`]: messages are relayed between two browsers |
//! | an unknown or unsupported command | the error `notImplemented` |
//!
//! The messages of the client are in [`command`], ours in [`answer`].

mod answer;
mod calls;
mod command;
mod rooms;

use std::collections::VecDeque;
use std::time::Instant;

use sdp::Description;

use self::calls::{Call, Relayed};
use self::command::Command;
use self::rooms::{Asked, Joined};
use super::ice_servers::{self, For};
use super::messages::{Ask, FromSession, Refused, ToSession};
use super::room::{Choice, STREAMS_MAX as ROOM_MAX};
use super::settings::RtcAppSettings;
use crate::auth::access::is_stream_id;
use crate::http::websocket;
use crate::mail::{Message, NoSubscription, Refusal};
use crate::protocol::http::{self, Action, Conversation, HttpSession};
use crate::protocol::ice_servers::{IceAsk, host_of};
use crate::protocol::{Context, Event, FamilyEvent, FamilyNews, Reply, RequestEvent, RequestNews};
use crate::types::{Handle, SessionRef, StreamKey};

/// Maximum number of streams and calls of one socket.
const STREAMS_MAX: usize = 64;
/// Maximum number of messages to a session that does not exist yet.
const UNSAID_MAX: usize = 64;

/// Handler that opens the socket.
pub(in crate::protocol) fn open(session: &mut HttpSession, ctx: &Context<'_>, asked: http::Asked) {
    // Publishing and playing require credentials of their own, so every page may connect.
    match websocket::accept(&asked.request, |_| true) {
        Ok(response) => {
            let socket = Socket {
                app: asked.name("app").to_owned(),
                user_agent: asked.request.header("user-agent").unwrap_or_default().to_owned(),
                origin: asked.request.header("origin").unwrap_or_default().to_owned(),
                of_foreign_page: session.is_foreign(ctx, &asked.request),
                secret: session.draw(),
                joined: Joined::new(session.draw()),
                streams: Vec::new(),
                next: 0,
                calls: Vec::new(),
                questions: VecDeque::new(),
                events: VecDeque::new(),
                actions: VecDeque::from([Action::Upgrade(response)]),
                granted: false,
                was_let_in: false,
                ice: IceClient {
                    host: host_of(asked.request.header("host").unwrap_or_default()).to_owned(),
                    user: session.draw(),
                    is_waiting: false,
                },
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
    /// True if the session was admitted.
    let_in: bool,
    /// True if the publisher has returned to its stream, which was kept for it.
    restored: bool,
    /// Messages to the session, which does not exist yet.
    unsaid: Vec<ToSession>,
}

/// A signalling socket.
#[derive(Debug)]
struct Socket {
    app: String,
    user_agent: String,
    origin: String,
    of_foreign_page: bool,
    secret: u64,
    /// The rooms that the client has joined.
    joined: Joined,
    streams: Vec<Stream>,
    next: u16,
    calls: Vec<Call>,
    /// Questions to control that are not answered yet, in order.
    questions: VecDeque<Asked>,
    events: VecDeque<Event>,
    actions: VecDeque<Action>,
    granted: bool,
    /// True if a session of this socket was admitted.
    was_let_in: bool,
    /// The client's state regarding ICE servers.
    ice: IceClient,
}

/// A client's state regarding ICE servers.
#[derive(Debug)]
struct IceClient {
    /// Host name in the client's request to this server.
    host: String,
    /// User name in the client's credentials.
    user: u64,
    /// True if the client has asked for ICE servers and got only those without credentials.
    is_waiting: bool,
}

impl Socket {
    fn send(&mut self, text: String) {
        self.actions.push_back(Action::Send(text));
    }

    /// True if the socket may have no more streams and calls.
    const fn is_full(&self) -> bool {
        self.streams.len().saturating_add(self.calls.len()) >= STREAMS_MAX
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
            "registerPushNotificationToken" | "sendPushNotification" | "getDebugInfo" => {
                self.unknown(command.name(), None);
            }
            name => self.about_a_stream(name, command),
        }
    }

    /// Sends the ICE servers to the client. Credentials are for admitted clients only, so they are sent again once the
    /// client is admitted.
    fn tell_ice_servers(&mut self, ctx: &Context<'_>) {
        let Some(app) = ctx.apps.get(self.app.as_str()) else { return };
        let ask = IceAsk { now: ctx.now, server: ctx.server, host: &self.ice.host, user: self.ice.user };
        let app = RtcAppSettings::of(app);
        let told = |whom| answer::ice_servers(app, &ice_servers::told(&ask, app, whom), whom);
        let (all, some) = (told(For::Client), told(For::Anybody));
        self.ice.is_waiting = !self.was_let_in && all != some;
        self.send(if self.was_let_in { all } else { some });
    }

    /// Records that a session of this socket was admitted.
    fn let_in(&mut self, ctx: &Context<'_>, at: usize) {
        if let Some(stream) = self.streams.get_mut(at) {
            stream.let_in = true;
        }
        self.was_let_in = true;
        if self.ice.is_waiting {
            self.tell_ice_servers(ctx);
        }
    }

    /// Handles a command that names a stream.
    fn about_a_stream(&mut self, name: &str, command: &Command) {
        if self.about_a_room(name, command) {
            return;
        }
        let id = command.text("streamId");
        if id.is_empty() {
            return self.send(answer::error("noStreamNameSpecified", None));
        }
        if !is_stream_id(id) {
            return self.send(answer::error("invalidStreamName", Some(id)));
        }
        if self.about_records(name, command, id) {
            return;
        }
        match name {
            "publish" => self.begin(command, id, true),
            "play" => self.begin(command, id, false),
            "join" => self.join_call(id, command),
            // Some clients end a call with `stop`, the command for streams.
            "leave" | "stop" if self.stream(id).is_none() && self.leave_call(id) => {}
            "stop" | "leave" => self.stop(id),
            "takeConfiguration" if self.relay(id, command) => {}
            "takeConfiguration" => self.take_configuration(command, id),
            // Candidates for our own sessions are ignored: a lite agent learns the client's address from its
            // connectivity checks.
            "takeCandidate" => drop(self.relay(id, command)),
            "peerMessageCommand" if self.relay(id, command) => {}
            "peerMessageCommand" => self.send(answer::error("no_peer_associated_before", Some(id))),
            "toggleVideo" | "toggleAudio" => self.toggle(name == "toggleVideo", command, id),
            "enableTrack" => {
                let wanted = Some(command.flag("enabled"));
                self.want_of(id, command.text("trackId"), wanted, wanted);
            }
            "assignVideoTrackCommand" => self.pin(id, command),
            "getVideoTrackAssignmentsCommand"
            | "updateVideoTrackAssignmentsCommand"
            | "setMaxVideoTrackCountCommand" => self.about_assignments(name, command, id),
            "forceStreamQuality" => {
                if let Some(session) = self.stream(id).and_then(|stream| stream.session) {
                    self.tell(session, ToSession::Force(command.height("streamHeight")));
                }
            }
            "updateStreamMetaData" => self.set_meta_data(command, id),
            _ => self.unknown(name, Some(id)),
        }
    }

    /// Answers an unknown or unsupported command, because pages wait for an answer.
    fn unknown(&mut self, name: &str, id: Option<&str>) {
        tracing::debug!(command = name, "command of a signalling socket that is not spoken");
        self.send(answer::error("notImplemented", id));
    }

    fn begin(&mut self, command: &Command, id: &str, publishes: bool) {
        if let Some(stream) = self.stream(id) {
            let what = if stream.publishes { "already_publishing" } else { "already_playing" };
            return self.send(answer::error(what, Some(id)));
        }
        if self.call(id).is_some() {
            return self.send(answer::error("streamIdInUse", Some(id)));
        }
        if self.is_full() {
            return self.send(answer::error("highResourceUsage", Some(id)));
        }
        let child = self.next_child();
        let ask = Ask {
            publishes,
            key: StreamKey::new(&self.app, id),
            params: self.params_of(command, id, publishes),
            user_agent: self.user_agent.clone(),
            origin: self.origin.clone(),
            of_foreign_page: self.of_foreign_page,
            offer: None,
            choice: (!publishes).then(|| choice_of(command)),
            secret: self.secret,
        };
        self.streams.push(Stream {
            id: id.to_owned(),
            child,
            session: None,
            publishes,
            let_in: false,
            restored: false,
            unsaid: Vec::new(),
        });
        self.events.push_back(Event::Family(FamilyEvent::SpawnAt {
            child,
            port: super::PORT,
            what: Box::new(ask),
            outlives: false,
        }));
    }

    /// Returns a number for a session that no other session of this socket has.
    fn next_child(&mut self) -> Handle {
        let is_free = |child: &Handle| self.streams.iter().all(|stream| stream.child != *child);
        let mut numbers = (0..=u16::MAX).map(|ahead| Handle(self.next.wrapping_add(ahead)));
        let child = numbers.find(is_free).unwrap_or(Handle(self.next));
        self.next = child.0.wrapping_add(1);
        child
    }

    /// Stops a stream at the client's request. Its id is free immediately; later messages of the session are ignored.
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
        let track = command.text("trackId");
        // The command concerns the stream itself, or a single stream of a main track.
        let track = if track.is_empty() { id } else { track };
        let (video, audio) = (is_video.then_some(wanted), (!is_video).then_some(wanted));
        self.want_of(id, track, video, audio);
    }

    fn tell(&mut self, to: SessionRef, said: ToSession) {
        self.events.push_back(Event::Family(FamilyEvent::Tell { to, message: Message::new(said) }));
    }

    // ---- news

    fn spawned(&mut self, child: Handle, session: Option<SessionRef>) {
        let Some(at) = self.streams.iter().position(|stream| stream.child == child) else {
            // The client stopped the stream before its session existed.
            session.into_iter().for_each(|session| self.tell(session, ToSession::End));
            return;
        };
        match (session, self.streams.get_mut(at)) {
            (Some(session), Some(stream)) => {
                stream.session = Some(session);
                let unsaid = std::mem::take(&mut stream.unsaid);
                unsaid.into_iter().for_each(|said| self.tell(session, said));
            }
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
                // The publisher has returned, and the viewers of its stream have stayed. A page that handles this
                // message need not start again.
                let restored = std::mem::take(&mut stream.restored);
                self.send(answer::started(&id, publishes));
                restored.then(|| self.send(answer::session_restored(&id)));
            }
            FromSession::Info(tracks) => self.send(answer::stream_information(&id, tracks)),
            FromSession::Refused(why) => {
                self.streams.remove(at);
                self.refused(&id, why);
            }
            FromSession::OfferRefused => self.send(answer::error("notSetRemoteDescription", Some(&id))),
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
                // The page waits for the stream to begin.
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
            | Refused::Play(NoSubscription::Draining | NoSubscription::Resources) => "highResourceUsage",
            Refused::Play(NoSubscription::Disabled) => return self.send(answer::not_enabled(id)),
            Refused::Description(_) => "notSetRemoteDescription",
            Refused::Closed => "publishTimeoutError",
        };
        self.send(answer::error(definition, Some(id)));
    }
}

/// Returns the streams of a main track that a page wants: `!` before an id excludes it, and the page's own stream is
/// not sent back.
fn choice_of(command: &Command) -> Choice {
    let mut choice = Choice { is_off: command.is_set("disableTracksByDefault"), ..Choice::default() };
    for id in command.list("trackList", ROOM_MAX) {
        match id.strip_prefix('!') {
            Some(id) => choice.without.push(id.to_owned()),
            None if id.is_empty() => {}
            None => choice.only.push(id.to_owned()),
        }
    }
    let own = command.text("userPublishId");
    if !own.is_empty() {
        choice.without.push(own.to_owned());
    }
    choice
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
                } else if let Some(relayed) = message.content::<Relayed>() {
                    self.relayed(from, relayed);
                }
            }
            Reply::Family(FamilyNews::Ended(session)) => self.heard(ctx, session, &FromSession::Ended),
            Reply::Request(RequestNews::StreamBegun(key)) => self.send(answer::streaming_started(&key.id)),
            Reply::Request(RequestNews::Response(response)) => self.answered(&response),
            Reply::Request(RequestNews::Call(key, news)) => self.call_news(&key, news),
            Reply::Request(
                RequestNews::Upload(_) | RequestNews::TakeBody | RequestNews::Blob | RequestNews::Pass(_),
            )
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
