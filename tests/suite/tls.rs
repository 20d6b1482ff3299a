//! Tests TLS: what listeners accept and refuse, which certificates pushes trust, and changes of the certificate.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Socket, Type};

use crate::support::{
    Bystander, Home, Program, Publisher, Server, connect_from, frame_md5, media_file, ms, own_port, secs,
    wait_for,
};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

/// Creates a self-signed certificate for a name, valid until `last_year`. Returns certificate and key, as PEM and DER.
fn certificate(
    name: &str,
    last_year: i32,
) -> (String, String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (certificate.pem(), key.serialize_pem(), certificate.der().clone(), der)
}

/// Connects with `openssl s_client` and these arguments, and returns its output.
fn openssl(address: SocketAddr, arguments: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Connects as [`openssl`] does, and types this text while connected.
fn openssl_says(address: SocketAddr, arguments: &[&str], typed: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The client reads its input only after the handshake.
    std::thread::sleep(secs(1));
    let _ = child.stdin.as_mut().unwrap().write_all(typed.as_bytes());
    std::thread::sleep(secs(1));
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns a client's first record, which is a ClientHello.
fn client_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || openssl(to, &["-tls1_2", "-servername", "localhost"]));
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut body).unwrap();
    drop(stream);
    client.join().unwrap();
    [&head[..], &body].concat()
}

/// Removes all extensions from a ClientHello, which follow its compression methods, and corrects its lengths.
fn without_extensions(record: &[u8]) -> Vec<u8> {
    let mut hello = record[9..].to_vec();
    let session = 34 + 1 + usize::from(hello[34]);
    let suites = session + 2 + usize::from(u16::from_be_bytes([hello[session], hello[session + 1]]));
    hello.truncate(suites + 1 + usize::from(hello[suites]));
    let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
    let message = [&[1, length[1], length[2], length[3]][..], &hello].concat();
    let bytes = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&record[..3], &bytes, &message].concat()
}

/// Sends bytes, and returns everything that is received until the connection ends.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(secs(15))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn published_and_played_over_rtmps_everything_is_equal() {
    let file = media_file(true, 6);
    let server = Server::start(&["server.workers=2"]);
    let url = format!("rtmps://{}/live/s1", server.rtmps.unwrap());
    let _publisher = Program::ffmpeg_publish(&file, &url);
    wait_for("the stream", secs(20), || server.api().broadcast("live", "s1").is_some());
    let source = crate::support::source_packets(&file);
    let played = frame_md5(&url, Some(3));
    let hashes: std::collections::HashSet<_> = source.iter().map(|packet| &packet.4).collect();
    assert!(played.len() > 100 && played.iter().all(|packet| hashes.contains(&packet.4)), "{}", played.len());
}

#[test]
fn the_api_answers_over_https_with_tls_1_2_and_1_3_only() {
    let server = Server::start(&[]);
    let https = server.https.unwrap();
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = openssl(https, &[version, "-alpn", "h2,http/1.1"]);
        assert!(said.contains(name) && said.contains("ALPN protocol: h2"), "{said}");
        assert!(said.contains("AES_128_GCM") || said.contains("AES128-GCM"), "{said}");
    }
    for version in ["-tls1", "-tls1_1"] {
        let said = openssl(https, &[version, "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(said.contains("Cipher is (NONE)"), "{version}: {said}");
    }
    for suite in ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256", "NULL", "aNULL", "RC4", "3DES"] {
        let said = openssl(https, &["-tls1_2", "-cipher", &format!("{suite}:@SECLEVEL=0")]);
        assert!(said.contains("Cipher is (NONE)") || said.contains("no cipher match"), "{suite}: {said}");
    }
}

