//! The DASH manifest of all segments to which viewers can rewind.

use hls::segmenter::NUMBERS_FROM_MS;

use super::*;
use crate::protocol::sinks::Requested;

const BEGUN_MS: u64 = 1_795_806_797_674;
const SETTINGS: [(&str, &str); 3] = [("dvr.window", "600"), ("hlsListSize", "5"), ("hlsTime", "2")];

/// A segment in a manifest: its name, and its beginning and end in milliseconds of the presentation.
type Shown = (String, i64, i64);

fn value<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_once(&format!(" {name}=\""))?.1.split('"').next()
}

fn number(line: &str, name: &str) -> Option<i64> {
    Some(value(line, name)?.parse().unwrap())
}

/// Returns the segments of a manifest as players compute them, and the names of its initialization sections.
pub(super) fn listed(text: &str) -> (Vec<Shown>, Vec<String>) {
    let (mut start, mut template, mut next, mut end) = (0, "", 0, 0);
    let (mut found, mut inits) = (Vec::new(), Vec::new());
    let plain = |name: &str| name.split('?').next().unwrap().to_owned();
    for line in text.lines() {
        if line.starts_with("<Period ") {
            let seconds = value(line, "start").unwrap().trim_matches(['P', 'T', 'S']).replace('.', "");
            start = seconds.parse().unwrap();
        } else if line.starts_with("<SegmentTemplate ") {
            (template, next) = (line, number(line, "startNumber").unwrap());
            inits.push(plain(value(line, "initialization").unwrap()));
        } else if line.starts_with("<S ") {
            let scale = number(template, "timescale").unwrap();
            let offset = number(template, "presentationTimeOffset").unwrap();
            end = number(line, "t").unwrap_or(end);
            for _ in 0..=number(line, "r").unwrap_or(0) {
                let ms = |ticks: i64| start + ((ticks - offset) * 1000).div_euclid(scale);
                let begin = end;
                end += number(line, "d").unwrap();
                let name = value(template, "media").unwrap().replace("$Number%09d$", &format!("{next:09}"));
                found.push((plain(&name), ms(begin), ms(end)));
                next += 1;
            }
        }
    }
    (found, inits)
}

fn of(kind: &str, all: &[Shown]) -> Vec<Shown> {
    all.iter().filter(|(name, ..)| name.contains(kind)).cloned().collect()
}

/// Returns the manifest that a viewer with this query gets.
fn manifest(rig: &Rig, query: &str, now_ms: u64) -> String {
    let query: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let named = "cam/cam.mpd".to_owned();
    let name = (APART.params.in_place)(&named, &query).filter(|name| rig.blobs.contains_key(name));
    let name = name.unwrap_or(named);
    let requested = Requested { app: &rig.settings, name: &name, query: &query };
    let mut text = (APART.params.tailor)(&requested, &rig.blobs[&name], now_ms).unwrap();
    let blocks: Vec<Bytes> = std::iter::from_fn(|| text.next_block()).collect();
    String::from_utf8(blocks.concat()).unwrap()
}

/// Checks that the files of a manifest are in memory or on the disk.
fn assert_there(rig: &Rig, text: &str) {
    let (segments, inits) = listed(text);
    for name in segments.iter().map(|(name, ..)| name).chain(&inits) {
        let track = if name.contains("__video") { "cam__video" } else { "cam__audio" };
        let kept = (format!("ll-hls%2Fcam%2F{track}"), name.clone());
        let is_there = rig.disk.contains_key(&kept) || rig.blobs.contains_key(&format!("ll-hls/cam/{name}"));
        assert!(is_there, "{name}");
    }
}

fn tracks() -> [(Track, i64); 2] {
    [(video(0), 0), (audio(), 0)]
}

