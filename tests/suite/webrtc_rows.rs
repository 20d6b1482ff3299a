//! Tests hostile peers at the signalling and media ports of WebRTC (docs/robustness.md: W, I and D rows).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crypto::{Random, Seed};
use ice::stun::{Class, MessageWriter, TransactionId};
use millstream::http::websocket::{FrameHead, Opcode};
use netsim::MediaSource;
use rtp::rtcp::{Compound, FirEntry, Pli};
use rtp::{Packet, SequenceNumber, Ssrc};
use serde_json::{Value, json};

use crate::support::{
    Bystander, Over, Player, Program, Publisher, RawRtc, Relay, RtcClient, RtmpPeer, Server, Way,
    h264_section, media_file, ms, publish_synthetic, rtc_peer, rtc_peer_that_checks_once, secs, wait_for,
};

const HANDSHAKE: &str = "GET /live/websocket?target=origin HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
                         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A client of the signalling socket that can send anything.
pub(super) struct Socket {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Socket {
    pub(super) fn open(address: SocketAddr) -> Self {
        Self::open_with(address, HANDSHAKE)
    }

    fn open_with(address: SocketAddr, handshake: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(secs(8))).unwrap();
        stream.write_all(handshake.as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"));
        Self { stream, held: Vec::new() }
    }

    /// Sends a message. Returns false if the server has closed the connection.
    pub(super) fn say(&mut self, text: &str) -> bool {
        let (opcode, length) = (Opcode::Text, text.len() as u64);
        let head = FrameHead { is_final: true, opcode, length, mask: Some([0; 4]) };
        let mut bytes = head.write().to_vec();
        bytes.extend(text.as_bytes());
        self.stream.write_all(&bytes).is_ok()
    }

    /// Returns the next message, or `None` if the connection has ended.
    pub(super) fn hear(&mut self) -> Option<Value> {
        loop {
            if let Ok(Some((head, head_bytes))) = FrameHead::read(&self.held) {
                let end = head_bytes + usize::try_from(head.length).unwrap();
                if self.held.len() >= end {
                    let frame: Vec<u8> = self.held.drain(..end).collect();
                    if head.opcode != Opcode::Text {
                        return None;
                    }
                    return Some(serde_json::from_slice(&frame[head_bytes..]).unwrap());
                }
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.held.extend(&buffer[..count]),
            }
        }
    }

    fn answers_a_ping(&mut self) -> bool {
        self.say(r#"{"command":"ping"}"#) && {
            while let Some(message) = self.hear() {
                if message["command"] == "pong" {
                    return true;
                }
            }
            false
        }
    }
}

#[test]
fn w_09_messages_that_are_none_are_answered_or_ignored() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let mut socket = Socket::open(server.http);
    let deep = "[".repeat(10_000);
    let sdp = format!("v=0\r\n{}", "a=x\r\n".repeat(10_000));
    let long =
        json!({"command": "takeConfiguration", "streamId": "x", "type": "offer", "sdp": sdp}).to_string();
    for text in [
        "",
        "{",
        "null",
        deep.as_str(),
        r#"{"command":7}"#,
        r#"{"command":"dance","streamId":"a"}"#,
        r#"{"command":"play"}"#,
        r#"{"command":"play","streamId":"../../etc"}"#,
        r#"{"command":"takeConfiguration","streamId":"nobody","type":"offer","sdp":"v=0"}"#,
        long.as_str(),
    ] {
        assert!(socket.say(text) && socket.answers_a_ping(), "{}", &text[..text.len().min(60)]);
    }
    let candidate = r#"{"command":"takeCandidate","streamId":"a","label":0,"id":"0","candidate":"candidate:1 1 udp 1 192.0.2.1 1 typ host"}"#;
    assert!((0..10_000).all(|_| socket.say(candidate)) && socket.answers_a_ping());
    // A message of a megabyte exceeds the limit.
    let huge = json!({"command": "publish", "streamId": "a", "metaData": "x".repeat(1 << 20)}).to_string();
    let _ = socket.say(&huge);
    assert!(!socket.answers_a_ping());
    drop(socket);
    bystander.finish(&mut server);
}

