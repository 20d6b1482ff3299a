//! Runs publishers with every kind of faulty clock through a timeline.

use std::time::{Duration, Instant};

use netsim::publisher::{Publisher, Unit};

use crate::timeline::*;
use crate::{Timescale, TrackId};

/// A publisher whose units get their times from a timeline.
pub(super) trait Timed {
    /// Maps the publisher's units by a timeline.
    fn run(&self) -> (Vec<Unit>, Timeline);
    /// Checks the properties that hold for every publisher.
    fn check(&self) -> Result<(), String>;
}

impl Timed for Publisher {
    fn run(&self) -> (Vec<Unit>, Timeline) {
        // The protocol's clock has 32 bits, even if that of the encoder has fewer.
        let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        let began = began();
        let mut units = self.units();
        for unit in &mut units {
            timeline.arrive(began + Duration::from_millis(unit.arrives.cast_unsigned()));
            unit.out = timeline.map(track_id(unit.track), unit.raw);
        }
        (units, timeline)
    }

    fn check(&self) -> Result<(), String> {
        self.judge(&self.run().0)
    }
}

/// The beginning of virtual time.
pub(super) fn began() -> Instant {
    netsim::Clock::new().now()
}

pub(super) fn track_id(track: usize) -> TrackId {
    match track {
        0 => TrackId::VIDEO,
        n => TrackId::nth(crate::TrackKind::Audio, u8::try_from(n - 1).unwrap()).unwrap(),
    }
}
