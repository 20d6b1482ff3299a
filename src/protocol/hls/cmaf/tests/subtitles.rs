//! Subtitles beside renditions, in lists and manifests.

use hls::playlist::RenditionKind;
use media::subtitles::{Cue, read_webvtt};

use super::*;

const LANGUAGES: (&str, &str) = ("hls.subtitles", "en:English,de:Deutsch");

impl Rig {
    /// Sends a cue at stream time `dts`, to be shown from `pts` on.
    fn say(&mut self, language: &str, text: &str, (dts, pts): (i64, i64), duration_ms: u32) {
        let payload =
            Cue { duration_ms, language: language.to_owned(), text: text.to_owned() }.write().unwrap();
        let unit =
            AccessUnit { track: TrackId::SUBTITLES, dts, pts, key_frame: false, config_epoch: 0, payload };
        let list = Arc::new(Tracks::new(1, []));
        self.sink.take_data(&Entry::new(self.begun, 1_795_806_797_674, unit, list));
    }

    fn script(&mut self, values: flv::amf0::Value, dts: i64) {
        let data = flv::data::Data { name: "onTextData".to_owned(), values: vec![values] };
        let unit = AccessUnit {
            track: TrackId::DATA,
            dts,
            pts: dts,
            key_frame: false,
            config_epoch: 0,
            payload: data.write(),
        };
        let list = Arc::new(Tracks::new(1, []));
        self.sink.take_data(&Entry::new(self.begun, 1_795_806_797_674, unit, list));
    }

    /// The texts of each segment of a language, by its number, with their times on the clock of segments.
    fn spoken(&self, language: &str) -> BTreeMap<u64, Vec<(u64, u64, String)>> {
        let playlist = self.media(&format!("cam__subs_{language}"));
        let numbered = (playlist.media_sequence..).zip(&playlist.segments);
        let shown = |uri: &str| {
            let text = self.text(&format!("ll-hls/cam/{uri}"));
            assert!(text.starts_with("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:"), "{text}");
            let cues = read_webvtt(text.as_bytes()).unwrap();
            cues.into_iter().map(|cue| (cue.begin_ms, cue.end_ms, cue.text)).collect()
        };
        numbered.map(|(number, one)| (number, shown(&one.uri))).collect()
    }
}

#[test]
fn lists_and_manifests_have_the_languages_of_the_setting() {
    let mut rig = Rig::with(&[LANGUAGES]);
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..9000);
    let text = rig.text("ll-hls/cam/cam__master.m3u8");
    let Ok(Playlist::Multivariant(list)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
    assert!(list.variants.iter().all(|one| one.subtitles.as_deref() == Some("subtitles")), "{text}");
    let told: Vec<_> = list
        .renditions
        .iter()
        .filter(|one| one.kind == RenditionKind::Subtitles)
        .map(|one| (one.name.as_str(), one.language.as_deref(), one.uri.as_deref(), one.default))
        .collect();
    let wanted = [("English", "en"), ("Deutsch", "de")];
    let uris = ["cam__subs_en.m3u8", "cam__subs_de.m3u8"];
    let wanted = [0, 1].map(|at| (wanted[at].0, Some(wanted[at].1), Some(uris[at]), false));
    assert_eq!(told, wanted, "before anybody has said anything");
    let manifest = rig.text("cam/cam.mpd");
    for (id, tag) in [(200, "en"), (201, "de")] {
        let set = format!(
            "<AdaptationSet id=\"{id}\" contentType=\"text\" lang=\"{tag}\" mimeType=\"application/mp4\""
        );
        assert!(manifest.contains(&set), "{manifest}");
    }
    assert_eq!(manifest.matches("codecs=\"wvtt\"").count(), 2, "{manifest}");
    assert_eq!(manifest.matches("role:2011\" value=\"subtitle\"").count(), 2, "{manifest}");
    assert_eq!(manifest.matches("<Period ").count(), 1, "{manifest}");
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..9000);
    assert!(!rig.text("ll-hls/cam/cam__master.m3u8").contains("SUBTITLES"));
    assert!(!rig.text("cam/cam.mpd").contains("wvtt"));
    for bad in ["en,en", "e", "en:", "a1,a2,a3,a4,a5,a6,a7,a8,a9"] {
        let error = AppSettings::of(schema(), "a", &[("hls.subtitles", bad)]).unwrap_err().to_string();
        assert!(error.starts_with("hls.subtitles"), "{error}");
    }
}

