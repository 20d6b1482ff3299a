//! Audio of any codec through the transcoder.

use bytes::Bytes;
use media::codec::{aac, g711, mp3, opus};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId};
use transcode::{Target, Transcoder};

/// Maximum size of a unit in bytes; larger ones reach nothing new.
const UNIT_BYTES_MAX: usize = 2048;
/// Maximum number of units in an input, each of which is decoded and encoded.
const UNITS_MAX: usize = 16;

/// Transcodes units of tracks whose configuration changes and whose times jump.
///
/// ```text
/// target(1) | (what(1) | length(1) | bytes)*      what: chooses a kind of configuration, or a unit and its clock step
/// ```
pub fn transcode(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let target = if first & 1 == 0 { Target::Opus(96_000) } else { Target::Aac(128_000) };
    let mut transcoder = Transcoder::new(target).expect("the bit rate is one");
    let mut track = None;
    let (mut clock, mut last, mut units) = (0_i64, None, 0);
    while let Some(([what, length], behind)) = rest.split_first_chunk() {
        // Long units are rare, because frames of silence are short, and configurations even shorter.
        let length = if *length > 250 { UNIT_BYTES_MAX } else { usize::from(*length) };
        let (bytes, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        if let Some(config) = config(what % 8, bytes) {
            let epoch = track.as_ref().map_or(0, |track: &Track| track.epoch) + 1;
            let timescale = Timescale::new([1000, 48_000, 90_000, 44_100][usize::from(what >> 6)]);
            track = Some(Track { epoch, ..Track::new(TrackId::AUDIO, config, timescale) });
            continue;
        }
        let Some(track) = &track else { continue };
        units += 1;
        if units > UNITS_MAX {
            return;
        }
        clock += step(what >> 3, track.timescale);
        let unit = AccessUnit {
            track: TrackId::AUDIO,
            dts: clock,
            pts: clock,
            key_frame: false,
            config_epoch: track.epoch,
            payload: Bytes::copy_from_slice(bytes),
        };
        transcoder.handle_unit(track, &unit);
        let mut made = 0;
        while let Some(unit) = transcoder.poll_unit() {
            assert!(last.is_none_or(|last| last < unit.pts), "times rise");
            assert!(!unit.payload.is_empty() && unit.payload.len() <= 1536);
            (last, made) = (Some(unit.pts), made + 1);
        }
        assert!(made <= 200, "a unit makes what it lasts, and fills two seconds");
    }
}

fn config(what: u8, bytes: &[u8]) -> Option<CodecConfig> {
    let record = || Bytes::copy_from_slice(bytes);
    match what {
        0 => aac::Config::read(record()).ok().map(CodecConfig::Aac),
        1 => opus::Config::read(record()).ok().map(CodecConfig::Opus),
        2 => mp3::Config::of_frame(bytes).ok().map(CodecConfig::Mp3),
        3 => {
            let law = if bytes.len().is_multiple_of(2) { g711::Law::A } else { g711::Law::Mu };
            let channels = bytes.first().map_or(1, |byte| byte % 3);
            Some(CodecConfig::G711(g711::Config { law, channels }))
        }
        _ => None,
    }
}

/// Returns a step of the clock: usually one frame; sometimes late, early, far ahead or far back.
fn step(what: u8, timescale: Timescale) -> i64 {
    let ms = [20, 21, 23, 24, 26, 20, 0, 40, 60, 100, 500, 1900, 3000, 100_000, -20, -500];
    Timescale::MILLISECONDS.convert(ms[usize::from(what % 16)], timescale)
}
