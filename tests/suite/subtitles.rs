//! Tests subtitles from the API and from script data in playlists and manifests. ffmpeg reads them, and hls.js and
//! dash.js show them in Chromium.

use std::path::Path;
use std::process::Command;

use media::subtitles::read_webvtt;
use serde_json::json;

use crate::publish_play::is_broadcasting;
use crate::support::{Home, Program, Server, media_file, python, run, secs, wait_for};
use crate::timed_metadata::{caption_file, contains, fetch, media};

const CALL: &str = "/live/rest/v2/broadcasts/cam/subtitles";
const SETTINGS: [&str; 5] = [
    "app.hls.subtitles=en:English,de:Deutsch",
    "app.hls.begin=stream",
    "app.hlsTime=1",
    "app.hlsEnableLowLatency=true",
    "app.dashMuxingEnabled=true",
];

/// Multivariant playlists, each with the playlist of its English subtitles.
const LISTS: [(&str, &str); 3] = [
    ("ll-hls/cam/cam__master.m3u8", "ll-hls/cam/cam__subs_en.m3u8"),
    ("cam_adaptive.m3u8", "cam__adaptive_subs_en.m3u8"),
    ("ll-hls/cam/cam__master_adaptive.m3u8", "ll-hls/cam/cam__adaptive_subs_en.m3u8"),
];

fn text(server: &Server, path: &str) -> String {
    String::from_utf8(fetch(server, &format!("/live/streams/{path}"))).unwrap()
}

