//! Tests WebRTC with the whole server: WHIP, WHEP and the SDK's signalling with other implementations, and requests
//! that are refused.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use media::codec::Codec;
use sdp::{Direction, MediaKind};
use serde_json::Value;
use webrtc::{Config, IceMode, MediaPreference, Peer, offered_formats};

use crate::support::{
    Over, Program, Publisher, RtcClient, Server, coded_file, ffmpeg9, frame_md5_by, header, media_file,
    python, run, secs, wait_for,
};

/// A process with an aiortc peer. It runs until its standard input is closed, or until it has finished.
pub struct Browser(Child);

impl Browser {
    pub fn start(verb: &str, url: &str, what: &str) -> Self {
        let mut command = Command::new(python());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/webrtc_peer.py"))
            .args([verb, url, what]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Ends the peer's input, and returns its report.
    pub fn finish(mut self) -> Value {
        self.0.stdin.take().unwrap().flush().unwrap();
        let output = self.0.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn whip(server: &Server, name: &str) -> String {
    format!("http://{}/live/whip/{name}", server.http)
}

fn whep(server: &Server, name: &str) -> String {
    format!("http://{}/live/whep/{name}", server.http)
}

fn wait_for_stream(server: &Server, name: &str) {
    wait_for("the stream", secs(30), || {
        server.api().broadcast("live", name).is_some_and(|broadcast| broadcast["status"] == "broadcasting")
    });
}

fn frames(facts: &Value, kind: &str) -> u64 {
    facts["frames"][kind].as_u64().unwrap_or(0)
}

#[test]
fn a_browser_publishes_and_browsers_and_files_play() {
    let server = Server::start(&["server.workers=2"]);
    let publisher = Browser::start("publish", &whip(&server, "a"), "H264");
    wait_for_stream(&server, "a");
    assert_eq!(server.api().broadcast("live", "a").unwrap()["publishType"], "WebRTC");
    let facts = Browser::start("play", &whep(&server, "a"), "60").finish();
    assert!(frames(&facts, "video") >= 60 && frames(&facts, "audio") >= 60, "{facts}");
    assert_eq!((&facts["falls"]["video"], &facts["falls"]["audio"]), (&0.into(), &0.into()), "{facts}");
    assert_eq!(facts["delete"], 200);
    let url = format!("http://{}/live/a.flv", server.http);
    // Without this time base, ffmpeg assumes a usual frame rate, but frames of browsers may be closer together.
    let decode = ["-v", "error", "-i", &url, "-t", "2", "-enc_time_base:v", "1:1000", "-f", "null", "-"];
    let (status, _, errors) = run(Command::new(ffmpeg9()).args(decode));
    assert!(status.success() && errors.is_empty(), "{errors}");
    let packets = frame_md5_by(&ffmpeg9(), &[], &url, Some(2));
    for stream in 0..2 {
        let times: Vec<i64> =
            packets.iter().filter(|packet| packet.0 == stream).map(|packet| packet.1).collect();
        assert!(times.len() > 20 && times.is_sorted(), "{stream}: {times:?}");
    }
    let published = publisher.finish();
    assert_eq!((&published["delete"], &published["rejected"]), (&200.into(), &serde_json::json!([])));
    // A goodbye immediately ends the stream and its record.
    wait_for("the end", secs(5), || server.api().broadcast("live", "a").is_none());
}

/// Checks that a stream from ffmpeg by WHIP equals its file to the byte.
#[test]
fn ffmpeg_publishes_by_whip() {
    let server = Server::start(&[]);
    let coding = [
        "-c:v",
        "libx264",
        "-profile:v",
        "baseline",
        "-bf",
        "0",
        "-g",
        "30",
        "-c:a",
        "libopus",
        "-ar",
        "48000",
    ];
    let file = coded_file("h264-opus-baseline", &coding);
    let url = whip(&server, "f");
    let _publisher = Program::start(
        Command::new(ffmpeg9())
            .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"])
            .arg(&file)
            .args(["-c", "copy", "-f", "whip", &url]),
    );
    wait_for_stream(&server, "f");
    let played = format!("http://{}/live/f.flv", server.http);
    let of = |input: &str, seconds: &str| {
        let arguments = ["-v", "error", "-i", input, "-t", seconds, "-an", "-f", "framemd5", "-"];
        let (status, text, errors) = run(Command::new(ffmpeg9()).args(arguments));
        assert!(status.success(), "{errors}");
        let hash = |line: &str| line.rsplit(',').next().unwrap_or_default().trim().to_owned();
        text.lines().filter(|line| !line.starts_with('#')).map(hash).collect::<Vec<_>>()
    };
    let source = of(file.to_str().unwrap(), "60");
    let came = of(&played, "2");
    assert!(came.len() >= 30, "{}", came.len());
    // The file is published in a loop, so the received packets may span its end and its beginning.
    let twice = [source.clone(), source].concat();
    assert!(twice.windows(came.len()).any(|piece| piece == came), "other pictures came");
}

#[test]
fn an_encoder_publishes_and_a_browser_plays_at_once() {
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/r"));
    wait_for_stream(&server, "r");
    // The viewer joins late in a GOP, and gets it from its beginning.
    std::thread::sleep(Duration::from_millis(1500));
    let facts = Browser::start("play", &whep(&server, "r"), "60").finish();
    assert_eq!((frames(&facts, "video"), &facts["falls"]["video"]), (60, &0.into()), "{facts}");
    // WebRTC has no AAC, so the viewer gets it as Opus.
    assert_eq!(facts["kinds"], serde_json::json!(["video", "audio"]), "{facts}");
    server.wait_for_line("protocol=\"webrtc\"");
}

/// Checks that B-frames are skipped, and that the other frames arrive in order.
#[test]
fn pictures_out_of_order_are_left_out() {
    let server = Server::start(&[]);
    let coding = ["-c:v", "libx264", "-bf", "2", "-x264-params", "b-pyramid=none", "-g", "30", "-an"];
    let file = coded_file("h264-b-frames", &coding);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/b"));
    wait_for_stream(&server, "b");
    // The player waits for video only, because the stream has no audio.
    let facts = Browser::start("play", &whep(&server, "b"), "30 video").finish();
    assert_eq!((frames(&facts, "video"), &facts["falls"]["video"]), (30, &0.into()), "{facts}");
    server.wait_for_line("B-frames are not sent to WebRTC viewers");
}

/// Checks that the publisher is asked for a key frame when a viewer joins. The server stores no key frame here, and the
/// publisher makes none by itself.
#[test]
fn a_viewer_has_a_key_frame_made_where_none_is_kept() {
    let server = Server::start(&["app.gopCache=false"]);
    let publisher = Browser::start("publish", &whip(&server, "k"), "VP8");
    wait_for_stream(&server, "k");
    std::thread::sleep(secs(2));
    let facts = Browser::start("play", &whep(&server, "k"), "30").finish();
    assert_eq!((frames(&facts, "video"), &facts["falls"]["video"]), (30, &0.into()), "{facts}");
    assert_eq!(publisher.finish()["delete"], 200);
}

#[test]
fn the_sdk_publishes_and_plays_on_one_socket_each() {
    let server = Server::start(&["server.workers=2"]);
    let url = format!("ws://{}/live/websocket", server.http);
    // The viewer joins before the stream exists. It is notified that there is no stream, and later that it has started.
    let viewer = Browser::start("sdk-play", &url, "s");
    wait_for("the viewer to be refused", secs(20), || {
        let page = server.api().get("/metrics").body;
        let ended = "millstream_sessions_ended_total{worker=";
        let lines =
            page.lines().filter(|line| line.starts_with(ended) && line.contains("protocol=\"webrtc\""));
        lines.filter(|line| !line.ends_with(" 0")).count() > 0
    });
    let publisher = Browser::start("sdk-publish", &url, "s");
    let played = viewer.finish();
    assert!(frames(&played, "video") >= 60 && frames(&played, "audio") >= 60, "{played}");
    assert_eq!(played["names"]["0"], "ARDAMSas");
    assert_eq!(played["names"]["1"], "ARDAMSvs");
    assert_eq!(
        (&played["info"][0]["streamHeight"], &played["info"][0]["videoCodec"]),
        (&480.into(), &"H264".into())
    );
    assert_eq!(played["record"]["streamId"], "s");
    assert_eq!(
        (&played["record"]["webRTCViewerCount"], &played["record"]["rtmpViewerCount"]),
        (&1.into(), &0.into())
    );
    assert_eq!(played["heard"][0], "no_stream_exist", "{played}");
    let published = publisher.finish();
    assert_eq!(
        published["heard"],
        serde_json::json!([
            "iceServerConfig",
            "start",
            "takeConfiguration",
            "publish_started",
            "publish_finished"
        ])
    );
}

// ---- requests

/// Returns an offer of our own stack, for tests that only check the answer.
fn offer(codec: Codec, direction: Direction) -> String {
    let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(1)).unwrap());
    let config = Arc::new(Config::new(IceMode::Full(Arc::default()), identity));
    let now = Instant::now();
    let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_790_000_000));
    let mut peer = Peer::new(now, config, anchor, Seed::from_number(2)).unwrap();
    let preference = MediaPreference { direction, formats: offered_formats(codec, 96), msid: None };
    peer.offer(&[(MediaKind::Video, preference)]).unwrap().write()
}

