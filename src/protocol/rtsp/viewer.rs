//! A viewer: the tracks described to it, those it has set up, and the pictures that fit its path.

use std::time::{Duration, Instant};

use ::rtsp::Lower;
use media::codec::dependency::Dependency;
use media::{Origin, TrackId, TrackKind, Tracks};
use sdp::{Attribute, Connection, Description, Host};
use wire::Datagrams;

use super::line::Line;
use super::package;
use super::pairs::path_of;
use crate::hub::{Chosen, Delivery, Entry, Parts, Pick, Selection};
use crate::protocol::To;
use crate::protocol::rtp_mapping::describe::section_of;
use crate::protocol::thinning::{Load, Picture, Thinning};

/// Queue time above which pictures are left out once a path has turned out to be narrow, until the next key frame.
const QUEUED_MAX: Duration = Duration::from_millis(500);
/// Time from an answer to the next request from which a viewer counts as distant; in a local network, no viewer takes
/// that long.
const FAR_FROM: Duration = Duration::from_millis(10);

/// Returns the time `duration` after `now`.
pub(super) fn after(now: Instant, duration: Duration) -> Instant {
    now.checked_add(duration).unwrap_or(now)
}

/// A track described to the viewer.
#[derive(Debug)]
struct Described {
    track: TrackId,
    kind: TrackKind,
    /// The transport of the track, once it is set up.
    lower: Option<Lower>,
    /// The choice of pictures, which begins at the first key frame after the path was found to be narrow.
    thinning: Option<Box<Thinning>>,
    /// True if pictures were left out before that key frame, so that none can be shown until it arrives.
    waits_for_key: bool,
}

/// The state of a viewer.
#[derive(Debug)]
pub(super) struct Viewer {
    /// The described tracks in the order of their sections.
    tracks: Vec<Described>,
    description: Description,
    line: Line,
    /// Time of the last answer. The field below is the shortest time from an answer to the next request; the round trip
    /// is at most that long.
    answered: Instant,
    answer_to_request: Option<Duration>,
    /// True once the stream was found to have a kind of media that the description lacks.
    lack_noticed: bool,
}

impl Viewer {
    /// Makes a viewer of these tracks.
    pub(super) fn new(now: Instant, chosen: &Chosen) -> Self {
        let mut description = Description { name: "millstream".to_owned(), ..Description::default() };
        description.connection = Some(Connection::new(Host::UNSPECIFIED));
        description.attributes.push(Attribute::Control("*".to_owned()));
        description.attributes.push(Attribute::Range("npt=0-".to_owned()));
        let mut tracks = Vec::new();
        for track in chosen.iter() {
            let Some(mut section) = section_of(track) else { continue };
            section.attributes.push(Attribute::Control(format!("trackID={}", tracks.len())));
            description.media.push(section);
            tracks.push(Described {
                track: track.id,
                kind: track.kind(),
                lower: None,
                thinning: None,
                waits_for_key: false,
            });
        }
        Self {
            tracks,
            description,
            line: Line::new(now),
            answered: now,
            answer_to_request: None,
            lack_noticed: false,
        }
    }

    /// True if there is no track that the viewer could be sent.
    pub(super) const fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    /// Returns the description sent to the viewer.
    pub(super) const fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the track of a section.
    pub(super) fn track(&self, section: usize) -> Option<TrackId> {
        self.tracks.get(section).map(|one| one.track)
    }

    /// True if a track may use this transport: all tracks of a viewer use the same.
    pub(super) fn may_use(&self, lower: Lower) -> bool {
        self.tracks.iter().all(|one| one.lower.is_none_or(|other| other == lower))
    }

    /// Notes that a section is set up.
    pub(super) fn set_up(&mut self, section: usize, lower: Lower) {
        if let Some(one) = self.tracks.get_mut(section) {
            one.lower = Some(lower);
        }
    }

