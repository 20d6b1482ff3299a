//! Timed metadata and splice information in segments, playlists and manifests.

use super::super::super::EVENTS_MAX;
use super::*;

/// The bodies of the event messages with this scheme in a file.
fn messages<'f>(file: &'f [u8], scheme: &str) -> Vec<&'f [u8]> {
    let mut messages = Vec::new();
    let mut rest = file;
    while let Some((size, _)) = rest.split_first_chunk::<4>() {
        let (one, behind) = rest.split_at(u32::from_be_bytes(*size) as usize);
        if let Some(body) = one.strip_prefix(&[size, &b"emsg"[..], &[1, 0, 0, 0, 0, 0, 3, 0xe8]].concat()[..])
        {
            messages.extend(
                body.get(16..).is_some_and(|rest| rest.starts_with(scheme.as_bytes())).then_some(body),
            );
        }
        rest = behind;
    }
    messages
}

/// Times and texts of the ID3 tags in a file.
fn events(file: &[u8]) -> Vec<(u64, String)> {
    let text = |body: &[u8]| {
        let tags = body.windows(4).position(|four| four == b"ID3\x04").unwrap();
        assert_eq!(&body[16..tags], [ID3_SCHEME.as_bytes(), &[0, 0]].concat());
        let text = media::id3::texts(&body[tags..])[0].1.to_owned();
        (u64::from_be_bytes(body[..8].try_into().unwrap()), text)
    };
    messages(file, ID3_SCHEME).into_iter().map(text).collect()
}

#[test]
fn metadata_stands_before_the_fragment_of_its_time_and_in_the_manifest() {
    let tags = |n: i64| media::id3::text("n", &n.to_string()).unwrap();
    for (low_latency, has_metadata) in [(true, true), (false, true), (true, false)] {
        let mut rig = Rig::with(video(), &Rules::DEFAULT, low_latency, 500);
        if has_metadata {
            rig.rendition = rig.rendition.with_metadata();
        }
        rig.rendition.metadata(0, &tags(0));
        for n in 0..440 {
            rig.unit(n * 40, n % 50 == 0);
            if n % 90 == 89 {
                rig.rendition.metadata(n * 40, &tags(n));
            }
        }
        let is_part = |name: &str| name.matches('.').count() == 2;
        let all = |of_parts| -> Vec<(u64, String)> {
            let files =
                rig.there.iter().filter(|(name, _)| !name.ends_with(".mp4") && is_part(name) == of_parts);
            files.flat_map(|(_, file)| events(file)).collect()
        };
        let expected: Vec<(u64, String)> = [89, 179, 269, 359]
            .map(|n| (n * 40 + 500, n.to_string()))
            .into_iter()
            .filter(|_| has_metadata)
            .collect();
        assert_eq!(all(false), expected, "{low_latency}");
        let shown = manifest(&rig.rendition, &[Stretch { id: 1, begin_ms: 0, delay_ms: 0 }], None);
        assert_eq!(
            shown.contains("<InbandEventStream schemeIdUri=\"https://aomedia.org/emsg/ID3\"/>"),
            has_metadata
        );
        if low_latency {
            // The first segment has no parts.
            assert_eq!(all(true), expected);
        }
    }
    let mut rig = Rig::new(video(), true);
    rig.rendition = rig.rendition.with_metadata();
    rig.unit(0, true);
    (0..1000).for_each(|n| rig.rendition.metadata(n, &tags(n)));
    (1..100).for_each(|n| rig.unit(n * 40, n % 50 == 0));
    let count: usize = rig.there.iter().map(|(_, file)| events(file).len()).sum();
    assert_eq!(count, EVENTS_MAX, "the newest of a flood");
}

#[test]
fn splice_information_is_an_event_of_pictures_and_a_range_in_playlists_and_delta_updates() {
    let section = media::scte35::insert(7, media::scte35::Kind::Out, Some(540_000));
    let splice = media::scte35::Splice::read(&section).unwrap();
    let cue = Cue { at_ms: 12_000, date_ms: 1_700_000_012_000, splice, section: section.clone() };
    for has_event in [true, false] {
        let mut rig = Rig::with(video(), &Rules::DEFAULT, true, 500);
        let told = |rig: &Rig| {
            let text = manifest(&rig.rendition, &[Stretch { id: 1, begin_ms: 0, delay_ms: 0 }], None);
            text.contains("<InbandEventStream schemeIdUri=\"urn:scte:scte35:2013:bin\"/>")
        };
        for n in 0..1000 {
            rig.unit(n * 40, n % 50 == 0);
            if n == 210 || n == 220 {
                assert_eq!(told(&rig), n == 220 && has_event);
                rig.rendition.cue(&cue, has_event);
            }
            if n == 230 {
                let low = rig.rendition.playlist().low_latency.unwrap();
                assert_eq!(low.open.date_ranges.len(), 1, "players need not wait for the segment");
            }
        }
        let whole = rig.there.iter().filter(|(name, _)| name.matches('.').count() == 1);
        let found: Vec<&[u8]> = whole.flat_map(|(_, file)| messages(file, SPLICE_SCHEME)).collect();
        // The time and the duration, an id derived from the content, then the scheme and the section.
        let time = [&12_500u64.to_be_bytes()[..], &6000u32.to_be_bytes()].concat();
        let event = [SPLICE_SCHEME.as_bytes(), &[0, 0], &section].concat();
        let expected: Vec<_> = has_event.then_some((&time[..], &event[..])).into_iter().collect();
        assert_eq!(found.iter().map(|one| (&one[..12], &one[16..])).collect::<Vec<_>>(), expected);
        let playlist = rig.rendition.playlist();
        let ranges = |playlist: &MediaPlaylist| {
            playlist.segments.iter().map(|segment| segment.date_ranges.len()).collect::<Vec<_>>()
        };
        // The segment that began at 8 s is the oldest listed.
        assert_eq!((ranges(&playlist)[0], ranges(&playlist).iter().sum::<usize>()), (1, 1));
        let delta = playlist.delta().unwrap();
        assert!(delta.skipped > 2);
        assert_eq!((ranges(&delta)[0], ranges(&delta).iter().sum::<usize>()), (1, 1));
    }
}

#[test]
fn a_tag_in_the_middle_of_a_segment_stands_behind_the_parts_that_were_listed() {
    let mut rig = Rig::with(video(), &Rules::DEFAULT, true, 0);
    let mut shown: Vec<String> = Vec::new();
    for n in 0..500i64 {
        rig.unit(n * 40, n % 50 == 0);
        if n % 30 == 0 && n > 200 {
            let section = media::scte35::insert(7, media::scte35::Kind::Out, Some(90_000));
            let splice = media::scte35::Splice::read(&section).unwrap();
            rig.rendition
                .cue(&Cue { at_ms: n * 40, date_ms: 1_700_000_000_000 + n * 40, splice, section }, false);
        }
        let text = rig.rendition.playlist().to_string();
        let is_listed = |line: &&str| {
            ["#EXTINF", "#EXT-X-DATE", "#EXT-X-PRO", "#EXT-X-PART:"].iter().any(|tag| line.starts_with(tag))
        };
        let lines: Vec<String> = text.lines().filter(is_listed).map(str::to_owned).collect();
        let last = shown.iter().filter_map(|line| lines.iter().position(|one| one == line)).max();
        let former = &lines[..last.map_or(0, |last| last + 1)];
        assert!(former.iter().all(|line| shown.contains(line)), "only appended to: {text}");
        shown = lines;
    }
    assert!(shown.iter().filter(|line| line.starts_with("#EXT-X-DATE")).count() > 3);
}
