//! A clip: the media between two dates in a stream's HLS segments, in memory or on the disk, written like a recording.
//! Nothing is decoded; the clip begins at the key frame at or before its beginning, and ends before the key frame at or
//! after its end.
//!
//! 1. Control orders a clip like a recording, with the two dates. The sink subscribes to nothing.
//! 2. The sink takes the segments of that time which the playlist lists when the sink begins. Segments in memory are
//!    kept until the clip is done. A segment on the disk is read by jobs when its turn comes; if the file no longer
//!    exists, the clip continues with the next segment.
//! 3. Segments are converted [`CHUNK_BYTES`] at a time, so that the worker's other sessions are not delayed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::{AccessUnit, Position, Tracks};

use super::Container;
use super::clip_source::{JOB, Kept, Loaded, Loading, Place, kept};
use super::sink::{RecordingSink, kind};
use crate::hub::{Chosen, Entry, Pick, Selection};
use crate::jobs::Outcome;
use crate::mail::{ClipRange, Grant};
use crate::protocol::sinks::{SinkKind, SinkOrder};
use crate::protocol::{About, Context, Event, Reply, Session, Timers, mp4_mapping, ts};
use crate::types::StreamKey;

/// Bytes of segments read in one turn. With [`PAUSE`] between the turns, at most 50 MB are read per second.
const CHUNK_BYTES: usize = 256 << 10;
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes that are converted before units are taken. A depackager holds a limited number of units, and the smallest
/// frames have a dozen bytes.
const SLICE_BYTES: usize = 8 << 10;
/// Maximum bytes of units held until the clip begins. If a stream sends more between two key frames, the clip begins at
/// the key frame before them.
const HELD_BYTES_MAX: usize = 32 << 20;
/// Pause before a job that was refused, because too many jobs waited, is submitted again.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// Extension of playlists.
const ENDING: &str = ".m3u8";
/// The reason given for an empty clip.
const NOTHING: &str = "nothing of that time is kept, or it is longer than a clip may be";

/// The kind of sink that writes clips.
pub(super) static KIND: SinkKind =
    kind("clip", |_| Container::Mp4.name(), |_, order, _| Box::new(ClipSink::new(order)));

/// Converts segments to units.
#[derive(Debug)]
enum Depackager {
    Ts(Box<ts::Depackager>),
    /// For fragmented MP4, with the initialization section read last.
    Mp4(Box<mp4_mapping::Depackager>, Bytes),
}

impl Depackager {
    fn of(grant: &Grant, first: &Kept) -> Self {
        match &first.init {
            None => Self::Ts(Box::new(ts::Depackager::new(grant))),
            Some(_) => Self::Mp4(Box::new(mp4_mapping::Depackager::new(grant, 1)), Bytes::new()),
        }
    }

    /// Begins a segment.
    fn begin(&mut self, segment: &Kept) -> Result<(), String> {
        match (self, &segment.init) {
            (Self::Ts(depackager), None) => {
                if segment.discontinuity {
                    depackager.lost();
                }
                Ok(())
            }
            (Self::Mp4(depackager, init), Some(Place::Memory(own))) => {
                if segment.discontinuity {
                    depackager.finish();
                }
                if init != own {
                    init.clone_from(own);
                    depackager.begin_again(0);
                    depackager.handle(0, own).map_err(|error| error.to_string())?;
                }
                depackager.begin_segment(0).map_err(|error| error.to_string())
            }
            (Self::Ts(_), Some(_)) | (Self::Mp4(..), None | Some(Place::Disk(_))) => {
                Err("the form of the segments changes".to_owned())
            }
        }
    }

