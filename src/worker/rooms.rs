//! Main tracks, each a group of streams. A viewer that accepts subtracks is notified when a stream of the group begins
//! or ends, and plays each stream with a separate subscription. Any other viewer gets the subtrack that began first,
//! unless the main track has media of its own.
//!
//! A worker learns of a main track from the records of its live subtracks ([`crate::mail::StreamDetails`]). Removing a
//! watcher takes time in proportion to its entries, two for each main track that it watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::conn::{Subscription, SubscriptionState};
use super::conns::Conns;
use super::streams::Live;
use super::subscriptions::role_of;
use super::turn::Turn;
use crate::mail::{StreamEnd, ToControl};
use crate::protocol::{PlayAsk, Reply, RequestNews, SubscriptionNews, SubtrackNews};
use crate::types::{ConnId, Handle, Ingest, StreamId, StreamKey, SubscriptionId};

/// Main tracks with their subtracks and watchers.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// Live subtracks by main track, oldest first.
    members: BTreeMap<StreamKey, BTreeSet<StreamId>>,
    main_of: BTreeMap<StreamId, StreamKey>,
    watchers: BTreeMap<StreamKey, BTreeSet<SubscriptionId>>,
    watched: BTreeMap<SubscriptionId, Watched>,
    /// Roles of those live streams that have a role.
    roles: BTreeMap<StreamId, Arc<str>>,
}

/// The main track that a viewer watches, and the role of the viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Watched {
    main: StreamKey,
    role: Arc<str>,
    /// True while the viewer plays the main track's own stream, because there is no subtrack yet that it may see.
    waits: bool,
}

/// A change of a stream's main track.
#[derive(Debug, Default, PartialEq, Eq)]
struct Move {
    from: Option<StreamKey>,
    to: Option<StreamKey>,
}

impl Rooms {
    /// Notes the main track of a live stream.
    fn assign(&mut self, stream: StreamId, main: Option<StreamKey>) -> Move {
        if self.main_of.get(&stream) == main.as_ref() {
            return Move::default();
        }
        let from = self.main_of.remove(&stream);
        if let Some(from) = &from
            && let Some(members) = self.members.get_mut(from)
        {
            members.remove(&stream);
            if members.is_empty() {
                self.members.remove(from);
            }
        }
        if let Some(main) = &main {
            self.main_of.insert(stream, main.clone());
            self.members.entry(main.clone()).or_default().insert(stream);
        }
        Move { from, to: main }
    }

