//! Tests with two ends in memory. `hostile` has a hostile peer, `drops` has loss and reordering, `modern` has
//! DTLS 1.3.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test")]

mod drops;
mod hostile;
mod modern;

use netsim::{Clock, ms, secs};

use super::*;
use crate::config::{PeerCheck, Versions};
use crate::srtp::SrtpProfile;
use crate::suite::CipherSuite;
use crate::testing::identity;

fn config(number: usize) -> Config {
    Config { identity: Some(identity(number)), receives_data: true, ..Config::default() }
}

/// Two ends that know each other's fingerprints, and have not started yet.
struct Ends {
    clock: Clock,
    client: Connection,
    server: Connection,
}

impl Ends {
    fn new(client: Config, server: Config) -> Self {
        let clock = Clock::new();
        let prints =
            |config: &Config| config.identity.iter().map(|own| own.fingerprint()).collect::<Vec<_>>();
        let (of_client, of_server) = (prints(&client), prints(&server));
        let mut client = Connection::client(Arc::new(client), Seed::from_number(11));
        let mut server = Connection::server(Arc::new(server), Seed::from_number(12));
        client.set_remote_fingerprints(clock.now(), of_server);
        server.set_remote_fingerprints(clock.now(), of_client);
        Self { clock, client, server }
    }

    fn start(mut self) -> Self {
        self.client.start(self.clock.now());
        self.server.start(self.clock.now());
        self
    }

    /// Delivers datagrams between the ends until neither end sends any more.
    fn run(&mut self) {
        for _ in 0..20 {
            let sent = sent(&mut self.client, self.clock.now());
            deliver(&mut self.server, self.clock.now(), &sent);
            let answered = self::sent(&mut self.server, self.clock.now());
            deliver(&mut self.client, self.clock.now(), &answered);
            if sent.is_empty() && answered.is_empty() {
                return;
            }
        }
        panic!("no end");
    }

    fn connected(client: Config, server: Config) -> (Self, Connected, Connected) {
        let mut ends = Self::new(client, server).start();
        ends.run();
        let of = |end: &mut Connection| match end.poll_event() {
            Some(Event::Connected(connected)) => *connected,
            other => panic!("{other:?}"),
        };
        let (a, b) = (of(&mut ends.client), of(&mut ends.server));
        (ends, a, b)
    }

    /// Runs until there is nothing to do, and returns the close reasons of both ends.
    fn reasons(mut self) -> (CloseReason, CloseReason) {
        self.run();
        (reason(&mut self.client), reason(&mut self.server))
    }
}

fn sent(end: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = Datagrams::new();
    while end.poll_transmit(now, &mut out) {
        all.extend((0..out.len()).map(|n| out.get(n).to_vec()));
        out.clear();
    }
    all
}

fn deliver(end: &mut Connection, now: Instant, datagrams: &[Vec<u8>]) {
    datagrams.iter().for_each(|datagram| end.handle_datagram(now, &mut datagram.clone()));
}

#[track_caller]
fn reason(end: &mut Connection) -> CloseReason {
    match end.poll_event() {
        Some(Event::Closed(reason)) => {
            assert_eq!(end.poll_event(), None);
            assert_eq!(end.poll_timeout(), None);
            reason
        }
        other => panic!("{other:?}"),
    }
}

fn refused(failure: Failure) -> (CloseReason, CloseReason) {
    (CloseReason::Alert(failure.alert()), CloseReason::Failed(failure))
}

