//! Files below `webapps`: paths, links, ranges, slow readers (docs/robustness.md H-13, H-15, H-16, H-22).

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use socket2::{Domain, Socket, Type};

use crate::support::{Bystander, Home, Server, raw_exchange, secs, wait_for};

fn ask(address: SocketAddr, target: &str, fields: &str) -> (u16, String, Vec<u8>) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    let answer = raw_exchange(address, request.as_bytes());
    let end =
        answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| panic!("{target}: {answer:?}"));
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, head, answer[end + 4..].to_vec())
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    crypto::Seed::from_number(5).random().fill(&mut bytes);
    bytes
}

#[test]
fn files_that_are_not_here_are_looked_for_elsewhere() {
    let server = Server::start(&[
        "app.httpForwardingExtension=mp4,webm",
        "app.httpForwardingBaseURL=https://cdn.example/x/",
    ]);
    let streams = server.home().join("home/webapps/live/streams");
    fs::write(streams.join("here.mp4"), "here").unwrap();
    assert_eq!(ask(server.http, "/live/streams/here.mp4", "").2, b"here");
    let (status, head, _) = ask(server.http, "/live/streams/folder/gone.mp4?token=secret", "");
    assert_eq!(status, 302);
    assert!(head.contains("\r\nLocation: https://cdn.example/x/streams/folder/gone.mp4\r\n"), "{head}");
    assert_eq!(ask(server.http, "/live/streams/gone.txt", "").0, 404);
    assert_eq!(ask(server.http, "/live/gone.mp4", "").0, 404, "recordings alone");
    let server = Server::start(&[
        "app.httpForwardingExtension=mp4",
        "app.httpForwardingBaseURL=https://cdn.example",
        "app.playTokenControlEnabled=true",
    ]);
    assert_eq!(ask(server.http, "/live/streams/gone.mp4", "").0, 403, "who may not play is not told");
}

#[test]
fn files_go_before_pages_and_are_sent_whole_or_in_parts() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let app = server.home().join("home/webapps/live");
    assert!(
        ask(server.http, "/live/play.html", "").1.contains("Content-Security-Policy: default-src 'self'")
    );
    fs::write(app.join("play.html"), "ours").unwrap();
    assert_eq!(ask(server.http, "/live/play.html", "").2, b"ours");
    assert_eq!(ask(server.http, "/live", "").0, 302);
    assert!(ask(server.http, "/", "").1.starts_with("HTTP/1.1 200 OK"));
    let bytes = noise(1_000_000);
    fs::write(app.join("streams/a.mp4"), &bytes).unwrap();
    let (status, head, body) = ask(server.http, "/live/streams/a.mp4", "");
    assert!(status == 200 && body == bytes && head.contains("Content-Type: video/mp4\r\n"), "{head}");
    let (status, head, body) = ask(server.http, "/live/streams/a.mp4", "Range: bytes=70000-900000\r\n");
    assert!(status == 206 && body == bytes[70_000..=900_000], "{head}");
    assert!(head.contains("Content-Range: bytes 70000-900000/1000000\r\n"), "{head}");
    let etag = head.lines().find(|line| line.starts_with("ETag: ")).unwrap().replace("ETag", "If-None-Match");
    let (status, _, body) = ask(server.http, "/live/streams/a.mp4", &format!("{etag}\r\n"));
    assert_eq!((status, body.len()), (304, 0));
    // Sends two requests on one connection. The second answer begins after the last block of the first.
    let request = "GET /live/streams/a.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    let answers = raw_exchange(server.http, request.as_bytes());
    assert_eq!(answers.windows(12).filter(|w| w == b"HTTP/1.1 200").count(), 2);
    assert!(answers.ends_with(&bytes) && answers.len() > 2_000_000);
    bystander.finish(&mut server);
}

