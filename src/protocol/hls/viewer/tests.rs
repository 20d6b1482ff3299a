use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MS: i64 = 1_767_225_600_000;

struct Rig {
    now: Instant,
    viewer: Viewer,
}

impl Rig {
    fn new(url: &str) -> Self {
        let now = Instant::now();
        Self { now, viewer: Viewer::new(url, now).unwrap() }
    }

    /// Returns the path of the request that the viewer makes now.
    fn asks(&mut self) -> String {
        self.viewer.handle_timeout(self.now);
        let mut out = SendQueue::new();
        self.viewer.poll_transmit(&mut out);
        let text = String::from_utf8(out.take_all().to_vec()).unwrap();
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    fn answer(&mut self, status: &str, body: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        for piece in answer.as_bytes().chunks(50) {
            self.viewer.handle_bytes(self.now, piece);
        }
    }

    /// Answers the viewer's request for `path`.
    fn gives(&mut self, path: &str, body: &str) {
        assert_eq!(self.asks(), path);
        self.answer("200 OK", body);
    }

    /// Checks that nothing is requested until `time` has passed.
    fn waits(&mut self, time: Duration) {
        self.now += time - Duration::from_millis(1);
        assert_eq!(self.asks(), "");
        self.now += Duration::from_millis(1);
        assert_eq!(self.viewer.poll_timeout(), Some(self.now));
    }

    /// Returns the numbers of the received pieces, each with the time at which it was made, counted from [`MS`],
    /// if known.
    fn pieces(&mut self) -> Vec<(bool, u64, Option<i64>)> {
        let events = std::iter::from_fn(|| self.viewer.poll_event());
        let piece = |event| {
            let LoadEvent::Piece { is_video, number, made_ms, .. } = event else { return None };
            Some((is_video, number, made_ms.map(|ms| ms - MS)))
        };
        events.filter_map(piece).collect()
    }

    fn closed(&mut self) -> String {
        let mut events = std::iter::from_fn(|| self.viewer.poll_event());
        let reason = |event| if let LoadEvent::Closed(reason) = event { Some(reason) } else { None };
        events.find_map(reason).unwrap_or_default()
    }
}

/// Segments of 2 s from `first` on.
fn playlist(first: u64, count: u64) -> String {
    let mut text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:{first}\n");
    text.push_str("#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00Z\n");
    (first..first + count).for_each(|n| text.push_str(&format!("#EXTINF:2,\n{n}.ts\n")));
    text
}

/// Segment 1 with two parts, and segment 2 with this number of parts.
fn low(parts: usize) -> String {
    let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:1\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,CAN-SKIP-UNTIL=12,PART-HOLD-BACK=3\n\
        #EXT-X-PART-INF:PART-TARGET=1\n#EXT-X-MAP:URI=\"i.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00Z\n\
        #EXT-X-PART:DURATION=1,URI=\"1-0\"\n#EXT-X-PART:DURATION=1,URI=\"1-1\"\n#EXTINF:2,\n1.m4s\n"
        .to_owned();
    (0..parts).for_each(|n| text.push_str(&format!("#EXT-X-PART:DURATION=1,URI=\"2-{n}\"\n")));
    text + &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"2-{parts}\"\n")
}

