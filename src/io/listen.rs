//! Listening sockets: one per worker and protocol, sharing a port, so that the kernel spreads connections (TCP) and
//! peers (UDP) over them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Where a listener is bound first; without a host: all addresses of both families.
pub(super) fn address_of(host: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(host.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port)
}

/// Binds `count` listeners to one port. Port 0 takes a free one; `None` for the host means all addresses of both
/// families, or of IPv4 where the machine has no IPv6.
pub(super) fn listen(
    host: Option<IpAddr>,
    port: u16,
    count: usize,
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let (bound, sockets) = bind(host, port, count, Type::STREAM)?;
    let listeners = sockets.into_iter().map(|socket| {
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from_std(socket.into()))
    });
    Ok((bound, listeners.collect::<io::Result<_>>()?))
}

/// Binds `count` UDP sockets to one port, in the same way.
pub(super) fn bind_udp(
    host: Option<IpAddr>,
    port: u16,
    count: usize,
) -> io::Result<(SocketAddr, Vec<std::net::UdpSocket>)> {
    let (bound, sockets) = bind(host, port, count, Type::DGRAM)?;
    Ok((bound, sockets.into_iter().map(Into::into).collect()))
}

/// A UDP socket for one connection: bound where it waits for its peer, or connected to it.
pub(super) fn open_udp(bind: Option<SocketAddr>, to: Option<SocketAddr>) -> io::Result<std::net::UdpSocket> {
    let address = bind.or(to).ok_or(io::ErrorKind::InvalidInput)?;
    let socket = socket(address, Type::DGRAM)?;
    if let Some(bind) = bind {
        socket.bind(&bind.into())?;
    }
    if let Some(to) = to {
        socket.connect(&to.into())?;
    }
    Ok(socket.into())
}

fn bind(host: Option<IpAddr>, port: u16, count: usize, kind: Type) -> io::Result<(SocketAddr, Vec<Socket>)> {
    let wanted = address_of(host, port);
    match bind_all(wanted, count, kind) {
        Err(error) if host.is_none() && error.kind() != io::ErrorKind::AddrInUse => {
            bind_all(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port), count, kind)
        }
        other => other,
    }
}

fn bind_all(wanted: SocketAddr, count: usize, kind: Type) -> io::Result<(SocketAddr, Vec<Socket>)> {
    let first = socket(wanted, kind)?;
    // The first binds alone: with SO_REUSEPORT it could share a port that another program listens on already. Its
    // siblings join it after it has set the option.
    first.bind(&wanted.into())?;
    let bound = first.local_addr()?.as_socket().unwrap_or(wanted);
    let mut sockets = vec![first];
    if count > 1 {
        for first in &sockets {
            first.set_reuse_port(true)?;
        }
        for _ in 1..count {
            let sibling = socket(bound, kind)?;
            sibling.set_reuse_port(true)?;
            sibling.bind(&bound.into())?;
            sockets.push(sibling);
        }
    }
    Ok((bound, sockets))
}

fn socket(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let protocol = if kind == Type::DGRAM { Protocol::UDP } else { Protocol::TCP };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if kind == Type::STREAM {
        // Of UDP it would let another socket take the port over.
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_share_a_port_that_the_kernel_gave() {
        let (address, listeners) = listen(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, 3).unwrap();
        assert!(address.port() > 0 && listeners.len() == 3);
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == address));
    }

    #[test]
    fn c_03_a_port_in_use_is_an_error() {
        let (address, _listeners) = listen(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, 2).unwrap();
        let again = listen(Some(address.ip()), address.port(), 2).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn without_a_host_both_families_reach_it() {
        let (address, _listeners) = listen(None, 0, 1).unwrap();
        assert!(std::net::TcpStream::connect(("127.0.0.1", address.port())).is_ok());
    }
}