#[test]
fn a_manifest_reaches_back_to_the_disk_and_the_live_one_stays_as_it_is() {
    for low_latency in ["true", "false"] {
        let low = ("hlsEnableLowLatency", low_latency);
        let mut rig = Rig::with(&[&SETTINGS[..], &[low]].concat());
        let mut plain = Rig::with(&[&SETTINGS[1..], &[low]].concat());
        rig.pass(&tracks(), 1, 0..120_360);
        plain.pass(&tracks(), 1, 0..120_360);
        assert_eq!(rig.text("cam/cam.mpd"), plain.text("cam/cam.mpd"), "{low_latency}");
        assert!(!plain.blobs.contains_key("cam/cam.mpd?dvr"));
        let (live, text) = (listed(rig.text("cam/cam.mpd")).0, manifest(&rig, "dvr=true", BEGUN_MS));
        let (whole, inits) = listed(&text);
        assert_there(&rig, &text);
        for kind in ["video", "audio"] {
            let (live, whole) = (of(kind, &live), of(kind, &whole));
            assert!(live.len() <= 6 && whole.len() >= 58, "{} {}", live.len(), whole.len());
            let newest: Vec<_> = whole.iter().rev().map(|one| &one.0).take(live.len()).collect();
            assert!(newest.into_iter().eq(live.iter().rev().map(|one| &one.0)), "{kind}");
            assert!(whole.windows(2).all(|pair| pair[0].2 == pair[1].1), "{text}");
        }
        assert_eq!((inits.len(), text.matches("<Period ").count()), (2, 1), "{text}");
        // The dates of the segments are those of the playlist.
        let from = i64::try_from(NUMBERS_FROM_MS).unwrap();
        let dates = rig.media("cam__video").segments.last().unwrap().program_date_time.unwrap() - from;
        assert!((of("video", &whole).last().unwrap().1 - dates).abs() <= 1, "{text}");
        assert!(text.contains("availabilityStartTime=\"2026-01-01T00:00:00.000Z\""), "{text}");
        assert!(text.matches("media=\"").count() == text.matches("$.m4s?dash\"").count(), "{text}");
        // Segments of equal length take one line, however many they are.
        assert!(text.matches("<S ").count() < 12 && text.len() < 4000, "{text}");
    }
}

#[test]
fn clips_find_segments_by_dates_that_viewers_are_not_told() {
    let mut rig = Rig::with(&[&SETTINGS[..], &[("hlsflags", "delete_segments")]].concat());
    rig.pass(&tracks(), 1, 0..30_000);
    let name = rig.blobs.keys().find(|name| name.ends_with("cam__video.m3u8?dvr")).unwrap().clone();
    let second = |ms: u64| ((BEGUN_MS + ms) / 1000).to_string();
    let query = [("start".to_owned(), second(4000)), ("end".to_owned(), second(12_000))];
    let requested = Requested { app: &rig.settings, name: &name, query: &query };
    let params = &APART.params;
    let texts =
        [(params.tailor)(&requested, &rig.blobs[&name], 0), (params.dated)(&requested, &rig.blobs[&name])];
    let dates = texts.map(|text| {
        let mut text = text.unwrap();
        let blocks: Vec<Bytes> = std::iter::from_fn(|| text.next_block()).collect();
        let text = String::from_utf8(blocks.concat()).unwrap();
        assert!(text.matches("#EXTINF").count() >= 4, "{text}");
        text.matches("#EXT-X-PROGRAM-DATE-TIME").count()
    });
    assert!(dates[0] == 0 && dates[1] > 0, "{dates:?}");
}

