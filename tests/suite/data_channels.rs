//! Data channels through the whole server with two workers. aiortc publishes and plays by WHIP, by WHEP, and over the
//! WebSocket of the SDK.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use crate::support::{Manner, Receiver as HookReceiver, Server, python, secs, wait_for};

/// An aiortc process with a data channel, and the lines that the process prints. It ends with the test.
struct Talker {
    process: Child,
    lines: Receiver<String>,
    /// Lines printed before those that [`Talker::wait`] waited for.
    before: Vec<String>,
}

impl Talker {
    fn start(verb: &str, url: &str) -> Self {
        let mut command = Command::new(python());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/webrtc_peer.py"))
            .args([verb, url, "d"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines, before: Vec::new() }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn wait(&mut self, wanted: &str) {
        let end = Instant::now() + secs(60);
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("no {wanted:?}; {:?}", self.before));
            if line == wanted {
                return;
            }
            self.before.push(line);
        }
    }

    /// True if a line with this text was printed before the line that [`Talker::wait`] waited for last.
    fn has(&self, text: &str) -> bool {
        self.before.iter().any(|line| line.contains(text))
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const DATA: &str = "/live/rest/v2/broadcasts/d/data";

fn wait_for_stream(server: &Server) {
    wait_for("the stream", secs(60), || {
        server.api().broadcast("live", "d").is_some_and(|broadcast| broadcast["status"] == "broadcasting")
    });
}

/// Starts a publisher and two viewers: one by WHEP that opens its data channel itself, and one over the SDK's WebSocket
/// whose data channel the server opens.
fn talkers(server: &Server, by_socket: bool) -> [Talker; 3] {
    let socket = format!("ws://{}/live/websocket", server.http);
    let whip = format!("http://{}/live/whip/d", server.http);
    let mut publisher = Talker::start("data-publish", if by_socket { &socket } else { &whip });
    wait_for_stream(server);
    let mut by_whep = Talker::start("data-play", &format!("http://{}/live/whep/d", server.http));
    let mut by_sdk = Talker::start("data-play", &socket);
    publisher.wait("open d");
    by_whep.wait("open mine");
    by_sdk.wait("open d");
    [publisher, by_whep, by_sdk]
}

#[test]
fn messages_reach_whom_the_application_lets_them_reach() {
    for (distribution, by_socket) in [("all", true), ("publisher", false)] {
        let setting = format!("app.dataChannelPlayerDistribution={distribution}");
        let server = Server::start(&["server.workers=2", &setting]);
        let [mut publisher, mut by_whep, mut by_sdk] = talkers(&server, by_socket);
        publisher.say("text to viewers");
        by_whep.wait("came mine to viewers");
        by_sdk.wait("came d to viewers");
        for length in [1, 16_000, 65_536] {
            publisher.say(&format!("bytes {length}"));
            by_whep.wait(&format!("came mine {length}"));
            by_sdk.wait(&format!("came d {length}"));
        }
        by_whep.say("text of a viewer");
        publisher.wait("came d of a viewer");
        if distribution == "all" {
            by_sdk.wait("came d of a viewer");
        }
        by_sdk.say("bytes 20000");
        publisher.wait("came d 20000");
        let answer = server.api().post(DATA, "of the api");
        assert_eq!((answer.status, &answer.json()["success"]), (200, &true.into()));
        for (talker, label) in [(&mut publisher, "d"), (&mut by_whep, "mine"), (&mut by_sdk, "d")] {
            talker.wait(&format!("came {label} of the api"));
        }
        assert_eq!(by_whep.has("20000"), distribution == "all");
        assert!(!by_whep.has("of a viewer") && !publisher.has("to viewers"), "nobody hears itself");
    }
}

#[test]
fn a_stream_of_messages_alone_is_played() {
    let server = Server::start(&["server.workers=2"]);
    let socket = format!("ws://{}/live/websocket", server.http);
    let mut publisher = Talker::start("channel-publish", &socket);
    wait_for_stream(&server);
    let mut viewer = Talker::start("data-play", &socket);
    publisher.wait("open d");
    viewer.wait("open d");
    publisher.say("text to viewers");
    viewer.wait("came d to viewers");
    viewer.say("text of a viewer");
    publisher.wait("came d of a viewer");
}

#[test]
fn messages_are_posted_to_the_receiver_of_the_application() {
    let receiver = HookReceiver::start(Manner::Status(200));
    let server = Server::start(&[&format!("app.dataChannelWebHookURL={}", receiver.url("chat"))]);
    let [mut publisher, mut by_whep, _by_sdk] = talkers(&server, true);
    publisher.say("text to viewers");
    by_whep.wait("came mine to viewers");
    by_whep.say("text of a viewer");
    publisher.wait("came d of a viewer");
    let told = || -> Vec<String> {
        let form = |body: serde_json::Value| body.as_str().map(str::to_owned);
        receiver.told("chat").into_iter().filter_map(form).collect()
    };
    wait_for("both messages", secs(30), || told().len() == 2);
    for (form, message) in told().iter().zip(["to viewers", "of a viewer"]) {
        let lines: Vec<&str> = form.split("\r\n").collect();
        let [boundary, disposition, "", value, end, ""] = lines[..] else { panic!("{form:?}") };
        assert_eq!((disposition, value), (r#"Content-Disposition: form-data; name="data""#, message));
        assert_eq!(end, format!("{boundary}--"));
    }
    // Messages that the operator sends through the API are not reported to the receiver.
    server.api().post(DATA, "of the api");
    by_whep.wait("came mine of the api");
    assert_eq!(told().len(), 2);
}

#[test]
fn without_data_channels_messages_go_nowhere() {
    let server = Server::start(&["app.dataChannelEnabled=false"]);
    let mut publisher = Talker::start("data-publish", &format!("ws://{}/live/websocket", server.http));
    wait_for_stream(&server);
    // A page of the SDK opens a data channel even if the application does not allow data channels.
    publisher.wait("open d");
    publisher.say("text nobody hears it");
    let answer = server.api().post(DATA, "x").json();
    assert_eq!(
        (&answer["success"], &answer["message"]),
        (&false.into(), &"Data channels are not enabled".into())
    );
    let missing = Server::start(&[]);
    let answer = missing.api().post(DATA, "x").json();
    assert_eq!(answer["message"], "Requested WebRTC stream does not exist");
}

/// Checks that a viewer that floods is limited to its share, and that the publisher and the other viewer still exchange
/// messages.
#[test]
fn a_viewer_that_floods_hurts_nobody() {
    let server = Server::start(&["server.workers=2"]);
    let [mut publisher, mut by_whep, mut by_sdk] = talkers(&server, true);
    by_whep.say("flood 1000 20000");
    by_whep.say("text last");
    publisher.wait("came d 20000");
    publisher.say("text on");
    by_sdk.wait("came d on");
    let answer = server.api().post(DATA, "still there");
    assert_eq!(answer.status, 200);
    by_sdk.wait("came d still there");
    by_whep.wait("came mine still there");
    let passed = by_sdk.before.iter().filter(|line| line.ends_with("20000")).count();
    assert!(passed < 900, "{passed} of 1000 messages of a flood");
}
