//! Main tracks and their subtracks: a room, or one programme from several cameras. A subtrack names its main track; a
//! virtual main track is live while one of its subtracks is (docs/rest.md).

use crate::types::{Now, StreamKey};

use super::broadcast::status;
use super::{Control, wall};

impl Control {
    /// Subtracks of a main track that are live.
    pub(super) fn active_subtracks(&self, main: &StreamKey) -> usize {
        self.records.subtracks(main).filter(|id| self.is_active(main, id)).count()
    }

    pub(super) fn is_active(&self, main: &StreamKey, id: &std::sync::Arc<str>) -> bool {
        self.is_live(&StreamKey { app: main.app.clone(), id: id.clone() })
    }

    /// The main track that a record names.
    pub(super) fn main_track_of(&self, key: &StreamKey) -> Option<StreamKey> {
        let main = self.records.get(key)?.main_track_stream_id.as_deref()?;
        (!main.is_empty()).then(|| StreamKey { app: key.app.clone(), id: main.into() })
    }

    /// A subtrack came or went: a virtual main track follows.
    pub(super) fn follow_subtracks(&mut self, now: Now, main: &StreamKey) {
        let any = self.active_subtracks(main) > 0;
        let Some(record) = self.records.get_mut(main).filter(|record| record.is_virtual) else { return };
        let was = record.status == status::BROADCASTING;
        if any == was {
            return;
        }
        record.update_time = wall(now);
        if any {
            status::BROADCASTING.clone_into(&mut record.status);
            record.start_time = wall(now);
        } else {
            status::FINISHED.clone_into(&mut record.status);
        }
        self.mark_dirty(now, main.clone());
    }
}
