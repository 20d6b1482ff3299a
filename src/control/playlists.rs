//! Playlists: records whose stream is a sequence of items, each pulled like the URL of a stream source (docs/rest.md).
//!
//! 1. A start begins with the item at `currentPlayIndex`, or the first one after it that can be pulled at all.
//! 2. When an item ends, the next one begins immediately, on the same stream. All items share one clock, and no item is
//!    read faster than this clock allows, so that the stream does not run ahead of real time.
//! 3. After the last item the playlist starts over, or ends (`playlistLoopEnabled`).
//! 4. An item without media is skipped. After all items have failed in a row there are pauses, as between the attempts
//!    of a source.
//!
//! The list is read from the record for each item, so changes take effect when the current item ends.

use std::time::{Duration, Instant};

use super::Outbound;
use super::context::Context;
use crate::control::records::Records;
use crate::mail::StreamEnd;
use crate::types::{Now, PullId, StreamKey};

use super::broadcast::{Broadcast, status};
use super::outgoing::Outgoing;
use super::repeats::Repeat;
use super::sources::Origin;
use super::supervisor::{Job, RemoteHost};
use super::wanted::TICK;

/// Minimum playing time of an item that counts as played.
const PLAYED_MIN: Duration = Duration::from_secs(1);

/// Maximum number of consecutive failed items that are skipped without a pause.
const PASSED_MAX: usize = 16;

/// The state of a playing playlist.
#[derive(Debug)]
pub(super) struct Playlist {
    /// Number of consecutive items that have failed.
    barren: usize,
    /// Time at which the item began, and the lead of the stream over real time at that moment.
    began: (Instant, Duration),
}

/// True if the record is a playlist with something to play.
pub(super) fn is_playable(record: &Broadcast) -> bool {
    is_playlist(record) && !items(record).is_empty()
}

/// True if the record is a playlist.
pub(super) fn is_playlist(record: &Broadcast) -> bool {
    record.kind == "playlist"
}

fn items(record: &Broadcast) -> &[super::from_json::PlayListItem] {
    record.play_list_item_list.as_deref().unwrap_or_default()
}

/// Returns the index of a playlist's current item; 0 if the list has no such item.
fn position(record: &Broadcast) -> usize {
    let index = usize::try_from(record.current_play_index).unwrap_or(0);
    if index < items(record).len() { index } else { 0 }
}

impl Records {
    fn stand_at(&mut self, key: &StreamKey, index: usize) {
        if let Some(record) = self.get_mut(key) {
            record.current_play_index = i32::try_from(index).unwrap_or(0);
        }
    }

    fn playlist_status(&mut self, now: Now, key: &StreamKey, status: &str) {
        if let Some(record) = self.get_mut(key) {
            record.play_list_status = Some(status.to_owned());
            self.writes.mark_dirty(now, key.clone());
        }
    }

