//! A WebRTC peer of the server, which publishes or plays a stream.
//!
//! A session is made for a controller, which communicates with the client: a request of WHIP or WHEP, or a signalling
//! socket. Descriptions and news are exchanged between the two as [`ToSession`] and [`FromSession`]; media passes
//! through the port.
//!
//! | | the client's request has an offer | the client offers later, or never |
//! |---|---|---|
//! | publishes | the offer is evaluated; once granted: our answer | once granted: the client's offer, then our answer |
//! | plays | once granted, with tracks: our answer | once granted, with tracks: our offer, then the client's answer |

mod data;
mod later;
mod publishing;
mod rooms;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{CloseReason, Config, MediaPreference, Peer};
use crypto::Seed;
use media::Tracks;
use rtp::NtpAnchor;
use sdp::{Description, MediaKind};
use wire::Datagrams;

use super::codecs::Codecs;
use super::data::{DataRelay, DataSettings};
use super::ingest::Ingest;
use super::messages::{Ask, Described, FromSession, Later, Refused, ToSession};
use super::negotiation::{self, Shown};
use super::room::{FirstOffer, Room};
use super::settings::RtcAppSettings;
use super::statistics::RtcFigures;
use super::viewer::{Outcome, Viewer};
use super::way::Ways;
use crate::hub::Delivery;
use crate::mail::{Departure, Grant, Message, NoSubscription, Refusal, StreamData};
use crate::protocol::{
    About, Claim, Context, DatagramPeer, Event, FamilyEvent, FamilyNews, Format, Logs, PathId, PlayAsk,
    PortEvent, PublicationEvent, PublicationNews, PublishAsk, RefusedRequest, Remote, Reply, Session,
    SubscriptionEvent, SubscriptionNews, Timers, To, UnitSink, Verb,
};
use crate::stats::Figures;
use crate::types::{Handle, SessionRef, StreamKey};

/// Capacity for events that an idle session keeps.
const EVENTS_KEPT: usize = 4;
/// Number of waiting events up to which the client's questions are answered.
const ANSWERS_MAX: usize = 256;
/// Maximum time that a viewer waits for the first tracks of its stream. A client's description is awaited three
/// times as long.
const DESCRIBE_WAIT: Duration = Duration::from_secs(5);

/// The role of the peer.
#[derive(Debug)]
enum Role {
    /// The peer has no role yet, or has lost it.
    None,
    /// Waits for permission to publish. Contains the answer to the client's offer, if the client made one.
    AskedPublish(Option<Described>),
    /// May publish; the client has not sent its offer yet.
    Granted(Box<Grant>),
    /// Publishes.
    Publisher(Box<Ingest>),
    /// Waits for permission to play, or for tracks. Contains the client's offer, if the client made one.
    AskedPlay(Option<Box<Description>>),
    /// Our offer for these tracks was sent. Contains the streams of the main track, if the viewer was admitted to the
    /// room after that.
    Offered(Arc<Tracks>, Option<Vec<StreamKey>>),
    /// Plays.
    Viewer(Box<Viewer>),
    /// Plays a main track.
    Room(Box<Room>),
}

/// The controller's session, which communicates with the client, and the secret that later requests about this session
/// must contain.
#[derive(Debug)]
struct Asker {
    session: SessionRef,
    secret: u64,
}

/// The session of a WebRTC peer.
#[derive(Debug)]
pub(super) struct RtcSession {
    peer: Box<Peer>,
    ways: Ways,
    /// Data channels, once the peer has any.
    data: Option<Box<DataRelay>>,
    role: Role,
    asker: Asker,
    key: StreamKey,
    publishes: bool,
    /// The first offer to a client that accepts subtracks; kept until the client becomes a viewer of the whole main
    /// track.
    first_offer: Option<Box<FirstOffer>>,
    /// True if the stream has been live for a while. If it has no video, none is expected any more.
    is_seasoned: bool,
    events: VecDeque<Event>,
    /// Time by which the client must have sent its description.
    describe_by: Option<Instant>,
    /// True if the peer's request was granted, so that its end is logged.
    granted: bool,
    connected: bool,
    started: bool,
    closed: bool,
}

