use bytes::Bytes;
use media::codec::vp8;
use media::{Codec, CodecConfig};

use super::*;

const VIDEO: TrackId = TrackId::VIDEO;
const AUDIO: TrackId = TrackId::AUDIO;

fn audio_config() -> CodecConfig {
    CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x12, 0x10])).unwrap().unwrap()
}

/// Tracks with video at 90 kHz, and with audio in milliseconds if `has_audio`.
fn tracks(epoch: u32, has_audio: bool) -> Arc<Tracks> {
    let video = Track {
        epoch,
        ..Track::new(VIDEO, CodecConfig::Vp8(vp8::Config::default()), Timescale::new(90_000))
    };
    let audio = Track { epoch, ..Track::new(AUDIO, audio_config(), Timescale::MILLISECONDS) };
    Arc::new(Tracks::new(epoch, std::iter::once(video).chain(has_audio.then_some(audio))))
}

struct Sender {
    began: Instant,
    /// Difference between the sender's clock and the time since `began`, in milliseconds.
    clock_ms: i64,
    gop_ms: i64,
    tracks: Arc<Tracks>,
}

impl Sender {
    fn new(clock_ms: i64, gop_ms: i64) -> Self {
        Self { began: Instant::now(), clock_ms, gop_ms, tracks: tracks(2, true) }
    }

    fn at(&self, ms: u64) -> Instant {
        self.began + Duration::from_millis(ms)
    }

    /// The picture of this time, 25 a second, with a B-frame distance of one picture.
    fn picture(&self, ms: u64) -> Held {
        let own_ms = i64::try_from(ms).unwrap() + self.clock_ms;
        let key_frame = i64::try_from(ms).unwrap() % self.gop_ms == 0;
        let (dts, pts) = (own_ms * 90, (own_ms + 40) * 90);
        let payload = Bytes::from_static(b"picture");
        let unit = AccessUnit { track: VIDEO, dts, pts, key_frame, config_epoch: 2, payload };
        Held { unit, tracks: Arc::clone(&self.tracks), came: self.at(ms) }
    }

    fn sound(&self, ms: u64) -> Held {
        let dts = i64::try_from(ms).unwrap() + self.clock_ms;
        let payload = Bytes::from_static(b"sound");
        let unit = AccessUnit { track: AUDIO, dts, pts: dts, key_frame: false, config_epoch: 2, payload };
        Held { unit, tracks: Arc::clone(&self.tracks), came: self.at(ms) }
    }

    /// A standby that has received pictures and audio until `ms`.
    fn standby(&self, ms: u64) -> Standby {
        let mut standby = Standby::new(self.began, Pauses::default());
        for at in (0..=ms).step_by(40) {
            for Held { unit, tracks, came } in [self.picture(at), self.sound(at)] {
                standby.hold(came, unit, tracks);
            }
        }
        standby
    }
}

fn seam(dts_ms: i64, silent_ms: u64) -> Seam {
    let position = Position { dts_ms, started: true };
    Seam { position, tracks: tracks(5, true), silent: Duration::from_millis(silent_ms) }
}

/// Returns track, DTS and PTS in milliseconds of the units of a standby that takes over `at_ms` after its beginning and
/// sends until `until_ms`.
fn played(sender: &Sender, seam: &Seam, at_ms: u64, until_ms: u64) -> Vec<(TrackId, i64, i64)> {
    let mut splice = Splice::new(sender.at(at_ms), seam);
    let mut held: Vec<Held> = sender.standby(at_ms).take().into_iter().collect();
    for at in (0..=until_ms).step_by(40).filter(|at| *at > at_ms) {
        held.extend([sender.picture(at), sender.sound(at)]);
    }
    let mapped = held.into_iter().filter_map(|held| splice.map(held));
    mapped
        .map(|(unit, tracks)| {
            let scale = tracks.get(unit.track).unwrap().timescale;
            (unit.track, scale.to_ms(unit.dts), scale.to_ms(unit.pts))
        })
        .collect()
}

fn of(track: TrackId, units: &[(TrackId, i64, i64)]) -> Vec<(i64, i64)> {
    units.iter().filter(|(of, ..)| *of == track).map(|(_, dts, pts)| (*dts, *pts)).collect()
}

