//! Streams as HLS, low-latency HLS and DASH: the sinks run in a worker, and get arbitrary units with arbitrary
//! times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use crypto::Seed;
use hls::Playlist;
use hls::playlist::{LowLatency, MediaPlaylist, Segment};
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, Tracks};
use millstream::config::AppSettings;
use millstream::hub::{Credit, Entry, MirroredUnit};
use millstream::mail::{Blob, StreamDetails, StreamEnd, ToWorker};
use millstream::protocol::{schema, sinks};
use millstream::types::{Ingest, Now, StreamId, StreamKey, WorkerId};
use millstream::worker::{Output, Worker, Writers};

use crate::http_targets::epoch;

const STREAM: StreamId = StreamId(1);
/// Maximum number of steps in an input.
const STEPS_MAX: usize = 2000;
/// First times of a stream in milliseconds: zero, shortly before 33 bits of 90 kHz overflow, and far beyond that.
const BEGINS: [i64; 4] = [0, 95_443_717 - 3000, 1 << 40, 1 << 31];
/// Sizes of units in bytes.
const SIZES: [usize; 4] = [8, 200, 5000, 60_000];

static PAYLOADS: LazyLock<[Bytes; 4]> = LazyLock::new(|| {
    SIZES.map(|size| {
        let nal = u32::try_from(size - 4).unwrap_or(0).to_be_bytes();
        Bytes::from([&nal[..], &vec![0x65; size - 4]].concat())
    })
});

/// Segments a stream. The first bytes choose the form and its settings; then each step is a byte and its argument.
/// Everything that a playlist names must exist, and playlists must follow the rules of RFC 8216 and RFC 8216bis.
pub fn segmenter(data: &[u8]) {
    let Some((&[form, lengths, begin], mut steps)) = data.split_first_chunk() else { return };
    let mut rig = Rig::new(form, lengths, begin);
    for _ in 0..STEPS_MAX {
        let Some((&[step, value], rest)) = steps.split_first_chunk() else { break };
        steps = rest;
        rig.step(step, value);
    }
    rig.end();
}

struct Rig {
    worker: Worker,
    now: Now,
    /// Number of the worker's request for the stream; the units answer it.
    request: u64,
    tracks: Arc<Tracks>,
    at_ms: i64,
    /// The longest time between two units of a track. `last_ms` is the time of each track's last unit.
    longest_step: Duration,
    last_ms: BTreeMap<TrackId, i64>,
    /// Names of the existing blobs, except playlists.
    there: BTreeSet<String>,
    /// The newest playlists by name.
    playlists: BTreeMap<String, MediaPlaylist>,
}

