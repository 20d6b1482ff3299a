//! C-07: SIGTERM while sessions of all kinds are active.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crypto::Seed;
use netsim::MediaSource;
use rtmp::ClientEvent;

use super::super::support::{Home, RtmpPeer, Server, secs, wait_for};

/// A peer's last message from the server.
#[derive(Debug, PartialEq, Eq)]
enum Farewell {
    /// A refusal: code and description.
    Rejected(String, String),
    /// A message of the protocol that the stream has ended.
    Ended,
    /// The connection was closed without a message.
    Silent(String),
}

/// Reads events until the server's last message, and publishes meanwhile if there is a `source`.
fn until_farewell(mut peer: RtmpPeer, mut source: Option<MediaSource>) -> Farewell {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < secs(60), "no farewell");
        if let Some(source) = &mut source {
            // Errors are ignored here: after the server's last message, the connection fails, but the message is still
            // to be read.
            for _ in 0..4 {
                let _ = peer.send_unit(&source.next_unit());
            }
        }
        match peer.next_event() {
            Ok(Some(ClientEvent::Rejected { code, description })) => {
                return Farewell::Rejected(code, description);
            }
            Ok(Some(ClientEvent::Closed(_))) => return Farewell::Ended,
            Ok(Some(ClientEvent::Ready { .. } | ClientEvent::Media(_)) | None) => {}
            Err(error) => return Farewell::Silent(error),
        }
    }
}

/// Publishes as fast as the server accepts data, without reading. Reads the server's messages only after a write has
/// failed.
fn flood_until_farewell(mut peer: RtmpPeer) -> Farewell {
    let mut source = MediaSource::new(&Seed::from_number(8));
    peer.send_configs().unwrap();
    while peer.send_unit(&source.next_unit()).is_ok() {}
    until_farewell(peer, None)
}

#[test]
fn c_07_sigterm_tells_everyone_and_ends_with_0() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    let api = server.api();
    let create = |id: &str| {
        let body = format!(r#"{{"streamId":"{id}","name":"kept"}}"#);
        assert_eq!(api.post("/live/rest/v2/broadcasts/create", &body).status, 200);
    };
    create("live1");
    create("idle1");

    // Several peers of each kind, so that both workers have some.
    let mut publishers = Vec::new();
    for name in ["live1", "unknown1", "unknown2"] {
        let mut peer = RtmpPeer::publish(server.rtmp, "live", name).unwrap();
        peer.send_configs().unwrap();
        let mut source = MediaSource::new(&Seed::from_number(3));
        for _ in 0..60 {
            peer.send_unit(&source.next_unit()).unwrap();
        }
        publishers.push((peer, source));
    }
    let players: Vec<_> = (0..4)
        .map(|_| {
            let mut peer = RtmpPeer::play(server.rtmp, "live", "live1").unwrap();
            peer.next_media(secs(10)).unwrap();
            peer
        })
        .collect();
    wait_for("the broadcast to be live", secs(10), || {
        api.broadcast("live", "live1").is_some_and(|record| record["status"] == "broadcasting")
    });
    // Three connections: idle after an answer, within a request, and silent.
    let mut kept = TcpStream::connect(server.http).unwrap();
    kept.write_all(b"GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut buffer = [0; 4096];
    assert!(kept.read(&mut buffer).unwrap() > 0);
    let mut half = TcpStream::connect(server.http).unwrap();
    half.write_all(b"GET /live/rest").unwrap();
    let silent = TcpStream::connect(server.http).unwrap();
    let handshaking = TcpStream::connect(server.rtmp).unwrap();

    let told: Vec<_> = publishers
        .into_iter()
        .map(|(peer, source)| std::thread::spawn(move || until_farewell(peer, Some(source))))
        .collect();
    let watched: Vec<_> =
        players.into_iter().map(|peer| std::thread::spawn(move || until_farewell(peer, None))).collect();
    let floods: Vec<_> = (0..2)
        .map(|n| {
            let peer = RtmpPeer::publish(server.rtmp, "live", &format!("flood{n}")).unwrap();
            std::thread::spawn(move || flood_until_farewell(peer))
        })
        .collect();
    wait_for("the floods to be live", secs(10), || {
        (0..2).all(|n| api.broadcast("live", &format!("flood{n}")).is_some_and(|r| r["bitrate"] != 0))
    });
    let (http, rtmp) = (server.http, server.rtmp);
    let status = server.terminate();
    assert_eq!(status.code(), Some(0));
    for peer in told.into_iter().chain(floods) {
        match peer.join().unwrap() {
            Farewell::Rejected(code, description) => {
                assert!(
                    code.starts_with("NetStream.") && description.contains("going down"),
                    "{code} {description}"
                );
            }
            other @ (Farewell::Ended | Farewell::Silent(_)) => panic!("the publisher was told {other:?}"),
        }
    }
    for peer in watched {
        assert_eq!(peer.join().unwrap(), Farewell::Ended, "the player");
    }
    for mut stream in [kept, half, silent, handshaking] {
        stream.set_read_timeout(Some(secs(8))).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("HTTP/1.1 5"), "no error is made up");
    }
    assert!(TcpStream::connect(http).is_err() && TcpStream::connect(rtmp).is_err());

    // Records of live streams have the status `finished`, other records are unchanged, and streams without a record
    // have left none.
    let mut again = Server::start_in(&folder, &[]);
    let live = again.api().broadcast("live", "live1").unwrap();
    assert_eq!((&live["status"], &live["name"]), (&"finished".into(), &"kept".into()));
    assert_eq!(again.api().broadcast("live", "idle1").unwrap()["status"], "created");
    assert_eq!(again.api().get("/live/rest/v2/broadcasts/count").json()["number"], 2);
    assert!(again.terminate().success());
    let log = std::fs::read_to_string(folder.join("log/millstream.log")).unwrap();
    assert!(!log.contains("panicked") && !log.contains("drain timed out"), "{log}");
}

