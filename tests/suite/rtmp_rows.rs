//! Tests the whole server with hostile and unlucky RTMP peers, while another stream must lose nothing. The `rtmp`
//! crate tests the parser itself.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crypto::Seed;
use netsim::MediaSource;
use rtmp::MediaKind;

use crate::support::{
    Bystander, Home, Player, Program, Publisher, RtmpPeer, Server, media_file, ms, secs, wait_for,
};

/// Sends bytes, then reads until the server closes the connection. Panics if it does not close within the limit.
fn closes(server: &Server, bytes: &[u8], limit: Duration) -> usize {
    let mut stream = TcpStream::connect(server.rtmp).unwrap();
    stream.set_read_timeout(Some(limit)).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => answer.len(),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => answer.len(),
        Err(error) => panic!("not closed: {error}"),
    }
}

/// Returns C0, C1 and C2 of the simple handshake.
fn handshake() -> Vec<u8> {
    let mut bytes = vec![3];
    bytes.extend([0; 3072]);
    bytes
}

#[test]
fn m_01_what_is_no_rtmp_is_closed() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let mut random = vec![0; 3000];
    Seed::from_number(1).random().fill(&mut random);
    random[0] = 0xf7;
    for bytes in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &random]
    {
        assert_eq!(closes(&server, bytes, secs(5)), 0);
    }
    bystander.finish(&mut server);
}

#[test]
fn m_02_a_peer_that_stalls_is_closed_at_every_stage() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let whole = handshake();
    let stalls: Vec<_> = [0, 1, 1000, 1537, 3073]
        .into_iter()
        .map(|sent| {
            let (address, bytes) = (server.rtmp, whole[..sent].to_vec());
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(secs(25))).unwrap();
                stream.write_all(&bytes).unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).map(|_| ()).unwrap();
            })
        })
        .collect();
    stalls.into_iter().for_each(|stall| stall.join().unwrap());
    bystander.finish(&mut server);
}

#[test]
fn m_03_a_whole_publish_in_one_byte_segments_works() {
    let server = Server::start(&[]);
    let relay = ByteRelay::start(server.rtmp);
    let mut publisher = RtmpPeer::publish(relay.address, "live", "bytes").unwrap();
    publisher.send_configs().unwrap();
    let mut source = MediaSource::new(&Seed::from_number(2)).sizes(300, 50);
    crate::support::publish_synthetic(&mut publisher, &mut source, 60).unwrap();
    let player = Player::start(server.rtmp, "live", "bytes");
    wait_for("units that came byte by byte", secs(20), || player.units() > 50);
    assert!(player.finish().is_clean());
}

/// A relay to the server that forwards one byte at a time.
struct ByteRelay {
    address: std::net::SocketAddr,
}

impl ByteRelay {
    fn start(server: std::net::SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut near, _) = listener.accept().unwrap();
            let mut far = TcpStream::connect(server).unwrap();
            far.set_nodelay(true).unwrap();
            let (mut near_out, mut far_in) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut far_in, &mut near_out));
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = near.read(&mut buffer) {
                for byte in &buffer[..count] {
                    if far.write_all(std::slice::from_ref(byte)).is_err() {
                        return;
                    }
                }
            }
        });
        Self { address }
    }
}

/// Returns the beginning of a message on a chunk stream: its header, and one byte of its payload.
fn begin_message(chunk_stream: u32, length: u32) -> Vec<u8> {
    let [_, high, middle, low] = length.to_be_bytes();
    let id = u16::try_from(chunk_stream).unwrap().to_be_bytes();
    let basic = if chunk_stream < 64 { vec![id[1]] } else { vec![1, id[1], id[0]] };
    // The header contains the timestamp 0, the length, the type video, and message stream 1.
    [&basic[..], &[0, 0, 0, high, middle, low, 9, 1, 0, 0, 0, 0x17]].concat()
}

/// Checks that memory is only used for received bytes. The peers are within the limits: each announces 8 MiB on each of
/// its chunk streams, in total 90 GiB, and sends one byte of each message.
#[test]
fn m_05_announced_lengths_cost_no_memory() {
    const PEERS: u64 = 200;
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let before = server.rss_kb();
    let mut bytes = handshake();
    // With a chunk size of one byte, a chunk of another stream may follow each byte.
    bytes.extend([2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    (3..60).for_each(|chunk_stream| bytes.extend(begin_message(chunk_stream, 8 << 20)));
    let mut attacks: Vec<_> = (0..PEERS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.rtmp).unwrap();
            stream.write_all(&bytes).unwrap();
            stream.set_read_timeout(Some(secs(15))).unwrap();
            // S0, S1 and S2 show that the server has read the bytes that were sent with the handshake.
            stream.read_exact(&mut [0; 3073]).unwrap();
            stream
        })
        .collect();
    let grown = server.rss_kb().saturating_sub(before);
    for stream in &mut attacks {
        stream.set_read_timeout(Some(ms(1))).unwrap();
        let is_open = !matches!(stream.read(&mut [0; 512]), Ok(0));
        assert!(is_open, "what is within the limits is no reason to close");
    }
    assert!(grown < PEERS * 64, "{grown} kB more for {PEERS} peers");
    drop(attacks);
    bystander.finish(&mut server);
}

