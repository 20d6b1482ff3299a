//! Tests SRT with the whole server: encoders and players that use libsrt, exact codes of refusals, and unreliable
//! networks.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::publish_play::{assert_track_within, is_broadcasting};
use crate::support::{
    Home, Knock, Packet, Player, Program, Publisher, Relay, Server, SrtTool, SrtUrl, Way, data_is_encrypted,
    forged, induction, media_file, ms, secs, socket_id, ts_file, unit_md5, wait_for,
};

/// Returns the stream id with which a viewer requests a stream.
fn request(id: &str) -> String {
    format!("#!::r=live/{id},m=request")
}

fn srt(server: &Server) -> SocketAddr {
    server.srt.expect("the server does not listen for SRT")
}

/// Starts a publisher, and waits until its stream is live.
fn publish(server: &Server, tool: SrtTool, url: &SrtUrl, id: &str) -> Program {
    let program = tool.send(&ts_file(true, 12), &url.clone().stream_id(&format!("live/{id}")));
    wait_for("the stream", secs(20), || is_broadcasting(server, id));
    program
}

/// Records until there is enough to compare. Returns all packets except the last of each track, which may be
/// incomplete.
fn record(tool: SrtTool, url: &SrtUrl) -> Vec<Packet> {
    let home = Home::new();
    let into = home.path().join("recorded.ts");
    let program = tool.record(url, &into);
    wait_for("enough to compare", secs(30), || {
        std::fs::metadata(&into).is_ok_and(|file| file.len() > 450_000)
    });
    drop(program);
    let mut packets = unit_md5(into.to_str().unwrap(), None);
    for track in 0..2 {
        let last = packets.iter().rposition(|packet| packet.0 == track);
        last.into_iter().for_each(|at| drop(packets.remove(at)));
    }
    packets
}

/// Compares packets with the source. Timestamps may differ by 1 ms, because the clock of FLV has 1 kHz and that of
/// MPEG-TS 90 kHz.
fn assert_equal(source: &[Packet], played: &[Packet]) {
    (0..2).for_each(|track| assert_track_within(1, (track, source), (track, played)));
}

fn units_of(file: &Path) -> Vec<Packet> {
    unit_md5(file.to_str().unwrap(), None)
}

/// Waits until a stream whose publisher is lost has ended.
fn wait_for_end(server: &Server, id: &str) {
    wait_for("the stream to end", secs(30), || server.api().broadcast("live", id).is_none());
}

#[test]
fn s_26_what_is_published_by_srt_is_played_by_rtmp_http_and_srt_alike() {
    for tool in [SrtTool::Libsrt, SrtTool::GStreamer] {
        let server = Server::start(&[]);
        let _publisher = publish(&server, tool, &SrtUrl::caller(srt(&server)), "whole");
        let broadcast = server.api().broadcast("live", "whole").unwrap();
        assert_eq!(broadcast["publishType"], "SRT");
        let (rtmp, flv) = (server.rtmp_url("live/whole"), format!("http://{}/live/whole.flv", server.http));
        let by_srt = SrtUrl::caller(srt(&server)).stream_id(&request("whole"));
        std::thread::scope(|scope| {
            let rtmp = scope.spawn(|| unit_md5(&rtmp, Some(6)));
            let flv = scope.spawn(|| unit_md5(&flv, Some(4)));
            let played = record(SrtTool::Ffmpeg9, &by_srt);
            let source = units_of(&ts_file(true, 12));
            assert_equal(&source, &played);
            assert_equal(&source, &rtmp.join().unwrap());
            assert_equal(&source, &flv.join().unwrap());
        });
    }
}

#[test]
fn a_stream_has_the_speed_of_its_media_and_not_of_its_ticks() {
    let server = Server::start(&[]);
    let _publisher = publish(&server, SrtTool::Libsrt, &SrtUrl::caller(srt(&server)), "speed");
    let speed = || server.api().broadcast("live", "speed").unwrap()["speed"].as_f64().unwrap();
    // Until the average has settled, it may be above: the sender catches up with what it could not send before.
    // Ticks taken for milliseconds would stay at 90.
    wait_for("the speed of the media", secs(30), || (0.5..3.0).contains(&speed()));
}

