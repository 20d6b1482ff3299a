//! Elementary streams and the list of them that a live stream has.

use std::sync::Arc;

use bytes::Bytes;

use crate::{AccessUnit, CodecConfig, Timescale};

/// Tracks that a stream may have; further ones are not carried.
pub const TRACKS_MAX: usize = 16;

/// Names a track within its stream. Track ids are stable for the life of the stream.
///
/// Published tracks are numbered within their kind: track `n` of a kind has the id `3 n + kind`. Derived tracks
/// follow from [`TrackId::DERIVED`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(u8);

impl TrackId {
    /// The video track of a stream that has one of each kind.
    pub const VIDEO: Self = Self(0);
    /// The audio track of a stream that has one of each kind.
    pub const AUDIO: Self = Self(1);
    /// Timed data: onMetaData, ID3, KLV.
    pub const DATA: Self = Self(2);
    /// The first derived track.
    pub const DERIVED: Self = Self(48);
    /// Ids are below this.
    const END: u8 = 64;

    /// The published track `n` of a kind. `None`: there are not that many.
    #[must_use]
    pub const fn nth(kind: TrackKind, n: u8) -> Option<Self> {
        if n >= Self::DERIVED.0 / 3 {
            return None;
        }
        Some(Self(n * 3 + kind as u8))
    }

    /// The derived track `n`.
    #[must_use]
    pub const fn derived(n: u8) -> Option<Self> {
        if n >= Self::END - Self::DERIVED.0 {
            return None;
        }
        Some(Self(Self::DERIVED.0 + n))
    }

    /// The index among the published tracks of its kind; 0 for derived ones.
    #[must_use]
    pub const fn index(self) -> u8 {
        if self.is_derived() { 0 } else { self.0 / 3 }
    }

    /// The id of a number ([`TrackId::number`]). `None`: there is none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        if number < Self::END { Some(Self(number)) } else { None }
    }

    /// The id as a number, below 64: for formats whose fields are numbered like tracks.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whether it is made by this server from another track.
    #[must_use]
    pub const fn is_derived(self) -> bool {
        self.0 >= Self::DERIVED.0
    }

    /// Whether the id is one of a published data track.
    #[must_use]
    pub const fn is_data(self) -> bool {
        !self.is_derived() && self.0 % 3 == TrackKind::Data as u8
    }
}

/// A set of track ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TrackSet(u64);

impl TrackSet {
    /// No track.
    pub const EMPTY: Self = Self(0);

    /// A set of one track.
    #[must_use]
    pub const fn of(id: TrackId) -> Self {
        Self(1 << id.0)
    }

    /// Whether the track is in it.
    #[must_use]
    pub const fn contains(self, id: TrackId) -> bool {
        self.0 & Self::of(id).0 != 0
    }

    /// The set with `id` added.
    #[must_use]
    pub const fn with(self, id: TrackId) -> Self {
        self.or(Self::of(id))
    }

    /// The set with `id` removed.
    #[must_use]
    pub const fn without(self, id: TrackId) -> Self {
        self.without_all(Self::of(id))
    }

    /// The set without the tracks of `other`.
    #[must_use]
    pub const fn without_all(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The tracks of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The tracks of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether no track is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of tracks.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The tracks, lowest id first.
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
    /// The publisher sends it.
    Published,
    /// Derived by this server from another track, while a subscriber selects it.
    Derived {
        /// The track it is made from.
        from: TrackId,
    },
    /// Made by this server because the stream has no track of this kind, while a subscriber asks for one in any case.
    StandIn {
        /// The track whose times it has.
        from: TrackId,
    },
}

impl Origin {
    /// The track that it is made from, or in step with; `None` of a published one.
    #[must_use]
    pub const fn from(self) -> Option<TrackId> {
        match self {
            Self::Published => None,
            Self::Derived { from } | Self::StandIn { from } => Some(from),
        }
    }
}

/// A rendition of several of the same content, such as a simulcast layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendition {
    /// The group of the track: tracks of one group show the same content. 0: none is known.
    pub group: u8,
    /// Width in pixels; 0 when unknown.
    pub width: u32,
    /// Height in pixels; 0 when unknown.
    pub height: u32,
    /// Bits per second as announced; 0 when unknown.
    pub bit_rate: u32,
}

impl Rendition {
    /// Pixels, then bits per second: what tells which of two is the larger.
    #[must_use]
    pub fn size(&self) -> (u64, u32) {
        (u64::from(self.width).saturating_mul(self.height.into()), self.bit_rate)
    }
}

/// An elementary stream: its codec configuration and its timescale.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Index within the stream.
    pub id: TrackId,
    /// Codec and parameter sets.
    pub config: CodecConfig,
    /// Counts the changes of `config` and `extra` since the stream began.
    pub epoch: u32,
    /// Clock of the timestamps.
    pub timescale: Timescale,
    /// The parts of Enhanced RTMP about the track beside its parameter sets, the newest as it came: of video the body of
    /// its Metadata (colour and HDR), of audio that of its MultichannelConfig. Only FLV gives it on.
    pub extra: Option<Bytes>,
    /// A name for people.
    pub label: Option<Arc<str>>,
    /// The language, as a tag of BCP 47.
    pub language: Option<Arc<str>>,
    /// The rendition, when the content has several.
    pub rendition: Option<Rendition>,
    /// The origin of the track.
    pub origin: Origin,
}

