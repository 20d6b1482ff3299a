//! Name resolution by the system's resolver.

use std::net::{SocketAddr, ToSocketAddrs};

/// Maximum number of addresses of a name that are used.
const ADDRESSES_MAX: usize = 8;

pub(super) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match (host, port).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.take(ADDRESSES_MAX).collect()),
        Err(error) => Err(error.to_string()),
    }
}
