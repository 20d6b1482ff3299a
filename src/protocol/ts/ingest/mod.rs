//! Converts MPEG-TS packets to access units.
//!
//! The video and audio streams of the first program are supported, the first of each kind as the default track; other
//! streams are counted. Times stay in 90 kHz. Parameter sets, delimiters and filler are removed from access units (SEI
//! stays): parameter sets become the track's configuration, and a new configuration begins an epoch.
//!
//! A stream with video begins with a key frame: units before it are dropped, audio too, because the tables have
//! announced video. If no key frame arrives for [`VIDEO_WAIT`], audio continues alone.
//!
//! The first units wait until all announced streams are known, at most [`START_WAIT`]: muxers put a quarter of a second
//! of audio into a PES packet, and a player to which only video was announced may never request audio.

mod audio;
mod video;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use media::captions::Services;
use media::{
    AccessUnit, ClockNews, CodecConfig, Timeline, Track, TrackId, TrackKind, TrackSet, Tracks, id3, scte35,
};
use mpegts::{CLOCK_BITS, CLOCK_MASK, Demuxer, Event, Pes, Pmt, Stream, StreamKind, ZERO};

use self::audio::Audio;
use self::video::Video;
use super::{BAD_FRAME, TICKS};
use crate::mail::Grant;
use crate::protocol::cue_rate::CueRate;
use crate::protocol::usable::Supply;

/// Maximum time that audio waits for announced video, in ticks: 3 s.
const VIDEO_WAIT: u64 = 3 * 90_000;
/// Maximum time that the first units wait for other tracks, in ticks: 1 s.
const START_WAIT: i64 = 90_000;
/// Maximum bytes of waiting units.
const START_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum accepted difference of PTS and DTS in ticks: 60 s.
const COMPOSITION_MAX: u64 = 60 * 90_000;
/// Maximum number of units that wait to be polled, more than any sane input of one call makes.
const QUEUE_MAX: usize = 1024;

/// Counters of one publisher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Counters of the demultiplexer, including unsupported streams.
    pub(crate) demux: mpegts::Stats,
    /// Number of units that arrived too early: before their parameter sets, or before the first key frame.
    pub(crate) dropped: u64,
    /// Number of malformed frames, and of frames of unsupported codecs.
    pub(crate) bad: u64,
}

/// An audio or video frame with the publisher's times.
#[derive(Debug)]
struct Frame {
    dts: u64,
    pts: u64,
    key: bool,
    payload: Bytes,
}

/// The result of one packet of an elementary stream.
#[derive(Debug)]
enum Made {
    /// A new configuration, for the frames that follow.
    Config(CodecConfig),
    /// A frame.
    Frame(Frame),
    /// A malformed part.
    Bad,
    /// A part of a codec that is not carried, with its name.
    NotCarried(&'static str),
    /// A part that cannot be used, because its configuration or its time is not known.
    Early,
}

/// An elementary stream of the program.
#[derive(Debug)]
struct Elementary {
    id: TrackId,
    language: Option<Arc<str>>,
    /// Closed captions within the video, as the program map announces them.
    captions: Services,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Video(Box<Video>),
    Audio(Box<Audio>),
}

impl Reader {
    /// Makes the reader of a stream; `None` if its codec is not supported.
    fn new(stream: Stream) -> Option<(TrackKind, Self)> {
        if stream.kind.is_video() {
            return Some((TrackKind::Video, Self::Video(Box::new(Video::new(stream)?))));
        }
        stream.kind.is_audio().then(|| (TrackKind::Audio, Self::Audio(Box::new(Audio::new(stream)))))
    }