#[test]
fn segments_from_near_the_end_and_the_playlist_every_target_duration() {
    let mut rig = Rig::new("http://h/a/x.m3u8?t=1");
    rig.gives("/a/x.m3u8?t=1", &playlist(5, 6));
    assert!(matches!(rig.viewer.poll_event(), Some(LoadEvent::Ready)));
    for n in 8..11 {
        rig.gives(&format!("/a/{n}.ts"), "media");
    }
    // Each segment ends two seconds after the one before. Number 5 is the first in the playlist.
    assert_eq!(rig.pieces(), [(true, 0, Some(8000)), (true, 1, Some(10_000)), (true, 2, Some(12_000))]);
    rig.waits(Duration::from_secs(2));
    rig.gives("/a/x.m3u8?t=1", &playlist(5, 6));
    rig.waits(Duration::from_secs(1));
    // Segments 11 and 12 were listed and removed since the last reload.
    rig.gives("/a/x.m3u8?t=1", &playlist(13, 2));
    rig.gives("/a/13.ts", "media");
    assert_eq!(rig.asks(), "/a/14.ts");
    rig.answer("404 Not Found", "");
    assert_eq!(rig.pieces(), [(true, 5, Some(2000))]);
    rig.waits(Duration::from_secs(2));
    // The rest of an invalid answer is not read: the next request uses another connection.
    rig.gives("/a/x.m3u8?t=1", &(playlist(13, 3) + "#EXT-X-ENDLIST\n"));
    rig.gives("/a/15.ts", "media");
    assert_eq!(rig.pieces(), [(true, 7, Some(6000))]);
    rig.now += Duration::from_secs(2);
    rig.gives("/a/x.m3u8?t=1", &(playlist(13, 3) + "#EXT-X-ENDLIST\n"));
    assert_eq!(rig.closed(), "the stream has ended");
}

#[test]
fn low_latency_waits_for_playlists_and_for_hinted_parts_in_turn() {
    let mut rig = Rig::new("http://h/x.m3u8");
    rig.gives("/x.m3u8", &low(1));
    rig.gives("/i.mp4", "init");
    for part in ["/1-0", "/1-1", "/2-0"] {
        rig.gives(part, "media");
    }
    assert_eq!(rig.pieces(), [(true, 0, Some(1000)), (true, 1, Some(2000)), (true, 2, Some(3000))]);
    rig.gives("/2-1", "media");
    assert_eq!(rig.pieces(), [], "not counted before it is known when it was made");
    let hinted_at = rig.now;
    rig.now += Duration::from_millis(700);
    rig.gives("/x.m3u8?_HLS_msn=2&_HLS_part=2&_HLS_skip=YES", &low(3));
    let came = std::iter::from_fn(|| rig.viewer.poll_event()).last();
    let Some(LoadEvent::Piece { number: 3, made_ms: Some(made), at, .. }) = came else { panic!("{came:?}") };
    assert_eq!((made - MS, at), (4000, hinted_at));
    rig.gives("/2-2", "media");
    assert_eq!(rig.pieces(), [(true, 4, Some(5000))]);
    rig.gives("/2-3", "media");
    rig.gives("/x.m3u8?_HLS_msn=2&_HLS_part=4&_HLS_skip=YES", &low(7));
    assert_eq!(rig.pieces(), [(true, 5, Some(6000))]);
    // After a missing part, the other parts that were listed with it are not requested.
    assert_eq!(rig.asks(), "/2-4");
    rig.answer("404 Not Found", "");
    rig.gives("/2-7", "media");
    rig.gives("/x.m3u8?_HLS_msn=2&_HLS_part=8&_HLS_skip=YES", &low(9));
    rig.gives("/2-8", "media");
    assert_eq!(rig.pieces(), [(true, 9, Some(10_000)), (true, 10, Some(11_000))]);
    // The hinted part does not exist after all, and the playlist is no newer.
    assert_eq!(rig.asks(), "/2-9");
    rig.answer("404 Not Found", "");
    rig.gives("/x.m3u8?_HLS_msn=2&_HLS_part=9&_HLS_skip=YES", &low(9));
    rig.waits(Duration::from_secs(1));
}

#[test]
fn the_audio_beside_the_video_is_followed_too() {
    let mut rig = Rig::new("http://h/a/m.m3u8");
    let master = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"s\",NAME=\"s\",DEFAULT=YES,URI=\"s.m3u8\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"s\"\nv.m3u8\n";
    rig.gives("/a/m.m3u8", master);
    rig.gives("/a/v.m3u8", &playlist(1, 1));
    rig.gives("/a/1.ts", "media");
    rig.gives("/a/s.m3u8", &playlist(4, 1));
    rig.gives("/a/4.ts", "media");
    assert_eq!(rig.pieces(), [(true, 0, Some(2000)), (false, 0, Some(2000))]);
}