#[test]
fn w_11_one_client_has_so_many_sessions_and_the_first_publisher_of_an_id_keeps_it() {
    let mut server = Server::start(&[]);
    // The C library does not return most of the memory of 1280 sessions to the system.
    let bystander = Bystander::start(&server).leaving(20 * 1024);
    let publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/taken"));
    wait_for("the stream", secs(20), || server.api().broadcast("live", "taken").is_some());
    let mut sockets: Vec<Socket> = (0..20).map(|_| Socket::open(server.http)).collect();
    for socket in &mut sockets {
        socket.say(r#"{"command":"publish","streamId":"taken"}"#);
        assert_eq!(socket.hear().unwrap()["definition"], "streamIdInUse");
    }
    let (mut granted, mut refused) = (0, 0);
    for (n, socket) in sockets.iter_mut().enumerate() {
        for m in 0..500 {
            assert!(socket.say(&json!({"command": "publish", "streamId": format!("s{n}-{m}")}).to_string()));
        }
    }
    for socket in &mut sockets {
        for _ in 0..500 {
            let message = socket.hear().unwrap();
            granted += usize::from(message["command"] == "start");
            refused += usize::from(message["definition"] == "highResourceUsage");
        }
        assert!(socket.answers_a_ping());
    }
    assert_eq!((granted, refused), (20 * 64, 20 * (500 - 64)));
    assert_eq!(server.api().broadcast("live", "taken").unwrap()["status"], "broadcasting");
    drop((sockets, publisher));
    bystander.finish(&mut server);
}

/// A well-formed offer of audio that the server has not asked for.
const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
                     m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=sendrecv\r\na=rtcp-mux\r\n\
                     a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=setup:actpass\r\n\
                     a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\r\n\
                     a=rtpmap:111 opus/48000/2\r\n";

#[test]
fn w_14_a_thousand_sockets_join_and_leave_rooms_at_random_and_describe_themselves_out_of_turn() {
    let mut server = Server::start(&["server.workers=2"]);
    // The C library does not return most of the memory of the sessions to the system.
    let bystander = Bystander::start(&server).leaving(20 * 1024);
    let mut random: Random = Seed::from_number(14).random();
    let mut draw = |below: u64| random.u64() % below;
    for _ in 0..10 {
        let mut sockets: Vec<Socket> = (0..100).map(|_| Socket::open(server.http)).collect();
        for _ in 0..1000 {
            let at = usize::try_from(draw(100)).unwrap();
            let (id, room) = (format!("p{}", draw(20)), format!("r{}", draw(3)));
            let describe = |kind: &str, id: &str| json!({"command": "takeConfiguration", "streamId": id, "type": kind, "sdp": OFFER});
            let message = match draw(10) {
                0 => json!({"command": "joinRoom", "room": room, "streamId": id}),
                1 | 2 => {
                    json!({"command": "publish", "streamId": id, "mainTrack": room, "video": true, "audio": true})
                }
                3 => {
                    json!({"command": "play", "streamId": room, "trackList": [format!("!{id}")], "userPublishId": id})
                }
                4 => json!({"command": "leaveFromRoom", "room": room, "streamId": id}),
                5 => json!({"command": "stop", "streamId": if draw(2) == 0 { &id } else { &room }}),
                // An offer to play, which only the server may make; then a second offer of a publisher.
                6 => describe("offer", &room),
                7 => describe("offer", &id),
                8 => describe("answer", &room),
                _ => {
                    sockets[at] = Socket::open(server.http);
                    continue;
                }
            };
            sockets[at].say(&message.to_string());
        }
        assert!(sockets.iter_mut().all(Socket::answers_a_ping));
    }
    wait_for("the rooms to be empty", secs(30), || {
        let is_live = |n: u32| {
            let record = server.api().broadcast("live", &format!("p{n}"));
            record.is_some_and(|record| record["status"] == "broadcasting")
        };
        !(0..20).any(is_live)
    });
    bystander.finish(&mut server);
}

#[test]
fn w_14_a_token_of_a_room_opens_no_other() {
    let server = Server::start(&["app.playTokenControlEnabled=true"]);
    let publish = |id: &str, room: &str| {
        Program::ffmpeg_publish(
            &media_file(false, 60),
            &server.rtmp_url(&format!("live/{id}?mainTrack={room}")),
        )
    };
    let _publishers = [publish("ann", "first"), publish("ben", "second")];
    for id in ["ann", "ben"] {
        wait_for("the streams", secs(20), || server.api().broadcast("live", id).is_some());
    }
    let path = "/live/rest/v2/broadcasts/first/token?expireDate=9999999999&type=play";
    let token = server.api().get(path).json()["tokenId"].clone();
    let mut socket = Socket::open(server.http);
    let mut play = |room: &str| {
        socket
            .say(&json!({"command": "play", "streamId": room, "token": token, "trackList": []}).to_string());
        socket.hear().unwrap()
    };
    for other in ["second", "ben"] {
        assert_eq!(play(other)["definition"], "unauthorized_access", "{other}");
    }
    assert_eq!(play("first")["command"], "takeConfiguration");
}

/// I-05, I-11, D-01, D-03: checks that datagrams without a session at a media port cost no more than a lookup in a
/// table.
#[test]
fn i_11_d_01_floods_of_the_media_port_harm_nobody() {
    let mut server = Server::start(&["server.workers=2"]);
    let bystander = Bystander::start(&server);
    let (port, before) = (server.webrtc[0], server.rss_kb());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let noise: Vec<u8> = {
        let mut random: Random = Seed::from_number(7).random();
        (0..4096).flat_map(|_| random.u64().to_le_bytes()).collect()
    };
    // The connectivity checks name sessions of both workers, so each worker receives some for the other.
    let of_workers = ["AA000000", "AB000000"].map(|fragment| {
        let mut check = Vec::new();
        let writer = MessageWriter::new(&mut check, Class::Request, TransactionId([7; 12]));
        writer.username(fragment, "peer").finish(b"key");
        check
    });
    let began = Instant::now();
    let mut sent = 0usize;
    while began.elapsed() < secs(3) {
        let at = (sent * 61) % 30_000;
        let mut datagram = noise[at..at + 60 + sent % 1000].to_vec();
        match sent % 5 {
            // The binding request has an unknown user name.
            0 => {
                datagram.truncate(60);
                datagram[..8].copy_from_slice(&[0, 1, 0, 40, 0x21, 0x12, 0xa4, 0x42]);
                datagram[20..24].copy_from_slice(&[0, 6, 0, 9]);
            }
            // The others are like a ClientHello, like media, a check of either worker, or random bytes.
            1 => datagram[..3].copy_from_slice(&[22, 254, 253]),
            2 => datagram[0] = 0x80,
            3 => datagram.clone_from(&of_workers[sent / 5 % 2]),
            _ => {}
        }
        sent += usize::from(socket.send_to(&datagram, port).is_ok());
    }
    assert!(sent > 10_000, "{sent}");
    // The server answers none of the requests.
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    assert!(socket.recv(&mut [0; 2048]).is_err());
    assert!(server.api().metric("millstream_passed_datagrams_total", "") > 100.0, "nothing was passed on");
    bystander.finish(&mut server);
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < 30_000, "{grown} kB more");
}