impl Rig {
    fn new(form: u8, lengths: u8, begin: u8) -> Self {
        let (time, list) = (1 + lengths % 8, 3 + (lengths >> 3) % 8);
        let part_ms = [100, 300, 1000, 2000][usize::from(lengths >> 6)];
        let flag = |bit: u8| if form & bit == 0 { "false" } else { "true" };
        let settings = AppSettings::of(
            schema(),
            "live",
            &[
                ("hlsSegmentType", if form & 1 == 0 { "mpegts" } else { "fmp4" }),
                ("hlsEnableLowLatency", flag(2)),
                ("dashMuxingEnabled", flag(4)),
                ("id3TagEnabled", flag(8)),
                ("hlsTime", &time.to_string()),
                ("hlsListSize", &list.to_string()),
                ("hls.part_ms", &part_ms.to_string()),
            ],
        );
        let settings = Arc::new(settings.expect("they are in range"));
        let enabled = Arc::clone(&settings);
        let now = Now { mono: epoch(), wall_ms: 1_700_000_000_000 };
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(0));
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let key = StreamKey::new("live", "cam");
        let (source, ingest, details) = (WorkerId(1), Ingest::PULL, StreamDetails::default());
        worker
            .handle_mail(now, ToWorker::StreamUp { stream: STREAM, key, source, ingest, details, settings });
        for kind in ["hls", "hls-fmp4", "cmaf"] {
            if (sinks::find(kind).expect("it is a kind").is_enabled)(&enabled) {
                worker.handle_mail(now, ToWorker::StartSink { kind, stream: STREAM });
            }
        }
        let begin_ms = BEGINS[usize::from(begin) % BEGINS.len()];
        let (there, playlists) = Default::default();
        let (tracks, longest_step) = (tracks(1, 3), Duration::ZERO);
        let last_ms = BTreeMap::new();
        let mut rig = Self {
            worker,
            now,
            request: 0,
            tracks,
            at_ms: begin_ms,
            longest_step,
            last_ms,
            there,
            playlists,
        };
        rig.drain();
        rig
    }

    fn step(&mut self, step: u8, value: u8) {
        let size = usize::from(step >> 6);
        match step & 0x0f {
            0..=7 => self.unit(TrackId::VIDEO, i64::from(value), step & 0x10 != 0, size),
            8..=11 => self.unit(TrackId::AUDIO, i64::from(value % 64), true, 0),
            12 => self.unit(TrackId::VIDEO, 1 << (value % 34), step & 0x10 != 0, size),
            13 => self.tracks = tracks(self.tracks.epoch + 1, 1 + value % 3),
            14 => self.pass(u64::from(value) * 20),
            _ => self.metadata(value),
        }
        self.drain();
    }

    fn unit(&mut self, track: TrackId, after_ms: i64, key_frame: bool, size: usize) {
        let Some((id, config_epoch)) = self.tracks.get(track).map(|track| (track.id, track.epoch)) else {
            return;
        };
        self.at_ms += after_ms;
        let before = self.last_ms.insert(id, self.at_ms).unwrap_or(self.at_ms);
        let after = Duration::from_millis((self.at_ms - before).unsigned_abs());
        // If a segment has a single unit, and no unit follows, that unit gets a duration of 20 ms.
        self.longest_step = self.longest_step.max(after).max(Duration::from_millis(20));
        self.pass(u64::try_from(after_ms).unwrap_or(0).min(1000));
        let payload = PAYLOADS[size].clone();
        let (dts, pts) = (self.at_ms, self.at_ms + i64::from(!key_frame));
        let unit = AccessUnit { track: id, dts, pts, key_frame, config_epoch, payload };
        self.mirrored(unit);
    }

    fn mirrored(&mut self, unit: AccessUnit) {
        let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, Arc::clone(&self.tracks));
        let mirrored =
            MirroredUnit { stream: STREAM, request: self.request, entry, credit: Credit::default() };
        self.worker.handle_mirrored(self.now, mirrored);
    }

    /// Passes an ID3 tag, an invalid tag, script data, or very many tags.
    fn metadata(&mut self, value: u8) {
        let tag = media::id3::text("fuzz", &"x".repeat(usize::from(value) * 100)).expect("it is short");
        let track = if value & 2 == 0 { TrackId::METADATA } else { TrackId::DATA };
        let payload = if value & 1 == 0 { tag } else { tag.slice(1..) };
        for _ in 0..if value & 4 == 0 { 1 } else { 100 } {
            let (dts, pts, payload) = (self.at_ms, self.at_ms, payload.clone());
            let unit = AccessUnit { track, dts, pts, key_frame: false, config_epoch: 0, payload };
            self.mirrored(unit);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono += Duration::from_millis(ms);
        self.now.wall_ms += ms;
        self.worker.handle_timeout(self.now);
    }

    fn end(mut self) {
        self.worker.handle_mail(self.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
        self.drain();
        for (name, playlist) in &self.playlists {
            assert!(playlist.ended && playlist.low_latency.is_none(), "RFC 8216 4.3.3.4: {name}");
        }
    }

    fn drain(&mut self) {
        loop {
            self.worker.finish_turn();
            let mut any = false;
            while let Some(output) = self.worker.poll_output() {
                any = true;
                match output {
                    Output::Others(ToWorker::Blob(mail)) => self.blob(&mail.blob),
                    Output::Worker(_, ToWorker::Mirror { request, .. }) => self.request = request,
                    _ => {}
                }
            }
            if self.worker.next_write(Writers::All).is_none() && !any {
                break;
            }
        }
    }

    fn blob(&mut self, blob: &Blob) {
        if blob.content_type == "application/vnd.apple.mpegurl" {
            let text = std::str::from_utf8(&blob.bytes).expect("RFC 8216 4.1");
            match Playlist::read(&blob.bytes) {
                Ok(Playlist::Media(playlist)) => self.media_playlist(&blob.name, playlist, text),
                Ok(Playlist::Multivariant(_)) => {}
                Err(error) => panic!("{error}: {text}"),
            }
        } else {
            self.there.insert(blob.name.to_string());
        }
        for name in &blob.obsolete.forgets {
            self.there.remove(name);
        }
    }

    fn media_playlist(&mut self, name: &str, playlist: MediaPlaylist, text: &str) {
        let folder = name.rfind('/').map_or("", |slash| &name[..=slash]);
        let is_there = |uri: &str| self.there.contains(&format!("{folder}{uri}"));
        for segment in &playlist.segments {
            check_segment(&playlist, segment, &is_there, text);
        }
        if let Some(low) = &playlist.low_latency {
            check_parts(&playlist, low, self.longest_step, &is_there, text);
        }
        // A delta update is another view of the same playlist, which is checked as a whole.
        if playlist.skipped > 0 || name.contains('?') {
            return;
        }
        if let Some(before) = self.playlists.get(name) {
            check_change(before, &playlist, text);
        }
        self.playlists.insert(name.to_owned(), playlist);
    }
}

fn check_segment(playlist: &MediaPlaylist, segment: &Segment, is_there: &impl Fn(&str) -> bool, text: &str) {
    assert!(segment.gap || is_there(&segment.uri), "6.2.1: {} of {text}", segment.uri);
    assert!(segment.map.as_ref().is_none_or(|map| is_there(&map.uri)), "4.3.2.5: {text}");
    let rounded = (segment.duration + Duration::from_millis(500)).as_secs();
    assert!(rounded <= playlist.target_duration.as_secs(), "4.3.3.1: {text}");
    let parts: Duration = segment.parts.iter().map(|part| part.duration).sum();
    assert!(segment.parts.is_empty() || parts == segment.duration, "8216bis 4.4.4.9: {text}");
}

fn check_parts(
    playlist: &MediaPlaylist,
    low: &LowLatency,
    longest_step: Duration,
    is_there: &impl Fn(&str) -> bool,
    text: &str,
) {
    assert!(low.part_hold_back >= low.part_target * 3, "8216bis 4.4.3.8: {text}");
    assert!(
        low.skip_until.is_none_or(|until| until >= playlist.target_duration * 6),
        "8216bis 4.4.3.8: {text}"
    );
    for part in playlist.segments.iter().chain([&low.open]).flat_map(|segment| &segment.parts) {
        assert!(is_there(&part.uri), "{} of {text}", part.uri);
        // A part may be as long as a single unit, because a unit cannot be cut.
        assert!(part.duration <= low.part_target.max(longest_step), "8216bis 4.4.4.9: {part:?} of {text}");
    }
    assert!(low.hint.as_ref().is_none_or(|hint| !is_there(hint)), "8216bis 4.4.5.3: {text}");
}

fn check_change(before: &MediaPlaylist, now: &MediaPlaylist, text: &str) {
    assert_eq!(now.target_duration, before.target_duration, "6.2.1: {text}");
    let gone = now.media_sequence.checked_sub(before.media_sequence).expect("6.2.2: it never falls");
    let gone = usize::try_from(gone).unwrap_or(usize::MAX).min(before.segments.len());
    let (left, stays) = before.segments.split_at(gone);
    let same = stays.iter().zip(&now.segments).all(|(before, now)| before.uri == now.uri);
    assert!(same && stays.len() <= now.segments.len(), "6.2.1: {text}");
    let discontinuities = left.iter().filter(|segment| segment.discontinuity).count() as u64;
    assert!(now.discontinuity_sequence >= before.discontinuity_sequence + discontinuities, "6.2.2: {text}");
}

/// Makes tracks. One bit of `which` selects the video, another the audio.
fn tracks(epoch: u32, which: u8) -> Arc<Tracks> {
    const H264: &[u8] = &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0];
    const AAC: &[u8] = &[0x11, 0x90];
    let track = |id, codec, config| {
        let config = CodecConfig::read(codec, Bytes::from_static(config)).ok().flatten().expect("it is one");
        Track { epoch, ..Track::new(id, config, Timescale::MILLISECONDS) }
    };
    let video = (which & 1 != 0).then(|| track(TrackId::VIDEO, Codec::H264, H264));
    let audio = (which & 2 != 0).then(|| track(TrackId::AUDIO, Codec::Aac, AAC));
    Arc::new(Tracks::new(epoch, video.into_iter().chain(audio)))
}