#[test]
fn s_26_what_is_published_by_rtmp_is_played_by_every_srt_player() {
    for bframes in [false, true] {
        let server = Server::start(&[]);
        let file = media_file(bframes, 30);
        let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/from-rtmp"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "from-rtmp"));
        let source = units_of(&file);
        let url = SrtUrl::caller(srt(&server)).stream_id(&request("from-rtmp"));
        std::thread::scope(|scope| {
            for tool in SrtTool::ALL {
                let (url, source) = (&url, &source);
                scope.spawn(move || assert_equal(source, &record(tool, url)));
            }
        });
    }
}

#[test]
fn s_26_keys_of_all_lengths_and_both_families() {
    for (host, tool, key) in [
        ("127.0.0.1", SrtTool::Libsrt, 16),
        ("::1", SrtTool::Ffmpeg, 24),
        ("127.0.0.1", SrtTool::GStreamer, 32),
        ("::1", SrtTool::Ffmpeg9, 16),
    ] {
        let server = Server::start(&[&format!("server.host={host}"), "srt.passphrase=correct horse battery"]);
        let [clear, encrypted] = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
        let count = [Arc::clone(&clear), Arc::clone(&encrypted)];
        let relay = Relay::to(srt(&server)).tap(move |_, datagram| {
            if let Some(encrypted) = data_is_encrypted(datagram) {
                count[usize::from(encrypted)].fetch_add(1, Ordering::SeqCst);
            }
        });
        let relay = relay.start();
        let url = SrtUrl::caller(relay.address()).secret("correct horse battery", key);
        let _publisher = publish(&server, tool, &url, "secret");
        let played = record(tool, &url.stream_id(&request("secret")));
        assert_equal(&units_of(&ts_file(true, 12)), &played);
        assert_eq!(clear.load(Ordering::SeqCst), 0, "{tool:?}: something was sent in the clear");
        assert!(encrypted.load(Ordering::SeqCst) > 500);
    }
}

#[test]
fn s_05_refusals_have_the_codes_of_their_reasons() {
    let server = Server::start(&[]);
    let _live = Publisher::start(server.rtmp, "live", "taken");
    for (stream_id, code) in [
        ("nowhere/x", 1404),
        ("#!::r=live/offline,m=request", 1404),
        ("live/taken", 1409),
        ("#!::r=live/taken,m=publish", 1409),
        ("live/a b", 1400),
        ("live/", 1400),
        ("#!::m=publish", 1400),
        ("#!::r=live/x,r=live/y,m=publish", 1400),
        ("#!::r", 1400),
        ("#!::r=live/x,m=steal", 1405),
        ("#!::r=live/x,m=bidirectional", 1405),
    ] {
        assert_eq!(Knock::new(stream_id).connect(srt(&server)), Err(code), "{stream_id}");
    }
    // Stream ids that name no valid stream are refused.
    for stream_id in ["#!::r=../../x,m=publish", "live/../x", "/", "live/%2e%2e/x", "live/a\0b"] {
        let refused = Knock::new(stream_id).connect(srt(&server));
        assert!(matches!(refused, Err(1400..=1499)), "{stream_id}: {refused:?}");
    }
    let longest = format!("live/x,p={}", "v".repeat(512 - 9));
    assert_eq!(longest.len(), 512);
    assert_eq!(Knock::new(&longest).connect(srt(&server)), Ok(()));
    assert_eq!(Knock::new("#!::r=live/taken,m=request").connect(srt(&server)), Ok(()));
}