#[test]
fn w_07_bad_handshakes_of_the_signalling_socket_have_their_status() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (from, to, status) in [
        ("", "", 101),
        (KEY, "Sec-WebSocket-Key: c2hvcnQ=\r\n", 400),
        (KEY, "", 400),
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", 426),
        ("Connection: Upgrade\r\n", "", 400),
        ("Host: localhost\r\n", "Host: localhost\r\nOrigin: not an origin\r\n", 403),
        ("GET", "POST", 405),
        ("/live/", "/nowhere/", 404),
    ] {
        let request = HANDSHAKE.replace(from, to);
        let follow = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let follow = if status == 101 { "" } else { follow };
        let mut stream = TcpStream::connect(server.http).unwrap();
        stream.write_all(format!("{request}{follow}").as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{to}: {answer}");
        assert_eq!(status == 426, answer.contains("Sec-WebSocket-Version: 13\r\n"), "{answer}");
        // Unless the protocol was switched, the next request on the connection is answered.
        assert_eq!(answer.matches("HTTP/1.1 ").count(), if status == 101 { 1 } else { 2 }, "{answer}");
    }
    bystander.finish(&mut server);
}

/// Returns datagrams that are no authentic connectivity checks, to send before and between those of the peer.
fn junk(fragment: &str) -> Vec<Vec<u8>> {
    let mut check = Vec::new();
    let writer = MessageWriter::new(&mut check, Class::Request, TransactionId([7; 12]));
    writer.username(fragment, "peer").finish(b"another key");
    let mut bare = Vec::new();
    MessageWriter::new(&mut bare, Class::Request, TransactionId([8; 12]))
        .username(fragment, "x")
        .finish_open();
    vec![
        check,
        bare,
        // These are a ClientHello, a Finished of the next epoch, an alert, media and a report.
        [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1][..], &[0; 59]].concat(),
        [&[22, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40, 20][..], &[0; 39]].concat(),
        vec![21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 40],
        [&[0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1; 100]].concat(),
        [&[0x80, 200, 0, 6, 0, 0, 0, 2][..], &[1; 60]].concat(),
    ]
}

