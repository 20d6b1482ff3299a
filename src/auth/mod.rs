//! Who may do what: address rules and the policy for outbound connections. Names no socket and runs no protocol
//! machine; the answers are values.

pub mod access;
pub mod cidr;
pub mod jwt;
pub mod outbound;
pub mod proxy;
pub mod srt;
pub mod time_code;

pub use cidr::CidrList;
pub(crate) use outbound::split_authority;
pub use outbound::{Denied, Endpoint, HookUrl, OutboundPolicy, UrlError, redact};
