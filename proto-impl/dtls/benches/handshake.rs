//! Measures handshakes per second on a single core, with both ends in memory, compared with the cost of the
//! cryptographic primitives alone.
//!
//! `cargo bench -p millstream-dtls` runs each case for a second; with `--test` (as in `cargo test`), it runs
//! once. Times are CPU times of the thread (`/proc/thread-self/schedstat`), so that other programs do not
//! affect them.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a bench is the shell around the machine: it has a clock and prints"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::{AgreementGroup, AgreementKey, Hash, Seed, SignatureAlgorithm};
use dtls::{Config, Connection, Identity, Versions, public_key};
use wire::Datagrams;

/// CPU time of the thread in nanoseconds.
fn thread_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// Runs `turn` for at least this duration, and returns its mean time in microseconds.
fn measure(least: Duration, mut turn: impl FnMut(u64)) -> f64 {
    let (start, end) = (thread_time(), Instant::now() + least);
    let mut turns = 0u32;
    while turns == 0 || Instant::now() < end {
        turn(u64::from(turns));
        turns += 1;
    }
    Duration::from_nanos(thread_time() - start).as_secs_f64() * 1e6 / f64::from(turns)
}

struct Ends {
    now: Instant,
    configs: [Arc<Config>; 2],
}

impl Ends {
    fn new(versions: Versions) -> Self {
        let config = |number| {
            let identity = Identity::self_signed(&Seed::from_number(number)).unwrap();
            Arc::new(Config { identity: Some(Arc::new(identity)), versions, ..Config::default() })
        };
        Self { now: Instant::now(), configs: [config(1), config(2)] }
    }

    /// Runs a handshake, and returns the time spent by the client and by the server.
    fn shake(&self, number: u64) -> [Duration; 2] {
        let [a, b] = &self.configs;
        let print = |config: &Config| vec![config.identity.as_ref().unwrap().fingerprint()];
        let seed = Seed::from_number(number);
        let mut ends = [
            Connection::client(Arc::clone(a), seed.derive("client", 0)),
            Connection::server(Arc::clone(b), seed.derive("server", 0)),
        ];
        let mut spent = [Duration::ZERO; 2];
        let mut carried: Vec<Vec<u8>> = Vec::new();
        let mut out = Datagrams::new();
        for turn in 0..6 {
            let start = Instant::now();
            let end = &mut ends[turn % 2];
            if turn < 2 {
                end.set_remote_fingerprints(self.now, print(if turn == 0 { b } else { a }));
                end.start(self.now);
            }
            for mut datagram in carried.drain(..) {
                end.handle_datagram(self.now, &mut datagram);
            }
            while end.poll_transmit(self.now, &mut out) {
                carried.extend((0..out.len()).map(|n| out.get(n).to_vec()));
                out.clear();
            }
            spent[turn % 2] += start.elapsed();
        }
        assert!(ends.iter().all(Connection::is_connected));
        spent
    }
}

/// Measures the computations of one end: creating a key, an agreement, a signature, a verification.
fn primitives(least: Duration, group: AgreementGroup) -> [f64; 4] {
    let pkcs8 = crypto::SigningKey::generate_p256().unwrap();
    let signer = crypto::SigningKey::from_pkcs8(&pkcs8).unwrap();
    let identity = Identity::self_signed(&Seed::from_number(1)).unwrap();
    let public = public_key(identity.certificate()).unwrap();
    let algorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);
    let key = |number| AgreementKey::new(group, &mut Seed::from_number(number).random()).unwrap();
    let (mine, peer) = (key(1), key(2).public());
    let message = [7; 1000];
    let signature = signer.sign(algorithm, &message).unwrap();
    [
        measure(least, |number| drop(std::hint::black_box(key(number).public()))),
        measure(least, |_| mine.agree(&peer, |shared| drop(std::hint::black_box(shared.to_vec()))).unwrap()),
        measure(least, |_| drop(std::hint::black_box(signer.sign(algorithm, &message).unwrap()))),
        // The signature is by another key; refusing it costs the same as accepting a valid one.
        measure(least, |_| {
            let _ = std::hint::black_box(public.verify(algorithm, &message, &signature));
        }),
    ]
}

/// Measures and prints the handshakes of a version.
fn handshakes(least: Duration, versions: Versions, name: &str) {
    let ends = Ends::new(versions);
    ends.shake(0);
    let mut spent = [Vec::new(), Vec::new()];
    let both = measure(least, |number| {
        let times = ends.shake(number);
        spent.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
    });
    // Uses the median, since other programs disturb only a few handshakes.
    let [client, server] = spent.map(|mut all| {
        all.sort();
        all[all.len() / 2].as_secs_f64() * 1e6
    });
    println!("{name}, both ends, X25519      {both:7.1} us  {:7.0}/s per core", 1e6 / both);
    println!("  of it the client              {client:7.1} us  {:7.0}/s per core", 1e6 / client);
    println!("  of it the server              {server:7.1} us  {:7.0}/s per core", 1e6 / server);
}

fn main() {
    let once = std::env::args().any(|argument| argument == "--test");
    let least = if once { Duration::ZERO } else { Duration::from_secs(1) };
    handshakes(least, Versions::Only12, "DTLS 1.2");
    handshakes(least, Versions::Only13, "DTLS 1.3");
    for (group, name) in [(AgreementGroup::X25519, "X25519"), (AgreementGroup::P256, "P-256 ")] {
        let [key, agree, sign, verify] = primitives(least, group);
        let bare = key + agree + sign + verify;
        println!("primitives of one end, {name}   {bare:7.1} us  {:7.0}/s per core", 1e6 / bare);
        println!("  key {key:.1}, agreement {agree:.1}, signature {sign:.1}, verification {verify:.1} us");
    }
    let random = measure(least, |number| {
        let mut bytes = [0; 64];
        Seed::from_number(number).random().fill(&mut bytes);
        std::hint::black_box(bytes);
    });
    println!("64 bytes of a seed              {random:7.1} us");
}
