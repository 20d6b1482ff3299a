//! MP4 as access units: files that are pulled at playback speed, fragmented or plain, and HLS segments.
//!
//! A file stores the samples of its tracks in runs, at worst a whole fragment of one track after a whole fragment of
//! another. Units are emitted in decode order: a unit waits until every track has a later one, or until too much
//! waits. Times are in 90 kHz. A video begins with a key frame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fmp4::{Event, Limits, Reader, Sample};
use media::{AccessUnit, ClockNews, Timeline, Timescale, Track, TrackId, TrackKind, Tracks};

use crate::mail::Grant;
use crate::protocol::usable::{Supply, video_payload};

/// Time scale of the units.
const TICKS: Timescale = Timescale::new(90_000);
/// Width, in bits, of the times that are passed to the timeline, which treats them as a clock that wraps.
const CLOCK_BITS: u32 = 33;
/// Maximum time from the first waiting unit to the last one, in ticks; longer fragments are rare.
const SPAN_MAX: i64 = 20 * 90_000;
/// Maximum bytes of waiting units.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Maximum number of waiting units.
const WAITING_MAX: usize = 16_384;

/// A unit with times on the file's clock.
#[derive(Debug)]
struct Waiting {
    dts: i64,
    unit: AccessUnit,
}

/// A supported track of a file.
#[derive(Debug)]
struct Lane {
    input: usize,
    /// Number of the track in the file.
    number: u32,
    id: TrackId,
    timescale: Timescale,
    is_video: bool,
    has_begun: bool,
    waiting: VecDeque<Waiting>,
}

/// Converts MP4 files to access units.
#[derive(Debug)]
pub(in crate::protocol) struct Depackager {
    /// Readers of the files whose tracks together make the stream.
    readers: Vec<Reader>,
    timeline: Timeline,
    tracks: Arc<Tracks>,
    lanes: Vec<Lane>,
    waiting_bytes: usize,
    units: VecDeque<(AccessUnit, Arc<Tracks>)>,
    dropped: u64,
    delivers: bool,
    /// Time in the file, in ticks, before which samples are skipped.
    from: i64,
}

impl Depackager {
    /// Starts a stream whose times continue at the position in `grant`, the permission to publish. The stream has the
    /// tracks of all `inputs` files, side by side.
    pub(in crate::protocol) fn new(grant: &Grant, inputs: usize) -> Self {
        Self {
            readers: (0..inputs).map(|_| Reader::new(Limits::default())).collect(),
            timeline: Timeline::new(CLOCK_BITS, TICKS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            lanes: Vec::new(),
            waiting_bytes: 0,
            units: VecDeque::new(),
            dropped: 0,
            delivers: false,
            from: i64::MIN,
        }
    }

    /// Skips all samples before `time`, counted from the beginning of each file. A video track then begins at its first
    /// key frame after that time.
    pub(in crate::protocol) fn beginning_at(mut self, time: Duration) -> Self {
        if !time.is_zero() {
            self.from = i64::try_from(time.as_millis()).unwrap_or(i64::MAX).saturating_mul(90);
        }
        self
    }

    /// True if the samples before some time are to be skipped, and no unit has been emitted yet.
    pub(in crate::protocol) fn skips(&self) -> bool {
        self.from != i64::MIN && !self.delivers
    }

    /// Takes bytes of a file, split anywhere.
    ///
    /// # Errors
    /// The file cannot be read; nothing more of it is read.
    pub(in crate::protocol) fn handle(&mut self, input: usize, bytes: &[u8]) -> Result<(), fmp4::Error> {
        let mut bytes = bytes;
        while let Some(reader) = self.readers.get_mut(input)
            && let Some(event) = reader.read(&mut bytes)?
        {
            match event {
                Event::Tracks { tracks, .. } => self.begin(input, &tracks),
                Event::Sample(sample) => self.sample(input, sample),
            }
        }
        Ok(())
    }

    /// Begins the next segment of a file.
    ///
    /// # Errors
    /// The previous segment was incomplete.
    pub(in crate::protocol) fn begin_segment(&mut self, input: usize) -> Result<(), fmp4::Error> {
        self.readers.get_mut(input).map_or(Ok(()), Reader::begin_segment)
    }

    /// Forgets all earlier bytes of a file; the next ones must be its index.
    pub(in crate::protocol) fn begin_again(&mut self, input: usize) {
        if let Some(reader) = self.readers.get_mut(input) {
            *reader = Reader::new(Limits::default());
        }
        for lane in self.lanes.iter_mut().filter(|lane| lane.input == input && lane.is_video) {
            lane.has_begun = false;
        }
    }

    /// Sets the index of a file in which the media precedes the index; the bytes that follow are those of the file
    /// from `offset` on.
    ///
    /// # Errors
    /// The reason the index cannot be used.
    pub(in crate::protocol) fn begin_behind(
        &mut self,
        input: usize,
        index: &[u8],
        offset: u64,
    ) -> Result<(), fmp4::Error> {
        let mut reader = Reader::with_moov(index, Limits::default())?;
        reader.seek(offset);
        if let Some(own) = self.readers.get_mut(input) {
            *own = reader;
        }
        Ok(())
    }

    /// Ends the file: emits units that waited for more of it.
    pub(in crate::protocol) fn finish(&mut self) {
        while self.give_first() {}
    }

    /// Returns the next unit with its tracks.
    pub(in crate::protocol) fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        self.units.pop_front()
    }

