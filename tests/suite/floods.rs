//! H-23, H-28, H-29, M-02, M-27: floods from a few addresses, and the service to other addresses during the floods.
//!
//! Each test counts the honest peers that are served before the flood and during it, and prints both numbers (`cargo
//! test --test suite floods -- --nocapture`).

mod srt;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use rtmp::MediaKind;

use crate::support::{Home, RtmpPeer, Server, connect_from, ms, secs, wait_for};

/// Number of honest peers, both with and without a flood.
const HONEST: u32 = 28;
/// The address that floods.
const LOUD: &str = "127.0.5.1";
/// Settings under which loopback addresses are limited like any others. A flood is only restricted by the limit that is
/// tested.
const FOREIGN: [&str; 4] = [
    "limits.exempt_loopback=false",
    "limits.new_connections_per_second=1000000",
    "limits.new_connections_burst=1000000",
    "app.remoteAllowedCIDR=127.0.0.0/8",
];
const REQUEST: &[u8] = b"GET /live/rest/v2/version HTTP/1.1\r\nHost: h\r\n\r\n";

fn start(settings: &[&str]) -> Server {
    Server::start(&[&FOREIGN[..], settings].concat())
}

/// Returns an open connection on which a request was answered; `None` if there was no answer.
fn answered(from: &str, to: SocketAddr) -> Option<TcpStream> {
    let mut stream = connect_from(from, to);
    stream.set_read_timeout(Some(secs(5))).unwrap();
    stream.write_all(REQUEST).ok()?;
    let count = stream.read(&mut [0; 4096]).ok()?;
    (count > 0).then_some(stream)
}

/// True if the server has closed the connection. Does not wait.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// True if the server has sent anything or has closed the connection. Does not wait.
fn is_answered_or_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true)
}

fn open(peers: &[TcpStream]) -> usize {
    peers.iter().filter(|peer| !is_closed(peer)).count()
}

/// Returns the number of honest peers that are served, each with its own address.
fn served(net: u32, is_served: impl Fn(&str) -> bool) -> u32 {
    (1..=HONEST).map(|n| u32::from(is_served(&format!("127.0.{net}.{n}")))).sum()
}

fn print(flood: &str, during: u32, without: u32) {
    println!("{flood}: served during the flood {during}, without it {without}, of {HONEST}");
}

#[test]
fn h_28_an_answered_request_frees_no_address_of_its_limits() {
    let server = start(&["limits.connections=300", "limits.connections_per_address=100"]);
    // While connections are being closed to make room, a newcomer may be refused. It tries again, as clients do.
    let is_served = |from: &str| (0..3).any(|_| answered(from, server.http).is_some());
    let without = served(6, is_served);
    let flood: Vec<_> = (0..400).filter_map(|_| answered(LOUD, server.http)).collect();
    let during = served(7, is_served);
    let publisher = RtmpPeer::publish(server.rtmp, "live", "s");
    print("one address, requests answered", during, without);
    assert!(open(&flood) <= 100, "{} of one address", open(&flood));
    assert_eq!((during, without), (HONEST, HONEST));
    assert!(publisher.is_ok(), "{publisher:?}");
}

#[test]
fn h_28_the_address_with_most_gives_way_to_a_newcomer() {
    let server = start(&["limits.unauthenticated=100", "limits.connections_per_address=80"]);
    let is_served = |from: &str| answered(from, server.http).is_some();
    let without = served(6, is_served);
    let quiet: Vec<_> = (1..=10).map(|n| connect_from(&format!("127.0.8.{n}"), server.rtmp)).collect();
    let flood: Vec<_> = (0..80).map(|_| connect_from(LOUD, server.http)).collect();
    let during = (0..4).map(|net| served(10 + net, is_served)).min().unwrap();
    print("one address, silent", during, without);
    assert_eq!((during, without), (HONEST, HONEST));
    assert_eq!(open(&quiet), quiet.len(), "those with one connection each lose none");
    wait_for("the loud address to have less", secs(5), || open(&flood) < 60);
}

/// True if a client that trusts the server's own certificate completes a TLS handshake.
fn shakes_hands(server: &Server, from: &str, to: SocketAddr) -> bool {
    let mut tls = server.tls_client();
    let mut stream = connect_from(from, to);
    stream.set_read_timeout(Some(secs(5))).unwrap();
    while tls.is_handshaking() {
        if tls.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    true
}

/// The beginning of a ClientHello. The rest is never sent.
const HALF_A_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0];

#[test]
fn h_29_half_a_client_hello_keeps_nobody_out() {
    let server = start(&[]);
    let https = server.https.unwrap();
    let is_served = |from: &str| shakes_hands(&server, from, https);
    let without = served(6, is_served);
    let begun = |from: &str| {
        let mut stream = connect_from(from, https);
        let _ = stream.write_all(HALF_A_HELLO);
        stream
    };
    // Opens twice as many connections, from eight addresses, as there may be TLS handshakes in progress.
    let flood: Vec<_> = (0..512).map(|n| begun(&format!("127.0.5.{}", 1 + n % 8))).collect();
    let during = served(7, is_served);
    print("eight addresses, half a ClientHello", during, without);
    assert_eq!((during, without), (HONEST, HONEST));
    assert!(shakes_hands(&server, "127.0.9.1", server.rtmps.unwrap()), "another listener");
    drop(flood);
}

