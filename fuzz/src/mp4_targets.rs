//! MP4 files, read and written.

use bytes::Bytes;
use fmp4::{
    Description, Event, Fragment, FragmentSample, IndexSample, Indexed, Indexer, Limits, PlainHead, Reader,
    Sample, TrackIndex, file_head, init_segment, plain_head,
};
use media::codec::{CodecConfig, mp3, vp8};
use media::{Timescale, TrackKind};

use crate::splits::{INPUT_MAX, pieces};

/// The limits of the reader, small enough for the fuzzer's files to reach.
const LIMITS: Limits = Limits { sample_bytes: 4096, moov_bytes: 16 * 1024, moof_bytes: 4096, tracks: 4 };

/// Reads a file. The result does not depend on how the file is cut, and stays within the limits; no more is held
/// than has arrived. If the media precedes the index, the index is read first.
pub fn mp4_read(data: &[u8]) {
    let file = data.get(..INPUT_MAX).unwrap_or(data);
    let seed = file.iter().fold(0u8, |seed, byte| seed.rotate_left(3) ^ byte);
    let whole = read(Reader::new(LIMITS), &[file]);
    assert_eq!(whole, read(Reader::new(LIMITS), &pieces(seed, file)), "the cuts changed the meaning");
    if let Err(fmp4::Error::MediaBeforeIndex { index_at }) = whole.1 {
        let at = usize::try_from(index_at).unwrap_or(usize::MAX);
        let Some(moov) = file.get(at..) else { return };
        let Ok(reader) = Reader::with_moov(moov, LIMITS) else { return };
        let Some(media) = reader.next_offset().and_then(|at| file.get(usize::try_from(at).ok()?..)) else {
            return;
        };
        let _ = read(reader, &[media]);
    }
}

type Outcome = (Vec<Event>, Result<(), fmp4::Error>);

fn read(mut reader: Reader, pieces: &[&[u8]]) -> Outcome {
    let mut events = Vec::new();
    let (mut given, mut taken) = (0, 0);
    for piece in pieces {
        let mut input = *piece;
        given += input.len();
        loop {
            let event = reader.read(&mut input);
            assert!(reader.held_bytes() <= 64 + 2 * given, "more is held than has come");
            match event {
                Ok(Some(event)) => {
                    taken += check(&event);
                    events.push(event);
                }
                Ok(None) => break,
                Err(error) => return (events, Err(error)),
            }
        }
        assert!(input.is_empty());
    }
    assert!(taken <= given);
    let end = reader.finish();
    (events, end)
}

/// Checks an event against the limits. Returns its number of payload bytes.
fn check(event: &Event) -> usize {
    match event {
        Event::Tracks { tracks, others } => {
            assert!(tracks.len() + others.len() <= LIMITS.tracks);
            0
        }
        Event::Sample(sample) => {
            assert!((1..=LIMITS.sample_bytes as usize).contains(&sample.payload.len()));
            sample.payload.len()
        }
    }
}

/// Indexes a recorded file as a crash may have left it. The indexer uses only the bytes that it asked for, the
/// index lies within the file, and the plain file that it describes has the same samples as the fragments.
pub fn mp4_index(data: &[u8]) {
    let file = data.get(..INPUT_MAX).unwrap_or(data);
    let mut indexer = Indexer::new(file.len() as u64, LIMITS);
    let mut asked = 0;
    while let Some((offset, length)) = indexer.wanted() {
        asked += 1;
        // Each box has eight bytes at least and is requested at most twice; the first samples are requested as
        // well.
        assert!(asked <= file.len() / 4 + 16, "it does not go on");
        let at = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let end = at.saturating_add(length).min(file.len());
        if indexer.take(&Bytes::copy_from_slice(&file[at..end])).is_err() {
            return;
        }
    }
    let Ok(indexed) = indexer.finish() else { return };
    let end = usize::try_from(indexed.end).expect("within the file");
    let media = file.get(usize::try_from(indexed.moov_at).expect("within the file")..end).expect("in order");
    check_plain(file, &indexed, media);
}

fn check_plain(file: &[u8], indexed: &Indexed, media: &[u8]) {
    let Some(from) = file.first_chunk().map(|length| u32::from_be_bytes(*length)) else { return };
    if file.get(4..8) != Some(b"ftyp") || u64::from(from) > indexed.moov_at || indexed.tracks.is_empty() {
        return;
    }
    let Ok(PlainHead::Fits(head)) = plain_head(indexed, from.into(), 0) else { return };
    assert_eq!(head.len() as u64, indexed.moov_at - u64::from(from), "it fills the room");
    let plain = [file.get(..from as usize).unwrap_or_default(), &head, media].concat();
    let limits = Limits { moov_bytes: u32::MAX, sample_bytes: u32::MAX, ..LIMITS };
    let fragmented = read(Reader::new(limits), &[&file[..file.len().min(indexed.end as usize)]]);
    // Compares both forms only if the fragments can be read. The fragments may be out of order although the tables
    // are readable. A reader of fragments also stops at the zeros that a crash leaves, because they look like a box
    // that extends to the end of the file.
    if fragmented.1.is_ok() && !fragmented.0.is_empty() {
        let plain = read(Reader::new(limits), &[&plain]);
        assert_eq!(payloads(&plain.0), payloads(&fragmented.0));
    }
}