#[test]
fn i_04_i_05_d_03_who_has_no_valid_pair_gets_nothing_and_is_in_nobodys_way() {
    let mut server = Server::start(&["server.workers=1"]);
    let bystander = Bystander::start(&server);
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    attacker.set_nonblocking(true).unwrap();
    let mut publisher = RtcClient::publish(&server, "first", Over::Udp);
    let fragment = publisher.answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let (port, junk) = (publisher.port(), junk(fragment));
    // The datagrams arrive before those of the peer, also from the peer's own address.
    for datagram in junk.iter().cycle().take(700) {
        attacker.send_to(datagram, port).unwrap();
        publisher.send_raw(datagram);
    }
    assert_eq!(publisher.receive_raw(), None, "nobody is answered");
    publisher.run_until("the keys", secs(10), |publisher| publisher.connected);
    publisher.run_until("the stream", secs(10), |_| server.api().broadcast("live", "first").is_some());
    let watcher = Player::start(server.rtmp, "live", "first");
    publisher.run_until("a picture", secs(10), |_| watcher.units() > 0);
    let mut player = RtcClient::play(&server, "first", Over::Udp);
    publisher.run_until("pictures", secs(20), |_| {
        junk.iter().for_each(|datagram| drop(attacker.send_to(datagram, port)));
        player.step();
        player.frames >= 60
    });
    assert!(player.verifier.is_clean(), "{:?}", player.verifier);
    assert!(attacker.recv(&mut [0; 2048]).is_err(), "not a byte");
    drop((publisher, player));
    bystander.finish(&mut server);
}

/// D-01: checks that a thousand consecutive handshakes succeed while other addresses flood the same port.
#[test]
fn d_01_every_real_handshake_succeeds_beside_a_flood_of_its_port() {
    let mut server = Server::start(&["server.workers=2"]);
    let bystander = Bystander::start(&server).leaving(20 * 1024);
    let (ports, stop) = (server.webrtc.clone(), Arc::new(AtomicBool::new(false)));
    let flood = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let sockets: Vec<_> =
                (1..=20).map(|n| UdpSocket::bind((format!("127.0.7.{n}"), 0)).unwrap()).collect();
            // These are the beginning of a ClientHello, a Finished without a session, a check without credentials, and
            // media.
            let mut datagrams = [vec![0xa5; 300], vec![0xa5; 61], vec![0xa5; 60], vec![0xa5; 1100]];
            datagrams[0][..14].copy_from_slice(&[22, 254, 255, 0, 0, 0, 0, 0, 0, 0, 0, 1, 31, 1]);
            datagrams[1][..13].copy_from_slice(&[22, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0, 0, 48]);
            datagrams[2][..8].copy_from_slice(&[0, 1, 0, 40, 0x21, 0x12, 0xa4, 0x42]);
            datagrams[3][0] = 0x80;
            let mut sent = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                // The flood has ten thousand datagrams a second, in bursts.
                for _ in 0..100 {
                    let datagram = &datagrams[sent % datagrams.len()];
                    let _ = sockets[sent % sockets.len()].send_to(datagram, ports[sent / 3 % ports.len()]);
                    sent += 1;
                }
                std::thread::sleep(ms(10));
            }
            let answered = sockets.iter().filter(|socket| {
                socket.set_nonblocking(true).unwrap();
                socket.recv(&mut [0; 2048]).is_ok()
            });
            (sent, answered.count())
        })
    };
    let publisher = Publisher::start(server.rtmp, "live", "d01");
    for _ in 0..1000 {
        let mut player = RtcClient::play(&server, "d01", Over::Udp);
        player.run_until("the keys and a picture", secs(20), |player| player.connected && player.frames > 0);
        player.close();
    }
    stop.store(true, Ordering::Relaxed);
    let (sent, answered) = flood.join().unwrap();
    assert!(sent > 5000, "{sent}");
    assert_eq!(answered, 0, "nobody of the flood is answered");
    publisher.stop();
    bystander.finish(&mut server);
}

