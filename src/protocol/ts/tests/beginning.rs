//! The beginning of a stream: the wait for announced video, and the content so far.

use super::*;
use crate::protocol::usable::Supply;

fn adts(payload: &[u8]) -> Vec<u8> {
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    [&config.adts(payload.len()).unwrap()[..], payload].concat()
}

/// A publisher with several tracks of a kind.
struct Several {
    muxer: Muxer,
    ingest: Depackager,
}

impl Several {
    fn new(videos: u8, audios: u8) -> Self {
        let number = |kind| move |number| mpegts::StreamNumber { kind, number };
        let videos = (0..videos).map(number(Kind::Video)).map(|number| (number, StreamKind::H264));
        let audios = (0..audios).map(number(Kind::Audio)).map(|number| (number, StreamKind::AacAdts));
        let mut muxer = Muxer::new();
        muxer.set_program(videos.chain(audios));
        Self { muxer, ingest: ingest() }
    }

    /// Sends a frame. Returns the number of units that are emitted.
    fn send(&mut self, kind: Kind, number: u8, dts: u64, payload: &[u8]) -> usize {
        let dts = (dts + ZERO) & CLOCK_MASK;
        let unit = Unit { kind, number, pts: dts, dts, random_access: true, payload: &[payload] };
        self.ingest.handle(&self.muxer.write(&unit));
        units(&mut self.ingest).len()
    }

    fn audio(&mut self, number: u8, dts: u64) -> usize {
        self.send(Kind::Audio, number, dts, &adts(b"audio"))
    }
}

#[test]
fn audio_waits_for_announced_video_but_not_for_ever() {
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(5).unwrap()[..], b"audio"].concat();
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    assert_eq!(publisher.audio(0, &frame), []);
    assert_eq!(publisher.audio(200_000, &frame), []);
    assert_eq!(publisher.audio(270_000, &frame).len(), 1);
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    assert_eq!(publisher.audio(0, &frame), []);
    assert_eq!(publisher.video(3000, &[AUD, SPS, PPS, IDR]).len(), 1);
    assert_eq!(publisher.audio(1920, &frame)[0].dts, 1920);
    assert_eq!(Publisher::new(None, Some(StreamKind::AacAdts)).audio(0, &frame).len(), 1);
}

#[test]
fn audio_of_another_track_that_lies_before_the_first_waits_too() {
    for (before, ends_the_wait) in
        [(1, false), (18_000, false), (200_000, false), (270_001, true), (1 << 32, true)]
    {
        let mut publisher = Several::new(1, 2);
        let at = 400_000;
        assert_eq!(publisher.audio(0, at), 0);
        let sent = publisher.audio(1, at + (1 << 33) - before);
        assert_eq!(sent > 0, ends_the_wait, "{before} ticks before");
        if !ends_the_wait {
            assert_eq!(publisher.audio(0, at + 269_000), 0, "{before} ticks before");
            assert_eq!(publisher.audio(0, at + 270_000), 1, "{before} ticks before");
        }
    }
}

#[test]
fn what_a_stream_has_brought_is_known() {
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(5).unwrap()[..], b"audio"].concat();
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    publisher.ingest.handle(&[0x47; 188 * 7]);
    assert_eq!((publisher.ingest.supply(), publisher.ingest.why_bad()), (Supply::Nothing, None));
    publisher.audio(0, &frame);
    assert_eq!(publisher.ingest.supply(), Supply::Announced);
    publisher.audio(270_000, &frame);
    assert_eq!(publisher.ingest.supply(), Supply::LacksVideo);
    publisher.video(280_000, &[AUD, SPS, PPS, IDR]);
    assert_eq!(publisher.ingest.supply(), Supply::Frames);
}

#[test]
fn one_of_two_videos_is_enough() {
    let mut publisher = Several::new(2, 1);
    for n in 0..120 {
        publisher.send(Kind::Video, 1, n * 3600, &annex_b(&[AUD, SPS, PPS, IDR]));
        publisher.audio(0, n * 3600);
    }
    assert_eq!(publisher.ingest.supply(), Supply::Frames);
}
