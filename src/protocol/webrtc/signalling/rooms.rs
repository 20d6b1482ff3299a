//! Commands about rooms, and questions about streams, which control answers from its records.
//!
//! A room is a main track: a client that publishes with `mainTrack` is in it, and a client that plays it is sent all
//! streams published there.

use serde_json::Value;

use super::command::Command;
use super::{STREAMS_MAX, Socket, Stream, UNSAID_MAX, answer};
use crate::auth::access::{Params, is_stream_id};
use crate::http::Response;
use crate::mail::Question;
use crate::protocol::webrtc::messages::ToSession;
use crate::protocol::{Event, RequestEvent};
use crate::types::{SessionRef, StreamKey};

/// Maximum number of pending questions.
const QUESTIONS_MAX: usize = 16;
/// Maximum size in bytes of the metadata that a publisher may set.
const META_DATA_BYTES_MAX: usize = 8 * 1024;
/// Number of records in an answer if the page does not say how many it wants.
const PAGE: usize = 50;

/// A question to control that is not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Record(String),
    Subtracks(String),
    SubtrackCount(String),
    Subscribers(String),
    SubscriberCount(String),
    Media(String),
    /// The names of a main track's subtracks.
    TrackList(String),
    /// The streams of a room, for a client that joins it under this id or asks for the list.
    Room {
        room: String,
        joins: Option<String>,
    },
}

impl Asked {
    /// The id that the answer names.
    fn id(&self) -> &str {
        match self {
            Self::Record(id)
            | Self::Subtracks(id)
            | Self::SubtrackCount(id)
            | Self::Subscribers(id)
            | Self::SubscriberCount(id)
            | Self::Media(id)
            | Self::TrackList(id)
            | Self::Room { room: id, .. } => id,
        }
    }
}

/// The rooms that a client has joined, and the ids under which it publishes there.
#[derive(Debug)]
pub(super) struct Joined {
    /// State of the generator of ids.
    names: u64,
    /// Ids with their rooms, the newest last.
    rooms: Vec<(String, String)>,
}

impl Joined {
    pub(super) const fn new(names: u64) -> Self {
        Self { names, rooms: Vec::new() }
    }

    fn join(&mut self, room: &str, id: &str) {
        self.rooms.retain(|(joined, _)| joined != id);
        if self.rooms.len() >= STREAMS_MAX {
            self.rooms.remove(0);
        }
        self.rooms.push((id.to_owned(), room.to_owned()));
    }

    /// Returns the room that was joined under this id.
    fn room_of(&self, id: &str) -> Option<&str> {
        self.rooms.iter().find(|(joined, _)| joined == id).map(|(_, room)| room.as_str())
    }

    /// Leaves a room. Returns the id under which it was joined last.
    fn leave(&mut self, room: &str) -> Option<String> {
        let id = self.rooms.iter().rfind(|(_, joined)| joined == room).map(|(id, _)| id.clone());
        self.rooms.retain(|(_, joined)| joined != room);
        id
    }
}

impl Socket {
    /// Returns the parameters of a publish or a play. Clients that join a room first do not name it when they publish.
    pub(super) fn params_of(&self, command: &Command, id: &str, publishes: bool) -> Params {
        let mut params = command.params();
        let has_main = params.iter().any(|(name, _)| name == "mainTrack");
        let room = self.joined.room_of(id).filter(|room| publishes && !has_main && *room != id);
        params.extend(room.map(|room| ("mainTrack".to_owned(), room.to_owned())));
        params
    }

    /// Handles a command about a room. Returns false if the command is not about a room.
    pub(super) fn about_a_room(&mut self, name: &str, command: &Command) -> bool {
        let id = command.text("streamId");
        let room = match command.text("room") {
            "" => command.text("mainTrack"),
            room => room,
        };
        match name {
            "joinRoom" => self.join_room(room, command),
            "leaveFromRoom" => self.leave_room(room, id),
            "getRoomInfo" => match room {
                "" => self.send(answer::error("no_room_specified", None)),
                room if !is_stream_id(room) => self.send(answer::error("invalidStreamName", Some(room))),
                room => self.ask(room, Question::Room, Asked::Room { room: room.to_owned(), joins: None }),
            },
            _ => return false,
        }
        true
    }

