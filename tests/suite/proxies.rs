//! The server behind real proxies: nginx, which terminates TLS and maps the server to a folder, and HAProxy with the
//! PROXY protocol.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use sdp::Direction;
use url::Url;

use crate::support::{
    Home, Player, Program, Publisher, Server, h264_section, media_file, ms, own_port, raw_exchange, rtc_peer,
    run, secs, wait_for,
};

/// A proxy that runs until it is dropped.
struct Proxy {
    _program: Program,
    home: Home,
}

impl Proxy {
    fn start(program: &str, args: &[&str], config: &str, answers: SocketAddr) -> Self {
        let home = Home::new();
        let file = home.path().join("proxy.conf");
        fs::write(&file, config.replace("FOLDER", home.path().to_str().unwrap())).unwrap();
        let mut command = Command::new(program);
        command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
        let program = Program::start(command.args(args).arg(&file));
        wait_for("the proxy", secs(10), || TcpStream::connect(answers).is_ok());
        Self { _program: program, home }
    }

    /// Starts nginx in front of the HTTP port: with TLS under the path `/h`, and without TLS as in nginx's manual.
    fn nginx(server: &Server, tls: SocketAddr, plain: SocketAddr) -> Self {
        let conf = server.home().join("home/conf");
        let (conf, http) = (conf.display(), server.http);
        let config = format!(
            "daemon off; master_process off; user root; pid FOLDER/pid; error_log FOLDER/error.log; events {{}}
             http {{ access_log off; client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p;
             fastcgi_temp_path FOLDER/f; uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s;
             server {{ listen {tls} ssl; ssl_certificate {conf}/fullchain.pem; ssl_certificate_key {conf}/privkey.pem;
             location /h/ {{ proxy_pass http://{http}/; proxy_set_header X-Forwarded-For $remote_addr;
             proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $http_host;
             proxy_set_header X-Forwarded-Prefix /h; }} }}
             server {{ listen {plain}; location / {{ proxy_pass http://{http}; }} }} }}"
        );
        Self::start("nginx", &["-e", "stderr", "-c"], &config, tls)
    }

    /// Starts HAProxy in front of the ports of HTTP, HTTPS and RTMP.
    fn haproxy(server: &Server, [http, https, rtmp]: [SocketAddr; 3]) -> Self {
        let mut config =
            "defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n".to_owned();
        let rows = [
            (http, server.http, "send-proxy"),
            (https, server.https.unwrap(), "send-proxy-v2"),
            (rtmp, server.rtmp, "send-proxy-v2"),
        ];
        for (at, to, how) in rows {
            config += &format!("listen l{}\n bind {at}\n server s {to} {how}\n", at.port());
        }
        Self::start("haproxy", &["-db", "-f"], &config, http)
    }
}

/// Runs curl. Returns the status, head and body of the answer.
fn curl(args: &[&str]) -> (u16, String, String) {
    let (_, out, err) = run(Command::new("curl").args(["-ski", "--max-time", "20"]).args(args));
    let (head, body) = out.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{args:?}: {out} {err}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
}

fn field<'h>(head: &'h str, name: &str) -> &'h str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or_default()
}

#[test]
fn sessions_and_the_panel_work_in_a_folder_behind_nginx_that_ends_tls() {
    let server =
        Server::start(&["server.trusted_proxies=127.0.0.1", "server.allowed_dashboard_CIDR=0.0.0.0/0"]);
    let (tls, plain) = (own_port("127.0.0.1"), own_port("127.0.0.1"));
    let nginx = Proxy::nginx(&server, tls, plain);
    let base = format!("https://{tls}/h");
    let sdp = nginx.home.path().join("offer");
    fs::write(&sdp, rtc_peer().offer(&h264_section(Direction::SendOnly)).unwrap().write()).unwrap();
    let body = format!("@{}", sdp.display());
    for (tail, agent) in
        [("u1", "x"), ("u2/", "x"), ("u3?a=b/c", "x"), ("u4", "Mozilla/5.0 (OBS-Studio/30.2.0)")]
    {
        let endpoint = format!("{base}/live/whip/{tail}");
        let kind = "Content-Type: application/sdp";
        let (status, head, text) = curl(&["-A", agent, "-H", kind, "--data-binary", &body, &endpoint]);
        assert_eq!(status, 201, "{text}");
        let session = Url::parse(&endpoint).unwrap().join(field(&head, "location")).unwrap();
        let name = tail.split(['?', '/']).next().unwrap();
        assert!(session.path().starts_with(&format!("/h/live/whip/{name}/")), "{session}");
        assert_eq!(curl(&["-X", "DELETE", session.as_str()]).0, 200, "{session}");
    }
    let (status, head, _) = curl(&[&format!("{base}/live?id=x")]);
    assert_eq!((status, field(&head, "location")), (302, "live/?id=x"));

    // The panel works through the proxy: its page, the files that the page loads, a login, and a change with the
    // cookie.
    let (status, _, page) = curl(&[&format!("{base}/")]);
    assert_eq!(status, 200);
    let files: Vec<&str> =
        page.split('"').filter(|text| text.ends_with(".js") || text.ends_with(".css")).collect();
    assert!(files.len() > 5, "{page}");
    for file in files {
        let url = Url::parse(&format!("{base}/")).unwrap().join(file).unwrap();
        assert_eq!(curl(&[url.as_str()]).0, 200, "{url}");
    }
    let login = r#"{"email":"me@example.org","password":"5ebe2294ecd0e0f08eab7690d2a6ee69"}"#;
    assert_eq!(server.api().post("/rest/v2/users/initial", login).json()["success"], true);
    let json = ["-H", "Content-Type: application/json"];
    let origin = format!("Origin: https://{tls}");
    let (status, head, _) = curl(
        &[&json[..], &["-H", &origin, "-d", login, &format!("{base}/rest/v2/users/authenticate")]].concat(),
    );
    let cookie = field(&head, "set-cookie").to_owned();
    assert!(status == 200 && cookie.ends_with("; Secure"), "{head}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let write = format!("{base}/rest/v2/request?_path=live/rest/v2/broadcasts/create");
    for (origin, site, want) in [
        (origin.as_str(), "", 200),
        ("Origin: https://evil.example", "", 403),
        (&origin, "Sec-Fetch-Site: same-origin", 200),
        (&origin, "Sec-Fetch-Site: same-site", 403),
    ] {
        let args = [&json[..], &["-H", origin, "-H", site, "-H", &cookie, "-d", "{}", &write]].concat();
        assert_eq!(curl(&args).0, want, "{origin} {site}");
    }
}

#[test]
fn a_viewer_behind_nginx_is_one_viewer_and_a_limit_of_one_admits_it() {
    let settings = ["server.workers=4", "server.trusted_proxies=127.0.0.1", "app.hlsTime=1"];
    for more in [&[][..], &["app.hls.identifyViewers=cookie"]] {
        let server = Server::start(&[&settings[..], more].concat());
        let (tls, plain) = (own_port("127.0.0.1"), own_port("127.0.0.1"));
        let nginx = Proxy::nginx(&server, tls, plain);
        let record = r#"{"streamId":"a","hlsViewerLimit":1}"#;
        server.api().post("/live/rest/v2/broadcasts/create", record);
        let _publisher = Program::ffmpeg_publish(&media_file(true, 60), &server.rtmp_url("live/a"));
        wait_for("the stream", secs(20), || {
            server.api().broadcast("live", "a").is_some_and(|record| record["status"] == "broadcasting")
        });
        let (playlist, jar) = (format!("http://{plain}/live/streams/a.m3u8"), nginx.home.path().join("jar"));
        let jar = jar.to_str().unwrap();
        for _ in 0..12 {
            // nginx opens a new connection for each request, so another worker may get it.
            assert_eq!(curl(&["-A", "player", "-b", jar, "-c", jar, &playlist]).0, 200);
        }
        let count = || server.api().broadcast("live", "a").unwrap()["hlsViewerCount"].as_u64().unwrap();
        wait_for("the viewer", secs(5), || count() > 0);
        for _ in 0..20 {
            assert_eq!(curl(&["-A", "player", "-b", jar, "-c", jar, &playlist]).0, 200);
            assert_eq!(count(), 1, "{more:?}");
        }
        let another = curl(&["-A", "another", &playlist]);
        assert_eq!(another.0, 403, "{}", another.1);
    }
}

#[test]
fn r_20_haproxy_says_whom_it_connects_for_and_the_address_counts() {
    let settings =
        ["server.trusted_proxies=127.0.0.1", "server.proxy_protocol=all", "app.remoteAllowedCIDR=127.0.0.3"];
    let server = Server::start(&settings);
    let at = [own_port("127.0.0.1"), own_port("127.0.0.1"), own_port("127.0.0.1")];
    let _haproxy = Proxy::haproxy(&server, at);
    for (scheme, at) in [("http", at[0]), ("https", at[1])] {
        let url = format!("{scheme}://{at}/live/rest/v2/version");
        assert_eq!(curl(&["--interface", "127.0.0.3", &url]).0, 200, "{url}");
        assert_eq!(curl(&["--interface", "127.0.0.4", &url]).0, 403, "{url}");
    }
    let _publisher = Publisher::start(at[2], "live", "s");
    let player = Player::start(at[2], "live", "s");
    wait_for("video through the proxy", secs(20), || player.units() > 50);
}

#[test]
fn r_20_what_does_not_begin_with_a_header_of_a_trusted_proxy_is_closed() {
    const GET: &[u8] = b"GET /live/rest/v2/version HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    const HEADER: &[u8] = b"PROXY TCP4 127.0.0.3 127.0.0.1 4000 80\r\n";
    let settings = ["server.proxy_protocol=http,rtmp", "app.remoteAllowedCIDR=127.0.0.3"];
    let server = Server::start(&[&settings[..], &["server.trusted_proxies=127.0.0.1"]].concat());
    for (sent, answer) in [
        ([HEADER, GET].concat(), &b"HTTP/1.1 200"[..]),
        (GET.to_vec(), b""),
        (b"PROXY TCP4 127.0.0.3\r\n".to_vec(), b""),
        (HEADER[..20].to_vec(), b""),
    ] {
        let got = raw_exchange(server.http, &sent);
        assert!(
            got.starts_with(answer) && got.is_empty() == answer.is_empty(),
            "{}",
            String::from_utf8_lossy(&got)
        );
    }
    assert!(raw_exchange(server.rtmp, &[3; 1537]).is_empty());
    // Sends the PROXY header byte by byte, and then a request on the same connection.
    let mut slow = TcpStream::connect(server.http).unwrap();
    slow.set_nodelay(true).unwrap();
    for byte in HEADER {
        slow.write_all(&[*byte]).unwrap();
    }
    slow.write_all(GET).unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    // The RTSP listener expects no PROXY header, because the setting does not list it.
    assert!(
        raw_exchange(server.rtsp.unwrap(), b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n")
            .starts_with(b"RTSP/1.0 200")
    );
    wait_for("the line of the log", secs(5), || server.log().contains("connection refused: no PROXY header"));

    let stranger = Server::start(&[&settings[..], &["server.trusted_proxies=127.0.0.9"]].concat());
    assert!(raw_exchange(stranger.http, &[HEADER, GET].concat()).is_empty());
    wait_for("the reason", ms(5000), || stranger.log().contains("server.trusted_proxies"));
}