impl RtcSession {
    /// Makes a session. `None` if the application does not exist, or there is no certificate.
    pub(super) fn new(
        ctx: &Context<'_>,
        (config, anchor, bound): (Arc<Config>, NtpAnchor, SocketAddr),
        asker: SessionRef,
        ask: Ask,
        seed: Seed,
    ) -> Option<Self> {
        let mut peer = Peer::new(ctx.now.mono, config, anchor, seed).ok()?;
        // Until a description of ours is sent, `describe_by` limits the time.
        peer.hold_wait();
        let mut session = Self {
            peer: Box::new(peer),
            ways: Ways::new(bound),
            data: None,
            role: Role::None,
            asker: Asker { session: asker, secret: ask.secret },
            key: ask.key.clone(),
            publishes: ask.publishes,
            first_offer: ask.choice.clone().map(|choice| Box::new(FirstOffer::new(choice))),
            is_seasoned: false,
            events: VecDeque::new(),
            describe_by: ctx.now.mono.checked_add(DESCRIBE_WAIT.saturating_mul(3)),
            granted: false,
            connected: false,
            started: false,
            closed: false,
        };
        if ask.publishes {
            session.ask_publish(ctx, ask)
        } else {
            session.ask_play(ask)
        }
        Some(session)
    }

    fn ask_publish(&mut self, ctx: &Context<'_>, ask: Ask) {
        let mut answer = None;
        if let Some(offer) = &ask.offer {
            match self.answer_publisher(ctx, offer) {
                Ok(described) => answer = Some(described),
                Err(error) => return self.refuse(Refused::Description(error)),
            }
        }
        self.role = Role::AskedPublish(answer);
        let Ask { key, params, user_agent, of_foreign_page, .. } = ask;
        let (ingest, via) = (super::INGEST, Vec::new());
        let ask = PublishAsk { key, ingest, user_agent, params, via, zero_ms: None, of_foreign_page };
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
    }