#[test]
fn h_25_what_is_no_tls_is_closed_and_the_stream_beside_it_loses_nothing() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let https = server.https.unwrap();
    for address in [https, server.rtmps.unwrap()] {
        // After plain HTTP, an SSL 2 hello or random bytes, the server closes the connection, with or without an alert.
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
            &[3; 1537],
        ] {
            let answer = exchange(address, bytes);
            assert!(answer.is_empty() || answer[0] == 0x15, "{answer:x?}");
        }
        // The handshake message has 70 000 bytes, in records of 16 KiB.
        let mut huge = vec![0x01, 0x01, 0x11, 0x70];
        huge.resize(70_004, 0);
        let records: Vec<u8> = huge
            .chunks(16_384)
            .flat_map(|c| [&[0x16, 3, 1][..], &u16::try_from(c.len()).unwrap().to_be_bytes(), c].concat())
            .collect();
        let answer = exchange(address, &records);
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:x?}");
        // The first record is close_notify, or a heartbeat.
        for record in [&[0x15, 3, 3, 0, 2, 1, 0][..], &[0x18, 3, 3, 0, 3, 1, 0x40, 0]] {
            let answer = exchange(address, record);
            assert!(answer.is_empty() || answer[0] == 0x15, "{answer:x?}");
        }
    }
    // Here the listener for plain HTTP gets TLS.
    let answer = exchange(server.http, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:x?}");
    // If a ClientHello is never complete, the timeout of the protocol over TLS ends the connection.
    let mut silent = TcpStream::connect(https).unwrap();
    silent.set_read_timeout(Some(secs(30))).unwrap();
    let _ = silent.write_all(&[0x16, 3, 1, 0x10, 0]);
    let mut goodbye = Vec::new();
    let _ = silent.read_to_end(&mut goodbye);
    assert!(goodbye.is_empty() || goodbye[0] == 0x15, "{goodbye:x?}");
    // Old versions are refused with an alert. Their ClientHellos are made by hand, because openssl no longer supports
    // them.
    for version in [0, 1, 2] {
        let mut hello = client_hello();
        // Sets the versions of the record and the ClientHello. Without extensions it contains no other version.
        hello[1..3].copy_from_slice(&[3, version]);
        hello[9..11].copy_from_slice(&[3, version]);
        let answer = exchange(https, &without_extensions(&hello));
        assert_eq!(answer.first(), Some(&0x15), "version 3.{version}: {answer:x?}");
    }
    // A ClientHello is also accepted in records of one byte each, or in TCP segments of one byte each.
    let hello = client_hello();
    let records: Vec<u8> = hello[5..].iter().flat_map(|byte| [0x16, 3, 1, 0, 1, *byte]).collect();
    for bytes in [&records[..], &hello] {
        let mut stream = TcpStream::connect(https).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(secs(15))).unwrap();
        bytes.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((answer[0], answer[5]), (0x16, 2), "a ServerHello");
    }
    // When openssl reads an R, it requests a renegotiation of TLS 1.2.
    let said = openssl_says(https, &["-tls1_2"], "R\n");
    assert!(said.contains("RENEGOTIATING") && !said.contains("verify return:1\nread R BLOCK"), "{said}");
    assert!(said.contains("no renegotiation") || said.contains("error:"), "{said}");
    // The workers are idle afterwards, except for the bystander's stream, which needs little CPU time. A worker that
    // spins needs the whole second.
    let busy = server.cpu();
    std::thread::sleep(secs(1));
    assert!(server.cpu() - busy < ms(900), "{:?} of a second", server.cpu() - busy);
    bystander.finish(&mut server);
}

#[test]
fn h_23_neither_silent_peers_nor_one_address_keep_others_from_their_handshake() {
    let server = Server::start(&[
        "limits.exempt_loopback=false",
        "limits.new_connections_per_second=1000000",
        "limits.new_connections_burst=1000000",
    ]);
    let https = server.https.unwrap();
    let served = || openssl(https, &["-tls1_3"]).contains("TLSv1.3");
    let refused = || server.api().metric("millstream_refused_connections_total", "\"handshakes\"");
    let mut crowd: Vec<_> = (0..600).map(|_| connect_from("127.0.5.1", https)).collect();
    assert!(served(), "a peer that says nothing has a handshake");
    assert_eq!(refused(), 0.0);
    // Each client sends the beginning of a ClientHello, and nothing more.
    for stream in &mut crowd {
        stream.write_all(&[0x16, 3, 1, 0x10, 0]).unwrap();
    }
    wait_for("the oldest of too many to give way", secs(20), || refused() >= 600.0 - 2.0 * 256.0);
    assert!(served(), "one address has all handshakes");
}

