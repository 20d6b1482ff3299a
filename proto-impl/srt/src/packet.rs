//! Packets: the header of sixteen bytes, and the contents of control packets (draft-sharabayko-srt-01 §3.1, §3.2).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |0|                    Packet Sequence Number                   |   data
//! |PP |O|KK |R|                   Message Number                  |
//! |1|         Control Type        |            Subtype            |   control
//! |                   Type-specific Information                   |
//! |                           Timestamp                           |   both
//! |                     Destination Socket ID                     |
//! ```

use wire::{Reader, Truncated};

use crypto::{Random, Seed};

use crate::config::HEAD_BYTES;
use crate::seq::Seq;

/// Socket id: the name of one end of a connection. Handshakes are sent to 0, which no socket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId(pub u32);

impl SocketId {
    /// Draws an id from `seed`. The id is not 0 and has at most 30 bits, because libsrt marks groups with the next bit.
    #[must_use]
    pub fn random(seed: &Seed) -> Self {
        Self::draw(&mut seed.derive("srt socket", 0).random())
    }

    pub(crate) fn draw(random: &mut Random) -> Self {
        Self(u32::try_from(random.below(NAMES)).unwrap_or(0).saturating_add(1))
    }
}

/// Number of ids that can be drawn: 1 to 2^30 - 1.
const NAMES: u64 = (1 << 30) - 1;

const CONTROL_BIT: u32 = 0x8000_0000;
/// Mask of the message number: 26 bits. The bit above them is the retransmission flag.
pub(crate) const MESSAGE_MASK: u32 = 0x03ff_ffff;

/// The key that encrypts a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFlag {
    /// Not encrypted.
    Clear,
    /// The even key.
    Even,
    /// The odd key.
    Odd,
    /// Both keys; not used in data packets.
    Both,
}

impl KeyFlag {
    const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::Clear,
            1 => Self::Even,
            2 => Self::Odd,
            _ => Self::Both,
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Self::Clear => 0,
            Self::Even => 1,
            Self::Odd => 2,
            Self::Both => 3,
        }
    }

    /// Returns the two bits of the flag alone, as a packet filter carries them.
    pub(crate) const fn wire(self) -> u8 {
        match self {
            Self::Clear => 0,
            Self::Even => 1,
            Self::Odd => 2,
            Self::Both => 3,
        }
    }

    /// Returns the flag for these two bits.
    pub(crate) fn from_wire(bits: u8) -> Self {
        Self::from_bits(u32::from(bits))
    }
}

/// The header of a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHead {
    /// The sequence number.
    pub seq: Seq,
    /// Position of the packet in its message, two bits: 2 for the first packet, 1 for the last, 3 for a packet that is
    /// a whole message.
    pub position: u32,
    /// True if the message must be delivered in order. Meaningless in live mode.
    pub in_order: bool,
    /// Key that encrypts the payload.
    pub key: KeyFlag,
    /// True if the packet is a retransmission.
    pub retransmitted: bool,
    /// The message number.
    pub message: u32,
    /// Timestamp: microseconds since the sender's start.
    pub timestamp: u32,
    /// Socket id of the receiver.
    pub to: SocketId,
}

/// Position of a packet that is a whole message.
pub(crate) const POSITION_SOLO: u32 = 3;

impl DataHead {
    /// Returns the header in wire format.
    #[must_use]
    pub fn write(&self) -> [u8; HEAD_BYTES] {
        let flags = (self.position & 3) << 30
            | u32::from(self.in_order) << 29
            | self.key.bits() << 27
            | u32::from(self.retransmitted) << 26
            | self.message & MESSAGE_MASK;
        words([self.seq.value(), flags, self.timestamp, self.to.0])
    }
}

