//! TLS of the listeners and of outgoing connections: rustls over the loop's sockets, certificates off the loop.
//!
//! [`Transport`] is a socket with or without TLS, for the shell. [`certificates`](self) loads, makes and watches the
//! server's certificate on a thread of its own and hands finished [`Configs`] to the shells: connections that are
//! open keep theirs, new ones get the new.

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