#[test]
fn the_clock_continues_whatever_the_standby_says_and_is_on_time_after_a_quarter_of_the_gop() {
    // The standby's clock is hours off, its GOP of 2 s began before the loss, and the former publisher was lost or
    // silent.
    for (clock_ms, gop_ms, at_ms, silent_ms) in [
        (0, 2000, 3960, 0),
        (7_200_000, 2000, 3960, 0),
        (-7_200_000, 2000, 3960, 1000),
        (7_200_000, 2000, 2040, 1000),
        (1, 10_000, 9000, 0),
    ] {
        let name = format!("{clock_ms} {gop_ms} {at_ms} {silent_ms}");
        let sender = Sender::new(clock_ms, gop_ms);
        let end = 50_000;
        let units = played(&sender, &seam(end, silent_ms), at_ms, at_ms + 8000);
        let (video, audio) = (of(VIDEO, &units), of(AUDIO, &units));
        for list in [&video, &audio] {
            assert!(list.first().unwrap().0 >= end + GAP_MS, "{name}: {list:?}");
            assert!(list.iter().is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{name}: {list:?}");
            assert!(list.iter().all(|(dts, pts)| pts >= dts), "{name}");
        }
        let began_ms = i64::try_from(at_ms).unwrap() / gop_ms * gop_ms;
        let retained = (i64::try_from(at_ms).unwrap() - began_ms) / 40 + 1;
        assert_eq!(video.len(), usize::try_from(retained).unwrap() + 200, "{name}: no picture is missing");
        // A unit that arrives later is placed where it is due.
        let last = end + i64::try_from(silent_ms).unwrap() + 8000;
        assert_eq!((video.last().unwrap().0, audio.last().unwrap().0), (last, last), "{name}");
        let on_time = |dts: &i64| (last - dts) % 40 == 0;
        let hurried =
            video.iter().take_while(|(dts, _)| *dts < end + GAP_MS + 2600).filter(|(dts, _)| !on_time(dts));
        assert!(hurried.count() <= usize::try_from(retained + 70).unwrap(), "{name}");
        let rest = video.iter().filter(|(dts, _)| *dts >= end + GAP_MS + 2700);
        assert!(
            rest.clone().count() > 100 && rest.clone().all(|(dts, pts)| on_time(dts) && pts - dts == 40),
            "{name}"
        );
    }
}

#[test]
fn without_a_key_frame_audio_continues_and_video_waits() {
    let sender = Sender::new(500, 2000);
    let mut splice = Splice::new(sender.at(1000), &seam(9000, 0));
    assert!(splice.map(sender.picture(1040)).is_none() && splice.awaits_key_frame(VIDEO));
    let (sound, _) = splice.map(sender.sound(1040)).unwrap();
    assert_eq!(sound.dts, 9040);
    assert!(splice.map(sender.picture(1960)).is_none());
    let (picture, _) = splice.map(sender.picture(2000)).unwrap();
    assert_eq!((picture.dts, picture.key_frame), (10_000 * 90, true));
    assert!(splice.map(sender.picture(2040)).is_some());
}

#[test]
fn a_stream_that_has_not_begun_begins_with_the_standby() {
    let sender = Sender::new(3_600_000, 2000);
    let seam = Seam { position: Position::default(), tracks: Arc::default(), silent: Duration::from_secs(9) };
    let units = played(&sender, &seam, 3000, 5000);
    assert_eq!(units.first(), Some(&(VIDEO, 0, 40)));
    assert_eq!(of(AUDIO, &units).first(), Some(&(0, 0)));
}

#[test]
fn equal_tracks_keep_their_epoch_and_others_begin_one() {
    let sender = Sender::new(0, 2000);
    let epochs = |splice: &mut Splice, own: &Arc<Tracks>| {
        let rebased = splice.rebase(own);
        let of = |id| rebased.get(id).map(|track| track.epoch);
        (rebased.epoch, of(VIDEO), of(AUDIO))
    };
    let splice = || Splice::new(sender.began, &seam(1, 0));
    assert_eq!(epochs(&mut splice(), &tracks(2, true)), (5, Some(5), Some(5)));
    assert_eq!(epochs(&mut splice(), &tracks(2, false)), (7, Some(5), None), "its audio is missing");
    let mut other = Tracks::clone(&tracks(2, true));
    other.get_mut(VIDEO).unwrap().timescale = Timescale::MILLISECONDS;
    let (other, mut changed) = (Arc::new(other), splice());
    assert_eq!(epochs(&mut changed, &other), (7, Some(7), Some(5)));
    // The configuration of the former publisher does not return.
    assert_eq!(epochs(&mut changed, &tracks(3, true)), (8, Some(8), Some(5)));
    let mut splice = splice();
    let (unit, tracks) = splice.map(sender.picture(0)).unwrap();
    assert_eq!((unit.config_epoch, tracks.epoch), (5, 5));
}

#[test]
fn no_more_than_one_gop_is_retained_and_a_long_one_is_cut() {
    let sender = Sender::new(0, 1000);
    let mut standby = sender.standby(1480);
    assert_eq!(standby.retained_bytes(), 13 * (b"picture".len() + b"sound".len()));
    let held = standby.take();
    assert!(held.len() == 26 && held[0].unit.key_frame && standby.retained_bytes() == 0);
    assert!(!standby.has_key_frame() && standby.received_bytes() > 0);

    // A key frame is requested while none is retained, and when the GOP is old; at most once a second.
    let sender = Sender::new(0, 1_000_000);
    let mut standby = Standby::new(sender.began, Pauses::default());
    let mut asked = Vec::new();
    for at in (40..=8000).step_by(40).chain([1_000_000]).chain((1_000_040..1_007_000).step_by(40)) {
        let Held { unit, tracks, came } = sender.picture(at);
        if standby.hold(came, unit, tracks).is_some() {
            asked.push(at);
        }
    }
    assert_eq!(asked, [40, 1040, 2040, 3040, 4040, 5040, 6040, 7040, 1_004_040, 1_005_040, 1_006_040]);
    assert!(standby.has_key_frame());
    for at in (2_000_000..2_000_000 + 40 * 4100).step_by(40) {
        let Held { mut unit, tracks, came } = sender.picture(at);
        unit.key_frame = at == 2_000_000;
        standby.hold(came, unit, tracks);
    }
    assert!(!standby.has_key_frame(), "a GOP of more units than a ring has is not retained");
}