const SDP: (&str, &str) = ("Content-Type", "application/sdp");
const FRAGMENT: (&str, &str) = ("Content-Type", "application/trickle-ice-sdpfrag");

#[test]
fn what_cannot_be_is_refused_with_its_code() {
    let server = Server::start(&["server.workers=2"]);
    let post = |path: &str, body: &str| server.api().call_with("POST", path, &[SDP], Some(body));
    let sends = offer(Codec::H264, Direction::SendOnly);
    let takes = offer(Codec::H264, Direction::RecvOnly);
    assert_eq!(post("/live/whip/a", "v=0\r\nnonsense").status, 400);
    assert_eq!(post("/live/whip/a", &takes).status, 400, "a publisher that sends nothing");
    assert_eq!(post("/live/whep/a", &sends).status, 400, "a player that takes nothing");
    assert_eq!(post("/live/whip/a%20b", &sends).status, 400);
    assert_eq!(post("/nowhere/whip/a", &sends).status, 404);
    let typed =
        server.api().call_with("POST", "/live/whip/a", &[("Content-Type", "text/plain")], Some(&sends));
    assert_eq!(typed.status, 415);
    let offline = post("/live/whep/a", &takes);
    assert_eq!((offline.status, header(&offline, "Retry-After").is_empty()), (409, false));
    let publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/a"));
    wait_for_stream(&server, "a");
    assert_eq!(post("/live/whip/a", &sends).status, 409, "in use");
    assert_eq!(post("/live/whep/a", &offer(Codec::Vp8, Direction::RecvOnly)).status, 406);
    assert_eq!(server.api().get("/live/whip/a").status, 200);
    assert_eq!(server.api().call("PUT", "/live/whip/a", None).status, 405);
    drop(publisher);
}

