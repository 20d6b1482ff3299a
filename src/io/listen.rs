//! Listening sockets. Each worker has one for each protocol. They share a port, so that the kernel distributes
//! connections (TCP) and peers (UDP) over the workers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Returns the address to try first. Without a host, this is the unspecified IPv6 address, which means all addresses of
/// both families.
pub(super) fn address_of(host: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(host.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port)
}

/// Binds `count` listeners to one port. Port 0 means any free port. If `host` is `None`, they are bound to all
/// addresses of both families, or of IPv4 only if the machine has no IPv6.
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

/// Binds `count` UDP sockets to one port, like [`listen`].
pub(super) fn bind_udp(
    host: Option<IpAddr>,
    port: u16,
    count: usize,
) -> io::Result<(SocketAddr, Vec<std::net::UdpSocket>)> {
    let (bound, sockets) = bind(host, port, count, Type::DGRAM)?;
    Ok((bound, sockets.into_iter().map(Into::into).collect()))
}

/// Opens a UDP socket for one connection. It is bound to the address at which it waits for its peer, or connected to
/// the peer.
pub(super) fn open_udp(bind: Option<SocketAddr>, to: Option<SocketAddr>) -> io::Result<std::net::UdpSocket> {
    let address = bind.or(to).ok_or(io::ErrorKind::InvalidInput)?;
    let socket = socket(address, Type::DGRAM)?;
    if let Some(bind) = bind {
        match bind.ip() {
            // The socket receives only datagrams that are sent to the group. Other programs may have joined the group,
            // too.
            IpAddr::V4(group) if group.is_multicast() => {
                socket.set_reuse_address(true)?;
                socket.bind(&bind.into())?;
                // The group is joined on the interface that the routing table selects. A machine without routes
                // receives only from its own programs.
                let joined = socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED);
                joined.or_else(|_| socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST))?;
            }
            IpAddr::V6(group) if group.is_multicast() => {
                socket.set_reuse_address(true)?;
                socket.bind(&bind.into())?;
                socket.join_multicast_v6(&group, 0)?;
            }
            IpAddr::V4(_) | IpAddr::V6(_) => socket.bind(&bind.into())?,
        }
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
    // The first socket is bound without SO_REUSEPORT: with that option, it could share a port on which another program
    // already listens. The option is set afterwards, so that the other sockets can be bound to the same port.
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
        // This option is not set for UDP, where it would let another socket take over the port.
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
    fn a_socket_at_a_group_hears_what_is_sent_to_it() {
        let group: SocketAddr = "239.255.77.1:0".parse().unwrap();
        let receivers = [(); 2].map(|()| open_udp(Some(group), None).unwrap());
        let port = receivers[0].local_addr().unwrap().port();
        let second = open_udp(Some(SocketAddr::new(group.ip(), port)), None).unwrap();
        let sender = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let to = SocketAddr::new(group.ip(), port).into();
        if sender.send_to(b"hello", &to).is_err() {
            // The machine may have no route to the group, so send over loopback.
            sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
            sender.send_to(b"hello", &to).unwrap();
        }
        for receiver in [&receivers[0], &second] {
            receiver.set_nonblocking(false).unwrap();
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let mut datagram = [0; 16];
            assert_eq!(receiver.recv(&mut datagram).unwrap(), 5, "two programs may listen");
        }
    }

    #[test]
    fn without_a_host_both_families_reach_it() {
        let (address, _listeners) = listen(None, 0, 1).unwrap();
        assert!(std::net::TcpStream::connect(("127.0.0.1", address.port())).is_ok());
    }
}