    fn stream(&self) -> Stream {
        match self {
            Self::Video(video) => video.stream(),
            Self::Audio(audio) => audio.stream(),
        }
    }
}

/// Data beside audio and video.
#[derive(Debug)]
struct Beside {
    /// The stream of timed metadata, if there is one.
    metadata: Option<Stream>,
    cues: CueRate,
}

/// The frames that cannot be used.
#[derive(Debug, Default)]
struct BadFrames {
    count: u64,
    /// The fault of the first one.
    first: Option<&'static str>,
}

impl BadFrames {
    fn note(&mut self, fault: &'static str) {
        self.count = self.count.saturating_add(1);
        self.first.get_or_insert(fault);
    }
}

/// The state of one publisher.
#[derive(Debug)]
pub(crate) struct Depackager {
    demuxer: Demuxer,
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// The supported streams, lowest id first, video before audio.
    streams: Vec<Elementary>,
    beside: Beside,
    /// Video tracks that have had a key frame; frames before it are dropped.
    key_seen: TrackSet,
    /// Time since which audio has been waiting for video.
    waits_since: Option<u64>,
    waited: bool,
    /// True while units wait because not all announced tracks are known.
    starting: bool,
    made: Vec<Made>,
    units: VecDeque<(AccessUnit, Arc<Tracks>)>,
    dropped: u64,
    bad: BadFrames,
    /// True if at least one unit was made.
    delivers: bool,
    /// Number of drops that [`Depackager::take_dropped`] has reported.
    told: u64,
}

impl Depackager {
    /// Starts a publication whose times continue at the position in `grant`, the permission to publish.
    pub(crate) fn new(grant: &Grant) -> Self {
        Self {
            demuxer: Demuxer::new(),
            timeline: Timeline::new(CLOCK_BITS, TICKS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            streams: Vec::new(),
            beside: Beside { metadata: None, cues: CueRate::new() },
            key_seen: TrackSet::EMPTY,
            waits_since: None,
            waited: false,
            starting: true,
            made: Vec::new(),
            units: VecDeque::new(),
            dropped: 0,
            bad: BadFrames::default(),
            delivers: false,
            told: 0,
        }
    }

    /// Sets the arrival time of the following bytes. Bytes of files have no arrival time.
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.timeline.arrive(now);
        self.demuxer.arrive(now);
    }

    /// Takes the next clock fault of the publisher.
    pub(crate) fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.timeline.take_clock_news()
    }

    /// Takes bytes of the transport stream, split anywhere.
    pub(crate) fn handle(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        while let Some(event) = self.demuxer.read(&mut input) {
            match event {
                Event::Program(map) => self.program(&map),
                Event::Pes(pes) => self.pes(pes),
                Event::Splice(section) => self.splice(&section),
            }
        }
    }

    /// Notes that the transport has lost a part of the stream here.
    pub(crate) fn lost(&mut self) {
        self.demuxer.lost();
    }

