//! Limits on what a client can make this crate hold, answer or iterate over.

use std::time::Duration;

/// Bytes of a message or a ChannelData over a byte stream: as of a STUN message.
pub const MESSAGE_BYTES_MAX: usize = ice::limits::STUN_BYTES_MAX;
/// Bytes of a user name.
pub const USERNAME_BYTES_MAX: usize = 256;
/// Permissions of an allocation.
pub const PERMISSIONS_MAX: usize = 32;
/// Channels of an allocation.
pub const CHANNELS_MAX: usize = 32;
/// Peer addresses of one CreatePermission.
pub const PEERS_OF_REQUEST_MAX: usize = 16;
/// Addresses that clients may reach.
pub const PEERS_MAX: usize = 2048;
/// Lifetime of an allocation that asks for none, and the shortest (RFC 8656 §7.2).
pub const LIFETIME: Duration = Duration::from_secs(600);
/// The longest lifetime of an allocation (RFC 8656 §7.2).
pub const LIFETIME_MAX: Duration = Duration::from_secs(3600);
/// Lifetime of a permission (RFC 8656 §9).
pub const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);
/// Lifetime of a channel (RFC 8656 §12).
pub const CHANNEL_LIFETIME: Duration = Duration::from_secs(600);
/// Lifetime of a nonce: as long as RFC 8489 §9.2 has a server use one at most.
pub const NONCE_LIFETIME: Duration = Duration::from_secs(3600);
/// The owner has opened a relayed address by then, or the request fails.
pub const BIND_TIMEOUT: Duration = Duration::from_secs(5);
/// Datagrams of an allocation that wait to be sent. More are dropped and counted.
pub const QUEUE_DATAGRAMS_MAX: usize = 1024;
/// Answers per second to one network whose clients have not shown their addresses. An answer is longer than its
/// request, with a realm of 32 characters 120 bytes, so a forger has this many of them sent to its victim and no more.
pub const UNPROVED_ANSWERS: u32 = 20;
/// The same in one burst: a page has several servers, and a browser asks each from all of its interfaces.
pub const UNPROVED_BURST: u32 = 100;
/// Answers per second to all clients that have not shown their addresses.
pub const UNPROVED_ANSWERS_TOTAL: u32 = 2000;
/// Networks whose answers are counted apart; more share their counts.
pub const UNPROVED_NETWORKS: usize = 4096;
/// Answers per second of an allocation to requests that are refused, or that anybody could have made: whoever forges its
/// client's address has no more sent to it.
pub const UNPROVED_ANSWERS_OF_CLIENT: u32 = 10;