#[test]
fn c_07_writes_acknowledged_right_before_sigterm_are_kept() {
    let home = Home::new();
    let folder = home.path().join("home");
    for round in 0..3 {
        let mut server = Server::start_in(&folder, &[]);
        let api = server.api();
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                std::thread::spawn(move || {
                    let mut acknowledged = Vec::new();
                    for n in 0.. {
                        let id = format!("r{round}-w{writer}-{n}");
                        let body = format!(r#"{{"streamId":"{id}"}}"#);
                        match api.try_call("POST", "/live/rest/v2/broadcasts/create", Some(&body)) {
                            Some(reply) if reply.status == 200 => acknowledged.push(id),
                            _ => break,
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        wait_for("some writes", secs(10), || {
            api.get("/live/rest/v2/broadcasts/count").json()["number"].as_u64().unwrap() > 50 * (round + 1)
        });
        assert_eq!(server.terminate().code(), Some(0));
        let acknowledged: Vec<String> =
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        assert!(!acknowledged.is_empty());
        let mut again = Server::start_in(&folder, &[]);
        for id in acknowledged {
            assert!(again.api().broadcast("live", &id).is_some(), "{id} was acknowledged and is gone");
        }
        assert!(again.terminate().success());
    }
}

/// Checks that a second SIGTERM and SIGINT do not change a running drain, and that a peer that reads nothing does not
/// delay it.
#[test]
fn c_07_a_peer_that_reads_nothing_does_not_hold_up_the_end() {
    let mut server = Server::start(&[]);
    let mut publisher = RtmpPeer::publish(server.rtmp, "live", "s").unwrap();
    publisher.send_configs().unwrap();
    let stuck = RtmpPeer::play(server.rtmp, "live", "s").unwrap();
    let socket = socket2::SockRef::from(&stuck.stream);
    socket.set_recv_buffer_size(4096).unwrap();
    let mut source = MediaSource::new(&Seed::from_number(4));
    // The player reads none of these megabytes.
    for _ in 0..3000 {
        publisher.send_unit(&source.next_unit()).unwrap();
    }
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(100));
    server.signal("TERM");
    server.signal("INT");
    let code = server.wait(secs(30)).code();
    assert_eq!(code, Some(0));
    drop(stuck);
}
