//! H-11, H-12, H-24: what a peer can make the server spend is bounded, and grows no faster than its bytes.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use super::super::support::{Bystander, Server, ms};
use super::{connect, read_answer, read_to_close};

/// CPU time that the server spends on something, the least of some runs: others on the machine only add to it.
fn cost(server: &Server, runs: usize, mut action: impl FnMut()) -> Duration {
    (0..runs)
        .map(|_| {
            let before = server.cpu();
            action();
            server.cpu().saturating_sub(before)
        })
        .min()
        .unwrap()
}

fn assert_linear(what: &str, one: Duration, two: Duration) {
    let ratio = two.as_secs_f64() / one.as_secs_f64();
    println!("{what}: {one:?} {two:?} {ratio}");
    // 2 when each byte costs the same, 4 when each is looked at again with every later one.
    assert!(ratio < 3.0, "{what}: {one:?} for n, {two:?} for 2n: {ratio}");
}

#[test]
fn h_11_reads_stop_when_answers_are_not_taken() {
    let mut server = Server::start(&[]);
    for n in 0..50 {
        let body = format!(r#"{{"streamId":"s{n}","description":"{}"}}"#, "d".repeat(4000));
        assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", &body).status, 200);
    }
    let bystander = Bystander::start(&server);
    // Each answer is some 300 KiB; the requests carry 8 KiB each.
    let request = format!(
        "GET /live/rest/v2/broadcasts/list/0/50 HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "y".repeat(8 * 1024)
    );
    const PEERS: usize = 4;
    const REQUESTS: usize = 10_000;
    let before = server.rss_kb();
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let mut stream = connect(server.http);
        stream.set_write_timeout(Some(ms(700))).unwrap();
        let mut sent = 0;
        // Until the server and the sockets' buffers take no more.
        let stopped = (0..REQUESTS).any(|_| match stream.write_all(request.as_bytes()) {
            Ok(()) => {
                sent += 1;
                false
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                true
            }
        });
        assert!(stopped, "all {REQUESTS} requests were taken without one answer read");
        peers.push((stream, sent));
    }
    // Per peer: the answers over the limit of 256 KiB, one answer more, the held requests, and slack.
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < PEERS as u64 * 2048 + 8192, "{grown} KiB for {PEERS} peers that read nothing");
    // Clients that read at last get every answer, in order and whole.
    let (mut stream, sent) = peers.pop().unwrap();
    assert!(sent > 10, "{sent}");
    for _ in 0..10 {
        let (status, _, body) = read_answer(&mut stream, false);
        assert!(status == 200 && body.starts_with(b"[") && body.ends_with(b"]"));
    }
    drop((stream, peers));
    bystander.finish(&mut server);
}

#[test]
fn h_12_one_byte_chunks_cost_in_proportion_and_end_at_the_limit() {
    let server = Server::start(&["server.workers=1"]);
    let head = "POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let request = |chunks: usize| format!("{head}{}0\r\n\r\n", "1\r\na\r\n".repeat(chunks));
    let mut stream = connect(server.http);
    let mut send = |text: &str| {
        for _ in 0..4 {
            stream.write_all(text.as_bytes()).unwrap();
            assert_eq!(read_answer(&mut stream, false).0, 400, "a letter is no JSON");
        }
    };
    let (one, two) = (request(64 * 1024), request(128 * 1024));
    send(&one);
    let first = cost(&server, 4, || send(&one));
    let second = cost(&server, 4, || send(&two));
    assert_linear("1-byte chunks", first, second);

    // A body of 1 MiB in as many chunks is over the limit of a body.
    let mut stream = connect(server.http);
    let _ = stream.write_all(request(1 << 20).as_bytes());
    let answer = read_to_close(&mut stream);
    assert!(answer.closed && matches!(answer.status(), 413 | 0), "{answer:?}");
}

/// True if a thread sleeps; the state stands behind the name.
fn sleeps(state: &Path) -> bool {
    fs::read_to_string(state).unwrap().contains(") S ")
}

#[test]
fn h_24_a_header_byte_by_byte_is_looked_at_once() {
    let server = Server::start(&["server.workers=1"]);
    let state = server.thread("worker-0").join("stat");
    let mut stream = connect(server.http);
    let mut send = |header: usize| {
        let text = format!(
            "GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "y".repeat(header.saturating_sub(64))
        );
        for byte in text.as_bytes() {
            stream.write_all(&[*byte]).unwrap();
            // The write has woken the worker. When it sleeps again it has read this byte, and nothing else: a busy
            // machine must not turn many small reads into few large ones.
            while !sleeps(&state) {
                std::thread::yield_now();
            }
        }
        assert_eq!(read_answer(&mut stream, false).0, 200);
    };
    send(1024);
    // The same bytes in the same number of segments, as eight heads and as one.
    let eight = cost(&server, 3, || (0..8).for_each(|_| send(15 * 1024 / 8)));
    let one = cost(&server, 3, || send(15 * 1024));
    let ratio = one.as_secs_f64() / eight.as_secs_f64();
    println!("{eight:?} {one:?} {ratio}");
    // 1 when each byte costs the same; over 2 when all of a head is looked at again with each of its bytes.
    assert!(ratio < 1.6, "{eight:?} for eight heads, {one:?} for one of the same size: {ratio}");
}