    /// Takes the next fault of the file's clock.
    pub(in crate::protocol) fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.timeline.take_clock_news()
    }

    /// Takes the number of samples that could not be used since the last call.
    pub(in crate::protocol) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Returns what the file has supplied so far: nothing usable, only announcements, audio alone, or frames.
    pub(in crate::protocol) fn supply(&self) -> Supply {
        let videos = self.lanes.iter().filter(|lane| lane.is_video);
        match self.delivers {
            true => Supply::of_videos(videos.map(|lane| lane.has_begun)),
            false if self.lanes.is_empty() => Supply::Nothing,
            false => Supply::Announced,
        }
    }

    /// Handles an index: the samples after it are of these tracks.
    fn begin(&mut self, input: usize, tracks: &[fmp4::Track]) {
        if self.is_known(input, tracks) {
            return;
        }
        if self.lanes.iter().any(|lane| lane.input == input) {
            self.finish();
        }
        self.lanes.retain(|lane| lane.input != input);
        for track in tracks {
            let kind = track.config.codec().kind();
            let is_video = kind == TrackKind::Video;
            let is_free = |id: &TrackId| self.lanes.iter().all(|lane| lane.id != *id);
            let id = (0..).map_while(|n| TrackId::nth(kind, n)).find(is_free);
            let Some(id) = id.filter(|_| self.lanes.len() < media::TRACKS_MAX) else { continue };
            self.configure(id, track);
            self.lanes.push(Lane {
                input,
                number: track.id,
                id,
                timescale: track.timescale,
                is_video,
                has_begun: false,
                waiting: VecDeque::new(),
            });
        }
        let is_there = |id| self.lanes.iter().any(|lane| lane.id == id);
        if !self.tracks.iter().all(|track| is_there(track.id)) {
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.epoch = tracks.epoch.wrapping_add(1);
            tracks.retain(|track| is_there(track.id));
        }
    }

    /// True if a file had this same index before, so that its waiting units remain valid.
    fn is_known(&self, input: usize, tracks: &[fmp4::Track]) -> bool {
        let of_input = || self.lanes.iter().filter(|lane| lane.input == input);
        let is_same = |(lane, track): (&Lane, &fmp4::Track)| {
            let known = self.tracks.get(lane.id);
            (lane.number, lane.timescale) == (track.id, track.timescale)
                && known.is_some_and(|known| known.config == track.config)
        };
        of_input().count() == tracks.len() && of_input().zip(tracks).all(is_same)
    }

    /// Sets the configuration of a track. A different one begins a new epoch.
    fn configure(&mut self, id: TrackId, track: &fmp4::Track) {
        let is_same = |known: &Track| known.config == track.config && known.language == track.language;
        if self.tracks.get(id).is_some_and(is_same) {
            return;
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        let language = track.language.clone();
        tracks.put(Track { epoch, language, ..Track::new(id, track.config.clone(), TICKS) });
    }

    fn sample(&mut self, input: usize, sample: Sample) {
        let is_of = |lane: &&mut Lane| lane.input == input && lane.number == sample.track;
        let Some(lane) = self.lanes.iter_mut().find(is_of) else { return };
        let dts = lane.timescale.convert(sample.dts, TICKS);
        if dts < self.from {
            return;
        }
        let is_early = lane.is_video && !lane.has_begun && !sample.key_frame;
        let config = self.tracks.get(lane.id).map(|track| &track.config);
        let usable = config.and_then(|config| video_payload(config, sample.payload).ok().flatten());
        let Some(payload) = usable.filter(|payload| !is_early && !payload.is_empty()) else {
            self.dropped = self.dropped.saturating_add(1);
            return;
        };
        lane.has_begun = true;
        let shown = lane.timescale.convert(sample.pts, TICKS).saturating_sub(dts).max(0);
        let config_epoch = self.tracks.get(lane.id).map_or(0, |track| track.epoch);
        self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
        let key_frame = lane.is_video && sample.key_frame;
        let unit = AccessUnit {
            track: lane.id,
            dts: 0,
            // Here `pts` is the distance from DTS to PTS. It becomes a time when the DTS is placed on the stream's
            // clock.
            pts: shown,
            key_frame,
            config_epoch,
            payload,
        };
        lane.waiting.push_back(Waiting { dts, unit });
        while self.is_due() && self.give_first() {}
    }

    /// True if the first unit need not wait any longer.
    fn is_due(&self) -> bool {
        let waiting =
            || self.lanes.iter().flat_map(|lane| [lane.waiting.front(), lane.waiting.back()]).flatten();
        let times = || waiting().map(|waiting| waiting.dts);
        let span = times().max().zip(times().min()).map_or(0, |(last, first)| last.saturating_sub(first));
        let is_there = |input| self.lanes.iter().any(|lane| lane.input == input);
        let all_are_there = (0..self.readers.len()).all(is_there);
        (all_are_there && self.lanes.iter().all(|lane| !lane.waiting.is_empty()))
            || span > SPAN_MAX
            || self.waiting_bytes > WAITING_BYTES_MAX
            || self.lanes.iter().map(|lane| lane.waiting.len()).sum::<usize>() > WAITING_MAX
    }

    /// Emits the first waiting unit. Returns false if there is none.
    fn give_first(&mut self) -> bool {
        let of = |lane: &Lane| lane.waiting.front().map(|waiting| waiting.dts);
        let first = self.lanes.iter_mut().filter(|lane| !lane.waiting.is_empty()).min_by_key(|lane| of(lane));
        let Some(Waiting { dts, mut unit }) = first.and_then(|lane| lane.waiting.pop_front()) else {
            return false;
        };
        self.waiting_bytes = self.waiting_bytes.saturating_sub(unit.payload.len());
        // A negative time is converted as if the clock had wrapped.
        let raw = dts.rem_euclid(1 << CLOCK_BITS).unsigned_abs();
        unit.dts = self.timeline.map(unit.track, raw);
        unit.pts = unit.dts.saturating_add(unit.pts);
        self.delivers = true;
        self.units.push_back((unit, Arc::clone(&self.tracks)));
        true
    }
}

#[cfg(test)]
mod tests;