/// Starts a STUN server that tells all clients the same address. It ends with the process.
fn stun_server(told: &'static str) -> u16 {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let Ok(request) = ice::stun::Message::read(&buffer[..length]) else { continue };
            let mut answer = Vec::new();
            ice::stun::MessageWriter::new(&mut answer, ice::stun::Class::Success, request.transaction_id())
                .mapped_address(told.parse().unwrap())
                .finish_open();
            let _ = socket.send_to(&answer, from);
        }
    });
    port
}

/// Returns the addresses of the UDP candidates in the server's answer, in their order.
fn told_addresses(server: &Server) -> Vec<String> {
    let sends = offer(Codec::H264, Direction::SendOnly);
    let reply = server.api().call_with("POST", "/live/whip/c", &[SDP], Some(&sends));
    assert_eq!(reply.status, 201, "{}", reply.body);
    let gone = server.api().call("DELETE", &format!("/live/whip/{}", header(&reply, "Location")), None);
    assert_eq!(gone.status, 200);
    let candidates = reply.body.lines().filter_map(|line| line.strip_prefix("a=candidate:"));
    let fields = candidates.map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|fields| fields[2] == "udp").map(|fields| fields[4].to_owned()).collect()
}

#[test]
fn clients_are_told_of_addresses_that_were_looked_up() {
    let port = stun_server("203.0.113.9:4444");
    let setting = format!("webrtc.candidates=auto=127.0.0.1:{port},localhost,127.0.0.1=198.51.100.3");
    let server = Server::start(&[&setting]);
    let wanted = ["203.0.113.9", "127.0.0.1", "198.51.100.3"];
    wait_for("the addresses", secs(10), || {
        let told = told_addresses(&server);
        wanted.iter().all(|ip| told.iter().any(|told| told == ip))
    });
    assert_eq!(told_addresses(&server)[0], wanted[0], "in the setting's order");
    server.wait_for_line("public address found");
}