#[test]
fn m_05_more_chunk_streams_or_longer_messages_than_allowed_are_the_end() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let size_of_one = [2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let many: Vec<u8> = (3..4000).flat_map(|chunk_stream| begin_message(chunk_stream, 1000)).collect();
    for bytes in [many, begin_message(3, (8 << 20) + 1), begin_message(3, 0xff_ffff)] {
        closes(&server, &[handshake(), size_of_one.to_vec(), bytes].concat(), secs(5));
    }
    bystander.finish(&mut server);
}

#[test]
fn m_09_a_million_bad_messages_hold_no_memory_and_end_the_connection() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let before = server.rss_kb();
    let mut peer = RtmpPeer::publish(server.rtmp, "live", "bad").unwrap();
    peer.send_configs().unwrap();
    let sent = (0..1_000_000u32)
        .take_while(|n| peer.send(MediaKind::Audio, *n, bytes::Bytes::from_static(b"\xaf")).is_ok())
        .count();
    assert!(sent < 1_000_000, "the connection stays");
    assert!(server.rss_kb() < before + 8 * 1024, "{} kB more", server.rss_kb() - before);
    wait_for("the record to go", secs(5), || server.api().broadcast("live", "bad").is_none());
    bystander.finish(&mut server);
}

#[test]
fn m_10_a_flood_of_commands_is_cut_off() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let mut stream = TcpStream::connect(server.rtmp).unwrap();
    stream.write_all(&handshake()).unwrap();
    // Event 6 of user control messages is a ping request.
    let ping = b"\x02\0\0\0\0\0\x06\x04\0\0\0\0\0\x06\0\0\0\x01".repeat(1000);
    let mut floods = 0;
    while floods < 1000 && stream.write_all(&ping).is_ok() {
        floods += 1;
    }
    assert!(floods < 1000, "a million pings were taken");
    bystander.finish(&mut server);
}

#[test]
fn m_11_a_second_publisher_is_refused_and_the_first_loses_nothing() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    for _ in 0..20 {
        let refusal = RtmpPeer::publish(server.rtmp, "live", "bystander").unwrap_err();
        assert!(refusal.starts_with("NetStream.Publish.BadName"), "{refusal}");
    }
    bystander.finish(&mut server);
}

#[test]
fn m_14_names_that_are_no_ids_touch_no_file() {
    let home = Home::new();
    let (trace, inner) = (home.path().join("trace"), home.path().join("home"));
    // If a stream were accepted, its recording would be a file with the stream's name.
    let plain = Server::command(&inner, &["app.mp4MuxingEnabled=true", "app.hlsMuxingEnabled=true"]);
    let mut command = Command::new("strace");
    // With -D the server is the direct child of the test, and ends with it.
    command.args(["-D", "-f", "-qq", "-s", "500", "-e", "trace=%file", "-o"]).arg(&trace);
    command.arg(plain.get_program()).args(plain.get_args());
    let server = Server::spawn(&mut command);
    let before = std::fs::read_to_string(&trace).unwrap().len();
    for name in [
        "../../tmp/canary",
        "%2e%2e",
        "..",
        ".canary",
        "canary\u{0}",
        "canary\r\nb",
        &"x".repeat(65_000),
        "é",
    ] {
        let refusal = RtmpPeer::publish(server.rtmp, "live", name).unwrap_err();
        assert!(!refusal.contains("no answer"), "{name:?}: {refusal}");
        let refusal = RtmpPeer::publish(server.rtmp, name, "canary").unwrap_err();
        assert!(!refusal.contains("no answer"), "{name:?}: {refusal}");
    }
    let count = server.api().get("/live/rest/v2/broadcasts/count").body;
    assert_eq!(count, r#"{"number":0}"#);
    // The trace shows the files of a stream with a valid name, so it would also show others.
    let publisher = Publisher::start(server.rtmp, "live", "seen");
    let traced = || std::fs::read_to_string(&trace).unwrap().split_off(before);
    wait_for("its recording", secs(20), || traced().contains("seen"));
    publisher.stop();
    for line in traced().lines() {
        let odd = ["canary", "xxxx", "%2e", "é", "\"..", "\\303"].iter().find(|odd| line.contains(**odd));
        assert_eq!(odd, None, "{line}");
    }
}

#[test]
fn m_21_no_key_frame_and_huge_frames_stay_under_the_caps() {
    let mut server = Server::start(&[]);
    // The C library does not return all of the memory of huge frames to the system.
    let bystander = Bystander::start(&server).leaving(16 * 1024);
    let before = server.rss_kb();
    let mut peer = RtmpPeer::publish(server.rtmp, "live", "endless").unwrap();
    peer.send_configs().unwrap();
    // One key frame is followed by 150 MB of other frames, sent as fast as the server reads them.
    let mut source = MediaSource::new(&Seed::from_number(3)).gop(1_000_000).sizes(80_000, 100);
    crate::support::publish_synthetic(&mut peer, &mut source, 5000).unwrap();
    assert!(server.rss_kb() < before + 48 * 1024, "{} kB more", server.rss_kb() - before);
    peer.close();
    let mut peer = RtmpPeer::publish(server.rtmp, "live", "huge").unwrap();
    peer.send_configs().unwrap();
    let frame = bytes::Bytes::from(vec![0x17; 16_777_215]);
    let _ = peer.send(MediaKind::Video, 0, frame);
    let mut rest = [0; 1];
    peer.stream.set_read_timeout(Some(secs(10))).unwrap();
    while matches!(peer.stream.read(&mut rest), Ok(1)) {}
    wait_for("the record to go", secs(10), || server.api().broadcast("live", "huge").is_none());
    bystander.finish(&mut server);
}

#[test]
fn m_22_a_frozen_publisher_ends_its_stream_and_its_viewers_are_told() {
    let server = Server::start(&["app.publisherGraceMs=500"]);
    server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"frozen"}"#);
    let publisher = Program::ffmpeg_publish(&media_file(false, 12), &server.rtmp_url("live/frozen"));
    let status = || server.api().broadcast("live", "frozen").unwrap()["status"].as_str().unwrap().to_owned();
    wait_for("the stream", secs(20), || status() == "broadcasting");
    let player = Player::start(server.rtmp, "live", "frozen");
    std::thread::sleep(ms(500));
    publisher.signal("STOP");
    wait_for("the end", secs(25), || status() == "finished");
    wait_for("the viewer to be told", secs(5), || !player.is_playing());
    publisher.signal("CONT");
}

