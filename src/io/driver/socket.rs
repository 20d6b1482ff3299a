//! A connection of bytes, as the driver sees it.

use std::io;

use super::TlsClient;
use crate::io::budget::Permit;
use crate::io::tls::Transport;
use crate::types::ConnId;

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) generation: u32,
    pub(super) transport: Transport,
    /// The kernel may have bytes for us.
    pub(super) readable: bool,
    /// On the ready list.
    pub(super) ready: bool,
    pub(super) connecting: bool,
    /// For the TLS handshake of an outgoing connection, until its end.
    pub(super) tls: Option<Box<TlsClient>>,
    /// The kernel reported the peer's end of stream: only a read of zero bytes is the end then.
    pub(super) ending: bool,
    /// The peer's end of stream was read.
    pub(super) ended: bool,
    /// TLS has ended with an alert that the peer is to hear.
    pub(super) alerted: bool,
    /// The permit of a connection that was accepted.
    pub(super) permit: Option<Permit>,
}

impl Socket {
    pub(super) const fn new(id: ConnId, transport: Transport) -> Self {
        Self {
            generation: id.generation,
            transport,
            readable: false,
            ready: false,
            connecting: false,
            tls: None,
            ending: false,
            ended: false,
            alerted: false,
            permit: None,
        }
    }

    /// How a connect went, and the beginning of what follows; `None`: it still goes on.
    pub(super) fn end_connect(&mut self, ending: bool) -> Option<io::Result<()>> {
        let stream = self.transport.stream();
        let result = match stream.take_error() {
            Ok(Some(error)) | Err(error) => Err(error),
            Ok(None) => match stream.peer_addr() {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return None,
                Err(error) => Err(error),
            },
        };
        self.connecting = false;
        self.readable = true;
        self.ending = ending;
        Some(result.and_then(|()| self.begin_tls()))
    }

    /// Begins the handshake, where there is to be one.
    fn begin_tls(&mut self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            self.transport.begin_client(&tls.config, &tls.name)?;
            self.transport.flush()?;
        }
        Ok(())
    }
}