#[test]
fn manifests_by_parameters_and_states() {
    let second = |ms: u64| (BEGUN_MS + ms) / 1000;
    let mut live = Rig::with(&SETTINGS);
    live.pass(&tracks(), 1, 0..60_360);
    let mut ended = Rig::with(&SETTINGS);
    ended.pass(&tracks(), 1, 0..60_000);
    ended.end(60_000);
    // The stream returns ten seconds after its end.
    let mut returned = Rig::begun_at(BEGUN_MS + 70_000, &SETTINGS);
    returned.disk = ended.disk.clone();
    returned.pass(&tracks(), 1, 0..30_360);
    let first = listed(&manifest(&live, "dvr=true", BEGUN_MS)).0;
    let former = listed(&manifest(&ended, "dvr=true", BEGUN_MS)).0;
    let whole = manifest(&returned, "dvr=true", BEGUN_MS + 100_000);
    let all = listed(&whole).0;
    assert!(former.iter().all(|one| all.contains(one)), "{whole}");
    assert_eq!(whole.matches("<Period ").count(), 2, "{whole}");
    let begins: Vec<i64> = of("video", &all).windows(2).map(|pair| pair[1].1 - pair[0].2).collect();
    let pauses: Vec<&i64> = begins.iter().filter(|pause| **pause != 0).collect();
    assert!(pauses.len() == 1 && (9_000..=11_000).contains(pauses[0]), "{pauses:?}");
    for (state, rig, all, now_ms) in [
        ("live", &live, &first, BEGUN_MS + 60_360),
        ("ended", &ended, &former, BEGUN_MS + 60_360),
        ("returned", &returned, &all, BEGUN_MS + 100_360),
    ] {
        let count = |text: &str| of("video", &listed(text).0).len();
        let whole = of("video", all).len();
        // Each case: the query, the segments of video, and true if it is a recording.
        for (query, from, to, is_static) in [
            ("dvr=true".to_owned(), whole, whole, state == "ended"),
            (format!("start={}", second(20_000)), whole - 11, whole - 9, state == "ended"),
            ("start=-1000000".to_owned(), whole, whole, state == "ended"),
            ("start=99999999999".to_owned(), 1, 1, state == "ended"),
            ("start=9223372036854775807".to_owned(), whole, whole, state == "ended"),
            ("start=nothing&dvr=true".to_owned(), whole, whole, state == "ended"),
            ("start=-0&dvr=%00".to_owned(), whole, whole, state == "ended"),
            (format!("start={}&end={}", second(20_000), second(30_000)), 5, 6, true),
            (format!("start={}&end={}", second(30_000), second(20_000)), 0, 0, true),
            (format!("end={}", second(10_000)), 5, 6, true),
            ("end=1".to_owned(), 0, 0, true),
            ("start=1&end=99999999999".to_owned(), whole, whole, true),
        ] {
            let text = manifest(rig, &query, now_ms);
            assert!(
                (from..=to).contains(&count(&text)),
                "{state} {query}: {} {from} {to}\n{text}",
                count(&text)
            );
            assert_eq!(text.contains("type=\"static\""), is_static, "{state} {query}: {text}");
            assert_there(rig, &text);
            let (open, close) =
                (text.matches("<AdaptationSet ").count(), text.matches("</AdaptationSet>").count());
            assert!(open == close && text.contains("<Period ") && text.ends_with("</MPD>\n"), "{query}");
            if query.contains("end=") {
                let shown = listed(&text).0;
                assert!(shown.iter().map(|one| one.1).min().is_none_or(|first| first == 0), "{text}");
            }
        }
        // Relative to now.
        let text = manifest(rig, "start=-20", now_ms);
        let shown = of("video", &listed(&text).0).len();
        assert!((9..=12).contains(&shown) || state == "ended" && shown >= 9, "{state}: {shown}");
    }
}

#[test]
fn tracks_that_change_begin_a_period_that_stays_where_it_is() {
    let mut rig = Rig::with(&[("dvr.window", "60"), ("hlsListSize", "5"), ("hlsTime", "2")]);
    rig.pass(&tracks(), 1, 0..30_000);
    rig.pass(&[(video(0), 0)], 2, 30_000..60_000);
    rig.pass(&tracks(), 3, 60_000..90_360);
    let text = manifest(&rig, "dvr=true", BEGUN_MS);
    assert_there(&rig, &text);
    let periods = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("<Period ")).map(str::to_owned).collect()
    };
    let before = periods(&text);
    assert!(before.len() >= 3, "{text}");
    let shown = listed(&text).0;
    rig.pass(&tracks(), 3, 90_360..110_000);
    // The first segments have left the window; all others are where they were.
    let text = manifest(&rig, "dvr=true", BEGUN_MS);
    let (later, after) = (listed(&text).0, periods(&text));
    assert!(later.first().unwrap().1 > shown.first().unwrap().1, "{text}");
    let common: Vec<_> = shown.iter().filter(|one| later.iter().any(|other| other.0 == one.0)).collect();
    assert!(common.len() > 20 && common.iter().all(|one| later.contains(one)), "{text}");
    assert!(after.iter().all(|period| before.contains(period)), "{before:?} {after:?}");
    assert_there(&rig, &text);
}