    /// Handles a question about a stream. Returns false if the command is not such a question.
    pub(super) fn about_records(&mut self, name: &str, command: &Command, id: &str) -> bool {
        let (offset, size) = page_of(command);
        let role = || command.text("role").to_owned();
        let of = id.to_owned();
        let (question, asked) = match name {
            "getBroadcastObject" => (Question::Record, Asked::Record(of)),
            "getTrackList" => (Question::Room, Asked::TrackList(of)),
            "getSubtracks" => (Question::Subtracks { role: role(), offset, size }, Asked::Subtracks(of)),
            "getSubtracksCount" => (Question::SubtrackCount(role()), Asked::SubtrackCount(of)),
            "getSubscribers" => (Question::Subscribers { offset, size }, Asked::Subscribers(of)),
            "getSubscriberCount" => (Question::SubscriberCount, Asked::SubscriberCount(of)),
            "getStreamInfo" => match self.stream(id).and_then(|stream| stream.session) {
                Some(session) => {
                    self.tell(session, ToSession::Info);
                    return true;
                }
                None => (Question::Media, Asked::Media(of)),
            },
            _ => return false,
        };
        self.ask(id, question, asked);
        true
    }

    /// Joins a room. The page receives the room's streams, and the id under which it may publish.
    fn join_room(&mut self, room: &str, command: &Command) {
        if room.is_empty() {
            return self.send(answer::error("no_room_specified", None));
        }
        let id = command.text("streamId");
        if !is_stream_id(room) || !(id.is_empty() || is_stream_id(id)) {
            return self.send(answer::error("invalidStreamName", Some(room)));
        }
        let id = if id.is_empty() { self.new_id() } else { id.to_owned() };
        self.joined.join(room, &id);
        self.ask(room, Question::Room, Asked::Room { room: room.to_owned(), joins: Some(id) });
    }

    /// Returns a new id for the stream of a page that has none.
    fn new_id(&mut self) -> String {
        let id = format!("participant-{:016x}", self.joined.names);
        self.joined.names =
            self.joined.names.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        id
    }

    /// Sets the metadata of a publisher's stream.
    pub(super) fn set_meta_data(&mut self, command: &Command, id: &str) {
        let text = command.text("metaData");
        let publishes = self.stream(id).is_some_and(|stream| stream.publishes && stream.let_in);
        if !publishes {
            return self.send(answer::error("unauthorized_access", Some(id)));
        }
        if text.len() > META_DATA_BYTES_MAX {
            return self.send(answer::error("highResourceUsage", Some(id)));
        }
        let (key, meta_data) = (StreamKey::new(&self.app, id), text.to_owned());
        self.events.push_back(Event::Request(RequestEvent::Describe { key, meta_data }));
    }

    /// Leaves a room: streams published there or played from it end. An empty `id` means the id under which the
    /// client joined the room.
    fn leave_room(&mut self, room: &str, id: &str) {
        let joined = self.joined.leave(room).unwrap_or_default();
        let id = if id.is_empty() { joined.as_str() } else { id };
        for id in [id, room] {
            if self.stream(id).is_some() {
                self.stop(id);
            }
        }
        self.send(answer::left_room(room, id));
    }

