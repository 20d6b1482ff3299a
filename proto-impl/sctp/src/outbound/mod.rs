//! From messages to data chunks in flight: stream scheduling, retransmission, and congestion control.

mod congestion;
mod flight;
mod queue;
mod rto;

use std::time::{Duration, Instant};

pub(crate) use flight::{Flight, Sack};
pub(crate) use queue::{Outgoing, Queues};
pub(crate) use rto::Rto;

use crate::event::Reliability;

/// Condition under which a message is abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Never,
    Retransmits(u32),
    At(Instant),
}

impl Limit {
    pub(crate) fn new(now: Instant, reliability: Reliability) -> Self {
        match reliability {
            Reliability::Full => Self::Never,
            Reliability::Retransmits(most) => Self::Retransmits(most),
            Reliability::Lifetime(time) => {
                let time = time.min(Duration::from_millis(u64::from(u32::MAX)));
                now.checked_add(time).map_or(Self::Never, Self::At)
            }
        }
    }

    /// True if a chunk that was sent this many times must not be sent again.
    pub(crate) fn is_over(self, now: Instant, transmissions: u32) -> bool {
        match self {
            Self::Never => false,
            Self::Retransmits(most) => transmissions > most,
            Self::At(at) => now >= at,
        }
    }
}
