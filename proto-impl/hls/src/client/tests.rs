//! The client with an origin that follows a script, in virtual time.

use std::collections::BTreeMap;

use super::*;
use crate::Playlist;
use crate::limits::{INIT_BYTES_MAX, PLAYLIST_BYTES_MAX, RELOAD_MIN, SEGMENT_BYTES_MAX};

const URL: &str = "http://o/live/p.m3u8";

/// Bodies by URL; requests for other URLs fail.
struct Origin {
    now: Instant,
    begin: Instant,
    client: Client,
    files: BTreeMap<String, Vec<u8>>,
    requests: Vec<(Duration, Request)>,
    events: Vec<Event>,
}

#[allow(clippy::disallowed_methods, reason = "an epoch; time is virtual from here on")]
fn pulls(files: &[(&str, &str)]) -> Origin {
    let begin = Instant::now();
    let client = Client::new(URL, Config::default(), begin).unwrap();
    let files = files.iter().map(|(url, body)| ((*url).to_owned(), body.as_bytes().to_vec())).collect();
    Origin { now: begin, begin, client, files, requests: Vec::new(), events: Vec::new() }
}

impl Origin {
    /// Answers requests and advances the virtual time until `time` has passed or the pull has ended.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while let Some(request) = self.client.poll_request() {
                assert!(self.client.poll_request().is_none(), "one request at a time");
                self.requests.push((self.now - self.begin, request.clone()));
                self.answer(&request);
            }
            self.events.extend(std::iter::from_fn(|| self.client.poll_event()));
            let Some(at) = self.client.poll_timeout().filter(|at| *at <= end) else { break };
            assert!(at > self.now, "a deadline in the past");
            self.now = at;
            self.client.handle_timeout(at);
        }
        self.now = end;
        self.client.handle_timeout(end);
        for (at, (time, request)) in self.requests.iter().enumerate() {
            let again = self.requests[..at].iter().rev().find(|(_, before)| before == request);
            assert!(again.is_none_or(|(before, _)| *time - *before >= RELOAD_MIN), "{request:?} too soon");
        }
    }

    fn answer(&mut self, request: &Request) {
        let Some(body) = self.files.get(&request.url) else {
            return self.client.handle_failure(self.now, "404");
        };
        if let Some(status) = body.strip_prefix(b"!") {
            return self.client.handle_failure(self.now, std::str::from_utf8(status).unwrap());
        }
        if let Some(location) = body.strip_prefix(b"->") {
            return self.client.handle_redirect(self.now, std::str::from_utf8(location).unwrap());
        }
        let body = match request.range {
            Some((first, last)) => &body[usize::try_from(first).unwrap()..=usize::try_from(last).unwrap()],
            None => body,
        };
        for piece in body.chunks(64 * 1024) {
            if !self.client.handle_body(self.now, Bytes::copy_from_slice(piece)) {
                return;
            }
        }
        self.client.handle_response_end(self.now);
    }

    fn media(&self) -> String {
        let bytes = self.events.iter().filter_map(|event| match event {
            Event::Media { bytes, .. } | Event::Init { bytes, .. } => Some(bytes.to_vec()),
            Event::Begin { .. } | Event::End { .. } | Event::Lost { .. } | Event::Ended(_) => None,
        });
        String::from_utf8(bytes.flatten().collect()).unwrap()
    }

    fn lost(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Lost { .. })).count()
    }

    fn discontinuities(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Begin { discontinuity: true, .. })).count()
    }

    fn ended(&self) -> Option<&str> {
        match self.events.last() {
            Some(Event::Ended(reason)) => Some(reason),
            _ => None,
        }
    }

    fn put(&mut self, name: &str, body: impl Into<Vec<u8>>) {
        self.files.insert(format!("http://o/live/{name}"), body.into());
    }

    /// Stores a live playlist of one-second segments. Each segment's content is its number.
    fn live(&mut self, numbers: std::ops::Range<u64>) {
        let mut text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{}\n", numbers.start);
        for number in numbers {
            text += &format!("#EXTINF:1,\n{number}.ts\n");
            self.put(&format!("{number}.ts"), format!("[{number}]"));
        }
        self.put("p.m3u8", text);
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_live_stream_begins_three_target_durations_from_its_end_and_goes_on() {
    let mut origin = pulls(&[]);
    origin.live(10..20);
    origin.run(Duration::from_millis(900));
    origin.live(11..22);
    origin.run(secs(1));
    assert_eq!(origin.media(), "[17][18][19][20][21]");
    assert_eq!((origin.lost(), origin.discontinuities()), (0, 0));
    origin.run(secs(30));
    assert!(origin.ended().unwrap().contains("no new segment"));
    assert_eq!((origin.client.poll_request(), origin.client.poll_timeout()), (None, None));
}

#[test]
fn a_recording_is_pulled_whole_with_maps_ranges_and_keys() {
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MAP:URI=\"i\",BYTERANGE=\"2@1\"\n#EXTINF:1,\n\
        #EXT-X-BYTERANGE:2@0\na\n#EXTINF:1,\n#EXT-X-BYTERANGE:1\na\n#EXT-X-MAP:URI=\"j\"\n#EXTINF:1,\nb\n#EXT-X-ENDLIST\n";
    let mut origin = pulls(&[(URL, text)]);
    for (name, body) in [("i", "xIIx"), ("a", "123"), ("j", "J"), ("b", "4")] {
        origin.put(name, body);
    }
    origin.run(secs(5));
    assert_eq!((origin.media().as_str(), origin.ended()), ("II123J4", Some("the stream has ended")));
}

#[test]
fn the_best_variant_that_is_carried_comes_with_its_audio() {
    let master = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"x\",URI=\"x\"\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"y\",DEFAULT=YES,URI=\"y\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=9,CODECS=\"vp08\"\nno\n#EXT-X-STREAM-INF:BANDWIDTH=2,CODECS=\"avc1.1,mp4a.40.2\",AUDIO=\"g\"\nv\n\
        #EXT-X-STREAM-INF:BANDWIDTH=99\nfile:///etc/passwd\n";
    let mut origin = pulls(&[(URL, master)]);
    origin.put("v", "#EXTM3U\n#EXTINF:1,\n1\n#EXT-X-ENDLIST\n");
    origin.put("y", "#EXTM3U\n#EXTINF:1,\n2\n#EXT-X-ENDLIST\n");
    origin.put("1", "main");
    origin.put("2", "audio");
    origin.run(secs(5));
    let audio = Event::Media { rendition: Rendition::Audio, bytes: Bytes::from_static(b"audio") };
    assert!(origin.events.contains(&audio) && origin.media().contains("main"));
    assert_eq!(origin.ended(), Some("the stream has ended"));
}

/// Three variants with the best one last, and a backup for it.
const MASTER: &str = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlow\n#EXT-X-STREAM-INF:BANDWIDTH=2\nmiddle\n\
    #EXT-X-STREAM-INF:BANDWIDTH=3\nhigh\n#EXT-X-STREAM-INF:BANDWIDTH=3\nhigh2\n#EXT-X-STREAM-INF:BANDWIDTH=3\nhigh\n";

/// Stores a recording of three one-second segments. Each segment's content is the name and the segment's
/// number.
fn recording(origin: &mut Origin, name: &str) {
    let segments: String = (0..3).map(|n| format!("#EXTINF:1,\n{name}{n}.ts\n")).collect();
    origin.put(name, format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n{segments}#EXT-X-ENDLIST\n"));
    (0..3).for_each(|n| origin.put(&format!("{name}{n}.ts"), format!("[{name}{n}]")));
}

#[test]
fn a_variant_that_fails_gives_way_to_the_next_best_one() {
    let ended = "the stream has ended";
    let failed = |status| format!("the playlist could not be fetched: {status}");
    // Each case: the answers for the variants from best to worst (empty: a recording; otherwise a status),
    // the content pulled, and the reason for the end.
    type Answers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Answers<'_>, &str, String); 6] = [
        (&[("high", ""), ("middle", ""), ("low", "")], "[high0][high1][high2]", ended.to_owned()),
        (&[("high", "404"), ("high2", ""), ("low", "")], "[high20][high21][high22]", ended.to_owned()),
        (
            &[("high", "404"), ("high2", "404"), ("middle", "")],
            "[middle0][middle1][middle2]",
            ended.to_owned(),
        ),
        (
            &[("high", "404"), ("high2", "404"), ("middle", "500"), ("low", "")],
            "[low0][low1][low2]",
            ended.to_owned(),
        ),
        (&[("high", "404"), ("high2", "404"), ("middle", "404"), ("low", "404")], "", failed("404")),
        (&[("high", "404"), ("high2", "500"), ("middle", "404"), ("low", "503")], "", failed("503")),
    ];
    for (answers, media, end) in cases {
        let mut origin = pulls(&[(URL, MASTER)]);
        for (name, status) in answers {
            recording(&mut origin, name);
            if !status.is_empty() {
                origin.put(name, format!("!{status}"));
            }
        }
        origin.run(secs(60));
        assert_eq!((origin.media().as_str(), origin.ended()), (media, Some(end.as_str())), "{answers:?}");
        // A failing variant is requested four times, and never again.
        for (name, status) in answers.iter().filter(|(_, status)| !status.is_empty()) {
            let of = |(_, request): &&(Duration, Request)| request.url.ends_with(&format!("/{name}"));
            assert_eq!(origin.requests.iter().filter(of).count(), 4, "{name} {status}");
        }
        let begins = origin.events.iter().filter(|event| matches!(event, Event::Begin { .. })).count();
        assert_eq!((origin.discontinuities(), begins), (0, media.matches('[').count()));
    }
}

#[test]
fn a_variant_that_dies_is_left_where_it_was() {
    // Live: the playlist is gone after a while.
    let mut origin = pulls(&[(URL, MASTER)]);
    let live = |origin: &mut Origin, name: &str, numbers: std::ops::Range<u64>| {
        origin.live(numbers);
        let body = origin.files["http://o/live/p.m3u8"].clone();
        origin.put(name, body);
        origin.put("p.m3u8", MASTER);
    };
    live(&mut origin, "high", 10..13);
    live(&mut origin, "middle", 10..13);
    origin.run(secs(1));
    assert_eq!(origin.media(), "[10][11][12]");
    origin.files.remove("http://o/live/high");
    origin.run(secs(1));
    live(&mut origin, "middle", 12..16);
    origin.run(Duration::from_millis(4900));
    assert!(origin.media().starts_with("[10][11][12][13][14][15]"), "{}", origin.media());
    assert_eq!((origin.discontinuities(), origin.ended()), (1, None));
    // The variant to which the client has changed fails, too.
    origin.put("middle", "!410");
    origin.run(secs(10));
    assert_eq!(
        origin.ended(),
        Some("the playlist could not be fetched: 404"),
        "of the last one, which is not there"
    );

    // A recording whose segments can no longer be fetched: the pull continues with the next variant.
    let mut origin = pulls(&[(URL, MASTER)]);
    let names = |name: &str| (0..9).map(|n| format!("{name}{n}.ts")).collect::<Vec<_>>();
    for name in ["high", "low"] {
        let segments: String = names(name).iter().map(|segment| format!("#EXTINF:1,\n{segment}\n")).collect();
        origin.put(name, format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n{segments}#EXT-X-ENDLIST\n"));
        names(name).iter().enumerate().for_each(|(n, segment)| origin.put(segment, format!("[{name}{n}]")));
    }
    names("high")
        .iter()
        .skip(2)
        .for_each(|segment| drop(origin.files.remove(&format!("http://o/live/{segment}"))));
    origin.run(secs(60));
    assert_eq!(origin.media(), "[high0][high1][low7][low8]");
    assert_eq!((origin.discontinuities(), origin.ended()), (1, Some("the stream has ended")));
}

#[test]
fn once_segments_have_come_the_next_variant_has_its_audio_where_the_last_had_it() {
    let master = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"x\",URI=\"sound\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=3,AUDIO=\"g\"\nhigh\n#EXT-X-STREAM-INF:BANDWIDTH=2\nmiddle\n\
        #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"g\"\nlow\n";
    for (has_begun, taken) in [(true, "low"), (false, "middle")] {
        let mut origin = pulls(&[(URL, master)]);
        ["high", "middle", "low", "sound"].iter().for_each(|name| recording(&mut origin, name));
        let high = String::from_utf8(origin.files["http://o/live/high"].clone()).unwrap();
        let cut = high.split("#EXTINF:1,\nhigh2.ts").next().unwrap().to_owned();
        origin.put("high", if has_begun { cut } else { "!404".to_owned() });
        if !has_begun {
            origin.files.remove("http://o/live/sound");
        }
        origin.run(secs(1));
        origin.files.remove("http://o/live/high");
        origin.run(secs(60));
        let others = ["middle", "low"].map(|name| (name, origin.media().contains(&format!("[{name}"))));
        assert_eq!(others, ["middle", "low"].map(|name| (name, name == taken)), "{}", origin.media());
    }
}

#[test]
fn a_bandwidth_that_is_not_to_be_exceeded_holds_for_what_is_fallen_back_to() {
    let playlist = |max| {
        let Ok(Playlist::Multivariant(playlist)) = Playlist::read(MASTER.as_bytes()) else { panic!() };
        let base = Url::read(URL).unwrap();
        let names = choose::choices(&playlist, &base, max).into_iter().map(|choice| choice.main.to_string());
        names.map(|url| url.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(playlist(None), ["high", "high2", "middle", "low"]);
    assert_eq!(playlist(Some(2)), ["middle", "low"]);
    assert_eq!(playlist(Some(0)), ["low", "middle", "high", "high2"]);
}

#[test]
fn aes_128_is_opened_and_sample_aes_is_refused() {
    // The bytes 0 to 19, encrypted with a key and an initialization vector of zeros.
    let sealed = crate::decrypt::SEALED;
    let text = "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:1,\na\n#EXT-X-ENDLIST\n";
    let mut origin = pulls(&[(URL, text)]);
    origin.put("k", [0; 16]);
    origin.put("a", sealed);
    origin.run(secs(5));
    assert_eq!(origin.media().into_bytes(), (0..20).collect::<Vec<u8>>());
    let mut refused = pulls(&[(URL, &text.replace("AES-128", "SAMPLE-AES"))]);
    refused.run(secs(5));
    assert!(refused.ended().unwrap().contains("SAMPLE-AES"));
}

#[test]
fn t_10_restarted_sequences_discontinuities_and_missing_segments() {
    let mut origin = pulls(&[]);
    origin.live(100..103);
    origin.run(Duration::from_millis(900));
    origin.live(0..2);
    origin.run(secs(1));
    assert_eq!(
        (origin.media().as_str(), origin.discontinuities(), origin.lost()),
        ("[100][101][102][0][1]", 1, 0)
    );
    // Segment 3 is missing; later, the window has moved past the segments still to be fetched.
    origin.live(0..5);
    origin.files.remove("http://o/live/3.ts");
    origin.run(secs(2));
    assert_eq!((origin.media().as_str(), origin.lost()), ("[100][101][102][0][1][2][4]", 1));
    origin.live(7..9);
    origin.run(secs(2));
    assert!(origin.media().ends_with("[4][7][8]"));
    assert_eq!(origin.lost(), 2);
}

#[test]
fn u_33_redirections_are_followed_five_times_and_loops_end() {
    let mut origin = pulls(&[(URL, "->p.m3u8")]);
    origin.run(secs(60));
    assert!(origin.ended().unwrap().contains("too many redirections"));
    assert_eq!(origin.requests.len(), 4 * 6);
    let mut away = pulls(&[(URL, "->file:///etc/passwd")]);
    away.run(secs(60));
    assert!(away.ended().unwrap().contains("neither http nor https"));
}

#[test]
fn u_35_nothing_but_http_is_requested() {
    let text = "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"file:///etc/passwd\"\n".to_owned()
        + &"#EXTINF:1,\nfile:///etc/passwd\n".repeat(10)
        + "#EXT-X-ENDLIST\n";
    for text in [text.clone(), text.replace("#EXT-X-KEY", "#EXT-X-NONE")] {
        let mut origin = pulls(&[(URL, &text)]);
        origin.run(secs(60));
        assert!(origin.ended().is_some());
        assert_eq!(origin.requests.len(), 1);
    }
}

#[test]
fn u_35_a_target_duration_of_zero_is_no_busy_poll() {
    let mut origin = pulls(&[(URL, "#EXTM3U\n#EXT-X-TARGETDURATION:0\n#EXTINF:0,\na\n")]);
    origin.put("a", "");
    origin.run(secs(60));
    assert!(origin.requests.len() < 30, "{}", origin.requests.len());
    assert!(origin.ended().unwrap().contains("no new segment"));
}

#[test]
fn u_35_answers_without_end_are_cut_off() {
    let mut origin = pulls(&[]);
    origin.put("p.m3u8", vec![b'#'; PLAYLIST_BYTES_MAX + 1]);
    origin.run(secs(60));
    assert!(origin.ended().unwrap().contains("too long"));
    let text = "#EXTM3U\n#EXT-X-MAP:URI=\"i\"\n#EXTINF:1,\na\n#EXT-X-ENDLIST\n";
    let mut init = pulls(&[(URL, text)]);
    init.put("i", vec![0; INIT_BYTES_MAX + 1]);
    init.run(secs(60));
    assert_eq!((init.lost(), init.media().as_str()), (1, ""));
}

#[test]
fn u_35_a_segment_of_a_gigabyte_is_lost_at_its_cap() {
    let mut origin = pulls(&[(URL, "#EXTM3U\n#EXTINF:1,\na\n#EXT-X-ENDLIST\n")]);
    let request = origin.client.poll_request().unwrap();
    origin.answer(&request);
    origin.now += secs(1);
    origin.client.handle_timeout(origin.now);
    assert_eq!(origin.client.poll_request().unwrap().url, "http://o/live/a");
    let piece = Bytes::from(vec![0; 1 << 20]);
    let mut passed = 0;
    while origin.client.handle_body(origin.now, piece.clone()) {
        passed += piece.len() as u64;
        origin.events.clear();
        origin.events.extend(std::iter::from_fn(|| origin.client.poll_event()));
        assert!(origin.events.len() <= 2);
    }
    assert_eq!(passed, SEGMENT_BYTES_MAX);
    origin.run(secs(5));
    assert_eq!((origin.lost(), origin.ended()), (1, Some("the stream has ended")));
}
