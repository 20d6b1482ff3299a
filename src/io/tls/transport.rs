//! A socket, with TLS or without: plain bytes above it, the wire's below.
//!
//! With TLS, bytes that were taken but not yet accepted by the kernel wait inside; [`Transport::flush`] moves them.
//! They are bounded by [`PENDING_BYTES_MAX`] and what one record adds.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::server::{Accepted, AcceptedAlert, Acceptor};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig};

use crate::io::blob_files::BlobFiles;

/// Plain bytes that TLS takes before the kernel has taken their records.
const PENDING_BYTES_MAX: usize = 64 * 1024;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::io) struct Received {
    /// Bytes at the start of the buffer; 0: the peer ended its side.
    pub(in crate::io) bytes: usize,
    /// The socket has no more for now.
    pub(in crate::io) dry: bool,
}

#[derive(Debug)]
struct Tls {
    connection: Connection,
    /// The end of the handshake was not reported yet.
    untold: bool,
    /// Bytes of the wire that the kernel has taken.
    flushed: u64,
}

/// The ClientHello of a peer, until TLS begins with it.
struct Hello {
    acceptor: Acceptor,
    /// The accepted hello, once it is whole.
    accepted: Option<Accepted>,
    /// Bytes of it were read.
    begun: bool,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello").field("whole", &self.accepted.is_some()).finish()
    }
}

/// A connected (or connecting) socket.
#[derive(Debug)]
pub(in crate::io) struct Transport {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
    /// Accepted by a listener with TLS, and the peer's first message is awaited. Reading it costs no arithmetic.
    hello: Option<Box<Hello>>,
}

impl Transport {
    pub(in crate::io) const fn plain(stream: TcpStream) -> Self {
        Self { stream, tls: None, hello: None }
    }

    /// Accepted by a listener with TLS.
    pub(in crate::io) fn server(stream: TcpStream, config: &Arc<ServerConfig>) -> Self {
        let config = Arc::clone(config);
        let hello = Hello { acceptor: Acceptor::default(), accepted: None, begun: false, config };
        Self { stream, tls: None, hello: Some(Box::new(hello)) }
    }

    /// Begins TLS on a socket that has just been connected to a server of this name (or address).
    pub(in crate::io) fn begin_client(&mut self, config: &Arc<ClientConfig>, name: &str) -> io::Result<()> {
        let invalid = |_| io::Error::other("the host is not a name that a certificate can have");
        let name = ServerName::try_from(name.to_owned()).map_err(invalid)?;
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        self.tls = Some(Tls::new(connection.into()));
        Ok(())
    }

    /// Whether the peers do not know each other yet: nothing is read or written above TLS.
    pub(in crate::io) fn is_handshaking(&self) -> bool {
        self.hello.is_some() || self.tls.as_ref().is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// Whether the peer's ClientHello is not whole: see [`Transport::read_hello`].
    pub(in crate::io) fn awaits_hello(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.accepted.is_none())
    }