#[test]
fn segments_of_subtitles_are_those_of_the_video_with_the_cues_of_their_time() {
    let mut rig = Rig::with(&[LANGUAGES]);
    let tracks = [(video(0), 0), (audio(), 0)];
    rig.pass(&tracks, 1, 0..5000);
    // Four cues: one across the boundary at six seconds, one announced early, one in a language that is not listed,
    // and one that arrives after its end.
    rig.say("en", "across", (5000, 5000), 2500);
    rig.say("deu", "später", (5000, 8500), 1000);
    rig.say("fr", "personne", (5000, 5000), 2000);
    rig.pass(&tracks, 1, 5000..9000);
    rig.say("en", "too late", (9000, 1000), 2000);
    rig.pass(&tracks, 1, 9000..14_000);
    let (pictures, english, german) = (rig.segments("cam__video"), rig.spoken("en"), rig.spoken("de"));
    assert_eq!(rig.segments("cam__subs_en"), pictures, "numbers, dates and lengths");
    let said = |of: &BTreeMap<u64, Vec<(u64, u64, String)>>| {
        of.values().map(|cues| cues.iter().map(|one| one.2.clone()).collect()).collect::<Vec<Vec<_>>>()
    };
    let empty = Vec::<String>::new;
    assert_eq!(
        said(&english),
        [empty(), empty(), vec!["across".into()], vec!["across".into()], empty(), empty()]
    );
    assert_eq!(said(&german), [empty(), empty(), empty(), empty(), vec!["später".into()], empty()]);
    // The clock of segments begins a second before the stream.
    let whole: Vec<_> = english.values().flatten().map(|one| (one.0, one.1)).collect();
    assert_eq!(whole, [(6000, 8500); 2], "the whole cue is in both");
    let list = rig.media("cam__subs_en");
    let third = rig.text(&format!("ll-hls/cam/{}", list.segments[2].uri));
    assert!(third.contains("X-TIMESTAMP-MAP=MPEGTS:450000,LOCAL:00:00:05.000\n"), "{third}");
    let tracks = |bytes: &[u8], kind: &[u8]| bytes.windows(kind.len()).filter(|some| *some == kind).count();
    let segments = rig.blobs.iter().filter(|(name, _)| name.contains("subs_en") && name.ends_with("m4s"));
    let cues: Vec<_> =
        segments.map(|(_, bytes)| (tracks(bytes, b"across"), tracks(bytes, b"vtte"))).collect();
    assert_eq!(cues, [(0, 1), (0, 1), (1, 1), (1, 1), (0, 1), (0, 1)]);
    assert_eq!(list.target_duration, rig.media("cam__video").target_duration);
}

#[test]
fn subtitles_follow_a_rendition_that_has_media_and_stay_with_it() {
    let mut rig = Rig::with(&[LANGUAGES]);
    // A video that is announced long before its first picture.
    let tracks = [(video(0), 90_000), (audio(), 0)];
    rig.pass(&tracks, 1, 0..75_000);
    rig.say("en", "heard", (75_000, 80_000), 1000);
    rig.pass(&tracks, 1, 75_000..90_000);
    let text = rig.text("ll-hls/cam/cam__master.m3u8");
    assert_eq!(text.matches("TYPE=SUBTITLES").count(), 2, "{text}");
    assert_eq!(rig.segments("cam__subs_en"), rig.segments("cam__audio"));
    assert!(rig.spoken("en").values().flatten().any(|cue| cue.2 == "heard"));
    let places = |rig: &Rig| {
        let list = rig.media("cam__subs_en");
        let dates = list.segments.iter().map(|one| one.program_date_time).collect::<Vec<_>>();
        (list.media_sequence + list.segments.len() as u64, dates)
    };
    let (before, _) = places(&rig);
    rig.pass(&tracks, 1, 90_000..120_000);
    let (after, dates) = places(&rig);
    assert!(after >= before + 4 && dates.is_sorted(), "{before} {after} {dates:?}");
}

