//! Tracks that are announced and send nothing, and tracks that stop while others go on.

use super::*;

/// Announced, and without units.
const NEVER: i64 = i64::MAX;

/// Returns the end of the last segment in the manifest, in milliseconds of the stream.
fn newest_ms(rig: &Rig) -> i64 {
    let text = rig.text("cam/cam.mpd");
    let value = |line: &str, name: &str| -> i64 {
        let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let template = text.lines().rfind(|line| line.starts_with("<SegmentTemplate ")).unwrap();
    let last = text.lines().rfind(|line| line.starts_with("<S ")).unwrap();
    (value(last, "t") + value(last, "d")) * 1000 / value(template, "timescale") - SPARE_MS
}

fn longest_ms(playlist: &MediaPlaylist) -> u128 {
    playlist.segments.iter().map(|segment| segment.duration.as_millis()).max().unwrap()
}

#[test]
fn video_that_is_announced_and_never_comes_does_not_hold_sound_back() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), NEVER), (audio(), 0)], 1, 0..30_000);
    let sound = rig.media("cam__audio");
    // The first segment waits for the video for five seconds.
    assert!(longest_ms(&sound) < 5100 && sound.segments.len() > 10, "{sound}");
    assert!(sound.segments.iter().skip(1).all(|one| one.duration.as_millis() < 2100), "{sound}");
    assert!(newest_ms(&rig) > 27_000, "{}", rig.text("cam/cam.mpd"));
    let master = rig.text("ll-hls/cam/cam__master.m3u8");
    assert!(master.contains("cam__audio") && !master.contains("cam__video"), "{master}");
    // The video comes after all, and is listed with the same numbers as the sound.
    rig.pass(&[(video(0), 30_400), (audio(), 0)], 1, 30_000..50_000);
    let [pictures, sound] = ["cam__video", "cam__audio"].map(|base| rig.segments(base));
    let last = *pictures.keys().next_back().unwrap();
    assert!(pictures.len() > 4 && sound.contains_key(&last), "{pictures:?} {sound:?}");
    assert!(pictures[&last].0.abs_diff(sound[&last].0) < 100, "{pictures:?} {sound:?}");
    assert!(rig.text("cam/cam.mpd").contains("video/mp4") && newest_ms(&rig) > 47_000);
}

#[test]
fn video_that_stops_gets_gaps_and_comes_back_with_a_key_frame() {
    for (name, stops_ms, goes_on_ms) in [("for a while", 10_000, 30_000), ("for a moment", 10_000, 14_000)] {
        let mut rig = Rig::new();
        let both = |first_ms| [(video(0), first_ms), (audio(), 0)];
        rig.pass(&both(0), 1, 0..stops_ms);
        rig.pass(&both(NEVER), 1, stops_ms..goes_on_ms);
        let is_long = goes_on_ms - stops_ms > 5000;
        if is_long {
            assert!(longest_ms(&rig.media("cam__audio")) < 3000, "{name}");
            assert!(newest_ms(&rig) > goes_on_ms - 3000, "{name}: {}", rig.text("cam/cam.mpd"));
            let pictures = rig.media("cam__video");
            assert!(pictures.segments.last().unwrap().gap && !pictures.ended, "{name}: {pictures}");
        }
        // The first picture is no key frame, which the publisher is asked for.
        rig.pass(&both(goes_on_ms), 1, goes_on_ms + 40..goes_on_ms + 12_000);
        assert_eq!(rig.asked, u32::from(is_long), "{name}");
        let pictures = rig.media("cam__video");
        assert!(!pictures.segments.last().unwrap().gap, "{name}: {pictures}");
        assert_eq!(pictures.segments.iter().any(|one| one.gap), is_long, "{name}: {pictures}");
        assert!(!is_long || pictures.independent_segments, "{name}: {pictures}");
        assert!(newest_ms(&rig) > goes_on_ms + 9000, "{name}");
    }
}

