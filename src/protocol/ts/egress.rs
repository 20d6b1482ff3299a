//! Converts access units to MPEG-TS packets: those shared by all viewers of a stream, and those of segments.
//!
//! **Viewers** ([`TsPackage::live`]). Each unit of the ring has packets of its own, or none: audio frames wait for each other, 70 ms at
//! most ([`Packing::LIVE`]), and the last frame of a PES packet brings the whole packet. A viewer that joins between them gets a few frames
//! from before, and none twice or in part. Tables precede every key frame, the first unit of an epoch, and a unit every 400 ms, each time
//! with a new prelude. The prelude is a copy of the tables with their counters: a later viewer begins with it, and continues with the next
//! tables like all others; a viewer that begins at the same unit gets the tables twice, as ISO/IEC 13818-1 §2.4.3.3 allows.
//!
//! **Segments** ([`TsPackage::segments`]) are made as a whole: their owner determines where they begin ([`TsPackage::begin`]) and end
//! ([`TsPackage::flush`]).
//!
//! Codecs that MPEG-TS cannot carry (AV1, VP8, VP9, FLAC, G.711, kinds of AAC without an ADTS form) are left out, and not
//! announced.

use bytes::Bytes;
use media::codec::{h264, h265, opus};
use media::{CodecConfig, Track, TrackKind, nal};
use mpegts::{CLOCK_MASK, Kind, Muxer, Packing, StreamKind, StreamNumber, Unit};
use smallvec::SmallVec;

use super::{TICKS, ZERO};
use crate::hub::{Chosen, Entry, Fit, Package, Parts};

/// Sample rates below this are MPEG-2 audio (ISO/IEC 13818-3).
const MPEG2_RATE: u32 = 32_000;
/// Slices of a payload; as many as most frames need without an allocation.
type Pieces<'a> = SmallVec<[&'a [u8]; 24]>;

/// Interval of the tables in milliseconds: with a frame on top, less than the 500 ms of ETSI TR 101 290.
const TABLES_MS: i64 = 400;

/// A program of the chosen tracks.
#[derive(Debug)]
pub(crate) struct TsPackage {
    muxer: Muxer,
    epoch: Option<u32>,
}

impl TsPackage {
    /// Makes a package for viewers, which share packets.
    pub(crate) fn live() -> Self {
        Self { muxer: Muxer::with_packing(Packing::LIVE), epoch: None }
    }

    /// Makes a package for segments, which are sent whole.
    pub(crate) fn segments() -> Self {
        Self { muxer: Muxer::with_packing(Packing::SEGMENT), epoch: None }
    }

    /// Makes a package that writes the packets of every unit at once.
    pub(crate) fn at_once() -> Self {
        Self { muxer: Muxer::with_packing(Packing::NONE), epoch: None }
    }

    /// Begins a segment, with the tables.
    pub(crate) const fn begin(&mut self) {
        self.muxer.begin();
    }

    /// Returns the packets of frames that still wait for others.
    pub(crate) fn flush(&mut self) -> Bytes {
        self.muxer.flush()
    }

    /// Applies the chosen tracks.
    fn follow(&mut self, chosen: &Chosen) {
        if self.epoch != Some(chosen.epoch()) {
            self.epoch = Some(chosen.epoch());
            let stream = |track: &Track| Some((stream_number(track, chosen), stream_kind(track)?));
            self.muxer.set_program(chosen.iter().filter_map(stream));
        }
    }

