//! Tests timed metadata: ID3 tags in segments that come from the API, from MPEG-TS publishers, and from script data.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::publish_play::is_broadcasting;
use crate::sources::start_source;
use crate::support::{Home, Program, Server, ffmpeg9, media_file, raw_exchange, secs, wait_for};

/// Requests a file, and returns its bytes. The result is empty if the file does not exist.
pub fn fetch(server: &Server, path: &str) -> Vec<u8> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = raw_exchange(server.http, request.as_bytes());
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(answer.len());
    let is_there = answer.starts_with(b"HTTP/1.1 200");
    answer.get(head + 4..).filter(|_| is_there).unwrap_or_default().to_vec()
}

/// Writes a caption for each of eleven seconds, which ffmpeg sends as script data. Returns the file.
pub fn caption_file(folder: &Path) -> PathBuf {
    let captions = folder.join("captions.srt");
    let caption = |n: u32| format!("{n}\n00:00:{n:02},000 --> 00:00:{n:02},500\ncaption number {n}\n\n");
    std::fs::write(&captions, (1..12).map(caption).collect::<String>()).unwrap();
    captions
}

/// Returns the concatenated segments of an existing playlist. Those of fragmented MP4 follow their init segment.
pub fn media(server: &Server, playlist: &str) -> Vec<u8> {
    let text = String::from_utf8(fetch(server, playlist)).unwrap();
    let folder = playlist.rsplit_once('/').unwrap().0;
    let map = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MAP:URI=\"")?.split_once('"'));
    let uris = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let all = map.map(|(uri, _)| uri).into_iter().chain(uris);
    all.flat_map(|uri| fetch(server, &format!("{folder}/{uri}"))).collect()
}

pub fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|some| some == text.as_bytes())
}

/// Returns the payloads of the data stream in a file, as ffmpeg extracts them.
fn data_stream(file: &Path) -> Vec<u8> {
    // Older versions of ffmpeg mistake the first bytes of tags for a header.
    let mut command = Command::new(ffmpeg9());
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-i"]).arg(file);
    let output = command.args(["-map", "0:d", "-c", "copy", "-f", "data", "-"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_tag_from_the_api_is_in_the_segments_of_each_form() {
    let forms: [(&[&str], &[&str]); 2] = [
        (&["app.hlsSegmentType=mpegts"], &["cam.m3u8"]),
        (
            &["app.hlsSegmentType=fmp4", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"],
            &["cam.m3u8", "ll-hls/cam/cam__video.m3u8"],
        ),
    ];
    for (form, playlists) in forms {
        let common =
            ["app.id3TagEnabled=true", "app.hls.begin=stream", "app.hlsTime=1", "app.hlsListSize=40"];
        let server = Server::start(&[&common, form].concat());
        let post = |text: &str| server.api().post("/live/rest/v2/broadcasts/cam/id3", text).json();
        let refused =
            json!({"success": false, "message": "Stream is not available", "dataId": null, "errorId": 0});
        assert_eq!(post("early"), refused);
        let _publisher = Program::ffmpeg_publish(&media_file(false, 12), &server.rtmp_url("live/cam"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        assert_eq!(post(&"x".repeat(40_000))["success"], false, "too long");
        for playlist in playlists {
            let path = format!("/live/streams/{playlist}");
            let mut count = 0;
            let mut media = Vec::new();
            // Tags that arrive before the first segment are not in any segment, so tags are sent repeatedly.
            wait_for("tags in the segments", secs(40), || {
                count += 1;
                assert_eq!(post(&format!("tag {count} of {playlist}"))["success"], true);
                media = self::media(&server, &path);
                contains(&media, &format!("of {playlist}"))
            });
            if form == forms[0].0 {
                let home = Home::new();
                let file = home.path().join("media.ts");
                std::fs::write(&file, &media).unwrap();
                let data = data_stream(&file);
                assert!(data.starts_with(b"ID3\x04") && contains(&data, &format!("of {playlist}")));
            } else {
                assert!(contains(&media, "https://aomedia.org/emsg/ID3\0\0ID3\x04"));
            }
        }
        let sound = media(&server, "/live/streams/ll-hls/cam/cam__audio.m3u8");
        assert!(!contains(&sound, "emsg"), "the pictures have it");
        let manifest = String::from_utf8(fetch(&server, "/live/streams/cam/cam.mpd")).unwrap();
        let announced = manifest.matches("<InbandEventStream schemeIdUri=\"https://aomedia.org/emsg/ID3\"/>");
        assert_eq!(announced.count(), if form == forms[0].0 { 0 } else { 2 }, "{manifest}");
    }
}

#[test]
fn tags_of_a_publisher_in_mpeg_ts_are_passed_on_and_left_out_where_they_are_not_wanted() {
    let common = ["app.hls.begin=stream", "app.hlsTime=1", "app.hlsListSize=40"];
    let first = Server::start(&[&common[..], &["app.id3TagEnabled=true"]].concat());
    let _publisher = Program::ffmpeg_publish(&media_file(false, 12), &first.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&first, "cam"));
    let others = [true, false].map(|is_wanted| {
        let tags = format!("app.id3TagEnabled={is_wanted}");
        let server = Server::start(&[&common[..], &[&tags]].concat());
        start_source(&server, "copy", &format!("http://{}/live/streams/cam.m3u8", first.http));
        server
    });
    let has_tag = |server: &Server| contains(&media(server, "/live/streams/copy.m3u8"), "a tag on its way");
    wait_for("a tag that has passed", secs(60), || {
        first.api().post("/live/rest/v2/broadcasts/cam/id3", "a tag on its way");
        has_tag(&others[0])
    });
    let segments = || fetch(&others[1], "/live/streams/copy.m3u8");
    wait_for("segments", secs(40), || contains(&segments(), "#EXTINF"));
    assert!(!has_tag(&others[1]));
}

#[test]
fn script_data_of_a_publisher_is_in_the_segments_by_setting() {
    let home = Home::new();
    let captions = caption_file(home.path());
    for is_wanted in [true, false] {
        let server = Server::start(&[
            "app.id3TagEnabled=true",
            &format!("app.relayRTMPMetaDataToMuxers={is_wanted}"),
            "app.hls.begin=stream",
            "app.hlsTime=1",
            "app.hlsListSize=40",
        ]);
        let mut command = Command::new("ffmpeg");
        command
            .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"])
            .arg(media_file(false, 12));
        command.arg("-i").arg(&captions).args(["-c", "copy", "-c:s", "text", "-f", "flv"]);
        let mut publisher = Program::start(command.arg(server.rtmp_url("live/cam")));
        assert!(publisher.wait(secs(40)).is_some_and(|status| status.success()));
        let media = media(&server, "/live/streams/cam.m3u8");
        assert!(!media.is_empty());
        // The segments contain the name of the message, and its values as JSON.
        for text in ["TXXX", "onTextData", "caption number 5\""] {
            assert_eq!(contains(&media, text), is_wanted, "{text}");
        }
    }
}
