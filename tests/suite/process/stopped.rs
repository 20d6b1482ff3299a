//! A server that was stopped for longer than its timeouts. Peers whose bytes already wait in its sockets must not time
//! out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::sleep;

use crate::support::{Player, RtmpPeer, Server, SrtTool, SrtUrl, secs, ts_file, wait_for};

/// Time for which the server is stopped. It exceeds the timeouts of SRT connections (5 s) and of hooks (5 s).
const STOPPED_SECONDS: u64 = 8;

/// Accepts the next request of a server. Returns the connection for the answer, and the body.
fn asked(listener: &TcpListener) -> (TcpStream, String) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let (name, value) = line.trim().split_once(':').unwrap_or_else(|| (line.trim(), ""));
        match name {
            "" => break,
            name if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (stream, String::from_utf8(body).unwrap())
}

fn answer(mut stream: &TcpStream) {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log/millstream.log")).unwrap_or_default()
}

/// True if all threads that call hooks sleep, because they wait for an answer.
fn waits_for_an_answer(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let of_hooks = states.filter(|stat| stat.contains("(admission-") || stat.contains("(hook-"));
    let mut of_hooks =
        of_hooks.filter_map(|stat| Some(stat.rsplit_once(") ")?.1.starts_with('S'))).peekable();
    of_hooks.peek().is_some() && of_hooks.all(|sleeps| sleeps)
}

#[test]
fn q_12_an_srt_publisher_that_waits_longer_stays_when_the_server_was_stopped() {
    let (_home, folder) = super::faults::new_home();
    let mut server = Server::start_in(&folder, &["app.publisherGraceMs=0"]);
    let url = SrtUrl::caller(server.srt.unwrap()).stream_id("live/s").patience_ms(30_000);
    let _publisher = SrtTool::Libsrt.send(&ts_file(true, 40), &url);
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(&server, "s"));
    let player = Player::start(server.rtmp, "live", "s");
    wait_for("media", secs(10), || player.units() > 0);
    server.signal("STOP");
    sleep(secs(STOPPED_SECONDS));
    let before = player.units();
    server.signal("CONT");
    wait_for("more media", secs(15), || player.units() > before + 100 || !player.is_playing());
    // There is no grace period, so a timeout of the publisher would have ended the stream and its viewer.
    assert!(player.is_playing(), "{}", log_of(&folder));
    assert!(server.terminate().success());
}

#[test]
fn q_12_a_hook_that_was_answered_while_the_server_was_stopped_has_not_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (_home, folder) = super::faults::new_home();
    let settings = [
        format!("app.webhookAuthenticateURL={url}/in"),
        format!("app.listenerHookURL={url}/told"),
        "app.publisherGraceMs=0".to_owned(),
    ];
    let mut server = Server::start_in(&folder, &settings.each_ref().map(String::as_str));
    let rtmp = server.rtmp;
    let comes = std::thread::spawn(move || RtmpPeer::publish(rtmp, "live", "s"));
    let stopped_while = |(stream, body): (TcpStream, String)| {
        wait_for("the wait for an answer", secs(10), || waits_for_an_answer(server.pid()));
        server.signal("STOP");
        answer(&stream);
        sleep(secs(STOPPED_SECONDS));
        server.signal("CONT");
        body
    };
    // First, the server asks the receiver to admit the publisher.
    assert!(stopped_while(asked(&listener)).contains(r#""streamId":"s""#));
    let mut publisher = comes.join().unwrap().unwrap_or_else(|error| panic!("{error}\n{}", log_of(&folder)));
    publisher.send_configs().unwrap();
    let mut source = netsim::MediaSource::new(&crypto::Seed::from_number(5));
    crate::support::publish_synthetic(&mut publisher, &mut source, 60).unwrap();
    // The receiver's answer is accepted. Otherwise the server would send the hook again.
    assert!(stopped_while(asked(&listener)).contains("liveStreamStarted"));
    drop(publisher);
    let (stream, body) = asked(&listener);
    answer(&stream);
    assert!(body.contains("liveStreamEnded"), "{body}\n{}", log_of(&folder));
    assert!(server.terminate().success());
}
