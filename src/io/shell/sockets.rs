//! The sockets of a worker's listeners and ports while another process takes over from this one (docs/upgrade.md).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use mio::net::TcpListener;
use mio::{Interest, Token};

use super::{LISTENERS, Shell};
use crate::io::upgrade::Listed;
use crate::io::upgrade::wire::Socket;
use crate::protocol::Listener;

/// A listener, and whether only another process of this server can reach it.
pub(super) type Marked = (&'static Listener, TcpListener, bool);

impl Shell {
    /// Duplicates the sockets of all listeners and ports, except private ones.
    pub(super) fn list_sockets(&self) -> io::Result<Vec<Listed>> {
        let worker = self.id.0;
        let listed = |name: &str, is_udp, address: io::Result<_>, socket: &dyn AsFd| {
            let (name, descriptor) = (name.to_owned(), socket.as_fd().try_clone_to_owned()?);
            Ok((Socket { name, is_udp, worker, address: address? }, descriptor))
        };
        let listeners = self.listeners.iter().filter(|(.., is_private)| !is_private);
        let listeners =
            listeners.map(|(listener, socket, _)| listed(listener.name, false, socket.local_addr(), socket));
        let ports = self.driver.ports.iter();
        let ports =
            ports.map(|(port, socket)| listed(port.name, true, socket.socket.local_addr(), &socket.socket));
        listeners.chain(ports).collect()
    }

    /// Opens a listener of the relay through which another process of this server connects.
    pub(super) fn open_relay(&mut self, listener: &'static Listener, mut socket: TcpListener) {
        // Tokens of closed listeners may be in use again: events only make the worker look at all listeners.
        let token = Token(LISTENERS - self.listeners.len());
        match self.driver.registry().register(&mut socket, token, Interest::READABLE) {
            Ok(()) => self.listeners.push((listener, socket, true)),
            Err(error) => tracing::error!(%error, "relay for the new process not opened"),
        }
        self.pending_accept = true;
    }

    /// Closes the listener at this address, which only another process of this server could reach.
    pub(super) fn close_relay(&mut self, address: SocketAddr) {
        self.close_listeners(|(_, socket, is_private)| *is_private && is_at(socket, address));
    }

    /// Leaves all listeners and ports to the newer process, except the listeners that only that process can reach.
    pub(super) fn retire(&mut self) {
        self.close_listeners(|(.., is_private)| !is_private);
        for index in 0..self.driver.ports.len() {
            if let Some((_, port)) = self.driver.ports.get_mut(index) {
                (port.readable, port.muted_until) = (false, None);
            }
            let _ = self.driver.unwatch_port(index);
        }
    }

    /// Closes listeners. If another process has the same socket, closing is not enough: events of the
    /// socket are reported here until it is deregistered.
    fn close_listeners(&mut self, is_closed: impl Fn(&Marked) -> bool) {
        let (closed, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.listeners).into_iter().partition(is_closed);
        self.listeners = kept;
        for (_, mut socket, _) in closed {
            let _ = self.driver.registry().deregister(&mut socket);
        }
    }
}

/// Marks the listener at the address `private`, which only another process of this server can reach.
pub(super) fn marked(
    listeners: Vec<(&'static Listener, TcpListener)>,
    private: Option<SocketAddr>,
) -> Vec<Marked> {
    let mark = |(listener, socket)| {
        let is_private = private.is_some_and(|address| is_at(&socket, address));
        (listener, socket, is_private)
    };
    listeners.into_iter().map(mark).collect()
}

fn is_at(socket: &TcpListener, address: SocketAddr) -> bool {
    socket.local_addr().is_ok_and(|own| own == address)
}