/// Checks that all datagrams, including those with certificates and pictures, fit into packets of 1280 bytes, the
/// minimum of IPv6.
#[test]
fn n_10_a_path_of_1280_bytes_carries_webrtc() {
    let server = Server::start(&["server.workers=2"]);
    let relay = |port| Relay::to(port).links(|link| link.latency(ms(5)).mtu(1280 - 48)).start();
    let (mut to_publisher, mut to_player) = (None, None);
    let mut publisher = RtcClient::publish_after(&server, "narrow", Over::Udp, |port| {
        to_publisher.insert(relay(port)).address()
    });
    publisher.run_until("some pictures", secs(20), |publisher| {
        publisher.peer.stats().sent.iter().any(|(_, sent)| sent.packets > 100)
    });
    let mut player =
        RtcClient::play_after(&server, "narrow", Over::Udp, |port| to_player.insert(relay(port)).address());
    publisher.run_until("pictures", secs(30), |_| {
        player.step();
        player.frames >= 60
    });
    for relay in [to_publisher, to_player].iter().flatten() {
        for way in [Way::There, Way::Back] {
            let stats = relay.stats(way);
            assert!(stats.delivered > 5 && stats.too_big == 0, "{way:?}: {stats:?}");
        }
    }
    let counts = player.verifier.video();
    assert_eq!((counts.lost, counts.reordered, counts.duplicated), (0, 0, 0), "{counts:?}");
}

/// Tests a publisher and a player, each behind a network that loses, delays, reorders and duplicates datagrams.
#[test]
fn n_01_to_n_05_what_a_bad_network_loses_of_webrtc_is_repaired() {
    let server = Server::start(&["server.workers=2"]);
    for seed in crate::support::network_seeds() {
        println!("seed {seed}");
        is_repaired(&server, seed);
    }
}

fn is_repaired(server: &Server, seed: u64) {
    let name = &format!("bad{seed}");
    let relay = |port, seed| {
        let relay = Relay::to(port)
            .seed(seed)
            .links(|link| link.latency(ms(15)).jitter(ms(20)).loss(0.03).reorder(0.05).duplicate(0.05));
        relay.start()
    };
    let (mut to_publisher, mut to_player) = (None, None);
    let mut publisher = RtcClient::publish_after(server, name, Over::Udp, |port| {
        to_publisher.insert(relay(port, 2 * seed)).address()
    });
    publisher.run_until("the keys", secs(20), |publisher| publisher.connected);
    // The player is only accepted after the server has received a key frame, which may need retransmissions.
    let received = || server.api().broadcast("live", name).and_then(|one| one["receivedBytes"].as_u64());
    publisher.run_until("pictures at the server", secs(30), |_| received().unwrap_or(0) > 0);
    let mut player = RtcClient::play_after(server, name, Over::Udp, |port| {
        to_player.insert(relay(port, 2 * seed + 1)).address()
    });
    publisher.run_until("pictures", secs(30), |_| {
        player.step();
        player.frames >= 120
    });
    for relay in [to_publisher, to_player].iter().flatten() {
        let (there, back) = (relay.stats(Way::There), relay.stats(Way::Back));
        assert!(there.lost + back.lost > 4 && there.reordered + back.reordered > 10, "{there:?} {back:?}");
    }
    let counts = player.verifier.video();
    assert!(
        counts.reordered == 0 && counts.duplicated == 0 && counts.lost * 20 <= counts.received,
        "{counts:?}"
    );
    let repaired: u64 = player.peer.stats().received.iter().map(|(_, _, stats)| stats.recovered).sum();
    assert!(repaired > 2, "{repaired} packets came again");
}

