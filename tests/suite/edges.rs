//! Nodes that fetch each other's streams over the relay: a stream published on one node is played on another.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::publish_play::{assert_equal_from_first_key_frame, assert_track_within, is_broadcasting};
use crate::support::{
    Home, Player, Program, Publisher, RtmpPeer, Server, frame_md5, media_file, own_port, run, secs,
    source_packets, unit_md5, unit_md5_by, wait_for,
};

const SECRET: &str = "relay.secret=a secret of all nodes";

/// Starts a node with this name, and with these additional settings.
fn node(name: &str, settings: &[&str]) -> Server {
    let name = format!("cluster.node={name}");
    Server::start(&[&[SECRET, &name], settings].concat())
}

/// Starts a node that requests unknown streams from these origins, one after the other.
fn edge(name: &str, origins: &[&Server]) -> Server {
    node(name, &[&edge_of(&origins.iter().map(|origin| origin.relay.unwrap()).collect::<Vec<_>>())])
}

fn edge_of(origins: &[SocketAddr]) -> String {
    let urls: Vec<String> = origins.iter().map(|origin| format!("relay://{origin}/{{app}}/{{id}}")).collect();
    format!("edge.origins={}", urls.join(","))
}

/// Returns the number of copies that a node has sent so far.
fn copies_sent(server: &Server) -> usize {
    let is_copy = |line: &&str| line.contains("viewer started") && line.contains(r#"protocol="relay""#);
    server.log().lines().filter(is_copy).count()
}

fn status_of(url: &str) -> String {
    let arguments = ["-s", "-o", "/dev/null", "-m", "20", "-w", "%{http_code}", url];
    run(Command::new("curl").args(arguments)).1
}

#[test]
fn what_is_published_on_one_node_is_played_on_another_over_every_protocol() {
    let file = media_file(false, 120);
    let origin = node("origin", &["server.workers=2"]);
    let edge = node("edge", &["server.workers=2", &edge_of(&[origin.relay.unwrap()])]);
    let _publisher = Program::ffmpeg_publish(&file, &origin.rtmp_url("live/s"));
    wait_for("the stream", secs(20), || is_broadcasting(&origin, "s"));
    let source = source_packets(&file);
    let flv = format!("http://{}/live/s.flv", edge.http);
    assert_equal_from_first_key_frame(&source, &frame_md5(&flv, Some(3)));
    assert_equal_from_first_key_frame(&source, &frame_md5(&edge.rtmp_url("live/s"), Some(3)));
    let units = unit_md5(file.to_str().unwrap(), None);
    let over_rtsp = unit_md5_by(&["-rtsp_transport", "tcp"], &edge.rtsp_url("live/s"), Some(3));
    let srt = format!("srt://{}?streamid=%23!::r=live/s,m=request", edge.srt.unwrap());
    let over_srt = unit_md5(&srt, Some(3));
    for played in [&over_rtsp, &over_srt] {
        for track in 0..2 {
            assert_track_within(1, (track, &units), (track, played));
        }
    }
    let hls = format!("http://{}/live/streams/s.m3u8", edge.http);
    assert_eq!(status_of(&hls), "200");
    assert_eq!(copies_sent(&origin), 1, "one copy for all viewers of a node");
    // The copy creates no record at the edge.
    let api = format!("http://{}/live/rest/v2/broadcasts/s", edge.http);
    assert_eq!(status_of(&api), "404");
}

#[test]
fn n_17_a_stream_that_no_node_has_is_refused_at_once_and_no_circle_asks_for_ever() {
    let ports = [own_port("127.0.0.1"), own_port("127.0.0.1")];
    let of = |name: &str, own: SocketAddr, other: SocketAddr| {
        node(name, &[&format!("relay.port={}", own.port()), &edge_of(&[other])])
    };
    let (north, south) = (of("north", ports[0], ports[1]), of("south", ports[1], ports[0]));
    for server in [&north, &south] {
        for path in ["nothing.flv", "streams/nothing.m3u8"] {
            assert_eq!(status_of(&format!("http://{}/live/{path}", server.http)), "404");
        }
    }
    // Each node has asked the other one, which has not passed the request on.
    let asked = |server: &Server| server.log().matches("copy requested key=live/nothing").count();
    wait_for("the line about it", secs(10), || asked(&north) > 0 && asked(&south) > 0);
    assert!(asked(&north) >= 1 && asked(&north) <= 2, "{}", north.log());
    assert!(asked(&south) >= 1 && asked(&south) <= 2, "{}", south.log());
}

#[test]
fn r_65_strangers_get_nothing_from_the_relay() {
    let origin = node("origin", &[]);
    let _publisher = Publisher::start(origin.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&origin, "s"));
    let relay = origin.relay.unwrap();
    // A connection without TLS gets no answer.
    let mut socket = TcpStream::connect(relay).unwrap();
    socket.set_read_timeout(Some(secs(10))).unwrap();
    socket.write_all(b"MSRL\x01\x0amillstream").unwrap();
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|bytes| bytes == b"MSRL"), "{answer:?}");
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() != ErrorKind::WouldBlock));
    // A client without a certificate gets no answer, either. A node with another secret gets no stream.
    let arguments = ["s_client", "-connect", &relay.to_string(), "-tls1_3", "-quiet"];
    let (_, said, _) = run(Command::new("openssl").args(arguments).stdin(std::process::Stdio::null()));
    assert!(!said.contains("MSRL"));
    let stranger =
        Server::start(&["relay.secret=another secret, quite", "cluster.node=x", &edge_of(&[relay])]);
    let flv = format!("http://{}/live/s.flv", stranger.http);
    assert_eq!(status_of(&flv), "404");
    assert_eq!(copies_sent(&origin), 0, "{}", origin.log());
    // The API refuses URLs of the relay, so that users who may add sources cannot read any stream of the cluster.
    let body = format!(r#"{{"streamId":"t","type":"streamSource","streamUrl":"relay://{relay}/live/s"}}"#);
    let url = format!("http://{}/live/rest/v2/broadcasts/create?autoStart=true", origin.http);
    let arguments = ["-s", "-X", "POST", "-H", "Content-Type: application/json", "-d", &body, &url];
    let (_, said, _) = run(Command::new("curl").args(arguments));
    assert!(said.contains(r#""success":false"#), "{said}");
}

#[test]
fn a_copy_of_a_copy_is_the_stream() {
    let file = media_file(false, 12);
    let origin = node("origin", &[]);
    let middle = edge("middle", &[&origin]);
    let last = edge("last", &[&middle]);
    let _publisher = Program::ffmpeg_publish(&file, &origin.rtmp_url("live/s"));
    wait_for("the stream", secs(20), || is_broadcasting(&origin, "s"));
    let played = frame_md5(&format!("http://{}/live/s.flv", last.http), Some(4));
    assert_equal_from_first_key_frame(&source_packets(&file), &played);
    assert_eq!((copies_sent(&origin), copies_sent(&middle)), (1, 1));
}

/// Checks that an edge keeps its viewers' connections when the origin is killed and starts again with its publisher.
#[test]
fn n_13_viewers_of_an_edge_stay_when_the_origin_is_killed_and_comes_back() {
    let relay = own_port("127.0.0.1");
    let home = Home::new();
    let settings = [SECRET, "cluster.node=origin", &format!("relay.port={}", relay.port())];
    let mut origin = Server::start_in(home.path(), &settings);
    let edge = node("edge", &[&edge_of(&[relay])]);
    let publisher = Publisher::start(origin.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&origin, "s"));
    let player = Player::start(edge.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 60);
    origin.kill();
    publisher.stop();
    let origin = Server::start_in(home.path(), &settings);
    let _publisher = Publisher::start(origin.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&origin, "s"));
    let before = player.media();
    wait_for("media again", secs(20), || player.media() > before + 60);
    assert!(player.is_playing());
    let refused = edge.log().matches("viewer refused").count();
    assert_eq!(refused, 0, "{}", edge.log());
}

/// Checks that an edge keeps its viewers when the publisher of a dead origin connects to the edge itself.
#[test]
fn viewers_of_an_edge_stay_when_the_publisher_comes_to_it() {
    let mut origin = node("origin", &[]);
    let edge = edge("edge", &[&origin]);
    let publisher = Publisher::start(origin.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&origin, "s"));
    let player = Player::start(edge.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 60);
    origin.kill();
    publisher.stop();
    // The edge refuses the id until it knows that the origin's stream has ended.
    wait_for("to be let in", secs(20), || RtmpPeer::publish(edge.rtmp, "live", "s").is_ok());
    let _publisher = Publisher::start(edge.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&edge, "s"));
    let before = player.media();
    wait_for("media again", secs(20), || player.media() > before + 60);
    assert!(player.is_playing());
}
