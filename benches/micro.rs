//! Wall time of each hot step alone: reading chunks and tags, packaging a unit, sending from the ring to many
//! viewers, parsing a request.

#![allow(missing_docs, unreachable_pub, reason = "criterion's macros make public functions")]

mod steps;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use millstream::http;
use rtmp::CHUNK_SIZE_OUT;

use steps::{
    EstimatedPath, FRAMES, FanOut, chunk_reader, chunked, entry, flv_file, read_messages, read_tags, rtmp,
    second_of_media, tracks,
};

fn parse_chunks(c: &mut Criterion) {
    let media = second_of_media();
    let mut group = c.benchmark_group("parse RTMP chunks, 1 s of 2.5 Mb/s");
    for chunk_size in [128, 4096, CHUNK_SIZE_OUT] {
        let bytes = chunked(&media, chunk_size);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("chunks of {chunk_size}"), |b| {
            let mut reader = chunk_reader(chunk_size);
            b.iter(|| assert_eq!(read_messages(&mut reader, &bytes), FRAMES, "the reader lost messages"));
        });
    }
    group.finish();
}

fn package(c: &mut Criterion) {
    let (media, tracks) = (second_of_media(), tracks());
    let Some(frame) = media.iter().find(|unit| unit.is_video && !unit.key_frame) else { return };
    let frame = entry(frame, &tracks);
    let (Some(mut package), chosen) = (rtmp().package(), rtmp().choose(&tracks)) else { return };
    c.bench_function("package a unit as RTMP", |b| b.iter(|| black_box(package.unit(&frame, &chosen))));
}

fn parse_tags(c: &mut Criterion) {
    let file = flv_file(&second_of_media());
    let mut group = c.benchmark_group("read FLV tags, 1 s of 2.5 Mb/s");
    group.throughput(Throughput::Bytes(file.len() as u64));
    group.bench_function("file", |b| {
        b.iter(|| assert_eq!(read_tags(&file), FRAMES, "the reader lost tags"));
    });
    group.finish();
}

/// Measures sending a video unit, with the audio before it, to all viewers.
fn fan_out(c: &mut Criterion) {
    let media = second_of_media();
    let mut group = c.benchmark_group("one unit to all subscribers");
    for viewers in [1usize, 100, 10_000] {
        let mut stream = FanOut::new(rtmp(), viewers);
        let mut next = media.iter().cycle();
        group.throughput(Throughput::Elements(viewers as u64));
        group.bench_function(viewers.to_string(), |b| {
            b.iter(|| {
                let Some(unit) = next.next() else { return };
                stream.pass(unit);
            });
        });
    }
    group.finish();
}

/// Measures the estimate of one viewer's path over ten seconds of the stream.
fn estimate(c: &mut Criterion) {
    let path = EstimatedPath::new(10);
    c.bench_function("estimate a WebRTC viewer's path, 10 s of 2.5 Mb/s", |b| {
        b.iter(|| assert!(path.run().is_some(), "nothing was estimated"));
    });
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
    targets = parse_chunks, parse_tags, package, fan_out, estimate, parse_request
}
criterion_main!(benches);
