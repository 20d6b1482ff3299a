//! Helpers for the tests of reader and writer.

use bytes::Bytes;
use media::Timescale;
use media::codec::{Codec, CodecConfig};

use crate::{Description, Error, Event, Limits, Reader, Sample, Track};

pub(crate) const FRAGMENTED: &[u8] = include_bytes!("../../../fuzz/corpus/mp4_read/ffmpeg_fragmented");
pub(crate) const PLAIN: &[u8] = include_bytes!("../../../fuzz/corpus/mp4_read/ffmpeg_plain");
pub(crate) const HYBRID: &[u8] = include_bytes!("../../../fuzz/corpus/mp4_read/ffmpeg_hybrid");
pub(crate) const MEDIA_FIRST: &[u8] = include_bytes!("../../../fuzz/corpus/mp4_read/ffmpeg_media_first");

/// avcC record of libx264, 320x180.
const AVCC: &[u8] = &[
    0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac, 0xd9, 0x41, 0x41, 0x9f,
    0x9f, 0x01, 0x10, 0x00, 0x00, 0x03, 0x00, 0x10, 0x00, 0x00, 0x03, 0x03, 0x20, 0xf1, 0x42, 0x99, 0x60,
    0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8, 0xf8, 0x00,
];
const HVCC: &[u8] = include_bytes!("../../../fuzz/corpus/hevc_config/x265_320x180");
const AV1C: &[u8] = include_bytes!("../../../fuzz/corpus/av1_config/svt_320x180");
const VPCC: &[u8] = include_bytes!("../../../fuzz/corpus/vp9_config/libvpx");
const OPUS_HEAD: &[u8] = include_bytes!("../../../fuzz/corpus/vp9_config/opus_head");
const STREAMINFO: &[u8] = include_bytes!("../../../fuzz/corpus/vp9_config/streaminfo");
const MP3_FRAME: &[u8] = include_bytes!("../../../fuzz/corpus/vp9_config/mp3_frame");

/// Returns a configuration of each codec that MP4 supports.
pub(crate) fn configs() -> Vec<CodecConfig> {
    let record =
        |codec, record: &'static [u8]| CodecConfig::read(codec, Bytes::from_static(record)).unwrap().unwrap();
    vec![
        record(Codec::H264, AVCC),
        record(Codec::H265, HVCC),
        record(Codec::Av1, AV1C),
        record(Codec::Vp9, VPCC),
        record(Codec::Vp8, VPCC),
        record(Codec::Aac, &[0x11, 0x90]),
        record(Codec::Opus, OPUS_HEAD),
        record(Codec::Flac, STREAMINFO),
        record(Codec::Ac3, &[]),
        record(Codec::Eac3, &[]),
        CodecConfig::Mp3(media::codec::mp3::Config::of_frame(MP3_FRAME).unwrap()),
    ]
}

/// Describes a track with this configuration, with a first unit for codecs that need it.
pub(crate) fn description(id: u32, config: CodecConfig) -> Description {
    // Beginnings of mono frames that ffmpeg has encoded.
    const AC3: &[u8] = &[0x0b, 0x77, 0x48, 0x0d, 0x0c, 0x40, 0x2f, 0x84];
    const EAC3: &[u8] = &[0x0b, 0x77, 0x00, 0xbf, 0x32, 0x87, 0xc0, 0x00];
    Description {
        first_unit: Bytes::from_static(if config.codec() == Codec::Eac3 { EAC3 } else { AC3 }),
        ..Description::new(id, config, Timescale::new(48_000))
    }
}

pub(crate) fn video(id: u32) -> Description {
    description(id, configs().swap_remove(0))
}

pub(crate) fn audio(id: u32) -> Description {
    description(id, configs().swap_remove(5))
}

/// Returns all events of these pieces, and the final result.
pub(crate) fn events<'a>(
    mut reader: Reader,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Result<(), Error>) {
    let mut events = Vec::new();
    for mut piece in pieces {
        loop {
            match reader.read(&mut piece) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!((reader.read(&mut piece), reader.finish()), (Err(error), Err(error)));
                    return (events, Err(error));
                }
            }
        }
        assert!(piece.is_empty());
    }
    let end = reader.finish();
    (events, end)
}

pub(crate) fn read(file: &[u8]) -> Result<Vec<Event>, Error> {
    let (events, end) = events(Reader::new(Limits::default()), [file]);
    end.map(|()| events)
}

/// Returns the error with which reading a file ends.
pub(crate) fn fault(file: &[u8]) -> Error {
    read(file).unwrap_err()
}

pub(crate) fn samples(events: &[Event]) -> Vec<Sample> {
    let samples = events.iter().filter_map(|event| match event {
        Event::Sample(sample) => Some(sample.clone()),
        Event::Tracks { .. } => None,
    });
    samples.collect()
}

/// Returns the tracks of the first index.
pub(crate) fn tracks(events: &[Event]) -> Vec<Track> {
    let tracks = events.iter().find_map(|event| match event {
        Event::Tracks { tracks, .. } => Some(tracks.clone()),
        Event::Sample(_) => None,
    });
    tracks.unwrap()
}
