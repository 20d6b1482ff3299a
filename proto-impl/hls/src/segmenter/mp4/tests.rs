//! Segments, parts and playlists of random inputs, checked against the rules of RFC 8216 and RFC 8216bis.

use std::time::Duration;

use bytes::Bytes;
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId};

use super::super::{Moments, Outline, Presentation, Start, Stretch};
use super::*;
use crate::Playlist;

mod again;
mod messages;

const START: Start = Start { number: 1, discontinuities: 0 };
const H264: &[u8] = &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0];

fn video() -> Track {
    let config = CodecConfig::read(Codec::H264, Bytes::from_static(H264)).unwrap().unwrap();
    Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS)
}

fn audio() -> Track {
    let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
    Track::new(TrackId::AUDIO, config, Timescale::MILLISECONDS)
}

fn unit(track: &Track, dts: i64, key_frame: bool) -> AccessUnit {
    let payload = Bytes::from(format!("{dts:8}"));
    AccessUnit { track: track.id, dts, pts: dts, key_frame, config_epoch: track.epoch, payload }
}

/// A unit of a track whose timescale is milliseconds.
const fn timed(unit: &AccessUnit) -> Timed<'_> {
    Timed { unit, dts_ms: unit.dts, date_ms: 1_700_000_000_000 + unit.dts }
}

fn named(base: &str, run: Option<u64>) -> Names {
    Names { base: base.to_owned(), ending: "m4s", run }
}

/// The manifest of a segmenter.
fn manifest(rendition: &Mp4Segmenter, stretches: &[Stretch], listed: Option<usize>) -> String {
    let renditions = &[&Outline::of(rendition)];
    let of = Presentation { renditions, stretches, base: "../", ended: false, listed, latency_ms: 3500 };
    of.manifest(Moments { zero_ms: 0, now_ms: 40_000 }).unwrap()
}

/// A rendition and all its output. The output is checked as it is produced.
struct Rig {
    rendition: Mp4Segmenter,
    track: Track,
    there: Vec<(String, Bytes)>,
    /// A part may be too short by this much, because a frame may be missing. In milliseconds.
    missing_ms: u128,
    last: Option<MediaPlaylist>,
}

impl Rig {
    fn new(track: Track, low_latency: bool) -> Self {
        Self::with(track, &Rules::DEFAULT, low_latency, 0)
    }

    fn with(track: Track, rules: &Rules, low_latency: bool, shift_ms: i64) -> Self {
        let mut rendition = Mp4Segmenter::new(named("cam", None), rules, low_latency, (START, shift_ms));
        rendition.set_tracks(vec![track.clone()], 1);
        Self { rendition, track, there: Vec::new(), missing_ms: 0, last: None }
    }

    fn unit(&mut self, dts: i64, key_frame: bool) {
        let unit = unit(&self.track, dts, key_frame);
        self.rendition.unit(&timed(&unit));
        self.look();
    }

    /// Takes the new files, then checks the playlist.
    fn look(&mut self) {
        let made = self.rendition.take_made();
        if made.is_empty() {
            return;
        }
        if self.rendition.window().is_ripe() {
            self.rendition.adopt(self.rendition.window().wanted_target());
        }
        self.there.extend(made.into_iter().map(|made| (made.name, made.bytes)));
        let gone = self.rendition.take_gone();
        if !self.rendition.window().is_enough() {
            return;
        }
        let text = self.rendition.playlist().to_string();
        let Playlist::Media(now) = Playlist::read(text.as_bytes()).unwrap() else { panic!("{text}") };
        self.check(&now, &text);
        for gone in gone {
            assert!(
                !text.contains(&format!("{gone}\n")) && !text.contains(&format!("{gone}\"")),
                "{gone}: {text}"
            );
        }
        self.last = Some(now);
    }

    fn is_there(&self, name: &str) -> bool {
        self.there.iter().any(|(there, _)| there == name)
    }