/// Tests a publisher and a viewer whose NATs forget them, so that their packets come from other ports. Neither repeats
/// its connectivity checks, so only their media shows the new ports.
#[test]
fn i_12_media_goes_on_from_and_to_another_port_of_the_same_address() {
    let server = Server::start(&["server.workers=2"]);
    let mut relays = Vec::new();
    let peers = [(); 2].map(|()| rtc_peer_that_checks_once());
    let [mut publisher, mut player] = RtcClient::both_of(&server, "moved", peers, &mut |port| {
        relays.push(Relay::to(port).links(|link| link.latency(ms(15))).start());
        relays.last().unwrap().address()
    });
    let mut see_pictures = || {
        let seen = player.frames;
        publisher.run_until("pictures", secs(25), |_| {
            player.step();
            player.frames >= seen + 60
        });
    };
    see_pictures();
    for relay in &relays {
        let before = relay.ports();
        relay.rebind();
        assert_ne!(relay.ports(), before);
        see_pictures();
    }
    let counts = player.verifier.video();
    assert_eq!((counts.reordered, counts.duplicated), (0, 0), "{counts:?}");
}

/// Checks the limits of repairs with a viewer that requests each possible sequence number a hundred times.
#[test]
fn x_11_a_viewer_that_asks_for_all_packets_gets_each_ten_times_at_most() {
    let mut server = Server::start(&["server.workers=1"]);
    let bystander = Bystander::start(&server);
    let mut viewer = RawRtc::connect(&server, "whep", "bystander", 1);
    let (media, repairs) = (viewer.sources[0], viewer.sources[1]);
    let all: Vec<SequenceNumber> = (0..=u16::MAX).map(SequenceNumber).collect();
    for _ in 0..100 {
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let mut compound = Compound::new(1100);
            compound.receiver_reports(Ssrc(1), &[]);
            let written = compound.nack(Ssrc(1), media, rest);
            rest = &rest[written..];
            viewer.send_rtcp(compound.into_bytes());
        }
        (0..20).for_each(|_| viewer.step());
        // The server would hardly find the sent packets among all 65,536 numbers. So the viewer also requests only the
        // newest that it has received.
        let numbers = viewer.came.iter().map(|packet| Packet::read(packet).unwrap().header);
        let mut seen: Vec<SequenceNumber> =
            numbers.filter(|header| header.ssrc == media).map(|header| header.sequence_number).collect();
        seen.sort_unstable_by_key(|number| number.0);
        let mut compound = Compound::new(1100);
        compound.receiver_reports(Ssrc(1), &[]);
        compound.nack(Ssrc(1), media, seen.get(seen.len().saturating_sub(200)..).unwrap_or_default());
        viewer.send_rtcp(compound.into_bytes());
        (0..10).for_each(|_| viewer.step());
    }
    let (mut resent, mut sent_bytes, mut resent_bytes) = (BTreeMap::<u16, u32>::new(), 0, 0);
    for packet in &viewer.came {
        let packet = Packet::read(packet).unwrap();
        if packet.header.ssrc == repairs {
            let (number, payload) = packet.payload.split_first_chunk::<2>().unwrap();
            *resent.entry(u16::from_be_bytes(*number)).or_default() += 1;
            resent_bytes += payload.len();
        } else {
            sent_bytes += packet.payload.len();
        }
    }
    assert!(resent.len() > 10 && resent.values().all(|times| *times <= 10), "{resent:?}");
    // Repairs may use a quarter of the stream's bytes, plus 64 KiB of saved allowance.
    assert!(resent_bytes <= sent_bytes / 4 + 65_536, "{resent_bytes} of {sent_bytes}");
    drop(viewer);
    bystander.finish(&mut server);
}

