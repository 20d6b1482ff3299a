//! Access rules: addresses, tokens, and the policy for outbound connections. This module has no sockets and no protocol
//! machines, and returns plain values.

pub mod access;
pub mod cidr;
pub mod jwks;
pub mod jwt;
pub mod outbound;
pub mod proxy;
pub mod time_code;
pub mod url;

pub use cidr::{CidrList, network};
pub use outbound::{Denied, OutboundPolicy};
pub use url::{HookUrl, Url, UrlError, redact, redact_reason};
