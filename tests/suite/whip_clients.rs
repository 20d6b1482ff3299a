//! Tests encoders that publish by WHIP in different ways: OBS Studio and GStreamer. `webrtc.rs` tests ffmpeg and
//! browsers.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Reply, Server, ffmpeg9, frame_md5_by, header, secs, wait_for};

/// Offer of libdatachannel 0.24 with the options that OBS uses: Opus and H.264, one port, candidates of the machine.
const OFFER_OF_OBS: &str = include_str!("../fixtures/obs-offer.sdp");
const AGENT_OF_OBS: (&str, &str) = ("User-Agent", "Mozilla/5.0 (OBS-Studio/30.2.0; Linux x86_64; en-US)");
const SDP: (&str, &str) = ("Content-Type", "application/sdp");

fn token_of(server: &Server, stream: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let path = format!("/live/rest/v2/broadcasts/{stream}/token?expireDate={}&type=publish", now + 600);
    server.api().get(&path).json()["tokenId"].as_str().unwrap().to_owned()
}

/// Checks what OBS needs. It sends one POST without a trailing slash, and accepts only the status 201. If `Location`
/// does not begin with `http`, OBS uses it as the path of the endpoint's URL. OBS does not trickle candidates. After it
/// has closed its peer, it sends DELETE, also with its token.
#[test]
fn obs_is_answered_as_it_needs_it_and_deletes_its_session_with_its_token() {
    let server = Server::start(&["server.workers=2", "app.publishTokenControlEnabled=true"]);
    let token = format!("Bearer {}", token_of(&server, "cam"));
    let post = |token: &str| -> Reply {
        let fields = [SDP, AGENT_OF_OBS, ("Authorization", token)];
        server.api().call_with("POST", "/live/whip/cam", &fields, Some(OFFER_OF_OBS))
    };
    assert_eq!(post("Bearer wrong").status, 403);
    let reply = post(&token);
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert!(header(&reply, "Content-Type").starts_with("application/sdp"));

    let answer: Vec<&str> = reply.body.lines().collect();
    let has = |line: &str| answer.contains(&line);
    assert_eq!(answer[0], "v=0");
    assert!(has("a=ice-lite") && has("a=group:BUNDLE 0 1") && has("a=rtcp-mux"), "{}", reply.body);
    // Both sections are accepted, in the order of the offer and with its names and payload types.
    let sections: Vec<&str> = answer.iter().filter(|line| line.starts_with("m=")).copied().collect();
    assert!(
        sections[0].starts_with("m=audio ") && sections[0].ends_with(" UDP/TLS/RTP/SAVPF 111"),
        "{sections:?}"
    );
    assert!(
        sections[1].starts_with("m=video ") && sections[1].ends_with(" UDP/TLS/RTP/SAVPF 96"),
        "{sections:?}"
    );
    assert!(sections.len() == 2 && !sections.iter().any(|line| line.split(' ').nth(1) == Some("0")));
    assert!(has("a=rtpmap:111 opus/48000/2") && has("a=rtpmap:96 H264/90000"), "{}", reply.body);
    let count = |line: &str| answer.iter().filter(|one| **one == line).count();
    assert_eq!((count("a=mid:0"), count("a=mid:1"), count("a=recvonly")), (1, 1, 2), "{}", reply.body);
    // The answer contains all candidates, because the client accepts none later.
    assert!(reply.body.contains("a=candidate:") && has("a=end-of-candidates"), "{}", reply.body);

    let location = header(&reply, "Location");
    let path = if location.starts_with("http") {
        location
            .split_once("//")
            .and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned()))
            .unwrap()
    } else {
        format!("/{}", location.trim_start_matches('/'))
    };
    let delete = || server.api().call_with("DELETE", &path, &[AGENT_OF_OBS, ("Authorization", &token)], None);
    assert_eq!(delete().status, 200, "{path}");
    assert_eq!(delete().status, 404);
}

/// Path of Debian's Python. The virtual environment of the other tests lacks the bindings of GStreamer.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn gstreamer_publishes_by_whip_and_deletes_its_session() {
    let server = Server::start(&["server.workers=2"]);
    let mut command = Command::new(PYTHON);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/gstreamer_whip.py"));
    command.arg(format!("http://{}/live/whip/g", server.http));
    let mut publisher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let is_live = || server.api().broadcast("live", "g").is_some_and(|one| one["status"] == "broadcasting");
    wait_for("the stream", secs(40), is_live);
    let url = format!("http://{}/live/g.flv", server.http);
    let packets = frame_md5_by(&ffmpeg9(), &[], &url, Some(2));
    for stream in 0..2 {
        let times: Vec<i64> =
            packets.iter().filter(|packet| packet.0 == stream).map(|packet| packet.1).collect();
        assert!(times.len() > 20 && times.is_sorted(), "{stream}: {times:?}");
    }
    publisher.stdin.take().unwrap().flush().unwrap();
    let output = publisher.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["status"], &told["state"]), (&201.into(), &"connected".into()), "{told}");
    assert_eq!(told["deleted"], 200, "{told}");
    wait_for("the end", secs(5), || server.api().broadcast("live", "g").is_none());
}
