//! The client of a UDP pull, which receives the datagrams of one sender.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::Datagrams;

use crate::protocol::pull::{Client, ClientDatagrams, ClientEvent, Media, Start};
use crate::protocol::{PathId, To};

/// Silence of a sender after which another one may replace it.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of datagrams that wait for a consumer at playback speed. Further ones are lost, which their
/// continuity counters show.
const WAITING_MAX: usize = 1024;
/// The sync byte of a packet (ISO/IEC 13818-1 §2.4.3.2).
const SYNC: u8 = 0x47;
/// Possible distances between packets in bytes. At a distance of 192, each packet follows its arrival time of four
/// bytes.
const STRIDES: [usize; 3] = [188, 192, 204];
const ARRIVAL_BYTES: usize = 4;
/// Payload type of encoders that send the transport stream in RTP (RFC 2250, RFC 3551 §6).
const RTP_MP2T: u8 = 33;
/// Number of consecutive datagrams without the beginning of a transport stream after which the pull ends with a reason.
const UNKNOWN_MAX: u32 = 100;

/// The client of a UDP pull.
#[derive(Debug, Default)]
pub(super) struct UdpPull {
    source: Option<Source>,
    /// Number of datagrams since the last usable one, while there is no source.
    unknown: u32,
    waiting: VecDeque<Bytes>,
    ended: Option<&'static str>,
}

/// The current sender.
#[derive(Debug)]
struct Source {
    address: SocketAddr,
    /// Time at which the source was last heard.
    heard: Instant,
    form: Form,
}

/// The form of a source's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Bytes of the transport stream, split anywhere; ffmpeg splits at 1472.
    Bytes,
    /// Transport packets in RTP.
    Rtp,
}

impl Form {
    /// Detects the form from a source's first datagram; `None` if it is not a transport stream.
    fn of(datagram: &[u8]) -> Option<Self> {
        let is_sync = |bytes: &[u8], at: usize| bytes.get(at) == Some(&SYNC);
        if Self::Rtp.payload(datagram).is_some_and(|inner| is_sync(inner, 0)) {
            return Some(Self::Rtp);
        }
        let begins = is_sync(datagram, 0) || is_sync(datagram, ARRIVAL_BYTES);
        let repeats = |stride| (0..stride).any(|at| is_sync(datagram, at) && is_sync(datagram, at + stride));
        (begins || STRIDES.into_iter().any(repeats)).then_some(Self::Bytes)
    }

    /// Returns the bytes of the transport stream in a datagram.
    fn payload(self, datagram: &[u8]) -> Option<&[u8]> {
        let payload = match self {
            Self::Bytes => Some(datagram),
            Self::Rtp => rtp::Packet::read(datagram)
                .ok()
                .filter(|packet| packet.header.payload_type.number() == RTP_MP2T)
                .map(|packet| packet.payload),
        };
        payload.filter(|bytes| !bytes.is_empty())
    }
}

impl UdpPull {
    /// Returns the transport stream's bytes in a datagram, if its sender is the source or becomes it.
    fn take<'a>(&mut self, now: Instant, from: SocketAddr, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let known = self.source.as_mut().filter(|source| source.address == from);
        if let Some(source) = known {
            let payload = source.form.payload(datagram)?;
            source.heard = now;
            return Some(payload);
        }
        let is_heard = |source: &Source| now.saturating_duration_since(source.heard) < SILENCE_MAX;
        if self.source.as_ref().is_some_and(is_heard) {
            return None;
        }
        let Some(form) = Form::of(datagram) else {
            self.unknown = self.unknown.saturating_add(1);
            if self.unknown >= UNKNOWN_MAX {
                self.ended = Some("datagrams arrive, but no MPEG-TS in them");
            }
            return None;
        };
        self.unknown = 0;
        self.source = Some(Source { address: from, heard: now, form });
        form.payload(datagram)
    }
}

impl ClientDatagrams for UdpPull {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {
        // Nothing to do: the pull has a single socket, at the address of the URL.
    }

    fn handle_datagram(&mut self, now: Instant, _path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        let Some(payload) = self.take(now, from, datagram) else { return };
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(Bytes::copy_from_slice(payload));
        }
    }

    fn poll_datagrams(&mut self, _now: Instant, _out: &mut Datagrams) -> To {
        // Nothing to do: the client of a UDP pull sends nothing.
        To::PEER
    }
}

impl Client for UdpPull {
    fn begin(&mut self, _start: &Start<'_>) {
        // Nothing to begin with: the sender needs no request.
    }