    fn check(&self, now: &MediaPlaylist, text: &str) {
        for segment in &now.segments {
            assert!(self.is_there(&segment.uri) != segment.gap, "6.2.1: {}", segment.uri);
            assert!(self.is_there(&segment.map.as_ref().unwrap().uri), "4.3.2.5");
            let rounded = (segment.duration + Duration::from_millis(500)).as_secs();
            assert!(rounded <= now.target_duration.as_secs(), "4.3.3.1: {text}");
            let parts: Duration = segment.parts.iter().map(|part| part.duration).sum();
            assert!(segment.parts.is_empty() || parts == segment.duration, "8216bis 4.4.4.9: {text}");
        }
        if let Some(before) = &self.last {
            assert_eq!(now.target_duration, before.target_duration, "6.2.1");
            let gone = usize::try_from(now.media_sequence - before.media_sequence).unwrap();
            let (left, stays) = before.segments.split_at(gone);
            let uris = |of: &[Segment]| of.iter().map(|one| one.uri.clone()).collect::<Vec<_>>();
            assert_eq!(uris(stays), uris(&now.segments[..stays.len()]), "6.2.1");
            let discontinuities = left.iter().filter(|segment| segment.discontinuity).count() as u64;
            assert_eq!(now.discontinuity_sequence, before.discontinuity_sequence + discontinuities, "6.2.2");
        }
        if let Some(low) = &now.low_latency {
            self.check_parts(now, low, text);
        }
    }

    fn check_parts(&self, now: &MediaPlaylist, low: &LowLatency, text: &str) {
        assert!(low.can_block_reload && low.part_hold_back >= low.part_target * 3, "8216bis 4.4.3.8");
        assert!(low.skip_until.unwrap() >= now.target_duration * 6, "8216bis 4.4.3.8");
        let all = now.segments.iter().chain([&low.open]);
        let mut with_parts = 0;
        for segment in all {
            let last = segment.parts.len().saturating_sub(1);
            with_parts += usize::from(!segment.parts.is_empty());
            for (index, part) in segment.parts.iter().enumerate() {
                assert!(self.is_there(&part.uri), "{}", part.uri);
                assert!(part.duration <= low.part_target, "8216bis 4.4.4.9: {:?} {text}", part);
                let is_last = index == last;
                assert!(
                    is_last
                        || (part.duration.as_millis() + self.missing_ms) * 100
                            >= low.part_target.as_millis() * 85,
                    "8216bis 4.4.4.9: {part:?} {text}"
                );
            }
        }
        assert!(with_parts <= 4, "8216bis 6.2.2: {text}");
        let is_made = |hint: &String| self.is_there(hint);
        assert!(!low.hint.as_ref().is_some_and(is_made), "8216bis 4.4.5.3: {text}");
    }

    /// The decode times of the samples in all segments, as a reader returns them.
    fn samples(&self) -> Vec<(i64, Bytes)> {
        let mut reader = fmp4::Reader::new(fmp4::Limits::default());
        let mut found = Vec::new();
        let is_whole = |name: &str| name.matches('.').count() == 1;
        for (_, bytes) in self.there.iter().filter(|(name, _)| is_whole(name)) {
            let mut bytes = &bytes[..];
            while let Some(event) = reader.read(&mut bytes).unwrap() {
                if let fmp4::Event::Sample(sample) = event {
                    found.push((sample.dts, sample.payload));
                }
            }
        }
        found
    }
}

#[test]
fn every_unit_is_in_a_segment_with_its_time() {
    for low_latency in [false, true] {
        let mut rig = Rig::new(video(), low_latency);
        (0..500).for_each(|n| rig.unit(n * 40, n % 50 == 0));
        rig.rendition.finish(true);
        rig.look();
        let times: Vec<i64> = rig.samples().iter().map(|(dts, _)| *dts).collect();
        assert_eq!(times, (0..500).map(|n| n * 40).collect::<Vec<_>>());
        assert!(rig.samples().iter().all(|(dts, payload)| *payload == format!("{dts:8}")));
        let durations: Vec<_> =
            rig.last.as_ref().unwrap().segments.iter().map(|one| one.duration.as_millis()).collect();
        assert_eq!(durations, [2000; 10]);
    }
}