#[test]
fn h_29_a_hello_that_comes_in_pieces_is_waited_for_until_there_are_too_many() {
    let server = start(&["server.workers=1"]);
    let https = server.https.unwrap();
    let begun = |n: u32| {
        let mut stream = connect_from(&format!("127.0.5.{}", 1 + n % 8), https);
        stream.write_all(HALF_A_HELLO).unwrap();
        stream
    };
    let mut hellos: Vec<_> = (0..40).map(begun).collect();
    std::thread::sleep(ms(300));
    assert_eq!(open(&hellos), 40, "there is room for all");
    hellos.extend((40..300).map(begun));
    wait_for("the oldest to give way", secs(3), || open(&hellos[..40]) == 0);
    assert_eq!(open(&hellos[200..]), 100, "the newest are waited for");
}

#[test]
fn h_29_a_peer_that_never_answers_the_server_hello_keeps_nobody_out() {
    let server = start(&[]);
    let https = server.https.unwrap();
    let is_served = |from: &str| shakes_hands(&server, from, https);
    let without = served(6, is_served);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let config = Arc::new(config);
    let asked = |from: &str| {
        let mut tls =
            rustls::ClientConnection::new(Arc::clone(&config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = connect_from(from, https);
        let _ = tls.write_tls(&mut stream);
        stream
    };
    let flood: Vec<_> = (0..384).map(|n| asked(&format!("127.0.5.{}", 1 + n % 12))).collect();
    // Waits until the server has answered or closed all connections, because this test is about clients that are silent
    // after the server's answer.
    wait_for("the flood to be answered", secs(20), || flood.iter().all(is_answered_or_closed));
    let during = served(7, is_served);
    print("twelve addresses, whole ClientHellos and nothing more", during, without);
    assert_eq!((during, without), (HONEST, HONEST));
    drop(flood);
}

#[test]
fn m_02_q_11_idle_connections_beyond_the_descriptors_do_not_wait_for_those_before_them() {
    let home = Home::new();
    let settings = [&FOREIGN[..], &["limits.connections_per_address=4000"]].concat();
    let plain = Server::command(&home.path().join("home"), &settings);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=720:720").arg(plain.get_program()).args(plain.get_args());
    let server = Server::spawn(&mut command).with_home(home);
    let idle: Vec<_> = (0..2000).map(|_| connect_from(LOUD, server.rtmp)).collect();
    wait_for("those that there are no descriptors for to be closed", secs(4), || open(&idle) <= 566);
    assert!(open(&idle) > 300, "the others have their time");
    wait_for("the deadline of all", secs(20), || open(&idle) == 0);
}

/// Publishes this many MiB in a single GOP: without a second key frame, only the size limit drops anything.
fn heavy_publisher(server: &Server, n: u32, mebibytes: u32) -> RtmpPeer {
    let mut peer = RtmpPeer::publish(server.rtmp, "live", &format!("s{n}")).unwrap();
    peer.send_configs().unwrap();
    for frame in 0..mebibytes {
        let kind = if frame == 0 { 0x17 } else { 0x27 };
        let mut body = vec![0x5a; 1 << 20];
        body[..5].copy_from_slice(&[kind, 1, 0, 0, 0]);
        body[5..9].copy_from_slice(&((1u32 << 20) - 9).to_be_bytes());
        body[9] = if frame == 0 { 0x65 } else { 0x41 };
        peer.send(MediaKind::Video, frame * 40, Bytes::from(body)).unwrap();
    }
    peer
}

/// Starts `publishers` publishers from a single address that each send `mebibytes`, waits until the rings are within
/// the budget, and returns by how many MiB the process has grown.
fn grown_by(publishers: u32, mebibytes: u32, budget: u32) -> u64 {
    let server = start(&[&format!("limits.ring_memory={budget}")]);
    let before = server.rss_kb();
    let all: Vec<_> = (0..publishers).map(|n| heavy_publisher(&server, n, mebibytes)).collect();
    let held = || {
        let page = server.api().get("/metrics").body;
        let rows = page.lines().filter(|line| line.starts_with("millstream_worker_ring_bytes"));
        rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    wait_for("the rings to be within their budget", secs(20), || {
        let held = held();
        held > 0.0 && held <= f64::from(budget) * f64::from(1 << 20)
    });
    std::thread::sleep(ms(200));
    let grown = server.rss_kb().saturating_sub(before) >> 10;
    println!(
        "{publishers} publishers of {mebibytes} MiB, a budget of {budget} MiB: {grown} MiB more than idle"
    );
    drop(all);
    grown
}

#[test]
fn m_27_170_publishers_of_one_address_stay_within_the_budget() {
    let grown = grown_by(170, 3, 256);
    assert!(grown < 420, "{grown} MiB");
}

#[test]
fn m_27_all_rings_together_have_a_budget() {
    let grown = grown_by(20, 12, 64);
    assert!(grown < 160, "{grown} MiB");
}

#[test]
fn q_15_memory_of_a_flood_returns_when_it_is_over() {
    let server = start(&["server.workers=1"]);
    let head = "POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                Content-Length: 262000\r\n\r\n";
    let part = [head.as_bytes(), &[b' '; 250_000]].concat();
    let before = server.rss_kb();
    // The second flood uses memory that the first one has left, and this memory must be freed, too.
    for _ in 0..2 {
        let peers: Vec<TcpStream> = (0..600)
            .map(|n| {
                let mut stream = connect_from(&format!("127.0.6.{}", n / 50 + 1), server.http);
                stream.set_write_timeout(Some(secs(5))).unwrap();
                let _ = stream.write_all(&part);
                stream
            })
            .collect();
        wait_for("the bodies to be held", secs(30), || server.rss_kb() > before + (64 << 10));
        drop(peers);
        wait_for("memory to return", secs(60), || server.rss_kb() < before + (48 << 10));
    }
}
