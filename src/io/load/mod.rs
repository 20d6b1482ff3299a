//! The loop of the load generator: many peers of `bench`, each with sockets of its own. One thread drives them in
//! the same way as a worker drives its sessions (`driver`).
//!
//! The time stamp of received bytes is taken after their read, that of sent bytes before their write. [`run()`]
//! makes a whole run, with several threads.

mod floor;
mod generator;
pub mod process;
mod run;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::Poll;
use rustls::ClientConfig;

use super::clock;
use super::driver::{Bounds, Driver, TlsClient};
use super::tls::load_client;
use crate::bench::{Now, Peer, Role, Score, Sockets, Tally, Target};
use crate::protocol::PathId;
use generator::Generator;

pub use floor::measure_floor;
pub use run::run;

/// Limits of the loop. A turn reads all available input and writes all that the sockets accept: a load generator
/// that held back would measure itself.
const BOUNDS: Bounds = Bounds {
    read: 256 * 1024,
    read_turn: usize::MAX,
    write_turn: usize::MAX,
    catch_up_turn: 0,
    receives_turn: 1024,
    handshakes_turn: u32::MAX,
    udp_bursts: true,
    settle: Duration::ZERO,
};

/// The destination of a connection.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The address.
    pub address: SocketAddr,
    /// The name to verify, and the TLS settings; `None` for connections without TLS.
    pub tls: Option<(String, Arc<ClientConfig>)>,
    /// The kind of sockets to open.
    pub sockets: Sockets,
}

impl Destination {
    /// Resolves the name of the target. Blocks until it is resolved.
    ///
    /// # Errors
    /// The name does not exist, or TLS cannot be set up.
    pub fn resolve(target: &Target, insecure: bool) -> io::Result<Self> {
        let host = target.host();
        let mut addresses = (host, target.port()).to_socket_addrs()?;
        let address = addresses.next().ok_or_else(|| io::Error::other("the name has no address"))?;
        let mut to = Self::to(address, target.is_tls(), target.sockets(), insecure)?;
        if let Some((name, _)) = &mut to.tls {
            host.clone_into(name);
        }
        Ok(to)
    }

    /// Makes the destination of an address, without resolving a name.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn to(address: SocketAddr, tls: bool, sockets: Sockets, insecure: bool) -> io::Result<Self> {
        let config = tls.then(|| load_client(insecure)).transpose().map_err(io::Error::other)?;
        Ok(Self { address, tls: config.map(|config| (address.ip().to_string(), config)), sockets })
    }

    /// Returns the TLS settings, if any.
    fn tls_client(&self) -> Option<TlsClient> {
        let (name, config) = self.tls.as_ref()?;
        Some(TlsClient { name: name.as_str().into(), config: Arc::clone(config) })
    }

    /// Returns the local address from which this machine reaches the server. The port is 0, so that the kernel
    /// selects one.
    fn own_port(&self) -> io::Result<SocketAddr> {
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let probe = UdpSocket::bind((any, 0))?;
        probe.connect(self.address)?;
        Ok(SocketAddr::new(probe.local_addr()?.ip(), 0))
    }
}

/// The outcome of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The number given by the owner.
    pub tag: usize,
    /// True if the server has admitted the peer.
    pub ready: bool,
    /// The reason why the connection has ended; `None` while it is open.
    pub gone: Option<&'a str>,
    /// The units received or missed.
    pub score: Score,
}

/// Figures of publishers and of players. The loop of a benchmark may contain both.
#[derive(Debug)]
struct Tallies {
    published: Tally,
    played: Tally,
}

impl Tallies {
    const fn of(&mut self, role: Role) -> &mut Tally {
        match role {
            Role::Publish => &mut self.published,
            Role::Play => &mut self.played,
        }
    }

    /// Counts bytes that a peer of this role has received. Only bytes of players count, not the server's replies to
    /// publishers.
    fn received(&mut self, role: Role, bytes: usize) -> &mut Tally {
        let tally = self.of(role);
        if role == Role::Play {
            tally.bytes += u64::try_from(bytes).unwrap_or(0);
        }
        tally
    }