#[test]
fn an_alert_arrives_behind_what_waits_for_a_slow_peer() {
    let server = Server::start(&[]);
    let source = netsim::MediaSource::new(&crypto::Seed::from_number(3)).fps(10).sizes(300_000, 200);
    let _publisher = Publisher::start_from(server.rtmp, "live", "s1", source);
    let mut tls = server.tls_client();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.https.unwrap().into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(secs(15))).unwrap();
    tls.writer().write_all(b"GET /live/s1.flv HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut stream).unwrap();
    }
    stream.peek(&mut [0]).unwrap();
    // When the sockets' buffers are full, an invalid record must still end the connection.
    let mut sent = 0.0;
    wait_for("the server to be stuck", secs(20), || {
        std::thread::sleep(ms(300));
        let now = server.api().metric("millstream_sent_bytes_total", "\"http-flv\"");
        std::mem::replace(&mut sent, now) == now && now > 0.0
    });
    stream.write_all(&[&[0x17, 3, 3, 0, 32][..], &[0; 32]].concat()).unwrap();
    let end = loop {
        match tls.read_tls(&mut stream) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => panic!("cut off: {error}"),
        }
        if let Err(error) = tls.process_new_packets() {
            break Some(error);
        }
        let _ = tls.reader().read(&mut [0; 65536]);
    };
    assert_eq!(end, Some(rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)));
}

/// A server that records the first byte of each connection. The byte shows whether a ClientHello or plain text was
/// sent.
struct Target {
    address: SocketAddr,
    first_bytes: Arc<Mutex<Vec<u8>>>,
    /// Certificate of the server.
    pem: String,
}

impl Target {
    fn start(name: &str, last_year: i32) -> Self {
        let (pem, _, certificate, key) = certificate(name, last_year);
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let first_bytes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&first_bytes);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut byte = [0];
                if stream.peek(&mut byte).is_ok_and(|read| read == 1) {
                    seen.lock().unwrap().push(byte[0]);
                }
                let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut tls = rustls::StreamOwned::new(connection, stream);
                let mut plain = [0];
                // Any decrypted byte shows that a client sent its stream to a server that it must not trust.
                if tls.read(&mut plain).is_ok_and(|read| read == 1) {
                    seen.lock().unwrap().push(plain[0]);
                }
            }
        });
        Self { address, first_bytes, pem }
    }
}

