//! Parts of a stream whose publisher returns with another frame rate, or has a clock that stands still.

use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId};

use super::*;

#[test]
fn parts_are_filled_again_after_a_publisher_with_fewer_frames_has_left() {
    let record = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let config = CodecConfig::read(Codec::H264, record).unwrap().unwrap();
    let track = Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS);
    let names = Names { base: "cam".to_owned(), ending: "m4s", run: None };
    let rules = Rules { part_ms: 500, ..Rules::DEFAULT };
    let start = Start { number: 1, discontinuities: 0 };
    let mut rendition = Mp4Segmenter::new(names, &rules, true, (start, 0));
    let mut inner = Vec::new();
    let mut dts = 0;
    for (epoch, step) in [(1, 200), (2, 40)] {
        rendition.set_tracks(vec![track.clone()], epoch);
        for _ in 0..8000 / step {
            let payload = Bytes::from_static(b"picture!");
            let key_frame = dts % 2000 == 0;
            let unit =
                AccessUnit { track: TrackId::VIDEO, dts, pts: dts, key_frame, config_epoch: 0, payload };
            rendition.unit(&Timed { unit: &unit, dts_ms: dts, date_ms: dts });
            if rendition.window().is_ripe() {
                rendition.adopt(rendition.window().wanted_target());
            }
            dts += step;
        }
        inner.clear();
        let segments = rendition.playlist().segments;
        // The first segment of a publisher may have parts that were measured by its first frames only.
        for segment in segments.iter().rev().take(2) {
            inner.extend(segment.parts.split_last().map(|(_, inner)| inner.to_vec()).unwrap_or_default());
        }
        let target = rendition.playlist().low_latency.unwrap().part_target;
        assert!(inner.len() >= 4, "{step}: {inner:?}");
        assert!(inner.iter().all(|part| part.duration <= target), "{step}: {inner:?}, {target:?}");
        // Another frame fits no part.
        let step = Duration::from_millis(step.unsigned_abs());
        assert!(inner.iter().all(|part| part.duration + step + step > target), "{inner:?}, {target:?}");
    }
}

#[test]
fn a_part_never_covers_the_jump_of_a_clock_that_stood_still() {
    let record = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let config = CodecConfig::read(Codec::H264, record).unwrap().unwrap();
    let track = Track::new(TrackId::VIDEO, config, Timescale::new(90_000));
    // The clock stands for this many frames, of which each is later by this many ticks, and then goes on. It stands
    // first or second in a part.
    let stands = [(1_i64, 0_i64), (2, 0), (2, 9), (3, 30), (8, 0), (8, 9), (8, 90), (8, 200)];
    for (stood, (frames, ticks)) in [85, 86].into_iter().flat_map(|stood| stands.map(|of| (stood, of))) {
        let names = Names { base: "cam".to_owned(), ending: "m4s", run: None };
        let start = Start { number: 1, discontinuities: 0 };
        let rules = Rules { segment_ms: 4000, ..Rules::DEFAULT };
        let mut rendition = Mp4Segmenter::new(names, &rules, true, (start, 0));
        rendition.set_tracks(vec![track.clone()], 1);
        let from = stood * 200 * 90;
        let steady = (0..stood).map(|n| n * 200 * 90);
        let standing = (0..frames).map(|n| from + n * ticks);
        let goes_on = (0..60).map(|n| from + 1600 * 90 + n * 200 * 90);
        let mut made = Vec::new();
        for (n, dts) in steady.chain(standing).chain(goes_on).enumerate() {
            let payload = Bytes::from_static(b"picture!");
            let key_frame = n % 10 == 0;
            let unit =
                AccessUnit { track: TrackId::VIDEO, dts, pts: dts, key_frame, config_epoch: 0, payload };
            let dts_ms = dts / 90;
            rendition.unit(&Timed { unit: &unit, dts_ms, date_ms: dts_ms });
            if rendition.window().is_ripe() {
                rendition.adopt(rendition.window().wanted_target());
            }
            made.extend(rendition.take_made());
            let playlist = rendition.playlist();
            let Some(low) = playlist.low_latency else { continue };
            for part in playlist.segments.iter().chain([&low.open]).flat_map(|one| &one.parts) {
                // The last frame before the jump lasts until the next one.
                let bytes = &made.iter().find(|made: &&Made| made.name == part.uri).unwrap().bytes;
                let pictures = bytes.windows(8).filter(|some| *some == b"picture!").count();
                let is_alone = pictures == 1;
                assert!(part.duration <= low.part_target || is_alone, "{stood} {frames} {ticks}: {part:?}");
            }
        }
    }
}