#[test]
fn a_session_has_a_url_that_every_worker_knows() {
    let server = Server::start(&["server.workers=4"]);
    let reply = server.api().call_with(
        "POST",
        "/live/whip/u?token=t",
        &[SDP],
        Some(&offer(Codec::H264, Direction::SendOnly)),
    );
    assert_eq!(reply.status, 201, "{}", reply.body);
    let (location, tag) = (header(&reply, "Location"), header(&reply, "ETag"));
    assert!(location.starts_with("u/") && !location.contains('?'), "{location}");
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 4, "{tag}");
    let path = format!("/live/whip/{location}");
    let patch = |fields: &[(&str, &str)], body: &str| {
        let all: Vec<_> = std::iter::once(FRAGMENT).chain(fields.iter().copied()).collect();
        server.api().call_with("PATCH", &path, &all, Some(body))
    };
    let candidate = "a=ice-ufrag:EEEE\r\na=ice-pwd:aaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    // Each request has its own connection, and the kernel distributes connections over all workers.
    for _ in 0..8 {
        assert_eq!(patch(&[], candidate).status, 428);
        assert_eq!(patch(&[("If-Match", "\"other\"")], candidate).status, 412);
    }
    let fragment = "a=ice-ufrag:EEEE\r\na=ice-pwd:aaaaaaaaaaaaaaaaaaaaaaaa\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n";
    let restarted = patch(&[("If-Match", "*")], fragment);
    assert_eq!(restarted.status, 200, "{}", restarted.body);
    assert!(
        restarted.body.contains("a=ice-ufrag:") && header(&restarted, "ETag") != tag,
        "{}",
        restarted.body
    );
    let candidates = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\na=ice-ufrag:EEEE\r\na=candidate:1 1 udp 1 192.0.2.7 5000 typ host\r\n";
    let again = header(&restarted, "ETag");
    assert_eq!(patch(&[("If-Match", &again)], candidates).status, 204);
    // The last character of the path is wrong, so the session is not found.
    let wrong = format!("{}{}", &path[..path.len() - 1], if path.ends_with('0') { "1" } else { "0" });
    for _ in 0..4 {
        assert_eq!(server.api().delete(&wrong).status, 404);
    }
    assert_eq!(server.api().delete("/live/whip/u/0-00000000000000000000000000000000").status, 404);
    assert_eq!(server.api().delete(&path).status, 200);
    assert_eq!(server.api().delete(&path).status, 404);
}

