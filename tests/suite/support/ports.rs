//! Ports for programs that cannot bind any free port and report which, and for servers that must come back on their own
//! port.
//!
//! The kernel gives free ports to dozens of tests at the same time, so a port that was free a moment ago may be gone.
//! The ports of this module therefore lie below the range that it gives from. They are not tried by binding either: a
//! child that another thread forks at that moment inherits the socket until it runs its program, and keeps the port
//! taken.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Program, ms, secs, wait_for};

/// Lowest port; those below are for services.
const LOWEST: u32 = 10_000;

/// Returns a port of this address, free for TCP and UDP, that no other test gets.
pub fn own_port(host: &str) -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = given_from() - LOWEST;
    // Test runs that run at the same time on one machine begin at different ports.
    let first = std::process::id().wrapping_mul(997);
    (0..count)
        .map(|_| {
            let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
            let port = u16::try_from(LOWEST + place).unwrap();
            (host, port).to_socket_addrs().unwrap().next().unwrap()
        })
        .find(|address| !["tcp", "tcp6", "udp", "udp6"].into_iter().any(|table| is_bound(table, *address)))
        .expect("a free port")
}

/// Returns the first port of the range from which the kernel assigns free ports.
fn given_from() -> u32 {
    static FIRST: OnceLock<u32> = OnceLock::new();
    *FIRST.get_or_init(|| {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(
            first > LOWEST + 100,
            "net.ipv4.ip_local_port_range leaves no port below {first} to the tests"
        );
        first
    })
}

/// Waits until a program has bound its UDP socket at this address.
pub fn wait_until_bound(program: &mut Program, address: SocketAddr) {
    let table = if address.is_ipv6() { "udp6" } else { "udp" };
    wait_for("a program to listen", secs(30), || {
        let ended = program.wait(ms(1));
        assert!(ended.is_none(), "a program did not listen on {address}: {ended:?}");
        is_bound(table, address)
    });
}

/// True if a socket has this port, at any address.
fn is_bound(table: &str, address: SocketAddr) -> bool {
    let port = format!(":{:04X}", address.port());
    // A machine without IPv6 has no table of IPv6 sockets.
    let sockets = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    sockets.lines().filter_map(|line| line.split_whitespace().nth(1)).any(|local| local.ends_with(&port))
}
