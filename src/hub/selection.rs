//! The choice of a stream's tracks for a subscriber.
//!
//! A [`Selection`] is a rule: it stays valid while tracks are added, removed and changed. [`Chosen`] is the result of
//! the rule for the current tracks. Subscribers with the same format and equal selections share a package.

use std::collections::BTreeSet;
use std::sync::Arc;

use media::{Track, TrackId, TrackKind, TrackSet, Tracks};

/// The degree to which a format supports a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The format cannot carry the track.
    No,
    /// The format carries the track in a form that many players do not support. Another track of the same kind is
    /// preferred.
    Rarely,
    /// The format carries the track in a form that players support.
    Well,
}

impl Fit {
    /// Returns [`Fit::Well`] if `carries`, else [`Fit::No`].
    #[must_use]
    pub const fn of(carries: bool) -> Self {
        if carries { Self::Well } else { Self::No }
    }
}

/// The rule that picks the tracks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pick {
    /// Of the tracks that the format carries best, the first one or its largest rendition. Published tracks precede
    /// derived ones. If the stream has members, the video and the audio are those of one member.
    #[default]
    Default,
    /// Every published track that the format can carry. A derived track if it fits better than all published ones. If
    /// the stream has members, this holds for the tracks of each member.
    All,
    /// The default track of each member, or that of the stream if it has no members.
    Each,
    /// Like [`Pick::All`], but only of the member that [`Pick::Default`] chooses. For formats that take several tracks
    /// for renditions of one content.
    First,
    /// No track.
    None,
    /// Only the track with this id, if it exists and the format can carry it.
    Only(TrackId),
}

impl Pick {
    /// Chooses tracks of a kind. `lead` is the member whose tracks are sent if only one member is.
    fn choose(
        self,
        kind: TrackKind,
        lead: Option<u8>,
        tracks: &Tracks,
        fit: &dyn Fn(&Track) -> Fit,
    ) -> TrackSet {
        let of = |member: Option<u8>| {
            self.choose_among(&|track| track.member_number() == member, kind, tracks, fit)
        };
        match self {
            Self::Default | Self::First if lead.is_some() => of(lead),
            Self::Default | Self::First | Self::None | Self::Only(_) => {
                self.choose_among(&|_| true, kind, tracks, fit)
            }
            Self::All | Self::Each => {
                let members: BTreeSet<Option<u8>> = tracks.iter().map(Track::member_number).collect();
                members.into_iter().map(of).fold(TrackSet::EMPTY, TrackSet::or)
            }
        }
    }

    /// Chooses among the tracks that `is_candidate` accepts.
    fn choose_among(
        self,
        is_candidate: &dyn Fn(&Track) -> bool,
        kind: TrackKind,
        tracks: &Tracks,
        fit: &dyn Fn(&Track) -> Fit,
    ) -> TrackSet {
        let of_kind = || {
            let of_kind = tracks.iter().filter(move |track| track.kind() == kind && !track.is_stand_in());
            of_kind.filter(|track| is_candidate(track) && fit(track) != Fit::No)
        };
        let best = of_kind().map(fit).max().unwrap_or(Fit::No);
        let first = || {
            let fitting = of_kind().filter(|track| fit(track) == best);
            Tracks::preferred(fitting).map(|track| track.id).into_iter().collect()
        };
        match self {
            Self::Default | Self::Each => first(),
            Self::All | Self::First
                if of_kind().any(|track| !track.id.is_derived() && fit(track) == best) =>
            {
                of_kind().map(|track| track.id).filter(|id| !id.is_derived()).collect()
            }
            Self::All | Self::First => first(),
            Self::None => TrackSet::EMPTY,
            Self::Only(id) => of_kind().map(|track| track.id).filter(|carried| *carried == id).collect(),
        }
    }
}

/// The rule by which a subscriber's tracks are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Selection {
    /// Rule for video tracks.
    pub video: Pick,
    /// Rule for audio tracks.
    pub audio: Pick,
    /// Rule for data tracks.
    pub data: Pick,
    /// True if the subscriber wants silence when the stream has no audio. Silence is sent if the application offers it.
    pub silence: bool,
}

impl Selection {
    /// The default track of each kind.
    pub const DEFAULT: Self =
        Self { video: Pick::Default, audio: Pick::Default, data: Pick::Default, silence: false };
    /// The default track of each kind of each member.
    pub const EACH: Self = Self { video: Pick::Each, audio: Pick::Each, data: Pick::Default, silence: false };
    /// Selects every published track.
    pub const ALL: Self = Self { video: Pick::All, audio: Pick::All, data: Pick::All, silence: false };

