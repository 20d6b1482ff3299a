//! Recordings of rooms: one or more files for each participant, all on one clock. A room's recording begins when the
//! first participant is recorded, and ends when no participant is recorded any more. The record of each file names the
//! room's recording, so that a crash cannot separate the two.

use std::time::Instant;

use super::Recordings;
use crate::config::AppSettings;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::records::auxiliary::Take;
use crate::control::subtracks::are_renditions;
use crate::control::wall;
use crate::mail::Arrival;
use crate::types::{Now, StreamKey};

/// The clock of a room's recording.
#[derive(Debug, Clone)]
pub(super) struct RoomClock {
    room: StreamKey,
    /// Id of the recording: that of its first file.
    recording: String,
    zero: Instant,
    /// Wall-clock time at `zero`, in Unix milliseconds.
    zero_time: i64,
}

impl RoomClock {
    /// Returns a file's place in the room's recording. `first` is the arrival of the file's first unit.
    pub(super) fn take(&self, first: Arrival) -> Take {
        let ms = |from: Instant, to: Instant| {
            i64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(i64::MAX)
        };
        Take {
            id: self.room.id.to_string(),
            recording: self.recording.clone(),
            zero_time: self.zero_time,
            start: ms(self.zero, first.at).saturating_sub(ms(first.at, self.zero)),
            start_time: i64::try_from(first.wall_ms).unwrap_or(i64::MAX),
        }
    }
}

impl Recordings {
    /// Returns the clock of a room's recording. If no participant is recorded yet, a new recording begins with the file
    /// `vod`.
    pub(super) fn clock_of(&self, now: Now, room: StreamKey, vod: &str) -> RoomClock {
        let running = self.by_id.values().filter(|one| !one.stopped).filter_map(|one| one.room.as_ref());
        let clock = running.into_iter().find(|clock| clock.room == room);
        clock.cloned().unwrap_or_else(|| RoomClock {
            room,
            recording: vod.to_owned(),
            zero: now.mono,
            zero_time: wall(now),
        })
    }
}

/// Returns the room of a stream: the stream's main track, or the stream itself if it is the main track of other
/// streams. `None` if the application's subtracks are renditions of one programme.
pub(super) fn room_of(records: &Records, app: &AppSettings, key: &StreamKey) -> Option<StreamKey> {
    let own = || records.subtracks(key).next().map(|_| key.clone());
    records.main_track_of(key).or_else(own).filter(|_| !are_renditions(app))
}

/// Returns the live streams of a room.
pub(super) fn participants(records: &Records, registry: &Registry, room: &StreamKey) -> Vec<StreamKey> {
    let ids = registry.live_subtracks(records, room);
    ids.map(|id| StreamKey { app: room.app.clone(), id: id.clone() }).collect()
}