    /// Returns the live subtracks of a main track, oldest first.
    pub(super) fn members(&self, main: &StreamKey) -> impl Iterator<Item = StreamId> + '_ {
        self.members.get(main).into_iter().flatten().copied()
    }

    /// Sets the role of a live stream. Returns its former role.
    fn set_role(&mut self, stream: StreamId, role: Arc<str>) -> Arc<str> {
        let former =
            if role.is_empty() { self.roles.remove(&stream) } else { self.roles.insert(stream, role) };
        former.unwrap_or_default()
    }

    fn role(&self, stream: StreamId) -> &str {
        self.roles.get(&stream).map_or("", |role| role)
    }

    fn watch(&mut self, main: StreamKey, role: Arc<str>, watcher: SubscriptionId) {
        self.note(Watched { main, role, waits: false }, watcher);
    }

    fn note(&mut self, watched: Watched, watcher: SubscriptionId) {
        self.unwatch(watcher);
        self.watchers.entry(watched.main.clone()).or_default().insert(watcher);
        self.watched.insert(watcher, watched);
    }

    /// Registers a viewer that plays the stream published under the main track's own name, because there is no subtrack
    /// yet that the viewer may see. Once there is one, the viewer is notified of all streams of the main track instead
    /// ([`admit_waiting`]).
    pub(super) fn wait(&mut self, main: StreamKey, role: &str, watcher: SubscriptionId) {
        self.note(Watched { main, role: role.into(), waits: true }, watcher);
    }

    /// Returns the viewers that wait for subtracks of a main track, with their roles.
    fn waiting(&self, main: &StreamKey) -> Vec<(SubscriptionId, Arc<str>)> {
        let waiting = self.of_main(main).filter(|(_, watched)| watched.waits);
        waiting.map(|(watcher, watched)| (watcher, Arc::clone(&watched.role))).collect()
    }

    fn of_main(&self, main: &StreamKey) -> impl Iterator<Item = (SubscriptionId, &Watched)> {
        let watchers = self.watchers.get(main).into_iter().flatten();
        watchers.filter_map(|watcher| Some((*watcher, self.watched.get(watcher)?)))
    }

    /// Removes a viewer from the main track that it watches.
    pub(super) fn unwatch(&mut self, watcher: SubscriptionId) {
        let Some(Watched { main, .. }) = self.watched.remove(&watcher) else { return };
        if let Some(watchers) = self.watchers.get_mut(&main) {
            watchers.remove(&watcher);
            if watchers.is_empty() {
                self.watchers.remove(&main);
            }
        }
    }

    /// Returns the viewers of a main track with their roles.
    fn watchers_in_roles(&self, main: &StreamKey) -> Vec<(SubscriptionId, Arc<str>)> {
        let watching = self.of_main(main).filter(|(_, watched)| !watched.waits);
        watching.map(|(watcher, watched)| (watcher, Arc::clone(&watched.role))).collect()
    }

    fn watchers(&self, main: &StreamKey) -> Vec<SubscriptionId> {
        self.of_main(main).filter(|(_, watched)| !watched.waits).map(|(watcher, _)| watcher).collect()
    }

    /// True if a session watches this main track. Control has then admitted the session to the main track.
    fn is_watched_by(&self, conn: ConnId, main: &StreamKey) -> bool {
        let first = SubscriptionId { conn, handle: Handle(u16::MIN) };
        let last = SubscriptionId { conn, handle: Handle(u16::MAX) };
        self.watched.range(first..=last).any(|(_, watched)| watched.main == *main && !watched.waits)
    }
}

impl Live {
    /// Returns the streams of a main track: its own stream, if that is live, and its subtracks.
    fn streams_of_room(&self, main: &StreamKey) -> impl Iterator<Item = StreamId> {
        self.own_of_room(main).into_iter().chain(self.rooms.members(main))
    }

    /// Returns the stream that a publisher sends under the name of a main track. The view of a room, which the server
    /// composes and names after the main track, does not count.
    fn own_of_room(&self, main: &StreamKey) -> Option<StreamId> {
        self.directory.get(main).copied().filter(|own| !is_view(self, Some(*own)))
    }

    fn key_of(&self, stream: StreamId) -> Option<StreamKey> {
        Some(self.streams.get(&stream)?.key.clone())
    }

    /// Returns the room of a stream: its main track, or the stream itself if it has subtracks.
    pub(super) fn room_of(&self, stream: StreamId) -> Option<StreamKey> {
        let own = || self.streams.get(&stream).map(|stream| stream.key.clone());
        self.rooms.main_of.get(&stream).cloned().or_else(|| own().filter(|key| self.is_room(key)))
    }

    /// Returns the sessions that watch a main track.
    pub(super) fn watchers_of(&self, main: &StreamKey) -> BTreeSet<ConnId> {
        self.rooms.watchers(main).into_iter().map(|watcher| watcher.conn).collect()
    }

    /// True if a main track has live subtracks.
    pub(super) fn is_room(&self, main: &StreamKey) -> bool {
        self.rooms.members(main).next().is_some()
    }

    /// True if a session may play a stream without asking control, because control has admitted the session to the
    /// stream's main track.
    pub(super) fn is_in_room_of(&self, id: ConnId, key: &StreamKey) -> bool {
        let main = self.directory.get(key).and_then(|stream| self.rooms.main_of.get(stream));
        self.rooms.is_watched_by(id, main.unwrap_or(key))
    }

