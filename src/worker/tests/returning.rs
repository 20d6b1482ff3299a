//! A publisher that returns, with tracks that do not begin together.

use media::Origin;

use super::*;
use crate::mail::Grant;

/// Opus audio beside the video of [`video_tracks`].
fn both_tracks() -> Arc<Tracks> {
    let opus = CodecConfig::read(Codec::Opus, Bytes::from_static(b"OpusHead\x01\x02\0\0\x80\xbb\0\0\0\0\0"));
    let audio = Track::new(TrackId::AUDIO, opus.unwrap().unwrap(), Timescale::MILLISECONDS);
    let mut all: Vec<Track> = video_tracks().iter().cloned().collect();
    all.push(Track { epoch: 1, origin: Origin::Published, ..audio });
    Arc::new(Tracks::new(1, all))
}

/// Publishes these units with a grant for this position. Returns the DTS and PTS of the units that were appended, by
/// track.
fn appended(position: media::Position, units: &[(TrackId, i64)]) -> [Vec<(i64, i64)>; 2] {
    let mut rig = Rig::new();
    let (id, actor) = rig.connect();
    let publication = Publication { handle: Handle::ONLY, stream: None };
    rig.worker.conns.get_mut(id).unwrap().publications.push(publication);
    let settings = Arc::new(AppSettings::defaults("live").unwrap());
    let grant = Grant { stream: STREAM, position, epoch: 0, zero_ms: 0, settings, standby: false };
    let verdict = ToWorker::Verdict { conn: id, handle: Handle::ONLY, verdict: Ok(Box::new(grant)) };
    rig.worker.handle_mail(rig.now, verdict);
    let wanted = TrackSet::of(TrackId::VIDEO).with(TrackId::AUDIO);
    let to = WorkerId(1);
    let mirror = ToWorker::Mirror { stream: STREAM, to, request: 1, wanted, after: Vec::new() };
    rig.worker.handle_mail(rig.now, mirror);
    let tracks = both_tracks();
    let events = units.iter().enumerate().map(|(n, &(track, dts))| {
        let (key_frame, payload) = (n == 0, Bytes::from_static(b"unit"));
        let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
        Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks: Arc::clone(&tracks) })
    });
    rig.say(id, &actor, events);
    let mut seen = [Vec::new(), Vec::new()];
    for output in rig.outputs() {
        let Output::Mirrored(WorkerId(1), unit) = output else { continue };
        let unit = &unit.entry.unit;
        seen[usize::from(unit.track == TrackId::AUDIO)].push((unit.dts, unit.pts));
    }
    seen
}

const ENDED: media::Position = media::Position { dts_ms: 5000, started: true };

fn same(times: &[i64]) -> Vec<(i64, i64)> {
    times.iter().map(|&dts| (dts, dts)).collect()
}

#[test]
fn audio_from_before_the_end_of_the_former_publisher_is_dropped() {
    let units = [
        (TrackId::VIDEO, 5040),
        (TrackId::AUDIO, 5001),
        (TrackId::AUDIO, 5001),
        (TrackId::AUDIO, 5013),
        (TrackId::VIDEO, 5073),
        (TrackId::AUDIO, 5034),
    ];
    assert_eq!(appended(ENDED, &units), [same(&[5040, 5073]), same(&[5013, 5034])]);
    let [_, audio] = appended(media::Position::default(), &units);
    assert_eq!(audio.len(), 4, "a new stream loses nothing");
}

#[test]
fn pictures_from_before_the_end_of_the_former_publisher_get_rising_times() {
    let units = [
        (TrackId::VIDEO, 5001),
        (TrackId::AUDIO, 5040),
        (TrackId::VIDEO, 5001),
        (TrackId::VIDEO, 5001),
        (TrackId::VIDEO, 5003),
        (TrackId::VIDEO, 5036),
        (TrackId::VIDEO, 5069),
    ];
    assert_eq!(appended(ENDED, &units), [same(&[5002, 5003, 5004, 5005, 5036, 5069]), same(&[5040])]);
}
