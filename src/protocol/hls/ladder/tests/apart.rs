//! Renditions of single tracks: low latency and DASH.

use super::*;

const FOLDER: &str = "ll-hls/cam/";
const SOUND: &str = "cam__adaptive_audio.m3u8";
const BOTH: [(&str, &str); 2] = [("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")];

fn rig() -> Rig {
    Rig::with(Layout::Apart, &BOTH)
}

impl Rig {
    fn list(&self) -> Option<MultivariantPlaylist> {
        match self.read(&format!("{FOLDER}cam__master_adaptive.m3u8"))? {
            Playlist::Multivariant(master) => Some(master),
            Playlist::Media(_) => panic!("a media playlist"),
        }
    }

    fn variants(&self) -> Vec<String> {
        self.list().map_or_else(Vec::new, |list| list.variants.into_iter().map(|one| one.uri).collect())
    }

    fn track(&self, uri: &str) -> Option<MediaPlaylist> {
        self.media(&format!("{FOLDER}{uri}"))
    }

    fn manifest(&self) -> String {
        let blob = self.blobs.get("live", "cam/cam_adaptive.mpd").unwrap();
        std::str::from_utf8(&blob.bytes).unwrap().to_owned()
    }

    /// Returns the date and length of each segment of a playlist, by number. Checks that all files in the playlist
    /// exist.
    fn numbered(&self, uri: &str) -> BTreeMap<u64, (i64, u128)> {
        let playlist = self.track(uri).unwrap_or_else(|| panic!("{uri} is not there"));
        let parts = playlist.segments.iter().flat_map(|one| &one.parts).map(|part| &part.uri);
        let open = playlist.low_latency.iter().flat_map(|low| &low.open.parts).map(|part| &part.uri);
        let whole = playlist.segments.iter().filter(|one| !one.gap).map(|one| &one.uri);
        let maps = playlist.segments.iter().filter_map(|one| one.map.as_ref()).map(|map| &map.uri);
        for name in parts.chain(open).chain(whole).chain(maps) {
            let name = format!("{FOLDER}{name}");
            assert!(self.blobs.get("live", &name).is_some(), "{name} cannot be fetched");
        }
        (playlist.media_sequence..)
            .zip(&playlist.segments)
            .map(|(number, one)| (number, (one.program_date_time.unwrap(), one.duration.as_millis())))
            .collect()
    }

    /// Checks that the newest `count` segments that all playlists list have the same dates and lengths in all video
    /// playlists, and that the audio segments end with them.
    fn assert_beside(&self, count: usize) {
        let uris = self.variants();
        let first = self.numbered(&uris[0]);
        for uri in uris.iter().map(String::as_str).chain([SOUND]) {
            let other = self.numbered(uri);
            let common: Vec<u64> =
                first.keys().filter(|number| other.contains_key(number)).copied().collect();
            assert!(common.len() >= count, "{uri} {first:?} {other:?}");
            for number in common.iter().rev().take(count) {
                let ((date, length), (own_date, own_length)) = (first[number], other[number]);
                let within = if uri == SOUND { 45 } else { 0 };
                assert!((date - own_date).abs() <= within, "{uri} {first:?} {other:?}");
                assert!(length.abs_diff(own_length) <= within.unsigned_abs().into(), "{uri}");
            }
        }
        let all = uris.iter().map(String::as_str).chain([SOUND]);
        let targets: Vec<_> = all.map(|uri| self.track(uri).unwrap().target_duration).collect();
        assert!(targets.iter().all(|target| *target == targets[0]), "6.2.4: {targets:?}");
    }

    /// Returns for each period of the manifest its number, its beginning and its video renditions.
    fn periods(&self) -> Vec<(String, String, Vec<String>)> {
        let text = self.manifest();
        let between = |text: &str, from: &str, to: &str| {
            text.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned()
        };
        text.split("<Period ")
            .skip(1)
            .map(|period| {
                let video = period.split("contentType=\"audio\"").next().unwrap();
                let ids = video.split("<Representation ").skip(1).map(|one| between(one, "id=\"", "\""));
                let mut ids: Vec<_> = ids.collect();
                ids.sort_unstable();
                (between(period, "id=\"", "\""), between(period, "start=\"", "\""), ids)
            })
            .collect()
    }
}

