//! Access rules: addresses, tokens, and the policy for outbound connections. Names no socket and runs no protocol
//! machine; the answers are values.

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
pub use url::{HookUrl, Url, UrlError, redact};