/// Returns the payloads of each track's samples.
fn payloads(events: &[Event]) -> std::collections::BTreeMap<u32, Vec<Bytes>> {
    let mut payloads = std::collections::BTreeMap::<u32, Vec<Bytes>>::new();
    for event in events {
        if let Event::Sample(sample) = event {
            payloads.entry(sample.track).or_default().push(sample.payload.clone());
        }
    }
    payloads
}

/// Makes samples from the input, six bytes each, and writes them as fragments and as a plain file. Both must contain
/// the same samples when they are read.
pub fn mp4_write(data: &[u8]) {
    let data = data.get(..6 * 500).unwrap_or(data);
    let tracks = [
        Description::new(1, CodecConfig::Vp8(vp8::Config::default()), Timescale::new(90_000)),
        Description {
            media_start: data.first().copied().unwrap_or(0).into(),
            ..Description::new(
                2,
                CodecConfig::Mp3(mp3::Config { sample_rate: 48_000, channels: 2 }),
                Timescale::new(48_000),
            )
        },
    ];
    let made: Vec<Made> = data.as_chunks::<6>().0.iter().map(Made::of).collect();
    let fragments = made.split_inclusive(|made| made.ends_fragment);
    let mut file = init_segment(&tracks).expect("two codecs of MP4").to_vec();
    let mut times = [0u64; 2];
    let mut expected = Vec::new();
    for (sequence, group) in (1..).zip(fragments) {
        let mut fragment = Fragment::new(sequence);
        for (track, time) in tracks.iter().zip(&mut times) {
            let of_track = group.iter().filter(|made| made.track == track.id);
            let samples: Vec<FragmentSample> = of_track.clone().map(Made::sample).collect();
            fragment.add(track, *time, samples);
            for made in of_track {
                expected.push(made.expected(track, *time));
                *time += u64::from(made.duration);
            }
        }
        file.extend(fragment.write().expect("small").concat());
    }
    assert_eq!(samples(&file), expected);
    expected.sort_by_key(|sample| sample.track);
    let mut plain = samples(&plain(&tracks, &made));
    plain.sort_by_key(|sample| sample.track);
    assert!(plain.iter().map(times_and_payload).eq(expected.iter().map(times_and_payload)));
}

/// Returns all of a sample except the key frame flag, because a plain file cannot express that no picture is a key
/// frame.
fn times_and_payload(sample: &Sample) -> (u32, i64, i64, u32, Bytes) {
    (sample.track, sample.dts, sample.pts, sample.duration, sample.payload.clone())
}

#[derive(Debug)]
struct Made {
    track: u32,
    duration: u32,
    composition: i32,
    key_frame: bool,
    ends_fragment: bool,
    payload: Bytes,
}

impl Made {
    fn of(bytes: &[u8; 6]) -> Self {
        let [flags, a, b, c, d, size] = *bytes;
        Self {
            track: 1 + u32::from(flags & 1),
            duration: u16::from_be_bytes([a, b]).into(),
            composition: i16::from_be_bytes([c, d]).into(),
            key_frame: flags & 2 != 0,
            ends_fragment: flags & 4 != 0,
            payload: vec![size; 1 + usize::from(size)].into(),
        }
    }

    fn sample(&self) -> FragmentSample {
        let Self { duration, composition, key_frame, .. } = *self;
        let (payload, subsamples) = (self.payload.clone(), Vec::new());
        FragmentSample { duration, composition, key_frame, payload, subsamples }
    }

    fn expected(&self, track: &Description, time: u64) -> Sample {
        let dts = time as i64 - track.media_start;
        Sample {
            track: track.id,
            dts,
            pts: dts + i64::from(self.composition),
            duration: self.duration,
            key_frame: self.key_frame && track.config.codec().kind() == TrackKind::Video,
            payload: self.payload.clone(),
        }
    }
}

fn plain(tracks: &[Description; 2], made: &[Made]) -> Vec<u8> {
    let mut indexes = tracks.clone().map(TrackIndex::new);
    let mut media = Vec::new();
    for made in made {
        let index = indexes.iter_mut().find(|index| index.description.id == made.track);
        let Made { duration, composition, key_frame, .. } = *made;
        let size = made.payload.len() as u32;
        let offset = media.len() as u64;
        index.expect("one of two").push(&IndexSample { offset, size, duration, composition, key_frame });
        media.extend_from_slice(&made.payload);
    }
    let mut file = file_head(&indexes, media.len() as u64).expect("small").to_vec();
    file.extend(media);
    file
}

fn samples(file: &[u8]) -> Vec<Sample> {
    let mut reader = Reader::new(Limits::default());
    let (mut input, mut samples) = (file, Vec::new());
    while let Some(event) = reader.read(&mut input).expect("our own file") {
        if let Event::Sample(sample) = event {
            samples.push(sample);
        }
    }
    reader.finish().expect("a whole file");
    samples
}
