//! The version 5 handshake: its structure and its extensions (draft-sharabayko-srt-01 §3.2.1, §4.3; libsrt
//! `docs/features/handshake.md`). [`crate::Connection`] and [`crate::Endpoint`] decide the order of messages.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |                            Version                            |
//! |        Encryption Field       |        Extension Field        |
//! |                 Initial Packet Sequence Number                |
//! |                 Maximum Transmission Unit Size                |
//! |                    Maximum Flow Window Size                   |
//! |                         Handshake Type                        |
//! |                         SRT Socket ID                         |
//! |                           SYN Cookie                          |
//! |                     Peer IP Address (128 bits)                |
//! |         Extension Type        |   Extension Length in words   |
//! |                       Extension Contents                      |
//! ```

use std::net::IpAddr;
use std::time::Duration;

use wire::{Reader, Truncated};

use crate::config::STREAM_ID_BYTES_MAX;
use crate::filter::{FILTER_TEXT_BYTES_MAX, FecSettings};
use crate::packet::SocketId;
use crate::reject::RejectReason;
use crate::seq::Seq;

/// Version of the handshake that carries extensions.
pub const VERSION_5: u32 = 5;
/// Version number in an induction, for compatibility with UDT.
pub(crate) const VERSION_4: u32 = 4;
/// Extension field of an induction request: the UDT socket type "datagram".
pub(crate) const INDUCTION_EXTENSION: u16 = 2;
/// Extension field of an induction response, which identifies SRT (§4.3.1.1).
pub const MAGIC: u16 = 0x4a17;
/// Length of a handshake without extensions, in bytes.
pub(crate) const HANDSHAKE_BYTES: usize = 48;
/// SRT version announced to peers: the libsrt version whose behaviour this crate follows.
pub(crate) const SRT_VERSION: u32 = 0x01_05_03;

/// Request types (§3.2.1.3).
pub mod request {
    /// The caller requests a cookie.
    pub const INDUCTION: u32 = 1;
    /// The caller returns the cookie and sends its extensions. The listener's answer has this type, too.
    pub const CONCLUSION: u32 = 0xffff_ffff;
}

/// Bits of the extension field of a conclusion.
pub(crate) mod extension_field {
    pub(crate) const HS: u16 = 1;
    pub(crate) const KM: u16 = 2;
    pub(crate) const CONFIG: u16 = 4;
}

/// Bits of the flags in the handshake extension (§3.2.1.1.1).
pub(crate) mod flag {
    pub(crate) const TSBPD_SEND: u32 = 0x01;
    pub(crate) const TSBPD_RECEIVE: u32 = 0x02;
    pub(crate) const CRYPT: u32 = 0x04;
    pub(crate) const TOO_LATE_DROP: u32 = 0x08;
    pub(crate) const PERIODIC_NAK: u32 = 0x10;
    pub(crate) const RETRANSMIT: u32 = 0x20;
    pub(crate) const STREAM: u32 = 0x40;
    /// Set if the sender of the handshake understands packet filters (libsrt `SRT_OPT_FILTERCAP`).
    pub(crate) const FILTER: u32 = 0x80;
    /// Flags sent by this crate: live mode only.
    pub(crate) const OURS: u32 =
        TSBPD_SEND | TSBPD_RECEIVE | CRYPT | TOO_LATE_DROP | PERIODIC_NAK | RETRANSMIT | FILTER;
}

/// Types of extensions (§3.2.1.1).
pub(crate) mod extension {
    pub(crate) const HS_REQUEST: u16 = 1;
    pub(crate) const HS_RESPONSE: u16 = 2;
    pub(crate) const KM_REQUEST: u16 = 3;
    pub(crate) const KM_RESPONSE: u16 = 4;
    pub(crate) const STREAM_ID: u16 = 5;
    pub(crate) const CONGESTION: u16 = 6;
    pub(crate) const FILTER: u16 = 7;
    pub(crate) const GROUP: u16 = 8;
}

/// The fixed part of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Handshake version: 4 in an induction, otherwise 5.
    pub version: u32,
    /// Advertised key length in units of eight bytes; 0 means not stated.
    pub encryption: u16,
    /// Flags of the extensions that follow, or a magic number.
    pub extension: u16,
    /// Sequence number of the first data packet.
    pub first_seq: Seq,
    /// Largest packet in bytes, with its IP and UDP headers.
    pub mss: u32,
    /// Maximum number of packets in flight.
    pub flow_window: u32,
    /// Request type, one of [`request`]. A value of 1000 or more is a refusal.
    pub request: u32,
    /// Socket id of the sender.
    pub socket: SocketId,
    /// Cookie with which the caller proves its address.
    pub cookie: u32,
    /// IP address of the receiver.
    pub peer_ip: [u8; 16],
}