#[test]
fn sound_that_stops_gets_gaps_and_pictures_go_on() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..10_000);
    rig.pass(&[(video(0), 0), (audio(), NEVER)], 1, 10_000..30_000);
    let [pictures, sound] = ["cam__video", "cam__audio"].map(|base| rig.media(base));
    assert!(sound.segments.last().unwrap().gap && !sound.ended, "{sound}");
    assert!(pictures.segments.iter().all(|one| !one.gap), "{pictures}");
    assert!(newest_ms(&rig) > 27_000, "{}", rig.text("cam/cam.mpd"));
    rig.pass(&[(video(0), 0), (audio(), 30_400)], 1, 30_000..45_000);
    let [pictures, sound] = ["cam__video", "cam__audio"].map(|base| rig.media(base));
    let all = pictures.segments.iter().chain(&sound.segments);
    assert!(all.into_iter().all(|one| !one.discontinuity), "{pictures} {sound}");
    assert!(pictures.independent_segments && !sound.segments.last().unwrap().gap, "{pictures} {sound}");
    let [pictures, sound] = ["cam__video", "cam__audio"].map(|base| rig.segments(base));
    let (last, (date_ms, _)) = sound.last_key_value().unwrap();
    assert!(pictures[last].0.abs_diff(*date_ms) < 100, "{pictures:?} {sound:?}");
    // Each of its periods has the same sets from its first segment on.
    let text = rig.text("cam/cam.mpd");
    let periods: Vec<usize> =
        text.split("<Period ").skip(1).map(|one| one.matches("<AdaptationSet ").count()).collect();
    assert!(periods.ends_with(&[1, 2]), "{text}");
}

#[test]
fn segments_of_all_tracks_go_on_without_video_that_never_comes() {
    let mut rig = Rig::laid_out(Layout::Together, 1_795_806_797_674, &[("hlsSegmentType", "fmp4")]);
    rig.pass(&[(video(0), NEVER), (audio(), 0)], 1, 0..30_000);
    let Ok(Playlist::Media(playlist)) = Playlist::read(&rig.blobs["cam.m3u8"]) else { panic!() };
    assert!(playlist.segments.len() > 10 && longest_ms(&playlist) < 2100, "{playlist}");
}

#[test]
fn other_tracks_alone_are_in_the_manifest_with_their_first_segment() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0)], 1, 0..12_000);
    rig.pass(&[(audio(), 0)], 2, 12_000..14_600);
    assert!(newest_ms(&rig) == 14_000, "{}", rig.text("cam/cam.mpd"));
    rig.pass(&[(audio(), 0)], 2, 14_600..30_000);
    let text = rig.text("cam/cam.mpd");
    assert!(text.matches("<Period ").count() == 2 && newest_ms(&rig) > 27_000, "{text}");
}

#[test]
fn pictures_that_join_sound_are_in_the_manifest_with_their_first_segment() {
    let mut rig = Rig::new();
    rig.pass(&[(audio(), 0)], 1, 0..12_000);
    rig.pass(&[(video(0), 0), (audio(), 0)], 2, 12_000..17_000);
    let text = rig.text("cam/cam.mpd");
    assert!(newest_ms(&rig) >= 15_900, "{} {text}", newest_ms(&rig));
    let sets: Vec<usize> =
        text.split("<Period ").skip(1).map(|one| one.matches("<AdaptationSet ").count()).collect();
    assert_eq!(sets, [1, 2], "{text}");
}

#[test]
fn gaps_alone_keep_the_init_segment_of_the_track_that_has_left() {
    let mut rig = Rig::with(&[("hlsListSize", "3")]);
    rig.pass(&[(audio(), 0)], 1, 0..12_000);
    let map = rig.media("cam__audio").segments[0].map.clone();
    rig.pass(&[(video(0), 0)], 2, 12_000..40_000);
    let playlist = rig.media("cam__audio");
    assert!(playlist.segments.iter().all(|one| one.gap && one.map == map), "{playlist}");
}

#[test]
fn a_manifest_does_not_wait_for_sound_that_a_returned_publisher_never_sends() {
    let mut rig = Rig::with(&[("hlsTime", "6"), ("hlsEnableLowLatency", "false")]);
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..14_000);
    let other = Track { epoch: 2, ..video(0) };
    rig.pass(&[(other.clone(), 0), (audio(), NEVER)], 2, 14_000..22_480);
    assert_eq!(newest_ms(&rig), 20_000, "{}", rig.text("cam/cam.mpd"));
    rig.pass(&[(other, 0), (audio(), NEVER)], 2, 22_480..40_000);
    let text = rig.text("cam/cam.mpd");
    let sets: Vec<usize> =
        text.split("<Period ").skip(1).map(|one| one.matches("<AdaptationSet ").count()).collect();
    assert!(sets == [2, 1] && newest_ms(&rig) == 38_000, "{text}");
}
