//! Segments, playlists and the manifest of single tracks on the disk.

use super::*;
use crate::jobs::{AppendError, ArchiveWork, Outcome, Work};

/// Does a job on a disk, which cannot write files whose names have these endings.
pub(super) fn outcome(
    disk: &mut BTreeMap<(String, String), Bytes>,
    unwritable: &[String],
    work: ArchiveWork,
) -> Outcome {
    let place = |path: Vec<String>| {
        let (name, folder) = path.split_last().unwrap();
        assert_eq!(folder[..2], ["live", "streams"]);
        (folder[2..].join("/"), name.clone())
    };
    match work {
        ArchiveWork::Put { path, data } => {
            let place = place(path);
            if unwritable.iter().any(|ending| place.1.ends_with(ending.as_str())) {
                return Outcome::Archived(Err(AppendError::Full));
            }
            disk.insert(place, data);
        }
        ArchiveWork::Remove { path, begun_ms } => {
            let (folder, name) = place(path);
            let Some(text) = disk.get(&(folder.clone(), name.clone())).cloned() else {
                return Outcome::Archived(Ok(()));
            };
            let Ok(Playlist::Media(list)) = Playlist::read(&text) else { panic!("{text:?}") };
            let begun = list.segments.first().and_then(|first| first.program_date_time);
            if begun_ms.is_none() || begun_ms == begun {
                disk.remove(&(folder.clone(), name));
                for segment in &list.segments {
                    let map = segment.map.iter().map(|map| map.uri.clone());
                    map.chain([segment.uri.clone()])
                        .for_each(|uri| drop(disk.remove(&(folder.clone(), uri))));
                }
            }
        }
        ArchiveWork::Withdraw { path, data } => {
            let place = place(path);
            if disk.get(&place) == Some(&data) {
                disk.remove(&place);
            }
        }
        ArchiveWork::Clear { path } => {
            let (folder, stem) = place(path);
            disk.retain(|(of, name), _| *of != folder || !name.starts_with(&stem));
        }
        ArchiveWork::Dvr(_) => panic!("{work:?}"),
    }
    Outcome::Archived(Ok(()))
}

fn rig(kind: &str, is_deleted: &str) -> Rig {
    Rig::with(&[("hlsPlayListType", kind), ("deleteHLSFilesOnEnded", is_deleted), ("hlsListSize", "3")])
}

fn text<'r>(rig: &'r Rig, folder: &str, name: &str) -> &'r str {
    let bytes = rig.disk.get(&(folder.to_owned(), name.to_owned()));
    std::str::from_utf8(bytes.unwrap_or_else(|| panic!("{name}: {:?}", rig.disk.keys()))).unwrap()
}

