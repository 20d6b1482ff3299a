//! Manifests of segments of several runs, and parts of them.

use std::time::Duration;

use bytes::Bytes;
use media::Timescale;
use proptest::prelude::*;

use super::super::manifest::Period;
use super::super::mp4::{Described, Span};
use super::*;

/// A rendition with these segments: number, time and ticks.
fn outline(kind: TrackKind, run: u64, spans: &[(u64, u64, u64)]) -> Outline {
    let (base, scale) = match kind {
        TrackKind::Video => ("a__video", 90_000),
        TrackKind::Audio | TrackKind::Data => ("a__audio", 48_000),
    };
    let described = Described {
        uri: format!("{base}_{run}_init.mp4"),
        codecs: vec!["avc1.64001f".to_owned()],
        kind,
        timescale: Timescale::new(scale),
        size: (kind == TrackKind::Video).then_some((640, 360)),
        frame_rate_milli: None,
        sound: (kind == TrackKind::Audio).then_some((48_000, 2)),
        language: (kind == TrackKind::Audio).then(|| "de\tu".into()),
        key_id: (kind == TrackKind::Audio).then_some([0xa7; 16]),
    };
    Outline {
        id: base.to_owned(),
        accessibility: Vec::new(),
        track: Some(0),
        template: format!("{base}_{run}_$Number%09d$.m4s"),
        run: Some(run),
        is_enough: true,
        is_independent: true,
        has_metadata: false,
        has_cues: true,
        target: Duration::from_secs(2),
        bits: 1_000_000,
        lengths: Vec::new(),
        inits: vec![described],
        spans: spans
            .iter()
            .map(|(number, time, ticks)| (Span { number: *number, time: *time, ticks: *ticks }, 0, false))
            .collect(),
    }
}

/// The pieces of segments of two seconds from `from_s` on, except those at the given places. A period begins after
/// each of them.
fn pieces(kind: TrackKind, run: u64, anchor: Anchor, count: u64, missing: &[u64]) -> Vec<Piece> {
    let scale = if kind == TrackKind::Video { 180_000 } else { 96_000 };
    let spans: Vec<(u64, u64, u64)> = (0..count).map(|n| (run + n, scale / 2 + n * scale, scale)).collect();
    let outline = outline(kind, run, &spans);
    let (mut made, mut anchor): (Vec<Piece>, _) = (Vec::new(), anchor);
    for (at, piece) in (0..).zip(Piece::newest(&outline, spans.len(), None)) {
        if missing.contains(&at) {
            continue;
        }
        if at > 0 && missing.contains(&(at - 1)) {
            anchor = anchor.moved_to(piece.begin_ms().0);
        }
        let piece = piece.anchored(anchor);
        let rest = match made.last_mut() {
            Some(last) => last.join(piece),
            None => Some(piece),
        };
        made.extend(rest);
    }
    made
}

const MOMENTS: Moments = Moments { zero_ms: 1_767_225_600_000, now_ms: 1_767_225_700_000 };

fn first() -> Anchor {
    Anchor { start_ms: 10_000, run_ms: 1, begin_ms: 1000 }
}

/// Two runs of 20 s and 10 s, with 10 s between them.
fn runs() -> Vec<Vec<Piece>> {
    let second = Anchor { start_ms: 40_000, run_ms: 2, begin_ms: 1000 };
    let of = |kind| [pieces(kind, 100, first(), 10, &[]), pieces(kind, 300, second, 5, &[])].concat();
    vec![of(TrackKind::Video), of(TrackKind::Audio)]
}

fn manifest(renditions: &[Vec<Piece>], ended: bool) -> String {
    let past = Past { renditions, base: "../ll-hls/a/", ended, latency_ms: 3500, accessibility: &[] };
    past.manifest(MOMENTS).unwrap()
}

fn part(text: &str, start_ms: Option<u64>, end_ms: Option<u64>) -> String {
    let parts = select(&Bytes::from(text.to_owned()), Excerpt { start_ms, end_ms }).unwrap();
    String::from_utf8(parts.concat()).unwrap()
}