    /// Counts bytes that a peer of this role has sent. Only bytes of publishers count.
    fn sent(&mut self, role: Role, bytes: usize) {
        if role == Role::Publish {
            self.published.bytes += u64::try_from(bytes).unwrap_or(0);
        }
    }
}

/// The loop of the load generator.
#[derive(Debug)]
pub struct Load {
    driver: Driver,
    generator: Generator,
    /// True if the loop never sleeps. On loopback, the server would pay for each wake-up of the reader.
    spin: bool,
}

impl Load {
    /// Makes a loop without connections. Units that are delayed by more than `late` count as late.
    ///
    /// # Errors
    /// The system provides no poll.
    pub fn new(late: Duration, spin: bool) -> io::Result<Self> {
        let tallies = Tallies { published: Tally::new(late), played: Tally::new(late) };
        Ok(Self {
            driver: Driver::new(Poll::new()?, BOUNDS, Arc::default()),
            generator: Generator::new(tallies),
            spin,
        })
    }

    /// Returns the current time for peers. The wall clock is read only once: figures are differences of time stamps
    /// and must not jump when the clock is set.
    #[must_use]
    pub fn now() -> Now {
        static BEGAN: OnceLock<Now> = OnceLock::new();
        let began = BEGAN.get_or_init(|| {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Now { mono: Instant::now(), unix_nanos: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX) }
        });
        began.later(Instant::now())
    }

    /// Opens a connection. `tag` is the number that the owner gives it.
    ///
    /// # Errors
    /// The system refuses, e.g. because there are no free descriptors.
    pub fn open(&mut self, to: &Arc<Destination>, peer: Box<dyn Peer>, tag: usize) -> io::Result<()> {
        let (stream, datagrams) = self.generator.next_ids();
        let path = PathId::default();
        let local = match to.sockets {
            Sockets::Stream => None,
            Sockets::Datagrams => {
                self.driver.open_udp(datagrams, path, None, Some(to.address))?;
                None
            }
            Sockets::StreamAndDatagrams => {
                self.driver.open_udp(datagrams, path, Some(to.own_port()?), None)?
            }
        };
        if to.sockets != Sockets::Datagrams {
            let connected = self.driver.connect(stream, to.address, to.tls_client());
            connected.inspect_err(|_| self.driver.close_udp(datagrams, path))?;
        }
        self.generator.add(peer, tag, to, local);
        self.driver.drain(clock::now(), &mut self.generator);
        Ok(())
    }

    /// Waits for events, but not longer than until `limit`, and handles them.
    ///
    /// # Errors
    /// The poll failed.
    pub fn turn(&mut self, limit: Instant) -> io::Result<()> {
        let patience =
            if self.spin { Some(Duration::ZERO) } else { self.driver.patience(&self.generator, [limit]) };
        self.driver.poll(patience)?;
        let now = clock::now();
        // All sockets belong to the driver, so there are no other tokens.
        self.driver.take_events(now, &mut self.generator, |_| {});
        self.driver.read_ready(now, &mut self.generator);
        self.driver.finish(now, &mut self.generator);
        Ok(())
    }

    /// Runs turns for this time.
    ///
    /// # Errors
    /// The poll failed.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    /// Number of connections that are neither ready nor gone.
    #[must_use]
    pub const fn unsettled(&self) -> usize {
        self.generator.unsettled()
    }

    /// Clears the figures at the beginning of the measured time.
    pub fn clear(&mut self) {
        let tallies = &mut self.generator.tallies;
        tallies.published.clear();
        tallies.played.clear();
    }

    /// The figures of the peers of a role.
    #[must_use]
    pub const fn tally(&self, role: Role) -> &Tally {
        match role {
            Role::Publish => &self.generator.tallies.published,
            Role::Play => &self.generator.tallies.played,
        }
    }

    /// All connections, in the order they were opened.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.generator.outcomes()
    }

    /// Makes publishers stop after their next video frame.
    pub fn finish(&mut self) {
        self.generator.finish();
    }

    /// Closes all connections as their protocols require. Connections that end because of this do not count as
    /// lost.
    pub fn close(&mut self) {
        self.generator.close();
        self.driver.drain(clock::now(), &mut self.generator);
    }
}

#[cfg(test)]
mod tests;
