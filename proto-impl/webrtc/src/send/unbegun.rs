//! Drops queued units. The peer sees no gap, because sequence numbers are assigned when packets leave.

use rtp::history::{PacketId, PacketLog};

use super::{Sender, Waiting};

impl Sender {
    /// Drops the queued packets, except for the rest of a unit whose first packets have left. Returns the
    /// number of dropped units.
    pub(crate) fn drop_unbegun(&mut self, log: &PacketLog) -> u64 {
        let mut dropped = 0_u64;
        let mut begun = None;
        for (n, Waiting { packets, .. }) in self.waiting.iter().enumerate() {
            let mut at = packets.start;
            if n == 0 && is_begun(at, log) {
                at = end_of_unit(at, packets.end, log);
                begun = Some(packets.start..at);
            }
            while at < packets.end {
                at = end_of_unit(at, packets.end, log);
                dropped = dropped.saturating_add(1);
            }
        }
        self.waiting.clear();
        if let Some(packets) = begun {
            let mut bytes = 0_u64;
            let mut at = packets.start;
            while at < packets.end {
                let payload = log.get(at).map_or(0, |packet| packet.payload.len());
                bytes = bytes.saturating_add(u64::try_from(payload).unwrap_or(u64::MAX));
                at = at.next();
            }
            self.waiting.push_back(Waiting { packets, bytes });
        }
        dropped
    }
}

/// True if a packet continues the unit of the previous packet.
fn is_begun(id: PacketId, log: &PacketLog) -> bool {
    id.back(1).and_then(|before| log.get(before)).is_some_and(|before| !before.marker)
}

/// Returns the id after the last packet of the unit that contains `id`; at most `end`.
fn end_of_unit(id: PacketId, end: PacketId, log: &PacketLog) -> PacketId {
    let mut at = id;
    while at < end {
        let is_last = log.get(at).is_none_or(|packet| packet.marker);
        at = at.next();
        if is_last {
            break;
        }
    }
    at
}
