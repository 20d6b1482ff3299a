//! A network between real sockets that misbehaves as its seed determines. A client sends to [`Relay::address`];
//! datagrams that [`netsim::Link`] lets through reach the server later, twice or not at all. The same is true of the
//! other direction.
//!
//! 1. A thread reads all sockets and puts each datagram into the link of its client and direction.
//! 2. A thread per direction sleeps until the next datagram is due, and sends it.
//!
//! Every client has its own port towards the server, and links with their own random numbers. With the same seed,
//! the n-th datagram of the k-th client has the same fate in every run; only the times depend on the machine.
//!
//! The benches include this file, too, so it must not use its neighbouring modules.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use netsim::{BottleneckBytes, Link, LinkStats};
use socket2::{Domain, Protocol, Socket, Type};

/// The socket that clients send to.
const FRONT: Token = Token(0);
/// Token that wakes the reading thread, so that it ends.
const WAKE: Token = Token(1);
/// Token of the first socket towards the server.
const FIRST_BACK: usize = 2;
/// Size of a socket buffer: large enough that datagrams that a link lets through are not lost in a socket.
const SOCKET_BUFFER: usize = 8 << 20;
/// Number of classes of lateness: up to 1, 2, 4 ... microseconds.
const LATENESS_CLASSES: usize = 32;

/// Direction: from the clients to the server, or from the server to the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    There,
    Back,
}

impl Way {
    pub const BOTH: [Self; 2] = [Self::There, Self::Back];
}

type Change = Box<dyn Fn(Link) -> Link + Send + Sync>;
type Tap = Box<dyn Fn(Way, &[u8]) + Send + Sync>;

/// A relay that is not started yet.
pub struct RelayBuilder {
    server: SocketAddr,
    local: IpAddr,
    seed: u64,
    changes: [Change; 2],
    tap: Tap,
    tos: u32,
}

impl RelayBuilder {
    /// Sets the address of the machine on which clients reach the relay.
    #[allow(dead_code, reason = "only the bench sets it")]
    pub const fn listen(mut self, local: IpAddr) -> Self {
        self.local = local;
        self
    }

    /// Sets the seed, which is 1 by default.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Configures the links of a direction; `change` is given a perfect link.
    pub fn link(mut self, way: Way, change: impl Fn(Link) -> Link + Send + Sync + 'static) -> Self {
        self.changes[way as usize] = Box::new(change);
        self
    }

    /// Configures the links of both directions.
    pub fn links(self, change: impl Fn(Link) -> Link + Clone + Send + Sync + 'static) -> Self {
        self.link(Way::There, change.clone()).link(Way::Back, change)
    }

    /// Calls `tap` with every datagram before its link gets it.
    pub fn tap(mut self, tap: impl Fn(Way, &[u8]) + Send + Sync + 'static) -> Self {
        self.tap = Box::new(tap);
        self
    }

    /// Sets the DSCP and ECN bits of everything that leaves the relay.
    pub const fn tos(mut self, tos: u32) -> Self {
        self.tos = tos;
        self
    }

    /// Starts the relay, by default on the loopback address of the server's address family.
    pub fn start(self) -> Relay {
        let front = udp_socket(self.local, self.tos).unwrap();
        let address = front.local_addr().unwrap();
        let poll = Poll::new().unwrap();
        let registry = poll.registry().try_clone().unwrap();
        let waker = Waker::new(&registry, WAKE).unwrap();
        let mut front = front;
        registry.register(&mut front, FRONT, Interest::READABLE).unwrap();
        let shared = Arc::new(Shared {
            server: self.server,
            front,
            registry,
            tos: self.tos,
            tap: self.tap,
            clients: Mutex::new(Clients::default()),
            lanes: self.changes.map(Lane::new),
            seed: Seed::from_number(self.seed),
            stopped: AtomicBool::new(false),
        });
        let reading = Arc::clone(&shared);
        let mut threads = vec![std::thread::spawn(move || reading.read(poll))];
        for way in Way::BOTH {
            let sending = Arc::clone(&shared);
            threads.push(std::thread::spawn(move || sending.deliver(way)));
        }
        Relay { address, shared, waker, threads }
    }
}