    /// Makes a viewer watch a main track. The viewer is notified of the current streams, and later of each stream that
    /// begins or ends.
    pub(super) fn watch_room(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        handle: Handle,
        main: &StreamKey,
        role: &str,
    ) {
        let watcher = SubscriptionId { conn: id, handle };
        self.rooms.watch(main.clone(), role.into(), watcher);
        conns.set_state(id, handle, SubscriptionState::Room { told: false });
        let seen = self.streams_of_room(main).filter(|stream| self.sees(turn, &main.app, role, *stream));
        let streams: Vec<StreamKey> = seen.filter_map(|stream| self.key_of(stream)).collect();
        conns.tell_watcher(turn, watcher, SubtrackNews::Room(&streams));
        for (key, level) in self.speakers_of(main) {
            conns.tell_watcher(turn, watcher, SubtrackNews::Loudness { key: &key, level });
        }
        conns.note_authenticated(turn, id);
        conns.touch(turn, id);
    }

    /// Places a stream in its room, after it came up or its record changed.
    pub(super) fn place_in_room(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        stream: StreamId,
        is_new: bool,
    ) {
        // The composed view of a room belongs to no room itself, even if its record names a main track.
        let Some(key) = self.key_of(stream).filter(|_| !is_view(self, Some(stream))) else { return };
        let details = self.details.get(stream);
        let main = details.and_then(|details| details.main_track.clone());
        let role = details.map(|details| Arc::clone(&details.role)).unwrap_or_default();
        let former = self.rooms.set_role(stream, Arc::clone(&role));
        let main = main.map(|id| StreamKey { app: key.app.clone(), id });
        let had_any = main.as_ref().is_some_and(|main| self.is_room(main));
        let Move { from, to } = self.rooms.assign(stream, main);
        if let Some(from) = from {
            self.speakers.forget(&from, stream);
            self.leave_room(turn, conns, &from, &key, StreamEnd::Unpublished);
        }
        if former != role
            && to.is_none()
            && let Some(room) = self.room_of(stream)
        {
            self.change_role(turn, conns, &room, stream, (&former, &role));
        }
        if let Some(to) = to {
            self.tell_who_sees(turn, conns, &to, stream, SubtrackNews::Came(&key));
            admit_waiting(self, turn, conns, &to);
            if !had_any {
                for conn in self.awaited.take(&to) {
                    conns.reply(turn, conn, Reply::Request(RequestNews::StreamBegun(&to)));
                    conns.touch(turn, conn);
                }
            }
        }
        if is_new {
            // The main track now has media of its own, so its viewers are notified of its own stream.
            self.tell_who_sees(turn, conns, &key, stream, SubtrackNews::Came(&key));
        }
    }

    /// True if a viewer with the role `role` may see a stream of its room.
    pub(super) fn sees(&self, turn: &Turn, app: &str, role: &str, stream: StreamId) -> bool {
        let visibility = turn.apps.get(app).map(|app| &app.security.visibility);
        visibility.is_none_or(|visibility| visibility.sees(role, self.rooms.role(stream)))
    }

    /// Applies a participant's new role: some viewers may now see the participant's stream, others no longer.
    fn change_role(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        room: &StreamKey,
        stream: StreamId,
        (former, role): (&str, &str),
    ) {
        let (Some(key), Some(app)) = (self.key_of(stream), turn.apps.get(&room.app).cloned()) else {
            return;
        };
        let visibility = &app.security.visibility;
        for (watcher, watching) in self.rooms.watchers_in_roles(room) {
            let news = match (visibility.sees(&watching, former), visibility.sees(&watching, role)) {
                (false, false) => continue,
                (false, true) => SubtrackNews::Came(&key),
                (true, false) => SubtrackNews::Left(&key),
                (true, true) => SubtrackNews::Role { key: &key, role },
            };
            conns.tell_watcher(turn, watcher, news);
        }
        admit_waiting(self, turn, conns, room);
    }

    /// Applies changed visibility settings of an application to the viewers of its rooms. `saw` is the former rule:
    /// true if a viewer with the first role could see a stream with the second role.
    pub(super) fn review_visibility(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        app: &str,
        saw: impl Fn(&str, &str) -> bool,
    ) {
        let rooms = self.rooms.watchers.keys().filter(|room| *room.app == *app);
        for room in rooms.cloned().collect::<Vec<_>>() {
            let streams: Vec<StreamId> = self.streams_of_room(&room).collect();
            for (watcher, role) in self.rooms.watchers_in_roles(&room) {
                for stream in &streams {
                    let Some(key) = self.key_of(*stream) else { continue };
                    let sees = self.sees(turn, app, &role, *stream);
                    if saw(&role, self.rooms.role(*stream)) != sees {
                        let news = if sees { SubtrackNews::Came(&key) } else { SubtrackNews::Left(&key) };
                        conns.tell_watcher(turn, watcher, news);
                    }
                }
            }
            admit_waiting(self, turn, conns, &room);
        }
    }

