//! The choice of a section's source, if its SSRC changes within the connection.
//!
//! Cameras and encoders restart with another SSRC. Others mix stray packets of a second source into those of the
//! first. Packets of another source are held. That source takes over once the current source has been silent for
//! [`SILENCE`], or has sent nothing while the held packets filled the buffer. The held packets are the new
//! source's first ones, so the key frame that often begins a change is not lost.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rtp::Ssrc;

/// Silence of the current source after which another one takes over.
const SILENCE: Duration = Duration::from_millis(500);
/// Minimum number of packets of another source; a single packet is ignored.
const PACKETS_MIN: usize = 2;
/// Maximum number of held packets, and of their bytes.
const PACKETS_MAX: usize = 512;
const BYTES_MAX: usize = 2 << 20;

/// A packet with its arrival time.
pub(super) type Held = (Instant, Bytes);

/// A source that may take over.
#[derive(Debug)]
struct Rival {
    ssrc: Ssrc,
    held: Vec<Held>,
    bytes: usize,
}

/// The choice of one section's source.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// Arrival time of the current source's last packet.
    last: Option<Instant>,
    rival: Option<Rival>,
}

impl Succession {
    /// Notes a packet of the current source.
    pub(super) fn received(&mut self, now: Instant) {
        self.last = Some(now);
        self.rival = None;
    }

    /// Takes a packet of another source. If that source takes over, returns its held packets.
    pub(super) fn other(&mut self, now: Instant, ssrc: Ssrc, packet: &[u8]) -> Option<Vec<Held>> {
        let rival = match &mut self.rival {
            Some(rival) if rival.ssrc == ssrc => rival,
            rival => rival.insert(Rival { ssrc, held: Vec::new(), bytes: 0 }),
        };
        rival.held.push((now, Bytes::copy_from_slice(packet)));
        rival.bytes = rival.bytes.saturating_add(packet.len());
        let is_full = rival.held.len() >= PACKETS_MAX || rival.bytes >= BYTES_MAX;
        let is_silent = self.last.is_none_or(|last| now.saturating_duration_since(last) >= SILENCE);
        let takes_over = is_full || is_silent && rival.held.len() >= PACKETS_MIN;
        if takes_over { self.rival.take().map(|rival| rival.held) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_source_takes_over_when_the_first_is_silent_or_it_fills_the_room() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut sources = Succession::default();
        sources.received(start);
        // Stray packets, one of them after a pause.
        for ms in [10, 20, 600] {
            assert_eq!(sources.other(at(ms), Ssrc(8), b"8"), None, "{ms}");
            sources.received(at(ms + 1));
        }
        assert_eq!((sources.other(at(1200), Ssrc(8), b"8"), sources.last), (None, Some(at(601))));
        assert_eq!(sources.other(at(1210), Ssrc(9), b"9"), None, "it is another one");
        let held = sources.other(at(1220), Ssrc(9), b"0").unwrap();
        assert_eq!(held, [(at(1210), Bytes::from_static(b"9")), (at(1220), Bytes::from_static(b"0"))]);

        for (packet, count) in [(&[0; 100][..], PACKETS_MAX), (&[0; 60_000], BYTES_MAX.div_ceil(60_000))] {
            sources.received(at(2000));
            let mut tries = (1..).map(|n| (n, sources.other(at(2001), Ssrc(9), packet)));
            let (n, held) = tries.find(|(_, held)| held.is_some()).unwrap();
            assert_eq!((n, held.unwrap().len()), (count, count));
        }
    }
}