#[test]
fn both_ends_connect_and_have_the_same_keys() {
    for (client, server, suite) in [
        (1, 2, CipherSuite::EcdheEcdsaAes128Gcm),
        (0, 2, CipherSuite::EcdheEcdsaAes128Gcm),
        (1, 0, CipherSuite::EcdheRsaAes128Gcm),
    ] {
        let (mut ends, a, b) = Ends::connected(config(client), config(server));
        assert_eq!((a.suite, &a.srtp), (suite, &b.srtp));
        assert_eq!(a.srtp.unwrap().0, SrtpProfile::AeadAes128Gcm);
        assert_eq!(&a.peer_sha256.unwrap()[..], identity(server).fingerprint().digest());
        assert_eq!(&b.peer_sha256.unwrap()[..], identity(client).fingerprint().digest());
        let export = |end: &Connection, context| {
            let mut out = [0; 40];
            end.export("EXPERIMENTAL label", context, &mut out).unwrap();
            out
        };
        assert_eq!(export(&ends.client, None), export(&ends.server, None));
        assert_ne!(export(&ends.client, None), export(&ends.server, Some(b"")));
        assert_eq!(ends.client.export("master secret", None, &mut [0; 4]), Err(Error::Export));
        ends.client.send(b"question").unwrap();
        ends.server.send(b"answer").unwrap();
        ends.run();
        assert_eq!(ends.client.poll_event(), Some(Event::Data("answer".into())));
        assert_eq!(ends.server.poll_event(), Some(Event::Data("question".into())));
    }
}

/// Returns epoch, sequence number and type of each record, in the order sent.
fn records(datagrams: &[Vec<u8>]) -> Vec<(u16, u64, ContentType)> {
    let mut heads = Vec::new();
    for datagram in datagrams {
        let mut r = wire::Reader::new(datagram);
        while !r.is_empty() {
            let head = crate::record::RecordHead::read(&mut r).unwrap();
            r.take(head.length).unwrap();
            heads.push((head.epoch, head.sequence, head.kind));
        }
    }
    heads
}

/// Runs until the server is connected but has not sent its last flight. Returns the ends and the client's last
/// flight.
fn server_before_its_last_flight() -> (Ends, Vec<Vec<u8>>) {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    let flight = sent(&mut ends.server, now);
    deliver(&mut ends.client, now, &flight);
    let last = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &last);
    assert!(ends.server.is_connected());
    (ends, last)
}

#[test]
fn d_11_records_leave_in_the_order_of_their_numbers() {
    let (finished, data) = (ContentType::HANDSHAKE, ContentType::APPLICATION_DATA);
    let (mut ends, _) = server_before_its_last_flight();
    // Data that the owner sends on `Connected` follows the flight that is sent with the event.
    ends.server.send(b"first").unwrap();
    ends.server.send(b"second").unwrap();
    let protected =
        |left: &[Vec<u8>]| records(left).into_iter().filter(|(epoch, ..)| *epoch == 1).collect::<Vec<_>>();
    let left = sent(&mut ends.server, ends.clock.now());
    assert_eq!(protected(&left), [(1, 0, finished), (1, 1, data), (1, 2, data)]);

    // The server's flight was lost, so the client repeats its own. The server sends its flight again, after the
    // application data that was waiting, and before data that is sent later.
    let mut repeat = |behind: &[&[u8]]| {
        ends.clock.advance(secs(1));
        let now = ends.clock.now();
        ends.client.handle_timeout(now);
        let again = sent(&mut ends.client, now);
        ends.server.send(b"waits").unwrap();
        deliver(&mut ends.server, now, &again);
        behind.iter().for_each(|data| ends.server.send(data).unwrap());
        sent(&mut ends.server, now)
    };
    assert_eq!(protected(&repeat(&[])), [(1, 3, data), (1, 4, finished)]);
    let left = repeat(&[b"behind"]);
    assert_eq!(protected(&left), [(1, 5, data), (1, 6, finished), (1, 7, data)]);
    let now = ends.clock.now();
    deliver(&mut ends.client, now, &left);
    assert!(matches!(ends.client.poll_event(), Some(Event::Connected(_))));
    assert_eq!(ends.client.poll_event(), Some(Event::Data("behind".into())));
}

#[test]
fn d_18_who_closes_as_soon_as_it_is_connected_has_finished_the_handshake() {
    let (mut ends, _) = server_before_its_last_flight();
    ends.server.close(ends.clock.now());
    let left = sent(&mut ends.server, ends.clock.now());
    let kinds: Vec<_> = records(&left).into_iter().map(|(epoch, _, kind)| (epoch, kind)).collect();
    let expected =
        [(0, ContentType::CHANGE_CIPHER_SPEC), (1, ContentType::HANDSHAKE), (1, ContentType::ALERT)];
    assert_eq!(kinds, expected);
    deliver(&mut ends.client, ends.clock.now(), &left);
    assert!(matches!(ends.client.poll_event(), Some(Event::Connected(_))));
    assert_eq!(reason(&mut ends.client), CloseReason::Peer);
    assert!(matches!(ends.server.poll_event(), Some(Event::Connected(_))));
    assert_eq!(reason(&mut ends.server), CloseReason::Local);
    assert!(ends.server.is_over());
}

