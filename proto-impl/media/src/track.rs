//! Elementary streams (tracks), and the list of tracks in a live stream.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::captions::Services;
use crate::{AccessUnit, CodecConfig, Timescale};

/// Maximum number of tracks of a stream. Further tracks are dropped.
pub const TRACKS_MAX: usize = 16;

/// Identifies a track within its stream. Track ids are stable for the life of the stream.
///
/// A published track has a number within its kind: track `n` of a kind has the id `3 n + kind`. Ids of derived tracks
/// begin at [`TrackId::DERIVED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(u8);

impl TrackId {
    /// The video track of a stream with one track of each kind.
    pub const VIDEO: Self = Self(0);
    /// The audio track of a stream with one track of each kind.
    pub const AUDIO: Self = Self(1);
    /// The data track of script data (onMetaData and other AMF0 values).
    pub const DATA: Self = Self(2);
    /// The data track of timed metadata ([`crate::id3`]), with times in milliseconds.
    pub const METADATA: Self = Self(5);
    /// The data track of splice information ([`crate::scte35`]), with times in milliseconds. PTS is the time
    /// of the splice.
    pub const CUES: Self = Self(8);
    /// The data track of subtitles ([`crate::subtitles`]), with times in milliseconds. PTS is the time at which a
    /// cue appears.
    pub const SUBTITLES: Self = Self(11);
    /// The data track of messages of data channels ([`crate::message`]), with times in milliseconds.
    pub const MESSAGES: Self = Self(14);
    /// The first derived track.
    pub const DERIVED: Self = Self(48);
    /// Ids are below this number.
    const END: u8 = 96;

    /// Returns the id of published track `n` of a kind. `None` if `n` is too large.
    #[must_use]
    pub const fn nth(kind: TrackKind, n: u8) -> Option<Self> {
        if n >= Self::DERIVED.0 / 3 {
            return None;
        }
        Some(Self(n * 3 + kind as u8))
    }

    /// Returns the id of derived track `n`. `None` if `n` is too large.
    #[must_use]
    pub const fn derived(n: u8) -> Option<Self> {
        if n >= Self::END - Self::DERIVED.0 {
            return None;
        }
        Some(Self(Self::DERIVED.0 + n))
    }

    /// Returns the index among the published tracks of its kind; 0 for derived ones.
    #[must_use]
    pub const fn index(self) -> u8 {
        if self.is_derived() { 0 } else { self.0 / 3 }
    }

    /// Returns the id with a number from [`TrackId::number`]. `None` if invalid.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if number < Self::END { Some(Self(number)) } else { None }
    }

    /// The id as a number below 96.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// True if this server makes the track from another one.
    #[must_use]
    pub const fn is_derived(self) -> bool {
        self.0 >= Self::DERIVED.0
    }

    /// True if the id belongs to a published data track.
    #[must_use]
    pub const fn is_data(self) -> bool {
        !self.is_derived() && self.0 % 3 == TrackKind::Data as u8
    }
}

/// A set of track ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TrackSet(u128);

impl TrackSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns a set of one track.
    #[must_use]
    pub const fn of(id: TrackId) -> Self {
        Self(1 << id.0)
    }

    /// True if the set contains the track.
    #[must_use]
    pub const fn contains(self, id: TrackId) -> bool {
        self.0 & Self::of(id).0 != 0
    }

    /// Returns the set with `id` added.
    #[must_use]
    pub const fn with(self, id: TrackId) -> Self {
        self.or(Self::of(id))
    }

    /// Returns the set with `id` removed.
    #[must_use]
    pub const fn without(self, id: TrackId) -> Self {
        self.without_all(Self::of(id))
    }

    /// Returns the set without the tracks of `other`.
    #[must_use]
    pub const fn without_all(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of tracks.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Iterates over the tracks, lowest id first.
    pub fn iter(self) -> impl Iterator<Item = TrackId> {
        (0..TrackId::END).map(TrackId).filter(move |id| self.contains(*id))
    }
}

impl FromIterator<TrackId> for TrackSet {
    fn from_iter<I: IntoIterator<Item = TrackId>>(ids: I) -> Self {
        ids.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// The kind of media that a track carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrackKind {
    /// Video.
    Video = 0,
    /// Audio.
    Audio = 1,
    /// Timed data.
    Data = 2,
}

/// The origin of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Sent by the publisher.
    Published,
    /// Made by this server from another track, while a subscriber selects it.
    Derived {
        /// Source track of the derived track.
        from: TrackId,
    },
    /// Made by this server while a subscriber requires a track of this kind and the stream has none.
    StandIn {
        /// Track whose timestamps the stand-in follows.
        from: TrackId,
    },
}