#[test]
fn s_22_a_wrong_passphrase_and_none_are_refused_with_a_reason() {
    let closed = Server::start(&["srt.passphrase=correct horse battery"]);
    assert_eq!(Knock::new("live/x").connect(srt(&closed)), Err(11));
    assert_eq!(Knock::with_wrong_key("live/x").connect(srt(&closed)), Err(10));
    let open = Server::start(&[]);
    let refused = Knock::with_wrong_key("live/x").connect(srt(&open));
    assert!(matches!(refused, Err(10 | 11)), "{refused:?}");
    let url = SrtUrl::caller(srt(&closed)).secret("wrong horse battery", 16).stream_id("live/x");
    let ended = SrtTool::Ffmpeg.send(&ts_file(true, 12), &url).wait(secs(10));
    assert!(ended.is_some_and(|status| !status.success()), "ffmpeg takes it for success");
    assert!(closed.api().broadcast("live", "x").is_none());
}

#[test]
fn x_7_callers_with_another_packet_filter_are_refused() {
    let fec = "fec,cols:10,rows:5";
    for (setting, taken, refused) in [
        ("srt.packet_filter=any", &["", "fec,cols:3", fec][..], &["fec", "fec,cols:1", "adaptive,x:1"][..]),
        ("srt.packet_filter=off", &[""], &["fec,cols:3", "fec"]),
        (
            "srt.packet_filter=fec,cols:10,rows:5",
            &["", "fec", fec, "fec,cols:10,arq:never"],
            &["fec,cols:11", "fec,rows:4"],
        ),
    ] {
        let server = Server::start(&[setting]);
        for (filters, wanted) in [(taken, Ok(())), (refused, Err(14))] {
            for (number, filter) in filters.iter().enumerate() {
                let id = format!("live/{}{number}", if wanted.is_ok() { "taken" } else { "refused" });
                let found = Knock::new(&id).filter(filter).connect(srt(&server));
                assert_eq!(found, wanted, "{setting}: {filter:?}");
            }
        }
    }
}

/// Returns the sum of a statistic over all SRT connections of a stream with this role.
fn figure(server: &Server, id: &str, role: &str, name: &str) -> u64 {
    let all = server.api().get(&format!("/live/rest/v2/broadcasts/{id}/srt-stats")).json();
    let all = all.as_array().unwrap();
    all.iter().filter(|one| one["role"] == role).map(|one| one[name].as_u64().unwrap()).sum()
}

/// Checks that without retransmission, lost packets are restored from parity alone: from libsrt's parity towards the
/// server, and from the server's parity towards viewers.
#[test]
fn x_7_the_server_and_libsrt_rebuild_what_the_other_has_sent() {
    let server = Server::start(&[]);
    let never = "fec,cols:5,rows:4,layout:even,arq:never";
    let lossy =
        |seed| Relay::to(srt(&server)).seed(seed).links(|link| link.latency(ms(15)).loss(0.02)).start();
    let (to_publish, to_play) = (lossy(1), lossy(2));
    let of_publisher = SrtUrl::caller(to_publish.address()).latency_ms(1200).filter(never);
    let _publisher = publish(&server, SrtTool::Libsrt, &of_publisher, "parity");
    let of_viewer = SrtUrl::caller(to_play.address()).latency_ms(1200).filter(never);
    let seen = std::thread::scope(|scope| {
        let viewer = scope.spawn(|| record(SrtTool::Libsrt, &of_viewer.stream_id(&request("parity"))));
        // The statistics only exist while both the publisher and the viewer are connected.
        wait_for("parity that was used", secs(20), || {
            figure(&server, "parity", "publisher", "pktRcvFilterSupply") > 3
                && figure(&server, "parity", "viewer", "pktSndFilterExtra") > 100
        });
        let figures =
            [("publisher", "pktRcvFilterExtra"), ("publisher", "pktSentNAK"), ("viewer", "pktRetrans")];
        let figures = figures.map(|(role, name)| figure(&server, "parity", role, name));
        assert!(figures[0] > 50 && figures[1..] == [0, 0], "{figures:?}");
        viewer.join().unwrap()
    });
    assert!(to_play.stats(Way::Back).lost > 5, "{:?}", to_play.stats(Way::Back));
    assert_equal(&units_of(&ts_file(true, 12)), &seen);
}

