//! Subtitles of a ladder.

use media::subtitles::{Cue, read_webvtt};

use super::*;

const SETTINGS: [(&str, &str); 4] = [
    ("hls.subtitles", "en:English"),
    ("hlsEnableLowLatency", "true"),
    ("dashMuxingEnabled", "true"),
    ("hlsSegmentType", "mpegts"),
];

impl Rig {
    /// Sends a cue that appears `ahead_ms` after the newest frames.
    fn say(&mut self, id: &str, text: &str, ahead_ms: i64) {
        let member = self.members.get_mut(id).unwrap();
        let dts = self.at_ms - FRAME_MS - member.late_ms - member.began_ms;
        let cue = Cue { duration_ms: 1000, language: "en".to_owned(), text: text.to_owned() };
        let unit = AccessUnit {
            track: TrackId::SUBTITLES,
            dts,
            pts: dts + ahead_ms,
            key_frame: false,
            config_epoch: 0,
            payload: cue.write().unwrap(),
        };
        let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, Arc::clone(&member.tracks));
        member.sink.take_data(&entry);
        self.publish(id);
    }

    fn prefix(&self) -> &'static str {
        if self.layout == Layout::Apart { "ll-hls/cam/" } else { "" }
    }

    fn subtitles(&self) -> MediaPlaylist {
        self.media(&format!("{}cam__adaptive_subs_en.m3u8", self.prefix())).unwrap()
    }

    /// The texts in all segments of the playlist, each once.
    fn spoken(&self) -> Vec<String> {
        let mut all = Vec::new();
        for segment in self.subtitles().segments {
            let blob = self.blobs.get("live", &format!("{}{}", self.prefix(), segment.uri)).unwrap();
            all.extend(read_webvtt(&blob.bytes).unwrap().into_iter().map(|cue| cue.text));
        }
        all.dedup();
        all
    }
}

#[test]
fn subtitles_of_the_leading_stream_go_along_with_its_pictures() {
    for layout in [Layout::Together, Layout::Apart] {
        let mut rig = Rig::with(layout, &SETTINGS);
        rig.begin("cam", &[720, 360], 0, 2000);
        rig.pass(7000);
        rig.say("cam", "hello", 500);
        rig.pass(8000);
        let name = match layout {
            Layout::Together => "cam_adaptive.m3u8",
            Layout::Apart => "ll-hls/cam/cam__master_adaptive.m3u8",
        };
        let Some(Playlist::Multivariant(list)) = rig.read(name) else { panic!("{layout:?}") };
        assert!(list.variants.iter().all(|one| one.subtitles.as_deref() == Some("subtitles")), "{list}");
        let uri = list.renditions.iter().find(|one| one.name == "English").and_then(|one| one.uri.clone());
        assert_eq!(uri.as_deref(), Some("cam__adaptive_subs_en.m3u8"), "{list}");
        let video = rig.media(&format!("{}{}", rig.prefix(), list.variants[0].uri)).unwrap();
        let places = |of: &MediaPlaylist| {
            let dates: Vec<_> = of.segments.iter().map(|one| (one.program_date_time, one.duration)).collect();
            (of.media_sequence, of.target_duration, dates)
        };
        assert_eq!(places(&rig.subtitles()), places(&video), "{layout:?}");
        assert_eq!(rig.spoken(), ["hello"]);
        if layout == Layout::Apart {
            let blob = rig.blobs.get("live", "cam/cam_adaptive.mpd").unwrap();
            let text = std::str::from_utf8(&blob.bytes).unwrap();
            assert_eq!(text.matches("codecs=\"wvtt\"").count(), text.matches("<Period ").count(), "{text}");
        }
    }
}

#[test]
fn another_stream_that_leads_later_continues_the_subtitles() {
    for layout in [Layout::Together, Layout::Apart] {
        let settings = [&SETTINGS[..], &[("hls.group", "renditions")]].concat();
        let mut rig = Rig::with(layout, &settings);
        rig.begin("cam", &[720], 0, 2000);
        rig.begin("cam_low", &[360], 0, 2000);
        rig.pass(11_000);
        rig.say("cam", "first", 500);
        rig.say("cam_low", "aside", 500);
        rig.pass(4000);
        let before = rig.subtitles();
        assert_eq!(rig.spoken(), ["first"], "{layout:?}");
        rig.end("cam");
        rig.pass(5000);
        rig.say("cam_low", "second", 500);
        rig.pass(6000);
        let after = rig.subtitles();
        assert!(!after.ended && after.media_sequence >= before.media_sequence, "{before}{after}");
        let uri = |of: &MediaPlaylist, number: u64| {
            let at = usize::try_from(number.checked_sub(of.media_sequence)?).ok()?;
            of.segments.get(at).map(|one| one.uri.clone())
        };
        for number in (before.media_sequence..).take(before.segments.len()) {
            let (former, now) = (uri(&before, number), uri(&after, number));
            assert!(now.is_none() || now == former, "{number}: {former:?} {now:?}");
        }
        assert!(rig.spoken().contains(&"second".to_owned()), "{layout:?}: {:?}", rig.spoken());
    }
}