fn add_endpoint(server: &Server, url: &str) {
    server.api().post(&format!("{BROADCASTS}/create"), r#"{"streamId":"s1"}"#);
    let body = format!(r#"{{"rtmpUrl":"{url}"}}"#);
    let reply = server.api().post(&format!("{BROADCASTS}/s1/rtmp-endpoint"), &body);
    assert_eq!(reply.json()["success"], true);
}

fn statuses(server: &Server) -> Vec<String> {
    let broadcast = server.api().broadcast("live", "s1").unwrap();
    let list = broadcast["endPointList"].as_array().unwrap();
    list.iter().map(|endpoint| endpoint["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn u_06_whoever_cannot_prove_its_name_gets_nothing_and_plain_text_is_never_tried() {
    let server = Server::start(&[]);
    // One target has a certificate that is not trusted, the other supports no version after TLS 1.0.
    let unknown = Target::start("localhost", 2049);
    let old = own_port("127.0.0.1");
    let home = Home::new();
    let (pem, key, _, _) = certificate("localhost", 2049);
    let (certificate_file, key_file) = (home.path().join("c.pem"), home.path().join("k.pem"));
    fs::write(&certificate_file, pem).unwrap();
    fs::write(&key_file, key).unwrap();
    let _old = Program::start(
        Command::new("openssl")
            .args(["s_server", "-tls1", "-cipher", "ALL:@SECLEVEL=0", "-accept", &old.to_string(), "-quiet"])
            .args(["-cert".as_ref(), certificate_file.as_os_str(), "-key".as_ref(), key_file.as_os_str()]),
    );
    for target in [unknown.address, old] {
        add_endpoint(&server, &format!("rtmps://localhost:{}/live/x", target.port()));
    }
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    wait_for("the refusals", secs(20), || statuses(&server) == ["failed", "failed"]);
    wait_for("a further try", secs(20), || unknown.first_bytes.lock().unwrap().len() >= 2);
    assert!(unknown.first_bytes.lock().unwrap().iter().all(|&byte| byte == 0x16), "only hellos");
    wait_for("the reason in the log", secs(10), || {
        let log = server.log();
        log.contains("UnknownIssuer") && (log.contains("ProtocolVersion") || log.contains("PeerIncompatible"))
    });
}

/// Starts a server whose pushes trust the certificates in this file.
fn start_trusting(file: &Path) -> Server {
    let home = Home::new();
    let mut command = Server::command(&home.path().join("home"), &[]);
    Server::spawn(command.env("SSL_CERT_FILE", file)).with_home(home)
}

#[test]
fn u_06_a_trusted_name_is_pushed_to_and_an_expired_or_another_one_is_not() {
    let target = Server::start(&[]);
    let good: PathBuf = target.home().join("home/conf/fullchain.pem");
    let server = start_trusting(&good);
    // The second URL leads to the same certificate, but has a host that the certificate does not contain.
    let rtmps = target.rtmps.unwrap().port();
    add_endpoint(&server, &format!("rtmps://localhost:{rtmps}/live/copy"));
    add_endpoint(&server, &format!("rtmps://127.0.0.2:{rtmps}/live/other"));
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    wait_for("the copy", secs(20), || statuses(&server) == ["broadcasting", "failed"]);
    assert_eq!(target.api().broadcast("live", "copy").unwrap()["status"], "broadcasting");
    assert!(target.api().broadcast("live", "other").is_none());

    let expired = Target::start("localhost", 2021);
    let home = Home::new();
    let file = home.path().join("trusted.pem");
    fs::write(&file, &expired.pem).unwrap();
    let server = start_trusting(&file);
    add_endpoint(&server, &format!("rtmps://localhost:{}/live/x", expired.address.port()));
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    wait_for("the refusal", secs(20), || statuses(&server) == ["failed"]);
    assert!(expired.first_bytes.lock().unwrap().iter().all(|&byte| byte == 0x16));
    wait_for("the reason in the log", secs(10), || server.log().contains("expired"));
}

#[test]
fn a_certificate_that_is_replaced_serves_new_connections_and_leaves_the_open_ones() {
    let file = media_file(false, 20);
    let server = Server::start(&[]);
    let https = server.https.unwrap();
    let conf = server.home().join("home/conf");
    let first = openssl(https, &["-showcerts"]);
    let _publisher = Program::ffmpeg_publish(&file, &format!("rtmps://{}/live/s1", server.rtmps.unwrap()));
    wait_for("the stream", secs(20), || server.api().broadcast("live", "s1").is_some());
    let player = std::thread::spawn({
        let url = format!("rtmps://{}/live/s1", server.rtmps.unwrap());
        move || frame_md5(&url, Some(8))
    });
    std::thread::sleep(secs(2));
    // A certificate that does not match the key is refused, and the old pair remains in use.
    let (pem, key, _, _) = certificate("new.example", 2049);
    fs::write(conf.join("fullchain.pem"), &pem).unwrap();
    wait_for("the mismatch in the log", secs(10), || server.log().contains("certificate not loaded"));
    let shown = |said: &str| {
        said.split("BEGIN CERTIFICATE").nth(1).unwrap_or("").chars().take(300).collect::<String>()
    };
    assert_eq!(shown(&openssl(https, &["-showcerts"])), shown(&first));
    // SIGHUP makes the server load the certificate without a delay, once the matching key is there.
    fs::write(conf.join("privkey.pem"), &key).unwrap();
    server.signal("HUP");
    wait_for("the new certificate", secs(10), || {
        let now = shown(&openssl(https, &["-showcerts"]));
        now != shown(&first) && pem.contains(now.lines().nth(1).unwrap_or("-"))
    });
    let played = player.join().unwrap();
    let hashes: std::collections::HashSet<_> =
        crate::support::source_packets(&file).into_iter().map(|packet| packet.4).collect();
    assert!(played.len() > 300 && played.iter().all(|packet| hashes.contains(&packet.4)), "{}", played.len());
    assert_eq!(server.api().broadcast("live", "s1").unwrap()["status"], "broadcasting");
}

/// Checks that the server notices renewals by certbot: `live/NAME/*.pem` are links into `archive`, and a renewal
/// changes their targets.
#[test]
fn a_certificate_behind_links_that_are_replaced_is_taken_up() {
    let home = Home::new();
    let folder = home.path().join("letsencrypt");
    let live = folder.join("live");
    fs::create_dir_all(folder.join("archive")).unwrap();
    fs::create_dir_all(&live).unwrap();
    let renew = |number: u32| {
        let (pem, key, _, _) = certificate("stream.example", 2049);
        for (name, text) in [("fullchain", &pem), ("privkey", &key)] {
            let file = format!("../archive/{name}{number}.pem");
            fs::write(live.join(&file), text).unwrap();
            let next = live.join("next");
            std::os::unix::fs::symlink(&file, &next).unwrap();
            fs::rename(next, live.join(format!("{name}.pem"))).unwrap();
        }
        pem
    };
    let is_shown = |server: &Server, pem: &str| {
        let said = openssl(server.https.unwrap(), &["-showcerts"]);
        said.contains(pem.lines().nth(1).unwrap())
    };
    let first = renew(1);
    let setting = |key: &str, name: &str| format!("{key}={}", live.join(name).display());
    let settings = [
        setting("http.ssl_certificate_file", "fullchain.pem"),
        setting("http.ssl_certificate_key_file", "privkey.pem"),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = Server::start(&settings);
    assert!(is_shown(&server, &first));
    let second = renew(2);
    wait_for("the renewed certificate", secs(30), || is_shown(&server, &second));
    assert!(!is_shown(&server, &first));
}

/// Tests the folder in which `certbot certonly --webroot -w HOME/acme` writes its answers to challenges.
#[test]
fn answers_to_challenges_are_served_and_nothing_beside_them() {
    let server = Server::start(&[]);
    let webroot = server.home().join("home/acme");
    let folder = webroot.join(".well-known/acme-challenge");
    let status = |path: &str| server.api().get(path).status;
    let base = "/.well-known/acme-challenge";
    assert_eq!(status(&format!("{base}/token")), 404, "there is no folder yet");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA"), "token.thumbprint").unwrap();
    for name in [".hidden", "a.txt", "sub/inner"] {
        fs::write(folder.join(name), "secret").unwrap();
    }
    fs::write(webroot.join("outside"), "secret").unwrap();
    std::os::unix::fs::symlink(webroot.join("outside"), folder.join("link")).unwrap();
    let answer = server.api().get(&format!("{base}/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA"));
    assert_eq!((answer.status, answer.body.as_str()), (200, "token.thumbprint"));
    for path in [
        format!("{base}/"),
        base.to_owned(),
        format!("{base}/sub"),
        format!("{base}/sub/inner"),
        format!("{base}/link"),
        format!("{base}/.hidden"),
        format!("{base}/a.txt"),
        format!("{base}/none"),
        format!("{base}/{}", "x".repeat(300)),
        "/.well-known/other".to_owned(),
        "/acme/outside".to_owned(),
    ] {
        assert_eq!(status(&path), 404, "{path}");
    }
    for path in
        [format!("{base}/../../outside"), format!("{base}/..%2f..%2foutside"), format!("{base}/%2e%2e/x")]
    {
        assert!(matches!(status(&path), 400 | 404), "{path}");
    }
    assert_eq!(server.api().post(&format!("{base}/x"), "").status, 405);
    // Tests a server with another folder, and a server without one.
    let elsewhere = Home::new();
    fs::create_dir_all(elsewhere.path().join(".well-known/acme-challenge")).unwrap();
    fs::write(elsewhere.path().join(".well-known/acme-challenge/t"), "1").unwrap();
    let other = Server::start(&[&format!("http.acme_folder={}", elsewhere.path().display())]);
    assert_eq!(other.api().get(&format!("{base}/t")).body, "1");
    let none = Server::start(&["http.acme_folder="]);
    assert_eq!(none.api().get(&format!("{base}/t")).status, 404);
}
