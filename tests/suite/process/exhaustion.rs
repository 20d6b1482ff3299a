//! no descriptor is left.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::super::support::{Bystander, Home, Server, secs, wait_for};

/// Descriptors of the process: its own (23 with two workers), and as many connections as it admits with so few: half of them.
const FILES: usize = 46;
/// So many open ones mean that none is left: a thread that waits in `accept` (of the control socket) has taken the
/// number of its next one already, which `/proc` does not show.
const USED_UP: usize = FILES - 2;

/// CPU time of the server while a second and a half go by.
fn cpu_of_a_while(server: &Server) -> Duration {
    let before = server.cpu();
    std::thread::sleep(Duration::from_millis(1500));
    server.cpu().saturating_sub(before)
}

#[test]
fn q_01_without_descriptors_accepting_pauses_and_streams_run() {
    let home = Home::new();
    let plain = Server::command(&home.path().join("home"), &["server.workers=2"]);
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={FILES}:{FILES}")).arg(plain.get_program()).args(plain.get_args());
    let mut server = Server::spawn(&mut command).with_home(home);
    let bystander = Bystander::start(&server);

    let calm = cpu_of_a_while(&server);
    // More than there are descriptors; the rest waits in the backlog, as do those of the next lines.
    let held: Vec<TcpStream> = (0..FILES * 2)
        .map(|n| TcpStream::connect(if n % 2 == 0 { server.http } else { server.rtmp }).unwrap())
        .collect();
    wait_for("the descriptors to be used up", secs(10), || server.open_files() >= USED_UP);
    let exhausted = cpu_of_a_while(&server);
    assert!(server.open_files() >= USED_UP, "the span was to be one without descriptors");
    let ratio = exhausted.as_secs_f64() / calm.as_secs_f64();
    assert!(ratio < 4.0, "{calm:?} in a while with descriptors, {exhausted:?} in one without: {ratio}");

    drop(held);
    wait_for("new connections to be served again", secs(20), || {
        let reply = server.api().try_call("GET", "/live/rest/v2/version", None);
        reply.is_some_and(|reply| reply.status == 200)
    });
    bystander.finish(&mut server);
}