    /// Whether there is a part of a ClientHello.
    pub(in crate::io) fn holds_hello(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.begun)
    }

    /// Reads a ClientHello until it is whole. What follows from it is computed by the next [`Transport::read`].
    ///
    /// # Errors
    /// `WouldBlock`: it is not whole. `InvalidData`: the peer broke TLS; its alert is sent.
    pub(in crate::io) fn read_hello(&mut self) -> io::Result<()> {
        let Some(hello) = &mut self.hello else { return Ok(()) };
        while hello.accepted.is_none() {
            match hello.acceptor.accept() {
                Ok(Some(accepted)) => hello.accepted = Some(accepted),
                Ok(None) => {
                    if hello.acceptor.read_tls(&mut self.stream)? == 0 {
                        return Err(io::Error::other("the peer left the TLS handshake"));
                    }
                    hello.begun = true;
                }
                Err(refused) => return Err(alert(&mut self.stream, refused)),
            }
        }
        Ok(())
    }

    /// Begins TLS with a ClientHello that is whole.
    fn begin_server(&mut self) -> io::Result<()> {
        self.read_hello()?;
        let Some(Hello { accepted: Some(accepted), config, .. }) = self.hello.take().map(|hello| *hello)
        else {
            return Ok(());
        };
        match accepted.into_connection(config) {
            Ok(connection) => {
                self.tls = Some(Tls::new(connection.into()));
                self.flush().map(drop)
            }
            Err(refused) => Err(alert(&mut self.stream, refused)),
        }
    }

    /// True once, when the handshake is over.
    pub(in crate::io) fn take_handshake_end(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        !tls.connection.is_handshaking() && std::mem::replace(&mut tls.untold, false)
    }

    /// The protocol that the peer chose by ALPN (RFC 7301).
    pub(in crate::io) fn negotiated(&self) -> Option<String> {
        let name = self.tls.as_ref()?.connection.alpn_protocol()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Reads plain bytes. What TLS itself has to say to the peer is sent on the way.
    ///
    /// # Errors
    /// `WouldBlock`: nothing for now. `InvalidData`: the peer broke TLS; its alert is sent.
    pub(in crate::io) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        self.begin_server()?;
        let Some(tls) = &mut self.tls else {
            let bytes = self.stream.read(buffer)?;
            return Ok(Received { bytes, dry: bytes < buffer.len() });
        };
        loop {
            match tls.connection.reader().read(buffer) {
                Ok(bytes) => return Ok(Received { bytes, dry: false }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The connection ended without a word: for the session an end like any other.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Received { bytes: 0, dry: true });
                }
                Err(error) => return Err(error),
            }
            tls.connection.read_tls(&mut self.stream)?;
            let processed = tls.connection.process_new_packets();
            // An alert, a flight of the handshake, a ticket.
            let _ = tls.flush(&mut self.stream);
            if let Err(error) = processed {
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Writes plain bytes, those of `files` from there; how many were taken. Fewer than offered: the socket is full, and tells when it is not.
    ///
    /// # Errors
    /// `WouldBlock`: nothing was taken.
    pub(in crate::io) fn write(
        &mut self,
        slices: &[IoSlice<'_>],
        offered: usize,
        files: &BlobFiles,
    ) -> io::Result<usize> {
        if self.hello.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(tls) = &mut self.tls else {
            return files.write(&mut self.stream, slices);
        };
        // During the handshake there is nothing to write with; its end is told.
        if tls.connection.is_handshaking() || !tls.flush(&mut self.stream)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = tls.connection.writer().write_vectored(slices)?;
        while tls.flush(&mut self.stream)? && taken < offered {
            let rest = behind(slices, taken);
            match tls.connection.writer().write_vectored(&rest)? {
                0 => break,
                more => taken = taken.saturating_add(more),
            }
        }
        Ok(taken)
    }

    /// Sends what waits inside. True when nothing is left.
    pub(in crate::io) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            Some(tls) => tls.flush(&mut self.stream),
            None => Ok(true),
        }
    }

    /// Bytes of the wire that [`Transport::flush`] and the others have moved out of TLS so far.
    pub(in crate::io) fn flushed(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.flushed)
    }

    /// Queues `close_notify` (RFC 8446 §6.1); [`Transport::flush`] sends it.
    pub(in crate::io) fn begin_close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
        }
    }

    pub(in crate::io) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(in crate::io) const fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl Tls {
    fn new(mut connection: Connection) -> Box<Self> {
        connection.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Box::new(Self { connection, untold: true, flushed: 0 })
    }

    /// True when nothing is left; false when the socket is full.
    fn flush(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(stream) {
                Ok(count) => {
                    self.flushed = self.flushed.saturating_add(u64::try_from(count).unwrap_or(0));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Sends the alert of a refused ClientHello: it is the first that the socket takes, and fits. Returns the error of it.
fn alert(stream: &mut TcpStream, (error, mut alert): (rustls::Error, AcceptedAlert)) -> io::Error {
    let _ = alert.write_all(stream);
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The slices behind the first `taken` bytes.
fn behind<'a>(slices: &'a [IoSlice<'_>], taken: usize) -> Vec<IoSlice<'a>> {
    let mut skip = taken;
    let cut = |slice: &'a IoSlice<'_>| {
        let from = skip.min(slice.len());
        skip -= from;
        slice.get(from..).filter(|rest| !rest.is_empty()).map(IoSlice::new)
    };
    slices.iter().filter_map(cut).collect()
}