    /// Sets the wanted kinds of one track of a main track.
    pub(super) fn want_of(&mut self, id: &str, track: &str, video: Option<bool>, audio: Option<bool>) {
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id && !stream.publishes) else {
            return;
        };
        let wanted = ToSession::Want { name: track.to_owned(), video, audio };
        match stream.session {
            Some(session) => self.tell(session, wanted),
            None if stream.unsaid.len() < UNSAID_MAX => stream.unsaid.push(wanted),
            None => {}
        }
    }

    /// Pins or unpins the video of a stream. Pages send one of two forms. In the first, `id` is the room and
    /// `videoTrackId` is the stream. In the second, `id` is the stream and `videoTrackId` is the slot that shows it;
    /// the slot is ignored, and the command applies to all rooms that the client plays.
    pub(super) fn pin(&mut self, id: &str, command: &Command) {
        let (track, pins) = (command.text("videoTrackId"), command.flag("enabled"));
        let plays = |stream: &&Stream| !stream.publishes && stream.session.is_some();
        let of_room = self.streams.iter().filter(plays).find(|stream| stream.id == id);
        let name = if of_room.is_some() { track } else { id };
        let rooms: Vec<SessionRef> = match of_room {
            Some(stream) => stream.session.into_iter().collect(),
            None => self.streams.iter().filter(plays).filter_map(|stream| stream.session).collect(),
        };
        for room in rooms {
            self.tell(room, ToSession::Pin { name: name.to_owned(), pins });
        }
    }

    /// Handles a request about the videos of a main track: list them, show a range, or limit their number. The answer
    /// is sent by data channel.
    pub(super) fn about_assignments(&mut self, name: &str, command: &Command, id: &str) {
        let Some(session) = self.stream(id).and_then(|stream| stream.session) else {
            return self.send(answer::not_there(id));
        };
        let message = match name {
            "updateVideoTrackAssignmentsCommand" => {
                let (offset, size) = page_of(command);
                ToSession::TurnOver(offset..offset.saturating_add(size))
            }
            "setMaxVideoTrackCountCommand" => ToSession::LimitVideos(command.count("maxTrackCount")),
            _ => ToSession::Assignments,
        };
        self.tell(session, message);
    }

    /// Asks control a question.
    pub(super) fn ask(&mut self, id: &str, question: Question, asked: Asked) {
        if self.questions.len() >= QUESTIONS_MAX {
            return self.send(answer::error("highResourceUsage", Some(id)));
        }
        self.questions.push_back(asked);
        let let_in = self.streams.iter().filter(|stream| stream.let_in);
        let let_in = let_in.map(|stream| stream.id.clone()).collect();
        let key = StreamKey::new(&self.app, id);
        self.events.push_back(Event::Request(RequestEvent::Ask { key, let_in, question }));
    }

    /// Handles control's answer.
    pub(super) fn answered(&mut self, response: &Response) {
        let Some(asked) = self.questions.pop_front() else { return };
        if response.status == 503 {
            return self.send(answer::error("highResourceUsage", Some(asked.id())));
        }
        let body = std::str::from_utf8(&response.body).ok().filter(|_| response.status == 200);
        let value = || body.and_then(|body| serde_json::from_str::<Value>(body).ok()).unwrap_or_default();
        match asked {
            Asked::Record(id) => self.send(match body {
                Some(record) => answer::broadcast_object(&id, record),
                None => answer::not_there(&id),
            }),
            Asked::Media(id) => self.send(match body {
                Some(_) => answer::stream_media(&id, &value()),
                None => answer::not_there(&id),
            }),
            Asked::Subtracks(id) => self.send(answer::records("subtrackList", &id, &value())),
            Asked::Subscribers(id) => self.send(answer::records("subscriberList", &id, &value())),
            Asked::SubtrackCount(id) => self.send(answer::count("subtrackCount", &id, &value())),
            Asked::SubscriberCount(id) => self.send(answer::count("subscriberCount", &id, &value())),
            Asked::TrackList(id) => self.send(answer::track_list(&id, &value())),
            Asked::Room { room, joins: Some(id) } => {
                self.send(answer::joined_room(&room, &id, &value()));
            }
            Asked::Room { room, joins: None } => self.send(answer::room(&room, &value())),
        }
    }
}

/// Returns offset and size of the requested page of a list.
fn page_of(command: &Command) -> (usize, usize) {
    (command.count("offset").unwrap_or(0), command.count("size").filter(|size| *size > 0).unwrap_or(PAGE))
}