/// The content of a control packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control<'a> {
    /// Handshake, read by [`crate::handshake`] (§3.2.1).
    Handshake(&'a [u8]),
    /// Keep-alive (§3.2.3).
    KeepAlive,
    /// Acknowledgement with its number. The number of a light acknowledgement is 0 (§3.2.4).
    Ack(u32, Ack),
    /// Loss report (§3.2.5).
    Nak(Losses<'a>),
    /// Congestion warning (§3.2.6).
    CongestionWarning,
    /// Shutdown (§3.2.7).
    Shutdown,
    /// Confirmation of the acknowledgement with this number (§3.2.8).
    AckAck(u32),
    /// Message number, and the first and last packet that the sender has given up (§3.2.9).
    DropRequest(u32, Seq, Seq),
    /// Peer error with its code (§3.2.10).
    PeerError(u32),
    /// Type 0x7fff with its subtype: a handshake extension sent after the handshake, such as key material.
    User(u16, &'a [u8]),
    /// An unknown type.
    Unknown(u16),
}

/// Control packet types (§3.2).
pub(crate) mod kind {
    pub(crate) const HANDSHAKE: u16 = 0;
    pub(crate) const KEEP_ALIVE: u16 = 1;
    pub(crate) const ACK: u16 = 2;
    pub(crate) const NAK: u16 = 3;
    pub(crate) const CONGESTION_WARNING: u16 = 4;
    pub(crate) const SHUTDOWN: u16 = 5;
    pub(crate) const ACK_ACK: u16 = 6;
    pub(crate) const DROP_REQUEST: u16 = 7;
    pub(crate) const PEER_ERROR: u16 = 8;
    pub(crate) const USER: u16 = 0x7fff;
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Sequence number of the first missing packet, or of the next expected packet if none is missing.
    pub next: Seq,
    /// Figures of a full acknowledgement; `None` in a light one.
    pub figures: Option<AckFigures>,
}

/// The receiver's measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AckFigures {
    /// Round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Variation of the round-trip time, in microseconds.
    pub rtt_var_us: u32,
    /// Number of packets for which the receiver has room.
    pub room_packets: u32,
    /// Receive rate, in packets per second.
    pub rate_packets: u32,
    /// Estimated capacity of the path, in packets per second.
    pub bandwidth_packets: u32,
    /// Receive rate, in bytes per second.
    pub rate_bytes: u32,
}

/// Iterates over the ranges of a loss report. The first word of a range has its highest bit set, and the word after it
/// is the end of the range. A word without that bit is a single packet (§3.2.5, appendix A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Losses<'a>(&'a [u8]);

impl Iterator for Losses<'_> {
    type Item = (Seq, Seq);

    fn next(&mut self) -> Option<(Seq, Seq)> {
        let mut r = Reader::new(self.0);
        let first = r.u32().ok()?;
        let last = if first & CONTROL_BIT == 0 { first } else { r.u32().ok()? };
        self.0 = r.rest();
        Some((Seq::new(first), Seq::new(last)))
    }
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A data packet: header and payload.
    Data(DataHead, &'a [u8]),
    /// A control packet.
    Control {
        /// Timestamp: microseconds since the sender's start.
        timestamp: u32,
        /// Socket id of the receiver.
        to: SocketId,
        /// Type and contents of the packet.
        control: Control<'a>,
    },
}

impl<'a> Packet<'a> {
    /// Reads a datagram.
    pub fn read(datagram: &'a [u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new(datagram);
        let [first, second, timestamp, to] = read_words(r.array::<HEAD_BYTES>()?);
        let to = SocketId(to);
        if first & CONTROL_BIT == 0 {
            let head = DataHead {
                seq: Seq::new(first),
                position: second >> 30,
                in_order: second & 1 << 29 != 0,
                key: KeyFlag::from_bits(second >> 27),
                retransmitted: second & 1 << 26 != 0,
                message: second & MESSAGE_MASK,
                timestamp,
                to,
            };
            return Ok(Self::Data(head, r.rest()));
        }
        let [high, low, subtype @ ..] = first.to_be_bytes();
        let kind = u16::from_be_bytes([high, low]) & 0x7fff;
        let control = read_control(kind, u16::from_be_bytes(subtype), second, r)?;
        Ok(Self::Control { timestamp, to, control })
    }
}

fn read_control<'a>(kind: u16, subtype: u16, info: u32, mut r: Reader<'a>) -> Result<Control<'a>, Truncated> {
    Ok(match kind {
        kind::HANDSHAKE => Control::Handshake(r.rest()),
        kind::KEEP_ALIVE => Control::KeepAlive,
        kind::ACK => Control::Ack(info, read_ack(&mut r)?),
        kind::NAK => Control::Nak(Losses(r.rest())),
        kind::CONGESTION_WARNING => Control::CongestionWarning,
        kind::SHUTDOWN => Control::Shutdown,
        kind::ACK_ACK => Control::AckAck(info),
        kind::DROP_REQUEST => Control::DropRequest(info, Seq::new(r.u32()?), Seq::new(r.u32()?)),
        kind::PEER_ERROR => Control::PeerError(info),
        kind::USER => Control::User(subtype, r.rest()),
        unknown => Control::Unknown(unknown),
    })
}