    /// Notes a request of the viewer, which comes at least a round trip after the last answer.
    pub(super) fn note_request(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.answered);
        self.answer_to_request = Some(self.answer_to_request.map_or(took, |least| least.min(took)));
    }

    /// Notes an answer to the viewer.
    pub(super) const fn note_answer(&mut self, now: Instant) {
        self.answered = now;
    }

    /// Starts playing. Large units are spread if the viewer is distant.
    pub(super) fn play(&mut self) {
        if self.answer_to_request.is_some_and(|took| took >= FAR_FROM) {
            self.line.spread_for_distance();
        }
    }

    /// Returns the sections that are set up.
    pub(super) fn set_up_tracks(&self) -> impl Iterator<Item = usize> {
        self.tracks.iter().enumerate().filter(|(_, one)| one.lower.is_some()).map(|(section, _)| section)
    }

    /// True if the viewer receives datagrams.
    pub(super) fn takes_datagrams(&self) -> bool {
        self.tracks.iter().any(|one| one.lower == Some(Lower::Udp))
    }

    /// Returns the selection narrowed to the kinds that are set up, or to the only track of a kind that is set up;
    /// `None` if the selection stays as it is. Two or more tracks of a kind cannot be selected singly; those that
    /// are not set up are dropped when sending.
    pub(super) fn narrowed(&self, selection: Selection) -> Option<Selection> {
        let pick = |kind, whole| {
            let mut of_kind = self.tracks.iter().filter(|one| one.kind == kind && one.lower.is_some());
            let all = self.tracks.iter().filter(|one| one.kind == kind).count();
            match (of_kind.next(), of_kind.next()) {
                (None, _) => Pick::None,
                (Some(_), None) if all == 1 => whole,
                (Some(only), None) => Pick::Only(only.track),
                // A selection cannot express a part of several tracks, so tracks that were not set up are dropped when
                // sending.
                (Some(_), Some(_)) => whole,
            }
        };
        let (video, audio) =
            (pick(TrackKind::Video, selection.video), pick(TrackKind::Audio, selection.audio));
        let narrowed = Selection { video, audio, ..selection };
        (narrowed != selection).then_some(narrowed)
    }

    /// Returns true, once, if the stream has video or audio that the description lacks.
    pub(super) fn notices_lack(&mut self, tracks: &Tracks) -> bool {
        let is_news = !self.lack_noticed && self.lacks_of(tracks);
        self.lack_noticed |= is_news;
        is_news
    }

    fn lacks_of(&self, tracks: &Tracks) -> bool {
        let is_described = |kind| self.tracks.iter().any(|one| one.kind == kind);
        let has = |kind| tracks.of_kind(kind).any(|track| track.origin == Origin::Published);
        [TrackKind::Video, TrackKind::Audio].into_iter().any(|kind| has(kind) && !is_described(kind))
    }

    /// True if there is room for another unit.
    pub(super) const fn has_room(&self) -> bool {
        self.line.has_room()
    }

    /// Queues a unit, or leaves it out because the path has no room. Returns its track if a key frame should be
    /// requested, because pictures were left out and the path is free again.
    pub(super) fn send(&mut self, now: Instant, unit: &Delivery<'_>) -> Option<TrackId> {
        let passes = self.passes(now, unit.entry);
        unit.parts().for_each(|parts| self.push(parts, passes));
        let track = unit.entry.unit.track;
        let load = self.load();
        let thinning = self.tracks.iter_mut().find(|one| one.track == track)?.thinning.as_mut()?;
        (!passes && thinning.needs_key(now, load)).then_some(track)
    }

    /// Returns the load on the viewer's path.
    fn load(&self) -> Load {
        Load { queued: self.line.queued(), budget: self.line.limit(), hint: None }
    }

    /// Returns true if a unit should be sent.
    fn passes(&mut self, now: Instant, entry: &Entry) -> bool {
        let (unit, load) = (&entry.unit, self.load());
        let Some(section) = self.tracks.iter().position(|one| one.track == unit.track) else { return true };
        let Some(one) = self.tracks.get_mut(section).filter(|one| one.kind == TrackKind::Video) else {
            return true;
        };
        if unit.key_frame && one.thinning.is_some() != load.budget.is_some() {
            one.thinning = load.budget.map(|_| Box::default());
        }
        let (Some(thinning), Some(track)) = (&mut one.thinning, entry.tracks.get(unit.track)) else {
            one.waits_for_key |= load.queued > QUEUED_MAX;
            one.waits_for_key &= !unit.key_frame;
            return !one.waits_for_key;
        };
        one.waits_for_key = false;
        let needs = Dependency::of(&track.config, unit.key_frame, &unit.payload);
        let picture = Picture { needs, is_key: unit.key_frame, bytes: unit.payload.len() };
        if !picture.is_key || !Thinning::is_full(load) {
            return thinning.passes(now, picture, load);
        }
        thinning.dropped(now, self.line.drop_unbegun(section));
        let load = self.load();
        let one = self.tracks.get_mut(section);
        one.and_then(|one| one.thinning.as_mut()).is_none_or(|thinning| thinning.passes(now, picture, load))
    }

    /// Queues a unit or its prelude, in the form made by [`super::package`]. Of a unit that does not pass, only the
    /// reports are queued.
    fn push(&mut self, parts: &Parts, passes: bool) {
        for frame in package::frames(parts) {
            let channel = frame.channel;
            let (is_rtcp, of) =
                (channel & 1 == 1, |one: &Described| package::channel_of(one.track) == channel & !1);
            let Some(section) = self.tracks.iter().position(of) else { continue };
            let is_sound = self.tracks.get(section).is_some_and(|one| one.kind == TrackKind::Audio);
            if is_rtcp || passes {
                self.line.push(path_of(section, is_rtcp), is_sound && !is_rtcp, frame.into_packet());
            }
        }
    }

    /// Returns the video tracks that the viewer is sent.
    pub(super) fn video_tracks(&self) -> impl Iterator<Item = TrackId> {
        let is_video = |one: &&Described| one.kind == TrackKind::Video && one.lower.is_some();
        self.tracks.iter().filter(is_video).map(|one| one.track)
    }

    /// Applies reports of the viewer. Returns the bit rate of its path in bits per second, if the path has turned out
    /// to be narrow.
    pub(super) fn handle_rtcp(&mut self, now: Instant, compound: &[u8]) -> Option<u64> {
        let is_news = self.line.handle_rtcp(now, compound);
        self.line.limit().filter(|_| is_news)
    }

    /// Adds the next datagrams of one path, as far as the pace allows. Returns their destination.
    pub(super) fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        self.line.poll_datagrams(now, out).map_or(To::PEER, |path| To { path, ..To::PEER })
    }

    /// Returns the time at which more may be sent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.line.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use media::codec::{opus, vp8};
    use media::{AccessUnit, CodecConfig, Timescale, Track, Tracks};

    use super::super::line::{PACE_BYTES, PACE_INTERVAL, WAITING_BYTES_MAX};
    use super::super::package::RtspPackage;
    use super::*;
    use crate::hub::{Entry, Fit, Package};

    /// Returns the selection of a viewer to which `tracks` were described, and which has set up the sections `set_up`.
    fn narrowed(tracks: &[TrackId], set_up: &[usize]) -> Option<Selection> {
        let config = |id| match id {
            TrackId::VIDEO => CodecConfig::Vp8(vp8::Config::default()),
            _ => CodecConfig::Opus(opus::Config::of_channels(2).unwrap()),
        };
        let track = |id: &TrackId| Track::new(*id, config(*id), Timescale::MILLISECONDS);
        let tracks = Arc::new(Tracks::new(1, tracks.iter().map(track)));
        let mut chosen = Chosen::default();
        chosen.update(Selection::DEFAULT, &tracks, &|_| Fit::Well);
        let mut viewer = Viewer::new(Instant::now(), &chosen);
        set_up.iter().for_each(|section| viewer.set_up(*section, Lower::Tcp));
        viewer.narrowed(Selection::DEFAULT)
    }

    #[test]
    fn no_track_comes_that_was_not_set_up() {
        let (video, audio) = (TrackId::VIDEO, TrackId::AUDIO);
        let mute = Some(Selection { audio: Pick::None, ..Selection::DEFAULT });
        let blind = Some(Selection { video: Pick::None, ..Selection::DEFAULT });
        assert_eq!(narrowed(&[video, audio], &[0, 1]), None);
        assert_eq!(narrowed(&[video, audio], &[0]), mute);
        assert_eq!(narrowed(&[video, audio], &[1]), blind);
        // A kind of track that was not described is not selected, even if a later publisher adds such a track.
        assert_eq!(narrowed(&[video], &[0]), mute);
        assert_eq!(narrowed(&[audio], &[0]), blind);
    }

    /// A viewer of video and audio that takes datagrams, and the package that cuts its stream.
    fn of_datagrams(now: Instant) -> (Viewer, RtspPackage, Arc<Tracks>) {
        let track = |id, config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) };
        let video = track(TrackId::VIDEO, CodecConfig::Vp8(vp8::Config::default()));
        let audio = track(TrackId::AUDIO, CodecConfig::Opus(opus::Config::of_channels(2).unwrap()));
        let tracks = Arc::new(Tracks::new(1, [video, audio]));
        let mut viewer = Viewer::new(now, &Chosen::all_of(&tracks));
        (0..2).for_each(|section| viewer.set_up(section, Lower::Udp));
        (viewer, RtspPackage::default(), tracks)
    }

    fn parts(package: &mut RtspPackage, tracks: &Arc<Tracks>, track: TrackId, bytes: usize) -> Parts {
        let payload = Bytes::from(vec![7; bytes]);
        let unit = AccessUnit { track, dts: 0, pts: 0, key_frame: true, config_epoch: 1, payload };
        let entry = Entry::new(Instant::now(), 1_700_000_000_000, unit, Arc::clone(tracks));
        package.unit(&entry, &Chosen::default()).bytes().cloned().unwrap_or_default()
    }

    #[test]
    fn datagrams_go_on_the_paths_of_their_tracks_in_their_order() {
        let now = Instant::now();
        let (mut viewer, mut package, tracks) = of_datagrams(now);
        assert_eq!(viewer.poll_timeout(), None);
        viewer.push(&parts(&mut package, &tracks, TrackId::VIDEO, 4000), true);
        viewer.push(&parts(&mut package, &tracks, TrackId::AUDIO, 100), true);
        assert_eq!(viewer.poll_timeout(), Some(now + PACE_INTERVAL));
        let mut sent = Vec::new();
        loop {
            let mut out = Datagrams::new();
            let to = viewer.poll_datagrams(now, &mut out);
            if out.is_empty() {
                assert_eq!(to, To::PEER);
                break;
            }
            assert!((0..out.len()).all(|at| out.get(at)[0] == 0x80 || out.get(at)[0] == 0x81));
            sent.push((to.path.0, out.len()));
        }
        // A report before the three packets of the picture, and a report before the audio packet.
        assert_eq!(sent, [(2, 1), (1, 3), (4, 1), (3, 1)]);
        assert_eq!((viewer.poll_timeout(), viewer.line.waiting_bytes()), (None, 0));
    }

    /// Takes all that may leave now, and counts its bytes.
    fn bytes_of(viewer: &mut Viewer, now: Instant) -> usize {
        let mut all = 0;
        loop {
            let mut out = Datagrams::new();
            viewer.poll_datagrams(now, &mut out);
            if out.is_empty() {
                return all;
            }
            all += out.bytes();
        }
    }

    #[test]
    fn datagrams_wait_for_the_pace_and_units_for_the_datagrams() {
        let now = Instant::now();
        let (mut viewer, mut package, tracks) = of_datagrams(now);
        while viewer.has_room() {
            viewer.push(&parts(&mut package, &tracks, TrackId::VIDEO, 100_000), true);
            assert!(viewer.line.waiting_bytes() < WAITING_BYTES_MAX + 110_000);
        }
        assert!(viewer.line.waiting_bytes() >= WAITING_BYTES_MAX);
        let first = bytes_of(&mut viewer, now);
        assert!((PACE_BYTES..PACE_BYTES + 1500).contains(&first), "{first}");
        assert_eq!((bytes_of(&mut viewer, now), viewer.poll_timeout()), (0, Some(now + PACE_INTERVAL)));
        assert_eq!(bytes_of(&mut viewer, now + PACE_INTERVAL / 2), 0);
        let second = bytes_of(&mut viewer, now + PACE_INTERVAL);
        assert!((PACE_BYTES..PACE_BYTES + 1500).contains(&second), "{second}");
        assert_eq!(viewer.poll_timeout(), Some(now + PACE_INTERVAL * 2));
        (2..5).for_each(|n| assert!(bytes_of(&mut viewer, now + PACE_INTERVAL * n) > 0));
        assert!(viewer.has_room());
    }

    #[test]
    fn a_viewer_whose_every_request_comes_late_is_distant() {
        let bytes_at_once = |after_ms: [u64; 3]| {
            let mut now = Instant::now();
            let (mut viewer, mut package, tracks) = of_datagrams(now);
            for ms in after_ms {
                now += Duration::from_millis(ms);
                viewer.note_request(now);
                now += Duration::from_millis(50);
                viewer.note_answer(now);
            }
            viewer.play();
            viewer.push(&parts(&mut package, &tracks, TrackId::VIDEO, 100_000), true);
            bytes_of(&mut viewer, now)
        };
        assert!(bytes_at_once([30, 3, 40]) >= PACE_BYTES);
        assert!(bytes_at_once([30, 25, 40]) < PACE_BYTES);
    }

    #[test]
    fn all_tracks_of_a_viewer_go_one_way() {
        let (mut viewer, ..) = of_datagrams(Instant::now());
        assert!(viewer.may_use(Lower::Udp) && !viewer.may_use(Lower::Tcp) && viewer.takes_datagrams());
        viewer.tracks.iter_mut().for_each(|one| one.lower = None);
        assert!(viewer.may_use(Lower::Udp) && viewer.may_use(Lower::Tcp) && !viewer.takes_datagrams());
        viewer.set_up(1, Lower::Tcp);
        assert!(!viewer.may_use(Lower::Udp) && viewer.may_use(Lower::Tcp) && !viewer.takes_datagrams());
        assert_eq!(viewer.set_up_tracks().collect::<Vec<_>>(), [1]);
    }
}
