//! Tests splice information (SCTE 35) from the API, over SRT from another server, and in script data. It must appear in
//! playlists, segments and manifests.

use media::scte35::Splice;
use serde_json::json;

use crate::publish_play::is_broadcasting;
use crate::sources::start_source;
use crate::support::{Program, Server, media_file, secs, wait_for};
use crate::timed_metadata::{contains, fetch, media};

const CALL: &str = "/live/rest/v2/broadcasts/cam/scte35";
const COMMON: [&str; 3] = ["app.hls.begin=stream", "app.hlsTime=1", "app.hlsListSize=40"];

fn playlist(server: &Server, path: &str) -> String {
    String::from_utf8(fetch(server, &format!("/live/streams/{path}"))).unwrap()
}

/// Returns the EXT-X-DATERANGE tags of a playlist that contain this text.
fn tags(server: &Server, path: &str, attribute: &str) -> Vec<String> {
    let text = playlist(server, path);
    let tags = text.lines().filter(|line| line.starts_with("#EXT-X-DATERANGE:") && line.contains(attribute));
    tags.map(str::to_owned).collect()
}

fn id_of(tag: &str) -> &str {
    tag.split_once("ID=\"").and_then(|(_, rest)| rest.split_once('"')).unwrap().0
}

/// Reads the splice information in an attribute of a tag.
fn splice_of(tag: &str, attribute: &str) -> Splice {
    let (_, hex) = tag.split_once(&format!("{attribute}=0x")).unwrap();
    let hex = hex.split(',').next().unwrap();
    let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    Splice::read(&bytes.collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_splice_from_the_api_is_in_playlists_segments_and_manifests_by_setting() {
    let fragmented = "app.hlsSegmentType=fmp4";
    let all = [fragmented, "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"];
    let lists = ["cam.m3u8", "ll-hls/cam/cam__video.m3u8", "ll-hls/cam/cam__audio.m3u8"];
    for (form, lists, is_wanted) in
        [(&all[1..2], &lists[..1], true), (&all[..], &lists[..], true), (&all[..1], &lists[..1], false)]
    {
        let wanted = format!("app.hls.scte35={is_wanted}");
        let server = Server::start(&[&COMMON[..], form, &[&wanted]].concat());
        let post = |body: serde_json::Value| server.api().post(CALL, &body.to_string()).json();
        let out = json!({"event": "out", "id": 77, "duration": 3.5, "offset": 1.5});
        assert_eq!(post(out.clone())["message"], "Stream is not available");
        let _publisher = Program::ffmpeg_publish(&media_file(false, 15), &server.rtmp_url("live/cam"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        wait_for("segments", secs(20), || playlist(&server, "cam.m3u8").contains("#EXTINF"));
        assert_eq!(post(out.clone())["success"], true);
        assert_eq!(post(out)["success"], true, "a repetition");
        let null = post(json!({"section": "/DARAAAAAAAAAP/wAAAAAHpPv/8="}));
        assert_eq!((&null["success"], null["message"].as_str().is_some()), (&json!(false), true));
        let segments = playlist(&server, "cam.m3u8").matches("#EXTINF").count();
        if !is_wanted {
            wait_for("three segments", secs(20), || {
                playlist(&server, "cam.m3u8").matches("#EXTINF").count() > segments + 2
            });
            assert!(!playlist(&server, "cam.m3u8").contains("DATERANGE"));
            assert!(!contains(&media(&server, "/live/streams/cam.m3u8"), "scte35"));
            continue;
        }
        for list in lists {
            wait_for("the break", secs(20), || tags(&server, list, "SCTE35-OUT=0xFC").len() == 1);
            let tag = tags(&server, list, "SCTE35-OUT")[0].clone();
            assert!(tag.contains("PLANNED-DURATION=3.500") && id_of(&tag).starts_with("77-"), "{tag}");
            // The splice is 1.5 s after the first media, which has a time of at least 1 s in segments.
            let times = 2.5 * 90_000.0..60.0 * 90_000.0;
            let pts = splice_of(&tag, "SCTE35-OUT").pts.unwrap();
            assert!(times.contains(&f64::from(u32::try_from(pts).unwrap())), "{pts} {tag}");
        }
        assert_eq!(post(json!({"event": "in", "id": 77}))["success"], true);
        for list in lists {
            wait_for("the return", secs(20), || tags(&server, list, "SCTE35-IN=0xFC").len() == 1);
            let (out, back) = (tags(&server, list, "SCTE35-OUT"), tags(&server, list, "SCTE35-IN"));
            assert_eq!((id_of(&out[0]), out.len()), (id_of(&back[0]), 1));
            assert_eq!(splice_of(&back[0], "SCTE35-IN").pts, None, "it is immediate");
        }
        if form.contains(&fragmented) {
            let message = "urn:scte:scte35:2013:bin\0\0\u{fffd}0";
            let has = |list: &str| {
                let media = media(&server, &format!("/live/streams/{list}"));
                String::from_utf8_lossy(&media).contains(message)
            };
            wait_for("the messages", secs(20), || has(lists[0]) && has(lists[1]));
            assert!(!has(lists[2]), "the pictures have it");
            let manifest = playlist(&server, "cam/cam.mpd");
            let told = manifest.matches("<InbandEventStream schemeIdUri=\"urn:scte:scte35:2013:bin\"/>");
            assert_eq!(told.count(), 1, "{manifest}");
        }
    }
}

#[test]
fn a_splice_passes_over_srt_and_is_in_the_playlists_of_the_next_server() {
    let first = Server::start(&COMMON);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 20), &first.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&first, "cam"));
    let second = Server::start(&COMMON);
    let url = format!("srt://{}?streamid=%23!::r=live/cam,m=request", first.srt.unwrap());
    start_source(&second, "copy", &url);
    wait_for("segments", secs(30), || playlist(&second, "copy.m3u8").contains("#EXTINF"));
    let out = json!({"event": "out", "id": 5, "duration": 30.0, "offset": 2.0});
    assert_eq!(first.api().post(CALL, &out.to_string()).json()["success"], true);
    wait_for("the break", secs(30), || tags(&second, "copy.m3u8", "SCTE35-OUT=0xFC").len() == 1);
    let tag = tags(&second, "copy.m3u8", "SCTE35-OUT")[0].clone();
    assert!(tag.contains("PLANNED-DURATION=30.000") && id_of(&tag).starts_with("5-"), "{tag}");
}
