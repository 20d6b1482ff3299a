//! The client: datagrams of one sender.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::Datagrams;

use crate::protocol::pull::{Client, ClientDatagrams, ClientEvent, Media, Start};
use crate::protocol::{PathId, To};

/// After so long another sender may take a silent one's place.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Datagrams that wait for somebody who takes them no faster than they are to be seen. Those behind them are lost, which
/// their counters show.
const WAITING_MAX: usize = 1024;
/// The first byte of a packet (ISO/IEC 13818-1 §2.4.3.2), and the bytes of one.
const SYNC: u8 = 0x47;
const PACKET_BYTES: usize = 188;
/// Datagrams of encoders that put RTP around them (RFC 2250): its head, and the payload type.
const RTP_HEAD_BYTES: usize = 12;
const RTP_MP2T: u8 = 33;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UdpPull {
    /// Who sends, and when it was last heard.
    sender: Option<(SocketAddr, Instant)>,
    waiting: VecDeque<Bytes>,
    ended: Option<&'static str>,
}

/// The packets of a datagram; `None` where there are none.
fn packets(datagram: &[u8]) -> Option<&[u8]> {
    let inner = match datagram {
        [head, marked, ..] if head >> 6 == 2 && marked & 0x7f == RTP_MP2T => {
            datagram.get(RTP_HEAD_BYTES..)?
        }
        _ => datagram,
    };
    (inner.len() >= PACKET_BYTES && inner.first() == Some(&SYNC)).then_some(inner)
}

impl ClientDatagrams for UdpPull {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {
        // It has one socket, at the address of the URL.
    }

    fn handle_datagram(&mut self, now: Instant, _path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        let Some(packets) = packets(datagram) else { return };
        let (sender, heard) = self.sender.get_or_insert((from, now));
        if *sender != from {
            if now.saturating_duration_since(*heard) < SILENCE_MAX {
                return;
            }
            *sender = from;
        }
        *heard = now;
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(Bytes::copy_from_slice(packets));
        }
    }

    fn poll_datagrams(&mut self, _now: Instant, _out: &mut Datagrams) -> To {
        // Nobody is spoken to.
        To::PEER
    }
}

impl Client for UdpPull {
    fn begin(&mut self, _start: &Start<'_>) {
        // There is nothing to ask for.
    }

    fn waits(&self) -> bool {
        true
    }

    fn handle_end(&mut self, _now: Instant) {
        self.ended = Some("the socket failed");
    }

    fn handle_timeout(&mut self, _now: Instant) {
        // Silence is noticed by the owner.
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        let packets = self.waiting.pop_front().map(|packets| ClientEvent::Media(Media::Payload(packets)));
        packets.or_else(|| self.ended.take().map(|why| ClientEvent::Ended(why.to_owned())))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn close(&mut self, _now: Instant) {
        self.waiting = VecDeque::new();
    }

    fn name(&self) -> &'static str {
        "udp-pull"
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n], 5000))
    }

    /// What comes of a datagram: the second byte of its first packet.
    fn give(pull: &mut UdpPull, now: Instant, from: u8, datagram: &[u8]) -> Option<u8> {
        pull.handle_datagram(now, PathId::default(), address(from), &mut datagram.to_vec());
        let event = pull.poll()?;
        let ClientEvent::Media(Media::Payload(packets)) = event else { panic!("{event:?}") };
        packets.get(1).copied()
    }

    fn packet(mark: u8) -> Vec<u8> {
        [&[SYNC, mark][..], &[0; PACKET_BYTES - 2]].concat()
    }

    #[test]
    fn the_first_sender_is_the_source_until_it_is_silent() {
        let (mut pull, start) = (UdpPull::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(give(&mut pull, at(0), 1, &packet(1)), Some(1));
        assert_eq!(give(&mut pull, at(1500), 2, &packet(2)), None, "somebody else's");
        assert_eq!(give(&mut pull, at(1600), 1, &packet(3)), Some(3));
        assert_eq!(give(&mut pull, at(3700), 2, &packet(4)), Some(4));
        assert_eq!(give(&mut pull, at(3800), 1, &packet(5)), None);
    }

    #[test]
    fn datagrams_without_packets_are_none_and_rtp_is_taken_off() {
        let (mut pull, now) = (UdpPull::default(), Instant::now());
        for bad in [
            &b""[..],
            b"\x47",
            &[0; 1316],
            &packet(1)[..187],
            &[0x80, 33],
            &[&[0x80, 33][..], &[0; 400]].concat(),
        ] {
            assert_eq!(give(&mut pull, now, 1, bad), None);
        }
        let rtp = [&[0x80, 33, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9][..], &packet(7)].concat();
        assert_eq!(give(&mut pull, now, 1, &rtp), Some(7));
    }

    #[test]
    fn what_nobody_takes_is_held_up_to_a_bound() {
        let (mut pull, now) = (UdpPull::default(), Instant::now());
        for _ in 0..2 * WAITING_MAX {
            pull.handle_datagram(now, PathId::default(), address(1), &mut packet(1));
        }
        assert_eq!(std::iter::from_fn(|| pull.poll()).count(), WAITING_MAX);
    }
}
