//! The configuration of a connection.

use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

pub use crypto::AesKeyLength as KeyLength;

use crate::filter::PacketFilter;
use crate::km::wipes;

/// Shortest passphrase, in bytes (SRTO_PASSPHRASE).
pub const PASSPHRASE_BYTES_MIN: usize = 10;
/// Longest passphrase, in bytes.
pub const PASSPHRASE_BYTES_MAX: usize = 80;
/// Longest stream id, in bytes (SRTO_STREAMID).
pub const STREAM_ID_BYTES_MAX: usize = 512;
/// Default payload of a message: seven MPEG-TS packets.
pub const PAYLOAD_BYTES: usize = 1316;
/// Length of the IPv4 and UDP headers, which the MSS of SRT includes. libsrt uses this number for IPv6, too.
pub(crate) const UDP_HEAD_BYTES: u32 = 28;
/// Header of every SRT packet.
pub(crate) const HEAD_BYTES: usize = 16;
/// Largest MSS accepted, and the MSS that libsrt offers.
pub(crate) const MSS_MAX: u32 = 1500;
/// Payload of the largest possible packet.
pub(crate) const PAYLOAD_MAX: usize = 1500 - 28 - HEAD_BYTES;
/// Smallest MSS accepted: headers and one word (libsrt issue 3359).
pub(crate) const MSS_MIN: u32 = 76;
/// Smallest flow window accepted, in packets (SRTO_FC).
pub(crate) const FLOW_WINDOW_MIN: u32 = 32;

/// The secret shared by both sides. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(Arc<Zeroizing<String>>);

const _: fn(&Passphrase) = |passphrase| wipes(&*passphrase.0);

/// Error: a passphrase must have 10 to 80 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a passphrase must have 10 to 80 bytes")]
pub struct PassphraseLength;

impl Passphrase {
    /// Creates a passphrase of 10 to 80 bytes.
    pub fn new(text: &str) -> Result<Self, PassphraseLength> {
        if (PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX).contains(&text.len()) {
            Ok(Self(Arc::new(Zeroizing::new(text.to_owned()))))
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
    /// Time for which received packets are held so that lost packets can be retransmitted (SRTO_RCVLATENCY). It counts
    /// from the time at which a packet would arrive over an undisturbed path. The peer may request a longer time.
    pub latency: Duration,
    /// Minimum latency that the peer is asked to apply to the packets it receives from this side (SRTO_PEERLATENCY).
    pub peer_latency: Duration,
    /// Upper limit of the latency in either direction, whatever the peer requests.
    pub latency_max: Duration,
    /// Passphrase of the connection. Both sides must have the same one, or neither may have one (SRTO_PASSPHRASE with
    /// SRTO_ENFORCEDENCRYPTION).
    pub passphrase: Option<Passphrase>,
    /// Length of the keys that a caller creates (SRTO_PBKEYLEN). A listener uses the length that the caller has chosen.
    pub key_length: KeyLength,
    /// Number of packets encrypted with one key (SRTO_KMREFRESHRATE).
    pub key_refresh_packets: u64,
    /// Number of packets before the end of a key at which the next key is announced (SRTO_KMPREANNOUNCE).
    pub key_announce_packets: u64,
    /// Largest message, in bytes (SRTO_PAYLOADSIZE). A peer with a smaller MSS lowers the limit.
    pub payload_size: usize,
    /// Maximum number of packets in flight in either direction (SRTO_FC).
    pub flow_window: u32,
    /// Maximum number of bytes buffered in either direction (SRTO_SNDBUF, SRTO_RCVBUF).
    pub buffer_bytes: usize,
    /// True if the peer's payload is accepted. If false, received payload is counted and discarded, so that a peer
    /// cannot fill the buffers of an application that only sends.
    pub receives: bool,
    /// Bandwidth that retransmissions may add, in percent of the sending rate (SRTO_OHEADBW).
    pub overhead_percent: u32,
    /// Forward error correction (SRTO_PACKETFILTER).
    pub packet_filter: PacketFilter,
    /// Maximum number of bytes per second, for packets of all kinds (SRTO_MAXBW). `None`: packets are not delayed.
    pub max_bandwidth: Option<u64>,
    /// If true, the sending rate is limited to the rate of the path once the path is found to carry less than is sent:
    /// packets then wait in the send buffer instead of in the queues of the path. If false, packets leave at once, as
    /// with libsrt.
    pub adapts: bool,
    /// Time after which a caller gives up (SRTO_CONNTIMEO).
    pub connect_timeout: Duration,
    /// Silence of the peer after which the connection ends (SRTO_PEERIDLETIMEO).
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
