//! Messages of data channels as timed metadata: viewers by HLS, low-latency HLS, HTTP-FLV and SRT have them at the same
//! times.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use media::id3;
use mpegts::{Demuxer, Event, StreamKind};

use crate::publish_play::is_broadcasting;
use crate::support::{RtcClient, Server, secs};
use crate::timed_metadata::{contains, media};

const HLS: [&str; 5] = [
    "app.hls.begin=stream",
    "app.hlsTime=1",
    "app.hlsListSize=40",
    "app.hlsEnableLowLatency=true",
    "app.id3TagEnabled=true",
];
const NAME: &[u8] = b"onDataMessage";

/// Reads the HTTP-FLV stream of a server into memory until the server ends.
fn flv(server: &Server, name: &str) -> Arc<Mutex<Vec<u8>>> {
    let mut stream = TcpStream::connect(server.http).unwrap();
    write!(stream, "GET /live/{name}.flv HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&bytes);
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            into.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    });
    bytes
}

fn places(bytes: &[u8], of: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(of)).collect()
}

/// Returns the times of script data with messages in milliseconds, and the JSON of each.
fn script_data(bytes: &[u8]) -> Vec<(i64, String)> {
    // A tag's head has eleven bytes, and a name begins with its type and length.
    let tags = places(bytes, NAME).into_iter().filter_map(|at| at.checked_sub(14)).map(|at| &bytes[at..]);
    let read = |tag: &[u8]| {
        assert_eq!(tag[0], 18);
        let size = usize::from(tag[1]) << 16 | usize::from(tag[2]) << 8 | usize::from(tag[3]);
        let ms = i64::from(u32::from_be_bytes([tag[7], tag[4], tag[5], tag[6]]));
        let data = flv::data::Data::read(tag.get(11..11 + size)?).unwrap();
        let value = data.values[0].pairs().unwrap()[0].clone();
        Some((ms, format!("{} {}", value.0, value.1.as_str().unwrap())))
    };
    tags.filter_map(read).collect()
}

/// Returns the times of ID3 tags with messages in milliseconds, and their texts.
fn ts_tags(bytes: &[u8]) -> Vec<(i64, String)> {
    let (mut demuxer, mut input) = (Demuxer::new(), bytes);
    let events = std::iter::from_fn(|| demuxer.read(&mut input));
    let tags = events.filter_map(|event| match event {
        Event::Pes(pes) if pes.stream.kind == StreamKind::Id3 => Some((pes.pts?, pes.payload)),
        _ => None,
    });
    tags.map(|(pts, tag)| (i64::try_from(pts / 90).unwrap(), text_of(&tag))).collect()
}

/// Returns the times of event messages in milliseconds, and their texts.
fn event_messages(bytes: &[u8]) -> Vec<(i64, String)> {
    let read = |at: usize| {
        let size = u32::from_be_bytes(bytes[at - 4..at].try_into().unwrap());
        let body = &bytes[at + 4..at - 4 + usize::try_from(size).unwrap()];
        let scale = u64::from(u32::from_be_bytes(body[4..8].try_into().unwrap()));
        let time = u64::from_be_bytes(body[8..16].try_into().unwrap());
        let tag = places(body, b"ID3\x04")[0];
        (i64::try_from(time * 1000 / scale).unwrap(), text_of(&body[tag..]))
    };
    places(bytes, b"emsg\x01\0\0\0").into_iter().map(read).collect()
}

fn text_of(tag: &[u8]) -> String {
    match id3::texts(tag)[..] {
        [(name, text)] => format!("{name} {text}"),
        _ => String::from_utf8_lossy(&tag[tag.len() - 4..]).into_owned(),
    }
}

/// Makes a publisher with a data channel, and waits until its segments begin.
fn publisher(server: &Server, name: &str) -> RtcClient {
    let mut publisher = RtcClient::publish_with_data(server, name);
    publisher.run_until("the keys", secs(20), |publisher| publisher.connected);
    publisher.run_until("the stream", secs(20), |_| is_broadcasting(server, name));
    // Segments are only requested once they exist: a request that waits would keep the publisher from sending.
    publisher.run_until("segments", secs(30), |publisher| publisher.made_ms() > 3500);
    publisher
}

