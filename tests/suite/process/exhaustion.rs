//! a process without free descriptors; and the memory of a server after a flood.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::super::support::{Bystander, Server, run, secs, wait_for};

/// Number of free descriptors that the test leaves to the process. The limit is lowered only after the start of the
/// process, which therefore tries to accept more connections than that.
const LEFT: usize = 20;

/// Returns the CPU time that the server uses during 1.5 s.
fn cpu_of_a_while(server: &Server) -> Duration {
    let before = server.cpu();
    std::thread::sleep(Duration::from_millis(1500));
    server.cpu().saturating_sub(before)
}

#[test]
fn q_01_without_descriptors_accepting_pauses_and_streams_run() {
    let mut server = Server::start(&["server.workers=2"]);
    let bystander = Bystander::start(&server);
    let files = server.open_files() + LEFT;
    // With this many open files, no descriptor is left: a thread that waits in `accept` (for the control socket) has
    // already reserved the next descriptor, which `/proc` does not show.
    let used_up = files - 2;
    let mut limit = Command::new("prlimit");
    limit.arg(format!("--pid={}", server.pid())).arg(format!("--nofile={files}:{files}"));
    assert!(run(&mut limit).0.success());

    let calm = cpu_of_a_while(&server);
    // Opens more connections than there are descriptors. The others wait in the backlog of the listener.
    let held: Vec<TcpStream> = (0..files * 2)
        .map(|n| TcpStream::connect(if n % 2 == 0 { server.http } else { server.rtmp }).unwrap())
        .collect();
    wait_for("the descriptors to be used up", secs(10), || server.open_files() >= used_up);
    let exhausted = cpu_of_a_while(&server);
    assert!(server.open_files() >= used_up, "the span was to be one without descriptors");
    let ratio = exhausted.as_secs_f64() / calm.as_secs_f64();
    assert!(ratio < 4.0, "{calm:?} in a while with descriptors, {exhausted:?} in one without: {ratio}");

    drop(held);
    wait_for("new connections to be served again", secs(20), || {
        let reply = server.api().try_call("GET", "/live/rest/v2/version", None);
        reply.is_some_and(|reply| reply.status == 200)
    });
    bystander.finish(&mut server);
}

/// Opens many connections, sends an incomplete body of `bytes` on each, and closes them.
fn flood_with_bodies(server: &Server, bytes: usize) {
    let chunk = format!("{bytes:x}\r\n{}\r\n", "x".repeat(bytes));
    let head = "POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let peers: Vec<TcpStream> = (0..32)
        .map(|_| {
            let mut peer = TcpStream::connect(server.http).unwrap();
            peer.write_all(head.as_bytes()).unwrap();
            peer.write_all(chunk.as_bytes()).unwrap();
            peer
        })
        .collect();
    // When this request of a later connection is answered, the server has read the bodies.
    server.api().get("/live/rest/v2/version");
    drop(peers);
}

/// Memory in kB that a server may keep after a flood: besides small objects, one page of the allocator (4 MiB), because
/// the list of connections, which has grown, may lie between the bodies.
const KEPT_KB: u64 = 7 << 10;

/// Checks that an idle server returns the memory of bodies. Sends bodies of many sizes, because the allocator keeps the
/// last empty page of each block size for its thread. No request follows the bodies.
#[test]
fn h_10_an_idle_server_gives_back_what_bodies_took() {
    let server = Server::start(&["server.workers=1"]);
    server.api().get("/live/rest/v2/version");
    let (files, threads, before) = (server.open_files(), server.threads(), server.rss_kb());
    let taken = [9_000, 20_000, 40_000, 70_000, 120_000, 200_000, 250_000].map(|bytes| {
        flood_with_bodies(&server, bytes);
        server.rss_kb()
    });
    assert!(taken[6] > before + 2 * KEPT_KB, "{before} before, {taken:?}");
    server.wait_for_rest(files, threads);
    wait_for("memory to be given back", secs(60), || server.rss_kb() <= before + KEPT_KB);
}
