//! Packets of a pull that wait for the grant.

use bytes::Bytes;

/// Maximum number of packets that wait; further ones are lost.
pub(super) const PACKETS_MAX: usize = 2048;
/// Maximum number of bytes that wait, enough for a large key frame; further packets are lost.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// A received packet of a section.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) section: usize,
    pub(super) is_rtcp: bool,
    pub(super) packet: Bytes,
}

/// The packets that wait, in the order of their arrival. Of each section's reports only the newest is kept, so
/// that reports take no place of media.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    packets: Vec<Arrived>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, section: usize, is_rtcp: bool, packet: &[u8]) {
        let is_full = self.packets.len() >= PACKETS_MAX;
        let is_report = |one: &&mut Arrived| one.is_rtcp && one.section == section;
        let former = if is_rtcp { self.packets.iter_mut().find(is_report) } else { None };
        let freed = former.as_ref().map_or(0, |one| one.packet.len());
        let bytes = self.bytes.saturating_sub(freed).saturating_add(packet.len());
        if bytes > BYTES_MAX {
            return;
        }
        let packet = Bytes::copy_from_slice(packet);
        match former {
            Some(former) => former.packet = packet,
            None if is_full => return,
            None => self.packets.push(Arrived { section, is_rtcp, packet }),
        }
        self.bytes = bytes;
    }

    /// Returns the packets in the order of their arrival; a report takes the place of the first of its section.
    pub(super) fn take(self) -> Vec<Arrived> {
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_push_out_no_packet_and_the_newest_is_kept() {
        let mut waiting = Waiting::default();
        for n in 0..5000u32 {
            waiting.push(0, true, &n.to_be_bytes());
            waiting.push(1, true, &n.to_be_bytes());
        }
        for n in 0..1000u32 {
            waiting.push(0, false, &n.to_be_bytes());
        }
        let packets = waiting.take();
        let (reports, media): (Vec<_>, Vec<_>) = packets.iter().partition(|one| one.is_rtcp);
        assert_eq!(media.len(), 1000);
        let reports: Vec<_> = reports.iter().map(|one| (one.section, &one.packet[..])).collect();
        assert_eq!(reports, [(0, &4999u32.to_be_bytes()[..]), (1, &4999u32.to_be_bytes()[..])]);
    }

    #[test]
    fn waiting_packets_are_bounded_by_number_and_by_bytes() {
        let mut waiting = Waiting::default();
        for _ in 0..5000 {
            waiting.push(0, false, &[7; 100]);
        }
        assert_eq!(waiting.take().len(), PACKETS_MAX);
        let mut waiting = Waiting::default();
        for _ in 0..5000 {
            waiting.push(0, false, &[7; 60_000]);
            waiting.push(1, true, &[7; 60_000]);
        }
        let bytes: usize = waiting.take().iter().map(|one| one.packet.len()).sum();
        assert!((BYTES_MAX - 60_000..=BYTES_MAX).contains(&bytes), "{bytes}");
    }
}