    fn ask_play(&mut self, ask: Ask) {
        self.role = Role::AskedPlay(ask.offer.map(Box::new));
        let Ask { key, params, origin, .. } = ask;
        let format = Format::new(&super::FORMAT, 0);
        let ask = PlayAsk {
            key,
            format,
            params,
            origin,
            via: Vec::new(),
            takes_subtracks: self.first_offer.is_some(),
        };
        self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask)));
    }

    // ---- descriptions

    fn answer_publisher(
        &mut self,
        ctx: &Context<'_>,
        offer: &Description,
    ) -> Result<Described, ::webrtc::Error> {
        let codecs = self.codecs(ctx);
        if negotiation::leaves_out_video(offer, codecs) {
            return Err(::webrtc::Error::NothingInCommon);
        }
        if self.data_settings(ctx).enabled {
            self.peer.take_data();
        }
        let answer =
            self.peer.handle_offer(ctx.now.mono, offer, |_, media| negotiation::take(media, codecs))?;
        Ok(self.describe(&answer, Vec::new()))
    }

    /// Returns the codecs enabled in the application.
    fn codecs(&self, ctx: &Context<'_>) -> Codecs {
        ctx.apps.get(&self.key.app).map_or(Codecs::ALL, |app| RtcAppSettings::of(app).codecs)
    }

    fn describe(&self, description: &Description, names: Vec<(String, String)>) -> Described {
        Described { sdp: description.write(), tag: self.peer.local_fragment().to_owned(), names }
    }

    /// Sends a description to the controller, and begins to accept the client's datagrams.
    fn send_description(&mut self, ctx: &Context<'_>, described: Described) {
        self.listen(ctx);
        self.tell(FromSession::Described(described));
    }

    fn listen(&mut self, ctx: &Context<'_>) {
        self.describe_by = None;
        self.peer.begin_wait(ctx.now.mono);
        self.events
            .push_back(Event::Port(PortEvent::Claim(Claim::Name(self.peer.local_fragment().to_owned()))));
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        let Role::AskedPublish(answer) = &mut self.role else { return };
        let answer = answer.take();
        self.granted = verdict.is_ok();
        if verdict.as_ref().is_ok_and(|grant| grant.epoch > 0) {
            self.tell(FromSession::Restored);
        }
        match (verdict, answer) {
            (Ok(grant), Some(answer)) => {
                self.begin_ingest(ctx, &grant);
                // A client that asks with an offer, as by WHIP, has media to send. A participant of a room, which is asked
                // for its offer, may join without any.
                if let Role::Publisher(ingest) = &mut self.role {
                    ingest.require_media();
                }
                self.send_description(ctx, answer);
            }
            (Ok(grant), None) => {
                self.role = Role::Granted(Box::new(grant));
                self.tell(FromSession::Granted);
            }
            (Err(refusal), _) => {
                self.role = Role::None;
                self.refuse(Refused::Publish(refusal));
            }
        }
    }

    fn begin_ingest(&mut self, ctx: &Context<'_>, grant: &Grant) {
        self.role = Role::Publisher(Box::new(Ingest::new(ctx.now.mono, grant, self.peer.sections())));
    }

    fn subscribe_verdict(&mut self, ctx: &Context<'_>, verdict: Result<&Tracks, NoSubscription>) {
        self.granted = verdict.is_ok();
        match verdict {
            // The subscription is paused until the peer can be sent media.
            Ok(tracks) => {
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(true)));
                if tracks.is_empty() {
                    self.describe_by = ctx.now.mono.checked_add(self.wait_for_tracks(ctx));
                } else {
                    self.describe_stream(ctx, tracks);
                }
            }
            Err(why) => {
                self.role = Role::None;
                self.refuse(Refused::Play(why));
            }
        }
    }

    /// Answers the client's offer, or makes one, once the tracks of the stream are known.
    fn describe_stream(&mut self, ctx: &Context<'_>, tracks: &Tracks) {
        let (codecs, to_come) = (self.codecs(ctx), negotiation::to_come(tracks, self.is_seasoned));
        let takes_data = self.data_settings(ctx).enabled;
        let tracks = &codecs.of(tracks);
        let Role::AskedPlay(offer) = &mut self.role else { return };
        let stream = Shown { tracks, codecs, to_come, id: &self.key.id };
        let offer = offer.take();
        // A client that offers only media is answered with media only; a client that waits for our offer is offered
        // data channels too.
        let has_data =
            |offer: &Description| offer.media.iter().any(|media| media.kind == MediaKind::Application);
        if takes_data && offer.as_deref().is_none_or(has_data) {
            self.peer.take_data();
        }
        match offer {
            Some(offer) if offer.media.is_empty() || negotiation::lacks_form(&offer, tracks) => {
                self.counter(ctx, &negotiation::offered(stream), tracks);
            }
            Some(offer) => {
                let mut taken = negotiation::Taken::default();
                let answer = self.peer.handle_offer(ctx.now.mono, &offer, |_, media| {
                    negotiation::give(media, stream, &mut taken)
                });
                match answer {
                    Ok(answer) => {
                        let tracks = Arc::new(tracks.clone());
                        self.begin_viewing(ctx, &tracks);
                        let described = self.describe(&answer, Vec::new());
                        self.send_description(ctx, described);
                    }
                    Err(::webrtc::Error::NothingInCommon) => {
                        self.counter(ctx, &negotiation::offered(stream), tracks);
                    }
                    Err(error) => self.refuse(Refused::Description(error)),
                }
            }
            None => {
                let sections = negotiation::offered(stream);
                match self.peer.offer(&sections) {
                    Ok(offer) => {
                        self.first_offer.iter_mut().for_each(|first| first.note(&sections));
                        let names = negotiation::names(&offer);
                        let described = self.describe(&offer, names);
                        self.role = Role::Offered(Arc::new(tracks.clone()), None);
                        self.send_description(ctx, described);
                    }
                    Err(error) => self.refuse(Refused::Description(error)),
                }
            }
        }
    }

    fn begin_viewing(&mut self, ctx: &Context<'_>, tracks: &Arc<Tracks>) {
        let mut viewer = Viewer::new(ctx.now.mono, &mut self.peer, tracks);
        let first = self.first_offer.as_mut();
        let wants = first.map_or((true, true), |first| first.choice.take_wants(&self.key.id, (true, true)));
        viewer.want(wants.0, wants.1);
        let chooses = viewer.begins_to_choose() || wants != (true, true);
        // A key frame requested now arrives about when the peer can be sent media, if the publisher can make one.
        if let Some(track) = viewer.video() {
            self.events
                .push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameSoon(Some(track))));
        }
        self.role = Role::Viewer(Box::new(viewer));
        if chooses {
            self.select();
        }
    }

    /// Selects the tracks that the viewer should be sent from now on.
    fn select(&mut self) {
        if let Role::Viewer(viewer) = &self.role {
            let selection = viewer.selection();
            self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Select(selection)));
        }
    }

    /// Responds to an offer that cannot be answered: makes an offer of ours, for the tracks that the client could be
    /// sent.
    fn counter(&mut self, ctx: &Context<'_>, sections: &[(MediaKind, MediaPreference)], tracks: &Tracks) {
        match self.peer.offer(sections) {
            Ok(offer) => {
                let described = self.describe(&offer, Vec::new());
                self.role = Role::Offered(Arc::new(tracks.clone()), None);
                self.listen(ctx);
                self.tell(FromSession::Countered(described));
            }
            Err(error) => self.refuse(Refused::Description(error)),
        }
    }

    fn message(&mut self, ctx: &Context<'_>, from: SessionRef, message: &Message) {
        if let Some(data) = message.content::<StreamData>() {
            return self.hear(ctx, data);
        }
        let Some(said) = message.content::<ToSession>() else { return };
        match said {
            ToSession::Request { secret, request } => self.later(ctx, from, *secret, request),
            _ if from.conn != self.asker.session.conn => {}
            ToSession::Offer(offer) => self.take_offer(ctx, offer),
            ToSession::Answer(answer) => {
                if let Some(Err(error)) = self.take_answer(ctx, answer) {
                    self.refuse(Refused::Description(error));
                } else if let Role::Viewer(viewer) = &mut self.role {
                    viewer.tell_bitrates(ctx.now.mono);
                }
            }
            ToSession::Assignments => self.say_assignments(ctx),
            ToSession::TurnOver(window) => self.turn_room_over(ctx, window.clone()),
            ToSession::Want { name, video, audio } => self.want(ctx, name, *video, *audio),
            ToSession::Pin { name, pins } => self.pin_in_room(ctx, name, *pins),
            ToSession::LimitVideos(count) => self.limit_videos(ctx, *count),
            ToSession::Force(height) => self.force(*height),
            // A client that asks faster than it reads is not answered each time.
            ToSession::Info if self.events.len() >= ANSWERS_MAX => {}
            ToSession::Info => {
                let tracks = match &self.role {
                    Role::Viewer(viewer) => viewer.info(),
                    Role::Publisher(ingest) => ingest.info(),
                    Role::Room(room) => room.info(),
                    Role::None
                    | Role::AskedPublish(_)
                    | Role::Granted(_)
                    | Role::AskedPlay(_)
                    | Role::Offered(..) => Vec::new(),
                };
                self.tell(FromSession::Info(tracks));
            }
            ToSession::End => self.end(ctx, Departure::Clean),
        }
    }

    /// Handles the client's answer; `None` if no offer of ours is pending.
    fn take_answer(
        &mut self,
        ctx: &Context<'_>,
        answer: &Description,
    ) -> Option<Result<(), ::webrtc::Error>> {
        if let Role::Room(room) = &self.role {
            let is_open = room.is_open();
            let taken = is_open.then(|| self.peer.handle_answer(ctx.now.mono, answer))?;
            if taken.is_ok() {
                self.room_answered(ctx);
            }
            return Some(taken);
        }
        let Role::Offered(tracks, streams) = &mut self.role else { return None };
        let (tracks, streams) = (Arc::clone(tracks), streams.take());
        let taken = self.peer.handle_answer(ctx.now.mono, answer);
        if taken.is_ok() {
            self.begin_viewing(ctx, &tracks);
            if let Some(streams) = streams {
                self.join_room(ctx, &streams);
            }
        }
        Some(taken)
    }

    // ---- the end

    fn tell(&mut self, said: FromSession) {
        self.events.push_back(Event::Family(FamilyEvent::Tell {
            to: self.asker.session,
            message: Message::new(said),
        }));
    }

    fn refuse(&mut self, why: Refused) {
        let reason = match &why {
            // The refusal came from the worker, which has logged it.
            Refused::Publish(refusal) => refusal.reason().to_owned(),
            Refused::Play(why) => why.reason().to_owned(),
            Refused::NoTracks => self.refused("the stream has no tracks yet".to_owned()),
            Refused::Description(error) => self.refused(format!("the descriptions do not fit: {error}")),
            Refused::Closed => "closed".to_owned(),
        };
        self.tell(FromSession::Refused(why));
        self.over(&reason, Departure::Clean);
    }

    /// Logs a refusal that did not come from the worker. Returns its reason.
    fn refused(&mut self, reason: String) -> String {
        let verb = if self.publishes { Verb::Publish } else { Verb::Play };
        self.events.push_back(RefusedRequest::event(verb, &self.key, reason.clone()));
        reason
    }

    /// Ends the peer's role, and closes the peer.
    fn end(&mut self, ctx: &Context<'_>, departure: Departure) {
        self.peer.close(ctx.now.mono);
        self.over("closed here", departure);
    }

    fn over(&mut self, reason: &str, departure: Departure) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.describe_by = None;
        match std::mem::replace(&mut self.role, Role::None) {
            Role::AskedPublish(_) | Role::Granted(_) | Role::Publisher(_) => {
                self.events.push_back(unpublished(departure));
            }
            Role::AskedPlay(_) | Role::Offered(..) | Role::Viewer(_) | Role::Room(_) => {
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
            }
            Role::None => {}
        }
        self.tell(FromSession::Ended);
        self.events.push_back(Event::Closed(reason.to_owned()));
    }

    // ---- events of the peer

    fn drain_peer(&mut self, ctx: &Context<'_>) {
        while self.events.is_empty()
            && let Some(event) = self.peer.poll_event()
        {
            self.peer_event(ctx, event);
        }
    }

    pub(super) fn note_connected(&mut self, ctx: &Context<'_>) {
        self.connected = true;
        self.tell(FromSession::Connected);
        match &mut self.role {
            Role::Publisher(ingest) => ingest.connected(ctx.now.mono),
            Role::Viewer(_) => {
                self.events.push_back(Event::Subscription(Handle::ONLY, SubscriptionEvent::Pause(false)));
            }
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::AskedPlay(_)
            | Role::Offered(..)
            | Role::Room(_) => {}
        }
        self.room_connected();
    }

    fn peer_event(&mut self, ctx: &Context<'_>, event: ::webrtc::Event) {
        match event {
            ::webrtc::Event::PathOpened(path) => {
                self.events
                    .extend(self.ways.open(path).map(|way| Event::Port(PortEvent::Claim(Claim::Open(way)))));
            }
            ::webrtc::Event::PathClosed(path) => {
                self.events.extend(
                    self.ways.close(path).map(|way| Event::Port(PortEvent::Claim(Claim::Close(way)))),
                );
            }
            ::webrtc::Event::Connected => self.note_connected(ctx),
            ::webrtc::Event::Frame { section, layer, frame, sampled } => {
                if let Role::Publisher(ingest) = &mut self.role {
                    if !ingest.frame(ctx.now.mono, (section, layer), frame, sampled) {
                        self.peer.request_key_frame(ctx.now.mono, section, layer);
                    }
                    self.take_units();
                }
            }
            ::webrtc::Event::AudioLevel { level, .. } => self.note_loudness(ctx, level),
            ::webrtc::Event::PictureLost { section, layer } => {
                if let Role::Publisher(ingest) = &mut self.role {
                    ingest.lost(section, layer);
                }
            }
            ::webrtc::Event::KeyFrameWanted { section } => {
                let wanted = match &mut self.role {
                    Role::Viewer(viewer) => {
                        viewer.key_frame_wanted(ctx.now.mono, section).map(|track| (Handle::ONLY, track))
                    }
                    Role::Room(room) => room.carries(section).and_then(|(handle, _)| {
                        let (viewer, _) = room.viewer(handle)?;
                        Some((handle, viewer.key_frame_wanted(ctx.now.mono, section)?))
                    }),
                    Role::None
                    | Role::AskedPublish(_)
                    | Role::Granted(_)
                    | Role::Publisher(_)
                    | Role::AskedPlay(_)
                    | Role::Offered(..) => None,
                };
                if let Some((handle, track)) = wanted {
                    let needed = SubscriptionEvent::KeyFrameNeeded(Some(track));
                    self.events.push_back(Event::Subscription(handle, needed));
                }
            }
            // A peer that sent `close_notify` has left; a peer that became silent may return.
            ::webrtc::Event::Closed(reason) => {
                let departure = if reason == CloseReason::Peer { Departure::Clean } else { Departure::Lost };
                if !self.closed {
                    self.events.push_back(Event::Port(PortEvent::Claim(Claim::Past(self.asker.secret))));
                }
                self.over(words(reason), departure);
            }
            event @ (::webrtc::Event::DataConnected
            | ::webrtc::Event::ChannelOpened(_)
            | ::webrtc::Event::ChannelClosed(_)
            | ::webrtc::Event::Message { .. }) => self.data_event(ctx, event),
            // A lite agent has no candidates to send, and only the first format of a section is used.
            ::webrtc::Event::Candidate(_) | ::webrtc::Event::Format { .. } | _ => {}
        }
    }
}