/// Returns a playlist on the disk, after a check that all files that it names are there.
fn list(rig: &Rig, base: &str) -> MediaPlaylist {
    let text = text(rig, "ll-hls/cam", &format!("{base}{ENDING}"));
    let Ok(Playlist::Media(playlist)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
    for segment in playlist.segments.iter().filter(|segment| !segment.gap) {
        let names = [&segment.uri, &segment.map.as_ref().unwrap().uri];
        let is_there = |name: &String| rig.disk.contains_key(&("ll-hls/cam".to_owned(), name.clone()));
        assert!(names.into_iter().all(is_there), "{names:?}");
    }
    assert!(playlist.low_latency.is_none() && playlist.segments.iter().all(|one| one.parts.is_empty()));
    playlist
}

/// Returns the number of segments of video and of audio in the manifest on the disk, all of which are there.
fn listed(rig: &Rig) -> [usize; 2] {
    let manifest = text(rig, "cam", "cam.mpd");
    assert!(manifest.contains("<BaseURL>../ll-hls/cam/</BaseURL>"), "{manifest}");
    let (segments, inits) = window::listed(manifest);
    for name in segments.iter().map(|(name, ..)| name).chain(&inits) {
        assert!(rig.disk.contains_key(&("ll-hls/cam".to_owned(), name.clone())), "{name}");
    }
    ["__video_", "__audio_"].map(|kind| segments.iter().filter(|(name, ..)| name.contains(kind)).count())
}

#[test]
fn all_segments_of_each_track_are_on_the_disk_with_their_lists_and_manifest() {
    for (kind, tag) in [("event", "EVENT"), ("vod", "VOD")] {
        let mut rig = rig(kind, "false");
        let tracks = [(video(0), 0), (audio(), 0)];
        rig.pass(&tracks, 1, 0..31_000);
        for base in ["cam__video", "cam__audio"] {
            let playlist = list(&rig, base);
            assert!(!playlist.ended && playlist.segments.len() == 15, "{kind}: {playlist}");
            // Live viewers have the newest segments, with their parts.
            let live = rig.media(base);
            assert!(live.low_latency.is_some() && live.segments.len() == 3, "{kind}: {live}");
        }
        assert_eq!(listed(&rig), [15, 15], "{kind}");
        assert!(text(&rig, "cam", "cam.mpd").contains("type=\"dynamic\""), "{kind}");
        let master = text(&rig, "ll-hls/cam", "cam__master.m3u8");
        assert!(master.starts_with(rig.text("ll-hls/cam/cam__master.m3u8")), "{master}");
        assert!(matches!(Playlist::read(master.as_bytes()), Ok(Playlist::Multivariant(_))), "{master}");
        rig.end(31_000);
        for base in ["cam__video", "cam__audio"] {
            let playlist = list(&rig, base);
            assert!(playlist.ended && playlist.segments.len() == 16, "{kind}: {playlist}");
            assert!(text(&rig, "ll-hls/cam", &format!("{base}{ENDING}")).contains(&format!("TYPE:{tag}\n")));
        }
        assert_eq!(listed(&rig), [16, 16], "{kind}");
        let manifest = text(&rig, "cam", "cam.mpd");
        assert!(manifest.contains("type=\"static\"") && !manifest.contains("UTCTiming"), "{manifest}");
        assert!(manifest.contains("start=\"PT0.000S\""), "{manifest}");
    }
}

#[test]
fn files_of_tracks_are_removed_after_the_end_and_those_of_a_new_run_stay() {
    let mut rig = rig("vod", "true");
    let tracks = [(video(0), 0), (audio(), 0)];
    rig.pass(&tracks, 1, 0..20_000);
    rig.end(20_000);
    assert_eq!(listed(&rig), [10, 10]);
    // The stream has begun anew meanwhile, and its master playlist is the same but for the run.
    let place = ("ll-hls/cam".to_owned(), "cam__master.m3u8".to_owned());
    let other = Bytes::from(format!("{}#MILLSTREAM-RUN:1\n", rig.text("ll-hls/cam/cam__master.m3u8")));
    rig.disk.insert(place.clone(), other);
    let at = |ms| Now { mono: rig.begun + Duration::from_millis(ms), wall_ms: rig.wall_ms + ms };
    let [early, late] = [25_000, 27_000].map(at);
    for (now, count) in [(early, 26), (late, 1)] {
        rig.sink.publishing.handle_timeout(now);
        rig.drain(now);
        assert_eq!(rig.disk.len(), count, "{:?}", rig.disk.keys());
    }
    assert!(rig.disk.contains_key(&place));
}

#[test]
fn a_segment_that_the_disk_does_not_take_is_a_gap_in_its_playlist_and_left_out_of_the_manifest() {
    let mut rig = rig("vod", "false");
    rig.unwritable = vec!["_000000003.m4s".to_owned()];
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..20_000);
    rig.end(20_000);
    for base in ["cam__video", "cam__audio"] {
        let gaps: Vec<bool> = list(&rig, base).segments.iter().map(|one| one.gap).collect();
        assert_eq!((gaps.len(), gaps[2], gaps.iter().filter(|gap| **gap).count()), (10, true, 1), "{base}");
    }
    assert_eq!(listed(&rig), [9, 9]);
    // No place of a lost segment is kept.
    let held = format!("{:?}", rig.sink.publishing);
    assert_eq!(held.matches("coming: Coming { pieces: {}").count(), 2, "{held}");
}

