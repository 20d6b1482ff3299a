//! Names for which requests wait: those of files that the application makes, and those of parts that the playlist
//! does not list yet.

use bytes::Bytes;
use hls::segmenter::{Mp4Segmenter, Names, Start, Timed};
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId};

use super::settings::HlsSettings;
use crate::config::AppSettings;
use crate::mail::Progress;
use crate::protocol::schema;
use crate::protocol::sinks::{maker_of, part_of};

#[test]
fn a_part_is_there_when_its_playlist_is_as_far() {
    let app = AppSettings::of(schema(), "live", &[("hlsEnableLowLatency", "true")]).unwrap();
    let names = Names { base: "ll-hls/a/a__video2".to_owned(), ending: "m4s", run: Some(7000) };
    let start = Start { number: 7000, discontinuities: 7000 };
    let mut rendition = Mp4Segmenter::new(names, &HlsSettings::of(&app).rules, true, (start, 0));
    let h264 = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let config = CodecConfig::read(Codec::H264, h264).unwrap().unwrap();
    rendition.set_tracks(vec![Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS)], 1);
    for n in 0..260 {
        let (dts, payload) = (n * 40, Bytes::from_static(b"unit"));
        let (track, key_frame) = (TrackId::VIDEO, n % 50 == 0);
        let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
        rendition.unit(&Timed { unit: &unit, dts_ms: dts, date_ms: dts });
    }
    let playlist = rendition.playlist();
    let hint = playlist.low_latency.unwrap().hint.unwrap();
    let (segment, part) = rendition.progress();
    assert_eq!((playlist.media_sequence, segment), (7000, 7005));
    let of = ("ll-hls/a/a__video2.m3u8".to_owned(), Progress { segment, part: part + 1 });
    assert_eq!(part_of(&app, &hint), Some(of), "{hint}");
    let long = format!("a_9_{}.0.m4s", u64::MAX);
    for suffix in ["%d", "_v2_%09d", "%09d_v2", "-%05d_x", "2%04d", "_%02d7"] {
        let set = [("hlsEnableLowLatency", "true"), ("hlsSegmentFileSuffixFormat", suffix)];
        let app = AppSettings::of(schema(), "live", &set).unwrap();
        let number = HlsSettings::of(&app).rules.suffix.of(3);
        let of = ("a__video2.m3u8".to_owned(), Progress { segment: 7002, part: 12 });
        assert_eq!(part_of(&app, &format!("a__video2_7000_{number}.11.m4s")), Some(of), "{suffix}");
        assert_eq!(part_of(&app, &format!("a__video2_7000_{number}.m4s")), None, "{suffix}");
    }
    for other in ["a.m4s", "a.0.m4s", "a_7.0.m4s", "a_7_.0.m4s", "a_7_8.x.m4s", "7_8.0.m4s", &long] {
        assert_eq!(part_of(&app, other), None, "{other}");
    }
}

#[test]
fn an_average_bit_rate_never_exceeds_the_peak() {
    for (peak, average, declared) in [
        (720_000, 715_000, (750_000, 750_000)),
        (240_000, 230_000, (250_000, 250_000)),
        (720_000, 610_000, (750_000, 700_000)),
        (0, 0, (0, 0)),
    ] {
        assert_eq!(super::declared_bits(peak, average), declared);
    }
}

#[test]
fn only_what_is_made_is_waited_for() {
    let app = |set: &[(&str, &str)]| AppSettings::of(schema(), "live", set).unwrap();
    let low = app(&[("hlsEnableLowLatency", "true")]);
    let dash = app(&[("dashMuxingEnabled", "true")]);
    for (name, of_low, of_dash) in [
        ("ll-hls/a/a__master.m3u8", true, false),
        ("ll-hls/a/a__master_adaptive.m3u8", true, false),
        ("ll-hls/a/a_adaptive.m3u8", false, false),
        ("ll-hls/a/a__video.m3u8", true, true),
        ("ll-hls/a/a__video12.m3u8", true, true),
        ("ll-hls/a/a__videox.m3u8", false, false),
        ("ll-hls/a/a__audio.m3u8", true, true),
        ("ll-hls/a/a__audio.mpd", false, false),
        ("a/a.mpd", false, true),
        ("a/a_adaptive.mpd", false, true),
        ("ll-hls/a/b__master.m3u8", false, false),
    ] {
        assert_eq!(maker_of(&low, name).map(|(_, id)| id), of_low.then_some("a"), "{name}");
        assert_eq!(maker_of(&dash, name).map(|(_, id)| id), of_dash.then_some("a"), "{name}");
    }
}