const fn unpublished(departure: Departure) -> Event {
    Event::Publication(Handle::ONLY, PublicationEvent::Over(departure))
}

const fn words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Local => "closed here",
        CloseReason::ConnectTimeout => "no path to the peer",
        CloseReason::ConsentExpired => "the peer is silent",
        CloseReason::Peer => "the peer said goodbye",
        CloseReason::Handshake(_) => "the handshake failed",
        _ => "closed",
    }
}

impl DatagramPeer for RtcSession {
    fn handle_datagram(&mut self, ctx: &Context<'_>, _path: PathId, from: Remote, datagram: &mut [u8]) {
        let path = self.ways.hear(from);
        self.peer.handle_datagram(ctx.now.mono, path, datagram);
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, logs: Logs<'_, '_>, out: &mut Datagrams) -> To {
        let (viewer, room) = match &self.role {
            Role::Viewer(viewer) => (Some(viewer), None),
            Role::Room(room) => (None, Some(room)),
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::Publisher(_)
            | Role::AskedPlay(_)
            | Role::Offered(..) => (None, None),
        };
        let own = viewer.and_then(|_| logs(Handle::ONLY));
        let log = |section| match room {
            Some(room) => {
                let (handle, track) = room.carries(section)?;
                logs(handle)?.log(track)
            }
            None => own?.log(viewer?.track_of(section)?),
        };
        let remote = loop {
            let Some(path) = self.peer.poll_transmit(ctx.now.mono, log, out) else { break None };
            if let Some(remote) = self.ways.find(path) {
                break Some(remote);
            }
            // No route for this path: the packets count as lost, and packets for other paths are still sent.
            out.clear();
        };
        To { path: PathId::default(), remote, last: self.peer.has_nothing_to_send() }
    }
}