    /// Takes the number of units that could not be used since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        let dropped = self.dropped.saturating_add(self.bad.count);
        dropped.saturating_sub(std::mem::replace(&mut self.told, dropped))
    }

    /// Ends the transport stream and emits the units that waited for more of it.
    pub(crate) fn finish(&mut self) {
        self.demuxer.finish();
        self.handle(&[]);
        for at in 0..self.streams.len() {
            let Some(Elementary { id, reader: Reader::Video(video), .. }) = self.streams.get_mut(at) else {
                continue;
            };
            let id = *id;
            video.finish(&mut self.made);
            self.settle(id, None);
        }
        self.start();
    }

    /// Returns the next unit with its tracks.
    pub(crate) fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        if self.starting {
            return None;
        }
        self.units.pop_front()
    }

    /// Returns what the publisher has sent so far: nothing usable, only announcements, audio alone, or frames.
    pub(crate) fn supply(&self) -> Supply {
        let videos = self.streams.iter().filter(|one| matches!(one.reader, Reader::Video(_)));
        match self.delivers {
            true => Supply::of_videos(videos.map(|one| self.key_seen.contains(one.id))),
            false if self.streams.is_empty() => Supply::Nothing,
            false => Supply::Announced,
        }
    }

    /// Returns the fault of the first frame that was malformed, or of an unsupported codec.
    pub(crate) const fn why_bad(&self) -> Option<&'static str> {
        self.bad.first
    }

    /// Returns the tracks of the stream so far.
    #[cfg(test)]
    pub(super) const fn tracks(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> Stats {
        Stats { demux: self.demuxer.stats(), dropped: self.dropped, bad: self.bad.count }
    }

    /// Applies a program map: unchanged streams continue, a new one gets the lowest free track number of its kind.
    fn program(&mut self, map: &Pmt) {
        let lead = self.lead();
        self.streams.retain(|one| map.streams.contains(&one.reader.stream()));
        self.beside.metadata = map.streams.iter().find(|stream| stream.kind == StreamKind::Id3).copied();
        for stream in &map.streams {
            let is_beside = self.beside.metadata == Some(*stream) || stream.kind == StreamKind::Splice;
            if is_beside || self.streams.iter().any(|one| one.reader.stream() == *stream) {
                continue;
            }
            if !self.add(*stream) {
                self.demuxer.ignore(stream.pid);
            }
        }
        for one in &mut self.streams {
            one.language = map.language_of(one.reader.stream().pid).map(Arc::from);
            one.captions = map.captions_of(one.reader.stream().pid);
        }
        self.streams.sort_unstable_by_key(|one| (matches!(one.reader, Reader::Audio(_)), one.id));
        if self.lead() != lead {
            // Audio that is already delivered does not wait for the new video.
            (self.waited, self.waits_since) = (self.delivers, None);
        }
        let is_there = |id| self.streams.iter().any(|one| one.id == id);
        if !self.tracks.iter().all(|track| is_there(track.id)) {
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.epoch = tracks.epoch.wrapping_add(1);
            tracks.retain(|track| is_there(track.id));
        }
        self.set_languages();
    }

    /// Sets the languages of the tracks and of their captions, which may change at any time. Announced captions do not
    /// change the track itself.
    fn set_languages(&mut self) {
        let says =
            |one: &Elementary| self.tracks.get(one.id).is_some_and(|track| track.captions != one.captions);
        if self.streams.iter().any(says) {
            let tracks = Arc::make_mut(&mut self.tracks);
            for one in &self.streams {
                tracks.get_mut(one.id).into_iter().for_each(|track| track.captions = one.captions.clone());
            }
        }
        let spoken =
            |one: &Elementary| self.tracks.get(one.id).is_some_and(|track| track.language != one.language);
        if !self.streams.iter().any(spoken) {
            return;
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        for one in &self.streams {
            if let Some(track) = tracks.get_mut(one.id).filter(|track| track.language != one.language) {
                (track.language, track.epoch) = (one.language.clone(), epoch);
            }
        }
    }

    /// Adds a stream; returns false if its codec is not supported, or there are too many.
    fn add(&mut self, stream: Stream) -> bool {
        let Some((kind, reader)) = Reader::new(stream) else { return false };
        let is_free = |id: &TrackId| self.streams.iter().all(|one| one.id != *id);
        let mut ids = (0..).map_while(|n| TrackId::nth(kind, n));
        let Some(id) = ids.find(is_free).filter(|_| self.streams.len() < media::TRACKS_MAX) else {
            return false;
        };
        self.key_seen = self.key_seen.without(id);
        self.streams.push(Elementary { id, language: None, captions: Services::NONE, reader });
        true
    }

    /// Returns the leading video track: the stream begins with a key frame of it. `None` if there is no video.
    fn lead(&self) -> Option<(TrackId, Stream)> {
        let first = self.streams.first().filter(|one| matches!(one.reader, Reader::Video(_)))?;
        Some((first.id, first.reader.stream()))
    }

    fn pes(&mut self, pes: Pes) {
        if self.beside.metadata == Some(pes.stream) {
            return self.metadata(&pes);
        }
        let Some(one) = self.streams.iter_mut().find(|one| one.reader.stream() == pes.stream) else { return };
        let (id, arrived) = (one.id, pes.arrived);
        match &mut one.reader {
            Reader::Video(video) => video.push(pes, &mut self.made),
            Reader::Audio(audio) => audio.push(pes, &mut self.made),
        }
        self.settle(id, arrived);
    }

    /// Handles ID3 tags. Those before the first frame, and those without a time, are dropped.
    fn metadata(&mut self, pes: &Pes) {
        let Some(pts) = pes.pts.filter(|_| self.delivers && id3::is_tags(&pes.payload)) else {
            return self.dropped = self.dropped.saturating_add(1);
        };
        if self.units.len() >= QUEUE_MAX {
            return self.dropped = self.dropped.saturating_add(1);
        }
        let dts = TICKS.to_ms(self.timeline.map_beside(pts.wrapping_sub(ZERO) & CLOCK_MASK));
        self.push_data(TrackId::METADATA, (dts, dts), pes.payload.clone());
    }

    /// Handles splice information. The section gets the times of the stream, even if its own are encrypted. A section
    /// without events is left out, a splice whose time has passed happens now, and sections beyond the rate of
    /// [`CueRate`] are dropped.
    fn splice(&mut self, section: &Bytes) {
        let Some(splice) = scte35::Splice::read(section).filter(|splice| !splice.events.is_empty()) else {
            return;
        };
        let place = |raw: u64| self.timeline.place_of(raw).filter(|_| self.delivers);
        // All times of the section need the same shift, because stream times differ from the publisher's by a
        // constant, modulo the clock's range.
        let shifted = place(0).and_then(|by| scte35::shifted(section, by.cast_unsigned()));
        let dts = self.timeline.position().dts_ms;
        let has_room = self.units.len() < QUEUE_MAX;
        let Some(payload) = shifted.filter(|_| has_room && self.beside.cues.takes(dts)) else {
            return self.dropped = self.dropped.saturating_add(1);
        };
        let at = splice.pts.and_then(|pts| place(pts.wrapping_sub(ZERO) & CLOCK_MASK));
        let pts = at.map_or(dts, |at| TICKS.to_ms(at).max(dts));
        self.push_data(TrackId::CUES, (dts, pts), payload);
    }

    fn push_data(&mut self, track: TrackId, (dts, pts): (i64, i64), payload: Bytes) {
        let unit = AccessUnit { track, dts, pts, key_frame: false, config_epoch: 0, payload };
        self.units.push_back((unit, Arc::clone(&self.tracks)));
    }

    /// True if the first units need not wait any longer.
    fn is_started(&self) -> bool {
        let (Some((first, _)), Some((last, _))) = (self.units.front(), self.units.back()) else {
            return false;
        };
        let known = self.streams.iter().all(|one| self.tracks.get(one.id).is_some());
        let bytes = || self.units.iter().map(|(unit, _)| unit.payload.len()).sum::<usize>();
        known
            || self.waited
            || last.dts.saturating_sub(first.dts) >= START_WAIT
            || self.units.len() >= QUEUE_MAX
            || bytes() >= START_BYTES_MAX
    }

    /// Releases the first units. Each gets the current list of tracks, unless its own track has changed since the unit
    /// was made.
    fn start(&mut self) {
        self.starting = false;
        for (unit, tracks) in &mut self.units {
            if tracks.get(unit.track) == self.tracks.get(unit.track) {
                *tracks = Arc::clone(&self.tracks);
            }
        }
    }

    /// Handles the results of bytes that arrived at `arrived`; `None` means now.
    fn settle(&mut self, track: TrackId, arrived: Option<Instant>) {
        let mut made = std::mem::take(&mut self.made);
        for made in made.drain(..) {
            match made {
                Made::Config(config) => self.configure(track, config),
                Made::Frame(frame) => self.frame(track, frame, arrived),
                Made::Bad => self.bad.note(BAD_FRAME),
                Made::NotCarried(codec) => self.bad.note(codec),
                Made::Early => self.dropped = self.dropped.saturating_add(1),
            }
        }
        self.made = made;
        if self.starting && self.is_started() {
            self.start();
        }
    }

    /// Sets the configuration of a track. A different one begins a new epoch.
    fn configure(&mut self, id: TrackId, config: CodecConfig) {
        let one = self.streams.iter().find(|one| one.id == id);
        let language = one.and_then(|one| one.language.clone());
        let captions = one.map_or(Services::NONE, |one| one.captions.clone());
        let known = self.tracks.get(id);
        if known.is_some_and(|track| track.config == config) {
            return;
        }
        if known.is_some_and(|track| track.config.codec() != config.codec()) {
            // After a change of codec, the track waits for the first key frame of the new codec.
            self.key_seen = self.key_seen.without(id);
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        tracks.put(Track { epoch, language, captions, ..Track::new(id, config, TICKS) });
    }

    fn frame(&mut self, track: TrackId, frame: Frame, arrived: Option<Instant>) {
        if frame.key {
            self.key_seen = self.key_seen.with(track);
        }
        let config = self.tracks.get(track);
        let is_video = config.is_some_and(|track| track.kind() == TrackKind::Video);
        let config_epoch = config.map_or(0, |track| track.epoch);
        let waits = if is_video { !self.key_seen.contains(track) } else { self.audio_waits(frame.dts) };
        if waits || self.units.len() >= QUEUE_MAX {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let raw = frame.dts.wrapping_sub(ZERO) & CLOCK_MASK;
        let dts = match arrived {
            Some(arrived) => self.timeline.map_held(track, raw, arrived),
            None => self.timeline.map(track, raw),
        };
        // If an encoder says that a frame is presented before it is decoded, which is a slight error, the frame is
        // presented at its decode time.
        let composition = frame.pts.wrapping_sub(frame.dts) & CLOCK_MASK;
        let composition = if composition > COMPOSITION_MAX { 0 } else { composition };
        let unit = AccessUnit {
            track,
            dts,
            pts: dts.saturating_add(i64::try_from(composition).unwrap_or(0)),
            key_frame: frame.key,
            config_epoch,
            payload: frame.payload,
        };
        self.delivers = true;
        self.units.push_back((unit, Arc::clone(&self.tracks)));
    }

    /// True if audio of this time still waits for video.
    fn audio_waits(&mut self, dts: u64) -> bool {
        if self.waited || self.lead().is_none_or(|(lead, _)| self.key_seen.contains(lead)) {
            return false;
        }
        let since = *self.waits_since.get_or_insert(dts);
        let passed = dts.wrapping_sub(since) & CLOCK_MASK;
        // The audio of another track may lie a little before that of the track that began to wait.
        self.waited = (VIDEO_WAIT..=CLOCK_MASK - VIDEO_WAIT).contains(&passed);
        !self.waited
    }
}