#[test]
fn a_server_may_close_between_two_answers_and_only_there() {
    let mut rig = Rig::new("http://h/x.m3u8");
    rig.viewer.handle_end(rig.now);
    assert!(!rig.viewer.outlives_stream() && rig.closed().contains("closed the connection"));
    let mut rig = Rig::new("http://h/x.m3u8");
    rig.gives("/x.m3u8", &playlist(1, 1));
    rig.gives("/1.ts", "media");
    rig.viewer.handle_end(rig.now);
    assert!(rig.viewer.outlives_stream());
    rig.now += Duration::from_secs(2);
    assert_eq!(rig.asks(), "/x.m3u8");
    let reconnects = |event| matches!(event, LoadEvent::Reconnect);
    assert!(std::iter::from_fn(|| rig.viewer.poll_event()).any(reconnects));
    assert!(!rig.viewer.outlives_stream(), "nothing was answered over this one");
}

#[test]
fn numbers_at_their_end_are_no_panic() {
    let mut rig = Rig::new("http://h/x.m3u8");
    let max = u64::MAX;
    for text in [
        format!("#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:{max}\n#EXTINF:1,\na\n#EXTINF:1,\nb\n"),
        format!(
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:9\n#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES\n\
             #EXT-X-PART-INF:PART-TARGET=1\n#EXT-X-SKIP:SKIPPED-SEGMENTS={max}\n#EXTINF:1,\na\n#EXTINF:1,\nb\n"
        ),
    ] {
        rig.asks();
        rig.answer("200 OK", &text);
        rig.now += Duration::from_secs(60);
        rig.pieces();
    }
}

#[test]
fn what_cannot_be_played_has_a_reason() {
    for (status, body, why) in [
        ("404 Not Found", "", "HTTP 404 Not Found"),
        ("302 Found\r\nLocation: http://g/", "", "redirects"),
        ("200 OK", "<html>", "EXTM3U"),
        ("200 OK", "#EXTM3U\n#EXTINF:2,\nhttp://cdn/1.ts\n", "another server"),
        ("200 OK", "#EXTM3U\n#EXTINF:2,\nfile:///1.ts\n", "cannot be requested"),
        ("200 OK", "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"none\"\nv.m3u8\n", "no variant"),
    ] {
        let mut rig = Rig::new("http://h/x.m3u8");
        rig.asks();
        rig.answer(status, body);
        let reason = rig.closed();
        assert!(reason.contains(why), "{reason} for {why}");
    }
    let mut rig = Rig::new("http://h/x.m3u8");
    rig.gives("/x.m3u8", &playlist(1, 1));
    rig.gives("/1.ts", "media");
    for _ in 0..12 {
        rig.now += Duration::from_secs(1);
        if !rig.asks().is_empty() {
            rig.answer("200 OK", &playlist(1, 1));
        }
    }
    assert!(rig.closed().contains("too long"));
}

proptest! {
    #[test]
    fn hostile_playlists_never_panic(
        lines in prop::collection::vec((any::<u64>(), 0..6usize, "[a-z0-9:/.]{0,8}"), 0..12),
        cut in 0usize..400,
    ) {
        let mut rig = Rig::new("http://h/x.m3u8");
        for _ in 0..4 {
            let line = |(number, tag, text): &(u64, usize, String)| match tag {
                0 => format!("#EXT-X-MEDIA-SEQUENCE:{number}\n"),
                1 => format!("#EXTINF:{number},\n{text}\n"),
                2 => format!("#EXT-X-PART:DURATION={number},URI=\"{text}\"\n"),
                3 => format!("#EXT-X-SKIP:SKIPPED-SEGMENTS={number}\n"),
                4 => "#EXT-X-PROGRAM-DATE-TIME:9999-12-31T23:59:59Z\n".to_owned(),
                _ => "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES\n#EXT-X-PART-INF:PART-TARGET=9\n".to_owned(),
            };
            let text = "#EXTM3U\n".to_owned() + &lines.iter().map(line).collect::<String>();
            rig.asks();
            rig.answer("200 OK", text.get(..text.len().min(cut.max(20))).unwrap_or_default());
            rig.now += Duration::from_secs(60);
            rig.pieces();
        }
    }
}
