//! Instructions of the hot steps, counted by callgrind, as ratios: twice the work costs twice as much, and not
//! more.
//!
//! Each row runs this program under `valgrind --tool=callgrind` twice and compares the instructions of the step
//! alone; those that build its input are not counted. Counts hardly depend on the machine or its load, so a ratio
//! may be asserted where a time may not. `make instructions` runs it.

#![allow(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "a program: figures for people, and nothing that others link"
)]

mod leaving;
mod steps;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use millstream::http;
use netsim::SyntheticUnit;
use rtmp::CHUNK_SIZE_OUT;

use steps::{
    EstimatedPath, FanOut, chunk_reader, chunked, entry, flv_file, read_messages, read_tags, rtmp,
    second_of_media, tracks,
};

/// A step at two sizes, and the maximum ratio of the cost of the larger to that of the smaller.
struct Row {
    name: &'static str,
    what: &'static str,
    sizes: [usize; 2],
    ratio_max: f64,
}

const ROWS: [Row; 18] = [
    row("fan-out-viewers", "77 units to 500 and to 1000 subscribers", [500, 1000], 2.05),
    row("fan-out-units", "77 and 154 units to 100 subscribers", [77, 154], 2.05),
    row("chunks-128", "1 s and 2 s of RTMP in chunks of 128", [1, 2], 2.05),
    row("chunks-60000", "4 s and 8 s of RTMP in chunks of 60 000", [4, 8], 2.05),
    row("tags", "4 s and 8 s of FLV", [4, 8], 2.05),
    row("package", "100 and 200 units packaged as RTMP", [100, 200], 2.05),
    // Packaging refers to the payload and never reads it, so the size hardly matters.
    row("package-size", "100 frames of 5 KB and of 30 KB packaged as RTMP", [5_000, 30_000], 1.05),
    row("estimate", "10 s and 20 s of the estimate of a WebRTC viewer's path", [10, 20], 2.05),
    row("requests", "50 and 100 HTTP requests on one connection", [50, 100], 2.05),
    row("leaving-idle", "2000 and 4000 idle connections that break", [2000, 4000], 2.05),
    row("leaving-viewers", "2000 and 4000 viewers of one stream that leave", [2000, 4000], 2.05),
    row("leaving-waiters", "2000 and 4000 requests for a playlist to come that leave", [2000, 4000], 2.05),
    row("leaving-starters", "2000 and 4000 viewers of a stream that they start", [2000, 4000], 2.05),
    row("leaving-awaiting", "300 and 600 sockets that each await 32 streams", [300, 600], 2.05),
    row("leaving-streams", "2000 and 4000 streams that end", [2000, 4000], 2.05),
    row("leaving-pushes", "2000 and 4000 endpoints of one stream that are removed", [2000, 4000], 2.05),
    row("leaving-control", "2000 and 4000 publishers that leave control's tables", [2000, 4000], 2.05),
    row("request-length", "50 HTTP requests with headers of 2 KB and of 4 KB", [2_000, 4_000], 2.05),
];

const fn row(name: &'static str, what: &'static str, sizes: [usize; 2], ratio_max: f64) -> Row {
    Row { name, what, sizes, ratio_max }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", name, size] => {
            run(name, size.parse().unwrap_or(1));
            ExitCode::SUCCESS
        }
        // `cargo test` also runs benches, but without this argument.
        arguments if arguments.contains(&"--bench") => compare(),
        _ => {
            println!("nothing counted: run it with `make instructions`");
            ExitCode::SUCCESS
        }
    }
}

