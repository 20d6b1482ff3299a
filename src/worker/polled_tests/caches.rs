//! Responses for caches: how long they are good, and manifests that state the time of the request.

use super::*;
use crate::types::Calendar;

#[test]
fn a_manifest_is_sent_anew_when_the_time_that_it_states_has_passed() {
    let mut pair = Pair::new();
    let text = "<MPD>\n<UTCTiming schemeIdUri=\"urn:mpeg:dash:utc:direct:2014\" value=\"\"/>\n</MPD>\n";
    pair.publish_blob(Blob {
        content_type: "application/dash+xml",
        calendar: Some(Calendar::new(pair.now)),
        bytes: text.into(),
        ..plain_blob(STREAM, "cam/cam.mpd")
    });
    let ask = |pair: &mut Pair, headers: &str| {
        pair.headers = Box::leak(headers.to_owned().into_boxed_str());
        let answer = pair.get("/live/streams/cam/cam.mpd", [192, 0, 2, 1]).0;
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().to_owned();
        let tag = answer.split("ETag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        (status, tag, answer)
    };
    let (_, tag, first) = ask(&mut pair, "");
    assert!(first.contains("value=\"1970-01-01T00:00:00.000Z\""), "{first}");
    let known = format!("If-None-Match: {tag}\r\n");
    assert_eq!(ask(&mut pair, &known).0, "304", "the same millisecond");
    pair.pass(Duration::from_secs(1));
    let (status, newer, second) = ask(&mut pair, &known);
    assert!(status == "200" && newer != tag && second.contains("T00:00:01.000Z"), "{second}");
}

#[test]
fn caches_are_told_how_long_what_they_are_sent_is_good() {
    let more = [("hls.segmentCacheControl", "max-age=60"), ("playTokenControlEnabled", "true")];
    for (settings, plain, reload, segment) in [
        (&more[..0], "no-cache", "max-age=12", "max-age=10"),
        (&more[..1], "no-cache", "max-age=12", "max-age=60"),
        (
            &[("hls.reloadCacheControl", "max-age=3"), ("hls.playlistCacheControl", "max-age=1")],
            "max-age=1",
            "max-age=3",
            "max-age=10",
        ),
        (&[("hls.identifyViewers", "cookie")], "no-cache", "no-cache", "max-age=10"),
    ] {
        let mut pair = Pair::with(settings);
        pair.playlist(1, 7, 0);
        pair.publish_typed("1.ts", "video/mp2t");
        let mut told = |target: &str| {
            let answer =
                String::from_utf8(pair.get(&format!("/live/streams/{target}"), [192, 0, 2, 1]).0).unwrap();
            answer.split("Cache-Control: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned()
        };
        let asked = format!("{PLAYLIST}?_HLS_msn=6");
        assert_eq!([told(PLAYLIST), told(&asked), told("1.ts")], [plain, reload, segment], "{settings:?}");
    }
}
