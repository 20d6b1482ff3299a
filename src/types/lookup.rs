//! Addresses of this machine that are not in its settings.

/// An address of this machine that must be looked up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookup {
    /// The addresses of a host name.
    Name(String),
    /// The address from which a STUN server sees this machine (RFC 8489).
    Seen {
        /// Host of the server.
        server: String,
        /// UDP port of the server.
        port: u16,
    },
}

impl std::fmt::Display for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Seen { server, port } => write!(f, "as seen by {server}:{port}"),
        }
    }
}