#[test]
fn what_is_sent_again_is_cut_to_the_mtu_of_the_moment() {
    let mut ends = Ends::new(config(1), config(2)).start();
    let hello = sent(&mut ends.client, ends.clock.now());
    deliver(&mut ends.server, ends.clock.now(), &hello);
    let mut lengths = vec![sent(&mut ends.server, ends.clock.now()).concat().len()];
    for mtu in [300, 299, 1200] {
        ends.server.set_mtu(mtu);
        ends.clock.advance(secs(1));
        ends.server.handle_timeout(ends.clock.now());
        let flight = sent(&mut ends.server, ends.clock.now());
        assert!(flight.iter().all(|datagram| datagram.len() <= mtu));
        assert_eq!(flight.iter().any(|datagram| datagram.len() > 300), mtu == 1200);
        lengths.push(flight.concat().len());
        if mtu == 1200 {
            deliver(&mut ends.client, ends.clock.now(), &flight);
        }
    }
    assert_eq!(lengths[0], lengths[3]);
    assert_eq!(ends.server.payload_max(), 1200 - HEAD_BYTES - PROTECTION_BYTES);
    ends.run();
    assert!(ends.client.is_connected() && ends.server.is_connected());
}

#[test]
fn a_session_holds_little() {
    let (ends, ..) = Ends::connected(config(1), config(2));
    for end in [&ends.client, &ends.server] {
        assert!(end.held_bytes() < 2048, "{}", end.held_bytes());
        assert_eq!(end.poll_timeout(), None);
    }
}

#[test]
fn the_server_chooses_the_profile() {
    use SrtpProfile::*;
    for (client, server, chosen) in [
        (
            vec![Aes128CmSha1_80, AeadAes256Gcm, AeadAes128Gcm],
            vec![AeadAes128Gcm, Aes128CmSha1_80],
            Some(AeadAes128Gcm),
        ),
        (vec![Aes128CmSha1_80], vec![AeadAes128Gcm, Aes128CmSha1_80], Some(Aes128CmSha1_80)),
        (vec![AeadAes256Gcm, Aes128CmSha1_32], vec![Aes128CmSha1_32, AeadAes256Gcm], Some(Aes128CmSha1_32)),
        (vec![AeadAes256Gcm], vec![AeadAes256Gcm], Some(AeadAes256Gcm)),
        (vec![AeadAes256Gcm], vec![], None),
    ] {
        let with = |number, srtp_profiles| Config { srtp_profiles, ..config(number) };
        if chosen.is_none() {
            let reasons = Ends::new(with(1, client), with(2, server)).start().reasons();
            let failure = Failure::NoCommonSrtpProfile;
            assert_eq!(reasons, (CloseReason::Failed(failure), CloseReason::Alert(failure.alert())));
            continue;
        }
        let (_, a, b) = Ends::connected(with(1, client), with(2, server));
        assert_eq!(a.srtp, b.srtp);
        assert_eq!(a.srtp.map(|(profile, _)| profile), chosen);
    }
}

const SPOKEN: [Versions; 3] = [Versions::Only12, Versions::Only13, Versions::Both];

