//! The sockets of a worker's listeners and ports while another process takes over from this one (docs/upgrade.md).

use std::io;
use std::os::fd::AsFd;

use mio::net::TcpListener;
use mio::{Interest, Token};

use super::{LISTENERS, Shell};
use crate::io::upgrade::Listed;
use crate::io::upgrade::wire::Socket;
use crate::protocol::{Listener, Security};

impl Shell {
    /// Duplicates the sockets of all listeners and ports.
    pub(super) fn list_sockets(&self) -> io::Result<Vec<Listed>> {
        let worker = self.id.0;
        let listed = |name: &str, is_udp, address: io::Result<_>, socket: &dyn AsFd| {
            let (name, descriptor) = (name.to_owned(), socket.as_fd().try_clone_to_owned()?);
            Ok((Socket { name, is_udp, worker, address: address? }, descriptor))
        };
        let listeners = self.listeners.iter();
        let listeners =
            listeners.map(|(listener, socket)| listed(listener.name, false, socket.local_addr(), socket));
        let ports = self.driver.ports.iter();
        let ports =
            ports.map(|(port, socket)| listed(port.name, true, socket.socket.local_addr(), &socket.socket));
        listeners.chain(ports).collect()
    }

    /// Opens the relay for the other process, or closes it.
    pub(super) fn set_relay(&mut self, relay: Option<(&'static Listener, TcpListener)>) {
        let Some((listener, mut socket)) = relay else { return self.close_listeners(is_private) };
        // Tokens of closed listeners may be in use again: events only make the worker look at all listeners.
        let token = Token(LISTENERS - self.listeners.len());
        match self.driver.registry().register(&mut socket, token, Interest::READABLE) {
            Ok(()) => self.listeners.push((listener, socket)),
            Err(error) => tracing::error!(%error, "relay for the new process not opened"),
        }
        self.pending_accept = true;
    }

    /// Leaves all listeners and ports to the other process, except the relay for it.
    pub(super) fn retire(&mut self) {
        self.close_listeners(|listener, socket| !is_private(listener, socket));
        for index in 0..self.driver.ports.len() {
            if let Some((_, port)) = self.driver.ports.get_mut(index) {
                (port.readable, port.muted_until) = (false, None);
            }
            let _ = self.driver.unwatch_port(index);
        }
    }

    /// Closes listeners. A socket that another process has, too, is reported to this one until it is deregistered.
    fn close_listeners(&mut self, is_closed: impl Fn(&Listener, &TcpListener) -> bool) {
        let (closed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.listeners)
            .into_iter()
            .partition(|(listener, socket)| is_closed(listener, socket));
        self.listeners = kept;
        for (_, mut socket) in closed {
            let _ = self.driver.registry().deregister(&mut socket);
        }
    }
}

/// True for the relay that only the other process can reach.
fn is_private(listener: &Listener, socket: &TcpListener) -> bool {
    listener.security == Security::Nodes
        && socket.local_addr().is_ok_and(|address| address.ip().is_loopback())
}