/// The segments of a manifest as players compute them: name, beginning and end in milliseconds of the presentation.
fn listed(text: &str) -> Vec<(String, i64, i64)> {
    let value = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\""))?;
        Some(rest.split_once('"').unwrap().0.to_owned())
    };
    let number = |line: &str, name: &str| value(line, name).map(|value| value.parse::<i64>().unwrap());
    let (mut start, mut template, mut next, mut end, mut found) = (0, String::new(), 0, 0, Vec::new());
    for line in text.lines() {
        if line.starts_with("<Period ") {
            let seconds = value(line, "start").unwrap();
            let seconds = seconds.trim_start_matches("PT").trim_end_matches('S').replace('.', "");
            start = seconds.parse::<i64>().unwrap();
        } else if line.starts_with("<SegmentTemplate ") {
            template = line.to_owned();
            next = number(line, "startNumber").unwrap();
            end = 0;
        } else if line.starts_with("<S ") {
            let (scale, offset) = (
                number(&template, "timescale").unwrap(),
                number(&template, "presentationTimeOffset").unwrap(),
            );
            end = number(line, "t").unwrap_or(end);
            for _ in 0..=number(line, "r").unwrap_or(0) {
                let ms = |ticks: i64| start + ((ticks - offset) * 1000).div_euclid(scale);
                let from = end;
                end += number(line, "d").unwrap();
                let name = value(&template, "media").unwrap().replace("$Number%09d$", &next.to_string());
                found.push((name, ms(from), ms(end)));
                next += 1;
            }
        }
    }
    found
}

#[test]
fn a_manifest_has_the_segments_of_all_runs_at_their_places() {
    let text = manifest(&runs(), false);
    let all = listed(&text);
    assert_eq!(all.len(), 30);
    assert_eq!(all[0], ("a__video_100_1.m4s".to_owned(), 10_000, 12_000));
    assert_eq!(all[9].2, 30_000);
    assert_eq!(all[20], ("a__video_300_1.m4s".to_owned(), 40_000, 42_000));
    assert_eq!(text.matches("<Period ").count(), 2);
    assert!(text.contains("type=\"dynamic\" availabilityStartTime=\"2026-01-01T00:00:00.000Z\""), "{text}");
    assert!(text.contains("timeShiftBufferDepth=\"PT44.000S\""), "40 s and two segments: {text}");
    // Segments of equal length are one line.
    assert_eq!(text.matches("<S ").count(), 4);
    let ended = manifest(&runs(), true);
    assert!(
        ended.contains("type=\"static\" mediaPresentationDuration=\"PT50.000S\"") && listed(&ended) == all
    );
}

#[test]
fn a_gap_is_left_out_and_the_names_behind_it_are_right() {
    for missing in [vec![3], vec![3, 4, 5], vec![0], vec![2, 7], vec![9]] {
        let video = pieces(TrackKind::Video, 100, first(), 10, &missing);
        let audio = pieces(TrackKind::Audio, 100, first(), 10, &[]);
        let all = listed(&manifest(&[video, audio], false));
        for kind in ["video", "audio"] {
            let is_there = |n: &u64| kind == "audio" || !missing.contains(n);
            let wanted: Vec<(String, i64)> = (0..10_u64)
                .filter(is_there)
                .map(|n| (format!("a__{kind}_100_{}.m4s", n + 1), 10_000 + i64::try_from(n).unwrap() * 2000))
                .collect();
            let found: Vec<(String, i64)> = all
                .iter()
                .filter(|(name, ..)| name.contains(kind))
                .map(|(name, begin, _)| (name.clone(), *begin))
                .collect();
            assert_eq!(found, wanted, "{missing:?}");
        }
    }
}

