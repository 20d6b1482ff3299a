//! Targets of pushes and pulls, parsed from a URL by their protocol.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The transport of an outgoing connection, or a local file that is used instead of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// TLS over TCP, to a server that must prove the target's host name.
    Tls,
    /// TLS over TCP, to a node of the same cluster: both sides prove that they know the cluster's secret.
    NodeTls,
    /// A UDP socket for this target only, which sends to the target's address.
    Udp,
    /// A UDP socket for this target only, bound to the target's address. The peer connects to it.
    UdpListener,
    /// No transport: the target is a file of this server.
    File,
}

/// The identity that the server of a TLS connection must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The server has this name, proven by a trusted certificate.
    Name(Box<str>),
    /// The server is a node of the same cluster.
    Node,
}

/// The target of a push, or the server of a pull. Only the target's protocol understands the request to make
/// to it ([`crate::protocol::outbound`]).
#[derive(Clone)]
pub struct Target {
    /// Host name or address, without brackets.
    pub host: String,
    /// Explicit port, or the scheme's default.
    pub port: u16,
    /// The transport.
    pub transport: Transport,
    scheme: &'static str,
    request: Arc<dyn Any + Send + Sync>,
}

impl Target {
    /// Makes a target of this scheme; only the scheme's protocol understands `request`.
    #[must_use]
    pub fn new(
        scheme: &'static str,
        (host, port): (String, u16),
        transport: Transport,
        request: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { host, port, transport, scheme, request }
    }

    /// Returns the protocol's own part of the target, if it is of type `T`.
    #[must_use]
    pub fn request<T: 'static>(&self) -> Option<&T> {
        self.request.downcast_ref()
    }

    /// Returns the identity that the server must prove, or `None` if it need not prove any.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        match self.transport {
            Transport::Tls => Some(Proof::Name(self.host.as_str().into())),
            Transport::NodeTls => Some(Proof::Node),
            Transport::Tcp | Transport::Udp | Transport::UdpListener | Transport::File => None,
        }
    }

    /// True if the target is a file of this server.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.transport, Transport::File)
    }

    /// True if the peer connects to an address of this server.
    #[must_use]
    pub const fn listens(&self) -> bool {
        matches!(self.transport, Transport::UdpListener)
    }
}

/// Prints neither path nor query, because they may contain keys.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}/***", self.scheme, self.host, self.port)
    }
}
