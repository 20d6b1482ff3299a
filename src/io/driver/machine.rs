//! The interface of a state machine whose sessions the driver drives.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rustls::ClientConfig;
use wire::{Datagrams, Gather};

use crate::protocol::{PathEvent, PathId, Remote};
use crate::stats::Refused;
use crate::types::{ConnId, Now, WorkerId};
use crate::worker::{Destination, Way, Writers};

/// A state machine with many sessions, each known by its [`ConnId`]: a worker, or the load generator. The driver
/// reports the events of the sessions' connections to it and carries out its actions. The driver is generic over the
/// machine, so that calls to a worker are static.
pub(in crate::io) trait Machine {
    /// Handles the opening, failure or closing of an outgoing connection or a socket.
    fn handle_path(&mut self, now: Now, id: ConnId, path: PathId, event: PathEvent<'_>);
    /// Takes bytes that were just read; `now` is the time of the turn.
    fn handle_bytes(&mut self, now: Now, id: ConnId, bytes: &[u8]);
    /// Takes a datagram of a session's own socket.
    fn handle_datagram(&mut self, now: Now, id: ConnId, path: PathId, from: Remote, datagram: &mut [u8]);
    /// Called when the socket accepts bytes again.
    fn handle_writable(&mut self, now: Now, id: ConnId);
    /// Handles a failed write: the connection is broken, but unread bytes of the peer may remain.
    fn handle_write_error(&mut self, now: Now, id: ConnId, error: &io::Error);
    /// Handles deadlines. Returns true if more are due, but the output so far should be written first.
    fn handle_timeout(&mut self, now: Now) -> bool;
    /// Counts a peer that was refused after it had been admitted.
    fn note_refused(&mut self, why: Refused);

    /// True if bytes of the connection are wanted now. After a result of false, [`Output::Resume`] follows when bytes
    /// are wanted again.
    fn wants_bytes(&mut self, id: ConnId) -> bool;
    /// True if no bytes are wanted because a decision about the peer is pending. If the peer leaves, the decision is no
    /// longer needed.
    fn waits_for_verdict(&self, id: ConnId) -> bool;
    /// Lets every session that has handled input or a deadline produce its output. Called before
    /// the driver asks for writes and actions.
    fn finish_turn(&mut self);
    /// Returns the next of the sessions selected by `who` that has output and whose connection may accept it.
    fn next_write(&mut self, who: Writers) -> Option<(ConnId, Way)>;
    /// True if any of the sessions selected by `who` may have output.
    fn has_writes(&self, who: Writers) -> bool;
    /// Queues a session again if its write was interrupted before any bytes were taken.
    fn retry_write(&mut self, id: ConnId);
    /// Gathers the bytes to send next.
    fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>);
    /// Processes the result of a write: at time `at`, `taken` of the `offered` bytes were accepted. If that is fewer,
    /// the connection accepts no more until it is writable again.
    fn sent(&mut self, at: Instant, id: ConnId, taken: usize, offered: usize);
    /// Adds the datagrams to send next, and returns their destination.
    fn gather_datagrams(&mut self, now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination>;
    /// Processes the result of sending datagrams: at time `at`, `taken` bytes were accepted, and `lost` datagrams were
    /// not.
    fn datagrams_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize);
    /// Returns the next action for the driver.
    fn poll_output(&mut self, now: Now) -> Option<Output>;
    /// Returns the time at which `handle_timeout` is due.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// An action for the driver.
#[derive(Debug)]
pub(in crate::io) enum Output {
    /// No action for the driver, because the state machine's owner has carried it out itself. More actions may follow.
    Done,
    /// Connect; the outcome is reported to [`Machine::handle_path`].
    Connect {
        conn: ConnId,
        address: SocketAddr,
        /// TLS settings; `None` for plain TCP.
        tls: Option<TlsClient>,
    },
    /// Open a UDP socket; the outcome is reported to [`Machine::handle_path`].
    OpenUdp {
        conn: ConnId,
        path: PathId,
        /// The local address to bind to; `None` for any address.
        bind: Option<SocketAddr>,
        /// The peer to connect the socket to; `None` for an unconnected socket.
        to: Option<SocketAddr>,
    },
    /// Close a UDP socket.
    CloseUdp { conn: ConnId, path: PathId },
    /// Resume reading: bytes of the connection are wanted again.
    Resume(ConnId),
    /// Limit the unsent bytes that the kernel holds.
    UnsentLimit { conn: ConnId, bytes: usize },
    /// The peer is authenticated.
    Authenticated {
        conn: ConnId,
        /// True if the peer publishes; some connections are reserved for publishers.
        publishes: bool,
    },
    /// Take the connection out of the driver, to be handed over to another worker ([`super::Driver::take_moved`]).
    HandOver { conn: ConnId, to: WorkerId, peer: SocketAddr, received: Bytes },
    /// Close the connection. Queued bytes are sent first unless `abort` is set.
    Close { conn: ConnId, abort: bool },
    /// Shorten the time that closed connections may linger.
    Hurry,
}

/// The settings of TLS on an outgoing connection.
#[derive(Debug, Clone)]
pub(in crate::io) struct TlsClient {
    /// The name that the server's certificate must have.
    pub(in crate::io) name: Box<str>,
    pub(in crate::io) config: Arc<ClientConfig>,
}
