//! Makes an MP4 file with the index first from the H.264 and AAC in a transport stream, without decoding:
//!
//! ```text
//! cargo run -p millstream-fmp4 --example ts_to_mp4 -- in.ts out.mp4
//! ```

use std::error::Error;
use std::fs;

use fmp4::media::codec::{CodecConfig, aac, h264};
use fmp4::media::nal::{self, Nals};
use fmp4::media::{Timescale, Unwrap};
use fmp4::{Bytes, Description, IndexSample, TrackIndex, file_head};
use mpegts::{CLOCK_BITS, Demuxer, Event, Pes, StreamKind, TICKS_PER_SECOND};

type Failure = Box<dyn Error>;

/// Unit with its times in ticks of 90 kHz.
struct Unit {
    dts: i64,
    pts: i64,
    key_frame: bool,
    payload: Bytes,
}

/// A stream of the program.
struct Track {
    stream: mpegts::Stream,
    config: Option<CodecConfig>,
    clock: Unwrap,
    units: Vec<Unit>,
}

impl Track {
    fn handle_pes(&mut self, pes: &Pes) -> Result<(), Failure> {
        let Some(pts) = pes.pts else { return Ok(()) };
        let dts = self.clock.unwrap(pes.dts.unwrap_or(pts));
        // The presentation time is unwrapped to the value nearest to the decoding time, even if only one of
        // the two has wrapped.
        let pts = self.clock.clone().unwrap(pts);
        if self.stream.kind == StreamKind::H264 {
            self.handle_picture(dts, pts, &pes.payload)
        } else {
            self.handle_frames(pts, &pes.payload)
        }
    }

    fn handle_picture(&mut self, dts: i64, pts: i64, annex_b: &[u8]) -> Result<(), Failure> {
        let payload = nal::to_lengths(annex_b);
        let of_type = |kind| {
            let nals = Nals::new(&payload, 4).flatten();
            nals.filter(|nal| h264::nal_type(nal) == kind).collect::<Vec<_>>()
        };
        let sets = of_type(h264::NAL_SPS);
        if self.config.is_none() && !sets.is_empty() {
            let config = h264::Config::of_sets(&sets, &of_type(h264::NAL_PPS))?;
            self.config = Some(CodecConfig::H264(config));
        }
        let key_frame = !of_type(h264::NAL_IDR).is_empty();
        self.units.push(Unit { dts, pts, key_frame, payload });
        Ok(())
    }

    /// Handles a PES packet of AAC. It contains several frames, each with an ADTS header.
    fn handle_frames(&mut self, mut pts: i64, mut frames: &[u8]) -> Result<(), Failure> {
        while !frames.is_empty() {
            let adts = aac::Adts::read(frames)?;
            if self.config.is_none() {
                self.config = Some(CodecConfig::Aac(aac::Config::of_adts(&adts)?));
            }
            let (frame, rest) = frames.split_at_checked(adts.frame_bytes).ok_or("a frame is cut")?;
            let payload = Bytes::copy_from_slice(frame.get(adts.header_bytes..).unwrap_or_default());
            self.units.push(Unit { dts: pts, pts, key_frame: true, payload });
            pts += i64::from(aac::FRAME_SAMPLES * TICKS_PER_SECOND / adts.sample_rate);
            frames = rest;
        }
        Ok(())
    }

    /// Writes the track into an index and appends its media to `media`. `zero` is the time at which the file
    /// begins.
    fn write(&self, id: u32, zero: i64, media: &mut Vec<u8>) -> Result<Option<TrackIndex>, Failure> {
        let (Some(config), Some(first)) = (&self.config, self.units.first()) else { return Ok(None) };
        let mut description = Description::new(id, config.clone(), Timescale::new(TICKS_PER_SECOND));
        description.media_start = zero - first.dts;
        let mut index = TrackIndex::new(description);
        let mut duration = 0;
        for (at, unit) in self.units.iter().enumerate() {
            if let Some(next) = self.units.get(at + 1) {
                duration = u32::try_from(next.dts - unit.dts).unwrap_or(0);
            }
            index.push(&IndexSample {
                offset: media.len() as u64,
                size: u32::try_from(unit.payload.len())?,
                duration,
                composition: i32::try_from(unit.pts - unit.dts)?,
                key_frame: unit.key_frame,
            });
            media.extend_from_slice(&unit.payload);
        }
        Ok(Some(index))
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &arguments[..] else { return Err("usage: ts_to_mp4 IN OUT".into()) };
    let (mut demuxer, mut tracks) = (Demuxer::new(), Vec::<Track>::new());
    let bytes = fs::read(from)?;
    let mut input = &bytes[..];
    let mut is_at_end = false;
    loop {
        match demuxer.read(&mut input) {
            Some(Event::Program(program)) => {
                for stream in program.streams {
                    let is_new = !tracks.iter().any(|track| track.stream == stream);
                    if is_new && matches!(stream.kind, StreamKind::H264 | StreamKind::AacAdts) {
                        let clock = Unwrap::new(CLOCK_BITS);
                        tracks.push(Track { stream, config: None, clock, units: Vec::new() });
                    }
                }
            }
            Some(Event::Pes(pes)) => {
                if let Some(track) = tracks.iter_mut().find(|track| track.stream == pes.stream) {
                    track.handle_pes(&pes)?;
                }
            }
            Some(Event::Splice(_)) => {}
            // The last packet of a stream ends with the stream.
            None if !std::mem::replace(&mut is_at_end, true) => demuxer.finish(),
            None => break,
        }
    }
    let zero = tracks.iter().flat_map(|track| track.units.iter().map(|unit| unit.pts)).min().unwrap_or(0);
    let (mut media, mut indexes) = (Vec::new(), Vec::new());
    for (id, track) in (1..).zip(&tracks) {
        indexes.extend(track.write(id, zero, &mut media)?);
    }
    let mut file = file_head(&indexes, media.len() as u64)?.to_vec();
    file.extend(media);
    Ok(fs::write(to, file)?)
}