    /// Returns the first item that can be pulled, starting at the current one, with its index.
    ///
    /// # Errors
    /// The reason why the last item tried cannot be pulled.
    pub(super) fn first_item(&self, cx: &Context, key: &StreamKey) -> Result<(usize, Origin), String> {
        let Some(record) = self.get(key) else { return Err(String::new()) };
        let at = position(record);
        let order = (at..items(record).len()).chain(0..at);
        let mut refusal = "The playlist is empty".to_owned();
        for index in order {
            match self.item(cx, key, index) {
                Ok(origin) => return Ok((index, origin)),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// Returns the origin from which an item's media are fetched.
    fn item(&self, cx: &Context, key: &StreamKey, index: usize) -> Result<Origin, String> {
        let record = self.get(key).ok_or("There is no such broadcast")?;
        let item = items(record).get(index).ok_or("There is no such item")?;
        let url = item.stream_url.clone().unwrap_or_default();
        let skip = u64::try_from(item.seek_time_in_ms).unwrap_or(0);
        Ok(Origin { target: cx.source_target(key, &url)?, url, skip: Duration::from_millis(skip) })
    }

    /// Marks a playlist as ended.
    pub(super) fn end_playlist(&mut self, now: Now, key: &StreamKey) {
        self.playlist_status(now, key, status::FINISHED);
    }
}

impl Outbound {
    /// Begins a playlist at this item.
    pub(super) fn begin_playlist(
        &mut self,
        records: &mut Records,
        now: Now,
        key: &StreamKey,
        index: usize,
    ) -> Playlist {
        self.sources.planned.remove(key);
        records.stand_at(key, index);
        records.playlist_status(now, key, status::BROADCASTING);
        Playlist { barren: 0, began: (now.mono, Duration::ZERO) }
    }

    /// Schedules the start of a planned playlist, or cancels it. If an earlier planned time has passed and the playlist
    /// still waits for resources, it waits for the new time instead.
    pub(super) fn note_planned(&mut self, records: &mut Records, now: Now, key: &StreamKey) {
        let planned = |record: &&Broadcast| {
            is_playlist(record) && record.planned_start_date.saturating_mul(1000) > super::wall(now)
        };
        let at = records.get(key).filter(planned).map(|record| record.planned_start_date);
        match at.and_then(|at| u64::try_from(at).ok()) {
            Some(at) => {
                self.sources.planned.insert(key.clone(), at);
                if self.sources.held_back.remove(key) {
                    records.source_wanted(now, key, false);
                }
                self.sources.tick = self.sources.tick.or_else(|| now.mono.checked_add(TICK));
            }
            None => {
                self.sources.planned.remove(key);
            }
        }
    }
}

impl Outgoing<'_> {
    /// Handles the end of an item, which was played or has failed.
    pub(super) fn item_over(&mut self, id: PullId, reason: &str) {
        let Some(source) = self.outbound.sources.by_id.get_mut(&id) else { return };
        let Some(playlist) = &mut source.playlist else { return };
        let (began, lead) = playlist.began;
        let ahead = source.seen.saturating_duration_since(self.now.mono);
        let played = (self.now.mono.saturating_duration_since(began) + ahead).saturating_sub(lead);
        let has_played = self.outbound.supervisor.is_steady(Job::Pull(id)) && played >= PLAYED_MIN;
        playlist.barren = if has_played { 0 } else { playlist.barren.saturating_add(1) };
        let (key, url, barren) = (source.key.clone(), source.origin.shown(), playlist.barren);
        let count = self.records.get(&key).map_or(0, |record| items(record).len());
        if barren > count {
            // Every item has failed and was logged; from now on only the summary is logged.
            tracing::debug!(%key, url, reason, "playlist item ended");
            self.outbound.repeats.note(self.now, Repeat::Item, &key, reason);
        } else {
            tracing::info!(%key, url, has_played, reason, "playlist item ended");
        }
        self.play_next(&key, None);
    }

    /// Switches to the requested item, or the next one, while another is playing.
    pub(super) fn leap(&mut self, key: &StreamKey, wanted: Option<usize>) {
        self.outbound.leave_file(self.now, key);
        self.play_next(key, wanted);
    }

    /// Continues with the `wanted` item or, without one, the next. After the last item the playlist begins again or
    /// ends.
    fn play_next(&mut self, key: &StreamKey, wanted: Option<usize>) {
        let Some(record) = self.records.get(key) else { return };
        let (count, loops) = (items(record).len(), record.playlist_loop_enabled);
        let mut index = wanted.unwrap_or_else(|| position(record).saturating_add(1));
        for _ in 0..count {
            if index >= count {
                index = 0;
                if !loops {
                    break;
                }
            }
            self.records.stand_at(key, index);
            match self.records.item(self.cx, key, index) {
                Ok(origin) => {
                    return self.begin_item(key, (origin, wanted.is_some()));
                }
                Err(reason) => tracing::info!(%key, index, reason, "playlist item skipped"),
            }
            index = index.saturating_add(1);
        }
        self.records.stand_at(key, 0);
        self.stop_source(key, StreamEnd::Stopped);
    }

    /// Begins an item: immediately, or after a pause if all items have failed in a row and no client asked for this
    /// one.
    fn begin_item(&mut self, key: &StreamKey, (origin, asked): (Origin, bool)) {
        let count = self.records.get(key).map_or(0, |record| items(record).len());
        let Some(id) = self.outbound.sources.by_key.get(key).copied() else { return };
        let Some(source) = self.outbound.sources.by_id.get_mut(&id) else { return };
        let lead = source.seen.saturating_duration_since(self.now.mono);
        let Some(playlist) = &mut source.playlist else { return };
        playlist.began = (self.now.mono, lead);
        if asked {
            playlist.barren = 0;
        }
        if playlist.barren < count.min(PASSED_MAX) {
            self.go_to(key, origin);
        } else {
            let remote = RemoteHost::of(&origin.target, self.cx.config.server.host);
            source.origin = origin;
            self.outbound.supervisor.failed(self.now.mono, Job::Pull(id), None, &mut self.cx.random);
            self.outbound.supervisor.aim(Job::Pull(id), remote);
            self.records.source_status(self.now, key, status::FINISHED);
        }
        self.records.writes.mark_dirty(self.now, key.clone());
    }

    /// Starts the playlists whose planned time has come.
    pub(super) fn fire_planned(&mut self) {
        let due = |at: &u64| at.saturating_mul(1000) <= self.now.wall_ms;
        let planned = self.outbound.sources.planned.iter();
        let keys: Vec<StreamKey> = planned.filter(|(_, at)| due(at)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.outbound.sources.planned.remove(&key);
            self.begin_or_hold_back(&key);
            if self.outbound.sources.held_back.contains(&key) {
                self.records.source_wanted(self.now, &key, true);
            }
        }
    }
}
