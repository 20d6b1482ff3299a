//! Media of a returning publisher that belongs before the point at which its predecessor ended.
//!
//! An encoder's audio and video need not begin at the same time. If a track begins earlier than the track that was placed
//! right after the stream's end, its first units lie behind that end, where the publisher's clock gives all of them the
//! same time. Audio from there would be heard as a burst over what was heard already, so it is dropped. Pictures from
//! there are needed to decode those that follow: they get times one millisecond apart until the track has caught up.

use media::{Position, Timescale, TrackKind};

use crate::hub::Entry;

/// The point that the stream had reached when its publisher began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind {
    /// Last time that is behind the predecessor's end, in milliseconds: the one that a publisher's clock gives to all
    /// units from there; `i64::MIN` without a predecessor.
    floor_ms: i64,
    /// Time that was last given to a picture from before the floor.
    pictures_ms: i64,
}

impl Default for Behind {
    fn default() -> Self {
        Self::new(Position::default())
    }
}

impl Behind {
    /// Creates the point at which a publisher continues.
    pub(super) fn new(position: Position) -> Self {
        let floor_ms = if position.started { position.floor(Timescale::MILLISECONDS) } else { i64::MIN };
        Self { floor_ms, pictures_ms: floor_ms }
    }

    /// Moves a unit that lies behind the predecessor's end. Returns false if the unit must be dropped.
    pub(super) fn place(&mut self, entry: &mut Entry) -> bool {
        if entry.dts_ms > self.pictures_ms {
            return true;
        }
        match entry.kind {
            Some(TrackKind::Audio) => entry.dts_ms > self.floor_ms,
            Some(TrackKind::Video) => {
                self.pictures_ms = self.pictures_ms.saturating_add(1);
                entry.delay_until(self.pictures_ms);
                true
            }
            Some(TrackKind::Data) | None => true,
        }
    }
}