#[test]
fn a_master_playlist_that_the_disk_does_not_take_is_tried_again() {
    let mut rig = rig("event", "false");
    rig.unwritable = vec!["__master.m3u8".to_owned()];
    let tracks = [(video(0), 0), (audio(), 0)];
    rig.pass(&tracks, 1, 0..12_000);
    let place = ("ll-hls/cam".to_owned(), "cam__master.m3u8".to_owned());
    let pass = |rig: &mut Rig, ms: u64| {
        let now = Now { mono: rig.begun + Duration::from_millis(ms), wall_ms: rig.wall_ms + ms };
        rig.sink.publishing.handle_timeout(now);
        rig.drain(now);
    };
    pass(&mut rig, 13_000);
    assert!(!rig.disk.contains_key(&place));
    rig.unwritable.clear();
    pass(&mut rig, 13_500);
    assert!(!rig.disk.contains_key(&place), "there is a pause between two attempts");
    pass(&mut rig, 14_000);
    assert!(rig.disk.contains_key(&place), "{:?}", rig.disk.keys());
    rig.pass(&tracks, 1, 14_000..20_000);
    rig.end(20_000);
    assert!(rig.sink.publishing.poll_timeout().is_none() && listed(&rig)[0] > 6);
}

#[test]
fn what_an_earlier_run_has_left_goes_before_the_first_file_of_this_one() {
    let mut rig = rig("event", "false");
    let mut old = |folder: &str, name: &str| {
        rig.disk.insert((folder.to_owned(), name.to_owned()), Bytes::from_static(b"#EXTM3U\n"));
    };
    for name in ["cam__master.m3u8", "cam__audio.m3u8", "cam__audio_9_000000001.m4s"] {
        old("ll-hls/cam", name);
    }
    old("cam", "cam.mpd");
    old("cam", "cam000000001.ts");
    // The first segment is not complete yet, and a track of the earlier run does not come again.
    rig.pass(&[(video(0), 0)], 1, 0..1000);
    let left: Vec<_> = rig.disk.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(left, ["cam000000001.ts"]);
    rig.pass(&[(video(0), 0)], 1, 1000..12_000);
    assert!(!text(&rig, "ll-hls/cam", "cam__master.m3u8").contains("audio") && listed(&rig)[0] > 3);
}

#[test]
fn tracks_that_have_left_are_in_the_list_of_tracks_on_the_disk() {
    let mut rig = rig("vod", "false");
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..12_000);
    rig.pass(&[(audio(), 12_000)], 2, 12_000..40_000);
    let master = |rig: &Rig| text(rig, "ll-hls/cam", "cam__master.m3u8").to_owned();
    let video_line =
        |text: &str| text.lines().find(|line| line.starts_with("#EXT-X-STREAM-INF")).unwrap().to_owned();
    let during = master(&rig);
    assert!(during.contains("cam__video.m3u8") && during.contains("URI=\"cam__audio.m3u8\""), "{during}");
    rig.end(40_000);
    // Its rate is that of its segments, although memory has gaps alone.
    let after = master(&rig);
    let rate = |text: &str| -> u64 {
        let line = video_line(text);
        line.split_once("BANDWIDTH=").unwrap().1.split(',').next().unwrap().parse().unwrap()
    };
    assert!(after.contains("cam__video.m3u8") && rate(&after) >= rate(&during), "{after}");
    assert!(
        !rig.text("ll-hls/cam/cam__master.m3u8").contains("cam__video"),
        "live viewers have what there is"
    );
    let pictures = list(&rig, "cam__video");
    assert!(pictures.ended && pictures.segments.iter().filter(|one| !one.gap).count() == 6, "{pictures}");
}

#[test]
fn texts_are_removed_last_and_not_written_anew_behind_a_slow_removal() {
    let mut rig = rig("event", "true");
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..20_000);
    rig.end(20_000);
    let now = Now { mono: rig.begun + Duration::from_millis(27_000), wall_ms: rig.wall_ms + 27_000 };
    rig.sink.publishing.handle_timeout(now);
    // The disk does the job that it got last first, so the removal of many segments takes longest.
    let (mut jobs, mut texts) = (Vec::new(), 0);
    loop {
        while let Some(event) = rig.sink.publishing.poll(now) {
            if let Event::Job(job) = event {
                jobs.push(job);
            }
        }
        let Some(job) = jobs.pop() else { break };
        texts += usize::from(matches!(job.work, Work::Archive(ArchiveWork::Withdraw { .. })));
        let outcome = going_back::outcome(&mut rig.disk, &[], job.work);
        rig.sink.publishing.job_done(now, JobDone { id: job.id, outcome });
    }
    assert_eq!((rig.disk.keys().collect::<Vec<_>>(), texts), (Vec::new(), 2));
}
