//! Tracks that are announced and send nothing, or stop, while the other renditions go on.

use hls::playlist::Variant;

use super::*;

const BOTH: [(&str, &str); 2] = [("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")];
const SOUND: &str = "ll-hls/cam/cam__adaptive_audio.m3u8";

/// Two streams, the first of which leads. These tracks of the first one send nothing.
fn rig(layout: Layout, silent: &[TrackId]) -> Rig {
    let mut rig = Rig::with(layout, &BOTH);
    rig.silent.extend(silent.iter().map(|track| ("cam_1080", *track)));
    rig.begin("cam_1080", &[1080], 0, 2000);
    rig.pass(200);
    rig.begin("cam_720", &[720], 60, 2000);
    rig
}

impl Rig {
    fn variants_of(&self, layout: Layout) -> Vec<Variant> {
        let name = match layout {
            Layout::Together => "cam_adaptive.m3u8",
            Layout::Apart => "ll-hls/cam/cam__master_adaptive.m3u8",
        };
        match self.read(name) {
            Some(Playlist::Multivariant(list)) => list.variants,
            Some(Playlist::Media(_)) | None => Vec::new(),
        }
    }

    /// Returns the heights of the videos in the list.
    fn heights(&self, layout: Layout) -> Vec<u32> {
        self.variants_of(layout).iter().filter_map(|one| Some(one.resolution?.height)).collect()
    }

    /// Returns the playlist of the rendition of this height.
    fn of_height(&self, layout: Layout, height: u32) -> MediaPlaylist {
        let folder = if layout == Layout::Apart { "ll-hls/cam/" } else { "" };
        let all = self.variants_of(layout);
        let own = all.iter().find(|one| one.resolution.is_some_and(|size| size.height == height)).unwrap();
        self.media(&format!("{folder}{}", own.uri)).unwrap()
    }
}

#[test]
fn a_video_that_never_comes_holds_back_neither_the_list_nor_the_others() {
    for layout in [Layout::Together, Layout::Apart] {
        let mut rig = rig(layout, &[TrackId::VIDEO]);
        rig.pass(16_000);
        assert_eq!(rig.heights(layout), [720], "{layout:?}");
        let low = rig.of_height(layout, 720);
        let longest = low.segments.iter().map(|one| one.duration.as_millis()).max();
        assert_eq!((low.segments.len() >= 5, longest), (true, Some(2000)), "{layout:?} {low}");
        // The video comes after all.
        rig.silent.clear();
        rig.pass(12_000);
        assert_eq!(rig.heights(layout), [1080, 720], "{layout:?}");
        assert!(rig.of_height(layout, 720).segments.iter().all(|one| !one.discontinuity), "{layout:?}");
    }
}

#[test]
fn a_video_that_stops_leaves_the_ladder_and_returns_with_a_key_frame_that_was_requested() {
    for layout in [Layout::Together, Layout::Apart] {
        let mut rig = rig(layout, &[]);
        rig.pass(11_800);
        assert_eq!(rig.heights(layout), [1080, 720], "{layout:?}");
        for silent in ["cam_1080", "cam_720"] {
            rig.silent.insert((silent, TrackId::VIDEO));
            rig.pass(12_200);
            let other = if silent == "cam_720" { 1080 } else { 720 };
            assert_eq!(rig.heights(layout), [other], "{layout:?} {silent}");
            let list = rig.of_height(layout, other);
            let newest = list.segments.last().unwrap().program_date_time.unwrap();
            let now_ms = i64::try_from(rig.now.wall_ms).unwrap();
            assert!(now_ms - newest < 4500, "{layout:?} {silent} {list}");
            assert!(list.segments.iter().all(|one| one.duration.as_millis() == 2000), "{layout:?} {list}");
            assert!(rig.asked.is_empty());
            rig.silent.clear();
            rig.pass(400);
            assert_eq!(rig.asked, [silent], "{layout:?}: the next key frame is far");
            rig.pass(11_400);
            assert_eq!(rig.heights(layout), [1080, 720], "{layout:?} {silent}");
            rig.asked.clear();
        }
    }
}

#[test]
fn sound_that_stops_goes_on_with_that_of_another_stream_and_pictures_go_on() {
    let mut rig = rig(Layout::Apart, &[]);
    rig.pass(11_800);
    let before = rig.media(SOUND).unwrap();
    rig.silent.insert(("cam_1080", TrackId::AUDIO));
    rig.pass(16_000);
    let after = rig.media(SOUND).unwrap();
    let last = |of: &MediaPlaylist| of.media_sequence + of.segments.len() as u64;
    assert!(last(&after) > last(&before) + 5, "{after}");
    assert!(after.segments.last().unwrap().uri.starts_with("cam_720__audio"), "{after}");
    assert_eq!(rig.heights(Layout::Apart), [1080, 720]);
    assert!(rig.of_height(Layout::Apart, 1080).segments.iter().all(|one| !one.gap && !one.discontinuity));
    // The first stream has sound again, and takes over when the other one ends.
    rig.silent.clear();
    rig.pass(12_000);
    assert!(last(&rig.media(SOUND).unwrap()) > last(&after) + 4);
    rig.end("cam_720");
    rig.pass(8000);
    let list = rig.media(SOUND).unwrap();
    assert!(list.segments.last().unwrap().uri.starts_with("cam_1080__audio") && !list.ended, "{list}");
}

#[test]
fn the_only_video_of_a_ladder_keeps_its_rendition_while_it_is_silent() {
    for kind in ["mpegts", "fmp4"] {
        let mut rig = Rig::new(&[("hls.subtitles", "en:English"), ("hlsSegmentType", kind)]);
        rig.begin("cam", &[720], 0, 2000);
        rig.pass(12_000);
        let uris = rig.uris();
        rig.silent.insert(("cam", TrackId::VIDEO));
        rig.pass(12_000);
        assert_eq!(rig.uris(), uris, "{kind}");
        let list = rig.media(&uris[0]).unwrap();
        let newest = list.segments.last().unwrap().program_date_time.unwrap();
        assert!(i64::try_from(rig.now.wall_ms).unwrap() - newest < 4500, "{kind} {list}");
        rig.silent.clear();
        rig.pass(12_000);
        let list = rig.media(&uris[0]).unwrap();
        assert_eq!(rig.uris(), uris, "{kind}");
        let steps = list.segments.iter().filter(|one| one.discontinuity).count();
        assert!(steps == 2 && !list.ended, "{kind} {list}");
    }
}
