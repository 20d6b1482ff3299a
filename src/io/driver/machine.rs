//! The machine whose sessions the driver drives, as the driver uses it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
use wire::{Datagrams, Gather};

use crate::protocol::{PathEvent, PathId, Remote};
use crate::stats::Refused;
use crate::types::{ConnId, Now};
use crate::worker::{Destination, Way, Writers};

/// Many sessions, each behind a [`ConnId`]: a worker's, or those of the load generator. The driver tells it what happens to
/// their connections and does what it asks. The driver's code is generic over it, so that a worker's calls stay direct.
pub(in crate::io) trait Machine {
    /// An outgoing connection or a socket is open, broke, or was closed by the peer.
    fn handle_path(&mut self, now: Now, id: ConnId, path: PathId, event: PathEvent<'_>);
    /// A read brought these bytes right now; `now` is the time of the turn.
    fn handle_bytes(&mut self, now: Now, id: ConnId, bytes: &[u8]);
    /// A datagram of a session's own socket.
    fn handle_datagram(&mut self, now: Now, id: ConnId, path: PathId, from: Remote, datagram: &mut [u8]);
    /// The socket takes bytes again.
    fn handle_writable(&mut self, now: Now, id: ConnId);
    /// A write failed: the connection is broken, though there may be unread bytes of the peer.
    fn handle_write_error(&mut self, now: Now, id: ConnId, error: &io::Error);
    /// Does what is due. True: something still is, but what followed from the first is to be written before.
    fn handle_timeout(&mut self, now: Now) -> bool;
    /// A peer was refused after it had been admitted.
    fn note_refused(&mut self, why: Refused);

    /// Whether bytes of the connection are wanted now. When not, [`Output::Resume`] says when they are.
    fn wants_bytes(&mut self, id: ConnId) -> bool;
    /// Whether no bytes are wanted because somebody decides about the peer, who should still be there then.
    fn waits_for_verdict(&self, id: ConnId) -> bool;
    /// Has its sessions say what they have to, before writes and outputs are asked for.
    fn finish_turn(&mut self);
    /// The next of these sessions that has something to send over a connection that may take it.
    fn next_write(&mut self, who: Writers) -> Option<(ConnId, Way)>;
    /// Whether there may be one.
    fn has_writes(&self, who: Writers) -> bool;
    /// A write was interrupted before it took anything.
    fn retry_write(&mut self, id: ConnId);
    /// Names the bytes that go out next.
    fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>);
    /// `taken` of the `offered` bytes were taken, at this time. Fewer: the connection is full until it is writable.
    fn sent(&mut self, at: Instant, id: ConnId, taken: usize, offered: usize);
    /// Adds the datagrams that go out next, and says where to.
    fn gather_datagrams(&mut self, now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination>;
    /// Reports that so many bytes of datagrams were taken, at this time, and so many datagrams were not.
    fn datagrams_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize);
    /// The next action for the driver.
    fn poll_output(&mut self, now: Now) -> Option<Output>;
    /// The time at which `handle_timeout` is due.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// An action for the driver.
#[derive(Debug)]
pub(in crate::io) enum Output {
    /// Nothing: the machine's owner has done it, and more may follow from that.
    Done,
    /// Connect; [`Machine::handle_path`] hears of it.
    Connect {
        conn: ConnId,
        address: SocketAddr,
        /// Over TLS.
        tls: Option<TlsClient>,
    },
    /// Open a UDP socket; [`Machine::handle_path`] hears of it.
    OpenUdp {
        conn: ConnId,
        path: PathId,
        /// The address that it receives at.
        bind: Option<SocketAddr>,
        /// The peer that it is connected to.
        to: Option<SocketAddr>,
    },
    /// Close a UDP socket.
    CloseUdp { conn: ConnId, path: PathId },
    /// Read on: bytes of the connection are wanted again.
    Resume(ConnId),
    /// Let the kernel hold so many unsent bytes and no more.
    UnsentLimit { conn: ConnId, bytes: usize },
    /// The peer counts no longer among the unauthenticated.
    Authenticated {
        conn: ConnId,
        /// Whether it has been granted to publish.
        publishes: bool,
    },
    /// Close the connection. All that was to be sent is sent, unless `abort`.
    Close { conn: ConnId, abort: bool },
    /// Do not wait much longer for peers to take what closed connections still hold.
    Hurry,
}

/// The settings of TLS on an outgoing connection.
#[derive(Debug, Clone)]
pub(in crate::io) struct TlsClient {
    /// The name that the server must prove to have.
    pub(in crate::io) name: Box<str>,
    pub(in crate::io) config: Arc<ClientConfig>,
}