impl UnitSink for RtcSession {
    fn has_room(&self) -> bool {
        self.connected && matches!(self.role, Role::Viewer(_) | Role::Room(_))
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, subscription: Handle, unit: &Delivery<'_>) {
        if let Role::Room(_) = &self.role {
            return self.room_unit(ctx, subscription, unit);
        }
        let Role::Viewer(viewer) = &mut self.role else { return };
        match viewer.send(ctx.now.mono, &mut self.peer, unit, &self.key) {
            Outcome::OtherCodec => return self.end(ctx, Departure::Clean),
            Outcome::Switched(height) => self.tell(FromSession::Resolution(height)),
            Outcome::LeftOut => {
                if let Some(track) = viewer.key_frame_due(ctx.now.mono, &self.peer) {
                    let (subscription, track) = (Handle::ONLY, Some(track));
                    self.events.push_back(Event::Subscription(
                        subscription,
                        SubscriptionEvent::KeyFrameNeeded(track),
                    ));
                }
                return;
            }
            Outcome::Done => {}
        }
        if !std::mem::replace(&mut self.started, true) {
            self.tell(FromSession::Started);
        }
    }
}

impl Session for RtcSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Publication(_, news) => self.publication_news(ctx, news),
            Reply::Subscription(handle, news) if handle != Handle::ONLY => {
                self.member_news(ctx, handle, &news);
            }
            Reply::Subscription(_, news) => match news {
                SubscriptionNews::Subtracks(news) => self.subtrack_news(ctx, news),
                SubscriptionNews::Verdict(verdict) => self.subscribe_verdict(ctx, verdict),
                SubscriptionNews::TracksKnown(tracks) => self.describe_stream(ctx, tracks),
                SubscriptionNews::Held => self.tell(FromSession::Soon),
                SubscriptionNews::Seasoned => self.is_seasoned = true,
                SubscriptionNews::Zero(_) | SubscriptionNews::KindAdded(_) => {}
                SubscriptionNews::Ended(_) => {
                    self.role = Role::None;
                    self.end(ctx, Departure::Clean);
                }
            },
            Reply::Family(FamilyNews::Message { from, message }) => self.message(ctx, from, &message),
            // The controller has ended before the descriptions were exchanged, so nobody would pass our description
            // to the client. After the exchange, the session does not need its controller.
            Reply::Family(FamilyNews::Ended(gone))
                if self.describe_by.is_some() && gone.conn == self.asker.session.conn =>
            {
                self.end(ctx, Departure::Clean);
            }
            Reply::Family(_) | Reply::Request(_) | Reply::Job(_) | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        let departure = match self.role {
            // The session is closed from outside, for example because its signalling socket is gone. The publisher may
            // return.
            Role::Publisher(_) => Departure::Lost,
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::AskedPlay(_)
            | Role::Offered(..)
            | Role::Room(_)
            | Role::Viewer(_) => Departure::Clean,
        };
        self.end(ctx, departure);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if self.events.is_empty() {
            self.events.shrink_to(EVENTS_KEPT);
            self.drain_peer(ctx);
        }
        self.events.pop_front()
    }

    fn about(&self) -> About {
        About { protocol: "webrtc", is_media: self.granted, is_authenticated: self.connected }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        self.connected.then(|| -> Arc<dyn Figures> {
            let (viewer, left_out) = match &self.role {
                Role::Viewer(viewer) => (viewer.info(), viewer.left_out()),
                Role::Room(room) => (room.info(), room.left_out()),
                Role::AskedPublish(_)
                | Role::Granted(_)
                | Role::Publisher(_)
                | Role::AskedPlay(_)
                | Role::Offered(..)
                | Role::None => (Vec::new(), 0),
            };
            Arc::new(RtcFigures::of(self.peer.stats(), self.peer.sections(), &viewer, left_out))
        })
    }
}