#[test]
fn x_12_viewers_that_ask_for_key_frames_without_end_are_one_request_in_half_a_second() {
    let server = Server::start(&["server.workers=2"]);
    let mut publisher = RtcClient::publish(&server, "p", Over::Udp);
    let asked = |publisher: &RtcClient| -> (u64, u64) {
        let sent = publisher.peer.stats().sent;
        (sent.iter().map(|(_, sent)| sent.key_frame_requests).sum(), publisher.made_ms())
    };
    publisher.run_until("some pictures", secs(20), |publisher| {
        publisher.peer.stats().sent.iter().any(|(_, sent)| sent.packets > 100)
    });
    let mut viewers: Vec<RawRtc> = (0..8)
        .map(|n| {
            publisher.step();
            RawRtc::connect(&server, "whep", "p", n)
        })
        .collect();
    let (before, began) = asked(&publisher);
    let mut rounds = 0u8;
    publisher.run_until("three seconds of the stream", secs(60), |publisher| {
        rounds = rounds.wrapping_add(1);
        for viewer in &mut viewers {
            let media = viewer.sources[0];
            for n in 0..20u8 {
                let mut compound = Compound::new(1100);
                compound.receiver_reports(Ssrc(1), &[]);
                compound.pli(Pli { sender: Ssrc(1), media });
                let sequence = rounds.wrapping_mul(20).wrapping_add(n);
                compound.fir(Ssrc(1), &[FirEntry { ssrc: media, sequence }]);
                viewer.send_rtcp(compound.into_bytes());
            }
        }
        publisher.made_ms() >= began + 3000
    });
    let (after, ended) = asked(&publisher);
    let requests = after - before;
    assert!(requests >= 1 && requests <= (ended - began) / 500 + 1, "{requests} in {} ms", ended - began);
    assert!(viewers.iter().all(|viewer| viewer.sources.len() == 2));
}

#[test]
fn x_07_a_publisher_of_ten_thousand_sources_takes_no_more_than_some() {
    let mut server = Server::start(&["server.workers=1"]);
    let bystander = Bystander::start(&server);
    let mut hostile = RawRtc::connect(&server, "whip", "many", 3);
    let before = server.rss_kb();
    let mut packet = vec![0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    packet.extend([1; 1000]);
    for source in 0..10_000u32 {
        packet[8..12].copy_from_slice(&source.to_be_bytes());
        packet[3] = 1 + u8::try_from(source % 200).unwrap();
        packet[1] = 96 + u8::try_from(source % 30).unwrap();
        hostile.send_rtp_of_another(packet.clone());
        if source % 100 == 0 {
            hostile.step();
        }
    }
    let page = server.api().get("/metrics").body;
    let received = page.lines().find(|line| {
        line.starts_with("millstream_webrtc_packets_total") && line.contains("what=\"received\"")
    });
    let received: f64 = received.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(received <= 100.0, "packets of {received} sources were kept");
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < 20_000, "{grown} kB more");
    drop(hostile);
    bystander.finish(&mut server);
}