/// Checks that a public port keeps no state before the client returns its cookie.
#[test]
fn d_01_an_unauthenticated_peer_gets_a_cookie_and_nothing_is_kept() {
    for (versions, mtu) in SPOKEN.into_iter().flat_map(|versions| [(versions, 1200), (versions, 150)]) {
        // A hello in fragments does not fit into a cookie: it is answered with DTLS 1.2, or not at all.
        if versions == Versions::Only13 && mtu == 150 {
            continue;
        }
        let server = Config { cookie: true, versions, ..config(2) };
        let client = Config { mtu, versions, ..config(1) };
        let (ends, one, other) = Ends::connected(client.clone(), server.clone());
        assert_eq!(ends.server.stats().retransmits, 0);
        assert_eq!(one.srtp, other.srtp);
        let is_13 = versions != Versions::Only12 && mtu == 1200;
        assert_eq!(CipherSuite::V13.contains(&one.suite), is_13, "{versions:?} {mtu}");

        // A thousand clients with fragmented hellos: each gets one reply, which is shorter than the request.
        let mut ends = Ends::new(client, server).start();
        let hello = sent(&mut ends.client, ends.clock.now());
        let held = ends.server.held_bytes();
        for _ in 0..1000 {
            deliver(&mut ends.server, ends.clock.now(), &hello);
            let reply = sent(&mut ends.server, ends.clock.now());
            assert_eq!(reply.len(), 1);
            assert!(reply[0].len() < hello[0].len());
        }
        assert_eq!(ends.server.held_bytes(), held);
    }
}

#[test]
fn d_01_the_cookie_verifier_passes_who_has_the_cookie_for_its_address() {
    for versions in SPOKEN {
        let clock = Clock::new();
        let verifier = CookieVerifier::new(&Seed::from_number(5), versions);
        let address = |text: &str| text.parse().unwrap();
        let from = address("192.0.2.1:4000");
        let with = |number| Arc::new(Config { versions, ..config(number) });
        let mut client = Connection::client(with(1), Seed::from_number(6));
        client.set_remote_fingerprints(clock.now(), vec![identity(2).fingerprint()]);
        client.start(clock.now());
        let hello = sent(&mut client, clock.now());
        let mut reply = Vec::new();
        assert_eq!(verifier.check(from, &hello[0], &mut reply), crate::Checked::Reply);
        client.handle_datagram(clock.now(), &mut reply);
        let hello = sent(&mut client, clock.now());
        // With DTLS 1.3, another hello is requested only once, so an invalid cookie is not answered.
        let refused = if versions == Versions::Only12 { crate::Checked::Reply } else { crate::Checked::Drop };
        for (verifier, from, passes) in [
            (&verifier, from, crate::Checked::Pass),
            (&verifier, address("192.0.2.1:4001"), refused),
            (&verifier, address("192.0.2.2:4000"), refused),
            (&CookieVerifier::new(&Seed::from_number(7), versions), from, refused),
        ] {
            assert_eq!(verifier.check(from, &hello[0], &mut Vec::new()), passes);
        }
        // A session accepts a cookie only in the client's second message, so the verifier passes no later one.
        let mut ahead = hello[0].clone();
        ahead[13 + 4..13 + 6].copy_from_slice(&7u16.to_be_bytes());
        assert_eq!(verifier.check(from, &ahead, &mut Vec::new()), refused, "{versions:?}");
        for cut in 0..hello[0].len() {
            verifier.check(from, &hello[0][..cut], &mut Vec::new());
        }
        let mut server = Connection::server_with_cookie(with(2), Seed::from_number(8));
        server.set_remote_fingerprints(clock.now(), vec![identity(1).fingerprint()]);
        server.start(clock.now());
        deliver(&mut server, clock.now(), &hello);
        let mut ends = Ends { clock, client, server };
        ends.run();
        assert!(ends.client.is_connected() && ends.server.is_connected(), "{versions:?}");
        assert_eq!(matches!(ends.server.phase, Phase::Modern(_)), versions != Versions::Only12);
    }
}

#[test]
fn d_03_nothing_is_processed_before_the_start() {
    let mut ends = Ends::new(config(1), config(2));
    ends.client.start(ends.clock.now());
    let hello = sent(&mut ends.client, ends.clock.now());
    let held = ends.server.held_bytes();
    for _ in 0..1000 {
        deliver(&mut ends.server, ends.clock.now(), &hello);
    }
    assert_eq!(sent(&mut ends.server, ends.clock.now()), [[0u8; 0]; 0]);
    assert_eq!((ends.server.held_bytes(), ends.server.poll_timeout()), (held, None));
    assert_eq!(ends.server.stats().dropped_idle, 1000 * hello.len() as u64);
    ends.server.start(ends.clock.now());
    ends.clock.advance(ms(50));
    ends.client.handle_timeout(ends.clock.now());
    ends.run();
    assert!(ends.server.is_connected());
}

