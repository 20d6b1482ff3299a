//! Cuts a file in the same way as a live stream. Writes its segments and its playlist into a folder, from which
//! any file server can serve players. The file must have its index at the beginning (`-movflags +faststart` of
//! ffmpeg).
//!
//! ```text
//! cargo run -p millstream-hls --example segments -- file.mp4 ts folder
//! cargo run -p millstream-hls --example segments -- file.mp4 fmp4 folder
//! ffplay folder/live.m3u8
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use fmp4::{Event, Limits, Reader};
use hls::media::{AccessUnit, Track, TrackId, TrackKind};
use hls::segmenter::{Cut, Mp4Segmenter, Names, Rules, Start, Suffix, Timed, TsSegmenter};

type Failure = Box<dyn Error>;

/// Wall clock at the beginning of the stream, in milliseconds of Unix time. Dates and segment numbers are
/// derived from it.
const BEGIN_MS: u64 = 1_800_000_000_000;
/// The rules of the playlist. `list_size` is so large that the playlist keeps all segments of the
/// file.
const RULES: Rules = Rules {
    segment_ms: 2000,
    list_size: 10_000,
    part_ms: 300,
    fragment_ms: None,
    suffix: Suffix::NINE_DIGITS,
};

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, form, folder] = &arguments[..] else {
        return Err("usage: segments FILE.mp4 ts|fmp4 FOLDER".into());
    };
    let stream = Stream::read(&fs::read(file)?)?;
    fs::create_dir_all(folder)?;
    match form.as_str() {
        "ts" => stream.cut_ts(Path::new(folder)),
        _ => stream.cut_fmp4(Path::new(folder)),
    }
}

/// A file as a live stream: units in decoding order.
struct Stream {
    tracks: Vec<Track>,
    units: Vec<(i64, AccessUnit)>,
}

impl Stream {
    /// Reads the first video track and the first audio track of a file.
    fn read(mut bytes: &[u8]) -> Result<Self, Failure> {
        let mut reader = Reader::new(Limits::default());
        let (mut tracks, mut numbers, mut units) = (Vec::<Track>::new(), Vec::new(), Vec::new());
        while let Some(event) = reader.read(&mut bytes)? {
            match event {
                Event::Tracks { tracks: found, .. } => {
                    for (kind, id) in [(TrackKind::Video, TrackId::VIDEO), (TrackKind::Audio, TrackId::AUDIO)]
                    {
                        let is_of = |track: &&fmp4::Track| track.config.codec().kind() == kind;
                        let Some(track) = found.iter().find(is_of) else { continue };
                        numbers.push((track.id, id));
                        tracks.push(Track::new(id, track.config.clone(), track.timescale));
                    }
                }
                Event::Sample(sample) => {
                    let Some((_, id)) = numbers.iter().find(|(number, _)| *number == sample.track) else {
                        continue;
                    };
                    let scale = tracks.iter().find(|track| track.id == *id).map(|track| track.timescale);
                    let unit = AccessUnit {
                        track: *id,
                        dts: sample.dts,
                        pts: sample.pts,
                        key_frame: sample.key_frame,
                        config_epoch: 1,
                        payload: sample.payload,
                    };
                    units.push((scale.map_or(0, |scale| scale.to_ms(sample.dts)), unit));
                }
            }
        }
        reader.finish()?;
        units.sort_by_key(|(dts_ms, _)| *dts_ms);
        Ok(Self { tracks, units })
    }

    fn timed(&self) -> impl Iterator<Item = Timed<'_>> {
        let begin_ms = i64::try_from(BEGIN_MS).unwrap_or(0);
        self.units.iter().map(move |(dts_ms, unit)| Timed {
            unit,
            dts_ms: *dts_ms,
            date_ms: begin_ms + dts_ms,
        })
    }

    fn cut_ts(&self, folder: &Path) -> Result<(), Failure> {
        let mut segmenter = TsSegmenter::new("live", &RULES, Start::at_unix_ms(BEGIN_MS));
        segmenter.set_tracks(self.tracks.clone(), 1);
        let keep = |cut: Option<Cut>| cut.map_or(Ok(()), |cut| fs::write(folder.join(cut.uri), cut.bytes));
        for timed in self.timed() {
            keep(segmenter.unit(&timed))?;
        }
        keep(segmenter.finish(true))?;
        let playlist = segmenter.playlist().ok_or("there was nothing to cut")?;
        Ok(fs::write(folder.join("live.m3u8"), playlist.to_string())?)
    }

    fn cut_fmp4(&self, folder: &Path) -> Result<(), Failure> {
        let names = Names { base: "live".to_owned(), ending: "m4s", run: None };
        // The first pictures may have slightly negative decode times.
        let shift_ms = 1000;
        let mut segmenter = Mp4Segmenter::new(names, &RULES, false, (Start::at_unix_ms(BEGIN_MS), shift_ms));
        segmenter.set_tracks(self.tracks.clone(), 1);
        for timed in self.timed() {
            segmenter.unit(&timed);
        }
        segmenter.finish(true);
        // The playlists of renditions must have the same target duration, which the program
        // chooses. Here there is only one playlist.
        segmenter.adopt(segmenter.window().wanted_target());
        for made in segmenter.take_made() {
            fs::write(folder.join(made.name), made.bytes)?;
        }
        Ok(fs::write(folder.join("live.m3u8"), segmenter.playlist().to_string())?)
    }
}