    fn waits(&self) -> bool {
        true
    }

    fn handle_end(&mut self, _now: Instant) {
        self.ended = Some("the socket failed");
    }

    fn handle_timeout(&mut self, _now: Instant) {
        // The session that owns this client notices silence.
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

    /// Passes a datagram. Returns the second byte of its first packet, if the packet is emitted.
    fn give(pull: &mut UdpPull, now: Instant, from: u8, datagram: &[u8]) -> Option<u8> {
        pull.handle_datagram(now, PathId::default(), address(from), &mut datagram.to_vec());
        let event = pull.poll()?;
        let ClientEvent::Media(Media::Payload(packets)) = event else { panic!("{event:?}") };
        packets.get(1).copied()
    }

    const PACKET_BYTES: usize = 188;

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
    fn datagrams_cut_anywhere_are_taken_from_the_source_whole_and_in_order() {
        for (before, behind) in [(0, 0), (4, 0), (0, 16)] {
            let framed = |n| [vec![0; before], packet(n), vec![0; behind]].concat();
            let bytes: Vec<u8> = (0..40).flat_map(framed).collect();
            for cut in before + 1..2000 {
                let (mut pull, now) = (UdpPull::default(), Instant::now());
                let mut got = Vec::new();
                for piece in bytes.chunks(cut) {
                    pull.handle_datagram(now, PathId::default(), address(1), &mut piece.to_vec());
                    while let Some(ClientEvent::Media(Media::Payload(payload))) = pull.poll() {
                        got.extend_from_slice(&payload);
                    }
                }
                assert_eq!(got, bytes, "{} bytes, cut {cut}", PACKET_BYTES + before + behind);
            }
            // A datagram may begin within a packet: two sync bytes at a packet's distance identify the transport
            // stream.
            for start in 1..PACKET_BYTES {
                let piece = &bytes[start..start + 1472];
                assert!(give(&mut UdpPull::default(), Instant::now(), 1, piece).is_some(), "{start}");
            }
        }
    }

    #[test]
    fn datagrams_of_something_else_end_the_wait_with_a_reason_and_rtp_is_taken_off() {
        let rtp = |inner: &[u8]| [&[0x80, 33, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9][..], inner].concat();
        let (mut pull, now) = (UdpPull::default(), Instant::now());
        for bad in [&b""[..], b"\x80", &[0; 1316], &[0x80, 33], &rtp(&[0; 400])] {
            assert_eq!(give(&mut pull, now, 1, bad), None);
        }
        assert_eq!(give(&mut pull, now, 1, &rtp(&packet(7))), Some(7));
        assert_eq!(give(&mut pull, now, 1, &packet(8)), None, "without RTP");
        // Without RTP, a datagram that looks like RTP by chance belongs to the stream.
        let mut pull = UdpPull::default();
        assert_eq!(give(&mut pull, now, 1, &packet(1)), Some(1));
        assert_eq!(give(&mut pull, now, 1, &rtp(&[3; 50])), Some(33));

        let mut pull = UdpPull::default();
        for _ in 0..UNKNOWN_MAX {
            assert_eq!(pull.poll(), None);
            pull.handle_datagram(now, PathId::default(), address(1), &mut [0; 1316]);
        }
        assert!(matches!(pull.poll(), Some(ClientEvent::Ended(_))));
    }

    #[test]
    fn extensions_contributors_and_padding_of_rtp_are_no_part_of_the_stream() {
        let table: [(&str, u8, &[u8], &[u8]); 5] = [
            ("an extension", 0x90, &[0xbe, 0xde, 0, 1, 0x10, 7, 0, 0], &[]),
            ("a contributor", 0x81, &[1, 2, 3, 4], &[]),
            ("padding", 0xa0, &[], &[0, 0, 0, 4]),
            ("all of them", 0xb2, &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0], &[1]),
            ("an extension with sync bytes", 0x90, &[0x47, 0x47, 0, 1, 0x47, 0x47, 0x47, 0x47], &[]),
        ];
        for (name, first, before, behind) in table {
            let head = [first, 33, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
            let datagram = [&head[..], before, &packet(7), &packet(8), behind].concat();
            let (mut pull, now) = (UdpPull::default(), Instant::now());
            pull.handle_datagram(now, PathId::default(), address(1), &mut datagram.clone());
            let Some(ClientEvent::Media(Media::Payload(payload))) = pull.poll() else { panic!("{name}") };
            assert_eq!(payload, [packet(7), packet(8)].concat(), "{name}");
        }
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
