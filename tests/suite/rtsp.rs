//! Tests RTSP with the whole server: ffmpeg publishes and plays, over TCP and UDP, and hostile peers break the
//! protocol.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

use crate::publish_play::assert_track_within;
use crate::support::{
    Bystander, Program, Server, SrtTool, SrtUrl, media_file, run, secs, unit_md5, unit_md5_by, wait_for,
};

/// Publishes a file in an endless loop.
fn publish(server: &Server, id: &str, file: &Path, transport: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(file).args(["-c", "copy", "-f", "rtsp", "-rtsp_transport", transport]);
    let program = Program::start(command.arg(server.rtsp_url(&format!("live/{id}"))));
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", id).is_some_and(|record| record["status"] == "broadcasting")
    });
    program
}

/// Sends a message on a new connection, and returns the first line of the answer, or nothing if there is none.
fn ask(server: &Server, message: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.rtsp.unwrap()).unwrap();
    stream.set_read_timeout(Some(secs(20))).unwrap();
    let _ = stream.write_all(message);
    let mut answer = [0; 4096];
    let count = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..count]).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn what_is_published_over_rtsp_is_played_over_every_protocol_the_same() {
    let file = media_file(false, 12);
    let source = unit_md5(file.to_str().unwrap(), None);
    for transport in ["tcp", "udp"] {
        let server = Server::start(&["server.workers=2"]);
        let _publisher = publish(&server, "camera", &file, transport);
        let record = server.api().broadcast("live", "camera").unwrap();
        assert_eq!(record["publishType"], "RTSP");
        let srt = SrtUrl::caller(server.srt.unwrap()).stream_id("#!::r=live/camera,m=request");
        let rtsp = server.rtsp_url("live/camera");
        for (options, url) in [
            (&[][..], server.rtmp_url("live/camera")),
            (&[], srt.text(SrtTool::Ffmpeg)),
            (&["-rtsp_transport", "tcp"], rtsp.clone()),
            (&["-rtsp_transport", "udp"], rtsp),
        ] {
            let played = unit_md5_by(options, &url, Some(4));
            let hashes: HashSet<_> = source.iter().map(|packet| &packet.4).collect();
            assert!(played.len() > 150, "{transport} {url}: {}", played.len());
            // The file is published in a loop, so the played packets may cross its end.
            assert!(played.iter().all(|packet| hashes.contains(&packet.4)), "{transport} {url} {options:?}");
        }
    }
}

#[test]
fn what_is_published_over_rtmp_is_played_over_rtsp_the_same() {
    let file = media_file(false, 40);
    let server = Server::start(&[]);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/encoder"));
    wait_for("the stream", secs(20), || server.api().broadcast("live", "encoder").is_some());
    let source = unit_md5(file.to_str().unwrap(), None);
    for transport in ["tcp", "udp"] {
        let played = unit_md5_by(&["-rtsp_transport", transport], &server.rtsp_url("live/encoder"), Some(4));
        // The clocks of 90 and 44.1 kHz round timestamps.
        (0..2).for_each(|track| assert_track_within(2, (track, &source), (track, &played)));
    }
}

#[test]
fn pictures_out_of_order_have_decoding_times_that_rise() {
    let server = Server::start(&[]);
    let _publisher = publish(&server, "reordered", &media_file(true, 12), "tcp");
    let played = unit_md5(&server.rtmp_url("live/reordered"), Some(4));
    let video: Vec<_> = played.iter().filter(|packet| packet.0 == 0).collect();
    assert!(video.len() > 60, "{}", video.len());
    assert!(video.windows(2).all(|pair| pair[0].1 <= pair[1].1), "decoding times rise");
    assert!(video.iter().all(|packet| packet.1 <= packet.2), "nothing is shown before it is decoded");
    assert!(video.iter().any(|packet| packet.1 < packet.2), "the file has pictures out of order");
}

#[test]
fn who_may_not_publish_or_play_is_told_so() {
    let server = Server::start(&["app.publishKeyRequired=true"]);
    let file = media_file(false, 12);
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
    command.args(["-c", "copy", "-f", "rtsp", &server.rtsp_url("live/locked?key=wrong")]);
    let (status, _, told) = run(&mut command);
    assert!(!status.success() && (told.contains("403") || told.contains("401")), "{told}");
    let mut command = Command::new("ffprobe");
    let (status, _, told) = run(command.args(["-v", "error", &server.rtsp_url("live/nothing")]));
    assert!(!status.success() && told.contains("404"), "{told}");
}

#[test]
fn a_publisher_that_leaves_or_falls_silent_is_gone() {
    let server = Server::start(&["app.publisherGraceMs=0"]);
    for (id, transport, signal) in
        [("leaves", "tcp", "INT"), ("freezes", "udp", "STOP"), ("dies", "tcp", "KILL")]
    {
        let publisher = publish(&server, id, &media_file(false, 12), transport);
        publisher.signal(signal);
        wait_for("its end", secs(60), || {
            server.api().broadcast("live", id).is_none_or(|record| record["status"] != "broadcasting")
        });
        publisher.signal("CONT");
    }
}