/// Waits until an RTMP viewer has received 60 more messages.
fn goes_on(player: &Player) {
    let before = player.media();
    wait_for("the video to go on", secs(20), || player.media() > before + 60);
}

#[test]
fn n_01_to_n_05_what_a_bad_network_loses_is_repaired() {
    let server = Server::start(&[]);
    for seed in crate::support::network_seeds() {
        println!("seed {seed}");
        let relay = Relay::to(srt(&server))
            .seed(seed)
            .links(|link| link.latency(ms(15)).jitter(ms(20)).loss(0.02).reorder(0.05).duplicate(0.05));
        let relay = relay.start();
        let url = SrtUrl::caller(relay.address()).latency_ms(800);
        let name = format!("repaired{seed}");
        let _publisher = publish(&server, SrtTool::Ffmpeg9, &url, &name);
        let played = record(SrtTool::Libsrt, &url.stream_id(&request(&name)));
        let (there, back) = (relay.stats(Way::There), relay.stats(Way::Back));
        assert!(there.lost > 5 && back.lost > 5, "{there:?} {back:?}");
        assert_equal(&units_of(&ts_file(true, 12)), &played);
    }
}

#[test]
fn n_06_fades_are_got_over() {
    let server = Server::start(&["app.publisherGraceMs=0"]);
    let relay = Relay::to(srt(&server)).seed(3).links(|link| link.latency(ms(10)).fading(secs(5), ms(200)));
    let relay = relay.start();
    let url = SrtUrl::caller(relay.address()).latency_ms(1200);
    let _publisher = publish(&server, SrtTool::Libsrt, &url, "fading");
    let played = record(SrtTool::Ffmpeg9, &url.clone().stream_id(&request("fading")));
    assert_equal(&units_of(&ts_file(true, 12)), &played);
    assert!(relay.stats(Way::There).faded > 10, "{:?}", relay.stats(Way::There));
}

#[test]
fn n_07_a_road_of_half_the_rate_is_got_over() {
    let server = Server::start(&["app.publisherGraceMs=0"]);
    let relay = Relay::to(srt(&server)).links(|link| link.latency(ms(10))).start();
    let url = SrtUrl::caller(relay.address()).stream_id("live/narrow");
    let _publisher = SrtTool::Libsrt.send(&ts_file(true, 40), &url);
    wait_for("the stream", secs(20), || is_broadcasting(&server, "narrow"));
    let player = Player::start(server.rtmp, "live", "narrow");
    goes_on(&player);
    // Late packets are dropped, but the session continues when the path has its full rate again.
    let now = std::time::Instant::now();
    relay.change(Way::There, move |link| link.rate_between(now, now + secs(6), 400_000));
    std::thread::sleep(secs(6));
    goes_on(&player);
    assert!(player.is_playing() && relay.stats(Way::There).overflowed > 0);
}

/// Returns the number of SRT sessions according to the metrics.
fn sessions(server: &Server) -> f64 {
    server.api().metric("millstream_sessions{", "protocol=\"srt\"")
}

#[test]
fn s_06_callers_that_fall_silent_cost_little_and_go() {
    let mut server = Server::start(&["app.publisherGraceMs=500"]);
    let bystander = crate::support::Bystander::start(&server);
    let before = server.rss_kb();
    for number in 0..500 {
        assert_eq!(Knock::new(&format!("live/silent{number}")).connect(srt(&server)), Ok(()));
    }
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < 500 * 64, "{grown} KB more for 500 callers");
    wait_for("the silent ones to be gone", secs(30), || sessions(&server) == 0.0);
    bystander.finish(&mut server);
}

