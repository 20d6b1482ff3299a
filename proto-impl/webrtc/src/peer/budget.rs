//! Budget of a viewer's video, and the backlog that waits for the pacer.

use std::time::{Duration, Instant};

use super::Peer;
use crate::send::{Purpose, Sender};

/// The part of the estimate that video, audio and repairs share, in thousandths. The rest is for heads of packets below
/// ours (IP and UDP: 28 bytes of some 1200), RTCP, and what the estimate is off.
const USABLE: u64 = 950;

/// Video that was given to [`Peer::send`] and has not left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// Payload bytes.
    pub bytes: u64,
    /// Time until all of it has left at the present pace: the delay of a picture that is queued now.
    pub time: Duration,
}

/// Video is sent so much at least, in bits per second, beside a quarter of the audio's rate: it is what tells whether the
/// path carries more. Audio may have no numbers, and never waits.
const TRICKLE: u64 = 30_000;

impl Peer {
    /// The rate at which packets may leave, for the pacer.
    pub(super) fn pace(&self, now: Instant) -> Option<u64> {
        let audio = self.outflow.bits(now, Purpose::Audio);
        let least = audio.saturating_add(audio / 4).saturating_add(TRICKLE);
        self.bandwidth.pace(now).map(|pace| pace.max(least))
    }

    /// Bits per second that this viewer's video may have now, packet heads included: the rate of the path, less the rates of
    /// audio and repairs in the last second, less a margin of a twentieth. While a queue stands on the path the budget is
    /// smaller, so that the queue drains.
    ///
    /// `None` while nothing is known that bounds it: before the first feedback, on a path that has carried all that was sent,
    /// and for a peer that tells nothing. A budget of 0 means audio alone.
    ///
    /// The value moves with each feedback of the peer, some ten times a second, and falls at once behind a cut. The rate of the
    /// path at most doubles in a second, and rises by a fourteenth in a second near what the path carried before. Ask for each
    /// picture, together with [`Peer::queued`]: a picture for which there is no room is best left out before it is queued, for
    /// [`Peer::send`] leaves nothing out. Always have something to send, a key frame at least: the path is measured by it.
    #[must_use]
    pub fn video_budget(&self, now: Instant) -> Option<u64> {
        let total = self.bandwidth.target(now)?;
        let others = [Purpose::Audio, Purpose::Repair].map(|purpose| self.outflow.bits(now, purpose));
        let usable = u128::from(total).saturating_mul(USABLE.into()) / 1000;
        Some(u64::try_from(usable).unwrap_or(u64::MAX).saturating_sub(others.iter().sum()))
    }

    /// Video that waits for the pacer. It changes with each call of [`Peer::send`] and each drain.
    #[must_use]
    pub fn queued(&self, now: Instant) -> Queued {
        let video = self.senders.iter().filter(|sender| sender.is_video());
        let bytes = video.map(Sender::waiting_bytes).fold(0, u64::saturating_add);
        Queued { bytes, time: self.pacer.time_for(now, bytes) }
    }
}
