//! Draining: a server that accepts no new sessions, and ends when its last session has ended.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cluster::Redis;
use crate::management::Panel;
use crate::publish_play::is_broadcasting;
use crate::support::{
    Home, Player, Program, Publisher, Reply, RtmpPeer, Server, media_file, raw_exchange, secs, wait_for,
};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

/// Runs `millstream drain` for a home, and returns the exit code and the output.
fn order(home: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    let output =
        command.arg("drain").args(words).arg("--home").arg(home).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the answer to a request of a viewer with this user agent.
fn answer(server: &Server, path: &str, agent: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n");
    String::from_utf8_lossy(&raw_exchange(server.http, request.as_bytes())).into_owned()
}

fn is_refused(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 503 ")
        && answer.contains("\r\nRetry-After: ")
        && answer.contains("the server is shutting down or draining")
}

fn ready(server: &Server) -> Reply {
    server.api().get("/rest/v2/readiness")
}

#[test]
fn c_20_a_draining_server_serves_who_is_there_refuses_others_and_ends_with_the_last() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &["server.workers=2", "app.hlsTime=1"]);
    let publisher = Program::ffmpeg_publish(&media_file(true, 120), &server.rtmp_url("live/s"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    let player = Player::start(server.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 30);
    let list = "/live/streams/s.m3u8";
    wait_for("a list", secs(20), || answer(&server, list, "old").starts_with("HTTP/1.1 200"));
    let counted = || server.api().broadcast("live", "s").unwrap()["hlsViewerCount"] == 1;
    wait_for("its viewer", secs(10), counted);
    assert_eq!(ready(&server).status, 200);

    let (code, said) = order(&folder, &[]);
    assert!(code == Some(0) && said.contains("is draining"), "{said}");
    assert_eq!(order(&folder, &[]).0, Some(1), "once");
    assert_eq!((ready(&server).status, server.api().get("/rest/v2/liveness").status), (503, 200));
    // The workers learn of the drain a moment later.
    wait_for("a refusal", secs(10), || is_refused(&answer(&server, "/live/s.flv", "new")));
    wait_for("a refusal of HLS", secs(10), || is_refused(&answer(&server, list, "new")));
    wait_for("a refusal to publish", secs(10), || RtmpPeer::publish(server.rtmp, "live", "t").is_err());
    wait_for("a refusal to play", secs(10), || RtmpPeer::play(server.rtmp, "live", "s").is_err());
    for _ in 0..8 {
        // Repeated, because any worker may get the request.
        let answer = answer(&server, list, "old");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let before = player.media();
    wait_for("media", secs(20), || player.media() > before + 60);

    assert_eq!(order(&folder, &["off"]).0, Some(0));
    wait_for("a new viewer", secs(10), || RtmpPeer::play(server.rtmp, "live", "s").is_ok());
    assert_eq!((ready(&server).status, order(&folder, &["off"]).0), (200, Some(1)));

    // SIGQUIT starts a drain, too. The server ends when its last session ends.
    server.signal("QUIT");
    wait_for("the drain", secs(10), || ready(&server).status == 503);
    let panel = Panel::first(&server);
    assert_eq!(panel.get("/drain")["publishers"], 1);
    drop(player);
    wait_for("its viewers' end", secs(30), || panel.get("/drain")["viewers"] == 0);
    assert!(server.is_alive());
    drop(publisher);
    assert_eq!(server.wait(secs(60)).code(), Some(0), "{}", server.log());
    let (code, said) = order(&folder, &[]);
    assert!(code == Some(1) && said.contains("no server runs"), "{said}");
}

fn node(redis: &Redis, name: &str) -> Server {
    let mut settings = redis.settings(name);
    settings.push("relay.secret=a secret of all nodes".to_owned());
    settings.push("cluster.redirect=true".to_owned());
    Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn n_22_a_node_drains_its_sources_go_on_at_another_and_no_viewer_is_lost() {
    let redis = Redis::start();
    let origin = Server::start(&[]);
    let _camera = Publisher::start(origin.rtmp, "live", "camera");
    // Drains the node that is first by name, because this is the node that removes the remains of other nodes.
    let (mut a, b) = (node(&redis, "a"), node(&redis, "b"));
    let url = origin.rtmp_url("live/camera");
    let body = format!(r#"{{"streamId":"pulled","type":"streamSource","streamUrl":"{url}"}}"#);
    let made = a.api().post(&format!("{BROADCASTS}/create?autoStart=true"), &body);
    assert_eq!(made.status, 200, "{made:?}");
    let publisher = Publisher::start(a.rtmp, "live", "s");
    for id in ["pulled", "s"] {
        wait_for("the stream", secs(20), || is_broadcasting(&b, id));
    }
    // Viewers play the source at both nodes.
    let players = [&a, &b].map(|server| Player::start(server.rtmp, "live", "pulled"));
    for player in &players {
        wait_for("media", secs(20), || player.media() > 30);
    }
    let location = |server: &Server| answer(server, "/live/s.flv", "new");
    assert!(location(&b).starts_with("HTTP/1.1 302"), "{}", location(&b));

    let panel = Panel::first(&a);
    let (code, said) = order(&a.home().join("home"), &[]);
    assert_eq!(code, Some(0), "{said}");
    b.wait_for_line("source is delivering");
    a.wait_for_line("source runs at another node");
    let befores = players.each_ref().map(Player::media);
    for (player, before) in players.iter().zip(befores) {
        wait_for("media of the other node's source", secs(20), || player.media() > before + 60);
        assert!(player.is_playing());
    }
    let others = Panel::again(&b);
    let told = |panel: &Panel| {
        let nodes = panel.get("/cluster/nodes/0/10");
        let of =
            |name: &str| nodes.as_array().unwrap().iter().find(|node| node["id"] == name).unwrap().clone();
        (of("a")["draining"] == true, of("b")["draining"] == true)
    };
    wait_for("the news at both", secs(10), || {
        told(&others) == (true, false) && told(&panel) == (true, false)
    });
    // The other node copies the stream of the draining node, and sends no viewers there.
    wait_for("a copy", secs(10), || RtmpPeer::play(b.rtmp, "live", "s").is_ok());
    assert!(!location_is_sent(&b), "{}", b.log());
    assert!(RtmpPeer::publish(a.rtmp, "live", "t").is_err());

    let [at_a, at_b] = players;
    drop(at_a);
    publisher.stop();
    assert_eq!(a.wait(secs(60)).code(), Some(0), "{}", a.log());
    let before = at_b.media();
    wait_for("media without the first node", secs(20), || at_b.media() > before + 60);
    assert!(at_b.is_playing() && is_broadcasting(&b, "pulled"));
}

/// True if a viewer of the stream is redirected to another node.
fn location_is_sent(server: &Server) -> bool {
    let url = format!("http://{}/live/s.flv", server.http);
    let mut command = Command::new("curl");
    command.args(["-s", "-o", "/dev/null", "--max-time", "2", "-w", "%{http_code}", &url]);
    let code = command.output().unwrap().stdout;
    String::from_utf8_lossy(&code).starts_with('3')
}