/// Checks that ten thousand callers from one address get no more than its share, so that callers from another address
/// are accepted all the time.
#[test]
fn s_06_one_address_has_its_share_of_callers() {
    let mut server = Server::start(&[
        "app.publisherGraceMs=500",
        "limits.exempt_loopback=false",
        "limits.new_connections_per_second=1000000",
        "limits.new_connections_burst=1000000",
    ]);
    let bystander = crate::support::Bystander::start(&server);
    let calls = Knock::new("live/crowd").from("127.0.5.1".parse().unwrap()).crowd(srt(&server), 10_000);
    assert!(calls > 9000, "{calls}");
    let other = Knock::new("live/other").from("127.0.5.2".parse().unwrap());
    assert_eq!(other.connect(srt(&server)), Ok(()), "another address");
    let most = sessions(&server);
    assert!((1.0..=1001.0).contains(&most), "{most} sessions of an address that may have 1000");
    wait_for("the silent ones to be gone", secs(60), || sessions(&server) == 0.0);
    bystander.finish(&mut server);
}

/// Checks that induction requests from thousands of ports create no sessions and use no memory, and that answers are
/// not longer than the requests.
#[test]
fn s_02_a_hundred_thousand_inductions_leave_nothing() {
    const PORTS: usize = 1000;
    let mut server = Server::start(&[]);
    let bystander = crate::support::Bystander::start(&server);
    let before = server.rss_kb();
    let question = induction();
    let (mut asked, mut answered) = (0, 0);
    for from in 0..PORTS {
        let socket = UdpSocket::bind(("127.0.6.1", 0)).unwrap();
        socket.connect(srt(&server)).unwrap();
        for _ in 0..100 {
            asked += usize::from(socket.send(&question).is_ok());
        }
        // The server's socket loses datagrams when it is full, so the next port sends only after this one was answered.
        socket.set_read_timeout(Some(ms(500))).unwrap();
        let mut answer = [0; 1500];
        while let Ok(bytes) = socket.recv(&mut answer) {
            assert!(bytes <= question.len(), "an answer of {bytes} to {} bytes, port {from}", question.len());
            answered += 1;
            socket.set_nonblocking(true).unwrap();
        }
    }
    assert!(asked > 90_000 && answered >= PORTS * 9 / 10, "{answered} of {asked} answered");
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < 8 * 1024 && sessions(&server) == 0.0, "{grown} KB more");
    assert_eq!(Knock::new("live/real").connect(srt(&server)), Ok(()), "a real caller");
    bystander.finish(&mut server);
}

#[test]
fn n_08_a_blackout_of_three_seconds_keeps_the_session_and_its_viewers() {
    let server = Server::start(&["app.publisherGraceMs=0"]);
    let relay = Relay::to(srt(&server)).links(|link| link.latency(ms(10))).start();
    let _publisher = publish(&server, SrtTool::Libsrt, &SrtUrl::caller(relay.address()), "dark");
    let player = Player::start(server.rtmp, "live", "dark");
    goes_on(&player);
    relay.blackout(secs(3));
    goes_on(&player);
    // There is no grace period, so the viewer would have been disconnected if the publisher had been lost.
    assert!(relay.stats(Way::There).dark > 100 && player.is_playing());
    assert_eq!(relay.clients(), 1);
}

#[test]
fn n_08_a_longer_blackout_ends_the_session_then_its_grace_and_the_id_is_free() {
    let server = Server::start(&["app.publisherGraceMs=500"]);
    let relay = Relay::to(srt(&server)).start();
    let url = SrtUrl::caller(relay.address());
    let _publisher = publish(&server, SrtTool::Libsrt, &url, "gone");
    relay.blackout(secs(3600));
    wait_for_end(&server, "gone");
    assert_eq!(Knock::new("live/gone").connect(srt(&server)), Ok(()));
}

#[test]
fn n_09_a_publisher_whose_address_changes_is_another_and_the_old_one_ends_by_idle() {
    let server = Server::start(&["app.publisherGraceMs=500"]);
    let relay = Relay::to(srt(&server)).start();
    let url = SrtUrl::caller(relay.address());
    let _publisher = publish(&server, SrtTool::Libsrt, &url, "moved");
    relay.rebind();
    wait_for_end(&server, "moved");
}