#[test]
fn messages_of_a_publisher_and_of_the_api_are_timed_metadata_of_every_format() {
    let server = Server::start(&[&HLS[..], &["app.dataChannel.timedMetadata=true"]].concat());
    let mut publisher = publisher(&server, "cam");
    let flv = flv(&server, "cam");
    publisher.run_until("a viewer", secs(20), |_| !flv.lock().unwrap().is_empty());
    let made = publisher.made_ms();
    publisher.run_until("pictures", secs(20), |publisher| publisher.made_ms() > made + 500);
    assert!(publisher.say(true, "grüße".as_bytes()));
    let made = publisher.made_ms();
    publisher.run_until("later", secs(20), |publisher| publisher.made_ms() > made + 700);
    assert!(publisher.say(false, b"\0\x01abc"));
    let answer = server.api().post("/live/rest/v2/broadcasts/cam/data", "of the api");
    assert_eq!(answer.json()["success"], true);
    let (list, low) = ("/live/streams/cam.m3u8", "/live/streams/ll-hls/cam/cam__video.m3u8");
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    publisher.run_until("the messages", secs(40), |_| {
        found = [
            script_data(&flv.lock().unwrap()),
            ts_tags(&media(&server, list)),
            event_messages(&media(&server, low)),
        ];
        found.iter().all(|messages| messages.len() >= 3)
    });
    let texts = |messages: &[(i64, String)]| {
        let mut texts: Vec<String> = messages.iter().map(|(_, text)| text.clone()).collect();
        // The publisher's and the API's messages come by two ways.
        texts[1..].sort();
        texts
    };
    assert_eq!(texts(&found[0]), ["text grüße", "base64 AAFhYmM=", "text of the api"]);
    for tags in &found[1..] {
        assert_eq!(texts(tags), ["onDataMessage grüße", "\u{1}abc", "onDataMessage of the api"]);
    }
    let between = found.each_ref().map(|messages| messages[2].0 - messages[0].0);
    assert!(between[0] >= 600 && between.iter().all(|ms| (ms - between[0]).abs() <= 1), "{between:?}");
}

#[test]
fn a_flood_of_messages_is_cut_and_delays_no_picture_and_no_other_stream() {
    let server = Server::start(&[&HLS[..], &["app.dataChannel.timedMetadata=true"]].concat());
    let (mut flooder, mut other) = (publisher(&server, "flood"), publisher(&server, "calm"));
    let mut both =
        |flooder: &mut RtcClient, what: &str, done: &mut dyn FnMut(&RtcClient, &mut RtcClient) -> bool| {
            flooder.run_until(what, secs(40), |flooder| {
                other.step();
                done(flooder, &mut other)
            });
        };
    let viewers = ["flood", "calm"].map(|name| flv(&server, name));
    both(&mut flooder, "viewers", &mut |_, _| viewers.iter().all(|bytes| !bytes.lock().unwrap().is_empty()));
    // Three megabytes, which the publisher may send at once, of which a quarter of a megabyte is timed metadata.
    let (payload, mut sent) = ([b'x'; 10_000], 0);
    while sent < 300 {
        sent += usize::from(flooder.say(true, &payload));
        both(&mut flooder, "a step", &mut |_, _| true);
        flooder.step();
    }
    let mut is_said = false;
    both(&mut flooder, "the calm message", &mut |_, other| {
        is_said = is_said || other.say(true, b"calm");
        contains(&viewers[1].lock().unwrap(), "calm")
    });
    let made = flooder.made_ms();
    both(&mut flooder, "three more seconds", &mut |flooder, _| flooder.made_ms() > made + 3000);
    let count = script_data(&viewers[0].lock().unwrap()).len();
    assert!((20..150).contains(&count), "{count} of {sent}");
    let list = "/live/streams/flood.m3u8";
    both(&mut flooder, "the tags", &mut |_, _| !ts_tags(&media(&server, list)).is_empty());
    let record = server.api().broadcast("live", "flood").unwrap();
    assert_eq!(record["status"], "broadcasting");
}

#[test]
fn without_the_setting_messages_are_for_data_channels_alone() {
    let server = Server::start(&HLS);
    let mut publisher = publisher(&server, "cam");
    let flv = flv(&server, "cam");
    let mut viewer = RtcClient::play_with_data(&server, "cam");
    let mut count = 0;
    publisher.run_until("a message", secs(40), |_| {
        viewer.step();
        let answer = server.api().post("/live/rest/v2/broadcasts/cam/data", "of the api");
        count += u32::from(answer.status == 200);
        viewer.talk.messages.iter().any(|(is_text, message)| *is_text && message == "of the api")
    });
    let made = publisher.made_ms();
    publisher.run_until("segments", secs(40), |publisher| {
        viewer.step();
        publisher.made_ms() > made + 3000
    });
    let segments = media(&server, "/live/streams/cam.m3u8");
    assert!(count > 0 && !segments.is_empty() && !flv.lock().unwrap().is_empty());
    assert!(!contains(&segments, "onDataMessage") && places(&flv.lock().unwrap(), NAME).is_empty());
}
