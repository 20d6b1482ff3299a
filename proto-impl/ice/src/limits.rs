//! Limits on the memory and work that a peer can cause.

/// Maximum size of a STUN message, in bytes. Real ones are below 300; a longer datagram is not a check.
pub const STUN_BYTES_MAX: usize = 2048;
/// Maximum number of attributes of a STUN message. Browsers send about ten.
pub const ATTRIBUTES_MAX: usize = 32;
/// Maximum number of unknown attributes listed in an answer (RFC 8489 §14.13); further ones are only counted.
pub const UNKNOWN_MAX: usize = 8;
/// Allowed lengths of a user name fragment (RFC 8839 §5.4).
pub const UFRAG_CHARS: std::ops::RangeInclusive<usize> = 4..=256;
/// Allowed lengths of a password (RFC 8839 §5.4).
pub const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 22..=256;
/// Maximum number of pairs of a lite agent.
pub const PAIRS_MAX: usize = 8;
/// Silence after which a lite agent replaces the selected path by another one that is being checked. Chromium
/// checks its path every 2.5 s, other peers every 5 s, randomized by a fifth (RFC 7675 §5.1).
pub const PATH_SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// Number of requests that a lite agent remembers. Browsers check a path every 2.5 s, so this covers twenty
/// minutes, in 2 KiB.
pub const REQUESTS_KEPT: usize = 512;
/// Maximum number of requests with which a lite agent checks a path on which media arrived.
pub const PROBE_TRIES: u32 = 5;
/// Time between the first and the second request with which a lite agent checks a path on which media arrived; each
/// further interval is twice as long. The check fails 3.1 s after its start.
pub const PROBE_RTO: std::time::Duration = std::time::Duration::from_millis(100);
/// Minimum time between the starts of two checks of a lite agent, each of a path on which media
/// arrived.
pub const PROBE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(250);
/// Maximum number of sessions per address that [`crate::Demux::next_of_host`] considers.
pub const HOST_SESSIONS_MAX: usize = 16;
/// Number of transmissions after which a STUN server counts as silent (RFC 8489 §6.2.1).
pub const GATHER_TRIES: u32 = 7;
/// Maximum number of remote candidates of a full agent, including peer-reflexive ones.
pub const CANDIDATES_MAX: usize = 32;
/// Maximum number of local candidates of a full agent.
pub const LOCALS_MAX: usize = 16;
/// Maximum number of pairs of a full agent (RFC 8445 §6.1.2.5).
pub const CHECK_LIST_MAX: usize = 100;
/// Maximum number of pending transactions of a full agent.
pub const TRANSACTIONS_MAX: usize = 128;
/// Maximum number of datagrams waiting to be sent. Further datagrams are dropped and counted; the peer
/// repeats its request.
pub const OUT_MAX: usize = 128;
/// Maximum number of events waiting to be polled. While the queue is full, datagrams are dropped before they
/// have any effect.
pub const EVENTS_MAX: usize = 64;
/// Default maximum size of a frame over TCP, in bytes.
pub const FRAME_BYTES_MAX: usize = 2048;