    fn handle(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::Ts(depackager) => {
                depackager.handle(bytes);
                Ok(())
            }
            Self::Mp4(depackager, _) => depackager.handle(0, bytes).map_err(|error| error.to_string()),
        }
    }

    /// Converts bytes of a segment, and takes the units as they are made.
    fn convert(&mut self, bytes: &[u8], units: &mut Vec<(AccessUnit, Arc<Tracks>)>) -> Result<(), String> {
        bytes.chunks(SLICE_BYTES).try_for_each(|slice| {
            let done = self.handle(slice);
            units.extend(std::iter::from_fn(|| self.poll_unit()));
            done
        })
    }

    fn finish(&mut self) {
        match self {
            Self::Ts(depackager) => depackager.finish(),
            Self::Mp4(depackager, _) => depackager.finish(),
        }
    }

    fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        match self {
            Self::Ts(depackager) => depackager.poll_unit(),
            Self::Mp4(depackager, _) => depackager.poll_unit(),
        }
    }
}

/// Selects the units of a clip: those between two dates.
#[derive(Debug)]
struct Cutter {
    range: ClipRange,
    chosen: Chosen,
    /// Milliseconds to add to a DTS to get its date; `None` until a unit has arrived.
    offset_ms: Option<i64>,
    /// Units since the last key frame, held until the clip begins, and their bytes.
    held: Vec<Entry>,
    held_bytes: usize,
    is_begun: bool,
    is_over: bool,
}

impl Cutter {
    fn new(range: ClipRange) -> Self {
        let chosen = Chosen::default();
        let held = Vec::new();
        Self { range, chosen, offset_ms: None, held, held_bytes: 0, is_begun: false, is_over: false }
    }

    /// Takes a unit of the segments. The first segment begins at the date `first_ms`. Returns the units of the clip
    /// that are known so far.
    fn take(&mut self, entry: Entry, first_ms: i64) -> Vec<Entry> {
        let selection = Selection { data: Pick::None, ..Selection::ALL };
        self.chosen.update(selection, &entry.tracks, &|track| Container::Mp4.fit(track));
        let lead = self.chosen.lead();
        let is_lead = lead.is_none_or(|lead| lead == entry.unit.track);
        if self.is_over || self.offset_ms.is_none() && !is_lead {
            return Vec::new();
        }
        let offset_ms = *self.offset_ms.get_or_insert_with(|| first_ms.saturating_sub(entry.dts_ms));
        let date_ms = entry.dts_ms.saturating_add(offset_ms);
        let mut taken = Vec::new();
        let may_begin = is_lead && (lead.is_none() || entry.unit.key_frame);
        if may_begin && date_ms >= self.range.end_ms {
            self.is_over = true;
            return self.rest();
        }
        if is_lead && date_ms > self.range.start_ms {
            // No later key frame is before the beginning, so the clip begins with the held one.
            taken = self.rest();
        } else if may_begin && !self.is_begun {
            self.held.clear();
            self.held_bytes = 0;
        }
        if self.is_begun {
            taken.push(entry);
            return taken;
        }
        self.held_bytes = self.held_bytes.saturating_add(entry.unit.payload.len());
        self.held.push(entry);
        if self.held_bytes > HELD_BYTES_MAX { self.rest() } else { taken }
    }

    /// Returns the units that were held back; the clip begins with them.
    fn rest(&mut self) -> Vec<Entry> {
        self.is_begun = true;
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}

/// The sink that writes a clip.
#[derive(Debug)]
struct ClipSink {
    recording: RecordingSink,
    key: StreamKey,
    playlist: String,
    grant: Grant,
    cutter: Cutter,
    segments: VecDeque<Kept>,
    /// The file that is being read from the disk, and the outcome of its last job.
    loading: Option<Loading>,
    /// True if segments before the next one are missing.
    has_lost: bool,
    depackager: Option<Depackager>,
    /// Number of bytes read of the first segment.
    at: usize,
    /// Date of the first segment that the clip uses, in milliseconds of Unix time.
    first_ms: Option<i64>,
    is_begun: bool,
    step_at: Option<Instant>,
}

impl ClipSink {
    fn new(order: &SinkOrder) -> Self {
        let recording = order.recording.clone().unwrap_or_default();
        let grant = Grant {
            stream: order.stream,
            position: Position::default(),
            epoch: 0,
            zero_ms: 0,
            settings: Arc::clone(&order.settings),
            standby: false,
        };
        Self {
            cutter: Cutter::new(recording.clip.unwrap_or_default()),
            recording: RecordingSink::of_clip(recording),
            key: order.key.clone(),
            playlist: format!("{}{}{ENDING}", order.details.folder, order.key.id),
            grant,
            segments: VecDeque::new(),
            loading: None,
            has_lost: false,
            depackager: None,
            at: 0,
            first_ms: None,
            is_begun: false,
            step_at: None,
        }
    }

