//! The configuration of a connection.

use std::sync::Arc;
use std::time::Duration;

pub use crypto::AesKeyLength as KeyLength;

use crate::filter::PacketFilter;

/// The shortest passphrase (SRTO_PASSPHRASE).
pub const PASSPHRASE_BYTES_MIN: usize = 10;
/// The longest.
pub const PASSPHRASE_BYTES_MAX: usize = 80;
/// The longest stream id (SRTO_STREAMID).
pub const STREAM_ID_BYTES_MAX: usize = 512;
/// Seven packets of MPEG-TS.
pub const PAYLOAD_BYTES: usize = 1316;
/// IPv4 and UDP heads, which the MSS of SRT counts (libsrt does for IPv6 too).
pub(crate) const UDP_HEAD_BYTES: u32 = 28;
/// The head of every SRT packet.
pub(crate) const HEAD_BYTES: usize = 16;
/// The MSS that libsrt offers, and the largest that is taken.
pub(crate) const MSS_MAX: u32 = 1500;
/// Payload of the largest packet there is.
pub(crate) const PAYLOAD_MAX: usize = 1500 - 28 - HEAD_BYTES;
/// The smallest MSS that is taken: heads and one word (libsrt issue 3359).
pub(crate) const MSS_MIN: u32 = 76;
/// The smallest flow window that is taken (SRTO_FC).
pub(crate) const FLOW_WINDOW_MIN: u32 = 32;

/// The secret that both sides know. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(Arc<str>);

/// A passphrase has 10 to 80 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a passphrase must have 10 to 80 bytes")]
pub struct PassphraseLength;

impl Passphrase {
    /// Creates a passphrase of 10 to 80 bytes.
    pub fn new(text: &str) -> Result<Self, PassphraseLength> {
        if (PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(PassphraseLength)
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// Settings of a connection; the names of libsrt's options are in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The time for which arriving packets are held, counted from when they would arrive without trouble, so that
    /// lost ones can be sent again (SRTO_RCVLATENCY). The peer may ask for more.
    pub latency: Duration,
    /// The minimum latency requested of the peer for what is sent to it (SRTO_PEERLATENCY).
    pub peer_latency: Duration,
    /// More latency than this is not granted, in either direction.
    pub latency_max: Duration,
    /// Either both sides have the same passphrase, or neither has one (SRTO_PASSPHRASE with
    /// SRTO_ENFORCEDENCRYPTION).
    pub passphrase: Option<Passphrase>,
    /// The length of the key that a caller creates (SRTO_PBKEYLEN); a listener uses the caller's.
    pub key_length: KeyLength,
    /// The number of packets that a key encrypts (SRTO_KMREFRESHRATE).
    pub key_refresh_packets: u64,
    /// The number of packets before its time at which the next key is announced (SRTO_KMPREANNOUNCE).
    pub key_announce_packets: u64,
    /// The largest message (SRTO_PAYLOADSIZE). A peer with a smaller MSS makes it smaller.
    pub payload_size: usize,
    /// Packets on the way in either direction (SRTO_FC).
    pub flow_window: u32,
    /// Bytes that wait in either direction (SRTO_SNDBUF, SRTO_RCVBUF).
    pub buffer_bytes: usize,
    /// Whether what the peer sends is taken. Where nobody has a use for it, it is counted and forgotten, so that such a
    /// peer cannot have it held.
    pub receives: bool,
    /// Retransmissions may take this share of what is sent, in percent (SRTO_OHEADBW).
    pub overhead_percent: u32,
    /// Forward error correction (SRTO_PACKETFILTER).
    pub packet_filter: PacketFilter,
    /// Bytes per second at most, all packets together (SRTO_MAXBW). `None` sends at once.
    pub max_bandwidth: Option<u64>,
    /// Sends no faster than the path delivers, once it is found to carry less than what is sent: packets then wait here
    /// instead of in the queues of the path. Without it they leave at once, as libsrt's do.
    pub adapts: bool,
    /// A caller gives up after this (SRTO_CONNTIMEO).
    pub connect_timeout: Duration,
    /// A peer that was silent for so long is gone (SRTO_PEERIDLETIMEO).
    pub peer_idle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(120),
            peer_latency: Duration::ZERO,
            latency_max: Duration::from_secs(8),
            passphrase: None,
            key_length: KeyLength::Bytes16,
            key_refresh_packets: 1 << 24,
            key_announce_packets: 1 << 12,
            payload_size: PAYLOAD_BYTES,
            flow_window: 25_600,
            buffer_bytes: 16 * 1024 * 1024,
            receives: true,
            overhead_percent: 25,
            packet_filter: PacketFilter::Any,
            max_bandwidth: None,
            adapts: false,
            connect_timeout: Duration::from_secs(3),
            peer_idle: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_22_passphrases_have_10_to_80_bytes_and_are_never_printed() {
        for (length, good) in [(0, false), (9, false), (10, true), (79, true), (80, true), (81, false)] {
            assert_eq!(Passphrase::new(&"x".repeat(length)).is_ok(), good, "{length}");
        }
        let config =
            Config { passphrase: Some(Passphrase::new("correct horse").unwrap()), ..Config::default() };
        assert!(!format!("{config:?}").contains("horse"));
    }
}
