//! H-11, H-12, H-24: the CPU time and memory that a peer can cost the server are bounded, and grow no faster than the
//! bytes that the peer sends.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use super::super::support::{Bystander, Server, ms};
use super::{connect, read_answer, read_to_close};

/// Returns the CPU time that the server needs for `action`: the minimum of some runs, because other programs on the
/// machine can only increase it.
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
    // The ratio is 2 if each byte costs the same, and 4 if each byte is read again with every later byte.
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
    // Each answer has about 300 KiB, and each request 8 KiB.
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
        // Sends until the server and the socket buffers accept no more bytes.
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
    // For each peer, the server may hold 256 KiB of answers, one more answer, and buffered requests. The limits below
    // include some slack.
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < PEERS as u64 * 2048 + 8192, "{grown} KiB for {PEERS} peers that read nothing");
    // A client that starts to read late gets all answers completely and in order.
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

    // A body of 1 MiB, in chunks of one byte, exceeds the limit for bodies.
    let mut stream = connect(server.http);
    let _ = stream.write_all(request(1 << 20).as_bytes());
    let answer = read_to_close(&mut stream);
    assert!(answer.closed && matches!(answer.status(), 413 | 0), "{answer:?}");
}

/// True if a thread sleeps. In the `stat` file, the state follows the name of the thread.
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
            // The write wakes the worker. Waits until the worker sleeps again, and has thus read only this byte.
            // Otherwise a busy machine would turn many small reads into few large ones.
            while !sleeps(&state) {
                std::thread::yield_now();
            }
        }
        assert_eq!(read_answer(&mut stream, false).0, 200);
    };
    send(1024);
    // Sends the same number of bytes and segments, once as eight heads and once as a single head.
    let eight = cost(&server, 3, || (0..8).for_each(|_| send(15 * 1024 / 8)));
    let one = cost(&server, 3, || send(15 * 1024));
    let ratio = one.as_secs_f64() / eight.as_secs_f64();
    println!("{eight:?} {one:?} {ratio}");
    // The ratio is 1 if each byte costs the same, and above 2 if the whole head is read again with each byte.
    assert!(ratio < 1.6, "{eight:?} for eight heads, {one:?} for one of the same size: {ratio}");
}
