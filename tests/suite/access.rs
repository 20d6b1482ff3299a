//! Access checks of an application, for publishing, playing and the API, over every protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream::auth::access::{Direction, Secret, hash_token};

use crate::publish_play::is_broadcasting;
use crate::support::{
    Knock, Manner, Program, Publisher, Receiver, RtmpPeer, Server, connect_from, media_file, raw_exchange,
    run, secs, wait_for,
};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NOT_PUBLISH: &str = "NetStream.Publish.BadName: You are not allowed to publish the stream.";
const NOT_PLAY: &str = "NetStream.Publish.BadName: You are not allowed to play the stream due to security.";

fn in_an_hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

fn token(server: &Server, row: &str, id: &str, kind: &str) -> String {
    let path = format!("/live/rest/v2/broadcasts/{id}/{row}?expireDate={}&type={kind}", in_an_hour());
    let reply = server.api().get(&path);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["tokenId"].as_str().unwrap().to_owned()
}

/// Requests a live stream. Returns the status as soon as it arrives, without waiting for the end of the stream, and the
/// connection.
fn flv_status(address: SocketAddr, path: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(secs(20))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page.example\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    (std::str::from_utf8(&head[9..]).unwrap().parse().unwrap(), stream)
}

#[test]
fn a_real_encoder_with_a_one_time_token_and_without() {
    let server = Server::start(&["app.publishTokenControlEnabled=true"]);
    let file = media_file(false, 2);
    let publish = |url: &str| {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
        run(command.args(["-c", "copy", "-f", "flv", url]).stdin(Stdio::null()))
    };
    let (status, _, said) = publish(&server.rtmp_url("live/s"));
    assert!(!status.success() && said.contains("You are not allowed to publish the stream."), "{said}");
    let token = token(&server, "token", "s", "publish");
    let encoder = Program::ffmpeg_publish(&file, &server.rtmp_url(&format!("live/s?token={token}")));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    // The token is used up: another publisher with it is refused, both while the stream is live and after its end.
    let (status, _, _) = publish(&server.rtmp_url(&format!("live/s?token={token}")));
    assert!(!status.success());
    drop(encoder);
    assert_eq!(
        RtmpPeer::publish(server.rtmp, "live", &format!("s?token={token}")).err().unwrap(),
        NOT_PUBLISH
    );
    // A token may also be a part of the path. R-42: neither token is in the log.
    let second = self::token(&server, "token", "s", "publish");
    server.api().post("/live/rest/v2/broadcasts/s/stop", "");
    drop(RtmpPeer::publish(server.rtmp, "live", &format!("s/{second}")).unwrap());
    let log = server.log_with("publisher refused");
    assert!(!log.contains(&token) && !log.contains(&second), "{log}");
}