#[test]
fn another_stretch_is_another_period_and_the_one_before_stays_as_it_was() {
    let mut rig = Rig::new(video(), false);
    (0..250).for_each(|n| rig.unit(n * 40, n % 50 == 0));
    let text = |rig: &Rig, stretches: &[Stretch]| manifest(&rig.rendition, stretches, None);
    let first = Stretch { id: 1, begin_ms: 0, delay_ms: 0 };
    let period = |text: &str, n: usize| -> String {
        text.split("<Period ").nth(n).unwrap().split("</Period>").next().unwrap().to_owned()
    };
    let before = period(&text(&rig, &[first]), 1);
    // Another publisher, a second later.
    rig.rendition.set_tracks(vec![rig.track.clone()], 2);
    (275..525).for_each(|n| rig.unit(n * 40, n % 50 == 25));
    let second = Stretch { id: 2, begin_ms: 11_000, delay_ms: 500 };
    let both = text(&rig, &[first, second]);
    assert_eq!(both.matches("<Period ").count(), 2, "{both}");
    let lines = |period: &str| {
        period.lines().filter(|line| !line.starts_with("<S t=")).map(str::to_owned).collect::<Vec<_>>()
    };
    let without_bandwidth = |lines: Vec<String>| {
        lines.into_iter().filter(|line| !line.starts_with("<Representation")).collect::<Vec<_>>()
    };
    assert_eq!(without_bandwidth(lines(&before)), without_bandwidth(lines(&period(&both, 1))));
    assert!(period(&both, 1).starts_with(&before[..before.rfind("<S t=").unwrap()]), "{both}");
    let behind = period(&both, 2);
    assert!(behind.starts_with("id=\"2\" start=\"PT11.500S\">"), "{behind}");
    assert!(
        behind.contains("presentationTimeOffset=\"11000\"") && behind.contains("<S t=\"11000\""),
        "{behind}"
    );
    let init = |period: &str| -> String {
        period.split("initialization=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    assert_ne!(init(&before), init(&behind));
    // A stretch whose segments have left the window is not listed as a period.
    (525..2000).for_each(|n| rig.unit(n * 40, n % 50 == 25));
    assert_eq!(text(&rig, &[first, second]).matches("<Period ").count(), 1);
}

#[test]
fn a_segment_has_fragments_of_the_wanted_length_and_is_named_and_timed_as_without() {
    let fragments = |bytes: &Bytes| bytes.windows(4).filter(|four| *four == b"moof").count();
    let made = |fragment_ms| {
        let mut rig = Rig::with(video(), &Rules { fragment_ms, ..Rules::DEFAULT }, false, 0);
        // Twenty-five frames a second, a key frame every two seconds.
        (0..500).for_each(|n| rig.unit(n * 40, n % 50 == 0));
        let spans: Vec<Span> = rig.rendition.spanned().map(|one| one.span).collect();
        let names: Vec<String> = rig.there.iter().map(|(name, _)| name.clone()).collect();
        let segments = rig.there.iter().filter(|(name, _)| name.ends_with(".m4s"));
        let counts: Vec<usize> = segments.map(|(_, bytes)| fragments(bytes)).collect();
        (counts, spans, names, rig.rendition.newest().unwrap().frame_rate_milli)
    };
    let (whole, spans, names, rate) = made(None);
    assert!(whole.len() > 5 && whole.iter().all(|count| *count == 1), "{whole:?}");
    for (fragment_ms, count) in [(500, 4), (1000, 2), (3000, 1), (100, 17)] {
        let (counts, own_spans, own_names, own_rate) = made(Some(fragment_ms));
        // The first segment is a single fragment, by which its track is measured.
        assert_eq!(counts[0], 1, "{fragment_ms}");
        assert!(counts[1..].iter().all(|own| *own == count), "{fragment_ms}: {counts:?}");
        assert_eq!((&own_spans, &own_names, own_rate), (&spans, &names, rate), "{fragment_ms}");
    }
    let mut low = Rig::with(video(), &Rules { fragment_ms: Some(100), ..Rules::DEFAULT }, true, 0);
    (0..500).for_each(|n| low.unit(n * 40, n % 50 == 0));
    let first = low.there.iter().find(|(name, _)| name.ends_with(".m4s")).unwrap();
    assert_eq!(fragments(&first.1), 1, "parts are fragments of their own");
}

#[test]
fn an_init_segment_goes_behind_the_last_segment_that_needs_it() {
    let mut rig = Rig::with(video(), &Rules { list_size: 3, ..Rules::DEFAULT }, false, 0);
    let mut gone = Vec::new();
    for n in 0..1500 {
        if n % 300 == 0 {
            rig.rendition.set_tracks(vec![rig.track.clone()], 1 + u32::try_from(n).unwrap() / 300);
        }
        let unit = unit(&rig.track, n * 40, n % 50 == 0);
        rig.rendition.unit(&timed(&unit));
        rig.rendition.adopt(Duration::from_secs(2));
        let made = rig.rendition.take_made();
        rig.there.extend(made.into_iter().map(|made| (made.name, made.bytes)));
        gone.extend(rig.rendition.take_gone());
    }
    let inits: Vec<usize> = (0..gone.len()).filter(|at| gone[*at].ends_with("_init.mp4")).collect();
    assert_eq!(inits.len(), 3, "{gone:?}");
    for (at, nth) in inits.iter().zip(1..) {
        // Six segments of two seconds between two changes.
        let before = gone[..*at].iter().filter(|name| name.ends_with(".m4s")).count();
        assert!((nth * 6..nth * 6 + 2).contains(&before), "{gone:?}");
    }
}

#[test]
fn the_manifest_has_segments_and_a_window_of_its_own() {
    let manifest_of = |rules: Rules, listed: Option<usize>| {
        let mut rendition = Mp4Segmenter::new(named("cam", None), &rules, false, (START, 0));
        rendition.set_tracks(vec![video()], 1);
        for n in 0..1000 {
            rendition.unit(&timed(&unit(&video(), n * 40, n % 50 == 0)));
        }
        rendition.adopt(rendition.window().wanted_target());
        manifest(&rendition, &[Stretch { id: 1, begin_ms: 0, delay_ms: 0 }], listed)
    };
    let count = |text: &str, what: &str| text.matches(what).count();
    let plain = manifest_of(Rules::DEFAULT, None);
    assert_eq!((count(&plain, "<S t="), count(&plain, " d=\"2000\"")), (15, 15), "{plain}");
    let own = manifest_of(Rules { segment_ms: 4000, list_size: 8, ..Rules::DEFAULT }, Some(3));
    assert_eq!((count(&own, "<S t="), count(&own, " d=\"4000\"")), (3, 3), "{own}");
    assert!(own.contains("timeShiftBufferDepth=\"PT12"), "{own}");
    // The manifest lists the newest segments.
    assert!(own.contains("<S t=\"32000\"") && !own.contains("<S t=\"20000\""), "{own}");
}

#[test]
fn only_key_frames_are_said_to_begin_all_segments() {
    for (gop, are_said) in [(50, true), (700, false)] {
        let mut rig = Rig::new(video(), false);
        (0..1500).for_each(|n| rig.unit(n * 40, n % gop == 0));
        let text = manifest(&rig.rendition, &[Stretch { id: 1, begin_ms: 0, delay_ms: 0 }], None);
        assert_eq!(text.contains(" startWithSAP=\"1\""), are_said, "{text}");
        assert_eq!(rig.last.unwrap().independent_segments, are_said);
    }
}

#[test]
fn a_manifest_tells_the_rate_of_pictures_and_of_sound() {
    let text = |track: Track, step: i64| {
        let mut rig = Rig::new(track, true);
        (0..1000).for_each(|n| rig.unit(n * step, n % 50 == 0));
        // After a change, the media of the new init segment is shorter than a second.
        rig.rendition.set_tracks(vec![rig.track.clone()], 2);
        (1000..1500).for_each(|n| rig.unit(n * step, n % 50 == 0));
        let stretches = [(1, 0), (2, 1000 * step)].map(|(id, begin_ms)| Stretch {
            id,
            begin_ms: begin_ms.unsigned_abs(),
            delay_ms: 0,
        });
        manifest(&rig.rendition, &stretches, None)
    };
    let pictures = text(video(), 40);
    assert_eq!(
        pictures.matches(" frameRate=\"25\"").count(),
        pictures.matches("<Representation ").count(),
        "{pictures}"
    );
    assert!(
        !pictures.contains("audioSamplingRate") && text(video(), 33).contains(" frameRate=\"30303/1000\"")
    );
    // A picture every 41 or 42 milliseconds, as in FLV.
    let mut rig = Rig::new(video(), false);
    (0..1000).for_each(|n| rig.unit(n * 1001 / 24, n % 48 == 0));
    assert_eq!(rig.rendition.newest().and_then(|one| one.frame_rate_milli), Some(23_976));
    let sound = text(audio(), 21);
    assert!(sound.contains(" audioSamplingRate=\"48000\"/>") && !sound.contains("frameRate"), "{sound}");
    assert!(sound.contains("audio_channel_configuration:2011\" value=\"2\"/>\n<SegmentTemplate "), "{sound}");
}

#[test]
fn videos_in_one_codec_are_alternatives_of_one_set() {
    let text_of = |others_key_ms: i64| {
        let names = ["cam__video0", "cam__video1"];
        let mut renditions = names.map(|base| {
            let names = named(base, Some(7));
            let mut rendition = Mp4Segmenter::new(names, &Rules::DEFAULT, false, (START, 0));
            rendition.set_tracks(vec![video()], 1);
            rendition
        });
        for dts in (0..20_000).step_by(40) {
            for (rendition, key_ms) in renditions.iter_mut().zip([2000, others_key_ms]) {
                rendition.unit(&timed(&unit(&video(), dts, dts % key_ms == 0)));
            }
        }
        renditions.iter_mut().for_each(|one| one.adopt(one.window().wanted_target()));
        let outlines = renditions.each_ref().map(Outline::of);
        let (renditions, stretches) = (outlines.each_ref(), [Stretch { id: 1, begin_ms: 0, delay_ms: 0 }]);
        let (renditions, stretches, listed) = (&renditions[..], &stretches[..], None);
        let of = Presentation { renditions, stretches, base: "../", ended: false, listed, latency_ms: 3500 };
        of.manifest(Moments { zero_ms: 0, now_ms: 40_000 }).unwrap()
    };
    for (key_ms, aligned) in [(2000, "segmentAlignment=\"true\""), (3000, "segmentAlignment=\"false\"")] {
        let text = text_of(key_ms);
        assert_eq!(text.matches("<AdaptationSet ").count(), 1, "{text}");
        assert!(text.contains(aligned), "{text}");
        // Each representation has its own template, on a line to which a viewer's credentials are added.
        let representation = |base: &str| {
            let (_, own) = text.split_once(&format!("<Representation id=\"{base}\"")).unwrap();
            own.split_once("</Representation>").unwrap().0.to_owned()
        };
        for base in ["cam__video0", "cam__video1"] {
            let own = representation(base);
            let template = own.lines().find(|line| line.starts_with("<SegmentTemplate ")).unwrap();
            assert!(template.contains(&format!("media=\"{base}_7_$Number%09d$.m4s\"")), "{own}");
            assert!(own.contains("<S t="), "{own}");
        }
    }
}

#[test]
fn parts_together_are_their_segment() {
    let mut rig = Rig::new(video(), true);
    (0..500).for_each(|n| rig.unit(n * 40, n % 50 == 0));
    let content = |name: &str| rig.there.iter().find(|(there, _)| there == name).unwrap().1.clone();
    let last = rig.last.as_ref().unwrap().segments.last().unwrap();
    assert!(last.parts.len() >= 6 && last.parts[0].independent && !last.parts[1].independent, "{last:?}");
    let parts: Vec<u8> = last.parts.iter().flat_map(|part| content(&part.uri)).collect();
    assert!(content(&last.uri).ends_with(&parts));
    assert_eq!(content(&last.uri).len(), parts.len() + styp().len());
    // Only the three newest segments are listed with their parts.
    assert!(rig.rendition.playlist().segments.iter().filter(|one| !one.parts.is_empty()).count() <= 3);
}

#[test]
fn a_frame_that_is_missing_makes_no_part_too_long() {
    let mut rig = Rig::new(video(), true);
    rig.missing_ms = 40;
    // A frame per second is missing, in the middle of a part or at its end.
    (0..1500).filter(|n| n % 27 != 0 || n % 50 == 0).for_each(|n| rig.unit(n * 40, n % 50 == 0));
    let last = rig.last.clone().unwrap();
    let parts = last.segments.iter().flat_map(|segment| &segment.parts);
    assert!(parts.clone().count() > 10, "{last:?}");
    assert!(rig.samples().windows(2).all(|pair| pair[0].0 < pair[1].0));
}

#[test]
fn parts_of_a_captured_screen_are_nearly_as_long_as_the_target() {
    for seed in 0..40u64 {
        let mut random = crypto::Seed::from_number(seed).random();
        let longest = [100i64, 170, 250][usize::try_from(seed % 3).unwrap()];
        let mut rig = Rig::new(video(), true);
        // All distances between frames occur in the first segment. Later ones are random, with key frames every 2 s.
        let (mut dts, mut key) = (0, 0);
        while dts < 60_000 {
            rig.unit(dts, dts >= key);
            key = if dts >= key { dts + 2000 } else { key };
            dts += if dts < 33 { longest } else { 33 + random.below(longest.unsigned_abs() - 32) as i64 };
        }
        let last = rig.last.unwrap();
        let low = last.low_latency.as_ref().unwrap();
        assert!(low.part_target >= Duration::from_millis(longest.unsigned_abs() * 6), "{low:?}");
        assert!(last.segments.iter().flat_map(|one| &one.parts).count() > 3, "{last:?}");
    }
}

#[test]
fn a_segment_of_many_parts_has_none_that_is_too_long() {
    for (segment_ms, key_ms, step) in [(60_000, 2000, 40), (60_000, 2000, 70), (2000, 20_000, 67)] {
        let rules = Rules { segment_ms, part_ms: 100, ..Rules::DEFAULT };
        let mut rig = Rig::with(video(), &rules, true, 0);
        (0..200_000 / step).for_each(|n| rig.unit(n * step, n * step % key_ms < step));
        let last = rig.last.unwrap();
        let target = last.low_latency.as_ref().unwrap().part_target;
        let parts: Vec<&Part> = last.segments.iter().flat_map(|segment| &segment.parts).collect();
        assert!(parts.len() > 200, "{segment_ms} {step}: {} parts", parts.len());
        assert!(parts.iter().all(|part| part.duration <= target), "{segment_ms} {step}: {target:?}");
    }
}

#[test]
fn frames_that_take_no_time_are_in_parts_that_are_as_long_as_their_segment() {
    let mut rig = Rig::new(video(), true);
    for n in 0..500 {
        rig.unit(n * 40, n % 50 == 0);
        if n % 50 == 49 || n % 50 == 0 {
            rig.unit(n * 40, false);
        }
    }
    // The last two units have the same time.
    rig.unit(500 * 40, true);
    rig.unit(500 * 40, false);
    rig.rendition.finish(true);
    rig.look();
    assert_eq!(rig.last.unwrap().segments.len(), 11);
}

#[test]
fn a_track_that_leaves_has_gaps_until_it_comes_back_and_no_end() {
    let mut rig = Rig::new(video(), true);
    (0..300).for_each(|n| rig.unit(n * 40, n % 50 == 0));
    rig.rendition.pause();
    rig.look();
    let before = rig.last.clone().unwrap();
    assert_eq!((before.ended, before.segments.len()), (false, 6));
    assert_eq!(before.low_latency.unwrap().hint, None, "no part is promised");
    assert!(!rig.rendition.pass(12_000, |dts| dts), "there is no time for one");
    // Another rendition continues with segments longer than the maximum of this one.
    for end in [14_000, 19_000, 21_000] {
        assert!(rig.rendition.pass(end, |dts_ms| 1_700_000_000_000 + dts_ms));
        assert_eq!(rig.rendition.take_made(), [], "nothing is there");
    }
    let text = rig.rendition.playlist().to_string();
    let Playlist::Media(now) = Playlist::read(text.as_bytes()).unwrap() else { panic!("{text}") };
    rig.check(&now, &text);
    let gaps: Vec<(u128, i64)> = now
        .segments
        .iter()
        .filter(|segment| segment.gap)
        .map(|gap| (gap.duration.as_millis(), gap.program_date_time.unwrap() - 1_700_000_000_000))
        .collect();
    assert_eq!(gaps, [(2000, 12_000), (1666, 14_000), (1667, 15_666), (1667, 17_333), (2000, 19_000)]);
    assert!(!now.ended && now.segments.iter().skip(1).all(|segment| !segment.discontinuity));
    rig.last = Some(now);
    rig.rendition.set_tracks(vec![rig.track.clone()], 2);
    (526..800).for_each(|n| rig.unit(n * 40, n % 50 == 26));
    let now = rig.last.as_ref().unwrap();
    let marks = now.segments.iter().filter(|segment| segment.discontinuity).count() as u64;
    assert_eq!((now.ended, now.discontinuity_sequence + marks), (false, 1));
    assert!(now.segments.last().is_some_and(|segment| !segment.gap));
}

#[test]
fn an_end_that_is_not_told_promises_no_part() {
    let mut rig = Rig::new(video(), true);
    (0..300).for_each(|n| rig.unit(n * 40, n % 50 == 0));
    rig.rendition.finish(false);
    rig.look();
    let last = rig.last.unwrap();
    let low = last.low_latency.unwrap();
    assert_eq!((last.ended, last.segments.len(), low.hint, low.open.parts), (false, 6, None, Vec::new()));
}

#[test]
fn sound_ends_its_segments_where_the_video_does() {
    let (mut lead, mut follower) = (Rig::new(video(), true), Rig::new(audio(), true));
    let mut boundary = None;
    for ms in 0..30_000i64 {
        if ms % 40 == 0 {
            let unit = unit(&lead.track, ms, ms % 3000 == 0);
            boundary = lead.rendition.unit(&timed(&unit)).or(boundary);
            lead.look();
        }
        if ms % 21 == 0 {
            let unit = unit(&follower.track, ms, false);
            follower.rendition.follow(&timed(&unit), boundary);
            follower.look();
        }
    }
    let begins = |rig: &Rig| -> Vec<i64> {
        let segments = &rig.last.as_ref().unwrap().segments;
        segments.iter().map(|segment| segment.program_date_time.unwrap()).collect()
    };
    let (video, audio) = (begins(&lead), begins(&follower));
    assert_eq!(video.len(), audio.len());
    assert!(
        video.iter().zip(&audio).all(|(video, audio)| (0..42).contains(&(audio - video))),
        "{video:?} {audio:?}"
    );
}

/// VP9 with 320x180 pixels; only its key frames contain the size.
#[test]
fn the_size_of_a_track_stays_known_when_others_change_between_its_key_frames() {
    let record = Bytes::from_static(&[1, 0, 0, 0, 0, 21, 0x82, 2, 2, 2, 0, 0]);
    let config = CodecConfig::read(Codec::Vp9, record).unwrap().unwrap();
    let mut rig = Rig::new(Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS), false);
    for n in 0..200i64 {
        // The tracks are set again in the middle of a group of pictures.
        if n == 75 {
            rig.rendition.set_tracks(vec![rig.track.clone()], 2);
        }
        let mut unit = unit(&rig.track, n * 40, n % 50 == 0);
        if unit.key_frame {
            // VP9 §6.2: a key frame, its sync code, its colours, its size.
            unit.payload = Bytes::from_static(&[0x82, 0x49, 0x83, 0x42, 0x20, 0x13, 0xf0, 0x0b, 0x30, 0]);
        }
        rig.rendition.unit(&timed(&unit));
        rig.look();
    }
    let inits: Vec<_> = rig.there.iter().filter(|(name, _)| name.ends_with("_init.mp4")).collect();
    assert_eq!(inits.len(), 2);
    for (name, bytes) in inits {
        let at = bytes.windows(4).position(|window| window == b"vp09").unwrap();
        assert_eq!(bytes[at + 28..at + 32], [1, 64, 0, 180], "{name}");
    }
}

#[test]
fn sound_ends_its_segments_by_itself_where_those_of_the_video_are_too_long_for_it() {
    let (mut lead, mut follower) = (Rig::new(video(), true), Rig::new(audio(), true));
    // The first audio segment is short, as after a change; video segments have three seconds.
    let mut boundary = Some(20_700);
    follower.rendition.adopt(Duration::from_secs(2));
    for ms in 0..60_000i64 {
        if ms % 40 == 0 {
            let unit = unit(&lead.track, ms, ms % 3000 == 0);
            let end = lead.rendition.unit(&timed(&unit)).filter(|_| ms > 21_000);
            boundary = end.or(boundary);
            lead.look();
        }
        if ms % 40 == 0 && ms > 20_000 {
            let unit = unit(&follower.track, ms, false);
            follower.rendition.follow(&timed(&unit), boundary);
            follower.look();
        }
    }
    assert_eq!(follower.last.as_ref().unwrap().target_duration, Duration::from_secs(2));
    assert!(lead.last.unwrap().target_duration == Duration::from_secs(3));
}

#[test]
fn t_09_low_latency_playlists_keep_their_rules_over_random_feeds() {
    for seed in 0..200u64 {
        let mut random = crypto::Seed::from_number(seed).random();
        let step = [20, 33, 40, 66, 100, 200][usize::try_from(random.below(6)).unwrap()];
        let gop = 1 + random.below(100);
        let track = if seed % 3 == 0 { audio() } else { video() };
        let mut rig = Rig::with(track, &Rules { list_size: 4, ..Rules::DEFAULT }, true, 1 << 40);
        let mut dts = random.below(1 << 40) as i64 - (1 << 39);
        for n in 0..600 {
            // Jitter of a millisecond, as caused by clocks of that resolution; occasionally, time is missing.
            dts += step + random.below(2) as i64;
            if random.below(200) == 0 {
                dts += 20_000;
            }
            rig.unit(dts, n % gop == 0);
        }
        rig.rendition.finish(true);
        rig.look();
        let samples = rig.samples();
        assert!(samples.windows(2).all(|pair| pair[0].0 < pair[1].0), "seed {seed}");
        assert!(rig.last.is_some_and(|last| last.ended && last.low_latency.is_none()), "seed {seed}");
    }
}

/// A stream that began before its manifest's zero time is shifted by the same time for every timescale.
#[test]
fn a_stream_is_moved_by_the_same_time_whatever_its_clock() {
    for ticks in [1000, 48_000, 90_000] {
        let scale = Timescale::new(ticks);
        let track = Track { timescale: scale, ..video() };
        let first = |shift_ms| {
            let mut rig = Rig::with(track.clone(), &Rules::DEFAULT, true, shift_ms);
            for n in 0..200 {
                let unit = unit(&track, i64::from(ticks) * n / 25, n % 50 == 0);
                let dts_ms = scale.to_ms(unit.dts);
                rig.rendition.unit(&Timed { dts_ms, ..timed(&unit) });
                rig.look();
            }
            rig.samples()[0].0
        };
        assert_eq!(scale.to_ms(first(700) - first(0)), 700, "{ticks} a second");
    }
}

/// Segments a stream of 25 pictures per second, with key frames every two seconds and units of `bytes` bytes.
fn cut(sealer: Option<Sealer>, rules: &Rules, bytes: usize) -> (Vec<(String, Bytes)>, MediaPlaylist) {
    let mut rendition = Mp4Segmenter::new(named("cam", None), rules, false, (START, 0)).sealed_by(sealer);
    let track = video();
    rendition.set_tracks(vec![track.clone()], 1);
    let mut made = Vec::new();
    for n in 0..400i64 {
        let payload = Bytes::from(vec![n.to_le_bytes()[0]; bytes]);
        let unit = AccessUnit { payload, ..unit(&track, n * 40, n % 50 == 0) };
        rendition.unit(&timed(&unit));
        if rendition.window().is_ripe() {
            rendition.adopt(rendition.window().wanted_target());
        }
        made.extend(rendition.take_made().into_iter().map(|one| (one.name, one.bytes)));
    }
    rendition.finish(true);
    made.extend(rendition.take_made().into_iter().map(|one| (one.name, one.bytes)));
    (made, rendition.playlist())
}

#[test]
fn a_segment_that_is_sealed_as_a_whole_is_opened_to_the_clear_one() {
    use super::super::{Scope, Sealing};
    use crypto::{AesCbcOpener, Seed};
    let rules = Rules { fragment_ms: Some(500), list_size: 5, ..Rules::DEFAULT };
    for bytes in [1, 7, 160, 5000] {
        let sealing = Sealing { scope: Some(Scope::Segments), segments: Some(2), ..Sealing::default() };
        let sealer = Sealer::of(&sealing, &Seed::from_number(7));
        let (clear, _) = cut(None, &rules, bytes);
        // Fragments are short even if that is not requested, so that no long one is encrypted at once.
        let (sealed, playlist) = cut(sealer, &Rules { fragment_ms: None, ..rules.clone() }, bytes);
        let of = |made: &[(String, Bytes)], name: &str| {
            made.iter().find(|(own, _)| own == name).map(|(_, bytes)| bytes.clone()).unwrap()
        };
        let text = playlist.to_string();
        assert_eq!(text.matches("#EXT-X-KEY:METHOD=AES-128").count(), 5, "{text}");
        assert!(text.find("#EXT-X-MAP") < text.find("#EXT-X-KEY"), "the init segment is clear: {text}");
        for segment in &playlist.segments {
            let tag = segment.key.as_ref().unwrap();
            let mut opened = of(&sealed, &segment.uri).to_vec();
            let key = of(&sealed, &tag.uri);
            assert!(AesCbcOpener::new(&key, tag.iv.unwrap()).unwrap().open(&mut opened));
            opened.truncate(opened.len() - usize::from(*opened.last().unwrap()));
            assert_eq!(opened, of(&clear, &segment.uri), "{bytes} {}", segment.uri);
        }
    }
}

#[test]
fn a_picture_that_waits_for_the_next_one_may_begin_a_segment_that_is_not_independent() {
    let (video, audio) = (video(), audio());
    let mut rig = Rig::new(video.clone(), false);
    rig.rendition.set_tracks(vec![video.clone(), audio.clone()], 1);
    for dts in (0..14_000).step_by(40) {
        // The video pauses, and the sound ends its segment. The next picture is a key frame, so far away that the
        // pause ends with a discontinuity.
        let is_paused = (8400..12_000).contains(&dts);
        if !is_paused {
            rig.unit(dts, dts % 2000 == 0);
        }
        rig.rendition.unit(&timed(&unit(&audio, dts, true)));
        rig.look();
        let playlist = rig.rendition.playlist();
        let is_listed = playlist.segments.iter().any(|segment| segment.uri == "cam000000006.m4s");
        assert_eq!(playlist.independent_segments, !is_listed, "{dts}: {playlist}");
    }
}