impl Track {
    /// A published track of which no more is known than its configuration.
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
            rendition: None,
            origin: Origin::Published,
        }
    }

    /// Whether it stands in for a track that the stream does not have.
    #[must_use]
    pub const fn is_stand_in(&self) -> bool {
        matches!(self.origin, Origin::StandIn { .. })
    }

    /// The kind of media that the track carries.
    #[must_use]
    pub const fn kind(&self) -> TrackKind {
        self.config.codec().kind()
    }

    /// Width and height of its pictures: as the configuration tells, else as the rendition does.
    #[must_use]
    pub fn picture_size(&self) -> Option<(u32, u32)> {
        let told = || {
            let rendition = self.rendition.as_ref().filter(|one| one.width > 0 && one.height > 0)?;
            Some((rendition.width, rendition.height))
        };
        self.config.picture_size().or_else(told)
    }

    /// The duration of a unit in ticks of the track's timescale; known for audio with a fixed or signalled frame
    /// length.
    #[must_use]
    pub fn duration_of(&self, unit: &AccessUnit) -> Option<i64> {
        let (samples, rate) = self.config.samples_of(&unit.payload)?;
        let ticks = i128::from(samples) * i128::from(self.timescale.ticks());
        i64::try_from(ticks.checked_div(i128::from(rate))?).ok()
    }

    /// Bytes of parameter sets that it holds.
    fn bytes(&self) -> usize {
        self.config.record().len() + self.extra.as_ref().map_or(0, Bytes::len)
    }
}

/// The tracks of a stream at one time. A change of any of them makes a new value with the next epoch; units point
/// at the value that decodes them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tracks {
    /// Counts the changes since the stream began; 0 means that nothing is known yet.
    pub epoch: u32,
    /// Ordered by id.
    list: Vec<Track>,
    /// The last onMetaData as the publisher sent it (AMF0 values behind the name), FLV to FLV as it is.
    pub metadata: Option<Bytes>,
}

impl Tracks {
    /// Creates the set of these tracks with this epoch.
    #[must_use]
    pub fn new(epoch: u32, tracks: impl IntoIterator<Item = Track>) -> Self {
        let mut new = Self { epoch, ..Self::default() };
        for track in tracks {
            new.put(track);
        }
        new
    }

    /// The track with this id.
    #[must_use]
    pub fn get(&self, id: TrackId) -> Option<&Track> {
        self.list.iter().find(|track| track.id == id)
    }

    /// The track with this id, to change it.
    pub fn get_mut(&mut self, id: TrackId) -> Option<&mut Track> {
        self.list.iter_mut().find(|track| track.id == id)
    }

    /// All tracks by rising id.
    pub fn iter(&self) -> std::slice::Iter<'_, Track> {
        self.list.iter()
    }

    /// The tracks of one kind, the default one first.
    pub fn of_kind(&self, kind: TrackKind) -> impl Iterator<Item = &Track> {
        self.list.iter().filter(move |track| track.kind() == kind)
    }

    /// The default track of a kind: the published one with the lowest id, or its largest rendition.
    #[must_use]
    pub fn default_of(&self, kind: TrackKind) -> Option<&Track> {
        Self::preferred(self.list.iter().filter(|track| track.kind() == kind && !track.id.is_derived()))
    }

    /// The default video track.
    #[must_use]
    pub fn video(&self) -> Option<&Track> {
        self.default_of(TrackKind::Video)
    }

    /// The default audio track.
    #[must_use]
    pub fn audio(&self) -> Option<&Track> {
        self.default_of(TrackKind::Audio)
    }

    /// Adds a track or replaces the one with its id. `false`: there are [`TRACKS_MAX`] others already.
    pub fn put(&mut self, track: Track) -> bool {
        match self.list.binary_search_by_key(&track.id, |track| track.id) {
            Ok(at) => {
                if let Some(slot) = self.list.get_mut(at) {
                    *slot = track;
                }
            }
            Err(_) if self.list.len() >= TRACKS_MAX => return false,
            Err(at) => self.list.insert(at, track),
        }
        true
    }

    /// Keeps the tracks of which this is true.
    pub fn retain(&mut self, keep: impl FnMut(&Track) -> bool) {
        self.list.retain(keep);
    }

    /// Bytes of parameter sets and metadata that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tracks: usize = self.list.iter().map(Track::bytes).sum();
        tracks + self.metadata.as_ref().map_or(0, Bytes::len)
    }

    /// The track of several of one kind that is sent if one is wanted: the first, or the largest that shows what the first
    /// one shows.
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

    /// Whether no track is known.
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
        let last = TrackId::nth(TrackKind::Data, 15).unwrap();
        assert!(!last.is_derived() && last.is_data() && last.index() == 15);
        assert_eq!(TrackId::nth(TrackKind::Video, 16), None);
        assert_eq!(TrackId::derived(0), Some(TrackId::DERIVED));
        assert!(TrackId::derived(15).unwrap().is_derived() && TrackId::derived(16).is_none());
    }

    #[test]
    fn a_set_is_what_was_put_into_it() {
        let ids = [TrackId::AUDIO, TrackId::derived(15).unwrap(), TrackId::VIDEO];
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