#[test]
fn segments_that_the_disk_does_not_take_are_left_out_and_no_name_is_wrong() {
    let mut rig = Rig::with(&SETTINGS);
    let run = {
        let mut other = Rig::with(&SETTINGS);
        other.pass(&tracks(), 1, 0..20_000);
        let (all, _) = listed(&manifest(&other, "dvr=true", BEGUN_MS));
        all[0].0.split('_').nth(3).unwrap().to_owned()
    };
    let of_video = format!("video_{run}_000000007.m4s");
    rig.unwritable = vec![of_video, "000000012.m4s".to_owned(), "000000013.m4s".to_owned()];
    rig.pass(&tracks(), 1, 0..90_360);
    let text = manifest(&rig, "dvr=true", BEGUN_MS);
    assert_there(&rig, &text);
    let (all, _) = listed(&text);
    let plain = {
        let mut other = Rig::with(&SETTINGS);
        other.pass(&tracks(), 1, 0..90_360);
        listed(&manifest(&other, "dvr=true", BEGUN_MS)).0
    };
    let is_lost = |name: &str| rig.unwritable.iter().any(|ending| name.ends_with(ending.as_str()));
    for kind in ["video", "audio"] {
        let wanted: Vec<_> = of(kind, &plain).into_iter().filter(|one| !is_lost(&one.0)).collect();
        assert_eq!(of(kind, &all), wanted, "each is at its place: {text}");
        assert_eq!(of(kind, &plain).len(), wanted.len() + if kind == "video" { 3 } else { 2 });
    }
    assert_eq!(text.matches("<Period ").count(), 3, "{text}");
    // The same is read from the disk after a crash.
    let mut again = Rig::begun_at(BEGUN_MS + 100_000, &SETTINGS);
    again.disk = rig.disk.clone();
    again.pass(&tracks(), 1, 0..20_360);
    let text = manifest(&again, "dvr=true", BEGUN_MS);
    assert_there(&again, &text);
    let (later, _) = listed(&text);
    let on_disk = |one: &&Shown| rig.disk.keys().any(|(_, name)| *name == one.0);
    let missing: Vec<_> = all.iter().filter(on_disk).filter(|one| !later.contains(one)).collect();
    assert!(missing.len() <= 2, "the list of the newest is written last: {missing:?}");
    assert_eq!(text.matches("<Period ").count(), 4, "{text}");
}

#[test]
fn a_run_after_the_clock_was_set_back_has_the_manifest_to_itself() {
    let mut ended = Rig::begun_at(BEGUN_MS, &SETTINGS);
    ended.pass(&tracks(), 1, 0..60_000);
    ended.end(60_000);
    // The stream returns ten seconds after its end, but the clock was 30 s ahead until then.
    let mut returned = Rig::begun_at(BEGUN_MS + 40_000, &SETTINGS);
    returned.disk = ended.disk.clone();
    returned.pass(&tracks(), 1, 0..30_360);
    let whole = manifest(&returned, "dvr=true", BEGUN_MS + 70_000);
    assert_there(&returned, &whole);
    assert_eq!(whole.matches("<Period ").count(), 1, "{whole}");
    let begins: Vec<i64> = of("video", &listed(&whole).0).iter().map(|shown| shown.1).collect();
    assert!(begins.len() > 10 && begins.is_sorted(), "{begins:?}");
}