#[test]
fn a_player_chooses_among_the_layers_of_its_video() {
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 20), &server.rtmp_url("live/v"));
    wait_for_stream(&server, "v");
    let offer = offer(Codec::H264, Direction::RecvOnly);
    let reply = server.api().call_with("POST", "/live/whep/v", &[SDP], Some(&offer));
    assert_eq!(reply.status, 201, "{}", reply.body);
    let location = header(&reply, "Location");
    let link = format!("<{location}/layer>; rel=\"urn:ietf:params:whep:ext:core:layer\"");
    assert!(reply.head.contains(&link), "{}", reply.head);
    let path = format!("/live/whep/{location}/layer");
    let listed = server.api().get(&path);
    let layers: Value = serde_json::from_str(&listed.body).unwrap();
    assert_eq!(layers["0"]["layers"][0]["encodingId"], "0", "{}", listed.body);
    assert_eq!(layers["0"]["active"], layers["0"]["layers"], "{}", listed.body);
    let choose = |path: &str, body: &str| {
        let json = [("Content-Type", "application/json")];
        server.api().call_with("POST", path, &json, Some(body)).status
    };
    for (body, status) in [
        (r#"{"mediaId":"0","encodingId":"0"}"#, 200),
        (r#"{"mediaId":0,"maxHeight":100}"#, 200),
        ("{}", 200),
        (r#"{"encodingId":"7"}"#, 404),
        (r#"{"mediaId":"other"}"#, 404),
        (r#"{"encodingId":[]}"#, 400),
        ("no choice", 400),
    ] {
        assert_eq!(choose(&path, body), status, "{body}");
    }
    let wrong = "/live/whep/v/0-00000000000000000000000000000000/layer";
    assert_eq!((choose(wrong, "{}"), server.api().get(wrong).status), (404, 404));
    assert_eq!(server.api().call_with("POST", &path, &[SDP], Some("{}")).status, 415);
    // A publisher has no layers to choose.
    let offer = crate::webrtc::offer(Codec::H264, Direction::SendOnly);
    let published = server.api().call_with("POST", "/live/whip/w", &[SDP], Some(&offer));
    assert!(!published.head.contains("ext:core:layer"), "{}", published.head);
    assert_eq!(server.api().delete(&format!("/live/whep/{location}")).status, 200);
    assert_eq!(choose(&path, "{}"), 404);
}

#[test]
fn a_token_comes_in_its_header() {
    let server = Server::start(&["app.publishTokenControlEnabled=true"]);
    let offer = offer(Codec::H264, Direction::SendOnly);
    let post = |fields: &[(&str, &str)]| {
        let all: Vec<_> = std::iter::once(SDP).chain(fields.iter().copied()).collect();
        server.api().call_with("POST", "/live/whip/t", &all, Some(&offer))
    };
    let refused = post(&[]);
    assert_eq!((refused.status, refused.body.as_str()), (403, "Invalid Token for streamId:t"));
    let expires = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 600;
    let made =
        server.api().get(&format!("/live/rest/v2/broadcasts/t/token?expireDate={expires}&type=publish"));
    let token = made.json()["tokenId"].as_str().unwrap().to_owned();
    assert_eq!(post(&[("Authorization", "Bearer wrong")]).status, 403);
    assert_eq!(post(&[("Authorization", &format!("bearer {token}"))]).status, 201);
}

#[test]
fn pages_of_other_origins_may_publish_and_read_where() {
    let server = Server::start(&[]);
    let origin = ("Origin", "https://page.example");
    let asked = [
        origin,
        ("Access-Control-Request-Method", "PATCH"),
        ("Access-Control-Request-Headers", "content-type,if-match,authorization"),
    ];
    let preflight = server.api().call_with("OPTIONS", "/live/whip/a/0-00", &asked, None);
    assert_eq!(preflight.status, 200, "{}", preflight.head);
    assert!(header(&preflight, "Access-Control-Allow-Methods").contains("PATCH"), "{}", preflight.head);
    assert!(header(&preflight, "Access-Control-Allow-Headers").to_lowercase().contains("if-match"));
    let reply = server.api().call_with(
        "POST",
        "/live/whip/a",
        &[SDP, origin],
        Some(&offer(Codec::H264, Direction::SendOnly)),
    );
    assert_eq!((reply.status, header(&reply, "Access-Control-Allow-Origin")), (201, "*".to_owned()));
    for field in ["Location", "ETag", "Link"] {
        assert!(header(&reply, "Access-Control-Expose-Headers").contains(field), "{}", reply.head);
    }
}

#[test]
fn who_was_let_in_is_told_of_servers_that_help_and_others_of_those_without_a_password() {
    let server = Server::start(&[]);
    let offer = offer(Codec::H264, Direction::SendOnly);
    let link = |reply: &crate::support::Reply| header(reply, "Link");
    let stun = "<stun:stun1.l.google.com:19302>; rel=\"ice-server\"";
    assert_eq!(link(&server.api().call_with("POST", "/live/whip/a", &[SDP], Some(&offer))), stun);
    for path in ["/live/whip/a", "/live/whep/a"] {
        let options = server.api().call("OPTIONS", path, None);
        assert_eq!((options.status, link(&options).as_str()), (200, stun), "{}", options.head);
        assert_eq!(header(&options, "Accept-Post"), "application/sdp");
        assert!(header(&options, "Allow").contains("POST"), "{}", options.head);
        let fields = [("Origin", "https://page.example"), ("Access-Control-Request-Method", "POST")];
        let preflight = server.api().call_with("OPTIONS", path, &fields, None);
        assert_eq!((preflight.status, link(&preflight).as_str()), (200, ""));
    }
    let settings =
        ["app.stunServerURI=turn:t.example", "app.turnServerUsername=u", "app.turnServerCredential=p"];
    let server = Server::start(&settings);
    let turn = "<turn:t.example>; rel=\"ice-server\"; username=\"u\"; credential=\"p\"; credential-type=\"password\"";
    assert_eq!(link(&server.api().call_with("POST", "/live/whip/a", &[SDP], Some(&offer))), turn);
    assert_eq!(link(&server.api().call("OPTIONS", "/live/whip/a", None)), "");
}

#[test]
fn a_player_whose_offer_cannot_be_taken_is_offered_the_stream() {
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Publisher::start(server.rtmp, "live", "c");
    wait_for_stream(&server, "c");
    for body in [offer(Codec::Vp8, Direction::RecvOnly), String::new()] {
        let reply = server.api().call_with("POST", "/live/whep/c", &[SDP], Some(&body));
        assert_eq!(reply.status, 406, "{}", reply.body);
        let kind = header(&reply, "Content-Type");
        assert!(kind.starts_with("application/sdp; valid-until=\""), "{kind}");
        assert!(reply.body.contains("H264/90000") && reply.body.contains("a=sendonly"), "{}", reply.body);
        let mut player = RtcClient::play_countered(&server, &reply);
        player.run_until("pictures", secs(10), |player| player.frames >= 30);
        let patch =
            |body: &str| server.api().call_with("PATCH", &player.path_of_session(), &[SDP], Some(body));
        assert_eq!(patch(&reply.body).status, 409, "an answer behind the first one");
        assert_eq!(patch("nonsense").status, 400);
        assert_eq!(server.api().delete(&player.path_of_session()).status, 200);
    }
}

/// Checks that DELETE succeeds after the peer has ended its session, because browsers first close the connection and
/// then delete the session.
#[test]
fn a_session_that_its_peer_has_ended_is_deleted_once_more() {
    let server = Server::start(&["server.workers=2"]);
    let mut publisher = RtcClient::publish(&server, "g", Over::Udp);
    publisher.run_until("the stream", secs(10), |client| client.connected);
    let path = publisher.path_of_session();
    publisher.close();
    wait_for("the end", secs(5), || server.log().contains("the peer said goodbye"));
    let patch =
        server.api().call_with("PATCH", &path, &[FRAGMENT, ("If-Match", "*")], Some("a=ice-ufrag:EEEE\r\n"));
    assert_eq!(patch.status, 404, "it is over");
    assert_eq!(server.api().delete(&path).status, 200);
    assert_eq!(server.api().delete(&path).status, 404);
}

#[test]
fn viewers_of_a_stream_are_listed_with_what_they_are_sent() {
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Publisher::start(server.rtmp, "live", "v");
    wait_for_stream(&server, "v");
    let mut first = RtcClient::play(&server, "v", Over::Udp);
    let mut second = RtcClient::play(&server, "v", Over::Tcp);
    let list = |page: &str| {
        let path = format!("/live/rest/v2/broadcasts/v/webrtc-client-stats/{page}");
        server.api().get(&path).json().as_array().unwrap().clone()
    };
    assert_eq!(server.api().get("/live/rest/v2/broadcasts/none/webrtc-client-stats/0/10").body, "[]");
    let is_rated = |one: &Value| one["sendBitrate"].as_u64().unwrap() > 0;
    first.run_until("rates of both viewers", secs(20), |first| {
        second.step();
        // The list is only requested sometimes, because each request asks all workers.
        first.frames % 30 == 29 && second.frames > 30 && {
            let all = list("0/10");
            all.len() == 2 && all.iter().all(is_rated)
        }
    });
    let all = list("0/10");
    for one in &all {
        let members: Vec<&String> = one.as_object().unwrap().keys().collect();
        let wanted = [
            "measuredBitrate",
            "sendBitrate",
            "videoFrameSendPeriod",
            "audioFrameSendPeriod",
            "clientId",
            "videoPacketCount",
            "audioPacketCount",
            "videoSentStats",
            "audioSentStats",
            "clientInfo",
            "clientIp",
        ];
        assert_eq!(members, wanted);
        assert!(one["videoPacketCount"].as_u64().unwrap() >= 30, "{one}");
        let period = one["videoFrameSendPeriod"].as_f64().unwrap();
        assert!((10.0..100.0).contains(&period), "{one}");
        assert_eq!((&one["audioSentStats"], &one["clientIp"]), (&Value::Null, &"127.0.0.1".into()));
        let sent = &one["videoSentStats"];
        assert_eq!(sent["videoPacketsSent"], one["videoPacketCount"]);
        assert!(sent["videoBytesSent"].as_u64() > Some(1000) && sent["timeMs"].is_u64(), "{one}");
    }
    let ids = |list: &[Value]| list.iter().map(|one| one["clientId"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_ne!(all[0]["clientId"], all[1]["clientId"]);
    assert_eq!((ids(&list("0/1")), ids(&list("1/5"))), (ids(&all[..1]), ids(&all[1..])));
    assert_eq!((ids(&list("-3/50")).len(), ids(&list("2/50")).len(), ids(&list("0/0")).len()), (2, 0, 0));
    assert_eq!(server.api().get("/live/rest/v2/broadcasts/v/webrtc-client-stats/0/x").status, 404);
}