/// Reads an acknowledgement of any kind. There is a fast path for full ones.
fn read_ack(r: &mut Reader<'_>) -> Result<Ack, Truncated> {
    if let Ok(full) = r.array::<28>() {
        let [next, rtt_us, rtt_var_us, room_packets, rate_packets, bandwidth_packets, rate_bytes] =
            read_words(full);
        let figures =
            AckFigures { rtt_us, rtt_var_us, room_packets, rate_packets, bandwidth_packets, rate_bytes };
        return Ok(Ack { next: Seq::new(next), figures: Some(figures) });
    }
    Ok(Ack { next: Seq::new(r.u32()?), figures: read_figures(r) })
}

/// Reads an array as big-endian words; `BYTES` must be four times `N`.
fn read_words<const N: usize, const BYTES: usize>(bytes: [u8; BYTES]) -> [u32; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*chunk);
    }
    words
}

/// Reads the figures of a full acknowledgement, or of a small one, which ends after `room_packets` (§3.2.4).
fn read_figures(r: &mut Reader<'_>) -> Option<AckFigures> {
    let (rtt_us, rtt_var_us, room_packets) = (r.u32().ok()?, r.u32().ok()?, r.u32().ok()?);
    let mut or_zero = || r.u32().unwrap_or(0);
    Some(AckFigures {
        rtt_us,
        rtt_var_us,
        room_packets,
        rate_packets: or_zero(),
        bandwidth_packets: or_zero(),
        rate_bytes: or_zero(),
    })
}

fn words<const N: usize, const BYTES: usize>(words: [u32; N]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    for (chunk, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *chunk = word.to_be_bytes();
    }
    out
}

/// Writes control packets to one peer with one timestamp.
#[derive(Debug, Clone, Copy)]
pub struct ControlWriter {
    /// Timestamp: microseconds since the start.
    pub timestamp: u32,
    /// Socket id of the receiver.
    pub to: SocketId,
}

impl ControlWriter {
    /// Appends a control packet.
    pub fn write(&self, control: &Control<'_>, out: &mut Vec<u8>) {
        match control {
            Control::Handshake(body) => self.parts(kind::HANDSHAKE, 0, 0, body, out),
            // Like libsrt, this writer sends a zero word in packets that have no body.
            Control::KeepAlive => self.parts(kind::KEEP_ALIVE, 0, 0, &[0; 4], out),
            Control::Ack(number, ack) => self.ack(*number, ack, out),
            Control::Nak(losses) => self.parts(kind::NAK, 0, 0, losses.0, out),
            Control::CongestionWarning => self.parts(kind::CONGESTION_WARNING, 0, 0, &[0; 4], out),
            Control::Shutdown => self.parts(kind::SHUTDOWN, 0, 0, &[0; 4], out),
            Control::AckAck(number) => self.parts(kind::ACK_ACK, 0, *number, &[0; 4], out),
            Control::DropRequest(message, first, last) => {
                let body: [u8; 8] = words([first.value(), last.value()]);
                self.parts(kind::DROP_REQUEST, 0, *message, &body, out);
            }
            Control::PeerError(code) => self.parts(kind::PEER_ERROR, 0, *code, &[0; 4], out),
            Control::User(subtype, body) => self.parts(kind::USER, *subtype, 0, body, out),
            Control::Unknown(kind) => self.parts(*kind, 0, 0, &[], out),
        }
    }

    fn ack(&self, number: u32, ack: &Ack, out: &mut Vec<u8>) {
        let next = ack.next.value();
        let Some(f) = &ack.figures else {
            return self.parts(kind::ACK, 0, number, &next.to_be_bytes(), out);
        };
        let body: [u8; 28] = words([
            next,
            f.rtt_us,
            f.rtt_var_us,
            f.room_packets,
            f.rate_packets,
            f.bandwidth_packets,
            f.rate_bytes,
        ]);
        self.parts(kind::ACK, 0, number, &body, out);
    }

    fn parts(&self, kind: u16, subtype: u16, info: u32, body: &[u8], out: &mut Vec<u8>) {
        let first = CONTROL_BIT | u32::from(kind) << 16 | u32::from(subtype);
        let head: [u8; HEAD_BYTES] = words([first, info, self.timestamp, self.to.0]);
        out.extend_from_slice(&head);
        out.extend_from_slice(body);
    }
}