#[test]
fn n_11_one_direction_is_not_enough() {
    for way in Way::BOTH {
        let server = Server::start(&["app.publisherGraceMs=500"]);
        let relay = Relay::to(srt(&server)).start();
        let _publisher = publish(&server, SrtTool::Ffmpeg, &SrtUrl::caller(relay.address()), "half");
        relay.darken(way, secs(3600));
        wait_for_end(&server, "half");
    }
}

/// Checks that a peer that announces a small packet size (MSS) gets no larger packets.
#[test]
fn n_10_paths_of_1280_and_576_bytes_carry_what_fits_them() {
    for (path, name) in [(1280, "narrow"), (576, "smallest")] {
        let server = Server::start(&[]);
        let over_the_path = path - 28;
        let relay = Relay::to(srt(&server)).links(move |link| link.mtu(over_the_path)).start();
        let url = SrtUrl::caller(relay.address()).mss(u32::try_from(path).unwrap());
        let _publisher = publish(&server, SrtTool::Libsrt, &url, name);
        let played = record(SrtTool::Libsrt, &url.stream_id(&request(name)));
        assert_equal(&units_of(&ts_file(true, 12)), &played);
        for way in Way::BOTH {
            let stats = relay.stats(way);
            assert!(stats.delivered > 100 && stats.too_big == 0, "{path}, {way:?}: {stats:?}");
        }
    }
}

#[test]
fn n_10_n_12_a_path_of_1400_bytes_and_marked_packets() {
    let server = Server::start(&[]);
    // With all headers, 1316 bytes become 1360, which fit into packets of 1400, with any DSCP and ECN bits.
    let relay = Relay::to(srt(&server)).links(|link| link.mtu(1372)).tos(0x8b).start();
    let url = SrtUrl::caller(relay.address());
    let _publisher = publish(&server, SrtTool::GStreamer, &url, "marked");
    assert_equal(
        &units_of(&ts_file(true, 12)),
        &record(SrtTool::GStreamer, &url.stream_id(&request("marked"))),
    );
    assert_eq!(relay.stats(Way::Back).too_big, 0);
}

#[test]
fn s_09_what_comes_from_another_address_does_nothing() {
    let server = Server::start(&["app.publisherGraceMs=0"]);
    let id = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&id);
    let relay = Relay::to(srt(&server)).tap(move |way, datagram| {
        if way == Way::There && data_is_encrypted(datagram).is_some() {
            seen.store(socket_id(datagram), Ordering::SeqCst);
        }
    });
    let relay = relay.start();
    let _publisher = publish(&server, SrtTool::Libsrt, &SrtUrl::caller(relay.address()), "robbed");
    let player = Player::start(server.rtmp, "live", "robbed");
    goes_on(&player);
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    // The socket is connected to the server, so that it does not receive datagrams that others still send to the former
    // owner of its port.
    forger.connect(srt(&server)).unwrap();
    for _ in 0..50 {
        for datagram in forged(id.load(Ordering::SeqCst)) {
            forger.send(&datagram).unwrap();
        }
    }
    goes_on(&player);
    forger.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = [0; 1500];
    let length = forger.recv(&mut answer).unwrap_or(0);
    assert_eq!(answer[..length], [0; 0], "it is answered");
}

#[test]
fn s_01_garbage_is_dropped_beside_a_stream() {
    let mut server = Server::start(&[]);
    let bystander = crate::support::Bystander::start(&server);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = crypto::Seed::from_number(1).random();
    for length in 0..1500 {
        let mut datagram = vec![0; length];
        random.fill(&mut datagram);
        for control in [false, true] {
            if let Some(first) = datagram.first_mut() {
                *first = if control { 0x80 } else { *first & 0x7f };
            }
            socket.send_to(&datagram, srt(&server)).unwrap();
        }
    }
    bystander.finish(&mut server);
}