impl Timers for RtcSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.peer.handle_timeout(ctx.now.mono);
        if self.describe_by.is_some_and(|by| by <= ctx.now.mono) && !self.describe_data(ctx) {
            let why =
                if matches!(self.role, Role::AskedPlay(_)) { Refused::NoTracks } else { Refused::Closed };
            self.refuse(why);
        }
        match &mut self.role {
            Role::Publisher(_) => self.publisher_timeout(ctx),
            Role::Viewer(viewer) if self.connected => {
                let bitrates = viewer.poll_bitrates(ctx.now.mono, &self.peer);
                if viewer.look(ctx.now.mono, &mut self.peer, 1) {
                    self.select();
                }
                bitrates.into_iter().for_each(|bitrates| self.tell(FromSession::Bitrates(bitrates)));
            }
            Role::Room(_) => self.room_timeout(ctx),
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::AskedPlay(_)
            | Role::Offered(..)
            | Role::Viewer(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_role = match &self.role {
            Role::Publisher(ingest) => ingest.poll_timeout(),
            Role::Viewer(viewer) if self.connected => viewer.poll_timeout(),
            Role::Room(room) => room.poll_timeout(self.connected),
            Role::None
            | Role::AskedPublish(_)
            | Role::Granted(_)
            | Role::AskedPlay(_)
            | Role::Offered(..)
            | Role::Viewer(_) => None,
        };
        [self.peer.poll_timeout(), self.describe_by, of_role].into_iter().flatten().min()
    }
}
