//! Limits on the memory, answers and work that a client can cause.

use std::time::Duration;

/// Largest message or ChannelData over a byte stream, in bytes; the same as for STUN messages.
pub const MESSAGE_BYTES_MAX: usize = ice::limits::STUN_BYTES_MAX;
/// Longest user name, in bytes.
pub const USERNAME_BYTES_MAX: usize = 256;
/// Maximum number of permissions of an allocation.
pub const PERMISSIONS_MAX: usize = 32;
/// Maximum number of channels of an allocation.
pub const CHANNELS_MAX: usize = 32;
/// Maximum number of peer addresses in one CreatePermission.
pub const PEERS_OF_REQUEST_MAX: usize = 16;
/// Maximum number of addresses that clients may reach.
pub const PEERS_MAX: usize = 2048;
/// Shortest lifetime of an allocation, and the default (RFC 8656 §7.2).
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Longest lifetime of an allocation (RFC 8656 §7.2).
pub const LIFETIME_MAX: Duration = Duration::from_secs(3600);
/// Lifetime of a permission (RFC 8656 §9).
pub const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);
/// Lifetime of a channel (RFC 8656 §12).
pub const CHANNEL_LIFETIME: Duration = Duration::from_secs(600);
/// Lifetime of a nonce, the longest that RFC 8489 §9.2 permits.
pub const NONCE_LIFETIME: Duration = Duration::from_secs(3600);
/// Time within which the owner must provide a relayed address, or the request fails.
pub const BIND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of datagrams of an allocation that wait to be sent. Further ones are dropped and counted.
pub const QUEUE_DATAGRAMS_MAX: usize = 1024;
/// Maximum number of answers per second to one network of clients with unverified addresses. An answer is longer than
/// its request, by 120 bytes with a realm of 32 characters, so this limits how much a forger can send to a victim.
pub const UNPROVED_ANSWERS: u32 = 20;
/// Maximum number of such answers in a burst: a page may configure several servers, and a browser queries each from
/// all of its interfaces.
pub const UNPROVED_BURST: u32 = 100;
/// Maximum number of answers per second to all clients with unverified addresses.
pub const UNPROVED_ANSWERS_TOTAL: u32 = 2000;
/// Number of networks whose answers are counted separately; further ones share counters.
pub const UNPROVED_NETWORKS: usize = 4096;
/// Maximum number of answers per second of an allocation to requests that are refused or may be forged, so that a
/// forger of its client's address can cause no more.
pub const UNPROVED_ANSWERS_OF_CLIENT: u32 = 10;
