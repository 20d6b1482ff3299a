//! Limits on what a peer can make this crate hold or iterate over.

/// Bytes of a STUN message. The longest real ones are below 300 bytes; a datagram that is longer than this is no check.
pub const STUN_BYTES_MAX: usize = 2048;
/// Attributes of a STUN message. Browsers send about ten.
pub const ATTRIBUTES_MAX: usize = 32;
/// Unknown attributes that an answer names (RFC 8489 §14.13); more are counted and not named.
pub const UNKNOWN_MAX: usize = 8;
/// Characters of a user name fragment (RFC 8839 §5.4).
pub const UFRAG_CHARS: std::ops::RangeInclusive<usize> = 4..=256;
/// Characters of a password (RFC 8839 §5.4).
pub const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 22..=256;
/// Pairs of a lite agent.
pub const PAIRS_MAX: usize = 8;
/// The selected path of a lite agent gives way to another one that is checked once it was silent for this long. Chromium
/// checks its path every 2.5 s, others every 5 s, give or take a fifth (RFC 7675 §5.1).
pub const PATH_SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// Requests that a lite agent remembers. Browsers check a path each 2.5 s: twenty minutes of them, in 2 KiB.
pub const REQUESTS_KEPT: usize = 512;
/// Requests of a lite agent's check of a path by which media came.
pub const PROBE_TRIES: u32 = 5;
/// Time from the first of these requests to the second; each further wait is twice as long. The check fails after 3.1 s in all.
pub const PROBE_RTO: std::time::Duration = std::time::Duration::from_millis(100);
/// Sessions of one address that [`crate::Demux::next_of_host`] considers.
pub const HOST_SESSIONS_MAX: usize = 16;
/// Remote candidates of a full agent, peer-reflexive ones too.
pub const CANDIDATES_MAX: usize = 32;
/// Local candidates of a full agent.
pub const LOCALS_MAX: usize = 16;
/// Pairs of a full agent (RFC 8445 §6.1.2.5).
pub const CHECK_LIST_MAX: usize = 100;
/// Transactions of a full agent that may still be answered.
pub const TRANSACTIONS_MAX: usize = 128;
/// Datagrams that wait to be sent. What is more is dropped and counted: the peer asks again.
pub const OUT_MAX: usize = 128;
/// Events that wait to be taken. Above it datagrams are dropped before they change anything.
pub const EVENTS_MAX: usize = 64;
/// Bytes of a frame over TCP, by default.
pub const FRAME_BYTES_MAX: usize = 2048;
