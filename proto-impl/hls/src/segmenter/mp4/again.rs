//! Parts of a stream whose publisher returns with another frame rate.

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