impl Handshake {
    /// Reads the fixed part. The reader is then at the extensions.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            version: r.u32()?,
            encryption: r.u16()?,
            extension: r.u16()?,
            first_seq: Seq::new(r.u32()?),
            mss: r.u32()?,
            flow_window: r.u32()?,
            request: r.u32()?,
            socket: SocketId(r.u32()?),
            cookie: r.u32()?,
            peer_ip: r.array()?,
        })
    }

    /// Appends the fixed part.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.encryption.to_be_bytes());
        out.extend_from_slice(&self.extension.to_be_bytes());
        for word in
            [self.first_seq.value(), self.mss, self.flow_window, self.request, self.socket.0, self.cookie]
        {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.peer_ip);
    }
}

/// Encodes an IP address for the handshake. libsrt swaps the bytes of each word, and writes an IPv4 address
/// into the first word.
#[must_use]
pub fn address_field(address: IpAddr) -> [u8; 16] {
    let mut field = match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(v6) => v6.octets(),
    };
    swap_words(&mut field);
    field
}

/// Reverses the bytes of each four-byte word.
fn swap_words(bytes: &mut [u8]) {
    for word in bytes.as_chunks_mut::<4>().0 {
        word.reverse();
    }
}

/// The handshake extension (HSREQ or HSRSP), mandatory in live mode (§3.2.1.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HsExtension {
    /// SRT version of the sender: 0x010503 means 1.5.3.
    pub version: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Receive latency of the handshake's sender, in milliseconds.
    pub receive_latency_ms: u16,
    /// Send latency of the handshake's sender, in milliseconds.
    pub send_latency_ms: u16,
}

impl HsExtension {
    fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            version: r.u32()?,
            flags: r.u32()?,
            receive_latency_ms: r.u16()?,
            send_latency_ms: r.u16()?,
        })
    }

    /// Appends the extension block. `kind` is the type of a request or of a response.
    pub(crate) fn write(&self, kind: u16, out: &mut Vec<u8>) {
        let mut body = [0; 12];
        let latencies = u32::from(self.receive_latency_ms) << 16 | u32::from(self.send_latency_ms);
        for (chunk, word) in body.as_chunks_mut::<4>().0.iter_mut().zip([self.version, self.flags, latencies])
        {
            *chunk = word.to_be_bytes();
        }
        write_block(kind, &body, out);
    }
}

/// Converts a latency to the 16-bit milliseconds of the handshake. Longer latencies are capped.
pub(crate) fn wire_latency(latency: Duration) -> u16 {
    u16::try_from(latency.as_millis()).unwrap_or(u16::MAX)
}

/// Appends an extension block, padded to whole words.
pub(crate) fn write_block(kind: u16, body: &[u8], out: &mut Vec<u8>) {
    let words = body.len().div_ceil(4);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&u16::try_from(words).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(body);
    out.resize(out.len().saturating_add(words.saturating_mul(4).saturating_sub(body.len())), 0);
}

/// Appends a text extension such as a stream id: the bytes of each word are swapped (§3.2.1.3).
pub(crate) fn write_text(kind: u16, text: &str, out: &mut Vec<u8>) {
    let mut body = text.as_bytes().to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    swap_words(&mut body);
    write_block(kind, &body, out);
}

/// The extensions of a conclusion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    /// Handshake extension: the request or the response.
    pub hs: Option<HsExtension>,
    /// Key material, or a single word with a state.
    pub km: Option<&'a [u8]>,
    /// Stream id; `None` when absent or empty.
    pub stream_id: Option<String>,
    /// The configuration of the packet filter.
    pub filter: Option<FecSettings>,
}

impl<'a> Extensions<'a> {
    /// Reads the extension blocks after the fixed part. Refuses unsupported features: groups, unknown
    /// filters, and congestion controls other than live. Skips unknown blocks, as libsrt does. If a block
    /// occurs twice, the first one counts.
    pub fn read(mut r: Reader<'a>) -> Result<Self, RejectReason> {
        let mut out = Self::default();
        let rogue = |_: Truncated| RejectReason::ROGUE;
        while !r.is_empty() {
            let kind = r.u16().map_err(rogue)?;
            let body =
                r.u16().map_err(rogue).and_then(|words| r.take(usize::from(words) * 4).map_err(rogue))?;
            match kind {
                extension::HS_REQUEST | extension::HS_RESPONSE => {
                    let hs = HsExtension::read(&mut Reader::new(body)).map_err(rogue)?;
                    out.hs.get_or_insert(hs);
                }
                extension::KM_REQUEST | extension::KM_RESPONSE => {
                    out.km.get_or_insert(body);
                }
                extension::STREAM_ID if out.stream_id.is_none() => out.stream_id = read_stream_id(body)?,
                extension::CONGESTION if !is_live(body) => return Err(RejectReason::CONGESTION),
                extension::FILTER if out.filter.is_none() => out.filter = Some(read_filter(body)?),
                extension::FILTER => return Err(RejectReason::FILTER),
                extension::GROUP => return Err(RejectReason::GROUP),
                _ => {}
            }
        }
        Ok(out)
    }
}

/// Decodes text whose words have swapped bytes, and removes its zero padding.
fn unswapped(body: &[u8]) -> Vec<u8> {
    let mut bytes = body.to_vec();
    swap_words(&mut bytes);
    let length = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last.saturating_add(1));
    bytes.truncate(length);
    bytes
}

