//! Rewinding a stream with segments of single tracks, with low latency and over DASH.

use super::*;
use crate::jobs::{AppendError, ArchiveWork, DvrDone, DvrWork, Outcome, Work};

/// Does a job on a disk, which cannot write files whose names have these endings.
pub(super) fn outcome(
    disk: &mut BTreeMap<(String, String), Bytes>,
    unwritable: &[String],
    work: Work,
) -> Outcome {
    let Work::Archive(work) = work else { panic!("{work:?}") };
    let ArchiveWork::Dvr(work) = work else { return kept::outcome(disk, unwritable, work) };
    let mut lists = Vec::new();
    match work {
        DvrWork::Put { folder, name, data, .. } => {
            let [app, _, folder] = folder.try_into().unwrap();
            assert_eq!(app, "live");
            if unwritable.iter().any(|ending| name.ends_with(ending.as_str())) {
                return Outcome::Dvr(Err(AppendError::Failed));
            }
            disk.insert((folder, name), data);
        }
        DvrWork::Drop { folder, names } => {
            names.into_iter().for_each(|name| drop(disk.remove(&(folder[2].clone(), name))));
        }
        DvrWork::Resume { folder, .. } => {
            let is_list = |(own, name): &(String, String)| *own == folder[2] && name.ends_with(".list");
            lists.extend(disk.iter().filter(|(of, _)| is_list(of)).map(|(_, list)| list.clone()));
        }
        other @ (DvrWork::Clear { .. } | DvrWork::ClearAll { .. } | DvrWork::Sweep { .. }) => {
            panic!("{other:?}")
        }
    }
    Outcome::Dvr(Ok(DvrDone { lists, app_bytes: 0, streams: 1, stream_bytes: 0, is_taken: false }))
}

fn window() -> Rig {
    Rig::with(&[("dvr.window", "600"), ("hlsListSize", "5"), ("hlsTime", "2")])
}

fn whole(rig: &Rig, base: &str) -> MediaPlaylist {
    let text = &rig.blobs[&format!("ll-hls/cam/{base}{ENDING}?dvr")];
    let text = dvr::list::select(text, dvr::list::Choice::default()).unwrap().concat();
    let Ok(Playlist::Media(playlist)) = Playlist::read(&text) else { panic!("{text:?}") };
    playlist
}

#[test]
fn a_list_reaches_back_to_the_disk_and_has_the_parts_of_its_newest_segments() {
    let mut rig = window();
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..120_360);
    for base in ["cam__video", "cam__audio"] {
        let (live, whole) = (rig.media(base), whole(&rig, base));
        assert!(live.segments.len() <= 6 && whole.segments.len() >= 58, "{}", whole.segments.len());
        assert_eq!(
            whole.media_sequence + whole.segments.len() as u64,
            live.media_sequence + live.segments.len() as u64
        );
        assert_eq!(
            whole.low_latency.as_ref().map(|low| &low.hint),
            live.low_latency.as_ref().map(|low| &low.hint)
        );
        let low = whole.low_latency.as_ref().unwrap();
        assert!(low.can_block_reload && low.skip_until.is_some() && !low.open.parts.is_empty(), "{whole}");
        assert_eq!(low.open.parts, live.low_latency.as_ref().unwrap().open.parts);
        let parts = |list: &MediaPlaylist| -> Vec<usize> {
            list.segments.iter().rev().take(5).map(|segment| segment.parts.len()).collect()
        };
        assert_eq!(parts(&whole), parts(&live));
        assert!(whole.segments.iter().rev().skip(3).all(|segment| segment.parts.is_empty()));
        // Each listed file is in memory or on the disk, where it has a path.
        let folder = format!("ll-hls%2Fcam%2F{base}");
        for segment in &whole.segments {
            for name in [&segment.uri, &segment.map.as_ref().unwrap().uri] {
                let is_kept = rig.disk.contains_key(&(folder.clone(), name.clone()));
                assert!(is_kept || rig.blobs.contains_key(&format!("ll-hls/cam/{name}")), "{name}");
                let path = kept_apart("live", &rig.settings, &format!("ll-hls/cam/{name}")).unwrap();
                assert_eq!(path, ["live", ".dvr", &folder, name].map(str::to_owned));
            }
        }
    }
    assert!(
        rig.disk.keys().all(|(_, name)| part_of(&Suffix::NINE_DIGITS, name).is_none()),
        "no parts are kept: {:?}",
        rig.disk.keys()
    );
    let in_memory = rig.blobs.keys().filter(|name| name.ends_with(".m4s")).count();
    assert!(in_memory < 140, "{in_memory}");
}

#[test]
fn files_of_tracks_are_told_from_others_by_their_names() {
    let playlist = |name| track_file(name).map(|(id, playlist)| (id.to_owned(), playlist.to_owned()));
    for (name, id, list) in [
        ("ll-hls/cam/cam__video_115_000000001.m4s", "cam", "ll-hls/cam/cam__video"),
        ("ll-hls/a_1/a_1__audio12_115_000000001.m4s", "a_1", "ll-hls/a_1/a_1__audio12"),
        ("ll-hls/cam/cam__audio_1795806797674_init.mp4", "cam", "ll-hls/cam/cam__audio"),
    ] {
        assert_eq!(playlist(name), Some((id.to_owned(), list.to_owned())), "{name}");
        let settings = window().settings;
        let owner = crate::protocol::sinks::owner_of(&settings, name).map(|(kind, id)| (kind.name, id));
        assert_eq!(owner, Some((APART.name, id)), "{name}");
    }
    for name in [
        "cam000000001.m4s",
        "ll-hls/cam/other__video_115_000000001.m4s",
        "ll-hls/cam/cam__text_1_1.m4s",
        "ll-hls/cam/cam__video.m3u8",
        "ll-hls/cam/cam__video_1/..m4s",
        "ll-hls/../..__video_1_1.m4s/x",
        "ll-hls//__video_1_1.m4s",
    ] {
        assert_eq!(playlist(name), None, "{name}");
    }
}

#[test]
fn a_deleted_stream_has_the_folders_of_all_its_tracks_removed() {
    let rig = window();
    let works: Vec<ArchiveWork> = crate::protocol::sinks::forgets("live", &rig.settings, "a/cam").collect();
    let tracks = DvrWork::ClearAll { app: "live".into(), start: "ll-hls%2Fcam%2Fcam__".into() };
    let own = DvrWork::Clear { folder: ["live", ".dvr", "a%2Fcam"].map(str::to_owned).to_vec() };
    // Files are removed for playlists of single tracks and for those of all tracks together, because an application
    // may still have files of a kind that it no longer makes.
    assert!(works.contains(&ArchiveWork::Dvr(tracks)) && works.contains(&ArchiveWork::Dvr(own)), "{works:?}");
}

#[test]
fn a_stream_whose_id_begins_like_the_folder_of_low_latency_is_one_of_its_own() {
    let rig = window();
    assert_eq!(stream_of("ll-hls2.m3u8"), Some("ll-hls2"));
    assert_eq!(stream_of("ll-hls/cam/cam__video.m3u8"), None);
    assert_eq!(file_of(&rig.settings, "ll-hls2_1764489600000_init.mp4"), Some("ll-hls2"));
    assert_eq!(file_of(&rig.settings, "ll-hls/cam/cam__video_1764489600000_init.mp4"), None);
}
