//! Tests pushes and pulls over SRT, which are supervised like those over RTMP, and hostile peers of them.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{
    Bystander, Home, Player, Program, Publisher, Server, SrtTool, SrtUrl, coded_file, ffmpeg9, media_file,
    ms, own_port, secs, ts_file, wait_for,
};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn srt_url(address: SocketAddr, query: &str) -> String {
    format!("srt://{address}?{query}")
}

fn push(server: &Server, id: &str, url: &str) -> String {
    server.api().post(&format!("{BROADCASTS}/create"), &format!(r#"{{"streamId":"{id}"}}"#));
    let body = serde_json::json!({ "endpointUrl": url }).to_string();
    let result = server.api().post(&format!("{BROADCASTS}/{id}/endpoint"), &body).json();
    assert_eq!(result["success"], true, "{result}");
    result["dataId"].as_str().unwrap().to_owned()
}

fn push_status(server: &Server, id: &str) -> String {
    let record = server.api().broadcast("live", id).unwrap();
    record["endPointList"][0]["status"].as_str().unwrap_or("none").to_owned()
}

fn pull(server: &Server, id: &str, url: &str) {
    let body = serde_json::json!({ "streamId": id, "type": "streamSource", "streamUrl": url }).to_string();
    let result = server.api().post(&format!("{BROADCASTS}/create?autoStart=true"), &body).json();
    assert_eq!(result["success"], true, "{result}");
}

fn status(server: &Server, id: &str) -> String {
    server
        .api()
        .broadcast("live", id)
        .map_or_else(String::new, |record| record["status"].as_str().unwrap_or_default().to_owned())
}

fn plays(player: &Player) {
    let before = player.media();
    wait_for("the video", secs(30), || player.media() > before + 60);
}

/// Starts a server with this SRT port, which it also has after a restart.
fn start_at(port: u16, home: &Home) -> Server {
    Server::start_in(&home.path().join("home"), &[&format!("server.srt_port={port}"), "srt.pbkeylen=32"])
}

#[test]
fn u_01_a_push_over_srt_comes_back_with_its_target() {
    let (home, port) = (Home::new(), own_port("127.0.0.1").port());
    let mut target = start_at(port, &home);
    let server = Server::start(&["server.workers=2"]);
    let url = format!("srt://127.0.0.1:{port}?streamid=%23!::r=LiveApp/copy,m=publish&latency=60");
    push(&server, "s1", &url);
    let _publisher = Program::ffmpeg_publish(&media_file(true, 12), &server.rtmp_url("live/s1"));
    wait_for("the push", secs(20), || push_status(&server, "s1") == "broadcasting");
    wait_for("the copy", secs(10), || target.api().broadcast("LiveApp", "copy").is_some());
    plays(&Player::start(target.rtmp, "LiveApp", "copy"));

    target.kill();
    wait_for("the loss to show", secs(20), || push_status(&server, "s1") != "broadcasting");
    let target = start_at(port, &home);
    wait_for("the push to come back", secs(60), || push_status(&server, "s1") == "broadcasting");
    wait_for("the copy again", secs(10), || target.api().broadcast("LiveApp", "copy").is_some());
    plays(&Player::start(target.rtmp, "LiveApp", "copy"));
    let figures = server.api().get(&format!("{BROADCASTS}/s1/srt-stats")).json();
    assert_eq!((figures[0]["role"].as_str(), figures[1].is_null()), (Some("push"), true), "{figures}");
    assert!(figures[0]["pktSent"].as_u64().unwrap() > 50);
}

#[test]
fn x_7_pushes_and_pulls_ask_for_the_packet_filter_of_their_url_or_the_setting() {
    let target = Server::start(&[]);
    let server = Server::start(&["srt.packet_filter=fec,cols:8"]);
    let extra = |server: &Server, app: &str, id: &str, name: &str| {
        let reply = server.api().get(&format!("/{app}/rest/v2/broadcasts/{id}/srt-stats"));
        // The stream has no publisher yet.
        if reply.status == 404 {
            return 0;
        }
        reply.json().as_array().map_or(0, |all| all.iter().filter_map(|one| one[name].as_u64()).sum())
    };
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    let fec = "packetfilter=fec,cols:4,rows:3,arq:always";
    push(&server, "s1", &srt_url(target.srt.unwrap(), &format!("streamid=live/copy&latency=60&{fec}")));
    wait_for("parity of the push", secs(20), || {
        extra(&server, "live", "s1", "pktSndFilterExtra") > 20
            && extra(&target, "live", "copy", "pktRcvFilterExtra") > 20
    });
    plays(&Player::start(target.rtmp, "live", "copy"));
    // The push has seven parity packets for twelve data packets. The pull uses the server's setting, which is parity by
    // rows: one parity packet for eight data packets.
    pull(&server, "s2", &srt_url(target.srt.unwrap(), "streamid=%23!::r=live/copy"));
    wait_for("parity of the pull", secs(20), || extra(&server, "live", "s2", "pktRcvFilterExtra") > 20);
    let [parity, data] =
        ["pktRcvFilterExtra", "pktRecvUnique"].map(|name| extra(&server, "live", "s2", name));
    assert!((6..=10).contains(&(data / parity)), "{parity} for {data}");
    plays(&Player::start(server.rtmp, "live", "s2"));
    push(&server, "s1", &srt_url(target.srt.unwrap(), "streamid=live/plain&latency=60&packetfilter=off"));
    wait_for("the third stream", secs(20), || extra(&target, "live", "plain", "pktRecvUnique") > 20);
    assert_eq!(extra(&target, "live", "plain", "pktRcvFilterExtra"), 0);
}

#[test]
fn a_push_over_srt_says_which_tracks_it_leaves_out() {
    let (target, server) = (Server::start(&[]), Server::start(&[]));
    let url = srt_url(target.srt.unwrap(), "streamid=%23!::r=LiveApp/copy,m=publish&latency=60");
    push(&server, "s1", &url);
    let file = coded_file(
        "vp9-aac",
        &["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "aac"],
    );
    let mut encoder = Command::new(ffmpeg9());
    encoder.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
    let _encoder = Program::start(encoder.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/s1")]));
    let endpoint = || server.api().broadcast("live", "s1").unwrap()["endPointList"][0].clone();
    wait_for("what is left out", secs(20), || endpoint()["leftOut"] == serde_json::json!(["VP9"]));
    assert_eq!(endpoint()["status"], "broadcasting");
    server.wait_for_line("push leaves out tracks");
}

#[test]
fn u_34_a_push_over_srt_into_another_application_and_never_into_itself() {
    let server = Server::start(&["srt.passphrase=correct horse battery"]);
    let address = server.srt.unwrap();
    let secret = "passphrase=correct%20horse%20battery";
    push(&server, "s1", &srt_url(address, &format!("streamid=LiveApp/copy&{secret}")));
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    wait_for("the copy", secs(20), || server.api().broadcast("LiveApp", "copy").is_some());
    plays(&Player::start(server.rtmp, "LiveApp", "copy"));
    let body = serde_json::json!({ "endpointUrl": srt_url(address, "streamid=live/s1") }).to_string();
    let reply = server.api().post(&format!("{BROADCASTS}/s1/endpoint"), &body).json();
    assert_eq!(reply["success"], false);
    // With a wrong passphrase the push fails, and nothing else is affected.
    push(&server, "s2", &srt_url(address, "streamid=LiveApp/other&passphrase=wrong%20horse%20battery"));
    let _second = Publisher::start(server.rtmp, "live", "s2");
    wait_for("the refusal", secs(20), || push_status(&server, "s2") == "failed");
    assert!(server.api().broadcast("LiveApp", "other").is_none());
}

#[test]
fn u_03_u_04_pushes_into_a_black_hole_harm_nobody_and_go_at_once() {
    let mut server = Server::start(&["limits.endpoints=200"]);
    let bystander = Bystander::start(&server);
    // The target receives datagrams but never answers.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let files = server.open_sockets();
    let mut ids = Vec::new();
    for n in 0..100 {
        let url = srt_url(silent.local_addr().unwrap(), &format!("streamid=a/s{n}"));
        ids.push(push(&server, "holes", &url));
    }
    let publisher = Publisher::start(server.rtmp, "live", "holes");
    // A push that starts another attempt may still hold its previous socket for a moment.
    wait_for("a socket for each try", secs(20), || {
        (files + 91..=files + 110).contains(&server.open_sockets())
    });
    wait_for("the failures", secs(30), || push_status(&server, "holes") == "failed");
    for id in ids {
        let gone = server.api().delete(&format!("{BROADCASTS}/holes/endpoint?endpointServiceId={id}")).json();
        assert_eq!(gone["success"], true);
    }
    wait_for("the sockets to be gone", secs(10), || server.open_sockets() <= files + 8);
    publisher.stop();
    bystander.finish(&mut server);
}

#[test]
fn u_20_u_21_hostile_srt_servers_are_failed_tries_and_nothing_else() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let hostile = UdpSocket::bind("127.0.0.1:0").unwrap();
    hostile.set_read_timeout(Some(ms(100))).unwrap();
    let address = hostile.local_addr().unwrap();
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let answers = std::thread::spawn({
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        move || {
            let mut random = crypto::Seed::from_number(5).random();
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::SeqCst) {
                let Ok((count, from)) = hostile.recv_from(&mut buffer) else { continue };
                // The answers are the request with damage, the request without its end, and random bytes of any length.
                for kind in 0..12 {
                    let mut answer = buffer[..count].to_vec();
                    let at = usize::try_from(random.below(count as u64)).unwrap();
                    match kind % 3 {
                        0 => answer[at] ^= 1 << random.below(8),
                        1 => answer.truncate(at),
                        _ => {
                            answer = vec![0; usize::try_from(random.below(1500)).unwrap()];
                            random.fill(&mut answer);
                            // The answer is addressed to the socket that sent the request.
                            if answer.len() > 16 && count > 44 {
                                answer[12..16].copy_from_slice(&buffer[40..44]);
                                answer[0] = 0x80;
                                answer[1] = u8::try_from(random.below(9)).unwrap();
                            }
                        }
                    }
                    let _ = hostile.send_to(&answer, from);
                }
                answered.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    push(&server, "s1", &srt_url(address, "streamid=a/b&passphrase=correct%20horse"));
    let publisher = Publisher::start(server.rtmp, "live", "s1");
    pull(&server, "far", &srt_url(address, "streamid=%23!::r=a/b"));
    wait_for("both to try again and again", secs(60), || answered.load(Ordering::SeqCst) > 60);
    assert_ne!(status(&server, "far"), "broadcasting");
    assert_ne!(push_status(&server, "s1"), "broadcasting");
    stop.store(true, Ordering::SeqCst);
    answers.join().unwrap();
    server.api().post(&format!("{BROADCASTS}/far/stop"), "");
    publisher.stop();
    bystander.finish(&mut server);
}

#[test]
fn u_02_a_pull_over_srt_keeps_its_viewers_through_the_end_of_its_source() {
    let (home, port) = (Home::new(), own_port("127.0.0.1").port());
    let mut upstream = start_at(port, &home);
    let file = ts_file(true, 12);
    let origin = SrtUrl::caller(upstream.srt.unwrap()).stream_id("live/origin");
    let publisher = SrtTool::Ffmpeg9.send(&file, &origin);
    wait_for("the origin", secs(20), || upstream.api().broadcast("live", "origin").is_some());
    let server = Server::start(&["server.workers=2"]);
    pull(&server, "copy", &format!("srt://127.0.0.1:{port}?streamid=%23!::r=live/origin&latency=60"));
    wait_for("the copy", secs(20), || status(&server, "copy") == "broadcasting");
    let record = server.api().broadcast("live", "copy").unwrap();
    assert_eq!((&record["publishType"], &record["type"]), (&"Pull".into(), &"streamSource".into()));
    let player = Player::start(server.rtmp, "live", "copy");
    plays(&player);

    upstream.kill();
    drop(publisher);
    wait_for("the loss to be noticed", secs(20), || status(&server, "copy") != "broadcasting");
    let upstream = start_at(port, &home);
    let _publisher =
        SrtTool::Libsrt.send(&file, &SrtUrl::caller(upstream.srt.unwrap()).stream_id("live/origin"));
    wait_for("the copy again", secs(60), || status(&server, "copy") == "broadcasting");
    plays(&player);
    assert!(player.is_playing());
}

#[test]
fn a_source_that_calls_us_is_waited_for() {
    let address = own_port("127.0.0.1");
    let server = Server::start(&[]);
    let url = format!("srt://{address}?mode=listener&passphrase=correct%20horse%20battery");
    pull(&server, "called", &url);
    let caller = SrtUrl::caller(address).secret("correct horse battery", 24);
    let first = SrtTool::Libsrt.send(&ts_file(true, 12), &caller);
    wait_for("the stream", secs(20), || status(&server, "called") == "broadcasting");
    let player = Player::start(server.rtmp, "live", "called");
    plays(&player);
    drop(first);
    wait_for("the loss", secs(20), || status(&server, "called") != "broadcasting");
    let _second = SrtTool::GStreamer.send(&ts_file(true, 12), &caller);
    wait_for("the stream again", secs(60), || status(&server, "called") == "broadcasting");
    plays(&player);
}
