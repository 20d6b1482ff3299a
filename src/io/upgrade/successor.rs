//! The newer process of an upgrade, until it serves. The older process has started it with a socket as its standard
//! input.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use mio::net::TcpListener;

use super::keeper::{Guest, TAKE_MAX, WRITE_MAX};
use super::own_process;
use super::wire::{self, Frame, Socket, VERSION, WireProcess};
use crate::config::ServerSettings;
use crate::control::Membership;
use crate::directory::{Desk, Node};
use crate::io::{listen, sys};
use crate::protocol::node_secret;
use crate::types::build;

/// A connection to the older process.
#[derive(Debug)]
pub struct Successor {
    stream: UnixStream,
    offered: Mutex<Vec<(Socket, OwnedFd)>>,
    /// A connection for the datagrams of each worker.
    strays: Mutex<Vec<UnixStream>>,
    secret: Vec<u8>,
}

/// Binds sockets, or takes those that an older process offers.
#[derive(Debug, Clone, Copy)]
pub(in crate::io) struct Offer<'a>(pub(in crate::io) Option<&'a Successor>);

impl Offer<'_> {
    /// Returns listeners for `workers`, given as the number of the first worker and how many workers there
    /// are.
    pub(in crate::io) fn listen(
        self,
        name: &str,
        (host, port): (Option<IpAddr>, u16),
        workers: (usize, usize),
    ) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
        match self.0.and_then(|successor| successor.sockets((name, false), (host, port), workers)) {
            Some((address, sockets)) => {
                let socket = |descriptor: OwnedFd| TcpListener::from_std(descriptor.into());
                Ok((address, sockets.into_iter().map(socket).collect()))
            }
            None => listen::listen(host, port, workers.1),
        }
    }

    /// Returns UDP sockets for `workers`, given as in [`Self::listen`].
    pub(in crate::io) fn bind_udp(
        self,
        name: &str,
        (host, port): (Option<IpAddr>, u16),
        workers: (usize, usize),
    ) -> io::Result<(SocketAddr, Vec<UdpSocket>)> {
        match self.0.and_then(|successor| successor.sockets((name, true), (host, port), workers)) {
            Some((address, sockets)) => Ok((address, sockets.into_iter().map(UdpSocket::from).collect())),
            None => listen::bind_udp(host, port, workers.1),
        }
    }
}

/// The parts of the older process that this process takes.
#[derive(Debug)]
pub(in crate::io) struct Place {
    pub(in crate::io) guest: Guest,
    pub(in crate::io) membership: Membership,
}

impl Successor {
    /// Receives the sockets and the secret that the older process offers.
    ///
    /// # Errors
    /// Standard input is not a socket of an older process.
    pub fn of_standard_input() -> io::Result<Self> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        sys::empty_standard_input()?;
        stream.set_read_timeout(Some(TAKE_MAX))?;
        stream.set_write_timeout(Some(TAKE_MAX))?;
        let Frame::Offer { version, workers, sockets, secret } = wire::receive(&stream)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if version != VERSION {
            return Err(io::Error::other(format!("the running server has version {version} of upgrades")));
        }
        let receive = |socket| Ok((socket, sys::receive_descriptor(stream.as_fd())?));
        let offered = sockets.into_iter().map(receive).collect::<io::Result<_>>()?;
        let stray = |_| Ok(UnixStream::from(sys::receive_descriptor(stream.as_fd())?));
        let strays = (0..workers).map(stray).collect::<io::Result<_>>()?;
        let secret = wire::secret_of(&secret).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { stream, offered: Mutex::new(offered), strays: Mutex::new(strays), secret })
    }

    /// Checks that this process can take over with these settings.
    pub(in crate::io) fn check(&self, server: &ServerSettings) -> io::Result<()> {
        let strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let obstacle = if usize::from(server.workers) != strays.len() {
            "server.workers has changed"
        } else if server.cluster().is_some() {
            "cluster.url is set now"
        } else if node_secret(server).is_some_and(|secret| secret.as_bytes() != self.secret) {
            "relay.secret has changed"
        } else {
            return Ok(());
        };
        Err(io::Error::other(format!("{obstacle}: restart the server instead of upgrading it")))
    }

    /// Secret of the connections between the two processes.
    pub(in crate::io) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// Takes the connections for datagrams, in the order of the workers.
    pub(in crate::io) fn take_strays(&self) -> Vec<UnixStream> {
        std::mem::take(&mut *self.strays.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the offered sockets of this name, one for each of the workers from `first` to `first + count`,
    /// if they are bound to this address. Port 0 matches any port.
    pub(in crate::io) fn sockets(
        &self,
        (name, is_udp): (&str, bool),
        (host, port): (Option<IpAddr>, u16),
        (first, count): (usize, usize),
    ) -> Option<(SocketAddr, Vec<OwnedFd>)> {
        let is_wanted = |socket: &Socket| {
            let ip = socket.address.ip();
            socket.name == name
                && socket.is_udp == is_udp
                && (first..first.saturating_add(count)).contains(&usize::from(socket.worker))
                && host.map_or_else(|| ip.is_unspecified(), |host| host == ip)
                && (port == 0 || port == socket.address.port())
        };
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut wanted, rest): (Vec<_>, Vec<_>) =
            offered.drain(..).partition(|(socket, _)| is_wanted(socket));
        if wanted.len() != count {
            *offered = wanted.into_iter().chain(rest).collect();
            return None;
        }
        *offered = rest;
        drop(offered);
        wanted.sort_by_key(|(socket, _)| socket.worker);
        let address = wanted.first()?.0.address;
        Some((address, wanted.into_iter().map(|(_, descriptor)| descriptor).collect()))
    }

    /// Closes the offered sockets that nobody has taken, so that no port stays open that the settings no
    /// longer have.
    pub(in crate::io) fn close_rest(&self) {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Tells the older process that this one, with its relay at this address, can take over. Waits until the store is
    /// free.
    pub(in crate::io) fn take(&self, own_relay: SocketAddr) -> io::Result<Place> {
        wire::send(&self.stream, &Frame::Ready)?;
        let Frame::Take { process, relay, claims } = wire::receive(&self.stream)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        // A thread will soon read from the socket without a time limit. A read keeps the limit that is set
        // when it begins.
        self.stream.set_read_timeout(None)?;
        let older = process.read().ok_or(io::ErrorKind::InvalidData)?;
        let own = own_process();
        let desk =
            Desk::new(Node::of(own.clone(), &own_relay.to_string()), wire::read_claims(claims).collect());
        let desk = desk.with_guest(Node::of(older, &relay.to_string()));
        let nodes = desk.nodes().cloned().collect();
        let membership = Membership::of_pair(own, desk.claims().clone(), nodes);
        Ok(Place { guest: Guest { stream: self.stream.try_clone()?, desk }, membership })
    }

    /// Tells the older process that this one serves, and at which address it has its relay.
    pub(in crate::io) fn took(&self, relay: SocketAddr) -> io::Result<()> {
        self.stream.set_write_timeout(Some(WRITE_MAX))?;
        let (process, version) = (WireProcess::of(&own_process()), build::FULL.to_owned());
        wire::send(&self.stream, &Frame::Took { process, relay, version })
    }
}