    /// Returns the packets of a unit, with those of frames that have waited for it; `None` if it cannot be carried.
    pub(crate) fn write(&mut self, entry: &Entry, chosen: &Chosen) -> Option<Bytes> {
        let unit = &entry.unit;
        let tracks = &entry.tracks;
        self.follow(chosen);
        let track = tracks.get(unit.track)?;
        stream_kind(track)?;
        let head = audio_head(&track.config, &unit.payload);
        let mut payload = Pieces::new();
        match &track.config {
            CodecConfig::H264(config) => {
                let sets = config.parameter_sets().filter(|_| unit.key_frame);
                let is = |kind| move |nal: &[u8]| h264::nal_type(nal) == kind;
                picture(&h264::AUD, sets, &unit.payload, is(h264::NAL_AUD), is(h264::NAL_SPS), &mut payload);
            }
            CodecConfig::H265(config) => {
                let sets = config.parameter_sets().filter(|_| unit.key_frame);
                let is = |kind| move |nal: &[u8]| h265::nal_type(nal) == Some(kind);
                picture(&h265::AUD, sets, &unit.payload, is(h265::NAL_AUD), is(h265::NAL_SPS), &mut payload);
            }
            CodecConfig::Aac(_)
            | CodecConfig::Opus(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_) => payload.extend([&head[..], &unit.payload]),
            CodecConfig::Av1(_)
            | CodecConfig::Vp9(_)
            | CodecConfig::Vp8(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => return None,
        }
        let time = |ticks: i64| {
            let ticks = track.timescale.convert(ticks, TICKS);
            // Two's complement: what lies before zero lies before the end of the clock.
            (ticks as u64).wrapping_add(ZERO) & CLOCK_MASK
        };
        let StreamNumber { kind, number } = stream_number(track, chosen);
        let (pts, dts) = (time(unit.pts), time(unit.dts));
        let made = Unit { kind, number, pts, dts, random_access: unit.key_frame, payload: &payload };
        if kind == Kind::Video {
            return Some(self.muxer.write(&made));
        }
        let duration = track.config.samples_of(&unit.payload).and_then(|(samples, rate)| {
            samples.checked_mul(u64::from(mpegts::TICKS_PER_SECOND))?.checked_div(u64::from(rate))
        });
        Some(self.muxer.pack(&made, duration.unwrap_or(0)))
    }
}

impl Package for TsPackage {
    fn fit(&self, track: &Track) -> Fit {
        fit(track)
    }

    fn prelude(&mut self, chosen: &Chosen, _dts_ms: i64) -> Parts {
        self.follow(chosen);
        self.muxer.begin();
        Parts::new([self.muxer.tables()])
    }

    fn prelude_age_ms(&self) -> i64 {
        TABLES_MS
    }

    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Parts {
        self.write(entry, chosen)
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| Parts::new([bytes]))
            .unwrap_or_default()
    }

    fn finish(&mut self) -> Parts {
        Parts::new([self.flush()])
    }
}

/// Returns how well MPEG-TS carries a track.
pub(crate) fn fit(track: &Track) -> Fit {
    Fit::of(stream_kind(track).is_some())
}

/// Returns the position of a track in the program: the first track of a kind is its first stream, whatever its id.
fn stream_number(track: &Track, chosen: &Chosen) -> StreamNumber {
    let kind = if track.kind() == TrackKind::Video { Kind::Video } else { Kind::Audio };
    let number = if chosen.is_first(track) { 0 } else { track.id.index() };
    StreamNumber { kind, number }
}

/// Returns the stream type of a track; `None` if it cannot be carried.
fn stream_kind(track: &Track) -> Option<StreamKind> {
    Some(match &track.config {
        CodecConfig::H264(_) => StreamKind::H264,
        CodecConfig::H265(_) => StreamKind::H265,
        CodecConfig::Aac(config) => {
            config.adts(1)?;
            StreamKind::AacAdts
        }
        CodecConfig::Opus(config) if config.channels <= 8 => StreamKind::Opus { channels: config.channels },
        CodecConfig::Mp3(config) => StreamKind::MpegAudio { mpeg2: config.sample_rate < MPEG2_RATE },
        CodecConfig::Ac3(_) => StreamKind::Ac3,
        CodecConfig::Eac3(_) => StreamKind::Eac3,
        CodecConfig::Opus(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => return None,
    })
}

/// Returns the bytes before an audio frame.
fn audio_head(config: &CodecConfig, payload: &[u8]) -> SmallVec<[u8; 16]> {
    match config {
        CodecConfig::Aac(config) => {
            config.adts(payload.len()).map(|head| SmallVec::from_slice(&head)).unwrap_or_default()
        }
        CodecConfig::Opus(_) => SmallVec::from_vec(opus::Control::write(payload.len())),
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => SmallVec::new(),
    }
}

/// Assembles a coded picture with start codes: first a delimiter (which H.264 in MPEG-TS must have, ISO/IEC 13818-1 §2.14.1), then the
/// parameter sets, unless the picture contains its own.
fn picture<'a>(
    delimiter: &'a [u8],
    sets: impl Iterator<Item = &'a [u8]>,
    payload: &'a [u8],
    is_delimiter: impl Fn(&[u8]) -> bool,
    is_set: impl Fn(&[u8]) -> bool,
    pieces: &mut Pieces<'a>,
) {
    let nals = || nal::Nals::new(payload, 4).flatten();
    let has_sets = nals().any(is_set);
    let own = nals().filter(|nal| !is_delimiter(nal));
    let sets = sets.filter(|_| !has_sets);
    for nal in std::iter::once(delimiter).chain(sets).chain(own) {
        pieces.extend([&nal::START_CODE[..], nal]);
    }
}