    /// Removes an ended stream from its room. The stream is already absent from `directory`.
    pub(super) fn remove_from_room(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        stream: StreamId,
        key: &StreamKey,
        end: StreamEnd,
    ) {
        let Move { from, .. } = self.rooms.assign(stream, None);
        self.rooms.set_role(stream, Arc::default());
        if let Some(from) = from {
            self.speakers.forget(&from, stream);
            self.leave_room(turn, conns, &from, key, end);
        }
        self.speakers.forget(key, stream);
        self.leave_room(turn, conns, key, key, end);
    }

    /// Removes a stream from a main track. If it was the last stream, the subscriptions of the main track's viewers are
    /// ended.
    fn leave_room(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        main: &StreamKey,
        key: &StreamKey,
        end: StreamEnd,
    ) {
        self.tell_room(turn, conns, main, SubtrackNews::Left(key));
        if !self.is_room(main) {
            self.speakers.close(main);
            self.chats.forget(main);
        }
        if self.is_room(main) || self.own_of_room(main).is_some() {
            return;
        }
        for watcher in self.rooms.watchers(main) {
            conns.blame(watcher.conn, end.reason());
            conns.reply(
                turn,
                watcher.conn,
                Reply::Subscription(watcher.handle, SubscriptionNews::Ended(end)),
            );
            self.leave(turn, conns, watcher.conn, watcher.handle);
            conns.touch(turn, watcher.conn);
        }
    }

    pub(super) fn tell_room(
        &self,
        turn: &mut Turn,
        conns: &mut Conns,
        main: &StreamKey,
        news: SubtrackNews<'_>,
    ) {
        for watcher in self.rooms.watchers(main) {
            conns.tell_watcher(turn, watcher, news);
        }
    }

    /// Sends news of a stream to those viewers of its room that may see the stream.
    fn tell_who_sees(
        &self,
        turn: &mut Turn,
        conns: &mut Conns,
        main: &StreamKey,
        stream: StreamId,
        news: SubtrackNews<'_>,
    ) {
        for (watcher, role) in self.rooms.watchers_in_roles(main) {
            if self.sees(turn, &main.app, &role, stream) {
                conns.tell_watcher(turn, watcher, news);
            }
        }
    }
}

/// Turns viewers of a main track's own stream into watchers once there is a subtrack that they may see.
fn admit_waiting(live: &mut Live, turn: &mut Turn, conns: &mut Conns, main: &StreamKey) {
    if live.details.has_renditions(main) {
        return;
    }
    for (watcher, role) in live.rooms.waiting(main) {
        if !live.rooms.members(main).any(|stream| live.sees(turn, &main.app, &role, stream)) {
            continue;
        }
        let SubscriptionId { conn: id, handle } = watcher;
        let subscription = conns.get(id).and_then(|conn| conn.subscription(handle));
        let Some(told) = subscription.and_then(Subscription::playing).map(|playing| playing.told) else {
            continue;
        };
        live.detach(turn, conns, id, handle);
        live.watch_room(turn, conns, id, handle, main, &role);
        conns.set_state(id, handle, SubscriptionState::Room { told });
    }
}

/// True if a stream is the view of a room, a stream that the server composes of the room's streams.
pub(super) fn is_view(live: &Live, stream: Option<StreamId>) -> bool {
    let stream = stream.and_then(|stream| live.streams.get(&stream));
    stream.is_some_and(|stream| stream.ingest == Ingest::ROOM_VIEW)
}

/// True if `main` is the key of a room for which control can make a view.
pub(super) fn has_view(live: &Live, main: &StreamKey) -> bool {
    live.is_room(main) && !live.details.has_renditions(main)
}