#[test]
fn a_publish_key_over_rtmp_and_srt() {
    let server = Server::start(&["app.publishKeyRequired=true"]);
    let srt = server.srt.unwrap();
    let key = |id: &str| {
        let body = format!(r#"{{"streamId":"{id}"}}"#);
        let made = server.api().post("/live/rest/v2/broadcasts/create", &body).json();
        made["publishKey"].as_str().unwrap().to_owned()
    };
    let [rtmp_key, plain_key, standard_key] = ["r", "p", "q"].map(key);
    for name in ["r", "r?key=wrong", &format!("r?key={plain_key}")] {
        assert_eq!(RtmpPeer::publish(server.rtmp, "live", name).err().unwrap(), NOT_PUBLISH, "{name}");
    }
    drop(RtmpPeer::publish(server.rtmp, "live", &format!("r?key={rtmp_key}")).unwrap());
    for id in ["live/p", "live/p,key=wrong", "#!::r=live/q,m=publish", "#!::r=live/q,m=publish,key=x"] {
        assert_eq!(Knock::new(id).connect(srt), Err(1401), "{id}");
    }
    for id in [format!("live/p,key={plain_key}"), format!("#!::r=live/q,m=publish,key={standard_key}")] {
        assert_eq!(Knock::new(&id).connect(srt), Ok(()), "{id}");
    }
    // R-42: the keys are not in the log.
    let log = server.log_with("the publish key is missing or wrong");
    assert!([&rtmp_key, &plain_key, &standard_key].iter().all(|key| !log.contains(*key)), "{log}");
}

#[test]
fn a_play_token_is_good_once_whatever_the_protocol() {
    let server = Server::start(&["app.playTokenControlEnabled=true", "server.workers=2"]);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    assert_eq!(RtmpPeer::play(server.rtmp, "live", "s").err().unwrap(), NOT_PLAY);
    let refused = server.api().get("/live/s.flv?token=wrong");
    assert!(refused.status == 403 && refused.body.contains("Invalid Token for streamId:s"), "{refused:?}");
    let upgrade = "GET /live/s.flv HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let answer = String::from_utf8_lossy(&raw_exchange(server.http, upgrade.as_bytes())).into_owned();
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let first = token(&server, "token", "s", "play");
    drop(RtmpPeer::play(server.rtmp, "live", &format!("s?token={first}")).unwrap());
    assert_eq!(RtmpPeer::play(server.rtmp, "live", &format!("s?token={first}")).err().unwrap(), NOT_PLAY);
    assert_eq!(flv_status(server.http, &format!("/live/s.flv?token={first}")).0, 403);
    let second = token(&server, "token", "s", "play");
    let statuses: Vec<_> = (0..8)
        .map(|_| {
            let (address, path) = (server.http, format!("/live/s.flv?token={second}"));
            std::thread::spawn(move || flv_status(address, &path).0)
        })
        .collect();
    let statuses: Vec<u16> = statuses.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    // A request without a token gets 403 whether the stream is live or not. With a valid token, a stream that is not
    // live gets 404.
    assert_eq!(flv_status(server.http, "/live/none.flv").0, 403);
    let other = token(&server, "token", "none", "play");
    assert_eq!(flv_status(server.http, &format!("/live/none.flv?token={other}")).0, 404);
    publisher.stop();
}

#[test]
fn signed_tokens_hashes_and_time_codes() {
    let server = Server::start(&[
        "app.publishJwtControlEnabled=true",
        &format!("app.jwtStreamSecretKey={SECRET}"),
        "app.hashControlPlayEnabled=true",
        "app.tokenHashSecret=pepper",
        "app.enableTimeTokenForPlay=true",
        "app.timeTokenSecretForPlay=salt",
    ]);
    assert_eq!(RtmpPeer::publish(server.rtmp, "live", "s").err().unwrap(), NOT_PUBLISH);
    let for_play = token(&server, "jwt-token", "s", "play");
    assert_eq!(
        RtmpPeer::publish(server.rtmp, "live", &format!("s?token={for_play}")).err().unwrap(),
        NOT_PUBLISH
    );
    let jwt = token(&server, "jwt-token", "s", "publish");
    let publisher = Publisher::start(server.rtmp, "live", &format!("s?token={jwt}"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    let code = server.api().get("/live/rest/v2/broadcasts/s/subscribers/alice/totp?type=play").json();
    let code = code["dataId"].as_str().unwrap();
    let hash = hash_token("s", Direction::Play, &Secret::new("pepper"));
    let page = |query: String| server.api().get(&format!("/live/s.flv?{query}"));
    let who = format!("subscriberId=alice&subscriberCode={code}");
    let refused = page(format!("token={hash}"));
    assert!(refused.status == 403 && refused.body.contains("Time Based subscriber id or code is invalid"));
    let refused = page(who.clone());
    assert!(refused.status == 403 && refused.body.contains("Invalid Hash"), "{refused:?}");
    assert_eq!(flv_status(server.http, &format!("/live/s.flv?{who}&token={hash}")).0, 200);
    drop(RtmpPeer::play(server.rtmp, "live", &format!("s/{hash}/alice/{code}")).unwrap());
    publisher.stop();
}

/// A key set with one P-256 key. `OF_KEY_SET` is a token that OpenSSL signed with this key: it lets a viewer play `s1`
/// until 2100.
const KEY_SET: &str = r#"{"keys": [{"kty": "EC", "kid": "e1", "crv": "P-256", "alg": "ES256", "x": "ibwvqf-7pgD83IE2kEBabiJuM85jRa5wx_AQhaBao70", "y": "XkDn0HRAA26Vnw-Cb5kZSGswgX9PDncy7YPKAvhmK6Q"}]}"#;
const OF_KEY_SET: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImUxIn0.eyJzdWIiOiJzMSIsInN0cmVhbUlkIjoiczEiLCJ0eXBlIjoicGxheSIsImV4cCI6NDEwMjQ0NDgwMH0.4dYHb_TmG1KOrthw_rOjlXx5oNidpOxm3DhKc9q3x_WI8cPybs7E90hhDpJAo2FPDNKmcQI-4gvz9dH7a_joRw";

#[test]
fn r_06_tokens_of_a_key_set_are_good_once_it_was_fetched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let server = Server::start(&[
        "app.playJwtControlEnabled=true",
        "app.jwtControlEnabled=true",
        &format!("app.jwksURL={url}"),
    ]);
    let version = || {
        let field = format!("Authorization: Bearer {OF_KEY_SET}");
        let request = format!(
            "GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{field}\r\n\r\n"
        );
        let answer = raw_exchange(server.http, request.as_bytes());
        String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().to_owned()
    };
    let page = |token: &str| server.api().get(&format!("/live/streams/s1.mp4?token={token}")).status;
    // The server has not received the key set yet, so it refuses the token.
    assert_eq!((version().as_str(), page(OF_KEY_SET)), ("403", 403));
    let (stream, _) = listener.accept().unwrap();
    let mut head = [0; 4096];
    let length = (&stream).read(&mut head).unwrap();
    assert!(head[..length].starts_with(b"GET /keys HTTP/1.1\r\n"));
    write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{KEY_SET}", KEY_SET.len()).unwrap();
    wait_for("the set", secs(20), || version() == "200");
    // The valid token is accepted, but there is no such file. The other token is refused.
    assert_eq!((page(OF_KEY_SET), page("x.y.z")), (404, 403));
}

#[test]
fn blocked_subscribers_go_and_stay_out() {
    let server = Server::start(&[]);
    let mut encoder = RtmpPeer::publish(server.rtmp, "live", "s?subscriberId=camera").unwrap();
    encoder.send_configs().unwrap();
    let mut viewer = RtmpPeer::play(server.rtmp, "live", "s?subscriberId=alice").unwrap();
    let (status, mut flv) = flv_status(server.http, "/live/s.flv?subscriberId=alice");
    assert_eq!(status, 200);
    let (_, mut other) = flv_status(server.http, "/live/s.flv?subscriberId=bobby");
    let block = |id: &str, kind: &str| {
        let path = format!("/live/rest/v2/broadcasts/s/subscribers/{id}/block/3600/{kind}");
        assert_eq!(server.api().call("PUT", &path, None).json()["success"], true);
    };
    block("alice", "play");
    wait_for("the viewer to be closed", secs(10), || viewer.next_event().is_err());
    let mut rest = Vec::new();
    flv.read_to_end(&mut rest).unwrap();
    assert_eq!(
        RtmpPeer::play(server.rtmp, "live", "s?subscriberId=alice").err().unwrap(),
        "NetStream.Failed: Subscriber alice is blocked to play stream."
    );
    let refused = server.api().get("/live/s.flv?subscriberId=alice");
    assert!(refused.status == 403 && refused.body.contains("Subscriber alice is blocked"), "{refused:?}");
    block("camera", "publish_play");
    wait_for("the publisher to be closed", secs(10), || encoder.next_event().is_err());
    other.read_to_end(&mut rest).unwrap();
    assert_eq!(
        RtmpPeer::publish(server.rtmp, "live", "s?subscriberId=camera").err().unwrap(),
        "NetStream.Failed: Subscriber camera is blocked to publish stream."
    );
}

#[test]
fn receivers_decide_about_publishers_and_viewers() {
    let receiver = Receiver::start(Manner::Status(403));
    let server = Server::start(&[
        &format!("app.webhookAuthenticateURL={}", receiver.url("publish")),
        &format!("app.webhookPlayAuthUrl={}", receiver.url("play")),
        "app.publishTokenControlEnabled=true",
    ]);
    let token = token(&server, "token", "s", "publish");
    let name = format!("s?token={token}");
    // If the receiver refuses a publisher, its token is not used up. A publisher with an invalid token is refused
    // without asking the receiver.
    assert_eq!(RtmpPeer::publish(server.rtmp, "live", &name).err().unwrap(), NOT_PUBLISH);
    assert_eq!(RtmpPeer::publish(server.rtmp, "live", "s?token=x").err().unwrap(), NOT_PUBLISH);
    assert_eq!(receiver.told("publish").len(), 1);
    receiver.behave(Manner::Redirect);
    assert_eq!(RtmpPeer::publish(server.rtmp, "live", &name).err().unwrap(), NOT_PUBLISH);
    assert!(receiver.told("elsewhere").is_empty(), "U-33");
    receiver.behave(Manner::Status(200));
    let publisher = Publisher::start(server.rtmp, "live", &name);
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    let told = receiver.told("publish").pop().unwrap();
    assert_eq!(
        (told["appName"].as_str(), told["streamId"].as_str(), told["token"].as_str(), told["mode"].as_str()),
        (Some("live"), Some("s"), Some(token.as_str()), Some("live"))
    );
    assert_eq!(flv_status(server.http, "/live/s.flv?x=1").0, 200);
    let told = receiver.told("play").pop().unwrap();
    assert_eq!(
        (told["origin"].as_str(), told["ipAddress"].as_str(), told["mode"].as_str()),
        (Some("http://page.example"), Some("127.0.0.1"), Some("play"))
    );
    receiver.behave(Manner::Status(500));
    assert_eq!(flv_status(server.http, "/live/s.flv").0, 403);
    assert_eq!(RtmpPeer::play(server.rtmp, "live", "s").err().unwrap(), NOT_PLAY);
    publisher.stop();
}

#[test]
fn a_receiver_that_is_silent_or_gone_admits_nobody_and_stalls_nobody() {
    let receiver = Receiver::start(Manner::Silent);
    let server = Server::start(&[&format!("app.webhookAuthenticateURL={}", receiver.url("publish"))]);
    let address = server.rtmp;
    let waiting = std::thread::spawn(move || RtmpPeer::publish(address, "live", "s").err().unwrap());
    wait_for("the receiver to be asked", secs(10), || receiver.connections() > 0);
    // While the receiver is silent, the API still answers, and a publisher that disconnects is forgotten.
    let leaver = std::thread::spawn(move || {
        let file = media_file(false, 2);
        let encoder = Program::ffmpeg_publish(&file, &format!("rtmp://{address}/live/left"));
        std::thread::sleep(secs(1));
        drop(encoder);
    });
    assert_eq!(server.api().get("/live/rest/v2/version").status, 200);
    leaver.join().unwrap();
    assert_eq!(waiting.join().unwrap(), NOT_PUBLISH);
    assert!(server.api().broadcast("live", "left").is_none());
    // If no receiver can be reached at the address in the settings, publishers are refused.
    let server = Server::start(&["app.webhookAuthenticateURL=http://127.0.0.1:1/"]);
    assert_eq!(RtmpPeer::publish(server.rtmp, "live", "s").err().unwrap(), NOT_PUBLISH);
}

#[test]
fn r_06_settings_that_could_not_protect_are_refused() {
    for (settings, key) in [
        (&["app.jwtControlEnabled=true"][..], "jwtSecretKey"),
        (&["app.jwtControlEnabled=true", "app.jwtSecretKey=0123456789abcdef0123456789abcde"], "jwtSecretKey"),
        (&["app.playJwtControlEnabled=true", "app.jwtStreamSecretKey=canary"], "jwtStreamSecretKey"),
        (&["app.hashControlPublishEnabled=true"], "tokenHashSecret"),
        (&["app.webhookPlayAuthUrl=file:///etc/passwd"], "webhookPlayAuthUrl"),
    ] {
        let home = crate::support::Home::new();
        let (status, out, said) = run(&mut Server::command(&home.path().join("home"), settings));
        assert!(status.code() == Some(2) && out.is_empty(), "{settings:?} {status:?}");
        assert!(said.contains(key) && !said.contains("canary") && !said.contains("0123456789"), "{said}");
    }
}

/// Returns the answer to a request from 127.0.0.2.
fn from_outside(server: &Server, path: &str, fields: &str) -> String {
    let mut stream = connect_from("127.0.0.2", server.http);
    stream.set_read_timeout(Some(secs(10))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn r_20_no_header_of_an_untrusted_peer_makes_it_local() {
    let server = Server::start(&[]);
    let path = "/live/rest/v2/broadcasts/count";
    for name in ["X-Forwarded-For", "X-Real-IP", "True-Client-IP", "X-Client-IP", "CF-Connecting-IP"] {
        let answer = from_outside(&server, path, &format!("{name}: 127.0.0.1\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Not allowed IP"), "{name} {answer}");
    }
    assert!(from_outside(&server, path, "Forwarded: for=127.0.0.1\r\n").starts_with("HTTP/1.1 403 "));
    let server = Server::start(&["server.trusted_proxies=127.0.0.2"]);
    assert!(from_outside(&server, path, "X-Forwarded-For: 127.0.0.1\r\n").starts_with("HTTP/1.1 200 "));
    let chain = "X-Forwarded-For: 127.0.0.1, 198.51.100.1\r\n";
    assert!(from_outside(&server, path, chain).starts_with("HTTP/1.1 403 "), "the right-most counts");
}

#[test]
fn r_22_no_spelling_of_a_path_passes_the_filters() {
    let server = Server::start(&["app.jwtControlEnabled=true", &format!("app.jwtSecretKey={SECRET}")]);
    for path in [
        "/live/rest/v2/broadcasts/count",
        "/live/rest/v2/broadcasts/x;rest/v2/acm",
        "/live/rest/v2/broadcasts/count?a=rest/v2/acm",
        "/live//rest/v2/broadcasts/count",
        "/live/rest//v2/broadcasts/count",
        "/live/%72est/v2/broadcasts/count",
        "/live/rest/v2/acm/../broadcasts/count",
        "/live/rest",
        "/live/rest/v1/x",
    ] {
        let answer = from_outside(&server, path, "");
        let status = &answer[..12];
        assert!(!status.ends_with("200") && !answer.contains("number"), "{path} {answer}");
    }
    for path in [
        "/LIVE/rest/v2/broadcasts/count",
        "/live/REST/v2/broadcasts/count",
        "/live/rest%2fv2/broadcasts/count",
    ] {
        assert!(!from_outside(&server, path, "").contains("number"), "{path}");
    }
}

#[test]
fn the_policy_of_pages_is_that_of_the_application() {
    let policy = "default-src 'none'; frame-ancestors https://partner.example";
    let server = Server::start(&[&format!("app.contentSecurityPolicyHeaderValue={policy}")]);
    let api = server.api();
    for path in ["/live/play.html", "/live/rest/v2/version", "/live/none.flv", "/live/none.html"] {
        let head = api.get(path).head;
        let given: Vec<_> =
            head.lines().filter_map(|line| line.strip_prefix("Content-Security-Policy: ")).collect();
        assert_eq!(given, [policy], "{path} {head}");
    }
    assert!(!api.get("/").head.contains(policy), "the server's own pages keep theirs");
}

/// Returns the status of a request from an address of this machine.
fn status_from(server: &Server, from: &str, path: &str) -> u16 {
    let mut stream = connect_from(from, server.http);
    stream.set_read_timeout(Some(secs(20))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.get(9..12).unwrap().parse().unwrap()
}

#[test]
fn r_50_files_on_the_disk_are_asked_about_when_they_are_there() {
    let receiver = Receiver::start(Manner::Status(403));
    let server = Server::start(&[&format!("app.webhookPlayAuthUrl={}", receiver.url("play"))]);
    let streams = server.home().join("home/webapps/live/streams");
    std::fs::create_dir_all(&streams).unwrap();
    std::fs::write(streams.join("secret_1.mp4"), b"media").unwrap();
    let get = |path: &str| server.api().get(&format!("/live/streams/{path}")).status;
    assert_eq!((get("none.mp4"), receiver.told("play").len()), (404, 0), "nobody is asked about nothing");
    assert_eq!(get("secret_1.mp4"), 403);
    assert_eq!(receiver.told("play").pop().unwrap()["streamId"], "secret_1");
    receiver.behave(Manner::Status(200));
    assert_eq!(get("secret_1.mp4?token=a"), 200);
    assert_eq!(receiver.told("play").len(), 2);
}

#[test]
fn r_50_a_one_time_token_opens_what_is_on_the_disk_to_one_viewer() {
    let server = Server::start(&["app.playTokenControlEnabled=true", "limits.exempt_loopback=false"]);
    let streams = server.home().join("home/webapps/live/streams");
    std::fs::create_dir_all(&streams).unwrap();
    std::fs::write(streams.join("vip.m3u8"), b"#EXTM3U\nvip000000001.ts\n").unwrap();
    std::fs::write(streams.join("vip000000001.ts"), b"G").unwrap();
    std::fs::write(streams.join("vip.mp4"), b"media").unwrap();
    for (first, second) in [("vip.m3u8", "vip000000001.ts"), ("vip.mp4", "vip.mp4")] {
        let token = token(&server, "token", "vip", "play");
        let path = |name: &str| format!("/live/streams/{name}?token={token}");
        assert_eq!(status_from(&server, "127.0.0.20", &path("none.mp4")), 403, "a token of another");
        for name in [first, second, first] {
            assert_eq!(status_from(&server, "127.0.0.20", &path(name)), 200, "{name}");
        }
        assert_eq!(status_from(&server, "127.0.1.21", &path(first)), 403, "{first} of another viewer");
    }
    assert_eq!(server.api().get("/live/streams/vip.m3u8").status, 403);
}