    /// Returns the member whose video and audio are sent if those of only one member are: the one whose video is
    /// selected by its id, else the first one whose video the format carries best, else the first such one by audio.
    /// `None` if the stream has no members.
    fn lead(self, tracks: &Tracks, fit: &dyn Fn(&Track) -> Fit) -> Option<u8> {
        if let Pick::Only(id) = self.video
            && let Some(video) = tracks.get(id)
        {
            return video.member_number();
        }
        let first = |kind, is_candidate: &dyn Fn(u8) -> bool| {
            let fitting = tracks.of_kind(kind).filter(|track| !track.is_stand_in() && fit(track) != Fit::No);
            let fitting = fitting.filter(|track| track.member_number().is_some_and(is_candidate));
            let ranked = fitting.map(|track| (std::cmp::Reverse(fit(track)), track.member_number()));
            ranked.min().and_then(|(_, number)| number)
        };
        let has_audio = |number| first(TrackKind::Audio, &|other| other == number).is_some();
        // Without video, a member without audio would be nothing.
        let with_video = first(TrackKind::Video, &|number| self.video != Pick::None || has_audio(number));
        with_video.or_else(|| first(TrackKind::Audio, &|_| true))
    }

    /// Selects one track and nothing else.
    #[must_use]
    pub const fn only(kind: TrackKind, id: TrackId) -> Self {
        let mut selection = Self { video: Pick::None, audio: Pick::None, data: Pick::None, silence: false };
        match kind {
            TrackKind::Video => selection.video = Pick::Only(id),
            TrackKind::Audio => selection.audio = Pick::Only(id),
            TrackKind::Data => selection.data = Pick::Only(id),
        }
        selection
    }
}

/// The tracks that a selection currently resolves to.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    tracks: Arc<Tracks>,
    set: TrackSet,
    videos: TrackSet,
    lead: Option<TrackId>,
    epoch: u32,
}

impl Chosen {
    /// Resolves the selection against `tracks`. If the id or configuration of a chosen track changes, a new
    /// [`Chosen::epoch`] begins. Changes of other tracks have no effect. Returns true if the set of chosen tracks has
    /// changed.
    pub fn update(
        &mut self,
        selection: Selection,
        tracks: &Arc<Tracks>,
        fit: &dyn Fn(&Track) -> Fit,
    ) -> bool {
        let lead = selection.lead(tracks, fit);
        let videos = selection.video.choose(TrackKind::Video, lead, tracks, fit);
        let audios = match selection.audio.choose(TrackKind::Audio, lead, tracks, fit) {
            TrackSet::EMPTY if selection.silence && selection.audio != Pick::None => {
                let stand_in = tracks.of_kind(TrackKind::Audio).find(|track| track.is_stand_in());
                stand_in.filter(|track| fit(track) != Fit::No).map(|track| track.id).into_iter().collect()
            }
            audios => audios,
        };
        let set = videos.or(audios).or(data_tracks(selection.data));
        let is_same = |id| {
            let epoch = |tracks: &Tracks| tracks.get(id).map(|track| track.epoch);
            epoch(tracks) == epoch(&self.tracks)
        };
        let other_set = set != self.set;
        if self.epoch == 0 || other_set || !videos.or(audios).iter().all(is_same) {
            self.epoch = self.epoch.wrapping_add(1).max(1);
        }
        self.tracks = Arc::clone(tracks);
        (self.set, self.videos, self.lead) = (set, videos, videos.iter().next());
        other_set
    }

