//! TLS of the listeners and of outgoing connections: rustls runs in the loops, certificates are handled outside of
//! them.
//!
//! [`Transport`] is a socket with or without TLS, for the shell. [`certificates`](self) loads, makes and watches
//! the server's certificate in a thread of its own, and hands complete [`Configs`] to the shells. Open connections
//! keep their configuration; new ones get the new configuration.

mod certificates;
mod configs;
mod expiry;
mod load;
mod nodes;
mod transport;

pub use certificates::{CertificateError, CertificateFiles};
pub(super) use certificates::{Reload, start_watch};
pub(super) use configs::{Configs, provider};
pub(super) use expiry::Expiry;
pub(super) use load::load_client;
pub(super) use nodes::NodeConfigs;
pub(super) use transport::{Received, Transport};