#[test]
fn subtitles_from_the_api_are_in_lists_segments_and_manifests() {
    for form in ["mpegts", "fmp4"] {
        let server = Server::start(&[&SETTINGS[..], &[&format!("app.hlsSegmentType={form}")]].concat());
        let post = |body: serde_json::Value| server.api().post(CALL, &body.to_string()).json();
        assert_eq!(post(json!({"text": "early"}))["message"], "Stream is not available");
        let _publisher = Program::ffmpeg_publish(&media_file(false, 40), &server.rtmp_url("live/cam"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        assert_eq!(post(json!({"text": "x", "language": "fr"}))["success"], false);
        for (master, list) in LISTS {
            let told = server.api().get(&format!("/live/streams/{master}")).body;
            let uri = list.rsplit_once('/').map_or(list, |(_, uri)| uri);
            let line = format!(
                "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subtitles\",NAME=\"English\",LANGUAGE=\"en\",AUTOSELECT=YES,URI=\"{uri}\"\n"
            );
            assert!(told.contains(&line) && told.contains(",SUBTITLES=\"subtitles\""), "{told}");
        }
        let said = |list: &str| media(&server, &format!("/live/streams/{list}"));
        let mut count = 0;
        wait_for("cues in all lists", secs(40), || {
            count += 1;
            // Cues are sent only with every fifth try, so that they stay below the number that a stream accepts in a
            // burst.
            if count % 5 == 1 {
                let cue = json!({"text": format!("HELLO {count}\n& goodbye"), "duration": 2.5});
                assert_eq!(post(cue)["success"], true);
                let german = "WEBVTT\n\n00:00.200 --> 00:01.500\n<i>hallo</i>\n";
                let fields = [("Content-Type", "text/vtt")];
                let path = format!("{CALL}?language=deu");
                let reply = server.api().call_with("POST", &path, &fields, Some(german));
                assert_eq!((reply.status, &reply.json()["success"]), (200, &json!(true)));
            }
            LISTS.iter().all(|(_, list)| {
                let german = list.replace("_en", "_de");
                contains(&said(list), "HELLO") && contains(&said(&german), "<i>hallo</i>")
            })
        });
        // ffmpeg reads each segment as a separate file.
        let home = Home::new();
        let file = home.path().join("segment.vtt");
        for (_, list) in LISTS {
            let playlist = text(&server, list);
            let folder = list.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
            let uris = playlist.lines().filter(|line| line.ends_with(".vtt"));
            let segments = uris.map(|uri| fetch(&server, &format!("/live/streams/{folder}{uri}")));
            let segments: Vec<Vec<u8>> = segments.collect();
            assert!(segments.iter().all(|one| read_webvtt(one).is_ok()), "{playlist}");
            let one = segments.iter().find(|one| contains(one, "HELLO")).unwrap();
            std::fs::write(&file, one).unwrap();
            let mut command = Command::new("ffmpeg");
            command.args(["-v", "error", "-nostdin", "-i"]).arg(&file).args(["-f", "srt", "-"]);
            let (status, out, err) = run(&mut command);
            assert!(status.success() && out.contains("& goodbye") && err.is_empty(), "{out}{err}");
        }
        // The segment numbers equal those of the video.
        let number = |list: &str| {
            let text = text(&server, list);
            let line = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MEDIA-SEQUENCE:"));
            line.unwrap().parse::<u64>().unwrap()
        };
        let (video, english) = (number("ll-hls/cam/cam__video.m3u8"), number("ll-hls/cam/cam__subs_en.m3u8"));
        assert!(video.abs_diff(english) <= 1, "{video} {english}");
        for name in ["cam/cam.mpd", "cam/cam_adaptive.mpd"] {
            let manifest = server.api().get(&format!("/live/streams/{name}")).body;
            assert_eq!(manifest.matches("codecs=\"wvtt\"").count(), 2, "{manifest}");
        }
        // Players without support for these subtitles can still read the playlist, as ffprobe does.
        let url = format!("http://{}/live/streams/{}", server.http, LISTS[1].0);
        let mut command = Command::new("ffprobe");
        let (status, out, err) =
            run(command.args(["-v", "error", "-show_entries", "stream=codec_type", &url]));
        assert!(status.success() && out.contains("codec_type=video"), "{out}{err}");
    }
}

#[test]
fn t_22_a_flood_of_cues_is_refused_and_costs_the_stream_nothing() {
    let server = Server::start(&SETTINGS);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 20), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let list = LISTS[0].1;
    wait_for("segments", secs(30), || text(&server, list).contains("#EXTINF"));
    let cues = json!(vec![json!({"text": "x".repeat(900), "duration": 600}); 64]);
    let statuses: Vec<u16> = (0..40).map(|_| server.api().post(CALL, &cues.to_string()).status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    let (before, pictures) = (text(&server, list), text(&server, "ll-hls/cam/cam__video.m3u8"));
    wait_for("the stream to go on", secs(30), || {
        text(&server, list) != before && text(&server, "ll-hls/cam/cam__video.m3u8") != pictures
    });
    let playlist = text(&server, list);
    let uris = playlist.lines().filter(|line| line.ends_with(".vtt"));
    let largest = uris.map(|uri| fetch(&server, &format!("/live/streams/ll-hls/cam/{uri}")).len()).max();
    assert!(largest.unwrap() < 40_000, "{largest:?}");
}

#[test]
fn script_data_of_a_publisher_is_subtitles_by_setting() {
    let home = Home::new();
    let captions = caption_file(home.path());
    for is_wanted in [true, false] {
        let relayed = format!("app.relayRTMPMetaDataToMuxers={is_wanted}");
        let server = Server::start(&[&SETTINGS[..], &[&relayed, "app.hlsListSize=40"]].concat());
        let mut command = Command::new("ffmpeg");
        command
            .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"])
            .arg(media_file(false, 12));
        command.arg("-i").arg(&captions).args(["-c", "copy", "-c:s", "text", "-f", "flv"]);
        let mut publisher = Program::start(command.arg(server.rtmp_url("live/cam")));
        assert!(publisher.wait(secs(40)).is_some_and(|status| status.success()));
        let media = media(&server, &format!("/live/streams/{}", LISTS[0].1));
        assert!(contains(&media, "WEBVTT"));
        assert_eq!(contains(&media, "caption number 5"), is_wanted);
    }
}

#[test]
fn hls_js_and_dash_js_show_subtitles() {
    let server = Server::start(&SETTINGS);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 180), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    for name in ["ll-hls/cam/cam__master.m3u8", "cam_adaptive.m3u8", "cam/cam.mpd"] {
        assert_eq!(server.api().get(&format!("/live/streams/{name}")).status, 200);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/subtitles.py");
        let mut command = Command::new(python());
        let (status, said, told) = run(command.arg(script).args([&format!("http://{}/", server.http), name]));
        assert!(status.success() && said.trim() == "ok", "{name}: {said}{told}");
    }
}
