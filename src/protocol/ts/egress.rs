//! Access units to transport packets, which every viewer of a stream shares.
//!
//! A unit's packets are complete in themselves. Tables stand before every key frame, before the first unit of an epoch
//! and before a unit every 100 ms, so a prelude is never needed and none is made: it would be written into some
//! viewers' streams and not into others', and could not have the right continuity counters in both. A viewer of a
//! stream with video begins with a key frame, and so with tables and clock; one with audio alone has them within
//! 100 ms.
//!
//! What MPEG-TS cannot carry (AV1, VP8, VP9, FLAC, G.711, kinds of AAC without an ADTS form) is left out, and not
//! announced.

use bytes::Bytes;
use media::codec::{h264, h265, opus};
use media::{CodecConfig, Track, TrackKind, nal};
use mpegts::{CLOCK_MASK, Kind, Muxer, StreamKind, StreamNumber, Unit};
use smallvec::SmallVec;

use super::{TICKS, ZERO};
use crate::hub::{Chosen, Entry, Fit, Package, Parts};

/// Sample rates below this are those of MPEG-2 (ISO/IEC 13818-3).
const MPEG2_RATE: u32 = 32_000;
/// A piece of a payload: what most frames need without an allocation.
type Pieces<'a> = SmallVec<[&'a [u8]; 24]>;

/// A program of the chosen tracks.
#[derive(Debug, Default)]
pub(crate) struct TsPackage {
    muxer: Muxer,
    epoch: Option<u32>,
}

impl TsPackage {
    /// Creates a packager in front of the first unit.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn write(&mut self, entry: &Entry, chosen: &Chosen) -> Option<Bytes> {
        let unit = &entry.unit;
        let tracks = &entry.tracks;
        if self.epoch != Some(chosen.epoch()) {
            self.epoch = Some(chosen.epoch());
            let stream = |track: &Track| Some((stream_number(track, chosen), stream_kind(track)?));
            self.muxer.set_program(chosen.iter().filter_map(stream));
        }
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
        Some(self.muxer.write(&Unit {
            kind,
            number,
            pts,
            dts,
            random_access: unit.key_frame,
            payload: &payload,
        }))
    }
}

impl Package for TsPackage {
    fn fit(&self, track: &Track) -> Fit {
        Fit::of(stream_kind(track).is_some())
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Parts {
        self.write(entry, chosen)
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| Parts::new([bytes]))
            .unwrap_or_default()
    }
}

/// The position of a track in the program: the first of its kind is the first stream of it, whatever its id.
fn stream_number(track: &Track, chosen: &Chosen) -> StreamNumber {
    let kind = if track.kind() == TrackKind::Video { Kind::Video } else { Kind::Audio };
    let number = if chosen.is_first(track) { 0 } else { track.id.index() };
    StreamNumber { kind, number }
}

/// The kind under which a track is announced; `None` when it cannot be carried.
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

/// What precedes an audio frame.
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

/// A coded picture behind start codes: a delimiter first (H.264 in MPEG-TS must have one, ISO/IEC 13818-1 §2.14.1), then the
/// parameter sets, unless the picture has brought its own.
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
