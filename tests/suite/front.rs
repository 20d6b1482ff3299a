//! HAProxy and nginx in front of two nodes, with the files of `packaging/front`. A node that is killed or drains gets
//! no new clients, and existing clients of a draining node stay connected.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::cluster::Redis;
use crate::publish_play::is_broadcasting;
use crate::support::{Home, Player, Program, Publisher, Server, media_file, own_port, run, secs, wait_for};

/// A running proxy, with its addresses for HTTP, HTTPS, RTMP and RTMPS.
struct Front {
    _program: Program,
    _home: Home,
    http: SocketAddr,
    https: SocketAddr,
    rtmp: SocketAddr,
    rtmps: SocketAddr,
}

/// Returns a file of `packaging/front`, with its addresses replaced by those of this test.
fn config(name: &str, home: &Home, front: [SocketAddr; 4], nodes: [&Server; 2]) -> String {
    let path = format!("{}/packaging/front/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut text = fs::read_to_string(&path).unwrap();
    let folder = home.path().display();
    let [http, https, rtmp, rtmps] = front;
    let mut swap = |from: &str, to: &str| {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    };
    for (node, server) in ["node-1", "node-2"].iter().zip(nodes) {
        swap(&format!("{node}:5080"), &server.http.to_string());
        swap(&format!("{node}:1935"), &server.rtmp.to_string());
    }
    let pem = format!("{folder}/both.pem");
    if name == "haproxy.cfg" {
        swap("/etc/haproxy/media.example.pem", &pem);
        for (from, to) in
            [("bind :80\n", http), ("bind :443 ", https), ("bind :1935\n", rtmp), ("bind :8443 ", rtmps)]
        {
            let end = &from[from.len() - 1..];
            swap(from, &format!("bind {to}{end}"));
        }
        // The health checks of an RTMP server use the HTTP port of its node.
        for server in nodes {
            let line = format!("{} send-proxy-v2 port 5080", server.rtmp);
            swap(&line, &format!("{} send-proxy-v2 port {}", server.rtmp, server.http.port()));
        }
    } else {
        swap("/etc/nginx/media.example.pem", &pem);
        swap("/etc/nginx/media.example.key", &pem);
        swap("/run/nginx.pid", &format!("{folder}/pid"));
        swap("/var/log/nginx/error.log", "stderr");
        swap("worker_processes auto;", "worker_processes 1; daemon off; user root;");
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders = folders.map(|name| format!("{name}_temp_path {folder}/{name};")).concat();
        swap("    access_log off;", &format!("    access_log off; {folders}"));
        for (from, to) in [
            ("listen 80;", http),
            ("listen 443 ssl;", https),
            ("listen 1935;", rtmp),
            ("listen 8443 ssl;", rtmps),
        ] {
            let words = if from.contains("ssl") { " ssl" } else { "" };
            swap(from, &format!("listen {to}{words};"));
        }
    }
    text
}

impl Front {
    fn start(name: &str, nodes: [&Server; 2]) -> Self {
        let home = Home::new();
        let ports = [(); 4].map(|()| own_port("127.0.0.1"));
        // The proxy uses the self-signed certificate of a node.
        let conf = nodes[0].home().join("home/conf");
        let part = |name: &str| fs::read_to_string(conf.join(name)).unwrap();
        fs::write(home.path().join("both.pem"), part("fullchain.pem") + &part("privkey.pem")).unwrap();
        let file = home.path().join(name);
        fs::write(&file, config(name, &home, ports, nodes)).unwrap();
        let (program, args) = match name {
            "haproxy.cfg" => ("haproxy", ["-db", "-f"].as_slice()),
            _ => ("nginx", ["-e", "stderr", "-c"].as_slice()),
        };
        let mut command = Command::new(program);
        command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
        let program = Program::start(command.args(args).arg(&file));
        let [http, https, rtmp, rtmps] = ports;
        wait_for("the proxy", secs(10), || {
            TcpStream::connect(http).is_ok() && TcpStream::connect(rtmp).is_ok()
        });
        Self { _program: program, _home: home, http, https, rtmp, rtmps }
    }

    /// Returns the status of the answer to a request, without waiting for the end of a live stream.
    fn status(&self, url: &str) -> u16 {
        let mut command = Command::new("curl");
        command.args(["-sk", "-o", "/dev/null", "--max-time", "3", "-w", "%{http_code}", url]);
        let (_, out, _) = run(&mut command);
        out.trim().parse().unwrap_or(0)
    }

    fn list(&self) -> u16 {
        self.status(&format!("http://{}/live/streams/s.m3u8", self.http))
    }

    /// True if the proxy lets a client open a WebSocket to the stream.
    fn upgrades(&self) -> bool {
        let mut command = Command::new("curl");
        command.args(["-sk", "-o", "/dev/null", "--http1.1", "--max-time", "2", "-w", "%{http_code}"]);
        command.args([
            "-H",
            "Connection: Upgrade",
            "-H",
            "Upgrade: websocket",
            "-H",
            "Sec-WebSocket-Version: 13",
        ]);
        command.args(["-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]);
        let (_, out, _) = run(command.arg(format!("https://{}/live/s.flv", self.https)));
        out.trim() == "101"
    }
}

fn nodes() -> (Redis, [Server; 3]) {
    let redis = Redis::start();
    let servers = ["a", "b", "c"].map(|name| {
        let mut settings = redis.settings(name);
        settings.extend(
            [
                "relay.secret=a secret of all nodes",
                "server.trusted_proxies=127.0.0.1",
                "server.proxy_protocol=rtmp",
                "app.hlsTime=1",
                "server.workers=1",
            ]
            .map(str::to_owned),
        );
        // Node c, which has the publisher, is reached without a proxy, so it must not expect the PROXY protocol.
        if name == "c" {
            settings.retain(|setting| !setting.starts_with("server.proxy_protocol"));
        }
        Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
    });
    (redis, servers)
}

/// Checks that new clients of every protocol reach a node that accepts them.
fn serves_newcomers(front: &Front, what: &str) {
    let url = |scheme: &str, at: SocketAddr| format!("{scheme}://{at}/live/s");
    wait_for(&format!("HLS {what}"), secs(30), || front.list() == 200);
    wait_for(&format!("HTTP-FLV {what}"), secs(30), || {
        front.status(&format!("http://{}/live/s.flv", front.http)) == 200
    });
    wait_for(&format!("WebSocket {what}"), secs(30), || front.upgrades());
    wait_for(&format!("RTMP {what}"), secs(30), || plays(&url("rtmp", front.rtmp)));
    wait_for(&format!("RTMPS {what}"), secs(30), || plays(&url("rtmps", front.rtmps)));
}

/// True if ffmpeg gets two frames.
fn plays(url: &str) -> bool {
    let mut command = Command::new("timeout");
    command.args(["20", "ffmpeg", "-v", "error", "-nostdin", "-i", url]);
    command.args(["-map", "0:v", "-frames:v", "2", "-c", "copy", "-f", "null", "-"]);
    run(&mut command).0.success()
}

fn goes_on(name: &str) {
    let (_redis, [mut a, mut b, c]) = nodes();
    let _publisher = Program::ffmpeg_publish(&media_file(true, 120), &c.rtmp_url("live/s"));
    for server in [&a, &b, &c] {
        wait_for("the stream", secs(20), || is_broadcasting(server, "s"));
    }
    let front = Front::start(name, [&a, &b]);
    serves_newcomers(&front, "of two nodes");
    let player = Player::start(front.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 30);

    // The first node drains. Its clients stay connected, and new clients get to the other node.
    let mut drain = Command::new(env!("CARGO_BIN_EXE_millstream"));
    assert!(run(drain.arg("drain").arg("--home").arg(a.home().join("home"))).0.success());
    wait_for("the drain", secs(10), || a.api().get("/rest/v2/readiness").status == 503);
    serves_newcomers(&front, "of one node that drains and one that does not");
    for _ in 0..5 {
        assert_eq!(front.list(), 200, "viewers of HLS go on");
    }
    let before = player.media();
    wait_for("media", secs(20), || player.media() > before + 30);
    assert!(player.is_playing());
    drop(player);
    assert_eq!(a.wait(secs(60)).code(), Some(0), "{}", a.log());
    serves_newcomers(&front, "of the node that is left");

    // An encoder publishes through the proxy. When the second node is killed too, there is no node left.
    let _encoder = Publisher::start(front.rtmp, "live", "t");
    wait_for("its stream", secs(20), || is_broadcasting(&c, "t"));
    b.kill();
    assert_ne!(front.list(), 200, "nobody is there");
}

#[test]
fn n_23_behind_haproxy_newcomers_come_to_the_node_that_does_not_drain_and_others_go_on() {
    goes_on("haproxy.cfg");
}

#[test]
fn n_23_behind_nginx_newcomers_come_to_the_node_that_does_not_drain_and_others_go_on() {
    goes_on("nginx.conf");
}

#[test]
fn n_23_a_node_that_is_killed_is_passed_over() {
    for name in ["haproxy.cfg", "nginx.conf"] {
        let (_redis, [mut a, b, c]) = nodes();
        let _publisher = Program::ffmpeg_publish(&media_file(true, 120), &c.rtmp_url("live/s"));
        for server in [&a, &b] {
            wait_for("the stream", secs(20), || is_broadcasting(server, "s"));
        }
        let front = Front::start(name, [&a, &b]);
        serves_newcomers(&front, "of two nodes");
        a.kill();
        serves_newcomers(&front, "of the node that is left");
        let _encoder = Publisher::start(front.rtmp, "live", "t");
        wait_for("its stream", secs(20), || is_broadcasting(&c, "t"));
    }
}