fn compare() -> ExitCode {
    println!("| step | instructions | ratio | at most |\n|---|---|---|---|");
    let mut good = true;
    for row in &ROWS {
        let counts = row.sizes.map(|size| count(row.name, size));
        let [Ok(small), Ok(large)] = counts else {
            eprintln!("instructions: {}: {:?}", row.name, counts);
            return ExitCode::FAILURE;
        };
        let ratio = large as f64 / small.max(1) as f64;
        let is_good = small > 1000 && ratio <= row.ratio_max;
        good &= is_good;
        let mark = if is_good { "" } else { ", exceeded" };
        println!("| {} | {small} / {large} | {ratio:.3} | {}{mark} |", row.what, row.ratio_max);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the number of instructions within [`counted`].
fn count(name: &str, size: usize) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted*"])
        .arg(program)
        .args(["run", name, &size.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; is it installed?"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let found = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    found.filter(|_| output.status.success()).ok_or_else(|| text.into_owned())
}

/// Runs a step; callgrind counts the instructions inside this function only.
#[inline(never)]
fn counted(step: &mut dyn FnMut()) {
    step();
    black_box(());
}

fn run(name: &str, size: usize) {
    let media = second_of_media();
    match name {
        "fan-out-viewers" => fan_out(&media, size, media.len()),
        "fan-out-units" => fan_out(&media, 100, size),
        "chunks-128" => chunks(&media, 128, size),
        "chunks-60000" => chunks(&media, CHUNK_SIZE_OUT, size),
        "tags" => tags(&media, size),
        "package" => package(media.iter().cycle().take(size)),
        "package-size" => {
            let source =
                netsim::MediaSource::new(&crypto::Seed::from_number(1)).sizes(size, 0).gop(1_000_000);
            let frames: Vec<SyntheticUnit> = source.skip(1).take(100).collect();
            package(frames.iter());
        }
        "estimate" => {
            let path = EstimatedPath::new(size);
            let mut estimate = None;
            counted(&mut || estimate = path.run());
            assert!(estimate.is_some(), "nothing was estimated");
        }
        "requests" => requests(size, 0),
        "request-length" => requests(50, size),
        "leaving-idle" => leave(leaving::Crowd::asking(size, "/rest/v2/version")),
        "leaving-viewers" => leave(leaving::Crowd::asking(size, "/live/cam.flv")),
        "leaving-waiters" => leave(leaving::Crowd::asking(size, "/live/streams/cam.m3u8")),
        "leaving-starters" => leave(leaving::Crowd::starting(size)),
        "leaving-awaiting" => leave(leaving::Crowd::awaiting(size)),
        "leaving-streams" => leave(leaving::Crowd::of_streams(size)),
        "leaving-pushes" => leave(leaving::Crowd::pushing(size)),
        "leaving-control" => {
            let mut publishers = leaving::Publishers::new(size);
            counted(&mut || assert!(publishers.leave() > 0, "nobody was there"));
        }
        _ => eprintln!("instructions: no step is called '{name}'"),
    }
}

fn leave(mut crowd: leaving::Crowd) {
    let mut left = 0;
    counted(&mut || left = crowd.leave());
    assert!(left > 0, "nobody was there");
}

fn fan_out(media: &[SyntheticUnit], viewers: usize, units: usize) {
    let mut stream = FanOut::new(rtmp(), viewers);
    // The first pass lets the buffers grow, and is not counted.
    media.iter().for_each(|unit| stream.pass(unit));
    counted(&mut || media.iter().cycle().take(units).for_each(|unit| stream.pass(unit)));
}

fn chunks(media: &[SyntheticUnit], chunk_size: usize, seconds: usize) {
    let bytes = chunked(media, chunk_size).repeat(seconds);
    let mut reader = chunk_reader(chunk_size);
    counted(&mut || {
        black_box(read_messages(&mut reader, &bytes));
    });
}

fn tags(media: &[SyntheticUnit], seconds: usize) {
    let media: Vec<SyntheticUnit> = media.iter().cycle().take(media.len() * seconds).cloned().collect();
    let file = flv_file(&media);
    counted(&mut || {
        black_box(read_tags(&file));
    });
}

fn package<'a>(units: impl Iterator<Item = &'a SyntheticUnit>) {
    let tracks = tracks();
    let entries: Vec<_> = units.map(|unit| entry(unit, &tracks)).collect();
    let (Some(mut package), chosen) = (rtmp().package(), rtmp().choose(&tracks)) else { return };
    counted(&mut || {
        entries.iter().for_each(|entry| {
            black_box(package.unit(entry, &chosen));
        });
    });
}

fn requests(count: usize, header_bytes: usize) {
    let now = Instant::now();
    let header = "x".repeat(header_bytes);
    let request = format!("GET /live/rest/v2/version HTTP/1.1\r\nHost: a\r\nX-Long: {header}\r\n\r\n");
    let mut connection = http::Connection::new(now, Arc::new(http::Limits::default()));
    counted(&mut || {
        for _ in 0..count {
            let _ = connection.handle_bytes(now, request.as_bytes());
            black_box(connection.poll_event());
            connection.respond(now, 0, http::Response::empty(204));
            let mut queue = wire::SendQueue::new();
            connection.poll_transmit(&mut queue);
            connection.handle_sent(now, queue.len());
        }
    });
}