#[test]
fn a_part_has_the_segments_of_its_time() {
    let text = manifest(&runs(), false);
    let all = listed(&text);
    // Each case: the limits in the presentation, and the range of times of segments.
    for (start, end, from_ms, to_ms) in [
        (None, None, 10_000, 50_000),
        (Some(0), None, 10_000, 50_000),
        (Some(13_999), None, 12_000, 50_000),
        (Some(14_000), None, 14_000, 50_000),
        (Some(35_000), None, 40_000, 50_000),
        (Some(47_000), None, 46_000, 50_000),
        (Some(49_999), None, 48_000, 50_000),
        (Some(u64::MAX), None, 48_000, 50_000),
        (Some(13_000), Some(16_001), 12_000, 18_000),
        (Some(13_000), Some(16_000), 12_000, 16_000),
        (Some(27_000), Some(43_000), 26_000, 44_000),
        (None, Some(11_000), 10_000, 12_000),
        (None, Some(u64::MAX), 10_000, 50_000),
        (Some(31_000), Some(39_000), 0, 0),
        (Some(90_000), Some(99_000), 0, 0),
        (None, Some(0), 0, 0),
        (Some(20_000), Some(15_000), 0, 0),
    ] {
        let part = part(&text, start, end);
        let wanted: Vec<_> =
            all.iter().filter(|(_, begin, end)| *begin >= from_ms && *end <= to_ms).cloned().collect();
        let found = listed(&part);
        let names = |of: &[(String, i64, i64)]| of.iter().map(|one| one.0.clone()).collect::<Vec<_>>();
        assert_eq!(names(&found), names(&wanted), "{start:?} {end:?}: {part}");
        assert!(part.starts_with("<?xml ") && part.ends_with("</MPD>\n") && part.contains("<Period "));
        if end.is_none() {
            assert_eq!(found, wanted, "the segments stay where they are: {part}");
            let depth =
                format!("timeShiftBufferDepth=\"{}\"", Period(u64::try_from(54_000 - from_ms).unwrap()));
            assert!(part.contains("type=\"dynamic\"") && part.contains(&depth), "{part}");
            assert!(part.contains("<UTCTiming "));
            continue;
        }
        // A recording begins at zero, and its periods follow one another.
        assert!(part.contains("type=\"static\"") && !part.contains("availabilityStartTime"), "{part}");
        let video: Vec<_> = found.iter().filter(|(name, ..)| name.contains("video")).collect();
        assert!(video.first().is_none_or(|(_, begin, _)| *begin == 0), "{part}");
        assert!(video.windows(2).all(|pair| pair[0].2 == pair[1].1), "{part}");
        let length = video.last().map_or(0, |last| last.2);
        let length = Period(u64::try_from(length).unwrap());
        assert!(part.contains(&format!("mediaPresentationDuration=\"{length}\"")), "{part}");
    }
}

#[test]
fn renditions_that_have_nothing_in_a_part_are_left_out() {
    let later = first().moved_to(11_000);
    let videos = [pieces(TrackKind::Video, 100, first(), 10, &[]), {
        let mut other = pieces(TrackKind::Video, 200, first(), 10, &[0, 1, 2, 3, 4]);
        other.iter_mut().for_each(|piece| piece.anchor = later);
        other
    }];
    let text = manifest(&videos, false);
    assert_eq!(text.matches("<Representation ").count(), 3, "{text}");
    let part = part(&text, Some(12_000), Some(16_000));
    assert_eq!(
        (part.matches("<Representation ").count(), part.matches("<Period ").count()),
        (1, 1),
        "{part}"
    );
    assert_eq!(part.matches("<AdaptationSet ").count(), part.matches("</AdaptationSet>").count());
}

#[test]
fn periods_are_bounded() {
    let missing: Vec<u64> = (0..400).filter(|n| n % 2 == 1).collect();
    let text = manifest(&[pieces(TrackKind::Video, 100, first(), 400, &missing)], false);
    assert_eq!(text.matches("<Period ").count(), PERIODS_MAX);
    assert_eq!(listed(&text).last().unwrap().0, "a__video_100_399.m4s");
}

