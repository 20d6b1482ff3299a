//! Files for the tests, and a reader for such files that performs no checks.

#![allow(clippy::wildcard_enum_match_arm, reason = "the tests use few codecs")]

use bytes::Bytes;
use media::codec::Codec;
use media::{CodecConfig, Timescale, Track, TrackId};
use wire::Reader;

use crate::ebml::{Head, id, read_element, read_uint, read_vint};
use crate::{Block, Description, Indexed, Indexer};

/// VP9 key frame of 1280 x 720 pixels in BT.2020.
const VP9_KEY: &[u8] = &[0x82, 0x49, 0x83, 0x42, 0x20, 0x4f, 0xf0, 0x2c, 0xf0];
const VP9_RECORD: &[u8] = &[1, 0, 0, 0, 0, 0x0b, 0x82, 9, 16, 9, 0, 0];
const VP8_KEY: &[u8] = &[0x50, 0x42, 0x00, 0x9d, 0x01, 0x2a, 0x80, 0x42, 0x68, 0x81, 0x00];
const AV1_RECORD: &[u8] =
    &[0x81, 0x00, 0x0c, 0x00, 0x0a, 0x0b, 0x02, 0x00, 0x00, 0x05, 0x21, 0xe7, 0xf6, 0x60, 0x17, 0xc0, 0x02];
const OPUS_RECORD: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0";

pub(crate) fn config(codec: Codec) -> CodecConfig {
    let record: &'static [u8] = match codec {
        Codec::Vp9 => VP9_RECORD,
        Codec::Av1 => AV1_RECORD,
        Codec::Opus => OPUS_RECORD,
        _ => &[],
    };
    CodecConfig::read(codec, Bytes::from_static(record)).unwrap().unwrap()
}

pub(crate) fn description(number: u8, codec: Codec) -> Description {
    let track = Track::new(TrackId::VIDEO, config(codec), Timescale::MILLISECONDS);
    let first_unit = match codec {
        Codec::Vp9 => VP9_KEY,
        Codec::Vp8 => VP8_KEY,
        _ => &[],
    };
    Description { first_unit: Bytes::from_static(first_unit), ..Description::of_track(number, &track) }
}

pub(crate) fn block(track: u8, at_ms: i64, key_frame: bool) -> Block {
    Block { track, at_ms, key_frame, frame: format!("frame of {track} at {at_ms}").into() }
}

/// Returns the blocks of clusters or of a whole file, each with the number of its cluster.
pub(crate) fn blocks(bytes: &[u8]) -> Vec<(usize, Block)> {
    let mut reader = Reader::new(bytes);
    let (mut found, mut cluster) = (Vec::new(), 0);
    while !reader.is_empty() {
        let head = Head::read(reader.clone().rest()).unwrap();
        if head.id == id::SEGMENT {
            reader.take(head.bytes).unwrap();
            continue;
        }
        let (id, body) = read_element(&mut reader).unwrap();
        if id == id::CLUSTER {
            let mut body = Reader::new(body);
            let (timestamp, time) = read_element(&mut body).unwrap();
            assert_eq!(timestamp, id::TIMESTAMP);
            let time = i64::try_from(read_uint(time).unwrap()).unwrap();
            while !body.is_empty() {
                let (id, body) = read_element(&mut body).unwrap();
                assert_eq!(id, id::SIMPLE_BLOCK);
                let mut body = Reader::new(body);
                let (track, _) = read_vint(&mut body).unwrap();
                let at_ms = time + i64::from(i16::from_be_bytes(body.array().unwrap()));
                let flags = body.u8().unwrap();
                assert_eq!(flags & 0x7f, 0, "no lacing");
                let (track, frame) = (u8::try_from(track).unwrap(), Bytes::copy_from_slice(body.rest()));
                found.push((cluster, Block { track, at_ms, key_frame: flags != 0, frame }));
            }
            cluster += 1;
        }
    }
    found
}

/// Returns the result of an indexer, and the number of its reads.
pub(crate) fn index(file: &[u8]) -> (Result<Indexed, crate::Error>, usize) {
    let mut indexer = Indexer::new(file.len() as u64);
    let mut asked = 0;
    while let Some((offset, length)) = indexer.wanted() {
        asked += 1;
        assert!(asked <= file.len() / 2 + 16, "it does not go on");
        let from = usize::try_from(offset).unwrap().min(file.len());
        let to = from.saturating_add(length).min(file.len());
        if let Err(error) = indexer.take(&Bytes::copy_from_slice(&file[from..to])) {
            return (Err(error), asked);
        }
    }
    (indexer.finish(), asked)
}