#[test]
fn many_publishers_come_over_one_network() {
    const STREAMS: usize = 8;
    let server = Server::start(&[]);
    let relay = Relay::to(srt(&server)).links(|link| link.latency(ms(5)).loss(0.01)).start();
    let file = ts_file(true, 40);
    let ids: Vec<String> = (0..STREAMS).map(|number| format!("many{number}")).collect();
    let publish = |id: &String| {
        let url = SrtUrl::caller(relay.address()).latency_ms(400).stream_id(&format!("live/{id}"));
        SrtTool::Ffmpeg.send(&file, &url)
    };
    let _publishers: Vec<Program> = ids.iter().map(publish).collect();
    wait_for("all streams", secs(30), || ids.iter().all(|id| is_broadcasting(&server, id)));
    let players: Vec<Player> = ids.iter().map(|id| Player::start(server.rtmp, "live", id)).collect();
    players.iter().for_each(goes_on);
    assert_eq!(relay.clients(), STREAMS);
    // The broadcasts show the loss and the round trip time of the path.
    let seen = |id: &String| {
        let broadcast = server.api().broadcast("live", id).unwrap_or_default();
        let number = |name: &str| broadcast[name].as_f64().unwrap_or_default();
        let ratio = number("packetLostRatio");
        number("packetsLost") > 0.0 && ratio > 0.0 && ratio < 0.2 && number("rttMs") >= 10.0
    };
    wait_for("the losses to show", secs(20), || ids.iter().any(seen));
}

#[test]
fn a_publisher_of_nothing_that_is_carried_is_ended_with_a_reason() {
    let server = Server::start(&[]);
    let url = SrtUrl::caller(srt(&server)).stream_id("live/mpeg2").text(SrtTool::Ffmpeg);
    let mut encoder = Command::new("ffmpeg");
    encoder.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-f", "lavfi", "-i"]);
    encoder.args(["testsrc2=size=320x180:rate=25", "-t", "60", "-c:v", "mpeg2video", "-f", "mpegts", &url]);
    let mut encoder = Program::start(&mut encoder);
    wait_for("the stream", secs(20), || is_broadcasting(&server, "mpeg2"));
    let ended = encoder.wait(secs(30));
    assert!(ended.is_some_and(|status| !status.success()), "it went on");
    let reason = "nothing that is carried was announced within 5 s";
    wait_for("the end", secs(10), || server.api().broadcast("live", "mpeg2").is_none());
    let log = server.log_with("session ended protocol=\"srt\"");
    let said =
        |words: &[&str]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    assert_eq!(said(&["stream has a fault", "key=live/mpeg2", reason]), 1, "{log}");
    assert_eq!(said(&["session ended", "key=live/mpeg2", reason]), 1, "{log}");
}

#[test]
fn ffmpeg_and_gstreamer_decode_what_they_play() {
    let server = Server::start(&[]);
    let _publisher = publish(&server, SrtTool::Ffmpeg, &SrtUrl::caller(srt(&server)), "seen");
    let url = SrtUrl::caller(srt(&server)).stream_id(&request("seen"));
    let mut decoder = Command::new("ffmpeg");
    decoder.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-nostdin",
        "-xerror",
        "-i",
        &url.text(SrtTool::Ffmpeg),
    ]);
    decoder.args(["-t", "3", "-map", "0:v", "-map", "0:a", "-f", "null", "-"]);
    let (status, _, err) = crate::support::run(&mut decoder);
    assert!(status.success() && err.is_empty(), "{err}");
    let mut player = Command::new("gst-launch-1.0");
    player.args(["-q", "srtsrc", &format!("uri={}", url.text(SrtTool::GStreamer)), "num-buffers=200", "!"]);
    player.args(["tsdemux", "!", "h264parse", "!", "avdec_h264", "!", "fakesink"]);
    let (status, _, err) = crate::support::run(&mut player);
    assert!(status.success() && !err.contains("ERROR"), "{err}");
}