    /// Takes the segments of the time range.
    fn begin(&mut self, ctx: &Context<'_>) {
        let place = (&*self.key.app, self.playlist.as_str());
        self.segments = kept(ctx.apps, ctx.blobs, place, self.cutter.range);
        let Some(first) = self.segments.front() else { return self.recording.close(ctx, NOTHING) };
        self.depackager = Some(Depackager::of(&self.grant, first));
        self.step_at = Some(ctx.now.mono);
    }

    /// Begins to read the next segment if it is on the disk. Returns false if there is nothing to read.
    fn load(&mut self) -> bool {
        let place = self.segments.front_mut().and_then(Kept::on_disk);
        let Some(Place::Disk(path)) = place else { return false };
        self.loading = Some(Loading::new(path.clone()));
        true
    }

    /// Takes the outcome of a job that reads a file.
    fn loaded(&mut self, ctx: &Context<'_>, outcome: Outcome) {
        let Some(loading) = &mut self.loading else { return };
        if matches!(outcome, Outcome::Busy) {
            // After the pause, the segment is requested again.
            self.step_at = ctx.now.mono.checked_add(BUSY_PAUSE);
        }
        match loading.job_done(outcome) {
            Loaded::Partly => return,
            Loaded::Whole(bytes) => {
                // Neighbouring segments have the same initialization section, which is read only once.
                let read = self.segments.front_mut().and_then(Kept::on_disk).cloned();
                for place in self.segments.iter_mut().filter_map(Kept::on_disk) {
                    if Some(&*place) == read.as_ref() {
                        *place = Place::Memory(bytes.clone());
                    }
                }
            }
            Loaded::Missing => {
                self.segments.pop_front();
                self.has_lost = true;
            }
        }
        self.loading = None;
        self.step_at = Some(ctx.now.mono);
    }

    /// Reads a chunk of the segments.
    fn step(&mut self, ctx: &Context<'_>) {
        if self.loading.is_some() || self.at == 0 && self.load() {
            return;
        }
        self.step_at = ctx.now.mono.checked_add(PAUSE);
        if !self.recording.has_room_for_more() {
            return;
        }
        let mut units = Vec::new();
        let outcome = self.read(&mut units);
        self.take_units(ctx, units);
        let is_over = self.cutter.is_over || self.segments.is_empty();
        match outcome {
            Ok(()) if !is_over => {}
            Ok(()) => self.finish(ctx, "the clip is complete"),
            Err(reason) => self.finish(ctx, &reason),
        }
    }

