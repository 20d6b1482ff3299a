//! The conversion of units from the origin's clock and epochs to the copy's.

use bytes::Bytes;
use media::codec::{aac, h264};
use media::{CodecConfig, Position};

use super::*;
use crate::config::AppSettings;
use crate::types::StreamId;

/// Milliseconds of the wall clock.
const ZERO_MS: i64 = 1_700_000_000_000;

fn tracks(epoch: u32) -> Arc<Tracks> {
    let record = Bytes::from_static(b"\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68");
    let video = CodecConfig::H264(h264::Config::read(record).unwrap());
    let audio = CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x12, 0x10])).unwrap());
    let video = Track { epoch, ..Track::new(TrackId::VIDEO, video, Timescale::new(90_000)) };
    let audio = Track { epoch: 7, ..Track::new(TrackId::AUDIO, audio, Timescale::new(44_100)) };
    Arc::new(Tracks::new(epoch, [video, audio]))
}

fn grant(zero_ms: i64, position_ms: Option<i64>, epoch: u32) -> Grant {
    let position = Position { dts_ms: position_ms.unwrap_or(0), started: position_ms.is_some() };
    let settings = Arc::new(AppSettings::defaults("live").unwrap());
    Grant { stream: StreamId(1), position, epoch, zero_ms, settings, standby: false }
}

fn unit(track: TrackId, dts: i64, key_frame: bool) -> AccessUnit {
    AccessUnit { track, dts, pts: dts + 9, key_frame, config_epoch: 1, payload: Bytes::from_static(&[1]) }
}

fn picture(ms: i64, key_frame: bool) -> AccessUnit {
    unit(TrackId::VIDEO, ms * 90, key_frame)
}

/// Returns DTS and PTS in ticks, and the epoch, of the unit that the copy gets.
fn converted(clock: &mut Clock, unit: AccessUnit, tracks: &Arc<Tracks>) -> Option<(i64, i64, u32)> {
    let event = clock.convert(unit, tracks);
    if let ClientEvent::Unit { unit, tracks } = &event {
        let epoch = tracks.get(unit.track).map_or(0, |track| track.epoch);
        assert_eq!(unit.config_epoch, epoch, "the tracks beside it decode it");
        return Some((unit.dts, unit.pts, epoch));
    }
    assert_eq!(event, ClientEvent::Dropped(0));
    None
}

#[test]
fn the_first_copy_has_the_times_of_its_origin() {
    let mut clock = Clock::new(&grant(ZERO_MS, None, 0), ZERO_MS);
    let tracks = tracks(1);
    assert_eq!(converted(&mut clock, picture(5000, true), &tracks), Some((450_000, 450_009, 1)));
    assert_eq!(
        converted(&mut clock, unit(TrackId::AUDIO, 44_100, false), &tracks),
        Some((44_100, 44_109, 1))
    );
    assert_eq!(converted(&mut clock, unit(TrackId::DATA, 40, false), &tracks), Some((40, 49, 0)));
}

#[test]
fn a_picture_that_nothing_stands_before_waits_for_a_key_frame() {
    let mut clock = Clock::new(&grant(ZERO_MS, None, 0), ZERO_MS);
    let tracks = tracks(1);
    assert_eq!(converted(&mut clock, picture(5000, false), &tracks), None);
    assert!(converted(&mut clock, unit(TrackId::AUDIO, 44_100, false), &tracks).is_some());
    assert!(converted(&mut clock, picture(5040, true), &tracks).is_some());
    assert!(converted(&mut clock, picture(5080, false), &tracks).is_some());
}

/// The connection broke, and the origin sends the newest GOP again.
#[test]
fn what_the_copy_has_had_is_passed_over_and_what_follows_it_is_not() {
    let mut clock = Clock::new(&grant(ZERO_MS, Some(5040), 4), ZERO_MS);
    let tracks = tracks(1);
    assert_eq!(converted(&mut clock, picture(5000, true), &tracks), None);
    assert_eq!(converted(&mut clock, picture(5040, false), &tracks), None);
    assert_eq!(converted(&mut clock, picture(5080, false), &tracks), Some((457_200, 457_209, 5)));
}

/// The stream has restarted at another node, whose clock began 60 s later.
#[test]
fn another_life_of_the_stream_lies_where_the_wall_clock_puts_it() {
    let mut clock = Clock::new(&grant(ZERO_MS, Some(61_000), 4), ZERO_MS + 60_000);
    let tracks = tracks(1);
    assert_eq!(converted(&mut clock, picture(1900, false), &tracks), None, "no key frame yet");
    assert_eq!(converted(&mut clock, picture(2000, true), &tracks), Some((62_000 * 90, 62_000 * 90 + 9, 5)));
    let sound = unit(TrackId::AUDIO, 2 * 44_100, false);
    assert_eq!(converted(&mut clock, sound, &tracks), Some((62 * 44_100, 62 * 44_100 + 9, 5)));
}

/// The wall clocks of the two nodes differ, or the new publisher began before the copy had all units of the old
/// one.
#[test]
fn another_life_never_goes_back_behind_what_was_shown() {
    let mut clock = Clock::new(&grant(ZERO_MS, Some(61_000), 4), ZERO_MS + 10_000);
    let tracks = tracks(1);
    assert_eq!(converted(&mut clock, picture(0, true), &tracks), Some((61_001 * 90, 61_001 * 90 + 9, 5)));
    assert_eq!(converted(&mut clock, picture(40, false), &tracks), Some((61_041 * 90, 61_041 * 90 + 9, 5)));
}

#[test]
fn a_track_keeps_its_epoch_while_it_is_described_alike() {
    let mut clock = Clock::new(&grant(ZERO_MS, None, 9), ZERO_MS);
    assert_eq!(converted(&mut clock, picture(0, true), &tracks(1)).unwrap().2, 10);
    let changed = tracks(2);
    let sound = converted(&mut clock, unit(TrackId::AUDIO, 0, false), &changed).unwrap();
    assert_eq!((sound.2, clock.tracks.epoch), (10, 11));
    assert_eq!(converted(&mut clock, picture(40, false), &changed).unwrap().2, 11);
}

#[test]
fn splices_are_moved_along_with_the_copy() {
    let mut clock = Clock::new(&grant(ZERO_MS, Some(5000), 4), ZERO_MS + 20_000);
    let tracks = tracks(1);
    assert!(converted(&mut clock, picture(100, true), &tracks).is_some());
    let made = scte35::insert(7, scte35::Kind::Out, None);
    let payload = scte35::moved_to(&made, 4000 * 90).unwrap();
    let cue = AccessUnit { payload, pts: 4000, ..unit(TrackId::CUES, 200, false) };
    let ClientEvent::Unit { unit, .. } = clock.convert(cue, &tracks) else { panic!("the cue is left out") };
    let pts = scte35::Splice::read(&unit.payload).unwrap().pts;
    assert_eq!((unit.dts, unit.pts, pts), (20_200, 24_000, Some(24_000 * 90)));
}