#[test]
fn only_playlists_of_languages_of_the_setting_begin_a_sink() {
    let app = AppSettings::of(schema(), "live", &[LANGUAGES, ("hlsEnableLowLatency", "true")]).unwrap();
    let stream =
        |language: &str| apart_stream(&app, &format!("ll-hls/cam/cam__subs_{language}.m3u8")).is_some();
    assert_eq!(["en", "de", "fr", "", "en-GB", "eng"].map(stream), [true, true, false, false, false, false]);
    let none = AppSettings::of(schema(), "live", &[("hlsEnableLowLatency", "true")]).unwrap();
    assert_eq!(apart_stream(&none, "ll-hls/cam/cam__subs_en.m3u8"), None);
    assert_eq!(apart_stream(&none, "ll-hls/cam/cam__video.m3u8"), Some("cam"));
}

#[test]
fn subtitles_follow_discontinuities_and_leave_with_their_segments() {
    let mut rig = Rig::with(&[LANGUAGES, ("hlsListSize", "4")]);
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..20_000);
    let other = Track { epoch: 1, ..video(0) };
    rig.pass(&[(other, 0), (audio(), 0)], 2, 20_000..25_000);
    let (video, english) = (rig.media("cam__video"), rig.media("cam__subs_en"));
    let places = |of: &MediaPlaylist| {
        let flags: Vec<bool> = of.segments.iter().map(|one| one.discontinuity).collect();
        (of.media_sequence, of.discontinuity_sequence, flags)
    };
    assert_eq!(places(&english), places(&video));
    assert!(video.segments.iter().any(|one| one.discontinuity));
    let files = |ending: &str| {
        rig.blobs.keys().filter(|name| name.contains("__subs_en_") && name.ends_with(ending)).count()
    };
    // Four segments in the list, and as many that players may still fetch.
    assert!((4..=10).contains(&files(".vtt")) && files(".vtt") == files(".m4s"), "{:?}", rig.blobs.keys());
    assert_eq!(rig.text("cam/cam.mpd").matches("<Period ").count(), 2);
}

#[test]
fn a_flood_of_cues_is_bounded() {
    let mut rig = Rig::with(&[LANGUAGES]);
    let tracks = [(video(0), 0), (audio(), 0)];
    rig.pass(&tracks, 1, 0..7000);
    let long = "x".repeat(1000);
    for n in 0..2000 {
        rig.say("en", &format!("{n} {long}"), (7000 + n / 40, 7000), 600_000);
    }
    rig.pass(&tracks, 1, 7080..12_000);
    let largest =
        rig.blobs.iter().filter(|(name, _)| name.contains("subs")).map(|(_, bytes)| bytes.len()).max();
    assert!((30_000..40_000).contains(&largest.unwrap()), "{largest:?}");
    assert_eq!(rig.segments("cam__subs_en"), rig.segments("cam__video"), "the stream goes on");
}

#[test]
fn script_data_is_said_until_the_next_line() {
    use flv::amf0::Value;
    let text = |text: &str| ("text", Value::String(text.into()));
    for is_wanted in [true, false] {
        let wanted = if is_wanted { "true" } else { "false" };
        let mut rig = Rig::with(&[LANGUAGES, ("relayRTMPMetaDataToMuxers", wanted)]);
        let tracks = [(video(0), 0), (audio(), 0)];
        rig.pass(&tracks, 1, 0..4000);
        rig.script(Value::object([text("one < two")]), 4000);
        rig.script(Value::object([text("drei"), ("language", Value::String("deu".into()))]), 4000);
        rig.pass(&tracks, 1, 4000..5000);
        rig.script(Value::object([text("three")]), 5000);
        rig.pass(&tracks, 1, 5000..6000);
        rig.script(Value::object([text("")]), 6000);
        rig.pass(&tracks, 1, 6000..13_000);
        let said = |language| {
            let mut all: Vec<_> = rig.spoken(language).into_values().flatten().collect();
            all.dedup();
            all
        };
        let (english, german) = (said("en"), said("de"));
        if is_wanted {
            let wanted = [(5000, 6000, "one &lt; two".into()), (6000, 7000, "three".into())];
            // The cue is cut at the ends of segments, so that no later segment changes a time of an earlier one.
            let drei = [(5000, 7000), (7000, 9000), (9000, 10_000)]
                .map(|(from, until)| (from, until, "drei".into()));
            assert_eq!((english, german), (wanted.into(), drei.into()));
        } else {
            assert_eq!((english.len(), german.len()), (0, 0));
        }
    }
}