/// Appends a range to the body of a loss report.
pub(crate) fn write_loss(first: Seq, last: Seq, body: &mut Vec<u8>) {
    if first == last {
        body.extend_from_slice(&first.value().to_be_bytes());
    } else {
        body.extend_from_slice(&(first.value() | CONTROL_BIT).to_be_bytes());
        body.extend_from_slice(&last.value().to_be_bytes());
    }
}

/// Reads the ranges of a body written by [`write_loss`].
pub(crate) const fn losses(body: &[u8]) -> Losses<'_> {
    Losses(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fields_are_where_the_draft_says() {
        let head = DataHead {
            seq: Seq::new(0x0102_0304),
            position: POSITION_SOLO,
            in_order: true,
            key: KeyFlag::Odd,
            retransmitted: true,
            message: 5,
            timestamp: 0x0a0b_0c0d,
            to: SocketId(7),
        };
        let mut bytes = head.write().to_vec();
        assert_eq!(bytes, [1, 2, 3, 4, 0xf4, 0, 0, 5, 10, 11, 12, 13, 0, 0, 0, 7]);
        bytes.extend_from_slice(b"payload");
        assert_eq!(Packet::read(&bytes), Ok(Packet::Data(head, b"payload")));
    }

    #[test]
    fn loss_reports_hold_single_packets_and_ranges() {
        let mut body = Vec::new();
        write_loss(Seq::new(3), Seq::new(3), &mut body);
        write_loss(Seq::new(0x7fff_fffe), Seq::new(2), &mut body);
        assert_eq!(body, [0, 0, 0, 3, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 2]);
        let ranges: Vec<_> = losses(&body).collect();
        assert_eq!(ranges, [(Seq::new(3), Seq::new(3)), (Seq::new(0x7fff_fffe), Seq::new(2))]);
        // The word with the end of the range is missing, so only the single packet is read.
        assert_eq!(losses(&body[..8]).count(), 1);
    }

    /// S-01 for the reader: it does not panic at any length field or any truncation.
    #[test]
    fn s_01_no_length_harms_the_reader() {
        for first in [0u32, 0x8000_0000, 0x8002_0000, 0x8003_0000, 0x8007_0000, 0xffff_0003, 0x9234_0000] {
            let mut bytes = first.to_be_bytes().to_vec();
            bytes.resize(1500, 0xa5);
            for length in 0..bytes.len() {
                if let Ok(Packet::Control { control: Control::Nak(losses), .. }) =
                    Packet::read(&bytes[..length])
                {
                    assert!(losses.count() <= length / 4);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(kind in 0u32..11, number: u32, words: [u32; 7], body: Vec<u8>, timestamp: u32, to: u32) {
            let seq = |n: usize| Seq::new(words[n]);
            let figures = AckFigures {
                rtt_us: words[1], rtt_var_us: words[2], room_packets: words[3],
                rate_packets: words[4], bandwidth_packets: words[5], rate_bytes: words[6],
            };
            let control = match kind {
                0 => Control::Handshake(&body),
                1 => Control::KeepAlive,
                2 => Control::Ack(number, Ack { next: seq(0), figures: Some(figures) }),
                3 => Control::Nak(Losses(&body)),
                4 => Control::CongestionWarning,
                5 => Control::Shutdown,
                6 => Control::AckAck(number),
                7 => Control::DropRequest(number, seq(0), seq(1)),
                8 => Control::PeerError(number),
                9 => Control::User(3, &body),
                _ => Control::Ack(0, Ack { next: seq(0), figures: None }),
            };
            let mut out = Vec::new();
            ControlWriter { timestamp, to: SocketId(to) }.write(&control, &mut out);
            prop_assert_eq!(Packet::read(&out), Ok(Packet::Control { timestamp, to: SocketId(to), control }));
        }

        #[test]
        fn any_data_head_is_read_back(words: [u32; 4]) {
            let bytes: [u8; 16] = super::words([words[0] & 0x7fff_ffff, words[1], words[2], words[3]]);
            let Ok(Packet::Data(head, [])) = Packet::read(&bytes) else { panic!("no data") };
            prop_assert_eq!(head.write(), bytes);
        }
    }
}
