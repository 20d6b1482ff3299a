//! A socket with or without TLS. Callers read and write plain bytes; the socket carries wire bytes.
//!
//! With TLS, bytes that were accepted here but not yet by the kernel are held inside. [`Transport::flush`] sends them.
//! Their number is limited to [`PENDING_BYTES_MAX`] plus the overhead of one record.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::server::{Accepted, AcceptedAlert, Acceptor};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig};

use crate::io::blob_files::BlobFiles;

/// Maximum number of plain bytes that TLS accepts while the kernel has not accepted their records.
const PENDING_BYTES_MAX: usize = 64 * 1024;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::io) struct Received {
    /// Number of bytes read into the buffer; 0 if the peer ended its side.
    pub(in crate::io) bytes: usize,
    /// True if the socket has no more bytes now.
    pub(in crate::io) dry: bool,
}

#[derive(Debug)]
struct Tls {
    connection: Connection,
    /// True if the end of the handshake is not reported yet.
    untold: bool,
    /// Number of wire bytes that the kernel has accepted.
    flushed: u64,
}

/// A peer's ClientHello while it is read. TLS begins once it is complete.
struct Hello {
    acceptor: Acceptor,
    /// The accepted ClientHello, once complete.
    accepted: Option<Accepted>,
    /// True if a part of the ClientHello was read.
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
    /// The ClientHello that a socket of a TLS listener waits for. Reading it needs no cryptography.
    hello: Option<Box<Hello>>,
}

impl Transport {
    pub(in crate::io) const fn plain(stream: TcpStream) -> Self {
        Self { stream, tls: None, hello: None }
    }

    /// Makes the transport of a socket that a TLS listener has accepted.
    pub(in crate::io) fn server(stream: TcpStream, config: &Arc<ServerConfig>) -> Self {
        let config = Arc::clone(config);
        let hello = Hello { acceptor: Acceptor::default(), accepted: None, begun: false, config };
        Self { stream, tls: None, hello: Some(Box::new(hello)) }
    }

    /// Returns the socket of a connection without TLS.
    pub(in crate::io) fn into_plain(self) -> Option<TcpStream> {
        (self.tls.is_none() && self.hello.is_none()).then_some(self.stream)
    }

    /// Begins TLS on a socket that has just been connected to a server with this name (or address).
    pub(in crate::io) fn begin_client(&mut self, config: &Arc<ClientConfig>, name: &str) -> io::Result<()> {
        let invalid = |_| io::Error::other("the host is not a name that a certificate can have");
        let name = ServerName::try_from(name.to_owned()).map_err(invalid)?;
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        self.tls = Some(Tls::new(connection.into()));
        Ok(())
    }

    /// True during the TLS handshake. No plain bytes can be read or written during it.
    pub(in crate::io) fn is_handshaking(&self) -> bool {
        self.hello.is_some() || self.tls.as_ref().is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// True if the peer's ClientHello is incomplete: see [`Transport::read_hello`].
    pub(in crate::io) fn awaits_hello(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.accepted.is_none())
    }

    /// True if a part of a ClientHello has arrived.
    pub(in crate::io) fn holds_hello(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.begun)
    }

    /// Reads a ClientHello until it is complete. The cryptography that it requires is done by the next
    /// [`Transport::read`].
    ///
    /// # Errors
    /// `WouldBlock` if the ClientHello is incomplete. `InvalidData` if the peer broke TLS; its alert is sent.
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

    /// Begins TLS, now that the ClientHello is complete.
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

    /// Returns true when first called after the handshake has ended.
    pub(in crate::io) fn take_handshake_end(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        !tls.connection.is_handshaking() && std::mem::replace(&mut tls.untold, false)
    }

    /// Returns the protocol negotiated by ALPN (RFC 7301).
    pub(in crate::io) fn negotiated(&self) -> Option<String> {
        let name = self.tls.as_ref()?.connection.alpn_protocol()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Reads plain bytes. Messages that TLS itself has for the peer are sent as well.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing to read now. `InvalidData` if the peer broke TLS; its alert is sent.
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
                // The connection has ended without `close_notify`. The session treats this like any other end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Received { bytes: 0, dry: true });
                }
                Err(error) => return Err(error),
            }
            tls.connection.read_tls(&mut self.stream)?;
            let processed = tls.connection.process_new_packets();
            // Send what TLS itself has to send: an alert, a flight of the handshake, or a ticket.
            let _ = tls.flush(&mut self.stream);
            if let Err(error) = processed {
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Writes plain bytes. Slices that lie in one of `files` are sent from that file. Returns the number of bytes
    /// accepted. If that is fewer than offered, the socket is full and will report when it is writable.
    ///
    /// # Errors
    /// `WouldBlock` if nothing was accepted.
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
        // Nothing can be written during the handshake. The caller is notified of its end.
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

    /// Sends bytes held by TLS. Returns true when none are left.
    pub(in crate::io) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            Some(tls) => tls.flush(&mut self.stream),
            None => Ok(true),
        }
    }

    /// Number of wire bytes that the kernel has taken from TLS so far, in [`Transport::flush`] and other calls.
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

    /// Sends the records that TLS holds. Returns true when none are left, false if the socket is full.
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

/// Sends the alert for a refused ClientHello. The socket has room for it, because it is the first output. Returns the
/// error.
fn alert(stream: &mut TcpStream, (error, mut alert): (rustls::Error, AcceptedAlert)) -> io::Error {
    let _ = alert.write_all(stream);
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Returns the slices after the first `taken` bytes.
fn behind<'a>(slices: &'a [IoSlice<'_>], taken: usize) -> Vec<IoSlice<'a>> {
    let mut skip = taken;
    let cut = |slice: &'a IoSlice<'_>| {
        let from = skip.min(slice.len());
        skip -= from;
        slice.get(from..).filter(|rest| !rest.is_empty()).map(IoSlice::new)
    };
    slices.iter().filter_map(cut).collect()
}
