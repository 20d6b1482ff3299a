//! Tests stream sources: a server pulls streams from another over all protocols, through outages, while its viewers
//! keep playing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::http_flv::WsPeer;
use crate::publish_play::{assert_equal_from_first_key_frame, assert_track_within};
use crate::support::{
    Bystander, Home, Nginx, Packet, Player, Program, Publisher, RtmpPeer, Server, frame_md5, media_file,
    own_port, run, secs, source_packets, ts_file, unit_md5, wait_for,
};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

/// Creates and starts a source.
pub(super) fn start_source(server: &Server, id: &str, url: &str) {
    let result = create(server, id, url, "?autoStart=true", "");
    assert_eq!((&result["success"], &result["dataId"]), (&true.into(), &id.into()), "{result}");
}

fn create(server: &Server, id: &str, url: &str, query: &str, more: &str) -> Value {
    let body = format!(r#"{{"streamId":"{id}","type":"streamSource","streamUrl":"{url}"{more}}}"#);
    server.api().post(&format!("{BROADCASTS}/create{query}"), &body).json()
}

fn status(server: &Server, id: &str) -> String {
    let broadcast = server.api().broadcast("live", id).unwrap();
    broadcast["status"].as_str().unwrap().to_owned()
}

fn wait_for_status(server: &Server, id: &str, wanted: &[&str]) {
    wait_for(&format!("{id} to be {wanted:?}"), secs(40), || wanted.contains(&status(server, id).as_str()));
}

/// A server that has the same ports after a restart. The kernel gives them to nobody else meanwhile.
struct Upstream {
    home: Home,
    settings: Vec<String>,
    server: Option<Server>,
}

impl Upstream {
    fn start() -> Self {
        let ports = ["rtmp", "http", "rtsp"].map(|name| (name, own_port("127.0.0.1").port()));
        let settings = ports.map(|(name, port)| format!("{name}.port={port}")).to_vec();
        let mut upstream = Self { home: Home::new(), settings, server: None };
        upstream.resume();
        upstream
    }

    fn resume(&mut self) {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        self.server = Some(Server::start_in(&self.home.path().join("home"), &settings));
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

fn flv_url(server: &Server, id: &str) -> String {
    format!("http://{}/live/{id}.flv", server.http)
}

/// Starts a server that trusts the certificates in this file.
fn start_trusting(file: &Path) -> Server {
    let home = Home::new();
    let mut command = Server::command(&home.path().join("home"), &[]);
    Server::spawn(command.env("SSL_CERT_FILE", file)).with_home(home)
}

#[test]
fn what_is_pulled_equals_what_was_published_over_every_protocol() {
    let file = media_file(true, 12);
    let upstream = Server::start(&["server.workers=2"]);
    let _publisher = Program::ffmpeg_publish(&file, &upstream.rtmp_url("live/origin"));
    wait_for("the origin", secs(20), || upstream.api().broadcast("live", "origin").is_some());
    let server = start_trusting(&upstream.home().join("home/conf/fullchain.pem"));
    let urls = [
        ("rtmp", upstream.rtmp_url("live/origin")),
        ("rtmps", format!("rtmps://localhost:{}/live/origin", upstream.rtmps.unwrap().port())),
        ("http", flv_url(&upstream, "origin")),
        ("https", format!("https://localhost:{}/live/origin.flv", upstream.https.unwrap().port())),
        ("moved", format!("http://{}/a.flv", moved_to(&flv_url(&upstream, "origin")))),
        ("rtsp", upstream.rtsp_url("live/origin")),
        ("rtsp-udp", format!("{}?udp", upstream.rtsp_url("live/origin"))),
        ("rtsps", format!("rtsps://localhost:{}/live/origin", upstream.rtsps.unwrap().port())),
    ];
    for (id, url) in &urls {
        start_source(&server, id, url);
    }
    let source = source_packets(&file);
    for (id, url) in &urls {
        wait_for_status(&server, id, &["broadcasting"]);
        let record = server.api().broadcast("live", id).unwrap();
        let kind = if url.ends_with("flv") { "VoD" } else { "streamSource" };
        assert_eq!((&record["publishType"], &record["type"]), (&"Pull".into(), &kind.into()));
    }
    let players: Vec<_> = urls
        .iter()
        .map(|(id, _)| {
            let url = server.rtmp_url(&format!("live/{id}"));
            std::thread::spawn(move || frame_md5(&url, Some(4)))
        })
        .collect();
    for player in players {
        let played = player.join().unwrap();
        // The file is published in a loop, so the played packets may cross its end.
        let hashes: std::collections::HashSet<_> = source.iter().map(|packet| &packet.4).collect();
        assert!(played.len() > 150 && played.iter().all(|p| hashes.contains(&p.4)), "{}", played.len());
        for track in 0..2 {
            let times: Vec<i64> = played.iter().filter(|p| p.0 == track).map(|p| p.1).collect();
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "track {track}");
        }
    }
    for (id, _) in &urls {
        let stop = server.api().post(&format!("{BROADCASTS}/{id}/stop"), "").json();
        assert_eq!((&stop["success"], &stop["message"]), (&true.into(), &"Stream stopped".into()));
        assert_eq!(status(&server, id), "finished");
    }
    wait_for("the origin's viewers to be gone", secs(10), || {
        upstream.api().broadcast("live", "origin").unwrap()["rtmpViewerCount"] == 0
    });
}

/// Starts a server that redirects all clients to this URL.
fn moved_to(url: &str) -> SocketAddr {
    hostile(format!("HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n").into_bytes())
}

/// Starts a server that sends this file to each client as fast as possible, as file servers do, and does not close the
/// connection.
pub fn file_server(file: &Path) -> SocketAddr {
    let body = std::fs::read(file).unwrap();
    hostile([b"HTTP/1.1 200 OK\r\n\r\n", &body[..]].concat())
}

#[test]
fn a_transport_stream_over_http_is_pulled_live_or_as_a_file() {
    // The server reads the first ten seconds of a file immediately, to have media for new viewers. Then it reads at the
    // file's own rate.
    let file = ts_file(true, 40);
    let server = Server::start(&[]);
    let live = own_port("127.0.0.1");
    let mut origin = Command::new("ffmpeg");
    origin.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
    origin.args(["-c", "copy", "-f", "mpegts", "-listen", "1", &format!("http://{live}/live")]);
    let _origin = Program::start(&mut origin);
    let urls =
        [("live", format!("http://{live}/live")), ("file", format!("http://{}/file.ts", file_server(&file)))];
    let source = unit_md5(file.to_str().unwrap(), None);
    for (id, url) in urls {
        start_source(&server, id, &url);
        wait_for_status(&server, id, &["broadcasting"]);
        let played = unit_md5(&server.rtmp_url(&format!("live/{id}")), Some(4));
        (0..2).for_each(|track| assert_track_within(1, (track, &source), (track, &played)));
    }
}

#[test]
fn an_mp4_file_over_http_is_played_as_it_comes_fragmented_or_not() {
    let file = media_file(true, 40);
    let server = Server::start(&[]);
    let source = unit_md5(file.to_str().unwrap(), None);
    for (id, flags) in [
        ("plain", "faststart"),
        ("fragments", "frag_keyframe+empty_moov+default_base_moof"),
        ("long-fragments", "frag_custom+empty_moov"),
    ] {
        let mp4 = server.home().join(format!("{id}.mp4"));
        let mut remux = Command::new("ffmpeg");
        remux.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-i"]).arg(&file);
        remux.args(["-c", "copy", "-movflags", flags, "-frag_duration", "3000000"]).arg(&mp4);
        assert!(run(&mut remux).0.success(), "{id}");
        start_source(&server, id, &format!("http://{}/{id}.mp4", file_server(&mp4)));
        wait_for_status(&server, id, &["broadcasting"]);
        let played = unit_md5(&server.rtmp_url(&format!("live/{id}")), Some(4));
        (0..2).for_each(|track| assert_track_within(2, (track, &source), (track, &played)));
    }
    // The file's index follows the media. If the file server supports ranges, the index is requested first.
    let folder = server.home().join("behind");
    std::fs::create_dir_all(&folder).unwrap();
    let mp4 = folder.join("behind.mp4");
    let mut remux = Command::new("ffmpeg");
    remux.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-i"]).arg(&file);
    assert!(run(remux.args(["-c", "copy"]).arg(&mp4)).0.success());
    let (address, asked) = folder_server(&folder);
    start_source(&server, "behind", &format!("http://{address}/behind.mp4"));
    wait_for_status(&server, "behind", &["broadcasting"]);
    let played = unit_md5(&server.rtmp_url("live/behind"), Some(4));
    (0..2).for_each(|track| assert_track_within(2, (track, &source), (track, &played)));
    assert_eq!(asked.lock().unwrap().len(), 3, "the beginning, the index, the media");
    start_source(&server, "no-ranges", &format!("http://{}/behind.mp4", file_server(&mp4)));
    wait_for("the reason", secs(20), || server.log().contains("the server does not know ranges"));
    wait_for_status(&server, "no-ranges", &["finished"]);
}

#[test]
fn the_items_of_a_playlist_are_one_stream_that_begins_anew() {
    let server = Server::start(&["server.workers=2"]);
    let folder = server.home().join("items");
    std::fs::create_dir_all(&folder).unwrap();
    // The two items have different picture sizes, so each change of the item changes the configuration.
    let items = [("a", "320x180"), ("b", "640x360")].map(|(name, size)| {
        let path = folder.join(format!("{name}.mp4"));
        let mut make = Command::new("ffmpeg");
        make.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-f", "lavfi", "-i"]);
        make.arg(format!("testsrc2=size={size}:rate=25")).args([
            "-f",
            "lavfi",
            "-i",
            "sine=sample_rate=48000",
        ]);
        make.args(["-t", "4", "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "ultrafast", "-g", "25"]);
        make.args(["-c:a", "aac", "-movflags", "faststart"]).arg(&path);
        assert!(run(&mut make).0.success(), "{name}");
        unit_md5(path.to_str().unwrap(), None)
    });
    let (address, asked) = folder_server(&folder);
    let list = ["a", "missing", "b"].map(|name| format!(r#"{{"streamUrl":"http://{address}/{name}.mp4"}}"#));
    let body = format!(r#"{{"streamId":"p","type":"playlist","playListItemList":[{}]}}"#, list.join(","));
    let record = server.api().post(&format!("{BROADCASTS}/create"), &body).json();
    assert_eq!(record["type"], "playlist", "{record}");
    let started = server.api().post(&format!("{BROADCASTS}/p/start"), "").json();
    assert_eq!(started["success"], true, "{started}");
    wait_for_status(&server, "p", &["broadcasting"]);
    // In fourteen seconds a viewer sees the first item, the second, and the first again.
    let played = unit_md5(&server.rtmp_url("live/p"), Some(14));
    let times: Vec<i64> = played.iter().filter(|packet| packet.0 == 0).map(|packet| packet.1).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "one clock");
    let from = |item: &[Packet]| {
        let known: std::collections::BTreeSet<_> = item.iter().map(|packet| packet.4.clone()).collect();
        let which =
            played.iter().enumerate().filter(|(_, packet)| packet.0 == 0 && known.contains(&packet.4));
        which.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let [first, second] = [from(&items[0]), from(&items[1])];
    assert!(
        second.len() >= 99 && first.len() > 100,
        "{} of the first, {} of the second",
        first.len(),
        second.len()
    );
    assert!(first.iter().any(|at| at < &second[0]) || first.iter().any(|at| at > second.last().unwrap()));
    assert!(asked.lock().unwrap().iter().any(|path| path == "/missing.mp4"));
    let record = server.api().broadcast("live", "p").unwrap();
    assert_eq!(record["playListStatus"], "broadcasting");
    let stopped = server.api().post(&format!("{BROADCASTS}/p/stop"), "").json();
    assert_eq!(stopped["success"], true);
    assert_eq!(server.api().broadcast("live", "p").unwrap()["playListStatus"], "finished");
}

/// Starts a server for the files of a folder. Returns its address and the list of requests so far.
fn folder_server(folder: &Path) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let (folder, log) = (folder.to_path_buf(), Arc::clone(&asked));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (folder, log) = (folder.clone(), Arc::clone(&log));
            std::thread::spawn(move || serve_folder(stream, &folder, &log));
        }
    });
    (address, asked)
}

/// Answers up to three requests on a connection, then closes it.
fn serve_folder(stream: TcpStream, folder: &Path, log: &Mutex<Vec<String>>) {
    let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    for _ in 0..3 {
        let mut line = String::new();
        while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|count| count > 2) {}
        let from = line
            .split("Range: bytes=")
            .nth(1)
            .and_then(|range| range.split('-').next()?.parse::<usize>().ok());
        let Some(path) = line.split(' ').nth(1).map(|path| path.split('?').next().unwrap().to_owned()) else {
            return;
        };
        log.lock().unwrap().push(path.clone());
        let (status, body) = match std::fs::read(folder.join(path.trim_start_matches('/'))) {
            Ok(body) => match from {
                Some(from) => ("206 Partial Content", body[from..].to_vec()),
                None => ("200 OK", body),
            },
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

#[test]
fn t_10_hls_of_every_kind_is_pulled_and_equals_what_was_cut() {
    let file = media_file(true, 40);
    let server = Server::start(&["server.workers=2"]);
    let source = unit_md5(file.to_str().unwrap(), None);
    let folder = server.home().join("hls");
    let (address, _) = folder_server(&folder);
    let vod = ["-hls_playlist_type", "vod"];
    let live = ["-hls_list_size", "5", "-hls_flags", "delete_segments"];
    let fmp4 = ["-hls_segment_type", "fmp4"];
    let apart =
        ["-var_stream_map", "a:0,agroup:a,default:yes v:0,agroup:a", "-master_pl_name", "master.m3u8"];
    let mut cutters = Vec::new();
    for (id, is_live, options) in [
        ("ts", false, &[&vod[..]][..]),
        ("fmp4", false, &[&vod, &fmp4]),
        ("apart", false, &[&vod, &fmp4, &apart]),
        ("live", true, &[&live]),
        ("live-fmp4", true, &[&live, &fmp4]),
    ] {
        let own = folder.join(id);
        std::fs::create_dir_all(&own).unwrap();
        let name = if id == "apart" { "v%v.m3u8" } else { "index.m3u8" };
        let mut cut = Command::new("ffmpeg");
        cut.args(["-hide_banner", "-loglevel", "error", "-nostdin"]).args(is_live.then_some("-re"));
        cut.arg("-i").arg(&file).args(["-map", "0:v", "-map", "0:a", "-c", "copy", "-f", "hls"]);
        cut.args(["-hls_time", "2"]).args(options.concat()).arg(own.join(name));
        match is_live {
            true => cutters.push(Program::start(&mut cut)),
            false => assert!(run(&mut cut).0.success(), "{id}"),
        }
        let playlist = if id == "apart" { "master.m3u8" } else { "index.m3u8" };
        wait_for("the playlist", secs(20), || own.join(playlist).exists());
        start_source(&server, id, &format!("http://{address}/{id}/{playlist}?token=x"));
    }
    for id in ["ts", "fmp4", "apart", "live", "live-fmp4"] {
        wait_for_status(&server, id, &["broadcasting"]);
        let played = unit_md5(&server.rtmp_url(&format!("live/{id}")), Some(5));
        (0..2).for_each(|track| assert_track_within(2, (track, &source), (track, &played)));
    }
}

#[test]
fn u_35_hostile_playlists_are_failed_pulls() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let answer = |body: &[u8]| {
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    };
    let segments = "#EXTINF:1,\nx.ts\n".repeat(700_000);
    let bodies: Vec<Vec<u8>> = vec![
        answer(b"<html>"),
        answer(b"#EXTM3U\n#EXT-X-TARGETDURATION:0\n#EXTINF:0,\nfile:///etc/passwd\n"),
        answer(format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n{segments}").as_bytes()),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n#EXTM3U\n".to_vec(),
        b"HTTP/1.1 302 Found\r\nLocation: /again.m3u8\r\n\r\n".to_vec(),
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/a.m3u8\r\n\r\n".to_vec(),
        Vec::new(),
    ];
    let count = bodies.len();
    for (index, body) in bodies.into_iter().enumerate() {
        start_source(&server, &format!("h{index}"), &format!("http://{}/live/x.m3u8", hostile(body)));
    }
    for index in 0..count {
        wait_for_status(&server, &format!("h{index}"), &["finished"]);
        server.api().post(&format!("{BROADCASTS}/h{index}/stop"), "");
    }
    bystander.finish(&mut server);
}

#[test]
fn a_transport_stream_in_datagrams_is_waited_for_and_comes_back_after_a_silence() {
    let file = ts_file(true, 40);
    let server = Server::start(&[]);
    let address = own_port("127.0.0.1");
    start_source(&server, "s", &format!("udp://@{address}?overrun_nonfatal=1"));
    assert_eq!(status(&server, "s"), "preparing");
    let send = || {
        let mut sender = Command::new("ffmpeg");
        sender.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
        sender.args(["-c", "copy", "-f", "mpegts", &format!("udp://{address}?pkt_size=1316")]);
        Program::start(&mut sender)
    };
    let sender = send();
    wait_for_status(&server, "s", &["broadcasting"]);
    let source = unit_md5(file.to_str().unwrap(), None);
    let played = unit_md5(&server.rtmp_url("live/s"), Some(4));
    (0..2).for_each(|track| assert_track_within(1, (track, &source), (track, &played)));
    let player = Player::start(server.rtmp, "live", "s");
    wait_for("the video", secs(10), || player.units() > 60);
    drop(sender);
    wait_for_status(&server, "s", &["finished", "preparing"]);
    let before = player.units();
    let _sender = send();
    wait_for_status(&server, "s", &["broadcasting"]);
    wait_for("the video to go on", secs(20), || player.units() > before + 60);
    assert!(player.is_playing());
}

#[test]
fn a_pull_passes_frames_and_times_on_unchanged() {
    let file = media_file(true, 12);
    let upstream = Server::start(&[]);
    let server = Server::start(&[]);
    start_source(&server, "copy", &upstream.rtmp_url("live/origin"));
    let player = std::thread::spawn({
        let url = server.rtmp_url("live/copy");
        let api = server.api();
        move || {
            wait_for("the copy", secs(40), || {
                api.broadcast("live", "copy").unwrap()["status"] == "broadcasting"
            });
            frame_md5(&url, Some(6))
        }
    });
    let _publisher = Program::ffmpeg_publish(&file, &upstream.rtmp_url("live/origin"));
    assert_equal_from_first_key_frame(&source_packets(&file), &player.join().unwrap());
}

#[test]
fn from_nginx_and_its_viewer_stays_through_its_restart() {
    let file = media_file(false, 12);
    let mut nginx = Nginx::start();
    let server = Server::start(&[]);
    let publisher = Program::ffmpeg_publish(&file, &nginx.url("origin"));
    start_source(&server, "s", &nginx.url("origin"));
    wait_for_status(&server, "s", &["broadcasting"]);
    let mut viewer = RtmpPeer::play(server.rtmp, "live", "s").unwrap();
    viewer.next_media(secs(10)).unwrap();
    nginx.stop();
    wait_for_status(&server, "s", &["finished"]);
    drop(publisher);
    nginx.resume();
    let _publisher = Program::ffmpeg_publish(&file, &nginx.url("origin"));
    wait_for_status(&server, "s", &["broadcasting"]);
    for _ in 0..100 {
        viewer.next_media(secs(20)).unwrap();
    }
}

#[test]
fn u_02_a_source_that_is_killed_and_comes_back_keeps_its_viewers() {
    let mut upstream = Upstream::start();
    let mut server = Server::start(&["server.workers=2"]);
    let bystander = Bystander::start(&server);
    let publisher = Publisher::start(upstream.server().rtmp, "live", "origin");
    start_source(&server, "rtmp", &upstream.server().rtmp_url("live/origin"));
    start_source(&server, "flv", &flv_url(upstream.server(), "origin"));
    start_source(&server, "rtsp", &upstream.server().rtsp_url("live/origin"));
    start_source(&server, "rtsp-udp", &format!("{}?udp", upstream.server().rtsp_url("live/origin")));
    let ids = ["rtmp", "flv", "rtsp", "rtsp-udp"];
    ids.iter().for_each(|id| wait_for_status(&server, id, &["broadcasting"]));
    let viewers: Vec<Player> =
        ids.iter().chain(&["rtmp"]).map(|id| Player::start(server.rtmp, "live", id)).collect();
    let go_on = |more: u64| {
        let before: Vec<u64> = viewers.iter().map(Player::units).collect();
        wait_for("every viewer to go on", secs(40), || {
            viewers.iter().zip(&before).all(|(viewer, before)| viewer.units() > before + more)
        });
    };
    go_on(60);
    upstream.kill();
    publisher.stop();
    ids.iter().for_each(|id| wait_for_status(&server, id, &["finished", "preparing"]));
    // A publisher cannot take the id of a source that waits for its origin.
    assert!(RtmpPeer::publish(server.rtmp, "live", "rtmp").is_err());
    upstream.resume();
    let publisher = Publisher::start(upstream.server().rtmp, "live", "origin");
    ids.iter().for_each(|id| wait_for_status(&server, id, &["broadcasting"]));
    go_on(60);
    assert!(viewers.iter().all(Player::is_playing));
    publisher.stop();
    for id in ids {
        server.api().post(&format!("{BROADCASTS}/{id}/stop"), "");
    }
    wait_for("the viewers to be let go", secs(10), || viewers.iter().all(|viewer| !viewer.is_playing()));
    for viewer in viewers {
        assert_eq!(viewer.finish().corrupt(), 0);
    }
    bystander.finish(&mut server);
}

#[test]
fn u_02_a_source_that_freezes_is_noticed_and_its_viewers_go_on_when_it_does() {
    let upstream = Upstream::start();
    let server = Server::start(&[]);
    let _publisher = Publisher::start(upstream.server().rtmp, "live", "origin");
    let rtsp = upstream.server().rtsp_url("live/origin");
    let sources = [
        ("rtmp", upstream.server().rtmp_url("live/origin")),
        ("flv", flv_url(upstream.server(), "origin")),
        ("rtsp-udp", format!("{rtsp}?udp")),
        ("rtsp", rtsp),
    ];
    for (id, url) in &sources {
        start_source(&server, id, url);
        wait_for_status(&server, id, &["broadcasting"]);
    }
    let viewers = sources.each_ref().map(|(id, _)| Player::start(server.rtmp, "live", id));
    wait_for("the viewers", secs(10), || viewers.iter().all(|viewer| viewer.units() > 60));
    upstream.server().signal("STOP");
    wait_for_status(&server, "rtmp", &["finished"]);
    sources.iter().for_each(|(id, _)| wait_for_status(&server, id, &["finished", "preparing"]));
    server.wait_for_line("frozen: no media for 4 s");
    upstream.server().signal("CONT");
    sources.iter().for_each(|(id, _)| wait_for_status(&server, id, &["broadcasting"]));
    let before: Vec<u64> = viewers.iter().map(Player::units).collect();
    wait_for("the viewers to go on", secs(40), || {
        viewers.iter().zip(&before).all(|(viewer, before)| viewer.units() > before + 60)
    });
}

#[test]
fn a_viewer_starts_a_source_and_waits_for_it_and_the_last_one_s_leaving_stops_it() {
    let upstream = Server::start(&[]);
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Publisher::start(upstream.rtmp, "live", "origin");
    let auto = r#","autoStartStopEnabled":true"#;
    for id in ["rtmp", "flv", "ws"] {
        create(&server, id, &upstream.rtmp_url("live/origin"), "", auto);
        assert_eq!(status(&server, id), "created");
    }
    // The origin has no such stream, so the viewer waits, and then gets the error that the stream is offline.
    create(&server, "dead", &upstream.rtmp_url("live/none"), "", auto);
    let dead = std::thread::spawn({
        let address = server.rtmp;
        move || RtmpPeer::play(address, "live", "dead").unwrap_err()
    });
    let player = Player::start(server.rtmp, "live", "rtmp");
    let mut flv = TcpStream::connect(server.http).unwrap();
    flv.set_read_timeout(Some(secs(20))).unwrap();
    flv.write_all(b"GET /live/flv.flv HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    flv.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut ws = WsPeer::open(server.http, "/live/ws.flv");
    assert!(ws.next().is_some());
    for id in ["rtmp", "flv", "ws"] {
        wait_for_status(&server, id, &["broadcasting"]);
    }
    wait_for("the video", secs(10), || player.units() > 100);
    assert!(dead.join().unwrap().contains("StreamNotFound"));
    // Sources without viewers stop, and those with viewers continue.
    drop((flv, ws));
    for id in ["flv", "ws", "dead"] {
        wait_for_status(&server, id, &["finished"]);
    }
    let before = player.units();
    wait_for("the video to go on", secs(10), || player.units() > before + 100);
    assert_eq!(status(&server, "rtmp"), "broadcasting");
    assert!(player.is_playing());
    // A source that viewers must not start is offline, so its viewer is refused immediately.
    create(&server, "plain", &upstream.rtmp_url("live/origin"), "", "");
    assert!(RtmpPeer::play(server.rtmp, "live", "plain").unwrap_err().contains("StreamNotFound"));
    assert_eq!(status(&server, "plain"), "created");
}

#[test]
fn sources_run_from_the_start_of_the_server_and_records_survive_its_end() {
    let upstream = Server::start(&[]);
    let _publisher = Publisher::start(upstream.rtmp, "live", "origin");
    let home = Home::new();
    let path = home.path().join("home");
    let mut server = Server::start_in(&path, &[]);
    start_source(&server, "s", &upstream.rtmp_url("live/origin"));
    wait_for_status(&server, "s", &["broadcasting"]);
    server.terminate();
    // After a restart, both an orderly one and one after a crash, running sources start again. Stopped sources only
    // start with the setting `startStreamFetcherAutomatically`.
    let mut server = Server::start_in(&path, &[]);
    wait_for_status(&server, "s", &["broadcasting"]);
    server.kill();
    let mut server = Server::start_in(&path, &[]);
    wait_for_status(&server, "s", &["broadcasting"]);
    assert_eq!(server.api().post(&format!("{BROADCASTS}/s/stop"), "").json()["success"], true);
    server.kill();
    let mut server = Server::start_in(&path, &[]);
    assert_eq!(status(&server, "s"), "finished", "not without the setting");
    server.kill();
    let server = Server::start_in(&path, &["app.startStreamFetcherAutomatically=true"]);
    wait_for_status(&server, "s", &["broadcasting"]);
    let player = Player::start(server.rtmp, "live", "s");
    wait_for("the video", secs(10), || player.units() > 60);
}

#[test]
fn an_update_pulls_from_the_new_address_and_a_delete_ends_it() {
    let upstream = Server::start(&[]);
    let server = Server::start(&[]);
    let _one = Publisher::start(upstream.rtmp, "live", "one");
    let two = media_file(false, 12);
    let _two = Program::ffmpeg_publish(&two, &upstream.rtmp_url("live/two"));
    wait_for("both", secs(20), || upstream.api().broadcast("live", "two").is_some());
    start_source(&server, "s", &upstream.rtmp_url("live/one"));
    wait_for_status(&server, "s", &["broadcasting"]);
    let mut viewer = RtmpPeer::play(server.rtmp, "live", "s").unwrap();
    viewer.next_media(secs(10)).unwrap();
    let put = server.api().put(
        &format!("{BROADCASTS}/s"),
        &format!(r#"{{"name":"second","streamUrl":"{}"}}"#, upstream.rtmp_url("live/two")),
    );
    assert_eq!(put.json()["success"], true);
    wait_for("the other video", secs(20), || {
        let record = server.api().broadcast("live", "s").unwrap();
        record["name"] == "second" && record["status"] == "broadcasting" && record["width"] == 640
    });
    viewer.next_media(secs(10)).unwrap();
    let gone = server.api().delete(&format!("{BROADCASTS}/s")).json();
    assert_eq!(gone["message"], "broadcast is deleted and stopped successfully");
    wait_for("the origin's viewer to be gone", secs(10), || {
        upstream.api().broadcast("live", "two").unwrap()["rtmpViewerCount"] == 0
    });
}

#[test]
fn u_31_u_34_what_is_denied_is_not_connected_to() {
    let decoy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = decoy.local_addr().unwrap();
    decoy.set_nonblocking(true).unwrap();
    let server = Server::start(&["outbound.deny=127.0.0.0/8"]);
    let refused = create(&server, "s", &format!("rtmp://{address}/live/x"), "?autoStart=true", "");
    assert_eq!((&refused["success"], &refused["errorId"]), (&false.into(), &(-4).into()));
    assert!(server.api().broadcast("live", "s").is_none());
    // With a host name, the address is only known after the name is resolved.
    start_source(&server, "named", &format!("rtmp://localhost:{}/live/x", address.port()));
    wait_for_status(&server, "named", &["finished"]);
    wait_for("the reason", secs(10), || server.log().contains("denied by outbound.deny"));
    // U-33: the targets of redirects are also checked.
    let redirecting = Server::start(&["outbound.deny=127.0.0.2/32"]);
    let elsewhere = format!("http://127.0.0.2:{}/x.flv", address.port());
    start_source(&redirecting, "moved", &format!("http://{}/x.flv", moved_to(&elsewhere)));
    wait_for("the reason", secs(10), || redirecting.log().contains("denied by outbound.deny"));
    assert!(decoy.accept().is_err(), "nobody came");

    let server = Server::start(&[]);
    let own = [
        flv_url(&server, "other"),
        server.rtmp_url("live/s"),
        format!("rtmp://localhost:{}/live/s", server.rtmp.port()),
    ];
    for url in own {
        let refused = create(&server, "s", &url, "?autoStart=true", "");
        assert_eq!((&refused["success"], &refused["errorId"]), (&false.into(), &(-4).into()), "{url}");
    }
    // Two sources that pull each other never have media. Other streams of the same server can be pulled.
    start_source(&server, "a", &server.rtmp_url("live/b"));
    start_source(&server, "b", &server.rtmp_url("live/a"));
    let _publisher = Publisher::start(server.rtmp, "live", "origin");
    start_source(&server, "copy", &server.rtmp_url("live/origin"));
    wait_for_status(&server, "copy", &["broadcasting"]);
    assert!(["finished", "preparing"].contains(&status(&server, "a").as_str()));
}

/// Starts a server that sends these bytes on each connection, and does not close it.
fn hostile(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(&answer);
            kept.push(stream);
        }
    });
    address
}

#[test]
fn u_20_u_21_hostile_servers_are_failed_pulls_and_nothing_else() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let flv = b"HTTP/1.1 200 OK\r\n\r\nFLV\x01\x05\0\0\0\x09\0\0\0\0";
    let answers: Vec<(&str, Vec<u8>)> = vec![
        ("rtmp", Vec::new()),
        ("rtmp", vec![0xff; 8192]),
        ("rtmp", b"\x03".to_vec()),
        ("rtsp", Vec::new()),
        ("rtsp", vec![b'$'; 100_000]),
        ("rtsp", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ("rtsp", b"RTSP/1.0 302 Found\r\nCSeq: 1\r\nLocation: rtsp://127.0.0.1/\r\n\r\n".to_vec()),
        ("rtsp", b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 4294967296\r\n\r\n".to_vec()),
        (
            "rtsp",
            b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\nRTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 3\r\n\r\nv=0"
                .to_vec(),
        ),
        ("http", b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("http", vec![b'x'; 100_000]),
        ("http", [&flv[..], b"\x09\xff\xff\xff\0\0\0\0\0\0\0"].concat()),
        ("http", [&flv[..], &[9; 100_000]].concat()),
        ("http", [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[0x47; 100_000]].concat()),
        ("http", b"HTTP/1.1 200 OK\r\n\r\n<html>".to_vec()),
        ("http", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n".to_vec()),
    ];
    let count = answers.len();
    for (index, (scheme, answer)) in answers.into_iter().enumerate() {
        start_source(&server, &format!("h{index}"), &format!("{scheme}://{}/live/x", hostile(answer)));
    }
    for index in 0..count {
        wait_for_status(&server, &format!("h{index}"), &["finished"]);
        let stop = server.api().post(&format!("{BROADCASTS}/h{index}/stop"), "").json();
        assert_eq!(stop["success"], true);
    }
    // None of the pulls has got a usable stream, and none is tried after the stop.
    let metrics = server.api().get("/metrics").body;
    assert!(metrics.contains("millstream_pulls{state=\"trying\"} 0"), "{metrics}");
    bystander.finish(&mut server);
}
