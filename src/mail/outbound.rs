//! The targets of pushes and pulls, as their protocol has parsed them from a URL.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The transport of an outgoing connection, or of what stands for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// TLS over TCP, to a server that proves to have the name of the target's host.
    Tls,
    /// TLS over TCP, to a node of the same cluster: both sides prove that they know its secret.
    NodeTls,
    /// A UDP socket of its own that sends to the address.
    Udp,
    /// A UDP socket of its own, bound to the address, where the peer is waited for.
    UdpListener,
    /// None: it is a file of this server's own.
    File,
}

/// The identity that the server of a TLS connection must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The server has this name, by a certificate that is trusted.
    Name(Box<str>),
    /// The server is a node of the same cluster.
    Node,
}

/// The target of a push or the server of a pull. What is asked for there is known to its protocol alone
/// ([`crate::protocol::outbound`]).
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
    /// A target of this scheme; `request` is its protocol's own.
    #[must_use]
    pub fn new(
        scheme: &'static str,
        (host, port): (String, u16),
        transport: Transport,
        request: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { host, port, transport, scheme, request }
    }

    /// The protocol's own part of the request.
    #[must_use]
    pub fn request<T: 'static>(&self) -> Option<&T> {
        self.request.downcast_ref()
    }

    /// The identity that the server must prove; `None`: none is asked for.
    #[must_use]
    pub fn proof(&self) -> Option<Proof> {
        match self.transport {
            Transport::Tls => Some(Proof::Name(self.host.as_str().into())),
            Transport::NodeTls => Some(Proof::Node),
            Transport::Tcp | Transport::Udp | Transport::UdpListener | Transport::File => None,
        }
    }

    /// Whether it is a file of this server's own.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.transport, Transport::File)
    }

    /// Whether the peer connects to us, at an address of ours.
    #[must_use]
    pub const fn listens(&self) -> bool {
        matches!(self.transport, Transport::UdpListener)
    }
}

/// Neither path nor query: they carry keys.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}/***", self.scheme, self.host, self.port)
    }
}