/// A running relay, which ends when it is dropped.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Creates a relay in front of `server`, with perfect links by default.
    pub fn to(server: SocketAddr) -> RelayBuilder {
        let perfect = || Box::new(|link| link) as Change;
        let (changes, tap) = ([perfect(), perfect()], Box::new(|_: Way, _: &[u8]| ()) as Tap);
        RelayBuilder { server, local: loopback(server), seed: 1, changes, tap, tos: 0 }
    }

    /// Address that clients send to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the links of a direction while they carry datagrams. Clients that connect later get the original links.
    pub fn change(&self, way: Way, change: impl Fn(Link) -> Link) {
        let lane = &self.shared.lanes[way as usize];
        for link in &mut lane.state.lock().unwrap().links {
            let old = std::mem::replace(link, Link::new(&self.shared.seed));
            *link = change(old);
        }
        lane.wake.notify_one();
    }

    /// Blocks a direction for this time from now on.
    pub fn darken(&self, way: Way, time: Duration) {
        let now = Instant::now();
        self.change(way, |link| link.blackout(now, now + time));
    }

    /// Blocks both directions for this time from now on.
    pub fn blackout(&self, time: Duration) {
        Way::BOTH.into_iter().for_each(|way| self.darken(way, time));
    }

    /// Acts like a NAT that has forgotten its clients: their datagrams now reach the server from other ports, and
    /// datagrams to the old ports are lost.
    pub fn rebind(&self) {
        let mut clients = self.shared.clients.lock().unwrap();
        for number in 0..clients.list.len() {
            let (token, back) = self.shared.open_back(&mut clients, number).unwrap();
            let client = &mut clients.list[number];
            let old = std::mem::replace(&mut client.token, token);
            client.back = back;
            clients.by_token.remove(&old);
        }
    }

    /// Counters of the datagrams of a direction, over all clients.
    pub fn stats(&self, way: Way) -> LinkStats {
        let state = self.shared.lanes[way as usize].state.lock().unwrap();
        state.links.iter().map(Link::stats).fold(LinkStats::default(), |sum, link| LinkStats {
            sent: sum.sent + link.sent,
            delivered: sum.delivered + link.delivered,
            lost: sum.lost + link.lost,
            dark: sum.dark + link.dark,
            too_big: sum.too_big + link.too_big,
            overflowed: sum.overflowed + link.overflowed,
            faded: sum.faded + link.faded,
            duplicated: sum.duplicated + link.duplicated,
            reordered: sum.reordered + link.reordered,
        })
    }

    /// Bytes at the bottlenecks of one direction, over all clients.
    pub fn bottleneck_bytes(&self, way: Way) -> BottleneckBytes {
        let state = self.shared.lanes[way as usize].state.lock().unwrap();
        state.links.iter().map(Link::bottleneck_bytes).fold(BottleneckBytes::default(), |sum, link| {
            BottleneckBytes {
                offered: sum.offered + link.offered,
                overflowed: sum.overflowed + link.overflowed,
            }
        })
    }

    /// Returns the number of clients so far.
    pub fn clients(&self) -> usize {
        self.shared.clients.lock().unwrap().list.len()
    }

    /// Returns the ports that the server sees, one for each client.
    pub fn ports(&self) -> Vec<u16> {
        let clients = self.shared.clients.lock().unwrap();
        clients.list.iter().map(|client| client.back.local_addr().unwrap().port()).collect()
    }

    /// Returns the lateness, rounded up to a power of two of microseconds, that all but `share` of the datagrams
    /// did not exceed. Lateness is the delay that the machine adds to that of the links.
    pub fn lateness(&self, share: f64) -> Duration {
        let mut classes = [0u64; LATENESS_CLASSES];
        for lane in &self.shared.lanes {
            let state = lane.state.lock().unwrap();
            classes.iter_mut().zip(state.lateness).for_each(|(sum, count)| *sum += count);
        }
        let all: u64 = classes.iter().sum();
        let mut rest = all;
        for (class, count) in classes.iter().enumerate() {
            rest -= count;
            if rest as f64 <= share * all as f64 {
                return Duration::from_micros(1 << class);
            }
        }
        Duration::MAX
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = self.waker.wake();
        for lane in &self.shared.lanes {
            // The lock is held, so that the thread is not between its check of the flag and its sleep.
            let _state = lane.state.lock();
            lane.wake.notify_one();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Shared {
    server: SocketAddr,
    front: UdpSocket,
    registry: Registry,
    tos: u32,
    tap: Tap,
    /// Must be locked before a lane is.
    clients: Mutex<Clients>,
    lanes: [Lane; 2],
    seed: Seed,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Clients {
    list: Vec<Client>,
    by_address: HashMap<SocketAddr, usize>,
    by_token: HashMap<Token, usize>,
    next_token: usize,
}

struct Client {
    address: SocketAddr,
    token: Token,
    back: Arc<UdpSocket>,
}

struct Lane {
    state: Mutex<LaneState>,
    wake: Condvar,
    change: Change,
}

struct LaneState {
    /// Links of this direction, indexed by client.
    links: Vec<Link>,
    /// Numbers of datagrams per class of lateness: by the binary logarithm of microseconds.
    lateness: [u64; LATENESS_CLASSES],
}

impl Lane {
    fn new(change: Change) -> Self {
        let state = LaneState { links: Vec::new(), lateness: [0; LATENESS_CLASSES] };
        Self { state: Mutex::new(state), wake: Condvar::new(), change }
    }
}

impl Shared {
    fn read(&self, mut poll: Poll) {
        let mut events = Events::with_capacity(256);
        let mut buffer = vec![0; 65_536];
        loop {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled.unwrap(),
            }
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            for event in &events {
                match event.token() {
                    WAKE => {}
                    FRONT => {
                        while let Ok((length, from)) = self.front.recv_from(&mut buffer) {
                            let client = self.client(from);
                            self.enter(Way::There, client, &buffer[..length]);
                        }
                    }
                    token => self.read_back(token, &mut buffer),
                }
            }
        }
    }

    fn read_back(&self, token: Token, buffer: &mut [u8]) {
        let back = {
            let clients = self.clients.lock().unwrap();
            let number = clients.by_token.get(&token).copied();
            number.map(|number| (number, Arc::clone(&clients.list[number].back)))
        };
        let Some((client, socket)) = back else { return };
        while let Ok((length, from)) = socket.recv_from(buffer) {
            // As behind a NAT, only the server can reach a client.
            if from == self.server {
                self.enter(Way::Back, client, &buffer[..length]);
            }
        }
    }

    fn enter(&self, way: Way, client: usize, datagram: &[u8]) {
        let now = Instant::now();
        (self.tap)(way, datagram);
        let lane = &self.lanes[way as usize];
        let mut state = lane.state.lock().unwrap();
        let earliest = state.next_at();
        state.links[client].send(now, Bytes::copy_from_slice(datagram));
        if state.next_at() != earliest {
            lane.wake.notify_one();
        }
    }

    /// Returns the number of a client, which is added if it is new.
    fn client(&self, address: SocketAddr) -> usize {
        let mut clients = self.clients.lock().unwrap();
        if let Some(number) = clients.by_address.get(&address) {
            return *number;
        }
        let number = clients.list.len();
        let (token, back) = self.open_back(&mut clients, number).unwrap();
        clients.list.push(Client { address, token, back });
        clients.by_address.insert(address, number);
        for (lane, label) in self.lanes.iter().zip(["there", "back"]) {
            let link = Link::new(&self.seed.derive(label, number as u64));
            lane.state.lock().unwrap().links.push((lane.change)(link));
        }
        number
    }

    /// Opens the socket of a client towards the server.
    fn open_back(&self, clients: &mut Clients, number: usize) -> io::Result<(Token, Arc<UdpSocket>)> {
        let token = Token(FIRST_BACK + clients.next_token);
        clients.next_token += 1;
        clients.by_token.insert(token, number);
        let mut socket = udp_socket(loopback(self.server), self.tos)?;
        self.registry.register(&mut socket, token, Interest::READABLE)?;
        Ok((token, Arc::new(socket)))
    }

    fn deliver(&self, way: Way) {
        let lane = &self.lanes[way as usize];
        let mut due = Vec::new();
        let mut state = lane.state.lock().unwrap();
        while !self.stopped.load(Ordering::SeqCst) {
            let now = Instant::now();
            state.take_due(now, &mut due);
            if due.is_empty() {
                state = match state.next_at() {
                    Some(at) => lane.wake.wait_timeout(state, at.saturating_duration_since(now)).unwrap().0,
                    None => lane.wake.wait(state).unwrap(),
                };
                continue;
            }
            drop(state);
            for (client, datagram) in due.drain(..) {
                let (address, back) = {
                    let clients = self.clients.lock().unwrap();
                    (clients.list[client].address, Arc::clone(&clients.list[client].back))
                };
                // Sending to a client that has ended may fail, which is no fault of the network.
                let _ = match way {
                    Way::There => back.send_to(&datagram, self.server),
                    Way::Back => self.front.send_to(&datagram, address),
                };
            }
            state = lane.state.lock().unwrap();
        }
    }
}

impl LaneState {
    fn next_at(&self) -> Option<Instant> {
        self.links.iter().filter_map(Link::next_at).min()
    }

    fn take_due(&mut self, now: Instant, due: &mut Vec<(usize, Bytes)>) {
        for (client, link) in self.links.iter_mut().enumerate() {
            while let Some(at) = link.next_at().filter(|at| *at <= now) {
                let late = (now - at).as_micros().min(u128::from(u32::MAX >> 1)) as u32;
                self.lateness[(u32::BITS - late.leading_zeros()) as usize] += 1;
                due.extend(link.poll_delivery(now).map(|datagram| (client, datagram)));
            }
        }
    }
}

const fn loopback(server: SocketAddr) -> IpAddr {
    if server.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) }
}