/// True if a request for which no stream was found is a request for the view of a room.
pub(super) fn has_view_for(live: &Live, ask: &PlayAsk) -> bool {
    has_view(live, &ask.key) && !ask.format.kind().is_for_nodes && role_of(ask).is_empty()
}

/// Returns the stream that a viewer of a main track gets: the first subtrack that the viewer may see. Returns `None` if
/// the viewer gets the composed view of the room instead, or if the requester is another node. A main track with
/// renditions has no such view, and a viewer with a role does not get the view.
pub(super) fn first_seen(live: &Live, turn: &Turn, ask: &PlayAsk) -> Option<StreamId> {
    // Other nodes fetch each stream of a room separately, under the stream's own name.
    if ask.format.kind().is_for_nodes || has_view_for(live, ask) {
        return None;
    }
    let is_seen = |stream: &StreamId| live.sees(turn, &ask.key.app, role_of(ask), *stream);
    live.rooms.members(&ask.key).find(is_seen)
}

impl Conns {
    fn tell_watcher(&mut self, turn: &mut Turn, watcher: SubscriptionId, news: SubtrackNews<'_>) {
        let news = SubscriptionNews::Subtracks(news);
        self.reply(turn, watcher.conn, Reply::Subscription(watcher.handle, news));
        self.touch(turn, watcher.conn);
    }

    /// Notifies control that a viewer now watches a main track to which control has admitted the viewer.
    pub(super) fn tell_room_viewer(&mut self, turn: &mut Turn, id: ConnId, handle: Handle) {
        let session = turn.session_ref(id, handle);
        let Some(conn) = self.get_mut(id) else { return };
        if let Some(Subscription { state: SubscriptionState::Room { told }, .. }) =
            conn.subscription_mut(handle)
        {
            *told = true;
            turn.tell(ToControl::PlayStarted { session, request: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> StreamKey {
        StreamKey::new("live", id)
    }

    fn viewer(slot: u32, handle: u16) -> SubscriptionId {
        SubscriptionId { conn: ConnId { slot, generation: 0 }, handle: Handle(handle) }
    }

    #[test]
    fn a_stream_is_in_one_room_at_a_time_and_leaves_nothing() {
        let (mut rooms, streams) = (Rooms::default(), [StreamId(1), StreamId(2)]);
        let to = |id: &str| Some(key(id));
        assert_eq!(rooms.assign(streams[0], to("a")), Move { from: None, to: to("a") });
        assert_eq!(rooms.assign(streams[0], to("a")), Move::default());
        rooms.assign(streams[1], to("a"));
        assert_eq!(rooms.members(&key("a")).collect::<Vec<_>>(), streams);
        assert_eq!(rooms.assign(streams[0], to("b")), Move { from: to("a"), to: to("b") });
        assert_eq!(rooms.members(&key("a")).collect::<Vec<_>>(), [streams[1]]);
        streams.iter().for_each(|stream| drop(rooms.assign(*stream, None)));
        assert!(rooms.members.is_empty() && rooms.main_of.is_empty());
    }

    #[test]
    fn a_viewer_watches_what_it_asked_for_last_and_leaves_nothing() {
        let mut rooms = Rooms::default();
        rooms.watch(key("a"), "".into(), viewer(1, 0));
        rooms.watch(key("b"), "".into(), viewer(1, 7));
        rooms.watch(key("a"), "".into(), viewer(2, 0));
        let conn = |slot| ConnId { slot, generation: 0 };
        assert!(rooms.is_watched_by(conn(1), &key("a")) && rooms.is_watched_by(conn(1), &key("b")));
        assert!(rooms.is_watched_by(conn(2), &key("a")) && !rooms.is_watched_by(conn(2), &key("b")));
        assert!(!rooms.is_watched_by(conn(3), &key("a")));
        rooms.watch(key("c"), "".into(), viewer(1, 0));
        assert_eq!(rooms.watchers(&key("a")), [viewer(2, 0)]);
        [viewer(1, 0), viewer(1, 7), viewer(2, 0), viewer(9, 9)].iter().for_each(|one| rooms.unwatch(*one));
        assert!(rooms.watchers.is_empty() && rooms.watched.is_empty());
    }
}
