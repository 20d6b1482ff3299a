//! A source that several streams share in turn, for example the current speaker of a room. Sequence numbers and
//! timestamps continue; the format may change to another negotiated one.

use std::time::Instant;

use rtp::extension::PlayoutDelay;
use sdp::Feedback;

use super::Sender;
use crate::heads::Heads;
use crate::negotiate::Section;
use crate::redundancy::Redundancy;

impl Sender {
    /// Ends the current stream and drops its queued packets.
    pub(crate) fn vacate(&mut self, now: Instant) {
        self.skip();
        self.forget_repairs();
        if self.has_begun() {
            self.clock.vacated = Some(now);
        }
    }

    /// Returns the sampling time of the latest queued unit.
    pub(crate) fn newest(&self) -> Option<Instant> {
        self.clock.newest.map(|(_, sampled)| sampled)
    }

    /// Drops the pending retransmissions, because the packets of the track are gone.
    pub(crate) fn forget_repairs(&mut self) {
        self.repairs.asked.clear();
        self.repairs.echoes.clear();
    }

    /// Uses the section's first format from the next unit on. Returns false if its clock rate differs.
    pub(crate) fn take_format(&mut self, section: &Section, delay: Option<PlayoutDelay>) -> bool {
        let Some(format) = section.formats.first() else { return false };
        if format.local.rtpmap.clock_rate != self.agreed.clock_rate {
            return false;
        }
        let of = format.payload_type();
        self.agreed.payload_type = of;
        self.agreed.rtx_payload_type = format.rtx.filter(|_| self.agreed.source.rtx.is_some());
        self.agreed.nack = format.has_feedback(&Feedback::Nack);
        self.redundancy = format.red.map(|payload_type| Redundancy::new(payload_type, of));
        let requested = self.heads.requested_delay();
        self.heads = Heads::new(section, delay.filter(|_| self.agreed.is_video));
        if let Some(delay) = requested {
            self.heads.request_delay(delay);
        }
        true
    }
}