fn udp_socket(local: IpAddr, tos: u32) -> io::Result<UdpSocket> {
    let local = SocketAddr::new(local, 0);
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&local.into())?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    if tos != 0 && local.is_ipv4() {
        socket.set_tos_v4(tos)?;
    } else if tos != 0 {
        socket.set_tclass_v6(tos)?;
    }
    socket.set_nonblocking(true)?;
    Ok(UdpSocket::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use netsim::{ms, secs};

    use super::*;

    const V4: &str = "127.0.0.1:0";
    /// Time without a datagram after which no more are expected.
    const SILENCE: Duration = ms(300);

    fn socket(address: &str) -> UdpSocket {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(secs(10))).unwrap();
        socket
    }

    fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        let mut buffer = [0; 2048];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        (buffer[..length].to_vec(), from)
    }

    fn receives_nothing(socket: &UdpSocket) {
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(socket.recv_from(&mut [0; 2048]).is_err());
        socket.set_read_timeout(Some(secs(10))).unwrap();
    }

    #[test]
    fn every_client_gets_its_own_answers_by_both_families() {
        for address in [V4, "[::1]:0"] {
            let server = socket(address);
            let relay = Relay::to(server.local_addr().unwrap()).links(|link| link.latency(ms(5))).start();
            let clients = [socket(address), socket(address), socket(address)];
            for (number, client) in clients.iter().enumerate() {
                client.send_to(&[number as u8], relay.address()).unwrap();
                let (datagram, from) = receive(&server);
                assert_eq!((&datagram[..], from.port()), (&[number as u8][..], relay.ports()[number]));
            }
            for (number, port) in relay.ports().into_iter().enumerate() {
                let back = SocketAddr::new(relay.address().ip(), port);
                // Only datagrams of the server reach a client.
                socket(address).send_to(b"foreign", back).unwrap();
                server.send_to(&[number as u8, 1], back).unwrap();
            }
            for (number, client) in clients.iter().enumerate() {
                assert_eq!(receive(client), (vec![number as u8, 1], relay.address()));
            }
            assert_eq!((relay.clients(), relay.stats(Way::Back).delivered), (3, 3));
        }
    }

    #[test]
    fn a_seed_loses_the_same_datagrams_of_real_sockets_again() {
        let arrived = |seed: u64| {
            let server = socket(V4);
            let relay = Relay::to(server.local_addr().unwrap()).seed(seed);
            let relay = relay.link(Way::There, |link| link.latency(ms(3)).loss(0.3).duplicate(0.1)).start();
            let client = socket(V4);
            for number in 0..200u8 {
                client.send_to(&[number], relay.address()).unwrap();
            }
            let total = || relay.stats(Way::There);
            while total().sent < 200 || total().delivered + total().lost < 200 + total().duplicated {
                std::thread::sleep(ms(1));
            }
            let numbers: Vec<u8> = (0..total().delivered).map(|_| receive(&server).0[0]).collect();
            assert!((20..100).contains(&total().lost) && relay.lateness(0.5) < secs(1));
            numbers
        };
        assert_eq!(arrived(3), arrived(3));
        assert_ne!(arrived(3), arrived(4));
    }

    #[test]
    fn a_narrow_line_counts_the_bytes_that_its_queue_drops() {
        let server = socket(V4);
        // At this rate, the first datagram leaves after ten seconds.
        let narrow = |link: Link| link.rate(80).queue_bytes(300);
        let relay = Relay::to(server.local_addr().unwrap()).link(Way::There, narrow).start();
        let client = socket(V4);
        for _ in 0..5 {
            client.send_to(&[0; 100], relay.address()).unwrap();
        }
        while relay.stats(Way::There).sent < 5 {
            std::thread::sleep(ms(1));
        }
        let found = relay.bottleneck_bytes(Way::There);
        assert_eq!(found, BottleneckBytes { offered: 500, overflowed: 200 });
        assert_eq!(relay.bottleneck_bytes(Way::Back), BottleneckBytes::default());
    }

    #[test]
    fn one_direction_is_dark_and_then_is_not() {
        let server = socket(V4);
        let relay = Relay::to(server.local_addr().unwrap()).start();
        let client = socket(V4);
        client.send_to(b"1", relay.address()).unwrap();
        let (_, back) = receive(&server);
        relay.darken(Way::Back, secs(3600));
        server.send_to(b"lost", back).unwrap();
        client.send_to(b"2", relay.address()).unwrap();
        assert_eq!(receive(&server).0, b"2");
        receives_nothing(&client);
        assert_eq!((relay.stats(Way::Back).dark, relay.stats(Way::There).dark), (1, 0));
        relay.blackout(secs(3600));
        client.send_to(b"3", relay.address()).unwrap();
        receives_nothing(&server);
        assert_eq!(relay.stats(Way::There).dark, 1);
    }

    #[test]
    fn a_nat_that_forgets_gives_another_port_and_the_old_one_is_dead() {
        let server = socket(V4);
        let relay = Relay::to(server.local_addr().unwrap()).start();
        let client = socket(V4);
        client.send_to(b"1", relay.address()).unwrap();
        let (_, before) = receive(&server);
        relay.rebind();
        server.send_to(b"lost", before).unwrap();
        client.send_to(b"2", relay.address()).unwrap();
        let (_, after) = receive(&server);
        assert_ne!(before, after);
        server.send_to(b"found", after).unwrap();
        assert_eq!(receive(&client).0, b"found");
        assert_eq!(relay.clients(), 1);
    }

    #[test]
    fn large_datagrams_vanish_and_the_tap_sees_them() {
        let server = socket(V4);
        let seen = Arc::new(Mutex::new(0));
        let tap = Arc::clone(&seen);
        let relay = Relay::to(server.local_addr().unwrap())
            .links(|link| link.mtu(1252))
            .tap(move |_, datagram| *tap.lock().unwrap() += datagram.len())
            .tos(0x8a)
            .start();
        let client = socket(V4);
        client.send_to(&[0; 1253], relay.address()).unwrap();
        client.send_to(&[0; 1252], relay.address()).unwrap();
        assert_eq!(receive(&server).0.len(), 1252);
        assert_eq!((relay.stats(Way::There).too_big, *seen.lock().unwrap()), (1, 2505));
    }
}
