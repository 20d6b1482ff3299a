//! Converts access units to the transport packets that all viewers of a stream share.
//!
//! Each unit of the ring has packets of its own, or none: audio frames wait for one another, at most 70 ms
//! ([`Packing::LIVE`]), and the last frame of a PES packet brings all of them. A viewer that joins between two PES
//! packets therefore gets a few frames from before it joined, and none twice or in part. Tables precede every key
//! frame, the first unit of an epoch, and a unit every 400 ms; each time a prelude is made. The prelude is a copy of
//! those tables with their counters. A viewer that joins later begins with it, and continues with the next tables
//! like all others; a viewer that begins at the same unit gets the tables twice, as ISO/IEC 13818-1 §2.4.3.3 allows.
//!
//! [`mpegts::Program`] makes the packets.

use bytes::Bytes;
use media::message::Message;
use media::{AccessUnit, Track, TrackId};
use mpegts::{Packing, Program};

use crate::hub::{Chosen, Entry, Fit, Item, Package, Parts};

/// Interval of the tables in milliseconds. With one more frame it is below the 500 ms of ETSI TR 101 290.
const TABLES_MS: i64 = 400;

/// A program of the chosen tracks.
#[derive(Debug)]
pub(crate) struct TsPackage {
    program: Program,
    epoch: Option<u32>,
}

impl TsPackage {
    /// Makes a package for viewers, which share packets.
    pub(crate) fn live() -> Self {
        Self { program: Program::with_packing(Packing::LIVE).with_metadata_if_any(), epoch: None }
    }

    /// Makes a package that writes the packets of every unit without waiting for further units.
    pub(crate) fn at_once() -> Self {
        Self { program: Program::with_packing(Packing::NONE).with_metadata_if_any(), epoch: None }
    }

    /// Applies the chosen tracks.
    fn follow(&mut self, chosen: &Chosen) {
        if self.epoch != Some(chosen.epoch()) {
            self.epoch = Some(chosen.epoch());
            self.program.set_tracks(chosen.iter());
        }
    }

    /// The packets of a unit, with those of frames that have waited for it; `None` if the format cannot carry it.
    fn write(&mut self, entry: &Entry, chosen: &Chosen) -> Option<Bytes> {
        self.follow(chosen);
        let AccessUnit { track, pts, payload, .. } = &entry.unit;
        match *track {
            TrackId::CUES => Some(self.program.write_splice(*pts, payload)),
            TrackId::METADATA => Some(self.program.write_metadata(*pts, payload)),
            TrackId::MESSAGES => Some(self.program.write_metadata(*pts, &Message::read(payload)?.tag()?)),
            id => self.program.write(&entry.unit, entry.tracks.get(id)?),
        }
    }
}

impl Package for TsPackage {
    fn fit(&self, track: &Track) -> Fit {
        fit(track)
    }

    fn prelude(&mut self, chosen: &Chosen, _dts_ms: i64) -> Parts {
        self.follow(chosen);
        self.program.begin();
        Parts::new([self.program.tables()])
    }

    fn prelude_age_ms(&self) -> i64 {
        TABLES_MS
    }

    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Item {
        self.write(entry, chosen)
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| Parts::new([bytes]).into())
            .unwrap_or_default()
    }

    fn finish(&mut self) -> Parts {
        Parts::new([self.program.flush()])
    }
}

/// Returns how well MPEG-TS carries a track.
pub(crate) fn fit(track: &Track) -> Fit {
    Fit::of(mpegts::carries(track))
}