/// Checks every playlist as it was published, also just after the end of a segment (RFC 8216bis §4.4.5.4).
#[test]
fn a_report_names_the_last_part_at_every_moment() {
    let mut rig = rig();
    rig.begin("cam_1080", &[1080], 150, 2000);
    rig.begin("cam_720", &[720], 35, 2000);
    rig.pass(10_000);
    let (mut after_a_part, mut after_a_segment) = (0, 0);
    for _ in 0..200 {
        rig.pass(FRAME_MS);
        for uri in rig.variants().iter().map(String::as_str).chain([SOUND]) {
            let low = rig.track(uri).unwrap().low_latency.unwrap();
            assert_eq!(low.reports.len(), 2);
            for report in &low.reports {
                let other = rig.track(&report.uri).unwrap();
                let open = other.low_latency.unwrap().open.parts.len();
                assert!(report.last_part.is_some(), "{uri} about {}", report.uri);
                *if open > 0 { &mut after_a_part } else { &mut after_a_segment } += 1;
            }
        }
    }
    assert!(after_a_part > 100 && after_a_segment > 10, "{after_a_part} {after_a_segment}");
}

#[test]
fn streams_of_one_main_track_have_playlists_and_a_manifest_beside_each_other() {
    let mut rig = rig();
    rig.begin("cam_1080", &[1080], 150, 2000);
    rig.pass(3000);
    rig.begin("cam_720", &[720], 35, 2000);
    rig.begin("cam_360", &[360], 90, 2000);
    rig.pass(25_000);
    let list = rig.list().unwrap();
    let heights: Vec<_> = list.variants.iter().map(|one| one.resolution.unwrap().height).collect();
    assert_eq!((heights, list.independent_segments), (vec![1080, 720, 360], true));
    assert!(list.variants.iter().all(|one| one.codecs.as_deref() == Some("avc1.64001F,mp4a.40.2")));
    assert!(list.variants.iter().all(|one| one.audio.as_deref() == Some("audio")), "{list:?}");
    let [sound] = &list.renditions[..] else { panic!("one group of sound: {list:?}") };
    assert_eq!((sound.uri.as_deref(), sound.channels.as_deref()), (Some(SOUND), Some("2")));
    assert_eq!((sound.language.as_deref(), sound.name.as_str()), (Some("de"), "deu"));
    rig.assert_beside(5);
    // Each playlist reports the progress of the others.
    for uri in rig.variants() {
        let low = rig.track(&uri).unwrap().low_latency.unwrap();
        let mut told: Vec<_> = low.reports.iter().map(|report| report.uri.clone()).collect();
        let mut all = rig.variants();
        all.retain(|other| *other != uri);
        all.push(SOUND.to_owned());
        all.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, all);
        let newest = rig.track(&uri).unwrap();
        let last = newest.media_sequence + newest.segments.len() as u64;
        assert!(low.reports.iter().all(|report| report.last_segment.abs_diff(last) <= 2), "{low:?}");
        assert!(newest.segments.last().unwrap().parts.len() >= 5);
    }
    let text = rig.manifest();
    assert_eq!(text.matches("contentType=\"video\"").count(), 1, "{text}");
    assert_eq!(text.matches("contentType=\"audio\" lang=\"de\" ").count(), 1, "{text}");
    assert_eq!(text.matches("<Representation ").count(), 4, "{text}");
    assert_eq!(text.matches("segmentAlignment=\"true\"").count(), 2, "{text}");
    assert!(text.contains("availabilityStartTime=\"2026-01-01T00:00:00.000Z\""), "{text}");
}