#[test]
fn pages_are_served_with_their_types_and_load_nothing_from_elsewhere() {
    let server = Server::start(&[]);
    let scripts = [
        "conference.js",
        "conference_room.js",
        "publish.js",
        "publisher.js",
        "sources.js",
        "test_pattern.js",
        "play.js",
        "play_webrtc.js",
        "play_flv.js",
        "play_hls.js",
        "play_dash.js",
        "play_vod.js",
        "play_media.js",
        "play_rounds.js",
        "play_events.js",
        "millstream-player.js",
        "hls.js",
        "dash.js",
        "mpegts.js",
        "whip.js",
        "figures.js",
    ];
    let scripts = scripts.map(|name| (format!("/live/{name}"), "text/javascript"));
    let others = [
        ("/live/?id=a&token=t", "text/html"),
        ("/live/play.html?id=a&playOrder=webrtc,flv", "text/html"),
        ("/live/conference.html?id=a", "text/html"),
        ("/live/conference.css", "text/css"),
        ("/live/page.css", "text/css"),
        ("/panel.css", "text/css"),
    ];
    for (target, kind) in others.map(|(target, kind)| (target.to_owned(), kind)).into_iter().chain(scripts) {
        let (status, head, body) = ask(server.http, &target, "");
        assert!(status == 200 && !body.is_empty(), "{target}: {head}");
        let content_type = format!("Content-Type: {kind};charset=utf-8\r\n");
        // The player is the only page that other sites may embed in a frame.
        let ancestors = if target.starts_with("/live/play.html") { "*" } else { "'none'" };
        let policy = format!(
            "Content-Security-Policy: default-src 'self'; media-src 'self' blob:; worker-src 'self' blob:; \
             object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors {ancestors}\r\n"
        );
        for field in [
            content_type.as_str(),
            policy.as_str(),
            "Referrer-Policy: no-referrer\r\n",
            "X-Content-Type-Options: nosniff\r\n",
            "Cache-Control: no-cache\r\n",
        ] {
            assert!(format!("{head}\r\n").contains(field), "{target}: {field} in {head}");
        }
    }
    // Browsers request `/favicon.ico` themselves. Our pages refer to the icon by a relative path, so that they find it
    // behind a proxy that maps the server to a folder.
    let (status, head, icon) = ask(server.http, "/favicon.ico", "");
    assert!(status == 200 && head.contains("Content-Type: image/svg+xml\r\n"), "{head}");
    assert!(icon.starts_with(b"<svg"));
    for page in ["/", "/reference.html", "/live/", "/live/play.html", "/live/conference.html"] {
        let text = String::from_utf8(ask(server.http, page, "").2).unwrap();
        let icon = if page.starts_with("/live/") { "../favicon.ico" } else { "favicon.ico" };
        assert!(text.contains(&format!(r#"<link rel="icon" href="{icon}">"#)), "{page}");
    }
    let (_, _, page) = ask(server.http, "/live/", "");
    assert!(
        String::from_utf8(page).unwrap().contains(r#"src="publish.js""#),
        "an application's page publishes"
    );
    assert_eq!(ask(server.http, "/publish.js", "").0, 404);
}

#[test]
fn h_13_no_range_gets_more_than_the_file() {
    let server = Server::start(&[]);
    let bytes = noise(100_000);
    fs::write(server.home().join("home/webapps/live/streams/a.mp4"), &bytes).unwrap();
    let many = format!("bytes={}", vec!["0-"; 1000].join(","));
    for (range, want) in [
        (many.as_str(), 200),
        ("bytes=0-99999,0-99999", 200),
        ("bytes=5-2", 200),
        ("bytes=99999999999999999999999-", 416),
        ("bytes=9223372036854775808-9223372036854775809", 416),
        ("bytes=-0", 416),
        ("bytes=-99999999999999999999", 206),
        ("bytes=0-99999999999999999999", 206),
    ] {
        let (status, head, body) = ask(server.http, "/live/streams/a.mp4", &format!("Range: {range}\r\n"));
        assert_eq!(status, want, "{head}");
        assert!(body.len() <= bytes.len(), "{} bytes", body.len());
        assert_eq!(status == 416, head.contains("Content-Range: bytes */100000"), "{head}");
    }
}

#[test]
fn h_15_no_spelling_of_a_path_leaves_the_web_root() {
    let home = Home::new();
    let trace = home.path().join("trace");
    let inner = home.path().join("home");
    let plain = Server::command(&inner, &[]);
    let mut command = Command::new("strace");
    // -D: the server is the direct child, so that it ends with the test. -Y: each line contains the name of its thread.
    command
        .args(["-D", "-f", "-Y", "-qq", "-e", "trace=openat,open,stat,newfstatat,statx,readlink", "-o"])
        .arg(&trace);
    command.arg(plain.get_program()).args(plain.get_args());
    let server = Server::spawn(&mut command);
    fs::write(inner.join("conf/secret"), "secret").unwrap();
    ask(server.http, "/live/streams/first", "");
    let before = fs::read_to_string(&trace).unwrap().len();
    for target in [
        "/../conf/secret",
        "/%2e%2e%2fconf/secret",
        "/..%2fconf/secret",
        "/%252e%252e/conf/secret",
        "/..%5cconf%5csecret",
        "//etc/passwd",
        "/etc/passwd",
        "/live/%00",
        "/%c0%ae%c0%ae/conf/secret",
        "/live/streams/../../conf/secret",
        "/live/streams/../../../conf/secret",
        "/live/x.m3u8/../../../conf/secret",
        "/live/x.m3u8/..",
        "/live/;/../conf",
        "/live/streams/x;a=b",
        "/live/WEB-INF/red5-web.properties",
        "/live/web-inf/red5-web.properties",
        "/live/./WEB-INF/red5-web.properties",
        "/WEB-INF/x",
        "/root/../live/WEB-INF/red5-web.properties",
        "/live/.hidden",
        "http://h/../conf/secret",
    ] {
        let (status, _, body) = ask(server.http, target, "");
        assert!([400, 404].contains(&status), "{target}: {status}");
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(!text.contains("root:") && text != "secret", "{target}: {text}");
    }
    let trace = fs::read_to_string(&trace).unwrap();
    // These threads handle no requests: statistics of the machine, certificates, and the recovery of recordings and
    // DVR after a crash.
    let of_no_request = ["<host>", "<certificates>", "<recording-", "<file-sync-"];
    // Skips the line that was being written when the requests began.
    let disk: Vec<&str> = trace[before..]
        .lines()
        .skip(1)
        .filter(|line| line.contains("open") || line.contains("stat"))
        .filter(|line| !of_no_request.iter().any(|thread| line.contains(thread)))
        .collect();
    assert!(disk.iter().any(|line| line.contains("webapps")), "the oracle sees nothing: {disk:#?}");
    for line in disk {
        // Below `webapps`, paths are opened name by name, each relative to its parent folder.
        let named = line.split('"').nth(1).unwrap_or_default();
        assert!((named.ends_with("/webapps") || !named.contains('/')) && named != "..", "{line}");
    }
}

#[test]
fn h_16_neither_a_prefix_nor_a_link_leads_out() {
    let server = Server::start(&[]);
    let webapps = server.home().join("home/webapps");
    for folder in ["live_secret", "root_secret"] {
        fs::create_dir_all(webapps.join(folder)).unwrap();
        fs::write(webapps.join(folder).join("x.txt"), "secret").unwrap();
    }
    fs::write(server.home().join("outside.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(server.home().join("outside.txt"), webapps.join("live/link.txt")).unwrap();
    std::os::unix::fs::symlink(server.home(), webapps.join("live/streams/out")).unwrap();
    std::os::unix::fs::symlink("/", webapps.join("live/slash")).unwrap();
    for target in [
        "/live_secret/x.txt",
        "/root_secret/x.txt",
        "/_secret/x.txt",
        "/live/link.txt",
        "/live/streams/out/outside.txt",
        "/live/slash/etc/passwd",
    ] {
        assert_eq!(ask(server.http, target, "").0, 404, "{target}");
    }
    assert_eq!(ask(server.http, "/live/streams/", "").0, 403);
    assert_eq!(ask(server.http, "/live/streams", "").0, 403);
}

#[test]
fn h_22_a_reader_that_stops_is_given_up_and_holds_little() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    fs::write(server.home().join("home/webapps/live/streams/big.ts"), noise(10_000_000)).unwrap();
    let files = server.open_files();
    let rss = server.rss_kb();
    let mut readers: Vec<TcpStream> = (0..50)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(1).unwrap();
            socket.connect(&server.http.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.write_all(b"GET /live/streams/big.ts HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    wait_for("the files to be open", secs(10), || server.open_files() >= files + 100);
    let began = Instant::now();
    assert!(server.rss_kb() < rss + 50 * 1024, "1 MiB each: {} after {rss}", server.rss_kb());
    // When a reader disconnects, its file is closed.
    drop(readers.pop());
    wait_for("a file to be closed", secs(5), || server.open_files() <= files + 98);
    wait_for("the others to be given up", secs(60), || server.open_files() <= files);
    assert!(began.elapsed() > secs(25), "too early: {:?}", began.elapsed());
    let mut rest = Vec::new();
    let _ = readers[0].read_to_end(&mut rest);
    assert!(rest.len() < 10_000_000);
    drop(readers);
    bystander.finish(&mut server);
}

#[test]
fn cross_origin_requests_are_answered_before_the_filters() {
    let server =
        Server::start(&["app.remoteAllowedCIDR=10.0.0.0/8", "server.cors_origins=https://panel.example"]);
    let call = |method: &str, path: &str, fields: &str| {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
        String::from_utf8(raw_exchange(server.http, request.as_bytes())).unwrap()
    };
    let preflight = "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n";
    // Without credentials, access depends only on the client's address, and a page has the address of its visitor. So
    // that foreign pages cannot change anything on a visitor's behalf, only pages of the origins in the settings may
    // write. Pages of any origin may read.
    let named = preflight.replace("a.example", "panel.example");
    for (asked, status) in [(preflight, 403), (&preflight.replace("PUT", "GET"), 200), (&named, 200)] {
        let answer = call("OPTIONS", "/live/rest/v2/broadcasts/x", asked);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{asked}{answer}");
        assert_eq!(answer.contains("Access-Control-Max-Age: 1800\r\n"), status == 200, "{answer}");
    }
    // The address filter refuses the request itself, but the page may read this answer.
    let answer = call("GET", "/live/rest/v2/version", "Origin: https://a.example\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("Access-Control-Allow-Origin: *\r\n"),
        "{answer}"
    );
    let answer = call("GET", "/live/streams/x.ts", "Origin: no origin\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // R-35: the management API is only for the origins in the settings.
    let answer = call("OPTIONS", "/rest/v2/version", preflight);
    assert!(!answer.contains("Access-Control"), "{answer}");
    let answer = call("OPTIONS", "/rest/v2/version", &named);
    assert!(answer.contains("Access-Control-Allow-Origin: https://panel.example\r\n"), "{answer}");
    assert!(answer.contains("Access-Control-Allow-Credentials: true\r\n"), "{answer}");
}
