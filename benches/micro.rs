//! The hot steps alone, in wall time for people: chunks to messages, a unit to bytes, the ring to many viewers, a
//! request to its parts.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crypto::Seed;
use flv::VideoTag;
use flv::tag::{FrameType, VideoPacket};
use media::codec::{aac, h264};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, Tracks};
use millstream::http;
use millstream::hub::{Cursor, Entry, Packager, Ring, RingLimits};
use millstream::protocol::Format;
use netsim::{MediaSource, SyntheticUnit};
use rtmp::chunk::{Limits, MessageHead, Reader, write_message};
use rtmp::{CHUNK_SIZE_OUT, Config, MediaKind};
use wire::Gather;

/// Media of one second.
const FRAMES: usize = 77;
/// What a read from a socket brings at most.
const READ_BYTES: usize = 64 * 1024;

fn second_of_media() -> Vec<SyntheticUnit> {
    MediaSource::new(&Seed::from_number(1)).sizes(8850, 340).take(FRAMES).collect()
}

fn tracks() -> Arc<Tracks> {
    let video = h264::Config::read(MediaSource::video_config()).ok().map(|config| Track {
        id: TrackId::VIDEO,
        config: CodecConfig::H264(config),
        extra: None,
        timescale: Timescale::MILLISECONDS,
    });
    let audio = aac::Config::read(MediaSource::audio_config()).ok().map(|config| Track {
        id: TrackId::AUDIO,
        config: CodecConfig::Aac(config),
        extra: None,
        timescale: Timescale::MILLISECONDS,
    });
    Arc::new(Tracks { epoch: 1, video, audio, metadata: None })
}

fn entry(unit: &SyntheticUnit, tracks: &Arc<Tracks>) -> Entry {
    let dts = i64::try_from(unit.dts_ms).unwrap_or(0);
    let unit = AccessUnit {
        track: if unit.is_video { TrackId::VIDEO } else { TrackId::AUDIO },
        dts,
        pts: dts,
        key_frame: unit.is_video && unit.key_frame,
        config_epoch: 1,
        payload: unit.payload.clone(),
    };
    Entry::new(Instant::now(), unit, Arc::clone(tracks))
}

/// A second of a publisher's bytes, with its chunk size.
fn chunked(media: &[SyntheticUnit], chunk_size: usize) -> Vec<u8> {
    let (mut scratch, mut parts) = (BytesMut::new(), Vec::new());
    for unit in media {
        let kind = if unit.is_video { MediaKind::Video } else { MediaKind::Audio };
        let head = MessageHead {
            chunk_stream: kind.chunk_stream(),
            timestamp: u32::try_from(unit.dts_ms).unwrap_or(0),
            kind: kind.message_type(),
            message_stream: 1,
        };
        let prefix = VideoTag::write_header(FrameType::Inter, VideoPacket::Frame, 0);
        write_message(&mut scratch, &head, &prefix, &unit.payload, chunk_size, &mut parts);
    }
    parts.iter().flat_map(|part: &Bytes| part.to_vec()).collect()
}

fn parse_chunks(c: &mut Criterion) {
    let media = second_of_media();
    let mut group = c.benchmark_group("parse RTMP chunks, 1 s of 2.5 Mb/s");
    for chunk_size in [128, 4096, CHUNK_SIZE_OUT] {
        let bytes = chunked(&media, chunk_size);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("chunks of {chunk_size}"), |b| {
            let mut reader = Reader::new(Limits::from(&Config::default()));
            let _ = reader.set_chunk_size(u32::try_from(chunk_size).unwrap_or(128));
            reader.grant(true);
            b.iter(|| {
                let mut messages = 0;
                for read in bytes.chunks(READ_BYTES) {
                    let mut input = read;
                    while let Ok(Some(message)) = reader.read(&mut input) {
                        messages += 1;
                        black_box(message);
                    }
                }
                assert_eq!(messages, FRAMES, "the reader lost messages");
            });
        });
    }
    group.finish();
}

fn package(c: &mut Criterion) {
    let (media, tracks) = (second_of_media(), tracks());
    let Some(frame) = media.iter().find(|unit| unit.is_video && !unit.key_frame) else { return };
    let frame = entry(frame, &tracks);
    let mut package = Format::Rtmp { message_stream: 1, four_ccs: rtmp::FourCcs::NONE }.package();
    c.bench_function("package a unit as RTMP", |b| b.iter(|| black_box(package.unit(&frame))));
}

/// One video unit with the audio before it goes to all viewers: appended, packaged, named for each, accounted.
fn fan_out(c: &mut Criterion) {
    let (media, tracks) = (second_of_media(), tracks());
    let format = Format::Rtmp { message_stream: 1, four_ccs: rtmp::FourCcs::NONE };
    let mut group = c.benchmark_group("one unit to all subscribers");
    for viewers in [1usize, 100, 10_000] {
        let mut ring = Ring::new(RingLimits::with_lag_ms(5000));
        let mut packager = Packager::new(format.key(), format.package(), 0);
        let mut cursors: Vec<Cursor> = (0..viewers).map(|_| Cursor::new(&ring, true)).collect();
        let mut next = media.iter().cycle();
        group.throughput(Throughput::Elements(viewers as u64));
        group.bench_function(viewers.to_string(), |b| {
            b.iter(|| {
                let Some(unit) = next.next() else { return };
                let entry = entry(unit, &tracks);
                packager.push(&entry);
                ring.push(entry);
                let head = ring.head();
                for cursor in &mut cursors {
                    cursor.skip_undecodable(&ring, head);
                    let mut gather = Gather::new(usize::MAX);
                    cursor.gather_units(&ring, &packager, head, &mut gather);
                    let taken = black_box(gather.slices()).iter().map(|slice| slice.len()).sum();
                    cursor.units_sent(&ring, &packager, head, taken, |_| ());
                }
                ring.trim(true, Some(head));
                packager.trim(ring.base());
            });
        });
    }
    group.finish();
}

fn parse_request(c: &mut Criterion) {
    let request: &[u8] = b"GET /live/rest/v2/broadcasts/list/0/50?sort_by=date&order_by=desc HTTP/1.1\r\n\
        Host: media.example.com:5080\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
        Accept: application/json, text/plain, */*\r\nAccept-Language: en\r\nAccept-Encoding: gzip, deflate\r\n\
        Referer: http://media.example.com:5080/\r\nConnection: keep-alive\r\n\r\n";
    let limits = Arc::new(http::Limits::default());
    let now = Instant::now();
    c.bench_function("parse an HTTP request", |b| {
        b.iter_batched_ref(
            || http::Connection::new(now, Arc::clone(&limits)),
            |connection| {
                let outcome = connection.handle_bytes(now, request);
                (outcome, connection.poll_event())
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = parse_chunks, package, fan_out, parse_request
}
criterion_main!(benches);
