//! Limits on the memory, answers and work that a client can cause.

use std::time::Duration;

/// Maximum size of a message or ChannelData over a byte stream, in bytes; the same as for STUN messages.
pub const MESSAGE_BYTES_MAX: usize = ice::limits::STUN_BYTES_MAX;
/// Maximum size of a user name, in bytes.
pub const USERNAME_BYTES_MAX: usize = 256;
/// Maximum number of permissions of an allocation.
pub const PERMISSIONS_MAX: usize = 32;
/// Maximum number of channels of an allocation.
pub const CHANNELS_MAX: usize = 32;
/// Maximum number of peer addresses in one CreatePermission.
pub const PEERS_OF_REQUEST_MAX: usize = 16;
/// Maximum number of addresses that clients may reach.
pub const PEERS_MAX: usize = 2048;
/// Minimum and default lifetime of an allocation (RFC 8656 §7.2).
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Maximum lifetime of an allocation (RFC 8656 §7.2).
pub const LIFETIME_MAX: Duration = Duration::from_secs(3600);
/// Lifetime of a permission (RFC 8656 §9).
pub const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);
/// Lifetime of a channel (RFC 8656 §12).
pub const CHANNEL_LIFETIME: Duration = Duration::from_secs(600);
/// Lifetime of a nonce, the maximum that RFC 8489 §9.2 permits.
pub const NONCE_LIFETIME: Duration = Duration::from_secs(3600);
/// Time within which the owner must provide a relayed address; otherwise the request fails.
pub const BIND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of an allocation's datagrams waiting to be sent. Further ones are dropped and counted.
pub const QUEUE_DATAGRAMS_MAX: usize = 1024;
/// Maximum number of answers per second to clients with unverified addresses in one network. An answer is
/// longer than its request, by 120 bytes with a realm of 32 characters, so this limits how much traffic an
/// attacker can direct at a victim.
pub const UNPROVED_ANSWERS: u32 = 20;
/// Maximum burst of answers to one network of clients with unverified addresses: a page may configure several
/// servers, and a browser queries each from all of its interfaces.
pub const UNPROVED_BURST: u32 = 100;
/// Maximum number of answers per second to all clients with unverified addresses.
pub const UNPROVED_ANSWERS_TOTAL: u32 = 2000;
/// Number of networks whose answers are counted separately; if there are more, some networks share a counter.
pub const UNPROVED_NETWORKS: usize = 4096;
/// Maximum number of answers per second from an allocation to requests that are refused or may be forged.
/// Limits the traffic that an attacker can cause by forging the client's address.
pub const UNPROVED_ANSWERS_OF_CLIENT: u32 = 10;
