//! Running pulls whose video waits for a key frame again.

use fmp4::{Description, Fragment, FragmentSample, init_segment};
use media::codec::{aac, h265, vp8};
use media::{CodecConfig, Timescale, nal};
use mpegts::{Kind, Muxer, StreamKind, Unit, ZERO};

use super::*;

fn aac_config() -> aac::Config {
    aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap()
}

/// The tracks of a file: VP8 with 25 pictures a second, and audio.
fn descriptions() -> [Description; 2] {
    let first_unit = Bytes::from_static(&[0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 16, 0, 16, 0]);
    let video = Description::new(1, CodecConfig::Vp8(vp8::Config::default()), Timescale::new(25));
    let audio = Description::new(2, CodecConfig::Aac(aac_config()), Timescale::new(48_000));
    [Description { first_unit, ..video }, audio]
}

/// A segment of two seconds.
fn segment(number: u32) -> Vec<u8> {
    let sample = |duration, key_frame| FragmentSample {
        duration,
        key_frame,
        composition: 0,
        payload: Bytes::from_static(&[1; 10]),
        subsamples: Vec::new(),
    };
    let [video, audio] = descriptions();
    let mut fragment = Fragment::new(number + 1);
    fragment.add(&video, u64::from(number) * 50, (0..50).map(|n| sample(1, n == 0)).collect());
    fragment.add(&audio, u64::from(number) * 96_000, (0..96).map(|_| sample(1000, true)).collect());
    fragment.write().unwrap().concat()
}

/// Pulls a playlist for `seconds`. `answer` returns the body for a path, or `None` if there is no such file.
fn pull_playlist(seconds: u64, answer: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<String> {
    let mut rig = Rig::new("http://h/x.m3u8");
    let mut events = Vec::new();
    let mut new = rig.connected();
    for step in 0..seconds * 50 {
        let request = String::from_utf8(rig.sent()).unwrap();
        if let Some(path) = request.split(' ').nth(1) {
            let (head, body) = match answer(path) {
                Some(body) => ("200 OK", body),
                None => ("404 Not Found", Vec::new()),
            };
            let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
            new.extend(rig.give(&[head.as_bytes(), &body].concat()));
        }
        if new.iter().any(|event| event == "publish") {
            new.extend(rig.grant());
        }
        if new.iter().any(|event| event.starts_with("Order(NextServer")) {
            new.extend(rig.connected());
        }
        events.append(&mut new);
        new = rig.run_to(Duration::from_millis(step * 20));
    }
    events
}

fn has_ended(events: &[String]) -> bool {
    events.iter().any(|event| event == "closed")
}

#[test]
fn a_lost_segment_or_another_index_does_not_end_a_pulled_playlist() {
    let playlist = |change: &str| {
        let segments = (0..20).map(|number| {
            let before = if number == 11 { change } else { "" };
            format!("{before}#EXTINF:2,\ns{number}.m4s\n")
        });
        let head = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:2\n#EXT-X-MAP:URI=\"a.mp4\"\n";
        format!("{head}{}#EXT-X-ENDLIST\n", segments.collect::<String>())
    };
    for (lost, change) in [(Some("/s11.m4s"), ""), (None, "#EXT-X-MAP:URI=\"b.mp4\"\n")] {
        let events = pull_playlist(36, |path| match path {
            _ if Some(path) == lost => None,
            "/x.m3u8" => Some(playlist(change).into_bytes()),
            "/a.mp4" | "/b.mp4" => Some(init_segment(&descriptions()).unwrap().to_vec()),
            _ => Some(segment(path.strip_prefix("/s")?.strip_suffix(".m4s")?.parse().ok()?)),
        });
        let tail = &events[events.len().saturating_sub(5)..];
        assert!(!has_ended(&events), "{lost:?}: {tail:?}");
        // Of 36 s with 73 units each, at most a segment is missing.
        assert!(count(&events) > 32 * 73, "{lost:?}: {}", count(&events));
    }
}

/// A transport stream that is pulled over HTTP, and the muxer of its server.
struct Ts {
    rig: Rig,
    muxer: Muxer,
    sets: h265::Config,
}

impl Ts {
    fn new(video: Option<StreamKind>) -> Self {
        let mut muxer = Muxer::new();
        muxer.set_streams(video, Some(StreamKind::AacAdts));
        let mut rig = Rig::flv();
        rig.connected();
        rig.give(HEAD);
        let sets = include_bytes!("../../../../fuzz/corpus/hevc_config/x265_320x180");
        Self { rig, muxer, sets: h265::Config::read(Bytes::from_static(sets)).unwrap() }
    }

    fn give(&mut self, kind: Kind, ms: u64, payload: &[u8]) -> Vec<String> {
        let dts = ZERO + ms * 90;
        let unit = Unit { kind, number: 0, pts: dts, dts, random_access: true, payload: &[payload] };
        let bytes = self.muxer.write(&unit);
        let mut events = self.rig.give(&bytes);
        if events.iter().any(|event| event == "publish") {
            events.extend(self.rig.grant());
        }
        events
    }

    /// Runs the pull up to a second in which a frame of audio arrives.
    fn audio(&mut self, second: u64) -> Vec<String> {
        let mut events = self.rig.run_to(secs(second));
        let frame = [&aac_config().adts(5).unwrap()[..], b"audio"].concat();
        events.extend(self.give(Kind::Audio, second * 1000, &frame));
        events
    }

    /// Sends a key frame of H.265.
    fn picture(&mut self, second: u64) -> Vec<String> {
        let cra: &[u8] = &[42, 1, 0xaf];
        let nals: Vec<Bytes> = self.sets.parameter_sets().chain([cra]).map(Bytes::copy_from_slice).collect();
        let mut lengths = bytes::BytesMut::new();
        nals.iter().for_each(|nal| nal::put_with_length(nal, &mut lengths));
        self.give(Kind::Video, second * 1000, &nal::to_annex_b(&lengths).unwrap())
    }
}

#[test]
fn video_that_changes_or_comes_late_has_its_time_in_a_pulled_transport_stream() {
    // A server that changes the stream of its video after 20 s has 15 s, and so has one that announces video then.
    for (first, had_video) in [(Some(StreamKind::H265), true), (None, false)] {
        let mut ts = Ts::new(first);
        let mut events = Vec::new();
        for second in 0..20 {
            events.extend(ts.audio(second));
            if had_video {
                events.extend(ts.picture(second));
            }
        }
        let new = if had_video { StreamKind::H264 } else { StreamKind::H265 };
        ts.muxer.set_streams(Some(new), Some(StreamKind::AacAdts));
        for second in 20..23 {
            events.extend(ts.audio(second));
        }
        ts.muxer.set_streams(Some(StreamKind::H265), Some(StreamKind::AacAdts));
        let before = count(&events);
        for second in 23..28 {
            events.extend(ts.audio(second));
            events.extend(ts.picture(second));
        }
        assert!(!has_ended(&events), "{first:?}: {events:?}");
        assert!(count(&events) >= before + 9, "{first:?}: {events:?}");
    }
}