impl Origin {
    /// Returns the source track of a derived track, or the track whose timestamps a stand-in follows. `None` for a
    /// published track.
    #[must_use]
    pub const fn from(self) -> Option<TrackId> {
        match self {
            Self::Published => None,
            Self::Derived { from } | Self::StandIn { from } => Some(from),
        }
    }
}

/// A rendition: one of several tracks with the same content, such as a simulcast layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendition {
    /// Group of the track: tracks of one group have the same content. 0 if unknown.
    pub group: u8,
    /// Width in pixels; 0 when unknown.
    pub width: u32,
    /// Height in pixels; 0 when unknown.
    pub height: u32,
    /// Announced bits per second; 0 when unknown.
    pub bit_rate: u32,
}

impl Rendition {
    /// Returns a key that orders renditions by size: pixels, then bits per second.
    #[must_use]
    pub fn size(&self) -> (u64, u32) {
        (u64::from(self.width).saturating_mul(self.height.into()), self.bit_rate)
    }
}

/// A member of a stream that several sources share, such as a participant of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Number of the member, below [`TRACKS_MAX`]. Tracks with the same number belong together.
    pub number: u8,
    /// Human-readable name.
    pub name: Arc<str>,
}

/// An elementary stream with its codec configuration and timescale.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Id within the stream.
    pub id: TrackId,
    /// Codec and parameter sets of the track.
    pub config: CodecConfig,
    /// Number of changes of `config`, `extra` and `language` since the stream began.
    pub epoch: u32,
    /// Timescale of the timestamps.
    pub timescale: Timescale,
    /// Additional information of Enhanced RTMP about the track, as last received: for video the body of its Metadata
    /// (colour and HDR), for audio that of its MultichannelConfig. Only forwarded in FLV.
    pub extra: Option<Bytes>,
    /// Human-readable name.
    pub label: Option<Arc<str>>,
    /// Language, as a BCP 47 tag.
    pub language: Option<Arc<str>>,
    /// Closed captions within the video that the publisher announces.
    pub captions: Services,
    /// Rendition; `None` if the content has only one.
    pub rendition: Option<Rendition>,
    /// Origin of the track.
    pub origin: Origin,
    /// The member of the stream to which the track belongs; `None` if the stream has no members.
    pub member: Option<Member>,
}

impl Track {
    /// Creates a published track; everything but its configuration is unknown.
    #[must_use]
    pub const fn new(id: TrackId, config: CodecConfig, timescale: Timescale) -> Self {
        Self {
            id,
            config,
            epoch: 0,
            timescale,
            extra: None,
            label: None,
            language: None,
            captions: Services::NONE,
            rendition: None,
            origin: Origin::Published,
            member: None,
        }
    }

    /// Number of the member to which the track belongs.
    #[must_use]
    pub fn member_number(&self) -> Option<u8> {
        self.member.as_ref().map(|member| member.number)
    }

    /// Number of the track among those of its kind, for formats that number their tracks: that of its member, else the
    /// index of its id.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.member_number().unwrap_or_else(|| self.id.index())
    }

    /// True if this server made the track because the publisher sends none of its kind.
    #[must_use]
    pub const fn is_stand_in(&self) -> bool {
        matches!(self.origin, Origin::StandIn { .. })
    }

    /// Kind of media of the track.
    #[must_use]
    pub const fn kind(&self) -> TrackKind {
        self.config.codec().kind()
    }

    /// Returns width and height of the pictures, from the configuration or else from the rendition. One of several
    /// renditions may be a spatial layer, whose configuration states the size of the top layer.
    #[must_use]
    pub fn picture_size(&self) -> Option<(u32, u32)> {
        let told = || {
            let rendition = self.rendition.as_ref().filter(|one| one.width > 0 && one.height > 0)?;
            Some((rendition.width, rendition.height))
        };
        let is_one_of_several = self.rendition.as_ref().is_some_and(|one| one.group != 0);
        let of_group = if is_one_of_several { told() } else { None };
        of_group.or_else(|| self.config.picture_size()).or_else(told)
    }

    /// Returns the duration of a unit in ticks of the track's timescale; known for audio with a fixed or signalled
    /// frame length.
    #[must_use]
    pub fn duration_of(&self, unit: &AccessUnit) -> Option<i64> {
        let (samples, rate) = self.config.samples_of(&unit.payload)?;
        let ticks = i128::from(samples) * i128::from(self.timescale.ticks());
        i64::try_from(ticks.checked_div(i128::from(rate))?).ok()
    }

    /// Returns the number of bytes that the parameter sets take.
    fn bytes(&self) -> usize {
        self.config.record().len() + self.extra.as_ref().map_or(0, Bytes::len)
    }
}