#[test]
fn d_02_the_certificate_must_be_the_announced_one() {
    let own = |number: usize| identity(number).fingerprint();
    let of = |hash: &str, number: usize| {
        let digest = match hash {
            "sha-384" => crypto::Hash::Sha384,
            _ => crypto::Hash::Sha512,
        };
        Fingerprint::new(hash, &digest.digest(identity(number).certificate())).unwrap()
    };
    let fits = None;
    for (prints, failure) in [
        (vec![own(1)], fits),
        (vec![own(2), own(1)], fits),
        (vec![of("sha-384", 2), of("sha-512", 1)], fits),
        (vec![of("sha-384", 1)], fits),
        (vec![own(2)], Some(Failure::Fingerprint)),
        (vec![of("sha-512", 2), own(0)], Some(Failure::Fingerprint)),
        // A description without fingerprints, or with SHA-1 only, yields an empty list.
        (vec![], Some(Failure::NoFingerprint)),
    ] {
        for client_checks in [false, true] {
            let mut ends =
                if client_checks { Ends::new(config(2), config(1)) } else { Ends::new(config(1), config(2)) };
            let checks = if client_checks { &mut ends.client } else { &mut ends.server };
            checks.set_remote_fingerprints(ends.clock.now(), prints.clone());
            let mut ends = ends.start();
            ends.run();
            let Some(failure) = failure else {
                assert!(ends.client.is_connected() && ends.server.is_connected());
                continue;
            };
            let (here, there) = if client_checks {
                (reason(&mut ends.client), reason(&mut ends.server))
            } else {
                (reason(&mut ends.server), reason(&mut ends.client))
            };
            assert_eq!((there, here), refused(failure), "{prints:?}");
        }
    }
}

#[test]
fn d_02_no_certificate_is_no_peer() {
    let nobody = Config { identity: None, ..config(1) };
    assert_eq!(Ends::new(nobody, config(2)).start().reasons(), refused(Failure::NoCertificate));
}

#[test]
fn d_02_the_certificate_waits_for_its_announcement() {
    let now = Clock::new().now();
    let mut ends = Ends::new(config(1), config(2));
    ends.client = Connection::client(Arc::new(config(1)), Seed::from_number(1));
    ends.server = Connection::server(Arc::new(config(2)), Seed::from_number(2));
    let mut ends = ends.start();
    ends.run();
    assert!(!ends.client.is_connected());
    ends.client.set_remote_fingerprints(now, vec![identity(2).fingerprint()]);
    ends.run();
    assert!(!ends.server.is_connected());
    ends.server.set_remote_fingerprints(now, vec![identity(1).fingerprint()]);
    ends.clock.advance(ms(60));
    ends.client.handle_timeout(ends.clock.now());
    ends.run();
    assert!(ends.client.is_connected() && ends.server.is_connected());

    // The fingerprints are never set: the handshake times out.
    let mut ends = Ends::new(config(1), config(2));
    ends.server = Connection::server(Arc::new(config(2)), Seed::from_number(2));
    let mut ends = ends.start();
    ends.run();
    ends.clock.advance(secs(10));
    ends.server.handle_timeout(ends.clock.now());
    assert_eq!(reason(&mut ends.server), CloseReason::Timeout);
}

#[test]
fn peers_without_a_known_certificate_may_connect_where_that_is_wanted() {
    let open = |number: usize, check| Config { check, ..config(number) };
    let (_, a, b) = Ends::connected(open(1, PeerCheck::AnyCertificate), open(2, PeerCheck::AnyCertificate));
    assert!(a.peer_sha256.is_some() && b.peer_sha256.is_some());
    let (_, a, b) = Ends::connected(open(1, PeerCheck::Nobody), open(2, PeerCheck::Nobody));
    assert!(a.peer_sha256.is_some() && b.peer_sha256.is_none());
}