/// Tests the messages that the SDK's pages get about a source that its viewer starts, and about a publisher that
/// returns in time.
#[test]
fn pages_hear_that_a_stream_starts_soon() {
    let server = Server::start(&["server.workers=2"]);
    let source = json!({
        "streamId": "soon", "type": "streamSource", "autoStartStopEnabled": true,
        "streamUrl": server.rtmp_url("LiveApp/later"),
    });
    let made = server.api().post("/live/rest/v2/broadcasts/create", &source.to_string());
    assert_eq!(made.status, 200, "{}", made.body);
    let _upstream = Publisher::start(server.rtmp, "LiveApp", "later");
    let mut socket = Socket::open(server.http);
    assert!(socket.say(r#"{"command":"play","streamId":"soon"}"#));
    let first = socket.hear().unwrap();
    assert_eq!((&first["definition"], &first["streamId"]), (&"streaming_starts_soon".into(), &"soon".into()));
    let second = socket.hear().unwrap();
    assert_eq!((&second["command"], &second["type"]), (&"takeConfiguration".into(), &"offer".into()));
}

#[test]
fn a_page_hears_that_its_stream_goes_on() {
    let server = Server::start(&["server.workers=2"]);
    let mut lost = RtmpPeer::publish(server.rtmp, "live", "back").unwrap();
    let mut source = MediaSource::new(&Seed::from_number(5));
    lost.send_configs().unwrap();
    publish_synthetic(&mut lost, &mut source, 100).unwrap();
    wait_for("the stream", secs(10), || server.api().broadcast("live", "back").is_some());
    drop(lost);
    wait_for("the loss", secs(10), || server.log().contains("publisher lost"));
    let mut socket = Socket::open(server.http);
    assert!(socket.say(r#"{"command":"publish","streamId":"back"}"#));
    assert_eq!(socket.hear().unwrap()["command"], "start");
    let mut peer = rtc_peer();
    let offer = peer.offer(&h264_section(sdp::Direction::SendOnly)).unwrap().write();
    let message = json!({"command": "takeConfiguration", "streamId": "back", "type": "offer", "sdp": offer});
    assert!(socket.say(&message.to_string()));
    let answer = socket.hear().unwrap();
    let mut publisher = RtcClient::publish_answered(peer, answer["sdp"].as_str().unwrap());
    publisher.run_until("media", secs(10), |publisher| {
        publisher.peer.stats().sent.iter().any(|(_, sent)| sent.packets > 60)
    });
    assert_eq!(socket.hear().unwrap()["definition"], "publish_started");
    assert_eq!(socket.hear().unwrap()["definition"], "session_restored");
}

#[test]
fn r_52_a_page_of_others_is_not_this_machine() {
    let server = Server::start(&["app.allowedPublisherCIDR=127.0.0.1"]);
    let fingerprint = ["AB"; 32].join(":");
    let offer = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
         m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=sendonly\r\na=rtcp-mux\r\n\
         a=ice-ufrag:abcd\r\na=ice-pwd:{}\r\na=fingerprint:sha-256 {fingerprint}\r\na=setup:actpass\r\n\
         a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;profile-level-id=42e01f\r\na=ssrc:1 cname:x\r\n",
        "p".repeat(22)
    );
    let host = server.http.to_string();
    let own = format!("http://{host}");
    for (n, (fields, allowed)) in [
        (vec![], true),
        (vec![("Origin", own.as_str())], true),
        (vec![("Origin", "https://evil.example")], false),
        (vec![("Sec-Fetch-Site", "cross-site")], false),
        (vec![("Host", "evil.example")], false),
        (vec![("X-Forwarded-For", "127.0.0.1")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut lines = format!(
            "POST /live/whip/w{n} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/sdp\r\n"
        );
        let mut shake = HANDSHAKE.replace("Host: localhost\r\n", "").replace("\r\n\r\n", "\r\n");
        let has_host = fields.iter().any(|(name, _)| *name == "Host");
        let host = [("Host", host.as_str())];
        for (name, value) in fields.iter().chain(host.iter().filter(|_| !has_host)) {
            lines.push_str(&format!("{name}: {value}\r\n"));
            shake.push_str(&format!("{name}: {value}\r\n"));
        }
        let whip = format!("{lines}Content-Length: {}\r\n\r\n{offer}", offer.len());
        let answer = crate::support::raw_exchange(server.http, whip.as_bytes());
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(answer.starts_with("HTTP/1.1 201 "), allowed, "{fields:?}: {answer}");
        let mut socket = Socket::open_with(server.http, &format!("{shake}\r\n"));
        socket.say(&format!(r#"{{"command":"publish","streamId":"s{n}"}}"#));
        let said = socket.hear().unwrap();
        assert_eq!(said["command"] == "start", allowed, "{fields:?}: {said}");
    }
}
