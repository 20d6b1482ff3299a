//! Ports with one number for all workers. The kernel gives the datagrams of a peer to one of the workers, by a hash
//! of the addresses, but the session is at the worker that received the request:
//!
//! ```text
//! peer ──> kernel ──> worker K: no session ── Route::Elsewhere, by mail ──> worker W: the session
//!                         ^                                                      │ validates the path
//!                         └───────────────── PathNews, by mail ──────────────────┘
//! ```
//!
//! 1. A first datagram names its session, and the name tells the session's worker ([`Elsewhere::Name`]). Nobody has
//!    verified the name yet.
//! 2. A session that validates a path notifies the worker that receives its datagrams, which passes them on
//!    ([`Elsewhere::Path`]).
//! 3. Answers leave through the socket of the session's worker, because the sockets of all workers have the same
//!    address.

use std::net::{IpAddr, SocketAddr};

use super::Remote;
use super::row::Port;
use crate::types::WorkerId;

/// The binding of a shared port on one worker.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The address.
    pub address: SocketAddr,
    /// The addresses of this machine's network interfaces.
    pub hosts: &'a [IpAddr],
    /// Number of workers that are bound to the address; 1 if the port belongs to this worker alone.
    pub workers: u16,
}

/// The destination of a datagram without a session at the worker that received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// A worker whose session has validated the path.
    Path(WorkerId),
    /// A worker that the datagram names. This proves nothing, because anybody can send such a datagram.
    Name(WorkerId),
    /// All other workers, because a NAT may have given the peer of one of their sessions another port.
    Others,
}

/// A change of a path whose datagrams arrive at another worker while its session is at this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathChange {
    /// The worker that receives the datagrams.
    pub to: WorkerId,
    /// The remote of the datagrams.
    pub remote: Remote,
    /// True if the session now has the path, false if it no longer has it.
    pub is_open: bool,
}

/// News from the worker of a session to the worker that receives the session's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathNews {
    /// The port.
    pub port: &'static Port,
    /// The remote of the datagrams.
    pub remote: Remote,
    /// The worker of the session.
    pub owner: WorkerId,
    /// True if the session now has the path, false if it no longer has it.
    pub is_open: bool,
}