    fn read(&mut self, units: &mut Vec<(AccessUnit, Arc<Tracks>)>) -> Result<(), String> {
        let (Some(segment), Some(depackager)) = (self.segments.front_mut(), &mut self.depackager) else {
            return Ok(());
        };
        let Place::Memory(bytes) = &segment.media else { return Ok(()) };
        if self.at == 0 {
            self.first_ms.get_or_insert(segment.date_ms);
            segment.discontinuity |= std::mem::take(&mut self.has_lost);
            depackager.begin(segment)?;
        }
        let end = self.at.saturating_add(CHUNK_BYTES).min(bytes.len());
        depackager.convert(bytes.get(self.at..end).unwrap_or_default(), units)?;
        self.at = end;
        if self.at >= bytes.len() {
            self.at = 0;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn take_units(&mut self, ctx: &Context<'_>, units: Vec<(AccessUnit, Arc<Tracks>)>) {
        for (unit, tracks) in units {
            let first_ms = self.first_ms.unwrap_or_default();
            let entry = Entry::new(ctx.now.mono, first_ms.unsigned_abs(), unit, tracks);
            for entry in self.cutter.take(entry, first_ms) {
                self.recording.take_unit(&entry, &self.cutter.chosen);
            }
        }
    }

    fn finish(&mut self, ctx: &Context<'_>, reason: &str) {
        self.step_at = None;
        let mut units = Vec::new();
        if let Some(depackager) = &mut self.depackager {
            depackager.finish();
            units.extend(std::iter::from_fn(|| depackager.poll_unit()));
        }
        self.take_units(ctx, units);
        for entry in self.cutter.rest() {
            self.recording.take_unit(&entry, &self.cutter.chosen);
        }
        self.segments.clear();
        self.loading = None;
        self.recording.close(ctx, reason);
    }
}

impl Session for ClipSink {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Job(done) if done.id == JOB => self.loaded(ctx, done.outcome),
            Reply::Job(_) => self.recording.handle_reply(ctx, reply),
            Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Request(_)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.finish(ctx, reason);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.begin(ctx);
        }
        let job = self.loading.as_mut().filter(|_| self.step_at.is_none()).and_then(Loading::poll_job);
        job.map(Event::Job).or_else(|| self.recording.poll_event(ctx))
    }

    fn about(&self) -> About {
        self.recording.about()
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }
}

impl Timers for ClipSink {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.recording.handle_timeout(ctx);
        if self.step_at.take_if(|at| *at <= ctx.now.mono).is_some() {
            self.step(ctx);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.step_at, self.recording.poll_timeout()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::codec::Codec;
    use media::{CodecConfig, Timescale, Track, TrackId};

    const FIRST_MS: i64 = 1_700_000_000_000;

    /// DTS of the pictures of a clip, from a stream with a picture every 100 ms, a key frame every second, and audio
    /// in between.
    fn clip(start_ms: i64, end_ms: i64, has_video: bool) -> Vec<i64> {
        let config = |codec, bytes: &'static [u8]| {
            CodecConfig::read(codec, Bytes::from_static(bytes)).unwrap().unwrap()
        };
        let h264 = config(Codec::H264, &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
        let video = Track::new(TrackId::VIDEO, h264, Timescale::MILLISECONDS);
        let audio = Track::new(TrackId::AUDIO, config(Codec::Aac, &[0x11, 0x90]), Timescale::MILLISECONDS);
        let tracks = Arc::new(Tracks::new(1, has_video.then_some(video).into_iter().chain([audio])));
        let range = ClipRange { start_ms: FIRST_MS + start_ms, end_ms: FIRST_MS + end_ms };
        let mut cutter = Cutter::new(range);
        let mut taken = Vec::new();
        for dts in (0..10_000).step_by(50) {
            let track = if dts % 100 == 0 && has_video { TrackId::VIDEO } else { TrackId::AUDIO };
            // Timestamps of segments may begin at any value.
            let dts = dts + 777_000;
            let key_frame = dts % 1000 == 0 || track == TrackId::AUDIO;
            let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload: Bytes::new() };
            let entry = Entry::new(Instant::now(), 0, unit, Arc::clone(&tracks));
            taken.extend(cutter.take(entry, FIRST_MS));
        }
        taken.extend(cutter.rest());
        let lead = if has_video { TrackId::VIDEO } else { TrackId::AUDIO };
        taken.iter().filter(|one| one.unit.track == lead).map(|one| one.unit.dts - 777_000).collect()
    }

    #[test]
    fn a_clip_begins_with_the_key_frame_before_it_and_ends_before_that_behind_it() {
        for ((start, end), (first, last)) in [
            ((2000, 4000), (2000, 3900)),
            ((2001, 4001), (2000, 4900)),
            ((2999, 3001), (2000, 3900)),
            ((-5000, 1000), (0, 900)),
            ((9500, 20_000), (9000, 9900)),
            ((0, 20_000), (0, 9900)),
        ] {
            let pictures = clip(start, end, true);
            let found = (pictures.first().copied(), pictures.last().copied());
            assert_eq!(found, (Some(first), Some(last)), "{start} to {end}");
            let count = usize::try_from((last - first) / 100 + 1).unwrap();
            assert_eq!(pictures.len(), count, "each once");
        }
        let sound = clip(2000, 4000, false);
        assert_eq!((sound.first(), sound.last()), (Some(&2000), Some(&3950)));
    }