fn is_live(body: &[u8]) -> bool {
    // An empty name selects the default, which is live.
    body.len() <= 64 && matches!(unswapped(body).as_slice(), b"live" | b"")
}

/// Reads a packet filter configuration. A configuration that cannot be parsed is refused, as in libsrt.
fn read_filter(body: &[u8]) -> Result<FecSettings, RejectReason> {
    if body.len() > FILTER_TEXT_BYTES_MAX {
        return Err(RejectReason::FILTER);
    }
    let text = String::from_utf8(unswapped(body)).map_err(|_| RejectReason::FILTER)?;
    text.parse().map_err(|_| RejectReason::FILTER)
}

/// Reads a stream id: UTF-8 without control characters, at most 512 bytes.
fn read_stream_id(body: &[u8]) -> Result<Option<String>, RejectReason> {
    if body.len() > STREAM_ID_BYTES_MAX {
        return Err(RejectReason::BAD_REQUEST);
    }
    let text = String::from_utf8(unswapped(body)).map_err(|_| RejectReason::BAD_REQUEST)?;
    if text.chars().any(char::is_control) {
        return Err(RejectReason::BAD_REQUEST);
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(blocks: &[(u16, u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, words, body) in blocks {
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(&words.to_be_bytes());
            out.extend_from_slice(body);
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<Extensions<'_>, RejectReason> {
        Extensions::read(Reader::new(bytes))
    }

    #[test]
    fn s_04_extensions_stay_in_their_box() {
        for (bytes, wanted) in [
            (blocks(&[(1, 3, &[0; 8])]), RejectReason::ROGUE),
            (blocks(&[(5, 65_535, &[0; 1400])]), RejectReason::ROGUE),
            (blocks(&[(1, 0, &[])]), RejectReason::ROGUE),
            (vec![0, 1, 0], RejectReason::ROGUE),
            (blocks(&[(8, 2, &[0; 8])]), RejectReason::GROUP),
            (blocks(&[(7, 1, b",cef")]), RejectReason::FILTER),
            (blocks(&[(7, 0, b"")]), RejectReason::FILTER),
            (blocks(&[(7, 1, b"\0cef"), (7, 1, b"\0cef")]), RejectReason::FILTER),
            (blocks(&[(7, 17, &[b'f'; 68])]), RejectReason::FILTER),
            (blocks(&[(7, 1, &[0xff; 4])]), RejectReason::FILTER),
            (blocks(&[(6, 1, b"elif")]), RejectReason::CONGESTION),
        ] {
            assert_eq!(read(&bytes).unwrap_err(), wanted, "{bytes:?}");
        }
        assert_eq!(read(&blocks(&[(7, 1, b"\0cef")])).unwrap().filter, Some(FecSettings::default()));
        let tolerated = blocks(&[(6, 1, b"evil"), (99, 1, &[1; 4]), (6, 0, &[])]);
        assert_eq!(read(&tolerated), Ok(Extensions::default()));
    }

    #[test]
    fn s_05_stream_ids_are_text_of_at_most_512_bytes() {
        let written = |id: &str| {
            let mut out = Vec::new();
            write_text(extension::STREAM_ID, id, &mut out);
            out
        };
        for id in ["a", "live/stream", "#!::r=live/a,m=publish", "größe", &"x".repeat(512)] {
            assert_eq!(read(&written(id)).unwrap().stream_id.as_deref(), Some(id));
        }
        assert_eq!(written("abcde"), [0, 5, 0, 2, b'd', b'c', b'b', b'a', 0, 0, 0, b'e']);
        assert_eq!(read(&written("")).unwrap().stream_id, None);
        for id in ["a\0b", "a\nb", &"x".repeat(513)] {
            assert_eq!(read(&written(id)), Err(RejectReason::BAD_REQUEST), "{id:?}");
        }
        assert_eq!(read(&blocks(&[(5, 1, &[0xff, 0xfe, 0xff, 0xfe])])), Err(RejectReason::BAD_REQUEST));
    }

    #[test]
    fn addresses_have_their_words_swapped() {
        assert_eq!(address_field("127.0.0.1".parse().unwrap())[..5], [1, 0, 0, 127, 0]);
        assert_eq!(address_field("::1".parse().unwrap())[12..], [1, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(words: [u32; 7], fields: [u16; 4], peer_ip: [u8; 16]) {
            let handshake = Handshake {
                version: words[0], encryption: fields[0], extension: fields[1], first_seq: Seq::new(words[1]),
                mss: words[2], flow_window: words[3], request: words[4], socket: SocketId(words[5]),
                cookie: words[6], peer_ip,
            };
            let hs = HsExtension {
                version: words[0], flags: words[1], receive_latency_ms: fields[2], send_latency_ms: fields[3],
            };
            let mut out = Vec::new();
            handshake.write(&mut out);
            prop_assert_eq!(out.len(), HANDSHAKE_BYTES);
            hs.write(extension::HS_REQUEST, &mut out);
            let mut r = Reader::new(&out);
            prop_assert_eq!(Handshake::read(&mut r), Ok(handshake));
            prop_assert_eq!(Extensions::read(r).unwrap().hs, Some(hs));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
