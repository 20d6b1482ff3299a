//! Nodes that share a directory: several servers and one Redis over loopback.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::management::Panel;
use crate::support::{Home, Player, Publisher, RtmpPeer, Server, ms, own_port, secs, wait_for};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";
const LEASE: Duration = secs(2);

/// A Redis server that serves as the directory, with its own port and folder.
pub(super) struct Redis {
    home: Home,
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl Redis {
    pub(super) fn start() -> Self {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Self {
        let port = own_port("127.0.0.1").port();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut redis = Self { home: Home::new(), port, options, child: None };
        redis.begin();
        redis
    }

    pub(super) fn begin(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        if !self.options.iter().any(|option| option == "--tls-port") {
            command.args(["--port", &self.port.to_string()]);
        }
        command.args(&self.options).arg("--dir").arg(self.home.path());
        self.child = Some(command.stdout(Stdio::null()).spawn().unwrap());
        let port = self.port;
        wait_for("the directory", secs(20), || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(super) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the folder with the files of this Redis server.
    pub(super) fn folder(&self) -> &Path {
        self.home.path()
    }

    fn url(&self) -> String {
        format!("cluster.url={}", self.address())
    }

    fn node(&self, name: &str) -> Server {
        Server::start(&self.settings(name).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn node_in(&self, folder: &Path, name: &str) -> Server {
        Server::start_in(folder, &self.settings(name).iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(super) fn settings(&self, name: &str) -> Vec<String> {
        vec![self.url(), format!("cluster.node={name}"), format!("cluster.lease={}", LEASE.as_secs())]
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn create(server: &Server, id: &str) {
    let reply = server.api().post(&format!("{BROADCASTS}/create"), &format!(r#"{{"streamId":"{id}"}}"#));
    assert_eq!(reply.status, 200, "{reply:?}");
}

fn has(server: &Server, id: &str, status: &str) -> bool {
    server.api().broadcast("live", id).is_some_and(|record| record["status"] == status)
}

fn is_gone(server: &Server, id: &str) -> bool {
    server.api().broadcast("live", id).is_none()
}

fn publishes(server: &Server, id: &str) -> bool {
    RtmpPeer::publish(server.rtmp, "live", id).is_ok_and(|peer| {
        peer.close();
        true
    })
}

#[test]
fn b_20_a_record_of_one_node_is_read_changed_and_deleted_at_another() {
    let redis = Redis::start();
    let (a, b) = (redis.node("a"), redis.node("b"));
    create(&a, "s");
    wait_for("the record at b", secs(5), || has(&b, "s", "created"));
    let renamed = b.api().put(&format!("{BROADCASTS}/s"), r#"{"name":"by b"}"#);
    assert_eq!(renamed.json()["success"], true);
    wait_for("the name at a", secs(5), || a.api().broadcast("live", "s").unwrap()["name"] == "by b");
    // A node that starts later gets the existing records.
    let c = redis.node("c");
    assert_eq!(c.api().broadcast("live", "s").unwrap()["name"], "by b");
    let status = |server: &Server| server.api().get("/rest/v2/cluster-mode-status");
    assert_ne!(status(&c).status, 500);
    assert_eq!(c.api().delete(&format!("{BROADCASTS}/s")).json()["success"], true);
    wait_for("its end at a and b", secs(5), || is_gone(&a, "s") && is_gone(&b, "s"));
}

#[test]
fn b_21_an_id_is_published_at_one_node_and_free_when_that_is_gone() {
    let redis = Redis::start();
    let (mut a, b) = (redis.node("b-first"), redis.node("a-other"));
    create(&b, "s");
    create(&b, "kept");
    wait_for("the records", secs(5), || has(&a, "kept", "created"));
    let publisher = Publisher::start(a.rtmp, "live", "s");
    let other = Publisher::start(a.rtmp, "live", "kept");
    let stray = Publisher::start(a.rtmp, "live", "stray");
    wait_for("the streams at b", secs(10), || {
        ["s", "kept", "stray"].iter().all(|id| has(&b, id, "broadcasting"))
    });
    assert!(!publishes(&b, "s"), "the id is the other node's");
    // When a publisher ends, its id is free again.
    publisher.stop();
    wait_for("the end at b", secs(10), || has(&b, "s", "finished"));
    wait_for("the id", secs(5), || publishes(&b, "s"));
    // When a node is killed, its ids are free again within its lease plus a second.
    a.kill();
    let began = Instant::now();
    drop((other, stray));
    wait_for("the id of a dead node", secs(20), || publishes(&b, "kept"));
    println!("taken over {} ms after the death, lease {} ms", began.elapsed().as_millis(), LEASE.as_millis());
    wait_for("the stray stream's end", secs(20), || is_gone(&b, "stray"));
    assert_eq!(b.api().delete(&format!("{BROADCASTS}/kept")).json()["success"], true);
}

#[test]
fn b_22_a_dead_node_s_streams_are_terminated_and_can_be_deleted() {
    let redis = Redis::start();
    let (mut a, b) = (redis.node("a"), redis.node("b"));
    create(&a, "s");
    let publisher = Publisher::start(a.rtmp, "live", "s");
    wait_for("the stream at b", secs(10), || has(&b, "s", "broadcasting"));
    a.kill();
    drop(publisher);
    wait_for("its end at b", secs(20), || has(&b, "s", "terminated_unexpectedly"));
    let log = b.log_with("node lost");
    assert_eq!(log.matches("node lost").count(), 1, "{log}");
    let is_told =
        |line: &str| line.contains("node lost") && line.contains("node=\"a\"") && line.contains("silent_ms=");
    assert!(log.lines().any(is_told), "{log}");
    assert_eq!(b.api().delete(&format!("{BROADCASTS}/s")).json()["success"], true);
    assert!(is_gone(&b, "s"));
}

#[test]
fn b_23_live_streams_go_on_while_the_directory_is_away_and_one_publisher_remains_afterwards() {
    let mut redis = Redis::start();
    let (a, b) = (redis.node("a"), redis.node("b"));
    create(&a, "s");
    let publisher = Publisher::start(a.rtmp, "live", "s");
    wait_for("the stream at b", secs(10), || has(&b, "s", "broadcasting"));
    let player = Player::start(a.rtmp, "live", "s");
    wait_for("media", secs(10), || player.units() > 30);
    redis.kill();
    for server in [&a, &b] {
        server.wait_for_line("directory unreachable");
    }
    // The directory stays unreachable for longer than the lease.
    let (began, units) = (Instant::now(), player.units());
    wait_for("media without the directory", secs(20), || began.elapsed() > LEASE * 2);
    assert!(player.units() > units + 60);
    // Without the directory, no node knows that the id is taken, so both nodes accept a publisher of the same id.
    let second = Publisher::start(b.rtmp, "live", "s");
    let only_b = Publisher::start(b.rtmp, "live", "new");
    redis.begin();
    for server in [&a, &b] {
        server.wait_for_line("directory reachable again");
    }
    let here = |server: &Server| server.log().contains("another node publishes this id by a newer claim");
    wait_for("one publisher", LEASE + secs(2), || here(&a));
    assert!(!here(&b), "the newest stays");
    wait_for("the new stream at a", secs(5), || {
        has(&a, "new", "broadcasting") && has(&a, "s", "broadcasting")
    });
    assert!(!publishes(&a, "s"));
    drop((publisher, second, only_b));
}

#[test]
fn b_24_a_directory_that_comes_back_empty_has_everything_again() {
    let mut redis = Redis::start();
    let (a, b) = (redis.node("a"), redis.node("b"));
    for id in ["one", "two", "live"] {
        create(&a, id);
    }
    wait_for("the records", secs(5), || has(&b, "live", "created"));
    let publisher = Publisher::start(b.rtmp, "live", "live");
    wait_for("the stream", secs(10), || has(&a, "live", "broadcasting"));
    redis.kill();
    std::fs::remove_dir_all(redis.home.path().join("appendonlydir")).unwrap();
    redis.begin();
    for server in [&a, &b] {
        server.wait_for_line("putting them back");
    }
    wait_for("the claim", secs(10), || !publishes(&a, "live"));
    let c = redis.node("c");
    assert!(has(&c, "one", "created") && has(&c, "two", "created") && has(&c, "live", "broadcasting"));
    create(&c, "three");
    wait_for("what is new", secs(5), || has(&a, "three", "created") && has(&b, "three", "created"));
    drop(publisher);
}

#[test]
fn b_25_a_node_that_starts_again_leaves_alone_what_the_others_have() {
    let redis = Redis::start();
    let home = Home::new();
    let (mut a, b) = (redis.node_in(&home.path().join("a"), "a"), redis.node("b"));
    create(&a, "s");
    wait_for("the record", secs(5), || has(&b, "s", "created"));
    let publisher = Publisher::start(b.rtmp, "live", "s");
    let stray = Publisher::start(b.rtmp, "live", "stray");
    wait_for("the streams at a", secs(10), || {
        has(&a, "s", "broadcasting") && has(&a, "stray", "broadcasting")
    });
    a.kill();
    let a = redis.node_in(&home.path().join("a"), "a");
    let began = Instant::now();
    wait_for("time in which it could do harm", secs(20), || began.elapsed() > ms(2500));
    for server in [&a, &b] {
        assert!(has(server, "s", "broadcasting") && has(server, "stray", "broadcasting"));
    }
    publisher.stop();
    stray.stop();
    wait_for("their ends", secs(10), || has(&a, "s", "finished") && is_gone(&a, "stray"));
}

#[test]
fn b_26_without_a_directory_publishers_are_refused_where_the_setting_says_so() {
    let mut redis = Redis::start();
    let mut settings = redis.settings("a");
    settings.push("cluster.without_directory=refuse".to_owned());
    let a = Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(publishes(&a, "s"));
    redis.kill();
    a.wait_for_line("directory unreachable");
    assert!(!publishes(&a, "s"));
    let reply = a.api().post(&format!("{BROADCASTS}/create"), r#"{"streamId":"t"}"#);
    assert_eq!(reply.status, 500, "no record is acknowledged");
    redis.begin();
    a.wait_for_line("directory reachable again");
    wait_for("a publisher", secs(10), || publishes(&a, "s"));
    wait_for("a record", secs(10), || {
        a.api().post(&format!("{BROADCASTS}/create"), r#"{"streamId":"t"}"#).status == 200
    });
}

#[test]
fn b_27_the_nodes_are_listed_with_their_names_and_lives() {
    let redis = Redis::start();
    let (a, mut b) = (redis.node("a"), redis.node("b"));
    let panel = Panel::first(&a);
    assert_eq!(panel.get("/cluster-mode-status")["success"], true);
    wait_for("two nodes", secs(10), || panel.get("/cluster/node-count")["number"] == 2);
    let status = |panel: &Panel, name: &str| -> Value {
        let nodes = panel.get("/cluster/nodes/0/10");
        let node = nodes.as_array().unwrap().iter().find(|node| node["id"] == name).cloned();
        node.map_or(Value::Null, |node| node["status"].clone())
    };
    assert_eq!((status(&panel, "a"), status(&panel, "b")), ("alive".into(), "alive".into()));
    b.kill();
    wait_for("its death", secs(20), || status(&panel, "b") == "dead");
    // A user created at one node can log in at every other node.
    let mut settings = redis.settings("c");
    settings.extend(["cluster.relay_address=relay.example:7000".to_owned(), "cluster.region=eu".to_owned()]);
    let c = Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    let nodes = Panel::again(&c).get("/cluster/nodes/2/1");
    assert_eq!((&nodes[0]["relay"], &nodes[0]["region"]), (&"relay.example:7000".into(), &"eu".into()));
    assert_eq!(nodes[0]["ip"].as_str().unwrap().rsplit(':').next(), Some(&*c.http.port().to_string()));
    let forget = |name: &str| panel.delete(&format!("/cluster/node/{name}"))["success"].clone();
    assert_eq!((forget("c"), forget("nobody"), forget("b")), (false.into(), false.into(), true.into()));
    wait_for("b to be forgotten", secs(10), || panel.get("/cluster/node-count")["number"] == 2);
    // The nodes of a cluster with another name are not counted, although it uses the same directory.
    let mut settings = redis.settings("a");
    settings.push("cluster.name=other".to_owned());
    let other = Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(Panel::first(&other).get("/cluster/node-count")["number"], 1);
}

#[test]
fn b_32_a_directory_that_hangs_holds_up_no_stream_and_no_publisher_for_long() {
    let redis = Redis::start();
    let a = redis.node("a");
    create(&a, "s");
    let publisher = Publisher::start(a.rtmp, "live", "s");
    let player = Player::start(a.rtmp, "live", "s");
    wait_for("media", secs(10), || player.units() > 30);
    let pid = redis.child.as_ref().unwrap().id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let (began, units) = (Instant::now(), player.units());
    // The node waits for its claim in the directory, but only for a while, and then accepts the publisher without it.
    assert!(publishes(&a, "new"));
    assert!(a.api().broadcast("live", "s").is_some());
    wait_for("ten seconds", secs(20), || began.elapsed() > secs(10));
    assert!(player.units() > units + 300);
    a.wait_for_line("directory unreachable");
    signal("-CONT");
    a.wait_for_line("directory reachable again");
    wait_for("a record", secs(10), || {
        a.api().post(&format!("{BROADCASTS}/create"), r#"{"streamId":"t"}"#).status == 200
    });
    assert!(has(&a, "s", "broadcasting") && publishes(&a, "new"));
    drop(publisher);
}

#[test]
fn the_tools_read_the_directory_or_say_that_they_do_not() {
    let redis = Redis::start();
    let a = redis.node("a");
    create(&a, "s");
    let tool = |words: &[&str], home: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(words).arg("--home").arg(home);
        for setting in redis.settings("tool") {
            command.args(["--set", &setting]);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let home = a.home().join("home");
    let (code, said) = tool(&["store", "check"], &home);
    assert!(code == Some(0) && said.contains("1 broadcasts"), "{said}");
    let (code, said) = tool(&["store", "export"], &home);
    assert!(code == Some(0) && said.contains(r#""app":"live","id":"s""#), "{said}");
    for task in [&["store", "backup"][..], &["store", "salvage"], &["store", "reindex"]] {
        let (code, said) = tool(task, &home);
        assert!(code == Some(1) && said.contains("the records are in the directory"), "{task:?}: {said}");
    }
    // The command line tool has not registered itself as a node.
    let panel = Panel::first(&a);
    assert_eq!(panel.get("/cluster/node-count")["number"], 1);
}

#[test]
fn b_28_a_source_runs_at_one_node_and_moves_when_that_is_gone() {
    let redis = Redis::start();
    let origin = Server::start(&[]);
    let publisher = Publisher::start(origin.rtmp, "live", "camera");
    let (mut a, b) = (redis.node("b"), redis.node("a"));
    let body = format!(
        r#"{{"streamId":"pulled","type":"streamSource","streamUrl":"{}"}}"#,
        origin.rtmp_url("live/camera")
    );
    let made = a.api().post(&format!("{BROADCASTS}/create?autoStart=true"), &body);
    assert_eq!(made.status, 200, "{made:?}");
    wait_for("the source", secs(20), || {
        has(&a, "pulled", "broadcasting") && has(&b, "pulled", "broadcasting")
    });
    let starts = |server: &Server| server.log().matches("source is delivering").count();
    wait_for("the line about it", secs(10), || starts(&a) > 0);
    assert_eq!((starts(&a), starts(&b)), (1, 0));
    let again = b.api().post(&format!("{BROADCASTS}/pulled/start"), "");
    assert_eq!(again.json()["success"], false, "{again:?}");
    // A node that starts finds the source in the records, and leaves it to the node that runs it.
    let c = redis.node("c");
    c.wait_for_line("source not started");
    a.kill();
    wait_for("the source at another node", secs(30), || starts(&b) + starts(&c) == 1);
    wait_for("its record", secs(20), || {
        has(&b, "pulled", "broadcasting") && has(&c, "pulled", "broadcasting")
    });
    // The source can be stopped and deleted at any node.
    let runs_at_b = starts(&b) == 1;
    let (here, there) = if runs_at_b { (&b, &c) } else { (&c, &b) };
    let stopped = there.api().post(&format!("{BROADCASTS}/pulled/stop"), "");
    assert_eq!(stopped.json()["success"], true, "{stopped:?}");
    wait_for("its stop", secs(10), || has(here, "pulled", "finished") && has(there, "pulled", "finished"));
    let started = there.api().post(&format!("{BROADCASTS}/pulled/start"), "");
    assert_eq!(started.json()["success"], true, "{started:?}");
    wait_for("its start", secs(10), || has(here, "pulled", "broadcasting"));
    let (here, there) = (there, here);
    let deleted = there.api().delete(&format!("{BROADCASTS}/pulled"));
    assert_eq!(deleted.json()["success"], true, "{deleted:?}");
    wait_for("its end", secs(10), || is_gone(here, "pulled") && is_gone(there, "pulled"));
    drop(publisher);
}

#[test]
fn b_29_the_directory_is_reached_by_tls_with_a_user_of_few_rights_and_not_with_a_wrong_password() {
    let folder = Home::new();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(file("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(file("key.pem"), key.serialize_pem()).unwrap();
    let rights = "user node on >S3cret ~{millstream}:* +@connection +@hash +@string +@stream +@scripting +time +select +role";
    std::fs::write(file("users.acl"), format!("user default off\n{rights}\n")).unwrap();
    let port = own_port("127.0.0.1").port();
    let (tls_port, cert, key, users) =
        (port.to_string(), file("cert.pem"), file("key.pem"), file("users.acl"));
    let mut redis = Redis {
        home: Home::new(),
        port,
        options: [
            "--port",
            "0",
            "--tls-port",
            &tls_port,
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-auth-clients",
            "no",
            "--tls-ca-cert-file",
            &cert,
            "--aclfile",
            &users,
        ]
        .map(str::to_owned)
        .to_vec(),
        child: None,
    };
    redis.begin();
    let command = |home: &Home, node: &str, password: &str| {
        let url = format!("cluster.url=rediss://node:{password}@localhost:{port}");
        let mut command =
            Server::command(&home.path().join("home"), &[&url, &format!("cluster.node={node}")]);
        command.env("SSL_CERT_FILE", file("cert.pem"));
        command
    };
    let (home, other) = (Home::new(), Home::new());
    let a = Server::spawn(&mut command(&home, "a", "S3cret")).with_home(home);
    let b = Server::spawn(&mut command(&other, "b", "S3cret")).with_home(other);
    create(&a, "s");
    wait_for("the record", secs(5), || has(&b, "s", "created"));
    let publisher = Publisher::start(a.rtmp, "live", "s");
    wait_for("the stream", secs(10), || has(&b, "s", "broadcasting"));
    assert!(!publishes(&b, "s"));
    drop(publisher);
    for log in [a.log(), b.log()] {
        assert!(!log.contains("S3cret"));
    }
    let third = Home::new();
    for mut refused in [command(&third, "c", "wrong"), {
        let mut command = command(&third, "c", "S3cret");
        command.env_remove("SSL_CERT_FILE");
        command
    }] {
        let output = refused.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("the directory") && !said.contains("S3cret") && !said.contains("wrong"),
            "{said}"
        );
    }
}