    /// A cutter for a clip that begins two seconds after the first segment, and a unit of the video track.
    fn long_group(start_ms: i64) -> (Cutter, impl Fn(i64, usize) -> Entry) {
        let bytes = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
        let h264 = CodecConfig::read(Codec::H264, bytes).unwrap().unwrap();
        let video = Track::new(TrackId::VIDEO, h264, Timescale::MILLISECONDS);
        let tracks = Arc::new(Tracks::new(1, [video]));
        let range = ClipRange { start_ms: FIRST_MS + start_ms, end_ms: i64::MAX };
        let unit = move |dts: i64, bytes: usize| {
            let payload = Bytes::from(vec![0; bytes]);
            let (track, key_frame) = (TrackId::VIDEO, dts == 0);
            let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
            Entry::new(Instant::now(), 0, unit, Arc::clone(&tracks))
        };
        (Cutter::new(range), unit)
    }

    #[test]
    fn a_clip_of_a_stream_without_further_key_frames_begins_at_its_time() {
        let (mut cutter, unit) = long_group(2000);
        let mut taken = Vec::new();
        for dts in (0..2100).step_by(100) {
            taken.extend(cutter.take(unit(dts, 1), FIRST_MS));
        }
        assert!(taken.is_empty() && cutter.held.len() == 21);
        assert_eq!(cutter.take(unit(2100, 1), FIRST_MS).len(), 22, "from the key frame on");
        assert_eq!(cutter.take(unit(2200, 1), FIRST_MS).len(), 1);
        assert!(cutter.held.is_empty());
    }

    #[test]
    fn a_clip_begins_early_if_too_much_would_be_held() {
        let (mut cutter, unit) = long_group(3_600_000);
        let mut most = 0;
        let taken: usize = (0..100)
            .map(|n| {
                let taken = cutter.take(unit(n * 40, 1 << 20), FIRST_MS).len();
                most = most.max(cutter.held.len());
                taken
            })
            .sum();
        assert_eq!((taken, most), (100, 32), "nothing is left out");
    }

    #[test]
    fn a_clip_has_each_of_many_small_frames() {
        const FRAMES: u64 = 4000;
        const AT_ONCE: u64 = 50;
        let frame = [&[0xff, 0xf1, 0x4c, 0x80, 0x01, 0xbf, 0xfc][..], &[0x21; 6]].concat();
        let payload = frame.repeat(usize::try_from(AT_ONCE).unwrap());
        let mut muxer = mpegts::Muxer::new();
        muxer.set_streams(None, Some(mpegts::StreamKind::AacAdts));
        let mut bytes = Vec::new();
        for number in 0..FRAMES / AT_ONCE {
            let at = mpegts::ZERO + number * AT_ONCE * 1920;
            let kind = mpegts::Kind::Audio;
            let payload = &[&payload[..]];
            let unit = mpegts::Unit { kind, number: 0, pts: at, dts: at, random_access: true, payload };
            bytes.extend_from_slice(&muxer.write(&unit));
        }
        assert!(bytes.len() < CHUNK_BYTES, "they are read in one turn: {}", bytes.len());
        let order = SinkOrder {
            stream: crate::types::StreamId::default(),
            kind: "clip",
            key: StreamKey::new("live", "s"),
            settings: Arc::new(crate::config::AppSettings::with("live", &[]).unwrap()),
            details: crate::mail::StreamDetails::default(),
            recording: None,
        };
        let mut depackager = Depackager::Ts(Box::new(ts::Depackager::new(&ClipSink::new(&order).grant)));
        let mut units = Vec::new();
        depackager.convert(&bytes, &mut units).unwrap();
        depackager.finish();
        units.extend(std::iter::from_fn(|| depackager.poll_unit()));
        assert_eq!(units.len() as u64, FRAMES);
    }
}
