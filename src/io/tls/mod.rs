//! TLS of the listeners and of outgoing connections. rustls runs in the loops of the workers. Certificates are
//! handled outside of these loops.
//!
//! [`Transport`] is a socket with or without TLS, for the shell. [`certificates`](self) loads, makes and watches
//! the server's certificate in a separate thread, and passes complete [`Configs`] to the shells. Open connections
//! keep their configuration; new connections get the new one.

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