/// The tracks of a stream at one time. Every change creates a new value with the next epoch. A unit names the epoch of
/// the configuration that decodes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tracks {
    /// Number of changes since the stream began; 0 means that nothing is known yet.
    pub epoch: u32,
    /// Tracks ordered by id.
    list: Vec<Track>,
    /// Last onMetaData of the publisher (AMF0 values after the name), forwarded unchanged from FLV to FLV.
    pub metadata: Option<Bytes>,
}

impl Tracks {
    /// Creates a list of these tracks with this epoch.
    #[must_use]
    pub fn new(epoch: u32, tracks: impl IntoIterator<Item = Track>) -> Self {
        let mut new = Self { epoch, ..Self::default() };
        for track in tracks {
            new.put(track);
        }
        new
    }

    /// Returns the track with this id.
    #[must_use]
    pub fn get(&self, id: TrackId) -> Option<&Track> {
        self.list.iter().find(|track| track.id == id)
    }

    /// Returns the track with this id for changes.
    pub fn get_mut(&mut self, id: TrackId) -> Option<&mut Track> {
        self.list.iter_mut().find(|track| track.id == id)
    }

    /// Iterates over all tracks by rising id.
    pub fn iter(&self) -> core::slice::Iter<'_, Track> {
        self.list.iter()
    }

    /// Iterates over the tracks of one kind by rising id.
    pub fn of_kind(&self, kind: TrackKind) -> impl Iterator<Item = &Track> {
        self.list.iter().filter(move |track| track.kind() == kind)
    }

    /// Returns the default track of a kind: the published one with the lowest id, or its largest rendition.
    #[must_use]
    pub fn default_of(&self, kind: TrackKind) -> Option<&Track> {
        Self::preferred(self.list.iter().filter(|track| track.kind() == kind && !track.id.is_derived()))
    }

    /// Returns the default video track.
    #[must_use]
    pub fn video(&self) -> Option<&Track> {
        self.default_of(TrackKind::Video)
    }

    /// Returns the default audio track.
    #[must_use]
    pub fn audio(&self) -> Option<&Track> {
        self.default_of(TrackKind::Audio)
    }

    /// Adds a track, or replaces the track with the same id. Returns false if the track is new and published, and there
    /// are [`TRACKS_MAX`] published ones already. Derived tracks are bounded by their ids.
    pub fn put(&mut self, track: Track) -> bool {
        match self.list.binary_search_by_key(&track.id, |track| track.id) {
            Ok(at) => {
                if let Some(slot) = self.list.get_mut(at) {
                    *slot = track;
                }
            }
            Err(_) if !track.id.is_derived() && self.published() >= TRACKS_MAX => return false,
            Err(at) => self.list.insert(at, track),
        }
        true
    }

    /// Number of tracks that are not derived.
    fn published(&self) -> usize {
        self.list.iter().filter(|track| !track.id.is_derived()).count()
    }

    /// Keeps only the tracks that `keep` accepts.
    pub fn retain(&mut self, keep: impl FnMut(&Track) -> bool) {
        self.list.retain(keep);
    }

    /// Returns the number of bytes that parameter sets and metadata take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tracks: usize = self.list.iter().map(Track::bytes).sum();
        tracks + self.metadata.as_ref().map_or(0, Bytes::len)
    }

    /// Chooses one of several tracks: the first, or the largest track in the group of the first.
    pub fn preferred<'a>(tracks: impl Iterator<Item = &'a Track> + Clone) -> Option<&'a Track> {
        let first = tracks.clone().next()?;
        let group = |track: &Track| track.rendition.as_ref().map_or(0, |rendition| rendition.group);
        let shown = group(first);
        if shown == 0 {
            return Some(first);
        }
        let size = |track: &Track| track.rendition.as_ref().map(Rendition::size);
        tracks
            .filter(|track| group(track) == shown)
            .reduce(|best, track| if size(track) > size(best) { track } else { best })
    }

    /// True if no track is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{aac, g711, mp3, opus, vp8};

    fn video(n: u8) -> Track {
        let config = CodecConfig::Vp8(vp8::Config::default());
        Track::new(TrackId::nth(TrackKind::Video, n).unwrap(), config, Timescale::MILLISECONDS)
    }

    fn unit(track: TrackId, payload: &'static [u8]) -> AccessUnit {
        let payload = Bytes::from_static(payload);
        AccessUnit { track, dts: 0, pts: 0, key_frame: false, config_epoch: 0, payload }
    }

    #[test]
    fn ids_are_numbered_within_their_kind_and_derived_ones_stand_apart() {
        assert_eq!(TrackId::nth(TrackKind::Video, 0), Some(TrackId::VIDEO));
        assert_eq!(TrackId::nth(TrackKind::Audio, 0), Some(TrackId::AUDIO));
        assert_eq!(TrackId::nth(TrackKind::Data, 0), Some(TrackId::DATA));
        assert_eq!(TrackId::nth(TrackKind::Data, 1), Some(TrackId::METADATA));
        assert_eq!(TrackId::nth(TrackKind::Data, 2), Some(TrackId::CUES));
        assert_eq!(TrackId::nth(TrackKind::Data, 4), Some(TrackId::MESSAGES));
        assert_eq!(TrackId::nth(TrackKind::Data, 3), Some(TrackId::SUBTITLES));
        let last = TrackId::nth(TrackKind::Data, 15).unwrap();
        assert!(!last.is_derived() && last.is_data() && last.index() == 15);
        assert_eq!(TrackId::nth(TrackKind::Video, 16), None);
        assert_eq!(TrackId::derived(0), Some(TrackId::DERIVED));
        assert!(TrackId::derived(47).unwrap().is_derived() && TrackId::derived(48).is_none());
    }

    #[test]
    fn a_set_is_what_was_put_into_it() {
        let ids = [TrackId::AUDIO, TrackId::derived(47).unwrap(), TrackId::VIDEO];
        let set: TrackSet = ids.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [TrackId::VIDEO, TrackId::AUDIO, ids[1]]);
        assert_eq!((set.len(), set.without(TrackId::AUDIO).contains(TrackId::AUDIO)), (3, false));
        assert!(set.and(TrackSet::of(TrackId::DATA)).is_empty() && !set.contains(TrackId::DATA));
    }

    #[test]
    fn m_26_tracks_per_stream_are_capped_and_known_ones_are_still_replaced() {
        let kinds = |n| [TrackKind::Video, TrackKind::Audio].map(|kind| TrackId::nth(kind, n).unwrap());
        let mut tracks = Tracks::default();
        for id in (0..8).flat_map(kinds) {
            assert!(tracks.put(Track { id, ..video(0) }));
        }
        assert_eq!(tracks.iter().count(), TRACKS_MAX);
        assert!(!tracks.put(video(9)));
        assert!(tracks.put(Track { epoch: 7, ..video(0) }));
        assert_eq!((tracks.iter().count(), tracks.get(TrackId::VIDEO).unwrap().epoch), (TRACKS_MAX, 7));
        // Derived tracks have room beside the published ones.
        assert!(tracks.put(Track { id: TrackId::DERIVED, ..video(0) }) && !tracks.put(video(9)));
    }

    #[test]
    fn the_default_track_is_the_first_whatever_came_first() {
        let mut tracks = Tracks::default();
        [2, 0, 1].into_iter().for_each(|n| assert!(tracks.put(video(n))));
        assert_eq!(tracks.video().map(|track| track.id), Some(TrackId::VIDEO));
        tracks.retain(|track| track.id != TrackId::VIDEO);
        assert_eq!(tracks.video().map(|track| track.id.index()), Some(1));
        assert!(tracks.audio().is_none());
    }

    #[test]
    fn audio_durations_are_known() {
        let aac = CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap());
        let track = Track::new(TrackId::AUDIO, aac, Timescale::new(90_000));
        assert_eq!(track.duration_of(&unit(TrackId::AUDIO, b"x")), Some(1920));
        let opus = CodecConfig::Opus(opus::Config::read(Bytes::new()).unwrap());
        let track = Track::new(TrackId::AUDIO, opus, Timescale::MILLISECONDS);
        // Configuration 31 of RFC 6716 §3.1: 20 ms, here two frames of them.
        assert_eq!(track.duration_of(&unit(TrackId::AUDIO, b"\xf9ab")), Some(40));
        let g711 = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 2 });
        let track = Track::new(TrackId::AUDIO, g711, Timescale::MILLISECONDS);
        assert_eq!(track.duration_of(&unit(TrackId::AUDIO, &[0; 320])), Some(20));
        let mp3 = CodecConfig::Mp3(mp3::Config { sample_rate: 48_000, channels: 2 });
        let track = Track::new(TrackId::AUDIO, mp3, Timescale::MILLISECONDS);
        let mut frames = [0; 768];
        [0, 384].into_iter().for_each(|at| frames[at..at + 4].copy_from_slice(&[0xff, 0xfb, 0x94, 0x64]));
        let two = AccessUnit { payload: Bytes::copy_from_slice(&frames), ..unit(TrackId::AUDIO, b"") };
        assert_eq!(
            (track.duration_of(&two), track.duration_of(&unit(TrackId::AUDIO, b"x"))),
            (Some(48), None)
        );
        assert_eq!(video(0).duration_of(&unit(TrackId::VIDEO, b"x")), None);
    }
}
