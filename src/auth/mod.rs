//! Who may do what: address rules and the policy for outbound connections. Names no socket and no protocol
//! machine; the answers are values.

pub mod cidr;
pub mod jwt;
pub mod outbound;
pub mod proxy;

pub use cidr::CidrList;
pub(crate) use outbound::split_authority;
pub use outbound::{Denied, Endpoint, OutboundPolicy, UrlError, redact};