    /// All tracks of the stream, as last seen.
    #[must_use]
    pub const fn all(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// Returns the chosen tracks of a kind, lowest id first.
    pub fn of_kind(&self, kind: TrackKind) -> impl Iterator<Item = &Track> {
        self.tracks.of_kind(kind).filter(|track| self.set.contains(track.id))
    }

    /// Returns the chosen tracks, video first.
    pub fn iter(&self) -> impl Iterator<Item = &Track> {
        self.of_kind(TrackKind::Video).chain(self.of_kind(TrackKind::Audio))
    }

    /// True if units of this track are sent.
    #[must_use]
    pub const fn contains(&self, id: TrackId) -> bool {
        self.set.contains(id)
    }

    /// True if the track is the first chosen one of its kind: that of the member with the lowest number, else that with
    /// the lowest id.
    #[must_use]
    pub fn is_first(&self, track: &Track) -> bool {
        let first = self.of_kind(track.kind()).min_by_key(|one| one.member_number());
        first.is_some_and(|first| first.id == track.id)
    }

    /// Returns the chosen tracks as a set. Data tracks are not announced, so the set contains all data tracks that the
    /// selection allows, whether or not they exist.
    #[must_use]
    pub const fn set(&self) -> TrackSet {
        self.set
    }

    /// The chosen video tracks.
    #[must_use]
    pub const fn videos(&self) -> TrackSet {
        self.videos
    }

    /// The video track at whose key frames a subscriber starts; `None` if a subscriber can start at any unit.
    #[must_use]
    pub const fn lead(&self) -> Option<TrackId> {
        self.lead
    }

    /// Number of times that the chosen tracks have changed, including the first choice.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }
}

#[cfg(test)]
impl Chosen {
    /// Chooses all of these tracks.
    pub(crate) fn all_of(tracks: &Arc<Tracks>) -> Self {
        let mut chosen = Self::default();
        chosen.update(Selection::ALL, tracks, &|_| Fit::Well);
        chosen
    }
}

/// Returns the set of data tracks that a rule selects. Data tracks are not announced, so the set has all ids that are
/// possible.
fn data_tracks(pick: Pick) -> TrackSet {
    match pick {
        Pick::Default | Pick::Each => TrackSet::of(TrackId::DATA).with(TrackId::MESSAGES),
        Pick::All | Pick::First => (0..).map_while(|n| TrackId::nth(TrackKind::Data, n)).collect(),
        Pick::None => TrackSet::EMPTY,
        Pick::Only(id) => TrackSet::of(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::codec::{g711, vp8};
    use media::{CodecConfig, Origin, Timescale};

    fn video(n: u8) -> Track {
        let config = CodecConfig::Vp8(vp8::Config::default());
        Track::new(TrackId::nth(TrackKind::Video, n).unwrap(), config, Timescale::MILLISECONDS)
    }

    fn audio(n: u8) -> Track {
        let config = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
        Track::new(TrackId::nth(TrackKind::Audio, n).unwrap(), config, Timescale::MILLISECONDS)
    }

    fn derived() -> Track {
        let config = CodecConfig::G711(g711::Config { law: g711::Law::Mu, channels: 1 });
        let origin = Origin::Derived { from: TrackId::AUDIO };
        Track { id: TrackId::DERIVED, config, origin, ..audio(0) }
    }

    fn ids(selection: Selection, tracks: &Arc<Tracks>, fit: &dyn Fn(&Track) -> Fit) -> Vec<TrackId> {
        let mut chosen = Chosen::default();
        chosen.update(selection, tracks, fit);
        chosen.iter().map(|track| track.id).collect()
    }

    #[test]
    fn picks_choose_among_what_the_format_carries() {
        let tracks = Arc::new(Tracks::new(1, [video(0), video(1), audio(0), audio(1), derived()]));
        let all = |_: &Track| Fit::Well;
        let id = |kind, n| TrackId::nth(kind, n).unwrap();
        let (v0, v1) = (id(TrackKind::Video, 0), id(TrackKind::Video, 1));
        let (a0, a1) = (id(TrackKind::Audio, 0), id(TrackKind::Audio, 1));
        assert_eq!(ids(Selection::DEFAULT, &tracks, &all), [v0, a0]);
        assert_eq!(ids(Selection::ALL, &tracks, &all), [v0, v1, a0, a1]);
        let mixed =
            Selection { audio: Pick::None, data: Pick::None, video: Pick::Only(v1), ..Selection::DEFAULT };
        assert_eq!(ids(mixed, &tracks, &all), [v1]);
        assert_eq!(ids(Selection::only(TrackKind::Audio, a1), &tracks, &all), [a1]);
        assert!(ids(Selection::only(TrackKind::Video, id(TrackKind::Video, 9)), &tracks, &all).is_empty());
        // A subscriber of a format that cannot carry the published audio gets the derived track.
        let carries = |track: &Track| Fit::of(track.kind() == TrackKind::Video || track.id.is_derived());
        assert_eq!(ids(Selection::DEFAULT, &tracks, &carries), [v0, TrackId::DERIVED]);
        assert_eq!(ids(Selection::ALL, &tracks, &carries), [v0, v1, TrackId::DERIVED]);
    }

    #[test]
    fn each_member_of_a_stream_has_a_default_track_of_each_kind() {
        let of = |number, track: Track| {
            let member = Some(media::Member { number, name: number.to_string().into() });
            Track { member, ..track }
        };
        let from = TrackId::nth(TrackKind::Audio, 1).unwrap();
        let other = Track { origin: Origin::Derived { from }, ..derived() };
        let list = [of(0, video(0)), of(0, audio(0)), of(1, video(1)), of(1, audio(1)), of(1, other)];
        let tracks = Arc::new(Tracks::new(1, list));
        let id = |kind, n| TrackId::nth(kind, n).unwrap();
        let (v0, v1) = (id(TrackKind::Video, 0), id(TrackKind::Video, 1));
        let (a0, a1) = (id(TrackKind::Audio, 0), id(TrackKind::Audio, 1));
        let all = |_: &Track| Fit::Well;
        assert_eq!(ids(Selection::EACH, &tracks, &all), [v0, v1, a0, a1]);
        assert_eq!(ids(Selection::DEFAULT, &tracks, &all), [v0, a0]);
        // A track of one member that the format cannot carry is replaced; the other member keeps its own.
        let fit = |track: &Track| Fit::of(track.id != a1);
        for selection in [Selection::EACH, Selection::ALL] {
            assert_eq!(ids(selection, &tracks, &fit), [v0, v1, a0, TrackId::DERIVED]);
        }
        let first = Selection { video: Pick::First, ..Selection::ALL };
        assert_eq!(ids(first, &tracks, &all), [v0, a0, a1]);
        let alone = Arc::new(Tracks::new(1, [video(0), video(1), audio(0)]));
        assert_eq!(ids(Selection::EACH, &alone, &all), [v0, a0]);
        assert_eq!(ids(first, &alone, &all), [v0, v1, a0]);
    }

    #[test]
    fn one_member_gives_both_the_video_and_the_audio() {
        let of = |number, track: Track| {
            let member = Some(media::Member { number, name: number.to_string().into() });
            Track { member, ..track }
        };
        let id = |kind, n| TrackId::nth(kind, n).unwrap();
        let (v0, v1) = (id(TrackKind::Video, 0), id(TrackKind::Video, 1));
        let (a0, a1) = (id(TrackKind::Audio, 0), id(TrackKind::Audio, 1));
        let first = Selection { video: Pick::First, ..Selection::DEFAULT };
        let other = Track { origin: Origin::Derived { from: a0 }, ..derived() };
        let list = [of(0, video(0)), of(0, audio(0)), of(1, video(1)), of(1, audio(1)), of(0, other)];
        let both = Arc::new(Tracks::new(1, list));
        // The format carries the published audio of the second member only.
        let fit = |track: &Track| Fit::of(track.id != a0);
        for selection in [Selection::DEFAULT, first] {
            assert_eq!(ids(selection, &both, &fit), [v0, TrackId::DERIVED]);
        }
        let second = Selection { video: Pick::Only(v1), ..Selection::DEFAULT };
        assert_eq!(ids(second, &both, &fit), [v1, a1]);
        let sound = Selection { video: Pick::None, ..Selection::DEFAULT };
        assert_eq!(ids(sound, &both, &fit), [TrackId::DERIVED]);
        let all = |_: &Track| Fit::Well;
        let of_audio = Arc::new(Tracks::new(1, [of(0, audio(0)), of(1, video(1)), of(1, audio(1))]));
        assert_eq!(ids(Selection::DEFAULT, &of_audio, &all), [v1, a1]);
        let of_video = Arc::new(Tracks::new(1, [of(0, video(0)), of(1, audio(1))]));
        assert_eq!(ids(Selection::DEFAULT, &of_video, &all), [v0], "not the audio of the other one");
        assert_eq!(ids(sound, &of_video, &all), [a1]);
    }

    #[test]
    fn the_first_track_of_a_kind_is_that_of_the_first_member() {
        let of = |number, track: Track| {
            let member = Some(media::Member { number, name: number.to_string().into() });
            Track { member, ..track }
        };
        let tracks = Arc::new(Tracks::new(1, [of(1, audio(1)), of(0, derived())]));
        let chosen = Chosen::all_of(&tracks);
        let firsts: Vec<TrackId> =
            chosen.iter().filter(|track| chosen.is_first(track)).map(|track| track.id).collect();
        assert_eq!(firsts, [TrackId::DERIVED]);
    }

    #[test]
    fn what_most_players_know_comes_before_what_few_do() {
        let tracks = Arc::new(Tracks::new(1, [video(0), audio(0), derived()]));
        let fit = |track: &Track| if track.id == TrackId::AUDIO { Fit::Rarely } else { Fit::Well };
        let [v0, a0] = [TrackKind::Video, TrackKind::Audio].map(|kind| TrackId::nth(kind, 0).unwrap());
        assert_eq!(ids(Selection::DEFAULT, &tracks, &fit), [v0, TrackId::DERIVED]);
        assert_eq!(ids(Selection::ALL, &tracks, &fit), [v0, TrackId::DERIVED]);
        assert_eq!(ids(Selection::only(TrackKind::Audio, a0), &tracks, &fit), [a0]);
        // If there is no better track, the track that is rarely supported is chosen.
        let alone = Arc::new(Tracks::new(1, [video(0), audio(0)]));
        assert_eq!(ids(Selection::DEFAULT, &alone, &fit), [v0, a0]);
        // If any published track is widely supported, all published tracks are sent.
        let two = Arc::new(Tracks::new(1, [audio(0), audio(1), derived()]));
        assert_eq!(ids(Selection::ALL, &two, &fit).len(), 2);
    }

    #[test]
    fn silence_is_sent_to_who_asks_for_it_where_there_is_no_audio() {
        let silence = Track { origin: Origin::StandIn { from: TrackId::VIDEO }, ..derived() };
        let all = |_: &Track| Fit::Well;
        let wants = Selection { silence: true, ..Selection::DEFAULT };
        let mute = Arc::new(Tracks::new(1, [video(0), silence.clone()]));
        assert_eq!(ids(wants, &mute, &all), [TrackId::VIDEO, TrackId::DERIVED]);
        assert_eq!(ids(Selection::DEFAULT, &mute, &all), [TrackId::VIDEO]);
        assert_eq!(ids(Selection { audio: Pick::None, ..wants }, &mute, &all), [TrackId::VIDEO]);
        assert_eq!(ids(wants, &mute, &|track| Fit::of(!track.id.is_derived())), [TrackId::VIDEO]);
        let loud = Arc::new(Tracks::new(1, [video(0), audio(0), silence]));
        assert_eq!(ids(wants, &loud, &all), [TrackId::VIDEO, TrackId::AUDIO]);
    }

    #[test]
    fn of_renditions_the_largest_is_the_default() {
        let rendition = |n: u8, group, height| {
            let rendition = media::Rendition { group, width: height * 2, height, bit_rate: 0 };
            Track { rendition: Some(rendition), ..video(n) }
        };
        let chosen =
            |tracks: [Track; 3]| ids(Selection::DEFAULT, &Arc::new(Tracks::new(1, tracks)), &|_| Fit::Well);
        let [v0, v1] = [0, 1].map(|n| TrackId::nth(TrackKind::Video, n).unwrap());
        assert_eq!(chosen([rendition(0, 1, 360), rendition(1, 1, 720), rendition(2, 2, 1080)]), [v1]);
        assert_eq!(chosen([rendition(0, 0, 360), rendition(1, 0, 720), rendition(2, 1, 1080)]), [v0]);
        assert_eq!(chosen([video(0), rendition(1, 1, 720), rendition(2, 1, 1080)]), [v0]);
    }

    #[test]
    fn what_is_left_out_changes_no_epoch() {
        let all = |_: &Track| Fit::Well;
        let mut chosen = Chosen::default();
        assert_eq!(chosen.epoch(), 0);
        chosen.update(Selection::DEFAULT, &Arc::new(Tracks::new(1, [video(0)])), &all);
        assert_eq!(chosen.epoch(), 1);
        let more = Arc::new(Tracks::new(2, [video(0), video(1)]));
        assert!(!chosen.update(Selection::DEFAULT, &more, &all));
        assert_eq!(chosen.epoch(), 1);
        let other = Arc::new(Tracks::new(3, [Track { epoch: 3, ..video(0) }, video(1)]));
        assert!(!chosen.update(Selection::DEFAULT, &other, &all));
        assert_eq!(chosen.epoch(), 2);
        assert!(chosen.update(Selection::ALL, &other, &all));
        assert_eq!((chosen.epoch(), chosen.lead()), (3, Some(TrackId::VIDEO)));
    }
}