/// Checks that RTP is sent to the address of the viewer's connection, even if the viewer requests another address.
#[test]
fn p_08_datagrams_go_to_the_address_of_the_connection_whatever_was_asked_for() {
    let server = Server::start(&[]);
    let _publisher = publish(&server, "camera", &media_file(false, 12), "tcp");
    let (media, reports) = loop {
        let media = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = media.local_addr().unwrap().port();
        if let Some(next) = port.checked_add(1).filter(|_| port.is_multiple_of(2))
            && let Ok(reports) = UdpSocket::bind(("127.0.0.1", next))
        {
            break (media, reports);
        }
    };
    // The victim has the same port, on another address of this machine.
    let port = media.local_addr().unwrap().port();
    let victim = UdpSocket::bind(("127.0.0.2", port)).unwrap();
    victim.set_read_timeout(Some(secs(2))).unwrap();
    let mut stream = TcpStream::connect(server.rtsp.unwrap()).unwrap();
    let url = server.rtsp_url("live/camera");
    let mut say = |message: String| {
        stream.write_all(message.as_bytes()).unwrap();
        let mut answer = vec![0; 16_384];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    let described = say(format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n"));
    assert!(described.starts_with("RTSP/1.0 200") && described.contains("trackID=0"), "{described}");
    let ports = format!("{port}-{}", reports.local_addr().unwrap().port());
    let transport = format!("RTP/AVP;unicast;destination=127.0.0.2;client_port={ports}");
    let set_up = say(format!("SETUP {url}/trackID=0 RTSP/1.0\r\nCSeq: 2\r\nTransport: {transport}\r\n\r\n"));
    assert!(set_up.starts_with("RTSP/1.0 200") && !set_up.contains("127.0.0.2"), "{set_up}");
    let session = set_up.split("Session: ").nth(1).unwrap().split([';', '\r']).next().unwrap().to_owned();
    // P-13: session ids are too long to guess.
    assert!(session.len() >= 16, "{session}");
    let played = say(format!("PLAY {url} RTSP/1.0\r\nCSeq: 3\r\nSession: {session}\r\n\r\n"));
    assert!(played.starts_with("RTSP/1.0 200"), "{played}");
    let mut datagram = [0; 2048];
    media.set_read_timeout(Some(secs(20))).unwrap();
    let count = media.recv(&mut datagram).unwrap();
    assert!(count > 12 && datagram[0] >> 6 == 2, "an RTP packet");
    assert!(victim.recv(&mut datagram).is_err(), "the other address hears nothing");
}

#[test]
fn p_01_to_p_10_what_breaks_the_protocol_is_answered_and_harms_nobody() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let long = "x".repeat(100_000);
    let same = "A: b\r\n".repeat(1000);
    let many = "a=x\r\n".repeat(10_000);
    let announce = |body: &str| {
        let head = "ANNOUNCE rtsp://h/live/x RTSP/1.0\r\nCSeq: 1\r\nContent-Type: application/sdp";
        format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let table = [
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_owned(), &["200"][..]),
        (format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nA: {long}\r\n\r\n"), &["400", "413", ""]),
        (format!("OPTIONS rtsp://h/{long} RTSP/1.0\r\nCSeq: 1\r\n\r\n"), &["400", "413", "414", ""]),
        (format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n{same}\r\n"), &["400", "413", ""]),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: -1\r\n\r\n".to_owned(), &["400"]),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 18446744073709551616\r\n\r\n".to_owned(), &["400", "413"]),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), &["400"]),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nA: \0\r\n\r\n".to_owned(), &["400"]),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nA: b\r\n c\r\n\r\n".to_owned(), &["400"]),
        ("GET /live/x HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), &["400", "405", "505", ""]),
        ("DESCRIBE rtsp://h/live/none RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_owned(), &["404"]),
        ("DESCRIBE rtsp://h/live/../x RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_owned(), &["404", "400"]),
        ("PLAY rtsp://h/live/x RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_owned(), &["454", "455"]),
        ("RECORD rtsp://h/live/x RTSP/1.0\r\nCSeq: 1\r\nSession: 1\r\n\r\n".to_owned(), &["454", "455"]),
        (
            "SETUP rtsp://h/live/x/trackID=0 RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;client_port=1-2\r\n\r\n".to_owned(),
            &["455", "454"],
        ),
        ("FROB rtsp://h/live/x RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_owned(), &["405", "501"]),
        (announce("v=0\r\nnonsense"), &["400", "415"]),
        (announce(&many), &["400", "413", "415"]),
        (announce("v=0\r\no=- 0 0 IN IP4 h\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 200\r\n"), &["400", "415"]),
        (format!("$\x07{long}"), &["400", "413", "414", ""]),
        (long.clone(), &["400", "413", "414", ""]),
    ];
    for (message, statuses) in table {
        let line = ask(&server, message.as_bytes());
        let status = line.strip_prefix("RTSP/1.0 ").map_or("", |rest| &rest[..3]);
        let shown: String = message.chars().take(90).collect();
        assert!(statuses.contains(&status), "{shown:?}: {line:?}");
    }
    bystander.finish(&mut server);
}