#[test]
fn m_22_a_publisher_reset_in_the_middle_of_a_chunk_is_waited_for() {
    let server = Server::start(&["app.publisherGraceMs=1500"]);
    server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"reset"}"#);
    let mut peer = RtmpPeer::publish(server.rtmp, "live", "reset").unwrap();
    peer.send_configs().unwrap();
    peer.stream.write_all(b"\x06\0\0\0\0\xff\xff\x09\x01\0\0\0\x17\x01").unwrap();
    socket2::SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let status = || server.api().broadcast("live", "reset").unwrap()["status"].as_str().unwrap().to_owned();
    std::thread::sleep(ms(300));
    assert_eq!(status(), "broadcasting");
    wait_for("the end of the grace", secs(10), || status() == "finished");
}

#[test]
fn m_23_viewers_that_stop_reading_hold_no_memory_and_harm_nobody() {
    let mut server = Server::start(&["app.maxLatencyMs=1000"]);
    let bystander = Bystander::start(&server);
    let source = MediaSource::new(&Seed::from_number(4)).gop(30).sizes(10_000, 300);
    let publisher = Publisher::start_from(server.rtmp, "live", "watched", source);
    let good = Player::start(server.rtmp, "live", "watched");
    wait_for("the video", secs(10), || good.units() > 30);
    let stalled: Vec<_> = (0..200).map(|_| RtmpPeer::play(server.rtmp, "live", "watched").unwrap()).collect();
    std::thread::sleep(secs(2));
    let memory = server.rss_kb();
    let before = good.units();
    wait_for("the good viewer to go on", secs(30), || good.units() > before + 600);
    let grown = server.rss_kb().saturating_sub(memory);
    assert!(grown < 8 * 1024, "{grown} kB more for 200 viewers that read nothing");
    drop(stalled);
    assert!(good.finish().is_clean(), "the good viewer lost something");
    publisher.stop();
    bystander.finish(&mut server);
}

#[test]
fn half_closed_and_vanishing_peers_leave_nothing_behind() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut random = Seed::from_number(worker).random();
                let whole = handshake();
                while !stop.load(Ordering::SeqCst) {
                    let mut stream = TcpStream::connect(server.rtmp).unwrap();
                    let cut = usize::try_from(random.below(whole.len() as u64)).unwrap();
                    let _ = stream.write_all(&whole[..cut]);
                    if random.chance(0.5) {
                        let _ = stream.shutdown(Shutdown::Write);
                    }
                }
            });
        }
        std::thread::sleep(secs(3));
        stop.store(true, Ordering::SeqCst);
    });
    bystander.finish(&mut server);
}

#[test]
fn h_23_viewers_and_publishers_no_longer_count_as_unauthenticated() {
    let server = Server::start(&["limits.exempt_loopback=false", "limits.connections_per_address=4"]);
    let _publisher = Publisher::start(server.rtmp, "live", "s");
    let viewers: Vec<_> = (0..20).map(|_| Player::start(server.rtmp, "live", "s")).collect();
    wait_for("all to play", secs(10), || viewers.iter().all(|viewer| viewer.units() > 0));
    let unauthenticated: Vec<_> = (0..8).map(|_| TcpStream::connect(server.rtmp).unwrap()).collect();
    let refused = unauthenticated.iter().filter(|peer| {
        peer.set_read_timeout(Some(ms(300))).unwrap();
        matches!((&mut &**peer).read(&mut [0]), Ok(0))
    });
    assert_eq!(refused.count(), 4, "the limit is for unauthenticated peers");
}
