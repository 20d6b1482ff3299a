//! Views of rooms: one stream made of a room's streams, for viewers over protocols that show one stream at a time. A
//! view is pulled from the room itself, like a copy of another node's stream. It begins with the first viewer, and
//! ends with the room or when nobody watches. A view has no hooks, recordings or pushes. Its viewers are counted in
//! the room's record.

use std::time::Duration;

use super::broadcast::Broadcast;
use super::copies::Copying;
use super::live::{Live, Registry};
use super::outgoing::Outgoing;
use super::records::Records;
use super::sources::{Origin, Source};
use super::subtracks::are_renditions;
use crate::protocol::outbound;
use crate::types::{Ingest, Now, StreamKey};

impl Live {
    /// True if the stream is a view of a room.
    pub(super) fn is_view(&self) -> bool {
        self.source().ingest == Ingest::ROOM_VIEW
    }
}

impl Registry {
    /// True if a main track has its own publisher, as opposed to a view of its room.
    pub(super) fn has_own_publisher(&self, main: &StreamKey) -> bool {
        let live = self.find(main).and_then(|stream| self.get(&stream));
        live.is_some_and(|live| !live.is_view())
    }
}

/// Clears the viewer counts of the room's record after its view has ended.
pub(super) fn forget_viewers(records: &mut Records, now: Now, live: &Live) {
    let record = records.get_mut(&live.key).filter(|_| live.is_view());
    if record.is_some_and(Broadcast::forget_viewers) && records.writes.keeps_all() {
        records.writes.mark_dirty(now, live.key.clone());
    }
}

impl Outgoing<'_> {
    /// Begins the view of a room that a viewer wants to watch. Returns false if the room does not exist, or resources
    /// are short.
    pub(super) fn begin_view(&mut self, room: &StreamKey) -> bool {
        let Some(settings) = self.cx.apps.get(&room.app).cloned() else { return false };
        if are_renditions(&settings)
            || !self.registry.has_active_subtrack(self.records, room)
            || self.cx.lets_in_nothing()
        {
            return false;
        }
        if self.outbound.is_short_for_source(self.cx, self.registry, self.now, &settings) {
            tracing::info!(key = %room, "room view not started: the server is short of resources");
            return false;
        }
        tracing::info!(key = %room, "room view requested");
        let Some(target) = outbound::view_of(room) else { return false };
        let origin = Origin { url: "room".to_owned(), target, skip: Duration::ZERO };
        let copying = Copying::of(self.now, origin.clone());
        self.start_source(Source::copy(self.now, room, origin, copying));
        true
    }
}