#[test]
fn a_piece_is_read_as_it_was_written() {
    for piece in runs().iter().flatten() {
        let read = Piece::read(&piece.line()).unwrap();
        // The language has a character that separates fields.
        assert_eq!(read.line(), piece.line());
        assert_eq!((read.count(), read.begin_ms()), (piece.count(), piece.begin_ms()));
        assert!(read.form.inits[0].language.as_deref().is_none_or(|language| language == "deu"));
        let line = piece.line();
        let fields: Vec<&str> = line.split('\t').collect();
        for (at, field) in fields.iter().enumerate() {
            let mut fields = fields.clone();
            fields[at] = "\u{0}";
            let line = fields.join("\t");
            let is_text = [4, 6, 7, 10, 11, 17].contains(&at);
            assert!(is_text || field.is_empty() || Piece::read(&line).is_none(), "{at} {line}");
        }
    }
    let line = runs()[0][0].line();
    for (from, to) in
        [("180000x10", "180000x99999999999"), ("180000x10", "0x10"), ("10000,1,1000", "1,1,1000")]
    {
        assert!(line.contains(from) && Piece::read(&line.replacen(from, to, 1)).is_none(), "{to}");
    }
    assert_eq!(Piece::read(""), None);
}

#[test]
fn segments_of_different_bit_rates_are_one_piece_with_the_highest() {
    let spans: Vec<(u64, u64, u64)> = (0..20).map(|n| (100 + n, n * 180_000, 180_000)).collect();
    let mut made: Vec<Piece> = Vec::new();
    for count in 1..=spans.len() {
        let bits = 1_000_000 + (count as u64 % 7) * 10_000;
        let outline = Outline { bits, ..outline(TrackKind::Video, 100, &spans[..count]) };
        for piece in Piece::newest(&outline, 1, made.last()) {
            let rest = match made.last_mut() {
                Some(last) => last.join(piece.anchored(first())),
                None => Some(piece.anchored(first())),
            };
            made.extend(rest);
        }
    }
    assert_eq!((made.len(), made[0].count(), made[0].end), (1, 20, 20 * 180_000));
    assert_eq!(Piece::read(&made[0].line()).as_ref(), made.first());
    assert!(manifest(&[made], false).contains(" bandwidth=\"1060000\""));
}

#[test]
fn a_run_that_would_begin_before_the_end_of_the_last_one_is_recognized() {
    let former = pieces(TrackKind::Video, 100, first(), 10, &[]).pop().unwrap();
    let at = |start_ms: u64| {
        let anchor = Anchor { start_ms, run_ms: 2, begin_ms: 1000 };
        pieces(TrackKind::Video, 300, anchor, 5, &[]).pop().unwrap().is_set_back(&former)
    };
    // The former run lasts from 10 to 30 s.
    assert_eq!([5_000, 28_000, 29_500, 30_000, 90_000].map(at), [true, true, false, false, false]);
}

#[test]
fn a_piece_keeps_its_first_segments() {
    let whole = &runs()[0][0];
    for count in 0..=12 {
        let mut piece = whole.clone();
        piece.truncate(count);
        assert_eq!(piece.count(), count.min(10));
    }
}

proptest! {
    #[test]
    fn no_line_and_no_text_panics(line in "[0-9x,\t]{0,80}", text in "(<(Period|S|SegmentTemplate|AdaptationSet) [a-z]=\"[0-9PTS.]{0,24}\">\n){0,9}",
        start_ms: Option<u64>, end_ms: Option<u64>)
    {
        let _ = Piece::read(&line);
        let _ = select(&Bytes::from(text.clone()), Excerpt { start_ms, end_ms });
        let whole = manifest(&runs(), false).replace("d=\"180000\"", &format!("d=\"{}\"", u64::MAX));
        let _ = select(&Bytes::from(whole), Excerpt { start_ms, end_ms });
    }
}