#[test]
fn on_a_machine_without_a_clock_times_advance_too() {
    let mut rig = rig();
    rig.begun_ms = 60_000;
    rig.now.wall_ms = rig.begun_ms;
    rig.begin("cam_1080", &[1080], 150, 2000);
    rig.pass(3000);
    rig.begin("cam_720", &[720], 35, 2000);
    rig.pass(25_000);
    rig.assert_beside(5);
    let text = rig.manifest();
    assert!(text.contains("availabilityStartTime=\"1970-01-01T00:00:00.000Z\""), "{text}");
    let times = text.split("<S t=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let times: Vec<u64> = times.map(|time| time.parse().unwrap()).collect();
    assert!(times.len() >= 3 && times.iter().all(|time| *time > 55 * 48_000), "{times:?}: {text}");
}

#[test]
fn each_rendition_is_in_the_manifest_as_soon_as_it_is_in_its_playlist() {
    let mut rig = rig();
    for (id, height, late_ms) in [("cam_1080", 1080, 0), ("cam_720", 720, 200)] {
        rig.begin(id, &[height], late_ms, 2000);
    }
    rig.pass(12_000);
    for _ in 0..100 {
        rig.pass(FRAME_MS);
        let text = rig.manifest();
        for representation in text.split("<Representation id=\"").skip(1) {
            let (id, rest) = representation.split_once('"').unwrap();
            let Some(playlist) = rig.track(&format!("{id}.m3u8")).filter(|_| id.contains("kbps")) else {
                continue;
            };
            let listed = rest.split("</Representation>").next().unwrap().matches("<S t=").count();
            // The worker of the other stream notices the new segments with that stream's next frame.
            assert!(playlist.segments.len().abs_diff(listed) <= 1, "{id} {text}");
        }
    }
    let of = |id: &str| {
        let text = rig.manifest();
        let own = text.split(&format!("<Representation id=\"{id}")).nth(1).unwrap().to_owned();
        own.split("</Representation>").next().unwrap().matches("<S t=").count()
    };
    assert_eq!(of("cam_1080p"), of("cam_720p"));
}

#[test]
fn t_12_a_rendition_that_comes_or_goes_begins_a_period_and_empties_none() {
    let mut rig = rig();
    rig.begin("cam", &[1080], 0, 2000);
    rig.pass(500);
    rig.begin("cam_720", &[720], 60, 2000);
    rig.pass(15_000);
    let uris = rig.variants();
    let [high, low] = &uris[..] else { panic!("{uris:?}") };
    let first = rig.periods();
    let [(_, _, ids)] = &first[..] else { panic!("{first:?}") };
    assert_eq!(ids.len(), 2);
    rig.end("cam_720");
    assert!(rig.track(low).is_none(), "a player goes to another one");
    rig.pass(4000);
    assert_eq!(
        (rig.variants().as_slice(), rig.track(high).unwrap().ended),
        (std::slice::from_ref(high), false)
    );
    let periods = rig.periods();
    let [before, after] = &periods[..] else { panic!("{periods:?}") };
    assert_eq!((before, after.2.len()), (&first[0], 1), "the former one stays as it was");
    rig.begin("cam_720", &[720], 60, 2000);
    rig.pass(15_000);
    assert_eq!(rig.variants(), uris);
    rig.assert_beside(3);
    let periods = rig.periods();
    assert_eq!(periods.iter().map(|(.., ids)| ids.len()).collect::<Vec<_>>(), [2, 1, 2], "{periods:?}");
    rig.pass(40_000);
    assert_eq!(rig.periods().len(), 1);
    // The ladder ends with its last stream.
    rig.end("cam_720");
    rig.end("cam");
    assert!(rig.track(high).unwrap().ended && rig.track(low).is_none() && rig.track(SOUND).unwrap().ended);
    assert!(rig.manifest().contains("type=\"static\""));
}

#[test]
fn t_12_when_the_stream_that_leads_ends_list_sound_and_manifest_go_on() {
    let mut rig = rig();
    for (id, height) in [("cam_1080", 1080), ("cam_720", 720), ("cam_360", 360)] {
        rig.begin(id, &[height], 0, 2000);
        rig.pass(200);
    }
    rig.pass(12_000);
    let (uris, periods, sound) = (rig.variants(), rig.periods(), rig.track(SOUND).unwrap());
    rig.end("cam_1080");
    rig.pass(4000);
    assert_eq!(rig.variants(), uris[1..]);
    let now = rig.track(SOUND).unwrap();
    let names = |of: &MediaPlaylist| {
        let uris = of.segments.iter().map(|one| one.uri.clone());
        (of.media_sequence..).zip(uris).collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (names(&sound), names(&now));
    let common: Vec<_> = before.keys().filter(|number| after.contains_key(number)).collect();
    assert!(common.len() >= 4 && common.iter().all(|number| before[number] == after[number]), "6.2.1");
    assert!(after.values().last().unwrap().starts_with("cam_720__"), "{after:?}");
    assert!(!now.ended && now.media_sequence >= sound.media_sequence);
    assert!(
        now.media_sequence + (now.segments.len() as u64) > sound.media_sequence + sound.segments.len() as u64
    );
    rig.assert_beside(3);
    let after = rig.periods();
    assert_eq!((after.len(), &after[0]), (2, &periods[0]), "{after:?}");
    assert_eq!(after[1].2.len(), 2);
    rig.begin("cam_1080", &[1080], 0, 2000);
    rig.pass(12_000);
    assert_eq!(rig.variants(), uris);
    rig.assert_beside(3);
    assert_eq!(rig.periods().len(), 3);
}

#[test]
fn a_period_that_has_just_begun_outlives_the_stream_that_leads() {
    let mut rig = rig();
    for (id, height) in [("cam_1080", 1080), ("cam_720", 720)] {
        rig.begin(id, &[height], 0, 2000);
        rig.pass(200);
    }
    rig.pass(12_000);
    // The segments of this rendition are complete a little later than those of the others.
    rig.begin("cam_360", &[360], 200, 2000);
    while rig.periods().len() < 2 {
        rig.pass(FRAME_MS);
    }
    rig.pass(2 * FRAME_MS);
    let before = rig.periods();
    rig.end("cam_1080");
    rig.pass(4000);
    let after = rig.periods();
    let begins = |of: &[(String, String, Vec<String>)]| -> Vec<_> {
        of.iter().map(|(id, start, _)| (id.clone(), start.clone())).collect()
    };
    assert_eq!((after.len(), begins(&after[..2])), (3, begins(&before)), "{after:?}");
}

#[test]
fn videos_of_one_stream_are_renditions_of_single_tracks_too() {
    let mut rig = rig();
    rig.begin("cam", &[720, 360, 180], 0, 2000);
    rig.pass(12_000);
    assert_eq!(rig.variants().len(), 3);
    rig.assert_beside(3);
    assert_eq!(rig.periods().iter().map(|(.., ids)| ids.len()).collect::<Vec<_>>(), [3]);
    let text = rig.manifest();
    assert_eq!(text.matches("segmentAlignment=\"true\"").count(), 2, "{text}");
}

#[test]
fn sound_that_leaves_has_gaps_until_it_comes_back() {
    let mut rig = rig();
    rig.begin("cam", &[720, 360], 0, 2000);
    rig.pass(12_000);
    let both = Arc::clone(&rig.members["cam"].tracks);
    let alone = Tracks::new(2, both.iter().filter(|track| track.kind() == TrackKind::Video).cloned());
    rig.members.get_mut("cam").unwrap().tracks = Arc::new(alone);
    rig.pass(8000);
    let silent = rig.track(SOUND).unwrap();
    assert!(!silent.ended && silent.segments.last().unwrap().gap, "{silent:?}");
    let back = Tracks::new(3, both.iter().cloned());
    rig.members.get_mut("cam").unwrap().tracks = Arc::new(back);
    rig.pass(10_000);
    let again = rig.track(SOUND).unwrap();
    assert!(!again.segments.last().unwrap().gap, "{again:?}");
    assert!(again.segments.iter().any(|one| one.discontinuity));
    assert_eq!(rig.variants().len(), 2);
}

#[test]
fn only_lists_and_manifests_of_the_application_begin_renditions_of_single_tracks() {
    let of = |settings: &[(&str, &str)], name: &str| {
        let app = AppSettings::of(schema(), "live", settings).unwrap();
        of_master_apart(&app, name).map(str::to_owned)
    };
    let low = [("hlsEnableLowLatency", "true")];
    let dash = [("dashMuxingEnabled", "true")];
    for (name, of_low, of_dash) in [
        ("ll-hls/cam/cam__master_adaptive.m3u8", true, false),
        ("cam/cam_adaptive.mpd", false, true),
        ("ll-hls/cam/cam__master.m3u8", false, false),
        ("ll-hls/other/cam__master_adaptive.m3u8", false, false),
        ("a/cam/cam_adaptive.mpd", false, false),
        ("cam/cam.mpd", false, false),
        ("cam_adaptive.m3u8", false, false),
    ] {
        assert_eq!(of(&low, name).as_deref(), of_low.then_some("cam"), "{name}");
        assert_eq!(of(&dash, name).as_deref(), of_dash.then_some("cam"), "{name}");
    }
}

#[test]
fn events_are_with_the_pictures_and_a_break_ends_also_where_its_tracks_are_away() {
    let mut rig = rig();
    rig.begin("cam", &[720], 0, 1000);
    rig.pass(9000);
    rig.cue("cam", scte35::insert(7, scte35::Kind::Out, None), 0);
    rig.pass(4000);
    let uri = rig.variants().remove(0);
    let sounds = rig.list().unwrap().renditions.remove(0).uri.unwrap();
    let has_event = |rig: &Rig, uri: &str| {
        let playlist = rig.track(uri).unwrap();
        let scheme = b"urn:scte:scte35:2013:bin";
        playlist.segments.iter().any(|segment| {
            let blob = rig.blobs.get("live", &format!("{FOLDER}{}", segment.uri));
            blob.is_some_and(|blob| blob.bytes.windows(scheme.len()).any(|bytes| bytes == scheme))
        })
    };
    assert_eq!([&uri, &sounds].map(|uri| has_event(&rig, uri)), [true, false]);
    let member = rig.members.get_mut("cam").unwrap();
    member.tracks = Arc::new(Tracks::new(2, [video(0, 720)]));
    rig.pass(2000);
    rig.cue("cam", scte35::insert(7, scte35::Kind::In, None), 0);
    rig.pass(5000);
    for uri in [&uri, &sounds] {
        let kinds: Vec<_> =
            tags(&rig.track(uri).unwrap()).into_iter().map(|tag| tag.splice.unwrap().0).collect();
        assert_eq!(kinds.last(), Some(&SpliceKind::In), "{uri}: {kinds:?}");
    }
}
