//! The server under a service manager such as systemd: it reports when it is ready, alive and draining.

use std::os::unix::net::UnixDatagram;

use crate::support::{Home, Server, secs};

/// Opens the socket of a service manager, and starts a server with the socket's path in its environment.
fn managed(variables: &[(&str, &str)]) -> (Home, UnixDatagram, Server) {
    let home = Home::new();
    let path = home.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(secs(20))).unwrap();
    let mut command = Server::command(&home.path().join("home"), &["server.workers=3"]);
    command.env("NOTIFY_SOCKET", &path).envs(variables.iter().copied());
    let server = Server::spawn(&mut command);
    (home, socket, server)
}

fn message(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1024];
    let length = socket.recv(&mut bytes).unwrap();
    std::str::from_utf8(&bytes[..length]).unwrap().to_owned()
}

#[test]
fn a_manager_is_told_that_the_server_is_ready_lives_and_drains() {
    let (_home, socket, mut server) = managed(&[("WATCHDOG_USEC", "100000")]);
    let mut seen = Vec::new();
    while seen.iter().filter(|message| *message == "WATCHDOG=1").count() < 5 {
        seen.push(message(&socket));
    }
    let ready = seen.iter().find(|message| message.starts_with("READY=1\n")).unwrap();
    assert!(ready.contains(&format!("http {}", server.http)), "{ready}");
    assert!(seen.iter().all(|message| message == ready || message == "WATCHDOG=1"), "{seen:?}");
    assert!(server.terminate().success());
    while message(&socket) != "STOPPING=1\nSTATUS=draining" {}
}

#[test]
fn a_watchdog_of_another_process_is_told_nothing() {
    for variables in [&[("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")][..], &[("WATCHDOG_USEC", "0")], &[]]
    {
        let (_home, socket, mut server) = managed(variables);
        assert!(message(&socket).starts_with("READY=1\n"));
        assert!(server.terminate().success());
        assert!(message(&socket).starts_with("STOPPING=1\n"), "{variables:?}");
    }
}
