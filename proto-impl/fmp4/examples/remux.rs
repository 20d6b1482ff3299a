//! Writes the samples of a file into another, fragmented at each key frame, or plain with the index first:
//!
//! ```text
//! cargo run -p millstream-fmp4 --example remux -- fragmented in.mp4 out.mp4
//! cargo run -p millstream-fmp4 --example remux -- plain in.mp4 out.mp4
//! ```

use std::error::Error;
use std::fs;

use fmp4::{
    Description, Event, Fragment, FragmentSample, IndexSample, Limits, Reader, Reference, Sample, Sidx,
    Track, TrackIndex, file_head, init_segment, prft, styp,
};

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [form, from, to] = &arguments[..] else { return Err("usage: remux fragmented|plain IN OUT".into()) };
    let (tracks, samples) = read(&fs::read(from)?)?;
    let descriptions: Vec<Description> = tracks.iter().map(|track| describe(track, &samples)).collect();
    let written = match form.as_str() {
        "fragmented" => fragmented(&descriptions, &samples)?,
        _ => plain(&descriptions, &samples)?,
    };
    Ok(fs::write(to, written)?)
}

fn read(bytes: &[u8]) -> Result<(Vec<Track>, Vec<Sample>), Failure> {
    let mut reader = Reader::new(Limits::default());
    let (mut input, mut found, mut samples) = (bytes, Vec::new(), Vec::new());
    while let Some(event) = reader.read(&mut input)? {
        match event {
            Event::Tracks { tracks, .. } => found = tracks,
            Event::Sample(sample) => samples.push(sample),
        }
    }
    reader.finish()?;
    Ok((found, samples))
}

/// Describes a track of the source file, unchanged, together with its first unit.
fn describe(track: &Track, samples: &[Sample]) -> Description {
    let first = samples.iter().find(|sample| sample.track == track.id);
    Description {
        language: track.language.clone(),
        media_start: -track.shift,
        size: track.size,
        first_unit: first.map(|sample| sample.payload.clone()).unwrap_or_default(),
        ..Description::new(track.id, track.config.clone(), track.timescale)
    }
}

fn composition(sample: &Sample) -> i32 {
    i32::try_from(sample.pts - sample.dts).unwrap_or(0)
}

fn fragmented(tracks: &[Description], samples: &[Sample]) -> Result<Vec<u8>, Failure> {
    let (mut fragments, mut bytes_of_fragments) = (Vec::new(), Vec::new());
    for (sequence, group) in (1..).zip(groups(samples)) {
        let mut fragment = Fragment::new(sequence);
        for track in tracks {
            let of_track: Vec<&Sample> = group.iter().filter(|sample| sample.track == track.id).collect();
            let Some(first) = of_track.first() else { continue };
            let time = u64::try_from(first.dts + track.media_start)?;
            let payloads = of_track.iter().map(|sample| FragmentSample {
                duration: sample.duration,
                composition: composition(sample),
                key_frame: sample.key_frame,
                payload: sample.payload.clone(),
                subsamples: Vec::new(),
            });
            fragment.add(track, time, payloads.collect());
        }
        let bytes = fragment.write()?.concat();
        let of_first = group.iter().filter(|sample| Some(sample.track) == tracks.first().map(|one| one.id));
        bytes_of_fragments.push(Reference {
            bytes: u32::try_from(bytes.len())?,
            duration: of_first.map(|sample| sample.duration).sum(),
            key_frame: true,
        });
        fragments.push(bytes);
    }
    let mut out = init_segment(tracks)?.to_vec();
    out.extend_from_slice(&styp());
    if let Some(first) = tracks.first() {
        let timescale = first.timescale.ticks();
        let clock = prft(first.id, 0xe000_0000_0000_0000, 0);
        let references = bytes_of_fragments;
        let offset = clock.len() as u64;
        let sidx = Sidx { track: first.id, timescale, presentation_time: 0, offset, references };
        out.extend_from_slice(&sidx.write());
        out.extend_from_slice(&clock);
    }
    out.extend(fragments.concat());
    Ok(out)
}

/// Divides the samples, in file order, into groups that each begin with a key frame.
fn groups(samples: &[Sample]) -> Vec<&[Sample]> {
    let mut cuts: Vec<usize> =
        (1..samples.len()).filter(|at| samples.get(*at).is_some_and(|sample| sample.key_frame)).collect();
    cuts.push(samples.len());
    let mut from = 0;
    let groups = cuts.into_iter().filter_map(|to| samples.get(std::mem::replace(&mut from, to)..to));
    groups.filter(|group| !group.is_empty()).collect()
}

fn plain(tracks: &[Description], samples: &[Sample]) -> Result<Vec<u8>, Failure> {
    let mut indexes: Vec<TrackIndex> = tracks.iter().cloned().map(TrackIndex::new).collect();
    let mut media = Vec::new();
    for sample in samples {
        if let Some(index) = indexes.iter_mut().find(|index| index.description.id == sample.track) {
            index.push(&IndexSample {
                offset: media.len() as u64,
                size: u32::try_from(sample.payload.len())?,
                duration: sample.duration,
                composition: composition(sample),
                key_frame: sample.key_frame,
            });
            media.extend_from_slice(&sample.payload);
        }
    }
    let mut out = file_head(&indexes, media.len() as u64)?.to_vec();
    out.extend(media);
    Ok(out)
}
